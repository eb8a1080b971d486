//! One pass: observe, plan, apply, report.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use kube::core::ApiResource;
use mesh_api::{
    AuthProvider, GatewayBinding, IngressRequest,
    integrator::{AuthProviderStatus, GatewayBindingStatus, IngressRequestStatus},
};
use operator_kit::{
    apply::{Applier, Ownership},
    cache::{Cache, Entry, Key, Sync},
    metrics::Metrics,
    notice::Notices,
    status::StatusWriter,
};
use routes::{GatewayFacts, Grants, ObjectKey, Settings};
use tokio::time::Instant;
use tracing::{debug, error, info};

use crate::{
    apply::{Results, RouteWriter},
    follow::{GatewayPods, MeshConfigs},
    guard::{GatewayView, Guard},
    observe::{self, Caches, Custom, ObservedBinding, ObservedRoutes},
    plan::{self, Facts, Plan, Planner},
    status::{StatusJob, StatusStage},
    verdict,
};

/// The name of the one controller in metrics.
const CONTROLLER: &str = "routes";

/// After how long a pass is tried again for which the key of the guard chains was missing.
const KEY_RETRY: Duration = Duration::from_secs(5);

/// Makes passes, and remembers between them what the cluster does not tell.
pub(crate) struct Reconciler {
    settings: Settings,
    caches: Arc<Caches>,
    pods: GatewayPods,
    mesh_configs: MeshConfigs,
    /// In which namespaces each Gateway's pods were when there last were any.
    last_namespaces: HashMap<ObjectKey, BTreeSet<String>>,
    writer: RouteWriter,
    statuses: StatusStage,
    guard: Guard,
    planner: Planner,
    /// When a pass that could not be made may be tried again.
    retry_at: Option<Instant>,
    bindings: ApiResource,
    providers: ApiResource,
    requests: ApiResource,
    metrics: Arc<Metrics>,
}

/// What a reconciler works with.
pub(crate) struct Parts {
    /// What it reads.
    pub(crate) caches: Arc<Caches>,
    /// The gateways' pods.
    pub(crate) pods: GatewayPods,
    /// The mesh configs.
    pub(crate) mesh_configs: MeshConfigs,
    /// By which it writes routes.
    pub(crate) applier: Applier,
    /// By which it writes statuses.
    pub(crate) statuses: StatusWriter,
    /// By which it sends Events.
    pub(crate) notices: Notices,
    /// The guard chains.
    pub(crate) guard: Guard,
    /// What it counts.
    pub(crate) metrics: Arc<Metrics>,
}

impl Reconciler {
    /// A reconciler that has made no pass yet.
    pub(crate) fn new(settings: Settings, parts: Parts) -> Self {
        let Parts { caches, pods, mesh_configs, applier, statuses, notices, guard, metrics } = parts;
        Self {
            settings,
            pods,
            mesh_configs,
            last_namespaces: HashMap::new(),
            writer: RouteWriter::new(applier, Arc::clone(&caches.virtual_services), Arc::clone(&metrics)),
            caches,
            statuses: StatusStage::new(statuses, notices),
            guard,
            planner: Planner::default(),
            retry_at: None,
            bindings: observe::resource::<GatewayBinding>(),
            providers: observe::resource::<AuthProvider>(),
            requests: observe::resource::<IngressRequest>(),
            metrics,
        }
    }

    /// Follows the pods of the Gateways that bindings name now.
    pub(crate) fn observe_gateways(&mut self) {
        let gateways = self.caches.gateways.snapshot();
        let named = named_gateways(&self.caches.bindings);
        let specs = named.iter().filter_map(|key| {
            let key = Key { namespace: key.namespace.clone(), name: key.name.clone() };
            gateways.get(&key).and_then(|entry| entry.value.as_ref().as_ref().ok())
        });
        self.pods.select(specs.map(|spec| &spec.selector));
        self.mesh_configs.select(&self.caches.control_planes);
    }

    /// What still hinders a pass. No pass may be made before this is empty: what has not been listed would look as if
    /// it were gone, and its routes would be removed.
    pub(crate) fn missing(&self) -> Vec<String> {
        let mut missing = self.caches.missing();
        missing.extend(self.missing_pods());
        missing
    }

    /// What of [`Reconciler::missing`] concerns the gateways' pods and their mesh.
    pub(crate) fn missing_pods(&self) -> Vec<String> {
        let mut missing = self.pods.missing();
        missing.extend(self.mesh_configs.missing());
        missing
    }

    /// Says that what is only looked at from time to time is to be looked at again.
    pub(crate) fn doubt(&mut self) {
        self.guard.doubt_key();
    }

    /// When something that failed may be tried again.
    pub(crate) fn next(&self) -> Option<Instant> {
        [self.writer.next(), self.statuses.next(), self.guard.next(), self.retry_at]
            .into_iter()
            .flatten()
            .min()
    }

    /// Makes the cluster what the bindings and requests ask for, and tells them what became of it.
    pub(crate) async fn pass(&mut self) {
        let start = Instant::now();
        if let Err(error) = self.guard.prepare().await {
            // Without the key every protected route would be written anew with another token.
            error!(error = format!("{error:#}"), "no pass is made without the key of the guard chains");
            self.metrics.reconciled(CONTROLLER, false, start.elapsed());
            self.retry_at = Some(Instant::now() + KEY_RETRY);
            return;
        }
        self.retry_at = None;
        let facts = self.facts();
        let Some(token_key) = self.guard.token_key() else { return };
        let plan = self.planner.plan(&facts, &self.settings, token_key, self.writer.identity());
        let mut results = plan.unwritable.clone();
        let mut failures = 0;
        if facts.istio_served {
            // New routes before old ones go: a host that moves to another object is served all the while.
            results.extend(self.writer.apply(&plan.objects).await);
            failures += results.values().filter(|result| result.is_err()).count();
            // A chain that is late closes its routes, and one that stays longer than they do is of no harm.
            failures += self.guard.step(&plan.chains, &plan.markers).await;
            failures += self.writer.prune(&plan.objects, &plan.withheld).await;
        }
        failures += self.report(&facts, &plan, &results).await;
        self.count(&facts, &plan);
        let took = start.elapsed();
        self.metrics.reconciled(CONTROLLER, failures == 0, took);
        let (requests, objects) = (facts.requests.len(), plan.objects.len());
        if failures == 0 {
            debug!(requests, objects, ?took, "pass done");
        } else {
            info!(requests, objects, failures, ?took, "pass done, with failures");
        }
    }

    fn facts(&mut self) -> Facts {
        let gateways = self.gateway_facts();
        let chains = self.guard.facts(self.gateway_views(), &self.mesh_configs.known());
        let own = self.caches.virtual_services.snapshot();
        let is_ours =
            |entry: &Entry<ObservedRoutes>| matches!(entry.value.live.ownership, Ownership::Ours(_));
        let written = own.iter().filter(|(_, entry)| is_ours(entry));
        let written = written.map(|(key, entry)| (key.name.clone(), entry.value.created.clone())).collect();
        let foreign = own.values().filter(|entry| !is_ours(entry)).map(|entry| entry.value.foreign.clone());
        let others = self.caches.foreign.snapshot().into_values().map(|entry| entry.value.as_ref().clone());
        let foreign = foreign
            .chain(others)
            .filter(|routes| routes.gateways.iter().any(|gateway| gateways.contains_key(gateway)));
        let foreign = foreign.collect();
        let mut claims: BTreeMap<String, Vec<ObjectKey>> = BTreeMap::new();
        for (key, entry) in self.caches.claims.snapshot() {
            for host in entry.value.iter() {
                claims.entry(host.clone()).or_default().push(object_key(&key));
            }
        }
        let grants = self.caches.grants.snapshot().into_values().map(|entry| entry.value.as_ref().clone());
        let grants = Grants { served: self.caches.grants.sync() == Sync::Synced, list: grants.collect() };
        let services = self.caches.services.snapshot().into_iter();
        let namespaces = self.caches.namespaces.snapshot().into_iter();
        Facts {
            istio_served: self.caches.istio_served(),
            bindings: self.caches.bindings.snapshot(),
            requests: self.caches.requests.snapshot(),
            gateways,
            providers: self.caches.providers.snapshot(),
            grants,
            claims,
            foreign,
            written,
            chains,
            services: services.map(|(key, entry)| (object_key(&key), entry.value.facts.clone())).collect(),
            namespaces: namespaces.map(|(key, entry)| (key.name, entry.value.as_ref().clone())).collect(),
        }
    }

    /// The gateways that bindings name, with their pods.
    fn gateway_views(&self) -> BTreeMap<ObjectKey, GatewayView> {
        let observed = self.caches.gateways.snapshot();
        let named = named_gateways(&self.caches.bindings).into_iter().filter_map(|key| {
            let cached = observed.get(&Key { namespace: key.namespace.clone(), name: key.name.clone() })?;
            let spec = cached.value.as_ref().as_ref().ok()?;
            let view = GatewayView { selector: spec.selector.clone(), pods: self.pods.pods(&spec.selector) };
            Some((key, view))
        });
        named.collect()
    }

    fn gateway_facts(&mut self) -> BTreeMap<ObjectKey, GatewayFacts> {
        let observed = self.caches.gateways.snapshot();
        let routes = self.caches.virtual_services.snapshot();
        let own = &self.settings.namespace;
        let mut facts = BTreeMap::new();
        for key in named_gateways(&self.caches.bindings) {
            let cached = observed.get(&Key { namespace: key.namespace.clone(), name: key.name.clone() });
            let remembered = self.last_namespaces.get(&key);
            // After a restart, what was written then tells where the pods were.
            let written = || {
                let name = key.to_string();
                let ours = routes.values().find(|entry| entry.value.gateways.contains(&name));
                ours.map(|entry| plan::exported_to(&entry.value.export_to, own)).unwrap_or_default()
            };
            let last_were = || remembered.cloned().unwrap_or_else(written);
            let gateway = match cached.map(|entry| entry.value.as_ref()) {
                Some(Ok(spec)) => {
                    let pods = self.pods.pods(&spec.selector);
                    let namespaces = pods.map(|pods| pods.into_keys().map(|key| key.namespace).collect());
                    plan::gateway_facts(spec, namespaces, last_were)
                }
                // Gone, or of a form that cannot be read: its routes stay as they are until it is back.
                _ => GatewayFacts { workload_namespaces: last_were(), gone: true, ..GatewayFacts::default() },
            };
            self.last_namespaces.insert(key.clone(), gateway.workload_namespaces.clone());
            facts.insert(key, gateway);
        }
        self.last_namespaces.retain(|key, _| facts.contains_key(key));
        facts
    }

    async fn report(&mut self, facts: &Facts, plan: &Plan, results: &Results) -> usize {
        let now = Timestamp::now();
        let requests = self.request_statuses(facts, plan, results, now);
        let bindings = binding_statuses(facts, plan, now);
        let providers = provider_statuses(facts, plan, now);
        let failed = self.statuses.write(&self.requests, &self.caches.requests, requests).await;
        let failed = failed + self.statuses.write(&self.providers, &self.caches.providers, providers).await;
        failed + self.statuses.write(&self.bindings, &self.caches.bindings, bindings).await
    }

    fn request_statuses(
        &self,
        facts: &Facts,
        plan: &Plan,
        results: &Results,
        now: Timestamp,
    ) -> Vec<StatusJob<IngressRequestStatus>> {
        let namespace = &self.settings.namespace;
        let judged = plan.requests.iter().filter_map(|verdict| {
            let key = Key { namespace: verdict.key.namespace.clone(), name: verdict.key.name.clone() };
            let entry = facts.requests.get(&key)?;
            let stored = &entry.value.status;
            let programmed = self.guard.programmed(verdict, &stored.conditions);
            let wanted = verdict::of_request(verdict, stored, results, &programmed, namespace, now);
            Some(job(key, entry, wanted))
        });
        let undecodable = facts.requests.iter().filter_map(|(key, entry)| {
            let error = undecodable(entry)?;
            let stored = &entry.value.status.conditions;
            let wanted = IngressRequestStatus {
                observed_generation: entry.value.generation,
                conditions: verdict::undecodable(error, stored, entry.value.generation, now),
                ..IngressRequestStatus::default()
            };
            Some(job(key.clone(), entry, wanted))
        });
        judged.chain(undecodable).collect()
    }

    /// Counts what this pass has looked at, each object once, so that one can tell a quiet operator from a stuck one.
    fn count(&self, facts: &Facts, plan: &Plan) {
        self.metrics.reconciled_objects("IngressRequest", facts.requests.len());
        self.metrics.reconciled_objects("GatewayBinding", facts.bindings.len());
        self.metrics.reconciled_objects("AuthProvider", facts.providers.len());
        self.metrics.reconciled_objects("VirtualService", plan.objects.len());
        for key in facts.requests.keys() {
            debug!(kind = "IngressRequest", object = %key, "reconciled");
        }
    }
}

fn binding_statuses(facts: &Facts, plan: &Plan, now: Timestamp) -> Vec<StatusJob<GatewayBindingStatus>> {
    let judged = plan.bindings.iter().filter_map(|verdict| {
        let key = Key { namespace: String::new(), name: verdict.name.clone() };
        let entry = facts.bindings.get(&key)?;
        Some(job(key, entry, verdict::of_binding(verdict, &entry.value.status, now)))
    });
    let undecodable = facts.bindings.iter().filter_map(|(key, entry)| {
        let error = undecodable(entry)?;
        let stored = &entry.value.status.conditions;
        let wanted = GatewayBindingStatus {
            observed_generation: entry.value.generation,
            conditions: verdict::undecodable(error, stored, entry.value.generation, now),
            ..GatewayBindingStatus::default()
        };
        Some(job(key.clone(), entry, wanted))
    });
    judged.chain(undecodable).collect()
}

fn provider_statuses(facts: &Facts, plan: &Plan, now: Timestamp) -> Vec<StatusJob<AuthProviderStatus>> {
    let judged = plan.providers.iter().filter_map(|verdict| {
        let key = Key { namespace: verdict.key.namespace.clone(), name: verdict.key.name.clone() };
        let entry = facts.providers.get(&key)?;
        Some(job(key, entry, verdict::of_provider(verdict, &entry.value.status, now)))
    });
    let undecodable = facts.providers.iter().filter_map(|(key, entry)| {
        let error = undecodable(entry)?;
        let stored = &entry.value.status.conditions;
        let wanted = AuthProviderStatus {
            observed_generation: entry.value.generation,
            conditions: verdict::undecodable(error, stored, entry.value.generation, now),
            ..AuthProviderStatus::default()
        };
        Some(job(key.clone(), entry, wanted))
    });
    judged.chain(undecodable).collect()
}

fn undecodable<K, Status>(entry: &Entry<Custom<K, Status>>) -> Option<&str> {
    let error = entry.value.object.as_ref().err()?;
    (!entry.value.terminating).then_some(error)
}

fn job<K, Status: Clone>(key: Key, entry: &Entry<Custom<K, Status>>, wanted: Status) -> StatusJob<Status> {
    StatusJob { key, uid: entry.uid.clone(), stored: entry.value.status.clone(), wanted }
}

/// The Istio Gateways that bindings name, each once.
fn named_gateways(bindings: &Cache<ObservedBinding>) -> BTreeSet<ObjectKey> {
    let references = bindings.snapshot().into_values().filter_map(|entry| {
        let binding = entry.value.object.as_ref().ok()?;
        let reference = binding.spec.gateway.istio_gateway.as_ref()?;
        Some(ObjectKey::new(&reference.namespace, &reference.name))
    });
    references.collect()
}

fn object_key(key: &Key) -> ObjectKey {
    ObjectKey::new(&key.namespace, &key.name)
}
