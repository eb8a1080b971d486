//! A process that ends as it is told.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};

use crate::say;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Exit code.
    code: u8,
    /// Seconds to wait first. SIGTERM ends the wait, with code 143 as a shell has it.
    #[arg(long, default_value = "0", value_parser = seconds)]
    after: Duration,
    /// Text for the termination message.
    #[arg(long)]
    message: Option<String>,
    /// Where the container's termination message goes.
    #[arg(long, default_value = "/dev/termination-log")]
    termination_log: PathBuf,
}

/// Reads seconds, with a fraction or without.
pub(crate) fn seconds(text: &str) -> anyhow::Result<Duration> {
    let seconds: f64 = text.parse().with_context(|| format!("{text:?} is no number of seconds"))?;
    Duration::try_from_secs_f64(seconds).with_context(|| format!("{text} s is no time to wait"))
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut term = signal(SignalKind::terminate())?;
    tokio::select! {
        () = tokio::time::sleep(args.after) => {}
        _ = term.recv() => {
            say("SIGTERM");
            return Ok(ExitCode::from(143));
        }
    }
    if let Some(message) = &args.message {
        say(message);
        std::fs::write(&args.termination_log, message).with_context(|| {
            format!("cannot write the termination message to {}", args.termination_log.display())
        })?;
    }
    Ok(ExitCode::from(args.code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn ends_with_code_and_message_after_the_time() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let args = Args {
            code: 3,
            after: seconds("0.05").unwrap(),
            message: Some("out of cheese".to_owned()),
            termination_log: log.clone(),
        };
        let start = std::time::Instant::now();
        let code = run(args).await.unwrap();
        assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::from(3)));
        assert!(start.elapsed() >= Duration::from_millis(50));
        assert_eq!(std::fs::read_to_string(log).unwrap(), "out of cheese");
    }

    #[test]
    fn times_are_seconds() {
        assert_eq!(seconds("1.5").unwrap(), Duration::from_millis(1500));
        for bad in ["-1", "soon", "NaN", "inf"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}
