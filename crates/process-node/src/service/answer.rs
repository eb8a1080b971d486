//! What cluster DNS knows: Kubernetes' "DNS-Based Service Discovery" specification, version 1.1.0. Pure.

use std::net::Ipv4Addr;

use super::Directory;
use super::directory::{Entry, Member};

/// How many aliases are followed inside the cluster.
const MAX_ALIASES: usize = 8;

/// The answer to a question about one name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The name does not exist.
    NoSuchName,
    /// The name exists; these are its records of the type asked for, perhaps none.
    Records {
        /// The answer itself.
        records: Vec<Record>,
        /// Addresses of names in the answer.
        additional: Vec<Record>,
    },
}

/// A resource record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Whom it is about, without a trailing dot.
    pub(super) name: String,
    /// What it says.
    pub(super) data: Data,
}

/// A record's contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Data {
    /// An address.
    A(Ipv4Addr),
    /// Another name for it.
    Cname(String),
    /// Where a service is.
    Srv {
        /// Its port.
        port: u16,
        /// Its host's name.
        target: String,
    },
}

/// Types of records that can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    /// IPv4 addresses.
    A,
    /// Service locations.
    Srv,
    /// Everything there is.
    Any,
    /// A type of which there are no records.
    Other,
}

impl Answer {
    fn empty() -> Self {
        Self::Records { records: Vec::new(), additional: Vec::new() }
    }

    fn of(records: Vec<Record>) -> Self {
        Self::Records { records, additional: Vec::new() }
    }
}

/// Answers a question. `name` has no trailing dot and `domain` is the cluster's. Outside of the cluster's domain
/// nothing exists: the cluster has no way out.
pub(super) fn answer(directory: &Directory, domain: &str, name: &str, kind: Type) -> Answer {
    let lower = name.to_ascii_lowercase();
    let zone = Zone { directory, domain };
    // Records are about the name as it was asked, whatever its case.
    zone.answer(&lower, name, kind, 0)
}

struct Zone<'a> {
    directory: &'a Directory,
    domain: &'a str,
}

impl Zone<'_> {
    fn answer(&self, name: &str, asked: &str, kind: Type, depth: usize) -> Answer {
        let Some(inside) = inside(name, self.domain) else { return Answer::NoSuchName };
        let labels: Vec<_> = inside.split('.').filter(|label| !label.is_empty()).collect();
        match labels.as_slice() {
            [] | ["svc" | "pod"] => Answer::empty(),
            [namespace, "svc" | "pod"] => self.namespace(namespace),
            [address, _, "pod"] => {
                dashed(address).map_or(Answer::NoSuchName, |address| addresses(asked, kind, [address]))
            }
            [service, namespace, "svc"] => match self.directory.get(namespace, service) {
                Some(entry) => self.service(entry, asked, kind, depth),
                None => Answer::NoSuchName,
            },
            [host, service, namespace, "svc"] => match self.directory.get(namespace, service) {
                Some(entry) => host_of(entry, host, asked, kind),
                None => Answer::NoSuchName,
            },
            [port, protocol, service, namespace, "svc"] => match self.directory.get(namespace, service) {
                Some(entry) => {
                    let own = format!("{service}.{namespace}.svc.{}", self.domain);
                    locations(entry, &own, port, protocol, asked, kind)
                }
                None => Answer::NoSuchName,
            },
            _ => Answer::NoSuchName,
        }
    }

    fn namespace(&self, namespace: &str) -> Answer {
        if self.directory.has_namespace(namespace) { Answer::empty() } else { Answer::NoSuchName }
    }

    fn service(&self, entry: &Entry, asked: &str, kind: Type, depth: usize) -> Answer {
        if let Some(target) = &entry.external_name {
            let target = target.trim_end_matches('.').to_owned();
            let alias = Record { name: asked.to_owned(), data: Data::Cname(target.clone()) };
            let mut records = vec![alias];
            if depth < MAX_ALIASES
                && let Answer::Records { records: more, .. } =
                    self.answer(&target.to_ascii_lowercase(), &target, kind, depth + 1)
            {
                records.extend(more);
            }
            return Answer::of(records);
        }
        match entry.cluster_ip {
            Some(address) => addresses(asked, kind, [address]),
            None => addresses(asked, kind, entry.members.iter().map(|member| member.address)),
        }
    }
}

/// The part of `name` before the domain, without its dot.
fn inside<'a>(name: &'a str, domain: &str) -> Option<&'a str> {
    let rest = name.strip_suffix(domain)?;
    if rest.is_empty() { Some(rest) } else { rest.strip_suffix('.') }
}

fn addresses(asked: &str, kind: Type, found: impl IntoIterator<Item = Ipv4Addr>) -> Answer {
    if !matches!(kind, Type::A | Type::Any) {
        return Answer::empty();
    }
    let record = |address| Record { name: asked.to_owned(), data: Data::A(address) };
    Answer::of(found.into_iter().map(record).collect())
}

/// A member's own label below its headless Service: its host name, or its address with dashes.
fn label(member: &Member) -> String {
    member.hostname.clone().unwrap_or_else(|| member.address.to_string().replace('.', "-"))
}

fn host_of(entry: &Entry, host: &str, asked: &str, kind: Type) -> Answer {
    let members = entry.members.iter().filter(|_| entry.cluster_ip.is_none());
    let found: Vec<_> = members.filter(|member| label(member) == host).map(|member| member.address).collect();
    if found.is_empty() { Answer::NoSuchName } else { addresses(asked, kind, found) }
}

fn locations(entry: &Entry, own: &str, port: &str, protocol: &str, asked: &str, kind: Type) -> Answer {
    let wanted = port.strip_prefix('_').zip(protocol.strip_prefix('_'));
    let found = wanted.and_then(|(port, protocol)| {
        entry.ports.iter().find(|other| other.name == port && other.protocol.eq_ignore_ascii_case(protocol))
    });
    let Some(found) = found else { return Answer::NoSuchName };
    if !matches!(kind, Type::Srv | Type::Any) {
        return Answer::empty();
    }
    let location = |port, target: &str| Record {
        name: asked.to_owned(),
        data: Data::Srv { port, target: target.to_owned() },
    };
    let host = |target: &str, address| Record { name: target.to_owned(), data: Data::A(address) };
    match (entry.cluster_ip, found.backend_number) {
        (Some(address), _) => Answer::Records {
            records: vec![location(found.number, own)],
            additional: vec![host(own, address)],
        },
        (None, Some(port)) => {
            let targets: Vec<_> = entry
                .members
                .iter()
                .map(|member| (format!("{}.{own}", label(member)), member.address))
                .collect();
            Answer::Records {
                records: targets.iter().map(|(target, _)| location(port, target)).collect(),
                additional: targets.iter().map(|(target, address)| host(target, *address)).collect(),
            }
        }
        (None, None) => Answer::empty(),
    }
}

/// An address written with dashes, as in a Pod's DNS name.
fn dashed(label: &str) -> Option<Ipv4Addr> {
    label.replace('-', ".").parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::directory::tests::directory;
    use super::*;

    fn example() -> Directory {
        let slice = |service: &str, endpoints: serde_json::Value| {
            json!({"metadata": {"namespace": "ns", "name": format!("{service}-1"),
                                "labels": {"kubernetes.io/service-name": service}},
                   "addressType": "IPv4", "ports": [{"name": "http", "port": 8080}], "endpoints": endpoints})
        };
        let members = json!([{"addresses": ["10.244.0.2"], "hostname": "web-0"}, {"addresses": ["10.244.0.3"]},
                             {"addresses": ["10.244.0.4"], "conditions": {"ready": false}}]);
        let port = json!([{"name": "http", "port": 80}]);
        directory(
            json!([
                {"metadata": {"namespace": "ns", "name": "web"},
                 "spec": {"clusterIP": "10.96.0.5", "ports": port}},
                {"metadata": {"namespace": "ns", "name": "head"}, "spec": {"clusterIP": "None", "ports": port}},
                {"metadata": {"namespace": "ns", "name": "empty"}, "spec": {"clusterIP": "None"}},
                {"metadata": {"namespace": "ns", "name": "out"},
                 "spec": {"type": "ExternalName", "externalName": "example.com"}},
                {"metadata": {"namespace": "ns", "name": "alias"},
                 "spec": {"type": "ExternalName", "externalName": "web.ns.svc.cluster.local."}},
                {"metadata": {"namespace": "ns", "name": "loop"},
                 "spec": {"type": "ExternalName", "externalName": "loop.ns.svc.cluster.local"}},
            ]),
            json!([slice("web", members.clone()), slice("head", members)]),
        )
    }

    /// The answer as text, `-` for a name that does not exist.
    fn ask(name: &str, kind: Type) -> String {
        match answer(&example(), "cluster.local", name, kind) {
            Answer::NoSuchName => "-".to_owned(),
            Answer::Records { records, .. } => {
                let text = records.iter().map(|record| match &record.data {
                    Data::A(address) => address.to_string(),
                    Data::Cname(target) => format!("={target}"),
                    Data::Srv { port, target } => format!("{port}@{target}"),
                });
                text.collect::<Vec<_>>().join(" ")
            }
        }
    }

    #[test]
    fn addresses_of_services_pods_and_members() {
        for (name, expected) in [
            ("web.ns.svc.cluster.local", "10.96.0.5"),
            ("WEB.ns.svc.Cluster.Local", "10.96.0.5"),
            ("head.ns.svc.cluster.local", "10.244.0.2 10.244.0.3"),
            ("web-0.head.ns.svc.cluster.local", "10.244.0.2"),
            ("10-244-0-3.head.ns.svc.cluster.local", "10.244.0.3"),
            ("web-1.head.ns.svc.cluster.local", "-"),
            ("web-0.web.ns.svc.cluster.local", "-"),
            ("empty.ns.svc.cluster.local", ""),
            ("out.ns.svc.cluster.local", "=example.com"),
            ("alias.ns.svc.cluster.local", "=web.ns.svc.cluster.local 10.96.0.5"),
            ("10-244-0-9.ns.pod.cluster.local", "10.244.0.9"),
            ("ten.ns.pod.cluster.local", "-"),
            ("ns.svc.cluster.local", ""),
            ("other.svc.cluster.local", "-"),
            ("nothing.ns.svc.cluster.local", "-"),
            ("cluster.local", ""),
            ("mycluster.local", "-"),
            ("example.com", "-"),
            ("web.ns.svc.cluster.local.ns.svc.cluster.local", "-"),
        ] {
            assert_eq!(ask(name, Type::A), expected, "{name}");
        }
    }

    #[test]
    fn other_types_exist_without_records() {
        assert_eq!(ask("web.ns.svc.cluster.local", Type::Other), "");
        assert_eq!(ask("nothing.ns.svc.cluster.local", Type::Other), "-");
    }

    #[test]
    fn named_ports_have_locations() {
        for (name, expected) in [
            ("_http._tcp.web.ns.svc.cluster.local", "80@web.ns.svc.cluster.local"),
            (
                "_http._tcp.head.ns.svc.cluster.local",
                "8080@web-0.head.ns.svc.cluster.local 8080@10-244-0-3.head.ns.svc.cluster.local",
            ),
            ("_grpc._tcp.web.ns.svc.cluster.local", "-"),
            ("_http._udp.web.ns.svc.cluster.local", "-"),
        ] {
            assert_eq!(ask(name, Type::Srv), expected, "{name}");
        }
        let Answer::Records { additional, .. } =
            answer(&example(), "cluster.local", "_http._tcp.web.ns.svc.cluster.local", Type::Srv)
        else {
            panic!("no such name")
        };
        assert_eq!(additional[0].data, Data::A(Ipv4Addr::new(10, 96, 0, 5)));
    }

    #[test]
    fn aliases_in_a_circle_come_to_an_end() {
        assert_eq!(ask("loop.ns.svc.cluster.local", Type::A).split(' ').count(), MAX_ALIASES + 1);
    }
}
