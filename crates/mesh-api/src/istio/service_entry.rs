//! `ServiceEntry` of `networking.istio.io/v1`: read, never written.

use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// The spec of a `ServiceEntry`, as far as it tells which host names it claims.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, CustomResource)]
#[kube(
    group = "networking.istio.io",
    version = "v1",
    kind = "ServiceEntry",
    plural = "serviceentries",
    namespaced,
    schema = "disabled",
    derive = "PartialEq",
    doc = "A ServiceEntry, as far as it is read."
)]
#[serde(rename_all = "camelCase")]
pub struct ServiceEntrySpec {
    /// The host names.
    #[serde(default)]
    pub hosts: Vec<String>,
}
