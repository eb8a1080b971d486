//! What reached a server, for a test to ask about on a port of its own, which no gateway leads to.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::State;
use axum::http::Uri;
use axum::routing::get;
use axum::{Json, Router};
use serde::Serialize;

/// How many requests are kept; of those before, only the number.
const KEPT: usize = 10_000;

/// One request that arrived.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Arrival {
    /// The method.
    pub(crate) method: String,
    /// The target as it stood in the request, query included.
    pub(crate) path: String,
    /// The host asked for; empty if none.
    pub(crate) host: String,
    /// Headers by lower-case name; several values of one are joined by `, `.
    pub(crate) headers: BTreeMap<String, String>,
}

/// What arrived since the start or the last reset.
#[derive(Debug, Default, Serialize)]
struct Seen {
    count: usize,
    arrivals: VecDeque<Arrival>,
}

/// The record of a server. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record(Arc<Mutex<Seen>>);

impl Record {
    /// Notes a request.
    pub(crate) fn note(&self, arrival: Arrival) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.count += 1;
        if seen.arrivals.len() == KEPT {
            seen.arrivals.pop_front();
        }
        seen.arrivals.push_back(arrival);
    }

    /// `GET /seen` tells what arrived as `{"count", "arrivals"}`; `?reset=true` forgets it after.
    pub(crate) fn app(&self) -> Router {
        Router::new()
            .route(
                "/seen",
                get(|State(record): State<Self>, uri: Uri| async move {
                    Json(record.tell(uri.query() == Some("reset=true")))
                }),
            )
            .with_state(self.clone())
    }

    fn tell(&self, reset: bool) -> Seen {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if reset {
            std::mem::take(&mut seen)
        } else {
            Seen { count: seen.count, arrivals: seen.arrivals.clone() }
        }
    }
}

#[cfg(test)]
mod tests {
    use testbed::curl;

    use super::*;
    use crate::serve::background;

    #[tokio::test]
    async fn tells_and_forgets() {
        let record = Record::default();
        let address = background(record.app()).await;
        for number in 0..=KEPT {
            record.note(Arrival {
                method: "GET".to_owned(),
                path: format!("/{number}"),
                host: String::new(),
                headers: BTreeMap::new(),
            });
        }
        for (path, count, first) in
            [("/seen", KEPT + 1, "/1"), ("/seen?reset=true", KEPT + 1, "/1"), ("/seen", 0, "")]
        {
            let text = curl::get(address, "h", path).await.unwrap().body;
            let seen: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(seen["count"], count);
            assert_eq!(seen["arrivals"][0]["path"].as_str().unwrap_or_default(), first);
        }
    }
}
