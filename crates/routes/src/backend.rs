//! Whether the Services of a route exist, and what the gateway calls them.

use mesh_api::Reason;
use mesh_api::integrator::{Backend, Route};
use mesh_api::istio::{Destination, PortSelector};
use mesh_api::syntax::is_dns_label;

use crate::grants::{GrantIndex, Target};
use crate::input::{Input, ObjectKey};
use crate::output::Finding;
use crate::text;

/// The largest weight. Istio reads 31 bits, and Envoy refuses a route whose weights sum to more than 32.
const MAX_WEIGHT: u32 = 1_000_000;

/// A Service that a route leads to.
#[derive(Clone, Debug)]
pub(crate) struct WeightedDestination {
    pub(crate) destination: Destination,
    pub(crate) weight: u32,
}

/// The Services of a route.
pub(crate) struct Backends {
    /// Those that exist and get a share of the requests, or why the route answers 503.
    pub(crate) list: Result<Vec<WeightedDestination>, Finding>,
    /// Why some are left out, while others serve.
    pub(crate) missing: Option<Finding>,
    /// The namespaces of all of them, whether they exist or not.
    pub(crate) namespaces: Vec<String>,
}

/// The Services of a route of a request in this namespace.
///
/// Those that do not exist are left out and the others take over their share: Istio has no destination that surely
/// answers 503, since a host name that nobody has may be claimed by a `ServiceEntry` of anybody.
pub(crate) fn resolve(
    route: &Route,
    namespace: &str,
    input: &Input<'_>,
    grants: &GrantIndex<'_>,
) -> Backends {
    let mut list: Vec<WeightedDestination> = Vec::new();
    let mut missing = Vec::new();
    let mut namespaces: Vec<String> = Vec::new();
    for backend in &route.backends {
        let of = backend.namespace.as_deref().unwrap_or(namespace);
        if !namespaces.iter().any(|known| known == of) {
            namespaces.push(of.to_owned());
        }
        let resolved =
            resolve_one(backend, &ObjectKey::new(of, backend.service.as_str()), namespace, input, grants);
        match resolved {
            Ok(_) if backend.weight == 0 => {}
            Ok(destination) => {
                list.push(WeightedDestination { destination, weight: backend.weight });
            }
            Err(finding) => missing.push(finding),
        }
    }
    namespaces.sort();
    let Some(first) = missing.first() else {
        let list = if list.is_empty() {
            let message = format!(
                "path {}: each backends[].weight is 0, so that nothing would serve it: give at least one a weight above 0",
                route.path.value
            );
            Err(Finding::bad(Reason::InvalidSpec, message))
        } else {
            Ok(list)
        };
        return Backends { list, missing: None, namespaces };
    };
    let messages = text::list(missing.iter().map(|finding| &finding.message), "; ");
    if list.is_empty() {
        return Backends { list: Err(Finding::bad(first.reason, messages)), missing: None, namespaces };
    }
    let finding =
        Finding::bad(Reason::BackendsMissing, format!("{messages}; the other backends serve its share"));
    Backends { list: Ok(list), missing: Some(finding), namespaces }
}

/// The destination of a backend of a request in namespace `from`, or why there is none.
fn resolve_one(
    backend: &Backend,
    key: &ObjectKey,
    from: &str,
    input: &Input<'_>,
    grants: &GrantIndex<'_>,
) -> Result<Destination, Finding> {
    let Backend { service, port, .. } = backend;
    if !is_dns_label(service) || !is_dns_label(&key.namespace) || *port == 0 {
        let message = format!(
            "backend {service}:{port}: set backends[].service to the name of a Service and backends[].port to a number \
                 from 1 to 65535"
        );
        return Err(Finding::bad(Reason::InvalidSpec, message));
    }
    if backend.weight > MAX_WEIGHT {
        let weight = backend.weight;
        let message = format!(
            "backend {service}:{port}: set backends[].weight, which is {weight}, to one from 0 to {MAX_WEIGHT}"
        );
        return Err(Finding::bad(Reason::InvalidSpec, message));
    }
    grants.check(from, Target::Service, key)?;
    let Some(facts) = input.services.get(key) else {
        let message = format!("Service {key} does not exist: create it or correct backends[].service");
        return Err(Finding::bad(Reason::ServiceNotFound, message));
    };
    if facts.external_name {
        let message =
            format!("Service {key} is of type ExternalName: name a Service with endpoints in the cluster");
        return Err(Finding::bad(Reason::UnsupportedService, message));
    }
    if !facts.ports.iter().any(|candidate| candidate.number == *port && candidate.tcp) {
        let mut numbers: Vec<u16> =
            facts.ports.iter().filter(|port| port.tcp).map(|port| port.number).collect();
        numbers.sort_unstable();
        let has = if numbers.is_empty() { "none".to_owned() } else { text::list(numbers, ", ") };
        let message = format!("Service {key} has no TCP port {port}: correct backends[].port, it has {has}");
        return Err(Finding::bad(Reason::PortNotFound, message));
    }
    Ok(Destination {
        host: format!("{service}.{}.svc.{}", key.namespace, input.settings.cluster_domain),
        port: Some(PortSelector { number: *port }),
    })
}
