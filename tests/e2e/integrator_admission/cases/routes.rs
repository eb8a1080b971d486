//! What a route of an `IngressRequest` says beside its path: methods, logins, weights, rewrite and timeout.

use serde_json::{Value, json};

use super::requests::{CHARACTERS, DISTINCT, ENCODED, prefix, route_at, routes};
use super::{
    Admitted, DUPLICATE, DURATION, EMPTY_TEXT, LABEL, NAME, NO_DURATIONS, REQUIRED, RESOLVED, Refused, SLASH,
    TOO_LONG, TOO_MANY, UNSUPPORTED, admitted, longest_host, refused,
};

const MEMBER: &str = "providerRef must be set when type is Provider, and only then";
const TWICE: &str = "no two backends may have the same namespace, service and port: keep one of them, with both weights added";
const NO_WEIGHT: &str = "at least one backend must have a weight above 0, or nobody would answer";
const NO_PREFIX: &str = "rewrite needs path.type PathPrefix: an Exact path has no prefix to replace";
const BOUNDS: &str = "must be from 1ms to 24h";
const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// A route with one more field.
fn with(mut route: Value, field: &str, value: Value) -> Value {
    route[field] = value;
    route
}

/// A request of one route, for every path, with one more field.
fn only(field: &str, value: Value) -> Value {
    routes([with(prefix("/"), field, value)])
}

/// A route for the prefix `/a` and these methods.
fn of(methods: &[&str]) -> Value {
    with(prefix("/a"), "methods", json!(methods))
}

fn replaced(route: Value, value: &str) -> Value {
    with(route, "rewrite", json!({ "type": "ReplacePrefix", "value": value }))
}

fn backends(count: usize) -> Value {
    (0..count)
        .map(|n| json!({ "service": format!("{n:02}{}", "s".repeat(61)), "port": 65_535, "weight": 1_000_000 }))
        .collect()
}

/// A route with every field as long as it may be.
pub(super) fn longest_route(path: &str) -> Value {
    let mut backends = backends(16);
    for backend in backends.as_array_mut().into_iter().flatten() {
        backend["namespace"] = json!("n".repeat(63));
    }
    json!({
        "path": { "type": "PathPrefix", "value": path },
        "methods": METHODS,
        "auth": {
            "type": "Provider",
            "providerRef": { "namespace": "n".repeat(63), "name": longest_host() },
        },
        "backends": backends,
        "rewrite": { "type": "ReplacePrefix", "value": path },
        "timeout": "00000ms00000ms00000ms00001ms",
    })
}

pub(super) fn valid_routes() -> Vec<Admitted> {
    let shop = json!({ "service": "shop", "port": 80 });
    let mut cases = vec![
        admitted("every method", only("methods", json!(METHODS))),
        admitted("an empty list of methods", only("methods", json!([]))),
        admitted("one path with and without methods", routes([prefix("/a"), of(&["GET"])])),
        admitted(
            "one path, different methods",
            routes([of(&["GET"]), of(&["POST", "PUT"]), of(&["DELETE"])]),
        ),
        admitted("one path, a route for each method", {
            let each: Vec<Value> =
                METHODS.iter().filter(|name| **name != "HEAD").map(|name| of(&[name])).collect();
            routes([each, vec![prefix("/a")]].concat())
        }),
        admitted(
            "the same methods of a prefix and an exact path",
            routes([of(&["GET"]), with(route_at("Exact", "/a"), "methods", json!(["GET"]))]),
        ),
        admitted("as many backends as there may be", only("backends", backends(16))),
        admitted(
            "a weight of 0 beside another",
            only("backends", json!([{ "service": "a", "port": 80, "weight": 0 }, shop])),
        ),
        admitted(
            "a Service by two ports and in two namespaces",
            only(
                "backends",
                json!([
                    shop,
                    { "service": "shop", "port": 81 },
                    { "service": "shop", "port": 80, "namespace": "a" },
                    { "service": "shop", "port": 80, "namespace": "b" },
                ]),
            ),
        ),
        admitted("a rewrite to the root", routes([replaced(prefix("/a"), "/")])),
        admitted("a rewrite of every path", routes([replaced(prefix("/"), "/a%20b/")])),
        admitted(
            "a rewrite of the default path type",
            json!({ "routes": [replaced(json!({ "backends": [shop] }), "/a")] }),
        ),
    ];
    for timeout in ["1ms", "500ms", "2s", "1m30s", "24h", "23h59m59s1000ms", "86400s", "0h1s"] {
        cases.push(admitted(format!("the timeout {timeout}"), only("timeout", json!(timeout))));
    }
    for auth in [
        json!({}),
        json!({ "type": "Inherit" }),
        json!({ "type": "None" }),
        json!({ "type": "Provider", "providerRef": { "name": "oauth2.proxy" } }),
        json!({ "type": "Provider", "providerRef": { "name": "a", "namespace": "auth" } }),
        json!({ "type": "Provider", "providerRef": { "name": longest_host(), "namespace": "n".repeat(63) } }),
    ] {
        cases.push(admitted(format!("the login {auth} of a route"), only("auth", auth.clone())));
        cases.push(admitted(format!("the login {auth}"), with(routes([prefix("/")]), "auth", auth)));
    }
    cases
}

pub(super) fn invalid_routes() -> Vec<Refused> {
    [invalid_methods(), invalid_weights(), invalid_rewrites(), invalid_timeouts(), invalid_auth()]
        .into_iter()
        .flatten()
        .collect()
}

fn invalid_methods() -> Vec<Refused> {
    const FIRST: &str = "spec.routes[0].methods[0]";
    let mut cases = vec![refused(
        "a method twice",
        only("methods", json!(["GET", "GET"])),
        "spec.routes[0].methods[1]",
        DUPLICATE,
    )];
    for method in ["", "get", "TRACE", "CONNECT", "*", "GET "] {
        cases.push(refused(
            format!("the method {method:?}"),
            only("methods", json!([method])),
            FIRST,
            UNSUPPORTED,
        ));
    }
    for (what, both) in [
        ("one method on both sides", [of(&["GET"]), of(&["GET"])]),
        ("a method in common", [of(&["GET", "POST"]), of(&["POST", "PUT"])]),
        ("GET before HEAD", [of(&["GET"]), of(&["HEAD"])]),
        ("HEAD before GET", [of(&["HEAD", "POST"]), of(&["GET"])]),
        ("no methods and an empty list", [prefix("/a"), of(&[])]),
        ("a method in common and a slash", [of(&["GET"]), with(prefix("/a/"), "methods", json!(["GET"]))]),
    ] {
        cases.push(refused(what, routes(both), "spec.routes", DISTINCT));
    }
    cases
}

fn invalid_weights() -> Vec<Refused> {
    const FIELD: &str = "spec.routes[0].backends";
    const WEIGHT: &str = "spec.routes[0].backends[0].weight";
    const NAMESPACE: &str = "spec.routes[0].backends[0].namespace";
    let shop = json!({ "service": "shop", "port": 80 });
    let weight = |weight: Value| only("backends", json!([with(shop.clone(), "weight", weight), shop_at(81)]));
    let namespace =
        |namespace: &str| only("backends", json!([with(shop.clone(), "namespace", json!(namespace))]));
    let there = with(shop.clone(), "namespace", json!("a"));
    let mut cases = vec![
        refused("too many backends", only("backends", backends(17)), FIELD, TOO_MANY),
        refused("a weight below 0", weight(json!(-1)), WEIGHT, "should be greater than or equal to 0"),
        refused(
            "a weight too large",
            weight(json!(1_000_001)),
            WEIGHT,
            "should be less than or equal to 1000000",
        ),
        refused("half a weight", weight(json!(0.5)), WEIGHT, "must be of type integer"),
        refused("a backend twice", only("backends", json!([shop, shop_at(81), shop])), FIELD, TWICE),
        refused(
            "a backend of another namespace twice",
            only("backends", json!([there, there])),
            FIELD,
            TWICE,
        ),
        refused(
            "a backend twice with two weights",
            only("backends", json!([shop, with(shop.clone(), "weight", json!(2))])),
            FIELD,
            TWICE,
        ),
        refused(
            "no weight",
            only(
                "backends",
                json!([with(shop.clone(), "weight", json!(0)), with(shop_at(81), "weight", json!(0))]),
            ),
            FIELD,
            NO_WEIGHT,
        ),
        refused("an empty namespace", namespace(""), NAMESPACE, EMPTY_TEXT),
        refused("a namespace of 64 characters", namespace(&"a".repeat(64)), NAMESPACE, TOO_LONG),
    ];
    for text in ["A", "a.b", "a/b", "a_b", "-a"] {
        cases.push(refused(format!("the namespace {text:?}"), namespace(text), NAMESPACE, LABEL));
    }
    cases
}

fn shop_at(port: u16) -> Value {
    json!({ "service": "shop", "port": port })
}

fn invalid_rewrites() -> Vec<Refused> {
    const VALUE: &str = "spec.routes[0].rewrite.value";
    const KIND: &str = "spec.routes[0].rewrite.type";
    let mut cases = vec![
        refused(
            "an exact path",
            routes([replaced(route_at("Exact", "/a"), "/b")]),
            "spec.routes[0]",
            NO_PREFIX,
        ),
        refused("no type of rewrite", only("rewrite", json!({ "value": "/" })), KIND, REQUIRED),
        refused("no value of rewrite", only("rewrite", json!({ "type": "ReplacePrefix" })), VALUE, REQUIRED),
        refused(
            "no such type of rewrite",
            only("rewrite", json!({ "type": "Regex", "value": "/" })),
            KIND,
            UNSUPPORTED,
        ),
    ];
    let long = format!("/{}", "a".repeat(1024));
    for (value, reason) in [
        ("", EMPTY_TEXT),
        (long.as_str(), TOO_LONG),
        ("app", SLASH),
        ("/a?b", CHARACTERS),
        ("/a\n", CHARACTERS),
        ("/a//b", RESOLVED),
        ("/a/../b", RESOLVED),
        ("/a%2fb", ENCODED),
        ("/%zz", ENCODED),
    ] {
        let spec = routes([replaced(prefix("/a"), value)]);
        cases.push(refused(format!("the rewrite {value:?}"), spec, VALUE, reason));
    }
    cases
}

fn invalid_timeouts() -> Vec<Refused> {
    const FIELD: &str = "spec.routes[0].timeout";
    let outside = ["0s", "0ms", "24h1ms", "86401s", "99999h99999h99999h99999h"];
    let long = "1".repeat(29);
    let texts = NO_DURATIONS.iter().map(|text| (*text, DURATION));
    let texts = texts.chain(outside.map(|text| (text, BOUNDS))).chain([(long.as_str(), TOO_LONG)]);
    texts
        .map(|(text, reason)| {
            refused(format!("the timeout {text:?}"), only("timeout", json!(text)), FIELD, reason)
        })
        .collect()
}

/// A login is the same type in two places; every case is tried in both.
fn invalid_auth() -> Vec<Refused> {
    /// Joins the name of a field to both places.
    macro_rules! fields {
        ($rest:literal) => {
            [concat!("spec.auth", $rest), concat!("spec.routes[0].auth", $rest)]
        };
    }
    let name = fields!(".providerRef.name");
    let namespace = fields!(".providerRef.namespace");
    let by = |provider: Value| json!({ "type": "Provider", "providerRef": provider });
    let mut values = vec![
        (json!({ "type": "Login" }), fields!(".type"), UNSUPPORTED),
        (json!({ "type": "Provider" }), fields!(""), MEMBER),
        (json!({ "type": "None", "providerRef": { "name": "a" } }), fields!(""), MEMBER),
        (json!({ "type": "Inherit", "providerRef": { "name": "a" } }), fields!(""), MEMBER),
        (json!({ "providerRef": { "name": "a" } }), fields!(""), MEMBER),
        (by(json!({})), name, REQUIRED),
        (by(json!({ "name": "" })), name, EMPTY_TEXT),
        (by(json!({ "name": format!("{}a", longest_host()) })), name, TOO_LONG),
        (by(json!({ "name": "a", "namespace": "" })), namespace, EMPTY_TEXT),
        (by(json!({ "name": "a", "namespace": "a".repeat(64) })), namespace, TOO_LONG),
        (by(json!({ "name": "a", "namespace": "a.b" })), namespace, LABEL),
    ];
    for text in ["A", "a/b", "a_b", "-a", "*"] {
        values.push((by(json!({ "name": text })), name, NAME));
        values.push((by(json!({ "name": "a", "namespace": text })), namespace, LABEL));
    }
    values
        .into_iter()
        .flat_map(|(value, [of_request, of_route], reason)| {
            let request = with(routes([prefix("/")]), "auth", value.clone());
            let both = [(of_request, request), (of_route, only("auth", value.clone()))];
            both.map(|(field, spec)| refused(format!("{field}, {value}"), spec, field, reason))
        })
        .collect()
}
