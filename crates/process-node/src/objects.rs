//! Caches of the objects that pods refer to, and word of their changes.

use std::fmt::Debug;
use std::sync::Arc;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::Api;
use kube::runtime::reflector::{ObjectRef, Store, store};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use kube::{Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::sync::broadcast;
use tracing::warn;

/// How many changes a slow listener may lag behind before it must look at everything.
const BACKLOG: usize = 1024;

/// Kinds that a change can be of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A `ConfigMap`.
    ConfigMap,
    /// A Secret.
    Secret,
    /// A Service.
    Service,
    /// An `EndpointSlice`.
    EndpointSlice,
}

/// Something was created, changed or deleted.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// Of which kind.
    pub(crate) kind: Kind,
    /// In which namespace and of what name; none after a restart of the watch, when it may be anything.
    pub(crate) object: Option<(String, String)>,
}

/// The caches.
#[derive(Clone)]
pub(crate) struct Objects {
    client: Client,
    config_maps: Store<ConfigMap>,
    secrets: Store<Secret>,
    /// All Services.
    pub(crate) services: Store<Service>,
    /// All `EndpointSlices`.
    pub(crate) slices: Store<EndpointSlice>,
    changes: broadcast::Sender<Change>,
}

impl Objects {
    /// Starts watching, for as long as the program runs.
    pub(crate) fn start(client: &Client) -> Self {
        let (changes, _) = broadcast::channel(BACKLOG);
        Self {
            client: client.clone(),
            config_maps: cache(client, Kind::ConfigMap, &changes),
            secrets: cache(client, Kind::Secret, &changes),
            services: cache(client, Kind::Service, &changes),
            slices: cache(client, Kind::EndpointSlice, &changes),
            changes,
        }
    }

    /// All changes from now on.
    pub(crate) fn changes(&self) -> broadcast::Receiver<Change> {
        self.changes.subscribe()
    }

    /// A `ConfigMap`; none if there is none.
    pub(crate) async fn config_map(
        &self,
        namespace: &str,
        name: &str,
    ) -> kube::Result<Option<Arc<ConfigMap>>> {
        self.find(&self.config_maps, namespace, name).await
    }

    /// A Secret; none if there is none.
    pub(crate) async fn secret(&self, namespace: &str, name: &str) -> kube::Result<Option<Arc<Secret>>> {
        self.find(&self.secrets, namespace, name).await
    }

    /// From the cache, or, since the cache may be behind the Pod that asks, from the API server.
    async fn find<K: Namespaced>(
        &self,
        cache: &Store<K>,
        namespace: &str,
        name: &str,
    ) -> kube::Result<Option<Arc<K>>> {
        if let Some(found) = cache.get(&ObjectRef::new(name).within(namespace)) {
            return Ok(Some(found));
        }
        Ok(Api::<K>::namespaced(self.client.clone(), namespace).get_opt(name).await?.map(Arc::new))
    }
}

/// What the caches need of their objects.
pub(crate) trait Namespaced:
    Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
    + Clone
    + Debug
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

impl<K> Namespaced for K where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

fn cache<K: Namespaced>(client: &Client, kind: Kind, changes: &broadcast::Sender<Change>) -> Store<K> {
    let (reader, writer) = store::<K>();
    let api = Api::<K>::all(client.clone());
    let changes = changes.clone();
    tokio::spawn(async move {
        let events = watch(api, watcher::Config::default())
            .default_backoff()
            .modify(|object| object.managed_fields_mut().clear())
            .reflect(writer);
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            let object = match event {
                Ok(Event::Apply(object) | Event::Delete(object)) => {
                    Some((object.namespace().unwrap_or_default(), object.name_any()))
                }
                Ok(Event::InitDone) => None,
                Ok(Event::Init | Event::InitApply(_)) => continue,
                Err(error) => {
                    warn!(?kind, %error, "the watch is interrupted");
                    continue;
                }
            };
            // Nobody listening is no error.
            let _ = changes.send(Change { kind, object });
        }
    });
    reader
}
