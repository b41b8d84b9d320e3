//! Memory that outlives a run. The device memory and pinned memory of a run are cached for the next run, because
//! the driver takes milliseconds to allocate either.
//!
//! With limits, cached memory and the memory of current runs together never exceed what all runs may use. Without
//! limits, there are at most as many pieces as runs had at the same time, each as large as the largest.
//!
//! A run takes the smallest cached piece that is large enough. If the piece is larger than what the run has
//! reserved, the difference is reserved, too. If there is no such piece, a cached piece that is too small is freed
//! before a larger one is allocated; more pieces are freed if the limit requires it, and all of them if memory runs
//! out, then also those of other engines (`caches.rs`). Only the memory of successful runs is cached.

use std::ops::{Deref, DerefMut, RangeInclusive};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::budget::{Charge, More};
use super::caches::{self, DeviceCache};
use super::{MemoryBudget, MemoryUse, PinnedMemory};
use crate::device::Device;
use crate::error::{Error, Result};

/// The memory of an opened device.
pub(crate) struct MemoryCache<D: Device> {
    // Dropped in this order: the device's memory before the device.
    /// Device memory, from which a run cuts blocks.
    pub(super) blocks: Arc<FreeList<D::Memory>>,
    /// Pinned memory, from which a run cuts slots.
    pub(super) slabs: Arc<FreeList<PinnedMemory>>,
    device: Arc<D>,
    failure: Arc<Failure>,
}

/// The first error of a device outside of runs: while an array is made, read or written. Arrays record it, because they
/// do not know their engine, which asks for it later.
#[derive(Default)]
pub(crate) struct Failure(Mutex<Option<String>>);

impl Failure {
    /// Returns the result, and records its problem if it is an error of a device.
    pub(crate) fn watch<T>(&self, result: Result<T>) -> Result<T> {
        result.inspect_err(|error| {
            if let Error::Device { problem, .. } = error {
                self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| problem.clone());
            }
        })
    }

    /// Takes the problem, if there was one.
    pub(crate) fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl<D: Device> MemoryCache<D> {
    /// Creates an empty cache. Memory in use is charged to these budgets.
    pub(crate) fn new(device: D, memory: &Arc<MemoryBudget>, pinned: &Arc<MemoryBudget>) -> Arc<Self> {
        let cache = Arc::new(MemoryCache {
            blocks: FreeList::new(memory),
            slabs: FreeList::new(pinned),
            device: Arc::new(device),
            failure: Arc::default(),
        });
        caches::register(&cache);
        cache
    }

    /// Returns the error of the device outside of runs.
    pub(crate) fn failure(&self) -> &Arc<Failure> {
        &self.failure
    }

    /// Returns the device.
    pub(crate) fn device(&self) -> &Arc<D> {
        &self.device
    }

    /// Returns the budget of device memory in use.
    pub(crate) fn device_budget(&self) -> &Arc<MemoryBudget> {
        &self.blocks.in_use
    }

    /// Returns the budget of pinned memory in use.
    pub(crate) fn pinned_budget(&self) -> &Arc<MemoryBudget> {
        &self.slabs.in_use
    }

    /// Returns the usage of device memory and of pinned memory.
    pub(crate) fn usage(&self) -> (MemoryUse, MemoryUse) {
        (self.blocks.usage(), self.slabs.usage())
    }

    /// Frees unused memory, and returns the number of bytes freed.
    pub(crate) fn trim(&self) -> u64 {
        self.blocks.clear() + self.slabs.clear()
    }

    /// Frees the unused device memory that other engines of the process have on the device, and returns the number of
    /// bytes freed.
    pub(crate) fn trim_others(&self) -> u64 {
        caches::trim_others(self)
    }
}

impl<D: Device> DeviceCache for MemoryCache<D> {
    fn number(&self) -> usize {
        self.device.number()
    }

    fn trim(&self) -> u64 {
        self.blocks.clear()
    }
}

/// Unused memory of one kind, and the budget of the memory in use.
pub(super) struct FreeList<T> {
    idle: Mutex<Vec<Idle<T>>>,
    in_use: Arc<MemoryBudget>,
}

struct Idle<T> {
    memory: T,
    bytes: u64,
}

impl<T> FreeList<T> {
    fn new(in_use: &Arc<MemoryBudget>) -> Arc<Self> {
        Arc::new(FreeList { idle: Mutex::default(), in_use: in_use.clone() })
    }

    /// Takes memory whose size is within `bytes`: a cached piece, or else a new one of the smallest size.
    ///
    /// # Errors
    /// Returns the errors of `make`, if there is not enough memory even after all cached memory was freed.
    pub(super) fn take(
        self: &Arc<Self>,
        bytes: RangeInclusive<u64>,
        make: impl Fn() -> Result<T>,
    ) -> Result<Cached<T>> {
        let mut idle = self.idle();
        let fitting = (0..idle.len()).filter(|&k| bytes.contains(&idle[k].bytes)).min_by_key(|&k| idle[k].bytes);
        if let Some(fitting) = fitting
            && let Some(more) = self.in_use.reserve_more(idle[fitting].bytes - bytes.start())
        {
            let Idle { memory, bytes } = idle.swap_remove(fitting);
            return self.hold(memory, bytes, Some(more));
        }
        let mut too_many = Vec::new();
        while let Some(smallest) = (0..idle.len()).min_by_key(|&k| idle[k].bytes) {
            // The memory that is about to be allocated is reserved already.
            let all = idle.iter().map(|idle| idle.bytes).sum::<u64>().saturating_add(self.in_use.reserved());
            if !too_many.is_empty() && all <= self.in_use.for_runs() {
                break;
            }
            too_many.push(idle.swap_remove(smallest));
        }
        // The lock is released first, because the driver is slow.
        drop(idle);
        drop(too_many);
        let memory = match make() {
            Err(_) if self.clear() > 0 => make()?,
            made => made?,
        };
        self.hold(memory, *bytes.start(), None)
    }

    fn hold(self: &Arc<Self>, memory: T, bytes: u64, more: Option<More>) -> Result<Cached<T>> {
        Ok(Cached { memory, bytes, charged: self.in_use.charge(bytes)?, _more: more, free_list: self.clone() })
    }

    /// Frees unused memory, and returns the number of bytes freed.
    fn clear(&self) -> u64 {
        let idle = std::mem::take(&mut *self.idle());
        idle.iter().map(|idle| idle.bytes).sum()
    }

    fn usage(&self) -> MemoryUse {
        let idle = self.idle();
        MemoryUse::new(&self.in_use, idle.iter().map(|idle| idle.bytes).sum())
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Idle<T>>> {
        // A panic elsewhere cannot leave the list in an invalid state.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Memory that a run uses. Dropping it frees it.
pub(super) struct Cached<T> {
    // Dropped in this order: the memory is freed before its charge.
    memory: T,
    charged: Charge,
    /// Bytes reserved in addition to those that the run had.
    _more: Option<More>,
    bytes: u64,
    free_list: Arc<FreeList<T>>,
}

impl<T> Cached<T> {
    /// Returns the size in bytes, which is at least the requested size.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Caches the memory for the next run. No pending work may use it.
    pub(super) fn keep(self) {
        let Cached { memory, charged, _more, bytes, free_list } = self;
        let mut idle = free_list.idle();
        idle.push(Idle { memory, bytes });
        // Under the lock, so that the bytes are not counted twice.
        drop(charged);
    }
}

impl<T> Deref for Cached<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.memory
    }
}

impl<T> DerefMut for Cached<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.memory
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use proptest::prelude::*;

    use super::*;

    /// A driver with a limited amount of memory.
    struct Driver {
        used: Arc<AtomicU64>,
        room: u64,
    }

    /// Memory of the driver, which is returned on drop.
    struct Taken {
        bytes: u64,
        used: Arc<AtomicU64>,
    }

    impl Drop for Taken {
        fn drop(&mut self) {
            self.used.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }

    impl Driver {
        fn new(room: u64) -> (Driver, Arc<FreeList<Taken>>) {
            let free_list = FreeList::new(&MemoryBudget::new("memory", u64::MAX));
            (Driver { used: Arc::default(), room }, free_list)
        }

        fn used(&self) -> u64 {
            self.used.load(Ordering::Relaxed)
        }

        fn take(&self, free_list: &Arc<FreeList<Taken>>, bytes: RangeInclusive<u64>) -> Result<Cached<Taken>> {
            let least = *bytes.start();
            free_list.take(bytes, || {
                if self.used() + least > self.room {
                    return Err(Error::OutOfMemory { device: "test".into(), bytes: least });
                }
                self.used.fetch_add(least, Ordering::Relaxed);
                Ok(Taken { bytes: least, used: self.used.clone() })
            })
        }
    }

    #[test]
    fn what_fits_is_used_again_and_nothing_else() {
        let (driver, free_list) = Driver::new(1000);
        driver.take(&free_list, 100..=1000).unwrap().keep();
        let held = driver.take(&free_list, 60..=1000).unwrap();
        assert_eq!((held.bytes(), driver.used()), (100, 100));
        assert_eq!(free_list.usage(), MemoryUse { in_use: 100, peak: 100, cached: 0 });
        held.keep();
        // Too large for this request and all later ones.
        let held = driver.take(&free_list, 50..=99).unwrap();
        assert_eq!((held.bytes(), driver.used()), (50, 50));
        held.keep();
        // The cached piece is freed before a larger one is allocated.
        driver.take(&free_list, 1000..=1000).unwrap().keep();
        assert_eq!(free_list.usage(), MemoryUse { in_use: 0, peak: 1000, cached: 1000 });
        assert_eq!((free_list.clear(), driver.used()), (1000, 0));
    }

    #[test]
    fn what_is_not_kept_is_given_back() {
        let (driver, free_list) = Driver::new(1000);
        drop(driver.take(&free_list, 100..=1000).unwrap());
        assert_eq!((free_list.clear(), driver.used()), (0, 0));
        assert_eq!(free_list.usage(), MemoryUse { in_use: 0, peak: 100, cached: 0 });
    }

    #[test]
    fn everything_idle_goes_before_there_is_not_enough() {
        let (driver, free_list) = Driver::new(1000);
        let held = [200, 300, 400].map(|bytes| driver.take(&free_list, bytes..=1000).unwrap());
        held.into_iter().for_each(Cached::keep);
        driver.take(&free_list, 700..=1000).unwrap().keep();
        assert_eq!(driver.used(), 700);
        assert!(driver.take(&free_list, 1001..=2000).is_err());
        assert_eq!((free_list.usage().in_use, driver.used()), (0, 0));
    }

    #[test]
    fn what_is_kept_and_what_runs_have_is_no_more_than_they_may_have() {
        let budget = MemoryBudget::of_engine("memory", 100, None);
        let (driver, free_list) = (Driver { used: Arc::default(), room: u64::MAX }, FreeList::new(&budget));
        budget.reserve(60);
        driver.take(&free_list, 60..=100).unwrap().keep();
        budget.release(60);
        // A run that gets more than it reserved has the difference reserved, too.
        budget.reserve(50);
        let first = driver.take(&free_list, 50..=100).unwrap();
        assert_eq!((first.bytes(), budget.reserved()), (60, 60));
        first.keep();
        assert_eq!(budget.reserved(), 50);
        // The cached piece does not fit beside the memory reserved for runs: it is freed, and a piece of the
        // reserved size is allocated.
        budget.reserve(45);
        let second = driver.take(&free_list, 45..=100).unwrap();
        assert_eq!((second.bytes(), driver.used()), (45, 45));
        second.keep();
        assert_eq!(driver.take(&free_list, 30..=40).unwrap().bytes(), 30);
    }

    proptest! {
        /// Whatever the sequence, the cache never has more pieces than were in use at the same time, each of the
        /// largest size.
        #[test]
        fn it_does_not_grow(steps in prop::collection::vec((1u64..100, 0usize..4, any::<bool>()), 1..200)) {
            let (driver, free_list) = Driver::new(u64::MAX);
            let mut held: Vec<Cached<Taken>> = Vec::new();
            let (mut largest, mut at_once) = (0, 0);
            for (bytes, most, keep) in steps {
                while held.len() > most {
                    let one = held.swap_remove(bytes as usize % held.len());
                    if keep { one.keep() } else { drop(one) }
                }
                held.push(driver.take(&free_list, bytes..=u64::MAX).unwrap());
                (largest, at_once) = (largest.max(bytes), at_once.max(held.len() as u64));
                let MemoryUse { in_use, peak, cached } = free_list.usage();
                prop_assert_eq!(in_use + cached, driver.used());
                prop_assert!(driver.used() <= largest * at_once && in_use <= peak);
            }
            drop(held);
            free_list.clear();
            prop_assert_eq!(driver.used(), 0);
        }
    }
}
