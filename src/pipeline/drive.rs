//! Drives lanes: a thread each, or by turns on one thread.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;

use super::{Lane, LaneOutcome, Work};
use crate::device::Schedule;
use crate::device::emulated::Random;
use crate::error::{Error, Result};
use crate::memory::InRun;
use crate::threads;

/// Drives all lanes to the end of the queue, and drops them. If there is something to wait for first, the lanes begin after it.
///
/// # Errors
/// The error of the first lane that failed, the others stop at their next chunk; or of the wait.
pub(crate) fn drive(
    lanes: Vec<Box<dyn Lane + '_>>,
    work: &Work<'_>,
    schedule: Schedule,
    wait: Option<impl FnOnce() -> Result<()>>,
) -> Result<Vec<LaneOutcome>> {
    let queue = &work.queue;
    let outcomes = match schedule {
        Schedule::Threads => on_threads(lanes, work, wait)?,
        Schedule::Seeded(seed) => {
            wait.map_or(Ok(()), |wait| wait())?;
            by_turns(lanes, seed)?
        }
    };
    if queue.done() < queue.rows() {
        return Err(Error::Cancelled { done: queue.done(), rows: queue.rows() });
    }
    Ok(outcomes)
}

fn on_threads(
    lanes: Vec<Box<dyn Lane + '_>>,
    work: &Work<'_>,
    wait: Option<impl FnOnce() -> Result<()>>,
) -> Result<Vec<LaneOutcome>> {
    // Whether the lanes may begin: threads are costly to start, so they are there before.
    let begin = OnceLock::new();
    if wait.is_none() {
        begin.get_or_init(|| true);
    }
    // The first failure in time is the cause: on a device that is lost all lanes fail, one after the other.
    let failure: Mutex<Option<Error>> = Mutex::new(None);
    let fail = |error: Error| {
        work.stop();
        let mut failure = failure.lock().unwrap_or_else(PoisonError::into_inner);
        if failure.as_ref().is_none_or(Error::is_consequence) {
            *failure = Some(error);
        }
    };
    let run = |mut lane: Box<dyn Lane + '_>| {
        let _stop = StopOnPanic(work);
        let _in_run = InRun::enter();
        if !begin.wait() {
            return None;
        }
        loop {
            match lane.turn() {
                Ok(true) => {}
                Ok(false) => return Some(lane.outcome()),
                Err(error) => {
                    fail(error);
                    return None;
                }
            }
        }
    };
    let outcomes = thread::scope(|scope| {
        // In reverse, as a device's submitter, for which its lanes wait, is behind them. The first lane runs on this thread, which has
        // nothing else to do.
        let mut lanes = lanes.into_iter().enumerate();
        let first = lanes.next();
        let mut threads = Vec::with_capacity(lanes.len());
        for (k, lane) in lanes.rev() {
            match thread::Builder::new().name(format!("lane {k}")).spawn_scoped(scope, || run(lane)) {
                Ok(thread) => threads.push(thread),
                Err(error) => fail(threads::not_started(&error)),
            }
        }
        if let Some(wait) = wait {
            let waited = wait();
            begin.get_or_init(|| waited.is_ok());
            waited.unwrap_or_else(fail);
        }
        let first = first.and_then(|(_, lane)| run(lane));
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

/// Lets the other lanes stop when a lane panics, so that the panic comes through at once.
struct StopOnPanic<'q, 'w>(&'q Work<'w>);

impl Drop for StopOnPanic<'_, '_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.stop();
        }
    }
}

/// One turn at a time, always of a lane that can go on earliest in virtual time; the seed chooses among several.
fn by_turns(mut lanes: Vec<Box<dyn Lane + '_>>, seed: u64) -> Result<Vec<LaneOutcome>> {
    let mut random = Random(seed ^ 0x6c61_6e65);
    let mut running: Vec<usize> = (0..lanes.len()).collect();
    while let Some(earliest) = running.iter().map(|&k| lanes[k].ready_at()).min() {
        let ready: Vec<usize> = (0..running.len()).filter(|&r| lanes[running[r]].ready_at() == earliest).collect();
        let chosen = ready[random.below(ready.len())];
        if !lanes[running[chosen]].turn()? {
            running.swap_remove(chosen);
        }
    }
    Ok(lanes.iter_mut().map(|lane| lane.outcome()).collect())
}
