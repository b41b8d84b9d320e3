//! Drives the workers of a run: each on its own thread, or all on one thread, one step at a time.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::{Queue, Work, Worker, WorkerOutcome};
use crate::device::Schedule;
use crate::device::emulated::Random;
use crate::error::{Error, Result};
use crate::memory::InRun;
use crate::thread_pool::{Call, ThreadPool};

/// Other threads are woken if one worker alone would need longer than this for the rest of a job: a thread begins to
/// work 20 to 50 µs after it was woken, and to wake it takes 5 µs. The first chunk takes longer than the others.
const WORTH_WAKING: Duration = Duration::from_micros(150);
/// Bytes of a job for which one worker needs longer than that in any case, at 20 GB/s.
const TOO_MANY_FOR_ONE: u64 = 3 << 20;

/// Drives all workers, on threads of the pool, until all of them have ended, and drops them. If `wait` is given, they
/// begin after it returns.
///
/// # Errors
/// The error of the first worker that failed, or of `wait`. The other workers stop at their next chunk.
pub(super) fn drive(
    pool: &ThreadPool,
    workers: Vec<Box<dyn Worker + '_>>,
    work: &Work<'_>,
    schedule: Schedule,
    wait: Option<impl FnOnce() -> Result<()>>,
) -> Result<Vec<WorkerOutcome>> {
    match schedule {
        Schedule::Threads => on_threads(pool, workers, work, wait),
        Schedule::Seeded(seed) => {
            wait.map_or(Ok(()), |wait| wait())?;
            round_robin(workers, seed)
        }
    }
}

fn on_threads(
    pool: &ThreadPool,
    workers: Vec<Box<dyn Worker + '_>>,
    work: &Work<'_>,
    wait: Option<impl FnOnce() -> Result<()>>,
) -> Result<Vec<WorkerOutcome>> {
    // Tells the workers whether they may begin. Waking threads is slow, so they are woken before the wait.
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
    let outcomes = Mutex::new(Vec::with_capacity(workers.len()));
    // Waking threads takes as long as a small job. So the first worker begins alone if it can do all of the work.
    let bytes = work.queue.claimed_rows().saturating_mul(work.operator.kernel().columns.row_bytes() as u64);
    let is_enough = bytes <= TOO_MANY_FOR_ONE && workers.iter().all(|worker| worker.is_enough());
    let begins_alone = wait.is_none() && is_enough;
    let before = |call: &Call<'_>| {
        if !begins_alone {
            call.wake();
        }
        if let Some(wait) = wait {
            let waited = wait();
            begin.get_or_init(|| waited.is_ok());
            waited.unwrap_or_else(fail);
        }
    };
    let first_step = Instant::now();
    let run = |(number, mut worker): (usize, Box<dyn Worker + '_>), call: &Call<'_>| {
        let _stop = StopOnPanic(work);
        let _in_run = InRun::enter();
        if !begin.wait() {
            return;
        }
        // The thread belongs to the caller or to the pool.
        let _entered = match worker.enter() {
            Ok(entered) => entered,
            Err(error) => return fail(error),
        };
        let mut is_alone = number == 0 && begins_alone;
        let begin = processor_time();
        loop {
            match worker.step() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => return fail(error),
            }
            if is_alone && remaining(&work.queue, first_step.elapsed()) > WORTH_WAKING {
                is_alone = false;
                call.wake();
            }
        }
        let outcome = WorkerOutcome { processor: processor_time().saturating_sub(begin), ..worker.outcome() };
        outcomes.lock().unwrap_or_else(PoisonError::into_inner).push((number, outcome));
    };
    pool.run(workers.into_iter().enumerate().collect(), before, run)?;
    if let Some(error) = failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    let mut outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
    outcomes.sort_by_key(|(number, _)| *number);
    Ok(outcomes.into_iter().map(|(_, outcome)| outcome).collect())
}

/// Returns the processor time of this thread so far.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    // Neither is negative.
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// Returns how long one worker needs for the rest of the rows if it goes on as it did in `elapsed`; before it has
/// finished a chunk, the time that has passed.
fn remaining(queue: &Queue<'_>, elapsed: Duration) -> Duration {
    let (done, rows) = (queue.done(), queue.claimed_rows());
    if done == 0 { elapsed } else { elapsed.mul_f64((rows - done) as f64 / done as f64) }
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
fn round_robin(workers: Vec<Box<dyn Worker + '_>>, seed: u64) -> Result<Vec<WorkerOutcome>> {
    let mut random = Random(seed ^ 0x6c61_6e65);
    let mut running: Vec<(usize, Box<dyn Worker + '_>)> = workers.into_iter().enumerate().collect();
    let mut outcomes = Vec::with_capacity(running.len());
    while let Some(earliest) = running.iter().map(|(_, worker)| worker.ready_at()).min() {
        let ready: Vec<usize> = (0..running.len()).filter(|&r| running[r].1.ready_at() == earliest).collect();
        let chosen = ready[random.below(ready.len())];
        if !running[chosen].1.step()? {
            // It is dropped now, as on a thread: other workers may wait for that.
            let (number, mut worker) = running.swap_remove(chosen);
            outcomes.push((number, worker.outcome()));
        }
    }
    outcomes.sort_by_key(|(number, _)| *number);
    Ok(outcomes.into_iter().map(|(_, outcome)| outcome).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;
    use crate::device::kernel::TILE_ROWS;
    use crate::device::probe::probe;
    use crate::ops::CustomOp;
    use crate::pipeline::{Losses, Segment};

    /// Takes long for the first chunk. Two workers meet in each of the others.
    struct Meets<'r> {
        queue: &'r Queue<'r>,
        place: &'r Barrier,
    }

    impl Worker for Meets<'_> {
        fn step(&mut self) -> Result<bool> {
            let Some(chunk) = self.queue.claim(TILE_ROWS) else { return Ok(false) };
            let begin = Instant::now();
            while chunk.index() == 0 && begin.elapsed() <= WORTH_WAKING {}
            if chunk.index() > 0 {
                self.place.wait();
            }
            self.queue.finish(&chunk)?;
            Ok(true)
        }

        fn ready_at(&self) -> Duration {
            Duration::ZERO
        }

        fn is_enough(&self) -> bool {
            true
        }

        fn outcome(&mut self) -> WorkerOutcome {
            WorkerOutcome::default()
        }
    }

    /// Panics, or waits until the run is stopped.
    struct Ends<'r> {
        queue: &'r Queue<'r>,
        panics: bool,
    }

    impl Worker for Ends<'_> {
        fn step(&mut self) -> Result<bool> {
            assert!(!self.panics, "a defect");
            thread::yield_now();
            Ok(!self.queue.has_failed())
        }

        fn ready_at(&self) -> Duration {
            Duration::ZERO
        }

        fn outcome(&mut self) -> WorkerOutcome {
            WorkerOutcome::default()
        }
    }

    /// The work of two workers on three tiles.
    fn work(operator: &CustomOp) -> Work<'_> {
        let rows = Segment { rows: 0..3 * TILE_ROWS as u64, owner: None, resident_on: None };
        Work {
            operator,
            inputs: vec![],
            outputs: vec![],
            queue: Queue::new(&[rows], TILE_ROWS, TILE_ROWS, TILE_ROWS, &[2]),
            alike: vec![],
            compaction: None,
            arbiter: None,
            losses: Losses::new(false, false),
            verification: None,
            epoch: Instant::now(),
            timed_every: 1,
            timeline: false,
            device_timeout: None,
        }
    }

    #[test]
    fn a_panic_stops_the_others_and_reaches_the_caller() {
        for panics in [0, 1] {
            let operator = CustomOp::new(probe());
            let work = work(&operator);
            let worker = |k| Box::new(Ends { queue: &work.queue, panics: k == panics }) as Box<dyn Worker>;
            let run = || {
                let wait = None::<fn() -> Result<()>>;
                drive(&ThreadPool::default(), vec![worker(0), worker(1)], &work, Schedule::Threads, wait)
            };
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err());
        }
    }

    #[test]
    fn others_begin_if_the_first_worker_alone_would_take_long() {
        let operator = CustomOp::new(probe());
        let work = work(&operator);
        let place = Barrier::new(2);
        let worker = || Box::new(Meets { queue: &work.queue, place: &place }) as Box<dyn Worker>;
        let wait = None::<fn() -> Result<()>>;
        let outcomes = drive(&ThreadPool::default(), vec![worker(), worker()], &work, Schedule::Threads, wait).unwrap();
        assert!(outcomes.len() == 2 && outcomes[0].processor > Duration::ZERO);
        assert_eq!(remaining(&work.queue, Duration::from_secs(1)), Duration::ZERO);
    }
}
