//! process-node: Services, DNS and load balancer addresses.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use testbed::curl;
use testbed::harness::{Ctx, Test, eventually};
use testbed::test;

use crate::pods::{echo_pod, logged, script_pod};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        test!(cluster_ip_balances_and_follows_readiness),
        test!(load_balancer_gets_a_stable_address),
        test!(named_target_port),
        test!(service_without_endpoints_refuses),
        test!(names_resolve),
        test!(pods_reach_the_api),
    ]
}

fn service(name: &str, selector: &str, rest: &str) -> String {
    format!(
        "apiVersion: v1
kind: Service
metadata: {{name: {name}}}
spec:
  selector: {{app: {selector}}}
{rest}"
    )
}

const PORT_80: &str = "  ports: [{port: 80, targetPort: 8080}]\n";

async fn cluster_ip(t: &Ctx, name: &str) -> Result<SocketAddr> {
    let ip = t.field(&format!("service/{name}"), "{.spec.clusterIP}").await?;
    Ok(SocketAddr::new(ip.parse().with_context(|| format!("clusterIP {ip:?}"))?, 80))
}

async fn cluster_ip_balances_and_follows_readiness(t: Ctx) -> Result<()> {
    for name in ["a", "b"] {
        t.apply(&echo_pod(name, "").replace(&format!("labels: {{app: {name}}}"), "labels: {app: both}"))
            .await?;
    }
    t.apply(&service("both", "both", PORT_80)).await?;
    t.pod_ready("a").await?;
    t.pod_ready("b").await?;
    let address = cluster_ip(&t, "both").await?;
    let served = || async {
        let mut names = std::collections::BTreeSet::new();
        for _ in 0..8 {
            let body = curl::get(address, "both", "/").await?.body;
            let name: serde_json::Value = serde_json::from_str(&body)?;
            names.insert(name["name"].as_str().unwrap_or_default().to_owned());
        }
        Ok::<_, anyhow::Error>(names.into_iter().collect::<Vec<_>>().join(","))
    };
    eventually("both pods answer", 20, || async {
        let names = served().await?;
        ensure!(names == "a,b", "{names} answered");
        Ok(())
    })
    .await?;
    t.kubectl(&["delete", "pod", "a", "--wait=false"]).await?;
    eventually("only b answers", 20, || async {
        let names = served().await?;
        ensure!(names == "b", "{names} answered");
        Ok(())
    })
    .await
}

async fn load_balancer_gets_a_stable_address(t: Ctx) -> Result<()> {
    t.apply(&echo_pod("web", "")).await?;
    t.apply(&service("web", "web", &format!("  type: LoadBalancer\n{PORT_80}"))).await?;
    let path = "{.status.loadBalancer.ingress[0].ip}";
    let ip = eventually("an address", 20, || async {
        let ip = t.field("service/web", path).await?;
        ensure!(ip.starts_with("10.97."), "the address is {ip:?}");
        Ok(ip)
    })
    .await?;
    t.pod_ready("web").await?;
    let address = SocketAddr::new(ip.parse()?, 80);
    eventually("an answer at it", 20, || curl::get(address, "web", "/")).await?;
    t.kubectl(&["label", "service", "web", "touched=yes"]).await?;
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    ensure!(t.field("service/web", path).await? == ip, "the address changed");
    Ok(())
}

async fn named_target_port(t: Ctx) -> Result<()> {
    let ports = "    ports: [{name: web, containerPort: 8080}]\n";
    t.apply(&echo_pod("named", ports)).await?;
    t.apply(&service("named", "named", "  ports: [{port: 80, targetPort: web}]\n")).await?;
    t.pod_ready("named").await?;
    let address = cluster_ip(&t, "named").await?;
    eventually("an answer", 20, || curl::get(address, "named", "/")).await?;
    Ok(())
}

async fn service_without_endpoints_refuses(t: Ctx) -> Result<()> {
    t.apply(&service("empty", "nobody", PORT_80)).await?;
    let address = cluster_ip(&t, "empty").await?;
    eventually("a refusal, not silence", 20, || async {
        let Err(error) = curl::get(address, "empty", "/").await else { anyhow::bail!("something answered") };
        let text = format!("{error:#}");
        ensure!(!text.contains("no answer"), "{text}");
        Ok(())
    })
    .await
}

async fn names_resolve(t: Ctx) -> Result<()> {
    t.apply(&echo_pod("web", "")).await?;
    t.apply(&service("web", "web", PORT_80)).await?;
    t.apply(&service("headless", "web", &format!("  clusterIP: None\n{PORT_80}"))).await?;
    t.apply("apiVersion: v1\nkind: Service\nmetadata: {name: alias}\nspec: {type: ExternalName, externalName: web.NS.svc.cluster.local}\n".replace("NS", &t.namespace).as_str()).await?;
    t.pod_ready("web").await?;
    let pod = t.field("pod/web", "{.status.podIP}").await?;
    let service = t.field("service/web", "{.spec.clusterIP}").await?;
    let script = format!(
        "a() {{ getent ahostsv4 $1 | awk 'NR==1{{print $1}}'; }}; until test -n \"$(a headless)\"; do sleep 0.2; done; \
         echo \"$(a web)|$(a web.{ns})|$(a web.{ns}.svc.cluster.local)|$(a headless)|$(a alias)|$(a nothing)|\"; sleep 1000",
        ns = t.namespace
    );
    t.apply(&script_pod("asks", &script, "")).await?;
    let log = logged(&t, "asks", "|").await?;
    ensure!(log.trim() == format!("{service}|{service}|{service}|{pod}|{service}||"), "it resolved {log:?}");
    Ok(())
}

async fn pods_reach_the_api(t: Ctx) -> Result<()> {
    let script =
        "exec 3<>/dev/tcp/$KUBERNETES_SERVICE_HOST/$KUBERNETES_SERVICE_PORT && echo connected; sleep 1000";
    t.apply(&script_pod("inside", script, "").replace("[sh, -c", "[bash, -c")).await?;
    logged(&t, "inside", "connected").await?;
    Ok(())
}
