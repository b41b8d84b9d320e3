//! Counts bytes: those of a run against its limit; those of an engine, of which its runs reserve what they need.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Result};

/// Bytes in use of one kind of memory, their peak, and the limit that they never pass.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    what: &'static str,
    limit: u64,
    used: Mutex<Used>,
    /// What all runs of an engine may have together, less what the other budget has.
    for_runs: (u64, Option<Arc<MemoryBudget>>),
}

#[derive(Debug, Default)]
struct Used {
    now: u64,
    peak: u64,
    /// What is set aside for runs, whether they took it or not.
    reserved: u64,
}

impl MemoryBudget {
    /// A budget for `what` (as in "device memory") of at most `limit` bytes.
    pub(crate) fn new(what: &'static str, limit: u64) -> Arc<Self> {
        Arc::new(MemoryBudget { what, limit, used: Mutex::default(), for_runs: (u64::MAX, None) })
    }

    /// A budget of an engine, of which all its runs may have `for_runs` bytes together, less what `stays` has. That is a matter of
    /// what they reserve: not everything that is reserved is for runs.
    pub(crate) fn of_engine(what: &'static str, for_runs: u64, stays: Option<&Arc<MemoryBudget>>) -> Arc<Self> {
        Arc::new(MemoryBudget { what, limit: u64::MAX, used: Mutex::default(), for_runs: (for_runs, stays.cloned()) })
    }

    /// The bytes that all runs may have together now.
    pub(crate) fn for_runs(&self) -> u64 {
        let (bytes, stays) = &self.for_runs;
        bytes.saturating_sub(stays.as_ref().map_or(0, |stays| stays.in_use()))
    }

    /// The bytes that are set aside for runs.
    pub(crate) fn reserved(&self) -> u64 {
        self.used().reserved
    }

    /// Whether so many bytes more can be set aside.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        self.reserved().saturating_add(bytes) <= self.for_runs()
    }

    /// Sets bytes aside.
    pub(super) fn set_aside(&self, bytes: u64) {
        self.used().reserved += bytes;
    }

    /// Sets more bytes aside for a run that has some, if there are any left.
    pub(super) fn reserve_more(self: &Arc<Self>, bytes: u64) -> Option<More> {
        let for_runs = self.for_runs();
        let mut used = self.used();
        let fits = used.reserved.saturating_add(bytes) <= for_runs;
        fits.then(|| {
            used.reserved += bytes;
            More { budget: self.clone(), bytes }
        })
    }

    /// Undoes [`reserve`](MemoryBudget::reserve).
    pub(super) fn release(&self, bytes: u64) {
        self.used().reserved -= bytes;
    }

    /// Books `bytes` until the result is dropped.
    ///
    /// # Errors
    /// [`Error::Budget`] if the limit would be passed; nothing is reserved then.
    pub(crate) fn reserve(self: &Arc<Self>, bytes: u64) -> Result<Reservation> {
        let mut used = self.used();
        let now = used.now.saturating_add(bytes);
        if now > self.limit {
            return Err(Error::Budget {
                what: self.what,
                limit: self.limit,
                needed: now,
                remedy: "this is a defect of the plan, which should have kept the limit: please report it".into(),
            });
        }
        used.now = now;
        used.peak = used.peak.max(now);
        drop(used);
        Ok(Reservation { budget: Arc::clone(self), bytes })
    }

    /// The limit.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// The bytes that are reserved now.
    pub(crate) fn in_use(&self) -> u64 {
        self.used().now
    }

    /// The most bytes that were reserved at once.
    pub(crate) fn peak(&self) -> u64 {
        self.used().peak
    }

    /// Lets the peak begin anew with what is reserved now.
    pub(crate) fn reset_peak(&self) {
        let mut used = self.used();
        used.peak = used.now;
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        // Two numbers that are set together cannot be left inconsistent by a panic elsewhere.
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes reserved on a budget; given back on drop.
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

/// Bytes that were set aside beside those that a run had reserved; given back on drop.
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
        budget.reserve(100).unwrap();
        assert!(budget.reserve(u64::MAX).is_err());
    }

    #[test]
    fn runs_share_what_does_not_stay() {
        let stays = MemoryBudget::new("device memory", u64::MAX);
        let budget = MemoryBudget::of_engine("device memory", 100, Some(&stays));
        let there = stays.reserve(30).unwrap();
        assert!(budget.has_room(70) && !budget.has_room(71));
        budget.set_aside(50);
        assert!(budget.reserve_more(21).is_none());
        let more = budget.reserve_more(20).unwrap();
        assert!(budget.reserved() == 70 && !budget.has_room(1));
        drop(there);
        assert!(budget.has_room(30));
        drop(more);
        budget.release(50);
        // What is reserved is another matter: arrays are, too.
        let reserved = budget.reserve(1000).unwrap();
        assert!(budget.reserved() == 0 && budget.has_room(100));
        drop(reserved);
    }
}
