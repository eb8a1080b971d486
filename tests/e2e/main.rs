//! End-to-end tests on the test bed. Each module is a part of `cargo xtask test`.

mod account;
mod audit;
mod auth;
mod auth_answers;
mod auth_bypass;
mod auth_chain;
mod auth_crash;
mod auth_disguises;
mod auth_foreign;
mod auth_mesh;
mod auth_watchman;
mod auth_world;
mod cluster;
mod existing;
mod existing_last;
mod fault;
mod integrator;
mod integrator_admission;
mod integrator_conflicts;
mod integrator_deploy;
mod integrator_idle;
mod integrator_orders;
mod integrator_wrong;
mod istio;
mod network;
mod pods;
mod pods_lifecycle;
mod pods_volumes;

use std::process::ExitCode;

fn main() -> ExitCode {
    let parts = [
        cluster::tests(),
        audit::tests(),
        fault::tests(),
        pods::tests(),
        pods_lifecycle::tests(),
        pods_volumes::tests(),
        network::tests(),
        istio::tests(),
        integrator::tests(),
        auth::tests(),
        auth_bypass::tests(),
        auth_disguises::tests(),
        auth_chain::tests(),
        auth_crash::tests(),
        auth_mesh::tests(),
        auth_foreign::tests(),
        auth_answers::tests(),
        integrator_admission::tests(),
        integrator_conflicts::tests(),
        existing::tests(),
        existing_last::tests(),
        integrator_deploy::tests(),
        integrator_idle::tests(),
        integrator_orders::tests(),
    ];
    testbed::harness::main(&parts.concat())
}
