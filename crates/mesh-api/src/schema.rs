//! Schemas and CEL rules of the CRDs that no derive gives.
//!
//! Every string and list that a rule reads has a length limit beside it, since the API server prices a rule by the
//! longest input it may see and refuses a CRD that could cost too much.

use kube::core::{Message, Rule};
use schemars::{Schema, SchemaGenerator, json_schema};

use crate::header;

const LABEL: &str = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?";

fn rule(expression: String, message: &str) -> Rule {
    Rule::new(expression).message(message)
}

/// The `conditions` of a status: a list keyed by type, with the limits of Kubernetes' own `metav1.Condition`, which
/// k8s-openapi's schema does not carry.
pub(crate) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "description": "The latest verdicts, one of each type.",
        "maxItems": 16,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "lastTransitionTime", "reason", "message"],
            "properties": {
                "type": {
                    "type": "string",
                    "maxLength": 316,
                    "description": "What the verdict is about.",
                },
                "status": {
                    "type": "string",
                    "enum": ["True", "False", "Unknown"],
                    "description": "The verdict.",
                },
                "observedGeneration": {
                    "type": "integer",
                    "format": "int64",
                    "minimum": 0,
                    "description": "The generation of the object that the verdict was given on.",
                },
                "lastTransitionTime": {
                    "type": "string",
                    "format": "date-time",
                    "description": "When the status last changed.",
                },
                "reason": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                    "description": "Why, as one word that tools may compare.",
                },
                "message": {
                    "type": "string",
                    "maxLength": 32768,
                    "description": "Why, and what to do, for a person.",
                },
            },
        },
    })
}

/// The path of a route in a status: without the rules of a spec, so that the status of an object older than a rule can
/// still be written.
pub(crate) fn path_in_status(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "description": "The paths of the route.",
        "required": ["type", "value"],
        "properties": {
            "type": { "type": "string", "description": "How the path is compared." },
            "value": { "type": "string", "description": "The path." },
        },
    })
}

/// A string that is a host (see [`crate::syntax::is_host`]).
pub(crate) fn host() -> Rule {
    rule(
        format!("self.matches('^{LABEL}([.]{LABEL})*$') && !self.matches('^[0-9.]+$')"),
        "must be a lower-case DNS name such as shop.example.com, without port, scheme, wildcard or trailing dot",
    )
}

/// The hosts of a request: a set, with the rule on each item, so that a refusal names the item.
pub(crate) fn hosts(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 32,
        "x-kubernetes-list-type": "set",
        "items": {
            "type": "string",
            "minLength": 1,
            "maxLength": 253,
            "x-kubernetes-validations": [host()],
        },
    })
}

/// A string that is a host pattern (see [`crate::syntax::is_host_pattern`]).
pub(crate) fn host_pattern() -> Rule {
    rule(
        format!(
            "self == '*' || (self.matches('^([*][.])?{LABEL}([.]{LABEL})*$') && !self.matches('^[0-9.]+$'))"
        ),
        "must be a lower-case DNS name, *. followed by one (it covers every host below that name), or * for all",
    )
}

/// A string that is a DNS-1123 label: the name of a namespace or a Service.
pub(crate) fn dns_label() -> Rule {
    rule(
        format!("self.matches('^{LABEL}$')"),
        "must be lower-case letters, digits and inner dashes, at most 63 characters",
    )
}

/// A string that is a DNS-1123 subdomain: the name of most objects.
pub(crate) fn object_name() -> Rule {
    rule(
        format!("self.matches('^{LABEL}([.]{LABEL})*$')"),
        "must be the name of an object: lower-case letters, digits, inner dashes and dots",
    )
}

/// The rules of a path (see [`crate::syntax::path_problem`]), one for each message.
pub(crate) fn path_rules() -> [Rule; 4] {
    [
        rule("self.startsWith('/')".to_owned(), "must begin with /"),
        rule(
            "self.matches('^[A-Za-z0-9/._~!$&\\'()*+,;=:@%-]*$')".to_owned(),
            "may hold only letters, digits and /._~!$&'()*+,;=:@%-, and no query or fragment",
        ),
        rule(
            "!self.contains('//') && !self.matches('/[.][.]?(/|$)')".to_owned(),
            "must not hold //, /./ or /../: the gateway resolves them before it chooses a route",
        ),
        rule(
            "!self.matches('%($|[^0-9A-Fa-f]|.$|.[^0-9A-Fa-f]|2[EeFf]|5[Cc]|00)')".to_owned(),
            "each % must be followed by two hexadecimal digits, and none may encode a slash, backslash, dot or NUL",
        ),
    ]
}

/// The rules of a host template (see [`crate::syntax::template_problem`]), one for each message.
pub(crate) fn template_rules() -> [Rule; 4] {
    let rest = "self.replace('{name}', '').replace('{namespace}', '').replace('{domain}', '')";
    [
        rule("self.contains('{name}')".to_owned(), "must hold {name}, or two requests would get one host"),
        rule("self.endsWith('.{domain}')".to_owned(), "must end in .{domain}"),
        rule(
            format!("{rest}.matches('^[a-z0-9.-]*$')"),
            "may hold lower-case letters, digits, dots, dashes and the placeholders {name}, {namespace} and {domain}",
        ),
        rule(
            "['{name}', '{namespace}', '{domain}'].all(p, self.indexOf(p) == self.lastIndexOf(p))".to_owned(),
            "must hold each placeholder at most once",
        ),
    ]
}

/// No two routes of a request may match the same paths with the same methods. A prefix with a trailing slash is the prefix
/// without it. Methods that overlap without being the same are left to the compiler: comparing each with each would cost
/// more than the API server allows.
///
/// The lengths are compared before the texts, since the API server prices what a rule does in fact as well, and the
/// longest allowed request must pass.
pub(crate) fn distinct_paths() -> Rule {
    let same = "a.path.type == b.path.type && (a.path.value == b.path.value || (a.path.type == 'PathPrefix' && \
                a.path.value.size() + 1 == b.path.value.size() && a.path.value + '/' == b.path.value)) && (has(a.methods) ? has(b.methods) && a.methods == b.methods : \
                !has(b.methods))";
    Rule::new(format!("self.all(a, self.exists_one(b, {same}))"))
        .message("no two routes may have the same path and methods; a PathPrefix /app/ is the same as /app")
}

/// A union's member must be there exactly when `type` names it.
pub(crate) fn union_member(kind: &str, field: &str) -> Rule {
    Rule::new(format!("(self.type == '{kind}') == has(self.{field})"))
        .message(Message::Message(format!("{field} must be set when type is {kind}, and only then")))
}

/// `selector` must be there exactly when `from` is `Selector`.
pub(crate) fn selector_when_selected() -> Rule {
    Rule::new("(self.from == 'Selector') == has(self.selector)")
        .message("selector must be set when from is Selector, and only then")
}

/// A duration of the Gateway API (see [`crate::header::duration`]) within bounds, which CEL can read itself.
pub(crate) fn duration_between(least: &str, most: &str) -> Rule {
    let message = format!("must be a duration such as 500ms, 10s or 1m30s, from {least} to {most}");
    Rule::new(format!(
        "self.matches('^([0-9]{{1,5}}(h|m|s|ms)){{1,4}}$') && duration(self) >= duration('{least}') && \
         duration(self) <= duration('{most}')"
    ))
    .message(Message::Message(message))
}

/// A set of strings with rules on each item, so that a refusal names the item.
fn set(most: usize, longest: usize, rules: &[Rule]) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": most,
        "x-kubernetes-list-type": "set",
        "items": {
            "type": "string",
            "minLength": 1,
            "maxLength": longest,
            "x-kubernetes-validations": rules,
        },
    })
}

fn header_name() -> Rule {
    rule(
        "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && !self.startsWith('x-ii-') && !(self in ['host', 'connection', \
         'transfer-encoding', 'content-length', 'te', 'upgrade'])"
            .to_owned(),
        "must be the name of a header in lower-case letters, digits and dashes, none of the connection itself and none that \
         begins with x-ii-",
    )
}

/// Headers that a provider asks for (see [`crate::header::header_name_problem`]).
pub(crate) fn request_headers(_: &mut SchemaGenerator) -> Schema {
    set(header::MAX_REQUEST_HEADERS, header::MAX_HEADER_LENGTH, &[header_name()])
}

/// Headers that a provider sets (see [`crate::header::identity_header_problem`]).
pub(crate) fn identity_headers(_: &mut SchemaGenerator) -> Schema {
    let rules = [
        header_name(),
        rule(
            "self.startsWith('x-') && self.split('-').size() <= 5".to_owned(),
            "must begin with x- and hold at most 4 dashes",
        ),
        rule(
            "!self.matches('^x-(forwarded|envoy|b3|istio|ot)-') && !(self in ['x-request-id', 'x-client-trace-id', \
             'x-real-ip', 'x-original-url', 'x-rewrite-url'])"
                .to_owned(),
            "must not be a header on which Envoy, Istio or backends act by themselves",
        ),
    ];
    set(header::MAX_IDENTITY_HEADERS, header::MAX_HEADER_LENGTH, &rules)
}

fn plain_path() -> Rule {
    rule(
        "self.matches('^/[A-Za-z0-9/._~-]*$') && !self.contains('//') && !self.matches('/[.][.]?(/|$)')"
            .to_owned(),
        "must begin with / and hold only letters, digits and /._~- without //, /./ or /../",
    )
}

/// The paths of an auth service's own (see [`crate::header::own_path_problem`]).
pub(crate) fn own_paths(_: &mut SchemaGenerator) -> Schema {
    let root = rule("self != '/'".to_owned(), "must not be /, which would be every path");
    set(header::MAX_OWN_PATHS, header::MAX_OWN_PATH_LENGTH, &[plain_path(), root])
}

/// What is put before the path when an auth service is asked (see [`crate::header::path_prefix_problem`]).
pub(crate) fn path_prefix() -> [Rule; 2] {
    [
        Rule::new(
            "self == '' || (self.matches('^/[A-Za-z0-9/._~-]*$') && !self.contains('//') && \
                   !self.matches('/[.][.]?(/|$)'))",
        )
        .message("must begin with / and hold only letters, digits and /._~- without //, /./ or /../"),
        rule(
            "!self.endsWith('/')".to_owned(),
            "must not end in a slash, since the path that follows begins with one",
        ),
    ]
}

/// No identity header may be asked for as well: what a client sends under its name is taken away before.
pub(crate) fn identity_not_requested() -> Rule {
    Rule::new(
        "!has(self.identityHeaders) || !has(self.requestHeaders) || !self.identityHeaders.exists(h, h in self.requestHeaders)",
    )
    .message("no header may be in both identityHeaders and requestHeaders")
}

/// The backends of a route.
pub(crate) fn backend_rules() -> [Rule; 2] {
    let same = "a.service == b.service && a.port == b.port && (has(a.__namespace__) ? has(b.__namespace__) && \
                a.__namespace__ == b.__namespace__ : !has(b.__namespace__))";
    [
        rule(
            "self.exists(b, b.weight > 0)".to_owned(),
            "at least one backend must have a weight above 0, or nothing would answer",
        ),
        Rule::new(format!("self.all(a, self.exists_one(b, {same}))"))
            .message("each backend may be listed once; give it the sum of the weights"),
    ]
}

/// A prefix can be replaced only where one is matched.
pub(crate) fn rewrite_needs_prefix() -> Rule {
    Rule::new("!has(self.rewrite) || self.rewrite.type != 'ReplacePrefix' || self.path.type == 'PathPrefix'")
        .message("rewrite.type ReplacePrefix needs a path of type PathPrefix")
}
