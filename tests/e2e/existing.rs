//! `cargo xtask test --cluster existing`, pointed at a second test bed through its kubeconfig alone.

use std::collections::BTreeSet;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use testbed::harness::{Ctx, Test, eventually, run_command};
use testbed::{Options, Session, test};

pub(crate) fn tests() -> Vec<Test> {
    vec![test!(a_second_test_bed_through_its_kubeconfig_alone).limit_seconds(400)]
}

/// Set: all portable tests run on the second test bed, and one run is interrupted before. Else two of them do; the others
/// run on the test bed like all tests.
const WHOLE: &str = "E2E_EXISTING_WHOLE";

/// Where the second test bed "pulls" images from.
const PREFIX: &str = "registry.example.org:5000/team";

async fn a_second_test_bed_through_its_kubeconfig_alone(t: Ctx) -> Result<()> {
    t.own_cluster(Options { progress: false, ..Options::default() }, |session| async move {
        let folder = tempfile::tempdir()?;
        let kubeconfig = folder.path().join("theirs.yaml");
        // Another context's name, and a current one that leads elsewhere.
        let text = std::fs::read_to_string(session.kubeconfig())?;
        let mut config: serde_json::Value = serde_json::from_str(&text)?;
        config["contexts"][0]["name"] = "theirs".into();
        config["current-context"] = "nowhere".into();
        std::fs::write(&kubeconfig, config.to_string())?;

        refusals(&kubeconfig).await?;
        let (istio, images) = (session.clone(), session.clone());
        tokio::task::spawn_blocking(move || {
            testbed::istio::install(&istio, &["profile=minimal"])?;
            testbed::operators::add_images_at(&images, PREFIX)
        })
        .await??;
        disturbed(&session, &kubeconfig).await?;

        let before = objects(&session).await?;
        let (ok, log) = existing(&kubeconfig, &["--image-prefix", PREFIX]).await?;
        ensure!(!ok && log.contains("--yes"), "it asked nobody and went on:\n{log}");
        ensure!(objects(&session).await? == before, "something was changed without consent");

        let whole = std::env::var_os(WHOLE).is_some();
        if whole {
            interrupted(&session, &kubeconfig).await?;
            ensure!(objects(&session).await? == before, "an interrupted run left something, or took it");
        }

        let mut args = vec!["--image-prefix", PREFIX, "--yes"];
        if !whole {
            args.extend(["--", "existing_last"]);
        }
        let (ok, log) = existing(&kubeconfig, &args).await?;
        ensure!(ok, "{log}");
        let passed = if whole { "7 passed; 0 failed" } else { "1 passed; 0 failed" };
        for part in [
            passed,
            "context theirs, server https://",
            "revision default, istiod in istio-system",
            "Images       registry.example.org:5000/team/istio-integrator:dev",
            "test existing_last::uninstalling_closes_and_leaves_nothing ... ok",
            "Nothing of the run is left in the cluster.",
        ] {
            ensure!(log.contains(part), "{part:?} is missing in\n{log}");
        }
        ensure!(!log.contains("FAILED"), "{log}");
        let after = objects(&session).await?;
        let (came, went): (Vec<_>, Vec<_>) =
            (after.difference(&before).collect(), before.difference(&after).collect());
        ensure!(came.is_empty() && went.is_empty(), "came: {came:#?}\nwent: {went:#?}");
        Ok(())
    })
    .await
}

/// Runs the command as `cargo xtask` does, with nothing of the test bed in its environment; gives whether it succeeded, and
/// what it printed.
async fn existing(kubeconfig: &Path, args: &[&str]) -> Result<(bool, String)> {
    let mut command = command(kubeconfig, args)?;
    let out = tokio::task::spawn_blocking(move || command.output()).await?.context("run the command")?;
    let text = [out.stdout, out.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    Ok((out.status.success(), text.concat()))
}

fn command(kubeconfig: &Path, args: &[&str]) -> Result<std::process::Command> {
    let mut command = std::process::Command::new(std::env::current_exe()?);
    command.args(["__testbed", "existing", "--context", "theirs", "--kubeconfig"]).arg(kubeconfig).args(args);
    for (name, _) in std::env::vars_os() {
        if name == "KUBECONFIG" || name.to_str().is_some_and(|name| name.starts_with("TESTBED_")) {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null());
    Ok(command)
}

/// Ctrl-C in the middle of the tests: what they made is removed all the same.
async fn interrupted(session: &Session, kubeconfig: &Path) -> Result<()> {
    let mut command = command(kubeconfig, &["--image-prefix", PREFIX, "--yes"])?;
    let mut child = command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn()?;
    let gateways = ["get", "pods", "-A", "-l", "sidecar.istio.io/inject=true", "-o", "name"];
    eventually("the gateway of a test", 120, || async {
        ensure!(run_command(session.kubectl(gateways), None).await?.contains("edge"));
        Ok(())
    })
    .await?;
    testbed::signal_group(&child, "SIGINT")?;
    let out = tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        let out = child.stdout.take().context("the command's output")?;
        std::io::Read::read_to_string(&mut std::io::BufReader::new(out), &mut text)?;
        anyhow::Ok((child.wait()?, text))
    });
    let (status, log) = out.await??;
    ensure!(!status.success() && log.contains("Nothing of the run is left"), "{status}: {log}");
    Ok(())
}

/// What has to be there before anything is begun.
async fn refusals(kubeconfig: &Path) -> Result<()> {
    let (ok, log) = existing(kubeconfig, &["--yes"]).await?;
    ensure!(!ok && log.contains("there is no istiod in this cluster"), "{log}");
    let (ok, log) = existing(Path::new("/nowhere/config"), &["--yes"]).await?;
    ensure!(!ok && log.contains("/nowhere/config"), "{log}");
    Ok(())
}

/// Whatever is there of an istio-integrator, or of a run, stops the next.
async fn disturbed(session: &Session, kubeconfig: &Path) -> Result<()> {
    let kubectl = |args: &[&str]| run_command(session.kubectl(args), None);
    kubectl(&["create", "clusterrole", "istio-integrator", "--verb=get", "--resource=pods"]).await?;
    let (ok, log) = existing(kubeconfig, &["--yes"]).await?;
    ensure!(!ok && log.contains("installed here") && log.contains("clusterrole"), "{log}");
    let (ok, log) = existing(kubeconfig, &["--clean-up", "--yes"]).await?;
    ensure!(ok && log.contains("No run has left anything"), "{log}");
    kubectl(&["delete", "clusterrole", "istio-integrator"]).await?;

    let filter = serde_json::json!({
        "apiVersion": "networking.istio.io/v1alpha3", "kind": "EnvoyFilter",
        "metadata": {"name": "theirs", "namespace": "default", "labels": {"app.kubernetes.io/managed-by": "istio-integrator"}},
        "spec": {"configPatches": []},
    });
    run_command(session.kubectl(["apply", "-f", "-"]), Some(filter.to_string())).await?;
    let (ok, log) = existing(kubeconfig, &["--yes"]).await?;
    ensure!(!ok && log.contains("EnvoyFilter default/theirs"), "{log}");
    kubectl(&["-n", "default", "delete", "envoyfilter", "theirs"]).await?;

    // As after a crash between the first object and the second.
    kubectl(&["create", "namespace", "istio-integrator"]).await?;
    kubectl(&["label", "namespace", "istio-integrator", "testbed.istio-operators.io/run=r1"]).await?;
    let (ok, log) = existing(kubeconfig, &["--yes"]).await?;
    ensure!(!ok && log.contains("--clean-up") && log.contains("namespace/istio-integrator"), "{log}");
    let (ok, log) = existing(kubeconfig, &["--clean-up", "--yes"]).await?;
    ensure!(ok && log.contains("Nothing of a run is left"), "{log}");
    Ok(())
}

/// Every object of the cluster by kind, namespace, name and uid, but for those that come and go by themselves.
async fn objects(session: &Session) -> Result<BTreeSet<String>> {
    let kinds = run_command(session.kubectl(["api-resources", "--verbs=list", "-o", "name"]), None).await?;
    let mut kinds: Vec<&str> =
        kinds.lines().filter(|kind| !kind.starts_with("events") && !kind.starts_with("leases.")).collect();
    kinds.sort_unstable();
    let columns =
        "custom-columns=KIND:.kind,NAMESPACE:.metadata.namespace,NAME:.metadata.name,UID:.metadata.uid";
    let kinds = kinds.join(",");
    let args = ["get", &kinds, "-A", "--no-headers", "--ignore-not-found", "-o", columns];
    Ok(run_command(session.kubectl(args), None).await?.lines().map(str::to_owned).collect())
}
