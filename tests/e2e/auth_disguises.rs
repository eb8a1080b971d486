//! Ways around a login, all of them tried through a real Envoy: none reaches what is protected.
//!
//! Some paths of one host ask for a login and others, up to `/`, do not, and both lead to the same application, so that a
//! path that gateway and application read differently would be a way in.

mod attempts;
mod reading;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use serde::Deserialize;
use testbed::curl;
use testbed::harness::{Ctx, Test, eventually};
use testbed::raw::{self, NoAnswer, frames};
use testbed::test;

use self::attempts::{Attempt, Known, Sent, attempts};
use self::reading::is_protected;
use crate::auth_world::{PROVIDER, World, auth_service, gateway};

pub(crate) fn tests() -> Vec<Test> {
    vec![test!(no_disguise_reaches_what_is_protected).limit_seconds(420)]
}

/// How many attempts at least must reach the application where no login is asked for: they are no mere nonsense.
const SERIOUS: usize = 200;

/// Where the servers tell what reached them.
const CONTROL: u16 = 9900;

/// A request that reached a server.
#[derive(Clone, Debug, Deserialize)]
struct Arrival {
    method: String,
    path: String,
    host: String,
    headers: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
struct Seen {
    count: usize,
    arrivals: Vec<Arrival>,
}

/// `web` is behind logins only; `app` has protected and open paths; `open` needs no login anywhere.
const SERVERS: [&str; 3] = ["web", "app", "open"];

fn server(name: &str) -> String {
    format!(
        "apiVersion: v1
kind: Service
metadata: {{name: {name}}}
spec:
  selector: {{app: {name}}}
  ports: [{{name: http, port: 80, targetPort: 8080}}]
---
apiVersion: v1
kind: Pod
metadata:
  name: {name}
  labels: {{app: {name}}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: testbed/test-server:1
    args: [witness, --port, \"8080\", --name, {name}, --control-port, \"{CONTROL}\"]
    readinessProbe:
      httpGet: {{path: /healthz, port: 8080}}
      periodSeconds: 1
"
    )
}

/// The request, with the login that its protected routes ask for.
fn request(ns: &str, auth: &str) -> String {
    let route = |kind: &str, path: &str, more: &str, service: &str| {
        format!(
            "  - path: {{type: {kind}, value: {path}}}\n    {more}\n    backends: [{{service: {service}, port: 80}}]\n"
        )
    };
    let (protected, open) = (format!("auth: {auth}"), "auth: {type: None}");
    let posts = format!("methods: [POST]\n    {protected}");
    let routes = [
        route("Exact", "/secret", &protected, "web"),
        route("PathPrefix", "/admin", &protected, "web"),
        route("PathPrefix", "/pub/private", &protected, "app"),
        route("Exact", "/pub/exact", &protected, "app"),
        route("PathPrefix", "/form", &posts, "app"),
        route("PathPrefix", "/form", &format!("methods: [GET]\n    {open}"), "open"),
        route("PathPrefix", "/pub", open, "app"),
        route("Exact", "/health", open, "open"),
        route("PathPrefix", "/", open, "app"),
    ];
    format!(
        "apiVersion: integrator.istio-operators.io/v1alpha1
kind: IngressRequest
metadata: {{name: app}}
spec:
  bindingRef: {{name: {ns}}}
  hosts: [app.{ns}.example.org]
  routes:
{}---
apiVersion: integrator.istio-operators.io/v1alpha1
kind: IngressRequest
metadata: {{name: other}}
spec:
  bindingRef: {{name: {ns}}}
  hosts: [other.{ns}.example.org]
  auth: {{type: None}}
  routes: [{{backends: [{{service: open, port: 80}}]}}]
",
        routes.concat()
    )
}

/// Open neighbours and the server that answers there.
const NEIGHBOURS: &[(&str, &str, &str)] = &[
    ("GET", "/", "app"),
    ("GET", "/x", "app"),
    ("GET", "/x/y/", "app"),
    ("GET", "/secrets", "app"),
    ("GET", "/secret2", "app"),
    ("GET", "/secret/x", "app"),
    ("GET", "/asecret", "app"),
    ("GET", "/x/secret", "app"),
    ("GET", "/administrator", "app"),
    ("GET", "/admin-x", "app"),
    ("GET", "/admi", "app"),
    ("GET", "/pub", "app"),
    ("GET", "/pub/", "app"),
    ("GET", "/pub/a", "app"),
    ("GET", "/pub/privateer", "app"),
    ("GET", "/pub/exactly", "app"),
    ("GET", "/pub/exact/x", "app"),
    ("GET", "/pub/admin", "app"),
    ("PUT", "/pub/a", "app"),
    ("GET", "/health", "open"),
    ("GET", "/form", "open"),
    ("GET", "/form/x", "open"),
    ("GET", "/formation", "app"),
    ("POST", "/formation", "app"),
    ("GET", "/x?a=/admin&b=//secret;..%2f", "app"),
    ("GET", "/a+b@c:d,e!$&'()*=~_.-", "app"),
    ("GET", "/a%20b", "app"),
    ("GET", "/%c3%a4/%e2%82%ac", "app"),
    ("GET", "/a.b/c..d/.e", "app"),
];

impl World {
    async fn seen(&self, t: &Ctx, server: &str) -> Result<Seen> {
        let ip = t.field(&format!("pod/{server}"), "{.status.podIP}").await?;
        let address = format!("{ip}:{CONTROL}").parse().with_context(|| format!("pod address {ip:?}"))?;
        let text = curl::get(address, "control", "/seen?reset=true").await?.body;
        serde_json::from_str(&text).with_context(|| format!("what {server} saw: {text}"))
    }

    async fn neighbours(&self, when: &str) -> Result<()> {
        for (method, path, server) in NEIGHBOURS {
            let reply = raw::once(self.address, self.bytes(method, path, "").as_bytes()).await?;
            let name = format!("\"name\":\"{server}\"");
            ensure!(reply.status == 200 && reply.body.contains(&name), "{when}, {method} {path}: {reply:?}");
        }
        let other = format!("GET / HTTP/1.1\r\nhost: {}\r\n\r\n", self.host.replacen("app.", "other.", 1));
        let reply = raw::once(self.address, other.as_bytes()).await?;
        ensure!(
            reply.status == 200 && reply.body.contains("\"name\":\"open\""),
            "{when}, another host: {reply:?}"
        );
        Ok(())
    }

    /// What is known to somebody who may read the chain.
    async fn known(&self, t: &Ctx) -> Result<Known> {
        let chain = self.chain(t).await?;
        let get =
            ["-n", "istio-system", "get", "envoyfilter", &chain, "-o", "jsonpath={.spec.configPatches}"];
        let patches: serde_json::Value = serde_json::from_str(&t.kubectl(&get).await?)?;
        let filters = patches.as_array().into_iter().flatten().map(|patch| &patch["patch"]["value"]);
        let leave = filters.clone().find(|filter| filter["name"] == "ii.leave").context("the last filter")?;
        let script =
            leave["typed_config"]["default_source_code"]["inline_string"].as_str().context("a script")?;
        let line = script.lines().find(|line| line.contains("'\\1")).context("a token")?;
        let mut words = line.split('\'').skip(1).step_by(2);
        let (provider, token) = (words.next().context("an id")?, words.next().context("a token")?);
        Ok(Known {
            host: self.host.clone(),
            other: self.host.replacen("app.", "other.", 1),
            token: token.replacen("\\1", "\u{1}", 1),
            provider: provider.to_owned(),
        })
    }
}

/// What an attempt came to: the status, or how the connection ended.
async fn made(address: SocketAddr, number: usize, attempt: &Attempt) -> Result<String> {
    let answer = match &attempt.sent {
        Sent::One { head, body } => {
            let mark = format!("x-attempt: {number}\r\n\r\n");
            let bytes = [head, mark.as_bytes(), body].concat();
            raw::once(address, &bytes).await.map(|reply| reply.status)
        }
        Sent::Two(fields) => {
            let mut fields = fields.clone();
            fields.push((b"x-attempt".to_vec(), number.to_string().into_bytes()));
            frames::once(address, &fields).await
        }
    };
    match answer {
        Ok(status) => Ok(status.to_string()),
        // A connection that is held open without an answer would hide what became of the request.
        Err(error) if error.is::<NoAnswer>() => Ok("no answer".to_owned()),
        Err(_) => Ok("closed".to_owned()),
    }
}

async fn make_all(address: SocketAddr, attempts: &[Attempt]) -> Result<BTreeMap<String, usize>> {
    let outcomes: Vec<String> = futures::stream::iter(attempts.iter().enumerate())
        .map(|(number, attempt)| made(address, number, attempt))
        .buffer_unordered(16)
        .try_collect()
        .await?;
    let mut counts = BTreeMap::new();
    for outcome in outcomes {
        *counts.entry(outcome).or_default() += 1;
    }
    Ok(counts)
}

fn describe(arrival: &Arrival, attempts: &[Attempt]) -> String {
    let number = arrival.headers.get("x-attempt").and_then(|number| number.parse::<usize>().ok());
    let attempt = number.and_then(|number| attempts.get(number)).map(|attempt| attempt.what.as_str());
    format!(
        "{} {} of {} ({})",
        arrival.method,
        arrival.path,
        arrival.host,
        attempt.unwrap_or("which is unknown")
    )
}

async fn no_disguise_reaches_what_is_protected(t: Ctx) -> Result<()> {
    t.integrator().await?;
    let ns = t.namespace.clone();
    t.apply(&gateway(&ns)).await?;
    t.apply(&auth_service(0, "")).await?;
    for name in SERVERS {
        t.apply(&server(name)).await?;
    }
    for name in ["edge", "sso"] {
        t.kubectl(&["rollout", "status", &format!("deployment/{name}"), "--timeout=90s"]).await?;
    }
    for name in SERVERS {
        t.pod_ready(name).await?;
    }
    let ip = t.field("service/edge", "{.spec.clusterIP}").await?;
    let address = SocketAddr::new(ip.parse().with_context(|| format!("clusterIP {ip:?}"))?, 80);
    let world = World { host: format!("app.{ns}.example.org"), namespace: ns.clone(), address };

    // With the login, to learn what an attacker could learn.
    t.apply(&request(&ns, PROVIDER)).await?;
    world.ready(&t).await?;
    let known = world.known(&t).await?;
    let attempts = attempts(&known);
    ensure!(attempts.len() >= 200, "only {} attempts", attempts.len());

    // Without it: these requests do reach the application, as what is protected otherwise.
    t.apply(&request(&ns, "{type: None}")).await?;
    world.reaches("/secret", 200).await?;
    for name in SERVERS {
        world.seen(&t, name).await?;
    }
    let open = make_all(world.address, &attempts).await?;
    let mut serious = 0;
    for name in SERVERS {
        let seen = world.seen(&t, name).await?;
        serious +=
            seen.arrivals.iter().filter(|arrival| is_protected(&arrival.method, &arrival.path)).count();
    }
    println!(
        "{} attempts without a login asked for: {open:?}; {serious} reached a protected path",
        attempts.len()
    );
    ensure!(serious >= SERIOUS, "only {serious} of {} attempts are serious", attempts.len());

    t.apply(&request(&ns, PROVIDER)).await?;
    world.reaches("/secret", 401).await?;
    world.ready(&t).await?;
    world.neighbours("before").await?;
    for name in SERVERS {
        world.seen(&t, name).await?;
    }
    let outcomes = make_all(world.address, &attempts).await?;
    println!("{} attempts with a login asked for: {outcomes:?}", attempts.len());
    let mut faults = Vec::new();
    for name in SERVERS {
        let seen = world.seen(&t, name).await?;
        ensure!(
            seen.count == seen.arrivals.len(),
            "{name} lost the record of some of {} requests",
            seen.count
        );
        for arrival in &seen.arrivals {
            let host = arrival.host.split(':').next().unwrap_or_default().trim_end_matches('.');
            let protected =
                host.eq_ignore_ascii_case(&known.host) && is_protected(&arrival.method, &arrival.path);
            if name == "web" || protected {
                faults.push(format!("{name} got {}", describe(arrival, &attempts)));
            }
            let believed = arrival.headers.keys().map(|header| header.replace('_', "-"));
            if let Some(header) = believed.clone().find(|header| header == "x-user" || header == "x-ii-guard")
            {
                faults.push(format!("{name} got {header} with {}", describe(arrival, &attempts)));
            }
        }
    }
    ensure!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    world.neighbours("after").await?;
    world.with_a_login(&t).await?;
    t.kubectl(&["delete", "gatewaybinding", &ns]).await?;
    Ok(())
}

/// Header lines that claim to be somebody else.
const FORGED: &[&str] = &[
    "x-user: admin\r\n",
    "X-USER: admin\r\n",
    "x_user: admin\r\n",
    "X_User: admin\r\n",
    "x-user: admin\r\nx-user: root\r\n",
    "x_user: admin\r\nx-user: root\r\nX-User: more\r\n",
    "x-user:admin\r\nconnection: x-user\r\n",
    "connection: close, x_user\r\nx_user: admin\r\n",
    "x-user: mallory, admin\r\n",
    "x-user:\r\n",
    "x-envoy-auth-headers-to-remove: x-user\r\nx_user: admin\r\n",
];

impl World {
    /// Waits until a path answers with this status without a login.
    async fn reaches(&self, path: &str, status: u16) -> Result<()> {
        eventually(&format!("{status} for {path}"), 90, || async {
            let reply = self.get(path, "").await?;
            ensure!(reply.status == status, "{}", reply.status);
            Ok(())
        })
        .await?;
        Ok(())
    }

    /// With a session the paths are served, as that of its owner and of nobody else, whatever the client says.
    async fn with_a_login(&self, t: &Ctx) -> Result<()> {
        let paths = ["/secret", "/secret/", "/admin", "/admin/x", "/pub/private/x", "/pub/exact"];
        let mut wanted = BTreeMap::<&str, usize>::new();
        for path in paths {
            for forged in FORGED {
                let lines = format!("cookie: session=mallory\r\n{forged}");
                let reply = self.get(path, &lines).await?;
                ensure!(reply.status == 200, "{path} with {forged:?}: {reply:?}");
                *wanted.entry(if path.starts_with("/pub") { "app" } else { "web" }).or_default() += 1;
            }
        }
        for (server, number) in wanted {
            let seen = self.seen(t, server).await?;
            let checked: Vec<&Arrival> =
                seen.arrivals.iter().filter(|arrival| is_protected(&arrival.method, &arrival.path)).collect();
            ensure!(checked.len() == number, "{server} got {} of {number} requests", checked.len());
            for arrival in checked {
                let names = arrival.headers.iter().filter(|(name, _)| name.replace('_', "-") == "x-user");
                let values: Vec<&str> = names.map(|(_, value)| value.as_str()).collect();
                ensure!(values == ["mallory"], "{server} believes {values:?}: {arrival:?}");
                ensure!(
                    !arrival.headers.contains_key("x-ii-guard"),
                    "the token left the gateway: {arrival:?}"
                );
            }
        }
        Ok(())
    }
}
