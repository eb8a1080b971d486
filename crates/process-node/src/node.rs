//! The Node object, its status and its Lease.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{
    DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeStatus, NodeSystemInfo,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference, Time};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use process_node::config::{KUBELET_PORT, NodeConfig};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tracing::{info, warn};

use crate::images::{architecture, hex};

/// Namespace of the Leases by which nodes say that they live.
const LEASE_NAMESPACE: &str = "kube-node-lease";
/// kubelet's `nodeLeaseDurationSeconds`.
const LEASE_SECONDS: i32 = 40;
/// A quarter of it, as kubelet renews.
const RENEW_EVERY: Duration = Duration::from_secs(10);
/// Every how many renewals the status is written too.
const STATUS_EVERY: u32 = 6;
/// Pause after a failed write.
const RETRY: Duration = Duration::from_secs(1);

/// What this node offers. More than it has: the scheduler shall never be what a test waits for.
const CAPACITY: [(&str, &str); 4] =
    [("cpu", "64"), ("memory", "64Gi"), ("pods", "500"), ("ephemeral-storage", "256Gi")];

/// What containers get of a resource unless they say otherwise (`resourceFieldRef` without a limit).
///
/// Of processors that is what the machine has, where kubelet gives what the node offers: programs make themselves as many
/// threads. Istio sets `GOMAXPROCS` and Envoy's `--concurrency` from it, and each gateway had 64 workers.
pub(crate) fn without_limit(resource: &str) -> Option<String> {
    if resource == "cpu" {
        return std::thread::available_parallelism().ok().map(|count| count.to_string());
    }
    CAPACITY.iter().find(|(name, _)| *name == resource).map(|(_, quantity)| (*quantity).to_owned())
}

/// Registers the node. Returns when the API server has it as Ready.
pub(crate) async fn register(client: &Client, config: &NodeConfig) -> anyhow::Result<Node> {
    let nodes: Api<Node> = Api::all(client.clone());
    let mut attempts = 0;
    loop {
        match try_register(&nodes, config).await {
            Ok(node) => {
                info!(node = config.node_name, "registered");
                return Ok(node);
            }
            Err(error) if attempts < 120 => warn!(%error, "the node is not registered yet"),
            Err(error) => bail!("register node {}: {error}", config.node_name),
        }
        attempts += 1;
        tokio::time::sleep(RETRY / 2).await;
    }
}

async fn try_register(nodes: &Api<Node>, config: &NodeConfig) -> kube::Result<Node> {
    let name = &config.node_name;
    let labels: BTreeMap<String, String> = [
        ("kubernetes.io/hostname", name.as_str()),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", architecture()),
        ("beta.kubernetes.io/os", "linux"),
        ("beta.kubernetes.io/arch", architecture()),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into();
    if nodes.get_opt(name).await?.is_none() {
        let metadata = ObjectMeta { name: Some(name.clone()), labels: Some(labels), ..ObjectMeta::default() };
        let node = Node { metadata, spec: None, status: Some(status(config)) };
        match nodes.create(&PostParams::default(), &node).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            other => return other,
        }
    }
    write_status(nodes, config).await
}

async fn write_status(nodes: &Api<Node>, config: &NodeConfig) -> kube::Result<Node> {
    let patch = json!({"status": status(config)});
    nodes.patch_status(&config.node_name, &PatchParams::default(), &Patch::Strategic(&patch)).await
}

/// Keeps the node Ready for as long as the program runs.
pub(crate) async fn heartbeat(client: Client, config: NodeConfig, node: Node) {
    let nodes: Api<Node> = Api::all(client.clone());
    let leases: Api<Lease> = Api::namespaced(client, LEASE_NAMESPACE);
    for beat in 1_u32.. {
        if let Err(error) = renew(&leases, &config, &node).await {
            warn!(%error, "the node's lease is not renewed");
            tokio::time::sleep(RETRY).await;
            continue;
        }
        tokio::time::sleep(RENEW_EVERY).await;
        if beat.is_multiple_of(STATUS_EVERY)
            && let Err(error) = write_status(&nodes, &config).await
        {
            warn!(%error, "the node's status is not written");
        }
    }
}

async fn renew(leases: &Api<Lease>, config: &NodeConfig, node: &Node) -> anyhow::Result<()> {
    let name = &config.node_name;
    let now = MicroTime(Timestamp::now());
    let patch = json!({"spec": {"renewTime": now}});
    let patched = leases.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await;
    match patched {
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        other => return other.map(drop).context("renew it"),
    }
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: name.clone(),
        uid: node.uid().context("the Node has no uid")?,
        ..OwnerReference::default()
    };
    let lease = Lease {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(name.clone()),
            lease_duration_seconds: Some(LEASE_SECONDS),
            renew_time: Some(now),
            ..LeaseSpec::default()
        }),
    };
    leases.create(&PostParams::default(), &lease).await.map(drop).context("create it")
}

fn status(config: &NodeConfig) -> NodeStatus {
    let quantities: BTreeMap<_, _> = CAPACITY
        .iter()
        .map(|(name, quantity)| ((*name).to_owned(), Quantity((*quantity).to_owned())))
        .collect();
    NodeStatus {
        // No `Hostname`: the API server would prefer it to reach the kubelet API, and nothing resolves it.
        addresses: Some(vec![NodeAddress {
            type_: "InternalIP".to_owned(),
            address: config.node_ip.to_string(),
        }]),
        capacity: Some(quantities.clone()),
        allocatable: Some(quantities),
        conditions: Some(conditions()),
        daemon_endpoints: Some(NodeDaemonEndpoints {
            kubelet_endpoint: Some(DaemonEndpoint { port: i32::from(KUBELET_PORT) }),
        }),
        node_info: Some(node_info(config)),
        ..NodeStatus::default()
    }
}

fn conditions() -> Vec<NodeCondition> {
    let now = Timestamp::now();
    // The node becomes ready once, at its start, and stays so until it is gone.
    let condition = |kind: &str, status: &str, reason: &str, message: &str| NodeCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_heartbeat_time: Some(Time(now)),
        last_transition_time: Some(Time(started())),
    };
    vec![
        condition(
            "MemoryPressure",
            "False",
            "KubeletHasSufficientMemory",
            "kubelet has sufficient memory available",
        ),
        condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    ]
}

/// When this program asked first; near enough to its start.
fn started() -> Timestamp {
    static STARTED: std::sync::OnceLock<Timestamp> = std::sync::OnceLock::new();
    *STARTED.get_or_init(Timestamp::now)
}

fn node_info(config: &NodeConfig) -> NodeSystemInfo {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let id = hex(&Sha256::digest(config.node_name.as_bytes())[..16]);
    NodeSystemInfo {
        architecture: architecture().to_owned(),
        boot_id: read("/proc/sys/kernel/random/boot_id"),
        container_runtime_version: format!("process://{}", env!("CARGO_PKG_VERSION")),
        kernel_version: read("/proc/sys/kernel/osrelease"),
        kubelet_version: config.kubelet_version.clone(),
        machine_id: id.clone(),
        operating_system: "linux".to_owned(),
        os_image: "plain processes".to_owned(),
        system_uuid: id,
        ..NodeSystemInfo::default()
    }
}
