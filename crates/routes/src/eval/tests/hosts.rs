use serde_json::json;

use super::world::{World, all_to, at, exported, gateway, http, https, service};
use crate::ObjectKey;
use crate::eval::{Entry, Request};

#[test]
fn envoy_chooses_the_most_specific_host() {
    let world = World::plain()
        .with(service("a/exact", 0, &["shop.example.com"], &json!([all_to("exact")])))
        .with(service("a/wild", 0, &["*.example.com"], &json!([all_to("wild")])))
        .with(service("a/deep", 0, &["*.b.example.com"], &json!([all_to("deep")])))
        .with(service("a/star", 0, &["*"], &json!([all_to("star")])));
    for (host, answer) in [
        ("shop.example.com", "exact /"),
        ("SHOP.example.com", "exact /"),
        ("shop.example.com:8080", "exact /"),
        ("shop.example.com:", "exact /"),
        ("shop.example.com:abc", "exact /"),
        ("shop.example.com.", "star /"),
        ("shop.example.com.:80", "star /"),
        ("shop.example.com:80:80", "star /"),
        ("x.example.com", "wild /"),
        ("x.y.example.com", "wild /"),
        ("x.b.example.com", "deep /"),
        ("b.example.com", "wild /"),
        (".example.com", "star /"),
        ("example.com", "star /"),
        ("x.example.com.", "star /"),
        ("a@shop.example.com", "wild /"),
        ("sh%6fp.example.com", "wild /"),
        ("*.example.com", "wild /"),
        ("[::1]", "star /"),
        ("[::1]:80", "star /"),
        ("", "star /"),
        ("a b", "400"),
        ("shop.example.com/", "400"),
        ("shop.example.com\\", "400"),
        ("sh\u{f6}p.example.com", "400"),
    ] {
        assert_eq!(world.get(host, "/"), answer, "{host}");
    }
}

#[test]
fn a_host_falls_to_a_wildcard_only_when_nothing_has_it() {
    let world = World::plain()
        .with(service(
            "a/shop",
            0,
            &["shop.example.com"],
            &json!([super::world::to("shop", &json!({"uri": {"prefix": "/shop"}}))]),
        ))
        .with(service("a/star", 0, &["*"], &json!([all_to("star")])));
    assert_eq!(world.get("shop.example.com", "/"), "404");
    assert_eq!(world.get("other.example.com", "/"), "star /");
}

#[test]
fn a_gateway_narrows_the_hosts() {
    let servers = json!([http(80, &["*.example.com", "a/only-a.org", "./only-own.org", "*/any.org"])]);
    for (namespace, host, answer) in [
        ("a", "shop.example.com", "s /"),
        ("a", "shop.org", "404"),
        ("a", "only-a.org", "s /"),
        ("b", "only-a.org", "404"),
        ("b", "only-own.org", "404"),
        ("istio-system", "only-own.org", "s /"),
        ("b", "any.org", "s /"),
    ] {
        let world =
            World::new(&servers).with(service(&format!("{namespace}/s"), 0, &[host], &json!([all_to("s")])));
        assert_eq!(world.get(host, "/"), answer, "{namespace} {host}");
    }
    // A wider VirtualService serves what the Gateway has of it.
    let world = World::new(&servers).with(service("b/s", 0, &["*"], &json!([all_to("s")])));
    assert_eq!(world.get("x.example.com", "/"), "s /");
    assert_eq!(world.get("example.com", "/"), "404");
}

#[test]
fn short_names_and_other_gateways() {
    let mut service = service("a/s", 0, &["shop"], &json!([all_to("s")]));
    let world = |service| World::plain().with(service);
    assert_eq!(world(service.clone()).get("shop.a.svc.cluster.local", "/"), "s /");
    assert_eq!(world(service.clone()).get("shop", "/"), "404");
    let full = world(service.clone()).evaluator().answer(
        &Entry::port(80),
        &Request::get("shop.a.svc.cluster.local", "/"),
        &crate::eval::ChainState::Absent,
        true,
    );
    assert_eq!(full.forward().expect("it is served").targets[0].host, "s.a.svc.cluster.local");
    for (gateways, answer) in [
        (vec!["istio-system/public", "b/other"], "s /"),
        (vec!["public"], "404"),
        (vec!["b/public"], "404"),
        (vec!["mesh"], "404"),
        (vec![], "404"),
    ] {
        service.spec.gateways = gateways.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(world(service.clone()).get("shop.a.svc.cluster.local", "/"), answer, "{gateways:?}");
    }
}

#[test]
fn visibility_is_judged_by_the_namespace_of_the_pod() {
    for (object, export_to, answer) in [
        ("a/s", &[][..], "s /"),
        ("a/s", &["*"], "s /"),
        ("a/s", &["istio-system"], "s /"),
        ("a/s", &["b", "istio-system"], "s /"),
        ("a/s", &["."], "404"),
        ("a/s", &["b"], "404"),
        ("a/s", &["~"], "404"),
        ("istio-system/s", &["."], "s /"),
    ] {
        let world = World::plain().with(exported(object, 0, &["*"], export_to, &json!([all_to("s")])));
        assert_eq!(world.get("shop.example.com", "/"), answer, "{object} {export_to:?}");
    }
}

#[test]
fn each_tls_server_has_routes_of_its_own() {
    let servers = json!([
        http(80, &["*"]),
        https(443, "a", &["a.example.com"]),
        https(443, "wild", &["*.example.com"]),
        https(443, "late", &["a.example.com", "late.example.com"]),
    ]);
    let world = World::new(&servers)
        .with(service("x/a", 0, &["a.example.com"], &json!([all_to("a")])))
        .with(service("x/b", 0, &["b.example.com"], &json!([all_to("b")])))
        .with(service("x/late", 0, &["late.example.com"], &json!([all_to("late")])));
    let tls = |name: &str| Entry { port: 443, server_name: Some(name.to_owned()) };
    for (entry, host, answer) in [
        (Entry::port(443), "a.example.com", "a /"),
        (Entry::port(443), "B.example.com:443", "b /"),
        (tls("A.example.com"), "a.example.com", "a /"),
        (tls("a.example.com"), "b.example.com", "404"),
        (tls("b.example.com"), "a.example.com", "a /"),
        // Its server shares a host with an older one on the port, and is left out.
        (tls("late.example.com"), "late.example.com", "late /"),
        (tls("other.org"), "a.example.com", "404"),
        (Entry::port(80), "b.example.com", "b /"),
        (Entry::port(8080), "b.example.com", "404"),
    ] {
        assert_eq!(world.ask_at(&entry, &Request::get(host, "/")), answer, "{entry:?} {host}");
    }
    let evaluator = world.evaluator();
    let entries: Vec<String> = evaluator
        .entries()
        .map(|entry| format!("{} {}", entry.port, entry.server_name.as_deref().unwrap_or("-")))
        .collect();
    assert_eq!(entries, ["80 -", "443 *.example.com", "443 a.example.com"]);
    assert_eq!(evaluator.entries_of(&ObjectKey::new("istio-system", "public")).count(), 3);
    assert_eq!(evaluator.entries_of(&ObjectKey::new("istio-system", "other")).count(), 0);
}

#[test]
fn plain_requests_are_redirected_where_the_server_says_so() {
    let mut redirect = http(80, &["a.example.com"]);
    redirect["tls"] = json!({"httpsRedirect": true});
    let servers = json!([redirect, http(80, &["*"]), https(443, "a", &["a.example.com"])]);
    let world = World::new(&servers).with(service("x/all", 0, &["*"], &json!([all_to("s")])));
    assert_eq!(world.get("a.example.com", "/"), "301");
    assert_eq!(world.get("b.example.com", "/"), "s /");
    assert_eq!(world.ask_at(&Entry::port(443), &Request::get("a.example.com", "/")), "s /");
}

#[test]
fn gateways_of_one_pod_share_its_plain_ports() {
    let mut world = World::plain().with(service("a/s", 5, &["x.org"], &json!([all_to("first")])));
    world.gateways.push(gateway("b/other", 1, &json!([http(80, &["x.org"]), http(443, &["y.org"])])));
    let mut second = service("a/t", 1, &["x.org"], &json!([all_to("second")]));
    second.spec.gateways = vec!["b/other".into()];
    world.services.push(second);
    // The older Gateway's routes come first, whatever the age of the routes.
    assert_eq!(world.get("x.org", "/"), "first /");
    world.gateways[1].metadata.creation_timestamp = Some(at(-1));
    assert_eq!(world.get("x.org", "/"), "second /");
    world.gateways[1].spec.selector.insert("istio".into(), "elsewhere".into());
    assert_eq!(world.get("x.org", "/"), "first /");
}
