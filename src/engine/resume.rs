//! Runs a job so that it can continue after it was interrupted.

use std::panic::resume_unwind;
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use super::Engine;
use super::check::bind;
use super::parts::{Ahead, check_targets, identify, step_of};
use crate::data::{Output, Parts, Unsynced};
use crate::error::{Error, JobError, Result};
use crate::job::{Job, ProgressFn};
use crate::partial::{Journal, OpenJournal, Partial};
use crate::progress::Progress;
use crate::report::Report;
use crate::{panics, threads, units};

/// Bytes of the first rows, from whose time the number of the next ones follows.
const FIRST: u64 = 64 << 20;
/// How many times as many rows as before are run at once at most.
const GROWTH: u64 = 4;

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
        let mut size = if journal.interval().is_zero() { step } else { (FIRST / row_bytes).max(1) };

        let (all, open) = thread::scope(|scope| -> Result<_> {
            let mut writer = Writer::Idle(open);
            loop {
                let missing = match all {
                    None => 0..total,
                    Some(done) => match done.missing() {
                        None => return Ok((done, writer.idle()?)),
                        Some(rows) => {
                            all = Some(done);
                            rows
                        }
                    },
                };
                let end = missing.start.saturating_add(size.next_multiple_of(step)).min(missing.end);
                let (begin, unsynced) = (Instant::now(), Unsynced::default());
                let kept = all.as_ref().and_then(Partial::kept_rows).unwrap_or(0);
                let ahead = Ahead { unsynced: unsynced.clone(), kept };
                let part = self.run_part(part_of(&job, missing.start, total), missing.start..end, Some(ahead));
                let part = part.map_err(|error| of_whole(error, missing.start, total))?;
                size = next_size(end - missing.start, begin.elapsed(), journal.interval());
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

/// Returns how many rows take about `every`, if `rows` have taken `time`.
fn next_size(rows: u64, time: Duration, every: Duration) -> u64 {
    let wanted = rows as f64 * every.as_secs_f64() / time.as_secs_f64().max(1e-6);
    (wanted as u64).clamp(1, rows.saturating_mul(GROWTH).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_rows_take_as_long_as_wanted() {
        let [ms, second] = [Duration::from_millis(1), Duration::from_secs(1)];
        assert_eq!(next_size(1000, second / 2, second), 2000);
        assert_eq!(next_size(1000, 2 * second, second), 500);
        assert_eq!(next_size(1000, ms, second), 4000, "one fast part tells little");
        assert_eq!(next_size(1000, second, Duration::ZERO), 1);
        assert_eq!(next_size(0, Duration::ZERO, second), 1);
        assert_eq!(next_size(u64::MAX, ms, second), u64::MAX);
    }
}
