//! The first line of a generated source: a comment with JSON that describes the expression.
//!
//! The tests run the real host code of CUDA on a stand-in for the driver, which receives the source but has no GPU.
//! The stand-in rebuilds the kernel from this line and runs its host kernel instead of the device code. All generated
//! kernels have the line, so that the tests use the same source as users. It also identifies the expression of a
//! kernel in a profiler or in a cache.

#[cfg(any(test, feature = "testing"))]
use super::number::Number;
use super::program::{LayerOf, Program};
#[cfg(any(test, feature = "testing"))]
use super::shape::{Extent, RowShape};
use crate::data::Dtype;

const PREFIX: &str = "// overshot eval v1: ";

#[derive(serde::Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(serde::Deserialize))]
struct Header {
    expression: String,
    /// Which pass of the expression it is; `null` if it has one.
    pass: Option<usize>,
    /// Which layer of the pass it is, the outputs of that, and the rows of a batch, if it has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    layer: Option<(usize, Vec<String>, usize)>,
    inputs: Vec<(String, String)>,
    /// The shape of a row, if it has several elements.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    row: Vec<u64>,
    /// The number of axes in front of those of a row, without the first one.
    #[serde(default, skip_serializing_if = "is_none")]
    outer: usize,
    /// The extents of the inputs, if some are broadcast.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    extents: Vec<String>,
    /// Which inputs have no dimensions of a row, if some have not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    reduced: Vec<bool>,
    values: Vec<(String, String)>,
    /// Numbers that adapt; `null` for floats that the kernel receives, so that the source does not depend on them.
    numbers: Vec<(String, Option<String>)>,
    outputs: Vec<(String, Option<String>)>,
}

/// An expression with the columns and scalars it was bound to.
#[cfg(any(test, feature = "testing"))]
pub(super) struct Origin {
    pub(super) text: String,
    pub(super) pass: Option<usize>,
    pub(super) layer: Option<LayerOf>,
    pub(super) inputs: Vec<(String, Dtype)>,
    pub(super) row: RowShape,
    pub(super) scalars: Vec<(String, Dtype)>,
    pub(super) numbers: Vec<(String, Number)>,
    pub(super) outputs: Vec<(String, Option<Dtype>)>,
}

fn is_none(outer: &usize) -> bool {
    *outer == 0
}

/// Returns the first line of the source of a program.
pub(super) fn header(program: &Program) -> String {
    let name = |dtype: Dtype| dtype.name().to_owned();
    let names = |of: &[(String, Dtype)]| of.iter().map(|(own, dtype)| (own.clone(), name(*dtype))).collect();
    let header = Header {
        expression: program.text.to_string(),
        pass: program.pass,
        layer: program.layer.clone().map(|LayerOf { number, outputs, batch_rows }| (number, outputs, batch_rows)),
        inputs: names(&program.inputs),
        row: program.row.dims.clone(),
        outer: program.row.outer,
        extents: program.row.extents.iter().map(|extent| extent.name().to_owned()).collect(),
        reduced: program.row.reduced.clone(),
        values: names(&program.values),
        numbers: program.numbers.iter().map(|(name, part)| (name.clone(), part.map(|part| part.to_string()))).collect(),
        outputs: program.requested.iter().map(|(output, dtype)| (output.clone(), dtype.map(name))).collect(),
    };
    // Strings and lists of strings always have a JSON form.
    format!("{PREFIX}{}", serde_json::to_string(&header).unwrap_or_default())
}

/// Reads the first line of a generated source; `None` for other sources.
#[cfg(any(test, feature = "testing"))]
pub(super) fn read(source: &str) -> Option<Origin> {
    let header: Header = serde_json::from_str(source.lines().next()?.strip_prefix(PREFIX)?).ok()?;
    let dtypes = |names: Vec<(String, String)>| -> Option<Vec<(String, Dtype)>> {
        names.into_iter().map(|(name, dtype)| Some((name, dtype.parse().ok()?))).collect()
    };
    let extents = header.extents.iter().map(|name| Extent::parse(name)).collect::<Option<_>>()?;
    let row = RowShape { dims: header.row, outer: header.outer, extents, reduced: header.reduced, lacks: vec![] };
    let (inputs, mut scalars) = (dtypes(header.inputs)?, dtypes(header.values)?);
    let received = header.numbers.iter().filter(|(_, part)| part.is_none()).count();
    scalars.truncate(scalars.len().checked_sub(received)?);
    // Any float stands for one that the kernel receives.
    let numbers = header.numbers.into_iter().map(|(name, part)| match part {
        Some(part) => Some((name, part.parse().ok()?)),
        None => Some((name, Number::from(0.5))),
    });
    let numbers = numbers.collect::<Option<_>>()?;
    let outputs = header.outputs.into_iter().map(|(name, dtype)| match dtype {
        Some(dtype) => Some((name, Some(dtype.parse().ok()?))),
        None => Some((name, None)),
    });
    let outputs = outputs.collect::<Option<_>>()?;
    let layer = header.layer.map(|(number, outputs, batch_rows)| LayerOf { number, outputs, batch_rows });
    Some(Origin { text: header.expression, pass: header.pass, layer, inputs, row, scalars, numbers, outputs })
}
