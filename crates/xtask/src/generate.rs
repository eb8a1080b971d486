//! `cargo xtask generate`: the files that follow from the types, and a test that they do.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use mesh_api::integrator::crds;
use mesh_api::reason::Reason;
use serde_json::Value;

/// Command line of `generate`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Write nothing; fail when a file is not what it would be.
    #[arg(long)]
    check: bool,
}

const HEAD: &str =
    "<!-- Written by `cargo xtask generate` from the types in crates/mesh-api; edit those. -->\n\n";

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    for (path, text) in files()? {
        let now = std::fs::read_to_string(&path).unwrap_or_default();
        if now == text {
            continue;
        }
        if args.check {
            bail!("{} is out of date; run `cargo xtask generate`", path.display());
        }
        std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        println!("wrote {}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}

fn files() -> Result<Vec<(PathBuf, String)>> {
    Ok(vec![(testbed::paths::repo_root().join("docs/reference.md"), reference()?)])
}

fn reference() -> Result<String> {
    let mut out = String::from(HEAD);
    out.push_str("# Reference: the integrator's API\n\n");
    out.push_str("Group `integrator.istio-operators.io`, version `v1alpha1`. Changes are additive.\n");
    for crd in crds() {
        let crd = serde_json::to_value(&crd)?;
        let kind = crd["spec"]["names"]["kind"].as_str().context("the kind of a CRD")?;
        let scope = if crd["spec"]["scope"] == "Cluster" { "Cluster-scoped" } else { "Namespaced" };
        let short = crd["spec"]["names"]["shortNames"][0].as_str().unwrap_or_default();
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let _ = write!(out, "\n## {kind}\n\n{scope}, short name `{short}`. ");
        out.push_str(schema["description"].as_str().unwrap_or_default());
        out.push('\n');
        for part in ["spec", "status"] {
            let _ = write!(out, "\n### {kind} {part}\n\n| field | type | meaning |\n|---|---|---|\n");
            fields(&mut out, part, &schema["properties"][part]);
        }
    }
    out.push_str(
        "\n## Reasons\n\nWhat a condition or a route of a status can give as its reason, and what to do.\n",
    );
    for reason in Reason::ALL {
        let _ = write!(
            out,
            "\n### {reason}\n\n{}\n\n{}\n",
            one_line(reason.meaning()),
            one_line(reason.remedy())
        );
    }
    Ok(out)
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// One row for each field below `path`, parents before children.
fn fields(out: &mut String, path: &str, schema: &Value) {
    let Some(properties) = schema["properties"].as_object() else { return };
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, field) in properties {
        let items = &field["items"];
        let is_list = field["type"] == "array";
        let at = format!("{path}.{name}{}", if is_list { "[]" } else { "" });
        let description = field["description"].as_str().unwrap_or_default();
        let must = if required.contains(&name.as_str()) { "Required. " } else { "" };
        let text = format!("{must}{}", one_line(description)).replace('|', "\\|");
        let _ = writeln!(out, "| `{at}` | {} | {text} |", kind_of(field));
        // Conditions are Kubernetes' own type, described there.
        if name != "conditions" {
            fields(out, &at, if is_list { items } else { field });
        }
    }
}

fn kind_of(field: &Value) -> String {
    if let Some(values) = field["enum"].as_array() {
        let names: Vec<String> = values.iter().filter_map(Value::as_str).map(|v| format!("`{v}`")).collect();
        return names.join(", ");
    }
    match field["type"].as_str() {
        Some("array") => format!("list of {}", kind_of(&field["items"])),
        Some(kind) => kind.to_owned(),
        None => "any".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn generated_files_are_up_to_date() {
        for (path, text) in super::files().unwrap() {
            let now = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(now == text, "{} is out of date; run `cargo xtask generate`", path.display());
        }
    }
}
