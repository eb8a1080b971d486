//! Which hosts the servers of an Istio Gateway accept from the integrator's namespace, and under which URL.

use std::collections::BTreeSet;

use mesh_api::Reason;
use mesh_api::istio::GatewayServer;
use mesh_api::syntax::pattern_covers;

use crate::input::{GatewayFacts, ObjectKey, Settings};
use crate::output::Finding;
use crate::text;

/// How a server answers HTTP requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Plain,
    Tls,
    /// It only redirects to HTTPS.
    Redirect,
}

/// How the server reads HTTP requests, or `None` if it hands connections through. As istiod decides it: protocols of
/// the HTTP family, and HTTPS where TLS ends at the gateway; a `tls` without a mode means PASSTHROUGH.
fn mode(server: &GatewayServer) -> Option<Mode> {
    let is = |protocol: &&str| server.port.protocol.eq_ignore_ascii_case(protocol);
    if ["HTTP", "HTTP2", "GRPC", "GRPC-WEB", "HTTP_PROXY"].iter().any(is) {
        let redirects = server.tls.as_ref().is_some_and(|tls| tls.https_redirect);
        return Some(if redirects { Mode::Redirect } else { Mode::Plain });
    }
    let mode = server.tls.as_ref().map_or("", |tls| tls.mode.as_str());
    let ends_here = !matches!(mode, "" | "PASSTHROUGH" | "AUTO_PASSTHROUGH");
    (is(&"HTTPS") && ends_here).then_some(Mode::Tls)
}

/// The namespace part of an entry of `hosts` (`*` where there is none), and the host part.
fn split(entry: &str) -> (&str, &str) {
    entry.split_once('/').unwrap_or(("*", entry))
}

/// Whether an entry with this namespace part lets `VirtualServices` of the integrator's namespace attach.
fn lets_in(namespace: &str, gateway: &ObjectKey, settings: &Settings) -> bool {
    match namespace {
        "*" => true,
        "." => gateway.namespace == settings.namespace,
        other => other == settings.namespace,
    }
}

/// The origin (`scheme://host[:port]`) under which the gateway serves the host, or why it does not.
///
/// HTTPS is preferred; of several ports the scheme's default one, then the lowest. The port is that of the Gateway,
/// which is the one clients use unless a load balancer before it maps ports.
pub(crate) fn origin(
    host: &str,
    key: &ObjectKey,
    facts: &GatewayFacts,
    settings: &Settings,
) -> Result<String, Finding> {
    let mut ports = Vec::new();
    let mut redirected = false;
    let mut elsewhere = Vec::new();
    for server in &facts.servers {
        let Some(mode) = mode(server) else { continue };
        for (namespace, pattern) in server.hosts.iter().map(|entry| split(entry)) {
            if !pattern_covers(pattern, host) {
                continue;
            }
            if !lets_in(namespace, key, settings) {
                elsewhere.push(format!("{namespace}/{pattern}"));
            } else if mode == Mode::Redirect {
                redirected = true;
            } else {
                ports.push((mode, server.port.number));
            }
        }
    }
    let best = ports.into_iter().min_by_key(|(mode, port)| {
        let default = if *mode == Mode::Tls { 443 } else { 80 };
        (*mode != Mode::Tls, *port != default, *port)
    });
    if let Some((mode, port)) = best {
        let (scheme, default) = if mode == Mode::Tls { ("https", 443) } else { ("http", 80) };
        return Ok(if port == default {
            format!("{scheme}://{host}")
        } else {
            format!("{scheme}://{host}:{port}")
        });
    }
    if redirected {
        let message = format!(
            "Gateway {key} only redirects {host} to HTTPS: add an HTTPS server for it to servers[] of the Gateway"
        );
        return Err(Finding::bad(Reason::HostNotOnGateway, message));
    }
    if let Some(entry) = elsewhere.first() {
        return Err(Finding::bad(Reason::GatewayNamespaceMismatch, namespace_message(key, entry, settings)));
    }
    let mut covered = http_hosts(facts).peekable();
    if covered.peek().is_none() {
        return Err(without_http(key));
    }
    let message = format!(
        "no HTTP server of Gateway {key} accepts {host}: add it to servers[].hosts of the Gateway, which has {}",
        text::list(covered, ", ")
    );
    Err(Finding::bad(Reason::HostNotOnGateway, message))
}

fn mode_is_http(server: &GatewayServer) -> bool {
    mode(server).is_some()
}

/// The entries of `hosts` of the servers that read requests.
fn http_hosts(facts: &GatewayFacts) -> impl Iterator<Item = &String> + Clone {
    facts.servers.iter().filter(|server| mode_is_http(server)).flat_map(|server| &server.hosts)
}

fn without_http(key: &ObjectKey) -> Finding {
    let message = format!(
        "Gateway {key} has no server of protocol HTTP, nor HTTPS with TLS mode SIMPLE or MUTUAL: add one to servers[]"
    );
    Finding::bad(Reason::GatewayWithoutHttp, message)
}

fn namespace_message(key: &ObjectKey, entry: &str, settings: &Settings) -> String {
    let (_, pattern) = split(entry);
    let own = &settings.namespace;
    format!(
        "Gateway {key} accepts {entry} only: add {own}/{pattern} to servers[].hosts of the Gateway, since the routes \
         are in namespace {own}"
    )
}

/// Where a pod of the gateway can be asked for a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listener {
    /// The port of the Gateway's server: a port of the Service before the pods, if there is one.
    pub port: u16,
    /// Whether it speaks TLS.
    pub tls: bool,
}

/// The listeners by which a pod can be asked for the host: plain HTTP before TLS, the lowest port first. None if each demands
/// a client certificate.
pub(crate) fn listeners(
    host: &str,
    key: &ObjectKey,
    facts: &GatewayFacts,
    settings: &Settings,
) -> Vec<Listener> {
    let serves = |server: &&GatewayServer| {
        let mut entries = server.hosts.iter().map(|entry| split(entry));
        entries.any(|(namespace, pattern)| pattern_covers(pattern, host) && lets_in(namespace, key, settings))
    };
    let listeners = facts.servers.iter().filter(serves).filter_map(|server| {
        let port = u16::try_from(server.port.number).ok()?;
        match mode(server)? {
            Mode::Plain => Some(Listener { port, tls: false }),
            Mode::Tls if server.tls.as_ref().is_some_and(|tls| asks_nothing(&tls.mode)) => {
                Some(Listener { port, tls: true })
            }
            Mode::Tls | Mode::Redirect => None,
        }
    });
    let mut listeners: Vec<_> = listeners.collect();
    listeners.sort_by_key(|listener| (listener.tls, listener.port));
    listeners.dedup();
    listeners
}

/// The ports at which the gateway reads HTTP requests for the host, also where it only redirects them.
pub(crate) fn ports(host: &str, key: &ObjectKey, facts: &GatewayFacts, settings: &Settings) -> BTreeSet<u32> {
    let serves = |server: &&GatewayServer| {
        let mut entries = server.hosts.iter().map(|entry| split(entry));
        mode_is_http(server)
            && entries.any(|(namespace, pattern)| {
                pattern_covers(pattern, host) && lets_in(namespace, key, settings)
            })
    };
    facts.servers.iter().filter(serves).map(|server| server.port.number).collect()
}

/// Whether a client without a certificate is let in.
fn asks_nothing(mode: &str) -> bool {
    matches!(mode, "SIMPLE" | "OPTIONAL_MUTUAL")
}

/// Why no host at all can be served through this gateway, or `None`.
pub(crate) fn reach_problem(key: &ObjectKey, facts: &GatewayFacts, settings: &Settings) -> Option<Finding> {
    let mut entries = http_hosts(facts);
    let Some(first) = entries.clone().next() else {
        return Some(without_http(key));
    };
    if entries.any(|entry| lets_in(split(entry).0, key, settings)) {
        return None;
    }
    Some(Finding::bad(Reason::GatewayNamespaceMismatch, namespace_message(key, first, settings)))
}
