//! `cargo xtask shell`: into a running cluster.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use testbed::{Cluster, Options};

/// Command line of `shell`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  cargo xtask shell\n  cargo xtask shell -- kubectl get pods -A\n  \
                        cargo xtask shell --new --istio")]
pub(crate) struct Args {
    /// The run directory of the cluster to enter; needed only when several are up.
    #[arg(long)]
    cluster: Option<PathBuf>,
    /// Start a cluster for this shell; it ends with the shell.
    #[arg(long, conflicts_with = "cluster")]
    new: bool,
    /// With --new: install Istio on it.
    #[arg(long, requires = "new")]
    istio: bool,
    /// The command to run; default: an interactive shell.
    #[arg(last = true)]
    command: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let cluster = if args.new {
        super::doctor::check(true)?;
        let cluster = Cluster::start(&Options::default())?;
        if args.istio {
            eprintln!("istio: installing");
            let session = cluster.session().clone();
            install_istio(&cluster, &session)?;
        }
        cluster
    } else {
        Cluster::attach(&choose(args.cluster.clone())?)?
    };
    let (program, rest) = if let Some((program, rest)) = args.command.split_first() {
        (PathBuf::from(program), rest.to_vec())
    } else {
        eprintln!(
            "kubectl and istioctl are on the PATH, names like NAME.NAMESPACE.svc resolve; `exit` leaves."
        );
        (std::env::var_os("SHELL").map_or_else(|| PathBuf::from("/bin/sh"), PathBuf::from), Vec::new())
    };
    let status = cluster.command(&program)?.args(rest).status().context("start the shell")?;
    Ok(ExitCode::from(status.code().and_then(|c| u8::try_from(c).ok()).unwrap_or(1)))
}

/// Runs this program again inside the cluster for the steps that need its network.
pub(crate) fn install_istio(cluster: &Cluster, session: &testbed::Session) -> Result<()> {
    let status = cluster
        .command(&std::env::current_exe()?)?
        .args(["demo", "--step", "istio", "--inside"])
        .arg(session.run_dir())
        .status()?;
    if !status.success() {
        bail!("installing Istio failed");
    }
    Ok(())
}

fn choose(given: Option<PathBuf>) -> Result<PathBuf> {
    if let Some(dir) = given {
        return Ok(dir);
    }
    let running = Cluster::list();
    match running.as_slice() {
        [one] => Ok(one.clone()),
        [] => bail!("no cluster is up; `cargo xtask demo --keep` or `cargo xtask shell --new` starts one"),
        many => {
            let list: Vec<String> = many.iter().map(|d| format!("  --cluster {}", d.display())).collect();
            bail!("several clusters are up; choose one:\n{}", list.join("\n"))
        }
    }
}
