//! Requests and mesh facts in, Istio objects and verdicts out.
//!
//! ```text
//!   bindings ──► bindings.rs  what each says, and whether it can be acted on
//!   requests ──► prepare.rs   which binding (choose.rs), which hosts (hosts.rs, servers.rs), which Services (backend.rs)
//!                   │
//!                   ▼          grouped by gateway and host
//!                table.rs     who owns the host, who owns each path, how much fits
//!                   │
//!        ┌──────────┴──────────┐
//!        ▼                     ▼
//!     emit.rs, validate.rs   verdict.rs
//!     VirtualServices        conditions, URLs, states of routes
//! ```
//!
//! Everything here is a pure function of [`Input`]: there is no client, clock, environment or randomness. The same
//! input gives the same [`Output`], byte for byte, whatever the order in which it is listed.

mod age;
mod auth;
mod backend;
mod bindings;
mod choose;
mod compile;
mod emit;
mod entries;
pub mod eval;
mod fingerprint;
mod grants;
pub mod guard;
mod host;
mod hosts;
mod input;
mod memo;
mod neighbours;
mod output;
mod overlap;
mod prepare;
mod servers;
mod table;
#[cfg(test)]
mod tests;
mod text;
mod validate;
mod verdict;

pub use auth::{MAX_PROVIDERS_PER_GATEWAY, MAX_PROVIDERS_PER_NAMESPACE};
pub use compile::{Compiler, compile};
pub use emit::virtual_service_name;
pub use input::{
    ChainFacts, ForeignRoutes, GatewayFacts, Grant, GrantFrom, GrantTo, Grants, Input, ObjectKey,
    ServiceFacts, ServicePort, Settings,
};
pub use output::{BindingVerdict, Finding, Marker, Output, ProviderVerdict, RequestVerdict, Status};
pub use servers::Listener;
pub use table::MAX_ROUTES;
pub use validate::{MAX_BYTES, Problem, validate};
