//! Services with their endpoints, as the proxy and DNS need them. Pure.

use std::collections::{BTreeMap, HashMap};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Service, ServicePort};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::ResourceExt as _;

/// The label by which an `EndpointSlice` names its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// All Services by namespace and name.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    services: HashMap<(String, String), Entry>,
}

/// A Service.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    /// Its address; none if it is headless or has none yet.
    pub(crate) cluster_ip: Option<Ipv4Addr>,
    /// The addresses its load balancer got.
    pub(crate) load_balancer_ips: Vec<Ipv4Addr>,
    /// The name that an `ExternalName` Service stands for.
    pub(crate) external_name: Option<String>,
    /// Whether a client always reaches the same endpoint.
    pub(crate) sticky: bool,
    /// Its ports.
    pub(crate) ports: Vec<Port>,
    /// Ready endpoints' addresses with the host name of each, if it has one. In order, each once.
    pub(crate) members: Vec<Member>,
}

/// A port of a Service.
#[derive(Debug)]
pub(crate) struct Port {
    /// Its name, empty if it has none.
    pub(crate) name: String,
    /// `TCP`, `UDP` or `SCTP`.
    pub(crate) protocol: String,
    /// The number it has at the Service's address.
    pub(crate) number: u16,
    /// Where connections go.
    pub(crate) backends: Vec<SocketAddr>,
    /// The number it has at the endpoints, as far as they agree.
    pub(crate) backend_number: Option<u16>,
}

/// An endpoint that DNS tells of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Member {
    /// Its address.
    pub(crate) address: Ipv4Addr,
    /// The Pod's `hostname`, where it and its `subdomain` are set.
    pub(crate) hostname: Option<String>,
}

impl Directory {
    /// Collects Services and the slices that belong to them.
    pub(crate) fn new(services: &[Arc<Service>], slices: &[Arc<EndpointSlice>]) -> Self {
        let mut by_service: HashMap<(String, String), Vec<&EndpointSlice>> = HashMap::new();
        for slice in slices {
            if let (Some(namespace), Some(service)) = (slice.namespace(), slice.labels().get(SERVICE_NAME)) {
                by_service.entry((namespace, service.clone())).or_default().push(slice);
            }
        }
        let services = services.iter().filter_map(|service| {
            let key = (service.namespace()?, service.name_any());
            let mut slices = by_service.remove(&key).unwrap_or_default();
            // The order of a cache is arbitrary; endpoints must not change places for it.
            slices.sort_by_key(|slice| slice.name_any());
            Some((key, Entry::new(service, &slices)))
        });
        Self { services: services.collect() }
    }

    /// A Service by namespace and name.
    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<&Entry> {
        self.services.get(&(namespace.to_owned(), name.to_owned()))
    }

    /// Whether a namespace has any Service, so that its DNS name exists.
    pub(crate) fn has_namespace(&self, namespace: &str) -> bool {
        self.services.keys().any(|(other, _)| other == namespace)
    }

    /// For every address and TCP port that a Service answers at: where its connections go, and whether each client
    /// sticks to one endpoint.
    pub(crate) fn frontends(&self) -> BTreeMap<SocketAddrV4, Frontend> {
        let mut frontends = BTreeMap::new();
        for service in self.services.values() {
            for address in service.cluster_ip.iter().chain(&service.load_balancer_ips) {
                for port in service.ports.iter().filter(|port| port.protocol == "TCP") {
                    frontends.insert(
                        SocketAddrV4::new(*address, port.number),
                        Frontend { backends: port.backends.clone(), sticky: service.sticky },
                    );
                }
            }
        }
        frontends
    }
}

/// Where connections to one address and port go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Frontend {
    /// In the order of use.
    pub(crate) backends: Vec<SocketAddr>,
    /// `sessionAffinity: ClientIP`.
    pub(crate) sticky: bool,
}

impl Entry {
    fn new(service: &Service, slices: &[&EndpointSlice]) -> Self {
        let Some(spec) = &service.spec else { return Self::default() };
        let ingress = service
            .status
            .iter()
            .filter_map(|status| status.load_balancer.as_ref())
            .filter_map(|balancer| balancer.ingress.as_ref())
            .flatten();
        let mut members: Vec<_> = slices
            .iter()
            .flat_map(|slice| &slice.endpoints)
            .filter(|endpoint| is_ready(endpoint))
            .flat_map(|endpoint| {
                endpoint.addresses.iter().filter_map(|address| {
                    Some(Member { address: address.parse().ok()?, hostname: endpoint.hostname.clone() })
                })
            })
            .collect();
        members.sort();
        members.dedup();
        let external = spec.type_.as_deref() == Some("ExternalName");
        let ports = spec.ports.iter().flatten();
        Self {
            cluster_ip: spec.cluster_ip.as_deref().and_then(|address| address.parse().ok()),
            load_balancer_ips: if spec.type_.as_deref() == Some("LoadBalancer") {
                ingress.filter_map(|ingress| ingress.ip.as_deref()?.parse().ok()).collect()
            } else {
                Vec::new()
            },
            external_name: spec.external_name.clone().filter(|_| external),
            sticky: spec.session_affinity.as_deref() == Some("ClientIP"),
            ports: ports.filter_map(|port| Port::new(port, slices)).collect(),
            members,
        }
    }
}

impl Port {
    fn new(port: &ServicePort, slices: &[&EndpointSlice]) -> Option<Self> {
        let name = port.name.clone().unwrap_or_default();
        let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
        let mut ready = Vec::new();
        let mut going = Vec::new();
        let mut backend_number = None;
        for slice in slices {
            let same = |other: &&k8s_openapi::api::discovery::v1::EndpointPort| {
                other.name.as_deref().unwrap_or_default() == name
                    && other.protocol.as_deref().unwrap_or("TCP") == protocol
            };
            let found = slice.ports.iter().flatten().find(same);
            let Some(number) = found.and_then(|found| u16::try_from(found.port?).ok()) else { continue };
            backend_number.get_or_insert(number);
            for endpoint in &slice.endpoints {
                // Each endpoint is one address for the proxy, as for kube-proxy.
                let Some(address) = endpoint.addresses.first().and_then(|text| text.parse().ok()) else {
                    continue;
                };
                let backend = SocketAddr::new(address, number);
                if is_ready(endpoint) {
                    ready.push(backend);
                } else if serves_while_terminating(endpoint) {
                    going.push(backend);
                }
            }
        }
        let mut backends = if ready.is_empty() { going } else { ready };
        backends.sort();
        backends.dedup();
        Some(Self { name, protocol, number: u16::try_from(port.port).ok()?, backends, backend_number })
    }
}

/// An endpoint is ready unless it says otherwise (`EndpointConditions.ready`).
fn is_ready(endpoint: &Endpoint) -> bool {
    endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true)
}

/// Used only when no endpoint is ready, as kube-proxy does.
fn serves_while_terminating(endpoint: &Endpoint) -> bool {
    endpoint
        .conditions
        .as_ref()
        .is_some_and(|conditions| conditions.serving == Some(true) && conditions.terminating == Some(true))
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A directory from Services and slices written in JSON.
    pub(crate) fn directory(services: Value, slices: Value) -> Directory {
        let services: Vec<Service> = serde_json::from_value(services).unwrap();
        let slices: Vec<EndpointSlice> = serde_json::from_value(slices).unwrap();
        let arcs = |services: Vec<Service>| services.into_iter().map(Arc::new).collect::<Vec<_>>();
        Directory::new(&arcs(services), &slices.into_iter().map(Arc::new).collect::<Vec<_>>())
    }

    fn service(spec: &Value) -> Value {
        json!([{"metadata": {"namespace": "ns", "name": "web"}, "spec": spec,
                "status": {"loadBalancer": {"ingress": [{"ip": "10.97.0.1"}]}}}])
    }

    fn slice(endpoints: &Value) -> Value {
        json!([{"metadata": {"namespace": "ns", "name": "web-1", "labels": {SERVICE_NAME: "web"}},
                "addressType": "IPv4", "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
                "endpoints": endpoints}])
    }

    fn backends(directory: &Directory, frontend: &str) -> Option<Vec<String>> {
        let frontends = directory.frontends();
        let found = frontends.get(&frontend.parse().unwrap())?;
        Some(found.backends.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn ready_endpoints_serve_and_terminating_ones_only_when_alone() {
        let spec = json!({"type": "LoadBalancer", "clusterIP": "10.96.0.5",
                          "ports": [{"name": "http", "port": 80, "targetPort": "named"}]});
        let ready = json!({"addresses": ["10.244.0.2"], "conditions": {"ready": true}});
        let silent = json!({"addresses": ["10.244.0.4"]});
        let going = json!({"addresses": ["10.244.0.3"],
                           "conditions": {"ready": false, "serving": true, "terminating": true}});
        let unready = json!({"addresses": ["10.244.0.9"],
                             "conditions": {"ready": false, "serving": false, "terminating": false}});

        let all = directory(service(&spec), slice(&json!([going, silent, ready, unready])));
        let expected = Some(vec!["10.244.0.2:8080".to_owned(), "10.244.0.4:8080".to_owned()]);
        assert_eq!(backends(&all, "10.96.0.5:80"), expected);
        assert_eq!(backends(&all, "10.97.0.1:80"), expected);

        let leaving = directory(service(&spec), slice(&json!([going, unready])));
        assert_eq!(backends(&leaving, "10.96.0.5:80"), Some(vec!["10.244.0.3:8080".to_owned()]));
        let none = directory(service(&spec), slice(&json!([unready])));
        assert_eq!(backends(&none, "10.96.0.5:80"), Some(Vec::new()));
    }

    #[test]
    fn only_tcp_ports_of_the_right_name_have_frontends() {
        let spec = json!({"clusterIP": "10.96.0.5", "ports": [
            {"name": "http", "port": 80}, {"name": "other", "port": 81},
            {"name": "dns", "port": 53, "protocol": "UDP"}]});
        let directory = directory(service(&spec), slice(&json!([{"addresses": ["10.244.0.2"]}])));
        assert_eq!(backends(&directory, "10.96.0.5:80").unwrap().len(), 1);
        assert_eq!(backends(&directory, "10.96.0.5:81"), Some(Vec::new()));
        assert_eq!(backends(&directory, "10.96.0.5:53"), None);
        // It is no load balancer any more, so its old address is not its own.
        assert_eq!(backends(&directory, "10.97.0.1:80"), None);
    }
}
