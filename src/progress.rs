//! What a running job tells and is told: how far it is, and to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How far a job is, told after every chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Rows that went all the way.
    pub done: u64,
    /// Rows of the job.
    pub rows: u64,
}

/// Stops a running job from another thread. Clones stop the same job.
///
/// ```
/// use overshot::{CancelToken, DeviceChoice, Engine, Error, Job};
/// let engine = Engine::builder().device(DeviceChoice::Cpu).build()?;
/// let token = CancelToken::new();
/// token.cancel();
/// let x = [1.0f64; 10];
/// let result = engine.run(Job::eval("sum(x)")?.input("x", &x).cancel_token(token));
/// assert!(matches!(result, Err(Error::Cancelled { done: 0, rows: 10 })));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// A token that stops nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets the job stop: no worker claims another chunk, chunks in flight are finished, no file appears, and
    /// [`Engine::run`](crate::Engine::run) returns [`Error::Cancelled`](crate::Error::Cancelled). A job that waits for the memory of
    /// others stops waiting. There is no time limit: the job ends when the device, and the caller's code that it is in, have
    /// finished the chunks in flight, and never if a device hangs.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether [`cancel`](CancelToken::cancel) was called.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
