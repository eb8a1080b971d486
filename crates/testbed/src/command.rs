//! Running a program to its end.

use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

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
