//! Guard chains that are not as they should be: taken apart by hand, refused by the proxy, or somebody else's.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use testbed::harness::{Ctx, Test, eventually};
use testbed::{Options, test};

use crate::auth_watchman::Watchman;
use crate::auth_world::{LOGIN, PROVIDER, World, prepared, protected, reached_web, request};
use crate::integrator_orders::api;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        test!(no_chain_taken_apart_opens_anything).limit_seconds(420),
        test!(a_chain_that_the_proxy_refuses_opens_nothing).limit_seconds(240),
        test!(a_chain_of_somebody_else_is_left_alone).limit_seconds(240),
    ]
}

const ROOT: &str = "istio-system";
const OWN: &str = "istio-integrator";

/// The filters of the root namespace. Written more than a hundred times in a test, which is too often for a kubectl each.
fn filters(t: &Ctx) -> Api<DynamicObject> {
    api(t, "networking.istio.io/v1alpha3", "EnvoyFilter", ROOT)
}

/// What the proxies got last is told in the header `server` of every answer: a number.
struct Epoch {
    number: usize,
}

impl Epoch {
    /// Has the gateway answer with the next number once it holds everything written before, and waits for that. Nothing
    /// comes if the proxy refuses it.
    async fn advance(&mut self, t: &Ctx, world: &World, patience: Duration) -> Result<bool> {
        self.number += 1;
        let (name, object) = (format!("epoch-{}", self.number), format!("epoch-{}", world.namespace));
        let filter = json!({
            "apiVersion": "networking.istio.io/v1alpha3",
            "kind": "EnvoyFilter",
            "metadata": {"name": object},
            "spec": {
                "workloadSelector": {"labels": {"gateway": world.namespace}},
                "configPatches": [{
                    "applyTo": "NETWORK_FILTER",
                    "match": {
                        "context": "GATEWAY",
                        "listener": {"filterChain": {"filter": {"name": "envoy.filters.network.http_connection_manager"}}},
                    },
                    "patch": {"operation": "MERGE", "value": {"typed_config": {
                        "@type": concat!(
                            "type.googleapis.com/envoy.extensions.filters.network.",
                            "http_connection_manager.v3.HttpConnectionManager"
                        ),
                        "server_name": name,
                    }}},
                }],
            },
        });
        filters(t).patch(&object, &PatchParams::apply("e2e"), &Patch::Apply(filter)).await?;
        let deadline = std::time::Instant::now() + patience;
        while std::time::Instant::now() < deadline {
            let reply = world.get("/nothing/is/here", "").await;
            if reply.is_ok_and(|reply| reply.headers.get("server").is_some_and(|server| *server == *name)) {
                return Ok(true);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(false)
    }
}

/// One way to spoil a chain.
struct Fault {
    what: String,
    patches: Vec<Value>,
}

/// The place of a filter's configuration in a patch.
const CONFIG: &str = "/patch/value/typed_config";
const SCRIPT: &str = "/patch/value/typed_config/default_source_code/inline_string";

/// Each patch removed, moved, and broken in the ways that somebody might break it.
fn faults(whole: &[Value]) -> Result<Vec<Fault>> {
    let name = |patch: &Value| patch["patch"]["value"]["name"].as_str().unwrap_or_default().to_owned();
    let mut list = Vec::new();
    for (place, patch) in whole.iter().enumerate() {
        let mut without = whole.to_vec();
        let taken = without.remove(place);
        for to in (0..whole.len()).filter(|to| *to != place) {
            let mut moved = without.clone();
            moved.insert(to, taken.clone());
            list.push(Fault { what: format!("{} moved to {to}", name(patch)), patches: moved });
        }
        let mut changed = |what: &str, change: &dyn Fn(&mut Value)| {
            let mut patches = whole.to_vec();
            change(&mut patches[place]);
            list.push(Fault { what: format!("{} {what}", name(patch)), patches });
        };
        changed("in front of all filters", &|patch| patch["patch"]["operation"] = json!("INSERT_FIRST"));
        changed("for another context", &|patch| patch["match"]["context"] = json!("SIDECAR_INBOUND"));
        changed("of a type that is not known", &|patch| {
            patch["patch"]["value"]["typed_config"] = json!({"@type": "type.googleapis.com/nobody.Knows"});
        });
        changed("with a field that is not known", &|patch| {
            patch["patch"]["value"]["typed_config"]["nobody_knows"] = json!(1);
        });
        changed("disabled", &|patch| patch["patch"]["value"]["disabled"] = json!(true));
        list.push(Fault { what: format!("{} removed", name(patch)), patches: without });
    }
    let mut changed = |filter: &str, what: &str, change: &dyn Fn(&mut Value)| -> Result<()> {
        let mut patches = whole.to_vec();
        let patch = patches.iter_mut().find(|patch| name(patch).starts_with(filter));
        change(patch.with_context(|| format!("no filter {filter}"))?);
        list.push(Fault { what: format!("{filter} {what}"), patches });
        Ok(())
    };
    let set = |pointer: &'static str, value: Value| {
        move |patch: &mut Value| {
            if let Some(place) = patch.pointer_mut(pointer) {
                *place = value.clone();
            }
        }
    };
    let scripted = |text: &'static str| set(SCRIPT, json!(text));
    changed("ii.select", "without policies", &|patch| {
        patch["patch"]["value"]["typed_config"]["shadow_rules"]["policies"] = json!({});
    })?;
    changed("ii.select", "noting elsewhere", &|patch| {
        patch["patch"]["value"]["typed_config"]["shadow_rules_stat_prefix"] = json!("else_");
    })?;
    changed("ii.select", "that takes every route for an open one", &|patch| {
        let policies = &mut patch["patch"]["value"]["typed_config"]["shadow_rules"]["policies"];
        policies["!"] = json!({"permissions": [{"any": true}], "principals": [{"any": true}]});
    })?;
    for (what, script) in [
        ("that throws", "function envoy_on_request(h) error('thrown') end"),
        ("that does nothing", "function envoy_on_request(h) end"),
        ("without a function", "local x = 1"),
        ("that does not parse", "function envoy_on_request(h"),
    ] {
        changed("ii.enter", what, &scripted(script))?;
        changed("ii.leave", what, &scripted(script))?;
    }
    changed("ii.check.", "with a bad duration", &|patch| {
        patch["patch"]["value"]["typed_config"]["http_service"]["server_uri"]["timeout"] = json!("soon");
    })?;
    changed("ii.check.", "that lets errors pass", &|patch| {
        let config = &mut patch["patch"]["value"]["typed_config"];
        config["failure_mode_allow"] = json!(true);
        config["http_service"]["server_uri"]["cluster"] = json!("outbound|9000||nobody.svc.cluster.local");
    })?;
    changed("ii.check.", "that lets errors pass, with a header", &|patch| {
        let config = &mut patch["patch"]["value"]["typed_config"];
        config["failure_mode_allow"] = json!(true);
        config["failure_mode_allow_header_add"] = json!(true);
        config["http_service"]["server_uri"]["timeout"] = json!("0.001s");
        config["http_service"]["server_uri"]["cluster"] = json!("BlackHoleCluster");
    })?;
    changed("ii.check.", "that is never asked", &|patch| {
        let metadata = &mut patch["patch"]["value"]["typed_config"]["filter_enabled_metadata"];
        metadata["value"]["string_match"]["exact"] = json!("nobody");
    })?;
    changed("ii.check.", "that is switched off", &|patch| {
        patch["patch"]["value"]["typed_config"]["filter_enabled"] =
            json!({"default_value": {"numerator": 0, "denominator": "HUNDRED"}});
    })?;
    changed("ii.check.", "that leaves no proof", &|patch| {
        patch["patch"]["value"]["typed_config"]["http_service"]["authorization_response"]
            .as_object_mut()
            .map(|response| response.remove("dynamic_metadata_from_headers"));
    })?;
    // A check without a service makes Envoy 1.40 end with its first request, which opens nothing either, and takes long.
    list.push(Fault { what: "no patch at all".to_owned(), patches: Vec::new() });
    let reversed = whole.iter().rev().cloned().collect();
    list.push(Fault { what: "all in reverse".to_owned(), patches: reversed });
    let twice = [whole, whole].concat();
    list.push(Fault { what: "all twice".to_owned(), patches: twice });
    ensure!(whole.iter().all(|patch| patch.pointer(CONFIG).is_some()), "a patch without a configuration");
    Ok(list)
}

/// The chain can be read, changed, and told from another one, and the gateway is as closed as ever.
async fn stays_closed(world: &World, what: &str) -> Result<(u16, u16)> {
    let without = world.get("/", "").await?;
    ensure!(!reached_web(&without), "{what}: open without a login: {without:?}");
    let forged = world.get("/", "x-ii-guard: \u{1}?~\r\nx-user: admin\r\n").await;
    ensure!(
        forged.as_ref().map_or(true, |reply| !reached_web(reply)),
        "{what}: opened by a forgery: {forged:?}"
    );
    let with = world.get("/", &format!("x_user: admin\r\nx-user: admin\r\n{LOGIN}")).await?;
    ensure!(
        !reached_web(&with) || !with.body.contains("admin"),
        "{what}: a forged identity passes: {with:?}"
    );
    let open = world.get("/health", "").await?;
    ensure!(open.status == 200, "{what}: an open route answers {open:?}");
    Ok((without.status, with.status))
}

async fn no_chain_taken_apart_opens_anything(t: Ctx) -> Result<()> {
    // The integrator must not put it right meanwhile, and other tests need theirs.
    t.own(Options { progress: false, ..Options::default() }, |t| async move {
        let world = protected(&t).await?;
        let chain = world.chain(&t).await?;
        let get = ["-n", ROOT, "get", "envoyfilter", chain.as_str(), "-o", "jsonpath={.spec.configPatches}"];
        let whole: Vec<Value> = serde_json::from_str(&t.kubectl(&get).await?)?;
        ensure!(whole.len() == 4, "{} patches", whole.len());
        t.kubectl(&["-n", OWN, "scale", "deployment/istio-integrator", "--replicas=0"]).await?;
        t.kubectl(&["-n", OWN, "wait", "--for=delete", "pods", "--all", "--timeout=60s"]).await?;
        let mut epoch = Epoch { number: 0 };
        ensure!(epoch.advance(&t, &world, Duration::from_secs(30)).await?, "the gateway tells no epoch");
        ensure!(stays_closed(&world, "as it is").await? == (401, 200));

        let watchman = Watchman::start(&world);
        let (faults, mut refused) = (faults(&whole)?, 0);
        for fault in &faults {
            let patch = json!({"spec": {"configPatches": fault.patches}});
            filters(&t).patch(&chain, &PatchParams::default(), &Patch::Merge(patch)).await?;
            let taken = epoch.advance(&t, &world, Duration::from_secs(3)).await?;
            let (without, with) = stays_closed(&world, &fault.what).await?;
            println!(
                "{}: {without} without and {with} with a login{}",
                fault.what,
                if taken { "" } else { "; refused" }
            );
            refused += usize::from(!taken);
        }
        // What the proxy refuses leaves the chain before in force, which shows nothing of the fault itself.
        ensure!(refused * 2 < faults.len(), "the proxy refused {refused} of {} faults", faults.len());

        t.kubectl(&["-n", OWN, "scale", "deployment/istio-integrator", "--replicas=2"]).await?;
        eventually("the chain to be as it was", 90, || async {
            let now: Vec<Value> = serde_json::from_str(&t.kubectl(&get).await?)?;
            ensure!(now == whole, "it has {} patches", now.len());
            Ok(())
        })
        .await?;
        world.answers("/", LOGIN, 200).await?;
        ensure!(world.get("/", "").await?.status == 401);
        watchman.end().await
    })
    .await
}

/// A patch of somebody else by which the proxy refuses every later change of its listeners.
fn poison(world: &World) -> String {
    json!({
        "apiVersion": "networking.istio.io/v1alpha3",
        "kind": "EnvoyFilter",
        "metadata": {"name": format!("poison-{}", world.namespace)},
        "spec": {
            "workloadSelector": {"labels": {"gateway": world.namespace}},
            "configPatches": [{
                "applyTo": "HTTP_FILTER",
                "match": {
                    "context": "GATEWAY",
                    "listener": {"filterChain": {"filter": {
                        "name": "envoy.filters.network.http_connection_manager",
                        "subFilter": {"name": "envoy.filters.http.router"},
                    }}},
                },
                "patch": {"operation": "INSERT_BEFORE", "value": {"name": "poison", "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua",
                    "default_source_code": {"inline_string": "function envoy_on_request("},
                }}},
            }],
        },
    })
    .to_string()
}

async fn a_chain_that_the_proxy_refuses_opens_nothing(t: Ctx) -> Result<()> {
    let world = prepared(&t).await?;
    t.apply(&request(&world.namespace, "{type: None}")).await?;
    world.ready(&t).await?;
    t.kubectl_with(&["-n", ROOT, "apply", "-f", "-"], Some(&poison(&world))).await?;
    // Time for the poison to arrive.
    tokio::time::sleep(Duration::from_secs(2)).await;
    t.apply(&request(&world.namespace, PROVIDER)).await?;
    world.answers("/", "", 503).await?;
    let watchman = Watchman::start(&world);
    for _ in 0..20 {
        ensure!(world.get("/", LOGIN).await?.status == 503, "a login was believed that nobody checked");
        ensure!(world.get("/health", "").await?.status == 200);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    world.has(&t, "AuthInForce", "False ChainPending").await?;
    world.has(&t, "Ready", "False ChainPending").await?;
    let message = "{.status.conditions[?(@.type==\"AuthInForce\")].message}";
    let message = t.field("ingressrequest/app", message).await?;
    ensure!(message.contains(&world.namespace), "the message does not name the gateway: {message}");
    t.kubectl(&["-n", ROOT, "delete", "envoyfilter", &format!("poison-{}", world.namespace)]).await?;
    world.answers("/", LOGIN, 200).await?;
    world.ready(&t).await?;
    watchman.end().await?;
    world.cleaned(&t).await
}

async fn a_chain_of_somebody_else_is_left_alone(t: Ctx) -> Result<()> {
    let world = protected(&t).await?;
    let chain = world.chain(&t).await?;
    // Without a route that needs it, it is not made anew; then somebody takes its name.
    t.apply(&request(&world.namespace, "{type: None}")).await?;
    world.answers("/", "", 200).await?;
    t.kubectl(&["-n", ROOT, "delete", "envoyfilter", &chain]).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let left =
        t.kubectl(&["-n", ROOT, "get", "envoyfilter", &chain, "--ignore-not-found", "-o", "name"]).await?;
    ensure!(left.is_empty(), "a chain that nobody needs was made anew");
    let theirs = json!({
        "apiVersion": "networking.istio.io/v1alpha3",
        "kind": "EnvoyFilter",
        "metadata": {"name": chain, "labels": {"whose": "theirs"}},
        "spec": {"workloadSelector": {"labels": {"gateway": world.namespace}}},
    });
    t.kubectl_with(&["-n", ROOT, "apply", "-f", "-"], Some(&theirs.to_string())).await?;
    t.apply(&request(&world.namespace, PROVIDER)).await?;
    world.answers("/", LOGIN, 503).await?;
    world.has(&t, "AuthInForce", "False ObjectConflict").await?;
    let message = "{.status.conditions[?(@.type==\"AuthInForce\")].message}";
    let message = t.field("ingressrequest/app", message).await?;
    ensure!(message.contains(&chain), "the message does not name the object: {message}");
    let get = [
        "-n",
        ROOT,
        "get",
        "envoyfilter",
        chain.as_str(),
        "-o",
        "jsonpath={.metadata.labels} {.spec.configPatches}",
    ];
    let kept = t.kubectl(&get).await?;
    ensure!(kept.trim() == "{\"whose\":\"theirs\"}", "their object was changed to {kept}");
    t.kubectl(&["-n", ROOT, "delete", "envoyfilter", &chain]).await?;
    world.answers("/", LOGIN, 200).await?;
    world.ready(&t).await?;
    world.cleaned(&t).await
}
