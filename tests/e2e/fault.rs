//! The fault proxy: each fault happens as it is asked for, to a real client of a real API server.

use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use futures::{AsyncReadExt as _, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::watcher;
use kube::{Client, ResourceExt as _};
use testbed::fault::{
    Cut, Expiry, Failure, Fault, FaultProxy, Limit, Match, Rule, Stage, Verb, Victim, When,
};
use testbed::harness::{Ctx, Test, eventually};

use crate::account;

/// The tests of this file.
pub(crate) fn tests() -> Vec<Test> {
    vec![
        testbed::test!(delays),
        testbed::test!(answers_in_the_servers_place),
        testbed::test!(loses_the_answer_of_a_write),
        testbed::test!(cuts_open_watches),
        testbed::test!(ends_watches_after_events_bytes_and_time),
        testbed::test!(streams_without_holding_events_back),
        testbed::test!(expires_resource_versions),
        testbed::test!(expires_list_pages),
        testbed::test!(kills_the_clients_process),
        testbed::test!(ends_a_client_in_process),
        testbed::test!(hits_some_clients_only),
    ]
}

/// A proxy, and ConfigMaps of the test's namespace through it and past it.
struct Bed {
    proxy: FaultProxy,
    token: String,
    through: Api<ConfigMap>,
    past: Api<ConfigMap>,
}

impl Bed {
    async fn new(ctx: &Ctx) -> Result<Self> {
        let file = Kubeconfig::read_from(ctx.session.kubeconfig())?;
        let upstream = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        let proxy = FaultProxy::start(&upstream).await?;
        let token = account::token(ctx, "editor").await?;
        let past = Api::namespaced(ctx.client.clone(), &ctx.namespace);
        let mut bed = Self { through: past.clone(), proxy, token, past };
        bed.through = bed.client(ctx, |_| {})?;
        Ok(bed)
    }

    /// A client through the proxy that does not retry by itself, so that tests see each answer.
    fn client(&self, ctx: &Ctx, change: impl FnOnce(&mut kube::Config)) -> Result<Api<ConfigMap>> {
        let mut config = self.proxy.config(&self.token)?;
        config.default_retry = false;
        change(&mut config);
        Ok(Api::namespaced(Client::try_from(config)?, &ctx.namespace))
    }

    async fn exists(&self, name: &str) -> Result<bool> {
        Ok(self.past.get_opt(name).await?.is_some())
    }
}

fn config_map(name: &str) -> ConfigMap {
    let mut object = ConfigMap::default();
    object.metadata.name = Some(name.to_owned());
    object
}

async fn create(api: &Api<ConfigMap>, name: &str) -> kube::Result<ConfigMap> {
    api.create(&PostParams::default(), &config_map(name)).await
}

async fn touch(api: &Api<ConfigMap>, name: &str, value: &str) -> kube::Result<ConfigMap> {
    let patch = Patch::Merge(serde_json::json!({"data": {"key": value}}));
    api.patch(name, &PatchParams::default(), &patch).await
}

fn code<T: std::fmt::Debug>(result: kube::Result<T>) -> Result<u16> {
    match result {
        Err(kube::Error::Api(status)) => Ok(status.code),
        other => bail!("not an answer with a Status: {other:?}"),
    }
}

async fn delays(ctx: Ctx) -> Result<()> {
    let bed = Bed::new(&ctx).await?;
    create(&bed.through, "a").await?;
    let slow = Fault::Delay(Duration::from_millis(300));
    let rule = bed.proxy.faults().add(Rule::new(Match::any().verbs([Verb::Get]), slow));
    let start = Instant::now();
    bed.through.get("a").await?;
    ensure!(start.elapsed() >= Duration::from_millis(300), "answered after {:?}", start.elapsed());
    ensure!(bed.proxy.faults().hits(rule) == 1);
    bed.proxy.faults().remove(rule);
    let start = Instant::now();
    bed.through.get("a").await?;
    ensure!(start.elapsed() < Duration::from_millis(300), "still slow: {:?}", start.elapsed());
    Ok(())
}

async fn answers_in_the_servers_place(ctx: Ctx) -> Result<()> {
    let bed = Bed::new(&ctx).await?;
    let faults = bed.proxy.faults();
    let cases = [
        (Failure::Conflict, 409),
        (Failure::AlreadyExists, 409),
        (Failure::TooManyRequests { retry_after: 1 }, 429),
        (Failure::InternalError, 500),
        (Failure::ServiceUnavailable, 503),
    ];
    for (failure, wanted) in cases {
        let rule = faults.add(Rule::new(Match::writes().name("a"), Fault::Answer(failure, Stage::Before)));
        ensure!(code(create(&bed.through, "a").await)? == wanted, "{failure:?}");
        ensure!(!bed.exists("a").await?, "{failure:?} was to come before the write");
        faults.remove(rule);
    }
    ensure!(faults.count(Verb::Create, "configmaps") == 5 && faults.writes() == 5, "{:?}", faults.requests());

    // A client that retries waits as long as the answer says, and succeeds.
    let busy = Fault::Answer(Failure::TooManyRequests { retry_after: 1 }, Stage::Before);
    faults.add(Rule::new(Match::writes(), busy).when(When::Nth(1)));
    let retrying = bed.client(&ctx, |config| config.default_retry = true)?;
    create(&retrying, "a").await?;
    ensure!(faults.count(Verb::Create, "configmaps") == 7 && bed.exists("a").await?);
    Ok(())
}

async fn loses_the_answer_of_a_write(ctx: Ctx) -> Result<()> {
    let bed = Bed::new(&ctx).await?;
    let faults = bed.proxy.faults();
    faults.add(Rule::new(Match::any().name("a"), Fault::Answer(Failure::InternalError, Stage::After)));
    ensure!(code(create(&bed.through, "a").await)? == 500);
    ensure!(bed.exists("a").await?, "the write happened");

    faults.add(Rule::new(Match::any().name("b"), Fault::HangUp(Stage::After)));
    let lost = create(&bed.through, "b").await;
    ensure!(matches!(lost, Err(ref error) if !matches!(error, kube::Error::Api(_))), "{lost:?}");
    ensure!(bed.exists("b").await?, "the write happened");

    faults.add(Rule::new(Match::any().name("c"), Fault::HangUp(Stage::Before)));
    let lost = create(&bed.through, "c").await;
    ensure!(matches!(lost, Err(ref error) if !matches!(error, kube::Error::Api(_))), "{lost:?}");
    ensure!(!bed.exists("c").await?, "the request never reached the server");
    create(&bed.through, "d").await.context("other requests pass")?;
    Ok(())
}

/// Opens a watch of all ConfigMaps from this version, or from now.
async fn watch(
    api: &Api<ConfigMap>,
    version: &str,
) -> Result<futures::stream::BoxStream<'static, kube::Result<WatchEvent<ConfigMap>>>> {
    Ok(api.watch(&WatchParams::default().timeout(60), version).await?.boxed())
}

async fn present_version(api: &Api<ConfigMap>) -> Result<String> {
    api.list(&ListParams::default()).await?.metadata.resource_version.context("a list has a version")
}

async fn cuts_open_watches(ctx: Ctx) -> Result<()> {
    let bed = Bed::new(&ctx).await?;
    let faults = bed.proxy.faults();
    let version = present_version(&bed.through).await?;
    for cut in [Cut::Close, Cut::Abort, Cut::Expire] {
        // The stream itself, since a watch of `kube` takes a broken connection for an end.
        let path =
            format!("/api/v1/namespaces/{}/configmaps?watch=true&resourceVersion={version}", ctx.namespace);
        let request = http::Request::get(path).body(Vec::new())?;
        let mut stream = std::pin::pin!(bed.through.clone().into_client().request_stream(request).await?);
        ensure!(faults.open_watches(&Match::watches().resource("configmaps")) == 1);
        ensure!(faults.cut_watches(&Match::any().resource("secrets"), cut) == 0);
        ensure!(faults.cut_watches(&Match::any().resource("configmaps"), cut) == 1);
        let mut text = String::new();
        let end = stream.read_to_string(&mut text).await;
        ensure!(end.is_err() == (cut == Cut::Abort), "{cut:?}: {end:?}");
        let error = text
            .lines()
            .last()
            .is_some_and(|line| line.contains(r#""type":"ERROR""#) && line.contains("410"));
        ensure!(error == (cut == Cut::Expire), "{cut:?}: {text}");
        ensure!(faults.open_watches(&Match::any()) == 0);
    }
    // A client that goes away closes its watch here too.
    let events = watch(&bed.through, &version).await?;
    ensure!(faults.open_watches(&Match::any()) == 1);
    drop(events);
    eventually("the watch to close", 10, || async {
        ensure!(faults.open_watches(&Match::any()) == 0);
        Ok(())
    })
    .await
}

async fn ends_watches_after_events_bytes_and_time(ctx: Ctx) -> Result<()> {
    let bed = Bed::new(&ctx).await?;
    let faults = bed.proxy.faults();
    let version = present_version(&bed.through).await?;
    for name in ["a", "b", "c"] {
        create(&bed.through, name).await?;
    }
    let end = |limit, cut| {
        faults.clear();
        faults.add(Rule::new(Match::any(), Fault::EndWatch(limit, cut)));
    };
    end(Limit::Events(2), Cut::Close);
    let events: Vec<_> = watch(&bed.through, &version).await?.try_collect().await?;
    ensure!(events.len() == 2, "{events:?}");

    end(Limit::Events(1), Cut::Expire);
    let events: Vec<_> = watch(&bed.through, &version).await?.try_collect().await?;
    ensure!(
        matches!(events.as_slice(), [WatchEvent::Added(_), WatchEvent::Error(status)] if status.code == 410)
    );

    // In the middle of the first event: what is left of it is no event.
    end(Limit::Bytes(50), Cut::Close);
    let events: Vec<_> = watch(&bed.through, &version).await?.collect().await;
    ensure!(!events.iter().any(Result::is_ok), "{events:?}");

    end(Limit::Time(Duration::from_millis(300)), Cut::Abort);
    let start = Instant::now();
    let events: Vec<_> = watch(&bed.through, &version).await?.collect().await;
    ensure!(events.len() >= 3, "{events:?}");
    let range = Duration::from_millis(300)..Duration::from_secs(30);
    ensure!(range.contains(&start.elapsed()), "{:?}", start.elapsed());
    Ok(())
}

async fn streams_without_holding_events_back(ctx: Ctx) -> Result<()> {
    let bed = Bed::new(&ctx).await?;
    let mut events = watch(&bed.through, &present_version(&bed.past).await?).await?;
    for name in ["a", "b", "c"] {
        create(&bed.past, name).await?;
        let seen = async {
            while let Some(event) = events.try_next().await? {
                if matches!(&event, WatchEvent::Added(object) if object.name_any() == name) {
                    return Ok(());
                }
            }
            bail!("the stream ended")
        };
        tokio::time::timeout(Duration::from_secs(5), seen)
            .await
            .with_context(|| format!("no event for {name}"))??;
    }
    Ok(())
}

async fn expires_resource_versions(ctx: Ctx) -> Result<()> {
    let bed = Bed::new(&ctx).await?;
    let faults = bed.proxy.faults();
    let old = present_version(&bed.through).await?;
    let now =
        create(&bed.through, "a").await?.resource_version().context("a created object has a version")?;
    let horizon = now.parse()?;

    faults.expire_before(horizon, Expiry::Status);
    let refused = watch(&bed.through, &old).await;
    let refused = refused.err().and_then(|error| error.downcast::<kube::Error>().ok());
    ensure!(matches!(&refused, Some(kube::Error::Api(status)) if status.code == 410), "{refused:?}");
    faults.expire_before(horizon, Expiry::Event);
    let events: Vec<_> = watch(&bed.through, &old).await?.try_collect().await?;
    ensure!(matches!(events.as_slice(), [WatchEvent::Error(status)] if status.code == 410), "{events:?}");
    drop(watch(&bed.through, &now).await.context("the present version is good")?);

    // A watcher recovers by listing anew.
    let lists = faults.count(Verb::List, "configmaps");
    let mut seen = follow(bed.through.clone());
    seen.named("a").await?;
    eventually("the watch to be open", 10, || async {
        ensure!(faults.open_watches(&Match::any()) == 1);
        Ok(())
    })
    .await?;
    // Held off until the version that it knows is old.
    let held_off = faults.add(Rule::new(Match::watches(), Fault::HangUp(Stage::Before)));
    ensure!(faults.cut_watches(&Match::any(), Cut::Abort) == 1);
    tokio::time::timeout(Duration::from_secs(30), faults.hit(held_off, 1)).await.context("no new watch")?;
    let version = create(&bed.past, "late").await?.resource_version().context("version")?;
    faults.expire_before(version.parse()?, Expiry::Event);
    faults.remove(held_off);
    seen.named("late").await?;
    ensure!(faults.count(Verb::List, "configmaps") == lists + 2, "{:?}", faults.requests());
    Ok(())
}

/// What a watcher that runs by itself, as a controller's does, tells.
struct Followed {
    names: tokio::sync::mpsc::UnboundedReceiver<String>,
    task: tokio::task::JoinHandle<()>,
}

/// Starts a watcher, with a pause after each error.
fn follow(api: Api<ConfigMap>) -> Followed {
    let (sender, names) = tokio::sync::mpsc::unbounded_channel();
    let task = tokio::spawn(async move {
        let mut events = watcher(api, watcher::Config::default()).boxed();
        while let Some(event) = events.next().await {
            match event {
                Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) => {
                    let _ = sender.send(object.name_any());
                }
                Ok(_) => {}
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    });
    Followed { names, task }
}

impl Followed {
    /// Waits until it has told of this object.
    async fn named(&mut self, name: &str) -> Result<()> {
        let named = async {
            while let Some(seen) = self.names.recv().await {
                if seen == name {
                    return Ok(());
                }
            }
            bail!("the watcher ended")
        };
        tokio::time::timeout(Duration::from_secs(30), named)
            .await
            .with_context(|| format!("no word of {name}"))?
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn expires_list_pages(ctx: Ctx) -> Result<()> {
    let bed = Bed::new(&ctx).await?;
    for name in ["a", "b", "c"] {
        create(&bed.through, name).await?;
    }
    let page = ListParams::default().limit(1);
    let first = bed.through.list(&page).await?;
    let token = first.metadata.continue_.context("there are more pages")?;
    let next = page.clone().continue_token(&token);
    bed.through.list(&next).await.context("the next page, before anything expires")?;
    let version = create(&bed.through, "d").await?.resource_version().context("version")?;
    bed.proxy.faults().expire_before(version.parse()?, Expiry::Event);
    ensure!(code(bed.through.list(&next).await)? == 410);
    let fresh = bed.through.list(&page).await?.metadata.continue_.context("there are more pages")?;
    bed.through.list(&page.continue_token(&fresh)).await.context("a page of a list begun later")?;
    Ok(())
}

async fn kills_the_clients_process(ctx: Ctx) -> Result<()> {
    let bed = Bed::new(&ctx).await?;
    let faults = bed.proxy.faults();
    let folder = tempfile::tempdir()?;
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, bed.proxy.kubeconfig(&bed.token))?;
    for (stage, written) in [(Stage::Before, false), (Stage::After, true)] {
        faults.clear();
        let name = format!("killed-{written}");
        let held = faults.add(Rule::new(Match::any(), Fault::Delay(Duration::from_millis(500))));
        // The rule needs the id of the process, which is slowed down until it has one.
        let mut command = ctx.session.kubectl(["-n", &ctx.namespace, "create", "configmap", &name]);
        command.env("KUBECONFIG", &kubeconfig).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn().context("kubectl")?;
        let victim = Victim::Process(i32::try_from(child.id())?);
        faults.add(Rule::new(Match::writes(), Fault::Kill(victim, stage)).when(When::Nth(1)));
        let output = tokio::task::spawn_blocking(move || child.wait_with_output()).await??;
        ensure!(
            output.status.signal() == Some(9),
            "{stage:?}: {} {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        ensure!(faults.hits(held) >= 1, "{stage:?}: {:?}", faults.requests());
        ensure!(bed.exists(&name).await? == written, "{stage:?}");
    }
    Ok(())
}

async fn ends_a_client_in_process(ctx: Ctx) -> Result<()> {
    let bed = Bed::new(&ctx).await?;
    let faults = bed.proxy.faults();
    let calls = Arc::new(AtomicU64::new(0));
    let victim = Victim::Call(Arc::new({
        let calls = Arc::clone(&calls);
        move |request| {
            assert_eq!(request.name, "c");
            calls.fetch_add(1, Ordering::Relaxed);
        }
    }));
    // Dead from its third write on, reads included.
    faults.add(Rule::new(Match::writes(), Fault::Kill(victim, Stage::After)).when(When::Nth(3)));
    let mut written = 0;
    for name in ["a", "b", "c"] {
        written += u64::from(create(&bed.through, name).await.is_ok());
    }
    ensure!((written, calls.load(Ordering::Relaxed), faults.writes()) == (2, 1, 3));
    ensure!(bed.exists("c").await?, "killed after the write");
    bed.through.delete("a", &DeleteParams::default()).await.context("the fourth write")?;
    Ok(())
}

async fn hits_some_clients_only(ctx: Ctx) -> Result<()> {
    let bed = Bed::new(&ctx).await?;
    let faults = bed.proxy.faults();
    create(&bed.through, "a").await?;
    let odd = bed.client(&ctx, |config| {
        let name = http::HeaderValue::from_static("odd-one/1");
        config.headers.push((http::header::USER_AGENT, name));
    })?;
    faults
        .add(Rule::new(Match::any().user_agent("odd-one"), Fault::Answer(Failure::Conflict, Stage::Before)));
    touch(&bed.through, "a", "1").await?;
    ensure!(code(touch(&odd, "a", "2").await)? == 409);

    faults.clear();
    let every = Fault::Answer(Failure::Conflict, Stage::Before);
    faults.add(Rule::new(Match::writes().resource("configmaps"), every).when(When::Every(3)));
    let mut outcome = Vec::new();
    for value in 0..6 {
        outcome.push(touch(&bed.through, "a", &value.to_string()).await.is_ok());
    }
    ensure!(outcome == [true, true, false, true, true, false], "{outcome:?}");
    Ok(())
}
