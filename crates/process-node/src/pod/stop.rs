//! Stopping containers: `preStop` hook, SIGTERM, patience, SIGKILL.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use nix::sys::signal::Signal;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::Context;
use super::events::Severity::{Normal, Warning};
use super::run::Run;
use crate::probe::Check;

/// What a container gets after its hook even when its time is up (kubelet's `minimumGracePeriodInSeconds`).
const LEAST_GRACE: Duration = Duration::from_secs(2);

/// Stops one container by the deadline, which may still be moved. `why` goes into the Event.
pub(super) async fn stop(
    cx: &Context,
    pod: &Pod,
    mut run: Run,
    mut deadline: watch::Receiver<Instant>,
    why: String,
) {
    if *run.ended.borrow() {
        return;
    }
    let container = (run.container.name.as_str(), run.is_init);
    cx.events.container(pod, container, Normal, "Killing", why);
    let hook = run.container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.pre_stop.as_ref());
    if let Some(hook) = hook.filter(|_| run.is_process()) {
        let outcome = match Check::of_hook(hook, &run.container) {
            Ok(check) => {
                let mut ended = run.clone();
                let left = deadline.borrow().saturating_duration_since(Instant::now());
                tokio::select! {
                    outcome = check.run(&run.place, left) => outcome,
                    () = ended.wait() => return,
                    () = reached(&mut deadline) => Err("its time is up".to_owned()),
                }
            }
            Err(error) => Err(error),
        };
        if let Err(error) = outcome {
            let container = (run.container.name.as_str(), run.is_init);
            cx.events.container(
                pod,
                container,
                Warning,
                "FailedPreStopHook",
                format!("PreStopHook failed: {error}"),
            );
        }
    }
    run.signal(Signal::SIGTERM);
    let least = Instant::now() + LEAST_GRACE;
    let mut ended = run.clone();
    tokio::select! {
        () = ended.wait() => return,
        () = async { reached(&mut deadline).await; sleep_until(least).await } => {}
    }
    run.signal(Signal::SIGKILL);
    run.wait().await;
}

/// Stops all of a pod's containers: first the main ones together, then the restartable init containers, the last
/// first.
pub(super) async fn stop_all(
    cx: Arc<Context>,
    pod: Arc<Pod>,
    main: Vec<Run>,
    sidecars: Vec<Run>,
    deadline: watch::Receiver<Instant>,
) {
    let why = |run: &Run| format!("Stopping container {}", run.container.name);
    futures::future::join_all(main.into_iter().map(|run| {
        let why = why(&run);
        stop(&cx, &pod, run, deadline.clone(), why)
    }))
    .await;
    for run in sidecars.into_iter().rev() {
        let why = why(&run);
        stop(&cx, &pod, run, deadline.clone(), why).await;
    }
}

/// Waits for a deadline that may be moved meanwhile.
async fn reached(deadline: &mut watch::Receiver<Instant>) {
    loop {
        let moment = *deadline.borrow_and_update();
        tokio::select! {
            () = sleep_until(moment) => return,
            changed = deadline.changed() => if changed.is_err() {
                sleep_until(moment).await;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn deadlines_can_be_moved_nearer() {
        let (sender, mut receiver) = watch::channel(Instant::now() + Duration::from_mins(10));
        let waiting = tokio::spawn(async move { reached(&mut receiver).await });
        tokio::task::yield_now().await;
        sender.send(Instant::now()).unwrap();
        tokio::time::timeout(Duration::from_secs(5), waiting).await.unwrap().unwrap();
    }
}
