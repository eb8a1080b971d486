//! istio-integrator at rest: no change, no write; a restart is no change.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use testbed::audit::{AuditLog, Filter, service_account};
use testbed::harness::{Ctx, Test, eventually};
use testbed::{Options, Session, curl, test};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        test!(idle_for_a_minute_writes_nothing).limit_seconds(360),
        test!(killed_and_restarted_writes_nothing).limit_seconds(300),
    ]
}

const OWN: &str = "istio-integrator";
const REQUESTS: usize = 200;
/// How many objects that are no business of ours change.
const UNRELATED: usize = 100;

fn objects() -> String {
    let mut text = String::from(
        "apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: edge, namespace: default}
spec:
  selector: {istio: ingressgateway}
  servers:
  - port: {number: 80, name: http, protocol: HTTP}
    hosts: [\"*.example.org\"]
---
apiVersion: integrator.istio-operators.io/v1alpha1
kind: GatewayBinding
metadata: {name: edge}
spec:
  default: true
  gateway: {type: IstioGateway, istioGateway: {namespace: default, name: edge}}
  namespaces: {from: All}
  hosts: {domain: example.org}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  selector: {app: web}
  ports: [{port: 80}]
---
apiVersion: integrator.istio-operators.io/v1alpha1
kind: AuthProvider
metadata: {name: web, namespace: default}
spec: {type: ExtAuthz, extAuthz: {service: web, port: 80}}
",
    );
    for n in 0..REQUESTS {
        // The last one is refused: a condition must not be written again and again either.
        let service = if n + 1 == REQUESTS { "missing" } else { "web" };
        let auth = if n % 10 == 5 { "{type: Provider, providerRef: {name: web}}" } else { "{type: None}" };
        let _ = write!(
            text,
            "---
apiVersion: integrator.istio-operators.io/v1alpha1
kind: IngressRequest
metadata: {{name: r{n}, namespace: default}}
spec:
  auth: {auth}
  routes: [{{backends: [{{service: {service}, port: 80}}]}}]
"
        );
    }
    text
}

async fn kubectl(own: &Session, args: &[&str], input: Option<String>) -> Result<String> {
    testbed::harness::run_command(own.kubectl(args), input).await
}

/// Istio's CRDs and a gateway's pod labels are all it needs; the operator resyncs every 5 seconds.
async fn settled(own: &Session) -> Result<()> {
    let (session, blocking) = (own.clone(), own.clone());
    tokio::task::spawn_blocking(move || testbed::istio::install(&blocking, &[])).await??;
    tokio::task::spawn_blocking(move || testbed::operators::deploy_integrator(&session)).await??;
    let env = ["-n", OWN, "set", "env", "deployment/istio-integrator", "ISTIO_INTEGRATOR_RESYNC_INTERVAL=5s"];
    kubectl(own, &env, None).await?;
    let rollout = ["-n", OWN, "rollout", "status", "deployment/istio-integrator", "--timeout=60s"];
    kubectl(own, &rollout, None).await?;
    kubectl(own, &["apply", "-f", "-"], Some(objects())).await?;
    eventually("every request has its verdict", 120, || async {
        let path = "jsonpath={.items[*].status.conditions[?(@.type==\"Ready\")].reason}";
        let reasons = kubectl(own, &["get", "ingressrequests", "-o", path], None).await?;
        let ready = reasons.split_whitespace().filter(|r| *r == "Ready").count();
        ensure!(ready == REQUESTS - 1 && reasons.contains("ServiceNotFound"), "{ready} are ready: {reasons}");
        Ok(())
    })
    .await?;
    // Old pods of the rollout finish; Events are sent one by one, on a busy machine for longer than the work took.
    let (pause, limit) = (Duration::from_secs(8), Duration::from_mins(1));
    AuditLog::new(own.audit_log()).quiet(&own.client().await?, &writes_of_ours(), pause, limit).await?;
    Ok(())
}

fn writes_of_ours() -> Filter {
    Filter::user(&service_account(OWN, "istio-integrator")).except_renewals_of(OWN, "istio-integrator")
}

/// How often each kind's objects were reconciled, over all replicas.
async fn reconciled(own: &Session) -> Result<BTreeMap<String, u64>> {
    let path = "jsonpath={.items[*].status.podIP}";
    let label = "app.kubernetes.io/name=istio-integrator";
    let pods = kubectl(own, &["-n", OWN, "get", "pods", "-l", label, "-o", path], None).await?;
    let mut counts = BTreeMap::new();
    for ip in pods.split_whitespace() {
        let text = curl::get(format!("{ip}:8080").parse()?, "metrics", "/metrics").await?.body;
        for line in text.lines().filter(|l| l.starts_with("istio_integrator_reconciled_objects_total")) {
            let (name, count) = line.rsplit_once(' ').context("a metric line")?;
            let kind = name.split('"').nth(1).context("the kind label")?.to_owned();
            *counts.entry(kind).or_default() += count.parse::<u64>()?;
        }
    }
    Ok(counts)
}

async fn idle_for_a_minute_writes_nothing(t: Ctx) -> Result<()> {
    t.own_cluster(Options { progress: false, ..Options::default() }, |own| async move {
        settled(&own).await?;
        let client = own.client().await?;
        let log = AuditLog::new(own.audit_log());
        let (mark, before) = (log.mark(&client).await?, reconciled(&own).await?);
        tokio::time::sleep(Duration::from_mins(1)).await;
        let writes = log.writes_since(&client, mark, &writes_of_ours()).await?;
        ensure!(writes.is_empty(), "in an idle minute it wrote: {writes:#?}");
        let after = reconciled(&own).await?;
        for (kind, objects) in [("IngressRequest", REQUESTS as u64), ("GatewayBinding", 1)] {
            let count = after.get(kind).unwrap_or(&0) - before.get(kind).unwrap_or(&0);
            // Every 5 seconds for 60; one round may lie outside at either end.
            ensure!(
                count >= objects * 10,
                "{kind}: only {count} reconciliations of {objects} objects in a minute"
            );
        }
        unrelated(&own, &log, &client).await
    })
    .await
}

/// Services, Secrets and pods come, change and go, and none of them is written for.
async fn unrelated(own: &Session, log: &AuditLog, client: &kube::Client) -> Result<()> {
    let mark = log.mark(client).await?;
    kubectl(own, &["create", "namespace", "unrelated"], None).await?;
    let mut objects = String::new();
    for n in 0..UNRELATED {
        let object = match n % 3 {
            0 => format!("kind: Service\nmetadata: {{name: s{n}}}\nspec: {{ports: [{{port: 80}}]}}"),
            1 => format!("kind: Secret\nmetadata: {{name: s{n}}}\nstringData: {{key: value}}"),
            // Nothing has its image, so that its status changes again and again.
            _ => format!(
                "kind: Pod\nmetadata: {{name: p{n}}}\nspec: {{containers: [{{name: a, image: none}}]}}"
            ),
        };
        let _ = writeln!(objects, "---\napiVersion: v1\n{object}");
    }
    let all = ["-n", "unrelated"];
    kubectl(own, &[&all[..], &["apply", "-f", "-"]].concat(), Some(objects)).await?;
    let kinds = "services,secrets,pods";
    kubectl(own, &[&all[..], &["label", kinds, "--all", "colour=blue"]].concat(), None).await?;
    kubectl(own, &[&all[..], &["delete", kinds, "--all", "--wait=false"]].concat(), None).await?;
    tokio::time::sleep(Duration::from_secs(6)).await;
    let writes = log.writes_since(client, mark, &writes_of_ours()).await?;
    ensure!(writes.is_empty(), "for objects that are no business of its own it wrote: {writes:#?}");
    Ok(())
}

async fn killed_and_restarted_writes_nothing(t: Ctx) -> Result<()> {
    t.own_cluster(Options { progress: false, ..Options::default() }, |own| async move {
        settled(&own).await?;
        let client = own.client().await?;
        let log = AuditLog::new(own.audit_log());
        let routes =
            ["-n", OWN, "get", "virtualservices", "-o", "jsonpath={.items[*].metadata.resourceVersion}"];
        let (mark, before) = (log.mark(&client).await?, kubectl(&own, &routes, None).await?);
        ensure!(before.split_whitespace().count() == REQUESTS, "the VirtualServices are {before:?}");
        kubectl(&own, &["-n", OWN, "delete", "pods", "--all", "--grace-period=0", "--force"], None).await?;
        let rollout = ["-n", OWN, "rollout", "status", "deployment/istio-integrator", "--timeout=60s"];
        kubectl(&own, &rollout, None).await?;
        eventually("the new leader has reconciled everything", 60, || async {
            let counts = reconciled(&own).await?;
            let count = counts.get("IngressRequest").copied().unwrap_or_default();
            ensure!(count >= REQUESTS as u64, "{count} so far");
            Ok(())
        })
        .await?;
        tokio::time::sleep(Duration::from_secs(6)).await;
        let writes = log.writes_since(&client, mark, &writes_of_ours()).await?;
        ensure!(writes.is_empty(), "after a restart it wrote: {writes:#?}");
        ensure!(kubectl(&own, &routes, None).await? == before, "a VirtualService changed");
        Ok(())
    })
    .await
}
