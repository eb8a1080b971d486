//! The `EnvoyFilter` of a chain.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use mesh_api::header::istio_duration;
use mesh_api::istio::{EnvoyFilter, EnvoyFilterSpec, WorkloadSelector};
use mesh_api::names;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{Provider, ProviderId, TokenKey, lua};
use crate::emit::{hash, hexadecimal};

/// The largest chain that is written, in bytes of JSON: 900 providers made 1.4 MB and cost every request 3.5 ms.
pub const MAX_CHAIN_BYTES: usize = 512 * 1024;

const ROUTER: &str = "envoy.filters.http.router";
const CONNECTION_MANAGER: &str = "envoy.filters.network.http_connection_manager";
const RBAC: &str = "type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC";
const LUA: &str = "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua";
const EXT_AUTHZ: &str = "type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthz";
/// Where RBAC notes what it found.
const RBAC_METADATA: &str = "envoy.filters.http.rbac";
/// What RBAC puts before the keys of its notes.
const PREFIX: &str = "ii_";
/// Under which key it notes the policy that matched.
const POLICY_KEY: &str = "ii_shadow_effective_policy_id";

/// What is in the chain of the pods that a selector picks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// The labels of the pods.
    pub selector: BTreeMap<String, String>,
    /// The providers, each with its check.
    pub providers: BTreeMap<ProviderId, Provider>,
}

impl Chain {
    /// What the `EnvoyFilter` for this selector is called.
    pub fn name(selector: &BTreeMap<String, String>) -> String {
        let parts: Vec<&str> = selector.iter().flat_map(|(key, value)| [key.as_str(), value]).collect();
        format!("ii-guard-{}", hash(&parts))
    }

    /// What a pod that holds this chain answers a probe with, in the header [`names::CHAIN_HEADER`].
    pub fn answer(&self, key: &TokenKey) -> String {
        let digest = self.digest(key);
        // One half is of *enter*, the other of *leave*.
        format!("{digest}.{digest}")
    }

    fn digest(&self, key: &TokenKey) -> String {
        let patches = Value::Array(self.patches(key, ""));
        let mut digest = hexadecimal(&Sha256::digest(patches.to_string()));
        digest.truncate(32);
        digest
    }

    /// The `EnvoyFilter`, for the mesh's root namespace, where it reaches pods of every namespace.
    ///
    /// It names no port, so that it covers those that a Gateway gets later. `instance` is the namespace of the integrator.
    pub fn envoy_filter(&self, root_namespace: &str, instance: &str, key: &TokenKey) -> EnvoyFilter {
        let providers: Vec<&Provider> = self.providers.values().collect();
        // Plain structs of strings and numbers cannot fail to be written.
        let content = serde_json::to_string(&providers).unwrap_or_default();
        let labels = BTreeMap::from([
            (names::MANAGED_BY_LABEL.to_owned(), names::INTEGRATOR.to_owned()),
            (names::INSTANCE_LABEL.to_owned(), instance.to_owned()),
        ]);
        let annotations = BTreeMap::from([(names::PROVIDERS_ANNOTATION.to_owned(), content)]);
        EnvoyFilter {
            metadata: ObjectMeta {
                name: Some(Self::name(&self.selector)),
                namespace: Some(root_namespace.to_owned()),
                labels: Some(labels),
                annotations: Some(annotations),
                ..ObjectMeta::default()
            },
            spec: EnvoyFilterSpec {
                workload_selector: Some(WorkloadSelector { labels: self.selector.clone() }),
                // Stated, so that nobody else can own it.
                priority: Some(0),
                config_patches: self.patches(key, &self.digest(key)),
            },
        }
    }

    /// Reads a chain back: from the selector, and from the annotation [`names::PROVIDERS_ANNOTATION`].
    ///
    /// What is not of the form that is written, or could not go into a chain, is left out: the routes that need it answer
    /// 503 until it is there again.
    pub fn read(selector: BTreeMap<String, String>, annotation: Option<&str>) -> Self {
        let text = annotation.filter(|text| text.len() <= MAX_CHAIN_BYTES).unwrap_or("[]");
        let entries: Vec<Value> = serde_json::from_str(text).unwrap_or_default();
        let providers =
            entries.into_iter().filter_map(|entry| serde_json::from_value::<Provider>(entry).ok());
        let sound = providers.filter(|provider| provider.problems().is_empty());
        Self { selector, providers: sound.map(|provider| (provider.id(), provider)).collect() }
    }

    fn patches(&self, key: &TokenKey, digest: &str) -> Vec<Value> {
        let select = filter("ii.select", &select(self.providers.keys()));
        let enter = filter("ii.enter", &script(&lua::enter(&self.providers, digest)));
        let leave = filter("ii.leave", &script(&lua::leave(&self.providers, digest, key)));
        let checks = self
            .providers
            .iter()
            .map(|(id, provider)| filter(&format!("ii.check.{id}"), &check(id, provider)));
        [select, enter].into_iter().chain(checks).chain([leave]).collect()
    }
}

fn filter(name: &str, config: &Value) -> Value {
    json!({
        "applyTo": "HTTP_FILTER",
        "match": {
            "context": "GATEWAY",
            "listener": {"filterChain": {"filter": {"name": CONNECTION_MANAGER, "subFilter": {"name": ROUTER}}}},
        },
        "patch": {"operation": "INSERT_BEFORE", "value": {"name": name, "typed_config": config}},
    })
}

fn script(text: &str) -> Value {
    json!({"@type": LUA, "default_source_code": {"inline_string": text}})
}

/// Notes which provider the route asks for: the policy that matches first, in the order of their names.
///
/// `!` comes first and matches every route that asks for no login, so that these cost one comparison, however many
/// providers there are; `#` matches the marker by which the chain is asked for; `~` comes last and matches what asks for a
/// provider that this chain does not have.
fn select<'i>(ids: impl Iterator<Item = &'i ProviderId>) -> Value {
    let protected = || starts_with(names::AUTH_ROUTE_PREFIX);
    let mut policies = serde_json::Map::new();
    policies.insert(
        "!".to_owned(),
        policy(&json!({"id": 9, "call_expr": {"function": "!_", "args": [protected()]}})),
    );
    policies.insert("#".to_owned(), policy(&starts_with(names::PROBE_ROUTE_PREFIX)));
    for id in ids {
        policies.insert(id.to_string(), policy(&starts_with(&format!("{}{id}.", names::AUTH_ROUTE_PREFIX))));
    }
    policies.insert("~".to_owned(), policy(&protected()));
    json!({
        "@type": RBAC,
        "shadow_rules_stat_prefix": PREFIX,
        "shadow_rules": {"action": "DENY", "policies": policies},
    })
}

fn policy(condition: &Value) -> Value {
    json!({"permissions": [{"any": true}], "principals": [{"any": true}], "condition": condition})
}

/// The CEL expression `xds.route_name.startsWith(prefix)`, as a syntax tree.
fn starts_with(prefix: &str) -> Value {
    json!({
        "id": 1,
        "call_expr": {
            "target": {
                "id": 2,
                "select_expr": {"operand": {"id": 3, "ident_expr": {"name": "xds"}}, "field": "route_name"},
            },
            "function": "startsWith",
            "args": [{"id": 4, "const_expr": {"string_value": prefix}}],
        },
    })
}

/// Asks the provider, if the route asks for it, and keeps the status of its answer as proof.
fn check(id: &ProviderId, provider: &Provider) -> Value {
    let exactly =
        |names: &[String]| -> Vec<Value> { names.iter().map(|name| json!({"exact": name})).collect() };
    let timeout = istio_duration(Duration::from_millis(u64::from(provider.timeout_ms)));
    let mut service = json!({
        "server_uri": {
            "uri": format!("http://{}:{}", provider.host, provider.port),
            "cluster": provider.cluster(),
            "timeout": timeout,
        },
        "authorization_response": {
            // Refreshed sessions.
            "allowed_client_headers_on_success": {"patterns": [{"exact": "set-cookie"}]},
            "dynamic_metadata_from_headers": {"patterns": [{"exact": ":status"}]},
        },
    });
    if !provider.request_headers.is_empty() {
        service["authorization_request"] =
            json!({"allowed_headers": {"patterns": exactly(&provider.request_headers)}});
    }
    if !provider.identity_headers.is_empty() {
        service["authorization_response"]["allowed_upstream_headers"] =
            json!({"patterns": exactly(&provider.identity_headers)});
    }
    if !provider.path_prefix.is_empty() {
        service["path_prefix"] = json!(provider.path_prefix);
    }
    json!({
        "@type": EXT_AUTHZ,
        "status_on_error": {"code": "ServiceUnavailable"},
        "http_service": service,
        "filter_enabled_metadata": {
            "filter": RBAC_METADATA,
            "path": [{"key": POLICY_KEY}],
            "value": {"string_match": {"exact": id.as_str()}},
        },
    })
}
