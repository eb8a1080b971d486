//! What the test bed needs to know of its node: the configuration that `process-node` reads.
//!
//! The program itself (`process-node run`) is the binary of this package. It stands in for kubelet, kube-proxy,
//! the cloud's load balancer and cluster DNS on a single node whose containers are plain processes in
//! namespaces. See `docs/architecture.md` for where it stands in the whole.

pub mod config;
