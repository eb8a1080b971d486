//! What is said about each request and binding.

use std::collections::{BTreeMap, BTreeSet};

use mesh_api::Reason;
use mesh_api::integrator::{RouteStatus, ServedCount};

use crate::bindings::Binding;
use crate::input::ObjectKey;
use crate::output::{BindingVerdict, Finding, RequestVerdict};
use crate::prepare::{Claim, Prepared};
use crate::table::{RouteOutcome, Table};
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
}

impl Hosts {
    /// Takes note of what became of the claims to a host, whose routes are in the `VirtualService` of this name.
    pub(crate) fn record(&mut self, table: Table, object: &str) {
        for outcome in table.outcomes {
            let recorded = Recorded { routes: outcome.routes, object: object.to_owned() };
            self.claims.insert((outcome.request, outcome.claim), recorded);
        }
    }
}

/// Turns the outcomes of a table whose object failed our own check into refusals.
pub(crate) fn withhold(table: &mut Table, name: &str, problems: &[Problem]) {
    let message = format!(
        "VirtualService {name} failed the integrator's own check and was not written, which is a defect: {}",
        text::list(problems, "; ")
    );
    for outcome in &mut table.outcomes {
        if outcome.routes.is_ok() {
            outcome.routes = Err(Finding::bad(Reason::InvalidRoutes, message.clone()));
        }
    }
}

/// What became of one host of a request.
struct HostResult<'a> {
    claim: &'a Claim,
    routes: Result<&'a [RouteOutcome], &'a Finding>,
    object: Option<&'a str>,
}

impl HostResult<'_> {
    fn in_table(&self, route: usize) -> bool {
        self.routes.is_ok_and(|routes| matches!(routes.get(route), Some(RouteOutcome::InTable)))
    }

    fn in_table_at_all(&self) -> bool {
        self.routes.is_ok_and(|routes| routes.iter().any(|route| matches!(route, RouteOutcome::InTable)))
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
            Some(HostResult { claim, routes, object: recorded.map(|recorded| recorded.object.as_str()) })
        });
        Self { prepared, hosts: results.collect() }
    }

    /// Everything of which the request must be told that it is not accepted, in the order of its fields.
    fn refusals(&self) -> Vec<&'a Finding> {
        let mut refusals: Vec<&Finding> = self.prepared.choice.as_ref().err().into_iter().collect();
        for host in &self.hosts {
            match host.routes {
                Err(finding) => refusals.push(finding),
                Ok(routes) => refusals.extend(routes.iter().filter_map(|route| match route {
                    RouteOutcome::Lost(finding) => Some(finding),
                    RouteOutcome::InTable | RouteOutcome::Invalid => None,
                })),
            }
        }
        refusals.extend(self.prepared.routes.iter().filter_map(|route| route.path.as_ref().err()));
        refusals
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
        let missing: Vec<&Finding> =
            self.prepared.routes.iter().filter_map(|route| route.backend.as_ref().err()).collect();
        match missing.first() {
            None => Finding::good(Reason::ResolvedRefs, "every Service and port exists"),
            Some(first) => {
                let answer = if self.served_at_all() { "; meanwhile the route answers 503" } else { "" };
                let messages = missing.iter().map(|finding| &finding.message);
                Finding::bad(first.reason, format!("{}{answer}", text::list(messages, "; ")))
            }
        }
    }

    fn urls(&self) -> Vec<String> {
        self.hosts.iter().filter_map(|host| self.url(host)).collect()
    }

    /// The URL of a host: its root if the request serves that, else the first path it serves there.
    fn url(&self, host: &HostResult<'_>) -> Option<String> {
        let origin = host.claim.admission.as_ref().ok()?.origin.as_ref()?;
        let served = self.prepared.routes.iter().enumerate();
        let mut paths = served
            .filter(|(position, route)| route.backend.is_ok() && host.in_table(*position))
            .filter_map(|(_, route)| route.path.as_ref().ok())
            .map(|path| path.value.as_str());
        let first = paths.clone().next()?;
        Some(if paths.any(|path| path == "/") { origin.clone() } else { format!("{origin}{first}") })
    }

    fn route_statuses(&self) -> Vec<RouteStatus> {
        let specs = self.prepared.object.spec.routes.iter().zip(&self.prepared.routes).enumerate();
        let statuses = specs.map(|(position, (spec, prepared))| {
            let (reason, message) = match (&prepared.path, &prepared.backend) {
                (Err(finding), _) => (finding.reason, finding.message.clone()),
                (Ok(_), backend) => self.route_state(position, backend.as_ref().err()),
            };
            RouteStatus { path: spec.path.clone(), reason: reason.to_string(), message }
        });
        statuses.collect()
    }

    fn route_state(&self, position: usize, broken: Option<&Finding>) -> (Reason, String) {
        let in_tables = self.hosts.iter().filter(|host| host.in_table(position)).count();
        if let Some(finding) = broken.filter(|_| in_tables > 0) {
            return (finding.reason, format!("{}; meanwhile it answers 503", finding.message));
        }
        let elsewhere = if in_tables > 0 { "; it is served on other hosts" } else { "" };
        // What concerns the whole request or host is said once, in its condition, not on each of its routes.
        let in_condition = format!("see condition Accepted{elsewhere}");
        if let Err(finding) = &self.prepared.choice {
            return (finding.reason, in_condition);
        }
        for host in &self.hosts {
            match host.routes {
                Err(finding) => return (finding.reason, in_condition),
                Ok(routes) => {
                    if let Some(RouteOutcome::Lost(finding)) = routes.get(position) {
                        return (finding.reason, format!("{}{elsewhere}", finding.message));
                    }
                }
            }
        }
        (Reason::Served, String::new())
    }

    fn verdict(&self, bindings: &[Binding<'_>]) -> RequestVerdict {
        let binding = self.prepared.choice.as_ref().ok().and_then(|choice| bindings.get(choice.binding));
        let accepted = self.accepted(bindings);
        let resolved_refs = self.resolved_refs();
        let gateway = binding.map(|binding| &binding.ready);
        let problem = [Some(&accepted), Some(&resolved_refs), gateway]
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
            ready,
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
