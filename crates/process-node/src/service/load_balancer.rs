//! Addresses for Services of type `LoadBalancer`, as a cloud's controller gives them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use process_node::config::Ipv4Cidr;
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;
use tracing::warn;

use crate::objects::{Kind, Objects};

/// After this long a refused write is tried again.
const RETRY: std::time::Duration = std::time::Duration::from_secs(2);

/// Addresses by the uid of the Service that was given them.
type Given = BTreeMap<String, Ipv4Addr>;

/// Gives every Service of type `LoadBalancer` an address, once, and takes it back when the type changes. Services
/// with a `loadBalancerClass` are somebody else's.
pub(crate) async fn assign(client: Client, objects: Objects, network: Ipv4Cidr) {
    let mut changes = objects.changes();
    // What was written is known here before the cache has it, so that no Service gets a second address.
    let mut given = Given::new();
    let mut retry = false;
    loop {
        let change = tokio::select! {
            change = changes.recv() => change,
            () = tokio::time::sleep(RETRY), if retry => Err(RecvError::Lagged(0)),
        };
        match change {
            Ok(change) if change.kind != Kind::Service => continue,
            Ok(_) | Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return,
        }
        retry = false;
        let services = objects.services.state();
        given.retain(|uid, _| services.iter().any(|service| service.uid().as_ref() == Some(uid)));
        for (service, address) in plan(&services, &given, network) {
            let (namespace, name) = (service.namespace().unwrap_or_default(), service.name_any());
            if let Err(error) = write(&client, &namespace, &name, address).await {
                warn!(%namespace, %name, %error, "cannot write a load balancer's address");
                retry = true;
                continue;
            }
            let uid = service.uid().unwrap_or_default();
            match address {
                Some(address) => given.insert(uid, address),
                None => given.remove(&uid),
            };
        }
    }
}

/// Services whose address is to be written, each with the address it gets, none to take it back. Those that exist
/// longest choose first.
fn plan<'a>(
    services: &'a [Arc<Service>],
    given: &Given,
    network: Ipv4Cidr,
) -> Vec<(&'a Service, Option<Ipv4Addr>)> {
    let mut services: Vec<_> = services.iter().map(AsRef::as_ref).collect();
    services.sort_by_key(|service: &&Service| {
        (service.creation_timestamp(), service.namespace(), service.name_any())
    });
    let current = |service: &Service| {
        current(service, network).or_else(|| given.get(service.metadata.uid.as_ref()?).copied())
    };
    let mut taken: BTreeSet<Ipv4Addr> = services.iter().filter_map(|service| current(service)).collect();
    let mut writes = Vec::new();
    for service in services {
        match (is_ours(service), current(service)) {
            (true, None) if service.metadata.deletion_timestamp.is_none() => {
                let wish =
                    service.spec.as_ref().and_then(|spec| spec.load_balancer_ip.as_deref()?.parse().ok());
                let wish = wish.filter(|wish| network.contains(*wish) && !taken.contains(wish));
                // The first and the last address of a network are not for hosts.
                let free =
                    || (1..network.size() - 1).filter_map(|n| network.nth(n)).find(|ip| !taken.contains(ip));
                if let Some(address) = wish.or_else(free) {
                    taken.insert(address);
                    writes.push((service, Some(address)));
                }
            }
            (false, Some(_)) => writes.push((service, None)),
            _ => {}
        }
    }
    writes
}

fn is_ours(service: &Service) -> bool {
    service.spec.as_ref().is_some_and(|spec| {
        spec.type_.as_deref() == Some("LoadBalancer") && spec.load_balancer_class.is_none()
    })
}

/// The address of ours that a Service has.
fn current(service: &Service, network: Ipv4Cidr) -> Option<Ipv4Addr> {
    let ingress = service.status.as_ref()?.load_balancer.as_ref()?.ingress.as_ref()?;
    ingress.iter().find_map(|ingress| ingress.ip.as_deref()?.parse().ok().filter(|ip| network.contains(*ip)))
}

async fn write(client: &Client, namespace: &str, name: &str, address: Option<Ipv4Addr>) -> kube::Result<()> {
    let ingress = address.map(|address| json!([{"ip": address, "ipMode": "VIP"}]));
    let patch = json!({"status": {"loadBalancer": {"ingress": ingress}}});
    let api: Api<Service> = Api::namespaced(client.clone(), namespace);
    match api.patch_status(name, &PatchParams::default(), &Patch::Merge(&patch)).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn service(name: &str, created: u32, spec: &Value, ip: Option<&str>) -> Arc<Service> {
        let ingress = ip.map(|ip| json!([{"ip": ip}]));
        let service = json!({
            "metadata": {"namespace": "ns", "name": name, "creationTimestamp": format!("2026-01-01T00:00:0{created}Z")},
            "spec": spec, "status": {"loadBalancer": {"ingress": ingress}},
        });
        Arc::new(serde_json::from_value(service).unwrap())
    }

    #[test]
    fn addresses_are_given_once_by_age_and_taken_back() {
        let balancer = json!({"type": "LoadBalancer"});
        let services = [
            service("young", 3, &balancer, None),
            service("old", 2, &balancer, None),
            service("has", 1, &balancer, Some("10.97.0.1")),
            service("was", 1, &json!({"type": "ClusterIP"}), Some("10.97.0.2")),
            service("foreign", 1, &json!({"type": "LoadBalancer", "loadBalancerClass": "x.io/y"}), None),
            service("wish", 4, &json!({"type": "LoadBalancer", "loadBalancerIP": "10.97.0.77"}), None),
            service("greedy", 5, &json!({"type": "LoadBalancer", "loadBalancerIP": "10.97.0.1"}), None),
        ];
        let written: Vec<_> = plan(&services, &Given::new(), "10.97.0.0/24".parse().unwrap())
            .into_iter()
            .map(|(service, address)| (service.name_any(), address.map(|address| address.octets()[3])))
            .collect();
        let expected =
            [("was", None), ("old", Some(3)), ("young", Some(4)), ("wish", Some(77)), ("greedy", Some(5))];
        assert_eq!(written, expected.map(|(name, last)| (name.to_owned(), last)));
    }
}
