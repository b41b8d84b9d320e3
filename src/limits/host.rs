//! Measurements of host memory, by threads.

use std::hint::black_box;
use std::io;

use memmap2::MmapMut;

use super::HostLimits;
use super::rates::RateByThreads;
use super::team::{best, seconds, thread_counts};
use crate::data::copy_past_cache;
use crate::device::cpu;

/// Bytes that a thread takes at a time.
pub(super) const PIECE: usize = 1 << 20;
/// Bytes of a slot, as the pipeline fills them.
const SLOT: usize = 2 << 20;
/// The minimum number of slots: as many as are in use while one is filled, one copied and one drained.
const LEAST_SLOTS: usize = 4;

/// Pageable memory that was written to before, as the data of a program is. On some virtual machines the first access
/// to a page takes many times as long as a copy to it. Huge pages are not requested; the system may use them by
/// default.
pub(super) struct Ordinary {
    words: Vec<u64>,
}

impl Ordinary {
    pub(super) fn new(bytes: usize, cores: usize) -> io::Result<Ordinary> {
        let mut words = vec![0; bytes / 8];
        seconds(&mut vec![(); cores], words.chunks_mut(PIECE / 8), |(), piece| {
            piece.fill(0x0123_4567_89ab_cdef);
            Ok(())
        })?;
        Ok(Ordinary { words })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.words)
    }
}

/// The slots of a thread: few, so that they stay in the cache. In huge pages if possible, as pinned memory is.
pub(super) struct Slots {
    memory: MmapMut,
    next: usize,
}

impl Slots {
    /// Creates the slots of each thread.
    pub(super) fn of(threads: usize) -> io::Result<Vec<Slots>> {
        let each = LEAST_SLOTS.div_ceil(threads);
        let slots = |_| {
            let mut memory = MmapMut::map_anon(each * SLOT)?;
            #[cfg(target_os = "linux")]
            let _ = memory.advise(memmap2::Advice::HugePage);
            memory.fill(1);
            Ok(Slots { memory, next: 0 })
        };
        (0..threads).map(slots).collect()
    }

    /// Fills the next slot.
    pub(super) fn fill(&mut self, from: &[u8]) {
        let slot = &mut self.memory[self.next..][..from.len()];
        slot.copy_from_slice(from);
        black_box(slot);
        self.next = (self.next + SLOT) % self.memory.len();
    }
}

/// Iterates over the source in pieces of a slot.
pub(super) fn slots_of(bytes: &[u8]) -> std::slice::Chunks<'_, u8> {
    bytes.chunks(SLOT)
}

/// Measures the rates of memory, by threads.
pub(super) fn measure(memory: &mut Ordinary, progress: &mut dyn FnMut(&str)) -> io::Result<HostLimits> {
    let cores = cpu::cores();
    let mut host = HostLimits { cores, last_level_cache_bytes: cpu::last_level_cache_bytes(), ..HostLimits::default() };
    for threads in thread_counts(cores) {
        progress(&format!("memory, {threads} of {cores} threads"));
        let rate = |bytes_per_second| RateByThreads { threads, bytes_per_second };
        host.copy.push(rate(copy(memory, threads)?));
        host.stage.push(rate(stage(memory, threads)?));
        host.read.push(rate(read(memory, threads)?));
    }
    Ok(host)
}

fn copy(memory: &mut Ordinary, threads: usize) -> io::Result<f64> {
    let half = memory.words.len() / 2;
    let (from, to) = memory.words.split_at_mut(half);
    let mut team = vec![(); threads];
    best(half as u64 * 8, || {
        let pieces = to.chunks_mut(PIECE / 8).zip(from.chunks(PIECE / 8));
        seconds(&mut team, pieces, |(), (to, from)| {
            // With an odd number of words, the last piece may be longer on one side.
            let words = to.len().min(from.len());
            copy_past_cache(bytemuck::cast_slice_mut(&mut to[..words]), bytemuck::cast_slice(&from[..words]));
            Ok(())
        })
    })
}

fn stage(memory: &Ordinary, threads: usize) -> io::Result<f64> {
    let mut team = Slots::of(threads)?;
    best(memory.bytes().len() as u64, || {
        seconds(&mut team, slots_of(memory.bytes()), |slots, piece| {
            slots.fill(piece);
            Ok(())
        })
    })
}

fn read(memory: &Ordinary, threads: usize) -> io::Result<f64> {
    best(memory.bytes().len() as u64, || {
        seconds(&mut vec![0; threads], memory.words.chunks(PIECE / 8), |sum, piece| {
            *sum = black_box(piece.iter().fold(*sum, |sum: u64, &word| sum.wrapping_add(word)));
            Ok(())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_little_memory_has_rates_too() {
        for bytes in [8 * 3, 3 * PIECE + 8] {
            let mut memory = Ordinary::new(bytes, 2).unwrap();
            let host = measure(&mut memory, &mut |_| {}).unwrap();
            assert_eq!(host.copy.len(), thread_counts(host.cores).len());
            for rate in [&host.copy, &host.stage, &host.read].into_iter().flatten() {
                assert!(rate.bytes_per_second.is_finite() && rate.bytes_per_second > 0.0, "{host:?}");
            }
        }
    }

    #[test]
    fn slots_go_round() {
        let mut slots = Slots::of(2).unwrap().remove(0);
        assert_eq!(slots.memory.len(), 2 * SLOT);
        for value in 2..5 {
            slots.fill(&[value; 10]);
        }
        assert_eq!((slots.memory[0], slots.memory[SLOT]), (4, 3));
        let team = Slots::of(16).unwrap();
        assert_eq!((team.len(), team[0].memory.len()), (16, SLOT));
    }
}
