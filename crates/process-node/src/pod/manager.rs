//! Follows the Pods of this node and keeps a worker for each.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Preconditions};
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Client, ResourceExt as _, runtime::WatchStreamExt as _};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::{debug, warn};

use super::Context;
use super::message::Message;
use super::worker::Worker;

/// Pause after a failed deletion.
const RETRY: Duration = Duration::from_secs(1);
/// After this long a deletion has failed.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Runs this node's pods for as long as the program runs.
pub(crate) async fn run(cx: Arc<Context>) {
    let pods: Api<Pod> = Api::all(cx.client.clone());
    let config = Config::default().fields(&format!("spec.nodeName={}", cx.config.node_name));
    let events = watcher(pods, config).default_backoff();
    let mut events = std::pin::pin!(events);
    let mut manager = Manager { cx, workers: HashMap::new(), running: JoinSet::new(), listed: None };
    loop {
        tokio::select! {
            event = events.next() => match event {
                Some(Ok(event)) => manager.handle(event),
                Some(Err(error)) => warn!(%error, "the watch on pods is interrupted"),
                None => return,
            },
            Some(ended) = manager.running.join_next() => {
                if let Err(error) = ended {
                    warn!(%error, "a pod's worker broke");
                }
            }
        }
    }
}

struct Manager {
    cx: Arc<Context>,
    /// Every Pod of this node by its uid. A Pod whose worker is done stays until the API server says that it is gone,
    /// so that late news of it do not start it again.
    workers: HashMap<String, mpsc::UnboundedSender<Message>>,
    running: JoinSet<()>,
    /// While the watch begins anew: the Pods seen so far.
    listed: Option<HashSet<String>>,
}

impl Manager {
    fn handle(&mut self, event: Event<Pod>) {
        match event {
            Event::Init => self.listed = Some(HashSet::new()),
            Event::InitApply(pod) => {
                if let (Some(listed), Some(uid)) = (&mut self.listed, pod.uid()) {
                    listed.insert(uid);
                }
                self.apply(pod);
            }
            Event::InitDone => {
                let listed = self.listed.take().unwrap_or_default();
                let gone: Vec<_> =
                    self.workers.keys().filter(|uid| !listed.contains(*uid)).cloned().collect();
                for uid in gone {
                    self.remove(&uid);
                }
            }
            Event::Apply(pod) => self.apply(pod),
            Event::Delete(pod) => self.remove(&pod.uid().unwrap_or_default()),
        }
    }

    fn apply(&mut self, mut pod: Pod) {
        pod.managed_fields_mut().clear();
        let Some(uid) = pod.uid() else { return };
        let pod = Arc::new(pod);
        if let Some(worker) = self.workers.get(&uid) {
            // One whose worker is done is only waiting for its removal.
            let _ = worker.send(Message::Pod(pod));
            return;
        }
        debug!(pod = pod.name_any(), namespace = pod.namespace(), "a new pod");
        let (worker, sender) = Worker::new(Arc::clone(&self.cx), pod);
        self.workers.insert(uid, sender);
        self.running.spawn(worker.run());
    }

    fn remove(&mut self, uid: &str) {
        if let Some(worker) = self.workers.remove(uid) {
            let _ = worker.send(Message::Gone);
        }
    }
}

/// Removes a Pod for good from the API server, this one and no other of its name.
pub(super) async fn delete(client: &Client, namespace: &str, name: &str, uid: &str) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let params = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
        ..DeleteParams::default()
    };
    loop {
        match tokio::time::timeout(TIMEOUT, pods.delete(name, &params)).await {
            Ok(Ok(_)) => return,
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => return,
            Ok(Err(error)) => warn!(namespace, name, %error, "a Pod cannot be removed"),
            Err(_) => warn!(namespace, name, "a Pod cannot be removed: the API server does not answer"),
        }
        tokio::time::sleep(RETRY).await;
    }
}
