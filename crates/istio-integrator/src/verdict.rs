//! From verdicts, and from what became of the writes, to statuses: pure.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use mesh_api::{
    ConditionType, Reason,
    integrator::{AuthProviderStatus, GatewayBindingStatus, IngressRequestStatus},
};
use operator_kit::{cache::Key, status};
use routes::{BindingVerdict, Finding, ProviderVerdict, RequestVerdict, Status};

use crate::apply::Results;

/// The status of a request.
///
/// `Ready` holds if the request is accepted, what it names exists, its `VirtualServices` are in place in the API server,
/// and the gateway's pods hold them, as far as they could be asked, and check its logins.
pub(crate) fn of_request(
    verdict: &RequestVerdict,
    stored: &IngressRequestStatus,
    results: &Results,
    programmed: &Finding,
    namespace: &str,
    now: Timestamp,
) -> IngressRequestStatus {
    let unwritten = verdict.virtual_services.iter().find_map(|name| {
        let key = Key { namespace: namespace.to_owned(), name: name.clone() };
        match results.get(&key) {
            Some(Ok(())) => None,
            Some(Err(unwritten)) => Some(Finding {
                status: Status::False,
                reason: unwritten.reason,
                message: unwritten.message.clone(),
            }),
            None => Some(Finding {
                status: Status::False,
                reason: Reason::Pending,
                message: format!("VirtualService {key} is not written yet"),
            }),
        }
    });
    // What is not written cannot be in the gateway.
    let programmed = unwritten.as_ref().unwrap_or(programmed);
    // Where pods cannot be asked, Ready says so instead of waiting for an answer that never comes.
    let hinders = programmed.status == Status::False || programmed.reason == Reason::ProbePending;
    let ready = if verdict.ready.holds() && (hinders || unwritten.is_some()) {
        Finding { status: Status::False, ..programmed.clone() }
    } else if verdict.ready.holds() && !programmed.holds() {
        Finding { status: Status::True, reason: Reason::Ready, message: programmed.message.clone() }
    } else {
        verdict.ready.clone()
    };
    let wanted = [
        (ConditionType::Accepted, &verdict.accepted),
        (ConditionType::ResolvedRefs, &verdict.resolved_refs),
        (ConditionType::AuthInForce, &verdict.auth_in_force),
        (ConditionType::Programmed, programmed),
        (ConditionType::Ready, &ready),
    ];
    let wanted = wanted.map(|(type_, finding)| of_finding(type_, finding, verdict.generation));
    IngressRequestStatus {
        observed_generation: verdict.generation,
        conditions: merge(&stored.conditions, wanted, now),
        binding: verdict.binding.clone(),
        auth: verdict.auth.clone(),
        urls: verdict.urls.clone(),
        routes: verdict.routes.clone(),
    }
}

/// The status of a provider.
pub(crate) fn of_provider(
    verdict: &ProviderVerdict,
    stored: &AuthProviderStatus,
    now: Timestamp,
) -> AuthProviderStatus {
    let conditions = verdict.conditions();
    let wanted =
        conditions.into_iter().map(|(type_, finding)| of_finding(type_, finding, verdict.generation));
    AuthProviderStatus {
        observed_generation: verdict.generation,
        conditions: merge(&stored.conditions, wanted, now),
        routes: Some(verdict.routes),
    }
}

/// The status of a binding.
pub(crate) fn of_binding(
    verdict: &BindingVerdict,
    stored: &GatewayBindingStatus,
    now: Timestamp,
) -> GatewayBindingStatus {
    let conditions = verdict.conditions();
    let wanted =
        conditions.into_iter().map(|(type_, finding)| of_finding(type_, finding, verdict.generation));
    GatewayBindingStatus {
        observed_generation: verdict.generation,
        conditions: merge(&stored.conditions, wanted, now),
        gateway: verdict.gateway.clone(),
        serves: Some(verdict.serves),
    }
}

/// The conditions of an object that does not have the form of its kind.
pub(crate) fn undecodable(
    error: &str,
    stored: &[Condition],
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    let message = format!(
        "the object does not have the form of its kind and is skipped: {error}; correct it, or apply the CRDs of \
         istio-integrator {}",
        env!("CARGO_PKG_VERSION")
    );
    let wanted = [ConditionType::Accepted, ConditionType::Ready]
        .map(|type_| condition(type_, Status::False, Reason::Undecodable, message.clone(), generation));
    merge(stored, wanted, now)
}

fn merge(
    stored: &[Condition],
    wanted: impl IntoIterator<Item = Condition>,
    now: Timestamp,
) -> Vec<Condition> {
    let owned = ConditionType::ALL.map(ConditionType::as_str);
    status::conditions(stored, wanted, &owned, now)
}

fn of_finding(type_: ConditionType, finding: &Finding, generation: Option<i64>) -> Condition {
    condition(type_, finding.status, finding.reason, finding.message.clone(), generation)
}

fn condition(
    type_: ConditionType,
    status: Status,
    reason: Reason,
    message: String,
    generation: Option<i64>,
) -> Condition {
    Condition {
        type_: type_.to_string(),
        status: status.as_str().to_owned(),
        reason: reason.to_string(),
        message,
        observed_generation: generation,
        // Replaced when merged with what is stored.
        last_transition_time: Time(Timestamp::UNIX_EPOCH),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::Unwritten;
    use routes::ObjectKey;

    fn finding(reason: Reason, status: Status) -> Finding {
        Finding { status, reason, message: format!("because {reason}") }
    }

    fn verdict(ready: Finding) -> RequestVerdict {
        RequestVerdict {
            key: ObjectKey::new("shop", "web"),
            generation: Some(2),
            accepted: finding(Reason::Accepted, Status::True),
            resolved_refs: finding(Reason::ResolvedRefs, Status::True),
            auth_in_force: finding(Reason::NoAuth, Status::True),
            ready,
            auth: Some("None".to_owned()),
            binding: Some("public".to_owned()),
            urls: vec!["http://web.example.com".to_owned()],
            routes: Vec::new(),
            virtual_services: vec!["a".to_owned(), "b".to_owned()],
        }
    }

    fn programmed() -> Finding {
        finding(Reason::Programmed, Status::True)
    }

    fn results(of_b: Option<Result<(), Unwritten>>) -> Results {
        let key = |name: &str| Key { namespace: "ii".to_owned(), name: name.to_owned() };
        let mut results = Results::from([(key("a"), Ok(()))]);
        results.extend(of_b.map(|result| (key("b"), result)));
        results
    }

    fn ready_of(verdict: &RequestVerdict, results: &Results) -> (String, String, String) {
        let now = Timestamp::from_second(50).unwrap();
        let status = of_request(verdict, &IngressRequestStatus::default(), results, &programmed(), "ii", now);
        let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready").unwrap();
        assert_eq!((ready.observed_generation, ready.last_transition_time.0), (Some(2), now));
        (ready.status.clone(), ready.reason.clone(), ready.message.clone())
    }

    #[test]
    fn ready_needs_every_object_in_place() {
        let good = verdict(finding(Reason::Ready, Status::True));
        let own = |status: &str, reason: &str, message: &str| {
            (status.to_owned(), reason.to_owned(), message.to_owned())
        };
        assert_eq!(ready_of(&good, &results(Some(Ok(())))), own("True", "Ready", "because Ready"));
        assert_eq!(
            ready_of(&good, &results(None)),
            own("False", "Pending", "VirtualService ii/b is not written yet")
        );
        let unwritten = Unwritten { reason: Reason::ObjectConflict, message: "taken".to_owned() };
        assert_eq!(
            ready_of(&good, &results(Some(Err(unwritten.clone())))),
            own("False", "ObjectConflict", "taken")
        );
        // What was wrong before the write is the first thing to be told.
        let bad = verdict(finding(Reason::HostConflict, Status::False));
        assert_eq!(
            ready_of(&bad, &results(Some(Err(unwritten)))),
            own("False", "HostConflict", "because HostConflict")
        );
    }

    #[test]
    fn ready_waits_for_the_gateway_and_says_when_that_cannot_be_asked() {
        let ready = |programmed: &Finding| {
            let good = verdict(finding(Reason::Ready, Status::True));
            let now = Timestamp::from_second(50).unwrap();
            let stored = IngressRequestStatus::default();
            let status = of_request(&good, &stored, &results(Some(Ok(()))), programmed, "ii", now);
            let found = status.conditions.into_iter().find(|condition| condition.type_ == "Ready").unwrap();
            (found.status, found.reason, found.message)
        };
        let text = |status: &str, reason: &str, message: &str| {
            (status.to_owned(), reason.to_owned(), message.to_owned())
        };
        assert_eq!(
            ready(&finding(Reason::ProbePending, Status::Unknown)),
            text("False", "ProbePending", "because ProbePending")
        );
        assert_eq!(
            ready(&finding(Reason::NotProgrammed, Status::False)),
            text("False", "NotProgrammed", "because NotProgrammed")
        );
        assert_eq!(
            ready(&finding(Reason::ProbeImpossible, Status::Unknown)),
            text("True", "Ready", "because ProbeImpossible")
        );
    }

    #[test]
    fn the_same_verdict_is_the_same_status() {
        let good = verdict(finding(Reason::Ready, Status::True));
        let at = |second| Timestamp::from_second(second).unwrap();
        let first = of_request(
            &good,
            &IngressRequestStatus::default(),
            &results(Some(Ok(()))),
            &programmed(),
            "ii",
            at(1),
        );
        let second = of_request(&good, &first, &results(Some(Ok(()))), &programmed(), "ii", at(2));
        assert_eq!(first, second);
        let once = undecodable("odd", &[], Some(1), at(1));
        assert_eq!(undecodable("odd", &once, Some(1), at(2)), once);
        assert!(
            once.iter().all(|condition| condition.reason == "Undecodable" && condition.status == "False")
        );
    }
}
