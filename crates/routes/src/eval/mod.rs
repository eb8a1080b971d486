//! The reference evaluator: which route serves a request, and which check it must pass first.
//!
//! It reads Istio objects, ours and those of others, and answers what a gateway does with a request, as istiod and Envoy
//! would decide it together. It knows nothing of requests, bindings and providers, so that it can be held against the
//! compiler (property tests), against the cluster (end-to-end tests), and two sets of objects against each other
//! (migration: equal answers are equal routing).
//!
//! ```text
//!   Gateways, VirtualServices, Proxy ──► merge.rs     istiod: servers of one port, virtual hosts, order of routes
//!                                            │
//!   Request ──► path.rs (normalization)      ▼
//!          └──► host.rs (which host) ──► evaluator.rs  Envoy: first match (matcher.rs), guard chain, rewrite
//!                                            │
//!                                            ▼
//!                                         Answer
//! ```
//!
//! Sources: istiod 1.31.1 (`pilot/pkg/model/{push_context,gateway,virtualservice_controller}.go`,
//! `pilot/pkg/networking/core/{gateway.go,route/route.go}`), and Envoy 1.40 as Istio configures it, probed by hand.
//!
//! # What it does not know
//! - Fields that [`mesh_api::istio`] does not have: [`lost_fields`] names those of an object, and an answer that rests on
//!   such an object is not to be trusted.
//! - Whether a Service exists, has endpoints and answers.
//! - Several ports of a Gateway that one Service maps to one port of the pods: Istio merges their routes, here they stay
//!   apart. Two plain servers beside TLS ones on one port, and servers with `bind`.
//! - Mesh defaults other than Istio's own: `defaultVirtualServiceExportTo` is `*`.
//! - Regular expressions that RE2 and the `regex` crate read differently: set notation within brackets (`[a&&b]`), and
//!   `\Q..\E` and `\C`, which are refused.

mod answer;
mod chain;
mod evaluator;
mod host;
mod lost;
mod matcher;
mod merge;
mod path;
mod request;
mod route;
#[cfg(test)]
mod tests;

pub use answer::{Answer, Forward, Refusal, RouteRef, Target};
pub use chain::{ChainState, provider_of};
pub use evaluator::Evaluator;
pub use lost::lost_fields;
pub use merge::{Entry, Mesh, Proxy, Unservable};
pub use path::PathNormalization;
pub use request::Request;
