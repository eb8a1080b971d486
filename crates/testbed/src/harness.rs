//! The test runner for tests on a cluster: one shared cluster for a run, a namespace for each test.
//!
//! A test binary sets `harness = false` and calls [`main`] with its tests. Outside a cluster it starts one (or, if
//! `TESTBED_CLUSTER` names the run directory of a running cluster, joins that) and runs itself again inside; what
//! it left behind ends with it, however it ends. Tests that are written against [`Site`] also run on clusters that are none of
//! the test bed's: see [`crate::existing`].

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::Api;
use libtest_mimic::{Arguments, Failed, Trial};

use crate::cluster::{Cluster, Options, Session};
use crate::command::output;
use crate::existing;
use crate::site::{Site, make_namespace};

/// Set for the process that runs the tests: the run directory of the cluster it is in.
const INSIDE: &str = "TESTBED_INSIDE";
/// Limits a run to the tests whose names begin with its value: a part of `cargo xtask test`, beside which the command line has
/// a filter of its own.
pub const PART: &str = "TESTBED_PART";
/// Names a running cluster to use in place of a new one.
const SHARED: &str = "TESTBED_CLUSTER";

/// How long [`eventually`] rests between two attempts.
const SHORTEST_REST: Duration = Duration::from_millis(100);
const LONGEST_REST: Duration = Duration::from_secs(1);

type BoxedRun = Pin<Box<dyn Future<Output = Result<()>>>>;

/// What a test runs on.
#[derive(Clone, Copy)]
pub enum Run {
    /// The test bed alone.
    Bed(fn(Ctx) -> BoxedRun),
    /// Any cluster with Istio, side by side with others.
    Portable(fn(Site) -> BoxedRun),
    /// An existing cluster alone, after all others, since it takes the integrator away.
    Last(fn(Site) -> BoxedRun),
}

/// One test. Make it with [`crate::test!`], [`crate::portable!`] or [`crate::last!`].
#[derive(Clone, Copy)]
pub struct Test {
    /// Module path and function name.
    pub name: &'static str,
    /// The test itself.
    pub run: Run,
    /// How long it may take.
    pub limit: Duration,
}

impl std::fmt::Debug for Test {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Test {
    /// The same test with another limit than the default of 120 s.
    #[must_use]
    pub const fn limit_seconds(mut self, seconds: u64) -> Self {
        self.limit = Duration::from_secs(seconds);
        self
    }
}

/// Makes a [`harness::Test`](Test) of an `async fn(Ctx) -> anyhow::Result<()>`.
#[macro_export]
macro_rules! test {
    ($function:ident) => {
        $crate::harness::Test {
            name: concat!(module_path!(), "::", stringify!($function)),
            run: $crate::harness::Run::Bed(|ctx| Box::pin($function(ctx))),
            limit: ::std::time::Duration::from_secs(120),
        }
    };
}

/// Makes a [`harness::Test`](Test) of an `async fn(Site) -> anyhow::Result<()>`, which runs on existing clusters too.
#[macro_export]
macro_rules! portable {
    ($function:ident) => {
        $crate::harness::Test {
            name: concat!(module_path!(), "::", stringify!($function)),
            run: $crate::harness::Run::Portable(|site| Box::pin($function(site))),
            limit: ::std::time::Duration::from_secs(120),
        }
    };
}

/// The same for a test that only an existing cluster can run, when all others have ended.
#[macro_export]
macro_rules! last {
    ($function:ident) => {
        $crate::harness::Test {
            name: concat!(module_path!(), "::", stringify!($function)),
            run: $crate::harness::Run::Last(|site| Box::pin($function(site))),
            limit: ::std::time::Duration::from_secs(120),
        }
    };
}

/// What a test of the test bed works with: a [`Site`], and the cluster itself.
#[derive(Clone)]
pub struct Ctx {
    /// The shared cluster.
    pub session: Session,
    /// The test's namespace on it.
    pub site: Site,
}

impl std::ops::Deref for Ctx {
    type Target = Site;

    fn deref(&self) -> &Site {
        &self.site
    }
}

/// Runs the tests that the command line selects.
pub fn main(tests: &[Test]) -> ExitCode {
    if let Some(code) = crate::dispatch() {
        return code;
    }
    let mut args = Arguments::from_args();
    if let Some(target) = std::env::var_os(existing::TARGET) {
        return on_existing(&mut args, tests, &PathBuf::from(target));
    }
    let tests: Vec<Test> = tests.iter().filter(|test| !matches!(test.run, Run::Last(_))).copied().collect();
    let inside = std::env::var_os(INSIDE).map(PathBuf::from);
    let part = std::env::var(PART).ok();
    let tests: Vec<Test> = tests.into_iter().filter(|test| in_part(part.as_deref(), test.name)).collect();
    if let Some(part) = part.filter(|_| tests.is_empty()) {
        eprintln!("{PART}: no test's name begins with {part:?}");
        return ExitCode::from(101);
    }
    let selected = tests.iter().any(|t| selects(&args, t.name));
    if inside.is_none() && selected && !args.list {
        return outside().unwrap_or_else(|error| {
            eprintln!("{error:#}");
            ExitCode::from(101)
        });
    }
    // Tests mostly wait for a cluster; two threads on two cores would leave it idle.
    args.test_threads.get_or_insert(6);
    // Those that may take long first: begun last, they would run alone in the end.
    let mut tests = tests;
    tests.sort_by_key(|test| std::cmp::Reverse(test.limit));
    let trials = tests
        .into_iter()
        .map(|test| {
            let inside = inside.clone();
            Trial::test(short(test.name), move || {
                let run_dir = inside.ok_or_else(|| Failed::from("not inside a cluster"))?;
                run_one(test, &run_dir)
            })
        })
        .collect();
    libtest_mimic::run(&args, trials).exit_code()
}

/// `e2e::pods::restarts` -> `pods::restarts`: the crate's name says nothing.
fn short(name: &str) -> &str {
    name.split_once("::").map_or(name, |(_, rest)| rest)
}

/// Whether a test belongs to a part, which is the beginning of the names of its modules.
fn in_part(part: Option<&str>, name: &str) -> bool {
    part.is_none_or(|part| short(name).starts_with(part))
}

/// The selection rule of libtest, so that a run that selects nothing starts no cluster.
fn selects(args: &Arguments, name: &str) -> bool {
    let name = short(name);
    let matches = |filter: &str| if args.exact { name == filter } else { name.contains(filter) };
    args.filter.as_deref().is_none_or(matches) && !args.skip.iter().any(|s| matches(s))
}

fn outside() -> Result<ExitCode> {
    let cluster = match std::env::var_os(SHARED) {
        Some(run_dir) => Cluster::attach(&PathBuf::from(run_dir))?,
        None => Cluster::start(&Options::default())?,
    };
    let mut command = cluster.command(&std::env::current_exe()?)?;
    command.args(std::env::args_os().skip(1)).env(INSIDE, cluster.session().run_dir());
    let status = command.status().context("run the tests inside the cluster")?;
    let code = status.code().and_then(|c| u8::try_from(c).ok()).unwrap_or(101);
    Ok(ExitCode::from(code))
}

/// Runs the portable tests on an existing cluster, and then, alone, those that take the integrator away.
fn on_existing(args: &mut Arguments, tests: &[Test], target: &std::path::Path) -> ExitCode {
    // Each has a gateway of its own, and the cluster may be small.
    args.test_threads.get_or_insert(3);
    let trials = |last: bool| {
        let tests = tests.iter().copied().filter(move |test| match test.run {
            Run::Bed(_) => false,
            Run::Portable(_) => !last,
            Run::Last(_) => last,
        });
        tests.map(|test| {
            let target = target.to_path_buf();
            Trial::test(short(test.name), move || {
                run_with(test, async {
                    let target = existing::Target::read(&target)?;
                    let client = target.client().await?;
                    let site = Site::on_existing(Arc::new(target), client, String::new());
                    within_namespace(&site, test).await
                })
            })
        })
    };
    if args.list {
        return libtest_mimic::run(args, trials(false).chain(trials(true)).collect()).exit_code();
    }
    existing::die_with_the_run();
    let first = libtest_mimic::run(args, trials(false).collect());
    let then = libtest_mimic::run(args, trials(true).collect());
    if first.has_failed() { first.exit_code() } else { then.exit_code() }
}

fn run_one(test: Test, run_dir: &std::path::Path) -> Result<(), Failed> {
    run_with(test, async {
        let session = Session::at(run_dir)?;
        let client = session.client().await?;
        within_namespace(&Site::on_bed(session, client, String::new()), test).await
    })
}

/// Does a test's work on a runtime of its own.
fn run_with(test: Test, work: impl Future<Output = Result<()>>) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failed::from)?;
    let _watched = watch(test);
    let outcome = runtime.block_on(work);
    // Work that a test left on a thread of its own ends with the process, not with the test.
    runtime.shutdown_background();
    outcome.map_err(|error| Failed::from(format!("{error:#}")))
}

/// Runs a test in a new namespace of a cluster, which is deleted afterwards.
async fn within_namespace(cluster: &Site, test: Test) -> Result<()> {
    let site = new_site(cluster, short(test.name)).await?;
    let (run, given) = (test.run, site.clone());
    // A local set, so that a panic in the test becomes an error here and the namespace can still be shown.
    let local = tokio::task::LocalSet::new();
    let task = local.run_until(async {
        let handle = tokio::task::spawn_local(match run {
            Run::Portable(run) | Run::Last(run) => run(given),
            Run::Bed(run) => run(Ctx { session: given.session()?.clone(), site: given }),
        });
        match tokio::time::timeout(test.limit, handle).await {
            Ok(Ok(result)) => result,
            Ok(Err(join)) => Err(anyhow::anyhow!("{join}")),
            Err(_) => bail!("not finished after {} s", test.limit.as_secs()),
        }
    });
    let result = task.await;
    if result.is_err() {
        eprintln!("{}", diagnostics(&site, test.name));
    }
    let namespaces = Api::<Namespace>::all(site.client.clone());
    let _ = namespaces.delete(&site.namespace, &kube::api::DeleteParams::background()).await;
    result
}

/// Ends the whole run when a test blocks its thread, so that its limit cannot end it: a run that hangs says nothing.
fn watch(test: Test) -> mpsc::Sender<()> {
    let (alive, ended) = mpsc::channel::<()>();
    std::thread::spawn(move || {
        // Time for the diagnostics of a test that did reach its limit.
        if ended.recv_timeout(test.limit + Duration::from_mins(1)) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("{} blocks its thread: the run is given up", test.name);
            std::process::exit(101);
        }
    });
    alive
}

/// A new namespace named for a test, on a cluster.
async fn new_site(cluster: &Site, test: &str) -> Result<Site> {
    let stem: String =
        test.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    let stem = stem.replace("--", "-");
    let metadata = serde_json::json!({"generateName": format!("t-{}-", &stem[..stem.len().min(45)])});
    let name = make_namespace(&cluster.client, &cluster.namespace_object(&metadata)?).await?;
    Ok(cluster.at(&name))
}

/// Pods, Events, objects and logs of a test's namespace, for the reader of a failed run.
fn diagnostics(site: &Site, test: &str) -> String {
    // One at a time, or the reports of two failures mix.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock();
    let ns = site.namespace.as_str();
    let mut report = format!("=== {test} failed; namespace {ns} ===\n");
    let mut show = |title: &str, args: &[&str]| {
        let out = output(site.command(args), None).unwrap_or_else(|e| format!("{e:#}"));
        // Writing to a String cannot fail.
        let _ = writeln!(report, "--- {title}\n{}", out.trim_end());
    };
    show("pods", &["-n", ns, "get", "pods", "-o", "wide"]);
    show("events", &["-n", ns, "get", "events", "--sort-by=.lastTimestamp"]);
    let kinds = "deployments,statefulsets,jobs,services,endpointslices,configmaps";
    show("objects", &["-n", ns, "get", kinds, "-o", "wide"]);
    for kind in ["ingressrequests.integrator.istio-operators.io", "gateways.networking.istio.io"] {
        show(kind, &["-n", ns, "get", kind, "-o", "yaml", "--ignore-not-found"]);
    }
    let pods = output(site.command(["-n", ns, "get", "pods", "-o", "name"]), None).unwrap_or_default();
    for pod in pods.lines() {
        show(pod, &["-n", ns, "get", pod, "-o", "jsonpath={.status}"]);
        let logs = ["-n", ns, "logs", "--all-containers", "--tail=40", "--prefix", pod];
        show(&format!("logs of {pod}"), &logs);
    }
    report
}

/// Tries until it succeeds; after `seconds`, the last error becomes the test's.
pub async fn eventually<T, F, Fut>(what: &str, seconds: u64, mut attempt: F) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T>>,
{
    let deadline = Instant::now() + Duration::from_secs(seconds);
    loop {
        let start = Instant::now();
        match attempt().await {
            Ok(value) => return Ok(value),
            Err(error) if Instant::now() > deadline => {
                return Err(error).with_context(|| format!("after {seconds} s, still not: {what}"));
            }
            // An attempt is often a kubectl, which keeps a processor busy. Resting in proportion bounds the share that a test
            // takes while it waits, also where a busy machine makes each attempt slow.
            Err(_) => tokio::time::sleep((start.elapsed() * 2).clamp(SHORTEST_REST, LONGEST_REST)).await,
        }
    }
}

/// Runs a command to its end, without blocking other tests, and returns its standard output.
///
/// # Errors
/// When it fails; the error holds its standard error.
pub async fn run_command(command: std::process::Command, input: Option<String>) -> Result<String> {
    tokio::task::spawn_blocking(move || output(command, input.as_deref())).await?
}

/// Work that is done once in each cluster, however many tests ask for it.
struct Once(Mutex<BTreeMap<PathBuf, Outcome>>);

/// What became of the work in one cluster, once it is done.
type Outcome = Arc<OnceLock<Result<(), String>>>;

impl Once {
    const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    fn of(&self, session: &Session) -> Outcome {
        let mut clusters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(clusters.entry(session.run_dir().to_path_buf()).or_default())
    }

    async fn per_cluster(
        &'static self,
        session: Session,
        what: &'static str,
        work: fn(&Session) -> Result<()>,
    ) -> Result<()> {
        let once = self.of(&session);
        let done = tokio::task::spawn_blocking(move || {
            once.get_or_init(|| work(&session).map_err(|error| format!("{error:#}"))).clone()
        });
        done.await?.map_err(|error| anyhow::anyhow!("{what}: {error}"))
    }
}

/// The Istio of a cluster of the test bed, installed when the first test asks for it.
async fn istio(session: &Session) -> Result<()> {
    static DONE: Once = Once::new();
    DONE.per_cluster(session.clone(), "install Istio", |session| {
        // A cluster joined through TESTBED_CLUSTER may have one.
        let probe = session.kubectl(["-n", "istio-system", "get", "deployment", "istiod"]);
        if output(probe, None).is_ok() { Ok(()) } else { crate::istio::install(session, &[]) }
    })
    .await
}

/// The istio-integrator of a cluster of the test bed, deployed from `deploy/integrator` when the first test asks for it, with
/// Istio. It waits seconds where it would wait a minute: between writes of a guard chain, and for connections to drain.
pub(crate) async fn integrator(session: &Session) -> Result<()> {
    static DONE: Once = Once::new();
    istio(session).await?;
    DONE.per_cluster(session.clone(), "deploy istio-integrator", |session| {
        let haste = [("ISTIO_INTEGRATOR_CHAIN_INTERVAL", "2s"), ("ISTIO_INTEGRATOR_DRAIN_TIME", "2s")];
        crate::operators::deploy_integrator(session)?;
        crate::operators::set_integrator_env(session, &haste)
    })
    .await
}

impl Ctx {
    /// The Istio of this cluster, installed when the first test asks for it.
    pub async fn istio(&self) -> Result<()> {
        istio(&self.session).await
    }

    /// As [`Ctx::own_cluster`], with a namespace in that cluster; when the work fails, what is there is printed.
    pub async fn own<T, F, Fut>(&self, options: Options, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(Self) -> Fut + Send + 'static,
        Fut: Future<Output = Result<T>>,
    {
        let test = self.namespace.clone();
        self.own_cluster(options, |session| async move {
            let client = session.client().await?;
            let cluster = Site::on_bed(session.clone(), client, String::new());
            let ctx = Self { session, site: new_site(&cluster, "own").await? };
            let result = work(ctx.clone()).await;
            if result.is_err() {
                eprintln!("{}", diagnostics(&ctx.site, &test));
            }
            result
        })
        .await
    }

    /// Starts a cluster of the test's own, to be broken at will, and runs `work` inside its network.
    ///
    /// It ends with this call.
    pub async fn own_cluster<T, F, Fut>(&self, options: Options, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(Session) -> Fut + Send + 'static,
        Fut: Future<Output = Result<T>>,
    {
        tokio::task::spawn_blocking(move || Cluster::start(&options)?.within(work)).await?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_and_a_filter_both_select() {
        assert!(in_part(None, "e2e::pods::restarts"));
        assert!(in_part(Some("pods"), "e2e::pods_volumes::secrets"));
        assert!(in_part(Some("existing::"), "e2e::existing::portable"));
        assert!(!in_part(Some("existing::"), "e2e::existing_last::removed"));
        assert!(!in_part(Some("istio"), "e2e::integrator::waits_for_istio"));
        let args = Arguments { filter: Some("restarts".into()), ..Arguments::default() };
        assert!(selects(&args, "e2e::pods::restarts") && !selects(&args, "e2e::pods::env"));
    }
}
