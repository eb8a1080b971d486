//! Worlds that the CRDs admit, small enough for requests to meet.

use std::collections::BTreeMap;

use mesh_api::integrator::{
    AllowedHost, AuthProviderSpec, AuthProviderType, AuthType, Backend, BindingAuth, BindingReference,
    DefaultProviderReference, ExtAuthz, ExtAuthzProtocol, GatewayBindingSpec, GatewayReference, GatewayType,
    HostPolicy, IngressRequestSpec, IstioGatewayReference, LabelSelector, Method, NamespaceSelection,
    NamespacesFrom, PathMatch, PathMatchType, ProviderReference, RequestAuth, Rewrite, RewriteType, Route,
};
use mesh_api::istio::GatewayServer;
use mesh_api::syntax::path_problem;
use mesh_api::{AuthProvider, GatewayBinding, IngressRequest};
use proptest::collection::{btree_set, vec};
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use routes::{Grant, GrantFrom, GrantTo, Grants, ObjectKey, ServiceFacts, ServicePort};

use crate::world::{OWN, World, at, server};

/// What the worlds hold. Each feature can be left out to find out which one breaks a property.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub(crate) struct Features {
    /// Providers, and `auth` of bindings, requests and routes.
    pub auth: bool,
    pub methods: bool,
    /// Several backends and weights.
    pub weights: bool,
    pub rewrite: bool,
    pub timeout: bool,
    /// Backends and providers of other namespaces, with grants and without.
    pub grants: bool,
    /// More hosts, bindings and gateways than one.
    pub hosts: bool,
}

impl Features {
    pub(crate) const ALL: Self = Self {
        auth: true,
        methods: true,
        weights: true,
        rewrite: true,
        timeout: true,
        grants: true,
        hosts: true,
    };

    /// One host, so that paths meet.
    pub(crate) const ONE_HOST: Self = Self { hosts: false, ..Self::ALL };
}

pub(crate) const NAMESPACES: [&str; 3] = ["a", "b", "c"];
pub(crate) const HOSTS: [&str; 9] = [
    "x.example",
    "y.example",
    "shared.example",
    "deep.y.example",
    "own.example",
    "r0.a.apps.example",
    "r1.b.apps.example",
    "r2.r0.a.apps.example",
    "no.org",
];
const SEGMENTS: [&str; 13] =
    ["app", "apple", "App", "v2", "x", "admin", "a%20b", "p;q", "%C3%A9", "a.b", "~u", "a%25b", "oauth2"];

pub(crate) fn path_value() -> impl Strategy<Value = String> {
    let common = select(vec!["/", "/app", "/app/", "/app/v2", "/admin", "/apple", "/x", "/App"]);
    let made = (vec(select(SEGMENTS.as_slice()), 1..4), any::<bool>())
        .prop_map(|(segments, slash)| format!("/{}{}", segments.join("/"), if slash { "/" } else { "" }));
    prop_oneof![3 => common.prop_map(str::to_owned), 1 => made]
        .prop_filter("what the CRD admits", |path| path_problem(path).is_none())
}

fn path() -> impl Strategy<Value = PathMatch> {
    let kind = prop_oneof![3 => Just(PathMatchType::PathPrefix), 1 => Just(PathMatchType::Exact)];
    (kind, path_value()).prop_map(|(kind, value)| PathMatch { kind, value })
}

fn methods(features: Features) -> BoxedStrategy<Vec<Method>> {
    if !features.methods {
        return Just(Vec::new()).boxed();
    }
    let all = vec![Method::Get, Method::Head, Method::Post, Method::Delete];
    prop_oneof![3 => Just(Vec::new()), 2 => subsequence(all, 1..3)].boxed()
}

fn backend(features: Features) -> impl Strategy<Value = Backend> {
    let service = select([&["shop"; 10][..], &["web"; 6], &["gone", "alias"]].concat());
    let namespace = namespace(features);
    let weight =
        if features.weights { select(vec![0_u32, 1, 1, 1, 2, 3, 4, 6]).boxed() } else { Just(1).boxed() };
    (service, select([&[80_u16; 12][..], &[8080, 53]].concat()), namespace, weight).prop_map(
        |(service, port, namespace, weight)| Backend {
            service: service.to_owned(),
            port,
            namespace: namespace.map(str::to_owned),
            weight,
        },
    )
}

/// That of the referring object, more often than not.
fn namespace(features: Features) -> BoxedStrategy<Option<&'static str>> {
    if !features.grants {
        return Just(None).boxed();
    }
    prop_oneof![3 => Just(None), 1 => select(NAMESPACES.as_slice()).prop_map(Some)].boxed()
}

fn provider_reference(features: Features) -> impl Strategy<Value = ProviderReference> {
    (namespace(features), select(vec!["p0", "p0", "p0", "p1", "p1", "p1", "gone"])).prop_map(
        |(namespace, name)| ProviderReference {
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        },
    )
}

fn auth(features: Features) -> BoxedStrategy<RequestAuth> {
    if !features.auth {
        return Just(RequestAuth::default()).boxed();
    }
    let plain = |kind| RequestAuth { kind, provider_ref: None };
    prop_oneof![
        2 => Just(plain(AuthType::Inherit)),
        1 => Just(plain(AuthType::None)),
        3 => provider_reference(features)
            .prop_map(|reference| RequestAuth { kind: AuthType::Provider, provider_ref: Some(reference) }),
    ]
    .boxed()
}

fn rewrite(features: Features) -> BoxedStrategy<Option<Rewrite>> {
    if !features.rewrite {
        return Just(None).boxed();
    }
    let value = select(vec!["/", "/v1", "/v1/", "/deep/er"]);
    let rewrite =
        value.prop_map(|value| Rewrite { kind: RewriteType::ReplacePrefix, value: value.to_owned() });
    prop_oneof![3 => Just(None), 1 => rewrite.prop_map(Some)].boxed()
}

fn timeout(features: Features) -> BoxedStrategy<Option<String>> {
    if !features.timeout {
        return Just(None).boxed();
    }
    let texts = select(vec!["10s", "1m30s", "1500ms", "24h", "1ms"]);
    prop_oneof![3 => Just(None), 1 => texts.prop_map(|text| Some(text.to_owned()))].boxed()
}

fn route(features: Features) -> impl Strategy<Value = Route> {
    let backends = if features.weights {
        vec(backend(features), 1..4).boxed()
    } else {
        vec(backend(features), 1).boxed()
    };
    (path(), methods(features), of(auth(features)), backends, rewrite(features), timeout(features)).prop_map(
        |(path, methods, auth, backends, rewrite, timeout)| Route {
            path,
            methods,
            auth,
            backends,
            rewrite,
            timeout,
        },
    )
}

fn request(features: Features) -> impl Strategy<Value = IngressRequest> {
    let hosts = if features.hosts {
        prop_oneof![1 => Just(Vec::new()), 4 => subsequence(HOSTS.to_vec(), 1..4)].boxed()
    } else {
        Just(vec!["shared.example"]).boxed()
    };
    let binding = if features.hosts {
        of(select(vec!["b0", "b0", "b0", "b1", "b1", "gone"])).boxed()
    } else {
        Just(None).boxed()
    };
    let routes = vec(route(features), 1..4);
    let identity = (select(NAMESPACES.as_slice()), select(vec!["r0", "r1", "r2", "r2.r0"]), 0..4_i64);
    let deleted = prop::bool::weighted(0.05);
    (identity, hosts, binding, auth(features), routes, deleted).prop_map(
        |((namespace, name, second), hosts, binding, auth, routes, deleted)| {
            let spec = IngressRequestSpec {
                binding_ref: binding.map(|name| BindingReference { name: name.to_owned() }),
                hosts: hosts.into_iter().map(str::to_owned).collect(),
                auth,
                routes,
            };
            let mut request = IngressRequest::new(name, spec);
            request.metadata.namespace = Some(namespace.to_owned());
            request.metadata.creation_timestamp = Some(at(second));
            request.metadata.generation = Some(1);
            request.metadata.deletion_timestamp = deleted.then(|| at(1_000));
            request
        },
    )
}

fn selection() -> impl Strategy<Value = NamespaceSelection> {
    let team = |value: &str| NamespaceSelection {
        from: NamespacesFrom::Selector,
        selector: Some(LabelSelector {
            match_labels: BTreeMap::from([("team".to_owned(), value.to_owned())]),
            ..LabelSelector::default()
        }),
    };
    prop_oneof![
        12 => Just(NamespaceSelection::all()),
        1 => Just(NamespaceSelection::default()),
        2 => Just(team("one")),
        1 => Just(team("two")),
    ]
}

fn policy(features: Features) -> BoxedStrategy<HostPolicy> {
    let allowed =
        |pattern: &str, namespaces, shared| AllowedHost { pattern: pattern.to_owned(), namespaces, shared };
    if !features.hosts {
        let allowed = vec![allowed("*.example", None, true)];
        let template = "{name}.{namespace}.{domain}".to_owned();
        return Just(HostPolicy { domain: Some("apps.example".to_owned()), template, allowed }).boxed();
    }
    let rule = move |pattern: &'static str| {
        (of(selection()), any::<bool>())
            .prop_map(move |(namespaces, shared)| allowed(pattern, namespaces, shared))
    };
    let rules = (
        prop::option::weighted(0.9, rule("*.example")),
        of(rule("own.example")),
        of(rule("*.y.example")),
        of(rule("shared.example")),
        of(rule("*")),
        of(rule("r0.a.apps.example")),
    );
    let template = select(vec![
        "{name}.{namespace}.{domain}",
        "{name}-{namespace}.{domain}",
        "{name}.{domain}",
        "{namespace}.{name}.{domain}",
    ]);
    (of(Just("apps.example")), template, rules)
        .prop_map(|(domain, template, (a, b, c, d, e, f))| HostPolicy {
            domain: domain.map(str::to_owned),
            template: template.to_owned(),
            allowed: [a, b, c, d, e, f].into_iter().flatten().collect(),
        })
        .prop_filter("what the CRD admits", |policy| policy.domain.is_some() || !policy.allowed.is_empty())
        .boxed()
}

fn binding(name: &'static str, features: Features) -> impl Strategy<Value = GatewayBinding> {
    let gateway = if features.hosts {
        select(vec!["public", "public", "public", "internal", "internal", "gone"]).boxed()
    } else {
        Just("public").boxed()
    };
    let default = if features.hosts { prop::bool::weighted(0.8) } else { prop::bool::weighted(1.0) };
    let namespaces =
        if features.hosts { selection().boxed() } else { Just(NamespaceSelection::all()).boxed() };
    let login = if features.auth {
        (prop::bool::weighted(0.2), of(select(vec![("a", "p0"), ("b", "p1"), ("b", "gone")]))).boxed()
    } else {
        Just((false, None)).boxed()
    };
    (gateway, default, namespaces, policy(features), login, 0..3_i64).prop_map(
        move |(gateway, default, namespaces, hosts, (required, provider), second)| {
            let reference = IstioGatewayReference { namespace: "edge".to_owned(), name: gateway.to_owned() };
            let spec = GatewayBindingSpec {
                default,
                gateway: GatewayReference { kind: GatewayType::IstioGateway, istio_gateway: Some(reference) },
                namespaces,
                hosts,
                auth: BindingAuth {
                    required,
                    default_provider_ref: provider.map(|(namespace, name)| DefaultProviderReference {
                        namespace: namespace.to_owned(),
                        name: name.to_owned(),
                    }),
                },
            };
            let mut binding = GatewayBinding::new(name, spec);
            binding.metadata.creation_timestamp = Some(at(second));
            binding
        },
    )
}

fn provider(namespace: &'static str, name: &'static str) -> impl Strategy<Value = AuthProvider> {
    let headers = vec!["x-user", "x-user-mail", "x-groups"];
    let pages = select(vec![&[][..], &["/oauth2/"], &["/ping", "/x"], &["/app/login", "/oauth2/"]]);
    (
        select([&["oidc"; 10][..], &["shop", "shop", "gone"]].concat()),
        subsequence(headers, 0..3),
        pages,
        select(vec!["", "", "/check"]),
        select([&["2s"; 9][..], &["500ms", "2m"]].concat()),
        0..3_i64,
    )
        .prop_map(move |(service, identity, pages, prefix, timeout, second)| {
            let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
            let spec = AuthProviderSpec {
                kind: AuthProviderType::ExtAuthz,
                ext_authz: Some(ExtAuthz {
                    protocol: ExtAuthzProtocol::HTTP,
                    service: service.to_owned(),
                    port: 9000,
                    timeout: timeout.to_owned(),
                    request_headers: vec!["cookie".to_owned()],
                    identity_headers: owned(&identity),
                    path_prefix: prefix.to_owned(),
                    own_paths: owned(pages),
                }),
            };
            let mut provider = AuthProvider::new(name, spec);
            provider.metadata.namespace = Some(namespace.to_owned());
            provider.metadata.uid = Some(format!("uid-{namespace}-{name}"));
            provider.metadata.creation_timestamp = Some(at(second));
            provider
        })
}

fn providers(features: Features) -> BoxedStrategy<Vec<AuthProvider>> {
    if !features.auth {
        return Just(Vec::new()).boxed();
    }
    let sometimes = |namespace, name| prop::option::weighted(0.9, provider(namespace, name));
    (
        sometimes("a", "p0"),
        sometimes("a", "p1"),
        sometimes("b", "p0"),
        sometimes("b", "p1"),
        sometimes("c", "p0"),
        sometimes("c", "p1"),
    )
        .prop_map(|(a, b, c, d, e, f)| [a, b, c, d, e, f].into_iter().flatten().collect())
        .boxed()
}

fn grants(features: Features) -> BoxedStrategy<Grants> {
    if !features.grants {
        return Just(Grants::default()).boxed();
    }
    let integrator = "integrator.istio-operators.io";
    let target = select(vec![
        ("", "Service", None),
        ("", "Service", Some("shop")),
        (integrator, "AuthProvider", None),
        (integrator, "AuthProvider", Some("p0")),
    ]);
    let kind = select(vec!["IngressRequest", "IngressRequest", "HTTPRoute"]);
    let grant = (select(NAMESPACES.as_slice()), select(NAMESPACES.as_slice()), kind, target).prop_map(
        move |(namespace, from, kind, (group, to, name))| Grant {
            namespace: namespace.to_owned(),
            from: vec![GrantFrom {
                group: integrator.to_owned(),
                kind: kind.to_owned(),
                namespace: from.to_owned(),
            }],
            to: vec![GrantTo { group: group.to_owned(), kind: to.to_owned(), name: name.map(str::to_owned) }],
        },
    );
    (prop::bool::weighted(0.9), vec(grant, 0..12)).prop_map(|(served, list)| Grants { served, list }).boxed()
}

/// Nearly all that requests ask for.
fn services() -> impl Strategy<Value = BTreeMap<ObjectKey, ServiceFacts>> {
    let port = |number, tcp| ServicePort { number, tcp };
    let whole = ServiceFacts {
        external_name: false,
        ports: vec![port(80, true), port(8080, true), port(53, false), port(9000, true)],
    };
    let partial = ServiceFacts { external_name: false, ports: vec![port(80, true)] };
    let alias = ServiceFacts { external_name: true, ports: vec![port(80, true), port(9000, true)] };
    let key = |namespace: &str, name: &str| ObjectKey::new(namespace, name);
    let all: BTreeMap<ObjectKey, ServiceFacts> = NAMESPACES
        .iter()
        .flat_map(|namespace| ["shop", "web", "oidc"].map(|name| (key(namespace, name), whole.clone())))
        .chain(NAMESPACES.map(|namespace| (key(namespace, "alias"), alias.clone())))
        .collect();
    let keys: Vec<ObjectKey> = all.keys().cloned().collect();
    let changes = vec((select(keys), select(vec![None, Some(partial), Some(alias)])), 0..3);
    changes.prop_map(move |changes| {
        let mut services = all.clone();
        for (key, facts) in changes {
            match facts {
                Some(facts) => services.insert(key, facts),
                None => services.remove(&key),
            };
        }
        services
    })
}

fn servers(features: Features) -> BoxedStrategy<[Vec<GatewayServer>; 2]> {
    let all = || vec![server(80, None, &["*"])];
    if !features.hosts {
        return Just([all(), all()]).boxed();
    }
    let own = format!("{OWN}/*.example");
    let kinds = move || {
        select(vec![
            all(),
            all(),
            vec![server(80, None, &["*"]), server(443, Some("SIMPLE"), &["*"])],
            vec![server(80, Some("redirect"), &["x.example"]), server(80, None, &["*.example"])],
            vec![server(80, Some("redirect"), &["*"]), server(443, Some("MUTUAL"), &["*.example"])],
            vec![server(80, None, &[&own, "a/no.org"])],
            vec![server(80, None, &["*.example"]), server(8080, None, &["*/no.org", "./x.example"])],
            vec![server(80, None, &["*"]), server(443, Some("PASSTHROUGH"), &["*"])],
            vec![],
        ])
    };
    (kinds(), kinds()).prop_map(|(public, internal)| [public, internal]).boxed()
}

/// A world with these features.
pub(crate) fn world(features: Features) -> impl Strategy<Value = World> {
    let requests = vec(request(features), 1..8).prop_map(|mut requests| {
        // A cluster has one object of a name.
        let mut seen = std::collections::BTreeSet::new();
        requests.retain(|one| seen.insert((one.metadata.namespace.clone(), one.metadata.name.clone())));
        requests
    });
    let bindings = if features.hosts {
        (prop::option::weighted(0.9, binding("b0", features)), of(binding("b1", features)))
            .prop_map(|(a, b)| [a, b].into_iter().flatten().collect())
            .boxed()
    } else {
        binding("b0", features).prop_map(|one| vec![one]).boxed()
    };
    let claims = btree_set(select(vec!["oidc.a.svc.cluster.local", "oidc.b.svc.cluster.local"]), 0..2);
    let claims = prop_oneof![9 => Just(std::collections::BTreeSet::new()), 1 => claims];
    let limits = (select(vec![1_usize, 5, 5, 5, 5]), select(vec![1_usize, 2, 100, 100, 100, 100, 100, 100]));
    (
        bindings,
        requests,
        providers(features),
        grants(features),
        claims,
        services(),
        servers(features),
        prop::bool::weighted(0.2),
        limits,
    )
        .prop_map(
            |(bindings, requests, providers, grants, claims, services, servers, not_normalized, limits)| {
                World {
                    bindings,
                    requests,
                    providers,
                    grants,
                    claims: claims
                        .into_iter()
                        .map(|host| (host.to_owned(), vec![ObjectKey::new("evil", "entry")]))
                        .collect(),
                    services,
                    servers,
                    namespaces: BTreeMap::from([
                        ("a".to_owned(), BTreeMap::from([("team".to_owned(), "one".to_owned())])),
                        ("b".to_owned(), BTreeMap::from([("team".to_owned(), "two".to_owned())])),
                    ]),
                    not_normalized,
                    max_providers_per_namespace: limits.0,
                    max_providers_per_gateway: limits.1,
                }
            },
        )
}
