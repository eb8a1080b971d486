//! Tells each request and each binding what became of it.

use std::{collections::BTreeSet, time::Duration};

use futures::{StreamExt as _, stream};
use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::Condition};
use kube::{Resource, core::ApiResource};
use mesh_api::{ConditionType, Reason};
use operator_kit::{
    backoff::{Backoff, ObjectBackoff},
    cache::{Cache, Key},
    notice::{Notice, Notices},
    status::StatusWriter,
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::{
    apply::CONCURRENCY,
    observe::{self, Custom},
};

/// After a failed write of a status.
const FAILURE: Backoff = Backoff { base: Duration::from_secs(1), cap: Duration::from_mins(5) };

/// A status that carries conditions.
pub(crate) trait Conditions {
    /// The conditions.
    fn conditions(&self) -> &[Condition];
}

impl Conditions for mesh_api::integrator::IngressRequestStatus {
    fn conditions(&self) -> &[Condition] {
        &self.conditions
    }
}

impl Conditions for mesh_api::integrator::GatewayBindingStatus {
    fn conditions(&self) -> &[Condition] {
        &self.conditions
    }
}

impl Conditions for mesh_api::integrator::AuthProviderStatus {
    fn conditions(&self) -> &[Condition] {
        &self.conditions
    }
}

/// A status to be written.
#[derive(Debug)]
pub(crate) struct StatusJob<Status> {
    /// Whose.
    pub(crate) key: Key,
    /// Which object of that name.
    pub(crate) uid: String,
    /// What is stored.
    pub(crate) stored: Status,
    /// What it shall be.
    pub(crate) wanted: Status,
}

/// Writes statuses, and an Event where an object begins or ceases to be ready.
pub(crate) struct StatusStage {
    writer: StatusWriter,
    notices: Notices,
    failures: ObjectBackoff<(String, Key)>,
}

impl StatusStage {
    /// A stage that nothing has failed in yet.
    pub(crate) fn new(writer: StatusWriter, notices: Notices) -> Self {
        Self { writer, notices, failures: ObjectBackoff::new(FAILURE) }
    }

    /// Writes those of `jobs` whose status differs from the stored one; returns how many failed.
    pub(crate) async fn write<K, Status>(
        &mut self,
        resource: &ApiResource,
        cache: &Cache<Custom<K, Status>>,
        jobs: Vec<StatusJob<Status>>,
    ) -> usize
    where
        K: Resource + DeserializeOwned + PartialEq,
        Status: Conditions + Serialize + DeserializeOwned + Default + PartialEq,
    {
        let now = Instant::now();
        let present: BTreeSet<&Key> = jobs.iter().map(|job| &job.key).collect();
        self.failures.retain(|(kind, key)| *kind != resource.kind || present.contains(key));
        let due = jobs
            .into_iter()
            .filter(|job| job.stored != job.wanted)
            .filter(|job| self.failures.waits(&(resource.kind.clone(), job.key.clone()), now).is_none());
        let due: Vec<_> = due.collect();
        let writer = self.writer.clone();
        let mut answers = stream::iter(due)
            .map(|job| {
                let writer = &writer;
                async move {
                    let stored = serde_json::to_value(&job.stored).unwrap_or_default();
                    let wanted = serde_json::to_value(&job.wanted).unwrap_or_default();
                    let answer = writer.write(resource, &job.key, &job.uid, &stored, &wanted).await;
                    (job, answer)
                }
            })
            .buffer_unordered(CONCURRENCY);
        let mut failures = 0;
        while let Some((job, answer)) = answers.next().await {
            let failure = (resource.kind.clone(), job.key.clone());
            match answer {
                Ok(stored) => {
                    if let Some(object) = stored {
                        let (key, entry) = observe::custom(object);
                        cache.put(key, entry);
                    }
                    self.failures.succeeded(&failure);
                    debug!(kind = resource.kind, object = %job.key, "status written");
                    if let Some(notice) = transition(resource, &job) {
                        self.notices.tell(notice);
                    }
                }
                // Deleted, or replaced by another of its name: the watch will tell.
                Err(error) if error.is_not_found() || error.is_conflict() => {
                    debug!(kind = resource.kind, object = %job.key, %error, "the object changed meanwhile");
                }
                Err(error) => {
                    failures += 1;
                    warn!(kind = resource.kind, object = %job.key, %error, "the status was not written");
                    self.failures.failed(failure, now, Backoff::jitter());
                }
            }
        }
        failures
    }

    /// When a status that could not be written may be tried again.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.failures.next(Instant::now())
    }
}

/// What to tell a person about the change of `Ready`, if it is worth an Event: that something is wrong, is wrong for
/// another reason, or is right again. That a new object simply works is told by its status.
fn transition<Status: Conditions>(resource: &ApiResource, job: &StatusJob<Status>) -> Option<Notice> {
    let ready = |status: &Status| {
        status.conditions().iter().find(|condition| condition.type_ == ConditionType::Ready.as_str()).cloned()
    };
    let after = ready(&job.wanted)?;
    let before = ready(&job.stored);
    let was_false = before.as_ref().is_some_and(|before| before.status == "False");
    let same_reason = before.as_ref().is_some_and(|before| before.reason == after.reason);
    let worth_telling = match after.status.as_str() {
        "True" => was_false,
        _ => after.reason != Reason::Pending.as_str() && !(was_false && same_reason),
    };
    worth_telling.then(|| Notice {
        regarding: ObjectReference {
            api_version: Some(resource.api_version.clone()),
            kind: Some(resource.kind.clone()),
            namespace: (!job.key.namespace.is_empty()).then(|| job.key.namespace.clone()),
            name: Some(job.key.name.clone()),
            uid: Some(job.uid.clone()),
            ..ObjectReference::default()
        },
        warning: after.status != "True",
        reason: after.reason,
        action: "Reconcile",
        note: after.message,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use mesh_api::integrator::{IngressRequest, IngressRequestStatus};

    fn status(ready: Option<(&str, Reason)>) -> IngressRequestStatus {
        let condition = ready.map(|(status, reason)| Condition {
            type_: "Ready".to_owned(),
            status: status.to_owned(),
            reason: reason.to_string(),
            message: "words".to_owned(),
            observed_generation: Some(1),
            last_transition_time: Time(Timestamp::UNIX_EPOCH),
        });
        IngressRequestStatus {
            conditions: condition.into_iter().collect(),
            ..IngressRequestStatus::default()
        }
    }

    #[test]
    fn events_are_for_what_goes_wrong_and_right_again() {
        let right = ("True", Reason::Ready);
        let wrong = |reason| ("False", reason);
        let cases = [
            (None, Some(right), None),
            (None, Some(wrong(Reason::NoBinding)), Some(true)),
            (None, Some(wrong(Reason::Pending)), None),
            (Some(right), Some(wrong(Reason::NoBinding)), Some(true)),
            (Some(wrong(Reason::NoBinding)), Some(wrong(Reason::NoBinding)), None),
            (Some(wrong(Reason::NoBinding)), Some(wrong(Reason::HostNotAllowed)), Some(true)),
            (Some(wrong(Reason::NoBinding)), Some(right), Some(false)),
            (Some(right), Some(right), None),
            (Some(right), None, None),
        ];
        let resource = observe::resource::<IngressRequest>();
        for (before, after, expected) in cases {
            let job = StatusJob {
                key: Key { namespace: "shop".to_owned(), name: "web".to_owned() },
                uid: "u".to_owned(),
                stored: status(before),
                wanted: status(after),
            };
            let notice = transition(&resource, &job);
            assert_eq!(notice.as_ref().map(|notice| notice.warning), expected, "{before:?} -> {after:?}");
            if let Some(notice) = notice {
                assert_eq!(notice.regarding.name.as_deref(), Some("web"));
                assert_eq!(notice.note, "words");
            }
        }
    }
}
