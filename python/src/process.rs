//! Values that a process made, and that a process that is forked from it must not drop.

use std::mem::ManuallyDrop;
use std::process;

/// A value whose drop would wait for threads, or call a driver, that exist only in the process that made it.
pub(crate) struct OfProcess<T> {
    value: ManuallyDrop<T>,
    process: u32,
}

impl<T> OfProcess<T> {
    pub(crate) fn new(value: T) -> Self {
        OfProcess { value: ManuallyDrop::new(value), process: process::id() }
    }

    /// Whether this process made it.
    pub(crate) fn is_own(&self) -> bool {
        self.process == process::id()
    }

    pub(crate) fn get(&self) -> &T {
        &self.value
    }
}

impl<T> Drop for OfProcess<T> {
    fn drop(&mut self) {
        if self.is_own() {
            // SAFETY: it is dropped only here, and nothing uses it afterwards.
            unsafe { ManuallyDrop::drop(&mut self.value) }
        }
    }
}
