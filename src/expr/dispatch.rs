//! Loops for the vector instructions that the processor has.
//!
//! A loop is compiled several times, for more and more instructions. Its operations are the same each time, and so are its
//! bits: nothing here allows the compiler to reorder or contract them.

/// A loop. `run` must be `#[inline(always)]`, and so must what it calls in turn: only then is it compiled for the
/// instructions of a [`Level`].
pub(super) trait Work {
    fn run(self);
}

/// For which instructions a loop is compiled. One that the processor lacks is never made.
#[derive(Clone, Copy, Debug)]
pub(super) enum Level {
    /// What every processor of the architecture has. On x86-64 each fused operation is a call then, and slow.
    Plain,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Level {
    /// Those that the processor has, the best one first.
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

    /// Runs a loop that was compiled for the level.
    pub(super) fn run(self, work: impl Work) {
        match self {
            Level::Plain => work.run(),
            // SAFETY: `supported`, which alone makes the level, found `avx2` and `fma`, all that the function enables.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => unsafe { run_avx2(work) },
            // SAFETY: `supported`, which alone makes the level, found all five that the function enables.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { run_avx512(work) },
        }
    }
}

/// Runs a loop with the best instructions that there are.
pub(super) fn run(work: impl Work) {
    Level::supported().next().unwrap_or(Level::Plain).run(work);
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
