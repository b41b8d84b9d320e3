//! The switch of the mutants. `run.py` puts this file into the mutated copy of the tree, as `src/mutant.rs`.

use std::env;
use std::fs::File;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU8, Ordering};

struct Switch {
    chosen: Option<usize>,
    /// A file with a byte for each mutant: 1 if its place was reached.
    reached: Option<memmap2::MmapRaw>,
}

static SWITCH: LazyLock<Switch> = LazyLock::new(|| Switch {
    chosen: env::var("MUTANT").ok().and_then(|number| number.parse().ok()),
    // A test may start a process of another user or with little memory, which cannot map the file.
    reached: env::var_os("MUTANTS_REACHED").and_then(|path| {
        let file = File::options().read(true).write(true).open(path).ok()?;
        memmap2::MmapRaw::map_raw(&file).ok()
    }),
});

/// Returns whether the mutant with this number is switched on. Safe in a signal handler after the first call.
pub fn on(number: usize) -> bool {
    let switch = &*SWITCH;
    if let Some(reached) = &switch.reached {
        assert!(number < reached.len());
        // SAFETY: inside the map, which lives as long as the process. Other processes only store the same value.
        unsafe { AtomicU8::from_ptr(reached.as_mut_ptr().add(number)) }.store(1, Ordering::Relaxed);
    }
    switch.chosen == Some(number)
}
