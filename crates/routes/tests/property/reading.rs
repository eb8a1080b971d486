//! What the requests say, read naively: one host, one path, one method at a time.
//!
//! Written from the documentation of the API (`mesh_api::integrator`), the design and the rules of the guard chain. It
//! shares nothing with the compiler but the types, the syntax of paths and the resolution of a provider's own fields.

mod hosts;
mod refusals;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mesh_api::integrator::{AuthType, HostPolicy, Method, PathMatchType, RequestAuth, Route};
use mesh_api::istio::GatewayServer;
use mesh_api::syntax::{path_problem, pattern_covers};
use mesh_api::{AuthProvider, GatewayBinding, IngressRequest};
use routes::ObjectKey;
use routes::guard::Provider;

use text::{duration, fields_are_sound, is_at_or_below, rewritten, without_last_slash};

pub(crate) use text::decoded;

use crate::world::{OWN, World, gateway_key};

/// What the requests say about one host, path and method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// Nobody serves it.
    Nothing,
    /// The Gateway sends it to HTTPS.
    Redirect,
    /// A route has it that leads nowhere: 503.
    Closed,
    /// A route serves it.
    Served(Box<Served>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Served {
    /// The provider whose check must be passed.
    pub login: Option<ObjectKey>,
    /// Host, port and share of each Service, sorted, in lowest terms.
    pub targets: Vec<(String, u16, u32)>,
    /// The path that the Service gets.
    pub path: String,
    pub timeout: Option<Duration>,
    /// Headers that the Service must not get from the client, with dashes.
    pub stripped: BTreeSet<String>,
    /// The path of the route, and whether it is exact.
    pub route: PathKey,
    /// The answer that the gateway must give instead, if the path is not to be let through.
    pub must_refuse: Option<u16>,
    /// The answer that it may give instead.
    pub may_refuse: Option<u16>,
}

/// The login that a route asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Login {
    Open,
    /// It cannot be had; the provider that was meant, if that is known.
    Refused(Option<ObjectKey>),
    Asked(ObjectKey),
}

/// A path of the table of a host: exact or not, and without a last slash if not.
pub(crate) type PathKey = (bool, String);

pub(crate) struct Reading<'w> {
    world: &'w World,
    /// The oldest first.
    bindings: Vec<&'w GatewayBinding>,
    requests: Vec<&'w IngressRequest>,
    /// Those that can be asked.
    providers: BTreeMap<ObjectKey, Provider>,
    /// Those that are well-formed, whether their Service is there or not.
    accepted: BTreeMap<ObjectKey, Provider>,
    /// For each gateway the providers that its chain has room for.
    admitted: BTreeMap<ObjectKey, BTreeSet<ObjectKey>>,
}

/// A route on a host.
#[derive(Clone, Copy)]
struct Asked<'w> {
    request: &'w IngressRequest,
    binding: &'w GatewayBinding,
    route: &'w Route,
}

impl Asked<'_> {
    fn namespace(&self) -> &str {
        namespace_of(self.request)
    }
}

fn namespace_of(request: &IngressRequest) -> &str {
    request.metadata.namespace.as_deref().unwrap_or_default()
}

fn name_of(request: &IngressRequest) -> &str {
    request.metadata.name.as_deref().unwrap_or_default()
}

impl<'w> Reading<'w> {
    pub(crate) fn new(world: &'w World) -> Self {
        let mut bindings: Vec<_> =
            world.bindings.iter().filter(|one| one.metadata.deletion_timestamp.is_none()).collect();
        bindings.sort_by_key(|one| (one.metadata.creation_timestamp.clone(), one.metadata.name.clone()));
        let mut requests: Vec<_> =
            world.requests.iter().filter(|one| one.metadata.deletion_timestamp.is_none()).collect();
        requests.sort_by_key(|one| {
            let metadata = &one.metadata;
            (metadata.creation_timestamp.clone(), metadata.namespace.clone(), metadata.name.clone())
        });
        let (providers, accepted, admitted) = Default::default();
        let mut reading = Self { world, bindings, requests, providers, accepted, admitted };
        reading.read_providers();
        reading.admitted = reading.admitted_providers();
        reading
    }

    /// Of the providers that routes of a gateway ask for, the oldest few.
    fn admitted_providers(&self) -> BTreeMap<ObjectKey, BTreeSet<ObjectKey>> {
        let mut asked: BTreeMap<ObjectKey, BTreeSet<ObjectKey>> = BTreeMap::new();
        for request in &self.requests {
            let Some(binding) = self.binding_of(request) else { continue };
            let Some(gateway) = gateway_of(binding) else { continue };
            for route in &request.spec.routes {
                if let Login::Asked(provider) =
                    self.login_if_there_is_room(&Asked { request, binding, route })
                {
                    asked.entry(gateway.clone()).or_default().insert(provider);
                }
            }
        }
        let oldest = |keys: BTreeSet<ObjectKey>| {
            let mut objects: Vec<_> = self.world.providers.iter().collect();
            objects.sort_by_key(|one| {
                let metadata = &one.metadata;
                (metadata.creation_timestamp.clone(), metadata.namespace.clone(), metadata.name.clone())
            });
            let key = |one: &AuthProvider| {
                let (namespace, name) = (one.metadata.namespace.clone(), one.metadata.name.clone());
                ObjectKey::new(namespace.unwrap_or_default(), name.unwrap_or_default())
            };
            let by_age = objects.into_iter().map(key).filter(|key| keys.contains(key));
            by_age.take(self.world.max_providers_per_gateway).collect()
        };
        asked.into_iter().map(|(gateway, keys)| (gateway, oldest(keys))).collect()
    }

    /// Of each namespace the oldest few that are well-formed; those can be asked that have a Service of their own.
    fn read_providers(&mut self) {
        let mut live: Vec<_> =
            self.world.providers.iter().filter(|one| one.metadata.deletion_timestamp.is_none()).collect();
        live.sort_by_key(|one| {
            let metadata = &one.metadata;
            (metadata.creation_timestamp.clone(), metadata.namespace.clone(), metadata.name.clone())
        });
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for object in live {
            let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
            let count = counts.entry(namespace).or_default();
            *count += 1;
            if *count > self.world.max_providers_per_namespace {
                continue;
            }
            let Ok(provider) = Provider::resolve(object, "cluster.local") else { continue };
            let Some(spec) = &object.spec.ext_authz else { continue };
            let key = ObjectKey::new(namespace, object.metadata.name.as_deref().unwrap_or_default());
            self.accepted.insert(key.clone(), provider.clone());
            let host = format!("{}.{namespace}.svc.cluster.local", spec.service);
            if self.world.claims.get(&host).is_some_and(|claimants| !claimants.is_empty()) {
                continue;
            }
            if self.has_port(&ObjectKey::new(namespace, &spec.service), spec.port) {
                self.providers.insert(key, provider);
            }
        }
    }

    fn has_port(&self, service: &ObjectKey, port: u16) -> bool {
        self.world.services.get(service).is_some_and(|facts| {
            !facts.external_name && facts.ports.iter().any(|one| one.number == port && one.tcp)
        })
    }

    /// The resolved provider.
    pub(crate) fn provider(&self, key: &ObjectKey) -> Option<&Provider> {
        self.providers.get(key)
    }

    pub(crate) fn providers(&self) -> impl Iterator<Item = &Provider> {
        self.providers.values()
    }

    fn keys(claims: &[Asked<'w>]) -> BTreeSet<PathKey> {
        claims.iter().filter_map(|claim| path_key(claim.route)).collect()
    }

    /// Who has the path for this method, or for all methods that nobody asks for by name.
    fn winner(&self, claims: &[Asked<'w>], path: &PathKey, method: Option<Method>) -> Option<Asked<'w>> {
        let of_path = || claims.iter().filter(|claim| path_key(claim.route).as_ref() == Some(path));
        let owner = of_path().next()?.namespace();
        let asks = |claim: &&Asked<'w>| {
            claim.namespace() == owner
                && match method {
                    None => claim.route.methods.is_empty(),
                    Some(Method::Head) => {
                        claim.route.methods.iter().any(|one| matches!(one, Method::Get | Method::Head))
                    }
                    Some(method) => claim.route.methods.contains(&method),
                }
        };
        let strict = of_path().filter(asks).find(|claim| self.login(claim) != Login::Open);
        strict.or_else(|| of_path().find(asks)).copied()
    }

    /// The route among those of this path that takes the method: by its name first. A route with a login takes a method
    /// however it is spelt.
    fn taker(&self, claims: &[Asked<'w>], path: &PathKey, method: &str) -> Option<Asked<'w>> {
        let named = METHODS.iter().find_map(|one| {
            let winner = self.winner(claims, path, Some(*one))?;
            let spelt = name_of_method(*one);
            let strict = self.login(&winner) != Login::Open;
            (method == spelt || (strict && method.eq_ignore_ascii_case(spelt))).then_some(winner)
        });
        named.or_else(|| self.winner(claims, path, None))
    }

    /// The route that serves a path without query.
    fn route(&self, claims: &[Asked<'w>], path: &str, method: &str) -> Option<(PathKey, Asked<'w>)> {
        let take = |key: PathKey| self.taker(claims, &key, method).map(|route| (key, route));
        if let Some(found) = take((true, path.to_owned())) {
            return Some(found);
        }
        // An exact path with a login covers itself and a slash. Of the path with the slash nobody asks for a method by
        // name, so that a route for all methods has them all.
        if let Some(bare) = path.strip_suffix('/').filter(|bare| !bare.is_empty() && !bare.ends_with('/')) {
            let key = (true, bare.to_owned());
            let strict = |route: &Asked<'w>| self.login(route) != Login::Open;
            let rest = || self.winner(claims, &key, None).filter(strict);
            if let Some(route) = self.taker(claims, &key, method).filter(strict).or_else(rest) {
                return Some((key, route));
            }
        }
        let mut prefixes: Vec<PathKey> = Self::keys(claims)
            .into_iter()
            .filter(|(exact, value)| !exact && is_at_or_below(path, value))
            .collect();
        prefixes.sort_by_key(|(_, value)| std::cmp::Reverse(value.len()));
        prefixes.into_iter().find_map(take)
    }

    fn login(&self, asked: &Asked<'w>) -> Login {
        let login = self.login_if_there_is_room(asked);
        let Login::Asked(provider) = &login else { return login };
        let room = gateway_of(asked.binding).and_then(|gateway| self.admitted.get(&gateway));
        let refused = Login::Refused(Some(provider.clone()));
        if room.is_some_and(|room| room.contains(provider)) { login } else { refused }
    }

    fn login_if_there_is_room(&self, asked: &Asked<'w>) -> Login {
        let said = |auth: &RequestAuth| (auth.kind != AuthType::Inherit).then(|| auth.clone());
        let auth = asked.route.auth.as_ref().and_then(said).or_else(|| said(&asked.request.spec.auth));
        let binding = &asked.binding.spec.auth;
        let usable = |key: ObjectKey| {
            if self.providers.contains_key(&key) {
                Login::Asked(key)
            } else {
                Login::Refused(self.accepted.contains_key(&key).then_some(key))
            }
        };
        match auth {
            Some(auth) if auth.kind == AuthType::None => {
                if binding.required {
                    Login::Refused(None)
                } else {
                    Login::Open
                }
            }
            Some(auth) => {
                let Some(reference) = &auth.provider_ref else { return Login::Refused(None) };
                let namespace = reference.namespace.as_deref().unwrap_or(asked.namespace());
                let group = "integrator.istio-operators.io";
                if self.granted(asked.namespace(), group, "AuthProvider", namespace, &reference.name) {
                    usable(ObjectKey::new(namespace, &reference.name))
                } else {
                    Login::Refused(None)
                }
            }
            None => match &binding.default_provider_ref {
                Some(reference) => usable(ObjectKey::new(&reference.namespace, &reference.name)),
                None if binding.required => Login::Refused(None),
                None => Login::Open,
            },
        }
    }

    fn granted(&self, from: &str, group: &str, kind: &str, namespace: &str, name: &str) -> bool {
        if from == namespace {
            return true;
        }
        let from_us = |grant: &routes::Grant| {
            grant.from.iter().any(|one| {
                one.namespace == from
                    && one.kind == "IngressRequest"
                    && one.group == "integrator.istio-operators.io"
            })
        };
        let to_it = |grant: &routes::Grant| {
            grant.to.iter().any(|one| {
                one.group == group && one.kind == kind && one.name.as_deref().is_none_or(|only| only == name)
            })
        };
        let grants = &self.world.grants;
        grants.served
            && grants.list.iter().any(|grant| grant.namespace == namespace && from_us(grant) && to_it(grant))
    }

    /// The Services that share the route, or none if it leads nowhere.
    fn targets(&self, asked: &Asked<'w>) -> Vec<(String, u16, u32)> {
        let mut shares: BTreeMap<(String, u16), u32> = BTreeMap::new();
        for backend in &asked.route.backends {
            let namespace = backend.namespace.as_deref().unwrap_or(asked.namespace());
            let exists = self.has_port(&ObjectKey::new(namespace, &backend.service), backend.port);
            let granted = self.granted(asked.namespace(), "", "Service", namespace, &backend.service);
            if exists && granted && backend.weight > 0 {
                let host = format!("{}.{namespace}.svc.cluster.local", backend.service);
                *shares.entry((host, backend.port)).or_default() += backend.weight;
            }
        }
        let unit = (1..=shares.values().copied().max().unwrap_or(1))
            .rev()
            .find(|unit| shares.values().all(|weight| weight % unit == 0))
            .unwrap_or(1);
        shares.into_iter().map(|((host, port), weight)| (host, port, weight / unit)).collect()
    }

    /// Whose identity headers the backends of a route believe: of the providers of routes that lead to the same
    /// namespaces, also of those that cannot be asked, and of the default one of its binding.
    fn identity_headers(&self, asked: &Asked<'w>) -> BTreeSet<String> {
        let backends = |route: &Route, own: &str| -> BTreeSet<String> {
            let of = |backend: &mesh_api::integrator::Backend| {
                backend.namespace.clone().unwrap_or_else(|| own.to_owned())
            };
            route.backends.iter().map(of).collect()
        };
        let mine = backends(asked.route, asked.namespace());
        let mut headers = BTreeSet::new();
        for request in &self.requests {
            let Some(binding) = self.binding_of(request) else { continue };
            for route in &request.spec.routes {
                let other = Asked { request, binding, route };
                if let Login::Asked(provider) | Login::Refused(Some(provider)) = self.login(&other)
                    && !mine.is_disjoint(&backends(route, other.namespace()))
                {
                    headers.extend(self.accepted[&provider].identity_headers.iter().cloned());
                }
            }
        }
        if let Some(reference) = &asked.binding.spec.auth.default_provider_ref
            && let Some(provider) = self.accepted.get(&ObjectKey::new(&reference.namespace, &reference.name))
        {
            headers.extend(provider.identity_headers.iter().cloned());
        }
        headers
    }

    /// What is said of a request: `host` in lower case and without port, `path` as the gateway routes it, with its query.
    pub(crate) fn says(&self, gateway: usize, port: u32, host: &str, path: &str, method: &str) -> Said {
        let servers: Vec<&GatewayServer> = self.world.servers[gateway]
            .iter()
            .filter(|server| server.port.number == port && serves(server, gateway, host))
            .collect();
        if servers.is_empty() {
            return Said::Nothing;
        }
        if servers.iter().any(|server| redirects(server)) {
            return Said::Redirect;
        }
        let claims = self.claims(gateway, host);
        let bare = path.split('?').next().unwrap_or_default();
        let Some((key, asked)) = self.route(&claims, bare, method) else { return Said::Nothing };
        let targets = self.targets(&asked);
        let login = match self.login(&asked) {
            Login::Refused(_) => return Said::Closed,
            Login::Open => None,
            Login::Asked(provider) => Some(provider),
        };
        if targets.is_empty() || !fields_are_sound(asked.route) {
            return Said::Closed;
        }
        let mut stripped = self.identity_headers(&asked);
        let (must_refuse, may_refuse) = match &login {
            Some(provider) => {
                let provider = &self.providers[provider];
                stripped.retain(|header| !provider.identity_headers.contains(header));
                stripped.insert("x-ii-guard".to_owned());
                Self::own_pages(provider, bare)
            }
            None => self.neighbours(&claims, &key, bare, method),
        };
        Said::Served(Box::new(Served {
            login,
            targets,
            path: rewritten(asked.route, path),
            timeout: asked.route.timeout.as_deref().and_then(duration),
            stripped,
            route: key,
            must_refuse,
            may_refuse,
        }))
    }
}

const METHODS: [Method; 7] =
    [Method::Get, Method::Head, Method::Post, Method::Put, Method::Patch, Method::Delete, Method::Options];

fn name_of_method(method: Method) -> &'static str {
    match method {
        Method::Get => "GET",
        Method::Head => "HEAD",
        Method::Post => "POST",
        Method::Put => "PUT",
        Method::Patch => "PATCH",
        Method::Delete => "DELETE",
        Method::Options => "OPTIONS",
    }
}

fn gateway_of(binding: &GatewayBinding) -> Option<ObjectKey> {
    let reference = binding.spec.gateway.istio_gateway.as_ref()?;
    Some(ObjectKey::new(&reference.namespace, &reference.name))
}

fn template_host(policy: &HostPolicy, namespace: &str, name: &str) -> Option<String> {
    let domain = policy.domain.as_ref()?;
    let host = policy.template.replace("{domain}", domain).replace("{namespace}", namespace);
    Some(host.replace("{name}", name))
}

fn redirects(server: &GatewayServer) -> bool {
    server.tls.as_ref().is_some_and(|tls| tls.https_redirect)
}

/// Whether the server takes the host from objects in the integrator's namespace.
fn serves(server: &GatewayServer, gateway: usize, host: &str) -> bool {
    let handed_through = server.tls.as_ref().is_some_and(|tls| tls.mode == "PASSTHROUGH");
    !handed_through
        && server.hosts.iter().any(|entry| match entry.split_once('/') {
            None | Some(("*", _)) => pattern_covers(entry.rsplit('/').next().unwrap_or_default(), host),
            Some((".", pattern)) => gateway_key(gateway).namespace == OWN && pattern_covers(pattern, host),
            Some((namespace, pattern)) => namespace == OWN && pattern_covers(pattern, host),
        })
}

fn path_key(route: &Route) -> Option<PathKey> {
    if path_problem(&route.path.value).is_some() {
        return None;
    }
    Some(match route.path.kind {
        PathMatchType::Exact => (true, route.path.value.clone()),
        PathMatchType::PathPrefix => (false, without_last_slash(&route.path.value)),
    })
}
