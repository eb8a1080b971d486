//! What a worker hears from the tasks it started.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;

use super::run::Run;
use super::setup::{Base, Holdings, SetupError};
use super::unit::Ended;
use crate::probe::{Finding, Kind};

/// What a worker hears.
pub(super) enum Message {
    /// The Pod has changed.
    Pod(Arc<Pod>),
    /// The Pod is gone from the API server.
    Gone,
    /// The pod is set up, or cannot be.
    SetUp(Result<Box<(Base, Holdings)>, SetupError>),
    /// A container runs, or could not be started.
    Launched { unit: usize, launch: Launch },
    /// Nothing more is to be done for the start of a container.
    StartDone { unit: usize },
    /// A container has ended.
    Exited { unit: usize, ended: Ended },
    /// A probe has found something.
    Probed { unit: usize, attempt: i32, kind: Kind, finding: Finding },
    /// All containers that were to be stopped have been.
    Stopped,
}

/// What came of the start of a container.
pub(super) enum Launch {
    /// It runs.
    Running { run: Box<Run>, image_id: String, container_id: String },
    /// It could not be executed.
    Broken { ended: Ended, image_id: String, container_id: String },
    /// It could not be created.
    Refused { reason: &'static str, message: String, soon: Option<Duration> },
}
