//! One writer at a time, by a `coordination.k8s.io/v1` Lease.
//!
//! The rules are those of client-go's leader election: a candidate takes a lease that is free or that did not change
//! for its whole duration as measured by the candidate's own clock, so clocks need not agree; every write carries the
//! resource version that was read, so of two candidates one wins; and a holder that could not renew in time gives up
//! before another may take over, answer or no answer from the API server.
//!
//! kube-lease-manager 0.13 was reviewed and not used: it goes on leading while the API server cannot be reached, its
//! release of an expired lease has no precondition and may undo another's lock, it compares clocks of different
//! machines, and a conflict on release panics.

use crate::{
    backoff::Backoff,
    client::{CallError, bounded},
    metrics::Metrics,
};
use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use std::{
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
    time::Duration,
};
use thiserror::Error;
use tokio::{
    sync::{oneshot, watch},
    task::JoinHandle,
    time::Instant,
};
use tracing::{debug, info, warn};

/// How long a lease that is not renewed keeps others out.
pub const DURATION: Duration = Duration::from_secs(15);
/// How long after its last renewal a holder goes on. Less than [`DURATION`], so that it stops first.
pub const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// How often a holder renews.
pub const RENEW_INTERVAL: Duration = Duration::from_secs(5);
/// How often a candidate looks, and a holder tries again after a failure.
pub const RETRY_INTERVAL: Duration = Duration::from_secs(2);

const CALL_LIMIT: Duration = Duration::from_secs(4);

/// Which lease, and who we are.
#[derive(Clone, Debug)]
pub struct LeaseConfig {
    /// The namespace of the Lease.
    pub namespace: String,
    /// The name of the Lease.
    pub name: String,
    /// Who we are: unique among running processes. A process that finds its own identity in the lease takes it back
    /// at once, so a restarted container of one pod does not wait.
    pub identity: String,
}

/// An identity that no other process has: the host's name where it is known, and a random suffix.
pub fn unique_identity(fallback: &str) -> String {
    let host = std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty());
    let random = RandomState::new().hash_one(std::process::id());
    format!("{}_{random:016x}", host.as_deref().unwrap_or(fallback))
}

/// Why this process must stop writing.
#[derive(Debug, Error)]
pub enum LeaseError {
    /// The API server did not take a renewal in time.
    #[error(
        "the lease {namespace}/{name} could not be renewed for {} s, last because of: {reason}; \
         another replica may take over, so this one stops", RENEW_DEADLINE.as_secs()
    )]
    NotRenewed {
        /// The namespace of the Lease.
        namespace: String,
        /// The name of the Lease.
        name: String,
        /// The last failure.
        reason: String,
    },
    /// Somebody else holds it.
    #[error("the lease {namespace}/{name} was taken by {holder:?}, so this replica stops")]
    Taken {
        /// The namespace of the Lease.
        namespace: String,
        /// The name of the Lease.
        name: String,
        /// Who holds it now.
        holder: String,
    },
    /// The task that renews it died.
    #[error("the task that renews the lease ended unexpectedly")]
    Task,
}

/// Our part in the election.
#[derive(Debug)]
pub struct Leadership {
    leads: watch::Receiver<bool>,
    stop: Option<oneshot::Sender<()>>,
    task: Option<JoinHandle<Result<(), LeaseError>>>,
}

impl Leadership {
    /// Takes part in the election for `config` from now on.
    pub fn stand(client: Client, config: LeaseConfig, metrics: Arc<Metrics>) -> Self {
        let (leads_sender, leads) = watch::channel(false);
        let (stop, stopped) = oneshot::channel();
        let api = Api::namespaced(client, &config.namespace);
        let candidate = Candidate { api, config, metrics };
        let task = tokio::spawn(candidate.run(leads_sender, stopped));
        Self { leads, stop: Some(stop), task: Some(task) }
    }

    /// Leads without an election, for a single replica.
    pub fn unopposed(metrics: &Metrics) -> Self {
        metrics.leader(true);
        let (_, leads) = watch::channel(true);
        Self { leads, stop: None, task: None }
    }

    /// Whether this process is the one that writes, now and at each change.
    pub fn leads(&self) -> watch::Receiver<bool> {
        self.leads.clone()
    }

    /// Waits until the lease is lost, for ever if it never is. The process must end then, and not zero.
    pub async fn lost(&mut self) -> LeaseError {
        match &mut self.task {
            Some(task) => match task.await {
                Ok(Err(error)) => error,
                Ok(Ok(())) | Err(_) => LeaseError::Task,
            },
            None => std::future::pending().await,
        }
    }

    /// Gives the lease back, so that a standby takes over at once. Call it after the last write.
    pub async fn release(mut self) {
        if let Some(stop) = self.stop.take() {
            // The task may have ended already; then there is nothing to release.
            let _ = stop.send(());
        }
        if let Some(task) = self.task.take()
            && let Ok(Err(error)) = task.await
        {
            warn!(%error, "the lease was lost before it could be released");
        }
    }
}

struct Candidate {
    api: Api<Lease>,
    config: LeaseConfig,
    metrics: Arc<Metrics>,
}

/// What a candidate saw of the lease, and since when it has been the same.
#[derive(Debug)]
struct Sighting {
    spec: LeaseSpec,
    since: Instant,
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// Nobody's, or ours from before: it may be taken.
    Free,
    /// Held by another.
    Held(String),
}

/// Whether the lease may be taken at `now`; remembers in `seen` how long it has not changed.
fn judge(spec: &LeaseSpec, identity: &str, seen: &mut Option<Sighting>, now: Instant) -> Verdict {
    let holder = spec.holder_identity.as_deref().unwrap_or_default();
    if holder.is_empty() || holder == identity {
        return Verdict::Free;
    }
    let since = match seen {
        Some(sighting) if sighting.spec == *spec => sighting.since,
        _ => {
            *seen = Some(Sighting { spec: spec.clone(), since: now });
            now
        }
    };
    let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    let duration = seconds.map_or(DURATION, Duration::from_secs);
    if now.duration_since(since) > duration { Verdict::Free } else { Verdict::Held(holder.to_owned()) }
}

/// The lease as we write it over `before`.
fn held_by(identity: &str, before: &LeaseSpec, now: Timestamp) -> LeaseSpec {
    let ours = before.holder_identity.as_deref() == Some(identity);
    let transitions = before.lease_transitions.unwrap_or_default();
    LeaseSpec {
        holder_identity: Some(identity.to_owned()),
        lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
        acquire_time: if ours { before.acquire_time.clone() } else { Some(MicroTime(now)) },
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(if ours { transitions } else { transitions.saturating_add(1) }),
        ..before.clone()
    }
}

impl Candidate {
    async fn run(
        self,
        leads: watch::Sender<bool>,
        mut stopped: oneshot::Receiver<()>,
    ) -> Result<(), LeaseError> {
        let (lease, valid_from) = tokio::select! {
            _ = &mut stopped => return Ok(()),
            acquired = self.acquire() => acquired,
        };
        info!(lease = %self.config.name, identity = %self.config.identity, "leading");
        self.metrics.leader(true);
        leads.send_replace(true);
        let result = self.hold(lease, valid_from, &mut stopped).await;
        leads.send_replace(false);
        self.metrics.leader(false);
        result
    }

    /// Tries until the lease is ours. The instant is from before the request that made it so: from then on nobody
    /// else takes it for [`DURATION`].
    async fn acquire(&self) -> (Lease, Instant) {
        let mut seen = None;
        let mut holder = String::new();
        loop {
            let start = Instant::now();
            match self.try_acquire(&mut seen).await {
                Ok(Ok(lease)) => return (lease, start),
                Ok(Err(other)) => {
                    if other != holder {
                        info!(lease = %self.config.name, holder = %other, "standing by");
                        holder = other;
                    }
                }
                Err(error) if error.is_conflict() => debug!(%error, "another candidate was faster"),
                Err(error) => warn!(lease = %self.config.name, %error, "cannot read or take the lease"),
            }
            tokio::time::sleep(RETRY_INTERVAL.mul_f64(1.0 + 0.2 * Backoff::jitter())).await;
        }
    }

    async fn try_acquire(&self, seen: &mut Option<Sighting>) -> Result<Result<Lease, String>, CallError> {
        let Some(mut lease) = bounded(CALL_LIMIT, self.api.get_opt(&self.config.name)).await? else {
            let lease = Lease {
                metadata: ObjectMeta { name: Some(self.config.name.clone()), ..ObjectMeta::default() },
                spec: Some(held_by(&self.config.identity, &LeaseSpec::default(), Timestamp::now())),
            };
            return bounded(CALL_LIMIT, self.api.create(&PostParams::default(), &lease)).await.map(Ok);
        };
        let spec = lease.spec.take().unwrap_or_default();
        match judge(&spec, &self.config.identity, seen, Instant::now()) {
            Verdict::Held(holder) => Ok(Err(holder)),
            Verdict::Free => {
                lease.spec = Some(held_by(&self.config.identity, &spec, Timestamp::now()));
                self.replace(&lease).await.map(Ok)
            }
        }
    }

    async fn hold(
        &self,
        mut lease: Lease,
        mut valid_from: Instant,
        stopped: &mut oneshot::Receiver<()>,
    ) -> Result<(), LeaseError> {
        let mut pause = RENEW_INTERVAL;
        let mut reason = "no answer".to_owned();
        loop {
            let deadline = valid_from + RENEW_DEADLINE;
            tokio::select! {
                _ = &mut *stopped => {
                    self.release(lease).await;
                    return Ok(());
                }
                () = tokio::time::sleep(pause) => {}
            }
            let start = Instant::now();
            match tokio::time::timeout_at(deadline, self.renew(&lease)).await {
                Ok(Ok(renewed)) => {
                    lease = renewed?;
                    valid_from = start;
                    pause = RENEW_INTERVAL;
                }
                Ok(Err(error)) => {
                    reason = error.to_string();
                    warn!(lease = %self.config.name, %error, "the lease was not renewed");
                    let left = deadline.saturating_duration_since(Instant::now());
                    pause = RETRY_INTERVAL.min(left);
                }
                Err(_) => {
                    let LeaseConfig { namespace, name, .. } = self.config.clone();
                    return Err(LeaseError::NotRenewed { namespace, name, reason });
                }
            }
        }
    }

    /// Renews; where the lease changed since it was read, looks whether it is still ours and tries once more.
    async fn renew(&self, lease: &Lease) -> Result<Result<Lease, LeaseError>, CallError> {
        let mut next = lease.clone();
        let spec = next.spec.take().unwrap_or_default();
        next.spec = Some(held_by(&self.config.identity, &spec, Timestamp::now()));
        match self.replace(&next).await {
            Err(error) if error.is_conflict() => {}
            answer => return answer.map(Ok),
        }
        let mut found = bounded(CALL_LIMIT, self.api.get(&self.config.name)).await?;
        let spec = found.spec.take().unwrap_or_default();
        match spec.holder_identity.as_deref() {
            Some(holder) if holder == self.config.identity => {
                found.spec = Some(held_by(&self.config.identity, &spec, Timestamp::now()));
                self.replace(&found).await.map(Ok)
            }
            holder => {
                let LeaseConfig { namespace, name, .. } = self.config.clone();
                let holder = holder.unwrap_or_default().to_owned();
                Ok(Err(LeaseError::Taken { namespace, name, holder }))
            }
        }
    }

    /// Leaves the lease to whoever comes first. Failing that, it runs out by itself.
    async fn release(&self, mut lease: Lease) {
        if let Some(spec) = &mut lease.spec {
            spec.holder_identity = None;
            spec.acquire_time = None;
        }
        match self.replace(&lease).await {
            Ok(_) => info!(lease = %self.config.name, "released the lease"),
            Err(error) => {
                warn!(lease = %self.config.name, %error, "the lease could not be released; it expires");
            }
        }
    }

    async fn replace(&self, lease: &Lease) -> Result<Lease, CallError> {
        bounded(CALL_LIMIT, self.api.replace(&self.config.name, &PostParams::default(), lease)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(holder: &str, renewed: i64) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(15),
            renew_time: Some(MicroTime(Timestamp::from_second(renewed).unwrap())),
            lease_transitions: Some(3),
            acquire_time: Some(MicroTime(Timestamp::from_second(1).unwrap())),
            ..LeaseSpec::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_free_lease_and_our_own_are_taken_at_once() {
        let now = Instant::now();
        assert_eq!(judge(&LeaseSpec::default(), "me", &mut None, now), Verdict::Free);
        assert_eq!(judge(&spec("", 5), "me", &mut None, now), Verdict::Free);
        assert_eq!(judge(&spec("me", 5), "me", &mut None, now), Verdict::Free);
    }

    #[tokio::test(start_paused = true)]
    async fn anothers_lease_is_taken_after_its_duration_by_our_clock() {
        let (start, mut seen) = (Instant::now(), None);
        let held = Verdict::Held("you".to_owned());
        // The time in it, which another clock wrote, does not matter.
        assert_eq!(judge(&spec("you", 0), "me", &mut seen, start), held);
        assert_eq!(judge(&spec("you", 0), "me", &mut seen, start + DURATION), held);
        // A renewal begins the wait anew.
        assert_eq!(judge(&spec("you", 9), "me", &mut seen, start + DURATION), held);
        assert_eq!(judge(&spec("you", 9), "me", &mut seen, start + DURATION * 2), held);
        let after = start + DURATION * 2 + Duration::from_millis(1);
        assert_eq!(judge(&spec("you", 9), "me", &mut seen, after), Verdict::Free);
    }

    #[test]
    fn a_change_of_holder_is_counted_and_a_renewal_is_not() {
        let now = Timestamp::from_second(100).unwrap();
        let renewed = held_by("me", &spec("me", 5), now);
        assert_eq!((renewed.lease_transitions, renewed.renew_time), (Some(3), Some(MicroTime(now))));
        assert_eq!(renewed.acquire_time, spec("me", 5).acquire_time);
        let taken = held_by("me", &spec("you", 5), now);
        assert_eq!((taken.lease_transitions, taken.acquire_time), (Some(4), Some(MicroTime(now))));
        assert_eq!(taken.holder_identity.as_deref(), Some("me"));
    }

    #[test]
    fn a_holder_stops_before_others_take_over() {
        assert!(RENEW_DEADLINE < DURATION && RENEW_INTERVAL + CALL_LIMIT < RENEW_DEADLINE);
    }
}
