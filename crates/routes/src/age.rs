//! Who came first.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

/// The age of an object: `(creationTimestamp, namespace, name)`, of which the smallest is the oldest.
///
/// Timestamps have whole seconds, so ties are common and are broken by name. An object without a timestamp was never
/// in a cluster and counts as older than all that were.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Age<'a> {
    created: Option<&'a Time>,
    namespace: &'a str,
    name: &'a str,
}

impl<'a> Age<'a> {
    pub(crate) fn of(metadata: &'a ObjectMeta) -> Self {
        Self {
            created: metadata.creation_timestamp.as_ref(),
            namespace: metadata.namespace.as_deref().unwrap_or_default(),
            name: metadata.name.as_deref().unwrap_or_default(),
        }
    }
}
