use serde_json::{Value, json};

use super::world::{World, all_to, service, short, to};
use crate::eval::{ChainState, Entry, Request, provider_of};

const TOKEN: &str = "\u{1}secret";

/// The pair of a protected route, an open one beside it, and the marker.
fn world() -> World {
    let guarded = |path: &str| json!({"uri": {"prefix": path}, "headers": {"x-ii-guard": {"exact": TOKEN}}});
    let unguarded =
        |path: &str| json!({"uri": {"prefix": path}, "withoutHeaders": {"x-ii-guard": {"exact": TOKEN}}});
    let named = |name: &str, mut route: Value| {
        route["name"] = json!(name);
        route
    };
    let closed = |name: &str, condition: Value| json!({"name": name, "match": [condition], "directResponse": {"status": 503}});
    World::plain().with(service(
        "istio-integrator/h",
        0,
        &["h.org"],
        &json!([
            closed("ii.auth-probe.aa", json!({"uri": {"exact": "/marker/chain"}})),
            named("ii.open.bb", to("open", &json!({"uri": {"prefix": "/open"}}))),
            named("ii.auth-p.cc", to("app", &guarded("/"))),
            closed("ii.auth-p.cc", unguarded("/")),
        ]),
    ))
}

fn ask(world: &World, chain: &ChainState, login: bool, path: &str) -> String {
    short(&world.evaluator().answer(&Entry::port(80), &Request::get("h.org", path), chain, login))
}

#[test]
fn a_protected_route_opens_to_a_passed_check_alone() {
    let world = world();
    let holds = ChainState::holds([("p", TOKEN)]);
    let other = ChainState::holds([("q", "\u{1}other")]);
    let old_key = ChainState::holds([("p", "\u{1}older")]);
    for (chain, login, protected) in [
        (&holds, true, "app /x checked by p"),
        (&holds, false, "denied by p"),
        (&other, true, "503"),
        (&old_key, true, "503"),
        (&ChainState::Absent, true, "503"),
        (&ChainState::Broken, true, "503"),
    ] {
        assert_eq!(ask(&world, chain, login, "/x"), protected, "{chain:?} {login}");
        assert_eq!(ask(&world, chain, login, "/open"), "open /open", "{chain:?} {login}");
    }
}

#[test]
fn the_chain_answers_for_itself() {
    let world = world();
    assert_eq!(ask(&world, &ChainState::holds([("p", TOKEN)]), false, "/marker/chain"), "200");
    assert_eq!(ask(&world, &ChainState::Absent, false, "/marker/chain"), "503");
    assert_eq!(ask(&world, &ChainState::Broken, false, "/marker/chain"), "503");
}

#[test]
fn no_client_can_send_a_token() {
    let world = world();
    let evaluator = world.evaluator();
    for name in ["x-ii-guard", "X-II-Guard", "x_ii_guard", "x-ii_guard"] {
        for (value, without_chain) in [(TOKEN, "400"), ("secret", "503")] {
            let request = Request::get("h.org", "/x").header(name, value);
            let answer = evaluator.answer(&Entry::port(80), &request, &ChainState::Absent, true);
            assert_eq!(short(&answer), without_chain, "{name} {value:?}");
        }
    }
}

#[test]
fn a_borrowed_name_asks_for_the_check_and_a_lost_one_for_nothing() {
    let mut route = all_to("theirs");
    route["name"] = json!("ii.auth-p.theirs");
    let world = World::plain().with(service("x/theirs", 0, &["h.org"], &json!([route])));
    let holds = ChainState::holds([("p", TOKEN)]);
    assert_eq!(ask(&world, &holds, true, "/"), "theirs / checked by p");
    assert_eq!(ask(&world, &holds, false, "/"), "denied by p");
    assert_eq!(ask(&world, &ChainState::holds([("q", TOKEN)]), false, "/"), "theirs /");
    assert_eq!(ask(&world, &ChainState::Absent, false, "/"), "theirs /");
}

#[test]
fn a_name_tells_the_provider() {
    for (name, provider) in [
        ("ii.auth-p1.aa", Some("p1")),
        ("ii.auth-p1", Some("p1")),
        ("ii.auth-.aa", Some("")),
        ("ii.open.aa", None),
        ("x.ii.auth-p1.aa", None),
        ("", None),
    ] {
        assert_eq!(provider_of(name), provider, "{name}");
    }
}
