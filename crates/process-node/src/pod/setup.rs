//! What a pod needs before its containers: volumes, an address, a sandbox, and the files that name things.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use kube::ResourceExt as _;
use process_node::config::NodeConfig;
use sha2::{Digest as _, Sha256};

use super::Context;
use crate::container::spec::Mount;
use crate::images::hex;
use crate::sandbox::{Sandbox, SandboxSpec};
use crate::volume::Volumes;

/// Kubernetes' limit for host names.
const LONGEST_HOSTNAME: usize = 63;

/// What a pod's containers share.
pub(super) struct Base {
    /// The pod's directory.
    pub(super) directory: PathBuf,
    /// The pod's address.
    pub(super) address: Ipv4Addr,
    /// Its host name.
    pub(super) hostname: String,
    /// The sandbox process; none on the host network and for stand-ins.
    pub(super) sandbox: Option<u32>,
    /// Its volumes; none if all its containers are stand-ins.
    pub(super) volumes: Option<Arc<Volumes>>,
    /// `/etc/hosts` and the like.
    pub(super) etc: Vec<Mount>,
}

/// What has to be taken down at last.
pub(super) struct Holdings {
    /// The pod's address, if it is its own.
    address: Option<Ipv4Addr>,
    sandbox: Option<Sandbox>,
    interface: String,
}

/// Why a pod cannot start.
pub(super) struct SetupError {
    /// The reason of the Event.
    pub(super) reason: &'static str,
    /// Its message.
    pub(super) message: String,
}

/// Sets a pod up. After an error nothing is left but its directory.
pub(super) async fn set_up(cx: &Context, pod: &Pod) -> Result<(Base, Holdings), SetupError> {
    let uid = pod.uid().unwrap_or_default();
    let directory = cx.pod_dir(&uid);
    let hostname = hostname(pod);
    let interface = format!("veth{}", &hex(&Sha256::digest(uid.as_bytes()))[..10]);
    let host_network = pod.spec.as_ref().and_then(|spec| spec.host_network).unwrap_or(false);
    let stand_ins_only = containers(pod).all(|image| cx.images.is_stand_in(image));
    let sandbox_failed = |error: &anyhow::Error| SetupError {
        reason: "FailedCreatePodSandBox",
        message: format!("Failed to create pod sandbox: {error:#}"),
    };

    let own_address = if host_network {
        None
    } else {
        let taken = cx.addresses().take();
        Some(taken.context("no address is left in pod_cidr").map_err(|error| sandbox_failed(&error))?)
    };
    let address = own_address.unwrap_or(cx.config.node_ip);
    let mut holdings = Holdings { address: own_address, sandbox: None, interface };
    let mut base = Base { directory, address, hostname, sandbox: None, volumes: None, etc: Vec::new() };
    if stand_ins_only {
        return Ok((base, holdings));
    }
    let volumes = Arc::new(Volumes::new(
        &cx.client,
        &cx.objects,
        base.directory.join("volumes"),
        &cx.config.state_dir,
        cx.config.node_ip,
    ));
    if let Err(error) = volumes.sync(pod, Some(address)).await {
        volumes.unmount();
        holdings.release(cx).await;
        return Err(SetupError { reason: "FailedMount", message: format!("{error:#}") });
    }
    let prepared = async {
        base.etc = write_etc(&base, pod, &cx.config)?;
        if !host_network {
            let spec = SandboxSpec {
                hostname: base.hostname.clone(),
                address,
                prefix: cx.config.pod_cidr.prefix(),
                gateway: cx.config.node_ip,
            };
            let sandbox = Sandbox::start(&cx.network, &cx.config.bridge, &holdings.interface, &spec).await?;
            base.sandbox = Some(sandbox.pid);
            holdings.sandbox = Some(sandbox);
        }
        anyhow::Ok(())
    };
    if let Err(error) = prepared.await {
        volumes.unmount();
        holdings.release(cx).await;
        return Err(sandbox_failed(&error));
    }
    base.volumes = Some(volumes);
    Ok((base, holdings))
}

impl Holdings {
    /// Takes the sandbox down and gives the address back.
    pub(super) async fn release(self, cx: &Context) {
        if let Some(sandbox) = self.sandbox {
            sandbox.stop().await;
            // The kernel removes the interface by itself when the namespace is gone, but not at once.
            if let Err(error) = cx.network.detach(&self.interface).await {
                tracing::warn!(
                    interface = self.interface,
                    error = format!("{error:#}"),
                    "an interface is left"
                );
            }
        }
        if let Some(address) = self.address {
            cx.addresses().give_back(address);
        }
    }
}

fn containers(pod: &Pod) -> impl Iterator<Item = &str> {
    let spec = pod.spec.iter();
    let all = spec.flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
    all.map(|container| container.image.as_deref().unwrap_or_default())
}

fn hostname(pod: &Pod) -> String {
    let own = pod.spec.as_ref().and_then(|spec| spec.hostname.clone()).unwrap_or_else(|| pod.name_any());
    own.chars().take(LONGEST_HOSTNAME).collect::<String>().trim_end_matches(['-', '.']).to_owned()
}

fn write_etc(base: &Base, pod: &Pod, config: &NodeConfig) -> anyhow::Result<Vec<Mount>> {
    let directory = base.directory.join("etc");
    fs::create_dir_all(&directory)?;
    let namespace = pod.namespace().unwrap_or_default();
    let default = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&default);
    let files = [
        ("hosts", hosts(base, spec, &namespace, &config.cluster_domain)),
        ("hostname", format!("{}\n", base.hostname)),
        ("resolv.conf", resolv_conf(spec, &namespace, config)),
    ];
    let mut mounts = Vec::new();
    for (name, text) in files {
        let source = directory.join(name);
        fs::write(&source, text).with_context(|| format!("write {}", source.display()))?;
        mounts.push(Mount { source, target: Path::new("/etc").join(name), read_only: false });
    }
    Ok(mounts)
}

fn hosts(base: &Base, spec: &PodSpec, namespace: &str, domain: &str) -> String {
    let mut text =
        "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost\n".to_owned();
    let name = &base.hostname;
    let names = match spec.subdomain.as_deref().filter(|subdomain| !subdomain.is_empty()) {
        Some(subdomain) => format!("{name}.{subdomain}.{namespace}.svc.{domain}\t{name}"),
        None => name.clone(),
    };
    let mut line = |address: &dyn std::fmt::Display, names: &str| {
        text.extend([&address.to_string(), "\t", names, "\n"]);
    };
    line(&base.address, &names);
    for alias in spec.host_aliases.iter().flatten() {
        let names = alias.hostnames.iter().flatten().map(String::as_str).collect::<Vec<_>>().join("\t");
        line(&alias.ip, &names);
    }
    text
}

/// The resolver's configuration by `dnsPolicy` and `dnsConfig`. The node has no DNS of its own, so `Default` means
/// the cluster's server without its search path.
fn resolv_conf(spec: &PodSpec, namespace: &str, config: &NodeConfig) -> String {
    let policy = spec.dns_policy.as_deref().unwrap_or("ClusterFirst");
    let on_host = spec.host_network.unwrap_or(false);
    let (mut servers, mut search, mut options) = match policy {
        "None" => (Vec::new(), Vec::new(), Vec::new()),
        "ClusterFirstWithHostNet" => cluster_dns(namespace, config),
        "ClusterFirst" if !on_host => cluster_dns(namespace, config),
        _ => (vec![config.dns_ip.to_string()], Vec::new(), Vec::new()),
    };
    if let Some(own) = &spec.dns_config {
        servers.extend(own.nameservers.iter().flatten().cloned());
        search.extend(own.searches.iter().flatten().cloned());
        for option in own.options.iter().flatten() {
            let Some(name) = &option.name else { continue };
            options.retain(|(known, _)| known != name);
            options.push((name.clone(), option.value.clone()));
        }
    }
    let option = |(name, value): (String, Option<String>)| match value {
        Some(value) => format!("{name}:{value}"),
        None => name,
    };
    let options: Vec<_> = options.into_iter().map(option).collect();
    let mut lines = Vec::new();
    if !search.is_empty() {
        lines.push(format!("search {}\n", search.join(" ")));
    }
    lines.extend(servers.iter().map(|server| format!("nameserver {server}\n")));
    if !options.is_empty() {
        lines.push(format!("options {}\n", options.join(" ")));
    }
    lines.concat()
}

type Resolver = (Vec<String>, Vec<String>, Vec<(String, Option<String>)>);

fn cluster_dns(namespace: &str, config: &NodeConfig) -> Resolver {
    let domain = &config.cluster_domain;
    let search = vec![format!("{namespace}.svc.{domain}"), format!("svc.{domain}"), domain.clone()];
    (vec![config.dns_ip.to_string()], search, vec![("ndots".to_owned(), Some("5".to_owned()))])
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn config() -> NodeConfig {
        serde_json::from_value(json!({
            "node_name": "node", "kubelet_version": "v1.35.4", "node_ip": "10.244.0.1",
            "pod_cidr": "10.244.0.0/16", "service_cidr": "10.96.0.0/16", "load_balancer_cidr": "10.97.0.0/16",
            "dns_ip": "10.96.0.10", "kubeconfig": "k", "state_dir": "s", "serving_cert": "c", "serving_key": "k",
            "client_ca": "a", "images": "i",
        }))
        .unwrap()
    }

    fn resolver(mut spec: Value) -> String {
        spec["containers"] = json!([]);
        resolv_conf(&serde_json::from_value(spec).unwrap(), "ns", &config())
    }

    #[test]
    fn dns_policies() {
        let cluster = "search ns.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.96.0.10\n";
        assert_eq!(resolver(json!({})), format!("{cluster}options ndots:5\n"));
        assert_eq!(resolver(json!({"hostNetwork": true})), "nameserver 10.96.0.10\n");
        let host = json!({"hostNetwork": true, "dnsPolicy": "ClusterFirstWithHostNet"});
        assert_eq!(resolver(host), format!("{cluster}options ndots:5\n"));
        let own = json!({"dnsPolicy": "None", "dnsConfig": {"nameservers": ["1.2.3.4"], "searches": ["x"],
                         "options": [{"name": "ndots", "value": "1"}, {"name": "rotate"}]}});
        assert_eq!(resolver(own), "search x\nnameserver 1.2.3.4\noptions ndots:1 rotate\n");
        let changed = json!({"dnsConfig": {"options": [{"name": "ndots", "value": "2"}]}});
        assert_eq!(resolver(changed), format!("{cluster}options ndots:2\n"));
    }

    #[test]
    fn host_names_are_cut_and_listed() {
        let pod =
            |name: &str| -> Pod { serde_json::from_value(json!({"metadata": {"name": name}})).unwrap() };
        assert_eq!(hostname(&pod("web-0")), "web-0");
        assert_eq!(hostname(&pod(&format!("{}-tail", "a".repeat(62)))), "a".repeat(62));
        let base = Base {
            directory: PathBuf::new(),
            address: Ipv4Addr::new(10, 244, 0, 2),
            hostname: "web-0".to_owned(),
            sandbox: None,
            volumes: None,
            etc: Vec::new(),
        };
        let spec = json!({"containers": [], "subdomain": "web",
                          "hostAliases": [{"ip": "1.2.3.4", "hostnames": ["a", "b"]}]});
        let text = hosts(&base, &serde_json::from_value(spec).unwrap(), "ns", "cluster.local");
        assert!(
            text.contains("10.244.0.2\tweb-0.web.ns.svc.cluster.local\tweb-0\n1.2.3.4\ta\tb\n"),
            "{text}"
        );
    }
}
