//! The entries of a `VirtualService` that one route of a table becomes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mesh_api::header::dash_spellings;
use mesh_api::integrator::{Method, PathMatch, PathMatchType};
use mesh_api::istio::{
    HeaderOperations, Headers, HttpDirectResponse, HttpMatch, HttpRewrite, HttpRoute, HttpRouteDestination,
    StringMatch,
};
use mesh_api::names;

use crate::auth::Identified;
use crate::emit::hash;
use crate::guard::{ProviderId, TokenKey};
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
    pub(crate) token_key: &'c TokenKey,
    /// The paths that some row has exactly and for every method.
    pub(crate) exact: &'c BTreeSet<&'c str>,
}

/// The entries of a row. `demand` is there for a protected one; `foreign_identity` are the identity headers that the
/// backend believes and that this route's own check does not set; `refused` is what the row matches and refuses.
pub(crate) fn entries(
    row: &Row<'_>,
    demand: Option<&Demand>,
    foreign_identity: &BTreeSet<&str>,
    refused: Refused,
    context: &Context<'_>,
) -> Vec<HttpRoute> {
    let namer = Namer { row, context };
    let shapes = shapes(row, context);
    let refused = match refused {
        Refused::Untold => return vec![closed(&namer, &shapes)],
        _ if row.route.broken().is_some() => return vec![closed(&namer, &shapes)],
        Refused::These(matches) => matches,
    };
    let remove: Vec<String> = foreign_identity
        .iter()
        .flat_map(|header| dash_spellings(header))
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    let Some(demand) = demand else {
        let open = shapes.iter().enumerate().map(|(place, shape)| HttpRoute {
            name: namer.open(&format!("open{place}")),
            matches: shape.uris.iter().map(|uri| matching(uri, row)).collect(),
            headers: removing(remove.clone()),
            ..forward(row, shape)
        });
        let refused = refusal(row, refused, namer.open("neighbours"), AMBIGUOUS_PATH);
        return refused.into_iter().chain(open).collect();
    };
    let token = context.token_key.token(&demand.id);
    let mut remove = remove;
    remove.push(names::GUARD_HEADER.to_owned());
    remove.sort();
    let guard = BTreeMap::from([(names::GUARD_HEADER.to_owned(), StringMatch::Exact(token))]);
    let mut entries = Vec::new();
    if let Some(refused) = refusal(row, refused, namer.open("pages"), OWN_PAGE) {
        entries.push(refused);
    }
    entries.extend(shapes.iter().enumerate().map(|(place, shape)| {
        let matches = shape.uris.iter().map(|uri| HttpMatch { headers: guard.clone(), ..matching(uri, row) });
        HttpRoute {
            name: namer.protected(&demand.id, &format!("passed{place}")),
            matches: matches.collect(),
            headers: removing(remove.clone()),
            ..forward(row, shape)
        }
    }));
    let uris = shapes.iter().flat_map(|shape| &shape.uris);
    let matches = uris.map(|uri| HttpMatch { without_headers: guard.clone(), ..matching(uri, row) });
    entries.push(HttpRoute {
        name: namer.protected(&demand.id, "refused"),
        matches: matches.collect(),
        direct_response: Some(answer(UNAVAILABLE)),
        ..HttpRoute::default()
    });
    entries
}

/// What a row refuses, for the methods that it has.
fn refusal(row: &Row<'_>, matches: Vec<HttpMatch>, name: String, status: u16) -> Option<HttpRoute> {
    let own = method_match(&row.methods, !row.route.auth.is_open());
    let with_method = |entry: HttpMatch| HttpMatch { method: entry.method.or_else(|| own.clone()), ..entry };
    let matches: Vec<HttpMatch> = matches.into_iter().map(with_method).collect();
    (!matches.is_empty()).then(|| HttpRoute {
        name,
        matches,
        direct_response: Some(answer(status)),
        ..HttpRoute::default()
    })
}

fn closed(namer: &Namer<'_, '_>, shapes: &[Shape]) -> HttpRoute {
    let uris = shapes.iter().flat_map(|shape| &shape.uris);
    HttpRoute {
        name: namer.open("closed"),
        matches: uris.map(|uri| matching(uri, namer.row)).collect(),
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

fn matching(uri: &StringMatch, row: &Row<'_>) -> HttpMatch {
    let method = method_match(&row.methods, !row.route.auth.is_open());
    HttpMatch { uri: Some(uri.clone()), method, ..HttpMatch::default() }
}

/// HTTP/2 carries methods of any spelling, and a backend may read `get` as `GET`: a protected one covers them all.
pub(crate) fn method_match(methods: &BTreeSet<Method>, protected: bool) -> Option<StringMatch> {
    let names: Vec<&str> = methods.iter().map(|method| method.as_str()).collect();
    match &names[..] {
        [] => None,
        names if protected => Some(StringMatch::Regex(format!("(?i:{})", names.join("|")))),
        [only] => Some(StringMatch::Exact((*only).to_owned())),
        names => Some(StringMatch::Regex(names.join("|"))),
    }
}

fn forward(row: &Row<'_>, shape: &Shape) -> HttpRoute {
    let destinations = row.route.backends.list.as_deref().unwrap_or_default();
    let route = destinations.iter().map(|backend| HttpRouteDestination {
        destination: backend.destination.clone(),
        weight: (destinations.len() > 1).then_some(backend.weight),
    });
    HttpRoute {
        route: route.collect(),
        rewrite: shape.rewrite.clone().map(|uri| HttpRewrite { uri: Some(uri) }),
        timeout: row.route.timeout.clone(),
        ..HttpRoute::default()
    }
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
        format!("{}{}", names::OPEN_ROUTE_PREFIX, self.digest(role))
    }

    fn protected(&self, id: &ProviderId, role: &str) -> String {
        format!("{}{id}.{}", names::AUTH_ROUTE_PREFIX, self.digest(role))
    }
}
