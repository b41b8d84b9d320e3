//! The heap of the process.

use std::hint::black_box;
use std::sync::Once;

/// Little less than the largest block to which glibc adapts itself.
const LARGEST: usize = (32 << 20) - (64 << 10);

/// Makes glibc keep the blocks that a decoder frees for the next ones. Otherwise it returns them to the system as soon
/// as a few MiB are free, and each chunk of a file is decoded into memory that the system has just zeroed.
///
/// glibc raises its limits when a block is freed that it had mapped: larger blocks than this one are mapped from then
/// on, and twice as many bytes are kept (`M_MMAP_THRESHOLD` in mallopt(3)). The pages of this block are never touched.
/// Other allocators have no such rule, so that nothing happens.
pub(crate) fn keep_freed_blocks() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| drop(black_box(Vec::<u8>::with_capacity(LARGEST))));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how many pages the system has given to this thread.
    fn page_faults() -> u64 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        // The name of the program, which may have spaces, ends with the last parenthesis.
        let behind = stat.rsplit(')').next().unwrap();
        behind.split_whitespace().nth(7).unwrap().parse().unwrap()
    }

    #[test]
    fn freed_blocks_are_used_again() {
        // The allocator of AddressSanitizer keeps freed blocks for a while, to find who uses them.
        if cfg!(not(target_env = "gnu")) || std::env::var_os("LSAN_OPTIONS").is_some() {
            return;
        }
        keep_freed_blocks();
        let blocks = || black_box([(); 3].map(|()| vec![1u8; 2 << 20]));
        drop(blocks());
        let before = page_faults();
        (0..10).for_each(|_| drop(blocks()));
        let faults = page_faults() - before;
        assert!(faults < 100, "{faults} of 15360 pages were new");
    }
}
