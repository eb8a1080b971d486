use serde_json::{Value, json};

use super::world::{World, all_to, service, to};
use crate::eval::{ChainState, Entry, Request};

fn matches(condition: &Value, request: &Request) -> bool {
    let world = World::plain().with(service("a/s", 0, &["*"], &json!([to("yes", condition), all_to("no")])));
    world.ask(request).starts_with("yes ")
}

#[test]
fn paths_are_compared() {
    for (uri, path, matched) in [
        (json!({"exact": "/a"}), "/a", true),
        (json!({"exact": "/a"}), "/a?q", true),
        (json!({"exact": "/a"}), "/a/", false),
        (json!({"exact": "/a"}), "/A", false),
        (json!({"prefix": "/a"}), "/ab", true),
        (json!({"prefix": "/a/"}), "/a", false),
        (json!({"prefix": "/a/"}), "/a/?q", true),
        (json!({"prefix": "/a?"}), "/a?q", false),
        (json!({"prefix": ""}), "/", true),
        (json!({"regex": "/a+"}), "/aa?b", true),
        (json!({"regex": "/a"}), "/ab", false),
        (json!({"regex": "a"}), "/a", false),
        (json!({"regex": "/a|/b"}), "/bc", false),
        (json!({"regex": "/(?i:a)"}), "/A", true),
        (json!({"regex": "/."}), "/\u{e9}", false),
    ] {
        assert_eq!(matches(&json!({"uri": uri}), &Request::get("h", path)), matched, "{uri} {path}");
    }
    for (uri, matched) in [
        (json!({"exact": "/App"}), true),
        (json!({"prefix": "/aPP"}), true),
        (json!({"regex": "/App"}), false),
    ] {
        let condition = json!({"uri": uri, "ignoreUriCase": true});
        assert_eq!(matches(&condition, &Request::get("h", "/app")), matched, "{uri}");
    }
}

#[test]
fn headers_are_compared_joined_and_absent_ones_as_envoy_does() {
    let none = Request::get("h", "/");
    let one = none.clone().header("X-A", " b ");
    let two = one.clone().header("x-a", "c");
    for (value, on_none, on_one, on_two) in [
        (json!({"exact": "b"}), false, true, false),
        (json!({"exact": "b,c"}), false, false, true),
        (json!({"prefix": "b"}), false, true, true),
        (json!({"prefix": ""}), false, true, true),
        (json!({"regex": "*"}), false, true, true),
        (json!({"regex": ".*"}), false, true, true),
    ] {
        for (request, met) in [(&none, on_none), (&one, on_one), (&two, on_two)] {
            assert_eq!(matches(&json!({"headers": {"x-a": value}}), request), met, "{value} {request:?}");
            // What an absent header fails, its inverse is met by: unless nothing at all would have met the test.
            let meets_nothing = value == json!({"prefix": ""}) || value == json!({"regex": ".*"});
            let inverse = if request.headers.is_empty() { !meets_nothing } else { !met };
            let without = json!({"withoutHeaders": {"x-a": value}});
            assert_eq!(matches(&without, request), inverse, "without {value} {request:?}");
        }
    }
    assert!(matches(&json!({"headers": {"host": {"exact": "h:1"}}}), &Request::get("h:1", "/")));
    assert!(!matches(&json!({"headers": {"@request.auth.claims.sub": {"exact": "x"}}}), &none));
    assert!(matches(&json!({"withoutHeaders": {"@request.auth.claims.sub": {"exact": "x"}}}), &none));
}

#[test]
fn methods_are_compared_as_sent() {
    let condition = json!({"method": {"regex": "GET|HEAD"}});
    for (method, matched) in [("GET", true), ("HEAD", true), ("get", false), ("POST", false), ("GETX", false)]
    {
        assert_eq!(matches(&condition, &Request::get("h", "/").method(method)), matched, "{method}");
    }
}

#[test]
fn control_characters_in_a_header_are_refused() {
    let world = World::plain().with(service("a/s", 0, &["*"], &json!([all_to("s")])));
    for (value, answer) in [("\u{1}a", "400"), ("a\u{7f}", "400"), ("a\tb", "s /"), ("\u{e9}", "s /")] {
        assert_eq!(world.ask(&Request::get("h", "/").header("x-a", value)), answer, "{value:?}");
    }
}

#[test]
fn rewrites_replace_what_matched() {
    let rewritten = |condition: Value, uri: &str, path: &str| {
        let mut route = to("s", &condition);
        route["rewrite"] = json!({"uri": uri});
        World::plain().with(service("a/s", 0, &["*"], &json!([route]))).get("h", path)
    };
    for (uri, to, path, answer) in [
        (json!({"prefix": "/c/"}), "/", "/c/x?q=/c/", "s /x?q=/c/"),
        (json!({"prefix": "/c/"}), "/", "/c//x", "s //x"),
        (json!({"prefix": "/c"}), "/d", "/cx", "s /dx"),
        (json!({"exact": "/c"}), "/d", "/c?q", "s /d?q"),
        (json!({"regex": "/c.*"}), "/d", "/cxy?q", "s /d?q"),
        (json!({"prefix": "/"}), "", "/x", "s /x"),
    ] {
        assert_eq!(rewritten(json!({"uri": uri}), to, path), answer, "{uri} {path}");
    }
    let any_case = json!({"uri": {"prefix": "/C/"}, "ignoreUriCase": true});
    assert_eq!(rewritten(any_case, "/", "/c/x"), "s /x");
}

#[test]
fn all_that_happens_to_a_forwarded_request_is_told() {
    let route = json!({
        "name": "n", "timeout": "1.500s",
        "headers": {"request": {"set": {"X-Set": "v"}, "remove": ["X-User", "Host", ":path"]}},
        "route": [{"destination": {"host": "s", "port": {"number": 8080}}}],
    });
    let world = World::plain().with(service("a/obj", 0, &["*"], &json!([all_to_nothing(), route])));
    let answer =
        world.evaluator().answer(&Entry::port(80), &Request::get("h", "/x"), &ChainState::Absent, false);
    let forward = answer.forward().expect("it is forwarded");
    assert_eq!((forward.route.object.to_string().as_str(), forward.route.position), ("a/obj", 1));
    assert_eq!(forward.route.name, "n");
    assert_eq!(forward.timeout, Some(std::time::Duration::from_millis(1500)));
    assert_eq!(forward.removed_headers.iter().collect::<Vec<_>>(), ["x-user"]);
    assert_eq!(forward.set_headers.get("x-set").map(String::as_str), Some("v"));
    assert_eq!(forward.targets[0].port, Some(8080));
    assert_eq!(forward.check, None);
    let mut other = forward.clone();
    other.route.name = "m".into();
    assert!(forward.same_effect(&other));
    other.timeout = None;
    assert!(!forward.same_effect(&other));
}

fn all_to_nothing() -> Value {
    json!({"match": [{"uri": {"exact": "/never"}}], "directResponse": {"status": 204}})
}
