//! The engine: holds devices and memory limits, and runs jobs.

mod builder;
mod check;
mod columns;
mod devices;
mod divided;
mod found;
mod layers;
mod learned;
mod listing;
mod losses;
mod memory;
mod outputs;
mod parts;
mod passes;
mod placement;
mod precision;
mod prepare;
mod reports;
mod result_outputs;
mod resume;
mod shapes;
mod transpose;
mod unneeded;
mod versions;

use std::cell::Cell;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use tracing::debug_span;

pub use self::builder::EngineBuilder;
use self::check::{BoundJob, bind};
use self::columns::Columns;
use self::devices::Opened;
use self::divided::Divided;
use self::found::Found;
use self::learned::{Learned, kind_of};
use self::outputs::Outputs;
use self::parts::Part;
use self::passes::PassContext;
pub use self::passes::Passes;
use self::prepare::{Prepared, Ready, Request};
use self::reports::RunTime;
use self::result_outputs::ResultOutputs;
use self::versions::Versions;
use crate::data::{Input, Output, Sink, commit_all, leftovers};
use crate::device::product::DEVICE_ROWS;
use crate::device::{DeviceChoice, DeviceInfo, DeviceKind, Schedule, cpu};
use crate::error::{Error, Result};
use crate::expr::Results;
use crate::job::Job;
use crate::memory::{AdmissionQueue, InRun, PanelLayout};
use crate::panics;
use crate::pipeline::{
    self, Arbiter, Compaction, CrewSize, DeviceRun, Limits, Losses, Queue, Sharded, TIMED_EVERY, Verification, Work,
};
use crate::plan::{DevicePlan, Plan, RunLimits};
use crate::report::{Medium, Report};
use crate::thread_pool::ThreadPool;
use crate::trace::Timeline;
use crate::units;

/// Approximate time to open a GPU and load a kernel, in seconds.
const OPENING: f64 = 0.35;
/// Time in seconds of a job on the CPU, at [`CORE_RATE`], that is over before a GPU that is open has begun: measured
/// are 0.1 to 0.3 ms on a GPU, and computing is four to ten times as fast as that rate.
const BEGINNING: f64 = 1.5e-3;
/// Bytes per second that one core computes at least, in typical expressions.
const CORE_RATE: f64 = 0.5e9;
/// Products of two numbers per second that one core adds to those of matrices at least.
const CORE_PRODUCTS: f64 = 10e9;

/// Runs jobs on devices, within memory limits. One engine runs any number of jobs, also concurrently.
///
/// ```
/// use overshot::{DeviceChoice, Engine, Job};
/// let engine = Engine::builder().device(DeviceChoice::Cpu).build()?;
/// let (a, b) = (vec![1.0f32, 2.0, 3.0], vec![10.0f32, 20.0, 30.0]);
/// let mut c = vec![0.0f32; 3];
/// let report = engine.run(Job::eval("c = a * b; sum(c)")?.input("a", &a).input("b", &b).output("c", &mut c))?;
/// assert_eq!(report.value("sum(c)")?.map(|sum| sum.as_f64()), Some(140.0));
/// assert_eq!(c, [10.0, 40.0, 90.0]);
/// # Ok::<(), overshot::Error>(())
/// ```
pub struct Engine {
    choice: DeviceChoice,
    limits: RunLimits,
    /// The most time that a device may take for a chunk.
    device_timeout: Option<Duration>,
    /// The devices; empty with [`DeviceChoice::Auto`] until they are needed.
    found: OnceLock<Found>,
    /// The CPU alone, for small jobs with [`DeviceChoice::Auto`].
    cpu: OnceLock<Found>,
    /// The runs that have memory, and those that wait for it.
    admissions: Arc<AdmissionQueue>,
    /// The proportions of datasets on the devices: the memory of each that was free when the engine first placed one.
    weights: Mutex<Vec<u64>>,
    /// Open devices.
    opened: Mutex<Opened>,
    /// What runs learned for later runs of the same kind.
    learned: Learned,
    /// The threads of the workers.
    threads: ThreadPool,
}

impl Engine {
    /// Starts to build an engine.
    pub fn builder() -> EngineBuilder {
        EngineBuilder::default()
    }

    /// Returns the devices of the engine. With [`DeviceChoice::Auto`], the first call asks the driver for its GPUs, if
    /// no job did before.
    pub fn devices(&self) -> &[DeviceInfo] {
        &self.found().devices
    }

    /// Returns the devices, and finds them if nothing has needed them yet.
    fn found(&self) -> &Found {
        // Only `auto` is not found by the builder, and it never fails.
        let find = || Found::by_choice(&self.choice, &self.limits).unwrap_or_else(|_| Found::cpu(&self.limits));
        self.found.get_or_init(find)
    }

    /// Returns the plan of a job: how [`run`](Engine::run) would run it. Touches no device and opens no output. A
    /// kernel without a host kernel is also planned for devices that need one, with a note that it cannot run there.
    ///
    /// # Errors
    /// Those of [`run`](Engine::run) that are detected before the run: names, types, row counts, limits.
    pub fn plan(&self, job: &Job<'_>) -> Result<Plan> {
        panics::caught_in_job(|| self.plan_all(job))
    }

    /// Plans a job in one pass, or in several.
    fn plan_all(&self, job: &Job<'_>) -> Result<Plan> {
        if let Some(divided) = Divided::of(job)? {
            return self.plan_divided(job, &divided);
        }
        let bound = bind(job)?;
        let mut columns = listing::of(job, &bound.inputs, &bound);
        columns.extend(listing::of_results(job, &bound.arrays())?);
        let plan = self.plan_bound(&job.inputs, &job.outputs, &bound)?;
        Ok(Plan { columns, ..plan })
    }

    /// Returns the plan of a checked job, without its columns.
    fn plan_bound(
        &self,
        inputs: &[(String, Input<'_>)],
        outputs: &[(String, Output<'_>)],
        bound: &BoundJob,
    ) -> Result<Plan> {
        let mut notes = vec![];
        let found = self.found_for(bound);
        let devices = match self.devices_for(found, bound, &mut Vec::new()) {
            Err(error) if bound.operator.kernel().host.is_none() => {
                notes.push(format!("this can be planned but not run: {error}"));
                found.devices.clone()
            }
            devices => devices?,
        };
        let opened = &self.opened_so_far();
        let columns = &Columns::resolve(inputs, outputs, bound, opened, false)?;
        let request = Request { bound, columns, found, devices: &devices, opened, cancel: None };
        let plan = self.plan_of(&request, &self.limits(found, false))?.0;
        Ok(Plan { notes, ..plan })
    }

    /// Runs a job to its end.
    ///
    /// Several threads may run jobs on one engine. The memory limits hold for all runs together: a run waits until the
    /// runs before it leave enough memory, and runs are admitted in the order of their arrival. A run within a run, on
    /// a thread that calls a source, a sink, a host function or [`progress`](Job::progress), never waits and may
    /// exceed the limits. Such code must not wait for a job that *another* thread runs on the same engine, because
    /// that job may wait for this one.
    ///
    /// Slices in pinned memory are used in place, even if other code of the program pinned the memory, for example
    /// with `cudaHostRegister`. Such memory must stay pinned until this function returns.
    ///
    /// # Errors
    /// - [`Error::Expression`], [`Error::InvalidJob`], [`Error::InvalidKernel`] and [`Error::InvalidColumn`] if the
    ///   parts of the job do not fit together;
    /// - [`Error::Budget`] if a memory limit is too small for one chunk;
    /// - [`Error::File`] and [`Error::Chunk`] if the run fails;
    /// - [`Error::Cancelled`] if the job was cancelled.
    ///
    /// After an error, no output file appears or changes. If one of several outputs cannot be given its name, the
    /// outputs before it lose their names again, and files that they replaced come back. There are two exceptions: a
    /// file system with neither `RENAME_EXCHANGE` nor hard links cannot bring back a replaced file, and outputs stay
    /// if a [`Sink`](crate::Sink) of the caller fails in [`commit`](crate::Sink::commit). Slices hold the rows
    /// written so far.
    ///
    /// If code of the caller panics (a source, a sink, a function of a kernel, [`progress`](Job::progress)), this
    /// function returns [`Error::Panicked`], in a chunk as the cause of [`Error::Chunk`]. Other jobs go on.
    pub fn run(&self, job: Job<'_>) -> Result<Report> {
        panics::caught_in_job(|| self.run_all(job))
    }

    /// Runs a job in one pass, or in several.
    fn run_all(&self, job: Job<'_>) -> Result<Report> {
        if let Some(divided) = Divided::of(&job)? {
            return self.run_divided(job, divided);
        }
        let (begin, mut job) = (Instant::now(), job);
        let bound = bind(&job)?;
        let arrays = if job.result_outputs.is_empty() { vec![] } else { bound.arrays() };
        let results = ResultOutputs::open(&mut job, &arrays)?;
        let Ran { mut report, sinks } = self.run_pass(job, &bound, PassContext::default())?;
        results.commit(sinks, &mut report)?;
        report.total_time = begin.elapsed();
        Ok(report)
    }

    /// Runs a checked job, alone or as one of several passes. It has no outputs of results.
    fn run_pass<'a>(&self, job: Job<'a>, bound: &BoundJob, context: PassContext) -> Result<Ran<'a>> {
        let begin = Instant::now();
        let mut context = PassContext { nested: context.nested || InRun::is_entered(), ..context };
        let _in_run = InRun::enter();
        let (operator, rows) = (&*bound.operator, bound.len());
        let Job { what, inputs, outputs, cancel, progress, timeline, verify, checksum, .. } = job;
        let (computation, read) = (reports::of_computation(&what), reports::of_inputs(&inputs));
        let versions = context.versions.take().unwrap_or_else(|| Versions::of(&inputs));
        bound.read_ends(&inputs)?;
        let prepared = self.prepare(&inputs, &outputs, bound, cancel.as_ref(), &context)?;
        // The memory is freed before its reservation ends: variables are dropped in reverse order.
        let Prepared {
            ready: Ready { reserved: _reserved, plan, segments, mut runs, budgets },
            columns,
            found,
            mut notes,
            setup,
        } = prepared;
        let _span = debug_span!("run", what = what.text(), rows, chunk_rows = plan.chunk_rows).entered();
        let own = bound.part.as_ref().map(Part::hidden_names).unwrap_or_default();
        notes.extend(leftovers(outputs.iter().filter_map(|(_, output)| output.target().path()), &own));
        let mut outputs = Outputs::open(outputs, bound)?;
        notes.extend(outputs.notes());

        let device_timeout = self.device_timeout.filter(|_| columns.in_place().is_none());
        notes.extend(losses::no_timeout(&plan, self.device_timeout, columns.in_place()));
        let is_filling = columns.is_filling();
        let is_divided = columns.sharded().flatten().any(Sharded::is_divided);
        // Rows that stay on a device are lost with it. A run that begins anew writes all rows again, which those that
        // are encoded cannot be.
        let has_shards = columns.sharded().any(|sharded| sharded.is_some());
        let is_survivable = plan.devices.len() > 1 && !has_shards && !(operator.begins_anew() && plan.encode_bytes > 0);
        let each_workers: Vec<usize> = plan.devices.iter().map(|device| device.workers).collect();
        let (tile_rows, chunk_rows, min_chunk_rows) = (plan.tile_rows, plan.chunk_rows, plan.min_chunk_rows);
        // Few rows would only make the chunks beside them smaller.
        let alike = columns.alike.iter().filter(|(rows, _)| rows.end - rows.start >= min_chunk_rows).cloned();
        let alike: Vec<_> = alike.collect();
        let others: u64 = alike.iter().map(|(rows, _)| rows.end - rows.start).sum();
        let claimed = rows - others;
        if others > 0 && rows == bound.rows {
            notes.push(format!(
                "{} of {} were not computed, because statistics say that they give the same as others",
                units::count(others),
                units::counted(rows, "row")
            ));
        }
        let segments = pipeline::without(&segments, &alike);
        let queue =
            Queue::new(&segments, tile_rows as usize, chunk_rows as usize, min_chunk_rows as usize, &each_workers)
                .beside(others);
        let queue = match PanelLayout::new(&operator.kernel().columns) {
            Some(layout) if plan.gpus() > 0 => queue.in_panels(DEVICE_ROWS, layout.rows),
            // The places of kept rows depend on the rows before, so that the chunks must be claimed in order.
            _ if operator.compacts() => queue,
            _ => match columns.lots(&plan) {
                Some(lots) => queue.in_lots(lots),
                None => queue,
            },
        };
        let real = self.choice.emulated().is_empty();
        let on_cpu = plan.workers_of(DeviceKind::Cpu);
        let schedule = runs.first().map_or(Schedule::Threads, |run| run.schedule());
        // The emulated machine has one core for each of its CPU workers, so that a seed means the same everywhere.
        let cores = if schedule == Schedule::Threads { cpu::cores() } else { on_cpu };
        let mut work = Work {
            operator,
            inputs: columns.inputs,
            outputs: outputs.columns(columns.outputs)?,
            queue: queue.watched(cancel.clone(), progress.as_deref()).on_exhausted(context.exhausted),
            alike,
            compaction: Compaction::of(operator, bound.first_place()),
            arbiter: None,
            losses: Losses::new(is_survivable, operator.begins_anew()),
            verification: (verify > 0.0)
                .then(|| Verification { fraction: verify, outputs: outputs.names_and_dtypes().collect() }),
            epoch: Instant::now(),
            timed_every: if real && !timeline { TIMED_EVERY } else { 1 },
            timeline,
            device_timeout,
        };
        let (stagers, crew) = (plan.workers() - on_cpu, crew_of(&plan));
        let is_shared = on_cpu > 0 && stagers > 0;
        let kind = (is_shared || crew.is_some()).then(|| kind_of(&what, &work, &plan, claimed));
        let (mut known, mut fastest) = (None, None);
        if let Some(kind) = &kind {
            let takes_turns = schedule != Schedule::Threads;
            if real {
                (known, fastest) = self.learned.next(kind, Limits::of(cores, stagers));
            }
            work.arbiter = match crew {
                // Rows that are on a device leave the workers nothing to do until the others come, for which a crew
                // that had followed would be too small. It tries nothing, as with few rows.
                Some(size) => Some(Arbiter::crew(size, if is_divided { 0 } else { claimed }, takes_turns, known)),
                None => Some(Arbiter::sharing((cores, stagers, plan.gpus()), claimed, takes_turns, known, fastest)),
            };
        }
        let started = Cell::new(Instant::now());
        let wait = context.place.take(is_filling).map(|wait| {
            || {
                wait()?;
                started.set(Instant::now());
                Ok(())
            }
        });
        let read_before = bytes_read_direct(&inputs);
        let is_in_memory = [
            work.inputs.iter().all(|input| input.memory.is_some()),
            work.outputs.iter().all(|output| output.memory.is_some()),
        ];
        let driven = pipeline::run(&self.threads, &mut runs, &mut work, wait, &started);
        let time = started.get().elapsed();
        let clock = if real { RunTime::Real(time) } else { RunTime::Virtual };
        let kept = work.compaction.as_ref().map(Compaction::rows);
        if real
            && claimed > 0
            && driven.as_ref().is_ok_and(|(_, lost)| lost.is_empty())
            && let (Some(kind), Some(arbiter)) = (kind, &work.arbiter)
        {
            let rate = claimed as f64 / time.as_secs_f64().max(1e-9);
            self.learned.record(&kind, time, |trials| arbiter.record(trials, known, rate));
        }
        // This also ends the use of resident rows.
        drop(work);
        if driven.as_ref().is_err_and(Error::is_abandoned) {
            // The pass is not needed any more; its memory is intact.
            runs.into_iter().for_each(DeviceRun::recycle_memory);
            return Err(Error::abandoned());
        }
        let (outcomes, lost) = self.without_lost(driven)?;
        versions.check(&inputs)?;
        notes.extend(losses::notes(&plan, &lost));
        if let Some(kept) = kept.filter(|kept| *kept < bound.rows) {
            outputs.truncate(kept)?;
        }
        let row = &operator.kernel().columns;
        let medium = |are_files, are_in_memory| match (are_files, are_in_memory) {
            (true, _) => Medium::Files,
            (false, true) => Medium::Memory,
            (false, false) => Medium::Code,
        };
        let machine = reports::Machine { choice: &self.choice, limits: found.machine.as_ref() };
        let profile = reports::IoProfile {
            row_in: row.inputs.iter().sum::<usize>() as u64,
            row_out: row.outputs.iter().sum::<usize>() as u64,
            from_disk: bytes_read_direct(&inputs) - read_before,
            from: match inputs.iter().any(|(_, input)| input.source().decodes()) {
                true => Medium::Encoded,
                false => medium(inputs.iter().any(|(_, input)| input.source().path().is_some()), is_in_memory[0]),
            },
            to: match plan.encode_bytes > 0 {
                true => Medium::Encoded,
                false => medium(outputs.are_files(), is_in_memory[1]),
            },
        };
        // No output is there if this is an error.
        let Results { values, arrays } = operator.results(rows)?;
        let checksum_time = if checksum { outputs.checksum()? } else { Duration::ZERO };
        // No chunk was left to claim when it was cancelled. The rows of a part are kept, and name no output.
        if bound.part.is_none() && cancel.is_some_and(|token| token.is_cancelled()) {
            return Err(Error::Cancelled { done: rows, rows });
        }
        let (sinks, written) = outputs.written();
        losses::keep_others(runs, &lost);

        let verified = reports::verified_by_device(&plan, &outcomes);
        let mut report = Report {
            computation,
            rows,
            results: values,
            arrays,
            inputs: read,
            outputs: written,
            chunks: outcomes.iter().map(|worker| worker.chunks).sum(),
            chunk_rows: plan.chunk_rows,
            time,
            total_time: Duration::ZERO,
            processor_time: outcomes.iter().map(|worker| worker.processor).sum(),
            setup,
            bytes_to_device: outcomes.iter().map(|worker| worker.bytes_in).sum(),
            bytes_ahead: outcomes.iter().map(|worker| worker.bytes_ahead).sum(),
            bytes_read_directly: profile.from_disk,
            bytes_from_device: outcomes.iter().map(|worker| worker.bytes_out).sum(),
            peak_pinned_bytes: budgets.iter().map(|budget| budget.pinned.peak()).sum(),
            devices: reports::of_devices(&plan, &outcomes, &budgets, &profile, &machine, clock),
            notes,
            passes: vec![],
            timeline: timeline.then(|| {
                let names = plan.devices.iter().map(|device| format!("{} ({})", device.id, device.name));
                Timeline::new(names, outcomes.into_iter().map(|worker| (worker.device, worker.spans)))
            }),
            measured: found.machine.is_some(),
            verification: (verify > 0.0).then(|| reports::of_verification(verify, &plan, &verified, operator.kernel())),
            checksum_time,
        };
        report.total_time = begin.elapsed();
        Ok(Ran { report, sinks })
    }
}

/// A run that is complete, but for the names of its outputs.
struct Ran<'a> {
    report: Report,
    /// The outputs of its rows.
    sinks: Vec<Box<dyn Sink + 'a>>,
}

impl Ran<'_> {
    /// Gives the outputs of the rows their names.
    fn commit(self) -> Result<Report> {
        commit_all(self.sinks)?;
        Ok(self.report)
    }
}

/// Returns the workers and chunks that a run of this plan adapts; `None` if it has CPU workers or nothing to adapt.
fn crew_of(plan: &Plan) -> Option<CrewSize> {
    let most_of = |of: fn(&DevicePlan) -> usize| plan.devices.iter().map(of).max().unwrap_or(0);
    let (first, most) = (most_of(|device| device.first_workers), most_of(|device| device.workers));
    let halvings = plan.devices.iter().map(|device| device.halvings).min().unwrap_or(0);
    let adapts = plan.gpus() == plan.devices.len() && (first < most || halvings > 0);
    adapts.then_some(CrewSize { gpus: plan.gpus(), first, most, halvings })
}

/// Returns the bytes that the inputs have read past the page cache so far, earlier jobs included.
fn bytes_read_direct(inputs: &[(String, Input<'_>)]) -> u64 {
    inputs.iter().map(|(_, input)| input.source().bytes_read_direct()).sum()
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let devices = self.found.get().map(|found| &found.devices);
        f.debug_struct("Engine").field("devices", &devices).field("limits", &self.limits).finish_non_exhaustive()
    }
}
