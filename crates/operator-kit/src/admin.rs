//! The port for probes, metrics and the log level.
//!
//! It has no authentication, as probes and scrapers bring none. So it tells nothing about tenants, and the one request
//! that changes something, `PUT /log-level`, is taken from the pod itself only, as through `kubectl port-forward`.

use crate::{metrics::Metrics, telemetry::LogLevel};
use axum::{
    Router,
    extract::{ConnectInfo, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use std::{fmt, future::Future, io, net::SocketAddr, sync::Arc};
use tokio::net::TcpListener;

/// The content type of the `OpenMetrics` text format.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Tells whether the process is ready, and if not, what it waits for.
pub type Readiness = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// What the admin port tells about.
#[derive(Clone)]
pub struct Admin {
    /// Asked at each `/readyz`.
    pub readiness: Readiness,
    /// Shown at `/metrics`.
    pub metrics: Arc<Metrics>,
    /// Read and set at `/log-level`.
    pub log_level: LogLevel,
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin").finish_non_exhaustive()
    }
}

/// Serves `/livez`, `/readyz`, `/metrics` and `/log-level` until `stop` is done.
pub async fn serve(
    listener: TcpListener,
    admin: Admin,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let service = router(admin).into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).with_graceful_shutdown(stop).await
}

fn router(admin: Admin) -> Router {
    Router::new()
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .route("/log-level", get(log_level).put(set_log_level))
        .with_state(admin)
}

async fn ready(State(admin): State<Admin>) -> (StatusCode, String) {
    match (admin.readiness)() {
        Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
        Err(missing) => (StatusCode::SERVICE_UNAVAILABLE, format!("{missing}\n")),
    }
}

async fn metrics(State(admin): State<Admin>) -> Response {
    match admin.metrics.encode() {
        Ok(text) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

async fn log_level(State(admin): State<Admin>) -> (StatusCode, String) {
    match admin.log_level.current() {
        Ok(level) => (StatusCode::OK, format!("{level}\n")),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}

async fn set_log_level(
    State(admin): State<Admin>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    directives: String,
) -> (StatusCode, String) {
    if !peer.ip().to_canonical().is_loopback() {
        let remedy = "the log level is set from the pod itself only: use kubectl port-forward, then \
                      curl -X PUT -d debug http://localhost:PORT/log-level\n";
        return (StatusCode::FORBIDDEN, remedy.to_owned());
    }
    match admin.log_level.set(directives.trim()) {
        Ok(()) => {
            tracing::info!(level = directives.trim(), "log level changed");
            log_level(State(admin)).await
        }
        Err(error) => (StatusCode::BAD_REQUEST, format!("{error}\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry;
    use std::{net::IpAddr, sync::atomic::AtomicBool, sync::atomic::Ordering};
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpStream,
        sync::oneshot,
    };

    async fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let (head, body) = request.split_once('|').unwrap_or((request, ""));
        let length = body.len();
        let text = format!(
            "{head} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        format!("{} {}", head.split(' ').nth(1).unwrap(), body.trim_end())
    }

    #[tokio::test]
    async fn answers_probes_scrapers_and_the_pod_itself() {
        let is_ready = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&is_ready);
        let readiness: Readiness = Arc::new(move || {
            if asked.load(Ordering::Relaxed) { Ok(()) } else { Err("Things are not listed yet".to_owned()) }
        });
        let metrics = Arc::new(Metrics::new("op"));
        metrics.leader(true);
        let log_level = telemetry::init(telemetry::LogFormat::Text, "warn").unwrap();
        let admin = Admin { readiness, metrics, log_level };

        let far = IpAddr::from([192, 0, 2, 7]);
        let (code, text) =
            set_log_level(State(admin.clone()), ConnectInfo((far, 1).into()), "trace".to_owned()).await;
        assert!(code == StatusCode::FORBIDDEN && text.contains("port-forward"), "{code} {text}");

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let server = tokio::spawn(serve(listener, admin, async { drop(stopped.await) }));
        assert_eq!(ask(address, "GET /livez").await, "200 ok");
        assert_eq!(ask(address, "GET /readyz").await, "503 Things are not listed yet");
        is_ready.store(true, Ordering::Relaxed);
        assert_eq!(ask(address, "GET /readyz").await, "200 ok");
        assert!(ask(address, "GET /metrics").await.contains("\nop_leader 1\n"));
        assert_eq!(ask(address, "GET /log-level").await, "200 warn");
        assert_eq!(ask(address, "PUT /log-level|debug\n").await, "200 debug");
        assert!(ask(address, "PUT /log-level|a=b=c").await.starts_with("400 \"a=b=c\" is not a log level"));
        assert_eq!(ask(address, "GET /log-level").await, "200 debug");
        drop(stop);
        server.await.unwrap().unwrap();
    }
}
