//! The node's network: a bridge with a pair of virtual interfaces for each pod, and routes that make whole
//! networks local.
//!
//! A `local` route for a whole network makes the kernel accept every address of it as its own, so that the
//! service proxy can listen on a ClusterIP without configuring it on an interface.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Context as _, anyhow};
use futures::TryStreamExt as _;
use process_node::config::{Ipv4Cidr, NodeConfig};
use rtnetlink::packet_core::ErrorMessage;
use rtnetlink::packet_route::link::{InfoData, InfoKind, InfoVeth, LinkAttribute};
use rtnetlink::packet_route::route::{RouteScope, RouteType};
use rtnetlink::{Error, Handle, LinkBridge, LinkMessageBuilder, LinkUnspec, LinkVeth, RouteMessageBuilder};
use tracing::debug;

/// The kernel's table of local and broadcast addresses (`RT_TABLE_LOCAL`).
const LOCAL_TABLE: u32 = 255;

const NO_SUCH_DEVICE: i32 = 19;
const EXISTS: i32 = 17;

/// Netlink in the current network namespace.
#[derive(Clone)]
pub(crate) struct Network {
    handle: Handle,
}

impl Network {
    /// Opens netlink in the calling thread's network namespace. Needs a running tokio runtime.
    pub(crate) fn open() -> anyhow::Result<Self> {
        let (connection, handle, _) = rtnetlink::new_connection().context("open a netlink socket")?;
        tokio::spawn(connection);
        Ok(Self { handle })
    }

    /// The index of an interface, none if there is no such interface.
    async fn index(&self, name: &str) -> anyhow::Result<Option<u32>> {
        let found = self.handle.link().get().match_name(name).execute().try_next().await;
        match found {
            Ok(link) => Ok(link.map(|link| link.header.index)),
            Err(Error::NetlinkError(error)) if is(&error, NO_SUCH_DEVICE) => Ok(None),
            Err(error) => Err(anyhow!("look for interface {name}: {error}")),
        }
    }

    async fn existing(&self, name: &str) -> anyhow::Result<u32> {
        self.index(name).await?.with_context(|| format!("there is no interface {name}"))
    }

    /// Sets an interface up.
    pub(crate) async fn up(&self, name: &str) -> anyhow::Result<()> {
        let message = LinkUnspec::new_with_name(name).up().build();
        self.handle.link().set(message).execute().await.map_err(|error| anyhow!("set {name} up: {error}"))
    }

    /// Gives an interface an address; that it has it already is fine.
    pub(crate) async fn add_address(&self, name: &str, address: Ipv4Addr, prefix: u8) -> anyhow::Result<()> {
        let index = self.existing(name).await?;
        let added = self.handle.address().add(index, IpAddr::V4(address), prefix).execute().await;
        ignore(EXISTS, added).map_err(|error| anyhow!("add {address}/{prefix} to {name}: {error}"))
    }

    /// Routes everything not known otherwise to `gateway`.
    pub(crate) async fn add_default_route(&self, gateway: Ipv4Addr) -> anyhow::Result<()> {
        let route = RouteMessageBuilder::<Ipv4Addr>::new().gateway(gateway).build();
        let added = self.handle.route().add(route).execute().await;
        ignore(EXISTS, added).map_err(|error| anyhow!("add a default route by {gateway}: {error}"))
    }

    /// Makes every address of `network` this host's own.
    async fn add_any_ip(&self, network: Ipv4Cidr) -> anyhow::Result<()> {
        let route = RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(network.address(), network.prefix())
            .output_interface(self.existing("lo").await?)
            .table_id(LOCAL_TABLE)
            .kind(RouteType::Local)
            .scope(RouteScope::Host)
            .build();
        let added = self.handle.route().add(route).execute().await;
        ignore(EXISTS, added).map_err(|error| anyhow!("add the local route for {network}: {error}"))
    }

    /// Creates a pair of interfaces: `host_side` on the bridge, and `eth0` in the network namespace of process `pid`.
    /// The latter's hardware address follows from `address`, so that who has known an earlier pod of that address
    /// reaches this one.
    pub(crate) async fn attach(
        &self,
        bridge: &str,
        host_side: &str,
        pid: u32,
        address: Ipv4Addr,
    ) -> anyhow::Result<()> {
        let bridge_index = self.existing(bridge).await?;
        self.detach(host_side).await?;
        let mut peer = LinkMessageBuilder::<LinkUnspec>::default()
            .name("eth0")
            .address(hardware_address(address))
            .build();
        peer.attributes.push(LinkAttribute::NetNsPid(pid));
        let pair = LinkMessageBuilder::<LinkVeth>::new_with_info_kind(InfoKind::Veth)
            .name(host_side)
            .set_info_data(InfoData::Veth(InfoVeth::Peer(peer)))
            .controller(bridge_index)
            .up()
            .build();
        self.handle
            .link()
            .add(pair)
            .execute()
            .await
            .map_err(|error| anyhow!("create interface {host_side} on {bridge}: {error}"))
    }

    /// Removes an interface and with it the other one of its pair. That it is gone already is fine.
    pub(crate) async fn detach(&self, host_side: &str) -> anyhow::Result<()> {
        let Some(index) = self.index(host_side).await? else { return Ok(()) };
        let removed = self.handle.link().del(index).execute().await;
        ignore(NO_SUCH_DEVICE, removed).map_err(|error| anyhow!("remove interface {host_side}: {error}"))
    }
}

fn is(error: &ErrorMessage, errno: i32) -> bool {
    error.raw_code().abs() == errno
}

fn ignore(errno: i32, result: Result<(), Error>) -> Result<(), Error> {
    match result {
        Err(Error::NetlinkError(error)) if is(&error, errno) => Ok(()),
        other => other,
    }
}

/// A locally administered Ethernet address for the holder of `address`.
fn hardware_address(address: Ipv4Addr) -> Vec<u8> {
    [&[0x02, 0x00], address.octets().as_slice()].concat()
}

/// Prepares the namespace that the cluster lives in: loopback, bridge, the node's address, and routes that make
/// addresses of Services and load balancers local. Safe to repeat.
pub(crate) async fn prepare_host(config: &NodeConfig) -> anyhow::Result<()> {
    let network = Network::open()?;
    network.up("lo").await?;
    if network.index(&config.bridge).await?.is_none() {
        // Left to itself a bridge takes the lowest address of its ports, and so changes its own as pods come and go:
        // pods would send to the old one until they ask again, up to a minute later.
        let bridge = LinkBridge::new(&config.bridge).address(hardware_address(config.node_ip)).build();
        let added = network.handle.link().add(bridge).execute().await;
        ignore(EXISTS, added).map_err(|error| anyhow!("create bridge {}: {error}", config.bridge))?;
    }
    network.up(&config.bridge).await?;
    network.add_address(&config.bridge, config.node_ip, config.pod_cidr.prefix()).await?;
    network.add_any_ip(config.service_cidr).await?;
    network.add_any_ip(config.load_balancer_cidr).await?;
    // Pods reach each other over the bridge and Services at the node, so nothing here depends on forwarding, and
    // some containers mount /proc/sys read-only.
    if let Err(error) = fs::write("/proc/sys/net/ipv4/ip_forward", "1") {
        debug!(%error, "ip_forward stays as it is");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_named_error_is_ignored() {
        let error = |code: i32| {
            let mut message = ErrorMessage::default();
            message.code = std::num::NonZeroI32::new(-code);
            Err(Error::NetlinkError(message))
        };
        assert!(ignore(EXISTS, error(EXISTS)).is_ok());
        assert!(ignore(EXISTS, error(NO_SUCH_DEVICE)).is_err());
    }
}
