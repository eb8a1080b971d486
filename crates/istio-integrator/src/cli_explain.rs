//! `istio-integrator explain`: why a request is served, or why it is not, for a person.
//!
//! It reads the cluster with the caller's rights and compiles what it reads as the integrator does, so that it has an
//! answer even if no integrator runs; what the integrator has written into the status comes on top.

mod gateway;
mod judge;
mod print;
mod read;
mod report;
#[cfg(test)]
mod tests;
mod world;

use std::process::ExitCode;

use anyhow::{Context as _, anyhow};
use clap::{Args, ValueEnum};
use operator_kit::client;
use routes::Settings;

/// The exit status when there is no answer.
const NO_ANSWER: u8 = 2;

/// Arguments of `istio-integrator explain`.
#[derive(Debug, Args)]
#[command(after_help = "\
It reads the cluster with the rights of your kubeconfig. What you may not read is named at the end, with what that means
for the answer; the status of the request, its Services and the GatewayBindings are enough for most answers.

The exit status is 0 if the request is served, 1 if it is not, and 2 if there is no answer.

Examples:
  Why is the request shop in namespace shop not served?
    istio-integrator explain shop -n shop
  For a script:
    istio-integrator explain shop -n shop -o json | jq -r '.nextSteps[]'")]
pub(crate) struct ExplainArgs {
    /// The name of the `IngressRequest`
    request: String,

    /// Its namespace [default: that of the kubeconfig's context]
    #[arg(short, long)]
    namespace: Option<String>,

    /// How the answer looks
    #[arg(short, long, value_enum, default_value = "text")]
    output: Format,

    /// The namespace that the integrator runs in
    #[arg(long, env = "ISTIO_INTEGRATOR_NAMESPACE", default_value = "istio-integrator")]
    integrator_namespace: String,

    /// The lease by which its replicas choose the one that writes
    #[arg(long, env = "ISTIO_INTEGRATOR_LEASE_NAME", default_value = "istio-integrator")]
    lease_name: String,

    /// The namespace to look for guard chains in where those of the whole cluster may not be listed
    #[arg(long, env = "ISTIO_INTEGRATOR_ROOT_NAMESPACE", default_value = "istio-system")]
    root_namespace: String,

    /// The domain of the cluster's Services
    #[arg(long, env = "ISTIO_INTEGRATOR_CLUSTER_DOMAIN", default_value = "cluster.local")]
    cluster_domain: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// One JSON object
    Json,
}

/// Explains, and tells by the exit status whether the request is served.
pub(crate) fn run(args: &ExplainArgs) -> anyhow::Result<ExitCode> {
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow!("another TLS provider is already installed"))?;
    let runtime = tokio::runtime::Runtime::new().context("the asynchronous runtime does not start")?;
    match runtime.block_on(explain(args)) {
        Ok(served) => Ok(if served { ExitCode::SUCCESS } else { ExitCode::FAILURE }),
        Err(error) => {
            eprintln!("error: {error:#}");
            Ok(ExitCode::from(NO_ANSWER))
        }
    }
}

async fn explain(args: &ExplainArgs) -> anyhow::Result<bool> {
    let client = client::connect(concat!("istio-integrator/", env!("CARGO_PKG_VERSION"))).await?;
    let namespace = args.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
    let places = read::Places {
        request: args.request.clone(),
        namespace,
        integrator: args.integrator_namespace.clone(),
        lease: args.lease_name.clone(),
        root: args.root_namespace.clone(),
    };
    let world = read::read(client, &places).await?;
    let settings = Settings::new(args.integrator_namespace.clone(), args.cluster_domain.clone());
    let report = judge::judge(&world, &settings, jiff::Timestamp::now());
    match args.output {
        Format::Text => print!("{}", print::text(&report)),
        Format::Json => {
            println!("{}", serde_json::to_string_pretty(&report).context("the answer as JSON")?);
        }
    }
    Ok(report.served)
}
