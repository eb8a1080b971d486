//! `IngressRequest`: what an application team writes beside its Service.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// Hosts and paths that shall lead to Services of the request's own namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "integrator.istio-operators.io",
    version = "v1alpha1",
    kind = "IngressRequest",
    plural = "ingressrequests",
    shortname = "ingreq",
    category = "istio-operators",
    namespaced,
    status = "IngressRequestStatus",
    derive = "PartialEq",
    doc = "Hosts and paths that shall lead to Services of the request's own namespace.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "URL", type_ = "string", json_path = ".status.urls[0]"),
    printcolumn(name = "Auth", type_ = "string", json_path = ".status.auth"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct IngressRequestSpec {
    /// The binding that shall serve it. Default: the oldest default binding that admits its namespace and hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BindingReference")]
    pub binding_ref: Option<BindingReference>,
    /// The hosts: lower-case DNS names. Default: the one that the binding's template gives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::hosts")]
    pub hosts: Vec<String>,
    /// Who must have logged in to reach the routes that say nothing of their own. Default: what the binding says.
    #[serde(default)]
    pub auth: RequestAuth,
    /// Where the paths lead. The most specific path wins, whatever the order here: exact paths first, then the longest
    /// prefix.
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(merge_strategy = ListMerge::Atomic, validation = schema::distinct_routes())]
    pub routes: Vec<Route>,
}

/// A binding, by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct BindingReference {
    /// The name of the `GatewayBinding`.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = schema::object_name())]
    pub name: String,
}

/// One path and where it leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = schema::rewrite_of_prefix())]
#[serde(rename_all = "camelCase")]
pub struct Route {
    /// The paths. Default: every path.
    #[serde(default)]
    pub path: PathMatch,
    /// The methods. `GET` covers `HEAD` as well. Of two routes of one path, the one with methods comes first. Default:
    /// every method.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 7))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub methods: Vec<Method>,
    /// Who must have logged in. Default: what the request says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "RequestAuth")]
    pub auth: Option<RequestAuth>,
    /// The Services that answer, each by its weight.
    #[schemars(length(min = 1, max = 16))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    #[x_kube(validation = schema::backends_rules()[0].clone(), validation = schema::backends_rules()[1].clone())]
    pub backends: Vec<Backend>,
    /// How the path is changed on the way to the Service. Only for paths of type `PathPrefix`. Default: not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Rewrite")]
    pub rewrite: Option<Rewrite>,
    /// How long the Service may take to answer in full, such as `10s` or `1m30s`; from 1 ms to 24 h. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(max = schema::MAX_DURATION_LENGTH))]
    #[x_kube(validation = schema::duration_rules("1ms", "24h")[0].clone())]
    #[x_kube(validation = schema::duration_rules("1ms", "24h")[1].clone())]
    pub timeout: Option<String>,
}

/// A method of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Method {
    /// `GET`, and `HEAD`.
    Get,
    /// `HEAD` alone.
    Head,
    /// `POST`.
    Post,
    /// `PUT`.
    Put,
    /// `PATCH`.
    Patch,
    /// `DELETE`.
    Delete,
    /// `OPTIONS`.
    Options,
}

impl Method {
    /// The method as HTTP writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
            Self::Options => "OPTIONS",
        }
    }
}

/// How a path is changed on the way to the Service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rewrite {
    /// What is changed.
    #[serde(rename = "type")]
    pub kind: RewriteType,
    /// What it is changed to: a path.
    #[schemars(length(min = 1, max = 1024))]
    #[x_kube(validation = schema::path_rules()[0].clone(), validation = schema::path_rules()[1].clone())]
    #[x_kube(validation = schema::path_rules()[2].clone(), validation = schema::path_rules()[3].clone())]
    pub value: String,
}

/// What of a path is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum RewriteType {
    /// The prefix that the route matches: with `/`, the prefix is stripped.
    ReplacePrefix,
}

/// Who must have logged in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = schema::union_member("Provider", "providerRef"))]
#[serde(rename_all = "camelCase")]
pub struct RequestAuth {
    /// Who decides. Default: `Inherit`.
    #[serde(rename = "type", default)]
    pub kind: AuthType,
    /// The provider, when `type` is `Provider`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ProviderReference")]
    pub provider_ref: Option<ProviderReference>,
}

/// Who decides whether a login is needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AuthType {
    /// The request, for a route; the binding, for a request.
    #[default]
    Inherit,
    /// No login is needed. A binding may forbid it.
    None,
    /// The provider that `providerRef` names.
    Provider,
}

/// An `AuthProvider`, by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProviderReference {
    /// Its namespace. Default: that of the request. Another one needs a `ReferenceGrant` there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 63))]
    #[x_kube(validation = schema::dns_label())]
    pub namespace: Option<String>,
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = schema::object_name())]
    pub name: String,
}

/// A set of paths.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PathMatch {
    /// How `value` is compared. Default: `PathPrefix`.
    #[serde(rename = "type", default)]
    pub kind: PathMatchType,
    /// The path, without query. Default: `/`.
    #[serde(default = "root_path")]
    #[schemars(length(min = 1, max = 1024))]
    #[x_kube(validation = schema::path_rules()[0].clone(), validation = schema::path_rules()[1].clone())]
    #[x_kube(validation = schema::path_rules()[2].clone(), validation = schema::path_rules()[3].clone())]
    pub value: String,
}

impl Default for PathMatch {
    fn default() -> Self {
        Self { kind: PathMatchType::default(), value: root_path() }
    }
}

/// How a path is compared. Paths are compared with regard to case.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum PathMatchType {
    /// This path and everything below it, by whole segments: `/app` covers `/app` and `/app/x` and not `/apple`.
    #[default]
    PathPrefix,
    /// This path alone.
    Exact,
}

/// A Service, and its share of the requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Backend {
    /// The name of the Service.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = schema::dns_label())]
    pub service: String,
    /// The port of the Service, by number; not the port of its pods.
    #[schemars(range(min = 1, max = 65535))]
    #[schemars(extend("format" = "int32"))]
    pub port: u16,
    /// The namespace of the Service. Default: that of the request. Another one needs a `ReferenceGrant` there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 63))]
    #[x_kube(validation = schema::dns_label())]
    pub namespace: Option<String>,
    /// Its share of the requests, in proportion to the weights of the others. With 0 it gets none. Default: 1.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 1_000_000))]
    #[schemars(extend("format" = "int32"))]
    pub weight: u32,
}

/// What the integrator found out about a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct IngressRequestStatus {
    /// The generation of the request that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64")]
    pub observed_generation: Option<i64>,
    /// `Accepted`, `ResolvedRefs`, `AuthInForce`, `Programmed` and `Ready`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// The binding that serves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub binding: Option<String>,
    /// Where it is served: one URL for each host that is, without a path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub urls: Vec<String>,
    /// Who must have logged in: `None`, the providers as `namespace/name`, or both where routes differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub auth: Option<String>,
    /// The state of each route, in the order of `spec.routes`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub routes: Vec<RouteStatus>,
}

/// The state of one route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RouteStatus {
    /// The paths of the route.
    #[schemars(schema_with = "schema::path_in_status")]
    pub path: PathMatch,
    /// `Served`, or why not.
    pub reason: String,
    /// Why, and what to do, for a person. Absent when it is served.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

fn one() -> u32 {
    1
}

fn root_path() -> String {
    "/".to_owned()
}
