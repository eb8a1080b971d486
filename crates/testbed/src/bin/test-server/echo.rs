//! Says who answered, and what arrived there.

use std::collections::BTreeMap;
use std::process::ExitCode;

use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::routing::{any, get};
use axum::{Json, Router};
use serde::Serialize;

use crate::serve::{Listen, serve};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    listen: Listen,
    /// Name in the answers, to tell servers apart.
    #[arg(long, default_value = "echo")]
    name: String,
}

#[derive(Clone, Debug)]
struct Server {
    name: String,
    pod: String,
}

/// What a client learns. `host` is apart from `headers`, since HTTP/2 has no such header.
#[derive(Debug, Serialize)]
struct Answer {
    name: String,
    /// The variable `POD_NAME`; empty when it is not set.
    pod: String,
    method: String,
    /// Path and query.
    path: String,
    host: String,
    /// Headers by lower-case name; several values of one are joined by `, `.
    headers: BTreeMap<String, String>,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let pod = std::env::var("POD_NAME").unwrap_or_default();
    serve(args.listen, app(Server { name: args.name, pod })).await
}

/// `/healthz` answers 200, `/status/CODE` the code, everything else 200; all but the first with an [`Answer`].
fn app(server: Server) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/status/{code}", any(status))
        .fallback(
            |State(server): State<Server>, request: Request| async move { Json(answer(server, &request)) },
        )
        .with_state(server)
}

async fn status(
    State(server): State<Server>,
    Path(code): Path<u16>,
    request: Request,
) -> Result<(StatusCode, Json<Answer>), (StatusCode, String)> {
    match StatusCode::from_u16(code) {
        // Codes below 200 are not final answers.
        Ok(status) if code >= 200 => Ok((status, Json(answer(server, &request)))),
        _ => Err((StatusCode::BAD_REQUEST, format!("{code} is no status code from 200 to 999\n"))),
    }
}

fn answer(server: Server, request: &Request) -> Answer {
    let mut headers = BTreeMap::<String, String>::new();
    for (name, value) in request.headers() {
        let value = String::from_utf8_lossy(value.as_bytes());
        headers
            .entry(name.as_str().to_owned())
            .and_modify(|values| {
                values.push_str(", ");
                values.push_str(&value);
            })
            .or_insert_with(|| value.clone().into_owned());
    }
    let authority = request.uri().authority().map(ToString::to_string);
    let host = headers.remove("host").or(authority).unwrap_or_default();
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
    Answer { name: server.name, pod: server.pod, method: request.method().to_string(), path, host, headers }
}

#[cfg(test)]
mod tests {
    use testbed::curl;

    use super::*;
    use crate::serve::background;

    #[tokio::test]
    async fn tells_what_arrived() {
        let address = background(app(Server { name: "shop".to_owned(), pod: "shop-1".to_owned() })).await;
        let request =
            axum::http::Request::put("/a/b?c=d").header("host", "shop.example").header("x-user", "u");
        let reply =
            curl::request(address, request.header("x-user", "v").body(String::new()).unwrap()).await.unwrap();
        let body: serde_json::Value = serde_json::from_str(&reply.body).unwrap();
        assert_eq!(reply.status, 200);
        for (field, wanted) in [
            ("name", "shop"),
            ("pod", "shop-1"),
            ("method", "PUT"),
            ("path", "/a/b?c=d"),
            ("host", "shop.example"),
        ] {
            assert_eq!(body[field], wanted, "{field}");
        }
        assert_eq!(body["headers"]["x-user"], "u, v");
    }

    #[tokio::test]
    async fn answers_the_code_asked_for() {
        let address = background(app(Server { name: "shop".to_owned(), pod: String::new() })).await;
        for (path, wanted) in [
            ("/status/404", 404),
            ("/status/503", 503),
            ("/status/99", 400),
            ("/status/x", 400),
            ("/healthz", 200),
        ] {
            assert_eq!(curl::get(address, "h", path).await.unwrap().status, wanted, "{path}");
        }
    }
}
