//! Whatever the order in which objects come, and whatever was deleted in between: the end is the same, byte for byte.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use testbed::harness::{Ctx, Test, eventually};
use testbed::test;

pub(crate) fn tests() -> Vec<Test> {
    vec![test!(fifty_orders_of_arrival_end_alike).limit_seconds(420)]
}

const ORDERS: usize = 50;
const OWN: &str = "integrator.istio-operators.io/v1alpha1";
/// Where routes and chains are written.
const ROUTES: (&str, &str) = ("istio-integrator", "VirtualService");
const CHAINS: (&str, &str) = ("istio-system", "EnvoyFilter");

/// A generator of numbers of no quality (xorshift), so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> Result<usize> {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        Ok(usize::try_from(self.0 % u64::try_from(bound)?)?)
    }
}

pub(crate) fn api(t: &Ctx, api_version: &str, kind: &str, namespace: &str) -> Api<DynamicObject> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::namespaced_with(t.client.clone(), namespace, &resource)
}

/// What comes and goes: nothing of it competes for a host or a path, so that age decides nothing.
fn objects(ns: &str) -> Vec<Value> {
    let service = |namespace: &str, name: &str| {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": namespace, "name": name},
            "spec": {"selector": {"app": name}, "ports": [{"port": 80}]},
        })
    };
    let request = |namespace: &str, name: &str, host: &str, auth: Value, routes: Value| {
        json!({
            "apiVersion": OWN, "kind": "IngressRequest", "metadata": {"namespace": namespace, "name": name},
            "spec": {
                "bindingRef": {"name": ns}, "hosts": [format!("{host}.{ns}.example.org")], "auth": auth, "routes": routes,
            },
        })
    };
    let to = |service: &str| json!([{"service": service, "port": 80}]);
    let elsewhere = format!("{ns}-web");
    let open = || json!({"type": "None"});
    vec![
        service(ns, "web"),
        service(ns, "api"),
        service("default", &elsewhere),
        request(ns, "whole", "a", open(), json!([{"backends": to("web")}])),
        request(
            ns,
            "inside",
            "a",
            json!({"type": "Provider", "providerRef": {"name": "sso"}}),
            json!([{"path": {"value": "/api"}, "backends": to("api")}]),
        ),
        request(
            ns,
            "exact",
            "b",
            open(),
            json!([{"path": {"type": "Exact", "value": "/x"}, "methods": ["GET"], "backends": to("web")}]),
        ),
        request(ns, "one", "shared", open(), json!([{"path": {"value": "/one"}, "backends": to("web")}])),
        request(
            "default",
            &format!("{ns}-two"),
            "shared",
            open(),
            json!([{"path": {"value": "/two"}, "backends": to(&elsewhere)}]),
        ),
        request(
            ns,
            "weights",
            "c",
            open(),
            json!([{"backends": [
                {"service": "web", "port": 80, "weight": 9}, {"service": "api", "port": 80, "weight": 1},
            ]}]),
        ),
    ]
}

/// A Gateway without pods, a binding for it and a provider: they stay.
fn ground(ns: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {{name: edge}}
spec:
  selector: {{gateway: {ns}}}
  servers:
  - port: {{number: 80, name: http, protocol: HTTP}}
    hosts: [\"*\"]
---
apiVersion: {OWN}
kind: GatewayBinding
metadata: {{name: {ns}}}
spec:
  gateway: {{type: IstioGateway, istioGateway: {{namespace: {ns}, name: edge}}}}
  namespaces: {{from: All}}
  hosts:
    allowed:
    - {{pattern: shared.{ns}.example.org, shared: true}}
    - {{pattern: \"*.{ns}.example.org\", namespaces: {{from: All}}}}
---
apiVersion: v1
kind: Service
metadata: {{name: sso}}
spec: {{selector: {{app: sso}}, ports: [{{port: 9000}}]}}
---
apiVersion: {OWN}
kind: AuthProvider
metadata: {{name: sso}}
spec: {{type: ExtAuthz, extAuthz: {{service: sso, port: 9000, identityHeaders: [x-user]}}}}
"
    )
}

async fn create(t: &Ctx, object: &Value) -> Result<()> {
    let (of, meta) = (|field: &str| object[field].as_str().unwrap_or_default(), &object["metadata"]);
    let namespace = meta["namespace"].as_str().context("a namespace")?;
    let typed: DynamicObject = serde_json::from_value(object.clone())?;
    api(t, of("apiVersion"), of("kind"), namespace).create(&PostParams::default(), &typed).await?;
    Ok(())
}

async fn delete(t: &Ctx, object: &Value) -> Result<()> {
    let (of, meta) = (|field: &str| object[field].as_str().unwrap_or_default(), &object["metadata"]);
    let namespace = meta["namespace"].as_str().context("a namespace")?;
    let name = meta["name"].as_str().context("a name")?;
    api(t, of("apiVersion"), of("kind"), namespace).delete(name, &DeleteParams::default()).await?;
    Ok(())
}

/// The routes and chains of this test's gateway, without what names a moment.
async fn written(t: &Ctx) -> Result<Vec<String>> {
    let gateway = format!("{}/edge", t.namespace);
    let mut lines = Vec::new();
    for ((namespace, kind), version) in
        [(ROUTES, "networking.istio.io/v1"), (CHAINS, "networking.istio.io/v1alpha3")]
    {
        for object in api(t, version, kind, namespace).list(&ListParams::default()).await? {
            let spec = &object.data["spec"];
            let ours = spec["gateways"][0] == gateway.as_str()
                || spec["workloadSelector"]["labels"]["gateway"] == t.namespace.as_str();
            if ours {
                let meta = &object.metadata;
                lines.push(json!([kind, meta.name, meta.labels, meta.annotations, spec]).to_string());
            }
        }
    }
    lines.sort();
    Ok(lines)
}

/// Makes all objects in an order of the generator's, and deletes some of those that are there, which come again later.
async fn arrive(t: &Ctx, objects: &[Value], random: &mut Random) -> Result<()> {
    let mut waiting: Vec<&Value> = objects.iter().collect();
    let (mut present, mut deletions): (Vec<&Value>, usize) = (Vec::new(), 4);
    while !waiting.is_empty() {
        let next = waiting.swap_remove(random.below(waiting.len())?);
        create(t, next).await?;
        present.push(next);
        if deletions > 0 && random.below(3)? == 0 {
            deletions -= 1;
            let gone = present.swap_remove(random.below(present.len())?);
            delete(t, gone).await?;
            waiting.push(gone);
        }
    }
    Ok(())
}

async fn fifty_orders_of_arrival_end_alike(t: Ctx) -> Result<()> {
    t.integrator().await?;
    t.apply(&ground(&t.namespace)).await?;
    let objects = objects(&t.namespace);
    for object in &objects {
        create(&t, object).await?;
    }
    let reference = eventually("all routes and the chain", 60, || async {
        let lines = written(&t).await?;
        // Hosts a, b, c and the shared one, and the chain.
        ensure!(lines.len() == 5, "{} objects", lines.len());
        ensure!(lines.iter().any(|line| line.contains("ii.auth-")), "no route asks for a login yet");
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        ensure!(lines == written(&t).await?, "it still writes");
        Ok(lines)
    })
    .await?;
    // Another one each time; a failure names it, and this repeats its orders.
    let seed = match std::env::var("E2E_SEED") {
        Ok(seed) => seed.parse().context("E2E_SEED is a number")?,
        Err(_) => u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros())?,
    };
    let mut random = Random(seed | 1);
    for order in 1..=ORDERS {
        for object in &objects {
            delete(&t, object).await?;
        }
        arrive(&t, &objects, &mut random).await?;
        eventually(&format!("the end of order {order} (E2E_SEED={seed})"), 30, || async {
            let lines = written(&t).await?;
            ensure!(lines == reference, "{lines:#?}\ninstead of\n{reference:#?}");
            Ok(())
        })
        .await?;
    }
    for object in objects.iter().filter(|object| object["metadata"]["namespace"] == "default") {
        delete(&t, object).await?;
    }
    t.kubectl(&["delete", "gatewaybinding", &t.namespace]).await?;
    Ok(())
}
