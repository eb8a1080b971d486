//! Starting, joining, disturbing and ending clusters.

use std::fs::File;
use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sched::{CloneFlags, setns};
use process_node::config::ImageMap;

use crate::supervisor::{Answer, Plan, Request};
use crate::tools::{KUBERNETES_VERSION, Tools};
use crate::{namespace, rundir};

/// What a cluster is made of.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether pods run. Without the node a cluster starts sooner and its pods stay Pending. Default: true.
    pub node: bool,
    /// The version the node reports, with its `v`. Default: the control plane's.
    pub kubelet_version: String,
    /// The first back-off before a container is restarted, in seconds. Default: 1, where the kubelet's is 10, so
    /// that tests of restarts are short.
    pub restart_backoff_seconds: f64,
    /// Which program an image stands for. Default: [`crate::images::default_map`].
    pub images: Option<ImageMap>,
    /// Whether to say on standard error how far the start is. Default: true.
    pub progress: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            node: true,
            kubelet_version: format!("v{KUBERNETES_VERSION}"),
            restart_backoff_seconds: 1.0,
            images: None,
            progress: true,
        }
    }
}

/// A running cluster. Dropping the value that started it ends it.
#[derive(Debug)]
pub struct Cluster {
    session: Session,
    init_pid: u32,
    /// Present in the process that started the cluster. The pipe is the cluster's lease.
    owner: Option<(Child, ChildStdin)>,
}

/// What code inside a cluster's namespace needs to use it.
#[derive(Clone, Debug)]
pub struct Session {
    run_dir: PathBuf,
    tools: Tools,
}

impl Cluster {
    /// Starts a cluster and waits until its node is Ready; missing tools are built first.
    ///
    /// # Errors
    /// When a tool cannot be built, the machine forbids namespaces, or a program does not come up; the error holds
    /// that program's last lines.
    pub fn start(options: &Options) -> Result<Self> {
        let tools = crate::tools::ensure()?;
        let process_node = crate::images::program("process-node")?;
        let run_dir = rundir::create()?;
        let plan = Plan {
            etcd: tools.etcd.clone(),
            kubernetes: tools.kubernetes.clone(),
            process_node,
            kubelet_version: options.kubelet_version.clone(),
            node: options.node,
            restart_backoff_seconds: options.restart_backoff_seconds,
        };
        std::fs::write(run_dir.join("plan.json"), serde_json::to_vec_pretty(&plan)?)?;
        std::fs::write(run_dir.join("tools.json"), serde_json::to_vec_pretty(&tools)?)?;
        let session = Session { run_dir: run_dir.clone(), tools };
        let images = match &options.images {
            Some(map) => map.clone(),
            None => crate::images::default_map(&session.tools)?,
        };
        session.set_images(&images)?;
        let mut child = namespace::role("host")?
            .arg(&run_dir)
            // A terminal's Ctrl-C goes to the owner alone; the cluster then ends by its lease, and cleans up.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("start the cluster's namespace")?;
        let lease = child.stdin.take().context("the lease pipe")?;
        let lines = BufReader::new(child.stdout.take().context("the progress pipe")?);
        let ready = Arc::new(AtomicBool::new(false));
        let errors = collect(child.stderr.take().context("the error pipe")?, Arc::clone(&ready));
        if options.progress {
            eprintln!("cluster: starting in {}", run_dir.display());
        }
        let mut lines = lines.lines();
        for line in lines.by_ref().map_while(Result::ok) {
            match line.split_once(' ') {
                Some(("api", seconds)) if options.progress => {
                    eprintln!("cluster: API ready after {seconds} s");
                }
                Some(("ready", seconds)) => {
                    ready.store(true, Ordering::Relaxed);
                    if options.progress {
                        eprintln!("cluster: ready after {seconds} s");
                    }
                    break;
                }
                _ => {}
            }
        }
        if !ready.load(Ordering::Relaxed) {
            drop(lease);
            let _ = child.wait();
            let errors = errors.join().unwrap_or_default();
            bail!("the cluster did not come up:\n{}", errors.trim());
        }
        // What the supervisor says later matters only when it ends by itself: to standard error, as it comes.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| eprintln!("cluster: {line}")));
        let init_pid = read_pid(&run_dir)?;
        Ok(Self { session, init_pid, owner: Some((child, lease)) })
    }

    /// Joins a cluster that another process owns; dropping this value does not end it.
    pub fn attach(run_dir: &Path) -> Result<Self> {
        let init_pid = read_pid(run_dir)?;
        if !Path::new(&format!("/proc/{init_pid}/ns/net")).exists() {
            bail!("the cluster of {} is not running any more", run_dir.display());
        }
        Ok(Self { session: Session::at(run_dir)?, init_pid, owner: None })
    }

    /// The running clusters of this user, by run directory.
    pub fn list() -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(crate::paths::runs_dir()) else { return Vec::new() };
        let mut dirs: Vec<PathBuf> =
            entries.flatten().map(|e| e.path()).filter(|dir| Self::attach(dir).is_ok()).collect();
        dirs.sort();
        dirs
    }

    /// What code inside needs.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// A command that runs inside the cluster's namespaces, with `KUBECONFIG` and the tools on its `PATH`.
    pub fn command(&self, program: &Path) -> Result<Command> {
        let mut command = namespace::role("enter")?;
        command.arg(self.init_pid.to_string()).arg("--").arg(program);
        self.session.set_environment(&mut command);
        Ok(command)
    }

    /// Runs `work` on a thread of this process that has moved into the cluster's network, for clusters started
    /// from inside another one. Only the network is entered: files are the same on both sides.
    ///
    /// # Errors
    /// When this process lacks the right (it must itself run inside a cluster's namespace), or `work` fails.
    pub fn within<T, F, Fut>(&self, work: F) -> Result<T>
    where
        T: Send,
        F: FnOnce(Session) -> Fut + Send,
        Fut: Future<Output = Result<T>>,
    {
        let path = format!("/proc/{}/ns/net", self.init_pid);
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let file = File::open(&path).with_context(|| path.clone())?;
                setns(&file, CloneFlags::CLONE_NEWNET).context("enter the cluster's network")?;
                tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()?
                    .block_on(work(self.session.clone()))
            });
            match thread.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// Waits until the cluster ends by itself; only for the process that owns it.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        let (child, _) = self.owner.as_mut().context("this process does not own the cluster")?;
        Ok(child.wait()?)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let Some((mut child, lease)) = self.owner.take() else { return };
        drop(lease);
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            if !matches!(child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = child.kill();
        let _ = child.wait();
    }
}

fn read_pid(run_dir: &Path) -> Result<u32> {
    let path = run_dir.join("init.pid");
    let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    Ok(text.trim().parse()?)
}

/// Keeps what is said until the cluster is ready, for the error of a failed start; later it goes to standard error,
/// since it tells why a cluster ended by itself.
fn collect(
    stream: impl std::io::Read + Send + 'static,
    ready: Arc<AtomicBool>,
) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = String::new();
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if ready.load(Ordering::Relaxed) {
                eprintln!("cluster: {line}");
            } else {
                text.push_str(&line);
                text.push('\n');
            }
        }
        text
    })
}

impl Session {
    /// The session of a running cluster's run directory, with the tools that it was started from.
    pub fn at(run_dir: &Path) -> Result<Self> {
        let path = run_dir.join("tools.json");
        let text = std::fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        Ok(Self { run_dir: run_dir.to_path_buf(), tools: serde_json::from_slice(&text)? })
    }

    /// Where this cluster keeps its files: logs, audit log, kubeconfig.
    pub fn run_dir(&self) -> &Path {
        &self.run_dir
    }

    /// The programs the cluster was started from.
    pub fn tools(&self) -> &Tools {
        &self.tools
    }

    /// The administrator's kubeconfig; its server address is valid inside the namespace only.
    pub fn kubeconfig(&self) -> PathBuf {
        self.run_dir.join("admin.kubeconfig")
    }

    /// The API server's audit log.
    pub fn audit_log(&self) -> PathBuf {
        self.run_dir.join("audit.log")
    }

    /// A client with the administrator's rights.
    pub async fn client(&self) -> Result<kube::Client> {
        crate::bootstrap::client(&self.kubeconfig()).await
    }

    fn set_environment(&self, command: &mut Command) {
        let mut path = std::ffi::OsString::new();
        for dir in [&self.tools.kubernetes, &self.tools.istio] {
            path.push(dir);
            path.push(":");
        }
        path.push(std::env::var_os("PATH").unwrap_or_default());
        command.env("PATH", path).env("KUBECONFIG", self.kubeconfig());
    }

    /// `kubectl` with the administrator's kubeconfig; to be run inside the namespace.
    pub fn kubectl<I, S>(&self, args: I) -> Command
    where
        I: IntoIterator<Item = S>,
        S: AsRef<std::ffi::OsStr>,
    {
        let mut command = Command::new(self.tools.kubernetes.join("kubectl"));
        command.args(args).envs(crate::command::GO_COMMAND);
        self.set_environment(&mut command);
        command
    }

    /// The table of images.
    pub fn images(&self) -> Result<ImageMap> {
        let path = self.run_dir.join("images.json");
        let text = std::fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("the table of images in {}", path.display()))
    }

    /// Replaces the table of images; the node reads it at the next pull.
    pub fn set_images(&self, map: &ImageMap) -> Result<()> {
        let path = self.run_dir.join("images.json");
        let new = path.with_extension("new");
        std::fs::write(&new, serde_json::to_vec_pretty(map)?)?;
        std::fs::rename(&new, &path).with_context(|| format!("write {}", path.display()))
    }

    /// Kills one of the cluster's programs (`etcd`, `kube-apiserver`, `kube-controller-manager`,
    /// `kube-scheduler`, `process-node`) and leaves it down.
    pub fn stop(&self, program: &str) -> Result<()> {
        self.control(&Request::Stop { name: program.to_owned() })
    }

    /// Starts a stopped program; for kube-apiserver, waits until it is ready.
    pub fn start(&self, program: &str) -> Result<()> {
        self.control(&Request::Start { name: program.to_owned() })
    }

    /// Copies etcd's data to a new folder. The API server is away for the copy: a few seconds.
    pub fn snapshot(&self, to: &Path) -> Result<()> {
        self.control(&Request::Snapshot { to: to.to_path_buf() })
    }

    /// Puts a snapshot in etcd's place, resource versions included: as after a restore from a backup, clients see
    /// them go backwards.
    pub fn restore(&self, from: &Path) -> Result<()> {
        self.control(&Request::Restore { from: from.to_path_buf() })
    }

    fn control(&self, request: &Request) -> Result<()> {
        let path = self.run_dir.join("control.sock");
        let mut stream =
            UnixStream::connect(&path).with_context(|| format!("connect to {}", path.display()))?;
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        stream.write_all(&line)?;
        let mut text = String::new();
        BufReader::new(stream).read_line(&mut text)?;
        let answer: Answer = serde_json::from_str(&text).context("the supervisor's answer")?;
        match answer.error {
            None => Ok(()),
            Some(error) => bail!("{error}"),
        }
    }
}
