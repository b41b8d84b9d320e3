//! Values that a process made, and that a process that is forked from it must not drop.

use std::mem::ManuallyDrop;
use std::process;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::PyResult;

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
    fn is_own(&self) -> bool {
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

/// A value that each process makes when it first needs it, also one that was forked from a process that has it.
pub(crate) struct OncePerProcess<T>(Mutex<Option<OfProcess<Arc<T>>>>);

impl<T> Default for OncePerProcess<T> {
    fn default() -> Self {
        OncePerProcess(Mutex::new(None))
    }
}

impl<T> OncePerProcess<T> {
    /// Returns the value of this process. Called only with the interpreter's lock, so no other thread holds the mutex
    /// while the process forks.
    pub(crate) fn get_or_make(&self, make: impl FnOnce() -> PyResult<T>) -> PyResult<Arc<T>> {
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = made.as_ref().filter(|made| made.is_own()) {
            return Ok(made.get().clone());
        }
        let value = Arc::new(make()?);
        *made = Some(OfProcess::new(value.clone()));
        Ok(value)
    }
}
