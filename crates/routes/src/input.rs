//! What is compiled: the requests and bindings, and the facts about the cluster on which a verdict depends.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use k8s_openapi::api::core::v1::Service;
use mesh_api::istio::{Gateway, GatewayServer};
use mesh_api::{GatewayBinding, IngressRequest};

/// Everything that [`crate::compile()`] looks at.
///
/// Objects that are being deleted may be listed; they are treated as gone.
#[derive(Clone, Debug)]
pub struct Input<'a> {
    /// The integrator's own settings.
    pub settings: &'a Settings,
    /// Whether the cluster serves Istio's Gateway and `VirtualService`.
    pub istio_served: bool,
    /// The bindings, in any order.
    pub bindings: Vec<&'a GatewayBinding>,
    /// The requests, in any order.
    pub requests: Vec<&'a IngressRequest>,
    /// The labels of namespaces. One that is not listed has none.
    pub namespaces: &'a BTreeMap<String, BTreeMap<String, String>>,
    /// The Services that exist, at least in the namespaces of the requests.
    pub services: &'a BTreeMap<ObjectKey, ServiceFacts>,
    /// The Istio Gateways that exist, at least those that bindings name.
    pub gateways: &'a BTreeMap<ObjectKey, GatewayFacts>,
}

/// The integrator's own settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The namespace of the integrator, in which everything it generates lives.
    pub namespace: String,
    /// The DNS domain of the cluster, such as `cluster.local`.
    pub cluster_domain: String,
}

/// The namespace and name of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl ObjectKey {
    /// The key of these two.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What matters of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceFacts {
    /// Whether it is of type `ExternalName`: an alias of any DNS name whatever.
    pub external_name: bool,
    /// Its ports.
    pub ports: Vec<ServicePort>,
}

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServicePort {
    /// The number by which clients address it.
    pub number: u16,
    /// Whether its transport is TCP, without which there is no HTTP.
    pub tcp: bool,
}

impl From<&Service> for ServiceFacts {
    fn from(service: &Service) -> Self {
        let Some(spec) = &service.spec else { return Self::default() };
        let ports = spec.ports.iter().flatten().filter_map(|port| {
            let tcp = port.protocol.as_deref().is_none_or(|protocol| protocol == "TCP");
            u16::try_from(port.port).ok().map(|number| ServicePort { number, tcp })
        });
        Self { external_name: spec.type_.as_deref() == Some("ExternalName"), ports: ports.collect() }
    }
}

/// What matters of an Istio Gateway and the pods that run it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatewayFacts {
    /// Its servers.
    pub servers: Vec<GatewayServer>,
    /// The namespaces of the pods that run it, to which alone its routes are exported. When its pods are gone for a
    /// while, list where they were last seen, or every route is written anew. Empty when it was never known; the
    /// routes are then exported to all namespaces, so that whichever pods come find them.
    pub workload_namespaces: BTreeSet<String>,
    /// Whether there is a pod that runs it; `None` when nobody looked.
    pub has_pods: Option<bool>,
    /// Whether the Gateway is gone, and these facts only tell where its pods last were. A Gateway that comes and goes
    /// must not have every one of its routes written each time.
    pub gone: bool,
}

impl From<&Gateway> for GatewayFacts {
    fn from(gateway: &Gateway) -> Self {
        Self { servers: gateway.spec.servers.clone(), ..Self::default() }
    }
}
