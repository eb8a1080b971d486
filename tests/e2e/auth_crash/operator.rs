//! The operator as a process of the test, behind the fault proxy.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use tempfile::TempDir;
use testbed::fault::{FaultProxy, Faults, Rule};
use testbed::harness::Ctx;

/// A process that is started again when it dies, as a Deployment would.
pub(super) struct Operator {
    proxy: FaultProxy,
    program: PathBuf,
    folder: TempDir,
    running: Option<Running>,
}

struct Running {
    child: Arc<Mutex<Child>>,
    keeper: tokio::task::JoinHandle<()>,
    deaths: Arc<Mutex<usize>>,
}

impl Operator {
    /// With the rights of the ServiceAccount from `deploy/`.
    pub(super) async fn new(t: &Ctx) -> Result<Self> {
        let file = Kubeconfig::read_from(t.session.kubeconfig())?;
        let upstream = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        let proxy = FaultProxy::start(&upstream).await?;
        let accounts = Api::<ServiceAccount>::namespaced(t.client.clone(), super::OWN);
        let spec = TokenRequestSpec { expiration_seconds: Some(7200), ..TokenRequestSpec::default() };
        let request = TokenRequest { spec, ..TokenRequest::default() };
        let token = accounts.create_token_request(super::OWN, &PostParams::default(), &request).await?;
        let token = token.status.context("the API server issues a token")?.token;
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join("kubeconfig"), proxy.kubeconfig(&token))?;
        Ok(Self { proxy, program: testbed::images::program("istio-integrator")?, folder, running: None })
    }

    pub(super) fn faults(&self) -> &Faults {
        self.proxy.faults()
    }

    /// Starts it. A rule that needs the process's id is made at once, before the process has asked for anything.
    pub(super) fn start(&mut self, rule: Option<&dyn Fn(i32) -> Rule>) -> Result<()> {
        let launch = self.launcher();
        let first = launch()?;
        if let Some(rule) = rule {
            self.faults().add(rule(i32::try_from(first.id())?));
        }
        let (child, deaths) = (Arc::new(Mutex::new(first)), Arc::new(Mutex::new(0)));
        let (kept, died) = (Arc::clone(&child), Arc::clone(&deaths));
        let keeper = tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(100)).await;
                let mut child = kept.lock().unwrap_or_else(PoisonError::into_inner);
                if matches!(child.try_wait(), Ok(Some(_))) {
                    *died.lock().unwrap_or_else(PoisonError::into_inner) += 1;
                    if let Ok(next) = launch() {
                        *child = next;
                    }
                }
            }
        });
        self.running = Some(Running { child, keeper, deaths });
        Ok(())
    }

    fn launcher(&self) -> impl Fn() -> Result<Child> + Send + 'static {
        let (program, folder) = (self.program.clone(), self.folder.path().to_owned());
        move || {
            let log = File::options().create(true).append(true).open(folder.join("log"))?;
            let mut command = Command::new(&program);
            command
                .args([
                    "run",
                    "--no-leader-election",
                    "--log-format",
                    "text",
                    "--metrics-address",
                    "127.0.0.1:0",
                ])
                .args(["--chain-interval", "1s", "--drain-time", "1s", "--namespace", super::OWN])
                .env("KUBECONFIG", folder.join("kubeconfig"))
                .stdin(Stdio::null())
                .stdout(log.try_clone()?)
                .stderr(log);
            command.spawn().with_context(|| format!("start {}", program.display()))
        }
    }

    /// How often it has died since it was started.
    pub(super) fn deaths(&self) -> usize {
        let deaths = self.running.as_ref().map(|running| &running.deaths);
        deaths.map_or(0, |deaths| *deaths.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends it.
    pub(super) fn stop(&mut self) {
        if let Some(Running { child, keeper, .. }) = self.running.take() {
            keeper.abort();
            let mut child = child.lock().unwrap_or_else(PoisonError::into_inner);
            // One that is gone already is as good.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// The last lines of its log, for an error.
    pub(super) fn tail(&self, what: &str) -> String {
        let text = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let last = lines.get(lines.len().saturating_sub(40)..).unwrap_or_default();
        format!("{what}; the operator's log ends with\n{}", last.join("\n"))
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.stop();
    }
}
