//! A pod's volumes: directories below the node's state directory that its containers mount.
//!
//! `hostPath` volumes lead to a scratch directory of the node, shared by its pods as the host's would be: no test
//! may touch the machine it runs on. Persistent volumes are not offered.

mod atomic;
mod content;
mod token;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, ProjectedVolumeSource, Volume};
use kube::{Client, ResourceExt as _};
use nix::mount::{MntFlags, umount2};
use tokio::sync::watch;
use tracing::warn;

use self::atomic::{File, Files};
use self::content::{Data, Reference};
use self::token::Token;
use crate::container::mounts::tmpfs;
use crate::container::spec::Mount;
use crate::objects::{Change, Kind, Objects};
use crate::pod::fields::Fields;

/// Changes that come this close together are taken as one.
const SETTLE: Duration = Duration::from_millis(200);
/// Pause after volumes could not be brought up to date.
const RETRY: Duration = Duration::from_secs(5);

/// The volumes of one pod.
pub(crate) struct Volumes {
    client: Client,
    objects: Objects,
    /// The pod's own directory of volumes.
    directory: PathBuf,
    /// What stands for the host's file system.
    host: PathBuf,
    host_ip: Ipv4Addr,
    held: Mutex<Held>,
}

/// What must be remembered from one round to the next.
#[derive(Default)]
struct Held {
    /// Volumes that are mounts of their own.
    mounted: BTreeSet<PathBuf>,
    /// Tokens by volume and path.
    tokens: BTreeMap<(String, String), Token>,
}

impl Volumes {
    /// Volumes below `directory`, with `state_dir` holding what stands for the host.
    pub(crate) fn new(
        client: &Client,
        objects: &Objects,
        directory: PathBuf,
        state_dir: &Path,
        host_ip: Ipv4Addr,
    ) -> Self {
        let host = state_dir.join("host");
        let (client, objects) = (client.clone(), objects.clone());
        Self { client, objects, directory, host, host_ip, held: Mutex::default() }
    }

    /// Makes all volumes and brings their contents up to date. The error is what a `FailedMount` Event says.
    pub(crate) async fn sync(&self, pod: &Pod, pod_ip: Option<Ipv4Addr>) -> anyhow::Result<()> {
        for volume in volumes(pod) {
            self.sync_one(pod, pod_ip, volume)
                .await
                .with_context(|| format!("MountVolume.SetUp failed for volume {:?}", volume.name))?;
        }
        Ok(())
    }

    async fn sync_one(&self, pod: &Pod, pod_ip: Option<Ipv4Addr>, volume: &Volume) -> anyhow::Result<()> {
        let place = self.directory.join(&volume.name);
        if let Some(empty) = &volume.empty_dir {
            fs::create_dir_all(&place)?;
            if empty.medium.as_deref() == Some("Memory") && self.held().mounted.insert(place.clone()) {
                tmpfs(&place, "mode=0777")?;
            }
            return Ok(());
        }
        if let Some(host) = &volume.host_path {
            let place = self.host_place(&host.path);
            if matches!(host.type_.as_deref(), Some("File" | "FileOrCreate")) {
                place.parent().map(fs::create_dir_all).transpose()?;
                fs::OpenOptions::new().create(true).append(true).open(&place)?;
            } else if !place.exists() {
                fs::create_dir_all(&place)?;
            }
            return Ok(());
        }
        let files = self.files(pod, pod_ip, volume).await?;
        atomic::write(&place, &files)?;
        Ok(())
    }

    async fn files(&self, pod: &Pod, pod_ip: Option<Ipv4Addr>, volume: &Volume) -> anyhow::Result<Files> {
        let fields = Fields { pod, pod_ip, host_ip: self.host_ip };
        let namespace = pod.namespace().unwrap_or_default();
        if let Some(source) = &volume.config_map {
            let reference = Reference {
                kind: "configmap",
                name: &source.name,
                optional: source.optional.unwrap_or(false),
                items: source.items.as_deref(),
                default_mode: source.default_mode,
            };
            return self.referenced(&namespace, &reference).await;
        }
        if let Some(source) = &volume.secret {
            let reference = Reference {
                kind: "secret",
                name: source.secret_name.as_deref().unwrap_or_default(),
                optional: source.optional.unwrap_or(false),
                items: source.items.as_deref(),
                default_mode: source.default_mode,
            };
            return self.referenced(&namespace, &reference).await;
        }
        if let Some(source) = &volume.downward_api {
            let items = source.items.as_deref().unwrap_or_default();
            return content::downward(items, source.default_mode, fields).map_err(anyhow::Error::msg);
        }
        if let Some(source) = &volume.projected {
            return self.projected(fields, &namespace, &volume.name, source).await;
        }
        if volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some() {
            bail!("persistent volumes are not supported by the test bed: use an emptyDir");
        }
        bail!("its kind is not supported by the test bed")
    }

    async fn projected(
        &self,
        fields: Fields<'_>,
        namespace: &str,
        volume: &str,
        projected: &ProjectedVolumeSource,
    ) -> anyhow::Result<Files> {
        let default_mode = projected.default_mode;
        let mut files = Files::new();
        for source in projected.sources.iter().flatten() {
            let of_object = if let Some(map) = &source.config_map {
                Some(("configmap", &map.name, map.optional, &map.items))
            } else {
                source.secret.as_ref().map(|secret| ("secret", &secret.name, secret.optional, &secret.items))
            };
            if let Some((kind, name, optional, items)) = of_object {
                let optional = optional.unwrap_or(false);
                let reference = Reference { kind, name, optional, items: items.as_deref(), default_mode };
                files.extend(self.referenced(namespace, &reference).await?);
            }
            if let Some(downward) = &source.downward_api {
                let items = downward.items.as_deref().unwrap_or_default();
                files.extend(content::downward(items, default_mode, fields).map_err(anyhow::Error::msg)?);
            }
            if let Some(wanted) = &source.service_account_token {
                let key = (volume.to_owned(), wanted.path.clone());
                let held =
                    self.held().tokens.get(&key).filter(|token| !token.is_due(Timestamp::now())).cloned();
                let token = match held {
                    Some(token) => token,
                    None => token::request(&self.client, fields.pod, wanted).await?,
                };
                let file =
                    File { bytes: token.text.clone().into_bytes(), mode: content::mode(None, default_mode) };
                files.insert(PathBuf::from(&wanted.path), file);
                self.held().tokens.insert(key, token);
            }
            ensure!(
                source.cluster_trust_bundle.is_none(),
                "clusterTrustBundle sources are not supported by the test bed"
            );
        }
        Ok(files)
    }

    async fn referenced(&self, namespace: &str, reference: &Reference<'_>) -> anyhow::Result<Files> {
        let data: Option<Data> = if reference.kind == "secret" {
            let found = self.objects.secret(namespace, reference.name).await?;
            found.map(|secret| content::secret_data(&secret))
        } else {
            let found = self.objects.config_map(namespace, reference.name).await?;
            found.map(|map| content::config_map_data(&map))
        };
        reference.files(data.as_ref()).map_err(anyhow::Error::msg)
    }

    /// The mounts of a container. `expand` resolves `$(VAR)` of a `subPathExpr`. The error is for the Pod's status.
    pub(crate) fn mounts(
        &self,
        pod: &Pod,
        container: &Container,
        expand: impl Fn(&str) -> String,
    ) -> anyhow::Result<Vec<Mount>> {
        let mut mounts = Vec::new();
        for mount in container.volume_mounts.iter().flatten() {
            let volume = volumes(pod)
                .find(|volume| volume.name == mount.name)
                .with_context(|| format!("volume {:?} is not in the Pod", mount.name))?;
            let base = match &volume.host_path {
                Some(host) => self.host_place(&host.path),
                None => self.directory.join(&volume.name),
            };
            let below = mount.sub_path.clone().or_else(|| mount.sub_path_expr.as_deref().map(&expand));
            let source = match below.filter(|below| !below.is_empty()) {
                Some(below) => sub_path(&base, &below).with_context(|| {
                    format!("failed to prepare subPath {below:?} of volume {:?}", mount.name)
                })?,
                None => base,
            };
            // Only these two kinds are ever writable, as in kubelet.
            let writable = volume.empty_dir.is_some() || volume.host_path.is_some();
            mounts.push(Mount {
                source,
                target: Path::new("/").join(&mount.mount_path),
                read_only: !writable || mount.read_only.unwrap_or(false),
            });
        }
        // What lies inside another mount comes after it.
        mounts.sort_by_key(|mount| mount.target.components().count());
        Ok(mounts)
    }

    /// Keeps contents up to date with their objects, the Pod's metadata and the tokens' lives.
    pub(crate) async fn keep_fresh(self: Arc<Self>, mut pod: watch::Receiver<Arc<Pod>>, pod_ip: Ipv4Addr) {
        let mut changes = self.objects.changes();
        let mut failed = false;
        loop {
            let due = self.held().tokens.values().map(|token| token.renew_at).min();
            let due = if failed { Some(Timestamp::now() + RETRY) } else { due };
            tokio::select! {
                // A receiver that lags behind has missed something, which may be ours.
                change = changes.recv() => if let Ok(change) = change
                    && !concerns(&change, &pod.borrow()) { continue },
                outcome = pod.changed() => if outcome.is_err() { return },
                () = sleep_until(due) => {}
            }
            tokio::time::sleep(SETTLE).await;
            let current = Arc::clone(&pod.borrow_and_update());
            let outcome = self.sync(&current, Some(pod_ip)).await;
            failed = outcome.is_err();
            if let Err(error) = outcome {
                // As with kubelet, running containers keep the last contents.
                warn!(pod = current.name_any(), error = format!("{error:#}"), "volumes are not up to date");
            }
        }
    }

    /// Undoes mounts. The directory itself is the caller's to remove.
    pub(crate) fn unmount(&self) {
        for place in std::mem::take(&mut self.held().mounted) {
            if let Err(error) = umount2(&place, MntFlags::MNT_DETACH) {
                warn!(place = %place.display(), %error, "a volume in memory stays mounted");
            }
        }
    }

    fn held(&self) -> std::sync::MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn host_place(&self, path: &str) -> PathBuf {
        let inside: PathBuf =
            Path::new(path).components().filter(|part| matches!(part, Component::Normal(_))).collect();
        self.host.join(inside)
    }
}

/// Sleeps until a moment; without one for ever.
pub(crate) async fn sleep_until(moment: Option<Timestamp>) {
    match moment {
        Some(moment) => {
            let left = moment.duration_since(Timestamp::now());
            tokio::time::sleep(Duration::try_from(left).unwrap_or_default()).await;
        }
        None => std::future::pending().await,
    }
}

fn volumes(pod: &Pod) -> impl Iterator<Item = &Volume> {
    pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten())
}

/// Whether a change may alter what the Pod's volumes hold.
fn concerns(change: &Change, pod: &Pod) -> bool {
    let Some((namespace, name)) = &change.object else {
        return matches!(change.kind, Kind::ConfigMap | Kind::Secret);
    };
    if pod.namespace().as_ref() != Some(namespace) {
        return false;
    }
    let named = |volume: &Volume| {
        let sources = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
        match change.kind {
            Kind::ConfigMap => {
                volume.config_map.as_ref().is_some_and(|map| map.name == *name)
                    || sources.filter_map(|source| source.config_map.as_ref()).any(|map| map.name == *name)
            }
            Kind::Secret => {
                volume.secret.as_ref().is_some_and(|secret| secret.secret_name.as_ref() == Some(name))
                    || sources.filter_map(|source| source.secret.as_ref()).any(|secret| secret.name == *name)
            }
            Kind::Service | Kind::EndpointSlice => false,
        }
    };
    volumes(pod).any(named)
}

/// A place inside a volume, made as a directory if it is not there. Links that lead out are refused.
fn sub_path(base: &Path, below: &str) -> anyhow::Result<PathBuf> {
    let relative = Path::new(below);
    ensure!(
        relative.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)),
        "it must be a relative path without .."
    );
    let base = fs::canonicalize(base)?;
    let wanted = base.join(relative);
    let nearest = wanted.ancestors().find(|path| path.exists()).unwrap_or(&base);
    ensure!(fs::canonicalize(nearest)?.starts_with(&base), "it leads out of the volume");
    if !wanted.exists() {
        fs::create_dir_all(&wanted)?;
    }
    let real = fs::canonicalize(&wanted)?;
    ensure!(real.starts_with(&base), "it leads out of the volume");
    Ok(real)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use serde_json::json;

    use super::*;

    #[test]
    fn sub_paths_stay_in_their_volume() {
        let base = std::env::temp_dir().join(format!("process-node-subpath-{}", std::process::id()));
        fs::create_dir_all(base.join("volume/real")).unwrap();
        let volume = fs::canonicalize(base.join("volume")).unwrap();
        symlink("real", volume.join("inside")).unwrap();
        symlink("../..", volume.join("outside")).unwrap();
        assert_eq!(sub_path(&volume, "a/b").unwrap(), volume.join("a/b"));
        assert_eq!(sub_path(&volume, "inside").unwrap(), volume.join("real"));
        for bad in ["../x", "/x", "outside", "outside/x"] {
            assert!(sub_path(&volume, bad).is_err(), "{bad}");
        }
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn only_changes_of_what_is_mounted_matter() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "ns"},
            "spec": {"containers": [], "volumes": [
                {"name": "a", "configMap": {"name": "one"}},
                {"name": "b", "projected": {"sources": [{"secret": {"name": "two"}}]}}]},
        }))
        .unwrap();
        let change = |kind, namespace: &str, name: &str| Change {
            kind,
            object: Some((namespace.to_owned(), name.to_owned())),
        };
        assert!(concerns(&change(Kind::ConfigMap, "ns", "one"), &pod));
        assert!(concerns(&change(Kind::Secret, "ns", "two"), &pod));
        assert!(concerns(&Change { kind: Kind::Secret, object: None }, &pod));
        assert!(!concerns(&change(Kind::Secret, "ns", "one"), &pod));
        assert!(!concerns(&change(Kind::ConfigMap, "other", "one"), &pod));
        assert!(!concerns(&Change { kind: Kind::Service, object: None }, &pod));
    }
}
