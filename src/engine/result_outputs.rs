//! The outputs of results that are arrays. They are opened before the run, written when its results are known, and get
//! their names with those of its rows, all of them or none.

use std::time::{Duration, Instant};

use super::check::mismatch;
use crate::data::{Dtype, Output, Sink, checksum, commit_all, leftovers};
use crate::error::{JobError, Result};
use crate::job::{Job, JobBody};
use crate::report::{OutputReport, Report};

/// A result that is an array: its name, its dtype and its shape.
pub(super) type ArrayKind = (String, Dtype, Vec<u64>);

/// The open outputs of results, with their entries in the report.
#[derive(Default)]
pub(super) struct ResultOutputs<'a> {
    sinks: Vec<Box<dyn Sink + 'a>>,
    reports: Vec<OutputReport>,
    checksum: bool,
    notes: Vec<String>,
}

impl<'a> ResultOutputs<'a> {
    /// Takes the outputs of results from a job, and opens them.
    ///
    /// # Errors
    /// Those of [`kind`] and of the targets. Outputs that were opened before are dropped and leave nothing behind.
    pub(super) fn open(job: &mut Job<'a>, results: &[ArrayKind]) -> Result<Self> {
        let mut open = ResultOutputs { checksum: job.checksum, ..ResultOutputs::default() };
        open.notes = leftovers(job.result_outputs.iter().filter_map(|(_, output)| output.target().path()), &[]);
        for (name, output) in std::mem::take(&mut job.result_outputs) {
            let (_, dtype, shape) = kind((&name, &output), results, &job.what)?;
            let count: u64 = shape.iter().product();
            open.reports.push(OutputReport {
                path: output.target().path().map(Into::into),
                name,
                dtype: *dtype,
                shape: shape.clone(),
                rows: shape.first().copied().unwrap_or(1),
                bytes: count * dtype.size() as u64,
                checksum: None,
            });
            let sink = output.open(*dtype, count, Some(shape))?;
            open.notes.extend(sink.warning());
            open.sinks.push(sink);
        }
        Ok(open)
    }

    /// Writes the results and gives all outputs of a run their names. `rows` are the sinks of its rows.
    ///
    /// # Errors
    /// [`JobError::NoArray`] if a result has no value; those of the sinks. All sinks check that they can be named
    /// before the first one is.
    pub(super) fn commit(mut self, rows: Vec<Box<dyn Sink + 'a>>, report: &mut Report) -> Result<()> {
        for (sink, output) in self.sinks.iter().zip(&self.reports) {
            let array = report.arrays.iter().find(|(name, _)| *name == output.name);
            let array = array.and_then(|(_, array)| array.as_ref());
            let array = array.ok_or_else(|| JobError::NoArray { name: output.name.clone() })?;
            sink.write(0, array.bytes())?;
        }
        report.checksum_time += self.hash()?;
        commit_all(rows.into_iter().chain(self.sinks).collect())?;
        report.outputs.append(&mut self.reports);
        report.notes.append(&mut self.notes);
        Ok(())
    }

    /// Adds the checksums to the reports if the job asks for them, and returns the time that this took.
    fn hash(&mut self) -> Result<Duration> {
        let begin = Instant::now();
        for (sink, output) in self.sinks.iter().zip(&mut self.reports).filter(|_| self.checksum) {
            let bytes = sink.header_bytes() + output.bytes + sink.trailer_bytes();
            output.checksum = Some(checksum(bytes, |offset, to| sink.read_back(offset, to))?);
        }
        Ok(if self.checksum && !self.sinks.is_empty() { begin.elapsed() } else { Duration::ZERO })
    }
}

/// Returns the result that an output takes.
///
/// # Errors
/// [`JobError::ReductionOutput`] if it is one number, [`JobError::OutputDtype`] if the target needs another dtype.
pub(super) fn kind<'k>(
    (name, output): (&str, &Output<'_>),
    results: &'k [ArrayKind],
    what: &JobBody,
) -> Result<&'k ArrayKind> {
    let kind = results.iter().find(|(own, ..)| own == name);
    let kind = kind.ok_or_else(|| JobError::ReductionOutput { name: name.to_owned() })?;
    mismatch((name, output), kind.1, what).map_or(Ok(kind), Err)
}
