//! The DNS server, over UDP and TCP.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use simple_dns::rdata::{A, CNAME, OPT, RData, SOA, SRV};
use simple_dns::{CLASS, Name, OPCODE, Packet, PacketFlag, QTYPE, Question, RCODE, ResourceRecord, TYPE};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::watch;
use tracing::debug;

use super::Directory;
use super::answer::{self, Answer, Data, Record, Type};

/// How long clients may keep what they hear, in seconds. Short, since tests do not wait.
const TTL: u32 = 5;
/// The largest answer over UDP to a client that does not say what it can take (RFC 1035).
const PLAIN_UDP: u16 = 512;
/// What this server takes over UDP.
const OUR_UDP: u16 = 4096;
/// An idle TCP connection is closed.
const IDLE: Duration = Duration::from_secs(30);

/// Where the server finds its answers.
#[derive(Clone)]
pub(crate) struct Server {
    directory: watch::Receiver<Arc<Directory>>,
    domain: String,
}

impl Server {
    /// A server for `domain`, the cluster's, without a trailing dot.
    pub(crate) fn new(directory: watch::Receiver<Arc<Directory>>, domain: &str) -> Self {
        Self { directory, domain: domain.to_ascii_lowercase() }
    }

    /// Starts answering at port 53 of `address`.
    pub(crate) async fn start(self, address: Ipv4Addr) -> anyhow::Result<()> {
        let place = SocketAddr::from((address, 53));
        let udp = UdpSocket::bind(place).await.with_context(|| format!("listen for DNS at {place}/udp"))?;
        let tcp = TcpListener::bind(place).await.with_context(|| format!("listen for DNS at {place}/tcp"))?;
        tokio::spawn(self.clone().serve_udp(udp));
        tokio::spawn(self.serve_tcp(tcp));
        Ok(())
    }

    async fn serve_udp(self, socket: UdpSocket) {
        let mut buffer = vec![0; usize::from(OUR_UDP)];
        loop {
            // Errors come from answers that could not be delivered: not the next client's fault.
            let Ok((length, client)) = socket.recv_from(&mut buffer).await else { continue };
            if let Some(reply) = self.reply(&buffer[..length], true)
                && let Err(error) = socket.send_to(&reply, client).await
            {
                debug!(%client, %error, "a DNS answer could not be sent");
            }
        }
    }

    async fn serve_tcp(self, listener: TcpListener) {
        loop {
            let Ok((stream, client)) = listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let server = self.clone();
            tokio::spawn(async move {
                if let Err(error) = server.serve_stream(stream).await {
                    debug!(%client, %error, "a DNS connection ended early");
                }
            });
        }
    }

    async fn serve_stream(&self, mut stream: TcpStream) -> anyhow::Result<()> {
        loop {
            let Ok(Ok(length)) = tokio::time::timeout(IDLE, stream.read_u16()).await else { return Ok(()) };
            let mut query = vec![0; usize::from(length)];
            tokio::time::timeout(IDLE, stream.read_exact(&mut query)).await??;
            let Some(reply) = self.reply(&query, false) else { bail!("no DNS query") };
            stream.write_u16(u16::try_from(reply.len())?).await?;
            stream.write_all(&reply).await?;
        }
    }

    fn reply(&self, query: &[u8], udp: bool) -> Option<Vec<u8>> {
        reply(&self.directory.borrow(), &self.domain, query, udp)
    }
}

/// The bytes to answer `query` with; none if it is no query at all.
fn reply(directory: &Directory, domain: &str, query: &[u8], udp: bool) -> Option<Vec<u8>> {
    let Ok(query) = Packet::parse(query) else {
        // The identifier and the kind of message stand first; the rest is nothing this server understands.
        let [one, two, flags, ..] = *query else { return None };
        if flags & 0x80 != 0 {
            return None;
        }
        let mut refusal = Packet::new_reply(u16::from_be_bytes([one, two]));
        *refusal.rcode_mut() = RCODE::NotImplemented;
        return refusal.build_bytes_vec().ok();
    };
    if query.has_flags(PacketFlag::RESPONSE) {
        return None;
    }
    let mut reply = Packet::new_reply(query.id());
    if query.has_flags(PacketFlag::RECURSION_DESIRED) {
        reply.set_flags(PacketFlag::RECURSION_DESIRED);
    }
    reply.set_flags(PacketFlag::RECURSION_AVAILABLE | PacketFlag::AUTHORITATIVE_ANSWER);
    let limit = query.opt().map_or(PLAIN_UDP, |opt| opt.udp_packet_size.max(PLAIN_UDP));
    if query.opt().is_some() {
        *reply.opt_mut() = Some(OPT { opt_codes: Vec::new(), udp_packet_size: OUR_UDP, version: 0 });
    }
    let found;
    match query.questions.as_slice() {
        [question] if query.opcode() == OPCODE::StandardQuery => {
            reply.questions.push(question.clone());
            found = answer::answer(directory, domain, &question.qname.to_string(), kind(question));
            fill(&mut reply, domain, &found);
        }
        _ => *reply.rcode_mut() = RCODE::NotImplemented,
    }
    let bytes = reply.build_bytes_vec_compressed().ok()?;
    if udp && bytes.len() > usize::from(limit) {
        reply.answers.clear();
        reply.additional_records.clear();
        reply.set_flags(PacketFlag::TRUNCATION);
        return reply.build_bytes_vec_compressed().ok();
    }
    Some(bytes)
}

fn fill<'a>(reply: &mut Packet<'a>, domain: &'a str, found: &'a Answer) {
    match found {
        Answer::NoSuchName => {
            *reply.rcode_mut() = RCODE::NameError;
            reply.name_servers.extend(authority(domain));
        }
        Answer::Records { records, additional } => {
            reply.answers = records.iter().filter_map(resource).collect();
            reply.additional_records = additional.iter().filter_map(resource).collect();
            if reply.answers.is_empty() {
                reply.name_servers.extend(authority(domain));
            }
        }
    }
}

/// Says for how long nothing may be taken as nothing (RFC 2308).
fn authority(domain: &str) -> Option<ResourceRecord<'_>> {
    let name = Name::new(domain).ok()?;
    let soa = SOA {
        mname: name.clone(),
        rname: name.clone(),
        serial: 1,
        refresh: 3600,
        retry: 600,
        expire: 86400,
        minimum: TTL,
    };
    Some(ResourceRecord::new(name, CLASS::IN, TTL, RData::SOA(soa)))
}

/// A record in the library's terms; one whose name DNS cannot carry is left out.
fn resource(record: &Record) -> Option<ResourceRecord<'_>> {
    let data = match &record.data {
        Data::A(address) => RData::A(A::from(*address)),
        Data::Cname(target) => RData::CNAME(CNAME(Name::new(target).ok()?)),
        Data::Srv { port, target } => {
            RData::SRV(SRV { priority: 0, weight: 100, port: *port, target: Name::new(target).ok()? })
        }
    };
    Some(ResourceRecord::new(Name::new(&record.name).ok()?, CLASS::IN, TTL, data))
}

fn kind(question: &Question<'_>) -> Type {
    match question.qtype {
        QTYPE::TYPE(TYPE::A) => Type::A,
        QTYPE::TYPE(TYPE::SRV) => Type::Srv,
        QTYPE::ANY => Type::Any,
        _ => Type::Other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use simple_dns::QCLASS;

    use super::super::directory::tests::directory;
    use super::*;

    fn many(members: u8) -> Directory {
        let endpoints: Vec<_> =
            (0..members).map(|n| json!({"addresses": [format!("10.244.1.{n}")]})).collect();
        directory(
            json!([{"metadata": {"namespace": "ns", "name": "web"}, "spec": {"clusterIP": "None"}}]),
            json!([{"metadata": {"namespace": "ns", "name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
                    "addressType": "IPv4", "ports": [], "endpoints": endpoints}]),
        )
    }

    fn query(name: &str, kind: TYPE) -> Vec<u8> {
        let mut query = Packet::new_query(7);
        query.set_flags(PacketFlag::RECURSION_DESIRED);
        let name = Name::new(name).unwrap();
        query.questions.push(Question::new(name, kind.into(), QCLASS::CLASS(CLASS::IN), false));
        query.build_bytes_vec().unwrap()
    }

    #[test]
    fn answers_missing_names_and_missing_types() {
        let name = "web.ns.svc.cluster.local";
        for (name, kind, code, answers, authority) in [
            (name, TYPE::A, RCODE::NoError, 2, 0),
            (name, TYPE::AAAA, RCODE::NoError, 0, 1),
            ("example.com", TYPE::A, RCODE::NameError, 0, 1),
        ] {
            let bytes = reply(&many(2), "cluster.local", &query(name, kind), true).unwrap();
            let packet = Packet::parse(&bytes).unwrap();
            assert_eq!((packet.id(), packet.rcode()), (7, code), "{name} {kind:?}");
            assert_eq!(
                (packet.answers.len(), packet.name_servers.len()),
                (answers, authority),
                "{name} {kind:?}"
            );
            assert!(packet.has_flags(PacketFlag::RESPONSE | PacketFlag::RECURSION_DESIRED));
        }
    }

    #[test]
    fn long_answers_are_cut_over_udp_only() {
        let query = query("web.ns.svc.cluster.local", TYPE::A);
        let cut = reply(&many(100), "cluster.local", &query, true).unwrap();
        let packet = Packet::parse(&cut).unwrap();
        assert!(packet.has_flags(PacketFlag::TRUNCATION) && packet.answers.is_empty());
        let whole = reply(&many(100), "cluster.local", &query, false).unwrap();
        assert_eq!(Packet::parse(&whole).unwrap().answers.len(), 100);
    }

    #[test]
    fn what_is_no_query_gets_no_answer_or_a_refusal() {
        assert_eq!(reply(&many(1), "cluster.local", &[1, 2], true), None);
        let refusal = reply(&many(1), "cluster.local", &[1, 2, 0, 0, 9, 9], true).unwrap();
        assert_eq!(refusal[..2], [1, 2]);
        let echo = reply(&many(1), "cluster.local", &query("example.com", TYPE::A), true).unwrap();
        assert_eq!(reply(&many(1), "cluster.local", &echo, true), None);
    }
}
