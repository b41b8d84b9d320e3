//! The threads of an engine. They stay for later runs: to start and to end a thread takes longer than a small job.
//!
//! A [call](ThreadPool::run) reserves a thread for each of its items before it begins, so items may wait for each
//! other, and concurrent calls never wait for each other's threads. When the call [wakes](Call::wake) its threads, the
//! caller wakes two, and each of them two others. The caller works too: it also takes the items that no thread has
//! reached when it has nothing left to do. So a small job does not wait for threads that wake late, and need not wake
//! any. Threads do not spin after a call: no small job became faster by that.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::vec::IntoIter;

use crate::error::Result;
use crate::sync::{Condvar, Mutex, MutexGuard, PoisonError, thread};
use crate::threads;

/// How many threads are woken by one that begins to work.
const WAKES: usize = 2;

/// A number of threads that wait for calls, as many as all concurrent calls have needed so far.
#[derive(Default)]
pub(crate) struct ThreadPool {
    shared: Arc<Shared>,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// A call wants threads, or the pool ends.
    called: Condvar,
    /// A thread has left a call.
    left: Condvar,
}

#[derive(Default)]
struct State {
    /// Threads that are not reserved for a call.
    idle: usize,
    calls: Vec<Entry>,
    /// The number of the newest call.
    newest: u64,
    has_ended: bool,
}

/// A call that has not returned.
struct Entry {
    number: u64,
    work: Work,
    /// Reserved threads that have not begun, and those that work.
    wanted: usize,
    inside: usize,
    is_awake: bool,
    /// The first panic of a thread.
    panic: Option<Box<dyn Any + Send>>,
}

/// A function that [`ThreadPool::run`] has on its stack.
#[derive(Clone, Copy)]
struct Work(*const (dyn Fn() + Sync));

// SAFETY: the function is `Sync`, so other threads may call it; `ThreadPool::run` keeps it until they have returned.
unsafe impl Send for Work {}

impl ThreadPool {
    /// Calls `before`, and then `work` with every item: the first one on this thread; the others, in their order, each
    /// on a thread of its own if [`Call::wake`] is called, otherwise on this thread, too. Returns when all work has
    /// ended.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if the system starts no more threads. Nothing was called then.
    ///
    /// # Panics
    /// If `before` or `work` panics.
    pub(crate) fn run<T: Send>(
        &self,
        items: Vec<T>,
        before: impl FnOnce(&Call<'_>),
        work: impl Fn(T, &Call<'_>) + Sync,
    ) -> Result<()> {
        let wanted = items.len().saturating_sub(1);
        let number = self.reserve(wanted)?;
        let call = Call { shared: &self.shared, number };
        let items = Items(Mutex::new(items.into_iter()));
        let next = || items.locked().next();
        let mut own = next();
        let on_thread = || {
            if let Some(item) = next() {
                work(item, &call);
            }
        };
        let open = Open::new(&call, &on_thread, wanted);
        // Dropped before `open`, whose drop waits for the threads that have begun.
        let _rest = items.dropped_at_end();
        before(&call);
        while let Some(item) = own {
            work(item, &call);
            own = next();
        }
        match open.end() {
            Some(panic) => resume_unwind(panic),
            None => Ok(()),
        }
    }

    /// Reserves threads, after it has started those that are missing. Returns the number of the call.
    fn reserve(&self, wanted: usize) -> Result<u64> {
        let mut state = self.shared.state();
        while state.idle < wanted {
            drop(state);
            self.start()?;
            state = self.shared.state();
        }
        state.idle -= wanted;
        state.newest += 1;
        Ok(state.newest)
    }

    /// Starts one more thread.
    fn start(&self) -> Result<()> {
        let shared = self.shared.clone();
        let thread = thread::Builder::new().name("overshot".into()).spawn(move || shared.serve());
        let thread = thread.map_err(|error| threads::not_started(&error))?;
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        self.shared.state().idle += 1;
        Ok(())
    }
}

/// The items that no thread has taken yet.
struct Items<T>(Mutex<IntoIter<T>>);

impl<T> Items<T> {
    fn locked(&self) -> MutexGuard<'_, IntoIter<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the items at the end of the scope. There are some if the caller panics. Other items may wait for them: a
    /// worker waits for its submitter until that is dropped.
    fn dropped_at_end(&self) -> impl Drop + '_ {
        struct AtEnd<'i, T>(&'i Items<T>);
        impl<T> Drop for AtEnd<'_, T> {
            fn drop(&mut self) {
                let rest = std::mem::replace(&mut *self.0.locked(), vec![].into_iter());
                // Not under the lock, because this is code of the caller.
                drop(rest);
            }
        }
        AtEnd(self)
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.shared.state().has_ended = true;
        self.shared.called.notify_all();
        for thread in self.threads.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // Panics of the work were passed to the caller.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // No code of the caller runs while the lock is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes threads for a call that wants so many.
    fn wake(&self, wanted: usize) {
        (0..wanted.min(WAKES)).for_each(|_| self.called.notify_one());
    }

    /// The loop of a thread: takes part in one call after the other.
    fn serve(&self) {
        let mut state = self.state();
        loop {
            let mut calls = state.calls.iter_mut();
            let Some(entry) = calls.find(|entry| entry.is_awake && entry.wanted > 0) else {
                if state.has_ended {
                    return;
                }
                state = self.called.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            entry.wanted -= 1;
            entry.inside += 1;
            let (number, work, wanted) = (entry.number, entry.work, entry.wanted);
            drop(state);
            self.wake(wanted);
            // SAFETY: the entry counts this thread as inside, so the end of the call waits until it has left.
            let result = catch_unwind(AssertUnwindSafe(|| unsafe { (*work.0)() }));
            state = self.state();
            state.idle += 1;
            if let Some(entry) = state.calls.iter_mut().find(|entry| entry.number == number) {
                entry.inside -= 1;
                match (result, &entry.panic) {
                    (Ok(()), _) => {}
                    (Err(panic), None) => entry.panic = Some(panic),
                    // Its destructor is code of the caller, which must not run here.
                    (Err(panic), Some(_)) => std::mem::forget(panic),
                }
            }
            self.left.notify_all();
        }
    }
}

/// A call of [`ThreadPool::run`].
pub(crate) struct Call<'p> {
    shared: &'p Shared,
    number: u64,
}

impl Call<'_> {
    /// Wakes the threads of this call. Call it once; more calls only cost time.
    pub(crate) fn wake(&self) {
        let mut state = self.shared.state();
        let Some(entry) = state.calls.iter_mut().find(|entry| entry.number == self.number) else { return };
        entry.is_awake = true;
        let wanted = entry.wanted;
        drop(state);
        self.shared.wake(wanted);
    }
}

/// A call that threads may join until this value ends.
struct Open<'c> {
    call: &'c Call<'c>,
}

impl<'c> Open<'c> {
    fn new(call: &'c Call<'c>, work: &'c (dyn Fn() + Sync + 'c), wanted: usize) -> Open<'c> {
        let work: *const (dyn Fn() + Sync + 'c) = work;
        // SAFETY: changes only the lifetime. This value borrows the function, and its end waits until no thread calls
        // the function any more.
        let work =
            Work(unsafe { std::mem::transmute::<*const (dyn Fn() + Sync + 'c), *const (dyn Fn() + Sync)>(work) });
        let entry = Entry { number: call.number, work, wanted, inside: 0, is_awake: false, panic: None };
        call.shared.state().calls.push(entry);
        Open { call }
    }

    /// Ends the call: threads that have not begun are not needed any more, and the others are waited for. Returns the
    /// first panic. Does nothing if the call has ended.
    fn end(&self) -> Option<Box<dyn Any + Send>> {
        let Call { shared, number } = *self.call;
        let mut state = shared.state();
        loop {
            let at = state.calls.iter().position(|entry| entry.number == number)?;
            let unused = std::mem::take(&mut state.calls[at].wanted);
            state.idle += unused;
            if state.calls[at].inside == 0 {
                return state.calls.swap_remove(at).panic;
            }
            state = shared.left.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        // Also if the caller panics: the function is on its stack.
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::{Receiver, Sender, bounded};

    fn threads_of(pool: &ThreadPool) -> (usize, usize) {
        (pool.threads.lock().unwrap().len(), pool.shared.state().idle)
    }

    /// Calls with items that wait for each other: each sends to the next one, and waits for the one before.
    fn ring(pool: &ThreadPool, items: usize) {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..items).map(|_| bounded(1)).unzip();
        let next = senders.into_iter().cycle().skip(1).take(items).collect::<Vec<Sender<()>>>();
        let ends: Vec<(Sender<()>, Receiver<()>)> = next.into_iter().zip(receivers).collect();
        let work = |(to, from): (Sender<()>, Receiver<()>), _: &Call<'_>| {
            to.try_send(()).unwrap();
            from.recv().unwrap();
        };
        pool.run(ends, |call| call.wake(), work).unwrap();
    }

    #[test]
    fn items_may_wait_for_each_other_and_threads_are_used_again() {
        let pool = ThreadPool::default();
        for items in [0, 1, 2, 5, 3, 5] {
            ring(&pool, items);
        }
        assert_eq!(threads_of(&pool), (4, 4));
        thread::scope(|scope| {
            for items in [2, 3, 7] {
                let pool = &pool;
                scope.spawn(move || (0..50).for_each(|_| ring(pool, items)));
            }
        });
        let (threads, idle) = threads_of(&pool);
        assert!((6..=9).contains(&threads) && idle == threads, "{threads} threads, {idle} idle");
    }

    #[test]
    fn a_call_that_wakes_no_thread_does_everything_itself() {
        let pool = ThreadPool::default();
        let order = Mutex::new(vec![]);
        let caller = thread::current().id();
        let work = |item: usize, _: &Call<'_>| {
            assert_eq!(thread::current().id(), caller);
            order.lock().unwrap().push(item);
        };
        pool.run((0..4).collect(), |_| {}, work).unwrap();
        assert_eq!(order.into_inner().unwrap(), [0, 1, 2, 3]);
        assert_eq!(threads_of(&pool), (3, 3));
    }

    #[test]
    fn items_that_nobody_has_taken_are_dropped_if_the_caller_panics() {
        let pool = ThreadPool::default();
        let (begun, has_begun) = bounded(1);
        let (never_sends, waits) = bounded::<()>(1);
        enum Item {
            Panics(Receiver<()>),
            Waits(Sender<()>, Receiver<()>),
            IsWaitedFor(#[allow(dead_code, reason = "its drop ends the wait")] Sender<()>),
        }
        let items = vec![Item::Panics(has_begun), Item::Waits(begun, waits), Item::IsWaitedFor(never_sends)];
        let work = |item: Item, call: &Call<'_>| match item {
            Item::Panics(has_begun) => {
                // One thread joins, as if the other were late.
                let mut state = call.shared.state();
                state.calls[0].wanted = 1;
                state.idle += 1;
                drop(state);
                call.wake();
                has_begun.recv().unwrap();
                panic!("planned");
            }
            Item::Waits(begun, waits) => {
                begun.try_send(()).unwrap();
                assert!(waits.recv().is_err());
            }
            Item::IsWaitedFor(_) => unreachable!("no thread takes it"),
        };
        let run = catch_unwind(AssertUnwindSafe(|| pool.run(items, |_| {}, work)));
        assert!(run.is_err());
        assert_eq!(threads_of(&pool), (2, 2));
    }

    #[test]
    fn a_panic_reaches_the_caller_after_all_others_have_ended() {
        for panics in 0..3 {
            let pool = ThreadPool::default();
            let ended = Mutex::new(0);
            let work = |item: usize, _: &Call<'_>| {
                assert_ne!(item, panics, "a planned panic");
                *ended.lock().unwrap() += 1;
            };
            let run = catch_unwind(AssertUnwindSafe(|| pool.run((0..3).collect(), |call| call.wake(), work)));
            assert!(run.is_err());
            // The caller does the first item itself. If it panics, it may leave out the others.
            assert!(*ended.lock().unwrap() >= i32::from(panics > 0));
            assert_eq!(threads_of(&pool), (2, 2));
            ring(&pool, 3);
        }
    }
}
