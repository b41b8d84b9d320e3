//! Memory that several threads write: no two claims overlap.

use super::*;
use crate::data::memory::Disjoint;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

#[test]
fn claims_that_overlap_are_refused() {
    let mut values = [0u8; 10];
    let disjoint = Disjoint::new(&mut values);
    let mut a = disjoint.claim(2..5).unwrap();
    a.fill(1);
    for part in [0..3, 2..5, 3..4, 4..5, 4..9, 0..10] {
        assert!(disjoint.claim(part).is_none());
    }
    #[allow(clippy::reversed_empty_ranges)]
    for part in [0..11, 11..11, 5..4, usize::MAX..0, 0..usize::MAX] {
        assert!(disjoint.claim(part).is_none());
    }
    let mut b = disjoint.claim(5..10).unwrap();
    let c = disjoint.claim(0..2).unwrap();
    // Empty parts overlap nothing, not even each other.
    let (d, e) = (disjoint.claim(3..3).unwrap(), disjoint.claim(3..3).unwrap());
    assert!(d.is_empty() && e.is_empty() && c.iter().all(|&v| v == 0));
    drop(d);
    b.fill(2);
    assert!(disjoint.claim(2..3).is_none());
    drop(a);
    assert_eq!(&disjoint.claim(2..5).unwrap()[..], [1, 1, 1]);
    drop((b, c, e));
    drop(disjoint);
    assert_eq!(values, [0, 0, 1, 1, 1, 2, 2, 2, 2, 2]);
}

#[test]
fn claims_of_many_threads_do_not_meet() {
    let rounds = if cfg!(miri) { 20 } else { 2000 };
    let mut values = [usize::MAX; 64];
    let disjoint = Disjoint::new(&mut values);
    let (got, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for id in 0..4usize {
            let (disjoint, got, refused) = (&disjoint, &got, &refused);
            scope.spawn(move || {
                let mut random = id + 1;
                for _ in 0..rounds {
                    random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    let (start, len) = ((random >> 33) % 60, (random >> 50) % 16);
                    let Some(mut claim) = disjoint.claim(start..(start + len).min(64)) else {
                        refused.fetch_add(1, Ordering::Relaxed);
                        continue;
                    };
                    claim.fill(id);
                    thread::yield_now();
                    assert!(claim.iter().all(|&v| v == id));
                    got.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert!(got.into_inner() > 0);
    assert_eq!(disjoint.claim(0..64).unwrap().len(), 64, "all parts were given back");
}

#[test]
fn sink_memory_counts_in_rows() {
    let mut values = [0u32; 6];
    let memory = SinkMemory::new(bytemuck::cast_slice_mut(&mut values), Dtype::U32).unwrap();
    assert_eq!(memory.rows(), 6);
    assert!(!memory.is_pinned());
    let (mut a, b) = (memory.claim(1..3), memory.claim(3..6));
    assert_eq!((a.len(), b.len()), (8, 12));
    a.copy_from_slice(bytemuck::cast_slice(&[7u32, 8]));
    assert!(memory.try_claim(2..4).is_none());
    assert!(memory.try_claim(0..u64::MAX).is_none());
    assert!(memory.try_claim(1 << 62..(1 << 62) + 1).is_none(), "its byte number is no usize");
    drop((a, b));
    assert!(memory.pinned().is_pinned());
    assert_eq!(values, [0, 7, 8, 0, 0, 0]);
}

#[test]
#[should_panic(expected = "rows 2 to 4 of 6 are out of bounds or in use")]
fn claiming_rows_twice_panics() {
    let mut values = [0u8; 6];
    let memory = SinkMemory::new(&mut values, Dtype::U8).unwrap();
    let _claim = memory.claim(3..5);
    memory.claim(2..4);
}

#[test]
fn memory_must_fit_the_dtype() {
    let mut values = [0u64; 2];
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut values);
    assert!(Memory::new(&bytes[1..], Dtype::U64).is_none());
    assert!(Memory::new(&bytes[1..], Dtype::U8).is_some());
    assert!(Memory::new(bytes, Dtype::U64).unwrap().pinned().is_pinned());
    assert!(SinkMemory::new(&mut bytes[4..], Dtype::U64).is_none());
    assert!(SinkMemory::new(&mut bytes[..12], Dtype::U64).is_none());
    assert!(SinkMemory::new(&mut bytes[..12], Dtype::U32).is_some());
}
