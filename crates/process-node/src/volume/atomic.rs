//! Directories whose contents change all at once, as kubelet's projected volumes do.
//!
//! ```text
//! ca.crt -> ..data/ca.crt
//! ..data -> ..2_1         replaced in one step by a rename
//! ..2_1/ca.crt
//! ```

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A file of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct File {
    /// Its contents.
    pub(super) bytes: Vec<u8>,
    /// Its permission bits.
    pub(super) mode: u32,
}

/// The files of a volume by their path in it, relative and without `..` (the API server sees to that; others are
/// refused).
pub(super) type Files = BTreeMap<PathBuf, File>;

const DATA: &str = "..data";
const NEW_DATA: &str = "..data_tmp";

/// Makes `directory` hold exactly `files`. Readers see all of the old or all of the new. Returns whether anything
/// had to be done.
pub(super) fn write(directory: &Path, files: &Files) -> io::Result<bool> {
    fs::create_dir_all(directory)?;
    if let Some(path) = files.keys().find(|path| !is_plain(path)) {
        return Err(io::Error::other(format!("path {} is not allowed in a volume", path.display())));
    }
    let old = fs::read_link(directory.join(DATA)).ok();
    if let Some(old) = &old
        && read(&directory.join(old)).is_ok_and(|current| current == *files)
    {
        return Ok(false);
    }
    let new = unused(directory);
    fs::create_dir(directory.join(&new))?;
    for (path, file) in files {
        let place = directory.join(&new).join(path);
        if let Some(parent) = place.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&place, &file.bytes)?;
        fs::set_permissions(&place, Permissions::from_mode(file.mode))?;
    }
    let temporary = directory.join(NEW_DATA);
    if fs::symlink_metadata(&temporary).is_ok() {
        fs::remove_file(&temporary)?;
    }
    symlink(&new, &temporary)?;
    fs::rename(&temporary, directory.join(DATA))?;
    link_names(directory, files)?;
    if let Some(old) = old {
        fs::remove_dir_all(directory.join(old))?;
    }
    Ok(true)
}

/// Makes the names that users see lead to the current data.
fn link_names(directory: &Path, files: &Files) -> io::Result<()> {
    let first = |path: &PathBuf| path.components().next().map(|part| PathBuf::from(part.as_os_str()));
    let wanted: std::collections::BTreeSet<_> = files.keys().filter_map(first).collect();
    for name in &wanted {
        let place = directory.join(name);
        if fs::symlink_metadata(&place).is_err() {
            symlink(Path::new(DATA).join(name), place)?;
        }
    }
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = PathBuf::from(entry.file_name());
        // What is no link is the mount point of another volume.
        let ours = entry.file_type()?.is_symlink() && !name.to_string_lossy().starts_with("..");
        if ours && !wanted.contains(&name) {
            fs::remove_file(directory.join(name))?;
        }
    }
    Ok(())
}

fn is_plain(path: &Path) -> bool {
    let text = path.to_string_lossy();
    !text.is_empty()
        && !text.starts_with("..")
        && path.components().all(|part| matches!(part, Component::Normal(_)))
}

fn unused(directory: &Path) -> PathBuf {
    static COUNTER: AtomicU64 = AtomicU64::new(1);
    loop {
        let name = format!("..{}_{}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
        if !directory.join(&name).exists() {
            return PathBuf::from(name);
        }
    }
}

fn read(directory: &Path) -> io::Result<Files> {
    fn collect(root: &Path, below: &Path, files: &mut Files) -> io::Result<()> {
        for entry in fs::read_dir(root.join(below))? {
            let entry = entry?;
            let path = below.join(entry.file_name());
            let metadata = entry.metadata()?;
            if metadata.is_dir() {
                collect(root, &path, files)?;
            } else {
                let file =
                    File { bytes: fs::read(root.join(&path))?, mode: metadata.permissions().mode() & 0o7777 };
                files.insert(path, file);
            }
        }
        Ok(())
    }
    let mut files = Files::new();
    collect(directory, Path::new(""), &mut files)?;
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(pairs: &[(&str, &str)]) -> Files {
        let file = |text: &str| File { bytes: text.as_bytes().to_vec(), mode: 0o640 };
        pairs.iter().map(|(path, text)| (PathBuf::from(path), file(text))).collect()
    }

    #[test]
    fn contents_are_swapped_and_leave_nothing_behind() {
        let directory = std::env::temp_dir().join(format!("process-node-atomic-{}", std::process::id()));
        let names = || {
            let mut names: Vec<_> = fs::read_dir(&directory)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .filter(|name| !name.starts_with("..") || name == DATA)
                .collect();
            names.sort();
            names
        };
        assert!(write(&directory, &files(&[("a", "1"), ("d/b", "1")])).unwrap());
        assert_eq!(names(), ["..data", "a", "d"]);
        assert_eq!(fs::read_to_string(directory.join("d/b")).unwrap(), "1");
        assert!(!write(&directory, &files(&[("a", "1"), ("d/b", "1")])).unwrap());

        assert!(write(&directory, &files(&[("a", "2"), ("c", "2")])).unwrap());
        assert_eq!(names(), ["..data", "a", "c"]);
        assert_eq!(fs::read_to_string(directory.join("a")).unwrap(), "2");
        assert_eq!(fs::metadata(directory.join("a")).unwrap().permissions().mode() & 0o777, 0o640);
        let generations = fs::read_dir(&directory).unwrap().filter(|entry| {
            let name = entry.as_ref().unwrap().file_name().into_string().unwrap();
            name.starts_with("..") && name != DATA
        });
        assert_eq!(generations.count(), 1);

        assert!(write(&directory, &Files::new()).unwrap());
        assert_eq!(names(), ["..data"]);
        for bad in ["../x", "/x", "a/../b", ""] {
            assert!(write(&directory, &files(&[(bad, "x")])).is_err(), "{bad}");
        }
        fs::remove_dir_all(&directory).unwrap();
    }
}
