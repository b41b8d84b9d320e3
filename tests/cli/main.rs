//! Tests the command as users see it: exit codes, messages, files.
//!
//! They run on `cpu` and `emulated`; `OVERSHOT_TEST_DEVICE` (with the values of `--device`, for example `cuda`)
//! runs them on another device. `OVERSHOT_BIN` names the command to test, for a test binary that runs on
//! another machine than the one that built it. A trial that cannot run says why and counts as ignored.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

mod arrays;
mod bad_input;
mod batch;
mod bench;
mod checks;
mod demo;
mod info;
mod jobs;
mod kernels;
mod matrices;
mod partitions;
mod parts;
mod process;
#[cfg(all(feature = "remote", feature = "zarr"))]
mod remote;
mod report;
mod resume;
#[cfg(all(feature = "remote", feature = "zarr"))]
#[path = "../remote/server.rs"]
mod server;
mod signals;
#[cfg(all(feature = "arrow", feature = "parquet"))]
mod stores;
mod tables;
mod tools;
#[path = "../watchdog/mod.rs"]
mod watchdog;

use libtest_mimic::{Arguments, Completion, Failed, Trial};

/// How a case ends: it ran, or it says why it could not. It fails by a panic.
pub type Outcome = Result<Completion, Failed>;
/// A case and its name; it is given the device.
pub type Case = (&'static str, fn(&str) -> Outcome);

fn main() {
    let devices = match std::env::var("OVERSHOT_TEST_DEVICE") {
        Ok(device) => vec![device],
        Err(_) => vec!["cpu".into(), "emulated".into()],
    };
    let mut trials = Vec::new();
    for device in &devices {
        let cases = [
            bad_input::CASES,
            jobs::CASES,
            kernels::CASES,
            matrices::CASES,
            demo::CASES,
            bench::CASES,
            arrays::CASES,
            checks::CASES,
            partitions::CASES,
            parts::CASES,
            batch::CASES,
            process::CASES,
            #[cfg(all(feature = "remote", feature = "zarr"))]
            remote::CASES,
            report::CASES,
            resume::CASES,
            info::CASES,
            #[cfg(all(feature = "arrow", feature = "parquet"))]
            stores::CASES,
            tables::CASES,
            signals::CASES,
        ];
        for (name, case) in cases.concat() {
            let given = device.clone();
            trials.push(Trial::ignorable_test(format!("{device}: {name}"), move || {
                watchdog::watched(name, || case(&given))
            }));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
