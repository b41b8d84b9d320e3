//! Models of the workers and the submitter of a device, which hand chunks over to each other.

use std::collections::VecDeque;

use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use shuttle::sync::{Arc, Mutex};
use shuttle::thread;

use crate::check;
use crate::error::{Error, Result};
use crate::handover::{Enqueue, Finished, Step, SubmitterEnd, Waiting, WorkerEnd, connect};
use crate::scalars::{LateScalars, ScalarArgs};

/// A chunk on its way through the device. Workers number their chunks in the order in which they send them.
#[derive(Debug)]
struct Slot {
    worker: usize,
    number: u64,
    chunk: u64,
    /// Which of the fills of the chunk it has, and how many there are.
    fill: u64,
    fills: u64,
    /// Whether its copies in were enqueued ahead, so that it holds a block.
    has_block: bool,
}

/// A device that checks the order of its chunks. Each chunk is done after a few looks.
struct FakeDevice {
    values: &'static ScalarArgs,
    free_blocks: usize,
    /// The number of the next chunk of each worker.
    next: Vec<u64>,
    /// The chunks that arrived before the values were known and are not launched, and those that are not done.
    ahead: VecDeque<u64>,
    launched: VecDeque<u64>,
    /// The calls until a call fails.
    calls_left: u64,
    /// Whether `finish` returns chunks at once, as in a schedule on one thread.
    is_cooperative: bool,
    /// The chunks of a panel: only those of the oldest panel that is not complete are accepted, and those of the next
    /// one. 0 without panels.
    panel: u64,
    /// The chunks that were submitted of each panel.
    submitted: Vec<u64>,
    /// Whether a worker has a block for a chunk of which other fills follow.
    has_begun: Vec<bool>,
    run: Arc<Run>,
}

impl FakeDevice {
    fn call(&mut self) -> Result<()> {
        self.calls_left = self.calls_left.checked_sub(1).ok_or_else(failure)?;
        Ok(())
    }
}

fn failure() -> Error {
    Error::Internal("a failure of the model".into())
}

impl Enqueue for FakeDevice {
    type Filled = Slot;
    type InFlight = Slot;
    type Done = Slot;

    fn accepts(&self, filled: &Slot) -> bool {
        let oldest = self.submitted.iter().position(|chunks| *chunks < self.panel).unwrap_or(self.submitted.len());
        let has_panel = self.panel == 0 || filled.chunk / self.panel <= oldest as u64 + 1;
        let has_block = match filled.fill {
            0 => filled.has_block || self.free_blocks > 0,
            _ => self.has_begun[filled.worker],
        };
        // After a failure, the chunks before it may never come.
        has_panel && has_block || self.run.stopped.load(Ordering::SeqCst)
    }

    fn copy_ahead(&mut self, filled: &mut Slot, in_flight: &VecDeque<Slot>) -> Result<()> {
        assert!(in_flight.is_empty(), "a chunk was launched before the values were known");
        self.call()?;
        filled.has_block = self.free_blocks > 0 && filled.fills == 1;
        self.free_blocks -= usize::from(filled.has_block);
        self.ahead.push_back(filled.chunk);
        Ok(())
    }

    fn submit(&mut self, filled: Slot, _: &VecDeque<Slot>) -> Result<Slot> {
        if let Some(panel) = filled.chunk.checked_div(self.panel) {
            let oldest = self.submitted.iter().position(|chunks| *chunks < self.panel).unwrap_or(self.submitted.len());
            if panel > oldest as u64 + 1 {
                return Err(Error::abandoned());
            }
            self.submitted.resize(self.submitted.len().max(panel as usize + 1), 0);
            self.submitted[panel as usize] += 1;
        }
        if self.panel > 0 || self.run.fills > 1 {
            // They may overtake each other.
            self.ahead.clear();
        }
        assert!(self.values.known().is_ok(), "a launch without values");
        assert_eq!(self.next[filled.worker], filled.number, "order of the chunks of a worker");
        self.next[filled.worker] += 1;
        if let Some(ahead) = self.ahead.pop_front() {
            assert_eq!(ahead, filled.chunk, "a chunk overtakes");
        }
        self.call()?;
        let has_block = filled.has_block || filled.fill > 0 && self.has_begun[filled.worker];
        if !has_block && self.run.stopped.load(Ordering::SeqCst) && (filled.fill > 0 || self.free_blocks == 0) {
            return Err(Error::abandoned());
        }
        assert!(has_block || filled.fill == 0 && self.free_blocks > 0, "chunks that wait hold all blocks");
        // The block is free for the next chunk as soon as the work is enqueued, behind the last fill.
        let is_last = filled.fill + 1 == filled.fills;
        self.free_blocks = self.free_blocks + usize::from(has_block) + usize::from(is_last) - 1;
        self.has_begun[filled.worker] = !is_last;
        self.launched.push_back(filled.chunk);
        Ok(filled)
    }

    fn finish(&mut self, oldest: Slot, _: &VecDeque<Slot>) -> Result<Finished<Self>> {
        assert_eq!(self.launched.front(), Some(&oldest.chunk), "not the oldest chunk");
        if !self.is_cooperative && thread_rng().gen_bool(0.5) {
            return Ok(Err(oldest));
        }
        self.call()?;
        self.launched.pop_front();
        Ok(Ok((oldest.worker, oldest)))
    }
}

/// What a worker was doing when it ended.
type Outcome = Result<()>;

/// The part of a run that all workers share.
struct Run {
    values: &'static ScalarArgs,
    next: AtomicU64,
    chunks: u64,
    slots: usize,
    /// The most fills of a chunk.
    fills: u64,
    stopped: AtomicBool,
    drained: Mutex<Vec<u64>>,
    /// The worker that claims this chunk fails.
    fails_at: u64,
}

impl Run {
    fn claim(&self) -> Option<u64> {
        let chunk = (!self.stopped.load(Ordering::SeqCst)).then(|| self.next.fetch_add(1, Ordering::SeqCst))?;
        (chunk < self.chunks).then_some(chunk)
    }

    /// Does what `Work::stop` does.
    fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.values.abandon();
    }
}

/// A worker that does what `StagingWorker` does.
struct ModelWorker {
    worker: usize,
    end: WorkerEnd<'static, FakeDevice>,
    run: Arc<Run>,
    idle: usize,
    /// The chunk of which fills are left, and the next one.
    rest: Option<(u64, u64)>,
    sent: u64,
    received: u64,
    waits: bool,
}

impl ModelWorker {
    /// Returns whether anything was done, or `None` at the end.
    fn step(&mut self) -> Result<Option<bool>> {
        if self.idle == 0 || self.waits {
            let Some(done) = self.end.receive()? else { return Ok(Some(false)) };
            assert_eq!((done.worker, done.number), (self.worker, self.received), "order of the chunks received");
            if done.fill + 1 == done.fills {
                self.run.drained.lock().unwrap().push(done.chunk);
            }
            (self.received, self.idle, self.waits) = (self.received + 1, self.idle + 1, false);
        } else if let Some((chunk, fill)) = self.rest.take().or_else(|| Some((self.run.claim()?, 0))) {
            let fills = chunk % self.run.fills + 1;
            // In the middle of a chunk, if it has several fills.
            if chunk == self.run.fails_at && fill == fills / 2 {
                return Err(failure());
            }
            self.end.send(Slot { worker: self.worker, number: self.sent, chunk, fill, fills, has_block: false })?;
            (self.sent, self.idle) = (self.sent + 1, self.idle - 1);
            self.rest = (fill + 1 < fills).then_some((chunk, fill + 1));
        } else if self.received < self.sent {
            self.waits = true;
        } else {
            assert_eq!(self.idle, self.run.slots, "a slot was lost");
            self.end.end();
            return Ok(None);
        }
        Ok(Some(true))
    }
}

/// A device and its workers before they begin.
struct Model {
    run: Arc<Run>,
    workers: Vec<ModelWorker>,
    submitter: SubmitterEnd<'static, FakeDevice>,
    device: FakeDevice,
}

/// When a worker or the submitter fails.
#[derive(Clone, Copy)]
struct Failing {
    at_chunk: u64,
    after_calls: u64,
}

const NEVER: Failing = Failing { at_chunk: u64::MAX, after_calls: u64::MAX };

/// Workers, slots of each, blocks of the device, and chunks.
type Size = (usize, usize, usize, u64);

/// The most fills of a chunk: chunks have one, two, three, one and so on.
const FILLS: u64 = 3;

/// How the sides wait on threads.
const WAITING: [Waiting; 2] = [Waiting::Polls, Waiting::Sleeps];

const SIZES: [Size; 4] = [(1, 2, 1, 5), (2, 1, 2, 6), (2, 2, 2, 9), (3, 2, 1, 2)];

impl Model {
    fn new(size: Size, values: Arc<ScalarArgs>, failing: Failing, waiting: Waiting) -> Self {
        Model::with_fills(1, size, values, failing, waiting)
    }

    /// Chunks have up to so many fills.
    fn with_fills(
        fills: u64,
        (workers, slots, blocks, chunks): Size,
        values: Arc<ScalarArgs>,
        failing: Failing,
        waiting: Waiting,
    ) -> Self {
        // The threads of shuttle own what they use. A model holds few values, and the process ends soon.
        let values: &'static ScalarArgs = Box::leak(Box::new(values));
        let run = Arc::new(Run {
            values,
            next: AtomicU64::new(0),
            chunks,
            slots,
            fills,
            stopped: AtomicBool::new(false),
            drained: Mutex::new(Vec::new()),
            fails_at: failing.at_chunk,
        });
        let (ends, submitter) = connect((workers, slots), values, waiting);
        let worker = |(worker, end)| ModelWorker {
            worker,
            end,
            run: run.clone(),
            idle: slots,
            rest: None,
            sent: 0,
            received: 0,
            waits: false,
        };
        let workers: Vec<_> = ends.into_iter().enumerate().map(worker).collect();
        let device = FakeDevice {
            values,
            free_blocks: blocks,
            next: vec![0; workers.len()],
            ahead: VecDeque::new(),
            launched: VecDeque::new(),
            calls_left: failing.after_calls,
            is_cooperative: waiting == Waiting::TakesTurns,
            panel: 0,
            submitted: vec![],
            has_begun: vec![false; workers.len()],
            run: run.clone(),
        };
        Model { run, workers, submitter, device }
    }

    /// The same with panels of so many chunks.
    fn in_panels(mut self, panel: u64) -> Self {
        self.device.panel = panel;
        // Blocks are held by none of these chunks.
        self.device.free_blocks = usize::MAX / 2;
        self
    }

    /// Runs each worker on its thread, as `drive` does, and returns the outcomes: first that of the submitter.
    fn run_on_threads(self) -> (Vec<Outcome>, Vec<u64>) {
        let Model { run, workers, mut submitter, mut device } = self;
        let stops = run.clone();
        let submitter = thread::spawn(move || {
            loop {
                match submitter.step(&mut device) {
                    Ok(Step::Advanced) => {}
                    Ok(Step::Idle) => thread::yield_now(),
                    Ok(Step::Ended) => return Ok(()),
                    Err(error) => {
                        stops.stop();
                        return Err(error);
                    }
                }
            }
        });
        let spawn = |mut worker: ModelWorker| {
            thread::spawn(move || {
                loop {
                    match worker.step() {
                        Ok(Some(true)) => {}
                        Ok(Some(false)) => thread::yield_now(),
                        // Its end is kept: on one thread, workers that have ended live as long as the others.
                        Ok(None) => return Ok(Some(worker.end)),
                        Err(error) => {
                            worker.run.stop();
                            return Err(error);
                        }
                    }
                }
            })
        };
        let threads: Vec<_> = workers.into_iter().map(spawn).collect();
        let mut outcomes = vec![submitter.join().unwrap()];
        let ended: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        outcomes.extend(ended.into_iter().map(|ended| ended.map(drop)));
        let drained = run.drained.lock().unwrap().clone();
        (outcomes, drained)
    }

    /// Runs all workers on this thread, one step at a time, in a random order, as `drive` does on emulated devices.
    fn run_on_one_thread(mut self) -> Vec<u64> {
        let mut running: Vec<usize> = (0..=self.workers.len()).collect();
        while !running.is_empty() {
            let chosen = thread_rng().gen_range(0..running.len());
            let goes_on = match self.workers.get_mut(running[chosen]) {
                Some(worker) => worker.step().unwrap().is_some(),
                None => self.submitter.step(&mut self.device).unwrap() != Step::Ended,
            };
            if !goes_on {
                running.swap_remove(chosen);
            }
        }
        self.run.drained.lock().unwrap().clone()
    }
}

/// Asserts that every chunk came back once.
fn assert_complete(mut drained: Vec<u64>, chunks: u64) {
    drained.sort_unstable();
    assert_eq!(drained, (0..chunks).collect::<Vec<_>>());
}

pub fn known_values() {
    for (size, waiting) in SIZES.into_iter().flat_map(|size| WAITING.map(|waiting| (size, waiting))) {
        check(move || {
            let (outcomes, drained) = Model::new(size, ScalarArgs::new(vec![1]), NEVER, waiting).run_on_threads();
            assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
            assert_complete(drained, size.3);
        });
    }
}

/// Workers hold blocks between the fills of a chunk. There are fewer blocks than workers, or one slot for all fills.
pub fn fills() {
    for (size, waiting) in SIZES.into_iter().flat_map(|size| WAITING.map(|waiting| (size, waiting))) {
        check(move || {
            let model = Model::with_fills(FILLS, size, ScalarArgs::new(vec![1]), NEVER, waiting);
            let (outcomes, drained) = model.run_on_threads();
            assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
            assert_complete(drained, size.3);
        });
        check(move || {
            let values = ScalarArgs::late();
            let model = Model::with_fills(FILLS, size, values.clone(), NEVER, waiting);
            set_later(&values);
            let (outcomes, drained) = model.run_on_threads();
            assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
            assert_complete(drained, size.3);
        });
        check(move || {
            let values = ScalarArgs::late();
            let model = Model::with_fills(FILLS, size, values.clone(), NEVER, Waiting::TakesTurns);
            set_later(&values);
            assert_complete(model.run_on_one_thread(), size.3);
        });
        // A worker fails in the middle of a chunk, and keeps its block.
        check(move || {
            let failing = Failing { at_chunk: 1, ..NEVER };
            let model = Model::with_fills(FILLS, size, ScalarArgs::new(vec![1]), failing, waiting);
            let (outcomes, _) = model.run_on_threads();
            let failures = outcomes.iter().filter(|ended| matches!(ended, Err(Error::Internal(_)))).count();
            assert_eq!(failures, 1, "{outcomes:?}");
        });
    }
}

/// Another thread sets the values while the workers run.
fn set_later(values: &Arc<ScalarArgs>) {
    let values = LateScalars::new(values.clone());
    thread::spawn(move || values.set(vec![1]));
}

/// Chunks wait until those of panels before theirs have come, and overtake each other.
pub fn panels() {
    for (size, waiting) in SIZES.into_iter().flat_map(|size| WAITING.map(|waiting| (size, waiting))) {
        for panel in [1, 2] {
            check(move || {
                let model = Model::new(size, ScalarArgs::new(vec![1]), NEVER, waiting).in_panels(panel);
                let (outcomes, drained) = model.run_on_threads();
                assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
                assert_complete(drained, size.3);
            });
            check(move || {
                let values = ScalarArgs::late();
                let model = Model::new(size, values.clone(), NEVER, waiting).in_panels(panel);
                set_later(&values);
                let (outcomes, drained) = model.run_on_threads();
                assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
                assert_complete(drained, size.3);
            });
        }
        check(move || {
            let values = ScalarArgs::late();
            let model = Model::new(size, values.clone(), NEVER, Waiting::TakesTurns).in_panels(2);
            set_later(&values);
            assert_complete(model.run_on_one_thread(), size.3);
        });
    }
}

/// A worker fails with the only chunk that others wait for.
pub fn failing_panels() {
    for (size, waiting) in SIZES.into_iter().flat_map(|size| WAITING.map(|waiting| (size, waiting))) {
        check(move || {
            let failing = Failing { at_chunk: 0, ..NEVER };
            let model = Model::new(size, ScalarArgs::new(vec![1]), failing, waiting).in_panels(1);
            let (outcomes, _) = model.run_on_threads();
            let failures = outcomes.iter().filter(|ended| matches!(ended, Err(Error::Internal(_)))).count();
            assert_eq!(failures, 1, "{outcomes:?}");
        });
    }
}

pub fn late_values() {
    for (size, waiting) in SIZES.into_iter().flat_map(|size| WAITING.map(|waiting| (size, waiting))) {
        check(move || {
            let values = ScalarArgs::late();
            let model = Model::new(size, values.clone(), NEVER, waiting);
            set_later(&values);
            let (outcomes, drained) = model.run_on_threads();
            assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
            assert_complete(drained, size.3);
        });
    }
}

pub fn abandoned_values() {
    for (size, waiting) in SIZES.into_iter().flat_map(|size| WAITING.map(|waiting| (size, waiting))) {
        check(move || {
            let values = ScalarArgs::late();
            let model = Model::new(size, values.clone(), NEVER, waiting);
            let values = LateScalars::new(values);
            thread::spawn(move || drop(values));
            let (outcomes, drained) = model.run_on_threads();
            assert!(outcomes.iter().all(ended_well), "{outcomes:?}");
            assert!(drained.is_empty(), "chunks came back without values");
        });
    }
}

/// Returns whether a side ended by itself or because another one failed.
fn ended_well(outcome: &Result<()>) -> bool {
    outcome.as_ref().err().is_none_or(Error::is_abandoned)
}

/// Runs models that fail, with values that are known, come later, or never come. One side fails; the others end by
/// themselves or as a consequence.
fn fails(failing: Failing) {
    for (size, waiting) in SIZES.into_iter().flat_map(|size| WAITING.map(|waiting| (size, waiting))) {
        for kind in 0..3 {
            check(move || {
                let values = if kind == 0 { ScalarArgs::new(vec![1]) } else { ScalarArgs::late() };
                let model = Model::new(size, values.clone(), failing, waiting);
                if kind == 1 {
                    set_later(&values);
                }
                let (outcomes, _) = model.run_on_threads();
                let failures = outcomes.iter().filter(|ended| matches!(ended, Err(Error::Internal(_)))).count();
                assert_eq!(failures, 1, "{outcomes:?}");
                let others = outcomes.iter().filter(|ended| ended_well(ended)).count();
                assert_eq!(others + 1, outcomes.len(), "{outcomes:?}");
            });
        }
    }
}

pub fn failing_worker() {
    for at_chunk in [0, 1] {
        fails(Failing { at_chunk, ..NEVER });
    }
}

pub fn failing_submitter() {
    for after_calls in [0, 1] {
        fails(Failing { after_calls, ..NEVER });
    }
}

pub fn on_one_thread() {
    for size in SIZES {
        check(move || {
            let values = ScalarArgs::late();
            let model = Model::new(size, values.clone(), NEVER, Waiting::TakesTurns);
            set_later(&values);
            assert_complete(model.run_on_one_thread(), size.3);
        });
    }
}
