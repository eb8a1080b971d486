//! `process-node container-init`: PID 1 of a container. Builds the root, moves into it and becomes the program.

use std::fs;
use std::io::{self, BufRead as _, BufReader};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, anyhow};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{chroot, pivot_root, setsid};

use super::mounts::{bind, image, make_dir, make_open_dir, make_read_only, resolve, tmpfs};
use super::spec::{ContainerSpec, RootBase};
use crate::reexec;

/// Directories that a dynamically linked program of this machine needs.
const LIBRARIES: [&str; 4] = ["/lib", "/lib64", "/usr/lib", "/usr/lib64"];
/// Files and directories that it reads, if this machine has them.
const SUPPORT: [&str; 8] = [
    "/etc/ssl",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/alternatives",
    "/etc/localtime",
    "/usr/share/ca-certificates",
    "/usr/share/zoneinfo",
];
/// Directories of commands, for containers that need a shell.
const COMMANDS: [&str; 4] = ["/bin", "/sbin", "/usr/bin", "/usr/sbin"];
const DEVICES: [&str; 6] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// The body of `process-node container-init`. Returns only when the program could not be started.
pub(crate) fn main() -> anyhow::Result<()> {
    reexec::die_with_parent()?;
    let mut socket = reexec::stdin_socket()?;
    let error = become_program(&socket);
    reexec::complain(&mut socket, &error);
    Err(error)
}

fn become_program(socket: &UnixStream) -> anyhow::Error {
    let prepared = || -> anyhow::Result<ContainerSpec> {
        let mut line = String::new();
        BufReader::new(socket.try_clone()?).read_line(&mut line)?;
        let spec: ContainerSpec =
            serde_json::from_str(&line).context("read the container's specification")?;
        setsid().context("start a session")?;
        umask(Mode::S_IWGRP | Mode::S_IWOTH);
        build(&spec)?;
        enter(&spec.root)?;
        fs::create_dir_all(&spec.working_dir)
            .and_then(|()| std::env::set_current_dir(&spec.working_dir))
            .with_context(|| format!("use {} as working directory", spec.working_dir.display()))?;
        Ok(spec)
    };
    let spec = match prepared() {
        Ok(spec) => spec,
        Err(error) => return error,
    };
    let Some((program, arguments)) = spec.argv.split_first() else {
        return anyhow!("no command: neither the Pod nor the image names one");
    };
    // What the node leaves open closes by itself: Rust opens every file close-on-exec.
    let error = Command::new(program).args(arguments).env_clear().envs(spec.env).stdin(Stdio::null()).exec();
    match error.kind() {
        io::ErrorKind::NotFound => anyhow!("exec: {program:?}: executable file not found in $PATH"),
        _ => anyhow!("exec: {program:?}: {error}"),
    }
}

/// Mounts everything that the container sees below `spec.root`.
fn build(spec: &ContainerSpec) -> anyhow::Result<()> {
    let root = spec.root.as_path();
    unshare(CloneFlags::CLONE_NEWNS).context("unshare mounts")?;
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
        .context("make mounts private")?;
    match &spec.base {
        RootBase::Host { shell, writable } => {
            tmpfs(root, "mode=0755")?;
            host_base(root, *shell)?;
            for directory in writable {
                make_open_dir(root, directory)?;
            }
        }
        RootBase::Image { tree } => image(root, tree)?,
    }
    make_open_dir(root, Path::new("/tmp"))?;
    proc(root)?;
    dev(root)?;
    for wanted in &spec.mounts {
        bind(root, &wanted.source, &wanted.target, wanted.read_only)?;
    }
    if spec.read_only_root {
        make_dir(root, &spec.working_dir)?;
        make_read_only(root)?;
    }
    Ok(())
}

fn host_base(root: &Path, shell: bool) -> anyhow::Result<()> {
    for directory in ["/etc", "/run", "/var", "/usr", "/root", "/sys"] {
        make_dir(root, Path::new(directory))?;
    }
    symlink("/run", root.join("var/run"))?;
    make_open_dir(root, Path::new("/var/tmp"))?;
    fs::write(
        root.join("etc/passwd"),
        "root:x:0:0:root:/root:/bin/sh\nistio-proxy:x:1337:1337::/home/istio-proxy:/bin/sh\n\
         nobody:x:65534:65534:nobody:/:/bin/false\n",
    )?;
    fs::write(root.join("etc/group"), "root:x:0:\nistio-proxy:x:1337:\nnogroup:x:65534:\n")?;
    fs::write(root.join("etc/nsswitch.conf"), "passwd: files\ngroup: files\nhosts: files dns\n")?;
    for path in LIBRARIES.into_iter().chain(SUPPORT).chain(COMMANDS.into_iter().filter(|_| shell)) {
        reproduce(root, Path::new(path))?;
    }
    Ok(())
}

/// Shows this machine's `path` in the container: a link as the same link (`/lib` is one on most systems), anything
/// else as a read-only mount. What this machine lacks is left out.
fn reproduce(root: &Path, path: &Path) -> anyhow::Result<()> {
    let place = resolve(root, path)?;
    if place.exists() {
        return Ok(());
    }
    match fs::read_link(path) {
        Ok(target) => symlink(target, root.join(path.strip_prefix("/")?))
            .with_context(|| format!("reproduce the link {}", path.display())),
        Err(_) if path.exists() => bind(root, path, path, true),
        Err(_) => Ok(()),
    }
}

/// A `/proc` of the container's own PID namespace; where the kernel refuses that, because its own `/proc` is partly
/// covered, the node's.
fn proc(root: &Path) -> anyhow::Result<()> {
    let place = make_dir(root, Path::new("/proc"))?;
    let own = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), &place, Some("proc"), own, None::<&str>).or_else(|_| {
        mount(Some("/proc"), &place, None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REC, None::<&str>)
            .context("mount /proc")
    })
}

fn dev(root: &Path) -> anyhow::Result<()> {
    let place = make_dir(root, Path::new("/dev"))?;
    tmpfs(&place, "mode=0755")?;
    for device in DEVICES.map(Path::new) {
        if device.exists() {
            bind(root, device, device, false)?;
        }
    }
    for (link, target) in [("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")]
    {
        symlink(target, place.join(link))?;
    }
    let shared_memory = make_dir(root, Path::new("/dev/shm"))?;
    tmpfs(&shared_memory, "mode=1777")
}

/// Makes `root` this process' root directory and lets go of the old one.
fn enter(root: &Path) -> anyhow::Result<()> {
    std::env::set_current_dir(root)?;
    // With both arguments the same directory, the old root ends up mounted over the new one, which is then unmounted.
    if pivot_root(".", ".").is_ok() {
        umount2(".", MntFlags::MNT_DETACH).context("let go of the old root")?;
    } else {
        // On an initial ramdisk there is nothing to pivot from.
        chroot(".").context("change the root")?;
    }
    std::env::set_current_dir("/").context("enter the root")
}
