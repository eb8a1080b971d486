//! From decided routes to Istio objects.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use mesh_api::integrator::{PathMatch, PathMatchType};
use mesh_api::istio::{
    Destination, HttpDirectResponse, HttpMatch, HttpRoute, HttpRouteDestination, StringMatch, VirtualService,
    VirtualServiceSpec,
};
use mesh_api::names;
use sha2::{Digest as _, Sha256};

use crate::input::{GatewayFacts, ObjectKey, Settings};

/// What a route answers whose Service does not exist.
const UNAVAILABLE: u16 = 503;
/// How much of a host a name shows.
const READABLE: usize = 40;
/// The hexadecimal digits of a hash: 80 bits, so that nobody finds a second host with the same name.
const HASH_DIGITS: usize = 20;

/// The name of the `VirtualService` of this host on this gateway: a DNS label, the same on every run.
pub fn virtual_service_name(gateway: &ObjectKey, host: &str) -> String {
    let readable: String = host.chars().take(READABLE).map(|c| if c == '.' { '-' } else { c }).collect();
    format!("{}-{}", readable.trim_end_matches('-'), hash(&[&gateway.namespace, &gateway.name, host]))
}

/// The route of this path of this host. Without a destination it answers 503, so that a broken route never falls
/// through to a wider one of somebody else.
pub(crate) fn http_route(
    host: &str,
    request: &ObjectKey,
    path: &PathMatch,
    destination: Option<&Destination>,
) -> HttpRoute {
    let uri = |uri| HttpMatch { uri: Some(uri), ..HttpMatch::default() };
    let matches = match path.kind {
        PathMatchType::Exact => vec![uri(StringMatch::Exact(path.value.clone()))],
        PathMatchType::PathPrefix if path.value == "/" => vec![uri(StringMatch::Prefix("/".to_owned()))],
        PathMatchType::PathPrefix => vec![
            uri(StringMatch::Exact(path.value.clone())),
            uri(StringMatch::Prefix(format!("{}/", path.value))),
        ],
    };
    let kind = match path.kind {
        PathMatchType::Exact => "exact",
        PathMatchType::PathPrefix => "prefix",
    };
    let digest = hash(&[&request.namespace, &request.name, host, kind, &path.value]);
    HttpRoute {
        name: format!("{}{digest}", names::OPEN_ROUTE_PREFIX),
        matches,
        route: destination
            .map(|destination| HttpRouteDestination { destination: destination.clone(), weight: None })
            .into_iter()
            .collect(),
        direct_response: destination
            .is_none()
            .then(|| HttpDirectResponse { status: UNAVAILABLE, body: None }),
        ..HttpRoute::default()
    }
}

/// How many bytes the route takes in its object.
pub(crate) fn size(route: &HttpRoute) -> usize {
    // One more for the comma between two routes. Writing a plain struct of strings as JSON cannot fail; if it did, the
    // route would count as too large and its request be refused.
    serde_json::to_vec(route).map_or(usize::MAX / 4, |json| json.len() + 1)
}

/// The `VirtualService` of a host on a gateway.
pub(crate) fn virtual_service(
    gateway: &ObjectKey,
    facts: Option<&GatewayFacts>,
    host: &str,
    routes: Vec<HttpRoute>,
    settings: &Settings,
) -> VirtualService {
    let annotations = BTreeMap::from([
        (names::GATEWAY_ANNOTATION.to_owned(), gateway.to_string()),
        (names::HOST_ANNOTATION.to_owned(), host.to_owned()),
    ]);
    let labels = BTreeMap::from([(names::MANAGED_BY_LABEL.to_owned(), names::INTEGRATOR.to_owned())]);
    VirtualService {
        metadata: ObjectMeta {
            name: Some(virtual_service_name(gateway, host)),
            namespace: Some(settings.namespace.clone()),
            labels: Some(labels),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        },
        spec: VirtualServiceSpec {
            hosts: vec![host.to_owned()],
            gateways: vec![gateway.to_string()],
            http: routes,
            export_to: export_to(facts, settings),
        },
    }
}

/// The namespaces of the gateway's pods, by which Istio judges `exportTo`; all, while they are not known.
fn export_to(facts: Option<&GatewayFacts>, settings: &Settings) -> Vec<String> {
    let namespaces = facts.into_iter().flat_map(|facts| &facts.workload_namespaces);
    let mut entries: Vec<String> = namespaces
        .map(|namespace| if *namespace == settings.namespace { ".".to_owned() } else { namespace.clone() })
        .collect();
    entries.sort();
    if entries.is_empty() { vec!["*".to_owned()] } else { entries }
}

/// A hash of the parts, unmistakable wherever one ends and the next begins: none of them can hold a NUL.
fn hash(parts: &[&str]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part.as_bytes());
        hasher.update([0]);
    }
    let mut digits = String::with_capacity(2 * 32);
    for byte in hasher.finalize() {
        // Writing to a String cannot fail.
        let _ = write!(digits, "{byte:02x}");
    }
    digits.truncate(HASH_DIGITS);
    digits
}
