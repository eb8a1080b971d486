//! Which cluster, and how it is spoken to.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt as _;

use super::{Args, MARK, OWN};
use crate::paths::repo_root;

/// The repository and the tag that `cargo xtask image` gives, and `deploy/` names.
pub(super) const REPOSITORY: &str = "istio-operators";
pub(super) const TAG: &str = "dev";

/// An existing cluster, and the run on it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Target {
    kubeconfig: Option<PathBuf>,
    /// Always named, so that `kubectl config use-context` in another terminal leads no part of the run elsewhere.
    context: String,
    server: String,
    image_prefix: String,
    image_tag: String,
    /// The run's own name, the value of [`MARK`].
    pub run: String,
    /// The Istio to test with.
    pub mesh: Mesh,
}

/// An Istio control plane.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Mesh {
    /// The version that the tag of istiod's image says.
    pub version: String,
    /// Its revision; `default` where it has none of its own.
    pub revision: String,
    /// istiod's namespace.
    pub namespace: String,
    /// The mesh's root namespace.
    pub root_namespace: String,
}

impl Target {
    /// The cluster that kubectl would take. Nothing is asked of it yet; the Istio is a guess.
    pub(super) fn resolve(args: &Args) -> Result<Self> {
        let file = read(args.kubeconfig.as_deref())?;
        let contexts: Vec<&str> = file.contexts.iter().map(|context| context.name.as_str()).collect();
        let context = args.context.clone().or_else(|| file.current_context.clone()).with_context(|| {
            format!(
                "the kubeconfig has no current context; choose one with --context: {}",
                contexts.join(", ")
            )
        })?;
        let chosen = file.contexts.iter().find(|known| known.name == context).with_context(|| {
            format!("the kubeconfig has no context {context:?}; there are: {}", contexts.join(", "))
        })?;
        let cluster = chosen.context.as_ref().map(|context| context.cluster.clone()).unwrap_or_default();
        let server = file.clusters.iter().find(|known| known.name == cluster);
        let server = server.and_then(|known| known.cluster.as_ref()?.server.clone()).with_context(|| {
            format!("context {context:?} names cluster {cluster:?}, for which the kubeconfig has no server")
        })?;
        ensure!(
            !args.image_prefix.is_empty() && !args.image_prefix.ends_with('/'),
            "--image-prefix is {:?}; give it as REGISTRY/PATH, without a slash at the end",
            args.image_prefix
        );
        for text in [&args.image_prefix, &args.image_tag] {
            let plain = |c: char| c.is_ascii_alphanumeric() || "._-/:".contains(c);
            ensure!(text.chars().all(plain), "{text:?} cannot be part of an image's name");
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        Ok(Self {
            kubeconfig: args.kubeconfig.as_deref().map(std::path::absolute).transpose()?,
            context,
            server,
            image_prefix: args.image_prefix.clone(),
            image_tag: args.image_tag.clone(),
            run: format!("r{now}"),
            mesh: Mesh {
                version: String::new(),
                revision: args.revision.clone().unwrap_or_else(|| "default".to_owned()),
                namespace: crate::istio::ROOT_NAMESPACE.to_owned(),
                root_namespace: crate::istio::ROOT_NAMESPACE.to_owned(),
            },
        })
    }

    pub(crate) fn read(file: &Path) -> Result<Self> {
        let text = std::fs::read(file).with_context(|| format!("read {}", file.display()))?;
        Ok(serde_json::from_slice(&text)?)
    }

    /// The cluster for people: context and server.
    pub(super) fn says(&self) -> String {
        format!("context {}, server {}", self.context, self.server)
    }

    /// The label of what the run makes.
    pub(crate) fn mark(&self) -> (String, String) {
        (MARK.to_owned(), self.run.clone())
    }

    /// An image of ours as this cluster names it.
    pub(crate) fn image(&self, name: &str) -> String {
        format!("{}/{name}:{}", self.image_prefix, self.image_tag)
    }

    /// A client with the rights of the kubeconfig's user.
    pub(crate) async fn client(&self) -> Result<kube::Client> {
        crate::install_crypto();
        let file = read(self.kubeconfig.as_deref())?;
        let options =
            KubeConfigOptions { context: Some(self.context.clone()), ..KubeConfigOptions::default() };
        let config =
            kube::Config::from_custom_kubeconfig(file, &options).await.with_context(|| self.says())?;
        Ok(kube::Client::try_from(config)?)
    }

    /// `kubectl` from the `PATH`, for this cluster.
    pub(crate) fn kubectl<I, S>(&self, args: I) -> Command
    where
        I: IntoIterator<Item = S>,
        S: AsRef<std::ffi::OsStr>,
    {
        let mut command = Command::new("kubectl");
        if let Some(file) = &self.kubeconfig {
            command.arg("--kubeconfig").arg(file);
        }
        command.args(["--context", &self.context]).args(args);
        // A terminal's Ctrl-C is for the run, which then removes what it made with more of these.
        command.process_group(0);
        command
    }

    /// Runs kubectl to its end and gives its standard output; it is ended when nobody waits for it any more.
    pub(super) async fn ask(&self, args: &[&str], input: Option<String>) -> Result<String> {
        ended(self.kubectl(args).into(), input).await.with_context(|| format!("kubectl {}", args.join(" ")))
    }

    /// A folder of `deploy/` as `kubectl apply -k` has it, but for what `docs/install.md` tells users to change: the
    /// image's name, and the root namespace where it is another one.
    pub(super) fn rendered(&self, folder: &str) -> Result<String> {
        let path = repo_root().join(folder);
        let mut command = Command::new("kubectl");
        command.arg("kustomize").arg(&path);
        let text = crate::command::output(command, None).with_context(|| format!("render {folder}"))?;
        let image = format!("image: {REPOSITORY}/{OWN}:{TAG}");
        ensure!(text.matches(&image).count() == 1, "{folder} does not name {image} once");
        let text = text.replace(&image, &format!("image: {}", self.image(OWN)));
        let root = |namespace: &str| format!("namespace: {namespace}\n");
        Ok(text.replace(&root(crate::istio::ROOT_NAMESPACE), &root(&self.mesh.root_namespace)))
    }
}

fn read(kubeconfig: Option<&Path>) -> Result<Kubeconfig> {
    match kubeconfig {
        Some(file) => Kubeconfig::read_from(file).with_context(|| format!("read {}", file.display())),
        None => Kubeconfig::read()
            .context("read the kubeconfig; name another one with --kubeconfig or KUBECONFIG"),
    }
}

/// A command's standard output, once it has ended well.
async fn ended(mut command: tokio::process::Command, input: Option<String>) -> Result<String> {
    command.kill_on_drop(true).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    let mut child = command.spawn().context("it has to be on the PATH")?;
    let stdin = child.stdin.take();
    let write = async {
        if let (Some(mut stdin), Some(text)) = (stdin, input) {
            // One that ends early breaks the pipe; its exit status says more than that.
            let _ = stdin.write_all(text.as_bytes()).await;
        }
    };
    let ((), out) = tokio::join!(write, child.wait_with_output());
    let out = out?;
    if !out.status.success() {
        bail!("failed ({}): {}", out.status, String::from_utf8_lossy(&out.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"{"apiVersion": "v1", "kind": "Config", "current-context": "mine",
        "clusters": [{"name": "c", "cluster": {"server": "https://192.0.2.1:6443"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [
            {"name": "mine", "context": {"cluster": "c", "user": "u"}},
            {"name": "torn", "context": {"cluster": "gone", "user": "u"}}]}"#;

    fn resolved(change: impl Fn(&mut Args)) -> Result<Target> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("config");
        std::fs::write(&path, FILE)?;
        let mut args = Args { kubeconfig: Some(path), ..Args::default() };
        change(&mut args);
        Target::resolve(&args)
    }

    #[test]
    fn the_current_context_is_named_in_every_call() {
        let target = resolved(|_| {}).unwrap();
        assert_eq!(target.says(), "context mine, server https://192.0.2.1:6443");
        assert_eq!(target.image("test-server"), "istio-operators/test-server:dev");
        let command = target.kubectl(["get", "pods"]);
        let args: Vec<_> = command.get_args().map(|arg| arg.to_string_lossy().into_owned()).collect();
        assert_eq!(args[0], "--kubeconfig");
        assert_eq!(args[2..], ["--context", "mine", "get", "pods"]);
    }

    #[test]
    fn what_is_wrong_is_named_with_what_there_is() {
        let error = |change: fn(&mut Args)| format!("{:#}", resolved(change).unwrap_err());
        let unknown = error(|args| args.context = Some("yours".to_owned()));
        assert!(unknown.contains("no context \"yours\"; there are: mine, torn"), "{unknown}");
        let torn = error(|args| args.context = Some("torn".to_owned()));
        assert!(torn.contains("\"gone\""), "{torn}");
        let slash = error(|args| args.image_prefix = "registry.example.org/".to_owned());
        assert!(slash.contains("without a slash at the end"), "{slash}");
        let space = error(|args| args.image_tag = "a\nb".to_owned());
        assert!(space.contains("cannot be part of an image's name"), "{space}");
    }

    #[test]
    fn the_defaults_are_those_of_the_command_line() {
        use clap::{Args as _, FromArgMatches as _};
        let command = Args::augment_args(clap::Command::new("test").no_binary_name(true));
        let args = Args::from_arg_matches(&command.get_matches_from([""; 0])).unwrap();
        assert_eq!(args, Args::default());
    }
}
