//! From an image reference to something that can run.

mod oci;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Container;
use process_node::config::{ImageMap, ImageSource};
use sha2::{Digest as _, Sha256};

use crate::container::spec::{Mount, RootBase};

/// The images this node can run.
#[derive(Debug)]
pub(crate) struct Images {
    map: PathBuf,
    unpacked: PathBuf,
    /// Two pods that pull the same image unpack it once.
    unpacking: tokio::sync::Mutex<()>,
}

/// An image, ready to run.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    /// `status.containerStatuses[].imageID`.
    pub(crate) id: String,
    /// What runs.
    pub(crate) program: Program,
}

/// What an image runs.
#[derive(Clone, Debug)]
pub(crate) enum Program {
    /// Nothing: ready at once.
    StandIn,
    /// A process.
    Process(ProcessImage),
}

/// The part of an image's configuration that matters here.
#[derive(Clone, Debug)]
pub(crate) struct ProcessImage {
    /// The root directory.
    pub(crate) base: RootBase,
    /// What is mounted into it before the Pod's volumes.
    pub(crate) mounts: Vec<Mount>,
    /// `Entrypoint`.
    pub(crate) entrypoint: Vec<String>,
    /// `Cmd`.
    pub(crate) cmd: Vec<String>,
    /// `Env`, in order.
    pub(crate) env: Vec<(String, String)>,
    /// `WorkingDir`.
    pub(crate) working_dir: Option<PathBuf>,
}

impl Images {
    /// Images by the map in `map`; archives are unpacked below `state_dir`.
    pub(crate) fn new(map: PathBuf, state_dir: &Path) -> Self {
        Self { map, unpacked: state_dir.join("images"), unpacking: tokio::sync::Mutex::new(()) }
    }

    /// Finds what `image` stands for, unpacking it if need be. The error is what a registry client would say.
    pub(crate) async fn pull(&self, image: &str) -> anyhow::Result<Image> {
        let map = ImageMap::load(&self.map)?;
        let source = map.find(image).cloned().with_context(|| {
            format!("failed to pull and unpack image {image:?}: no rule of {} matches it", self.map.display())
        })?;
        match source {
            ImageSource::StandIn => {
                Ok(Image { id: made_up_id("stand-in", image), program: Program::StandIn })
            }
            ImageSource::OciArchive { path } => {
                let _one_at_a_time = self.unpacking.lock().await;
                let unpacked = self.unpacked.clone();
                let archive = path.clone();
                tokio::task::spawn_blocking(move || oci::unpack(&archive, &unpacked))
                    .await
                    .context("unpack the image")?
                    .with_context(|| format!("failed to unpack image {image:?} from {}", path.display()))
            }
            ImageSource::Host { files, entrypoint, cmd, env, working_dir, writable, shell } => Ok(Image {
                id: made_up_id("host", image),
                program: Program::Process(ProcessImage {
                    base: RootBase::Host { shell, writable },
                    mounts: files
                        .into_iter()
                        .map(|(target, source)| Mount { source, target, read_only: true })
                        .collect(),
                    entrypoint,
                    cmd,
                    env: env.into_iter().collect(),
                    working_dir,
                }),
            }),
        }
    }

    /// Whether `image` is known to be a stand-in.
    pub(crate) fn is_stand_in(&self, image: &str) -> bool {
        ImageMap::load(&self.map).is_ok_and(|map| map.find(image) == Some(&ImageSource::StandIn))
    }

    /// When the image map was last written; a change is a reason to try failed pulls again.
    pub(crate) fn changed(&self) -> Option<SystemTime> {
        std::fs::metadata(&self.map).and_then(|file| file.modified()).ok()
    }
}

/// Programs of this machine have no digest; the reference's own digest is as stable.
fn made_up_id(kind: &str, image: &str) -> String {
    format!("{kind}@sha256:{}", hex(&Sha256::digest(image.as_bytes())))
}

/// This machine's architecture as Go, and with it OCI and Kubernetes, calls it.
pub(crate) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Program and arguments as Kubernetes combines them: `command` replaces the entrypoint and with it the image's
/// arguments; `args` replaces the arguments. `expand` resolves `$(VAR)`.
pub(crate) fn command_line(
    container: &Container,
    image: &ProcessImage,
    expand: impl Fn(&str) -> String,
) -> Vec<String> {
    let given = |list: &Option<Vec<String>>| -> Vec<String> {
        list.iter().flatten().map(|text| expand(text)).collect()
    };
    let (command, args) = (given(&container.command), given(&container.args));
    match (command.is_empty(), args.is_empty()) {
        (true, true) => [image.entrypoint.clone(), image.cmd.clone()].concat(),
        (true, false) => [image.entrypoint.clone(), args].concat(),
        (false, _) => [command, args].concat(),
    }
}

/// Lines `NAME=value` as pairs; later ones win.
fn environment(lines: impl IntoIterator<Item = String>) -> Vec<(String, String)> {
    let pairs: BTreeMap<_, _> = lines
        .into_iter()
        .filter_map(|line| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned())))
        .collect();
    pairs.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn command_and_args_combine_as_kubernetes_documents() {
        let image = ProcessImage {
            base: RootBase::Host { shell: false, writable: Vec::new() },
            mounts: Vec::new(),
            entrypoint: words("/ep-1"),
            cmd: words("foo bar"),
            env: Vec::new(),
            working_dir: None,
        };
        // The table in Kubernetes' "Define a command and arguments for a container".
        for (command, args, expected) in [
            (None, None, "/ep-1 foo bar"),
            (Some("/ep-2"), None, "/ep-2"),
            (None, Some("zoo boo"), "/ep-1 zoo boo"),
            (Some("/ep-2"), Some("zoo boo"), "/ep-2 zoo boo"),
        ] {
            let container =
                Container { command: command.map(words), args: args.map(words), ..Container::default() };
            assert_eq!(command_line(&container, &image, str::to_owned), words(expected));
        }
    }

    #[tokio::test]
    async fn the_map_is_read_at_every_pull() {
        let directory = std::env::temp_dir().join(format!("process-node-images-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let map = directory.join("images.json");
        let images = Images::new(map.clone(), &directory);
        std::fs::write(&map, "{}").unwrap();
        let error = images.pull("x").await.unwrap_err();
        assert!(error.to_string().contains("no rule"), "{error}");
        std::fs::write(&map, r#"{"stand_in_all": true}"#).unwrap();
        assert!(matches!(images.pull("x").await.unwrap().program, Program::StandIn));
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
