//! What is read of the cluster for the guard chains.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use k8s_openapi::{
    api::core::v1::{ConfigMap, Pod, Service},
    apimachinery::pkg::{apis::meta::v1::Time, util::intstr::IntOrString},
};
use kube::core::DynamicObject;
use mesh_api::{istio::WorkloadSelector, names};
use operator_kit::{
    apply::{Identity, Live},
    cache::{Entry, Key},
    fields::Digest,
};
use routes::{
    ServiceFacts,
    guard::{Chain, ProviderId},
};
use serde_json::Value;

use crate::discover::MeshConfig;

/// A pod that runs a gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ObservedPod {
    /// Its uid.
    pub(crate) uid: String,
    /// Its address, once it has one.
    pub(crate) ip: Option<IpAddr>,
    /// Whether it takes requests.
    pub(crate) ready: bool,
    /// Its labels, by which Services select it and which name the revision of its proxy.
    pub(crate) labels: BTreeMap<String, String>,
    /// The ports of its containers that have names.
    pub(crate) named_ports: BTreeMap<String, u16>,
}

impl ObservedPod {
    /// Reduces a pod.
    pub(crate) fn read(pod: &Pod) -> (Key, Entry<Self>) {
        let status = pod.status.as_ref();
        let ready = status.and_then(|status| status.conditions.as_ref()).is_some_and(|conditions| {
            conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
        });
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        let ports = containers.flat_map(|container| container.ports.iter().flatten());
        let named =
            ports.filter_map(|port| Some((port.name.clone()?, u16::try_from(port.container_port).ok()?)));
        let value = Self {
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            ip: status.and_then(|status| status.pod_ip.as_ref()?.parse().ok()),
            ready: ready && pod.metadata.deletion_timestamp.is_none(),
            labels: pod.metadata.labels.clone().unwrap_or_default(),
            named_ports: named.collect(),
        };
        (Key::of(&pod.metadata), Entry::new(&pod.metadata, value))
    }

    /// The revision its proxy belongs to, if a label says so.
    pub(crate) fn revision(&self) -> Option<&str> {
        self.labels.get("istio.io/rev").map(String::as_str)
    }
}

/// A Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ObservedService {
    /// What routing needs.
    pub(crate) facts: ServiceFacts,
    /// The labels of its pods; empty where it selects none.
    pub(crate) selector: BTreeMap<String, String>,
    /// To which port of a pod each of its ports leads, where that is another.
    pub(crate) targets: BTreeMap<u16, TargetPort>,
}

/// A port of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TargetPort {
    /// By number.
    Number(u16),
    /// By the name it has in the pod.
    Name(String),
}

impl ObservedService {
    /// Reduces a Service.
    pub(crate) fn read(service: &Service) -> Self {
        let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
        let targets = ports.filter_map(|port| {
            let number = u16::try_from(port.port).ok()?;
            let target = match port.target_port.as_ref()? {
                IntOrString::Int(target) => TargetPort::Number(u16::try_from(*target).ok()?),
                IntOrString::String(name) => TargetPort::Name(name.clone()),
            };
            (target != TargetPort::Number(number)).then_some((number, target))
        });
        let spec = service.spec.as_ref();
        Self {
            facts: ServiceFacts::from(service),
            selector: spec.and_then(|spec| spec.selector.clone()).unwrap_or_default(),
            targets: targets.collect(),
        }
    }

    fn selects(&self, pod: &ObservedPod) -> bool {
        !self.selector.is_empty()
            && self.selector.iter().all(|(key, value)| pod.labels.get(key) == Some(value))
    }
}

/// Where a pod listens for a port of its Gateway: istiod takes that for a port of a Service before the pod, and for the pod's
/// own where no Service has it.
///
/// `services` are those in the pod's namespace.
pub(super) fn listens_at<'s>(
    pod: &ObservedPod,
    port: u16,
    services: impl IntoIterator<Item = &'s ObservedService>,
) -> Option<SocketAddr> {
    let ip = pod.ip?;
    let service = services
        .into_iter()
        .find(|service| service.selects(pod) && service.facts.ports.iter().any(|known| known.number == port));
    let number = match service.and_then(|service| service.targets.get(&port)) {
        None => port,
        Some(TargetPort::Number(number)) => *number,
        Some(TargetPort::Name(name)) => *pod.named_ports.get(name)?,
    };
    Some(SocketAddr::new(ip, number))
}

/// An `EnvoyFilter` that is, or bears the name of, a guard chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObservedChain {
    /// What decides whether it is written.
    pub(crate) live: Live,
    /// What it was made from.
    pub(crate) chain: Chain,
    /// The digest of all of its spec, also of what others added.
    pub(crate) spec: Digest,
    /// When we last wrote it.
    pub(crate) written: Option<Time>,
}

/// Reduces an `EnvoyFilter`; nothing is kept of those that are no business of ours.
pub(crate) fn chain(object: &DynamicObject, identity: Identity) -> (Key, Entry<Option<Box<ObservedChain>>>) {
    let key = Key::of(&object.metadata);
    let value = key.name.starts_with("ii-guard-").then(|| {
        let spec = object.data.get("spec").unwrap_or(&Value::Null);
        let selector = spec.get("workloadSelector").cloned().unwrap_or_default();
        let selector: WorkloadSelector = serde_json::from_value(selector).unwrap_or_default();
        let annotations = object.metadata.annotations.as_ref();
        let content = annotations.and_then(|annotations| annotations.get(names::PROVIDERS_ANNOTATION));
        let ours = object.metadata.managed_fields.iter().flatten();
        let written = ours
            .filter(|entry| entry.manager.as_deref() == Some(identity.manager))
            .filter_map(|entry| entry.time.clone());
        Box::new(ObservedChain {
            live: Live::read(object, identity),
            chain: Chain::read(selector.labels, content.map(String::as_str)),
            spec: Digest::of(spec),
            written: written.max_by_key(|time| time.0),
        })
    });
    (key, Entry::new(&object.metadata, value))
}

/// The mesh config in a ConfigMap.
pub(crate) fn mesh_config(object: &ConfigMap) -> (Key, Entry<MeshConfig>) {
    let text = object.data.as_ref().and_then(|data| data.get("mesh")).map(String::as_str).unwrap_or_default();
    (Key::of(&object.metadata), Entry::new(&object.metadata, MeshConfig::read(text)))
}

/// The providers that the routes of a `VirtualService` demand, by the routes' names.
pub(crate) fn demanded(spec: &Value) -> BTreeSet<ProviderId> {
    let routes = spec.get("http").and_then(Value::as_array).into_iter().flatten();
    let route_names = routes.filter_map(|route| route.get("name")?.as_str());
    let ids = route_names.filter_map(|name| name.strip_prefix(names::AUTH_ROUTE_PREFIX)?.split('.').next());
    ids.filter_map(ProviderId::parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_port_of_the_gateway_is_one_of_the_service_before_the_pod() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "gw-1", "namespace": "gw", "uid": "u", "labels": {"istio": "ingressgateway"}},
            "spec": {"containers": [{"name": "proxy", "ports": [{"name": "https", "containerPort": 8443}]}]},
            "status": {"podIP": "10.0.0.7", "conditions": [{"type": "Ready", "status": "True"}]},
        }))
        .unwrap();
        let (_, pod) = ObservedPod::read(&pod);
        assert!(pod.value.ready);
        let service: Service = serde_json::from_value(json!({
            "metadata": {"name": "gw", "namespace": "gw"},
            "spec": {
                "selector": {"istio": "ingressgateway"},
                "ports": [
                    {"port": 80, "targetPort": 8080}, {"port": 443, "targetPort": "https"}, {"port": 81},
                    {"port": 82, "targetPort": "nowhere"},
                ],
            },
        }))
        .unwrap();
        let service = ObservedService::read(&service);
        let other = ObservedService {
            selector: BTreeMap::from([("app".to_owned(), "other".to_owned())]),
            ..service.clone()
        };
        let at = |port| listens_at(&pod.value, port, [&other, &service]).map(|address| address.port());
        assert_eq!(at(80), Some(8080));
        assert_eq!(at(443), Some(8443));
        assert_eq!(at(81), Some(81));
        assert_eq!(at(82), None);
        assert_eq!(at(9000), Some(9000), "no Service has it");
        assert_eq!(listens_at(&pod.value, 80, [&other]).map(|address| address.port()), Some(80));
    }

    #[test]
    fn a_pod_that_ends_takes_no_requests() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "gw-1", "namespace": "gw", "uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "status": {"podIP": "10.0.0.7", "conditions": [{"type": "Ready", "status": "True"}]},
        }))
        .unwrap();
        assert!(!ObservedPod::read(&pod).1.value.ready);
    }

    #[test]
    fn demanded_providers_are_read_from_route_names() {
        let id = "0123456789abcdef0123456789abcdef";
        let found = demanded(&json!({"http": [
            {"name": format!("ii.auth-{id}.aa")}, {"name": format!("ii.auth-{id}.bb")}, {"name": "ii.open.cc"},
            {"name": "ii.auth-probe.dd"}, {"name": "ii.auth-nonsense.x"}, {},
        ]}));
        assert_eq!(found.iter().map(ProviderId::as_str).collect::<Vec<_>>(), [id]);
        assert!(demanded(&Value::Null).is_empty());
    }
}
