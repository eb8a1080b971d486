//! Our own check of a chain before it is written.
//!
//! One bad value makes Envoy refuse the listener, after which nothing new arrives, or makes istiod drop one patch and keep
//! the rest. The renderer is not supposed to make any of the faults that are looked for here.

use mesh_api::header::header_name_problem;
use mesh_api::istio::EnvoyFilter;
use mesh_api::names;
use mesh_api::syntax::{is_dns_label, is_host};
use serde_json::Value;

use super::chain::MAX_CHAIN_BYTES;
use super::{Chain, ProviderId, lua};
use crate::validate::Problem;

/// Everything that is wrong with the `EnvoyFilter` of a chain.
pub fn validate_chain(object: &EnvoyFilter) -> Vec<Problem> {
    let mut check = Check(Vec::new());
    let metadata = &object.metadata;
    let selector =
        object.spec.workload_selector.as_ref().map(|selector| selector.labels.clone()).unwrap_or_default();
    if selector.is_empty() {
        check.note("spec.workloadSelector", "it would be for every gateway of the mesh");
    }
    if metadata.name.as_deref() != Some(Chain::name(&selector).as_str()) {
        check.note("metadata.name", "it is not the name for the selector");
    }
    if !metadata.namespace.as_deref().is_some_and(is_dns_label) {
        check.note("metadata.namespace", "it must be the mesh's root namespace");
    }
    match serde_json::to_vec(object) {
        Ok(json) if json.len() <= MAX_CHAIN_BYTES => {}
        Ok(json) => check.note("", &format!("{} bytes are more than {MAX_CHAIN_BYTES}", json.len())),
        Err(error) => check.note("", &format!("it cannot be written as JSON: {error}")),
    }
    let patches = &object.spec.config_patches;
    let order: Vec<&str> = patches.iter().filter_map(name).collect();
    let ids: Vec<ProviderId> =
        order.iter().filter_map(|name| ProviderId::parse(name.strip_prefix("ii.check.")?)).collect();
    let checks = ids.iter().map(|id| format!("ii.check.{id}"));
    let expected: Vec<String> = ["ii.select".to_owned(), "ii.enter".to_owned()]
        .into_iter()
        .chain(checks)
        .chain(["ii.leave".to_owned()])
        .collect();
    if patches.len() != expected.len() || order != expected || !ids.is_sorted() {
        check.note("spec.configPatches", &format!("the filters are {order:?}"));
    }
    for (position, patch) in patches.iter().enumerate() {
        check.patch(patch, &ids, &format!("spec.configPatches[{position}]"));
    }
    check.0
}

fn name(patch: &Value) -> Option<&str> {
    patch.pointer("/patch/value/name")?.as_str()
}

struct Check(Vec<Problem>);

impl Check {
    fn note(&mut self, field: &str, fault: &str) {
        self.0.push(Problem { field: field.to_owned(), fault: fault.to_owned() });
    }

    fn patch(&mut self, patch: &Value, ids: &[ProviderId], field: &str) {
        let text = |pointer: &str| patch.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        if text("/applyTo") != "HTTP_FILTER"
            || text("/match/context") != "GATEWAY"
            || text("/patch/operation") != "INSERT_BEFORE"
            || text("/match/listener/filterChain/filter/subFilter/name") != "envoy.filters.http.router"
            || patch.pointer("/match/listener/portNumber").is_some()
        {
            self.note(field, "it must put an HTTP filter before the router of every port of the gateway");
        }
        let config = patch.pointer("/patch/value/typed_config").unwrap_or(&Value::Null);
        let kind = config.get("@type").and_then(Value::as_str).unwrap_or_default();
        let filter = name(patch).unwrap_or_default();
        let right = match filter {
            "ii.select" => kind.ends_with(".rbac.v3.RBAC") && policies(config, ids),
            "ii.enter" | "ii.leave" => {
                let script = config.pointer("/default_source_code/inline_string").and_then(Value::as_str);
                kind.ends_with(".lua.v3.Lua") && script.is_some_and(lua::is_known)
            }
            _ => {
                let id = filter.strip_prefix("ii.check.").unwrap_or_default();
                kind.ends_with(".ext_authz.v3.ExtAuthz") && is_check(config, id)
            }
        };
        if !right {
            self.note(
                &format!("{field}.patch.value.typed_config"),
                &format!("it is not as {filter:?} must be"),
            );
        }
    }
}

/// Whether the policies are those of the providers and the three of the chain itself, and each compares route names.
fn policies(config: &Value, ids: &[ProviderId]) -> bool {
    let policies = config.pointer("/shadow_rules/policies").and_then(Value::as_object);
    let Some(policies) = policies else { return false };
    let mut expected: Vec<String> = ids.iter().map(ToString::to_string).collect();
    expected.extend(["!", "#", "~"].map(str::to_owned));
    expected.sort();
    let mut found: Vec<&String> = policies.keys().collect();
    found.sort();
    config.get("rules").is_none()
        && found.into_iter().eq(&expected)
        && policies.iter().all(|(name, policy)| {
            let prefix = match name.as_str() {
                "!" => policy.pointer("/condition/call_expr/args/0/call_expr/args/0/const_expr/string_value"),
                _ => policy.pointer("/condition/call_expr/args/0/const_expr/string_value"),
            };
            let expected = match name.as_str() {
                "!" | "~" => names::AUTH_ROUTE_PREFIX.to_owned(),
                "#" => names::PROBE_ROUTE_PREFIX.to_owned(),
                id => format!("{}{id}.", names::AUTH_ROUTE_PREFIX),
            };
            prefix.and_then(Value::as_str) == Some(expected.as_str())
        })
}

fn is_check(config: &Value, id: &str) -> bool {
    let text = |pointer: &str| config.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let uri = text("/http_service/server_uri/uri");
    let address = uri.strip_prefix("http://").and_then(|rest| rest.rsplit_once(':'));
    let addressed = address.is_some_and(|(host, port)| {
        is_host(host)
            && port.parse::<u16>().is_ok_and(|port| port > 0)
            && text("/http_service/server_uri/cluster") == format!("outbound|{port}||{host}")
    });
    let timeout =
        text("/http_service/server_uri/timeout").strip_suffix('s').and_then(|text| text.parse::<f64>().ok());
    let lists = [
        "/http_service/authorization_request/allowed_headers/patterns",
        "/http_service/authorization_response/allowed_upstream_headers/patterns",
    ];
    let named = lists.iter().filter_map(|list| config.pointer(list)?.as_array()).flatten().all(|pattern| {
        pattern.get("exact").and_then(Value::as_str).is_some_and(|name| header_name_problem(name).is_none())
    });
    addressed
        && timeout.is_some_and(|seconds| (0.001..=60.0).contains(&seconds))
        && named
        && text("/filter_enabled_metadata/value/string_match/exact") == id
        && text("/filter_enabled_metadata/filter") == "envoy.filters.http.rbac"
        && text("/status_on_error/code") == "ServiceUnavailable"
        && config.get("failure_mode_allow").is_none()
        && config
            .pointer("/http_service/authorization_response/dynamic_metadata_from_headers/patterns/0/exact")
            == Some(&Value::String(":status".to_owned()))
}
