//! What istiod makes of `Gateways` and `VirtualServices` for one gateway pod: ports, virtual hosts, order of routes.

use std::collections::btree_map::Entry as MapEntry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use mesh_api::istio::{Gateway, GatewayServer, VirtualService};
use thiserror::Error;

use super::host::{Hosts, intersection};
use super::path::PathNormalization;
use super::route::{self, Entries, Route};
use crate::input::ObjectKey;

/// Everything that decides what a gateway pod holds.
#[derive(Clone, Debug)]
pub struct Mesh<'a> {
    /// The pod.
    pub proxy: &'a Proxy,
    /// The DNS domain of the cluster, such as `cluster.local`.
    pub cluster_domain: &'a str,
    /// The Gateways of all namespaces, in any order.
    pub gateways: Vec<&'a Gateway>,
    /// The `VirtualServices` of all namespaces, in any order.
    pub virtual_services: Vec<&'a VirtualService>,
}

/// A pod that runs gateways.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    /// Its namespace, by which `exportTo` is judged.
    pub namespace: String,
    /// Its labels: it runs each Gateway whose selector they meet.
    pub labels: BTreeMap<String, String>,
    /// How it reads paths.
    pub paths: PathNormalization,
}

/// Where a connection comes in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entry {
    /// The port, as the Gateway numbers it.
    pub port: u32,
    /// The server name that the client sends in its TLS handshake, where the port does TLS. Without one the host of the
    /// request is taken, as clients do.
    pub server_name: Option<String>,
}

impl Entry {
    /// A port, with the host of the request as server name where it does TLS.
    pub fn port(port: u32) -> Self {
        Self { port, server_name: None }
    }
}

/// An object that istiod or Envoy would not take, or not understand as it is understood here. What the gateway then does
/// depends on what it held before, and cannot be told.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("VirtualService {object}, {field}: {fault}")]
pub struct Unservable {
    /// The `VirtualService`.
    pub object: ObjectKey,
    /// The field.
    pub field: String,
    /// What is wrong with it.
    pub fault: String,
}

/// A port, or the part of it that one TLS server has.
#[derive(Clone, Debug)]
pub(super) struct Listener {
    pub(super) port: u32,
    /// The server names that lead here; nothing where there is no TLS.
    pub(super) server_names: Option<BTreeSet<String>>,
    pub(super) hosts: Hosts<VirtualHost>,
    pub(super) gateways: BTreeSet<ObjectKey>,
}

/// A host and its routes, in the order in which they are tried.
#[derive(Clone, Debug, Default)]
pub(super) struct VirtualHost {
    pub(super) routes: Vec<Arc<Route>>,
    /// Whether requests without TLS are sent to HTTPS.
    pub(super) redirect: bool,
}

/// A server of a Gateway, with its hosts written out.
struct Server<'a> {
    spec: &'a GatewayServer,
    gateway: ObjectKey,
    /// `host` or `namespace/host`.
    hosts: Vec<String>,
}

/// The servers that share a route table.
struct Table<'a> {
    port: u32,
    tls: bool,
    servers: Vec<Server<'a>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Http,
    Https,
    Other,
}

/// The order of age: `(creationTimestamp, name, namespace)`; what has no timestamp comes first. Not the order in which the
/// integrator decides between requests, which has the namespace before the name.
/// Source: istiod `configCompareByCreationTime`.
fn age(metadata: &ObjectMeta) -> (Option<&Time>, &str, &str) {
    (
        metadata.creation_timestamp.as_ref(),
        metadata.name.as_deref().unwrap_or_default(),
        metadata.namespace.as_deref().unwrap_or_default(),
    )
}

fn key(metadata: &ObjectMeta) -> ObjectKey {
    let (_, name, namespace) = age(metadata);
    ObjectKey::new(namespace, name)
}

/// Everything the pod listens on for HTTP.
pub(super) fn listeners(mesh: &Mesh<'_>) -> Result<Vec<Listener>, Unservable> {
    let mut services = Services::new(mesh);
    let mut listeners = Vec::new();
    for table in tables(mesh) {
        listeners.push(listener(&table, &mut services)?);
    }
    Ok(listeners)
}

/// Which servers end up in one route table. Source: istiod `mergeGateways`, for a Gateway whose ports are those of its
/// pods.
fn tables<'a>(mesh: &Mesh<'a>) -> Vec<Table<'a>> {
    let mut gateways: Vec<&Gateway> = mesh.gateways.clone();
    gateways.retain(|gateway| {
        let mut selector = gateway.spec.selector.iter();
        gateway.metadata.deletion_timestamp.is_none()
            && selector.all(|(label, value)| mesh.proxy.labels.get(label) == Some(value))
    });
    gateways.sort_by(|a, b| age(&a.metadata).cmp(&age(&b.metadata)));
    let mut tables: Vec<Table<'a>> = Vec::new();
    // The first server of a port decides whether it does TLS.
    let mut plain: BTreeMap<u32, bool> = BTreeMap::new();
    let mut tls_hosts: BTreeMap<u32, BTreeSet<String>> = BTreeMap::new();
    let mut tls_names: BTreeSet<(u32, &str, ObjectKey)> = BTreeSet::new();
    for gateway in gateways {
        let of = key(&gateway.metadata);
        for spec in &gateway.spec.servers {
            let hosts: Vec<String> = spec.hosts.iter().map(|host| written_out(host, &of.namespace)).collect();
            let port = spec.port.number;
            if spec.tls.is_some() {
                let known = tls_hosts.entry(port).or_default();
                if hosts.iter().any(|host| known.contains(host)) {
                    continue;
                }
                known.extend(hosts.iter().cloned());
            }
            let protocol = protocol(spec);
            let is_plain = spec.tls.is_none() || protocol == Protocol::Http;
            let port_is_plain = *plain.entry(port).or_insert(is_plain);
            let server = Server { spec, gateway: of.clone(), hosts };
            match (protocol, port_is_plain, is_plain) {
                (Protocol::Http, true, true) => {
                    match tables.iter_mut().find(|table| table.port == port && !table.tls) {
                        Some(table) => table.servers.push(server),
                        None => tables.push(Table { port, tls: false, servers: vec![server] }),
                    }
                }
                (Protocol::Https, false, false)
                    if !passes_through(spec) && tls_names.insert((port, &spec.port.name, of.clone())) =>
                {
                    tables.push(Table { port, tls: true, servers: vec![server] });
                }
                _ => {}
            }
        }
    }
    tables
}

/// Source: istiod `protocol.Parse` and `Instance.IsHTTP`.
fn protocol(server: &GatewayServer) -> Protocol {
    match server.port.protocol.to_ascii_uppercase().as_str() {
        "HTTP" | "HTTP2" | "GRPC" | "GRPC-WEB" | "HTTP_PROXY" => Protocol::Http,
        "HTTPS" => Protocol::Https,
        _ => Protocol::Other,
    }
}

/// A `tls` without a mode means PASSTHROUGH.
fn passes_through(server: &GatewayServer) -> bool {
    server
        .tls
        .as_ref()
        .is_some_and(|tls| matches!(tls.mode.as_str(), "" | "PASSTHROUGH" | "AUTO_PASSTHROUGH"))
}

/// A host of a server without the short forms `./host` and `*/host`. Source: istiod `sanitizeServerHostNamespace`.
fn written_out(host: &str, namespace: &str) -> String {
    match host.split_once('/') {
        Some((".", host)) => format!("{namespace}/{host}"),
        Some(("*", host)) => host.to_owned(),
        _ => host.to_owned(),
    }
}

/// Source: istiod `buildGatewayHTTPRouteConfig`.
fn listener(table: &Table<'_>, services: &mut Services<'_>) -> Result<Listener, Unservable> {
    let mut hosts: BTreeMap<String, VirtualHost> = BTreeMap::new();
    for server in &table.servers {
        let redirects = server.spec.tls.as_ref().is_some_and(|tls| tls.https_redirect);
        for service in services.of_gateway(&server.gateway) {
            let namespace = service.metadata.namespace.as_deref().unwrap_or_default();
            let admitted: Vec<String> = server
                .hosts
                .iter()
                .filter_map(|host| match host.split_once('/') {
                    Some((of, host)) => (of == namespace).then(|| host.to_owned()),
                    None => Some(host.clone()),
                })
                .collect();
            let common = intersection(&admitted, &services.hosts_of(service));
            if common.is_empty() {
                continue;
            }
            let entries = services.entries_of(service)?;
            if entries.is_empty() {
                continue;
            }
            for host in common {
                let host = hosts.entry(host.to_ascii_lowercase()).or_default();
                host.routes.extend(entries.iter().cloned());
                host.redirect |= redirects;
            }
        }
        if redirects {
            for host in &server.hosts {
                // Istio keeps `namespace/` here, so that such a host redirects nobody.
                hosts.entry(host.to_ascii_lowercase()).or_default().redirect = true;
            }
        }
    }
    for host in hosts.values_mut() {
        // Stable: routes that catch all go last, in their order. Source: istiod `SortVHostRoutes`.
        host.routes.sort_by_key(|route| route.matcher.catches_all());
    }
    let server_names = table.tls.then(|| {
        let hosts = table.servers.iter().flat_map(|server| &server.hosts);
        hosts.map(|host| host.split_once('/').map_or(host.as_str(), |(_, host)| host).to_owned()).collect()
    });
    Ok(Listener {
        port: table.port,
        server_names,
        hosts: Hosts::new(hosts),
        gateways: table.servers.iter().map(|server| server.gateway.clone()).collect(),
    })
}

/// The `VirtualServices`, and their routes as far as they were needed.
struct Services<'a> {
    mesh: &'a Mesh<'a>,
    /// Those that the pod sees, in the order in which istiod lists them.
    visible: Vec<&'a VirtualService>,
    entries: BTreeMap<ObjectKey, Entries>,
}

impl<'a> Services<'a> {
    /// istiod lists those that are exported to the pod's namespace alone before those that are exported to all, and
    /// within each group the older first. So age does not decide between a private and a public one.
    /// Source: istiod `PushContext.VirtualServicesForGateway`.
    fn new(mesh: &'a Mesh<'a>) -> Self {
        let mut visible: Vec<(Visibility, &VirtualService)> = mesh
            .virtual_services
            .iter()
            .filter(|service| service.metadata.deletion_timestamp.is_none())
            .filter_map(|service| Some((visibility(service, &mesh.proxy.namespace)?, *service)))
            .collect();
        visible.sort_by(|(a_seen, a), (b_seen, b)| {
            a_seen.cmp(b_seen).then_with(|| age(&a.metadata).cmp(&age(&b.metadata)))
        });
        let visible = visible.into_iter().map(|(_, service)| service).collect();
        Self { mesh, visible, entries: BTreeMap::new() }
    }

    fn of_gateway(&self, gateway: &ObjectKey) -> Vec<&'a VirtualService> {
        let attached = |service: &&&VirtualService| {
            let namespace = service.metadata.namespace.as_deref().unwrap_or_default();
            let mut gateways = service.spec.gateways.iter();
            gateways.any(|name| names_gateway(name, namespace, gateway))
        };
        self.visible.iter().filter(attached).copied().collect()
    }

    /// Its hosts, short names made full. Source: istiod `ResolveShortnameToFQDN`.
    fn hosts_of(&self, service: &VirtualService) -> Vec<String> {
        let namespace = service.metadata.namespace.as_deref().unwrap_or_default();
        let hosts = service.spec.hosts.iter();
        hosts.map(|host| route::full_name(host, namespace, self.mesh.cluster_domain)).collect()
    }

    fn entries_of(&mut self, service: &VirtualService) -> Result<Entries, Unservable> {
        match self.entries.entry(key(&service.metadata)) {
            MapEntry::Occupied(known) => Ok(known.get().clone()),
            MapEntry::Vacant(unknown) => {
                let entries = route::entries(unknown.key(), &service.spec, self.mesh.cluster_domain)?;
                Ok(unknown.insert(entries).clone())
            }
        }
    }
}

/// How a `VirtualService` reaches a pod, in the order of preference.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Visibility {
    /// It is exported to its own namespace, which is the pod's.
    Private,
    /// It is exported to the pod's namespace by name.
    Exported,
    /// It is exported to all.
    Public,
}

fn visibility(service: &VirtualService, pod_namespace: &str) -> Option<Visibility> {
    let namespace = service.metadata.namespace.as_deref().unwrap_or_default();
    let exports = &service.spec.export_to;
    // The mesh's default is Istio's own: all.
    if exports.is_empty() || exports.iter().any(|entry| entry == "*") {
        return Some(Visibility::Public);
    }
    if exports.iter().any(|entry| entry == "~") {
        return None;
    }
    let named = |entry: &String| entry == pod_namespace || (entry == "." && namespace == pod_namespace);
    match exports.iter().any(named) {
        true if namespace == pod_namespace => Some(Visibility::Private),
        true => Some(Visibility::Exported),
        false => None,
    }
}

/// Whether an entry of `gateways` means this Gateway: `namespace/name`, or `name` in the namespace of the object.
/// Source: istiod `resolveGatewayName`; its old form `name.namespace.svc.domain` is not known here.
fn names_gateway(entry: &str, namespace: &str, gateway: &ObjectKey) -> bool {
    match entry.split_once('/') {
        Some((".", name)) => namespace == gateway.namespace && name == gateway.name,
        Some((of, name)) => of == gateway.namespace && name == gateway.name,
        None => entry != "mesh" && namespace == gateway.namespace && entry == gateway.name,
    }
}
