//! The status of users' objects, which would claim that something is served.

use std::sync::Arc;

use futures::{StreamExt as _, stream};
use kube::{Api, Client, core::DynamicObject};
use mesh_api::{AuthProvider, ConditionType, GatewayBinding, IngressRequest};
use operator_kit::{cache::Key, metrics::Metrics, status::StatusWriter};
use serde_json::{Value, json};

use super::objects::CONCURRENCY;
use crate::{listing::list, observe::resource};

/// Clears them, and says how far that went: a status that could not be cleared harms nobody.
pub(super) async fn clear(client: &Client, metrics: &Arc<Metrics>) {
    let writer = StatusWriter::new(client.clone(), mesh_api::names::INTEGRATOR, Arc::clone(metrics));
    for resource in [resource::<IngressRequest>(), resource::<AuthProvider>(), resource::<GatewayBinding>()] {
        let kind = resource.kind.clone();
        let found = match list(&Api::<DynamicObject>::all_with(client.clone(), &resource), None).await {
            Ok(found) => found,
            Err(error) if error.is_not_found() => continue,
            Err(error) => {
                eprintln!("the status of {kind} objects stays as it is: {error}");
                continue;
            }
        };
        let due = found.into_iter().filter_map(|object| {
            let status = object.data.get("status").cloned().unwrap_or_default();
            let wanted = cleared(&status);
            (status != wanted && !status.is_null()).then_some((object, status, wanted))
        });
        let mut answers = stream::iter(due)
            .map(|(object, status, wanted)| {
                let (writer, resource) = (&writer, &resource);
                async move {
                    let key = Key::of(&object.metadata);
                    let uid = object.metadata.uid.unwrap_or_default();
                    let answer = writer.write(resource, &key, &uid, &status, &wanted).await;
                    (key, answer)
                }
            })
            .buffer_unordered(CONCURRENCY);
        let (mut done, mut failed) = (0, None);
        while let Some((key, answer)) = answers.next().await {
            match answer {
                Ok(_) => done += 1,
                Err(error) if error.is_not_found() => {}
                Err(error) => failed = Some((key, error)),
            }
        }
        if done > 0 {
            println!("status of {done} {kind} objects cleared");
        }
        if let Some((key, error)) = failed {
            eprintln!("the status of some {kind} objects stays as it is, such as that of {key}: {error}");
        }
    }
}

/// A status without what is ours: all but conditions of types that somebody else gave it.
fn cleared(status: &Value) -> Value {
    let conditions = status.get("conditions").and_then(Value::as_array).into_iter().flatten();
    let foreign: Vec<&Value> = conditions
        .filter(|condition| {
            let type_ = condition.get("type").and_then(Value::as_str);
            ConditionType::ALL.iter().all(|ours| Some(ours.as_str()) != type_)
        })
        .collect();
    if foreign.is_empty() { json!({}) } else { json!({ "conditions": foreign }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_conditions_of_others_stay() {
        let theirs = json!({"type": "Scanned", "status": "True"});
        let status = json!({
            "observedGeneration": 2, "urls": ["http://x"],
            "conditions": [{"type": "Ready", "status": "True"}, theirs, {"type": "AuthInForce", "status": "True"}],
        });
        assert_eq!(cleared(&status), json!({"conditions": [theirs]}));
        assert_eq!(cleared(&json!({"conditions": [{"type": "Ready"}], "binding": "public"})), json!({}));
        assert_eq!(cleared(&Value::Null), json!({}));
    }
}
