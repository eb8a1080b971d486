//! Whole lists, page by page, for commands that look once.

use std::fmt::Debug;

use kube::{Api, api::ListParams};
use operator_kit::client::{CALL_TIMEOUT, CallError, bounded};
use serde::de::DeserializeOwned;

/// How many objects an answer brings.
const PAGE: u32 = 500;

/// Everything of a kind; `labels` is a query.
pub(crate) async fn list<K>(api: &Api<K>, labels: Option<&str>) -> Result<Vec<K>, CallError>
where
    K: Clone + DeserializeOwned + Debug,
{
    let mut params =
        ListParams { label_selector: labels.map(str::to_owned), ..ListParams::default().limit(PAGE) };
    let mut found = Vec::new();
    loop {
        let page = bounded(CALL_TIMEOUT, api.list(&params)).await?;
        found.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(found),
        }
    }
}

/// Whether the caller may not do it.
pub(crate) fn is_forbidden(error: &CallError) -> bool {
    error.status().is_some_and(|status| status.code == 403)
}
