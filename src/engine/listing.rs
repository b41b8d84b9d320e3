//! The list of inputs and outputs of a job, for its plan.

use super::check::{BoundJob, Column};
use super::result_outputs::{ArrayKind, kind};
use crate::custom::Given;
use crate::data::{Dtype, Output};
use crate::error::Result;
use crate::job::{Job, JobBody};
use crate::plan::{PlanColumn, Role};

/// Returns the columns, scalars and arrays of a job with these inputs, whose outputs are those of `last`.
pub(super) fn of(job: &Job<'_>, inputs: &[Column], last: &BoundJob) -> Vec<PlanColumn> {
    let inputs = job.inputs.iter().zip(inputs).map(|((name, input), bound)| {
        let role = if bound.is_resident { Role::Resident } else { Role::Input };
        let shape = input.source().shape().map(<[u64]>::to_vec);
        PlanColumn { shape, ..column(name, role, bound.dtype, bound.elements, Some(input.source().name())) }
    });
    let outputs = job.outputs.iter().zip(&last.outputs).enumerate();
    let outputs = outputs.map(|(k, ((name, output), bound))| {
        // How many rows are kept is not known.
        let shape = (!last.operator.compacts()).then(|| last.output_shape(k).unwrap_or_else(|| vec![last.rows]));
        PlanColumn { shape, ..of_output((name, output), bound.dtype, bound.elements) }
    });
    let values = job
        .values
        .iter()
        .map(|(name, value)| column(name, Role::Value, value.dtype(), 1, (!job.deferred).then(|| value.to_string())));
    let numbers = job.numbers.iter();
    let numbers = numbers.map(|(name, number)| column(name, Role::Value, "number", 1, Some(number.to_string())));
    let given = match &job.what {
        JobBody::Expression(_) => vec![],
        JobBody::Kernel(call) => call.given(),
    };
    let given = given.into_iter().map(|(name, given)| match given {
        Given::Value(value) => column(name, Role::Value, value.dtype(), 1, Some(value.to_string())),
        Given::Resident(dtype, elements) => column(name, Role::Resident, dtype, elements, None),
        Given::Scratch(dtype, elements) => column(name, Role::Scratch, dtype, elements, None),
    });
    inputs.chain(outputs).chain(values).chain(numbers).chain(given).collect()
}

/// Returns the results of a job that are arrays: first those with an output.
///
/// # Errors
/// Those of [`kind`].
pub(super) fn of_results(job: &Job<'_>, results: &[ArrayKind]) -> Result<Vec<PlanColumn>> {
    let column = |(name, output): &(String, Output<'_>)| {
        let (_, dtype, shape) = kind((name, output), results, &job.what)?;
        let listed = of_output((name, output), *dtype, shape.iter().product());
        Ok(PlanColumn { shape: Some(shape.clone()), ..listed })
    };
    let written = job.result_outputs.iter().map(column);
    // Others are for later passes only.
    let names = job.result_names();
    let is_written = |name: &str| job.result_outputs.iter().any(|(own, _)| own == name);
    let others = results.iter().filter(|(name, ..)| names.contains(name) && !is_written(name));
    written.chain(others.map(|one| Ok(of_array_result(one)))).collect()
}

fn of_array_result((name, dtype, shape): &ArrayKind) -> PlanColumn {
    let listed = column(name, Role::Result, dtype, shape.iter().product(), None);
    PlanColumn { shape: Some(shape.clone()), ..listed }
}

fn of_output((name, output): (&str, &Output<'_>), dtype: Dtype, elements: u64) -> PlanColumn {
    let target = output.target();
    // A link that leads nowhere also counts as existing: no file can be created there.
    let exists = target.path().is_some_and(|path| path.symlink_metadata().is_ok());
    PlanColumn { exists, ..column(name, Role::Output, dtype, elements, Some(target.name())) }
}

/// Returns the value that a pass receives from earlier ones.
pub(super) fn of_result((name, dtype): &(String, Dtype)) -> PlanColumn {
    column(name, Role::Value, *dtype, 1, Some("from an earlier pass".into()))
}

/// Returns the array that a pass receives from earlier ones.
pub(super) fn of_array(name: &str, dtype: Dtype, elements: u64) -> PlanColumn {
    column(name, Role::Resident, dtype, elements, Some("from an earlier pass".into()))
}

fn column(name: &str, role: Role, dtype: impl ToString, elements: u64, place: Option<String>) -> PlanColumn {
    let (name, dtype) = (name.to_owned(), dtype.to_string());
    PlanColumn { name, role, dtype, elements, shape: None, place, exists: false }
}
