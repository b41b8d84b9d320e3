//! Jobs: names, columns, dtypes, lengths, scalars, devices and limits. The input is the choices from which one is
//! made. Every job gives a plan or a typed error; small ones run on emulated devices, and their results are compared.
#![no_main]

use std::sync::{Arc, Mutex};

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use overshot::device::{Emulated, Fault, FaultAt};
use overshot::io::Target;
use overshot::kernel::{Call, CustomKernel};
use overshot::testing::fuzz::Bound;
use overshot::{
    CancelToken, DeviceChoice, Dtype, Engine, EngineBuilder, Error, Expression, Input, Job, Output, Plan, Report,
    Scalar, Sink, Source,
};
use overshot_fuzz::{Column, Grammar, bits, rows, run};

/// Jobs with more rows or more memory are only planned.
const MOST_ROWS: u64 = 1 << 16;
const MOST_BYTES: u64 = 32 << 20;

fuzz_target!(|data: &[u8]| {
    let _ = check(&mut Unstructured::new(data));
});

/// A job with what is needed to make it several times.
struct Setup {
    what: What,
    inputs: Vec<(String, Rows)>,
    values: Vec<(String, Scalar)>,
    outputs: Vec<(String, Slot)>,
    rows: Option<u64>,
    is_cancelled: bool,
    timeline: bool,
}

enum What {
    Expression(Expression),
    Kernel(Box<Call>),
}

/// An input: a column, with rows beyond it that only plans know.
#[derive(Clone)]
struct Rows {
    column: Arc<Column>,
    rows: u64,
    shape: Option<Vec<u64>>,
    in_memory: bool,
}

impl Source for Rows {
    fn dtype(&self) -> Dtype {
        self.column.dtype
    }

    fn rows(&self) -> u64 {
        self.rows
    }

    fn name(&self) -> String {
        "rows".into()
    }

    fn shape(&self) -> Option<&[u64]> {
        self.shape.as_deref()
    }

    fn read(&self, first: u64, dst: &mut [u8]) -> overshot::Result<()> {
        let start = first as usize * self.column.dtype.size();
        dst.copy_from_slice(&self.column.bytes()[start..][..dst.len()]);
        Ok(())
    }
}

impl Rows {
    fn input(&self) -> Input<'_> {
        let bytes = self.column.bytes();
        if !self.in_memory || self.rows != self.column.rows as u64 {
            return self.clone().into();
        }
        match self.column.dtype {
            Dtype::I8 => bytemuck::cast_slice::<_, i8>(bytes).into(),
            Dtype::I16 => bytemuck::cast_slice::<_, i16>(bytes).into(),
            Dtype::I32 => bytemuck::cast_slice::<_, i32>(bytes).into(),
            Dtype::I64 => bytemuck::cast_slice::<_, i64>(bytes).into(),
            Dtype::U8 => bytes.into(),
            Dtype::U16 => bytemuck::cast_slice::<_, u16>(bytes).into(),
            Dtype::U32 => bytemuck::cast_slice::<_, u32>(bytes).into(),
            Dtype::U64 => bytemuck::cast_slice::<_, u64>(bytes).into(),
            Dtype::F32 => bytemuck::cast_slice::<_, f32>(bytes).into(),
            Dtype::F64 => bytemuck::cast_slice::<_, f64>(bytes).into(),
            _ => self.clone().into(),
        }
    }
}

/// An output: what it asks for, and what was written.
#[derive(Clone, Default)]
struct Slot {
    dtype: Option<Dtype>,
    cast: bool,
    rows: Option<u64>,
    written: Arc<Mutex<Vec<u8>>>,
    row_bytes: usize,
}

impl Target for Slot {
    fn name(&self) -> String {
        "slot".into()
    }

    fn dtype(&self) -> Option<Dtype> {
        self.dtype
    }

    fn cast(&self) -> bool {
        self.cast
    }

    fn rows(&self) -> Option<u64> {
        self.rows
    }

    fn open<'s>(
        mut self: Box<Self>,
        dtype: Dtype,
        rows: u64,
        shape: Option<&[u64]>,
    ) -> overshot::Result<Box<dyn Sink + 's>>
    where
        Self: 's,
    {
        assert!(self.dtype.is_none_or(|own| own == dtype) && self.rows.is_none_or(|own| own == rows));
        assert!(shape.is_none_or(|shape| shape.iter().product::<u64>() == rows));
        self.row_bytes = dtype.size();
        *self.written.lock().unwrap() = vec![0xa5; rows as usize * dtype.size()];
        Ok(self)
    }
}

impl Sink for Slot {
    fn write(&self, first_row: u64, bytes: &[u8]) -> overshot::Result<()> {
        let start = first_row as usize * self.row_bytes;
        self.written.lock().unwrap()[start..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn commit(self: Box<Self>) -> overshot::Result<()> {
        Ok(())
    }
}

impl Setup {
    fn job(&self) -> Job<'_> {
        let mut job = match &self.what {
            What::Expression(expression) => Job::new(expression),
            What::Kernel(call) => Job::kernel(Call::clone(call)),
        };
        for (name, rows) in &self.inputs {
            job = job.input(name, rows.input());
        }
        for (name, value) in &self.values {
            job = job.scalar(name, *value);
        }
        for (name, slot) in &self.outputs {
            job = job.output(name, Output::from(slot.clone()));
        }
        if let Some(rows) = self.rows {
            job = job.rows(rows);
        }
        if self.is_cancelled {
            let token = CancelToken::new();
            token.cancel();
            job = job.cancel_token(token);
        }
        job.timeline(self.timeline)
    }

    fn written(&self) -> Vec<Vec<u8>> {
        self.outputs.iter().map(|(_, slot)| slot.written.lock().unwrap().clone()).collect()
    }
}

/// What an engine has.
#[derive(Clone, Debug)]
struct Limits {
    devices: Vec<Emulated>,
    /// Whether devices can do all that plans expect of them.
    are_sound: bool,
    device_memory: Option<u64>,
    pinned_memory: Option<u64>,
    chunk: Option<u64>,
    workers: Option<usize>,
}

impl Limits {
    fn arbitrary(u: &mut Unstructured<'_>) -> Result<Limits> {
        let mut limits = Limits {
            devices: vec![],
            are_sound: true,
            device_memory: optional(u, size)?,
            pinned_memory: optional(u, size)?,
            chunk: optional(u, size)?,
            workers: optional(u, |u| u.int_in_range(0..=9))?,
        };
        for _ in 0..u.int_in_range(1..=3)? {
            let mut device = Emulated::new().seed(u.arbitrary::<u8>()?.into());
            if let Some(memory) = optional(u, size)? {
                device = device.memory(memory);
            }
            if u.ratio(1, 4)? {
                device = device.copy_in_rate(1e9).kernel_rate(1e8).drain_rate(3e9);
            }
            if u.ratio(1, 8)? {
                device = device.taken(size(u)?);
                limits.are_sound = false;
            }
            if u.ratio(1, 8)? {
                let at = *u.choose(&[
                    FaultAt::Allocate,
                    FaultAt::CopyIn,
                    FaultAt::Kernel,
                    FaultAt::CopyOut,
                    FaultAt::Pin,
                    FaultAt::Zero,
                    FaultAt::OpenStream,
                    FaultAt::Event,
                    FaultAt::Record,
                    FaultAt::Wait,
                    FaultAt::Query,
                    FaultAt::Synchronize,
                    FaultAt::Load,
                    FaultAt::FreeBytes,
                ])?;
                device = device.fault(Fault::new(at, u.int_in_range(0..=20)?));
                limits.are_sound = false;
            }
            limits.devices.push(device);
        }
        Ok(limits)
    }

    fn engine(&self) -> overshot::Result<Engine> {
        let devices = self.devices.clone();
        let mut builder: EngineBuilder = Engine::builder().device(DeviceChoice::Emulated(devices));
        if let Some(bytes) = self.device_memory {
            builder = builder.device_memory(bytes);
        }
        if let Some(bytes) = self.pinned_memory {
            builder = builder.pinned_memory(bytes);
        }
        if let Some(bytes) = self.chunk {
            builder = builder.chunk(bytes);
        }
        if let Some(workers) = self.workers {
            builder = builder.workers(workers);
        }
        builder.build()
    }
}

fn optional<T>(u: &mut Unstructured<'_>, value: impl FnOnce(&mut Unstructured<'_>) -> Result<T>) -> Result<Option<T>> {
    if u.arbitrary()? { Ok(Some(value(u)?)) } else { Ok(None) }
}

/// A number of any magnitude, near a power of two.
fn size(u: &mut Unstructured<'_>) -> Result<u64> {
    let power = 1_u64 << if u.ratio(1, 6)? { u.int_in_range(0..=63)? } else { u.int_in_range(12..=22)? };
    Ok(match u.int_in_range(0..=3)? {
        0 => power - 1,
        1 => power,
        2 => power.saturating_mul(3),
        _ => power | (u.arbitrary::<u64>()? & (power - 1)),
    })
}

fn check(u: &mut Unstructured<'_>) -> Result<()> {
    let limits = Limits::arbitrary(u)?;
    let rows = rows(u)?;
    let kernel = if u.ratio(1, 4)? { Some(kernel(u, rows)?) } else { None };
    let (mut setup, is_right) = match kernel {
        Some(setup) => (setup, false),
        None => {
            let Some(setup) = expression(u, rows)? else { return Ok(()) };
            (setup, true)
        }
    };
    let is_changed = u.ratio(1, 3)?;
    if is_changed {
        change(u, &mut setup)?;
    }
    let engine = match limits.engine() {
        Ok(engine) => engine,
        Err(error) => {
            check_error(&error);
            assert_eq!(limits.workers, Some(0), "{error}");
            return Ok(());
        }
    };
    let plan = match engine.plan(&setup.job()) {
        Ok(plan) => plan,
        Err(error) => {
            check_error(&error);
            check_remedy(&setup, &limits, &error);
            // What cannot be planned cannot be run.
            let run = engine.run(setup.job()).expect_err("a job without a plan");
            assert_eq!(run.to_string(), error.to_string());
            return Ok(());
        }
    };
    check_plan(&plan, &limits);
    let bytes: u64 = plan.devices.iter().map(|device| device.device_bytes + device.pinned_bytes).sum();
    let are_there = setup.inputs.iter().all(|(_, rows)| rows.rows == rows.column.rows as u64);
    if bytes > MOST_BYTES || plan.rows > MOST_ROWS || !are_there {
        return Ok(());
    }
    match engine.run(setup.job()) {
        Ok(report) => {
            check_report(&report, &plan);
            let first = (setup.written(), report.results);
            if is_right && !is_changed {
                check_columns(&setup, rows, &first.0);
            }
            // Results do not depend on devices and limits.
            let plain = Engine::builder().device(Emulated::new()).build().expect("a plain engine");
            let report = plain.run(setup.job()).expect("a job that has run");
            assert_eq!(format!("{:?}", (setup.written(), report.results)), format!("{first:?}"));
        }
        Err(Error::Cancelled { .. }) => assert!(setup.is_cancelled),
        Err(error) => {
            check_error(&error);
            assert!(!limits.are_sound, "it was planned but did not run: {error}\n{plan}");
        }
    }
    Ok(())
}

fn check_error(error: &Error) {
    let text = error.to_string();
    assert!(!text.is_empty() && !text.contains("please report"), "{error:?}");
    // No worker's error that is only a consequence of another error gets out.
    let is_consequence = error.to_string().contains("another worker failed");
    assert!(!matches!(error, Error::Internal(_)) && !is_consequence, "{error:?}");
}

/// A limit that an error asks for is enough.
fn check_remedy(setup: &Setup, limits: &Limits, error: &Error) {
    let mut limits = limits.clone();
    let mut message = error.to_string();
    let mut error = match error {
        Error::Budget { what, needed, .. } => (*what, *needed),
        _ => return,
    };
    // One limit after the other, of each device and of each pass.
    let passes = if let What::Expression(expression) = &setup.what { expression.passes() } else { 1 };
    for _ in 0..2 * limits.devices.len() * passes + 1 {
        let (what, needed) = error;
        if what == "device memory" {
            limits.device_memory = limits.device_memory.map(|limit| limit.max(needed));
            limits.devices = limits.devices.into_iter().map(|device| device.memory(needed.max(64 << 20))).collect();
        } else {
            limits.pinned_memory = Some(limits.pinned_memory.unwrap_or(256 << 20).max(needed));
        }
        let engine = limits.engine().expect("an engine with larger limits");
        match engine.plan(&setup.job()) {
            Ok(plan) => return check_plan(&plan, &limits),
            Err(Error::Budget { what, needed, .. }) => error = (what, needed),
            Err(other) => return check_error(&other),
        }
        message = format!("{message}; then {error:?}");
    }
    panic!("limits as asked for are not enough: {message}");
}

fn check_plan(plan: &Plan, limits: &Limits) {
    let _ = (plan.to_string(), serde_json_of(plan));
    assert!(plan.chunk_rows > 0 && plan.chunk_rows.is_multiple_of(plan.tile_rows));
    assert!(plan.min_chunk_rows > 0 && plan.min_chunk_rows <= plan.chunk_rows);
    assert_eq!(plan.devices.len(), limits.devices.len());
    for device in &plan.devices {
        assert!(device.workers > 0 && limits.workers.is_none_or(|workers| device.workers == workers), "{plan}");
        // A chunk in several fills keeps its block behind the last one.
        let most = device.workers * (device.slots + usize::from(device.fill_rows < device.max_chunk_rows));
        assert!(device.slots > 0 && device.blocks > 0 && device.blocks <= most, "{plan}");
        assert!(device.max_chunk_rows > 0 && device.max_chunk_rows <= plan.chunk_rows, "{plan}");
        assert!(device.max_chunk_rows.is_multiple_of(plan.tile_rows), "{plan}");
        assert_eq!(device.device_bytes, device.blocks as u64 * device.block_bytes + device.resident_bytes);
        assert_eq!(device.pinned_bytes, (device.workers * device.slots) as u64 * device.slot_bytes);
        assert!(device.device_bytes <= device.device_limit && device.pinned_bytes <= device.pinned_limit, "{plan}");
        assert!(limits.device_memory.is_none_or(|limit| device.device_limit <= limit), "{plan}");
        assert!(limits.pinned_memory.is_none_or(|limit| device.pinned_limit <= limit), "{plan}");
    }
}

fn check_report(report: &Report, plan: &Plan) {
    let _ = (format!("{report} {report:#}"), serde_json_of(report));
    assert_eq!(report.rows, plan.rows);
    let passes = report.passes.len().max(1) as u64;
    assert_eq!(report.devices.iter().map(|device| device.rows).sum::<u64>(), passes * plan.rows);
    // A device with less memory than it reported gets smaller chunks, and so another plan within the same limits. Of
    // several passes, each has a plan of its own.
    let is_as_planned = report.passes.is_empty() && !report.notes.iter().any(|note| note.contains("had no memory"));
    let pinned =
        plan.devices.iter().map(|device| if is_as_planned { device.pinned_bytes } else { device.pinned_limit });
    assert!(report.peak_pinned_bytes <= pinned.fold(0, u64::saturating_add), "{report:#}");
    for device in &report.devices {
        let plan = plan.devices.iter().find(|plan| plan.id == device.id).expect("a device of the plan");
        let most = if is_as_planned { plan.device_bytes } else { plan.device_limit };
        assert!(device.peak_device_bytes <= most, "{report:#}");
    }
}

fn serde_json_of(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("plans and reports have a JSON form")
}

/// The host kernel over all rows at once writes the same.
fn check_columns(setup: &Setup, rows: usize, written: &[Vec<u8>]) {
    let What::Expression(expression) = &setup.what else { return };
    // The engine reads the rows at both ends of a job, which this kernel lacks. Several passes have several kernels.
    if expression.text().contains("wrap") || expression.passes() > 1 {
        return;
    }
    let inputs: Vec<_> = setup.inputs.iter().map(|(name, rows)| (name.clone(), rows.column.dtype)).collect();
    let values: Vec<_> = setup.values.iter().map(|(name, value)| (name.clone(), value.dtype())).collect();
    let outputs = setup.outputs.iter().map(|(name, slot)| (name.clone(), slot.dtype.filter(|_| slot.cast)));
    let bound = Bound::new(expression, &inputs, &values, &outputs.collect::<Vec<_>>()).expect("a job that has run");
    let kernel = bound.kernel();
    let columns: Vec<Column> = setup.inputs.iter().map(|(_, rows)| (*rows.column).clone()).collect();
    let scalars: Vec<u64> = setup.values.iter().map(|(_, value)| bits_of(*value)).collect();
    let host = &mut *kernel.new_host_kernel().expect("expressions have one");
    let (outputs, _) = run(host, &kernel, bound.outputs(), rows, &columns, &scalars);
    assert!(outputs.iter().zip(written).all(|(output, written)| output.bytes() == written));
}

fn bits_of(value: Scalar) -> u64 {
    match value {
        Scalar::Bool(value) => value.into(),
        Scalar::I8(value) => u64::from(value as u8),
        Scalar::I16(value) => u64::from(value as u16),
        Scalar::I32(value) => u64::from(value as u32),
        Scalar::I64(value) => value as u64,
        Scalar::U8(value) => value.into(),
        Scalar::U16(value) => value.into(),
        Scalar::U32(value) => value.into(),
        Scalar::U64(value) => value,
        Scalar::F16(value) => value.to_bits().into(),
        Scalar::Bf16(value) => value.to_bits().into(),
        Scalar::F32(value) => value.to_bits().into(),
        Scalar::F64(value) => value.to_bits(),
        other => panic!("what is {other}?"),
    }
}

fn scalar(u: &mut Unstructured<'_>, dtype: Dtype) -> Result<Scalar> {
    let bits = bits(u, dtype)?;
    Ok(match dtype {
        Dtype::Bool => Scalar::Bool(bits != 0),
        Dtype::I8 => Scalar::I8(bits as i8),
        Dtype::I16 => Scalar::I16(bits as i16),
        Dtype::I32 => Scalar::I32(bits as i32),
        Dtype::I64 => Scalar::I64(bits as i64),
        Dtype::U8 => Scalar::U8(bits as u8),
        Dtype::U16 => Scalar::U16(bits as u16),
        Dtype::U32 => Scalar::U32(bits as u32),
        Dtype::U64 => Scalar::U64(bits),
        Dtype::F16 | Dtype::Bf16 => {
            let value = Column::from_bits(dtype, [bits].into_iter()).float(0);
            Scalar::parse(&format!("{value:?}"), dtype).expect("a float")
        }
        Dtype::F32 => Scalar::F32(f32::from_bits(bits as u32)),
        _ => Scalar::F64(f64::from_bits(bits)),
    })
}

/// A column that repeats some arbitrary values.
fn rows_of(u: &mut Unstructured<'_>, dtype: Dtype, rows: usize) -> Result<Rows> {
    let period = u.int_in_range(1..=13)?;
    let few = Column::arbitrary(u, dtype, period)?;
    let column = Column::from_bits(dtype, (0..rows).map(|row| few.bits(row % few.rows)));
    Ok(Rows { column: Arc::new(column), rows: rows as u64, shape: None, in_memory: u.arbitrary()? })
}

/// A job with an expression, in which all fits together but dtypes.
fn expression(u: &mut Unstructured<'_>, rows: usize) -> Result<Option<Setup>> {
    let grammar = Grammar::arbitrary(u)?;
    let Ok(expression) = Expression::parse(&grammar.text(false)) else { return Ok(None) };
    let mut setup = Setup {
        what: What::Expression(expression.clone()),
        inputs: vec![],
        values: vec![],
        outputs: vec![],
        rows: Some(rows as u64),
        is_cancelled: u.ratio(1, 50)?,
        timeline: u.ratio(1, 4)?,
    };
    for (name, dtype) in &grammar.inputs {
        setup.inputs.push((name.clone(), rows_of(u, *dtype, rows)?));
    }
    for (name, dtype) in &grammar.values {
        setup.values.push((name.clone(), scalar(u, *dtype)?));
    }
    for name in expression.outputs() {
        let dtype = if u.ratio(1, 4)? { Some(*u.choose(Dtype::ALL)?) } else { None };
        setup.outputs.push((name.to_owned(), Slot { dtype, cast: dtype.is_some(), ..Slot::default() }));
    }
    Ok(Some(setup))
}

/// A job with a kernel that copies rows of several elements.
fn kernel(u: &mut Unstructured<'_>, rows: usize) -> Result<Setup> {
    let mut elements = || -> Result<u64> { Ok(if u.ratio(1, 8)? { size(u)?.max(1) } else { u.int_in_range(1..=9)? }) };
    let (own, scratch) = (elements()?, elements()?);
    let parameters =
        format!("long long rows, const float (*x)[{own}], float (*y)[{own}], double (*work)[{scratch}], int v");
    // SAFETY: the kernel runs only on the host.
    let kernel = unsafe { CustomKernel::cuda_with_parameters("fuzz.cu", "", "copy", &parameters) };
    let mut kernel = kernel.expect("parameters as in C");
    if let Some(threads) = optional(u, |u| u.int_in_range(0..=1025))? {
        // SAFETY: as above.
        kernel = unsafe { kernel.threads(threads) };
    }
    if let Some(rows) = optional(u, size)? {
        // SAFETY: as above.
        kernel = unsafe { kernel.rows_per_block(rows as usize) };
    }
    let kernel = kernel.on_host(|rows| rows.output::<f32>("y").copy_from_slice(rows.input::<f32>("x")));
    let call = kernel.call().scalar("v", 1).scratch("work");
    let count = own.checked_mul(rows as u64).filter(|count| *count < 1 << 18);
    let mut input = rows_of(u, Dtype::F32, count.unwrap_or(7) as usize)?;
    input.rows = count.unwrap_or(own);
    let mut setup = Setup {
        what: What::Kernel(Box::new(call)),
        inputs: vec![],
        values: vec![],
        outputs: vec![("y".into(), Slot::default())],
        rows: None,
        is_cancelled: false,
        timeline: u.ratio(1, 4)?,
    };
    setup.inputs.push(("x".into(), input));
    Ok(setup)
}

/// Changes a job, so that it may not fit together any more.
fn change(u: &mut Unstructured<'_>, setup: &mut Setup) -> Result<()> {
    const NAMES: [&str; 8] = ["a", "x", "y0", "r1", "pi", "", "rows", "work"];
    let name = (*u.choose(&NAMES)?).to_owned();
    match u.int_in_range(0..=8)? {
        0 => setup.inputs.push((name, rows_of(u, Dtype::F64, 5)?)),
        1 => setup.values.push((name, scalar(u, Dtype::I32)?)),
        2 => setup.outputs.push((name, Slot::default())),
        3 => _ = setup.inputs.pop(),
        4 => _ = setup.outputs.pop(),
        5 => setup.rows = optional(u, size)?,
        6 => {
            // More rows than there is memory for, of all columns or of one.
            let (rows, all) = (size(u)?, u.arbitrary()?);
            setup.rows = setup.rows.map(|own| if all { rows } else { own });
            let count = if all { setup.inputs.len() } else { 1 };
            setup.inputs.iter_mut().take(count).for_each(|(_, input)| input.rows = rows);
        }
        7 => {
            for (_, input) in &mut setup.inputs {
                let rows = input.rows;
                input.shape = Some(if rows % 2 == 0 && u.arbitrary()? { vec![rows / 2, 2] } else { vec![rows] });
            }
        }
        _ => {
            for (_, slot) in &mut setup.outputs {
                slot.dtype = optional(u, |u| u.choose(Dtype::ALL).copied())?;
                (slot.cast, slot.rows) = (u.arbitrary()?, optional(u, |u| u.int_in_range(0..=5000))?);
            }
        }
    }
    Ok(())
}
