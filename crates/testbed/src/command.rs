//! Running a program to its end.

use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Cargo, in the repository, with an environment as a shell would give it.
///
/// What Cargo sets for a program that it runs (`CARGO_MANIFEST_DIR` and the like) would make build scripts that look at it run
/// again in the Cargo that this program starts, and everything above them be compiled again, at each change between the two.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(crate::paths::repo_root());
    for (name, _) in std::env::vars_os() {
        let set_by_cargo = name.to_str().is_some_and(|name| {
            ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"]
                .iter()
                .any(|prefix| name.starts_with(prefix))
                || ["CARGO_PRIMARY_PACKAGE", "OUT_DIR", "LD_LIBRARY_PATH"].contains(&name)
        });
        if set_by_cargo {
            command.env_remove(name);
        }
    }
    command
}

/// Go's settings for a control plane's programs: they collect garbage at five times what is in use rather than twice, unless
/// that is more than a gigabyte. It saves a fifth of the processor time of a test, most of which they use.
pub(crate) const GO_SERVER: [(&str, &str); 2] = [("GOGC", "400"), ("GOMEMLIMIT", "1GiB")];

/// Go's settings for programs that end soon: they collect garbage only when they use much.
pub(crate) const GO_COMMAND: [(&str, &str); 2] = [("GOGC", "off"), ("GOMEMLIMIT", "256MiB")];

/// Runs a command to its end and returns its standard output; the error holds its standard error.
pub fn output(mut command: Command, input: Option<&str>) -> Result<String> {
    let what = command.get_program().to_string_lossy().into_owned();
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("start {what}"))?;
    let writer = match (input, child.stdin.take()) {
        (Some(text), Some(mut stdin)) => {
            let text = text.to_owned();
            Some(std::thread::spawn(move || stdin.write_all(text.as_bytes())))
        }
        _ => None,
    };
    let out = child.wait_with_output()?;
    if let Some(writer) = writer {
        // A child that ends early breaks the pipe; its exit status says more than that.
        let _ = writer.join();
    }
    if !out.status.success() {
        bail!("{what} failed ({}): {}", out.status, String::from_utf8_lossy(&out.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}
