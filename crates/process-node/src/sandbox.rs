//! A pod's pause process: holds the network, host name and IPC namespaces that its containers join.
//!
//! It is this program again (`process-node sandbox`), since entering a namespace from a threaded program would need
//! `fork`. Node and sandbox talk over a socket on its standard input, a line of JSON each way; when the node's end
//! closes the sandbox leaves, and its namespaces with it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;

use anyhow::{Context as _, bail};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::sethostname;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _};

use crate::net::Network;
use crate::reexec;

/// What a sandbox is to be.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SandboxSpec {
    /// The name that `hostname` prints in its containers.
    pub(crate) hostname: String,
    /// The pod's address.
    pub(crate) address: Ipv4Addr,
    /// Prefix length of the pod network.
    pub(crate) prefix: u8,
    /// The node's address on the bridge, to which everything else is routed.
    pub(crate) gateway: Ipv4Addr,
}

/// A running sandbox. Dropping it closes the socket, and so ends it.
#[derive(Debug)]
pub(crate) struct Sandbox {
    /// The pause process, whose `/proc/PID/ns` leads to the namespaces.
    pub(crate) pid: u32,
    child: tokio::process::Child,
    socket: tokio::io::BufReader<tokio::net::UnixStream>,
}

impl Sandbox {
    /// Starts a sandbox and plugs it into the bridge as `interface`.
    pub(crate) async fn start(
        network: &Network,
        bridge: &str,
        interface: &str,
        spec: &SandboxSpec,
    ) -> anyhow::Result<Self> {
        let (socket, stdin) = reexec::socket_pair()?;
        let child =
            reexec::command("sandbox").stdin(stdin).kill_on_drop(true).spawn().context("start a sandbox")?;
        let pid = child.id().context("the sandbox ended at once")?;
        let mut sandbox = Self { pid, child, socket: tokio::io::BufReader::new(socket) };
        sandbox.await_line().await.context("create the sandbox's namespaces")?;
        network.attach(bridge, interface, pid, spec.address).await?;
        sandbox.send(spec).await?;
        sandbox.await_line().await.context("configure the sandbox's network")?;
        Ok(sandbox)
    }

    /// Ends it and waits until it is gone.
    pub(crate) async fn stop(mut self) {
        // It may have gone by itself, which is as good.
        let _ = self.child.kill().await;
    }

    async fn send(&mut self, spec: &SandboxSpec) -> anyhow::Result<()> {
        let mut line = serde_json::to_vec(spec)?;
        line.push(b'\n');
        self.socket.get_mut().write_all(&line).await.context("talk to the sandbox")
    }

    /// Waits for the sandbox's `ok`; anything else is its complaint.
    async fn await_line(&mut self) -> anyhow::Result<()> {
        let mut line = String::new();
        self.socket.read_line(&mut line).await.context("listen to the sandbox")?;
        match line.trim_end() {
            "ok" => Ok(()),
            "" => bail!("the sandbox ended without a word"),
            complaint => bail!("{complaint}"),
        }
    }
}

/// The body of `process-node sandbox`. Must run single-threaded.
pub(crate) fn main() -> anyhow::Result<()> {
    reexec::die_with_parent()?;
    let mut socket = reexec::stdin_socket()?;
    let outcome = hold(&mut socket);
    if let Err(error) = &outcome {
        reexec::complain(&mut socket, error);
    }
    outcome
}

fn hold(socket: &mut UnixStream) -> anyhow::Result<()> {
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWUTS | CloneFlags::CLONE_NEWIPC)
        .context("unshare network, host name and IPC")?;
    socket.write_all(b"ok\n")?;
    let mut reader = BufReader::new(socket.try_clone()?);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let spec: SandboxSpec = serde_json::from_str(&line).context("read the sandbox's specification")?;
    sethostname(&spec.hostname).context("set the host name")?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(configure(&spec))?;
    socket.write_all(b"ok\n")?;
    // Until the node's end of the socket closes there is nothing to do.
    line.clear();
    reader.read_line(&mut line)?;
    Ok(())
}

async fn configure(spec: &SandboxSpec) -> anyhow::Result<()> {
    let network = Network::open()?;
    network.up("lo").await?;
    network.add_address("eth0", spec.address, spec.prefix).await?;
    network.up("eth0").await?;
    network.add_default_route(spec.gateway).await
}
