//! What is said about each request and binding.

use std::collections::{BTreeMap, BTreeSet};

use mesh_api::Reason;
use mesh_api::integrator::{RouteStatus, ServedCount};

use crate::auth::{Providers, RouteAuth};
use crate::bindings::Binding;
use crate::guard::ProviderId;
use crate::host::Host;
use crate::input::{ChainFacts, ForeignRoutes, Input, ObjectKey};
use crate::output::{BindingVerdict, Finding, ProviderVerdict, RequestVerdict};
use crate::prepare::{Claim, Prepared};
use crate::table::{Claimant, Outcome, RouteOutcome};
use crate::text;
use crate::validate::Problem;

/// What became of every admitted claim, by the places of the request and of the claim in it.
#[derive(Default)]
pub(crate) struct Hosts {
    claims: BTreeMap<(usize, usize), Recorded>,
}

struct Recorded {
    routes: Result<Vec<RouteOutcome>, Finding>,
    /// The `VirtualService` that holds the routes, as far as they are in the table.
    object: String,
    /// For each protected route of the request that is in the table: whether its check is in force.
    checks: BTreeMap<usize, Result<(), Finding>>,
}

impl Hosts {
    /// Takes note of what became of a host, whose routes are in the `VirtualService` of this name.
    pub(crate) fn record(
        &mut self,
        host: &Host,
        claimants: &[Claimant<'_>],
        object: &str,
        gateway: &ObjectKey,
        chain: &ChainFacts,
        foreign: Option<&Finding>,
    ) {
        for (place, (outcome, claimant)) in host.outcomes.iter().zip(claimants).enumerate() {
            let of_claimant = host.demands.range((place, 0)..=(place, usize::MAX));
            let checks = of_claimant.map(|((_, position), demand)| {
                let check = match foreign {
                    Some(finding) => Err(finding.clone()),
                    None => in_force(&demand.id, &demand.provider.key, gateway, chain),
                };
                (*position, check)
            });
            let checks = checks.collect();
            let recorded = Recorded { routes: outcome.clone(), object: object.to_owned(), checks };
            self.claims.insert((claimant.request, claimant.claim), recorded);
        }
    }
}

/// Whether every pod of the gateway checks this provider's logins.
fn in_force(
    id: &ProviderId,
    provider: &ObjectKey,
    gateway: &ObjectKey,
    chain: &ChainFacts,
) -> Result<(), Finding> {
    match &chain.chain {
        Some(Err(finding)) => return Err(finding.clone()),
        _ if chain.holds.contains(id) => return Ok(()),
        _ => {}
    }
    let message = format!(
        "not every pod of Gateway {gateway} checks the logins of AuthProvider {provider} yet; until then the routes answer \
         503"
    );
    Err(Finding { status: crate::output::Status::False, reason: Reason::ChainPending, message })
}

/// Why a check on this host does not decide: a `VirtualService` of somebody else has the same host on the same gateway and
/// comes first.
///
/// Istio puts the routes of one host in the order of visibility ([`visibility`]), and those of one visibility in that of
/// (creationTimestamp, name, namespace). Source: `VirtualServicesForGateway` of istiod 1.31.
pub(crate) fn foreign(input: &Input<'_>, gateway: &ObjectKey, host: &str, own_name: &str) -> Option<Finding> {
    let own_namespace = &input.settings.namespace;
    let facts = input.gateways.get(gateway);
    let own_export = crate::emit::export_to(facts, input.settings);
    let nowhere = BTreeSet::new();
    let pods = facts.map_or(&nowhere, |facts| &facts.workload_namespaces);
    let comes_first = |other: &&ForeignRoutes| {
        // Where the pods are is not known: it may be anywhere.
        if pods.is_empty() {
            return true;
        }
        pods.iter().any(|pods| {
            let Some(theirs) = visibility(&other.export_to, &other.key.namespace, pods) else { return false };
            // Ours that is not written yet will be the youngest.
            let Some(created) = input.written.get(own_name) else { return true };
            let ours = visibility(&own_export, own_namespace, pods).unwrap_or(u8::MAX);
            (theirs, &other.created, other.key.name.as_str(), &other.key.namespace)
                < (ours, created, own_name, own_namespace)
        })
    };
    let mut first: Vec<&ForeignRoutes> = input
        .foreign
        .iter()
        .filter(|other| other.gateways.contains(gateway) && other.hosts.iter().any(|name| name == host))
        .filter(comes_first)
        .collect();
    first.sort_by(|a, b| a.key.cmp(&b.key));
    if first.is_empty() {
        return None;
    }
    let named = first.iter().map(|other| format!("{} (of {})", other.key, other.owner));
    let message = format!(
        "host {host} of Gateway {gateway} is also served by VirtualService {}, whose routes come first and ask for no login: \
         have the host removed there, or delete it",
        text::list(named, ", ")
    );
    Some(Finding::bad(Reason::ForeignRoute, message))
}

/// How a proxy in the namespace `pods` sees a `VirtualService` of this namespace: 0 as private to the namespace of both, 1 as
/// exported to it by name, 2 as public, nothing if it does not see it.
fn visibility(export_to: &[String], namespace: &str, pods: &str) -> Option<u8> {
    let exported = |name: &str| export_to.iter().any(|entry| entry == name);
    if export_to.is_empty() || exported("*") {
        Some(2)
    } else if namespace == pods && exported(".") {
        Some(0)
    } else {
        exported(pods).then_some(1)
    }
}

/// Turns the outcomes of a table whose object failed our own check into refusals.
pub(crate) fn withhold(outcomes: &mut [Outcome], name: &str, problems: &[Problem]) {
    let message = format!(
        "VirtualService {name} failed the integrator's own check and was not written, which is a defect: {}",
        text::list(problems, "; ")
    );
    for outcome in outcomes {
        if outcome.is_ok() {
            *outcome = Err(Finding::bad(Reason::InvalidRoutes, message.clone()));
        }
    }
}

/// What became of one host of a request.
struct HostResult<'a> {
    claim: &'a Claim,
    routes: Result<&'a [RouteOutcome], &'a Finding>,
    object: Option<&'a str>,
    checks: Option<&'a BTreeMap<usize, Result<(), Finding>>>,
}

impl HostResult<'_> {
    fn in_table(&self, route: usize) -> bool {
        self.routes.is_ok_and(|routes| routes.get(route).is_some_and(RouteOutcome::in_table))
    }

    fn in_table_at_all(&self) -> bool {
        self.routes.is_ok_and(|routes| routes.iter().any(RouteOutcome::in_table))
    }
}

/// A request with all that became of it.
struct Judged<'a> {
    prepared: &'a Prepared<'a>,
    hosts: Vec<HostResult<'a>>,
}

impl<'a> Judged<'a> {
    fn new(position: usize, prepared: &'a Prepared<'a>, hosts: &'a Hosts) -> Self {
        let results = prepared.claims.iter().enumerate().filter_map(|(claim_position, claim)| {
            let recorded = hosts.claims.get(&(position, claim_position));
            let routes = match (&claim.admission, recorded) {
                (Err(finding), _) => Err(finding),
                (Ok(_), Some(recorded)) => recorded.routes.as_deref(),
                // Every admitted claim is recorded.
                (Ok(_), None) => return None,
            };
            let object = recorded.map(|recorded| recorded.object.as_str());
            Some(HostResult { claim, routes, object, checks: recorded.map(|recorded| &recorded.checks) })
        });
        Self { prepared, hosts: results.collect() }
    }

    /// Everything of which the request must be told that it is not accepted, in the order of its fields.
    fn refusals(&self) -> Vec<&'a Finding> {
        let mut refusals: Vec<&Finding> = self.prepared.choice.as_ref().err().into_iter().collect();
        for host in &self.hosts {
            match host.routes {
                Err(finding) => refusals.push(finding),
                Ok(routes) => refusals.extend(routes.iter().filter_map(RouteOutcome::finding)),
            }
        }
        for route in &self.prepared.routes {
            refusals.extend(route.path.as_ref().err());
            refusals.extend(route.auth.refusal().filter(|finding| !is_reference(finding.reason)));
        }
        refusals
    }

    /// What the request names and is not there, or not for it.
    fn missing(&self) -> Vec<&'a Finding> {
        let of_route = |route: &'a crate::prepare::PreparedRoute| {
            let auth = route.auth.refusal().filter(|finding| is_reference(finding.reason));
            let backends = &route.backends;
            auth.into_iter().chain(backends.list.as_ref().err()).chain(backends.missing.as_ref())
        };
        self.prepared.routes.iter().flat_map(of_route).collect()
    }

    fn served_at_all(&self) -> bool {
        self.hosts.iter().any(HostResult::in_table_at_all)
    }

    fn accepted(&self, bindings: &[Binding<'_>]) -> Finding {
        let refusals = self.refusals();
        if let Some(first) = refusals.first() {
            let rest = if self.served_at_all() { "; the rest is served" } else { "" };
            let messages = refusals.iter().map(|finding| &finding.message);
            return Finding::bad(first.reason, format!("{}{rest}", text::list(messages, "; ")));
        }
        let Ok(choice) = &self.prepared.choice else {
            // A request without a binding has a refusal.
            return Finding::bad(Reason::NoBinding, "no binding");
        };
        let name = |position: &usize| bindings.get(*position).map_or("", |binding| binding.name);
        let chosen = name(&choice.binding);
        if choice.also.is_empty() {
            return Finding::good(Reason::Accepted, format!("served by binding {chosen}"));
        }
        let others = text::list(choice.also.iter().map(name), ", ");
        let message = format!(
            "served by binding {chosen}, the oldest default one; {others} would serve it too: set spec.bindingRef.name \
             to choose"
        );
        Finding::good(Reason::AmbiguousDefault, message)
    }

    fn resolved_refs(&self) -> Finding {
        let missing = self.missing();
        match missing.first() {
            None => Finding::good(Reason::ResolvedRefs, "every Service, port and provider exists"),
            Some(first) => {
                let closed = self.prepared.routes.iter().any(|route| route.broken().is_some());
                let answer =
                    if closed && self.served_at_all() { "; meanwhile the route answers 503" } else { "" };
                // Routes that name the same provider have the same to say.
                let messages: BTreeSet<&String> = missing.iter().map(|finding| &finding.message).collect();
                Finding::bad(first.reason, format!("{}{answer}", text::list(messages, "; ")))
            }
        }
    }

    fn auth_in_force(&self) -> Finding {
        let asks = self.prepared.routes.iter().any(|route| !route.auth.is_open());
        if !asks {
            return Finding::good(Reason::NoAuth, "no route asks for a login");
        }
        let closed = self.prepared.routes.iter().find_map(|route| route.auth.refusal());
        if let Some(finding) = closed {
            let message = format!("{}; until then the route answers 503", finding.message);
            return Finding::bad(finding.reason, message);
        }
        let checks = || self.hosts.iter().filter_map(|host| host.checks).flat_map(BTreeMap::values);
        let failed: BTreeSet<&String> =
            checks().filter_map(|check| check.as_ref().err()).map(|finding| &finding.message).collect();
        if let Some(first) = checks().find_map(|check| check.as_ref().err()) {
            return Finding { message: text::list(failed, "; "), ..first.clone() };
        }
        if checks().next().is_none() {
            return Finding::good(Reason::NoAuth, "no route that asks for a login is served");
        }
        Finding::good(Reason::InForce, "every gateway pod checks the logins that the routes ask for")
    }

    /// Who must have logged in, for people.
    fn auth(&self) -> Option<String> {
        self.prepared.choice.as_ref().ok()?;
        let names: BTreeSet<String> = self
            .prepared
            .routes
            .iter()
            .map(|route| match &route.auth {
                RouteAuth::Open => "None".to_owned(),
                RouteAuth::Closed(..) => "Refused".to_owned(),
                RouteAuth::Protected(provider) => provider.key.to_string(),
            })
            .collect();
        Some(text::list(names, ","))
    }

    fn urls(&self) -> Vec<String> {
        self.hosts.iter().filter_map(|host| self.url(host)).collect()
    }

    /// The URL of a host: its root if the request serves that, else the first path it serves there.
    fn url(&self, host: &HostResult<'_>) -> Option<String> {
        let origin = host.claim.admission.as_ref().ok()?.origin.as_ref()?;
        let served = self.prepared.routes.iter().enumerate();
        let mut paths = served
            .filter(|(position, route)| route.broken().is_none() && host.in_table(*position))
            .filter_map(|(_, route)| route.path.as_ref().ok())
            .map(|path| path.value.as_str());
        let first = paths.clone().next()?;
        Some(if paths.any(|path| path == "/") { origin.clone() } else { format!("{origin}{first}") })
    }

    fn route_statuses(&self) -> Vec<RouteStatus> {
        let specs = self.prepared.object.spec.routes.iter().zip(&self.prepared.routes).enumerate();
        let statuses = specs.map(|(position, (spec, prepared))| {
            let (reason, message) = match &prepared.path {
                Err(finding) => (finding.reason, finding.message.clone()),
                Ok(_) => self.route_state(position, prepared),
            };
            RouteStatus { path: spec.path.clone(), reason: reason.to_string(), message }
        });
        statuses.collect()
    }

    fn route_state(&self, position: usize, route: &crate::prepare::PreparedRoute) -> (Reason, String) {
        let in_tables = self.hosts.iter().filter(|host| host.in_table(position)).count();
        if let Some(finding) = route.broken().filter(|_| in_tables > 0) {
            return (finding.reason, format!("{}; meanwhile it answers 503", finding.message));
        }
        let elsewhere = if in_tables > 0 { "; it is served on other hosts" } else { "" };
        // What concerns the whole request or host is said once, in its condition, not on each of its routes.
        let in_condition = format!("see condition Accepted{elsewhere}");
        if let Err(finding) = &self.prepared.choice {
            return (finding.reason, in_condition);
        }
        for host in &self.hosts {
            match host.routes.map(|routes| routes.get(position)) {
                Err(finding) => return (finding.reason, in_condition),
                Ok(Some(RouteOutcome::Lost(finding))) => {
                    return (finding.reason, format!("{}{elsewhere}", finding.message));
                }
                Ok(Some(RouteOutcome::Partly(finding))) => return (finding.reason, finding.message.clone()),
                Ok(Some(RouteOutcome::InTable | RouteOutcome::Invalid) | None) => {}
            }
        }
        if let Some(finding) = &route.backends.missing {
            return (finding.reason, finding.message.clone());
        }
        (Reason::Served, String::new())
    }

    fn verdict(&self, bindings: &[Binding<'_>]) -> RequestVerdict {
        let binding = self.prepared.choice.as_ref().ok().and_then(|choice| bindings.get(choice.binding));
        let accepted = self.accepted(bindings);
        let resolved_refs = self.resolved_refs();
        let auth_in_force = self.auth_in_force();
        let gateway = binding.map(|binding| &binding.ready);
        let problem = [Some(&accepted), Some(&resolved_refs), gateway, Some(&auth_in_force)]
            .into_iter()
            .flatten()
            .find(|finding| !finding.holds());
        let ready = match problem {
            Some(finding) => finding.clone(),
            None => {
                Finding::good(Reason::Ready, "accepted, resolved, and the routes are written for the gateway")
            }
        };
        let objects: BTreeSet<&str> =
            self.hosts.iter().filter(|host| host.in_table_at_all()).filter_map(|host| host.object).collect();
        RequestVerdict {
            key: self.prepared.key.clone(),
            generation: self.prepared.object.metadata.generation,
            accepted,
            resolved_refs,
            auth_in_force,
            ready,
            auth: self.auth(),
            binding: binding.map(|binding| binding.name.to_owned()),
            urls: self.urls(),
            routes: self.route_statuses(),
            virtual_services: objects.into_iter().map(str::to_owned).collect(),
        }
    }
}

/// The verdicts on the requests, sorted by namespace and name.
pub(crate) fn requests(
    requests: &[Prepared<'_>],
    bindings: &[Binding<'_>],
    hosts: &Hosts,
) -> Vec<RequestVerdict> {
    let judged =
        requests.iter().enumerate().map(|(position, prepared)| Judged::new(position, prepared, hosts));
    let mut verdicts: Vec<RequestVerdict> = judged.map(|judged| judged.verdict(bindings)).collect();
    verdicts.sort_by(|a, b| a.key.cmp(&b.key));
    verdicts
}

/// Whether the reason is about something that the request names, rather than about what it may ask for.
fn is_reference(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::ProviderNotFound
            | Reason::ProviderInvalid
            | Reason::ReferenceNotGranted
            | Reason::GrantsNotServed
    )
}

/// The verdicts on the providers, sorted by namespace and name.
pub(crate) fn providers(
    providers: &Providers<'_>,
    requests: &[Prepared<'_>],
    hosts: &Hosts,
) -> Vec<ProviderVerdict> {
    let mut uses: BTreeMap<&ObjectKey, (i32, Option<&Finding>)> = BTreeMap::new();
    for (place, request) in requests.iter().enumerate() {
        for (position, route) in request.routes.iter().enumerate() {
            let RouteAuth::Protected(provider) = &route.auth else { continue };
            let (count, pending) = uses.entry(&provider.key).or_default();
            *count = count.saturating_add(1);
            let claims = hosts.claims.range((place, 0)..=(place, usize::MAX));
            let mut checks = claims.filter_map(|(_, recorded)| recorded.checks.get(&position));
            *pending = pending.or_else(|| checks.find_map(|check| check.as_ref().err()));
        }
    }
    let judged = providers.list.values().map(|provider| {
        let (routes, pending) = uses.get(&provider.key).copied().unwrap_or_default();
        let accepted = match &provider.accepted {
            Ok(_) => Finding::good(Reason::Accepted, "routes may ask for its logins"),
            Err(finding) => finding.clone(),
        };
        let resolved_refs = match &provider.resolved {
            Ok(()) => Finding::good(Reason::ResolvedRefs, "its Service and port exist"),
            Err(finding) => finding.clone(),
        };
        let problem = [&accepted, &resolved_refs].into_iter().find(|finding| !finding.holds()).or(pending);
        let ready = problem.cloned().unwrap_or_else(|| {
            let message = if routes == 0 { "no route asks for its logins" } else { "its logins are checked" };
            Finding::good(Reason::Ready, message)
        });
        ProviderVerdict {
            key: provider.key.clone(),
            generation: provider.object.metadata.generation,
            accepted,
            resolved_refs,
            ready,
            routes,
        }
    });
    judged.collect()
}

/// The verdicts on the bindings, sorted by name. `verdicts` are those on the requests.
pub(crate) fn bindings(
    bindings: &[Binding<'_>],
    requests: &[Prepared<'_>],
    verdicts: &[RequestVerdict],
) -> Vec<BindingVerdict> {
    let serves = served(verdicts);
    let rivals = rivals(requests);
    let described = bindings.iter().enumerate().map(|(position, binding)| {
        let accepted = match (&binding.gateway, rivals.get(&position)) {
            (Err(finding), _) => finding.clone(),
            (Ok(_), Some((request, others))) => {
                let names = others.iter().filter_map(|other| bindings.get(*other)).map(|other| other.name);
                let message = format!(
                    "{} is a default as well, for request {request} for one; the oldest binding serves it: make \
                     spec.namespaces or spec.hosts of the bindings disjoint",
                    text::list(names, ", ")
                );
                Finding::good(Reason::AmbiguousDefault, message)
            }
            (Ok(_), None) => Finding::good(Reason::Accepted, "requests may use it"),
        };
        BindingVerdict {
            name: binding.name.to_owned(),
            generation: binding.object.metadata.generation,
            accepted,
            ready: binding.ready.clone(),
            gateway: binding.gateway.as_ref().ok().map(ObjectKey::to_string),
            serves: serves.get(binding.name).copied().unwrap_or_default(),
        }
    });
    let mut described: Vec<BindingVerdict> = described.collect();
    described.sort_by(|a, b| a.name.cmp(&b.name));
    described
}

fn served(verdicts: &[RequestVerdict]) -> BTreeMap<&str, ServedCount> {
    let mut counts: BTreeMap<&str, ServedCount> = BTreeMap::new();
    let mut objects: BTreeSet<(&str, &str)> = BTreeSet::new();
    for verdict in verdicts {
        let Some(binding) = verdict.binding.as_deref() else { continue };
        let count = counts.entry(binding).or_default();
        count.requests = count.requests.saturating_add(i32::from(!verdict.virtual_services.is_empty()));
        count.refused = count.refused.saturating_add(i32::from(verdict.refused()));
        for object in &verdict.virtual_services {
            // There is one object for each host.
            count.hosts = count.hosts.saturating_add(i32::from(objects.insert((binding, object))));
        }
    }
    counts
}

/// For each binding that is one of several defaults for some request: the first such request, and the others.
fn rivals<'a>(requests: &'a [Prepared<'a>]) -> BTreeMap<usize, (&'a ObjectKey, BTreeSet<usize>)> {
    let mut rivals: BTreeMap<usize, (&ObjectKey, BTreeSet<usize>)> = BTreeMap::new();
    for prepared in requests {
        let Ok(choice) = &prepared.choice else { continue };
        if choice.also.is_empty() {
            continue;
        }
        let all: Vec<usize> = std::iter::once(choice.binding).chain(choice.also.iter().copied()).collect();
        for one in &all {
            let (_, others) = rivals.entry(*one).or_insert_with(|| (&prepared.key, BTreeSet::new()));
            others.extend(all.iter().filter(|other| *other != one));
        }
    }
    rivals
}
