//! Services: what kube-proxy, a cloud's load balancer and cluster DNS do.

mod answer;
mod directory;
pub(crate) mod dns;
mod load_balancer;
pub(crate) mod proxy;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;

pub(crate) use directory::Directory;
pub(crate) use load_balancer::assign as assign_addresses;

use crate::objects::{Kind, Objects};

/// Changes that come this close together are taken as one.
const SETTLE: Duration = Duration::from_millis(10);

/// Keeps a [`Directory`] up to date.
pub(crate) fn follow(objects: &Objects) -> watch::Receiver<Arc<Directory>> {
    let (sender, receiver) = watch::channel(Arc::default());
    let objects = objects.clone();
    let mut changes = objects.changes();
    tokio::spawn(async move {
        loop {
            match changes.recv().await {
                Ok(change) if !matches!(change.kind, Kind::Service | Kind::EndpointSlice) => continue,
                Ok(_) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            }
            tokio::time::sleep(SETTLE).await;
            // What has arrived meanwhile is covered by the caches' state.
            changes = changes.resubscribe();
            sender.send_replace(Arc::new(Directory::new(&objects.services.state(), &objects.slices.state())));
        }
    });
    receiver
}
