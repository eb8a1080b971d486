//! `AuthProvider`: a service that decides who has logged in.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// A service that is asked before a protected route is served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "integrator.istio-operators.io",
    version = "v1alpha1",
    kind = "AuthProvider",
    plural = "authproviders",
    shortname = "authp",
    category = "istio-operators",
    namespaced,
    status = "AuthProviderStatus",
    derive = "PartialEq",
    doc = "A service that is asked before a protected route is served.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Service", type_ = "string", json_path = ".spec.extAuthz.service"),
    printcolumn(name = "Routes", type_ = "integer", json_path = ".status.routes"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[x_kube(validation = schema::union_member("ExtAuthz", "extAuthz"))]
#[serde(rename_all = "camelCase")]
pub struct AuthProviderSpec {
    /// How the service is asked.
    #[serde(rename = "type")]
    pub kind: AuthProviderType,
    /// The service, when `type` is `ExtAuthz`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ExtAuthz")]
    pub ext_authz: Option<ExtAuthz>,
}

/// How a service is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AuthProviderType {
    /// By Envoy's `ext_authz`: the service gets the request without its body; 200 lets it pass, any other answer goes to
    /// the client.
    ExtAuthz,
}

/// A service that Envoy's `ext_authz` asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = schema::identity_is_not_asked_for())]
#[serde(rename_all = "camelCase")]
pub struct ExtAuthz {
    /// The protocol. Default: `HTTP`.
    #[serde(default)]
    pub protocol: ExtAuthzProtocol,
    /// The name of the Service, in the namespace of the provider.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = schema::dns_label())]
    pub service: String,
    /// The port of the Service.
    #[schemars(range(min = 1, max = 65535))]
    #[schemars(extend("format" = "int32"))]
    pub port: u16,
    /// How long the service may take, from 1 ms to 60 s; after that the answer is 503. Default: `2s`.
    #[serde(default = "default_timeout")]
    #[schemars(length(max = schema::MAX_DURATION_LENGTH))]
    #[x_kube(validation = schema::duration_rules("1ms", "60s")[0].clone())]
    #[x_kube(validation = schema::duration_rules("1ms", "60s")[1].clone())]
    pub timeout: String,
    /// Headers of the client's request that the service gets, beside the method, the path and the host, which it always
    /// gets, and `authorization`, which it gets too. Default: `cookie`.
    #[serde(default = "default_request_headers")]
    #[schemars(schema_with = "schema::request_headers")]
    pub request_headers: Vec<String>,
    /// Headers of the service's answer that the backend gets: who has logged in. What a client sends under these names
    /// is removed, on every route of the backend.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::identity_headers")]
    pub identity_headers: Vec<String>,
    /// What is put before the path when the service is asked, such as `/check`. Default: nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 128))]
    #[x_kube(validation = schema::path_prefix_rules()[0].clone(), validation = schema::path_prefix_rules()[1].clone())]
    #[x_kube(validation = schema::path_prefix_rules()[2].clone(), validation = schema::path_prefix_rules()[3].clone())]
    pub path_prefix: String,
    /// Paths of the service's own pages, which it answers to everybody, such as `/oauth2/`: a path, or a prefix if it ends
    /// in a slash. A protected route answers them with 403.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::own_paths")]
    pub own_paths: Vec<String>,
}

/// A protocol of Envoy's `ext_authz`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ExtAuthzProtocol {
    /// Plain HTTP/1.1.
    #[default]
    HTTP,
}

/// What the integrator found out about a provider.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuthProviderStatus {
    /// The generation of the provider that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64")]
    pub observed_generation: Option<i64>,
    /// `Accepted`, `ResolvedRefs` and `Ready`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// How many routes of requests it protects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i32")]
    pub routes: Option<i32>,
}

fn default_timeout() -> String {
    "2s".to_owned()
}

fn default_request_headers() -> Vec<String> {
    vec!["cookie".to_owned()]
}
