//! Programs of ours as a user without rights, with copies of what that user may not read.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use tempfile::TempDir;

/// The user and group id of `nobody` on every Linux.
const NOBODY: u32 = 65534;

/// Whether this process can become another user; where it cannot, it is an ordinary user itself.
pub(super) fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// A home of `nobody`, with the tools, the images and some programs.
pub(super) struct Home {
    home: TempDir,
}

impl Home {
    /// Copies the tools, the images and the programs that the test bed starts.
    pub(super) fn new(bins: &Path, images: &Path) -> Result<Self> {
        let home = tempfile::tempdir()?;
        let copies = [
            (testbed::paths::cache_dir()?.join("tools"), home.path().join("cache/istio-operators/tools")),
            (images.to_owned(), home.path().join("images")),
        ];
        for (from, to) in &copies {
            std::fs::create_dir_all(to.parent().context("a parent folder")?)?;
            run(Command::new("cp").arg("-r").arg(from).arg(to))?;
        }
        std::fs::create_dir_all(home.path().join("bin"))?;
        for name in ["process-node", "test-server", "istio-integrator"] {
            std::fs::copy(bins.join(name), home.path().join("bin").join(name))?;
        }
        Ok(Self { home })
    }

    /// A command that runs a copy of this program as `nobody`.
    pub(super) fn command(&self, program: &Path) -> Result<Command> {
        let copy: PathBuf =
            self.home.path().join("bin").join(program.file_name().context("a program's name")?);
        std::fs::copy(program, &copy)?;
        run(Command::new("chown").arg("-R").arg(format!("{NOBODY}:{NOBODY}")).arg(self.home.path()))?;
        let mut command = Command::new(&copy);
        command
            .uid(NOBODY)
            .gid(NOBODY)
            .env("HOME", self.home.path())
            .env("XDG_CACHE_HOME", self.home.path().join("cache"))
            .env("TESTBED_BIN_DIR", self.home.path().join("bin"))
            .env("TESTBED_IMAGE_DIR", self.home.path().join("images"))
            .current_dir(self.home.path());
        Ok(command)
    }
}

/// Runs a command to its end.
pub(super) fn run(command: &mut Command) -> Result<()> {
    let what = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("start {what}"))?;
    if !status.success() {
        bail!("{what} failed ({status})");
    }
    Ok(())
}
