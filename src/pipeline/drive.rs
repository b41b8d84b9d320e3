//! Drives the workers of a run: each on its own thread, or all on one thread, one step at a time.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;

use super::{Work, Worker, WorkerOutcome};
use crate::device::Schedule;
use crate::device::emulated::Random;
use crate::error::{Error, Result};
use crate::memory::InRun;
use crate::threads;

/// Drives all workers until the queue is empty, and drops them. If `wait` is given, the workers begin after it
/// returns.
///
/// # Errors
/// The error of the first worker that failed, or of `wait`. The other workers stop at their next chunk.
/// [`Error::Cancelled`] if the workers stopped before all rows were finished.
pub(crate) fn drive(
    workers: Vec<Box<dyn Worker + '_>>,
    work: &Work<'_>,
    schedule: Schedule,
    wait: Option<impl FnOnce() -> Result<()>>,
) -> Result<Vec<WorkerOutcome>> {
    let queue = &work.queue;
    let outcomes = match schedule {
        Schedule::Threads => on_threads(workers, work, wait)?,
        Schedule::Seeded(seed) => {
            wait.map_or(Ok(()), |wait| wait())?;
            round_robin(workers, seed)?
        }
    };
    if queue.done() < queue.rows() {
        return Err(Error::Cancelled { done: queue.done(), rows: queue.rows() });
    }
    Ok(outcomes)
}

fn on_threads(
    workers: Vec<Box<dyn Worker + '_>>,
    work: &Work<'_>,
    wait: Option<impl FnOnce() -> Result<()>>,
) -> Result<Vec<WorkerOutcome>> {
    // Tells the workers whether they may begin. Starting threads is slow, so they are started before the wait.
    let begin = OnceLock::new();
    if wait.is_none() {
        begin.get_or_init(|| true);
    }
    // The first failure in time is the cause: when a device is lost, all of its workers fail one after the other.
    let failure: Mutex<Option<Error>> = Mutex::new(None);
    let fail = |error: Error| {
        work.stop();
        let mut failure = failure.lock().unwrap_or_else(PoisonError::into_inner);
        if failure.as_ref().is_none_or(Error::is_consequence) {
            *failure = Some(error);
        }
    };
    let run = |mut worker: Box<dyn Worker + '_>| {
        let _stop = StopOnPanic(work);
        let _in_run = InRun::enter();
        if !begin.wait() {
            return None;
        }
        loop {
            match worker.step() {
                Ok(true) => {}
                Ok(false) => return Some(worker.outcome()),
                Err(error) => {
                    fail(error);
                    return None;
                }
            }
        }
    };
    let outcomes = thread::scope(|scope| {
        // Started in reverse order: the submitter of a device comes after its workers, which wait for it. The first
        // worker runs on this thread, which has nothing else to do.
        let mut workers = workers.into_iter().enumerate();
        let first = workers.next();
        let mut threads = Vec::with_capacity(workers.len());
        for (k, worker) in workers.rev() {
            match thread::Builder::new().name(format!("worker {k}")).spawn_scoped(scope, || run(worker)) {
                Ok(thread) => threads.push(thread),
                Err(error) => fail(threads::not_started(&error)),
            }
        }
        if let Some(wait) = wait {
            let waited = wait();
            begin.get_or_init(|| waited.is_ok());
            waited.unwrap_or_else(fail);
        }
        let first = first.and_then(|(_, worker)| run(worker));
        let others = threads.into_iter().rev().filter_map(|thread| match thread.join() {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        first.into_iter().chain(others).collect::<Vec<_>>()
    });
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(outcomes),
    }
}

/// Stops the other workers when a worker panics, so that the panic is propagated at once.
struct StopOnPanic<'q, 'w>(&'q Work<'w>);

impl Drop for StopOnPanic<'_, '_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.stop();
        }
    }
}

/// Runs one step at a time, always of a worker whose next step is earliest in virtual time. The seed chooses among
/// several.
fn round_robin(mut workers: Vec<Box<dyn Worker + '_>>, seed: u64) -> Result<Vec<WorkerOutcome>> {
    let mut random = Random(seed ^ 0x6c61_6e65);
    let mut running: Vec<usize> = (0..workers.len()).collect();
    while let Some(earliest) = running.iter().map(|&k| workers[k].ready_at()).min() {
        let ready: Vec<usize> = (0..running.len()).filter(|&r| workers[running[r]].ready_at() == earliest).collect();
        let chosen = ready[random.below(ready.len())];
        if !workers[running[chosen]].step()? {
            running.swap_remove(chosen);
        }
    }
    Ok(workers.iter_mut().map(|worker| worker.outcome()).collect())
}
