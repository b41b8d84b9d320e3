//! Waits for a run, or a server: notices Ctrl-C, which Python handles on its main thread only, and shows progress.
//! Short runs stay on the thread that called, which looks for Ctrl-C between its chunks.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

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

/// When signals were handled last.
struct Handled {
    last: Instant,
    /// Whether the run is over for the handlers: one has raised this, or its thread is none on which Python calls them.
    ended: Option<Option<PyErr>>,
}

/// Handles signals on the thread that called a run, between the chunks that it computes.
pub(crate) struct Signals {
    thread: ThreadId,
    token: CancelToken,
    handled: Mutex<Handled>,
}

impl Signals {
    /// Of a run on this thread, which the token cancels.
    pub(crate) fn new(token: &CancelToken) -> Signals {
        let handled = Mutex::new(Handled { last: Instant::now(), ended: None });
        Signals { thread: thread::current().id(), token: token.clone(), handled }
    }

    /// Handles signals if this is the thread that called and it is time. If a handler raises, the run is cancelled.
    pub(crate) fn handle(&self) {
        if thread::current().id() != self.thread {
            return;
        }
        let mut handled = self.handled.lock().unwrap_or_else(PoisonError::into_inner);
        if handled.ended.is_none() && handled.last.elapsed() >= INTERVAL {
            // Another thread would wait for the interpreter's lock for nothing, so it does so once at most.
            handled.ended = Python::attach(|py| match py.check_signals() {
                Ok(()) => (!is_main_thread(py)).then_some(None),
                Err(error) => Some(Some(error)),
            });
            handled.last = Instant::now();
            if let Some(Some(_)) = handled.ended {
                self.token.cancel();
            }
        }
    }

    /// Returns what a handler has raised as an error.
    pub(crate) fn raised(self) -> PyResult<()> {
        self.handled.into_inner().unwrap_or_else(PoisonError::into_inner).ended.flatten().map_or(Ok(()), Err)
    }
}

/// Returns whether Python calls signal handlers on this thread.
fn is_main_thread(py: Python<'_>) -> bool {
    let threading = py.import("threading");
    let threads = threading.and_then(|module| Ok((module.getattr("main_thread")?, module.getattr("current_thread")?)));
    threads.and_then(|(main, current)| Ok(main.call0()?.is(&current.call0()?))).unwrap_or(true)
}

/// Calls `call`, which may wait for a server, on another thread without the interpreter's lock. If a signal handler
/// raises, the exception is returned at once, and the thread ends when the server has answered.
pub(crate) fn left_alone<R: Send + 'static>(py: Python<'_>, call: impl FnOnce() -> R + Send + 'static) -> PyResult<R> {
    let shared = Arc::new((Mutex::new(None), Condvar::new()));
    let own = shared.clone();
    let run = move || {
        let returned = catch_unwind(AssertUnwindSafe(call));
        *own.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(returned);
        own.1.notify_one();
    };
    let started = thread::Builder::new().name("overshot-open".into()).spawn(run);
    started.map_err(|error| PyRuntimeError::new_err(format!("no thread can be started: {error}")))?;
    let wait = || {
        let result = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = shared.1.wait_timeout_while(result, INTERVAL, |result| result.is_none());
        waiting.unwrap_or_else(PoisonError::into_inner).0.take()
    };
    loop {
        if let Some(returned) = py.detach(wait) {
            return returned.map_err(|panic| resume_unwind(panic));
        }
        py.check_signals()?;
    }
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
