//! The audit query: it finds every write of one user since a mark, and nothing else.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Event};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use testbed::audit::{AuditLog, Filter, Mark, Write, service_account};
use testbed::harness::{Ctx, Test};

use crate::account;

/// The tests of this file.
pub(crate) fn tests() -> Vec<Test> {
    vec![testbed::test!(counts_what_is_a_write), testbed::test!(misses_nothing_and_takes_nothing_twice)]
}

/// A log, and a client that is known to it as a ServiceAccount of the test's own.
struct Bed {
    log: AuditLog,
    admin: Client,
    client: Client,
    filter: Filter,
}

impl Bed {
    async fn new(ctx: &Ctx) -> Result<Self> {
        let file = Kubeconfig::read_from(ctx.session.kubeconfig())?;
        let mut config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        let token = account::token(ctx, "writer").await?;
        config.auth_info = kube::config::AuthInfo { token: Some(token.into()), ..Default::default() };
        Ok(Self {
            log: AuditLog::new(ctx.session.audit_log()),
            admin: ctx.client.clone(),
            client: Client::try_from(config)?,
            filter: Filter::user(&service_account(&ctx.namespace, "writer")),
        })
    }

    async fn mark(&self) -> Result<Mark> {
        self.log.mark(&self.admin).await
    }

    async fn since(&self, mark: Mark) -> Result<Vec<Write>> {
        self.log.writes_since(&self.admin, mark, &self.filter).await
    }
}

fn apply(kind: &str, version: &str, name: &str) -> Patch<serde_json::Value> {
    Patch::Apply(serde_json::json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}}))
}

async fn counts_what_is_a_write(ctx: Ctx) -> Result<()> {
    let mut bed = Bed::new(&ctx).await?;
    let maps = Api::<ConfigMap>::namespaced(bed.client.clone(), &ctx.namespace);
    let leases = Api::<Lease>::namespaced(bed.client.clone(), &ctx.namespace);
    let events = Api::<Event>::namespaced(bed.client.clone(), &ctx.namespace);
    let params = PatchParams::apply("test");
    let map = apply("ConfigMap", "v1", "a");
    let lease = apply("Lease", "coordination.k8s.io/v1", "leader");
    maps.patch("before", &params, &apply("ConfigMap", "v1", "before")).await?;

    let mark = bed.mark().await?;
    ensure!(bed.since(mark).await?.is_empty(), "nothing was written since the mark");
    maps.list(&ListParams::default()).await?;
    maps.patch("a", &params.clone().dry_run(), &map).await?;
    ensure!(bed.since(mark).await?.is_empty(), "reads and dry runs are no writes");

    maps.patch("a", &params, &map).await?;
    maps.patch("a", &params, &map).await.context("an apply that changes nothing")?;
    leases.patch("leader", &params, &lease).await.context("creates the lease")?;
    leases.patch("leader", &params, &lease).await.context("renews the lease")?;
    let event: Event = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "ConfigMap", "namespace": ctx.namespace, "name": "a"},
        "reason": "Tested", "type": "Normal",
    }))?;
    events.create(&PostParams::default(), &event).await?;
    let elsewhere = Api::<ConfigMap>::namespaced(bed.client.clone(), "kube-system");
    let refused = elsewhere.delete("a", &DeleteParams::default()).await;
    ensure!(matches!(&refused, Err(kube::Error::Api(status)) if status.is_forbidden()), "{refused:?}");
    // The same by somebody else, who is not asked for.
    Api::<ConfigMap>::namespaced(bed.admin.clone(), &ctx.namespace)
        .delete("a", &DeleteParams::default())
        .await?;
    maps.delete_collection(&DeleteParams::default(), &ListParams::default().labels("none=such")).await?;

    let brief = |writes: &[Write]| -> Vec<String> {
        let line = |write: &Write| {
            let code = write.code.map(|code| code.to_string()).unwrap_or_default();
            format!("{} {} {} {code}", write.verb, write.resource, write.name)
        };
        writes.iter().map(line).collect()
    };
    let all = [
        "patch configmaps a 201",
        "patch configmaps a 200",
        "patch leases leader 201",
        "patch leases leader 200",
        "create events e 201",
        "delete configmaps a 403",
        "deletecollection configmaps  200",
    ];
    let found = brief(&bed.since(mark).await?);
    ensure!(found == all, "{found:#?}");

    bed.filter = bed.filter.except_renewals_of(&ctx.namespace, "leader");
    let found = brief(&bed.since(mark).await?);
    let fewer: Vec<_> = all.into_iter().filter(|line| *line != "patch leases leader 200").collect();
    ensure!(found == fewer, "{found:#?}");
    Ok(())
}

async fn misses_nothing_and_takes_nothing_twice(ctx: Ctx) -> Result<()> {
    const WRITERS: usize = 8;
    const EACH: usize = 25;
    let bed = Bed::new(&ctx).await?;
    let maps = Api::<ConfigMap>::namespaced(bed.client.clone(), &ctx.namespace);
    let mut marks = vec![bed.mark().await?];
    let start = marks.clone();
    let write = |writer: usize| {
        let maps = maps.clone();
        async move {
            for _ in 0..EACH {
                let name = format!("c-{writer}");
                maps.patch(&name, &PatchParams::apply("test"), &apply("ConfigMap", "v1", &name)).await?;
            }
            anyhow::Ok(())
        }
    };
    let writers = futures::future::try_join_all((0..WRITERS).map(write));
    let marking = async {
        for _ in 0..5 {
            marks.push(bed.mark().await?);
        }
        anyhow::Ok(())
    };
    let (written, marked) = futures::future::join(writers, marking).await;
    written?;
    marked?;
    let all = bed.since(start[0]).await?;
    ensure!(all.len() == WRITERS * EACH, "{} of {} writes found", all.len(), WRITERS * EACH);
    ensure!(all.iter().all(|write| write.code.is_some()), "all are complete");
    // What was written after each mark is the tail of what was written after the one before.
    for mark in marks {
        let later = bed.since(mark).await?;
        ensure!(all.ends_with(&later), "{} of {}", later.len(), all.len());
    }
    Ok(())
}
