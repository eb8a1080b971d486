//! A container that runs.

use k8s_openapi::api::core::v1::Container;
use nix::sys::signal::Signal;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::container::exec::ExecTarget;
use crate::container::process::signal;
use crate::probe::Place;

/// A handle on a running container. Clones are handles on the same.
#[derive(Clone)]
pub(super) struct Run {
    /// The container as the Pod specifies it.
    pub(super) container: Container,
    /// Whether it is an init container, restartable ones included.
    pub(super) is_init: bool,
    /// How many starts came before this one.
    pub(super) attempt: i32,
    /// Where commands and probes find it.
    pub(super) place: Place,
    /// What there is to signal.
    pub(super) body: Body,
    /// Turns true when it has ended.
    pub(super) ended: watch::Receiver<bool>,
}

/// What a running container consists of.
#[derive(Clone)]
pub(super) enum Body {
    /// Nothing; ended by this.
    StandIn(CancellationToken),
    /// A process.
    Process(ExecTarget),
}

impl Run {
    /// Whether there is a process.
    pub(super) fn is_process(&self) -> bool {
        matches!(self.body, Body::Process(_))
    }

    /// Sends a signal, unless it has ended.
    pub(super) fn signal(&self, what: Signal) {
        match &self.body {
            Body::StandIn(end) => end.cancel(),
            Body::Process(target) if !*self.ended.borrow() => signal(target.pid, what),
            Body::Process(_) => {}
        }
    }

    /// Waits for its end.
    pub(super) async fn wait(&mut self) {
        // The sender goes only after it has told, or with the whole program.
        let _ = self.ended.wait_for(|ended| *ended).await;
    }
}
