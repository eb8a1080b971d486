//! An endpoint for probes, the health of which is changed by requests.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::routing::any;

use crate::say;
use crate::serve::{Listen, serve};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    listen: Listen,
    /// Starts unhealthy.
    #[arg(long)]
    failing: bool,
}

type Healthy = Arc<AtomicBool>;

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    serve(args.listen, app(!args.failing)).await
}

/// `/fail` and `/recover` set the health; every other path answers 200 or 503 by it. Each request is logged.
fn app(healthy: bool) -> Router {
    Router::new()
        .route(
            "/fail",
            any(|State(state): State<Healthy>, request: Request| async move { set(&state, false, &request) }),
        )
        .route(
            "/recover",
            any(|State(state): State<Healthy>, request: Request| async move { set(&state, true, &request) }),
        )
        .fallback(|State(healthy): State<Healthy>, request: Request| async move {
            answer(healthy.load(Ordering::Relaxed), &request)
        })
        .with_state(Arc::new(AtomicBool::new(healthy)))
}

fn set(state: &AtomicBool, healthy: bool, request: &Request) -> (StatusCode, &'static str) {
    state.store(healthy, Ordering::Relaxed);
    let (_, text) = answer(healthy, request);
    (StatusCode::OK, text)
}

fn answer(healthy: bool, request: &Request) -> (StatusCode, &'static str) {
    let (status, text) =
        if healthy { (StatusCode::OK, "healthy\n") } else { (StatusCode::SERVICE_UNAVAILABLE, "failing\n") };
    say(&format!("{} {} {}", request.method(), request.uri(), text.trim_end()));
    (status, text)
}

#[cfg(test)]
mod tests {
    use testbed::curl;

    use super::*;
    use crate::serve::background;

    #[tokio::test]
    async fn health_follows_requests() {
        let address = background(app(true)).await;
        let expected = [
            ("/healthz", 200),
            ("/fail", 200),
            ("/healthz", 503),
            ("/other", 503),
            ("/recover", 200),
            ("/healthz", 200),
        ];
        for (path, wanted) in expected {
            assert_eq!(curl::get(address, "h", path).await.unwrap().status, wanted, "{path}");
        }
        let address = background(app(false)).await;
        assert_eq!(curl::get(address, "h", "/").await.unwrap().status, 503);
    }
}
