//! A process that shows which signals reach it.

use std::process::ExitCode;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::exit::seconds;
use crate::say;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Seconds from the first SIGTERM or SIGINT to the exit. More than the pod's grace period makes it be
    /// killed.
    #[arg(long, default_value = "0", value_parser = seconds)]
    delay: Duration,
    /// Exit code after SIGTERM or SIGINT.
    #[arg(long, default_value_t = 0)]
    code: u8,
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (sender, mut received) = mpsc::unbounded_channel();
    let kinds = [
        ("SIGHUP", SignalKind::hangup()),
        ("SIGINT", SignalKind::interrupt()),
        ("SIGQUIT", SignalKind::quit()),
        ("SIGTERM", SignalKind::terminate()),
        ("SIGUSR1", SignalKind::user_defined1()),
        ("SIGUSR2", SignalKind::user_defined2()),
    ];
    for (name, kind) in kinds {
        let mut signals = signal(kind)?;
        let sender = sender.clone();
        tokio::spawn(async move { while signals.recv().await.is_some() && sender.send(name).is_ok() {} });
    }
    say("waiting for signals");
    let mut end = None;
    loop {
        let ended = async {
            match end {
                Some(end) => sleep_until(end).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // Signals that are there already are told first, also when the time is up.
            biased;
            Some(name) = received.recv() => {
                say(name);
                if matches!(name, "SIGTERM" | "SIGINT") {
                    end.get_or_insert_with(|| Instant::now() + args.delay);
                }
            }
            () = ended => {
                say("exit");
                return Ok(ExitCode::from(args.code));
            }
        }
    }
}
