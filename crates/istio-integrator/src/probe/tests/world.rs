//! Questions and targets for tests.

use std::{net::SocketAddr, sync::Arc};

use super::super::{Question, Subject, Target};

/// Port 8080 of a pod, in plain HTTP, at an address that its name decides.
pub(super) fn target(pod: &str) -> Target {
    let last = pod.bytes().fold(1_u8, u8::wrapping_add);
    Target { pod: pod.into(), address: SocketAddr::from(([10, 0, 0, last], 8080)), tls: false }
}

pub(super) fn targets(pods: &[&str]) -> Arc<[Target]> {
    pods.iter().map(|pod| target(pod)).collect()
}

pub(super) fn subject(host: &str) -> Subject {
    Subject::Routes(format!("/marker/{host}").into())
}

pub(super) fn question(host: &str, expected: &str, targets: &Arc<[Target]>) -> Question {
    Question {
        subject: subject(host),
        host: host.into(),
        path: format!("/marker/{host}").into(),
        expected: expected.into(),
        epoch: "".into(),
        targets: Arc::clone(targets),
    }
}
