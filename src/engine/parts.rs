//! Runs some rows of a job.

use std::ops::Range;

use super::Engine;
use super::check::bind;
use super::passes::PassContext;
use crate::error::{JobError, Result};
use crate::job::{Job, JobBody};
use crate::partial::{InputId, JobId, Partial};

impl Engine {
    /// Runs some rows of a job, and returns what [`Partial::merge`] needs of them.
    ///
    /// The job is an expression with reductions, and without outputs. The rows begin and end at multiples of 4096, or
    /// at the end of the job. Any processes with the same inputs may run other rows, on any devices: the results have
    /// the same bits as those of one run.
    ///
    /// # Errors
    /// Those of [`run`](Engine::run). [`Error::InvalidJob`](crate::Error::InvalidJob) if the job cannot be run in
    /// parts, or the rows are not as above.
    ///
    /// # Panics
    /// Those of [`run`](Engine::run).
    pub fn run_rows(&self, job: Job<'_>, rows: Range<u64>) -> Result<Partial> {
        let text = match &job.what {
            JobBody::Expression(expression) => expression.text().to_owned(),
            JobBody::Kernel(call) => return Err(JobError::PartialKernel { kernel: call.entry().to_owned() }.into()),
        };
        if let Some((name, _)) = job.outputs.first() {
            return Err(JobError::PartialOutput { name: name.clone() }.into());
        }
        let bound = bind(&job)?.of_rows(rows.clone())?;
        let inputs = job.inputs.iter().map(|(name, input)| InputId::of(name, input.source()));
        let scalars = job.values.iter().map(|(name, value)| (name.clone(), format!("{value}:{}", value.dtype())));
        let numbers = job.numbers.iter().map(|(name, number)| (name.clone(), number.to_string()));
        let id = JobId {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            text,
            rows: bound.rows,
            inputs: inputs.collect::<Result<_>>()?,
            values: scalars.chain(numbers).collect(),
        };
        self.run_pass(job, &bound, PassContext::default())?;
        let (reductions, nodes) = bound.operator.state();
        Ok(Partial::new(id, rows, reductions, nodes))
    }
}
