//! `GatewayBinding`: which gateway serves whom.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::selector::NamespaceSelection;
use crate::schema;

/// The template of hosts for requests that name none.
pub const DEFAULT_TEMPLATE: &str = "{name}.{namespace}.{domain}";

/// Which gateway serves the requests of which namespaces, and under which hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "integrator.istio-operators.io",
    version = "v1alpha1",
    kind = "GatewayBinding",
    plural = "gatewaybindings",
    shortname = "gwb",
    category = "istio-operators",
    status = "GatewayBindingStatus",
    derive = "PartialEq",
    doc = "Which gateway serves the requests of which namespaces, and under which hosts.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Gateway", type_ = "string", json_path = ".status.gateway"),
    printcolumn(name = "Default", type_ = "boolean", json_path = ".spec.default"),
    printcolumn(name = "Requests", type_ = "integer", json_path = ".status.serves.requests"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct GatewayBindingSpec {
    /// Whether it serves requests that name no binding, as far as it admits their namespace and hosts. Where several
    /// do, the oldest serves. Default: false.
    #[serde(default)]
    pub default: bool,
    /// The gateway.
    pub gateway: GatewayReference,
    /// The namespaces whose requests it serves. Default: the integrator's own.
    #[serde(default)]
    pub namespaces: NamespaceSelection,
    /// The hosts that requests may have.
    pub hosts: HostPolicy,
    /// Who must have logged in. Default: nobody, unless a request says so.
    #[serde(default)]
    pub auth: BindingAuth,
}

/// What a binding says about logins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct BindingAuth {
    /// Whether every route must have a provider: requests without one are refused. Default: false.
    #[serde(default)]
    pub required: bool,
    /// The provider of routes that say nothing of their own, by namespace and name. It needs no `ReferenceGrant`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "DefaultProviderReference")]
    pub default_provider_ref: Option<DefaultProviderReference>,
}

/// An `AuthProvider`, by namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct DefaultProviderReference {
    /// Its namespace.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = schema::dns_label())]
    pub namespace: String,
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = schema::object_name())]
    pub name: String,
}

/// A gateway, by its type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = schema::union_member("IstioGateway", "istioGateway"))]
#[serde(rename_all = "camelCase")]
pub struct GatewayReference {
    /// What kind of gateway it is.
    #[serde(rename = "type")]
    pub kind: GatewayType,
    /// The existing Istio Gateway, when `type` is `IstioGateway`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "IstioGatewayReference")]
    pub istio_gateway: Option<IstioGatewayReference>,
}

/// The kinds of gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum GatewayType {
    /// An existing `Gateway` of `networking.istio.io`. It is read, never written.
    IstioGateway,
}

/// A `Gateway` of `networking.istio.io`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct IstioGatewayReference {
    /// The namespace of the Gateway object.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = schema::dns_label())]
    pub namespace: String,
    /// The name of the Gateway object.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = schema::object_name())]
    pub name: String,
}

/// The hosts that requests may have: those the template gives them, and those that are allowed by pattern.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = Rule::new("has(self.domain) || (has(self.allowed) && self.allowed.size() > 0)")
    .message("set domain, allowed or both: otherwise no host could be served"))]
#[serde(rename_all = "camelCase")]
pub struct HostPolicy {
    /// The domain under which requests that name no host get one. Without it they are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 253))]
    #[x_kube(validation = schema::host())]
    pub domain: Option<String>,
    /// How the host of a request that names none is made, from `{name}` and `{namespace}` of the request and
    /// `{domain}`. It must hold `{name}` and end in `.{domain}`. If it holds `{namespace}`, the hosts it gives to a
    /// namespace are that namespace's alone. Default: `{name}.{namespace}.{domain}`.
    #[serde(default = "default_template")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = schema::template_rules()[0].clone(), validation = schema::template_rules()[1].clone())]
    #[x_kube(validation = schema::template_rules()[2].clone(), validation = schema::template_rules()[3].clone())]
    pub template: String,
    /// Hosts that requests may ask for beside those of the template. Where several patterns cover a host, only the
    /// most specific one counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["pattern".into()]))]
    pub allowed: Vec<AllowedHost>,
}

/// Hosts that requests may ask for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AllowedHost {
    /// A host, `*.` and a domain for every host below that domain however many labels deep, or `*` for every host.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = schema::host_pattern())]
    pub pattern: String,
    /// The namespaces that may use these hosts, among those that the binding serves. Default: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "NamespaceSelection")]
    pub namespaces: Option<NamespaceSelection>,
    /// Whether several namespaces may serve the same host, each on paths of its own: of two with the same path the
    /// older serves. Otherwise a host belongs to the namespace of its oldest request. Default: false.
    #[serde(default)]
    pub shared: bool,
}

/// What the integrator found out about a binding.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayBindingStatus {
    /// The generation of the binding that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64")]
    pub observed_generation: Option<i64>,
    /// `Accepted` and `Ready`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// The gateway, as `namespace/name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub gateway: Option<String>,
    /// How much it serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ServedCount")]
    pub serves: Option<ServedCount>,
}

/// How much a binding serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServedCount {
    /// Requests of which at least one route is served.
    pub requests: i32,
    /// Requests that chose this binding and of which a host, a path or a Service is refused.
    pub refused: i32,
    /// Hosts that are served.
    pub hosts: i32,
}

fn default_template() -> String {
    DEFAULT_TEMPLATE.to_owned()
}
