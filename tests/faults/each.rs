//! Each call of a job fails, in each way.

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};

use overshot::{Engine, Error};

use crate::jobs::{FaultyJob, JOBS, Run, Survives, right_sum};
use crate::standin::{Mode, Watchdog, arm, bytes, calls, disarm, engine, failed, heal, impatient_engine};

/// All functions of the driver, of its management library and of cuBLAS that jobs call.
const CALLS: &[&str] = &[
    "cublasCreate_v2",
    "cublasDestroy_v2",
    "cublasDgemm_v2_64",
    "cublasGemmEx_64",
    "cublasGetProperty",
    "cublasSetAtomicsMode",
    "cublasSetMathMode",
    "cublasSetPointerMode_v2",
    "cublasSetStream_v2",
    "cublasSetWorkspace_v2",
    "cublasSgemm_v2_64",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDeviceGetPCIBusId",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDeviceTotalMem_v2",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventElapsedTime_v2",
    "cuEventQuery",
    "cuEventRecord",
    "cuFuncGetParamInfo",
    "cuGetErrorString",
    "cuInit",
    "cuLaunchKernel",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemGetInfo_v2",
    "cuMemAllocHost_v2",
    "cuMemFreeHost",
    "cuMemHostGetFlags",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemsetD8Async",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuPointerGetAttribute",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
    "nvmlDeviceGetCurrPcieLinkWidth",
    "nvmlDeviceGetHandleByPciBusId_v2",
    "nvmlDeviceGetMaxPcieLinkGeneration",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetUtilizationRates",
    "nvmlInit_v2",
    "nvmlShutdown",
];

/// The calls that enqueue work of their own.
const WORK: [&str; 7] = [
    "cublasDgemm_v2_64",
    "cublasGemmEx_64",
    "cublasSgemm_v2_64",
    "cuLaunchKernel",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemsetD8Async",
];
/// The calls that use memory.
const MEMORY: [&str; 4] = ["cublasCreate_v2", "cuDevicePrimaryCtxRetain", "cuMemAlloc_v2", "cuMemHostRegister_v2"];

impl Mode {
    fn fails(self, call: &str) -> bool {
        match self {
            Mode::Late | Mode::Hang => WORK.contains(&call),
            Mode::Memory => MEMORY.contains(&call),
            // Without a context, memory can never be released.
            Mode::Always => !call.starts_with("cuCtx"),
            Mode::Once | Mode::Device | Mode::Process | Mode::Twice | Mode::Slow => true,
            // See `flips.rs`.
            Mode::Flip => false,
        }
    }

    fn loses_a_device(self) -> bool {
        matches!(self, Mode::Device | Mode::Process | Mode::Late | Mode::Hang)
    }

    /// Returns whether a job can be asked to survive it: a copy of memory that is not pinned hangs in the driver, and a
    /// run whose devices use memory in place waits for them.
    fn applies_to(self, job: &FaultyJob) -> bool {
        self != Mode::Hang || ["staged", "files", "products"].contains(&job.name)
    }

    /// Returns an engine for a job with such a call.
    fn engine(self) -> overshot::Result<Engine> {
        if self == Mode::Hang { impatient_engine() } else { engine() }
    }
}

/// Runs a job. The outer error is a defect: a panic, wrong rows, or an error of several lines.
pub fn run(engine: &Engine, job: Run) -> Result<Result<(), Error>, String> {
    match catch_unwind(AssertUnwindSafe(|| job(engine))) {
        Ok(Ok(true)) => Ok(Ok(())),
        Ok(Ok(false)) => Err("has wrong rows".into()),
        Ok(Err(error)) if error.to_string().contains(" panicked: ") => Err(format!("panics: {error}")),
        Ok(Err(error)) if error.to_string().contains('\n') => Err(format!("has an error of several lines: {error}")),
        Ok(Err(error)) => Ok(Err(error)),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or(panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Err(format!("panics: {}", text.unwrap_or_default()))
        }
    }
}

/// Checks that a job left nothing behind.
pub fn check_released(engine: &Engine) -> Result<(), String> {
    check_accounts(engine)?;
    engine.trim();
    if bytes() == [0; 2] { Ok(()) } else { Err(format!("leaves bytes [device, pinned]: {:?}", bytes())) }
}

fn check_accounts(engine: &Engine) -> Result<(), String> {
    let in_use: u64 = engine.memory().iter().map(|memory| memory.device.in_use + memory.pinned.in_use).sum();
    if in_use == 0 { Ok(()) } else { Err(format!("leaves {in_use} bytes in use")) }
}

/// A call of a job that fails.
struct Case<'a> {
    job: &'a FaultyJob,
    call: &'static str,
    /// Counted from 1.
    nth: u64,
    mode: Mode,
    /// Whether the devices are open before, and the CPU and another GPU take part.
    is_open: bool,
}

/// What became of the cases.
#[derive(Default)]
struct Ends {
    /// Calls that failed or took long.
    fired: u64,
    /// Jobs that ended with an error.
    errors: u64,
    /// Next jobs that told of the lost device.
    told: u64,
}

impl Case<'_> {
    fn run(&self, ends: &mut Ends) -> Result<(), String> {
        let opened = self.is_open.then(|| self.mode.engine().unwrap());
        if let Some(engine) = &opened {
            run(engine, self.job.run)?.map_err(|error| format!("fails before: {error}"))?;
        }
        arm(self.call, self.nth, self.mode);
        match opened.map_or_else(|| self.mode.engine(), Ok) {
            Ok(engine) => self.run_on(engine, ends)?,
            Err(error) => self.check_error(&error, ends)?,
        }
        ends.fired += u64::from(failed() > 0);
        disarm();
        heal();
        if bytes() != [0; 2] && self.mode != Mode::Hang {
            return Err(format!("leaves bytes without an engine: {:?}", bytes()));
        }
        let fresh = engine().map_err(|error| format!("a new engine fails: {error}"))?;
        run(&fresh, self.job.run)?.map_err(|error| format!("fails on a new engine: {error}"))
    }

    /// Runs the job, and another one if the call failed in it. Otherwise it fails when the engine ends.
    fn run_on(&self, engine: Engine, ends: &mut Ends) -> Result<(), String> {
        let first = run(&engine, self.job.run)?;
        if let Err(error) = &first {
            self.check_error(error, ends)?;
        }
        if failed() == 0 {
            return Ok(());
        }
        ends.fired += 1;
        disarm();
        self.check_released(&engine)?;
        if let Err(error) = run(&engine, self.job.run).map_err(|problem| format!("the next job {problem}"))? {
            // If it was lost without an error, while memory was released, the next call of the driver tells it.
            let text = error.to_string();
            let is_told = text.contains("was lost before") || (first.is_ok() && text.contains("CUDA_ERROR_"));
            // There is no GPU for an array if all are lost.
            let survives = self.job.survives == Survives::Always || (first.is_err() && self.mode != Mode::Process);
            let goes_on = !self.mode.loses_a_device() || (self.is_open && survives);
            if goes_on || !is_told || !text.contains("cuda") {
                return Err(format!("the next job fails: {error}"));
            }
            ends.told += 1;
        }
        self.check_released(&engine)
    }

    /// Checks that nothing is left; the memory of a device that hangs stays.
    fn check_released(&self, engine: &Engine) -> Result<(), String> {
        if self.mode == Mode::Hang { check_accounts(engine) } else { check_released(engine) }
    }

    fn check_error(&self, error: &Error, ends: &mut Ends) -> Result<(), String> {
        ends.errors += 1;
        let text = error.to_string();
        let survives = match self.job.survives {
            Survives::Always => true,
            Survives::InPipeline => WORK.contains(&self.call),
            Survives::Never => false,
        };
        if self.mode == Mode::Slow || (self.is_open && survives) {
            return Err(format!("fails: {text}"));
        }
        if !text.contains("cuda") {
            return Err(format!("names no device: {text}"));
        }
        // Work that fails later is found by another call.
        let stage = self.call.split("_v2").next().and_then(|call| call.split("_64").next()).unwrap_or_default();
        if WORK.contains(&self.call) && matches!(self.mode, Mode::Once | Mode::Always) && !text.contains(stage) {
            return Err(format!("names another stage: {text}"));
        }
        // Arrays that stay on devices, tables of kernels and matrices are copied without chunks. The other GPU of a
        // lost process fails in any call, such as one before its first chunk.
        let is_of_other = self.mode == Mode::Process && !text.contains(self.call.trim_end_matches("_v2"));
        let is_without = ["kernels", "sharded", "multiplied"].contains(&self.job.name);
        // A device that was just opened multiplies before the first chunk: a product, and a split one, whose factors
        // two kernels split.
        let is_before_chunks = self.job.name == "products" && !self.is_open && self.nth <= 2;
        let has_chunks = WORK.contains(&self.call) && !is_without && !is_before_chunks && !is_of_other;
        if has_chunks && !(text.contains(", chunk ") && text.contains("(rows ")) {
            return Err(format!("names no chunk: {text}"));
        }
        Ok(())
    }
}

impl std::fmt::Display for Case<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, call {} of {}, {:?}", self.job.name, self.nth, self.call, self.mode)
    }
}

/// Returns which of so many calls fail: all, or the first ones and then some of the others.
fn chosen(count: u64) -> Vec<u64> {
    const FIRST: u64 = 3;
    if count <= 2 * FIRST || env::var("OVERSHOT_FAULTS").is_ok_and(|which| which == "all") {
        return (1..=count).collect();
    }
    (1..=FIRST).chain((FIRST + 1..=count).step_by((count - FIRST).div_ceil(FIRST) as usize)).collect()
}

#[test]
#[ignore = "needs the stand-in driver"]
fn each_call_on_the_standin() {
    let name = env::var("FAULTS_MODE").unwrap();
    let modes =
        [Mode::Once, Mode::Always, Mode::Memory, Mode::Device, Mode::Process, Mode::Late, Mode::Slow, Mode::Hang];
    let mode = modes.into_iter().find(|mode| format!("{mode:?}").eq_ignore_ascii_case(&name)).unwrap();
    let device = env::var("FAULTS_DEVICE").unwrap();
    let is_open = device != "cuda";
    let watchdog = Watchdog::start();
    watchdog.next("counting calls");
    right_sum();
    // Loads the driver, which must be loaded before any call is armed, and makes the calls that happen only once.
    drop(engine().unwrap());

    let (mut all, mut cases) = (0, Vec::new());
    for job in JOBS.iter().filter(|job| mode.applies_to(job)) {
        disarm();
        let counted = engine().unwrap();
        run(&counted, job.run).unwrap().unwrap();
        if is_open {
            disarm();
            run(&counted, job.run).unwrap().unwrap();
        }
        drop(counted);
        let counts: Vec<u64> = CALLS.iter().map(|call| calls(call)).collect();
        assert_eq!(counts.iter().sum::<u64>(), calls(""), "{}: a function is missing in the list", job.name);
        for (call, count) in CALLS.iter().zip(counts).filter(|(call, _)| mode.fails(call)) {
            all += count;
            cases.extend(chosen(count).into_iter().map(|nth| Case { job, call, nth, mode, is_open }));
        }
    }

    let (mut ends, mut problems) = (Ends::default(), Vec::new());
    for case in &cases {
        watchdog.next(&case.to_string());
        if let Err(problem) = case.run(&mut ends) {
            problems.push(format!("{case}: {problem}"));
        }
        disarm();
        heal();
    }
    assert!(problems.is_empty(), "{} of {}:\n{}", problems.len(), cases.len(), problems.join("\n"));
    let Ends { fired, errors, told } = ends;
    println!(
        "\ncases: {mode:?} on {device}: {} of {all} calls; {fired} failed, {errors} jobs were errors, {told} next jobs \
         told of a lost device",
        cases.len()
    );
    // Whether a call is made depends on the schedule, as for those that poll. Beside the CPU, a GPU may have no chunk:
    // then nothing can hang.
    let may_be_idle = mode == Mode::Hang && is_open;
    assert!(may_be_idle || fired > cases.len() as u64 / 2, "only {fired} calls failed");
}
