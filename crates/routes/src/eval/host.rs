//! Which virtual host serves the host of a request.

use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The host by which Envoy chooses, from `Host` or `:authority`: in lower case, without port. A trailing dot stays, so
/// that `shop.example.com.` is another host than `shop.example.com`.
/// Source: Envoy `HeaderUtility::getPortStart`, `RouteMatcher::findVirtualHost`; Istio sets `ignore_port_in_host_matching`
/// and not `strip_trailing_host_dot`.
pub(super) fn chosen_by(authority: &str) -> String {
    let end = match (authority.rfind(':'), authority.rfind(']')) {
        (Some(colon), None) => colon,
        (Some(colon), Some(bracket)) if bracket < colon => colon,
        _ => authority.len(),
    };
    authority.get(..end).unwrap_or(authority).to_ascii_lowercase()
}

/// Whether Envoy takes this as a host at all (`HeaderUtility::authorityIsValid`).
pub(super) fn is_valid(authority: &str) -> bool {
    authority.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=:@[]".contains(&byte))
}

/// Things by host.
#[derive(Clone, Debug)]
pub(super) struct Hosts<T> {
    exact: BTreeMap<String, T>,
    /// Patterns that begin with `*`, the longest first.
    wildcard: Vec<(String, T)>,
}

impl<T> Hosts<T> {
    pub(super) fn new(hosts: BTreeMap<String, T>) -> Self {
        let (mut wildcard, exact): (Vec<_>, Vec<_>) =
            hosts.into_iter().partition(|(pattern, _)| pattern.starts_with('*'));
        wildcard.sort_by_key(|(pattern, _)| Reverse(pattern.len()));
        Self { exact: exact.into_iter().collect(), wildcard }
    }

    /// What serves a host: the host itself, else the longest `*` and suffix, of which `*` alone is the shortest.
    pub(super) fn best(&self, host: &str) -> Option<&T> {
        self.exact.get(host).or_else(|| {
            let covering = self.wildcard.iter().find(|(pattern, _)| wildcard_covers(pattern, host));
            covering.map(|(_, found)| found)
        })
    }
}

/// Whether a pattern that begins with `*` covers the host: `*.example.com` covers `a.b.example.com` and neither
/// `example.com` nor `.example.com`.
fn wildcard_covers(pattern: &str, host: &str) -> bool {
    match pattern.strip_prefix('*') {
        Some("") => true,
        Some(suffix) => host.len() > suffix.len() && host.ends_with(suffix),
        None => false,
    }
}

/// The hosts that both cover: of each pair the narrower, where one is within the other.
/// Source: istiod `host.Names.Intersection`.
pub(super) fn intersection(servers: &[String], services: &[String]) -> Vec<String> {
    let mut common: Vec<String> = Vec::new();
    for server in servers {
        for service in services {
            let narrower = if within(server, service) {
                server
            } else if within(service, server) {
                service
            } else {
                continue;
            };
            if !common.contains(narrower) {
                common.push(narrower.clone());
            }
        }
    }
    common
}

/// Whether every host that the first pattern covers is covered by the second (istiod `host.Name.SubsetOf`).
fn within(inner: &str, outer: &str) -> bool {
    match (inner.strip_prefix('*'), outer.strip_prefix('*')) {
        (Some(inner_suffix), Some(outer_suffix)) => {
            inner.len() >= outer.len() && inner_suffix.ends_with(outer_suffix)
        }
        (Some(_), None) => false,
        (None, Some(suffix)) => inner.ends_with(suffix),
        (None, None) => inner == outer,
    }
}
