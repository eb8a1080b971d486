//! The control plane itself: audit query, snapshots, restarts, and that nothing stays behind.

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams, PostParams};
use testbed::harness::{Ctx, Test, eventually};
use testbed::{Options, test};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        test!(versions_are_the_pinned_ones),
        test!(service_account_tokens_work),
        test!(snapshot_goes_back_in_time).limit_seconds(180),
        test!(control_plane_restarts).limit_seconds(180),
        test!(nothing_stays_after_kill).limit_seconds(180),
        test!(stand_ins_are_ready_at_once).limit_seconds(180),
    ]
}

fn bare() -> Options {
    Options { node: false, progress: false, ..Options::default() }
}

fn config_map(name: &str, value: &str) -> Result<ConfigMap> {
    Ok(serde_json::from_value(serde_json::json!({"metadata": {"name": name}, "data": {"value": value}}))?)
}

async fn versions_are_the_pinned_ones(t: Ctx) -> Result<()> {
    let version = t.client.apiserver_version().await?;
    ensure!(version.git_version == "v1.35.4", "the API server says {}", version.git_version);
    Ok(())
}

async fn service_account_tokens_work(t: Ctx) -> Result<()> {
    let token = t.kubectl(&["create", "token", "default"]).await?;
    let review = format!(
        "{{\"apiVersion\":\"authentication.k8s.io/v1\",\"kind\":\"TokenReview\",\"spec\":{{\"token\":\"{}\"}}}}",
        token.trim()
    );
    let answer = t
        .kubectl_with(&["create", "-f", "-", "-o", "jsonpath={.status.user.username}"], Some(&review))
        .await?;
    ensure!(answer == format!("system:serviceaccount:{}:default", t.namespace), "the token is {answer}'s");
    Ok(())
}

async fn snapshot_goes_back_in_time(t: Ctx) -> Result<()> {
    t.own_cluster(bare(), |own| async move {
        let maps =
            || async { Ok::<_, anyhow::Error>(Api::<ConfigMap>::namespaced(own.client().await?, "default")) };
        let made = maps().await?.create(&PostParams::default(), &config_map("kept", "old")?).await?;
        let place = own.run_dir().join("snapshot");
        own.snapshot(&place)?;
        let patch = Patch::Merge(serde_json::json!({"data": {"value": "new"}}));
        let changed = maps().await?.patch("kept", &PatchParams::default(), &patch).await?;
        ensure!(changed.metadata.resource_version != made.metadata.resource_version, "the change was none");
        maps().await?.create(&PostParams::default(), &config_map("later", "x")?).await?;
        own.restore(&place)?;
        let back = maps().await?.get("kept").await?;
        ensure!(back.data == made.data, "after the restore it holds {:?}", back.data);
        ensure!(back.metadata.resource_version == made.metadata.resource_version, "another resource version");
        ensure!(maps().await?.get_opt("later").await?.is_none(), "what came later is still there");
        Ok(())
    })
    .await
}

async fn control_plane_restarts(t: Ctx) -> Result<()> {
    t.own_cluster(Options { progress: false, ..Options::default() }, |own| async move {
        own.stop("kube-apiserver")?;
        let version = own.client().await?.apiserver_version().await;
        ensure!(version.is_err(), "the stopped API server answered");
        own.start("kube-apiserver")?;
        ensure!(own.client().await?.apiserver_version().await?.minor == "35", "another version came back");
        ensure!(own.stop("no-such-program").is_err(), "an unknown program was stopped");
        own.stop("process-node")?;
        own.start("process-node")?;
        Ok(())
    })
    .await
}

/// Processes whose command line names a folder.
fn processes_of(run_dir: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let Ok(line) = std::fs::read(entry.path().join("cmdline")) else { continue };
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(run_dir) && !line.contains("TESTBED_INSIDE") {
            found.push(line);
        }
    }
    Ok(found)
}

async fn nothing_stays_after_kill(t: Ctx) -> Result<()> {
    drop(t);
    for signal in ["SIGKILL", "SIGINT", "SIGTERM"] {
        let (mut owner, run_dir) = testbed::hold_elsewhere()?;
        let name = run_dir.display().to_string();
        ensure!(processes_of(&name)?.iter().any(|p| p.contains("etcd")), "no etcd runs for {name}");
        testbed::signal_group(&owner, signal)?;
        eventually(&format!("the owner ends by {signal}"), 10, || {
            let ended = owner.try_wait();
            async move { ended?.context("it still runs").map(|_| ()) }
        })
        .await?;
        eventually("everything of the cluster is gone", 20, || async {
            let left = processes_of(&name)?;
            ensure!(left.is_empty(), "after {signal} still running: {left:?}");
            ensure!(!run_dir.exists(), "after {signal} {name} still exists");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

async fn stand_ins_are_ready_at_once(t: Ctx) -> Result<()> {
    let images = testbed::images::stand_in_map();
    let options = Options { images: Some(images), progress: false, ..Options::default() };
    t.own_cluster(options, |own| async move {
        let pod = serde_json::json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "any"},
            "spec": {
                "initContainers": [{"name": "first", "image": "nowhere/init:1"}],
                "containers": [{
                    "name": "main", "image": "nowhere/main:1",
                    "readinessProbe": {"httpGet": {"path": "/", "port": 1}, "initialDelaySeconds": 60},
                }],
            },
        });
        let pods = Api::<k8s_openapi::api::core::v1::Pod>::namespaced(own.client().await?, "default");
        pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
        eventually("a Ready stand-in", 20, || async {
            let status = pods.get("any").await?.status.context("no status yet")?;
            let ready = status.conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
            if !ready {
                bail!("its phase is {:?}", status.phase);
            }
            Ok(())
        })
        .await?;
        Ok(())
    })
    .await
}
