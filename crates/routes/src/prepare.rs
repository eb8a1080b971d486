//! What can be said about each request by itself: its binding, its hosts and its Services.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use mesh_api::header::{duration, istio_duration};
use mesh_api::integrator::{Method, PathMatch, PathMatchType, Route};
use mesh_api::syntax::{is_host, path_problem};
use mesh_api::{IngressRequest, Reason};

use crate::age::Age;
use crate::auth::{AuthResolver, Identified, RouteAuth};
use crate::backend::{Backends, Targets};
use crate::bindings::Binding;
use crate::choose::{Choice, Origin, choose};
use crate::input::{Input, ObjectKey};
use crate::output::Finding;
use crate::{backend, servers};

/// The shortest time that a Service may be given.
const MIN_TIMEOUT: Duration = Duration::from_millis(1);
/// The longest time that a Service may be given.
const MAX_TIMEOUT: Duration = Duration::from_hours(24);

/// A request, before it meets the others.
pub(crate) struct Prepared<'a> {
    pub(crate) object: &'a IngressRequest,
    pub(crate) key: ObjectKey,
    pub(crate) choice: Result<Choice, Finding>,
    /// Its hosts, as far as a binding was chosen.
    pub(crate) claims: Vec<Claim<'a>>,
    pub(crate) routes: Vec<PreparedRoute<'a>>,
    /// The default provider of its binding, if it can be asked: whose identity headers backends may believe.
    pub(crate) default_provider: Option<Arc<Identified>>,
}

/// A host that a request asks for.
pub(crate) struct Claim<'a> {
    pub(crate) host: Cow<'a, str>,
    pub(crate) admission: Result<Admission, Finding>,
}

/// A host that a request may have, if no older one of another namespace has it.
pub(crate) struct Admission {
    /// Whether several namespaces may serve it.
    pub(crate) shared: bool,
    /// The origin of its URLs; unknown while the Gateway is missing.
    pub(crate) origin: Option<String>,
}

/// A route of a request.
pub(crate) struct PreparedRoute<'a> {
    /// The path as it is compared: a prefix never ends in a slash unless it is the root.
    pub(crate) path: Result<Cow<'a, PathMatch>, Finding>,
    /// The methods, `HEAD` beside `GET`; empty for every method.
    pub(crate) methods: BTreeSet<Method>,
    /// The Services, or why the route answers 503.
    pub(crate) backends: Backends<'a>,
    /// The login it asks for.
    pub(crate) auth: RouteAuth,
    /// What replaces the prefix of the path: `/`, or a path that does not end in a slash.
    pub(crate) rewrite: Option<String>,
    /// How long the Service may take, as Istio writes it.
    pub(crate) timeout: Option<String>,
}

impl PreparedRoute<'_> {
    /// The path as it is compared, if it is valid.
    pub(crate) fn path(&self) -> Option<&PathMatch> {
        self.path.as_deref().ok()
    }

    /// Why the route answers 503 for everybody, if it does.
    pub(crate) fn broken(&self) -> Option<&Finding> {
        self.auth.refusal().or(self.backends.list.as_ref().err())
    }
}

/// The requests, the oldest first.
pub(crate) fn prepare<'a>(
    input: &Input<'a>,
    bindings: &[Binding<'a>],
    resolver: &AuthResolver<'_, 'a>,
    targets: &Targets<'_, 'a>,
) -> Vec<Prepared<'a>> {
    let mut live: Vec<&IngressRequest> = input
        .requests
        .iter()
        .copied()
        .filter(|request| request.metadata.deletion_timestamp.is_none())
        .collect();
    live.sort_by(|a, b| Age::of(&a.metadata).cmp(&Age::of(&b.metadata)));
    live.into_iter().map(|request| prepare_one(request, input, bindings, resolver, targets)).collect()
}

fn prepare_one<'a>(
    object: &'a IngressRequest,
    input: &Input<'a>,
    bindings: &[Binding<'a>],
    resolver: &AuthResolver<'_, 'a>,
    targets: &Targets<'_, 'a>,
) -> Prepared<'a> {
    static NO_LABELS: BTreeMap<String, String> = BTreeMap::new();
    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let labels = input.namespaces.get(namespace).unwrap_or(&NO_LABELS);
    let origin = Origin { namespace, name, labels, own: &input.settings.namespace };
    let choice = choose(object, &origin, bindings);
    let chosen = choice.as_ref().ok().and_then(|choice| Some((choice, bindings.get(choice.binding)?)));
    let claims = chosen.map(|(choice, binding)| claims(object, &origin, binding, choice, input));
    let routes = object.spec.routes.iter().enumerate().map(|(position, route)| {
        // Without a binding nothing is served, so that what the login would be does not matter.
        let auth = chosen
            .map_or(RouteAuth::Open, |(_, binding)| resolver.of_route(object, route, position, binding));
        prepare_route(route, namespace, targets, auth)
    });
    let routes = routes.collect();
    let default_provider = chosen.and_then(|(_, binding)| resolver.default_provider(binding));
    Prepared {
        object,
        key: ObjectKey::new(namespace, name),
        choice,
        claims: claims.unwrap_or_default(),
        routes,
        default_provider,
    }
}

fn claims<'a>(
    object: &'a IngressRequest,
    origin: &Origin<'_>,
    binding: &Binding<'_>,
    choice: &Choice,
    input: &Input<'_>,
) -> Vec<Claim<'a>> {
    let asker = origin.asks(binding);
    let admission = |host: &str| {
        if !is_host(host) {
            let message = format!(
                "{host:?} is not a host: it must be a lower-case DNS name, of at most 253 characters and 63 in each label"
            );
            return Err(Finding::bad(Reason::InvalidHost, message));
        }
        let shared = asker.admit(host)?;
        let origin = match binding.facts {
            Some(facts) => Some(servers::origin(host, &choice.gateway, facts, input.settings)?),
            None => None,
        };
        Ok(Admission { shared, origin })
    };
    if object.spec.hosts.is_empty() {
        let claim = match asker.template_host() {
            Ok(host) => Claim { admission: admission(&host), host: Cow::Owned(host) },
            Err(finding) => Claim { host: Cow::Borrowed(""), admission: Err(finding) },
        };
        return vec![claim];
    }
    let mut claims: Vec<Claim<'_>> = Vec::with_capacity(object.spec.hosts.len());
    for host in &object.spec.hosts {
        if !claims.iter().any(|claim| claim.host == *host) {
            claims.push(Claim { host: Cow::Borrowed(host), admission: admission(host) });
        }
    }
    claims
}

fn prepare_route<'a>(
    route: &'a Route,
    namespace: &'a str,
    targets: &Targets<'_, '_>,
    auth: RouteAuth,
) -> PreparedRoute<'a> {
    let path = match path_problem(&route.path.value) {
        Some(problem) => {
            let message = format!("path {:?}: {problem}", route.path.value);
            Err(Finding::bad(Reason::InvalidSpec, message))
        }
        None => Ok(comparable(&route.path)),
    };
    let mut backends = backend::resolve(route, namespace, targets);
    let mut methods: BTreeSet<Method> = route.methods.iter().copied().collect();
    // Whoever may see an answer to GET may see its headers, and no one else may.
    if methods.contains(&Method::Get) {
        methods.insert(Method::Head);
    }
    let rewrite = rewrite(route);
    let timeout = route.timeout.as_deref().map(timeout).transpose();
    if let Some(problem) = rewrite.as_ref().err().or(timeout.as_ref().err()) {
        let message = format!("path {}: {problem}", route.path.value);
        backends.list = Err(Finding::bad(Reason::InvalidSpec, message));
    }
    PreparedRoute {
        path,
        methods,
        backends,
        auth,
        rewrite: rewrite.ok().flatten(),
        timeout: timeout.ok().flatten(),
    }
}

fn rewrite(route: &Route) -> Result<Option<String>, String> {
    let Some(rewrite) = &route.rewrite else { return Ok(None) };
    if route.path.kind != PathMatchType::PathPrefix {
        return Err("rewrite.type ReplacePrefix needs a path of type PathPrefix".to_owned());
    }
    match path_problem(&rewrite.value) {
        Some(problem) => Err(format!("rewrite.value {:?}: {problem}", rewrite.value)),
        None => Ok(Some(without_last_slash(&rewrite.value).to_owned())),
    }
}

fn timeout(text: &str) -> Result<String, String> {
    let timeout = duration(text).map_err(|problem| format!("timeout {text:?}: {problem}"))?;
    if timeout < MIN_TIMEOUT || timeout > MAX_TIMEOUT {
        return Err(format!("timeout {text:?}: it must be from 1ms to 24h"));
    }
    Ok(istio_duration(timeout))
}

/// A prefix `/app/` covers what `/app` covers.
fn comparable(path: &PathMatch) -> Cow<'_, PathMatch> {
    let value = without_last_slash(&path.value);
    if path.kind == PathMatchType::PathPrefix && value != path.value {
        Cow::Owned(PathMatch { kind: path.kind, value: value.to_owned() })
    } else {
        Cow::Borrowed(path)
    }
}

fn without_last_slash(path: &str) -> &str {
    match path.trim_end_matches('/') {
        "" => "/",
        trimmed => trimmed,
    }
}
