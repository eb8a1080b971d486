//! One pod's life: a loop that takes messages, decides on the next step and tells the API server.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, Pod, PodCondition};
use kube::ResourceExt as _;
use tokio::sync::{broadcast, mpsc, watch};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::Instant;
use tracing::{info, warn};

use super::Context;
use super::events::Severity::{Normal, Warning};
use super::plan::{self, RestartPolicy, Step};
use super::run::Run;
use super::setup::{Base, Holdings, SetupError, set_up};
use super::start::Start;
use super::status::{ERROR_SHOWN, End, View};
use super::stop::{stop, stop_all};
use super::unit::{Backoff, Ended, Role, State, Unit, units};
use super::writer::Writer;
use crate::objects::{Change, Kind as ObjectKind};
use crate::probe::{self, Check, Finding, Kind};
use crate::volume::sleep_until;

/// Kubernetes' default for `terminationGracePeriodSeconds`.
const DEFAULT_GRACE: i64 = 30;
/// What containers get whose Pod is gone from the API server.
const ORPHAN_GRACE: Duration = Duration::from_secs(1);
/// While an image is missing the image map is looked at this often.
const MAP_POLL: Duration = Duration::from_secs(1);
/// First delay after a failed setup; kubelet's for volumes.
const SETUP_RETRY: Duration = Duration::from_millis(500);

/// What a worker hears.
pub(super) enum Message {
    /// The Pod has changed.
    Pod(Arc<Pod>),
    /// The Pod is gone from the API server.
    Gone,
    /// The pod is set up, or cannot be.
    SetUp(Result<(Base, Holdings), SetupError>),
    /// A container runs, or could not be started.
    Launched { unit: usize, launch: Launch },
    /// Nothing more is to be done for the start of a container.
    StartDone { unit: usize },
    /// A container has ended.
    Exited { unit: usize, ended: Ended },
    /// A probe has found something.
    Probed { unit: usize, attempt: i32, kind: Kind, finding: Finding },
    /// All containers that were to be stopped have been.
    Stopped,
}

/// What came of the start of a container.
pub(super) enum Launch {
    /// It runs.
    Running { run: Run, image_id: String, container_id: String },
    /// It could not be executed.
    Broken { ended: Ended, image_id: String, container_id: String },
    /// It could not be created.
    Refused { reason: &'static str, message: String, soon: Option<Duration> },
}

enum Setup {
    /// To be tried at this moment.
    Due(Timestamp),
    /// Under way.
    UnderWay,
    /// Done. The first is shared with tasks, the second is for the end.
    Done(Arc<Base>, Option<Holdings>),
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
            if let Some(old) = old.into_iter().find(|old| old.name == unit.name && old.container_id.is_some()) {
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
            tokio::select! {
                message = self.receiver.recv() => match message {
                    Some(message) => self.handle(message).await,
                    None => return,
                },
                change = self.changes.recv() => self.heed(change.ok()),
                () = sleep_until(wake) => self.look_at_map(),
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

    // ---- what to do next

    /// Starts whatever is due.
    fn act(&mut self) {
        let now = Timestamp::now();
        match self.mode {
            Mode::Run => {
                if self.pod.metadata.deletion_timestamp.is_some() {
                    self.begin_stop(Cause::Deleted);
                } else if self.time_is_up(now) {
                    self.end = Some(End {
                        succeeded: false,
                        reason: Some("DeadlineExceeded"),
                        message: Some("Pod was active on the node longer than the specified deadline"),
                    });
                    self.begin_stop(Cause::Ended);
                } else {
                    self.advance(now);
                }
            }
            Mode::StopDue | Mode::Stopping | Mode::Stopped => {}
        }
        if matches!(self.mode, Mode::StopDue) && self.starting.is_none() {
            self.stop_now();
        }
    }

    fn advance(&mut self, now: Timestamp) {
        match &self.setup {
            Setup::Due(moment) if *moment <= now => {
                self.setup = Setup::UnderWay;
                let (cx, pod, sender) = (Arc::clone(&self.cx), Arc::clone(&self.pod), self.sender.clone());
                tokio::spawn(async move {
                    let outcome = set_up(&cx, &pod).await;
                    // The worker waits for this before it ends.
                    let _ = sender.send(Message::SetUp(outcome));
                });
            }
            Setup::Due(_) | Setup::UnderWay => {}
            Setup::Done(base, _) if self.starting.is_none() => {
                let base = Arc::clone(base);
                match plan::next(&self.units, self.policy(), now) {
                    Step::Start(unit) => self.start(unit, base),
                    Step::At(_) | Step::Wait => {}
                    Step::Finish { succeeded } => {
                        self.end = Some(End { succeeded, reason: None, message: None });
                        self.begin_stop(Cause::Ended);
                    }
                }
            }
            Setup::Done(..) => {}
        }
    }

    fn start(&mut self, unit: usize, base: Arc<Base>) {
        let Some((container, is_init)) = self.container(unit) else { return };
        self.starting = Some(unit);
        let known = &self.units[unit];
        let start = Start {
            cx: Arc::clone(&self.cx),
            pod: Arc::clone(&self.pod),
            base,
            unit,
            container,
            is_init,
            runs_to_end: known.role == Role::Init,
            attempt: if known.attempted { known.restarts + 1 } else { known.restarts },
            worker: self.sender.clone(),
        };
        tokio::spawn(start.run());
    }

    fn container(&self, unit: usize) -> Option<(Container, bool)> {
        let spec = self.pod.spec.as_ref()?;
        let init = spec.init_containers.as_deref().unwrap_or_default();
        let container = init.get(unit).or_else(|| spec.containers.get(unit.checked_sub(init.len())?))?;
        Some((container.clone(), unit < init.len()))
    }

    /// When to look again though nothing has happened.
    fn wake(&self) -> Option<Timestamp> {
        if !matches!(self.mode, Mode::Run) {
            return None;
        }
        let now = Timestamp::now();
        let setup = match &self.setup {
            Setup::Due(moment) => Some(*moment),
            Setup::UnderWay | Setup::Done(..) => None,
        };
        let step = match (&self.setup, self.starting) {
            (Setup::Done(..), None) => match plan::next(&self.units, self.policy(), now) {
                Step::At(moment) => Some(moment),
                Step::Start(_) | Step::Wait | Step::Finish { .. } => None,
            },
            _ => None,
        };
        let failed = self.units.iter().find_map(|unit| match &unit.state {
            State::Failed(failed) if failed.reason == "ErrImagePull" => {
                let shown = failed.at + ERROR_SHOWN;
                Some(if shown > now { shown } else { now + MAP_POLL })
            }
            _ => None,
        });
        // kubelet shows CrashLoopBackOff once the back-off has begun; nothing to wake for.
        [setup, step, failed, self.time_limit()].into_iter().flatten().min()
    }

    fn time_limit(&self) -> Option<Timestamp> {
        let seconds = self.pod.spec.as_ref()?.active_deadline_seconds?;
        Some(self.start_time + SignedDuration::from_secs(seconds))
    }

    fn time_is_up(&self, now: Timestamp) -> bool {
        self.time_limit().is_some_and(|limit| limit <= now)
    }

    // ---- stopping

    fn grace(&self) -> Duration {
        let metadata = &self.pod.metadata;
        let own = self.pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
        let seconds = metadata.deletion_grace_period_seconds.or(own).unwrap_or(DEFAULT_GRACE);
        Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
    }

    fn begin_stop(&mut self, cause: Cause) {
        self.cause = Some(cause);
        let grace = if cause == Cause::Gone { ORPHAN_GRACE } else { self.grace() };
        self.deadline.send_replace(Instant::now() + grace);
        self.mode = Mode::StopDue;
    }

    fn stop_now(&mut self) {
        if matches!(self.setup, Setup::UnderWay) {
            return;
        }
        self.mode = Mode::Stopping;
        let mut main = Vec::new();
        let mut sidecars = Vec::new();
        for (unit, live) in self.units.iter().zip(&mut self.live) {
            let Some(live) = live else { continue };
            // Only readiness still matters.
            for (_, probe) in live.probes.extract_if(.., |(kind, _)| *kind != Kind::Readiness) {
                probe.abort();
            }
            let list = if unit.role == Role::Sidecar { &mut sidecars } else { &mut main };
            list.push(live.run.clone());
        }
        let task = stop_all(
            Arc::clone(&self.cx),
            Arc::clone(&self.pod),
            main,
            sidecars,
            self.deadline.subscribe(),
        );
        let sender = self.sender.clone();
        tokio::spawn(async move {
            task.await;
            let _ = sender.send(Message::Stopped);
        });
    }

    /// Everything that ran has ended, and its end is known.
    async fn stopped(&mut self) {
        self.mode = Mode::Stopped;
        if let Some(refresher) = self.refresher.take() {
            refresher.abort();
        }
        let before = std::mem::replace(&mut self.setup, Setup::UnderWay);
        if let Setup::Done(base, holdings) = before {
            if let Some(volumes) = &base.volumes {
                volumes.unmount();
            }
            if let Some(holdings) = holdings {
                holdings.release(&self.cx).await;
            }
            self.setup = Setup::Done(base, None);
        }
        if self.end.is_none() && self.units.iter().any(|unit| unit.attempted) {
            let mut main = self.units.iter().filter(|unit| unit.role == Role::Main);
            let succeeded = main.all(|unit| unit.ended().is_some_and(|ended| ended.code == 0));
            self.end = Some(End { succeeded, reason: None, message: None });
        }
    }

    // ---- what is heard

    async fn handle(&mut self, message: Message) {
        match message {
            Message::Pod(pod) => self.update(pod),
            Message::Gone => {
                if matches!(self.mode, Mode::Run) {
                    self.begin_stop(Cause::Gone);
                } else {
                    self.cause = Some(Cause::Gone);
                    self.bring_forward(ORPHAN_GRACE);
                }
            }
            Message::SetUp(outcome) => self.set_up(outcome),
            Message::Launched { unit, launch } => self.launched(unit, launch),
            Message::StartDone { unit } => {
                if self.starting == Some(unit) {
                    self.starting = None;
                }
            }
            Message::Exited { unit, ended } => self.exited(unit, ended),
            Message::Probed { unit, attempt, kind, finding } => self.probed(unit, attempt, kind, finding),
            Message::Stopped => {
                // The reports of their ends may still be in the queue behind this.
                while self.units.iter().any(Unit::is_running) {
                    match self.receiver.recv().await {
                        Some(Message::Exited { unit, ended }) => self.exited(unit, ended),
                        Some(Message::Pod(pod)) => self.update(pod),
                        Some(Message::Gone) => self.cause = Some(Cause::Gone),
                        Some(_) => {}
                        None => break,
                    }
                }
                self.stopped().await;
            }
        }
    }

    fn update(&mut self, pod: Arc<Pod>) {
        self.pod = pod;
        self.latest.send_replace(Arc::clone(&self.pod));
        if self.pod.metadata.deletion_timestamp.is_some() && !matches!(self.mode, Mode::Run) {
            self.bring_forward(self.grace());
        }
    }

    /// A second deletion may shorten the time, never lengthen it.
    fn bring_forward(&mut self, grace: Duration) {
        let moment = Instant::now() + grace;
        self.deadline.send_if_modified(|deadline| {
            let is_earlier = moment < *deadline;
            if is_earlier {
                *deadline = moment;
            }
            is_earlier
        });
    }

    fn set_up(&mut self, outcome: Result<(Base, Holdings), SetupError>) {
        match outcome {
            Ok((base, holdings)) => {
                if let Some(volumes) = &base.volumes {
                    let task = Arc::clone(volumes).keep_fresh(self.latest.subscribe(), base.address);
                    self.refresher = Some(tokio::spawn(task));
                }
                self.setup = Setup::Done(Arc::new(base), Some(holdings));
            }
            Err(SetupError { reason, message }) => {
                self.cx.events.pod(&self.pod, Warning, reason, message);
                let now = Timestamp::now();
                self.setup_backoff.raise(now);
                self.setup = Setup::Due(now + self.setup_backoff.delay());
            }
        }
    }

    fn launched(&mut self, unit: usize, launch: Launch) {
        let now = Timestamp::now();
        let known = &mut self.units[unit];
        match launch {
            Launch::Running { run, image_id, container_id } => {
                known.start(now, image_id, container_id);
                let started = known.started;
                self.live[unit] = Some(Live { run, probes: Vec::new(), since: Instant::now() });
                if started {
                    self.watch(unit, Kind::Liveness);
                    self.watch(unit, Kind::Readiness);
                } else {
                    self.watch(unit, Kind::Startup);
                }
                // A hook that takes long must not hold up the end of the pod.
                if matches!(self.mode, Mode::StopDue) {
                    self.starting = None;
                }
            }
            Launch::Broken { ended, image_id, container_id } => {
                known.start(now, image_id, container_id);
                known.end(ended);
            }
            Launch::Refused { reason, message, soon } => {
                known.fail(now, reason, message, soon);
                if reason == "ErrImagePull" {
                    self.map_seen = self.cx.images.changed();
                    let known = &self.units[unit];
                    let container = (known.name.as_str(), known.role != Role::Main);
                    let message = format!("Back-off pulling image {:?}", known.image);
                    self.cx.events.container(&self.pod, container, Normal, "BackOff", message);
                }
            }
        }
    }

    fn exited(&mut self, unit: usize, ended: Ended) {
        self.live[unit] = None;
        let code = ended.code;
        self.units[unit].end(ended);
        let known = &self.units[unit];
        let restarts = match known.role {
            Role::Sidecar => true,
            Role::Main => self.policy().restarts(code),
            Role::Init => code != 0 && self.policy() != RestartPolicy::Never,
        };
        if restarts && matches!(self.mode, Mode::Run) && !known.crashes.delay().is_zero() {
            let pod = format!(
                "{}_{}({})",
                self.pod.name_any(),
                self.pod.namespace().unwrap_or_default(),
                self.pod.uid().unwrap_or_default()
            );
            let message = format!("Back-off restarting failed container {} in pod {pod}", known.name);
            let container = (known.name.as_str(), known.role != Role::Main);
            self.cx.events.container(&self.pod, container, Warning, "BackOff", message);
        }
    }

    /// Heeds a change of what a container that could not be created may be waiting for; none stands for any change.
    fn heed(&mut self, change: Option<Change>) {
        let concerns = change.is_none_or(|change| {
            let of_config = matches!(change.kind, ObjectKind::ConfigMap | ObjectKind::Secret);
            let namespace = change.object.map(|(namespace, _)| namespace);
            of_config && namespace.is_none_or(|namespace| Some(namespace) == self.pod.namespace())
        });
        if !concerns {
            return;
        }
        let now = Timestamp::now();
        if let Setup::Due(moment) = &mut self.setup {
            *moment = now;
        }
        for unit in &mut self.units {
            if let State::Failed(failed) = &mut unit.state
                && failed.reason == "CreateContainerConfigError"
            {
                failed.retry_at = now;
            }
        }
    }

    /// Tries failed pulls again when the image map has changed.
    fn look_at_map(&mut self) {
        let seen = self.cx.images.changed();
        if seen == self.map_seen {
            return;
        }
        for unit in &mut self.units {
            if let State::Failed(failed) = &mut unit.state
                && failed.reason == "ErrImagePull"
            {
                failed.retry_at = Timestamp::UNIX_EPOCH;
            }
        }
    }

    // ---- probes

    fn watch(&mut self, unit: usize, kind: Kind) {
        let Some(live) = self.live[unit].as_mut().filter(|live| live.run.is_process()) else {
            self.take_for_granted(unit);
            return;
        };
        let container = &live.run.container;
        let probe = match kind {
            Kind::Startup => &container.startup_probe,
            Kind::Liveness => &container.liveness_probe,
            Kind::Readiness => &container.readiness_probe,
        };
        let Some(probe) = probe.clone() else { return };
        let check = match Check::of_probe(&probe, container) {
            Ok(check) => check,
            Err(error) => {
                let name = (container.name.as_str(), live.run.is_init);
                let message = format!("{} probe errored: {error}", kind.name());
                self.cx.events.container(&self.pod, name, Warning, "Unhealthy", message);
                return;
            }
        };
        let (sender, attempt) = (self.sender.clone(), live.run.attempt);
        let tell = move |finding| {
            let _ = sender.send(Message::Probed { unit, attempt, kind, finding });
        };
        let task = tokio::spawn(probe::watch(kind, probe, check, live.run.place.clone(), live.since, tell));
        live.probes.push((kind, task.abort_handle()));
    }

    /// A stand-in passes every probe.
    fn take_for_granted(&mut self, unit: usize) {
        let known = &mut self.units[unit];
        known.started = true;
        known.ready = known.role != Role::Init;
    }

    fn probed(&mut self, unit: usize, attempt: i32, kind: Kind, finding: Finding) {
        let Some(live) = self.live[unit].as_ref().filter(|live| live.run.attempt == attempt) else { return };
        let run = live.run.clone();
        let name = (run.container.name.as_str(), run.is_init);
        match (kind, finding) {
            (_, Finding::Failed(reason)) => {
                let message = format!("{} probe failed: {reason}", kind.name());
                self.cx.events.container(&self.pod, name, Warning, "Unhealthy", message);
            }
            (Kind::Startup, Finding::Verdict(true)) => {
                let known = &mut self.units[unit];
                known.started = true;
                known.ready = !known.probes_readiness;
                if !matches!(self.mode, Mode::Stopping) {
                    self.watch(unit, Kind::Liveness);
                }
                self.watch(unit, Kind::Readiness);
            }
            (Kind::Readiness, Finding::Verdict(ready)) => self.units[unit].ready = ready,
            (Kind::Liveness, Finding::Verdict(true)) => {}
            (Kind::Startup | Kind::Liveness, Finding::Verdict(false)) => {
                let kind = kind.name().to_lowercase();
                info!(pod = self.pod.name_any(), container = name.0, "failed its {kind} probe");
                let probe = if kind == "startup" { &run.container.startup_probe } else { &run.container.liveness_probe };
                let own = probe.as_ref().and_then(|probe| probe.termination_grace_period_seconds);
                let own = own.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
                let deadline = Instant::now() + own.unwrap_or_else(|| self.grace());
                let why = format!("Container {} failed {kind} probe, will be restarted", name.0);
                let (cx, pod) = (Arc::clone(&self.cx), Arc::clone(&self.pod));
                tokio::spawn(async move {
                    let (_sender, deadline) = watch::channel(deadline);
                    stop(&cx, &pod, run, deadline, why).await;
                });
            }
        }
    }

    // ---- what is told

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
