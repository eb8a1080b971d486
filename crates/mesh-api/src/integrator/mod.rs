//! The integrator's API: group `integrator.istio-operators.io`, version `v1alpha1`. Changes are additive.

mod binding;
mod provider;
mod request;
mod selector;
#[cfg(test)]
mod tests;

pub use binding::{
    AllowedHost, BindingAuth, DEFAULT_TEMPLATE, DefaultProviderReference, GatewayBinding, GatewayBindingSpec,
    GatewayBindingStatus, GatewayReference, GatewayType, HostPolicy, IstioGatewayReference, ServedCount,
};
pub use provider::{
    AuthProvider, AuthProviderSpec, AuthProviderStatus, AuthProviderType, ExtAuthz, ExtAuthzProtocol,
};
pub use request::{
    AuthType, Backend, BindingReference, IngressRequest, IngressRequestSpec, IngressRequestStatus, Method,
    PathMatch, PathMatchType, ProviderReference, RequestAuth, Rewrite, RewriteType, Route, RouteStatus,
};
pub use selector::{LabelOperator, LabelRequirement, LabelSelector, NamespaceSelection, NamespacesFrom};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;

/// The `CustomResourceDefinitions`, in the order in which they are to be applied.
pub fn crds() -> [CustomResourceDefinition; 3] {
    [GatewayBinding::crd(), AuthProvider::crd(), IngressRequest::crd()]
}
