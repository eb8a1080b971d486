//! OCI image layouts in a tar file, unpacked once for each image digest.
//!
//! Formats: the OCI Image Format Specification, `image-layout.md`, `manifest.md`, `config.md` and `layer.md`.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use flate2::read::GzDecoder;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};
use tar::{Archive, EntryType};

use super::{Image, ProcessImage, Program, architecture, environment, hex};
use crate::container::spec::RootBase;

/// A file of this name removes its namesake, without the prefix, of the layers below.
const WHITEOUT: &str = ".wh.";
/// A file of this name removes everything that the layers below hold in its directory.
const OPAQUE: &str = ".wh..wh..opq";
/// Larger documents are no manifests.
const MAX_DOCUMENT: u64 = 4 << 20;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    media_type: String,
    digest: String,
    platform: Option<Platform>,
}

#[derive(Deserialize)]
struct Platform {
    architecture: String,
    os: String,
}

#[derive(Deserialize)]
struct Index {
    manifests: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Manifest {
    config: Descriptor,
    layers: Vec<Descriptor>,
}

#[derive(Deserialize, Default)]
struct Document {
    #[serde(default)]
    config: Option<ContainerConfig>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct ContainerConfig {
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
    env: Option<Vec<String>>,
    working_dir: Option<String>,
}

/// Unpacks the image in `archive` below `store`, unless it is there already.
pub(super) fn unpack(archive: &Path, store: &Path) -> anyhow::Result<Image> {
    let layout = Layout::open(archive)?;
    let index: Index = layout.document(Path::new("index.json"))?;
    let manifest_descriptor = layout.manifest(index, 0)?;
    let manifest: Manifest = layout.blob_document(&manifest_descriptor.digest)?;
    let document: Document = layout.blob_document(&manifest.config.digest)?;
    // The identity of an image is its configuration's digest, which covers its layers.
    let id = &manifest.config.digest;
    let tree = store.join(file_name(id)?);
    if !tree.exists() {
        fs::create_dir_all(store)?;
        let unfinished = store.join(format!("{}.unfinished", file_name(id)?));
        if unfinished.exists() {
            fs::remove_dir_all(&unfinished)?;
        }
        fs::create_dir(&unfinished)?;
        for layer in &manifest.layers {
            layout.apply(layer, &unfinished).with_context(|| format!("layer {}", layer.digest))?;
        }
        fs::rename(&unfinished, &tree)?;
    }
    let config = document.config.unwrap_or_default();
    Ok(Image {
        id: id.clone(),
        program: Program::Process(ProcessImage {
            base: RootBase::Image { tree },
            mounts: Vec::new(),
            entrypoint: config.entrypoint.unwrap_or_default(),
            cmd: config.cmd.unwrap_or_default(),
            env: environment(config.env.unwrap_or_default()),
            working_dir: config.working_dir.filter(|path| !path.is_empty()).map(PathBuf::from),
        }),
    })
}

/// An opened archive: where each of its files lies.
struct Layout {
    path: PathBuf,
    files: HashMap<PathBuf, (u64, u64)>,
}

impl Layout {
    fn open(path: &Path) -> anyhow::Result<Self> {
        let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
        let mut files = HashMap::new();
        let mut archive = Archive::new(BufReader::new(file));
        for entry in archive.entries_with_seek().context("it is no tar file")? {
            let entry = entry.context("it is no whole tar file")?;
            if entry.header().entry_type() == EntryType::Regular {
                let name: PathBuf =
                    entry.path()?.components().filter(|part| matches!(part, Component::Normal(_))).collect();
                files.insert(name, (entry.raw_file_position(), entry.size()));
            }
        }
        Ok(Self { path: path.to_owned(), files })
    }

    fn read(&self, name: &Path) -> anyhow::Result<impl Read + use<>> {
        use std::io::Seek as _;
        let (at, length) =
            self.files.get(name).with_context(|| format!("{} is missing in it", name.display()))?;
        let mut file = File::open(&self.path)?;
        file.seek(io::SeekFrom::Start(*at))?;
        Ok(BufReader::new(file).take(*length))
    }

    fn document<T: DeserializeOwned>(&self, name: &Path) -> anyhow::Result<T> {
        serde_json::from_reader(self.read(name)?.take(MAX_DOCUMENT))
            .with_context(|| format!("{} is not what it should hold", name.display()))
    }

    fn blob_document<T: DeserializeOwned>(&self, digest: &str) -> anyhow::Result<T> {
        let name = blob(digest)?;
        let mut bytes = Vec::new();
        self.read(&name)?.take(MAX_DOCUMENT).read_to_end(&mut bytes)?;
        ensure!(format!("sha256:{}", hex(&Sha256::digest(&bytes))) == digest, "blob {digest} is damaged");
        serde_json::from_slice(&bytes)
            .with_context(|| format!("{} is not what it should hold", name.display()))
    }

    /// The manifest for this machine, which may lie in an index inside the index.
    fn manifest(&self, index: Index, depth: usize) -> anyhow::Result<Descriptor> {
        ensure!(depth < 4, "indexes are nested too deep");
        let fits = |descriptor: &Descriptor| {
            descriptor
                .platform
                .as_ref()
                .is_none_or(|platform| platform.os == "linux" && platform.architecture == architecture())
        };
        let found = index.manifests.into_iter().find(fits);
        let found = found.with_context(|| format!("it holds no image for linux/{}", architecture()))?;
        if found.media_type.contains("index") || found.media_type.contains("manifest.list") {
            return self.manifest(self.blob_document(&found.digest)?, depth + 1);
        }
        Ok(found)
    }

    fn apply(&self, layer: &Descriptor, tree: &Path) -> anyhow::Result<()> {
        let mut blob = Hashed { inner: self.read(&blob(&layer.digest)?)?, hash: Sha256::new() };
        match layer.media_type.rsplit(['.', '+']).next() {
            Some("gzip") => apply_layer(GzDecoder::new(&mut blob), tree)?,
            Some("tar") => apply_layer(&mut blob, tree)?,
            _ => bail!("its media type {} is not supported: use tar or tar+gzip", layer.media_type),
        }
        io::copy(&mut blob, &mut io::sink())?;
        ensure!(format!("sha256:{}", hex(&blob.hash.finalize())) == layer.digest, "it is damaged");
        Ok(())
    }
}

/// A reader that digests what passes.
struct Hashed<R> {
    inner: R,
    hash: Sha256,
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.hash.update(&buffer[..read]);
        Ok(read)
    }
}

fn blob(digest: &str) -> anyhow::Result<PathBuf> {
    file_name(digest)?;
    Ok(Path::new("blobs").join(digest.replacen(':', "/", 1)))
}

/// A digest as a file name; only those that can be one are accepted.
fn file_name(digest: &str) -> anyhow::Result<String> {
    let hash = digest.strip_prefix("sha256:").with_context(|| format!("digest {digest:?} is not sha256"))?;
    ensure!(
        hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "digest {digest:?} is malformed"
    );
    Ok(format!("sha256-{hash}"))
}

/// Unpacks a layer over those before it. Entries that would leave the tree are refused; device nodes, which a user
/// namespace cannot make, are left out.
fn apply_layer(layer: impl Read, tree: &Path) -> anyhow::Result<()> {
    let mut archive = Archive::new(layer);
    archive.set_preserve_permissions(true);
    archive.set_preserve_ownerships(false);
    archive.set_overwrite(true);
    let tree = fs::canonicalize(tree)?;
    // Opaque markers hide only lower layers, wherever in this one they stand.
    let mut of_this_layer: Vec<PathBuf> = Vec::new();
    let mut directories: Vec<(PathBuf, u32)> = Vec::new();
    for entry in archive.entries().context("it is no tar file")? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let Some((place, name)) = place(&tree, &path)? else { continue };
        if name == OPAQUE {
            clear(place.parent().unwrap_or(&tree), &of_this_layer)?;
            continue;
        }
        if let Some(hidden) = name.strip_prefix(WHITEOUT) {
            remove(&place.with_file_name(hidden))?;
            continue;
        }
        let kind = entry.header().entry_type();
        match kind {
            EntryType::Block | EntryType::Char | EntryType::Fifo => continue,
            EntryType::Directory => {
                if fs::symlink_metadata(&place).is_ok_and(|there| !there.is_dir()) {
                    remove(&place)?;
                }
                fs::create_dir_all(&place)?;
                directories.push((place.clone(), entry.header().mode()?));
            }
            _ => {
                if fs::symlink_metadata(&place).is_ok_and(|there| there.is_dir()) {
                    remove(&place)?;
                }
                ensure!(
                    entry.unpack_in(&tree).with_context(|| format!("unpack {}", path.display()))?,
                    "{} leaves the image",
                    path.display()
                );
            }
        }
        of_this_layer.push(place);
    }
    // A directory may forbid writing what the layer puts into it, so its mode comes last.
    for (directory, mode) in directories {
        if fs::symlink_metadata(&directory).is_ok_and(|there| there.is_dir()) {
            fs::set_permissions(&directory, fs::Permissions::from_mode(mode & 0o7777))?;
        }
    }
    Ok(())
}

/// Where an entry goes, and its file name; none for the tree itself. Its directory is made, and must not be a way
/// out of the tree.
fn place(tree: &Path, path: &Path) -> anyhow::Result<Option<(PathBuf, String)>> {
    let mut inside = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => inside.push(name),
            Component::ParentDir => bail!("{} leaves the image", path.display()),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    let Some(name) = inside.file_name().map(|name| name.to_string_lossy().into_owned()) else {
        return Ok(None);
    };
    let place = tree.join(&inside);
    let directory = place.parent().unwrap_or(tree);
    // An absolute link in the image means a place in the image; those are not followed while unpacking.
    let nearest =
        directory.ancestors().find(|ancestor| fs::symlink_metadata(ancestor).is_ok()).unwrap_or(tree);
    ensure!(
        fs::canonicalize(nearest).is_ok_and(|real| real.starts_with(tree)),
        "{} leads out of the image by a link",
        path.display()
    );
    fs::create_dir_all(directory)?;
    Ok(Some((place, name)))
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(there) if there.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(_) => Ok(()),
    }
}

fn clear(directory: &Path, keep: &[PathBuf]) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if !keep.iter().any(|kept| kept.starts_with(&path)) {
            remove(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use serde_json::json;

    use super::*;

    enum Item {
        File(&'static str, &'static str),
        Link(&'static str, &'static str),
        Directory(&'static str),
    }

    fn layer(items: &[Item]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for item in items {
            let mut header = tar::Header::new_gnu();
            header.set_mode(0o755);
            match item {
                Item::File(path, text) => {
                    header.set_size(text.len() as u64);
                    // Written raw, since the builder itself refuses paths with `..`.
                    header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
                    header.set_cksum();
                    builder.append(&header, text.as_bytes()).unwrap();
                }
                Item::Link(path, target) => {
                    header.set_entry_type(EntryType::Symlink);
                    header.set_size(0);
                    builder.append_link(&mut header, path, target).unwrap();
                }
                Item::Directory(path) => {
                    header.set_entry_type(EntryType::Directory);
                    header.set_size(0);
                    builder.append_data(&mut header, path, io::empty()).unwrap();
                }
            }
        }
        builder.into_inner().unwrap()
    }

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("process-node-oci-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// An archive whose layers are alternately plain and compressed.
    fn archive(path: &Path, layers: &[Vec<u8>]) {
        let mut builder = tar::Builder::new(File::create(path).unwrap());
        let mut add = |name: &str, bytes: &[u8]| {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o644);
            builder.append_data(&mut header, name, bytes).unwrap();
        };
        let mut blob = |bytes: &[u8], media_type: &str| {
            let hash = hex(&Sha256::digest(bytes));
            add(&format!("blobs/sha256/{hash}"), bytes);
            json!({"mediaType": media_type, "digest": format!("sha256:{hash}"), "size": bytes.len()})
        };
        let mut descriptors = Vec::new();
        for (at, layer) in layers.iter().enumerate() {
            descriptors.push(if at % 2 == 0 {
                blob(layer, "application/vnd.oci.image.layer.v1.tar")
            } else {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
                encoder.write_all(layer).unwrap();
                blob(&encoder.finish().unwrap(), "application/vnd.oci.image.layer.v1.tar+gzip")
            });
        }
        let config =
            json!({"config": {"Entrypoint": ["/run"], "Cmd": ["x"], "Env": ["A=b=c"], "WorkingDir": "/w"}});
        let config = blob(config.to_string().as_bytes(), "application/vnd.oci.image.config.v1+json");
        let manifest = json!({"schemaVersion": 2, "config": config, "layers": descriptors}).to_string();
        let manifest = blob(manifest.as_bytes(), "application/vnd.oci.image.manifest.v1+json");
        let index = json!({"schemaVersion": 2, "manifests": [manifest]}).to_string();
        add("index.json", index.as_bytes());
        builder.finish().unwrap();
    }

    #[test]
    fn layers_stack_with_whiteouts_and_links() {
        let scratch = Scratch::new("layers");
        let path = scratch.0.join("image.tar");
        archive(
            &path,
            &[
                layer(&[
                    Item::Directory("d/"),
                    Item::File("d/a", "1"),
                    Item::File("d/b", "1"),
                    Item::File("o/old", "1"),
                    Item::Link("l", "/d"),
                ]),
                layer(&[
                    Item::File("d/.wh.a", ""),
                    Item::File("d/b", "2"),
                    Item::File("o/new", "2"),
                    Item::File("o/.wh..wh..opq", ""),
                ]),
            ],
        );
        let image = unpack(&path, &scratch.0.join("store")).unwrap();
        let Program::Process(process) = image.program else { panic!("no process") };
        let RootBase::Image { tree } = process.base else { panic!("no image") };
        assert!(!tree.join("d/a").exists());
        assert_eq!(fs::read_to_string(tree.join("d/b")).unwrap(), "2");
        assert!(!tree.join("o/old").exists());
        assert!(tree.join("o/new").exists());
        assert_eq!(fs::read_link(tree.join("l")).unwrap(), Path::new("/d"));
        assert_eq!(process.entrypoint, ["/run"]);
        assert_eq!(process.env, [("A".to_owned(), "b=c".to_owned())]);
        assert_eq!(process.working_dir.as_deref(), Some(Path::new("/w")));
    }

    #[test]
    fn nothing_is_written_outside() {
        for (name, items) in [
            ("dots", vec![Item::File("../escaped", "x")]),
            ("link", vec![Item::Link("out", "../.."), Item::File("out/escaped", "x")]),
            ("absolute", vec![Item::Link("out", "/tmp"), Item::File("out/escaped", "x")]),
        ] {
            let scratch = Scratch::new(name);
            let path = scratch.0.join("image.tar");
            archive(&path, &[layer(&items)]);
            let error = unpack(&path, &scratch.0.join("store")).unwrap_err();
            assert!(format!("{error:#}").contains("image"), "{name}: {error:#}");
            assert!(!scratch.0.join("escaped").exists() && !Path::new("/tmp/escaped").exists(), "{name}");
        }
    }
}
