//! Server-side apply that writes only what differs and never takes what is somebody else's.
//!
//! Look first: [`decide`] compares what is wanted with what the cache holds, without a request. An object that does
//! not exist is applied without force. An object that we did not create is a [`ApplyError::Foreign`] and is not
//! written. Ours is written when the fields we own, as they are now, differ from those we want; else nothing is sent.

use crate::{
    client::{CALL_TIMEOUT, CallError, bounded},
    conflict::{FieldConflict, MANAGED_BY, Owner, field_conflicts},
    fields::{self, Digest},
    metrics::{Metrics, Outcome, Verb},
};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, Preconditions, ValidationDirective},
    core::{ApiResource, DynamicObject},
};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::{collections::BTreeSet, fmt, sync::Arc};
use thiserror::Error;

/// Who we are to the API server and to people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Our field manager.
    pub manager: &'static str,
    /// The value of the label `app.kubernetes.io/managed-by` on everything we create.
    pub managed_by: &'static str,
}

/// The name of one object, as people write it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// The kind.
    pub kind: String,
    /// The namespace; empty for a cluster-scoped object.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, namespace, name } = self;
        if namespace.is_empty() { write!(f, "{kind} {name}") } else { write!(f, "{kind} {namespace}/{name}") }
    }
}

/// An object as we want it.
#[derive(Clone, Debug)]
pub struct Desired {
    resource: ApiResource,
    target: Target,
    body: Value,
    digest: Digest,
}

/// Why an object cannot be applied, whatever the cluster holds.
#[derive(Debug, Error)]
pub enum DesiredError {
    /// It cannot be written as JSON.
    #[error("the object cannot be written as JSON: {0}")]
    Serialize(#[from] serde_json::Error),
    /// It has no name.
    #[error("the object to apply has no metadata.name")]
    Nameless,
    /// It lacks the label that makes it ours, so that we would take it for foreign later.
    #[error("{0} has no label {MANAGED_BY}={1}")]
    Unlabelled(Target, &'static str),
}

impl Desired {
    /// Takes `object` to be applied as `identity`; it must have a name and our managed-by label.
    pub fn new<K>(object: &K, identity: Identity) -> Result<Self, DesiredError>
    where
        K: Resource<DynamicType = ()> + Serialize,
    {
        let resource = ApiResource::erase::<K>(&());
        let target = Target {
            kind: resource.kind.clone(),
            namespace: object.meta().namespace.clone().unwrap_or_default(),
            name: object.meta().name.clone().ok_or(DesiredError::Nameless)?,
        };
        if object.labels().get(MANAGED_BY).map(String::as_str) != Some(identity.managed_by) {
            return Err(DesiredError::Unlabelled(target, identity.managed_by));
        }
        let mut body = serde_json::to_value(object)?;
        if let Some(members) = body.as_object_mut() {
            // Custom resources serialize these themselves, types of k8s-openapi too; a patch without is refused.
            members.insert("apiVersion".to_owned(), json!(resource.api_version));
            members.insert("kind".to_owned(), json!(resource.kind));
        }
        let digest = Digest::of(&tracked(&body));
        Ok(Self { resource, target, body, digest })
    }

    /// What it is called.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The digest of what it says; equal for objects of one name that say the same.
    pub fn digest(&self) -> Digest {
        self.digest
    }
}

/// The part of an object that server-side apply tracks: all but what identifies it.
fn tracked(body: &Value) -> Value {
    let mut kept = Map::new();
    for (key, member) in body.as_object().into_iter().flatten() {
        match key.as_str() {
            "apiVersion" | "kind" => {}
            "metadata" => {
                let meta = member.as_object().into_iter().flatten();
                let rest: Map<String, Value> = meta
                    .filter(|(key, _)| *key != "name" && *key != "namespace")
                    .map(|(key, value)| (key.clone(), value.clone()))
                    .collect();
                kept.insert(key.clone(), Value::Object(rest));
            }
            _ => {
                kept.insert(key.clone(), member.clone());
            }
        }
    }
    Value::Object(kept)
}

/// What the cache keeps of an object that we may want to write: small, whatever the object's size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Live {
    /// Its uid, so that nothing is deleted that merely bears the same name.
    pub uid: String,
    /// Set while it waits for finalizers of others to be deleted.
    pub terminating: bool,
    /// Whose it is.
    pub ownership: Ownership,
    /// The other field managers that own something of it.
    pub others: Vec<String>,
}

/// Whether an object is ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// We created it: it has our label and our field manager applied it. The digest is that of the fields we own.
    Ours(Digest),
    /// Somebody else did.
    Foreign(Owner),
}

impl Live {
    /// Reads what matters from `object`.
    pub fn read(object: &DynamicObject, identity: Identity) -> Self {
        let meta = &object.metadata;
        let labelled = object.labels().get(MANAGED_BY).map(String::as_str) == Some(identity.managed_by);
        let ownership = match fields::applied_by(meta, identity.manager) {
            Some(owned) if labelled => Ownership::Ours(Digest::of(&projection(object, owned))),
            _ => Ownership::Foreign(Owner::of(meta, identity.manager)),
        };
        Self {
            uid: meta.uid.clone().unwrap_or_default(),
            terminating: meta.deletion_timestamp.is_some(),
            ownership,
            others: fields::other_managers(meta, identity.manager),
        }
    }
}

/// The fields of `object` that `owned` covers, in the form of [`tracked`].
fn projection(object: &DynamicObject, owned: &Value) -> Value {
    let mut whole = object.data.clone();
    if let (Some(members), Ok(meta)) = (whole.as_object_mut(), serde_json::to_value(&object.metadata)) {
        members.insert("metadata".to_owned(), meta);
    }
    tracked(&fields::project(&whole, owned))
}

/// What to do about a wanted object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is as wanted.
    Keep,
    /// It does not exist.
    Create,
    /// It is ours and differs.
    Update,
    /// It is ours and about to be deleted; it can be created anew once it is gone.
    AwaitDeletion,
    /// It is somebody else's.
    Refuse(Owner),
}

/// Compares what is wanted with what there is.
pub fn decide(desired: &Desired, live: Option<&Live>) -> Decision {
    let Some(live) = live else { return Decision::Create };
    match &live.ownership {
        Ownership::Foreign(owner) => Decision::Refuse(owner.clone()),
        Ownership::Ours(_) if live.terminating => Decision::AwaitDeletion,
        Ownership::Ours(digest) if *digest == desired.digest => Decision::Keep,
        Ownership::Ours(_) => Decision::Update,
    }
}

/// How far an apply to an object of ours may go against other field managers.
#[derive(Clone, Copy, Debug)]
pub enum Force<'f> {
    /// Every field: for objects that are wholly ours, where each apply states the same fields.
    Everything,
    /// Only these fields, written as the API server writes them in a conflict (`.spec.replicas`): those we applied
    /// before. A conflict over another field is reported.
    Only(&'f BTreeSet<String>),
}

/// Why an object was not written.
#[derive(Debug, Error)]
pub enum ApplyError {
    /// It exists and somebody else created it.
    #[error(
        "{target} exists and belongs to {owner}; it is left as it is. Delete or rename it, and it is created here"
    )]
    Foreign {
        /// The object.
        target: Target,
        /// Whose it is.
        owner: Owner,
    },
    /// Other field managers own fields that we never applied.
    #[error("{target} has fields of others ({}); it is left as it is. Let the other manager give them up", list(.conflicts))]
    Fields {
        /// The object.
        target: Target,
        /// The fields and their managers.
        conflicts: Vec<FieldConflict>,
    },
    /// It is being deleted.
    #[error("{0} is being deleted and waits for its finalizers; it is created anew once it is gone")]
    Terminating(Target),
    /// It changed after we looked. The next look decides.
    #[error("{target} changed while it was being written: {source}")]
    Stale {
        /// The object.
        target: Target,
        /// The API server's answer.
        source: CallError,
    },
    /// The API server did not do it.
    #[error("{verb} {target} failed: {source}")]
    Call {
        /// What was tried.
        verb: &'static str,
        /// The object.
        target: Target,
        /// Why.
        source: CallError,
    },
}

fn list(conflicts: &[FieldConflict]) -> String {
    conflicts.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// What became of an object that was to be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pruned {
    /// It is gone, or on its way.
    Deleted,
    /// It was gone before.
    Absent,
}

/// Writes objects as one [`Identity`].
#[derive(Clone)]
pub struct Applier {
    client: Client,
    identity: Identity,
    metrics: Arc<Metrics>,
}

impl Applier {
    /// A writer that counts what it does in `metrics`.
    pub fn new(client: Client, identity: Identity, metrics: Arc<Metrics>) -> Self {
        Self { client, identity, metrics }
    }

    /// As whom it writes.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Makes the object as wanted; `live` is what the cache holds of it.
    ///
    /// Returns the object as the API server stored it, or nothing if there was nothing to write.
    pub async fn apply(
        &self,
        desired: &Desired,
        live: Option<&Live>,
        force: Force<'_>,
    ) -> Result<Option<DynamicObject>, ApplyError> {
        let target = || desired.target.clone();
        match decide(desired, live) {
            Decision::Keep => Ok(None),
            Decision::AwaitDeletion => Err(ApplyError::Terminating(target())),
            Decision::Refuse(owner) => {
                self.metrics.conflict(&desired.target.kind);
                Err(ApplyError::Foreign { target: target(), owner })
            }
            Decision::Create => self.patch(desired, false).await.map(Some),
            Decision::Update => match force {
                Force::Everything => self.patch(desired, true).await.map(Some),
                Force::Only(ours) => match self.patch(desired, false).await {
                    Err(ApplyError::Fields { conflicts, .. }) if all_in(&conflicts, ours) => {
                        self.patch(desired, true).await.map(Some)
                    }
                    answer => answer.map(Some),
                },
            },
        }
    }

    async fn patch(&self, desired: &Desired, force: bool) -> Result<DynamicObject, ApplyError> {
        let params = PatchParams {
            force,
            field_manager: Some(self.identity.manager.to_owned()),
            // A field that the server does not know would be dropped in silence, and applied again forever.
            field_validation: Some(ValidationDirective::Strict),
            dry_run: false,
        };
        let api = self.api(&desired.resource, &desired.target.namespace);
        let patch = Patch::Apply(&desired.body);
        let answer = bounded(CALL_TIMEOUT, api.patch(&desired.target.name, &params, &patch)).await;
        self.metrics.write(&desired.target.kind, Verb::Apply, Outcome::of(&answer));
        answer.map_err(|error| {
            let target = desired.target.clone();
            let conflicts = error.status().map(field_conflicts).unwrap_or_default();
            if !conflicts.is_empty() {
                self.metrics.conflict(&target.kind);
                ApplyError::Fields { target, conflicts }
            } else if error.is_conflict() {
                ApplyError::Stale { target, source: error }
            } else {
                ApplyError::Call { verb: "applying", target, source: error }
            }
        })
    }

    /// Deletes an object of ours that is no longer wanted, if it is still the one that the cache holds.
    ///
    /// `resource_version` is that of the cached object: one that was changed since is looked at again first.
    pub async fn prune(
        &self,
        resource: &ApiResource,
        target: &Target,
        live: &Live,
        resource_version: &str,
    ) -> Result<Pruned, ApplyError> {
        if let Ownership::Foreign(owner) = &live.ownership {
            self.metrics.conflict(&target.kind);
            return Err(ApplyError::Foreign { target: target.clone(), owner: owner.clone() });
        }
        if live.terminating {
            return Ok(Pruned::Deleted);
        }
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(live.uid.clone()),
                resource_version: Some(resource_version.to_owned()),
            }),
            ..DeleteParams::background()
        };
        let api = self.api(resource, &target.namespace);
        let answer = bounded(CALL_TIMEOUT, api.delete(&target.name, &params)).await;
        self.metrics.write(&target.kind, Verb::Delete, Outcome::of(&answer));
        match answer {
            Ok(_) => Ok(Pruned::Deleted),
            Err(error) if error.is_not_found() => Ok(Pruned::Absent),
            Err(source) if source.is_conflict() => Err(ApplyError::Stale { target: target.clone(), source }),
            Err(source) => Err(ApplyError::Call { verb: "deleting", target: target.clone(), source }),
        }
    }

    fn api(&self, resource: &ApiResource, namespace: &str) -> Api<DynamicObject> {
        if namespace.is_empty() {
            Api::all_with(self.client.clone(), resource)
        } else {
            Api::namespaced_with(self.client.clone(), namespace, resource)
        }
    }
}

fn all_in(conflicts: &[FieldConflict], ours: &BTreeSet<String>) -> bool {
    conflicts.iter().all(|conflict| ours.contains(&conflict.field))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::{
        api::core::v1::ConfigMap,
        apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry, Time},
    };
    use kube::core::ObjectMeta;
    use std::collections::BTreeMap;

    const US: Identity = Identity { manager: "us", managed_by: "us" };

    fn wanted(value: &str) -> ConfigMap {
        ConfigMap {
            metadata: ObjectMeta {
                name: Some("settings".to_owned()),
                namespace: Some("home".to_owned()),
                labels: Some(BTreeMap::from([(MANAGED_BY.to_owned(), "us".to_owned())])),
                ..ObjectMeta::default()
            },
            data: Some(BTreeMap::from([("key".to_owned(), value.to_owned())])),
            ..ConfigMap::default()
        }
    }

    /// The object as the API server would hold it after we applied `wanted("1")`.
    fn stored() -> DynamicObject {
        let mut object: DynamicObject =
            serde_json::from_value(serde_json::to_value(wanted("1")).unwrap()).unwrap();
        object.metadata.uid = Some("u1".to_owned());
        object.metadata.resource_version = Some("7".to_owned());
        object.metadata.managed_fields = Some(vec![ManagedFieldsEntry {
            manager: Some("us".to_owned()),
            operation: Some("Apply".to_owned()),
            fields_v1: Some(FieldsV1(json!({
                "f:metadata": {"f:labels": {"f:app.kubernetes.io/managed-by": {}}},
                "f:data": {"f:key": {}},
            }))),
            ..ManagedFieldsEntry::default()
        }]);
        object
    }

    fn decision(change: impl FnOnce(&mut DynamicObject), value: &str) -> Decision {
        let mut object = stored();
        change(&mut object);
        decide(&Desired::new(&wanted(value), US).unwrap(), Some(&Live::read(&object, US)))
    }

    #[test]
    fn what_is_as_wanted_is_kept() {
        assert_eq!(decision(|_| {}, "1"), Decision::Keep);
        // What others add beside our fields is theirs and no reason to write.
        assert_eq!(decision(|object| object.data["data"]["other"] = json!("x"), "1"), Decision::Keep);
        assert_eq!(
            decision(|object| drop(object.annotations_mut().insert("note".to_owned(), "x".to_owned())), "1"),
            Decision::Keep
        );
    }

    #[test]
    fn what_differs_is_updated() {
        assert_eq!(decision(|_| {}, "2"), Decision::Update);
        assert_eq!(decision(|object| object.data["data"]["key"] = json!("edited"), "1"), Decision::Update);
        // Ownership lost without a change of value: the next removal would leave the field behind.
        let lose = |object: &mut DynamicObject| {
            let entry = &mut object.metadata.managed_fields.as_mut().unwrap()[0];
            entry.fields_v1 =
                Some(FieldsV1(json!({"f:metadata": {"f:labels": {"f:app.kubernetes.io/managed-by": {}}}})));
        };
        assert_eq!(decision(lose, "1"), Decision::Update);
    }

    #[test]
    fn what_is_not_ours_is_refused() {
        let unlabel = |object: &mut DynamicObject| object.labels_mut().clear();
        assert!(matches!(decision(unlabel, "1"), Decision::Refuse(_)));
        let relabel = |object: &mut DynamicObject| {
            object.metadata.managed_fields.as_mut().unwrap()[0].manager = Some("kubectl".to_owned());
        };
        let Decision::Refuse(owner) = decision(relabel, "1") else {
            panic!("a copy of our object is not ours")
        };
        assert_eq!(owner.managers, ["kubectl"]);
    }

    #[test]
    fn what_is_absent_is_created_and_what_goes_is_awaited() {
        assert_eq!(decide(&Desired::new(&wanted("1"), US).unwrap(), None), Decision::Create);
        let delete = |object: &mut DynamicObject| {
            object.metadata.deletion_timestamp = Some(Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH));
        };
        assert_eq!(decision(delete, "1"), Decision::AwaitDeletion);
    }

    #[test]
    fn an_object_without_our_label_is_not_applied() {
        let mut object = wanted("1");
        object.metadata.labels = None;
        let error = Desired::new(&object, US).unwrap_err().to_string();
        assert_eq!(error, "ConfigMap home/settings has no label app.kubernetes.io/managed-by=us");
    }

    #[test]
    fn force_is_bounded_by_what_was_applied() {
        let conflict = |field: &str| FieldConflict { manager: "them".to_owned(), field: field.to_owned() };
        let ours = BTreeSet::from([".data.key".to_owned()]);
        assert!(all_in(&[conflict(".data.key")], &ours));
        assert!(!all_in(&[conflict(".data.key"), conflict(".data.other")], &ours));
    }
}
