//! Properties of compile and eval, over any input that the CRDs admit.
//!
//! `reading.rs` is a naive reading of the requests, written from the documentation and without a look at the compiler: for
//! a host, a path and a method it says which route serves, behind which login. The properties hold the compiled objects,
//! as the reference evaluator reads them, against it.
//!
//! Runs are the same every time: the seed is fixed. `PROPTEST_CASES` asks for more cases, `PROPTEST_RNG_SEED` for others.

#![allow(clippy::expect_used, reason = "helpers of tests fail as tests do")]

mod agree;
mod ask;
mod chaos;
mod generate;
mod interleave;
mod order;
mod paths;
mod reading;
mod world;

use proptest::test_runner::{Config, RngSeed};

/// This many cases, unless the environment asks for more.
fn cases(cases: u32) -> Config {
    let asked = |name: &str| std::env::var_os(name).is_some();
    let mut config = Config::default();
    if !asked("PROPTEST_CASES") {
        config.cases = cases;
    }
    if !asked("PROPTEST_RNG_SEED") {
        config.rng_seed = RngSeed::Fixed(4);
    }
    config.failure_persistence = None;
    config.max_shrink_iters = 2_000;
    config
}
