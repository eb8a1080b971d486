//! `cargo xtask bench`: what the design promises, measured.
//!
//! What is compared is measured in turn, several rounds over, so that a machine that is busy for a while spoils a round of
//! everything rather than all of one thing. Every figure is printed; medians and their ratios decide.

mod chain;
mod compile;
mod rounds;

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result, bail};

/// Command line of `bench`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask bench compile\n  cargo xtask bench chain --rounds 3\n\nClose other programs first, \
                        and look at how far the figures of one row lie apart before believing a ratio."
)]
pub(crate) struct Args {
    /// Run one part only.
    #[arg(value_enum)]
    part: Option<Part>,
    /// How many rounds.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=50))]
    rounds: u8,
    /// For the benchmark itself: the run directory of the cluster that this process is inside of.
    #[arg(long, hide = true)]
    inside: Option<PathBuf>,
    /// For the benchmark itself: the measuring program.
    #[arg(long, hide = true)]
    tool: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// The route compiler: time and memory for 1,000, 10,000 and 50,000 requests, and for one changed request
    Compile,
    /// The guard chain: answers a second and Envoy's processor time an answer, with and without it
    Chain,
}

/// Carries out the command line.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if let (Some(run_dir), Some(tool)) = (&args.inside, &args.tool) {
        chain::inside(run_dir, tool, args.rounds)?;
        return Ok(ExitCode::SUCCESS);
    }
    let tool = tool()?;
    if args.part.is_none_or(|part| part == Part::Compile) {
        compile::run(&tool, args.rounds)?;
    }
    if args.part.is_none_or(|part| part == Part::Chain) {
        chain::run(&tool, args.rounds)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The measuring program, built as programs are released.
fn tool() -> Result<PathBuf> {
    let target = super::doctor::target_dir()?;
    let status = testbed::command::cargo()
        .args(["build", "--release", "--package", "bench", "--bin", "bench-tool", "--target-dir"])
        .arg(&target)
        .status()
        .context("start cargo")?;
    if !status.success() {
        bail!("`cargo build --release -p bench` failed ({status})");
    }
    Ok(target.join("release/bench-tool"))
}

/// Runs the measuring program to its end and reads its line.
fn ask<T: serde::de::DeserializeOwned>(command: &mut Command) -> Result<T> {
    let out = command.stdin(Stdio::null()).output().context("start bench-tool")?;
    if !out.status.success() {
        bail!("bench-tool failed ({}): {}", out.status, String::from_utf8_lossy(&out.stderr).trim());
    }
    serde_json::from_slice(&out.stdout).context("the line of bench-tool")
}
