use std::collections::BTreeMap;

use mesh_api::Reason;
use mesh_api::integrator::{AllowedHost, HostPolicy};

use super::world::{World, allowed, allowed_to_own, binding, reason, request, table, team, verdict};

fn world(policy: HostPolicy) -> World {
    let mut world = World::new().bound([binding("public", |spec| spec.hosts = policy)]);
    world.namespaces.insert("a".into(), BTreeMap::from([("team".to_owned(), "red".to_owned())]));
    world
}

fn policy(domain: Option<&str>, allowed: &[AllowedHost]) -> HostPolicy {
    HostPolicy {
        domain: domain.map(str::to_owned),
        template: "{name}.{namespace}.{domain}".into(),
        allowed: allowed.to_vec(),
    }
}

fn allowed_to_team(pattern: &str, name: &str) -> AllowedHost {
    AllowedHost { namespaces: Some(team(name)), ..allowed(pattern, false) }
}

#[test]
fn which_hosts_a_namespace_may_have() {
    let none: &[AllowedHost] = &[];
    let apps = Some("apps.example");
    let ready = Reason::Ready;
    let refused = Reason::HostNotAllowed;
    for (policy, host, expected) in [
        // Patterns.
        (policy(None, &[allowed("*", false)]), "x.example", ready),
        (policy(None, &[allowed("*.example", false)]), "x.example", ready),
        (policy(None, &[allowed("*.example", false)]), "y.x.example", ready),
        (policy(None, &[allowed("*.example", false)]), "example", refused),
        (policy(None, &[allowed("*.example", false)]), "x.badexample", refused),
        (policy(None, &[allowed("x.example", false)]), "x.example", ready),
        (policy(None, &[allowed("x.example", false)]), "y.example", refused),
        // Patterns for some namespaces.
        (policy(None, &[allowed_to_team("*.example", "red")]), "x.example", ready),
        (policy(None, &[allowed_to_team("*.example", "blue")]), "x.example", refused),
        (policy(None, &[allowed_to_own("*.example")]), "x.example", refused),
        // The most specific pattern decides alone, wherever it stands.
        (
            policy(None, &[allowed("*.example", false), allowed_to_team("x.example", "blue")]),
            "x.example",
            refused,
        ),
        (
            policy(None, &[allowed_to_team("x.example", "blue"), allowed("*.example", false)]),
            "x.example",
            refused,
        ),
        (
            policy(None, &[allowed("*.example", false), allowed_to_team("*.x.example", "blue")]),
            "y.x.example",
            refused,
        ),
        (policy(None, &[allowed("*", false), allowed_to_team("*.x.example", "blue")]), "y.z.example", ready),
        (policy(None, &[allowed_to_team("*", "blue"), allowed("*.x.example", false)]), "y.x.example", ready),
        // The template's hosts belong to their namespaces.
        (policy(apps, none), "shop.a.apps.example", ready),
        (policy(apps, none), "other.a.apps.example", ready),
        (policy(apps, none), "shop.b.apps.example", Reason::HostReserved),
        (policy(apps, none), "x.example", refused),
        (policy(apps, &[allowed("*.example", false)]), "shop.b.apps.example", Reason::HostReserved),
        (policy(apps, &[allowed("*.apps.example", false)]), "shop.b.apps.example", Reason::HostReserved),
        (policy(apps, &[allowed("*.apps.example", false)]), "shop.apps.example", ready),
        (policy(apps, &[allowed("shop.b.apps.example", false)]), "shop.b.apps.example", ready),
        (policy(apps, &[allowed_to_team("shop.a.apps.example", "blue")]), "shop.a.apps.example", refused),
        // No host at all.
        (policy(None, &[allowed("*", false)]), "UPPER.example", Reason::InvalidHost),
        (policy(None, &[allowed("*", false)]), "*.example", Reason::InvalidHost),
        (policy(None, &[allowed("*", false)]), "x.example:80", Reason::InvalidHost),
        (policy(None, &[allowed("*", false)]), "10.0.0.1", Reason::InvalidHost),
        (policy(None, &[allowed("*", false)]), "", Reason::InvalidHost),
    ] {
        let output = world(policy.clone()).with(request("a/shop", 0, &[host], &["/"])).compile();
        assert_eq!(reason(&output, "a/shop"), expected, "{host} by {policy:?}");
        assert_eq!(output.virtual_services.len(), usize::from(expected == ready), "{host} by {policy:?}");
    }
}

#[test]
fn hosts_from_the_template() {
    let long = "n".repeat(64);
    for (template, domain, name, expected) in [
        ("{name}.{namespace}.{domain}", Some("apps.example"), "shop", Ok("shop.a.apps.example")),
        ("{name}-{namespace}.x.{domain}", Some("apps.example"), "shop", Ok("shop-a.x.apps.example")),
        ("{name}.{domain}", Some("apps.example"), "shop", Ok("shop.apps.example")),
        ("{name}.{namespace}.{domain}", Some("apps.example"), "v2.shop", Ok("v2.shop.a.apps.example")),
        ("{name}.{namespace}.{domain}", None, "shop", Err(Reason::NoHost)),
        ("{name}.{namespace}.{domain}", Some("apps.example"), long.as_str(), Err(Reason::InvalidHost)),
    ] {
        let policy = HostPolicy {
            domain: domain.map(str::to_owned),
            template: template.to_owned(),
            allowed: vec![allowed("unused.example", false)],
        };
        let output = world(policy).with(request(&format!("a/{name}"), 0, &[], &["/"])).compile();
        match expected {
            Ok(host) => assert_eq!(table(&output, host), ["/* -> shop.a:80"], "{template}"),
            Err(expected) => assert_eq!(reason(&output, &format!("a/{name}")), expected, "{template}"),
        }
    }
}

#[test]
fn two_requests_with_one_template_host_are_decided_by_age() {
    let policy = HostPolicy {
        domain: Some("apps.example".into()),
        template: "{name}.{domain}".into(),
        allowed: Vec::new(),
    };
    let output = world(policy)
        .with(request("a/shop", 2, &[], &["/"]))
        .with(request("b/shop", 1, &[], &["/"]))
        .compile();
    assert_eq!(table(&output, "shop.apps.example"), ["/* -> shop.b:80"]);
    assert_eq!(reason(&output, "a/shop"), Reason::HostConflict);
}

#[test]
fn a_refused_host_leaves_the_others_served() {
    let output =
        World::new().with(request("a/shop", 0, &["x.example", "x.org", "y.example"], &["/"])).compile();
    let verdict = verdict(&output, "a/shop");
    assert_eq!(verdict.urls, ["http://x.example", "http://y.example"]);
    assert_eq!(verdict.ready.reason, Reason::HostNotAllowed);
    assert!(
        verdict.accepted.message.contains("x.org") && verdict.accepted.message.contains("the rest is served")
    );
    assert!(verdict.accepted.message.contains("*.example"), "it says what is allowed");
    assert_eq!(verdict.routes[0].reason, "HostNotAllowed");
    assert!(verdict.routes[0].message.contains("served on other hosts"));
    assert!(verdict.refused());
}
