//! How long to leave an object alone.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, Hash, RandomState},
    time::Duration,
};
use tokio::time::Instant;

/// Delays that double, with jitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The first delay.
    pub base: Duration,
    /// The longest delay.
    pub cap: Duration,
}

impl Backoff {
    /// The delay after `failures` earlier ones: `base` doubled that many times, `cap` at most, less up to a quarter
    /// by `jitter` (0 to 1), so that what failed together is not tried again together.
    pub fn delay(self, failures: u32, jitter: f64) -> Duration {
        let doubled = 1_u32.checked_shl(failures).and_then(|factor| self.base.checked_mul(factor));
        let delay = doubled.unwrap_or(self.cap).min(self.cap);
        delay.mul_f64(1.0 - 0.25 * jitter.clamp(0.0, 1.0))
    }

    /// A random number from 0 to 1.
    pub fn jitter() -> f64 {
        // Each RandomState has keys of its own; good enough to spread retries, and no other use is made of it.
        let random = RandomState::new().hash_one(());
        let fraction = u32::try_from(random >> 32).unwrap_or_default();
        f64::from(fraction) / f64::from(u32::MAX)
    }
}

#[derive(Clone, Copy, Debug)]
struct Wait {
    failures: u32,
    until: Instant,
    delay: Duration,
}

/// The back-off of each object that failed lately.
#[derive(Debug)]
pub struct ObjectBackoff<K> {
    backoff: Backoff,
    waits: HashMap<K, Wait>,
}

impl<K: Eq + Hash> ObjectBackoff<K> {
    /// Nothing waits.
    pub fn new(backoff: Backoff) -> Self {
        Self { backoff, waits: HashMap::new() }
    }

    /// Until when the object is to be left alone, if it is.
    pub fn waits(&self, key: &K, now: Instant) -> Option<Instant> {
        self.waits.get(key).map(|wait| wait.until).filter(|until| *until > now)
    }

    /// Notes a failure; returns how long to wait. An object that has been quiet for as long again as it had to wait
    /// begins anew.
    pub fn failed(&mut self, key: K, now: Instant, jitter: f64) -> Duration {
        let wait = self.waits.entry(key).or_insert(Wait { failures: 0, until: now, delay: Duration::ZERO });
        if now > wait.until + wait.delay {
            wait.failures = 0;
        }
        wait.delay = self.backoff.delay(wait.failures, jitter);
        wait.failures = wait.failures.saturating_add(1);
        wait.until = now + wait.delay;
        wait.delay
    }

    /// Notes a success: the next failure begins anew.
    pub fn succeeded(&mut self, key: &K) {
        self.waits.remove(key);
    }

    /// Forgets objects that are not wanted any more.
    pub fn retain(&mut self, wanted: impl Fn(&K) -> bool) {
        self.waits.retain(|key, _| wanted(key));
    }

    /// When the next object may be tried again.
    pub fn next(&self, now: Instant) -> Option<Instant> {
        self.waits.values().map(|wait| wait.until).filter(|until| *until > now).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const STEPS: Backoff = Backoff { base: SECOND, cap: Duration::from_secs(10) };

    #[test]
    fn delays_double_up_to_the_cap() {
        let delays: Vec<u64> = (0..6).map(|failures| STEPS.delay(failures, 0.0).as_secs()).collect();
        assert_eq!(delays, [1, 2, 4, 8, 10, 10]);
        assert_eq!(STEPS.delay(u32::MAX, 0.0), STEPS.cap);
        assert_eq!(STEPS.delay(2, 1.0), Duration::from_secs(3));
        assert!((0.0..=1.0).contains(&Backoff::jitter()));
    }

    #[tokio::test(start_paused = true)]
    async fn objects_wait_for_themselves() {
        let mut backoff = ObjectBackoff::new(STEPS);
        let start = Instant::now();
        assert_eq!(backoff.failed("a", start, 0.0), SECOND);
        assert_eq!(backoff.failed("a", start + SECOND, 0.0), SECOND * 2);
        assert_eq!(backoff.waits(&"a", start + SECOND * 2), Some(start + SECOND * 3));
        assert_eq!(backoff.waits(&"a", start + SECOND * 3), None);
        assert_eq!(backoff.waits(&"b", start), None);
        assert_eq!(backoff.next(start), Some(start + SECOND * 3));
        backoff.succeeded(&"a");
        assert_eq!(backoff.failed("a", start, 0.0), SECOND);
        backoff.retain(|key| *key != "a");
        assert_eq!(backoff.next(start), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_quiet_object_begins_anew() {
        let mut backoff = ObjectBackoff::new(STEPS);
        let start = Instant::now();
        backoff.failed("a", start, 0.0);
        backoff.failed("a", start, 0.0);
        assert_eq!(backoff.failed("a", start + SECOND * 5, 0.0), SECOND);
    }
}
