//! The server and client halves: takes requests in, serves their faults, passes the others on.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use super::faults::{Ending, Faults, Verdict};
use super::kill;
use super::relay::Relay;
use super::request::{Request, Verb};
use super::rule::Stage;

pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;
pub(super) type Body = UnsyncBoxBody<Bytes, BoxError>;

/// The API server takes bodies of up to 3 MiB; more than that is not ours to judge, but must end somewhere.
const MAX_REQUEST_BODY: usize = 16 << 20;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Headers that belong to one connection (RFC 9110, section 7.6.1), and those that a proxy sets anew.
const NOT_FORWARDED: [header::HeaderName; 8] = [
    header::CONNECTION,
    header::HOST,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    // Streams must be readable here, to be cut between events.
    header::ACCEPT_ENCODING,
];

/// A reverse proxy before a kube-apiserver, on a loopback port of its own, that makes faults on request.
///
/// It speaks HTTP/1.1 with a certificate of its own, since Go's clients send no credentials in the clear.
/// Clients authenticate with a bearer token, which is passed on; client certificates cannot be. Upgrades
/// (exec, attach, port-forward) are refused. It ends when it is dropped, with all its connections.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    certificate: rcgen::Certificate,
    faults: Faults,
    task: JoinHandle<()>,
}

impl FaultProxy {
    /// Starts a proxy without faults before the API server of this configuration, of which it uses the URL
    /// and the CA, not the credentials. Needs a Tokio runtime.
    pub async fn start(upstream: &kube::Config) -> anyhow::Result<Self> {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("fault proxy: no port to listen on")?;
        let address = listener.local_addr().context("fault proxy: no address")?;
        let (certificate, tls) = certificate().context("fault proxy: certificate")?;
        let faults = Faults::default();
        let gate = Arc::new(Gate {
            client: client(upstream)?,
            upstream: upstream.cluster_url.clone(),
            faults: faults.clone(),
        });
        let task = tokio::spawn(accept(listener, tls, gate));
        Ok(Self { address, certificate, faults, task })
    }

    /// The address that clients connect to, such as `https://127.0.0.1:40000`.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The certificate that clients must trust, in PEM.
    pub fn ca(&self) -> String {
        self.certificate.pem()
    }

    /// The handle to set faults and read counters.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Configuration of a `kube` client that goes through the proxy as the holder of this bearer token.
    /// The client's own retries (of 429, 503 and 504) stay on, as in the operators.
    pub fn config(&self, token: &str) -> anyhow::Result<kube::Config> {
        let url = self.url().parse::<Uri>().context("fault proxy: bad address")?;
        let mut config = kube::Config::new(url);
        config.root_cert = Some(vec![self.certificate.der().to_vec()]);
        config.auth_info.token = Some(token.to_owned().into());
        Ok(config)
    }

    /// A kubeconfig for a process that is to go through the proxy as the holder of this bearer token: JSON,
    /// which is YAML too.
    pub fn kubeconfig(&self, token: &str) -> String {
        let name = "fault-proxy";
        let ca = STANDARD.encode(self.ca());
        serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": self.url(), "certificate-authority-data": ca}}],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        })
        .to_string()
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A key and a certificate for it, which is its own authority, made for this proxy alone.
fn certificate() -> anyhow::Result<(rcgen::Certificate, TlsAcceptor)> {
    let key = rcgen::KeyPair::generate()?;
    let certificate = rcgen::CertificateParams::new([Ipv4Addr::LOCALHOST.to_string()])?.self_signed(&key)?;
    let private = PrivateKeyDer::try_from(key.serialize_der()).map_err(anyhow::Error::msg)?;
    let tls = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)?;
    Ok((certificate, TlsAcceptor::from(Arc::new(tls))))
}

/// The request ends without an answer: hyper closes the connection when a service fails.
#[derive(Debug, thiserror::Error)]
#[error("the fault proxy hangs up")]
struct HangUp;

type UpstreamClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

fn client(upstream: &kube::Config) -> anyhow::Result<UpstreamClient> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in upstream.root_cert.iter().flatten() {
        roots
            .add(CertificateDer::from(certificate.clone()))
            .context("fault proxy: unusable CA certificate")?;
    }
    let tls = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .context("fault proxy: TLS")?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut tcp = HttpConnector::new();
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    tcp.set_nodelay(true);
    tcp.enforce_http(false);
    let mut builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    if let Some(name) = &upstream.tls_server_name {
        let name = ServerName::try_from(name.clone())
            .with_context(|| format!("fault proxy: {name:?} is no server name"))?;
        builder = builder.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    let connector = builder.enable_http1().wrap_connector(tcp);
    Ok(Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(connector))
}

/// Serves connections until it is aborted; their tasks end with it, since the set that holds them does.
async fn accept(listener: TcpListener, tls: TlsAcceptor, gate: Arc<Gate>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(serve(stream, tls.clone(), Arc::clone(&gate)));
                }
                Err(error) => {
                    // Out of file descriptors, mostly: passes.
                    tracing::warn!(%error, "fault proxy cannot accept");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(stream: TcpStream, tls: TlsAcceptor, gate: Arc<Gate>) {
    // Events are small, and each must arrive at once.
    let _ = stream.set_nodelay(true);
    let stream = match tls.accept(stream).await {
        Ok(stream) => stream,
        Err(error) => {
            tracing::debug!(%error, "fault proxy: handshake");
            return;
        }
    };
    let service = service_fn(move |request| {
        let gate = Arc::clone(&gate);
        async move { gate.handle(request).await }
    });
    let connection =
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "fault proxy connection ended");
    }
}

/// What the connections share.
#[derive(Debug)]
struct Gate {
    client: UpstreamClient,
    upstream: Uri,
    faults: Faults,
}

impl Gate {
    async fn handle(&self, incoming: http::Request<Incoming>) -> Result<http::Response<Body>, HangUp> {
        let (head, body) = incoming.into_parts();
        if head.headers.contains_key(header::UPGRADE) {
            return Ok(plain(StatusCode::NOT_IMPLEMENTED, "the fault proxy does not pass on upgrades"));
        }
        let body = match Limited::new(body, MAX_REQUEST_BODY).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) => {
                tracing::debug!(%error, "fault proxy: request body");
                return Err(HangUp);
            }
        };
        let mut request = Request::parse(&head.method, head.uri.path(), head.uri.query().unwrap_or_default());
        request = request.with_body(&body);
        if let Some(agent) = head.headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok()) {
            agent.clone_into(&mut request.user_agent);
        }
        let Verdict { delay, ending, watch } = self.faults.decide(&request);
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        if let Some((Stage::Before, ending)) = &ending {
            return end(ending, &request).await;
        }
        let response = self.forward(head, body).await?;
        if let Some((Stage::After, ending)) = &ending {
            if request.verb != Verb::Watch {
                // Only when the body is read to its end is it certain that the server is done.
                let _ = response.into_body().collect().await;
            }
            return end(ending, &request).await;
        }
        let (head, body) = response.into_parts();
        let body = if request.verb == Verb::Watch && head.status.is_success() {
            let json = head.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
            let json = json.is_some_and(|kind| kind.starts_with("application/json"));
            let (guard, cuts) = self.faults.open_watch(request.clone());
            Relay { request, upstream: body, json, limit: watch, cuts, guard }.start()
        } else {
            body.map_err(Into::into).boxed_unsync()
        };
        Ok(http::Response::from_parts(head, body))
    }

    /// Sends the request on, and gives the answer with a head for the client's connection.
    async fn forward(
        &self,
        head: http::request::Parts,
        body: Bytes,
    ) -> Result<http::Response<Incoming>, HangUp> {
        let mut request = http::Request::new(Full::new(body));
        *request.method_mut() = head.method;
        *request.uri_mut() = join(&self.upstream, &head.uri).ok_or(HangUp)?;
        *request.headers_mut() = forwarded(head.headers);
        match self.client.request(request).await {
            Ok(mut response) => {
                let headers = forwarded(std::mem::take(response.headers_mut()));
                *response.headers_mut() = headers;
                *response.version_mut() = http::Version::HTTP_11;
                Ok(response)
            }
            Err(error) => {
                // The client is to see what it would see of a server that is down.
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "fault proxy: API server does not answer"
                );
                Err(HangUp)
            }
        }
    }
}

/// Carries out how a request ends other than by the server's answer.
async fn end(ending: &Ending, request: &Request) -> Result<http::Response<Body>, HangUp> {
    let response = match ending {
        Ending::HangUp => return Err(HangUp),
        Ending::Kill(victim) => {
            kill::kill(victim, request).await;
            return Err(HangUp);
        }
        Ending::Answer(failure) => failure.response(request),
        Ending::ErrorEvent(failure) => failure.watch_event(request).map(|event| {
            let mut response = http::Response::new(event);
            let json = HeaderValue::from_static("application/json");
            response.headers_mut().insert(header::CONTENT_TYPE, json);
            response
        }),
    };
    match response {
        Ok(response) => Ok(response.map(full)),
        Err(error) => {
            tracing::error!(%error, "fault proxy cannot write an answer");
            Err(HangUp)
        }
    }
}

/// The URL of the same resource at the API server, whose own URL may have a path.
fn join(upstream: &Uri, uri: &Uri) -> Option<Uri> {
    let path = uri.path_and_query()?.as_str();
    let mut parts = upstream.clone().into_parts();
    let base = upstream.path().trim_end_matches('/');
    parts.path_and_query = Some(format!("{base}{path}").parse().ok()?);
    Uri::from_parts(parts).ok()
}

fn forwarded(mut headers: HeaderMap) -> HeaderMap {
    for name in &NOT_FORWARDED {
        headers.remove(name);
    }
    headers.remove("keep-alive");
    headers
}

fn full(body: Bytes) -> Body {
    Full::new(body).map_err(|never| match never {}).boxed_unsync()
}

fn plain(code: StatusCode, text: &'static str) -> http::Response<Body> {
    let mut response = http::Response::new(full(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = code;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_own_path_is_kept() {
        let join = |upstream: &str, uri: &str| {
            join(&upstream.parse().unwrap(), &uri.parse().unwrap()).unwrap().to_string()
        };
        assert_eq!(
            join("https://10.0.0.1:6443", "/api/v1/pods?watch=1"),
            "https://10.0.0.1:6443/api/v1/pods?watch=1"
        );
        assert_eq!(join("https://h/clusters/c/", "/version"), "https://h/clusters/c/version");
    }

    #[test]
    fn credentials_pass_and_hop_by_hop_headers_do_not() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("authorization", "Bearer t"),
            ("accept", "application/json"),
            ("connection", "keep-alive"),
            ("keep-alive", "timeout=5"),
            ("host", "127.0.0.1:1"),
            ("accept-encoding", "gzip"),
            ("transfer-encoding", "chunked"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        let names: Vec<_> = forwarded(headers).keys().map(ToString::to_string).collect();
        assert_eq!(names.len(), 2, "{names:?}");
        assert!(names.contains(&"authorization".to_owned()) && names.contains(&"accept".to_owned()));
    }
}
