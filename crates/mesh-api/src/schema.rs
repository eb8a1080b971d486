//! Schemas and CEL rules of the CRDs that no derive gives.
//!
//! Every string and list that a rule reads has a length limit beside it, since the API server prices a rule by the
//! longest input it may see and refuses a CRD that could cost too much.

use kube::core::{Message, Rule};
use schemars::{Schema, SchemaGenerator, json_schema};

use crate::header;

/// The longest duration: four numbers of five digits and `ms`.
pub(crate) const MAX_DURATION_LENGTH: u64 = 28;

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

/// No two routes of a request may answer the same requests: one path, and methods in common or none on both sides. A
/// prefix with a trailing slash is the prefix without it, and `GET` covers `HEAD`.
///
/// The lengths are compared before the texts, since the API server prices what a rule does in fact as well, and the
/// longest allowed request must pass.
pub(crate) fn distinct_routes() -> Rule {
    let same = "a.path.type == b.path.type && (a.path.value == b.path.value || (a.path.type == 'PathPrefix' && \
                a.path.value.size() + 1 == b.path.value.size() && a.path.value + '/' == b.path.value))";
    let meet = "((!has(a.methods) || a.methods.size() == 0) ? (!has(b.methods) || b.methods.size() == 0) : \
                (has(b.methods) && a.methods.exists(m, m in b.methods || (m == 'GET' && 'HEAD' in b.methods) || \
                (m == 'HEAD' && 'GET' in b.methods))))";
    rule(
        format!("self.all(a, self.exists_one(b, {same} && {meet}))"),
        "no two routes may have the same path, unless their methods differ; a PathPrefix /app/ is the same as /app, \
         and GET covers HEAD",
    )
}

/// Only a prefix can be replaced.
pub(crate) fn rewrite_of_prefix() -> Rule {
    rule(
        "!has(self.rewrite) || self.path.type == 'PathPrefix'".to_owned(),
        "rewrite needs path.type PathPrefix: an Exact path has no prefix to replace",
    )
}

/// The rules of the Services of a route, one for each message.
pub(crate) fn backends_rules() -> [Rule; 2] {
    // The word `namespace` is reserved in CEL, so that the field is written with underscores. And a conditional text, as in
    // has(x) ? x : '', has no length limit in the eyes of the API server.
    let same = "a.port == b.port && a.service == b.service && \
                (has(a.__namespace__) ? (has(b.__namespace__) && a.__namespace__ == b.__namespace__) : !has(b.__namespace__))";
    [
        rule(
            format!("self.all(a, self.exists_one(b, {same}))"),
            "no two backends may have the same namespace, service and port: keep one of them, with both weights added",
        ),
        rule(
            "self.exists(b, b.weight > 0)".to_owned(),
            "at least one backend must have a weight above 0, or nobody would answer",
        ),
    ]
}

/// The rules of a duration (see [`crate::header::duration`]) within bounds, which are durations themselves.
pub(crate) fn duration_rules(least: &str, most: &str) -> [Rule; 2] {
    let format = "self.matches('^([0-9]{1,5}(h|m|s|ms)){1,4}$')";
    [
        rule(
            format.to_owned(),
            "must be a duration such as 500ms, 10s or 1m30s: up to four whole numbers, each followed by h, m, s or ms",
        ),
        rule(
            format!(
                "!{format} || (duration(self) >= duration('{least}') && duration(self) <= duration('{most}'))"
            ),
            &format!("must be from {least} to {most}"),
        ),
    ]
}

/// The rules of a header name (see [`header::header_name_problem`]), one for each message.
fn header_name_rules() -> [Rule; 3] {
    [
        rule(
            "self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')".to_owned(),
            "must be the name of a header in lower case: letters, digits and inner dashes",
        ),
        rule(
            "!(self in ['host', 'connection', 'transfer-encoding', 'content-length', 'te', 'upgrade'])"
                .to_owned(),
            "must not be a header of the connection itself, such as host or upgrade: remove it",
        ),
        rule(
            "!self.startsWith('x-ii-')".to_owned(),
            "must not begin with x-ii-: such headers are the guard chain's own",
        ),
    ]
}

/// The rules of an identity header (see [`header::identity_header_problem`]) beside those of every header.
fn identity_header_rules() -> [Rule; 3] {
    let dashes = header::MAX_IDENTITY_DASHES;
    let reserved = "'x-request-id', 'x-client-trace-id', 'x-real-ip', 'x-original-url', 'x-rewrite-url'";
    [
        rule("self.startsWith('x-')".to_owned(), "must begin with x-, such as x-user"),
        rule(
            format!("self.matches('^[^-]*(-[^-]*){{0,{dashes}}}$')"),
            &format!("must hold at most {dashes} dashes: every spelling with underscores is removed too"),
        ),
        rule(
            format!("!(self in [{reserved}]) && !self.matches('^x-(forwarded|envoy|b3|istio|ot)-')"),
            "must not be a header that Envoy, Istio or backends act on by themselves: choose another, such as x-user",
        ),
    ]
}

/// A set of texts, with the rules on each item, so that a refusal names the item.
fn set_of(most_items: usize, most_characters: usize, rules: &[Rule]) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": most_items,
        "x-kubernetes-list-type": "set",
        "items": {
            "type": "string",
            "minLength": 1,
            "maxLength": most_characters,
            "x-kubernetes-validations": rules,
        },
    })
}

/// The headers that a provider asks for.
pub(crate) fn request_headers(_: &mut SchemaGenerator) -> Schema {
    set_of(header::MAX_REQUEST_HEADERS, header::MAX_HEADER_LENGTH, &header_name_rules())
}

/// The headers by which a provider says who has logged in.
pub(crate) fn identity_headers(_: &mut SchemaGenerator) -> Schema {
    let rules = [header_name_rules(), identity_header_rules()].concat();
    set_of(header::MAX_IDENTITY_HEADERS, header::MAX_HEADER_LENGTH, &rules)
}

/// A header of the client cannot be who has logged in.
pub(crate) fn identity_is_not_asked_for() -> Rule {
    rule(
        "!has(self.identityHeaders) || !self.identityHeaders.exists(h, h in self.requestHeaders)".to_owned(),
        "identityHeaders and requestHeaders must have no header in common: what clients send under the name of an \
         identity header is removed",
    )
}

fn plain_path_characters() -> Rule {
    rule("self.matches('^[A-Za-z0-9/._~-]*$')".to_owned(), "may hold only letters, digits and /._~-")
}

/// The paths of a provider's own pages (see [`header::own_path_problem`]).
pub(crate) fn own_paths(_: &mut SchemaGenerator) -> Schema {
    let [slash, _, resolved, _] = path_rules();
    let root = rule("self != '/'".to_owned(), "must not be /, which would be every path");
    let rules = [slash, plain_path_characters(), resolved, root];
    set_of(header::MAX_OWN_PATHS, header::MAX_OWN_PATH_LENGTH, &rules)
}

/// The rules of what is put before a path (see [`header::path_prefix_problem`]), one for each message.
pub(crate) fn path_prefix_rules() -> [Rule; 4] {
    let [_, _, resolved, _] = path_rules();
    [
        rule("self == '' || self.startsWith('/')".to_owned(), "must begin with /"),
        plain_path_characters(),
        resolved,
        rule(
            "!self.endsWith('/')".to_owned(),
            "must not end in a slash, since the path that follows begins with one",
        ),
    ]
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
