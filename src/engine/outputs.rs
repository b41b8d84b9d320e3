//! The outputs of a run: opened before it and named after it, all of them or none.

use super::check::BoundJob;
use super::columns::{Pinning, PlannedOutput};
use crate::data::{Output, Sink, commit_all, whole_sink_memory};
use crate::error::{ColumnError, JobError, Result};
use crate::pipeline::OutputColumn;
use crate::report::OutputReport;

/// The opened outputs, and what the report says of them.
pub(super) struct Outputs<'a, 'b> {
    bound: &'b BoundJob,
    sinks: Vec<Box<dyn Sink + 'a>>,
    reports: Vec<OutputReport>,
}

impl<'a, 'b> Outputs<'a, 'b> {
    /// Opens all outputs of a job. A file written from an input with dimensions gets that `shape`.
    ///
    /// # Errors
    /// Those of the targets. What was opened before is dropped, and leaves nothing behind.
    pub(super) fn open(outputs: Vec<(String, Output<'a>)>, bound: &'b BoundJob, shape: Option<&[u64]>) -> Result<Self> {
        let rows = bound.rows;
        let (mut sinks, mut reports) = (Vec::with_capacity(outputs.len()), Vec::with_capacity(outputs.len()));
        for ((name, output), column) in outputs.into_iter().zip(&bound.outputs) {
            let count = rows.checked_mul(column.elements);
            let count = count.ok_or_else(|| JobError::TooLarge { name: name.clone() })?;
            reports.push(OutputReport {
                name,
                dtype: column.dtype,
                path: output.target().path().map(Into::into),
                rows,
                bytes: count.saturating_mul(column.dtype.size() as u64),
            });
            let of_rows = [rows, column.elements];
            let shape = if column.elements > 1 { Some(&of_rows[..]) } else { shape };
            sinks.push(output.open(column.dtype, count, shape)?);
        }
        Ok(Outputs { bound, sinks, reports })
    }

    /// What the sinks say to the user.
    pub(super) fn notes(&self) -> impl Iterator<Item = String> {
        self.sinks.iter().filter_map(|sink| sink.warning())
    }

    /// Whether any output is a file.
    pub(super) fn are_files(&self) -> bool {
        self.reports.iter().any(|output| output.path.is_some())
    }

    /// The outputs as the pipeline writes them.
    ///
    /// # Errors
    /// [`Error::InvalidColumn`](crate::Error::InvalidColumn) if a sink has other memory than its target said.
    pub(super) fn columns(&self, planned: Vec<PlannedOutput>) -> Result<Vec<OutputColumn<'_>>> {
        let mut columns = Vec::with_capacity(self.sinks.len());
        for (k, planned) in planned.into_iter().enumerate() {
            let (sink, column) = (&*self.sinks[k], self.bound.outputs[k]);
            // Where rows go is not known before they come back if only some are kept.
            let memory = match self.bound.operator.compacts() {
                true => None,
                false => whole_sink_memory(sink, column.dtype, self.bound.rows * column.elements)?,
            };
            let pinned = memory.filter(|memory| match planned.pinning {
                Pinning::No => false,
                Pinning::BySink => memory.is_pinned(),
                Pinning::At(address) => std::ptr::eq(memory.address().cast::<u8>(), address.cast()),
            });
            if planned.pinning != Pinning::No && pinned.is_none() {
                return Err(ColumnError::NotPinned { name: self.reports[k].name.clone() }.into());
            }
            columns.push(OutputColumn { sink, memory, pinned, elements: column.elements, sharded: planned.sharded });
        }
        Ok(columns)
    }

    /// Says that only the first `rows` rows were kept.
    ///
    /// # Errors
    /// Those of the sinks.
    pub(super) fn truncate(&mut self, rows: u64) -> Result<()> {
        for ((sink, report), column) in self.sinks.iter_mut().zip(&mut self.reports).zip(&self.bound.outputs) {
            sink.truncate(rows * column.elements)?;
            (report.rows, report.bytes) = (rows, rows * column.elements * column.dtype.size() as u64);
        }
        Ok(())
    }

    /// Gives all outputs their names.
    ///
    /// # Errors
    /// Those of the sinks. All are asked whether they can before the first one is named.
    pub(super) fn commit(self) -> Result<Vec<OutputReport>> {
        commit_all(self.sinks)?;
        Ok(self.reports)
    }
}
