//! istio-integrator, deployed from `deploy/`, proved through a real istiod and a real Envoy.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use testbed::curl;
use testbed::harness::{Ctx, Test, eventually, run_command};
use testbed::test;

use crate::pods::{echo_pod, field_is};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        test!(the_readme_example).limit_seconds(180),
        test!(exact_and_prefix_routes).limit_seconds(180),
        test!(service_port_is_followed).limit_seconds(180),
        test!(wrong_service_says_so_and_breaks_nothing).limit_seconds(180),
        test!(host_that_is_not_allowed).limit_seconds(180),
        test!(missing_gateway_and_its_arrival).limit_seconds(180),
        test!(a_host_has_one_owner_and_an_heir).limit_seconds(180),
        test!(foreign_objects_are_left_alone).limit_seconds(180),
    ]
}

const OWN: &str = "istio-integrator";

async fn gateway_address(t: &Ctx) -> Result<SocketAddr> {
    let args =
        ["-n", "istio-system", "get", "service", "istio-ingressgateway", "-o", "jsonpath={.spec.clusterIP}"];
    let ip = t.kubectl(&args).await?;
    Ok(SocketAddr::new(ip.parse().with_context(|| format!("the gateway's address {ip:?}"))?, 80))
}

/// A binding of the test's own, whose hosts end in the name of its namespace, on the shared ingress gateway.
fn binding(ns: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {{name: edge, namespace: {ns}}}
spec:
  selector: {{istio: ingressgateway}}
  servers:
  - port: {{number: 80, name: http, protocol: HTTP}}
    hosts: [\"{OWN}/*.{ns}.example.org\"]
---
apiVersion: integrator.istio-operators.io/v1alpha1
kind: GatewayBinding
metadata: {{name: {ns}}}
spec:
  gateway: {{type: IstioGateway, istioGateway: {{namespace: {ns}, name: edge}}}}
  namespaces: {{from: All}}
  hosts:
    domain: {ns}.example.org
    allowed: [{{pattern: \"*.{ns}.example.org\", namespaces: {{from: All}}}}]
"
    )
}

/// A request named `name` for `NAME.NAMESPACE.example.org`; `routes` is YAML of the list, indented by two spaces.
fn request(name: &str, ns: &str, routes: &str) -> String {
    format!(
        "apiVersion: integrator.istio-operators.io/v1alpha1
kind: IngressRequest
metadata: {{name: {name}}}
spec:
  bindingRef: {{name: {ns}}}
  hosts: [{name}.{ns}.example.org]
  routes:
{routes}"
    )
}

fn service(name: &str, port: u16) -> String {
    format!(
        "apiVersion: v1
kind: Service
metadata: {{name: {name}}}
spec:
  selector: {{app: {name}}}
  ports: [{{name: http, port: {port}, targetPort: 8080}}]
"
    )
}

async fn status_is(t: &Ctx, host: &str, path: &str, status: u16) -> Result<String> {
    let address = gateway_address(t).await?;
    eventually(&format!("{status} for {host}{path}"), 40, || async {
        let reply = curl::get(address, host, path).await?;
        ensure!(reply.status == status, "{} {}", reply.status, reply.body);
        Ok(reply.body)
    })
    .await
}

/// The namespace's set-up: the operator, a binding, and an application `web` with its Service.
async fn prepared(t: &Ctx) -> Result<String> {
    t.integrator().await?;
    t.apply(&binding(&t.namespace)).await?;
    t.apply(&service("web", 80)).await?;
    t.apply(&echo_pod("web", "")).await?;
    t.pod_ready("web").await?;
    Ok(t.namespace.clone())
}

async fn cleaned(t: &Ctx) -> Result<()> {
    t.kubectl(&["delete", "gatewaybinding", &t.namespace]).await?;
    Ok(())
}

/// Where `kubectl` finds a field of a condition.
pub(crate) fn condition(kind: &str, field: &str) -> String {
    format!("{{.status.conditions[?(@.type==\"{kind}\")].{field}}}")
}

async fn the_readme_example(t: Ctx) -> Result<()> {
    t.integrator().await?;
    let file = testbed::paths::repo_root().join("docs/examples/first-route.yaml");
    let file = file.display().to_string();
    run_command(t.session.kubectl(["apply", "-f", &file]), None).await?;
    t.kubectl(&["-n", "shop", "wait", "--for=condition=Ready", "ingressrequest/shop", "--timeout=60s"])
        .await?;
    t.kubectl(&["-n", "shop", "rollout", "status", "deployment/shop", "--timeout=60s"]).await?;
    let body = status_is(&t, "shop.example.com", "/cart", 200).await?;
    ensure!(body.contains("\"shop\""), "the answer is {body}");
    let columns = t.kubectl(&["-n", "shop", "get", "ingressrequest", "shop", "--no-headers"]).await?;
    let words: Vec<&str> = columns.split_whitespace().collect();
    ensure!(
        words.get(1..5) == Some(&["True", "http://shop.example.com", "None", "Ready"][..]),
        "kubectl shows {columns}"
    );
    t.kubectl(&["-n", "shop", "delete", "ingressrequest", "shop"]).await?;
    status_is(&t, "shop.example.com", "/cart", 404).await?;
    let delete = ["delete", "-f", &file, "--ignore-not-found", "--wait=false"];
    run_command(t.session.kubectl(delete), None).await?;
    Ok(())
}

async fn exact_and_prefix_routes(t: Ctx) -> Result<()> {
    let ns = prepared(&t).await?;
    for name in ["api", "docs"] {
        t.apply(&service(name, 80)).await?;
        t.apply(&echo_pod(name, "")).await?;
        t.pod_ready(name).await?;
    }
    let routes = "  - {path: {value: /app}, backends: [{service: api, port: 80}]}
  - {path: {type: Exact, value: /app/docs}, backends: [{service: docs, port: 80}]}
  - {path: {value: /app/deep}, backends: [{service: web, port: 80}]}
";
    t.apply(&request("site", &ns, routes)).await?;
    let host = format!("site.{ns}.example.org");
    for (path, name) in [
        ("/app", "api"),
        ("/app/", "api"),
        ("/app/x?y=1", "api"),
        ("/app/docs", "docs"),
        ("/app/docs/", "api"),
        ("/app/deep", "web"),
        ("/app/deep/er", "web"),
        ("/app/deeper", "api"),
    ] {
        let body = status_is(&t, &host, path, 200).await?;
        ensure!(body.contains(&format!("\"name\":\"{name}\"")), "{path} went elsewhere: {body}");
    }
    for path in ["/", "/apple", "/App"] {
        status_is(&t, &host, path, 404).await?;
    }
    cleaned(&t).await
}

async fn service_port_is_followed(t: Ctx) -> Result<()> {
    let ns = prepared(&t).await?;
    t.apply(&request("web", &ns, "  - backends: [{service: web, port: 80}]\n")).await?;
    let host = format!("web.{ns}.example.org");
    status_is(&t, &host, "/", 200).await?;
    // The port that the request names goes away, another comes: 503 and a reason, then the corrected request works.
    t.kubectl(&["delete", "service", "web"]).await?;
    t.apply(&service("web", 8000)).await?;
    field_is(&t, "ingressrequest/web", &condition("ResolvedRefs", "reason"), "PortNotFound").await?;
    let message = t.field("ingressrequest/web", &condition("ResolvedRefs", "message")).await?;
    ensure!(message.contains("8000"), "the message does not list the ports there are: {message}");
    status_is(&t, &host, "/", 503).await?;
    t.apply(&request("web", &ns, "  - backends: [{service: web, port: 8000}]\n")).await?;
    status_is(&t, &host, "/", 200).await?;
    field_is(&t, "ingressrequest/web", &condition("Ready", "status"), "True").await?;
    // The Service changes where it leads; nothing of ours has to.
    t.kubectl(&[
        "patch",
        "service",
        "web",
        "--type=json",
        "-p",
        "[{\"op\":\"replace\",\"path\":\"/spec/ports/0/port\",\"value\":80}]",
    ])
    .await?;
    t.apply(&request("web", &ns, "  - backends: [{service: web, port: 80}]\n")).await?;
    status_is(&t, &host, "/", 200).await?;
    cleaned(&t).await
}

async fn wrong_service_says_so_and_breaks_nothing(t: Ctx) -> Result<()> {
    let ns = prepared(&t).await?;
    t.apply(&request("good", &ns, "  - backends: [{service: web, port: 80}]\n")).await?;
    let routes = "  - backends: [{service: web, port: 80}]
  - {path: {value: /broken}, backends: [{service: nobody, port: 80}]}
";
    t.apply(&request("half", &ns, routes)).await?;
    field_is(&t, "ingressrequest/half", &condition("ResolvedRefs", "reason"), "ServiceNotFound").await?;
    field_is(&t, "ingressrequest/half", &condition("Ready", "status"), "False").await?;
    let message = t.field("ingressrequest/half", &condition("ResolvedRefs", "message")).await?;
    ensure!(message.contains("nobody"), "the message does not name the Service: {message}");
    let half = format!("half.{ns}.example.org");
    status_is(&t, &half, "/", 200).await?;
    // Not the wider route's: that might be somebody else's.
    status_is(&t, &half, "/broken/x", 503).await?;
    status_is(&t, &format!("good.{ns}.example.org"), "/", 200).await?;
    field_is(&t, "ingressrequest/good", &condition("Ready", "status"), "True").await?;
    // When the Service comes, the route serves by itself.
    t.apply(&service("nobody", 80).replace("app: nobody", "app: web")).await?;
    status_is(&t, &half, "/broken/x", 200).await?;
    field_is(&t, "ingressrequest/half", &condition("Ready", "status"), "True").await?;
    cleaned(&t).await
}

async fn host_that_is_not_allowed(t: Ctx) -> Result<()> {
    let ns = prepared(&t).await?;
    let route = "  - backends: [{service: web, port: 80}]\n";
    t.apply(&request("good", &ns, route)).await?;
    let foreign = request("bad", &ns, route).replace(&format!("bad.{ns}.example.org"), "bank.example.net");
    t.apply(&foreign).await?;
    field_is(&t, "ingressrequest/bad", &condition("Accepted", "reason"), "HostNotAllowed").await?;
    let message = t.field("ingressrequest/bad", &condition("Accepted", "message")).await?;
    ensure!(message.contains("bank.example.net"), "the message does not name the host: {message}");
    status_is(&t, "bank.example.net", "/", 404).await?;
    status_is(&t, &format!("good.{ns}.example.org"), "/", 200).await?;
    cleaned(&t).await
}

async fn missing_gateway_and_its_arrival(t: Ctx) -> Result<()> {
    let ns = prepared(&t).await?;
    t.kubectl(&["delete", "gateways.networking.istio.io", "edge"]).await?;
    t.apply(&request("web", &ns, "  - backends: [{service: web, port: 80}]\n")).await?;
    field_is(&t, "ingressrequest/web", &condition("Ready", "reason"), "GatewayNotFound").await?;
    field_is(&t, &format!("gatewaybinding/{ns}"), &condition("Ready", "reason"), "GatewayNotFound").await?;
    let message = t.field("ingressrequest/web", &condition("Ready", "message")).await?;
    ensure!(message.contains(&format!("{ns}/edge")), "the message does not name the Gateway: {message}");
    t.apply(&binding(&ns)).await?;
    status_is(&t, &format!("web.{ns}.example.org"), "/", 200).await?;
    field_is(&t, &format!("gatewaybinding/{ns}"), &condition("Ready", "status"), "True").await?;
    cleaned(&t).await
}

async fn a_host_has_one_owner_and_an_heir(t: Ctx) -> Result<()> {
    let ns = prepared(&t).await?;
    let host = format!("web.{ns}.example.org");
    t.apply(&request("web", &ns, "  - backends: [{service: web, port: 80}]\n")).await?;
    status_is(&t, &host, "/", 200).await?;
    let other = format!("{ns}-x");
    t.kubectl(&["create", "namespace", &other]).await?;
    // Age has a resolution of a second; the younger request must be younger.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    let theirs = request("theirs", &ns, "  - backends: [{service: web, port: 80}]\n")
        .replace("name: theirs", &format!("name: theirs, namespace: {other}"))
        .replace(&format!("theirs.{ns}"), &format!("web.{ns}"));
    let pod = echo_pod("heir", "").replace("labels: {app: heir}", "labels: {app: web}");
    let app = format!("{}---\n{pod}", service("web", 80));
    let app = app.replace("metadata: {name: web}", &format!("metadata: {{name: web, namespace: {other}}}"));
    let app = app.replace("  name: heir\n", &format!("  name: heir\n  namespace: {other}\n"));
    let apply = ["--namespace", other.as_str(), "apply", "-f", "-"];
    t.kubectl_with(&apply, Some(&app)).await?;
    t.kubectl_with(&apply, Some(&theirs)).await?;
    let of_theirs = |field: &str| condition("Accepted", field);
    let get = |path: String| {
        let (t, other) = (t.clone(), other.clone());
        async move {
            t.kubectl(&[
                "--namespace",
                &other,
                "get",
                "ingressrequest",
                "theirs",
                "-o",
                &format!("jsonpath={path}"),
            ])
            .await
        }
    };
    eventually("the younger is told by whom it lost", 40, || async {
        let reason = get(of_theirs("reason")).await?;
        ensure!(reason == "HostConflict", "the reason is {reason}");
        let message = get(of_theirs("message")).await?;
        ensure!(message.contains(&format!("{ns}/web")), "the message names nobody: {message}");
        Ok(())
    })
    .await?;
    ensure!(status_is(&t, &host, "/", 200).await?.contains("\"web\""), "the younger took the host over");
    t.kubectl(&["delete", "ingressrequest", "web"]).await?;
    eventually("the heir serves", 40, || async {
        let body = curl::get(gateway_address(&t).await?, &host, "/").await?.body;
        ensure!(body.contains("\"heir\""), "the answer is {body}");
        Ok(())
    })
    .await?;
    t.kubectl(&["delete", "namespace", &other, "--wait=false"]).await?;
    cleaned(&t).await
}

async fn foreign_objects_are_left_alone(t: Ctx) -> Result<()> {
    let ns = prepared(&t).await?;
    t.apply(&request("web", &ns, "  - backends: [{service: web, port: 80}]\n")).await?;
    let host = format!("web.{ns}.example.org");
    status_is(&t, &host, "/", 200).await?;
    let find = format!("{{.items[?(@.spec.hosts[0]==\"{host}\")].metadata.name}}");
    let name = t.kubectl(&["-n", OWN, "get", "virtualservices", "-o", &format!("jsonpath={find}")]).await?;
    ensure!(!name.is_empty(), "no VirtualService of ours serves {host}");
    // Ours, changed by hand: put back.
    t.kubectl(&[
        "-n",
        OWN,
        "patch",
        "virtualservice",
        &name,
        "--type=json",
        "-p",
        "[{\"op\":\"replace\",\"path\":\"/spec/hosts/0\",\"value\":\"stolen.example.org\"}]",
    ])
    .await?;
    eventually("the change is put back", 40, || async {
        let hosts = t
            .kubectl(&["-n", OWN, "get", "virtualservice", &name, "-o", "jsonpath={.spec.hosts[0]}"])
            .await?;
        ensure!(hosts == host, "it serves {hosts}");
        Ok(())
    })
    .await?;
    // Gone, and somebody else's under its name: left alone and said.
    t.kubectl(&["delete", "ingressrequest", "web"]).await?;
    eventually("our object is gone", 40, || async {
        let left = t
            .kubectl(&["-n", OWN, "get", "virtualservice", &name, "--ignore-not-found", "-o", "name"])
            .await?;
        ensure!(left.is_empty(), "{left} is still there");
        Ok(())
    })
    .await?;
    let theirs = format!(
        "apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: {name}, namespace: {OWN}}}
spec:
  hosts: [theirs.example.org]
  http: [{{route: [{{destination: {{host: theirs}}}}]}}]
"
    );
    t.kubectl_with(&["-n", OWN, "apply", "-f", "-"], Some(&theirs)).await?;
    t.apply(&request("web", &ns, "  - backends: [{service: web, port: 80}]\n")).await?;
    field_is(&t, "ingressrequest/web", &condition("Ready", "reason"), "ObjectConflict").await?;
    let message = t.field("ingressrequest/web", &condition("Ready", "message")).await?;
    ensure!(message.contains(&name), "the message does not name the object: {message}");
    let hosts =
        t.kubectl(&["-n", OWN, "get", "virtualservice", &name, "-o", "jsonpath={.spec.hosts[0]}"]).await?;
    ensure!(hosts == "theirs.example.org", "their object was changed to {hosts}");
    t.kubectl(&["-n", OWN, "delete", "virtualservice", &name]).await?;
    status_is(&t, &host, "/", 200).await?;
    cleaned(&t).await
}
