//! Fails each call of the driver, of its management library and of the compiler: the job must return an error that
//! names the device, or the right rows. It must not panic or hang, and must release everything.
//!
//! The stand-ins fail the calls that they are told to (`tests/standin/inject.rs`). `each.rs` counts the calls of a job,
//! and lets each of them fail in each way. `OVERSHOT_FAULTS=all` runs all cases, also where calls are so many that
//! otherwise only some of them fail. Each test runs in a separate process that loads the stand-ins: this program,
//! started again. A watchdog ends it if a case hangs.
#![allow(clippy::unwrap_used, reason = "in tests")]

mod compiler;
mod context;
mod each;
mod first;
mod flips;
mod jobs;
mod standin;

use std::env;
use std::io::Write;
use std::path::Path;
use std::process::Command;

/// Runs an ignored test here on the stand-ins, with these settings. Prints the lines that begin with `cases:`.
fn run_on_standin(test: &str, settings: &[(&str, &str)]) {
    let program = env::current_exe().unwrap();
    let examples = program.parent().and_then(Path::parent).unwrap().join("examples");
    let folder = tempfile::tempdir().unwrap();
    let own = ["libcuda.so", "libnvrtc.so", "libcublas.so"].map(|library| (library, library));
    for (library, name) in own.into_iter().chain([("libcuda.so", "libnvidia-ml.so.1")]) {
        assert!(examples.join(library).exists(), "no stand-in: run `cargo build --examples`");
        std::os::unix::fs::symlink(examples.join(library), folder.path().join(name)).unwrap();
    }
    let output = Command::new(program)
        .args([test, "--exact", "--ignored", "--nocapture"])
        .env("LD_LIBRARY_PATH", folder.path())
        .env("OVERSHOT_CACHE", "")
        .env_remove("CUDA_VISIBLE_DEVICES")
        .envs(settings.iter().copied())
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(output.status.success() && text.contains("1 passed"), "{settings:?}: {text}");
    for line in text.lines().filter(|line| line.starts_with("cases:")) {
        // Not with `eprintln`, whose text is shown only if the test fails.
        std::io::stderr().write_all(format!("{line}\n").as_bytes()).unwrap();
    }
}

/// Each call fails in this way: on one GPU, from the first call of the engine on; then beside the CPU and another GPU
/// that were opened before.
fn each(mode: &str) {
    for (device, devices) in [("cuda", "1"), ("cpu+cuda", "2")] {
        run_on_standin(
            "each::each_call_on_the_standin",
            &[
                ("FAULTS_DEVICE", device),
                ("FAULTS_MODE", mode),
                ("OVERSHOT_STANDIN_DEVICES", devices),
                // What is in use on a device that hangs stays there, and all cases have one process.
                ("OVERSHOT_STANDIN_MEMORY", "17179869184"),
            ],
        );
    }
}

#[test]
fn a_call_fails() {
    each("once");
}

#[test]
fn a_call_fails_for_good() {
    each("always");
}

#[test]
fn a_call_finds_no_memory() {
    each("memory");
}

#[test]
fn a_gpu_is_lost_at_a_call() {
    each("device");
}

#[test]
fn all_gpus_are_lost_at_a_call() {
    each("process");
}

#[test]
fn the_work_of_a_call_fails_later() {
    each("late");
}

#[test]
fn a_call_takes_long() {
    each("slow");
}

#[test]
fn a_gpu_hangs() {
    each("hang");
}

/// A bit that is wrong in what a copy or a kernel writes gives wrong rows, unless the run is verified.
#[test]
fn a_bit_is_wrong() {
    for verify in ["0", "1"] {
        run_on_standin("flips::wrong_bits_on_the_standin", &[("FAULTS_VERIFY", verify)]);
    }
}

#[test]
fn a_device_multiplies_before_the_first_chunk() {
    run_on_standin("first::the_first_products_on_the_standin", &[("FAULTS_DEVICE", "cuda:0")]);
}

#[test]
fn the_compiler_fails() {
    run_on_standin("compiler::each_call_of_the_compiler_on_the_standin", &[]);
}

#[test]
fn the_context_of_the_caller_stays() {
    run_on_standin(
        "context::the_context_of_the_caller_stays_on_the_standin",
        &[("FAULTS_DEVICE", "cuda:0"), ("OVERSHOT_STANDIN_DEVICES", "2")],
    );
}

/// Functions that are called once per process.
#[test]
fn the_driver_fails_from_the_start() {
    for call in ["cuInit", "cuDriverGetVersion", "cuGetErrorString", "cuDeviceGetCount", "cuDevicePrimaryCtxRetain"] {
        run_on_standin("a_job_fails_on_the_standin", &[("OVERSHOT_STANDIN_FAIL", &format!("{call}:1:always"))]);
    }
}

#[test]
#[ignore = "needs the stand-in driver"]
fn a_job_fails_on_the_standin() {
    let watchdog = standin::Watchdog::start();
    watchdog.next("a job");
    match standin::engine().and_then(|engine| jobs::staged(&engine)) {
        Ok(is_right) => assert!(is_right, "wrong rows"),
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
    }
}
