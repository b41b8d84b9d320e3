//! A report as JSON. `docs/json.md` describes the format. A change that readers could notice needs a new
//! [`Report::SCHEMA_VERSION`].

use std::path::Path;
use std::time::Duration;

use serde::ser::{Serialize, Serializer};

use super::{
    Bottleneck, Computation, DeviceReport, InputReport, OutputReport, Report, Setup, StageTime, StageTimes,
    Verification, VerifiedDevice,
};
use crate::data::{ArrayPart, ArrayValue, Scalar};
use crate::device::DeviceKind;

#[derive(serde::Serialize)]
struct ReportJson<'a> {
    schema_version: u32,
    overshot_version: &'a str,
    expression: Option<&'a str>,
    kernel: Option<&'a str>,
    rows: u64,
    results: Vec<ResultJson<'a>>,
    arrays: Vec<ArrayJson<'a>>,
    inputs: Vec<InputJson<'a>>,
    outputs: Vec<OutputJson<'a>>,
    input_bytes: u64,
    output_bytes: u64,
    chunks: u64,
    chunk_rows: u64,
    seconds: f64,
    total_seconds: f64,
    processor_seconds: f64,
    setup: SetupJson,
    bytes_to_device: u64,
    bytes_ahead: u64,
    bytes_from_device: u64,
    bytes_read_directly: u64,
    peak_pinned_bytes: u64,
    devices: Vec<DeviceJson<'a>>,
    verification: Option<VerificationJson<'a>>,
    checksum_seconds: Option<f64>,
    measured: bool,
    passes: &'a [Report],
    notes: &'a [String],
}

#[derive(serde::Serialize)]
struct ResultJson<'a> {
    name: &'a str,
    dtype: Option<&'static str>,
    value: Option<Scalar>,
}

#[derive(serde::Serialize)]
struct ArrayJson<'a> {
    name: &'a str,
    dtype: Option<&'static str>,
    shape: Option<&'a [u64]>,
    values: Option<ArrayPart<'a>>,
}

#[derive(serde::Serialize)]
struct InputJson<'a> {
    name: &'a str,
    path: Option<String>,
    dtype: &'static str,
    shape: &'a [u64],
    rows: u64,
    bytes: u64,
}

#[derive(serde::Serialize)]
struct OutputJson<'a> {
    name: &'a str,
    path: Option<String>,
    dtype: &'static str,
    shape: &'a [u64],
    rows: u64,
    bytes: u64,
    blake3: Option<&'a str>,
}

#[derive(serde::Serialize)]
struct VerificationJson<'a> {
    fraction: f64,
    devices: Vec<VerifiedJson<'a>>,
}

#[derive(serde::Serialize)]
struct VerifiedJson<'a> {
    id: &'a str,
    by: &'static str,
    chunks: u64,
    rows: u64,
    seconds: f64,
}

#[derive(serde::Serialize)]
struct SetupJson {
    find_seconds: f64,
    open_seconds: f64,
    kernel_seconds: f64,
    memory_seconds: f64,
}

#[derive(serde::Serialize)]
struct DeviceJson<'a> {
    id: &'a str,
    name: &'a str,
    kind: DeviceKind,
    chunks: u64,
    rows: u64,
    chunk_rows: u64,
    workers: usize,
    peak_device_bytes: u64,
    virtual_seconds: Option<f64>,
    stages: Option<StagesJson>,
    bottleneck: Option<Bottleneck>,
}

#[derive(serde::Serialize)]
struct StagesJson {
    fill: StageJson,
    copy_in: StageJson,
    kernel: StageJson,
    copy_out: StageJson,
    drain: StageJson,
}

#[derive(serde::Serialize)]
struct StageJson {
    busy_seconds: f64,
    waiting_seconds: f64,
}

impl Serialize for Report {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (expression, kernel) = match &self.computation {
            Computation::Expression(text) => (Some(&**text), None),
            Computation::Kernel(entry) => (None, Some(&**entry)),
        };
        let Setup { find, open, kernel: load, memory } = self.setup;
        let has_checksums = self.outputs.iter().any(|output| output.checksum.is_some());
        let document = ReportJson {
            schema_version: Report::SCHEMA_VERSION,
            overshot_version: env!("CARGO_PKG_VERSION"),
            expression,
            kernel,
            rows: self.rows,
            results: self.results.iter().map(result).collect(),
            arrays: self.arrays.iter().map(array).collect(),
            inputs: self.inputs.iter().map(input).collect(),
            outputs: self.outputs.iter().map(output).collect(),
            input_bytes: self.input_bytes(),
            output_bytes: self.output_bytes(),
            chunks: self.chunks,
            chunk_rows: self.chunk_rows,
            seconds: self.time.as_secs_f64(),
            total_seconds: self.total_time.as_secs_f64(),
            processor_seconds: self.processor_time.as_secs_f64(),
            setup: SetupJson {
                find_seconds: find.as_secs_f64(),
                open_seconds: open.as_secs_f64(),
                kernel_seconds: load.as_secs_f64(),
                memory_seconds: memory.as_secs_f64(),
            },
            bytes_to_device: self.bytes_to_device,
            bytes_ahead: self.bytes_ahead,
            bytes_from_device: self.bytes_from_device,
            bytes_read_directly: self.bytes_read_directly,
            peak_pinned_bytes: self.peak_pinned_bytes,
            devices: self.devices.iter().map(device).collect(),
            verification: self.verification.as_ref().map(verification),
            checksum_seconds: has_checksums.then_some(self.checksum_time.as_secs_f64()),
            measured: self.measured,
            passes: &self.passes,
            notes: &self.notes,
        };
        document.serialize(serializer)
    }
}

fn result((name, value): &(String, Option<Scalar>)) -> ResultJson<'_> {
    ResultJson { name, dtype: value.map(|value| value.dtype().name()), value: *value }
}

fn array((name, array): &(String, Option<ArrayValue>)) -> ArrayJson<'_> {
    let array = array.as_ref();
    ArrayJson {
        name,
        dtype: array.map(|array| array.dtype().name()),
        shape: array.map(ArrayValue::shape),
        values: array.map(ArrayValue::whole),
    }
}

/// Returns a path as text. Bytes that are not UTF-8 are replaced.
fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn input(input: &InputReport) -> InputJson<'_> {
    let InputReport { name, path, dtype, shape, rows, bytes } = input;
    InputJson { name, path: path.as_deref().map(text), dtype: dtype.name(), shape, rows: *rows, bytes: *bytes }
}

fn output(output: &OutputReport) -> OutputJson<'_> {
    let OutputReport { name, path, dtype, shape, rows, bytes, checksum } = output;
    let (path, blake3) = (path.as_deref().map(text), checksum.as_deref());
    OutputJson { name, path, dtype: dtype.name(), shape, rows: *rows, bytes: *bytes, blake3 }
}

fn verification(verification: &Verification) -> VerificationJson<'_> {
    VerificationJson { fraction: verification.fraction, devices: verification.devices.iter().map(verified).collect() }
}

fn verified(device: &VerifiedDevice) -> VerifiedJson<'_> {
    let VerifiedDevice { id, by, chunks, rows, time } = device;
    VerifiedJson { id, by: by.name(), chunks: *chunks, rows: *rows, seconds: time.as_secs_f64() }
}

fn device(device: &DeviceReport) -> DeviceJson<'_> {
    DeviceJson {
        id: &device.id,
        name: &device.name,
        kind: device.kind,
        chunks: device.chunks,
        rows: device.rows,
        chunk_rows: device.chunk_rows,
        workers: device.workers,
        peak_device_bytes: device.peak_device_bytes,
        virtual_seconds: device.virtual_time.as_ref().map(Duration::as_secs_f64),
        stages: stages(&device.stages),
        bottleneck: device.bottleneck,
    }
}

/// Returns `None` if nothing was measured, as on an emulated device whose operations take no time.
fn stages(times: &StageTimes) -> Option<StagesJson> {
    let stage = |time: StageTime| StageJson {
        busy_seconds: time.busy.as_secs_f64(),
        waiting_seconds: time.waiting.as_secs_f64(),
    };
    let StageTimes { fill, copy_in, kernel, copy_out, drain } = *times;
    let stages = StagesJson {
        fill: stage(fill),
        copy_in: stage(copy_in),
        kernel: stage(kernel),
        copy_out: stage(copy_out),
        drain: stage(drain),
    };
    (!times.is_empty()).then_some(stages)
}

/// Serializes as a number or a boolean. JSON cannot represent numbers that are not finite: they become the strings
/// `"NaN"`, `"inf"` and `"-inf"`.
impl Serialize for Scalar {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            value if value.dtype().is_float() && !value.as_f64().is_finite() => {
                serializer.serialize_str(&value.to_string())
            }
            Scalar::Bool(value) => serializer.serialize_bool(value),
            Scalar::I8(value) => serializer.serialize_i8(value),
            Scalar::I16(value) => serializer.serialize_i16(value),
            Scalar::I32(value) => serializer.serialize_i32(value),
            Scalar::I64(value) => serializer.serialize_i64(value),
            Scalar::U8(value) => serializer.serialize_u8(value),
            Scalar::U16(value) => serializer.serialize_u16(value),
            Scalar::U32(value) => serializer.serialize_u32(value),
            Scalar::U64(value) => serializer.serialize_u64(value),
            Scalar::F16(value) => serializer.serialize_f32(value.to_f32()),
            Scalar::Bf16(value) => serializer.serialize_f32(value.to_f32()),
            Scalar::F32(value) => serializer.serialize_f32(value),
            Scalar::F64(value) => serializer.serialize_f64(value),
        }
    }
}

/// Serializes as lists within lists, one for each dimension.
impl Serialize for ArrayValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.whole().serialize(serializer)
    }
}

/// Serializes as a list of parts, one list within another for each dimension.
impl Serialize for ArrayPart<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.value() {
            Some(value) => value.serialize(serializer),
            None => serializer.collect_seq((0..self.len()).map(|index| self.at(index))),
        }
    }
}
