//! What the node knows of one container of a pod. Pure.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};

/// Back-offs grow up to this, as kubelet's do.
const LONGEST_BACKOFF: Duration = Duration::from_mins(5);
/// A container that stayed up for this long starts anew with the shortest back-off.
const FORGIVEN_AFTER: Duration = Duration::from_mins(10);

/// Which part a container plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Runs to its end before the next one starts.
    Init,
    /// A restartable init container: runs beside all that come later.
    Sidecar,
    /// One of `spec.containers`.
    Main,
}

/// A container's life so far.
#[derive(Clone, Debug)]
pub(crate) struct Unit {
    /// Its name in the Pod.
    pub(crate) name: String,
    /// The image as the Pod spells it.
    pub(crate) image: String,
    /// Its part.
    pub(crate) role: Role,
    /// What must be probed for before it counts.
    pub(crate) probed: Probed,
    /// What it does now.
    pub(crate) state: State,
    /// How it ended the last time, once it has been started again.
    pub(crate) last: Option<Ended>,
    /// How often it has been started again.
    pub(crate) restarts: i32,
    /// How often this node has started it.
    pub(crate) starts: u32,
    /// `containerStatuses[].ready`.
    pub(crate) ready: bool,
    /// `containerStatuses[].started`.
    pub(crate) started: bool,
    /// `containerStatuses[].imageID`.
    pub(crate) image_id: String,
    /// `containerStatuses[].containerID`.
    pub(crate) container_id: Option<String>,
    /// Delays between crashes.
    pub(crate) crashes: Backoff,
    /// Delays between failed starts.
    pub(crate) failures: Backoff,
}

/// The probes of a container that hold something back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probed {
    /// It is not ready until a probe says so.
    pub(crate) readiness: bool,
    /// It has not started until a probe says so.
    pub(crate) startup: bool,
}

/// What a container does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum State {
    /// It has not been started; nothing is wrong.
    Waiting,
    /// It could not be started.
    Failed(Failed),
    /// Its process runs.
    Running {
        /// Since when.
        since: Timestamp,
    },
    /// Its process has ended.
    Ended(Ended),
}

/// Why a container could not be started.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Failed {
    /// `ErrImagePull`, `CreateContainerConfigError` and the like.
    pub(crate) reason: &'static str,
    /// What the user should read.
    pub(crate) message: String,
    /// When it failed.
    pub(crate) at: Timestamp,
    /// When it is tried again.
    pub(crate) retry_at: Timestamp,
}

/// How a container ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ended {
    /// Exit code, 128 and the number of the signal if it was killed.
    pub(crate) code: i32,
    /// `Completed`, `Error` or another of kubelet's words.
    pub(crate) reason: &'static str,
    /// The termination message.
    pub(crate) message: Option<String>,
    /// When it began.
    pub(crate) started: Timestamp,
    /// When it ended.
    pub(crate) finished: Timestamp,
    /// The container's identifier.
    pub(crate) container_id: Option<String>,
}

impl Ended {
    /// An end with the reason that kubelet gives for its exit code.
    pub(crate) fn with_code(code: i32, started: Timestamp, container_id: &str) -> Self {
        Self {
            code,
            reason: if code == 0 { "Completed" } else { "Error" },
            message: None,
            started,
            finished: Timestamp::now(),
            container_id: Some(container_id.to_owned()),
        }
    }
}

/// Growing delays.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    base: Duration,
    /// The present delay, none before the first failure.
    delay: Option<Duration>,
    raised_at: Timestamp,
}

impl Backoff {
    /// Delays from `base`, doubling to five minutes.
    pub(crate) fn new(base: Duration) -> Self {
        Self { base, delay: None, raised_at: Timestamp::UNIX_EPOCH }
    }

    /// The delay before the next try.
    pub(crate) fn delay(&self) -> Duration {
        self.delay.unwrap_or_default()
    }

    /// Makes the next delay longer, or the shortest again after a long time of peace.
    pub(crate) fn raise(&mut self, now: Timestamp) {
        let peace = Duration::try_from(now.duration_since(self.raised_at)).unwrap_or_default();
        self.delay = Some(match self.delay {
            Some(delay) if peace < FORGIVEN_AFTER + delay => (delay * 2).min(LONGEST_BACKOFF.max(self.base)),
            _ => self.base,
        });
        self.raised_at = now;
    }

    /// Forgets everything.
    pub(crate) fn reset(&mut self) {
        self.delay = None;
    }
}

/// The containers of a Pod in the order in which they start.
pub(crate) fn units(pod: &Pod, backoff: Duration) -> Vec<Unit> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let init = spec.init_containers.iter().flatten().map(|container| {
        let sidecar = container.restart_policy.as_deref() == Some("Always");
        (if sidecar { Role::Sidecar } else { Role::Init }, container)
    });
    let main = spec.containers.iter().map(|container| (Role::Main, container));
    init.chain(main).map(|(role, container)| Unit::new(role, container, backoff)).collect()
}

impl Unit {
    fn new(role: Role, container: &Container, backoff: Duration) -> Self {
        Self {
            name: container.name.clone(),
            image: container.image.clone().unwrap_or_default(),
            role,
            probed: Probed {
                readiness: container.readiness_probe.is_some() && role != Role::Init,
                startup: container.startup_probe.is_some() && role != Role::Init,
            },
            state: State::Waiting,
            last: None,
            restarts: 0,
            starts: 0,
            ready: false,
            started: false,
            image_id: String::new(),
            container_id: None,
            crashes: Backoff::new(backoff),
            failures: Backoff::new(backoff),
        }
    }

    /// Whether this node has started it at least once.
    pub(crate) fn has_started(&self) -> bool {
        self.starts > 0
    }

    /// Whether its process runs.
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.state, State::Running { .. })
    }

    /// How it ended, if it has and has not been started again.
    pub(crate) fn ended(&self) -> Option<&Ended> {
        match &self.state {
            State::Ended(ended) => Some(ended),
            _ => None,
        }
    }

    /// When it may be started, given that it should be.
    pub(crate) fn may_start_at(&self) -> Timestamp {
        match &self.state {
            State::Waiting | State::Running { .. } => Timestamp::UNIX_EPOCH,
            State::Failed(failed) => failed.retry_at,
            State::Ended(ended) => ended.finished + self.crashes.delay(),
        }
    }

    /// Notes that its process runs.
    pub(crate) fn start(&mut self, now: Timestamp, image_id: String, container_id: String) {
        if let State::Ended(ended) = std::mem::replace(&mut self.state, State::Running { since: now }) {
            self.last = Some(ended);
            self.restarts += 1;
            self.crashes.raise(now);
        } else if self.has_started() {
            self.restarts += 1;
        }
        self.starts += 1;
        self.failures.reset();
        self.image_id = image_id;
        self.container_id = Some(container_id);
        self.started = !self.probed.startup;
        self.ready = self.started && !self.probed.readiness && self.role != Role::Init;
    }

    /// Notes that it could not be started. It is tried again after the back-off, or `soon` for what has none.
    pub(crate) fn fail(
        &mut self,
        now: Timestamp,
        reason: &'static str,
        message: String,
        soon: Option<Duration>,
    ) {
        self.failures.raise(now);
        let delay = soon.unwrap_or_else(|| self.failures.delay());
        if let State::Ended(ended) = &self.state {
            self.last = Some(ended.clone());
        }
        self.state = State::Failed(Failed { reason, message, at: now, retry_at: now + delay });
    }

    /// Notes its end.
    pub(crate) fn end(&mut self, ended: Ended) {
        self.ready = self.role == Role::Init && ended.code == 0;
        self.started = false;
        self.state = State::Ended(ended);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_and_are_forgiven() {
        let mut backoff = Backoff::new(Duration::from_secs(10));
        let mut now = Timestamp::UNIX_EPOCH + Duration::from_secs(1_000_000);
        assert_eq!(backoff.delay(), Duration::ZERO);
        let mut delays = Vec::new();
        for _ in 0..7 {
            backoff.raise(now);
            delays.push(backoff.delay().as_secs());
            now += backoff.delay();
        }
        assert_eq!(delays, [10, 20, 40, 80, 160, 300, 300]);
        backoff.raise(now + Duration::from_secs(1000));
        assert_eq!(backoff.delay().as_secs(), 10);
    }

    #[test]
    fn a_restart_is_counted_and_remembers_the_last_end() {
        let container = Container { name: "c".to_owned(), ..Container::default() };
        let mut unit = Unit::new(Role::Main, &container, Duration::from_secs(10));
        let now = Timestamp::UNIX_EPOCH;
        unit.start(now, "image".to_owned(), "one".to_owned());
        assert!(unit.ready && unit.started && unit.restarts == 0);
        unit.end(Ended::with_code(3, now, "one"));
        assert!(!unit.ready);
        let ended_at = unit.ended().unwrap().finished;
        assert_eq!(unit.may_start_at(), ended_at);
        unit.start(now, "image".to_owned(), "two".to_owned());
        assert_eq!((unit.restarts, unit.last.as_ref().unwrap().code), (1, 3));
        unit.end(Ended::with_code(3, now, "two"));
        assert_eq!(unit.may_start_at(), unit.ended().unwrap().finished + Duration::from_secs(10));
    }
}
