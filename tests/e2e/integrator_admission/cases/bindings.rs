//! Specs of a `GatewayBinding`.

use serde_json::{Value, json};

use super::{
    Admitted, DUPLICATE, EMPTY_TEXT, HOST, LABEL, NAME, NO_HOSTS, REQUIRED, Refused, TOO_LONG, TOO_MANY,
    UNSUPPORTED, admitted, longest_host, refused,
};

const PATTERN: &str =
    "must be a lower-case DNS name, *. followed by one (it covers every host below that name), or * for all";
const NO_HOST: &str = "set domain, allowed or both: otherwise no host could be served";
const MEMBER: &str = "istioGateway must be set when type is IstioGateway, and only then";
const HOLD_NAME: &str = "must hold {name}, or two requests would get one host";
const END: &str = "must end in .{domain}";
const PLACEHOLDERS: &str =
    "may hold lower-case letters, digits, dots, dashes and the placeholders {name}, {namespace} and {domain}";
const ONCE: &str = "must hold each placeholder at most once";
const SELECTOR: &str = "selector must be set when from is Selector, and only then";
const VALUES: &str = "values must be given for In and NotIn, and only for them";

fn gateway() -> Value {
    json!({ "type": "IstioGateway", "istioGateway": { "namespace": "istio-system", "name": "public" } })
}

fn istio_gateway(namespace: &str, name: &str) -> Value {
    let gateway = json!({ "type": "IstioGateway", "istioGateway": { "namespace": namespace, "name": name } });
    json!({ "gateway": gateway, "hosts": { "domain": "apps.example.com" } })
}

fn policy(hosts: &Value) -> Value {
    json!({ "gateway": gateway(), "hosts": hosts })
}

fn template(template: &str) -> Value {
    policy(&json!({ "domain": "a.b", "template": template }))
}

fn allowed(patterns: &[&str]) -> Value {
    let allowed: Vec<Value> = patterns.iter().map(|pattern| json!({ "pattern": pattern })).collect();
    policy(&json!({ "allowed": allowed }))
}

/// The namespaces of a binding.
fn namespaces(namespaces: &Value) -> Value {
    json!({ "gateway": gateway(), "hosts": { "domain": "a.b" }, "namespaces": namespaces })
}

/// The namespaces of an allowed pattern.
fn allowed_namespaces(namespaces: &Value) -> Value {
    policy(&json!({ "allowed": [{ "pattern": "*", "namespaces": namespaces }] }))
}

/// The logins of a binding.
fn auth(auth: &Value) -> Value {
    json!({ "gateway": gateway(), "hosts": { "domain": "a.b" }, "auth": auth })
}

fn default_provider(namespace: &str, name: &str) -> Value {
    auth(&json!({ "defaultProviderRef": { "namespace": namespace, "name": name } }))
}

fn requirement(requirement: &Value) -> Value {
    json!({ "from": "Selector", "selector": { "matchExpressions": [requirement] } })
}

pub(in super::super) fn valid_bindings() -> Vec<Admitted> {
    let selector = json!({
        "matchLabels": { "example.com/team": "shop" },
        "matchExpressions": [
            { "key": "a", "operator": "Exists" },
            { "key": "b", "operator": "DoesNotExist", "values": [] },
            { "key": "c", "operator": "In", "values": ["d", ""] },
            { "key": "e", "operator": "NotIn", "values": ["f"] },
        ],
    });
    let mut cases = vec![
        admitted("the least", policy(&json!({ "domain": "apps.example.com" }))),
        admitted("every field", {
            let allowed = json!([
                { "pattern": "*" },
                {
                    "pattern": "*.a.b",
                    "shared": true,
                    "namespaces": { "from": "Selector", "selector": selector },
                },
            ]);
            json!({
                "default": true,
                "gateway": gateway(),
                "namespaces": { "from": "All" },
                "hosts": { "domain": "a.b", "template": "{namespace}-{name}.x.{domain}", "allowed": allowed },
            })
        }),
        admitted("allowed hosts and no domain", allowed(&["shop.example.com"])),
        admitted("the longest domain", policy(&json!({ "domain": longest_host() }))),
        admitted("as many allowed hosts as there may be", {
            let host = longest_host();
            let patterns: Vec<String> = (0..128).map(|n| format!("*.{n:03}{}", &host[5..])).collect();
            allowed(&patterns.iter().map(String::as_str).collect::<Vec<_>>())
        }),
        admitted("the longest names", istio_gateway(&"n".repeat(63), &longest_host())),
        admitted("a login and no default", auth(&json!({ "required": true }))),
        admitted("a default provider", default_provider("auth", "oauth2.proxy")),
        admitted("the longest names of a provider", default_provider(&"n".repeat(63), &longest_host())),
    ];
    for pattern in ["*", "*.example.com", "*.com", "shop.example.com", "1.example"] {
        cases.push(admitted(format!("the pattern {pattern}"), allowed(&[pattern])));
    }
    for text in ["{name}.{namespace}.{domain}", "{name}.{domain}", "a-{name}-1.{namespace}.x.{domain}"] {
        cases.push(admitted(format!("the template {text}"), template(text)));
    }
    for value in [
        json!({}),
        json!({ "from": "Same" }),
        json!({ "from": "All" }),
        json!({ "from": "Selector", "selector": {} }),
        json!({ "from": "Selector", "selector": selector }),
    ] {
        cases.push(admitted(format!("the namespaces {value}"), namespaces(&value)));
        cases.push(admitted(format!("a pattern's namespaces {value}"), allowed_namespaces(&value)));
    }
    cases
}

pub(in super::super) fn invalid_bindings() -> Vec<Refused> {
    [
        invalid_gateways(),
        invalid_policies(),
        invalid_templates(),
        invalid_patterns(),
        invalid_namespaces(),
        invalid_auth(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn invalid_gateways() -> Vec<Refused> {
    const GATEWAY: &str = "spec.gateway";
    const NAMESPACE: &str = "spec.gateway.istioGateway.namespace";
    const GATEWAY_NAME: &str = "spec.gateway.istioGateway.name";
    const KIND: &str = "spec.gateway.type";
    let domain = json!({ "domain": "apps.example.com" });
    let with = |gateway: Value| json!({ "gateway": gateway, "hosts": domain });
    let part = |gateway: Value| with(json!({ "type": "IstioGateway", "istioGateway": gateway }));
    let mut cases = vec![
        refused("no gateway", json!({ "hosts": domain }), GATEWAY, REQUIRED),
        refused(
            "no type",
            with(json!({ "istioGateway": { "namespace": "a", "name": "b" } })),
            KIND,
            REQUIRED,
        ),
        refused("no such type", with(json!({ "type": "Managed" })), KIND, UNSUPPORTED),
        refused("a type and no gateway", with(json!({ "type": "IstioGateway" })), GATEWAY, MEMBER),
        refused("no namespace", part(json!({ "name": "public" })), NAMESPACE, REQUIRED),
        refused("no name", part(json!({ "namespace": "istio-system" })), GATEWAY_NAME, REQUIRED),
        refused("an empty namespace", istio_gateway("", "x"), NAMESPACE, EMPTY_TEXT),
        refused("an empty name", istio_gateway("a", ""), GATEWAY_NAME, EMPTY_TEXT),
        refused("a namespace of 64 characters", istio_gateway(&"a".repeat(64), "x"), NAMESPACE, TOO_LONG),
    ];
    for namespace in ["a.b", "A", "a/b"] {
        cases.push(refused(
            format!("the namespace {namespace}"),
            istio_gateway(namespace, "x"),
            NAMESPACE,
            LABEL,
        ));
    }
    for name in ["Public", "a/b", "*"] {
        cases.push(refused(format!("the name {name}"), istio_gateway("a", name), GATEWAY_NAME, NAME));
    }
    cases
}

fn invalid_policies() -> Vec<Refused> {
    const HOSTS: &str = "spec.hosts";
    const DOMAIN: &str = "spec.hosts.domain";
    let domain = |domain: &str| policy(&json!({ "domain": domain }));
    let mut cases = vec![
        refused("no hosts", json!({ "gateway": gateway() }), HOSTS, REQUIRED),
        refused("empty hosts", policy(&json!({})), HOSTS, NO_HOST),
        refused("an empty list of allowed hosts", policy(&json!({ "allowed": [] })), HOSTS, NO_HOST),
        refused("a template alone", policy(&json!({ "template": "{name}.{domain}" })), HOSTS, NO_HOST),
        refused("an empty domain", domain(""), DOMAIN, EMPTY_TEXT),
        refused("a domain of 254 characters", domain(&format!("{}a", longest_host())), DOMAIN, TOO_LONG),
    ];
    for text in NO_HOSTS.iter().chain(&["*", "*.a"]) {
        cases.push(refused(format!("the domain {text:?}"), domain(text), DOMAIN, HOST));
    }
    cases
}

fn invalid_templates() -> Vec<Refused> {
    const TEMPLATE: &str = "spec.hosts.template";
    let long = format!("{}.{{name}}.{{domain}}", "a".repeat(253));
    [
        ("", EMPTY_TEXT),
        (long.as_str(), TOO_LONG),
        ("{namespace}.{domain}", HOLD_NAME),
        ("x.{domain}", HOLD_NAME),
        ("{Name}.{domain}", HOLD_NAME),
        ("{name}", END),
        ("{name}{domain}", END),
        ("{name}.example.com", END),
        ("{name}.{domain}.example.com", END),
        ("{name}.{team}.{domain}", PLACEHOLDERS),
        ("{name}_{namespace}.{domain}", PLACEHOLDERS),
        ("{name}.{.{domain}", PLACEHOLDERS),
        ("*.{name}.{domain}", PLACEHOLDERS),
        ("{name}.X.{domain}", PLACEHOLDERS),
        ("{name}.{name}.{domain}", ONCE),
        ("{name}.{namespace}.{namespace}.{domain}", ONCE),
        ("{name}.{domain}.{domain}", ONCE),
    ]
    .into_iter()
    .map(|(text, reason)| refused(format!("the template {text:?}"), template(text), TEMPLATE, reason))
    .collect()
}

fn invalid_patterns() -> Vec<Refused> {
    const FIRST: &str = "spec.hosts.allowed[0].pattern";
    let many: Vec<String> = (0..129).map(|n| format!("*.a{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let mut cases = vec![
        refused("no pattern", policy(&json!({ "allowed": [{ "shared": true }] })), FIRST, REQUIRED),
        refused("an empty pattern", allowed(&[""]), FIRST, EMPTY_TEXT),
        refused(
            "a pattern of 254 characters",
            allowed(&[&format!("*.{}", &longest_host()[1..])]),
            FIRST,
            TOO_LONG,
        ),
        refused("a pattern twice", allowed(&["*.a", "*.a"]), "spec.hosts.allowed[1]", DUPLICATE),
        refused("too many patterns", allowed(&many), "spec.hosts.allowed", TOO_MANY),
        refused("the second pattern", allowed(&["*.a", "a.*"]), "spec.hosts.allowed[1].pattern", PATTERN),
    ];
    for pattern in NO_HOSTS.iter().chain(&["*a", "*.", "a.*", "*.*.a", "**", "a.*.b"]) {
        cases.push(refused(format!("the pattern {pattern:?}"), allowed(&[pattern]), FIRST, PATTERN));
    }
    cases
}

/// A choice of namespaces is the same type in two places; every case is tried in both.
fn invalid_namespaces() -> Vec<Refused> {
    /// Joins the name of a field to both places.
    macro_rules! fields {
        ($rest:literal) => {
            [concat!("spec.namespaces", $rest), concat!("spec.hosts.allowed[0].namespaces", $rest)]
        };
    }
    let expression = fields!(".selector.matchExpressions[0]");
    let operator = fields!(".selector.matchExpressions[0].operator");
    let key = fields!(".selector.matchExpressions[0].key");
    let value = fields!(".selector.matchExpressions[0].values[0]");
    let exists = json!({ "key": "a", "operator": "Exists" });
    let selector = |selector: Value| json!({ "from": "Selector", "selector": selector });
    let labels: serde_json::Map<String, Value> = (0..33).map(|n| (format!("l{n}"), json!("x"))).collect();
    [
        (json!({ "from": "Some" }), fields!(".from"), UNSUPPORTED),
        (json!({ "from": "Selector" }), fields!(""), SELECTOR),
        (json!({ "from": "All", "selector": {} }), fields!(""), SELECTOR),
        (json!({ "from": "Same", "selector": {} }), fields!(""), SELECTOR),
        (json!({ "selector": { "matchLabels": { "a": "b" } } }), fields!(""), SELECTOR),
        (requirement(&json!({ "key": "a", "operator": "In" })), expression, VALUES),
        (requirement(&json!({ "key": "a", "operator": "In", "values": [] })), expression, VALUES),
        (requirement(&json!({ "key": "a", "operator": "NotIn" })), expression, VALUES),
        (requirement(&json!({ "key": "a", "operator": "Exists", "values": ["a"] })), expression, VALUES),
        (
            requirement(&json!({ "key": "a", "operator": "DoesNotExist", "values": ["a"] })),
            expression,
            VALUES,
        ),
        (requirement(&json!({ "key": "a", "operator": "Gt", "values": ["1"] })), operator, UNSUPPORTED),
        (requirement(&json!({ "key": "a" })), operator, REQUIRED),
        (requirement(&json!({ "operator": "Exists" })), key, REQUIRED),
        (requirement(&json!({ "key": "", "operator": "Exists" })), key, EMPTY_TEXT),
        (requirement(&json!({ "key": "a", "operator": "In", "values": ["a".repeat(64)] })), value, TOO_LONG),
        (
            requirement(&json!({ "key": "a", "operator": "In", "values": vec!["a"; 65] })),
            fields!(".selector.matchExpressions[0].values"),
            TOO_MANY,
        ),
        (
            selector(json!({ "matchExpressions": vec![exists; 33] })),
            fields!(".selector.matchExpressions"),
            TOO_MANY,
        ),
        (selector(json!({ "matchLabels": labels })), fields!(".selector.matchLabels"), TOO_MANY),
    ]
    .into_iter()
    .flat_map(|(value, [own, of_pattern], reason)| {
        let both = [(own, namespaces(&value)), (of_pattern, allowed_namespaces(&value))];
        both.map(|(field, spec)| refused(format!("{field}, {value}"), spec, field, reason))
    })
    .collect()
}

fn invalid_auth() -> Vec<Refused> {
    const NAMESPACE: &str = "spec.auth.defaultProviderRef.namespace";
    const PROVIDER: &str = "spec.auth.defaultProviderRef.name";
    let part = |provider: Value| auth(&json!({ "defaultProviderRef": provider }));
    let mut cases = vec![
        refused("a provider without namespace", part(json!({ "name": "a" })), NAMESPACE, REQUIRED),
        refused("a provider without name", part(json!({ "namespace": "a" })), PROVIDER, REQUIRED),
        refused("an empty namespace of a provider", default_provider("", "a"), NAMESPACE, EMPTY_TEXT),
        refused("an empty name of a provider", default_provider("a", ""), PROVIDER, EMPTY_TEXT),
        refused(
            "a long namespace of a provider",
            default_provider(&"a".repeat(64), "a"),
            NAMESPACE,
            TOO_LONG,
        ),
        refused(
            "a long name of a provider",
            default_provider("a", &format!("{}a", longest_host())),
            PROVIDER,
            TOO_LONG,
        ),
        refused(
            "a requirement by word",
            auth(&json!({ "required": "yes" })),
            "spec.auth.required",
            "must be of type boolean",
        ),
    ];
    for text in ["A", "a/b", "a_b", "-a", "*"] {
        cases.push(refused(format!("a provider in {text}"), default_provider(text, "a"), NAMESPACE, LABEL));
        cases.push(refused(format!("the provider {text}"), default_provider("a", text), PROVIDER, NAME));
    }
    cases.push(refused("a provider in a.b", default_provider("a.b", "a"), NAMESPACE, LABEL));
    cases
}
