//! Pods: what kubelet does.
//!
//! ```text
//! manager ─ one worker for each Pod of this node
//!   worker  the pod's state; on every message: what next (plan), what to tell (status)
//!     setup   volumes, address, sandbox          ┐
//!     start   image, environment, process, hook  ├ tasks that report back by message
//!     stop    hook, signal, patience, signal     │
//!     probes                                     ┘
//!     writer  writes the status when it has changed
//! ```
//!
//! Not honoured, since one user id is all there is: `runAsUser`, `fsGroup`, capabilities and the rest of the
//! security context but `readOnlyRootFilesystem`. Not offered: ephemeral containers, resource limits, a shared
//! process namespace, `stdin` and `tty`.

mod env;
pub(crate) mod events;
pub(crate) mod fields;
pub(crate) mod manager;
mod message;
mod plan;
mod quantity;
mod run;
mod setup;
mod start;
mod status;
mod stop;
mod unit;
mod worker;
mod writer;

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use kube::Client;
use process_node::config::NodeConfig;

use self::events::Recorder;
use crate::images::Images;
use crate::ipam::Addresses;
use crate::kubelet_api::LogIndex;
use crate::net::Network;
use crate::objects::Objects;

/// What all pods share.
pub(crate) struct Context {
    /// The node's configuration.
    pub(crate) config: NodeConfig,
    /// The API server.
    pub(crate) client: Client,
    /// Caches.
    pub(crate) objects: Objects,
    /// The node's network.
    pub(crate) network: Network,
    /// Images.
    pub(crate) images: Images,
    /// Pod addresses.
    pub(crate) addresses: Mutex<Addresses>,
    /// Events.
    pub(crate) events: Recorder,
    /// Where the kubelet API finds logs.
    pub(crate) logs: LogIndex,
}

impl Context {
    /// The directory of a pod's volumes, logs and roots.
    fn pod_dir(&self, uid: &str) -> PathBuf {
        self.config.state_dir.join("pods").join(uid)
    }

    fn addresses(&self) -> std::sync::MutexGuard<'_, Addresses> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
