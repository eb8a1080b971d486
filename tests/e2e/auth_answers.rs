//! What the auth service answers, and what it is asked.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use testbed::harness::{Ctx, Test, eventually};
use testbed::{curl, test};

use crate::auth_world::{LOGIN, PROVIDER, World, auth_service, prepared, reached_web, request};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        test!(only_a_clear_yes_opens).limit_seconds(240),
        test!(the_auth_service_is_asked_once_and_told_little).limit_seconds(240),
    ]
}

const CONTROL: u16 = 9900;

/// As [`crate::auth_world::protected`], with an auth service that can be told how to answer.
async fn told(t: &Ctx) -> Result<World> {
    let world = prepared(t).await?;
    let with_control = format!("[ext-authz, --control-port, \"{CONTROL}\",");
    let service = auth_service(0, "    requestHeaders: [cookie, accept]\n");
    t.apply(&service.replace("[ext-authz,", &with_control)).await?;
    t.kubectl(&["rollout", "status", "deployment/sso", "--timeout=60s"]).await?;
    // The pod before it goes on answering for a moment.
    eventually("one pod to be left", 30, || async {
        let pods = t.kubectl(&["get", "pods", "-l", "app=sso", "-o", "name"]).await?;
        ensure!(pods.lines().count() == 1, "{pods}");
        Ok(())
    })
    .await?;
    t.apply(&request(&world.namespace, PROVIDER)).await?;
    world.ready(t).await?;
    world.answers("/", LOGIN, 200).await?;
    Ok(world)
}

async fn control(t: &Ctx, request: http::request::Builder, body: String) -> Result<String> {
    let get = ["get", "pods", "-l", "app=sso", "--field-selector=status.phase=Running", "-o", "json"];
    let pods: Value = serde_json::from_str(&t.kubectl(&get).await?)?;
    let alive = pods["items"].as_array().into_iter().flatten();
    let ips: Vec<&str> = alive
        .filter(|pod| pod["metadata"]["deletionTimestamp"].is_null())
        .filter_map(|pod| pod["status"]["podIP"].as_str())
        .collect();
    ensure!(ips.len() == 1, "the auth service runs at {ips:?}");
    let address = format!("{}:{CONTROL}", ips[0]).parse().context("the pod's address")?;
    let request = request.header("host", "control").header("content-type", "application/json").body(body)?;
    let reply = curl::request(address, request).await?;
    ensure!(reply.status == 200, "{reply:?}");
    Ok(reply.body)
}

async fn behave(t: &Ctx, behaviour: Value) -> Result<()> {
    control(t, http::Request::post("/behaviour"), behaviour.to_string()).await?;
    Ok(())
}

async fn seen(t: &Ctx) -> Result<Value> {
    let text = control(t, http::Request::get("/seen?reset=true"), String::new()).await?;
    serde_json::from_str(&text).with_context(|| format!("what it saw: {text}"))
}

async fn only_a_clear_yes_opens(t: Ctx) -> Result<()> {
    let world = told(&t).await?;
    // Whatever it answers but 200, nothing opens, login or not; errors of its own are 503.
    for (status, wanted) in [
        (201, None),
        (202, None),
        (204, None),
        (206, None),
        (299, None),
        (302, Some(302)),
        (304, None),
        (400, Some(400)),
        (401, Some(401)),
        (403, Some(403)),
        (404, Some(404)),
        (418, Some(418)),
        (429, Some(429)),
        (500, Some(503)),
        (502, Some(503)),
        (503, Some(503)),
        (599, None),
    ] {
        behave(&t, json!({"status": status})).await?;
        for login in ["", LOGIN] {
            let reply = world.get("/", login).await?;
            ensure!(!reached_web(&reply), "{status} opened: {reply:?}");
            ensure!(wanted.is_none_or(|wanted| reply.status == wanted), "{status} became {}", reply.status);
        }
        ensure!(world.get("/health", "").await?.status == 200);
    }
    // With headers that it has no business to set: another host, a token, somebody else's identity.
    let more = json!({
        "host": format!("foreign.{}.example.org", world.namespace),
        "x-ii-guard": "x",
        "x-ii-chain": "x",
        "x-other": "x",
        "x-forwarded-for": "1.2.3.4",
        "x-envoy-original-path": "/health",
        // Envoy does as it is told here: what was meant for the auth service need not reach the application.
        "x-envoy-auth-headers-to-remove": "authorization",
        "set-cookie": "session=renewed",
    });
    behave(&t, json!({"headers": more})).await?;
    let reply = world.get("/", LOGIN).await?;
    ensure!(reached_web(&reply), "{reply:?}");
    let got: Value = serde_json::from_str(&reply.body)?;
    ensure!(got["host"] == world.host.as_str() && got["headers"]["x-user"] == "tester", "{got}");
    for header in ["x-ii-guard", "x-ii-chain", "x-other", "authorization"] {
        ensure!(
            got["headers"][header].is_null(),
            "{header} of the auth service reached the application: {got}"
        );
    }
    ensure!(reply.headers.get("set-cookie").is_some_and(|cookie| cookie == "session=renewed"), "{reply:?}");
    ensure!(!reply.headers.contains_key("x-other"), "{reply:?}");
    let refused = world.get("/", "").await?;
    ensure!(refused.status == 401, "{refused:?}");
    // What it takes away of the chain's own closes the route.
    behave(&t, json!({"headers": {"x-envoy-auth-headers-to-remove": "x-ii-guard"}})).await?;
    ensure!(world.get("/", LOGIN).await?.status == 503);
    // The identity is what it says now, not what the client says.
    behave(&t, json!({"headers": {"x-user": "boss"}})).await?;
    let reply = world.get("/", &format!("x-user: admin\r\nx_user: admin\r\n{LOGIN}")).await?;
    ensure!(reply.body.contains("\"x-user\":\"boss\"") && !reply.body.contains("admin"), "{reply:?}");
    // Slower than its time, it is not waited for; faster, it is.
    behave(&t, json!({"delayMs": 4000})).await?;
    let start = Instant::now();
    ensure!(world.get("/", LOGIN).await?.status == 503);
    ensure!(start.elapsed() < Duration::from_millis(3500), "it was waited for {:?}", start.elapsed());
    behave(&t, json!({"delayMs": 500})).await?;
    ensure!(world.get("/", LOGIN).await?.status == 200);
    behave(&t, json!({})).await?;
    // A browser is sent to the login page.
    let browser = world.get("/deep/er", "accept: text/html\r\n").await?;
    let location = browser.headers.get("location").and_then(|location| location.to_str().ok());
    ensure!((browser.status, location) == (302, Some("/oauth2/start?rd=/deep/er")), "{browser:?}");
    world.cleaned(&t).await
}

async fn the_auth_service_is_asked_once_and_told_little(t: Ctx) -> Result<()> {
    let world = told(&t).await?;
    seen(&t).await?;
    // Nobody asks it about open routes.
    for path in ["/health", "/pub/a", "/oauth2/start", "/ping"] {
        world.get(path, LOGIN).await?;
    }
    ensure!(seen(&t).await?["count"] == 0);
    let lines = format!(
        "cookie: a=b; c=d\r\nx-secret: s\r\nx-user: forged\r\nx-ii-guard: forged\r\nx-forwarded-uri: /health\r\n{LOGIN}"
    );
    let reply = world.get("/deep//../er?q=1", &lines).await?;
    ensure!(reached_web(&reply), "{reply:?}");
    let got: Value = serde_json::from_str(&reply.body)?;
    let asked = seen(&t).await?;
    ensure!(asked["count"] == 1, "it was asked {} times", asked["count"]);
    let question = &asked["arrivals"][0];
    // The path is that which the router chose the route by, and which the application gets.
    ensure!(question["path"] == got["path"], "asked about {}, served {}", question["path"], got["path"]);
    ensure!(question["method"] == "GET" && question["host"] == world.host.as_str(), "{question}");
    let headers = question["headers"].as_object().context("headers")?;
    ensure!(headers.get("cookie").is_some_and(|cookie| cookie == "a=b; c=d"), "{headers:?}");
    ensure!(headers.contains_key("authorization"));
    for header in ["x-secret", "x-user", "x_user", "x-ii-guard", "x-forwarded-uri"] {
        ensure!(!headers.contains_key(header), "it was told {header}: {headers:?}");
    }
    // The body of a request is the application's alone.
    let post = format!("POST / HTTP/1.1\r\nhost: {}\r\ncontent-length: 5\r\n{LOGIN}\r\nhello", world.host);
    ensure!(reached_web(&testbed::raw::once(world.address, post.as_bytes()).await?));
    let question = seen(&t).await?["arrivals"][0].clone();
    ensure!(question["method"] == "POST" && question["headers"]["content-length"] != "5", "{question}");
    world.cleaned(&t).await
}
