//! The results of some rows of a job, which other processes may complete.

mod format;
mod identity;
mod rows;

use std::fmt;
use std::ops::Range;

pub(crate) use identity::{InputId, JobId};

use crate::data::Scalar;
use crate::error::{PartialError, Result};
use crate::expr::Reduction;
use crate::ops::{self, Fold};
use rows::RowSet;

/// The results of some rows of a job: what [`Engine::run_rows`](crate::Engine::run_rows) returns.
///
/// Partials of the same job with other rows are merged, in any order, by any process; when all rows are complete,
/// [`finish`](Partial::finish) returns the results of the job, with the same bits as one run. A partial takes a few
/// kilobytes, whatever the number of rows. [`to_bytes`](Partial::to_bytes) makes it a file.
///
/// A partial knows its job: the expression, its numbers, the dtypes and rows of its inputs, samples of their values,
/// and the version of Overshot. Partials of other jobs are refused.
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
/// assert_eq!(all.finish()?, engine.run(job()?)?.results);
/// # Ok::<(), overshot::Error>(())
/// ```
#[derive(Clone)]
pub struct Partial {
    job: JobId,
    rows: RowSet,
    reductions: Vec<Reduction>,
    nodes: Fold,
}

impl Partial {
    /// Creates the partial of the rows of a run.
    pub(crate) fn new(job: JobId, rows: Range<u64>, reductions: Vec<Reduction>, nodes: Fold) -> Self {
        Partial { job, rows: RowSet::of(rows), reductions, nodes }
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

    /// Adds the rows of another partial of the same job.
    ///
    /// # Errors
    /// [`Error::InvalidPartial`](crate::Error::InvalidPartial) if the other partial is of another job, or has some of
    /// the same rows. This partial stays as it is.
    pub fn merge(&mut self, other: Partial) -> Result<()> {
        if let Some(difference) = self.job.difference(&other.job) {
            return Err(PartialError::OtherJob { difference }.into());
        }
        if let Some(rows) = self.rows.overlap(&other.rows) {
            return Err(PartialError::Twice { start: rows.start, end: rows.end }.into());
        }
        self.rows.add(&other.rows);
        self.nodes.merge(other.nodes, &*self.reductions);
        Ok(())
    }

    /// Returns the label and the value of each reduction, as [`Report::results`](crate::Report::results) does.
    ///
    /// # Errors
    /// [`Error::InvalidPartial`](crate::Error::InvalidPartial) if rows are missing.
    pub fn finish(self) -> Result<Vec<(String, Option<Scalar>)>> {
        let rows = self.job.rows;
        if let Some(missing) = self.rows.missing(rows) {
            return Err(PartialError::Incomplete { start: missing.start, end: missing.end, rows }.into());
        }
        Ok(ops::results(&self.reductions, self.nodes, rows))
    }
}

impl fmt::Debug for Partial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Partial(rows {:?} of {}, {:?})", self.rows(), self.job.rows, self.job.text)
    }
}
