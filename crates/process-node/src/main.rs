//! `process-node`: one node of the test bed's cluster.

mod container;
mod images;
mod logs;
mod net;
mod node;
mod objects;
mod reexec;
mod sandbox;
mod service;

fn main() {}
