//! What only a look at the whole cluster can find wrong, each with a message that names object, field and remedy. What the
//! API server itself refuses is in `integrator_admission`.

use anyhow::{Result, ensure};
use testbed::Session;
use testbed::harness::{eventually, run_command};

/// Gateways and bindings that lead nowhere, each in its own way, and two that are both a default.
const BINDINGS: &str = "
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: edge, namespace: wrong}
spec:
  selector: {istio: ingressgateway}
  servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: [\"*/*.wrong.example.org\"]}]
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: podless, namespace: wrong}
spec:
  selector: {nobody: has-it}
  servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: [\"*/*.wrong.example.org\"]}]
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: demanding, namespace: wrong}
spec:
  selector: {istio: ingressgateway}
  servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: [\"wrong/*.wrong.example.org\"]}]
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: raw, namespace: wrong}
spec:
  selector: {istio: ingressgateway}
  servers: [{port: {number: 9000, name: tcp, protocol: TCP}, hosts: [\"*\"]}]
";

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
    told(session, "alone", "Accepted", "NoBinding", "set spec.bindingRef.name").await?;
    told(
        session,
        "lost",
        "Accepted",
        "BindingNotFound",
        "GatewayBinding nobody does not exist: correct spec.bindingRef.name",
    )
    .await?;

    let all = "namespaces: {from: All}";
    let bindings = [
        binding("podless", "podless", all),
        binding("demanding", "demanding", all),
        binding("raw", "raw", all),
        binding("absent", "absent", all),
        binding("private", "edge", "namespaces: {from: Selector, selector: {matchLabels: {team: other}}}"),
        binding("strict", "edge", "namespaces: {from: All}\n  auth: {required: true}"),
    ];
    apply(BINDINGS.to_owned() + &bindings.concat()).await?;
    let of = |name: &str, spec: &str, backend: &str| {
        request(name, &format!("bindingRef: {{name: {name}}}, {spec}"), backend)
    };
    let edge = |name: &str, spec: &str, backend: &str| request(name, &format!("{spec}, "), backend);
    let none = "auth: {type: None}, ";
    let requests = [
        of("podless", none, WEB),
        of("demanding", none, WEB),
        of("raw", none, WEB),
        of("absent", none, WEB),
        of("private", none, WEB),
        of("strict", none, WEB),
        request("nobody", none, "{service: nobody, port: 80}"),
        request("port", none, "{service: web, port: 81}"),
        request("away", none, "{service: away, port: 80}"),
        edge("unknown", "auth: {type: Provider, providerRef: {name: nobody}}", WEB),
        request("elsewhere", none, WEB).replace("elsewhere.wrong.example.org", "bank.example.net"),
    ];
    // The older of the two by name, should both be made in one second.
    apply(binding("default-a", "edge", "namespaces: {from: All}\n  default: true")).await?;
    apply(binding("default-b", "edge", "namespaces: {from: All}\n  default: true")).await?;
    apply(requests.concat()).await?;

    for (name, condition, reason, parts) in [
        ("podless", "Ready", "GatewayWithoutPods", &["Gateway wrong/podless", "spec.selector"][..]),
        (
            "demanding",
            "Accepted",
            "GatewayNamespaceMismatch",
            &["Gateway wrong/demanding", "istio-integrator/*.wrong.example.org", "servers[].hosts"],
        ),
        ("raw", "Accepted", "GatewayWithoutHttp", &["Gateway wrong/raw", "servers[]"]),
        ("absent", "Ready", "GatewayNotFound", &["Gateway wrong/absent", "create it"]),
        ("private", "Accepted", "NamespaceNotAllowed", &["GatewayBinding private", "spec.namespaces"]),
        ("strict", "Accepted", "AuthRequired", &["binding strict", "spec.auth.type"]),
        ("nobody", "ResolvedRefs", "ServiceNotFound", &["wrong/nobody", "backends[].service"]),
        ("port", "ResolvedRefs", "PortNotFound", &["wrong/web", "81", "backends[].port"]),
        ("away", "ResolvedRefs", "UnsupportedService", &["wrong/away", "ExternalName"]),
        ("unknown", "ResolvedRefs", "ProviderNotFound", &["wrong/nobody", "spec.auth.providerRef"]),
        ("elsewhere", "Accepted", "HostNotAllowed", &["bank.example.net", "spec.hosts"]),
        ("alone", "Accepted", "AmbiguousDefault", &["default-a", "default-b", "spec.bindingRef.name"]),
    ] {
        for part in parts {
            told(session, name, condition, reason, part).await?;
        }
    }
    let names = ["podless", "demanding", "raw", "absent", "private", "strict", "default-a", "default-b"];
    kubectl(&[&["delete", "gatewaybindings"], &names[..]].concat()).await?;
    kubectl(&["delete", "namespace", "wrong"]).await?;
    Ok(())
}

/// Waits until a condition of a request has this reason, and a message that holds this.
async fn told(session: &Session, name: &str, condition: &str, reason: &str, part: &str) -> Result<()> {
    eventually(&format!("{name} to be told {reason}: … {part} …"), 60, || async {
        let of = |field: &str| format!("{{.status.conditions[?(@.type==\"{condition}\")].{field}}}");
        let path = format!("jsonpath={}: {}", of("reason"), of("message"));
        let object = format!("ingressrequest/{name}");
        let found = run_command(session.kubectl(["-n", "wrong", "get", &object, "-o", &path]), None).await?;
        ensure!(found.starts_with(&format!("{reason}: ")) && found.contains(part), "{found}");
        Ok(())
    })
    .await
}
