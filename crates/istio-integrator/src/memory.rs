//! What the writer of `VirtualServices` remembers between passes: pure, the time given.

use std::{
    collections::{BTreeSet, HashMap},
    fmt::Write as _,
    time::Duration,
};

use mesh_api::Reason;
use operator_kit::{
    apply::{ApplyError, Decision, Desired, Live, Target, decide},
    backoff::{Backoff, ObjectBackoff},
    cache::Key,
    fields::Digest,
};
use tokio::time::Instant;

use crate::apply::Unwritten;

/// After a failed write.
const FAILURE: Backoff = Backoff { base: Duration::from_secs(1), cap: Duration::from_mins(5) };

/// After putting right what somebody else changed: the first time at once, then less and less often, so that two
/// tools that disagree do not fill the API server with their quarrel.
const REPAIR: Backoff = Backoff { base: Duration::from_secs(30), cap: Duration::from_mins(30) };

/// What to do about an object now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It is as wanted.
    Keep,
    /// It is to be written; as a repair, if what is wanted is what was in place before.
    Write { repair: bool },
    /// It stays as it is for now: why, and whether it is for another owner.
    Leave { why: Unwritten, conflict: bool },
}

/// What was in place, what failed and what was repaired lately.
#[derive(Debug)]
pub(crate) struct Memory {
    /// What was last in place or written, to tell a foreign change from a change of what is wanted.
    settled: HashMap<Key, Digest>,
    failures: ObjectBackoff<Key>,
    /// What was not written, and what came of it.
    last_failure: HashMap<Key, (Digest, Unwritten)>,
    repairs: ObjectBackoff<Key>,
}

impl Memory {
    /// Remembers nothing yet.
    pub(crate) fn new() -> Self {
        Self {
            settled: HashMap::new(),
            failures: ObjectBackoff::new(FAILURE),
            last_failure: HashMap::new(),
            repairs: ObjectBackoff::new(REPAIR),
        }
    }

    /// Decides about one object.
    pub(crate) fn step(&mut self, key: &Key, desired: &Desired, live: Option<&Live>, now: Instant) -> Step {
        match decide(desired, live) {
            Decision::Keep => {
                self.settled.insert(key.clone(), desired.digest());
                self.clear(key);
                return Step::Keep;
            }
            Decision::Refuse(owner) => {
                let error = ApplyError::Foreign { target: desired.target().clone(), owner };
                return Step::Leave { why: explain(&error), conflict: true };
            }
            // Its end is heard of at once; there is nothing to try until then.
            Decision::AwaitDeletion => {
                let error = ApplyError::Terminating(desired.target().clone());
                return Step::Leave { why: explain(&error), conflict: false };
            }
            Decision::Create | Decision::Update => {}
        }
        // What failed is left alone for a while, unless something else is wanted now.
        if let Some((digest, failure)) = self.last_failure.get(key)
            && *digest == desired.digest()
            && self.waits(key, now)
        {
            return Step::Leave { why: failure.clone(), conflict: false };
        }
        let repair = self.settled.get(key) == Some(&desired.digest());
        if repair && self.repairs.waits(key, now).is_some() {
            return Step::Leave { why: quarrel(desired.target(), live), conflict: true };
        }
        Step::Write { repair }
    }

    /// Notes that the object was written.
    pub(crate) fn written(&mut self, key: &Key, digest: Digest, repair: bool, now: Instant, jitter: f64) {
        self.settled.insert(key.clone(), digest);
        self.clear(key);
        if repair {
            self.repairs.failed(key.clone(), now, jitter);
        }
    }

    /// Notes that the object was not written.
    pub(crate) fn not_written(
        &mut self,
        key: &Key,
        digest: Digest,
        error: &ApplyError,
        now: Instant,
        jitter: f64,
    ) -> Unwritten {
        let unwritten = explain(error);
        self.failures.failed(key.clone(), now, jitter);
        self.last_failure.insert(key.clone(), (digest, unwritten.clone()));
        unwritten
    }

    /// Notes that the object was not deleted.
    pub(crate) fn not_deleted(&mut self, key: &Key, now: Instant, jitter: f64) {
        self.failures.failed(key.clone(), now, jitter);
    }

    /// Whether the object failed lately and is left alone.
    pub(crate) fn waits(&self, key: &Key, now: Instant) -> bool {
        self.failures.waits(key, now).is_some()
    }

    /// Forgets the failures of an object.
    pub(crate) fn clear(&mut self, key: &Key) {
        self.failures.succeeded(key);
        self.last_failure.remove(key);
    }

    /// Forgets what concerns neither an object that is wanted nor one that is there.
    pub(crate) fn retain(&mut self, wanted: &BTreeSet<Key>, is_there: impl Fn(&Key) -> bool) {
        self.settled.retain(|key, _| wanted.contains(key));
        self.repairs.retain(|key| wanted.contains(key));
        self.failures.retain(|key| wanted.contains(key) || is_there(key));
        self.last_failure.retain(|key, _| wanted.contains(key));
    }

    /// When something that was left alone may be tried again.
    pub(crate) fn next(&self, now: Instant) -> Option<Instant> {
        [self.failures.next(now), self.repairs.next(now)].into_iter().flatten().min()
    }
}

fn explain(error: &ApplyError) -> Unwritten {
    let reason = match error {
        ApplyError::Foreign { .. } | ApplyError::Fields { .. } => Reason::ObjectConflict,
        ApplyError::Terminating(_) | ApplyError::Stale { .. } | ApplyError::Call { .. } => {
            Reason::WriteFailed
        }
    };
    Unwritten { reason, message: error.to_string() }
}

fn quarrel(target: &Target, live: Option<&Live>) -> Unwritten {
    let mut message = format!("{target} is changed by others");
    match live {
        Some(live) if !live.others.is_empty() => {
            // Writing to a String cannot fail.
            let _ = write!(message, " (field manager {})", live.others.join(", "));
        }
        Some(_) => {}
        None => message.push_str(", who delete it"),
    }
    message.push_str("; it is put back, but ever less often. Find who does it and let them stop");
    Unwritten { reason: Reason::ObjectConflict, message }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mesh_api::istio::{VirtualService, VirtualServiceSpec};
    use operator_kit::{
        apply::{Identity, Ownership},
        client::CallError,
        conflict::{MANAGED_BY, Owner},
    };

    const US: Identity = Identity { manager: "us", managed_by: "us" };
    const SECOND: Duration = Duration::from_secs(1);

    fn wanted(host: &str) -> Desired {
        let spec = VirtualServiceSpec { hosts: vec![host.to_owned()], ..VirtualServiceSpec::default() };
        let mut object = VirtualService::new("a", spec);
        object.metadata.namespace = Some("ii".to_owned());
        object.metadata.labels = Some([(MANAGED_BY.to_owned(), "us".to_owned())].into());
        Desired::new(&object, US).unwrap()
    }

    fn key() -> Key {
        Key { namespace: "ii".to_owned(), name: "a".to_owned() }
    }

    fn ours(digest: Digest) -> Live {
        Live {
            uid: "u".to_owned(),
            terminating: false,
            ownership: Ownership::Ours(digest),
            others: vec!["kubectl-edit".to_owned()],
        }
    }

    fn failure() -> ApplyError {
        let target = wanted("x").target().clone();
        ApplyError::Call { verb: "applying", target, source: CallError::Timeout(SECOND) }
    }

    const NEW: Step = Step::Write { repair: false };
    const REPAIR_STEP: Step = Step::Write { repair: true };

    fn why(step: &Step) -> (Reason, &str) {
        match step {
            Step::Leave { why, .. } => (why.reason, &why.message),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_foreign_change_is_put_right_once_and_then_ever_less_often() {
        let (mut memory, desired, start) = (Memory::new(), wanted("x"), Instant::now());
        let edited = ours(wanted("edited").digest());
        assert_eq!(memory.step(&key(), &desired, None, start), NEW);
        memory.written(&key(), desired.digest(), false, start, 0.0);
        assert_eq!(memory.step(&key(), &desired, Some(&ours(desired.digest())), start), Step::Keep);

        assert_eq!(memory.step(&key(), &desired, Some(&edited), start), REPAIR_STEP);
        memory.written(&key(), desired.digest(), true, start, 0.0);
        let step = memory.step(&key(), &desired, Some(&edited), start + SECOND);
        let (reason, message) = why(&step);
        assert!(
            reason == Reason::ObjectConflict && message.contains("field manager kubectl-edit"),
            "{message}"
        );
        assert_eq!(memory.next(start), Some(start + SECOND * 30));
        // Deleting it is a change like another.
        let step = memory.step(&key(), &desired, None, start + SECOND);
        assert!(why(&step).1.contains("who delete it"));
        // Another wish is ours and not held up.
        assert_eq!(memory.step(&key(), &wanted("y"), Some(&edited), start + SECOND), NEW);

        let later = start + SECOND * 30;
        assert_eq!(memory.step(&key(), &desired, Some(&edited), later), REPAIR_STEP);
        memory.written(&key(), desired.digest(), true, later, 0.0);
        assert_eq!(memory.next(later), Some(later + SECOND * 60));
    }

    #[test]
    fn a_failed_write_is_tried_again_later_or_when_something_else_is_wanted() {
        let (mut memory, desired, start) = (Memory::new(), wanted("x"), Instant::now());
        memory.not_written(&key(), desired.digest(), &failure(), start, 0.0);
        let step = memory.step(&key(), &desired, None, start);
        let expected = "applying VirtualService ii/a failed: no answer from the API server within 1 s";
        assert_eq!(why(&step), (Reason::WriteFailed, expected));
        assert_eq!(memory.step(&key(), &wanted("y"), None, start), NEW);
        assert_eq!(memory.step(&key(), &desired, None, start + SECOND), NEW);
        // That it is in place after all, since only the answer was lost, ends the matter.
        assert_eq!(memory.step(&key(), &desired, Some(&ours(desired.digest())), start), Step::Keep);
        assert_eq!(memory.next(start), None);
    }

    #[test]
    fn others_objects_and_ending_ones_are_left() {
        let (mut memory, desired, now) = (Memory::new(), wanted("x"), Instant::now());
        let mut live = ours(desired.digest());
        live.terminating = true;
        assert_eq!(why(&memory.step(&key(), &desired, Some(&live), now)).0, Reason::WriteFailed);
        live.ownership = Ownership::Foreign(Owner { managed_by: None, managers: vec!["them".to_owned()] });
        let step = memory.step(&key(), &desired, Some(&live), now);
        assert!(matches!(step, Step::Leave { conflict: true, .. }));
        assert!(why(&step).1.contains("belongs to field manager them"), "{step:?}");
        assert_eq!(memory.next(now), None, "the cache tells when that changes");
    }

    #[test]
    fn what_is_gone_is_forgotten() {
        let (mut memory, desired, now) = (Memory::new(), wanted("x"), Instant::now());
        memory.not_written(&key(), desired.digest(), &failure(), now, 0.0);
        memory.retain(&BTreeSet::new(), |_| true);
        assert!(memory.waits(&key(), now), "an object that could not be deleted is still there");
        memory.retain(&BTreeSet::new(), |_| false);
        assert_eq!((memory.waits(&key(), now), memory.next(now)), (false, None));
    }
}
