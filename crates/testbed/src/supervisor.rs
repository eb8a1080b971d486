//! What runs inside a cluster's namespace: etcd, the Kubernetes control plane and the node, started in order and
//! watched. Any of them ending by itself ends the cluster with a message, since a test that goes on without its
//! scheduler tells lies.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use process_node::config::NodeConfig;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

use crate::pki::Authority;

/// The node's address and the gateway of its pods.
pub(crate) const NODE_IP: &str = "10.244.0.1";
const SERVICE_CIDR: &str = "10.96.0.0/16";
const API_SERVICE_IP: &str = "10.96.0.1";
const DNS_IP: &str = "10.96.0.10";
const NODE_NAME: &str = "node-1";

/// Lets processes that enter the namespace use the cluster's own names.
pub(crate) const RESOLV_CONF: &str = "nameserver 10.96.0.10\nsearch default.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n";

/// Everything that [`crate::Cluster::start`] decides, passed to the supervisor as a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// The folder with etcd.
    pub(crate) etcd: PathBuf,
    /// The folder with kube-apiserver, kube-controller-manager and kube-scheduler.
    pub(crate) kubernetes: PathBuf,
    /// The process-node program.
    pub(crate) process_node: PathBuf,
    /// The version the node reports, with its `v`; istiod decides by it whether to inject native sidecars.
    pub(crate) kubelet_version: String,
    /// Whether to start the node; without it pods stay Pending (tests of the API alone start faster).
    pub(crate) node: bool,
    /// The first restart back-off of containers, in seconds (the kubelet's is 10).
    pub(crate) restart_backoff_seconds: f64,
}

/// One line on the control socket.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub(crate) enum Request {
    /// Kills a program and leaves it down.
    Stop { name: String },
    /// Starts a stopped program and waits until it answers.
    Start { name: String },
    /// Copies etcd's data, both programs stopped for the copy.
    Snapshot { to: PathBuf },
    /// Puts a snapshot in etcd's place.
    Restore { from: PathBuf },
}

/// The supervisor's answer: an empty error is success.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) error: Option<String>,
}

struct Program {
    command: PathBuf,
    args: Vec<String>,
    child: Option<Child>,
    stopped: bool,
}

struct Supervisor {
    run_dir: PathBuf,
    programs: BTreeMap<&'static str, Program>,
    started: Instant,
}

pub(crate) fn main(args: &[OsString]) -> Result<ExitCode> {
    let run_dir = args.first().map(PathBuf::from).context("usage: supervise RUN_DIR")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let plan: Plan = serde_json::from_slice(&std::fs::read(run_dir.join("plan.json"))?)?;
        let mut supervisor = Supervisor { run_dir, programs: BTreeMap::new(), started: Instant::now() };
        // Bound before anybody is told that the cluster is ready.
        let control = UnixListener::bind(supervisor.path("control.sock"))?;
        supervisor.start_all(&plan).await?;
        supervisor.serve(&control).await
    })
}

fn say(line: &str) {
    println!("{line}");
}

impl Supervisor {
    fn path(&self, name: &str) -> PathBuf {
        self.run_dir.join(name)
    }

    fn arg(&self, flag: &str, file: &str) -> String {
        format!("--{flag}={}", self.path(file).display())
    }

    async fn start_all(&mut self, plan: &Plan) -> Result<()> {
        std::fs::create_dir_all(self.path("logs"))?;
        self.write_pki()?;
        let node_config = self.path("node.json");
        let config = self.node_config(plan)?;
        std::fs::write(&node_config, serde_json::to_vec_pretty(&config)?)?;
        let status = Command::new(&plan.process_node)
            .args(["host-net", "--config"])
            .arg(&node_config)
            .status()
            .await
            .with_context(|| format!("start {}", plan.process_node.display()))?;
        if !status.success() {
            bail!("process-node host-net failed ({status}): see the lines above");
        }
        self.define("etcd", plan.etcd.join("etcd"), self.etcd_args());
        self.define("kube-apiserver", plan.kubernetes.join("kube-apiserver"), self.apiserver_args());
        self.define(
            "kube-controller-manager",
            plan.kubernetes.join("kube-controller-manager"),
            self.kcm_args(),
        );
        self.define("kube-scheduler", plan.kubernetes.join("kube-scheduler"), self.scheduler_args());
        if plan.node {
            let args = vec!["run".into(), "--config".into(), node_config.display().to_string()];
            self.define("process-node", plan.process_node.clone(), args);
        }
        self.start("etcd").await?;
        self.start("kube-apiserver").await?;
        say(&format!("api {:.1}", self.started.elapsed().as_secs_f32()));
        self.start("kube-controller-manager").await?;
        self.start("kube-scheduler").await?;
        crate::bootstrap::cluster_objects(&self.client().await?, DNS_IP).await?;
        if plan.node {
            self.start("process-node").await?;
            crate::bootstrap::node_ready(&self.client().await?, NODE_NAME, Duration::from_secs(30)).await?;
        }
        say(&format!("ready {:.1}", self.started.elapsed().as_secs_f32()));
        Ok(())
    }

    fn define(&mut self, name: &'static str, command: PathBuf, args: Vec<String>) {
        self.programs.insert(name, Program { command, args, child: None, stopped: false });
    }

    async fn client(&self) -> Result<kube::Client> {
        crate::bootstrap::client(&self.path("admin.kubeconfig")).await
    }

    fn write_pki(&self) -> Result<()> {
        let dir = self.path("pki");
        let ca = Authority::create(&dir)?;
        let server_names = [
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
            "localhost",
            "127.0.0.1",
            NODE_IP,
            API_SERVICE_IP,
        ];
        ca.sign("apiserver", "kube-apiserver", "", &server_names)?;
        ca.sign("kubelet-client", "kube-apiserver-kubelet-client", "system:masters", &[])?;
        ca.sign("kubelet", "system:node:node-1", "system:nodes", &[NODE_IP, NODE_NAME])?;
        ca.service_account_key()?;
        for (name, user, group) in [
            ("admin", "kubernetes-admin", "system:masters"),
            ("kube-controller-manager", "system:kube-controller-manager", ""),
            ("kube-scheduler", "system:kube-scheduler", ""),
            ("node", "system:node:node-1", "system:nodes"),
        ] {
            let (cert, key) = ca.sign(name, user, group, &[])?;
            let kubeconfig = crate::bootstrap::kubeconfig("https://127.0.0.1:6443", &ca.pem, &cert, &key);
            std::fs::write(self.path(&format!("{name}.kubeconfig")), kubeconfig)?;
        }
        std::fs::write(self.path("audit-policy.yaml"), crate::audit::POLICY)?;
        Ok(())
    }

    fn node_config(&self, plan: &Plan) -> Result<NodeConfig> {
        Ok(NodeConfig {
            node_name: NODE_NAME.to_owned(),
            kubelet_version: plan.kubelet_version.clone(),
            bridge: "cbr0".to_owned(),
            node_ip: std::net::Ipv4Addr::new(10, 244, 0, 1),
            pod_cidr: "10.244.0.0/16".parse()?,
            service_cidr: SERVICE_CIDR.parse()?,
            load_balancer_cidr: "10.97.0.0/16".parse()?,
            dns_ip: std::net::Ipv4Addr::new(10, 96, 0, 10),
            cluster_domain: "cluster.local".to_owned(),
            kubeconfig: self.path("node.kubeconfig"),
            state_dir: self.path("node"),
            serving_cert: self.path("pki/kubelet.crt"),
            serving_key: self.path("pki/kubelet.key"),
            client_ca: self.path("pki/ca.crt"),
            images: self.path("images.json"),
            restart_backoff_seconds: plan.restart_backoff_seconds,
        })
    }

    fn etcd_args(&self) -> Vec<String> {
        vec![
            self.arg("data-dir", "etcd"),
            "--listen-client-urls=http://127.0.0.1:2379".into(),
            "--advertise-client-urls=http://127.0.0.1:2379".into(),
            "--listen-peer-urls=http://127.0.0.1:2380".into(),
            "--initial-advertise-peer-urls=http://127.0.0.1:2380".into(),
            "--initial-cluster=default=http://127.0.0.1:2380".into(),
            // The data lives as long as the run: waiting for a disk buys nothing.
            "--unsafe-no-fsync=true".into(),
            "--quota-backend-bytes=4294967296".into(),
        ]
    }

    fn apiserver_args(&self) -> Vec<String> {
        let mut args: Vec<String> = [
            "--etcd-servers=http://127.0.0.1:2379",
            "--secure-port=6443",
            "--bind-address=0.0.0.0",
            "--authorization-mode=RBAC",
            "--allow-privileged=true",
            // Without kube-proxy, the API server itself has to find the pods behind a webhook's Service.
            "--enable-aggregator-routing=true",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            "--kubelet-preferred-address-types=InternalIP",
            "--profiling=false",
        ]
        .map(str::to_owned)
        .to_vec();
        args.extend(crate::audit::apiserver_args(&self.path("audit.log"), &self.path("audit-policy.yaml")));
        args.push(format!("--advertise-address={NODE_IP}"));
        args.push(format!("--service-cluster-ip-range={SERVICE_CIDR}"));
        for (flag, file) in [
            ("tls-cert-file", "pki/apiserver.crt"),
            ("tls-private-key-file", "pki/apiserver.key"),
            ("client-ca-file", "pki/ca.crt"),
            ("service-account-key-file", "pki/sa.pub"),
            ("service-account-signing-key-file", "pki/sa.key"),
            ("kubelet-certificate-authority", "pki/ca.crt"),
            ("kubelet-client-certificate", "pki/kubelet-client.crt"),
            ("kubelet-client-key", "pki/kubelet-client.key"),
        ] {
            args.push(self.arg(flag, file));
        }
        args
    }

    fn kcm_args(&self) -> Vec<String> {
        vec![
            self.arg("kubeconfig", "kube-controller-manager.kubeconfig"),
            self.arg("service-account-private-key-file", "pki/sa.key"),
            self.arg("root-ca-file", "pki/ca.crt"),
            self.arg("cluster-signing-cert-file", "pki/ca.crt"),
            self.arg("cluster-signing-key-file", "pki/ca.key"),
            "--use-service-account-credentials=true".into(),
            "--leader-elect=false".into(),
            "--bind-address=127.0.0.1".into(),
            "--kube-api-qps=200".into(),
            "--kube-api-burst=400".into(),
        ]
    }

    fn scheduler_args(&self) -> Vec<String> {
        vec![
            self.arg("kubeconfig", "kube-scheduler.kubeconfig"),
            "--leader-elect=false".into(),
            "--bind-address=127.0.0.1".into(),
            "--kube-api-qps=200".into(),
            "--kube-api-burst=400".into(),
        ]
    }

    /// Starts a program and, for those that others depend on, waits until it answers.
    async fn start(&mut self, name: &str) -> Result<()> {
        let log = self.path("logs").join(format!("{name}.log"));
        let program =
            self.programs.get_mut(name).with_context(|| format!("no program {name:?} in this cluster"))?;
        let out = std::fs::File::options().create(true).append(true).open(&log)?;
        let child = Command::new(&program.command)
            .args(&program.args)
            .envs(crate::command::GO_SERVER)
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()
            .with_context(|| format!("start {}", program.command.display()))?;
        program.child = Some(child);
        program.stopped = false;
        if name == "kube-apiserver" {
            self.wait_for_api().await?;
        }
        Ok(())
    }

    async fn wait_for_api(&mut self) -> Result<()> {
        let client = self.client().await?;
        let deadline = Instant::now() + Duration::from_secs(90);
        loop {
            self.check_alive()?;
            let ready = http::Request::get("/readyz").body(Vec::new())?;
            let asked = tokio::time::timeout(Duration::from_secs(2), client.request_text(ready)).await;
            match asked {
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(error)) if Instant::now() > deadline => {
                    bail!("kube-apiserver is not ready after 90 s: {error}\n{}", self.tail("kube-apiserver"));
                }
                Err(_) if Instant::now() > deadline => bail!("kube-apiserver does not answer after 90 s"),
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    fn tail(&self, name: &str) -> String {
        let text = std::fs::read_to_string(self.path("logs").join(format!("{name}.log"))).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }

    /// An error when a program ended that nobody stopped.
    fn check_alive(&mut self) -> Result<()> {
        let mut ended = None;
        for (name, program) in &mut self.programs {
            if let (false, Some(child)) = (program.stopped, program.child.as_mut())
                && let Some(status) = child.try_wait()?
            {
                ended = Some((*name, status));
            }
        }
        match ended {
            None => Ok(()),
            Some((name, status)) => {
                bail!("{name} ended by itself ({status}); its last lines:\n{}", self.tail(name))
            }
        }
    }

    async fn stop(&mut self, name: &str) -> Result<()> {
        let program =
            self.programs.get_mut(name).with_context(|| format!("no program {name:?} in this cluster"))?;
        program.stopped = true;
        if let Some(mut child) = program.child.take() {
            child.kill().await?;
        }
        Ok(())
    }

    async fn with_store_stopped(&mut self, work: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        self.stop("kube-apiserver").await?;
        self.stop("etcd").await?;
        let worked = work(&self.path("etcd"));
        self.start("etcd").await?;
        self.start("kube-apiserver").await?;
        worked
    }

    async fn handle(&mut self, request: Request) -> Result<()> {
        match request {
            Request::Stop { name } => self.stop(&name).await,
            Request::Start { name } => self.start(&name).await,
            Request::Snapshot { to } => self.with_store_stopped(|etcd| copy_dir(etcd, &to)).await,
            Request::Restore { from } => {
                self.with_store_stopped(|etcd| {
                    std::fs::remove_dir_all(etcd)?;
                    copy_dir(&from, etcd)
                })
                .await
            }
        }
    }

    async fn answer(&mut self, stream: UnixStream) -> Result<()> {
        let (read, mut write) = stream.into_split();
        let Some(line) = BufReader::new(read).lines().next_line().await? else { return Ok(()) };
        let request: Request = serde_json::from_str(&line)?;
        let error = self.handle(request).await.err().map(|e| format!("{e:#}"));
        let mut text = serde_json::to_vec(&Answer { error })?;
        text.push(b'\n');
        write.write_all(&text).await?;
        Ok(())
    }

    async fn serve(&mut self, control: &UnixListener) -> Result<ExitCode> {
        let mut term = signal(SignalKind::terminate())?;
        let mut tick = tokio::time::interval(Duration::from_millis(500));
        loop {
            tokio::select! {
                _ = term.recv() => {
                    for program in self.programs.values_mut() {
                        if let Some(child) = program.child.as_mut() {
                            child.start_kill()?;
                        }
                    }
                    return Ok(ExitCode::SUCCESS);
                }
                _ = tick.tick() => self.check_alive()?,
                accepted = control.accept() => {
                    let (stream, _) = accepted?;
                    if let Err(error) = self.answer(stream).await {
                        say(&format!("control: {error:#}"));
                    }
                }
            }
        }
    }
}

fn copy_dir(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from).with_context(|| format!("read {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_dir(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}
