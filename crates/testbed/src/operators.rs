//! Our own operators on the test bed: from the archives of `cargo xtask image`, through the manifests in `deploy/`.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use process_node::config::{ImageRule, ImageSource};

use crate::cluster::Session;
use crate::command::output;
use crate::paths::repo_root;

/// The archive of one of our images, built first unless `TESTBED_IMAGE_DIR` names a folder just filled.
pub fn archive(name: &str) -> Result<PathBuf> {
    if let Some(dir) = std::env::var_os("TESTBED_IMAGE_DIR") {
        let path = PathBuf::from(dir).join(format!("{name}.tar"));
        if !path.is_file() {
            bail!("{} does not exist; run `cargo xtask image {name} --out` that folder", path.display());
        }
        return Ok(path);
    }
    let out = crate::images::program("process-node")?.with_file_name("images");
    let status = crate::command::cargo()
        .args(["run", "--quiet", "--package", "xtask", "--", "image", name, "--profile", "image", "--out"])
        .arg(&out)
        .status()
        .context("start cargo")?;
    if !status.success() {
        bail!("`cargo xtask image {name}` failed ({status})");
    }
    Ok(out.join(format!("{name}.tar")))
}

/// Makes the image of one of our operators known to the cluster's node, beside those it knows.
pub fn add_image(session: &Session, name: &str) -> Result<()> {
    let source = ImageSource::OciArchive { path: archive(name)? };
    let rule = ImageRule { pattern: format!("*istio-operators/{name}:*"), source };
    let mut map = session.images()?;
    map.rules.retain(|known| known.pattern != rule.pattern);
    map.rules.push(rule);
    session.set_images(&map)
}

/// Makes the images of a run on an existing cluster known under a registry's name: as if they had been pushed there.
pub fn add_images_at(session: &Session, prefix: &str) -> Result<()> {
    let server = crate::images::program_rule(
        &format!("{prefix}/test-server:*"),
        &crate::images::program("test-server")?,
    );
    let source = ImageSource::OciArchive { path: archive("istio-integrator")? };
    let integrator = ImageRule { pattern: format!("{prefix}/istio-integrator:*"), source };
    let mut map = session.images()?;
    map.rules.extend([server, integrator]);
    session.set_images(&map)
}

/// Applies `deploy/integrator` as a user would and waits until a replica is ready.
pub fn deploy_integrator(session: &Session) -> Result<()> {
    add_image(session, "istio-integrator")?;
    let base = repo_root().join("deploy/integrator").display().to_string();
    // Other tests may apply the CRDs at this very moment; server-side apply does not mind who was first.
    let apply = ["apply", "--server-side", "--force-conflicts", "-k", &base];
    output(session.kubectl(apply), None).context("kubectl apply --server-side -k deploy/integrator")?;
    rolled_out(session)
}

/// Sets variables of the deployed integrator and waits until it runs with them.
pub fn set_integrator_env(session: &Session, variables: &[(&str, &str)]) -> Result<()> {
    let variables: Vec<String> = variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let mut args = vec!["-n", "istio-integrator", "set", "env", "deployment/istio-integrator"];
    args.extend(variables.iter().map(String::as_str));
    output(session.kubectl(args), None).context("kubectl set env")?;
    rolled_out(session)
}

fn rolled_out(session: &Session) -> Result<()> {
    let namespace = ["-n", "istio-integrator"];
    let names =
        output(session.kubectl([&namespace[..], &["get", "deployments", "-o", "name"]].concat()), None)?;
    for name in names.lines() {
        let wait = [&namespace[..], &["rollout", "status", "--timeout=180s", name]].concat();
        let rolled = output(session.kubectl(wait), None).with_context(|| format!("wait for {name}"));
        if let Err(error) = rolled {
            let why = [&namespace[..], &["get", "pods,events", "-o", "wide"]].concat();
            let seen = output(session.kubectl(why), None).unwrap_or_default();
            return Err(error.context(seen));
        }
    }
    Ok(())
}
