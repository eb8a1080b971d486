//! `Gateway` of `networking.istio.io/v1`: read, never written.

use std::collections::BTreeMap;

use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// The spec of an Istio Gateway, as far as it decides which hosts are served and how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, CustomResource)]
#[kube(
    group = "networking.istio.io",
    version = "v1",
    kind = "Gateway",
    plural = "gateways",
    namespaced,
    schema = "disabled",
    derive = "PartialEq",
    doc = "An Istio Gateway, as far as it is read."
)]
#[serde(rename_all = "camelCase")]
pub struct GatewaySpec {
    /// The ports and hosts.
    #[serde(default)]
    pub servers: Vec<GatewayServer>,
    /// The labels of the pods that run the gateway. Unless istiod is told otherwise
    /// (`PILOT_SCOPE_GATEWAY_TO_NAMESPACE`), these pods may be in any namespace.
    #[serde(default)]
    pub selector: BTreeMap<String, String>,
}

/// One port of a Gateway and the hosts on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayServer {
    /// The port.
    #[serde(default)]
    pub port: GatewayPort,
    /// The hosts: `[namespace/]host`, where the namespace is that of the `VirtualServices` that may attach: `*` for any
    /// (the default), `.` for the Gateway's own. The host may be `*` or begin with `*.`.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// How TLS is done. Absent for plain HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<GatewayTls>,
}

/// A port of a Gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayPort {
    /// The number.
    #[serde(default)]
    pub number: u32,
    /// The name.
    #[serde(default)]
    pub name: String,
    /// `HTTP`, `HTTPS`, `GRPC`, `HTTP2`, `MONGO`, `TCP` or `TLS`, in any case.
    #[serde(default)]
    pub protocol: String,
}

/// How a server of a Gateway does TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayTls {
    /// `PASSTHROUGH` (Istio's default), `SIMPLE`, `MUTUAL`, `AUTO_PASSTHROUGH`, `ISTIO_MUTUAL` or `OPTIONAL_MUTUAL`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mode: String,
    /// Whether plain HTTP requests are answered with a redirect to HTTPS, for every host of the server.
    #[serde(default)]
    pub https_redirect: bool,
}
