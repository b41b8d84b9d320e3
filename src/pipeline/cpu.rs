//! The CPU worker: runs the host kernel on the data in place.
//!
//! One [`step`](CpuWorker::step) claims a chunk and computes it; the next one writes it. With compaction, a worker goes
//! on to compute chunks while the place of the oldest one is not known. Inputs in memory are used in place;
//! other inputs, and rows of a mapped file that are not in the page cache, are read into staging memory first.
//! Outputs in memory are computed in place: past the cache, unless they can stay in it. If the kernel cannot store past
//! the cache, a tile at a time is computed in the cache and copied from there. Other outputs are computed in staging
//! memory and written to the sink.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use super::arbiter::Finished;
use super::clock::CpuClock;
use super::meter::{HostStage, Meter, Task};
use super::products::HostProducts;
use super::verify::Verifier;
use super::{DeviceRun, OutputColumn, Work, Worker, WorkerName, WorkerOutcome};
use crate::data::{Chunk, Claim, copy_past_cache};
use crate::device::emulated::HostMemory;
use crate::device::kernel::{HostKernel, MakeHostKernel, Uniform};
use crate::device::{Emulated, Schedule};
use crate::error::{Error, Result};
use crate::panics;
use crate::plan::{DevicePlan, MOST_HELD};

/// A worker measures how fast it computes in the cache after this many tiles. The measurement computes a tile twice
/// more, which small jobs would notice.
const MEASURED_AFTER: u64 = 128;

/// How long a worker computes a chunk, at most, if the rows are like those before: a run that is stopped waits for it.
const LONGEST: Duration = Duration::from_millis(50);
/// The most rows of the first chunk of a worker, whose time is not known.
const FIRST_ROWS: usize = 16 << 10;

/// The run of the CPU. Its workers share nothing.
pub(crate) struct CpuRun {
    workers: usize,
    /// The most rows that a worker claims at a time.
    chunk_rows: usize,
    /// The options of the emulated devices that compute beside the CPU; `None` if there are none.
    beside: Option<Emulated>,
}

impl CpuRun {
    pub(crate) fn new(workers: usize, chunk_rows: usize, beside: Option<&Emulated>) -> Self {
        CpuRun { workers, chunk_rows, beside: beside.cloned() }
    }
}

impl DeviceRun for CpuRun {
    fn workers<'r>(&'r mut self, number: usize, work: &'r Work<'r>) -> Result<Vec<Box<dyn Worker + 'r>>> {
        let clock = match &self.beside {
            None => CpuClock::Real(work.epoch),
            Some(options) => CpuClock::of_emulation(options, &HostMemory::new(options)),
        };
        let worker = |worker| {
            Ok(Box::new(CpuWorker::new(worker, number, self.chunk_rows, clock.clone(), work)?) as Box<dyn Worker>)
        };
        (0..self.workers).map(worker).collect()
    }

    fn schedule(&self) -> Schedule {
        self.beside.as_ref().map_or(Schedule::Threads, |options| Schedule::Seeded(options.seed))
    }

    fn shortage(&self, _plan: &DevicePlan) -> Option<String> {
        None
    }
}

/// The worker of one core.
struct CpuWorker<'r> {
    /// Created for the first chunk: workers of a small job often find none.
    host: Option<Host>,
    create_host: &'r MakeHostKernel,
    resident: Vec<&'r [u8]>,
    work: &'r Work<'r>,
    /// The number of the CPU among the devices of the run.
    number: usize,
    /// The most rows that it claims, and those that it computes in [`LONGEST`].
    chunk_rows: usize,
    rows_in_time: usize,
    /// Staging memory of the inputs. In words, so that every dtype is aligned; empty as long as an input is used in
    /// place.
    inputs: Vec<Vec<u64>>,
    /// `Some` if the kernel has products over the rows.
    products: Option<HostProducts<'r>>,
    /// The partial results of the tiles that are computed, if the kernel adds to words of a chunk.
    of_step: Vec<u64>,
    clock: CpuClock,
    /// The time since which the arbiter has refused the worker, which must ask again.
    refused: Option<Duration>,
    /// The chunks that were computed and are not written yet, oldest first.
    computed: VecDeque<Computed>,
    /// Memory for the results of further chunks.
    free: Vec<Results>,
    /// What the worker has done since it began a chunk, of which the arbiter will be told.
    finished: Option<Finished>,
    /// Whether there are no more chunks to claim.
    is_over: bool,
    verifier: Option<Verifier<'r>>,
    meter: Meter,
}

/// The host kernel of a worker.
struct Host {
    kernel: Box<dyn HostKernel>,
    /// Which outputs are in memory, but do not stay in the cache.
    is_past_cache: Vec<bool>,
    /// Whether the kernel stores these past the cache.
    stores_past_cache: bool,
}

impl Host {
    fn new(create: &MakeHostKernel, outputs: &[OutputColumn<'_>]) -> Host {
        let mut kernel = create();
        let is_past = |output: &OutputColumn<'_>| output.memory.is_some_and(|memory| !memory.stays_in_cache());
        let is_past_cache: Vec<bool> = outputs.iter().map(is_past).collect();
        let stores_past_cache = kernel.store_past_cache(&is_past_cache);
        Host { kernel, is_past_cache, stores_past_cache }
    }
}

/// Staging memory for the results of a chunk, in words.
#[derive(Default)]
struct Results {
    /// For each output; empty as long as it is computed in place.
    outputs: Vec<Vec<u64>>,
    partials: Vec<u64>,
}

/// A chunk whose staged outputs are not written yet.
struct Computed {
    chunk: Chunk,
    results: Results,
}

impl<'r> CpuWorker<'r> {
    /// Creates worker `worker` of the CPU, which is device `number` of the run.
    fn new(worker: usize, number: usize, chunk_rows: usize, clock: CpuClock, work: &'r Work<'r>) -> Result<Self> {
        let kernel = work.operator.kernel();
        Ok(CpuWorker {
            create_host: kernel.host.as_ref().ok_or_else(|| kernel.no_host_kernel("cpu"))?,
            host: None,
            resident: kernel.resident.iter().map(|array| array.bytes()).collect(),
            work,
            number,
            chunk_rows,
            // In virtual time, a chunk is computed at once.
            rows_in_time: if let CpuClock::Real(_) = clock { FIRST_ROWS } else { usize::MAX },
            inputs: vec![Vec::new(); work.inputs.len()],
            products: HostProducts::of(work.operator),
            of_step: Vec::new(),
            clock,
            refused: None,
            computed: VecDeque::new(),
            free: Vec::new(),
            finished: None,
            is_over: false,
            verifier: Verifier::of(work, "cpu", true)?,
            meter: Meter::new(WorkerName { device: "cpu".into(), worker }, number, work.timeline),
        })
    }

    /// Computes a chunk. Returns the time that this took, without waiting for the kernel's values.
    fn compute(&mut self, chunk: &Chunk, results: &mut Results) -> Result<Duration> {
        let kernel = self.work.operator.kernel();
        let columns = &kernel.columns;
        let (rows, first) = (chunk.len(), chunk.rows().start);
        let step = columns.rows_in_cache();
        let begin = self.clock.now();

        let mut inputs: Vec<Given<'_>> = Vec::with_capacity(columns.inputs.len());
        let windows: Vec<Range<u64>> = (0..columns.inputs.len()).map(|k| columns.window(k, &chunk.rows())).collect();
        let each = columns.inputs.iter().zip(&self.work.inputs).zip(&windows);
        for (((&size, input), window), staging) in each.zip(&mut self.inputs) {
            inputs.push(match input.in_place(window, size)? {
                Some(rows) => Given::Whole(rows),
                // A product needs all rows at once.
                None if self.products.is_none() && input.is_in_pieces(window, size)? => Given::Pieces(staging),
                None => {
                    let staged = bytes_of(staging, (window.end - window.start) as usize * size)?;
                    input.read(window.start, staged)?;
                    self.meter.outcome.staged_in += staged.len() as u64;
                    Given::Whole(staged)
                }
            });
        }
        let filled = self.clock.now();
        let values = kernel.values.wait().ok_or_else(Error::abandoned)?;
        let known = self.clock.now();

        let host = self.host.get_or_insert_with(|| Host::new(self.create_host, &self.work.outputs));
        results.outputs.resize_with(columns.outputs.len(), Vec::new);
        let mut outputs: Vec<Rows<'_>> = Vec::with_capacity(columns.outputs.len());
        for ((&size, output), staging) in columns.outputs.iter().zip(&self.work.outputs).zip(&mut results.outputs) {
            outputs.push(match output.memory {
                Some(memory) => {
                    let claim = memory.claim_for_run(output.rows(chunk))?;
                    match host.stores_past_cache || memory.stays_in_cache() {
                        true => Rows::InPlace(claim),
                        false => Rows::PastCache(claim, bytes_of(staging, step * size)?),
                    }
                }
                None => Rows::Staged(bytes_of(staging, rows * size)?),
            });
        }
        let partials = bytes_of(&mut results.partials, columns.partial_bytes(rows))?;
        // If the kernel adds to words of the chunk, these are here, with the words of the tiles of a step behind them.
        let of_chunk = columns.chunk_partials();
        let of_step = match of_chunk.is_empty() {
            true => &mut [],
            false => bytes_of(&mut self.of_step, columns.partial_bytes(step.min(rows)))?,
        };
        of_step[of_chunk.clone()].fill(0);
        let mut operands = self.products.as_mut().map_or(Ok(vec![]), |products| products.operands(rows))?;
        let uniform = Uniform { resident: &self.resident, values, total_rows: columns.total_rows };
        let WorkerOutcome { rows: before, in_cache, .. } = self.meter.outcome;
        let measures = in_cache.0 == 0 && before >= MEASURED_AFTER * step as u64 && host.kernel.is_repeatable();
        // A kernel that stores past the cache itself gets all rows at once. Each call costs half as long as a tile of
        // `c = a * b` in the cache: it waits for its stores, and changes a count of references that all workers share.
        let is_in_pieces = inputs.iter().any(|given| matches!(given, Given::Pieces(_)));
        let at_once = host.stores_past_cache && columns.batch_rows == 0 && of_chunk.is_empty() && !is_in_pieces;
        let step = if at_once && !measures { rows } else { step };
        for tile in (0..rows).step_by(step) {
            let len = step.min(rows - tile);
            let tile_bytes = |size: usize| tile * size..(tile + len) * size;
            let own = first + tile as u64..first + (tile + len) as u64;
            let of_tile = |(k, given)| {
                let (size, tile, window) = (columns.inputs[k], columns.window(k, &own), &windows[k]);
                let bytes = |row: u64| (row - window.start) as usize * size;
                match given {
                    &mut Given::Whole(rows) => Ok(&rows[bytes(tile.start)..bytes(tile.end)]),
                    Given::Pieces(staging) => match self.work.inputs[k].piece(&tile, size)? {
                        Some(rows) => Ok(rows),
                        None => {
                            let staged = bytes_of(staging, (tile.end - tile.start) as usize * size)?;
                            self.work.inputs[k].read(tile.start, staged)?;
                            self.meter.outcome.staged_in += staged.len() as u64;
                            Ok(&*staged)
                        }
                    },
                }
            };
            let inputs = inputs.iter_mut().enumerate().map(of_tile).collect::<Result<Vec<&[u8]>>>()?;
            let mut each: Vec<&mut [u8]> = Vec::with_capacity(outputs.len() + operands.len());
            for (rows, &size) in outputs.iter_mut().zip(&columns.outputs) {
                each.push(match rows {
                    Rows::InPlace(claim) => &mut claim[tile_bytes(size)],
                    Rows::PastCache(_, tile) => &mut tile[..len * size],
                    Rows::Staged(rows) => &mut rows[tile_bytes(size)],
                });
            }
            each.extend(operands.iter_mut().map(|(rows, size)| &mut rows[tile_bytes(*size)]));
            let own = match of_chunk.is_empty() {
                true => &mut partials[columns.tile_partials(tile..tile + len)],
                false => &mut of_step[..columns.partial_bytes(len)],
            };
            if !columns.computes() {
                break;
            }
            panics::catch(
                || kernel.whose(),
                || host.kernel.run(first + tile as u64, len, &inputs, &mut each, own, &uniform),
            )?;
            if measures && tile == 0 && len == step {
                // All columns are in the cache for the last of the three.
                host.kernel.store_past_cache(&vec![false; columns.outputs.len()]);
                let counted = own[of_chunk.clone()].to_vec();
                host.kernel.run(first, len, &inputs, &mut each, own, &uniform);
                let begin = self.clock.now();
                host.kernel.run(first, len, &inputs, &mut each, own, &uniform);
                self.meter.outcome.in_cache = (len as u64, self.clock.now() - begin);
                own[of_chunk.clone()].copy_from_slice(&counted);
                host.kernel.store_past_cache(&host.is_past_cache);
            }
            if !of_chunk.is_empty() {
                let of_tiles = &of_step[columns.tile_partials(0..len)];
                partials[columns.tile_partials(tile..tile + len)].copy_from_slice(of_tiles);
            }
            for (rows, &size) in outputs.iter_mut().zip(&columns.outputs) {
                if let Rows::PastCache(claim, tile) = rows {
                    copy_past_cache(&mut claim[tile_bytes(size)], &tile[..len * size]);
                }
            }
        }
        partials[of_chunk.clone()].copy_from_slice(&of_step[of_chunk]);
        if let Some(products) = &mut self.products {
            let whole = inputs.iter().map(|given| match given {
                Given::Whole(rows) => *rows,
                Given::Pieces(_) => &[],
            });
            products.multiply(chunk, &whole.collect::<Vec<_>>());
        }
        self.clock.computed(rows, rows * columns.row_bytes());
        let computed = self.clock.now();
        if let CpuClock::Real(_) = self.clock {
            self.rows_in_time = rows_in_time(rows, computed - known);
        }

        if let Some(compaction) = &self.work.compaction {
            compaction.count(chunk, partials)?;
        }
        self.meter.ran(HostStage::Fill, chunk, begin, filled);
        self.meter.ran(HostStage::Compute, chunk, known, computed);
        self.meter.outcome.times.kernel.waiting += known - filled;
        Ok(filled - begin + (computed - known))
    }

    /// Waits until the arbiter permits this worker to compute a chunk, and returns the time from then on. Returns
    /// `None` if the worker takes turns and was refused.
    fn begin(&mut self) -> Option<Duration> {
        let Some(arbiter) = &self.work.arbiter else { return Some(self.clock.now()) };
        if self.refused.is_some() {
            self.clock.reach(arbiter.computing_resumes().unwrap_or_default());
        }
        let asked = *self.refused.get_or_insert(self.clock.now());
        let begun = arbiter.start_computing(self.finished.take(), || self.clock.now())?;
        self.refused = None;
        self.meter.outcome.throttled += begun - asked;
        Some(begun)
    }

    /// Returns whether the oldest computed chunk is written next: its place is known, or there is nothing else to do.
    fn writes(&self) -> bool {
        let (Some(oldest), compaction) = (self.computed.front(), &self.work.compaction) else { return false };
        let is_known = compaction.as_ref().is_none_or(|compaction| compaction.is_known(&oldest.chunk));
        is_known || self.is_over || self.computed.len() == MOST_HELD
    }

    /// Writes the staged outputs of a computed chunk to the sinks, and absorbs its partial results. Returns the time
    /// for which it has waited for the place of the chunk in compacted outputs.
    fn write(&mut self, chunk: &Chunk, results: &Results) -> Result<Duration> {
        let Work { operator, outputs, compaction, .. } = self.work;
        let (columns, rows) = (&operator.kernel().columns, chunk.len());
        let partials = &bytemuck::cast_slice(&results.partials)[..columns.partial_bytes(rows)];
        // Outputs in memory were written as they were computed.
        let staged = |k: usize| {
            let is_staged = outputs[k].memory.is_none();
            is_staged.then(|| &bytemuck::cast_slice::<_, u8>(&results.outputs[k])[..rows * columns.outputs[k]])
        };
        if let Some(verifier) = &mut self.verifier {
            verifier.check(chunk, staged, partials, &mut self.meter)?;
        }
        let waits = self.clock.now();
        let compacted = match compaction {
            Some(compaction) => Some((compaction, compaction.place(chunk)?)),
            None => None,
        };
        let begin = self.clock.now();
        self.meter.outcome.times.drain.waiting += begin - waits;
        self.meter.outcome.staged_out += match compacted {
            Some((compaction, place)) => compaction.write((chunk, place), partials, outputs, staged)?,
            None => {
                let staged = outputs.iter().enumerate().filter_map(|(k, output)| Some((output, staged(k)?)));
                staged.map(|(output, rows)| output.write(chunk, rows)).sum::<Result<u64>>()?
            }
        };
        if !partials.is_empty() {
            operator.absorb(chunk.rows().start, rows, partials);
        }
        self.meter.ran(HostStage::Drain, chunk, begin, self.clock.now());
        Ok(begin - waits)
    }
}

/// The rows of one input of a chunk.
enum Given<'c> {
    /// All of them, in memory that the source has, or that has been filled.
    Whole(&'c [u8]),
    /// In memory of the source, of which the rows of a tile are mostly one piece. Those of other tiles are copied here.
    Pieces(&'c mut Vec<u64>),
}

/// The destination of the rows of one output of a chunk.
enum Rows<'c> {
    /// The rows of the chunk in the memory of the output.
    InPlace(Claim<'c>),
    /// The same. Each tile is computed in the slice, which stays in the cache, and then copied.
    PastCache(Claim<'c>, &'c mut [u8]),
    /// Staging memory for all rows of the chunk, which are then written to the sink.
    Staged(&'c mut [u8]),
}

impl Worker for CpuWorker<'_> {
    /// Writes the oldest chunk that was computed, or claims and computes the next one.
    fn step(&mut self) -> Result<bool> {
        let Work { queue, arbiter, .. } = self.work;
        if self.writes() {
            let Some(Computed { chunk, results }) = self.computed.pop_front() else { return Ok(true) };
            let _span = self.meter.span(Task::Drain, &chunk);
            let begin = self.clock.now();
            let waited = self.write(&chunk, &results).map_err(|error| self.meter.with_chunk(&chunk, error))?;
            self.free.push(results);
            if let Some(finished) = &mut self.finished {
                finished.now = self.clock.now();
                finished.busy += finished.now - begin - waited;
            }
            queue.finish(&chunk).map_err(|error| self.meter.with_chunk(&chunk, error))?;
            self.meter.finished(&chunk);
            return Ok(true);
        }
        if self.is_over {
            return Ok(false);
        }
        let Some(begun) = self.begin() else { return Ok(true) };
        let most = self.chunk_rows.min(self.rows_in_time);
        let Some(chunk) = queue.claim_by((self.number, self.meter.worker()), most) else {
            if let Some(arbiter) = arbiter {
                arbiter.stop_computing(self.clock.now());
            }
            self.is_over = true;
            return Ok(true);
        };
        let _span = self.meter.span(Task::Compute, &chunk);
        let mut results = self.free.pop().unwrap_or_default();
        let busy = self.compute(&chunk, &mut results).map_err(|error| self.meter.with_chunk(&chunk, error))?;
        self.finished = Some(Finished { rows: chunk.len() as u64, busy, begun, now: self.clock.now() });
        self.computed.push_back(Computed { chunk, results });
        Ok(true)
    }

    fn ready_at(&self) -> Duration {
        let Work { arbiter, compaction, .. } = self.work;
        let now = self.clock.now();
        match (self.computed.front(), compaction, arbiter) {
            // Another worker must count the rows before.
            (Some(Computed { chunk, .. }), Some(compaction), _) if self.writes() && !compaction.is_known(chunk) => {
                Duration::MAX
            }
            (_, _, Some(arbiter)) if self.refused.is_some() && !self.writes() => {
                arbiter.computing_resumes().map_or(Duration::MAX, |at| at.max(now))
            }
            _ => now,
        }
    }

    fn is_enough(&self) -> bool {
        true
    }

    fn outcome(&mut self) -> WorkerOutcome {
        self.meter.take(self.clock.now())
    }
}

/// Returns how many rows are computed in [`LONGEST`] if so many took this time.
fn rows_in_time(rows: usize, took: Duration) -> usize {
    (rows as f64 * LONGEST.as_secs_f64() / took.as_secs_f64()) as usize
}

/// Returns the first `bytes` bytes of staging memory, which grows to the size of the largest chunk.
pub(super) fn bytes_of(staging: &mut Vec<u64>, bytes: usize) -> Result<&mut [u8]> {
    let words = bytes.div_ceil(8);
    if staging.len() < words {
        staging.try_reserve_exact(words - staging.len()).map_err(|_| Error::Device {
            device: "cpu".into(),
            problem: format!("no memory to stage {bytes} bytes"),
            remedy: "set a smaller chunk size, or a smaller number of workers".into(),
        })?;
        staging.resize(words, 0);
    }
    Ok(&mut bytemuck::cast_slice_mut(staging)[..bytes])
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Instant;

    use super::*;
    use crate::custom::RowFunction;
    use crate::data::SinkMemory;
    use crate::device::kernel::TILE_ROWS;
    use crate::device::probe::probe;
    use crate::expr::Expression;
    use crate::ops::{CustomOp, Eval, Operator};
    use crate::pipeline::{Losses, Queue, Segment};
    use crate::{DeviceChoice, Dtype, Engine, Job, Precision};

    /// Returns the rows that the only worker of a job computed once more in its cache.
    fn computed_again(operator: &dyn Operator, tiles: usize) -> u64 {
        let rows = Segment { rows: 0..(tiles * TILE_ROWS) as u64, owner: None, resident_on: None };
        let chunk_rows = 8 * TILE_ROWS;
        let work = Work {
            losses: Losses::new(false, false),
            operator,
            inputs: vec![],
            outputs: vec![],
            queue: Queue::new(&[rows], TILE_ROWS, chunk_rows, chunk_rows, &[1]),
            alike: vec![],
            compaction: None,
            arbiter: None,
            verification: None,
            epoch: Instant::now(),
            timed_every: 1,
            timeline: false,
            device_timeout: None,
        };
        let mut worker = CpuWorker::new(0, 0, chunk_rows, CpuClock::Real(work.epoch), &work).unwrap();
        while worker.step().unwrap() {}
        worker.outcome().in_cache.0
    }

    #[test]
    fn only_large_jobs_of_expressions_compute_a_tile_again() {
        let program = Expression::parse("sum(i), argmax(sin(i))").unwrap().bind(&[], &[], &[], &[]).unwrap();
        let eval = Eval::new(program, vec![], 0, Precision::Full);
        let tiles = MEASURED_AFTER as usize;
        // The last chunk begins after `tiles` tiles, or after fewer.
        assert_eq!(computed_again(&eval, tiles), 0);
        assert_eq!(computed_again(&eval, tiles + 8), TILE_ROWS as u64);
        assert_eq!(computed_again(&eval, 3 * tiles), TILE_ROWS as u64, "a single tile");

        // A kernel that does not permit it, as those of callers.
        let mut custom = probe();
        assert!(!custom.new_host_kernel().unwrap().is_repeatable());
        custom.columns = Default::default();
        custom.host = Some(Box::new(|| Box::new(Nothing)));
        assert_eq!(computed_again(&CustomOp::new(custom), 3 * tiles), 0);
    }

    #[test]
    fn outputs_that_do_not_stay_in_the_cache_have_all_rows() {
        let is_small = |rows: usize| SinkMemory::new(&mut vec![0; 8 * rows], Dtype::U8).unwrap().stays_in_cache();
        let rows = (17..).map(|power| (1 << power) + 13).find(|rows| !is_small(*rows)).unwrap();
        let engine = Engine::builder().device(DeviceChoice::Cpu).build().unwrap();
        let (mut y, mut z) = (vec![0i64; rows], vec![0i64; rows]);
        engine.run(Job::eval("y = index() * 3; sum(index())").unwrap().output("y", &mut y)).unwrap();
        let tripled = RowFunction::new("tripled").input::<i64>("x").output::<i64>("z").run(|x, z| {
            x.iter().zip(z).for_each(|(x, z)| *z = x * 3);
        });
        let x: Vec<i64> = (0..rows as i64).collect();
        engine.run(Job::kernel(&tripled).input("x", &x).output("z", &mut z)).unwrap();
        assert!(y.iter().zip(0i64..).all(|(y, row)| *y == row * 3), "stored by the kernel");
        assert!(y == z, "copied from tiles");
    }

    #[test]
    fn kernels_that_store_past_the_cache_get_a_chunk_at_once() {
        for stores in [true, false] {
            let calls = Arc::new(Mutex::new(vec![]));
            let kernel = Counts { stores, calls: calls.clone() };
            let mut custom = probe();
            custom.columns = Default::default();
            custom.host = Some(Box::new(move || Box::new(kernel.clone())));
            computed_again(&CustomOp::new(custom), 11);
            let calls = calls.lock().unwrap();
            assert_eq!((calls[0], calls.iter().sum()), (if stores { FIRST_ROWS } else { TILE_ROWS }, 11 * TILE_ROWS));
        }
    }

    #[test]
    fn chunks_of_slow_rows_have_few_of_them() {
        assert_eq!(rows_in_time(10_000, 10 * LONGEST), 1000);
        assert_eq!(rows_in_time(10_000, LONGEST / 10), 100_000);
        assert_eq!(rows_in_time(10_000, Duration::ZERO), usize::MAX);
    }

    /// Counts the rows of each call.
    #[derive(Clone)]
    struct Counts {
        stores: bool,
        calls: Arc<Mutex<Vec<usize>>>,
    }

    impl HostKernel for Counts {
        fn run(&mut self, _: u64, rows: usize, _: &[&[u8]], _: &mut [&mut [u8]], _: &mut [u8], _: &Uniform<'_>) {
            self.calls.lock().unwrap().push(rows);
        }

        fn store_past_cache(&mut self, _: &[bool]) -> bool {
            self.stores
        }
    }

    struct Nothing;

    impl HostKernel for Nothing {
        fn run(&mut self, _: u64, _: usize, _: &[&[u8]], _: &mut [&mut [u8]], _: &mut [u8], _: &Uniform<'_>) {}
    }
}
