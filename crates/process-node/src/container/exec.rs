//! `process-node exec`: runs a command inside a running container, for exec probes and hooks.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use nix::sched::CloneFlags;
use nix::unistd::{chroot, fchdir};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _};

use super::launcher::{exit_code, join};
use crate::reexec;

/// How much of a command's output is kept, as kubelet does for probes.
const OUTPUT_LIMIT: u64 = 10 * 1024;

/// How long it may take to enter a container.
const ENTER_TIMEOUT: Duration = Duration::from_secs(20);
/// What the stage says when the command runs.
const STARTED: &str = "started";

/// A command and where to run it.
#[derive(Debug, Serialize, Deserialize)]
struct ExecSpec {
    pid: i32,
    argv: Vec<String>,
    env: Vec<(String, String)>,
    working_dir: PathBuf,
}

/// A container as commands enter it.
#[derive(Clone, Debug)]
pub(crate) struct ExecTarget {
    /// Its first process.
    pub(crate) pid: i32,
    /// Its environment.
    pub(crate) env: Vec<(String, String)>,
    /// Its working directory.
    pub(crate) working_dir: PathBuf,
}

/// How a command in a container ended.
#[derive(Debug)]
pub(crate) struct ExecOutcome {
    /// Exit code, or 128 and the number of the signal.
    pub(crate) code: i32,
    /// What it wrote, cut to 10 KiB.
    pub(crate) output: String,
}

impl ExecTarget {
    /// Runs a command, killing it after `timeout`.
    pub(crate) async fn run(&self, argv: &[String], timeout: Duration) -> anyhow::Result<ExecOutcome> {
        ensure!(!argv.is_empty(), "the command is empty");
        let (socket, stdin) = reexec::socket_pair()?;
        let mut socket = tokio::io::BufReader::new(socket);
        let mut child = reexec::command("exec")
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("start the command")?;
        let stdout = child.stdout.take().context("the command has no output")?;
        let spec = ExecSpec {
            pid: self.pid,
            argv: argv.to_vec(),
            env: self.env.clone(),
            working_dir: self.working_dir.clone(),
        };
        let mut line = serde_json::to_vec(&spec)?;
        line.push(b'\n');
        let begun = async {
            socket.write_all(&line).await.context("hand over the command")?;
            heard(&mut socket).await
        };
        // Under load the way into the container may take longer than the command is given.
        let begun = tokio::time::timeout(ENTER_TIMEOUT, begun).await;
        let begun =
            begun.map_err(|_| anyhow!("the container was not entered within {ENTER_TIMEOUT:?}"))??;
        ensure!(begun == STARTED, "run {argv:?}: {begun}");
        let run = async {
            let mut bytes = Vec::new();
            let mut limited = stdout.take(OUTPUT_LIMIT);
            limited.read_to_end(&mut bytes).await?;
            // The rest is read too, so that the command does not block on a full pipe.
            tokio::io::copy(&mut limited.into_inner(), &mut tokio::io::sink()).await?;
            let code = heard(&mut socket).await?;
            let code = code.parse().map_err(|_| anyhow!("run {argv:?}: {code}"))?;
            anyhow::Ok(ExecOutcome { code, output: String::from_utf8_lossy(&bytes).into_owned() })
        };
        tokio::time::timeout(timeout, run)
            .await
            .unwrap_or_else(|_| Err(anyhow!("command {argv:?} timed out after {timeout:?}")))
    }
}

/// The next line from the stage; an error if it has gone without one.
async fn heard(socket: &mut tokio::io::BufReader<tokio::net::UnixStream>) -> anyhow::Result<String> {
    let mut line = String::new();
    socket.read_line(&mut line).await.context("listen to the command's stage")?;
    ensure!(!line.is_empty(), "it was killed, most likely with its container");
    Ok(line.trim_end().to_owned())
}

/// The body of `process-node exec`. Must run single-threaded.
pub(crate) fn main() -> anyhow::Result<()> {
    reexec::close_inherited()?;
    reexec::die_with_parent()?;
    let mut socket = reexec::stdin_socket()?;
    match run(&mut socket) {
        Ok(code) => writeln!(socket, "{code}").context("report to the node"),
        Err(error) => {
            reexec::complain(&mut socket, &error);
            Err(error)
        }
    }
}

fn run(socket: &mut UnixStream) -> anyhow::Result<i32> {
    let mut line = String::new();
    BufReader::new(socket.try_clone()?).read_line(&mut line)?;
    let spec: ExecSpec = serde_json::from_str(&line).context("read the command")?;
    let pid = u32::try_from(spec.pid).context("PID out of range")?;
    let root = File::open(format!("/proc/{pid}/root")).context("open the container's root")?;
    join(
        pid,
        &[
            ("net", CloneFlags::CLONE_NEWNET),
            ("uts", CloneFlags::CLONE_NEWUTS),
            ("ipc", CloneFlags::CLONE_NEWIPC),
            ("pid", CloneFlags::CLONE_NEWPID),
            ("mnt", CloneFlags::CLONE_NEWNS),
        ],
    )
    .context("enter the container")?;
    fchdir(&root).context("enter the container's root")?;
    chroot(".").context("change to the container's root")?;
    // A stage of its own, so that the command is killed with this process when its time is up. `/proc` is the
    // container's by now, and leads to this program nonetheless.
    let output = std::io::stdout().as_fd().try_clone_to_owned()?;
    let mut child = Command::new(reexec::SELF)
        .arg("exec-init")
        .args(spec.argv)
        .env_clear()
        .envs(spec.env)
        .current_dir(spec.working_dir)
        .stdin(Stdio::null())
        .stderr(Stdio::from(output))
        .spawn()
        .context("start the command in the container")?;
    writeln!(socket, "{STARTED}")?;
    Ok(exit_code(child.wait()?))
}

/// The body of `process-node exec-init`: becomes the command, inside the container. Returns only when that fails.
pub(crate) fn become_command(argv: &[String]) -> anyhow::Result<()> {
    reexec::die_with_parent()?;
    let (program, arguments) = argv.split_first().context("the command is empty")?;
    Err(anyhow!("exec: {program:?}: {}", Command::new(program).args(arguments).exec()))
}
