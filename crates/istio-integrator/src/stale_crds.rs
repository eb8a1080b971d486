//! Whether the `CustomResourceDefinitions` that the cluster serves are those of this version.
//!
//! An image is upgraded by changing a tag, and the CRDs are then easily forgotten. With an older one the API server drops
//! the fields it does not know from whatever is applied, without an error that everybody would see: a request for a login
//! would be stored without it. So the difference is looked for and told; nothing waits for it, since what is stored is
//! still served.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use k8s_openapi::{
    api::core::v1::ObjectReference,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, Client, runtime::watcher};
use operator_kit::{
    cache::{Cache, Entry, Key, Sync, Wake},
    metrics::Metrics,
    notice::{Notice, Notices},
    watch::follow,
};
use serde::Serialize;
use serde_json::Value;
use tokio::task::JoinSet;
use tracing::{info, warn};

/// How the right CRDs come into the cluster.
pub(crate) const REMEDY: &str = "run `kubectl apply --server-side -f deploy/crds/integrator.yaml` of this version, or \
     `istio-integrator crds | kubectl apply --server-side -f -`";

/// How many differences a message names.
const NAMED: usize = 3;

/// What the cluster serves of a CRD, compared with this version's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", content = "differences", rename_all = "camelCase")]
pub(crate) enum Standing {
    /// It says what this version's says.
    Current,
    /// There is none.
    Absent,
    /// It lacks these parts of this version's schema.
    Older(Vec<String>),
    /// It has all of this version's schema, and these parts besides.
    Newer(Vec<String>),
}

impl Standing {
    /// What is wrong and what to do, for people; nothing if all is well.
    pub(crate) fn problem(&self, name: &str) -> Option<String> {
        let version = env!("CARGO_PKG_VERSION");
        match self {
            Self::Current => None,
            Self::Absent => Some(format!("CustomResourceDefinition {name} does not exist: {REMEDY}")),
            Self::Older(lacks) => Some(format!(
                "CustomResourceDefinition {name} is not that of istio-integrator {version}: it lacks {}, which the API server \
                 drops or does not check in what is applied: {REMEDY}",
                some(lacks)
            )),
            Self::Newer(more) => Some(format!(
                "CustomResourceDefinition {name} is newer than istio-integrator {version}, which takes no notice of {}: upgrade \
                 istio-integrator, or {REMEDY}",
                some(more)
            )),
        }
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Current => "current",
            Self::Absent => "absent",
            Self::Older(_) => "older",
            Self::Newer(_) => "newer",
        })
    }
}

fn some(differences: &[String]) -> String {
    let named = differences.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    match differences.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// The CRDs of this version, by name.
pub(crate) fn compiled_in() -> BTreeMap<String, CustomResourceDefinition> {
    let crds = mesh_api::integrator::crds();
    crds.into_iter().map(|crd| (crd.metadata.name.clone().unwrap_or_default(), crd)).collect()
}

/// Compares what is served with what this version has.
///
/// Whoever reads a schema cares for what it admits, so descriptions do not count, nor does what others added to the
/// metadata.
pub(crate) fn compare(
    served: Option<&CustomResourceDefinition>,
    ours: &CustomResourceDefinition,
) -> Standing {
    let Some(served) = served else { return Standing::Absent };
    let (served, ours) = (parts(served), parts(ours));
    let lacks: Vec<String> = ours.difference(&served).cloned().collect();
    let more: Vec<String> = served.difference(&ours).cloned().collect();
    match (lacks.is_empty(), more.is_empty()) {
        (true, true) => Standing::Current,
        (true, false) => Standing::Newer(shallow(&more)),
        (false, _) => Standing::Older(shallow(&lacks)),
    }
}

/// Of a field that is missing whole, only the field, and not all that is below it.
fn shallow(parts: &[String]) -> Vec<String> {
    let fields: Vec<String> = parts.iter().filter(|part| !part.contains(' ')).cloned().collect();
    let below = |part: &str| {
        let path = part.split(' ').next().unwrap_or_default();
        fields.iter().any(|field| {
            part != field
                && path
                    .strip_prefix(field.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        })
    };
    parts.iter().filter(|part| !below(part)).cloned().collect()
}

/// Everything that the versions of a CRD say, one string for each statement: `spec.hosts` says that there is such a field,
/// `spec.hosts maxItems 32` what is demanded of it.
fn parts(crd: &CustomResourceDefinition) -> BTreeSet<String> {
    let mut parts = BTreeSet::new();
    for version in crd.spec.versions.iter().filter(|version| version.served) {
        let at =
            |text: String| if version.name == "v1alpha1" { text } else { format!("{} {text}", version.name) };
        let mut statements = BTreeSet::new();
        let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
        let schema = schema.and_then(|schema| serde_json::to_value(schema).ok()).unwrap_or_default();
        for root in ["spec", "status"] {
            let Some(node) = schema.pointer(&format!("/properties/{root}")) else { continue };
            statements.insert(root.to_owned());
            walk(root, node, &mut statements);
        }
        if version.subresources.as_ref().is_some_and(|subresources| subresources.status.is_some()) {
            statements.insert("subresource status".to_owned());
        }
        for column in version.additional_printer_columns.iter().flatten() {
            statements.insert(format!("column {} {}", column.name, column.json_path));
        }
        parts.extend(statements.into_iter().map(at));
    }
    parts
}

/// Adds what a node of a schema, and all below it, says.
fn walk(path: &str, node: &Value, parts: &mut BTreeSet<String>) {
    for (keyword, value) in node.as_object().into_iter().flatten() {
        match (keyword.as_str(), value) {
            // `nullable: false` says nothing, and an API server may leave it out.
            ("description" | "title", _) | ("nullable", Value::Bool(false)) => {}
            ("properties", Value::Object(fields)) => {
                for (name, field) in fields {
                    let path = format!("{path}.{name}");
                    parts.insert(path.clone());
                    walk(&path, field, parts);
                }
            }
            ("items", items @ Value::Object(_)) => walk(&format!("{path}[]"), items, parts),
            ("additionalProperties", values @ Value::Object(_)) => walk(&format!("{path}[*]"), values, parts),
            ("enum" | "required" | "x-kubernetes-validations", Value::Array(values)) => {
                for value in values {
                    // Of a rule the expression counts, and what is shown to people does not.
                    let value = value.get("rule").unwrap_or(value);
                    parts.insert(format!("{path} {keyword} {}", canonical(value)));
                }
            }
            _ => {
                parts.insert(format!("{path} {keyword} {}", canonical(value)));
            }
        }
    }
}

/// A value as text, numbers by what they are worth: `1` and `1.0` are the same bound.
fn canonical(value: &Value) -> String {
    match value.as_f64() {
        Some(number) => number.to_string(),
        None => value.as_str().map_or_else(|| value.to_string(), str::to_owned),
    }
}

/// The pod that Events about CRDs are shown with.
pub(crate) fn pod(namespace: &str, name: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        ..ObjectReference::default()
    }
}

/// Follows the CRDs of this program's kinds, each by its name, and tells when one is not this version's.
pub(crate) struct CrdWatch {
    caches: BTreeMap<String, Arc<Cache<Standing>>>,
    told: BTreeMap<String, Standing>,
    // Dropped with the watch, which ends it.
    _tasks: JoinSet<()>,
}

impl CrdWatch {
    /// Starts to follow them.
    pub(crate) fn start(client: &Client, wake: &Wake, metrics: &Arc<Metrics>) -> Self {
        let mut tasks = JoinSet::new();
        let mut caches = BTreeMap::new();
        for (name, ours) in compiled_in() {
            let cache = Arc::new(Cache::new("CustomResourceDefinition"));
            tasks.spawn(follow(
                Api::<CustomResourceDefinition>::all(client.clone()),
                watcher::Config::default().fields(&format!("metadata.name={name}")),
                Arc::clone(&cache),
                move |crd| (Key::of(&crd.metadata), Entry::new(&crd.metadata, compare(Some(&crd), &ours))),
                wake.clone(),
                Arc::clone(metrics),
            ));
            caches.insert(name, cache);
        }
        Self { caches, told: BTreeMap::new(), _tasks: tasks }
    }

    /// What is known of each CRD; one that could not be read yet is left out.
    pub(crate) fn standings(&self) -> BTreeMap<String, Standing> {
        let known = self.caches.iter().filter(|(_, cache)| cache.sync() == Sync::Synced);
        known
            .map(|(name, cache)| {
                let standing =
                    cache.snapshot().into_values().next().map(|entry| entry.value.as_ref().clone());
                (name.clone(), standing.unwrap_or(Standing::Absent))
            })
            .collect()
    }

    /// Logs what changed since the last call, and sends an Event about the pod where something is wrong; whoever does not
    /// write gives no `notices`.
    pub(crate) fn tell(&mut self, notices: Option<(&Notices, &ObjectReference)>) {
        for (name, standing) in self.standings() {
            if self.told.get(&name) == Some(&standing) {
                continue;
            }
            let first = !self.told.contains_key(&name);
            match standing.problem(&name) {
                Some(problem) => {
                    warn!(crd = name, state = %standing, "{problem}");
                    if let Some((notices, pod)) = notices {
                        notices.tell(Notice {
                            regarding: pod.clone(),
                            warning: true,
                            reason: "OutdatedCRD".to_owned(),
                            action: "CompareCRD",
                            note: problem,
                        });
                    }
                }
                None if !first => info!(crd = name, "the CRD is that of this version now"),
                None => {}
            }
            self.told.insert(name, standing);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const REQUESTS: &str = "ingressrequests.integrator.istio-operators.io";

    fn ours() -> CustomResourceDefinition {
        compiled_in().remove(REQUESTS).unwrap()
    }

    /// The CRD with a change of its JSON.
    fn changed(change: impl FnOnce(&mut Value)) -> CustomResourceDefinition {
        let mut value = serde_json::to_value(ours()).unwrap();
        change(&mut value);
        serde_json::from_value(value).unwrap()
    }

    fn schema(crd: &mut Value) -> &mut Value {
        &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    }

    fn remove(node: &mut Value, key: &str) -> Value {
        node.as_object_mut().unwrap().remove(key).unwrap()
    }

    #[test]
    fn the_same_is_current_whatever_others_added() {
        assert_eq!(compiled_in().len(), 3);
        for (name, crd) in compiled_in() {
            assert_eq!(compare(Some(&crd), &crd), Standing::Current, "{name}");
            assert!(parts(&crd).len() > 50, "{name} says more than that");
        }
        let stored = changed(|crd| {
            crd["metadata"]["annotations"] =
                json!({"kubectl.kubernetes.io/last-applied-configuration": "{}"});
            crd["spec"]["conversion"] = json!({"strategy": "None"});
            crd["spec"]["names"]["listKind"] = json!("IngressRequestList");
            let hosts = &mut schema(crd)["spec"]["properties"]["hosts"];
            hosts["description"] = json!("in other words");
        });
        assert_eq!(compare(Some(&stored), &ours()), Standing::Current);
        assert_eq!(Standing::Current.problem(REQUESTS), None);
    }

    #[test]
    fn an_older_one_is_told_by_the_fields_it_lacks() {
        let older = changed(|crd| {
            remove(&mut schema(crd)["spec"]["properties"], "auth");
            let route = &mut schema(crd)["spec"]["properties"]["routes"]["items"]["properties"];
            remove(route, "methods");
        });
        let standing = compare(Some(&older), &ours());
        let Standing::Older(lacks) = &standing else { panic!("{standing:?}") };
        assert_eq!(lacks, &["spec.auth", "spec.routes[].methods"], "and nothing below them");
        let problem = standing.problem(REQUESTS).unwrap();
        for part in [REQUESTS, "spec.auth, spec.routes[].methods", "istio-integrator crds | kubectl apply"] {
            assert!(problem.contains(part), "{problem}");
        }
    }

    #[test]
    fn rules_bounds_and_columns_count() {
        type Change = fn(&mut Value);
        let cases: [(Change, &str); 4] = [
            (
                |crd| {
                    remove(&mut schema(crd)["spec"]["properties"]["routes"], "x-kubernetes-validations");
                },
                "spec.routes x-kubernetes-validations",
            ),
            (
                |crd| schema(crd)["spec"]["properties"]["routes"]["maxItems"] = json!(3),
                "spec.routes maxItems 64",
            ),
            (
                |crd| {
                    remove(&mut crd["spec"]["versions"][0], "additionalPrinterColumns");
                },
                "column ",
            ),
            (
                |crd| {
                    remove(&mut crd["spec"]["versions"][0], "subresources");
                },
                "subresource status",
            ),
        ];
        for (change, expected) in cases {
            let standing = compare(Some(&changed(change)), &ours());
            let Standing::Older(lacks) = &standing else { panic!("{expected}: {standing:?}") };
            assert!(lacks[0].starts_with(expected), "{lacks:?}");
        }
    }

    #[test]
    fn a_newer_one_and_none_at_all() {
        let newer = changed(|crd| {
            schema(crd)["spec"]["properties"]["cors"] =
                json!({"type": "object", "properties": {"origins": {"type": "string"}}});
        });
        let standing = compare(Some(&newer), &ours());
        assert_eq!(standing, Standing::Newer(vec!["spec.cors".to_owned()]));
        assert!(standing.problem(REQUESTS).unwrap().contains("upgrade istio-integrator"));
        assert_eq!(compare(None, &ours()), Standing::Absent);
        let not_served = changed(|crd| crd["spec"]["versions"][0]["served"] = json!(false));
        assert!(matches!(compare(Some(&not_served), &ours()), Standing::Older(_)));
    }

    #[test]
    fn many_differences_are_counted() {
        let many: Vec<String> = (0..5).map(|number| format!("spec.f{number}")).collect();
        assert_eq!(some(&many), "spec.f0, spec.f1, spec.f2 and 2 more");
    }
}
