//! End-to-end tests on the test bed. Each module is a part of `cargo xtask test`.

mod cluster;
mod integrator;
mod integrator_idle;
mod istio;
mod network;
mod pods;
mod pods_lifecycle;
mod pods_volumes;

use std::process::ExitCode;

fn main() -> ExitCode {
    let parts = [
        cluster::tests(),
        pods::tests(),
        pods_lifecycle::tests(),
        pods_volumes::tests(),
        network::tests(),
        istio::tests(),
        integrator::tests(),
        integrator_idle::tests(),
    ];
    testbed::harness::main(&parts.concat())
}
