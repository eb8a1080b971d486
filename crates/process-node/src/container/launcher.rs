//! `process-node container`: joins the pod's namespaces and starts PID 1 of a new PID namespace.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context as _, bail};
use nix::sched::{CloneFlags, setns, unshare};

use super::spec::{ContainerSpec, Report};
use crate::reexec;

/// The body of `process-node container`. Must run single-threaded.
pub(crate) fn main() -> anyhow::Result<()> {
    reexec::close_inherited()?;
    reexec::die_with_parent()?;
    let mut socket = reexec::stdin_socket()?;
    match launch(&socket) {
        Ok((mut child, pid)) => {
            report(&mut socket, &Report::Started { pid })?;
            let status = child.wait().context("wait for the container")?;
            report(&mut socket, &Report::Exited { code: exit_code(status) })
        }
        Err(error) => report(&mut socket, &Report::Failed { message: format!("{error:#}") }),
    }
}

fn launch(socket: &UnixStream) -> anyhow::Result<(Child, i32)> {
    let mut line = String::new();
    BufReader::new(socket.try_clone()?).read_line(&mut line)?;
    let spec: ContainerSpec = serde_json::from_str(&line).context("read the container's specification")?;
    if let Some(sandbox) = spec.sandbox {
        join(
            sandbox,
            &[
                ("net", CloneFlags::CLONE_NEWNET),
                ("uts", CloneFlags::CLONE_NEWUTS),
                ("ipc", CloneFlags::CLONE_NEWIPC),
            ],
        )
        .context("join the pod's sandbox")?;
    }
    // From here on this process may have one child, the new namespace's PID 1, and no second thread.
    unshare(CloneFlags::CLONE_NEWPID).context("unshare PIDs")?;
    let (mut orders, theirs) = UnixStream::pair()?;
    let mut child = Command::new(reexec::SELF)
        .arg("container-init")
        .env_clear()
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .spawn()
        .context("start the container's first process")?;
    let complaint = orders.write_all(line.as_bytes()).and_then(|()| {
        // The other end closes when the program has taken over; what comes before that is a complaint.
        let mut complaint = String::new();
        orders.read_to_string(&mut complaint).map(|_| complaint)
    });
    match complaint {
        Ok(complaint) if complaint.is_empty() => {
            let pid = i32::try_from(child.id()).context("PID out of range")?;
            Ok((child, pid))
        }
        Ok(complaint) => {
            let _ = child.wait();
            bail!("{}", complaint.trim_end())
        }
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(error).context("talk to the container's first process")
        }
    }
}

/// Enters namespaces of process `pid`. All are opened before the first is entered, since `/proc` may change with it.
pub(super) fn join(pid: u32, kinds: &[(&str, CloneFlags)]) -> anyhow::Result<()> {
    let mut namespaces = Vec::new();
    for (name, flag) in kinds {
        let path = format!("/proc/{pid}/ns/{name}");
        namespaces.push((File::open(&path).with_context(|| format!("open {path}"))?, *name, *flag));
    }
    for (file, name, flag) in namespaces {
        setns(file, flag).with_context(|| format!("enter the {name} namespace of process {pid}"))?;
    }
    Ok(())
}

fn report(socket: &mut UnixStream, report: &Report) -> anyhow::Result<()> {
    let mut line = serde_json::to_vec(report)?;
    line.push(b'\n');
    socket.write_all(&line).context("report to the node")
}

/// The exit code as container runtimes give it.
pub(super) fn exit_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(255)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_become_exit_codes() {
        assert_eq!(exit_code(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(exit_code(ExitStatus::from_raw(9)), 137);
        assert_eq!(exit_code(ExitStatus::from_raw(0)), 0);
    }
}
