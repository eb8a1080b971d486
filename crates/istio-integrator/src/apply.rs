//! Makes the `VirtualServices` in the integrator's namespace what the plan wants: all of them, and no other of ours.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use futures::{StreamExt as _, stream};
use kube::core::ApiResource;
use mesh_api::{Reason, istio::VirtualService};
use operator_kit::{
    apply::{Applier, Desired, Force, Identity, Ownership, Pruned, Target},
    backoff::Backoff,
    cache::{Cache, Entry, Key},
    metrics::Metrics,
};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::{
    memory::{Memory, Step},
    observe::{self, ObservedRoutes},
};

const KIND: &str = "VirtualService";

/// How many writes are under way at once.
pub(crate) const CONCURRENCY: usize = 32;

/// Why an object is not as wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unwritten {
    /// The reason for conditions.
    pub(crate) reason: Reason,
    /// What happened and what to do. It holds no times, so that a status which quotes it stays the same.
    pub(crate) message: String,
}

/// What became of the objects of one pass: whether each is as wanted.
pub(crate) type Results = BTreeMap<Key, Result<(), Unwritten>>;

/// Writes `VirtualServices`, and remembers what it wrote.
pub(crate) struct RouteWriter {
    applier: Applier,
    cache: Arc<Cache<ObservedRoutes>>,
    resource: ApiResource,
    memory: Memory,
    metrics: Arc<Metrics>,
}

impl RouteWriter {
    /// A writer that knows of nothing yet; `cache` must hold every `VirtualService` of the namespace when it is used.
    pub(crate) fn new(applier: Applier, cache: Arc<Cache<ObservedRoutes>>, metrics: Arc<Metrics>) -> Self {
        let resource = observe::resource::<VirtualService>();
        Self { applier, cache, resource, memory: Memory::new(), metrics }
    }

    /// As whom it writes.
    pub(crate) fn identity(&self) -> Identity {
        self.applier.identity()
    }

    /// Writes those of `wanted` that are not in place.
    pub(crate) async fn apply(&mut self, wanted: &[Desired]) -> Results {
        let present = self.cache.snapshot();
        let now = Instant::now();
        let mut results = Results::new();
        let mut writes = Vec::new();
        for desired in wanted {
            let key = key(desired.target());
            let live = present.get(&key).map(|entry| &entry.value.live);
            match self.memory.step(&key, desired, live, now) {
                Step::Keep => {
                    results.insert(key, Ok(()));
                }
                Step::Leave { why, conflict } => {
                    if conflict {
                        self.metrics.conflict(KIND);
                    }
                    results.insert(key, Err(why));
                }
                Step::Write { repair } => writes.push((key, desired, live, repair)),
            }
        }
        let applier = self.applier.clone();
        let mut answers = stream::iter(writes)
            .map(|(key, desired, live, repair)| {
                let applier = &applier;
                async move { (key, desired, repair, applier.apply(desired, live, Force::Everything).await) }
            })
            .buffer_unordered(CONCURRENCY);
        while let Some((key, desired, repair, answer)) = answers.next().await {
            let (now, jitter) = (Instant::now(), Backoff::jitter());
            let result = match answer {
                Ok(stored) => {
                    if let Some(object) = stored {
                        let (key, entry) = observe::routes(&object, applier.identity());
                        self.cache.put(key, entry);
                    }
                    info!(kind = KIND, object = %key, repair, "written");
                    self.memory.written(&key, desired.digest(), repair, now, jitter);
                    Ok(())
                }
                Err(error) => {
                    warn!(kind = KIND, object = %key, %error, "not written");
                    Err(self.memory.not_written(&key, desired.digest(), &error, now, jitter))
                }
            };
            results.insert(key, result);
        }
        results
    }

    /// Deletes what is ours and neither wanted nor withheld. Returns how many could not be deleted; they are tried
    /// again.
    pub(crate) async fn prune(&mut self, wanted: &[Desired], withheld: &BTreeSet<Key>) -> usize {
        let wanted: BTreeSet<Key> = wanted.iter().map(|desired| key(desired.target())).collect();
        let present = self.cache.snapshot();
        self.memory.retain(&wanted, |key| present.contains_key(key));
        let now = Instant::now();
        let surplus: Vec<(Key, Entry<ObservedRoutes>)> = present
            .into_iter()
            .filter(|(key, _)| {
                !withheld.contains(key) && !wanted.contains(key) && !self.memory.waits(key, now)
            })
            .filter(|(_, entry)| {
                matches!(entry.value.live.ownership, Ownership::Ours(_)) && !entry.value.live.terminating
            })
            .collect();
        let (applier, resource) = (self.applier.clone(), self.resource.clone());
        let mut answers = stream::iter(surplus)
            .map(|(key, entry)| {
                let (applier, resource) = (&applier, &resource);
                async move {
                    let live = &entry.value.live;
                    let answer = applier.prune(resource, &target(&key), live, &entry.version).await;
                    (key, entry, answer)
                }
            })
            .buffer_unordered(CONCURRENCY);
        let mut failures = 0;
        while let Some((key, entry, answer)) = answers.next().await {
            match answer {
                Ok(Pruned::Deleted | Pruned::Absent) => {
                    info!(kind = KIND, object = %key, "deleted");
                    self.cache.forget(&key, &entry.uid);
                    self.memory.clear(&key);
                }
                Err(error) => {
                    failures += 1;
                    warn!(kind = KIND, object = %key, %error, "not deleted");
                    self.memory.not_deleted(&key, Instant::now(), Backoff::jitter());
                }
            }
        }
        failures
    }

    /// When something that failed, or was put right lately, may be tried again.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.memory.next(Instant::now())
    }
}

fn key(target: &Target) -> Key {
    Key { namespace: target.namespace.clone(), name: target.name.clone() }
}

fn target(key: &Key) -> Target {
    Target { kind: KIND.to_owned(), namespace: key.namespace.clone(), name: key.name.clone() }
}
