//! The HTTP service of Envoy's `ext_authz` filter: 200 lets the request pass, anything else is the answer.
//!
//! Like servers in use, it has pages of its own, `/ping` and those below `/oauth2/`, which it answers to everybody, and
//! sends a browser to its login page. How it behaves can be changed while it runs, on a port that no gateway leads to.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde::Deserialize;

use crate::record::{Arrival, Record};
use crate::say;
use crate::serve::{Listen, serve, serve_aside};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    listen: Listen,
    /// The bearer token that is let in.
    #[arg(long, default_value = "let-me-in")]
    token: String,
    /// The value of `x-user` for requests that are let in by the token.
    #[arg(long, default_value = "tester")]
    user: String,
    /// How long it thinks before each answer, in milliseconds.
    #[arg(long, default_value_t = 0)]
    delay: u64,
    /// Port of `GET /seen`, which tells what it was asked, and of `POST /behaviour`, which changes how it answers.
    #[arg(long)]
    control_port: Option<u16>,
}

/// How it answers. Posted as JSON; what is left out has its default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
struct Behaviour {
    /// How long it thinks before each answer, in milliseconds.
    delay_ms: u64,
    /// The status of every answer, whoever asks. By default it depends on the login.
    status: Option<u16>,
    /// More headers of every answer.
    headers: BTreeMap<String, String>,
}

impl Behaviour {
    fn problem(&self) -> Option<String> {
        let status = self.status.is_some_and(|status| !(200..600).contains(&status));
        let header = |(name, value): (&String, &String)| {
            HeaderName::try_from(name).is_err() || HeaderValue::try_from(value).is_err()
        };
        if status {
            return Some("status: not from 200 to 599\n".to_owned());
        }
        self.headers.iter().any(header).then(|| "headers: not a header of HTTP\n".to_owned())
    }
}

#[derive(Clone, Debug)]
struct Server {
    wanted: String,
    user: String,
    behaviour: Arc<Mutex<Behaviour>>,
    record: Record,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let behaviour = Behaviour { delay_ms: args.delay, ..Behaviour::default() };
    let server = Server::new(&args.token, args.user, behaviour);
    serve_aside(args.listen, args.control_port, server.control()).await?;
    serve(args.listen, server.app()).await
}

impl Server {
    fn new(token: &str, user: String, behaviour: Behaviour) -> Self {
        let behaviour = Arc::new(Mutex::new(behaviour));
        Self { wanted: format!("Bearer {token}"), user, behaviour, record: Record::default() }
    }

    /// Every path but its own pages is checked alike, since Envoy sends the client's own path, behind a prefix or not.
    fn app(&self) -> Router {
        Router::new()
            .fallback(
                |State(server): State<Self>, request: Request| async move { server.answer(request).await },
            )
            .with_state(self.clone())
    }

    fn control(&self) -> Router {
        let change = post(|State(server): State<Self>, Json(behaviour): Json<Behaviour>| async move {
            if let Some(problem) = behaviour.problem() {
                return (StatusCode::BAD_REQUEST, problem);
            }
            *server.behaviour.lock().unwrap_or_else(PoisonError::into_inner) = behaviour;
            (StatusCode::OK, String::new())
        });
        Router::new().route("/behaviour", change).with_state(self.clone()).merge(self.record.app())
    }

    async fn answer(&self, request: Request) -> Response {
        let behaviour = self.behaviour.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.note(&request);
        // The body of a request cannot be held while waiting, and is of no account.
        let (parts, _) = request.into_parts();
        tokio::time::sleep(Duration::from_millis(behaviour.delay_ms)).await;
        let mut response = self.verdict(parts.uri.path(), &parts.headers);
        if let Some(status) = behaviour.status.and_then(|status| StatusCode::from_u16(status).ok()) {
            *response.status_mut() = status;
        }
        for (name, value) in &behaviour.headers {
            if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
                response.headers_mut().insert(name, value);
            }
        }
        response
    }

    fn note(&self, request: &Request) {
        let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let headers = request.headers();
        let mut all = BTreeMap::<String, String>::new();
        for name in headers.keys() {
            let values: Vec<String> = headers.get_all(name).iter().map(text).collect();
            all.insert(name.as_str().to_owned(), values.join(", "));
        }
        let host = all.remove("host").unwrap_or_default();
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
        self.record.note(Arrival { method: request.method().to_string(), path, host, headers: all });
    }

    fn verdict(&self, path: &str, headers: &HeaderMap) -> Response {
        if path == "/ping" || path.starts_with("/oauth2/") {
            return "a page of mine\n".into_response();
        }
        let user = session(headers).or_else(|| {
            let bearer = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
            (bearer == Some(self.wanted.as_bytes())).then(|| self.user.clone())
        });
        say(if user.is_some() { "let in" } else { "refused" });
        if let Some(user) = user {
            return ([("x-user", user)], "").into_response();
        }
        let browser = headers.get(header::ACCEPT).is_some_and(|value| {
            value
                .to_str()
                .is_ok_and(|value| value.split(',').any(|kind| kind.trim().starts_with("text/html")))
        });
        if browser {
            let login = format!("/oauth2/start?rd={path}");
            return (StatusCode::FOUND, [(header::LOCATION, login)], "log in first\n").into_response();
        }
        (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")], "not let in\n").into_response()
    }
}

/// Whose session the cookies name: `session=NAME`, where a name is of letters, digits and dashes.
fn session(headers: &HeaderMap) -> Option<String> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs =
        cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let (_, name) = pairs.find(|(key, _)| *key == "session")?;
    let plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    plain.then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use testbed::curl;
    use testbed::curl::Reply;

    use super::*;
    use crate::serve::background;

    fn server() -> Server {
        Server::new("let-me-in", "u".to_owned(), Behaviour::default())
    }

    async fn ask(address: std::net::SocketAddr, path: &str, headers: &[(&str, &str)]) -> Reply {
        let mut request = axum::http::Request::post(path).header("host", "h");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        curl::request(address, request.body(String::new()).unwrap()).await.unwrap()
    }

    #[tokio::test]
    async fn tokens_and_sessions_pass() {
        let address = background(server().app()).await;
        for (name, value, user) in [
            ("authorization", "Bearer let-me-in", "u"),
            ("cookie", "session=alice", "alice"),
            ("cookie", "a=b; session=bob-2; c=d", "bob-2"),
        ] {
            let passed = ask(address, "/any/path", &[(name, value)]).await;
            assert_eq!((passed.status, passed.headers["x-user"].to_str().unwrap()), (200, user));
        }
        for (name, value) in [
            ("x-nothing", ""),
            ("authorization", ""),
            ("authorization", "Bearer let-me-in2"),
            ("authorization", "bearer let-me-in"),
            ("authorization", "let-me-in"),
            ("cookie", "session="),
            ("cookie", "session=a\"b"),
            ("cookie", "asession=alice"),
        ] {
            let reply = ask(address, "/any/path", &[(name, value)]).await;
            assert_eq!(reply.status, 401, "{name}: {value}");
            assert!(!reply.headers.contains_key("x-user"));
        }
        for page in ["/ping", "/oauth2/start"] {
            assert_eq!(curl::get(address, "h", page).await.unwrap().status, 200, "{page}");
        }
        let browser = ask(address, "/a", &[("accept", "text/html, */*")]).await;
        assert_eq!(
            (browser.status, browser.headers["location"].to_str().unwrap()),
            (302, "/oauth2/start?rd=/a")
        );
    }

    #[tokio::test]
    async fn behaves_as_it_is_told() {
        let server = server();
        let (address, control) = (background(server.app()).await, background(server.control()).await);
        let tell = async |body: &str| {
            let request = axum::http::Request::post("/behaviour").header("host", "h");
            let request = request.header("content-type", "application/json").body(body.to_owned()).unwrap();
            curl::request(control, request).await.unwrap().status
        };
        for wrong in [r#"{"status": 99}"#, r#"{"headers": {"a b": ""}}"#, r#"{"headers": {"a": "\n"}}"#] {
            assert_eq!(tell(wrong).await, 400, "{wrong}");
        }
        assert_eq!(tell(r#"{"sttus": 200}"#).await, 422);
        assert_eq!(tell(r#"{"delayMs": 50, "status": 200, "headers": {"x-more": "y"}}"#).await, 200);
        let start = std::time::Instant::now();
        let reply = ask(address, "/a?b", &[("x-a", "1"), ("x-a", "2")]).await;
        assert_eq!((reply.status, reply.headers["x-more"].to_str().unwrap()), (200, "y"));
        assert!(start.elapsed() >= Duration::from_millis(50));
        assert_eq!(tell("{}").await, 200);
        assert_eq!(ask(address, "/", &[]).await.status, 401);
        let seen = curl::get(control, "h", "/seen?reset=true").await.unwrap().body;
        let seen: serde_json::Value = serde_json::from_str(&seen).unwrap();
        assert_eq!((seen["count"].as_u64(), seen["arrivals"][0]["path"].as_str()), (Some(2), Some("/a?b")));
        assert_eq!(seen["arrivals"][0]["headers"]["x-a"], "1, 2");
    }
}
