//! Watches that begin and end with what they are for: the pods of the gateways that bindings name, and the mesh configs
//! of the control planes that are there.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{Api, Client, runtime::watcher};
use operator_kit::{
    cache::{Cache, Key, Sync, Wake},
    metrics::Metrics,
    watch::follow,
};
use tokio::task::JoinSet;

use crate::{
    discover::{ControlPlane, MeshConfig},
    guard::{self, ObservedPod},
    observe::hindrance,
};

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
}
