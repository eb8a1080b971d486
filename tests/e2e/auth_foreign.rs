//! Routes of others on the same gateway: they are left alone, they open nothing of ours, and where they win it is told.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use testbed::harness::{Ctx, Test};
use testbed::test;

use crate::auth_watchman::Watchman;
use crate::auth_world::{LOGIN, World, protected, reached_web};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        test!(a_foreign_host_pays_nothing_and_gets_nothing).limit_seconds(240),
        test!(a_younger_foreign_route_of_the_same_host_opens_nothing).limit_seconds(240),
        test!(a_foreign_route_that_comes_first_is_told).limit_seconds(240),
        test!(borrowed_names_open_nothing).limit_seconds(240),
    ]
}

/// A `VirtualService` of a tenant on the test's gateway; `http` is YAML of the list, indented by two spaces.
fn theirs(name: &str, host: &str, http: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: {name}}}
spec:
  hosts: [{host}]
  gateways: [edge]
  http:
{http}"
    )
}

fn to(world: &World, service: &str) -> String {
    format!(
        "route: [{{destination: {{host: {service}.{}.svc.cluster.local, port: {{number: 80}}}}}}]",
        world.namespace
    )
}

impl World {
    fn on(&self, host: &str) -> Self {
        Self { host: host.to_owned(), namespace: self.namespace.clone(), address: self.address }
    }

    /// The id of the provider in the routes, and the path of the marker.
    async fn names(&self, t: &Ctx) -> Result<(String, String)> {
        let get = ["-n", "istio-integrator", "get", "virtualservices", "-o", "json"];
        let all: serde_json::Value = serde_json::from_str(&t.kubectl(&get).await?)?;
        let mut of_host = all["items"].as_array().into_iter().flatten();
        let ours = of_host.find(|object| object["spec"]["hosts"][0] == self.host.as_str());
        let http =
            ours.context("the VirtualService")?["spec"]["http"].as_array().cloned().unwrap_or_default();
        let id = http.iter().find_map(|route| {
            let id = route["name"].as_str()?.strip_prefix("ii.auth-")?.split('.').next()?;
            (id != "probe").then(|| id.to_owned())
        });
        let marker = http.first().and_then(|route| route["match"][0]["uri"]["exact"].as_str());
        Ok((id.context("a protected route")?, marker.context("a marker")?.to_owned()))
    }
}

async fn a_foreign_host_pays_nothing_and_gets_nothing(t: Ctx) -> Result<()> {
    let world = protected(&t).await?;
    let foreign = world.on(&format!("foreign.{}.example.org", world.namespace));
    t.apply(&theirs("foreign", &foreign.host, &format!("  - {}\n", to(&world, "web")))).await?;
    foreign.answers("/", "", 200).await?;
    // Headers of the same names are its own affair.
    let reply = foreign.get("/", "x-user: own\r\nx_user: own\r\nx-ii-guard: own\r\n").await?;
    ensure!(reply.status == 200 && reply.body.contains("\"x-user\":\"own\""), "{reply:?}");
    // What begins with the byte 0x01 comes from no client, whatever the host.
    for value in ["\u{1}", "\u{1}?~", "\u{1}#"] {
        let forged = foreign.get("/", &format!("x-ii-guard: {value}\r\n")).await;
        ensure!(forged.as_ref().map_or(true, |reply| reply.status == 400), "{value:?}: {forged:?}");
    }
    // The chain goes, and nobody else notices.
    let chain = world.chain(&t).await?;
    t.kubectl(&["-n", "istio-system", "delete", "envoyfilter", &chain]).await?;
    for _ in 0..50 {
        let status = foreign.get("/", "").await?.status;
        ensure!(status == 200, "a foreign host answers {status}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    world.answers("/", LOGIN, 200).await?;
    world.has(&t, "AuthInForce", "True InForce").await?;
    world.cleaned(&t).await
}

async fn a_younger_foreign_route_of_the_same_host_opens_nothing(t: Ctx) -> Result<()> {
    let world = protected(&t).await?;
    let watchman = Watchman::start(&world);
    // Ages have whole seconds.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    // Younger, so that ours come first; without a path, with the same paths, with more specific ones.
    let http = format!(
        "  - match: [{{uri: {{exact: /secret}}}}]\n    {route}\n  - match: [{{uri: {{prefix: /}}}}]\n    {route}\n  - {route}\n",
        route = to(&world, "web")
    );
    t.apply(&theirs("younger", &world.host, &http)).await?;
    for _ in 0..100 {
        for path in ["/", "/secret", "/secret/", "/deep/er"] {
            let reply = world.get(path, "").await?;
            ensure!(!reached_web(&reply), "{path} is open: {reply:?}");
        }
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    let reply = world.answers("/", LOGIN, 200).await?;
    ensure!(reply.body.contains("\"x-user\":\"tester\""), "{reply:?}");
    watchman.end().await?;
    t.kubectl(&["delete", "virtualservice", "younger"]).await?;
    world.cleaned(&t).await
}

async fn a_foreign_route_that_comes_first_is_told(t: Ctx) -> Result<()> {
    let world = protected(&t).await?;
    // One that only its own namespace sees, where the gateway's pods run, comes before ours however young it is: istiod puts
    // those of a namespace's own first, then those exported to it by name, then those for everybody
    // (`PushContext.VirtualServicesForGateway`).
    let http = format!("  - match: [{{uri: {{prefix: /theirs}}}}]\n    {}\n", to(&world, "open"));
    tokio::time::sleep(Duration::from_millis(1100)).await;
    t.apply(&theirs("private", &world.host, &http).replace("  http:\n", "  exportTo: [\".\"]\n  http:\n"))
        .await?;
    world.answers("/theirs/x", "", 200).await?;
    world.has(&t, "AuthInForce", "False ForeignRoute").await?;
    world.has(&t, "Ready", "False ForeignRoute").await?;
    let message = "{.status.conditions[?(@.type==\"AuthInForce\")].message}";
    let message = t.field("ingressrequest/app", message).await?;
    ensure!(message.contains(&format!("{}/private", world.namespace)), "{message}");
    // Beside theirs, ours are closed all the same.
    world.answers("/", "", 401).await?;
    world.answers("/", LOGIN, 200).await?;
    t.kubectl(&["delete", "virtualservice", "private"]).await?;
    world.ready(&t).await?;
    ensure!(world.get("/theirs/x", "").await?.status == 401);
    world.cleaned(&t).await
}

async fn borrowed_names_open_nothing(t: Ctx) -> Result<()> {
    let world = protected(&t).await?;
    let (id, marker) = world.names(&t).await?;
    let foreign = world.on(&format!("foreign.{}.example.org", world.namespace));
    let (web, open) = (to(&world, "web"), to(&world, "open"));
    let http = format!(
        "  - name: ii.auth-{id}.0123456789abcdef0123\n    match: [{{uri: {{prefix: /borrowed}}}}]\n    {web}
  - name: ii.auth-probe.0123456789abcdef0123\n    match: [{{uri: {{prefix: /probe}}}}]\n    {web}
  - name: ii.auth-{}.0123456789abcdef0123\n    match: [{{uri: {{prefix: /unknown}}}}]\n    {web}
  - name: ii.open.0123456789abcdef0123\n    match: [{{uri: {{prefix: /open}}}}]\n    {open}
  - name: ii.open.marker\n    match: [{{uri: {{exact: {marker}}}}}]\n    {open}
",
        "f".repeat(32)
    );
    t.apply(&theirs("borrower", &foreign.host, &http)).await?;
    foreign.answers("/open", "", 200).await?;
    // Whoever borrows the name of a protected route gets its check, and with a login a token that no application is sent.
    foreign.answers("/borrowed", "", 401).await?;
    ensure!(foreign.get("/borrowed", LOGIN).await?.status == 503);
    for path in ["/borrowed", "/probe", "/unknown", "/open"] {
        let reply = foreign.get(path, LOGIN).await?;
        let shown = format!("{:?} {}", reply.headers, reply.body).to_lowercase();
        let digits = shown.split(|c: char| !c.is_ascii_hexdigit()).any(|word| word.len() == 32);
        ensure!(path == "/probe" || !digits, "{path} shows what could be the token: {reply:?}");
    }
    let reply = foreign.get("/probe", "").await?;
    ensure!(!reached_web(&reply), "a borrowed marker reached the application: {reply:?}");
    // Ours are as they were, and a marker on another host is no proof of ours.
    for _ in 0..20 {
        ensure!(world.get("/", "").await?.status == 401);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    world.answers("/", LOGIN, 200).await?;
    world.has(&t, "Programmed", "True Programmed").await?;
    world.has(&t, "Ready", "True Ready").await?;
    // The same names on the host itself, younger than ours.
    let http = http.replace("/borrowed", "/").replace("/unknown", "/secret");
    t.apply(&theirs("borrower", &world.host, &http)).await?;
    for _ in 0..60 {
        for path in ["/", "/secret", "/borrowed"] {
            let reply = world.get(path, "").await?;
            ensure!(!reached_web(&reply), "{path} is open: {reply:?}");
        }
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    t.kubectl(&["delete", "virtualservice", "borrower"]).await?;
    world.answers("/", LOGIN, 200).await?;
    world.cleaned(&t).await
}
