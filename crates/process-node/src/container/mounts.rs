//! Mounts inside a container's own mount namespace.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, bail};
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sys::statvfs::{FsFlags, statvfs};

/// As many symbolic links in a row as Linux follows.
const MAX_LINKS: usize = 40;

/// Where `path`, as a process with root directory `root` means it, lies for us. Symbolic links are followed inside
/// `root`; what does not exist is taken as it stands. The result never leaves `root`.
pub(super) fn resolve(root: &Path, path: &Path) -> io::Result<PathBuf> {
    let mut pending: Vec<_> = parts(path);
    let mut inside = PathBuf::new();
    let mut links = 0;
    while let Some(part) = pending.pop() {
        if part == ".." {
            inside.pop();
            continue;
        }
        let step = inside.join(&part);
        match fs::read_link(root.join(&step)) {
            Ok(target) => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(io::Error::other(format!("too many symbolic links in {}", path.display())));
                }
                if target.is_absolute() {
                    inside.clear();
                }
                pending.extend(parts(&target));
            }
            Err(_) => inside = step,
        }
    }
    Ok(root.join(inside))
}

/// The names in a path, last first.
fn parts(path: &Path) -> Vec<std::ffi::OsString> {
    let mut names: Vec<_> = path
        .components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some("..".into()),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
        })
        .collect();
    names.reverse();
    names
}

/// Makes a directory below `root` and all above it; returns where it lies for us.
pub(super) fn make_dir(root: &Path, path: &Path) -> anyhow::Result<PathBuf> {
    let place = resolve(root, path)?;
    fs::create_dir_all(&place)
        .with_context(|| format!("make directory {} in the container", path.display()))?;
    Ok(place)
}

/// Makes a directory that every user may write to, like `/tmp`.
pub(super) fn make_open_dir(root: &Path, path: &Path) -> anyhow::Result<()> {
    let place = make_dir(root, path)?;
    fs::set_permissions(&place, fs::Permissions::from_mode(0o1777))
        .with_context(|| format!("open {} in the container to all", path.display()))
}

/// Mounts `source` at `target` in the container, making the mount point.
pub(super) fn bind(root: &Path, source: &Path, target: &Path, read_only: bool) -> anyhow::Result<()> {
    let kind = fs::metadata(source).with_context(|| format!("mount {}: not found", source.display()))?;
    let place = if kind.is_dir() {
        make_dir(root, target)?
    } else {
        let place = resolve(root, target)?;
        if let Some(parent) = place.parent() {
            fs::create_dir_all(parent)
                .with_context(|| format!("make the directory of {} in the container", target.display()))?;
        }
        if !place.exists() {
            File::create(&place).with_context(|| format!("make {} in the container", target.display()))?;
        }
        place
    };
    // Recursive: a user namespace may not show what a mount of its parent covers.
    mount(Some(source), &place, None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REC, None::<&str>)
        .with_context(|| format!("mount {} at {}", source.display(), target.display()))?;
    if read_only {
        make_read_only(&place)?;
    }
    Ok(())
}

/// Makes an existing mount read-only. Its other flags are kept: those that come from outside the user namespace may
/// not be cleared.
pub(super) fn make_read_only(place: &Path) -> anyhow::Result<()> {
    let flags = statvfs(place).with_context(|| format!("look at the mount {}", place.display()))?.flags();
    let mut keep = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
    for (has, flag) in [
        (FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
        (FsFlags::ST_NODEV, MsFlags::MS_NODEV),
        (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
        (FsFlags::ST_NOATIME, MsFlags::MS_NOATIME),
        (FsFlags::ST_NODIRATIME, MsFlags::MS_NODIRATIME),
    ] {
        if flags.contains(has) {
            keep |= flag;
        }
    }
    if let Some(relative) = relatime(flags) {
        keep |= relative;
    }
    mount(None::<&str>, place, None::<&str>, keep, None::<&str>)
        .with_context(|| format!("make the mount {} read-only", place.display()))
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn relatime(flags: FsFlags) -> Option<MsFlags> {
    flags.contains(FsFlags::ST_RELATIME).then_some(MsFlags::MS_RELATIME)
}

/// musl does not tell; the kernel takes no flag at all as "relatime".
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn relatime(_: FsFlags) -> Option<MsFlags> {
    None
}

/// Mounts a fresh file system in memory.
pub(crate) fn tmpfs(place: &Path, options: &str) -> anyhow::Result<()> {
    mount(Some("tmpfs"), place, Some("tmpfs"), MsFlags::empty(), Some(options))
        .with_context(|| format!("mount a tmpfs at {}", place.display()))
}

/// Makes `root` show the image in `tree`, copied on write. Overlay file systems are tried first; where the kernel
/// grants none to user namespaces, the image is copied.
pub(super) fn image(root: &Path, tree: &Path) -> anyhow::Result<()> {
    tmpfs(root, "mode=0755")?;
    let (upper, work) = (root.join("upper"), root.join("work"));
    fs::create_dir(&upper)?;
    fs::create_dir(&work)?;
    let options = format!(
        "lowerdir={},upperdir={},workdir={},userxattr",
        tree.display(),
        upper.display(),
        work.display()
    );
    match mount(Some("overlay"), root, Some("overlay"), MsFlags::empty(), Some(options.as_str())) {
        Ok(()) => Ok(()),
        Err(Errno::EPERM | Errno::EINVAL | Errno::ENODEV) => {
            fs::remove_dir_all(&upper)?;
            fs::remove_dir_all(&work)?;
            copy_tree(tree, root).with_context(|| format!("copy the image {}", tree.display()))
        }
        Err(error) => bail!("mount the image {}: {error}", tree.display()),
    }
}

fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target, kind) = (entry.path(), to.join(entry.file_name()), entry.file_type()?);
        if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(&source)?, &target)?;
        } else if kind.is_dir() {
            fs::create_dir_all(&target)?;
            copy_tree(&source, &target)?;
            fs::set_permissions(&target, entry.metadata()?.permissions())?;
        } else if kind.is_file() {
            fs::copy(&source, &target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_are_followed_inside_the_root_only() {
        let root = std::env::temp_dir().join(format!("process-node-resolve-{}", std::process::id()));
        fs::create_dir_all(root.join("run")).unwrap();
        fs::create_dir_all(root.join("var")).unwrap();
        symlink("/run", root.join("var/run")).unwrap();
        symlink("../../../../etc", root.join("var/out")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        for (path, expected) in [
            ("/var/run/secrets/x", "run/secrets/x"),
            ("/var/out/passwd", "etc/passwd"),
            ("/../../a", "a"),
            ("/not/there", "not/there"),
        ] {
            assert_eq!(resolve(&root, Path::new(path)).unwrap(), root.join(expected), "{path}");
        }
        assert!(resolve(&root, Path::new("/loop")).is_err());
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn trees_are_copied_with_links_and_modes() {
        let base = std::env::temp_dir().join(format!("process-node-copy-{}", std::process::id()));
        let (from, to) = (base.join("from"), base.join("to"));
        fs::create_dir_all(from.join("d")).unwrap();
        fs::create_dir_all(&to).unwrap();
        fs::write(from.join("d/f"), "x").unwrap();
        fs::set_permissions(from.join("d/f"), fs::Permissions::from_mode(0o751)).unwrap();
        symlink("f", from.join("d/l")).unwrap();
        copy_tree(&from, &to).unwrap();
        assert_eq!(fs::read_link(to.join("d/l")).unwrap(), Path::new("f"));
        assert_eq!(fs::metadata(to.join("d/f")).unwrap().permissions().mode() & 0o777, 0o751);
        fs::remove_dir_all(&base).unwrap();
    }
}
