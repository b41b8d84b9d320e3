//! Memory that outlives a run: what one took of the device and of pinned memory is kept for the next, as the driver takes
//! milliseconds for both.
//!
//! What is kept, and what runs have at the time, is together no more than all runs may have; in an engine without limits, no more
//! than as many pieces as runs had at once, each as large as the largest. A run takes the smallest memory there is that is
//! large enough; if it is larger than what the run has reserved, the rest is reserved, too. If there is none, one that is too
//! small is given back before something larger is taken, more if the limit wants it, and all of it if there is not enough. Only
//! memory of runs that went well is kept.

use std::ops::{Deref, DerefMut, RangeInclusive};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::budget::{More, Reservation};
use super::{MemoryBudget, MemoryUse, PinnedMemory};
use crate::device::Device;
use crate::error::Result;

/// The memory of an opened device.
pub(crate) struct MemoryCache<D: Device> {
    // Dropped in this order: what the device gave, before the device.
    /// Device memory, of which a run cuts blocks.
    pub(super) blocks: Arc<FreeList<D::Memory>>,
    /// Pinned memory, of which a run cuts slots.
    pub(super) slabs: Arc<FreeList<PinnedMemory>>,
    device: Arc<D>,
}

impl<D: Device> MemoryCache<D> {
    /// Nothing yet. What is in use is reserved on these budgets.
    pub(crate) fn new(device: D, memory: &Arc<MemoryBudget>, pinned: &Arc<MemoryBudget>) -> Arc<Self> {
        Arc::new(MemoryCache { blocks: FreeList::new(memory), slabs: FreeList::new(pinned), device: Arc::new(device) })
    }

    /// The device.
    pub(crate) fn device(&self) -> &Arc<D> {
        &self.device
    }

    /// The budget of pinned memory in use.
    pub(crate) fn pinned_budget(&self) -> &Arc<MemoryBudget> {
        &self.slabs.in_use
    }

    /// The budget of device memory in use.
    pub(crate) fn device_budget(&self) -> &Arc<MemoryBudget> {
        &self.blocks.in_use
    }

    /// How much there is, of device memory and of pinned memory.
    pub(crate) fn usage(&self) -> (MemoryUse, MemoryUse) {
        (self.blocks.usage(), self.slabs.usage())
    }

    /// Gives back what nobody uses, and returns how many bytes.
    pub(crate) fn trim(&self) -> u64 {
        self.blocks.clear() + self.slabs.clear()
    }
}

/// Memory of one kind that nobody uses, and the budget of what is in use.
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

    /// Takes memory of a size within `bytes`: kept, or else just made, of the least size.
    ///
    /// # Errors
    /// Those of `make`, when there is not enough even without what is kept.
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
            // What is about to be made is reserved already.
            let all = idle.iter().map(|idle| idle.bytes).sum::<u64>().saturating_add(self.in_use.reserved());
            if !too_many.is_empty() && all <= self.in_use.for_runs() {
                break;
            }
            too_many.push(idle.swap_remove(smallest));
        }
        // The driver takes its time.
        drop(idle);
        drop(too_many);
        let memory = match make() {
            Err(_) if self.clear() > 0 => make()?,
            made => made?,
        };
        self.hold(memory, *bytes.start(), None)
    }

    fn hold(self: &Arc<Self>, memory: T, bytes: u64, more: Option<More>) -> Result<Cached<T>> {
        Ok(Cached { memory, bytes, reserved: self.in_use.reserve(bytes)?, _more: more, free_list: self.clone() })
    }

    /// Gives back what nobody uses, and returns how many bytes.
    fn clear(&self) -> u64 {
        let idle = std::mem::take(&mut *self.idle());
        idle.iter().map(|idle| idle.bytes).sum()
    }

    fn usage(&self) -> MemoryUse {
        let idle = self.idle();
        MemoryUse::new(&self.in_use, idle.iter().map(|idle| idle.bytes).sum())
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Idle<T>>> {
        // A list that a panic elsewhere leaves whole.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Memory in the hands of a run. Dropped, it is given back to the driver.
pub(super) struct Cached<T> {
    // Dropped in this order: what is gone is not in use any more.
    memory: T,
    reserved: Reservation,
    /// Admitted beside what the run had reserved.
    _more: Option<More>,
    bytes: u64,
    free_list: Arc<FreeList<T>>,
}

impl<T> Cached<T> {
    /// How many bytes it has, at least those that were asked for.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Keeps it for the next run. No work may be left that uses it.
    pub(super) fn keep(self) {
        let Cached { memory, reserved, _more, bytes, free_list } = self;
        let mut idle = free_list.idle();
        idle.push(Idle { memory, bytes });
        // Under the lock, so that nobody counts it twice.
        drop(reserved);
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
    use crate::error::Error;

    /// A driver with some memory.
    struct Driver {
        used: Arc<AtomicU64>,
        room: u64,
    }

    /// Memory of its, which comes back.
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
        // Too large for this one, as for any that comes.
        let held = driver.take(&free_list, 50..=99).unwrap();
        assert_eq!((held.bytes(), driver.used()), (50, 50));
        held.keep();
        // Given back before something larger is taken.
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
        budget.set_aside(60);
        driver.take(&free_list, 60..=100).unwrap().keep();
        budget.release(60);
        // A run that gets more than it reserved has reserved that, too.
        budget.set_aside(50);
        let first = driver.take(&free_list, 50..=100).unwrap();
        assert_eq!((first.bytes(), budget.reserved()), (60, 60));
        first.keep();
        assert_eq!(budget.reserved(), 50);
        // What is kept does not fit beside what runs have reserved: it is given back, and as much as was reserved is made.
        budget.set_aside(45);
        let second = driver.take(&free_list, 45..=100).unwrap();
        assert_eq!((second.bytes(), driver.used()), (45, 45));
        second.keep();
        assert_eq!(driver.take(&free_list, 30..=40).unwrap().bytes(), 30);
    }

    proptest! {
        /// Whatever comes and goes, no more is there than the most at once had, each the size of the largest.
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
