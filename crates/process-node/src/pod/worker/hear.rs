//! What a worker makes of the messages it gets.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::info;

use super::act::ORPHAN_GRACE;
use super::{Cause, Live, Mode, Setup, Worker};
use crate::objects::{Change, Kind as ObjectKind};
use crate::pod::events::Severity::{Normal, Warning};
use crate::pod::message::{Launch, Message};
use crate::pod::plan::RestartPolicy;
use crate::pod::setup::{Base, Holdings, SetupError};
use crate::pod::stop::stop;
use crate::pod::unit::{Ended, Role, State, Unit};
use crate::probe::{self, Check, Finding, Kind};

impl Worker {
    pub(super) async fn handle(&mut self, message: Message) {
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

    pub(super) fn update(&mut self, pod: Arc<Pod>) {
        self.pod = pod;
        self.latest.send_replace(Arc::clone(&self.pod));
        if self.pod.metadata.deletion_timestamp.is_some() && !matches!(self.mode, Mode::Run) {
            self.bring_forward(self.grace());
        }
    }

    /// A second deletion may shorten the time, never lengthen it.
    pub(super) fn bring_forward(&mut self, grace: Duration) {
        let moment = Instant::now() + grace;
        self.deadline.send_if_modified(|deadline| {
            let is_earlier = moment < *deadline;
            if is_earlier {
                *deadline = moment;
            }
            is_earlier
        });
    }

    pub(super) fn set_up(&mut self, outcome: Result<Box<(Base, Holdings)>, SetupError>) {
        match outcome {
            Ok(done) => {
                let (base, holdings) = *done;
                if let Some(volumes) = &base.volumes {
                    let task = Arc::clone(volumes).keep_fresh(self.latest.subscribe(), base.address);
                    self.refresher = Some(tokio::spawn(task));
                }
                self.setup = Setup::Done(Arc::new(base), Some(Box::new(holdings)));
            }
            Err(SetupError { reason, message }) => {
                self.cx.events.pod(&self.pod, Warning, reason, message);
                let now = Timestamp::now();
                self.setup_backoff.raise(now);
                self.setup = Setup::Due(now + self.setup_backoff.delay());
            }
        }
    }

    pub(super) fn launched(&mut self, unit: usize, launch: Launch) {
        let now = Timestamp::now();
        let known = &mut self.units[unit];
        match launch {
            Launch::Running { run, image_id, container_id } => {
                known.start(now, image_id, container_id);
                let started = known.started;
                self.live[unit] = Some(Live { run: *run, probes: Vec::new(), since: Instant::now() });
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

    pub(super) fn exited(&mut self, unit: usize, ended: Ended) {
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
    /// Returns whether there is something to do now.
    pub(super) fn heed(&mut self, change: Option<Change>) -> bool {
        let concerns = change.is_none_or(|change| {
            let of_config = matches!(change.kind, ObjectKind::ConfigMap | ObjectKind::Secret);
            let namespace = change.object.map(|(namespace, _)| namespace);
            of_config && namespace.is_none_or(|namespace| Some(namespace) == self.pod.namespace())
        });
        if !concerns {
            return false;
        }
        let now = Timestamp::now();
        let mut is_due = false;
        if let Setup::Due(moment) = &mut self.setup {
            *moment = now;
            is_due = true;
        }
        for unit in &mut self.units {
            if let State::Failed(failed) = &mut unit.state
                && failed.reason == "CreateContainerConfigError"
            {
                failed.retry_at = now;
                is_due = true;
            }
        }
        is_due
    }

    /// Tries failed pulls again when the image map has changed.
    pub(super) fn look_at_map(&mut self) {
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

    pub(super) fn watch(&mut self, unit: usize, kind: Kind) {
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
    pub(super) fn take_for_granted(&mut self, unit: usize) {
        let known = &mut self.units[unit];
        known.started = true;
        known.ready = known.role != Role::Init;
    }

    pub(super) fn probed(&mut self, unit: usize, attempt: i32, kind: Kind, finding: Finding) {
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
                known.ready = !known.probed.readiness;
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
                let probe = if kind == "startup" {
                    &run.container.startup_probe
                } else {
                    &run.container.liveness_probe
                };
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
}
