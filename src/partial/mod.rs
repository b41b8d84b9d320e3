//! The results of some rows of a job, which other processes may complete.

mod finish;
mod format;
mod identity;
mod journal;
mod output;
mod rows;
mod work;

use std::fmt;
use std::ops::Range;
use std::path::Path;

pub(crate) use identity::{InputId, JobId};
pub use journal::Journal;
pub(crate) use journal::OpenJournal;
pub(crate) use output::{OutputFile, OutputId, PathText, Written};
pub(crate) use work::Work;

use serde::{Deserialize, Serialize};

use crate::error::{Error, PartialError, Result};
use crate::ops::State;
use rows::RowSet;

/// The results of some rows of a job: what [`Engine::run_rows`](crate::Engine::run_rows) returns.
///
/// Partials of the same job with other rows are merged, in any order, by any process; when all rows are complete,
/// [`finish`](Partial::finish) returns the report of the job, with the results of one run to the bit, and names the
/// output files. A partial takes a few kilobytes, whatever the number of rows; a result that is an array adds its state
/// for each node of the tree that is left. [`to_bytes`](Partial::to_bytes) makes it a file.
///
/// A partial knows its job: the expression or the kernel, its numbers, the dtypes and rows of its inputs, samples of
/// their values, its outputs, and the version of Overshot. Partials of other jobs are refused.
///
/// ```
/// use overshot::{Engine, Job, Partial};
/// let x: Vec<f64> = (0..100_000).map(|k| 1.0 / (k as f64 + 1.0)).collect();
/// let engine = Engine::builder().build()?;
/// let job = || Ok::<_, overshot::Error>(Job::eval("sum(x), std(x)")?.input("x", &x));
/// let last = engine.run_rows(job()?, 40_960..100_000)?.to_bytes();
/// let mut all = engine.run_rows(job()?, 0..40_960)?;
/// assert!(!all.is_complete());
/// all.merge(Partial::from_bytes(&last)?)?;
/// assert_eq!(all.finish()?.results, engine.run(job()?)?.results);
/// # Ok::<(), overshot::Error>(())
/// ```
#[derive(Clone)]
pub struct Partial {
    job: JobId,
    rows: RowSet,
    state: State,
    written: Written,
    paths: Paths,
    work: Work,
    /// Whether [`finish`](Partial::finish) computes checksums. It is not part of the bytes.
    checksum: bool,
}

/// The paths of inputs and outputs as the caller gave them. They do not identify a job, and are for its report.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Paths {
    pub(crate) inputs: Vec<Option<PathText>>,
    pub(crate) outputs: Vec<Option<PathText>>,
}

impl Partial {
    /// Creates the partial of the rows of a run.
    pub(crate) fn new(
        (job, paths): (JobId, Paths),
        rows: Range<u64>,
        state: State,
        written: Written,
        work: Work,
    ) -> Self {
        Partial { job, rows: RowSet::of(rows), state, written, paths, work, checksum: false }
    }

    /// Returns the complete rows, in order.
    pub fn rows(&self) -> &[Range<u64>] {
        self.rows.ranges()
    }

    /// Returns the number of rows of the job.
    pub fn total_rows(&self) -> u64 {
        self.job.rows
    }

    /// Returns whether all rows of the job are complete.
    pub fn is_complete(&self) -> bool {
        self.rows.missing(self.job.rows).is_none()
    }

    /// Returns the number of complete rows.
    pub(crate) fn len(&self) -> u64 {
        self.rows().iter().map(|rows| rows.end - rows.start).sum()
    }

    /// Returns the first rows that are not complete.
    pub(crate) fn missing(&self) -> Option<Range<u64>> {
        self.rows.missing(self.job.rows)
    }

    /// Checks that the files with the rows of a run that is to be continued are there.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File) with the path of the `journal` if they are not.
    pub(crate) fn check_files(&self, journal: &Path) -> Result<()> {
        if self.is_complete() {
            // A run that was interrupted at its end may have taken the marks away.
            return Ok(());
        }
        let number = self.job.number();
        for (output, mark) in self.job.outputs.iter().zip(&self.written.marks) {
            let (Some(shared), Some(mark)) = (output.shared_file(self.job.rows, number), mark) else { continue };
            if !shared.has_mark(*mark)? {
                let problem = format!("the rows of '{}' that this journal stands for were removed", output.name);
                return Err(Error::file(journal, problem, "remove the journal to begin anew"));
            }
        }
        Ok(())
    }

    /// Adds the rows of another partial of the same job.
    ///
    /// # Errors
    /// [`Error::InvalidPartial`](crate::Error::InvalidPartial) if the other partial is of another job, has some of the
    /// same rows, or wrote another file. This partial stays as it is.
    pub fn merge(&mut self, other: Partial) -> Result<()> {
        if let Some(difference) = self.job.difference(&other.job) {
            return Err(PartialError::OtherJob { difference }.into());
        }
        if let Some(rows) = self.rows.overlap(&other.rows) {
            return Err(PartialError::Twice { start: rows.start, end: rows.end }.into());
        }
        if !self.state.is_like(&other.state) {
            return Err(PartialError::Damaged.into());
        }
        let marks = self.written.marks.iter().zip(&other.written.marks).zip(&self.job.outputs);
        if let Some((_, output)) = marks.into_iter().find(|((own, others), _)| own != others) {
            return Err(PartialError::OtherFile { output: output.name.clone() }.into());
        }
        self.rows.add(&other.rows);
        self.state.merge(other.state);
        if let (Some(own), Some(others)) = (&mut self.written.kept, other.written.kept) {
            own.extend(others);
        }
        self.work.merge(other.work);
        Ok(())
    }

    /// Adds the rows of the partial of the following rows, whose selected rows were written behind those of this one.
    ///
    /// # Errors
    /// Those of [`merge`](Partial::merge).
    pub(crate) fn append(&mut self, next: Partial) -> Result<()> {
        self.merge(next)?;
        if let Some(ranges) = &mut self.written.kept
            && let Some(last) = ranges.pop()
        {
            match ranges.last_mut() {
                Some(all) => (all.rows, all.kept) = (all.rows + last.rows, all.kept + last.kept),
                None => ranges.push(last),
            }
        }
        Ok(())
    }

    /// Sets whether [`finish`](Partial::finish) adds a checksum of each output to the report, as
    /// [`Job::checksum`](crate::Job::checksum) does. All outputs must be files.
    #[must_use]
    pub fn checksum(mut self, checksum: bool) -> Self {
        self.checksum = checksum;
        self
    }

    /// Returns the number of rows that a kernel selected; `None` if the job keeps all rows.
    pub(crate) fn kept_rows(&self) -> Option<u64> {
        let kept = self.written.kept.as_ref()?;
        Some(kept.iter().map(|range| range.kept).sum())
    }

    /// Returns whether the outputs get their names, so that some may have them.
    pub(crate) fn is_naming(&self) -> bool {
        self.written.stamps.is_some()
    }
}

impl fmt::Debug for Partial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Partial(rows {:?} of {}, {:?})", self.rows(), self.job.rows, self.job.text)
    }
}
