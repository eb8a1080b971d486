//! One request to one pod.

use std::{error::Error, io, sync::Arc, time::Duration};

use http::{Request as HttpRequest, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::{body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use mesh_api::names::CHAIN_HEADER;
use rustls::{AlertDescription, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;
use tracing::debug;

use super::{Answer, Obstacle, Outcome, book::Request, certificate};

/// How much of an answer is read: a digest is shorter by far.
const MAX_BODY: usize = 1024;
/// How much of a digest is kept.
const MAX_DIGEST: usize = 256;

/// Sends requests. Clones share the TLS configuration.
#[derive(Clone)]
pub(super) struct Asker {
    timeout: Duration,
    tls: Option<TlsConnector>,
}

impl Asker {
    /// Each request may take `timeout`, from the connection to the end of the answer.
    pub(super) fn new(timeout: Duration) -> Self {
        let tls = certificate::any_certificate();
        let tls = tls.inspect_err(|error| debug!(%error, "there is no TLS to ask pods with"));
        Self { timeout, tls: tls.ok().map(|config| TlsConnector::from(Arc::new(config))) }
    }

    /// Asks, and compares the answer. Never [`Outcome::Unasked`].
    pub(super) async fn ask(&self, request: &Request) -> Outcome {
        match tokio::time::timeout(self.timeout, self.exchange(request)).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(obstacle)) => Outcome::CannotAsk(obstacle),
            Err(_) => Outcome::CannotAsk(Obstacle::Timeout),
        }
    }

    async fn exchange(&self, request: &Request) -> Result<Outcome, Obstacle> {
        let address = request.target.address;
        let stream = TcpStream::connect(address).await.map_err(|error| {
            debug!(%address, %error, "no connection");
            match error.kind() {
                io::ErrorKind::ConnectionRefused => Obstacle::Refused,
                io::ErrorKind::TimedOut => Obstacle::Timeout,
                _ => Obstacle::Unreachable,
            }
        })?;
        // The end of a TLS handshake and the request are two small segments; the second must not wait for the first's receipt.
        if let Err(error) = stream.set_nodelay(true) {
            debug!(%address, %error, "the connection may be slow");
        }
        if !request.target.tls {
            return send(stream, request).await;
        }
        let connector = self.tls.as_ref().ok_or(Obstacle::Tls)?;
        let name = ServerName::try_from(request.host.to_string()).map_err(|_| Obstacle::Unsendable)?;
        let stream = connector.connect(name, stream).await.map_err(|error| {
            debug!(%address, host = %request.host, %error, "no TLS");
            obstacle(&error, Obstacle::Tls)
        })?;
        send(stream, request).await
    }
}

async fn send(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: &Request,
) -> Result<Outcome, Obstacle> {
    let failed = |error: hyper::Error| {
        debug!(address = %request.target.address, host = %request.host, %error, "no answer");
        obstacle(&error, Obstacle::NotHttp)
    };
    let message = HttpRequest::get(&*request.path)
        .header(header::HOST, &*request.host)
        .header(header::USER_AGENT, concat!("istio-integrator/", env!("CARGO_PKG_VERSION")))
        .header(header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|_| Obstacle::Unsendable)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let answer = async {
        let (parts, body) = sender.send_request(message).await.map_err(failed)?.into_parts();
        let body = Limited::new(body, MAX_BODY).collect().await;
        Ok((parts, body.map(http_body_util::Collected::to_bytes).unwrap_or_default()))
    };
    // The connection does its work while the answer is awaited. That it ends first tells nothing: the answer does.
    let work = async {
        if let Err(error) = connection.await {
            debug!(address = %request.target.address, %error, "the connection ended");
        }
        std::future::pending::<()>().await;
    };
    let (parts, body) = tokio::select! {
        answer = answer => answer?,
        () = work => return Err(Obstacle::NotHttp),
    };
    if parts.status != StatusCode::OK {
        return Ok(Outcome::NotYet(Answer::Status(parts.status.as_u16())));
    }
    let heard = match (request.chain, parts.headers.get(CHAIN_HEADER)) {
        (false, _) => &*body,
        (true, Some(value)) => value.as_bytes(),
        // Something else answers at this path.
        (true, None) => return Ok(Outcome::NotYet(Answer::Status(200))),
    };
    if heard == request.expected.as_bytes() {
        return Ok(Outcome::Proved);
    }
    Ok(Outcome::NotYet(match std::str::from_utf8(heard) {
        Ok(text) if text.len() <= MAX_DIGEST => Answer::Other(text.into()),
        _ => Answer::Status(200),
    }))
}

/// What an error amounts to; `otherwise` if nothing in the chain of its causes tells more.
fn obstacle(error: &(dyn Error + 'static), otherwise: Obstacle) -> Obstacle {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(rustls::Error::AlertReceived(alert)) = error.downcast_ref::<rustls::Error>() {
            // `certificate_required` is of TLS 1.3; before, the server says only that the handshake fails, which it also
            // does for other reasons, of which none is likely with a client that takes every certificate.
            return match alert {
                AlertDescription::CertificateRequired
                | AlertDescription::HandshakeFailure
                | AlertDescription::BadCertificate => Obstacle::ClientCertificate,
                _ => Obstacle::Tls,
            };
        }
        // An io::Error shows the cause of its inner error and not that error itself.
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        cause = match inner {
            Some(inner) => Some(inner as &(dyn Error + 'static)),
            None => error.source(),
        };
    }
    otherwise
}
