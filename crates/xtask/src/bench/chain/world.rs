//! What stands in the cluster while the chain is measured.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use testbed::Session;
use testbed::command::output;

/// The image of the measuring program, which is the applications and the auth services.
pub(super) const TOOL_IMAGE: &str = "testbed/bench-tool:1";

/// The gateways: without a chain, with one provider, with twenty, with the hand-made chain.
pub(super) const GATEWAYS: [&str; 4] = ["none", "one", "twenty", "hand"];

/// The chain and the routes that the mechanism was first tried with, for the gateway `hand`.
const HAND_MADE: &str = include_str!("hand_made.yaml");

/// Namespaces with five providers each: as many as one namespace may have.
const PROVIDER_NAMESPACES: usize = 4;
const PROVIDERS_OF_A_NAMESPACE: usize = 5;

/// A kind of route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Somebody else's, answered by the gateway itself.
    ForeignDirect,
    /// Somebody else's, to an application.
    Foreign,
    /// Ours, without a login.
    Open,
    /// Ours, with a login.
    Protected,
}

impl Kind {
    /// What it is compared with where there is no chain: nothing is protected there.
    pub(super) fn base(self) -> Self {
        if self == Self::Protected { Self::Open } else { self }
    }

    pub(super) fn path(self) -> &'static str {
        match self {
            Self::ForeignDirect => "/direct",
            Self::Foreign => "/",
            Self::Open => "/pub/x",
            Self::Protected => "/p1/x",
        }
    }
}

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) gateway: &'static str,
    pub(super) kind: Kind,
}

impl Case {
    pub(super) fn name(&self) -> String {
        let kind = match self.kind {
            Kind::ForeignDirect => "foreign, answered by the gateway",
            Kind::Foreign => "foreign",
            Kind::Open => "open",
            Kind::Protected => "protected",
        };
        let chain = match self.gateway {
            "none" => "no chain",
            "one" => "1 provider",
            "twenty" => "20 providers",
            _ => "hand-made",
        };
        format!("{kind}; {chain}")
    }

    pub(super) fn host(&self) -> String {
        let name = match self.kind {
            Kind::ForeignDirect | Kind::Foreign => "foreign",
            Kind::Open | Kind::Protected => "app",
        };
        format!("{name}.{}.example.org", self.gateway)
    }
}

/// Every case, kind by kind.
pub(super) fn cases() -> Vec<Case> {
    let kinds = [Kind::ForeignDirect, Kind::Foreign, Kind::Open, Kind::Protected];
    let all =
        kinds.into_iter().flat_map(|kind| GATEWAYS.into_iter().map(move |gateway| Case { gateway, kind }));
    all.filter(|case| case.gateway != "none" || case.kind != Kind::Protected).collect()
}

/// A Deployment of one pod of the measuring program, and its Service.
fn server(namespace: &str, name: &str, port: u16, args: &str) -> String {
    format!(
        "---
apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  selector: {{app: {name}}}
  ports: [{{name: http, port: {port}}}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      containers:
      - name: main
        image: {TOOL_IMAGE}
        args: [serve, --listen, \"0.0.0.0:{port}\"{args}]
        readinessProbe: {{tcpSocket: {{port: {port}}}, periodSeconds: 1}}
"
    )
}

/// A gateway of one pod whose Envoy has one worker, its Gateway, binding and the routes of somebody else.
fn gateway(name: &str) -> String {
    format!(
        "---
apiVersion: v1
kind: Service
metadata: {{name: edge-{name}, namespace: bench}}
spec:
  selector: {{bench: {name}}}
  ports: [{{name: http, port: 80, targetPort: 8080}}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: edge-{name}, namespace: bench}}
spec:
  selector: {{matchLabels: {{bench: {name}}}}}
  template:
    metadata:
      annotations:
        inject.istio.io/templates: gateway
        proxy.istio.io/config: \"concurrency: 1\"
      labels: {{bench: {name}, sidecar.istio.io/inject: \"true\"}}
    spec:
      containers:
      - name: istio-proxy
        image: auto
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {{name: edge-{name}, namespace: bench}}
spec:
  selector: {{bench: {name}}}
  servers:
  - port: {{number: 80, name: http, protocol: HTTP}}
    hosts: [\"*\"]
---
apiVersion: integrator.istio-operators.io/v1alpha1
kind: GatewayBinding
metadata: {{name: {name}}}
spec:
  gateway: {{type: IstioGateway, istioGateway: {{namespace: bench, name: edge-{name}}}}}
  namespaces: {{from: All}}
  hosts: {{allowed: [{{pattern: \"*.{name}.example.org\", namespaces: {{from: All}}}}]}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: foreign-{name}, namespace: bench}}
spec:
  hosts: [foreign.{name}.example.org]
  gateways: [edge-{name}]
  http:
  - match: [{{uri: {{exact: /direct}}}}]
    directResponse: {{status: 200, body: {{string: ok}}}}
  - route: [{{destination: {{host: web.bench.svc.cluster.local, port: {{number: 80}}}}}}]
"
    )
}

fn provider(namespace: &str, name: &str) -> String {
    format!(
        "---
apiVersion: integrator.istio-operators.io/v1alpha1
kind: AuthProvider
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  type: ExtAuthz
  extAuthz: {{service: auth, port: 9000, identityHeaders: [x-user]}}
"
    )
}

/// A request with an open and, if it names a provider, a protected path.
fn request(gateway: &str, namespace: &str, name: &str, provider: Option<&str>) -> String {
    let protected = provider.map_or(String::new(), |provider| {
        format!(
            "  - path: {{value: /p1}}
    auth: {{type: Provider, providerRef: {{name: {provider}}}}}
    backends: [{{service: web, port: 80}}]
"
        )
    });
    format!(
        "---
apiVersion: integrator.istio-operators.io/v1alpha1
kind: IngressRequest
metadata: {{name: {name}-{gateway}, namespace: {namespace}}}
spec:
  bindingRef: {{name: {gateway}}}
  hosts: [{name}.{gateway}.example.org]
  routes:
  - path: {{value: /pub}}
    backends: [{{service: web, port: 80}}]
{protected}"
    )
}

fn namespace(number: usize) -> String {
    format!("bench-{number}")
}

fn objects() -> String {
    let mut text = String::from("apiVersion: v1\nkind: Namespace\nmetadata: {name: bench}\n");
    for number in 0..PROVIDER_NAMESPACES {
        // Writing to a String cannot fail.
        let _ =
            write!(text, "---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: {}}}\n", namespace(number));
    }
    let identity = ", --header, \"x-user: somebody\"";
    text += &server("bench", "web", 80, "");
    text += &server("bench", "auth", 9000, identity);
    text += &provider("bench", "sso");
    for name in GATEWAYS {
        text += &gateway(name);
    }
    text += &request("none", "bench", "app", None);
    text += &request("one", "bench", "app", Some("sso"));
    text += &request("twenty", "bench", "app", Some("sso"));
    // With that of `app`, twenty.
    let mut left = PROVIDER_NAMESPACES * PROVIDERS_OF_A_NAMESPACE - 1;
    for number in 0..PROVIDER_NAMESPACES {
        let namespace = namespace(number);
        text += &server(&namespace, "web", 80, "");
        text += &server(&namespace, "auth", 9000, identity);
        for name in (0..PROVIDERS_OF_A_NAMESPACE.min(left)).map(|place| format!("sso{place}")) {
            text += &provider(&namespace, &name);
            text += &request("twenty", &namespace, &format!("{name}-{namespace}"), Some(&name));
            left -= 1;
        }
    }
    text + HAND_MADE
}

/// Applies everything and waits until it runs and every request is ready.
pub(super) fn apply(session: &Session) -> Result<()> {
    output(session.kubectl(["apply", "--server-side", "-f", "-"]), Some(&objects()))
        .context("kubectl apply")?;
    for namespace in std::iter::once("bench".to_owned()).chain((0..PROVIDER_NAMESPACES).map(namespace)) {
        let wait =
            ["-n", &namespace, "wait", "--for=condition=Available", "deployments", "--all", "--timeout=120s"];
        output(session.kubectl(wait), None).with_context(|| format!("wait for the pods of {namespace}"))?;
    }
    let wait = ["wait", "--for=condition=Ready", "ingressrequests", "-A", "--all", "--timeout=180s"];
    output(session.kubectl(wait), None).context("wait for the requests")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twenty_providers_are_used_on_the_gateway_of_twenty() {
        let text = objects();
        assert_eq!(text.matches("kind: AuthProvider").count(), 20);
        let used = text.split("---\n").filter(|document| document.contains("bindingRef: {name: twenty}"));
        assert_eq!(used.filter(|document| document.contains("providerRef")).count(), 20);
        assert_eq!(cases().len(), 15);
    }
}
