//! `cargo xtask test`: everything a test run needs, then the tests, in named parts.

mod ordinary;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use testbed::command::cargo;

use crate::doctor::target_dir;
use crate::results::{self, Outcome};

/// Command line of `test`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask test\n  cargo xtask test unit\n  cargo xtask test pods -- restarts\n  \
                        cargo xtask test --thorough\n  cargo xtask test --thorough repeat\n  \
                        cargo xtask test --cluster existing --image-prefix registry.example.org/team\n\n\
                  The images for --cluster existing:\n  \
                        cargo xtask image istio-integrator test-server --out images\n\
                  and then, with a registry that the cluster pulls from,\n  \
                        skopeo copy oci-archive:images/istio-integrator.tar docker://PREFIX/istio-integrator:dev\n  \
                        skopeo copy oci-archive:images/test-server.tar docker://PREFIX/test-server:dev\n\
                  or, on kind, where no --image-prefix is needed,\n  \
                        kind load image-archive images/istio-integrator.tar\n  \
                        kind load image-archive images/test-server.tar"
)]
pub(crate) struct Args {
    /// Run one part only.
    part: Option<String>,
    /// Where the tests run. `existing`: the portable ones, printed first, on the cluster of the current kubeconfig, which
    /// needs an Istio and must have no istio-integrator; all they make is removed at the end.
    #[arg(long, value_enum, default_value_t = Place::TestBed)]
    cluster: Place,
    /// The long tests that CI does not run. Without a part: those that have not passed on these very files.
    #[arg(long)]
    thorough: bool,
    /// Print the parts with what they cover and, for the thorough ones, their last outcome.
    #[arg(long)]
    list: bool,
    /// Passed to the tests, for example a name to filter by.
    #[arg(last = true)]
    rest: Vec<String>,
    #[command(flatten, next_help_heading = "With --cluster existing")]
    existing: testbed::existing::Args,
}

/// Where tests run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Place {
    /// Clusters that this machine starts for them.
    TestBed,
    /// The cluster of the current kubeconfig.
    Existing,
}

struct Part {
    name: &'static str,
    /// What its tests' names hold, and no other test's.
    filter: &'static str,
    covers: &'static str,
}

const UNIT: &str = "unit";
const DEMO: &str = "demo";

/// How often `repeat` runs all tests on clusters.
const ROUNDS: u32 = 10;

/// What CI runs. Every name but `unit` and `demo` stands for modules of tests/e2e.
const PARTS: &[Part] = &[
    Part { name: UNIT, filter: "", covers: "tests inside the crates, without a cluster" },
    Part { name: "cluster", filter: "cluster::", covers: "control plane, snapshots, ending without a trace" },
    Part { name: "audit", filter: "audit::", covers: "which writes a user made" },
    Part { name: "fault", filter: "fault::", covers: "the proxy that delays, refuses and kills" },
    Part {
        name: "pods",
        filter: "pods",
        covers: "process-node: containers, probes, hooks, env, volumes, status, logs",
    },
    Part {
        name: "network",
        filter: "network::",
        covers: "process-node: Services, DNS, LoadBalancer addresses",
    },
    Part { name: "istio", filter: "istio::", covers: "istiod, its webhooks, injected gateways, endpoints" },
    Part {
        name: "auth",
        filter: "auth",
        covers: "logins: guard chains, ways around them, changes of the mesh, answers of auth services",
    },
    Part {
        name: "existing",
        filter: "existing",
        covers: "`--cluster existing` with two tests, on a second test bed through its kubeconfig alone",
    },
    Part {
        name: "integrator",
        filter: "integrator",
        covers: "istio-integrator: routes, conditions, idle, restart, deploy/",
    },
    Part { name: DEMO, filter: "", covers: "`cargo xtask demo`, each step of which tells whether it holds" },
];

const THOROUGH: &[Part] = &[
    Part {
        name: "crashes",
        filter: "auth_crash",
        covers: "istio-integrator killed after each of its writes, where CI takes every tenth",
    },
    Part {
        name: "existing-cluster",
        filter: "existing::",
        covers: "`--cluster existing` with all its tests, and interrupted, on a second test bed",
    },
    Part {
        name: "istio-versions",
        filter: "",
        covers: "Istio 1.24.0 and 1.29.2 as control plane and proxy agent: istiod, logins, ways around them",
    },
    Part { name: "repeat", filter: "", covers: "all tests on clusters, ten times in a row" },
    Part {
        name: "ordinary-user",
        filter: "",
        covers: "all tests on clusters and the demo as a user without rights (needs root to become one)",
    },
];

fn find<'a>(parts: &'a [Part], name: &str) -> Result<&'a Part> {
    parts.iter().find(|p| p.name == name).with_context(|| {
        let names: Vec<&str> = parts.iter().map(|p| p.name).collect();
        format!("no part {name:?}; there are: {}", names.join(", "))
    })
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if args.list {
        list();
        return Ok(ExitCode::SUCCESS);
    }
    if args.cluster == Place::Existing {
        return existing(args);
    }
    if args.existing != testbed::existing::Args::default() {
        bail!(
            "--kubeconfig, --context, --image-prefix, --image-tag, --revision, --yes and --clean-up go with --cluster existing"
        );
    }
    let part = match (&args.part, args.thorough) {
        (Some(name), false) => Some(find(PARTS, name)?),
        (Some(name), true) => Some(find(THOROUGH, name)?),
        (None, _) => None,
    };
    crate::doctor::check(true)?;
    let prepared = prepare(part.is_none_or(|p| p.name != UNIT))?;
    if args.thorough {
        return thorough(part, &prepared);
    }
    if part.is_none_or(|p| p.name == UNIT) {
        prepared.cargo(&["test", "--workspace", "--exclude", "e2e"], &args.rest)?;
    }
    match part {
        Some(part) if part.name == UNIT => {}
        Some(part) if part.name == DEMO => prepared.demo()?,
        Some(part) => prepared.e2e(Some(part.filter), &args.rest)?,
        None => {
            prepared.e2e(None, &args.rest)?;
            // A filter names tests, and the demo is none.
            if args.rest.is_empty() {
                prepared.demo()?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs the portable tests on the cluster of the current kubeconfig. Nothing of the test bed is built for that.
fn existing(args: &Args) -> Result<ExitCode> {
    if args.part.is_some() || args.thorough {
        bail!("--cluster existing runs the portable tests, and no part; choose tests by name after `--`");
    }
    let bins = std::env::current_exe()?.parent().map(Path::to_path_buf).unwrap_or_default();
    let images = target_dir()?.join("images");
    let program = Prepared { bins, images }.e2e_program()?;
    testbed::existing::run(&args.existing, &program, &args.rest)
}

fn list() {
    for part in PARTS {
        println!("{:<14} {}", part.name, part.covers);
    }
    println!("with --thorough:");
    for part in THOROUGH {
        let last = results::last(part.name).map_or_else(
            || "never run here".to_owned(),
            |o| {
                let word = if o.passed { "passed" } else { "failed" };
                format!(
                    "{word} in {} s on {} (files {})",
                    o.seconds,
                    &o.commit[..o.commit.len().min(10)],
                    o.inputs
                )
            },
        );
        println!("{:<14} {}; {last}", part.name, part.covers);
    }
}

struct Prepared {
    bins: PathBuf,
    images: PathBuf,
}

/// Builds tools, programs and images, so that the tests themselves wait for nothing.
fn prepare(cluster: bool) -> Result<Prepared> {
    let target = target_dir()?;
    let profile = std::env::current_exe()?.parent().and_then(Path::file_name).unwrap_or_default().to_owned();
    let prepared = Prepared { bins: target.join(profile), images: target.join("images") };
    if cluster {
        testbed::tools::ensure()?;
        prepared.cargo(
            &[
                "build",
                "--package",
                "process-node",
                "--package",
                "testbed",
                "--package",
                "istio-integrator",
                "--bins",
            ],
            &[],
        )?;
        crate::image::build(&[], &prepared.images)?;
    }
    Ok(prepared)
}

impl Prepared {
    fn command(&self, mut command: Command) -> Command {
        command
            .current_dir(testbed::paths::repo_root())
            .env("TESTBED_BIN_DIR", &self.bins)
            .env("TESTBED_IMAGE_DIR", &self.images);
        command
    }

    fn cargo(&self, args: &[&str], rest: &[String]) -> Result<()> {
        run_cargo(self.command(cargo()), args, rest)
    }

    /// Runs the cluster tests, or those of a part, as far as `rest` selects them.
    fn e2e(&self, part: Option<&str>, rest: &[String]) -> Result<()> {
        let mut command = self.command(cargo());
        // One that is set around us would make a whole run pass on a part.
        command.env_remove(testbed::harness::PART).envs(part.map(|part| (testbed::harness::PART, part)));
        run_cargo(command, &["test", "--package", "e2e"], rest)
    }

    /// Runs the tests of a filter with a variable that makes them take longer.
    fn with(&self, variable: &str, filter: &str) -> Result<()> {
        ordinary::run(self.command(Command::new(self.e2e_program()?)).arg(filter).env(variable, "1"))
    }

    fn demo(&self) -> Result<()> {
        let mut command = self.command(Command::new(std::env::current_exe()?));
        ordinary::run(command.arg("demo")).context("the demo")
    }

    /// The path of the compiled cluster tests.
    fn e2e_program(&self) -> Result<PathBuf> {
        let out = self
            .command(cargo())
            .args(["test", "--package", "e2e", "--no-run", "--message-format=json", "--target-dir"])
            .arg(target_dir()?)
            .stderr(std::process::Stdio::inherit())
            .output()?;
        let text = String::from_utf8_lossy(&out.stdout);
        text.lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
            .filter_map(|message| message["executable"].as_str().map(PathBuf::from))
            .next_back()
            .context("cargo named no test program")
    }
}

/// Runs Cargo with these arguments, and `rest` for the tests themselves.
fn run_cargo(mut command: Command, args: &[&str], rest: &[String]) -> Result<()> {
    command.args(args).arg("--target-dir").arg(target_dir()?);
    if !rest.is_empty() {
        command.arg("--").args(rest);
    }
    let status = command.status().context("start cargo")?;
    if !status.success() {
        bail!("`cargo {}` failed ({status})", args.join(" "));
    }
    Ok(())
}

fn thorough(part: Option<&Part>, prepared: &Prepared) -> Result<ExitCode> {
    let (commit, inputs) = results::state()?;
    let mut failed = Vec::new();
    for candidate in THOROUGH {
        match part {
            Some(part) if part.name != candidate.name => continue,
            None if results::last(candidate.name).is_some_and(|o| o.passed && o.inputs == inputs) => {
                println!("{}: passed before on these files", candidate.name);
                continue;
            }
            _ => {}
        }
        let started = Instant::now();
        println!("{}: {}", candidate.name, candidate.covers);
        let result = match candidate.name {
            "crashes" => prepared.with("E2E_EVERY_WRITE", candidate.filter),
            "existing-cluster" => prepared.with("E2E_EXISTING_WHOLE", candidate.filter),
            "istio-versions" => istio_versions(prepared),
            "repeat" => repeat(prepared, &inputs),
            "ordinary-user" => ordinary_user(prepared),
            other => bail!("part {other} has no body"),
        };
        let outcome = Outcome {
            commit: commit.clone(),
            inputs: inputs.clone(),
            passed: result.is_ok(),
            seconds: started.elapsed().as_secs(),
            ended: SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs(),
        };
        results::keep(candidate.name, &outcome)?;
        if let Err(error) = result {
            eprintln!("{}: {error:#}", candidate.name);
            failed.push(candidate.name);
        }
    }
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    bail!("failed: {}", failed.join(", "))
}

/// What of the tests on clusters is run with each Istio: those of istiod, and those of logins but for the longest, in which
/// Istio only looks on.
const OF_EVERY_ISTIO: [&[&str]; 2] = [&["istio::"], &["auth", "--skip", "auth_crash"]];

/// Runs tests with Istio releases other than the one that CI takes; each is built when it is first needed.
fn istio_versions(prepared: &Prepared) -> Result<()> {
    let program = prepared.e2e_program()?;
    for version in testbed::tools::OTHER_ISTIO_VERSIONS {
        for tests in OF_EVERY_ISTIO {
            println!("istio-versions: Istio {version}, {}", tests[0]);
            let mut command = prepared.command(Command::new(&program));
            command.args(tests).env(testbed::tools::ISTIO_VARIABLE, version);
            ordinary::run(&mut command).with_context(|| format!("Istio {version}, {}", tests[0]))?;
        }
    }
    Ok(())
}

/// Ten rounds, one after the other. Those that passed on these very files are not run again, so that a part that was
/// interrupted goes on where it was; a failure begins anew.
fn repeat(prepared: &Prepared, inputs: &str) -> Result<()> {
    let passed = results::rounds(inputs);
    if passed > 0 {
        println!("repeat: {passed} rounds passed before on these files");
    }
    for round in passed + 1..=ROUNDS {
        println!("repeat: round {round} of {ROUNDS}");
        let outcome = prepared.e2e(None, &[]).with_context(|| format!("round {round}"));
        results::keep_rounds(inputs, if outcome.is_ok() { round } else { 0 })?;
        outcome?;
    }
    results::keep_rounds(inputs, 0)
}

/// Runs the compiled tests as `nobody`, and then the demo.
fn ordinary_user(prepared: &Prepared) -> Result<()> {
    if !ordinary::is_root() {
        // Then every other part has shown it already.
        prepared.e2e(None, &[])?;
        return prepared.demo();
    }
    let home = ordinary::Home::new(&prepared.bins, &prepared.images)?;
    ordinary::run(&mut home.command(&prepared.e2e_program()?)?).context("the tests as nobody")?;
    ordinary::run(home.command(&std::env::current_exe()?)?.arg("demo")).context("the demo as nobody")
}
