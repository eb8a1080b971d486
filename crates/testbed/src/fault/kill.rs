//! Ends a client in the middle of its request.

use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use tokio::time::{Instant, sleep};

use super::request::Request;
use super::rule::Victim;

/// SIGKILL takes effect within microseconds, unless the process is in an uninterruptible call.
const DEATH: Duration = Duration::from_secs(5);

/// Kills, and returns when the victim is dead: it then sees nothing of how its request ends.
pub(super) async fn kill(victim: &Victim, request: &Request) {
    let pid = match victim {
        Victim::Call(end) => return end(request),
        Victim::Process(pid) => *pid,
    };
    // 0 and below would mean a whole process group, ours among them.
    if pid <= 0 {
        tracing::error!(pid, "fault proxy: not a process id");
        return;
    }
    match signal::kill(Pid::from_raw(pid), Signal::SIGKILL) {
        Ok(()) => tracing::info!(pid, %request, "fault proxy killed the client"),
        Err(Errno::ESRCH) => tracing::warn!(pid, %request, "fault proxy: the client was dead already"),
        Err(error) => tracing::error!(pid, %error, "fault proxy cannot kill the client"),
    }
    let deadline = Instant::now() + DEATH;
    while !is_dead(pid) && Instant::now() < deadline {
        sleep(Duration::from_millis(1)).await;
    }
}

/// Whether the process is gone, or is a zombie that its parent has yet to reap.
fn is_dead(pid: i32) -> bool {
    let Ok(stat) = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")) else {
        return true;
    };
    // The state follows the name in parentheses, which may itself hold spaces and parentheses: proc(5).
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    matches!(state, Some('Z' | 'X') | None)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Command, Stdio};

    use http::Method;

    use super::*;

    #[tokio::test]
    async fn a_process_is_dead_when_kill_returns() {
        let mut child = Command::new("sleep").arg("60").stdout(Stdio::null()).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        assert!(!is_dead(pid));
        let request = Request::parse(&Method::POST, "/api/v1/namespaces", "");
        kill(&Victim::Process(pid), &request).await;
        assert!(is_dead(pid), "not reaped yet, but dead");
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        kill(&Victim::Process(0), &request).await;
    }
}
