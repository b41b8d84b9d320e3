//! Admission control: concurrent runs together use no more memory than their engine may use. A run waits until
//! enough memory is free.
//!
//! A run reserves the memory that its plan needs on all devices at once, before it allocates anything. A waiting
//! run therefore holds nothing that another run waits for. Runs are admitted in order of arrival; the first run in
//! the queue blocks the runs behind it, so that no run waits forever.
//!
//! A nested run, which begins within another run (in a source, a sink or a progress function), never waits: the
//! outer run would wait for it, and it would wait for the memory of the outer run. Its memory is counted, and all
//! runs together may then exceed the limit.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::MemoryBudget;
use crate::error::{Error, Result};
use crate::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The interval at which a waiting run checks whether it is still needed, and whether arrays have freed memory.
const LOOK: Duration = Duration::from_millis(10);

/// The runs of an engine that have memory, and those that wait for it.
#[derive(Debug, Default)]
pub(crate) struct AdmissionQueue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The number of the next run that arrives.
    next: u64,
    /// The numbers of the waiting runs.
    waiting: BTreeSet<u64>,
    /// The number of runs that have memory.
    runs: usize,
}

/// The bytes that a run needs of one budget of the engine.
pub(crate) type Need = (Arc<MemoryBudget>, u64);

/// How a run is admitted relative to the other runs of its engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Admission {
    /// Whether the run begins within another run.
    pub(crate) nested: bool,
    /// Whether the run waits until no other run has memory. It found too little memory beside other runs.
    pub(crate) alone: bool,
    /// Its place in the queue, if it had one before.
    pub(crate) place: Option<u64>,
}

/// Memory that is reserved for a run until this value is dropped.
#[derive(Debug)]
pub(crate) struct Admitted {
    queue: Arc<AdmissionQueue>,
    needs: Vec<Need>,
    /// Its place in the queue.
    pub(crate) place: u64,
}

impl AdmissionQueue {
    /// Waits until enough memory is free for a run, and reserves it. If no other run has memory, the run gets
    /// whatever it needs, because its plan respects the limits.
    ///
    /// # Errors
    /// Returns the error of `given_up`, which is called repeatedly while the run waits.
    pub(crate) fn admit(
        self: &Arc<Self>,
        needs: Vec<Need>,
        Admission { nested, alone, place }: Admission,
        given_up: impl Fn() -> Option<Error>,
    ) -> Result<Admitted> {
        let mut state = self.state();
        let place = place.unwrap_or(state.next);
        state.next = state.next.max(place + 1);
        state.waiting.insert(place);
        loop {
            let is_first = state.waiting.first() == Some(&place);
            if nested || is_first && state.runs == 0 {
                needs.iter().for_each(|(budget, bytes)| budget.reserve(*bytes));
                break;
            }
            if is_first && !alone && try_reserve(&needs) {
                break;
            }
            if let Some(error) = given_up() {
                state.waiting.remove(&place);
                self.changed.notify_all();
                return Err(error);
            }
            (state, _) = self.changed.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner);
        }
        state.waiting.remove(&place);
        state.runs += 1;
        // There may be enough memory for the next run in the queue, too.
        self.changed.notify_all();
        drop(state);
        Ok(Admitted { queue: self.clone(), needs, place })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic cannot leave a partial change, because every change is complete before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reserves all that a run needs, or nothing if any budget lacks the bytes. Each budget checks and counts in one
/// step, because a run that takes a cached piece of memory adds to a budget without the lock of the queue.
fn try_reserve(needs: &[Need]) -> bool {
    let missing = needs.iter().position(|(budget, bytes)| !budget.try_reserve(*bytes));
    if let Some(missing) = missing {
        needs[..missing].iter().for_each(|(budget, bytes)| budget.release(*bytes));
    }
    missing.is_none()
}

impl Admitted {
    /// Replaces the reservation. A run uses this when it found too little memory and continues with less.
    pub(crate) fn change(&mut self, needs: Vec<Need>) {
        // Under the lock, so that no other run is admitted in between.
        let state = self.queue.state();
        self.needs.iter().for_each(|(budget, bytes)| budget.release(*bytes));
        needs.iter().for_each(|(budget, bytes)| budget.reserve(*bytes));
        self.needs = needs;
        drop(state);
        self.queue.changed.notify_all();
    }

    /// Returns whether other runs have memory, too.
    pub(crate) fn has_others(&self) -> bool {
        self.queue.state().runs > 1
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut state = self.queue.state();
        state.runs -= 1;
        self.needs.iter().for_each(|(budget, bytes)| budget.release(*bytes));
        self.queue.changed.notify_all();
    }
}

thread_local! {
    static IN_RUN: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread as working for a run until the value is dropped. A run that begins on such a thread is nested.
pub(crate) struct InRun {
    was: bool,
}

impl InRun {
    pub(crate) fn enter() -> Self {
        InRun { was: IN_RUN.replace(true) }
    }

    /// Returns whether this thread works for a run.
    pub(crate) fn is_entered() -> bool {
        IN_RUN.get()
    }
}

impl Drop for InRun {
    fn drop(&mut self) {
        IN_RUN.set(self.was);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    fn budget(limit: u64) -> Arc<MemoryBudget> {
        MemoryBudget::of_engine("memory", limit, None)
    }

    fn never() -> Option<Error> {
        None
    }

    #[test]
    fn runs_at_once_stay_within_the_limit_and_all_are_admitted() {
        let (queue, a, b) = (Arc::<AdmissionQueue>::default(), budget(100), budget(10));
        thread::scope(|scope| {
            for k in 0..16u64 {
                let (queue, a, b) = (&queue, &a, &b);
                scope.spawn(move || {
                    for round in 0..50 {
                        let needs = vec![(a.clone(), 1 + (k * 37 + round) % 100), (b.clone(), (k + round) % 11)];
                        let reserved = queue.admit(needs, Admission::default(), never).unwrap();
                        assert!(a.reserved() <= 100 && b.reserved() <= 10);
                        thread::yield_now();
                        drop(reserved);
                    }
                });
            }
        });
        assert_eq!((a.reserved(), b.reserved()), (0, 0));
    }

    #[test]
    fn who_comes_first_is_admitted_first() {
        let (queue, budget) = (Arc::<AdmissionQueue>::default(), budget(100));
        let first = queue.admit(vec![(budget.clone(), 60)], Admission::default(), never).unwrap();
        let (admitted, order) = channel();
        thread::scope(|scope| {
            // The second run needs all of the memory. The third would fit beside the first, but is behind the
            // second.
            for (number, bytes) in [(2, 100), (3, 10)] {
                let (queue, budget, admitted) = (&queue, &budget, admitted.clone());
                scope.spawn(move || {
                    let reserved = queue.admit(vec![(budget.clone(), bytes)], Admission::default(), never).unwrap();
                    admitted.send(number).unwrap();
                    drop(reserved);
                });
                while queue.state().waiting.len() < number - 1 {
                    thread::yield_now();
                }
            }
            assert!(order.try_recv().is_err());
            drop(first);
            assert_eq!((order.recv().unwrap(), order.recv().unwrap()), (2, 3));
        });
    }

    #[test]
    fn a_nested_run_does_not_wait_and_one_that_is_given_up_leaves_the_line() {
        let (queue, budget) = (Arc::<AdmissionQueue>::default(), budget(100));
        let needs = || vec![(budget.clone(), 80)];
        let outer = queue.admit(needs(), Admission::default(), never).unwrap();
        let nested = queue.admit(needs(), Admission { nested: true, ..Admission::default() }, never).unwrap();
        assert!(budget.reserved() == 160 && nested.has_others());
        drop(nested);
        assert!(!outer.has_others());
        let cancelled = queue.admit(needs(), Admission::default(), || Some(Error::Cancelled { done: 0, rows: 1 }));
        assert!(matches!(cancelled, Err(Error::Cancelled { .. })) && queue.state().waiting.is_empty());
        assert_eq!(budget.reserved(), 80);
    }

    #[test]
    fn who_has_to_be_alone_keeps_its_place() {
        let (queue, budget) = (Arc::<AdmissionQueue>::default(), budget(100));
        let needs = |bytes| vec![(budget.clone(), bytes)];
        let other = queue.admit(needs(10), Admission::default(), never).unwrap();
        let first = queue.admit(needs(10), Admission::default(), never).unwrap();
        let place = Some(first.place);
        let later = queue.admit(needs(10), Admission::default(), never).unwrap();
        drop(first);
        let is_alone = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let admission = Admission { alone: true, place, ..Admission::default() };
                let reserved = queue.admit(needs(10), admission, never).unwrap();
                is_alone.store(true, Ordering::SeqCst);
                assert!(!reserved.has_others() && budget.reserved() == 10);
            });
            while queue.state().waiting.is_empty() {
                thread::yield_now();
            }
            drop(other);
            assert!(!is_alone.load(Ordering::SeqCst));
            drop(later);
        });
        assert!(is_alone.into_inner());
    }

    #[test]
    fn who_leaves_to_be_alone_is_still_before_those_who_came_later() {
        let (queue, budget) = (Arc::<AdmissionQueue>::default(), budget(100));
        let needs = |bytes| vec![(budget.clone(), bytes)];
        let other = queue.admit(needs(50), Admission::default(), never).unwrap();
        let first = queue.admit(needs(10), Admission::default(), never).unwrap();
        let (admitted, order) = channel();
        let waits = |admission: Admission, bytes: u64, name: &'static str| {
            let reserved = queue.admit(needs(bytes), admission, never).unwrap();
            admitted.send(name).unwrap();
            drop(reserved);
        };
        let in_line = |count: usize| {
            while queue.state().waiting.len() < count {
                thread::yield_now();
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| waits(Admission::default(), 95, "later"));
            in_line(1);
            let again = Admission { alone: true, place: Some(first.place), ..Admission::default() };
            scope.spawn(move || waits(again, 10, "first"));
            in_line(2);
            drop(first);
            drop(other);
        });
        assert_eq!([order.recv().unwrap(), order.recv().unwrap()], ["first", "later"]);
    }

    #[test]
    fn a_thread_works_for_a_run_until_the_outermost_ends() {
        assert!(!InRun::is_entered());
        let outer = InRun::enter();
        drop(InRun::enter());
        assert!(InRun::is_entered());
        drop(outer);
        assert!(!InRun::is_entered());
    }
}
