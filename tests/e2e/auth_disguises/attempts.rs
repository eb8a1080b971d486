//! What an attacker sends who has not logged in.
//!
//! The world is that of [`super`]: `/secret` and `/pub/exact` are protected as exact paths, `/admin` and `/pub/private` as
//! prefixes, `/form` for POST; everything else is open, `/` included.

use testbed::raw::frames::Field;

/// One request of an attacker.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    /// What it tries.
    pub(crate) what: String,
    /// What is sent.
    pub(crate) sent: Sent,
}

/// A request as it is sent, without the header that says which attempt it is.
#[derive(Clone, Debug)]
pub(crate) enum Sent {
    /// HTTP/1.1: all up to the last header's end, and what comes after the empty line.
    One { head: Vec<u8>, body: Vec<u8> },
    /// HTTP/2: the fields.
    Two(Vec<Field>),
}

/// What an attacker may have found out.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    /// The host of the protected routes.
    pub(crate) host: String,
    /// An open host of the same gateway.
    pub(crate) other: String,
    /// The token of the provider, with its byte 0x01.
    pub(crate) token: String,
    /// The id of the provider.
    pub(crate) provider: String,
}

/// Every attempt.
pub(crate) fn attempts(known: &Known) -> Vec<Attempt> {
    let mut all = Vec::new();
    for path in PROTECTED {
        for (what, target) in disguises(path) {
            all.push(one(known, &what, method_of(path), &target, ""));
        }
        for target in
            [path.to_owned(), format!("{path}/"), format!("{path}?a=b"), format!("{path}/../{}", last(path))]
        {
            all.push(one(known, "as it is", method_of(path), &target, ""));
        }
    }
    all.extend(absolute(known));
    all.extend(hosts(known));
    all.extend(methods(known));
    all.extend(headers(known));
    all.extend(bodies(known));
    all.extend(http2(known));
    all
}

const PROTECTED: [&str; 6] = ["/secret", "/admin", "/admin/x", "/pub/private/x", "/pub/exact", "/form"];

fn method_of(path: &str) -> &'static str {
    if path == "/form" { "POST" } else { "GET" }
}

fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// Other spellings of a path, each of which some server reads as that path.
fn disguises(path: &str) -> Vec<(String, String)> {
    let bare = &path[1..];
    let (head, tail) =
        bare.split_once('/').map_or((bare, String::new()), |(head, tail)| (head, format!("/{tail}")));
    let first = bare.as_bytes()[0];
    let after = &bare[1..];
    let mut list = vec![
        ("a second slash", format!("//{bare}")),
        ("a third slash", format!("///{bare}")),
        ("a second slash within", path.replacen('/', "//", 2)),
        ("a slash at the end", format!("{path}//")),
        ("a dot segment", format!("/./{bare}")),
        ("a dot segment at the end", format!("{path}/.")),
        ("an encoded dot segment", format!("/%2e/{bare}")),
        ("a climb", format!("/x/../{bare}")),
        ("a climb from an open prefix", format!("/pub/../{bare}")),
        ("a climb above the root", format!("/../../{bare}")),
        ("a long climb", format!("/pub/a/b/../../../{bare}")),
        ("a climb with a second slash", format!("/pub/..//{bare}")),
        ("a climb with a parameter", format!("/pub/..;/{bare}")),
        ("a climb with a named parameter", format!("/pub/..;a=b/{bare}")),
        ("an encoded climb", format!("/pub/%2e%2e/{bare}")),
        ("an encoded climb in capitals", format!("/pub/%2E%2E/{bare}")),
        ("a half encoded climb", format!("/pub/.%2e/{bare}")),
        ("a doubly encoded climb", format!("/pub/%252e%252e/{bare}")),
        ("an overlong climb", format!("/pub/%c0%ae%c0%ae/{bare}")),
        ("a climb over an encoded slash", format!("/pub/..%2f{bare}")),
        ("a climb over an encoded slash in capitals", format!("/pub/..%2F{bare}")),
        ("a climb over a doubly encoded slash", format!("/pub/..%252f{bare}")),
        ("a climb over an overlong slash", format!("/pub/..%c0%af{bare}")),
        ("a climb over a backslash", format!("/pub/..\\{bare}")),
        ("a climb over an encoded backslash", format!("/pub/..%5c{bare}")),
        ("an encoded slash in front", format!("/%2f{bare}")),
        ("a backslash in front", format!("/\\{bare}")),
        ("a backslash as the root", format!("\\{bare}")),
        ("an encoded backslash in front", format!("/%5c{bare}")),
        ("no slash in front", bare.to_owned()),
        ("backslashes", path.replace('/', "\\")),
        ("encoded slashes", format!("/{}", bare.replace('/', "%2f"))),
        ("capitals", path.to_uppercase()),
        ("a capital", format!("/{}{after}", char::from(first.to_ascii_uppercase()))),
        ("an encoded letter", format!("/%{first:02x}{after}")),
        ("an encoded capital", format!("/%{:02X}{after}", first.to_ascii_uppercase())),
        ("a doubly encoded letter", format!("/%25{first:02x}{after}")),
        ("a trebly encoded letter", format!("/%2525{first:02x}{after}")),
        ("an overlong letter", format!("/%c1%{:02x}{after}", first & 0x3f | 0x80)),
        ("a parameter", format!("{path};x")),
        ("a named parameter", format!("{path};a=b/")),
        ("a parameter of the first segment", format!("/{head};x{tail}")),
        ("an encoded parameter", format!("{path}%3bx")),
        ("an empty segment with a parameter", format!("/;/{bare}")),
        ("a segment with a parameter", format!("/x;/../{bare}")),
        ("an encoded NUL", format!("{path}%00")),
        ("an encoded NUL and more", format!("{path}%00.html")),
        ("an encoded blank", format!("{path}%20")),
        ("an encoded blank within", format!("/{head}%20{tail}/")),
        ("an encoded blank in front", format!("/%20{bare}")),
        ("an encoded tab", format!("{path}%09")),
        ("an encoded line end", format!("{path}%0a")),
        ("an encoded line end and a header", format!("{path}%0d%0ax-user:%20admin")),
        ("a raw blank", format!("{path} ")),
        ("a raw tab", format!("{path}\t")),
        ("a raw NUL", format!("{path}\0")),
        ("a raw carriage return", format!("{path}\r")),
        ("a raw byte above ASCII", format!("{path}\u{a0}")),
        ("an encoded question mark", format!("{path}%3f")),
        ("a fragment", format!("{path}#")),
        ("an open fragment", format!("{path}#/../health")),
        ("an encoded fragment", format!("{path}%23")),
        ("an open path in the query", format!("{path}?/../health")),
        ("a wrong encoding", format!("/%zz/../{bare}")),
        ("a cut off encoding", format!("{path}%")),
        ("an encoded percent", format!("{path}%25")),
        ("a climb with a blank", format!("/pub/.%20./{bare}")),
        ("a climb over a blank", format!("/pub/%20/../../{bare}")),
        ("a climb out of an open path", format!("/health/../{bare}")),
        ("a climb over an encoded slash of an open path", format!("/health%2f..{path}")),
        ("a climb with a parameter of an open path", format!("/health;x/..{path}")),
        ("a climb over an overlong backslash", format!("/pub/..%c1%9c{bare}")),
        ("an encoded slash at the end", format!("{path}%2f")),
        ("an encoded backslash at the end", format!("{path}%5c")),
        ("a query in front", format!("/health?/../{bare}")),
        ("the server's name in front", format!("//app/{bare}")),
    ];
    // What changes nothing is an honest request, and is made elsewhere.
    list.retain(|(_, target)| target != path);
    list.into_iter().map(|(what, target)| (format!("{path}: {what}"), target)).collect()
}

fn absolute(known: &Known) -> Vec<Attempt> {
    let (host, other) = (&known.host, &known.other);
    let targets = [
        format!("http://{host}/secret"),
        format!("HTTP://{host}/secret"),
        format!("https://{host}/secret"),
        format!("ftp://{host}/secret"),
        format!("http://{host}:80/admin/x"),
        format!("http://{}/secret", host.to_uppercase()),
        format!("http://user:word@{host}/secret"),
        format!("http://{host}//secret"),
        format!("http://{host}/pub/../secret"),
        format!("http://{other}/../{host}/secret"),
        "http:///secret".to_owned(),
        "http:/secret".to_owned(),
        format!("//{host}/secret"),
        format!("http://{host}?/secret"),
        format!("http://{host}/?/../secret"),
        format!("http://{host}\\secret"),
    ];
    let mut all = Vec::new();
    for target in &targets {
        all.push(one(known, "an absolute target", "GET", target, ""));
        // The Host header says otherwise.
        all.push(raw(
            "an absolute target and another host",
            &format!("GET {target} HTTP/1.1\r\nhost: {other}\r\n"),
        ));
    }
    for target in ["/secret", "/admin/x"] {
        let head = format!("GET http://{other}{target} HTTP/1.1\r\nhost: {host}\r\n");
        all.push(raw("an absolute target of another host", &head));
    }
    all
}

fn hosts(known: &Known) -> Vec<Attempt> {
    let (host, other) = (&known.host, &known.other);
    let spelt = [
        format!("{host}:80"),
        format!("{host}:8080"),
        format!("{host}:443"),
        format!("{host}:0"),
        format!("{host}:99999"),
        format!("{host}:"),
        format!("{host}:80:80"),
        host.to_uppercase(),
        format!("{host}."),
        format!("{host}.:80"),
        format!("{host}.."),
        format!(" {host}\t"),
        format!("{host},{other}"),
        format!("{other},{host}"),
        format!("{host} {other}"),
        format!("user@{host}"),
        format!("{host}@{other}"),
        format!("{host}/"),
        format!("{host}/health?"),
        format!("{host}#"),
        format!("{host}\\{other}"),
        format!("{host}%00"),
        format!("{host}\u{a0}"),
        format!("[{host}]"),
        format!(".{host}"),
        "*".to_owned(),
        String::new(),
    ];
    let mut all = Vec::new();
    for text in &spelt {
        for path in ["/secret", "/admin/x"] {
            let head = format!("GET {path} HTTP/1.1\r\nhost: {text}\r\n");
            all.push(raw(&format!("the host {text:?}"), &head));
        }
    }
    for head in [
        "GET /secret HTTP/1.1\r\n".to_owned(),
        format!("GET /secret HTTP/1.1\r\nhost: {host}\r\nhost: {other}\r\n"),
        format!("GET /secret HTTP/1.1\r\nhost: {other}\r\nhost: {host}\r\n"),
        format!("GET /secret HTTP/1.1\r\nhost: {host}\r\nhost: {host}\r\n"),
        format!("GET /secret HTTP/1.1\r\nhost : {host}\r\n"),
        format!("GET /secret HTTP/1.1\r\n host: {host}\r\n"),
        format!("GET /secret HTTP/1.1\r\nhost: {other}\r\n {host}\r\n"),
        format!("GET /secret HTTP/1.1\r\nhost: {other}\r\nx-forwarded-host: {host}\r\n"),
        format!("GET /secret HTTP/1.0\r\nhost: {host}\r\n"),
        "GET /secret HTTP/1.0\r\n".to_owned(),
        format!("GET /secret HTTP/0.9\r\nhost: {host}\r\n"),
        format!("GET /secret HTTP/1.2\r\nhost: {host}\r\n"),
        format!("GET /secret HTTP/2.0\r\nhost: {host}\r\n"),
        format!("GET  /secret HTTP/1.1\r\nhost: {host}\r\n"),
        format!("GET\t/secret\tHTTP/1.1\r\nhost: {host}\r\n"),
        format!(" GET /secret HTTP/1.1\r\nhost: {host}\r\n"),
        format!("\r\nGET /secret HTTP/1.1\r\nhost: {host}\r\n"),
        format!("GET /secret\r\nhost: {host}\r\n"),
    ] {
        all.push(raw("a strange head", &head));
    }
    all
}

fn methods(known: &Known) -> Vec<Attempt> {
    let mut all = Vec::new();
    let names = [
        "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "PURGE",
        "QUERY", "get", "Get", "GETT", "G", "!", "X-GET", "PRI",
    ];
    for name in names {
        for path in ["/secret", "/admin/x"] {
            all.push(one(known, "a method", name, path, ""));
        }
    }
    for name in ["post", "Post", "pOST", "POST\t", "POST,GET"] {
        all.push(one(known, "a spelling of POST", name, "/form", ""));
    }
    all.push(one(known, "OPTIONS for the server", "OPTIONS", "*", ""));
    let preflight = "origin: http://a.example\r\naccess-control-request-method: GET\r\n";
    all.push(one(known, "a preflight", "OPTIONS", "/secret", preflight));
    all.push(raw(
        "CONNECT with a host",
        &format!("CONNECT {}:80 HTTP/1.1\r\nhost: {}\r\n", known.host, known.host),
    ));
    all
}

/// The spellings of a name that some server takes for that name.
fn spellings(name: &str) -> Vec<String> {
    let mixed = name.replacen('-', "_", 1);
    vec![
        name.to_owned(),
        name.to_uppercase(),
        name.replace('-', "_"),
        name.replace('-', "_").to_uppercase(),
        mixed,
    ]
}

fn headers(known: &Known) -> Vec<Attempt> {
    let (token, id) = (&known.token, &known.provider);
    let bare = token.trim_start_matches('\u{1}');
    let values = [
        String::new(),
        "x".to_owned(),
        bare.to_owned(),
        token.clone(),
        format!("\u{1}?{id}"),
        "\u{1}?~".to_owned(),
        "\u{1}?!".to_owned(),
        "\u{1}#".to_owned(),
        format!("%01{bare}"),
        format!("\\1{bare}"),
        format!("\t{bare}"),
    ];
    let mut all = Vec::new();
    for value in &values {
        for name in spellings("x-ii-guard") {
            for path in ["/secret", "/admin/x"] {
                all.push(one(known, "a guard header", "GET", path, &format!("{name}: {value}\r\n")));
            }
        }
    }
    let twice = format!("x-ii-guard: {bare}\r\nx_ii_guard: {bare}\r\nX-II-Guard: {token}\r\n");
    let more = [
        twice,
        format!("x-ii-guard: a\r\n {token}\r\n"),
        "x-user: admin\r\n".to_owned(),
        "x_user: admin\r\nx-user: admin\r\n".to_owned(),
        "connection: x-ii-guard\r\n".to_owned(),
        "connection: close, x-ii-guard, x-user\r\nx-user: admin\r\n".to_owned(),
        "connection: authorization, cookie\r\n".to_owned(),
        "connection: host\r\n".to_owned(),
        "connection: keep-alive, :path\r\n".to_owned(),
        "proxy-connection: x-ii-guard\r\n".to_owned(),
        "keep-alive: timeout=5\r\n".to_owned(),
        "upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
            .to_owned(),
        "upgrade: h2c\r\nconnection: upgrade, http2-settings\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n".to_owned(),
        "x-envoy-auth-headers-to-remove: x-ii-guard\r\n".to_owned(),
        "x-envoy-original-path: /health\r\n".to_owned(),
        "x-original-url: /health\r\nx-rewrite-url: /health\r\n".to_owned(),
        "x-envoy-internal: true\r\nx-forwarded-for: 127.0.0.1\r\n".to_owned(),
        "x-forwarded-proto: https\r\n".to_owned(),
        "x-envoy-decorator-operation: x\r\nx-envoy-attempt-count: 1\r\n".to_owned(),
        "x-envoy-retry-on: 5xx,retriable-4xx\r\nx-envoy-retriable-status-codes: 401,503\r\nx-envoy-max-retries: 3\r\n".to_owned(),
        "x-envoy-upstream-rq-timeout-ms: 1\r\n".to_owned(),
        "x-envoy-hedge-on-per-try-timeout: true\r\n".to_owned(),
        "x-http-method-override: OPTIONS\r\n".to_owned(),
        ":path: /health\r\n".to_owned(),
        ":method: OPTIONS\r\n:authority: health\r\n".to_owned(),
        ":status: 200\r\n".to_owned(),
        "status: 200\r\n".to_owned(),
        "authorization: Bearer wrong\r\n".to_owned(),
        "authorization: Bearer wrong\r\nauthorization: Basic bGV0LW1lLWlu\r\n".to_owned(),
        "authorization: bearer let-me-in\r\n".to_owned(),
        "Authorization : Bearer let-me-in\r\n".to_owned(),
        "proxy-authorization: Bearer let-me-in\r\n".to_owned(),
        "cookie: session=\r\n".to_owned(),
        "cookie: session\r\ncookie: other=session=a\r\n".to_owned(),
        "accept: text/html\r\n".to_owned(),
        "expect: 100-continue\r\ncontent-length: 0\r\n".to_owned(),
        "te: trailers\r\n".to_owned(),
        "range: bytes=0-1\r\nif-none-match: *\r\n".to_owned(),
        format!("x-long: {}\r\n", "y".repeat(50_000)),
        many(90),
        many(200),
        "no colon\r\n".to_owned(),
        ": no name\r\n".to_owned(),
        "x-nul: a\0b\r\n".to_owned(),
        "x-return: a\rb\r\n".to_owned(),
        "x-line: a\nx-user: admin\r\n".to_owned(),
    ];
    for lines in &more {
        for path in ["/secret", "/admin/x", "/pub/private/x"] {
            all.push(one(known, "headers", "GET", path, lines));
        }
    }
    all
}

/// So many headers.
fn many(number: usize) -> String {
    let lines: Vec<String> = (0..number).map(|number| format!("x-many-{number}: y\r\n")).collect();
    lines.concat()
}

/// What hides a second request in the body of an open one, and bodies for a protected one.
fn bodies(known: &Known) -> Vec<Attempt> {
    let host = &known.host;
    let hidden = format!("GET /secret HTTP/1.1\r\nhost: {host}\r\nx-hidden: 1\r\n\r\n");
    let length = hidden.len();
    let chunked = "transfer-encoding: chunked\r\n";
    let list = [
        ("/health", "content-length: 0\r\n".to_owned(), hidden.clone()),
        ("/health", format!("content-length: {length}\r\n{chunked}"), format!("0\r\n\r\n{hidden}")),
        ("/health", format!("{chunked}content-length: {length}\r\n"), format!("0\r\n\r\n{hidden}")),
        ("/health", "transfer-encoding: chunked, identity\r\n".to_owned(), format!("0\r\n\r\n{hidden}")),
        ("/health", "transfer-encoding: xchunked\r\n".to_owned(), format!("0\r\n\r\n{hidden}")),
        ("/health", "transfer-encoding : chunked\r\n".to_owned(), format!("0\r\n\r\n{hidden}")),
        ("/health", format!("content-length: 0\r\ncontent-length: {length}\r\n"), hidden.clone()),
        ("/health", format!("content-length: +{length}\r\n"), hidden.clone()),
        ("/health", chunked.to_owned(), format!("{length:x};\r\n{hidden}\r\n0\r\n\r\n")),
        (
            "/health",
            format!("{chunked}trailer: x-ii-guard\r\n"),
            "0\r\nx-ii-guard: \u{1}\r\nx-user: admin\r\n\r\n".to_owned(),
        ),
        ("/secret", chunked.to_owned(), "5\r\nhello\r\n0\r\n\r\n".to_owned()),
        ("/secret", format!("{chunked}expect: 100-continue\r\n"), "5\r\nhello\r\n0\r\n\r\n".to_owned()),
        (
            "/admin/x",
            format!("{chunked}trailer: x-ii-guard\r\n"),
            "0\r\nx-ii-guard: \u{1}\r\nx-user: admin\r\n\r\n".to_owned(),
        ),
        ("/admin/x", "content-length: 5\r\n".to_owned(), "hello".to_owned()),
    ];
    let made = list.into_iter().map(|(path, lines, body)| {
        let head = format!("POST {path} HTTP/1.1\r\nhost: {host}\r\n{lines}");
        Attempt {
            what: format!("a body: {lines:?}"),
            sent: Sent::One { head: head.into_bytes(), body: body.into_bytes() },
        }
    });
    made.collect()
}

fn http2(known: &Known) -> Vec<Attempt> {
    let (host, other, token) = (known.host.as_str(), known.other.as_str(), known.token.as_str());
    let base = |path: &'static str| {
        vec![(":method", "GET"), (":scheme", "http"), (":authority", host), (":path", path)]
    };
    let with = |path: &'static str, more: &[(&'static str, &str)]| {
        let mut fields: Vec<Field> = base(path).iter().map(|(name, value)| field(name, value)).collect();
        fields.extend(more.iter().map(|(name, value)| field(name, value)));
        fields
    };
    let only =
        |fields: &[(&str, &str)]| fields.iter().map(|(name, value)| field(name, value)).collect::<Vec<_>>();
    let mut all = vec![
        with("/secret", &[("x-ii-guard", token)]),
        with("/secret", &[("x-ii-guard", token.trim_start_matches('\u{1}'))]),
        with("/secret", &[("x_ii_guard", token.trim_start_matches('\u{1}'))]),
        with("/secret", &[("X-II-Guard", token)]),
        with("/secret", &[("x-ii-guard", "\u{1}?~"), ("x-ii-guard", "\u{1}#")]),
        with("/secret", &[(":path", "/health")]),
        with("/health", &[(":path", "/secret")]),
        with("/secret", &[(":authority", other)]),
        with("/secret", &[("host", other)]),
        with("/secret", &[("host", host)]),
        with("/secret", &[("x-user", "admin"), ("X-User", "admin"), ("x_user", "admin")]),
        with("/secret", &[("connection", "x-ii-guard")]),
        with("/secret", &[("connection", "close"), ("upgrade", "websocket")]),
        with("/secret", &[("te", "trailers")]),
        with("/secret", &[("transfer-encoding", "chunked")]),
        with("/secret", &[("content-length", "5")]),
        with("/secret", &[(":status", "200")]),
        with("/secret", &[(":protocol", "websocket")]),
        with("/secret", &[("", "nameless")]),
        with("/secret", &[("x-line", "a\r\nx-user: admin")]),
        with("/secret", &[("cookie", "a=b"), ("cookie", "session=")]),
        with("*", &[]),
        with("", &[]),
        only(&[
            (":method", "GET"),
            (":scheme", "http"),
            (":authority", other),
            (":path", "/secret"),
            ("host", host),
        ]),
        only(&[(":method", "GET"), (":scheme", "http"), (":path", "/secret"), ("host", host)]),
        only(&[(":method", "GET"), (":scheme", "https"), (":authority", host), (":path", "/secret")]),
        only(&[(":method", "GET"), (":scheme", "ftp"), (":authority", host), (":path", "/secret")]),
        only(&[(":method", "GET"), (":authority", host), (":path", "/secret")]),
        only(&[(":scheme", "http"), (":authority", host), (":path", "/secret")]),
        only(&[(":path", "/secret"), (":authority", host), (":scheme", "http"), (":method", "GET")]),
        only(&[
            ("x-first", "1"),
            (":method", "GET"),
            (":scheme", "http"),
            (":authority", host),
            (":path", "/secret"),
        ]),
        only(&[(":method", "CONNECT"), (":authority", host)]),
        only(&[
            (":method", "CONNECT"),
            (":protocol", "websocket"),
            (":scheme", "http"),
            (":authority", host),
            (":path", "/secret"),
        ]),
    ];
    for method in ["HEAD", "POST", "OPTIONS", "TRACE", "get", "Get", "GET ", ""] {
        all.push(only(&[
            (":method", method),
            (":scheme", "http"),
            (":authority", host),
            (":path", "/admin/x"),
        ]));
    }
    for method in ["POST", "post", "pOsT"] {
        all.push(only(&[(":method", method), (":scheme", "http"), (":authority", host), (":path", "/form")]));
    }
    let capitals = host.to_uppercase();
    for authority in
        [capitals.as_str(), &format!("{host}:80"), &format!("{host}."), &format!("user@{host}"), ""]
    {
        all.push(only(&[
            (":method", "GET"),
            (":scheme", "http"),
            (":authority", authority),
            (":path", "/secret"),
        ]));
    }
    let absolute = format!("http://{host}/secret");
    all.push(only(&[(":method", "GET"), (":scheme", "http"), (":authority", host), (":path", &absolute)]));
    let numbered = |sent| Attempt { what: "HTTP/2 fields".to_owned(), sent: Sent::Two(sent) };
    let mut all: Vec<Attempt> = all.into_iter().map(numbered).collect();
    for path in PROTECTED {
        for (what, target) in disguises(path) {
            let method = method_of(path);
            let fields =
                only(&[(":method", method), (":scheme", "http"), (":authority", host), (":path", &target)]);
            all.push(Attempt { what: format!("HTTP/2: {what}"), sent: Sent::Two(fields) });
        }
    }
    all
}

fn field(name: &str, value: &str) -> Field {
    (bytes(name), bytes(value))
}

/// One byte a character, so that a text can hold any byte.
fn bytes(text: &str) -> Vec<u8> {
    text.chars().map(|c| u8::try_from(u32::from(c)).unwrap_or(b'?')).collect()
}

fn one(known: &Known, what: &str, method: &str, target: &str, lines: &str) -> Attempt {
    raw(what, &format!("{method} {target} HTTP/1.1\r\nhost: {}\r\n{lines}", known.host))
}

fn raw(what: &str, head: &str) -> Attempt {
    Attempt {
        what: format!("{what}: {:?}", shortened(head)),
        sent: Sent::One { head: bytes(head), body: Vec::new() },
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(200).collect()
}
