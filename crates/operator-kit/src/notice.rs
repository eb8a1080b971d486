//! Events for people: on transitions only, and never in the way of the work.

use crate::{
    client::{CALL_TIMEOUT, bounded},
    metrics::{Metrics, Outcome, Verb},
};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client,
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use std::sync::Arc;
use tokio::{sync::mpsc, task::JoinHandle};
use tracing::warn;

/// How many Events may wait to be sent; more are dropped and counted.
const WAITING: usize = 256;

/// The longest note that the API server takes
/// (<https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/>).
const NOTE_LIMIT: usize = 1024;

/// One thing worth telling about an object.
#[derive(Clone, Debug)]
pub struct Notice {
    /// The object.
    pub regarding: ObjectReference,
    /// Whether something is wrong.
    pub warning: bool,
    /// The reason, in CamelCase: that of the condition which changed.
    pub reason: String,
    /// What was being done, in CamelCase.
    pub action: &'static str,
    /// What happened and what to do about it.
    pub note: String,
}

/// Sends notices in the background. Clones share the queue.
#[derive(Clone, Debug)]
pub struct Notices {
    queue: mpsc::Sender<Notice>,
    metrics: Arc<Metrics>,
}

impl Notices {
    /// Starts the sender, which reports as `controller` from the pod `instance`. The task ends once every clone is
    /// dropped and what waited is sent.
    ///
    /// Events about cluster-scoped objects go to namespace `default`, as Kubernetes has it.
    pub fn start(
        client: Client,
        controller: &str,
        instance: &str,
        metrics: Arc<Metrics>,
    ) -> (Self, JoinHandle<()>) {
        let reporter = Reporter { controller: controller.to_owned(), instance: Some(instance.to_owned()) };
        let recorder = Recorder::new(client, reporter);
        let (queue, waiting) = mpsc::channel(WAITING);
        let task = tokio::spawn(send(recorder, waiting, Arc::clone(&metrics)));
        (Self { queue, metrics }, task)
    }

    /// Queues a notice, or drops it where too many wait: an Event is help for a reader, not a record.
    pub fn tell(&self, notice: Notice) {
        if self.queue.try_send(notice).is_err() {
            self.metrics.dropped_event();
        }
    }
}

async fn send(recorder: Recorder, mut waiting: mpsc::Receiver<Notice>, metrics: Arc<Metrics>) {
    while let Some(notice) = waiting.recv().await {
        let event = Event {
            type_: if notice.warning { EventType::Warning } else { EventType::Normal },
            reason: notice.reason,
            note: Some(shorten(notice.note)),
            action: notice.action.to_owned(),
            secondary: None,
        };
        let answer = bounded(CALL_TIMEOUT, recorder.publish(&event, &notice.regarding)).await;
        metrics.write("Event", Verb::Event, Outcome::of(&answer));
        if let Err(error) = answer {
            let about = &notice.regarding;
            warn!(kind = ?about.kind, namespace = ?about.namespace, name = ?about.name, %error, "an Event was not sent");
        }
    }
}

fn shorten(mut note: String) -> String {
    if note.len() >= NOTE_LIMIT {
        let mark = "…";
        let end =
            (0..NOTE_LIMIT - mark.len()).rev().find(|end| note.is_char_boundary(*end)).unwrap_or_default();
        note.truncate(end);
        note.push_str(mark);
    }
    note
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_fit() {
        assert_eq!(shorten("short".to_owned()), "short");
        for filler in ["a", "é", "字"] {
            let shortened = shorten(filler.repeat(NOTE_LIMIT));
            assert!(shortened.len() < NOTE_LIMIT, "{}", shortened.len());
            assert!(shortened.ends_with('…') && shortened.len() > NOTE_LIMIT - 8);
        }
    }
}
