//! Asks the gateway's pods which routes and which guard chain they hold.
//!
//! That an object is written does not say that a pod has it: istiod pushes when it is ready to, and Envoy may refuse what
//! it gets. So each pod is asked, by requests that anybody may send: a path that nobody can guess is answered with the
//! digest of the routes of its host, and one below it by the guard chain.

mod ask;
mod schedule;

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use operator_kit::cache::Wake;
use tokio::{sync::Notify, task::JoinSet, time::Instant};
use tracing::debug;

use schedule::Schedule;

/// How many requests are under way at once.
const CONCURRENCY: usize = 32;

/// Where and as whom a pod is asked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Target {
    /// The uid of the pod, so that a new one of the same address is asked anew.
    pub(crate) pod: String,
    /// The address of the pod and the port it listens on.
    pub(crate) address: SocketAddr,
    /// Whether it speaks TLS there.
    pub(crate) tls: bool,
    /// The host, for `Host` and SNI.
    pub(crate) host: String,
    /// The path.
    pub(crate) path: String,
}

/// What the answer must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// This body.
    Body(String),
    /// This value of the chain's header.
    Chain(String),
}

/// What is known of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It has not been asked yet.
    Pending,
    /// It answered as expected.
    Proved,
    /// It answered something else.
    Different(String),
    /// It could not be asked.
    Unreachable(String),
}

/// The state of a target: what it last answered, and since when it has been asked for what is expected now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Proof {
    /// The last answer.
    pub(crate) outcome: Outcome,
    /// When what is expected last changed.
    pub(crate) since: Instant,
}

#[derive(Debug)]
struct Shared {
    schedule: Mutex<Schedule>,
    changed: Notify,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Schedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
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
    /// Starts to ask; `wake` is woken when an answer changes what is known.
    pub(crate) fn start(wake: Wake) -> Self {
        let shared = Arc::new(Shared { schedule: Mutex::new(Schedule::default()), changed: Notify::new() });
        let mut task = JoinSet::new();
        task.spawn(drive(Arc::clone(&shared), wake));
        Self { shared, _task: task }
    }

    /// Sets what is to be asked, and forgets the rest. A target of which the same is expected as before keeps its proof.
    pub(crate) fn want(&self, wanted: BTreeMap<Target, Expected>) {
        if self.shared.lock().want(wanted, Instant::now()) {
            self.shared.changed.notify_one();
        }
    }

    /// What is known of a target; nothing if it is not wanted.
    pub(crate) fn proof(&self, target: &Target) -> Option<Proof> {
        self.shared.lock().proof(target)
    }
}

async fn drive(shared: Arc<Shared>, wake: Wake) {
    let mut under_way = JoinSet::new();
    loop {
        let now = Instant::now();
        let free = CONCURRENCY.saturating_sub(under_way.len());
        let (due, next) = shared.lock().take_due(now, free);
        for (target, expected) in due {
            under_way.spawn(async move {
                let outcome = ask::ask(&target, &expected).await;
                (target, expected, outcome)
            });
        }
        let timer = async {
            match next {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = shared.changed.notified() => {}
            () = timer => {}
            Some(answer) = under_way.join_next() => {
                let Ok((target, expected, outcome)) = answer else { continue };
                debug!(host = target.host, address = %target.address, ?outcome, "gateway pod asked");
                if shared.lock().answered(&target, &expected, outcome, Instant::now()) {
                    wake.wake();
                }
            }
        }
    }
}

/// For how long an answer other than the expected one is taken for a matter of time: istiod waits for more changes before
/// it pushes.
pub(crate) const USUAL_PUSH: Duration = Duration::from_secs(5);
