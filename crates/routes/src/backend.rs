//! Whether the Service of a route exists, and what the gateway calls it.

use mesh_api::Reason;
use mesh_api::integrator::Backend;
use mesh_api::istio::{Destination, PortSelector};
use mesh_api::syntax::is_dns_label;

use crate::input::{Input, ObjectKey};
use crate::output::Finding;
use crate::text;

/// The destination of a backend of a request in this namespace, or why there is none.
pub(crate) fn resolve(backend: &Backend, namespace: &str, input: &Input<'_>) -> Result<Destination, Finding> {
    let Backend { service, port, .. } = backend;
    if !is_dns_label(service) || *port == 0 {
        let message =
            format!("backend {service}:{port} is not the name of a Service and a port from 1 to 65535");
        return Err(Finding::bad(Reason::InvalidSpec, message));
    }
    let key = ObjectKey::new(namespace, service);
    let Some(facts) = input.services.get(&key) else {
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
        host: format!("{service}.{namespace}.svc.{}", input.settings.cluster_domain),
        port: Some(PortSelector { number: *port }),
    })
}
