//! The whole compile, in the order of its steps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mesh_api::Reason;

use crate::age::Age;
use crate::auth::{AuthResolver, IdentityHeaders, Providers, RouteAuth};
use crate::bindings;
use crate::fingerprint::{self, Fingerprint};
use crate::grants::GrantIndex;
use crate::guard::Provider;
use crate::host::{self, GatewayContext, Host};
use crate::input::{ChainFacts, Input, ObjectKey};
use crate::output::{Finding, Marker, Output};
use crate::overlap;
use crate::prepare::{self, Prepared};
use crate::servers;
use crate::table::Claimant;
use crate::verdict::{self, Hosts};

/// Compiles requests to `VirtualServices` and to what their guard chains must hold, and says what became of each request,
/// binding and provider.
pub fn compile(input: &Input<'_>) -> Output {
    Compiler::default().compile(input)
}

/// Compiles again and again, and makes anew only the hosts of which something has changed. What it returns is what
/// [`compile()`] returns for the same input.
#[derive(Default)]
pub struct Compiler {
    hosts: BTreeMap<(ObjectKey, String), Kept>,
    made: usize,
}

struct Kept {
    fingerprint: Fingerprint,
    host: Arc<Host>,
}

impl std::fmt::Debug for Compiler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compiler").field("hosts", &self.hosts.len()).finish_non_exhaustive()
    }
}

impl Compiler {
    /// How many hosts the last compile made anew.
    pub fn made(&self) -> usize {
        self.made
    }

    /// Compiles (see [`compile()`]).
    pub fn compile(&mut self, input: &Input<'_>) -> Output {
        let bindings = bindings::read(input);
        let providers = Providers::read(input);
        let grants = GrantIndex::new(input.grants);
        let resolver = AuthResolver { providers: &providers, grants: &grants };
        let mut requests = prepare::prepare(input, &bindings, &resolver);
        limit_providers(&mut requests, &providers, input);
        overlap::refuse(&mut requests, input);
        let identity = identity_headers(&requests, input);
        let no_chain = ChainFacts::default();
        let key_mark = input.token_key.marker_path(&ObjectKey::new("", ""), "");
        let mut output = Output::default();
        let mut hosts = Hosts::default();
        let mut kept = BTreeMap::new();
        self.made = 0;
        for ((gateway, host), claimants) in by_gateway_and_host(&requests) {
            let chain = input.chains.get(gateway).unwrap_or(&no_chain);
            let context = GatewayContext { input, gateway, chain, identity: &identity, key_mark: &key_mark };
            let key = (gateway.clone(), host.to_owned());
            let fingerprint = fingerprint::of_host(host, &claimants, &context);
            let compiled = match self.hosts.remove(&key) {
                Some(old) if old.fingerprint == fingerprint => old.host,
                _ => {
                    self.made += 1;
                    Arc::new(host::compile(host, &claimants, &context))
                }
            };
            let name = crate::emit::virtual_service_name(gateway, host);
            match &compiled.object {
                Some(Ok(object)) => {
                    demand_checks(&mut output, gateway, &compiled, &claimants);
                    output.virtual_services.push(Arc::clone(object));
                    let facts = input.gateways.get(gateway).filter(|facts| !facts.gone);
                    let listeners =
                        facts.map(|facts| servers::listeners(host, gateway, facts, input.settings));
                    let listeners = listeners.unwrap_or_default();
                    let marker = compiled.marker.clone().map(|marker| Marker { listeners, ..marker });
                    output.markers.extend(marker.map(|marker| (name.clone(), marker)));
                }
                Some(Err(_)) => output.withheld.push(name.clone()),
                None => {}
            }
            let foreign = verdict::foreign(input, gateway, host, &name);
            hosts.record(&compiled, &claimants, &name, gateway, chain, foreign.as_ref());
            kept.insert(key, Kept { fingerprint, host: compiled });
        }
        self.hosts = kept;
        output.virtual_services.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        output.withheld.sort();
        output.requests = verdict::requests(&requests, &bindings, &hosts);
        output.bindings = verdict::bindings(&bindings, &requests, &output.requests);
        output.providers = verdict::providers(&providers, &requests, &hosts);
        output
    }
}

/// Notes what the guard chain of a gateway must hold for the routes of a host: what they demand, and what they are to
/// demand next, which must be in force before.
fn demand_checks(output: &mut Output, gateway: &ObjectKey, host: &Host, claimants: &[Claimant<'_>]) {
    if host.demands.is_empty() {
        return;
    }
    let wanted = output.chains.entry(gateway.clone()).or_default();
    for ((place, position), demand) in &host.demands {
        wanted.entry(demand.id.clone()).or_insert_with(|| demand.provider.clone());
        let route = claimants.get(*place).and_then(|claimant| claimant.prepared.routes.get(*position));
        if let Some(RouteAuth::Protected(provider)) = route.map(|route| &route.auth) {
            wanted.entry(provider.id.clone()).or_insert_with(|| provider.provider.clone());
        }
    }
}

/// Closes the routes of providers that a guard chain has no room for, the youngest first.
fn limit_providers(requests: &mut [Prepared<'_>], providers: &Providers<'_>, input: &Input<'_>) {
    let limit = input.settings.max_providers_per_gateway;
    let mut used: BTreeMap<String, BTreeSet<ObjectKey>> = BTreeMap::new();
    for request in requests.iter() {
        let Some(chain) = chain_name(request, input) else { continue };
        let keys = request.routes.iter().filter_map(|route| match &route.auth {
            RouteAuth::Protected(provider) => Some(provider.key.clone()),
            RouteAuth::Open | RouteAuth::Closed(..) => None,
        });
        used.entry(chain).or_default().extend(keys);
    }
    used.retain(|_, keys| keys.len() > limit);
    if used.is_empty() {
        return;
    }
    let admitted: BTreeMap<String, BTreeSet<ObjectKey>> = used
        .into_iter()
        .map(|(chain, keys)| {
            let mut read: Vec<_> = keys.iter().filter_map(|key| providers.list.get(key)).collect();
            read.sort_by(|a, b| Age::of(&a.object.metadata).cmp(&Age::of(&b.object.metadata)));
            (chain, read.into_iter().take(limit).map(|provider| provider.key.clone()).collect())
        })
        .collect();
    for request in requests {
        let Some(admitted) = chain_name(request, input).and_then(|chain| admitted.get(&chain)) else {
            continue;
        };
        for route in &mut request.routes {
            let RouteAuth::Protected(provider) = &route.auth else { continue };
            if !admitted.contains(&provider.key) {
                route.auth = RouteAuth::Closed(too_many(provider, limit), Some(Arc::clone(provider)));
            }
        }
    }
}

fn too_many(provider: &Provider, limit: usize) -> Finding {
    let message = format!(
        "the gateway has {limit} older AuthProviders in use, and {} is one too many: share providers, or have \
         --max-providers-per-gateway raised",
        provider.key
    );
    Finding::bad(Reason::TooManyProviders, message)
}

/// What the guard chain of the request's gateway is called: gateways of one chain share its room.
fn chain_name(request: &Prepared<'_>, input: &Input<'_>) -> Option<String> {
    let gateway = &request.choice.as_ref().ok()?.gateway;
    let chain = input.chains.get(gateway).and_then(|facts| facts.chain.as_ref());
    Some(match chain {
        Some(Ok(name)) => name.clone(),
        _ => gateway.to_string(),
    })
}

/// The identity headers of every provider that is asked for, also of one that cannot be asked, and of the older form of one
/// that is still in force: the backends believe each of them.
fn identity_headers(requests: &[Prepared<'_>], input: &Input<'_>) -> IdentityHeaders {
    let mut identity = IdentityHeaders::default();
    for request in requests {
        let gateway = request.choice.as_ref().ok().map(|choice| &choice.gateway);
        let chain = gateway.and_then(|gateway| input.chains.get(gateway));
        for route in &request.routes {
            let Some(provider) = route.auth.provider() else { continue };
            let namespaces = || route.backends.namespaces.iter().map(String::as_str);
            identity.note(namespaces(), provider);
            if let Some((_, older)) = chain.and_then(|chain| host::enforced_before(provider, chain)) {
                identity.note(namespaces(), older);
            }
        }
    }
    identity
}

/// The admitted claims, the oldest first, by gateway and host.
fn by_gateway_and_host<'a>(
    requests: &'a [Prepared<'a>],
) -> BTreeMap<(&'a ObjectKey, &'a str), Vec<Claimant<'a>>> {
    let mut groups: BTreeMap<(&ObjectKey, &str), Vec<Claimant<'_>>> = BTreeMap::new();
    for (request, prepared) in requests.iter().enumerate() {
        let Ok(choice) = &prepared.choice else { continue };
        for (claim, claimed) in prepared.claims.iter().enumerate() {
            let Ok(admission) = &claimed.admission else { continue };
            let claimant = Claimant { request, claim, prepared, admission };
            groups.entry((&choice.gateway, claimed.host.as_str())).or_default().push(claimant);
        }
    }
    groups
}
