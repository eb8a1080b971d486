//! The narrow part of the Gateway API that is read.

use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// The spec of a `ReferenceGrant`. Version `v1beta1` is served by every release of the Gateway API since 0.6.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, CustomResource)]
#[kube(
    group = "gateway.networking.k8s.io",
    version = "v1beta1",
    kind = "ReferenceGrant",
    plural = "referencegrants",
    namespaced,
    schema = "disabled",
    derive = "PartialEq",
    doc = "A ReferenceGrant, as far as it is read."
)]
#[serde(rename_all = "camelCase")]
pub struct ReferenceGrantSpec {
    /// Who may refer.
    #[serde(default)]
    pub from: Vec<ReferenceGrantFrom>,
    /// To what in the namespace of the grant.
    #[serde(default)]
    pub to: Vec<ReferenceGrantTo>,
}

/// Who may refer to objects in the namespace of a grant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReferenceGrantFrom {
    /// The API group of the referring object.
    #[serde(default)]
    pub group: String,
    /// Its kind.
    #[serde(default)]
    pub kind: String,
    /// Its namespace.
    #[serde(default)]
    pub namespace: String,
}

/// What may be referred to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReferenceGrantTo {
    /// The API group; empty for the core group.
    #[serde(default)]
    pub group: String,
    /// The kind.
    #[serde(default)]
    pub kind: String,
    /// The name; every object of the kind where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}
