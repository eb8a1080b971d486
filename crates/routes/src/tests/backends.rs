use mesh_api::Reason;
use mesh_api::integrator::{Backend, Method, Rewrite, RewriteType};
use mesh_api::istio::HttpRoute;

use super::world::{World, reason, request, route_reasons, table, verdict};
use crate::Output;

const HOST: &str = "x.example";

fn backend(service: &str, weight: u32) -> Backend {
    Backend { service: service.into(), port: 80, namespace: None, weight }
}

fn weighted(backends: &[(&str, u32)]) -> mesh_api::IngressRequest {
    let mut request = request("a/shop", 0, &[HOST], &["/"]);
    request.spec.routes[0].backends =
        backends.iter().map(|(service, weight)| backend(service, *weight)).collect();
    request
}

fn world() -> World {
    World::new().service("a", "canary", &[80])
}

#[test]
fn requests_are_shared_by_weight() {
    let output = world().with(weighted(&[("shop", 9), ("canary", 1)])).compile();
    assert_eq!(table(&output, HOST), ["/* -> shop.a 9, canary.a 1"]);
    let output = world().with(weighted(&[("shop", 9), ("canary", 0)])).compile();
    assert_eq!(table(&output, HOST), ["/* -> shop.a:80"], "what gets no request is no destination");
}

#[test]
fn others_serve_the_share_of_a_missing_service() {
    let output = world().with(weighted(&[("shop", 9), ("gone", 1)])).compile();
    assert_eq!(table(&output, HOST), ["/* -> shop.a:80"]);
    assert_eq!(verdict(&output, "a/shop").resolved_refs.reason, Reason::BackendsMissing);
    assert_eq!(route_reasons(&output, "a/shop"), ["BackendsMissing"]);
    let output = world().with(weighted(&[("gone", 9), ("away", 1)])).compile();
    assert_eq!(table(&output, HOST), ["/* -> 503"]);
    assert_eq!(reason(&output, "a/shop"), Reason::ServiceNotFound);
}

#[test]
fn services_of_others_need_a_grant() {
    let mut request = request("a/shop", 0, &[HOST], &["/"]);
    request.spec.routes[0].backends[0].namespace = Some("b".into());
    let output = world().with(request.clone()).compile();
    assert_eq!(table(&output, HOST), ["/* -> 503"]);
    assert_eq!(verdict(&output, "a/shop").resolved_refs.reason, Reason::ReferenceNotGranted);
    let mut world = world().with(request);
    world.grants.list.push(crate::Grant {
        namespace: "b".into(),
        from: vec![crate::GrantFrom {
            group: "integrator.istio-operators.io".into(),
            kind: "IngressRequest".into(),
            namespace: "a".into(),
        }],
        to: vec![crate::GrantTo { group: String::new(), kind: "Service".into(), name: None }],
    });
    assert_eq!(table(&world.compile(), HOST), ["/* -> shop.b:80"]);
}

fn forwarding(output: &Output) -> Vec<&HttpRoute> {
    output.virtual_services[0].spec.http.iter().filter(|route| !route.route.is_empty()).collect()
}

#[test]
fn prefixes_are_replaced_by_whole_segments() {
    for (path, value, expected) in [
        ("/c", "/", vec![("=/c /c/*", Some("/"))]),
        ("/c", "/new", vec![("=/c", Some("/new")), ("/c/*", Some("/new/"))]),
        ("/c/", "/new/", vec![("=/c", Some("/new")), ("/c/*", Some("/new/"))]),
        ("/", "/new", vec![("/*", Some("/new/"))]),
        ("/", "/", vec![("/*", None)]),
    ] {
        let mut request = request("a/shop", 0, &[HOST], &[path]);
        request.spec.routes[0].rewrite =
            Some(Rewrite { kind: RewriteType::ReplacePrefix, value: value.to_owned() });
        let output = world().with(request).compile();
        let shown: Vec<String> = expected.iter().map(|(paths, _)| format!("{paths} -> shop.a:80")).collect();
        assert_eq!(table(&output, HOST), shown, "{path} -> {value}");
        let rewrites: Vec<Option<&str>> = forwarding(&output)
            .into_iter()
            .map(|route| route.rewrite.as_ref().and_then(|rewrite| rewrite.uri.as_deref()))
            .collect();
        assert_eq!(rewrites, expected.iter().map(|(_, rewrite)| *rewrite).collect::<Vec<_>>());
    }
}

#[test]
fn what_cannot_be_rewritten_or_timed_answers_503() {
    let mut exact = request("a/shop", 0, &[HOST], &["=/c"]);
    exact.spec.routes[0].rewrite = Some(Rewrite { kind: RewriteType::ReplacePrefix, value: "/".into() });
    let mut relative = request("a/shop", 0, &[HOST], &["/c"]);
    relative.spec.routes[0].rewrite = Some(Rewrite { kind: RewriteType::ReplacePrefix, value: "x".into() });
    let mut endless = request("a/shop", 0, &[HOST], &["/c"]);
    endless.spec.routes[0].timeout = Some("100h".into());
    let mut nonsense = request("a/shop", 0, &[HOST], &["/c"]);
    nonsense.spec.routes[0].timeout = Some("soon".into());
    for wrong in [exact, relative, endless, nonsense] {
        let output = world().with(wrong).compile();
        assert!(table(&output, HOST)[0].ends_with("-> 503"), "{:?}", table(&output, HOST));
        assert_eq!(reason(&output, "a/shop"), Reason::InvalidSpec);
    }
}

#[test]
fn timeouts_are_passed_on() {
    let mut request = request("a/shop", 0, &[HOST], &["/"]);
    request.spec.routes[0].timeout = Some("10s".into());
    let output = world().with(request).compile();
    assert_eq!(forwarding(&output)[0].timeout.as_deref(), Some("10s"));
}

#[test]
fn methods_are_told_apart_and_get_covers_head() {
    let mut request = request("a/shop", 0, &[HOST], &["/", "/ -> canary:80", "/ -> shop:8080"]);
    request.spec.routes[0].methods = vec![Method::Get];
    request.spec.routes[1].methods = vec![Method::Post, Method::Get, Method::Put];
    let output = world().with(request).compile();
    assert_eq!(
        table(&output, HOST),
        ["GET|HEAD /* -> shop.a:80", "POST|PUT /* -> canary.a:80", "/* -> shop.a:8080"],
        "the first has GET"
    );
    assert_eq!(route_reasons(&output, "a/shop"), ["Served", "PathConflict", "Served"]);
}
