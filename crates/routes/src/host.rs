//! The `VirtualService` of one host on one gateway.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use mesh_api::Reason;
use mesh_api::integrator::PathMatchType;
use mesh_api::istio::{HttpBody, HttpDirectResponse, HttpMatch, HttpRoute, StringMatch, VirtualService};
use mesh_api::names;
use sha2::{Digest as _, Sha256};

use crate::auth::{Identified, IdentityHeaders, RouteAuth};
use crate::emit::{self, hash, hexadecimal};
use crate::entries::{self, Context, Demand, Refused, answer};
use crate::guard::{Provider, ProviderId};
use crate::input::{ChainFacts, GatewayFacts, Input, ObjectKey};
use crate::memo::Memo;
use crate::neighbours::{self, Guarded};
use crate::output::Finding;
use crate::table::{self, Claimant, Outcome, RouteOutcome, Row};
use crate::validate::{ByUri, MAX_BYTES, Problem, json_size, validate_of_size};

/// What the object holds beside its routes, in bytes, with room to spare.
const OVERHEAD: usize = 8192;

/// What became of a host. It says nothing of other hosts, and refers to claimants by their place, so that it can be kept
/// while others change.
pub(crate) struct Host {
    pub(crate) gateway: Arc<ObjectKey>,
    /// The host.
    pub(crate) domain: String,
    /// The name of the object.
    pub(crate) name: String,
    /// Nothing where no claimant has a valid path, since an object without routes would be invalid.
    pub(crate) object: Option<Result<Arc<VirtualService>, Vec<Problem>>>,
    pub(crate) probe: Option<Probe>,
    /// One for each claimant.
    pub(crate) outcomes: Vec<Outcome>,
    /// The check that each protected route demands, by the place of the claimant and of the route in its request; sorted.
    pub(crate) demands: Vec<((usize, usize), Demand)>,
}

/// How the gateway's pods can be asked what they hold of a host.
pub(crate) struct Probe {
    /// See [`crate::Marker::path`].
    pub(crate) path: String,
    /// See [`crate::Marker::digest`].
    pub(crate) digest: String,
    /// Whether a route asks for a login.
    protected: bool,
}

impl Probe {
    /// See [`crate::Marker::chain_path`].
    pub(crate) fn chain_path(&self) -> Option<String> {
        self.protected.then(|| [&self.path, "/chain"].concat())
    }
}

/// What all hosts of one gateway have in common.
pub(crate) struct GatewayContext<'g, 'a> {
    pub(crate) input: &'g Input<'a>,
    pub(crate) gateway: &'g Arc<ObjectKey>,
    /// The facts about it, if there are any.
    pub(crate) facts: Option<&'g GatewayFacts>,
    pub(crate) chain: &'g ChainFacts,
    pub(crate) identity: &'g IdentityHeaders<'g>,
    pub(crate) memo: &'g Memo<'g>,
}

/// Compiles a host. Where not all claimants fit into one object, the youngest are left out.
pub(crate) fn compile(host: &str, claimants: &[Claimant<'_>], context: &GatewayContext<'_, '_>) -> Host {
    let whole = context.compile(host, claimants, claimants.len());
    if whole.bytes <= MAX_BYTES {
        return whole.host;
    }
    // The most of the oldest that fit: the size grows with their number.
    let (mut fits, mut too_many) = (0, claimants.len());
    while too_many - fits > 1 {
        let middle = fits + (too_many - fits) / 2;
        if context.compile(host, claimants, middle).bytes <= MAX_BYTES {
            fits = middle;
        } else {
            too_many = middle;
        }
    }
    context.compile(host, claimants, fits).host
}

struct Sized {
    host: Host,
    bytes: usize,
}

impl GatewayContext<'_, '_> {
    fn compile(&self, host: &str, claimants: &[Claimant<'_>], limit: usize) -> Sized {
        let mut table = table::build(host, claimants, limit);
        let exact: BTreeSet<&str> =
            table.rows.iter().filter(|row| row.methods.is_empty()).filter_map(exact).collect();
        let cluster_domain = &self.input.settings.cluster_domain;
        let entry_context = Context { host, cluster_domain, memo: self.memo, exact: &exact };
        let strict = table.rows.iter().filter(|row| !row.route.auth.is_open());
        let guarded: Vec<Guarded<'_>> =
            strict.map(|row| Guarded { path: row.path, methods: &row.methods }).collect();
        let mut demands = Vec::new();
        let mut http = Vec::new();
        for row in &table.rows {
            let demand = self.demand(row);
            let refused = self.refused(row, demand.as_ref(), &guarded);
            if matches!(refused, Refused::Untold) {
                tell(&mut table.outcomes, row, too_long(row));
            }
            let identity = self.foreign_identity(row, demand.as_ref());
            http.extend(entries::entries(row, demand.as_ref(), &identity, refused, &entry_context));
            if let Some(demand) = demand {
                demands.push(((row.place, row.position), demand));
            }
        }
        demands.sort_unstable_by_key(|(place, _)| *place);
        demands.shrink_to_fit();
        drop_dead_matches(&mut http);
        let outcomes = table.outcomes;
        let gateway = Arc::clone(self.gateway);
        let name = emit::virtual_service_name(self.gateway, host);
        let domain = host.to_owned();
        if http.is_empty() {
            let host = Host { gateway, domain, name, object: None, probe: None, outcomes, demands };
            return Sized { host, bytes: 0 };
        }
        // Writing plain structs of strings as JSON cannot fail; if it did, the object would count as too large.
        let json = serde_json::to_vec(&http).unwrap_or_default();
        let bytes = if json.is_empty() { usize::MAX } else { json.len() + OVERHEAD };
        let probe = self.probe(&domain, &json, !demands.is_empty());
        let mut object =
            emit::virtual_service(name.clone(), self.gateway, self.facts, &domain, self.input.settings);
        let mut entries = marker_entries(self.gateway, &domain, &probe);
        entries.reserve_exact(http.len());
        object.spec.http = entries;
        let size = size_with(&object, &json);
        object.spec.http.append(&mut http);
        // What is too large is compiled again with fewer claimants, and need not be looked at.
        let problems = if bytes > MAX_BYTES {
            Vec::new()
        } else {
            validate_of_size(&object, size, self.input.token_key)
        };
        let mut outcomes = outcomes;
        let object = if problems.is_empty() {
            Ok(Arc::new(object))
        } else {
            crate::verdict::withhold(&mut outcomes, &name, &problems);
            Err(problems)
        };
        let (object, probe) = (Some(object), Some(probe));
        Sized { host: Host { gateway, domain, name, object, probe, outcomes, demands }, bytes }
    }

    /// The check that a protected route demands: the provider as it is now, unless an older form of it is still in force
    /// everywhere and this one not yet. Whichever it is, without its check the route answers 503.
    fn demand(&self, row: &Row<'_>) -> Option<Demand> {
        let RouteAuth::Protected(provider) = &row.route.auth else { return None };
        row.route.backends.list.as_ref().ok()?;
        Some(demand(provider, self.chain))
    }

    fn refused(&self, row: &Row<'_>, demand: Option<&Demand>, guarded: &[Guarded<'_>]) -> Refused {
        let not_normalized = self.chain.paths_not_normalized;
        let told = match (demand, row.path.kind) {
            (Some(demand), _) => self.memo.own_pages(row.path, demand, not_normalized),
            (None, PathMatchType::PathPrefix) if row.route.auth.is_open() && !guarded.is_empty() => {
                neighbours::refused_by(row.path, &row.methods, guarded, not_normalized)
            }
            (None, _) => Some(Vec::new()),
        };
        told.map_or(Refused::Untold, Refused::These)
    }

    /// The identity headers that the backends believe, but for those that the route's own check sets.
    fn foreign_identity<'s>(&'s self, row: &'s Row<'_>, demand: Option<&Demand>) -> Vec<&'s str> {
        let mut headers = self.identity.of(&row.route.backends.namespaces).into_owned();
        if let Some(default) = &row.claimant.prepared.default_provider {
            headers.extend(default.identity_headers.iter().map(String::as_str));
            headers.sort_unstable();
            headers.dedup();
        }
        if let Some(demand) = demand {
            headers.retain(|header| !demand.provider.identity_headers.iter().any(|own| own == header));
        }
        headers
    }

    fn probe(&self, host: &str, routes: &[u8], protected: bool) -> Probe {
        let digest = hexadecimal(Sha256::digest(routes).get(..16).unwrap_or_default());
        Probe { path: self.input.token_key.marker_path(self.gateway, host), digest, protected }
    }
}

/// The size of an object as JSON once routes, of which `json` is the list, stand behind those that it has; nothing if it
/// cannot be told.
fn size_with(object: &VirtualService, json: &[u8]) -> Result<usize, serde_json::Error> {
    // A comma instead of two brackets.
    Ok(json_size(object)? + json.len().saturating_sub(1))
}

/// Which form of the provider routes use on a gateway with this chain.
pub(crate) fn demand(provider: &Arc<Identified>, chain: &ChainFacts) -> Demand {
    enforced_before(provider, chain).map_or_else(
        || Arc::clone(provider),
        |(id, older)| Arc::new(Identified { id: id.clone(), provider: older.clone() }),
    )
}

/// The older form of the provider that is in force on every pod while the provider as it is now is not.
pub(crate) fn enforced_before<'c>(
    provider: &Identified,
    chain: &'c ChainFacts,
) -> Option<(&'c ProviderId, &'c Provider)> {
    if chain.ready.contains(&provider.id) {
        return None;
    }
    chain.known.iter().find(|(known, older)| {
        chain.ready.contains(known) && older.key == provider.key && older.uid == provider.uid
    })
}

/// Drops what an earlier route matches word for word, and routes of which nothing is left: rows may meet in a path, such as
/// an exact path and a prefix with the same method.
fn drop_dead_matches(http: &mut Vec<HttpRoute>) {
    let entries = || http.iter().flat_map(|route| &route.matches);
    let mut seen = HashSet::with_capacity(entries().count());
    let alive: Vec<bool> = entries().map(|entry| seen.insert(ByUri(entry))).collect();
    if alive.contains(&false) {
        let mut alive = alive.into_iter();
        for route in &mut *http {
            route.matches.retain(|_| alive.next().unwrap_or(true));
        }
    }
    http.retain(|route| !route.matches.is_empty());
}

fn exact<'r>(row: &Row<'r>) -> Option<&'r str> {
    (row.path.kind == PathMatchType::Exact).then_some(row.path.value.as_str())
}

/// By these entries a gateway pod can be asked which routes it holds and, beside protected ones, which guard chain.
fn marker_entries(gateway: &ObjectKey, host: &str, probe: &Probe) -> Vec<HttpRoute> {
    let entry = |name: String, path: &str, response| HttpRoute {
        name,
        matches: vec![HttpMatch { uri: Some(StringMatch::Exact(path.to_owned())), ..HttpMatch::default() }],
        direct_response: response,
        ..HttpRoute::default()
    };
    let digest = hash(&[&gateway.namespace, &gateway.name, host, "marker"]);
    let body = HttpBody { string: probe.digest.clone() };
    let routes = entry(
        format!("{}{digest}", names::OPEN_ROUTE_PREFIX),
        &probe.path,
        Some(HttpDirectResponse { status: 200, body: Some(body) }),
    );
    let chain = probe
        .chain_path()
        .map(|path| entry(format!("{}{digest}", names::PROBE_ROUTE_PREFIX), &path, Some(answer(503))));
    std::iter::once(routes).chain(chain).collect()
}

/// Tells the owner of a row what is wrong with it on this host.
fn tell(outcomes: &mut [Outcome], row: &Row<'_>, finding: Finding) {
    if let Some(Ok(routes)) = outcomes.get_mut(row.place)
        && let Some(outcome) = routes.get_mut(row.position)
    {
        *outcome = RouteOutcome::Partly(finding);
    }
}

fn too_long(row: &Row<'_>) -> Finding {
    let message = format!(
        "path {} or one that is protected beside it is too long to tell apart in every spelling, so that it answers 503: \
         use shorter paths, or another host",
        row.path.value
    );
    Finding::bad(Reason::InvalidSpec, message)
}
