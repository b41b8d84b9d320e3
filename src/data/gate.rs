//! A counting semaphore.

use crate::sync::{Condvar, Mutex, PoisonError};

/// Limits the number of threads that are inside at the same time; the others wait.
#[derive(Debug)]
pub(super) struct Gate {
    free: Mutex<usize>,
    freed: Condvar,
}

/// A permit of the gate. Dropping it leaves the gate.
#[derive(Debug)]
pub(super) struct Pass<'g>(&'g Gate);

impl Gate {
    pub(super) fn new(width: usize) -> Self {
        Gate { free: Mutex::new(width), freed: Condvar::new() }
    }

    pub(super) fn enter(&self) -> Pass<'_> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free = self.freed.wait_while(free, |free| *free == 0).unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        Pass(self)
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn never_more_than_its_width_are_inside() {
        let (gate, inside, entered) = (Gate::new(2), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let _pass = gate.enter();
                        assert!(inside.fetch_add(1, Ordering::SeqCst) < 2);
                        entered.fetch_add(1, Ordering::SeqCst);
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(entered.into_inner(), 1600);
    }
}
