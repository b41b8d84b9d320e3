//! Runs loops with the vector instructions of the processor.
//!
//! A loop is compiled several times, for different instruction sets. The operations and the resulting bits are always
//! the same: nothing allows the compiler to reorder or contract operations.

use std::cell::Cell;

/// A loop. `run` and all functions that it calls must be `#[inline(always)]`, because only inlined code is compiled
/// for the instructions of a [`Level`].
pub(super) trait Work {
    fn run(self);
}

/// The instruction set that a loop is compiled for. Values exist only for instruction sets that the processor has.
#[derive(Clone, Copy, Debug)]
pub(super) enum Level {
    /// The baseline of the architecture. On x86-64 it has no fused multiply-add: each one is a slow function call.
    Plain,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Level {
    /// The levels that the processor supports, the best one first.
    pub(super) fn supported() -> impl Iterator<Item = Level> {
        #[cfg(target_arch = "x86_64")]
        let levels = {
            let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            let avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl");
            [(avx2 && avx512).then_some(Level::Avx512), avx2.then_some(Level::Avx2), Some(Level::Plain)]
        };
        #[cfg(not(target_arch = "x86_64"))]
        let levels = [Some(Level::Plain)];
        levels.into_iter().flatten()
    }

    /// Runs a loop compiled for this level.
    pub(super) fn run(self, work: impl Work) {
        match self {
            Level::Plain => work.run(),
            // SAFETY: only `supported` creates this level, after it has detected `avx2` and `fma`, which the function
            // enables.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => unsafe { run_avx2(work) },
            // SAFETY: only `supported` creates this level, after it has detected all five features that the function
            // enables.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { run_avx512(work) },
        }
    }
}

/// Runs a loop with the best instruction set of the processor, or with the baseline within [`at_baseline`].
pub(super) fn run(work: impl Work) {
    let level = if IS_BASELINE.get() { None } else { Level::supported().next() };
    level.unwrap_or(Level::Plain).run(work);
}

thread_local! {
    static IS_BASELINE: Cell<bool> = const { Cell::new(false) };
}

/// Calls `work`, whose loops on this thread use the baseline of the architecture.
pub(super) fn at_baseline<R>(work: impl FnOnce() -> R) -> R {
    /// Also after a panic.
    struct Reset(bool);
    impl Drop for Reset {
        fn drop(&mut self) {
            IS_BASELINE.set(self.0);
        }
    }
    let _reset = Reset(IS_BASELINE.replace(true));
    work()
}

/// Returns whether the processor has a better instruction set than the baseline.
pub(super) fn has_better() -> bool {
    !matches!(Level::supported().next(), None | Some(Level::Plain))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn run_avx2(work: impl Work) {
    work.run();
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,avx512f,avx512dq,avx512vl")]
fn run_avx512(work: impl Work) {
    work.run();
}
