use std::collections::BTreeMap;

use mesh_api::istio::EnvoyFilter;
use serde_json::Value;

use super::*;
use crate::input::ObjectKey;

fn key() -> TokenKey {
    TokenKey::new([7; 32])
}

fn provider(name: &str) -> Provider {
    Provider {
        key: ObjectKey::new("auth", name),
        uid: "u".into(),
        host: format!("{name}.auth.svc.cluster.local"),
        port: 9000,
        timeout_ms: 1500,
        request_headers: vec!["cookie".into()],
        identity_headers: vec!["x-user".into()],
        path_prefix: String::new(),
        own_paths: Vec::new(),
    }
}

fn chain(names: &[&str]) -> Chain {
    let providers = names.iter().map(|name| provider(name)).map(|provider| (provider.id(), provider));
    Chain {
        selector: BTreeMap::from([("istio".into(), "ingressgateway".into())]),
        providers: providers.collect(),
    }
}

fn filters(object: &EnvoyFilter) -> Vec<String> {
    let names =
        object.spec.config_patches.iter().map(|patch| patch["patch"]["value"]["name"].as_str().unwrap());
    names.map(str::to_owned).collect()
}

#[test]
fn a_chain_has_its_filters_in_order_and_passes_our_check() {
    for names in [&[][..], &["one"], &["one", "two", "three"]] {
        let chain = chain(names);
        let object = chain.envoy_filter("istio-system", "ii", &key());
        let mut expected = vec!["ii.select".to_owned(), "ii.enter".to_owned()];
        expected.extend(chain.providers.keys().map(|id| format!("ii.check.{id}")));
        expected.push("ii.leave".to_owned());
        assert_eq!(filters(&object), expected);
        assert_eq!(validate_chain(&object), [], "{names:?}");
        assert_eq!(object.metadata.namespace.as_deref(), Some("istio-system"));
    }
}

#[test]
fn a_chain_is_read_back_from_its_annotation() {
    let written = chain(&["one", "two"]);
    let object = written.envoy_filter("istio-system", "ii", &key());
    let annotation =
        object.metadata.annotations.unwrap().remove(mesh_api::names::PROVIDERS_ANNOTATION).unwrap();
    assert_eq!(Chain::read(written.selector.clone(), Some(&annotation)), written);
    // What could not go into a chain is left out, and so is what is no provider at all.
    let mut bad: Value = serde_json::from_str(&annotation).unwrap();
    bad[0]["timeoutMs"] = 0.into();
    bad[1]["more"] = 1.into();
    let read = Chain::read(written.selector.clone(), Some(&bad.to_string()));
    assert!(read.providers.is_empty(), "{read:?}");
    for text in [None, Some(""), Some("{}"), Some("[1, null]")] {
        assert!(Chain::read(BTreeMap::new(), text).providers.is_empty());
    }
}

#[test]
fn the_answer_to_a_probe_tells_chains_apart() {
    let one = chain(&["one"]);
    assert_eq!(one.answer(&key()), chain(&["one"]).answer(&key()));
    assert_ne!(one.answer(&key()), chain(&["two"]).answer(&key()));
    assert_ne!(one.answer(&key()), one.answer(&TokenKey::new([8; 32])));
    let digest = one.answer(&key()).split_once('.').unwrap().0.to_owned();
    let text = serde_json::to_string(&one.envoy_filter("istio-system", "ii", &key()).spec).unwrap();
    assert_eq!(text.matches(&digest).count(), 2, "in enter and in leave");
}

#[test]
fn ids_depend_on_everything() {
    let base = provider("one");
    let changes: &[fn(&mut Provider)] = &[
        |p| p.key.namespace = "other".into(),
        |p| p.key.name = "other".into(),
        |p| p.uid = "v".into(),
        |p| p.host = "other.auth.svc.cluster.local".into(),
        |p| p.port = 1,
        |p| p.timeout_ms = 1,
        |p| p.request_headers.clear(),
        |p| p.identity_headers = vec!["x-other".into()],
        |p| p.path_prefix = "/x".into(),
        |p| p.own_paths = vec!["/ping".into()],
    ];
    let mut ids = vec![base.id()];
    for change in changes {
        let mut other = base.clone();
        change(&mut other);
        ids.push(other.id());
    }
    let count = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), count);
    assert_eq!(ProviderId::parse(base.id().as_str()), Some(base.id()));
    for text in ["", "x", &"A".repeat(32), &"0".repeat(31)] {
        assert_eq!(ProviderId::parse(text), None);
    }
}

#[test]
fn tokens_begin_with_a_byte_that_no_client_can_send() {
    let token = key().token(&provider("one").id());
    assert!(token.starts_with('\u{1}') && token.len() == 33, "{token:?}");
    assert_ne!(token, key().token(&provider("two").id()));
    assert_ne!(token, TokenKey::new([8; 32]).token(&provider("one").id()));
    assert_eq!(format!("{:?}", key()), "TokenKey(..)");
}

#[test]
fn lua_reads_the_tokens_that_routes_demand() {
    // Lua takes up to three decimal digits after a backslash for one character.
    let names: Vec<String> = (0..40).map(|n| format!("p{n}")).collect();
    let chain = chain(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let object = chain.envoy_filter("istio-system", "ii", &key());
    let last = object.spec.config_patches.last().unwrap();
    let text =
        last["patch"]["value"]["typed_config"]["default_source_code"]["inline_string"].as_str().unwrap();
    for id in chain.providers.keys() {
        let token = key().token(id);
        let expected = format!("['{id}'] = '\\001{}',", &token[1..]);
        assert!(text.contains(&expected), "{expected} in {text}");
    }
}

#[test]
fn every_fault_of_a_chain_is_found() {
    type Change = fn(&mut EnvoyFilter);
    let faults: &[(&str, Change)] = &[
        ("metadata.name", |object| object.metadata.name = Some("other".into())),
        ("metadata.namespace", |object| object.metadata.namespace = None),
        ("spec.workloadSelector", |object| object.spec.workload_selector = None),
        ("spec.configPatches", |object| object.spec.config_patches.swap(0, 1)),
        ("spec.configPatches", |object| {
            object.spec.config_patches.pop();
        }),
        ("spec.configPatches", |object| {
            object.spec.config_patches.remove(2);
            object.spec.config_patches.push(Value::Null);
        }),
        ("spec.configPatches[0]", |object| object.spec.config_patches[0]["match"]["context"] = "ANY".into()),
        ("spec.configPatches[1]", |object| {
            object.spec.config_patches[1]["match"]["listener"]["portNumber"] = 80.into();
        }),
        ("spec.configPatches[1].patch", |object| {
            let script =
                &mut object.spec.config_patches[1]["patch"]["value"]["typed_config"]["default_source_code"];
            script["inline_string"] = "os.exit()".into();
        }),
        ("spec.configPatches[2].patch", |object| {
            let config = &mut object.spec.config_patches[2]["patch"]["value"]["typed_config"];
            config["http_service"]["server_uri"]["timeout"] = "soon".into();
        }),
        ("spec.configPatches[2].patch", |object| {
            let config = &mut object.spec.config_patches[2]["patch"]["value"]["typed_config"];
            config["failure_mode_allow"] = true.into();
        }),
        ("spec.configPatches[2].patch", |object| {
            let config = &mut object.spec.config_patches[2]["patch"]["value"]["typed_config"];
            config["http_service"]["authorization_response"]["allowed_upstream_headers"]["patterns"][0]["exact"] =
                "Host".into();
        }),
        ("spec.configPatches[0].patch", |object| {
            let config = &mut object.spec.config_patches[0]["patch"]["value"]["typed_config"];
            config["shadow_rules"]["policies"].as_object_mut().unwrap().remove("~");
        }),
    ];
    for (position, (field, change)) in faults.iter().enumerate() {
        let mut object = chain(&["one"]).envoy_filter("istio-system", "ii", &key());
        change(&mut object);
        let found: Vec<String> = validate_chain(&object).iter().map(ToString::to_string).collect();
        assert!(
            found.iter().any(|problem| problem.starts_with(field)),
            "fault {position}, {field}: {found:?}"
        );
    }
}

#[test]
fn what_a_provider_may_not_say_is_told_by_field() {
    type Change = fn(&mut Provider);
    let faults: &[(&str, Change)] = &[
        ("service", |p| p.host = "a b".into()),
        ("port", |p| p.port = 0),
        ("timeout", |p| p.timeout_ms = 60_001),
        ("requestHeaders", |p| p.request_headers = vec!["Cookie".into()]),
        ("identityHeaders", |p| p.identity_headers = vec!["x-forwarded-user".into()]),
        ("identityHeaders", |p| p.identity_headers = (0..17).map(|n| format!("x-{n}")).collect()),
        ("identityHeaders", |p| p.request_headers.push("x-user".into())),
        ("pathPrefix", |p| p.path_prefix = "/x/".into()),
        ("ownPaths", |p| p.own_paths = vec!["/".into()]),
    ];
    assert!(provider("one").problems().is_empty());
    for (field, change) in faults {
        let mut changed = provider("one");
        change(&mut changed);
        let problems = changed.problems();
        assert!(problems.iter().any(|problem| problem.starts_with(field)), "{field}: {problems:?}");
    }
}
