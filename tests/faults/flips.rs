//! Wrong bits: verification finds them.

use overshot::Error;

use crate::jobs::{FaultyJob, JOBS, fraction, right_sum};
use crate::standin::{Mode, Watchdog, arm, calls, disarm, engine, failed};

/// A bit is wrong in each copy and each kernel of each job, one at a time. What the caller itself copies to and from
/// sharded arrays is not part of a run.
#[test]
#[ignore = "needs the stand-in driver"]
fn wrong_bits_on_the_standin() {
    let watchdog = Watchdog::start();
    watchdog.next("counting calls");
    right_sum();
    drop(engine().unwrap());
    let (mut wrong, mut found, mut noticed, mut planted) = (0, 0, 0, 0);
    // Products of matrices cannot be verified.
    let is_left_out = |name: &str| name == "sharded" || ["products", "multiplied"].contains(&name) && fraction() > 0.0;
    for FaultyJob { name, run: job, .. } in JOBS.iter().filter(|job| !is_left_out(job.name)) {
        disarm();
        engine().and_then(|engine| job(&engine)).unwrap();
        let counts = ["cuMemcpyHtoDAsync_v2", "cuLaunchKernel", "cuMemcpyDtoHAsync_v2"].map(|call| (call, calls(call)));
        for (call, nth) in counts.into_iter().flat_map(|(call, count)| (1..=count).map(move |nth| (call, nth))) {
            let trial = format!("{name}, call {nth} of {call}");
            watchdog.next(&trial);
            arm(call, nth, Mode::Flip);
            let outcome = engine().and_then(|engine| job(&engine));
            planted += failed();
            disarm();
            match outcome {
                Ok(true) => {}
                Ok(false) if fraction() > 0.0 => panic!("{trial}: wrong rows although all chunks are verified"),
                Ok(false) => wrong += 1,
                Err(Error::Chunk { cause, .. }) if matches!(*cause, Error::Verification(_)) => found += 1,
                // A number of selected rows that is too large is noticed anyway.
                Err(error) if error.to_string().contains("selected rows in a tile") => noticed += 1,
                Err(error) => panic!("{trial}: {error}"),
            }
        }
    }
    println!("{planted} wrong bits: {wrong} jobs with wrong rows, {found} found, {noticed} errors anyway");
    let seen = if fraction() > 0.0 { found } else { wrong };
    assert!(planted > 100 && seen > planted / 2, "of {planted} wrong bits, {seen} were noticed");
}
