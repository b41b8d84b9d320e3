//! Runs some rows of a job.

use std::ffi::OsStr;
use std::ops::Range;
use std::sync::OnceLock;

use super::Engine;
use super::check::{BoundJob, bind};
use super::passes::PassContext;
use crate::data::{Kept, Mark, Output, Parts, SharedFile, Unsynced};
use crate::device::Precision;
use crate::device::kernel::TILE_ROWS;
use crate::error::{JobError, Result};
use crate::job::{Job, JobBody};
use crate::panics;
use crate::partial::{InputId, JobId, OutputFile, OutputId, Partial, PathText, Paths, Work, Written};

/// A part of a job: how its outputs are shared with other processes.
pub(super) struct Part {
    /// The file of each output that is one.
    pub(super) files: Vec<Option<SharedFile>>,
    /// The run with a journal whose rows these are.
    pub(super) ahead: Option<Ahead>,
    /// The marks of these files, which are known when they are open.
    pub(super) marks: OnceLock<Vec<Option<Mark>>>,
}

/// A run with a journal, which runs its rows in order.
#[derive(Clone)]
pub(super) struct Ahead {
    /// Receives the files that are written. The caller waits until they are on the disk.
    pub(super) unsynced: Unsynced,
    /// The rows before these that a kernel selected. Those that it selects now follow them, so that the journal does
    /// not grow with every part.
    pub(super) kept: u64,
}

impl Part {
    /// Returns the names of the files while they are hidden.
    pub(super) fn hidden_names(&self) -> Vec<&OsStr> {
        self.files.iter().flatten().map(SharedFile::hidden_name).collect()
    }
}

impl Engine {
    /// Runs some rows of a job, and returns what [`Partial::merge`] needs of them.
    ///
    /// The rows begin and end at multiples of [`part_step`](Engine::part_step), or at the end of the job;
    /// [`rows_of_part`](Engine::rows_of_part) returns such rows. Any processes with the same inputs may run other rows,
    /// on any devices: results and outputs have the same bits as those of one run.
    ///
    /// All processes write an output file in place, under a hidden name beside it: `.NAME.xxxxxxxxxxxxxxxx.parts`, with
    /// a number of the job. When this function returns, the rows are on the disk. [`Partial::finish`] gives the file
    /// its name. After an error the hidden file stays, because other processes may have written their rows. The same
    /// rows may be run again. Each run writes its rows of a slice. Arrays on GPUs are refused, and slices of a kernel
    /// that selects rows.
    ///
    /// # Errors
    /// Those of [`run`](Engine::run). [`Error::InvalidJob`](crate::Error::InvalidJob) if the job cannot be run in
    /// parts, or the rows are not as above.
    pub fn run_rows(&self, job: Job<'_>, rows: Range<u64>) -> Result<Partial> {
        panics::caught_in_job(|| self.run_part(job, rows, None))
    }

    /// Runs some rows of a job, `ahead` as part of a run with a journal.
    pub(super) fn run_part(&self, job: Job<'_>, rows: Range<u64>, ahead: Option<Ahead>) -> Result<Partial> {
        check_targets(&job)?;
        if job.checksum {
            return Err(JobError::PartialChecksum.into());
        }
        let mut bound = bind(&job)?.of_rows(rows.clone())?;
        let id = identify(&job, &bound)?;
        let number = id.number();
        let files = id.outputs.iter().map(|output| output.shared_file(id.rows, number)).collect();
        bound.part = Some(Part { files, ahead, marks: OnceLock::new() });
        let paths = Paths {
            inputs: job.inputs.iter().map(|(_, input)| input.source().path().map(PathText::from)).collect(),
            outputs: job.outputs.iter().map(|(_, output)| output.target().path().map(PathText::from)).collect(),
        };
        let report = self.run_pass(job, &bound, PassContext::default())?.commit()?;
        let kept = bound.operator.compacts().then(|| {
            let kept = report.outputs.first().map_or(0, |output| output.rows);
            let range = Kept { first: rows.start, rows: rows.end - rows.start, kept };
            if rows.is_empty() { vec![] } else { vec![range] }
        });
        let marks = bound.part.and_then(|part| part.marks.into_inner()).unwrap_or_default();
        let written = Written { marks, kept, stamps: None };
        Ok(Partial::new((id, paths), rows, bound.operator.state(), written, Work::of(report)))
    }

    /// Returns the rows of part `part`, from 0 on, of a job that is divided into `of` parts of nearly the same size,
    /// for [`run_rows`](Engine::run_rows). If there are more parts than blocks of rows, some are empty.
    ///
    /// ```
    /// use overshot::{Engine, Job};
    /// let engine = Engine::builder().build()?;
    /// let job = Job::eval("sum(i)")?.rows(10_000);
    /// assert_eq!(engine.rows_of_part(&job, 0, 2)?, 0..4096);
    /// assert_eq!(engine.rows_of_part(&job, 1, 2)?, 4096..10_000);
    /// # Ok::<(), overshot::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`plan`](Engine::plan). [`Error::InvalidJob`](crate::Error::InvalidJob) if there is no such part.
    pub fn rows_of_part(&self, job: &Job<'_>, part: u64, of: u64) -> Result<Range<u64>> {
        if part >= of {
            return Err(JobError::PartNumber { part, of }.into());
        }
        let bound = panics::caught_in_job(|| bind(job))?;
        let step = step_of(&bound);
        let steps = u128::from(bound.rows.div_ceil(step));
        let border = |part: u64| {
            let row = steps * u128::from(part) / u128::from(of) * u128::from(step);
            row.min(u128::from(bound.rows)) as u64
        };
        Ok(border(part)..border(part + 1))
    }

    /// Returns the number of rows of which the parts of a job begin at multiples: 4096, more for a kernel whose blocks
    /// of rows do not divide it, and fewer for an expression whose rows have several elements. It is for callers of
    /// [`run_rows`](Engine::run_rows) whose data already has parts.
    ///
    /// # Errors
    /// Those of [`plan`](Engine::plan).
    pub fn part_step(&self, job: &Job<'_>) -> Result<u64> {
        Ok(step_of(&panics::caught_in_job(|| bind(job))?))
    }
}

/// Returns a number of whole tiles. Parts of a job begin at multiples of it.
pub(super) fn step_of(bound: &BoundJob) -> u64 {
    let tile = bound.tile_rows();
    // The tiles of rows of several elements are large enough.
    let tiles = if bound.wide.is_some() { 1 } else { (TILE_ROWS as u64).div_ceil(tile) };
    tile * tiles
}

/// Identifies a job that is to be run in parts.
///
/// # Errors
/// If an output cannot be written in parts, or an input cannot be read.
pub(super) fn identify(job: &Job<'_>, bound: &BoundJob) -> Result<JobId> {
    check_results(job)?;
    let scalars = job.values.iter().map(|(name, value)| (name.clone(), format!("{value}:{}", value.dtype())));
    let numbers = job.numbers.iter().map(|(name, number)| (name.clone(), number.to_string()));
    let (kernel, given) = match &job.what {
        JobBody::Expression(_) => (None, vec![]),
        JobBody::Kernel(call) => (Some(call.fingerprint()), call.given_text()),
    };
    Ok(JobId {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        text: job.what.text().to_owned(),
        kernel,
        rows: bound.rows,
        outputs: outputs(&job.outputs, bound)?,
        inputs: job.inputs.iter().map(|(name, input)| InputId::of(name, input.source())).collect::<Result<_>>()?,
        values: scalars.chain(numbers).chain(given).collect(),
        precision: (job.precision != Precision::Full).then(|| job.precision.to_string()),
    })
}

/// Checks that the output files of a job can be created.
///
/// # Errors
/// Returns an error if one exists that is not to be replaced, or may not be written.
pub(super) fn check_targets(job: &Job<'_>) -> Result<()> {
    job.all_outputs().try_for_each(|(_, output)| match output.target().new_file() {
        Some(file) => file.check(),
        None => Ok(()),
    })
}

/// Checks that all outputs of a job are those of rows: a result is known when all rows are.
///
/// # Errors
/// [`JobError::PartialResult`] if one is not.
fn check_results(job: &Job<'_>) -> Result<()> {
    match job.result_outputs.first() {
        Some((name, _)) => Err(JobError::PartialResult { name: name.clone() }.into()),
        None => Ok(()),
    }
}

fn outputs(all: &[(String, Output<'_>)], bound: &BoundJob) -> Result<Vec<OutputId>> {
    let mut ids: Vec<OutputId> = Vec::with_capacity(all.len());
    for (k, ((name, output), column)) in all.iter().zip(&bound.outputs).enumerate() {
        let target = output.target();
        let file = match target.parts() {
            Parts::Refused => {
                return Err(JobError::PartialOutput { name: name.clone(), target: target.name() }.into());
            }
            Parts::InPlace if bound.operator.compacts() => {
                return Err(JobError::PartialSelection { name: name.clone() }.into());
            }
            Parts::InPlace => None,
            Parts::File(file) => Some(OutputFile::new(&file.target()?, file.format(), file.is_forced())),
        };
        let is_same = |other: &&OutputId| file.as_ref().is_some_and(|file| other.is_file(file));
        if let Some(other) = ids.iter().find(is_same) {
            let (other, target) = (other.name.clone(), target.name());
            return Err(JobError::PartialTable { name: name.clone(), other, target }.into());
        }
        let shape = bound.output_shape(k);
        ids.push(OutputId::new(name, column.dtype, column.elements, shape.as_deref(), file));
    }
    Ok(ids)
}
