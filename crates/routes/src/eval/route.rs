//! The routes of one `VirtualService`, as istiod translates them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use mesh_api::istio::{HttpRoute, HttpRouteDestination, VirtualServiceSpec};

use super::answer::{RouteRef, Target};
use super::matcher::Matcher;
use super::merge::Unservable;
use crate::input::ObjectKey;

/// Routes in their order, shared among the hosts of their object.
pub(super) type Entries = Vec<Arc<Route>>;

/// A route with one of its matches.
#[derive(Clone, Debug)]
pub(super) struct Route {
    pub(super) matcher: Matcher,
    pub(super) reference: RouteRef,
    pub(super) action: Arc<Action>,
}

/// What a route does.
#[derive(Clone, Debug)]
pub(super) enum Action {
    Direct { status: u16, body: String },
    Forward(Onward),
}

/// How a route sends a request on.
#[derive(Clone, Debug)]
pub(super) struct Onward {
    pub(super) targets: Vec<Target>,
    /// What the part of the path that matched is replaced by.
    pub(super) rewrite: Option<String>,
    pub(super) removed_headers: BTreeSet<String>,
    pub(super) set_headers: BTreeMap<String, String>,
    pub(super) timeout: Option<Duration>,
}

/// The routes of an object. What follows a route that catches all is dropped, as istiod does.
/// Source: istiod `BuildHTTPRoutesForVirtualService`.
pub(super) fn entries(
    object: &ObjectKey,
    spec: &VirtualServiceSpec,
    cluster_domain: &str,
) -> Result<Entries, Unservable> {
    let mut entries: Entries = Vec::new();
    for (position, http) in spec.http.iter().enumerate() {
        let unservable = |field: String, fault: String| Unservable {
            object: object.clone(),
            field: format!("spec.http[{position}]{field}"),
            fault,
        };
        let action = Arc::new(
            action(http, &object.namespace, cluster_domain)
                .map_err(|(field, fault)| unservable(field, fault))?,
        );
        let reference = RouteRef { object: object.clone(), position, name: http.name.clone() };
        let mut matchers = Vec::with_capacity(http.matches.len().max(1));
        for (entry, condition) in http.matches.iter().enumerate() {
            let matcher = Matcher::new(condition)
                .map_err(|bad| unservable(format!(".match[{entry}]"), bad.to_string()))?;
            matchers.push(matcher);
        }
        if http.matches.is_empty() {
            matchers.push(Matcher::everything());
        }
        for matcher in matchers {
            let last = matcher.catches_all();
            entries.push(Arc::new(Route {
                matcher,
                reference: reference.clone(),
                action: Arc::clone(&action),
            }));
            if last {
                return Ok(entries);
            }
        }
    }
    Ok(entries)
}

type Fault = (String, String);

fn action(http: &HttpRoute, namespace: &str, cluster_domain: &str) -> Result<Action, Fault> {
    if let Some(response) = &http.direct_response {
        let body = response.body.as_ref().map(|body| body.string.clone()).unwrap_or_default();
        return Ok(Action::Direct { status: response.status, body });
    }
    let request = http.headers.as_ref().and_then(|headers| headers.request.as_ref());
    let lower = |name: &String| name.to_ascii_lowercase();
    let removed = request.into_iter().flat_map(|operations| operations.remove.iter().map(lower));
    let set = request.into_iter().flat_map(|operations| &operations.set);
    let timeout = match &http.timeout {
        None => None,
        Some(text) => {
            let fault = || (".timeout".to_owned(), format!("{text:?} is no duration"));
            Some(duration(text).ok_or_else(fault)?).filter(|limit| !limit.is_zero())
        }
    };
    Ok(Action::Forward(Onward {
        targets: targets(&http.route, namespace, cluster_domain)?,
        rewrite: http.rewrite.as_ref().and_then(|rewrite| rewrite.uri.clone()).filter(|uri| !uri.is_empty()),
        // istiod drops the host and pseudo-headers.
        removed_headers: removed.filter(|name| !name.starts_with(':') && name != "host").collect(),
        set_headers: set.map(|(name, value)| (name.to_ascii_lowercase(), value.clone())).collect(),
        timeout,
    }))
}

/// The destinations with their shares. A single one needs no weight; of several, those without one get nothing.
/// Source: istiod `applyHTTPRouteDestination`.
fn targets(
    route: &[HttpRouteDestination],
    namespace: &str,
    cluster_domain: &str,
) -> Result<Vec<Target>, Fault> {
    let mut shares: BTreeMap<(String, Option<u16>), u64> = BTreeMap::new();
    for one in route {
        let weight = if route.len() == 1 { 1 } else { one.weight.unwrap_or_default() };
        let host = full_name(&one.destination.host, namespace, cluster_domain);
        let port = one.destination.port.map(|port| port.number);
        if weight > 0 {
            *shares.entry((host, port)).or_default() += u64::from(weight);
        }
    }
    let unit = shares.values().fold(0, |divisor, weight| greatest_common_divisor(divisor, *weight));
    if unit == 0 {
        let fault = "it leads nowhere: no directResponse, and no destination with a weight";
        return Err((".route".to_owned(), fault.to_owned()));
    }
    let total: u64 = shares.values().sum();
    if u32::try_from(total).is_err() {
        return Err((".route".to_owned(), "the weights sum to more than Envoy takes".to_owned()));
    }
    let target = |((host, port), weight): ((String, Option<u16>), u64)| {
        // Each is at most the total, which fits.
        Target { host, port, weight: u32::try_from(weight / unit).unwrap_or(u32::MAX) }
    };
    Ok(shares.into_iter().map(target).collect())
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// A name without a dot is that of a Service in this namespace. Source: istiod `ResolveShortnameToFQDN`.
pub(super) fn full_name(host: &str, namespace: &str, cluster_domain: &str) -> String {
    if host.is_empty() || host.contains('.') || host.starts_with('*') {
        return host.to_owned();
    }
    format!("{host}.{namespace}.svc.{cluster_domain}")
}

/// A duration as Go reads it, such as `1.5s`, `2m` or `1h0m30s`.
fn duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.').filter(|end| *end > 0)?;
        let (amount, unit_on) = rest.split_at_checked(number)?;
        let end = unit_on.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(unit_on.len());
        let (unit, after) = unit_on.split_at_checked(end)?;
        let seconds = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" | "μs" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        let amount: f64 = amount.parse().ok()?;
        total = total.checked_add(Duration::try_from_secs_f64(amount * seconds).ok()?)?;
        rest = after;
    }
    (!text.is_empty()).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, milliseconds) in [
            ("1s", 1000),
            ("1.500s", 1500),
            ("2m", 120_000),
            ("1h0m30s", 3_630_000),
            ("7ms", 7),
            ("0", 0),
            ("0s", 0),
        ] {
            assert_eq!(duration(text), Some(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in ["", "1", "s", "1d", "-1s", "1s2", "1..5s", " 1s"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }
}
