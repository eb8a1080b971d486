//! `bench chain`: what a request costs through Envoy, with and without a guard chain.
//!
//! Gateways of the same kind stand side by side, one pod each: without a chain, with one provider, with twenty, and with
//! the hand-made chain that the mechanism was first tried with. One is loaded at a time, pod to pod, over kept connections.

mod world;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;
use testbed::command::output;
use testbed::{Cluster, Options, Session, images};

use super::rounds::{Measure, rounds};
use world::{Case, GATEWAYS, TOOL_IMAGE};

const MEASURES: [Measure; 4] = [
    Measure { name: "answers a second", digits: 0 },
    Measure { name: "Envoy's processor time an answer, us", digits: 2 },
    Measure { name: "median answer, us", digits: 0 },
    Measure { name: "99 % answer, us", digits: 0 },
];
/// The place of the processor time among the measures.
const TIME: usize = 1;

#[derive(Debug, Deserialize)]
struct Counted {
    statuses: BTreeMap<u16, u32>,
    answers: u32,
    reconnects: u32,
    seconds: f64,
    median_us: u32,
    p99_us: u32,
}

/// Starts a cluster and measures inside it.
pub(super) fn run(tool: &Path, number: u8) -> Result<()> {
    super::super::doctor::check(true)?;
    let tools = testbed::tools::ensure()?;
    let out = super::super::doctor::target_dir()?.join("images");
    super::super::image::build(&["istio-integrator".to_owned()], &out)?;
    let mut map = images::default_map(&tools)?;
    map.rules.push(images::program_rule(TOOL_IMAGE, tool));
    let cluster = Cluster::start(&Options { images: Some(map), ..Options::default() })?;
    let status = cluster
        .command(&std::env::current_exe()?)?
        .args(["bench", "chain", "--rounds", &number.to_string(), "--tool"])
        .arg(tool)
        .arg("--inside")
        .arg(cluster.session().run_dir())
        .env("TESTBED_IMAGE_DIR", &out)
        .status()
        .context("measure inside the cluster")?;
    if !status.success() {
        bail!("the benchmark failed; the lines above say where");
    }
    Ok(())
}

/// Measures, in a process that is in the cluster's network.
pub(super) fn inside(run_dir: &Path, tool: &Path, number: u8) -> Result<()> {
    let session = Session::at(run_dir)?;
    println!("Istio, istio-integrator, {} gateways, applications and auth services", GATEWAYS.len());
    testbed::istio::install(&session, &["profile=minimal"])?;
    testbed::operators::deploy_integrator(&session)?;
    testbed::operators::set_integrator_env(&session, &[("ISTIO_INTEGRATOR_CHAIN_INTERVAL", "1s")])?;
    world::apply(&session)?;
    let envoys: BTreeMap<&str, Envoy> = GATEWAYS
        .into_iter()
        .map(|gateway| Ok((gateway, Envoy::find(&session, gateway)?)))
        .collect::<Result<_>>()?;
    let cases = world::cases();
    for case in &cases {
        let envoy = envoys.get(case.gateway).context("a gateway")?;
        ready(tool, envoy, case)?;
    }
    let names: Vec<String> = cases.iter().map(Case::name).collect();
    let figures = rounds(number, &names, &MEASURES, |place| {
        let case = &cases[place];
        let envoy = envoys.get(case.gateway).context("a gateway")?;
        measure(tool, envoy, case)
    })?;
    let base = |place: usize| {
        let same = |case: &Case| case.gateway == GATEWAYS[0] && case.kind.base() == cases[place].kind.base();
        cases.iter().position(same).unwrap_or(place)
    };
    figures.print(base);
    println!("\nWhat a request costs Envoy more than without a chain, median of the rounds:");
    for (place, name) in names.iter().enumerate().filter(|(place, _)| base(*place) != *place) {
        println!("  {name:<52} {:+.2} us", figures.difference(place, base(place), TIME));
    }
    Ok(())
}

/// The Envoy of a gateway's one pod.
struct Envoy {
    address: SocketAddr,
    stat: PathBuf,
    ticks: f64,
}

impl Envoy {
    fn find(session: &Session, gateway: &str) -> Result<Self> {
        let label = format!("bench={gateway}");
        let path = "jsonpath={.items[*].metadata.name} {.items[*].status.podIP}";
        let text = output(session.kubectl(["-n", "bench", "get", "pods", "-l", &label, "-o", path]), None)?;
        let [pod, ip] = text.split_whitespace().collect::<Vec<_>>()[..] else {
            bail!("gateway {gateway} has not one pod: {text}");
        };
        let own = format!("POD_NAME={pod}");
        let of_pod = |dir: &PathBuf| {
            let comm = std::fs::read_to_string(dir.join("comm")).unwrap_or_default();
            let environ = std::fs::read(dir.join("environ")).unwrap_or_default();
            comm.trim() == "envoy" && environ.split(|byte| *byte == 0).any(|entry| entry == own.as_bytes())
        };
        let processes = std::fs::read_dir("/proc")?.flatten().map(|entry| entry.path());
        let found: Vec<PathBuf> = processes.filter(of_pod).collect();
        let [process] = &found[..] else { bail!("{} processes are the Envoy of {pod}", found.len()) };
        let ticks = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK)?.context("no clock ticks")?;
        let ticks = f64::from(i32::try_from(ticks)?);
        Ok(Self { address: format!("{ip}:8080").parse()?, stat: process.join("stat"), ticks })
    }

    /// Seconds of processor time since it started: `utime` and `stime` of proc(5).
    fn seconds(&self) -> Result<f64> {
        let text =
            std::fs::read_to_string(&self.stat).with_context(|| format!("read {}", self.stat.display()))?;
        // The name of the program, in brackets, may hold blanks.
        let (_, fields) = text.rsplit_once(')').context("no program name")?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let time = |place: usize| -> Result<f64> { Ok(fields.get(place).context("a field")?.parse()?) };
        Ok((time(11)? + time(12)?) / self.ticks)
    }
}

fn load(tool: &Path, envoy: &Envoy, case: &Case, millis: u32) -> Result<Counted> {
    let mut command = Command::new(tool);
    command.args([
        "load",
        "--address",
        &envoy.address.to_string(),
        "--host",
        &case.host(),
        "--path",
        case.kind.path(),
    ]);
    command.args(["--millis", &millis.to_string(), "--header", "cookie: session=somebody"]);
    super::ask(&mut command)
}

/// Waits until the gateway answers as it is to.
fn ready(tool: &Path, envoy: &Envoy, case: &Case) -> Result<()> {
    let deadline = Instant::now() + Duration::from_mins(2);
    loop {
        let counted = load(tool, envoy, case, 50)?;
        if counted.answers > 0 && counted.statuses.keys().eq([&200]) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{} answers {:?}", case.name(), counted.statuses);
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn measure(tool: &Path, envoy: &Envoy, case: &Case) -> Result<Vec<f64>> {
    // Connections to the backends are opened, and caches filled.
    load(tool, envoy, case, 200)?;
    let before = envoy.seconds()?;
    let counted = load(tool, envoy, case, 2000)?;
    let spent = envoy.seconds()? - before;
    ensure!(counted.statuses.keys().eq([&200]), "{} answers {:?}", case.name(), counted.statuses);
    ensure!(counted.reconnects == 0, "{}: {} connections broke", case.name(), counted.reconnects);
    let answers = f64::from(counted.answers);
    let times = [f64::from(counted.median_us), f64::from(counted.p99_us)];
    Ok(vec![answers / counted.seconds, spent * 1e6 / answers, times[0], times[1]])
}
