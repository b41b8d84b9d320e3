//! Measurements of host memory, by threads.
//!
//! Every thread goes round its own share of the memory. The shares together are larger than the caches, and a run
//! goes on where the last one ended.

use std::hint::black_box;
use std::io;
use std::ops::Range;

use memmap2::MmapMut;

use super::HostLimits;
use super::rates::{Rate, RateByThreads};
use super::team::{LEAST_RUNS, best, seconds, steady, thread_counts};
use crate::cpu_cache::last_level_cache_bytes;
use crate::data::{PastCache, copy_past_cache};
use crate::device::cpu;

/// Bytes that a thread processes at a time, of each array.
pub(super) const PIECE: usize = 512 << 10;
/// Words of a piece.
const WORDS: usize = PIECE / 8;
/// Words that the CPU computes before it stores them, as `expr/apply.rs` does.
const GROUP: usize = 64;
/// Bytes of a slot, as the pipeline fills them.
pub(super) const SLOT: usize = 2 << 20;
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
        seconds(&mut vec![(); cores], words.chunks_mut(WORDS), |(), piece| {
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
    place: Place,
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
            Ok(Slots { memory, place: Place(0) })
        };
        (0..threads).map(slots).collect()
    }

    /// Fills the next part of the slots. `from` is at most a slot.
    pub(super) fn fill(&mut self, from: &[u8]) {
        let slot = self.next(from.len());
        slot.copy_from_slice(from);
        black_box(slot);
    }

    /// Returns the next part of the slots, of `bytes`, which is at most a slot.
    pub(super) fn next(&mut self, bytes: usize) -> &mut [u8] {
        let part = self.place.next_whole(self.memory.len(), bytes);
        &mut self.memory[part]
    }
}

/// The place in an array that a thread goes round and round.
struct Place(usize);

impl Place {
    /// Returns the next part of an array of this length: `most`, or less at its end.
    fn next(&mut self, len: usize, most: usize) -> Range<usize> {
        let part = self.0..(self.0 + most).min(len);
        self.0 = if part.end == len { 0 } else { part.end };
        part
    }

    /// Returns the next part of exactly this size, which skips an end that is smaller.
    fn next_whole(&mut self, len: usize, size: usize) -> Range<usize> {
        if self.0 + size > len {
            self.0 = 0;
        }
        self.next(len, size)
    }
}

/// Measures the rates of memory, by threads.
pub(super) fn measure(memory: &mut Ordinary, progress: &mut dyn FnMut(&str)) -> io::Result<HostLimits> {
    let cores = cpu::cores();
    let mut host = HostLimits { cores, last_level_cache_bytes: last_level_cache_bytes(), ..HostLimits::default() };
    let words = &mut memory.words;
    for threads in thread_counts(cores) {
        progress(&format!("memory, {threads} of {cores} threads"));
        let add = |list: &mut Vec<_>, rate: io::Result<Rate>| {
            list.push(RateByThreads::new(threads, rate?));
            io::Result::Ok(())
        };
        add(&mut host.copy, copy(words, threads))?;
        add(&mut host.two_in_one_out, two_in_one_out(words, threads))?;
        add(&mut host.stage, stage(words, threads))?;
        add(&mut host.drain, drain(words, threads))?;
        add(&mut host.read, read(words, threads))?;
    }
    Ok(host)
}

/// Returns the words of a share of an array, for each of the threads.
fn share(words: usize, threads: usize) -> usize {
    words.div_ceil(threads).max(1)
}

fn copy(words: &mut [u64], threads: usize) -> io::Result<Rate> {
    let (from, to) = words.split_at_mut(words.len() / 2);
    let share = share(from.len(), threads);
    let team = to.chunks_mut(share).zip(from.chunks(share)).map(|(to, from)| (to, from, Place(0)));
    let mut team: Vec<_> = team.collect();
    best(LEAST_RUNS, || {
        steady(&mut team, |(to, from, place)| {
            // With an odd number of words, the last share may be longer on one side.
            let part = place.next(to.len().min(from.len()), WORDS);
            copy_past_cache(bytemuck::cast_slice_mut(&mut to[part.clone()]), bytemuck::cast_slice(&from[part.clone()]));
            part.len() * 8
        })
    })
}

fn two_in_one_out(words: &mut [u64], threads: usize) -> io::Result<Rate> {
    let third = words.len() / 3;
    let (a, rest) = words.split_at_mut(third);
    let (b, c) = rest.split_at_mut(third);
    let share = share(third, threads);
    let team = c[..third].chunks_mut(share).zip(a.chunks(share)).zip(b.chunks(share));
    let mut team: Vec<_> = team.map(|((c, a), b)| (c, [a, b], Place(0))).collect();
    best(LEAST_RUNS, || {
        steady(&mut team, |(c, [a, b], place)| {
            let part = place.next(c.len(), WORDS);
            let past_cache = PastCache::new();
            let inputs = a[part.clone()].chunks(GROUP).zip(b[part.clone()].chunks(GROUP));
            for (c, (a, b)) in c[part.clone()].chunks_mut(GROUP).zip(inputs) {
                let mut group = [0; GROUP];
                group.iter_mut().zip(a).zip(b).for_each(|((sum, a), b)| *sum = a.wrapping_add(*b));
                let sums = &group[..c.len()];
                past_cache.copy(bytemuck::cast_slice_mut(c), bytemuck::cast_slice(sums));
            }
            3 * part.len() * 8
        })
    })
}

fn stage(words: &[u64], threads: usize) -> io::Result<Rate> {
    let shares = words.chunks(share(words.len(), threads));
    let mut team: Vec<_> =
        Slots::of(threads)?.into_iter().zip(shares).map(|(slots, from)| (slots, from, Place(0))).collect();
    best(LEAST_RUNS, || {
        steady(&mut team, |(slots, from, place)| {
            let from = &from[place.next(from.len(), WORDS)];
            slots.fill(bytemuck::cast_slice(from));
            from.len() * 8
        })
    })
}

fn drain(words: &mut [u64], threads: usize) -> io::Result<Rate> {
    let shares = words.chunks_mut(share(words.len(), threads));
    let mut team: Vec<_> =
        Slots::of(threads)?.into_iter().zip(shares).map(|(slots, to)| (slots, to, Place(0))).collect();
    best(LEAST_RUNS, || {
        steady(&mut team, |(slots, to, place)| {
            let part = place.next(to.len(), WORDS);
            let bytes = part.len() * 8;
            copy_past_cache(bytemuck::cast_slice_mut(&mut to[part]), slots.next(bytes));
            bytes
        })
    })
}

fn read(words: &[u64], threads: usize) -> io::Result<Rate> {
    let mut team: Vec<_> = words.chunks(share(words.len(), threads)).map(|from| (from, Place(0))).collect();
    best(LEAST_RUNS, || {
        steady(&mut team, |(from, place)| {
            let from = &from[place.next(from.len(), WORDS)];
            black_box(sum(from));
            from.len() * 8
        })
    })
}

/// Adds words, in sums that do not wait for each other, so that memory is the limit and not the latency of additions.
fn sum(words: &[u64]) -> u64 {
    const SUMS: usize = 32;
    let (lines, tail) = words.as_chunks::<SUMS>();
    let sums = lines.iter().fold([0u64; SUMS], |mut sums, line| {
        sums.iter_mut().zip(line).for_each(|(sum, word)| *sum = sum.wrapping_add(*word));
        sums
    });
    sums.iter().chain(tail).fold(0, |sum, word| sum.wrapping_add(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_little_memory_has_rates_too() {
        for bytes in [8 * 3, 3 * PIECE + 8] {
            let mut memory = Ordinary::new(bytes, 2).unwrap();
            let host = measure(&mut memory, &mut |_| {}).unwrap();
            for list in [&host.copy, &host.two_in_one_out, &host.stage, &host.drain, &host.read] {
                assert_eq!(list.len(), thread_counts(host.cores).len());
                assert!(list.iter().all(|rate| rate.bytes_per_second.is_finite() && rate.bytes_per_second > 0.0));
            }
        }
    }

    #[test]
    fn slots_go_round() {
        let mut slots = Slots::of(2).unwrap().remove(0);
        assert_eq!(slots.memory.len(), 2 * SLOT);
        for value in 2..5 {
            slots.fill(&vec![value; SLOT]);
        }
        assert_eq!((slots.memory[0], slots.memory[SLOT]), (4, 3));
        // A part that does not fit the rest begins again.
        slots.fill(&[5; 10]);
        slots.fill(&vec![6; SLOT]);
        assert_eq!((slots.memory[0], slots.memory[SLOT]), (6, 5));
        let team = Slots::of(16).unwrap();
        assert_eq!((team.len(), team[0].memory.len()), (16, SLOT));
    }

    #[test]
    fn a_share_is_gone_round() {
        let mut place = Place(0);
        assert_eq!([0; 4].map(|_| place.next(10, 4)), [0..4, 4..8, 8..10, 0..4]);
        let mut place = Place(0);
        assert_eq!([0; 4].map(|_| place.next_whole(10, 4)), [0..4, 4..8, 0..4, 4..8]);
    }

    #[test]
    fn sums_are_those_of_all_words() {
        for words in [0, 1, 31, 32, 100] {
            let words: Vec<u64> = (1..=words).collect();
            assert_eq!(sum(&words), words.iter().sum::<u64>());
        }
    }
}
