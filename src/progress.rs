//! Communication with a running job: its progress, and the request to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The progress of a job, reported after every chunk.
///
/// ```
/// use overshot::{DeviceChoice, Engine, Job};
/// use std::sync::atomic::{AtomicU64, Ordering};
/// let engine = Engine::builder().device(DeviceChoice::Cpu).build()?;
/// let (x, most) = (vec![1.0; 100_000], AtomicU64::new(0));
/// let job = Job::eval("sum(x)")?.input("x", &x).progress(|progress| {
///     println!("{} %", 100 * progress.done / progress.rows);
///     most.fetch_max(progress.done, Ordering::Relaxed);
/// });
/// engine.run(job)?;
/// assert_eq!(most.into_inner(), 100_000);
/// # Ok::<(), overshot::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Rows that are finished: computed, and written to the outputs.
    pub done: u64,
    /// Rows of the job.
    pub rows: u64,
}

/// Cancels a running job from another thread. All clones of a token cancel the same job.
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
    /// Creates a token that is not cancelled.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Cancels the job. Workers claim no more chunks, chunks in flight are finished, no output file appears, and
    /// [`Engine::run`](crate::Engine::run) returns [`Error::Cancelled`](crate::Error::Cancelled). A job that waits
    /// for memory of other jobs stops waiting.
    ///
    /// There is no time limit: the job ends when the device and the caller's sources, sinks and kernels have finished
    /// the chunks in flight. If a device hangs, the job never ends.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns whether [`cancel`](CancelToken::cancel) was called.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
