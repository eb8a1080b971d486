//! The end of a run on an existing cluster: routes go one by one, and then the integrator, with all that it made.

use anyhow::{Context, Result, ensure};
use testbed::harness::{Test, eventually};
use testbed::{Site, last, portable};

use crate::auth_world::{LOGIN, protected};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        portable!(a_deleted_request_is_a_404).limit_seconds(240),
        last!(uninstalling_closes_and_leaves_nothing).limit_seconds(300),
    ]
}

const OWN: &str = "istio-integrator";

async fn a_deleted_request_is_a_404(t: Site) -> Result<()> {
    let world = protected(&t).await?;
    ensure!(world.get("/pub", "").await?.status == 200);
    let find = format!("jsonpath={{.items[?(@.spec.hosts[0]==\"{}\")].metadata.name}}", world.host);
    let object = ["-n", OWN, "get", "virtualservices", "-o", &find];
    ensure!(!t.kubectl(&object).await?.is_empty(), "no VirtualService of ours serves {}", world.host);
    t.kubectl(&["delete", "ingressrequest", "app"]).await?;
    world.answers("/pub", "", 404).await?;
    // A protected route goes as it came: never open.
    world.answers("/", LOGIN, 404).await?;
    ensure!(world.get("/", "").await?.status == 404);
    eventually("the VirtualService to go", 30, || async {
        let left = t.kubectl(&object).await?;
        ensure!(left.is_empty(), "{left}");
        Ok(())
    })
    .await?;
    world.cleaned(&t).await
}

async fn uninstalling_closes_and_leaves_nothing(t: Site) -> Result<()> {
    let world = protected(&t).await?;
    world.chain(&t).await?;
    let watchman = crate::auth_watchman::Watchman::start(&world);
    let log = t.uninstall().await?;
    let place = |text: &str| log.find(text).with_context(|| format!("{text:?} is missing in\n{log}"));
    ensure!(place("VirtualService objects removed")? < place("EnvoyFilter objects removed")?, "{log}");
    watchman.end().await?;
    for (path, login) in [("/", ""), ("/", LOGIN), ("/pub", "")] {
        world.answers(path, login, 404).await?;
    }
    let label = format!("app.kubernetes.io/managed-by={OWN}");
    for kind in ["virtualservices.networking.istio.io", "envoyfilters.networking.istio.io"] {
        let left = t.kubectl(&["get", kind, "-A", "-l", &label, "-o", "name"]).await?;
        ensure!(left.is_empty(), "left: {left}");
    }
    for kind in ["lease", "secret"] {
        let left = t.kubectl(&["-n", OWN, "get", kind, "-o", "name"]).await?;
        ensure!(!left.contains(OWN), "left: {left}");
    }
    let status = t.field("ingressrequest/app", "{.status.conditions}{.status.urls}").await?;
    ensure!(status.is_empty(), "its status still claims something: {status}");
    Ok(())
}
