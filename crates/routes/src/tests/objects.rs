use mesh_api::Reason;
use mesh_api::istio::{HttpDirectResponse, HttpMatch, StringMatch, VirtualService};
use serde_json::json;

use super::world::{World, reason, request, route_reasons, table, verdict};
use crate::guard::TokenKey;
use crate::{ObjectKey, ServiceFacts, ServicePort, validate, virtual_service_name};

#[test]
fn the_smallest_request_gives_this_object() {
    let output = World::new().with(request("a/shop", 0, &[], &["/"])).compile();
    let name = "shop-a-apps-example-c7b38aef635be096d35b";
    let marker = &output.markers[name];
    assert!(marker.path.starts_with("/.well-known/istio-integrator/") && marker.chain_path.is_none());
    assert_eq!(
        serde_json::to_value(
            output.virtual_services.iter().map(AsRef::as_ref).collect::<Vec<&VirtualService>>()
        )
        .unwrap(),
        json!([{
            "apiVersion": "networking.istio.io/v1",
            "kind": "VirtualService",
            "metadata": {
                "name": name,
                "namespace": "istio-integrator",
                "labels": {"app.kubernetes.io/managed-by": "istio-integrator"},
                "annotations": {
                    "integrator.istio-operators.io/gateway": "istio-system/public",
                    "integrator.istio-operators.io/host": "shop.a.apps.example",
                },
            },
            "spec": {
                "hosts": ["shop.a.apps.example"],
                "gateways": ["istio-system/public"],
                "exportTo": ["istio-system"],
                "http": [{
                    "name": "ii.open.72f8ee7dd6c871ec827a",
                    "match": [{"uri": {"exact": marker.path}}],
                    "directResponse": {"status": 200, "body": {"string": marker.digest}},
                }, {
                    "name": "ii.open.e65acc39e47d479e7ba9",
                    "match": [{"uri": {"prefix": "/"}}],
                    "route": [{"destination": {"host": "shop.a.svc.cluster.local", "port": {"number": 80}}}],
                }],
            },
        }])
    );
    let verdict = verdict(&output, "a/shop");
    assert_eq!(verdict.virtual_services, [name]);
    assert_eq!(verdict.urls, ["http://shop.a.apps.example"]);
    assert_eq!(verdict.binding.as_deref(), Some("public"));
    assert_eq!(verdict.generation, Some(1));
    let holding: Vec<&str> = verdict
        .conditions()
        .iter()
        .filter(|(_, finding)| finding.holds())
        .map(|(kind, _)| kind.as_str())
        .collect();
    assert_eq!(holding, ["Accepted", "ResolvedRefs", "AuthInForce", "Ready"]);
}

#[test]
fn names_are_labels_and_tell_hosts_and_gateways_apart() {
    let gateway = ObjectKey::new("istio-system", "public");
    let long = format!("{}.{}.example", "a".repeat(63), "b".repeat(63));
    let names = [
        virtual_service_name(&gateway, "a.example"),
        virtual_service_name(&gateway, "a-example"),
        virtual_service_name(&ObjectKey::new("istio-system", "private"), "a.example"),
        virtual_service_name(&gateway, &long),
        virtual_service_name(&gateway, &format!("x.{long}")),
        // The 40th character is a dot.
        virtual_service_name(&gateway, &format!("{}.example", "a".repeat(39))),
    ];
    for name in &names {
        assert!(mesh_api::syntax::is_dns_label(name), "{name}");
    }
    let distinct: std::collections::BTreeSet<_> = names.iter().collect();
    assert_eq!(distinct.len(), names.len());
}

#[test]
fn a_broken_route_answers_503_and_says_why() {
    let udp = ServicePort { number: 53, tcp: false };
    let tcp = ServicePort { number: 80, tcp: true };
    for (facts, backend, expected, message) in [
        (None, "gone:80", Reason::ServiceNotFound, "Service a/gone does not exist"),
        (Some((false, vec![tcp.clone()])), "svc:81", Reason::PortNotFound, "it has 80"),
        (Some((false, vec![udp, tcp.clone()])), "svc:53", Reason::PortNotFound, "it has 80"),
        (Some((false, vec![])), "svc:80", Reason::PortNotFound, "it has none"),
        (Some((true, vec![tcp])), "svc:80", Reason::UnsupportedService, "ExternalName"),
        (None, "Not_A_Name:80", Reason::InvalidSpec, "set backends[].service"),
        (None, "svc:0", Reason::InvalidSpec, "1 to 65535"),
    ] {
        let mut world = World::new()
            .with(request("a/shop", 1, &["x.example"], &[&format!("/api -> {backend}"), "/ok"]))
            .with(request("a/wide", 0, &["x.example"], &["/"]));
        if let Some((external_name, ports)) = facts {
            world.services.insert(ObjectKey::new("a", "svc"), ServiceFacts { external_name, ports });
        }
        let output = world.compile();
        let lines = table(&output, "x.example");
        assert_eq!(lines, ["=/api /api/* -> 503", "=/ok /ok/* -> shop.a:80", "/* -> shop.a:80"], "{backend}");
        assert_eq!(route_reasons(&output, "a/shop"), [expected.as_str(), "Served"]);
        let verdict = verdict(&output, "a/shop");
        assert!(verdict.accepted.holds());
        assert_eq!((verdict.resolved_refs.reason, verdict.ready.reason), (expected, expected));
        assert!(verdict.resolved_refs.message.contains(message), "{}", verdict.resolved_refs.message);
        assert!(verdict.resolved_refs.message.contains("503"));
        assert_eq!(verdict.urls, ["http://x.example/ok"]);
        assert_eq!(reason(&output, "a/wide"), Reason::Ready);
    }
}

#[test]
fn services_of_the_cluster_are_read_as_they_are() {
    let service = serde_json::from_value(json!({
        "spec": {"type": "NodePort", "ports": [{"port": 80}, {"port": 53, "protocol": "UDP"}, {"port": 443, "protocol": "TCP"}]}
    }));
    let facts = ServiceFacts::from(&service.unwrap());
    let ports: Vec<(u16, bool)> = facts.ports.iter().map(|port| (port.number, port.tcp)).collect();
    assert_eq!((facts.external_name, ports), (false, vec![(80, true), (53, false), (443, true)]));
    let alias =
        serde_json::from_value(json!({"spec": {"type": "ExternalName", "externalName": "example.com"}}));
    assert!(ServiceFacts::from(&alias.unwrap()).external_name);
}

#[test]
fn urls_lead_to_something_that_is_served() {
    for (routes, url) in [
        (&["/"][..], Some("http://x.example")),
        (&["/app", "/"], Some("http://x.example")),
        (&["=/"], Some("http://x.example")),
        (&["/app/"], Some("http://x.example/app")),
        (&["/gone -> gone:1", "=/ok", "/app"], Some("http://x.example/ok")),
        (&["/gone -> gone:1"], None),
    ] {
        let output = World::new().with(request("a/shop", 0, &["x.example"], routes)).compile();
        assert_eq!(verdict(&output, "a/shop").urls.first().map(String::as_str), url, "{routes:?}");
    }
}

/// A valid object, changed.
fn problems(change: impl FnOnce(&mut VirtualService)) -> Vec<String> {
    let output =
        World::new().with(request("a/shop", 0, &["x.example"], &["/app", "/gone -> gone:1"])).compile();
    let mut object = VirtualService::clone(&output.virtual_services[0]);
    change(&mut object);
    validate(&object, &TokenKey::new([7; 32])).iter().map(ToString::to_string).collect()
}

type Change = fn(&mut VirtualService);

#[test]
fn every_fault_of_an_object_is_found() {
    assert!(problems(|_| {}).is_empty());
    let faults: &[(&str, Change)] = &[
        ("metadata.name", |object| object.metadata.name = Some("a.b".into())),
        ("metadata.name", |object| object.metadata.name = None),
        ("metadata.namespace", |object| object.metadata.namespace = None),
        ("spec.hosts", |object| object.spec.hosts.clear()),
        ("spec.hosts", |object| object.spec.hosts.push("x.example".into())),
        ("spec.hosts", |object| object.spec.hosts = vec!["*".into()]),
        ("spec.hosts", |object| object.spec.hosts = vec!["X.example".into()]),
        ("spec.gateways", |object| object.spec.gateways.clear()),
        ("spec.gateways", |object| object.spec.gateways = vec!["mesh".into()]),
        ("spec.gateways", |object| object.spec.gateways.push("mesh".into())),
        ("spec.exportTo", |object| object.spec.export_to.clear()),
        ("spec.exportTo", |object| object.spec.export_to = vec!["a".into(), "a".into()]),
        ("spec.exportTo", |object| object.spec.export_to = vec!["*".into(), "a".into()]),
        ("spec.exportTo", |object| object.spec.export_to = vec!["~".into()]),
        ("spec.http", |object| object.spec.http.clear()),
        ("spec.http[1].name", |object| object.spec.http[1].name = "ii.open.".into()),
        ("spec.http[1].name", |object| object.spec.http[1].name = "shop".into()),
        ("spec.http[1].name", |object| object.spec.http[1].name.push_str(".user")),
        ("spec.http[1].match", |object| object.spec.http[1].matches.clear()),
        ("spec.http[1].match[0].uri", |object| object.spec.http[1].matches[0].uri = None),
        ("spec.http[1].match[0].uri", |object| {
            object.spec.http[1].matches[0].uri = Some(StringMatch::Prefix("/app".into()));
        }),
        ("spec.http[1].match[0].uri", |object| {
            object.spec.http[1].matches[0].uri = Some(StringMatch::Prefix(String::new()));
        }),
        ("spec.http[1].match[0].uri", |object| {
            object.spec.http[1].matches[0].uri = Some(StringMatch::Exact("/a/../b".into()));
        }),
        ("spec.http[1].match[2].uri", |object| {
            object.spec.http[1]
                .matches
                .push(HttpMatch { uri: Some(StringMatch::Prefix("/x//".into())), ..HttpMatch::default() });
        }),
        ("spec.http[2].match[0]", |object| {
            object.spec.http[2].matches = object.spec.http[1].matches.clone();
        }),
        ("spec.http[2]", |object| object.spec.http[2].route.clear()),
        ("spec.http[2]", |object| {
            object.spec.http[2].direct_response = Some(HttpDirectResponse { status: 503, body: None });
        }),
        ("spec.http[1]", |object| object.spec.http[1].direct_response = None),
        ("spec.http[2]", |object| {
            let second = object.spec.http[2].route[0].clone();
            object.spec.http[2].route.push(second);
        }),
        ("spec.http[2].route[0].destination.host", |object| {
            object.spec.http[2].route[0].destination.host = "shop".into();
        }),
        ("spec.http[2].route[0].destination.port", |object| {
            object.spec.http[2].route[0].destination.port = None;
        }),
        ("spec.http[1].directResponse.status", |object| {
            object.spec.http[1].direct_response = Some(HttpDirectResponse { status: 99, body: None });
        }),
    ];
    for (position, (field, change)) in faults.iter().enumerate() {
        let found = problems(change);
        let prefix = field.trim_end_matches("[0]").trim_end_matches(".match");
        assert!(
            found.iter().any(|problem| problem.starts_with(prefix)),
            "fault {position}, {field}: {found:?}"
        );
    }
}

#[test]
fn what_fails_the_check_is_withheld_and_said() {
    let mut world = World::new().with(request("a/shop", 0, &["x.example"], &["/"]));
    world.settings.namespace = "Not A Namespace".into();
    let output = world.compile();
    assert!(output.virtual_services.is_empty());
    assert_eq!(output.withheld.len(), 1, "it stays as it is in the cluster");
    assert_eq!(reason(&output, "a/shop"), Reason::InvalidRoutes);
    assert!(verdict(&output, "a/shop").virtual_services.is_empty());
}
