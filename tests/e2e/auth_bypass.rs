//! More than two hundred ways to ask for a protected path without a login, through a real Envoy.

use std::fmt::Write as _;

use anyhow::{Result, ensure};
use http::Request;
use testbed::harness::Test;
use testbed::raw::{self, Http2};
use testbed::{Site, portable};

use crate::auth_world::{LOGIN, World, protected, reached_web};

pub(crate) fn tests() -> Vec<Test> {
    vec![portable!(nothing_reaches_the_application_without_a_login).limit_seconds(240)]
}

/// Paths that some backend could take for one behind the login. `/secret` stands for an exact one; `{}` is where the
/// protected path is put in.
const SPELLINGS: &[&str] = &[
    "{}",
    "{}/",
    "{}//",
    "{}?",
    "{}?x=/pub",
    "{}#x",
    "{};x",
    "{};x=1/",
    "{}%20",
    "{}%20/",
    "{}%00",
    "{}%3f",
    "{}%23",
    "{}%2f",
    "{}%5c",
    "{}\\",
    "{}/.",
    "{}/..",
    "{}/./",
    "{}/../",
    "{}%2e",
    "{}/%2e",
    "{}/%2e%2e/",
    "{}%c0%af",
    "//{}",
    "/.{}",
    "/./{}",
    "/..{}",
    "/../{}",
    "/%2e{}",
    "/%2e%2e{}",
    "/%2f{}",
    "/%5c{}",
    "/;{}",
    "/;x{}",
    "/%20{}",
    "/pub/..{}",
    "/pub/../{}",
    "/pub/%2e%2e{}",
    "/pub/.%2e{}",
    "/pub/..%2f{}",
    "/pub/..%5c{}",
    "/pub/..\\{}",
    "/pub/..;{}",
    "/pub/..;x{}",
    "/pub//..{}",
    "/pub/./..{}",
    "/pub/%2e%2e%2f{}",
    "/pub/%252e%252e{}",
    "/pub/%252e%252e%252f{}",
    "/pub/..%c0%af{}",
    "/pub/..%c1%9c{}",
    "/pub%2f..{}",
    "/pub%2f%2e%2e{}",
    "/pub;/..{}",
    "/pub/x/../..{}",
    "/pub/%20/../..{}",
    "/pub/.%20./{}",
    "/health/..{}",
    "/health/../{}",
    "/health%2f..{}",
    "/health;x/..{}",
    "/health/%2e%2e{}",
    "/health?{}",
    "/health#{}",
    "/health/{}",
    "/health{}",
];

/// Other ways to write the path itself.
const PATHS: &[&str] =
    &["/secret", "/SECRET", "/Secret", "/s%65cret", "/%73ecret", "/secre%74", "/admin", "/"];

const METHODS: &[&str] =
    &["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "CONNECT", "get", "FOO"];

/// Header lines; `{h}` is the host.
const HEADERS: &[&str] = &[
    "x-ii-guard: 1\r\n",
    "x_ii_guard: 1\r\n",
    "X-Ii-Guard: \u{1}\r\n",
    "x-ii-guard: \u{1}?~\r\n",
    "x-ii-guard: ?\r\nx-ii-guard: \u{1}#\r\n",
    "x-user: admin\r\n",
    "x_user: admin\r\n",
    "X-User: admin\r\nx_user: a\r\n",
    "authorization: Bearer\r\n",
    "authorization: Bearer let-me-in2\r\n",
    "authorization: bearer let-me-in\r\n",
    "proxy-authorization: Bearer let-me-in\r\n",
    "authorization : Bearer let-me-in\r\n",
    "x-authorization: Bearer let-me-in\r\n",
    "cookie: authorization=Bearer let-me-in\r\n",
    "connection: x-ii-guard\r\nx-ii-guard: 1\r\n",
    "connection: authorization\r\nauthorization: Bearer x\r\n",
    "x-envoy-auth-headers-to-remove: x-ii-guard\r\n",
    "x-envoy-original-path: /pub\r\n",
    "x-original-url: /pub\r\n",
    "x-rewrite-url: /pub\r\n",
    "x-forwarded-host: open.example.org\r\n",
    "x-forwarded-prefix: /pub\r\n",
    "x-forwarded-uri: /pub\r\n",
    "x-http-method-override: HEAD\r\n",
    "x-envoy-internal: true\r\n",
    "x-forwarded-for: 127.0.0.1\r\nx-envoy-internal: true\r\n",
    "x-envoy-decorator-operation: ii.open.x\r\n",
    "x-envoy-upstream-alt-stat-name: ii\r\n",
    "x-envoy-retry-on: 5xx\r\n",
    "upgrade: h2c\r\nconnection: upgrade\r\n",
    "upgrade: websocket\r\nconnection: upgrade\r\n",
    "te: trailers\r\n",
    "expect: 100-continue\r\n",
    "x-request-id: ii.open.x\r\n",
    "content-length: 0\r\n",
    "transfer-encoding: chunked\r\n",
];

/// Targets and hosts, as the request line and the `Host` header say them; `{h}` is the host.
const AUTHORITIES: &[(&str, &str)] = &[
    ("/", "{h}:80"),
    ("/", "{h}:8080"),
    ("/", "{h}:443"),
    ("/", "{h}."),
    ("/", "{h}.:80"),
    ("/", "{H}"),
    ("/", "{H}:80"),
    ("http://{h}/", "{h}"),
    ("http://{h}/secret", "{h}"),
    ("http://{h}:80/secret", "other.example.org"),
    ("http://other.example.org/secret", "{h}"),
    ("https://{h}/secret", "{h}"),
    ("http://{H}/", "{h}"),
    ("http://{h}/pub/..%2fsecret", "{h}"),
    ("http://user@{h}/secret", "{h}"),
    ("*", "{h}"),
    ("{h}:80", "{h}"),
    ("//{h}/secret", "{h}"),
    ("/", "user@{h}"),
    ("/", "{h}/pub"),
    ("/", "{h}?x"),
    ("/", "{h}#x"),
    ("/", " {h}"),
];

/// One attempt.
struct Attempt {
    told: String,
    bytes: Vec<u8>,
}

fn attempts(world: &World) -> Vec<Attempt> {
    let mut list = Vec::new();
    let mut add = |method: &str, target: &str, host: &str, headers: &str| {
        let mut bytes = format!("{method} {target} HTTP/1.1\r\nhost: {host}\r\n{headers}\r\n");
        if headers.contains("chunked") {
            bytes.push_str("0\r\n\r\n");
        }
        list.push(Attempt {
            told: format!("{method} {target} host {host} {headers:?}"),
            bytes: bytes.into_bytes(),
        });
    };
    let host = &world.host;
    for spelling in SPELLINGS {
        for path in PATHS {
            add("GET", &spelling.replace("{}", path), host, "");
        }
    }
    for method in METHODS {
        for path in ["/", "/secret", "/pub/..%2fsecret"] {
            add(method, path, host, "");
        }
    }
    for headers in HEADERS {
        for path in ["/", "/secret"] {
            add("GET", path, host, headers);
        }
    }
    for (target, named) in AUTHORITIES {
        let fill = |text: &str| text.replace("{h}", host).replace("{H}", &host.to_ascii_uppercase());
        add("GET", &fill(target), &fill(named), "");
    }
    list
}

async fn nothing_reaches_the_application_without_a_login(t: Site) -> Result<()> {
    let world = protected(&t).await?;
    let attempts = attempts(&world);
    ensure!(attempts.len() >= 200, "only {} attempts", attempts.len());
    let (mut answered, mut through) = (0, String::new());
    for attempt in &attempts {
        // Some are no HTTP at all, and the connection is closed without an answer.
        let Ok(reply) = raw::once(world.address, &attempt.bytes).await else { continue };
        answered += 1;
        if reply.body.contains("\"name\":\"web\"") {
            let _ = writeln!(through, "{}: {} {}", attempt.told, reply.status, reply.body);
        }
    }
    ensure!(through.is_empty(), "let through without a login:\n{through}");
    ensure!(answered * 10 >= attempts.len() * 8, "only {answered} of {} were answered", attempts.len());

    // HTTP/2 carries what HTTP/1.1 cannot: methods of any spelling, an authority unlike the host header.
    let mut connection = Http2::open(world.address).await?;
    let mut asked = 0;
    for method in ["get", "Get", "GET", "POST", "FOO"] {
        for path in ["/", "/secret", "/SECRET", "/pub/..%2fsecret", "/secret;x", "/secret%20"] {
            for (name, value) in
                [("x-none", "1"), ("host", "other.example.org"), ("x-ii-guard", "1"), ("x_user", "a")]
            {
                let uri = format!("http://{}{path}", world.host);
                let request =
                    Request::builder().method(method).uri(uri).header(name, value).body(String::new())?;
                match connection.exchange(request).await {
                    Ok(reply) => ensure!(
                        !reply.body.contains("\"name\":\"web\""),
                        "{method} {path} {name}: {value} over HTTP/2: {reply:?}"
                    ),
                    Err(_) => connection = Http2::open(world.address).await?,
                }
                asked += 1;
            }
        }
    }
    ensure!(asked == 120);

    // Nothing of this was refused because everything is.
    ensure!(reached_web(&world.get("/secret", LOGIN).await?) && reached_web(&world.get("/", LOGIN).await?));
    for open in ["/pub", "/pub/", "/pub/a/b?c=d", "/pub/a%20b", "/pub/a+b", "/pub/%E4%BD%A0", "/health"] {
        let reply = world.get(open, "").await?;
        ensure!(reply.status == 200 && reply.body.contains("\"open\""), "{open}: {reply:?}");
    }
    world.cleaned(&t).await
}
