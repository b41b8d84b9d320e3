//! The rounds of a run. All devices take part in the first one, which is the only one unless a device is lost. The
//! workers that still run then compute what the lost device leaves behind; another round computes what they leave. A
//! run that begins anew ends the round at once, and computes all rows in another one.

use std::cell::Cell;
use std::time::Instant;

use super::alike;
use super::drive::drive;
use super::losses::Loss;
use super::{DeviceRun, Work, WorkerOutcome};
use crate::device::Schedule;
use crate::error::{Error, Result};
use crate::thread_pool::ThreadPool;

/// Drives the workers of all devices until all rows are finished. If `wait` is given, they begin after it returns. Sets
/// `started` to the time when the workers exist. Also returns the devices that were lost; others have computed their
/// rows.
///
/// # Errors
/// The error of the first worker that failed, or of `wait`. The error of the first lost device if no device is left.
/// [`Error::Cancelled`] if the run was cancelled before all rows were finished.
pub(crate) fn run(
    pool: &ThreadPool,
    runs: &mut [Box<dyn DeviceRun>],
    work: &mut Work<'_>,
    mut wait: Option<impl FnOnce() -> Result<()>>,
    started: &Cell<Instant>,
) -> Result<(Vec<WorkerOutcome>, Vec<Loss>)> {
    let (mut outcomes, mut lost) = (Vec::new(), Vec::<Loss>::new());
    let schedule = runs.first().map_or(Schedule::Threads, |run| run.schedule());
    loop {
        let left = runs.iter_mut().enumerate().filter(|(number, _)| lost.iter().all(|loss| loss.device != *number));
        let mut workers = Vec::new();
        for (number, run) in left {
            match run.workers(number, work) {
                Ok(its) => workers.extend(its),
                Err(error) => work.lose(number, error, work.epoch.elapsed())?,
            }
        }
        if workers.is_empty() && !lost.is_empty() {
            return Err(lost.swap_remove(0).error);
        }
        if lost.is_empty() {
            started.set(Instant::now());
        }
        let round = drive(pool, workers, work, schedule, wait.take());
        let losses = work.losses.take();
        match round {
            // The others wait for rows of the lost device, and end with it.
            Err(error) if error.is_consequence() && !losses.is_empty() => {}
            round => outcomes.extend(round?),
        }
        let queue = &work.queue;
        if work.is_complete(!losses.is_empty()) {
            lost.extend(losses);
            alike::absorb(work)?;
            return Ok((outcomes, lost));
        }
        if losses.is_empty() || queue.is_cancelled() {
            return Err(Error::Cancelled { done: queue.done(), rows: queue.rows() });
        }
        lost.extend(losses);
        if work.operator.begins_anew() {
            // What they did is done again.
            outcomes.clear();
        }
        work.again();
    }
}
