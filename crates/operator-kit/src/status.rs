//! Status: computed as a whole, written on change only.

use crate::{
    cache::Key,
    client::{CALL_TIMEOUT, CallError, bounded},
    metrics::{Metrics, Outcome, Verb},
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    core::{ApiResource, DynamicObject},
};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The conditions to be stored: those wanted, with their times, and those of types that are not ours.
///
/// A condition whose status is that of the stored one keeps its `lastTransitionTime`, whatever else changed
/// (<https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md>).
/// `owned` lists every type we ever write: one that is stored but no longer wanted is removed. The time in `wanted`
/// is not read.
pub fn conditions(
    stored: &[Condition],
    wanted: impl IntoIterator<Item = Condition>,
    owned: &[&str],
    now: Timestamp,
) -> Vec<Condition> {
    let foreign = stored.iter().filter(|condition| !owned.contains(&condition.type_.as_str())).cloned();
    let ours = wanted.into_iter().map(|mut condition| {
        let before = stored.iter().find(|before| before.type_ == condition.type_);
        condition.last_transition_time = match before {
            Some(before) if before.status == condition.status => before.last_transition_time.clone(),
            _ => Time(now),
        };
        condition
    });
    ours.chain(foreign).collect()
}

/// The JSON merge patch (RFC 7386) that turns `current` into `wanted`, or nothing if they are equal.
///
/// A `null` in `wanted` is read as absence, as a merge patch cannot say otherwise.
pub fn merge_patch(current: &Value, wanted: &Value) -> Option<Value> {
    let (Value::Object(current), Value::Object(wanted)) = (current, wanted) else {
        return (current != wanted).then(|| wanted.clone());
    };
    let mut patch = Map::new();
    for (key, want) in wanted {
        let change = match current.get(key) {
            Some(have) => merge_patch(have, want),
            None => (!want.is_null()).then(|| want.clone()),
        };
        if let Some(change) = change {
            patch.insert(key.clone(), change);
        }
    }
    for key in current.keys().filter(|key| !wanted.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// Writes status subresources.
#[derive(Clone)]
pub struct StatusWriter {
    client: Client,
    manager: &'static str,
    metrics: Arc<Metrics>,
}

impl StatusWriter {
    /// A writer that appears as `manager` in `managedFields`.
    pub fn new(client: Client, manager: &'static str, metrics: Arc<Metrics>) -> Self {
        Self { client, manager, metrics }
    }

    /// Turns the status `current` of the object into `wanted`; returns the object as stored, or nothing if there was
    /// nothing to write.
    ///
    /// The `uid` keeps the status of one object from another that took its name.
    pub async fn write(
        &self,
        resource: &ApiResource,
        key: &Key,
        uid: &str,
        current: &Value,
        wanted: &Value,
    ) -> Result<Option<DynamicObject>, CallError> {
        let Some(patch) = merge_patch(current, wanted) else { return Ok(None) };
        let api: Api<DynamicObject> = if key.namespace.is_empty() {
            Api::all_with(self.client.clone(), resource)
        } else {
            Api::namespaced_with(self.client.clone(), &key.namespace, resource)
        };
        let body = Patch::Merge(json!({"metadata": {"uid": uid}, "status": patch}));
        let params = PatchParams { field_manager: Some(self.manager.to_owned()), ..PatchParams::default() };
        let answer = bounded(CALL_TIMEOUT, api.patch_status(&key.name, &params, &body)).await;
        self.metrics.write(&resource.kind, Verb::Status, Outcome::of(&answer));
        answer.map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(type_: &str, status: &str, reason: &str, second: i64) -> Condition {
        Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: String::new(),
            observed_generation: Some(1),
            last_transition_time: Time(Timestamp::from_second(second).unwrap()),
        }
    }

    #[test]
    fn transition_time_follows_the_status_only() {
        let stored = [condition("Ready", "True", "Ok", 10), condition("Accepted", "True", "Ok", 10)];
        let wanted = [condition("Ready", "False", "Broken", 0), condition("Accepted", "True", "Other", 0)];
        let now = Timestamp::from_second(99).unwrap();
        let merged = conditions(&stored, wanted, &["Ready", "Accepted"], now);
        assert_eq!(
            merged,
            [condition("Ready", "False", "Broken", 99), condition("Accepted", "True", "Other", 10)]
        );
    }

    #[test]
    fn foreign_conditions_stay_and_outdated_ones_of_ours_go() {
        let stored = [condition("Theirs", "True", "Ok", 10), condition("Old", "True", "Ok", 10)];
        let wanted = [condition("Ready", "True", "Ok", 0)];
        let merged = conditions(&stored, wanted, &["Ready", "Old"], Timestamp::from_second(99).unwrap());
        assert_eq!(merged, [condition("Ready", "True", "Ok", 99), condition("Theirs", "True", "Ok", 10)]);
    }

    #[test]
    fn merge_patches_say_only_what_differs() {
        let cases = [
            (json!({"a": 1}), json!({"a": 1}), None),
            (json!({}), json!({"a": null}), None),
            (json!({"a": 1, "b": 2}), json!({"a": 1}), Some(json!({"b": null}))),
            (json!({"a": {"b": 1, "c": 2}}), json!({"a": {"b": 3, "c": 2}}), Some(json!({"a": {"b": 3}}))),
            (json!({"a": [1, 2]}), json!({"a": [2]}), Some(json!({"a": [2]}))),
            (Value::Null, json!({"a": 1}), Some(json!({"a": 1}))),
        ];
        for (current, wanted, expected) in cases {
            assert_eq!(merge_patch(&current, &wanted), expected, "{current} -> {wanted}");
        }
    }
}
