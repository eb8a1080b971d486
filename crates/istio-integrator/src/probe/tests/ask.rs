//! Against real sockets on loopback.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use rustls::{RootCertStore, ServerConfig, pki_types::PrivateKeyDer, server::WebPkiClientVerifier};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpListener,
    time::Instant,
};
use tokio_rustls::TlsAcceptor;

use crate::probe::{
    Answer, Limits, Obstacle, Outcome, Question, Subject, Target,
    ask::Asker,
    book::{Book, Request},
};

const TIMEOUT: Duration = Duration::from_millis(500);

fn request(address: SocketAddr, tls: bool, chain: bool, host: &str) -> Request {
    let start = Instant::now();
    let mut book = Book::new(Limits::default(), start);
    let subject = if chain { Subject::Chain("c".into(), 80) } else { Subject::Routes("/marker".into()) };
    let targets = [Target { pod: "p".into(), address, tls }].into();
    let question = Question {
        subject,
        host: host.into(),
        path: "/marker".into(),
        expected: "abc".into(),
        epoch: "".into(),
        targets,
    };
    book.want([question], start);
    book.take(start).requests.remove(0)
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Answers one request with these bytes, and says what came.
async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: &str) -> String {
    let mut request = vec![0; 4096];
    let read = stream.read(&mut request).await.unwrap_or_default();
    // A client that hung up is no failure here.
    drop(stream.write_all(answer.as_bytes()).await);
    drop(stream.shutdown().await);
    String::from_utf8_lossy(&request[..read]).into_owned()
}

async fn outcome_of(answer: &'static str, chain: bool) -> Outcome {
    let (listener, address) = listen().await;
    let server = tokio::spawn(async move { serve(listener.accept().await.unwrap().0, answer).await });
    let outcome = Asker::new(TIMEOUT).ask(&request(address, false, chain, "shop.example.com")).await;
    let heard = server.await.unwrap();
    assert!(heard.starts_with("GET /marker HTTP/1.1\r\nhost: shop.example.com\r\n"), "{heard}");
    outcome
}

#[tokio::test]
async fn answers_are_told_apart() {
    let with = |status: &str, header: &str, body: &str| -> &'static str {
        let length = body.len();
        format!("HTTP/1.1 {status}\r\n{header}content-length: {length}\r\n\r\n{body}").leak()
    };
    let other = |digest: &str| Outcome::NotYet(Answer::Other(digest.into()));
    let status = |status| Outcome::NotYet(Answer::Status(status));
    let long = "x".repeat(5000);
    for (answer, chain, expected) in [
        (with("200 OK", "", "abc"), false, Outcome::Proved),
        (with("200 OK", "", "abd"), false, other("abd")),
        (with("200 OK", "", &long), false, other("")),
        (with("404 Not Found", "", "abc"), false, status(404)),
        (with("200 OK", "x-ii-chain: abc\r\n", "nothing"), true, Outcome::Proved),
        (with("200 OK", "x-ii-chain: abd\r\n", ""), true, other("abd")),
        (with("200 OK", "", "abc"), true, status(200)),
        (with("503 Service Unavailable", "x-ii-chain: abc\r\n", ""), true, status(503)),
        ("nonsense\r\n\r\n", false, Outcome::CannotAsk(Obstacle::NotHttp)),
        ("", false, Outcome::CannotAsk(Obstacle::NotHttp)),
    ] {
        assert_eq!(outcome_of(answer, chain).await, expected, "{answer:.60}");
    }
}

#[tokio::test]
async fn who_cannot_be_asked_is_told_from_who_answers_otherwise() {
    let asker = Asker::new(TIMEOUT);
    let (listener, address) = listen().await;
    drop(listener);
    for tls in [false, true] {
        let outcome = asker.ask(&request(address, tls, false, "x.example.com")).await;
        assert_eq!(outcome, Outcome::CannotAsk(Obstacle::Refused));
    }
    // A listener that accepts and says nothing.
    let (listener, address) = listen().await;
    for tls in [false, true] {
        let start = Instant::now();
        let outcome = asker.ask(&request(address, tls, false, "x.example.com")).await;
        assert_eq!(outcome, Outcome::CannotAsk(Obstacle::Timeout));
        assert!(start.elapsed() < TIMEOUT * 4);
    }
    for host in ["not a host", "x\ny"] {
        let outcome = asker.ask(&request(address, true, false, host)).await;
        assert_eq!(outcome, Outcome::CannotAsk(Obstacle::Unsendable), "{host}");
    }
    let outcome = asker.ask(&request(address, false, false, "x\ny")).await;
    assert_eq!(outcome, Outcome::CannotAsk(Obstacle::Unsendable));
    drop(listener);
}

/// A server's TLS with a certificate that nobody vouches for; of protocols, `versions`.
fn acceptor(
    versions: &[&'static rustls::SupportedProtocolVersion],
    wants_client_certificate: bool,
) -> TlsAcceptor {
    let key = rcgen::generate_simple_self_signed(["another.example.com".to_owned()]).unwrap();
    let certificate = key.cert.der().clone();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ServerConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(versions).unwrap();
    let builder = if wants_client_certificate {
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
        builder.with_client_cert_verifier(verifier.unwrap())
    } else {
        builder.with_no_client_auth()
    };
    let private = PrivateKeyDer::Pkcs8(key.signing_key.serialize_der().into());
    let mut config = builder.with_single_cert(vec![certificate], private).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

#[tokio::test]
async fn tls_is_spoken_with_sni_and_with_whatever_certificate() {
    for versions in [&[&rustls::version::TLS12], &[&rustls::version::TLS13]] {
        let (listener, address) = listen().await;
        let acceptor = acceptor(versions, false);
        let server = tokio::spawn(async move {
            let stream = acceptor.accept(listener.accept().await.unwrap().0).await.unwrap();
            let (_, connection) = stream.get_ref();
            let said =
                (connection.server_name().map(str::to_owned), connection.alpn_protocol().map(<[u8]>::to_vec));
            serve(stream, "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc").await;
            said
        });
        let outcome = Asker::new(TIMEOUT).ask(&request(address, true, false, "shop.example.com")).await;
        assert_eq!(outcome, Outcome::Proved);
        let said = server.await.unwrap();
        assert_eq!(said, (Some("shop.example.com".to_owned()), Some(b"http/1.1".to_vec())));
    }
}

#[tokio::test]
async fn a_demand_for_a_client_certificate_is_recognised() {
    for versions in [&[&rustls::version::TLS12], &[&rustls::version::TLS13]] {
        let (listener, address) = listen().await;
        let acceptor = acceptor(versions, true);
        let server =
            tokio::spawn(async move { acceptor.accept(listener.accept().await.unwrap().0).await.is_err() });
        let outcome = Asker::new(TIMEOUT).ask(&request(address, true, false, "shop.example.com")).await;
        assert_eq!(outcome, Outcome::CannotAsk(Obstacle::ClientCertificate), "{versions:?}");
        assert!(server.await.unwrap());
    }
}

#[tokio::test]
async fn a_server_without_tls_is_no_pod_that_holds_nothing() {
    let (listener, address) = listen().await;
    let server = tokio::spawn(async move {
        serve(listener.accept().await.unwrap().0, "HTTP/1.1 400 Bad Request\r\n\r\n").await
    });
    let outcome = Asker::new(TIMEOUT).ask(&request(address, true, false, "shop.example.com")).await;
    assert_eq!(outcome, Outcome::CannotAsk(Obstacle::Tls));
    server.await.unwrap();
}
