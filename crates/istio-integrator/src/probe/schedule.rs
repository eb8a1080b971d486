//! Whom to ask when: pure, the time given.

use std::{collections::BTreeMap, time::Duration};

use operator_kit::backoff::Backoff;
use tokio::time::Instant;

use super::{Expected, Outcome, Proof, Target};

/// Between two questions to one target while it does not answer as expected.
const RETRY: Backoff = Backoff { base: Duration::from_millis(200), cap: Duration::from_secs(30) };
/// When what was proved is asked again, since a pod may have lost it.
const AGAIN: Duration = Duration::from_mins(10);

#[derive(Debug)]
struct Entry {
    expected: Expected,
    proof: Proof,
    failures: u32,
    /// When it is to be asked; nothing while it is being asked.
    due: Option<Instant>,
}

/// All targets.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    entries: BTreeMap<Target, Entry>,
}

impl Schedule {
    /// Sets what is wanted; whether there is something new to ask.
    pub(super) fn want(&mut self, wanted: BTreeMap<Target, Expected>, now: Instant) -> bool {
        self.entries.retain(|target, _| wanted.contains_key(target));
        let mut new = false;
        for (target, expected) in wanted {
            match self.entries.get_mut(&target) {
                Some(entry) if entry.expected == expected => {}
                Some(entry) => {
                    let due = entry.due.map(|_| now);
                    *entry = Entry { expected, proof: pending(now), failures: 0, due };
                    new = true;
                }
                None => {
                    self.entries
                        .insert(target, Entry { expected, proof: pending(now), failures: 0, due: Some(now) });
                    new = true;
                }
            }
        }
        new
    }

    /// What is known of a target.
    pub(super) fn proof(&self, target: &Target) -> Option<Proof> {
        self.entries.get(target).map(|entry| entry.proof.clone())
    }

    /// Takes at most `free` targets that are due, the longest due first, and tells when the next will be.
    pub(super) fn take_due(
        &mut self,
        now: Instant,
        free: usize,
    ) -> (Vec<(Target, Expected)>, Option<Instant>) {
        if free == 0 {
            // An answer comes first.
            return (Vec::new(), None);
        }
        let mut due: Vec<(Instant, Target)> = self
            .entries
            .iter()
            .filter_map(|(target, entry)| Some((entry.due.filter(|due| *due <= now)?, target.clone())))
            .collect();
        due.sort();
        due.truncate(free);
        let mut taken = Vec::with_capacity(due.len());
        for (_, target) in due {
            if let Some(entry) = self.entries.get_mut(&target) {
                entry.due = None;
                taken.push((target, entry.expected.clone()));
            }
        }
        (taken, self.entries.values().filter_map(|entry| entry.due).min())
    }

    /// Notes an answer to a question about `expected`; whether that changes what is known.
    pub(super) fn answered(
        &mut self,
        target: &Target,
        expected: &Expected,
        outcome: Outcome,
        now: Instant,
    ) -> bool {
        let Some(entry) = self.entries.get_mut(target) else { return false };
        if entry.expected != *expected {
            entry.due = Some(now);
            return false;
        }
        if outcome == Outcome::Proved {
            entry.failures = 0;
            // Spread, so that not all are asked at one moment.
            entry.due = Some(now + AGAIN.mul_f64(0.5 + Backoff::jitter() / 2.0));
        } else {
            entry.due = Some(now + RETRY.delay(entry.failures, Backoff::jitter()));
            entry.failures = entry.failures.saturating_add(1);
        }
        let changed = entry.proof.outcome != outcome;
        entry.proof.outcome = outcome;
        changed
    }
}

fn pending(now: Instant) -> Proof {
    Proof { outcome: Outcome::Pending, since: now }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(host: &str) -> Target {
        Target {
            pod: "p".to_owned(),
            address: ([127, 0, 0, 1], 80).into(),
            tls: false,
            host: host.to_owned(),
            path: "/x".to_owned(),
        }
    }

    fn wanted(hosts: &[(&str, &str)]) -> BTreeMap<Target, Expected> {
        hosts.iter().map(|(host, body)| (target(host), Expected::Body((*body).to_owned()))).collect()
    }

    #[test]
    fn what_is_proved_is_left_alone_until_something_else_is_expected() {
        let (mut schedule, start) = (Schedule::default(), Instant::now());
        assert!(schedule.want(wanted(&[("a", "1"), ("b", "1")]), start));
        assert_eq!(schedule.take_due(start, 1).0.len(), 1, "no more than there is room for");
        let (due, next) = schedule.take_due(start, 5);
        assert_eq!((due.len(), next), (1, None));
        let body = Expected::Body("1".to_owned());
        assert!(schedule.answered(&target("a"), &body, Outcome::Proved, start));
        assert!(schedule.answered(&target("b"), &body, Outcome::Different("404".to_owned()), start));
        assert!(!schedule.answered(&target("b"), &body, Outcome::Different("404".to_owned()), start));
        assert!(!schedule.want(wanted(&[("a", "1"), ("b", "1")]), start));
        let later = start + Duration::from_secs(60);
        let (due, _) = schedule.take_due(later, 5);
        assert_eq!(due, [(target("b"), body.clone())]);
        // Something else is expected of the one, while the other is being asked for what is no longer.
        assert!(schedule.want(wanted(&[("a", "2"), ("b", "2")]), later));
        assert_eq!(schedule.proof(&target("a")).unwrap().outcome, Outcome::Pending);
        assert_eq!(schedule.take_due(later, 5).0.len(), 1);
        assert!(!schedule.answered(&target("b"), &body, Outcome::Proved, later), "that is no proof any more");
        assert_eq!(schedule.take_due(later, 5).0, [(target("b"), Expected::Body("2".to_owned()))]);
        schedule.want(BTreeMap::new(), later);
        assert_eq!(schedule.proof(&target("a")), None);
        assert!(!schedule.answered(&target("a"), &body, Outcome::Proved, later));
    }

    #[test]
    fn what_fails_is_asked_ever_less_often_and_what_was_proved_again_after_minutes() {
        let (mut schedule, start) = (Schedule::default(), Instant::now());
        schedule.want(wanted(&[("a", "1")]), start);
        let body = Expected::Body("1".to_owned());
        let mut now = start;
        for _ in 0..12 {
            assert_eq!(schedule.take_due(now, 5).0.len(), 1);
            schedule.answered(&target("a"), &body, Outcome::Unreachable("refused".to_owned()), now);
            now = schedule.take_due(now, 5).1.unwrap();
        }
        assert!(now - start > Duration::from_secs(60), "{:?}", now - start);
        schedule.take_due(now, 5);
        schedule.answered(&target("a"), &body, Outcome::Proved, now);
        let again = schedule.take_due(now, 5).1.unwrap() - now;
        assert!(again >= AGAIN / 2 && again <= AGAIN, "{again:?}");
    }
}
