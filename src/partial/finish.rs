//! Completes a job all of whose rows are: its outputs get their names, and it gets its report.
//!
//! A process that is killed in between leaves some outputs with their names and some without. So the stamps of the
//! complete files go into a journal before the first of them gets its name. Who continues finds by them which outputs
//! have their names.

use std::time::{Duration, Instant};

use super::output::{OutputId, PathText};
use super::{InputId, Journal, OpenJournal, Partial};
use crate::data::{Dtype, FileSink, SharedFile, Sink, commit_all, leftovers};
use crate::error::{PartialError, Result};
use crate::expr::Results;
use crate::report::{Computation, InputReport, OutputReport, Report, Setup};

impl Partial {
    /// Completes the job: gives its output files their names, all or none, and returns its report, as
    /// [`Engine::run`](crate::Engine::run) does. The files and their names are on the disk then.
    ///
    /// If the process is killed or the machine stops, another call with the same partials continues. Until it is
    /// complete, there is a hidden journal beside the first output.
    ///
    /// Times and counts of the report are the sums of those of all runs, and there is no bottleneck. If a kernel
    /// selects rows, the selected ones are copied to a new file, which takes time, and their space a second time.
    ///
    /// # Errors
    /// - [`Error::InvalidPartial`](crate::Error::InvalidPartial) if rows are missing;
    /// - [`Error::File`](crate::Error::File) if the rows of an output are not where they were written, or the output
    ///   cannot be given its name. No output appears or changes then, and a clone of this partial may be finished when
    ///   the problem is solved.
    pub fn finish(mut self) -> Result<Report> {
        if let Some(missing) = self.missing() {
            let (start, end, rows) = (missing.start, missing.end, self.job.rows);
            return Err(PartialError::Incomplete { start, end, rows }.into());
        }
        let no_file = self.job.outputs.iter().find(|output| output.file.is_none());
        if let Some(output) = no_file.filter(|_| self.checksum) {
            return Err(PartialError::Checksum { output: output.name.clone() }.into());
        }
        let Some(first) = self.shared_files()?.into_iter().flatten().next() else {
            let none = self.checksums()?;
            return self.into_report(vec![], none);
        };
        let (mut journal, earlier) = OpenJournal::open(&Journal::at(first.merge_journal()), &self.job)?;
        // Other marks are those of files that were removed since then.
        let earlier = earlier.filter(|earlier| earlier.written.marks == self.written.marks);
        self.written.stamps = earlier.and_then(|earlier| earlier.written.stamps);
        match self.name_outputs(&mut journal) {
            Ok(mut notes) => {
                let checksums = self.checksums()?;
                notes.extend(journal.remove());
                self.into_report(notes, checksums)
            }
            Err(error) => {
                if !self.has_names()? {
                    // The journal says nothing that the partials do not.
                    journal.remove();
                }
                Err(error)
            }
        }
    }

    /// Completes the job as [`finish`](Partial::finish) does, with the journal of its run.
    pub(crate) fn finish_run(mut self, mut journal: OpenJournal) -> Result<Report> {
        let mut notes = self.name_outputs(&mut journal)?;
        let checksums = self.checksums()?;
        notes.extend(journal.remove());
        self.into_report(notes, checksums)
    }

    /// Gives the outputs their names, all or none of those that have none yet. Returns notes.
    fn name_outputs(&mut self, journal: &mut OpenJournal) -> Result<Vec<String>> {
        if let Some(kept) = &mut self.written.kept {
            kept.sort_unstable_by_key(|range| range.first);
        }
        let (files, is_continued) = (self.shared_files()?, self.is_naming());
        let mut stamps = self.written.stamps.take().unwrap_or_else(|| vec![None; files.len()]);
        let mut sinks: Vec<(usize, FileSink)> = Vec::new();
        for (k, file) in files.iter().enumerate() {
            let (Some(file), Some(mark)) = (file, self.written.marks[k]) else { continue };
            let is_named = stamps[k].as_ref().map(|stamp| file.is_named(stamp)).transpose()?.unwrap_or(false);
            if !is_named {
                sinks.push((k, file.complete(mark, self.written.kept.as_deref(), self.job.outputs[k].elements)?));
            }
        }
        sinks.iter().try_for_each(|(_, sink)| sink.check())?;
        for (k, sink) in &mut sinks {
            stamps[*k] = Some(sink.seal()?);
        }
        self.written.stamps = Some(stamps);
        if !sinks.is_empty() {
            journal.write(self)?;
        }
        commit_all(sinks.into_iter().map(|(_, sink)| Box::new(sink) as Box<dyn Sink>).collect())?;

        let mut notes = Vec::new();
        let files: Vec<&SharedFile> = files.iter().flatten().collect();
        for file in &files {
            notes.extend(file.sync_name()?);
        }
        if self.written.kept.is_some() {
            notes.extend(files.iter().filter_map(|file| file.remove()));
        }
        if is_continued {
            let own: Vec<_> = files.iter().map(|file| file.hidden_name()).collect();
            notes.extend(leftovers(files.iter().map(|file| file.target()), &own));
        }
        Ok(notes)
    }

    /// Returns whether an output has its name already.
    fn has_names(&self) -> Result<bool> {
        let stamps = self.written.stamps.iter().flatten();
        let mut files = self.shared_files()?.into_iter().zip(stamps);
        files.try_fold(false, |any, (file, stamp)| match (file, stamp) {
            (Some(file), Some(stamp)) => Ok(any || file.is_named(stamp)?),
            _ => Ok(any),
        })
    }

    /// Returns the file of each output that is one.
    fn shared_files(&self) -> Result<Vec<Option<SharedFile>>> {
        let number = self.job.number();
        let file = |output: &OutputId| match output.file {
            Some(_) => output.shared_file(self.job.rows, number).map(Some).ok_or(PartialError::Damaged.into()),
            None => Ok(None),
        };
        self.job.outputs.iter().map(file).collect()
    }

    /// Returns the checksum of each output, if they are wanted, and the time that this took. The outputs have their
    /// names.
    fn checksums(&self) -> Result<(Vec<Option<String>>, Duration)> {
        let begin = Instant::now();
        if !self.checksum {
            return Ok((vec![None; self.job.outputs.len()], Duration::ZERO));
        }
        let files = self.shared_files()?.into_iter();
        let all = files.map(|file| file.map(|file| file.checksum()).transpose()).collect::<Result<_>>()?;
        Ok((all, begin.elapsed()))
    }

    /// Returns the report of the complete job.
    fn into_report(self, notes: Vec<String>, checksums: (Vec<Option<String>>, Duration)) -> Result<Report> {
        let (checksums, checksum_time) = checksums;
        let rows = self.kept_rows().unwrap_or(self.job.rows);
        let Partial { job, state, paths, work, .. } = self;
        let Results { values, arrays } = state.results(job.rows)?;
        let mut report = Report {
            computation: match job.kernel {
                None => Computation::Expression(job.text),
                Some(_) => Computation::Kernel(job.text),
            },
            rows: job.rows,
            results: values,
            arrays,
            inputs: inputs(&job.inputs, paths.inputs)?,
            outputs: outputs(&job.outputs, paths.outputs, rows, checksums)?,
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
            notes,
            measured: false,
            passes: vec![],
            timeline: None,
            verification: None,
            checksum_time,
        };
        let note = work.note();
        work.put_into(&mut report);
        report.notes.extend(note);
        report.total_time += checksum_time;
        Ok(report)
    }
}

fn inputs(inputs: &[InputId], paths: Vec<Option<PathText>>) -> Result<Vec<InputReport>> {
    let each = inputs.iter().zip(paths).map(|(InputId { name, dtype, rows, shape, .. }, path)| {
        let dtype: Dtype = dtype.parse().map_err(|_| PartialError::Damaged)?;
        let (name, shape, path) = (name.clone(), shape.clone().unwrap_or(vec![*rows]), path.map(|path| path.path()));
        Ok(InputReport { name, path, dtype, shape, rows: *rows, bytes: rows.saturating_mul(dtype.size() as u64) })
    });
    each.collect()
}

fn outputs(
    outputs: &[OutputId],
    paths: Vec<Option<PathText>>,
    rows: u64,
    checksums: Vec<Option<String>>,
) -> Result<Vec<OutputReport>> {
    let each = outputs.iter().zip(paths).zip(checksums).map(|((output, path), checksum)| {
        let dtype = output.dtype().ok_or(PartialError::Damaged)?;
        let count = rows.saturating_mul(output.elements);
        let bytes = count.saturating_mul(dtype.size() as u64);
        let (name, shape, path) = (output.name.clone(), output.shape(count), path.map(|path| path.path()));
        Ok(OutputReport { name, dtype, path, shape, rows, bytes, checksum })
    });
    each.collect()
}
