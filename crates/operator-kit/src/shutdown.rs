//! When to stop.

use std::io;
use tokio::signal::unix::{SignalKind, signal};

/// Waits for SIGTERM, which Kubernetes sends, or SIGINT, which a terminal does; returns its name.
pub async fn requested() -> io::Result<&'static str> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    })
}
