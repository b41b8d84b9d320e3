//! The locks and channels that threads use to wait for each other. `tests/schedules` compiles the files that use them
//! a second time, with those of shuttle instead, and runs them under many schedules.

pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
pub(crate) use std::thread;

pub(crate) use crossbeam::channel::{Receiver, Sender, TryRecvError, bounded};
