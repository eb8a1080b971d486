//! What is said about each request and binding.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use mesh_api::Reason;
use mesh_api::integrator::{RouteStatus, ServedCount};

use crate::auth::{Providers, RouteAuth};
use crate::bindings::Binding;
use crate::entries::Demand;
use crate::guard::ProviderId;
use crate::host::Host;
use crate::input::{ChainFacts, ForeignRoutes, Input, ObjectKey};
use crate::output::{BindingVerdict, Finding, ProviderVerdict, RequestVerdict};
use crate::prepare::{Claim, Prepared, PreparedRoute};
use crate::table::{Claimant, Outcome, RouteOutcome};
use crate::text;
use crate::validate::Problem;

/// What became of every admitted claim.
pub(crate) struct Hosts {
    claims: Vec<Option<Recorded>>,
    /// Where the claims of each request begin.
    starts: Vec<usize>,
}

struct Recorded {
    host: Arc<Host>,
    /// The place of the claimant there.
    place: usize,
    /// The protected routes of the request that are in the table and whose check is not in force, and why.
    failed: Vec<(usize, Finding)>,
}

impl Recorded {
    fn outcome(&self) -> Option<Result<&[RouteOutcome], &Finding>> {
        self.host.outcomes.get(self.place).map(Outcome::as_deref)
    }

    fn demands_checks(&self) -> bool {
        !of_place(&self.host, self.place).is_empty()
    }
}

/// The checks that the routes of the claimant at this place demand.
fn of_place(host: &Host, place: usize) -> &[((usize, usize), Demand)] {
    let begin = host.demands.partition_point(|((other, _), _)| *other < place);
    let end = host.demands.partition_point(|((other, _), _)| *other <= place);
    host.demands.get(begin..end).unwrap_or_default()
}

impl Hosts {
    /// What became of the claims of these requests: nothing so far.
    pub(crate) fn new(requests: &[Prepared<'_>]) -> Self {
        let mut claims = 0;
        let starts = requests.iter().map(|request| {
            let start = claims;
            claims += request.claims.len();
            start
        });
        let starts = starts.collect();
        let mut recorded = Vec::new();
        recorded.resize_with(claims, || None);
        Self { claims: recorded, starts }
    }

    /// Takes note of what became of a host.
    pub(crate) fn record(
        &mut self,
        host: &Arc<Host>,
        claimants: &[Claimant<'_>],
        chain: &ChainFacts,
        foreign: Option<&Finding>,
    ) {
        for (place, claimant) in claimants.iter().enumerate() {
            let mut failed = Vec::new();
            for ((_, position), demand) in of_place(host, place) {
                let check = match foreign {
                    Some(finding) => Err(finding.clone()),
                    None => in_force(&demand.id, &demand.provider.key, &host.gateway, chain),
                };
                failed.extend(check.err().map(|finding| (*position, finding)));
            }
            let start = self.starts.get(claimant.request).copied().unwrap_or_default();
            if let Some(recorded) = self.claims.get_mut(start + claimant.claim) {
                *recorded = Some(Recorded { host: Arc::clone(host), place, failed });
            }
        }
    }

    /// What became of the claims of the request at this place.
    fn of_request(&self, request: usize) -> &[Option<Recorded>] {
        let start = self.starts.get(request).copied().unwrap_or_default();
        let end = self.starts.get(request + 1).copied().unwrap_or(self.claims.len());
        self.claims.get(start..end).unwrap_or_default()
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

/// The `VirtualServices` of others by gateway and host.
pub(crate) struct ForeignIndex<'a>(HashMap<(&'a ObjectKey, &'a str), Vec<&'a ForeignRoutes>>);

impl<'a> ForeignIndex<'a> {
    pub(crate) fn new(foreign: &'a [ForeignRoutes]) -> Self {
        let mut index: HashMap<(&ObjectKey, &str), Vec<&ForeignRoutes>> = HashMap::new();
        for other in foreign {
            for gateway in &other.gateways {
                for host in &other.hosts {
                    let entries = index.entry((gateway, host)).or_default();
                    // It may name a host or a gateway twice.
                    if entries.last().is_none_or(|last| !std::ptr::eq(*last, other)) {
                        entries.push(other);
                    }
                }
            }
        }
        Self(index)
    }

    /// Why a check on this host does not decide: a `VirtualService` of somebody else comes first (see [`foreign`]).
    pub(crate) fn first(&self, input: &Input<'_>, host: &Host) -> Option<Finding> {
        if self.0.is_empty() {
            return None;
        }
        let others = self.0.get(&(host.gateway.as_ref(), host.domain.as_str()))?;
        foreign(others, input, &host.gateway, &host.domain, &host.name)
    }
}

/// Why a check on this host does not decide: a `VirtualService` of somebody else has the same host on the same gateway and
/// comes first.
///
/// Istio puts the routes of one host in the order of visibility ([`visibility`]), and those of one visibility in that of
/// (creationTimestamp, name, namespace). Source: `VirtualServicesForGateway` of istiod 1.31.
fn foreign(
    others: &[&ForeignRoutes],
    input: &Input<'_>,
    gateway: &ObjectKey,
    host: &str,
    own_name: &str,
) -> Option<Finding> {
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
    let mut first: Vec<&ForeignRoutes> = others.iter().copied().filter(comes_first).collect();
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
    claim: &'a Claim<'a>,
    routes: Result<&'a [RouteOutcome], &'a Finding>,
    recorded: Option<&'a Recorded>,
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
        let claims = prepared.claims.iter().zip(hosts.of_request(position));
        let results = claims.filter_map(|(claim, recorded)| {
            let recorded = recorded.as_ref();
            let routes = match (&claim.admission, recorded) {
                (Err(finding), _) => Err(finding),
                // Every admitted claim is recorded.
                (Ok(_), recorded) => recorded?.outcome()?,
            };
            Some(HostResult { claim, routes, recorded })
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
        let of_route = |route: &'a PreparedRoute<'a>| {
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
        let recorded = || self.hosts.iter().filter_map(|host| host.recorded);
        let failed = || recorded().flat_map(|recorded| &recorded.failed).map(|(_, finding)| finding);
        if let Some(first) = failed().next() {
            let messages: BTreeSet<&String> = failed().map(|finding| &finding.message).collect();
            return Finding { message: text::list(messages, "; "), ..first.clone() };
        }
        if !recorded().any(Recorded::demands_checks) {
            return Finding::good(Reason::NoAuth, "no route that asks for a login is served");
        }
        Finding::good(Reason::InForce, "every gateway pod checks the logins that the routes ask for")
    }

    /// Who must have logged in, for people.
    fn auth(&self) -> Option<String> {
        self.prepared.choice.as_ref().ok()?;
        let (mut open, mut refused) = (false, false);
        let mut providers: Vec<&ObjectKey> = Vec::new();
        for route in &self.prepared.routes {
            match &route.auth {
                RouteAuth::Open => open = true,
                RouteAuth::Closed(..) => refused = true,
                RouteAuth::Protected(provider) if providers.contains(&&provider.key) => {}
                RouteAuth::Protected(provider) => providers.push(&provider.key),
            }
        }
        let mut names: Vec<String> = providers.into_iter().map(ObjectKey::to_string).collect();
        names.extend(open.then(|| "None".to_owned()));
        names.extend(refused.then(|| "Refused".to_owned()));
        names.sort_unstable();
        names.dedup();
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
            .filter_map(|(_, route)| route.path())
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

    fn route_state(&self, position: usize, route: &PreparedRoute<'_>) -> (Reason, String) {
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
        let served = self.hosts.iter().filter(|host| host.in_table_at_all());
        let mut objects: Vec<&str> =
            served.filter_map(|host| host.recorded).map(|recorded| recorded.host.name.as_str()).collect();
        objects.sort_unstable();
        objects.dedup();
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
    // Before there are verdicts, which are large and would be moved again and again.
    let mut sorted: Vec<(usize, &Prepared<'_>)> = requests.iter().enumerate().collect();
    sorted.sort_by(|(_, a), (_, b)| a.key.cmp(&b.key));
    let judged = sorted.into_iter().map(|(position, prepared)| Judged::new(position, prepared, hosts));
    judged.map(|judged| judged.verdict(bindings)).collect()
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
            if pending.is_none() {
                let recorded = hosts.of_request(place).iter().flatten();
                let mut failed = recorded.flat_map(|recorded| &recorded.failed);
                *pending = failed.find(|(route, _)| *route == position).map(|(_, finding)| finding);
            }
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
            gateway: binding.gateway.as_ref().ok().map(ToString::to_string),
            serves: serves.get(binding.name).copied().unwrap_or_default(),
        }
    });
    let mut described: Vec<BindingVerdict> = described.collect();
    described.sort_by(|a, b| a.name.cmp(&b.name));
    described
}

fn served(verdicts: &[RequestVerdict]) -> BTreeMap<&str, ServedCount> {
    let mut counts: BTreeMap<&str, ServedCount> = BTreeMap::new();
    let mut objects: HashSet<(&str, &str)> = HashSet::with_capacity(verdicts.len());
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
