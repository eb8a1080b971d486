//! From rendered files to the manifests in them, in the order in which Helm installs them.

use crate::value::{Ctx, Value};
use crate::load::within;
use crate::{Failure, Limits, yaml};

/// One document of a rendered file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The file's path, from the chart's name on.
    pub path: String,
    /// The text.
    pub content: String,
    /// The kind that it names, or nothing.
    pub kind: String,
    /// The value of `helm.sh/hook`, if it has that annotation.
    pub hook: Option<String>,
}

/// The order in which Helm installs kinds. Others come last.
const INSTALL_ORDER: [&str; 38] = [
    "PriorityClass",
    "Namespace",
    "NetworkPolicy",
    "ResourceQuota",
    "LimitRange",
    "PodSecurityPolicy",
    "PodDisruptionBudget",
    "ServiceAccount",
    "Secret",
    "SecretList",
    "ConfigMap",
    "StorageClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "CustomResourceDefinition",
    "ClusterRole",
    "ClusterRoleList",
    "ClusterRoleBinding",
    "ClusterRoleBindingList",
    "Role",
    "RoleList",
    "RoleBinding",
    "RoleBindingList",
    "Service",
    "DaemonSet",
    "Pod",
    "ReplicationController",
    "ReplicaSet",
    "Deployment",
    "HorizontalPodAutoscaler",
    "StatefulSet",
    "Job",
    "CronJob",
    "IngressClass",
    "Ingress",
    "APIService",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
];

/// Splits a rendered file into its documents, as Helm does: at `---` wherever a line begins with it, whatever follows.
pub fn split(file: &str) -> Vec<String> {
    let mut documents = vec![String::new()];
    for line in file.trim_start().split_inclusive('\n') {
        match (line.strip_prefix("---"), documents.last_mut()) {
            (Some(rest), _) => documents.push(rest.trim_start_matches([' ', '\t']).to_owned()),
            (None, Some(last)) => last.push_str(line),
            (None, None) => {}
        }
    }
    let trimmed = documents.iter().map(|document| document.trim_start());
    trimmed.filter(|document| !document.is_empty()).map(str::to_owned).collect()
}

/// The manifests of rendered files, in the order in which Helm installs them, hooks among them.
///
/// # Errors
/// When a document is not YAML.
pub fn manifests<'f>(
    files: impl IntoIterator<Item = (&'f String, &'f String)>,
) -> Result<Vec<Manifest>, Failure> {
    let mut files: Vec<(&String, &String)> = files.into_iter().collect();
    files.sort();
    let mut manifests = Vec::new();
    for (path, content) in files {
        if path.rsplit('/').next().is_some_and(|name| name.starts_with('_')) {
            continue;
        }
        for document in split(content) {
            let words = format!("YAML parse error on {path}");
            let mut ctx = Ctx::new(Limits::default());
            let value = yaml::read(&mut ctx, &document).map_err(|failure| within(&words, failure))?;
            let (kind, hook) = head(&ctx, &value);
            manifests.push(Manifest { path: path.clone(), content: document, kind, hook });
        }
    }
    manifests.sort_by(|a, b| rank(&a.kind).cmp(&rank(&b.kind)));
    Ok(manifests)
}

fn rank(kind: &str) -> (usize, &str) {
    match INSTALL_ORDER.iter().position(|known| *known == kind) {
        Some(position) => (position, ""),
        None => (INSTALL_ORDER.len(), kind),
    }
}

fn head(ctx: &Ctx, value: &Value) -> (String, Option<String>) {
    let get = |value: &Value, key: &str| match value {
        Value::Map(map) => ctx.heap.get(*map, key).cloned().unwrap_or(Value::Nil),
        _ => Value::Nil,
    };
    let text = |value: Value| match value {
        Value::Str(text) => Some(text.as_ref().to_owned()),
        _ => None,
    };
    let kind = text(get(value, "kind")).unwrap_or_default();
    let annotations = get(&get(value, "metadata"), "annotations");
    (kind, text(get(&annotations, "helm.sh/hook")))
}
