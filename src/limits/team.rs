//! A team of threads that begin at the same moment, and the runs of a measurement.

use std::hint;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::rates::Rate;

/// The time that a run takes. In a shorter one, the start of its threads and a single disturbance would count.
pub(super) const RUN: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 25 });
/// The minimum number of runs of a measurement, even on a slow machine, because a single run may be disturbed.
pub(super) const LEAST_RUNS: usize = 3;
/// The maximum number of runs.
const MOST_RUNS: usize = 5;
/// The time after which no more than the minimum number of runs are made, so that slow machines finish soon, too.
const ENOUGH: Duration = Duration::from_millis(100);

/// Returns the best of several runs, at least `least`, each of which returns its bytes per second.
pub(super) fn best<E>(least: usize, mut run: impl FnMut() -> Result<f64, E>) -> Result<Rate, E> {
    let begin = Instant::now();
    let mut rates = Vec::with_capacity(MOST_RUNS.max(least));
    while rates.len() < least || (rates.len() < MOST_RUNS && begin.elapsed() < ENOUGH) {
        rates.push(run()?);
    }
    Ok(Rate::of_runs(&rates))
}

/// Returns bytes per second. With a coarse clock, no time may seem to have passed.
pub(super) fn per_second(bytes: usize, seconds: f64) -> f64 {
    bytes as f64 / seconds.max(1e-9)
}

/// Returns how many times a run that takes so many seconds must be repeated to be long enough.
pub(super) fn repeats(seconds: f64) -> usize {
    const MOST: f64 = 64.0;
    (RUN.as_secs_f64() / seconds.max(1e-9)).ceil().clamp(1.0, MOST) as usize
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
    let work = |member: &mut M| -> io::Result<()> {
        while let Some(piece) = next() {
            work(member, piece)?;
        }
        Ok(())
    };
    Ok(together(team, work)?.1)
}

/// Runs one thread per member of the team; each repeats a step, which returns its bytes, until [`RUN`] has passed.
/// Returns the bytes per second of all together. As all members end at about the same time, the last ones do not have
/// the memory for themselves. That requires short steps.
pub(super) fn steady<M: Send>(team: &mut [M], step: impl Fn(&mut M) -> usize + Sync) -> io::Result<f64> {
    let work = |member: &mut M| -> io::Result<usize> {
        let (begin, mut bytes) = (Instant::now(), 0);
        loop {
            bytes += step(member);
            if begin.elapsed() >= RUN {
                return Ok(bytes);
            }
        }
    };
    let (bytes, seconds) = together(team, work)?;
    Ok(per_second(bytes.into_iter().sum(), seconds))
}

/// The result of a member, with the time of its work.
struct Timed<T> {
    result: T,
    begin: Instant,
    end: Instant,
}

/// Runs every member of the team on its own thread. Returns their results, and the seconds from the begin of the first
/// member to the end of the last.
///
/// All begin within about a microsecond: every thread runs already and watches a flag. A thread that sleeps wakes up to
/// a millisecond later than another.
pub(super) fn together<M: Send, T: Send, E: From<io::Error> + Send>(
    team: &mut [M],
    work: impl Fn(&mut M) -> Result<T, E> + Sync,
) -> Result<(Vec<T>, f64), E> {
    let (arrived, is_open, is_complete) = (AtomicUsize::new(0), AtomicBool::new(false), AtomicBool::new(true));
    let pause = || {
        hint::spin_loop();
        // There may be fewer free cores than members.
        thread::yield_now();
    };
    let labour = |member: &mut M| {
        arrived.fetch_add(1, Ordering::Relaxed);
        while !is_open.load(Ordering::Acquire) {
            pause();
        }
        // Members may wait for each other, so all work or none.
        if !is_complete.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let begin = Instant::now();
        work(member).map(|result| Some(Timed { result, begin, end: Instant::now() }))
    };
    let done: Result<Vec<Option<Timed<T>>>, E> = thread::scope(|scope| {
        let threads = team.iter_mut().map(|member| thread::Builder::new().spawn_scoped(scope, || labour(member)));
        let threads: Vec<_> = threads.collect();
        // The system may refuse some threads.
        let started = threads.iter().filter(|thread| thread.is_ok()).count();
        is_complete.store(started == threads.len(), Ordering::Relaxed);
        while arrived.load(Ordering::Relaxed) < started {
            pause();
        }
        is_open.store(true, Ordering::Release);
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        // All threads are joined, also behind an error.
        threads.into_iter().map(|thread| join(thread?)).collect::<Vec<_>>().into_iter().collect()
    });
    let done: Vec<_> = done?.into_iter().flatten().collect();
    let begin = done.iter().map(|timed| timed.begin).min();
    let end = done.iter().map(|timed| timed.end).max();
    let seconds = begin.zip(end).map_or(0.0, |(begin, end)| end.duration_since(begin).as_secs_f64());
    Ok((done.into_iter().map(|timed| timed.result).collect(), seconds))
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
    fn all_members_begin_before_any_ends() {
        let begun = AtomicUsize::new(0);
        let mut team = [1, 2, 3, 4];
        let (results, _) = together(&mut team, |member| {
            begun.fetch_add(1, Ordering::Relaxed);
            // Ends only if the others begin, too.
            while begun.load(Ordering::Relaxed) < 4 {
                thread::yield_now();
            }
            io::Result::Ok(*member * 10)
        })
        .unwrap();
        assert_eq!(results, [10, 20, 30, 40]);
    }

    #[test]
    fn the_best_run_counts_and_all_runs_spread() {
        let mut runs = [4.0, 8.0, 6.0, 8.0, 7.0, 5.0, 1.0].into_iter();
        let rate = best(6, || runs.next().ok_or(io::ErrorKind::Other)).unwrap();
        assert_eq!((rate.bytes_per_second, rate.spread, runs.next()), (8.0, 0.5, Some(1.0)));
        assert!(best(3, || Err::<f64, _>("fails")).is_err());
    }

    #[test]
    fn a_steady_run_counts_the_bytes_of_every_member() {
        let mut team = [0; 2];
        let rate = steady(&mut team, |steps| {
            *steps += 1;
            100
        });
        assert!(rate.unwrap() > 0.0 && team.iter().all(|&steps| steps > 0), "{team:?}");
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
