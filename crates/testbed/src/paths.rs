//! Where the test bed keeps things: the user's cache, and run directories that vanish with their cluster.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The cache shared by every checkout of this project: `$XDG_CACHE_HOME/istio-operators`, or
/// `$HOME/.cache/istio-operators` where that variable is unset or empty.
pub fn cache_dir() -> Result<PathBuf> {
    let base =
        match std::env::var_os("XDG_CACHE_HOME").filter(|v| !v.is_empty()) {
            Some(dir) => PathBuf::from(dir),
            None => PathBuf::from(std::env::var_os("HOME").filter(|v| !v.is_empty()).context(
                "neither XDG_CACHE_HOME nor HOME is set; set one, so that tools can be kept there",
            )?)
            .join(".cache"),
        };
    Ok(base.join("istio-operators"))
}

/// The root of the checkout that this program was built from.
pub fn repo_root() -> PathBuf {
    // crates/testbed, two levels down.
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap_or(Path::new("/")).to_path_buf()
}

/// Tells a program inside a cluster's namespaces which folder its user's clusters are in: there every user is number 0.
pub(crate) const RUNS_DIR_VAR: &str = "TESTBED_RUNS_DIR";

/// The folder that holds the run directories of this user's clusters. Kept short, since Unix socket paths are
/// limited to 107 bytes.
pub fn runs_dir() -> PathBuf {
    if let Some(dir) = std::env::var_os(RUNS_DIR_VAR) {
        return PathBuf::from(dir);
    }
    std::env::temp_dir().join(format!("istio-operators-{}", nix::unistd::getuid()))
}
