//! Who has a host and a path where several ask, whichever came first, through a real Envoy.

use std::time::Duration;

use anyhow::{Result, ensure};
use testbed::harness::{Test, eventually};
use testbed::{Site, portable, raw};

use crate::auth_world::{World, prepared};
use crate::pods::echo_pod;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        portable!(the_older_has_it_and_the_younger_is_its_heir).limit_seconds(240),
        portable!(paths_by_whole_segments_and_hosts_before_wildcards).limit_seconds(240),
    ]
}

fn request(ns: &str, name: &str, host: &str, routes: &str) -> String {
    format!(
        "apiVersion: integrator.istio-operators.io/v1alpha1
kind: IngressRequest
metadata: {{name: {name}}}
spec:
  bindingRef: {{name: {ns}}}
  hosts: [{host}]
  auth: {{type: None}}
  routes:
{routes}"
    )
}

/// Waits until a path of a host is answered with this in the body.
async fn served(world: &World, host: &str, path: &str, part: &str) -> Result<()> {
    let bytes = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n");
    eventually(&format!("{host}{path} to answer {part}"), 60, || async {
        let reply = raw::once(world.address, bytes.as_bytes()).await?;
        let text = format!("{} {}", reply.status, reply.body);
        ensure!(text.contains(part), "{text}");
        Ok(())
    })
    .await
}

async fn refused(t: &Site, request: &str, reason: &str, owner: &str) -> Result<()> {
    let of = |field: &str| format!("{{.status.conditions[?(@.type==\"Accepted\")].{field}}}");
    let name = format!("ingressrequest/{request}");
    eventually(&format!("{request} to be told {reason}"), 60, || async {
        let told = t.field(&name, &format!("{} {}", of("reason"), of("message"))).await?;
        ensure!(told.starts_with(reason) && told.contains(owner), "{told}");
        Ok(())
    })
    .await
}

async fn the_older_has_it_and_the_younger_is_its_heir(t: Site) -> Result<()> {
    let world = prepared(&t).await?;
    let ns = world.namespace.clone();
    let shared = format!(
        r#"[{{"op": "add", "path": "/spec/hosts/allowed/-", "value":
            {{"pattern": "*.s.{ns}.example.org", "shared": true, "namespaces": {{"from": "All"}}}}}}]"#
    );
    t.kubectl(&["patch", "gatewaybinding", &ns, "--type=json", "-p", &shared]).await?;
    let other = t.sibling("b").await?;
    other
        .apply(
            "apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: other}
  ports: [{name: http, port: 80, targetPort: 8080}]
",
        )
        .await?;
    other.apply(&echo_pod("other", "")).await?;
    other.pod_ready("other").await?;
    let (mine, theirs) = ((&t, "\"name\":\"web\""), (&other, "\"name\":\"other\""));
    // The namespace's name decides nothing: once the one is older, once the other.
    for (turn, (older, younger)) in [(mine, theirs), (theirs, mine)].into_iter().enumerate() {
        let whole = format!("whole{turn}.{ns}.example.org");
        let part = format!("part{turn}.s.{ns}.example.org");
        let root = "  - backends: [{service: web, port: 80}]\n";
        let path = "  - path: {value: /p}\n    backends: [{service: web, port: 80}]\n";
        let (host_name, path_name) = (format!("whole{turn}"), format!("part{turn}"));
        for (asker, _) in [older, younger] {
            asker.apply(&request(&ns, &host_name, &whole, root)).await?;
            asker.apply(&request(&ns, &path_name, &part, path)).await?;
            // Ages have whole seconds.
            tokio::time::sleep(Duration::from_millis(1100)).await;
        }
        let owner = &older.0.namespace;
        refused(younger.0, &host_name, "HostConflict", &format!("{owner}/{host_name}")).await?;
        refused(younger.0, &path_name, "PathConflict", &format!("{owner}/{path_name}")).await?;
        served(&world, &whole, "/", older.1).await?;
        served(&world, &part, "/p/x", older.1).await?;
        // The owner's requests go, or all of the owner's namespace.
        if turn == 0 {
            older.0.kubectl(&["delete", "ingressrequests", &host_name, &path_name]).await?;
        } else {
            t.kubectl(&["delete", "namespace", owner, "--wait=false"]).await?;
        }
        served(&world, &whole, "/", younger.1).await?;
        served(&world, &part, "/p/x", younger.1).await?;
    }
    world.cleaned(&t).await
}

async fn paths_by_whole_segments_and_hosts_before_wildcards(t: Site) -> Result<()> {
    let world = prepared(&t).await?;
    let (ns, host) = (&world.namespace, format!("paths.{}.example.org", world.namespace));
    let routes = "  - path: {value: /app}
    backends: [{service: web, port: 80}]
  - path: {value: /apple}
    backends: [{service: open, port: 80}]
  - path: {value: /c}
    rewrite: {type: ReplacePrefix, value: /}
    backends: [{service: web, port: 80}]
";
    t.apply(&request(ns, "paths", &host, routes)).await?;
    // Somebody else's, for every host.
    t.apply(
        "apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: everything}
spec:
  hosts: [\"*\"]
  gateways: [edge]
  http: [{directResponse: {status: 418}}]
",
    )
    .await?;
    let (web, open) = ("\"name\":\"web\"", "\"name\":\"open\"");
    for (path, part) in [
        ("/app", web),
        ("/app/", web),
        ("/app/le", web),
        ("/apple", open),
        ("/apple/x", open),
        ("/appl", "404"),
        ("/applet", "404"),
        ("/", "404"),
        ("/c", "\"path\":\"/\""),
        ("/c/", "\"path\":\"/\""),
        ("/c/x", "\"path\":\"/x\""),
        ("/c/x/?q=1", "\"path\":\"/x/?q=1\""),
        ("/cx", "404"),
    ] {
        served(&world, &host, path, part).await?;
    }
    served(&world, "elsewhere.example.net", "/app", "418").await?;
    served(&world, &host, "/app", web).await?;
    world.cleaned(&t).await
}
