//! The gRPC health protocol, `grpc.health.v1.Health/Check`, as kubelets ask it.
//!
//! Two messages of one field each do not need a code generator: a `HealthCheckRequest` is the string
//! `service` at field 1, a `HealthCheckResponse` the enumeration `status` at field 1.

use std::convert::Infallible;
use std::process::ExitCode;
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue, Request, Response, header};
use futures::stream;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::say;
use crate::serve::Listen;

const CHECK: &str = "/grpc.health.v1.Health/Check";

/// gRPC's status codes.
const OK: u8 = 0;
const INVALID_ARGUMENT: u8 = 3;
const NOT_FOUND: u8 = 5;
const UNIMPLEMENTED: u8 = 12;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    listen: Listen,
    /// A service that is known besides the whole server, whose name is empty. May be given several times.
    #[arg(long = "service", value_name = "NAME")]
    services: Vec<String>,
    /// Answers `NOT_SERVING`.
    #[arg(long)]
    not_serving: bool,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let listener = args.listen.bind().await?;
    let mut term = signal(SignalKind::terminate())?;
    tokio::select! {
        () = accept(listener, Health { services: args.services, serving: !args.not_serving }) => {}
        _ = term.recv() => say("SIGTERM"),
    }
    Ok(ExitCode::SUCCESS)
}

async fn accept(listener: TcpListener, health: Health) {
    let health = Arc::new(health);
    loop {
        // An error here is a client that has gone, or too many open files; both pass.
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            continue;
        };
        let health = Arc::clone(&health);
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(Arc::clone(&health), request));
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
                say(&format!("connection: {error}"));
            }
        });
    }
}

#[derive(Debug)]
struct Health {
    services: Vec<String>,
    serving: bool,
}

impl Health {
    /// The response message to a request message, or the code of an error.
    fn check(&self, path: &str, request: &[u8]) -> Result<[u8; 7], u8> {
        if path != CHECK {
            return Err(UNIMPLEMENTED);
        }
        let service = request_service(request).ok_or(INVALID_ARGUMENT)?;
        if !service.is_empty() && !self.services.iter().any(|known| known == service) {
            return Err(NOT_FOUND);
        }
        // Not compressed, two bytes long: field 1 as a varint, SERVING or NOT_SERVING.
        Ok([0, 0, 0, 0, 2, 1 << 3, if self.serving { 1 } else { 2 }])
    }
}

type Body = StreamBody<stream::Iter<std::vec::IntoIter<Result<Frame<Bytes>, Infallible>>>>;

async fn answer(health: Arc<Health>, request: Request<Incoming>) -> Result<Response<Body>, hyper::Error> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await?.to_bytes();
    let mut frames = Vec::new();
    let code = match health.check(&path, &body) {
        Ok(message) => {
            frames.push(Ok(Frame::data(Bytes::copy_from_slice(&message))));
            OK
        }
        Err(code) => code,
    };
    say(&format!("{path} {code}"));
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from(u16::from(code)));
    frames.push(Ok(Frame::trailers(trailers)));
    let mut response = Response::new(StreamBody::new(stream::iter(frames)));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    Ok(response)
}

/// The service of a framed `HealthCheckRequest`; nothing where it is not one.
fn request_service(framed: &[u8]) -> Option<&str> {
    // Flag and length, then the message. A compressed one would need an algorithm we never offered.
    let (prefix, message) = framed.split_at_checked(5)?;
    let [0, length @ ..] = prefix else { return None };
    let length = u32::from_be_bytes(length.try_into().ok()?);
    if usize::try_from(length) != Ok(message.len()) {
        return None;
    }
    // proto3 leaves out a field that has its default.
    let Some((tag, rest)) = message.split_first() else { return Some("") };
    let (length, name) = rest.split_first()?;
    // Names of up to 127 bytes, the length of which is a varint of one byte.
    let is_name = *tag == (1 << 3) | 2 && *length < 128 && usize::from(*length) == name.len();
    if is_name { std::str::from_utf8(name).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;

    use super::*;

    fn framed(message: &[u8]) -> Vec<u8> {
        let length = u32::try_from(message.len()).unwrap();
        [&[0], &length.to_be_bytes()[..], message].concat()
    }

    #[test]
    fn requests_name_a_service() {
        assert_eq!(request_service(&framed(b"")), Some(""));
        assert_eq!(request_service(&framed(b"\x0a\x04shop")), Some("shop"));
        for bad in
            [&b""[..], b"\0\0\0\0\x01", b"\x01\0\0\0\0", &framed(b"\x0a\x09shop"), &framed(b"\x12\x04shop")]
        {
            assert_eq!(request_service(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn health_is_of_known_services() {
        let health = Health { services: vec!["shop".to_owned()], serving: true };
        assert_eq!(health.check(CHECK, &framed(b"")), Ok([0, 0, 0, 0, 2, 8, 1]));
        assert_eq!(health.check(CHECK, &framed(b"\x0a\x04shop")), Ok([0, 0, 0, 0, 2, 8, 1]));
        assert_eq!(health.check(CHECK, &framed(b"\x0a\x04pots")), Err(NOT_FOUND));
        assert_eq!(health.check(CHECK, b""), Err(INVALID_ARGUMENT));
        assert_eq!(health.check("/grpc.health.v1.Health/Watch", &framed(b"")), Err(UNIMPLEMENTED));
        let health = Health { services: vec![], serving: false };
        assert_eq!(health.check(CHECK, &framed(b"")), Ok([0, 0, 0, 0, 2, 8, 2]));
    }

    #[tokio::test]
    async fn answers_over_http2_with_trailers() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(accept(listener, Health { services: vec![], serving: true }));
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let io = TokioIo::new(stream);
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake::<_, _, Full<Bytes>>(TokioExecutor::new(), io)
                .await
                .unwrap();
        tokio::spawn(connection);
        let request =
            Request::post(format!("http://{address}{CHECK}")).body(Full::new(framed(b"").into())).unwrap();
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.headers()["content-type"], "application/grpc");
        let body = response.into_body().collect().await.unwrap();
        assert_eq!(body.trailers().unwrap()["grpc-status"], "0");
        assert_eq!(body.to_bytes().as_ref(), [0, 0, 0, 0, 2, 8, 1]);
    }
}
