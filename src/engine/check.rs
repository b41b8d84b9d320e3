//! Whether the parts of a job fit each other.

use crate::data::{Dtype, Input, Output, Scalar, same_file};
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
    /// The dtype of each input, and how many elements it has. Its source is asked once: one that says something else later must not
    /// change what is copied where.
    pub(super) sources: Vec<(Dtype, u64)>,
    /// Elements of a row of each input.
    pub(super) inputs: Vec<u64>,
    /// The dtype of each output, and the elements of a row.
    pub(super) outputs: Vec<(Dtype, u64)>,
    /// What is the same for all rows of an expression.
    pub(super) values: Vec<(String, Dtype)>,
}

impl Bound {
    /// The bits of other values than those of the job, in the order of the kernel's values.
    ///
    /// # Errors
    /// [`Error::Job`] if they are not of the same names and dtypes.
    pub(super) fn bits_of(&self, values: &[(String, Scalar)]) -> Result<Vec<u64>> {
        for (k, (name, _)) in values.iter().enumerate() {
            if !self.values.iter().any(|(own, _)| own == name) {
                return Err(Error::Job(format!(
                    "the job has no value '{name}' to begin with: give it one (Job::value)"
                )));
            }
            if values[..k].iter().any(|(other, _)| other == name) {
                return Err(Error::Job(format!("value '{name}' is given twice: leave one out")));
            }
        }
        let bits = |(name, dtype): &(String, Dtype)| match values.iter().find(|(other, _)| other == name) {
            Some((_, value)) if value.dtype() == *dtype => Ok(value.bits()),
            Some((_, value)) => Err(Error::Job(format!(
                "the value '{name}' is {dtype} to begin with, but {} later: convert it",
                value.dtype()
            ))),
            None => Err(Error::Job(format!("there is no value for '{name}': give it one of {dtype}"))),
        };
        self.values.iter().map(bits).collect()
    }
}

/// Checks a job as far as that is possible before anything runs.
pub(super) fn bind(job: &Job<'_>) -> Result<Bound> {
    check_files(&job.inputs, &job.outputs)?;
    // In the order of the job, which is then that of the columns.
    let sources: Vec<_> = job.inputs.iter().map(|(_, input)| (input.source().dtype(), input.source().rows())).collect();
    let named = job.inputs.iter().zip(&sources);
    let inputs: Vec<_> = named.map(|((name, _), (dtype, _))| (name.clone(), *dtype)).collect();
    let counts: Vec<u64> = sources.iter().map(|(_, count)| *count).collect();
    let bound = match &job.what {
        What::Expression(expression) => {
            job.check_names(expression)?;
            let (ins, outs) = (vec![1; inputs.len()], vec![1; job.outputs.len()]);
            let rows = job.row_count(&counts, (&ins, &outs))?;
            check_shapes(&job.inputs)?;
            let casts = job.outputs.iter().map(|(name, output)| {
                let target = output.target();
                (name.clone(), target.dtype().filter(|_| target.cast()))
            });
            let values: Vec<_> = job.values.iter().map(|(name, value)| (name.clone(), value.dtype())).collect();
            let program = expression.bind(&inputs, &values, &casts.collect::<Vec<_>>())?;
            let outputs = program.outputs().iter().map(|(_, dtype)| (*dtype, 1)).collect();
            let operator = Box::new(Eval::new(program));
            let bound = Bound { operator, rows, is_expression: true, sources, inputs: ins, outputs, values };
            if !job.late {
                bound.operator.kernel().values.set(bound.bits_of(&job.values)?);
            }
            bound
        }
        What::Kernel(call) => {
            if let Some((name, _)) = job.values.first() {
                return Err(Error::Job(format!(
                    "the kernel '{}' has the values of its call: give it '{name}' there (Call::value)",
                    call.entry()
                )));
            }
            let names: Vec<_> = job.outputs.iter().map(|(name, _)| name.clone()).collect();
            let foreign::Bound { kernel, inputs, outputs } = call.bind(&inputs, &names)?;
            let outs: Vec<_> = outputs.iter().map(|(_, elements)| *elements).collect();
            let rows = job.row_count(&counts, (&inputs, &outs))?;
            let operator = Box::new(Foreign::new(kernel));
            Bound { operator, rows, is_expression: false, sources, inputs, outputs, values: vec![] }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> Job<'static> {
        Job::eval("sum(i * b + a)").unwrap().rows(1).value("a", 1i8).value("b", 2.0)
    }

    #[test]
    fn values_come_with_the_job_or_late() {
        let bits = [1, 2f64.to_bits()];
        assert_eq!(bind(&job()).unwrap().operator.kernel().values.wait(), Some(&bits[..]));
        let late = bind(&Job { late: true, ..job() }).unwrap();
        let values = &late.operator.kernel().values;
        assert!(!values.are_known());
        values.set(late.bits_of(&[("b".into(), Scalar::F64(0.5)), ("a".into(), Scalar::I8(-1))]).unwrap());
        assert_eq!(values.wait(), Some(&[255, 0.5f64.to_bits()][..]));
    }

    #[test]
    fn later_values_are_as_the_first() {
        let bound = bind(&job()).unwrap();
        let (a, b) = (("a".to_owned(), Scalar::I8(3)), ("b".to_owned(), Scalar::F64(4.0)));
        for (values, problem) in [
            (vec![a.clone()], "there is no value for 'b': give it one of f64"),
            (vec![a.clone(), b.clone(), a.clone()], "value 'a' is given twice: leave one out"),
            (vec![a, b.clone(), ("c".to_owned(), Scalar::I8(3))], "the job has no value 'c' to begin with"),
            (vec![("a".to_owned(), Scalar::I64(3)), b], "the value 'a' is i8 to begin with, but i64 later: convert it"),
        ] {
            let Err(Error::Job(text)) = bound.bits_of(&values) else { panic!("no error: {problem}") };
            assert!(text.contains(problem), "{text}");
        }
    }
}
