//! Our own check of every object before it is written.
//!
//! Nobody else protects the gateway from a bad one: Istio's webhook may be absent or let an object pass, and one bad
//! `VirtualService` can empty the whole configuration of a gateway. The compiler is not supposed to make any of the
//! faults that are looked for here.

use std::collections::BTreeSet;

use mesh_api::istio::{HttpRoute, StringMatch, VirtualService};
use mesh_api::names;
use mesh_api::syntax::{is_dns_label, is_host, path_problem};
use thiserror::Error;

use crate::table::MAX_ROUTES;

/// The largest object that is written, in bytes of JSON. The API server takes 1.5 MiB and keeps its own notes in it.
pub const MAX_BYTES: usize = 1024 * 1024;

/// What is wrong with an object.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field}: {fault}")]
pub struct Problem {
    /// The field.
    pub field: String,
    /// What is wrong with it.
    pub fault: String,
}

fn problem(field: impl Into<String>, fault: impl Into<String>) -> Problem {
    Problem { field: field.into(), fault: fault.into() }
}

/// Everything that is wrong with the `VirtualService`.
///
/// The rules are Istio's own validation of the fields we use, and ours: one concrete host and gateway, never `mesh`,
/// route names without a user's text, segment-safe prefixes, one full destination or an answer of the gateway's own.
pub fn validate(object: &VirtualService) -> Vec<Problem> {
    let mut problems = Vec::new();
    let name = object.metadata.name.as_deref().unwrap_or_default();
    if !is_dns_label(name) {
        problems.push(problem("metadata.name", format!("{name:?} is not a DNS label")));
    }
    if !object.metadata.namespace.as_deref().is_some_and(is_dns_label) {
        problems.push(problem("metadata.namespace", "it must be the integrator's namespace"));
    }
    match &object.spec.hosts[..] {
        [host] if is_host(host) => {}
        hosts => problems.push(problem("spec.hosts", format!("it must be one host, not {hosts:?}"))),
    }
    match &object.spec.gateways[..] {
        [gateway] if is_gateway(gateway) => {}
        gateways => problems
            .push(problem("spec.gateways", format!("it must be one namespace/name, not {gateways:?}"))),
    }
    check_export(&object.spec.export_to, &mut problems);
    if object.spec.http.is_empty() {
        problems.push(problem("spec.http", "it has no route"));
    }
    if object.spec.http.len() > MAX_ROUTES {
        problems.push(problem("spec.http", format!("it has more than {MAX_ROUTES} routes")));
    }
    let mut seen = BTreeSet::new();
    for (position, route) in object.spec.http.iter().enumerate() {
        check_route(route, &format!("spec.http[{position}]"), &mut seen, &mut problems);
    }
    match serde_json::to_vec(object) {
        Ok(json) if json.len() <= MAX_BYTES => {}
        Ok(json) => problems.push(problem("", format!("{} bytes are more than {MAX_BYTES}", json.len()))),
        Err(error) => problems.push(problem("", format!("it cannot be written as JSON: {error}"))),
    }
    problems
}

fn is_gateway(text: &str) -> bool {
    text.split_once('/').is_some_and(|(namespace, name)| {
        is_dns_label(namespace) && name.len() <= 253 && name.split('.').all(is_dns_label)
    })
}

fn check_export(entries: &[String], problems: &mut Vec<Problem>) {
    let distinct: BTreeSet<&String> = entries.iter().collect();
    if entries.is_empty() || distinct.len() != entries.len() {
        problems.push(problem("spec.exportTo", "it must name each namespace once"));
    }
    if entries.len() > 1 && entries.iter().any(|entry| entry == "*") {
        problems.push(problem("spec.exportTo", "* must stand alone"));
    }
    for entry in entries {
        if entry != "*" && entry != "." && !is_dns_label(entry) {
            problems.push(problem("spec.exportTo", format!("{entry:?} is not a namespace")));
        }
    }
}

fn check_route<'a>(
    route: &'a HttpRoute,
    field: &str,
    seen: &mut BTreeSet<(bool, &'a str)>,
    problems: &mut Vec<Problem>,
) {
    let digest = route.name.strip_prefix(names::OPEN_ROUTE_PREFIX).unwrap_or_default();
    if digest.is_empty() || !digest.bytes().all(|b| b.is_ascii_hexdigit()) {
        problems.push(problem(format!("{field}.name"), format!("{:?} is not a name of ours", route.name)));
    }
    if route.matches.is_empty() {
        problems.push(problem(format!("{field}.match"), "it matches everything"));
    }
    for (position, entry) in route.matches.iter().enumerate() {
        let field = format!("{field}.match[{position}].uri");
        let (exact, path) = match &entry.uri {
            Some(StringMatch::Exact(path)) => (true, path.as_str()),
            Some(StringMatch::Prefix(path)) => (false, path.as_str()),
            Some(StringMatch::Regex(_)) => {
                problems.push(problem(field, "it must be a path or a prefix"));
                continue;
            }
            None => {
                problems.push(problem(field, "it matches every path"));
                continue;
            }
        };
        if !exact && !path.ends_with('/') {
            problems.push(problem(&field, format!("prefix {path:?} does not end a segment")));
        }
        // The slash that ends a prefix does not count as part of the path that a user wrote.
        let written = if exact || path == "/" { path } else { path.strip_suffix('/').unwrap_or(path) };
        let empty = path.ends_with("//").then_some("it must not hold an empty segment (//)");
        if let Some(fault) = path_problem(written).or(empty) {
            problems.push(problem(&field, format!("{path:?}: {fault}")));
        }
        if !seen.insert((exact, path)) {
            problems.push(problem(
                &field,
                format!("{path:?} is matched by an earlier route, so that this one is dead"),
            ));
        }
    }
    check_target(route, field, problems);
}

fn check_target(route: &HttpRoute, field: &str, problems: &mut Vec<Problem>) {
    match (&route.route[..], &route.direct_response) {
        ([], Some(response)) => {
            if !(200..=599).contains(&response.status) {
                problems.push(problem(
                    format!("{field}.directResponse.status"),
                    format!("{} is no answer", response.status),
                ));
            }
        }
        ([only], None) => {
            let destination = &only.destination;
            let field = format!("{field}.route[0].destination");
            if !is_host(&destination.host) || !destination.host.contains('.') {
                problems.push(problem(
                    format!("{field}.host"),
                    format!("{:?} is not a full name", destination.host),
                ));
            }
            if destination.port.is_none_or(|port| port.number == 0) {
                problems.push(problem(format!("{field}.port"), "it has no port"));
            }
        }
        _ => problems.push(problem(field, "it must have one destination, or an answer of the gateway's own")),
    }
}
