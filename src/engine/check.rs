//! Whether the parts of a job fit each other.

use crate::data::{Input, Output, same_file};
use crate::error::{Error, Result};
use crate::expr::Program;
use crate::job::Job;

/// Checks a job as far as that is possible before anything runs.
pub(super) fn bind(job: &Job<'_>) -> Result<(Program, u64)> {
    job.check_names()?;
    let rows = job.row_count()?;
    check_shapes(&job.inputs)?;
    check_files(&job.inputs, &job.outputs)?;
    // In the order of the job, which is then that of the columns.
    let inputs: Vec<_> = job.inputs.iter().map(|(name, input)| (name.clone(), input.source().dtype())).collect();
    let casts = job.outputs.iter().map(|(name, output)| {
        let target = output.target();
        (name.clone(), target.dtype().filter(|_| target.cast()))
    });
    let program = job.expression.bind(&inputs, &casts.collect::<Vec<_>>())?;
    for ((name, output), (_, dtype)) in job.outputs.iter().zip(program.outputs()) {
        match output.target().dtype() {
            Some(own) if own != *dtype => {
                return Err(Error::Job(format!(
                    "output '{name}' ({}) holds {own}, but the expression gives {dtype}: cast it in the expression \
                     ({name} = {own}(…)) or pass one of {dtype}",
                    output.target().name()
                )));
            }
            _ => {}
        }
    }
    Ok((program, rows))
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
