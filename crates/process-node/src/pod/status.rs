//! A Pod's status from what its containers do: kubelet's rules on phase, conditions and reasons. Pure.

use std::net::Ipv4Addr;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
    HostIP, Pod, PodCondition, PodIP, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;

use super::plan::RestartPolicy;
use super::unit::{Ended, Role, State, Unit};

/// How long `ErrImagePull` is shown before it becomes `ImagePullBackOff`.
pub(crate) const ERROR_SHOWN: Duration = Duration::from_secs(1);

/// Everything that a status follows from.
pub(crate) struct View<'a> {
    /// The Pod as the API server has it.
    pub(crate) pod: &'a Pod,
    /// Its containers.
    pub(crate) units: &'a [Unit],
    /// Its address, once it has one.
    pub(crate) pod_ip: Option<Ipv4Addr>,
    /// The node's address.
    pub(crate) host_ip: Ipv4Addr,
    /// When the node first saw it.
    pub(crate) start_time: Timestamp,
    /// Whether its network and volumes are there.
    pub(crate) is_set_up: bool,
    /// Its end, if it has come.
    pub(crate) end: Option<&'a End>,
    /// The conditions of the status before, for their transition times.
    pub(crate) previous: &'a [PodCondition],
    /// The present.
    pub(crate) now: Timestamp,
}

/// How a pod as a whole ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct End {
    /// `Succeeded` or else `Failed`.
    pub(crate) succeeded: bool,
    /// `status.reason`, such as `DeadlineExceeded`.
    pub(crate) reason: Option<&'static str>,
    /// `status.message`.
    pub(crate) message: Option<&'static str>,
}

impl View<'_> {
    /// The status. Only fields that are the node's are set.
    pub(crate) fn status(&self) -> PodStatus {
        let address = |ip: Ipv4Addr| ip.to_string();
        let of = |main: bool| -> Vec<ContainerStatus> {
            let units = self.units.iter().filter(|unit| (unit.role == Role::Main) == main);
            units.map(|unit| self.container(unit)).collect()
        };
        let init = of(false);
        PodStatus {
            phase: Some(self.phase().to_owned()),
            conditions: Some(self.conditions()),
            container_statuses: Some(of(true)),
            init_container_statuses: (!init.is_empty()).then_some(init),
            host_ip: Some(address(self.host_ip)),
            host_ips: Some(vec![HostIP { ip: address(self.host_ip) }]),
            pod_ip: self.pod_ip.map(address),
            pod_ips: self.pod_ip.map(|ip| vec![PodIP { ip: address(ip) }]),
            start_time: Some(Time(self.start_time)),
            reason: self.end.and_then(|end| end.reason).map(str::to_owned),
            message: self.end.and_then(|end| end.message).map(str::to_owned),
            observed_generation: self.pod.metadata.generation,
            ..PodStatus::default()
        }
    }

    fn policy(&self) -> RestartPolicy {
        RestartPolicy::parse(self.pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()))
    }

    fn phase(&self) -> &'static str {
        match self.end {
            Some(End { succeeded: true, .. }) => return "Succeeded",
            Some(End { succeeded: false, .. }) => return "Failed",
            None => {}
        }
        let main = || self.units.iter().filter(|unit| unit.role == Role::Main);
        // A container that waits for its restart counts as having run.
        if main().all(Unit::has_started) && main().next().is_some() { "Running" } else { "Pending" }
    }

    /// Whether init containers have done their part, and restartable ones have started.
    fn incomplete_init(&self) -> Vec<&str> {
        let begun = self.units.iter().any(|unit| unit.role == Role::Main && unit.has_started());
        let is_incomplete = |unit: &&Unit| match unit.role {
            Role::Main => false,
            Role::Init => unit.ended().is_none_or(|ended| ended.code != 0),
            Role::Sidecar => !(begun || unit.is_running() && unit.started),
        };
        self.units.iter().filter(is_incomplete).map(|unit| unit.name.as_str()).collect()
    }

    fn conditions(&self) -> Vec<PodCondition> {
        let waiting_init = self.incomplete_init();
        let unready: Vec<_> = self
            .units
            .iter()
            .filter(|unit| unit.role != Role::Init && !unit.ready)
            .map(|unit| unit.name.as_str())
            .collect();
        let over = match self.end {
            Some(End { succeeded: true, .. }) => Some("PodCompleted"),
            Some(End { succeeded: false, .. }) => Some("PodFailed"),
            None => None,
        };
        let containers_ready = match over {
            Some(reason) => Verdict::no(reason, String::new()),
            None if unready.is_empty() => Verdict::YES,
            None => Verdict::no("ContainersNotReady", list("containers with unready status", &unready)),
        };
        let initialized = match (over, waiting_init.is_empty()) {
            (Some("PodCompleted"), _) => {
                Verdict { is_true: true, reason: Some("PodCompleted"), message: String::new() }
            }
            (_, true) => Verdict::YES,
            (_, false) => Verdict::no(
                "ContainersNotInitialized",
                list("containers with incomplete status", &waiting_init),
            ),
        };
        let ready = match (containers_ready.is_true, self.closed_gates()) {
            (true, gates) if gates.is_empty() => Verdict::YES,
            (true, gates) => Verdict::no("ReadinessGatesNotReady", gates.join("; ")),
            (false, _) => containers_ready.clone(),
        };
        let set_up = Verdict { is_true: self.is_set_up, reason: None, message: String::new() };
        [
            ("PodReadyToStartContainers", set_up),
            ("Initialized", initialized),
            ("Ready", ready),
            ("ContainersReady", containers_ready),
        ]
        .into_iter()
        .map(|(kind, verdict)| self.condition(kind, verdict))
        .collect()
    }

    /// Readiness gates that nobody has opened yet.
    fn closed_gates(&self) -> Vec<String> {
        let gates = self.pod.spec.iter().flat_map(|spec| spec.readiness_gates.iter().flatten());
        let conditions = self.pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let conditions: Vec<_> = conditions.collect();
        gates
            .filter_map(|gate| {
                let kind = &gate.condition_type;
                match conditions.iter().find(|condition| condition.type_ == *kind) {
                    None => Some(format!(
                        "corresponding condition of pod readiness gate {kind:?} does not exist."
                    )),
                    Some(condition) if condition.status != "True" => Some(format!(
                        "the status of pod readiness gate {kind:?} is not \"True\", but {}",
                        condition.status
                    )),
                    Some(_) => None,
                }
            })
            .collect()
    }

    fn condition(&self, kind: &str, verdict: Verdict) -> PodCondition {
        let status = if verdict.is_true { "True" } else { "False" };
        let before = self.previous.iter().find(|before| before.type_ == kind && before.status == status);
        PodCondition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: verdict.reason.map(str::to_owned),
            message: Some(verdict.message).filter(|message| !message.is_empty()),
            last_transition_time: before
                .and_then(|before| before.last_transition_time.clone())
                .or(Some(Time(self.now))),
            observed_generation: self.pod.metadata.generation,
            ..PodCondition::default()
        }
    }

    fn container(&self, unit: &Unit) -> ContainerStatus {
        let (state, last) = self.states(unit);
        ContainerStatus {
            name: unit.name.clone(),
            image: unit.image.clone(),
            image_id: unit.image_id.clone(),
            container_id: unit.container_id.clone(),
            restart_count: unit.restarts,
            ready: unit.ready,
            started: Some(unit.started),
            state: Some(state),
            last_state: last.map(|ended| ContainerState {
                terminated: Some(terminated(ended)),
                ..ContainerState::default()
            }),
            ..ContainerStatus::default()
        }
    }

    /// The state of a container and the one before it.
    fn states<'a>(&self, unit: &'a Unit) -> (ContainerState, Option<&'a Ended>) {
        let waiting = |reason: &str, message: Option<String>| ContainerState {
            waiting: Some(ContainerStateWaiting { reason: Some(reason.to_owned()), message }),
            ..ContainerState::default()
        };
        match &unit.state {
            State::Waiting => {
                let has_init = self.units.iter().any(|unit| unit.role != Role::Main);
                let is_first = unit.role == Role::Main && self.incomplete_init().is_empty();
                let reason = if has_init && !is_first { "PodInitializing" } else { "ContainerCreating" };
                (waiting(reason, None), unit.last.as_ref())
            }
            State::Failed(failed) => {
                let backs_off = failed.reason == "ErrImagePull" && self.now >= failed.at + ERROR_SHOWN;
                let state = if backs_off {
                    let message =
                        format!("Back-off pulling image {:?}: ErrImagePull: {}", unit.image, failed.message);
                    waiting("ImagePullBackOff", Some(message))
                } else {
                    waiting(failed.reason, Some(failed.message.clone()))
                };
                (state, unit.last.as_ref())
            }
            State::Running { since } => {
                let running = ContainerStateRunning { started_at: Some(Time(*since)) };
                (ContainerState { running: Some(running), ..ContainerState::default() }, unit.last.as_ref())
            }
            State::Ended(ended) if self.is_held_back(unit, ended) => {
                let pod = format!(
                    "{}_{}({})",
                    self.pod.name_any(),
                    self.pod.namespace().unwrap_or_default(),
                    self.pod.uid().unwrap_or_default()
                );
                let message = format!(
                    "back-off {} restarting failed container={} pod={pod}",
                    go_duration(unit.crashes.delay()),
                    unit.name
                );
                (waiting("CrashLoopBackOff", Some(message)), Some(ended))
            }
            State::Ended(ended) => {
                let state =
                    ContainerState { terminated: Some(terminated(ended)), ..ContainerState::default() };
                (state, unit.last.as_ref())
            }
        }
    }

    /// Whether a container waits out its back-off.
    fn is_held_back(&self, unit: &Unit, ended: &Ended) -> bool {
        let restarts = match unit.role {
            Role::Sidecar => true,
            Role::Main => self.policy().restarts(ended.code),
            Role::Init => ended.code != 0 && self.policy() != RestartPolicy::Never,
        };
        let going = self.end.is_some() || self.pod.metadata.deletion_timestamp.is_some();
        restarts && !going && self.now < unit.may_start_at()
    }
}

#[derive(Clone)]
struct Verdict {
    is_true: bool,
    reason: Option<&'static str>,
    message: String,
}

impl Verdict {
    const YES: Self = Self { is_true: true, reason: None, message: String::new() };

    fn no(reason: &'static str, message: String) -> Self {
        Self { is_true: false, reason: Some(reason), message }
    }
}

fn list(what: &str, names: &[&str]) -> String {
    format!("{what}: [{}]", names.join(" "))
}

fn terminated(ended: &Ended) -> ContainerStateTerminated {
    ContainerStateTerminated {
        exit_code: ended.code,
        reason: Some(ended.reason.to_owned()),
        message: ended.message.clone(),
        started_at: Some(Time(ended.started)),
        finished_at: Some(Time(ended.finished)),
        container_id: ended.container_id.clone(),
        ..ContainerStateTerminated::default()
    }
}

/// A delay as kubelet's messages spell it: `10s`, `1m20s`, `5m0s`.
fn go_duration(delay: Duration) -> String {
    match (delay.as_secs() / 60, delay.as_secs() % 60, delay.subsec_millis()) {
        (0, 0, millis) => format!("{millis}ms"),
        (0, seconds, _) => format!("{seconds}s"),
        (minutes, seconds, _) => format!("{minutes}m{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::plan::tests::{end, example, now, start};
    use super::*;

    struct Case {
        pod: Value,
        units: Vec<Unit>,
        set_up: bool,
        end: Option<End>,
        previous: Vec<PodCondition>,
        now: Timestamp,
    }

    impl Case {
        fn new(roles: &str) -> Self {
            let pod =
                json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": {"containers": []}});
            Self { pod, units: example(roles), set_up: true, end: None, previous: Vec::new(), now: now() }
        }

        fn status(&self) -> Value {
            let pod: Pod = serde_json::from_value(self.pod.clone()).unwrap();
            let view = View {
                pod: &pod,
                units: &self.units,
                pod_ip: self.set_up.then_some(Ipv4Addr::new(10, 244, 0, 2)),
                host_ip: Ipv4Addr::new(10, 244, 0, 1),
                start_time: now(),
                is_set_up: self.set_up,
                end: self.end.as_ref(),
                previous: &self.previous,
                now: self.now,
            };
            serde_json::to_value(view.status()).unwrap()
        }
    }

    /// Conditions as `Type=Status/Reason`, joined.
    fn conditions(status: &Value) -> String {
        let text = |condition: &Value| {
            let reason = condition["reason"].as_str().map(|reason| format!("/{reason}")).unwrap_or_default();
            let (kind, status) = (condition["type"].as_str().unwrap(), condition["status"].as_str().unwrap());
            format!("{kind}={status}{reason}")
        };
        status["conditions"].as_array().unwrap().iter().map(text).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_pod_from_its_creation_to_ready() {
        let mut case = Case::new("im");
        case.set_up = false;
        let status = case.status();
        assert_eq!(status["phase"], "Pending");
        assert_eq!(
            conditions(&status),
            "PodReadyToStartContainers=False Initialized=False/ContainersNotInitialized \
             Ready=False/ContainersNotReady ContainersReady=False/ContainersNotReady"
        );
        assert_eq!(status["containerStatuses"][0]["state"]["waiting"]["reason"], "PodInitializing");

        case.set_up = true;
        start(&mut case.units[0]);
        end(&mut case.units[0], 0);
        start(&mut case.units[1]);
        let status = case.status();
        assert_eq!((&status["phase"], &status["podIP"]), (&json!("Running"), &json!("10.244.0.2")));
        assert_eq!(
            conditions(&status),
            "PodReadyToStartContainers=True Initialized=True Ready=True ContainersReady=True"
        );
        assert_eq!(status["initContainerStatuses"][0]["state"]["terminated"]["reason"], "Completed");
        assert_eq!(status["initContainerStatuses"][0]["ready"], true);
    }

    #[test]
    fn crash_loops_and_image_errors_are_told_apart() {
        let mut case = Case::new("mm");
        for _ in 0..2 {
            start(&mut case.units[0]);
            end(&mut case.units[0], 7);
        }
        case.units[1].fail(now(), "ErrImagePull", "no rule".to_owned(), None);
        let state = |status: &Value, at: usize| status["containerStatuses"][at]["state"].clone();
        let status = case.status();
        assert_eq!(state(&status, 0)["waiting"]["reason"], "CrashLoopBackOff");
        let message = state(&status, 0)["waiting"]["message"].clone();
        assert_eq!(message, "back-off 10s restarting failed container=m0 pod=p_ns(u)");
        assert_eq!(status["containerStatuses"][0]["lastState"]["terminated"]["exitCode"], 7);
        assert_eq!(status["containerStatuses"][0]["restartCount"], 1);
        assert_eq!(state(&status, 1)["waiting"]["reason"], "ErrImagePull");
        assert_eq!(status["phase"], "Pending");
        case.now += ERROR_SHOWN;
        assert_eq!(state(&case.status(), 1)["waiting"]["reason"], "ImagePullBackOff");
        case.now += Duration::from_secs(20);
        assert_eq!(state(&case.status(), 0)["terminated"]["reason"], "Error");
    }

    #[test]
    fn ended_pods_say_how() {
        let mut case = Case::new("m");
        start(&mut case.units[0]);
        end(&mut case.units[0], 0);
        case.end = Some(End { succeeded: true, reason: None, message: None });
        let status = case.status();
        assert_eq!(status["phase"], "Succeeded");
        assert!(conditions(&status).contains("Initialized=True/PodCompleted Ready=False/PodCompleted"));
        case.end =
            Some(End { succeeded: false, reason: Some("DeadlineExceeded"), message: Some("too long") });
        let status = case.status();
        assert_eq!((&status["phase"], &status["reason"]), (&json!("Failed"), &json!("DeadlineExceeded")));
        assert!(conditions(&status).contains("Ready=False/PodFailed"));
    }

    #[test]
    fn readiness_gates_are_honoured() {
        let mut case = Case::new("m");
        start(&mut case.units[0]);
        case.pod["spec"]["readinessGates"] = json!([{"conditionType": "example.com/open"}]);
        assert!(
            conditions(&case.status()).contains("Ready=False/ReadinessGatesNotReady ContainersReady=True")
        );
        case.pod["status"]["conditions"] = json!([{"type": "example.com/open", "status": "True"}]);
        assert!(conditions(&case.status()).contains("Ready=True ContainersReady=True"));
    }

    #[test]
    fn transition_times_move_only_with_the_status() {
        let mut case = Case::new("m");
        let previous = case.status()["conditions"].clone();
        case.previous = serde_json::from_value(previous).unwrap();
        case.now += Duration::from_mins(1);
        start(&mut case.units[0]);
        let status = case.status();
        let time = |kind: &str| {
            let conditions = status["conditions"].as_array().unwrap();
            let found = conditions.iter().find(|condition| condition["type"] == kind).unwrap();
            found["lastTransitionTime"].as_str().unwrap().parse::<Timestamp>().unwrap()
        };
        assert_eq!(time("Initialized"), now());
        assert_eq!(time("Ready"), now() + Duration::from_mins(1));
    }

    #[test]
    fn delays_are_spelled_as_go_does() {
        for (seconds, expected) in [(10, "10s"), (80, "1m20s"), (300, "5m0s")] {
            assert_eq!(go_duration(Duration::from_secs(seconds)), expected);
        }
        assert_eq!(go_duration(Duration::from_millis(200)), "200ms");
    }
}
