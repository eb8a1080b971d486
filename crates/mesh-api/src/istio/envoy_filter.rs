//! `EnvoyFilter` of `networking.istio.io/v1alpha3`, its only version: written by server-side apply.

use std::collections::BTreeMap;

use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The spec of an `EnvoyFilter`, as far as it is emitted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, CustomResource)]
#[kube(
    group = "networking.istio.io",
    version = "v1alpha3",
    kind = "EnvoyFilter",
    plural = "envoyfilters",
    namespaced,
    schema = "disabled",
    derive = "PartialEq",
    doc = "An EnvoyFilter, as far as it is emitted."
)]
#[serde(rename_all = "camelCase")]
pub struct EnvoyFilterSpec {
    /// The proxies it is for. In the mesh's root namespace: those of every namespace with these labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload_selector: Option<WorkloadSelector>,
    /// Its place among others, the lowest first. 0 is what Istio takes where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// The patches, applied in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub config_patches: Vec<Value>,
}

/// Proxies, by the labels of their pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadSelector {
    /// The labels, all of which a pod must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}
