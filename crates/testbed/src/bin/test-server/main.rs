//! The program in the test bed's test images: small servers, and processes that end in chosen ways.
//!
//! A container has no shell and needs none: the image is this one file. Each server stops on SIGTERM, also as
//! process 1 of its pod, where a signal without a handler would be ignored.

mod echo;
mod exit;
mod ext_authz;
mod grpc_health;
mod probe_target;
mod record;
mod serve;
mod signals;
mod witness;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(about, version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Answers every HTTP request with what it got, in JSON.
    Echo(echo::Args),
    /// Answers gRPC health checks (grpc.health.v1) without TLS.
    GrpcHealth(grpc_health::Args),
    /// An HTTP endpoint that turns unhealthy on GET /fail and healthy on GET /recover.
    ProbeTarget(probe_target::Args),
    /// Logs the signals it gets, and exits some time after SIGTERM or SIGINT.
    Signal(signals::Args),
    /// Exits with a code, after some time and with a termination message if asked.
    Exit(exit::Args),
    /// Envoy's HTTP external authorization: lets in who has a session or the bearer token, as tests tell it.
    ExtAuthz(ext_authz::Args),
    /// Answers 200 to whatever looks like an HTTP/1.1 request, and keeps its very bytes for a test to read.
    Witness(witness::Args),
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    // One thread: a test runs dozens of these, each with next to nothing to do.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match args.command {
            Command::Echo(args) => echo::run(args).await,
            Command::GrpcHealth(args) => grpc_health::run(args).await,
            Command::ProbeTarget(args) => probe_target::run(args).await,
            Command::Signal(args) => signals::run(&args).await,
            Command::Exit(args) => exit::run(args).await,
            Command::ExtAuthz(args) => ext_authz::run(args).await,
            Command::Witness(args) => witness::run(args).await,
        }
    })
}

/// Writes a line to standard output, where `kubectl logs` shows it. A reader that has gone is no error.
fn say(line: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stdout(), "{line}");
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        super::Args::command().debug_assert();
    }
}
