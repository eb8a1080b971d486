//! One pod's life: a loop that takes messages, decides on the next step and tells the API server.

mod act;
mod hear;

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use kube::ResourceExt as _;
use tokio::sync::{broadcast, mpsc, watch};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::Instant;
use tracing::warn;

use super::Context;
use super::message::Message;
use super::plan::RestartPolicy;
use super::run::Run;
use super::setup::{Base, Holdings};
use super::status::{End, View};
use super::unit::{Backoff, Unit, units};
use super::writer::Writer;
use crate::objects::Change;
use crate::probe::Kind;
use crate::volume::sleep_until;

/// First delay after a failed setup; kubelet's for volumes.
const SETUP_RETRY: Duration = Duration::from_millis(500);

enum Setup {
    /// To be tried at this moment.
    Due(Timestamp),
    /// Under way.
    UnderWay,
    /// Done. The first is shared with tasks, the second is for the end.
    Done(Arc<Base>, Option<Box<Holdings>>),
}

/// Why a pod is being stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// It was deleted.
    Deleted,
    /// It has vanished.
    Gone,
    /// Its containers are through, or its time is.
    Ended,
}

enum Mode {
    /// Containers are started and kept running.
    Run,
    /// They are to be stopped, as soon as none is just being started.
    StopDue,
    /// They are being stopped.
    Stopping,
    /// They are stopped.
    Stopped,
}

/// A running container with its probes.
struct Live {
    run: Run,
    probes: Vec<(Kind, AbortHandle)>,
    since: Instant,
}

impl Drop for Live {
    fn drop(&mut self) {
        for (_, probe) in &self.probes {
            probe.abort();
        }
    }
}

/// A pod's worker.
pub(super) struct Worker {
    cx: Arc<Context>,
    pod: Arc<Pod>,
    /// The Pod for tasks that follow it.
    latest: watch::Sender<Arc<Pod>>,
    units: Vec<Unit>,
    live: Vec<Option<Live>>,
    setup: Setup,
    setup_backoff: Backoff,
    /// The container that is just being started.
    starting: Option<usize>,
    mode: Mode,
    cause: Option<Cause>,
    end: Option<End>,
    deadline: watch::Sender<Instant>,
    start_time: Timestamp,
    conditions: Vec<PodCondition>,
    refresher: Option<JoinHandle<()>>,
    map_seen: Option<std::time::SystemTime>,
    writer: Writer,
    sender: mpsc::UnboundedSender<Message>,
    receiver: mpsc::UnboundedReceiver<Message>,
    changes: broadcast::Receiver<Change>,
}

impl Worker {
    /// A worker for `pod`, and the way to talk to it.
    pub(super) fn new(cx: Arc<Context>, pod: Arc<Pod>) -> (Self, mpsc::UnboundedSender<Message>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let status = pod.status.clone().unwrap_or_default();
        let mut units = units(&pod, cx.config.restart_backoff());
        for unit in &mut units {
            let old = status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
            // A Pod that ran before this node was started anew is started anew, and says so.
            if let Some(old) = old.into_iter().find(|old| old.name == unit.name && old.container_id.is_some())
            {
                unit.restarts = old.restart_count + 1;
            }
        }
        let worker = Self {
            live: units.iter().map(|_| None).collect(),
            units,
            latest: watch::channel(Arc::clone(&pod)).0,
            setup: Setup::Due(Timestamp::UNIX_EPOCH),
            setup_backoff: Backoff::new(SETUP_RETRY),
            starting: None,
            mode: Mode::Run,
            cause: None,
            end: None,
            deadline: watch::channel(Instant::now()).0,
            start_time: status.start_time.map_or_else(Timestamp::now, |time| time.0),
            conditions: status.conditions.unwrap_or_default(),
            refresher: None,
            map_seen: None,
            writer: Writer::start(&cx.client, &pod),
            changes: cx.objects.changes(),
            cx,
            pod,
            sender: sender.clone(),
            receiver,
        };
        (worker, sender)
    }

    /// Runs the pod until it is gone from node and API server.
    pub(super) async fn run(mut self) {
        let is_over = |pod: &Pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            matches!(phase, Some("Succeeded" | "Failed"))
        };
        if is_over(&self.pod) {
            self.mode = Mode::Stopped;
            self.cause = Some(Cause::Ended);
            while self.cause != Some(Cause::Gone) && self.pod.metadata.deletion_timestamp.is_none() {
                match self.receiver.recv().await {
                    Some(message) => self.handle(message).await,
                    None => return,
                }
            }
            return self.finish().await;
        }
        loop {
            self.act();
            self.publish();
            if matches!(self.mode, Mode::Stopped) && self.is_leaving() {
                break;
            }
            let wake = self.wake();
            let mut waits = true;
            while waits {
                tokio::select! {
                    message = self.receiver.recv() => {
                        let Some(message) = message else { return };
                        self.handle(message).await;
                        waits = false;
                    }
                    change = self.changes.recv() => waits = !self.heed(change.ok()),
                    () = sleep_until(wake) => {
                        self.look_at_map();
                        waits = false;
                    }
                }
            }
            // What has arrived together is taken together, so that fewer states are seen from outside.
            while let Ok(message) = self.receiver.try_recv() {
                self.handle(message).await;
            }
        }
        self.finish().await;
    }

    fn is_leaving(&self) -> bool {
        self.cause == Some(Cause::Gone) || self.pod.metadata.deletion_timestamp.is_some()
    }

    fn policy(&self) -> RestartPolicy {
        RestartPolicy::parse(self.pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()))
    }

    fn publish(&mut self) {
        if self.cause == Some(Cause::Gone) {
            return;
        }
        let base = match &self.setup {
            Setup::Done(base, _) => Some(base),
            Setup::Due(_) | Setup::UnderWay => None,
        };
        let view = View {
            pod: &self.pod,
            units: &self.units,
            pod_ip: base.map(|base| base.address),
            host_ip: self.cx.config.node_ip,
            start_time: self.start_time,
            is_set_up: base.is_some() && !matches!(self.mode, Mode::Stopped),
            end: self.end.as_ref().filter(|_| matches!(self.mode, Mode::Stopped)),
            previous: &self.conditions,
            now: Timestamp::now(),
        };
        let status = view.status();
        self.conditions = status.conditions.clone().unwrap_or_default();
        self.writer.want(&status);
    }

    /// Removes the Pod from the API server and everything of it from the node.
    async fn finish(self) {
        let (namespace, name) = (self.pod.namespace().unwrap_or_default(), self.pod.name_any());
        let uid = self.pod.uid().unwrap_or_default();
        if self.cause == Some(Cause::Gone) {
            self.writer.abandon();
        } else {
            self.writer.finish().await;
            super::manager::delete(&self.cx.client, &namespace, &name, &uid).await;
        }
        self.cx.logs.forget(&namespace, &name, &uid);
        let directory = self.cx.pod_dir(&uid);
        if directory.exists()
            && let Err(error) = fs::remove_dir_all(&directory)
        {
            warn!(directory = %directory.display(), %error, "a pod's directory is left");
        }
    }
}
