//! What is compiled: the requests and bindings, and the facts about the cluster on which a verdict depends.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mesh_api::istio::{Gateway, GatewayServer};
use mesh_api::{AuthProvider, GatewayBinding, IngressRequest};

use crate::guard::{Provider, ProviderId, TokenKey};
use crate::output::Finding;

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
    /// The providers, in any order.
    pub providers: Vec<&'a AuthProvider>,
    /// What owners of other namespaces allow.
    pub grants: &'a Grants,
    /// The `ServiceEntries` that claim a host name in the cluster's domain, by that name.
    pub claims: &'a BTreeMap<String, Vec<ObjectKey>>,
    /// `VirtualServices` of others, as far as they are attached to a gateway that a binding names.
    pub foreign: &'a [ForeignRoutes],
    /// When each `VirtualService` of ours was created, by name. One that is not listed does not exist yet.
    pub written: &'a BTreeMap<String, Option<Time>>,
    /// The guard chain of each gateway, as it is now. A gateway that is not listed has none.
    pub chains: &'a BTreeMap<ObjectKey, ChainFacts>,
    /// From which the tokens of providers are derived.
    pub token_key: &'a TokenKey,
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
    /// The most providers of one namespace: [`crate::MAX_PROVIDERS_PER_NAMESPACE`] unless told otherwise.
    pub max_providers_per_namespace: usize,
    /// The most providers of one guard chain: [`crate::MAX_PROVIDERS_PER_GATEWAY`] unless told otherwise.
    pub max_providers_per_gateway: usize,
}

impl Settings {
    /// The settings of an integrator in this namespace, with the default limits.
    pub fn new(namespace: impl Into<String>, cluster_domain: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            cluster_domain: cluster_domain.into(),
            max_providers_per_namespace: crate::MAX_PROVIDERS_PER_NAMESPACE,
            max_providers_per_gateway: crate::MAX_PROVIDERS_PER_GATEWAY,
        }
    }
}

/// The `ReferenceGrants` of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    /// Whether the cluster serves the kind. Where it does not, nothing is granted.
    pub served: bool,
    /// The grants, in any order.
    pub list: Vec<Grant>,
}

/// A `ReferenceGrant` of the Gateway API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// Its namespace, to which it lets others refer.
    pub namespace: String,
    /// Who may refer.
    pub from: Vec<GrantFrom>,
    /// To what.
    pub to: Vec<GrantTo>,
}

/// Who may refer to objects in the namespace of a grant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrantFrom {
    /// The API group of the referring object.
    pub group: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
}

/// What may be referred to in the namespace of a grant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrantTo {
    /// The API group; empty for the core group.
    pub group: String,
    /// The kind.
    pub kind: String,
    /// The name; all of the kind where there is none.
    pub name: Option<String>,
}

/// A `VirtualService` of somebody else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignRoutes {
    /// Its namespace and name.
    pub key: ObjectKey,
    /// When it was created, by which Istio orders those of one host.
    pub created: Option<Time>,
    /// The Gateways it is attached to.
    pub gateways: Vec<ObjectKey>,
    /// Its hosts, in lower case.
    pub hosts: Vec<String>,
    /// The namespaces whose proxies see it, as its `exportTo` says it; empty for every one.
    pub export_to: Vec<String>,
    /// Who made it, for people: a field manager or the value of its managed-by label.
    pub owner: String,
}

/// The guard chain of a gateway, as the gateway's pods hold it.
#[derive(Clone, Debug, Default)]
pub struct ChainFacts {
    /// What the gateway's pods are called: gateways of one name share pods, on whose ports Istio mixes their routes. `None`
    /// where that is not known (see [`crate::guard::pod_sets`]).
    pub pods: Option<String>,
    /// What the chain is called; gateways of one chain share its providers. Or why there can be none.
    pub chain: Option<Result<String, Finding>>,
    /// The providers whose check every ready pod holds.
    pub holds: BTreeSet<ProviderId>,
    /// Those of them that no connection can miss any more, since the drain time has passed.
    pub ready: BTreeSet<ProviderId>,
    /// Every provider in the chain as it is written, by which routes can stay with an older form of a provider.
    pub known: BTreeMap<ProviderId, Provider>,
    /// Whether Istio was told not to normalize paths (mesh config `pathNormalization: NONE`).
    pub paths_not_normalized: bool,
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
