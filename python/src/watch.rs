//! Waits for a run: notices Ctrl-C, which Python handles on its main thread only, and shows progress.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use overshot::CancelToken;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// How often signals are handled and progress is shown.
const INTERVAL: Duration = Duration::from_millis(50);

/// The rows that a run has finished, of all. A run may have several passes, each of which begins with none.
#[derive(Default)]
pub(crate) struct Done {
    pass: AtomicU64,
    /// The pass and its finished rows, so that the largest one is the latest.
    done: AtomicU64,
    /// 0 before the first rows are recorded.
    rows: AtomicU64,
}

/// The bits of the number of rows: no dataset has more.
const ROWS: u32 = 48;

impl Done {
    /// Records progress; calls may come in any order.
    pub(crate) fn record(&self, done: u64, rows: u64) {
        self.done.fetch_max(self.pass.load(Ordering::Relaxed) << ROWS | done, Ordering::Relaxed);
        self.rows.store(rows, Ordering::Relaxed);
    }

    /// Begins another pass when its first rows are recorded. No call of `record` is under way.
    pub(crate) fn end_pass(&self) {
        self.pass.fetch_add(1, Ordering::Relaxed);
    }
}

/// Calls `run` on another thread without the interpreter's lock, and waits for it. If a signal handler or `show`
/// raises, the run is cancelled, and the exception is returned when it has ended.
pub(crate) fn watched<R: Send>(
    py: Python<'_>,
    token: &CancelToken,
    done: &Done,
    show: Option<&Bound<'_, PyAny>>,
    run: impl FnOnce() -> R + Send,
) -> PyResult<R> {
    let (result, has_ended) = (Mutex::new(None), Condvar::new());
    let lock = || result.lock().unwrap_or_else(PoisonError::into_inner);
    let call = || {
        let returned = catch_unwind(AssertUnwindSafe(run));
        *lock() = Some(returned);
        has_ended.notify_one();
    };
    let wait = || {
        let waiting = has_ended.wait_timeout_while(lock(), INTERVAL, |result| result.is_none());
        waiting.unwrap_or_else(PoisonError::into_inner).0.take()
    };
    thread::scope(|scope| {
        let started = thread::Builder::new().name("overshot-run".into()).spawn_scoped(scope, call);
        started.map_err(|error| PyRuntimeError::new_err(format!("no thread can be started: {error}")))?;
        let mut raised = None;
        let returned = loop {
            if let Some(returned) = py.detach(wait) {
                break returned;
            }
            if raised.is_none() {
                let shown = show.map_or(Ok(()), |show| shown(show, done));
                raised = py.check_signals().and(shown).err();
                if raised.is_some() {
                    token.cancel();
                }
            }
        };
        if let Some(exception) = raised {
            return Err(exception);
        }
        show.map_or(Ok(()), |show| shown(show, done))?;
        returned.map_err(|panic| resume_unwind(panic))
    })
}

/// Calls `show`, unless nothing is finished yet: before, the number of rows is not known.
fn shown(show: &Bound<'_, PyAny>, done: &Done) -> PyResult<()> {
    let rows = done.rows.load(Ordering::Relaxed);
    if rows == 0 {
        return Ok(());
    }
    let finished = done.done.load(Ordering::Relaxed) & ((1 << ROWS) - 1);
    show.call1((finished, rows)).map(drop)
}
