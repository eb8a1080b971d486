//! Writes a Pod's status, when it has changed.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::warn;

/// States that pass within this time are not written.
const SETTLE: Duration = Duration::from_millis(20);
/// Pause after a failed write.
const RETRY: Duration = Duration::from_secs(1);
/// After this long a write has failed, however the client retries inside.
const TIMEOUT: Duration = Duration::from_secs(20);
/// How long the last status may take at the end of a pod.
const LAST: Duration = Duration::from_mins(1);

/// The status of one Pod on its way to the API server.
pub(super) struct Writer {
    wanted: watch::Sender<Option<PodStatus>>,
    task: JoinHandle<()>,
}

impl Writer {
    /// A writer for `pod`.
    pub(super) fn start(client: &Client, pod: &Pod) -> Self {
        let (wanted, receiver) = watch::channel(None);
        let api = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
        let task = tokio::spawn(write_all(api, pod.name_any(), pod.uid().unwrap_or_default(), receiver));
        Self { wanted, task }
    }

    /// Wants this status to be written, unless a later one comes first.
    pub(super) fn want(&self, status: &PodStatus) {
        self.wanted.send_if_modified(|current| {
            let differs = current.as_ref() != Some(status);
            if differs {
                *current = Some(status.clone());
            }
            differs
        });
    }

    /// Waits until the last status is written.
    pub(super) async fn finish(self) {
        drop(self.wanted);
        let mut task = self.task;
        if tokio::time::timeout(LAST, &mut task).await.is_err() {
            task.abort();
        }
    }

    /// Writes nothing more.
    pub(super) fn abandon(self) {
        self.task.abort();
    }
}

async fn write_all(api: Api<Pod>, name: String, uid: String, mut wanted: watch::Receiver<Option<PodStatus>>) {
    while wanted.changed().await.is_ok() {
        tokio::time::sleep(SETTLE).await;
        loop {
            let Some(status) = wanted.borrow_and_update().clone() else { break };
            let patch = Patch::Strategic(patch(&uid, &status));
            let params = PatchParams::default();
            let written = tokio::time::timeout(TIMEOUT, api.patch_status(&name, &params, &patch)).await;
            match written {
                Ok(Ok(_)) => break,
                // The Pod is gone, or another one has taken its name.
                Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => return,
                Ok(Err(error)) => warn!(pod = name, %error, "a Pod's status is not written"),
                Err(_) => warn!(pod = name, "a Pod's status is not written: the API server does not answer"),
            }
            tokio::time::sleep(RETRY).await;
        }
    }
}

/// A strategic merge patch that sets what is the node's and keeps conditions of others.
fn patch(uid: &str, status: &PodStatus) -> Value {
    let mut value = json!(status);
    for (list, has) in [("podIPs", status.pod_ips.is_some()), ("hostIPs", status.host_ips.is_some())] {
        // These lists are merged by address unless told otherwise, and so would keep an address of old.
        if has && let Some(items) = value[list].as_array_mut() {
            items.push(json!({"$patch": "replace"}));
        }
    }
    for field in ["reason", "message"] {
        if value.get(field).is_none() {
            value[field] = Value::Null;
        }
    }
    for condition in value["conditions"].as_array_mut().into_iter().flatten() {
        for field in ["reason", "message"] {
            if condition.get(field).is_none() {
                condition[field] = Value::Null;
            }
        }
    }
    json!({"metadata": {"uid": uid}, "status": value})
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{PodCondition, PodIP};

    use super::*;

    #[test]
    fn patches_clear_what_is_no_more() {
        let status = PodStatus {
            phase: Some("Running".to_owned()),
            pod_ips: Some(vec![PodIP { ip: "10.244.0.2".to_owned() }]),
            conditions: Some(vec![PodCondition {
                type_: "Ready".to_owned(),
                status: "True".to_owned(),
                ..PodCondition::default()
            }]),
            ..PodStatus::default()
        };
        let expected = json!({"metadata": {"uid": "u"}, "status": {
            "phase": "Running", "reason": null, "message": null,
            "podIPs": [{"ip": "10.244.0.2"}, {"$patch": "replace"}],
            "conditions": [{"type": "Ready", "status": "True", "reason": null, "message": null}]}});
        assert_eq!(patch("u", &status), expected);
    }
}
