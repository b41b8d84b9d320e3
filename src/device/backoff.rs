//! How a thread waits for something that another thread or a device does.

use std::thread;
use std::time::{Duration, Instant};

use crossbeam::utils::Backoff;

/// How long a wait polls without a pause. A thread that sleeps comes back late, which costs up to 40 % at small chunks;
/// after so long a wait the delay is lost in it, and the core is better left to others.
const POLL: Duration = Duration::from_millis(10);
/// The pause between two polls after that.
const PAUSE: Duration = Duration::from_micros(100);

/// One wait: made anew for the next.
pub(crate) struct SpinThenSleep {
    backoff: Backoff,
    /// Since the first pause.
    start: Option<Instant>,
}

impl SpinThenSleep {
    /// A wait that begins now.
    pub(crate) fn new() -> Self {
        SpinThenSleep { backoff: Backoff::new(), start: None }
    }

    /// Lets a moment pass.
    pub(crate) fn pause(&mut self) {
        if self.start.get_or_insert_with(Instant::now).elapsed() < POLL {
            self.backoff.snooze();
        } else {
            thread::sleep(PAUSE);
        }
    }
}
