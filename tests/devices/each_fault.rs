//! Each call of an emulated device in a job fails: once, for good, or by never ending. The job ends with an error that
//! names the device or with the right rows, and so does the next one; nothing stays in use, and nothing is left behind.

use std::io::Write;
use std::time::{Duration, Instant};

use overshot::device::{Emulated, Fault, FaultAt};
use overshot::{DeviceChoice, Engine, Error};

use crate::fault_jobs::{FaultyJob, JOBS, Survives};
use crate::harness::{EmulatedCase, Module, NO_CASES, Outcome, check};
use crate::rows::in_use;

pub const MODULE: Module = Module { name: "each fault", emulated: EMULATED, ..NO_CASES };

const EMULATED: &[(&str, EmulatedCase)] = &[
    ("a call fails once", || each(Mode::Once)),
    ("a call fails for good", || each(Mode::ForGood)),
    ("a call never ends", || each(Mode::Hangs)),
];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Once,
    ForGood,
    Hangs,
}

const WORK: [FaultAt; 4] = [FaultAt::CopyIn, FaultAt::Kernel, FaultAt::CopyOut, FaultAt::Zero];
const CALLS: [FaultAt; 10] = [
    FaultAt::Allocate,
    FaultAt::Pin,
    FaultAt::OpenStream,
    FaultAt::Event,
    FaultAt::Record,
    FaultAt::Wait,
    FaultAt::Query,
    FaultAt::Synchronize,
    FaultAt::Load,
    FaultAt::FreeBytes,
];
/// Jobs that are not wrong after this many calls of a kind one after the other make no more of them.
const PATIENCE: u64 = 3;
/// More calls of a kind than a job makes.
const FOR_GOOD: u64 = 1000;

/// Returns an engine on a device with these faults, alone or beside another one and the CPU.
fn engine(at: FaultAt, nth: u64, mode: Mode, is_alone: bool) -> overshot::Result<Engine> {
    let faults = match mode {
        Mode::Once => vec![Fault::new(at, nth)],
        Mode::ForGood => (nth..nth + FOR_GOOD).map(|nth| Fault::new(at, nth)).collect(),
        Mode::Hangs => vec![Fault::hang(at, nth)],
    };
    let device = |seed: u64| Emulated::new().seed(seed).copy_in_rate(1e9).kernel_rate(1e8).copy_out_rate(1e9);
    let faulty = faults.into_iter().fold(device(nth), Emulated::fault);
    let builder = Engine::builder().chunk(200_000).workers(2).device_timeout(Duration::from_secs(30));
    match is_alone {
        true => builder.device(DeviceChoice::Emulated(vec![faulty])).build(),
        false => builder.device(DeviceChoice::CpuAndEmulated(vec![faulty, device(1)])).build(),
    }
}

/// Runs a job twice, and returns its first error.
fn run(job: &FaultyJob, engine: &Engine) -> Result<Option<Error>, String> {
    let mut first = None;
    for number in ["first", "second"] {
        match (job.run)(engine) {
            Ok(true) => {}
            Ok(false) => return Err(format!("the {number} run has wrong rows")),
            Err(error) if error.to_string().contains('\n') => {
                return Err(format!("an error of several lines: {error}"));
            }
            Err(error) => first = first.or(Some(error)),
        }
        if in_use(engine) > 0 {
            return Err(format!("the {number} run leaves {} bytes in use", in_use(engine)));
        }
    }
    Ok(first)
}

/// Returns what the error of a call says of it. That of a device that hangs cannot know what it waits for.
fn stage(at: FaultAt) -> &'static str {
    match at {
        FaultAt::CopyIn => "a copy to the device failed",
        FaultAt::Kernel => "a kernel failed",
        FaultAt::CopyOut => "a copy to the host failed",
        FaultAt::Zero => "device memory could not be zeroed",
        FaultAt::Allocate => "out of memory for an allocation",
        FaultAt::Pin => "host memory could not be registered",
        FaultAt::OpenStream => "a stream could not be opened",
        FaultAt::Event => "an event could not be created",
        FaultAt::Record => "an event could not be recorded",
        FaultAt::Wait => "a stream could not wait for an event",
        FaultAt::Query => "an event could not be queried",
        FaultAt::Synchronize => "an event could not be waited for",
        FaultAt::Load => "a kernel could not be loaded",
        FaultAt::FreeBytes => "the free device memory could not be queried",
        _ => "a stage that this test does not know",
    }
}

/// Checks that an error names the device, the stage and, if work failed, the chunk and its rows.
fn check_error(job: &FaultyJob, (at, mode): (FaultAt, Mode), error: &Error) -> Result<(), String> {
    let text = error.to_string();
    if text.contains(" panicked: ") {
        return Err(format!("panics: {text}"));
    }
    if !text.contains("emulated") {
        return Err(format!("names no device: {text}"));
    }
    if (WORK.contains(&at) || text.contains("(on demand)")) && mode != Mode::Hangs && !text.contains(stage(at)) {
        return Err(format!("names another stage than '{}': {text}", stage(at)));
    }
    // Arrays that stay on devices, tables of kernels and matrices are copied without chunks.
    let has_chunks = WORK.contains(&at) && !["kernels", "sharded", "multiplied"].contains(&job.name);
    if has_chunks && !(text.contains(", chunk ") && text.contains("(rows ")) {
        return Err(format!("names no chunk: {text}"));
    }
    Ok(())
}

fn each(mode: Mode) -> Outcome {
    let begin = Instant::now();
    let (mut cases, mut errors) = (0, 0);
    let calls: &[FaultAt] = if mode == Mode::Hangs { &[] } else { &CALLS };
    for job in JOBS.iter().filter(|job| job.name != "described") {
        for &at in WORK.iter().chain(calls) {
            let (mut nth, mut right) = (0, 0);
            while right < PATIENCE {
                let what = format!("{}, {at:?} {nth}, {mode:?}", job.name);
                let error = run(job, &engine(at, nth, mode, true)?).map_err(|wrong| format!("{what}: {wrong}"))?;
                if let Some(error) = &error {
                    check_error(job, (at, mode), error).map_err(|wrong| format!("{what}: {wrong}"))?;
                }
                right = if error.is_some() { 0 } else { right + 1 };
                errors += u64::from(error.is_some());
                let error = run(job, &engine(at, nth, mode, false)?).map_err(|wrong| format!("{what}: {wrong}"))?;
                if let Some(error) = error {
                    check(job.survives != Survives::Always, format!("{what}: {error}"))?;
                    check_error(job, (at, mode), &error).map_err(|wrong| format!("{what}: {wrong}"))?;
                }
                (cases, nth) = (cases + 2, nth + 1);
            }
        }
    }
    let took = begin.elapsed().as_secs_f64();
    let line = format!("cases: {mode:?} on emulated: {cases}; {errors} jobs on one device were errors; {took:.1} s\n");
    std::io::stderr().write_all(line.as_bytes())?;
    check(errors > 100, format!("only {errors} calls failed"))
}
