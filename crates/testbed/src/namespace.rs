//! One user + network + mount + PID namespace per cluster, made without root and without unsafe code.
//!
//! Nothing forks: every step that needs a process of its own re-executes the current program with the arguments
//! `__testbed ROLE …`. [`dispatch`] therefore has to be the first thing that `main` does, while the process still
//! has one thread: the kernel lets only a single-threaded process change its user namespace.
//!
//! - `host`  unshares the namespaces, then starts `init` and waits for it;
//! - `init`  is PID 1 of the cluster: it reaps, holds the lease and, when that ends, kills all and cleans up;
//! - `supervise` starts the control plane and the node, and restarts, snapshots and stops them on request;
//! - `enter` joins the namespaces of a running cluster and runs a command there;
//! - `existing` runs the portable tests of this program on the cluster of a kubeconfig;
//! - `hold` owns a cluster until it is killed, for tests of exactly that;
//! - `probe` finds out whether this machine lets the current user do all that.
//!
//! The lease is the standard input of `host` and `init`: a pipe whose other end the starting process holds. When
//! that process goes, however it goes, `init` reads the end of the file; when `init` goes, the kernel kills
//! everything in its PID namespace, and mounts and network devices go with their namespaces.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, getegid, geteuid};

/// The first argument of a re-executed process.
pub(crate) const ROLE_MARK: &str = "__testbed";

/// Runs the role that this process was started for, if it was started for one. Call it first in `main`.
pub fn dispatch() -> Option<ExitCode> {
    let args: Vec<OsString> = std::env::args_os().collect();
    if args.get(1).is_none_or(|a| a != ROLE_MARK) {
        return None;
    }
    let role = args.get(2).and_then(|r| r.to_str()).unwrap_or_default().to_owned();
    let rest = args.get(3..).unwrap_or_default();
    let result = match role.as_str() {
        "host" => host(rest),
        "init" => init(rest),
        "supervise" => crate::supervisor::main(rest),
        "enter" => enter(rest),
        "exec" => exec(rest),
        "probe" => probe(),
        "hold" => hold(),
        "existing" => crate::existing::role(rest),
        other => Err(anyhow::anyhow!("unknown role {other:?}")),
    };
    Some(result.unwrap_or_else(|error| {
        eprintln!("{role}: {error:#}");
        ExitCode::from(125)
    }))
}

/// A command that runs this very program in a role.
pub(crate) fn role(name: &str) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("the path of the running program")?);
    command.arg(ROLE_MARK).arg(name).env(crate::paths::RUNS_DIR_VAR, crate::paths::runs_dir());
    Ok(command)
}

fn die_with_parent() -> Result<()> {
    set_pdeathsig(Signal::SIGKILL).context("prctl(PR_SET_PDEATHSIG)")
}

/// Moves this process into a new user namespace in which it is root, and new namespaces for the rest.
fn unshare_all() -> Result<()> {
    let (uid, gid) = (geteuid(), getegid());
    unshare(
        CloneFlags::CLONE_NEWUSER
            | CloneFlags::CLONE_NEWNET
            | CloneFlags::CLONE_NEWNS
            | CloneFlags::CLONE_NEWPID
            | CloneFlags::CLONE_NEWUTS
            | CloneFlags::CLONE_NEWIPC,
    )
    .context(
        "this user may not create a user namespace; as root, set the sysctls user.max_user_namespaces=10000, \
         kernel.unprivileged_userns_clone=1 and kernel.apparmor_restrict_unprivileged_userns=0 (those that exist)",
    )?;
    // The kernel demands that setgroups is denied before an unprivileged process maps its group.
    std::fs::write("/proc/self/setgroups", "deny").context("/proc/self/setgroups")?;
    std::fs::write("/proc/self/uid_map", format!("0 {uid} 1")).context("/proc/self/uid_map")?;
    std::fs::write("/proc/self/gid_map", format!("0 {gid} 1")).context("/proc/self/gid_map")?;
    Ok(())
}

fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|s| 128 + s)).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

fn host(args: &[OsString]) -> Result<ExitCode> {
    unshare_all()?;
    let run_dir = args.first().map(PathBuf::from).context("usage: host RUN_DIR")?;
    let mut child = role("init")?.args(args).spawn().context("start init")?;
    // Written beside and renamed: a reader never sees half a number.
    let pid_file = run_dir.join("init.pid");
    std::fs::write(pid_file.with_extension("new"), child.id().to_string())?;
    std::fs::rename(pid_file.with_extension("new"), &pid_file)?;
    Ok(exit_code(child.wait()?))
}

fn init(args: &[OsString]) -> Result<ExitCode> {
    die_with_parent()?;
    let run_dir = args.first().map(PathBuf::from).context("usage: init RUN_DIR")?;
    let lock = crate::rundir::hold(&run_dir)?;
    prepare_mounts(&run_dir)?;
    let supervisor = role("supervise")?.args(args).stdin(Stdio::null()).spawn().context("start supervise")?;
    let pid = Pid::from_raw(i32::try_from(supervisor.id())?);
    std::thread::spawn(move || {
        let mut sink = [0_u8; 64];
        let mut stdin = std::io::stdin();
        while matches!(stdin.read(&mut sink), Ok(1..)) {}
        // A polite end first, so that etcd and the pods are not cut in the middle of a line they log.
        let _ = nix::sys::signal::kill(pid, Signal::SIGTERM);
        std::thread::sleep(Duration::from_secs(3));
        let _ = nix::sys::signal::kill(pid, Signal::SIGKILL);
    });
    let code = loop {
        match waitpid(None, None) {
            Ok(WaitStatus::Exited(p, code)) if p == pid => break code,
            Ok(WaitStatus::Signaled(p, signal, _)) if p == pid => break 128 + signal as i32,
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => bail!("waitpid: {error}"),
        }
    };
    let _ = nix::sys::signal::kill(Pid::from_raw(-1), Signal::SIGKILL);
    while waitpid(None, None).is_ok() {}
    crate::rundir::remove(&run_dir, lock);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

const NONE: Option<&str> = None;

fn make_private() -> Result<()> {
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE).context("make mounts private")?;
    mount(Some("proc"), "/proc", Some("proc"), MsFlags::empty(), NONE).context(
        "mount /proc; a container that masks parts of /proc forbids it: run on the machine itself, or in a \
         container with an unmasked /proc",
    )
}

/// A private view of the file system with this PID namespace's `/proc` and the cluster's name server.
fn prepare_mounts(run_dir: &Path) -> Result<()> {
    make_private()?;
    let resolv = run_dir.join("resolv.conf");
    std::fs::write(&resolv, crate::supervisor::RESOLV_CONF)?;
    if let Ok(target) = std::fs::canonicalize("/etc/resolv.conf") {
        mount(Some(&resolv), &target, NONE, MsFlags::MS_BIND, NONE)
            .with_context(|| format!("bind {} over {}", resolv.display(), target.display()))?;
    }
    let _ = nix::unistd::sethostname("testbed");
    Ok(())
}

/// `enter PID -- COMMAND ARGS…`: joins the namespaces of `PID` and runs the command there.
fn enter(args: &[OsString]) -> Result<ExitCode> {
    die_with_parent()?;
    let pid = args.first().and_then(|p| p.to_str()).context("usage: enter PID -- COMMAND")?;
    let command = args.get(2..).filter(|c| !c.is_empty()).context("usage: enter PID -- COMMAND")?;
    let cwd = std::env::current_dir()?;
    let exe = std::env::current_exe()?;
    let names = [
        ("user", CloneFlags::CLONE_NEWUSER),
        ("mnt", CloneFlags::CLONE_NEWNS),
        ("net", CloneFlags::CLONE_NEWNET),
        ("uts", CloneFlags::CLONE_NEWUTS),
        ("ipc", CloneFlags::CLONE_NEWIPC),
        ("pid", CloneFlags::CLONE_NEWPID),
    ];
    let files = names
        .iter()
        .map(|(name, flag)| {
            let path = format!("/proc/{pid}/ns/{name}");
            Ok((File::open(&path).with_context(|| format!("{path}: is the cluster still running?"))?, *flag))
        })
        .collect::<Result<Vec<_>>>()?;
    for (file, flag) in &files {
        setns(file, *flag).with_context(|| format!("join the cluster's namespace ({flag:?})"))?;
    }
    std::env::set_current_dir(&cwd).with_context(|| format!("return to {}", cwd.display()))?;
    let mut child =
        Command::new(exe).arg(ROLE_MARK).arg("exec").args(command).spawn().context("start in the cluster")?;
    Ok(exit_code(child.wait()?))
}

/// `exec COMMAND ARGS…`: becomes the command, which then dies with its parent.
fn exec(args: &[OsString]) -> Result<ExitCode> {
    die_with_parent()?;
    let (program, args) = args.split_first().context("usage: exec COMMAND")?;
    Err(Command::new(program).args(args).exec()).with_context(|| format!("exec {}", program.display()))
}

/// Makes every kind of namespace and device that a cluster needs, and says what this machine refuses.
fn probe() -> Result<ExitCode> {
    if std::env::args().nth(3).as_deref() != Some("child") {
        unshare_all()?;
        return Ok(exit_code(role("probe")?.arg("child").status()?));
    }
    make_private()?;
    // A bridge and a veth pair, as every pod gets; modules that a kernel lacks show here.
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let (connection, handle, _) = rtnetlink::new_connection().context("open a netlink socket")?;
        tokio::spawn(connection);
        let bridge = rtnetlink::LinkBridge::new("probe").build();
        handle
            .link()
            .add(bridge)
            .execute()
            .await
            .context("create a bridge; load the kernel module `bridge`")?;
        let pair = rtnetlink::LinkVeth::new("probe0", "probe1").build();
        handle
            .link()
            .add(pair)
            .execute()
            .await
            .context("create a veth pair; load the kernel module `veth`")?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Asks in a process of its own whether clusters can run here; the error is the remedy.
pub fn check() -> Result<()> {
    let out = role("probe")?.output().context("start the namespace probe")?;
    if out.status.success() {
        return Ok(());
    }
    bail!("{}", String::from_utf8_lossy(&out.stderr).trim())
}

/// Starts a cluster, prints its run directory and holds it until this process is killed.
fn hold() -> Result<ExitCode> {
    let options = crate::Options { node: false, progress: false, ..crate::Options::default() };
    let mut cluster = crate::Cluster::start(&options)?;
    println!("{}", cluster.session().run_dir().display());
    Ok(exit_code(cluster.wait()?))
}

/// A cluster that another process owns, and that process, which leads a process group: for tests that signal it.
pub fn hold_elsewhere() -> Result<(std::process::Child, PathBuf)> {
    let plain = role("hold")?;
    // A shell starts its background jobs with SIGINT ignored, which their children inherit; a test that sends it
    // means the signal of a terminal.
    let mut child = Command::new("env")
        .args(["--default-signal=INT,TERM", "--"])
        .arg(plain.get_program())
        .args(plain.get_args())
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("start the holder through coreutils' env")?;
    let stdout = child.stdout.take().context("the holder's standard output")?;
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line)?;
    if line.trim().is_empty() {
        bail!("the holder ended without a cluster ({})", child.wait()?);
    }
    Ok((child, PathBuf::from(line.trim())))
}

/// Sends a signal, such as `SIGINT`, to a child and to every process of the group that it leads, as a terminal's Ctrl-C
/// does. (The `kill` program takes a small negative process number for a signal, and numbers are small in a namespace.)
pub fn signal_group(child: &std::process::Child, signal: &str) -> Result<()> {
    let signal: nix::sys::signal::Signal =
        signal.parse().with_context(|| format!("{signal} is no signal"))?;
    let group = nix::unistd::Pid::from_raw(i32::try_from(child.id())?);
    nix::sys::signal::killpg(group, signal).with_context(|| format!("send {signal} to process group {group}"))
}
