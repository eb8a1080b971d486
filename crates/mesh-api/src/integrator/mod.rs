//! The integrator's API: group `integrator.istio-operators.io`, version `v1alpha1`. Changes are additive.

mod binding;
mod request;
mod selector;
#[cfg(test)]
mod tests;

pub use binding::{
    AllowedHost, DEFAULT_TEMPLATE, GatewayBinding, GatewayBindingSpec, GatewayBindingStatus,
    GatewayReference, GatewayType, HostPolicy, IstioGatewayReference, ServedCount,
};
pub use request::{
    Backend, BindingReference, IngressRequest, IngressRequestSpec, IngressRequestStatus, PathMatch,
    PathMatchType, Route, RouteStatus,
};
pub use selector::{LabelOperator, LabelRequirement, LabelSelector, NamespaceSelection, NamespacesFrom};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;

/// Both `CustomResourceDefinitions`, in the order in which they are to be applied.
pub fn crds() -> [CustomResourceDefinition; 2] {
    [GatewayBinding::crd(), IngressRequest::crd()]
}
