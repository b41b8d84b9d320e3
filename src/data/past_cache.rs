//! Stores past the cache, for bytes that are not read again soon.
//!
//! An ordinary store reads its cache line before it writes it, and evicts data that is still needed, such as the slots
//! of other workers.

/// Bytes of a cache line.
const LINE: usize = 64;

/// Stores past the cache. When it is dropped, they come before all later stores of this thread.
///
/// Such stores are not ordered with other ones, and a thread that is told that rows are complete must see them.
pub(crate) struct PastCache(());

impl PastCache {
    pub(crate) fn new() -> PastCache {
        PastCache(())
    }

    /// Copies bytes: whole cache lines past the cache, what is before and behind them through it.
    ///
    /// # Panics
    /// Panics if the lengths differ.
    #[inline(always)]
    pub(crate) fn copy(&self, to: &mut [u8], from: &[u8]) {
        assert_eq!(to.len(), from.len(), "bytes to copy");
        let head = until_line(to);
        let (to_head, to_rest) = to.split_at_mut(head);
        let (from_head, from_rest) = from.split_at(head);
        to_head.copy_from_slice(from_head);
        let (to_lines, to_tail) = to_rest.as_chunks_mut::<LINE>();
        let (from_lines, from_tail) = from_rest.as_chunks::<LINE>();
        for (to, from) in to_lines.iter_mut().zip(from_lines) {
            #[cfg(target_arch = "x86_64")]
            {
                use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
                let (to, from) = (to.as_mut_ptr().cast::<__m128i>(), from.as_ptr().cast::<__m128i>());
                for part in 0..LINE / size_of::<__m128i>() {
                    // SAFETY: SSE2 is part of x86-64. Both pointers point to a whole line of `LINE` bytes; the line of
                    // `to` is aligned, because the head was split off, and is borrowed for writing.
                    unsafe { _mm_stream_si128(to.add(part), _mm_loadu_si128(from.add(part))) };
                }
            }
            #[cfg(not(target_arch = "x86_64"))]
            to.copy_from_slice(from);
        }
        to_tail.copy_from_slice(from_tail);
    }
}

/// Returns how many elements precede the first cache line that begins in the slice.
#[inline(always)]
pub(crate) fn until_line<T>(slice: &[T]) -> usize {
    slice.as_ptr().align_offset(LINE).min(slice.len())
}

/// Copies bytes past the cache.
///
/// # Panics
/// Panics if the lengths differ.
pub(crate) fn copy_past_cache(to: &mut [u8], from: &[u8]) {
    PastCache::new().copy(to, from);
}

impl Drop for PastCache {
    fn drop(&mut self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: SSE is part of x86-64.
        unsafe {
            std::arch::x86_64::_mm_sfence();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_copied_and_no_other_changes() {
        let from: Vec<u8> = (0..2000u32).map(|at| (at % 251) as u8).collect();
        for (offset, len) in [(0, 2000), (1, 1999), (63, 1), (5, 640), (64, 64), (3, 0)] {
            let mut to = vec![255; 2000];
            copy_past_cache(&mut to[offset..offset + len], &from[..len]);
            assert_eq!(to[offset..offset + len], from[..len]);
            assert!(to[..offset].iter().chain(&to[offset + len..]).all(|byte| *byte == 255));
        }
    }

    #[test]
    fn a_line_begins_behind_the_elements_before_it() {
        let values = [0u16; 200];
        for from in 0..100 {
            let rest = &values[from..];
            let until = until_line(rest);
            assert!(until < 32 && rest[until..].as_ptr().addr().is_multiple_of(LINE));
        }
        assert_eq!(until_line(&values[..0]), 0);
    }
}
