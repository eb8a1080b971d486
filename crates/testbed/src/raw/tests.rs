use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::Arc;

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;

async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Answers with the status that the path names, and the connection's number and the path in the body.
fn respond(number: usize, request: &Request<hyper::body::Incoming>) -> http::Response<Full<Bytes>> {
    let path = request.uri().path().to_owned();
    let status = path.trim_matches('/').parse().unwrap_or(200);
    let body = Full::new(Bytes::from(format!("{number} {path}")));
    http::Response::builder().status(status).body(body).unwrap()
}

/// A server on loopback, by the protocol that TLS settles on, or else the given one.
async fn server(tls: Option<(String, String)>, two: bool) -> SocketAddr {
    let (listener, address) = listener().await;
    let acceptor = tls.map(|(certificate, key)| {
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let mut config = config.with_single_cert(vec![certificate], key).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    });
    tokio::spawn(async move {
        for number in 0.. {
            let (stream, _) = listener.accept().await.unwrap();
            let (acceptor, mut two) = (acceptor.clone(), two);
            tokio::spawn(async move {
                let stream: Box<dyn Stream> = match acceptor {
                    None => Box::new(stream),
                    Some(acceptor) => {
                        let stream = acceptor.accept(stream).await.unwrap();
                        two = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                        Box::new(stream)
                    }
                };
                let (io, service) = (
                    TokioIo::new(stream),
                    service_fn(move |request| {
                        std::future::ready(Ok::<_, Infallible>(respond(number, &request)))
                    }),
                );
                // A client that goes away is no error of the test.
                if two {
                    let _ = http2::Builder::new(TokioExecutor::new()).serve_connection(io, service).await;
                } else {
                    let _ = http1::Builder::new().serve_connection(io, service).await;
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn a_connection_is_kept() {
    let address = server(None, false).await;
    let mut one = Connection::open(address).await.unwrap();
    for path in ["/200", "/204", "/404", "/200"] {
        let text = format!("GET {path} HTTP/1.1\r\nhost: h\r\n\r\n");
        let reply = one.exchange(text.as_bytes()).await.unwrap();
        assert_eq!(reply.status.to_string(), path[1..]);
        assert!(reply.status == 204 || reply.body == format!("0 {path}"));
    }
    assert_eq!(once(address, b"GET /200 HTTP/1.1\r\nhost: h\r\n\r\n").await.unwrap().body, "1 /200");
    let mut two = Http2::open(server(None, true).await).await.unwrap();
    for path in ["/200", "/503"] {
        let request = Request::get(format!("http://h{path}")).body(String::new()).unwrap();
        let reply = two.exchange(request).await.unwrap();
        assert_eq!((reply.status.to_string(), reply.body), (path[1..].to_owned(), format!("0 {path}")));
    }
}

#[tokio::test]
async fn tls_is_spoken_to_trusted_servers_alone() {
    let (certificate, key) = crate::self_signed(&["a.example", "b.example"]).unwrap();
    let address = server(Some((certificate.clone(), key)), false).await;
    let tls = Tls::trusting(&certificate).unwrap();
    let mut one = Connection::open_tls(address, &tls, "a.example").await.unwrap();
    assert_eq!(one.exchange(b"GET /404 HTTP/1.1\r\nhost: h\r\n\r\n").await.unwrap().status, 404);
    let mut two = Http2::open_tls(address, &tls, "b.example").await.unwrap();
    let request = Request::get("https://b.example/503").body(String::new()).unwrap();
    assert_eq!(two.exchange(request).await.unwrap().status, 503);
    assert!(Connection::open_tls(address, &tls, "c.example").await.is_err());
    let (other, _) = crate::self_signed(&["a.example"]).unwrap();
    let other = Tls::trusting(&other).unwrap();
    assert!(Connection::open_tls(address, &other, "a.example").await.is_err());
}

#[tokio::test]
async fn fields_of_http2_are_sent_as_they_are() {
    let address = server(None, true).await;
    let field = |name: &str, value: &str| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
    let request = |path: &str| {
        vec![
            field(":method", "GET"),
            field(":scheme", "http"),
            field(":authority", "h"),
            field(":path", path),
            field("x-long", &"y".repeat(5000)),
        ]
    };
    for status in [200, 401, 403, 404, 418, 503] {
        assert_eq!(frames::once(address, &request(&format!("/{status}"))).await.unwrap(), status);
    }
    // A server of a library refuses these, which shows that they arrive as they are.
    for wrong in [field("X-Upper", "a"), field(":path", "/again"), field("x-control", "\u{1}")] {
        let mut fields = request("/200");
        fields.push(wrong.clone());
        let answer = frames::once(address, &fields).await;
        assert!(!matches!(answer, Ok(200)), "{wrong:?}: {answer:?}");
    }
}

#[tokio::test]
async fn silence_is_told_from_a_closed_connection() {
    let (listener, address) = listener().await;
    let silent = tokio::spawn(async move {
        let first = listener.accept().await.unwrap();
        drop(listener.accept().await.unwrap());
        tokio::time::sleep(TIMEOUT * 2).await;
        drop(first);
    });
    let mut held = Connection::open(address).await.unwrap();
    let closed = once(address, b"GET / HTTP/1.1\r\n\r\n").await.unwrap_err();
    assert!(!closed.is::<NoAnswer>(), "{closed:#}");
    let silence = held.exchange(b"GET / HTTP/1.1\r\n\r\n").await.unwrap_err();
    assert!(silence.is::<NoAnswer>(), "{silence:#}");
    silent.abort();
}
