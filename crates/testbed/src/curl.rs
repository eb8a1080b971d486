//! A plain HTTP/1.1 client for tests: one connection a request, the address and the `Host` header chosen apart.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// An answer, read to its end.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// The response headers.
    pub headers: HeaderMap,
    /// The body; bytes that are not UTF-8 are replaced.
    pub body: String,
}

/// `GET path` from `address`, asking for `host`. Everything together may take 5 s.
pub async fn get(address: SocketAddr, host: &str, path: &str) -> Result<Reply> {
    request(
        address,
        Request::builder().method(Method::GET).uri(path).header("host", host).body(String::new())?,
    )
    .await
}

/// Sends a request as it is to an address. Everything together may take 5 s.
pub async fn request(address: SocketAddr, request: Request<String>) -> Result<Reply> {
    let work = async {
        let stream = TcpStream::connect(address).await.with_context(|| format!("connect to {address}"))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let driver = tokio::spawn(connection);
        let response = sender.send_request(request.map(|body| Full::new(Bytes::from(body)))).await?;
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await?.to_bytes();
        driver.abort();
        let body = String::from_utf8_lossy(&bytes).into_owned();
        Ok(Reply { status: parts.status.as_u16(), headers: parts.headers, body })
    };
    tokio::time::timeout(Duration::from_secs(5), work)
        .await
        .with_context(|| format!("no answer from {address} in 5 s"))?
}
