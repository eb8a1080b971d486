//! Whether an istio-integrator runs in its namespace.

use anyhow::Context as _;
use k8s_openapi::api::{apps::v1::Deployment, coordination::v1::Lease, core::v1::Pod};
use kube::{Api, Client, ResourceExt as _, api::ListParams};
use operator_kit::client::{CALL_TIMEOUT, CallError, bounded};

use crate::listing::is_forbidden;

/// The label of the Deployment and its pods, as `deploy/` sets it.
const LABEL: &str = "app.kubernetes.io/name=istio-integrator";

/// What runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Presence {
    /// Deployments that want replicas, and pods that run, with the command that stops each.
    pub(super) running: Vec<(String, String)>,
    /// Pods that are about to end.
    pub(super) ending: Vec<String>,
}

impl Presence {
    /// Whether nothing runs, or is about to end.
    pub(super) fn is_idle(&self) -> bool {
        self.running.is_empty() && self.ending.is_empty()
    }

    /// Why nothing is removed, and what to do.
    pub(super) fn refusal(&self, namespace: &str) -> String {
        let names: Vec<&str> = self.running.iter().map(|(name, _)| name.as_str()).collect();
        let names =
            names.into_iter().chain(self.ending.iter().map(String::as_str)).collect::<Vec<_>>().join(", ");
        let mut commands: Vec<&str> = self.running.iter().map(|(_, command)| command.as_str()).collect();
        commands.dedup();
        let commands = commands.iter().map(|command| {
            format!(
                "
    kubectl -n {namespace} {command}"
            )
        });
        let commands = commands.collect::<Vec<_>>().concat();
        format!(
            "istio-integrator runs in namespace {namespace} ({names}) and would put back what is removed. Stop it first:{commands}\n\
             or give --force"
        )
    }
}

/// Looks. What may not be listed is said, and then the lease alone tells.
pub(super) async fn look(client: &Client, namespace: &str) -> anyhow::Result<Presence> {
    let params = ListParams::default().labels(LABEL);
    let deployments = Api::<Deployment>::namespaced(client.clone(), namespace);
    let deployments = tolerated("Deployments", bounded(CALL_TIMEOUT, deployments.list(&params)).await)?;
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    let pods = tolerated("pods", bounded(CALL_TIMEOUT, pods.list(&params)).await)?;
    Ok(judge(
        &deployments.map(|list| list.items).unwrap_or_default(),
        &pods.map(|list| list.items).unwrap_or_default(),
    ))
}

fn tolerated<T>(what: &str, answer: Result<T, CallError>) -> anyhow::Result<Option<T>> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_forbidden(&error) => {
            eprintln!(
                "{what} may not be listed, so the lease alone tells whether an istio-integrator runs: {error}"
            );
            Ok(None)
        }
        Err(error) => Err(error).with_context(|| format!("listing {what}")),
    }
}

fn judge(deployments: &[Deployment], pods: &[Pod]) -> Presence {
    let mut presence = Presence::default();
    for deployment in deployments {
        // Absent means one.
        let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
        if replicas > 0 {
            let name = deployment.name_any();
            presence.running.push((
                format!("Deployment {name} wants {replicas}"),
                format!("scale deployment/{name} --replicas=0"),
            ));
        }
    }
    let of_deployment = !presence.running.is_empty();
    for pod in pods {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
        if matches!(phase, "Succeeded" | "Failed") {
            continue;
        }
        let name = pod.name_any();
        if pod.metadata.deletion_timestamp.is_some() {
            presence.ending.push(format!("Pod {name}"));
        } else if !of_deployment {
            // A Deployment just scaled to zero deletes its pods a moment later.
            if pod.owner_references().iter().any(|owner| owner.kind == "ReplicaSet")
                && !deployments.is_empty()
            {
                presence.ending.push(format!("Pod {name}"));
            } else {
                presence.running.push((format!("Pod {name}"), format!("delete pod {name}")));
            }
        }
    }
    presence
}

/// Who holds the lease, if anybody.
pub(super) async fn holder(client: &Client, namespace: &str, name: &str) -> anyhow::Result<Option<String>> {
    let api = Api::<Lease>::namespaced(client.clone(), namespace);
    let lease = bounded(CALL_TIMEOUT, api.get_opt(name)).await;
    let lease = lease.with_context(|| format!("reading Lease {namespace}/{name}, without which it is not known whether an istio-integrator runs; --force does without"))?;
    let holder = lease.and_then(|lease| lease.spec?.holder_identity);
    Ok(holder.filter(|holder| !holder.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn seen(deployments: Value, pods: Value) -> Presence {
        judge(
            &serde_json::from_value::<Vec<_>>(deployments).unwrap(),
            &serde_json::from_value::<Vec<_>>(pods).unwrap(),
        )
    }

    fn deployment(replicas: u32) -> Value {
        json!({
            "metadata": {"name": "istio-integrator"},
            "spec": {"replicas": replicas, "selector": {}, "template": {}},
        })
    }

    fn pod(name: &str, phase: &str, more: &Value) -> Value {
        let mut pod = json!({"metadata": {"name": name}, "status": {"phase": phase}});
        for (key, value) in more.as_object().unwrap() {
            pod["metadata"][key] = value.clone();
        }
        pod
    }

    #[test]
    fn a_deployment_with_replicas_runs() {
        let owned = json!({"ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u"}]});
        let presence = seen(json!([deployment(2)]), json!([pod("a", "Running", &owned)]));
        let refusal = presence.refusal("ii");
        assert!(
            refusal.contains("kubectl -n ii scale deployment/istio-integrator --replicas=0"),
            "{refusal}"
        );
        assert!(!refusal.contains("delete pod"), "it would come back: {refusal}");
        // Scaled to zero, its pods are on their way out, marked or not.
        let presence = seen(json!([deployment(0)]), json!([pod("a", "Running", &owned)]));
        assert_eq!(
            (presence.running.len(), presence.ending.as_slice()),
            (0, ["Pod a".to_owned()].as_slice())
        );
    }

    #[test]
    fn pods_alone_count_until_they_have_ended() {
        let ending = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        let pods = json!([
            pod("alone", "Running", &json!({})),
            pod("late", "Running", &ending),
            pod("over", "Succeeded", &json!({})),
        ]);
        let presence = seen(json!([]), pods);
        assert_eq!(presence.running, [("Pod alone".to_owned(), "delete pod alone".to_owned())]);
        assert_eq!(presence.ending, ["Pod late"]);
        assert!(seen(json!([]), json!([])).is_idle());
    }
}
