//! Taking away what a run made, and looking whether it is gone.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{MARK, OWN, Target, discover};
use crate::command::output;

/// Stops the integrator and runs the Job of `deploy/uninstall`, as the book says. Gives the Job's log.
///
/// # Errors
/// When a step fails; for the Job, the error holds its log.
pub fn uninstall(target: &Target) -> Result<String> {
    let ask = |args: &[&str]| output(target.kubectl([&["-n", OWN], args].concat()), None);
    ask(&["scale", "deployment/istio-integrator", "--replicas=0"])?;
    let label = "app.kubernetes.io/name=istio-integrator";
    ask(&["wait", "--for=delete", "pods", "-l", label, "--timeout=90s"])?;
    let job = "job/istio-integrator-uninstall";
    ask(&["delete", job, "--ignore-not-found"])?;
    output(target.kubectl(["apply", "-f", "-"]), Some(&target.rendered("deploy/uninstall")?))?;
    let done = ask(&["wait", "--for=condition=Complete", job, "--timeout=120s"]);
    let log = ask(&["logs", job]).unwrap_or_else(|error| format!("{error:#}"));
    done.with_context(|| log.clone())?;
    Ok(log)
}

/// Removes all that the run made, in an order that opens no door, and then shows that it is gone.
///
/// # Errors
/// When something is left; the error lists it.
pub(super) async fn everything(target: &Target, client: &kube::Client) -> Result<()> {
    let marked = discover::left(target).await?;
    let own = format!("namespace/{OWN}");
    let mut problems = Vec::new();
    // Only a namespace that a run made says that the objects of deploy/integrator are a run's.
    let ours = marked.contains(&own);
    if ours {
        let deployed = ["-n", OWN, "get", "deployment", OWN, "--ignore-not-found", "-o", "name"];
        if !target.ask(&deployed, None).await?.trim().is_empty() {
            let of_job = target.clone();
            let job = tokio::task::spawn_blocking(move || uninstall(&of_job)).await?;
            problems.extend(job.err().map(|error| format!("uninstalling in good order failed: {error:#}")));
        }
    }
    let tests: Vec<&str> = marked.iter().filter(|name| **name != own).map(String::as_str).collect();
    if !tests.is_empty() {
        let delete = [&["delete", "--ignore-not-found", "--timeout=180s"], tests.as_slice()].concat();
        problems.extend(target.ask(&delete, None).await.err().map(|error| format!("{error:#}")));
    }
    if ours {
        // What the Job left: routes first, as it does.
        let label = format!("app.kubernetes.io/managed-by={OWN}");
        for (kind, namespace) in
            [("virtualservices", OWN), ("envoyfilters", target.mesh.root_namespace.as_str())]
        {
            let kind = format!("{kind}.networking.istio.io");
            let delete = ["-n", namespace, "delete", &kind, "-l", &label, "--ignore-not-found"];
            problems.extend(target.ask(&delete, None).await.err().map(|error| format!("{error:#}")));
        }
        let delete = ["delete", "--ignore-not-found", "--timeout=180s", "-f", "-"];
        let objects = without_namespace(&target.rendered("deploy/integrator")?)?;
        problems.extend(target.ask(&delete, Some(objects)).await.err().map(|error| format!("{error:#}")));
        // The mark, last of all.
        if problems.is_empty() || rest(target, client).await?.iter().all(|name| *name == own) {
            let delete = ["delete", &own, "--ignore-not-found", "--timeout=180s"];
            problems.extend(target.ask(&delete, None).await.err().map(|error| format!("{error:#}")));
        }
    }
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        let rest = rest(target, client).await?;
        if rest.is_empty() {
            for problem in problems {
                eprintln!("warning: {problem}");
            }
            return Ok(());
        }
        if Instant::now() > deadline {
            problems.push(format!("still there: {}", rest.join(", ")));
            bail!("{}", problems.join("\n"));
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// All that is left of a run.
async fn rest(target: &Target, client: &kube::Client) -> Result<Vec<String>> {
    let mut rest = discover::left(target).await?;
    for name in
        discover::installed(target).await?.into_iter().chain(discover::generated(target, client).await?)
    {
        if !rest.contains(&name) {
            rest.push(name);
        }
    }
    Ok(rest)
}

/// The objects of a rendering but for its Namespace, as a List.
fn without_namespace(rendered: &str) -> Result<String> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(rendered)?;
    let items: Vec<Value> =
        documents.into_iter().filter(|object| !object.is_null() && object["kind"] != "Namespace").collect();
    if items.is_empty() {
        bail!("{MARK}: the rendering holds no object");
    }
    Ok(serde_json::json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string())
}
