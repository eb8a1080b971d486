//! Istio on the test bed, installed by its own istioctl from charts stamped as release charts are.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cluster::Session;
use crate::command::output;
use crate::tools::ISTIO_HUB;

/// The namespace of the control plane and the default gateway.
pub const ROOT_NAMESPACE: &str = "istio-system";

/// Switches off the one telemetry filter that upstream Envoy does not have.
const TELEMETRY: &str = "\
apiVersion: telemetry.istio.io/v1
kind: Telemetry
metadata:
  name: testbed-no-stats
  namespace: istio-system
spec:
  metrics:
  - providers:
    - name: prometheus
    overrides:
    - match:
        metric: ALL_METRICS
      disabled: true
";

/// The folder of the Go module of a package, by the go.mod of a tool set.
///
/// By a package, not by the module: `go list -m` asks for metadata that not every module proxy has of every version.
pub(crate) fn module_of(package: &str, tool_set: &Path) -> Result<PathBuf> {
    let module = Command::new("go")
        .args(["list", "-f", "{{.Module.Dir}}", package])
        .current_dir(tool_set)
        .output()
        .context("start `go list`")?;
    if !module.status.success() {
        bail!("`go list {package}` failed: {}", String::from_utf8_lossy(&module.stderr).trim());
    }
    Ok(PathBuf::from(String::from_utf8_lossy(&module.stdout).trim().to_owned()))
}

/// Copies charts, profiles and the bootstrap template out of the Istio module and stamps them.
///
/// The charts in the module carry `version: 1.0.0`, a testing hub and `tag: latest`; Istio's release builder
/// replaces these when it packages a release. Without that a default install names development images.
pub(crate) fn lay_charts(tool_set: &Path, out: &Path, version: &str) -> Result<()> {
    let module = module_of("istio.io/istio/pilot/cmd/pilot-discovery", tool_set)?;
    let manifests = out.join("manifests");
    let mut stamped = Stamped::default();
    for part in ["charts", "profiles"] {
        stamp_tree(&module.join("manifests").join(part), &manifests.join(part), version, &mut stamped)?;
    }
    // 1.31 has eight charts with a version each, and six files with a tag; a module in which nothing matched has
    // another layout, and using it unstamped would install development images.
    if stamped.versions == 0 || stamped.tags == 0 || stamped.hubs == 0 {
        bail!("the charts in {} are not laid out as expected: {stamped:?}", module.display());
    }
    let bootstrap = module.join("tools/packaging/common/envoy_bootstrap.json");
    let text = std::fs::read(&bootstrap).with_context(|| format!("read {}", bootstrap.display()))?;
    std::fs::write(out.join("envoy_bootstrap.json"), text)?;
    Ok(())
}

#[derive(Debug, Default)]
struct Stamped {
    versions: usize,
    hubs: usize,
    tags: usize,
}

fn stamp_tree(from: &Path, to: &Path, version: &str, stamped: &mut Stamped) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from).with_context(|| format!("read {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            stamp_tree(&entry.path(), &target, version, stamped)?;
            continue;
        }
        let bytes = std::fs::read(entry.path())?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_profile = from.ends_with("profiles");
        let bytes = match String::from_utf8(bytes) {
            Ok(text) if name == "Chart.yaml" || name == "values.yaml" || is_profile => {
                stamp(&name, &text, version, stamped).into_bytes()
            }
            Ok(text) => text.into_bytes(),
            Err(other) => other.into_bytes(),
        };
        // Written anew rather than copied: files of the module cache are read-only.
        std::fs::write(&target, bytes).with_context(|| format!("write {}", target.display()))?;
    }
    Ok(())
}

fn stamp(name: &str, text: &str, release: &str, stamped: &mut Stamped) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        let bare = line.trim_start();
        let indent = &line[..line.len() - bare.len()];
        let key = bare.split(':').next().unwrap_or_default();
        let value = bare.split_once(": ").map_or("", |(_, v)| v.trim());
        let replaced = match (name, key, value) {
            ("Chart.yaml", "version" | "appVersion", "1.0.0") => {
                stamped.versions += 1;
                Some(release)
            }
            ("Chart.yaml", ..) => None,
            (_, "hub", v) if v.ends_with("/testing") || v.ends_with("istio-testing") => {
                stamped.hubs += 1;
                Some(ISTIO_HUB)
            }
            (_, "tag", "latest") => {
                stamped.tags += 1;
                Some(release)
            }
            _ => None,
        };
        if let Some(value) = replaced {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{indent}{key}: {value}");
        } else {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

/// The manifests of a default installation plus `--set` values, as istioctl prints them.
pub fn manifests(session: &Session, set: &[&str]) -> Result<String> {
    let tools = session.tools();
    let mut command = Command::new(tools.istio.join("istioctl"));
    command.args(["manifest", "generate", "--manifests"]).arg(tools.istio.join("manifests"));
    for value in set {
        command.args(["--set", value]);
    }
    output(command, None)
}

/// Installs Istio and waits until istiod and, where the profile has one, the ingress gateway serve.
///
/// `set` takes istioctl's `--set` values, for example `profile=minimal` or `revision=canary`.
pub fn install(session: &Session, set: &[&str]) -> Result<()> {
    let text = manifests(session, set)?;
    let namespace = format!("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {ROOT_NAMESPACE}\n---\n");
    let apply = ["apply", "--server-side", "--field-manager=istioctl", "-f", "-"];
    output(session.kubectl(apply), Some(&(namespace + &text))).context("apply Istio's manifests")?;
    output(
        session.kubectl(["wait", "--for=condition=Established", "crd/telemetries.telemetry.istio.io"]),
        None,
    )?;
    let names = output(session.kubectl(["-n", ROOT_NAMESPACE, "get", "deployments", "-o", "name"]), None)?;
    for name in names.lines() {
        let wait = ["-n", ROOT_NAMESPACE, "rollout", "status", "--timeout=120s", name];
        output(session.kubectl(wait), None).with_context(|| format!("wait for {name}"))?;
    }
    output(session.kubectl(apply), Some(TELEMETRY)).context("apply the test bed's Telemetry")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::ISTIO_VERSION;

    #[test]
    fn stamps_what_the_release_builder_stamps_and_nothing_else() {
        let mut stamped = Stamped::default();
        let chart = stamp(
            "Chart.yaml",
            "name: base\nversion: 1.0.0\nappVersion: 1.0.0\n",
            ISTIO_VERSION,
            &mut stamped,
        );
        assert_eq!(chart, format!("name: base\nversion: {ISTIO_VERSION}\nappVersion: {ISTIO_VERSION}\n"));
        let values =
            "global:\n    # tag: latest\n    hub: registry/testing\n    tag: latest\n    other: latest\n";
        let values = stamp("values.yaml", values, ISTIO_VERSION, &mut stamped);
        let expected = format!(
            "global:\n    # tag: latest\n    hub: {ISTIO_HUB}\n    tag: {ISTIO_VERSION}\n    other: latest\n"
        );
        assert_eq!(values, expected);
        assert_eq!((stamped.versions, stamped.hubs, stamped.tags), (2, 1, 1));
    }
}
