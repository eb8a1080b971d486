//! Starting a container: image, environment, mounts, process, `postStart` hook.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt as _;
use nix::sys::signal::Signal;
use sha2::{Digest as _, Sha256};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::Context;
use super::env::{Sources, expand, service_variables, variables};
use super::events::Severity::{Normal, Warning};
use super::fields::Fields;
use super::message::{Launch, Message};
use super::run::{Body, Run};
use super::setup::Base;
use super::unit::Ended;
use crate::container::exec::ExecTarget;
use crate::container::process::{self, Process};
use crate::container::spec::{ContainerSpec, Mount};
use crate::images::{Image, ProcessImage, Program, command_line, hex};
use crate::logs;
use crate::probe::{Check, Place};

/// What `PATH` is when neither the image nor the Pod sets it.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Where containers leave a last word by default.
const DEFAULT_MESSAGE_PATH: &str = "/dev/termination-log";
/// Kubernetes' limits for that word and for what stands for it.
const MESSAGE_LIMIT: usize = 4096;
const FALLBACK_LIMITS: (usize, usize) = (80, 2048);
/// The exit code of what could not be executed, as container runtimes report it.
const START_ERROR: i32 = 128;
/// A missing `ConfigMap` is looked for again after this.
const CONFIG_RETRY: Duration = Duration::from_secs(5);
/// A `postStart` hook may take as long as its container lives; commands need some limit.
const NO_LIMIT: Duration = Duration::from_hours(24);
/// How many earlier logs are kept: the one that `kubectl logs --previous` shows.
const KEPT_LOGS: i32 = 1;

/// A container to start.
pub(super) struct Start {
    pub(super) cx: Arc<Context>,
    pub(super) pod: Arc<Pod>,
    pub(super) base: Arc<Base>,
    /// Its index among the pod's containers.
    pub(super) unit: usize,
    pub(super) container: Container,
    pub(super) is_init: bool,
    /// Whether it is to run to its end before others start.
    pub(super) runs_to_end: bool,
    /// How many starts came before this one.
    pub(super) attempt: i32,
    pub(super) worker: mpsc::UnboundedSender<Message>,
}

/// Waits for a container's end and reports it.
type Ending = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Why a container could not be created.
struct Refusal {
    reason: &'static str,
    message: String,
    soon: Option<Duration>,
}

impl Refusal {
    fn create(error: &anyhow::Error) -> Self {
        Self { reason: "CreateContainerError", message: format!("{error:#}"), soon: None }
    }

    fn config(message: String) -> Self {
        Self { reason: "CreateContainerConfigError", message, soon: Some(CONFIG_RETRY) }
    }
}

impl Start {
    /// Starts the container and stays with it until its `postStart` hook is done. Everything is reported to the
    /// worker; its end will be too.
    pub(super) async fn run(self) {
        let (launch, ending) = match self.create().await {
            Ok(created) => created,
            Err(refusal) => {
                if refusal.reason != "ErrImagePull" {
                    self.event(Warning, "Failed", format!("Error: {}", refusal.message));
                }
                let Refusal { reason, message, soon } = refusal;
                (Launch::Refused { reason, message, soon }, None)
            }
        };
        let run = match &launch {
            Launch::Running { run, .. } => Some(Run::clone(run)),
            Launch::Refused { .. } | Launch::Broken { .. } => None,
        };
        self.send(Message::Launched { unit: self.unit, launch });
        // Only now, so that the worker never hears of an end before the start.
        ending.map(tokio::spawn);
        if let Some(run) = run {
            self.post_start(run).await;
        }
        self.send(Message::StartDone { unit: self.unit });
    }

    fn send(&self, message: Message) {
        // A worker that is gone has no use for it.
        let _ = self.worker.send(message);
    }

    fn event(&self, severity: super::events::Severity, reason: &'static str, message: String) {
        let container = (self.container.name.as_str(), self.is_init);
        self.cx.events.container(&self.pod, container, severity, reason, message);
    }

    async fn create(&self) -> Result<(Launch, Option<Ending>), Refusal> {
        let reference = self.container.image.as_deref().unwrap_or_default();
        let image = self.cx.images.pull(reference).await.map_err(|error| {
            let message = format!("{error:#}");
            self.event(Warning, "Failed", format!("Failed to pull image {reference:?}: {message}"));
            self.event(Warning, "Failed", "Error: ErrImagePull".to_owned());
            Refusal { reason: "ErrImagePull", message, soon: None }
        })?;
        self.event(Normal, "Pulled", format!("Container image {reference:?} already present on machine"));
        let container_id = self.container_id();
        match &image.program {
            Program::StandIn => self.stand_in(&image, container_id),
            Program::Process(program) => self.process(&image, program, container_id).await,
        }
    }

    /// An identifier that no other container has.
    fn container_id(&self) -> String {
        let uid = self.pod.uid().unwrap_or_default();
        let seed =
            format!("{uid}/{}/{}/{}", self.container.name, self.attempt, Timestamp::now().as_nanosecond());
        format!("process://{}", hex(&Sha256::digest(seed.as_bytes())))
    }

    fn stand_in(&self, image: &Image, container_id: String) -> Result<(Launch, Option<Ending>), Refusal> {
        // Its log exists, and is empty.
        let files = self.prepare_files().and_then(|files| Ok(fs::write(&files.log, "").map(|()| files)?));
        let files = files.map_err(|error| Refusal::create(&error))?;
        let end = CancellationToken::new();
        if self.runs_to_end {
            end.cancel();
        }
        let (tell, ended) = watch::channel(false);
        self.register_log(&files, ended.clone());
        let run = self.handle(Body::StandIn(end.clone()), ended);
        let (worker, unit, id) = (self.worker.clone(), self.unit, container_id.clone());
        let started = Timestamp::now();
        self.announce();
        let ending: Ending = Box::pin(async move {
            end.cancelled().await;
            tell.send_replace(true);
            let _ = worker.send(Message::Exited { unit, ended: Ended::with_code(0, started, &id) });
        });
        let launch = Launch::Running { run: Box::new(run), image_id: image.id.clone(), container_id };
        Ok((launch, Some(ending)))
    }

    fn announce(&self) {
        self.event(Normal, "Created", "Container created".to_owned());
        self.event(Normal, "Started", "Container started".to_owned());
    }

    fn handle(&self, body: Body, ended: watch::Receiver<bool>) -> Run {
        let target = match &body {
            Body::StandIn(_) => None,
            Body::Process(target) => Some(target.clone()),
        };
        Run {
            container: self.container.clone(),
            is_init: self.is_init,
            attempt: self.attempt,
            place: Place { address: self.base.address.into(), target },
            body,
            ended,
        }
    }

    async fn process(
        &self,
        image: &Image,
        program: &ProcessImage,
        container_id: String,
    ) -> Result<(Launch, Option<Ending>), Refusal> {
        let (own, services) = self.own_variables().await?;
        let lookup = |name: &str| own.get(name).or_else(|| services.get(name)).cloned();
        let mut mounts = self.base.etc.clone();
        mounts.extend(program.mounts.iter().cloned());
        if let Some(volumes) = &self.base.volumes {
            let of_volumes = volumes.mounts(&self.pod, &self.container, |text| expand(text, lookup));
            mounts.extend(of_volumes.map_err(|error| Refusal::config(format!("{error:#}")))?);
        }
        let files = self.prepare_files().map_err(|error| Refusal::create(&error))?;
        mounts.push(Mount {
            source: files.message.clone(),
            target: Path::new("/").join(self.message_path()),
            read_only: false,
        });
        let working_dir =
            self.container.working_dir.clone().map(PathBuf::from).filter(|path| path.is_absolute());
        let spec = ContainerSpec {
            sandbox: self.base.sandbox,
            root: files.root.clone(),
            base: program.base.clone(),
            read_only_root: self
                .container
                .security_context
                .as_ref()
                .and_then(|context| context.read_only_root_filesystem)
                .unwrap_or(false),
            mounts,
            argv: command_line(&self.container, program, |text| expand(text, lookup)),
            env: environment(&self.base.hostname, program, services.clone(), own.clone()),
            working_dir: working_dir.or_else(|| program.working_dir.clone()).unwrap_or_else(|| "/".into()),
        };
        let started = Timestamp::now();
        self.event(Normal, "Created", "Container created".to_owned());
        match process::start(&spec, &files.log).await {
            Ok(process) => {
                self.event(Normal, "Started", "Container started".to_owned());
                let target = ExecTarget { pid: process.pid, env: spec.env, working_dir: spec.working_dir };
                let (tell, ended) = watch::channel(false);
                let run = self.handle(Body::Process(target), ended.clone());
                self.register_log(&files, ended);
                let ending = self.ending(process, files, tell, started, container_id.clone());
                Ok((
                    Launch::Running { run: Box::new(run), image_id: image.id.clone(), container_id },
                    Some(ending),
                ))
            }
            Err(error) => {
                let message = format!("{error:#}");
                self.event(Warning, "Failed", format!("Error: failed to start container: {message}"));
                let (_, ended) = watch::channel(true);
                self.register_log(&files, ended);
                let mut ended = Ended::with_code(START_ERROR, started, &container_id);
                ended.reason = "StartError";
                ended.message = Some(message);
                Ok((Launch::Broken { ended, image_id: image.id.clone(), container_id }, None))
            }
        }
    }

    fn register_log(&self, files: &ContainerFiles, ended: watch::Receiver<bool>) {
        let namespace = self.pod.namespace().unwrap_or_default();
        self.cx.logs.register(
            &namespace,
            &self.pod.name_any(),
            &self.container.name,
            files.log.clone(),
            ended,
        );
    }

    /// The container's own variables, and those that tell of Services.
    async fn own_variables(&self) -> Result<(BTreeMap<String, String>, BTreeMap<String, String>), Refusal> {
        let namespace = self.pod.namespace().unwrap_or_default();
        let spec = self.pod.spec.as_ref();
        let links = spec.and_then(|spec| spec.enable_service_links).unwrap_or(true);
        let first = self.cx.config.service_cidr.nth(1);
        let services = service_variables(&self.cx.objects.services.state(), &namespace, links, first);
        let sources = Sources::fetch(&self.cx.objects, &namespace, &self.container)
            .await
            .map_err(|error| Refusal::config(error.to_string()))?;
        let fields =
            Fields { pod: &self.pod, pod_ip: Some(self.base.address), host_ip: self.cx.config.node_ip };
        let own = variables(&self.container, &sources, fields, &services).map_err(Refusal::config)?;
        Ok((own, services))
    }

    fn message_path(&self) -> &str {
        let own = self.container.termination_message_path.as_deref();
        own.filter(|path| !path.is_empty()).unwrap_or(DEFAULT_MESSAGE_PATH)
    }

    fn prepare_files(&self) -> anyhow::Result<ContainerFiles> {
        let directory = self.base.directory.join("containers").join(&self.container.name);
        let logs = self.base.directory.join("logs").join(&self.container.name);
        let root = directory.join("root");
        fs::create_dir_all(&root)?;
        fs::create_dir_all(&logs)?;
        let message = directory.join(format!("termination-log-{}", self.attempt));
        fs::write(&message, "")?;
        let log = |attempt: i32| logs.join(format!("{attempt}.log"));
        let old = self.attempt - KEPT_LOGS - 1;
        // Whatever of these is not there need not be removed.
        let _ = fs::remove_file(log(old));
        let _ = fs::remove_file(directory.join(format!("termination-log-{}", self.attempt - 1)));
        Ok(ContainerFiles { root, message, log: log(self.attempt) })
    }

    /// Waits for the container's end, reads its last word and reports.
    fn ending(
        &self,
        process: Process,
        files: ContainerFiles,
        tell: watch::Sender<bool>,
        started: Timestamp,
        container_id: String,
    ) -> Ending {
        let falls_back =
            self.container.termination_message_policy.as_deref() == Some("FallbackToLogsOnError");
        let (worker, unit) = (self.worker.clone(), self.unit);
        Box::pin(async move {
            let code = process.wait().await;
            tell.send_replace(true);
            let mut ended = Ended::with_code(code, started, &container_id);
            ended.message = last_word(&files, code, falls_back);
            let _ = worker.send(Message::Exited { unit, ended });
        })
    }

    async fn post_start(&self, run: Run) {
        let hook = self.container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.post_start.as_ref());
        let Some(hook) = hook.filter(|_| run.is_process()) else { return };
        let outcome = match Check::of_hook(hook, &self.container) {
            Ok(check) => {
                let mut ended = run.clone();
                tokio::select! {
                    outcome = check.run(&run.place, NO_LIMIT) => outcome,
                    () = ended.wait() => return,
                }
            }
            Err(error) => Err(error),
        };
        if let Err(error) = outcome {
            self.event(Warning, "FailedPostStartHook", format!("PostStartHook failed: {error}"));
            self.event(Normal, "Killing", "FailedPostStartHook".to_owned());
            run.signal(Signal::SIGKILL);
        }
    }
}

/// Files of one start of a container.
struct ContainerFiles {
    root: PathBuf,
    message: PathBuf,
    log: PathBuf,
}

/// What the container left in its termination message file, or, where that is asked for, the end of its log.
fn last_word(files: &ContainerFiles, code: i32, falls_back: bool) -> Option<String> {
    let bytes = fs::read(&files.message).unwrap_or_default();
    let mut text = String::from_utf8_lossy(&bytes[..bytes.len().min(MESSAGE_LIMIT)]).into_owned();
    if text.is_empty() && falls_back && code != 0 {
        text = logs::tail(&files.log, FALLBACK_LIMITS.0, FALLBACK_LIMITS.1);
    }
    Some(text).filter(|text| !text.is_empty())
}

/// The whole environment: what the container sets itself wins over what the image sets, and that over what tells of
/// Services.
fn environment(
    hostname: &str,
    image: &ProcessImage,
    services: BTreeMap<String, String>,
    own: BTreeMap<String, String>,
) -> Vec<(String, String)> {
    let mut all = services;
    all.insert("PATH".to_owned(), DEFAULT_PATH.to_owned());
    all.insert("HOSTNAME".to_owned(), hostname.to_owned());
    all.insert("HOME".to_owned(), "/root".to_owned());
    all.extend(image.env.iter().cloned());
    all.extend(own);
    all.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::spec::RootBase;

    #[test]
    fn who_wins_in_the_environment() {
        let pairs = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let image = ProcessImage {
            base: RootBase::Host { shell: false, writable: Vec::new() },
            mounts: Vec::new(),
            entrypoint: Vec::new(),
            cmd: Vec::new(),
            env: pairs(&[("A", "image"), ("B", "image"), ("PATH", "/image")]).into_iter().collect(),
            working_dir: None,
        };
        let services = pairs(&[("A", "service"), ("WEB_SERVICE_HOST", "10.96.0.2")]);
        let env = environment("host", &image, services, pairs(&[("B", "pod")]));
        let expected = [
            ("A", "image"),
            ("B", "pod"),
            ("HOME", "/root"),
            ("HOSTNAME", "host"),
            ("PATH", "/image"),
            ("WEB_SERVICE_HOST", "10.96.0.2"),
        ];
        assert_eq!(env, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn last_words_come_from_the_file_or_the_log() {
        let directory = std::env::temp_dir().join(format!("process-node-word-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let files = ContainerFiles {
            root: PathBuf::new(),
            message: directory.join("message"),
            log: directory.join("log"),
        };
        fs::write(&files.log, "2026-01-02T03:04:05.000000000Z stderr F it broke\n").unwrap();
        fs::write(&files.message, "").unwrap();
        assert_eq!(last_word(&files, 1, true).as_deref(), Some("it broke\n"));
        assert_eq!(last_word(&files, 0, true), None);
        assert_eq!(last_word(&files, 1, false), None);
        fs::write(&files.message, "x".repeat(5000)).unwrap();
        assert_eq!(last_word(&files, 1, true).unwrap().len(), MESSAGE_LIMIT);
        fs::remove_dir_all(&directory).unwrap();
    }
}
