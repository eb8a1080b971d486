//! Whether this machine can run the test bed; each finding names its remedy.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Result, bail};
use testbed::tools;

/// Command line of `doctor`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Also compare every built tool with its checksum.
    #[arg(long)]
    verify: bool,
}

const GIB: u64 = 1 << 30;
/// What the test bed needs while tests run, measured with two clusters side by side.
const MEMORY_GIB: u64 = 6;

struct Finding {
    what: &'static str,
    outcome: std::result::Result<String, String>,
}

fn version_of(program: &str, args: &[&str]) -> Option<String> {
    let out = Command::new(program).args(args).output().ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

/// `go version go1.26.8 linux/amd64` -> (1, 26)
fn go_minor(text: &str) -> Option<(u32, u32)> {
    let version = text.split_whitespace().find_map(|w| w.strip_prefix("go1."))?;
    let minor: String = version.chars().take_while(char::is_ascii_digit).collect();
    Some((1, minor.parse().ok()?))
}

fn linux() -> Finding {
    let outcome = match (std::env::consts::OS, std::env::consts::ARCH) {
        ("linux", arch @ ("x86_64" | "aarch64")) => Ok(format!("Linux on {arch}")),
        (os, arch) => Err(format!("{os} on {arch}: the test bed needs Linux on x86_64 or aarch64")),
    };
    Finding { what: "system", outcome }
}

fn go() -> Finding {
    let outcome = match version_of("go", &["version"]) {
        None => Err("no `go` on the PATH: install Go 1.26 or newer".to_owned()),
        Some(text) => match go_minor(&text) {
            Some(version) if version >= (1, 26) => Ok(text),
            _ => Err(format!("{text}: Go 1.26 or newer is needed")),
        },
    };
    Finding { what: "Go", outcome }
}

fn python() -> Finding {
    let outcome =
        match (version_of("python3", &["--version"]), version_of("python3", &["-m", "pip", "--version"])) {
            (None, _) => Err("no `python3` on the PATH: install Python 3.9 or newer with pip".to_owned()),
            (Some(_), None) => Err("python3 has no pip: on Debian, apt-get install python3-pip".to_owned()),
            (Some(text), Some(_)) => Ok(text),
        };
    Finding { what: "Python", outcome }
}

fn compiler() -> Finding {
    let outcome = match version_of("cc", &["--version"]) {
        Some(text) => Ok(text.lines().next().unwrap_or_default().to_owned()),
        None => Err("no C compiler `cc`: on Debian, apt-get install gcc libc6-dev".to_owned()),
    };
    Finding { what: "C compiler", outcome }
}

fn disk(building: bool) -> Result<Finding> {
    let cache = testbed::paths::cache_dir()?;
    std::fs::create_dir_all(&cache)?;
    let stat = nix::sys::statvfs::statvfs(&cache)?;
    let free = stat.blocks_available() * stat.fragment_size() / GIB;
    // Go's module and build caches, the tools, and Rust's target folder.
    let need = if building { 15 } else { 4 };
    let text = format!("{free} GiB free in {}", cache.display());
    let outcome = if free >= need {
        Ok(text)
    } else {
        Err(format!("{text}: {need} GiB are needed; free some, or set XDG_CACHE_HOME to a larger disk"))
    };
    Ok(Finding { what: "disk", outcome })
}

fn memory() -> Finding {
    let total = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find(|l| l.starts_with("MemTotal:"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    });
    let outcome = match total.map(|kib| kib * 1024 / GIB) {
        Some(gib) if gib + 1 >= MEMORY_GIB => Ok(format!("{gib} GiB")),
        Some(gib) => {
            Err(format!("{gib} GiB: {MEMORY_GIB} GiB are needed, or close other programs and add swap"))
        }
        None => Err("cannot read MemTotal from /proc/meminfo; is /proc mounted?".to_owned()),
    };
    Finding { what: "memory", outcome }
}

fn namespaces() -> Finding {
    let outcome = match testbed::check_namespaces() {
        Ok(()) => Ok("user, network, mount and PID namespaces, bridge and veth devices".to_owned()),
        Err(error) => Err(format!("{error:#}")),
    };
    Finding { what: "namespaces", outcome }
}

/// Prints every finding; used by demo and test too, which go on only when all are well.
pub(crate) fn check(quiet: bool) -> Result<()> {
    let basics = [linux(), go(), python(), compiler(), memory(), namespaces()];
    let go_works = basics[1].outcome.is_ok();
    let missing = if go_works { tools::missing()? } else { Vec::new() };
    let mut bad = 0;
    for finding in basics.into_iter().chain([disk(!missing.is_empty())?]) {
        match finding.outcome {
            Ok(text) if !quiet => println!("ok       {:<11} {text}", finding.what),
            Ok(_) => {}
            Err(remedy) => {
                bad += 1;
                println!("PROBLEM  {:<11} {remedy}", finding.what);
            }
        }
    }
    if !missing.is_empty() {
        let minutes: f32 = missing.iter().map(|m| m.minutes).sum();
        for tool in &missing {
            println!("to build {:<11} about {:.0} min on 2 cores", tool.name, tool.minutes.ceil());
        }
        println!(
            "to build {:<11} about {:.0} min in all, once; demo and test do it by themselves",
            "",
            minutes.ceil()
        );
    } else if !quiet && go_works {
        println!("ok       {:<11} built", "tools");
    }
    if bad > 0 {
        bail!("{bad} of the above must be mended first");
    }
    Ok(())
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    check(false)?;
    if args.verify {
        if tools::missing()?.is_empty() {
            tools::verify(&tools::ensure()?)?;
            println!("ok       {:<11} every checksum matches", "tools");
        } else {
            bail!("--verify: not every tool is built yet");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The folder that Cargo builds into, from the path of this program: target/PROFILE/xtask.
pub(crate) fn target_dir() -> Result<std::path::PathBuf> {
    let exe = std::env::current_exe()?;
    match exe.parent().and_then(Path::parent) {
        Some(dir) => Ok(dir.to_path_buf()),
        None => bail!("{} is not in a Cargo target folder", exe.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::go_minor;

    #[test]
    fn reads_the_version_that_go_prints() {
        assert_eq!(go_minor("go version go1.26.8 linux/amd64"), Some((1, 26)));
        assert_eq!(go_minor("go version go1.9 linux/amd64"), Some((1, 9)));
        assert_eq!(go_minor("go version devel +abc"), None);
    }
}
