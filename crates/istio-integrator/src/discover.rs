//! The Istio that runs a gateway, by what it left in the cluster: pure.
//!
//! Nothing is asked of istiod itself, and nothing depends on who installed it: a Deployment labelled `app=istiod` tells
//! the revision, the version and the namespace, and the ConfigMap beside it the mesh config.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use k8s_openapi::api::apps::v1::Deployment;
use mesh_api::Reason;
use operator_kit::cache::Key;
use routes::Finding;
use serde::Deserialize;

/// The label that ties a gateway pod, a Deployment of istiod and its ConfigMap to a revision.
pub(crate) const REVISION_LABEL: &str = "istio.io/rev";
/// The revision of what has no label.
const DEFAULT_REVISION: &str = "default";
/// The root namespace where a mesh config names none, wherever istiod runs.
/// Source: `DefaultMeshConfig` in Istio's `pkg/config/mesh/mesh.go`.
const DEFAULT_ROOT_NAMESPACE: &str = "istio-system";
/// How long Envoy lets connections drain unless told otherwise.
/// Source: `drainDuration` of Istio's `ProxyConfig`.
pub(crate) const DEFAULT_DRAIN: Duration = Duration::from_secs(45);
/// The oldest minor version that is supported.
const OLDEST: (u32, u32) = (1, 24);

/// A control plane.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ControlPlane {
    /// The namespace of istiod.
    pub(crate) namespace: String,
    /// The revision.
    pub(crate) revision: String,
    /// The version, as far as an image tag or label tells.
    pub(crate) version: Option<String>,
}

impl ControlPlane {
    /// Reads the Deployment of an istiod.
    pub(crate) fn read(deployment: &Deployment) -> Self {
        let labels = deployment.metadata.labels.clone().unwrap_or_default();
        let template = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
        let image =
            template.and_then(|pod| pod.containers.first()).and_then(|container| container.image.as_deref());
        // A registry may have a port, so that only what follows the last slash can hold a tag.
        let tag = image.and_then(|image| image.rsplit('/').next()?.split('@').next()?.split_once(':'));
        let version =
            tag.map(|(_, tag)| tag.to_owned()).or_else(|| labels.get("app.kubernetes.io/version").cloned());
        Self {
            namespace: deployment.metadata.namespace.clone().unwrap_or_default(),
            revision: labels.get(REVISION_LABEL).cloned().unwrap_or_else(|| DEFAULT_REVISION.to_owned()),
            version,
        }
    }

    /// The name of the ConfigMap of its mesh config.
    pub(crate) fn config_map(&self) -> String {
        if self.revision == DEFAULT_REVISION {
            "istio".to_owned()
        } else {
            format!("istio-{}", self.revision)
        }
    }
}

/// What is read of a mesh config.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MeshConfig {
    /// The namespace whose `EnvoyFilters` reach every namespace, if it names one. Istio's charts always do.
    pub(crate) root_namespace: Option<String>,
    /// Whether paths are left as they are (`pathNormalization: NONE`).
    pub(crate) paths_not_normalized: bool,
    /// How long Envoy lets connections drain.
    pub(crate) drain: Option<Duration>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawMeshConfig {
    root_namespace: Option<String>,
    path_normalization: RawNormalization,
    default_config: RawProxyConfig,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawNormalization {
    normalization: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawProxyConfig {
    drain_duration: Option<String>,
}

impl MeshConfig {
    /// Reads the value of the key `mesh`. What cannot be read counts as not set.
    pub(crate) fn read(text: &str) -> Self {
        let raw: RawMeshConfig = serde_saphyr::from_str(text).unwrap_or_default();
        Self {
            root_namespace: raw.root_namespace.filter(|name| mesh_api::syntax::is_dns_label(name)),
            paths_not_normalized: raw.path_normalization.normalization.as_deref() == Some("NONE"),
            drain: raw.default_config.drain_duration.as_deref().and_then(drain),
        }
    }
}

/// How long Envoy lets connections drain in a pod, by the value of the pod's annotation `proxy.istio.io/config`, which goes
/// before the mesh config; nothing if it does not say.
pub(crate) fn pod_drain(proxy_config: &str) -> Option<Duration> {
    let raw: RawProxyConfig = serde_saphyr::from_str(proxy_config).ok()?;
    drain(&raw.drain_duration?)
}

/// A duration as protobuf writes it in JSON: seconds, up to nine decimals, and `s`.
fn drain(text: &str) -> Option<Duration> {
    let (whole, fraction) = text.strip_suffix('s')?.split_once('.').unwrap_or((text.strip_suffix('s')?, ""));
    let millis: u64 = format!("{fraction:0<3}").get(..3)?.parse().ok()?;
    Some(Duration::from_secs(whole.parse().ok()?) + Duration::from_millis(millis))
}

/// What the mesh of a gateway is like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Environment {
    /// The namespace for guard chains.
    pub(crate) root_namespace: String,
    /// Whether paths are left as they are.
    pub(crate) paths_not_normalized: bool,
    /// How long connections drain after a change of the chain.
    pub(crate) drain: Duration,
}

/// What tells the control plane of a gateway.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signals<'s> {
    /// The revisions that its pods, or else their namespaces, are labelled with.
    pub(crate) revisions: &'s BTreeSet<String>,
    /// The revision that each tag stands for.
    pub(crate) tags: &'s BTreeMap<String, String>,
    /// The control planes that are there.
    pub(crate) planes: &'s [ControlPlane],
    /// The mesh configs, by namespace and name of the ConfigMap, as far as they may be read.
    pub(crate) configs: &'s BTreeMap<Key, MeshConfig>,
    /// The root namespace where no istiod can be seen, as with one outside the cluster.
    pub(crate) fallback: &'s str,
}

/// Finds the control plane of a gateway. Where its mesh config may not be read, Istio's defaults are taken for it, and
/// istiod's own namespace for the root namespace, as Istio's charts have it.
///
/// # Errors
/// Several control planes that it could be, or one that is too old.
pub(crate) fn environment(signals: Signals<'_>) -> Result<Environment, Finding> {
    let Signals { revisions, tags, planes, configs, fallback } = signals;
    // A revision goes before a tag of the same name, which Istio forbids.
    let resolved = |name: &str| -> String {
        let is_revision = planes.iter().any(|plane| plane.revision == name);
        tags.get(name).filter(|_| !is_revision).map_or_else(|| name.to_owned(), Clone::clone)
    };
    let wanted: BTreeSet<String> = if revisions.is_empty() {
        [resolved(DEFAULT_REVISION)].into()
    } else {
        revisions.iter().map(|name| resolved(name)).collect()
    };
    let of_revision = |plane: &&ControlPlane| wanted.contains(&plane.revision);
    let mut candidates: Vec<&ControlPlane> = planes.iter().filter(of_revision).collect();
    // A webhook's tag, which is not looked at, may stand for any of them.
    if candidates.is_empty() {
        candidates = planes.iter().collect();
    }
    candidates.sort();
    if let Some(old) = candidates.iter().find(|plane| plane.version.as_deref().is_some_and(is_too_old)) {
        let version = old.version.as_deref().unwrap_or_default();
        let message = format!(
            "istiod in namespace {} is of version {version}, and logins need {}.{} or later: upgrade it",
            old.namespace, OLDEST.0, OLDEST.1
        );
        return Err(bad(Reason::UnsupportedVersion, message));
    }
    let config = |plane: &ControlPlane| {
        let key = Key { namespace: plane.namespace.clone(), name: plane.config_map() };
        configs.get(&key)
    };
    let found: Vec<(Environment, &ControlPlane)> = candidates
        .iter()
        .map(|plane| {
            let config = config(plane);
            let root_namespace = config.map_or(plane.namespace.as_str(), |config| {
                config.root_namespace.as_deref().unwrap_or(DEFAULT_ROOT_NAMESPACE)
            });
            let environment = Environment {
                root_namespace: root_namespace.to_owned(),
                paths_not_normalized: config.is_some_and(|config| config.paths_not_normalized),
                drain: config.and_then(|config| config.drain).unwrap_or(DEFAULT_DRAIN),
            };
            (environment, *plane)
        })
        .collect();
    let Some((first, _)) = found.first() else {
        return Ok(Environment {
            root_namespace: fallback.to_owned(),
            paths_not_normalized: false,
            drain: DEFAULT_DRAIN,
        });
    };
    if found.iter().any(|(other, _)| other.root_namespace != first.root_namespace) {
        let named = found.iter().map(|(environment, plane)| {
            format!("{}/{} (root namespace {})", plane.namespace, plane.revision, environment.root_namespace)
        });
        let message = format!(
            "several control planes could be that of the gateway: {}: label its pods with {REVISION_LABEL}",
            named.collect::<Vec<_>>().join(", ")
        );
        return Err(bad(Reason::AmbiguousControlPlane, message));
    }
    Ok(Environment {
        root_namespace: first.root_namespace.clone(),
        // Where they differ, the stricter reading and the longer drain are right for each.
        paths_not_normalized: found.iter().any(|(environment, _)| environment.paths_not_normalized),
        drain: found.iter().map(|(environment, _)| environment.drain).max().unwrap_or(DEFAULT_DRAIN),
    })
}

fn bad(reason: Reason, message: String) -> Finding {
    Finding { status: routes::Status::False, reason, message }
}

/// Whether the version is known and older than what is supported. Development builds and hashes are taken as new.
fn is_too_old(version: &str) -> bool {
    let mut parts = version.split(['.', '-']).map(str::parse::<u32>);
    match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) < OLDEST,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn plane(namespace: &str, revision: &str, version: &str) -> ControlPlane {
        ControlPlane {
            namespace: namespace.to_owned(),
            revision: revision.to_owned(),
            version: Some(version.to_owned()),
        }
    }

    fn found(revisions: &[&str], planes: &[ControlPlane]) -> Result<String, Reason> {
        tagged(revisions, &[], planes)
    }

    fn tagged(revisions: &[&str], tags: &[(&str, &str)], planes: &[ControlPlane]) -> Result<String, Reason> {
        let revisions = revisions.iter().map(|revision| (*revision).to_owned()).collect();
        let tags = tags.iter().map(|(tag, revision)| ((*tag).to_owned(), (*revision).to_owned())).collect();
        let configs = BTreeMap::new();
        let fallback = "fallback";
        environment(Signals { revisions: &revisions, tags: &tags, planes, configs: &configs, fallback })
            .map(|environment| environment.root_namespace)
            .map_err(|finding| finding.reason)
    }

    #[test]
    fn the_control_plane_is_that_of_the_pods_revision() {
        let both = [plane("istio-system", "default", "1.31.1"), plane("istio-canary", "canary", "1.31.1")];
        assert_eq!(found(&["default"], &both), Ok("istio-system".to_owned()));
        assert_eq!(found(&["canary"], &both), Ok("istio-canary".to_owned()));
        assert_eq!(found(&[], &both), Ok("istio-system".to_owned()));
        assert_eq!(found(&["prod"], &both), Err(Reason::AmbiguousControlPlane), "a tag may be either's");
        assert_eq!(found(&["prod"], &both[1..]), Ok("istio-canary".to_owned()));
        assert_eq!(found(&["default", "canary"], &both), Err(Reason::AmbiguousControlPlane));
        assert_eq!(found(&["default"], &[]), Ok("fallback".to_owned()));
        let same = [plane("istio-system", "default", "1.31.0"), plane("istio-system", "canary", "1.31.1")];
        assert_eq!(found(&["prod"], &same), Ok("istio-system".to_owned()), "it is the same whichever it is");
    }

    #[test]
    fn tags_stand_for_revisions() {
        let both = [plane("istio-system", "default", "1.31.1"), plane("istio-canary", "canary", "1.31.1")];
        let prod = [("prod", "canary")];
        assert_eq!(tagged(&["prod"], &prod, &both), Ok("istio-canary".to_owned()));
        assert_eq!(tagged(&["default"], &prod, &both), Ok("istio-system".to_owned()));
        // The default tag says whose pods are that name no revision.
        assert_eq!(tagged(&[], &[("default", "canary")], &both[1..]), Ok("istio-canary".to_owned()));
        let two = [plane("istio-a", "a", "1.31.1"), plane("istio-b", "b", "1.31.1")];
        assert_eq!(tagged(&[], &[("default", "b")], &two), Ok("istio-b".to_owned()));
        assert_eq!(tagged(&[], &[], &two), Err(Reason::AmbiguousControlPlane));
        assert_eq!(tagged(&["canary"], &[("canary", "default")], &both), Ok("istio-canary".to_owned()));
    }

    #[test]
    fn the_root_namespace_is_the_mesh_configs_or_istios_default() {
        let planes = [plane("mesh", "default", "1.31.1")];
        let root = |config: Option<&str>| {
            let key = Key { namespace: "mesh".to_owned(), name: "istio".to_owned() };
            let configs = config.map(|text| (key, MeshConfig::read(text))).into_iter().collect();
            let (revisions, tags) = (BTreeSet::new(), BTreeMap::new());
            let signals = Signals {
                revisions: &revisions,
                tags: &tags,
                planes: &planes,
                configs: &configs,
                fallback: "fallback",
            };
            environment(signals).unwrap()
        };
        assert_eq!(root(Some("rootNamespace: roots")).root_namespace, "roots");
        assert_eq!(root(Some("trustDomain: x")).root_namespace, "istio-system", "wherever istiod is");
        assert_eq!(root(None).root_namespace, "mesh", "where the mesh config may not be read");
        assert_eq!(root(None).drain, DEFAULT_DRAIN);
        let told =
            root(Some("defaultConfig: {drainDuration: 90s}\npathNormalization: {normalization: NONE}"));
        assert_eq!((told.drain, told.paths_not_normalized), (Duration::from_secs(90), true));
    }

    #[test]
    fn an_old_control_plane_is_refused() {
        assert_eq!(found(&[], &[plane("i", "default", "1.23.4")]), Err(Reason::UnsupportedVersion));
        for version in ["1.24.0", "1.31.1-distroless", "2.0.0", "latest", "1.31-alpha.abc", "5f3a2b1"] {
            assert!(found(&[], &[plane("i", "default", version)]).is_ok(), "{version}");
        }
    }

    #[test]
    fn deployments_are_read() {
        let deployment: Deployment = serde_json::from_value(json!({
            "metadata": {"namespace": "istio-system", "labels": {"app": "istiod", "istio.io/rev": "canary"}},
            "spec": {
                "selector": {},
                "template": {"spec": {"containers": [{"name": "discovery", "image": "reg:5000/istio/pilot:1.31.1@sha256:00"}]}},
            },
        }))
        .unwrap();
        let read = ControlPlane::read(&deployment);
        assert_eq!(read, plane("istio-system", "canary", "1.31.1"));
        assert_eq!(read.config_map(), "istio-canary");
    }

    #[test]
    fn mesh_configs_are_read() {
        let read = MeshConfig::read(
            "rootNamespace: mesh-root\npathNormalization: {normalization: NONE}\ndefaultConfig: {drainDuration: 5.5s}\nother: 1\n",
        );
        let expected = MeshConfig {
            root_namespace: Some("mesh-root".to_owned()),
            paths_not_normalized: true,
            drain: Some(Duration::from_millis(5500)),
        };
        assert_eq!(read, expected);
        assert_eq!(MeshConfig::read(""), MeshConfig::default());
        assert_eq!(MeshConfig::read(": nonsense ["), MeshConfig::default());
        assert_eq!(MeshConfig::read("defaultConfig: {drainDuration: 45s}").drain, Some(DEFAULT_DRAIN));
        assert_eq!(pod_drain("{drainDuration: 60s, concurrency: 2}"), Some(Duration::from_mins(1)));
        for nothing in ["", "concurrency: 2", "drainDuration: soon", "drainDuration: -5s", ": ["] {
            assert_eq!(pod_drain(nothing), None, "{nothing}");
        }
    }
}
