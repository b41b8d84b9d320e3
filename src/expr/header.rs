//! The first line of a generated source says what it was generated from, as a comment with JSON in it.
//!
//! Every generated kernel has it, because the tests run the real host code of CUDA on a stand-in for the driver, which is
//! handed the source and has no GPU. From this line it builds the kernel again and runs its host function instead of the
//! device code. A header that only tests had would mean that they do not test the source that users run. It also tells
//! someone who looks at a kernel in a profiler or a cache which expression it is of.

use super::program::Program;
use crate::data::Dtype;

const PREFIX: &str = "// overshot eval v1: ";

#[derive(serde::Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(serde::Deserialize))]
struct Header {
    expression: String,
    inputs: Vec<(String, String)>,
    values: Vec<(String, String)>,
    outputs: Vec<(String, Option<String>)>,
}

/// An expression, and what it was bound to.
#[cfg(any(test, feature = "testing"))]
pub(super) struct Origin {
    pub(super) text: String,
    pub(super) inputs: Vec<(String, Dtype)>,
    pub(super) values: Vec<(String, Dtype)>,
    pub(super) outputs: Vec<(String, Option<Dtype>)>,
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

/// What a generated source was generated from; `None` if it is no such source.
#[cfg(any(test, feature = "testing"))]
pub(super) fn read(source: &str) -> Option<Origin> {
    let header: Header = serde_json::from_str(source.lines().next()?.strip_prefix(PREFIX)?).ok()?;
    let dtypes = |names: Vec<(String, String)>| -> Option<Vec<(String, Dtype)>> {
        names.into_iter().map(|(name, dtype)| Some((name, Dtype::from_name(&dtype)?))).collect()
    };
    let (inputs, values) = (dtypes(header.inputs)?, dtypes(header.values)?);
    let outputs = header.outputs.into_iter().map(|(name, dtype)| match dtype {
        Some(dtype) => Some((name, Some(Dtype::from_name(&dtype)?))),
        None => Some((name, None)),
    });
    Some(Origin { text: header.expression, inputs, values, outputs: outputs.collect::<Option<_>>()? })
}
