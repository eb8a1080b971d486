//! Containers: processes with a network namespace shared by their pod, and PID, mount and root of their own.
//!
//! ```text
//! process-node run          process::start: spec over a socket, logs from two pipes
//!   └ process-node container        launcher: joins the pod's namespaces, unshares PID, waits for
//!       └ process-node container-init        PID 1: unshares mount, builds the root, then becomes
//!           └ the program
//! ```

pub(crate) mod exec;
pub(crate) mod launcher;
pub(crate) mod mounts;
pub(crate) mod process;
pub(crate) mod root;
pub(crate) mod spec;
