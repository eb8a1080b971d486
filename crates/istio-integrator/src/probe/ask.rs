//! One question to one pod.

use std::{sync::Arc, time::Duration};

use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::{body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use rustls::{
    ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

use super::{Expected, Outcome, Target};

/// How long a pod may take to answer.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How much of an answer is read: a digest is shorter by far.
const MAX_BODY: usize = 1024;

/// Asks, and compares the answer.
pub(super) async fn ask(target: &Target, expected: &Expected) -> Outcome {
    match tokio::time::timeout(TIMEOUT, exchange(target, expected)).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(error)) => Outcome::Unreachable(error),
        Err(_) => Outcome::Unreachable(format!("no answer within {} s", TIMEOUT.as_secs())),
    }
}

async fn exchange(target: &Target, expected: &Expected) -> Result<Outcome, String> {
    let stream = TcpStream::connect(target.address).await.map_err(|error| error.to_string())?;
    if !target.tls {
        return send(stream, target, expected).await;
    }
    let name = ServerName::try_from(target.host.clone()).map_err(|error| error.to_string())?;
    let stream = connector()?.connect(name, stream).await.map_err(|error| error.to_string())?;
    send(stream, target, expected).await
}

async fn send(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    target: &Target,
    expected: &Expected,
) -> Result<Outcome, String> {
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    let request = Request::get(target.path.as_str())
        .header(header::HOST, &target.host)
        .header(header::USER_AGENT, concat!("istio-integrator/", env!("CARGO_PKG_VERSION")))
        .header(header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|error| error.to_string())?;
    // The connection does its work while the answer is awaited, and ends when nobody asks any more.
    let answer = async move {
        let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let (parts, body) = response.into_parts();
        let body =
            Limited::new(body, MAX_BODY).collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        Ok::<_, String>((parts, body))
    };
    let (answer, _) = tokio::join!(answer, connection);
    let (parts, body) = answer?;
    let proved = parts.status == StatusCode::OK
        && match expected {
            Expected::Body(digest) => body.as_ref() == digest.as_bytes(),
            Expected::Chain(answer) => {
                let header = parts.headers.get(mesh_api::names::CHAIN_HEADER);
                header.is_some_and(|value| value.as_bytes() == answer.as_bytes())
            }
        };
    Ok(if proved { Outcome::Proved } else { Outcome::Different(describe(parts.status, &body, expected)) })
}

/// What a person is told of an answer. It holds nothing that changes from one answer to the next.
fn describe(status: StatusCode, body: &[u8], expected: &Expected) -> String {
    match (status, expected) {
        (StatusCode::OK, Expected::Body(_)) if body.len() <= 64 && body.is_ascii() => {
            "it holds an older or newer state of them".to_owned()
        }
        (StatusCode::OK, Expected::Chain(_)) => "it holds an older or newer chain".to_owned(),
        _ => format!("it answers {}", status.as_u16()),
    }
}

fn connector() -> Result<TlsConnector, String> {
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Takes every certificate: the pod is found by its address in the cluster, its certificate is one for its users by any
/// authority they trust, nothing secret is sent, and an answer is believed only as far as it holds a digest that others
/// cannot know.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    /// Answers one connection with these bytes, and returns where.
    async fn server(answer: &'static str) -> std::net::SocketAddr {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            let read = stream.read(&mut request).await.unwrap();
            let text = String::from_utf8_lossy(&request[..read]).into_owned();
            assert!(text.starts_with("GET /marker HTTP/1.1\r\nhost: x.example\r\n"), "{text}");
            stream.write_all(answer.as_bytes()).await.unwrap();
        });
        address
    }

    async fn answer_of(answer: &'static str, expected: Expected) -> Outcome {
        let address = server(answer).await;
        let (pod, host, path) = ("p".to_owned(), "x.example".to_owned(), "/marker".to_owned());
        ask(&Target { pod, address, tls: false, host, path }, &expected).await
    }

    #[tokio::test]
    async fn answers_are_compared() {
        let body = || Expected::Body("abc".to_owned());
        let chain = || Expected::Chain("d.d".to_owned());
        let ok = "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc";
        assert_eq!(answer_of(ok, body()).await, Outcome::Proved);
        let other = "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabd";
        assert!(matches!(answer_of(other, body()).await, Outcome::Different(text) if text.contains("older")));
        let missing = "HTTP/1.1 404 Not Found\r\ncontent-length: 3\r\n\r\nabc";
        assert_eq!(answer_of(missing, body()).await, Outcome::Different("it answers 404".to_owned()));
        let held = "HTTP/1.1 200 OK\r\nx-ii-chain: d.d\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(answer_of(held, chain()).await, Outcome::Proved);
        assert!(matches!(answer_of(ok, chain()).await, Outcome::Different(_)));
        assert!(matches!(answer_of("nonsense\r\n\r\n", body()).await, Outcome::Unreachable(_)));
    }

    #[tokio::test]
    async fn who_cannot_be_asked_is_told_from_who_answers_otherwise() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let target = |tls| Target {
            pod: "p".to_owned(),
            address,
            tls,
            host: "x.example".to_owned(),
            path: "/marker".to_owned(),
        };
        for tls in [false, true] {
            let outcome = ask(&target(tls), &Expected::Body(String::new())).await;
            assert!(
                matches!(&outcome, Outcome::Unreachable(text) if text.contains("refused")),
                "{outcome:?}"
            );
        }
    }
}
