//! That the guard chain uses nothing which the oldest supported proxy lacks: Istio 1.24, whose proxy is Envoy 1.32.
//!
//! The chain is walked as it is written, field by field, and each thing in it is looked up in `known.txt`, which says since
//! when Envoy has it and where that is told.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

mod istio;
mod known;
mod lua;

use std::collections::{BTreeMap, BTreeSet};

use known::{Kind, Known, OLDEST_ENVOY, OLDEST_ISTIO};
use mesh_api::AuthProvider;
use routes::guard::{Chain, Provider, TokenKey};
use serde_json::{Value, json};

/// A chain with every field that a provider can have.
fn chain() -> Value {
    let providers = [
        json!({"service": "sso", "port": 9000}),
        json!({
            "service": "sso", "port": 9000, "timeout": "3s", "pathPrefix": "/verify", "ownPaths": ["/oauth2/"],
            "requestHeaders": ["cookie"], "identityHeaders": ["x-user", "x-groups"],
        }),
    ];
    let mut chain =
        Chain { selector: BTreeMap::from([("a".to_owned(), "b".to_owned())]), ..Chain::default() };
    for (number, ext_authz) in providers.into_iter().enumerate() {
        let object: AuthProvider = serde_json::from_value(json!({
            "apiVersion": "integrator.istio-operators.io/v1alpha1", "kind": "AuthProvider",
            "metadata": {"name": format!("p{number}"), "namespace": "auth", "uid": "u"},
            "spec": {"type": "ExtAuthz", "extAuthz": ext_authz},
        }))
        .unwrap();
        let provider = Provider::resolve(&object, "cluster.local").unwrap();
        chain.providers.insert(provider.id(), provider);
    }
    serde_json::to_value(chain.envoy_filter("istio-system", "istio-integrator", &TokenKey::new([7; 32])))
        .unwrap()
}

/// Everything in the filters of a chain that the oldest proxy lacks, or of which nothing is known.
fn lacking(filter: &Value) -> BTreeSet<String> {
    let known = Known::read();
    let mut walk = Walk { known: &known, faults: BTreeSet::new(), seen: BTreeSet::new() };
    for patch in filter["spec"]["configPatches"].as_array().unwrap() {
        let place = &patch["match"]["listener"]["filterChain"]["filter"];
        for name in [&place["name"], &place["subFilter"]["name"]] {
            walk.look(Kind::Extension, name.as_str().unwrap());
        }
        let config = &patch["patch"]["value"]["typed_config"];
        let of_type = config["@type"].as_str().unwrap().trim_start_matches("type.googleapis.com/");
        // envoy.extensions.filters.http.rbac.v3.RBAC is what the extension envoy.filters.http.rbac is told.
        let extension = of_type.replace("envoy.extensions.", "envoy.");
        let extension = extension.split(".v3.").next().unwrap();
        walk.look(Kind::Extension, extension);
        walk.message(of_type, config);
    }
    walk.faults
}

struct Walk<'k> {
    known: &'k Known,
    faults: BTreeSet<String>,
    seen: BTreeSet<String>,
}

impl Walk<'_> {
    fn look(&mut self, kind: Kind, name: &str) {
        self.seen.insert(name.to_owned());
        if let Some(fault) = self.known.fault(kind, name) {
            self.faults.insert(fault);
        }
    }

    fn message(&mut self, of_type: &str, value: &Value) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.message(of_type, item)),
            Value::Object(fields) => {
                for (field, value) in fields.iter().filter(|(field, _)| *field != "@type") {
                    self.field(of_type, field, value);
                }
            }
            _ => {
                self.faults.insert(format!("{of_type} is a message, not {value}"));
            }
        }
    }

    fn field(&mut self, of_type: &str, field: &str, value: &Value) {
        let name = format!("{of_type}.{field}");
        self.look(Kind::Field, &name);
        if let Some(holds) = self.known.holds(Kind::Field, &name).filter(|holds| *holds != "-") {
            let (holds, of_map) = holds.strip_prefix("map of ").map_or((holds, false), |holds| (holds, true));
            let values = value.as_object().filter(|_| of_map).map(|map| map.values().collect());
            values.unwrap_or_else(|| vec![value]).into_iter().for_each(|value| self.message(holds, value));
        }
        match name.as_str() {
            "envoy.config.core.v3.DataSource.inline_string" => {
                for (kind, used) in lua::uses(self.known, value.as_str().unwrap()) {
                    self.look(kind, &used);
                }
            }
            "envoy.extensions.filters.http.ext_authz.v3.ExtAuthz.filter_enabled_metadata" => {
                let place = value["filter"].as_str().unwrap();
                self.look(Kind::Metadata, place);
                for segment in value["path"].as_array().unwrap() {
                    let key = segment["key"].as_str().unwrap().trim_start_matches("ii_");
                    self.look(Kind::Metadata, &format!("{place}/{key}"));
                }
            }
            "google.api.expr.v1alpha1.Call.function" => self.look(Kind::Attribute, value.as_str().unwrap()),
            "google.api.expr.v1alpha1.Expr.select_expr" => {
                let object = value["operand"]["ident_expr"]["name"].as_str().unwrap();
                self.look(Kind::Attribute, &format!("{object}.{}", value["field"].as_str().unwrap()));
            }
            _ => {}
        }
    }
}

#[test]
fn the_oldest_proxy_has_all_that_a_chain_uses() {
    let lacking = lacking(&chain());
    assert!(lacking.is_empty(), "Istio {OLDEST_ISTIO} (Envoy {OLDEST_ENVOY}): {lacking:#?}");
}

#[test]
fn the_walk_sees_all_of_a_chain() {
    let known = Known::read();
    let mut walk = Walk { known: &known, faults: BTreeSet::new(), seen: BTreeSet::new() };
    for patch in chain()["spec"]["configPatches"].as_array().unwrap() {
        let config = &patch["patch"]["value"]["typed_config"];
        walk.message(config["@type"].as_str().unwrap().trim_start_matches("type.googleapis.com/"), config);
    }
    for seen in [
        "envoy.extensions.filters.http.ext_authz.v3.HttpService.path_prefix",
        "envoy.type.matcher.v3.ValueMatcher.string_match",
        "xds.route_name",
        "startsWith",
        "!_",
        "envoy.filters.http.rbac/shadow_effective_policy_id",
        "envoy.filters.http.ext_authz",
        "info:dynamicMetadata",
        "dynamic:get",
        "dynamic:set",
        "headers:get",
        "headers:add",
        "headers:remove",
        "headers:replace",
        "stream:respond",
        "string.gsub",
        "ipairs",
    ] {
        assert!(walk.seen.contains(seen), "{seen} was not looked up: {:#?}", walk.seen);
    }
}

#[test]
fn what_is_too_new_or_unknown_is_found() {
    let of = |position: usize| format!("/spec/configPatches/{position}/patch/value/typed_config");
    let script = |call: &str| json!({"inline_string": format!("function envoy_on_request(h) {call} end")});
    let (select, enter, check) = (of(0), of(1), of(2));
    let attribute = "/shadow_rules/policies/~/condition/call_expr/target/select_expr/field";
    let cases = [
        (format!("{enter}/default_source_code"), script("h:streamInfo():routeName()"), "routeName"),
        (format!("{enter}/default_source_code"), script("h:clearRouteCache()"), "clearRouteCache"),
        (format!("{enter}/default_source_code"), script("os.execute('x')"), "os.execute"),
        // Methods that another of Envoy's objects has, and those of what nothing is known of.
        (format!("{enter}/default_source_code"), script("h:headers():set('a', 'b')"), "headers:set"),
        (format!("{enter}/default_source_code"), script("h:get('a')"), "stream:get"),
        (format!("{enter}/default_source_code"), script("x:headers()"), "x:headers"),
        (
            format!("{enter}/default_source_code"),
            script("h:streamInfo():dynamicMetadata():get('envoy.filters.http.jwt_authn')"),
            "envoy.filters.http.jwt_authn",
        ),
        (
            enter.clone(),
            json!({"@type": "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua", "clear_route_cache": true}),
            "clear_route_cache",
        ),
        (format!("{select}{attribute}"), json!("virtual_host_name"), "xds.virtual_host_name"),
        (format!("{select}{attribute}"), json!("no_such_thing"), "xds.no_such_thing"),
        (
            format!("{check}/http_service"),
            json!({"retry_policy": {}}),
            "envoy.extensions.filters.http.ext_authz.v3.HttpService.retry_policy",
        ),
        (
            enter.clone(),
            json!({"@type": "type.googleapis.com/envoy.extensions.common.matching.v3.ExtensionWithMatcher"}),
            "envoy.common.matching",
        ),
    ];
    for (place, value, fault) in cases {
        let mut changed = chain();
        *changed.pointer_mut(&place).unwrap_or_else(|| panic!("{place}")) = value;
        let lacking = lacking(&changed);
        assert!(lacking.iter().any(|line| line.contains(fault)), "{fault}: {lacking:#?}");
    }
}
