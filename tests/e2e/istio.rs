//! Istio on the test bed does what it does on any cluster.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use testbed::curl;
use testbed::harness::{Ctx, Test, eventually};
use testbed::test;

use crate::pods::echo_pod;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        test!(istiod_is_the_pinned_one),
        test!(validation_webhook_refuses),
        test!(injected_gateway_follows_endpoints),
        test!(two_istiods_side_by_side).limit_seconds(180),
    ]
}

async fn istiod_is_the_pinned_one(t: Ctx) -> Result<()> {
    t.istio().await?;
    let pods =
        ["-n", "istio-system", "get", "pods", "-l", "app=istiod", "-o", "jsonpath={.items[0].status.podIP}"];
    let ip = t.kubectl(&pods).await?;
    let reply = curl::get(format!("{ip}:15014").parse()?, "istiod", "/version").await?;
    ensure!(reply.body.starts_with(&t.session.tools().istio_version), "istiod says {}", reply.body);
    Ok(())
}

fn virtual_service(name: &str, label: &str, regex: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1
kind: VirtualService
metadata:
  name: {name}
  labels: {{{label}}}
spec:
  hosts: [{name}.example.org]
  gateways: [nowhere]
  http:
  - match: [{{uri: {{regex: \"{regex}\"}}}}]
    route: [{{destination: {{host: x}}}}]
"
    )
}

async fn validation_webhook_refuses(t: Ctx) -> Result<()> {
    t.istio().await?;
    // The webhook of a revision judges objects that carry its label; one without the label is let in.
    let judged = "istio.io/rev: default";
    let refused = eventually("the webhook refuses", 30, || async {
        match t.apply(&virtual_service("bad", judged, "[")).await {
            Err(error) => Ok(format!("{error:#}")),
            Ok(_) => anyhow::bail!("admitted"),
        }
    })
    .await?;
    ensure!(refused.contains("admission webhook"), "refused by something else: {refused}");
    t.apply(&virtual_service("good", judged, "/a.*")).await?;
    Ok(())
}

/// A gateway whose proxy istiod injects, with its Service, Gateway and one route to the Service `web`.
fn gateway(name: &str, namespace: &str, labels: &str) -> String {
    format!(
        "apiVersion: v1
kind: Service
metadata: {{name: {name}}}
spec:
  selector: {{gateway: {name}}}
  ports: [{{name: http, port: 80, targetPort: 8080}}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}}}
spec:
  selector: {{matchLabels: {{gateway: {name}}}}}
  template:
    metadata:
      annotations: {{inject.istio.io/templates: gateway}}
      labels: {{gateway: {name}, {labels}}}
    spec:
      terminationGracePeriodSeconds: 2
      containers:
      - name: istio-proxy
        image: auto
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {{name: {name}}}
spec:
  selector: {{gateway: {name}}}
  servers:
  - port: {{number: 80, name: http, protocol: HTTP}}
    hosts: [\"*\"]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: {name}}}
spec:
  hosts: [{name}.example.org]
  gateways: [{name}]
  http:
  - route: [{{destination: {{host: web.{namespace}.svc.cluster.local, port: {{number: 80}}}}}}]
"
    )
}

async fn address(t: &Ctx, service: &str) -> Result<SocketAddr> {
    let ip = t.field(&format!("service/{service}"), "{.spec.clusterIP}").await?;
    Ok(SocketAddr::new(ip.parse().with_context(|| format!("clusterIP {ip:?}"))?, 80))
}

const WEB: &str = "apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: 8080}]
";

async fn answers(address: SocketAddr, host: &str, name: &str) -> Result<()> {
    eventually(&format!("{name} answers for {host}"), 40, || async {
        let reply = curl::get(address, host, "/").await?;
        ensure!(
            reply.status == 200 && reply.body.contains(&format!("\"{name}\"")),
            "{} {}",
            reply.status,
            reply.body
        );
        Ok(())
    })
    .await
}

async fn injected_gateway_follows_endpoints(t: Ctx) -> Result<()> {
    t.istio().await?;
    t.apply(WEB).await?;
    let as_web =
        |name: &str| echo_pod(name, "").replace(&format!("labels: {{app: {name}}}"), "labels: {app: web}");
    t.apply(&as_web("first")).await?;
    t.apply(&gateway("edge", &t.namespace, "sidecar.istio.io/inject: \"true\"")).await?;
    t.kubectl(&["rollout", "status", "deployment/edge", "--timeout=60s"]).await?;
    let image = t.kubectl(&[
        "get",
        "pods",
        "-l",
        "gateway=edge",
        "-o",
        "jsonpath={.items[0].spec.containers[0].image}",
    ]);
    let image = image.await?;
    let expected = format!("docker.io/istio/proxyv2:{}", t.session.tools().istio_version);
    ensure!(image == expected, "the injected image is {image}");
    let edge = address(&t, "edge").await?;
    answers(edge, "edge.example.org", "first").await?;
    let other = curl::get(edge, "other.example.org", "/").await?;
    ensure!(other.status == 404, "an unknown host got {}", other.status);
    // Another endpoint in its place: Envoy learns it through istiod.
    t.apply(&as_web("second")).await?;
    t.kubectl(&["delete", "pod", "first", "--wait=false"]).await?;
    answers(edge, "edge.example.org", "second").await
}

async fn two_istiods_side_by_side(t: Ctx) -> Result<()> {
    t.istio().await?;
    let session = t.session.clone();
    let set = ["profile=minimal", "revision=canary", "components.base.enabled=false"];
    tokio::task::spawn_blocking(move || testbed::istio::install(&session, &set)).await??;
    t.apply(WEB).await?;
    t.apply(&echo_pod("web", "")).await?;
    for (name, rev) in [("stable", "default"), ("canary", "canary")] {
        t.apply(&gateway(name, &t.namespace, &format!("istio.io/rev: {rev}"))).await?;
        t.kubectl(&["rollout", "status", &format!("deployment/{name}"), "--timeout=60s"]).await?;
        answers(address(&t, name).await?, &format!("{name}.example.org"), "web").await?;
    }
    let env = |name: &str| format!("{{.items[0].spec.containers[0].env[?(@.name==\"{name}\")].value}}");
    let of = |name: &'static str| {
        let (path, label) = (format!("jsonpath={}", env("CA_ADDR")), format!("gateway={name}"));
        let t = t.clone();
        async move { t.kubectl(&["get", "pods", "-l", &label, "-o", &path]).await }
    };
    let (stable, canary) = (of("stable").await?, of("canary").await?);
    ensure!(stable.starts_with("istiod.istio-system"), "stable asks {stable}");
    ensure!(canary.starts_with("istiod-canary.istio-system"), "canary asks {canary}");
    t.kubectl(&["-n", "istio-system", "delete", "deployment", "istiod-canary"]).await?;
    Ok(())
}
