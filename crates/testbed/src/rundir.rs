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
    // It gets its name when it is locked: a sweep that found it before would take the cluster for gone.
    let unnamed = dir.join("lock.new");
    let file = File::create(&unnamed).with_context(|| format!("create {}", unnamed.display()))?;
    let held = Flock::lock(file, FlockArg::LockExclusiveNonblock)
        .map_err(|(_, errno)| errno)
        .with_context(|| format!("lock {}: another cluster uses it", unnamed.display()))?;
    std::fs::rename(&unnamed, &path).with_context(|| format!("rename {}", unnamed.display()))?;
    Ok(held)
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_sweep_never_takes_what_is_just_being_made() {
        let parent = tempfile::tempdir().unwrap();
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    sweep(parent.path());
                }
            });
            let mut held = Vec::new();
            for n in 0..500 {
                let dir = parent.path().join(n.to_string());
                std::fs::create_dir(&dir).unwrap();
                let lock = hold(&dir);
                let there = dir.join("lock").exists();
                held.push((dir, lock.map_err(|error| format!("{error:#}")), there));
            }
            ended.store(true, Ordering::Relaxed);
            for (dir, lock, there) in &held {
                assert!(lock.is_ok() && *there, "{}: {lock:?}", dir.display());
            }
        });
        sweep(parent.path());
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0, "what nobody holds goes");
    }
}
