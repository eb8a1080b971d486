use serde_json::json;

use super::world::{World, all_to, exported, service, to};
use crate::eval::{Evaluator, Mesh, lost_fields};

fn under(service: &str, prefix: &str) -> serde_json::Value {
    to(service, &json!({"uri": {"prefix": prefix}}))
}

#[test]
fn the_older_object_comes_first_and_then_the_smaller_name() {
    let http = |service| json!([under(service, "/x")]);
    let served = |first, second| World::plain().with(first).with(second).get("h.org", "/x");
    let of = |object, second, to| service(object, second, &["h.org"], &http(to));
    assert_eq!(served(of("a/b", 1, "young"), of("z/z", 0, "old")), "old /x");
    // The name decides before the namespace, unlike everywhere in the integrator.
    assert_eq!(served(of("a/b", 0, "ab"), of("b/a", 0, "ba")), "ba /x");
    assert_eq!(served(of("a/a", 0, "aa"), of("b/a", 0, "ba")), "aa /x");
}

#[test]
fn what_is_exported_to_the_pods_alone_comes_before_what_is_exported_to_all() {
    let of = |object, second, export_to: &[&str], to| {
        exported(object, second, &["h.org"], export_to, &json!([under(to, "/x")]))
    };
    let world = World::plain().with(of("a/old", 0, &["*"], "public")).with(of(
        "a/young",
        1,
        &["istio-system"],
        "exported",
    ));
    assert_eq!(world.get("h.org", "/x"), "exported /x");
    let world = world.with(of("istio-system/youngest", 2, &["."], "private"));
    assert_eq!(world.get("h.org", "/x"), "private /x");
}

#[test]
fn only_what_catches_all_moves_to_the_end() {
    let old = |http| World::plain().with(service("a/old", 0, &["h.org"], &http));
    let young = |world: World| world.with(service("a/young", 1, &["h.org"], &json!([under("young", "/x")])));
    for (route, answer) in [
        (all_to("old"), "young /x"),
        (under("old", "/"), "young /x"),
        (to("old", &json!({"uri": {"regex": ".*"}})), "young /x"),
        (to("old", &json!({})), "young /x"),
        (to("old", &json!({"ignoreUriCase": true, "uri": {"prefix": "/"}})), "young /x"),
        (to("old", &json!({"uri": {"prefix": "/"}, "method": {"exact": "GET"}})), "old /x"),
        (to("old", &json!({"uri": {"prefix": "/"}, "withoutHeaders": {"a": {"exact": "b"}}})), "old /x"),
        (to("old", &json!({"uri": {"regex": "/.*"}})), "old /x"),
        (to("old", &json!({"uri": {"prefix": ""}})), "old /x"),
    ] {
        assert_eq!(young(old(json!([route]))).get("h.org", "/x"), answer, "{route}");
    }
}

#[test]
fn what_follows_a_route_that_catches_all_is_dropped() {
    let world = World::plain().with(service(
        "a/s",
        0,
        &["h.org"],
        &json!([under("before", "/b"), all_to("all"), under("after", "/a")]),
    ));
    assert_eq!(world.get("h.org", "/b"), "before /b");
    assert_eq!(world.get("h.org", "/a"), "all /a");
    // Even the other matches of the very route are.
    let route = json!({"match": [{"uri": {"prefix": "/"}}, {"uri": {"exact": "/a"}}],
                       "route": [{"destination": {"host": "all"}}]});
    let world = World::plain().with(service("a/s", 0, &["h.org"], &json!([route]))).with(service(
        "a/t",
        1,
        &["h.org"],
        &json!([under("other", "/a")]),
    ));
    assert_eq!(world.get("h.org", "/a"), "other /a");
}

#[test]
fn shares_are_in_lowest_terms() {
    let destinations = |weights: &[(&str, Option<u32>)]| {
        let list: Vec<_> = weights
            .iter()
            .map(|(host, weight)| json!({"destination": {"host": host}, "weight": weight}))
            .collect();
        let world = World::plain().with(service("a/s", 0, &["h.org"], &json!([{"route": list}])));
        let mesh = Mesh {
            proxy: &world.proxy,
            cluster_domain: "cluster.local",
            gateways: world.gateways.iter().collect(),
            virtual_services: world.services.iter().collect(),
        };
        let evaluator = Evaluator::new(&mesh).ok()?;
        let request = crate::eval::Request::get("h.org", "/");
        let answer =
            evaluator.answer(&crate::eval::Entry::port(80), &request, &crate::eval::ChainState::Absent, true);
        let targets = &answer.forward()?.targets;
        Some(
            targets
                .iter()
                .map(|target| format!("{}={}", &target.host[..1], target.weight))
                .collect::<Vec<_>>(),
        )
    };
    for (weights, shares) in [
        (&[("x", None)][..], Some(vec!["x=1"])),
        (&[("x", Some(100))], Some(vec!["x=1"])),
        (&[("y", Some(50)), ("x", Some(50))], Some(vec!["x=1", "y=1"])),
        (&[("x", Some(90)), ("y", Some(10))], Some(vec!["x=9", "y=1"])),
        // Of several, one without a weight gets nothing.
        (&[("x", None), ("y", Some(10))], Some(vec!["y=1"])),
        (&[("x", Some(1)), ("x", Some(1)), ("y", Some(1))], Some(vec!["x=2", "y=1"])),
        (&[("x", Some(0)), ("y", None)], None),
        (&[], None),
        (&[("x", Some(u32::MAX)), ("y", Some(1))], None),
    ] {
        let shares = shares.map(|list| list.into_iter().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(destinations(weights), shares, "{weights:?}");
    }
}

#[test]
fn objects_that_would_be_refused_are_named() {
    for (route, field) in [
        (to("s", &json!({"uri": {"regex": "("}})), "spec.http[0].match[0]"),
        (to("s", &json!({"uri": {"regex": "a)(b"}})), "spec.http[0].match[0]"),
        (json!({"timeout": "soon", "route": [{"destination": {"host": "s"}}]}), "spec.http[0].timeout"),
        (json!({"match": [{"uri": {"prefix": "/"}}]}), "spec.http[0].route"),
    ] {
        let world = World::plain().with(service("a/s", 0, &["h.org"], &json!([route])));
        let mesh = Mesh {
            proxy: &world.proxy,
            cluster_domain: "cluster.local",
            gateways: world.gateways.iter().collect(),
            virtual_services: world.services.iter().collect(),
        };
        let error = Evaluator::new(&mesh).expect_err("it is refused");
        assert_eq!((error.object.to_string().as_str(), error.field.as_str()), ("a/s", field), "{error}");
    }
}

#[test]
fn fields_that_are_not_known_are_named() {
    let route = json!({
        "name": "", "match": [{"uri": {"prefix": "/"}, "ignoreUriCase": false, "port": 80, "headers": {}}],
        "redirect": {"uri": "/x"}, "fault": {}, "headers": {"request": {"add": {"a": "b"}, "remove": ["c"]}},
        "route": [{"destination": {"host": "s", "subset": "v1", "port": {"number": 1}}, "weight": 0}],
    });
    let object = json!({
        "apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": {"name": "s"},
        "spec": {"hosts": ["h.org"], "gateways": [], "http": [route], "tls": []},
    });
    let mut lost = lost_fields(&object);
    lost.sort();
    assert_eq!(
        lost,
        [
            "spec.http[0].fault",
            "spec.http[0].headers.request.add.a",
            "spec.http[0].match[0].port",
            "spec.http[0].redirect.uri",
            "spec.http[0].route[0].destination.subset",
        ]
    );
    assert_eq!(lost_fields(&json!({"spec": {"http": [{"match": "x"}]}})), ["spec"]);
    let known = service("a/s", 0, &["h.org"], &json!([all_to("s")]));
    assert_eq!(lost_fields(&serde_json::to_value(known).expect("JSON")), [""; 0]);
}
