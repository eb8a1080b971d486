//! An image in one file: an OCI image layout in a tar archive (OCI Image Format Specification 1.1).
//!
//! `podman load`, `skopeo copy oci-archive:…`, `ctr images import` and the test bed's node read the layout;
//! `docker load` and `kind load` read `manifest.json` beside it, of the older Docker archive format.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use flate2::{Compression, GzBuilder};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tar::EntryType;

use super::rootfs::{Rootfs, append};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// The beginning of time, since the true one would make each build different.
const CREATED: &str = "1970-01-01T00:00:00Z";

/// A platform as OCI (and Go) names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Platform {
    architecture: &'static str,
}

impl Platform {
    /// The platform of a Rust target triple.
    pub(super) fn of(triple: &str) -> Result<Self> {
        let architecture = match triple.split('-').next() {
            Some("x86_64") => "amd64",
            Some("aarch64") => "arm64",
            _ => bail!("images for {triple} are not supported: build on x86_64 or aarch64"),
        };
        if !triple.contains("-linux-") {
            bail!(
                "images hold Linux programs, and this is {triple}: build on Linux, or with the Dockerfiles in deploy/"
            );
        }
        Ok(Self { architecture })
    }

    fn json(self) -> Value {
        json!({"architecture": self.architecture, "os": "linux"})
    }
}

/// Refuses what the distribution specification does not allow as a tag.
pub(super) fn check_tag(tag: &str) -> Result<()> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let fits =
        tag.starts_with(word) && tag.len() <= 128 && tag.chars().all(|c| word(c) || c == '.' || c == '-');
    if !fits {
        bail!(
            "{tag:?} is no tag: use up to 128 letters, digits, `_`, `.` and `-`, not beginning with the last two"
        );
    }
    Ok(())
}

/// What an image is besides its files.
#[derive(Debug)]
pub(super) struct Image<'a> {
    /// `REPOSITORY/NAME:TAG`.
    pub(super) reference: &'a str,
    pub(super) entrypoint: String,
    /// `UID:GID`.
    pub(super) user: &'a str,
    pub(super) title: &'a str,
    pub(super) description: &'a str,
    pub(super) version: &'a str,
    pub(super) platform: Platform,
}

/// A finished archive.
#[derive(Debug)]
pub(super) struct Archive {
    pub(super) bytes: Vec<u8>,
    /// Digest of the manifest, by which registries know the image.
    pub(super) digest: String,
}

/// Content that is known by its digest.
struct Blob {
    digest: String,
    bytes: Vec<u8>,
}

impl Blob {
    fn new(bytes: Vec<u8>) -> Self {
        Self { digest: digest(&bytes), bytes }
    }

    fn json(value: &Value) -> Result<Self> {
        Ok(Self::new(serde_json::to_vec(value)?))
    }

    fn descriptor(&self, media_type: &str) -> Value {
        json!({"mediaType": media_type, "digest": format!("sha256:{}", self.digest), "size": self.bytes.len()})
    }

    fn path(&self) -> String {
        format!("blobs/sha256/{}", self.digest)
    }
}

/// SHA-256 in hexadecimal.
fn digest(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl Image<'_> {
    /// Packs the image: one layer.
    pub(super) fn archive(&self, root: &Rootfs) -> Result<Archive> {
        let mut layer = Vec::new();
        root.tar(&mut layer)?;
        // The header of gzip has a time and an operating system; the builder's defaults are none and unknown.
        let mut gzip = GzBuilder::new().write(Vec::new(), Compression::default());
        std::io::Write::write_all(&mut gzip, &layer).context("compress the layer")?;
        let compressed = Blob::new(gzip.finish().context("compress the layer")?);
        let config = Blob::json(&self.config(&digest(&layer)))?;
        let manifest = Blob::json(&json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config.descriptor(CONFIG),
            "layers": [compressed.descriptor(LAYER)],
        }))?;
        let mut entry = manifest.descriptor(MANIFEST);
        if let Some(entry) = entry.as_object_mut() {
            entry.insert("platform".to_owned(), self.platform.json());
            entry.insert(
                "annotations".to_owned(),
                json!({
                    "io.containerd.image.name": self.reference,
                    "org.opencontainers.image.ref.name": self.reference,
                }),
            );
        }
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]});
        let docker =
            json!([{"Config": config.path(), "RepoTags": [self.reference], "Layers": [compressed.path()]}]);
        let files = BTreeMap::from([
            ("oci-layout".to_owned(), serde_json::to_vec(&json!({"imageLayoutVersion": "1.0.0"}))?),
            ("index.json".to_owned(), serde_json::to_vec(&index)?),
            ("manifest.json".to_owned(), serde_json::to_vec(&docker)?),
            (compressed.path(), compressed.bytes),
            (config.path(), config.bytes),
            (manifest.path(), manifest.bytes),
        ]);
        let mut builder = tar::Builder::new(Vec::new());
        for directory in ["blobs/", "blobs/sha256/"] {
            append(&mut builder, directory, 0o755, EntryType::Directory, &[])?;
        }
        for (path, bytes) in &files {
            append(&mut builder, path, 0o644, EntryType::Regular, bytes)?;
        }
        let bytes = builder.into_inner().context("end the archive")?;
        Ok(Archive { bytes, digest: format!("sha256:{}", manifest.digest) })
    }

    fn config(&self, layer: &str) -> Value {
        let mut config = self.platform.json();
        if let Some(config) = config.as_object_mut() {
            config.insert("created".to_owned(), CREATED.into());
            config.insert(
                "config".to_owned(),
                json!({
                    "User": self.user,
                    "Entrypoint": [self.entrypoint],
                    "Env": ["PATH=/usr/local/bin"],
                    "WorkingDir": "/",
                    "Labels": {
                        "org.opencontainers.image.title": self.title,
                        "org.opencontainers.image.description": self.description,
                        "org.opencontainers.image.version": self.version,
                        "org.opencontainers.image.licenses": "Apache-2.0",
                    },
                }),
            );
            config.insert(
                "rootfs".to_owned(),
                json!({"type": "layers", "diff_ids": [format!("sha256:{layer}")]}),
            );
            config.insert(
                "history".to_owned(),
                json!([{"created": CREATED, "created_by": "cargo xtask image"}]),
            );
        }
        config
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;

    use super::*;

    fn archive(program: &[u8]) -> Archive {
        let image = Image {
            reference: "istio-operators/a:dev",
            entrypoint: "/usr/local/bin/a".to_owned(),
            user: "65532:65532",
            title: "a",
            description: "An A",
            version: "1.2.3",
            platform: Platform::of("x86_64-unknown-linux-gnu").unwrap(),
        };
        image.archive(&Rootfs::new("a", program.to_vec())).unwrap()
    }

    fn unpack(archive: &Archive) -> BTreeMap<String, Vec<u8>> {
        let mut files = BTreeMap::new();
        for entry in tar::Archive::new(archive.bytes.as_slice()).entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            files.insert(entry.path().unwrap().display().to_string(), bytes);
        }
        files
    }

    fn blob<'a>(files: &'a BTreeMap<String, Vec<u8>>, descriptor: &Value) -> &'a [u8] {
        let name = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
        let bytes = &files[&format!("blobs/sha256/{name}")];
        assert_eq!(digest(bytes), name);
        assert_eq!(descriptor["size"], bytes.len());
        bytes
    }

    #[test]
    fn every_reference_leads_to_a_blob_of_its_digest() {
        let archive = archive(b"program");
        let files = unpack(&archive);
        assert_eq!(files["oci-layout"], br#"{"imageLayoutVersion":"1.0.0"}"#);
        let index: Value = serde_json::from_slice(&files["index.json"]).unwrap();
        let entry = &index["manifests"][0];
        assert_eq!(entry["digest"], archive.digest);
        assert_eq!(entry["annotations"]["org.opencontainers.image.ref.name"], "istio-operators/a:dev");
        let manifest: Value = serde_json::from_slice(blob(&files, entry)).unwrap();
        let config: Value = serde_json::from_slice(blob(&files, &manifest["config"])).unwrap();
        assert_eq!(config["config"]["Entrypoint"], json!(["/usr/local/bin/a"]));
        assert_eq!(config["config"]["User"], "65532:65532");
        assert_eq!((&config["os"], &config["architecture"]), (&"linux".into(), &"amd64".into()));
        let mut layer = Vec::new();
        GzDecoder::new(blob(&files, &manifest["layers"][0])).read_to_end(&mut layer).unwrap();
        assert_eq!(config["rootfs"]["diff_ids"], json!([format!("sha256:{}", digest(&layer))]));
        // The older format names the same blobs.
        let docker: Value = serde_json::from_slice(&files["manifest.json"]).unwrap();
        for name in [&docker[0]["Config"], &docker[0]["Layers"][0]] {
            assert!(files.contains_key(name.as_str().unwrap()), "{name}");
        }
    }

    #[test]
    fn the_same_program_gives_the_same_archive() {
        assert_eq!(archive(b"x").bytes, archive(b"x").bytes);
        assert_ne!(archive(b"x").digest, archive(b"y").digest);
    }

    #[test]
    fn digests_are_sha256() {
        assert_eq!(digest(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }

    #[test]
    fn platforms_are_named_as_go_names_them() {
        assert_eq!(Platform::of("aarch64-unknown-linux-musl").unwrap().architecture, "arm64");
        assert!(Platform::of("riscv64gc-unknown-linux-gnu").is_err());
        assert!(Platform::of("aarch64-apple-darwin").is_err());
    }

    #[test]
    fn tags_are_those_that_registries_take() {
        for good in ["dev", "1.2.3-rc.1", "_x"] {
            check_tag(good).unwrap();
        }
        for bad in ["", "-x", ".x", "a:b", "a/b", "ü", &"x".repeat(129)] {
            assert!(check_tag(bad).is_err(), "{bad}");
        }
    }
}
