//! Tests of templates: facts, and a comparison with Go.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unnecessary_wraps)]

mod data;
mod facts;
mod functions;
mod generator;
mod oracle;
