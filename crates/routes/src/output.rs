//! What was decided: the objects that shall exist, and a verdict on every request and binding.

use std::collections::BTreeMap;
use std::sync::Arc;

use mesh_api::integrator::{RouteStatus, ServedCount};
use mesh_api::istio::VirtualService;
use mesh_api::{ConditionType, Reason};

use crate::guard::{Provider, ProviderId};
use crate::input::ObjectKey;
use crate::servers::Listener;

/// The result of [`crate::compile()`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    /// The `VirtualServices` that shall exist in the integrator's namespace, and no other of ours, sorted by name.
    pub virtual_services: Vec<Arc<VirtualService>>,
    /// How a gateway's pods can be asked what they hold, by the name of the `VirtualService`.
    pub markers: BTreeMap<String, Marker>,
    /// The providers that the guard chain of each gateway must hold; a gateway without any is not listed.
    pub chains: BTreeMap<ObjectKey, BTreeMap<ProviderId, Provider>>,
    /// Names of `VirtualServices` that failed our own check: they shall stay as they are, neither written nor removed.
    pub withheld: Vec<String>,
    /// A verdict on each request, sorted by namespace and name.
    pub requests: Vec<RequestVerdict>,
    /// A verdict on each binding, sorted by name.
    pub bindings: Vec<BindingVerdict>,
    /// A verdict on each provider, sorted by namespace and name.
    pub providers: Vec<ProviderVerdict>,
}

/// How a gateway's pods can be asked which routes of a host they hold, and which guard chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    /// The gateway.
    pub gateway: ObjectKey,
    /// The host.
    pub host: String,
    /// Where a pod can be asked; nowhere if each listener of the host demands a client certificate, or the Gateway is gone.
    pub listeners: Vec<Listener>,
    /// The path that is answered with 200 and the digest of the routes.
    pub path: String,
    /// The digest.
    pub digest: String,
    /// The path that the guard chain answers with 200 and, in [`mesh_api::names::CHAIN_HEADER`], its digest, and that is
    /// answered 503 without it. Only where a route of the host asks for a login.
    pub chain_path: Option<String>,
}

/// What a condition says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// It could not be found out.
    Unknown,
}

impl Status {
    /// The value in a condition.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// A condition without the time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Whether it holds.
    pub status: Status,
    /// Why, for tools.
    pub reason: Reason,
    /// Why and what to do, for people.
    pub message: String,
}

impl Finding {
    pub(crate) fn good(reason: Reason, message: impl Into<String>) -> Self {
        Self { status: Status::True, reason, message: message.into() }
    }

    pub(crate) fn bad(reason: Reason, message: impl Into<String>) -> Self {
        Self { status: Status::False, reason, message: message.into() }
    }

    /// Whether the condition holds.
    pub fn holds(&self) -> bool {
        self.status == Status::True
    }
}

/// The verdict on a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestVerdict {
    /// Which request.
    pub key: ObjectKey,
    /// The generation of the request that the verdict is about.
    pub generation: Option<i64>,
    /// Whether a binding serves it, with every host and path it asks for.
    pub accepted: Finding,
    /// Whether the Services and ports it names exist.
    pub resolved_refs: Finding,
    /// Whether every gateway pod demands the logins that its routes ask for.
    pub auth_in_force: Finding,
    /// Whether it is served, *provided that* [`RequestVerdict::virtual_services`] are written.
    pub ready: Finding,
    /// The binding that serves it.
    pub binding: Option<String>,
    /// Who must have logged in, for people: `None`, providers as `namespace/name`, or both.
    pub auth: Option<String>,
    /// One URL for each host where it is served, in the order of its hosts.
    pub urls: Vec<String>,
    /// The state of each of its routes, in its order.
    pub routes: Vec<RouteStatus>,
    /// The names of the `VirtualServices` that hold its routes, sorted.
    pub virtual_services: Vec<String>,
}

impl RequestVerdict {
    /// The conditions of the request's status, in their order.
    pub fn conditions(&self) -> [(ConditionType, &Finding); 4] {
        [
            (ConditionType::Accepted, &self.accepted),
            (ConditionType::ResolvedRefs, &self.resolved_refs),
            (ConditionType::AuthInForce, &self.auth_in_force),
            (ConditionType::Ready, &self.ready),
        ]
    }

    /// Whether a host, a path or a Service of the request is refused.
    pub fn refused(&self) -> bool {
        !self.accepted.holds() || !self.resolved_refs.holds()
    }
}

/// The verdict on a binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindingVerdict {
    /// Which binding.
    pub name: String,
    /// The generation of the binding that the verdict is about.
    pub generation: Option<i64>,
    /// Whether what it says can be acted on.
    pub accepted: Finding,
    /// Whether its gateway is there.
    pub ready: Finding,
    /// The gateway, as `namespace/name`, if it names one.
    pub gateway: Option<String>,
    /// How much it serves.
    pub serves: ServedCount,
}

impl BindingVerdict {
    /// The conditions of the binding's status, in their order.
    pub fn conditions(&self) -> [(ConditionType, &Finding); 2] {
        [(ConditionType::Accepted, &self.accepted), (ConditionType::Ready, &self.ready)]
    }
}

/// The verdict on a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderVerdict {
    /// Which provider.
    pub key: ObjectKey,
    /// The generation of the provider that the verdict is about.
    pub generation: Option<i64>,
    /// Whether what it says can be acted on.
    pub accepted: Finding,
    /// Whether its Service is there and nobody else's.
    pub resolved_refs: Finding,
    /// Whether it can be asked, and every gateway that needs it does so.
    pub ready: Finding,
    /// How many routes of requests it protects.
    pub routes: i32,
}

impl ProviderVerdict {
    /// The conditions of the provider's status, in their order.
    pub fn conditions(&self) -> [(ConditionType, &Finding); 3] {
        [
            (ConditionType::Accepted, &self.accepted),
            (ConditionType::ResolvedRefs, &self.resolved_refs),
            (ConditionType::Ready, &self.ready),
        ]
    }
}
