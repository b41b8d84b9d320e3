//! Compares every device with NumPy: `tests/numpy/cases.txt`, which `tests/numpy/generate.py` explains and writes.
//!
//! Cases that read the same columns go into one job, so that a GPU compiles hundreds of kernels and not thousands.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use overshot::{DeviceChoice, Dtype, Engine, Error, Job, Result, Scalar, Sink, Source, io::Target};

use crate::harness::{self, Module, NO_CASES, Outcome, check, engine};

const TABLE: &str = include_str!("../numpy/cases.txt");

/// How far a function without an exact result may be from NumPy's, in units of the last place. NumPy's own vary by
/// processor, within 4.
const MAX_ULP: u64 = 4;

/// How far sums may be, relative to the sum of magnitudes or, if larger, the result.
const CLOSE: f64 = 1e-12;
const CLOSE_F32: f64 = 1e-6;
const CLOSE_F16: f64 = 2e-3;

/// The number of cases in one job: enough to save compilations, few enough to keep kernels small.
const TOGETHER: usize = 24;

pub const MODULE: Module = Module { name: "numpy", devices: &["cpu"], cases: CASES, ..NO_CASES };

const CASES: &[(&str, harness::Case)] = &[("gives what NumPy gives", gives_what_numpy_gives)];

fn gives_what_numpy_gives(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice).workers(1).build()?;
    let table = Table::parse(TABLE);
    let mut wrong = Vec::new();
    for line in &table.errors {
        let job = Job::eval(&format!("y = {}", line.text)).map(|job| table.with_inputs(job, line.inputs));
        if job.and_then(|job| engine.plan(&job.output("y", Captured::default()))).is_ok() {
            wrong.push(format!("{}: no error", line.text));
        }
    }
    for together in table.cases.chunk_by(|a, b| a.inputs == b.inputs).flat_map(|group| group.chunks(TOGETHER)) {
        wrong.extend(run(&engine, &table, together).unwrap_or_else(|error| vec![error.to_string()]));
    }
    let checked = table.cases.len() + table.errors.len();
    let first = wrong[..wrong.len().min(40)].join("\n");
    check(wrong.is_empty(), format!("{} of {checked} cases:\n{first}", wrong.len()))?;
    check(checked > 5000, format!("only {checked} cases"))
}

struct Case<'t> {
    text: &'t str,
    inputs: &'t str,
    reduces: bool,
    bound: &'t str,
    expected: Column,
}

#[derive(Default)]
struct Table<'t> {
    columns: HashMap<&'t str, Column>,
    cases: Vec<Case<'t>>,
    errors: Vec<Case<'t>>,
}

impl<'t> Table<'t> {
    fn parse(text: &'t str) -> Self {
        let mut table = Table::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            if let Some(values) = line.strip_prefix("values ") {
                let mut words = values.split(' ');
                let mut word = || words.next().expect("values NAME DTYPE BITS…");
                let (name, dtype) = (word(), word());
                table.columns.insert(name, Column::parse(dtype, words));
                continue;
            }
            let fields: Vec<&str> = line.split('\t').collect();
            let (kind, bound) = fields[0].split_once(' ').unwrap_or((fields[0], ""));
            let expected = match kind {
                "error" => Column { dtype: Dtype::Bool, bytes: vec![] },
                _ => Column::parse(fields[3], fields[4].split(' ')),
            };
            let case = Case { text: fields[1], inputs: fields[2], reduces: kind == "reduce", bound, expected };
            if kind == "error" { table.errors.push(case) } else { table.cases.push(case) }
        }
        table
    }

    fn with_inputs<'a>(&'a self, job: Job<'a>, inputs: &str) -> Job<'a> {
        let names: Vec<String> = job.input_names().to_vec();
        let bound = inputs.split(' ').map(|input| input.split_once('=').expect("name=column"));
        // A case may name a column that its expression does not read.
        bound
            .filter(|(name, _)| names.iter().any(|read| read == name))
            .fold(job, |job, (name, column)| job.input(name, &self.columns[column]))
    }
}

/// Runs cases with the same inputs as one job, and returns their errors.
fn run(engine: &Engine, table: &Table<'_>, cases: &[Case<'_>]) -> Result<Vec<String>> {
    let statement = |(k, case): (usize, &Case<'_>)| format!("y{k} = {}", case.text);
    let text: Vec<String> = cases.iter().enumerate().map(statement).collect();
    let mut job = table.with_inputs(Job::eval(&text.join("; "))?, cases[0].inputs);
    let outputs: Vec<Captured> = cases.iter().map(|_| Captured::default()).collect();
    for (k, (_, output)) in cases.iter().zip(&outputs).enumerate().filter(|(_, (case, _))| !case.reduces) {
        job = job.output(&format!("y{k}"), output.clone());
    }
    let first = cases[0].inputs.split(' ').next().and_then(|input| input.split_once('='));
    let magnitude: f64 = first.map_or(0.0, |(_, column)| table.columns[column].magnitude());
    // So each case is also the same bits on the CPU and on a device, or with other instructions of the CPU.
    let report = engine.run(job.verify(1.0))?;
    let mut wrong = Vec::new();
    for (k, (case, output)) in cases.iter().zip(outputs).enumerate() {
        let ours = match report.value(&format!("y{k}")) {
            Ok(Some(scalar)) => Column::of(scalar),
            _ => output.column(),
        };
        if let Err(problem) = compare(case, &ours, magnitude) {
            wrong.push(format!("{} of {}\n    {problem}", case.text, case.inputs));
        }
    }
    Ok(wrong)
}

fn compare(case: &Case<'_>, ours: &Column, magnitude: f64) -> Result<(), String> {
    if (ours.dtype, ours.rows()) != (case.expected.dtype, case.expected.rows()) {
        let (a, b) = (ours, &case.expected);
        return Err(format!("{} rows of {} instead of {} of {}", a.rows(), a.dtype, b.rows(), b.dtype));
    }
    for (row, (a, b)) in ours.bits().zip(case.expected.bits()).enumerate() {
        let (x, y) = (ours.value(a), ours.value(b));
        let agrees = a == b
            || (x.is_nan() && y.is_nan())
            || match case.bound {
                "zero" => x == y && x == 0.0,
                "ulp" => distance(ours.dtype, a, b) <= MAX_ULP,
                "close" => {
                    let close = match ours.dtype {
                        Dtype::F16 => CLOSE_F16,
                        Dtype::F32 => CLOSE_F32,
                        _ => CLOSE,
                    };
                    (x - y).abs() <= magnitude.max(y.abs()) * close
                }
                _ => false,
            };
        if !agrees {
            return Err(format!("row {row}: {x:?} ({a:x}) instead of {y:?} ({b:x})"));
        }
    }
    Ok(())
}

/// Floats between two floats.
fn distance(dtype: Dtype, a: u64, b: u64) -> u64 {
    let place = |bits: u64| match dtype {
        Dtype::F16 if bits >> 15 == 1 => -((bits & 0x7fff) as i64),
        Dtype::F32 if bits >> 31 == 1 => -((bits & 0x7fff_ffff) as i64),
        Dtype::F64 if bits >> 63 == 1 => -((bits & (u64::MAX >> 1)) as i64),
        _ => bits as i64,
    };
    place(a).abs_diff(place(b))
}

/// Values of one dtype.
#[derive(Debug)]
struct Column {
    dtype: Dtype,
    bytes: Vec<u8>,
}

impl Column {
    /// From hexadecimal bit patterns.
    fn parse<'w>(dtype: &str, words: impl Iterator<Item = &'w str>) -> Column {
        let dtype = dtype.parse::<Dtype>().expect("a dtype");
        let bits = words.map(|word| u64::from_str_radix(word, 16).expect("hexadecimal").to_le_bytes());
        Column { dtype, bytes: bits.flat_map(|bits| bits[..dtype.size()].to_vec()).collect() }
    }

    fn of(scalar: Scalar) -> Column {
        let bytes = match scalar {
            Scalar::Bool(v) => vec![v.into()],
            Scalar::I8(v) => v.to_le_bytes().to_vec(),
            Scalar::I16(v) => v.to_le_bytes().to_vec(),
            Scalar::I32(v) => v.to_le_bytes().to_vec(),
            Scalar::I64(v) => v.to_le_bytes().to_vec(),
            Scalar::U8(v) => v.to_le_bytes().to_vec(),
            Scalar::U16(v) => v.to_le_bytes().to_vec(),
            Scalar::U32(v) => v.to_le_bytes().to_vec(),
            Scalar::U64(v) => v.to_le_bytes().to_vec(),
            Scalar::F16(v) => v.to_le_bytes().to_vec(),
            Scalar::F32(v) => v.to_le_bytes().to_vec(),
            Scalar::F64(v) => v.to_le_bytes().to_vec(),
            other => unreachable!("NumPy has no {other:?} in these cases"),
        };
        Column { dtype: scalar.dtype(), bytes }
    }

    fn rows(&self) -> usize {
        self.bytes.len() / self.dtype.size()
    }

    fn bits(&self) -> impl Iterator<Item = u64> {
        self.bytes.chunks(self.dtype.size()).map(|bytes| {
            let mut bits = [0; 8];
            bits[..bytes.len()].copy_from_slice(bytes);
            u64::from_le_bytes(bits)
        })
    }

    fn value(&self, bits: u64) -> f64 {
        match self.dtype {
            Dtype::F64 => f64::from_bits(bits),
            Dtype::F16 => half::f16::from_bits(bits as u16).into(),
            Dtype::F32 => f32::from_bits(bits as u32).into(),
            Dtype::I8 => f64::from(bits as i8),
            Dtype::I16 => f64::from(bits as i16),
            Dtype::I32 => f64::from(bits as i32),
            Dtype::I64 => bits as i64 as f64,
            _ => bits as f64,
        }
    }

    fn magnitude(&self) -> f64 {
        self.bits().map(|bits| self.value(bits).abs()).filter(|value| value.is_finite()).sum()
    }
}

impl Source for Column {
    fn dtype(&self) -> Dtype {
        self.dtype
    }
    fn rows(&self) -> u64 {
        self.rows() as u64
    }
    fn name(&self) -> String {
        "column".into()
    }
    fn read(&self, first: u64, dst: &mut [u8]) -> Result<()> {
        let start = first as usize * self.dtype.size();
        dst.copy_from_slice(&self.bytes[start..start + dst.len()]);
        Ok(())
    }
}

/// An output of any dtype, in memory.
#[derive(Clone, Default)]
struct Captured(Arc<Mutex<Option<Column>>>);

impl Captured {
    fn column(self) -> Column {
        let column = self.0.lock().expect("no panics").take();
        column.unwrap_or(Column { dtype: Dtype::Bool, bytes: vec![] })
    }
}

impl Target for Captured {
    fn name(&self) -> String {
        "captured".into()
    }
    fn open<'s>(self: Box<Self>, dtype: Dtype, rows: u64, _: Option<&[u64]>) -> Result<Box<dyn Sink + 's>>
    where
        Self: 's,
    {
        *self.0.lock().expect("no panics") = Some(Column { dtype, bytes: vec![0xa5; rows as usize * dtype.size()] });
        Ok(self)
    }
}

impl Sink for Captured {
    fn write(&self, first_row: u64, bytes: &[u8]) -> Result<()> {
        let mut column = self.0.lock().expect("no panics");
        let column = column.as_mut().ok_or_else(|| Error::other("not open"))?;
        let start = first_row as usize * column.dtype.size();
        column.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
    fn commit(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
