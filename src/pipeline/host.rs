//! The lane of the CPU: the kernel's twin runs on the data where it is. Only what is not in memory is staged.

use std::time::{Duration, Instant};

use tracing::debug_span;

use super::{Lane, LaneName, LaneOutcome, Part, Work};
use crate::data::{Chunk, Claim};
use crate::device::Schedule;
use crate::device::kernel::HostKernel;
use crate::error::{Error, Result};
use crate::plan::DevicePlan;

/// The CPU's part in a run: its lanes share nothing.
pub(crate) struct HostPart {
    lanes: usize,
}

impl HostPart {
    pub(crate) fn new(lanes: usize) -> Self {
        HostPart { lanes }
    }
}

impl Part for HostPart {
    fn lanes<'r>(&'r mut self, number: usize, work: &'r Work<'r>) -> Result<Vec<Box<dyn Lane + 'r>>> {
        Ok((0..self.lanes).map(|lane| Box::new(HostLane::new(lane, number, work)) as Box<dyn Lane>).collect())
    }

    fn schedule(&self) -> Schedule {
        Schedule::Threads
    }

    fn shortage(&self, _plan: &DevicePlan) -> Option<String> {
        None
    }
}

/// One core's lane.
struct HostLane<'r> {
    twin: Box<dyn HostKernel>,
    work: &'r Work<'r>,
    /// One for every column: inputs, outputs, partials. Words, so that every dtype is aligned; empty as long as
    /// the column is used in place.
    staging: Vec<Vec<u64>>,
    name: LaneName,
    outcome: LaneOutcome,
}

impl<'r> HostLane<'r> {
    /// The lane with this number on the CPU, which is device `number` of the run.
    fn new(lane: usize, number: usize, work: &'r Work<'r>) -> Self {
        let kernel = work.operator.kernel();
        HostLane {
            twin: (kernel.twin)(),
            work,
            staging: vec![Vec::new(); work.inputs.len() + work.outputs.len() + 1],
            name: LaneName { device: "cpu".into(), lane },
            outcome: LaneOutcome { device: number, ..LaneOutcome::default() },
        }
    }

    fn compute(&mut self, chunk: &Chunk) -> Result<()> {
        let columns = &self.work.operator.kernel().columns;
        let (rows, first) = (chunk.len(), chunk.rows().start);
        let times = &mut self.outcome.times;
        let begin = Instant::now();

        let (in_staging, rest) = self.staging.split_at_mut(columns.inputs.len());
        let mut inputs: Vec<&[u8]> = Vec::with_capacity(columns.inputs.len());
        for ((&size, input), staging) in columns.inputs.iter().zip(&self.work.inputs).zip(in_staging) {
            inputs.push(match input.memory {
                Some(memory) => &memory.bytes()[first as usize * size..][..rows * size],
                None => {
                    let staged = bytes_of(staging, rows * size)?;
                    input.source.read(first, staged)?;
                    staged
                }
            });
        }
        let filled = Instant::now();
        times.fill.busy += filled - begin;

        let (out_staging, partials) = rest.split_at_mut(columns.outputs.len());
        let mut claims: Vec<Option<Claim<'_>>> =
            self.work.outputs.iter().map(|output| output.memory.map(|memory| memory.claim(chunk.rows()))).collect();
        let mut outputs: Vec<&mut [u8]> = Vec::with_capacity(columns.outputs.len());
        for ((&size, claim), staging) in columns.outputs.iter().zip(&mut claims).zip(out_staging) {
            outputs.push(match claim {
                Some(claim) => claim,
                None => bytes_of(staging, rows * size)?,
            });
        }
        let partials = bytes_of(&mut partials[0], columns.partial_bytes(rows))?;
        self.twin.run(first, rows, &inputs, &mut outputs, partials);
        let computed = Instant::now();
        times.kernel.busy += computed - filled;

        for (rows, output) in outputs.iter().zip(&self.work.outputs) {
            if output.memory.is_none() {
                output.sink.write(chunk, rows)?;
            }
        }
        if !partials.is_empty() {
            self.work.operator.absorb(first, rows, partials);
        }
        times.drain.busy += computed.elapsed();
        Ok(())
    }
}

impl Lane for HostLane<'_> {
    fn turn(&mut self) -> Result<bool> {
        let Some(chunk) = self.work.queue.claim() else { return Ok(false) };
        let LaneName { device, lane } = &self.name;
        let span =
            debug_span!("compute", chunk = chunk.index(), row = chunk.rows().start, rows = chunk.len(), device, lane);
        let _entered = span.enter();
        self.compute(&chunk).map_err(|error| self.name.blame(&chunk, error))?;
        self.work.queue.finish(&chunk);
        self.outcome.chunks += 1;
        Ok(true)
    }

    fn ready_at(&self) -> Duration {
        Duration::ZERO
    }

    fn outcome(&self) -> LaneOutcome {
        self.outcome.clone()
    }
}

/// The first `bytes` bytes of staging memory, which grows to the largest chunk once.
fn bytes_of(staging: &mut Vec<u64>, bytes: usize) -> Result<&mut [u8]> {
    let words = bytes.div_ceil(8);
    if staging.len() < words {
        staging.try_reserve_exact(words - staging.len()).map_err(|_| Error::Device {
            device: "cpu".into(),
            problem: format!("no memory to stage {bytes} bytes"),
            remedy: "set a smaller --chunk, or fewer --lanes".into(),
        })?;
        staging.resize(words, 0);
    }
    Ok(&mut bytemuck::cast_slice_mut(staging)[..bytes])
}
