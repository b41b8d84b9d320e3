//! The engine: devices and memory limits; runs jobs.

mod builder;
mod check;
mod devices;
mod memory;
mod reports;

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::debug_span;

pub use self::builder::EngineBuilder;
use self::check::bind;
use self::devices::{Accounts, Opened};
use crate::data::{Input, Place, Sink, whole_memory, whole_sink_memory};
use crate::device::kernel::{Kernel, TILE_ROWS};
use crate::device::{DeviceChoice, DeviceInfo, DeviceKind, Pinned, Schedule, cpu};
use crate::error::{Error, Result};
use crate::job::Job;
use crate::limits::MachineLimits;
use crate::ops::{Eval, Operator};
use crate::pipeline::{InputColumn, OutputColumn, Part, Queue, Share, TIMED_EVERY, Work, drive};
use crate::plan::{Limits, Machine, Plan, Shape};
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
    /// What is costly to open and is kept for the next run.
    opened: Mutex<Option<Opened>>,
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
        let (program, rows) = bind(job)?;
        let operator = Eval::new(program);
        let devices = &self.devices_for(operator.kernel(), rows, &mut Vec::new());
        let request = Request { job, operator: &operator, rows, devices, opened: &self.opened_so_far() };
        self.plan_of(&request, &self.limits)
    }

    /// Runs the job to its end.
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
        let begin = Instant::now();
        let (program, rows) = bind(&job)?;
        let output_dtypes: Vec<_> = program.outputs().iter().map(|(_, dtype)| *dtype).collect();
        let operator = Eval::new(program);
        let mut notes: Vec<String> = self.note.iter().cloned().collect();
        notes.extend(job.inputs.iter().filter_map(|(_, input)| input.source().note()));
        let devices = self.devices_for(operator.kernel(), rows, &mut notes);
        let on_cpu = devices.iter().all(|device| device.kind == DeviceKind::Cpu);
        if self.limits.device_memory.or(self.limits.pinned_memory).is_some() && on_cpu {
            notes.push("the CPU uses no device or pinned memory, so their limits have no effect".into());
        }
        let mut setup = Setup { find_seconds: self.found.as_secs_f64(), ..Setup::default() };
        let opening = Instant::now();
        // The CPU needs nothing opened.
        let opened = if on_cpu { Opened::default() } else { self.opened()? };
        setup.open_seconds = opening.elapsed().as_secs_f64();
        let request = Request { job: &job, operator: &operator, rows, devices: &devices, opened: &opened };
        notes.extend(memory::pinned_in_part(&request));
        let (plan, mut parts, accounts) = self.ready(&request, &mut notes, &mut setup)?;

        let Job { expression, inputs, outputs, cancel, progress, timeline, .. } = job;
        let _span = debug_span!("run", expression = expression.text(), rows, chunk_rows = plan.chunk_rows).entered();
        // A file written from one with dimensions gets the same.
        let shape = inputs.iter().find_map(|(_, input)| input.source().shape().map(<[u64]>::to_vec));
        let mut sinks: Vec<Box<dyn Sink + '_>> = Vec::with_capacity(outputs.len());
        let mut written = Vec::with_capacity(outputs.len());
        for ((name, output), dtype) in outputs.into_iter().zip(&output_dtypes) {
            let path = output.target().path().map(Into::into);
            written.push(OutputReport {
                name,
                dtype: dtype.to_string(),
                path,
                bytes: rows.saturating_mul(dtype.size() as u64),
            });
            let sink = output.open(*dtype, rows, shape.as_deref())?;
            notes.extend(sink.note());
            sinks.push(sink);
        }

        let queue = Queue::new(rows, plan.chunk_rows as usize, plan.least_rows as usize, plan.lanes());
        let queue = queue.watched(cancel, progress.as_deref());
        let inputs_in_place = inputs.iter().map(|(_, input)| {
            let source = input.source();
            let memory = whole_memory(source)?;
            Ok(InputColumn { source, memory, pinned: memory.is_some_and(|memory| opened.is_input_pinned(memory)) })
        });
        let outputs = sinks.iter().zip(&output_dtypes).map(|(sink, dtype)| {
            let memory = whole_sink_memory(&**sink, *dtype, rows)?;
            let pinned = memory.is_some_and(|memory| opened.is_output_pinned(memory));
            Ok(OutputColumn { sink: &**sink, memory, pinned })
        });
        let real = self.devices.iter().any(|device| device.kind != DeviceKind::Emulated);
        let work = Work {
            operator: &operator,
            inputs: inputs_in_place.collect::<Result<_>>()?,
            outputs: outputs.collect::<Result<_>>()?,
            queue,
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
        let read_before = direct_bytes(&inputs);
        let started = Instant::now();
        let outcomes = drive(lanes, &work, schedule)?;
        let seconds = started.elapsed().as_secs_f64();
        drop(work);
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

    /// The devices for a job: with [`DeviceChoice::Auto`] the CPU alone if opening the GPUs would take longer than the work.
    fn devices_for(&self, kernel: &Kernel, rows: u64, notes: &mut Vec<String>) -> Vec<DeviceInfo> {
        let is_cpu = |device: &&DeviceInfo| device.kind == DeviceKind::Cpu;
        let gpus = self.devices.iter().any(|device| !is_cpu(&device));
        if self.choice != DeviceChoice::Auto || !gpus || self.is_opened() {
            return self.devices.clone();
        }
        let row_bytes: usize = kernel.columns.inputs.iter().chain(&kernel.columns.outputs).sum();
        let seconds = rows as f64 * row_bytes.max(8) as f64 / (CORE_RATE * cpu::cores() as f64);
        if seconds > OPENING {
            return self.devices.clone();
        }
        notes.push(format!(
            "no GPU was used: opening one takes about {OPENING} s, longer than the CPU takes for so few rows"
        ));
        self.devices.iter().filter(is_cpu).cloned().collect()
    }

    fn is_opened(&self) -> bool {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn plan_of(&self, request: &Request<'_, '_>, limits: &Limits) -> Result<Plan> {
        let Request { job, operator, rows, devices, opened } = *request;
        let inputs = job.inputs.iter().map(|(_, input)| whole_memory(input.source()));
        let inputs: Vec<_> = inputs.collect::<Result<_>>()?;
        let outputs = || job.outputs.iter().map(|(_, output)| output.target());
        let shape = Shape {
            rows,
            columns: operator.kernel().columns.clone(),
            // Rows in memory that are not at hand are staged.
            in_memory: inputs
                .iter()
                .zip(&job.inputs)
                .map(|(memory, (_, input))| memory.is_some() && input.source().is_at_hand(0, rows))
                .chain(outputs().map(|target| target.place() != Place::Elsewhere))
                .collect(),
            pinned: inputs
                .iter()
                .map(|memory| memory.is_some_and(|memory| opened.is_input_pinned(memory)))
                .chain(outputs().map(|target| match target.place() {
                    Place::Pinned => true,
                    Place::Memory => {
                        target.memory().is_some_and(|memory| opened.find_pinned(memory, true) == Pinned::Whole)
                    }
                    Place::Elsewhere => false,
                }))
                .collect(),
        };
        let files = job.inputs.iter().any(|(_, input)| input.source().path().is_some())
            || job.outputs.iter().any(|(_, output)| output.target().path().is_some());
        Plan::new(&shape, devices, limits, &Machine::of(self.machine.as_ref(), cpu::cores(), files))
    }

    /// Plans, and makes every device ready; with smaller chunks if a device has less memory than it said.
    fn ready(&self, request: &Request<'_, '_>, notes: &mut Vec<String>, setup: &mut Setup) -> Result<Ready> {
        let kernel = request.operator.kernel();
        let mut limits = self.limits;
        loop {
            let plan = self.plan_of(request, &limits)?;
            let accounts: Vec<_> = plan.devices.iter().map(|_| Accounts::of_run(&self.limits)).collect();
            let parts = plan.devices.iter().zip(&accounts).map(|(device, accounts)| {
                request.opened.ready(&self.choice, device, kernel, accounts, self.accounts_of(&device.id))
            });
            match parts.collect::<Result<Vec<_>>>() {
                Ok(parts) => {
                    notes.extend(parts.iter().zip(&plan.devices).filter_map(|(part, device)| part.shortage(device)));
                    for (kernel, memory) in parts.iter().map(|part| part.setup()) {
                        setup.kernel_seconds += kernel.as_secs_f64();
                        setup.memory_seconds += memory.as_secs_f64();
                    }
                    return Ok((plan, parts, accounts));
                }
                Err(Error::OutOfMemory { device, bytes })
                    if self.limits.chunk.is_none() && plan.chunk_rows > TILE_ROWS as u64 =>
                {
                    notes
                        .push(format!("{device} had no memory for a block of {bytes} bytes: chunks were made smaller"));
                    limits.cap = Some(plan.chunk_rows * plan.row_bytes / 2);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn opened(&self) -> Result<Opened> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(opened) = &*opened {
            return Ok(opened.clone());
        }
        Ok(opened.insert(Opened::new(&self.devices, &self.accounts)?).clone())
    }

    /// For whoever looks, and is not to open anything.
    fn opened_so_far(&self) -> Opened {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.clone().unwrap_or_default()
    }

    fn accounts_of(&self, id: &str) -> &Accounts {
        let number = self.devices.iter().position(|device| device.id == id);
        &self.accounts[number.expect("a plan is for devices of the engine")]
    }
}

/// Bytes that the inputs have read past the page cache so far; a source may have served other jobs before.
fn direct_bytes(inputs: &[(String, Input<'_>)]) -> u64 {
    inputs.iter().map(|(_, input)| input.source().direct_bytes()).sum()
}

/// A job that was checked, and where it is to run.
struct Request<'r, 'a> {
    job: &'r Job<'a>,
    operator: &'r Eval,
    rows: u64,
    devices: &'r [DeviceInfo],
    opened: &'r Opened,
}

/// A plan, and what it needs on each of its devices.
type Ready = (Plan, Vec<Box<dyn Part>>, Vec<Accounts>);

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("devices", &self.devices).field("limits", &self.limits).finish_non_exhaustive()
    }
}
