//! The steps, each of which fails if it does not show what it says.

use std::time::Instant;

use anyhow::{Result, ensure};
use testbed::Session;

use super::terminal::{Gateway, Terminal, title};

/// The YAML that the README shows.
const FIRST_ROUTE: &str = "docs/examples/first-route.yaml";
const LOGIN: &str = "docs/examples/login.yaml";
const HOSTS: &str = "docs/examples/hosts.yaml";
const CONFLICT: &str = "docs/examples/conflict.yaml";

const SHOP: &str = "shop.example.com";
/// What somebody who has logged in sends.
const TOKEN: &str = "Authorization: Bearer let-me-in";

/// Tells all of it.
pub(super) async fn tell(session: &Session) -> Result<()> {
    let terminal = Terminal { session };
    operators(&terminal)?;
    let gateway = open_route(&terminal).await?;
    login(&terminal, &gateway).await?;
    conflicts(&terminal, &gateway).await?;
    auth_service_stops(&terminal, &gateway).await?;
    chain_deleted(&terminal, &gateway).await?;
    request_deleted(&terminal, &gateway).await
}

fn operators(terminal: &Terminal<'_>) -> Result<()> {
    let started = Instant::now();
    title("Istio, installed by its own istioctl (any installation will do)");
    testbed::istio::install(terminal.session, &[])?;
    terminal.kubectl(&["-n", "istio-system", "get", "deployments"])?;
    println!("(gateway ready {:.1} s after the cluster)", started.elapsed().as_secs_f32());
    title("istio-integrator, from deploy/integrator");
    testbed::operators::deploy_integrator(terminal.session)?;
    terminal.kubectl(&["-n", "istio-integrator", "get", "deployments"])?;
    Ok(())
}

async fn open_route(terminal: &Terminal<'_>) -> Result<Gateway> {
    title("An application, a gateway for it, and a request for a route");
    Terminal::show(FIRST_ROUTE)?;
    terminal.apply(FIRST_ROUTE)?;
    ready(terminal, "shop", "shop")?;
    terminal.kubectl(&["-n", "shop", "rollout", "status", "deployment/shop", "--timeout=60s"])?;
    terminal.kubectl(&["-n", "shop", "get", "ingressrequests"])?;

    title("Through the gateway");
    let gateway = terminal.gateway()?;
    gateway.curl(SHOP, "/", &[], 200).await?;
    gateway.curl(SHOP, "/cart?item=1", &[], 200).await?;
    gateway.curl("other.example.com", "/", &[], 404).await?;
    Ok(gateway)
}

async fn login(terminal: &Terminal<'_>, gateway: &Gateway) -> Result<()> {
    title("A path that asks for a login: an auth service, an AuthProvider, and a second request");
    Terminal::show(LOGIN)?;
    terminal.apply(LOGIN)?;
    println!("(until every pod of the gateway is known to check the login, the path answers 503)");
    ready(terminal, "shop", "account")?;
    terminal.kubectl(&["-n", "shop", "get", "ingressrequests"])?;
    gateway.curl_refused(SHOP, "/account", &[], 401).await?;
    let reply = gateway.curl(SHOP, "/account", &[TOKEN], 200).await?;
    ensure!(
        reply.body.contains("\"x-user\":\"tester\""),
        "the application is not told who logged in: {}",
        reply.body
    );

    title("What a client says of itself does not count: x-user: admin is gone, on the open route too");
    for (path, headers) in
        [("/account", &[TOKEN, "X-User: admin"][..]), ("/", &["X-User: admin", "X_User: admin"])]
    {
        let reply = gateway.curl(SHOP, path, headers, 200).await?;
        ensure!(!reply.body.contains("admin"), "a forged identity reached the application: {}", reply.body);
    }
    gateway.curl_refused(SHOP, "/account", &["X-User: admin"], 401).await?;
    Ok(())
}

async fn conflicts(terminal: &Terminal<'_>, gateway: &Gateway) -> Result<()> {
    title("Another team asks for a host that the shop has, and for a path that team a has");
    terminal.apply(HOSTS)?;
    ready(terminal, "team-a", "catalog-public")?;
    Terminal::show(CONFLICT)?;
    terminal.apply(CONFLICT)?;
    for (request, kind, owner) in [
        ("other-shop", "HostConflict", "shop/shop"),
        ("other-catalog", "PathConflict", "team-a/catalog-public"),
    ] {
        let name = format!("ingressrequest/{request}");
        let condition = "--for=jsonpath={.status.conditions[?(@.type==\"Accepted\")].status}=False";
        terminal.kubectl(&["-n", "team-b", "wait", condition, &name, "--timeout=60s"])?;
        let message = "jsonpath={.status.conditions[?(@.type==\"Accepted\")].reason}: \
                       {.status.conditions[?(@.type==\"Accepted\")].message}";
        let said = terminal.kubectl(&["-n", "team-b", "get", &name, "-o", message])?;
        ensure!(said.starts_with(kind) && said.contains(owner), "{request} must be told {kind} and by whom");
    }
    terminal.kubectl(&["-n", "team-b", "get", "ingressrequests"])?;
    for (host, path, name) in [(SHOP, "/", "shop"), ("www.example.com", "/catalog", "catalog")] {
        let reply = gateway.curl(host, path, &[], 200).await?;
        let whose = format!("\"name\":\"{name}\"");
        ensure!(reply.body.contains(&whose), "somebody else's application answers: {}", reply.body);
    }
    Ok(())
}

async fn auth_service_stops(terminal: &Terminal<'_>, gateway: &Gateway) -> Result<()> {
    title("The auth service stops: nobody gets in, and open routes do not mind");
    terminal.kubectl(&["-n", "shop", "scale", "deployment/login", "--replicas=0"])?;
    gateway.curl(SHOP, "/account", &[TOKEN], 503).await?;
    gateway.curl(SHOP, "/", &[], 200).await?;
    terminal.kubectl(&["-n", "shop", "scale", "deployment/login", "--replicas=1"])?;
    gateway.curl(SHOP, "/account", &[TOKEN], 200).await?;
    Ok(())
}

async fn chain_deleted(terminal: &Terminal<'_>, gateway: &Gateway) -> Result<()> {
    title("The guard chain is deleted by hand, while nobody is there to repair it");
    let operator = ["-n", "istio-integrator"];
    terminal.kubectl(&[&operator[..], &["scale", "deployment/istio-integrator", "--replicas=0"]].concat())?;
    terminal
        .kubectl(&[&operator[..], &["wait", "--for=delete", "pods", "--all", "--timeout=60s"]].concat())?;
    let label = "app.kubernetes.io/managed-by=istio-integrator";
    terminal.kubectl(&["-n", "istio-system", "delete", "envoyfilters", "-l", label])?;
    gateway.curl(SHOP, "/account", &[TOKEN], 503).await?;
    gateway.curl_refused(SHOP, "/account", &[], 503).await?;
    gateway.curl(SHOP, "/", &[], 200).await?;

    title("istio-integrator is back, and repairs it");
    terminal.kubectl(&[&operator[..], &["scale", "deployment/istio-integrator", "--replicas=2"]].concat())?;
    gateway.curl(SHOP, "/account", &[TOKEN], 200).await?;
    gateway.curl_refused(SHOP, "/account", &[], 401).await?;
    terminal.kubectl(&["-n", "istio-system", "get", "envoyfilters", "-l", label])?;
    Ok(())
}

async fn request_deleted(terminal: &Terminal<'_>, gateway: &Gateway) -> Result<()> {
    title("The shop deletes its requests: the host goes to the next who asked for it");
    terminal.kubectl(&["-n", "shop", "delete", "ingressrequests", "shop", "account"])?;
    ready(terminal, "team-b", "other-shop")?;
    let reply = gateway.curl(SHOP, "/", &[], 200).await?;
    ensure!(
        reply.body.contains("\"name\":\"blog\""),
        "the next request for the host must be served: {}",
        reply.body
    );

    title("The last request for the host deleted, the route is gone");
    terminal.kubectl(&["-n", "team-b", "delete", "ingressrequest", "other-shop"])?;
    gateway.curl(SHOP, "/", &[], 404).await?;
    Ok(())
}

fn ready(terminal: &Terminal<'_>, namespace: &str, request: &str) -> Result<()> {
    let name = format!("ingressrequest/{request}");
    terminal.kubectl(&["-n", namespace, "wait", "--for=condition=Ready", &name, "--timeout=120s"])?;
    Ok(())
}
