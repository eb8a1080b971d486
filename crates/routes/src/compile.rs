//! The whole compile, in the order of its steps.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mesh_api::Reason;

use crate::age::Age;
use crate::auth::{AuthResolver, Identified, IdentityHeaders, Providers, RouteAuth};
use crate::backend::{ServiceIndex, Targets};
use crate::bindings;
use crate::fingerprint::{self, Fingerprint};
use crate::grants::GrantIndex;
use crate::guard::Provider;
use crate::host::{self, GatewayContext, Host, Probe};
use crate::input::{ChainFacts, Input, ObjectKey};
use crate::memo::Memo;
use crate::output::{Finding, Marker, Output};
use crate::overlap;
use crate::prepare::{self, Prepared};
use crate::servers;
use crate::table::Claimant;
use crate::verdict::{self, ForeignIndex, Hosts};

/// Compiles requests to `VirtualServices` and to what their guard chains must hold, and says what became of each request,
/// binding and provider.
pub fn compile(input: &Input<'_>) -> Output {
    Compiler::default().compile(input)
}

/// Compiles again and again, and makes anew only the hosts of which something has changed. What it returns is what
/// [`compile()`] returns for the same input.
#[derive(Default)]
pub struct Compiler {
    /// In the order of gateways and hosts.
    hosts: Vec<Kept>,
    made: usize,
}

struct Kept {
    fingerprint: Fingerprint,
    host: Arc<Host>,
}

impl Kept {
    fn place(&self) -> (&ObjectKey, &str) {
        (&self.host.gateway, &self.host.domain)
    }
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
        let services = ServiceIndex::new(input.services);
        let targets = Targets { services: &services, grants: &grants };
        let mut requests = prepare::prepare(input, &bindings, &resolver, &targets);
        limit_providers(&mut requests, &providers, input);
        overlap::refuse(&mut requests, input);
        let identity = identity_headers(&requests, input);
        let foreign = ForeignIndex::new(input.foreign);
        let memo = Memo::new(input.token_key);
        let no_chain = ChainFacts::default();
        let key_mark = input.token_key.marker_path(&ObjectKey::new("", ""), "");
        let mut output = Output::default();
        let mut markers = Vec::new();
        let mut hosts = Hosts::new(&requests);
        let mut writer = fingerprint::Writer::default();
        let mut old = std::mem::take(&mut self.hosts).into_iter().peekable();
        let mut kept = Vec::with_capacity(old.len());
        self.made = 0;
        let claimants = by_gateway_and_host(&requests);
        for of_gateway in claimants.chunk_by(|a, b| a.gateway == b.gateway) {
            let Some(Claimant { gateway, .. }) = of_gateway.first() else { continue };
            let chain = input.chains.get(gateway.as_ref()).unwrap_or(&no_chain);
            let facts = input.gateways.get(gateway.as_ref());
            let context = GatewayContext { input, gateway, facts, chain, identity: &identity, memo: &memo };
            let in_common = fingerprint::of_gateway(&context, &key_mark);
            for claimants in of_gateway.chunk_by(|a, b| a.host == b.host) {
                let Some(Claimant { host, .. }) = claimants.first() else { continue };
                let fingerprint = fingerprint::of_host(host, claimants, &context, &in_common, &mut writer);
                let place = (gateway.as_ref(), *host);
                while old.next_if(|kept| kept.place() < place).is_some() {}
                let same = old.next_if(|kept| kept.place() == place);
                let compiled = if let Some(kept) = same.filter(|kept| kept.fingerprint == fingerprint) {
                    kept.host
                } else {
                    self.made += 1;
                    Arc::new(host::compile(host, claimants, &context))
                };
                match &compiled.object {
                    Some(Ok(object)) => {
                        demand_checks(&mut output, &compiled, claimants);
                        output.virtual_services.push(Arc::clone(object));
                        if let Some(probe) = &compiled.probe {
                            markers.push((compiled.name.clone(), marker(&compiled, probe, &context)));
                        }
                    }
                    Some(Err(_)) => output.withheld.push(compiled.name.clone()),
                    None => {}
                }
                let foreign = foreign.first(input, &compiled);
                hosts.record(&compiled, claimants, chain, foreign.as_ref());
                kept.push(Kept { fingerprint, host: compiled });
            }
        }
        self.hosts = kept;
        output.markers = markers.into_iter().collect();
        output.virtual_services.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        output.withheld.sort();
        output.requests = verdict::requests(&requests, &bindings, &hosts);
        output.bindings = verdict::bindings(&bindings, &requests, &output.requests);
        output.providers = verdict::providers(&providers, &requests, &hosts);
        output
    }
}

/// How a gateway's pods can be asked for a host.
fn marker(host: &Host, probe: &Probe, context: &GatewayContext<'_, '_>) -> Marker {
    let facts = context.facts.filter(|facts| !facts.gone);
    let listeners =
        facts.map(|facts| servers::listeners(&host.domain, context.gateway, facts, context.input.settings));
    Marker {
        gateway: context.gateway.as_ref().clone(),
        host: host.domain.clone(),
        listeners: listeners.unwrap_or_default(),
        path: probe.path.clone(),
        digest: probe.digest.clone(),
        chain_path: probe.chain_path(),
    }
}

/// Notes what the guard chain of a gateway must hold for the routes of a host: what they demand, and what they are to
/// demand next, which must be in force before.
fn demand_checks(output: &mut Output, host: &Host, claimants: &[Claimant<'_>]) {
    if host.demands.is_empty() {
        return;
    }
    if !output.chains.contains_key(host.gateway.as_ref()) {
        output.chains.insert(host.gateway.as_ref().clone(), BTreeMap::new());
    }
    let Some(wanted) = output.chains.get_mut(host.gateway.as_ref()) else { return };
    let mut want = |provider: &Identified| {
        // Thousands of routes want the same.
        if !wanted.contains_key(&provider.id) {
            wanted.insert(provider.id.clone(), provider.provider.clone());
        }
    };
    for ((place, position), demand) in &host.demands {
        want(demand);
        let route = claimants.get(*place).and_then(|claimant| claimant.prepared.routes.get(*position));
        if let Some(RouteAuth::Protected(provider)) = route.map(|route| &route.auth) {
            want(provider);
        }
    }
}

/// Closes the routes of providers that a guard chain has no room for, the youngest first.
fn limit_providers(requests: &mut [Prepared<'_>], providers: &Providers<'_>, input: &Input<'_>) {
    let limit = input.settings.max_providers_per_gateway;
    let mut used: BTreeMap<String, BTreeSet<ObjectKey>> = BTreeMap::new();
    for request in requests.iter() {
        let Some(chain) = chain_name(request, input) else { continue };
        if !used.contains_key(chain.as_ref()) {
            used.insert(chain.clone().into_owned(), BTreeSet::new());
        }
        let Some(keys) = used.get_mut(chain.as_ref()) else { continue };
        for route in &request.routes {
            if let RouteAuth::Protected(provider) = &route.auth
                && !keys.contains(&provider.key)
            {
                keys.insert(provider.key.clone());
            }
        }
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
        let Some(admitted) = chain_name(request, input).and_then(|chain| admitted.get(chain.as_ref())) else {
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
fn chain_name<'i>(request: &Prepared<'_>, input: &Input<'i>) -> Option<Cow<'i, str>> {
    let gateway = &request.choice.as_ref().ok()?.gateway;
    let chain = input.chains.get(gateway.as_ref()).and_then(|facts| facts.chain.as_ref());
    Some(match chain {
        Some(Ok(name)) => Cow::Borrowed(name),
        _ => Cow::Owned(gateway.to_string()),
    })
}

/// The identity headers of every provider that is asked for, also of one that cannot be asked, and of the older form of one
/// that is still in force: the backends believe each of them.
fn identity_headers<'r>(requests: &'r [Prepared<'_>], input: &Input<'r>) -> IdentityHeaders<'r> {
    let mut identity = IdentityHeaders::default();
    for request in requests {
        let gateway = request.choice.as_ref().ok().map(|choice| choice.gateway.as_ref());
        let chain = gateway.and_then(|gateway| input.chains.get(gateway));
        for route in &request.routes {
            let Some(provider) = route.auth.provider() else { continue };
            let namespaces = &route.backends.namespaces;
            identity.note(namespaces, provider);
            if let Some((_, older)) = chain.and_then(|chain| host::enforced_before(provider, chain)) {
                identity.note(namespaces, older);
            }
        }
    }
    identity
}

/// The admitted claims by gateway and host, and of one host the oldest first.
fn by_gateway_and_host<'a>(requests: &'a [Prepared<'a>]) -> Vec<Claimant<'a>> {
    let mut claimants = Vec::with_capacity(requests.len());
    for (request, prepared) in requests.iter().enumerate() {
        let Ok(choice) = &prepared.choice else { continue };
        for (claim, claimed) in prepared.claims.iter().enumerate() {
            let Ok(admission) = &claimed.admission else { continue };
            let (gateway, host) = (&choice.gateway, claimed.host.as_ref());
            claimants.push(Claimant { request, claim, prepared, admission, gateway, host });
        }
    }
    // Requests of one binding have one key of the gateway, which need not be compared with itself.
    let by_gateway = |a: &Claimant<'_>, b: &Claimant<'_>| {
        if Arc::ptr_eq(a.gateway, b.gateway) { Ordering::Equal } else { a.gateway.cmp(b.gateway) }
    };
    claimants.sort_by(|a, b| by_gateway(a, b).then_with(|| a.host.cmp(b.host)));
    claimants
}
