//! The runtime that the requests of all URLs share.

use std::convert::Infallible;
use std::io;
use std::process;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, available_parallelism};
use std::time::Duration;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{Semaphore, SemaphorePermit};

/// The most threads that decrypt what servers send. One thread decrypts more than 1 GB/s.
const THREADS: usize = 4;
/// The most requests at a time of the whole process: each has a connection, with its buffers.
const AT_ONCE: usize = 64;

/// Started with the first request. It lives as long as the process.
static RUNTIME: OfProcess<Runtime> = OfProcess::new();
static REQUESTS: OfProcess<Semaphore> = OfProcess::new();

/// A value that each process makes for itself. A process that was forked has the value of the other one, but not the
/// threads that work for it.
pub(super) struct OfProcess<T: 'static>(Mutex<Option<(u32, &'static T)>>);

impl<T> OfProcess<T> {
    pub(super) const fn new() -> OfProcess<T> {
        OfProcess(Mutex::new(None))
    }

    /// Returns the value of this process. That of another one is never dropped: this would wait for its threads.
    pub(super) fn get<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&'static T, E> {
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match *made {
            Some((process, value)) if process == process::id() => Ok(value),
            _ => {
                let value = Box::leak(Box::new(make()?));
                *made = Some((process::id(), value));
                Ok(value)
            }
        }
    }
}

fn runtime() -> io::Result<&'static Runtime> {
    RUNTIME.get(|| {
        let threads = available_parallelism().map_or(1, usize::from).min(THREADS);
        Builder::new_multi_thread().worker_threads(threads).thread_name("overshot-remote").enable_all().build()
    })
}

/// Waits until one more request may be sent.
pub(super) async fn permit() -> Option<SemaphorePermit<'static>> {
    let Ok(requests) = REQUESTS.get(|| Ok::<_, Infallible>(Semaphore::new(AT_ONCE)));
    requests.acquire().await.ok()
}

/// Waits before a request is sent again, as the crate object_store does.
pub(super) async fn pause(tries: usize) {
    tokio::time::sleep(Duration::from_millis(100 << tries.min(5))).await;
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
