//! What a portable test is written against: a namespace on a cluster that has Istio and istio-integrator, on the test bed or
//! elsewhere.
//!
//! ```text
//! Ctx (a test of the test bed) -> Site <- a portable test
//!                                  |
//!                    Place: the test bed's Session | an existing cluster's Target
//! ```
//!
//! A test that takes a [`Site`] and nothing else needs no audit log, no fault proxy and no part of the control plane to be
//! restarted; so it runs on whatever cluster a kubeconfig names.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::{Namespace, Node, Service, ServiceAccount};
use kube::api::{Api, ListParams, PostParams};

use crate::cluster::Session;
use crate::curl;
use crate::existing::Target;
use crate::harness::{eventually, run_command};
use crate::images::TEST_SERVER_IMAGE;

/// A test's namespace on some cluster.
#[derive(Clone)]
pub struct Site {
    /// A client with the administrator's rights; on the test bed the audit log knows it as `kubernetes-admin`.
    pub client: kube::Client,
    /// The test's own namespace. It is deleted after the test.
    pub namespace: String,
    place: Place,
}

#[derive(Clone)]
enum Place {
    Bed(Session),
    Existing(Arc<Target>),
}

impl Site {
    /// A namespace on a cluster of the test bed.
    pub(crate) fn on_bed(session: Session, client: kube::Client, namespace: String) -> Self {
        Self { client, namespace, place: Place::Bed(session) }
    }

    /// A namespace on an existing cluster.
    pub(crate) fn on_existing(target: Arc<Target>, client: kube::Client, namespace: String) -> Self {
        Self { client, namespace, place: Place::Existing(target) }
    }

    /// The same cluster, seen from another namespace.
    #[must_use]
    pub fn at(&self, namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), ..self.clone() }
    }

    /// Makes another namespace for this test, named for this one and `suffix`. On an existing cluster it is deleted at the
    /// end of the run, whatever becomes of the test; on the test bed it goes with the cluster.
    pub async fn sibling(&self, suffix: &str) -> Result<Self> {
        let object =
            self.namespace_object(&serde_json::json!({"name": format!("{}-{suffix}", self.namespace)}))?;
        let name = make_namespace(&self.client, &object).await?;
        Ok(self.at(&name))
    }

    /// The Namespace that a test on this cluster is given, with this metadata and what marks it.
    pub(crate) fn namespace_object(&self, metadata: &serde_json::Value) -> Result<Namespace> {
        let mut object: Namespace = serde_json::from_value(serde_json::json!({"metadata": metadata}))?;
        if let Place::Existing(target) = &self.place {
            object.metadata.labels = Some([target.mark()].into());
        }
        Ok(object)
    }

    /// `kubectl` with the administrator's rights.
    pub fn command<I, S>(&self, args: I) -> Command
    where
        I: IntoIterator<Item = S>,
        S: AsRef<std::ffi::OsStr>,
    {
        match &self.place {
            Place::Bed(session) => session.kubectl(args),
            Place::Existing(target) => target.kubectl(args),
        }
    }

    /// Runs kubectl in the test's namespace and returns its standard output.
    pub async fn kubectl(&self, args: &[&str]) -> Result<String> {
        self.kubectl_with(args, None).await
    }

    /// The same with something on standard input.
    pub async fn kubectl_with(&self, args: &[&str], input: Option<&str>) -> Result<String> {
        let mut all = vec!["-n".to_owned(), self.namespace.clone()];
        all.extend(args.iter().map(|&a| a.to_owned()));
        run_command(self.command(all), input.map(str::to_owned)).await
    }

    /// Applies YAML as a person would: `kubectl apply -f -` in the test's namespace. Where the cluster pulls the test
    /// servers' image under another name than the test bed's, that name is put in.
    pub async fn apply(&self, yaml: &str) -> Result<String> {
        let yaml = match &self.place {
            Place::Bed(_) => yaml.to_owned(),
            Place::Existing(target) => yaml.replace(TEST_SERVER_IMAGE, &target.image("test-server")),
        };
        self.kubectl_with(&["apply", "-f", "-"], Some(&yaml)).await
    }

    /// Waits for a pod's Ready condition.
    pub async fn pod_ready(&self, pod: &str) -> Result<()> {
        self.kubectl(&["wait", "--for=condition=Ready", "--timeout=60s", &format!("pod/{pod}")]).await?;
        Ok(())
    }

    /// A field of an object by JSONPath, for example `("pod/a", "{.status.podIP}")`.
    pub async fn field(&self, object: &str, path: &str) -> Result<String> {
        self.kubectl(&["get", object, "-o", &format!("jsonpath={path}")]).await
    }

    /// The root namespace of the cluster's mesh, where guard chains live.
    pub fn root_namespace(&self) -> &str {
        match &self.place {
            Place::Bed(_) => crate::istio::ROOT_NAMESPACE,
            Place::Existing(target) => &target.mesh.root_namespace,
        }
    }

    /// The labels, as the inside of a YAML flow mapping, that let this cluster's istiod make a gateway of a pod with the
    /// annotation `inject.istio.io/templates: gateway`.
    pub fn gateway_labels(&self) -> String {
        let inject = "sidecar.istio.io/inject: \"true\"";
        match &self.place {
            Place::Bed(_) => inject.to_owned(),
            Place::Existing(target) => format!("{inject}, istio.io/rev: {}", target.mesh.revision),
        }
    }

    /// The type that a gateway's Service needs, so that [`Site::address`] can be reached.
    pub fn gateway_service_type(&self) -> &'static str {
        match &self.place {
            Place::Bed(_) => "ClusterIP",
            Place::Existing(_) => "LoadBalancer",
        }
    }

    /// The cluster's istio-integrator. On the test bed it is deployed from `deploy/integrator`, with Istio, when the first
    /// test asks; elsewhere the run has done so before its tests.
    pub async fn integrator(&self) -> Result<()> {
        match &self.place {
            Place::Bed(session) => crate::harness::integrator(session).await,
            Place::Existing(_) => Ok(()),
        }
    }

    /// The cluster as the test bed knows it.
    pub(crate) fn session(&self) -> Result<&Session> {
        match &self.place {
            Place::Bed(session) => Ok(session),
            Place::Existing(_) => bail!("this test runs on the test bed only"),
        }
    }

    /// Stops the cluster's integrator and removes what it generated as the book says: scaled to zero, then the Job of
    /// `deploy/uninstall`. Gives the Job's log. Only for existing clusters, where nobody shares it.
    pub async fn uninstall(&self) -> Result<String> {
        let Place::Existing(target) = &self.place else {
            bail!("the test bed's integrator serves all tests of a run");
        };
        let target = Arc::clone(target);
        tokio::task::spawn_blocking(move || crate::existing::uninstall(&target)).await?
    }

    /// Where a client outside the cluster's pods reaches a port of a Service that is a gateway's, once it answers HTTP.
    ///
    /// On the test bed that is the Service's own address. Elsewhere it is the first that answers of the load balancer's
    /// address and the node port on each node's addresses.
    ///
    /// # Errors
    /// When none answers in two minutes; the error lists what was tried.
    pub async fn address(&self, service: &str, port: u16) -> Result<SocketAddr> {
        if let Place::Bed(_) = &self.place {
            let ip = self.field(&format!("service/{service}"), "{.spec.clusterIP}").await?;
            return Ok(SocketAddr::new(ip.parse().with_context(|| format!("clusterIP {ip:?}"))?, port));
        }
        let what = format!("an answer from gateway {}/{service}", self.namespace);
        eventually(&what, 120, || async {
            let candidates = self.outside(service, port).await?;
            let mut tried = Vec::new();
            for candidate in candidates {
                match curl::get(candidate, "nobody.example.org", "/").await {
                    Ok(_) => return Ok(candidate),
                    Err(error) => tried.push(format!("{candidate}: {error:#}")),
                }
            }
            bail!(
                "the Service's load balancer gave no address that answers, nor does its node port ({}); run where nodes \
                 can be reached, or give the cluster something that serves LoadBalancer Services",
                if tried.is_empty() { "none to try".to_owned() } else { tried.join("; ") }
            )
        })
        .await
    }

    /// Addresses that may lead to a port of a Service from outside.
    async fn outside(&self, service: &str, port: u16) -> Result<Vec<SocketAddr>> {
        let services = Api::<Service>::namespaced(self.client.clone(), &self.namespace);
        let object = services.get(service).await?;
        let mut names = Vec::new();
        let status = object.status.and_then(|s| s.load_balancer).and_then(|l| l.ingress);
        for ingress in status.unwrap_or_default() {
            names.extend(ingress.ip.or(ingress.hostname).map(|name| (name, port)));
        }
        let ports = object.spec.and_then(|s| s.ports).unwrap_or_default();
        let node_port = ports.iter().find(|p| p.port == i32::from(port)).and_then(|p| p.node_port);
        if let Some(node_port) = node_port.and_then(|p| u16::try_from(p).ok()) {
            // A few nodes are enough: each of them leads to the Service.
            let nodes =
                Api::<Node>::all(self.client.clone()).list(&ListParams::default().limit(5)).await?.items;
            for address in nodes.into_iter().filter_map(|n| n.status?.addresses).flatten() {
                if ["ExternalIP", "InternalIP"].contains(&address.type_.as_str()) {
                    names.push((address.address, node_port));
                }
            }
        }
        let mut found = Vec::new();
        for (name, port) in names {
            let looked_up =
                tokio::time::timeout(Duration::from_secs(5), tokio::net::lookup_host((name.as_str(), port)));
            found.extend(looked_up.await.into_iter().flatten().flatten());
        }
        Ok(found)
    }
}

/// Makes a namespace and waits until pods may be made in it.
pub(crate) async fn make_namespace(client: &kube::Client, object: &Namespace) -> Result<String> {
    let made = Api::<Namespace>::all(client.clone()).create(&PostParams::default(), object).await?;
    let name = made.metadata.name.context("a created namespace has a name")?;
    ensure!(!name.is_empty(), "a namespace without a name");
    // Pods are refused until the default ServiceAccount is there.
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), &name);
    eventually("the default ServiceAccount", 20, || async { Ok(accounts.get("default").await.map(|_| ())?) })
        .await?;
    Ok(name)
}
