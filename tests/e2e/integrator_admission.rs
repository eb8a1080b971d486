//! What the API server admits of the integrator's objects, by the CRDs in `deploy/crds` alone: neither the operator
//! nor Istio runs for it. Every object is sent as a server-side dry run, so nothing is kept.

mod cases;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::Status;
use kube::runtime::wait::{await_condition, conditions};
use mesh_api::{AuthProvider, GatewayBinding, IngressRequest};
use serde_json::{Value, json};
use testbed::harness::{Ctx, Test, eventually};
use testbed::test;

use self::cases::{Admitted, Refused};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        test!(valid_objects_are_admitted),
        test!(invalid_requests_are_refused),
        test!(invalid_bindings_are_refused),
        test!(invalid_providers_are_refused),
    ]
}

async fn valid_objects_are_admitted(t: Ctx) -> Result<()> {
    let kinds = Kinds::served(&t).await?;
    let mut faults = Vec::new();
    for (kind, cases) in [
        (&kinds.requests, cases::valid_requests()),
        (&kinds.bindings, cases::valid_bindings()),
        (&kinds.providers, cases::valid_providers()),
    ] {
        for case in cases {
            faults.extend(fault_of_admitted(kind, &case).await?);
        }
    }
    none(&faults)
}

async fn invalid_requests_are_refused(t: Ctx) -> Result<()> {
    all_refused(&Kinds::served(&t).await?.requests, cases::invalid_requests()).await
}

async fn invalid_bindings_are_refused(t: Ctx) -> Result<()> {
    all_refused(&Kinds::served(&t).await?.bindings, cases::invalid_bindings()).await
}

async fn invalid_providers_are_refused(t: Ctx) -> Result<()> {
    all_refused(&Kinds::served(&t).await?.providers, cases::invalid_providers()).await
}

async fn all_refused(kind: &Kind, cases: Vec<Refused>) -> Result<()> {
    let mut faults = Vec::new();
    for case in cases {
        faults.extend(fault_of_refused(kind, &case).await?);
    }
    none(&faults)
}

/// One message with all that went wrong, since a change of a rule mostly changes several answers.
fn none(faults: &[String]) -> Result<()> {
    ensure!(faults.is_empty(), "{} wrong answers:\n{}", faults.len(), faults.join("\n"));
    Ok(())
}

/// Why the answer to a valid object is wrong, if it is.
async fn fault_of_admitted(kind: &Kind, case: &Admitted) -> Result<Option<String>> {
    let fault = match kind.create(&case.spec).await? {
        Err(refusal) => format!("refused: {}", refusal.message),
        // A field that the schema does not know is dropped without an error; such a case would prove nothing.
        Ok(spec) if !holds(&spec, &case.spec) => format!("admitted as something else: {spec}"),
        Ok(_) => return Ok(None),
    };
    Ok(Some(format!("{}, {}: {fault}", kind.resource.kind, case.what)))
}

/// Why the answer to an invalid object is wrong, if it is.
async fn fault_of_refused(kind: &Kind, case: &Refused) -> Result<Option<String>> {
    let fault = match kind.create(&case.spec).await? {
        Ok(spec) => format!("admitted: {spec}"),
        Err(refusal) => match fault_of_refusal(&refusal, case) {
            Some(fault) => format!("{fault}; refused with: {}", refusal.message),
            None => return Ok(None),
        },
    };
    Ok(Some(format!("{}, {}: {fault}", kind.resource.kind, case.what)))
}

fn fault_of_refusal(refusal: &Status, case: &Refused) -> Option<String> {
    if refusal.reason != "Invalid" {
        return Some(format!("the reason is {:?}, not \"Invalid\"", refusal.reason));
    }
    let causes = refusal.details.as_ref().map_or(&[][..], |details| &details.causes);
    // The API server adds a cause without a field when it did not come to the CEL rules.
    let mut named = causes.iter().filter(|cause| cause.field != "<nil>");
    if let Some(other) = named.clone().find(|cause| cause.field != case.field) {
        return Some(format!("it names {:?}, not {:?} alone", other.field, case.field));
    }
    if !named.any(|cause| cause.message.contains(case.reason)) {
        return Some(format!("no cause at {:?} says {:?}", case.field, case.reason));
    }
    // People read the message, not the causes.
    (!refusal.message.contains(case.field)).then(|| format!("the message does not name {:?}", case.field))
}

/// Whether `found` has everything that `sent` has; defaults may come on top.
fn holds(found: &Value, sent: &Value) -> bool {
    match (found, sent) {
        (Value::Object(found), Value::Object(sent)) => {
            sent.iter().all(|(key, value)| found.get(key).is_some_and(|have| holds(have, value)))
        }
        (Value::Array(found), Value::Array(sent)) => {
            found.len() == sent.len() && found.iter().zip(sent).all(|(have, value)| holds(have, value))
        }
        _ => found == sent,
    }
}

/// A kind that the API server serves, in the scope in which the tests create objects of it.
struct Kind {
    resource: ApiResource,
    api: Api<DynamicObject>,
}

impl Kind {
    /// Creates an object of this spec as a dry run: the spec as it was admitted, or the refusal.
    async fn create(&self, spec: &Value) -> Result<Result<Value, Box<Status>>> {
        let object = DynamicObject::new("x", &self.resource).data(json!({ "spec": spec }));
        let params = PostParams { dry_run: true, ..PostParams::default() };
        match self.api.create(&params, &object).await {
            Ok(mut admitted) => Ok(Ok(admitted.data["spec"].take())),
            Err(kube::Error::Api(refusal)) => Ok(Err(refusal)),
            Err(error) => Err(error).with_context(|| format!("create a {}", self.resource.kind)),
        }
    }
}

struct Kinds {
    requests: Kind,
    bindings: Kind,
    providers: Kind,
}

impl Kinds {
    /// Applies the CRDs and waits until objects of each kind can be created.
    async fn served(t: &Ctx) -> Result<Self> {
        apply_crds(t).await?;
        let resource = ApiResource::erase::<IngressRequest>(&());
        let api = Api::namespaced_with(t.client.clone(), &t.namespace, &resource);
        let requests = Kind { resource, api };
        let resource = ApiResource::erase::<GatewayBinding>(&());
        let api = Api::all_with(t.client.clone(), &resource);
        let bindings = Kind { resource, api };
        let resource = ApiResource::erase::<AuthProvider>(&());
        let api = Api::namespaced_with(t.client.clone(), &t.namespace, &resource);
        let providers = Kind { resource, api };
        for kind in [&requests, &bindings, &providers] {
            // Established is written a moment before the handler of the new path knows of it.
            eventually(&format!("{} served", kind.resource.kind), 20, || async {
                Ok(kind.api.list(&ListParams::default().limit(1)).await.map(|_| ())?)
            })
            .await?;
        }
        Ok(Self { requests, bindings, providers })
    }
}

/// Applies `deploy/crds` and waits until its CRDs are established.
///
/// Not with `kubectl apply`: it would take over, and drop, the labels of the deployment that other tests share.
async fn apply_crds(t: &Ctx) -> Result<()> {
    let file = testbed::paths::repo_root().join("deploy/crds/integrator.yaml").display().to_string();
    let read = ["create", "--dry-run=client", "--validate=false", "--output=json", "--filename", &file];
    let text = t.kubectl(&read).await?;
    let crds = Api::<CustomResourceDefinition>::all(t.client.clone());
    let params = PatchParams::apply("e2e-admission").force();
    for crd in serde_json::Deserializer::from_str(&text).into_iter::<Value>() {
        let crd = crd.with_context(|| format!("the JSON of {file}"))?;
        let name = crd["metadata"]["name"].as_str().context("a CRD without a name")?.to_owned();
        crds.patch(&name, &params, &Patch::Apply(&crd)).await?;
        let established = await_condition(crds.clone(), &name, conditions::is_crd_established());
        tokio::time::timeout(Duration::from_secs(30), established)
            .await
            .with_context(|| format!("{name} is not established after 30 s"))??;
    }
    Ok(())
}
