//! The runtime that the requests of all URLs share.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, available_parallelism};
use tokio::runtime::{Builder, Handle, Runtime};

/// The most threads that decrypt what servers send. One thread decrypts more than 1 GB/s.
const THREADS: usize = 4;

/// Started with the first request. It lives as long as the process.
static RUNTIME: Mutex<Option<&'static Runtime>> = Mutex::new(None);

fn runtime() -> io::Result<&'static Runtime> {
    let mut own = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    match *own {
        Some(runtime) => Ok(runtime),
        None => {
            let threads = available_parallelism().map_or(1, usize::from).min(THREADS);
            let runtime = Builder::new_multi_thread()
                .worker_threads(threads)
                .thread_name("overshot-remote")
                .enable_all()
                .build()?;
            Ok(own.insert(Box::leak(Box::new(runtime))))
        }
    }
}

/// Runs a future, for which nobody waits here.
///
/// # Errors
/// If the system starts no more threads.
pub(super) fn start(future: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
    runtime()?.spawn(future);
    Ok(())
}

/// Waits for a future, on the calling thread.
///
/// # Errors
/// If the system starts no more threads.
pub(super) fn wait_for<F>(future: F) -> io::Result<F::Output>
where
    F: Future + Send,
    F::Output: Send,
{
    let runtime = runtime()?;
    // A thread of another runtime may not wait.
    if Handle::try_current().is_err() {
        return Ok(runtime.block_on(future));
    }
    thread::scope(|scope| {
        let waiting = thread::Builder::new().spawn_scoped(scope, || runtime.block_on(future))?;
        waiting.join().map_err(|_| io::Error::other("a request stopped with a panic"))
    })
}
