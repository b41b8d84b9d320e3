//! Whether the parts of a job fit each other.

use crate::data::{Dtype, Input, Output, same_file};
use crate::error::{Error, Result};
use crate::foreign;
use crate::job::{Job, What};
use crate::ops::{Eval, Foreign, Operator};

/// A job that fits together: its operator, and what its columns are.
pub(super) struct Bound {
    pub(super) operator: Box<dyn Operator>,
    pub(super) rows: u64,
    /// Whether it is an expression, and no kernel of the caller's own.
    pub(super) is_expression: bool,
    /// Elements of a row of each input.
    pub(super) inputs: Vec<u64>,
    /// The dtype of each output, and the elements of a row.
    pub(super) outputs: Vec<(Dtype, u64)>,
}

/// Checks a job as far as that is possible before anything runs.
pub(super) fn bind(job: &Job<'_>) -> Result<Bound> {
    check_files(&job.inputs, &job.outputs)?;
    // In the order of the job, which is then that of the columns.
    let inputs: Vec<_> = job.inputs.iter().map(|(name, input)| (name.clone(), input.source().dtype())).collect();
    let bound = match &job.what {
        What::Expression(expression) => {
            job.check_names(expression)?;
            let (ins, outs) = (vec![1; inputs.len()], vec![1; job.outputs.len()]);
            let rows = job.row_count((&ins, &outs))?;
            check_shapes(&job.inputs)?;
            let casts = job.outputs.iter().map(|(name, output)| {
                let target = output.target();
                (name.clone(), target.dtype().filter(|_| target.cast()))
            });
            let program = expression.bind(&inputs, &casts.collect::<Vec<_>>())?;
            let outputs = program.outputs().iter().map(|(_, dtype)| (*dtype, 1)).collect();
            Bound { operator: Box::new(Eval::new(program)), rows, is_expression: true, inputs: ins, outputs }
        }
        What::Kernel(call) => {
            let names: Vec<_> = job.outputs.iter().map(|(name, _)| name.clone()).collect();
            let foreign::Bound { kernel, inputs, outputs } = call.bind(&inputs, &names)?;
            let rows = job.row_count((&inputs, &outputs.iter().map(|(_, elements)| *elements).collect::<Vec<_>>()))?;
            Bound { operator: Box::new(Foreign::new(kernel)), rows, is_expression: false, inputs, outputs }
        }
    };
    for ((name, output), (dtype, _)) in job.outputs.iter().zip(&bound.outputs) {
        match output.target().dtype() {
            Some(own) if own != *dtype => {
                let remedy = match job.what {
                    What::Expression(_) => {
                        format!("cast it in the expression ({name} = {own}(…)) or pass one of {dtype}")
                    }
                    What::Kernel(_) => format!("pass one of {dtype}"),
                };
                return Err(Error::Job(format!(
                    "output '{name}' ({}) holds {own}, but the result is {dtype}: {remedy}",
                    output.target().name()
                )));
            }
            _ => {}
        }
    }
    Ok(bound)
}

/// Rows are elements in C order; two arrays of other dimensions would be paired in a way that nobody means.
fn check_shapes(inputs: &[(String, Input<'_>)]) -> Result<()> {
    let mut shapes = inputs.iter().filter_map(|(name, input)| Some((name, input.source().shape()?)));
    let mut shapes = shapes.by_ref().filter(|(_, shape)| shape.len() > 1);
    let Some((first, shape)) = shapes.next() else { return Ok(()) };
    match shapes.find(|(_, other)| *other != shape) {
        None => Ok(()),
        Some((name, other)) => Err(Error::Job(format!(
            "input '{first}' has the shape {shape:?} but '{name}' has {other:?}: reshape one of them"
        ))),
    }
}

/// No output may be one of the inputs, or another output.
fn check_files(inputs: &[(String, Input<'_>)], outputs: &[(String, Output<'_>)]) -> Result<()> {
    for (k, (name, output)) in outputs.iter().enumerate() {
        let Some(path) = output.target().path() else { continue };
        let inputs = inputs.iter().filter_map(|(other, input)| Some((other, input.source().path()?)));
        let others = outputs[..k].iter().filter_map(|(other, output)| Some((other, output.target().path()?)));
        if let Some((other, _)) = inputs.chain(others).find(|(_, other)| same_file(path, other)) {
            return Err(Error::Job(format!(
                "{} is both '{other}' and the output '{name}': write to another file",
                path.display()
            )));
        }
    }
    Ok(())
}
