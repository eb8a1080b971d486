//! The condition types in the status of requests and bindings.

use std::fmt;

/// A condition type of `GatewayBinding` or `IngressRequest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConditionType {
    /// On a request: a binding serves it, and every host and path it asks for is its own. On a binding: what it says
    /// can be acted on.
    Accepted,
    /// On a request: every Service and port it names exists. A route whose Service or port does not is answered with
    /// 503, never by somebody else's wider route.
    ResolvedRefs,
    /// On a request: every gateway pod checks the login on each of its routes that asks for one. Until then these are
    /// answered with 503.
    AuthInForce,
    /// On a request: every gateway pod was asked and holds its routes.
    Programmed,
    /// On a request: all of the above. On a binding: its Gateway exists and is run by at least one pod. On a provider: its
    /// Service exists, and the gateways that need it ask it.
    Ready,
}

impl ConditionType {
    /// Every type, in the order in which the status lists them.
    pub const ALL: [Self; 5] =
        [Self::Accepted, Self::ResolvedRefs, Self::AuthInForce, Self::Programmed, Self::Ready];

    /// The name in the object's status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "Accepted",
            Self::ResolvedRefs => "ResolvedRefs",
            Self::AuthInForce => "AuthInForce",
            Self::Programmed => "Programmed",
            Self::Ready => "Ready",
        }
    }
}

impl fmt::Display for ConditionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
