//! That the oldest supported Istio has the kinds and fields of its own that are written, guard chains and routes.

use std::collections::{BTreeMap, BTreeSet};

use mesh_api::istio::{GatewayPort, GatewayServer};
use mesh_api::{AuthProvider, GatewayBinding, IngressRequest};
use routes::guard::{Provider, TokenKey};
use routes::{ChainFacts, GatewayFacts, Grants, Input, ObjectKey, ServiceFacts, ServicePort, Settings};
use serde_json::{Value, json};

use crate::known::{Kind, Known, OLDEST_ISTIO};

/// Looks a part of an object up, and all below it.
fn walk(known: &Known, path: &str, value: &Value, seen: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => {
            let items_path = format!("{path}[]");
            for item in items {
                walk(known, &items_path, item, seen);
            }
            seen.insert(items_path);
        }
        Value::Object(_) if known.holds(Kind::Istio, path) == Some("map") => {
            seen.insert(path.to_owned());
        }
        Value::Object(fields) => {
            // A map of messages is in the schema as what its entries hold.
            let entries = format!("{path}{{}}");
            if known.holds(Kind::Istio, &entries).is_some() {
                fields.values().for_each(|value| walk(known, &entries, value, seen));
                return;
            }
            seen.insert(path.to_owned());
            fields.iter().for_each(|(field, value)| walk(known, &format!("{path}.{field}"), value, seen));
        }
        _ => {
            seen.insert(path.to_owned());
        }
    }
}

/// What of an object is looked up.
fn used(known: &Known, object: &Value) -> BTreeSet<String> {
    let kind = object["kind"].as_str().unwrap();
    let mut seen = BTreeSet::from([format!("{kind}.{}", object["apiVersion"].as_str().unwrap())]);
    walk(known, &format!("{kind}.spec"), &object["spec"], &mut seen);
    seen
}

fn lacking(known: &Known, used: &BTreeSet<String>) -> Vec<String> {
    used.iter().filter_map(|name| known.fault(Kind::Istio, name)).collect()
}

fn of<T: serde::de::DeserializeOwned>(kind: &str, namespace: &str, name: &str, spec: &Value) -> T {
    let metadata = json!({
        "name": name, "namespace": namespace, "uid": name, "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    });
    let object = json!({
        "apiVersion": "integrator.istio-operators.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec,
    });
    serde_json::from_value(object).unwrap()
}

/// The routes of requests that use everything a request can say, with and without a login.
fn routes() -> Vec<Value> {
    let binding: GatewayBinding = of(
        "GatewayBinding",
        "",
        "public",
        &json!({
            "gateway": {"type": "IstioGateway", "istioGateway": {"namespace": "edge", "name": "public"}},
            "namespaces": {"from": "All"},
            "hosts": {"allowed": [{"pattern": "*.example.com", "namespaces": {"from": "All"}}]},
        }),
    );
    let provider: AuthProvider = of(
        "AuthProvider",
        "shop",
        "sso",
        &json!({
            "type": "ExtAuthz",
            "extAuthz": {"service": "sso", "port": 9000, "identityHeaders": ["x-user"], "ownPaths": ["/oauth2/"]},
        }),
    );
    let backend = json!({"service": "shop", "port": 80});
    let login = json!({"type": "Provider", "providerRef": {"name": "sso"}});
    let request: IngressRequest = of(
        "IngressRequest",
        "shop",
        "shop",
        &json!({
            "bindingRef": {"name": "public"}, "hosts": ["shop.example.com"],
            "routes": [
                {"path": {"value": "/"}, "backends": [backend]},
                {"path": {"type": "Exact", "value": "/exact"}, "backends": [backend], "timeout": "5s", "methods": ["GET"]},
                {"path": {"value": "/methods"}, "backends": [backend], "methods": ["POST", "PUT"]},
                {"path": {"value": "/strip"}, "backends": [backend], "rewrite": {"type": "ReplacePrefix", "value": "/"}},
                {"path": {"value": "/method"}, "backends": [backend], "methods": ["POST"]},
                {"path": {"value": "/shared"}, "backends": [
                    {"service": "shop", "port": 80, "weight": 3}, {"service": "other", "port": 80, "weight": 1},
                ]},
                {"path": {"value": "/login"}, "backends": [backend], "auth": login, "timeout": "5s"},
                {"path": {"type": "Exact", "value": "/me"}, "backends": [backend], "auth": login, "methods": ["GET"]},
                {"path": {"value": "/gone"}, "backends": [{"service": "nobody", "port": 80}]},
            ],
        }),
    );
    let gateway = ObjectKey::new("edge", "public");
    let server = GatewayServer {
        port: GatewayPort { number: 80, name: "http".into(), protocol: "HTTP".into() },
        hosts: vec!["*".into()],
        tls: None,
    };
    let facts = GatewayFacts {
        servers: vec![server],
        workload_namespaces: BTreeSet::from(["edge".to_owned()]),
        has_pods: Some(true),
        gone: false,
    };
    let resolved = Provider::resolve(&provider, "cluster.local").unwrap();
    let mut chain = ChainFacts::default();
    chain.holds.insert(resolved.id());
    chain.ready.insert(resolved.id());
    chain.known.insert(resolved.id(), resolved);
    let service = |name: &str, number: u16| {
        let ports = vec![ServicePort { number, tcp: true }];
        (ObjectKey::new("shop", name), ServiceFacts { ports, external_name: false })
    };
    let output = routes::compile(&Input {
        settings: &Settings::new("istio-integrator", "cluster.local"),
        istio_served: true,
        bindings: vec![&binding],
        requests: vec![&request],
        providers: vec![&provider],
        grants: &Grants::default(),
        claims: &BTreeMap::new(),
        foreign: &[],
        written: &BTreeMap::new(),
        chains: &BTreeMap::from([(gateway.clone(), chain)]),
        token_key: &TokenKey::new([7; 32]),
        namespaces: &BTreeMap::from([("shop".to_owned(), BTreeMap::new())]),
        services: &BTreeMap::from([service("shop", 80), service("other", 80), service("sso", 9000)]),
        gateways: &BTreeMap::from([(gateway, facts)]),
    });
    output.virtual_services.iter().map(|object| serde_json::to_value(&**object).unwrap()).collect()
}

#[test]
fn the_oldest_istio_has_all_fields_that_are_written() {
    let known = Known::read();
    let mut objects = routes();
    assert!(!objects.is_empty(), "nothing was compiled");
    objects.push(crate::chain());
    let used: BTreeSet<String> = objects.iter().flat_map(|object| used(&known, object)).collect();
    assert_eq!(lacking(&known, &used), Vec::<String>::new(), "Istio {OLDEST_ISTIO}");
    // What is listed and not met would be a part that this test does not reach, or that is written no more.
    let unmet: Vec<&str> = known.names(Kind::Istio).filter(|name| !used.contains(*name)).collect();
    assert_eq!(unmet, Vec::<&str>::new(), "listed and not written");
}

#[test]
fn a_field_that_is_too_new_or_unknown_is_found() {
    let known = Known::read();
    let change = |pointer: &str, value: Value| {
        let mut object = crate::chain();
        *object.pointer_mut(pointer).unwrap() = value;
        lacking(&known, &used(&known, &object))
    };
    let cases = [
        ("/apiVersion", json!("networking.istio.io/v1"), "EnvoyFilter.networking.istio.io/v1:"),
        ("/spec/workloadSelector", json!({"targetRefs": []}), "workloadSelector.targetRefs"),
        ("/spec/configPatches/0/match", json!({"waypoint": {"portNumber": 80}}), "match.waypoint"),
    ];
    for (pointer, value, fault) in cases {
        let lacking = change(pointer, value);
        assert!(lacking.iter().any(|line| line.contains(fault)), "{fault}: {lacking:?}");
    }
}
