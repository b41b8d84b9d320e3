//! The outputs of the rows of a run. They are opened before the run and get their names after it, all of them or none.

use super::check::BoundJob;
use super::columns::{Pinning, PlannedOutput};
use std::time::{Duration, Instant};

use crate::data::{Dtype, Output, Sink, checksum, open_all, shorten, whole_sink_memory};
use crate::error::{ColumnError, JobError, Result};
use crate::pipeline::OutputColumn;
use crate::report::OutputReport;

/// The open outputs, with their entries in the report.
pub(super) struct Outputs<'a, 'b> {
    bound: &'b BoundJob,
    sinks: Vec<Box<dyn Sink + 'a>>,
    reports: Vec<OutputReport>,
}

impl<'a, 'b> Outputs<'a, 'b> {
    /// Opens all outputs of a job.
    ///
    /// # Errors
    /// Those of the targets. Outputs that were opened before are dropped and leave nothing behind.
    pub(super) fn open(outputs: Vec<(String, Output<'a>)>, bound: &'b BoundJob) -> Result<Self> {
        let rows = bound.rows;
        let (mut sinks, mut reports) = (Vec::with_capacity(outputs.len()), Vec::with_capacity(outputs.len()));
        let (mut marks, mut own) = (Vec::with_capacity(outputs.len()), Vec::new());
        for (k, ((name, output), column)) in outputs.into_iter().zip(&bound.outputs).enumerate() {
            let count = rows.checked_mul(column.elements);
            let count = count.ok_or_else(|| JobError::TooLarge { name: name.clone() })?;
            let shape = bound.output_shape(k);
            reports.push(OutputReport {
                name,
                shape: shape.clone().unwrap_or(vec![count]),
                dtype: column.dtype,
                path: output.target().path().map(Into::into),
                rows,
                bytes: count.saturating_mul(column.dtype.size() as u64),
                checksum: None,
            });
            if let Some(shared) = bound.part.as_ref().and_then(|part| part.files[k].as_ref()) {
                let unsynced = bound.part.as_ref().and_then(|part| part.ahead.as_ref()).map(|ahead| &ahead.unsynced);
                let first = bound.first_place();
                let part = first * column.elements..(first + bound.len()) * column.elements;
                let sink = shared.open(part, unsynced.cloned())?;
                marks.push(Some(sink.mark()));
                sinks.push(Some(Box::new(sink) as Box<dyn Sink>));
                continue;
            }
            marks.push(None);
            sinks.push(None);
            own.push((output, column.dtype, count, shape));
        }
        let mut own = open_all(own)?.into_iter();
        let sinks = sinks.into_iter().filter_map(|shared| shared.or_else(|| own.next())).collect();
        if let Some(part) = &bound.part {
            // Nobody else opens the outputs of this part.
            let _ = part.marks.set(marks);
        }
        Ok(Outputs { bound, sinks, reports })
    }

    /// Returns the notes of the sinks.
    pub(super) fn notes(&self) -> impl Iterator<Item = String> {
        self.sinks.iter().filter_map(|sink| sink.warning())
    }

    /// Returns the name and the dtype of each output.
    pub(super) fn names_and_dtypes(&self) -> impl Iterator<Item = (String, Dtype)> {
        self.reports.iter().map(|output| (output.name.clone(), output.dtype))
    }

    /// Returns whether any output is a file.
    pub(super) fn are_files(&self) -> bool {
        self.reports.iter().any(|output| output.path.is_some())
    }

    /// Returns the outputs as the pipeline writes them.
    ///
    /// # Errors
    /// [`Error::InvalidColumn`] if the memory of a sink differs from what its target said.
    pub(super) fn columns(&self, planned: Vec<PlannedOutput>) -> Result<Vec<OutputColumn<'_>>> {
        let mut columns = Vec::with_capacity(self.sinks.len());
        for (k, planned) in planned.into_iter().enumerate() {
            let (sink, column) = (&*self.sinks[k], self.bound.outputs[k]);
            // A compacting kernel decides where rows go, so their places are not known yet.
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
            let (name, elements) = (&*self.reports[k].name, column.elements);
            columns.push(OutputColumn { name, sink, memory, pinned, elements, sharded: planned.sharded });
        }
        Ok(columns)
    }

    /// Truncates the outputs to the first `rows` rows, which a compacting kernel kept.
    ///
    /// # Errors
    /// Those of the sinks.
    pub(super) fn truncate(&mut self, rows: u64) -> Result<()> {
        for ((sink, report), column) in self.sinks.iter_mut().zip(&mut self.reports).zip(&self.bound.outputs) {
            let count = rows * column.elements;
            sink.truncate(count)?;
            (report.rows, report.bytes) = (rows, count * column.dtype.size() as u64);
            shorten(&mut report.shape, count);
        }
        Ok(())
    }

    /// Adds the checksums of all outputs to their reports, and returns the time that this took.
    ///
    /// # Errors
    /// Those of the sinks.
    pub(super) fn checksum(&mut self) -> Result<Duration> {
        let begin = Instant::now();
        for (sink, report) in self.sinks.iter().zip(&mut self.reports) {
            let bytes = sink.header_bytes() + report.bytes + sink.trailer_bytes();
            report.checksum = Some(checksum(bytes, |offset, to| sink.read_back(offset, to))?);
        }
        Ok(begin.elapsed())
    }

    /// Returns the sinks, which are written and have to be committed, and their entries in the report.
    pub(super) fn written(self) -> (Vec<Box<dyn Sink + 'a>>, Vec<OutputReport>) {
        (self.sinks, self.reports)
    }
}
