//! process-node: the order in which containers start and end.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use testbed::harness::{Ctx, Test, eventually};
use testbed::test;

use crate::pods::{echo_pod, field_is, logged, script_pod};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        test!(init_containers_run_in_order),
        test!(failing_init_container_is_retried),
        test!(native_sidecar_starts_first_and_ends_last),
        test!(hooks_run),
        test!(term_then_kill),
        test!(deadline_ends_a_pod),
        test!(termination_message_from_the_log),
        test!(deployment_rolls_out),
        test!(readiness_gate_is_honoured),
    ]
}

const SHARED: &str = "    volumeMounts:
    - {name: shared, mountPath: /shared}
";
const VOLUME: &str = "  volumes:\n  - {name: shared, emptyDir: {}}\n";

async fn init_containers_run_in_order(t: Ctx) -> Result<()> {
    let init = |name: &str| {
        format!(
            "  - name: {name}
    image: testbed/shell:1
    command: [sh, -c, \"sleep 0.5; echo {name} >>/shared/order\"]
{SHARED}"
        )
    };
    let pod = script_pod("ordered", "cat /shared/order; sleep 1000", &format!("{SHARED}{VOLUME}"));
    let inits = format!("  initContainers:\n{}{}{}  containers:\n", init("one"), init("two"), init("three"));
    t.apply(&pod.replace("  containers:\n", &inits)).await?;
    let log = logged(&t, "ordered", "three").await?;
    ensure!(log == "one\ntwo\nthree\n", "they ran as {log:?}");
    let states = "{.status.initContainerStatuses[*].state.terminated.reason}";
    field_is(&t, "pod/ordered", states, "Completed Completed Completed").await?;
    field_is(&t, "pod/ordered", "{.status.conditions[?(@.type==\"Initialized\")].status}", "True").await
}

async fn failing_init_container_is_retried(t: Ctx) -> Result<()> {
    let init = format!(
        "  initContainers:
  - name: flaky
    image: testbed/shell:1
    command: [sh, -c, \"test -e /shared/tried || {{ touch /shared/tried; exit 1; }}\"]
{SHARED}  containers:
"
    );
    let pod = script_pod("retries", "echo up; sleep 1000", VOLUME).replace("  containers:\n", &init);
    t.apply(&pod).await?;
    logged(&t, "retries", "up").await?;
    field_is(&t, "pod/retries", "{.status.initContainerStatuses[0].restartCount}", "1").await
}

async fn native_sidecar_starts_first_and_ends_last(t: Ctx) -> Result<()> {
    let mount = "    volumeMounts:\n    - {name: out, mountPath: /shared}\n";
    let sidecar = format!(
        "  initContainers:
  - name: side
    image: testbed/shell:1
    restartPolicy: Always
    command: [sh, -c, \"trap 'date +%s.%N >/shared/side-ended; exit 0' TERM; sleep 1; touch /tmp/up; \
         echo side >>/shared/order; while :; do sleep 0.1; done\"]
    startupProbe:
      exec: {{command: [test, -e, /tmp/up]}}
      periodSeconds: 1
{mount}  - name: after
    image: testbed/shell:1
    command: [sh, -c, \"echo init >>/shared/order\"]
{mount}  containers:
"
    );
    // The shared directory outlives the pod, so that it can be read afterwards: another pod with the same hostPath.
    let volume = format!(
        "  volumes:\n  - {{name: out, hostPath: {{path: /{}, type: DirectoryOrCreate}}}}\n",
        t.namespace
    );
    let script = "trap 'sleep 1; date +%s.%N >/shared/main-ended; exit 0' TERM; echo main >>/shared/order; \
                  while :; do sleep 0.1; done";
    let pod = script_pod("carried", script, &format!("{mount}{volume}")).replace("  containers:\n", &sidecar);
    t.apply(&pod).await?;
    t.pod_ready("carried").await?;
    field_is(&t, "pod/carried", "{.status.initContainerStatuses[0].started}", "true").await?;
    t.kubectl(&["delete", "pod", "carried", "--timeout=30s"]).await?;
    let read = "cd /shared; echo $(cat order); echo $(cat main-ended) $(cat side-ended); sleep 1000";
    t.apply(&script_pod("reads", read, &format!("{mount}{volume}"))).await?;
    let log = logged(&t, "reads", ".").await?;
    let mut lines = log.lines();
    ensure!(lines.next() == Some("side init main"), "they started as {log:?}");
    let ended: Vec<f64> =
        lines.next().unwrap_or_default().split(' ').filter_map(|s| s.parse().ok()).collect();
    ensure!(ended.len() == 2 && ended[0] < ended[1], "main and sidecar ended at {ended:?}");
    Ok(())
}

async fn hooks_run(t: Ctx) -> Result<()> {
    let extra = format!(
        "    lifecycle:
      postStart: {{exec: {{command: [sh, -c, \"echo started >>/shared/hooks\"]}}}}
      preStop: {{exec: {{command: [sh, -c, \"echo stopping >>/shared/hooks; sleep 0.5\"]}}}}
    volumeMounts:
    - {{name: out, mountPath: /shared}}
  volumes:
  - {{name: out, hostPath: {{path: /{}, type: DirectoryOrCreate}}}}
",
        t.namespace
    );
    let script = "trap 'echo term >>/shared/hooks; exit 0' TERM; while :; do sleep 0.1; done";
    t.apply(&script_pod("hooked", script, &extra)).await?;
    t.pod_ready("hooked").await?;
    t.kubectl(&["delete", "pod", "hooked", "--timeout=30s"]).await?;
    let read = script_pod("reads", "echo $(cat /shared/hooks).; sleep 1000", &extra);
    let lifecycle = read.find("    lifecycle:").zip(read.find("    volumeMounts:"));
    let (from, to) = lifecycle.ok_or_else(|| anyhow::anyhow!("the pod's text changed"))?;
    t.apply(&format!("{}{}", &read[..from], &read[to..])).await?;
    let log = logged(&t, "reads", ".").await?;
    ensure!(log.trim() == "started stopping term.", "the hooks ran as {log:?}");
    Ok(())
}

async fn term_then_kill(t: Ctx) -> Result<()> {
    // A process that ignores TERM lives exactly until its grace period is over.
    t.apply(&script_pod("stubborn", "trap '' TERM; echo up; while :; do sleep 0.1; done", "")).await?;
    logged(&t, "stubborn", "up").await?;
    let started = Instant::now();
    t.kubectl(&["delete", "pod", "stubborn", "--grace-period=3", "--timeout=30s"]).await?;
    let took = started.elapsed();
    ensure!(took >= Duration::from_millis(2500), "gone after {took:?}, before its grace period");
    // A polite one goes at once, with its grace period unused.
    t.apply(&script_pod("polite", "trap 'exit 0' TERM; echo up; while :; do sleep 0.1; done", "")).await?;
    logged(&t, "polite", "up").await?;
    let started = Instant::now();
    t.kubectl(&["delete", "pod", "polite", "--grace-period=30", "--timeout=60s"]).await?;
    let took = started.elapsed();
    ensure!(took < Duration::from_secs(15), "gone only after {took:?}");
    Ok(())
}

async fn deadline_ends_a_pod(t: Ctx) -> Result<()> {
    let pod = script_pod("late", "while :; do sleep 0.1; done", "")
        .replace("spec:\n", "spec:\n  activeDeadlineSeconds: 3\n  restartPolicy: Never\n");
    t.apply(&pod).await?;
    field_is(&t, "pod/late", "{.status.phase}/{.status.reason}", "Failed/DeadlineExceeded").await
}

async fn termination_message_from_the_log(t: Ctx) -> Result<()> {
    let pod = script_pod(
        "tells",
        "echo why it failed; exit 4",
        "    terminationMessagePolicy: FallbackToLogsOnError\n",
    )
    .replace("spec:\n", "spec:\n  restartPolicy: Never\n");
    t.apply(&pod).await?;
    let terminated = "{.status.containerStatuses[0].state.terminated";
    field_is(&t, "pod/tells", &format!("{terminated}.exitCode}}"), "4").await?;
    let message = t.field("pod/tells", &format!("{terminated}.message}}")).await?;
    ensure!(message.contains("why it failed"), "the message is {message:?}");
    Ok(())
}

async fn deployment_rolls_out(t: Ctx) -> Result<()> {
    let deployment = |version: &str| {
        format!(
            "apiVersion: apps/v1
kind: Deployment
metadata: {{name: web}}
spec:
  replicas: 2
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      terminationGracePeriodSeconds: 2
      containers:
      - name: main
        image: testbed/test-server:1
        args: [echo, --port, \"8080\", --name, {version}]
        readinessProbe: {{httpGet: {{path: /healthz, port: 8080}}, periodSeconds: 1}}
"
        )
    };
    for version in ["v1", "v2"] {
        t.apply(&deployment(version)).await?;
        t.kubectl(&["rollout", "status", "deployment/web", "--timeout=60s"]).await?;
    }
    eventually("only new pods", 30, || async {
        let args = t.kubectl(&[
            "get",
            "pods",
            "-l",
            "app=web",
            "-o",
            "jsonpath={.items[*].spec.containers[0].args[4]}",
        ]);
        let args = args.await?;
        ensure!(args == "v2 v2", "the pods are {args}");
        Ok(())
    })
    .await
}

async fn readiness_gate_is_honoured(t: Ctx) -> Result<()> {
    let pod = echo_pod("gated", "")
        .replace("spec:\n", "spec:\n  readinessGates: [{conditionType: example.com/go}]\n");
    t.apply(&pod).await?;
    field_is(&t, "pod/gated", "{.status.conditions[?(@.type==\"ContainersReady\")].status}", "True").await?;
    field_is(&t, "pod/gated", "{.status.conditions[?(@.type==\"Ready\")].status}", "False").await?;
    let patch = "{\"status\":{\"conditions\":[{\"type\":\"example.com/go\",\"status\":\"True\"}]}}";
    t.kubectl(&["patch", "pod", "gated", "--subresource=status", "--type=strategic", "-p", patch]).await?;
    t.pod_ready("gated").await
}
