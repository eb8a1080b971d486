//! The guard chains: which there shall be, what the gateways' pods hold of them and of the routes.

mod asked;
mod key;
mod observe;
mod state;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Client, core::ApiResource};
use mesh_api::{ConditionType, Reason, istio::EnvoyFilter};
use operator_kit::{
    apply::{Applier, Decision as Difference, Desired, Force, Ownership, Target as ObjectName, decide},
    backoff::{Backoff, ObjectBackoff},
    cache::{Entry, Key, Wake},
    fields::Digest,
};
use routes::{
    ChainFacts, Finding, Marker, ObjectKey, RequestVerdict, Status,
    guard::{Chain, GuardedGateway, Provider, ProviderId, TokenKey, groups, pod_sets, validate_chain},
};
use tokio::time::Instant;
use tracing::{error, info, warn};

use crate::{
    discover::{self, Environment, MeshConfig, Signals},
    observe::{Caches, resource},
};
use asked::{Asked, AskedChain};
use state::{ChainState, Decision, Held, LiveChain};

pub(crate) use key::SECRET;
pub(crate) use observe::{ObservedChain, ObservedPod, ObservedService, chain, demanded, live, mesh_config};

/// After a failed write of a chain.
const FAILURE: Backoff = Backoff { base: Duration::from_secs(1), cap: Duration::from_mins(1) };
/// For how long after a start a gateway without ready pods is believed to hold what it held.
const GRACE: Duration = Duration::from_secs(10);

/// How chains are written.
#[derive(Clone, Debug)]
pub(crate) struct GuardSettings {
    /// The integrator's namespace.
    pub(crate) namespace: String,
    /// The root namespace where no istiod can be seen.
    pub(crate) root_namespace: String,
    /// The least time between two writes of a chain that add a provider.
    pub(crate) interval: Duration,
    /// How long connections drain, if not what the mesh config says.
    pub(crate) drain: Option<Duration>,
}

/// A Gateway as the pass sees it.
#[derive(Clone, Debug, Default)]
pub(crate) struct GatewayView {
    /// The labels of its pods.
    pub(crate) selector: BTreeMap<String, String>,
    /// Its pods; nothing where they are not followed.
    pub(crate) pods: Option<BTreeMap<Key, Arc<ObservedPod>>>,
}

/// An `EnvoyFilter` in the cache, and what was read from it.
type Observed = (Entry<Option<Box<ObservedChain>>>, Box<ObservedChain>);

/// What is known of a chain in this pass.
struct Known {
    environment: Environment,
    selector: BTreeMap<String, String>,
    facts: ChainFacts,
}

/// Writes chains, and asks pods.
pub(crate) struct Guard {
    settings: GuardSettings,
    client: Client,
    applier: Applier,
    caches: Arc<Caches>,
    resource: ApiResource,
    asked: Asked,
    key: key::Key,
    started: Instant,
    gateways: BTreeMap<ObjectKey, GatewayView>,
    /// By the namespace and name of the `EnvoyFilter`.
    states: BTreeMap<Key, ChainState>,
    known: BTreeMap<Key, Known>,
    chain_of: BTreeMap<ObjectKey, Result<Key, Finding>>,
    failures: ObjectBackoff<Key>,
}

impl Guard {
    /// A guard that has looked at nothing yet.
    pub(crate) fn new(
        settings: GuardSettings,
        client: Client,
        applier: Applier,
        caches: Arc<Caches>,
        wake: Wake,
    ) -> Self {
        Self {
            settings,
            client,
            applier,
            caches,
            resource: resource::<EnvoyFilter>(),
            asked: Asked::start(wake),
            key: key::Key::default(),
            started: Instant::now(),
            gateways: BTreeMap::new(),
            states: BTreeMap::new(),
            known: BTreeMap::new(),
            chain_of: BTreeMap::new(),
            failures: ObjectBackoff::new(FAILURE),
        }
    }

    /// Says that the key's Secret is to be looked at again before the next pass.
    pub(crate) fn doubt_key(&mut self) {
        self.key.doubt();
    }

    /// Makes sure that there is a key.
    pub(crate) async fn prepare(&mut self) -> anyhow::Result<()> {
        self.key.ensure(&self.client, &self.settings.namespace).await
    }

    /// The key; nothing before [`Guard::prepare`] succeeded.
    pub(crate) fn token_key(&self) -> Option<&TokenKey> {
        self.key.get()
    }

    /// Looks at the gateways, and says what their pods hold of the chains.
    pub(crate) fn facts(
        &mut self,
        gateways: BTreeMap<ObjectKey, GatewayView>,
        configs: &BTreeMap<Key, MeshConfig>,
    ) -> BTreeMap<ObjectKey, ChainFacts> {
        let now = Instant::now();
        self.gateways = gateways;
        let Some(token_key) = self.key.get().cloned() else { return BTreeMap::new() };
        let guarded = self.gateways.iter().map(|(key, view)| {
            let pods = view.pods.iter().flat_map(BTreeMap::keys);
            let pods = pods.map(|pod| ObjectKey::new(&pod.namespace, &pod.name));
            (key.clone(), GuardedGateway { selector: view.selector.clone(), pods: pods.collect() })
        });
        let guarded = guarded.collect();
        let groups = groups(&guarded);
        let mut pods_of = pod_sets(&guarded, &groups);
        let services = self.caches.services.snapshot();
        let tags: BTreeMap<String, String> =
            services.values().filter_map(|entry| entry.value.tag.clone()).collect();
        let environments: BTreeMap<ObjectKey, Result<Environment, Finding>> = self
            .gateways
            .iter()
            .map(|(key, view)| (key.clone(), self.environment(view, &tags, configs)))
            .collect();
        let fallback = self.fallback();
        let chains: Vec<_> = groups
            .into_iter()
            .map(|(gateway, group)| {
                let environment = environments.get(&gateway).cloned();
                let chain = group.and_then(|selector| {
                    let environment = environment.unwrap_or_else(|| Ok(fallback.clone()))?;
                    let key =
                        Key { namespace: environment.root_namespace.clone(), name: Chain::name(&selector) };
                    Ok((key, environment, selector))
                });
                (gateway, chain)
            })
            .collect();
        self.chain_of = chains
            .into_iter()
            .map(|(gateway, chain)| {
                let key = chain.map(|(key, environment, selector)| {
                    let known = Known { environment, selector, facts: ChainFacts::default() };
                    self.known.insert(key.clone(), known);
                    key
                });
                (gateway, key)
            })
            .collect();
        let live_names: BTreeSet<Key> =
            self.chain_of.values().filter_map(|key| key.as_ref().ok().cloned()).collect();
        self.known.retain(|key, _| live_names.contains(key));
        for key in &live_names {
            self.look(key, &token_key, now);
        }
        let of_gateway = |gateway: &ObjectKey| {
            let facts = ChainFacts { pods: pods_of.remove(gateway), ..self.facts_of(gateway) };
            (gateway.clone(), facts)
        };
        self.gateways.keys().map(of_gateway).collect()
    }

    fn facts_of(&self, gateway: &ObjectKey) -> ChainFacts {
        match self.chain_of.get(gateway) {
            Some(Ok(key)) => self.known.get(key).map(|known| known.facts.clone()).unwrap_or_default(),
            Some(Err(finding)) => ChainFacts { chain: Some(Err(finding.clone())), ..ChainFacts::default() },
            None => ChainFacts::default(),
        }
    }

    fn fallback(&self) -> Environment {
        Environment {
            root_namespace: self.settings.root_namespace.clone(),
            paths_not_normalized: false,
            drain: self.settings.drain.unwrap_or(discover::DEFAULT_DRAIN),
        }
    }

    fn environment(
        &self,
        view: &GatewayView,
        tags: &BTreeMap<String, String>,
        configs: &BTreeMap<Key, MeshConfig>,
    ) -> Result<Environment, Finding> {
        let planes: Vec<_> = self
            .caches
            .control_planes
            .snapshot()
            .into_values()
            .map(|entry| entry.value.as_ref().clone())
            .collect();
        let namespaces = self.caches.namespaces.snapshot();
        let of_namespace = |name: &str| {
            let key = Key { namespace: String::new(), name: name.to_owned() };
            namespaces.get(&key).and_then(|entry| entry.value.get(discover::REVISION_LABEL).cloned())
        };
        let pods = || view.pods.iter().flatten();
        let revisions = pods().filter_map(|(key, pod)| {
            pod.revision().map(str::to_owned).or_else(|| of_namespace(&key.namespace))
        });
        let found = discover::environment(Signals {
            revisions: &revisions.collect(),
            tags,
            planes: &planes,
            configs,
            fallback: &self.settings.root_namespace,
        })?;
        // A pod may have a drain time of its own; the longest is right for all.
        let longest = pods().filter_map(|(_, pod)| pod.drain).fold(found.drain, Duration::max);
        Ok(Environment { drain: self.settings.drain.unwrap_or(longest), ..found })
    }

    /// The `EnvoyFilter` of this name, if there is one.
    fn observed(&self, key: &Key) -> Option<Observed> {
        let entry = self.caches.chains.snapshot().remove(key)?;
        let chain = entry.value.as_ref().clone()?;
        Some((entry, chain))
    }

    /// Whether the chain is as we would write it, and what is in it.
    fn live(&self, key: &Key, selector: &BTreeMap<String, String>, token_key: &TokenKey) -> LiveChain {
        let Some((_, observed)) = self.observed(key) else { return LiveChain::Absent };
        let content = Chain { selector: selector.clone(), providers: observed.chain.providers.clone() };
        let object = content.envoy_filter(&key.namespace, &self.settings.namespace, token_key);
        let (spec, desired) =
            (serde_json::to_value(&object.spec), Desired::new(&object, self.applier.identity()));
        let (Ok(spec), Ok(desired)) = (spec, desired) else {
            return LiveChain::Changed(observed.chain.providers);
        };
        // What others added to it is not ours to overwrite by an apply, and changes it all the same.
        if decide(&desired, Some(&observed.live)) == Difference::Keep && observed.spec == Digest::of(&spec) {
            LiveChain::Intact(observed.chain.providers)
        } else {
            LiveChain::Changed(observed.chain.providers)
        }
    }

    fn look(&mut self, key: &Key, token_key: &TokenKey, now: Instant) {
        let Some(known) = self.known.get(key) else { return };
        let (selector, drain) = (known.selector.clone(), known.environment.drain);
        let live = self.live(key, &selector, token_key);
        let used = self.used();
        let written = self.observed(key).and_then(|(_, chain)| since(chain.written.map(|time| time.0), now));
        let pods = self.chain_proofs(key);
        let state = self.states.entry(key.clone()).or_insert_with(|| ChainState::new(now, written));
        let holdings = state.observe(&live, &pods, &used, drain, now);
        let foreign = self.observed(key).and_then(|(_, chain)| match &chain.live.ownership {
            Ownership::Foreign(owner) => Some(foreign_chain(key, owner)),
            Ownership::Ours(_) => None,
        });
        let Some(known) = self.known.get_mut(key) else { return };
        if let Some(finding) = foreign {
            let paths_not_normalized = known.environment.paths_not_normalized;
            known.facts =
                ChainFacts { chain: Some(Err(finding)), paths_not_normalized, ..ChainFacts::default() };
            return;
        }
        known.facts = ChainFacts {
            chain: Some(Ok(key.to_string())),
            holds: holdings.holds,
            ready: holdings.ready,
            known: match live {
                LiveChain::Intact(providers) => providers,
                LiveChain::Absent | LiveChain::Changed(_) => BTreeMap::new(),
            },
            paths_not_normalized: known.environment.paths_not_normalized,
            pods: None,
        };
    }

    /// The providers that routes in the cluster demand.
    fn used(&self) -> BTreeSet<ProviderId> {
        let routes = self.caches.virtual_services.snapshot();
        routes.values().flat_map(|entry| entry.value.demanded.iter().cloned()).collect()
    }

    /// The Gateways of a chain.
    fn members(&self, key: &Key) -> impl Iterator<Item = (&ObjectKey, &GatewayView)> {
        self.gateways
            .iter()
            .filter(move |(gateway, _)| matches!(self.chain_of.get(*gateway), Some(Ok(of)) if of == key))
    }

    /// What each ready pod of the chain's gateways said when asked for it.
    fn chain_proofs(&self, key: &Key) -> BTreeMap<String, Held> {
        let views = self.members(key).filter_map(|(_, view)| view.pods.as_ref());
        let ready = views.flat_map(BTreeMap::values).filter(|pod| pod.ready);
        ready.map(|pod| (pod.uid.clone(), self.asked.held(key, &pod.uid))).collect()
    }

    /// Makes the chains what the routes need, and has the pods asked what they hold; returns how many writes failed.
    ///
    /// `wanted` are the providers that the routes of each Gateway need.
    pub(crate) async fn step(
        &mut self,
        wanted: &BTreeMap<ObjectKey, BTreeMap<ProviderId, Provider>>,
        markers: &BTreeMap<String, Marker>,
    ) -> usize {
        let Some(token_key) = self.key.get().cloned() else { return 0 };
        let now = Instant::now();
        let mut failures = 0;
        for key in self.known.keys().cloned().collect::<Vec<_>>() {
            let members: Vec<ObjectKey> = self.members(&key).map(|(gateway, _)| gateway.clone()).collect();
            let of_members = members.iter().filter_map(|gateway| wanted.get(gateway)).flatten();
            let of_members = of_members.map(|(id, provider)| (id.clone(), provider.clone())).collect();
            if !self.write(&key, &of_members, &token_key, now).await {
                failures += 1;
            }
        }
        failures += self.prune(now).await;
        self.ask(markers, &token_key);
        failures
    }

    /// Writes a chain if it is to be written; whether that succeeded.
    async fn write(
        &mut self,
        key: &Key,
        wanted: &BTreeMap<ProviderId, Provider>,
        token_key: &TokenKey,
        now: Instant,
    ) -> bool {
        let Some(selector) = self.known.get(key).map(|known| known.selector.clone()) else { return true };
        let observed = self.observed(key);
        if let Some((_, chain)) = &observed
            && let Ownership::Foreign(owner) = &chain.live.ownership
        {
            if !wanted.is_empty() {
                error!(kind = KIND, object = %key, %owner, "a guard chain's name is taken");
                let finding = foreign_chain(key, owner);
                self.refuse(key, &finding);
            }
            return wanted.is_empty();
        }
        let live = self.live(key, &selector, token_key);
        let used = self.used();
        let Some(state) = self.states.get_mut(key) else { return true };
        let decision = state.decide(wanted, &live, &used, self.settings.interval, now);
        if decision == Decision::Keep || self.failures.waits(key, now).is_some() {
            return decision == Decision::Keep;
        }
        let outcome = match decision {
            Decision::Keep => Ok(()),
            Decision::Delete => self.delete(key).await,
            Decision::Write(providers) => {
                let repair = matches!(live, LiveChain::Changed(_));
                self.apply(key, Chain { selector, providers }, observed, repair, token_key).await
            }
        };
        match outcome {
            Ok(()) => {
                self.failures.succeeded(key);
                if let Some(state) = self.states.get_mut(key) {
                    state.written = Some(now);
                }
                true
            }
            Err(message) => {
                warn!(kind = KIND, object = %key, error = message, "guard chain not written");
                self.failures.failed(key.clone(), now, Backoff::jitter());
                false
            }
        }
    }

    async fn apply(
        &self,
        key: &Key,
        chain: Chain,
        observed: Option<Observed>,
        repair: bool,
        token_key: &TokenKey,
    ) -> Result<(), String> {
        let object = chain.envoy_filter(&key.namespace, &self.settings.namespace, token_key);
        let problems = validate_chain(&object);
        if let Some(first) = problems.first() {
            return Err(format!("it failed the integrator's own check, which is a defect: {first}"));
        }
        let desired = Desired::new(&object, self.applier.identity()).map_err(|error| error.to_string())?;
        let live = observed.as_ref().map(|(_, chain)| &chain.live);
        if repair && decide(&desired, live) == Difference::Keep {
            // What others added to it no apply of ours takes away. Until it is made anew, its routes answer 503.
            self.delete(key).await?;
            info!(kind = KIND, object = %key, "deleted, to be made anew without what others added");
            return Ok(());
        }
        let stored =
            self.applier.apply(&desired, live, Force::Everything).await.map_err(|error| error.to_string())?;
        if let Some(object) = stored {
            let (key, entry) = observe::chain(&object, self.applier.identity(), &self.settings.namespace);
            self.caches.chains.put(key, entry);
        }
        info!(kind = KIND, object = %key, providers = chain.providers.len(), repair, "guard chain written");
        Ok(())
    }

    async fn delete(&self, key: &Key) -> Result<(), String> {
        let Some((entry, observed)) = self.observed(key) else { return Ok(()) };
        let name =
            ObjectName { kind: KIND.to_owned(), namespace: key.namespace.clone(), name: key.name.clone() };
        let answer = self.applier.prune(&self.resource, &name, &observed.live, &entry.version).await;
        answer.map_err(|error| error.to_string())?;
        self.caches.chains.forget(key, &entry.uid);
        info!(kind = KIND, object = %key, "guard chain deleted");
        Ok(())
    }

    /// Deletes chains of ours that belong to no Gateway any more, once no route uses them. Returns how many could not be.
    async fn prune(&mut self, now: Instant) -> usize {
        let used = self.used();
        let present = self.caches.chains.snapshot();
        let surplus: Vec<Key> = present
            .iter()
            .filter_map(|(key, entry)| {
                let chain = entry.value.as_ref().as_ref()?;
                let ours = matches!(chain.live.ownership, Ownership::Ours(_)) && !chain.live.terminating;
                let idle = chain.chain.providers.keys().all(|id| !used.contains(id));
                (ours && idle && !self.known.contains_key(key)).then(|| key.clone())
            })
            .collect();
        self.states.retain(|key, _| self.known.contains_key(key) || present.contains_key(key));
        let mut failures = 0;
        for key in surplus {
            if self.failures.waits(&key, now).is_some() {
                continue;
            }
            if let Err(message) = self.delete(&key).await {
                warn!(kind = KIND, object = %key, error = message, "guard chain not deleted");
                self.failures.failed(key, now, Backoff::jitter());
                failures += 1;
            }
        }
        failures
    }

    fn refuse(&mut self, key: &Key, finding: &Finding) {
        for of in self.chain_of.values_mut() {
            if matches!(of, Ok(of) if of == key) {
                *of = Err(finding.clone());
            }
        }
    }

    /// Has each ready pod asked for the routes of each host, and for the chain where it is in place.
    fn ask(&mut self, markers: &BTreeMap<String, Marker>, token_key: &TokenKey) {
        let chains = self.known.iter().filter_map(|(key, known)| {
            let LiveChain::Intact(providers) = self.live(key, &known.selector, token_key) else {
                return None;
            };
            let (entry, _) = self.observed(key)?;
            let answer = Chain { selector: known.selector.clone(), providers }.answer(token_key);
            let epoch = format!("{}/{}", entry.uid, entry.version);
            Some((key, AskedChain { key: key.clone(), answer, epoch }))
        });
        let chains: BTreeMap<&Key, AskedChain> = chains.collect();
        let chain_of = |gateway: &ObjectKey| match self.chain_of.get(gateway) {
            Some(Ok(key)) => chains.get(key).cloned(),
            Some(Err(_)) | None => None,
        };
        self.asked.want(markers, &self.gateways, &self.caches.services.snapshot(), chain_of);
    }

    /// Whether the gateway's pods hold the routes of a request. `stored` are its conditions as they are.
    pub(crate) fn programmed(&self, verdict: &RequestVerdict, stored: &[Condition]) -> Finding {
        if verdict.virtual_services.is_empty() {
            let message = "nothing of the request is served".to_owned();
            return finding(Status::False, Reason::NotProgrammed, message);
        }
        let now = Instant::now();
        self.asked.programmed(verdict, stored, now).unwrap_or_else(|| {
            let before = stored.iter().find(|condition| {
                condition.type_ == ConditionType::Programmed.as_str()
                    && condition.observed_generation == verdict.generation
            });
            self.without_pods(verdict, before, now)
        })
    }

    fn without_pods(&self, verdict: &RequestVerdict, before: Option<&Condition>, now: Instant) -> Finding {
        let followed = verdict.virtual_services.iter().any(|name| {
            let key = Key { namespace: self.settings.namespace.clone(), name: name.clone() };
            let Some(object) = self.caches.virtual_services.get(&key) else { return false };
            let followed = |(gateway, view): (&ObjectKey, &GatewayView)| {
                view.pods.is_some() && object.value.gateways.contains(&gateway.to_string())
            };
            self.gateways.iter().any(followed)
        });
        if !followed {
            let message =
                "the routes are written; the gateway's pods are not known, so that they cannot be asked"
                    .to_owned();
            return finding(Status::Unknown, Reason::ProbeImpossible, message);
        }
        if let Some(before) = before.filter(|before| before.status == "True" && now < self.started + GRACE) {
            return finding(Status::True, Reason::Programmed, before.message.clone());
        }
        finding(Status::False, Reason::NotProgrammed, "no pod of the gateway is ready".to_owned())
    }

    /// When something may be tried again, or changes by itself.
    pub(crate) fn next(&self) -> Option<Instant> {
        let now = Instant::now();
        let states = self.states.values().filter_map(ChainState::next);
        states.chain(self.failures.next(now)).chain(self.asked.next(now)).min()
    }
}

const KIND: &str = "EnvoyFilter";

fn finding(status: Status, reason: Reason, message: String) -> Finding {
    Finding { status, reason, message }
}

fn foreign_chain(key: &Key, owner: &operator_kit::conflict::Owner) -> Finding {
    let message = format!(
        "{KIND} {key} exists and belongs to {owner}; it is left as it is, and routes that ask for a login answer 503. Delete or \
         rename it"
    );
    finding(Status::False, Reason::ObjectConflict, message)
}

/// The moment of a time stamp on this process's clock, if it is not in the future.
fn since(time: Option<Timestamp>, now: Instant) -> Option<Instant> {
    let age = Timestamp::now().duration_since(time?);
    now.checked_sub(Duration::try_from(age).ok()?)
}
