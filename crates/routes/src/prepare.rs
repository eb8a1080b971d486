//! What can be said about each request by itself: its binding, its hosts and its Services.

use std::collections::BTreeMap;

use mesh_api::integrator::{PathMatch, PathMatchType, Route};
use mesh_api::istio::Destination;
use mesh_api::syntax::{is_host, path_problem};
use mesh_api::{IngressRequest, Reason};

use crate::age::Age;
use crate::bindings::Binding;
use crate::choose::{Choice, Origin, choose};
use crate::input::{Input, ObjectKey};
use crate::output::Finding;
use crate::{backend, servers};

/// A request, before it meets the others.
pub(crate) struct Prepared<'a> {
    pub(crate) object: &'a IngressRequest,
    pub(crate) key: ObjectKey,
    pub(crate) choice: Result<Choice, Finding>,
    /// Its hosts, as far as a binding was chosen.
    pub(crate) claims: Vec<Claim>,
    pub(crate) routes: Vec<PreparedRoute>,
}

/// A host that a request asks for.
pub(crate) struct Claim {
    pub(crate) host: String,
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
pub(crate) struct PreparedRoute {
    /// The path as it is compared: a prefix never ends in a slash unless it is the root.
    pub(crate) path: Result<PathMatch, Finding>,
    /// The Service, or why the route answers 503.
    pub(crate) backend: Result<Destination, Finding>,
}

/// The requests, the oldest first.
pub(crate) fn prepare<'a>(input: &Input<'a>, bindings: &[Binding<'a>]) -> Vec<Prepared<'a>> {
    let mut live: Vec<&IngressRequest> = input
        .requests
        .iter()
        .copied()
        .filter(|request| request.metadata.deletion_timestamp.is_none())
        .collect();
    live.sort_by(|a, b| Age::of(&a.metadata).cmp(&Age::of(&b.metadata)));
    live.into_iter().map(|request| prepare_one(request, input, bindings)).collect()
}

fn prepare_one<'a>(object: &'a IngressRequest, input: &Input<'a>, bindings: &[Binding<'a>]) -> Prepared<'a> {
    static NO_LABELS: BTreeMap<String, String> = BTreeMap::new();
    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let labels = input.namespaces.get(namespace).unwrap_or(&NO_LABELS);
    let origin = Origin { namespace, name, labels, own: &input.settings.namespace };
    let choice = choose(object, &origin, bindings);
    let claims = match &choice {
        Ok(choice) => {
            bindings.get(choice.binding).map(|binding| claims(object, &origin, binding, choice, input))
        }
        Err(_) => None,
    };
    Prepared {
        object,
        key: ObjectKey::new(namespace, name),
        choice,
        claims: claims.unwrap_or_default(),
        routes: object.spec.routes.iter().map(|route| prepare_route(route, namespace, input)).collect(),
    }
}

fn claims(
    object: &IngressRequest,
    origin: &Origin<'_>,
    binding: &Binding<'_>,
    choice: &Choice,
    input: &Input<'_>,
) -> Vec<Claim> {
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
            Ok(host) => Claim { admission: admission(&host), host },
            Err(finding) => Claim { host: String::new(), admission: Err(finding) },
        };
        return vec![claim];
    }
    let mut claims: Vec<Claim> = Vec::with_capacity(object.spec.hosts.len());
    for host in &object.spec.hosts {
        if !claims.iter().any(|claim| claim.host == *host) {
            claims.push(Claim { host: host.clone(), admission: admission(host) });
        }
    }
    claims
}

fn prepare_route(route: &Route, namespace: &str, input: &Input<'_>) -> PreparedRoute {
    let path = match path_problem(&route.path.value) {
        Some(problem) => {
            let message = format!("path {:?}: {problem}", route.path.value);
            Err(Finding::bad(Reason::InvalidSpec, message))
        }
        None => Ok(comparable(&route.path)),
    };
    let backend = match &route.backends[..] {
        [only] => backend::resolve(only, namespace, input),
        _ => Err(Finding::bad(
            Reason::InvalidSpec,
            format!("path {} must have exactly one backend", route.path.value),
        )),
    };
    PreparedRoute { path, backend }
}

/// A prefix `/app/` covers what `/app` covers.
fn comparable(path: &PathMatch) -> PathMatch {
    match (path.kind, path.value.trim_end_matches('/')) {
        (PathMatchType::PathPrefix, "") => PathMatch { kind: path.kind, value: "/".to_owned() },
        (PathMatchType::PathPrefix, trimmed) => PathMatch { kind: path.kind, value: trimmed.to_owned() },
        (PathMatchType::Exact, _) => path.clone(),
    }
}
