//! A real Kubernetes cluster on one machine, without root, for tests and demonstrations.
//!
//! etcd, kube-apiserver, kube-controller-manager and kube-scheduler are the real programs, built from their Go
//! modules; [`process_node`] stands in for the kubelet and runs pods as processes. Everything lives in one user,
//! network, mount and PID namespace and ends with the process that started it.

pub mod audit;
mod bootstrap;
mod cluster;
pub mod command;
pub mod curl;
pub mod existing;
pub mod fault;
pub mod harness;
pub mod images;
pub mod istio;
mod namespace;
pub mod operators;
pub mod paths;
mod pki;
pub mod raw;
mod rundir;
pub mod site;
mod supervisor;
pub mod tools;

pub use bootstrap::client;
pub use cluster::{Cluster, Options, Session};
pub use namespace::{check as check_namespaces, dispatch, hold_elsewhere, signal_group};
pub use pki::self_signed;
pub use site::Site;

/// Makes `ring` the process's TLS provider; calling it again changes nothing.
pub fn install_crypto() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}
