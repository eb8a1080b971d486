//! process-node: what a container is given, how it is probed, what its status says.

use anyhow::{Result, ensure};
use testbed::harness::{Ctx, Test, eventually};
use testbed::test;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        test!(two_pods_listen_on_one_port),
        test!(env_of_every_kind),
        test!(missing_config_is_a_waiting_reason),
        test!(unknown_image_backs_off_and_recovers),
        test!(crash_loop_backs_off_and_tells_exit_codes),
        test!(job_succeeds_and_fails),
        test!(logs_of_every_kind),
        test!(exec_is_answered_with_the_remedy),
        test!(readiness_follows_http_tcp_exec_and_grpc),
        test!(liveness_restarts),
        test!(startup_probe_holds_the_others_back),
        test!(node_says_what_it_is),
        test!(restricted_standard_is_enforced),
        test!(read_only_root),
        test!(idle_pods_write_nothing),
    ]
}

/// A pod with a shell script as its only container; `extra` is YAML of the container, indented by four spaces.
pub(crate) fn script_pod(name: &str, script: &str, extra: &str) -> String {
    let script = serde_json::json!(script);
    format!(
        "apiVersion: v1
kind: Pod
metadata:
  name: {name}
  labels: {{app: {name}}}
spec:
  terminationGracePeriodSeconds: 5
  containers:
  - name: main
    image: testbed/shell:1
    command: [sh, -c, {script}]
{extra}"
    )
}

async fn logs(t: &Ctx, pod: &str) -> Result<String> {
    t.kubectl(&["logs", pod]).await
}

/// Waits until a pod's log has a text.
pub(crate) async fn logged(t: &Ctx, pod: &str, text: &str) -> Result<String> {
    eventually(&format!("{text:?} in the log of {pod}"), 30, || async {
        let log = logs(t, pod).await?;
        ensure!(log.contains(text), "the log is {log:?}");
        Ok(log)
    })
    .await
}

async fn phase(t: &Ctx, pod: &str, wanted: &str) -> Result<()> {
    eventually(&format!("{pod} is {wanted}"), 40, || async {
        let phase = t.field(&format!("pod/{pod}"), "{.status.phase}").await?;
        ensure!(phase == wanted, "its phase is {phase}");
        Ok(())
    })
    .await
}

/// Waits until a JSONPath of an object has a value.
pub(crate) async fn field_is(t: &Ctx, object: &str, path: &str, wanted: &str) -> Result<()> {
    eventually(&format!("{path} of {object} is {wanted:?}"), 40, || async {
        let value = t.field(object, path).await?;
        ensure!(value == wanted, "it is {value:?}");
        Ok(())
    })
    .await
}

async fn two_pods_listen_on_one_port(t: Ctx) -> Result<()> {
    for name in ["a", "b"] {
        t.apply(&echo_pod(name, "")).await?;
    }
    let mut addresses = Vec::new();
    for name in ["a", "b"] {
        t.pod_ready(name).await?;
        let ip = t.field(&format!("pod/{name}"), "{.status.podIP}").await?;
        let reply = testbed::curl::get(format!("{ip}:8080").parse()?, "x", "/").await?;
        ensure!(reply.body.contains(&format!("\"{name}\"")), "{name} answered {}", reply.body);
        addresses.push(ip);
    }
    ensure!(addresses[0] != addresses[1], "both have {}", addresses[0]);
    Ok(())
}

/// A pod of the echo server; `extra` as for [`script_pod`].
pub(crate) fn echo_pod(name: &str, extra: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata:
  name: {name}
  labels: {{app: {name}}}
spec:
  terminationGracePeriodSeconds: 5
  containers:
  - name: main
    image: testbed/test-server:1
    args: [echo, --port, \"8080\", --name, {name}]
    readinessProbe:
      httpGet: {{path: /healthz, port: 8080}}
      periodSeconds: 1
{extra}"
    )
}

async fn env_of_every_kind(t: Ctx) -> Result<()> {
    t.apply(
        "apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {colour: blue, size: large}
---
apiVersion: v1
kind: Secret
metadata: {name: secret}
stringData: {password: hunter2}
",
    )
    .await?;
    let script = "echo \"$NAME/$NAMESPACE/$NODE/$LABEL/$ACCOUNT $COLOUR $PASSWORD $GREETING $DOLLARS $CPU $MEMORY \
                  $FROM_size ${ABSENT-none} $IP $KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT\"; sleep 1000";
    let env = "    env:
    - {name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
    - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
    - {name: ACCOUNT, valueFrom: {fieldRef: {fieldPath: spec.serviceAccountName}}}
    - {name: LABEL, valueFrom: {fieldRef: {fieldPath: \"metadata.labels['app']\"}}}
    - {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
    - {name: COLOUR, valueFrom: {configMapKeyRef: {name: settings, key: colour}}}
    - {name: ABSENT, valueFrom: {configMapKeyRef: {name: settings, key: nothing, optional: true}}}
    - {name: PASSWORD, valueFrom: {secretKeyRef: {name: secret, key: password}}}
    - {name: GREETING, value: \"hello-$(COLOUR)-$(UNKNOWN)\"}
    - {name: DOLLARS, value: \"$$(COLOUR)\"}
    - {name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}
    - {name: MEMORY, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}
    envFrom:
    - prefix: FROM_
      configMapRef: {name: settings}
    resources:
      limits: {cpu: \"2\", memory: 64Mi}
";
    t.apply(&script_pod("env", script, env)).await?;
    let log = logged(&t, "env", "env/").await?;
    let ip = t.field("pod/env", "{.status.podIP}").await?;
    let expected = format!(
        "env/{}/node-1/env/default blue hunter2 hello-blue-$(UNKNOWN) $(COLOUR) 2 64 large none {ip} 10.96.0.1:443",
        t.namespace
    );
    ensure!(log.trim() == expected, "got      {}\nexpected {expected}", log.trim());
    Ok(())
}

async fn missing_config_is_a_waiting_reason(t: Ctx) -> Result<()> {
    let env = "    env:\n    - {name: A, valueFrom: {configMapKeyRef: {name: later, key: a}}}\n";
    t.apply(&script_pod("waits", "echo value $A; sleep 1000", env)).await?;
    let reason = "{.status.containerStatuses[0].state.waiting.reason}";
    field_is(&t, "pod/waits", reason, "CreateContainerConfigError").await?;
    let message = t.field("pod/waits", "{.status.containerStatuses[0].state.waiting.message}").await?;
    ensure!(message.contains("later"), "the message does not name the ConfigMap: {message}");
    t.kubectl(&["create", "configmap", "later", "--from-literal=a=now"]).await?;
    logged(&t, "waits", "value now").await?;
    Ok(())
}

async fn unknown_image_backs_off_and_recovers(t: Ctx) -> Result<()> {
    t.apply(&script_pod("nope", "sleep 1000", "").replace("testbed/shell:1", "nowhere/unknown:9")).await?;
    let reason = "{.status.containerStatuses[0].state.waiting.reason}";
    field_is(&t, "pod/nope", reason, "ImagePullBackOff").await?;
    field_is(&t, "pod/nope", "{.status.phase}", "Pending").await?;
    let events = t.kubectl(&["get", "events", "-o", "jsonpath={.items[*].message}"]).await?;
    ensure!(events.contains("nowhere/unknown:9"), "no event names the image: {events}");
    Ok(())
}

async fn crash_loop_backs_off_and_tells_exit_codes(t: Ctx) -> Result<()> {
    let script = "echo going down >/dev/termination-log; echo last words; exit 7";
    t.apply(&script_pod("crash", script, "")).await?;
    let waiting = "{.status.containerStatuses[0].state.waiting.reason}";
    field_is(&t, "pod/crash", waiting, "CrashLoopBackOff").await?;
    let last = "{.status.containerStatuses[0].lastState.terminated['exitCode','reason','message']}";
    let told = t.field("pod/crash", last).await?;
    ensure!(told.trim() == "7 Error going down" || told.contains("7 Error going down"), "it told {told:?}");
    eventually("a restart", 30, || async {
        let count: u32 =
            t.field("pod/crash", "{.status.containerStatuses[0].restartCount}").await?.parse()?;
        ensure!(count >= 2, "restarted {count} times");
        Ok(())
    })
    .await?;
    let previous = t.kubectl(&["logs", "--previous", "crash"]).await?;
    ensure!(previous.contains("last words"), "the previous log is {previous:?}");
    // Killed by a signal: 128 and its number, as on any node. Kubernetes makes one dollar of two.
    let script = "sh -c 'kill -9 $$$$'; exit $?";
    t.apply(&script_pod("child", script, "").replace("spec:\n", "spec:\n  restartPolicy: Never\n")).await?;
    phase(&t, "child", "Failed").await?;
    field_is(&t, "pod/child", "{.status.containerStatuses[0].state.terminated.exitCode}", "137").await
}

async fn job_succeeds_and_fails(t: Ctx) -> Result<()> {
    let job = |name: &str, code: u8| {
        format!(
            "apiVersion: batch/v1
kind: Job
metadata: {{name: {name}}}
spec:
  backoffLimit: 1
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: testbed/shell:1
        command: [sh, -c, \"exit {code}\"]
"
        )
    };
    t.apply(&job("good", 0)).await?;
    t.apply(&job("bad", 3)).await?;
    t.kubectl(&["wait", "--for=condition=Complete", "job/good", "--timeout=60s"]).await?;
    t.kubectl(&["wait", "--for=condition=Failed", "job/bad", "--timeout=90s"]).await?;
    let phases =
        t.kubectl(&["get", "pods", "-l", "job-name=good", "-o", "jsonpath={.items[*].status.phase}"]).await?;
    ensure!(phases == "Succeeded", "the pods of good are {phases}");
    Ok(())
}

async fn logs_of_every_kind(t: Ctx) -> Result<()> {
    let script = "for i in 1 2 3 4 5; do echo line $i; done; sleep 0.3; echo problem >&2; sleep 4; echo late; sleep 1000";
    t.apply(&script_pod("talks", script, "")).await?;
    logged(&t, "talks", "problem").await?;
    let tail = t.kubectl(&["logs", "talks", "--tail=2"]).await?;
    ensure!(tail == "line 5\nproblem\n", "--tail=2 gave {tail:?}");
    let stamped = t.kubectl(&["logs", "talks", "--timestamps", "--tail=1"]).await?;
    ensure!(stamped.starts_with("20") && stamped.contains("Z problem"), "--timestamps gave {stamped:?}");
    let limited = t.kubectl(&["logs", "talks", "--limit-bytes=6"]).await?;
    ensure!(limited == "line 1", "--limit-bytes=6 gave {limited:?}");
    // A follower sees what is written after it came, and ends with the pod.
    let follower = t.clone();
    let follow = async move { follower.kubectl(&["logs", "talks", "--follow"]).await };
    let remove = async {
        tokio::time::sleep(std::time::Duration::from_secs(6)).await;
        t.kubectl(&["delete", "pod", "talks", "--wait=false"]).await
    };
    let (seen, removed) = futures::join!(follow, remove);
    removed?;
    let seen = seen?;
    ensure!(seen.contains("line 1") && seen.contains("late"), "--follow gave {seen:?}");
    Ok(())
}

async fn exec_is_answered_with_the_remedy(t: Ctx) -> Result<()> {
    t.apply(&echo_pod("plain", "")).await?;
    t.pod_ready("plain").await?;
    let Err(error) = t.kubectl(&["exec", "plain", "--", "true"]).await else {
        anyhow::bail!("kubectl exec worked; then the docs are wrong");
    };
    ensure!(format!("{error:#}").contains("xtask shell"), "the answer names no remedy: {error:#}");
    Ok(())
}

async fn readiness_follows_http_tcp_exec_and_grpc(t: Ctx) -> Result<()> {
    // One pod for each kind, not ready until a file appears or a server listens.
    let with = |probe: &str| format!("    readinessProbe:\n      {probe}\n      periodSeconds: 1\n");
    t.apply(&script_pod(
        "exec",
        "sleep 3; touch /tmp/up; sleep 1000",
        &with("exec: {command: [test, -e, /tmp/up]}"),
    ))
    .await?;
    let server = |name: &str, args: &str, probe: &str| {
        format!(
            "apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  containers:
  - name: main
    image: testbed/test-server:1
    args: [{args}]
    readinessProbe:
      {probe}
      periodSeconds: 1
"
        )
    };
    t.apply(&server("http", "probe-target, --port, \"8080\"", "httpGet: {path: /healthz, port: 8080}"))
        .await?;
    t.apply(&server("tcp", "echo, --port, \"8080\"", "tcpSocket: {port: 8080}")).await?;
    t.apply(&server("grpc", "grpc-health, --port, \"9000\"", "grpc: {port: 9000}")).await?;
    t.apply(&server("wrong", "echo, --port, \"8080\"", "tcpSocket: {port: 8081}")).await?;
    for pod in ["http", "tcp", "grpc", "exec"] {
        t.pod_ready(pod).await?;
    }
    let ready = "{.status.conditions[?(@.type==\"Ready\")].status}";
    field_is(&t, "pod/wrong", ready, "False").await?;
    // Readiness is lost and found again, without a restart.
    let ip = t.field("pod/http", "{.status.podIP}").await?;
    let address = format!("{ip}:8080").parse()?;
    testbed::curl::get(address, "x", "/fail").await?;
    field_is(&t, "pod/http", ready, "False").await?;
    testbed::curl::get(address, "x", "/recover").await?;
    field_is(&t, "pod/http", ready, "True").await?;
    field_is(&t, "pod/http", "{.status.containerStatuses[0].restartCount}", "0").await
}

async fn liveness_restarts(t: Ctx) -> Result<()> {
    let probe = "    livenessProbe:
      httpGet: {path: /healthz, port: 8080}
      periodSeconds: 1
      failureThreshold: 2
";
    let pod = echo_pod("live", "").replace(
        "    readinessProbe:\n      httpGet: {path: /healthz, port: 8080}\n      periodSeconds: 1\n",
        probe,
    );
    let pod = pod.replace("[echo, --port, \"8080\", --name, live]", "[probe-target, --port, \"8080\"]");
    t.apply(&pod).await?;
    t.pod_ready("live").await?;
    let ip = t.field("pod/live", "{.status.podIP}").await?;
    testbed::curl::get(format!("{ip}:8080").parse()?, "x", "/fail").await?;
    field_is(&t, "pod/live", "{.status.containerStatuses[0].restartCount}", "1").await?;
    t.pod_ready("live").await?;
    ensure!(
        t.field("pod/live", "{.status.podIP}").await? == ip,
        "a restarted container moved to another address"
    );
    Ok(())
}

async fn startup_probe_holds_the_others_back(t: Ctx) -> Result<()> {
    // Liveness would kill it twice before it is up, were it not for the startup probe.
    let probes = "    startupProbe:
      exec: {command: [test, -e, /tmp/up]}
      periodSeconds: 1
      failureThreshold: 30
    livenessProbe:
      exec: {command: [test, -e, /tmp/up]}
      periodSeconds: 1
      failureThreshold: 1
";
    t.apply(&script_pod("slow", "sleep 5; touch /tmp/up; sleep 1000", probes)).await?;
    field_is(&t, "pod/slow", "{.status.containerStatuses[0].started}", "false").await?;
    field_is(&t, "pod/slow", "{.status.containerStatuses[0].started}", "true").await?;
    t.pod_ready("slow").await?;
    field_is(&t, "pod/slow", "{.status.containerStatuses[0].restartCount}", "0").await
}

async fn node_says_what_it_is(t: Ctx) -> Result<()> {
    let node = "node/node-1";
    field_is(&t, node, "{.status.nodeInfo.kubeletVersion}", "v1.35.4").await?;
    field_is(&t, node, "{.status.conditions[?(@.type==\"Ready\")].status}", "True").await?;
    let renewed = || {
        t.kubectl(&["-n", "kube-node-lease", "get", "lease", "node-1", "-o", "jsonpath={.spec.renewTime}"])
    };
    let before = renewed().await?;
    eventually("a renewed heartbeat", 25, || async {
        ensure!(renewed().await? != before, "still {before}");
        Ok(())
    })
    .await
}

async fn restricted_standard_is_enforced(t: Ctx) -> Result<()> {
    let namespace = t.namespace.clone();
    let label = "pod-security.kubernetes.io/enforce=restricted";
    t.kubectl(&["label", "namespace", &namespace, label]).await?;
    let Err(error) = t.apply(&echo_pod("loose", "")).await else { anyhow::bail!("a loose pod was admitted") };
    ensure!(format!("{error:#}").contains("violates PodSecurity"), "refused for another reason: {error:#}");
    let strict = "    securityContext:
      runAsNonRoot: true
      runAsUser: 65532
      allowPrivilegeEscalation: false
      capabilities: {drop: [ALL]}
      seccompProfile: {type: RuntimeDefault}
";
    t.apply(&echo_pod("strict", strict)).await?;
    t.pod_ready("strict").await
}

async fn read_only_root(t: Ctx) -> Result<()> {
    let extra = "    securityContext: {readOnlyRootFilesystem: true}
    volumeMounts:
    - {name: scratch, mountPath: /scratch}
  volumes:
  - {name: scratch, emptyDir: {}}
";
    let script =
        "touch /scratch/a && echo scratch-writable; touch /a 2>/dev/null || echo root-read-only; sleep 1000";
    t.apply(&script_pod("sealed", script, extra)).await?;
    let log = logged(&t, "sealed", "root-read-only").await?;
    ensure!(log.contains("scratch-writable"), "the log is {log:?}");
    Ok(())
}

async fn idle_pods_write_nothing(t: Ctx) -> Result<()> {
    t.apply(&echo_pod("still", "")).await?;
    t.pod_ready("still").await?;
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    let version = t.field("pod/still", "{.metadata.resourceVersion}").await?;
    tokio::time::sleep(std::time::Duration::from_secs(12)).await;
    let later = t.field("pod/still", "{.metadata.resourceVersion}").await?;
    ensure!(version == later, "its status was written again: {version} -> {later}");
    Ok(())
}
