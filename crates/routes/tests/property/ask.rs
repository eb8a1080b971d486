//! What clients ask, honest ones and others.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use routes::eval::{Entry, Request};

use crate::world::{GATEWAYS, World};

/// A request, and the host by which it is routed.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub request: Request,
    /// In lower case and without port.
    pub host: String,
}

/// What of a request is drawn before it is known which hosts and paths there are.
#[derive(Clone, Debug)]
pub(crate) struct Draw {
    host: Index,
    host_spelling: &'static str,
    path: Index,
    head: &'static str,
    tail: &'static str,
    upper: bool,
    encode: bool,
    method: &'static str,
    header: Option<(&'static str, &'static str)>,
}

/// Some requests.
pub(crate) fn draws() -> impl Strategy<Value = Vec<Draw>> {
    vec(draw(), 24)
}

fn draw() -> impl Strategy<Value = Draw> {
    let host_spelling = prop_oneof![
        9 => Just("{}"),
        1 => select(vec!["{}:80", "{}:8443", "{}.", "{}.:80", "UPPER", "www.{}"]),
    ];
    let tails = vec![
        "?q=/admin",
        "x",
        "//",
        "//x",
        "/.",
        "/..",
        "/../admin",
        "/./x",
        "%2f",
        "%2Fx",
        "%5cx",
        "\\x",
        ";x",
        ";x/y",
        "/;/x",
        "%20",
        "%20/x",
        "%2e",
        "/%2e%2e/admin",
        "/..%2fadmin",
        "/..;/admin",
        "/.;x/y",
        "%3f",
        "%25",
        "%2561",
        "%c0%af",
        "#f",
        "/oauth2/x",
        "/oauth2",
        "/ping",
        "/x/../oauth2/x",
        "/oauth2//x",
        "/%6fauth2/x",
        "/OAUTH2/x",
        "/login",
        "/a%252fb",
    ];
    let pages = vec!["/oauth2/x", "/oauth2", "/ping", "/login"];
    let tail = prop_oneof![6 => select(vec!["", "/", "/x", "/v2/x"]), 4 => select(tails), 1 => select(pages)];
    let heads = vec!["/", "/x/..", "/.", "/%2e", "/app", "/admin/..;", "//"];
    let head = prop_oneof![6 => Just(""), 1 => select(heads)];
    let method = select(vec!["GET", "GET", "GET", "HEAD", "POST", "DELETE", "OPTIONS", "get", "FOO"]);
    let names = select(vec!["x-ii-guard", "X-II-Guard", "x_ii_guard"]);
    let header = (names, select(vec!["", "x", "\u{1}?~", "\u{1}token"]));
    let header = prop_oneof![6 => Just(None), 1 => header.prop_map(Some)];
    let rarely = || prop::bool::weighted(0.1);
    let place = (any::<Index>(), host_spelling, any::<Index>(), head, tail);
    (place, rarely(), rarely(), method, header).prop_map(
        |((host, host_spelling, path, head, tail), upper, encode, method, header)| Draw {
            host,
            host_spelling,
            path,
            head,
            tail,
            upper,
            encode,
            method,
            header,
        },
    )
}

impl Draw {
    /// A request for a host and a path that these worlds have, or something close to one.
    pub(crate) fn ask(&self, worlds: &[&World]) -> Ask {
        let mut hosts = vec!["no.org".to_owned()];
        let mut paths = vec!["/".to_owned(), "/admin".to_owned()];
        for world in worlds {
            for request in &world.requests {
                // Those of the common templates, where it names no host.
                let name = request.metadata.name.as_deref().unwrap_or_default();
                let namespace = request.metadata.namespace.as_deref().unwrap_or_default();
                if request.spec.hosts.is_empty() {
                    hosts.push(format!("{name}.{namespace}.apps.example"));
                    hosts.push(format!("{name}-{namespace}.apps.example"));
                }
                hosts.extend(request.spec.hosts.iter().cloned());
                paths.extend(request.spec.routes.iter().map(|route| route.path.value.clone()));
            }
        }
        let host: &String = self.host.get(&hosts);
        let (sent, host) = match self.host_spelling {
            "UPPER" => (host.to_ascii_uppercase(), host.clone()),
            spelling => {
                let sent = spelling.replace("{}", host);
                let routed = sent.split(':').next().unwrap_or_default().to_owned();
                (sent, routed)
            }
        };
        let path: &String = self.path.get(&paths);
        let mut request = Request::get(sent, self.disguise(path)).method(self.method);
        if let Some((name, value)) = self.header {
            request = request.header(name, value);
        }
        Ask { request, host }
    }

    /// The path in its disguise.
    fn disguise(&self, path: &str) -> String {
        let mut path = path.to_owned();
        if self.upper {
            path.make_ascii_uppercase();
        }
        let letter = path.char_indices().find(|(_, c)| c.is_ascii_alphabetic());
        if let Some((at, c)) = letter.filter(|_| self.encode) {
            path.replace_range(at..=at, &format!("%{:02x}", u32::from(c)));
        }
        let bare = if self.tail.starts_with('/') { path.trim_end_matches('/') } else { &path };
        format!("{}{bare}{}", self.head, self.tail)
    }
}

/// Every place where a connection can come in to a gateway that a binding names: the gateway and its port.
pub(crate) fn entries(world: &World) -> Vec<(usize, Entry)> {
    let named = |place: &usize| {
        world.bindings.iter().any(|binding| {
            let reference = binding.spec.gateway.istio_gateway.as_ref();
            reference.is_some_and(|reference| reference.name == GATEWAYS[*place].1)
        })
    };
    let of = |place: usize| {
        let mut ports: Vec<u32> = world.servers[place].iter().map(|server| server.port.number).collect();
        ports.sort_unstable();
        ports.dedup();
        ports.into_iter().map(move |port| (place, Entry::port(port)))
    };
    (0..GATEWAYS.len()).filter(named).flat_map(of).collect()
}
