//! Metrics that every operator has. Labels are bounded: kinds and controllers are names in the program.

use crate::client::CallError;
use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue, text},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};
use std::{fmt, sync::Mutex, sync::PoisonError, time::Duration};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Controller {
    controller: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reconcile {
    controller: &'static str,
    result: ReconcileResult,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
enum ReconcileResult {
    Success,
    Error,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Write {
    kind: String,
    verb: Verb,
    result: Outcome,
}

/// What a write does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum Verb {
    /// A server-side apply.
    Apply,
    /// A deletion.
    Delete,
    /// A patch of the status.
    Status,
    /// An Event.
    Event,
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum Outcome {
    /// Done.
    Success,
    /// Refused because of another owner or a later version.
    Conflict,
    /// No answer in time.
    Timeout,
    /// Anything else.
    Error,
}

impl Outcome {
    /// The outcome that an answer amounts to.
    pub fn of<T>(answer: &Result<T, CallError>) -> Self {
        match answer {
            Ok(_) => Self::Success,
            Err(CallError::Timeout(_)) => Self::Timeout,
            Err(error) if error.is_conflict() => Self::Conflict,
            Err(_) => Self::Error,
        }
    }
}

/// The metrics of one process, and the registry that an operator adds its own to.
pub struct Metrics {
    registry: Mutex<Registry>,
    reconciles: Family<Reconcile, Counter>,
    reconcile_seconds: Family<Controller, Histogram>,
    reconciled_objects: Family<Kind, Counter>,
    writes: Family<Write, Counter>,
    conflicts: Family<Kind, Counter>,
    watch_errors: Family<Kind, Counter>,
    cached_objects: Family<Kind, Gauge>,
    leader: Gauge,
    dropped_events: Counter,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

fn pass_seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 16))
}

impl Metrics {
    /// Metrics whose names begin with `prefix` (`istio_integrator`).
    pub fn new(prefix: &str) -> Self {
        let mut registry = Registry::with_prefix(prefix);
        let reconciles = Family::default();
        registry.register("reconciles", "Passes over everything observed", reconciles.clone());
        let reconcile_seconds: Family<Controller, Histogram> = Family::new_with_constructor(pass_seconds);
        registry.register(
            "reconcile_duration_seconds",
            "How long a pass took, its writes included",
            reconcile_seconds.clone(),
        );
        let reconciled_objects = Family::default();
        registry.register(
            "reconciled_objects",
            "Objects whose wanted state was computed and compared with the cluster, once for each pass",
            reconciled_objects.clone(),
        );
        let writes = Family::default();
        registry.register("writes", "Mutating requests, the lease's excepted", writes.clone());
        let conflicts = Family::default();
        registry.register("conflicts", "Writes not made because of another owner", conflicts.clone());
        let watch_errors = Family::default();
        registry.register("watch_errors", "Failed lists and watches", watch_errors.clone());
        let cached_objects = Family::default();
        registry.register("cached_objects", "Objects held in memory", cached_objects.clone());
        let leader = Gauge::default();
        registry.register("leader", "1 while this process holds the lease and writes", leader.clone());
        let dropped_events = Counter::default();
        registry.register(
            "dropped_events",
            "Events not sent because too many were waiting",
            dropped_events.clone(),
        );
        Self {
            registry: Mutex::new(registry),
            reconciles,
            reconcile_seconds,
            reconciled_objects,
            writes,
            conflicts,
            watch_errors,
            cached_objects,
            leader,
            dropped_events,
        }
    }

    /// Counts a pass of `controller`.
    pub fn reconciled(&self, controller: &'static str, success: bool, took: Duration) {
        let result = if success { ReconcileResult::Success } else { ReconcileResult::Error };
        self.reconciles.get_or_create(&Reconcile { controller, result }).inc();
        self.reconcile_seconds.get_or_create(&Controller { controller }).observe(took.as_secs_f64());
    }

    /// Counts the objects of `kind` that a pass looked at.
    pub fn reconciled_objects(&self, kind: &str, count: usize) {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        self.reconciled_objects.get_or_create(&Kind { kind: kind.to_owned() }).inc_by(count);
    }

    /// Counts a mutating request.
    pub fn write(&self, kind: &str, verb: Verb, result: Outcome) {
        self.writes.get_or_create(&Write { kind: kind.to_owned(), verb, result }).inc();
    }

    /// Counts a write that was not made, or not completed, because of another owner.
    pub fn conflict(&self, kind: &str) {
        self.conflicts.get_or_create(&Kind { kind: kind.to_owned() }).inc();
    }

    /// Counts a failed list or watch.
    pub fn watch_error(&self, kind: &str) {
        self.watch_errors.get_or_create(&Kind { kind: kind.to_owned() }).inc();
    }

    /// Tells how many objects of `kind` are held.
    pub fn cached_objects(&self, kind: &str, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.cached_objects.get_or_create(&Kind { kind: kind.to_owned() }).set(count);
    }

    /// Tells whether this process is the one that writes.
    pub fn leader(&self, leads: bool) {
        self.leader.set(i64::from(leads));
    }

    /// Counts an Event that was not sent.
    pub fn dropped_event(&self) {
        self.dropped_events.inc();
    }

    /// Everything in the `OpenMetrics` text format.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        text::encode(&mut text, &registry)?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_what_happened() {
        let metrics = Metrics::new("op");
        metrics.write("VirtualService", Verb::Apply, Outcome::Success);
        metrics.write("VirtualService", Verb::Apply, Outcome::Success);
        metrics.conflict("VirtualService");
        metrics.reconciled("routes", false, Duration::from_millis(3));
        metrics.reconciled_objects("IngressRequest", 3);
        metrics.leader(true);
        let text = metrics.encode().unwrap();
        for line in [
            "op_writes_total{kind=\"VirtualService\",verb=\"Apply\",result=\"Success\"} 2",
            "op_conflicts_total{kind=\"VirtualService\"} 1",
            "op_reconciles_total{controller=\"routes\",result=\"Error\"} 1",
            "op_reconcile_duration_seconds_count{controller=\"routes\"} 1",
            "op_reconciled_objects_total{kind=\"IngressRequest\"} 3",
            "op_leader 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
