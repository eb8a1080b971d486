//! The HTTP service of Envoy's `ext_authz` filter: 200 lets the request pass, anything else is the answer.
//!
//! Like servers in use, it has pages of its own, `/ping` and those below `/oauth2/`, which it answers to everybody.

use std::process::ExitCode;
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};

use crate::say;
use crate::serve::{Listen, serve};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    listen: Listen,
    /// The bearer token that is let in.
    #[arg(long, default_value = "let-me-in")]
    token: String,
    /// The value of `x-user` for requests that are let in.
    #[arg(long, default_value = "tester")]
    user: String,
    /// How long it thinks before each answer, in milliseconds.
    #[arg(long, default_value_t = 0)]
    delay: u64,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    serve(args.listen, app(&args.token, args.user, Duration::from_millis(args.delay))).await
}

/// Every path but its own pages is checked alike, since Envoy sends the client's own path, behind a prefix or not.
fn app(token: &str, user: String, delay: Duration) -> Router {
    let wanted = format!("Bearer {token}");
    Router::new().fallback(move |uri: Uri, headers: HeaderMap| async move {
        tokio::time::sleep(delay).await;
        if uri.path() == "/ping" || uri.path().starts_with("/oauth2/") {
            return "a page of mine\n".into_response();
        }
        check(&headers, &wanted, &user)
    })
}

fn check(headers: &HeaderMap, wanted: &str, user: &str) -> Response {
    let found = headers.get(header::AUTHORIZATION).map(axum::http::HeaderValue::as_bytes);
    let passed = found == Some(wanted.as_bytes());
    say(if passed { "let in" } else { "refused" });
    if passed {
        ([("x-user", user)], "").into_response()
    } else {
        (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")], "not let in\n").into_response()
    }
}

#[cfg(test)]
mod tests {
    use testbed::curl;

    use super::*;
    use crate::serve::background;

    #[tokio::test]
    async fn one_token_passes() {
        let address = background(app("let-me-in", "u".to_owned(), Duration::ZERO)).await;
        let ask = |value: Option<&'static str>| async move {
            let mut request = axum::http::Request::post("/any/path").header("host", "h");
            if let Some(value) = value {
                request = request.header("authorization", value);
            }
            curl::request(address, request.body(String::new()).unwrap()).await.unwrap()
        };
        let passed = ask(Some("Bearer let-me-in")).await;
        assert_eq!((passed.status, passed.headers["x-user"].to_str().unwrap()), (200, "u"));
        for refused in
            [None, Some(""), Some("Bearer let-me-in2"), Some("bearer let-me-in"), Some("let-me-in")]
        {
            let reply = ask(refused).await;
            assert_eq!(reply.status, 401, "{refused:?}");
            assert!(!reply.headers.contains_key("x-user"));
        }
        for page in ["/ping", "/oauth2/start"] {
            assert_eq!(curl::get(address, "h", page).await.unwrap().status, 200, "{page}");
        }
    }
}
