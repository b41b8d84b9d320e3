//! The context that is current on the caller's thread, when calls fail.

use cudarc::driver::sys;
use overshot::Error;

use crate::each::{check_released, run};
use crate::jobs::{FaultyJob, JOBS, Run};
use crate::standin::{Mode, Watchdog, arm, calls, disarm, engine};

/// Runs a job on a new engine.
fn run_once(job: Run) -> Result<Result<(), Error>, String> {
    let engine = match engine() {
        Ok(engine) => engine,
        Err(error) => return Ok(Err(error)),
    };
    let end = run(&engine, job)?;
    disarm();
    check_released(&engine).map(|()| end)
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
    for FaultyJob { name, run: job, .. } in &JOBS {
        if !["pinned", "sharded", "passes"].contains(name) {
            continue;
        }
        enter();
        disarm();
        engine().and_then(|engine| job(&engine)).unwrap();
        assert_eq!(current(), own, "{name} without a failure");
        let counts = ["cuCtxSetCurrent", "cuMemAlloc_v2", "cuMemHostRegister_v2"].map(|call| (call, calls(call)));
        for (call, nth) in counts.into_iter().flat_map(|(call, count)| (1..=count.min(60)).map(move |nth| (call, nth)))
        {
            for mode in [Mode::Once, Mode::Twice] {
                let case = format!("{name}, call {nth} of {call}, {mode:?}");
                watchdog.next(&case);
                enter();
                arm(call, nth, mode);
                let outcome = run_once(*job);
                disarm();
                failed += u64::from(matches!(outcome, Ok(Err(_))));
                let context = current();
                lost += u64::from(context != own);
                let may_be_lost = mode == Mode::Twice && context.is_null();
                if context != own && !may_be_lost {
                    problems.push(format!("{case}: another context is current"));
                }
                // A resource whose release fails twice is lost.
                let problem = outcome.err().filter(|_| mode == Mode::Once);
                problems.extend(problem.map(|problem| format!("{case}: {problem}")));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(failed > 0 && lost > 0, "{failed} jobs failed and {lost} contexts were lost, so not all was tried");
}
