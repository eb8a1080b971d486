//! The connection to the API server, and bounds on each call.

use http::header::{HeaderValue, InvalidHeaderValue, USER_AGENT};
use kube::{Client, Config};
use std::{future::Future, time::Duration};
use thiserror::Error;

/// How long one call may take, retries included.
///
/// kube retries 429, 503 and 504 by itself, up to 15 times and for as long as the server asks; this bounds the sum.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a connection may be silent while an answer is awaited.
///
/// The last resort for a list that never ends. Watches are silent for up to 290 s, and end by themselves then.
const SILENCE: Duration = Duration::from_secs(320);

/// Why there is no client.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// Neither a kubeconfig nor a service account was found.
    #[error("no cluster to talk to: {0}; run inside a pod with a service account, or set KUBECONFIG")]
    Config(#[from] kube::config::InferConfigError),
    /// The client could not be built from the configuration.
    #[error("the cluster configuration cannot be used: {0}")]
    Client(#[source] kube::Error),
    /// The name of the program cannot be sent as a header.
    #[error("the user agent is not a valid header value: {0}")]
    UserAgent(#[from] InvalidHeaderValue),
}

/// Connects as the kubeconfig or the pod's service account says; `user_agent` (`name/version`) is what the API
/// server's audit log shows.
pub async fn connect(user_agent: &str) -> Result<Client, ConnectError> {
    let mut config = Config::infer().await?;
    config.read_timeout = Some(SILENCE);
    config.reset_reader_on_write = true;
    config.headers.push((USER_AGENT, HeaderValue::from_str(user_agent)?));
    Client::try_from(config).map_err(ConnectError::Client)
}

/// Why a call has no answer that can be used.
#[derive(Debug, Error)]
pub enum CallError {
    /// No answer within the time allowed. The call may have had its effect nevertheless.
    #[error("no answer from the API server within {} s", .0.as_secs())]
    Timeout(Duration),
    /// The API server refused.
    #[error("{} ({} {})", .0.message, .0.code, .0.reason)]
    Refused(Box<kube::core::Status>),
    /// The API server could not be reached, or its answer not be read.
    #[error("{0}")]
    Transport(#[source] kube::Error),
}

impl CallError {
    /// The API server's answer, where it gave one.
    pub fn status(&self) -> Option<&kube::core::Status> {
        match self {
            Self::Refused(status) => Some(status),
            Self::Timeout(_) | Self::Transport(_) => None,
        }
    }

    /// Whether the object, or its kind, does not exist.
    ///
    /// By the code, as kube's own `is_not_found` looks at the reason alone, which an answer that is no `Status` lacks:
    /// that is how the API server answers for a group it does not serve.
    pub fn is_not_found(&self) -> bool {
        self.status().is_some_and(|status| status.code == 404)
    }

    /// Whether the object was changed, replaced or created by somebody else in the meantime.
    pub fn is_conflict(&self) -> bool {
        self.status().is_some_and(|status| status.code == 409)
    }
}

impl From<kube::Error> for CallError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::Refused(status),
            other => Self::Transport(other),
        }
    }
}

/// Awaits `call`, for `limit` at most.
pub async fn bounded<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, CallError> {
    match tokio::time::timeout(limit, call).await {
        Ok(answer) => answer.map_err(CallError::from),
        Err(_) => Err(CallError::Timeout(limit)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    #[tokio::test(start_paused = true)]
    async fn a_call_without_an_answer_ends() {
        let silent = std::future::pending::<Result<(), kube::Error>>();
        let error = bounded(Duration::from_secs(3), silent).await.unwrap_err();
        assert_eq!(error.to_string(), "no answer from the API server within 3 s");
        assert!(!error.is_conflict() && !error.is_not_found());
    }

    #[test]
    fn answers_are_told_apart() {
        let refused =
            |reason: &str, code| CallError::Refused(Status::failure("words", reason).with_code(code).boxed());
        assert!(refused("NotFound", 404).is_not_found());
        assert!(refused("Failed to parse error data", 404).is_not_found());
        assert!(refused("Conflict", 409).is_conflict());
        assert!(refused("AlreadyExists", 409).is_conflict());
        assert_eq!(refused("Forbidden", 403).to_string(), "words (403 Forbidden)");
    }
}
