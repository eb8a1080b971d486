//! From single checks to a verdict. Pure.

use k8s_openapi::api::core::v1::Probe;

use super::Kind;

/// Counts agreeing checks, as kubelet does.
#[derive(Debug)]
pub(super) struct Tally {
    success_threshold: u32,
    failure_threshold: u32,
    verdict: Option<bool>,
    last: Option<bool>,
    run: u32,
    has_succeeded: bool,
}

impl Tally {
    /// An empty tally. Liveness is taken for granted, readiness is not, and a start is unknown.
    pub(super) fn new(kind: Kind, probe: &Probe) -> Self {
        let threshold = |value: Option<i32>, default| {
            value.and_then(|value| u32::try_from(value).ok()).filter(|value| *value > 0).unwrap_or(default)
        };
        Self {
            success_threshold: threshold(probe.success_threshold, 1),
            failure_threshold: threshold(probe.failure_threshold, 3),
            verdict: match kind {
                Kind::Startup => None,
                Kind::Liveness => Some(true),
                Kind::Readiness => Some(false),
            },
            last: None,
            run: 0,
            has_succeeded: false,
        }
    }

    /// Whether any check has succeeded.
    pub(super) fn has_succeeded(&self) -> bool {
        self.has_succeeded
    }

    /// Counts a check; a verdict is returned when it changes.
    pub(super) fn record(&mut self, succeeded: bool) -> Option<bool> {
        self.has_succeeded |= succeeded;
        self.run = if self.last == Some(succeeded) { self.run.saturating_add(1) } else { 1 };
        self.last = Some(succeeded);
        let threshold = if succeeded { self.success_threshold } else { self.failure_threshold };
        if self.run < threshold || self.verdict == Some(succeeded) {
            return None;
        }
        self.verdict = Some(succeeded);
        self.verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdicts(kind: Kind, success: i32, failure: i32, checks: &str) -> String {
        let probe =
            Probe { success_threshold: Some(success), failure_threshold: Some(failure), ..Probe::default() };
        let mut tally = Tally::new(kind, &probe);
        checks
            .chars()
            .map(|check| match tally.record(check == '+') {
                Some(true) => 'Y',
                Some(false) => 'N',
                None => '.',
            })
            .collect()
    }

    #[test]
    fn thresholds_count_checks_in_a_row() {
        for (kind, success, failure, checks, expected) in [
            (Kind::Readiness, 1, 3, "--+--+---+", "..Y.....NY"),
            (Kind::Readiness, 2, 1, "+-++-", "...YN"),
            (Kind::Liveness, 1, 2, "++-+--", ".....N"),
            (Kind::Startup, 1, 3, "---", "..N"),
            (Kind::Startup, 1, 3, "--+", "..Y"),
        ] {
            assert_eq!(verdicts(kind, success, failure, checks), expected, "{kind:?} {checks}");
        }
    }
}
