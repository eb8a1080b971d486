//! The types that both operators share: the custom resources of the integrator, the narrow Istio types that are read
//! and emitted, and the names (labels, annotations, field managers, conditions and reasons) by which objects and
//! verdicts are recognised.
//!
//! There is no I/O in here, and none of this workspace's other crates.

pub mod condition;
pub mod gateway_api;
pub mod header;
#[allow(unreachable_pub, reason = "KubeSchema declares copies of the types inside functions")]
#[allow(clippy::duplicated_attributes, reason = "each printer column has its own name and path")]
pub mod integrator;
pub mod istio;
pub mod names;
pub mod reason;
mod schema;
pub mod syntax;

pub use condition::ConditionType;
pub use integrator::{AuthProvider, GatewayBinding, IngressRequest};
pub use reason::Reason;
