//! What is read of the cluster for the guard chains.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use k8s_openapi::{
    api::core::v1::{ConfigMap, Pod, Service},
    apimachinery::pkg::{apis::meta::v1::Time, util::intstr::IntOrString},
};
use kube::{ResourceExt as _, core::DynamicObject};
use mesh_api::{istio::WorkloadSelector, names};
use operator_kit::{
    apply::{Identity, Live, Ownership},
    cache::{Entry, Key},
    conflict::Owner,
    fields::Digest,
};
use routes::{
    ServiceFacts,
    guard::{Chain, ProviderId},
};
use serde_json::Value;

use crate::discover::{self, MeshConfig};

/// The annotation of a pod with which its proxy's configuration begins.
const PROXY_CONFIG: &str = "proxy.istio.io/config";
/// The label of a Service that stands for a tag. The label [`discover::REVISION_LABEL`] tells the revision.
const TAG_LABEL: &str = "istio.io/tag";
/// The label of a Service whose ports a Gateway does not mean.
/// Source: `DisableGatewayPortTranslationLabel` in Istio's `pilot/pkg/model/gateway.go`.
const NO_TRANSLATION: &str = "experimental.istio.io/disable-gateway-port-translation";

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
    /// The TCP ports of its containers that have names.
    pub(crate) named_ports: BTreeMap<String, u16>,
    /// How long its proxy lets connections drain, if an annotation says so.
    pub(crate) drain: Option<Duration>,
}

impl ObservedPod {
    /// Reduces a pod.
    pub(crate) fn read(pod: &Pod) -> (Key, Entry<Self>) {
        let status = pod.status.as_ref();
        let ready = status.and_then(|status| status.conditions.as_ref()).is_some_and(|conditions| {
            conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
        });
        let annotations = pod.metadata.annotations.as_ref();
        let proxy_config = annotations.and_then(|annotations| annotations.get(PROXY_CONFIG));
        let value = Self {
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            ip: status.and_then(|status| status.pod_ip.as_ref()?.parse().ok()),
            ready: ready && pod.metadata.deletion_timestamp.is_none(),
            labels: pod.metadata.labels.clone().unwrap_or_default(),
            named_ports: named_ports(pod),
            drain: proxy_config.and_then(|text| discover::pod_drain(text)),
        };
        (Key::of(&pod.metadata), Entry::new(&pod.metadata, value))
    }

    /// The revision its proxy belongs to, if a label says so.
    pub(crate) fn revision(&self) -> Option<&str> {
        self.labels.get("istio.io/rev").map(String::as_str)
    }
}

/// The named TCP ports of a pod's containers, and of its sidecars, which run as init containers. The first of a name counts.
fn named_ports(pod: &Pod) -> BTreeMap<String, u16> {
    let spec = pod.spec.as_ref();
    let containers = spec.into_iter().flat_map(|spec| &spec.containers);
    let sidecars = spec.into_iter().flat_map(|spec| spec.init_containers.iter().flatten());
    let sidecars = sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
    let ports = containers.chain(sidecars).flat_map(|container| container.ports.iter().flatten());
    let mut named = BTreeMap::new();
    for port in ports.filter(|port| port.protocol.as_deref().is_none_or(|protocol| protocol == "TCP")) {
        if let (Some(name), Ok(number)) = (&port.name, u16::try_from(port.container_port)) {
            named.entry(name.clone()).or_insert(number);
        }
    }
    named
}

/// A Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ObservedService {
    /// What routing needs.
    pub(crate) facts: ServiceFacts,
    /// The labels of its pods; empty where it selects none.
    pub(crate) selector: BTreeMap<String, String>,
    /// Its TCP ports in their order, if any of them leads to a port of another number.
    pub(crate) targets: Vec<ServiceTarget>,
    /// If it stands for a tag of Istio: the tag and the revision.
    pub(crate) tag: Option<(String, String)>,
}

/// A port of a Service and where it leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServiceTarget {
    number: u16,
    target: TargetPort,
    /// What Istio takes to be spoken there, as far as that tells two ports with one target apart.
    protocol: &'static str,
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
        let labels = service.metadata.labels.as_ref();
        let label = |name: &str| labels.and_then(|labels| labels.get(name)).cloned();
        let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
        let ports = ports.filter(|port| port.protocol.as_deref().is_none_or(|protocol| protocol == "TCP"));
        let targets = ports.filter_map(|port| {
            let number = u16::try_from(port.port).ok()?;
            let target = match &port.target_port {
                None | Some(IntOrString::Int(0)) => TargetPort::Number(number),
                Some(IntOrString::Int(target)) => TargetPort::Number(u16::try_from(*target).ok()?),
                Some(IntOrString::String(name)) => TargetPort::Name(name.clone()),
            };
            let protocol =
                protocol(port.app_protocol.as_deref().or(port.name.as_deref()).unwrap_or_default());
            Some(ServiceTarget { number, target, protocol })
        });
        let mut targets: Vec<ServiceTarget> = targets.collect();
        // Then it makes no difference that there is a Service, and most are of this form.
        if label(NO_TRANSLATION).is_some()
            || targets.iter().all(|port| port.target == TargetPort::Number(port.number))
        {
            targets.clear();
        }
        let spec = service.spec.as_ref();
        Self {
            facts: ServiceFacts::from(service),
            selector: spec.and_then(|spec| spec.selector.clone()).unwrap_or_default(),
            targets,
            tag: label(TAG_LABEL).zip(label(discover::REVISION_LABEL)),
        }
    }

    fn selects(&self, pod: &ObservedPod) -> bool {
        !self.selector.is_empty()
            && self.selector.iter().all(|(key, value)| pod.labels.get(key) == Some(value))
    }

    /// To which port of the pod a port leads. Of several ports with one target and one protocol, the first alone does.
    fn target(&self, pod: &ObservedPod, port: u16) -> Option<u16> {
        let mut known: Vec<(u16, &str)> = Vec::new();
        for ServiceTarget { number, target, protocol } in &self.targets {
            let target = match target {
                TargetPort::Number(number) => *number,
                TargetPort::Name(name) => match pod.named_ports.get(name) {
                    Some(number) => *number,
                    None => continue,
                },
            };
            if known.contains(&(target, *protocol)) {
                continue;
            }
            if *number == port {
                return Some(target);
            }
            known.push((target, protocol));
        }
        None
    }
}

/// What Istio takes to be spoken on a port of this name, or of this `appProtocol`.
/// Source: `ConvertProtocol` in Istio's `pkg/config/kube/conversion.go`.
fn protocol(name: &str) -> &'static str {
    const KNOWN: [&str; 11] =
        ["tcp", "grpc", "http", "http_proxy", "http2", "https", "tls", "mongo", "redis", "mysql", "udp"];
    let name = name.to_ascii_lowercase();
    match name.as_str() {
        "kubernetes.io/h2c" => return "http2",
        "kubernetes.io/ws" => return "http",
        "kubernetes.io/wss" => return "https",
        _ if name.starts_with("grpc-web") => return "grpc-web",
        _ => {}
    }
    let prefix = name.split('-').next().unwrap_or_default();
    KNOWN.into_iter().find(|known| *known == prefix).unwrap_or_default()
}

/// Where a pod listens for a port of its Gateway. istiod takes that for a port of a Service before the pod, of which the target
/// counts, and for the pod's own port where no Service has it or its target is not to be found.
///
/// `services` are those in the pod's namespace, in the order of their names; istiod's own order among several with the same
/// port is none that can be foretold. Source: `resolvePorts` in Istio's `pilot/pkg/model/gateway.go`, and
/// `GetProxyServiceTargetsByPod` in `pilot/pkg/serviceregistry/kube/controller/controller.go`.
pub(super) fn listens_at<'s>(
    pod: &ObservedPod,
    port: u16,
    services: impl IntoIterator<Item = &'s ObservedService>,
) -> Option<SocketAddr> {
    let mut selecting = services.into_iter().filter(|service| service.selects(pod));
    let target = selecting.find_map(|service| service.target(pod, port));
    Some(SocketAddr::new(pod.ip?, target.unwrap_or(port)))
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

/// What decides whether a guard chain is written, by the integrator of this namespace. One that does not say whose it is may be
/// another integrator's, and so is not ours.
pub(crate) fn live(object: &DynamicObject, identity: Identity, instance: &str) -> Live {
    let mut live = Live::read(object, identity);
    let theirs = object.labels().get(names::INSTANCE_LABEL);
    if matches!(live.ownership, Ownership::Ours(_)) && theirs.is_none_or(|theirs| theirs != instance) {
        let whose = theirs.map_or_else(
            || format!("that has lost its label {}", names::INSTANCE_LABEL),
            |namespace| format!("of namespace {namespace}"),
        );
        let managed_by = Some(format!("{} {whose}", identity.managed_by));
        live.ownership = Ownership::Foreign(Owner { managed_by, managers: Vec::new() });
    }
    live
}

/// Reduces an `EnvoyFilter`; nothing is kept of those that are no business of ours. `instance` is our own namespace: a chain
/// of an integrator in another one is as foreign as anybody's.
pub(crate) fn chain(
    object: &DynamicObject,
    identity: Identity,
    instance: &str,
) -> (Key, Entry<Option<Box<ObservedChain>>>) {
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
            live: live(object, identity, instance),
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
    fn a_chain_of_an_integrator_in_another_namespace_is_foreign() {
        let chain = Chain::default();
        let written = chain.envoy_filter("istio-system", "ours", &routes::guard::TokenKey::new([7; 32]));
        let mut written = serde_json::to_value(&written).unwrap();
        written["metadata"]["managedFields"] = json!([{
            "manager": names::INTEGRATOR, "operation": "Apply", "apiVersion": "networking.istio.io/v1alpha3",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}},
        }]);
        let identity = Identity { manager: names::INTEGRATOR, managed_by: names::INTEGRATOR };
        let read = |instance: &str| {
            let object: DynamicObject = serde_json::from_value(written.clone()).unwrap();
            chain_of(&object, identity, instance)
        };
        assert!(matches!(read("ours").live.ownership, Ownership::Ours(_)));
        let Ownership::Foreign(owner) = read("theirs").live.ownership else { panic!("not seen as foreign") };
        assert!(owner.to_string().contains("istio-integrator of namespace ours"), "{owner}");
        // One that does not say whose it is may be anybody's.
        written["metadata"]["labels"].as_object_mut().unwrap().remove(names::INSTANCE_LABEL);
        let object: DynamicObject = serde_json::from_value(written.clone()).unwrap();
        let unnamed = chain_of(&object, identity, "ours").live.ownership;
        assert!(
            matches!(unnamed, Ownership::Foreign(owner) if owner.to_string().contains(names::INSTANCE_LABEL))
        );
    }

    fn chain_of(object: &DynamicObject, identity: Identity, instance: &str) -> ObservedChain {
        let (_, entry) = super::chain(object, identity, instance);
        *entry.value.as_ref().clone().expect("it bears the name of a guard chain")
    }

    #[test]
    fn a_port_of_the_gateway_is_one_of_the_service_before_the_pod() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {
                "name": "gw-1", "namespace": "gw", "uid": "u", "labels": {"istio": "ingressgateway"},
                "annotations": {"proxy.istio.io/config": "drainDuration: 90s"},
            },
            "spec": {
                "containers": [{"name": "proxy", "ports": [
                    {"name": "https", "containerPort": 7443, "protocol": "UDP"},
                    {"name": "https", "containerPort": 8443, "protocol": "TCP"}, {"name": "https", "containerPort": 9443},
                ]}],
                "initContainers": [
                    {"name": "setup", "ports": [{"name": "sidecar", "containerPort": 6000}]},
                    {"name": "helper", "restartPolicy": "Always", "ports": [{"name": "sidecar", "containerPort": 7000}]},
                ],
            },
            "status": {"podIP": "10.0.0.7", "conditions": [{"type": "Ready", "status": "True"}]},
        }))
        .unwrap();
        let (_, pod) = ObservedPod::read(&pod);
        assert!(pod.value.ready);
        assert_eq!(pod.value.drain, Some(Duration::from_secs(90)));
        let service = |ports: serde_json::Value, label: &str, selector: &str| {
            let service: Service = serde_json::from_value(json!({
                "metadata": {"name": "gw", "namespace": "gw", "labels": {label: "true"}},
                "spec": {"selector": {"istio": selector}, "ports": ports},
            }))
            .unwrap();
            ObservedService::read(&service)
        };
        let ports = json!([
            {"port": 80, "targetPort": 8080, "name": "http"}, {"port": 443, "targetPort": "https", "name": "https"},
            {"port": 81}, {"port": 82, "targetPort": "nowhere"}, {"port": 83, "targetPort": 8080, "name": "http-old"},
            {"port": 84, "targetPort": 8080, "name": "grpc"}, {"port": 85, "targetPort": 9, "protocol": "UDP"},
            {"port": 86, "targetPort": "sidecar"},
        ]);
        let of_gateway = service(ports.clone(), "l", "ingressgateway");
        let other = service(json!([{"port": 80, "targetPort": 1}]), "l", "other");
        let disabled =
            service(json!([{"port": 80, "targetPort": 2}]), super::NO_TRANSLATION, "ingressgateway");
        let plain = service(json!([{"port": 80, "targetPort": 80}, {"port": 8443}]), "l", "ingressgateway");
        assert!(plain.targets.is_empty());
        let at = |port| {
            listens_at(&pod.value, port, [&other, &disabled, &of_gateway]).map(|address| address.port())
        };
        for (port, listens, why) in [
            (80, 8080, "the target of the first Service that has it"),
            (443, 8443, "the target by name"),
            (81, 81, "the target is the same"),
            (82, 82, "the pod has no port of the target's name"),
            (83, 83, "another port of the Service has the same target and protocol already"),
            (84, 8080, "another protocol"),
            (85, 85, "UDP"),
            (86, 7000, "the port of a sidecar"),
            (9000, 9000, "no Service has it"),
        ] {
            assert_eq!(at(port), Some(listens), "{port}: {why}");
        }
        assert_eq!(listens_at(&pod.value, 80, [&other, &plain]).map(|address| address.port()), Some(80));
        assert_eq!(listens_at(&ObservedPod::default(), 80, [&plain]), None, "it has no address yet");
    }

    #[test]
    fn a_tag_is_read_from_its_service() {
        let service: Service = serde_json::from_value(json!({
            "metadata": {"name": "istiod-revision-tag-prod", "labels": {"istio.io/tag": "prod", "istio.io/rev": "canary"}},
        }))
        .unwrap();
        assert_eq!(ObservedService::read(&service).tag, Some(("prod".to_owned(), "canary".to_owned())));
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
