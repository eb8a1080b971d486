//! The guard chain: the filters in a gateway that let a request reach a protected route only with proof of a passed check.
//!
//! A route of ours says in its name whether it needs a login and of which provider. It matches only requests that carry
//! the provider's token, and an entry behind it answers 503 to those that do not. The chain alone can set a token:
//!
//! ```text
//! ii.select   RBAC in shadow mode: notes from the route's name which provider it asks for
//! ii.enter    Lua: takes the guard header and the provider's identity headers from what the client sent
//! ii.check.*  ext_authz, one for each provider, of which the noted one runs: asks it, and keeps proof of the answer
//! ii.leave    Lua: sets the token if the noted provider's check left proof; the route is then chosen anew
//! ```
//!
//! Without the chain, or with one that is broken, late or old, no request carries a token, and the routes answer 503.

mod chain;
mod check;
mod groups;
mod lua;
mod provider;
#[cfg(test)]
mod tests;
mod token;

pub use chain::{Chain, MAX_CHAIN_BYTES};
pub use check::validate_chain;
pub use groups::{GuardedGateway, groups, pod_sets};
pub use provider::{Provider, ProviderId};
pub use token::TokenKey;
