//! The first line of a generated source says what it was generated from.

use std::sync::Arc;

use super::{Expression, Program};
use crate::data::Dtype;
use crate::device::kernel::Kernel;

const PREFIX: &str = "// overshot eval v1: ";

#[derive(serde::Serialize, serde::Deserialize)]
struct Header {
    expression: String,
    inputs: Vec<(String, String)>,
    values: Vec<(String, String)>,
    outputs: Vec<(String, Option<String>)>,
}

/// The first line of the source of a program.
pub(super) fn header(program: &Program) -> String {
    let name = |dtype: Dtype| dtype.name().to_owned();
    let names = |of: &[(String, Dtype)]| of.iter().map(|(own, dtype)| (own.clone(), name(*dtype))).collect();
    let header = Header {
        expression: program.text.clone(),
        inputs: names(&program.inputs),
        values: names(&program.values),
        outputs: program.requested.iter().map(|(output, dtype)| (output.clone(), dtype.map(name))).collect(),
    };
    // Strings and lists of strings always have a JSON form.
    format!("{PREFIX}{}", serde_json::to_string(&header).unwrap_or_default())
}

/// The kernel that a generated source came from, if it is one: what runs sources without a GPU runs its twin.
pub(crate) fn rebuild(source: &str) -> Option<Kernel> {
    let header: Header = serde_json::from_str(source.lines().next()?.strip_prefix(PREFIX)?).ok()?;
    let dtypes = |names: Vec<(String, String)>| -> Option<Vec<(String, Dtype)>> {
        names.into_iter().map(|(name, dtype)| Some((name, dtype.parse().ok()?))).collect()
    };
    let (inputs, values) = (dtypes(header.inputs)?, dtypes(header.values)?);
    let outputs = header.outputs.into_iter().map(|(name, dtype)| match dtype {
        Some(dtype) => Some((name, Some(dtype.parse().ok()?))),
        None => Some((name, None)),
    });
    let outputs: Vec<(String, Option<Dtype>)> = outputs.collect::<Option<_>>()?;
    let program = Expression::parse(&header.expression).ok()?.bind(&inputs, &values, &outputs).ok()?;
    Some(Arc::new(program).kernel())
}
