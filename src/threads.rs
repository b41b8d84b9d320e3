//! Threads of Overshot for a few pieces of work.
//!
//! Jobs never use rayon's global pool: it belongs to the calling program, whose jobs may block all of its threads
//! until they are done.

use std::io;
use std::thread;

use crate::error::{Error, Result};

/// Executes all pieces of work concurrently: the first on this thread, each of the others on a new one.
///
/// # Errors
/// Returns the first error of the work, or [`Error::Device`] if the system starts no more threads. All work has
/// ended when this function returns.
pub(crate) fn each<T: Send>(pieces: Vec<T>, work: impl Fn(T) -> Result<()> + Sync) -> Result<()> {
    let mut pieces = pieces.into_iter();
    let Some(first) = pieces.next() else { return Ok(()) };
    let work = &work;
    thread::scope(|scope| {
        let start = |piece| thread::Builder::new().spawn_scoped(scope, move || work(piece));
        let threads: Vec<_> = pieces.map(start).collect();
        let first = work(first);
        let join = |thread: io::Result<thread::ScopedJoinHandle<'_, Result<()>>>| match thread {
            Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(error) => Err(not_started(&error)),
        };
        threads.into_iter().map(join).fold(first, Result::and)
    })
}

/// Returns the error for a thread that the system does not start.
pub(crate) fn not_started(error: &io::Error) -> Error {
    Error::Device {
        device: "host".into(),
        problem: format!("cannot start a thread ({error})"),
        remedy: "run fewer jobs at once, use fewer workers, or raise the system's limit on threads (`ulimit -u`)"
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_is_done_and_the_first_error_is_told() {
        let mut done = [0; 5];
        each(done.iter_mut().enumerate().collect(), |(k, done)| {
            *done = k + 1;
            Ok(())
        })
        .unwrap();
        assert_eq!(done, [1, 2, 3, 4, 5]);
        let failed = each(vec![1, 2, 3, 4], |k| match k {
            1 => Ok(()),
            k => Err(Error::other(k.to_string())),
        });
        assert!(failed.unwrap_err().to_string() == "2");
        each(Vec::<u8>::new(), |_| Ok(())).unwrap();
    }
}
