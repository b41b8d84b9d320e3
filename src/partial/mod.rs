//! The results of some rows of a job, which other processes may complete.

mod format;
mod identity;
mod journal;
mod output;
mod rows;
mod work;

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

pub(crate) use identity::{InputId, JobId};
pub use journal::Journal;
pub(crate) use journal::OpenJournal;
pub(crate) use output::{OutputFile, OutputId, PathText, Written};
pub(crate) use work::Work;

use serde::{Deserialize, Serialize};

use crate::data::{Dtype, Kept, SharedFile, commit_all};
use crate::error::{Error, PartialError, Result};
use crate::expr::Reduction;
use crate::ops::{self, Fold};
use crate::report::{Computation, InputReport, OutputReport, Report, Setup};
use rows::RowSet;

/// The results of some rows of a job: what [`Engine::run_rows`](crate::Engine::run_rows) returns.
///
/// Partials of the same job with other rows are merged, in any order, by any process; when all rows are complete,
/// [`finish`](Partial::finish) returns the report of the job, with the results of one run to the bit, and names the
/// output files. A partial takes a few kilobytes, whatever the number of rows. [`to_bytes`](Partial::to_bytes) makes it
/// a file.
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
    reductions: Vec<Reduction>,
    nodes: Fold,
    written: Written,
    paths: Paths,
    work: Work,
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
        (reductions, nodes): (Vec<Reduction>, Fold),
        written: Written,
        work: Work,
    ) -> Self {
        Partial { job, rows: RowSet::of(rows), reductions, nodes, written, paths, work }
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
            // A merge that was interrupted may have taken the marks away.
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
        let marks = self.written.marks.iter().zip(&other.written.marks).zip(&self.job.outputs);
        if let Some((_, output)) = marks.into_iter().find(|((own, others), _)| own != others) {
            return Err(PartialError::OtherFile { output: output.name.clone() }.into());
        }
        self.rows.add(&other.rows);
        self.nodes.merge(other.nodes, &*self.reductions);
        if let (Some(own), Some(others)) = (&mut self.written.kept, other.written.kept) {
            own.extend(others);
        }
        self.work.merge(other.work);
        Ok(())
    }

    /// Completes the job: gives its output files their names, all or none, and returns its report, as
    /// [`Engine::run`](crate::Engine::run) does.
    ///
    /// Times and counts of the report are the sums of those of all runs, and there is no bottleneck. If a kernel
    /// selects rows, the selected ones are copied to a new file, which takes time, and their space a second time.
    ///
    /// # Errors
    /// - [`Error::InvalidPartial`](crate::Error::InvalidPartial) if rows are missing;
    /// - [`Error::File`](crate::Error::File) if the rows of an output are not where they were written, or the output
    ///   cannot be given its name. No output appears or changes then, and a clone of this partial may be finished when
    ///   the problem is solved.
    pub fn finish(self) -> Result<Report> {
        let Partial { job, rows, reductions, nodes, written, paths, work } = self;
        if let Some(missing) = rows.missing(job.rows) {
            return Err(PartialError::Incomplete { start: missing.start, end: missing.end, rows: job.rows }.into());
        }
        let mut kept = written.kept;
        if let Some(kept) = &mut kept {
            kept.sort_unstable_by_key(|range| range.first);
        }
        let number = job.number();
        let (mut sinks, mut copied) = (Vec::new(), Vec::new());
        for (output, mark) in job.outputs.iter().zip(&written.marks) {
            let (Some(_), Some(mark)) = (&output.file, mark) else { continue };
            let shared = output.shared_file(job.rows, number).ok_or(PartialError::Damaged)?;
            sinks.push(shared.complete(*mark, kept.as_deref(), output.elements)?);
            copied.extend(kept.is_some().then_some(shared));
        }
        commit_all(sinks)?;
        let mut report = Report {
            computation: match job.kernel {
                None => Computation::Expression(job.text),
                Some(_) => Computation::Kernel(job.text),
            },
            rows: job.rows,
            results: ops::results(&reductions, nodes, job.rows),
            inputs: inputs(&job.inputs, paths.inputs)?,
            outputs: outputs(&job.outputs, paths.outputs, kept.map_or(job.rows, |kept| total(&kept)))?,
            chunks: 0,
            chunk_rows: 0,
            time: Duration::ZERO,
            processor_time: Duration::ZERO,
            total_time: Duration::ZERO,
            setup: Setup::default(),
            bytes_to_device: 0,
            bytes_ahead: 0,
            bytes_from_device: 0,
            bytes_read_directly: 0,
            peak_pinned_bytes: 0,
            devices: vec![],
            notes: copied.iter().filter_map(SharedFile::remove).collect(),
            measured: false,
            timeline: None,
        };
        work.put_into(&mut report);
        Ok(report)
    }
}

fn total(kept: &[Kept]) -> u64 {
    kept.iter().map(|range| range.kept).sum()
}

fn inputs(inputs: &[InputId], paths: Vec<Option<PathText>>) -> Result<Vec<InputReport>> {
    let each = inputs.iter().zip(paths).map(|(InputId { name, dtype, rows, shape, .. }, path)| {
        let dtype: Dtype = dtype.parse().map_err(|_| PartialError::Damaged)?;
        let (name, shape, path) = (name.clone(), shape.clone().unwrap_or(vec![*rows]), path.map(|path| path.path()));
        Ok(InputReport { name, path, dtype, shape, rows: *rows, bytes: rows.saturating_mul(dtype.size() as u64) })
    });
    each.collect()
}

fn outputs(outputs: &[OutputId], paths: Vec<Option<PathText>>, rows: u64) -> Result<Vec<OutputReport>> {
    let each = outputs.iter().zip(paths).map(|(output, path)| {
        let dtype = output.dtype().ok_or(PartialError::Damaged)?;
        let bytes = rows.saturating_mul(output.elements).saturating_mul(dtype.size() as u64);
        Ok(OutputReport { name: output.name.clone(), dtype, path: path.map(|path| path.path()), rows, bytes })
    });
    each.collect()
}

impl fmt::Debug for Partial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Partial(rows {:?} of {}, {:?})", self.rows(), self.job.rows, self.job.text)
    }
}
