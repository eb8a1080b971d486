//! What shall be, from what is: pure, without client, clock or environment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mesh_api::{
    Reason,
    istio::{GatewaySpec, VirtualService},
};
use operator_kit::{
    apply::{Desired, Identity},
    cache::{Entry, Key},
};
use routes::{
    BindingVerdict, ChainFacts, Compiler, ForeignRoutes, GatewayFacts, Grants, Input, Marker, ObjectKey,
    ProviderVerdict, RequestVerdict, ServiceFacts, Settings,
    guard::{Provider, ProviderId, TokenKey},
};

use crate::{
    apply::{Results, Unwritten},
    observe::{ObservedBinding, ObservedProvider, ObservedRequest},
};

/// Everything that was observed.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// Whether the cluster serves Istio's kinds.
    pub(crate) istio_served: bool,
    pub(crate) bindings: BTreeMap<Key, Entry<ObservedBinding>>,
    pub(crate) requests: BTreeMap<Key, Entry<ObservedRequest>>,
    pub(crate) gateways: BTreeMap<ObjectKey, GatewayFacts>,
    pub(crate) services: BTreeMap<ObjectKey, ServiceFacts>,
    /// The labels of each namespace.
    pub(crate) namespaces: BTreeMap<String, BTreeMap<String, String>>,
    pub(crate) providers: BTreeMap<Key, Entry<ObservedProvider>>,
    pub(crate) grants: Grants,
    /// The `ServiceEntries` that claim the name of a Service, by that name.
    pub(crate) claims: BTreeMap<String, Vec<ObjectKey>>,
    /// `VirtualServices` of others.
    pub(crate) foreign: Vec<ForeignRoutes>,
    /// When each `VirtualService` of ours was created.
    pub(crate) written: BTreeMap<String, Option<Time>>,
    /// The guard chain of each gateway.
    pub(crate) chains: BTreeMap<ObjectKey, ChainFacts>,
}

/// What shall be done.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// The objects that shall exist, and no other of ours.
    pub(crate) objects: Vec<Desired>,
    /// Objects that shall stay as they are.
    pub(crate) withheld: BTreeSet<Key>,
    /// Objects that cannot be written at all, and why.
    pub(crate) unwritable: Results,
    /// A verdict on each request, on the condition that its objects are written.
    pub(crate) requests: Vec<RequestVerdict>,
    /// A verdict on each binding.
    pub(crate) bindings: Vec<BindingVerdict>,
    /// A verdict on each provider.
    pub(crate) providers: Vec<ProviderVerdict>,
    /// What the guard chain of each gateway must hold.
    pub(crate) chains: BTreeMap<ObjectKey, BTreeMap<ProviderId, Provider>>,
    /// How gateway pods are asked what they hold, by the name of the `VirtualService`.
    pub(crate) markers: BTreeMap<String, Marker>,
}

/// Plans again and again, and makes anew only what has changed.
#[derive(Debug, Default)]
pub(crate) struct Planner {
    compiler: Compiler,
    /// What each object was made into, as long as it stays the very same.
    desired: BTreeMap<Key, (Arc<VirtualService>, Desired)>,
}

impl Planner {
    /// Compiles what was observed.
    pub(crate) fn plan(
        &mut self,
        facts: &Facts,
        settings: &Settings,
        token_key: &TokenKey,
        identity: Identity,
    ) -> Plan {
        let output = self.compiler.compile(&Input {
            settings,
            istio_served: facts.istio_served,
            bindings: facts.bindings.values().filter_map(|entry| entry.value.object.as_ref().ok()).collect(),
            requests: facts.requests.values().filter_map(|entry| entry.value.object.as_ref().ok()).collect(),
            namespaces: &facts.namespaces,
            services: &facts.services,
            gateways: &facts.gateways,
            providers: facts
                .providers
                .values()
                .filter_map(|entry| entry.value.object.as_ref().ok())
                .collect(),
            grants: &facts.grants,
            claims: &facts.claims,
            foreign: &facts.foreign,
            written: &facts.written,
            chains: &facts.chains,
            token_key,
        });
        let key = |name: &str| Key { namespace: settings.namespace.clone(), name: name.to_owned() };
        let mut plan = Plan {
            withheld: output.withheld.iter().map(|name| key(name)).collect(),
            requests: output.requests,
            bindings: output.bindings,
            providers: output.providers,
            chains: output.chains,
            markers: output.markers,
            ..Plan::default()
        };
        let mut kept = BTreeMap::new();
        for object in output.virtual_services {
            let key = key(object.metadata.name.as_deref().unwrap_or_default());
            let known = self.desired.remove(&key).filter(|(known, _)| Arc::ptr_eq(known, &object));
            let desired = match known {
                Some((_, desired)) => Ok(desired),
                None => Desired::new(object.as_ref(), identity),
            };
            match desired {
                Ok(desired) => {
                    plan.objects.push(desired.clone());
                    kept.insert(key, (object, desired));
                }
                Err(error) => {
                    let unwritten = Unwritten { reason: Reason::InvalidRoutes, message: error.to_string() };
                    plan.withheld.insert(key.clone());
                    plan.unwritable.insert(key, Err(unwritten));
                }
            }
        }
        self.desired = kept;
        plan
    }
}

/// What matters of a Gateway: its spec, and in which namespaces pods run it.
///
/// `pods` is nothing where they are not followed. Where there are none just now, its routes stay exported to where
/// they `last_were`: a gateway that is restarted must not have every route written twice.
pub(crate) fn gateway_facts(
    spec: &GatewaySpec,
    pods: Option<BTreeSet<String>>,
    last_were: impl FnOnce() -> BTreeSet<String>,
) -> GatewayFacts {
    let has_pods = pods.as_ref().map(|namespaces| !namespaces.is_empty());
    let workload_namespaces = match pods {
        Some(namespaces) if !namespaces.is_empty() => namespaces,
        Some(_) => last_were(),
        None => BTreeSet::new(),
    };
    GatewayFacts { servers: spec.servers.clone(), workload_namespaces, has_pods, gone: false }
}

/// The namespaces that an `exportTo` of ours names; none where it names all.
pub(crate) fn exported_to(export_to: &[String], own: &str) -> BTreeSet<String> {
    if export_to.iter().any(|entry| entry == "*") {
        return BTreeSet::new();
    }
    export_to.iter().map(|entry| if entry == "." { own.to_owned() } else { entry.clone() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mesh_api::IngressRequest;
    use mesh_api::integrator::IngressRequestStatus;
    use mesh_api::{GatewayBinding, integrator::GatewayBindingStatus};
    use serde_json::json;

    const US: Identity = Identity { manager: "istio-integrator", managed_by: "istio-integrator" };

    fn facts() -> Facts {
        let binding = json!({
            "apiVersion": "integrator.istio-operators.io/v1alpha1", "kind": "GatewayBinding",
            "metadata": {"name": "public", "uid": "b"},
            "spec": {
                "default": true,
                "gateway": {"type": "IstioGateway", "istioGateway": {"namespace": "istio-system", "name": "public"}},
                "namespaces": {"from": "All"},
                "hosts": {"domain": "apps.example.com"},
            },
        });
        let request = |name: &str, routes: serde_json::Value| {
            json!({
                "apiVersion": "integrator.istio-operators.io/v1alpha1", "kind": "IngressRequest",
                "metadata": {"namespace": "shop", "name": name, "uid": name, "generation": 1},
                "spec": {"routes": routes},
            })
        };
        let routes = json!([{"backends": [{"service": "web", "port": 80}]}]);
        let observed = |value| serde_json::from_value(value).unwrap();
        let (key, binding) =
            crate::observe::custom::<GatewayBinding, GatewayBindingStatus>(observed(binding));
        let mut facts = Facts { istio_served: true, ..Facts::default() };
        facts.bindings.insert(key, binding);
        for request in [request("web", routes), request("broken", json!("nonsense"))] {
            let (key, request) =
                crate::observe::custom::<IngressRequest, IngressRequestStatus>(observed(request));
            facts.requests.insert(key, request);
        }
        facts
    }

    #[test]
    fn an_undecodable_request_does_not_hinder_the_others() {
        let settings = Settings::new("ii", "cluster.local");
        let plan = Planner::default().plan(&facts(), &settings, &TokenKey::new([7; 32]), US);
        assert_eq!(plan.objects.len(), 1);
        assert_eq!(plan.objects[0].target().namespace, "ii");
        assert_eq!(plan.requests.len(), 1, "there is no verdict on what cannot be read");
        assert!(plan.unwritable.is_empty() && plan.withheld.is_empty());
    }

    #[test]
    fn a_gateway_without_pods_stays_where_it_was() {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        let spec = GatewaySpec::default();
        let cases = [
            (Some(set(&["a"])), set(&["a"]), Some(true)),
            (Some(set(&[])), set(&["before"]), Some(false)),
            (None, set(&[]), None),
        ];
        for (pods, namespaces, has_pods) in cases {
            let facts = gateway_facts(&spec, pods, || set(&["before"]));
            assert_eq!((facts.workload_namespaces, facts.has_pods), (namespaces, has_pods));
        }
    }

    #[test]
    fn export_lists_are_read_back() {
        let read = |entries: &[&str]| {
            let entries: Vec<String> = entries.iter().map(|entry| (*entry).to_owned()).collect();
            exported_to(&entries, "own").into_iter().collect::<Vec<_>>()
        };
        assert_eq!(read(&[".", "istio-system"]), ["istio-system", "own"]);
        assert!(read(&["*"]).is_empty() && read(&[]).is_empty());
    }
}
