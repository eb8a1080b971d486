//! Who owns a host, who owns each of its paths, and how much fits into one object.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use mesh_api::Reason;
use mesh_api::integrator::{PathMatch, PathMatchType};
use mesh_api::istio::{HttpRoute, StringMatch};

use crate::emit;
use crate::input::ObjectKey;
use crate::output::Finding;
use crate::prepare::{Admission, Prepared};
use crate::validate::MAX_BYTES;

/// The most routes of one host, hence of one object. At about 300 bytes a route this stays well below the limit on its
/// size unless paths are long, and a change of one route still rewrites an object of moderate size.
pub const MAX_ROUTES: usize = 1000;

/// What an object holds beside its routes, in bytes, with room to spare.
const OVERHEAD: usize = 4096;

/// A claim to a host that was admitted.
pub(crate) struct Claimant<'a> {
    /// The place of the request in the list, which is in order of age.
    pub(crate) request: usize,
    /// The place of the claim in the request.
    pub(crate) claim: usize,
    pub(crate) prepared: &'a Prepared<'a>,
    pub(crate) admission: &'a Admission,
}

/// What became of a claim.
pub(crate) struct Outcome {
    pub(crate) request: usize,
    pub(crate) claim: usize,
    /// For each route of the request whether it is in the table, or why the whole claim is refused.
    pub(crate) routes: Result<Vec<RouteOutcome>, Finding>,
}

/// What became of a route on one host.
pub(crate) enum RouteOutcome {
    /// It is in the table.
    InTable,
    /// Another route has its path.
    Lost(Finding),
    /// It has no valid path, on any host.
    Invalid,
}

/// The sorted routes of a host, and what became of each claim to it.
pub(crate) struct Table {
    pub(crate) routes: Vec<HttpRoute>,
    pub(crate) outcomes: Vec<Outcome>,
}

struct Row<'a> {
    winner: &'a ObjectKey,
    route: HttpRoute,
}

/// Builds the table of a host from its claimants, the oldest first.
///
/// The host belongs to the namespace of the oldest one. Others may join where the patterns that admit both say that the
/// host is shared; then, and among requests of one namespace, each path belongs to the oldest route that asks for it.
pub(crate) fn build<'a>(host: &str, claimants: &[Claimant<'a>]) -> Table {
    let mut rows: BTreeMap<PathMatch, Row<'a>> = BTreeMap::new();
    let mut bytes = OVERHEAD;
    let mut outcomes = Vec::with_capacity(claimants.len());
    let owner = claimants.first();
    for claimant in claimants {
        let routes = match owner {
            Some(owner) if !may_join(owner, claimant) => Err(host_conflict(host, owner)),
            _ => join(host, claimant, &mut rows, &mut bytes),
        };
        outcomes.push(Outcome { request: claimant.request, claim: claimant.claim, routes });
    }
    drop_dead_matches(&mut rows);
    let mut sorted: Vec<(PathMatch, Row<'a>)> = rows.into_iter().collect();
    // Exact paths first, then the longest prefix: the first route that matches serves. Length is enough, since of two
    // prefixes of the same path the longer is the more specific, and two of one length never match the same path.
    sorted.sort_by(|(a, _), (b, _)| {
        let rank = |path: &PathMatch| (path.kind != PathMatchType::Exact, Reverse(path.value.len()));
        rank(a).cmp(&rank(b)).then_with(|| a.value.cmp(&b.value))
    });
    Table { routes: sorted.into_iter().map(|(_, row)| row.route).collect(), outcomes }
}

/// Where a path of its own is asked for exactly, the prefix's match of that very path would never be reached.
fn drop_dead_matches(rows: &mut BTreeMap<PathMatch, Row<'_>>) {
    let exact: BTreeSet<String> =
        rows.keys().filter(|path| path.kind == PathMatchType::Exact).map(|path| path.value.clone()).collect();
    for (path, row) in rows.iter_mut().filter(|(path, _)| path.kind == PathMatchType::PathPrefix) {
        if exact.contains(&path.value) {
            row.route.matches.retain(|entry| !matches!(entry.uri, Some(StringMatch::Exact(_))));
        }
    }
}

fn may_join(owner: &Claimant<'_>, claimant: &Claimant<'_>) -> bool {
    owner.prepared.key.namespace == claimant.prepared.key.namespace
        || (owner.admission.shared && claimant.admission.shared)
}

/// Adds the routes of a claimant to the table, all of them or, where they would not fit, none.
fn join<'a>(
    host: &str,
    claimant: &Claimant<'a>,
    rows: &mut BTreeMap<PathMatch, Row<'a>>,
    bytes: &mut usize,
) -> Result<Vec<RouteOutcome>, Finding> {
    let key = &claimant.prepared.key;
    let mut added: BTreeMap<PathMatch, Row<'a>> = BTreeMap::new();
    let mut added_bytes = 0;
    let mut outcomes = Vec::with_capacity(claimant.prepared.routes.len());
    for prepared in &claimant.prepared.routes {
        let Ok(path) = &prepared.path else {
            outcomes.push(RouteOutcome::Invalid);
            continue;
        };
        if let Some(row) = rows.get(path).or_else(|| added.get(path)) {
            outcomes.push(RouteOutcome::Lost(path_conflict(host, path, row.winner, key)));
            continue;
        }
        let route = emit::http_route(host, key, path, prepared.backend.as_ref().ok());
        added_bytes += emit::size(&route);
        added.insert(path.clone(), Row { winner: key, route });
        outcomes.push(RouteOutcome::InTable);
    }
    if rows.len() + added.len() > MAX_ROUTES || *bytes + added_bytes > MAX_BYTES {
        return Err(host_full(host, rows.len()));
    }
    *bytes += added_bytes;
    rows.append(&mut added);
    Ok(outcomes)
}

fn host_conflict(host: &str, owner: &Claimant<'_>) -> Finding {
    let message = format!(
        "host {host} belongs to the older request {}: use another host, or have it shared by spec.hosts.allowed of the \
         binding; when the older request goes, this one takes over",
        owner.prepared.key
    );
    Finding::bad(Reason::HostConflict, message)
}

fn path_conflict(host: &str, path: &PathMatch, winner: &ObjectKey, loser: &ObjectKey) -> Finding {
    let PathMatch { value, .. } = path;
    let message = if winner == loser {
        format!("path {value} of host {host} is asked for twice by this request: remove one of the routes")
    } else {
        format!(
            "path {value} of host {host} belongs to the older request {winner}: use another path; when the older \
             request goes, this one takes over"
        )
    };
    Finding::bad(Reason::PathConflict, message)
}

fn host_full(host: &str, routes: usize) -> Finding {
    let message = format!(
        "host {host} already has {routes} routes, and with those of this younger request it would have more than \
         {MAX_ROUTES} or take more than {MAX_BYTES} bytes: use another host, or merge routes"
    );
    Finding::bad(Reason::HostFull, message)
}
