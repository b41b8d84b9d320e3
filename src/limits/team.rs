//! A team of threads that share pieces of work, and the timing of runs.

use std::io;
use std::sync::{Mutex, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

/// Runs of a measurement, of which the best is used.
const RUNS: usize = 3;
/// The minimum number of runs, even on a slow machine, because a single run may have been disturbed.
const LEAST_RUNS: usize = 2;
/// The time after which no more than the minimum number of runs are made, so that slow machines finish soon, too.
const ENOUGH: Duration = Duration::from_millis(120);

/// Returns the bytes per second of the best of a few runs. Each run returns the seconds that it took for `bytes`.
pub(super) fn best<E>(bytes: u64, mut run: impl FnMut() -> Result<f64, E>) -> Result<f64, E> {
    let (begin, mut least) = (Instant::now(), f64::INFINITY);
    for number in 1..=RUNS {
        least = least.min(run()?);
        if number >= LEAST_RUNS && begin.elapsed() > ENOUGH {
            break;
        }
    }
    // With a coarse clock, no time may seem to have passed.
    Ok(bytes as f64 / least.max(1e-9))
}

/// Returns 1, 2, 4, … and the number of cores.
pub(super) fn thread_counts(cores: usize) -> Vec<usize> {
    let powers = (0..usize::BITS).map(|power| 1 << power).take_while(|&threads| threads < cores);
    powers.chain([cores.max(1)]).collect()
}

/// Runs one thread per member of the team; each takes pieces until none are left. Returns the seconds, as
/// [`together`] does.
pub(super) fn seconds<M: Send, I: Iterator + Send>(
    team: &mut [M],
    pieces: I,
    work: impl Fn(&mut M, I::Item) -> io::Result<()> + Sync,
) -> io::Result<f64> {
    let pieces = Mutex::new(pieces);
    // The lock is released before the work.
    let next = || pieces.lock().unwrap_or_else(PoisonError::into_inner).next();
    together(team, |member| {
        while let Some(piece) = next() {
            work(member, piece)?;
        }
        Ok(())
    })
}

/// Runs every member of the team on its own thread. Returns the seconds from the begin of the first member to the end
/// of the last. The threads are started before.
pub(super) fn together<M: Send, E: From<io::Error> + Send>(
    team: &mut [M],
    work: impl Fn(&mut M) -> Result<(), E> + Sync,
) -> Result<f64, E> {
    let gate = RwLock::new(());
    let labour = |member: &mut M| {
        drop(gate.read());
        let begin = Instant::now();
        work(member).map(|()| (begin, Instant::now()))
    };
    let spans: Vec<Result<(Instant, Instant), E>> = thread::scope(|scope| {
        let closed = gate.write();
        let threads = team.iter_mut().map(|member| thread::Builder::new().spawn_scoped(scope, || labour(member)));
        let threads: Vec<_> = threads.collect();
        drop(closed);
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(|thread| join(thread?)).collect()
    });
    let spans = spans.into_iter().collect::<Result<Vec<_>, E>>()?;
    let begin = spans.iter().map(|span| span.0).min();
    let end = spans.iter().map(|span| span.1).max();
    Ok(begin.zip(end).map_or(0.0, |(begin, end)| end.duration_since(begin).as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_is_done_once() {
        let mut done = vec![0; 1000];
        let mut team = [0; 3];
        let time = seconds(&mut team, done.iter_mut(), |count, piece| {
            *piece += 1;
            *count += 1;
            Ok(())
        });
        assert!(time.unwrap() >= 0.0);
        assert!(done.iter().all(|&times| times == 1));
        assert_eq!(team.iter().sum::<usize>(), 1000);
    }

    #[test]
    fn an_error_ends_the_work() {
        let failing = seconds(&mut [(); 2], 0..u64::MAX, |(), piece| match piece {
            5.. => Err(io::Error::other("no")),
            _ => Ok(()),
        });
        assert!(failing.is_err());
    }

    #[test]
    fn counts_of_threads() {
        assert_eq!(thread_counts(1), [1]);
        assert_eq!(thread_counts(2), [1, 2]);
        assert_eq!(thread_counts(6), [1, 2, 4, 6]);
        assert_eq!(thread_counts(16), [1, 2, 4, 8, 16]);
        assert_eq!(thread_counts(0), [1]);
    }
}
