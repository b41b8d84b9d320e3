//! Waiting by polling: first spinning, then sleeping.

use std::thread;
use std::time::{Duration, Instant};

use crossbeam::utils::Backoff;

/// The time for which a wait polls without sleeping. A sleeping thread wakes late, which costs up to 40 % with small
/// chunks. After this time the delay is insignificant compared with the wait, and other threads can use the core.
const POLL: Duration = Duration::from_millis(10);
/// The sleep between two polls after that time.
const PAUSE: Duration = Duration::from_micros(100);

/// The state of one wait. A new wait needs a new value.
pub(crate) struct SpinThenSleep {
    backoff: Backoff,
    /// The time of the first pause.
    start: Option<Instant>,
}

impl SpinThenSleep {
    /// Creates the state of a new wait.
    pub(crate) fn new() -> Self {
        SpinThenSleep { backoff: Backoff::new(), start: None }
    }

    /// Waits for a moment: spins or yields at first, later sleeps.
    pub(crate) fn pause(&mut self) {
        if self.start.get_or_insert_with(Instant::now).elapsed() < POLL {
            self.backoff.snooze();
        } else {
            thread::sleep(PAUSE);
        }
    }
}
