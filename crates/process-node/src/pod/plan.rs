//! What to do next with a pod's containers: kubelet's rules on order and restarts. Pure.

use jiff::Timestamp;

use super::unit::{Role, State, Unit};

/// `spec.restartPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RestartPolicy {
    /// Whatever the exit code.
    Always,
    /// After an exit code other than 0.
    OnFailure,
    /// Never.
    Never,
}

impl RestartPolicy {
    /// The policy of a Pod; `Always` unless it says otherwise.
    pub(crate) fn parse(text: Option<&str>) -> Self {
        match text {
            Some("Never") => Self::Never,
            Some("OnFailure") => Self::OnFailure,
            _ => Self::Always,
        }
    }

    /// Whether a container that ended with `code` is started again.
    pub(crate) fn restarts(self, code: i32) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => code != 0,
            Self::Never => false,
        }
    }
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Start the container of this index.
    Start(usize),
    /// Nothing before this moment.
    At(Timestamp),
    /// Nothing until something happens.
    Wait,
    /// The pod has run its course: stop what still runs.
    Finish {
        /// Whether it succeeded.
        succeeded: bool,
    },
}

/// Decides on the next step for the containers of a pod, given in the order of their start.
pub(crate) fn next(units: &[Unit], policy: RestartPolicy, now: Timestamp) -> Step {
    let is_initialized = units.iter().any(|unit| unit.role == Role::Main && unit.has_started());
    if !is_initialized && let Some(step) = initialize(units, policy, now) {
        return step;
    }
    let mut main = units.iter().filter(|unit| unit.role == Role::Main);
    let is_over = main.clone().all(|unit| unit.ended().is_some_and(|ended| !policy.restarts(ended.code)));
    if is_over {
        let succeeded = main.all(|unit| unit.ended().is_some_and(|ended| ended.code == 0));
        return Step::Finish { succeeded };
    }
    let due = |(_, unit): &(usize, &Unit)| match (&unit.state, unit.role) {
        (State::Running { .. }, _) | (_, Role::Init) => false,
        (State::Ended(ended), Role::Main) => policy.restarts(ended.code),
        (State::Waiting | State::Failed(_) | State::Ended(_), _) => true,
    };
    let first =
        units.iter().enumerate().filter(due).min_by_key(|(at, unit)| (unit.may_start_at().max(now), *at));
    first.map_or(Step::Wait, |(at, unit)| start(at, unit, now))
}

/// The next step until all init containers have done their part; none then.
fn initialize(units: &[Unit], policy: RestartPolicy, now: Timestamp) -> Option<Step> {
    for (at, unit) in units.iter().enumerate() {
        match (unit.role, &unit.state) {
            (Role::Main, _) => {}
            (Role::Init, State::Ended(ended)) if ended.code == 0 => {}
            (Role::Init, State::Ended(_)) if policy == RestartPolicy::Never => {
                return Some(Step::Finish { succeeded: false });
            }
            (Role::Sidecar, State::Running { .. }) if unit.started => {}
            (_, State::Running { .. }) => return Some(Step::Wait),
            (_, State::Waiting | State::Failed(_) | State::Ended(_)) => return Some(start(at, unit, now)),
        }
    }
    None
}

fn start(at: usize, unit: &Unit, now: Timestamp) -> Step {
    let moment = unit.may_start_at();
    if moment <= now { Step::Start(at) } else { Step::At(moment) }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    use super::super::unit::{Ended, units};
    use super::*;

    /// Units of a pod with containers of the roles given by `i`, `s` and `m`.
    pub(crate) fn example(roles: &str) -> Vec<Unit> {
        let container = |(at, role): (usize, char)| {
            let mut container = json!({"name": format!("{role}{at}"), "image": "x"});
            if role == 's' {
                container["restartPolicy"] = "Always".into();
            }
            container
        };
        let all: Vec<_> = roles.chars().enumerate().collect();
        let of = |main: bool| -> Vec<_> {
            all.iter().copied().filter(|(_, role)| (*role == 'm') == main).map(container).collect()
        };
        let pod = json!({"spec": {"initContainers": of(false), "containers": of(true)}});
        units(&serde_json::from_value::<Pod>(pod).unwrap(), Duration::from_secs(10))
    }

    pub(crate) fn start(unit: &mut Unit) {
        unit.start(now(), "id".to_owned(), "cid".to_owned());
    }

    pub(crate) fn end(unit: &mut Unit, code: i32) {
        let mut ended = Ended::with_code(code, now(), "cid");
        ended.finished = now();
        unit.end(ended);
    }

    pub(crate) fn now() -> Timestamp {
        Timestamp::UNIX_EPOCH + Duration::from_secs(1_000_000)
    }

    fn step(units: &[Unit], policy: RestartPolicy) -> Step {
        next(units, policy, now())
    }

    #[test]
    fn init_containers_run_one_after_another_and_sidecars_stay() {
        let mut units = example("isim");
        let policy = RestartPolicy::Always;
        assert_eq!(step(&units, policy), Step::Start(0));
        start(&mut units[0]);
        assert_eq!(step(&units, policy), Step::Wait);
        end(&mut units[0], 0);
        assert_eq!(step(&units, policy), Step::Start(1));
        units[1].probed.startup = true;
        start(&mut units[1]);
        assert_eq!(step(&units, policy), Step::Wait);
        units[1].started = true;
        assert_eq!(step(&units, policy), Step::Start(2));
        start(&mut units[2]);
        end(&mut units[2], 0);
        assert_eq!(step(&units, policy), Step::Start(3));
        start(&mut units[3]);
        assert_eq!(step(&units, policy), Step::Wait);
        // Later, a sidecar that ends is started again by itself, whatever the policy.
        end(&mut units[1], 0);
        assert_eq!(step(&units, RestartPolicy::Never), Step::Start(1));
    }

    #[test]
    fn a_failing_init_container_is_retried_unless_never() {
        let mut units = example("im");
        start(&mut units[0]);
        end(&mut units[0], 1);
        assert_eq!(step(&units, RestartPolicy::Never), Step::Finish { succeeded: false });
        assert_eq!(step(&units, RestartPolicy::OnFailure), Step::Start(0));
        start(&mut units[0]);
        end(&mut units[0], 1);
        assert_eq!(step(&units, RestartPolicy::Always), Step::At(now() + Duration::from_secs(10)));
    }

    #[test]
    fn policies_decide_on_restarts_and_results() {
        use RestartPolicy::{Always, Never, OnFailure};
        let finish = |succeeded| Step::Finish { succeeded };
        for (codes, policy, expected) in [
            ([Some(0), Some(0)], Always, Step::Start(0)),
            ([Some(0), Some(0)], OnFailure, finish(true)),
            ([Some(0), Some(1)], OnFailure, Step::Start(1)),
            ([Some(0), Some(1)], Never, finish(false)),
            ([Some(0), Some(0)], Never, finish(true)),
            ([Some(0), None], Never, Step::Wait),
            ([None, None], Always, Step::Wait),
        ] {
            let mut units = example("mm");
            for (unit, code) in units.iter_mut().zip(codes) {
                start(unit);
                if let Some(code) = code {
                    end(unit, code);
                }
            }
            assert_eq!(step(&units, policy), expected, "{codes:?} {policy:?}");
        }
    }

    #[test]
    fn one_container_in_back_off_does_not_hold_up_another() {
        let mut units = example("mm");
        for _ in 0..2 {
            start(&mut units[0]);
            end(&mut units[0], 1);
        }
        assert_eq!(step(&units, RestartPolicy::Always), Step::Start(1));
        start(&mut units[1]);
        assert_eq!(step(&units, RestartPolicy::Always), Step::At(now() + Duration::from_secs(10)));
    }

    #[test]
    fn sidecars_do_not_keep_a_pod_from_its_end() {
        let mut units = example("sm");
        start(&mut units[0]);
        start(&mut units[1]);
        end(&mut units[1], 0);
        assert_eq!(step(&units, RestartPolicy::Never), Step::Finish { succeeded: true });
    }
}
