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

/// Runs a loop with the best instruction set of the processor, or with the second best within [`at_second_level`].
pub(super) fn run(work: impl Work) {
    level().run(work);
}

/// Returns the level of the loops on this thread.
fn level() -> Level {
    Level::supported().nth(usize::from(IS_SECOND.get())).unwrap_or(Level::Plain)
}

thread_local! {
    static IS_SECOND: Cell<bool> = const { Cell::new(false) };
}

/// Calls `work`, whose loops on this thread use the second best instruction set: AVX2 where there is AVX-512, otherwise
/// the baseline. The baseline is not used if there is AVX2, because functions are many times as slow there.
pub(super) fn at_second_level<R>(work: impl FnOnce() -> R) -> R {
    /// Also after a panic.
    struct Reset(bool);
    impl Drop for Reset {
        fn drop(&mut self) {
            IS_SECOND.set(self.0);
        }
    }
    let _reset = Reset(IS_SECOND.replace(true));
    work()
}

/// Returns whether the processor has several instruction sets that loops are compiled for.
pub(super) fn has_second_level() -> bool {
    Level::supported().nth(1).is_some()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_use_the_second_level_where_they_are_told_to_and_nowhere_else() {
        let name = || format!("{:?}", level());
        let names: Vec<_> = Level::supported().map(|level| format!("{level:?}")).collect();
        let (best, second) = (&names[0], names.get(1).unwrap_or(&names[0]));
        assert_eq!((&name(), names.len() > 1), (best, has_second_level()));
        at_second_level(|| {
            assert_eq!(&name(), second);
            at_second_level(|| assert_eq!(&name(), second));
            assert_eq!(&name(), second, "behind an inner call");
            assert_eq!(std::thread::spawn(name).join().ok().as_ref(), Some(best), "on another thread");
        });
        assert_eq!(&name(), best);
        std::panic::catch_unwind(|| at_second_level(|| panic!("on purpose"))).unwrap_err();
        assert_eq!(&name(), best, "after a panic");
    }
}
