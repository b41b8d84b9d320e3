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

/// How a call fails, in the order of `standinArmCompiler`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Once,
    Always,
    /// It takes long.
    Slow,
    /// The code that it gives is damaged.
    Late,
}

impl Mode {
    /// The compiler has no streams: what it gives is used later, and that is the code of a kernel alone. It runs on the
    /// thread of its caller, and a call of it that never ends cannot be given up.
    fn fails(self, call: &str) -> bool {
        self != Mode::Late || call == "nvrtcGetCUBIN"
    }
}

/// Makes the Nth call of a function from now on fail; no call if the name is empty.
fn arm(call: &str, nth: u64, mode: Mode) {
    let name = CString::new(call).unwrap();
    // SAFETY: it is declared so in `tests/standin/nvrtc.rs`, and the name outlives the call.
    unsafe {
        let arm = sys::culib().get::<unsafe extern "C" fn(*const c_char, u64, usize)>(b"standinArmCompiler").unwrap();
        arm(name.as_ptr(), nth, mode as usize);
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
    let (mut count, mut errors, mut late) = (0, 0, 0);
    for job in &JOBS {
        arm("", 0, Mode::Once);
        run(&engine().unwrap(), job.run).unwrap().unwrap();
        let counts = CALLS.map(|call| (call, calls(call)));
        for (call, nth) in counts.into_iter().flat_map(|(call, count)| (1..=count).map(move |nth| (call, nth))) {
            let modes = [Mode::Once, Mode::Always, Mode::Slow, Mode::Late];
            for mode in modes.into_iter().filter(|mode| mode.fails(call)) {
                let case = format!("{}, call {nth} of {call}, {mode:?}", job.name);
                watchdog.next(&case);
                arm(call, nth, mode);
                let engine = engine().unwrap();
                let end = run(&engine, job.run).unwrap_or_else(|problem| panic!("{case}: {problem}"));
                arm("", 0, Mode::Once);
                if let Err(error) = end {
                    let from = if mode == Mode::Late { "cuModuleLoadData" } else { "NVRTC" };
                    assert!(mode != Mode::Slow && error.to_string().contains(from), "{case}: {error}");
                    errors += 1;
                    late += u64::from(mode == Mode::Late);
                }
                let next = run(&engine, job.run).unwrap_or_else(|problem| panic!("{case}: the next job {problem}"));
                next.unwrap_or_else(|error| panic!("{case}: the next job fails: {error}"));
                check_released(&engine).unwrap_or_else(|problem| panic!("{case}: {problem}"));
                count += 1;
            }
        }
    }
    println!(
        "\ncases: {count} calls of the compiler; {errors} jobs were errors, {late} of them because of damaged code"
    );
    assert!(errors > late && late > 0);
}
