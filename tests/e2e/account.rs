//! ServiceAccounts for tests that speak to the API server as somebody in particular.

use anyhow::{Context, Result};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{Api, PostParams};
use testbed::harness::Ctx;

/// Makes a ServiceAccount of this name in the test's namespace, where it may edit all that users may and
/// Leases, and gives a token of it that holds an hour.
pub(crate) async fn token(ctx: &Ctx, name: &str) -> Result<String> {
    let accounts = Api::<ServiceAccount>::namespaced(ctx.client.clone(), &ctx.namespace);
    let account: ServiceAccount = serde_json::from_value(serde_json::json!({"metadata": {"name": name}}))?;
    accounts.create(&PostParams::default(), &account).await?;
    let binding: RoleBinding = serde_json::from_value(serde_json::json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": ctx.namespace}],
    }))?;
    let bindings = Api::<RoleBinding>::namespaced(ctx.client.clone(), &ctx.namespace);
    bindings.create(&PostParams::default(), &binding).await?;
    let spec = TokenRequestSpec { expiration_seconds: Some(3600), ..TokenRequestSpec::default() };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let token = accounts.create_token_request(name, &PostParams::default(), &request).await?;
    Ok(token.status.context("the API server issues a token")?.token)
}
