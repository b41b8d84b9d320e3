//! The engine: devices and memory limits; runs jobs.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tracing::debug_span;

use crate::data::{Element, Input, Output, Place, Sink, whole_memory, same_file};
#[cfg(feature = "cuda")]
use crate::device::cuda::CudaDevice;
use crate::device::emulated::EmulatedDevice;
use crate::device::{Device, DeviceChoice, DeviceInfo, DeviceKind, Schedule, cpu};
use crate::error::{Error, Result};
use crate::expr::Program;
use crate::job::Job;
use crate::memory::{Account, PinnedArray, allocate};
use crate::ops::{Eval, Operator};
use crate::pipeline::{HostLane, InputColumn, Lane, LaneOutcome, Queue, Staging, Work, drive};
use crate::plan::{DEFAULT_PINNED, DevicePlan, Limits, Plan, Shape};
use crate::report::{DeviceReport, OutputReport, Report, StageTimes};

/// Builds an [`Engine`]. Everything has a default.
#[derive(Clone, Debug, Default)]
pub struct EngineBuilder {
    choice: DeviceChoice,
    limits: Limits,
}

impl EngineBuilder {
    /// The devices to use; [`DeviceChoice::Auto`] if not set.
    pub fn device(mut self, choice: DeviceChoice) -> Self {
        self.choice = choice;
        self
    }

    /// The most device memory to use, in bytes per device. It counts the blocks that chunks live in, not what the driver
    /// takes for its own. If not set, all of the device's memory, of which a run uses only what its plan says.
    pub fn device_memory(mut self, bytes: u64) -> Self {
        self.limits.device_memory = Some(bytes);
        self
    }

    /// The most pinned memory a run may use, in bytes per device; 256 MiB if not set.
    pub fn pinned_memory(mut self, bytes: u64) -> Self {
        self.limits.pinned_memory = Some(bytes);
        self
    }

    /// Bytes of a chunk, inputs and outputs together; chosen by the plan if not set. Chunks are whole tiles of 4096 rows.
    pub fn chunk(mut self, bytes: u64) -> Self {
        self.limits.chunk = Some(bytes);
        self
    }

    /// Lanes per device; chosen by the plan if not set.
    pub fn lanes(mut self, lanes: usize) -> Self {
        self.limits.lanes = Some(lanes);
        self
    }

    /// Finds the devices. Nothing is allocated, and no GPU is touched before the first run.
    ///
    /// # Errors
    /// [`Error::Device`] if a device was asked for by name and is not there; [`Error::Job`] for zero lanes.
    pub fn build(self) -> Result<Engine> {
        let EngineBuilder { mut choice, limits } = self;
        if limits.lanes == Some(0) {
            return Err(Error::Job("zero lanes carry nothing: use at least 1".into()));
        }
        if let (DeviceChoice::Emulated(options), Some(bytes)) = (&mut choice, limits.device_memory) {
            // Its memory is what one says it is.
            options.memory_bytes = bytes;
        }
        let (devices, note) = choice.resolve()?;
        Ok(Engine { choice, limits, devices, note, opened: Mutex::default() })
    }
}

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
        self.plan_of(job, &Eval::new(program), rows, &self.limits)
    }

    /// Runs the job to its end.
    ///
    /// # Errors
    /// [`Error::Expression`] and [`Error::Job`] if the job does not fit together, [`Error::Budget`] if a memory limit is
    /// too small for one chunk, [`Error::File`] and [`Error::Chunk`] if something failed on the way,
    /// [`Error::Cancelled`]. No output file appears or changes then; slices hold whatever was written so far.
    ///
    /// # Panics
    /// When code of the caller that it runs (a source, a sink, a generator, the progress function) panics.
    pub fn run(&self, job: Job<'_>) -> Result<Report> {
        let begin = Instant::now();
        let (program, rows) = bind(&job)?;
        let output_dtypes: Vec<_> = program.outputs().iter().map(|(_, dtype)| *dtype).collect();
        let operator = Eval::new(program);
        let mut notes: Vec<String> = self.note.iter().cloned().collect();
        let (plan, mut stagings, accounts) = self.stage(&job, &operator, rows, &mut notes)?;

        let Job { expression, inputs, outputs, cancel, progress, .. } = job;
        let _span = debug_span!("run", expression = expression.text(), rows, chunk_rows = plan.chunk_rows).entered();
        // A file written from one with dimensions gets the same.
        let shape = inputs.iter().find_map(|(_, input)| input.source().shape().map(<[u64]>::to_vec));
        let mut sinks: Vec<Box<dyn Sink + '_>> = Vec::with_capacity(outputs.len());
        let mut written = Vec::with_capacity(outputs.len());
        for ((name, output), dtype) in outputs.into_iter().zip(&output_dtypes) {
            let path = output.target().path().map(Into::into);
            written.push(OutputReport { name, dtype: dtype.to_string(), path, bytes: rows.saturating_mul(dtype.size() as u64) });
            let sink = output.open(*dtype, rows, shape.as_deref())?;
            notes.extend(sink.note());
            sinks.push(sink);
        }

        let started = Instant::now();
        let queue = Queue::new(rows, plan.chunk_rows as usize, plan.lanes()).watched(cancel, progress.as_deref());
        let columns = inputs.iter().map(|(_, input)| {
            let source = input.source();
            Ok(InputColumn { source, memory: whole_memory(source)? })
        });
        let work = Work {
            operator: &operator,
            inputs: columns.collect::<Result<_>>()?,
            outputs: sinks.iter().map(|sink| &**sink).collect(),
            queue,
        };
        let mut lanes: Vec<Box<dyn Lane + '_>> = Vec::with_capacity(plan.lanes());
        let mut schedule = Schedule::Threads;
        for (number, (staging, device)) in stagings.iter_mut().zip(&plan.devices).enumerate() {
            schedule = staging.add_lanes(&mut lanes, number, device, &work)?.unwrap_or(schedule);
        }
        let outcomes = drive(lanes, &work.queue, schedule)?;
        let seconds = started.elapsed().as_secs_f64();
        drop(work);
        sinks.into_iter().try_for_each(Sink::commit)?;
        drop(stagings);

        let mut report = Report {
            rows,
            results: operator.results(rows),
            outputs: written,
            chunks: outcomes.iter().map(|lane| lane.chunks).sum(),
            chunk_rows: plan.chunk_rows,
            seconds,
            total_seconds: 0.0,
            bytes_to_device: outcomes.iter().map(|lane| lane.bytes_in).sum(),
            bytes_from_device: outcomes.iter().map(|lane| lane.bytes_out).sum(),
            peak_pinned_bytes: accounts.iter().map(|account| account.pinned.peak()).sum(),
            devices: self.device_reports(&plan, &outcomes, &accounts),
            stages: StageTimes::default(),
            notes,
        };
        outcomes.iter().for_each(|lane| report.stages.add(&lane.times));
        report.total_seconds = begin.elapsed().as_secs_f64();
        Ok(report)
    }

    /// An array of `rows` zeros in pinned memory, which jobs use in place. It does not count against the limit on
    /// the pinned memory of a run.
    ///
    /// # Errors
    /// [`Error::Device`] if there is no memory, or it cannot be pinned.
    pub fn pinned<T: Element>(&self, rows: usize) -> Result<PinnedArray<T>> {
        let bytes = rows.saturating_mul(size_of::<T>());
        #[allow(unused_mut)] // without the feature `cuda` nothing is ever pinned
        let mut memory = allocate(bytes)?;
        #[allow(unused_mut)]
        let mut pins: Vec<Box<dyn Any + Send + Sync>> = vec![];
        #[cfg(feature = "cuda")]
        // Memory pinned on one GPU is pinned for all of them.
        if let (Some(device), true) = (self.opened()?.cuda.first(), bytes > 0) {
            // SAFETY: the mapping starts on a page and is at least `bytes` long; the array drops the pin before it.
            pins.push(Box::new(unsafe { device.pin(memory.as_mut_ptr(), bytes)? }));
        }
        Ok(PinnedArray::new(memory, rows, pins))
    }

    fn plan_of(&self, job: &Job<'_>, operator: &Eval, rows: u64, limits: &Limits) -> Result<Plan> {
        let inputs = job.inputs.iter().map(|(_, input)| whole_memory(input.source()));
        let inputs: Vec<_> = inputs.collect::<Result<_>>()?;
        let outputs = || job.outputs.iter().map(|(_, output)| output.target().place());
        let shape = Shape {
            rows,
            columns: operator.kernel().columns.clone(),
            in_memory: inputs.iter().map(Option::is_some).chain(outputs().map(|place| place != Place::Elsewhere)).collect(),
            pinned: inputs
                .iter()
                .map(|memory| memory.is_some_and(|memory| memory.is_pinned()))
                .chain(outputs().map(|place| place == Place::Pinned))
                .collect(),
        };
        Plan::new(&shape, &self.devices, limits, cpu::cores())
    }

    /// Plans, and takes the memory of the plan on every device; with smaller chunks if a device has less than it said.
    fn stage(
        &self,
        job: &Job<'_>,
        operator: &Eval,
        rows: u64,
        notes: &mut Vec<String>,
    ) -> Result<(Plan, Vec<AnyStaging>, Vec<Accounts>)> {
        let opened = self.opened()?;
        let mut limits = self.limits;
        loop {
            let plan = self.plan_of(job, operator, rows, &limits)?;
            let accounts: Vec<_> = plan.devices.iter().map(|_| self.accounts()).collect();
            let stagings = plan.devices.iter().zip(&accounts).enumerate().map(|(number, (device, accounts))| {
                AnyStaging::new(&self.choice, &opened, number, device, operator, accounts)
            });
            match stagings.collect::<Result<Vec<_>>>() {
                Ok(stagings) => {
                    for (staging, device) in stagings.iter().zip(&plan.devices) {
                        notes.extend(staging.shortage(device));
                    }
                    return Ok((plan, stagings, accounts));
                }
                Err(Error::OutOfMemory { device, bytes }) if self.limits.chunk.is_none() => {
                    let smaller = plan.chunk_rows * plan.row_bytes / 2;
                    if plan.chunk_rows <= crate::device::kernel::TILE_ROWS as u64 {
                        return Err(Error::OutOfMemory { device, bytes });
                    }
                    notes.push(format!("{device} had no memory for a block of {bytes} bytes: chunks were made smaller"));
                    limits.chunk = Some(smaller);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn accounts(&self) -> Accounts {
        Accounts {
            device: Account::new("device memory", self.limits.device_memory.unwrap_or(u64::MAX)),
            pinned: Account::new("pinned memory", self.limits.pinned_memory.unwrap_or(DEFAULT_PINNED)),
        }
    }

    fn opened(&self) -> Result<Opened> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(opened) = &*opened {
            return Ok(opened.clone());
        }
        Ok(opened.insert(Opened::new(&self.devices)?).clone())
    }

    fn device_reports(&self, plan: &Plan, outcomes: &[LaneOutcome], accounts: &[Accounts]) -> Vec<DeviceReport> {
        let reports = plan.devices.iter().zip(accounts).enumerate().map(|(number, (device, accounts))| {
            let lanes = || outcomes.iter().filter(|lane| lane.device == number);
            let virtual_end = lanes().map(|lane| lane.virtual_end).max().unwrap_or_default();
            DeviceReport {
                id: device.id.clone(),
                name: device.name.clone(),
                kind: device.kind,
                chunks: lanes().map(|lane| lane.chunks).sum(),
                lanes: device.lanes,
                peak_device_bytes: accounts.device.peak(),
                virtual_seconds: (device.kind == DeviceKind::Emulated).then_some(virtual_end.as_secs_f64()),
            }
        });
        reports.collect()
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("devices", &self.devices).field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// Checks a job as far as that is possible before anything runs.
fn bind(job: &Job<'_>) -> Result<(Program, u64)> {
    job.check_names()?;
    let rows = job.row_count()?;
    check_files(&job.inputs, &job.outputs)?;
    // In the order of the job, which is then that of the columns.
    let inputs: Vec<_> = job.inputs.iter().map(|(name, input)| (name.clone(), input.source().dtype())).collect();
    let casts = job.outputs.iter().map(|(name, output)| {
        let target = output.target();
        (name.clone(), target.dtype().filter(|_| target.cast()))
    });
    let program = job.expression.bind(&inputs, &casts.collect::<Vec<_>>())?;
    for ((name, output), (_, dtype)) in job.outputs.iter().zip(program.outputs()) {
        match output.target().dtype() {
            Some(own) if own != *dtype => {
                return Err(Error::Job(format!(
                    "output '{name}' ({}) holds {own}, but the expression gives {dtype}: cast it in the expression \
                     ({name} = {own}(…)) or pass one of {dtype}",
                    output.target().name()
                )));
            }
            _ => {}
        }
    }
    Ok((program, rows))
}

/// No output may be one of the inputs, or another output.
fn check_files(inputs: &[(String, Input<'_>)], outputs: &[(String, Output<'_>)]) -> Result<()> {
    for (k, (name, output)) in outputs.iter().enumerate() {
        let Some(path) = output.target().path() else { continue };
        let inputs = inputs.iter().filter_map(|(other, input)| Some((other, input.source().path()?)));
        let others = outputs[..k].iter().filter_map(|(other, output)| Some((other, output.target().path()?)));
        if let Some((other, _)) = inputs.chain(others).find(|(_, other)| same_file(path, other)) {
            return Err(Error::Job(format!(
                "{} is both '{other}' and the output '{name}': write to another file",
                path.display()
            )));
        }
    }
    Ok(())
}

/// The accounts of one device in one run.
struct Accounts {
    device: Arc<Account>,
    pinned: Arc<Account>,
}

/// Devices that are costly to open.
#[derive(Clone)]
struct Opened {
    #[cfg(feature = "cuda")]
    cuda: Vec<Arc<CudaDevice>>,
}

impl Opened {
    #[cfg_attr(not(feature = "cuda"), allow(unused_variables, clippy::unnecessary_wraps))]
    fn new(devices: &[DeviceInfo]) -> Result<Self> {
        #[cfg(feature = "cuda")]
        let numbers = devices.iter().filter_map(|device| device.id.strip_prefix("cuda:")?.parse().ok());
        Ok(Opened {
            #[cfg(feature = "cuda")]
            cuda: numbers.map(|number| CudaDevice::open(number).map(Arc::new)).collect::<Result<_>>()?,
        })
    }
}

/// What the lanes of one device share, for any device.
enum AnyStaging {
    Cpu,
    Emulated(EmulatedDevice, Staging<EmulatedDevice>),
    #[cfg(feature = "cuda")]
    Cuda(Arc<CudaDevice>, Staging<CudaDevice>),
}

impl AnyStaging {
    #[cfg_attr(not(feature = "cuda"), allow(unused_variables))]
    fn new(
        choice: &DeviceChoice,
        opened: &Opened,
        number: usize,
        plan: &DevicePlan,
        operator: &Eval,
        Accounts { device: memory, pinned }: &Accounts,
    ) -> Result<Self> {
        match (plan.kind, choice) {
            // A new one for every run: a seed then means the same in every run.
            (DeviceKind::Emulated, DeviceChoice::Emulated(options)) => {
                let device = EmulatedDevice::new(options);
                let staging = Staging::new(&device, plan, operator.kernel(), memory, pinned)?;
                Ok(AnyStaging::Emulated(device, staging))
            }
            #[cfg(feature = "cuda")]
            (DeviceKind::Cuda, _) => {
                let device = opened.cuda[number].clone();
                let staging = Staging::new(&*device, plan, operator.kernel(), memory, pinned)?;
                Ok(AnyStaging::Cuda(device, staging))
            }
            _ => Ok(AnyStaging::Cpu),
        }
    }

    /// Adds the lanes of this device; returns how they want to be driven, if they care.
    fn add_lanes<'r>(
        &'r mut self,
        lanes: &mut Vec<Box<dyn Lane + 'r>>,
        number: usize,
        plan: &DevicePlan,
        work: &'r Work<'r>,
    ) -> Result<Option<Schedule>> {
        match self {
            AnyStaging::Cpu => {
                lanes.extend((0..plan.lanes).map(|lane| Box::new(HostLane::new(lane, number, work)) as Box<dyn Lane>));
                Ok(None)
            }
            AnyStaging::Emulated(device, staging) => {
                lanes.extend(staging.lanes(device, number, work)?);
                Ok(Some(device.schedule()))
            }
            #[cfg(feature = "cuda")]
            AnyStaging::Cuda(device, staging) => {
                lanes.extend(staging.lanes(&**device, number, work)?);
                Ok(None)
            }
        }
    }

    /// A note if the device gave fewer blocks than planned.
    fn shortage(&self, plan: &DevicePlan) -> Option<String> {
        let blocks = match self {
            AnyStaging::Cpu => return None,
            AnyStaging::Emulated(_, staging) => staging.blocks(),
            #[cfg(feature = "cuda")]
            AnyStaging::Cuda(_, staging) => staging.blocks(),
        };
        (blocks < plan.blocks).then(|| {
            format!("{} had memory for {blocks} of {} blocks of {} bytes", plan.id, plan.blocks, plan.block_bytes)
        })
    }
}
