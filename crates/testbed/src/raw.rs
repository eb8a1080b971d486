//! HTTP for tests that send what no well-behaved client would, and that keep a connection.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::curl::Reply;

pub mod frames;
mod tls;

pub use tls::Tls;

const TIMEOUT: Duration = Duration::from_secs(5);

/// The server neither answered nor closed the connection in 5 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no answer in 5 s")]
pub struct NoAnswer;

/// A connection, with TLS or without.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

async fn connect(address: SocketAddr) -> Result<TcpStream> {
    let connecting = TcpStream::connect(address);
    let stream = tokio::time::timeout(TIMEOUT, connecting).await.map_err(|_| NoAnswer)?;
    stream.with_context(|| format!("connect to {address}"))
}

async fn in_time<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(TIMEOUT, work).await.map_err(|_| NoAnswer)?
}

/// A connection of HTTP/1.1 on which bytes are sent as they are.
pub struct Connection {
    stream: Box<dyn Stream>,
    unread: Vec<u8>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("unread", &self.unread.len()).finish_non_exhaustive()
    }
}

impl Connection {
    /// Connects.
    pub async fn open(address: SocketAddr) -> Result<Self> {
        Ok(Self { stream: Box::new(connect(address).await?), unread: Vec::new() })
    }

    /// Connects with TLS and this name in SNI.
    pub async fn open_tls(address: SocketAddr, tls: &Tls, name: &str) -> Result<Self> {
        let stream = in_time(tls.connect(connect(address).await?, name, "http/1.1")).await?;
        Ok(Self { stream: Box::new(stream), unread: Vec::new() })
    }

    /// Sends a request and reads the answer; the connection stays open if the server leaves it so.
    pub async fn exchange(&mut self, request: &[u8]) -> Result<Reply> {
        let work = async {
            self.stream.write_all(request).await.context("send")?;
            self.read(request.starts_with(b"HEAD ")).await
        };
        in_time(work).await
    }

    async fn read(&mut self, without_body: bool) -> Result<Reply> {
        let head = loop {
            if let Some(end) = find(&self.unread, b"\r\n\r\n") {
                break self.unread.drain(..end + 4).collect::<Vec<u8>>();
            }
            self.more().await?;
        };
        let head = String::from_utf8_lossy(&head).into_owned();
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
        let status: u16 = status.with_context(|| format!("no status in {head:?}"))?;
        let mut headers = HeaderMap::new();
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            headers.append(name.parse::<HeaderName>()?, value.trim().parse::<HeaderValue>()?);
        }
        let body = if without_body || status == 204 || status == 304 {
            Vec::new()
        } else if headers.get("transfer-encoding").is_some_and(|value| value == "chunked") {
            self.chunks().await?
        } else {
            let length = headers.get("content-length").and_then(|value| value.to_str().ok()?.parse().ok());
            self.exactly(length.unwrap_or(0)).await?
        };
        Ok(Reply { status, headers, body: String::from_utf8_lossy(&body).into_owned() })
    }

    async fn chunks(&mut self) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let end = loop {
                match find(&self.unread, b"\r\n") {
                    Some(end) => break end,
                    None => self.more().await?,
                }
            };
            let line: Vec<u8> = self.unread.drain(..end + 2).collect();
            let length = usize::from_str_radix(String::from_utf8_lossy(&line).trim(), 16)?;
            ensure!(length <= 1 << 20, "a chunk of {length} bytes");
            body.extend(self.exactly(length).await?);
            self.exactly(2).await?;
            if length == 0 {
                return Ok(body);
            }
        }
    }

    async fn exactly(&mut self, length: usize) -> Result<Vec<u8>> {
        while self.unread.len() < length {
            self.more().await?;
        }
        Ok(self.unread.drain(..length).collect())
    }

    async fn more(&mut self) -> Result<()> {
        let mut buffer = [0; 4096];
        let read = self.stream.read(&mut buffer).await.context("receive")?;
        if read == 0 {
            bail!("the connection was closed");
        }
        self.unread.extend(buffer.iter().take(read));
        Ok(())
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

/// Sends one request on a connection of its own.
pub async fn once(address: SocketAddr, request: &[u8]) -> Result<Reply> {
    Connection::open(address).await?.exchange(request).await
}

/// A connection of HTTP/2, by prior knowledge or by TLS.
#[derive(Debug)]
pub struct Http2 {
    sender: hyper::client::conn::http2::SendRequest<Full<Bytes>>,
    driver: tokio::task::JoinHandle<()>,
}

impl Http2 {
    /// Connects without TLS.
    pub async fn open(address: SocketAddr) -> Result<Self> {
        Self::over(connect(address).await?).await
    }

    /// Connects with TLS and this name in SNI.
    pub async fn open_tls(address: SocketAddr, tls: &Tls, name: &str) -> Result<Self> {
        Self::over(in_time(tls.connect(connect(address).await?, name, "h2")).await?).await
    }

    async fn over(stream: impl Stream + 'static) -> Result<Self> {
        let shake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (sender, connection) = shake.await?;
        let driver = tokio::spawn(async move {
            // An error ends the connection, which the next request tells.
            let _ = connection.await;
        });
        Ok(Self { sender, driver })
    }

    /// Sends a request, whose URI must be absolute, and reads the answer.
    pub async fn exchange(&mut self, request: Request<String>) -> Result<Reply> {
        let work = async {
            self.sender.ready().await?;
            let response = self.sender.send_request(request.map(|body| Full::new(Bytes::from(body)))).await?;
            let (parts, body) = response.into_parts();
            let body = body.collect().await?.to_bytes();
            let body = String::from_utf8_lossy(&body).into_owned();
            Ok(Reply { status: parts.status.as_u16(), headers: parts.headers, body })
        };
        in_time(work).await
    }
}

impl Drop for Http2 {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

#[cfg(test)]
mod tests;
