//! Ends the process and prints the name of the case when a case hangs, so that a deadlock fails instead of blocking
//! the test run.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use std::{process, thread};

/// Far longer than any case takes, also with a sanitizer on a busy machine.
const LIMIT: Duration = Duration::from_secs(900);

/// Runs a case.
pub fn watched<T>(name: &str, case: impl FnOnce() -> T) -> T {
    let (running, is_running) = channel::<()>();
    let what = name.to_owned();
    let watch = thread::spawn(move || {
        if is_running.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout) {
            eprintln!("the case '{what}' hangs: it has run for {} s", LIMIT.as_secs());
            process::abort();
        }
    });
    let outcome = case();
    // Also dropped by a panic.
    drop(running);
    // A thread that ends while the process exits can look to LeakSanitizer as if it had lost its memory.
    watch.join().expect("the watchdog does not panic");
    outcome
}
