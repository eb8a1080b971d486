//! A small world to compile: one gateway, one default binding, and what a test adds.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use mesh_api::integrator::{
    AllowedHost, AuthProviderSpec, AuthProviderType, AuthType, Backend, BindingAuth, BindingReference,
    ExtAuthz, ExtAuthzProtocol, GatewayBindingSpec, GatewayReference, GatewayType, HostPolicy,
    IngressRequestSpec, IstioGatewayReference, NamespaceSelection, NamespacesFrom, PathMatch, PathMatchType,
    ProviderReference, RequestAuth, Route,
};
use mesh_api::istio::{
    GatewayPort, GatewayServer, GatewayTls, HttpMatch, HttpRoute, StringMatch, VirtualService,
};
use mesh_api::{AuthProvider, GatewayBinding, IngressRequest, Reason};

use crate::guard::{Provider, TokenKey};
use crate::{
    ChainFacts, ForeignRoutes, GatewayFacts, Grants, Input, ObjectKey, Output, RequestVerdict, ServiceFacts,
    ServicePort, Settings, compile,
};

pub(super) struct World {
    pub(super) settings: Settings,
    pub(super) istio_served: bool,
    pub(super) bindings: Vec<GatewayBinding>,
    pub(super) requests: Vec<IngressRequest>,
    pub(super) namespaces: BTreeMap<String, BTreeMap<String, String>>,
    pub(super) services: BTreeMap<ObjectKey, ServiceFacts>,
    pub(super) gateways: BTreeMap<ObjectKey, GatewayFacts>,
    pub(super) providers: Vec<AuthProvider>,
    pub(super) grants: Grants,
    pub(super) claims: BTreeMap<String, Vec<ObjectKey>>,
    pub(super) foreign: Vec<ForeignRoutes>,
    pub(super) written: BTreeMap<String, Option<Time>>,
    pub(super) chains: BTreeMap<ObjectKey, ChainFacts>,
    pub(super) token_key: TokenKey,
}

impl World {
    /// Gateway `istio-system/public` for every host on port 80, run by pods in `istio-system`; a default binding
    /// `public` for all namespaces with domain `apps.example` and allowed hosts `*.example`; Services `shop`, port 80
    /// and 8080, in `a`, `b` and `c`.
    pub(super) fn new() -> Self {
        let mut world = Self {
            settings: Settings::new("istio-integrator", "cluster.local"),
            providers: Vec::new(),
            grants: Grants { served: true, list: Vec::new() },
            claims: BTreeMap::new(),
            foreign: Vec::new(),
            written: BTreeMap::new(),
            chains: BTreeMap::new(),
            token_key: TokenKey::new([7; 32]),
            istio_served: true,
            bindings: vec![binding("public", |_| {})],
            requests: Vec::new(),
            namespaces: BTreeMap::new(),
            services: BTreeMap::new(),
            gateways: BTreeMap::from([(
                ObjectKey::new("istio-system", "public"),
                gateway(&[server(80, "HTTP", "", &["*"])]),
            )]),
        };
        for namespace in ["a", "b", "c"] {
            world = world.service(namespace, "shop", &[80, 8080]);
        }
        world
    }

    pub(super) fn with(mut self, request: IngressRequest) -> Self {
        self.requests.push(request);
        self
    }

    pub(super) fn bound(mut self, bindings: impl IntoIterator<Item = GatewayBinding>) -> Self {
        self.bindings = bindings.into_iter().collect();
        self
    }

    pub(super) fn service(mut self, namespace: &str, name: &str, ports: &[u16]) -> Self {
        let ports = ports.iter().map(|number| ServicePort { number: *number, tcp: true }).collect();
        self.services.insert(ObjectKey::new(namespace, name), ServiceFacts { external_name: false, ports });
        self
    }

    pub(super) fn gateway(mut self, facts: GatewayFacts) -> Self {
        self.gateways.insert(ObjectKey::new("istio-system", "public"), facts);
        self
    }

    pub(super) fn compile(&self) -> Output {
        compile(&self.input())
    }

    pub(super) fn input(&self) -> Input<'_> {
        Input {
            settings: &self.settings,
            istio_served: self.istio_served,
            bindings: self.bindings.iter().collect(),
            requests: self.requests.iter().collect(),
            namespaces: &self.namespaces,
            services: &self.services,
            gateways: &self.gateways,
            providers: self.providers.iter().collect(),
            grants: &self.grants,
            claims: &self.claims,
            foreign: &self.foreign,
            written: &self.written,
            chains: &self.chains,
            token_key: &self.token_key,
        }
    }
}

/// Changes to the default binding of the world.
pub(super) fn binding(name: &str, change: impl FnOnce(&mut GatewayBindingSpec)) -> GatewayBinding {
    let mut spec = GatewayBindingSpec {
        auth: BindingAuth::default(),
        default: true,
        gateway: GatewayReference {
            kind: GatewayType::IstioGateway,
            istio_gateway: Some(IstioGatewayReference {
                namespace: "istio-system".into(),
                name: "public".into(),
            }),
        },
        namespaces: NamespaceSelection::all(),
        hosts: HostPolicy {
            domain: Some("apps.example".into()),
            template: "{name}.{namespace}.{domain}".into(),
            allowed: vec![allowed("*.example", false)],
        },
    };
    change(&mut spec);
    let mut binding = GatewayBinding::new(name, spec);
    binding.metadata.creation_timestamp = Some(at(0));
    binding
}

pub(super) fn allowed(pattern: &str, shared: bool) -> AllowedHost {
    AllowedHost { pattern: pattern.into(), namespaces: None, shared }
}

/// Hosts that only the integrator's own namespace may use.
pub(super) fn allowed_to_own(pattern: &str) -> AllowedHost {
    AllowedHost { namespaces: Some(NamespaceSelection::default()), ..allowed(pattern, false) }
}

/// Namespaces with the label `team` of this value.
pub(super) fn team(value: &str) -> NamespaceSelection {
    let selector = mesh_api::integrator::LabelSelector {
        match_labels: BTreeMap::from([("team".to_owned(), value.to_owned())]),
        ..Default::default()
    };
    NamespaceSelection { from: NamespacesFrom::Selector, selector: Some(selector) }
}

/// A request `namespace/name` of this age with these hosts; each path, with `=` before it for an exact one, leads to
/// `shop:80`, or to the `service:port` after ` -> `.
pub(super) fn request(object: &str, second: i64, hosts: &[&str], routes: &[&str]) -> IngressRequest {
    let (namespace, name) = object.split_once('/').expect("namespace/name");
    let spec = IngressRequestSpec {
        auth: RequestAuth::default(),
        binding_ref: None,
        hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
        routes: routes.iter().map(|text| route(text)).collect(),
    };
    let mut request = IngressRequest::new(name, spec);
    request.metadata.namespace = Some(namespace.to_owned());
    request.metadata.creation_timestamp = Some(at(second));
    request.metadata.generation = Some(1);
    request
}

pub(super) fn naming(binding: &str, mut request: IngressRequest) -> IngressRequest {
    request.spec.binding_ref = Some(BindingReference { name: binding.to_owned() });
    request
}

pub(super) fn deleted(mut request: IngressRequest) -> IngressRequest {
    request.metadata.deletion_timestamp = Some(at(1000));
    request
}

fn route(text: &str) -> Route {
    let (path, backend) = text.split_once(" -> ").unwrap_or((text, "shop:80"));
    let (service, port) = backend.split_once(':').expect("service:port");
    let (kind, value) = match path.strip_prefix('=') {
        Some(exact) => (PathMatchType::Exact, exact),
        None => (PathMatchType::PathPrefix, path),
    };
    Route {
        path: PathMatch { kind, value: value.to_owned() },
        backends: vec![Backend {
            service: service.to_owned(),
            port: port.parse().expect("a port"),
            namespace: None,
            weight: 1,
        }],
        methods: Vec::new(),
        auth: None,
        rewrite: None,
        timeout: None,
    }
}

pub(super) fn at(second: i64) -> Time {
    Time(Timestamp::from_second(1_700_000_000 + second).expect("a time"))
}

/// A gateway with these servers, whose pods are in `istio-system`.
pub(super) fn gateway(servers: &[GatewayServer]) -> GatewayFacts {
    GatewayFacts {
        servers: servers.to_vec(),
        workload_namespaces: BTreeSet::from(["istio-system".to_owned()]),
        has_pods: Some(true),
        gone: false,
    }
}

/// A server; without `tls` if it is empty, a redirect if it is `redirect`, else with it as mode (`-` for none given).
pub(super) fn server(number: u32, protocol: &str, tls: &str, hosts: &[&str]) -> GatewayServer {
    let mode = if matches!(tls, "redirect" | "-") { "" } else { tls };
    GatewayServer {
        port: GatewayPort { number, name: String::new(), protocol: protocol.to_owned() },
        hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
        tls: (!tls.is_empty())
            .then(|| GatewayTls { mode: mode.to_owned(), https_redirect: tls == "redirect" }),
    }
}

/// The verdict on the request `namespace/name`.
pub(super) fn verdict<'a>(output: &'a Output, object: &str) -> &'a RequestVerdict {
    output.requests.iter().find(|verdict| verdict.key.to_string() == object).expect("a verdict")
}

/// The reason of Ready of the request.
pub(super) fn reason(output: &Output, object: &str) -> Reason {
    verdict(output, object).ready.reason
}

/// The states of the routes of the request.
pub(super) fn route_reasons(output: &Output, object: &str) -> Vec<String> {
    verdict(output, object).routes.iter().map(|route| route.reason.clone()).collect()
}

/// The route table of the host, one line for each route: its matches, and where it leads.
pub(super) fn table(output: &Output, host: &str) -> Vec<String> {
    let objects: Vec<&std::sync::Arc<VirtualService>> =
        output.virtual_services.iter().filter(|object| object.spec.hosts == [host]).collect();
    let [object] = objects[..] else { return Vec::new() };
    let is_marker = |route: &&HttpRoute| {
        route.matches.iter().any(|entry| match &entry.uri {
            Some(StringMatch::Exact(path)) => path.starts_with("/.well-known/istio-integrator/"),
            _ => false,
        })
    };
    let lines = object.spec.http.iter().filter(|route| !is_marker(route)).map(|route| {
        let matches = route.matches.iter().map(matching);
        let target = match (&route.route[..], &route.direct_response) {
            ([only], None) => {
                let port = only.destination.port.map_or(0, |port| port.number);
                let login = if route.name.starts_with("ii.auth-") { "login, " } else { "" };
                format!("{login}{}:{port}", only.destination.host.trim_end_matches(".svc.cluster.local"))
            }
            ([_, _, ..], None) => {
                let shares = route.route.iter().map(|entry| {
                    let name = entry.destination.host.trim_end_matches(".svc.cluster.local");
                    format!("{name} {}", entry.weight.unwrap_or_default())
                });
                shares.collect::<Vec<_>>().join(", ")
            }
            ([], Some(response)) => response.status.to_string(),
            _ => "nothing sensible".to_owned(),
        };
        format!("{} -> {target}", matches.collect::<Vec<_>>().join(" "))
    });
    lines.collect()
}

/// An `AuthProvider` `namespace/name` whose Service `name` has port 9000 (see [`World::provider`]).
pub(super) fn provider(object: &str, second: i64, change: impl FnOnce(&mut ExtAuthz)) -> AuthProvider {
    let (namespace, name) = object.split_once('/').expect("namespace/name");
    let mut ext_authz = ExtAuthz {
        protocol: ExtAuthzProtocol::HTTP,
        service: name.to_owned(),
        port: 9000,
        timeout: "2s".to_owned(),
        request_headers: vec!["cookie".to_owned()],
        identity_headers: vec!["x-user".to_owned()],
        path_prefix: String::new(),
        own_paths: Vec::new(),
    };
    change(&mut ext_authz);
    let mut provider = AuthProvider::new(
        name,
        AuthProviderSpec { kind: AuthProviderType::ExtAuthz, ext_authz: Some(ext_authz) },
    );
    provider.metadata.namespace = Some(namespace.to_owned());
    provider.metadata.uid = Some(format!("uid-{name}"));
    provider.metadata.creation_timestamp = Some(at(second));
    provider.metadata.generation = Some(1);
    provider
}

impl World {
    /// Adds a provider and its Service.
    pub(super) fn provider(mut self, provider: AuthProvider) -> Self {
        let namespace = provider.metadata.namespace.clone().expect("a namespace");
        let name = provider.metadata.name.clone().expect("a name");
        self.providers.push(provider);
        self.service(&namespace, &name, &[9000])
    }

    /// Says that every pod of the gateway holds these providers, and has for long.
    pub(super) fn in_force(mut self, providers: &[AuthProvider]) -> Self {
        let facts = self.chains.entry(ObjectKey::new("istio-system", "public")).or_default();
        for provider in providers {
            let read = Provider::resolve(provider, "cluster.local").expect("a valid provider");
            facts.holds.insert(read.id());
            facts.ready.insert(read.id());
            facts.known.insert(read.id(), read);
        }
        self
    }
}

/// The request, whose routes all ask for the login of this provider; without a namespace, of its own.
pub(super) fn protected(mut request: IngressRequest, provider: &str) -> IngressRequest {
    request.spec.auth = login(provider);
    request
}

pub(super) fn login(provider: &str) -> RequestAuth {
    let (namespace, name) = match provider.split_once('/') {
        Some((namespace, name)) => (Some(namespace.to_owned()), name),
        None => (None, provider),
    };
    RequestAuth {
        kind: AuthType::Provider,
        provider_ref: Some(ProviderReference { namespace, name: name.to_owned() }),
    }
}

pub(super) fn no_login() -> RequestAuth {
    RequestAuth { kind: AuthType::None, provider_ref: None }
}

fn matching(entry: &HttpMatch) -> String {
    let path = match &entry.uri {
        Some(StringMatch::Exact(path)) => format!("={path}"),
        Some(StringMatch::Prefix(path)) => format!("{path}*"),
        Some(StringMatch::Regex(_)) => "~".to_owned(),
        None => "everything".to_owned(),
    };
    let case = if entry.ignore_uri_case { "i" } else { "" };
    let method = match &entry.method {
        Some(StringMatch::Exact(text) | StringMatch::Regex(text)) => format!("{text} "),
        Some(StringMatch::Prefix(_)) => "a prefix? ".to_owned(),
        None => String::new(),
    };
    let guard = if entry.headers.is_empty() { "" } else { "!" };
    format!("{method}{guard}{case}{path}")
}
