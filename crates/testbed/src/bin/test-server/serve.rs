//! What the HTTP servers share: where they listen, and how they stop.

use std::net::{IpAddr, Ipv4Addr};
use std::process::ExitCode;

use anyhow::Context as _;
use axum::Router;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::say;

/// Where a server listens.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Listen {
    /// Port; 0 for any that is free.
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// Address.
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    address: IpAddr,
}

impl Listen {
    /// The same address with another port.
    pub(crate) fn with_port(self, port: u16) -> Self {
        Self { port, ..self }
    }

    /// Opens the port, and says which it is.
    pub(crate) async fn bind(self) -> anyhow::Result<TcpListener> {
        let address = (self.address, self.port);
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("cannot listen on {}:{}", self.address, self.port))?;
        say(&format!("listening on {}", listener.local_addr()?));
        Ok(listener)
    }
}

/// Serves beside the server itself until the process ends: what only tests ask, on a port that no gateway leads to.
pub(crate) async fn serve_aside(listen: Listen, port: Option<u16>, app: Router) -> anyhow::Result<()> {
    let Some(port) = port else { return Ok(()) };
    let listener = listen.with_port(port).bind().await?;
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(())
}

/// Serves until SIGTERM, then finishes the requests under way.
pub(crate) async fn serve(listen: Listen, app: Router) -> anyhow::Result<ExitCode> {
    let listener = listen.bind().await?;
    let mut term = signal(SignalKind::terminate())?;
    let stop = async move {
        term.recv().await;
        say("SIGTERM: draining");
    };
    axum::serve(listener, app).with_graceful_shutdown(stop).await?;
    say("drained");
    Ok(ExitCode::SUCCESS)
}

/// Serves in the background on a port of loopback, for tests in this program.
#[cfg(test)]
pub(crate) async fn background(app: Router) -> std::net::SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}
