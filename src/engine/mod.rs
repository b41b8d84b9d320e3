//! The engine: devices and memory limits; runs jobs.

mod builder;
mod check;
mod devices;
mod memory;
mod passes;
mod ready;
mod reports;
mod rooms;

use std::cell::Cell;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tracing::debug_span;

pub use self::builder::EngineBuilder;
use self::check::{Bound, bind};
use self::devices::{Accounts, Opened};
use self::passes::Turn;
use self::ready::Request;
use crate::data::{Input, Sink, whole_memory, whole_sink_memory};
use crate::device::{DeviceChoice, DeviceInfo, DeviceKind, Schedule, cpu};
use crate::error::{Error, Result};
use crate::job::Job;
use crate::limits::MachineLimits;
use crate::memory::{InRun, MemoryBudget};
use crate::pipeline::{InputColumn, Kept, OutputColumn, Part, Queue, Share, TIMED_EVERY, Work, drive};
use crate::plan::{Limits, Plan};
use crate::report::{OutputReport, Report, Setup, StageTimes};
use crate::trace::Timeline;

/// Seconds that it takes to open a GPU and load a kernel, about.
const OPENING: f64 = 0.35;
/// Bytes per second that a core computes on at least, in expressions as they are.
const CORE_RATE: f64 = 0.5e9;

/// Devices and memory limits, on which jobs run. One engine runs many jobs, also at the same time.
///
/// ```
/// use overshot::{DeviceChoice, Engine, Job};
/// let engine = Engine::builder().device(DeviceChoice::Cpu).build()?;
/// let (a, b) = (vec![1.0f32, 2.0, 3.0], vec![10.0f32, 20.0, 30.0]);
/// let mut c = vec![0.0f32; 3];
/// let report = engine.run(Job::eval("c = a * b; sum(c)")?.input("a", &a).input("b", &b).output("c", &mut c))?;
/// assert_eq!(report.value("sum(c)").map(|sum| sum.as_f64()), Some(140.0));
/// assert_eq!(c, [10.0, 40.0, 90.0]);
/// # Ok::<(), overshot::Error>(())
/// ```
pub struct Engine {
    choice: DeviceChoice,
    limits: Limits,
    devices: Vec<DeviceInfo>,
    /// Why the devices are not those one might expect.
    note: Option<String>,
    /// How long it took to find them.
    found: Duration,
    /// What this machine was measured to reach, if it was.
    machine: Option<MachineLimits>,
    /// What all its runs have of each device.
    accounts: Vec<Accounts>,
    /// Which runs have memory, and which wait for it.
    budget: Arc<MemoryBudget>,
    /// How datasets are shared out among the devices: the memory that each had free when that was first asked.
    weights: Mutex<Vec<u64>>,
    /// What is costly to open and is kept for the next run.
    opened: Mutex<Opened>,
}

impl Engine {
    /// Starts to build an engine.
    pub fn builder() -> EngineBuilder {
        EngineBuilder::default()
    }

    /// The devices it uses.
    pub fn devices(&self) -> &[DeviceInfo] {
        &self.devices
    }

    /// How [`run`](Engine::run) would run the job. Touches no device and opens no output.
    ///
    /// # Errors
    /// Those of [`run`](Engine::run) that can be known before: names, types, row counts, limits.
    pub fn plan(&self, job: &Job<'_>) -> Result<Plan> {
        let bound = bind(job)?;
        let devices = &self.devices_for(&bound, &mut Vec::new())?;
        let sharded = rooms::sharded(job, &bound, None)?;
        let request = Request { job, bound: &bound, devices, opened: &self.opened_so_far(), sharded: &sharded };
        Ok(self.plan_of(&request, &self.limits(false))?.0)
    }

    /// Runs the job to its end.
    ///
    /// Several threads may run jobs on one engine. All together keep its limits on memory: a run waits until those before it leave
    /// enough for it, and is admitted in the order in which it came. Only a run that begins within another one, on a thread
    /// that calls a source, a sink, a function of the caller's or [`progress`](Job::progress), never waits, and may pass the
    /// limits; no such code may wait for a job that *another* thread runs on the engine, as that might wait for this one.
    ///
    /// Slices in memory that is pinned for the GPUs are used in place, also if other code of the program pinned it, with
    /// `cudaHostRegister` say: then it must stay pinned until this returns.
    ///
    /// # Errors
    /// [`Error::Expression`] and [`Error::Job`] if the job does not fit together, [`Error::Budget`] if a memory limit is
    /// too small for one chunk, [`Error::File`] and [`Error::Chunk`] if something failed on the way,
    /// [`Error::Cancelled`]. No output file appears or changes then, unless another program makes a file of an output's
    /// name in the moment between the check of all outputs and the naming of the last; slices hold whatever was written
    /// so far.
    ///
    /// # Panics
    /// When code of the caller that it runs (a source, a sink, a generator, the progress function) panics.
    pub fn run(&self, job: Job<'_>) -> Result<Report> {
        let bound = bind(&job)?;
        self.run_in_turn(job, bound, Turn::default())
    }

    /// Runs a job that was checked, by itself or as one of several passes.
    fn run_in_turn(&self, job: Job<'_>, bound: Bound, turn: Turn) -> Result<Report> {
        let begin = Instant::now();
        let turn = Turn { nested: turn.nested || InRun::is_entered(), ..turn };
        let _in_run = InRun::enter();
        let (operator, rows) = (&*bound.operator, bound.rows);
        let mut notes: Vec<String> = self.note.iter().cloned().collect();
        notes.extend(job.inputs.iter().filter_map(|(_, input)| input.source().note()));
        let devices = self.devices_for(&bound, &mut notes)?;
        let on_cpu = devices.iter().all(|device| device.kind == DeviceKind::Cpu);
        if self.limits.device_memory.or(self.limits.pinned_memory).is_some() && on_cpu {
            notes.push("the CPU uses no device or pinned memory, so their limits have no effect".into());
        }
        let mut setup = Setup { find_seconds: self.found.as_secs_f64(), ..Setup::default() };
        let (opened, devices) = self.open(devices, &mut notes, &mut setup)?;
        // Dropped after all lanes: what they had of it is done then.
        let lent = rooms::lend(&job, &bound)?;
        let sharded = rooms::sharded(&job, &bound, Some(&lent))?;
        let request = Request { job: &job, bound: &bound, devices: &devices, opened: &opened, sharded: &sharded };
        notes.extend(memory::pinned_in_part(&request));
        // What is reserved is given up after the memory is: variables are dropped in reverse.
        let (_reserved, plan, segments, mut parts, accounts) = self.ready(&request, &turn, &mut notes, &mut setup)?;

        let Job { what, inputs, outputs, cancel, progress, timeline, .. } = job;
        let _span = debug_span!("run", what = what.text(), rows, chunk_rows = plan.chunk_rows).entered();
        // A file written from one with dimensions gets the same.
        let shape = inputs.iter().find_map(|(_, input)| input.source().shape().map(<[u64]>::to_vec));
        let mut sinks: Vec<Box<dyn Sink + '_>> = Vec::with_capacity(outputs.len());
        let mut written = Vec::with_capacity(outputs.len());
        for ((name, output), (dtype, elements)) in outputs.into_iter().zip(&bound.outputs) {
            let path = output.target().path().map(Into::into);
            let count =
                rows.checked_mul(*elements).ok_or_else(|| Error::Job(format!("output '{name}' is too large")))?;
            written.push(OutputReport {
                name,
                dtype: dtype.to_string(),
                path,
                rows,
                bytes: count.saturating_mul(dtype.size() as u64),
            });
            let of_rows = [rows, *elements];
            let shape = if *elements > 1 { Some(&of_rows[..]) } else { shape.as_deref() };
            let sink = output.open(*dtype, count, shape)?;
            notes.extend(sink.note());
            sinks.push(sink);
        }

        let each_lanes: Vec<usize> = plan.devices.iter().map(|device| device.lanes).collect();
        let (tile_rows, chunk_rows, least_rows) = (plan.tile_rows, plan.chunk_rows, plan.least_rows);
        let queue = Queue::new(&segments, tile_rows as usize, chunk_rows as usize, least_rows as usize, &each_lanes);
        let queue = queue.watched(cancel, progress.as_deref()).tells(turn.dry);
        let (sharded_inputs, sharded_outputs) = sharded.split_at(inputs.len());
        let ins = inputs.iter().zip(&bound.sources).zip(&bound.inputs).zip(sharded_inputs).zip(&lent);
        let inputs_in_place = ins.map(|(((((_, input), own), &elements), sharded), lent)| {
            let source = input.source();
            let memory = whole_memory(source, *own)?;
            let pinned = memory.is_some_and(|memory| opened.is_input_pinned(memory));
            Ok(InputColumn { source, memory, pinned, elements, sharded: sharded.as_ref(), lent: lent.as_ref() })
        });
        let outs = sinks.iter().zip(&bound.outputs).zip(sharded_outputs);
        let outputs = outs.map(|((sink, &(dtype, elements)), sharded)| {
            rooms::is_as_planned(&**sink, sharded.as_ref())?;
            // Where rows go is not known before they come back if only some are kept.
            let memory = if operator.keeps() { None } else { whole_sink_memory(&**sink, dtype, rows * elements)? };
            let pinned = memory.is_some_and(|memory| opened.is_output_pinned(memory));
            Ok(OutputColumn { sink: &**sink, memory, pinned, elements, sharded: sharded.as_ref() })
        });
        let kept = operator.keeps().then(Kept::default);
        let real = self.devices.iter().any(|device| device.kind != DeviceKind::Emulated);
        let work = Work {
            operator,
            inputs: inputs_in_place.collect::<Result<_>>()?,
            outputs: outputs.collect::<Result<_>>()?,
            queue,
            kept,
            share: Share::new(
                if plan.lanes_of(DeviceKind::Cpu) > 0 { cpu::cores() } else { 0 },
                plan.lanes() - plan.lanes_of(DeviceKind::Cpu),
            ),
            epoch: Instant::now(),
            timed_every: if real && !timeline { TIMED_EVERY } else { 1 },
            timeline,
        };
        let schedule = parts.first().map_or(Schedule::Threads, |part| part.schedule());
        let lanes = parts.iter_mut().enumerate().map(|(number, part)| part.lanes(number, &work));
        let lanes = lanes.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect();
        let started = Cell::new(Instant::now());
        let wait = turn.place.take(lent.iter().flatten().any(|lent| lent.fills)).map(|wait| {
            || {
                wait()?;
                started.set(Instant::now());
                Ok(())
            }
        });
        let read_before = direct_bytes(&inputs);
        let driven = drive(lanes, &work, schedule, wait);
        let seconds = started.get().elapsed().as_secs_f64();
        let kept = work.kept.as_ref().map(Kept::rows);
        drop(work);
        if matches!(driven, Err(Error::Abandoned)) {
            // A pass that is not needed: nothing is wrong with what it has.
            parts.into_iter().for_each(Part::keep_memory);
            return Err(Error::Abandoned);
        }
        let outcomes = driven?;
        if let Some(kept) = kept.filter(|kept| *kept < rows) {
            for ((sink, output), (dtype, elements)) in sinks.iter_mut().zip(&mut written).zip(&bound.outputs) {
                sink.shorten(kept * elements)?;
                (output.rows, output.bytes) = (kept, kept * elements * dtype.size() as u64);
            }
        }
        let columns = &operator.kernel().columns;
        let medium = reports::Medium {
            row_in: columns.inputs.iter().sum::<usize>() as u64,
            row_out: columns.outputs.iter().sum::<usize>() as u64,
            from_disk: direct_bytes(&inputs) - read_before,
            from_files: inputs.iter().any(|(_, input)| input.source().path().is_some()),
            to_files: written.iter().any(|output| output.path.is_some()),
        };
        // All could be committed before the first one is: a job appears as a whole or not at all.
        sinks.iter().try_for_each(|sink| sink.check())?;
        sinks.into_iter().try_for_each(Sink::commit)?;
        parts.into_iter().for_each(Part::keep_memory);

        let mut report = Report {
            rows,
            results: operator.results(rows),
            outputs: written,
            chunks: outcomes.iter().map(|lane| lane.chunks).sum(),
            chunk_rows: plan.chunk_rows,
            seconds,
            total_seconds: 0.0,
            setup,
            bytes_to_device: outcomes.iter().map(|lane| lane.bytes_in).sum(),
            bytes_ahead: outcomes.iter().map(|lane| lane.bytes_ahead).sum(),
            bytes_read_directly: medium.from_disk,
            bytes_from_device: outcomes.iter().map(|lane| lane.bytes_out).sum(),
            peak_pinned_bytes: accounts.iter().map(|account| account.pinned.peak()).sum(),
            devices: reports::of_devices(&plan, &outcomes, &accounts, &medium, self.machine.as_ref(), seconds),
            stages: StageTimes::default(),
            notes,
            timeline: timeline.then(|| {
                let names = plan.devices.iter().map(|device| format!("{} ({})", device.id, device.name));
                Timeline::new(names, outcomes.into_iter().map(|lane| (lane.device, lane.spans)))
            }),
            measured: self.machine.is_some(),
        };
        report.devices.iter().for_each(|device| report.stages.add(&device.stages));
        report.total_seconds = begin.elapsed().as_secs_f64();
        Ok(report)
    }
}

/// Bytes that the inputs have read past the page cache so far; a source may have served other jobs before.
fn direct_bytes(inputs: &[(String, Input<'_>)]) -> u64 {
    inputs.iter().map(|(_, input)| input.source().direct_bytes()).sum()
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("devices", &self.devices).field("limits", &self.limits).finish_non_exhaustive()
    }
}
