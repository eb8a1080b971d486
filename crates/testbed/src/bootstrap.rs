//! What every cluster holds from its first second: credentials files, the node's rights, the DNS Service.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::{Node, Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{Api, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

/// A client for the cluster that a kubeconfig file names.
pub async fn client(kubeconfig: &Path) -> Result<kube::Client> {
    crate::install_crypto();
    let file = Kubeconfig::read_from(kubeconfig).with_context(|| format!("read {}", kubeconfig.display()))?;
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    Ok(kube::Client::try_from(config)?)
}

/// The text of a kubeconfig with the credentials inside, so that the file can be copied anywhere.
pub(crate) fn kubeconfig(server: &str, ca: &str, cert: &str, key: &str) -> String {
    let b64 = |text: &str| json!(k8s_openapi::ByteString(text.as_bytes().to_vec()));
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "testbed",
        "clusters": [{"name": "testbed", "cluster": {"server": server, "certificate-authority-data": b64(ca)}}],
        "users": [{"name": "testbed", "user": {
            "client-certificate-data": b64(cert), "client-key-data": b64(key)}}],
        "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": "testbed"}}],
    });
    // JSON is YAML; the indented form is for the person who opens the file.
    format!("{config:#}\n")
}

async fn put<K>(api: &Api<K>, name: &str, object: serde_json::Value) -> Result<()>
where
    K: Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let params = PatchParams::apply("testbed").force();
    api.patch(name, &params, &Patch::Apply(object)).await.with_context(|| format!("create {name}"))?;
    Ok(())
}

/// Creates what a distribution's installer would: the node's role binding and the DNS Service.
pub(crate) async fn cluster_objects(client: &kube::Client, dns_ip: &str) -> Result<()> {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "testbed:nodes"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}],
    });
    put(&Api::<ClusterRoleBinding>::all(client.clone()), "testbed:nodes", binding).await?;
    let dns = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kube-dns", "namespace": "kube-system"},
        "spec": {"clusterIP": dns_ip, "ports": [
            {"name": "dns", "port": 53, "protocol": "UDP"},
            {"name": "dns-tcp", "port": 53, "protocol": "TCP"}]},
    });
    // The kube-system namespace is made by the API server shortly after it is ready.
    let services = Api::<Service>::namespaced(client.clone(), "kube-system");
    retry(Duration::from_secs(20), || put(&services, "kube-dns", dns.clone())).await?;
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), "default");
    retry(Duration::from_secs(20), || async { Ok(accounts.get("default").await.map(|_| ())?) }).await
}

async fn retry<F, Fut>(limit: Duration, mut work: F) -> Result<()>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<()>>,
{
    let deadline = Instant::now() + limit;
    loop {
        match work().await {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Waits until the node says Ready.
pub(crate) async fn node_ready(client: &kube::Client, name: &str, limit: Duration) -> Result<()> {
    let nodes = Api::<Node>::all(client.clone());
    retry(limit, || async {
        let node = nodes.get(name).await?;
        let conditions = node.status.and_then(|s| s.conditions).unwrap_or_default();
        if !conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True") {
            bail!("node {name} is not Ready");
        }
        // The node controller lifts this taint a moment after the first heartbeat; pods wait for it.
        let taints = node.spec.and_then(|s| s.taints).unwrap_or_default();
        if let Some(taint) = taints.first() {
            bail!("node {name} still has the taint {}", taint.key);
        }
        Ok(())
    })
    .await
}
