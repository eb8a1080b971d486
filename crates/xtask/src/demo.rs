//! `cargo xtask demo`: from nothing to a request served through the gateway, each step shown.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use testbed::command::output;
use testbed::{Cluster, Options, Session, curl};

/// Command line of `demo`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Leave everything up afterwards, until Ctrl-C.
    #[arg(long)]
    keep: bool,
    /// For the demo itself: the run directory of the cluster that this process is inside of.
    #[arg(long, hide = true)]
    inside: Option<PathBuf>,
    /// For the demo itself: run only this step.
    #[arg(long, hide = true)]
    step: Option<String>,
}

/// The YAML that the README shows.
const EXAMPLE: &str = "docs/examples/first-route.yaml";

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if let Some(run_dir) = &args.inside {
        return inside(run_dir, args.step.as_deref());
    }
    let begun = Instant::now();
    super::doctor::check(true)?;
    testbed::tools::ensure()?;
    let images = super::doctor::target_dir()?.join("images");
    super::image::build(&["istio-integrator".to_owned()], &images)?;
    title("A cluster: etcd, kube-apiserver, controller-manager, scheduler, a node");
    let mut cluster = Cluster::start(&Options::default())?;
    let status = cluster
        .command(&std::env::current_exe()?)?
        .args(["demo", "--inside"])
        .arg(cluster.session().run_dir())
        .env("TESTBED_IMAGE_DIR", &images)
        .status()
        .context("run the demo inside the cluster")?;
    if !status.success() {
        bail!("the demo failed; the lines above say where");
    }
    println!("\nDone in {:.0} s, builds included.", begun.elapsed().as_secs_f32());
    if args.keep {
        println!("The cluster stays up until Ctrl-C here. In another terminal:\n");
        println!("    cargo xtask shell");
        println!("    cargo xtask shell -- kubectl get ingressrequests -A");
        cluster.wait()?;
    }
    Ok(ExitCode::SUCCESS)
}

fn title(text: &str) {
    println!("\n=== {text}");
}

fn inside(run_dir: &Path, step: Option<&str>) -> Result<ExitCode> {
    let session = Session::at(run_dir)?;
    match step {
        Some("istio") => testbed::istio::install(&session, &[])?,
        Some(other) => bail!("no step {other:?}"),
        None => {
            tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(show(&session))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs kubectl and shows the command with its answer, as a person at a terminal would see it.
fn kubectl(session: &Session, args: &[&str]) -> Result<String> {
    println!("$ kubectl {}", args.join(" "));
    let text = output(session.kubectl(args), None)?;
    print!("{text}");
    Ok(text)
}

async fn show(session: &Session) -> Result<()> {
    let started = Instant::now();
    title("Istio, installed by its own istioctl (any installation will do)");
    testbed::istio::install(session, &[])?;
    kubectl(session, &["-n", "istio-system", "get", "deployments"])?;
    println!("(gateway ready {:.1} s after the cluster)", started.elapsed().as_secs_f32());

    title("istio-integrator, from deploy/integrator");
    testbed::operators::deploy_integrator(session)?;
    kubectl(session, &["-n", "istio-integrator", "get", "deployments"])?;

    title("An application, a gateway for it, and a request for a route");
    let example = testbed::paths::repo_root().join(EXAMPLE);
    let yaml = std::fs::read_to_string(&example).with_context(|| format!("read {}", example.display()))?;
    print!("{yaml}");
    println!("---");
    println!("$ kubectl apply -f {EXAMPLE}");
    print!("{}", output(session.kubectl(["apply", "-f", &example.display().to_string()]), None)?);
    kubectl(
        session,
        &["-n", "shop", "wait", "--for=condition=Ready", "ingressrequest/shop", "--timeout=60s"],
    )?;
    kubectl(session, &["-n", "shop", "rollout", "status", "deployment/shop", "--timeout=60s"])?;
    kubectl(session, &["-n", "shop", "get", "ingressrequests"])?;

    title("Through the gateway");
    let address = gateway(session)?;
    for (host, path, expected) in [
        ("shop.example.com", "/", 200),
        ("shop.example.com", "/cart?item=1", 200),
        ("other.example.com", "/", 404),
    ] {
        curl_line(address, host, path, expected).await?;
    }

    title("The request deleted, the route is gone");
    kubectl(session, &["-n", "shop", "delete", "ingressrequest", "shop"])?;
    curl_line(address, "shop.example.com", "/", 404).await?;
    print!("{}", output(session.kubectl(["apply", "-f", &example.display().to_string()]), None)?);
    curl_line(address, "shop.example.com", "/", 200).await
}

fn gateway(session: &Session) -> Result<SocketAddr> {
    let path = "jsonpath={.status.loadBalancer.ingress[0].ip}";
    let ip = output(
        session.kubectl(["-n", "istio-system", "get", "service", "istio-ingressgateway", "-o", path]),
        None,
    )?;
    let ip = ip.trim().parse().with_context(|| format!("the gateway's address: {ip:?}"))?;
    Ok(SocketAddr::new(ip, 80))
}

/// Asks until the expected status comes: istiod pushes a change within moments, not at once.
async fn curl_line(address: SocketAddr, host: &str, path: &str, expected: u16) -> Result<()> {
    println!("$ curl -H 'Host: {host}' http://{}{path}", address.ip());
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let reply = curl::get(address, host, path).await;
        match reply {
            Ok(reply) if reply.status == expected => {
                let body = reply.body.trim();
                println!("{} {}", reply.status, if body.is_empty() { "(no body)" } else { body });
                return Ok(());
            }
            other if Instant::now() > deadline => bail!("expected {expected}, last answer: {other:?}"),
            _ => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}
