//! `load`: a bounded load over kept connections.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Serialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Whom to ask; an address of this machine's own networks.
    #[arg(long)]
    address: SocketAddr,
    /// The `Host` header.
    #[arg(long)]
    host: String,
    /// The path.
    #[arg(long, default_value = "/")]
    path: String,
    /// More header lines.
    #[arg(long)]
    header: Vec<String>,
    /// Connections, each with one request under way.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
    connections: u16,
    /// How long to ask, in milliseconds.
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    millis: u64,
}

/// What came of a load.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Counted {
    /// Answers by status.
    pub(crate) statuses: BTreeMap<u16, u64>,
    /// Answers in all.
    pub(crate) answers: u64,
    /// Connections that had to be made anew.
    pub(crate) reconnects: u64,
    /// How long it took.
    pub(crate) seconds: f64,
    /// The median of the answers' times, in microseconds.
    pub(crate) median_us: u64,
    /// The time that 99 of 100 answers kept, in microseconds.
    pub(crate) p99_us: u64,
}

pub(crate) async fn run(args: Args) -> Result<()> {
    ensure!(is_near(args.address.ip()), "{} is not on this machine's own networks", args.address);
    let mut head = format!("GET {} HTTP/1.1\r\nhost: {}\r\n", args.path, args.host);
    for line in &args.header {
        head.push_str(line);
        head.push_str("\r\n");
    }
    head.push_str("\r\n");
    super::say(
        &load(args.address, head.into_bytes(), args.connections, Duration::from_millis(args.millis)).await?,
    )
}

/// Loopback and private networks: nobody else is to be loaded by a mistyped address.
fn is_near(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_loopback() || ip.is_private(),
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unique_local(),
    }
}

pub(crate) async fn load(
    address: SocketAddr,
    request: Vec<u8>,
    connections: u16,
    time: Duration,
) -> Result<Counted> {
    let start = Instant::now();
    let end = start + time;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..connections {
        let request = request.clone();
        tasks.spawn(async move { ask(address, &request, end).await });
    }
    let (mut counted, mut times) = (Counted::default(), Vec::new());
    while let Some(done) = tasks.join_next().await {
        let (statuses, reconnects, taken) = done??;
        for (status, number) in statuses {
            *counted.statuses.entry(status).or_default() += number;
            counted.answers += number;
        }
        counted.reconnects += reconnects;
        times.extend(taken);
    }
    counted.seconds = start.elapsed().as_secs_f64();
    times.sort_unstable();
    let at = |share: usize| times.get(times.len() * share / 100).copied().unwrap_or_default();
    (counted.median_us, counted.p99_us) = (at(50), at(99));
    Ok(counted)
}

type Outcome = (BTreeMap<u16, u64>, u64, Vec<u64>);

/// Asks on one connection until the time is up; one that breaks is made anew.
async fn ask(address: SocketAddr, request: &[u8], end: Instant) -> Result<Outcome> {
    let (mut statuses, mut reconnects, mut times) = (BTreeMap::new(), 0, Vec::new());
    let mut connection = Connection::open(address).await?;
    while Instant::now() < end {
        let start = Instant::now();
        let Ok(status) = connection.exchange(request).await else {
            reconnects += 1;
            ensure!(reconnects < 10_000, "every connection breaks");
            connection = Connection::open(address).await?;
            continue;
        };
        *statuses.entry(status).or_insert(0) += 1;
        times.push(u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX));
    }
    Ok((statuses, reconnects, times))
}

struct Connection {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl Connection {
    async fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await.with_context(|| format!("connect to {address}"))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, unread: Vec::with_capacity(4096) })
    }

    async fn exchange(&mut self, request: &[u8]) -> Result<u16> {
        self.stream.write_all(request).await?;
        let head = loop {
            if let Some(end) = end_of_head(&self.unread) {
                break end;
            }
            self.more().await?;
        };
        let (status, length) = read_head(self.unread.get(..head).unwrap_or_default())?;
        while self.unread.len() < head + length {
            self.more().await?;
        }
        self.unread.drain(..head + length);
        Ok(status)
    }

    async fn more(&mut self) -> Result<()> {
        if self.stream.read_buf(&mut self.unread).await? == 0 {
            bail!("the connection was closed");
        }
        Ok(())
    }
}

/// Where the body begins.
pub(crate) fn end_of_head(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|window| window == b"\r\n\r\n").map(|start| start + 4)
}

/// The status, and the length of the body, which must be stated.
fn read_head(head: &[u8]) -> Result<(u16, usize)> {
    let text = std::str::from_utf8(head)?;
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).context("no status line")?.parse()?;
    let length = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .map_or(Ok(0), |(_, length)| length.trim().parse());
    Ok((status, length?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn counts_the_answers_of_a_server() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            for number in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(async move {
                    // The first connection breaks at once.
                    let answer = b"HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\nno\n";
                    if number > 0 {
                        crate::serve::converse(stream, answer).await.ok();
                    }
                });
            }
        });
        let request = b"GET / HTTP/1.1\r\nhost: h\r\n\r\n".to_vec();
        let counted = load(address, request, 2, Duration::from_millis(100)).await.unwrap();
        assert!(counted.answers > 10 && counted.statuses.keys().eq([&404]), "{counted:?}");
        assert_eq!(counted.reconnects, 1);
        assert!(counted.median_us <= counted.p99_us && counted.seconds >= 0.1);
    }

    #[test]
    fn heads_are_read() {
        assert_eq!(read_head(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n").unwrap(), (200, 7));
        assert_eq!(read_head(b"HTTP/1.1 503 Service Unavailable\r\n\r\n").unwrap(), (503, 0));
        assert!(read_head(b"nonsense\r\n\r\n").is_err());
        assert!(is_near("10.96.0.1".parse().unwrap()) && !is_near("8.8.8.8".parse().unwrap()));
    }
}
