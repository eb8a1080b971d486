//! `istio-integrator compile`: what requests in files turn into, without a cluster.

mod documents;

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use mesh_api::ConditionType;
use mesh_api::istio::{EnvoyFilter, VirtualService};
use routes::{Finding, Output, Settings};

use documents::Documents;

/// Arguments of `istio-integrator compile`.
#[derive(Debug, Args)]
#[command(after_help = "\
Reads GatewayBindings, IngressRequests, AuthProviders, ReferenceGrants, ServiceEntries, Services, Namespaces (for their labels) and Gateways of networking.istio.io.
Other kinds of other groups are named and not looked at. VirtualServices and the EnvoyFilters of guard chains go to
standard output, verdicts to standard error, as if every gateway pod held them. Tokens and markers are derived from a key
that is no secret: the integrator derives others from its own. The exit status is 1 if a host, a path or a Service
of a request is refused, or a binding is.

Where a gateway's pods run cannot be seen in files, so the routes are exported to all namespaces; `run` exports them
to those of the pods alone. Of objects without creationTimestamp the one that stands first counts as the oldest.

Examples:
  Try a request against what is in the cluster:
    kubectl get gatewaybindings,services,namespaces,gateways.networking.istio.io -A -o yaml > cluster.yaml
    istio-integrator compile -f cluster.yaml -f request.yaml
  From standard input:
    istio-integrator compile -f -")]
pub(crate) struct CompileArgs {
    /// A file of YAML documents, or `-` for standard input; may be given several times
    #[arg(short, long = "filename", value_name = "FILE", required = true)]
    filenames: Vec<PathBuf>,

    /// The namespace that the integrator runs in and writes to
    #[arg(long, env = "POD_NAMESPACE", default_value = "istio-integrator")]
    namespace: String,

    /// The root namespace of the mesh, which guard chains are for
    #[arg(long, env = "ISTIO_INTEGRATOR_ROOT_NAMESPACE", default_value = "istio-system")]
    root_namespace: String,

    /// The domain of the cluster's Services
    #[arg(long, env = "ISTIO_INTEGRATOR_CLUSTER_DOMAIN", default_value = "cluster.local")]
    cluster_domain: String,
}

/// Compiles the files and prints objects and verdicts.
pub(crate) fn run(args: CompileArgs) -> anyhow::Result<ExitCode> {
    let mut documents = Documents::default();
    for path in &args.filenames {
        documents.read(&path.display().to_string(), &text(path)?)?;
    }
    let settings = Settings::new(args.namespace, args.cluster_domain);
    let (output, chains) = documents.compile(&settings, &args.root_namespace);
    io::stdout().lock().write_all(objects(&output, &chains)?.as_bytes()).context("standard output")?;
    let mut notes = verdicts(&output);
    if !documents.ignored().is_empty() {
        // Writing to a String cannot fail.
        let _ = writeln!(notes, "not looked at: {}", documents.ignored().join(", "));
    }
    io::stderr().lock().write_all(notes.as_bytes()).context("standard error")?;
    Ok(if refused(&output) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn text(path: &Path) -> anyhow::Result<String> {
    if path == Path::new("-") {
        let mut text = String::new();
        io::stdin().lock().read_to_string(&mut text).context("standard input")?;
        return Ok(text);
    }
    fs::read_to_string(path).with_context(|| path.display().to_string())
}

fn refused(output: &Output) -> bool {
    output.requests.iter().any(routes::RequestVerdict::refused)
        || output.bindings.iter().any(|binding| !binding.accepted.holds())
}

fn objects(output: &Output, chains: &[EnvoyFilter]) -> anyhow::Result<String> {
    let routes: Vec<&VirtualService> = output.virtual_services.iter().map(AsRef::as_ref).collect();
    let mut parts = Vec::new();
    if !routes.is_empty() {
        parts.push(serde_saphyr::to_string_multiple(&routes).context("the VirtualServices as YAML")?);
    }
    if !chains.is_empty() {
        parts.push(serde_saphyr::to_string_multiple(chains).context("the EnvoyFilters as YAML")?);
    }
    Ok(parts.join("---\n"))
}

/// A table of all verdicts, and below it what is wrong, in full.
fn verdicts(output: &Output) -> String {
    let mut rows = vec![["KIND", "OBJECT", "READY", "REASON", "URL"].map(str::to_owned)];
    let mut notes = String::new();
    for binding in &output.bindings {
        rows.push(row("GatewayBinding", binding.name.clone(), &binding.ready, ""));
        note(&mut notes, &binding.name, binding.conditions());
    }
    for provider in &output.providers {
        let object = provider.key.to_string();
        note(&mut notes, &object, provider.conditions());
        rows.push(row("AuthProvider", object, &provider.ready, ""));
    }
    for request in &output.requests {
        let object = request.key.to_string();
        note(&mut notes, &object, request.conditions());
        rows.push(row(
            "IngressRequest",
            object,
            &request.ready,
            request.urls.first().map_or("", String::as_str),
        ));
    }
    let mut widths = [0; 5];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.len());
        }
    }
    let mut table = String::new();
    for row in rows {
        let cells: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        table.push_str(cells.join("  ").trim_end());
        table.push('\n');
    }
    table + &notes
}

fn row(kind: &str, object: String, ready: &Finding, url: &str) -> [String; 5] {
    let ready_text = ready.status.as_str().to_owned();
    [kind.to_owned(), object, ready_text, ready.reason.to_string(), url.to_owned()]
}

/// What does not hold. Ready repeats the first of the others, unless the gateway is at fault.
fn note<const N: usize>(notes: &mut String, object: &str, conditions: [(ConditionType, &Finding); N]) {
    let mut told: Vec<&str> = Vec::new();
    for (condition, finding) in conditions.iter().filter(|(_, finding)| !finding.holds()) {
        if !told.contains(&finding.message.as_str()) {
            // Writing to a String cannot fail.
            let _ = writeln!(
                notes,
                "{object}: {condition} is {} ({}): {}",
                finding.status.as_str(),
                finding.reason,
                finding.message
            );
            told.push(&finding.message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORLD: &str = "
apiVersion: integrator.istio-operators.io/v1alpha1
kind: GatewayBinding
metadata: {name: public}
spec:
  default: true
  gateway: {type: IstioGateway, istioGateway: {namespace: istio-system, name: public}}
  namespaces: {from: All}
  hosts: {domain: apps.example.com}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: public, namespace: istio-system}
spec: {selector: {istio: gw}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}
---
{apiVersion: v1, kind: Service, metadata: {name: shop, namespace: a}, spec: {ports: [{port: 80}]}}
---
";

    fn compiled(request: &str) -> Output {
        let mut documents = Documents::default();
        documents.read("test", &format!("{WORLD}{request}")).unwrap();
        let settings = Settings::new("istio-integrator", "cluster.local");
        documents.compile(&settings, "istio-system").0
    }

    fn request(spec: &str) -> String {
        format!(
            "{{apiVersion: integrator.istio-operators.io/v1alpha1, kind: IngressRequest, \
             metadata: {{name: shop, namespace: a}}, spec: {spec}}}"
        )
    }

    #[test]
    fn the_example_of_the_tutorial() {
        let mut documents = Documents::default();
        documents.read("first-route.yaml", include_str!("../../../docs/examples/first-route.yaml")).unwrap();
        let settings = Settings::new("istio-integrator", "cluster.local");
        let (output, _) = documents.compile(&settings, "istio-system");
        assert!(!refused(&output));
        assert_eq!(output.requests[0].urls, ["http://shop.example.com"]);
        assert_eq!(documents.ignored(), ["Deployment of apps/v1 (shop)"]);
    }

    #[test]
    fn the_smallest_request() {
        let output = compiled(&request("{routes: [{backends: [{service: shop, port: 80}]}]}"));
        assert!(!refused(&output));
        assert_eq!(
            objects(&output, &[]).unwrap(),
            "\
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata:
  annotations:
    integrator.istio-operators.io/gateway: istio-system/public
    integrator.istio-operators.io/host: shop.a.apps.example.com
  labels:
    app.kubernetes.io/managed-by: istio-integrator
  name: shop-a-apps-example-com-37f620f21de6f5da855f
  namespace: istio-integrator
spec:
  hosts:
  - shop.a.apps.example.com
  gateways:
  - istio-system/public
  http:
  - name: ii.open.9be74bb5d663dce2661a
    match:
    - uri:
        exact: /.well-known/istio-integrator/41c3d933b148eda0fab027085d0af436
    directResponse:
      status: 200
      body:
        string: af003ab2373ddeca9a26920644ac87d6
  - name: ii.open.43321754ec2fa0a57aa7
    match:
    - uri:
        prefix: /
    route:
    - destination:
        host: shop.a.svc.cluster.local
        port:
          number: 80
  exportTo:
  - \"*\"
"
        );
        assert_eq!(
            verdicts(&output),
            "\
KIND            OBJECT  READY  REASON  URL
GatewayBinding  public  True   Ready
IngressRequest  a/shop  True   Ready   http://shop.a.apps.example.com
"
        );
    }

    #[test]
    fn a_login_brings_its_chain() {
        let provider = "{apiVersion: integrator.istio-operators.io/v1alpha1, kind: AuthProvider, metadata: {name: sso, \
                        namespace: a}, spec: {type: ExtAuthz, extAuthz: {service: shop, port: 80}}}";
        let spec = "{auth: {type: Provider, providerRef: {name: sso}}, routes: [{backends: [{service: shop, port: 80}]}]}";
        let mut documents = Documents::default();
        documents.read("test", &format!("{WORLD}{provider}\n---\n{}", request(spec))).unwrap();
        let settings = Settings::new("istio-integrator", "cluster.local");
        let (output, chains) = documents.compile(&settings, "mesh-root");
        assert_eq!(output.requests[0].ready.reason, mesh_api::Reason::Ready);
        assert_eq!(chains.len(), 1);
        assert_eq!(chains[0].metadata.namespace.as_deref(), Some("mesh-root"));
        assert!(routes::guard::validate_chain(&chains[0]).is_empty());
        let text = objects(&output, &chains).unwrap();
        assert!(text.contains("kind: EnvoyFilter") && text.contains("name: ii.leave"), "{text}");
    }

    #[test]
    fn a_refusal_is_told_once_and_counts() {
        let output =
            compiled(&request("{hosts: [x.org], routes: [{backends: [{service: gone, port: 80}]}]}"));
        assert!(refused(&output));
        assert_eq!(objects(&output, &[]).unwrap(), "");
        let text = verdicts(&output);
        assert!(text.contains("IngressRequest  a/shop  False  HostNotAllowed\n"), "{text}");
        assert_eq!(text.matches("does not allow host x.org").count(), 1, "{text}");
        assert!(
            text.contains("a/shop: ResolvedRefs is False (ServiceNotFound): Service a/gone does not exist"),
            "{text}"
        );
    }
}
