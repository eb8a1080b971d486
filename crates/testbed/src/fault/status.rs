//! Error answers that look like the API server's own: a `Status` body, the code, and `Retry-After`.

use http::{HeaderValue, StatusCode, header};
use hyper::body::Bytes;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Status, StatusDetails};

use super::request::{Request, Verb};

/// An error that the API server is known to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// 409 `Conflict`: the object has been modified.
    Conflict,
    /// 409 `AlreadyExists`.
    AlreadyExists,
    /// 410 `Expired`: the resource version or the `continue` token is too old. The client must list anew.
    Expired,
    /// 429 `TooManyRequests` with `Retry-After`, as priority and fairness answers.
    TooManyRequests {
        /// Seconds to wait before the next try.
        retry_after: u16,
    },
    /// 500 `InternalError`, as when etcd fails or a webhook cannot be called.
    InternalError,
    /// 503 `ServiceUnavailable`, as while the server starts or stops.
    ServiceUnavailable,
}

impl Failure {
    fn code(self) -> StatusCode {
        match self {
            Self::Conflict | Self::AlreadyExists => StatusCode::CONFLICT,
            Self::Expired => StatusCode::GONE,
            Self::TooManyRequests { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::InternalError => StatusCode::INTERNAL_SERVER_ERROR,
            Self::ServiceUnavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn reason(self) -> &'static str {
        match self {
            Self::Conflict => "Conflict",
            Self::AlreadyExists => "AlreadyExists",
            Self::Expired => "Expired",
            Self::TooManyRequests { .. } => "TooManyRequests",
            Self::InternalError => "InternalError",
            Self::ServiceUnavailable => "ServiceUnavailable",
        }
    }

    fn message(self, request: &Request) -> String {
        let (resource, name) = (&request.resource, &request.name);
        match self {
            Self::Conflict => format!(
                "Operation cannot be fulfilled on {resource} \"{name}\": the object has been modified; please \
                 apply your changes to the latest version and try again"
            ),
            Self::AlreadyExists => format!("{resource} \"{name}\" already exists"),
            Self::Expired if request.verb == Verb::Watch => {
                format!("too old resource version: {} (fault proxy)", request.resource_version)
            }
            Self::Expired => {
                "The provided continue parameter is too old to display a consistent list result. \
                              You must start a new list without the continue parameter."
                    .to_owned()
            }
            Self::TooManyRequests { .. } => {
                "The server has received too many requests and has asked us to try again later".to_owned()
            }
            Self::InternalError => "Internal error occurred: fault proxy".to_owned(),
            Self::ServiceUnavailable => "the server is currently unable to handle the request".to_owned(),
        }
    }

    /// The body that the API server would send.
    pub(super) fn status(self, request: &Request) -> Status {
        let details = StatusDetails {
            name: none_if_empty(&request.name),
            group: none_if_empty(&request.group),
            kind: none_if_empty(&request.resource),
            retry_after_seconds: match self {
                Self::TooManyRequests { retry_after } => Some(i32::from(retry_after)),
                _ => None,
            },
            ..StatusDetails::default()
        };
        Status {
            status: Some("Failure".into()),
            message: Some(self.message(request)),
            reason: Some(self.reason().into()),
            code: Some(i32::from(self.code().as_u16())),
            details: Some(details),
            ..Status::default()
        }
    }

    /// The whole answer.
    pub(super) fn response(self, request: &Request) -> Result<http::Response<Bytes>, serde_json::Error> {
        let body = serde_json::to_vec(&self.status(request))?;
        let mut response = http::Response::new(Bytes::from(body));
        *response.status_mut() = self.code();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Self::TooManyRequests { retry_after } = self {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(retry_after));
        }
        Ok(response)
    }

    /// The failure as an `ERROR` event of a watch: one line of its stream.
    pub(super) fn watch_event(self, request: &Request) -> Result<Bytes, serde_json::Error> {
        let event = serde_json::json!({"type": "ERROR", "object": self.status(request)});
        let mut line = serde_json::to_vec(&event)?;
        line.push(b'\n');
        Ok(line.into())
    }
}

fn none_if_empty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    #[test]
    fn bodies_are_statuses_that_clients_know() {
        let request = Request::parse(&Method::PUT, "/apis/apps/v1/namespaces/a/deployments/d", "");
        let response = Failure::Conflict.response(&request).unwrap();
        assert_eq!(response.status(), 409);
        let status: kube::core::Status = serde_json::from_slice(response.body()).unwrap();
        assert!(status.is_conflict() && status.is_failure());
        let details = status.details.unwrap();
        assert_eq!(
            (details.name.as_str(), details.kind.as_str(), details.group.as_str()),
            ("d", "deployments", "apps")
        );

        let response = Failure::TooManyRequests { retry_after: 3 }.response(&request).unwrap();
        assert_eq!(response.headers()["retry-after"], "3");
        let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!((&body["kind"], &body["apiVersion"]), (&"Status".into(), &"v1".into()));
        assert_eq!(body["details"]["retryAfterSeconds"], 3);
    }

    #[test]
    fn an_expired_watch_ends_in_an_error_event() {
        let request = Request::parse(&Method::GET, "/api/v1/pods", "watch=true&resourceVersion=5");
        let line = Failure::Expired.watch_event(&request).unwrap();
        assert_eq!(line.last(), Some(&b'\n'));
        let event: serde_json::Value = serde_json::from_slice(&line).unwrap();
        assert_eq!((&event["type"], &event["object"]["code"]), (&"ERROR".into(), &410.into()));
        assert_eq!(event["object"]["reason"], "Expired");
    }
}
