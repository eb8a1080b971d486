//! What only a look at the whole cluster can find wrong, each with a message that names object, field and remedy. What the
//! API server itself refuses is in `integrator_admission`.

use anyhow::{Result, ensure};
use testbed::Session;
use testbed::harness::{eventually, run_command};

use crate::integrator::condition;

fn gateway(name: &str, selector: &str, server: &str) -> String {
    format!(
        "---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {{name: {name}, namespace: wrong}}
spec: {{selector: {{{selector}}}, servers: [{{{server}}}]}}
"
    )
}

fn binding(name: &str, gateway: &str, rest: &str) -> String {
    format!(
        "---
apiVersion: integrator.istio-operators.io/v1alpha1
kind: GatewayBinding
metadata: {{name: {name}}}
spec:
  gateway: {{type: IstioGateway, istioGateway: {{namespace: wrong, name: {gateway}}}}}
  hosts:
    domain: wrong.example.org
    allowed: [{{pattern: \"*.wrong.example.org\", namespaces: {{from: All}}}}]
  {rest}
"
    )
}

/// A request named and hosted by `name`; `spec` is YAML flow style of what it has beside hosts and routes.
fn request(name: &str, spec: &str, backend: &str) -> String {
    format!(
        "---
apiVersion: integrator.istio-operators.io/v1alpha1
kind: IngressRequest
metadata: {{name: {name}, namespace: wrong}}
spec: {{hosts: [{name}.wrong.example.org], {spec}routes: [{{backends: [{backend}]}}]}}
"
    )
}

const WEB: &str = "{service: web, port: 80}";

/// Goes through all that can be wrong, on a cluster that has Istio and the integrator and nothing of their users yet, and
/// leaves it so.
pub(crate) async fn every_wrong_input_is_told(session: &Session) -> Result<()> {
    let kubectl = |args: &[&str]| run_command(session.kubectl(args), None);
    let apply = |yaml: String| run_command(session.kubectl(["apply", "-f", "-"]), Some(yaml));
    kubectl(&["create", "namespace", "wrong"]).await?;
    kubectl(&["-n", "wrong", "create", "service", "clusterip", "web", "--tcp=80:8080"]).await?;
    kubectl(&["-n", "wrong", "create", "service", "externalname", "away", "--external-name=example.net"])
        .await?;

    apply(request("alone", "", WEB) + &request("lost", "bindingRef: {name: nobody}, ", WEB)).await?;
    told(session, "alone", "Accepted", "NoBinding", &["namespace wrong", "set spec.bindingRef.name"]).await?;
    told(
        session,
        "lost",
        "Accepted",
        "BindingNotFound",
        &["GatewayBinding nobody does not exist: correct spec.bindingRef.name"],
    )
    .await?;

    let http =
        |hosts: &str| format!("port: {{number: 80, name: http, protocol: HTTP}}, hosts: [\"{hosts}\"]");
    let (pods, any) = ("istio: ingressgateway", http("*/*.wrong.example.org"));
    let gateways = [
        gateway("edge", pods, &any),
        gateway("podless", "nobody: has-it", &any),
        gateway("demanding", pods, &http("wrong/*.wrong.example.org")),
        gateway("raw", pods, "port: {number: 9000, name: tcp, protocol: TCP}, hosts: [\"*\"]"),
    ];
    let all = "namespaces: {from: All}";
    let bindings = [
        binding("podless", "podless", all),
        binding("demanding", "demanding", all),
        binding("raw", "raw", all),
        binding("absent", "absent", all),
        binding("private", "edge", "namespaces: {from: Selector, selector: {matchLabels: {team: other}}}"),
        binding("strict", "edge", "namespaces: {from: All}\n  auth: {required: true}"),
    ];
    apply(gateways.concat() + &bindings.concat()).await?;
    let none = "auth: {type: None}, ";
    let of = |name: &str| request(name, &format!("bindingRef: {{name: {name}}}, {none}"), WEB);
    let requests = [
        of("podless"),
        of("demanding"),
        of("raw"),
        of("absent"),
        of("private"),
        of("strict"),
        request("nobody", none, "{service: nobody, port: 80}"),
        request("port", none, "{service: web, port: 81}"),
        request("away", none, "{service: away, port: 80}"),
        request("unknown", "auth: {type: Provider, providerRef: {name: nobody}}, ", WEB),
        request("elsewhere", none, WEB).replace("elsewhere.wrong.example.org", "bank.example.net"),
    ];
    apply(binding("default-a", "edge", "namespaces: {from: All}\n  default: true")).await?;
    apply(binding("default-b", "edge", "namespaces: {from: All}\n  default: true")).await?;
    apply(requests.concat()).await?;

    for (name, kind, reason, parts) in [
        (
            "podless",
            "Ready",
            "GatewayWithoutPods",
            &["Gateway wrong/podless", "spec.selector", "deploy a gateway"][..],
        ),
        (
            "demanding",
            "Accepted",
            "GatewayNamespaceMismatch",
            &["Gateway wrong/demanding", "add istio-integrator/*.wrong.example.org to servers[].hosts"],
        ),
        ("raw", "Accepted", "GatewayWithoutHttp", &["Gateway wrong/raw", "add one to servers[]"]),
        (
            "absent",
            "Ready",
            "GatewayNotFound",
            &["Gateway wrong/absent", "create it or correct spec.gateway.istioGateway"],
        ),
        (
            "private",
            "Accepted",
            "NamespaceNotAllowed",
            &["GatewayBinding private", "have it admitted in spec.namespaces"],
        ),
        (
            "strict",
            "Accepted",
            "AuthRequired",
            &["binding strict", "spec.auth.type", "set it to Inherit or Provider"],
        ),
        (
            "nobody",
            "ResolvedRefs",
            "ServiceNotFound",
            &["Service wrong/nobody", "correct backends[].service"],
        ),
        ("port", "ResolvedRefs", "PortNotFound", &["Service wrong/web", "81", "correct backends[].port"]),
        (
            "away",
            "ResolvedRefs",
            "UnsupportedService",
            &["Service wrong/away", "ExternalName", "in backends[].service"],
        ),
        ("unknown", "ResolvedRefs", "ProviderNotFound", &["wrong/nobody", "spec.auth.providerRef"]),
        ("elsewhere", "Accepted", "HostNotAllowed", &["bank.example.net", "use one in spec.hosts"]),
        ("alone", "Accepted", "AmbiguousDefault", &["default-a", "default-b", "set spec.bindingRef.name"]),
    ] {
        told(session, name, kind, reason, parts).await?;
    }
    let names = ["podless", "demanding", "raw", "absent", "private", "strict", "default-a", "default-b"];
    kubectl(&[&["delete", "gatewaybindings"], &names[..]].concat()).await?;
    kubectl(&["delete", "namespace", "wrong"]).await?;
    Ok(())
}

/// Waits until a condition of a request has this reason, and a message that holds all of this.
async fn told(session: &Session, name: &str, kind: &str, reason: &str, parts: &[&str]) -> Result<()> {
    eventually(&format!("{name} to be told {reason}: {}", parts.join(" … ")), 60, || async {
        let path = format!("jsonpath={}: {}", condition(kind, "reason"), condition(kind, "message"));
        let object = format!("ingressrequest/{name}");
        let found = run_command(session.kubectl(["-n", "wrong", "get", &object, "-o", &path]), None).await?;
        let whole =
            found.starts_with(&format!("{reason}: ")) && parts.iter().all(|part| found.contains(part));
        ensure!(whole, "{found}");
        Ok(())
    })
    .await
}
