//! References across namespaces, which the owner of what is referred to must grant.

use std::collections::BTreeMap;

use mesh_api::{Reason, names};

use crate::input::{Grant, Grants, ObjectKey};
use crate::output::Finding;

/// What a request may refer to in another namespace.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    /// A Service.
    Service,
    /// An `AuthProvider`.
    Provider,
}

impl Target {
    fn group(self) -> &'static str {
        match self {
            // The core group.
            Self::Service => "",
            Self::Provider => names::INTEGRATOR_GROUP,
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Self::Service => "Service",
            Self::Provider => "AuthProvider",
        }
    }
}

/// The grants by the namespace that they open.
pub(crate) struct GrantIndex<'a> {
    served: bool,
    by_namespace: BTreeMap<&'a str, Vec<&'a Grant>>,
}

impl<'a> GrantIndex<'a> {
    pub(crate) fn new(grants: &'a Grants) -> Self {
        let mut by_namespace: BTreeMap<&str, Vec<&Grant>> = BTreeMap::new();
        for grant in &grants.list {
            by_namespace.entry(grant.namespace.as_str()).or_default().push(grant);
        }
        Self { served: grants.served, by_namespace }
    }

    /// Whether requests of namespace `from` may refer to this object; if not, why.
    pub(crate) fn check(&self, from: &str, target: Target, object: &ObjectKey) -> Result<(), Finding> {
        if from == object.namespace {
            return Ok(());
        }
        let (group, kind) = (target.group(), target.kind());
        if !self.served {
            let message = format!(
                "{kind} {object} is in another namespace, and the cluster does not serve ReferenceGrant, by which its \
                 owner could allow it: install the CRDs of the Gateway API, or name a {kind} in namespace {from}"
            );
            return Err(Finding::bad(Reason::GrantsNotServed, message));
        }
        let grants = self.by_namespace.get(object.namespace.as_str()).into_iter().flatten();
        let granted = |grant: &&&Grant| {
            let from_us = grant.from.iter().any(|entry| {
                entry.group == names::INTEGRATOR_GROUP
                    && entry.kind == "IngressRequest"
                    && entry.namespace == from
            });
            from_us
                && grant.to.iter().any(|entry| {
                    entry.group == group
                        && entry.kind == kind
                        && entry.name.as_ref().is_none_or(|name| *name == object.name)
                })
        };
        if grants.clone().any(|grant| granted(&grant)) {
            return Ok(());
        }
        let message = format!(
            "{kind} {object} is in another namespace and no ReferenceGrant there allows it: have one created in namespace \
             {} with from IngressRequest of {} in namespace {from}, to {kind}",
            object.namespace,
            names::INTEGRATOR_GROUP
        );
        Err(Finding::bad(Reason::ReferenceNotGranted, message))
    }
}
