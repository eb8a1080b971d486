//! gRPC probes: `grpc.health.v1.Health/Check`, plain text HTTP/2. Two messages of one field each are written and
//! read by hand.

use std::net::SocketAddr;

use http::Request;
use http::header::{CONTENT_TYPE, TE, USER_AGENT};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

/// `HealthCheckResponse.ServingStatus.SERVING`.
const SERVING: u64 = 1;
/// Field 1, length-delimited: `HealthCheckRequest.service`.
const SERVICE: u8 = 0x0a;
/// Field 1, varint: `HealthCheckResponse.status`.
const STATUS: u64 = 0x08;

/// Asks `address` whether `service` is served.
pub(super) async fn check(address: SocketAddr, service: &str) -> Result<(), String> {
    let stream = TcpStream::connect(address)
        .await
        .map_err(|error| format!("timeout: failed to connect service {address:?}: {error}"))?;
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| error.to_string())?;
    let driver = tokio::spawn(connection);
    let outcome = async {
        let request = Request::post(format!("http://{address}/grpc.health.v1.Health/Check"))
            .header(CONTENT_TYPE, "application/grpc")
            .header(TE, "trailers")
            .header(USER_AGENT, "kube-probe/1.35")
            .body(Full::new(Bytes::from(question(service))))
            .map_err(|error| error.to_string())?;
        let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.map_err(|error| error.to_string())?;
        // An answer without a body carries its status among the headers.
        let status = body.trailers().and_then(|trailers| trailers.get("grpc-status"));
        match status.or_else(|| head.headers.get("grpc-status")).map(|status| status.as_bytes().to_vec()) {
            Some(code) if code == b"0" => judge(&body.to_bytes()),
            Some(code) => Err(format!("error: health rpc failed: code {}", String::from_utf8_lossy(&code))),
            None => {
                Err(format!("error: this server does not speak gRPC: HTTP code {}", head.status.as_u16()))
            }
        }
    }
    .await;
    driver.abort();
    outcome
}

/// A `HealthCheckRequest` in gRPC's framing.
fn question(service: &str) -> Vec<u8> {
    let mut message = Vec::new();
    if !service.is_empty() {
        message.push(SERVICE);
        varint(service.len() as u64, &mut message);
        message.extend_from_slice(service.as_bytes());
    }
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let mut frame = vec![0];
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(&message);
    frame
}

fn varint(mut number: u64, into: &mut Vec<u8>) {
    while number >= 0x80 {
        into.push(u8::try_from(number & 0x7f).unwrap_or(0) | 0x80);
        number >>= 7;
    }
    into.push(u8::try_from(number).unwrap_or(0));
}

/// Reads a `HealthCheckResponse` in gRPC's framing. A message without the field means 0, `UNKNOWN`.
fn judge(frame: &[u8]) -> Result<(), String> {
    let message = frame.get(5..).unwrap_or_default();
    let status = match read_varint(message) {
        Some((STATUS, rest)) => read_varint(rest).map_or(0, |(status, _)| status),
        _ => 0,
    };
    if status == SERVING {
        return Ok(());
    }
    let name = ["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"];
    let name = usize::try_from(status).ok().and_then(|status| name.get(status)).unwrap_or(&"UNKNOWN");
    Err(format!("service unhealthy (responded with {name:?})"))
}

fn read_varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0_u64;
    for (at, byte) in bytes.iter().take(10).enumerate() {
        number |= u64::from(byte & 0x7f).checked_shl(u32::try_from(at * 7).ok()?)?;
        if byte & 0x80 == 0 {
            return Some((number, &bytes[at + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{HeaderMap, HeaderValue, Response};
    use http_body_util::StreamBody;
    use hyper::body::Frame;
    use hyper::service::service_fn;
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn questions_are_framed() {
        assert_eq!(question(""), [0, 0, 0, 0, 0]);
        assert_eq!(question("ab"), [0, 0, 0, 0, 4, SERVICE, 2, b'a', b'b']);
        assert_eq!(question(&"x".repeat(300))[5..8], [SERVICE, 0xac, 0x02]);
    }

    /// Checks against a server that answers with these bytes and this status.
    async fn ask(answer: &'static [u8], status: &'static str) -> Result<(), String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let service = service_fn(move |request: Request<hyper::body::Incoming>| async move {
                assert_eq!(request.uri().path(), "/grpc.health.v1.Health/Check");
                let mut trailers = HeaderMap::new();
                trailers.insert("grpc-status", HeaderValue::from_static(status));
                let frames = [Ok(Frame::data(Bytes::from_static(answer))), Ok(Frame::trailers(trailers))];
                let frames: [Result<_, Infallible>; 2] = frames;
                let body = StreamBody::new(futures::stream::iter(frames));
                Ok::<_, Infallible>(Response::new(body))
            });
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
        });
        check(address, "web").await
    }

    #[tokio::test]
    async fn only_serving_is_healthy() {
        assert_eq!(ask(&[0, 0, 0, 0, 2, 8, 1], "0").await, Ok(()));
        assert!(ask(&[0, 0, 0, 0, 2, 8, 2], "0").await.unwrap_err().contains("NOT_SERVING"));
        assert!(ask(&[0, 0, 0, 0, 0], "0").await.unwrap_err().contains("UNKNOWN"));
        assert!(ask(&[], "12").await.unwrap_err().contains("code 12"));
    }
}
