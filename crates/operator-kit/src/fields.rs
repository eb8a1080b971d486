//! Which fields of an object a field manager owns, read from `metadata.managedFields`.
//!
//! The format is `FieldsV1` of structured-merge-diff: a tree in which `f:NAME` is a member of a map, `k:{...}` an
//! item of a list by its key, `v:VALUE` an item of a set, `i:N` an item by position, and `.` the node itself. A node
//! without children is owned as a whole.
//! See <https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management>.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

/// A digest of a JSON value that does not depend on the order of its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Digests `value`; equal values have equal digests, whatever the order of their keys.
    pub fn of(value: &Value) -> Self {
        let mut hasher = Sha256::new();
        feed(&mut hasher, value);
        Self(hasher.finalize().into())
    }
}

/// Each value is preceded by a tag and containers by their length, so that no two values feed the same bytes.
fn feed(hasher: &mut Sha256, value: &Value) {
    match value {
        Value::Null => hasher.update(b"n"),
        Value::Bool(true) => hasher.update(b"t"),
        Value::Bool(false) => hasher.update(b"f"),
        Value::Number(number) => feed_bytes(hasher, b'd', number.to_string().as_bytes()),
        Value::String(text) => feed_bytes(hasher, b's', text.as_bytes()),
        Value::Array(items) => {
            feed_bytes(hasher, b'a', &items.len().to_le_bytes());
            for item in items {
                feed(hasher, item);
            }
        }
        Value::Object(members) => {
            feed_bytes(hasher, b'o', &members.len().to_le_bytes());
            // serde_json keeps keys sorted only while no crate in the build asks it to preserve their order.
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_by_key(|(key, _)| *key);
            for (key, member) in sorted {
                feed_bytes(hasher, b'k', key.as_bytes());
                feed(hasher, member);
            }
        }
    }
}

fn feed_bytes(hasher: &mut Sha256, tag: u8, bytes: &[u8]) {
    hasher.update([tag]);
    hasher.update(bytes.len().to_le_bytes());
    hasher.update(bytes);
}

/// The fields that `manager` owns by server-side apply, if it ever applied this object.
///
/// Fields that the same name owns by another operation (`Update`) or of a subresource do not count: to the API
/// server those belong to a different manager.
pub fn applied_by<'m>(meta: &'m ObjectMeta, manager: &str) -> Option<&'m Value> {
    meta.managed_fields
        .iter()
        .flatten()
        .find(|entry| {
            entry.manager.as_deref() == Some(manager)
                && entry.operation.as_deref() == Some("Apply")
                && entry.subresource.as_deref().unwrap_or_default().is_empty()
        })
        .and_then(|entry| entry.fields_v1.as_ref())
        .map(|fields| &fields.0)
}

/// The names of the managers other than `manager` that own something of the object itself, sorted, each once.
pub fn other_managers(meta: &ObjectMeta, manager: &str) -> Vec<String> {
    let of_object = |entry: &&ManagedFieldsEntry| entry.subresource.as_deref().unwrap_or_default().is_empty();
    let mut names: Vec<String> = meta
        .managed_fields
        .iter()
        .flatten()
        .filter(of_object)
        .filter_map(|entry| entry.manager.clone())
        .filter(|name| name != manager)
        .collect();
    names.sort();
    names.dedup();
    names
}

/// The part of `live` that `fields` covers: what was last applied, with the values it has now.
///
/// Server-side apply of a configuration changes nothing exactly when this part equals the configuration, so the
/// comparison needs no request.
pub fn project(live: &Value, fields: &Value) -> Value {
    let Some(children) = fields.as_object() else { return Value::Null };
    if children.is_empty() {
        return live.clone();
    }
    match live {
        Value::Object(members) => {
            let mut kept = Map::new();
            for (key, child) in children {
                let Some(name) = key.strip_prefix("f:") else { continue };
                if let Some(member) = members.get(name) {
                    kept.insert(name.to_owned(), project(member, child));
                }
            }
            Value::Object(kept)
        }
        Value::Array(items) => {
            let kept = items.iter().enumerate().filter_map(|(index, item)| {
                children
                    .iter()
                    .find(|(key, _)| selects(key, index, item))
                    .map(|(_, child)| project(item, child))
            });
            Value::Array(kept.collect())
        }
        scalar => scalar.clone(),
    }
}

/// Whether the child `key` of a list's node means the item at `index`.
fn selects(key: &str, index: usize, item: &Value) -> bool {
    let Some((kind, text)) = key.split_once(':') else { return false };
    match kind {
        "i" => text.parse() == Ok(index),
        "v" => serde_json::from_str::<Value>(text).is_ok_and(|value| value == *item),
        "k" => serde_json::from_str::<Map<String, Value>>(text)
            .is_ok_and(|keys| keys.iter().all(|(name, value)| item.get(name) == Some(value))),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::FieldsV1;
    use serde_json::json;

    fn entry(manager: &str, operation: &str, subresource: Option<&str>, fields: Value) -> ManagedFieldsEntry {
        ManagedFieldsEntry {
            manager: Some(manager.to_owned()),
            operation: Some(operation.to_owned()),
            subresource: subresource.map(str::to_owned),
            fields_v1: Some(FieldsV1(fields)),
            ..ManagedFieldsEntry::default()
        }
    }

    #[test]
    fn projects_what_was_applied() {
        let live = json!({
            "metadata": {"name": "x", "labels": {"ours": "1", "theirs": "2"}},
            "spec": {
                "http": [{"name": "a"}, {"name": "b"}],
                "ports": [{"port": 80, "name": "web", "nodePort": 30000}, {"port": 90, "name": "foreign"}],
                "finalizers": ["ours", "theirs"],
                "foreign": true,
                "empty": {"theirs": 1},
            },
        });
        let fields = json!({
            "f:metadata": {"f:labels": {".": {}, "f:ours": {}}},
            "f:spec": {
                "f:http": {},
                "f:ports": {".": {}, "k:{\"port\":80}": {".": {}, "f:port": {}, "f:name": {}}},
                "f:finalizers": {"v:\"ours\"": {}},
                "f:empty": {".": {}},
                "f:gone": {},
            },
        });
        let expected = json!({
            "metadata": {"labels": {"ours": "1"}},
            "spec": {
                "http": [{"name": "a"}, {"name": "b"}],
                "ports": [{"port": 80, "name": "web"}],
                "finalizers": ["ours"],
                "empty": {},
            },
        });
        assert_eq!(project(&live, &fields), expected);
    }

    #[test]
    fn selects_list_items_by_position_value_and_key() {
        let item = json!({"name": "a", "protocol": "TCP"});
        let cases = [
            ("i:0", true),
            ("i:1", false),
            ("k:{\"name\":\"a\"}", true),
            ("k:{\"name\":\"a\",\"protocol\":\"UDP\"}", false),
            ("v:{\"name\":\"a\",\"protocol\":\"TCP\"}", true),
            ("v:not json", false),
            (".", false),
            ("f:name", false),
        ];
        for (key, expected) in cases {
            assert_eq!(selects(key, 0, &item), expected, "{key}");
        }
    }

    #[test]
    fn finds_only_the_managers_own_apply_of_the_object() {
        let meta = ObjectMeta {
            managed_fields: Some(vec![
                entry("us", "Update", None, json!({"f:spec": {"f:wrong": {}}})),
                entry("us", "Apply", Some("status"), json!({"f:status": {}})),
                entry("us", "Apply", None, json!({"f:spec": {}})),
                entry("kubectl-edit", "Update", None, json!({"f:spec": {"f:x": {}}})),
                entry("status-writer", "Update", Some("status"), json!({"f:status": {}})),
            ]),
            ..ObjectMeta::default()
        };
        assert_eq!(applied_by(&meta, "us"), Some(&json!({"f:spec": {}})));
        assert_eq!(applied_by(&meta, "nobody"), None);
        assert_eq!(other_managers(&meta, "us"), ["kubectl-edit"]);
    }

    #[test]
    fn digest_tells_values_apart_but_not_orders() {
        let first: Value = serde_json::from_str(r#"{"a": 1, "b": [1, 2]}"#).unwrap();
        let second: Value = serde_json::from_str(r#"{"b": [1, 2], "a": 1}"#).unwrap();
        assert_eq!(Digest::of(&first), Digest::of(&second));
        let different = [
            json!({"a": "1"}),
            json!({"a": 1}),
            json!([["a"], 1]),
            json!(["a", [1]]),
            json!("a1"),
            json!(null),
        ];
        for (position, left) in different.iter().enumerate() {
            for right in &different[position + 1..] {
                assert_ne!(Digest::of(left), Digest::of(right), "{left} {right}");
            }
        }
    }
}
