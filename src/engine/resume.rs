//! Runs a job so that it can continue after it was interrupted.

use std::panic::resume_unwind;
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use super::Engine;
use super::check::{bind, check_journal};
use super::parts::{Ahead, check_targets, identify, step_of};
use crate::data::{Output, Parts, Unsynced};
use crate::error::{Error, JobError, Result};
use crate::job::{Job, ProgressFn};
use crate::partial::{Journal, OpenJournal, Partial};
use crate::progress::{CancelToken, Progress};
use crate::report::Report;
use crate::{panics, threads, units};

/// Bytes of the first rows, from whose time the number of the next ones follows. A job may compute long for each byte.
const FIRST: u64 = 1 << 20;
/// How many times as many rows as before are run at once at most.
const GROWTH: u64 = 16;

impl Engine {
    /// Runs a job to its end, so that the same call continues it if the process is killed, the machine stops or the
    /// disk is full. Results and outputs have the same bits as those of [`run`](Engine::run).
    ///
    /// The rows are run in order, some at a time. When they are on the disk, the journal is written; meanwhile the next
    /// ones are run. All outputs are files. Until the run is complete they have hidden names, as those of
    /// [`run_rows`](Engine::run_rows). The times and counts of the report are the sums of those of all calls.
    ///
    /// ```
    /// use overshot::{Engine, Job, Journal, Npy};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("y.npy");
    /// let x: Vec<f64> = (0..100_000).map(f64::from).collect();
    /// let engine = Engine::builder().build()?;
    /// let job = Job::eval("y = sqrt(x); sum(y)")?.input("x", &x).output("y", Npy::create(&path));
    /// let report = engine.run_resumable(job, &Journal::beside(&path))?;
    /// # assert!(path.exists() && report.rows == 100_000);
    /// # Ok::<(), overshot::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`run_rows`](Engine::run_rows) and of [`Partial::finish`].
    /// [`Error::InvalidJob`](crate::Error::InvalidJob) if the journal is a file of the job.
    /// [`Error::File`](crate::Error::File) with the path of the journal if it is of another job or of changed inputs,
    /// is damaged or in use, or if the rows that it stands for are gone. After an error, the journal and the hidden
    /// files stay.
    pub fn run_resumable(&self, job: Job<'_>, journal: &Journal) -> Result<Report> {
        panics::caught_in_job(|| self.run_parts(job, journal))
    }

    /// Runs the rows that the journal does not stand for, some at a time, and finishes the job.
    fn run_parts(&self, job: Job<'_>, journal: &Journal) -> Result<Report> {
        let bound = bind(&job)?;
        if let Some(name) = job.outputs.iter().find_map(|(name, output)| {
            let is_file = matches!(output.target().parts(), Parts::File(_));
            (!is_file).then_some(name)
        }) {
            return Err(JobError::ResumableOutput { name: name.clone() }.into());
        }
        check_journal(&job, journal.path())?;
        let id = identify(&job, &bound)?;
        let (open, mut all) = OpenJournal::open(journal, &id)?;
        // A run that was interrupted at its end may have named its outputs.
        if !all.as_ref().is_some_and(Partial::is_naming) {
            check_targets(&job)?;
        }
        if let Some(all) = &all {
            all.check_files(journal.path())?;
        }
        let before = all.as_ref().map_or(0, Partial::len);
        let (step, total) = (step_of(&bound), bound.rows);
        let row = &bound.operator.kernel().columns;
        let row_bytes = (row.inputs.iter().sum::<usize>() + row.outputs.iter().sum::<usize>()).max(8) as u64;
        let mut pace = Pace::new(journal.interval(), row_bytes, step);

        let (all, open) = thread::scope(|scope| -> Result<_> {
            let mut writer = Writer::Idle(open);
            loop {
                let missing = match all {
                    None => 0..total,
                    Some(done) => match done.missing() {
                        None => {
                            let open = writer.idle()?;
                            if job.cancel.as_ref().is_some_and(CancelToken::is_cancelled) {
                                return Err(Error::Cancelled { done: total, rows: total });
                            }
                            return Ok((done, open));
                        }
                        Some(rows) => {
                            all = Some(done);
                            rows
                        }
                    },
                };
                let end = missing.start.saturating_add(pace.rows()).min(missing.end);
                let (begin, unsynced) = (Instant::now(), Unsynced::default());
                let kept = all.as_ref().and_then(Partial::kept_rows).unwrap_or(0);
                let ahead = Ahead { unsynced: unsynced.clone(), kept };
                let part = self.run_part(part_of(&job, missing.start, total), missing.start..end, Some(ahead));
                let part = part.map_err(|error| of_whole(error, missing.start, total))?;
                pace.took(end - missing.start, begin.elapsed());
                let done = match all {
                    Some(mut done) => done.append(part).map(|()| done)?,
                    None => part,
                };
                let (mut open, snapshot) = (writer.idle()?, done.clone());
                all = Some(done);
                let write = move || {
                    unsynced.sync()?;
                    open.write(&snapshot)?;
                    Ok(open)
                };
                let writing = thread::Builder::new().name("journal".into()).spawn_scoped(scope, write);
                writer = Writer::Writing(writing.map_err(|error| threads::not_started(&error))?);
            }
        })?;
        let mut report = all.checksum(job.checksum).finish_run(open)?;
        if before > 0 {
            report.notes.push(format!("{} rows were complete in an earlier run", units::count(before)));
        }
        Ok(report)
    }
}

/// Who has the journal.
enum Writer<'scope> {
    Idle(OpenJournal),
    Writing(ScopedJoinHandle<'scope, Result<OpenJournal>>),
}

impl Writer<'_> {
    /// Waits until the journal is written.
    fn idle(self) -> Result<OpenJournal> {
        match self {
            Writer::Idle(open) => Ok(open),
            Writer::Writing(writing) => writing.join().unwrap_or_else(|panic| resume_unwind(panic)),
        }
    }
}

/// Returns the job once more, whose progress begins behind so many rows of `total`.
fn part_of<'j>(job: &'j Job<'_>, before: u64, total: u64) -> Job<'j> {
    let outputs = job.outputs.iter().filter_map(|(name, output)| match output.target().parts() {
        Parts::File(file) => Some((name.clone(), Output::from(file.clone()))),
        // Refused before.
        _ => None,
    });
    Job {
        what: job.what.clone(),
        inputs: job.inputs.iter().map(|(name, input)| (name.clone(), input.borrowed())).collect(),
        values: job.values.clone(),
        numbers: job.numbers.clone(),
        deferred: false,
        outputs: outputs.collect(),
        result_outputs: vec![],
        rows: job.rows,
        cancel: job.cancel.clone(),
        progress: job.progress.as_deref().map(|progress| {
            let whole = move |part: Progress| progress(Progress { done: before + part.done, rows: total });
            Box::new(whole) as ProgressFn<'_>
        }),
        timeline: false,
        verify: job.verify,
        checksum: false,
        precision: job.precision,
    }
}

/// Counts the rows of a run that was cancelled as those of the whole job.
fn of_whole(error: Error, before: u64, total: u64) -> Error {
    match error {
        Error::Cancelled { done, .. } => Error::Cancelled { done: before + done, rows: total },
        other => other,
    }
}

/// How many rows are run at once: as many as take about the time between two writes of the journal.
struct Pace {
    every: Duration,
    /// Parts of the job begin at multiples of it.
    step: u64,
    rows: u64,
}

impl Pace {
    fn new(every: Duration, row_bytes: u64, step: u64) -> Pace {
        Pace { every, step, rows: if every.is_zero() { step } else { (FIRST / row_bytes).max(1) } }
    }

    /// Returns the number of the next rows.
    fn rows(&self) -> u64 {
        self.rows.checked_next_multiple_of(self.step).unwrap_or(u64::MAX)
    }

    /// Learns that `rows` have taken `time`.
    fn took(&mut self, rows: u64, time: Duration) {
        let wanted = rows as f64 * self.every.as_secs_f64() / time.as_secs_f64().max(1e-6);
        self.rows = (wanted as u64).clamp(1, rows.saturating_mul(GROWTH).max(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_next_rows_take_as_long_as_wanted() {
        let next = |every, rows, time| {
            let mut pace = Pace::new(every, 8, 1);
            pace.took(rows, time);
            pace.rows()
        };
        let ms = Duration::from_millis(1);
        assert_eq!(next(SECOND, 1000, SECOND / 2), 2000);
        assert_eq!(next(SECOND, 1000, 2 * SECOND), 500);
        assert_eq!(next(SECOND, 1000, ms), 16_000, "one fast part tells little");
        assert_eq!(next(Duration::ZERO, 1000, SECOND), 1);
        assert_eq!(next(SECOND, 0, Duration::ZERO), 1);
        assert_eq!(next(SECOND, u64::MAX, ms), u64::MAX);
        assert_eq!(Pace { every: SECOND, step: 4096, rows: u64::MAX }.rows(), u64::MAX);
    }

    /// Runs a job in virtual time, as `run_parts` does. Returns the longest work that is not in the journal at any
    /// moment, and the number of parts.
    fn simulated(bytes_per_second: f64, fixed: f64, writing: f64, seconds: f64) -> (f64, u64) {
        const ROW: u64 = 8;
        let total = (bytes_per_second * seconds / ROW as f64) as u64;
        let mut pace = Pace::new(SECOND, ROW, 4096);
        let (mut now, mut done, mut written, mut before, mut parts, mut most) = (0.0, 0, 0.0, 0.0, 0, 0.0_f64);
        while done < total {
            let rows = pace.rows().min(total - done);
            let time = fixed + (rows * ROW) as f64 / bytes_per_second;
            pace.took(rows, Duration::from_secs_f64(time));
            // The rows before are written meanwhile. Until they are, they would be lost, too.
            let (begin, end) = (now, now + time);
            let lost = if written > begin { before + (written.min(end) - begin) } else { 0.0 };
            most = most.max(lost).max(if written > end { before + time } else { time });
            // It waits until the journal has those, and then these are written.
            now = end.max(written);
            written = now + writing;
            before = time;
            done += rows;
            parts += 1;
        }
        // The last rows may be lost as long as they are written.
        (most.max(before), parts)
    }

    #[test]
    fn a_run_that_is_killed_repeats_two_seconds_at_most() {
        // From a kernel that computes long to memory, with a disk that takes no time, a while, or longer than the rows.
        for speed in [1.1e6, 1e7, 1e8, 1e9, 1e10, 1e11] {
            for (fixed, writing) in [(0.0, 0.0), (0.002, 0.02), (0.01, 0.3), (0.002, 0.9), (0.002, 3.0)] {
                let (most, parts) = simulated(speed, fixed, writing, 100.0);
                assert!(most <= 2.05, "{speed:.0} B/s, {fixed} s, {writing} s: {most} s");
                // Parts cost some milliseconds each, which are to be less than a hundredth.
                assert!(parts <= 112, "{speed:.0} B/s: {parts} parts");
            }
        }
    }
}
