//! Each call of the compiler fails.

use std::ffi::{CString, c_char};

use cudarc::nvrtc::sys;

use crate::each::{check_released, run};
use crate::jobs::JOBS;
use crate::standin::{Watchdog, engine};

const CALLS: [&str; 10] = [
    "nvrtcVersion",
    "nvrtcGetNumSupportedArchs",
    "nvrtcGetSupportedArchs",
    "nvrtcCreateProgram",
    "nvrtcCompileProgram",
    "nvrtcDestroyProgram",
    "nvrtcGetProgramLogSize",
    "nvrtcGetProgramLog",
    "nvrtcGetCUBINSize",
    "nvrtcGetCUBIN",
];

/// Makes the Nth call of a function from now on fail, or also all later ones; no call if the name is empty.
fn arm(call: &str, nth: u64, always: bool) {
    let name = CString::new(call).unwrap();
    // SAFETY: it is declared so in `tests/standin/nvrtc.rs`, and the name outlives the call.
    unsafe {
        let arm = sys::culib().get::<unsafe extern "C" fn(*const c_char, u64, bool)>(b"standinArmCompiler").unwrap();
        arm(name.as_ptr(), nth, always);
    }
}

fn calls(call: &str) -> u64 {
    let name = CString::new(call).unwrap();
    // SAFETY: as above.
    unsafe {
        let calls = sys::culib().get::<unsafe extern "C" fn(*const c_char) -> u64>(b"standinCompilerCalls").unwrap();
        calls(name.as_ptr())
    }
}

/// The compiler is looked for once per process: that fails first.
#[test]
#[ignore = "needs the stand-in driver"]
fn each_call_of_the_compiler_on_the_standin() {
    let watchdog = Watchdog::start();
    let (mut count, mut errors) = (0, 0);
    for job in &JOBS {
        arm("", 0, false);
        run(&engine().unwrap(), job.run).unwrap().unwrap();
        let counts = CALLS.map(|call| (call, calls(call)));
        for (call, nth) in counts.into_iter().flat_map(|(call, count)| (1..=count).map(move |nth| (call, nth))) {
            for always in [false, true] {
                let case = format!("{}, call {nth} of {call}, always: {always}", job.name);
                watchdog.next(&case);
                arm(call, nth, always);
                let engine = engine().unwrap();
                let end = run(&engine, job.run).unwrap_or_else(|problem| panic!("{case}: {problem}"));
                arm("", 0, false);
                if let Err(error) = end {
                    assert!(error.to_string().contains("NVRTC"), "{case}: {error}");
                    errors += 1;
                }
                let next = run(&engine, job.run).unwrap_or_else(|problem| panic!("{case}: the next job {problem}"));
                next.unwrap_or_else(|error| panic!("{case}: the next job fails: {error}"));
                check_released(&engine).unwrap_or_else(|problem| panic!("{case}: {problem}"));
                count += 1;
            }
        }
    }
    println!("\ncases: {count} calls of the compiler; {errors} jobs were errors");
    assert!(errors > 0);
}
