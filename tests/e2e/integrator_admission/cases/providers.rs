//! Specs of an `AuthProvider`.

use serde_json::{Value, json};

use super::{
    Admitted, DUPLICATE, DURATION, EMPTY_TEXT, LABEL, NO_DURATIONS, REQUIRED, RESOLVED, Refused, SLASH,
    TOO_LONG, TOO_MANY, UNSUPPORTED, admitted, refused,
};

const MEMBER: &str = "extAuthz must be set when type is ExtAuthz, and only then";
const BOUNDS: &str = "must be from 1ms to 60s";
const HEADER: &str = "must be the name of a header in lower case: letters, digits and inner dashes";
const CONNECTION: &str = "must not be a header of the connection itself, such as host or upgrade: remove it";
const OWN: &str = "must not begin with x-ii-: such headers are the guard chain's own";
const BEGIN: &str = "must begin with x-, such as x-user";
const DASHES: &str = "must hold at most 4 dashes: every spelling with underscores is removed too";
const RESERVED: &str =
    "must not be a header that Envoy, Istio or backends act on by themselves: choose another, such as x-user";
const COMMON: &str = "identityHeaders and requestHeaders must have no header in common: what clients send under the \
                      name of an identity header is removed";
const CHARACTERS: &str = "may hold only letters, digits and /._~-";
const ROOT: &str = "must not be /, which would be every path";
const END: &str = "must not end in a slash, since the path that follows begins with one";

const EXT_AUTHZ: &str = "spec.extAuthz";

/// The headers of a connection.
const OF_CONNECTION: [&str; 6] =
    ["host", "connection", "transfer-encoding", "content-length", "te", "upgrade"];

/// Texts that no header is called.
const NO_HEADERS: [&str; 9] =
    ["X-User", "x_user", "x user", "-x", "x-", ":path", "x-user\n", "x-\u{e9}", "x-user:"];

/// A provider with this field of `extAuthz` beside those it must have.
fn with(field: &str, value: impl Into<Value>) -> Value {
    let mut check = json!({ "service": "oauth2-proxy", "port": 4180 });
    check[field] = value.into();
    json!({ "type": "ExtAuthz", "extAuthz": check })
}

fn headers(count: usize, length: usize) -> Vec<String> {
    (0..count).map(|n| format!("x-{n:02}{}", "h".repeat(length - 4))).collect()
}

pub(in super::super) fn valid_providers() -> Vec<Admitted> {
    let long_path = format!("/{}", "p".repeat(127));
    let mut cases = vec![
        admitted("the least", with("port", 1)),
        admitted(
            "every field",
            json!({ "type": "ExtAuthz", "extAuthz": {
                "protocol": "HTTP",
                "service": "oauth2-proxy",
                "port": 65_535,
                "timeout": "1s500ms",
                "requestHeaders": ["cookie", "x-forwarded-proto"],
                "identityHeaders": ["x-auth-request-user", "x-auth-request-email"],
                "pathPrefix": "/check",
                "ownPaths": ["/ping", "/oauth2/"],
            } }),
        ),
        // What a rule costs grows with all of these at once; the API server refuses what costs too much.
        admitted("as many and as long fields as there may be", {
            let paths: Vec<String> = (0..16).map(|n| format!("/{n:02}{}", &long_path[3..])).collect();
            let request: Vec<String> = (0..32).map(|n| format!("y-{n:02}{}", "h".repeat(60))).collect();
            json!({ "type": "ExtAuthz", "extAuthz": {
                "service": "s".repeat(63),
                "port": 65_535,
                "timeout": "00000ms00000ms00000ms00001ms",
                "requestHeaders": request,
                "identityHeaders": headers(16, 64),
                "pathPrefix": long_path,
                "ownPaths": paths,
            } })
        }),
        admitted("no headers at all", with("requestHeaders", json!([]))),
        admitted("empty lists", {
            json!({ "type": "ExtAuthz", "extAuthz": {
                "service": "a", "port": 1, "requestHeaders": [], "identityHeaders": [], "pathPrefix": "", "ownPaths": [],
            } })
        }),
    ];
    for timeout in ["1ms", "2s", "60s", "1m", "59s1000ms"] {
        cases.push(admitted(format!("the timeout {timeout}"), with("timeout", timeout)));
    }
    for header in ["cookie", "a", "x-forwarded-for", "x-request-id", "sec-fetch-mode"] {
        cases.push(admitted(format!("the request header {header}"), with("requestHeaders", json!([header]))));
    }
    for header in ["x-user", "x-auth-request-user-id", "x-a-b-c-d", "x-forwardeduser", "x-iiuser"] {
        cases.push(admitted(
            format!("the identity header {header}"),
            with("identityHeaders", json!([header])),
        ));
    }
    for path in ["/ping", "/oauth2/", "/a/b.c", "/...", "/A_~-z", &long_path] {
        cases.push(admitted(format!("the own path {path}"), with("ownPaths", json!([path]))));
    }
    for prefix in ["/check", "/a/b.c", &long_path] {
        cases.push(admitted(format!("the path prefix {prefix}"), with("pathPrefix", prefix)));
    }
    cases
}

pub(in super::super) fn invalid_providers() -> Vec<Refused> {
    [
        invalid_services(),
        invalid_timeouts(),
        invalid_headers(),
        invalid_identities(),
        invalid_prefixes(),
        invalid_own_paths(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn invalid_services() -> Vec<Refused> {
    const SERVICE: &str = "spec.extAuthz.service";
    const PORT: &str = "spec.extAuthz.port";
    let of = |check: Value| json!({ "type": "ExtAuthz", "extAuthz": check });
    let check = json!({ "service": "a", "port": 1 });
    let mut cases = vec![
        refused("no type", json!({ "extAuthz": check }), "spec.type", REQUIRED),
        refused("no such type", json!({ "type": "OIDC", "extAuthz": check }), "spec.type", UNSUPPORTED),
        refused("a type and no service", json!({ "type": "ExtAuthz" }), "spec", MEMBER),
        refused("no such protocol", with("protocol", "GRPC"), "spec.extAuthz.protocol", UNSUPPORTED),
        refused("no service", of(json!({ "port": 1 })), SERVICE, REQUIRED),
        refused("an empty service", with("service", ""), SERVICE, EMPTY_TEXT),
        refused("a service of 64 characters", with("service", "s".repeat(64)), SERVICE, TOO_LONG),
        refused("no port", of(json!({ "service": "a" })), PORT, REQUIRED),
        refused("port 0", with("port", 0), PORT, "should be greater than or equal to 1"),
        refused("port 65536", with("port", 65_536), PORT, "should be less than or equal to 65535"),
        refused("a port by name", with("port", "http"), PORT, "must be of type integer"),
    ];
    for service in ["Auth", "auth.default", "auth_a", "-auth", "default/auth", "auth\n"] {
        cases.push(refused(format!("the service {service:?}"), with("service", service), SERVICE, LABEL));
    }
    cases
}

fn invalid_timeouts() -> Vec<Refused> {
    const FIELD: &str = "spec.extAuthz.timeout";
    let texts = NO_DURATIONS.iter().map(|text| (*text, DURATION));
    texts
        .chain(["0s", "0ms", "60s1ms", "61s", "2m", "1h", "99999h"].map(|text| (text, BOUNDS)))
        .map(|(text, reason)| refused(format!("the timeout {text:?}"), with("timeout", text), FIELD, reason))
        .collect()
}

/// What every header must obey, whichever way it goes.
fn invalid_headers() -> Vec<Refused> {
    const REQUEST: [&str; 3] = [
        "spec.extAuthz.requestHeaders",
        "spec.extAuthz.requestHeaders[0]",
        "spec.extAuthz.requestHeaders[1]",
    ];
    const IDENTITY: [&str; 3] = [
        "spec.extAuthz.identityHeaders",
        "spec.extAuthz.identityHeaders[0]",
        "spec.extAuthz.identityHeaders[1]",
    ];
    let mut cases = Vec::new();
    for (field, most, [list, first, second]) in
        [("requestHeaders", 32, REQUEST), ("identityHeaders", 16, IDENTITY)]
    {
        let one = |header: &str| with(field, json!([header]));
        cases.push(refused(format!("too many {field}"), with(field, headers(most + 1, 6)), list, TOO_MANY));
        cases.push(refused(format!("{field} twice"), with(field, json!(["x-a", "x-a"])), second, DUPLICATE));
        cases.push(refused(format!("an empty name in {field}"), one(""), first, EMPTY_TEXT));
        cases.push(refused(
            format!("65 characters in {field}"),
            one(&format!("x-{}", "h".repeat(63))),
            first,
            TOO_LONG,
        ));
        cases.push(refused(
            format!("the second of {field}"),
            with(field, json!(["x-a", "x-B"])),
            second,
            HEADER,
        ));
        for name in NO_HEADERS {
            cases.push(refused(format!("{name:?} in {field}"), one(name), first, HEADER));
        }
        for name in OF_CONNECTION {
            cases.push(refused(format!("{name} in {field}"), one(name), first, CONNECTION));
        }
        for name in ["x-ii-guard", "x-ii-a"] {
            cases.push(refused(format!("{name} in {field}"), one(name), first, OWN));
        }
    }
    cases
}

fn invalid_identities() -> Vec<Refused> {
    const FIRST: &str = "spec.extAuthz.identityHeaders[0]";
    let both = |request: &[&str], identity: &[&str]| {
        let mut spec = with("requestHeaders", json!(request));
        spec["extAuthz"]["identityHeaders"] = json!(identity);
        spec
    };
    let mut cases = vec![
        refused("a header both ways", both(&["cookie", "x-a"], &["x-b", "x-a"]), EXT_AUTHZ, COMMON),
        refused("five dashes", with("identityHeaders", json!(["x-a-b-c-d-e"])), FIRST, DASHES),
        refused("five dashes in a row", with("identityHeaders", json!(["x-----a"])), FIRST, DASHES),
    ];
    for name in ["user", "authorization", "remote-user", "xuser"] {
        cases.push(refused(
            format!("the header {name}"),
            with("identityHeaders", json!([name])),
            FIRST,
            BEGIN,
        ));
    }
    for name in [
        "x-request-id",
        "x-client-trace-id",
        "x-real-ip",
        "x-original-url",
        "x-rewrite-url",
        "x-forwarded-user",
        "x-forwarded-for",
        "x-envoy-original-path",
        "x-b3-traceid",
        "x-istio-a",
        "x-ot-span-context",
    ] {
        cases.push(refused(
            format!("the header {name}"),
            with("identityHeaders", json!([name])),
            FIRST,
            RESERVED,
        ));
    }
    cases
}

fn invalid_prefixes() -> Vec<Refused> {
    let long = format!("/{}", "p".repeat(128));
    [
        (long.as_str(), TOO_LONG),
        ("check", SLASH),
        ("http://a", SLASH),
        ("/a?b", CHARACTERS),
        ("/a;b", CHARACTERS),
        ("/a%41", CHARACTERS),
        ("/a\n", CHARACTERS),
        ("/a//b", RESOLVED),
        ("/a/../b", RESOLVED),
        ("/.", RESOLVED),
        ("/", END),
        ("/check/", END),
    ]
    .into_iter()
    .map(|(text, reason)| {
        refused(format!("the prefix {text:?}"), with("pathPrefix", text), "spec.extAuthz.pathPrefix", reason)
    })
    .collect()
}

fn invalid_own_paths() -> Vec<Refused> {
    const FIELD: &str = "spec.extAuthz.ownPaths";
    const FIRST: &str = "spec.extAuthz.ownPaths[0]";
    const SECOND: &str = "spec.extAuthz.ownPaths[1]";
    let long = format!("/{}", "p".repeat(128));
    let many: Vec<String> = (0..17).map(|n| format!("/{n}")).collect();
    let mut cases = vec![
        refused("too many own paths", with("ownPaths", many), FIELD, TOO_MANY),
        refused("an own path twice", with("ownPaths", json!(["/a", "/a"])), SECOND, DUPLICATE),
        refused("the second own path", with("ownPaths", json!(["/a", "b"])), SECOND, SLASH),
    ];
    for (text, reason) in [
        ("", EMPTY_TEXT),
        (long.as_str(), TOO_LONG),
        ("ping", SLASH),
        ("/a?b", CHARACTERS),
        ("/a;b", CHARACTERS),
        ("/%41", CHARACTERS),
        ("/a\n", CHARACTERS),
        ("//", RESOLVED),
        ("/a//b", RESOLVED),
        ("/a/../b", RESOLVED),
        ("/", ROOT),
    ] {
        cases.push(refused(format!("the own path {text:?}"), with("ownPaths", json!([text])), FIRST, reason));
    }
    cases
}
