//! The guard chain, as far as it decides about a request.

use std::collections::BTreeMap;

use mesh_api::names::AUTH_ROUTE_PREFIX;

/// What the marker route that asks for the chain itself has instead of the id of a provider.
const PROBE: &str = "probe";

/// The guard chain of a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChainState {
    /// There is none.
    Absent,
    /// It lacks a part, or a part of it does not work: no check's result reaches a route. As far as checks are still
    /// made, a client may get the auth service's refusal instead of the answer given here; it never gets more.
    Broken,
    /// It is in force.
    Holds(BTreeMap<String, String>),
}

impl ChainState {
    /// A chain in force that holds the providers of these ids, each with its token.
    pub fn holds<I, T>(providers: impl IntoIterator<Item = (I, T)>) -> Self
    where
        I: Into<String>,
        T: Into<String>,
    {
        Self::Holds(providers.into_iter().map(|(id, token)| (id.into(), token.into())).collect())
    }
}

/// What the chain makes of the name of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Selection<'a> {
    /// Nothing: the chain lets the request pass as it is.
    None,
    /// The chain is asked for itself.
    Probe,
    /// This check is to be passed; the token that a passed one sets.
    Check(&'a str, &'a str),
    /// A check is asked for that the chain does not hold.
    Unknown,
}

/// The id of the provider whose check a route of this name asks for. The name alone decides, so that a route of somebody
/// else that borrows one asks for it as well.
pub fn provider_of(route: &str) -> Option<&str> {
    let rest = route.strip_prefix(AUTH_ROUTE_PREFIX)?;
    Some(rest.split_once('.').map_or(rest, |(id, _)| id))
}

impl ChainState {
    /// What the chain makes of the name of a route.
    pub(super) fn select<'a>(&'a self, route: &'a str) -> Selection<'a> {
        let Self::Holds(tokens) = self else { return Selection::None };
        let Some(rest) = route.strip_prefix(AUTH_ROUTE_PREFIX) else { return Selection::None };
        // The policies compare with the id and the dot after it.
        let Some((id, _)) = rest.split_once('.') else { return Selection::Unknown };
        if id == PROBE {
            return Selection::Probe;
        }
        tokens.get(id).map_or(Selection::Unknown, |token| Selection::Check(id, token))
    }
}
