//! `istio-integrator`: turns `IngressRequest`s into routes of a gateway of any Istio.
//!
//! ```text
//! observe: watches -> caches   plan: what is wanted (pure)   apply: VirtualServices   status: conditions, Events
//!          ^                                                    |                       |
//!          +---------------- own writes at once ----------------+-----------------------+
//! ```

mod apply;
mod cli_compile;
mod cli_crds;
mod cli_explain;
mod cli_uninstall;
mod discover;
mod follow;
mod guard;
mod listing;
mod memory;
mod observe;
mod plan;
mod probe;
mod reconcile;
mod run;
mod stale_crds;
mod status;
mod verdict;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Turns ingress requests into routes on any Istio.
#[derive(Debug, Parser)]
#[command(name = "istio-integrator", version, about, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the requests of a cluster until told to stop
    Run(run::RunArgs),
    /// Show what requests in files turn into, without a cluster
    Compile(cli_compile::CompileArgs),
    /// Print the CRDs of this version
    Crds(cli_crds::CrdsArgs),
    /// Say why a request is served, or why it is not
    Explain(cli_explain::ExplainArgs),
    /// Remove from a cluster what the integrator left in it
    Uninstall(cli_uninstall::UninstallArgs),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Run(args) => run::run(args),
        Command::Compile(args) => cli_compile::run(args),
        Command::Crds(args) => cli_crds::run(args),
        Command::Explain(args) => cli_explain::run(&args),
        Command::Uninstall(args) => cli_uninstall::run(&args),
    };
    outcome.unwrap_or_else(|error| {
        // The chain of causes: what failed, then why.
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
