//! What lies in `deploy/`, as users install it; and the commands that look at a cluster and clear it.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testbed::audit::{AuditLog, Filter, service_account};
use testbed::harness::{Ctx, Test, eventually, run_command};
use testbed::{Options, Session, curl, test};

use crate::integrator::condition;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        test!(the_chart_renders_what_kustomize_does),
        test!(installed_by_helm_explained_and_uninstalled).limit_seconds(480),
    ]
}

const OWN: &str = "istio-integrator";

fn repo(path: &str) -> String {
    testbed::paths::repo_root().join(path).display().to_string()
}

fn helm(session: &Session, args: &[&str]) -> Command {
    let mut command = Command::new(session.tools().helm.join("helm"));
    command.args(args).env("KUBECONFIG", session.kubeconfig()).env("HOME", session.run_dir());
    command
}

/// Objects by kind, namespace and name.
fn objects(yaml: &str) -> Result<BTreeMap<String, Value>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(yaml)?;
    let objects = documents.into_iter().filter(|document| !document.is_null());
    Ok(objects
        .map(|object| {
            let meta = &object["metadata"];
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            (
                format!("{} {}/{}", text(&object["kind"]), text(&meta["namespace"]), text(&meta["name"])),
                object,
            )
        })
        .collect())
}

async fn rendered(
    t: &Ctx,
    chart_args: &[&str],
    overlay: &str,
) -> Result<(BTreeMap<String, Value>, BTreeMap<String, Value>)> {
    let chart = repo("deploy/helm/istio-integrator");
    let mut args = vec!["template", OWN, chart.as_str(), "--namespace", OWN, "--set", "image.tag=dev"];
    args.extend(chart_args);
    let chart = objects(&run_command(helm(&t.session, &args), None).await?)?;
    let base = objects(&t.kubectl(&["kustomize", &repo(overlay)]).await?)?;
    Ok((chart, base))
}

async fn the_chart_renders_what_kustomize_does(t: Ctx) -> Result<()> {
    for (args, overlay) in [
        (&[][..], "deploy/integrator"),
        (&["--set", "serviceMonitor.enabled=true"], "tests/fixtures/servicemonitor"),
    ] {
        let (mut chart, mut base) = rendered(&t, args, overlay).await?;
        // Helm makes no namespace of its own, and CRDs must outlive a release.
        base.remove(&format!("Namespace /{OWN}")).context("the base has the namespace")?;
        let mut kept = 0;
        for object in chart.values_mut().filter(|object| object["kind"] == "CustomResourceDefinition") {
            let annotations = object["metadata"].as_object_mut().and_then(|meta| meta.remove("annotations"));
            ensure!(annotations == Some(json!({"helm.sh/resource-policy": "keep"})), "{annotations:?}");
            kept += 1;
        }
        ensure!(kept == 3, "{kept} CRDs");
        ensure!(chart.keys().eq(base.keys()), "chart: {:#?}\nbase: {:#?}", chart.keys(), base.keys());
        for (name, object) in &chart {
            ensure!(*object == base[name], "{name} differs\nchart: {object:#}\nbase: {:#}", base[name]);
        }
    }
    // What values change, and that a slip in them is found.
    let values = [
        "--set",
        "podDisruptionBudget.enabled=false,networkPolicy.enabled=false,replicas=3,crds.install=false,rootNamespaces={a,b},extraArgs={--log-level=debug}",
    ];
    let (chart, _) = rendered(&t, &values, "deploy/integrator").await?;
    for gone in ["PodDisruptionBudget", "NetworkPolicy", "CustomResourceDefinition"] {
        ensure!(!chart.keys().any(|name| name.starts_with(gone)), "{gone} is still there");
    }
    for namespace in ["a", "b"] {
        ensure!(chart.contains_key(&format!("RoleBinding {namespace}/{OWN}")), "no Role in {namespace}");
    }
    let deployment = &chart[&format!("Deployment {OWN}/{OWN}")]["spec"];
    ensure!(deployment["replicas"] == 3, "{deployment}");
    ensure!(
        deployment["template"]["spec"]["containers"][0]["args"] == json!(["run", "--log-level=debug"]),
        "{deployment}"
    );
    let slip = rendered(&t, &["--set", "replica=3"], "deploy/integrator").await;
    ensure!(
        slip.is_err_and(|error| format!("{error:#}").contains("replica")),
        "a value that does not exist was taken"
    );
    Ok(())
}

/// A cluster of the test's own with what the commands are run on.
struct Site {
    session: Session,
    client: kube::Client,
}

/// What a command of the program printed, and its exit status.
struct Ran {
    code: i64,
    log: String,
}

impl Site {
    async fn kubectl(&self, args: &[&str]) -> Result<String> {
        run_command(self.session.kubectl(args), None).await
    }

    async fn apply(&self, yaml: &str) -> Result<String> {
        run_command(self.session.kubectl(["apply", "-f", "-"]), Some(yaml.to_owned())).await
    }

    /// Runs the program in a pod as this account of namespace `shop`.
    async fn run(&self, account: &str, args: &[&str]) -> Result<Ran> {
        let name =
            format!("cli-{}", std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_nanos());
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "shop"},
            "spec": {
                "restartPolicy": "Never", "serviceAccountName": account,
                "containers": [{"name": "cli", "image": "istio-operators/istio-integrator:dev", "args": args}],
            },
        });
        self.apply(&pod.to_string()).await?;
        let path = "jsonpath={.status.containerStatuses[0].state.terminated.exitCode}";
        let code = eventually(&format!("{args:?} ends"), 90, || async {
            let code = self.kubectl(&["-n", "shop", "get", "pod", &name, "-o", path]).await?;
            code.parse().with_context(|| format!("the exit status {code:?}"))
        })
        .await?;
        let log = self.kubectl(&["-n", "shop", "logs", &name]).await?;
        Ok(Ran { code, log })
    }

    async fn gateway(&self) -> Result<std::net::SocketAddr> {
        let path = "jsonpath={.spec.clusterIP}";
        let args = ["-n", "istio-system", "get", "service", "istio-ingressgateway", "-o", path];
        Ok(std::net::SocketAddr::new(self.kubectl(&args).await?.parse()?, 80))
    }

    async fn answers(&self, host: &str, path: &str, status: u16) -> Result<String> {
        let address = self.gateway().await?;
        eventually(&format!("{status} for {host}{path}"), 60, || async {
            let reply = curl::get(address, host, path).await?;
            ensure!(reply.status == status, "{} {}", reply.status, reply.body);
            Ok(reply.body)
        })
        .await
    }

    async fn count(&self, kind: &str, namespace: &str) -> Result<usize> {
        let names = self.kubectl(&["-n", namespace, "get", kind, "-o", "name"]).await?;
        Ok(names.lines().count())
    }

    /// Waits until a log line of a replica holds this.
    async fn logged(&self, text: &str) -> Result<()> {
        eventually(&format!("the log says {text:?}"), 40, || async {
            let label = "app.kubernetes.io/name=istio-integrator";
            let log = self.kubectl(&["-n", OWN, "logs", "-l", label, "--tail=200"]).await?;
            ensure!(log.contains(text), "{log}");
            Ok(())
        })
        .await
    }
}

/// Examples of the book, in the order in which they build on each other; the first has the gateway.
const EXAMPLES: [&str; 4] = ["first-route", "login", "hosts", "backends"];

/// Accounts, and a request that leads nowhere, beside the first example.
const SHOP: &str = "
apiVersion: v1
kind: ServiceAccount
metadata: {name: tenant, namespace: shop}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: tenant, namespace: shop}
rules:
- {apiGroups: [integrator.istio-operators.io], resources: [ingressrequests], verbs: [get, list]}
- {apiGroups: [\"\"], resources: [services], verbs: [get, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tenant, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: tenant}
subjects: [{kind: ServiceAccount, name: tenant, namespace: shop}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: admin, namespace: shop}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: shop-admin}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: admin, namespace: shop}]
---
apiVersion: integrator.istio-operators.io/v1alpha1
kind: IngressRequest
metadata: {name: broken, namespace: shop}
spec:
  hosts: [broken.example.com]
  routes: [{backends: [{service: nobody, port: 80}]}]
";

async fn installed_by_helm_explained_and_uninstalled(t: Ctx) -> Result<()> {
    t.own_cluster(Options { progress: false, ..Options::default() }, |session| async move {
        let (istio, images) = (session.clone(), session.clone());
        tokio::task::spawn_blocking(move || testbed::istio::install(&istio, &[])).await??;
        tokio::task::spawn_blocking(move || testbed::operators::add_image(&images, OWN)).await??;
        let site = Site { client: session.client().await?, session };
        install(&site).await?;
        explain(&site).await?;
        outdated_crd(&site).await?;
        rolled_to_another_image(&site).await?;
        uninstall(&site).await
    })
    .await
}

fn release<'a>(verb: &'a str, chart: &'a str) -> Vec<&'a str> {
    let args = "image.tag=dev,extraArgs={--chain-interval=2s,--drain-time=2s}";
    vec![verb, OWN, chart, "--namespace", OWN, "--set", args]
}

async fn install(site: &Site) -> Result<()> {
    // The API server itself shows that the pods meet the restricted standard.
    site.kubectl(&["create", "namespace", OWN]).await?;
    site.kubectl(&["label", "namespace", OWN, "pod-security.kubernetes.io/enforce=restricted"]).await?;
    let chart = repo("deploy/helm/istio-integrator");
    run_command(helm(&site.session, &release("install", &chart)), None).await?;
    site.kubectl(&["-n", OWN, "rollout", "status", "deployment/istio-integrator", "--timeout=120s"]).await?;
    crate::integrator_wrong::every_wrong_input_is_told(&site.session).await?;
    for example in EXAMPLES {
        site.kubectl(&["apply", "-f", &repo(&format!("docs/examples/{example}.yaml"))]).await?;
        // Ages have whole seconds, and what follows reads who is the older by them.
        tokio::time::sleep(Duration::from_millis(1100)).await;
    }
    site.kubectl(&["wait", "--for=condition=Ready", "ingressrequests", "--all", "-A", "--timeout=120s"])
        .await?;
    for namespace in ["shop", "team-a", "team-b", "backends"] {
        site.kubectl(&[
            "-n",
            namespace,
            "wait",
            "--for=condition=Available",
            "deployments",
            "--all",
            "--timeout=90s",
        ])
        .await?;
    }
    site.apply(SHOP).await?;
    for (host, path, body) in [
        ("shop.example.com", "/", "\"name\":\"shop\""),
        ("catalog.team-a.teams.example.com", "/", "\"name\":\"catalog\""),
        ("shop.a.example.com", "/catalog", "\"name\":\"catalog\""),
        ("www.example.com", "/catalog/1", "\"name\":\"catalog\""),
        ("www.example.com", "/blog", "\"name\":\"blog\""),
        ("api.example.com", "/api/items", "\"/items\""),
        ("methods.example.com", "/", "\"name\":\"stable\""),
    ] {
        let answer = site.answers(host, path, 200).await?;
        ensure!(answer.contains(body), "{host}{path} answers {answer}");
    }
    site.answers("shop.example.com", "/account", 401).await?;
    site.kubectl(&["apply", "-f", &repo("docs/examples/conflict.yaml")]).await?;
    for (request, told) in [
        (
            "other-shop",
            "HostConflict: host shop.example.com belongs to the older request shop/shop: use another host",
        ),
        (
            "other-catalog",
            "PathConflict: path /catalog of host www.example.com belongs to the older request team-a/catalog-public: use \
             another path",
        ),
    ] {
        eventually(&format!("{request} to be told {told}"), 60, || async {
            let path =
                format!("jsonpath={}: {}", condition("Accepted", "reason"), condition("Accepted", "message"));
            let name = format!("ingressrequest/{request}");
            let found = site.kubectl(&["-n", "team-b", "get", &name, "-o", &path]).await?;
            ensure!(found.starts_with(told), "{found}");
            Ok(())
        })
        .await?;
    }
    site.kubectl(&["delete", "-f", &repo("docs/examples/conflict.yaml")]).await?;
    let address = site.gateway().await?;
    let request = http::Request::get("/account").header("host", "shop.example.com");
    let request = request.header("authorization", "Bearer let-me-in").header("x-user", "forged");
    let reply = curl::request(address, request.body(String::new())?).await?;
    ensure!(
        reply.status == 200 && reply.body.contains("tester") && !reply.body.contains("forged"),
        "{} {}",
        reply.status,
        reply.body
    );
    Ok(())
}

async fn explain(site: &Site) -> Result<()> {
    let full = site.run("admin", &["explain", "shop", "-n", "shop"]).await?;
    ensure!(full.code == 0, "{}", full.log);
    for part in [
        "IngressRequest shop/shop is served",
        "public: it is the oldest default binding",
        "PathPrefix / -> shop/shop:80 Served",
        "Programmed True",
        "VirtualService istio-integrator/shop-example-com-",
        "Gateway istio-system/public",
        " ready",
        "LoadBalancer istio-system/istio-ingressgateway",
        "holds the lease",
    ] {
        ensure!(full.log.contains(part), "{part:?} is missing in\n{}", full.log);
    }
    ensure!(!full.log.contains("Not seen"), "an administrator sees all:\n{}", full.log);
    let private = site.run("admin", &["explain", "account", "-n", "shop", "-o", "json"]).await?;
    let value: Value = serde_json::from_str(&private.log).with_context(|| private.log.clone())?;
    ensure!(private.code == 0 && value["auth"] == "shop/login", "{}", private.log);
    ensure!(
        value["objects"]
            .as_array()
            .is_some_and(|list| list.iter().any(|object| object["kind"] == "EnvoyFilter")),
        "{value:#}"
    );
    // A tenant sees its own namespace alone, and the status tells the rest. Its context names the namespace.
    let tenant = site.run("tenant", &["explain", "shop"]).await?;
    ensure!(
        tenant.code == 0 && tenant.log.contains("Not seen\n  IngressRequests of all namespaces"),
        "{}",
        tenant.log
    );
    ensure!(tenant.log.contains("GatewayBindings, so that which binding"), "{}", tenant.log);
    let broken = site.run("tenant", &["explain", "broken"]).await?;
    ensure!(broken.code == 1 && broken.log.contains("Create the Service"), "{} {}", broken.code, broken.log);
    let none = site.run("tenant", &["explain", "nobody"]).await?;
    ensure!(
        none.code == 2
            && none.log.contains("does not exist; in namespace shop there is account, broken, shop"),
        "{} {}",
        none.code,
        none.log
    );
    let forbidden = site.run("tenant", &["explain", "shop", "-n", "default"]).await?;
    ensure!(
        forbidden.code == 2 && forbidden.log.contains("Forbidden"),
        "{} {}",
        forbidden.code,
        forbidden.log
    );
    Ok(())
}

async fn outdated_crd(site: &Site) -> Result<()> {
    let crd = "crd/ingressrequests.integrator.istio-operators.io";
    let field =
        "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/routes/items/properties/timeout";
    let patch = json!([{"op": "remove", "path": field}]).to_string();
    site.kubectl(&["patch", crd, "--type=json", "-p", &patch]).await?;
    site.logged("it lacks spec.routes[].timeout").await?;
    eventually("an Event about it", 20, || async {
        let events = site
            .kubectl(&["-n", OWN, "get", "events", "--field-selector=reason=OutdatedCRD", "-o", "yaml"])
            .await?;
        ensure!(events.contains("kubectl apply --server-side"), "{events}");
        Ok(())
    })
    .await?;
    let told = site.run("admin", &["explain", "shop", "-n", "shop"]).await?;
    ensure!(told.code == 0 && told.log.contains("it lacks spec.routes[].timeout"), "{}", told.log);
    // An upgrade of the release brings the CRD, and the routes stay.
    let chart = repo("deploy/helm/istio-integrator");
    let mut upgrade = release("upgrade", &chart);
    upgrade.push("--force-conflicts");
    run_command(helm(&site.session, &upgrade), None).await?;
    site.logged("the CRD is that of this version now").await?;
    site.answers("shop.example.com", "/", 200).await?;
    Ok(())
}

/// An upgrade of the operator is none of the routes' business: nothing is written for the same input, and every request is
/// answered as before. The image is the same program under another tag, as a release that changes nothing would be.
async fn rolled_to_another_image(site: &Site) -> Result<()> {
    let log = AuditLog::new(site.session.audit_log());
    let ours = Filter::user(&service_account(OWN, OWN)).except_renewals_of(OWN, OWN);
    // What the upgrade before has still to say is said.
    let mark = log.quiet(&site.client, &ours, Duration::from_secs(5), Duration::from_mins(1)).await?;
    let address = site.gateway().await?;
    let rolled = async {
        let chart = repo("deploy/helm/istio-integrator");
        let args = "image.tag=next,extraArgs={--chain-interval=2s,--drain-time=2s}";
        let upgrade = ["upgrade", OWN, &chart, "--namespace", OWN, "--set", args, "--force-conflicts"];
        run_command(helm(&site.session, &upgrade), None).await?;
        let wait = ["-n", OWN, "rollout", "status", "deployment/istio-integrator", "--timeout=120s"];
        site.kubectl(&wait).await?;
        site.logged("leading").await?;
        // A resync of the new leader's.
        tokio::time::sleep(Duration::from_secs(5)).await;
        Ok::<(), anyhow::Error>(())
    };
    let asked = async {
        let mut wrong = Vec::new();
        for count in 0_u32.. {
            let login = count % 2 == 1;
            let path = if login { "/account" } else { "/" };
            let mut request = http::Request::get(path).header("host", "shop.example.com");
            if login {
                request = request.header("authorization", "Bearer let-me-in");
            }
            match curl::request(address, request.body(String::new())?).await {
                Ok(reply) if reply.status == 200 => {}
                other => wrong.push(format!("{path}: {other:?}")),
            }
            ensure!(wrong.is_empty(), "while the operator was rolled, after {count} requests: {wrong:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    };
    tokio::select! {
        rolled = rolled => rolled?,
        asked = asked => asked?,
    }
    let image = "jsonpath={.items[*].spec.containers[0].image}";
    let images = site.kubectl(&["-n", OWN, "get", "pods", "-o", image]).await?;
    ensure!(images.contains(":next") && !images.contains(":dev"), "the pods run {images}");
    let writes = log.writes_since(&site.client, mark, &ours).await?;
    ensure!(writes.is_empty(), "for the same input it wrote: {writes:#?}");
    Ok(())
}

async fn uninstall(site: &Site) -> Result<()> {
    let running = site.run("admin", &["uninstall"]).await?;
    ensure!(
        running.code == 1 && running.log.contains("scale deployment/istio-integrator --replicas=0"),
        "{}",
        running.log
    );
    site.answers("shop.example.com", "/", 200).await?;
    site.kubectl(&["-n", OWN, "scale", "deployment/istio-integrator", "--replicas=0"]).await?;
    let kept = site.run("admin", &["uninstall", "--keep-routes"]).await?;
    ensure!(kept.code == 0 && kept.log.contains("which must stay too"), "{}", kept.log);
    ensure!(site.count("lease", OWN).await? == 0, "the lease stays, with the routes");
    let before =
        (site.count("virtualservices", OWN).await?, site.count("envoyfilters", "istio-system").await?);
    ensure!(before.0 > 5 && before.1 == 1, "VirtualServices and EnvoyFilters: {before:?}");
    site.answers("shop.example.com", "/", 200).await?;
    let dry = site.run("admin", &["uninstall", "--dry-run"]).await?;
    ensure!(
        dry.code == 0 && dry.log.contains("to remove: EnvoyFilter istio-system/ii-guard-"),
        "{}",
        dry.log
    );
    ensure!(site.count("virtualservices", OWN).await? == before.0, "a dry run removed something");
    held_elsewhere(site).await?;
    ensure!(site.count("virtualservices", OWN).await? == before.0, "something was removed");
    // Of somebody else, although it bears our label.
    site.apply(
        "apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: theirs, namespace: istio-integrator, labels: {app.kubernetes.io/managed-by: istio-integrator}}
spec: {hosts: [theirs.example.com], gateways: [istio-system/public], http: [{directResponse: {status: 418}}]}
",
    )
    .await?;
    site.kubectl(&["apply", "-k", &repo("deploy/uninstall")]).await?;
    let job = "job/istio-integrator-uninstall";
    let done = site.kubectl(&["-n", OWN, "wait", "--for=condition=Complete", job, "--timeout=90s"]).await;
    let log = site.kubectl(&["-n", OWN, "logs", job]).await?;
    done.with_context(|| log.clone())?;
    let place = |text: &str| log.find(text).with_context(|| format!("{text:?} is missing in\n{log}"));
    ensure!(
        place(&format!("{} VirtualService objects removed", before.0))?
            < place("1 EnvoyFilter objects removed")?,
        "{log}"
    );
    ensure!(
        place("EnvoyFilter objects removed")?
            < place("Secret istio-integrator/istio-integrator-guard removed")?,
        "{log}"
    );
    place("not touched: VirtualService istio-integrator/theirs")?;
    ensure!(site.count("envoyfilters", "istio-system").await? == 0, "a guard chain stays");
    ensure!(
        site.kubectl(&["-n", OWN, "get", "virtualservices", "-o", "name"]).await?.trim()
            == "virtualservice.networking.istio.io/theirs",
        "not only theirs stays"
    );
    ensure!(site.count("lease", OWN).await? == 0, "the lease stays");
    let secret = site.kubectl(&["-n", OWN, "get", "secret", "istio-integrator-guard"]).await;
    ensure!(secret.is_err(), "the Secret stays");
    let status = site
        .kubectl(&[
            "-n",
            "shop",
            "get",
            "ingressrequest",
            "shop",
            "-o",
            "jsonpath={.status.conditions}{.status.urls}",
        ])
        .await?;
    ensure!(status.is_empty(), "its status still claims something: {status}");
    site.answers("shop.example.com", "/", 404).await?;
    site.answers("shop.example.com", "/account", 404).await?;
    site.answers("theirs.example.com", "/", 418).await?;
    let gone = site.run("admin", &["explain", "shop", "-n", "shop"]).await?;
    ensure!(gone.code == 1 && gone.log.contains("Start istio-integrator"), "{}", gone.log);
    let again = site.run("admin", &["uninstall"]).await?;
    ensure!(again.code == 0, "a second time: {}", again.log);
    let uninstall = ["uninstall", OWN, "--namespace", OWN];
    run_command(helm(&site.session, &uninstall), None).await?;
    ensure!(site.count("ingressrequests", "shop").await? == 3, "the CRDs went with the release");
    Ok(())
}

/// A replica that runs elsewhere is known by the lease that it renews.
async fn held_elsewhere(site: &Site) -> Result<()> {
    use k8s_openapi::api::coordination::v1::Lease;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
    use kube::api::{Api, Patch, PatchParams};
    let leases = Api::<Lease>::namespaced(site.client.clone(), OWN);
    let renew = || {
        let leases = leases.clone();
        async move {
            let now = MicroTime(k8s_openapi::jiff::Timestamp::now());
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": OWN},
                "spec": {"holderIdentity": "laptop", "leaseDurationSeconds": 15, "renewTime": now},
            });
            leases.patch(OWN, &PatchParams::apply(OWN).force(), &Patch::Apply(&lease)).await
        }
    };
    renew().await?;
    let renewing = async {
        loop {
            tokio::time::sleep(Duration::from_secs(2)).await;
            let _ = renew().await;
        }
    };
    let refused = tokio::select! {
        ran = site.run("admin", &["uninstall"]) => ran?,
        () = renewing => unreachable!("it renews for ever"),
    };
    ensure!(refused.code == 1 && refused.log.contains("laptop holds lease"), "{}", refused.log);
    leases.delete(OWN, &kube::api::DeleteParams::default()).await?;
    Ok(())
}
