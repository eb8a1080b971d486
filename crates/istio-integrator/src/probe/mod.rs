//! Asks the gateways' pods what they hold.
//!
//! That an object is written does not say that a pod has it: istiod pushes when it is ready to, and Envoy may refuse what
//! it gets. So every pod is asked, by requests that anybody may send: a path that nobody can guess is answered with the
//! digest of the routes of its host, and one below it by the guard chain.
//!
//! ```text
//!   wanted questions --> book.rs (pure): whom to ask when --> ask.rs: one request --> book.rs --> wake
//!                            |
//!                            +--> standing.rs (pure): what is proved, and what that makes of a condition
//! ```
//!
//! What is proved is not asked again until something about it changes, but for one slow round.

mod ask;
mod book;
mod certificate;
mod standing;

use std::{
    fmt,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use operator_kit::{backoff::Backoff, cache::Wake};
use tokio::{sync::Notify, task::JoinSet, time::Instant};
use tracing::debug;

use ask::Asker;
use book::{Book, Request};

pub(crate) use standing::{Programmed, Standing, Stored, Tally, programmed};

/// Between two wakes of the loop that makes passes: proofs come by the hundred, and one pass takes them all.
const WAKE_INTERVAL: Duration = Duration::from_millis(500);

/// What a question is about. No two questions of one pass are about the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Subject {
    /// The routes of one host of one Gateway, named by the path of their marker, which differs for each of both.
    Routes(Arc<str>),
    /// A guard chain, by the path of the marker that shows it, on a port of the Gateway: each port is another listener, which
    /// Envoy may refuse by itself.
    Chain(Arc<str>, u16),
}

/// One request that pods are sent, and the answer that proves the subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    /// What it is about.
    pub(crate) subject: Subject,
    /// The host, for `Host` and, where it is TLS, for SNI. A host that the Gateway admits, without wildcard.
    pub(crate) host: Arc<str>,
    /// The path of the marker.
    pub(crate) path: Arc<str>,
    /// What a pod answers that holds the subject as it is wanted: for routes the body, for a chain the value of the
    /// header [`mesh_api::names::CHAIN_HEADER`].
    pub(crate) expected: Arc<str>,
    /// What a proof is good for besides `expected`: with another epoch, proofs are lost. The uid and resource version of the
    /// object whose presence is to be proved, if it may come and go without a change; else empty.
    pub(crate) epoch: Arc<str>,
    /// Whom to ask: every ready pod, at the port it listens on. Share one list among the hosts of a listener.
    pub(crate) targets: Arc<[Target]>,
}

/// A port of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Target {
    /// The uid of the pod, so that a new one of the same address is asked anew.
    pub(crate) pod: Arc<str>,
    /// The address of the pod, and the port that the pod (not the Service before it) listens on.
    pub(crate) address: SocketAddr,
    /// Whether it speaks TLS there.
    pub(crate) tls: bool,
}

/// What is known of a subject at a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It has not been asked yet, since the start or since something else is expected.
    Unasked,
    /// It holds what is expected.
    Proved,
    /// It answered, but not that.
    NotYet(Answer),
    /// It could not be asked.
    CannotAsk(Obstacle),
}

/// An answer other than the expected one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// This HTTP status.
    Status(u16),
    /// Status 200 with this digest instead of the expected one: the pod holds an older or newer state.
    Other(Arc<str>),
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "it answers {status}"),
            // Not the digest, which tells a person nothing and would change the message with every change.
            Self::Other(_) => write!(f, "it holds an older or newer state"),
        }
    }
}

/// Why a pod could not be asked. It holds no detail, so that a message that quotes it stays the same; details are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// Nothing listens on the port.
    Refused,
    /// No answer came in time.
    Timeout,
    /// There is no way to the pod.
    Unreachable,
    /// The listener wants a certificate of the client.
    ClientCertificate,
    /// TLS fails otherwise: for one, no server of the listener takes the host as SNI.
    Tls,
    /// What came is not HTTP, or the connection was closed before it came.
    NotHttp,
    /// The host or path cannot be sent.
    Unsendable,
}

impl Obstacle {
    /// Whether it says something about the port of the pod, rather than about one host at it.
    fn is_of_port(self) -> bool {
        matches!(self, Self::Refused | Self::Timeout | Self::Unreachable)
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "the pod refuses the connection",
            Self::Timeout => {
                "the pod does not answer in time; a NetworkPolicy may keep istio-integrator from it"
            }
            Self::Unreachable => {
                "there is no way to the pod; a NetworkPolicy may keep istio-integrator from it"
            }
            Self::ClientCertificate => "the server of the Gateway wants a client certificate",
            Self::Tls => "no TLS connection comes about for the host",
            Self::NotHttp => "the pod's answer is not HTTP",
            Self::Unsendable => "the host cannot be asked for",
        })
    }
}

/// How much may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// How many requests are under way at once.
    pub(crate) at_once: usize,
    /// How many of them go to one pod.
    pub(crate) at_once_per_pod: usize,
    /// How many requests are begun in a second. It bounds the processor time after a restart, when nothing is known.
    pub(crate) per_second: u32,
    /// How long one request may take.
    pub(crate) timeout: Duration,
    /// Between two requests about one subject to one target while it does not answer as expected.
    pub(crate) retry: Backoff,
    /// When what was proved is asked again, since a pod may have lost it.
    pub(crate) again: Duration,
}

impl Default for Limits {
    /// 32 requests at once, 4 of them to one pod, 1000 a second, 2 s each; tried again after 200 ms doubling to 30 s, and
    /// after proof every 10 minutes.
    fn default() -> Self {
        Self {
            at_once: 32,
            at_once_per_pod: 4,
            per_second: 1000,
            timeout: Duration::from_secs(2),
            retry: Backoff { base: Duration::from_millis(200), cap: Duration::from_secs(30) },
            again: Duration::from_mins(10),
        }
    }
}

#[derive(Debug)]
struct Shared {
    book: Mutex<Book>,
    changed: Notify,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks in the background, until it is dropped.
#[derive(Debug)]
pub(crate) struct Prober {
    shared: Arc<Shared>,
    // Dropped with the prober, which ends it.
    _task: JoinSet<()>,
}

impl Prober {
    /// Starts to ask within `limits`; `wake` is woken when answers change what is known.
    ///
    /// Call it inside a tokio runtime.
    pub(crate) fn start(limits: Limits, wake: Wake) -> Self {
        let shared =
            Arc::new(Shared { book: Mutex::new(Book::new(limits, Instant::now())), changed: Notify::new() });
        let mut task = JoinSet::new();
        task.spawn(drive(Arc::clone(&shared), Asker::new(limits.timeout), wake));
        Self { shared, _task: task }
    }

    /// Sets what is to be asked, and forgets the rest. A subject of which the same is expected as before keeps its proofs,
    /// at each target that stays.
    ///
    /// Call it in each pass with everything, once all caches are filled; what the first call names is taken for what was
    /// there before this process ([`Tally::initial`]).
    pub(crate) fn want(&self, questions: impl IntoIterator<Item = Question>) {
        if self.shared.lock().want(questions, Instant::now()) {
            self.shared.changed.notify_one();
        }
    }

    /// What is known, as long as the view is held; asking stands still meanwhile, so do not hold it across an await.
    pub(crate) fn view(&self) -> View<'_> {
        View(self.shared.lock())
    }
}

/// What is known at one moment.
#[derive(Debug)]
pub(crate) struct View<'p>(MutexGuard<'p, Book>);

impl View<'_> {
    /// What is known of a subject; nothing if it is not wanted.
    pub(crate) fn standing(&self, subject: &Subject) -> Option<Standing<'_>> {
        self.0.standing(subject)
    }
}

async fn drive(shared: Arc<Shared>, asker: Asker, wake: Wake) {
    let mut under_way = JoinSet::new();
    // When the loop of passes may be woken again, and whether there is something to wake it for.
    let (mut wake_from, mut news) = (Instant::now(), false);
    loop {
        let now = Instant::now();
        if news && now >= wake_from {
            wake.wake();
            (wake_from, news) = (now + WAKE_INTERVAL, false);
        }
        let due = shared.lock().take(now);
        for request in due.requests {
            let asker = asker.clone();
            under_way.spawn(async move {
                let outcome = asker.ask(&request).await;
                (request, outcome)
            });
        }
        let wake_at = news.then_some(wake_from);
        let timer = async {
            match due.next.into_iter().chain(wake_at).min() {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = shared.changed.notified() => {}
            () = timer => {}
            // A request that panicked is none that could be answered for, so its error is not looked at.
            Some(Ok((request, outcome))) = under_way.join_next() => {
                let Request { host, target, .. } = &request;
                debug!(%host, address = %target.address, ?outcome, "gateway pod asked");
                news |= shared.lock().answered(&request, outcome, Instant::now(), Backoff::jitter());
            }
        }
    }
}

#[cfg(test)]
mod tests;
