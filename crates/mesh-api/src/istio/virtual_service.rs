//! `VirtualService` of `networking.istio.io/v1`: written by server-side apply.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use kube::CustomResource;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

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
    /// How the path is changed on the way to the Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rewrite: Option<HttpRewrite>,
    /// How long the Service may take to answer, as Istio writes durations (`1.500s`, `2m`). Without it: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// Headers that are changed on the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers: Option<Headers>,
}

/// What a route matches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpMatch {
    /// The path, without query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<StringMatch>,
    /// Whether an exact or prefix `uri` is compared without regard to case. A regex takes no notice of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ignore_uri_case: bool,
    /// The method.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<StringMatch>,
    /// Headers, by lower-case name, of which each must have a value that matches.
    #[serde(default, skip_serializing_if = "HeaderMatches::is_none")]
    pub headers: HeaderMatches,
    /// Headers, by lower-case name, of which none may have a value that matches; a header that is absent does not match.
    #[serde(default, skip_serializing_if = "HeaderMatches::is_none")]
    pub without_headers: HeaderMatches,
}

/// How headers are matched, by lower-case name; read as the map that it is. Copies are one in memory, since tens of
/// thousands of routes have the same.
#[derive(Clone, Default)]
pub struct HeaderMatches(Option<Arc<BTreeMap<String, StringMatch>>>);

impl HeaderMatches {
    /// Whether no header is matched.
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }
}

impl From<BTreeMap<String, StringMatch>> for HeaderMatches {
    fn from(headers: BTreeMap<String, StringMatch>) -> Self {
        Self((!headers.is_empty()).then(|| Arc::new(headers)))
    }
}

impl Deref for HeaderMatches {
    type Target = BTreeMap<String, StringMatch>;

    fn deref(&self) -> &Self::Target {
        static NONE: BTreeMap<String, StringMatch> = BTreeMap::new();
        self.0.as_deref().unwrap_or(&NONE)
    }
}

impl PartialEq for HeaderMatches {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other) || one == other,
            (one, other) => one.is_none() && other.is_none(),
        }
    }
}

impl Eq for HeaderMatches {}

impl Hash for HeaderMatches {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.deref().hash(state);
    }
}

impl fmt::Debug for HeaderMatches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.deref().fmt(f)
    }
}

impl Serialize for HeaderMatches {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.deref().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for HeaderMatches {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        BTreeMap::deserialize(deserializer).map(Self::from)
    }
}

/// How a string is matched.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StringMatch {
    /// It is this.
    Exact(String),
    /// It begins with this, character by character: `/app` matches `/apple`.
    Prefix(String),
    /// All of it matches this RE2 expression.
    Regex(String),
}

/// How a path is changed on the way to a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpRewrite {
    /// What replaces the part of the path that matched: the prefix, or all of it where it matched exactly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
}

/// Changes of headers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Headers {
    /// Of the request, on the way to the Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<HeaderOperations>,
    /// Of the answer, on the way to the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<HeaderOperations>,
}

/// Changes of the headers of a request or an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeaderOperations {
    /// Headers that are set, whatever they were.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub set: BTreeMap<String, String>,
    /// Headers that are removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<String>,
}

/// One destination of a route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpRouteDestination {
    /// The destination.
    pub destination: Destination,
    /// Its share of the requests, beside the weights of the others. A single destination needs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpDirectResponse {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<HttpBody>,
}

/// The body of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpBody {
    /// The text.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub string: String,
}
