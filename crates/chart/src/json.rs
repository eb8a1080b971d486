//! JSON as Go's `encoding/json` reads and writes it.

mod read;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use read::read;
pub(crate) use write::{Style, lossy, write};

use crate::Failure;
use crate::value::{MapType, Value};

/// An error within another. Limits stay what they are.
pub(crate) fn within(what: &str, failure: Failure) -> Failure {
    match failure {
        Failure::Error(message) => Failure::error(format!("{what}: {message}")),
        limit @ Failure::Limit { .. } => limit,
    }
}

/// The error of `json.Unmarshal` for a value that does not fit the Go type of the target, such as
/// `map[string]interface {}`.
pub(crate) fn mismatch(value: &Value, target: &str) -> Failure {
    let kind = match value {
        Value::Nil => "null",
        Value::Bool(_) => "bool",
        Value::Int(_) | Value::Int64(_) | Value::Float(_) => "number",
        Value::Str(_) | Value::Raw(_) | Value::Bytes(_) => "string",
        Value::List(_) => "array",
        Value::Map(_) | Value::Host(_) => "object",
    };
    Failure::error(format!("json: cannot unmarshal {kind} into Go value of type {target}"))
}

/// The Go type of a map, as errors print it.
fn type_name(kind: MapType) -> &'static str {
    match kind {
        MapType::Any => "map[string]interface {}",
        MapType::Values => "common.Values",
        MapType::Strings => "map[string]string",
    }
}
