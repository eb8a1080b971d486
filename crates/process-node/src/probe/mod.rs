//! Startup, liveness and readiness probes.
//!
//! Timing is kubelet's, but for one kindness to tests that wait: until a startup or readiness probe has succeeded
//! for the first time it is also tried between its periods. Those extra tries count only when they succeed.

pub(crate) mod check;
mod grpc;
mod http;
mod tally;

use std::time::Duration;

use k8s_openapi::api::core::v1::Probe;
use tokio::time::{Instant, sleep_until, timeout};

pub(crate) use self::check::{Check, Place};
use self::tally::Tally;

/// The first extra try comes after this; each further one after twice the pause.
const FIRST_EXTRA: Duration = Duration::from_millis(100);

/// What a probe decides on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Whether the container has started, before which the others do not run.
    Startup,
    /// Whether it must be restarted.
    Liveness,
    /// Whether it gets traffic.
    Readiness,
}

impl Kind {
    /// Its name in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
        }
    }
}

/// What a running probe tells.
#[derive(Debug)]
pub(crate) enum Finding {
    /// A single check failed, for this reason.
    Failed(String),
    /// Enough checks agree.
    Verdict(bool),
}

/// When a probe runs, with Kubernetes' defaults filled in.
#[derive(Clone, Copy, Debug)]
struct Schedule {
    initial_delay: Duration,
    period: Duration,
    timeout: Duration,
}

impl Schedule {
    fn new(probe: &Probe) -> Self {
        let seconds = |value: Option<i32>, default: u64, least: u64| {
            let value = value.and_then(|value| u64::try_from(value).ok()).filter(|value| *value >= least);
            Duration::from_secs(value.unwrap_or(default))
        };
        Self {
            initial_delay: seconds(probe.initial_delay_seconds, 0, 0),
            period: seconds(probe.period_seconds, 10, 1),
            timeout: seconds(probe.timeout_seconds, 1, 1),
        }
    }
}

/// Runs a probe until it is dropped; a startup probe until its first verdict, a liveness probe until it fails.
/// `started` is when the container did.
pub(crate) async fn watch(
    kind: Kind,
    probe: Probe,
    check: Check,
    place: Place,
    started: Instant,
    mut tell: impl FnMut(Finding),
) {
    let schedule = Schedule::new(&probe);
    let mut tally = Tally::new(kind, &probe);
    let mut tick = started + schedule.initial_delay;
    loop {
        sleep_until(tick).await;
        tick = Instant::now() + schedule.period;
        let mut outcome = try_once(&check, &place, schedule.timeout).await;
        if let Err(reason) = &outcome {
            tell(Finding::Failed(reason.clone()));
        }
        let mut verdict = tally.record(outcome.is_ok());
        let mut pause = FIRST_EXTRA;
        while outcome.is_err() && verdict.is_none() && kind != Kind::Liveness && !tally.has_succeeded() {
            let next = Instant::now() + pause;
            if next >= tick {
                break;
            }
            sleep_until(next).await;
            pause *= 2;
            outcome = try_once(&check, &place, schedule.timeout).await;
            if outcome.is_ok() {
                verdict = tally.record(true);
                tick = Instant::now() + schedule.period;
            }
        }
        if let Some(verdict) = verdict {
            tell(Finding::Verdict(verdict));
            let is_over = match kind {
                Kind::Startup => true,
                Kind::Liveness => !verdict,
                Kind::Readiness => false,
            };
            if is_over {
                return;
            }
        }
    }
}

async fn try_once(check: &Check, place: &Place, limit: Duration) -> Result<(), String> {
    if matches!(check, Check::Exec(_)) {
        // A command's time is counted from when it runs.
        return check.run(place, limit).await;
    }
    timeout(limit, check.run(place, limit))
        .await
        .unwrap_or_else(|_| Err(format!("no answer within {limit:?}")))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_probe_tells_what_it_finds() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            for answer in ["503 Busy", "200 OK", "204 None"] {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 1024];
                assert!(stream.read(&mut request).await.unwrap() > 0);
                let text = format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\n\r\n");
                stream.write_all(text.as_bytes()).await.unwrap();
            }
        });
        let probe = Probe { period_seconds: Some(1), success_threshold: Some(2), ..Probe::default() };
        let check = Check::Http(check::HttpCheck {
            tls: false,
            host: None,
            port,
            path: "/ready".to_owned(),
            headers: Vec::new(),
        });
        let place = Place { address: [127, 0, 0, 1].into(), target: None };
        let findings = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&findings);
        let task = watch(Kind::Readiness, probe, check, place, Instant::now(), move |finding| {
            sink.lock().unwrap().push(format!("{finding:?}"));
        });
        let _ = timeout(Duration::from_millis(1700), task).await;
        let findings = findings.lock().unwrap().clone();
        let expected = ["Failed(\"HTTP probe failed with statuscode: 503\")", "Verdict(true)"];
        assert_eq!(findings, expected);
    }

    #[test]
    fn defaults_are_those_of_kubernetes() {
        let schedule = Schedule::new(&Probe { timeout_seconds: Some(0), ..Probe::default() });
        assert_eq!(schedule.initial_delay, Duration::ZERO);
        assert_eq!((schedule.period.as_secs(), schedule.timeout.as_secs()), (10, 1));
    }
}
