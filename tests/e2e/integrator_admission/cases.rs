//! The objects: which are valid, which are not and why.

mod bindings;
mod providers;
mod requests;
mod routes;

use serde_json::Value;

pub(super) use self::bindings::{invalid_bindings, valid_bindings};
pub(super) use self::providers::{invalid_providers, valid_providers};
pub(super) use self::requests::{invalid_requests, valid_requests};

/// A spec that the API server must admit.
pub(super) struct Admitted {
    pub(super) what: String,
    pub(super) spec: Value,
}

/// A spec that the API server must refuse.
pub(super) struct Refused {
    pub(super) what: String,
    pub(super) spec: Value,
    /// The only field that the refusal may name.
    pub(super) field: &'static str,
    /// A part of what is said about it.
    pub(super) reason: &'static str,
}

fn admitted(what: impl Into<String>, spec: Value) -> Admitted {
    Admitted { what: what.into(), spec }
}

fn refused(what: impl Into<String>, spec: Value, field: &'static str, reason: &'static str) -> Refused {
    Refused { what: what.into(), spec, field, reason }
}

// What the rules of the CRDs say.
const LABEL: &str = "must be lower-case letters, digits and inner dashes, at most 63 characters";
const NAME: &str = "must be the name of an object: lower-case letters, digits, inner dashes and dots";
const HOST: &str =
    "must be a lower-case DNS name such as shop.example.com, without port, scheme, wildcard or trailing dot";

const SLASH: &str = "must begin with /";
const RESOLVED: &str = "must not hold //, /./ or /../: the gateway resolves them before it chooses a route";
const DURATION: &str = "must be a duration such as 500ms, 10s or 1m30s: up to four whole numbers, each followed by h, m, s or ms";

// What the API server says about the schema itself.
const REQUIRED: &str = "Required value";
const UNSUPPORTED: &str = "Unsupported value";
const DUPLICATE: &str = "Duplicate value";
const TOO_LONG: &str = "Too long";
const TOO_MANY: &str = "Too many";
const EMPTY_TEXT: &str = "should be at least 1 chars long";

/// A host of 253 characters, the longest there may be.
fn longest_host() -> String {
    let label = "a".repeat(63);
    format!("{label}.{label}.{label}.{}", "a".repeat(61))
}

/// Texts that are no durations.
const NO_DURATIONS: [&str; 11] =
    ["", "2", "s", "1.5s", "-1s", "+1s", "1d", "1us", "100000s", "1s1s1s1s1s", "1s\n"];

/// Texts that are neither hosts nor patterns of hosts.
const NO_HOSTS: [&str; 14] = [
    "Shop.example.com",
    "shop.example.com.",
    ".example.com",
    "a..b",
    "-a.b",
    "a-.b",
    "a_b",
    "a b",
    "a.b\n",
    "a:80",
    "http://a",
    "1.2.3.4",
    "[::1]",
    "bücher.example",
];
