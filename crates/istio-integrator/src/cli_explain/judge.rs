//! From what was read to the answer: pure, the time given.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::LeaseSpec;
use mesh_api::{IngressRequest, Reason, integrator::PathMatchType};
use operator_kit::apply::Ownership;
use routes::{
    Finding, Input, ObjectKey, Output, RequestVerdict, ServiceFacts, Settings, compile, guard::TokenKey,
};

use super::{
    gateway,
    report::{Binding, Condition, Host, Object, Report, Route},
    world::{SeenLease, World},
};

/// Verdicts do not depend on the key, and the integrator's own is nothing for a person who asks.
const NO_KEY: TokenKey = TokenKey::new([0; 32]);

/// After how long without a renewal a lease is taken for one that nobody holds.
const STALE_SECONDS: i64 = 60;

/// What was found out about the request.
struct Case<'w> {
    world: &'w World,
    settings: &'w Settings,
    request: Option<&'w IngressRequest>,
    /// Why the request is none.
    undecodable: Option<&'w str>,
    /// What the integrator would say, where enough could be read to tell.
    computed: Option<RequestVerdict>,
    /// Whether the status is about the request as it is.
    current: bool,
}

/// Answers.
pub(super) fn judge(world: &World, settings: &Settings, now: Timestamp) -> Report {
    let request = world.request.as_ref().and_then(|request| request.as_ref().ok());
    let undecodable = world.request.as_ref().and_then(|request| request.as_ref().err()).map(String::as_str);
    let status = &world.status;
    let case = Case {
        world,
        settings,
        request,
        undecodable,
        computed: computed(world, settings),
        current: status.observed_generation.is_some() && status.observed_generation == world.generation,
    };
    let (operator, idle) = operator(&world.lease, settings, now);
    let binding = case.binding();
    let gateway_key = case.gateway(binding.name.as_deref());
    let gateway = gateway_key.as_ref().map(|key| gateway::report(world, key));
    let conditions = case.conditions();
    let objects = case.objects(gateway_key.as_ref());
    let served = case.served(&objects);
    let mut report = Report {
        request: world.key.as_ref().map(ToString::to_string).unwrap_or_default(),
        served,
        summary: case.summary(served, &conditions, &objects, idle),
        hosts: case.hosts(&binding),
        auth: case.computed.as_ref().map_or_else(|| status.auth.clone(), |verdict| verdict.auth.clone()),
        routes: case.routes(),
        binding: Some(binding),
        conditions,
        objects,
        gateway,
        operator,
        unseen: world.gaps.clone(),
        next_steps: Vec::new(),
    };
    report.next_steps = case.next_steps(&report, idle);
    report
}

/// What the integrator would decide.
fn computed(world: &World, settings: &Settings) -> Option<RequestVerdict> {
    if world.gaps.iter().any(|gap| gap.decisive) {
        return None;
    }
    let key = world.key.as_ref()?;
    let services = world.services.iter().map(|service| {
        let key = operator_kit::cache::Key::of(&service.metadata);
        (ObjectKey::new(key.namespace, key.name), ServiceFacts::from(service))
    });
    let services: BTreeMap<ObjectKey, ServiceFacts> = services.collect();
    let is_ours = |owner: &Ownership| matches!(owner, Ownership::Ours(_));
    let written = world.routes.iter().flatten().filter(|(_, routes)| is_ours(&routes.live.ownership));
    let written = written.map(|(name, routes)| (name.clone(), routes.created.clone())).collect();
    // Like the integrator, look only at routes of others that are on a gateway of a binding.
    let foreign = world
        .foreign
        .iter()
        .filter(|routes| routes.gateways.iter().any(|gateway| world.gateways.contains_key(gateway)));
    let foreign: Vec<_> = foreign.cloned().collect();
    let output: Output = compile(&Input {
        settings,
        istio_served: world.istio_served,
        bindings: world.bindings.iter().collect(),
        requests: world.requests.iter().collect(),
        providers: world.providers.iter().collect(),
        grants: &world.grants,
        claims: &world.claims,
        foreign: &foreign,
        written: &written,
        chains: &gateway::chains(world),
        token_key: &NO_KEY,
        namespaces: &world.namespaces,
        services: &services,
        gateways: &gateway::facts(world),
    });
    output.requests.into_iter().find(|verdict| verdict.key == *key)
}

/// Whether an integrator runs, in words, and whether it is known that none does.
fn operator(lease: &SeenLease, settings: &Settings, now: Timestamp) -> (String, bool) {
    let namespace = &settings.namespace;
    let lease = match lease {
        SeenLease::Unread => return ("not known: its lease may not be read".to_owned(), false),
        SeenLease::Absent => LeaseSpec::default(),
        SeenLease::Present(lease) => lease.clone(),
    };
    let Some(holder) = lease.holder_identity.filter(|name| !name.is_empty()) else {
        return (format!("does not run: nobody holds its lease in namespace {namespace}"), true);
    };
    let renewed = lease.renew_time.map(|time| time.0);
    let age = renewed.map_or(i64::MAX, |renewed| now.as_second().saturating_sub(renewed.as_second()));
    if age > STALE_SECONDS {
        let since = renewed.map_or_else(|| "an unknown time".to_owned(), |renewed| renewed.to_string());
        return (format!("does not run: {holder} has not renewed its lease since {since}"), true);
    }
    (format!("runs: {holder} holds the lease"), false)
}

impl Case<'_> {
    fn namespace(&self) -> &str {
        self.world.key.as_ref().map(|key| key.namespace.as_str()).unwrap_or_default()
    }

    fn binding(&self) -> Binding {
        let named = self.request.and_then(|request| request.spec.binding_ref.as_ref());
        let chosen = match &self.computed {
            Some(verdict) => verdict.binding.clone(),
            None => self.world.status.binding.clone(),
        };
        let why = match (&chosen, named) {
            (None, Some(reference)) => {
                format!("spec.bindingRef names {}, which does not serve it", reference.name)
            }
            (None, None) if self.computed.is_none() => "not known".to_owned(),
            (None, None) => format!("no default binding admits namespace {}", self.namespace()),
            (Some(_), Some(_)) => "spec.bindingRef names it".to_owned(),
            (Some(_), None) => {
                format!(
                    "it is the oldest default binding that admits namespace {} and the hosts",
                    self.namespace()
                )
            }
        };
        let labels = self.world.namespaces.get(self.namespace()).cloned().unwrap_or_default();
        let mut others: Vec<String> = self
            .world
            .bindings
            .iter()
            .filter(|binding| binding.metadata.name != chosen)
            .map(|binding| {
                let admits =
                    binding.spec.namespaces.admits(self.namespace(), &labels, &self.settings.namespace);
                let note = match (admits, binding.spec.default, named.is_some()) {
                    (false, ..) => format!("does not admit namespace {}", self.namespace()),
                    (true, false, _) => {
                        "is not a default one: spec.bindingRef would have to name it".to_owned()
                    }
                    (true, true, true) => "is a default one, and spec.bindingRef names another".to_owned(),
                    (true, true, false) => "is younger, or does not allow the hosts".to_owned(),
                };
                format!("{} {note}", binding.metadata.name.as_deref().unwrap_or_default())
            })
            .collect();
        others.sort();
        Binding { name: chosen, why, others }
    }

    fn gateway(&self, binding: Option<&str>) -> Option<ObjectKey> {
        let binding = self.world.bindings.iter().find(|object| object.metadata.name.as_deref() == binding)?;
        let reference = binding.spec.gateway.istio_gateway.as_ref()?;
        Some(ObjectKey::new(&reference.namespace, &reference.name))
    }

    fn urls(&self) -> &[String] {
        self.computed.as_ref().map_or(&self.world.status.urls, |verdict| &verdict.urls)
    }

    fn hosts(&self, binding: &Binding) -> Vec<Host> {
        let Some(request) = self.request else { return Vec::new() };
        let (hosts, source) = if request.spec.hosts.is_empty() {
            let object = self.world.bindings.iter().find(|object| object.metadata.name == binding.name);
            let policy = object.map(|object| &object.spec.hosts);
            let host = policy.and_then(|policy| {
                let name = self.world.key.as_ref().map(|key| key.name.as_str()).unwrap_or_default();
                let host = policy.template.replace("{name}", name).replace("{namespace}", self.namespace());
                Some(host.replace("{domain}", policy.domain.as_deref()?))
            });
            let source = format!("from the template of binding {}", binding.name.as_deref().unwrap_or("?"));
            (host.into_iter().collect(), source)
        } else {
            (request.spec.hosts.clone(), "from spec.hosts".to_owned())
        };
        let url = |host: &str| {
            let of_host = |url: &&String| {
                let rest = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
                rest.strip_prefix(host).is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '/']))
            };
            self.urls().iter().find(of_host).cloned()
        };
        hosts.into_iter().map(|host| Host { url: url(&host), source: source.clone(), name: host }).collect()
    }

    fn routes(&self) -> Vec<Route> {
        let Some(request) = self.request else { return Vec::new() };
        let statuses = match &self.computed {
            Some(verdict) => &verdict.routes,
            None if self.current => &self.world.status.routes,
            None => return request.spec.routes.iter().map(|route| self.route(route, "", "")).collect(),
        };
        let routes = request.spec.routes.iter().zip(statuses);
        routes.map(|(route, status)| self.route(route, &status.reason, &status.message)).collect()
    }

    fn route(&self, route: &mesh_api::integrator::Route, reason: &str, message: &str) -> Route {
        let kind = match route.path.kind {
            PathMatchType::Exact => "Exact",
            PathMatchType::PathPrefix => "PathPrefix",
        };
        let methods: Vec<String> =
            route.methods.iter().map(|method| format!("{method:?}").to_uppercase()).collect();
        let methods = if methods.is_empty() { String::new() } else { format!("{} ", methods.join(",")) };
        let backends = route.backends.iter().map(|backend| {
            let namespace = backend.namespace.as_deref().unwrap_or(self.namespace());
            format!("{namespace}/{}:{}", backend.service, backend.port)
        });
        Route {
            matches: format!("{methods}{kind} {}", route.path.value),
            backends: backends.collect(),
            reason: if reason.is_empty() { "Unknown".to_owned() } else { reason.to_owned() },
            message: message.to_owned(),
        }
    }

    /// What the status says where it is about the request as it is; and what would be said now where that differs.
    fn conditions(&self) -> Vec<Condition> {
        let mut conditions: Vec<Condition> = Vec::new();
        if self.current {
            conditions.extend(self.world.status.conditions.iter().map(|stored| {
                condition(&stored.type_, &stored.status, &stored.reason, &stored.message, false)
            }));
        }
        let Some(verdict) = &self.computed else { return conditions };
        for (type_, finding) in verdict.conditions() {
            if type_ == mesh_api::ConditionType::AuthInForce && self.chains_unseen() {
                continue;
            }
            // Ready rests on what gateway pods answer, too: only where it does not hold is it known without them.
            let says_more = type_ != mesh_api::ConditionType::Ready || !finding.holds();
            let stored = conditions.iter().find(|stored| stored.type_ == type_.as_str());
            let same = |stored: &Condition| stored.status == finding.status.as_str();
            if says_more && !stored.is_some_and(same) {
                conditions.push(computed_condition(type_.as_str(), finding));
            }
        }
        conditions
    }

    /// Whether nothing can be said of chains although the request needs one.
    fn chains_unseen(&self) -> bool {
        self.world.chains.is_none()
    }

    fn objects(&self, gateway: Option<&ObjectKey>) -> Vec<Object> {
        let mut objects = Vec::new();
        if let (Some(routes), Some(verdict)) = (&self.world.routes, &self.computed) {
            for name in &verdict.virtual_services {
                let (state, good) = match routes.get(name).map(|routes| &routes.live) {
                    None => ("does not exist".to_owned(), false),
                    Some(live) if live.terminating => ("is being deleted".to_owned(), false),
                    Some(live) => match &live.ownership {
                        Ownership::Ours(_) => ("is there".to_owned(), true),
                        Ownership::Foreign(owner) => {
                            (format!("belongs to {owner}, and is left alone"), false)
                        }
                    },
                };
                let name = format!("{}/{name}", self.settings.namespace);
                objects.push(Object { kind: "VirtualService".to_owned(), name, state, good });
            }
        }
        let asks = self
            .computed
            .as_ref()
            .and_then(|verdict| verdict.auth.as_deref())
            .is_some_and(|auth| auth != "None");
        if asks {
            objects.extend(gateway.and_then(|gateway| gateway::chain_object(self.world, gateway)));
        }
        objects
    }

    fn served(&self, objects: &[Object]) -> bool {
        let ready = self.current
            && self
                .world
                .status
                .conditions
                .iter()
                .any(|stored| stored.type_ == "Ready" && stored.status == "True");
        let would_be = self
            .computed
            .as_ref()
            .is_none_or(|verdict| verdict.ready.holds() || (self.chains_unseen() && !verdict.refused()));
        ready && would_be && objects.iter().all(|object| object.good)
    }

    fn summary(&self, served: bool, conditions: &[Condition], objects: &[Object], idle: bool) -> String {
        if served {
            return self.urls().first().map_or_else(|| "served".to_owned(), |url| format!("served at {url}"));
        }
        if let Some(error) = self.undecodable {
            return format!("{}: {error}", Reason::Undecodable);
        }
        // What the request or its surroundings lack comes before what follows from it.
        let failed = |computed: bool| {
            conditions.iter().find(|condition| condition.status != "True" && condition.computed == computed)
        };
        if let Some(condition) = failed(true).or_else(|| failed(false)) {
            return format!("{}: {}", condition.reason, condition.message);
        }
        if let Some(object) = objects.iter().find(|object| !object.good) {
            return format!("{} {} {}", object.kind, object.name, object.state);
        }
        if !self.current {
            let who = if idle { ", and none runs" } else { "" };
            return format!("no istio-integrator has looked at the request as it is{who}");
        }
        "its status does not say that it is ready".to_owned()
    }

    fn next_steps(&self, report: &Report, idle: bool) -> Vec<String> {
        let mut steps = Steps::default();
        for (name, standing) in &self.world.crds {
            steps.add(standing.problem(name));
        }
        for condition in report.conditions.iter().filter(|condition| condition.status != "True") {
            steps.add(condition.remedy.clone());
        }
        if self.undecodable.is_some() {
            steps.add(Some(Reason::Undecodable.remedy().to_owned()));
        }
        let namespace = &self.settings.namespace;
        if idle {
            steps.add(Some(format!(
                "Start istio-integrator, which alone writes routes: `kubectl -n {namespace} scale deployment/istio-integrator \
                 --replicas=2`. If it should run, see `kubectl -n {namespace} get pods`."
            )));
        } else if !self.current && self.undecodable.is_none() {
            steps.add(Some(format!(
                "Wait a few seconds for istio-integrator to look at the request. If it lasts, read `kubectl -n {namespace} logs \
                 deployment/istio-integrator`."
            )));
        }
        let pods = report.gateway.as_ref().and_then(|gateway| gateway.pods.as_ref());
        if pods.is_some_and(|pods| !pods.is_empty() && !pods.iter().any(|pod| pod.ready)) {
            steps.add(Some(
                "No pod of the gateway is ready: see `kubectl describe` of those listed.".to_owned(),
            ));
        }
        if report.served
            && let (Some(url), Some(host)) =
                (self.urls().first(), report.hosts.iter().find(|host| host.url.is_some()))
        {
            steps.add(Some(format!(
                "Ask it: `curl {url}`. Where no DNS name leads to the gateway yet, give the address: `curl --connect-to \
                 {}::ADDRESS {url}`.",
                host.name
            )));
        }
        for gap in report.unseen.iter().filter(|gap| gap.decisive) {
            steps.add(Some(format!("For a full answer, run this with the right to read {}.", gap.what)));
        }
        steps.0
    }
}

/// Next steps, each once.
#[derive(Default)]
struct Steps(Vec<String>);

impl Steps {
    fn add(&mut self, step: Option<String>) {
        if let Some(step) = step.filter(|step| !self.0.contains(step) && step != Reason::Ready.remedy()) {
            self.0.push(step);
        }
    }
}

fn computed_condition(type_: &str, finding: &Finding) -> Condition {
    condition(type_, finding.status.as_str(), finding.reason.as_str(), &finding.message, true)
}

fn condition(type_: &str, status: &str, reason: &str, message: &str, computed: bool) -> Condition {
    let known = Reason::ALL.iter().find(|known| known.as_str() == reason);
    Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        remedy: known.filter(|_| status != "True").map(|known| known.remedy().to_owned()),
        computed,
    }
}
