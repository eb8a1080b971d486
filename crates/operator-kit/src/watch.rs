//! Fills a [`Cache`] from the API server, for as long as the process lives.

use crate::{
    backoff::Backoff,
    cache::{Cache, Entry, Key, Wake},
    client::CallError,
    metrics::Metrics,
};
use futures::StreamExt as _;
use kube::{
    Api, Resource,
    runtime::watcher::{self, watcher},
};
use serde::de::DeserializeOwned;
use std::{fmt::Debug, pin::pin, sync::Arc, time::Duration};
use tracing::{debug, info, warn};

/// How often to look whether a kind that is not served has appeared.
pub const NOT_SERVED_INTERVAL: Duration = Duration::from_secs(3);

const RETRY: Backoff = Backoff { base: Duration::from_millis(500), cap: Duration::from_secs(30) };

/// Watches `api` into `cache` and never returns; each change of what is held wakes the loop.
///
/// `keep` reduces an object to what is held of it. A kind that is not served is no error: the cache says so, and the
/// watch begins when its CRD appears.
pub async fn follow<K, T>(
    api: Api<K>,
    config: watcher::Config,
    cache: Arc<Cache<T>>,
    keep: impl Fn(K) -> (Key, Entry<T>) + Send + 'static,
    wake: Wake,
    metrics: Arc<Metrics>,
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    T: PartialEq + Send + std::marker::Sync + 'static,
{
    let kind = cache.kind();
    let mut failures = 0;
    loop {
        let mut events = pin!(watcher(api.clone(), config.clone()));
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    let filled = matches!(event, watcher::Event::InitDone);
                    // `Init` comes before the attempt to list and proves nothing.
                    if !matches!(event, watcher::Event::Init) {
                        failures = 0;
                    }
                    if cache.observe(event, &keep) {
                        metrics.cached_objects(kind, cache.len());
                        wake.wake();
                    }
                    if filled {
                        debug!(kind, objects = cache.len(), "listed");
                    }
                }
                Err(error) => {
                    metrics.watch_error(kind);
                    if is_not_served(&error) {
                        if cache.not_served() {
                            info!(kind, "the API server does not serve this kind; waiting for its CRD");
                            metrics.cached_objects(kind, 0);
                            wake.wake();
                        }
                        tokio::time::sleep(NOT_SERVED_INTERVAL).await;
                        // A watch that was cut by the removal of the CRD would never list again.
                        break;
                    }
                    let expired = is_expired(&error);
                    let delay = RETRY.delay(failures, Backoff::jitter());
                    failures = failures.saturating_add(1);
                    let error = explain(error);
                    warn!(kind, %error, retry_in = ?delay, "watching failed");
                    cache.failed(error);
                    tokio::time::sleep(delay).await;
                    if expired {
                        // The watcher would ask for the same resource version for ever; a new one lists first.
                        break;
                    }
                }
            }
        }
    }
}

fn is_not_served(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status)) => status.code == 404,
        _ => false,
    }
}

/// Whether the API server has forgotten the resource version from which a watch was to go on, and says so by the status of
/// its answer. (In the form of an ERROR event the watcher recovers by itself.)
fn is_expired(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchStartFailed(kube::Error::Api(status)) if status.code == 410)
}

fn explain(error: watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(error) => format!("listing: {}", CallError::from(error)),
        watcher::Error::WatchStartFailed(error) => format!("starting to watch: {}", CallError::from(error)),
        watcher::Error::WatchFailed(error) => format!("watching: {}", CallError::from(error)),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    #[test]
    fn a_kind_without_a_crd_is_told_from_a_failure() {
        // What the API server answers for a group that it does not serve is plain text, not a Status.
        let answer =
            |code| kube::Error::Api(Status::failure("404 page not found", "?").with_code(code).boxed());
        assert!(is_not_served(&watcher::Error::InitialListFailed(answer(404))));
        assert!(is_not_served(&watcher::Error::WatchStartFailed(answer(404))));
        assert!(!is_not_served(&watcher::Error::InitialListFailed(answer(403))));
        assert!(!is_not_served(&watcher::Error::NoResourceVersion));
        assert!(is_expired(&watcher::Error::WatchStartFailed(answer(410))));
        assert!(!is_expired(&watcher::Error::WatchStartFailed(answer(500))));
        let text = explain(watcher::Error::InitialListFailed(answer(403)));
        assert_eq!(text, "listing: 404 page not found (403 ?)");
    }
}
