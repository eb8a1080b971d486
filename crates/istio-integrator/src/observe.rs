//! What the integrator reads of the cluster, and how it is kept up to date.
//!
//! Each kind has one watch into one cache. An object is stripped to what is read of it before it is kept. Custom
//! resources are decoded one by one, so that one which does not have the form of its kind is known by name and error
//! instead of stopping the watch.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    sync::Arc,
};

use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{Namespace, Service},
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api, Client, Resource,
    core::{ApiResource, DynamicObject, ObjectMeta, PartialObjectMeta},
    runtime::watcher,
};
use mesh_api::{
    gateway_api::ReferenceGrant,
    integrator::{
        AuthProvider, AuthProviderStatus, GatewayBinding, GatewayBindingStatus, IngressRequest,
        IngressRequestStatus,
    },
    istio::{EnvoyFilter, Gateway, GatewaySpec, ServiceEntry, ServiceEntrySpec, VirtualService},
};
use operator_kit::{
    apply::{Identity, Live},
    cache::{Cache, Entry, Key, Sync, Wake},
    conflict::Owner,
    metrics::Metrics,
    watch::follow,
};
use routes::{ForeignRoutes, Grant, GrantFrom, GrantTo, ObjectKey, guard::ProviderId};
use serde::{Deserialize, de::DeserializeOwned};
use tokio::task::JoinSet;
use tracing::warn;

use crate::{
    discover::ControlPlane,
    guard::{self, ObservedChain, ObservedService},
};

/// A custom resource of ours, decoded.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Custom<K, Status> {
    /// Counts the changes of the spec.
    pub(crate) generation: Option<i64>,
    /// Whether it waits for finalizers of others to be deleted.
    pub(crate) terminating: bool,
    /// The object, stripped of its status and of metadata that is not read; or why it is none of its kind.
    pub(crate) object: Result<K, String>,
    /// The status as stored; the default where there is none or where it is not one of ours.
    pub(crate) status: Status,
}

/// A cached `GatewayBinding`.
pub(crate) type ObservedBinding = Custom<GatewayBinding, GatewayBindingStatus>;
/// A cached `IngressRequest`.
pub(crate) type ObservedRequest = Custom<IngressRequest, IngressRequestStatus>;

/// A cached `AuthProvider`.
pub(crate) type ObservedProvider = Custom<AuthProvider, AuthProviderStatus>;

/// What is kept of a `VirtualService` in the integrator's namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObservedRoutes {
    /// What decides whether it is written.
    pub(crate) live: Live,
    /// The Gateways it is attached to, as `namespace/name`.
    pub(crate) gateways: Vec<String>,
    /// The namespaces it is exported to.
    pub(crate) export_to: Vec<String>,
    /// When it was created.
    pub(crate) created: Option<Time>,
    /// What routing needs of it where it is not ours.
    pub(crate) foreign: ForeignRoutes,
    /// The providers that its routes demand.
    pub(crate) demanded: BTreeSet<ProviderId>,
}

/// The caches of everything that is read.
#[derive(Debug)]
pub(crate) struct Caches {
    pub(crate) bindings: Arc<Cache<ObservedBinding>>,
    pub(crate) requests: Arc<Cache<ObservedRequest>>,
    pub(crate) gateways: Arc<Cache<Result<GatewaySpec, String>>>,
    pub(crate) virtual_services: Arc<Cache<ObservedRoutes>>,
    pub(crate) services: Arc<Cache<ObservedService>>,
    pub(crate) namespaces: Arc<Cache<BTreeMap<String, String>>>,
    pub(crate) providers: Arc<Cache<ObservedProvider>>,
    pub(crate) grants: Arc<Cache<Grant>>,
    /// The host names that each `ServiceEntry` claims, as far as they are names of Services.
    pub(crate) claims: Arc<Cache<Vec<String>>>,
    /// The `VirtualServices` in other namespaces.
    pub(crate) foreign: Arc<Cache<ForeignRoutes>>,
    /// Guard chains, and what bears the name of one; of other `EnvoyFilters` only that they are there.
    pub(crate) chains: Arc<Cache<Option<Box<ObservedChain>>>>,
    /// The istiods.
    pub(crate) control_planes: Arc<Cache<ControlPlane>>,
}

impl Caches {
    /// Empty caches.
    pub(crate) fn new() -> Self {
        Self {
            bindings: Arc::new(Cache::new("GatewayBinding")),
            requests: Arc::new(Cache::new("IngressRequest")),
            gateways: Arc::new(Cache::new("Gateway")),
            virtual_services: Arc::new(Cache::new("VirtualService")),
            services: Arc::new(Cache::new("Service")),
            namespaces: Arc::new(Cache::new("Namespace")),
            providers: Arc::new(Cache::new("AuthProvider")),
            grants: Arc::new(Cache::new("ReferenceGrant")),
            claims: Arc::new(Cache::new("ServiceEntry")),
            foreign: Arc::new(Cache::new("VirtualService (others)")),
            chains: Arc::new(Cache::new("EnvoyFilter")),
            control_planes: Arc::new(Cache::new("Deployment (istiod)")),
        }
    }

    /// What still hinders a pass, one sentence for each kind; nothing once all is known.
    ///
    /// Kinds of Istio and of the Gateway API may be missing, as they may be installed later; ours may not.
    pub(crate) fn missing(&self) -> Vec<String> {
        let ours = [
            (self.bindings.kind(), self.bindings.sync()),
            (self.requests.kind(), self.requests.sync()),
            (self.providers.kind(), self.providers.sync()),
            (self.services.kind(), self.services.sync()),
            (self.namespaces.kind(), self.namespaces.sync()),
            (self.control_planes.kind(), self.control_planes.sync()),
        ];
        let istios = [
            (self.gateways.kind(), self.gateways.sync()),
            (self.virtual_services.kind(), self.virtual_services.sync()),
            (self.claims.kind(), self.claims.sync()),
            (self.foreign.kind(), self.foreign.sync()),
            (self.grants.kind(), self.grants.sync()),
            (self.chains.kind(), self.chains.sync()),
        ];
        let istios = istios.into_iter().filter(|(_, sync)| *sync != Sync::NotServed);
        ours.into_iter().chain(istios).filter_map(|(kind, sync)| hindrance(kind, &sync)).collect()
    }

    /// Whether the API server serves Istio's kinds.
    pub(crate) fn istio_served(&self) -> bool {
        self.gateways.sync() == Sync::Synced && self.virtual_services.sync() == Sync::Synced
    }
}

pub(crate) fn hindrance(kind: &str, sync: &Sync) -> Option<String> {
    match sync {
        Sync::Synced => None,
        Sync::Pending(None) => Some(format!("{kind} objects are not listed yet")),
        Sync::Pending(Some(error)) => Some(format!("{kind} objects cannot be listed: {error}")),
        Sync::NotServed => Some(format!("{kind} is not served; apply its CRD (`istio-integrator crds`)")),
    }
}

/// Starts the watches of everything but pods into `caches`. They run until the set is dropped.
pub(crate) fn watch_all(
    client: &Client,
    caches: &Caches,
    namespace: &str,
    identity: Identity,
    wake: &Wake,
    metrics: &Arc<Metrics>,
) -> JoinSet<()> {
    let mut watches = Watches { wake, metrics, set: JoinSet::new() };
    let everything = watcher::Config::default;
    let all = |resource: &ApiResource| Api::<DynamicObject>::all_with(client.clone(), resource);
    watches.add(all(&resource::<GatewayBinding>()), everything(), &caches.bindings, custom);
    watches.add(all(&resource::<IngressRequest>()), everything(), &caches.requests, custom);
    watches.add(all(&resource::<Gateway>()), everything(), &caches.gateways, |object| {
        (Key::of(&object.metadata), Entry::new(&object.metadata, field(&object, "spec")))
    });
    watches.add(all(&resource::<AuthProvider>()), everything(), &caches.providers, custom);
    watches.add(all(&resource::<ReferenceGrant>()), everything(), &caches.grants, |object| {
        (Key::of(&object.metadata), Entry::new(&object.metadata, granted(&object)))
    });
    watches.add(all(&resource::<ServiceEntry>()), everything(), &caches.claims, |object| {
        let spec: ServiceEntrySpec = field(&object, "spec").unwrap_or_default();
        (Key::of(&object.metadata), Entry::new(&object.metadata, claimed_hosts(&spec)))
    });
    watches.add(
        all(&resource::<VirtualService>()),
        everything().fields(&format!("metadata.namespace!={namespace}")),
        &caches.foreign,
        |object| {
            let spec = field(&object, "spec").unwrap_or_default();
            (Key::of(&object.metadata), Entry::new(&object.metadata, foreign(&object, &spec)))
        },
    );
    let instance = namespace.to_owned();
    watches.add(all(&resource::<EnvoyFilter>()), everything(), &caches.chains, move |object| {
        guard::chain(&object, identity, &instance)
    });
    watches.add(
        Api::<Deployment>::all(client.clone()),
        everything().labels("app=istiod"),
        &caches.control_planes,
        |object| (Key::of(&object.metadata), Entry::new(&object.metadata, ControlPlane::read(&object))),
    );
    // All of them, not only those with our label: a foreign one of the same name must be seen before it is written.
    watches.add(
        Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource::<VirtualService>()),
        everything(),
        &caches.virtual_services,
        move |object| routes(&object, identity),
    );
    watches.add(Api::<Service>::all(client.clone()), everything(), &caches.services, |object| {
        (Key::of(&object.metadata), Entry::new(&object.metadata, ObservedService::read(&object)))
    });
    watches.add(
        Api::<PartialObjectMeta<Namespace>>::all(client.clone()),
        everything(),
        &caches.namespaces,
        |object| {
            let labels = object.metadata.labels.clone().unwrap_or_default();
            (Key::of(&object.metadata), Entry::new(&object.metadata, labels))
        },
    );
    watches.set
}

/// Watches that have a wake and metrics in common.
struct Watches<'w> {
    wake: &'w Wake,
    metrics: &'w Arc<Metrics>,
    set: JoinSet<()>,
}

impl Watches<'_> {
    fn add<K, T>(
        &mut self,
        api: Api<K>,
        config: watcher::Config,
        cache: &Arc<Cache<T>>,
        keep: impl Fn(K) -> (Key, Entry<T>) + Send + 'static,
    ) where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
        T: PartialEq + Send + std::marker::Sync + 'static,
    {
        let (wake, metrics) = (self.wake.clone(), Arc::clone(self.metrics));
        self.set.spawn(follow(api, config, Arc::clone(cache), keep, wake, metrics));
    }
}

/// The API resource of a typed kind.
pub(crate) fn resource<K: Resource<DynamicType = ()>>() -> ApiResource {
    ApiResource::erase::<K>(&())
}

/// Decodes a custom resource of ours.
pub(crate) fn custom<K, Status>(mut object: DynamicObject) -> (Key, Entry<Custom<K, Status>>)
where
    K: Resource + DeserializeOwned,
    Status: DeserializeOwned + Default,
{
    let (key, meta) = (Key::of(&object.metadata), std::mem::take(&mut object.metadata));
    let status = field(&object, "status").unwrap_or_default();
    if let Some(members) = object.data.as_object_mut() {
        members.remove("status");
    }
    object.metadata = ObjectMeta {
        namespace: meta.namespace.clone(),
        name: meta.name.clone(),
        uid: meta.uid.clone(),
        generation: meta.generation,
        creation_timestamp: meta.creation_timestamp.clone(),
        deletion_timestamp: meta.deletion_timestamp.clone(),
        ..ObjectMeta::default()
    };
    let value = Custom {
        generation: meta.generation,
        terminating: meta.deletion_timestamp.is_some(),
        object: serde_json::to_value(&object).and_then(K::deserialize).map_err(|error| error.to_string()),
        status,
    };
    if let Err(error) = &value.object {
        let kind = object.types.as_ref().map(|types| types.kind.as_str());
        warn!(kind, object = %key, %error, "skipped: it does not have the form of its kind");
    }
    (key, Entry::new(&meta, value))
}

/// Reduces a `VirtualService` to what is read of it.
pub(crate) fn routes(object: &DynamicObject, identity: Identity) -> (Key, Entry<ObservedRoutes>) {
    let spec: Scope = field(object, "spec").unwrap_or_default();
    let value = ObservedRoutes {
        live: Live::read(object, identity),
        created: object.metadata.creation_timestamp.clone(),
        foreign: foreign(object, &spec),
        demanded: object.data.get("spec").map(guard::demanded).unwrap_or_default(),
        gateways: spec.gateways,
        export_to: spec.export_to,
    };
    (Key::of(&object.metadata), Entry::new(&object.metadata, value))
}

/// What is read of a `VirtualService`: nothing of its routes, which may be of any form where they are not ours.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Scope {
    hosts: Vec<String>,
    gateways: Vec<String>,
    export_to: Vec<String>,
}

/// What routing needs of a `VirtualService` that is not ours.
fn foreign(object: &DynamicObject, spec: &Scope) -> ForeignRoutes {
    let key = Key::of(&object.metadata);
    // A name without a namespace is in that of the VirtualService; `mesh` means sidecars.
    let gateways =
        spec.gateways.iter().filter(|name| *name != "mesh").map(|name| match name.split_once('/') {
            Some((namespace, name)) => ObjectKey::new(namespace, name),
            None => ObjectKey::new(&key.namespace, name),
        });
    let owner = Owner::of(&object.metadata, mesh_api::names::INTEGRATOR).to_string();
    ForeignRoutes {
        gateways: gateways.collect(),
        hosts: spec.hosts.iter().map(|host| host.to_ascii_lowercase()).collect(),
        export_to: spec.export_to.clone(),
        created: object.metadata.creation_timestamp.clone(),
        owner,
        key: ObjectKey::new(key.namespace, key.name),
    }
}

/// What a `ReferenceGrant` grants: nothing, if it cannot be read.
fn granted(object: &DynamicObject) -> Grant {
    let spec = field(object, "spec").ok();
    let read = spec.map(|spec| ReferenceGrant { metadata: object.metadata.clone(), spec });
    read.map(|read| grant(&read)).unwrap_or_default()
}

/// Reduces a `ReferenceGrant` to what is read of it.
pub(crate) fn grant(object: &ReferenceGrant) -> Grant {
    let from = object.spec.from.iter().map(|from| GrantFrom {
        group: from.group.clone(),
        kind: from.kind.clone(),
        namespace: from.namespace.clone(),
    });
    let to = object.spec.to.iter().map(|to| GrantTo {
        group: to.group.clone(),
        kind: to.kind.clone(),
        name: to.name.clone(),
    });
    Grant {
        namespace: object.metadata.namespace.clone().unwrap_or_default(),
        from: from.collect(),
        to: to.collect(),
    }
}

/// The names that a `ServiceEntry` claims and that could be those of a Service: only these matter to providers.
pub(crate) fn claimed_hosts(spec: &ServiceEntrySpec) -> Vec<String> {
    let hosts = spec.hosts.iter().map(|host| host.to_ascii_lowercase());
    hosts.filter(|host| host.contains(".svc.")).collect()
}

fn field<T: DeserializeOwned>(object: &DynamicObject, name: &str) -> Result<T, String> {
    let value = object.data.get(name).ok_or_else(|| format!("{name} is missing"))?;
    T::deserialize(value).map_err(|error| format!("{name}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(value: serde_json::Value) -> DynamicObject {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn an_undecodable_object_is_known_by_its_error() {
        let (key, entry) = custom::<IngressRequest, IngressRequestStatus>(object(json!({
            "metadata": {"namespace": "shop", "name": "web", "uid": "u", "generation": 3, "resourceVersion": "7"},
            "spec": {"routes": "none"},
            "status": {"urls": ["http://x"]},
        })));
        assert_eq!((key.to_string().as_str(), entry.version.as_str()), ("shop/web", "7"));
        let error = entry.value.object.clone().unwrap_err();
        assert!(error.contains("string \"none\""), "{error}");
        // Its status is still known, so that the verdict is not written twice.
        assert_eq!(entry.value.status.urls, ["http://x"]);
        assert_eq!(entry.value.generation, Some(3));
    }

    #[test]
    fn what_is_not_read_is_no_change() {
        let observed = |version: &str, label: &str| {
            let (_, entry) = custom::<IngressRequest, IngressRequestStatus>(object(json!({
                "apiVersion": "integrator.istio-operators.io/v1alpha1", "kind": "IngressRequest",
                "metadata": {"namespace": "shop", "name": "web", "resourceVersion": version, "labels": {"l": label}},
                "spec": {"routes": [{"backends": [{"service": "web", "port": 80}]}]},
                "status": {"urls": ["http://x"]},
            })));
            entry.value
        };
        let before = observed("7", "a");
        assert!(before.object.as_ref().unwrap().status.is_none(), "the status is kept once");
        assert_eq!(before, observed("8", "b"));
    }

    #[test]
    fn says_what_it_waits_for() {
        let caches = Caches::new();
        assert_eq!(caches.missing().len(), 12);
        caches.gateways.not_served();
        caches.virtual_services.not_served();
        caches.requests.not_served();
        caches.bindings.failed("forbidden".to_owned());
        let missing = caches.missing();
        assert_eq!(missing.len(), 10, "{missing:?}");
        assert_eq!(missing[0], "GatewayBinding objects cannot be listed: forbidden");
        assert_eq!(missing[1], "IngressRequest is not served; apply its CRD (`istio-integrator crds`)");
        assert!(!caches.istio_served());
    }
}
