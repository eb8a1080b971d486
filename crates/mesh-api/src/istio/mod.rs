//! The narrow part of Istio's networking API that is read or emitted.
//!
//! These types drop the fields they do not know. So they are for server-side apply and for reading; an object read as
//! one of them must never be written back.

mod envoy_filter;
mod gateway;
mod service_entry;
mod virtual_service;

pub use envoy_filter::{EnvoyFilter, EnvoyFilterSpec, WorkloadSelector};
pub use gateway::{Gateway, GatewayPort, GatewayServer, GatewaySpec, GatewayTls};
pub use service_entry::{ServiceEntry, ServiceEntrySpec};
pub use virtual_service::{
    Destination, HeaderMatches, HeaderOperations, Headers, HttpBody, HttpDirectResponse, HttpMatch,
    HttpRewrite, HttpRoute, HttpRouteDestination, PortSelector, StringMatch, VirtualService,
    VirtualServiceSpec,
};
