//! Helm charts rendered natively, byte for byte as Helm 4 renders them.
//!
//! Nothing here knows of Istio or Kubernetes, reads the environment, a clock or the network, or starts a process. A chart is
//! taken to be hostile: whatever it holds ends in output or in an error within the [`Limits`], never in a panic.

mod failure;
mod fmt;
mod funcs;
mod json;
mod limits;
mod template;
mod value;
mod yaml;

pub use failure::Failure;
pub use limits::Limits;
