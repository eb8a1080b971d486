//! The node's side of a container: starting it, its logs, and its end.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::process::Child;
use tokio::task::JoinHandle;
use tracing::warn;

use super::spec::{ContainerSpec, Report};
use crate::logs;
use crate::reexec;

/// Building a root takes milliseconds; copying a big image, where there is no overlay, may take long.
const START_TIMEOUT: Duration = Duration::from_mins(2);
/// How long the rest of the output may take to arrive after the last process is gone.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// What is reported when the launcher is killed: the container was too, by the kernel, for want of a parent.
const KILLED: i32 = 137;

/// A container's running program.
#[derive(Debug)]
pub(crate) struct Process {
    /// PID of its first process, as the node sees it.
    pub(crate) pid: i32,
    launcher: Child,
    socket: BufReader<UnixStream>,
    output: JoinHandle<()>,
}

/// Starts a container whose output goes to `log`. The error is what a user should read in the Pod's status.
pub(crate) async fn start(spec: &ContainerSpec, log: &Path) -> anyhow::Result<Process> {
    let (socket, stdin) = reexec::socket_pair()?;
    let mut launcher = reexec::command("container")
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("start the launcher")?;
    let (stdout, stderr) = (launcher.stdout.take(), launcher.stderr.take());
    let (stdout, stderr) = stdout.zip(stderr).context("the launcher has no output")?;
    let output = logs::collect(log, stdout, stderr)?;
    let mut socket = BufReader::new(socket);
    let mut line = serde_json::to_vec(spec)?;
    line.push(b'\n');
    socket.get_mut().write_all(&line).await.context("hand over the container's specification")?;
    let report = tokio::time::timeout(START_TIMEOUT, next_report(&mut socket)).await;
    match report.map_err(|_| anyhow!("the container's root was not built within {START_TIMEOUT:?}"))?? {
        Report::Started { pid } => Ok(Process { pid, launcher, socket, output }),
        Report::Failed { message } => bail!(message),
        Report::Exited { code } => bail!("the launcher reported exit code {code} before the start"),
    }
}

impl Process {
    /// Waits until the program and all that it started are gone and the last line of output is stored. Returns the
    /// exit code, 128 and the signal's number if it was killed.
    pub(crate) async fn wait(mut self) -> i32 {
        let code = match next_report(&mut self.socket).await {
            Ok(Report::Exited { code }) => code,
            Ok(_) | Err(_) => KILLED,
        };
        if let Err(error) = self.launcher.wait().await {
            warn!(%error, "the launcher cannot be waited for");
        }
        if tokio::time::timeout(DRAIN_TIMEOUT, &mut self.output).await.is_err() {
            self.output.abort();
        }
        code
    }
}

/// Sends a signal to a container's first process. That it is gone is fine: its end is on its way.
pub(crate) fn signal(pid: i32, signal: Signal) {
    let _ = kill(Pid::from_raw(pid), signal);
}

async fn next_report(socket: &mut BufReader<UnixStream>) -> anyhow::Result<Report> {
    let mut line = String::new();
    socket.read_line(&mut line).await.context("listen to the launcher")?;
    if line.is_empty() {
        bail!("the launcher ended without a report");
    }
    serde_json::from_str(&line).with_context(|| format!("the launcher says {line:?}"))
}
