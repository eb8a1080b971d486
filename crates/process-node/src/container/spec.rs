//! What passes between the node and the stages of a container.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Everything the stages need to know to become the container.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ContainerSpec {
    /// The sandbox whose network, host name and IPC namespaces to join; none for a pod on the host network.
    pub(crate) sandbox: Option<u32>,
    /// An existing empty directory on which the root is mounted.
    pub(crate) root: PathBuf,
    /// What the root holds before anything is mounted into it.
    pub(crate) base: RootBase,
    /// Whether the root itself is read-only at last (`securityContext.readOnlyRootFilesystem`).
    pub(crate) read_only_root: bool,
    /// Mounts in the order in which they are made.
    pub(crate) mounts: Vec<Mount>,
    /// Program and arguments. Never empty.
    pub(crate) argv: Vec<String>,
    /// The whole environment; `PATH` in it also says where the program is looked for.
    pub(crate) env: Vec<(String, String)>,
    /// Working directory, made if there is none.
    pub(crate) working_dir: PathBuf,
}

/// The root before mounts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum RootBase {
    /// An empty file system with what programs of this machine need.
    Host {
        /// Also the directories with this machine's commands.
        shell: bool,
        /// Directories to be made.
        writable: Vec<PathBuf>,
    },
    /// An unpacked image, of which the container sees a copy on write.
    Image {
        /// The unpacked image.
        tree: PathBuf,
    },
}

/// A bind mount.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Mount {
    /// File or directory outside.
    pub(crate) source: PathBuf,
    /// Absolute path in the container.
    pub(crate) target: PathBuf,
    /// Whether the container may not write to it.
    pub(crate) read_only: bool,
}

/// What the launcher tells the node, a line of JSON each: first `Started` or `Failed`, and after `Started` at last
/// `Exited`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The program runs.
    Started {
        /// Its PID as the node sees it.
        pid: i32,
    },
    /// The program could not be started.
    Failed {
        /// Why, for the container's status.
        message: String,
    },
    /// The program has ended, and so has every process it left behind.
    Exited {
        /// Exit code, or 128 and the number of the signal that killed it.
        code: i32,
    },
}
