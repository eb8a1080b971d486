//! Events as kubelet records them, core/v1, repeated ones counted in one object.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::debug;

/// Events that find the recorder this busy are dropped.
const BACKLOG: usize = 1024;
/// Pause between writes of a repeated event: this at first, then twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
/// At most so long.
const LONGEST_PAUSE: Duration = Duration::from_mins(5);
/// Events that have not been repeated for so long are forgotten, as the API server forgets them.
const REMEMBERED: Duration = Duration::from_hours(1);

/// `type` of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Severity {
    /// Something went as it should.
    Normal,
    /// Something did not.
    Warning,
}

/// Records Events. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Recorder {
    sender: mpsc::Sender<Occurrence>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    uid: String,
    field_path: Option<String>,
    severity: Severity,
    reason: &'static str,
    message: String,
}

#[derive(Debug)]
struct Occurrence {
    namespace: String,
    pod: String,
    key: Key,
    at: Timestamp,
}

impl Recorder {
    /// Starts a recorder that speaks for node `host`.
    pub(crate) fn start(client: Client, host: String) -> Self {
        let (sender, receiver) = mpsc::channel(BACKLOG);
        tokio::spawn(record(client, host, receiver));
        Self { sender }
    }

    /// Records that something happened to a Pod as a whole.
    pub(crate) fn pod(
        &self,
        pod: &Pod,
        severity: Severity,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        self.send(pod, None, severity, reason, message.into());
    }

    /// Records that something happened to one of its containers. `is_init` says in which list it stands.
    pub(crate) fn container(
        &self,
        pod: &Pod,
        (name, is_init): (&str, bool),
        severity: Severity,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        let list = if is_init { "initContainers" } else { "containers" };
        self.send(pod, Some(format!("spec.{list}{{{name}}}")), severity, reason, message.into());
    }

    fn send(
        &self,
        pod: &Pod,
        field_path: Option<String>,
        severity: Severity,
        reason: &'static str,
        message: String,
    ) {
        let key = Key { uid: pod.uid().unwrap_or_default(), field_path, severity, reason, message };
        let occurrence = Occurrence {
            namespace: pod.namespace().unwrap_or_default(),
            pod: pod.name_any(),
            key,
            at: Timestamp::now(),
        };
        // Events are a courtesy: pods do not wait for them.
        if self.sender.try_send(occurrence).is_err() {
            debug!(reason, "an Event is dropped");
        }
    }
}

/// What is remembered of an Event.
struct Written {
    name: String,
    namespace: String,
    count: i32,
    /// Not written yet.
    pending: Option<Timestamp>,
    pause: Duration,
    next_write: Instant,
}

async fn record(client: Client, host: String, mut receiver: mpsc::Receiver<Occurrence>) {
    let mut written: HashMap<Key, Written> = HashMap::new();
    loop {
        let due =
            written.values().filter(|known| known.pending.is_some()).map(|known| known.next_write).min();
        let wait = async {
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            occurrence = receiver.recv() => {
                let Some(occurrence) = occurrence else { return };
                if let Some(known) = written.get_mut(&occurrence.key) {
                    known.count += 1;
                    known.pending = Some(occurrence.at);
                } else if let Some(name) = create(&client, &host, &occurrence).await {
                    let known = Written {
                        name,
                        namespace: occurrence.namespace,
                        count: 1,
                        pending: None,
                        pause: FIRST_PAUSE,
                        next_write: Instant::now() + FIRST_PAUSE,
                    };
                    written.insert(occurrence.key, known);
                }
            }
            () = wait => {}
        }
        let now = Instant::now();
        written.retain(|_, known| now < known.next_write + REMEMBERED);
        for known in written.values_mut().filter(|known| known.next_write <= now) {
            let Some(last) = known.pending.take() else { continue };
            update(&client, known, last).await;
            known.pause = (known.pause * 2).min(LONGEST_PAUSE);
            known.next_write = now + known.pause;
        }
    }
}

async fn create(client: &Client, host: &str, occurrence: &Occurrence) -> Option<String> {
    let Occurrence { namespace, pod, key, at } = occurrence;
    let name = format!("{pod}.{:x}", at.as_nanosecond());
    let source = EventSource { component: Some("kubelet".to_owned()), host: Some(host.to_owned()) };
    let event = Event {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: Some(namespace.clone()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(namespace.clone()),
            name: Some(pod.clone()),
            uid: Some(key.uid.clone()),
            field_path: key.field_path.clone(),
            ..ObjectReference::default()
        },
        type_: Some(format!("{:?}", key.severity)),
        reason: Some(key.reason.to_owned()),
        message: Some(key.message.clone()),
        count: Some(1),
        first_timestamp: Some(Time(*at)),
        last_timestamp: Some(Time(*at)),
        reporting_component: source.component.clone(),
        reporting_instance: Some(host.to_owned()),
        source: Some(source),
        ..Event::default()
    };
    let api: Api<Event> = Api::namespaced(client.clone(), namespace);
    match tokio::time::timeout(FIRST_PAUSE, api.create(&PostParams::default(), &event)).await {
        Ok(Ok(_)) => Some(name),
        Ok(Err(error)) => {
            // Most often the namespace is on its way out.
            debug!(namespace, pod, %error, "an Event is not recorded");
            None
        }
        Err(_) => None,
    }
}

async fn update(client: &Client, known: &Written, last: Timestamp) {
    let api: Api<Event> = Api::namespaced(client.clone(), &known.namespace);
    let patch = json!({"count": known.count, "lastTimestamp": Time(last)});
    let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
    match tokio::time::timeout(FIRST_PAUSE, api.patch(&known.name, &params, &patch)).await {
        Ok(Ok(_)) | Err(_) => {}
        Ok(Err(error)) => debug!(event = known.name, %error, "an Event is not counted"),
    }
}
