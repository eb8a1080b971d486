//! `VirtualService` of `networking.istio.io/v1`: written by server-side apply.

use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// The spec of a `VirtualService`, as far as it is emitted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, CustomResource)]
#[kube(
    group = "networking.istio.io",
    version = "v1",
    kind = "VirtualService",
    plural = "virtualservices",
    namespaced,
    schema = "disabled",
    derive = "PartialEq",
    doc = "A VirtualService, as far as it is emitted."
)]
#[serde(rename_all = "camelCase")]
pub struct VirtualServiceSpec {
    /// The hosts it is for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// The Gateways it is attached to, as `namespace/name`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<String>,
    /// The routes: the first that matches serves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub http: Vec<HttpRoute>,
    /// The namespaces whose proxies see it: names, `.` for its own, `*` for all. For a gateway it is the namespace of
    /// its pods that counts, not that of the Gateway object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub export_to: Vec<String>,
}

/// One route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpRoute {
    /// The name, with which Envoy's name of the route begins.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// What it matches: any of these. Empty matches everything.
    #[serde(default, rename = "match", skip_serializing_if = "Vec::is_empty")]
    pub matches: Vec<HttpMatch>,
    /// Where it leads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub route: Vec<HttpRouteDestination>,
    /// The answer that the gateway gives itself, instead of `route`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direct_response: Option<HttpDirectResponse>,
}

/// What a route matches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpMatch {
    /// The path, without query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<StringMatch>,
}

/// How a string is matched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StringMatch {
    /// It is this.
    Exact(String),
    /// It begins with this, character by character: `/app` matches `/apple`.
    Prefix(String),
}

/// One destination of a route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpRouteDestination {
    /// The destination.
    pub destination: Destination,
}

/// A Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Destination {
    /// The full DNS name of the Service. Istio would read a short name in the namespace of the `VirtualService`.
    pub host: String,
    /// The port of the Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<PortSelector>,
}

/// A port, by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PortSelector {
    /// The number.
    pub number: u16,
}

/// An answer that the gateway gives itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpDirectResponse {
    /// The HTTP status.
    pub status: u16,
}
