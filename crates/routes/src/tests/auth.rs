use mesh_api::Reason;
use mesh_api::integrator::{BindingAuth, DefaultProviderReference};
use mesh_api::istio::StringMatch;

use super::world::{
    World, allowed, at, binding, login, no_login, protected, provider, reason, request, route_reasons, table,
    verdict,
};
use crate::guard::Provider;
use crate::output::Status;
use crate::{ForeignRoutes, Grant, GrantFrom, GrantTo, ObjectKey, Output};

const HOST: &str = "x.example";

/// A request of namespace `a` whose one route asks for the login of `a/sso`.
fn shop(paths: &[&str]) -> mesh_api::IngressRequest {
    protected(request("a/shop", 0, &[HOST], paths), "sso")
}

fn with_provider() -> World {
    World::new().provider(provider("a/sso", 0, |_| {}))
}

fn id(provider: &mesh_api::AuthProvider) -> String {
    Provider::resolve(provider, "cluster.local").unwrap().id().to_string()
}

fn names(output: &Output) -> Vec<&str> {
    output.virtual_services[0].spec.http.iter().map(|route| route.name.as_str()).collect()
}

#[test]
fn a_protected_route_is_a_pair_and_closed_without_its_chain() {
    let output = with_provider().with(shop(&["/"])).compile();
    assert_eq!(table(&output, HOST), ["!/* -> login, shop.a:80", "/* -> 503"]);
    let id = id(&provider("a/sso", 0, |_| {}));
    let names = names(&output);
    assert!(names[0].starts_with("ii.open.") && names[1].starts_with("ii.auth-probe."), "{names:?}");
    assert!(names[2..].iter().all(|name| name.starts_with(&format!("ii.auth-{id}."))), "{names:?}");
    let marker = output.markers.values().next().unwrap();
    assert_eq!(marker.chain_path, Some(format!("{}/chain", marker.path)));
    let gateway = ObjectKey::new("istio-system", "public");
    assert_eq!(output.chains[&gateway].keys().map(ToString::to_string).collect::<Vec<_>>(), [id]);
    let passed = &output.virtual_services[0].spec.http[2];
    let Some(StringMatch::Exact(token)) = passed.matches[0].headers.get("x-ii-guard") else { panic!() };
    assert!(token.starts_with('\u{1}') && token.len() == 33);
    assert_eq!(passed.headers.as_ref().unwrap().request.as_ref().unwrap().remove, ["x-ii-guard"]);

    let verdict = verdict(&output, "a/shop");
    assert_eq!(verdict.auth.as_deref(), Some("a/sso"));
    assert!(verdict.accepted.holds() && verdict.resolved_refs.holds());
    assert_eq!(verdict.auth_in_force.reason, Reason::ChainPending);
    assert_eq!(verdict.ready.reason, Reason::ChainPending);
    assert_eq!(output.providers[0].ready.reason, Reason::ChainPending);

    let output = with_provider().in_force(&[provider("a/sso", 0, |_| {})]).with(shop(&["/"])).compile();
    assert_eq!(reason(&output, "a/shop"), Reason::Ready);
    assert_eq!(output.providers[0].ready.reason, Reason::Ready);
    assert_eq!(output.providers[0].routes, 1);
}

#[test]
fn a_changed_provider_is_used_once_its_chain_is_in_force() {
    let (before, after) =
        (provider("a/sso", 0, |_| {}), provider("a/sso", 0, |spec| spec.timeout = "3s".into()));
    assert_ne!(id(&before), id(&after));
    let world = World::new().provider(after.clone()).with(shop(&["/"]));
    let output = world.in_force(std::slice::from_ref(&before)).compile();
    assert!(names(&output)[2].starts_with(&format!("ii.auth-{}.", id(&before))), "{:?}", names(&output));
    let gateway = ObjectKey::new("istio-system", "public");
    assert_eq!(output.chains[&gateway].len(), 2, "both checks are needed until the routes have moved");
    assert_eq!(reason(&output, "a/shop"), Reason::Ready, "a check is in force all the while");

    let world = World::new().provider(after.clone()).with(shop(&["/"]));
    let output = world.in_force(&[before.clone(), after.clone()]).compile();
    assert!(names(&output)[2].starts_with(&format!("ii.auth-{}.", id(&after))));
    assert_eq!(output.chains[&gateway].len(), 1);

    // One of the same name that was created anew is another provider.
    let mut anew = after;
    anew.metadata.uid = Some("another".into());
    let output = World::new().provider(anew.clone()).with(shop(&["/"])).in_force(&[before]).compile();
    assert!(names(&output)[2].starts_with(&format!("ii.auth-{}.", id(&anew))));
    assert_eq!(reason(&output, "a/shop"), Reason::ChainPending);
}

#[test]
fn what_cannot_be_asked_closes_its_routes() {
    let closed = |world: World, condition: Reason| {
        let output = world.with(shop(&["/"])).compile();
        assert_eq!(table(&output, HOST), ["/* -> 503"], "{condition}");
        let verdict = verdict(&output, "a/shop");
        assert_eq!(verdict.resolved_refs.reason, condition);
        assert_eq!(verdict.auth_in_force.status, Status::False, "{condition}");
        assert!(output.chains.is_empty(), "{condition}");
        output
    };
    closed(World::new(), Reason::ProviderNotFound);
    let mut deleted = with_provider();
    deleted.providers[0].metadata.deletion_timestamp = Some(at(9));
    closed(deleted, Reason::ProviderNotFound);
    let mut no_service = with_provider();
    no_service.services.remove(&ObjectKey::new("a", "sso"));
    let output = closed(no_service, Reason::ProviderInvalid);
    assert_eq!(output.providers[0].resolved_refs.reason, Reason::ProviderServiceNotFound);
    let other_port = World::new().provider(provider("a/sso", 0, |spec| spec.port = 9001));
    assert_eq!(closed(other_port, Reason::ProviderInvalid).providers[0].ready.reason, Reason::PortNotFound);
    let mut external = with_provider();
    external.services.get_mut(&ObjectKey::new("a", "sso")).unwrap().external_name = true;
    assert_eq!(
        closed(external, Reason::ProviderInvalid).providers[0].ready.reason,
        Reason::UnsupportedService
    );
    let mut claimed = with_provider();
    claimed.claims.insert("sso.a.svc.cluster.local".into(), vec![ObjectKey::new("evil", "entry")]);
    let output = closed(claimed, Reason::ProviderInvalid);
    assert_eq!(output.providers[0].ready.reason, Reason::ProviderClaimed);
    assert!(output.providers[0].ready.message.contains("evil/entry"));
}

#[test]
fn a_namespace_has_only_so_many_providers() {
    let mut world = World::new();
    for number in 0..6 {
        world = world.provider(provider(&format!("a/sso{number}"), number, |_| {}));
    }
    let output = world.with(protected(request("a/shop", 0, &[HOST], &["/"]), "sso5")).compile();
    assert_eq!(table(&output, HOST), ["/* -> 503"]);
    let reasons: Vec<_> = output.providers.iter().map(|provider| provider.accepted.reason).collect();
    assert_eq!(reasons[..5], [Reason::Accepted; 5]);
    assert_eq!(reasons[5], Reason::TooManyProviders);
}

#[test]
fn a_gateway_has_only_so_many_providers() {
    let mut world = World::new();
    world.settings.max_providers_per_gateway = 1;
    let output = world
        .provider(provider("a/young", 2, |_| {}))
        .provider(provider("a/old", 1, |_| {}))
        .with(protected(request("a/one", 0, &["one.example"], &["/"]), "young"))
        .with(protected(request("a/two", 1, &["two.example"], &["/"]), "old"))
        .compile();
    assert_eq!(table(&output, "one.example"), ["/* -> 503"]);
    assert_eq!(verdict(&output, "a/one").accepted.reason, Reason::TooManyProviders);
    assert_eq!(table(&output, "two.example"), ["!/* -> login, shop.a:80", "/* -> 503"]);
}

#[test]
fn bindings_give_and_demand_logins() {
    let bound = |required, default: Option<&str>| {
        let default_provider_ref =
            default.map(|name| DefaultProviderReference { namespace: "b".into(), name: name.into() });
        let auth = BindingAuth { required, default_provider_ref };
        World::new()
            .bound([binding("public", |spec| spec.auth = auth)])
            .provider(provider("b/sso", 0, |_| {}))
            .provider(provider("a/own", 0, |_| {}))
    };
    let open = ["/* -> shop.a:80"];
    let closed = ["/* -> 503"];
    let login_table = ["!/* -> login, shop.a:80", "/* -> 503"];
    let inherit = || request("a/shop", 0, &[HOST], &["/"]);
    let mut none = inherit();
    none.spec.auth = no_login();
    let cases = [
        (false, None, inherit(), &open[..], "None", Reason::Ready),
        (false, None, none.clone(), &open, "None", Reason::Ready),
        // The default provider needs no grant.
        (false, Some("sso"), inherit(), &login_table, "b/sso", Reason::ChainPending),
        (false, Some("sso"), none.clone(), &open, "None", Reason::Ready),
        (true, Some("sso"), inherit(), &login_table, "b/sso", Reason::ChainPending),
        (true, Some("sso"), none.clone(), &closed, "Refused", Reason::AuthRequired),
        (true, None, inherit(), &closed, "Refused", Reason::AuthRequired),
        (true, None, none, &closed, "Refused", Reason::AuthRequired),
        (true, None, protected(inherit(), "own"), &login_table, "a/own", Reason::ChainPending),
        (false, Some("gone"), inherit(), &closed, "Refused", Reason::ProviderNotFound),
    ];
    for (position, (required, default, request, expected, auth, ready)) in cases.into_iter().enumerate() {
        let output = bound(required, default).with(request).compile();
        assert_eq!(table(&output, HOST), expected, "case {position}");
        let verdict = verdict(&output, "a/shop");
        assert_eq!((verdict.auth.as_deref(), verdict.ready.reason), (Some(auth), ready), "case {position}");
    }
}

#[test]
fn a_route_may_say_otherwise_than_its_request() {
    let mut request = shop(&["/", "=/health"]);
    request.spec.routes[1].auth = Some(no_login());
    let output = with_provider().with(request).compile();
    let table = table(&output, HOST);
    assert_eq!(table, ["=/health -> shop.a:80", "!/* -> login, shop.a:80", "/* -> 503"]);
    assert_eq!(verdict(&output, "a/shop").auth.as_deref(), Some("None,a/sso"));
}

#[test]
fn providers_of_others_need_a_grant() {
    let other = || World::new().provider(provider("b/sso", 0, |_| {}));
    let request = || protected(request("a/shop", 0, &[HOST], &["/"]), "b/sso");
    let output = other().with(request()).compile();
    assert_eq!(table(&output, HOST), ["/* -> 503"]);
    assert_eq!(verdict(&output, "a/shop").resolved_refs.reason, Reason::ReferenceNotGranted);
    let mut unserved = other().with(request());
    unserved.grants.served = false;
    assert_eq!(verdict(&unserved.compile(), "a/shop").resolved_refs.reason, Reason::GrantsNotServed);
    let grant = |namespace: &str, kind: &str, name: Option<&str>| {
        let group = if kind == "Service" { "" } else { "integrator.istio-operators.io" };
        Grant {
            namespace: namespace.into(),
            from: vec![GrantFrom {
                group: "integrator.istio-operators.io".into(),
                kind: "IngressRequest".into(),
                namespace: "a".into(),
            }],
            to: vec![GrantTo { group: group.into(), kind: kind.into(), name: name.map(str::to_owned) }],
        }
    };
    for (grant, granted) in [
        (grant("b", "AuthProvider", None), true),
        (grant("b", "AuthProvider", Some("sso")), true),
        (grant("b", "AuthProvider", Some("other")), false),
        (grant("b", "Service", None), false),
        (grant("c", "AuthProvider", None), false),
    ] {
        let mut world = other().with(request());
        world.grants.list.push(grant.clone());
        let output = world.compile();
        assert_eq!(verdict(&output, "a/shop").resolved_refs.holds(), granted, "{grant:?}");
        assert_eq!(table(&output, HOST).len(), if granted { 2 } else { 1 });
    }
}

#[test]
fn in_one_namespace_the_stricter_route_has_the_path() {
    for (open, strict) in [(1, 2), (2, 1)] {
        let output = with_provider()
            .with(request("a/open", open, &[HOST], &["/"]))
            .with(protected(request("a/strict", strict, &[HOST], &["/"]), "sso"))
            .compile();
        assert_eq!(table(&output, HOST), ["!/* -> login, shop.a:80", "/* -> 503"]);
        let lost = verdict(&output, "a/open");
        assert_eq!(lost.accepted.reason, Reason::PathConflict);
        assert!(lost.accepted.message.contains("a/strict"), "{}", lost.accepted.message);
        assert_eq!(verdict(&output, "a/strict").accepted.reason, Reason::Accepted);
    }
}

#[test]
fn on_a_shared_host_a_younger_login_does_not_take_the_path_and_both_are_told() {
    let shared = || {
        World::new().bound([binding("public", |spec| spec.hosts.allowed = vec![allowed("*.example", true)])])
    };
    let output = shared()
        .provider(provider("b/sso", 0, |_| {}))
        .with(request("a/open", 1, &[HOST], &["/"]))
        .with(protected(request("b/strict", 2, &[HOST], &["/"]), "sso"))
        .compile();
    assert_eq!(table(&output, HOST), ["/* -> shop.a:80"]);
    let strict = verdict(&output, "b/strict");
    assert_eq!(
        (strict.accepted.reason, route_reasons(&output, "b/strict")),
        (Reason::PathConflict, vec!["PathConflict".to_owned()])
    );
    assert!(strict.accepted.message.contains("no login"), "{}", strict.accepted.message);
    assert_eq!(verdict(&output, "a/open").accepted.reason, Reason::ShadowsProtected);
    // Nor do other methods of the path belong to the younger namespace.
    let mut post = protected(request("b/strict", 2, &[HOST], &["/"]), "sso");
    post.spec.routes[0].methods = vec![mesh_api::integrator::Method::Post];
    let output = shared()
        .provider(provider("b/sso", 0, |_| {}))
        .with(request("a/open", 1, &[HOST], &["/"]))
        .with(post)
        .compile();
    assert_eq!(table(&output, HOST), ["/* -> shop.a:80"]);
    assert_eq!(verdict(&output, "b/strict").accepted.reason, Reason::PathConflict);
}

#[test]
fn an_older_foreign_route_takes_the_login_out_of_force() {
    let sso = provider("a/sso", 0, |_| {});
    let foreign = |second, gateway: &str, host: &str| ForeignRoutes {
        key: ObjectKey::new("other", "theirs"),
        created: Some(at(second)),
        gateways: vec![ObjectKey::new("istio-system", gateway)],
        hosts: vec![host.to_owned()],
        export_to: vec!["istio-system".to_owned()],
        owner: "field manager them".into(),
    };
    // The gateway's pods are in istio-system, to which ours are exported by name.
    let exported = |second, namespace: &str, to: &[&str]| ForeignRoutes {
        key: ObjectKey::new(namespace, "theirs"),
        export_to: to.iter().map(|entry| (*entry).to_owned()).collect(),
        ..foreign(second, "public", HOST)
    };
    for (routes, written, in_force) in [
        (foreign(1, "public", HOST), Some(at(5)), false),
        (foreign(9, "public", HOST), Some(at(5)), true),
        (foreign(9, "public", HOST), None, false),
        (foreign(1, "private", HOST), Some(at(5)), true),
        (foreign(1, "public", "y.example"), Some(at(5)), true),
        // Age decides among those of one visibility only.
        (exported(1, "other", &[]), Some(at(5)), true),
        (exported(1, "other", &["*"]), Some(at(5)), true),
        (exported(1, "other", &["*"]), None, false),
        (exported(9, "istio-system", &["."]), Some(at(5)), false),
        (exported(1, "other", &["."]), Some(at(5)), true),
        (exported(1, "other", &["elsewhere"]), None, true),
    ] {
        let mut world = with_provider().in_force(std::slice::from_ref(&sso)).with(shop(&["/"]));
        let name = crate::virtual_service_name(&ObjectKey::new("istio-system", "public"), HOST);
        world.foreign.push(routes.clone());
        if let Some(created) = written {
            world.written.insert(name, Some(created));
        }
        let output = world.compile();
        let condition = &verdict(&output, "a/shop").auth_in_force;
        assert_eq!(condition.holds(), in_force, "{routes:?}: {condition:?}");
        if !in_force {
            assert_eq!(condition.reason, Reason::ForeignRoute);
            assert!(condition.message.contains("/theirs (of field manager them)"));
        }
    }
}

#[test]
fn identity_headers_are_taken_from_clients_on_open_routes_and_those_of_others_on_protected_ones() {
    let mut open = request("a/open", 1, &["open.example"], &["/"]);
    open.spec.auth = no_login();
    let output = with_provider()
        .provider(provider("a/mail", 0, |spec| spec.identity_headers = vec!["x-mail-to".into()]))
        .with(shop(&["/"]))
        .with(protected(request("a/mail", 0, &["mail.example"], &["/"]), "mail"))
        .with(open)
        .with(request("b/elsewhere", 1, &["b.example"], &["/"]))
        .compile();
    let removed = |host| removed(&output, host);
    let mail = ["x-mail-to", "x-mail_to", "x_mail-to", "x_mail_to"];
    let spelled = |headers: &[&str]| -> Vec<String> {
        let mut list: Vec<String> = headers.iter().map(|header| (*header).to_owned()).collect();
        list.sort();
        list
    };
    assert_eq!(removed("open.example"), spelled(&[&mail[..], &["x-user", "x_user"]].concat()));
    assert_eq!(removed(HOST), spelled(&[&mail[..], &["x-ii-guard"]].concat()));
    assert_eq!(removed("mail.example"), spelled(&["x-ii-guard", "x-user", "x_user"]));
    assert!(removed("b.example").is_empty(), "none of its backends believes them");
}

/// The headers that the routes of a host take from clients.
fn removed(output: &Output, host: &str) -> Vec<String> {
    let object = output.virtual_services.iter().find(|object| object.spec.hosts == [host]).unwrap();
    let forwarding = object.spec.http.iter().find(|route| !route.route.is_empty()).unwrap();
    let request = forwarding.headers.as_ref().and_then(|headers| headers.request.clone());
    request.map(|request| request.remove).unwrap_or_default()
}

#[test]
fn identity_headers_of_a_provider_that_cannot_be_asked_are_taken_from_clients_all_the_same() {
    let mut open = request("a/open", 1, &["open.example"], &["/"]);
    open.spec.auth = no_login();
    let mut world = with_provider().with(shop(&["/"])).with(open);
    world.services.retain(|key, _| key.name != "sso");
    let output = world.compile();
    assert_eq!(verdict(&output, "a/shop").resolved_refs.reason, Reason::ProviderInvalid);
    assert_eq!(table(&output, HOST), ["/* -> 503"]);
    assert_eq!(removed(&output, "open.example"), ["x-user", "x_user"]);
    // Nor where the gateway has no room for it.
    let mut open = request("a/open", 1, &["open.example"], &["/"]);
    open.spec.auth = no_login();
    let mut world = with_provider().with(shop(&["/"])).with(open);
    world.settings.max_providers_per_gateway = 0;
    assert_eq!(removed(&world.compile(), "open.example"), ["x-user", "x_user"]);
}

#[test]
fn identity_headers_of_the_form_in_force_are_taken_from_clients_until_the_new_one_is() {
    let older = provider("a/sso", 0, |spec| spec.identity_headers = vec!["x-before".into()]);
    let mut open = request("a/open", 1, &["open.example"], &["/"]);
    open.spec.auth = no_login();
    let world = with_provider().in_force(std::slice::from_ref(&older)).with(shop(&["/"])).with(open);
    let output = world.compile();
    assert_eq!(removed(&output, "open.example"), ["x-before", "x-user", "x_before", "x_user"]);
    assert_eq!(removed(&output, HOST), ["x-ii-guard", "x-user", "x_user"]);
}

#[test]
fn references_to_providers_need_their_name() {
    let mut request = shop(&["/"]);
    request.spec.auth.provider_ref = None;
    let output = with_provider().with(request).compile();
    assert_eq!(table(&output, HOST), ["/* -> 503"]);
    assert_eq!(verdict(&output, "a/shop").accepted.reason, Reason::InvalidSpec);
    let mut by_route = request_with_route_login();
    by_route.spec.routes[0].auth = Some(login("gone"));
    let output = with_provider().with(by_route).compile();
    assert_eq!(verdict(&output, "a/shop").resolved_refs.reason, Reason::ProviderNotFound);
    assert!(verdict(&output, "a/shop").resolved_refs.message.contains("spec.routes[0].auth.providerRef"));
}

fn request_with_route_login() -> mesh_api::IngressRequest {
    request("a/shop", 0, &[HOST], &["/"])
}
