//! Logins while the mesh changes around them: istiod away, pods that come and go, other namespaces, TLS.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use http::Request;
use testbed::harness::{Ctx, Test, eventually};
use testbed::raw::{Connection, Http2, Tls};
use testbed::{Options, test};

use crate::auth_watchman::Watchman;
use crate::auth_world::{LOGIN, PROVIDER, gateway, prepared, protected, reached_web, request};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        test!(istiod_away_opens_nothing).limit_seconds(420),
        test!(pods_of_the_gateway_in_another_namespace_are_guarded).limit_seconds(240),
        test!(a_gateway_with_tls_is_guarded_and_proved).limit_seconds(240),
        test!(a_provider_of_another_namespace_needs_a_grant).limit_seconds(420),
    ]
}

async fn scale_istiod(t: &Ctx, replicas: u8) -> Result<()> {
    let replicas = format!("--replicas={replicas}");
    t.kubectl(&["-n", "istio-system", "scale", "deployment/istiod", &replicas]).await?;
    if replicas == "--replicas=0" {
        let wait =
            ["-n", "istio-system", "wait", "--for=delete", "pods", "-l", "app=istiod", "--timeout=60s"];
        t.kubectl(&wait).await?;
    } else {
        t.kubectl(&["-n", "istio-system", "rollout", "status", "deployment/istiod", "--timeout=90s"]).await?;
    }
    Ok(())
}

async fn istiod_away_opens_nothing(t: Ctx) -> Result<()> {
    t.own(Options { progress: false, ..Options::default() }, |t| async move {
        let world = prepared(&t).await?;
        t.apply(&request(&world.namespace, "{type: None}")).await?;
        world.ready(&t).await?;

        // A login is demanded while istiod is away: nothing changes at the gateway, and the status says so.
        scale_istiod(&t, 0).await?;
        t.apply(&request(&world.namespace, PROVIDER)).await?;
        eventually("the chain to be written", 60, || world.chain(&t)).await?;
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(5) {
            for kind in ["AuthInForce", "Ready"] {
                let condition = world.condition(&t, kind).await?;
                ensure!(
                    !condition.starts_with("True"),
                    "{kind} is {condition} although no gateway pod can know it"
                );
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        ensure!(reached_web(&world.get("/", "").await?), "the routes are as they were");
        scale_istiod(&t, 1).await?;
        // From the first refusal on, nothing is let through.
        let start = Instant::now();
        while world.get("/", "").await?.status == 200 {
            ensure!(start.elapsed() < Duration::from_secs(90), "the login was never asked for");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let watchman = Watchman::start(&world);
        world.answers("/", LOGIN, 200).await?;
        world.ready(&t).await?;

        // The chain is deleted while istiod is away, and made anew before it returns.
        scale_istiod(&t, 0).await?;
        let chain = world.chain(&t).await?;
        t.kubectl(&["-n", "istio-system", "delete", "envoyfilter", &chain]).await?;
        eventually("the chain to be made anew", 60, || world.chain(&t)).await?;
        // And the gateway loses its pod, whose successor cannot be made without istiod's webhook.
        t.kubectl(&["delete", "pods", "-l", &format!("gateway={}", world.namespace), "--wait=true"]).await?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        ensure!(world.get("/", LOGIN).await.is_err(), "a gateway without a pod serves");
        scale_istiod(&t, 1).await?;
        // A ReplicaSet whose pods were refused tries again ever later, after minutes in the end; a new one does at once.
        t.kubectl(&["rollout", "restart", "deployment/edge"]).await?;
        world.answers("/", LOGIN, 200).await?;
        world.ready(&t).await?;

        // Everything starts anew at once.
        let pods = ["-n", "istio-system", "delete", "pods", "-l", "app=istiod", "--wait=false"];
        t.kubectl(&pods).await?;
        t.kubectl(&["-n", "istio-integrator", "delete", "pods", "--all", "--wait=false"]).await?;
        t.kubectl(&["delete", "pods", "-l", &format!("gateway={}", world.namespace), "--wait=true"]).await?;
        t.kubectl(&["rollout", "status", "deployment/edge", "--timeout=90s"]).await?;
        world.answers("/", LOGIN, 200).await?;
        world.has(&t, "Ready", "True Ready").await?;
        watchman.end().await
    })
    .await
}

async fn pods_of_the_gateway_in_another_namespace_are_guarded(t: Ctx) -> Result<()> {
    let mut world = protected(&t).await?;
    let here = world.address;
    let other = format!("{}-x", world.namespace);
    t.kubectl(&["create", "namespace", &other]).await?;
    // The same pods and Service, without the Gateway and the binding, which are there already.
    let objects = gateway(&world.namespace);
    let documents: Vec<&str> = objects.split("---\n").take(2).collect();
    let (apply, text) = (["--namespace", other.as_str(), "apply", "-f", "-"], documents.join("---\n"));
    t.kubectl_with(&apply, Some(&text)).await?;
    let path = ["--namespace", other.as_str(), "get", "service/edge", "-o", "jsonpath={.spec.clusterIP}"];
    let ip = t.kubectl(&path).await?;
    world.address = SocketAddr::new(ip.parse().with_context(|| format!("clusterIP {ip:?}"))?, 80);
    let (start, mut seen) = (Instant::now(), Vec::new());
    while seen.last() != Some(&401) {
        ensure!(start.elapsed() < Duration::from_secs(90), "the new pod answers {seen:?}");
        // Until it is ready, nobody answers.
        seen.extend(world.get("/", "").await.map(|reply| reply.status));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    ensure!(seen.iter().all(|status| *status != 200), "it was open at first: {seen:?}");
    let reply = world.answers("/", LOGIN, 200).await?;
    ensure!(reached_web(&reply) && reply.body.contains("\"x-user\":\"tester\""), "{reply:?}");
    world.answers("/health", "", 200).await?;
    world.has(&t, "Ready", "True Ready").await?;
    // Gone again: what is left serves and is ready.
    t.kubectl(&["delete", "namespace", &other, "--wait=false"]).await?;
    world.address = here;
    world.answers("/", LOGIN, 200).await?;
    world.has(&t, "Ready", "True Ready").await?;
    world.cleaned(&t).await
}

async fn a_gateway_with_tls_is_guarded_and_proved(t: Ctx) -> Result<()> {
    let mut world = prepared(&t).await?;
    let (certificate, key) = testbed::self_signed(&[&world.host, "elsewhere.example.org"])?;
    let secret = format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: cert}}\ntype: kubernetes.io/tls\nstringData:\n  tls.crt: {}\n  tls.key: {}\n",
        serde_json::to_string(&certificate)?,
        serde_json::to_string(&key)?,
    );
    t.apply(&secret).await?;
    // istiod hands a certificate to gateways whose account may read it, as those of Istio's chart may.
    t.kubectl(&["create", "role", "certificates", "--verb=get,list,watch", "--resource=secrets"]).await?;
    let account = format!("--serviceaccount={}:default", world.namespace);
    t.kubectl(&["create", "rolebinding", "certificates", "--role=certificates", &account]).await?;
    let servers = format!(
        r#"[{{"op": "replace", "path": "/spec/servers", "value": [{{"port": {{"number": 8000, "name": "https", "protocol": "HTTPS"}},
            "hosts": ["*.{}.example.org"], "tls": {{"mode": "SIMPLE", "credentialName": "cert"}}}}]}}]"#,
        world.namespace
    );
    t.kubectl(&["patch", "gateways.networking.istio.io", "edge", "--type=json", "-p", &servers]).await?;
    t.apply(&request(&world.namespace, PROVIDER)).await?;
    world.ready(&t).await?;
    world.has(&t, "Programmed", "True Programmed").await?;
    let url = t.field("ingressrequest/app", "{.status.urls[0]}").await?;
    ensure!(
        url == format!("https://{}:8000", world.host) || url == format!("https://{}", world.host),
        "{url}"
    );
    world.address.set_port(8000);
    let tls = Tls::trusting(&certificate)?;
    let mut one = Connection::open_tls(world.address, &tls, &world.host).await?;
    ensure!(one.exchange(world.bytes("GET", "/", "").as_bytes()).await?.status == 401);
    ensure!(reached_web(&one.exchange(world.bytes("GET", "/", LOGIN).as_bytes()).await?));
    ensure!(
        one.exchange(world.bytes("GET", "/", "").as_bytes()).await?.status == 401,
        "one login for another"
    );
    let mut two = Http2::open_tls(world.address, &tls, &world.host).await?;
    let uri = format!("https://{}/", world.host);
    ensure!(two.exchange(Request::get(&uri).body(String::new())?).await?.status == 401);
    let login = Request::get(&uri).header("authorization", "Bearer let-me-in").body(String::new())?;
    ensure!(reached_web(&two.exchange(login).await?));
    ensure!(
        two.exchange(Request::get(&uri).body(String::new())?).await?.status == 401,
        "one login for another"
    );
    // A name in SNI that the host is not: the gateway has no listener for it, or it asks for the login all the same.
    if let Ok(mut other) = Connection::open_tls(world.address, &tls, "elsewhere.example.org").await {
        let reply = other.exchange(world.bytes("GET", "/", "").as_bytes()).await?;
        ensure!(!reached_web(&reply), "open by another server name: {reply:?}");
    }
    world.cleaned(&t).await
}

/// The CRD of `ReferenceGrant`.
async fn grants_served(t: &Ctx) -> Result<()> {
    let file = t.session.tools().gateway_api.join("gateway.networking.k8s.io_referencegrants.yaml");
    t.kubectl(&["apply", "--server-side", "-f", &file.display().to_string()]).await?;
    t.kubectl(&["wait", "--for=condition=Established", "crd/referencegrants.gateway.networking.k8s.io"])
        .await?;
    Ok(())
}

fn grant(from: &str, group: &str, kind: &str, name: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1beta1
kind: ReferenceGrant
metadata: {{name: {name}}}
spec:
  from: [{{group: integrator.istio-operators.io, kind: IngressRequest, namespace: {from}}}]
  to: [{{group: \"{group}\", kind: {kind}}}]
"
    )
}

async fn a_provider_of_another_namespace_needs_a_grant(t: Ctx) -> Result<()> {
    // Other tests show what happens where grants are not served.
    t.own(Options { progress: false, ..Options::default() }, |t| async move {
        let world = protected(&t).await?;
        let other = format!("{}-x", world.namespace);
        t.kubectl(&["create", "namespace", &other]).await?;
        let of_other = t.at(&other);
        of_other.apply(&crate::auth_world::auth_service(0, "")).await?;
        of_other.kubectl(&["rollout", "status", "deployment/sso", "--timeout=60s"]).await?;
        let theirs = format!("{{type: Provider, providerRef: {{name: sso, namespace: {other}}}}}");
        t.apply(&request(&world.namespace, &theirs)).await?;
        world.has(&t, "ResolvedRefs", "False GrantsNotServed").await?;
        world.answers("/", LOGIN, 503).await?;

        // The kind comes; nobody has granted anything.
        grants_served(&t).await?;
        world.has(&t, "ResolvedRefs", "False ReferenceNotGranted").await?;
        let message = "{.status.conditions[?(@.type==\"ResolvedRefs\")].message}";
        let message = t.field("ingressrequest/app", message).await?;
        for word in ["ReferenceGrant", other.as_str(), "AuthProvider"] {
            ensure!(message.contains(word), "the message does not name {word}: {message}");
        }
        ensure!(world.get("/", LOGIN).await?.status == 503);

        // Grants that are for somebody else, or for something else.
        let group = "integrator.istio-operators.io";
        for wrong in [
            grant("default", group, "AuthProvider", "wrong"),
            grant(&world.namespace, "", "Service", "wrong"),
            grant(&world.namespace, "", "AuthProvider", "wrong"),
        ] {
            of_other.apply(&wrong).await?;
            tokio::time::sleep(Duration::from_millis(1500)).await;
            if world.condition(&t, "ResolvedRefs").await? != "False ReferenceNotGranted" {
                bail!("let in by {wrong}");
            }
        }
        of_other.apply(&grant(&world.namespace, group, "AuthProvider", "right")).await?;
        world.answers("/", LOGIN, 200).await?;
        world.ready(&t).await?;
        ensure!(world.get("/", "").await?.status == 401);
        // Taken back.
        of_other.kubectl(&["delete", "referencegrant", "right"]).await?;
        world.answers("/", LOGIN, 503).await?;
        world.has(&t, "AuthInForce", "False ReferenceNotGranted").await?;
        ensure!(world.get("/health", "").await?.status == 200);
        // The provider that the binding names needs no grant.
        let default = format!(
            r#"{{"spec": {{"auth": {{"defaultProviderRef": {{"namespace": "{other}", "name": "sso"}}}}}}}}"#
        );
        t.kubectl(&["patch", "gatewaybinding", &world.namespace, "--type=merge", "-p", &default]).await?;
        t.apply(&request(&world.namespace, "{type: Inherit}")).await?;
        world.answers("/", LOGIN, 200).await?;
        world.ready(&t).await?;
        ensure!(world.get("/", "").await?.status == 401);
        Ok(())
    })
    .await
}
