//! Run directories: one per cluster, locked while it lives, removed when it ends, swept when a crash left one.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::fcntl::{Flock, FlockArg};

use crate::paths::runs_dir;

/// A held lock: as long as it lives, no sweep takes the directory.
pub(crate) type Held = Flock<File>;

/// Makes a new, empty run directory, after removing those of clusters that are gone.
pub(crate) fn create() -> Result<PathBuf> {
    let parent = runs_dir();
    std::fs::create_dir_all(&parent).with_context(|| format!("create {}", parent.display()))?;
    sweep(&parent);
    let dir = tempfile::Builder::new()
        .prefix("c")
        .rand_bytes(6)
        .tempdir_in(&parent)
        .with_context(|| format!("create a run directory in {}", parent.display()))?;
    Ok(dir.keep())
}

/// Locks a run directory for the life of its cluster.
pub(crate) fn hold(dir: &Path) -> Result<Held> {
    let path = dir.join("lock");
    let file = File::create(&path).with_context(|| format!("create {}", path.display()))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock)
        .map_err(|(_, errno)| errno)
        .with_context(|| format!("lock {}: another cluster uses it", path.display()))
}

/// Removes a run directory; what cannot be removed now is left for the next sweep.
pub(crate) fn remove(dir: &Path, lock: Held) {
    let _ = std::fs::remove_dir_all(dir);
    drop(lock);
}

/// Removes the directories whose lock nobody holds. One without a lock file is only being made: it goes when it is
/// an hour old.
fn sweep(parent: &Path) {
    let Ok(entries) = std::fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let dir = entry.path();
        let lock = dir.join("lock");
        let stale = if lock.exists() {
            hold_existing(&lock)
        } else {
            let age = entry.metadata().and_then(|m| m.modified()).ok().and_then(|t| t.elapsed().ok());
            age.is_some_and(|age| age.as_secs() > 3600)
        };
        if stale {
            let _ = std::fs::remove_dir_all(&dir);
        }
    }
}

fn hold_existing(lock: &Path) -> bool {
    let Ok(file) = File::open(lock) else { return false };
    Flock::lock(file, FlockArg::LockExclusiveNonblock).is_ok()
}
