//! The files of an image: the program, and the little that it looks for.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tar::{EntryType, Header};

/// Who the program runs as, user and group: the number that is customary for `nonroot`. It is a number and not
/// a name, or Kubernetes could not tell that `runAsNonRoot` holds.
pub(super) const USER: &str = "65532:65532";

const PASSWD: &str = "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n";
const GROUP: &str = "root:x:0:\nnonroot:x:65532:\n";
/// Without it, glibc's order of files and DNS is left to how it was built.
const NSSWITCH: &str = "hosts: files dns\n";

/// Where the program of this name lies.
pub(super) fn program_path(name: &str) -> String {
    format!("/usr/local/bin/{name}")
}

/// A tree of files, all owned by root, by path without a leading slash.
#[derive(Debug)]
pub(super) struct Rootfs {
    entries: BTreeMap<String, Entry>,
}

#[derive(Debug)]
struct Entry {
    mode: u32,
    /// Absent for a directory.
    content: Option<Vec<u8>>,
}

impl Rootfs {
    /// The files of an image with this program.
    pub(super) fn new(name: &str, program: Vec<u8>) -> Self {
        let mut root = Self { entries: BTreeMap::new() };
        root.file("etc/passwd", 0o644, PASSWD.into());
        root.file("etc/group", 0o644, GROUP.into());
        root.file("etc/nsswitch.conf", 0o644, NSSWITCH.into());
        // The first place where rustls and OpenSSL look on any distribution.
        root.file("etc/ssl/certs/ca-certificates.crt", 0o644, ca_bundle().into());
        root.file(program_path(name).trim_start_matches('/'), 0o755, program);
        root.directory("tmp", 0o1777);
        root
    }

    fn file(&mut self, path: &str, mode: u32, content: Vec<u8>) {
        for (at, _) in path.match_indices('/') {
            self.directory(path.get(..at).unwrap_or_default(), 0o755);
        }
        self.entries.insert(path.to_owned(), Entry { mode, content: Some(content) });
    }

    fn directory(&mut self, path: &str, mode: u32) {
        self.entries.insert(path.to_owned(), Entry { mode, content: None });
    }

    /// Writes the tree as a layer: sorted, so that a directory comes before what is in it.
    pub(super) fn tar(&self, out: impl Write) -> Result<()> {
        let mut builder = tar::Builder::new(out);
        for (path, Entry { mode, content }) in &self.entries {
            match content {
                Some(content) => append(&mut builder, path, *mode, EntryType::Regular, content)?,
                None => append(&mut builder, &format!("{path}/"), *mode, EntryType::Directory, &[])?,
            }
        }
        builder.finish().context("end the layer")
    }

    /// Writes the tree into a folder, which must be empty or not there.
    pub(super) fn write(&self, dir: &Path) -> Result<()> {
        fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
        for (path, Entry { mode, content }) in &self.entries {
            let path = dir.join(path);
            let written = match content {
                Some(content) => fs::write(&path, content),
                None => fs::create_dir(&path),
            };
            // The mode that was asked for, whatever the umask takes from it.
            written
                .and_then(|()| fs::set_permissions(&path, Permissions::from_mode(*mode)))
                .with_context(|| format!("write {}: is the folder empty?", path.display()))?;
        }
        Ok(())
    }
}

/// Adds an entry that tells nothing of the machine or the time that made it.
pub(super) fn append<W: Write>(
    builder: &mut tar::Builder<W>,
    path: &str,
    mode: u32,
    kind: EntryType,
    content: &[u8],
) -> Result<()> {
    let mut header = Header::new_ustar();
    header.set_path(path).with_context(|| format!("{path} as a path in a tar file"))?;
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(content.len() as u64);
    header.set_cksum();
    builder.append(&header, content).with_context(|| format!("add {path}"))
}

/// Mozilla's root certificates in PEM.
fn ca_bundle() -> String {
    let mut pem = String::new();
    for certificate in webpki_root_certs::TLS_SERVER_ROOT_CERTS {
        pem.push_str("-----BEGIN CERTIFICATE-----\n");
        // RFC 7468: lines of 64 characters, all of them ASCII here.
        for (index, character) in STANDARD.encode(certificate).chars().enumerate() {
            if index > 0 && index % 64 == 0 {
                pem.push('\n');
            }
            pem.push(character);
        }
        pem.push_str("\n-----END CERTIFICATE-----\n");
    }
    pem
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn tar_of(root: &Rootfs) -> Vec<u8> {
        let mut bytes = Vec::new();
        root.tar(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_layer_is_sorted_and_tells_nothing_of_its_making() {
        let bytes = tar_of(&Rootfs::new("a", b"program".to_vec()));
        let mut archive = tar::Archive::new(bytes.as_slice());
        let mut found = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let header = entry.header().clone();
            assert_eq!((header.mtime().unwrap(), header.uid().unwrap(), header.gid().unwrap()), (0, 0, 0));
            let path = entry.path().unwrap().display().to_string();
            if path == "usr/local/bin/a" {
                let mut content = String::new();
                entry.read_to_string(&mut content).unwrap();
                assert_eq!(content, "program");
            }
            found.push(format!("{path} {:o}", header.mode().unwrap()));
        }
        let wanted = [
            "etc/ 755",
            "etc/group 644",
            "etc/nsswitch.conf 644",
            "etc/passwd 644",
            "etc/ssl/ 755",
            "etc/ssl/certs/ 755",
            "etc/ssl/certs/ca-certificates.crt 644",
            "tmp/ 1777",
            "usr/ 755",
            "usr/local/ 755",
            "usr/local/bin/ 755",
            "usr/local/bin/a 755",
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn the_same_program_gives_the_same_layer() {
        let tar = |program: &[u8]| tar_of(&Rootfs::new("a", program.to_vec()));
        assert_eq!(tar(b"x"), tar(b"x"));
        assert_ne!(tar(b"x"), tar(b"y"));
    }

    #[test]
    fn the_folder_holds_what_the_layer_does() {
        let dir = tempfile::tempdir().unwrap();
        let root = Rootfs::new("a", b"program".to_vec());
        let dir = dir.path().join("root");
        root.write(&dir).unwrap();
        assert_eq!(fs::read(dir.join("usr/local/bin/a")).unwrap(), b"program");
        for (path, entry) in &root.entries {
            assert_eq!(
                fs::metadata(dir.join(path)).unwrap().permissions().mode() & 0o7777,
                entry.mode,
                "{path}"
            );
        }
        assert!(root.write(&dir).unwrap_err().to_string().contains("empty"));
    }

    #[test]
    fn the_bundle_is_pem_that_decodes_to_the_roots() {
        let pem = ca_bundle();
        let roots = webpki_root_certs::TLS_SERVER_ROOT_CERTS;
        let mut found = Vec::new();
        let mut body = None;
        for line in pem.lines() {
            match (line, &mut body) {
                ("-----BEGIN CERTIFICATE-----", None) => body = Some(String::new()),
                ("-----END CERTIFICATE-----", Some(text)) => {
                    found.push(STANDARD.decode(&*text).unwrap());
                    body = None;
                }
                (line, Some(text)) if !line.is_empty() && line.len() <= 64 => text.push_str(line),
                other => panic!("{other:?}"),
            }
        }
        assert!(roots.len() > 100 && body.is_none());
        assert!(found.iter().map(Vec::as_slice).eq(roots.iter().map(AsRef::as_ref)));
    }
}
