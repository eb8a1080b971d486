//! `istio-integrator crds`: the `CustomResourceDefinition`s of this version.

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;

/// Arguments of `istio-integrator crds`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    Install or upgrade them:\n    \
    istio-integrator crds | kubectl apply --server-side -f -")]
pub(crate) struct CrdsArgs {}

/// Writes the CRDs to standard output.
#[allow(clippy::needless_pass_by_value, reason = "every subcommand is called alike")]
pub(crate) fn run(_args: CrdsArgs) -> anyhow::Result<ExitCode> {
    io::stdout().lock().write_all(yaml()?.as_bytes()).context("standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// Both CRDs as YAML documents.
pub(crate) fn yaml() -> anyhow::Result<String> {
    serde_saphyr::to_string_multiple(&mesh_api::integrator::crds()).context("the CRDs as YAML")
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    #[test]
    fn yaml_is_what_the_types_say() {
        let read: Vec<Value> = serde_saphyr::from_multiple(&super::yaml().unwrap()).unwrap();
        let written = serde_json::to_value(mesh_api::integrator::crds()).unwrap();
        assert_eq!(Value::from(read), written);
    }
}
