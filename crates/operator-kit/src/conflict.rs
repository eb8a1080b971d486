//! Who else owns what we wanted to write.

use crate::fields;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::Status;
use std::fmt;

/// The label by which an object names the tool that manages it.
/// See <https://kubernetes.io/docs/concepts/overview/working-with-objects/common-labels/>.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// Who an object seems to belong to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The value of the label `app.kubernetes.io/managed-by`, if there is one.
    pub managed_by: Option<String>,
    /// The field managers that own something of the object, ours excepted.
    pub managers: Vec<String>,
}

impl Owner {
    /// Reads the owner from an object's metadata; `manager` is our own field manager, which is left out.
    pub fn of(meta: &ObjectMeta, manager: &str) -> Self {
        Self {
            managed_by: meta.labels.as_ref().and_then(|labels| labels.get(MANAGED_BY)).cloned(),
            managers: fields::other_managers(meta, manager),
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.managed_by, self.managers.as_slice()) {
            (None, []) => write!(f, "an unknown owner"),
            (Some(label), []) => write!(f, "{label:?} (label {MANAGED_BY})"),
            (None, managers) => write!(f, "field manager {}", managers.join(", ")),
            (Some(label), managers) => {
                write!(f, "{label:?} (label {MANAGED_BY}), field manager {}", managers.join(", "))
            }
        }
    }
}

/// One field that another manager owns.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldConflict {
    /// The other field manager.
    pub manager: String,
    /// The field, as the API server writes it: `.spec.http`.
    pub field: String,
}

impl fmt::Display for FieldConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} owned by {}", self.field, self.manager)
    }
}

/// The field conflicts in the API server's answer to a server-side apply, sorted.
///
/// Empty where the answer is another kind of 409, such as an outdated resource version.
pub fn field_conflicts(status: &Status) -> Vec<FieldConflict> {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let mut conflicts: Vec<_> = causes
        .filter(|cause| cause.reason == "FieldManagerConflict")
        .map(|cause| FieldConflict {
            manager: manager_in(&cause.message).unwrap_or("an unknown manager").to_owned(),
            field: cause.field.clone(),
        })
        .collect();
    conflicts.sort();
    conflicts.dedup();
    conflicts
}

/// The manager in `conflict with "NAME" using VERSION`, `conflict with "NAME" with subresource ...` and the like.
fn manager_in(message: &str) -> Option<&str> {
    message.split('"').nth(1).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::response::{StatusCause, StatusDetails};

    fn answer(causes: &[(&str, &str, &str)]) -> Status {
        let causes = causes
            .iter()
            .map(|(reason, message, field)| StatusCause {
                reason: (*reason).to_owned(),
                message: (*message).to_owned(),
                field: (*field).to_owned(),
            })
            .collect();
        let details = StatusDetails {
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes,
            retry_after_seconds: 0,
        };
        Status::failure("Apply failed", "Conflict").with_code(409).with_details(details)
    }

    #[test]
    fn decodes_managers_and_fields() {
        let status = answer(&[
            (
                "FieldManagerConflict",
                "conflict with \"kubectl-edit\" using networking.istio.io/v1",
                ".spec.http",
            ),
            ("FieldManagerConflict", "conflict with \"argo cd\"", ".spec.hosts"),
            ("FieldManagerConflict", "no name here", ".spec.x"),
            ("SomethingElse", "conflict with \"x\"", ".spec.y"),
        ]);
        let found: Vec<String> = field_conflicts(&status).iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                ".spec.x owned by an unknown manager",
                ".spec.hosts owned by argo cd",
                ".spec.http owned by kubectl-edit"
            ]
        );
        assert!(field_conflicts(&Status::failure("modified", "Conflict")).is_empty());
    }

    #[test]
    fn names_the_owner() {
        let owner = |label: Option<&str>, managers: &[&str]| Owner {
            managed_by: label.map(str::to_owned),
            managers: managers.iter().map(|name| (*name).to_owned()).collect(),
        };
        let cases = [
            (owner(None, &[]), "an unknown owner"),
            (owner(Some("Helm"), &[]), "\"Helm\" (label app.kubernetes.io/managed-by)"),
            (owner(None, &["a", "b"]), "field manager a, b"),
            (
                owner(Some("Helm"), &["helm"]),
                "\"Helm\" (label app.kubernetes.io/managed-by), field manager helm",
            ),
        ];
        for (owner, text) in cases {
            assert_eq!(owner.to_string(), text);
        }
    }
}
