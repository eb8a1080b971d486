//! A cluster with two gateways, as the compiler and as a gateway see it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use mesh_api::istio::{Gateway, GatewayPort, GatewayServer, GatewaySpec, GatewayTls, VirtualService};
use mesh_api::{AuthProvider, GatewayBinding, IngressRequest};
use routes::eval::{ChainState, Evaluator, Mesh, PathNormalization, Proxy};
use routes::guard::{ProviderId, TokenKey};
use routes::{ChainFacts, GatewayFacts, Grants, Input, ObjectKey, Output, ServiceFacts, Settings};

/// The integrator's namespace.
pub(crate) const OWN: &str = "ii";
/// The two gateways and the namespaces of their pods, of which one is the integrator's own.
pub(crate) const GATEWAYS: [(&str, &str, &str); 2] = [("edge", "public", "edge"), ("edge", "internal", OWN)];

#[derive(Clone)]
pub(crate) struct World {
    pub bindings: Vec<GatewayBinding>,
    pub requests: Vec<IngressRequest>,
    pub providers: Vec<AuthProvider>,
    pub grants: Grants,
    pub claims: BTreeMap<String, Vec<ObjectKey>>,
    pub services: BTreeMap<ObjectKey, ServiceFacts>,
    /// The servers of each of [`GATEWAYS`]; a gateway without any does not exist.
    pub servers: [Vec<GatewayServer>; 2],
    pub namespaces: BTreeMap<String, BTreeMap<String, String>>,
    /// Whether Istio was told not to normalize paths.
    pub not_normalized: bool,
    pub max_providers_per_namespace: usize,
    pub max_providers_per_gateway: usize,
}

/// What the integrator knows of the chains: for each gateway the providers that are proved, and those of them for which
/// the drain time has passed, by their ids.
pub(crate) type Chains = BTreeMap<ObjectKey, ChainFacts>;

pub(crate) fn key() -> TokenKey {
    TokenKey::new([7; 32])
}

pub(crate) fn at(second: i64) -> Time {
    Time(Timestamp::from_second(1_700_000_000 + second).expect("a time"))
}

pub(crate) fn gateway_key(place: usize) -> ObjectKey {
    let (namespace, name, _) = GATEWAYS[place];
    ObjectKey::new(namespace, name)
}

/// A server of this port; TLS mode `redirect` is a plain server that redirects.
pub(crate) fn server(number: u32, tls: Option<&str>, hosts: &[&str]) -> GatewayServer {
    let redirects = tls == Some("redirect");
    let protocol = if tls.is_none() || redirects { "HTTP" } else { "HTTPS" };
    GatewayServer {
        port: GatewayPort { number, name: format!("port-{number}"), protocol: protocol.to_owned() },
        hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
        tls: tls.map(|mode| GatewayTls {
            mode: if redirects { String::new() } else { mode.to_owned() },
            https_redirect: redirects,
        }),
    }
}

impl World {
    pub(crate) fn settings(&self) -> Settings {
        let mut settings = Settings::new(OWN, "cluster.local");
        settings.max_providers_per_namespace = self.max_providers_per_namespace;
        settings.max_providers_per_gateway = self.max_providers_per_gateway;
        settings
    }

    /// Compiles it, with what is known of the chains.
    pub(crate) fn compile_with(&self, chains: &Chains) -> Output {
        let settings = self.settings();
        let token_key = key();
        let gateways = self.facts();
        let mut chains = chains.clone();
        for place in 0..GATEWAYS.len() {
            chains.entry(gateway_key(place)).or_default().paths_not_normalized = self.not_normalized;
        }
        routes::compile(&Input {
            settings: &settings,
            istio_served: true,
            bindings: self.bindings.iter().collect(),
            requests: self.requests.iter().collect(),
            providers: self.providers.iter().collect(),
            grants: &self.grants,
            claims: &self.claims,
            foreign: &[],
            written: &BTreeMap::new(),
            chains: &chains,
            token_key: &token_key,
            namespaces: &self.namespaces,
            services: &self.services,
            gateways: &gateways,
        })
    }

    pub(crate) fn compile(&self) -> Output {
        self.compile_with(&BTreeMap::new())
    }

    fn facts(&self) -> BTreeMap<ObjectKey, GatewayFacts> {
        let existing = self.servers.iter().enumerate().filter(|(_, servers)| !servers.is_empty());
        let facts = existing.map(|(place, servers)| {
            let facts = GatewayFacts {
                servers: servers.clone(),
                workload_namespaces: BTreeSet::from([GATEWAYS[place].2.to_owned()]),
                has_pods: Some(true),
                gone: false,
            };
            (gateway_key(place), facts)
        });
        facts.collect()
    }

    fn gateway(&self, place: usize) -> Gateway {
        let (namespace, name, _) = GATEWAYS[place];
        let selector = BTreeMap::from([("gateway".to_owned(), name.to_owned())]);
        let mut gateway = Gateway::new(name, GatewaySpec { servers: self.servers[place].clone(), selector });
        gateway.metadata.namespace = Some(namespace.to_owned());
        gateway
    }

    /// The pods of a gateway with these objects.
    pub(crate) fn evaluator<'s>(
        &self,
        place: usize,
        services: impl IntoIterator<Item = &'s VirtualService>,
        paths: PathNormalization,
    ) -> Evaluator {
        let (_, name, pods) = GATEWAYS[place];
        let proxy = Proxy {
            namespace: pods.to_owned(),
            labels: BTreeMap::from([("gateway".to_owned(), name.to_owned())]),
            paths,
        };
        let gateways = [self.gateway(0), self.gateway(1)];
        let mesh = Mesh {
            proxy: &proxy,
            cluster_domain: "cluster.local",
            gateways: gateways.iter().collect(),
            virtual_services: services.into_iter().collect(),
        };
        Evaluator::new(&mesh).expect("objects that Istio takes")
    }

    /// How the gateways read paths.
    pub(crate) fn paths(&self) -> PathNormalization {
        if self.not_normalized { PathNormalization::None } else { PathNormalization::Base }
    }
}

/// A chain that holds the providers of these ids.
pub(crate) fn holds<'i>(ids: impl IntoIterator<Item = &'i ProviderId>) -> ChainState {
    let key = key();
    ChainState::holds(ids.into_iter().map(|id| (id.to_string(), key.token(id))))
}

/// Short enough to be read when a property fails.
impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let json = |value: serde_json::Result<serde_json::Value>| value.unwrap_or_default().to_string();
        let told = |metadata: &ObjectMeta| {
            let second = metadata.creation_timestamp.as_ref().map(|time| time.0.as_second() - 1_700_000_000);
            let gone = if metadata.deletion_timestamp.is_some() { " (deleted)" } else { "" };
            let namespace = metadata.namespace.as_deref().unwrap_or("-");
            format!("{namespace}/{} at {second:?}{gone}", metadata.name.as_deref().unwrap_or("-"))
        };
        writeln!(f, "World")?;
        for one in &self.bindings {
            writeln!(f, "  binding {}: {}", told(&one.metadata), json(serde_json::to_value(&one.spec)))?;
        }
        for one in &self.requests {
            writeln!(f, "  request {}: {}", told(&one.metadata), json(serde_json::to_value(&one.spec)))?;
        }
        for one in &self.providers {
            writeln!(f, "  provider {}: {}", told(&one.metadata), json(serde_json::to_value(&one.spec)))?;
        }
        for (place, servers) in self.servers.iter().enumerate() {
            writeln!(f, "  servers of {}: {}", gateway_key(place), json(serde_json::to_value(servers)))?;
        }
        for (key, facts) in &self.services {
            let ports: Vec<_> = facts.ports.iter().map(|port| (port.number, port.tcp)).collect();
            writeln!(f, "  service {key}: {ports:?}, alias: {}", facts.external_name)?;
        }
        writeln!(f, "  grants {:?}\n  claims {:?}", self.grants, self.claims)?;
        writeln!(
            f,
            "  not normalized: {}, limits {} and {}",
            self.not_normalized, self.max_providers_per_namespace, self.max_providers_per_gateway
        )
    }
}
