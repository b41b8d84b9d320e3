//! Fails calls of the driver, whichever they are: the job must return an error or the right rows, must not panic or
//! hang, and must release everything.
//!
//! The stand-in driver fails the calls that it is told to (`tests/standin/inject.rs`). A seed chooses them from
//! all calls of a job: `OVERSHOT_FAULTS_SEED` sets the seed, `OVERSHOT_FAULTS_TRIALS` the number of trials for
//! each case. Each case runs in a separate process that loads the stand-in: this program, started again. A
//! watchdog ends it if a trial hangs.
#![allow(clippy::unwrap_used, reason = "in tests")]

use std::env;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use cudarc::driver::sys;
use overshot::testing::custom::{FACTOR, TABLE, everything, keep};
use overshot::{DeviceChoice, Dtype, Engine, Error, Job, Raw, Report, Result};

/// The functions that may fail, in addition to those that are called once per process.
const CALLS: [&str; 30] = [
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
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventElapsedTime_v2",
    "cuEventQuery",
    "cuEventRecord",
    "cuFuncGetParamInfo",
    "cuLaunchKernel",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemGetInfo_v2",
    "cuMemHostGetFlags",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamWaitEvent",
];

/// The time after which a trial counts as hanging: far more than any trial takes.
const TRIAL_LIMIT: Duration = Duration::from_secs(40);

// ---- Cases, each in a separate process.

/// Runs an ignored test here on the stand-in, with these settings.
fn run_on_standin(test: &str, settings: &[(&str, &str)]) {
    let program = env::current_exe().unwrap();
    let examples = program.parent().and_then(Path::parent).unwrap().join("examples");
    assert!(examples.join("libcuda.so").exists(), "no stand-in: run `cargo build --examples`");
    let output = Command::new(program)
        .args([test, "--exact", "--ignored", "--nocapture"])
        .env("LD_LIBRARY_PATH", examples)
        .env("OVERSHOT_CACHE", "")
        .env_remove("CUDA_VISIBLE_DEVICES")
        .envs(settings.iter().copied())
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(output.status.success() && text.contains("1 passed"), "{settings:?}: {text}");
}

fn trials(device: &str, devices: &str, mode: &str) {
    run_on_standin(
        "trials_on_the_standin",
        &[("FAULTS_DEVICE", device), ("OVERSHOT_STANDIN_DEVICES", devices), ("FAULTS_MODE", mode)],
    );
}

#[test]
fn one_call_fails_on_one_gpu() {
    trials("cuda", "1", "once");
}

#[test]
fn one_call_fails_beside_the_cpu_and_another_gpu() {
    trials("cpu+cuda", "2", "once");
}

#[test]
fn a_gpu_is_lost_beside_another() {
    trials("cuda", "2", "device");
}

#[test]
fn a_call_finds_no_memory() {
    trials("cuda", "2", "memory");
}

#[test]
fn a_call_fails_for_good() {
    trials("cuda", "1", "always");
}

#[test]
fn the_cpu_goes_on_without_the_gpus() {
    run_on_standin("jobs_survive_on_the_standin", &[("FAULTS_DEVICE", "cpu+cuda"), ("OVERSHOT_STANDIN_DEVICES", "2")]);
}

#[test]
fn the_context_of_the_caller_stays() {
    run_on_standin(
        "the_context_of_the_caller_stays_on_the_standin",
        &[("FAULTS_DEVICE", "cuda:0"), ("OVERSHOT_STANDIN_DEVICES", "2")],
    );
}

/// A bit that is wrong in what a copy or a kernel writes gives wrong rows, unless the run is verified.
#[test]
fn a_bit_is_wrong() {
    for verify in ["0", "1"] {
        run_on_standin("wrong_bits_on_the_standin", &[("FAULTS_VERIFY", verify)]);
    }
}

/// Functions that are called once per process, and the compiler.
#[test]
fn the_driver_and_the_compiler_fail_from_the_start() {
    for call in ["cuInit", "cuDriverGetVersion", "cuGetErrorString", "cuDeviceGetCount", "cuDevicePrimaryCtxRetain"] {
        run_on_standin("a_job_fails_on_the_standin", &[("OVERSHOT_STANDIN_FAIL", &format!("{call}:1:always"))]);
    }
    let functions = [
        "nvrtcVersion",
        "nvrtcGetNumSupportedArchs",
        "nvrtcGetSupportedArchs",
        "nvrtcCreateProgram",
        "nvrtcDestroyProgram",
        "nvrtcCompileProgram",
        "nvrtcGetProgramLogSize",
        "nvrtcGetProgramLog",
        "nvrtcGetCUBINSize",
        "nvrtcGetCUBIN",
    ];
    for function in functions {
        run_on_standin("a_job_fails_on_the_standin", &[("OVERSHOT_STANDIN_FAIL_NVRTC", function)]);
    }
}

// ---- Jobs. Each says whether its rows are right.

const ROWS: usize = 60_000;

/// The fraction of the chunks that the jobs verify: all of them if the case asks for it.
fn fraction() -> f64 {
    setting("FAULTS_VERIFY", 0) as f64
}

fn numbers() -> &'static [f64] {
    static NUMBERS: OnceLock<Vec<f64>> = OnceLock::new();
    let number = |i: u64| ((i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f64 / (1 << 24) as f64 * 200.0 - 100.0;
    NUMBERS.get_or_init(|| (0..ROWS as u64).map(number).collect())
}

/// The bits of the sum that a report has.
fn sum_of(report: &Report) -> u64 {
    report.value("sum(x)").unwrap().unwrap().as_f64().to_bits()
}

fn right_sum() -> u64 {
    static SUM: OnceLock<u64> = OnceLock::new();
    *SUM.get_or_init(|| {
        let engine = Engine::builder().device(DeviceChoice::Cpu).build().unwrap();
        sum_of(&engine.run(Job::eval("sum(x)").unwrap().input("x", numbers())).unwrap())
    })
}

fn are_doubled(rows: &[f64]) -> bool {
    rows.len() == ROWS && numbers().iter().zip(rows).all(|(x, y)| x * 2.0 + 1.0 == *y)
}

const DOUBLED: &str = "y = x * 2.0 + 1.0; sum(x)";

fn staged(engine: &Engine) -> Result<bool> {
    let mut y = vec![0.0; ROWS];
    let report = engine.run(Job::eval(DOUBLED)?.verify(fraction()).input("x", numbers()).output("y", &mut y))?;
    Ok(are_doubled(&y) && sum_of(&report) == right_sum())
}

fn files(engine: &Engine) -> Result<bool> {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("x.raw"), folder.path().join("y.raw"));
    std::fs::write(&from, bytemuck::cast_slice::<f64, u8>(numbers())).unwrap();
    let job =
        Job::eval(DOUBLED)?.verify(fraction()).input("x", Raw::open(&from, Dtype::F64)?).output("y", Raw::create(&to));
    if let Err(error) = engine.run(job) {
        let left = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 1, "only the input may be left after '{error}'");
        return Err(error);
    }
    let bytes = std::fs::read(&to).unwrap();
    let rows: Vec<f64> = bytes.as_chunks::<8>().0.iter().map(|bytes| f64::from_ne_bytes(*bytes)).collect();
    Ok(are_doubled(&rows))
}

fn pinned(engine: &Engine) -> Result<bool> {
    let (mut x, mut y) = (engine.pinned::<f64>(ROWS)?, engine.pinned::<f64>(ROWS)?);
    x.copy_from_slice(numbers());
    let report = engine.run(Job::eval(DOUBLED)?.verify(fraction()).input("x", &x).output("y", &mut y))?;
    Ok(are_doubled(&y) && sum_of(&report) == right_sum())
}

/// The first run fills the array. Whether it succeeds or fails, later runs give the right rows or fail.
fn resident(engine: &Engine) -> Result<bool> {
    let data = engine.resident(numbers())?;
    let run = || Ok(sum_of(&engine.run(Job::eval("sum(x)")?.verify(fraction()).input("x", &data))?) == right_sum());
    let runs: [Result<bool>; 3] = [run(), run(), run()];
    runs.into_iter().try_fold(true, |all, is_right| Ok(all && is_right?))
}

fn sharded(engine: &Engine) -> Result<bool> {
    let (x, mut y) = (engine.shard(numbers())?, engine.sharded::<f64>(ROWS)?);
    let report = engine.run(Job::eval(DOUBLED)?.verify(fraction()).input("x", &x).output("y", &mut y))?;
    let mut rows = vec![0.0; ROWS];
    y.read(0, &mut rows)?;
    Ok(are_doubled(&rows) && sum_of(&report) == right_sum())
}

fn passes(engine: &Engine) -> Result<bool> {
    let data = engine.resident(numbers())?;
    let job = Job::eval("sum(x), sum(x * c)")?.verify(fraction()).input("x", &data).scalar("c", 1.0);
    engine.passes(job, |passes| {
        for done in 1..=3 {
            if sum_of(&passes.run()?) != right_sum() {
                return Ok(false);
            }
            passes.set("c", f64::from(done))?;
        }
        Ok(true)
    })
}

fn kernels(engine: &Engine) -> Result<bool> {
    let x: Vec<f32> = (0..3 * 6000u16).map(f32::from).collect();
    let (mut y, mut z) = (vec![0.0; 6000], vec![0.0f32; 12_000]);
    engine.run(Job::kernel(everything()).verify(fraction()).input("x", &x).output("y", &mut y).output("z", &mut z))?;
    let is_right = |(i, x): (usize, &[f32; 3])| {
        y[i] == TABLE[i % 7] + f64::from(x[0] + x[1]) * f64::from(FACTOR) && z[2 * i..][..2] == [x[2], x[0]]
    };
    let everything = x.as_chunks::<3>().0.iter().enumerate().all(is_right);
    let (mut big, mut at) = (vec![0.0; ROWS], vec![0i64; ROWS]);
    let report = engine.run(
        Job::kernel(&keep()).verify(fraction()).input("x", numbers()).output("big", &mut big).output("where", &mut at),
    )?;
    let kept: Vec<f64> = numbers().iter().copied().filter(|x| *x > 50.0).collect();
    Ok(everything && report.outputs[0].rows == kept.len() as u64 && big[..kept.len()] == kept[..])
}

type Run = fn(&Engine) -> Result<bool>;
const JOBS: [(&str, Run); 7] = [
    ("staged", staged),
    ("files", files),
    ("pinned", pinned),
    ("resident", resident),
    ("sharded", sharded),
    ("passes", passes),
    ("kernels", kernels),
];

// ---- The code that runs on the stand-in.

/// Returns a function that only the stand-in has.
///
/// # Safety
/// The function has this type.
unsafe fn standin<F: Copy>(name: &str) -> F {
    // SAFETY: the caller guarantees the type.
    unsafe { *sys::culib().get::<F>(name.as_bytes()).expect("the stand-in driver is loaded") }
}

/// Makes the Nth call fail; no call if the name is empty.
fn arm(call: &str, nth: u64, mode: usize) {
    let name = CString::new(call).unwrap();
    // SAFETY: it is declared so in `tests/standin/inject.rs`, and the name outlives the call.
    unsafe { standin::<unsafe extern "C" fn(*const c_char, u64, usize)>("standinArm")(name.as_ptr(), nth, mode) }
}

fn calls(call: &str) -> u64 {
    let name = CString::new(call).unwrap();
    // SAFETY: as above.
    unsafe { standin::<unsafe extern "C" fn(*const c_char) -> u64>("standinCalls")(name.as_ptr()) }
}

fn bytes(of: &str) -> u64 {
    // SAFETY: both functions of this kind are declared so in `tests/standin/host.rs`.
    unsafe { standin::<extern "C" fn() -> u64>(of)() }
}

fn engine() -> Result<Engine> {
    let device: DeviceChoice = env::var("FAULTS_DEVICE").unwrap_or("cuda".into()).parse()?;
    Engine::builder().device(device).chunk(100_000).workers(2).build()
}

fn setting(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Ends the process if no next trial is announced for too long.
struct Watchdog(Sender<String>);

impl Watchdog {
    fn start() -> Self {
        let (news, heard) = channel::<String>();
        std::thread::spawn(move || {
            let mut trial = String::new();
            loop {
                match heard.recv_timeout(TRIAL_LIMIT) {
                    Ok(next) => trial = next,
                    Err(RecvTimeoutError::Disconnected) => return,
                    Err(RecvTimeoutError::Timeout) => {
                        eprintln!("{trial} hangs");
                        std::process::abort();
                    }
                }
            }
        });
        Watchdog(news)
    }

    fn next(&self, trial: &str) {
        self.0.send(trial.to_owned()).unwrap();
    }
}

/// Runs a job on a new engine and checks that nothing remains allocated. Returns the result of the job, or the failure.
fn run(job: Run) -> std::result::Result<Result<()>, String> {
    let built = match engine() {
        Ok(engine) => engine,
        Err(error) => return Ok(Err(error)),
    };
    let outcome = catch_unwind(AssertUnwindSafe(|| job(&built))).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        format!("panics: {}", text.or(panic.downcast_ref::<&str>().map(|text| text.to_string())).unwrap_or_default())
    })?;
    arm("", 0, 0);
    let in_use: u64 = built.memory().iter().map(|memory| memory.device.in_use + memory.pinned.in_use).sum();
    built.trim();
    let left = [in_use, bytes("standinDeviceBytes"), bytes("standinPinnedBytes")];
    match outcome {
        _ if left != [0; 3] => Err(format!("leaves bytes (in use, device, pinned): {left:?}")),
        Ok(false) => Err("has wrong rows".into()),
        Ok(true) => Ok(Ok(())),
        Err(error) if error.to_string().contains('\n') => Err(format!("has an error of several lines: {error}")),
        Err(error) => Ok(Err(error)),
    }
}

#[test]
#[ignore = "needs the stand-in driver"]
fn trials_on_the_standin() {
    let mode = match &*env::var("FAULTS_MODE").unwrap() {
        "once" => 0,
        "device" => 1,
        "memory" => 2,
        "always" => 3,
        other => panic!("there is no mode {other}"),
    };
    let watchdog = Watchdog::start();
    watchdog.next("counting calls");
    right_sum();
    // Loads the driver, which must be loaded before any call is armed, and makes the calls that happen only once.
    drop(engine().unwrap());
    let mut candidates = Vec::new();
    for (name, job) in JOBS {
        arm("", 0, 0);
        engine().and_then(|engine| job(&engine)).unwrap();
        let made = CALLS.iter().map(|call| (*call, calls(call))).filter(|(_, count)| *count > 0);
        candidates.extend(made.map(|(call, count)| (name, job, call, count)));
    }
    let reached = CALLS.iter().filter(|call| candidates.iter().any(|of| of.2 == **call)).count();
    assert_eq!(reached, CALLS.len(), "all functions are called by some job");

    let mut state = setting("OVERSHOT_FAULTS_SEED", 1);
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut problems = Vec::new();
    let mut failed = 0;
    for number in 0..setting("OVERSHOT_FAULTS_TRIALS", 300) {
        // Each function, in every job that calls it.
        let call = CALLS[number as usize % CALLS.len()];
        // Without a context, memory can never be released.
        if mode == 3 && call.starts_with("cuCtx") {
            continue;
        }
        let of_call: Vec<_> = candidates.iter().filter(|of| of.2 == call).collect();
        let &&(name, job, _, count_of_calls) = &of_call[random(of_call.len() as u64) as usize];
        let nth = 1 + random(count_of_calls);
        let trial = format!("{name}, call {nth} of {call}");
        watchdog.next(&trial);
        arm(call, nth, mode);
        let outcome = run(job);
        failed += u64::from(matches!(outcome, Ok(Err(_))));
        arm("", 0, 0);
        let problem = match outcome {
            Err(problem) => Some(problem),
            // After a single failure, another engine works.
            Ok(_) => match run(job) {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(format!("fails for good: {error}")),
                Err(problem) => Some(format!("{problem}, later")),
            },
        };
        problems.extend(problem.map(|problem| format!("{trial}: {problem}")));
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(failed > 0, "no trial failed, so nothing was tried");
}

/// The numbers of the modes of `tests/standin/inject.rs`.
const ONCE: usize = 0;
const DEVICE: usize = 1;
const TWICE: usize = 4;
const PROCESS: usize = 5;

/// Whatever the GPUs do during a run, the job is done, and so are later jobs of the same engine.
#[test]
#[ignore = "needs the stand-in driver"]
fn jobs_survive_on_the_standin() {
    let watchdog = Watchdog::start();
    watchdog.next("counting calls");
    right_sum();
    let jobs: [(&str, Run); 4] = [("staged", staged), ("files", files), ("pinned", pinned), ("kernels", kernels)];
    let (mut trials, mut fired, mut lost) = (0, 0, 0);
    for (name, job) in jobs {
        for call in ["cuLaunchKernel", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuStreamWaitEvent"] {
            for (mode, nth) in [ONCE, DEVICE, PROCESS].into_iter().flat_map(|mode| [1, 2, 4, 7].map(|nth| (mode, nth)))
            {
                let trial = format!("{name}, call {nth} of {call}, mode {mode}");
                watchdog.next(&trial);
                let engine = engine().unwrap();
                // The GPUs are open when the call fails.
                assert!(job(&engine).unwrap(), "{trial}, before");
                arm(call, nth, mode);
                assert!(job(&engine).unwrap_or_else(|error| panic!("{trial}: {error}")), "{trial}: wrong rows");
                // SAFETY: it is declared so in `tests/standin/inject.rs`.
                let failed = unsafe { standin::<extern "C" fn() -> u64>("standinFailed") };
                let failed = failed();
                arm("", 0, ONCE);
                let report = engine.run(Job::eval("sum(x)").unwrap().input("x", numbers())).unwrap();
                assert_eq!(sum_of(&report), right_sum(), "{trial}, after");
                let is_lost = report.notes.iter().any(|note| note.contains("was lost in an earlier run"));
                assert!(!is_lost || mode != ONCE, "{trial}: a device that answers was given up");
                (trials, fired, lost) = (trials + 1, fired + u64::from(failed > 0), lost + u64::from(is_lost));
                drop(engine);
                // The process of a driver whose context is lost would end here; the stand-in forgets it.
                // SAFETY: as above.
                let heal = unsafe { standin::<extern "C" fn()>("standinHeal") };
                heal();
            }
        }
    }
    eprintln!("{trials} trials, {fired} failures, {lost} with a device that was given up");
    assert!(fired > trials / 3 && lost > 0);
}

const FLIP: usize = 6;

/// A bit is wrong in each copy and each kernel of each job, one at a time. What the caller itself copies to and from
/// sharded arrays is not part of a run.
#[test]
#[ignore = "needs the stand-in driver"]
fn wrong_bits_on_the_standin() {
    let watchdog = Watchdog::start();
    watchdog.next("counting calls");
    right_sum();
    drop(engine().unwrap());
    let (mut wrong, mut found, mut noticed, mut planted) = (0, 0, 0, 0);
    for (name, job) in JOBS.into_iter().filter(|(name, _)| *name != "sharded") {
        arm("", 0, ONCE);
        engine().and_then(|engine| job(&engine)).unwrap();
        let counts = ["cuMemcpyHtoDAsync_v2", "cuLaunchKernel", "cuMemcpyDtoHAsync_v2"].map(|call| (call, calls(call)));
        for (call, nth) in counts.into_iter().flat_map(|(call, count)| (1..=count).map(move |nth| (call, nth))) {
            let trial = format!("{name}, call {nth} of {call}");
            watchdog.next(&trial);
            arm(call, nth, FLIP);
            let outcome = engine().and_then(|engine| job(&engine));
            planted += bytes("standinFailed");
            arm("", 0, ONCE);
            match outcome {
                Ok(true) => {}
                Ok(false) if fraction() > 0.0 => panic!("{trial}: wrong rows although all chunks are verified"),
                Ok(false) => wrong += 1,
                Err(Error::Chunk { cause, .. }) if matches!(*cause, Error::Verification(_)) => found += 1,
                // A number of selected rows that is too large is noticed anyway.
                Err(error) if error.to_string().contains("selected rows in a tile") => noticed += 1,
                Err(error) => panic!("{trial}: {error}"),
            }
        }
    }
    println!("{planted} wrong bits: {wrong} jobs with wrong rows, {found} found, {noticed} errors anyway");
    let seen = if fraction() > 0.0 { found } else { wrong };
    assert!(planted > 100 && seen > planted / 2, "of {planted} wrong bits, {seen} were noticed");
}

/// The caller works in the context of another GPU than the engine. If one call fails, that context is current
/// afterwards. If two calls fail, it may be lost, but the caller's next work is never done in the engine's context.
#[test]
#[ignore = "needs the stand-in driver"]
fn the_context_of_the_caller_stays_on_the_standin() {
    let watchdog = Watchdog::start();
    watchdog.next("counting calls");
    drop(engine().unwrap());
    let mut own = std::ptr::null_mut();
    // SAFETY: the driver is loaded and initialised, and `own` outlives the call that writes it.
    let retained = unsafe { sys::cuDevicePrimaryCtxRetain(&mut own, 1) };
    assert_eq!(retained, sys::CUresult::CUDA_SUCCESS);
    let current = || {
        let mut context = std::ptr::null_mut();
        // SAFETY: `context` outlives the call that writes it.
        assert_eq!(unsafe { sys::cuCtxGetCurrent(&mut context) }, sys::CUresult::CUDA_SUCCESS);
        context
    };
    // SAFETY: the context is retained until the process ends.
    let enter = || assert_eq!(unsafe { sys::cuCtxSetCurrent(own) }, sys::CUresult::CUDA_SUCCESS);

    let (mut problems, mut failed, mut lost) = (Vec::new(), 0, 0);
    for (name, job) in JOBS.into_iter().filter(|(name, _)| ["pinned", "sharded", "passes"].contains(name)) {
        enter();
        arm("", 0, ONCE);
        engine().and_then(|engine| job(&engine)).unwrap();
        assert_eq!(current(), own, "{name} without a failure");
        let counts = ["cuCtxSetCurrent", "cuMemAlloc_v2", "cuMemHostRegister_v2"].map(|call| (call, calls(call)));
        for (call, nth) in counts.into_iter().flat_map(|(call, count)| (1..=count.min(60)).map(move |nth| (call, nth)))
        {
            for mode in [ONCE, TWICE] {
                let trial = format!("{name}, call {nth} of {call}, mode {mode}");
                watchdog.next(&trial);
                enter();
                arm(call, nth, mode);
                let outcome = run(job);
                arm("", 0, ONCE);
                failed += u64::from(matches!(outcome, Ok(Err(_))));
                let context = current();
                lost += u64::from(context != own);
                let may_be_lost = mode == TWICE && context.is_null();
                if context != own && !may_be_lost {
                    problems.push(format!("{trial}: another context is current"));
                }
                // A resource whose release fails twice is lost.
                problems.extend(outcome.err().filter(|_| mode == ONCE).map(|problem| format!("{trial}: {problem}")));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(failed > 0 && lost > 0, "{failed} jobs failed and {lost} contexts were lost, so not all was tried");
}

#[test]
#[ignore = "needs the stand-in driver"]
fn a_job_fails_on_the_standin() {
    let watchdog = Watchdog::start();
    watchdog.next("a job");
    let outcome = engine().and_then(|engine| staged(&engine));
    match outcome {
        Ok(is_right) => assert!(is_right, "wrong rows"),
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
    }
}
