//! `process-node`: one node of the test bed's cluster.
//!
//! `run` is kubelet, service proxy, load balancer and DNS in one program; `host-net` prepares the network namespace
//! that the cluster lives in. The other commands are stages of containers, started by `run` itself.

mod container;
mod images;
mod ipam;
mod kubelet_api;
mod logs;
mod net;
mod node;
mod objects;
mod pod;
mod probe;
mod reexec;
mod sandbox;
mod service;
mod volume;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use process_node::config::NodeConfig;
use tokio::signal::unix::{SignalKind, signal};
use tracing::info;
use tracing_subscriber::EnvFilter;

use crate::images::Images;
use crate::ipam::Addresses;
use crate::kubelet_api::LogIndex;
use crate::net::Network;
use crate::objects::Objects;
use crate::pod::events::Recorder;
use crate::pod::{Context, manager};

/// A Kubernetes node whose containers are plain processes.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs the node until SIGTERM or SIGINT.
    Run {
        /// The node's configuration, JSON.
        #[arg(long)]
        config: PathBuf,
    },
    /// Prepares the network namespace: bridge, addresses, routes. To be run before the API server.
    HostNet {
        /// The node's configuration, JSON.
        #[arg(long)]
        config: PathBuf,
    },
    /// Holds a pod's namespaces.
    #[command(hide = true)]
    Sandbox,
    /// Launches a container.
    #[command(hide = true)]
    Container,
    /// Becomes a container.
    #[command(hide = true)]
    ContainerInit,
    /// Runs a command in a container.
    #[command(hide = true)]
    Exec,
    /// Becomes a command in a container.
    #[command(hide = true)]
    ExecInit {
        /// Program and arguments.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        argv: Vec<String>,
    },
}

fn main() -> ExitCode {
    let command = Arguments::parse().command;
    let (is_stage, outcome) = match command {
        Command::Run { config } => (false, with_runtime(&config, |config| Box::pin(run(config)))),
        Command::HostNet { config } => {
            (false, with_runtime(&config, |config| Box::pin(async move { net::prepare_host(&config).await })))
        }
        Command::Sandbox => (true, sandbox::main()),
        Command::Container => (true, container::launcher::main()),
        Command::ContainerInit => (true, container::root::main()),
        Command::Exec => (true, container::exec::main()),
        Command::ExecInit { argv } => {
            let outcome = container::exec::become_command(&argv);
            if let Err(error) = &outcome {
                eprintln!("{error:#}");
            }
            (true, outcome)
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        // A stage has told its node already; its standard error is the container's.
        Err(_) if is_stage => ExitCode::from(127),
        Err(error) => {
            eprintln!("process-node: {error:#}");
            ExitCode::FAILURE
        }
    }
}

type Task = std::pin::Pin<Box<dyn Future<Output = anyhow::Result<()>>>>;

fn with_runtime(config: &Path, task: impl FnOnce(NodeConfig) -> Task) -> anyhow::Result<()> {
    let config = NodeConfig::load(config)?;
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(task(config))
}

async fn run(config: NodeConfig) -> anyhow::Result<()> {
    allow_many_files()?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    empty_pods(&config.state_dir)?;
    let client = client(&config.kubeconfig).await?;
    kubelet_api_and_pods(config, client).await?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    // Containers are killed by the kernel with this process.
    info!("stopped");
    Ok(())
}

async fn kubelet_api_and_pods(config: NodeConfig, client: Client) -> anyhow::Result<()> {
    let logs = LogIndex::default();
    kubelet_api::start(&config, logs.clone()).await?;
    let objects = Objects::start(&client);
    let directory = service::follow(&objects);
    service::dns::Server::new(directory.clone(), &config.cluster_domain).start(config.dns_ip).await?;
    tokio::spawn(service::proxy::serve(directory, config.dns_ip));
    tokio::spawn(service::assign_addresses(client.clone(), objects.clone(), config.load_balancer_cidr));
    let node = node::register(&client, &config).await?;
    tokio::spawn(node::heartbeat(client.clone(), config.clone(), node));
    let context = Context {
        objects,
        network: Network::open()?,
        images: Images::new(config.images.clone(), &config.state_dir),
        addresses: Mutex::new(Addresses::new(config.pod_cidr, [config.node_ip])),
        events: Recorder::start(client.clone(), config.node_name.clone()),
        logs,
        client,
        config,
    };
    tokio::spawn(manager::run(Arc::new(context)));
    Ok(())
}

async fn client(kubeconfig: &Path) -> anyhow::Result<Client> {
    let what = || format!("kubeconfig {}", kubeconfig.display());
    let config = Kubeconfig::read_from(kubeconfig).with_context(what)?;
    let config =
        Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.with_context(what)?;
    Client::try_from(config).with_context(what)
}

/// Each container and each proxied connection takes a few open files, and the usual limit of 1024 is soft.
fn allow_many_files() -> anyhow::Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).context("raise the limit of open files")
}

/// Pods of an earlier run of this node are gone; what they left goes too.
fn empty_pods(state_dir: &Path) -> anyhow::Result<()> {
    let pods = state_dir.join("pods");
    if pods.exists() {
        // Volumes in memory are mounts, unless the namespace is a new one.
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let inside = mounts
            .lines()
            .filter_map(|line| line.split(' ').nth(1))
            .filter(|place| Path::new(place).starts_with(&pods));
        for place in inside {
            nix::mount::umount2(place, nix::mount::MntFlags::MNT_DETACH)
                .with_context(|| format!("unmount {place}"))?;
        }
        fs::remove_dir_all(&pods).with_context(|| format!("empty {}", pods.display()))?;
    }
    fs::create_dir_all(&pods).with_context(|| format!("create {}", pods.display()))
}
