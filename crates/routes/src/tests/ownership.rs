use mesh_api::Reason;

use super::world::{
    World, allowed, at, binding, deleted, naming, reason, request, route_reasons, table, verdict,
};
use crate::ObjectKey;

fn shared() -> World {
    World::new().bound([binding("public", |spec| spec.hosts.allowed = vec![allowed("*.example", true)])])
}

#[test]
fn the_oldest_namespace_has_the_host() {
    // Whichever was listed or created first, and by namespace and name where the second is the same.
    for (a, b, winner, loser) in [(1, 2, "a", "b"), (2, 1, "b", "a"), (1, 1, "a", "b")] {
        let first = request("a/shop", a, &["x.example"], &["/a"]);
        let second = request("b/shop", b, &["x.example"], &["/b"]);
        for (one, two) in [(first.clone(), second.clone()), (second, first)] {
            let output = World::new().with(one).with(two).compile();
            assert_eq!(table(&output, "x.example"), [format!("=/{winner} /{winner}/* -> shop.{winner}:80")]);
            assert_eq!(reason(&output, &format!("{winner}/shop")), Reason::Ready);
            let lost = verdict(&output, &format!("{loser}/shop"));
            assert_eq!(lost.accepted.reason, Reason::HostConflict);
            assert!(lost.accepted.message.contains(&format!("{winner}/shop")), "it is told by whom it lost");
            assert_eq!(lost.routes[0].reason, "HostConflict");
            assert!(lost.urls.is_empty() && lost.virtual_services.is_empty());
        }
    }
}

#[test]
fn the_next_takes_over_when_the_winner_leaves() {
    let winner = request("a/shop", 1, &["x.example"], &["/"]);
    let next = request("b/shop", 2, &["x.example"], &["/"]);
    let youngest = request("c/shop", 3, &["x.example"], &["/"]);
    let output = World::new().with(next.clone()).with(youngest.clone()).with(deleted(winner)).compile();
    assert_eq!(table(&output, "x.example"), ["/* -> shop.b:80"]);
    assert_eq!(output.requests.len(), 2, "of what is being deleted nothing is said");
    assert!(verdict(&output, "c/shop").accepted.message.contains("b/shop"));
}

#[test]
fn what_is_refused_holds_no_host() {
    // The older request may not have the host, so the younger is not in its way.
    let world = World::new().bound([binding("public", |spec| {
        spec.hosts.allowed = vec![super::world::allowed_to_own("y.example"), allowed("*.example", false)];
    })]);
    let output = world
        .with(request("a/shop", 1, &["y.example"], &["/"]))
        .with(request("istio-integrator/shop", 2, &["y.example"], &["/"]))
        .compile();
    assert_eq!(reason(&output, "a/shop"), Reason::HostNotAllowed);
    assert_eq!(table(&output, "y.example"), ["/* -> 503"]);
}

#[test]
fn a_shared_host_is_owned_path_by_path() {
    for (a, b, winner, loser) in [(1, 2, "a", "b"), (2, 1, "b", "a")] {
        let output = shared()
            .with(request("a/shop", a, &["x.example"], &["/", "=/login"]))
            .with(request("b/shop", b, &["x.example"], &["/", "/login"]))
            .compile();
        assert_eq!(
            table(&output, "x.example"),
            [
                "=/login -> shop.a:80".to_owned(),
                "/login/* -> shop.b:80".to_owned(),
                format!("/* -> shop.{winner}:80")
            ]
        );
        let lost = format!("{loser}/shop");
        assert_eq!(route_reasons(&output, &lost), ["PathConflict", "Served"]);
        assert!(verdict(&output, &lost).routes[0].message.contains(&format!("{winner}/shop")));
        assert_eq!(reason(&output, &format!("{winner}/shop")), Reason::Ready);
    }
}

#[test]
fn both_sides_must_share() {
    // Two bindings on one gateway, of which only one shares the host.
    let sharing = binding("sharing", |spec| spec.hosts.allowed = vec![allowed("*.example", true)]);
    let keeping = binding("keeping", |spec| spec.hosts.allowed = vec![allowed("*.example", false)]);
    for (a, b) in [(1, 2), (2, 1)] {
        let output = World::new()
            .bound([sharing.clone(), keeping.clone()])
            .with(naming("sharing", request("a/shop", a, &["x.example"], &["/a"])))
            .with(naming("keeping", request("b/shop", b, &["x.example"], &["/b"])))
            .compile();
        let (winner, loser) = if a < b { ("a/shop", "b/shop") } else { ("b/shop", "a/shop") };
        assert_eq!(reason(&output, winner), Reason::Ready);
        assert_eq!(reason(&output, loser), Reason::HostConflict);
    }
}

#[test]
fn a_host_is_owned_on_each_gateway_by_itself() {
    let private = binding("private", |spec| {
        spec.default = false;
        spec.gateway.istio_gateway = Some(mesh_api::integrator::IstioGatewayReference {
            namespace: "istio-system".into(),
            name: "private".into(),
        });
    });
    let mut world = World::new()
        .with(request("a/shop", 1, &["x.example"], &["/"]))
        .with(naming("private", request("b/shop", 2, &["x.example"], &["/"])));
    let facts = world.gateways[&ObjectKey::new("istio-system", "public")].clone();
    world.gateways.insert(ObjectKey::new("istio-system", "private"), facts);
    world.bindings.push(private);
    let output = world.compile();
    assert_eq!(output.virtual_services.len(), 2);
    assert_eq!((reason(&output, "a/shop"), reason(&output, "b/shop")), (Reason::Ready, Reason::Ready));
}

#[test]
fn a_request_never_seen_by_a_cluster_is_older_than_all() {
    let mut young = request("b/shop", 0, &["x.example"], &["/"]);
    young.metadata.creation_timestamp = None;
    let output = World::new().with(request("a/shop", 0, &["x.example"], &["/"])).with(young).compile();
    assert_eq!(table(&output, "x.example"), ["/* -> shop.b:80"]);
    assert!(at(0) < at(1));
}
