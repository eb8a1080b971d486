//! Specs of an `IngressRequest`.

use serde_json::{Value, json};

use super::{
    Admitted, DUPLICATE, EMPTY_TEXT, HOST, LABEL, NAME, NO_HOSTS, REQUIRED, RESOLVED, Refused, SLASH,
    TOO_LONG, TOO_MANY, UNSUPPORTED, admitted, longest_host, refused,
};

pub(super) const CHARACTERS: &str =
    "may hold only letters, digits and /._~!$&'()*+,;=:@%-, and no query or fragment";
pub(super) const ENCODED: &str =
    "each % must be followed by two hexadecimal digits, and none may encode a slash, backslash, dot or NUL";
pub(super) const DISTINCT: &str = "no two routes may have the same path, unless their methods differ; a PathPrefix /app/ is the \
                        same as /app, and GET covers HEAD";
const EMPTY_LIST: &str = "should have at least 1 items";
const INTEGER: &str = "must be of type integer";

fn route() -> Value {
    json!({ "backends": [{ "service": "shop", "port": 80 }] })
}

pub(super) fn route_at(kind: &str, path: &str) -> Value {
    json!({ "path": { "type": kind, "value": path }, "backends": [{ "service": "shop", "port": 80 }] })
}

pub(super) fn prefix(path: &str) -> Value {
    route_at("PathPrefix", path)
}

pub(super) fn routes(routes: impl Into<Vec<Value>>) -> Value {
    json!({ "routes": routes.into() })
}

fn backend(service: &str, port: u32) -> Value {
    json!({ "routes": [{ "backends": [{ "service": service, "port": port }] }] })
}

fn hosts(hosts: &[String]) -> Value {
    json!({ "routes": [route()], "hosts": hosts })
}

fn binding_ref(name: &str) -> Value {
    json!({ "routes": [route()], "bindingRef": { "name": name } })
}

pub(in super::super) fn valid_requests() -> Vec<Admitted> {
    [valid_objects(), super::routes::valid_routes()].into_iter().flatten().collect()
}

fn valid_objects() -> Vec<Admitted> {
    let longest_path = format!("/{}", "a".repeat(1023));
    let mut cases = vec![
        admitted("the least", routes([route()])),
        admitted(
            "a path without type, a type without path",
            json!({ "routes": [
                { "path": { "value": "/app" }, "backends": [{ "service": "shop", "port": 80 }] },
                { "path": { "type": "Exact" }, "backends": [{ "service": "shop", "port": 80 }] },
            ] }),
        ),
        admitted("a prefix and the same exact path", routes([prefix("/app"), route_at("Exact", "/app")])),
        admitted(
            "exact paths with and without a slash at the end",
            routes([route_at("Exact", "/app"), route_at("Exact", "/app/")]),
        ),
        admitted("several hosts and a binding", {
            json!({
                "bindingRef": { "name": "public.example" },
                "hosts": ["shop.example.com", "www.shop.example.com"],
                "routes": [prefix("/"), prefix("/app")],
            })
        }),
        admitted("the lowest port", backend("s", 1)),
        admitted("the highest port and the longest Service name", backend(&"s".repeat(63), 65_535)),
        admitted("the longest name of a binding", binding_ref(&longest_host())),
        // What a rule costs grows with all of these at once; the API server refuses what costs too much.
        admitted("as many and as long hosts, routes and backends as there may be", {
            let host = longest_host();
            let hosts: Vec<String> = (0..32).map(|n| format!("{n:03}{}", &host[3..])).collect();
            let routes: Vec<Value> = (0..64)
                .map(|n| super::routes::longest_route(&format!("/{n:03}{}", &longest_path[4..])))
                .collect();
            json!({ "hosts": hosts, "routes": routes })
        }),
    ];
    for path in [
        "/",
        "/app/",
        "/a%20b",
        "/%C3%A9",
        "/a;b=c(d)'~",
        "/.well-known/x",
        "/a..b",
        "/...",
        "/A-z_0!$&*+,:@",
        &longest_path,
    ] {
        cases.push(admitted(format!("the path {path}"), routes([prefix(path)])));
    }
    for host in ["a", "shop.example.com", "a-b.c", "xn--bcher-kva.example", "1.example", &longest_host()] {
        cases.push(admitted(format!("the host {host}"), hosts(&[host.to_owned()])));
    }
    cases
}

pub(in super::super) fn invalid_requests() -> Vec<Refused> {
    [
        invalid_routes(),
        invalid_backends(),
        invalid_paths(),
        invalid_hosts(),
        invalid_binding_refs(),
        super::routes::invalid_routes(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn invalid_routes() -> Vec<Refused> {
    let many: Vec<Value> = (0..65).map(|n| prefix(&format!("/{n}"))).collect();
    vec![
        refused("no field at all", json!({}), "spec.routes", REQUIRED),
        refused("no route", routes([]), "spec.routes", EMPTY_LIST),
        refused("too many routes", routes(many), "spec.routes", TOO_MANY),
        refused("a prefix twice", routes([prefix("/a"), prefix("/a")]), "spec.routes", DISTINCT),
        refused(
            "a prefix with and without a slash",
            routes([prefix("/a"), prefix("/a/")]),
            "spec.routes",
            DISTINCT,
        ),
        refused(
            "a slash first",
            routes([prefix("/a/"), prefix("/b"), prefix("/a")]),
            "spec.routes",
            DISTINCT,
        ),
        refused("the default path and /", routes([route(), prefix("/")]), "spec.routes", DISTINCT),
        refused("the default path twice", routes([route(), route()]), "spec.routes", DISTINCT),
        refused(
            "an exact path twice",
            routes([route_at("Exact", "/a"), prefix("/a"), route_at("Exact", "/a")]),
            "spec.routes",
            DISTINCT,
        ),
    ]
}

fn invalid_backends() -> Vec<Refused> {
    const BACKENDS: &str = "spec.routes[0].backends";
    const SERVICE: &str = "spec.routes[0].backends[0].service";
    const PORT: &str = "spec.routes[0].backends[0].port";
    let backends = |backends: Value| json!({ "routes": [{ "backends": backends }] });
    let mut cases = vec![
        refused("no backends", routes([json!({})]), BACKENDS, REQUIRED),
        refused("no backend", backends(json!([])), BACKENDS, EMPTY_LIST),
        refused("no port", backends(json!([{ "service": "shop" }])), PORT, REQUIRED),
        refused("port 0", backend("shop", 0), PORT, "should be greater than or equal to 1"),
        refused("port 65536", backend("shop", 65_536), PORT, "should be less than or equal to 65535"),
        refused("a port by name", backends(json!([{ "service": "shop", "port": "http" }])), PORT, INTEGER),
        refused("no Service", backends(json!([{ "port": 80 }])), SERVICE, REQUIRED),
        refused("an empty Service", backend("", 80), SERVICE, EMPTY_TEXT),
        refused("a Service of 64 characters", backend(&"s".repeat(64), 80), SERVICE, TOO_LONG),
    ];
    for service in ["Shop", "shop.default", "shop_a", "-shop", "shop-", "default/shop", "shop\n"] {
        cases.push(refused(format!("the Service {service:?}"), backend(service, 80), SERVICE, LABEL));
    }
    cases
}

fn invalid_paths() -> Vec<Refused> {
    const VALUE: &str = "spec.routes[0].path.value";
    let mut cases = vec![
        refused("an empty path", routes([prefix("")]), VALUE, EMPTY_TEXT),
        refused(
            "a path of 1025 characters",
            routes([prefix(&format!("/{}", "a".repeat(1024)))]),
            VALUE,
            TOO_LONG,
        ),
        refused("no such type", routes([route_at("Regex", "/a")]), "spec.routes[0].path.type", UNSUPPORTED),
        refused(
            "a type in lower case",
            routes([route_at("exact", "/a")]),
            "spec.routes[0].path.type",
            UNSUPPORTED,
        ),
    ];
    for (path, reason) in [
        ("app", SLASH),
        ("http://shop/a", SLASH),
        ("/a?b", CHARACTERS),
        ("/a#b", CHARACTERS),
        ("/a b", CHARACTERS),
        ("/a\\b", CHARACTERS),
        ("/a\nb", CHARACTERS),
        ("/a\n", CHARACTERS),
        ("/{a}", CHARACTERS),
        ("/é", CHARACTERS),
        ("//", RESOLVED),
        ("/a//b", RESOLVED),
        ("/.", RESOLVED),
        ("/./a", RESOLVED),
        ("/a/./b", RESOLVED),
        ("/..", RESOLVED),
        ("/a/..", RESOLVED),
        ("/a/../b", RESOLVED),
        ("/%", ENCODED),
        ("/%2", ENCODED),
        ("/%zz", ENCODED),
        ("/%2z", ENCODED),
        ("/%2f", ENCODED),
        ("/%2F", ENCODED),
        ("/%2e", ENCODED),
        ("/%2E%2E/a", ENCODED),
        ("/%5c", ENCODED),
        ("/%5C", ENCODED),
        ("/a%00b", ENCODED),
    ] {
        for kind in ["PathPrefix", "Exact"] {
            cases.push(refused(format!("{kind} {path:?}"), routes([route_at(kind, path)]), VALUE, reason));
        }
    }
    cases
}

fn invalid_hosts() -> Vec<Refused> {
    const FIRST: &str = "spec.hosts[0]";
    let many: Vec<String> = (0..33).map(|n| format!("h{n}.example.com")).collect();
    let mut cases = vec![
        refused("an empty host", hosts(&[String::new()]), FIRST, EMPTY_TEXT),
        refused("a label of 64 characters", hosts(&["a".repeat(64)]), FIRST, HOST),
        refused("a host of 254 characters", hosts(&[format!("{}a", longest_host())]), FIRST, TOO_LONG),
        refused("a host twice", hosts(&["a.b".to_owned(), "a.b".to_owned()]), "spec.hosts[1]", DUPLICATE),
        refused("too many hosts", hosts(&many), "spec.hosts", TOO_MANY),
        refused("the second host", hosts(&["a.b".to_owned(), "A.b".to_owned()]), "spec.hosts[1]", HOST),
    ];
    for host in NO_HOSTS.iter().chain(&["*", "*.a"]) {
        cases.push(refused(format!("the host {host:?}"), hosts(&[(*host).to_owned()]), FIRST, HOST));
    }
    cases
}

fn invalid_binding_refs() -> Vec<Refused> {
    const FIELD: &str = "spec.bindingRef.name";
    let mut cases = vec![
        refused("no binding name", json!({ "routes": [route()], "bindingRef": {} }), FIELD, REQUIRED),
        refused("an empty binding name", binding_ref(""), FIELD, EMPTY_TEXT),
        refused(
            "a binding name of 254 characters",
            binding_ref(&format!("{}a", longest_host())),
            FIELD,
            TOO_LONG,
        ),
    ];
    for name in ["Public", "a/b", "a_b", "-a", "a."] {
        cases.push(refused(format!("the binding {name:?}"), binding_ref(name), FIELD, NAME));
    }
    cases
}
