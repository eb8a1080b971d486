use std::collections::BTreeMap;

use mesh_api::Reason;
use mesh_api::integrator::{NamespaceSelection, ServedCount};

use super::world::{World, allowed, at, binding, naming, reason, request, team, verdict};

#[test]
fn which_binding_serves() {
    let older = || binding("older", |spec| spec.hosts.allowed = vec![allowed("*.example", false)]);
    let mut younger = binding("younger", |spec| spec.hosts.allowed = vec![allowed("*.org", false)]);
    younger.metadata.creation_timestamp = Some(at(5));
    let plain = binding("plain", |spec| spec.default = false);
    let own = binding("own", |spec| spec.namespaces = NamespaceSelection::default());
    let red = binding("red", |spec| spec.namespaces = team("red"));
    let broken = binding("broken", |spec| spec.hosts.template = "{nope}.{domain}".into());
    let shop = || request("a/shop", 0, &["x.example"], &["/"]);
    let org = || request("a/shop", 0, &["x.org"], &["/"]);
    for (bindings, request, expected) in [
        (vec![older()], shop(), Ok("older")),
        (vec![older(), younger.clone()], shop(), Ok("older")),
        (vec![younger.clone(), older()], org(), Ok("younger")),
        (vec![plain.clone()], shop(), Err(Reason::NoBinding)),
        (vec![plain.clone()], naming("plain", shop()), Ok("plain")),
        (vec![older(), plain.clone()], naming("plain", shop()), Ok("plain")),
        (vec![older()], naming("nope", shop()), Err(Reason::BindingNotFound)),
        (vec![], shop(), Err(Reason::NoBinding)),
        (vec![own.clone()], shop(), Err(Reason::NoBinding)),
        (vec![own.clone()], naming("own", shop()), Err(Reason::NamespaceNotAllowed)),
        (vec![own.clone()], request("istio-integrator/shop", 0, &["x.example"], &["/"]), Ok("own")),
        (vec![own, younger.clone()], org(), Ok("younger")),
        (vec![red.clone()], shop(), Ok("red")),
        (vec![red], request("b/shop", 0, &["x.example"], &["/"]), Err(Reason::NoBinding)),
        (vec![broken.clone()], shop(), Err(Reason::NoBinding)),
        (vec![broken.clone()], naming("broken", shop()), Err(Reason::BindingInvalid)),
        (vec![broken, older()], shop(), Ok("older")),
    ] {
        let names: Vec<String> =
            bindings.iter().filter_map(|binding| binding.metadata.name.clone()).collect();
        let object = format!("{}/shop", request.metadata.namespace.as_deref().unwrap());
        let mut world = World::new().service("istio-integrator", "shop", &[80]).bound(bindings).with(request);
        world.namespaces.insert("a".into(), BTreeMap::from([("team".to_owned(), "red".to_owned())]));
        let output = world.compile();
        let verdict = verdict(&output, &object);
        match expected {
            Ok(name) => {
                assert_eq!(verdict.binding.as_deref(), Some(name), "{names:?}");
                assert_eq!(verdict.ready.reason, Reason::Ready, "{names:?}");
            }
            Err(expected) => {
                assert_eq!(verdict.ready.reason, expected, "{names:?}");
                assert_eq!(verdict.routes[0].reason, expected.as_str());
                assert!(output.virtual_services.is_empty());
                let listed = names.iter().all(|name| verdict.accepted.message.contains(name.as_str()));
                assert!(listed, "it says what exists: {}", verdict.accepted.message);
            }
        }
    }
}

#[test]
fn where_no_default_admits_the_host_the_oldest_says_why() {
    let older = binding("older", |spec| spec.hosts.allowed = vec![allowed("*.example", false)]);
    let mut younger = binding("younger", |spec| spec.hosts.allowed = vec![allowed("*.org", false)]);
    younger.metadata.creation_timestamp = Some(at(5));
    let output =
        World::new().bound([younger, older]).with(request("a/shop", 0, &["x.net"], &["/"])).compile();
    assert_eq!(reason(&output, "a/shop"), Reason::HostNotAllowed);
    assert_eq!(verdict(&output, "a/shop").binding.as_deref(), Some("older"));
    assert!(output.bindings.iter().all(|binding| binding.accepted.reason == Reason::Accepted));
}

#[test]
fn several_defaults_are_told_on_request_and_bindings() {
    let mut younger = binding("another", |_| {});
    younger.metadata.creation_timestamp = Some(at(5));
    let output = World::new()
        .bound([younger, binding("public", |_| {}), binding("unrelated", |spec| spec.default = false)])
        .with(request("a/shop", 0, &["x.example"], &["/"]))
        .compile();
    let accepted = &verdict(&output, "a/shop").accepted;
    assert!(accepted.holds() && accepted.reason == Reason::AmbiguousDefault);
    assert!(
        accepted.message.contains("public") && accepted.message.contains("another"),
        "{}",
        accepted.message
    );
    assert_eq!(verdict(&output, "a/shop").binding.as_deref(), Some("public"));
    assert_eq!(reason(&output, "a/shop"), Reason::Ready);
    let reasons: Vec<(&str, Reason)> =
        output.bindings.iter().map(|binding| (binding.name.as_str(), binding.accepted.reason)).collect();
    assert_eq!(
        reasons,
        [
            ("another", Reason::AmbiguousDefault),
            ("public", Reason::AmbiguousDefault),
            ("unrelated", Reason::Accepted)
        ]
    );
    assert!(output.bindings[0].accepted.message.contains("a/shop"));
}

#[test]
fn a_binding_that_makes_no_sense_is_refused() {
    for (object, message) in [
        (
            binding("public", |spec| spec.hosts.template = "{name}.{team}.{domain}".into()),
            "spec.hosts.template",
        ),
        (binding("public", |spec| spec.hosts.domain = Some("UPPER".into())), "spec.hosts.domain"),
        (
            binding("public", |spec| spec.hosts.allowed.push(allowed("a.*", false))),
            "spec.hosts.allowed[1].pattern",
        ),
        (binding("public", |spec| spec.gateway.istio_gateway = None), "spec.gateway.istioGateway"),
    ] {
        let output = World::new().bound([object]).compile();
        let verdict = &output.bindings[0];
        assert_eq!(
            (verdict.accepted.reason, verdict.ready.reason),
            (Reason::InvalidSpec, Reason::InvalidSpec)
        );
        assert!(
            !verdict.accepted.holds() && verdict.accepted.message.contains(message),
            "{}",
            verdict.accepted.message
        );
    }
}

#[test]
fn a_binding_says_how_much_it_serves() {
    let output = World::new()
        .with(request("a/one", 1, &["x.example", "y.example"], &["/"]))
        .with(request("a/two", 2, &["x.example"], &["/two"]))
        .with(request("b/lost", 3, &["x.example"], &["/"]))
        .with(request("a/broken", 4, &["z.example"], &["/ -> gone:80"]))
        .with(naming("nope", request("a/elsewhere", 5, &["w.example"], &["/"])))
        .compile();
    assert_eq!(output.bindings[0].serves, ServedCount { requests: 3, refused: 2, hosts: 3 });
    assert_eq!(output.bindings[0].gateway.as_deref(), Some("istio-system/public"));
    let conditions = output.bindings[0].conditions().map(|(kind, _)| kind.as_str());
    assert_eq!(conditions, ["Accepted", "Ready"]);
}
