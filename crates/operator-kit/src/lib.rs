//! What every operator needs around its pure core.
//!
//! ```text
//!   API server --watch--> cache --> (the operator's plan) --> apply, prune, status, notices --> API server
//!                           ^                                     |
//!                           +---------- our own writes -----------+
//! ```
//!
//! - [`cache`] and [`watch`]: what is in the cluster, stripped to what the operator reads, with our own writes
//!   put in at once so that a late watch event never causes a second write.
//! - [`apply`], [`fields`] and [`conflict`]: server-side apply that writes only what differs, never touches an
//!   object of somebody else, and says whose it is.
//! - [`status`] and [`notice`]: conditions and Events, written on change only.
//! - [`lease`]: one writer at a time.
//! - [`backoff`]: how long to leave an object alone after a failure or after a repair.
//! - [`admin`], [`metrics`], [`telemetry`], [`shutdown`], [`client`]: the process around it.

pub mod admin;
pub mod apply;
pub mod backoff;
pub mod cache;
pub mod client;
pub mod conflict;
pub mod fields;
pub mod lease;
pub mod metrics;
pub mod notice;
pub mod shutdown;
pub mod status;
pub mod telemetry;
pub mod watch;
