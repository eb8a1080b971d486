//! What the integrator left in the cluster: found, told from what is somebody else's, and removed.

use std::{fmt::Write as _, time::Duration};

use anyhow::Context as _;
use futures::{StreamExt as _, stream};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Secret};
use kube::{
    Api, Client,
    api::{DeleteParams, Preconditions},
    core::{ApiResource, DynamicObject, ObjectMeta},
};
use mesh_api::{
    istio::{EnvoyFilter, VirtualService},
    names::{INTEGRATOR, MANAGED_BY_LABEL},
};
use operator_kit::{
    apply::{Applier, ApplyError, Live, Ownership, Pruned, Target},
    cache::Key,
    client::{CALL_TIMEOUT, CallError, bounded},
};
use tokio::time::Instant;

use crate::{
    guard,
    listing::{is_forbidden, list},
    observe::resource,
};

/// How many calls are under way at once.
pub(super) const CONCURRENCY: usize = 16;
/// How often what takes time is told.
const PROGRESS: Duration = Duration::from_secs(5);

/// An object that bears our label.
struct Labelled {
    target: Target,
    live: Live,
    version: String,
    finalizers: Vec<String>,
}

impl Labelled {
    fn read(kind: &str, object: &DynamicObject, live: Live) -> Self {
        let meta = &object.metadata;
        let Key { namespace, name } = Key::of(meta);
        Self {
            target: Target { kind: kind.to_owned(), namespace, name },
            live,
            version: meta.resource_version.clone().unwrap_or_default(),
            finalizers: meta.finalizers.clone().unwrap_or_default(),
        }
    }

    fn is_ours(&self) -> bool {
        matches!(self.live.ownership, Ownership::Ours(_))
    }
}

/// What there is to remove.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// `VirtualServices`, as people write them.
    pub(super) routes: Vec<String>,
    /// `EnvoyFilters`.
    pub(super) chains: Vec<String>,
    /// What bears our label and is somebody else's.
    pub(super) foreign: Vec<String>,
    /// The uid of the Secret.
    pub(super) secret: Option<String>,
    /// The name of the Lease.
    pub(super) lease: Option<String>,
    /// Whether somebody else wrote the Lease.
    pub(super) foreign_lease: bool,
}

impl Found {
    /// Says what will become of it.
    pub(super) fn print(&self, keep_routes: bool) {
        print!("{}", self.text(keep_routes));
    }

    fn text(&self, keep_routes: bool) -> String {
        let mut text = String::new();
        let verb = if keep_routes { "stays" } else { "to remove" };
        let secret = self.secret.iter().map(|_| format!("Secret {}", guard::SECRET));
        for object in self.routes.iter().chain(&self.chains).cloned().chain(secret) {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{verb}: {object}");
        }
        for object in self.lease.iter().map(|name| format!("Lease {name}")) {
            let _ = writeln!(text, "to remove: {object}");
        }
        for object in &self.foreign {
            let _ = writeln!(text, "not touched: {object}");
        }
        if text.is_empty() { "nothing of istio-integrator is here\n".to_owned() } else { text }
    }
}

/// Finds and removes.
pub(super) struct Objects {
    pub(super) client: Client,
    pub(super) applier: Applier,
    pub(super) namespace: String,
    pub(super) root_namespace: String,
    pub(super) wait: Duration,
}

impl Objects {
    /// Looks for everything.
    pub(super) async fn find(&self, lease_name: &str) -> anyhow::Result<Found> {
        let mut found = Found::default();
        for object in self.routes().await.context("listing VirtualServices")? {
            sort_in(&object, &mut found.routes, &mut found.foreign);
        }
        for object in self.chains().await.context("listing EnvoyFilters")? {
            sort_in(&object, &mut found.chains, &mut found.foreign);
        }
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let secret = bounded(CALL_TIMEOUT, secrets.get_opt(guard::SECRET)).await;
        if let Some(secret) = secret.with_context(|| format!("reading Secret {}", guard::SECRET))? {
            if is_labelled(&secret.metadata) {
                found.secret = secret.metadata.uid;
            } else {
                found.foreign.push(format!("Secret {}/{} has not our label", self.namespace, guard::SECRET));
            }
        }
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), &self.namespace);
        let lease = bounded(CALL_TIMEOUT, leases.get_opt(lease_name)).await;
        if let Some(lease) = lease.with_context(|| format!("reading Lease {lease_name}"))? {
            if is_written_by_us(&lease.metadata) {
                found.lease = Some(lease_name.to_owned());
            } else {
                found.foreign_lease = true;
                found.foreign.push(format!(
                    "Lease {}/{lease_name} was not written by istio-integrator",
                    self.namespace
                ));
            }
        }
        Ok(found)
    }

    async fn routes(&self) -> Result<Vec<Labelled>, CallError> {
        let resource = resource::<VirtualService>();
        let api = Api::<DynamicObject>::namespaced_with(self.client.clone(), &self.namespace, &resource);
        labelled(&api, &resource, |object| Live::read(object, super::IDENTITY)).await
    }

    async fn chains(&self) -> Result<Vec<Labelled>, CallError> {
        let resource = resource::<EnvoyFilter>();
        let live = |object: &DynamicObject| guard::live(object, super::IDENTITY, &self.namespace);
        let wide = Api::<DynamicObject>::all_with(self.client.clone(), &resource);
        match labelled(&wide, &resource, live).await {
            Err(error) if is_forbidden(&error) => {
                let narrow = Api::namespaced_with(self.client.clone(), &self.root_namespace, &resource);
                labelled(&narrow, &resource, live).await
            }
            answer => answer,
        }
    }

    /// Removes the routes and waits until they are gone: one that a finalizer keeps is still served. Returns what is left.
    pub(super) async fn remove_routes(&self) -> Vec<String> {
        self.remove(&resource::<VirtualService>(), async || self.routes().await).await
    }

    /// Removes the guard chains and waits until they are gone. Returns what is left.
    pub(super) async fn remove_chains(&self) -> Vec<String> {
        self.remove(&resource::<EnvoyFilter>(), async || self.chains().await).await
    }

    async fn remove(
        &self,
        resource: &ApiResource,
        look: impl AsyncFn() -> Result<Vec<Labelled>, CallError>,
    ) -> Vec<String> {
        let kind = &resource.kind;
        let (deadline, mut told, mut removed) = (Instant::now() + self.wait, Instant::now(), 0);
        loop {
            let present = match look().await {
                Ok(objects) => objects.into_iter().filter(Labelled::is_ours).collect::<Vec<_>>(),
                Err(error) => return vec![format!("{kind} objects, which cannot be listed: {error}")],
            };
            if present.is_empty() {
                if removed > 0 {
                    println!("{removed} {kind} objects removed");
                }
                return Vec::new();
            }
            let mut failures = Vec::new();
            let due = present.iter().filter(|object| !object.live.terminating);
            let mut answers = stream::iter(due)
                .map(|object| async move {
                    let Labelled { target, live, version, .. } = object;
                    (target, self.applier.prune(resource, target, live, version).await)
                })
                .buffer_unordered(CONCURRENCY);
            while let Some((target, answer)) = answers.next().await {
                match answer {
                    Ok(Pruned::Deleted | Pruned::Absent) => removed += 1,
                    // Looked at again in the next round.
                    Err(ApplyError::Stale { .. }) => {}
                    Err(error) => failures.push((target.clone(), error)),
                }
                if told.elapsed() > PROGRESS {
                    println!("{removed} {kind} objects removed so far");
                    told = Instant::now();
                }
            }
            // What is refused now is refused again; what had no answer may have one.
            let refused = failures
                .iter()
                .any(|(_, error)| matches!(error, ApplyError::Call { source, .. } if is_forbidden(source)));
            if refused || Instant::now() > deadline {
                let mut left: Vec<String> = failures.iter().map(|(_, error)| error.to_string()).collect();
                left.extend(present.iter().filter(|object| object.live.terminating).map(|object| {
                    format!(
                        "{}, which waits for its finalizers: {}",
                        object.target,
                        object.finalizers.join(", ")
                    )
                }));
                return left;
            }
            if told.elapsed() > PROGRESS {
                println!("waiting until {} {kind} objects are gone", present.len());
                told = Instant::now();
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }

    /// Removes the Secret of this uid.
    pub(super) async fn remove_secret(&self, uid: &str) -> Result<(), String> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let answer = bounded(CALL_TIMEOUT, api.delete(guard::SECRET, &of_uid(uid))).await;
        gone("Secret", &self.namespace, guard::SECRET, answer.map(|_| ()))
    }

    /// Removes the Lease, once it is released.
    pub(super) async fn remove_lease(&self, name: &str) -> Result<(), String> {
        let api: Api<Lease> = Api::namespaced(self.client.clone(), &self.namespace);
        let answer = match bounded(CALL_TIMEOUT, api.get_opt(name)).await {
            Ok(None) => Ok(()),
            Ok(Some(lease)) => {
                let uid = lease.metadata.uid.unwrap_or_default();
                bounded(CALL_TIMEOUT, api.delete(name, &of_uid(&uid))).await.map(|_| ())
            }
            Err(error) => Err(error),
        };
        gone("Lease", &self.namespace, name, answer)
    }

    /// Whether somebody makes the Lease anew within this time.
    pub(super) async fn reappears(&self, name: &str, within: Duration) -> bool {
        println!("watching for {} s whether a replica takes the lease anew", within.as_secs());
        tokio::time::sleep(within).await;
        let api: Api<Lease> = Api::namespaced(self.client.clone(), &self.namespace);
        matches!(bounded(CALL_TIMEOUT, api.get_opt(name)).await, Ok(Some(_)))
    }
}

async fn labelled(
    api: &Api<DynamicObject>,
    resource: &ApiResource,
    live: impl Fn(&DynamicObject) -> Live,
) -> Result<Vec<Labelled>, CallError> {
    match list(api, Some(&labels())).await {
        Ok(objects) => {
            let read = |object| Labelled::read(&resource.kind, object, live(object));
            Ok(objects.iter().map(read).collect())
        }
        // Without the kind there is nothing of it.
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn labels() -> String {
    format!("{MANAGED_BY_LABEL}={INTEGRATOR}")
}

fn sort_in(object: &Labelled, ours: &mut Vec<String>, foreign: &mut Vec<String>) {
    match &object.live.ownership {
        Ownership::Ours(_) => ours.push(object.target.to_string()),
        Ownership::Foreign(owner) => {
            foreign.push(format!("{} bears our label and belongs to {owner}", object.target));
        }
    }
}

fn is_labelled(meta: &ObjectMeta) -> bool {
    meta.labels
        .as_ref()
        .and_then(|labels| labels.get(MANAGED_BY_LABEL))
        .is_some_and(|value| value == INTEGRATOR)
}

/// Whether a program of our name wrote it, by the field manager that its user agent gives it.
fn is_written_by_us(meta: &ObjectMeta) -> bool {
    meta.managed_fields.iter().flatten().any(|entry| entry.manager.as_deref() == Some(INTEGRATOR))
}

fn of_uid(uid: &str) -> DeleteParams {
    DeleteParams {
        preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
        ..DeleteParams::background()
    }
}

fn gone(kind: &str, namespace: &str, name: &str, answer: Result<(), CallError>) -> Result<(), String> {
    match answer {
        Ok(()) => {
            println!("{kind} {namespace}/{name} removed");
            Ok(())
        }
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(format!("{kind} {namespace}/{name}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(label: &str, manager: &str, operation: &str) -> DynamicObject {
        serde_json::from_value(json!({
            "metadata": {
                "name": "x", "namespace": "ii", "uid": "u", "resourceVersion": "3",
                "labels": {"app.kubernetes.io/managed-by": label},
                "managedFields": [{
                    "manager": manager, "operation": operation, "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}},
                }],
            },
            "spec": {"hosts": ["a"]},
        }))
        .unwrap()
    }

    #[test]
    fn only_what_we_applied_is_ours() {
        let ours = |object: &DynamicObject| {
            Labelled::read("VirtualService", object, Live::read(object, super::super::IDENTITY)).is_ours()
        };
        assert!(ours(&object("istio-integrator", "istio-integrator", "Apply")));
        assert!(!ours(&object("istio-integrator", "kubectl", "Apply")), "a copy that kept the label");
        assert!(!ours(&object("istio-integrator", "istio-integrator", "Update")));
        assert!(!ours(&object("helm", "istio-integrator", "Apply")));
    }

    #[test]
    fn leases_and_secrets_are_told_by_their_writer_and_label() {
        let meta = |value| serde_json::from_value::<ObjectMeta>(value).unwrap();
        assert!(is_written_by_us(&meta(json!({"managedFields": [{"manager": "istio-integrator"}]}))));
        assert!(!is_written_by_us(&meta(json!({"managedFields": [{"manager": "kube-scheduler"}]}))));
        assert!(is_labelled(&meta(json!({"labels": {"app.kubernetes.io/managed-by": "istio-integrator"}}))));
        assert!(!is_labelled(&meta(json!({}))));
    }

    #[test]
    fn says_what_becomes_of_each() {
        let found = Found {
            routes: vec!["VirtualService ii/a".to_owned()],
            foreign: vec![
                "VirtualService ii/b bears our label and belongs to field manager kubectl".to_owned(),
            ],
            secret: Some("u".to_owned()),
            lease: Some("istio-integrator".to_owned()),
            ..Found::default()
        };
        assert_eq!(
            found.text(false),
            "to remove: VirtualService ii/a\nto remove: Secret istio-integrator-guard\nto remove: Lease istio-integrator\n\
             not touched: VirtualService ii/b bears our label and belongs to field manager kubectl\n"
        );
        assert!(found.text(true).starts_with("stays: VirtualService ii/a\nstays: Secret"));
        assert_eq!(Found::default().text(false), "nothing of istio-integrator is here\n");
    }
}
