//! The answer to what was read.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::{api::coordination::v1::LeaseSpec, apimachinery::pkg::apis::meta::v1::MicroTime};
use kube::core::DynamicObject;
use mesh_api::integrator::{IngressRequestStatus, RouteStatus};
use operator_kit::apply::Identity;
use routes::{ObjectKey, Settings};
use serde_json::{Value, json};

use super::{
    judge::judge,
    print,
    report::Report,
    world::{Gap, SeenLease, World},
};
use crate::{guard::ObservedPod, observe, stale_crds::Standing};

const NOW: i64 = 1_800_000_000;
const US: Identity = Identity { manager: "istio-integrator", managed_by: "istio-integrator" };

fn settings() -> Settings {
    Settings::new("istio-integrator", "cluster.local")
}

fn from<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn request(name: &str, age: i64, spec: &Value) -> Value {
    json!({
        "apiVersion": "integrator.istio-operators.io/v1alpha1", "kind": "IngressRequest",
        "metadata": {
            "name": name, "namespace": "shop", "uid": name, "generation": 2,
            "creationTimestamp": Timestamp::from_second(NOW - age).unwrap().to_string(),
        },
        "spec": spec,
    })
}

fn binding(name: &str, more: &Value) -> Value {
    let mut spec = json!({
        "default": true,
        "gateway": {"type": "IstioGateway", "istioGateway": {"namespace": "istio-system", "name": "public"}},
        "namespaces": {"from": "All"},
        "hosts": {"domain": "example.com", "allowed": [{"pattern": "*.example.com"}]},
    });
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    json!({
        "apiVersion": "integrator.istio-operators.io/v1alpha1", "kind": "GatewayBinding",
        "metadata": {"name": name, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": spec,
    })
}

fn condition(type_: &str, status: &str, reason: &str) -> Value {
    json!({
        "type": type_, "status": status, "reason": reason, "message": format!("because {reason}"),
        "observedGeneration": 2, "lastTransitionTime": "2026-01-01T00:00:00Z",
    })
}

fn ready() -> IngressRequestStatus {
    from(json!({
        "observedGeneration": 2, "binding": "public", "auth": "None", "urls": ["http://shop.example.com"],
        "conditions": [condition("Accepted", "True", "Accepted"), condition("Programmed", "True", "Programmed"), condition("Ready", "True", "Ready")],
        "routes": [{"path": {"type": "PathPrefix", "value": "/"}, "reason": "Served"}],
    }))
}

/// A request that is served, and everything that it takes.
fn served() -> World {
    let it = request(
        "shop",
        100,
        &json!({"hosts": ["shop.example.com"], "routes": [{"backends": [{"service": "web", "port": 80}]}]}),
    );
    let gateway = ObjectKey::new("istio-system", "public");
    let pod: k8s_openapi::api::core::v1::Pod = from(json!({
        "metadata": {"name": "gw-1", "namespace": "istio-system", "uid": "g", "labels": {"istio": "ingressgateway"}},
        "status": {"podIP": "10.0.0.7", "conditions": [{"type": "Ready", "status": "True"}]},
    }));
    let (pod_key, pod) = ObservedPod::read(&pod);
    let mut world = World {
        key: Some(ObjectKey::new("shop", "shop")),
        request: Some(Ok(from(it.clone()))),
        generation: Some(2),
        status: ready(),
        requests: vec![from(it)],
        bindings: vec![from(binding("public", &json!({})))],
        services: vec![
            from(json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": {"ports": [{"port": 80}]}})),
            from(json!({
                "metadata": {"name": "gw", "namespace": "istio-system"},
                "spec": {"type": "LoadBalancer", "clusterIP": "10.1.0.1", "selector": {"istio": "ingressgateway"}, "ports": [{"port": 80}, {"port": 443}]},
                "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}},
            })),
        ],
        istio_served: true,
        gateways: [(gateway.clone(), from(json!({
            "selector": {"istio": "ingressgateway"},
            "servers": [{"port": {"number": 80, "name": "http", "protocol": "HTTP"}, "hosts": ["*/*.example.com"]}],
        })))].into(),
        pods: [(gateway.clone(), [(pod_key, pod.value.as_ref().clone())].into())].into(),
        routes: Some(BTreeMap::new()),
        chains: Some(BTreeMap::new()),
        lease: SeenLease::Present(LeaseSpec {
            holder_identity: Some("istio-integrator-1".to_owned()),
            renew_time: Some(MicroTime(Timestamp::from_second(NOW - 3).unwrap())),
            ..LeaseSpec::default()
        }),
        ..World::default()
    };
    write_routes(&mut world);
    world
}

/// The `VirtualService` of the host, written by the integrator.
fn write_routes(world: &mut World) {
    let name = routes::virtual_service_name(&ObjectKey::new("istio-system", "public"), "shop.example.com");
    let object: DynamicObject = from(json!({
        "metadata": {
            "name": name, "namespace": "istio-integrator", "uid": "v",
            "labels": {"app.kubernetes.io/managed-by": "istio-integrator"},
            "managedFields": [{"manager": "istio-integrator", "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}}}],
        },
        "spec": {"hosts": ["shop.example.com"], "gateways": ["istio-system/public"]},
    }));
    let (key, entry) = observe::routes(&object, US);
    world.routes = Some([(key.name, entry.value.as_ref().clone())].into());
}

fn explained(world: &World) -> Report {
    judge(world, &settings(), Timestamp::from_second(NOW).unwrap())
}

fn steps(report: &Report) -> String {
    report.next_steps.join("\n")
}

#[test]
fn what_is_served_is_shown_with_all_that_serves_it() {
    let report = explained(&served());
    assert!(report.served, "{report:#?}");
    let text = print::text(&report);
    for part in [
        "IngressRequest shop/shop is served\n  served at http://shop.example.com\n",
        "shop.example.com http://shop.example.com (from spec.hosts)",
        "public: it is the oldest default binding that admits namespace shop and the hosts",
        "PathPrefix / -> shop/web:80 Served\n",
        "Programmed True Programmed: because Programmed",
        "VirtualService istio-integrator/shop-example-com-",
        "Gateway istio-system/public\n  pod istio-system/gw-1 10.0.0.7 ready\n  reached at 192.0.2.1 ports 80, 443 (LoadBalancer istio-system/gw)",
        "runs: istio-integrator-1 holds the lease",
        "curl http://shop.example.com",
    ] {
        assert!(text.contains(part), "{part:?} is missing in\n{text}");
    }
    assert!(!text.contains("Not seen"), "{text}");
}

#[test]
fn the_first_thing_wrong_is_the_summary_and_has_a_remedy() {
    let mut world = served();
    world.services.remove(0);
    let report = explained(&world);
    assert!(!report.served);
    assert!(
        report.summary.starts_with("ServiceNotFound: Service shop/web does not exist"),
        "{}",
        report.summary
    );
    assert_eq!(report.routes[0].reason, "ServiceNotFound");
    assert!(steps(&report).contains("Create the Service"), "{report:#?}");
    let told = report.conditions.iter().find(|condition| condition.type_ == "ResolvedRefs").unwrap();
    assert!(told.computed, "the status has nothing of it yet");
}

#[test]
fn without_an_integrator_it_is_computed_what_it_would_say() {
    let mut world = served();
    world.status = IngressRequestStatus::default();
    world.lease = SeenLease::Absent;
    world.routes = Some(BTreeMap::new());
    let report = explained(&world);
    assert!(!report.served);
    assert!(report.operator.starts_with("does not run"), "{}", report.operator);
    assert!(
        report.conditions.iter().all(|condition| condition.computed && condition.status == "True"),
        "{report:#?}"
    );
    assert!(report.summary.contains("does not exist"), "{}", report.summary);
    assert!(steps(&report).contains("scale deployment/istio-integrator --replicas=2"), "{report:#?}");
    // One that died is known by its lease.
    world.lease = served().lease;
    let later = judge(&world, &settings(), Timestamp::from_second(NOW + 600).unwrap());
    assert!(later.operator.contains("has not renewed its lease since"), "{}", later.operator);
}

#[test]
fn a_request_that_changed_is_not_called_served_by_its_old_status() {
    let mut world = served();
    world.generation = Some(3);
    let report = explained(&world);
    assert!(!report.served);
    assert!(report.summary.contains("as it is"), "{}", report.summary);
    assert!(steps(&report).contains("Wait a few seconds"), "{report:#?}");
}

#[test]
fn a_route_removed_by_hand_is_missed() {
    let mut world = served();
    world.routes = Some(BTreeMap::new());
    let report = explained(&world);
    assert!(!report.served && !report.objects[0].good, "{report:#?}");
}

#[test]
fn bindings_that_do_not_serve_it_are_told_apart() {
    let mut world = served();
    for (name, more) in [
        ("closed", json!({"namespaces": {"from": "Same"}})),
        ("named-only", json!({"default": false})),
        ("zz-younger", json!({})),
    ] {
        world.bindings.push(from(binding(name, &more)));
    }
    let others = explained(&world).binding.unwrap().others;
    assert_eq!(
        others,
        [
            "closed does not admit namespace shop",
            "named-only is not a default one: spec.bindingRef would have to name it",
            "zz-younger is younger, or does not allow the hosts",
        ]
    );
}

#[test]
fn what_may_not_be_read_is_named_and_the_status_speaks() {
    let mut world = served();
    world.bindings.clear();
    world.gateways.clear();
    world.routes = None;
    world.chains = None;
    world.lease = SeenLease::Unread;
    world.gaps.push(Gap {
        what: "GatewayBindings".to_owned(),
        error: "forbidden (403 Forbidden)".to_owned(),
        effect: "which binding serves the request is known from its status only",
        decisive: true,
    });
    let report = explained(&world);
    assert!(report.served, "the status is about the request as it is, and says so: {report:#?}");
    assert_eq!(report.binding.as_ref().unwrap().name.as_deref(), Some("public"));
    assert_eq!(report.routes[0].reason, "Served");
    let text = print::text(&report);
    assert!(text.contains("Not seen\n  GatewayBindings, so that which binding"), "{text}");
    assert!(text.contains("with the right to read GatewayBindings"), "{text}");
    // With a verdict that is false, the status says why.
    world.status = from(json!({
        "observedGeneration": 2,
        "conditions": [condition("Accepted", "False", "HostConflict"), condition("Ready", "False", "HostConflict")],
    }));
    let report = explained(&world);
    assert!(!report.served && report.summary == "HostConflict: because HostConflict", "{}", report.summary);
    assert!(steps(&report).contains("Use another host"), "{report:#?}");
}

#[test]
fn hosts_come_from_the_template_where_none_are_given() {
    let mut world = served();
    let it = request("shop", 100, &json!({"routes": [{"backends": [{"service": "web", "port": 80}]}]}));
    world.request = Some(Ok(from(it.clone())));
    world.requests = vec![from(it)];
    let hosts = explained(&world).hosts;
    assert_eq!(
        (hosts[0].name.as_str(), hosts[0].url.as_deref()),
        ("shop.shop.example.com", Some("http://shop.shop.example.com"))
    );
    assert_eq!(hosts[0].source, "from the template of binding public");
}

#[test]
fn a_conflict_with_an_older_request_is_computed() {
    let mut world = served();
    let mut older = request(
        "shop",
        500,
        &json!({"hosts": ["shop.example.com"], "routes": [{"backends": [{"service": "web", "port": 80}]}]}),
    );
    older["metadata"]["namespace"] = json!("other");
    world.requests.push(from(older));
    let report = explained(&world);
    assert!(!report.served && report.summary.starts_with("HostConflict: "), "{}", report.summary);
}

#[test]
fn a_login_without_its_chain_is_told() {
    let mut world = served();
    let auth = json!({"hosts": ["shop.example.com"], "auth": {"type": "Provider", "providerRef": {"name": "sso"}}, "routes": [{"backends": [{"service": "web", "port": 80}]}]});
    let it = request("shop", 100, &auth);
    world.request = Some(Ok(from(it.clone())));
    world.requests = vec![from(it)];
    world.providers = vec![from(json!({
        "metadata": {"name": "sso", "namespace": "shop", "uid": "p"},
        "spec": {"type": "ExtAuthz", "extAuthz": {"service": "web", "port": 80}},
    }))];
    let report = explained(&world);
    let chain = report.objects.iter().find(|object| object.kind == "EnvoyFilter").unwrap();
    assert!(!chain.good && chain.state.contains("does not exist"), "{chain:?}");
    assert!(!report.served, "the status is of before");
    assert!(report.summary.starts_with("ChainPending"), "{}", report.summary);
    assert_eq!(report.auth.as_deref(), Some("shop/sso"));
    // Where chains cannot be seen, only the status knows.
    world.chains = None;
    assert!(explained(&world).served);
}

#[test]
fn an_undecodable_request_and_an_older_crd() {
    let mut world = served();
    world.request = Some(Err("spec.routes: invalid type".to_owned()));
    world.requests.clear();
    world.status =
        IngressRequestStatus { routes: Vec::<RouteStatus>::new(), ..IngressRequestStatus::default() };
    world.crds = [(
        "ingressrequests.integrator.istio-operators.io".to_owned(),
        Standing::Older(vec!["spec.auth".to_owned()]),
    )]
    .into();
    let report = explained(&world);
    assert!(!report.served && report.summary.starts_with("Undecodable: spec.routes"), "{}", report.summary);
    assert!(report.next_steps[0].contains("it lacks spec.auth"), "{report:#?}");
}

#[test]
fn the_answer_for_scripts_has_stable_names() {
    let value = serde_json::to_value(explained(&served())).unwrap();
    for pointer in [
        "/request",
        "/served",
        "/summary",
        "/hosts/0/url",
        "/binding/name",
        "/routes/0/reason",
        "/conditions/0/type",
        "/objects/0/kind",
        "/gateway/pods/0/ready",
        "/gateway/addresses/0",
        "/operator",
        "/unseen",
        "/nextSteps/0",
    ] {
        assert!(value.pointer(pointer).is_some(), "{pointer} is missing in {value:#}");
    }
}
