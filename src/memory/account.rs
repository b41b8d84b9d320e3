//! Counts bytes against a limit: those of a run, and those of an engine, which has none.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Result};

/// Bytes in use of one kind of memory, their peak, and the limit that they never pass.
#[derive(Debug)]
pub(crate) struct Account {
    what: &'static str,
    limit: u64,
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    now: u64,
    peak: u64,
}

impl Account {
    /// An account for `what` (as in "device memory") of at most `limit` bytes.
    pub(crate) fn new(what: &'static str, limit: u64) -> Arc<Self> {
        Arc::new(Account { what, limit, used: Mutex::default() })
    }

    /// Books `bytes` until the result is dropped.
    ///
    /// # Errors
    /// [`Error::Budget`] if the limit would be passed; nothing is booked then.
    pub(crate) fn book(self: &Arc<Self>, bytes: u64) -> Result<Booked> {
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
        Ok(Booked { account: Arc::clone(self), bytes })
    }

    /// The limit.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// The bytes that are booked now.
    pub(crate) fn in_use(&self) -> u64 {
        self.used().now
    }

    /// The most bytes that were booked at once.
    pub(crate) fn peak(&self) -> u64 {
        self.used().peak
    }

    /// Lets the peak begin anew with what is booked now.
    pub(crate) fn reset_peak(&self) {
        let mut used = self.used();
        used.peak = used.now;
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        // Two numbers that are set together cannot be left inconsistent by a panic elsewhere.
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes booked on an account; given back on drop.
#[derive(Debug)]
pub(crate) struct Booked {
    account: Arc<Account>,
    bytes: u64,
}

impl Drop for Booked {
    fn drop(&mut self) {
        self.account.used().now -= self.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_limit_and_remembers_the_peak() {
        let account = Account::new("device memory", 100);
        let a = account.book(60).unwrap();
        assert!(matches!(account.book(41), Err(Error::Budget { needed: 101, limit: 100, .. })));
        let b = account.book(40).unwrap();
        drop(a);
        drop(b);
        assert_eq!((account.in_use(), account.peak()), (0, 100));
        let c = account.book(30).unwrap();
        account.reset_peak();
        assert_eq!((account.in_use(), account.peak()), (30, 30));
        drop(c);
        account.book(100).unwrap();
        assert!(account.book(u64::MAX).is_err());
    }
}
