//! A gateway of a test's own, an application behind it and an auth service before it.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use testbed::curl::Reply;
use testbed::harness::eventually;
use testbed::{Site, raw};

use crate::pods::echo_pod;

/// The header line of somebody who has logged in.
pub(crate) const LOGIN: &str = "authorization: Bearer let-me-in\r\n";

/// What a test looks at.
pub(crate) struct World {
    pub(crate) namespace: String,
    pub(crate) host: String,
    pub(crate) address: SocketAddr,
}

/// A gateway `edge` and a binding for it, both of the namespace's own, so that its guard chain is nobody else's.
pub(crate) fn gateway(ns: &str) -> String {
    gateway_as(ns, "ClusterIP", "sidecar.istio.io/inject: \"true\"")
}

/// The same with a Service of this type, and pods with these labels beside their own.
fn gateway_as(ns: &str, service_type: &str, labels: &str) -> String {
    format!(
        "apiVersion: v1
kind: Service
metadata: {{name: edge}}
spec:
  type: {service_type}
  selector: {{gateway: {ns}}}
  ports:
  - {{name: http, port: 80, targetPort: 8080}}
  - {{name: more, port: 8000, targetPort: 8000}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: edge}}
spec:
  selector: {{matchLabels: {{gateway: {ns}}}}}
  template:
    metadata:
      annotations: {{inject.istio.io/templates: gateway}}
      labels: {{gateway: {ns}, {labels}}}
    spec:
      terminationGracePeriodSeconds: 2
      containers:
      - name: istio-proxy
        image: auto
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {{name: edge}}
spec:
  selector: {{gateway: {ns}}}
  servers:
  - port: {{number: 80, name: http, protocol: HTTP}}
    hosts: [\"*\"]
---
apiVersion: integrator.istio-operators.io/v1alpha1
kind: GatewayBinding
metadata: {{name: {ns}}}
spec:
  gateway: {{type: IstioGateway, istioGateway: {{namespace: {ns}, name: edge}}}}
  namespaces: {{from: All}}
  hosts: {{allowed: [{{pattern: \"*.{ns}.example.org\", namespaces: {{from: All}}}}]}}
"
    )
}

/// The auth service, which thinks for so many milliseconds, and the provider, with more lines of `extAuthz`.
pub(crate) fn auth_service(delay: u32, more: &str) -> String {
    format!(
        "apiVersion: apps/v1
kind: Deployment
metadata: {{name: sso}}
spec:
  selector: {{matchLabels: {{app: sso}}}}
  template:
    metadata: {{labels: {{app: sso}}}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: testbed/test-server:1
        args: [ext-authz, --port, \"9000\", --delay, \"{delay}\"]
        readinessProbe: {{tcpSocket: {{port: 9000}}, periodSeconds: 1}}
---
apiVersion: v1
kind: Service
metadata: {{name: sso}}
spec:
  selector: {{app: sso}}
  ports: [{{name: http, port: 9000}}]
---
{}",
        provider(more)
    )
}

/// The provider alone.
pub(crate) fn provider(more: &str) -> String {
    format!(
        "apiVersion: integrator.istio-operators.io/v1alpha1
kind: AuthProvider
metadata: {{name: sso}}
spec:
  type: ExtAuthz
  extAuthz:
    service: sso
    port: 9000
    identityHeaders: [x-user]
    ownPaths: [/oauth2/, /ping]
{more}"
    )
}

/// The application's request: everything asks for a login but `/pub` and `/health`; `/secret` lies below `/`, exactly.
pub(crate) fn request(ns: &str, auth: &str) -> String {
    format!(
        "apiVersion: integrator.istio-operators.io/v1alpha1
kind: IngressRequest
metadata: {{name: app}}
spec:
  bindingRef: {{name: {ns}}}
  hosts: [app.{ns}.example.org]
  auth: {auth}
  routes:
  - backends: [{{service: web, port: 80}}]
  - path: {{type: Exact, value: /secret}}
    backends: [{{service: web, port: 80}}]
  - path: {{value: /pub}}
    auth: {{type: None}}
    backends: [{{service: open, port: 80}}]
  - path: {{type: Exact, value: /health}}
    auth: {{type: None}}
    backends: [{{service: open, port: 80}}]
"
    )
}

/// The auth of a request that asks for the provider's login.
pub(crate) const PROVIDER: &str = "{type: Provider, providerRef: {name: sso}}";

fn service(name: &str) -> String {
    format!(
        "apiVersion: v1
kind: Service
metadata: {{name: {name}}}
spec:
  selector: {{app: {name}}}
  ports: [{{name: http, port: 80, targetPort: 8080}}]
"
    )
}

/// Everything but the request; `web` is behind the login and `open` is not.
pub(crate) async fn prepared(t: &Site) -> Result<World> {
    t.integrator().await?;
    prepared_on(t).await
}

/// The same on a cluster that has Istio and the integrator's CRDs.
pub(crate) async fn prepared_on(t: &Site) -> Result<World> {
    let ns = t.namespace.clone();
    let edge = gateway_as(&ns, t.gateway_service_type(), &t.gateway_labels());
    t.apply(&edge).await?;
    t.apply(&auth_service(0, "")).await?;
    for name in ["web", "open"] {
        t.apply(&service(name)).await?;
        t.apply(&echo_pod(name, "")).await?;
    }
    for name in ["edge", "sso"] {
        let rollout = format!("deployment/{name}");
        t.kubectl(&["rollout", "status", &rollout, "--timeout=90s"]).await?;
    }
    for name in ["web", "open"] {
        t.pod_ready(name).await?;
    }
    let address = t.address("edge", 80).await?;
    Ok(World { host: format!("app.{ns}.example.org"), namespace: ns, address })
}

/// As [`prepared`], with the request, once it is ready.
pub(crate) async fn protected(t: &Site) -> Result<World> {
    let world = prepared(t).await?;
    t.apply(&request(&world.namespace, PROVIDER)).await?;
    world.ready(t).await?;
    Ok(world)
}

impl World {
    /// Waits until the request is ready.
    pub(crate) async fn ready(&self, t: &Site) -> Result<()> {
        let waited =
            t.kubectl(&["wait", "--for=condition=Ready", "ingressrequest/app", "--timeout=60s"]).await;
        if waited.is_err() {
            let status = t.field("ingressrequest/app", "{.status}").await?;
            let chains = t.kubectl(&["-n", t.root_namespace(), "get", "envoyfilters", "-o", "name"]).await?;
            anyhow::bail!("the request is not ready: {status}; chains: {chains}");
        }
        Ok(())
    }

    /// Sends a GET for the path with more header lines, each ended.
    pub(crate) async fn get(&self, path: &str, headers: &str) -> Result<Reply> {
        raw::once(self.address, self.bytes("GET", path, headers).as_bytes()).await
    }

    /// The bytes of a request.
    pub(crate) fn bytes(&self, method: &str, target: &str, headers: &str) -> String {
        format!("{method} {target} HTTP/1.1\r\nhost: {}\r\n{headers}\r\n", self.host)
    }

    /// Waits for this status.
    pub(crate) async fn answers(&self, path: &str, headers: &str, status: u16) -> Result<Reply> {
        eventually(&format!("{status} for {path} ({})", headers.trim()), 60, || async {
            let reply = self.get(path, headers).await?;
            ensure!(reply.status == status, "{} {}", reply.status, reply.body);
            Ok(reply)
        })
        .await
    }

    /// The id of the provider that the protected routes of the host demand.
    pub(crate) async fn demanded(&self, t: &Site) -> Result<String> {
        let object = routes_of(t, &self.host).await?.context("no VirtualService of the protected host")?;
        let routes = object["spec"]["http"].as_array().into_iter().flatten();
        let names = routes.filter_map(|route| route["name"].as_str()?.strip_prefix("ii.auth-"));
        let mut ids = names.filter_map(|name| name.split('.').next()).filter(|id| *id != "probe");
        Ok(ids.next().context("no route asks for a login")?.to_owned())
    }

    /// The name of the namespace's guard chain.
    pub(crate) async fn chain(&self, t: &Site) -> Result<String> {
        let path = format!(
            "{{.items[?(@.spec.workloadSelector.labels.gateway==\"{}\")].metadata.name}}",
            self.namespace
        );
        let name = t
            .kubectl(&["-n", t.root_namespace(), "get", "envoyfilters", "-o", &format!("jsonpath={path}")])
            .await?;
        ensure!(!name.is_empty(), "there is no guard chain");
        Ok(name)
    }

    /// A condition of the request as `status reason`.
    pub(crate) async fn condition(&self, t: &Site, kind: &str) -> Result<String> {
        let of = |field: &str| format!("{{.status.conditions[?(@.type==\"{kind}\")].{field}}}");
        t.field("ingressrequest/app", &format!("{} {}", of("status"), of("reason"))).await
    }

    /// Waits until a condition of the request is this.
    pub(crate) async fn has(&self, t: &Site, kind: &str, wanted: &str) -> Result<()> {
        eventually(&format!("{kind} to be {wanted}"), 60, || async {
            let found = self.condition(t, kind).await?;
            ensure!(found == wanted, "{found}");
            Ok(())
        })
        .await
    }

    /// Removes what the namespace does not take with it.
    pub(crate) async fn cleaned(&self, t: &Site) -> Result<()> {
        t.kubectl(&["delete", "gatewaybinding", &self.namespace]).await?;
        Ok(())
    }
}

/// Whether an answer came from the application behind the login.
pub(crate) fn reached_web(reply: &Reply) -> bool {
    reply.status == 200 && reply.body.contains("\"name\":\"web\"")
}

/// The `VirtualService` of a host, if there is one.
pub(crate) async fn routes_of(t: &Site, host: &str) -> Result<Option<serde_json::Value>> {
    let text = t.kubectl(&["-n", "istio-integrator", "get", "virtualservices", "-o", "json"]).await?;
    let all: serde_json::Value = serde_json::from_str(&text)?;
    let mut objects = all["items"].as_array().into_iter().flatten();
    Ok(objects.find(|object| object["spec"]["hosts"][0] == host).cloned())
}
