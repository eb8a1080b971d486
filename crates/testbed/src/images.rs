//! Which program an image reference stands for on the test bed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use process_node::config::{ImageMap, ImageRule, ImageSource};

use crate::tools::Tools;

/// The image of the small servers that tests run: its first argument names one, see `test-server --help`.
pub const TEST_SERVER_IMAGE: &str = "testbed/test-server:1";
/// An image with the host's `/bin` and `/usr/bin`, for pods that need a shell.
pub const SHELL_IMAGE: &str = "testbed/shell:1";

/// The folder of this workspace's built programs, which are brought up to date first unless `TESTBED_BIN_DIR`
/// names a folder that a caller (`cargo xtask`) has just filled.
fn bin_dir() -> Result<PathBuf> {
    if let Some(dir) = std::env::var_os("TESTBED_BIN_DIR") {
        return Ok(PathBuf::from(dir));
    }
    // target/PROFILE/deps/NAME-HASH for tests, target/PROFILE/NAME for programs.
    let exe = std::env::current_exe()?;
    let mut dir = exe.parent().context("the folder of the running program")?.to_path_buf();
    if dir.ends_with("deps") {
        dir.pop();
    }
    let profile = if dir.ends_with("release") { "release" } else { "dev" };
    let status = crate::command::cargo()
        .args([
            "build",
            "--quiet",
            "--package",
            "process-node",
            "--package",
            "testbed",
            "--package",
            "istio-integrator",
            "--bins",
            "--profile",
        ])
        .args([profile, "--target-dir"])
        .arg(dir.parent().context("the target folder")?)
        .status()
        .context("start cargo")?;
    if !status.success() {
        bail!("`cargo build -p process-node -p testbed -p istio-integrator --bins` failed ({status})");
    }
    Ok(dir)
}

/// The path of one of this workspace's programs, built if need be.
pub fn program(name: &str) -> Result<PathBuf> {
    let path = bin_dir()?.join(name);
    if !path.is_file() {
        bail!("{} does not exist; run `cargo build --workspace --bins`", path.display());
    }
    Ok(path)
}

fn files(list: &[(&str, &Path)]) -> BTreeMap<PathBuf, PathBuf> {
    list.iter().map(|&(at, from)| (PathBuf::from(at), from.to_path_buf())).collect()
}

fn host(files: BTreeMap<PathBuf, PathBuf>, entrypoint: &[&str], env: &[(&str, &str)]) -> ImageSource {
    ImageSource::Host {
        files,
        entrypoint: entrypoint.iter().map(|&s| s.to_owned()).collect(),
        cmd: Vec::new(),
        env: env.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect(),
        working_dir: None,
        writable: Vec::new(),
        shell: false,
    }
}

/// The rule for an image that is one program of this machine, which needs nothing but the C library.
pub fn program_rule(image: &str, program: &Path) -> ImageRule {
    let source = host(files(&[("/program", program)]), &["/program"], &[]);
    ImageRule { pattern: image.to_owned(), source }
}

/// The rules for one Istio release's `pilot` and `proxyv2` images.
pub fn istio_rules(tools: &Tools, tag: &str) -> Vec<ImageRule> {
    let pilot = host(
        files(&[("/usr/local/bin/pilot-discovery", &tools.istio.join("pilot-discovery"))]),
        &["/usr/local/bin/pilot-discovery"],
        // Upstream Envoy has none of the filters that Istio's own build adds; a listener that names one would be
        // refused as a whole.
        &[("PILOT_ENABLE_METADATA_EXCHANGE", "false"), ("PILOT_ENABLE_ALPN_FILTER", "false")],
    );
    let proxy = host(
        files(&[
            ("/usr/local/bin/pilot-agent", &tools.istio.join("pilot-agent")),
            ("/usr/local/bin/envoy", &tools.envoy),
            ("/var/lib/istio/envoy/envoy_bootstrap_tmpl.json", &tools.istio.join("envoy_bootstrap.json")),
        ]),
        &["/usr/local/bin/pilot-agent"],
        &[],
    );
    let rule = |image: &str, source: ImageSource| ImageRule { pattern: format!("*/{image}:{tag}*"), source };
    vec![
        rule("pilot", pilot),
        rule("proxyv2", proxy),
        // No iptables and no node network here: these only become ready, and no test claims more.
        rule("install-cni", ImageSource::StandIn),
        rule("ztunnel", ImageSource::StandIn),
    ]
}

/// The images every cluster knows: the test servers, a shell, and Istio's of [`Tools::istio_version`].
pub fn default_map(tools: &Tools) -> Result<ImageMap> {
    let server = program("test-server")?;
    let mut shell = host(BTreeMap::new(), &[], &[]);
    if let ImageSource::Host { shell, .. } = &mut shell {
        *shell = true;
    }
    let mut rules = vec![
        ImageRule {
            pattern: TEST_SERVER_IMAGE.to_owned(),
            source: host(files(&[("/test-server", &server)]), &["/test-server"], &[]),
        },
        ImageRule { pattern: SHELL_IMAGE.to_owned(), source: shell },
    ];
    rules.extend(istio_rules(tools, &tools.istio_version));
    Ok(ImageMap { stand_in_all: false, rules })
}

/// Takes every image for an instantly ready stand-in, for tests that count API calls rather than traffic.
pub fn stand_in_map() -> ImageMap {
    ImageMap { stand_in_all: true, rules: Vec::new() }
}
