//! Memory budgets: a run's budget counts bytes against its limit; an engine's budget also records the memory
//! reserved for its runs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Result};

/// The bytes of one kind of memory that are in use, their peak, and the limit that they never exceed.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    what: &'static str,
    limit: u64,
    used: Mutex<Used>,
    /// The bytes that all runs of an engine may use together, minus the bytes in use on the other budget.
    for_runs: (u64, Option<Arc<MemoryBudget>>),
}

#[derive(Debug, Default)]
struct Used {
    now: u64,
    peak: u64,
    /// The bytes reserved for runs, whether they are allocated or not.
    reserved: u64,
}

impl MemoryBudget {
    /// Creates a budget for `what` (as in "device memory") with a limit of `limit` bytes.
    pub(crate) fn new(what: &'static str, limit: u64) -> Arc<Self> {
        Arc::new(MemoryBudget { what, limit, used: Mutex::default(), for_runs: (u64::MAX, None) })
    }

    /// Creates a budget of an engine, all of whose runs may use `for_runs` bytes together, minus the bytes in use
    /// on `stays`. This limits only the memory set aside for runs, because other users reserve bytes on this
    /// budget, too.
    pub(crate) fn of_engine(what: &'static str, for_runs: u64, stays: Option<&Arc<MemoryBudget>>) -> Arc<Self> {
        Arc::new(MemoryBudget { what, limit: u64::MAX, used: Mutex::default(), for_runs: (for_runs, stays.cloned()) })
    }

    /// Returns the bytes that all runs may use together now.
    pub(crate) fn for_runs(&self) -> u64 {
        let (bytes, stays) = &self.for_runs;
        bytes.saturating_sub(stays.as_ref().map_or(0, |stays| stays.in_use()))
    }

    /// Returns the bytes that are set aside for runs.
    pub(crate) fn reserved(&self) -> u64 {
        self.used().reserved
    }

    /// Sets bytes aside for a run, whether or not enough are left.
    pub(super) fn set_aside(&self, bytes: u64) {
        self.used().reserved += bytes;
    }

    /// Sets bytes aside for a run, if enough are left.
    pub(super) fn try_set_aside(&self, bytes: u64) -> bool {
        let for_runs = self.for_runs();
        let mut used = self.used();
        let fits = used.reserved.saturating_add(bytes) <= for_runs;
        if fits {
            used.reserved += bytes;
        }
        fits
    }

    /// Sets more bytes aside for a run that has some already. Returns `None` if not enough are left.
    pub(super) fn reserve_more(self: &Arc<Self>, bytes: u64) -> Option<More> {
        self.try_set_aside(bytes).then(|| More { budget: self.clone(), bytes })
    }

    /// Returns bytes that were set aside.
    pub(super) fn release(&self, bytes: u64) {
        self.used().reserved -= bytes;
    }

    /// Reserves `bytes` until the result is dropped.
    ///
    /// # Errors
    /// Returns [`Error::Budget`] if this would exceed the limit. Nothing is reserved then.
    pub(crate) fn reserve(self: &Arc<Self>, bytes: u64) -> Result<Reservation> {
        let mut used = self.used();
        let now = used.now.saturating_add(bytes);
        if now > self.limit {
            return Err(Error::Budget {
                what: self.what,
                limit: self.limit,
                needed: now,
                remedy: "this is a bug in Overshot, whose plan should have kept the limit: please report it".into(),
            });
        }
        used.now = now;
        used.peak = used.peak.max(now);
        drop(used);
        Ok(Reservation { budget: Arc::clone(self), bytes })
    }

    /// Returns the limit.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the bytes that are reserved now.
    pub(crate) fn in_use(&self) -> u64 {
        self.used().now
    }

    /// Returns the most bytes that were reserved at the same time.
    pub(crate) fn peak(&self) -> u64 {
        self.used().peak
    }

    /// Resets the peak to the bytes that are reserved now.
    pub(crate) fn reset_peak(&self) {
        let mut used = self.used();
        used.peak = used.now;
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        // A panic elsewhere cannot leave the two numbers inconsistent, because they are set together.
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes reserved on a budget. They are returned on drop.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Arc<MemoryBudget>,
    bytes: u64,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.used().now -= self.bytes;
    }
}

/// Bytes set aside in addition to those that a run had. They are returned on drop.
#[derive(Debug)]
pub(super) struct More {
    budget: Arc<MemoryBudget>,
    bytes: u64,
}

impl Drop for More {
    fn drop(&mut self) {
        self.budget.release(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has_room(budget: &MemoryBudget, bytes: u64) -> bool {
        let fits = budget.try_set_aside(bytes);
        if fits {
            budget.release(bytes);
        }
        fits
    }

    #[test]
    fn keeps_the_limit_and_remembers_the_peak() {
        let budget = MemoryBudget::new("device memory", 100);
        let a = budget.reserve(60).unwrap();
        assert!(matches!(budget.reserve(41), Err(Error::Budget { needed: 101, limit: 100, .. })));
        let b = budget.reserve(40).unwrap();
        drop(a);
        drop(b);
        assert_eq!((budget.in_use(), budget.peak()), (0, 100));
        let c = budget.reserve(30).unwrap();
        budget.reset_peak();
        assert_eq!((budget.in_use(), budget.peak()), (30, 30));
        drop(c);
        drop(budget.reserve(20).unwrap());
        assert_eq!(budget.peak(), 30, "a smaller use is no peak");
        budget.reserve(100).unwrap();
        assert!(budget.reserve(u64::MAX).is_err());
    }

    #[test]
    fn runs_share_what_does_not_stay() {
        let stays = MemoryBudget::new("device memory", u64::MAX);
        let budget = MemoryBudget::of_engine("device memory", 100, Some(&stays));
        let there = stays.reserve(30).unwrap();
        assert!(has_room(&budget, 70) && !has_room(&budget, 71));
        budget.set_aside(50);
        assert!(budget.reserve_more(21).is_none());
        let more = budget.reserve_more(20).unwrap();
        assert!(budget.reserved() == 70 && !has_room(&budget, 1));
        drop(there);
        assert!(has_room(&budget, 30));
        drop(more);
        budget.release(50);
        // Reserved bytes are counted separately, because arrays reserve bytes, too.
        let reserved = budget.reserve(1000).unwrap();
        assert!(budget.reserved() == 0 && has_room(&budget, 100));
        drop(reserved);
    }
}
