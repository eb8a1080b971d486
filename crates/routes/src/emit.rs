//! From decided routes to Istio objects.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use mesh_api::istio::{VirtualService, VirtualServiceSpec};
use mesh_api::names;
use sha2::{Digest as _, Sha256};

use crate::input::{GatewayFacts, ObjectKey, Settings};

/// How much of a host a name shows.
const READABLE: usize = 40;
/// The hexadecimal digits of a hash: 80 bits, so that nobody finds a second host with the same name.
const HASH_DIGITS: usize = 20;

/// The name of the `VirtualService` of this host on this gateway: a DNS label, the same on every run.
pub fn virtual_service_name(gateway: &ObjectKey, host: &str) -> String {
    let readable: String = host.chars().take(READABLE).map(|c| if c == '.' { '-' } else { c }).collect();
    format!("{}-{}", readable.trim_end_matches('-'), hash(&[&gateway.namespace, &gateway.name, host]))
}

/// The `VirtualService` of this name for a host on a gateway, without routes.
pub(crate) fn virtual_service(
    name: String,
    gateway: &ObjectKey,
    facts: Option<&GatewayFacts>,
    host: &str,
    settings: &Settings,
) -> VirtualService {
    let annotations = BTreeMap::from([
        (names::GATEWAY_ANNOTATION.to_owned(), gateway.to_string()),
        (names::HOST_ANNOTATION.to_owned(), host.to_owned()),
    ]);
    let labels = BTreeMap::from([(names::MANAGED_BY_LABEL.to_owned(), names::INTEGRATOR.to_owned())]);
    VirtualService {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: Some(settings.namespace.clone()),
            labels: Some(labels),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        },
        spec: VirtualServiceSpec {
            hosts: vec![host.to_owned()],
            gateways: vec![gateway.to_string()],
            http: Vec::new(),
            export_to: export_to(facts, settings),
        },
    }
}

/// The namespaces of the gateway's pods, by which Istio judges `exportTo`; all, while they are not known.
pub(crate) fn export_to(facts: Option<&GatewayFacts>, settings: &Settings) -> Vec<String> {
    let namespaces = facts.into_iter().flat_map(|facts| &facts.workload_namespaces);
    let mut entries: Vec<String> = namespaces
        .map(|namespace| if *namespace == settings.namespace { ".".to_owned() } else { namespace.clone() })
        .collect();
    entries.sort();
    if entries.is_empty() { vec!["*".to_owned()] } else { entries }
}

/// A hash of the parts, unmistakable wherever one ends and the next begins: none of them can hold a NUL.
pub(crate) fn hash(parts: &[&str]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part.as_bytes());
        hasher.update([0]);
    }
    hexadecimal(hasher.finalize().get(..HASH_DIGITS / 2).unwrap_or_default())
}

/// The bytes as lower-case hexadecimal digits.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from(if value < 10 { b'0' + value } else { b'a' + value - 10 });
    let mut digits = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        digits.push(digit(byte >> 4));
        digits.push(digit(byte & 15));
    }
    digits
}
