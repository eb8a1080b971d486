//! A backend that keeps what reached it, byte for byte, and refuses nothing.
//!
//! A server made of a library answers 400 to a target that the library does not like, before anybody can note that it
//! came. Whoever asks whether a gateway let something through must not depend on that.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};

use crate::record::{Arrival, Record};
use crate::say;
use crate::serve::{Listen, serve_aside};

/// The longest head that is read, in bytes.
const MAX_HEAD: usize = 256 * 1024;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    listen: Listen,
    /// Name in the answers, to tell servers apart.
    #[arg(long, default_value = "witness")]
    name: String,
    /// Port of `GET /seen`, which tells what arrived; `?reset=true` forgets it after.
    #[arg(long)]
    control_port: Option<u16>,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let record = Record::default();
    serve_aside(args.listen, args.control_port, record.app()).await?;
    let listener = args.listen.bind().await?;
    let mut term = signal(SignalKind::terminate())?;
    tokio::select! {
        () = accept(listener, &args.name, &record) => {}
        _ = term.recv() => say("SIGTERM"),
    }
    Ok(ExitCode::SUCCESS)
}

async fn accept(listener: TcpListener, name: &str, record: &Record) {
    loop {
        // An error of one connection says nothing about the next.
        let Ok((stream, _)) = listener.accept().await else { continue };
        let (name, record) = (name.to_owned(), record.clone());
        tokio::spawn(async move {
            if let Err(error) = converse(stream, &name, &record).await {
                say(&format!("connection given up: {error:#}"));
            }
        });
    }
}

async fn converse(mut stream: TcpStream, name: &str, record: &Record) -> anyhow::Result<()> {
    let mut unread = Vec::new();
    loop {
        let head = loop {
            if let Some(end) = unread.windows(4).position(|window| window == b"\r\n\r\n") {
                break unread.drain(..end + 4).collect::<Vec<u8>>();
            }
            if unread.len() > MAX_HEAD {
                bail!("a head of more than {MAX_HEAD} bytes");
            }
            if stream.read_buf(&mut unread).await? == 0 {
                return Ok(());
            }
        };
        let arrival = parse(&head);
        // A check whether this server is up is nobody's request.
        let probe = arrival.path == "/healthz";
        if !probe {
            say(&format!("{} {}", arrival.method, arrival.path));
            record.note(arrival.clone());
        }
        discard_body(&mut stream, &mut unread, &arrival).await?;
        let body = serde_json::json!({
            "name": name, "method": arrival.method, "path": arrival.path, "host": arrival.host, "headers": arrival.headers,
        });
        let body = format!("{body}\n");
        let text = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(text.as_bytes()).await?;
        if arrival.method != "HEAD" {
            stream.write_all(body.as_bytes()).await?;
        }
    }
}

/// Reads a head as it stands: the target is what lies between the first blank and the last of the first line.
fn parse(head: &[u8]) -> Arrival {
    let text: String = head.iter().map(|&byte| char::from(byte)).collect();
    let mut lines = text.split("\r\n");
    let first = lines.next().unwrap_or_default();
    let (method, rest) = first.split_once(' ').unwrap_or((first, ""));
    let (path, _) = rest.rsplit_once(' ').unwrap_or((rest, ""));
    let mut headers = BTreeMap::<String, String>::new();
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        let value = value.trim();
        headers
            .entry(name.to_ascii_lowercase())
            .and_modify(|values| {
                values.push_str(", ");
                values.push_str(value);
            })
            .or_insert_with(|| value.to_owned());
    }
    let host = headers.remove("host").unwrap_or_default();
    Arrival { method: method.to_owned(), path: path.to_owned(), host, headers }
}

async fn discard_body(stream: &mut TcpStream, unread: &mut Vec<u8>, arrival: &Arrival) -> anyhow::Result<()> {
    let chunked = arrival.headers.get("transfer-encoding").is_some_and(|value| value.contains("chunked"));
    if !chunked {
        let length = arrival.headers.get("content-length").map_or(Ok(0), |value| value.parse())?;
        return discard(stream, unread, length).await;
    }
    loop {
        let end = loop {
            match unread.windows(2).position(|window| window == b"\r\n") {
                Some(end) => break end,
                None if stream.read_buf(unread).await? == 0 => bail!("the body was cut off"),
                None => {}
            }
        };
        let line: Vec<u8> = unread.drain(..end + 2).collect();
        let digits = std::str::from_utf8(&line)?.trim().split(';').next().unwrap_or_default();
        let length = usize::from_str_radix(digits, 16).with_context(|| format!("chunk length {digits:?}"))?;
        discard(stream, unread, length + 2).await?;
        if length == 0 {
            return Ok(());
        }
    }
}

async fn discard(stream: &mut TcpStream, unread: &mut Vec<u8>, mut length: usize) -> anyhow::Result<()> {
    loop {
        let here = length.min(unread.len());
        unread.drain(..here);
        length -= here;
        if length == 0 {
            return Ok(());
        }
        if stream.read_buf(unread).await? == 0 {
            bail!("the body was cut off");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use testbed::curl;

    use super::*;
    use crate::serve::background;

    #[tokio::test]
    async fn keeps_what_no_library_would_take() {
        let record = Record::default();
        let control = background(record.app()).await;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { accept(listener, "w", &record).await });
        let mut connection = testbed::raw::Connection::open(address).await.unwrap();
        let strange = b"GET /a b/\xff<>\"{}|\\^` HTTP/1.1\r\nHost: h\r\nX-A: 1\r\nx-a:2\r\n\r\n";
        let body =
            b"POST /body HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        let length = b"PUT /length HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\r\nabc";
        for request in [&strange[..], body, length, b"GET /healthz HTTP/1.1\r\n\r\n"] {
            assert_eq!(connection.exchange(request).await.unwrap().status, 200);
        }
        let seen = curl::get(control, "h", "/seen").await.unwrap().body;
        let seen: serde_json::Value = serde_json::from_str(&seen).unwrap();
        assert_eq!(seen["count"], 3);
        assert_eq!(seen["arrivals"][0]["path"], "/a b/\u{ff}<>\"{}|\\^`");
        assert_eq!(seen["arrivals"][0]["headers"]["x-a"], "1, 2");
        assert_eq!(seen["arrivals"][1]["method"], "POST");
        assert_eq!(seen["arrivals"][2]["path"], "/length");
    }
}
