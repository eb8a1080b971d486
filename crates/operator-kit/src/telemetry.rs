//! Logs, and their level at run time.

use std::{fmt, io::IsTerminal as _};
use thiserror::Error;
use tracing_subscriber::{
    EnvFilter, Registry,
    filter::ParseError,
    layer::SubscriberExt as _,
    reload,
    util::{SubscriberInitExt as _, TryInitError},
};

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For people.
    Text,
}

/// Why logging could not be set up or changed.
#[derive(Debug, Error)]
pub enum TelemetryError {
    /// The level is not one.
    #[error(
        "{0:?} is not a log level: {1}; give a level (error, warn, info, debug, trace) or directives such as \
         `info,istio_integrator=debug`"
    )]
    Level(String, #[source] ParseError),
    /// Another subscriber is in place.
    #[error("logging is already set up: {0}")]
    Twice(#[from] TryInitError),
    /// The subscriber is gone.
    #[error("the log level cannot be changed: {0}")]
    Reload(#[from] reload::Error),
}

/// Changes the log level of the running process. Clones change the same one.
#[derive(Clone)]
pub struct LogLevel(reload::Handle<EnvFilter, Registry>);

impl fmt::Debug for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LogLevel")
    }
}

impl LogLevel {
    /// The level in force, as directives.
    pub fn current(&self) -> Result<String, TelemetryError> {
        Ok(self.0.with_current(ToString::to_string)?)
    }

    /// Puts `directives` in force: a level, or `target=level` pairs, comma-separated.
    pub fn set(&self, directives: &str) -> Result<(), TelemetryError> {
        Ok(self.0.reload(parse(directives)?)?)
    }
}

fn parse(directives: &str) -> Result<EnvFilter, TelemetryError> {
    EnvFilter::try_new(directives).map_err(|error| TelemetryError::Level(directives.to_owned(), error))
}

/// Sends logs to standard error in `format`, from the level `directives` up.
pub fn init(format: LogFormat, directives: &str) -> Result<LogLevel, TelemetryError> {
    let (filter, handle) = reload::Layer::new(parse(directives)?);
    let registry = tracing_subscriber::registry().with(filter);
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Json => registry.with(lines.json().flatten_event(true)).try_init()?,
        LogFormat::Text => registry.with(lines).try_init()?,
    }
    Ok(LogLevel(handle))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_change_while_running() {
        let (filter, handle) = reload::Layer::<EnvFilter, Registry>::new(parse("info").unwrap());
        let level = LogLevel(handle);
        assert_eq!(level.current().unwrap(), "info");
        level.set("warn,operator_kit=debug").unwrap();
        assert_eq!(level.current().unwrap(), "operator_kit=debug,warn");
        let error = level.set("x=loud").unwrap_err().to_string();
        assert!(error.contains("\"x=loud\" is not a log level"), "{error}");
        assert_eq!(level.current().unwrap(), "operator_kit=debug,warn");
        drop(filter);
        assert!(level.set("info").is_err());
    }
}
