//! Why a condition or a route is as it is: one list, from which the reference documentation is generated.

use std::fmt;

/// Declares [`Reason`] from one table, so that a reason cannot exist without a meaning and a remedy.
macro_rules! reasons {
    ($($name:ident: $meaning:literal, $remedy:literal;)+) => {
        /// The reason of a condition, or of a route's state, in the status of a request or a binding.
        ///
        /// The names are part of the API: tools may compare them. Messages are for people and may change.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason {
            $(#[doc = $meaning] #[doc = ""] #[doc = $remedy] $name,)+
        }

        impl Reason {
            /// Every reason, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The name in the object's status.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)+ }
            }

            /// What it means, as a paragraph.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$name => $meaning,)+ }
            }

            /// What to do about it, as a paragraph.
            pub fn remedy(self) -> &'static str {
                match self { $(Self::$name => $remedy,)+ }
            }
        }
    };
}

reasons! {
    Accepted:
        "The request is served as written, or the binding can be acted on.",
        "Nothing to do.";
    ResolvedRefs:
        "Every Service and port that the request names exists.",
        "Nothing to do.";
    Ready:
        "The request is accepted, its Services exist, and its routes are written for the gateway. On a binding: its \
         Gateway exists and pods run it.",
        "Nothing to do.";
    Served:
        "The route is part of what the gateway is told to serve.",
        "Nothing to do.";
    AmbiguousDefault:
        "Several default bindings admit the same request. The oldest one serves it.",
        "Set `spec.bindingRef` on the request, or make the bindings' namespaces or hosts disjoint.";
    NoBinding:
        "The request names no binding, and no default binding admits its namespace and hosts.",
        "Set `spec.bindingRef.name` to a binding that the message lists, or ask its owner to admit this namespace.";
    BindingNotFound:
        "The binding that `spec.bindingRef.name` names does not exist.",
        "Correct the name, or create the binding. The message lists those that exist.";
    BindingInvalid:
        "The binding that the request names is itself refused.",
        "Ask the owner of the binding to read its status and correct it.";
    NamespaceNotAllowed:
        "The binding does not serve the namespace of the request.",
        "Ask the owner of the binding to admit the namespace in `spec.namespaces`, or name another binding.";
    InvalidSpec:
        "A field holds a value that cannot be served. The API server refuses most of these; this one came by another \
         way, such as an object older than the rule.",
        "Correct the field that the message names.";
    NoHost:
        "The request names no host, and the binding has no domain to make one from.",
        "Set `spec.hosts` on the request, or `spec.hosts.domain` on the binding.";
    InvalidHost:
        "A host is not a valid DNS name. A host from the template can be too long: a label holds at most 63 \
         characters, a name 253.",
        "Correct `spec.hosts`, or shorten the name of the request.";
    HostNotAllowed:
        "The binding does not allow this host for the namespace of the request.",
        "Use a host that the binding allows, or ask its owner to add one to `spec.hosts.allowed`.";
    HostReserved:
        "The host is one that the binding's template gives to another namespace.",
        "Use another host, or ask the owner of the binding to list this very host in `spec.hosts.allowed`.";
    HostNotOnGateway:
        "No HTTP server of the Gateway accepts this host, so the gateway would not serve it.",
        "Add the host, or a wildcard that covers it, to `servers[].hosts` of the Gateway.";
    GatewayNamespaceMismatch:
        "The Gateway accepts this host, but only from a `VirtualService` in another namespace than the integrator's.",
        "Let the integrator's namespace in: the message shows the entry to add to `servers[].hosts` of the Gateway.";
    HostConflict:
        "The host belongs to an older request: of another namespace, where the binding does not share it, or through \
         another Gateway of the same pods and port, whose routes Istio would mix with these.",
        "Use another host; or ask the owner of the binding to set `shared` on it, or name the binding of the Gateway that \
         the message tells. If the older request goes, this one takes over by itself.";
    PathConflict:
        "An older request serves the same path of the same host.",
        "Use another path. If the older route goes, this one takes over by itself.";
    HostFull:
        "The host already has as many routes as one `VirtualService` can safely hold, and this request is younger.",
        "Move routes to another host, or merge routes that lead to the same Service.";
    ServiceNotFound:
        "The Service does not exist in the namespace of the request. The route answers 503.",
        "Create the Service, or correct `backends[].service`. It is followed by itself.";
    PortNotFound:
        "The Service has no TCP port of this number. The route answers 503.",
        "Correct `backends[].port`: it is the Service's port, not the pod's. The message lists those it has.";
    UnsupportedService:
        "The Service is of type `ExternalName`, which would let a request send traffic anywhere. The route answers 503.",
        "Point the request at a Service with endpoints in the cluster.";
    GatewayNotFound:
        "The Gateway that the binding names does not exist.",
        "Create the Gateway, or correct `spec.gateway.istioGateway` of the binding.";
    GatewayWithoutHttp:
        "The Gateway has no server that speaks HTTP to the integrator's routes: servers of protocol TLS or TCP, or with \
         TLS mode PASSTHROUGH, hand connections through without reading requests.",
        "Add a server of protocol HTTP, or of protocol HTTPS with TLS mode SIMPLE or MUTUAL, to the Gateway.";
    GatewayWithoutPods:
        "No pod carries the labels of the Gateway's selector, so nothing runs it.",
        "Deploy a gateway whose pods carry those labels, or correct `spec.selector` of the Gateway.";
    IstioNotFound:
        "The cluster does not serve Istio's Gateway and `VirtualService`.",
        "Install Istio. It is noticed by itself.";
    Pending:
        "The routes are decided and about to be written.",
        "Wait; if it lasts, read the log of the integrator.";
    ObjectConflict:
        "An object of somebody else bears the name of one that is to be written, and is left alone. Or somebody keeps \
         changing an object of ours, which is put back ever less often.",
        "Remove or rename the object that the message names, or stop whoever changes it.";
    WriteFailed:
        "The API server refused the write of the routes, or did not answer. It is tried again.",
        "Read the message: it carries the API server's answer.";
    InvalidRoutes:
        "The routes of a host failed the integrator's own check and were not written; what was there before stays. \
         This is a defect of the integrator.",
        "Report it with the message and the request.";
    AuthRequired:
        "The binding demands a login on every route, and this one asks for none. The route answers 503.",
        "Set `spec.auth.type` to `Provider` and name one, or to `Inherit` if the binding has a default provider.";
    ProviderNotFound:
        "The `AuthProvider` that a route or the binding names does not exist. The routes that ask for its login answer 503.",
        "Create the `AuthProvider`, or correct `providerRef`.";
    ProviderInvalid:
        "The `AuthProvider` that a route or the binding names cannot be asked. The routes that ask for its login answer 503.",
        "Read the status of the `AuthProvider` and correct it.";
    ProviderServiceNotFound:
        "The Service of the `AuthProvider` does not exist in its namespace.",
        "Create the Service, or correct `spec.extAuthz.service`. It is followed by itself.";
    ProviderClaimed:
        "A `ServiceEntry` claims the host name of the provider's Service, so that Istio would let whoever it names decide \
         about logins. The routes that ask for them answer 503.",
        "Delete the `ServiceEntry` that the message names, or have its hosts corrected.";
    TooManyProviders:
        "There are more `AuthProviders` in the namespace, or in use on the gateway, than the integrator allows, and this one \
         is among the youngest.",
        "Share providers among routes, delete those not needed, or raise `--max-providers-per-namespace` or \
         `--max-providers-per-gateway`: each costs every request of the gateway a little.";
    ReferenceNotGranted:
        "The request names a Service or an `AuthProvider` of another namespace, which nobody there has allowed. The route \
         answers 503.",
        "Have a `ReferenceGrant` created in that namespace: the message shows from what and to what.";
    GrantsNotServed:
        "The request names a Service or an `AuthProvider` of another namespace, and the cluster does not serve \
         `ReferenceGrant`, by which it could be allowed. The route answers 503.",
        "Install the CRDs of the Gateway API, or name something in the namespace of the request.";
    BackendsMissing:
        "Some of the Services of a route do not exist; the others serve their share.",
        "Create the Service, or correct `backends`. It is followed by itself.";
    ShadowsProtected:
        "A route of this request needs no login, and a younger request asks for one on the same path of the same shared \
         host. The older serves, and the younger is refused.",
        "Agree with the owner of the other request: ask for a login as well, or use another path.";
    NoAuth:
        "No route of the request asks for a login.",
        "Nothing to do.";
    InForce:
        "Every ready pod of the gateway checks the logins that the routes ask for.",
        "Nothing to do.";
    ChainPending:
        "Not every ready pod of the gateway has the guard chain yet that checks the login. Until then the routes answer 503.",
        "Wait: chains are written at most once a minute. If it lasts, read the message and the log of the integrator.";
    OverlappingGateways:
        "Two Gateways select some pods in common, and neither selects all of the other's. Two guard chains on one pod would \
         undo each other, so there is none, and routes that ask for a login answer 503.",
        "Make the selectors of the Gateways that the message names equal, or such that they share no pod.";
    ForeignRoute:
        "A `VirtualService` of somebody else serves the same host on the same gateway and comes first, so that the login of \
         this request does not decide there.",
        "Have the host removed from the `VirtualService` that the message names, or delete it.";
    Programmed:
        "Every ready pod of the gateway was asked and holds the routes.",
        "Nothing to do.";
    NotProgrammed:
        "A pod of the gateway was asked and does not hold the routes.",
        "Read the message: it names the pod and its answer. If it lasts, look for a rejected configuration with \
         `istioctl proxy-status`.";
    ProbePending:
        "The pods of the gateway have not all answered yet whether they hold the routes.",
        "Wait a few seconds.";
    ProbeImpossible:
        "The pods of the gateway cannot be asked whether they hold the routes: they demand a client certificate, or cannot be \
         reached from the integrator.",
        "Let the integrator's pods reach those of the gateway, if a NetworkPolicy forbids it. Otherwise nothing: the routes are \
         written, and Istio usually has them within seconds.";
    AmbiguousControlPlane:
        "Several control planes could be that of the gateway, and they have different root namespaces, so that it is not known \
         where a guard chain would reach its pods. Routes that ask for a login answer 503.",
        "Label the gateway's pods with `istio.io/rev`.";
    UnsupportedVersion:
        "The control plane is older than the oldest one that is supported.",
        "Upgrade Istio to 1.24 or later.";
    Undecodable:
        "The object does not have the form of its kind, so it was skipped.",
        "Correct the field that the message names, or apply the CRDs of the integrator's version.";
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_fit_a_condition() {
        let names: BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
        assert_eq!(names.len(), Reason::ALL.len());
        for name in names {
            // Kubernetes' metav1.Condition: ^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$
            assert!(name.chars().all(|c| c.is_ascii_alphanumeric()) && name.starts_with(char::is_uppercase));
        }
    }

    #[test]
    fn each_says_what_it_means_and_what_to_do() {
        for reason in Reason::ALL {
            assert!(reason.meaning().ends_with('.'), "{reason}");
            assert!(reason.remedy().ends_with('.'), "{reason}");
            assert!(!reason.meaning().contains("  "), "{reason}");
        }
    }
}
