//! `istio-integrator run`: watch, and after each change and each interval plan, write, report.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    process::ExitCode,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use anyhow::{Context as _, anyhow, bail};
use clap::{Args, ValueEnum};
use kube::Client;
use operator_kit::{
    admin::{self, Admin},
    apply::{Applier, Identity},
    cache::Wake,
    client,
    lease::{self, Leadership, LeaseConfig},
    metrics::Metrics,
    notice::Notices,
    shutdown,
    status::StatusWriter,
    telemetry::{self, LogFormat, LogLevel},
};
use routes::Settings;
use tokio::{
    net::TcpListener,
    sync::{oneshot, watch},
    time::{Instant, Interval, MissedTickBehavior},
};
use tracing::{error, info, warn};

use crate::{
    follow::{GatewayPods, MeshConfigs},
    guard::{Guard, GuardSettings},
    observe::{self, Caches},
    reconcile::{Parts, Reconciler},
    stale_crds::{self, CrdWatch},
};

/// How long to wait for more changes before a pass, so that a burst is one pass.
const COALESCE: Duration = Duration::from_millis(50);

/// How long a pass may go on after the signal to stop.
const WIND_DOWN: Duration = Duration::from_secs(5);

const IDENTITY: Identity =
    Identity { manager: mesh_api::names::INTEGRATOR, managed_by: mesh_api::names::INTEGRATOR };

/// Arguments of `istio-integrator run`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    In a cluster, as deploy/integrator does:\n    \
    istio-integrator run\n  \
    From a workstation, with the kubeconfig's rights and readable logs:\n    \
    istio-integrator run --no-leader-election --log-format text --metrics-address 127.0.0.1:8080")]
pub(crate) struct RunArgs {
    /// The namespace that everything generated is written to, and that the lease is in
    #[arg(long, env = "POD_NAMESPACE", default_value = "istio-integrator")]
    namespace: String,

    /// Who this replica is in the lease and in Events; unique among replicas [default: host name and a random suffix]
    #[arg(long, env = "POD_NAME")]
    identity: Option<String>,

    /// The lease by which one replica is chosen to write
    #[arg(long, env = "ISTIO_INTEGRATOR_LEASE_NAME", default_value = "istio-integrator")]
    lease_name: String,

    /// Write without holding a lease: only where no other replica runs
    #[arg(long, env = "ISTIO_INTEGRATOR_NO_LEADER_ELECTION")]
    no_leader_election: bool,

    /// The address of /livez, /readyz, /metrics and /log-level
    #[arg(long, env = "ISTIO_INTEGRATOR_METRICS_ADDRESS", default_value = "[::]:8080")]
    metrics_address: SocketAddr,

    /// How log lines look
    #[arg(long, env = "ISTIO_INTEGRATOR_LOG_FORMAT", value_enum, default_value = "json")]
    log_format: Format,

    /// What is logged: a level, or `target=level` pairs; it can be changed at /log-level while running
    #[arg(long, env = "ISTIO_INTEGRATOR_LOG_LEVEL", default_value = "info")]
    log_level: String,

    /// How often everything is compared with the cluster although nothing is known to have changed, such as 30s or 5m
    #[arg(long, env = "ISTIO_INTEGRATOR_RESYNC_INTERVAL", default_value = "5m", value_parser = interval)]
    resync_interval: Duration,

    /// The namespace for guard chains where no istiod can be seen, such as one outside the cluster
    #[arg(long, env = "ISTIO_INTEGRATOR_ROOT_NAMESPACE", default_value = "istio-system")]
    root_namespace: String,

    /// The least time between two additions to a guard chain: each closes the gateway's connections after its drain time
    #[arg(long, env = "ISTIO_INTEGRATOR_CHAIN_INTERVAL", default_value = "1m", value_parser = interval)]
    chain_interval: Duration,

    /// How long the gateway lets connections drain [default: what the mesh config says, else 45s]
    #[arg(long, env = "ISTIO_INTEGRATOR_DRAIN_TIME", value_parser = interval)]
    drain_time: Option<Duration>,

    /// The most providers of one namespace
    #[arg(long, env = "ISTIO_INTEGRATOR_MAX_PROVIDERS_PER_NAMESPACE", default_value_t = routes::MAX_PROVIDERS_PER_NAMESPACE)]
    max_providers_per_namespace: usize,

    /// The most providers of one gateway: each costs every request a little
    #[arg(long, env = "ISTIO_INTEGRATOR_MAX_PROVIDERS_PER_GATEWAY", default_value_t = routes::MAX_PROVIDERS_PER_GATEWAY)]
    max_providers_per_gateway: usize,

    /// The domain of the cluster's Services
    #[arg(long, env = "ISTIO_INTEGRATOR_CLUSTER_DOMAIN", default_value = "cluster.local")]
    cluster_domain: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// One JSON object a line
    Json,
    /// For people
    Text,
}

pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let parsed: jiff::SignedDuration =
        text.parse().map_err(|error| format!("{error}; write it like 30s or 5m"))?;
    match Duration::try_from(parsed) {
        Ok(interval) if interval >= Duration::from_secs(1) => Ok(interval),
        _ => Err("it must be at least 1s".to_owned()),
    }
}

/// Runs until a signal to stop, or until the lease is lost, which is a failure.
pub(crate) fn run(args: RunArgs) -> anyhow::Result<ExitCode> {
    let format = match args.log_format {
        Format::Json => LogFormat::Json,
        Format::Text => LogFormat::Text,
    };
    let log_level = telemetry::init(format, &args.log_level)?;
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow!("another TLS provider is already installed"))?;
    let runtime = tokio::runtime::Runtime::new().context("the asynchronous runtime does not start")?;
    let outcome = runtime.block_on(serve(args, log_level));
    // A name lookup that hangs must not hold up the end.
    runtime.shutdown_background();
    Ok(match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            error!(error = format!("{failure:#}"), "stopped");
            ExitCode::FAILURE
        }
    })
}

async fn serve(args: RunArgs, log_level: LogLevel) -> anyhow::Result<()> {
    let identity = args.identity.clone().unwrap_or_else(|| lease::unique_identity("istio-integrator"));
    info!(version = env!("CARGO_PKG_VERSION"), namespace = args.namespace, identity, "starting");
    let metrics = Arc::new(Metrics::new("istio_integrator"));
    let listener = listen(args.metrics_address).await?;
    let client = client::connect(concat!("istio-integrator/", env!("CARGO_PKG_VERSION"))).await?;

    let wake = Wake::default();
    let caches = Arc::new(Caches::new());
    let mut watches = observe::watch_all(&client, &caches, &args.namespace, IDENTITY, &wake, &metrics);
    let mut crds = CrdWatch::start(&client, &wake, &metrics);
    let mut leadership = if args.no_leader_election {
        Leadership::unopposed(&metrics)
    } else {
        let config = LeaseConfig {
            namespace: args.namespace.clone(),
            name: args.lease_name.clone(),
            identity: identity.clone(),
        };
        Leadership::stand(client.clone(), config, Arc::clone(&metrics))
    };
    let (notices, mut sending) =
        Notices::start(client.clone(), "istio-integrator", &identity, Arc::clone(&metrics));
    let pod = stale_crds::pod(&args.namespace, &identity);
    let crd_notices = notices.clone();
    let mut reconciler = reconciler(&args, &client, &caches, &wake, notices, &metrics);

    let missing_pods = Arc::new(RwLock::new(Vec::new()));
    let (stop_admin, admin_stops) = oneshot::channel::<()>();
    let mut admin = tokio::spawn(admin::serve(
        listener,
        Admin { readiness: readiness(caches, Arc::clone(&missing_pods)), metrics, log_level },
        async {
            // An error means that the sender is gone, which is the end as well.
            let _ = admin_stops.await;
        },
    ));

    let mut stop = std::pin::pin!(shutdown::requested());
    let mut work = Work { wake, resync: every(args.resync_interval), leads: leadership.leads() };
    loop {
        let leads = tokio::select! {
            biased;
            signal = &mut stop => {
                info!(signal = signal?, "stopping");
                break;
            }
            lost = leadership.lost() => return Err(lost.into()),
            _ = watches.join_next() => bail!("a watch ended unexpectedly"),
            ended = &mut admin => bail!("the admin port ended: {ended:?}"),
            due = work.next(reconciler.next()) => {
                if due.by_interval {
                    reconciler.doubt();
                }
                due.leads
            }
        };
        crds.tell(leads.then_some((&crd_notices, &pod)));
        reconciler.observe_gateways();
        let ready = reconciler.missing().is_empty();
        *missing_pods.write().unwrap_or_else(PoisonError::into_inner) = reconciler.missing_pods();
        if !(ready && leads) {
            continue;
        }
        let mut pass = std::pin::pin!(reconciler.pass());
        tokio::select! {
            biased;
            signal = &mut stop => {
                info!(signal = signal?, "stopping after the writes under way");
                if tokio::time::timeout(WIND_DOWN, &mut pass).await.is_err() {
                    warn!("the writes under way are given up; the next start goes on from there");
                }
                break;
            }
            lost = leadership.lost() => return Err(lost.into()),
            () = &mut pass => {}
        }
    }
    // Dropping the notices ends the sender once it has sent what waits.
    drop((reconciler, crd_notices));
    if tokio::time::timeout(WIND_DOWN, &mut sending).await.is_err() {
        warn!("some Events were not sent");
    }
    leadership.release().await;
    drop(stop_admin);
    Ok(())
}

fn reconciler(
    args: &RunArgs,
    client: &Client,
    caches: &Arc<Caches>,
    wake: &Wake,
    notices: Notices,
    metrics: &Arc<Metrics>,
) -> Reconciler {
    let applier = Applier::new(client.clone(), IDENTITY, Arc::clone(metrics));
    let guard = Guard::new(
        GuardSettings {
            namespace: args.namespace.clone(),
            root_namespace: args.root_namespace.clone(),
            interval: args.chain_interval,
            drain: args.drain_time,
        },
        client.clone(),
        applier.clone(),
        Arc::clone(caches),
        wake.clone(),
    );
    let settings = Settings {
        max_providers_per_namespace: args.max_providers_per_namespace,
        max_providers_per_gateway: args.max_providers_per_gateway,
        ..Settings::new(args.namespace.clone(), args.cluster_domain.clone())
    };
    let parts = Parts {
        caches: Arc::clone(caches),
        pods: GatewayPods::new(client.clone(), wake.clone(), Arc::clone(metrics)),
        mesh_configs: MeshConfigs::new(client.clone(), wake.clone(), Arc::clone(metrics)),
        applier,
        statuses: StatusWriter::new(client.clone(), IDENTITY.manager, Arc::clone(metrics)),
        notices,
        guard,
        metrics: Arc::clone(metrics),
    };
    Reconciler::new(settings, parts)
}

/// A pass that is due.
struct Due {
    /// Whether this replica is the one that writes.
    leads: bool,
    /// Whether the interval made it due, and not a change.
    by_interval: bool,
}

/// What makes a pass due.
struct Work {
    wake: Wake,
    resync: Interval,
    leads: watch::Receiver<bool>,
}

impl Work {
    /// Waits until a pass is due.
    async fn next(&mut self, retry: Option<Instant>) -> Due {
        let retry = async {
            match retry {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let mut by_interval = false;
        tokio::select! {
            () = self.wake.woken() => {}
            _ = self.resync.tick() => by_interval = true,
            () = retry => {}
            // The sender lives as long as the election; where there is none, nothing ever changes.
            Ok(()) = self.leads.changed() => {}
        }
        tokio::time::sleep(COALESCE).await;
        Due { leads: *self.leads.borrow_and_update(), by_interval }
    }
}

fn every(interval: Duration) -> Interval {
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Ready means: everything is known that a pass needs, so that this replica could take over at once.
fn readiness(caches: Arc<Caches>, missing_pods: Arc<RwLock<Vec<String>>>) -> admin::Readiness {
    Arc::new(move || {
        let mut missing = caches.missing();
        missing.extend_from_slice(&missing_pods.read().unwrap_or_else(PoisonError::into_inner));
        if missing.is_empty() { Ok(()) } else { Err(missing.join("\n")) }
    })
}

/// Listens on `address`. The unspecified IPv6 address, which takes IPv4 as well, gives way to that of IPv4 on a host
/// without IPv6.
async fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let unavailable = |error: &io::Error| {
        matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::AddrNotAvailable)
            || error.to_string().contains("Address family not supported")
    };
    let listener = match TcpListener::bind(address).await {
        Err(error) if address.ip() == Ipv6Addr::UNSPECIFIED && unavailable(&error) => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        other => other,
    };
    listener.with_context(|| format!("cannot listen on {address}; give another --metrics-address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_read() {
        assert_eq!(interval("5s"), Ok(Duration::from_secs(5)));
        assert_eq!(interval("5m"), Ok(Duration::from_mins(5)));
        for wrong in ["5", "0s", "-5s", "10ms", "soon"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }

    #[tokio::test]
    async fn an_occupied_port_is_named() {
        let first = listen(([127, 0, 0, 1], 0).into()).await.unwrap();
        let address = first.local_addr().unwrap();
        let error = listen(address).await.unwrap_err();
        assert_eq!(error.to_string(), format!("cannot listen on {address}; give another --metrics-address"));
    }
}
