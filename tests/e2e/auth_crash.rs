//! istio-integrator killed after any of its writes, and with an API server that refuses at least every fifth call: it ends where an
//! undisturbed one does, and whoever asks without a login is never let in meanwhile.

mod operator;

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use testbed::fault::{Failure, Fault, Match, Rule, Stage, Victim, When};
use testbed::harness::{Ctx, Test, eventually};
use testbed::{Options, test};

use crate::auth_watchman::Watchman;
use crate::auth_world::{LOGIN, PROVIDER, World, prepared_on, provider, routes_of};
use operator::Operator;

pub(crate) fn tests() -> Vec<Test> {
    // Every write takes some minutes, and belongs to `--thorough crashes`.
    let seconds = if every_write() { 3600 } else { 420 };
    vec![test!(killed_after_a_write_or_refused_it_opens_nothing).limit_seconds(seconds)]
}

/// Whether the operator is killed after each of its writes, not after every tenth.
fn every_write() -> bool {
    std::env::var_os("E2E_EVERY_WRITE").is_some()
}

const OWN: &str = "istio-integrator";

/// A protected and an open request, each of a host of its own.
fn requests(ns: &str) -> String {
    let request = |name: &str, auth: &str| {
        format!(
            "apiVersion: integrator.istio-operators.io/v1alpha1
kind: IngressRequest
metadata: {{name: {name}}}
spec:
  bindingRef: {{name: {ns}}}
  hosts: [{name}.{ns}.example.org]
  auth: {auth}
  routes: [{{backends: [{{service: web, port: 80}}]}}]
"
        )
    };
    format!("{}---\n{}", request("app", PROVIDER), request("free", "{type: None}"))
}

async fn killed_after_a_write_or_refused_it_opens_nothing(t: Ctx) -> Result<()> {
    t.own(Options { progress: false, ..Options::default() }, |t| async move {
        let world = site(&t).await?;
        let mut operator = Operator::new(&t).await?;
        let watchman = Watchman::start(&world);
        let (reference, writes) = undisturbed(&t, &world, &mut operator).await?;
        println!("undisturbed: {writes} writes");
        ensure!(writes >= 10, "only {writes} writes");
        let step = if every_write() { 1 } else { 10 };
        for n in (1..=writes).filter(|n| n % step == 1 % step) {
            let kill = |pid| {
                Rule::new(Match::writes(), Fault::Kill(Victim::Process(pid), Stage::After)).when(When::Nth(n))
            };
            operator.start(Some(&kill))?;
            let ended = scenario(&t, &world).await;
            let what = format!("killed after write {n} of {writes}");
            ended.with_context(|| operator.tail(&what))?;
            let deaths = operator.deaths();
            // Retries make a run's number of writes differ by some, so that the last few may not be reached.
            ensure!(deaths == 1 || (deaths == 0 && n + 5 > writes), "{what}: it died {deaths} times");
            converged(&t, &reference, &operator, &what).await?;
            reset(&t, &world, &mut operator).await?;
        }
        let failures = [
            (Failure::Conflict, Match::writes()),
            (Failure::TooManyRequests { retry_after: 1 }, Match::any()),
            (Failure::InternalError, Match::any()),
        ];
        for (seed, (failure, calls)) in (1..).zip(failures) {
            let chance = When::Chance { probability: 0.2, seed };
            operator.faults().add(Rule::new(calls, Fault::Answer(failure, Stage::Before)).when(chance));
        }
        operator.start(None)?;
        // Calls that are no writes meet two of these rules, writes all three, so that about half of them are refused.
        let what = "with many calls refused";
        scenario(&t, &world).await.with_context(|| operator.tail(what))?;
        operator.faults().clear();
        converged(&t, &reference, &operator, what).await?;
        operator.stop();
        watchman.end_after(500).await
    })
    .await
}

/// A gateway with an application and an auth service, and everything of `deploy/integrator` but its running pods: the
/// operator runs as a process of the test, with the rights of its ServiceAccount.
async fn site(t: &Ctx) -> Result<World> {
    let session = t.session.clone();
    tokio::task::spawn_blocking(move || {
        testbed::istio::install(&session, &["profile=minimal"])?;
        testbed::operators::deploy_integrator(&session)
    })
    .await??;
    t.kubectl(&["-n", OWN, "scale", "deployment/istio-integrator", "--replicas=0"]).await?;
    t.kubectl(&["-n", OWN, "wait", "--for=delete", "pods", "--all", "--timeout=60s"]).await?;
    prepared_on(t).await
}

/// The end state that all others must come to, and how many writes it takes.
async fn undisturbed(t: &Ctx, world: &World, operator: &mut Operator) -> Result<(String, u64)> {
    operator.start(None)?;
    let before = operator.faults().writes();
    scenario(t, world).await.with_context(|| operator.tail("undisturbed"))?;
    let (state, writes) = eventually("an undisturbed operator to come to rest", 60, || async {
        let now = (end_state(t).await?, operator.faults().writes());
        tokio::time::sleep(Duration::from_secs(3)).await;
        ensure!(now == (end_state(t).await?, operator.faults().writes()), "it still writes");
        Ok(now)
    })
    .await?;
    reset(t, world, operator).await?;
    Ok((state, writes - before))
}

/// What happens: two requests come, their provider changes, one goes, the guard chain is deleted by hand.
async fn scenario(t: &Ctx, world: &World) -> Result<()> {
    t.apply(&requests(&world.namespace)).await?;
    ready(t, "app").await?;
    ready(t, "free").await?;
    let before = world.demanded(t).await?;
    t.apply(&provider("    timeout: 3s\n")).await?;
    eventually("the routes to move to the changed provider", 60, || async {
        ensure!(world.demanded(t).await? != before, "they are where they were");
        Ok(())
    })
    .await?;
    t.kubectl(&["delete", "ingressrequest", "free"]).await?;
    let free = format!("free.{}.example.org", world.namespace);
    eventually("the open route to go", 60, || async {
        ensure!(routes_of(t, &free).await?.is_none(), "it is still there");
        Ok(())
    })
    .await?;
    let chain = world.chain(t).await?;
    t.kubectl(&["-n", "istio-system", "delete", "envoyfilter", &chain]).await?;
    world.answers("/", LOGIN, 200).await?;
    eventually("the chain to be made anew", 60, || world.chain(t)).await?;
    ready(t, "app").await
}

/// Waits until all is as an undisturbed operator leaves it.
async fn converged(t: &Ctx, reference: &str, operator: &Operator, what: &str) -> Result<()> {
    eventually(&format!("the end state ({what})"), 60, || async {
        let now = end_state(t).await?;
        ensure!(now == reference, "{now}\ninstead of\n{reference}");
        Ok(())
    })
    .await
    .with_context(|| operator.tail(what))
}

/// What is in the cluster at the end, without what names a moment.
async fn end_state(t: &Ctx) -> Result<String> {
    let list = async |args: &[&str]| -> Result<Vec<Value>> {
        let text = t.kubectl(&[args, &["-o", "json"]].concat()).await?;
        let mut value: Value = serde_json::from_str(&text)?;
        Ok(value["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
    };
    let routes = list(&["-n", OWN, "get", "virtualservices"]).await?;
    let chains = list(&["-n", "istio-system", "get", "envoyfilters"]).await?;
    let requests = list(&["get", "ingressrequests,authproviders"]).await?;
    let objects = routes.into_iter().chain(chains).map(|object| {
        let meta = &object["metadata"];
        json!([object["kind"], meta["name"], meta["labels"], meta["annotations"], object["spec"]])
    });
    let verdicts = requests.iter().map(|object| {
        let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        let conditions: Vec<Value> =
            conditions.map(|one| json!([one["type"], one["status"], one["reason"]])).collect();
        json!([object["kind"], object["metadata"]["name"], conditions])
    });
    Ok(objects.chain(verdicts.collect::<Vec<_>>()).map(|line| line.to_string() + "\n").collect())
}

/// Back to where the scenario begins, with nobody there.
async fn reset(t: &Ctx, world: &World, operator: &mut Operator) -> Result<()> {
    t.kubectl(&["delete", "ingressrequests", "--all"]).await?;
    let app = world.host.clone();
    eventually("the protected route to go", 60, || async {
        ensure!(routes_of(t, &app).await?.is_none(), "it is still there");
        Ok(())
    })
    .await?;
    operator.stop();
    operator.faults().clear();
    t.kubectl(&["-n", "istio-system", "delete", "envoyfilters", "--all"]).await?;
    t.apply(&provider("    timeout: 2s\n")).await?;
    Ok(())
}

async fn ready(t: &Ctx, request: &str) -> Result<()> {
    let name = format!("ingressrequest/{request}");
    if t.kubectl(&["wait", "--for=condition=Ready", &name, "--timeout=90s"]).await.is_err() {
        bail!("{request} is not ready: {}", t.field(&name, "{.status}").await?);
    }
    Ok(())
}
