//! Drives lanes: a thread each, or by turns on one thread.

use std::thread;

use super::{Lane, LaneOutcome, Queue};
use crate::device::Schedule;
use crate::device::emulated::Random;
use crate::error::{Error, Result};

/// Drives all lanes to the end of the queue, and drops them.
///
/// # Errors
/// The error of the first lane that failed; the others stop at their next chunk.
pub(crate) fn drive(lanes: Vec<Box<dyn Lane + '_>>, queue: &Queue<'_>, schedule: Schedule) -> Result<Vec<LaneOutcome>> {
    let outcomes = match schedule {
        Schedule::Threads => on_threads(lanes, queue)?,
        Schedule::Seeded(seed) => by_turns(lanes, seed)?,
    };
    if queue.done() < queue.rows() {
        return Err(Error::Cancelled { done: queue.done(), rows: queue.rows() });
    }
    Ok(outcomes)
}

fn on_threads(lanes: Vec<Box<dyn Lane + '_>>, queue: &Queue<'_>) -> Result<Vec<LaneOutcome>> {
    let run = |mut lane: Box<dyn Lane + '_>| {
        let _stop = StopOnPanic(queue);
        loop {
            match lane.turn() {
                Ok(true) => {}
                Ok(false) => return Ok(lane.outcome()),
                Err(error) => {
                    queue.stop();
                    return Err(error);
                }
            }
        }
    };
    thread::scope(|scope| {
        let mut threads = Vec::with_capacity(lanes.len());
        for (k, lane) in lanes.into_iter().enumerate() {
            let thread = thread::Builder::new().name(format!("lane {k}")).spawn_scoped(scope, move || run(lane));
            threads.push(thread.map_err(|error| {
                queue.stop();
                Error::Device {
                    device: "host".into(),
                    problem: format!("cannot start a thread ({error})"),
                    remedy: "use fewer --lanes".into(),
                }
            })?);
        }
        // The lanes after the first failure may have failed of it: theirs are not the errors to show.
        let mut outcomes = Vec::with_capacity(threads.len());
        let mut failure: Option<Error> = None;
        for thread in threads {
            match thread.join() {
                Ok(Ok(outcome)) => outcomes.push(outcome),
                Ok(Err(error)) => failure = Some(first(failure, error)),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        failure.map_or(Ok(outcomes), Err)
    })
}

/// Of two errors the one that is a cause: a lane may have failed only because another did.
fn first(one: Option<Error>, other: Error) -> Error {
    match one {
        Some(one) if !one.is_consequence() => one,
        _ => other,
    }
}

/// Lets the other lanes stop when a lane panics, so that the panic comes through at once.
struct StopOnPanic<'q, 'w>(&'q Queue<'w>);

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
    Ok(lanes.iter().map(|lane| lane.outcome()).collect())
}
