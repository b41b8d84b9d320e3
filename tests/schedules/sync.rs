//! Stands in for the library's `sync.rs`: the same locks and channels, on the locks of shuttle.

use std::cell::Cell;
use std::collections::VecDeque;
use std::time::Duration;

use shuttle::sync::atomic::{AtomicBool, Ordering};
use shuttle::sync::{Arc, LockResult};

pub use crossbeam::channel::{RecvError, TryRecvError, TrySendError};
pub use shuttle::sync::{Mutex, MutexGuard};
pub use shuttle::thread;
pub use std::sync::PoisonError;

thread_local! {
    /// The time-outs that are left; `None` if there are none. All threads of a schedule run on one thread.
    static TIMEOUTS: Cell<Option<u32>> = const { Cell::new(None) };
}

/// The most time-outs of a schedule. A thread that waits for ever uses them up.
const MOST_TIMEOUTS: u32 = 2000;

/// Runs one schedule with timed waits that may time out at any moment. Otherwise they never time out, so that a
/// missing notification is a deadlock.
pub fn with_timeouts(schedule: impl FnOnce()) {
    TIMEOUTS.set(Some(MOST_TIMEOUTS));
    schedule();
    TIMEOUTS.set(None);
}

/// A condition variable whose timed waits can time out, which those of shuttle never do.
#[derive(Debug, Default)]
pub struct Condvar(Arc<shuttle::sync::Condvar>);

impl Condvar {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        self.0.wait(guard)
    }

    pub fn wait_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<MutexGuard<'a, T>> {
        self.0.wait_while(guard, condition)
    }

    /// A time-out looks like a wake-up without a reason, which every caller must expect.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        _time: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, ())> {
        let woken = Arc::new(AtomicBool::new(false));
        if let Some(left) = TIMEOUTS.get() {
            TIMEOUTS.set(Some(left.checked_sub(1).expect("a thread waits for ever")));
            let (woken, condvar) = (woken.clone(), self.0.clone());
            thread::spawn(move || {
                while !woken.load(Ordering::SeqCst) {
                    condvar.notify_all();
                    thread::yield_now();
                }
            });
        }
        let guard = self.0.wait(guard).unwrap_or_else(PoisonError::into_inner);
        woken.store(true, Ordering::SeqCst);
        Ok((guard, ()))
    }

    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// A value that is set once. Every call is one step of a schedule.
#[derive(Debug, Default)]
pub struct OnceLock<T> {
    value: std::sync::OnceLock<T>,
    lock: Mutex<()>,
    set: Condvar,
}

impl<T> From<T> for OnceLock<T> {
    fn from(value: T) -> Self {
        OnceLock { value: value.into(), lock: Mutex::new(()), set: Condvar::new() }
    }
}

impl<T> OnceLock<T> {
    pub fn get(&self) -> Option<&T> {
        let _step = self.lock.lock().unwrap();
        self.value.get()
    }

    pub fn get_or_init(&self, init: impl FnOnce() -> T) -> &T {
        let step = self.lock.lock().unwrap();
        let value = self.value.get_or_init(init);
        drop(step);
        self.set.notify_all();
        value
    }

    pub fn wait(&self) -> &T {
        let step = self.lock.lock().unwrap();
        let _step = self.set.wait_while(step, |()| self.value.get().is_none()).unwrap();
        self.value.get().unwrap()
    }
}

/// Creates a channel of limited capacity.
pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let state = State { queue: VecDeque::new(), senders: 1, has_receiver: true };
    let channel = Arc::new(Channel { state: Mutex::new(state), changed: Condvar::new(), capacity });
    (Sender(channel.clone()), Receiver(channel))
}

struct Channel<T> {
    state: Mutex<State<T>>,
    /// Signalled when there is a value, and when a sender is dropped.
    changed: Condvar,
    capacity: usize,
}

struct State<T> {
    queue: VecDeque<T>,
    senders: usize,
    has_receiver: bool,
}

impl<T> Channel<T> {
    /// A worker that panics drops its ends as well.
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub struct Sender<T>(Arc<Channel<T>>);

impl<T> Sender<T> {
    /// # Panics
    /// If the channel is full: capacity is part of the contract of the hand-over.
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        let mut state = self.0.state();
        if !state.has_receiver {
            return Err(TrySendError::Disconnected(value));
        }
        assert!(state.queue.len() < self.0.capacity, "a channel overflows");
        state.queue.push_back(value);
        drop(state);
        self.0.changed.notify_one();
        Ok(())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.state().senders += 1;
        Sender(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.state().senders -= 1;
        self.0.changed.notify_one();
    }
}

pub struct Receiver<T>(Arc<Channel<T>>);

impl<T> Receiver<T> {
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        let mut state = self.0.state();
        match state.queue.pop_front() {
            Some(value) => Ok(value),
            None if state.senders > 0 => Err(TryRecvError::Empty),
            None => Err(TryRecvError::Disconnected),
        }
    }

    pub fn recv(&self) -> Result<T, RecvError> {
        let waits = |state: &mut State<T>| state.queue.is_empty() && state.senders > 0;
        let state = self.0.changed.wait_while(self.0.state(), waits);
        state.unwrap_or_else(PoisonError::into_inner).queue.pop_front().ok_or(RecvError)
    }

    pub fn is_empty(&self) -> bool {
        self.0.state().queue.is_empty()
    }

    pub fn capacity(&self) -> Option<usize> {
        Some(self.0.capacity)
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.0.state().has_receiver = false;
    }
}
