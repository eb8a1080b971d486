//! Whether the Services of a route exist, and what the gateway calls them.

use std::collections::{BTreeMap, HashMap};

use mesh_api::Reason;
use mesh_api::integrator::{Backend, Route};
use mesh_api::istio::{Destination, PortSelector};
use mesh_api::syntax::is_dns_label;

use crate::grants::{GrantIndex, Target};
use crate::input::{ObjectKey, ServiceFacts};
use crate::output::Finding;
use crate::text;

/// The largest weight. Istio reads 31 bits, and Envoy refuses a route whose weights sum to more than 32.
const MAX_WEIGHT: u32 = 1_000_000;

/// A Service that a route leads to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WeightedDestination<'a> {
    pub(crate) service: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) port: u16,
    pub(crate) weight: u32,
}

impl WeightedDestination<'_> {
    /// What Istio calls it in a cluster with this domain.
    pub(crate) fn destination(&self, cluster_domain: &str) -> Destination {
        let host = [self.service, ".", self.namespace, ".svc.", cluster_domain].concat();
        Destination { host, port: Some(PortSelector { number: self.port }) }
    }
}

/// The Services that exist.
pub(crate) struct ServiceIndex<'a>(HashMap<(&'a str, &'a str), &'a ServiceFacts>);

impl<'a> ServiceIndex<'a> {
    pub(crate) fn new(services: &'a BTreeMap<ObjectKey, ServiceFacts>) -> Self {
        let by_name = services.iter();
        Self(by_name.map(|(key, facts)| ((key.namespace.as_str(), key.name.as_str()), facts)).collect())
    }
}

/// What a route can lead to.
pub(crate) struct Targets<'t, 'a> {
    pub(crate) services: &'t ServiceIndex<'a>,
    pub(crate) grants: &'t GrantIndex<'a>,
}

/// The Services of a route.
pub(crate) struct Backends<'a> {
    /// Those that exist and get a share of the requests, or why the route answers 503.
    pub(crate) list: Result<Vec<WeightedDestination<'a>>, Finding>,
    /// Why some are left out, while others serve.
    pub(crate) missing: Option<Finding>,
    /// The namespaces of all of them, whether they exist or not.
    pub(crate) namespaces: Vec<&'a str>,
}

/// The Services of a route of a request in this namespace.
///
/// Those that do not exist are left out and the others take over their share: Istio has no destination that surely
/// answers 503, since a host name that nobody has may be claimed by a `ServiceEntry` of anybody.
pub(crate) fn resolve<'a>(route: &'a Route, namespace: &'a str, targets: &Targets<'_, '_>) -> Backends<'a> {
    let mut list: Vec<WeightedDestination<'_>> = Vec::with_capacity(route.backends.len());
    let mut missing = Vec::new();
    let mut namespaces: Vec<&str> = Vec::with_capacity(1);
    for backend in &route.backends {
        let of = backend.namespace.as_deref().unwrap_or(namespace);
        if !namespaces.contains(&of) {
            namespaces.push(of);
        }
        match resolve_one(backend, of, namespace, targets) {
            Ok(_) if backend.weight == 0 => {}
            Ok(destination) => list.push(destination),
            Err(finding) => missing.push(finding),
        }
    }
    namespaces.sort_unstable();
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
fn resolve_one<'a>(
    backend: &'a Backend,
    namespace: &'a str,
    from: &str,
    targets: &Targets<'_, '_>,
) -> Result<WeightedDestination<'a>, Finding> {
    let Backend { service, port, .. } = backend;
    if !is_dns_label(service) || !is_dns_label(namespace) || *port == 0 {
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
    let key = || ObjectKey::new(namespace, service.as_str());
    if namespace != from {
        targets.grants.check(from, Target::Service, &key())?;
    }
    let Some(facts) = targets.services.0.get(&(namespace, service.as_str())) else {
        let key = key();
        let message = format!("Service {key} does not exist: create it or correct backends[].service");
        return Err(Finding::bad(Reason::ServiceNotFound, message));
    };
    if facts.external_name {
        let key = key();
        let message = format!(
            "Service {key} is of type ExternalName: name one with endpoints in the cluster in backends[].service"
        );
        return Err(Finding::bad(Reason::UnsupportedService, message));
    }
    if !facts.ports.iter().any(|candidate| candidate.number == *port && candidate.tcp) {
        let mut numbers: Vec<u16> =
            facts.ports.iter().filter(|port| port.tcp).map(|port| port.number).collect();
        numbers.sort_unstable();
        let has = if numbers.is_empty() { "none".to_owned() } else { text::list(numbers, ", ") };
        let key = key();
        let message = format!("Service {key} has no TCP port {port}: correct backends[].port, it has {has}");
        return Err(Finding::bad(Reason::PortNotFound, message));
    }
    Ok(WeightedDestination { service, namespace, port: *port, weight: backend.weight })
}
