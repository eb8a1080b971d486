//! process-node: volumes of every kind that Istio's charts use.

use anyhow::{Result, ensure};
use testbed::harness::{Ctx, Test, eventually};
use testbed::test;

use crate::pods::{field_is, logged, script_pod};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        test!(config_map_and_secret_follow_changes),
        test!(projected_token_is_accepted),
        test!(downward_api_follows_labels),
        test!(empty_dir_survives_a_restart),
        test!(sub_path_and_read_only),
        test!(missing_volume_source_is_an_event),
    ]
}

async fn config_map_and_secret_follow_changes(t: Ctx) -> Result<()> {
    t.kubectl(&["create", "configmap", "conf", "--from-literal=a=one", "--from-literal=b=two"]).await?;
    t.kubectl(&["create", "secret", "generic", "key", "--from-literal=k=hidden"]).await?;
    let extra = "    volumeMounts:
    - {name: conf, mountPath: /conf}
    - {name: picked, mountPath: /picked}
    - {name: key, mountPath: /key}
    - {name: none, mountPath: /none}
  volumes:
  - {name: conf, configMap: {name: conf}}
  - {name: picked, configMap: {name: conf, defaultMode: 0400, items: [{key: b, path: deep/b.txt}]}}
  - {name: key, secret: {secretName: key}}
  - {name: none, configMap: {name: absent, optional: true}}
";
    let script = "cd /; echo $(cat conf/a) $(cat conf/b picked/deep/b.txt key/k) $(ls none | wc -l) \
                  $(stat -L -c %a picked/deep/b.txt); \
                  until grep -q three conf/a; do sleep 0.2; done; echo now $(cat conf/a); sleep 1000";
    t.apply(&script_pod("reader", script, extra)).await?;
    let log = logged(&t, "reader", "one").await?;
    ensure!(log.trim() == "one twotwohidden 0 400", "it read {log:?}");
    t.kubectl(&["patch", "configmap", "conf", "-p", "{\"data\":{\"a\":\"three\"}}"]).await?;
    logged(&t, "reader", "now three").await?;
    Ok(())
}

async fn projected_token_is_accepted(t: Ctx) -> Result<()> {
    let extra = "    volumeMounts:
    - {name: all, mountPath: /all}
  volumes:
  - name: all
    projected:
      sources:
      - serviceAccountToken: {audience: someone, expirationSeconds: 3600, path: token}
      - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
      - downwardAPI: {items: [{path: ns, fieldRef: {fieldPath: metadata.namespace}}]}
";
    let script = "echo ns=$(cat /all/ns) ca=$(head -c 10 /all/ca.crt | tr ' ' _); echo token=$(cat /all/token); \
                  ls /var/run/secrets/kubernetes.io/serviceaccount; sleep 1000";
    t.apply(&script_pod("holder", script, extra)).await?;
    let log = logged(&t, "holder", "namespace").await?;
    ensure!(log.contains(&format!("ns={} ca=-----BEGIN", t.namespace)), "it read {log:?}");
    let token = log.lines().find_map(|l| l.strip_prefix("token=")).unwrap_or_default();
    let review = format!(
        "{{\"apiVersion\":\"authentication.k8s.io/v1\",\"kind\":\"TokenReview\",\
         \"spec\":{{\"token\":\"{token}\",\"audiences\":[\"someone\"]}}}}"
    );
    let answer = t
        .kubectl_with(
            &["create", "-f", "-", "-o", "jsonpath={.status.authenticated} {.status.user.username}"],
            Some(&review),
        )
        .await?;
    ensure!(
        answer == format!("true system:serviceaccount:{}:default", t.namespace),
        "the review says {answer}"
    );
    Ok(())
}

async fn downward_api_follows_labels(t: Ctx) -> Result<()> {
    let extra = "    resources: {limits: {memory: 32Mi}}
    volumeMounts:
    - {name: info, mountPath: /info}
  volumes:
  - name: info
    downwardAPI:
      items:
      - {path: labels, fieldRef: {fieldPath: metadata.labels}}
      - {path: memory, resourceFieldRef: {containerName: main, resource: limits.memory, divisor: 1Mi}}
";
    let script = "cat /info/labels; echo; echo memory=$(cat /info/memory); \
                  until grep -q moved /info/labels; do sleep 0.2; done; echo seen; sleep 1000";
    t.apply(&script_pod("labelled", script, extra)).await?;
    let log = logged(&t, "labelled", "memory=32").await?;
    ensure!(log.contains("app=\"labelled\""), "it read {log:?}");
    t.kubectl(&["label", "pod", "labelled", "state=moved"]).await?;
    logged(&t, "labelled", "seen").await?;
    Ok(())
}

async fn empty_dir_survives_a_restart(t: Ctx) -> Result<()> {
    let extra = "    volumeMounts:
    - {name: data, mountPath: /data}
    - {name: fast, mountPath: /fast}
  volumes:
  - {name: data, emptyDir: {}}
  - {name: fast, emptyDir: {medium: Memory}}
";
    let script = "echo $(stat -f -c %T /fast) >/fast/type; if test -e /data/been; then echo again $(cat /fast/type); \
                  sleep 1000; fi; touch /data/been; exit 1";
    t.apply(&script_pod("returns", script, extra)).await?;
    logged(&t, "returns", "again tmpfs").await?;
    field_is(&t, "pod/returns", "{.status.containerStatuses[0].restartCount}", "1").await
}

async fn sub_path_and_read_only(t: Ctx) -> Result<()> {
    t.kubectl(&["create", "configmap", "conf", "--from-literal=file=content"]).await?;
    let extra = "    volumeMounts:
    - {name: conf, mountPath: /etc/app/file, subPath: file}
    - {name: data, mountPath: /sealed, readOnly: true}
    - {name: data, mountPath: /open, subPath: inner}
  volumes:
  - {name: conf, configMap: {name: conf}}
  - {name: data, emptyDir: {}}
";
    let script = "echo $(cat /etc/app/file); touch /sealed/x 2>/dev/null || echo sealed; \
                  touch /open/y && ls /sealed/inner; echo end; sleep 1000";
    t.apply(&script_pod("parts", script, extra)).await?;
    let log = logged(&t, "parts", "end").await?;
    ensure!(log == "content\nsealed\ny\nend\n", "it saw {log:?}");
    Ok(())
}

async fn missing_volume_source_is_an_event(t: Ctx) -> Result<()> {
    let extra = "    volumeMounts:
    - {name: conf, mountPath: /conf}
  volumes:
  - {name: conf, configMap: {name: not-there}}
";
    t.apply(&script_pod("stuck", "echo up; sleep 1000", extra)).await?;
    eventually("a FailedMount event", 30, || async {
        let events = t.kubectl(&[
            "get",
            "events",
            "--field-selector=reason=FailedMount",
            "-o",
            "jsonpath={.items[*].message}",
        ]);
        let events = events.await?;
        ensure!(events.contains("not-there"), "the events say {events:?}");
        Ok(())
    })
    .await?;
    field_is(&t, "pod/stuck", "{.status.containerStatuses[0].state.waiting.reason}", "ContainerCreating")
        .await?;
    t.kubectl(&["create", "configmap", "not-there"]).await?;
    logged(&t, "stuck", "up").await?;
    Ok(())
}
