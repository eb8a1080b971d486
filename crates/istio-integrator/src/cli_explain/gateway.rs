//! The gateway of a request: its pods and addresses, and the guard chain as it is written.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Service;
use mesh_api::istio::GatewaySpec;
use operator_kit::{apply::Ownership, cache::Key};
use routes::{
    ChainFacts, GatewayFacts, ObjectKey,
    guard::{Chain, GuardedGateway, groups, pod_sets},
};

use super::{
    report::{Gateway, Object, Pod},
    world::World,
};
use crate::guard::{ObservedChain, ObservedPod};

/// What the compile needs of each gateway.
pub(super) fn facts(world: &World) -> BTreeMap<ObjectKey, GatewayFacts> {
    let of = |(key, spec): (&ObjectKey, &GatewaySpec)| {
        let pods = world.pods.get(key);
        let namespaces = pods.map(|pods| pods.keys().map(|pod| pod.namespace.clone()).collect());
        let facts = GatewayFacts {
            servers: spec.servers.clone(),
            has_pods: pods.map(|pods| !pods.is_empty()),
            workload_namespaces: namespaces.unwrap_or_default(),
            gone: false,
        };
        (key.clone(), facts)
    };
    world.gateways.iter().map(of).collect()
}

/// The chain of each gateway, as if every pod held what is written: only the integrator asks pods.
pub(super) fn chains(world: &World) -> BTreeMap<ObjectKey, ChainFacts> {
    let guarded = world.gateways.iter().map(|(key, spec)| {
        let pods = world.pods.get(key).into_iter().flat_map(BTreeMap::keys);
        let pods = pods.map(|pod| ObjectKey::new(&pod.namespace, &pod.name)).collect();
        (key.clone(), GuardedGateway { selector: spec.selector.clone(), pods })
    });
    let guarded = guarded.collect();
    let groups = groups(&guarded);
    let mut sets = pod_sets(&guarded, &groups);
    let facts = groups.into_iter().map(|(gateway, group)| {
        let facts = match group {
            Err(finding) => ChainFacts { chain: Some(Err(finding)), ..ChainFacts::default() },
            Ok(selector) => {
                let name = Chain::name(&selector);
                let written = chain(world, &name).filter(|(_, chain)| is_ours(chain));
                let known = written.map(|(_, chain)| chain.chain.providers.clone()).unwrap_or_default();
                let holds: BTreeSet<_> = known.keys().cloned().collect();
                ChainFacts {
                    chain: Some(Ok(name)),
                    ready: holds.clone(),
                    holds,
                    known,
                    ..ChainFacts::default()
                }
            }
        };
        let pods = sets.remove(&gateway);
        (gateway, ChainFacts { pods, ..facts })
    });
    facts.collect()
}

fn chain<'w>(world: &'w World, name: &str) -> Option<(&'w Key, &'w ObservedChain)> {
    world.chains.iter().flatten().find(|(key, _)| key.name == name)
}

fn is_ours(chain: &ObservedChain) -> bool {
    matches!(chain.live.ownership, Ownership::Ours(_)) && !chain.live.terminating
}

/// The guard chain of a gateway as an object of the report; nothing where chains could not be read.
pub(super) fn chain_object(world: &World, gateway: &ObjectKey) -> Option<Object> {
    world.chains.as_ref()?;
    let facts = chains(world).remove(gateway)?;
    let name = facts.chain?.ok()?;
    let object = |name: String, state: String, good: bool| Object {
        kind: "EnvoyFilter".to_owned(),
        name,
        state,
        good,
    };
    Some(match chain(world, &name) {
        None => object(name, "does not exist: routes that ask for a login answer 503".to_owned(), false),
        Some((key, chain)) => match &chain.live.ownership {
            Ownership::Foreign(owner) => {
                object(key.to_string(), format!("belongs to {owner}, and is left alone"), false)
            }
            Ownership::Ours(_) => {
                let providers = chain.chain.providers.values().map(|provider| provider.key.to_string());
                let providers: BTreeSet<String> = providers.collect();
                let providers = providers.into_iter().collect::<Vec<_>>().join(", ");
                let state = if chain.live.terminating { "is being deleted" } else { "is there" };
                object(key.to_string(), format!("{state}; it asks {providers}"), !chain.live.terminating)
            }
        },
    })
}

/// The gateway as it is reported.
pub(super) fn report(world: &World, key: &ObjectKey) -> Gateway {
    let pods = world.pods.get(key);
    let list = pods.map(|pods| {
        let list = pods.iter().map(|(name, pod)| Pod {
            name: name.to_string(),
            address: pod.ip.map(|ip| ip.to_string()),
            ready: pod.ready,
        });
        list.collect()
    });
    Gateway { name: key.to_string(), pods: list, addresses: addresses(world, pods) }
}

/// The Services before the pods, and where they are reached.
fn addresses(world: &World, pods: Option<&BTreeMap<Key, ObservedPod>>) -> Vec<String> {
    let before = |service: &&Service| {
        let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        let selector = selector.filter(|selector| !selector.is_empty());
        selector.is_some_and(|selector| {
            pods.into_iter().flatten().any(|(key, pod)| {
                service.metadata.namespace.as_ref() == Some(&key.namespace)
                    && selector.iter().all(|(label, value)| pod.labels.get(label) == Some(value))
            })
        })
    };
    let mut found: Vec<String> = world.services.iter().filter(before).map(address).collect();
    found.sort();
    found
}

fn address(service: &Service) -> String {
    let spec = service.spec.clone().unwrap_or_default();
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let given = balancer.and_then(|balancer| balancer.ingress.as_ref()).into_iter().flatten();
    let given: Vec<String> =
        given.filter_map(|ingress| ingress.ip.clone().or_else(|| ingress.hostname.clone())).collect();
    let kind = spec.type_.as_deref().unwrap_or("ClusterIP");
    let mut at = if given.is_empty() { spec.external_ips.unwrap_or_default() } else { given };
    if at.is_empty() {
        let inside = spec.cluster_ip.filter(|ip| ip != "None");
        at = inside.map(|ip| format!("{ip} (inside the cluster only)")).into_iter().collect();
    }
    let ports: Vec<String> = spec.ports.iter().flatten().map(|port| port.port.to_string()).collect();
    let Key { namespace, name } = Key::of(&service.metadata);
    format!(
        "{} ports {} ({kind} {namespace}/{name})",
        if at.is_empty() { "no address".to_owned() } else { at.join(", ") },
        ports.join(", ")
    )
}
