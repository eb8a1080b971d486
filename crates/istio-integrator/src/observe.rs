//! What the integrator reads of the cluster, and how it is kept up to date.
//!
//! Each kind has one watch into one cache. An object is stripped to what is read of it before it is kept. Custom
//! resources are decoded one by one, so that one which does not have the form of its kind is known by name and error
//! instead of stopping the watch.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{ConfigMap, Namespace, Pod, Service},
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
    discover::{ControlPlane, MeshConfig},
    guard::{self, ObservedChain, ObservedPod, ObservedService},
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

fn hindrance(kind: &str, sync: &Sync) -> Option<String> {
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
    let mut watches = JoinSet::new();
    let everything = watcher::Config::default;
    let all = |resource: &ApiResource| Api::<DynamicObject>::all_with(client.clone(), resource);
    watches.spawn(follow(
        all(&resource::<GatewayBinding>()),
        everything(),
        Arc::clone(&caches.bindings),
        custom,
        wake.clone(),
        Arc::clone(metrics),
    ));
    watches.spawn(follow(
        all(&resource::<IngressRequest>()),
        everything(),
        Arc::clone(&caches.requests),
        custom,
        wake.clone(),
        Arc::clone(metrics),
    ));
    watches.spawn(follow(
        all(&resource::<Gateway>()),
        everything(),
        Arc::clone(&caches.gateways),
        |object| (Key::of(&object.metadata), Entry::new(&object.metadata, field(&object, "spec"))),
        wake.clone(),
        Arc::clone(metrics),
    ));
    watches.spawn(follow(
        all(&resource::<AuthProvider>()),
        everything(),
        Arc::clone(&caches.providers),
        custom,
        wake.clone(),
        Arc::clone(metrics),
    ));
    watches.spawn(follow(
        all(&resource::<ReferenceGrant>()),
        everything(),
        Arc::clone(&caches.grants),
        |object| {
            // One that cannot be read grants nothing.
            let granted =
                field(&object, "spec").map(|spec| ReferenceGrant { metadata: object.metadata.clone(), spec });
            (
                Key::of(&object.metadata),
                Entry::new(&object.metadata, granted.map(|object| grant(&object)).unwrap_or_default()),
            )
        },
        wake.clone(),
        Arc::clone(metrics),
    ));
    watches.spawn(follow(
        all(&resource::<ServiceEntry>()),
        everything(),
        Arc::clone(&caches.claims),
        |object| {
            let spec: ServiceEntrySpec = field(&object, "spec").unwrap_or_default();
            (Key::of(&object.metadata), Entry::new(&object.metadata, claimed_hosts(&spec)))
        },
        wake.clone(),
        Arc::clone(metrics),
    ));
    watches.spawn(follow(
        all(&resource::<VirtualService>()),
        everything().fields(&format!("metadata.namespace!={namespace}")),
        Arc::clone(&caches.foreign),
        |object| {
            let spec = field(&object, "spec").unwrap_or_default();
            (Key::of(&object.metadata), Entry::new(&object.metadata, foreign(&object, &spec)))
        },
        wake.clone(),
        Arc::clone(metrics),
    ));
    watches.spawn(follow(
        all(&resource::<EnvoyFilter>()),
        everything(),
        Arc::clone(&caches.chains),
        move |object| guard::chain(&object, identity),
        wake.clone(),
        Arc::clone(metrics),
    ));
    watches.spawn(follow(
        Api::<Deployment>::all(client.clone()),
        everything().labels("app=istiod"),
        Arc::clone(&caches.control_planes),
        |object| (Key::of(&object.metadata), Entry::new(&object.metadata, ControlPlane::read(&object))),
        wake.clone(),
        Arc::clone(metrics),
    ));
    // All of them, not only those with our label: a foreign one of the same name must be seen before it is written.
    watches.spawn(follow(
        Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource::<VirtualService>()),
        everything(),
        Arc::clone(&caches.virtual_services),
        move |object| routes(&object, identity),
        wake.clone(),
        Arc::clone(metrics),
    ));
    watches.spawn(follow(
        Api::<Service>::all(client.clone()),
        everything(),
        Arc::clone(&caches.services),
        |object| (Key::of(&object.metadata), Entry::new(&object.metadata, ObservedService::read(&object))),
        wake.clone(),
        Arc::clone(metrics),
    ));
    watches.spawn(follow(
        Api::<PartialObjectMeta<Namespace>>::all(client.clone()),
        everything(),
        Arc::clone(&caches.namespaces),
        |object| {
            let labels = object.metadata.labels.clone().unwrap_or_default();
            (Key::of(&object.metadata), Entry::new(&object.metadata, labels))
        },
        wake.clone(),
        Arc::clone(metrics),
    ));
    watches
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
        created: object.metadata.creation_timestamp.clone(),
        owner,
        key: ObjectKey::new(key.namespace, key.name),
    }
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

/// The pods that run gateways, by the selectors of the Gateways that bindings name.
///
/// Only pods that one of the selectors picks are watched, and little is kept of them.
pub(crate) struct GatewayPods {
    client: Client,
    wake: Wake,
    metrics: Arc<Metrics>,
    watches: BTreeMap<String, PodWatch>,
}

#[derive(Debug)]
struct PodWatch {
    cache: Arc<Cache<ObservedPod>>,
    // Dropped with the watch, which ends it.
    _task: JoinSet<()>,
}

impl GatewayPods {
    /// Watches nothing yet.
    pub(crate) fn new(client: Client, wake: Wake, metrics: Arc<Metrics>) -> Self {
        Self { client, wake, metrics, watches: BTreeMap::new() }
    }

    /// Watches the pods that these selectors pick, and no others.
    pub(crate) fn select<'s>(&mut self, selectors: impl IntoIterator<Item = &'s BTreeMap<String, String>>) {
        let wanted: BTreeSet<String> = selectors.into_iter().filter_map(label_query).collect();
        self.watches.retain(|query, _| wanted.contains(query));
        for query in wanted {
            if self.watches.contains_key(&query) {
                continue;
            }
            let cache = Arc::new(Cache::new("Pod"));
            let mut task = JoinSet::new();
            task.spawn(follow(
                Api::<Pod>::all(self.client.clone()),
                watcher::Config::default().labels(&query),
                Arc::clone(&cache),
                |pod| ObservedPod::read(&pod),
                self.wake.clone(),
                Arc::clone(&self.metrics),
            ));
            self.watches.insert(query, PodWatch { cache, _task: task });
        }
    }

    /// What still hinders a pass.
    pub(crate) fn missing(&self) -> Vec<String> {
        self.watches
            .iter()
            .filter_map(|(query, watch)| hindrance(&format!("Pod ({query})"), &watch.cache.sync()))
            .collect()
    }

    /// The pods that this selector picks; nothing where they are not followed.
    pub(crate) fn pods(
        &self,
        selector: &BTreeMap<String, String>,
    ) -> Option<BTreeMap<Key, Arc<ObservedPod>>> {
        if selector.is_empty() {
            return None;
        }
        let watch = label_query(selector).and_then(|query| self.watches.get(&query));
        let pods = watch.map(|watch| watch.cache.snapshot()).unwrap_or_default();
        Some(pods.into_iter().map(|(key, entry)| (key, entry.value)).collect())
    }
}

/// The mesh configs of the control planes that are there.
pub(crate) struct MeshConfigs {
    client: Client,
    wake: Wake,
    metrics: Arc<Metrics>,
    watches: BTreeMap<Key, ConfigWatch>,
}

struct ConfigWatch {
    cache: Arc<Cache<MeshConfig>>,
    // Dropped with the watch, which ends it.
    _task: JoinSet<()>,
}

impl MeshConfigs {
    /// Watches nothing yet.
    pub(crate) fn new(client: Client, wake: Wake, metrics: Arc<Metrics>) -> Self {
        Self { client, wake, metrics, watches: BTreeMap::new() }
    }

    /// Follows the ConfigMaps of these control planes, each by its name: no others are read.
    pub(crate) fn select(&mut self, control_planes: &Cache<ControlPlane>) {
        let planes = control_planes.snapshot();
        let wanted: BTreeSet<Key> = planes
            .values()
            .map(|entry| Key { namespace: entry.value.namespace.clone(), name: entry.value.config_map() })
            .collect();
        self.watches.retain(|key, _| wanted.contains(key));
        for key in wanted {
            if self.watches.contains_key(&key) {
                continue;
            }
            let cache = Arc::new(Cache::new("ConfigMap"));
            let mut task = JoinSet::new();
            task.spawn(follow(
                Api::<ConfigMap>::namespaced(self.client.clone(), &key.namespace),
                watcher::Config::default().fields(&format!("metadata.name={}", key.name)),
                Arc::clone(&cache),
                |object| guard::mesh_config(&object),
                self.wake.clone(),
                Arc::clone(&self.metrics),
            ));
            self.watches.insert(key, ConfigWatch { cache, _task: task });
        }
    }

    /// What still hinders a pass. A ConfigMap that may not be read does not: Istio's defaults are taken for it.
    pub(crate) fn missing(&self) -> Vec<String> {
        let unread = self.watches.iter().filter(|(_, watch)| watch.cache.sync() == Sync::Pending(None));
        unread.map(|(key, _)| format!("ConfigMap {key} is not read yet")).collect()
    }

    /// The mesh configs, by namespace and name of the ConfigMap.
    pub(crate) fn known(&self) -> BTreeMap<Key, MeshConfig> {
        let known = self.watches.iter().filter_map(|(key, watch)| {
            let entry = watch.cache.snapshot().remove(key)?;
            Some((key.clone(), entry.value.as_ref().clone()))
        });
        known.collect()
    }
}

/// The selector as a query, or nothing where it picks no pod: a label or value that no pod can have would make the
/// API server refuse the whole query. An empty selector, by which Istio means every proxy, is not followed: it would
/// be all pods of the cluster.
fn label_query(selector: &BTreeMap<String, String>) -> Option<String> {
    let valid = !selector.is_empty()
        && selector
            .iter()
            .all(|(key, value)| is_label_key(key) && (value.is_empty() || is_label_name(value)));
    valid.then(|| selector.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(","))
}

/// Kubernetes' rule for label keys: `[DNS subdomain/]name`.
fn is_label_key(key: &str) -> bool {
    match key.split_once('/') {
        None => is_label_name(key),
        Some((prefix, name)) => {
            prefix.len() <= 253
                && prefix.split('.').all(|label| {
                    is_bounded_by_alphanumerics(label)
                        && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
                })
                && is_label_name(name)
        }
    }
}

/// Kubernetes' rule for label values and the names of labels.
fn is_label_name(text: &str) -> bool {
    text.len() <= 63
        && is_bounded_by_alphanumerics(text)
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

fn is_bounded_by_alphanumerics(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric())
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
    fn selectors_become_queries() {
        let query = |pairs: &[(&str, &str)]| {
            let selector =
                pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            label_query(&selector)
        };
        assert_eq!(query(&[("istio", "ingress"), ("app", "gw")]).as_deref(), Some("app=gw,istio=ingress"));
        assert_eq!(query(&[("example.com/role", "")]).as_deref(), Some("example.com/role="));
        for (key, value) in
            [("", "x"), ("a b", "x"), ("a", "x y"), ("a", "-x"), ("Ex.com/a", "x"), ("a", &"x".repeat(64))]
        {
            assert_eq!(query(&[(key, value)]), None, "{key}={value}");
        }
        assert_eq!(query(&[]), None);
    }

    #[test]
    fn says_what_it_waits_for() {
        let caches = Caches::new();
        assert_eq!(caches.missing().len(), 6);
        caches.gateways.not_served();
        caches.virtual_services.not_served();
        caches.requests.not_served();
        caches.bindings.failed("forbidden".to_owned());
        let missing = caches.missing();
        assert_eq!(missing.len(), 4, "{missing:?}");
        assert_eq!(missing[0], "GatewayBinding objects cannot be listed: forbidden");
        assert_eq!(missing[1], "IngressRequest is not served; apply its CRD (`istio-integrator crds`)");
        assert!(!caches.istio_served());
    }
}
