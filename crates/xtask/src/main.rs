//! The one entry point: `cargo xtask COMMAND`.

mod bench;
mod demo;
#[cfg(test)]
mod docs;
mod doctor;
mod generate;
mod image;
mod results;
mod shell;
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Builds, tests and shows istio-daemon and istio-integrator.
#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    after_help = "Examples:\n  cargo xtask demo                 from nothing to a request served, then everything is gone again\n  \
                  cargo xtask demo --keep          the same, and leave it up\n  cargo xtask shell                enter a cluster that is up\n  \
                  cargo xtask test                 what CI runs\n  cargo xtask test pods            one part of it"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Say whether this machine can run the test bed, what is missing and how long building it takes.
    Doctor(doctor::Args),
    /// Bring up a cluster, Istio and istio-integrator, and serve a request through the gateway.
    Demo(demo::Args),
    /// Enter a running cluster with kubectl, curl and KUBECONFIG set, or start one for it.
    Shell(shell::Args),
    /// Run tests; without arguments, all that CI runs.
    Test(test::Args),
    /// Measure what the design promises, several times over, and show every figure.
    Bench(bench::Args),
    /// Write the files that follow from the types: the reference in docs/.
    Generate(generate::Args),
    /// Build OCI archives of our programs, without Docker.
    Image(image::Args),
}

fn main() -> ExitCode {
    // Before anything else: this may be a process that the test bed started for a role of its own.
    if let Some(code) = testbed::dispatch() {
        return code;
    }
    let result = match Cli::parse().command {
        Command::Doctor(args) => doctor::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Shell(args) => shell::run(&args),
        Command::Test(args) => test::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Generate(args) => generate::run(&args),
        Command::Image(args) => image::run(&args),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
