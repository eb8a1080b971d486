//! The part of the kubelet's API that the API server uses: logs and health, by TLS with client certificates.
//!
//! `exec`, `attach` and `port-forward` are not offered: the whole cluster can be entered instead.

mod log_stream;

use std::collections::HashMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::body::Body;
use axum::extract::{Path as UrlPath, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use process_node::config::{KUBELET_PORT, NodeConfig};
use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

use self::log_stream::{LogOptions, lines};

/// A client that does not finish its handshake is let go.
const HANDSHAKE: Duration = Duration::from_secs(10);

const NOT_OFFERED: &str = "This node runs containers as plain processes and offers no exec, attach or port-forward. \
                           Enter the cluster with `cargo xtask shell` instead.\n";

/// Logs by container, by namespace and name of the Pod.
type LogsByPod = HashMap<(String, String), HashMap<String, Logs>>;

/// Where the logs of running and finished containers are. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogIndex {
    pods: Arc<Mutex<LogsByPod>>,
}

/// The logs of one container.
#[derive(Clone, Debug)]
struct Logs {
    current: PathBuf,
    previous: Option<PathBuf>,
    ended: watch::Receiver<bool>,
}

impl LogIndex {
    /// Notes that a container writes its log to `path`; `ended` turns true when it stops.
    pub(crate) fn register(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
        path: PathBuf,
        ended: watch::Receiver<bool>,
    ) {
        let mut pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
        let containers = pods.entry((namespace.to_owned(), pod.to_owned())).or_default();
        let before = containers.remove(container).map(|logs| logs.current);
        // A Pod that took the name of another has nothing to do with its logs.
        let previous = before.filter(|before| before.parent() == path.parent());
        containers.insert(container.to_owned(), Logs { current: path, previous, ended });
    }

    /// Forgets a Pod, unless another has taken its name.
    pub(crate) fn forget(&self, namespace: &str, pod: &str, uid: &str) {
        let mut pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (namespace.to_owned(), pod.to_owned());
        let is_its =
            |logs: &Logs| logs.current.components().any(|part| part.as_os_str().to_str() == Some(uid));
        if pods.get(&key).is_some_and(|containers| containers.values().any(is_its)) {
            pods.remove(&key);
        }
    }

    fn find(&self, namespace: &str, pod: &str, container: &str) -> Option<Logs> {
        let pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
        pods.get(&(namespace.to_owned(), pod.to_owned()))?.get(container).cloned()
    }
}

/// Serves the API at the node's address.
pub(crate) async fn start(config: &NodeConfig, logs: LogIndex) -> anyhow::Result<()> {
    let tls = TlsAcceptor::from(Arc::new(tls(config)?));
    let place = SocketAddr::from((config.node_ip, KUBELET_PORT));
    let listener =
        TcpListener::bind(place).await.with_context(|| format!("listen for the kubelet API at {place}"))?;
    let router = router(logs);
    tokio::spawn(async move {
        loop {
            match listener.accept().await {
                Ok((stream, client)) => {
                    let (tls, router) = (tls.clone(), router.clone());
                    tokio::spawn(async move {
                        if let Err(error) = serve(stream, tls, router).await {
                            debug!(%client, error = format!("{error:#}"), "a connection to the kubelet API ended");
                        }
                    });
                }
                Err(error) => {
                    warn!(%error, "cannot accept a connection to the kubelet API");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    });
    Ok(())
}

fn router(logs: LogIndex) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/containerLogs/{namespace}/{pod}/{container}", get(container_logs))
        .fallback(|| async { (StatusCode::NOT_IMPLEMENTED, NOT_OFFERED) })
        .with_state(logs)
}

async fn serve(stream: TcpStream, tls: TlsAcceptor, router: Router) -> anyhow::Result<()> {
    let stream = tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await.context("TLS handshake")??;
    let service = TowerToHyperService::new(router);
    http1::Builder::new().serve_connection(TokioIo::new(stream), service).await.context("serve")
}

fn tls(config: &NodeConfig) -> anyhow::Result<rustls::ServerConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&config.client_ca)? {
        roots.add(certificate).with_context(|| format!("CA in {}", config.client_ca.display()))?;
    }
    let provider = Arc::new(ring::default_provider());
    let clients =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build()?;
    let key = PrivateKeyDer::from_pem_file(&config.serving_key)
        .map_err(|error| anyhow::anyhow!("private key in {}: {error}", config.serving_key.display()))?;
    rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(clients)
        .with_single_cert(certificates(&config.serving_cert)?, key)
        .context("certificate and key of the kubelet API")
}

fn certificates(path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let bytes = fs::read(path).with_context(|| format!("read {}", path.display()))?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    all.map_err(|error| anyhow::anyhow!("certificates in {}: {error}", path.display()))
}

async fn container_logs(
    State(index): State<LogIndex>,
    UrlPath((namespace, pod, container)): UrlPath<(String, String, String)>,
    Query(query): Query<HashMap<String, String>>,
) -> Response {
    let options = match LogOptions::parse(&query) {
        Ok(options) => options,
        Err(error) => return (StatusCode::UNPROCESSABLE_ENTITY, error).into_response(),
    };
    let Some(logs) = index.find(&namespace, &pod, &container) else {
        let message = format!("container {container:?} in pod {pod:?} is waiting to start\n");
        return (StatusCode::BAD_REQUEST, message).into_response();
    };
    let path = if options.previous {
        let Some(path) = logs.previous else {
            let message = format!("previous terminated container {container:?} in pod {pod:?} not found\n");
            return (StatusCode::BAD_REQUEST, message).into_response();
        };
        path
    } else {
        logs.current
    };
    // A finished container has nothing to follow.
    let ended = Some(logs.ended).filter(|_| options.follow && !options.previous);
    let body = Body::from_stream(lines(path, options, ended));
    ([(header::CONTENT_TYPE, "text/plain")], body).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn previous_logs_belong_to_the_same_pod() {
        let index = LogIndex::default();
        let register =
            |path: &str| index.register("ns", "p", "c", PathBuf::from(path), watch::channel(true).1);
        register("/pods/one/logs/c/0.log");
        assert_eq!(index.find("ns", "p", "c").unwrap().previous, None);
        register("/pods/one/logs/c/1.log");
        assert_eq!(
            index.find("ns", "p", "c").unwrap().previous,
            Some(PathBuf::from("/pods/one/logs/c/0.log"))
        );
        register("/pods/two/logs/c/0.log");
        assert_eq!(index.find("ns", "p", "c").unwrap().previous, None);
        index.forget("ns", "p", "one");
        assert!(index.find("ns", "p", "c").is_some());
        index.forget("ns", "p", "two");
        assert!(index.find("ns", "p", "c").is_none());
    }
}
