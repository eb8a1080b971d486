//! The entries of a `VirtualService` that one route of a table becomes.

use std::collections::BTreeSet;
use std::sync::Arc;

use mesh_api::integrator::{Method, PathMatch, PathMatchType};
use mesh_api::istio::{
    HeaderOperations, Headers, HttpDirectResponse, HttpMatch, HttpRewrite, HttpRoute, HttpRouteDestination,
    StringMatch,
};
use mesh_api::names;

use crate::auth::Identified;
use crate::emit::hash;
use crate::guard::ProviderId;
use crate::memo::Memo;
use crate::table::Row;

/// What a route answers whose Service does not exist or whose login cannot be had, so that it never falls through to a
/// wider route of somebody else.
const UNAVAILABLE: u16 = 503;
/// What an auth service's own pages are answered with on a protected route: the service answers them to everybody, so
/// that asking it about them proves nothing.
const OWN_PAGE: u16 = 403;
/// What a path is answered with that an open route and its backend may read differently.
const AMBIGUOUS_PATH: u16 = 400;

/// The provider whose check a protected route demands, as it is in the chain: while a change of it is not in force yet, its
/// older form.
pub(crate) type Demand = Arc<Identified>;

/// What a row matches and must refuse nevertheless.
#[derive(Clone, Debug)]
pub(crate) enum Refused {
    /// This.
    These(Vec<HttpMatch>),
    /// It cannot be told, so that the row must answer 503.
    Untold,
}

/// What of a host's table and gateway the entries of one row depend on.
pub(crate) struct Context<'c> {
    pub(crate) host: &'c str,
    pub(crate) cluster_domain: &'c str,
    pub(crate) memo: &'c Memo<'c>,
    /// The paths that some row has exactly and for every method.
    pub(crate) exact: &'c BTreeSet<&'c str>,
}

/// The entries of a row. `demand` is there for a protected one; `foreign_identity` are the identity headers that the
/// backend believes and that this route's own check does not set; `refused` is what the row matches and refuses.
pub(crate) fn entries(
    row: &Row<'_>,
    demand: Option<&Demand>,
    foreign_identity: &[&str],
    refused: Refused,
    context: &Context<'_>,
) -> Vec<HttpRoute> {
    let namer = Namer { row, context };
    let own = method_match(&row.methods, !row.route.auth.is_open());
    let own = own.as_ref();
    let shapes = shapes(row, context);
    let refused = match refused {
        Refused::Untold => return vec![closed(&namer, shapes, own)],
        _ if row.route.broken().is_some() => return vec![closed(&namer, shapes, own)],
        Refused::These(matches) => matches,
    };
    let mut remove = context.memo.removal(foreign_identity);
    let mut entries = Vec::with_capacity(shapes.len() + 2);
    let Some(demand) = demand else {
        entries.extend(refusal(refused, own, || namer.open("neighbours"), AMBIGUOUS_PATH));
        entries.extend(shapes.into_iter().enumerate().map(|(place, shape)| HttpRoute {
            name: namer.open(place_of(&OPEN, place)),
            headers: removing(remove.clone()),
            route: destinations(row, context.cluster_domain),
            rewrite: shape.rewrite.map(|uri| HttpRewrite { uri: Some(uri) }),
            timeout: row.route.timeout.clone(),
            matches: shape.uris.into_iter().map(|uri| matching(uri, own)).collect(),
            ..HttpRoute::default()
        }));
        return entries;
    };
    remove.push(names::GUARD_HEADER.to_owned());
    remove.sort();
    let guard = context.memo.guard(&demand.id);
    entries.extend(refusal(refused, own, || namer.open("pages"), OWN_PAGE));
    let mut matches = Vec::with_capacity(shapes.iter().map(|shape| shape.uris.len()).sum());
    for (place, shape) in shapes.into_iter().enumerate() {
        let lacking = shape
            .uris
            .iter()
            .map(|uri| HttpMatch { without_headers: guard.clone(), ..matching(uri.clone(), own) });
        matches.extend(lacking);
        let passing = shape.uris.into_iter();
        let passing = passing.map(|uri| HttpMatch { headers: guard.clone(), ..matching(uri, own) });
        entries.push(HttpRoute {
            name: namer.protected(&demand.id, place_of(&PASSED, place)),
            matches: passing.collect(),
            headers: removing(remove.clone()),
            route: destinations(row, context.cluster_domain),
            rewrite: shape.rewrite.map(|uri| HttpRewrite { uri: Some(uri) }),
            timeout: row.route.timeout.clone(),
            ..HttpRoute::default()
        });
    }
    entries.push(HttpRoute {
        name: namer.protected(&demand.id, "refused"),
        matches,
        direct_response: Some(answer(UNAVAILABLE)),
        ..HttpRoute::default()
    });
    entries
}

/// What the entries for the shapes of a row are called in their names: there are two at most.
const OPEN: [&str; 2] = ["open0", "open1"];
const PASSED: [&str; 2] = ["passed0", "passed1"];

fn place_of(names: &[&'static str; 2], place: usize) -> &'static str {
    names.get(place).copied().unwrap_or_default()
}

/// What a row refuses, for the methods that it has.
fn refusal(
    mut matches: Vec<HttpMatch>,
    own: Option<&StringMatch>,
    name: impl FnOnce() -> String,
    status: u16,
) -> Option<HttpRoute> {
    if let Some(own) = own {
        for entry in &mut matches {
            entry.method.get_or_insert_with(|| own.clone());
        }
    }
    matches.shrink_to_fit();
    (!matches.is_empty()).then(|| HttpRoute {
        name: name(),
        matches,
        direct_response: Some(answer(status)),
        ..HttpRoute::default()
    })
}

fn closed(namer: &Namer<'_, '_>, shapes: Vec<Shape>, own: Option<&StringMatch>) -> HttpRoute {
    let uris = shapes.into_iter().flat_map(|shape| shape.uris);
    HttpRoute {
        name: namer.open("closed"),
        matches: uris.map(|uri| matching(uri, own)).collect(),
        direct_response: Some(answer(UNAVAILABLE)),
        ..HttpRoute::default()
    }
}

/// Paths that are changed in the same way.
struct Shape {
    uris: Vec<StringMatch>,
    rewrite: Option<String>,
}

/// The paths that the row matches: a prefix by whole segments, as the path itself and everything below it.
fn shapes(row: &Row<'_>, context: &Context<'_>) -> Vec<Shape> {
    let PathMatch { kind, value } = row.path;
    let rewrite = row.route.rewrite.as_deref();
    let below = |rewrite: &str| if rewrite == "/" { "/".to_owned() } else { format!("{rewrite}/") };
    match kind {
        PathMatchType::Exact => {
            let mut uris = vec![StringMatch::Exact(value.clone())];
            let slashed = format!("{value}/");
            // Many backends answer both alike.
            if !row.route.auth.is_open() && !value.ends_with('/') && !context.exact.contains(slashed.as_str())
            {
                uris.push(StringMatch::Exact(slashed));
            }
            vec![Shape { uris, rewrite: None }]
        }
        PathMatchType::PathPrefix if value == "/" => {
            // Replacing / by / changes nothing.
            let rewrite = rewrite.filter(|rewrite| *rewrite != "/").map(below);
            vec![Shape { uris: vec![StringMatch::Prefix("/".to_owned())], rewrite }]
        }
        PathMatchType::PathPrefix => {
            // Where a path is asked for exactly, the prefix's match of that very path would never be reached.
            let itself = (!context.exact.contains(value.as_str())).then(|| StringMatch::Exact(value.clone()));
            let under = StringMatch::Prefix(format!("{value}/"));
            match rewrite {
                Some(rewrite) if rewrite != "/" => {
                    let itself =
                        itself.map(|uri| Shape { uris: vec![uri], rewrite: Some(rewrite.to_owned()) });
                    let under = Shape { uris: vec![under], rewrite: Some(below(rewrite)) };
                    itself.into_iter().chain([under]).collect()
                }
                rewrite => {
                    let uris = itself.into_iter().chain([under]).collect();
                    vec![Shape { uris, rewrite: rewrite.map(str::to_owned) }]
                }
            }
        }
    }
}

fn matching(uri: StringMatch, method: Option<&StringMatch>) -> HttpMatch {
    HttpMatch { uri: Some(uri), method: method.cloned(), ..HttpMatch::default() }
}

/// HTTP/2 carries methods of any spelling, and a backend may read `get` as `GET`: a protected one covers them all.
pub(crate) fn method_match(methods: &BTreeSet<Method>, protected: bool) -> Option<StringMatch> {
    if methods.is_empty() {
        return None;
    }
    let names: Vec<&str> = methods.iter().map(|method| method.as_str()).collect();
    match &names[..] {
        [] => None,
        names if protected => Some(StringMatch::Regex(format!("(?i:{})", names.join("|")))),
        [only] => Some(StringMatch::Exact((*only).to_owned())),
        names => Some(StringMatch::Regex(names.join("|"))),
    }
}

fn destinations(row: &Row<'_>, cluster_domain: &str) -> Vec<HttpRouteDestination> {
    let backends = row.route.backends.list.as_deref().unwrap_or_default();
    let destinations = backends.iter().map(|backend| HttpRouteDestination {
        destination: backend.destination(cluster_domain),
        weight: (backends.len() > 1).then_some(backend.weight),
    });
    destinations.collect()
}

fn removing(remove: Vec<String>) -> Option<Headers> {
    let request = HeaderOperations { remove, ..HeaderOperations::default() };
    (!request.remove.is_empty()).then_some(Headers { request: Some(request), response: None })
}

pub(crate) fn answer(status: u16) -> HttpDirectResponse {
    HttpDirectResponse { status, body: None }
}

/// Names the entries of a row. No text of a user is part of a name; the request is part of the hash, so that the names of
/// one host are distinct.
struct Namer<'n, 'a> {
    row: &'n Row<'a>,
    context: &'n Context<'n>,
}

impl Namer<'_, '_> {
    fn digest(&self, role: &str) -> String {
        let key = &self.row.claimant.prepared.key;
        let kind = match self.row.path.kind {
            PathMatchType::Exact => "exact",
            PathMatchType::PathPrefix => "prefix",
        };
        let methods: Vec<&str> = self.row.methods.iter().map(|method| method.as_str()).collect();
        let value = &self.row.path.value;
        hash(&[&key.namespace, &key.name, self.context.host, kind, value, &methods.join(","), role])
    }

    fn open(&self, role: &str) -> String {
        [names::OPEN_ROUTE_PREFIX, &self.digest(role)].concat()
    }

    fn protected(&self, id: &ProviderId, role: &str) -> String {
        [names::AUTH_ROUTE_PREFIX, id.as_str(), ".", &self.digest(role)].concat()
    }
}
