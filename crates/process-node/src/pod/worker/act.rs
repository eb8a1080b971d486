//! What a worker does next: set up, start, stop.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Container;
use tokio::time::Instant;

use super::{Cause, Mode, Setup, Worker};
use crate::pod::message::Message;
use crate::pod::plan::{self, Step};
use crate::pod::setup::{Base, set_up};
use crate::pod::start::Start;
use crate::pod::status::{ERROR_SHOWN, End};
use crate::pod::stop::stop_all;
use crate::pod::unit::{Role, State, Unit};
use crate::probe::Kind;

/// Kubernetes' default for `terminationGracePeriodSeconds`.
const DEFAULT_GRACE: i64 = 30;
/// What containers get whose Pod is gone from the API server.
pub(super) const ORPHAN_GRACE: Duration = Duration::from_secs(1);
/// While an image is missing the image map is looked at this often.
const MAP_POLL: Duration = Duration::from_secs(1);

impl Worker {
    /// Starts whatever is due.
    pub(super) fn act(&mut self) {
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

    pub(super) fn advance(&mut self, now: Timestamp) {
        match &self.setup {
            Setup::Due(moment) if *moment <= now => {
                self.setup = Setup::UnderWay;
                let (cx, pod, sender) = (Arc::clone(&self.cx), Arc::clone(&self.pod), self.sender.clone());
                tokio::spawn(async move {
                    let outcome = set_up(&cx, &pod).await.map(Box::new);
                    // The worker waits for this before it ends.
                    let _ = sender.send(Message::SetUp(outcome));
                });
            }
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
            Setup::Due(_) | Setup::UnderWay | Setup::Done(..) => {}
        }
    }

    pub(super) fn start(&mut self, unit: usize, base: Arc<Base>) {
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
            attempt: if known.has_started() { known.restarts + 1 } else { known.restarts },
            worker: self.sender.clone(),
        };
        tokio::spawn(start.run());
    }

    pub(super) fn container(&self, unit: usize) -> Option<(Container, bool)> {
        let spec = self.pod.spec.as_ref()?;
        let init = spec.init_containers.as_deref().unwrap_or_default();
        let container = init.get(unit).or_else(|| spec.containers.get(unit.checked_sub(init.len())?))?;
        Some((container.clone(), unit < init.len()))
    }

    /// When to look again though nothing has happened.
    pub(super) fn wake(&self) -> Option<Timestamp> {
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

    pub(super) fn time_limit(&self) -> Option<Timestamp> {
        let seconds = self.pod.spec.as_ref()?.active_deadline_seconds?;
        Some(self.start_time + SignedDuration::from_secs(seconds))
    }

    pub(super) fn time_is_up(&self, now: Timestamp) -> bool {
        self.time_limit().is_some_and(|limit| limit <= now)
    }

    pub(super) fn grace(&self) -> Duration {
        let metadata = &self.pod.metadata;
        let own = self.pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
        let seconds = metadata.deletion_grace_period_seconds.or(own).unwrap_or(DEFAULT_GRACE);
        Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
    }

    pub(super) fn begin_stop(&mut self, cause: Cause) {
        self.cause = Some(cause);
        let grace = if cause == Cause::Gone { ORPHAN_GRACE } else { self.grace() };
        self.deadline.send_replace(Instant::now() + grace);
        self.mode = Mode::StopDue;
    }

    pub(super) fn stop_now(&mut self) {
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
        let (cx, pod) = (Arc::clone(&self.cx), Arc::clone(&self.pod));
        let task = Box::pin(stop_all(cx, pod, main, sidecars, self.deadline.subscribe()));
        let sender = self.sender.clone();
        tokio::spawn(async move {
            task.await;
            let _ = sender.send(Message::Stopped);
        });
    }

    /// Everything that ran has ended, and its end is known.
    pub(super) async fn stopped(&mut self) {
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
        if self.end.is_none() && self.units.iter().any(Unit::has_started) {
            let mut main = self.units.iter().filter(|unit| unit.role == Role::Main);
            let succeeded = main.all(|unit| unit.ended().is_some_and(|ended| ended.code == 0));
            self.end = Some(End { succeeded, reason: None, message: None });
        }
    }
}
