//! The locks of what threads wait for each other with. `tests/schedules` builds these files a second time, with shuttle's locks in
//! their place, and runs them under schedules of every kind.

pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
