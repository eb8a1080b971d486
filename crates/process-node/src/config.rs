//! The node's configuration file and the image map, both JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// An IPv4 network such as `10.244.0.0/16`. In JSON a string. The address is the network's own: host bits are
/// refused, since they are nearly always a slip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Cidr {
    address: Ipv4Addr,
    prefix: u8,
}

impl Ipv4Cidr {
    /// The network's first address.
    pub fn address(self) -> Ipv4Addr {
        self.address
    }

    /// The number of leading bits that all its addresses share, 0 to 32.
    pub fn prefix(self) -> u8 {
        self.prefix
    }

    /// Whether `address` lies in this network.
    pub fn contains(self, address: Ipv4Addr) -> bool {
        u32::from(address) & self.mask() == u32::from(self.address)
    }

    /// The `n`-th address, counted from the network's own address; none past its end.
    pub fn nth(self, n: u32) -> Option<Ipv4Addr> {
        let address = Ipv4Addr::from(u32::from(self.address).checked_add(n)?);
        self.contains(address).then_some(address)
    }

    /// How many addresses it has, the network's and the broadcast address included, at most `u32::MAX`.
    pub fn size(self) -> u32 {
        u32::MAX.checked_shr(u32::from(self.prefix)).map_or(1, |hosts| hosts.saturating_add(1))
    }

    fn mask(self) -> u32 {
        u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0)
    }
}

impl FromStr for Ipv4Cidr {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (address, prefix) =
            text.split_once('/').with_context(|| format!("{text:?} is no network: write ADDRESS/PREFIX"))?;
        let network = Self {
            address: address.parse().with_context(|| format!("{text:?} has no IPv4 address"))?,
            prefix: prefix.parse().with_context(|| format!("{text:?} has no prefix length"))?,
        };
        ensure!(network.prefix <= 32, "{text:?} has a prefix length above 32");
        ensure!(
            network.contains(network.address),
            "{text:?} has host bits set: name the network's own address"
        );
        Ok(network)
    }
}

impl fmt::Display for Ipv4Cidr {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address, self.prefix)
    }
}

impl Serialize for Ipv4Cidr {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Ipv4Cidr {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|error: anyhow::Error| de::Error::custom(format!("{error:#}")))
    }
}

/// What `process-node --config FILE` reads. Networks must not overlap.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeConfig {
    /// Name of the Node object, and the value of `spec.nodeName` of the Pods to run.
    pub node_name: String,
    /// `status.nodeInfo.kubeletVersion`, such as `v1.35.4`. istiod decides by it whether it injects its proxy as a
    /// restartable init container.
    pub kubelet_version: String,
    /// Name of the bridge that pods hang on. `cbr0` unless there is a reason.
    #[serde(default = "default_bridge")]
    pub bridge: String,
    /// The node's address, on the bridge, inside `pod_cidr`. The kubelet API listens on its port 10250.
    pub node_ip: Ipv4Addr,
    /// Network of the pods' addresses.
    pub pod_cidr: Ipv4Cidr,
    /// kube-apiserver's `--service-cluster-ip-range`.
    pub service_cidr: Ipv4Cidr,
    /// Network from which Services of type `LoadBalancer` get their address.
    pub load_balancer_cidr: Ipv4Cidr,
    /// Where cluster DNS answers, inside `service_cidr`; the address of the kube-dns Service, if there is one.
    pub dns_ip: Ipv4Addr,
    /// The DNS domain of the cluster, without a trailing dot.
    #[serde(default = "default_cluster_domain")]
    pub cluster_domain: String,
    /// Kubeconfig of a user that may read Pods, Services, `EndpointSlices`, `ConfigMaps` and Secrets in all namespaces,
    /// write Nodes, Leases, Events, and the status of Pods and Services, delete Pods, and request tokens.
    pub kubeconfig: PathBuf,
    /// Directory for volumes, logs and unpacked images. Emptied of earlier pods at start.
    pub state_dir: PathBuf,
    /// PEM file with the kubelet API's certificate chain, valid for `node_ip`.
    pub serving_cert: PathBuf,
    /// PEM file with its private key.
    pub serving_key: PathBuf,
    /// PEM file with the CA that signs the client certificates which the kubelet API demands.
    pub client_ca: PathBuf,
    /// JSON file holding an [`ImageMap`], read at every image pull.
    pub images: PathBuf,
    /// First delay of the back-off for crashed containers and failed image pulls, in seconds. It doubles up to five
    /// minutes. Default 10, as kubelet's; tests that wait for a second restart choose less.
    #[serde(default = "default_restart_backoff")]
    pub restart_backoff_seconds: f64,
}

fn default_bridge() -> String {
    "cbr0".to_owned()
}

fn default_cluster_domain() -> String {
    "cluster.local".to_owned()
}

fn default_restart_backoff() -> f64 {
    10.0
}

/// The port of the kubelet API on `node_ip`; Kubernetes' default.
pub const KUBELET_PORT: u16 = 10250;

impl NodeConfig {
    /// Reads and checks a configuration file.
    pub fn load(path: &Path) -> anyhow::Result<Self> {
        let config: Self = read_json(path)?;
        config.check().with_context(|| format!("node configuration {}", path.display()))?;
        Ok(config)
    }

    /// [`Self::restart_backoff_seconds`] as a duration.
    pub fn restart_backoff(&self) -> Duration {
        Duration::try_from_secs_f64(self.restart_backoff_seconds).unwrap_or(Duration::from_secs(10))
    }

    fn check(&self) -> anyhow::Result<()> {
        ensure!(
            self.pod_cidr.contains(self.node_ip),
            "node_ip {} lies outside pod_cidr {}",
            self.node_ip,
            self.pod_cidr
        );
        ensure!(
            self.service_cidr.contains(self.dns_ip),
            "dns_ip {} lies outside service_cidr {}",
            self.dns_ip,
            self.service_cidr
        );
        ensure!(
            !self.bridge.is_empty() && self.bridge.len() < 16,
            "bridge {:?} is no interface name: 1 to 15 characters",
            self.bridge
        );
        let networks = [
            ("pod_cidr", self.pod_cidr),
            ("service_cidr", self.service_cidr),
            ("load_balancer_cidr", self.load_balancer_cidr),
        ];
        for (at, (name, one)) in networks.iter().enumerate() {
            for (other_name, other) in &networks[at + 1..] {
                if one.contains(other.address()) || other.contains(one.address()) {
                    bail!("{name} {one} overlaps {other_name} {other}");
                }
            }
        }
        ensure!(
            self.restart_backoff_seconds > 0.0
                && Duration::try_from_secs_f64(self.restart_backoff_seconds).is_ok(),
            "restart_backoff_seconds {} is no positive number of seconds",
            self.restart_backoff_seconds
        );
        Ok(())
    }
}

/// Which image is which program. What no rule matches cannot be pulled: its Pod waits with `ImagePullBackOff`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageMap {
    /// Every image, those of init containers included, is a stand-in, whatever the rules say. For tests that count
    /// API calls rather than traffic.
    #[serde(default)]
    pub stand_in_all: bool,
    /// The first rule whose pattern matches decides.
    #[serde(default)]
    pub rules: Vec<ImageRule>,
}

impl ImageMap {
    /// Reads an image map. A file that does not exist is an error: it is never meant.
    pub fn load(path: &Path) -> anyhow::Result<Self> {
        read_json(path)
    }

    /// What an image reference, such as `docker.io/istio/pilot:1.31.1`, stands for; none if no rule matches.
    pub fn find(&self, image: &str) -> Option<&ImageSource> {
        if self.stand_in_all {
            return Some(&ImageSource::StandIn);
        }
        self.rules.iter().find(|rule| glob_matches(&rule.pattern, image)).map(|rule| &rule.source)
    }
}

/// One line of the image map.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageRule {
    /// Matched against the whole image reference as the Pod spells it; `*` stands for any characters, `/` and `:`
    /// included.
    pub pattern: String,
    /// What runs.
    pub source: ImageSource,
}

/// Where a container's root directory and program come from. Every field but those without a default may be left
/// out in JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", deny_unknown_fields)]
pub enum ImageSource {
    /// Programs of this machine, in a root of their own that holds the C library's directories, CA certificates and
    /// what is listed here.
    Host {
        /// Path in the container to file or directory on this machine, bound read-only.
        #[serde(default)]
        files: BTreeMap<PathBuf, PathBuf>,
        /// The image's entrypoint; a Pod's `command` replaces it and `cmd`.
        #[serde(default)]
        entrypoint: Vec<String>,
        /// The image's default arguments; a Pod's `args` replace them.
        #[serde(default)]
        cmd: Vec<String>,
        /// The image's environment; a Pod's `env` wins.
        #[serde(default)]
        env: BTreeMap<String, String>,
        /// The image's working directory, `/` if none.
        #[serde(default)]
        working_dir: Option<PathBuf>,
        /// Directories that exist in the image, empty and writable.
        #[serde(default)]
        writable: Vec<PathBuf>,
        /// Also binds this machine's `/bin`, `/sbin`, `/usr/bin` and `/usr/sbin`, for `sh` and the like.
        #[serde(default)]
        shell: bool,
    },
    /// An OCI image layout in a tar file, for this machine's architecture. Its `User` is not honoured: one uid is
    /// all there is.
    OciArchive {
        /// The tar file.
        path: PathBuf,
    },
    /// No process at all: running and ready at once; as an init container, completed at once.
    StandIn,
}

/// Whether `text` as a whole matches `pattern`, in which `*` stands for any characters, none included.
fn glob_matches(pattern: &str, text: &str) -> bool {
    let mut pieces = pattern.split('*');
    let Some(mut rest) = pieces.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let Some(last) = pieces.next_back() else { return rest.is_empty() };
    for piece in pieces {
        match rest.find(piece) {
            Some(at) => rest = &rest[at + piece.len()..],
            None => return false,
        }
    }
    rest.len() >= last.len() && rest.ends_with(last)
}

fn read_json<T: DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let bytes = std::fs::read(path).with_context(|| format!("read {}", path.display()))?;
    serde_json::from_slice(&bytes).with_context(|| format!("{} is not what it should hold", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_whole_references() {
        for (pattern, text, expected) in [
            ("*/pilot:*", "docker.io/istio/pilot:1.31.1", true),
            ("*/pilot:*", "docker.io/istio/pilot", false),
            ("*/pilot:1.31.0", "docker.io/istio/pilot:1.31.0-distroless", false),
            ("echo", "echo", true),
            ("echo", "echo2", false),
            ("echo*", "echo", true),
            ("*", "", true),
            ("a*a", "a", false),
            ("a*b*c", "a-c-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("**", "x", true),
        ] {
            assert_eq!(glob_matches(pattern, text), expected, "{pattern} on {text}");
        }
    }

    #[test]
    fn first_rule_wins_and_stand_in_all_wins_over_rules() {
        let archive = |path: &str| ImageSource::OciArchive { path: path.into() };
        let rule = |pattern: &str, source| ImageRule { pattern: pattern.to_owned(), source };
        let mut map = ImageMap {
            stand_in_all: false,
            rules: vec![rule("a*", archive("one")), rule("ab", archive("two"))],
        };
        assert_eq!(map.find("ab"), Some(&archive("one")));
        assert_eq!(map.find("b"), None);
        map.stand_in_all = true;
        assert_eq!(map.find("b"), Some(&ImageSource::StandIn));
    }

    #[test]
    fn networks_contain_what_they_should() {
        let network: Ipv4Cidr = "10.96.0.0/16".parse().unwrap();
        assert!(network.contains(Ipv4Addr::new(10, 96, 255, 255)));
        assert!(!network.contains(Ipv4Addr::new(10, 97, 0, 0)));
        assert_eq!(network.size(), 65536);
        assert_eq!(network.nth(65535), Some(Ipv4Addr::new(10, 96, 255, 255)));
        assert_eq!(network.nth(65536), None);
        assert_eq!("0.0.0.0/0".parse::<Ipv4Cidr>().unwrap().size(), u32::MAX);
        assert_eq!("10.0.0.1/32".parse::<Ipv4Cidr>().unwrap().size(), 1);
        assert!("10.96.0.1/16".parse::<Ipv4Cidr>().is_err());
        assert!("10.96.0.0/33".parse::<Ipv4Cidr>().is_err());
    }

    fn sample() -> serde_json::Value {
        serde_json::json!({
            "node_name": "node", "kubelet_version": "v1.35.4", "node_ip": "10.244.0.1",
            "pod_cidr": "10.244.0.0/16", "service_cidr": "10.96.0.0/16", "load_balancer_cidr": "10.97.0.0/16",
            "dns_ip": "10.96.0.10", "kubeconfig": "k", "state_dir": "s", "serving_cert": "c", "serving_key": "k",
            "client_ca": "a", "images": "i",
        })
    }

    #[test]
    fn defaults_and_checks() {
        let config: NodeConfig = serde_json::from_value(sample()).unwrap();
        config.check().unwrap();
        assert_eq!((config.bridge.as_str(), config.cluster_domain.as_str()), ("cbr0", "cluster.local"));
        assert_eq!(config.restart_backoff(), Duration::from_secs(10));

        for (field, value, complaint) in [
            ("node_ip", "10.1.0.1", "outside pod_cidr"),
            ("dns_ip", "10.97.0.10", "outside service_cidr"),
            ("load_balancer_cidr", "10.96.128.0/17", "overlaps"),
            ("bridge", "a-very-long-bridge-name", "no interface name"),
        ] {
            let mut json = sample();
            json[field] = value.into();
            let error = serde_json::from_value::<NodeConfig>(json).unwrap().check().unwrap_err();
            assert!(error.to_string().contains(complaint), "{field}: {error}");
        }
        let mut json = sample();
        json["pod_cdir"] = "10.0.0.0/8".into();
        assert!(serde_json::from_value::<NodeConfig>(json).is_err());
    }

    #[test]
    fn image_sources_read_from_json() {
        let map: ImageMap = serde_json::from_value(serde_json::json!({"rules": [
            {"pattern": "*", "source": {"type": "Host", "entrypoint": ["/bin/x"], "shell": true}},
            {"pattern": "*", "source": {"type": "StandIn"}},
            {"pattern": "*", "source": {"type": "OciArchive", "path": "/x.tar"}},
        ]}))
        .unwrap();
        assert!(matches!(&map.rules[0].source, ImageSource::Host { shell: true, .. }));
        assert_eq!(serde_json::from_value::<ImageMap>(serde_json::to_value(&map).unwrap()).unwrap(), map);
    }
}
