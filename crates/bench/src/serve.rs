//! `serve`: the cheapest HTTP/1.1 server that is one.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Result, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};

/// Longer heads end the connection.
const MAX_HEAD: usize = 64 * 1024;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where it listens.
    #[arg(long, default_value = "0.0.0.0:8080")]
    listen: SocketAddr,
    /// A header of every answer, such as `x-user: somebody`.
    #[arg(long)]
    header: Vec<String>,
}

pub(crate) async fn run(args: Args) -> Result<()> {
    let mut headers = String::new();
    for header in &args.header {
        if !header.contains(':') || header.contains(['\r', '\n']) {
            bail!("--header {header:?}: write it as `name: value`");
        }
        headers.push_str(header);
        headers.push_str("\r\n");
    }
    let answer: Arc<[u8]> =
        format!("HTTP/1.1 200 OK\r\n{headers}content-length: 3\r\n\r\nok\n").into_bytes().into();
    let listener = TcpListener::bind(args.listen).await?;
    let mut term = signal(SignalKind::terminate())?;
    tokio::select! {
        ended = accept(&listener, &answer) => ended,
        _ = term.recv() => Ok(()),
    }
}

async fn accept(listener: &TcpListener, answer: &Arc<[u8]>) -> Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        let answer = Arc::clone(answer);
        // A connection that breaks is its client's affair.
        tokio::spawn(async move { converse(stream, &answer).await.ok() });
    }
}

/// Answers requests without a body, one after the other.
pub(crate) async fn converse(mut stream: TcpStream, answer: &[u8]) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut unread = Vec::with_capacity(4096);
    loop {
        while let Some(end) = crate::load::end_of_head(&unread) {
            unread.drain(..end);
            stream.write_all(answer).await?;
        }
        if unread.len() > MAX_HEAD {
            bail!("a head of more than {MAX_HEAD} bytes");
        }
        if stream.read_buf(&mut unread).await? == 0 {
            return Ok(());
        }
    }
}
