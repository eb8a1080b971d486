//! Running this program again as one of its hidden stages.
//!
//! Namespaces are entered by single-threaded helper processes that are started with `exec`, never with a bare
//! `fork`, so that no unsafe code is needed. A stage gets its orders on standard input, which is a socket, and
//! answers on the same socket.

use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use anyhow::Context as _;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;

/// This program, also when its file has been replaced since it was started.
pub(crate) const SELF: &str = "/proc/self/exe";

/// A command that runs the hidden stage `stage` of this program with an empty environment.
pub(crate) fn command(stage: &str) -> tokio::process::Command {
    let mut command = tokio::process::Command::new(SELF);
    command.arg(stage).env_clear();
    command
}

/// A socket for the caller and its other end, to be a stage's standard input.
pub(crate) fn socket_pair() -> anyhow::Result<(tokio::net::UnixStream, Stdio)> {
    let (ours, theirs) = UnixStream::pair().context("create a pair of sockets")?;
    ours.set_nonblocking(true)?;
    Ok((tokio::net::UnixStream::from_std(ours)?, Stdio::from(OwnedFd::from(theirs))))
}

/// The socket that is this stage's standard input, as a duplicate that closes on `exec`.
pub(crate) fn stdin_socket() -> anyhow::Result<UnixStream> {
    let duplicate = std::io::stdin().as_fd().try_clone_to_owned().context("duplicate standard input")?;
    Ok(UnixStream::from(duplicate))
}

/// Closes what whoever started the node left open by mistake, so that containers do not inherit it. Must come first:
/// it closes everything but the three standard streams.
pub(crate) fn close_inherited() -> anyhow::Result<()> {
    let listed = std::fs::read_dir("/proc/self/fd").context("list open files")?;
    let open: Vec<i32> = listed.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    for descriptor in open.into_iter().filter(|descriptor| *descriptor > 2) {
        // One of them was the listing itself.
        let _ = nix::unistd::close(descriptor);
    }
    Ok(())
}

/// Has the kernel kill this process when the thread that started it ends, so that nothing outlives the node.
pub(crate) fn die_with_parent() -> anyhow::Result<()> {
    set_pdeathsig(Signal::SIGKILL).context("ask to be killed with the parent")
}

/// Reports an error in one line. When the other end is gone nobody is left to be told.
pub(crate) fn complain(socket: &mut UnixStream, error: &anyhow::Error) {
    let line = format!("{error:#}").replace('\n', " ");
    let _ = socket.write_all(line.as_bytes());
    let _ = socket.write_all(b"\n");
}
