//! Memory budgets. Memory in use is **charged** to its budgets until it is freed; a run's budget counts it against its
//! limit. A run **reserves** what its plan needs on the budgets of its engine before it takes any memory
//! (`admission.rs`), so its bytes are reserved first and charged later.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::sync::{Mutex, MutexGuard, PoisonError};

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
    /// on `stays`. This limits only the memory reserved for runs, because memory of other users is charged
    /// to this budget, too.
    pub(crate) fn of_engine(what: &'static str, for_runs: u64, stays: Option<&Arc<MemoryBudget>>) -> Arc<Self> {
        Arc::new(MemoryBudget { what, limit: u64::MAX, used: Mutex::default(), for_runs: (for_runs, stays.cloned()) })
    }

    /// Returns the bytes that all runs may use together now.
    pub(crate) fn for_runs(&self) -> u64 {
        let (bytes, stays) = &self.for_runs;
        bytes.saturating_sub(stays.as_ref().map_or(0, |stays| stays.in_use()))
    }

    /// Returns the bytes that are reserved for runs.
    pub(crate) fn reserved(&self) -> u64 {
        self.used().reserved
    }

    /// Reserves bytes for a run, whether or not enough are left.
    pub(super) fn reserve(&self, bytes: u64) {
        self.used().reserved += bytes;
    }

    /// Reserves bytes for a run, if enough are left.
    pub(super) fn try_reserve(&self, bytes: u64) -> bool {
        let for_runs = self.for_runs();
        let mut used = self.used();
        let fits = used.reserved.saturating_add(bytes) <= for_runs;
        if fits {
            used.reserved += bytes;
        }
        fits
    }

    /// Reserves more bytes for a run that has some already. Returns `None` if not enough are left.
    pub(super) fn reserve_more(self: &Arc<Self>, bytes: u64) -> Option<More> {
        self.try_reserve(bytes).then(|| More { budget: self.clone(), bytes })
    }

    /// Returns bytes that were reserved.
    pub(super) fn release(&self, bytes: u64) {
        self.used().reserved -= bytes;
    }

    /// Charges `bytes` until the result is dropped.
    ///
    /// # Errors
    /// Returns [`Error::Internal`] if this would exceed the limit. Nothing is charged then.
    pub(crate) fn charge(self: &Arc<Self>, bytes: u64) -> Result<Charge> {
        let mut used = self.used();
        let now = used.now.saturating_add(bytes);
        if now > self.limit {
            // The plan keeps the limits.
            let (what, limit) = (self.what, self.limit);
            return Err(Error::Internal(format!("{what} is limited to {limit} bytes but {now} bytes were planned")));
        }
        used.now = now;
        used.peak = used.peak.max(now);
        drop(used);
        Ok(Charge { budget: Arc::clone(self), bytes })
    }

    /// Returns the limit.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the bytes that are charged now.
    pub(crate) fn in_use(&self) -> u64 {
        self.used().now
    }

    /// Returns the most bytes that were charged at the same time.
    pub(crate) fn peak(&self) -> u64 {
        self.used().peak
    }

    /// Resets the peak to the bytes that are charged now.
    pub(crate) fn reset_peak(&self) {
        let mut used = self.used();
        used.peak = used.now;
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        // A panic elsewhere cannot leave the two numbers inconsistent, because they are set together.
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes charged to a budget. They are returned on drop.
#[derive(Debug)]
pub(crate) struct Charge {
    budget: Arc<MemoryBudget>,
    bytes: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.used().now -= self.bytes;
    }
}

/// Bytes reserved in addition to those that a run had. They are returned on drop.
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
        let fits = budget.try_reserve(bytes);
        if fits {
            budget.release(bytes);
        }
        fits
    }

    #[test]
    fn keeps_the_limit_and_remembers_the_peak() {
        let budget = MemoryBudget::new("device memory", 100);
        let a = budget.charge(60).unwrap();
        assert!(matches!(budget.charge(41), Err(Error::Internal(text)) if text.contains("100 bytes but 101 bytes")));
        let b = budget.charge(40).unwrap();
        drop(a);
        drop(b);
        assert_eq!((budget.in_use(), budget.peak()), (0, 100));
        let c = budget.charge(30).unwrap();
        budget.reset_peak();
        assert_eq!((budget.in_use(), budget.peak()), (30, 30));
        drop(c);
        drop(budget.charge(20).unwrap());
        assert_eq!(budget.peak(), 30, "a smaller use is no peak");
        budget.charge(100).unwrap();
        assert!(budget.charge(u64::MAX).is_err());
    }

    #[test]
    fn runs_share_what_does_not_stay() {
        let stays = MemoryBudget::new("device memory", u64::MAX);
        let budget = MemoryBudget::of_engine("device memory", 100, Some(&stays));
        let there = stays.charge(30).unwrap();
        assert!(has_room(&budget, 70) && !has_room(&budget, 71));
        budget.reserve(50);
        assert!(budget.reserve_more(21).is_none());
        let more = budget.reserve_more(20).unwrap();
        assert!(budget.reserved() == 70 && !has_room(&budget, 1));
        drop(there);
        assert!(has_room(&budget, 30));
        drop(more);
        budget.release(50);
        // Reserved bytes are counted separately, because arrays are charged, too.
        let charged = budget.charge(1000).unwrap();
        assert!(budget.reserved() == 0 && has_room(&budget, 100));
        drop(charged);
    }
}
