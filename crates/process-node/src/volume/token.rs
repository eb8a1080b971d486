//! Service account tokens for projected volumes.

use anyhow::Context as _;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount, ServiceAccountTokenProjection};
use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt as _};

/// Kubernetes' default for `expirationSeconds`.
const DEFAULT_SECONDS: i64 = 3600;
/// kubelet renews after this at the latest.
const LONGEST: SignedDuration = SignedDuration::from_hours(24);

/// A token and the moment at which to ask for the next.
#[derive(Clone)]
pub(super) struct Token {
    /// The token.
    pub(super) text: String,
    /// When four fifths of its life are over.
    pub(super) renew_at: Timestamp,
}

impl Token {
    /// Whether it should be replaced.
    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        now >= self.renew_at
    }
}

/// Asks for a token that is bound to the Pod.
pub(super) async fn request(
    client: &Client,
    pod: &Pod,
    wanted: &ServiceAccountTokenProjection,
) -> anyhow::Result<Token> {
    let account =
        pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref()).unwrap_or("default");
    let namespace = pod.namespace().unwrap_or_default();
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &namespace);
    let request = TokenRequest {
        spec: TokenRequestSpec {
            audiences: wanted.audience.clone().into_iter().filter(|audience| !audience.is_empty()).collect(),
            expiration_seconds: Some(wanted.expiration_seconds.unwrap_or(DEFAULT_SECONDS)),
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: Some(pod.name_any()),
                uid: pod.uid(),
            }),
        },
        ..TokenRequest::default()
    };
    let now = Timestamp::now();
    let answer = accounts
        .create_token_request(account, &PostParams::default(), &request)
        .await
        .with_context(|| format!("failed to fetch token for service account {namespace}/{account}"))?;
    let status =
        answer.status.with_context(|| format!("no token for service account {namespace}/{account}"))?;
    Ok(Token { text: status.token, renew_at: renew_at(now, status.expiration_timestamp.0) })
}

/// As kubelet does: at 80 % of its life, and after a day at the latest.
fn renew_at(now: Timestamp, expires: Timestamp) -> Timestamp {
    let life = expires.duration_since(now);
    now + (life * 4 / 5).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_renewed_in_time() {
        let now = Timestamp::UNIX_EPOCH;
        let after = |hours| renew_at(now, now + SignedDuration::from_hours(hours)).duration_since(now);
        assert_eq!(after(1), SignedDuration::from_mins(48));
        assert_eq!(after(8760), SignedDuration::from_hours(24));
        let token = Token { text: String::new(), renew_at: now };
        assert!(token.is_due(now) && !token.is_due(now - SignedDuration::from_secs(1)));
    }
}
