//! `bench compile`: the route compiler, each measurement in a process of its own.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use serde::Deserialize;

use super::rounds::{Measure, rounds};

const REQUESTS: [u32; 3] = [1_000, 10_000, 50_000];

#[derive(Debug, Deserialize)]
struct Measured {
    objects: u32,
    seconds: f64,
    changed_seconds: f64,
    changed_hosts: u32,
    input_kib: u32,
    peak_kib: u32,
}

const MEASURES: [Measure; 4] = [
    Measure { name: "seconds from cold", digits: 4 },
    Measure { name: "seconds, one changed", digits: 4 },
    Measure { name: "peak memory, MiB", digits: 1 },
    Measure { name: "of it the input, MiB", digits: 1 },
];

/// Measures and prints.
pub(super) fn run(tool: &Path, number: u8) -> Result<()> {
    println!(
        "\nThe route compiler: requests with a host and four routes each, two of which ask for a login\n"
    );
    let cases = REQUESTS.map(|requests| format!("{requests} requests"));
    let figures = rounds(number, &cases, &MEASURES, |case| {
        let requests = REQUESTS[case];
        let mut command = Command::new(tool);
        let measured: Measured = super::ask(command.args(["compile", "--requests", &requests.to_string()]))?;
        ensure!(measured.objects == requests, "{} objects of {requests} requests", measured.objects);
        ensure!(
            measured.changed_hosts == 1,
            "one changed request of {requests} had {} hosts made anew",
            measured.changed_hosts
        );
        let mib = |kib: u32| f64::from(kib) / 1024.0;
        Ok(vec![measured.seconds, measured.changed_seconds, mib(measured.peak_kib), mib(measured.input_kib)])
    })?;
    figures.print(|_| 0);
    println!("\nOne changed request had its host alone made anew, each time.");
    let work = |requests: u32| f64::from(requests) * f64::from(requests).ln();
    for (case, requests) in REQUESTS.into_iter().enumerate().skip(1) {
        let (grown, work) = (figures.ratio(case, 0, 0), work(requests) / work(REQUESTS[0]));
        println!(
            "{requests} requests took {grown:.1} times as long as {}; n log n grows {work:.1}-fold: {:.2} of that",
            REQUESTS[0],
            grown / work
        );
    }
    Ok(())
}
