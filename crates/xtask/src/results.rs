//! What the thorough parts answered, kept with what they were run on.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The outcome of one part.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// The commit that was checked out.
    pub(crate) commit: String,
    /// A hash of every file that git tracks or would track, as it lay in the work tree.
    pub(crate) inputs: String,
    /// Whether everything passed.
    pub(crate) passed: bool,
    /// How long it took.
    pub(crate) seconds: u64,
    /// Seconds since 1970, when it ended.
    pub(crate) ended: u64,
}

fn file(part: &str) -> Result<PathBuf> {
    let dir = testbed::paths::cache_dir()?.join("results");
    std::fs::create_dir_all(&dir)?;
    Ok(dir.join(format!("{part}.json")))
}

fn git(args: &[&str]) -> Result<Vec<u8>> {
    let out = Command::new("git")
        .args(args)
        .current_dir(testbed::paths::repo_root())
        .output()
        .context("start git")?;
    if !out.status.success() {
        bail!("git {}: {}", args.join(" "), String::from_utf8_lossy(&out.stderr).trim());
    }
    Ok(out.stdout)
}

/// The commit and the hash of the work tree.
pub(crate) fn state() -> Result<(String, String)> {
    let commit = String::from_utf8_lossy(&git(&["rev-parse", "HEAD"])?).trim().to_owned();
    let files = git(&["ls-files", "-z", "--cached", "--others", "--exclude-standard"])?;
    let mut hash = Sha256::new();
    for name in files.split(|&b| b == 0).filter(|n| !n.is_empty()) {
        let path = testbed::paths::repo_root().join(String::from_utf8_lossy(name).as_ref());
        hash.update(name);
        // A deleted file is part of the state too: its name without content.
        hash.update(std::fs::read(path).unwrap_or_default());
    }
    let inputs = testbed::tools::hex(&hash.finalize()[..8]);
    Ok((commit, inputs))
}

/// The last outcome of a part, if it was run before.
pub(crate) fn last(part: &str) -> Option<Outcome> {
    serde_json::from_slice(&std::fs::read(file(part).ok()?).ok()?).ok()
}

/// Keeps an outcome.
pub(crate) fn keep(part: &str, outcome: &Outcome) -> Result<()> {
    Ok(std::fs::write(file(part)?, serde_json::to_vec_pretty(outcome)?)?)
}

/// Rounds of `repeat` that passed one after the other.
#[derive(Debug, Serialize, Deserialize)]
struct Rounds {
    inputs: String,
    passed: u32,
}

/// How many rounds of `repeat` have passed in a row on these files.
pub(crate) fn rounds(inputs: &str) -> u32 {
    let read = || serde_json::from_slice::<Rounds>(&std::fs::read(file("repeat-rounds").ok()?).ok()?).ok();
    read().filter(|rounds| rounds.inputs == inputs).map_or(0, |rounds| rounds.passed)
}

/// Keeps how many rounds of `repeat` have passed in a row on these files.
pub(crate) fn keep_rounds(inputs: &str, passed: u32) -> Result<()> {
    let rounds = Rounds { inputs: inputs.to_owned(), passed };
    let path = file("repeat-rounds")?;
    std::fs::write(&path, serde_json::to_vec_pretty(&rounds)?)
        .with_context(|| format!("write {}", path.display()))
}
