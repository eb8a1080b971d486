//! `istio-integrator uninstall`: what the integrator left in the cluster, removed in an order that opens no door.
//!
//! Routes go before the guard chains: a route whose chain is gone answers 503, and one without a login never needed it.
//! Only then goes what they were made with.

mod objects;
mod presence;
mod statuses;

use std::{process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use kube::Client;
use operator_kit::{
    apply::{Applier, Identity},
    client,
    lease::{self, Leadership, LeaseConfig},
    metrics::Metrics,
};

use objects::{Found, Objects};
use presence::Presence;

/// For how long a lease is watched whose holder may be dead: longer than it lasts without being renewed.
const PATIENCE: Duration = Duration::from_secs(lease::DURATION.as_secs() + 5);

/// A replica that stands by looks at the lease more often than this.
const STANDBY: Duration = Duration::from_secs(4);

const IDENTITY: Identity =
    Identity { manager: mesh_api::names::INTEGRATOR, managed_by: mesh_api::names::INTEGRATOR };

/// Arguments of `istio-integrator uninstall`.
#[derive(Debug, Args)]
#[command(after_help = "\
Removes, in this order: the VirtualServices in the integrator's namespace, the guard chains (EnvoyFilters), the status of
IngressRequests, AuthProviders and GatewayBindings, the Secret of the guard chains and the Lease. Nothing that the
integrator did not create is touched, and of your own objects only the status is. The CRDs stay, and with them your
objects; so do the Deployment, the accounts and the roles, which went in with `kubectl apply` or Helm and go the same way.

It needs an istio-integrator that does not run, since that would put everything back: scale it to zero first. It takes
the Lease while it works, so that no replica begins in between.

The exit status is 0 if all is gone, and 1 if something is left, which is named.

Examples:
  See what would be removed:
    istio-integrator uninstall --dry-run
  Remove it, from a workstation:
    kubectl -n istio-integrator scale deployment/istio-integrator --replicas=0
    istio-integrator uninstall
  Or in the cluster, with the image that is there already:
    kubectl apply -k deploy/uninstall
  Stop istio-integrator for good, and keep what it serves as it is now:
    istio-integrator uninstall --keep-routes")]
pub(crate) struct UninstallArgs {
    /// The namespace that the integrator ran in
    #[arg(short, long, env = "POD_NAMESPACE", default_value = "istio-integrator")]
    namespace: String,

    /// The lease by which its replicas chose the one that writes
    #[arg(long, env = "ISTIO_INTEGRATOR_LEASE_NAME", default_value = "istio-integrator")]
    lease_name: String,

    /// The namespace to look for guard chains in where those of the whole cluster may not be listed
    #[arg(long, env = "ISTIO_INTEGRATOR_ROOT_NAMESPACE", default_value = "istio-system")]
    root_namespace: String,

    /// Leave VirtualServices, guard chains, their Secret and all status as they are, served by Istio and no longer kept up
    /// to date; remove the Lease only
    #[arg(long)]
    keep_routes: bool,

    /// Only say what would be removed
    #[arg(long)]
    dry_run: bool,

    /// Go on although an istio-integrator seems to run, and without the lease
    #[arg(long)]
    force: bool,

    /// How long to wait for objects that finalizers of others keep, such as 30s or 5m
    #[arg(long, default_value = "1m", value_parser = crate::run::interval)]
    wait: Duration,
}

/// Removes everything, and says what was.
pub(crate) fn run(args: &UninstallArgs) -> anyhow::Result<ExitCode> {
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow!("another TLS provider is already installed"))?;
    let runtime = tokio::runtime::Runtime::new().context("the asynchronous runtime does not start")?;
    let left = runtime.block_on(uninstall(args))?;
    Ok(if left.is_empty() {
        ExitCode::SUCCESS
    } else {
        eprintln!("left behind:");
        for line in left {
            eprintln!("  {line}");
        }
        ExitCode::FAILURE
    })
}

/// Returns what is left behind and should not be.
async fn uninstall(args: &UninstallArgs) -> anyhow::Result<Vec<String>> {
    let client = client::connect(concat!("istio-integrator/", env!("CARGO_PKG_VERSION"))).await?;
    let metrics = Arc::new(Metrics::new("istio_integrator_uninstall"));
    let objects = Objects {
        client: client.clone(),
        applier: Applier::new(client.clone(), IDENTITY, Arc::clone(&metrics)),
        namespace: args.namespace.clone(),
        root_namespace: args.root_namespace.clone(),
        wait: args.wait,
    };
    let found = objects.find(&args.lease_name).await?;
    found.print(args.keep_routes);
    if args.dry_run {
        let running = presence::look(&client, &args.namespace).await?;
        if !running.is_idle() {
            println!("{}", running.refusal(&args.namespace));
        }
        println!("nothing was changed (--dry-run)");
        return Ok(Vec::new());
    }
    if found.foreign_lease && !args.force {
        bail!(
            "Lease {}/{} was not written by istio-integrator, and is not taken: name the one it used by --lease-name, or give \
             --force",
            args.namespace,
            args.lease_name
        );
    }
    let leadership = if args.force {
        println!("--force: whether an istio-integrator runs is not looked at");
        None
    } else {
        await_absence(&client, args).await?;
        Some(take_lease(&client, args, Arc::clone(&metrics)).await?)
    };
    // One that was taken is there, whether it was before or not.
    let lease = leadership.as_ref().map(|_| args.lease_name.clone()).or_else(|| found.lease.clone());
    let mut left = match leadership {
        None => remove(&objects, &found, args, &metrics).await,
        Some(mut leadership) => {
            let outcome = tokio::select! {
                left = remove(&objects, &found, args, &metrics) => Ok(left),
                lost = leadership.lost() => Err(lost),
            };
            leadership.release().await;
            outcome.context("an istio-integrator began to run; stop it, and run this again")?
        }
    };
    if let Some(name) = &lease {
        left.extend(objects.remove_lease(name).await.err());
        if left.is_empty() && !args.force && objects.reappears(&args.lease_name, STANDBY).await {
            left.push(format!(
                "Lease {}/{}: it was taken anew, so an istio-integrator runs somewhere and puts everything back; stop it and \
                 run this again",
                args.namespace, args.lease_name
            ));
        }
    }
    if left.is_empty() {
        print!("{}", farewell(args.keep_routes, &args.namespace));
    }
    Ok(left)
}

/// Waits until pods that are about to end have done so, and refuses where others run.
async fn await_absence(client: &Client, args: &UninstallArgs) -> anyhow::Result<()> {
    let deadline = tokio::time::Instant::now() + args.wait;
    let mut told = false;
    loop {
        let presence = presence::look(client, &args.namespace).await?;
        match &presence {
            Presence { running, .. } if !running.is_empty() => bail!(presence.refusal(&args.namespace)),
            Presence { ending, .. } if ending.is_empty() => return Ok(()),
            Presence { ending, .. } if tokio::time::Instant::now() > deadline => {
                bail!("these pods do not end: {}", ending.join(", "))
            }
            Presence { ending, .. } => {
                if !told {
                    println!("waiting for pods to end: {}", ending.join(", "));
                    told = true;
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

/// Takes the lease as a replica would, so that no replica begins to write while things are removed.
async fn take_lease(
    client: &Client,
    args: &UninstallArgs,
    metrics: Arc<Metrics>,
) -> anyhow::Result<Leadership> {
    let before = presence::holder(client, &args.namespace, &args.lease_name).await?;
    if let Some(holder) = &before {
        println!(
            "lease {}/{} names {holder}; watching for up to {} s whether that still lives",
            args.namespace,
            args.lease_name,
            PATIENCE.as_secs()
        );
    }
    let config = LeaseConfig {
        namespace: args.namespace.clone(),
        name: args.lease_name.clone(),
        identity: lease::unique_identity("uninstall"),
    };
    let leadership = Leadership::stand(client.clone(), config, metrics);
    let taken = tokio::time::timeout(PATIENCE, leadership.leads().wait_for(|leads| *leads)).await.is_ok();
    if taken {
        return Ok(leadership);
    }
    leadership.release().await;
    let Some(holder) = presence::holder(client, &args.namespace, &args.lease_name).await? else {
        bail!(
            "lease {}/{} could not be taken: this needs the right to get, create and update it; or give --force",
            args.namespace,
            args.lease_name
        );
    };
    bail!(
        "{holder} holds lease {}/{} and renews it: an istio-integrator runs, and would put back what is removed. Stop it \
         first:\n    kubectl -n {} scale deployment/istio-integrator --replicas=0\nor, if it does not run in a Deployment, \
         end that process; or give --force",
        args.namespace,
        args.lease_name,
        args.namespace
    )
}

/// Removes all but the lease; returns what is left behind.
async fn remove(
    objects: &Objects,
    found: &Found,
    args: &UninstallArgs,
    metrics: &Arc<Metrics>,
) -> Vec<String> {
    if args.keep_routes {
        return Vec::new();
    }
    let left = objects.remove_routes().await;
    if !left.is_empty() {
        // What is still served keeps its check.
        println!("guard chains stay as long as routes do");
        return left;
    }
    let mut left = objects.remove_chains().await;
    statuses::clear(&objects.client, metrics).await;
    if left.is_empty()
        && let Some(secret) = &found.secret
    {
        left.extend(objects.remove_secret(secret).await.err());
    }
    left
}

fn farewell(keep_routes: bool, namespace: &str) -> String {
    let rest = format!(
        "    kubectl -n {namespace} delete deployment,serviceaccount,role,rolebinding,poddisruptionbudget,networkpolicy istio-integrator\n    \
         kubectl delete clusterrole,clusterrolebinding istio-integrator\n"
    );
    if keep_routes {
        return format!(
            "the routes stay, served by Istio as they are now; they live in namespace {namespace}, which must stay too. What is \
             left of istio-integrator itself:\n{rest}"
        );
    }
    format!(
        "done. What is left of istio-integrator itself:\n    kubectl delete -k deploy/integrator\nor, as that takes the CRDs and so \
         every IngressRequest, AuthProvider and GatewayBinding with it, without them:\n{rest}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_outlasts_a_lease_and_standbys_show_themselves() {
        assert!(PATIENCE > lease::DURATION + lease::RETRY_INTERVAL);
        assert!(STANDBY > lease::RETRY_INTERVAL.mul_f64(1.2));
    }

    #[test]
    fn what_is_left_to_do_depends_on_the_routes() {
        assert!(!farewell(true, "ii").contains("delete -k"), "it would take the namespace with the routes");
        assert!(farewell(true, "ii").contains("namespace ii, which must stay"));
        assert!(farewell(false, "ii").contains("kubectl delete -k deploy/integrator"));
    }
}
