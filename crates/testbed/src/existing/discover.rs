//! What is looked at before anything is changed.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, PostParams};
use serde_json::Value;

use super::{MARK, Mesh, OWN, Target};

/// The API server's version.
pub(super) async fn version(client: &kube::Client) -> Result<String> {
    let asked = tokio::time::timeout(Duration::from_secs(15), client.apiserver_version()).await;
    Ok(asked
        .context("the API server does not answer within 15 s")?
        .context("ask the API server's version")?
        .git_version)
}

/// The Istio to test with: the only one, or that of the revision asked for.
pub(super) async fn mesh(client: &kube::Client, revision: Option<&str>) -> Result<Mesh> {
    let deployments = Api::<Deployment>::all(client.clone());
    let found =
        deployments.list(&ListParams::default().labels("app=istiod")).await.context("look for istiod")?;
    let mut planes = Vec::new();
    for deployment in found.items {
        let labels = deployment.metadata.labels.unwrap_or_default();
        let own = labels.get("istio.io/rev").cloned().unwrap_or_else(|| "default".to_owned());
        let namespace = deployment.metadata.namespace.unwrap_or_default();
        let containers =
            deployment.spec.and_then(|s| s.template.spec).map(|s| s.containers).unwrap_or_default();
        let image = containers.into_iter().find(|c| c.name == "discovery").and_then(|c| c.image);
        let image = image.unwrap_or_default();
        let version =
            image.split('@').next().and_then(|i| i.rsplit_once(':')).map_or("unknown", |(_, tag)| tag);
        let ready = deployment.status.and_then(|s| s.ready_replicas).unwrap_or_default() > 0;
        planes.push((own, namespace, version.to_owned(), ready));
    }
    let names: Vec<String> =
        planes.iter().map(|(own, namespace, ..)| format!("{own} in {namespace}")).collect();
    if let Some(revision) = revision {
        planes.retain(|(own, ..)| own == revision);
    }
    let (own, namespace, version, ready) = match planes.as_slice() {
        [one] => one.clone(),
        [] if names.is_empty() => bail!(
            "there is no istiod in this cluster (no Deployment labelled app=istiod); install Istio 1.24 or newer first, for \
             example with `istioctl install --set profile=minimal`"
        ),
        [] => bail!(
            "no istiod has revision {:?}; there are: {}",
            revision.unwrap_or_default(),
            names.join(", ")
        ),
        _ => bail!("there are several istiods; choose one with --revision: {}", names.join(", ")),
    };
    ensure!(
        ready,
        "istiod of revision {own} in {namespace} is not ready; see `kubectl -n {namespace} get pods -l app=istiod`"
    );
    let root_namespace = root_namespace(client, &namespace, &own).await?;
    Ok(Mesh { version, revision: own, namespace, root_namespace })
}

/// The root namespace that the mesh config names; istiod's own where it names none.
async fn root_namespace(client: &kube::Client, namespace: &str, revision: &str) -> Result<String> {
    let name = if revision == "default" { "istio".to_owned() } else { format!("istio-{revision}") };
    let maps = Api::<ConfigMap>::namespaced(client.clone(), namespace);
    let map = maps.get_opt(&name).await.with_context(|| format!("read ConfigMap {namespace}/{name}"))?;
    let text = map.and_then(|map| map.data).and_then(|mut data| data.remove("mesh")).unwrap_or_default();
    let config: Value = if text.trim().is_empty() { Value::Null } else { serde_saphyr::from_str(&text)? };
    Ok(config["rootNamespace"].as_str().filter(|name| !name.is_empty()).unwrap_or(namespace).to_owned())
}

/// Whether the user may do what installing takes.
pub(super) async fn permitted(client: &kube::Client) -> Result<()> {
    let kinds = [
        ("", "namespaces"),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        ("rbac.authorization.k8s.io", "clusterroles"),
        ("rbac.authorization.k8s.io", "clusterrolebindings"),
    ];
    let reviews = Api::<SelfSubjectAccessReview>::all(client.clone());
    for (group, resource) in kinds {
        for verb in ["create", "delete"] {
            let review: SelfSubjectAccessReview = serde_json::from_value(serde_json::json!({
                "metadata": {},
                "spec": {"resourceAttributes": {"group": group, "resource": resource, "verb": verb}},
            }))?;
            let answer = reviews.create(&PostParams::default(), &review).await?.status;
            ensure!(
                answer.is_some_and(|status| status.allowed),
                "the kubeconfig's user may not {verb} {resource}; use one with an administrator's rights"
            );
        }
    }
    Ok(())
}

/// Refuses a cluster in which the run would disturb an istio-integrator, or what a run left.
pub(super) async fn free(target: &Target, client: &kube::Client) -> Result<()> {
    let left = left(target).await?;
    ensure!(
        left.is_empty(),
        "an earlier run left {}, or one is under way; when it has ended, remove that with \
         `cargo xtask test --cluster existing --clean-up`",
        left.join(", ")
    );
    let there = installed(target).await?;
    ensure!(
        there.is_empty(),
        "istio-integrator is installed here, in whole or in part: {}; the tests would take it away. Use another cluster, or \
         remove it as docs/how-to/uninstall.md says",
        there.join(", ")
    );
    let generated = generated(target, client).await?;
    ensure!(
        generated.is_empty(),
        "an istio-integrator has generated {}, and may still be at work; use another cluster, or remove that as \
         docs/how-to/uninstall.md says",
        generated.join(", ")
    );
    Ok(())
}

/// Namespaces that a run made, as `namespace/NAME`.
pub(super) async fn left(target: &Target) -> Result<Vec<String>> {
    Ok(lines(&target.ask(&["get", "namespaces", "-l", MARK, "-o", "name"], None).await?))
}

/// Objects of `deploy/integrator` that are there, as `KIND/NAME`.
pub(super) async fn installed(target: &Target) -> Result<Vec<String>> {
    let rendered = target.rendered("deploy/integrator")?;
    let get = ["get", "-f", "-", "--ignore-not-found", "-o", "name"];
    Ok(lines(&target.ask(&get, Some(rendered)).await?))
}

/// What some istio-integrator generated, as `KIND NAMESPACE/NAME`.
pub(super) async fn generated(target: &Target, client: &kube::Client) -> Result<Vec<String>> {
    let group = client.list_api_groups().await?.groups.into_iter().any(|g| g.name == "networking.istio.io");
    if !group {
        return Ok(Vec::new());
    }
    let kinds = "virtualservices.networking.istio.io,envoyfilters.networking.istio.io";
    let label = format!("app.kubernetes.io/managed-by={OWN}");
    let columns = "jsonpath={range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name}{\"\\n\"}{end}";
    Ok(lines(&target.ask(&["get", kinds, "-A", "-l", &label, "-o", columns], None).await?))
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}
