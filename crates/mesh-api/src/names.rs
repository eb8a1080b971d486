//! Labels, annotations, groups and field managers.

/// The API group of `GatewayBinding` and `IngressRequest`.
pub const INTEGRATOR_GROUP: &str = "integrator.istio-operators.io";

/// The label by which Kubernetes tools tell who manages an object; its value is [`INTEGRATOR`] on ours.
/// Source: Kubernetes' recommended labels.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";

/// The integrator's name: the value of [`MANAGED_BY_LABEL`], and its field manager in server-side apply.
pub const INTEGRATOR: &str = "istio-integrator";

/// The annotation that names the Gateway (`namespace/name`) a generated object belongs to. It is for people and tools
/// that read; the integrator decides nothing by it.
pub const GATEWAY_ANNOTATION: &str = "integrator.istio-operators.io/gateway";

/// The annotation that names the host a generated object serves, for people and tools that read.
pub const HOST_ANNOTATION: &str = "integrator.istio-operators.io/host";

/// How the name of every route that needs no login begins. No text of a user is ever part of a route's name.
pub const OPEN_ROUTE_PREFIX: &str = "ii.open.";

/// How the name of every route that needs a login begins: the id of the provider and a dot follow, then a hash.
pub const AUTH_ROUTE_PREFIX: &str = "ii.auth-";

/// The header by which the guard chain tells the router that a check was passed. Its value begins with the byte 0x01,
/// which Envoy takes from no client and sends to no backend.
pub const GUARD_HEADER: &str = "x-ii-guard";

/// The header in the guard chain's answer to a probe: which chain it is.
pub const CHAIN_HEADER: &str = "x-ii-chain";

/// How the name of the route begins by which a gateway pod is asked for its guard chain.
pub const PROBE_ROUTE_PREFIX: &str = "ii.auth-probe.";

/// The label of a guard chain with the namespace of the integrator it belongs to: chains of several integrators meet in the
/// mesh's root namespace, and each is one's own.
pub const INSTANCE_LABEL: &str = "integrator.istio-operators.io/instance";

/// The annotation of a guard chain that holds what it was made from, as JSON.
pub const PROVIDERS_ANNOTATION: &str = "integrator.istio-operators.io/providers";
