//! What the API server demands of the CRDs, as far as it can be seen without one.

use serde_json::Value;

use super::crds;

fn walk(path: &str, schema: &Value, visit: &mut impl FnMut(&str, &Value)) {
    visit(path, schema);
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        walk(&format!("{path}.{name}"), property, visit);
    }
    for inner in ["items", "additionalProperties"] {
        if schema[inner].is_object() {
            walk(&format!("{path}[]"), &schema[inner], visit);
        }
    }
}

/// Kind and schema of each CRD.
fn schemas() -> Vec<(String, Value)> {
    let described = crds().into_iter().map(|crd| {
        let crd = serde_json::to_value(crd).expect("a CRD is JSON");
        let kind = crd["spec"]["names"]["kind"].as_str().expect("a kind").to_owned();
        (kind, crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone())
    });
    described.collect()
}

#[test]
fn every_input_of_a_rule_is_bounded() {
    let mut rules = 0;
    for (kind, schema) in schemas() {
        walk(&format!("{kind}.spec"), &schema["properties"]["spec"], &mut |path, node| {
            rules += node["x-kubernetes-validations"].as_array().map_or(0, Vec::len);
            match node["type"].as_str() {
                Some("array") => assert!(node["maxItems"].is_u64(), "{path} has no maxItems"),
                Some("string") if node["enum"].is_null() && !path.contains("matchLabels") => {
                    assert!(node["maxLength"].is_u64(), "{path} has no maxLength");
                }
                Some("integer") => assert!(node["maximum"].is_number(), "{path} has no maximum"),
                _ => {}
            }
        });
    }
    assert!(rules > 15, "the rules are in the schema, {rules} of them");
}

#[test]
fn nothing_is_nullable_and_everything_is_described() {
    for (kind, schema) in schemas() {
        for part in ["spec", "status"] {
            let root = format!("{kind}.{part}");
            walk(&root, &schema["properties"][part], &mut |path, node| {
                // The status as a whole is an Option in the root type, which kube's derive calls nullable.
                assert!(
                    node["nullable"].is_null() || (path == root && part == "status"),
                    "{path} is nullable"
                );
                if !path.ends_with("[]") {
                    assert!(node["description"].is_string(), "{path} has no description");
                }
                assert!(node["oneOf"].is_null() && node["anyOf"].is_null(), "{path} is not structural");
            });
        }
    }
}

#[test]
fn a_status_has_no_rules() {
    // The status of an object older than a rule must still be writable.
    for (kind, schema) in schemas() {
        walk(&format!("{kind}.status"), &schema["properties"]["status"], &mut |path, node| {
            assert!(node["x-kubernetes-validations"].is_null(), "{path} has a rule");
        });
    }
}

#[test]
fn defaults_are_those_of_the_documentation() {
    let schemas = schemas();
    let spec = |kind: &str| {
        let found = schemas.iter().find(|(name, _)| name == kind).expect("the kind");
        found.1["properties"]["spec"]["properties"].clone()
    };
    let binding = spec("GatewayBinding");
    assert_eq!(binding["default"]["default"], false);
    assert_eq!(binding["namespaces"]["default"], serde_json::json!({"from": "Same"}));
    let hosts = &binding["hosts"]["properties"];
    assert_eq!(hosts["template"]["default"], "{name}.{namespace}.{domain}");
    assert_eq!(hosts["allowed"]["items"]["properties"]["shared"]["default"], false);
    let request = spec("IngressRequest");
    let path = &request["routes"]["items"]["properties"]["path"];
    assert_eq!(path["default"], serde_json::json!({"type": "PathPrefix", "value": "/"}));
    assert_eq!(path["properties"]["type"]["default"], "PathPrefix");
    assert_eq!(path["properties"]["value"]["default"], "/");
    let backend = &request["routes"]["items"]["properties"]["backends"]["items"]["properties"];
    assert_eq!(backend["weight"]["default"], 1);
    assert_eq!(request["auth"]["default"], serde_json::json!({"type": "Inherit"}));
    assert_eq!(binding["auth"]["default"], serde_json::json!({"required": false}));
    let check = &spec("AuthProvider")["extAuthz"]["properties"];
    assert_eq!(check["protocol"]["default"], "HTTP");
    assert_eq!(check["timeout"]["default"], "2s");
    assert_eq!(check["requestHeaders"]["default"], serde_json::json!(["cookie"]));
}
