//! What a gateway does with a request.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::input::ObjectKey;

/// What a gateway does with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// No port, host or route is there for it: the connection is not accepted, or the answer is 404.
    NoRoute,
    /// Envoy itself refuses the request with 400, before any route is chosen.
    Refused(Refusal),
    /// It is sent to HTTPS with 301 (`httpsRedirect` of a server of the Gateway).
    HttpsRedirect,
    /// The gateway answers itself, from `directResponse`.
    Direct {
        /// The HTTP status.
        status: u16,
        /// The text of the body; empty if there is none.
        body: String,
        /// The route that says so.
        route: RouteRef,
    },
    /// The auth service of this provider did not let it pass: its answer goes to the client.
    Denied {
        /// The id of the provider.
        provider: String,
        /// The route that asked for the check.
        route: RouteRef,
    },
    /// It is sent to a Service.
    Forward(Box<Forward>),
}

impl Answer {
    /// The route that decided, if one did.
    pub fn route(&self) -> Option<&RouteRef> {
        match self {
            Self::NoRoute | Self::Refused(_) | Self::HttpsRedirect => None,
            Self::Direct { route, .. } | Self::Denied { route, .. } => Some(route),
            Self::Forward(forward) => Some(&forward.route),
        }
    }

    /// How and whither it is sent, if it is.
    pub fn forward(&self) -> Option<&Forward> {
        match self {
            Self::Forward(forward) => Some(forward),
            _ => None,
        }
    }
}

/// Why Envoy refuses a request before any route is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// The path does not begin with a slash, holds characters that no path may hold, or cannot be normalized (`%00`).
    Path,
    /// The host holds characters that no host may hold.
    Host,
    /// The value of a header holds control characters.
    Header,
}

/// How and whither a request is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// The route.
    pub route: RouteRef,
    /// The Services, each with its share: sorted, without those that get nothing, weights in lowest terms. So two routes
    /// that share alike compare equal.
    pub targets: Vec<Target>,
    /// The path and query as the Service gets them.
    pub path: String,
    /// Headers of the client, in lower case, that the Service does not get.
    pub removed_headers: BTreeSet<String>,
    /// Headers, in lower case, that the Service gets with this value whatever the client sent.
    pub set_headers: BTreeMap<String, String>,
    /// How long the Service may take; nothing is no limit.
    pub timeout: Option<Duration>,
    /// The id of the provider whose check was demanded and passed.
    pub check: Option<String>,
}

impl Forward {
    /// Whether this does the same to the request as the other, whatever the route that says so is called and where it
    /// stands.
    pub fn same_effect(&self, other: &Self) -> bool {
        let Self { route: _, targets, path, removed_headers, set_headers, timeout, check } = self;
        (targets, path, removed_headers, set_headers, timeout, check)
            == (
                &other.targets,
                &other.path,
                &other.removed_headers,
                &other.set_headers,
                &other.timeout,
                &other.check,
            )
    }
}

/// A Service and its share of the requests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// The full DNS name.
    pub host: String,
    /// The port of the Service. Without one Istio takes the only port it has, or that of the gateway.
    pub port: Option<u16>,
    /// The share, in proportion to those of the others.
    pub weight: u32,
}

/// A route of a `VirtualService`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteRef {
    /// The `VirtualService`.
    pub object: ObjectKey,
    /// The place in its `spec.http`, from 0.
    pub position: usize,
    /// The name of the route; may be empty.
    pub name: String,
}
