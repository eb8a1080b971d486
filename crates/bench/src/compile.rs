//! `compile`: how long the route compiler takes, and how much memory.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow, ensure};
use mesh_api::{AuthProvider, GatewayBinding, IngressRequest};
use routes::guard::{Provider, TokenKey};
use routes::{
    ChainFacts, Compiler, GatewayFacts, Grants, Input, ObjectKey, ServiceFacts, ServicePort, Settings,
};
use serde::Serialize;
use serde_json::json;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many requests, each with a host of its own and four routes, two of which ask for a login.
    #[arg(long)]
    requests: usize,
}

/// Requests of one namespace.
const TEAM: usize = 20;

#[derive(Debug, Serialize)]
struct Measured {
    /// Requests compiled.
    requests: usize,
    /// `VirtualServices` made.
    objects: usize,
    /// Seconds of the first compile.
    seconds: f64,
    /// Seconds of a compile after one request has changed.
    changed_seconds: f64,
    /// Hosts made anew by that.
    changed_hosts: usize,
    /// Resident memory before the first compile, in KiB: the requests themselves.
    input_kib: u64,
    /// The most resident memory of the process up to the end of the first compile, in KiB.
    peak_kib: u64,
}

struct World {
    settings: Settings,
    bindings: Vec<GatewayBinding>,
    requests: Vec<IngressRequest>,
    providers: Vec<AuthProvider>,
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
    services: BTreeMap<ObjectKey, ServiceFacts>,
    gateways: BTreeMap<ObjectKey, GatewayFacts>,
    chains: BTreeMap<ObjectKey, ChainFacts>,
    grants: Grants,
    token_key: TokenKey,
}

/// Providers are in the namespaces of the platform, which binds one as the default.
const PROVIDERS: usize = 5;

impl World {
    fn new(requests: usize) -> Result<Self> {
        let gateway = ObjectKey::new("istio-system", "public");
        let facts = GatewayFacts {
            servers: serde_json::from_value(
                json!([{"port": {"number": 80, "name": "http", "protocol": "HTTP"}, "hosts": ["*"]}]),
            )?,
            workload_namespaces: BTreeSet::from(["istio-system".to_owned()]),
            has_pods: Some(true),
            gone: false,
        };
        let mut world = Self {
            settings: Settings::new("istio-integrator", "cluster.local"),
            bindings: Vec::new(),
            requests: Vec::with_capacity(requests),
            providers: Vec::new(),
            namespaces: BTreeMap::new(),
            services: BTreeMap::new(),
            gateways: BTreeMap::from([(gateway.clone(), facts)]),
            chains: BTreeMap::new(),
            grants: Grants { served: true, list: Vec::new() },
            token_key: TokenKey::new([7; 32]),
        };
        let mut chain = ChainFacts { chain: Some(Ok("chain".to_owned())), ..ChainFacts::default() };
        for number in 0..PROVIDERS {
            let provider: AuthProvider = serde_json::from_value(json!({
                "apiVersion": "integrator.istio-operators.io/v1alpha1",
                "kind": "AuthProvider",
                "metadata": {"name": format!("sso{number}"), "namespace": "auth", "uid": format!("uid-{number}"),
                             "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1},
                "spec": {"type": "ExtAuthz", "extAuthz": {"service": format!("sso{number}"), "port": 9000,
                         "identityHeaders": ["x-user", "x-groups"], "ownPaths": ["/oauth2/", "/ping"]}},
            }))?;
            let resolved =
                Provider::resolve(&provider, "cluster.local").map_err(|faults| anyhow!("{faults:?}"))?;
            let id = resolved.id();
            chain.holds.insert(id.clone());
            chain.ready.insert(id.clone());
            chain.known.insert(id, resolved);
            world.providers.push(provider);
            world.serve("auth", &format!("sso{number}"), 9000);
        }
        world.chains.insert(gateway, chain);
        // One binding for each provider, so that no grant is needed.
        for number in 0..PROVIDERS {
            world.bindings.push(serde_json::from_value(json!({
                "apiVersion": "integrator.istio-operators.io/v1alpha1",
                "kind": "GatewayBinding",
                "metadata": {"name": format!("public{number}"), "creationTimestamp": "2026-01-01T00:00:00Z"},
                "spec": {
                    "gateway": {"type": "IstioGateway", "istioGateway": {"namespace": "istio-system", "name": "public"}},
                    "namespaces": {"from": "All"},
                    "hosts": {"allowed": [{"pattern": "*.example.com", "namespaces": {"from": "All"}}]},
                    "auth": {"defaultProviderRef": {"namespace": "auth", "name": format!("sso{number}")}},
                },
            }))?);
        }
        for number in 0..requests {
            world.requests.push(Self::request(number)?);
            let namespace = namespace(number);
            world.namespaces.entry(namespace.clone()).or_default();
            world.serve(&namespace, "web", 80);
            world.serve(&namespace, "api", 80);
        }
        Ok(world)
    }

    fn serve(&mut self, namespace: &str, name: &str, number: u16) {
        let ports = vec![ServicePort { number, tcp: true }];
        self.services.insert(ObjectKey::new(namespace, name), ServiceFacts { external_name: false, ports });
    }

    fn request(number: usize) -> Result<IngressRequest> {
        // Of different ages, in an order that is not that of the names.
        let age = number * 7919 % 86_400;
        let time = format!("2026-01-02T{:02}:{:02}:{:02}Z", age / 3600, age / 60 % 60, age % 60);
        Ok(serde_json::from_value(json!({
            "apiVersion": "integrator.istio-operators.io/v1alpha1",
            "kind": "IngressRequest",
            "metadata": {"name": format!("app{number}"), "namespace": namespace(number), "uid": format!("r{number}"),
                         "creationTimestamp": time, "generation": 1},
            "spec": {
                "bindingRef": {"name": format!("public{}", number % PROVIDERS)},
                "hosts": [format!("app{number}.example.com")],
                "routes": [
                    {"backends": [{"service": "web", "port": 80}]},
                    {"path": {"value": "/api"}, "backends": [{"service": "api", "port": 80}]},
                    {"path": {"value": "/static"}, "auth": {"type": "None"}, "backends": [{"service": "web", "port": 80}]},
                    {"path": {"type": "Exact", "value": "/health"}, "auth": {"type": "None"},
                     "backends": [{"service": "web", "port": 80}]},
                ],
            },
        }))?)
    }

    fn input(&self) -> Input<'_> {
        Input {
            settings: &self.settings,
            istio_served: true,
            bindings: self.bindings.iter().collect(),
            requests: self.requests.iter().collect(),
            namespaces: &self.namespaces,
            services: &self.services,
            gateways: &self.gateways,
            providers: self.providers.iter().collect(),
            grants: &self.grants,
            claims: const { &BTreeMap::new() },
            foreign: &[],
            written: const { &BTreeMap::new() },
            chains: &self.chains,
            token_key: &self.token_key,
        }
    }
}

fn namespace(number: usize) -> String {
    format!("team{}", number / TEAM)
}

/// A field of `/proc/self/status` in KiB: proc(5).
fn memory(field: &str) -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with(field)).with_context(|| format!("no {field}"))?;
    Ok(line.split_whitespace().nth(1).context("a number")?.parse()?)
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut world = World::new(args.requests)?;
    let input_kib = memory("VmRSS:")?;
    let mut compiler = Compiler::default();
    let start = Instant::now();
    let output = compiler.compile(&world.input());
    let seconds = start.elapsed().as_secs_f64();
    let peak_kib = memory("VmHWM:")?;
    ensure!(output.virtual_services.len() == args.requests, "{} objects", output.virtual_services.len());
    let unready = output.requests.iter().find(|verdict| verdict.refused());
    ensure!(unready.is_none(), "a request is refused, which measures something else: {unready:?}");
    let protected = output.virtual_services.iter().flat_map(|object| &object.spec.http);
    let protected =
        protected.filter(|route| route.name.starts_with("ii.auth-") && !route.route.is_empty()).count();
    ensure!(protected >= args.requests * 2, "only {protected} protected routes");
    drop(output);

    let changed = world.requests.get_mut(args.requests / 2).context("a request to change")?;
    let backend = changed.spec.routes.first_mut().and_then(|route| route.backends.first_mut());
    "api".clone_into(&mut backend.context("a backend")?.service);
    let start = Instant::now();
    let output = compiler.compile(&world.input());
    let changed_seconds = start.elapsed().as_secs_f64();
    let changed_hosts = compiler.made();
    super::say(&Measured {
        requests: args.requests,
        objects: output.virtual_services.len(),
        seconds,
        changed_seconds,
        changed_hosts,
        input_kib,
        peak_kib,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_of_the_world_is_served_and_a_change_makes_one_host_anew() {
        let mut world = World::new(50).unwrap();
        let mut compiler = Compiler::default();
        let output = compiler.compile(&world.input());
        assert_eq!((output.virtual_services.len(), compiler.made()), (50, 50));
        assert!(output.requests.iter().all(|verdict| !verdict.refused()));
        "api".clone_into(&mut world.requests[25].spec.routes[0].backends[0].service);
        compiler.compile(&world.input());
        assert_eq!(compiler.made(), 1);
    }
}
