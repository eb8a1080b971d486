//! A small mesh, written as Istio's own YAML would be.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use mesh_api::istio::{Gateway, VirtualService};
use serde_json::{Value, json};

use crate::eval::{Answer, ChainState, Entry, Evaluator, Mesh, PathNormalization, Proxy, Request};

pub(super) struct World {
    pub(super) proxy: Proxy,
    pub(super) gateways: Vec<Gateway>,
    pub(super) services: Vec<VirtualService>,
}

impl World {
    /// A pod in `istio-system` that runs Gateway `istio-system/public` with these servers.
    pub(super) fn new(servers: &Value) -> Self {
        Self {
            proxy: Proxy {
                namespace: "istio-system".into(),
                labels: BTreeMap::from([("istio".into(), "ingressgateway".into())]),
                paths: PathNormalization::Base,
            },
            gateways: vec![gateway("istio-system/public", 0, servers)],
            services: Vec::new(),
        }
    }

    /// Every host on port 80.
    pub(super) fn plain() -> Self {
        Self::new(&json!([http(80, &["*"])]))
    }

    pub(super) fn with(mut self, service: VirtualService) -> Self {
        self.services.push(service);
        self
    }

    pub(super) fn evaluator(&self) -> Evaluator {
        let mesh = Mesh {
            proxy: &self.proxy,
            cluster_domain: "cluster.local",
            gateways: self.gateways.iter().collect(),
            virtual_services: self.services.iter().collect(),
        };
        Evaluator::new(&mesh).expect("objects that Istio takes")
    }

    /// What a request on port 80 gets, without a chain, as a short text.
    pub(super) fn ask(&self, request: &Request) -> String {
        self.ask_at(&Entry::port(80), request)
    }

    pub(super) fn ask_at(&self, entry: &Entry, request: &Request) -> String {
        short(&self.evaluator().answer(entry, request, &ChainState::Absent, true))
    }

    pub(super) fn get(&self, host: &str, path: &str) -> String {
        self.ask(&Request::get(host, path))
    }
}

/// The name of the first Service and the path it gets, the status, or why there is neither.
pub(super) fn short(answer: &Answer) -> String {
    match answer {
        Answer::NoRoute => "404".into(),
        Answer::Refused(_) => "400".into(),
        Answer::HttpsRedirect => "301".into(),
        Answer::Direct { status, body, .. } if body.is_empty() => status.to_string(),
        Answer::Direct { status, body, .. } => format!("{status} {body}"),
        Answer::Denied { provider, .. } => format!("denied by {provider}"),
        Answer::Forward(forward) => {
            let service = forward.targets[0].host.split('.').next().unwrap_or_default();
            let check =
                forward.check.as_ref().map(|check| format!(" checked by {check}")).unwrap_or_default();
            format!("{service} {}{check}", forward.path)
        }
    }
}

pub(super) fn at(second: i64) -> Time {
    Time(Timestamp::from_second(1_700_000_000 + second).expect("a time"))
}

pub(super) fn http(port: u32, hosts: &[&str]) -> Value {
    json!({"port": {"number": port, "name": "http", "protocol": "HTTP"}, "hosts": hosts})
}

pub(super) fn https(port: u32, name: &str, hosts: &[&str]) -> Value {
    json!({"port": {"number": port, "name": name, "protocol": "HTTPS"}, "hosts": hosts, "tls": {"mode": "SIMPLE"}})
}

pub(super) fn gateway(object: &str, second: i64, servers: &Value) -> Gateway {
    let (namespace, name) = object.split_once('/').expect("namespace/name");
    let mut made: Gateway = serde_json::from_value(json!({
        "apiVersion": "networking.istio.io/v1", "kind": "Gateway", "metadata": {"namespace": namespace, "name": name},
        "spec": {"selector": {"istio": "ingressgateway"}, "servers": servers},
    }))
    .expect("a Gateway");
    made.metadata.creation_timestamp = Some(at(second));
    made
}

/// A `VirtualService` of this age on `istio-system/public`, visible to all.
pub(super) fn service(object: &str, second: i64, hosts: &[&str], http: &Value) -> VirtualService {
    exported(object, second, hosts, &[], http)
}

pub(super) fn exported(
    object: &str,
    second: i64,
    hosts: &[&str],
    export_to: &[&str],
    http: &Value,
) -> VirtualService {
    let (namespace, name) = object.split_once('/').expect("namespace/name");
    let mut made: VirtualService = serde_json::from_value(json!({
        "apiVersion": "networking.istio.io/v1", "kind": "VirtualService",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"hosts": hosts, "gateways": ["istio-system/public"], "exportTo": export_to, "http": http},
    }))
    .expect("a VirtualService");
    made.metadata.creation_timestamp = Some(at(second));
    made
}

/// A route with this match to this Service, port 80.
pub(super) fn to(service: &str, condition: &Value) -> Value {
    json!({"match": [condition], "route": [{"destination": {"host": service, "port": {"number": 80}}}]})
}

/// A route of everything to this Service.
pub(super) fn all_to(service: &str) -> Value {
    json!({"route": [{"destination": {"host": service, "port": {"number": 80}}}]})
}
