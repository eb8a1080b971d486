//! What the evaluator cannot see of an object.

use mesh_api::istio::VirtualService;
use serde_json::Value;

/// The fields of a `VirtualService`, as JSON, that decide about requests and that the evaluator does not know, as paths
/// such as `spec.http[0].redirect`. Empty if it knows all; the object itself if it cannot be read at all.
///
/// An answer that rests on an object with lost fields may be wrong.
pub fn lost_fields(object: &Value) -> Vec<String> {
    let Some(spec) = object.get("spec") else { return Vec::new() };
    let known = serde_json::from_value::<VirtualService>(object.clone()).and_then(serde_json::to_value);
    let Ok(known) = known else { return vec!["spec".to_owned()] };
    let mut lost = Vec::new();
    compare("spec", spec, known.get("spec").unwrap_or(&Value::Null), &mut lost);
    lost
}

fn compare(path: &str, given: &Value, known: &Value, lost: &mut Vec<String>) {
    match (given, known) {
        (Value::Object(given), known) => {
            for (key, value) in given {
                compare(&format!("{path}.{key}"), value, known.get(key).unwrap_or(&Value::Null), lost);
            }
            // An empty object of an unknown key may switch something on; empty `headers` of a match do not.
            if given.is_empty() && known.is_null() && !path.to_ascii_lowercase().ends_with("headers") {
                lost.push(path.to_owned());
            }
        }
        (Value::Array(given), known) => {
            for (position, value) in given.iter().enumerate() {
                compare(
                    &format!("{path}[{position}]"),
                    value,
                    known.get(position).unwrap_or(&Value::Null),
                    lost,
                );
            }
        }
        // What is written and means the default is left out when it is written again.
        (Value::Null | Value::Bool(false), Value::Null) => {}
        (Value::String(text), Value::Null) if text.is_empty() => {}
        (_, Value::Null) => lost.push(path.to_owned()),
        _ => {}
    }
}
