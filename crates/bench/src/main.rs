//! What `cargo xtask bench` measures, and measures with. Each command prints one line of JSON.
//!
//! It is a program of its own so that each measurement starts in a fresh process, and small so that it is soon built with
//! optimisation, which a measurement needs.

mod compile;
mod load;
mod serve;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(about, version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Compiles a number of requests, then once more with one of them changed.
    Compile(compile::Args),
    /// Sends one request again and again over kept connections, and counts the answers.
    Load(load::Args),
    /// Answers every HTTP/1.1 request with 200 at once: an application, or an auth service that lets everybody in.
    Serve(serve::Args),
}

fn main() -> Result<()> {
    match Args::parse().command {
        Command::Compile(args) => compile::run(&args),
        Command::Load(args) => runtime()?.block_on(load::run(args)),
        Command::Serve(args) => runtime()?.block_on(serve::run(args)),
    }
}

/// One thread, so that what is measured has the other processors.
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// Prints a result as the one line of JSON that the caller reads.
fn say(result: &impl serde::Serialize) -> Result<()> {
    use std::io::Write as _;
    let mut line = serde_json::to_vec(result)?;
    line.push(b'\n');
    std::io::stdout().write_all(&line)?;
    Ok(())
}
