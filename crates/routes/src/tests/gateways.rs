use std::collections::BTreeSet;

use mesh_api::Reason;
use mesh_api::istio::GatewayServer;

use super::world::{World, gateway, reason, request, server, verdict};
use crate::{GatewayFacts, ObjectKey};

#[test]
fn which_hosts_a_gateway_serves_and_where() {
    let mismatch = Err(Reason::GatewayNamespaceMismatch);
    let not_served = Err(Reason::HostNotOnGateway);
    let cases: &[(&[GatewayServer], Result<&str, Reason>)] = &[
        (&[server(80, "HTTP", "", &["*"])], Ok("http://x.example")),
        (&[server(80, "http", "", &["x.example"])], Ok("http://x.example")),
        (&[server(80, "HTTP", "", &["*.example"])], Ok("http://x.example")),
        (&[server(80, "HTTP", "", &["y.example"])], not_served),
        (&[server(80, "HTTP", "", &["example"])], not_served),
        (&[server(8080, "HTTP2", "", &["*"])], Ok("http://x.example:8080")),
        (&[server(80, "GRPC", "", &["*"])], Ok("http://x.example")),
        // Who may attach.
        (&[server(80, "HTTP", "", &["*/x.example"])], Ok("http://x.example")),
        (&[server(80, "HTTP", "", &["istio-integrator/*"])], Ok("http://x.example")),
        (&[server(80, "HTTP", "", &["other/x.example"])], mismatch),
        (&[server(80, "HTTP", "", &["./x.example"])], mismatch),
        (&[server(80, "HTTP", "", &["./*", "istio-integrator/y.example"])], mismatch),
        (&[server(80, "HTTP", "", &["other/*", "*/*.example"])], Ok("http://x.example")),
        // TLS: only where it ends at the gateway are requests read.
        (&[server(443, "HTTPS", "SIMPLE", &["*"])], Ok("https://x.example")),
        (&[server(8443, "HTTPS", "MUTUAL", &["*"])], Ok("https://x.example:8443")),
        (&[server(443, "HTTPS", "PASSTHROUGH", &["*"])], not_served),
        (&[server(443, "HTTPS", "-", &["*"])], not_served),
        (&[server(443, "HTTPS", "", &["*"])], not_served),
        (&[server(443, "TLS", "SIMPLE", &["*"])], not_served),
        (&[server(9000, "TCP", "", &["*"])], not_served),
        (&[server(80, "HTTP", "redirect", &["*"])], not_served),
        // The best of several.
        (
            &[server(80, "HTTP", "redirect", &["*"]), server(443, "HTTPS", "SIMPLE", &["*"])],
            Ok("https://x.example"),
        ),
        (
            &[server(80, "HTTP", "", &["*"]), server(8443, "HTTPS", "SIMPLE", &["*"])],
            Ok("https://x.example:8443"),
        ),
        (
            &[server(80, "HTTP", "", &["*"]), server(443, "HTTPS", "SIMPLE", &["y.example"])],
            Ok("http://x.example"),
        ),
        (&[server(8081, "HTTP", "", &["*"]), server(8080, "HTTP", "", &["*"])], Ok("http://x.example:8080")),
        (&[server(79, "HTTP", "", &["*"]), server(80, "HTTP", "", &["*"])], Ok("http://x.example")),
    ];
    for (servers, expected) in cases {
        // A server for another host of ours, so that the gateway as a whole is of use.
        let mut all = servers.to_vec();
        all.push(server(81, "HTTP", "", &["only.example"]));
        let output =
            World::new().gateway(gateway(&all)).with(request("a/shop", 0, &["x.example"], &["/"])).compile();
        let verdict = verdict(&output, "a/shop");
        match expected {
            Ok(url) => assert_eq!(verdict.urls, [*url], "{servers:?}"),
            Err(expected) => {
                assert_eq!(verdict.accepted.reason, *expected, "{servers:?}");
                assert!(verdict.urls.is_empty() && output.virtual_services.is_empty(), "{servers:?}");
            }
        }
    }
}

#[test]
fn the_remedy_names_what_to_add() {
    let facts = gateway(&[server(80, "HTTP", "", &["other/*.example"])]);
    let output = World::new().gateway(facts).with(request("a/shop", 0, &["x.example"], &["/"])).compile();
    for finding in [&verdict(&output, "a/shop").accepted, &output.bindings[0].ready] {
        assert_eq!(finding.reason, Reason::GatewayNamespaceMismatch);
        assert!(
            finding.message.contains("add istio-integrator/*.example to servers[].hosts"),
            "{}",
            finding.message
        );
    }
}

#[test]
fn a_dot_means_the_gateways_own_namespace() {
    let mut world = World::new().with(request("a/shop", 0, &["x.example"], &["/"]));
    world.settings.namespace = "istio-system".into();
    let output = world.gateway(gateway(&[server(80, "HTTP", "", &["./*"])])).compile();
    assert_eq!(verdict(&output, "a/shop").urls, ["http://x.example"]);
}

#[test]
fn a_gateway_that_cannot_serve_is_told_and_nothing_is_withdrawn() {
    let servers = &[server(80, "HTTP", "", &["*"])];
    let no_pods = GatewayFacts { has_pods: Some(false), ..gateway(servers) };
    for (facts, istio, expected, urls) in [
        (Some(gateway(servers)), false, Reason::IstioNotFound, 1),
        (None, true, Reason::GatewayNotFound, 0),
        (Some(GatewayFacts { gone: true, ..gateway(servers) }), true, Reason::GatewayNotFound, 0),
        (Some(no_pods), true, Reason::GatewayWithoutPods, 1),
        (Some(GatewayFacts { has_pods: None, ..gateway(servers) }), true, Reason::Ready, 1),
    ] {
        let mut world = World::new().with(request("a/shop", 0, &["x.example"], &["/"]));
        world.istio_served = istio;
        world.gateways.clear();
        if let Some(facts) = facts {
            world = world.gateway(facts);
        }
        let output = world.compile();
        assert_eq!(output.virtual_services.len(), 1, "{expected}");
        let verdict = verdict(&output, "a/shop");
        assert!(verdict.accepted.holds(), "it is not the request's fault");
        assert_eq!((verdict.ready.reason, verdict.urls.len()), (expected, urls));
        assert_eq!(output.bindings[0].ready.reason, expected);
        assert!(output.bindings[0].accepted.holds());
    }
    let output = World::new()
        .gateway(gateway(&[server(443, "TLS", "PASSTHROUGH", &["*"])]))
        .with(request("a/shop", 0, &["x.example"], &["/"]))
        .compile();
    assert_eq!(output.bindings[0].ready.reason, Reason::GatewayWithoutHttp);
    assert_eq!(
        verdict(&output, "a/shop").accepted.reason,
        Reason::GatewayWithoutHttp,
        "a host would not help"
    );
}

#[test]
fn routes_are_exported_to_the_gateways_pods_only() {
    for (namespaces, expected) in [
        (&["istio-system"][..], &["istio-system"][..]),
        (&["istio-integrator"], &["."]),
        (&["b", "a"], &["a", "b"]),
        (&["istio-integrator", "a"], &[".", "a"]),
        (&[], &["*"]),
    ] {
        let workload_namespaces: BTreeSet<String> =
            namespaces.iter().map(|name| (*name).to_owned()).collect();
        let facts = GatewayFacts { workload_namespaces, ..gateway(&[server(80, "HTTP", "", &["*"])]) };
        let output = World::new().gateway(facts).with(request("a/shop", 0, &["x.example"], &["/"])).compile();
        assert_eq!(output.virtual_services[0].spec.export_to, expected);
    }
}

#[test]
fn gateways_of_the_cluster_are_read_as_they_are() {
    let object: mesh_api::istio::Gateway = serde_json::from_value(serde_json::json!({
        "apiVersion": "networking.istio.io/v1",
        "kind": "Gateway",
        "metadata": {"name": "public", "namespace": "istio-system"},
        "spec": {
            "selector": {"istio": "ingressgateway"},
            "servers": [{
                "port": {"number": 443, "name": "https", "protocol": "HTTPS"},
                "hosts": ["*"],
                "tls": {"mode": "SIMPLE", "credentialName": "cert", "minProtocolVersion": "TLSV1_2"},
            }],
        },
    }))
    .unwrap();
    let world =
        World::new().with(request("a/shop", 0, &["x.example"], &["/"])).gateway(GatewayFacts::from(&object));
    let output = world.compile();
    assert_eq!(verdict(&output, "a/shop").urls, ["https://x.example"]);
    assert_eq!(reason(&output, "a/shop"), Reason::Ready);
    assert!(world.gateways.contains_key(&ObjectKey::new("istio-system", "public")));
}

#[test]
fn a_gateway_that_goes_changes_no_route() {
    let there = GatewayFacts {
        workload_namespaces: BTreeSet::from(["istio-system".to_owned()]),
        ..gateway(&[server(80, "HTTP", "", &["*"])])
    };
    let gone = GatewayFacts { servers: Vec::new(), gone: true, ..there.clone() };
    let compiled =
        |facts| World::new().gateway(facts).with(request("a/shop", 0, &["x.example"], &["/"])).compile();
    assert_eq!(compiled(there).virtual_services, compiled(gone).virtual_services);
}
