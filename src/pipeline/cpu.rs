//! The CPU worker: runs the host kernel on the data in place.
//!
//! One [`step`](CpuWorker::step) claims a chunk, computes it and writes it. Inputs in memory are used in place; other
//! inputs, and rows of a mapped file that are not in the page cache, are read into staging memory first. Outputs in
//! memory are computed a tile at a time in the cache and copied from there; other outputs are computed in staging
//! memory and written to the sink.

use std::time::Duration;

use super::meter::{HostStage, Meter, Task};
use super::{DeviceRun, Work, Worker, WorkerName, WorkerOutcome};
use crate::data::{Chunk, Claim, copy_past_cache};
use crate::device::Schedule;
use crate::device::kernel::{HostKernel, Uniform};
use crate::error::{Error, Result};
use crate::plan::DevicePlan;

/// The run of the CPU. Its workers share nothing.
pub(crate) struct CpuRun {
    workers: usize,
    /// The most rows that a worker claims at a time.
    chunk_rows: usize,
}

impl CpuRun {
    pub(crate) fn new(workers: usize, chunk_rows: usize) -> Self {
        CpuRun { workers, chunk_rows }
    }
}

impl DeviceRun for CpuRun {
    fn workers<'r>(&'r mut self, number: usize, work: &'r Work<'r>) -> Result<Vec<Box<dyn Worker + 'r>>> {
        let worker = |worker| Ok(Box::new(CpuWorker::new(worker, number, self.chunk_rows, work)?) as Box<dyn Worker>);
        (0..self.workers).map(worker).collect()
    }

    fn schedule(&self) -> Schedule {
        Schedule::Threads
    }

    fn shortage(&self, _plan: &DevicePlan) -> Option<String> {
        None
    }
}

/// The worker of one core.
struct CpuWorker<'r> {
    host: Box<dyn HostKernel>,
    resident: Vec<&'r [u8]>,
    work: &'r Work<'r>,
    chunk_rows: usize,
    /// Staging memory of every column: inputs, outputs, partials. In words, so that every dtype is aligned; empty as
    /// long as an input is used in place.
    staging: Vec<Vec<u64>>,
    meter: Meter,
}

impl<'r> CpuWorker<'r> {
    /// Creates worker `worker` of the CPU, which is device `number` of the run.
    fn new(worker: usize, number: usize, chunk_rows: usize, work: &'r Work<'r>) -> Result<Self> {
        let kernel = work.operator.kernel();
        Ok(CpuWorker {
            host: kernel.new_host_kernel().ok_or_else(|| kernel.no_host_kernel("cpu"))?,
            resident: kernel.resident.iter().map(|array| array.bytes()).collect(),
            work,
            chunk_rows,
            staging: vec![Vec::new(); work.inputs.len() + work.outputs.len() + 1],
            meter: Meter::new(WorkerName { device: "cpu".into(), worker }, number, work.timeline),
        })
    }

    /// Computes a chunk, and returns how long it waited for the kernel's values.
    fn compute(&mut self, chunk: &Chunk) -> Result<Duration> {
        let kernel = self.work.operator.kernel();
        let columns = &kernel.columns;
        let (rows, first) = (chunk.len(), chunk.rows().start);
        let step = columns.rows_in_cache();
        let begin = self.work.epoch.elapsed();

        let (in_staging, rest) = self.staging.split_at_mut(columns.inputs.len());
        let mut inputs: Vec<&[u8]> = Vec::with_capacity(columns.inputs.len());
        for ((&size, input), staging) in columns.inputs.iter().zip(&self.work.inputs).zip(in_staging) {
            inputs.push(match input.memory {
                Some(memory) if input.source.is_cached(first * input.elements, rows as u64 * input.elements) => {
                    &memory.bytes()[first as usize * size..][..rows * size]
                }
                _ => {
                    let staged = bytes_of(staging, rows * size)?;
                    input.read(chunk, staged)?;
                    self.meter.outcome.staged_in += staged.len() as u64;
                    staged
                }
            });
        }
        let filled = self.work.epoch.elapsed();
        let values = kernel.values.wait().ok_or_else(Error::abandoned)?;
        let known = self.work.epoch.elapsed();

        let (out_staging, partials) = rest.split_at_mut(columns.outputs.len());
        let mut outputs: Vec<Rows<'_>> = Vec::with_capacity(columns.outputs.len());
        for ((&size, output), staging) in columns.outputs.iter().zip(&self.work.outputs).zip(out_staging) {
            outputs.push(match output.memory {
                Some(memory) => {
                    Rows::InPlace(memory.claim_for_run(output.rows(chunk))?, bytes_of(staging, step * size)?)
                }
                None => Rows::Staged(bytes_of(staging, rows * size)?),
            });
        }
        let partials = bytes_of(&mut partials[0], columns.partial_bytes(rows))?;
        let uniform = Uniform { resident: &self.resident, values };
        for tile in (0..rows).step_by(step) {
            let len = step.min(rows - tile);
            let tile_bytes = |size: usize| tile * size..(tile + len) * size;
            let inputs: Vec<&[u8]> =
                inputs.iter().zip(&columns.inputs).map(|(rows, &size)| &rows[tile_bytes(size)]).collect();
            let mut each: Vec<&mut [u8]> = Vec::with_capacity(outputs.len());
            for (rows, &size) in outputs.iter_mut().zip(&columns.outputs) {
                each.push(match rows {
                    Rows::InPlace(_, tile) => &mut tile[..len * size],
                    Rows::Staged(rows) => &mut rows[tile_bytes(size)],
                });
            }
            let partials = &mut partials[columns.partial_bytes(tile)..columns.partial_bytes(tile + len)];
            self.host.run(first + tile as u64, len, &inputs, &mut each, partials, &uniform);
            for (rows, &size) in outputs.iter_mut().zip(&columns.outputs) {
                if let Rows::InPlace(claim, tile) = rows {
                    copy_past_cache(&mut claim[tile_bytes(size)], &tile[..len * size]);
                }
            }
        }
        let computed = self.work.epoch.elapsed();

        if let Some(compaction) = &self.work.compaction {
            compaction.count(chunk, partials)?;
            let written = compaction.write(chunk, partials, &self.work.outputs, |k| outputs[k].staged())?;
            self.meter.outcome.staged_out += written;
        } else {
            let staged = outputs.iter().zip(&self.work.outputs);
            let staged = staged.filter_map(|(rows, output)| Some((rows.staged()?, output)));
            for (rows, output) in staged {
                self.meter.outcome.staged_out += output.write(chunk, rows)?;
            }
        }
        if !partials.is_empty() {
            self.work.operator.absorb(first, rows, partials);
        }
        let drained = self.work.epoch.elapsed();
        self.meter.ran(HostStage::Fill, chunk, begin, filled);
        self.meter.ran(HostStage::Compute, chunk, known, computed);
        self.meter.ran(HostStage::Drain, chunk, computed, drained);
        let waited = known - filled;
        self.meter.outcome.times.kernel.waiting += waited;
        Ok(waited)
    }
}

/// The destination of the rows of one output of a chunk.
enum Rows<'c> {
    /// The memory of the output. Each tile is computed in the second slice, which stays in the cache, and then copied
    /// with stores that bypass the cache.
    InPlace(Claim<'c>, &'c mut [u8]),
    /// Staging memory for all rows of the chunk, which are then written to the sink.
    Staged(&'c mut [u8]),
}

impl Rows<'_> {
    /// Returns the rows if they are staged for the sink.
    fn staged(&self) -> Option<&[u8]> {
        match self {
            Rows::Staged(rows) => Some(rows),
            Rows::InPlace(..) => None,
        }
    }
}

impl Worker for CpuWorker<'_> {
    fn step(&mut self) -> Result<bool> {
        let Work { queue, arbiter, epoch, .. } = self.work;
        let asked = epoch.elapsed();
        if let Some(arbiter) = arbiter {
            arbiter.start_computing();
        }
        let begin = epoch.elapsed();
        self.meter.outcome.throttled += begin - asked;
        let Some(chunk) = queue.claim(self.chunk_rows) else {
            if let Some(arbiter) = arbiter {
                arbiter.end_computing(0, Duration::ZERO);
                arbiter.end();
            }
            return Ok(false);
        };
        let _span = self.meter.span(Task::Compute, &chunk);
        let computed = self.compute(&chunk).map_err(|error| self.meter.with_chunk(&chunk, error));
        if let Some(arbiter) = arbiter {
            let waited = computed.as_ref().copied().unwrap_or_default();
            arbiter.end_computing(chunk.len() as u64, (epoch.elapsed() - begin).saturating_sub(waited));
        }
        computed?;
        queue.finish(&chunk);
        self.meter.finished(&chunk);
        Ok(true)
    }

    fn ready_at(&self) -> Duration {
        Duration::ZERO
    }

    fn outcome(&mut self) -> WorkerOutcome {
        self.meter.take(self.work.epoch.elapsed())
    }
}

/// Returns the first `bytes` bytes of staging memory, which grows to the size of the largest chunk.
fn bytes_of(staging: &mut Vec<u64>, bytes: usize) -> Result<&mut [u8]> {
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
