//! `cargo xtask image`: container images of our programs, as OCI archives, without Docker.
//!
//! ```text
//! cargo build (static) -> elf: is it? -> rootfs: the files -> oci: layer, config, manifest -> NAME.tar
//! ```
//!
//! The same program gives the same bytes: nothing in an archive tells when, where or by whom it was made.

mod elf;
mod oci;
mod rootfs;

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use rootfs::Rootfs;

/// Command line of `image`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Images to build; without any, those of the programs that users deploy.
    #[arg(value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(NAMES))]
    names: Vec<String>,
    /// Folder for the archives, NAME.tar each. Default: `images/PROFILE` in Cargo's target folder.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Tag of the images.
    #[arg(long, default_value = "dev")]
    tag: String,
    /// How the programs are built: as they are released, or faster, as tests use them.
    #[arg(long, value_enum, default_value_t = Profile::Release)]
    profile: Profile,
    /// Writes the files of the one image named into this folder, instead of an archive. For Dockerfiles.
    #[arg(long, value_name = "DIR", conflicts_with = "out")]
    rootfs: Option<PathBuf>,
}

/// A Cargo profile of the workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Profile {
    /// As released.
    Release,
    /// Built faster, and not optimised: `[profile.image]`.
    Image,
}

impl Profile {
    fn name(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Image => "image",
        }
    }
}

/// Images are named `istio-operators/NAME`.
const REPOSITORY: &str = "istio-operators";

/// A program of ours that is its image's entry point. The image and the program have one name.
#[derive(Clone, Copy, Debug)]
struct Spec {
    name: &'static str,
    package: &'static str,
    description: &'static str,
    /// Built when no image is named.
    deployed: bool,
}

const IMAGES: [Spec; 2] = [
    Spec {
        name: "istio-integrator",
        package: "istio-integrator",
        description: "Turns ingress requests into routes on any Istio",
        deployed: true,
    },
    Spec {
        name: "test-server",
        package: "testbed",
        description: "Small servers for tests of istio-integrator and istio-daemon",
        deployed: false,
    },
];

const NAMES: [&str; IMAGES.len()] = {
    let mut names = [""; IMAGES.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = IMAGES[at].name;
        at += 1;
    }
    names
};

/// Carries out the command line.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if let Some(dir) = &args.rootfs {
        let [name] = args.names.as_slice() else {
            bail!(
                "--rootfs takes the files of one image: name it, as in `cargo xtask image {} --rootfs DIR`",
                NAMES[0]
            );
        };
        for spec in select(std::slice::from_ref(name))? {
            root(&spec, &compile(&spec, args.profile, &host_triple()?)?)?.write(dir)?;
            println!("{}", dir.display());
        }
        return Ok(ExitCode::SUCCESS);
    }
    let out = match &args.out {
        Some(out) => out.clone(),
        // Not where the images of a test run lie, lest those be taken for released ones.
        None => crate::doctor::target_dir()?.join("images").join(args.profile.name()),
    };
    for archive in archives(&args.names, &out, &args.tag, args.profile)? {
        println!("{}", archive.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds images for tests, tagged `dev` and with the profile that builds faster, and gives the archives: `out/NAME.tar`.
/// No names mean the images that users deploy. Progress goes to standard error.
///
/// Fails for unknown names, when a program does not compile, and when it would need libraries of the image.
pub(crate) fn build(names: &[String], out: &Path) -> Result<Vec<PathBuf>> {
    archives(names, out, "dev", Profile::Image)
}

fn archives(names: &[String], out: &Path, tag: &str, profile: Profile) -> Result<Vec<PathBuf>> {
    oci::check_tag(tag)?;
    let triple = host_triple()?;
    let platform = oci::Platform::of(&triple)?;
    std::fs::create_dir_all(out).with_context(|| format!("create {}", out.display()))?;
    let mut archives = Vec::new();
    for spec in select(names)? {
        let start = Instant::now();
        let reference = format!("{REPOSITORY}/{}:{tag}", spec.name);
        eprintln!("image {reference}: building the program, profile {}", profile.name());
        let root = root(&spec, &compile(&spec, profile, &triple)?)?;
        let image = oci::Image {
            reference: &reference,
            entrypoint: rootfs::program_path(spec.name),
            user: rootfs::USER,
            title: spec.name,
            description: spec.description,
            version: env!("CARGO_PKG_VERSION"),
            platform,
        };
        let archive = image.archive(&root)?;
        let path = out.join(format!("{}.tar", spec.name));
        replace(&path, &archive.bytes)?;
        let kib = archive.bytes.len() / 1024;
        let seconds = start.elapsed().as_secs_f32();
        eprintln!("image {reference}: {kib} KiB in {seconds:.1} s, manifest {}", archive.digest);
        archives.push(path);
    }
    Ok(archives)
}

fn select(names: &[String]) -> Result<Vec<Spec>> {
    if names.is_empty() {
        return Ok(IMAGES.into_iter().filter(|spec| spec.deployed).collect());
    }
    let find = |name: &String| {
        let found = IMAGES.into_iter().find(|spec| spec.name == name);
        found.with_context(|| format!("no image {name:?}: there are {}", NAMES.join(", ")))
    };
    names.iter().map(find).collect()
}

/// The image's files, once it is certain that the program finds all it needs among them.
fn root(spec: &Spec, program: &Path) -> Result<Rootfs> {
    let bytes = std::fs::read(program).with_context(|| format!("read {}", program.display()))?;
    elf::check_static(&bytes)
        .with_context(|| format!("{} cannot run in an image of its own", program.display()))?;
    Ok(Rootfs::new(spec.name, bytes))
}

/// Puts the bytes in the file's place at once, so that a cluster that reads the old one is not disturbed.
fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let new = path.with_extension(format!("new-{}", std::process::id()));
    std::fs::write(&new, bytes).with_context(|| format!("write {}", new.display()))?;
    std::fs::rename(&new, path).with_context(|| format!("write {}", path.display()))
}

/// The platform that the compiler runs on, which is the one that images are built for.
fn host_triple() -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("-vV").output().context("start rustc")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("`rustc -vV` names no host")?.to_owned())
}

/// Compiles the program with the C library inside, and gives its path.
fn compile(spec: &Spec, profile: Profile, triple: &str) -> Result<PathBuf> {
    let mut command = testbed::command::cargo();
    command
        .args(["build", "--package", spec.package, "--bin", spec.name, "--profile", profile.name()])
        // Naming the target keeps the flags away from build scripts and procedural macros, which are loaded as
        // libraries, and gives these builds a folder of their own.
        .args(["--target", triple, "--message-format", "json-render-diagnostics"])
        .env("RUSTFLAGS", flags(std::env::var_os("RUSTFLAGS")))
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .stdout(Stdio::piped());
    let mut child = command.spawn().context("start cargo")?;
    let messages = BufReader::new(child.stdout.take().context("cargo's output")?);
    let program = find_program(messages, spec.name);
    let status = child.wait().context("wait for cargo")?;
    if !status.success() {
        bail!(
            "{} does not build ({status}): if the linker misses the static C library, install it (Debian: libc6-dev)",
            spec.name
        );
    }
    program?.with_context(|| format!("cargo named no program {}", spec.name))
}

fn flags(given: Option<OsString>) -> OsString {
    let mut flags = given.unwrap_or_default();
    flags.push(" -C target-feature=+crt-static");
    flags
}

/// Reads Cargo's messages to their end, and gives the program of this name that they tell of.
fn find_program(messages: impl BufRead, name: &str) -> Result<Option<PathBuf>> {
    #[derive(Deserialize)]
    struct Message {
        executable: Option<PathBuf>,
        target: Option<Target>,
    }
    #[derive(Deserialize)]
    struct Target {
        name: String,
    }
    let mut program = None;
    for line in messages.lines() {
        let message: Message = serde_json::from_str(&line?).context("cargo's messages")?;
        if message.target.is_some_and(|target| target.name == name) && message.executable.is_some() {
            program = message.executable;
        }
    }
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deployed_images_are_built_by_default() {
        let names = |names: &[&str]| -> Result<Vec<&'static str>> {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            Ok(select(&names)?.iter().map(|spec| spec.name).collect())
        };
        assert_eq!(names(&[]).unwrap(), ["istio-integrator"]);
        assert_eq!(names(&["test-server"]).unwrap(), ["test-server"]);
        let error = names(&["istio"]).unwrap_err().to_string();
        assert!(error.contains("istio-integrator, test-server"), "{error}");
    }

    #[test]
    fn the_program_is_found_among_cargos_messages() {
        let messages = r#"{"reason":"compiler-artifact","target":{"name":"build-script-build"},"executable":null}
{"reason":"compiler-artifact","target":{"name":"other"},"executable":"/t/other"}
{"reason":"compiler-artifact","target":{"name":"a"},"executable":null}
{"reason":"compiler-artifact","target":{"name":"a"},"executable":"/t/a"}
{"reason":"build-finished","success":true}
"#;
        assert_eq!(find_program(messages.as_bytes(), "a").unwrap(), Some(PathBuf::from("/t/a")));
        assert_eq!(find_program(messages.as_bytes(), "b").unwrap(), None);
        assert!(find_program("error: no".as_bytes(), "b").is_err());
    }

    #[test]
    fn flags_are_added_to_those_given() {
        assert_eq!(flags(Some("-C debuginfo=1".into())), "-C debuginfo=1 -C target-feature=+crt-static");
    }

    #[test]
    fn an_archive_takes_the_place_of_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tar");
        for bytes in [b"old", b"new"] {
            replace(&path, bytes).unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), bytes);
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    /// The Dockerfile cannot be built everywhere, but must not fall behind what is built here.
    #[test]
    fn dockerfiles_say_the_same() {
        for spec in IMAGES.into_iter().filter(|spec| spec.deployed) {
            let path = testbed::paths::repo_root().join(format!("deploy/Dockerfile.{}", spec.name));
            let text = std::fs::read_to_string(&path).unwrap();
            for wanted in [
                format!("cargo xtask image {} --rootfs", spec.name),
                "FROM scratch".to_owned(),
                format!("USER {}", rootfs::USER),
                format!("ENTRYPOINT [\"{}\"]", rootfs::program_path(spec.name)),
                format!("org.opencontainers.image.description=\"{}\"", spec.description),
            ] {
                assert!(text.contains(&wanted), "{} lacks {wanted:?}", path.display());
            }
        }
    }
}
