//! Logins, through a real istiod and a real Envoy.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use http::Request;
use testbed::harness::{Ctx, Test, eventually};
use testbed::raw::{self, Http2};
use testbed::{Site, portable, test};

use crate::auth_watchman::Watchman;
use crate::auth_world::{LOGIN, PROVIDER, auth_service, prepared, protected, provider, reached_web, request};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        portable!(a_login_is_asked_for_where_it_shall_be).limit_seconds(240),
        portable!(the_auth_service_stops_and_returns).limit_seconds(240),
        portable!(a_deleted_chain_opens_nothing_and_comes_back).limit_seconds(240),
        test!(connections_from_before_are_no_way_around).limit_seconds(240),
        test!(a_changed_provider_is_taken_over_without_a_gap).limit_seconds(300),
        test!(what_cannot_be_asked_closes_the_routes).limit_seconds(240),
        test!(a_slow_auth_service_is_not_waited_for).limit_seconds(240),
        test!(a_new_port_is_guarded_from_the_start).limit_seconds(240),
        test!(a_foreign_route_that_comes_first_is_told).limit_seconds(240),
        test!(a_binding_can_demand_a_login).limit_seconds(240),
        test!(another_gateway_of_the_same_pods_opens_nothing).limit_seconds(240),
    ]
}

async fn a_login_is_asked_for_where_it_shall_be(t: Site) -> Result<()> {
    let world = protected(&t).await?;
    for kind in ["Accepted", "ResolvedRefs", "AuthInForce", "Programmed", "Ready"] {
        let condition = world.condition(&t, kind).await?;
        ensure!(condition.starts_with("True "), "{kind} is {condition}");
    }
    let columns = t.kubectl(&["get", "ingressrequest", "app", "--no-headers"]).await?;
    ensure!(columns.contains(&format!("{}/sso", world.namespace)), "kubectl shows {columns}");

    let reply = world.get("/", "").await?;
    ensure!(reply.status == 401 && reply.body.contains("not let in"), "{reply:?}");
    for path in ["/", "/secret", "/secret/", "/deep/er?q=1"] {
        let reply = world.get(path, LOGIN).await?;
        ensure!(reached_web(&reply) && reply.body.contains("\"x-user\":\"tester\""), "{path}: {reply:?}");
        ensure!(!reply.body.contains("x-ii-guard"), "the token reached the application: {}", reply.body);
        ensure!(world.get(path, "").await?.status == 401, "{path} is open");
    }
    // What a client says of itself does not reach an application, in whatever spelling.
    for forged in
        ["x-user: admin\r\n", "X-USER: admin\r\n", "x_user: admin\r\n", "X_User: admin\r\nx-user: admin\r\n"]
    {
        let reply = world.get("/", &format!("{forged}{LOGIN}")).await?;
        ensure!(!reply.body.contains("admin"), "{forged:?}: {reply:?}");
        let reply = world.get("/pub/x", forged).await?;
        ensure!(
            reply.status == 200 && !reply.body.contains("admin"),
            "{forged:?} on an open route: {reply:?}"
        );
        ensure!(world.get("/", forged).await?.status == 401);
    }
    for guard in
        ["x-ii-guard: x\r\n", "x_ii_guard: \u{1}?\r\n", "x-ii-guard: \u{1}?~\r\n", "X-II-Guard: \u{1}#\r\n"]
    {
        let reply = world.get("/", guard).await;
        ensure!(reply.as_ref().map_or(true, |reply| !reached_web(reply)), "{guard:?}: {reply:?}");
    }
    // The auth service lets everybody see its own pages, which proves nothing.
    for page in ["/ping", "/oauth2/start", "/OAUTH2/x", "/oauth2%2fstart", "//oauth2/x", "/x/..%2foauth2/"] {
        for headers in ["", LOGIN] {
            let reply = world.get(page, headers).await?;
            ensure!(matches!(reply.status, 400 | 403), "{page}: {reply:?}");
        }
    }
    for open in ["/pub", "/pub/", "/pub/a", "/health"] {
        let reply = world.get(open, "").await?;
        ensure!(reply.status == 200 && reply.body.contains("\"open\""), "{open}: {reply:?}");
    }
    world.cleaned(&t).await
}

async fn the_auth_service_stops_and_returns(t: Site) -> Result<()> {
    let world = protected(&t).await?;
    t.kubectl(&["scale", "deployment/sso", "--replicas=0"]).await?;
    world.answers("/", LOGIN, 503).await?;
    ensure!(world.get("/health", "").await?.status == 200, "an open route does not depend on it");
    t.kubectl(&["scale", "deployment/sso", "--replicas=1"]).await?;
    world.answers("/", LOGIN, 200).await?;
    ensure!(world.get("/", "").await?.status == 401);
    world.cleaned(&t).await
}

async fn a_deleted_chain_opens_nothing_and_comes_back(t: Site) -> Result<()> {
    let world = protected(&t).await?;
    let watchman = Watchman::start(&world);
    let chain = world.chain(&t).await?;
    t.kubectl(&["-n", t.root_namespace(), "delete", "envoyfilter", &chain]).await?;
    eventually("the chain to be made anew", 30, || world.chain(&t)).await?;
    // Changed instead of deleted: a patch taken out, and a label added to the selector, which no apply of ours takes away.
    for patch in [
        r#"[{"op": "remove", "path": "/spec/configPatches/2"}]"#,
        r#"[{"op": "replace", "path": "/spec/configPatches", "value": []}]"#,
        r#"[{"op": "add", "path": "/spec/workloadSelector/labels/nobody", "value": "has-it"}]"#,
        r#"[{"op": "add", "path": "/spec/priority", "value": 10}]"#,
    ] {
        t.kubectl(&["-n", t.root_namespace(), "patch", "envoyfilter", &chain, "--type=json", "-p", patch])
            .await?;
        eventually("the chain to be as it was", 30, || async {
            let spec = t
                .kubectl(&["-n", t.root_namespace(), "get", "envoyfilter", &chain, "-o", "jsonpath={.spec}"])
                .await?;
            let spec: serde_json::Value = serde_json::from_str(&spec)?;
            ensure!(spec["configPatches"].as_array().is_some_and(|patches| patches.len() == 4), "{patch}");
            ensure!(spec["workloadSelector"]["labels"].as_object().is_some_and(|labels| labels.len() == 1));
            ensure!(spec["priority"].as_i64().unwrap_or_default() == 0);
            Ok(())
        })
        .await?;
    }
    world.answers("/", LOGIN, 200).await?;
    world.has(&t, "Ready", "True Ready").await?;
    watchman.end().await?;
    world.cleaned(&t).await
}

async fn connections_from_before_are_no_way_around(t: Ctx) -> Result<()> {
    let world = prepared(&t).await?;
    t.apply(&request(&world.namespace, "{type: None}")).await?;
    world.ready(&t).await?;
    let uri = format!("http://{}/", world.host);
    let mut one = raw::Connection::open(world.address).await?;
    let mut two = Http2::open(world.address).await?;
    ensure!(reached_web(&one.exchange(world.bytes("GET", "/", "").as_bytes()).await?));
    ensure!(reached_web(&two.exchange(Request::get(&uri).body(String::new())?).await?), "HTTP/2");

    t.apply(&request(&world.namespace, PROVIDER)).await?;
    // From the first answer on that shows the change, no connection may show less.
    eventually("the login to be asked for", 60, || async {
        let status = world.get("/", "").await?.status;
        ensure!(matches!(status, 401 | 503), "{status}");
        Ok(())
    })
    .await?;
    let (mut of_one, mut of_two) = (Vec::new(), Vec::new());
    for _ in 0..100 {
        if let Ok(reply) = one.exchange(world.bytes("GET", "/", "").as_bytes()).await {
            ensure!(reply.status != 200, "a kept connection of HTTP/1.1 was let through");
            of_one.push(reply.status);
        }
        if let Ok(reply) = two.exchange(Request::get(&uri).body(String::new())?).await {
            ensure!(reply.status != 200, "a kept connection of HTTP/2 was let through");
            of_two.push(reply.status);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    ensure!(!of_one.is_empty() && !of_two.is_empty(), "the kept connections answered nothing at all");
    world.answers("/", LOGIN, 200).await?;
    world.cleaned(&t).await
}

async fn a_changed_provider_is_taken_over_without_a_gap(t: Ctx) -> Result<()> {
    let world = protected(&t).await?;
    let demanded = || world.demanded(&t);
    let before = demanded().await?;
    let watchman = Watchman::start(&world);
    t.apply(&provider("    timeout: 3s\n")).await?;
    let start = std::time::Instant::now();
    let mut gaps = Vec::new();
    loop {
        let reply = world.get("/", LOGIN).await?;
        if reply.status != 200 {
            gaps.push((start.elapsed(), reply.status));
        }
        if demanded().await? != before {
            break;
        }
        ensure!(start.elapsed() < Duration::from_secs(90), "the routes never moved");
    }
    for _ in 0..50 {
        let reply = world.get("/", LOGIN).await?;
        if reply.status != 200 {
            gaps.push((start.elapsed(), reply.status));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    ensure!(gaps.is_empty(), "with a login refused: {gaps:?}");
    watchman.end().await?;
    world.cleaned(&t).await
}

async fn what_cannot_be_asked_closes_the_routes(t: Ctx) -> Result<()> {
    let world = protected(&t).await?;
    // A tenant claims the name of the auth service.
    let claim = format!(
        "apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {{name: claim, namespace: default}}
spec:
  hosts: [sso.{}.svc.cluster.local]
  ports: [{{number: 9000, name: http, protocol: HTTP}}]
  resolution: STATIC
  endpoints: [{{address: 127.0.0.1}}]
",
        world.namespace
    );
    t.kubectl_with(&["-n", "default", "apply", "-f", "-"], Some(&claim)).await?;
    let reason = "{.status.conditions[?(@.type==\"Ready\")].reason}";
    eventually("the claim to be told", 30, || async {
        let found = t.field("authprovider/sso", reason).await?;
        ensure!(found == "ProviderClaimed", "{found}");
        Ok(())
    })
    .await?;
    world.answers("/", LOGIN, 503).await?;
    t.kubectl(&["-n", "default", "delete", "serviceentry", "claim"]).await?;
    world.answers("/", LOGIN, 200).await?;

    t.kubectl(&["delete", "authprovider", "sso"]).await?;
    world.answers("/", LOGIN, 503).await?;
    world.has(&t, "ResolvedRefs", "False ProviderNotFound").await?;
    world.has(&t, "AuthInForce", "False ProviderNotFound").await?;
    ensure!(world.get("/health", "").await?.status == 200);

    // That of another namespace needs a grant, and the cluster does not serve those.
    t.apply(&request(&world.namespace, "{type: Provider, providerRef: {name: sso, namespace: default}}"))
        .await?;
    world.has(&t, "ResolvedRefs", "False GrantsNotServed").await?;
    ensure!(world.get("/", LOGIN).await?.status == 503);
    t.apply(&auth_service(0, "")).await?;
    t.apply(&request(&world.namespace, PROVIDER)).await?;
    world.ready(&t).await?;
    world.answers("/", LOGIN, 200).await?;
    t.kubectl(&["delete", "service", "sso"]).await?;
    world.answers("/", LOGIN, 503).await?;
    world.has(&t, "ResolvedRefs", "False ProviderInvalid").await?;
    world.cleaned(&t).await
}

async fn a_slow_auth_service_is_not_waited_for(t: Ctx) -> Result<()> {
    let world = prepared(&t).await?;
    t.apply(&auth_service(2000, "    timeout: 300ms\n")).await?;
    t.kubectl(&["rollout", "status", "deployment/sso", "--timeout=60s"]).await?;
    t.apply(&request(&world.namespace, PROVIDER)).await?;
    world.ready(&t).await?;
    let start = std::time::Instant::now();
    ensure!(world.get("/", LOGIN).await?.status == 503);
    ensure!(start.elapsed() < Duration::from_secs(2), "it was waited for {:?}", start.elapsed());
    ensure!(world.get("/health", "").await?.status == 200);
    world.cleaned(&t).await
}

async fn a_new_port_is_guarded_from_the_start(t: Ctx) -> Result<()> {
    let mut world = protected(&t).await?;
    let port = r#"[{"op": "add", "path": "/spec/servers/-", "value":
        {"port": {"number": 8000, "name": "more", "protocol": "HTTP"}, "hosts": ["*"]}}]"#;
    t.kubectl(&["patch", "gateways.networking.istio.io", "edge", "--type=json", "-p", port]).await?;
    world.address.set_port(8000);
    let mut seen = Vec::new();
    let start = std::time::Instant::now();
    while seen.last() != Some(&401) {
        ensure!(start.elapsed() < Duration::from_mins(1), "the new port answers {seen:?}");
        seen.extend(world.get("/", "").await.map(|reply| reply.status));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    ensure!(seen.iter().all(|status| *status != 200), "it was open at first: {seen:?}");
    world.answers("/", LOGIN, 200).await?;
    // A pod that comes later holds the chain as well.
    t.kubectl(&["scale", "deployment/edge", "--replicas=2"]).await?;
    t.kubectl(&["rollout", "status", "deployment/edge", "--timeout=60s"]).await?;
    for _ in 0..40 {
        ensure!(world.get("/", "").await?.status == 401);
    }
    world.has(&t, "Ready", "True Ready").await?;
    world.cleaned(&t).await
}

async fn a_foreign_route_that_comes_first_is_told(t: Ctx) -> Result<()> {
    let world = prepared(&t).await?;
    let theirs = |export: &str| {
        format!(
            "apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: theirs}}
spec:
  hosts: [{}]
  gateways: [edge]
  exportTo: [\"{export}\"]
  http:
  - match: [{{uri: {{prefix: /theirs}}}}]
    route: [{{destination: {{host: open.{}.svc.cluster.local, port: {{number: 80}}}}}}]
",
            world.host, world.namespace
        )
    };
    t.apply(&theirs("*")).await?;
    // Ages have whole seconds.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    t.apply(&request(&world.namespace, PROVIDER)).await?;
    // It is older, but ours is exported to the gateway's namespace by name, and Istio puts that first.
    world.ready(&t).await?;
    for _ in 0..20 {
        ensure!(world.get("/theirs", "").await?.status == 401, "an older public route comes first after all");
    }
    // What is private to the namespace of the gateway's pods comes before all, and asks for no login.
    t.apply(&theirs(".")).await?;
    world.has(&t, "AuthInForce", "False ForeignRoute").await?;
    world.has(&t, "Ready", "False ForeignRoute").await?;
    let message = "{.status.conditions[?(@.type==\"AuthInForce\")].message}";
    let message = t.field("ingressrequest/app", message).await?;
    ensure!(message.contains(&format!("{}/theirs", world.namespace)), "{message}");
    let reply = world.answers("/theirs", "", 200).await?;
    ensure!(reply.body.contains("\"open\""), "{reply:?}");
    t.kubectl(&["delete", "virtualservice", "theirs"]).await?;
    world.ready(&t).await?;
    world.answers("/theirs", "", 401).await?;
    world.cleaned(&t).await
}

async fn a_binding_can_demand_a_login(t: Ctx) -> Result<()> {
    let world = prepared(&t).await?;
    let demand = r#"{"spec": {"auth": {"required": true}}}"#;
    t.kubectl(&["patch", "gatewaybinding", &world.namespace, "--type=merge", "-p", demand]).await?;
    t.apply(&request(&world.namespace, "{type: None}")).await?;
    world.has(&t, "Accepted", "False AuthRequired").await?;
    world.answers("/", LOGIN, 503).await?;
    world.answers("/pub/x", "", 503).await?;
    let default = format!(
        r#"{{"spec": {{"auth": {{"defaultProviderRef": {{"namespace": "{}", "name": "sso"}}}}}}}}"#,
        world.namespace
    );
    t.kubectl(&["patch", "gatewaybinding", &world.namespace, "--type=merge", "-p", &default]).await?;
    t.apply(&request(&world.namespace, "{type: Inherit}")).await?;
    world.answers("/", LOGIN, 200).await?;
    ensure!(world.get("/", "").await?.status == 401);
    // The routes that say None are still refused.
    if world.get("/health", LOGIN).await?.status != 503 {
        bail!("a route without a login was opened against the binding");
    }
    world.cleaned(&t).await
}

async fn another_gateway_of_the_same_pods_opens_nothing(t: Ctx) -> Result<()> {
    let world = protected(&t).await?;
    let watchman = Watchman::start(&world);
    let ns = &world.namespace;
    t.apply(&format!(
        "apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {{name: other}}
spec:
  selector: {{gateway: {ns}}}
  servers:
  - port: {{number: 80, name: http, protocol: HTTP}}
    hosts: [\"*\"]
---
apiVersion: integrator.istio-operators.io/v1alpha1
kind: GatewayBinding
metadata: {{name: {ns}-other}}
spec:
  gateway: {{type: IstioGateway, istioGateway: {{namespace: {ns}, name: other}}}}
  namespaces: {{from: All}}
  hosts: {{allowed: [{{pattern: \"*.{ns}.example.org\", namespaces: {{from: All}}}}]}}
---
apiVersion: integrator.istio-operators.io/v1alpha1
kind: IngressRequest
metadata: {{name: intruder}}
spec:
  bindingRef: {{name: {ns}-other}}
  hosts: [app.{ns}.example.org, free.{ns}.example.org]
  auth: {{type: None}}
  routes: [{{backends: [{{service: open, port: 80}}]}}]
"
    ))
    .await?;
    let message = "{.status.conditions[?(@.type==\"Accepted\")].message}";
    eventually("the intruder to be told", 60, || async {
        let told = t.field("ingressrequest/intruder", message).await?;
        ensure!(told.contains(&format!("{ns}/edge")) && told.contains(&format!("{ns}/app")), "{told}");
        Ok(())
    })
    .await?;
    // Its other host is nobody else's, and is served.
    let free = format!("GET / HTTP/1.1\r\nhost: free.{ns}.example.org\r\n\r\n");
    eventually("the other host to be served", 60, || async {
        let reply = raw::once(world.address, free.as_bytes()).await?;
        ensure!(reply.status == 200 && reply.body.contains("\"open\""), "{reply:?}");
        Ok(())
    })
    .await?;
    ensure!(world.get("/", "").await?.status == 401 && world.get("/more", "").await?.status == 401);
    world.answers("/", LOGIN, 200).await?;
    watchman.end().await?;
    t.kubectl(&["delete", "gatewaybinding", &format!("{ns}-other")]).await?;
    world.cleaned(&t).await
}
