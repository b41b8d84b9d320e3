//! The locks that threads use to wait for each other. `tests/schedules` compiles the files that use them a second
//! time, with shuttle's locks instead, and runs them under many schedules.

pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
