//! What lies in `deploy/` fits the program.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

fn documents(file: &str) -> Vec<Value> {
    let path = deploy().join(file);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_saphyr::from_multiple(&text).unwrap()
}

/// The program as a test may run it: without anything that the environment would tell it.
fn integrator(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_istio-integrator")).args(args).env_clear().output().unwrap()
}

#[test]
fn the_crds_are_those_of_the_types() {
    let output = integrator(&["crds"]);
    assert!(output.status.success(), "{output:?}");
    let generated = String::from_utf8(output.stdout).unwrap();
    let path = deploy().join("crds/integrator.yaml");
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        generated == committed,
        "{} is not what the types say: istio-integrator crds > deploy/crds/integrator.yaml",
        path.display()
    );
}

#[test]
fn the_deployment_calls_the_program_as_it_is() {
    let deployment = &documents("integrator/deployment.yaml")[0];
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["args"], serde_json::json!(["run"]));
    let help = String::from_utf8(integrator(&["run", "--help"]).stdout).unwrap();
    for variable in container["env"].as_array().unwrap() {
        let name = variable["name"].as_str().unwrap();
        assert!(help.contains(&format!("[env: {name}=")), "run does not read {name}\n{help}");
    }
    let port = container["ports"][0]["containerPort"].as_u64().unwrap();
    assert!(help.contains(&format!("[default: [::]:{port}]")), "{port} is not where run listens\n{help}");
}

#[test]
fn the_lease_that_the_role_names_is_the_one_that_is_held() {
    let role = &documents("integrator/role.yaml")[0];
    let rules = role["rules"].as_array().unwrap();
    let names: Vec<&str> = rules
        .iter()
        .filter(|rule| rule["resources"][0] == "leases")
        .filter_map(|rule| rule["resourceNames"][0].as_str())
        .collect();
    assert_eq!(names, ["istio-integrator"]);
    let help = String::from_utf8(integrator(&["run", "--help"]).stdout).unwrap();
    assert!(
        help.contains("[env: ISTIO_INTEGRATOR_LEASE_NAME=]\n          [default: istio-integrator]"),
        "{help}"
    );
}

#[test]
fn every_command_shows_examples() {
    for command in ["run", "compile", "crds", "explain", "uninstall"] {
        let output = integrator(&[command, "--help"]);
        let help = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && help.contains("Examples:"), "{command}\n{help}");
    }
}

#[test]
fn a_wrong_argument_is_named() {
    let output = integrator(&["run", "--resync-interval", "5"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        !output.status.success() && error.contains("--resync-interval") && error.contains("30s"),
        "{error}"
    );
    let output = integrator(&["run", "--log-level", "x=loud"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && error.contains("is not a log level"), "{error}");
}

#[test]
fn every_example_of_the_book_is_accepted_but_that_of_conflicts() {
    let examples = deploy().join("../docs/examples");
    let example = |name: &str| examples.join(name).display().to_string();
    let (first, hosts, conflict) =
        (example("first-route.yaml"), example("hosts.yaml"), example("conflict.yaml"));
    let mut seen = 0;
    for entry in fs::read_dir(&examples).unwrap() {
        let path = entry.unwrap().path().display().to_string();
        if path == conflict {
            continue;
        }
        let mut args = vec!["compile", "-f", &first];
        if path != first {
            args.extend(["-f", &path]);
        }
        let output = integrator(&args);
        let verdicts = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && !verdicts.contains(" False "), "{path}\n{verdicts}");
        seen += 1;
    }
    assert!(seen >= 6, "only {seen} examples");
    let output = integrator(&["compile", "-f", &first, "-f", &hosts, "-f", &conflict]);
    let verdicts = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "a request that is refused: {verdicts}");
    for told in [
        "team-b/other-shop: Accepted is False (HostConflict): host shop.example.com belongs to the older request shop/shop",
        "team-b/other-catalog: Accepted is False (PathConflict): path /catalog of host www.example.com belongs to the older \
         request team-a/catalog-public",
    ] {
        assert!(verdicts.contains(told), "{told}\n{verdicts}");
    }
    assert_eq!(verdicts.matches("Accepted is False").count(), 2, "{verdicts}");
}

#[test]
fn the_chart_has_the_crds_and_the_version_of_the_program() {
    let read = |file: &str| fs::read_to_string(deploy().join(file)).unwrap();
    assert!(
        read("helm/istio-integrator/files/crds.yaml") == read("crds/integrator.yaml"),
        "cp deploy/crds/integrator.yaml deploy/helm/istio-integrator/files/crds.yaml"
    );
    let chart = &documents("helm/istio-integrator/Chart.yaml")[0];
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!((chart["version"].as_str(), chart["appVersion"].as_str()), (Some(version), Some(version)));
}

#[test]
fn the_uninstall_job_calls_the_program_as_it_is() {
    let job = &documents("uninstall/job.yaml")[0];
    let pod = &job["spec"]["template"]["spec"];
    assert_eq!(pod["containers"][0]["args"], serde_json::json!(["uninstall"]));
    let deployment = &documents("integrator/deployment.yaml")[0];
    assert_eq!(
        pod["containers"][0]["image"],
        deployment["spec"]["template"]["spec"]["containers"][0]["image"]
    );
    // It looks for pods of this label, and must not find itself.
    let label = "app.kubernetes.io/name";
    assert_ne!(
        job["spec"]["template"]["metadata"]["labels"][label],
        deployment["spec"]["template"]["metadata"]["labels"][label]
    );
}
