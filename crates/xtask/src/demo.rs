//! `cargo xtask demo`: from nothing to routes and logins through the gateway, each step shown.

mod story;
mod terminal;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use testbed::{Cluster, Options, Session};

use terminal::title;

/// Command line of `demo`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  cargo xtask demo          show it, and leave nothing behind\n  \
                        cargo xtask demo --keep   show it, and leave the cluster up for `cargo xtask shell`")]
pub(crate) struct Args {
    /// Leave everything up afterwards, until Ctrl-C.
    #[arg(long)]
    keep: bool,
    /// For the demo itself: the run directory of the cluster that this process is inside of.
    #[arg(long, hide = true)]
    inside: Option<PathBuf>,
    /// For the demo itself: run only this step.
    #[arg(long, hide = true)]
    step: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if let Some(run_dir) = &args.inside {
        return inside(run_dir, args.step.as_deref());
    }
    let begun = Instant::now();
    super::doctor::check(true)?;
    testbed::tools::ensure()?;
    let images = if let Some(filled) = std::env::var_os("TESTBED_IMAGE_DIR") {
        PathBuf::from(filled)
    } else {
        let images = super::doctor::target_dir()?.join("images");
        super::image::build(&["istio-integrator".to_owned()], &images)?;
        images
    };
    title("A cluster: etcd, kube-apiserver, controller-manager, scheduler, a node");
    let mut cluster = Cluster::start(&Options::default())?;
    let status = cluster
        .command(&std::env::current_exe()?)?
        .args(["demo", "--inside"])
        .arg(cluster.session().run_dir())
        .env("TESTBED_IMAGE_DIR", &images)
        .status()
        .context("run the demo inside the cluster")?;
    if !status.success() {
        bail!("the demo failed; the lines above say where");
    }
    println!("\nDone in {:.0} s, with whatever had to be built first.", begun.elapsed().as_secs_f32());
    if args.keep {
        println!("The cluster stays up until Ctrl-C here. In another terminal:\n");
        println!("    cargo xtask shell");
        println!("    cargo xtask shell -- kubectl get ingressrequests -A");
        cluster.wait()?;
    }
    Ok(ExitCode::SUCCESS)
}

fn inside(run_dir: &Path, step: Option<&str>) -> Result<ExitCode> {
    let session = Session::at(run_dir)?;
    match step {
        Some("istio") => testbed::istio::install(&session, &[])?,
        Some(other) => bail!("no step {other:?}"),
        None => {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?
                .block_on(story::tell(&session))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
