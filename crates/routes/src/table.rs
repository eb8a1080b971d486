//! Who owns a host, who owns each of its paths, and how much fits into one object.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mesh_api::Reason;
use mesh_api::integrator::{Method, PathMatch, PathMatchType};

use crate::input::ObjectKey;
use crate::output::Finding;
use crate::prepare::{Admission, Prepared, PreparedRoute};

/// The most routes of one host, hence of one object. At about 300 bytes a route this stays well below the limit on its
/// size unless paths are long, and a change of one route still rewrites an object of moderate size.
pub const MAX_ROUTES: usize = 1000;

/// A claim to a host that was admitted.
#[derive(Clone, Copy)]
pub(crate) struct Claimant<'a> {
    /// The place of the request in the list, which is in order of age.
    pub(crate) request: usize,
    /// The place of the claim in the request.
    pub(crate) claim: usize,
    pub(crate) prepared: &'a Prepared<'a>,
    pub(crate) admission: &'a Admission,
    pub(crate) gateway: &'a Arc<ObjectKey>,
    pub(crate) host: &'a str,
}

impl Claimant<'_> {
    fn namespace(&self) -> &str {
        &self.prepared.key.namespace
    }
}

/// What became of a claim: for each route of the request what became of it, or why the whole claim is refused.
pub(crate) type Outcome = Result<Vec<RouteOutcome>, Finding>;

/// What became of a route on one host.
#[derive(Clone, Debug)]
pub(crate) enum RouteOutcome {
    /// It is in the table.
    InTable,
    /// It is in the table, and there is something that its owner must be told.
    Partly(Finding),
    /// Another route has its path.
    Lost(Finding),
    /// It has no valid path, on any host.
    Invalid,
}

impl RouteOutcome {
    pub(crate) fn in_table(&self) -> bool {
        matches!(self, Self::InTable | Self::Partly(_))
    }

    pub(crate) fn finding(&self) -> Option<&Finding> {
        match self {
            Self::Partly(finding) | Self::Lost(finding) => Some(finding),
            Self::InTable | Self::Invalid => None,
        }
    }
}

/// A route of the table.
pub(crate) struct Row<'a> {
    pub(crate) claimant: Claimant<'a>,
    /// The place of the claimant.
    pub(crate) place: usize,
    /// The place of the route in its request.
    pub(crate) position: usize,
    pub(crate) route: &'a PreparedRoute<'a>,
    pub(crate) path: &'a PathMatch,
    /// The methods it has here; empty for every method that no row before it has.
    pub(crate) methods: BTreeSet<Method>,
}

/// The routes of a host in the order in which they are tried, and what became of each claim to it.
pub(crate) struct Table<'a> {
    pub(crate) rows: Vec<Row<'a>>,
    /// One for each claimant.
    pub(crate) outcomes: Vec<Outcome>,
}

/// What a route asks for on a host: a path, and one of its methods, or all that nobody asks for by name.
type Unit<'a> = (&'a PathMatch, Option<Method>);

/// Who asks for a unit: the places of the claimant and of the route.
type Candidate = (usize, usize);

/// Builds the table of a host from its claimants, the oldest first, of which those after `limit` are refused because
/// the host is full.
///
/// The host belongs to the namespace of the oldest one. Others may join where the patterns that admit both say that the
/// host is shared; then each path belongs to the namespace of the oldest route that asks for it. Within a namespace, of
/// two routes with the same path and method the stricter one serves, then the older.
pub(crate) fn build<'a>(host: &str, claimants: &[Claimant<'a>], limit: usize) -> Table<'a> {
    let admitted = admit(host, claimants, limit);
    let units = units(claimants, &admitted);
    let winners = winners(claimants, &units);
    let mut rows: BTreeMap<Candidate, Row<'a>> = BTreeMap::new();
    for ((path, method), winner) in &winners {
        let Some(claimant) = claimants.get(winner.0) else { continue };
        let Some(route) = claimant.prepared.routes.get(winner.1) else { continue };
        let row = rows.entry(*winner).or_insert_with(|| Row {
            claimant: *claimant,
            place: winner.0,
            position: winner.1,
            route,
            path,
            methods: BTreeSet::new(),
        });
        row.methods.extend(*method);
    }
    let outcomes = admitted.iter().enumerate().map(|(place, admitted)| match admitted {
        Err(finding) => Err(finding.clone()),
        Ok(()) => Ok(outcomes(host, claimants, place, &units, &winners)),
    });
    let outcomes = outcomes.collect();
    let mut rows: Vec<Row<'a>> = rows.into_values().collect();
    // Exact paths first, then the longest prefix, then those with methods: the first route that matches serves. Length
    // is enough, since of two prefixes of the same path the longer is the more specific, and two of one length never
    // match the same path.
    rows.sort_by(|a, b| {
        let rank = |row: &Row<'_>| {
            (row.path.kind != PathMatchType::Exact, Reverse(row.path.value.len()), row.methods.is_empty())
        };
        rank(a)
            .cmp(&rank(b))
            .then_with(|| a.path.value.cmp(&b.path.value))
            .then_with(|| a.methods.cmp(&b.methods))
    });
    Table { rows, outcomes }
}

/// Whether each claimant may have routes on the host.
fn admit(host: &str, claimants: &[Claimant<'_>], limit: usize) -> Vec<Result<(), Finding>> {
    let owner = claimants.first();
    let mut routes = 0;
    let admitted = claimants.iter().enumerate().map(|(place, claimant)| {
        if let Some(owner) = owner
            && !may_join(owner, claimant)
        {
            return Err(host_conflict(host, owner));
        }
        let more = claimant.prepared.routes.len();
        if place >= limit || routes + more > MAX_ROUTES {
            return Err(host_full(host, routes));
        }
        routes += more;
        Ok(())
    });
    admitted.collect()
}

fn may_join(owner: &Claimant<'_>, claimant: &Claimant<'_>) -> bool {
    owner.namespace() == claimant.namespace() || (owner.admission.shared && claimant.admission.shared)
}

fn units<'a>(
    claimants: &[Claimant<'a>],
    admitted: &[Result<(), Finding>],
) -> BTreeMap<Unit<'a>, Vec<Candidate>> {
    let mut units: BTreeMap<Unit<'a>, Vec<Candidate>> = BTreeMap::new();
    for (place, claimant) in claimants.iter().enumerate() {
        if !matches!(admitted.get(place), Some(Ok(()))) {
            continue;
        }
        for (position, route) in claimant.prepared.routes.iter().enumerate() {
            let Some(path) = route.path() else { continue };
            for method in methods_of(route) {
                units.entry((path, method)).or_default().push((place, position));
            }
        }
    }
    units
}

fn methods_of(route: &PreparedRoute<'_>) -> impl Iterator<Item = Option<Method>> {
    let every = route.methods.is_empty().then_some(None);
    every.into_iter().chain(route.methods.iter().copied().map(Some))
}

fn winners<'a>(
    claimants: &[Claimant<'a>],
    units: &BTreeMap<Unit<'a>, Vec<Candidate>>,
) -> BTreeMap<Unit<'a>, Candidate> {
    let namespace = |candidate: &Candidate| claimants.get(candidate.0).map_or("", Claimant::namespace);
    // The oldest candidate of any method of a path decides to which namespace the path belongs.
    let mut oldest: BTreeMap<&PathMatch, Candidate> = BTreeMap::new();
    for ((path, _), candidates) in units {
        let Some(first) = candidates.first() else { continue };
        let owner = oldest.entry(path).or_insert(*first);
        *owner = (*owner).min(*first);
    }
    let mut winners = BTreeMap::new();
    for (unit, candidates) in units {
        let Some(owner) = oldest.get(unit.0).map(namespace) else { continue };
        let mut own = candidates.iter().filter(|candidate| namespace(candidate) == owner);
        let strict = |candidate: &&Candidate| is_strict(claimants, **candidate);
        if let Some(winner) = own.clone().find(strict).or_else(|| own.next()) {
            winners.insert(*unit, *winner);
        }
    }
    winners
}

/// Whether nobody gets through without a login.
fn is_strict(claimants: &[Claimant<'_>], (place, position): Candidate) -> bool {
    let route = claimants.get(place).and_then(|claimant| claimant.prepared.routes.get(position));
    route.is_some_and(|route| !route.auth.is_open())
}

fn outcomes<'a>(
    host: &str,
    claimants: &[Claimant<'a>],
    place: usize,
    units: &BTreeMap<Unit<'a>, Vec<Candidate>>,
    winners: &BTreeMap<Unit<'a>, Candidate>,
) -> Vec<RouteOutcome> {
    let Some(claimant) = claimants.get(place) else { return Vec::new() };
    let key = |candidate: Candidate| claimants.get(candidate.0).map(|claimant| &claimant.prepared.key);
    let outcome = |(position, route): (usize, &'a PreparedRoute<'a>)| {
        let Some(path) = route.path() else { return RouteOutcome::Invalid };
        let me = (place, position);
        let (mut won, mut lost, mut shadowed) = (0, None, None);
        for method in methods_of(route) {
            let unit = (path, method);
            match winners.get(&unit) {
                Some(winner) if *winner == me => {
                    won += 1;
                    let rivals = units.get(&unit).into_iter().flatten();
                    // Whoever asked for a login and did not get the path must hear of it, and so must who has it.
                    if shadowed.is_none() && !is_strict(claimants, me) {
                        shadowed = rivals.copied().find(|rival| is_strict(claimants, *rival));
                    }
                }
                Some(winner) if lost.is_none() => lost = Some((method, *winner)),
                Some(_) | None if lost.is_some() => {}
                // The path belongs to another namespace, which asks for other methods of it.
                Some(_) | None => {
                    let owner = winners.range((path, None)..).next().filter(|((other, _), _)| *other == path);
                    lost = owner.map(|(_, winner)| (None, *winner));
                }
            }
        }
        let lost = lost.and_then(|(method, winner)| {
            let (weaker, stricter) = (
                is_strict(claimants, me) && !is_strict(claimants, winner),
                !is_strict(claimants, me) && is_strict(claimants, winner),
            );
            let contest = Contest { host, path, method, weaker, stricter };
            Some(contest.lost(key(winner)?, &claimant.prepared.key))
        });
        let shadowed = shadowed.and_then(|rival| Some(shadows(host, path, key(rival)?)));
        match (won, lost, shadowed) {
            (0, Some(lost), _) => RouteOutcome::Lost(lost),
            (_, Some(finding), _) | (_, None, Some(finding)) => RouteOutcome::Partly(finding),
            (_, None, None) => RouteOutcome::InTable,
        }
    };
    claimant.prepared.routes.iter().enumerate().map(outcome).collect()
}

fn host_conflict(host: &str, owner: &Claimant<'_>) -> Finding {
    let message = format!(
        "host {host} belongs to the older request {}: use another host, or have it shared by spec.hosts.allowed of the \
         binding; when the older request goes, this one takes over",
        owner.prepared.key
    );
    Finding::bad(Reason::HostConflict, message)
}

/// Two routes with one path.
struct Contest<'c> {
    host: &'c str,
    path: &'c PathMatch,
    method: Option<Method>,
    /// The winner lets through whom the loser would ask for a login.
    weaker: bool,
    /// The winner asks for a login and the loser does not.
    stricter: bool,
}

impl Contest<'_> {
    fn lost(&self, winner: &ObjectKey, loser: &ObjectKey) -> Finding {
        let Self { host, path: PathMatch { value, .. }, .. } = self;
        let with = self.method.map(|method| format!(" with method {}", method.as_str())).unwrap_or_default();
        let message = if winner == loser && self.stricter {
            format!(
                "path {value}{with} of host {host} is asked for twice by this request, once with a login, which has it: \
                 remove one of the routes"
            )
        } else if winner == loser {
            format!(
                "path {value}{with} of host {host} is asked for twice by this request: remove one of the routes"
            )
        } else if self.stricter {
            format!(
                "path {value}{with} of host {host} belongs to request {winner} of the same namespace, which asks for a \
                 login there: use another path, or remove that route"
            )
        } else {
            let open = if self.weaker { ", where it asks for no login" } else { "" };
            format!(
                "path {value}{with} of host {host} belongs to the older request {winner}{open}: use another path; when \
                 the older request goes, this one takes over"
            )
        };
        Finding::bad(Reason::PathConflict, message)
    }
}

fn shadows(host: &str, path: &PathMatch, rival: &ObjectKey) -> Finding {
    let message = format!(
        "path {} of host {host} is served without a login, while the younger request {rival} asks for one there and is \
         refused: agree on one of the two",
        path.value
    );
    Finding::bad(Reason::ShadowsProtected, message)
}

fn host_full(host: &str, routes: usize) -> Finding {
    let message = format!(
        "host {host} already has {routes} routes, and with those of this younger request it would have more than \
         {MAX_ROUTES} or not fit into one VirtualService: use another host, or merge routes"
    );
    Finding::bad(Reason::HostFull, message)
}
