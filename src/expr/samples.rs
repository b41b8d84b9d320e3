//! Sample kernels that together contain every operation on every dtype, and kernels rebuilt from their sources. For
//! tests that compile kernels, run them without a GPU, or compare devices.

use std::sync::Arc;

use super::expression::Expression;
use super::shape::RowShape;
use super::words::{Kind, Unary, Weak};
use super::{header, typing};
use crate::data::Dtype;
use crate::device::kernel::{Kernel, Resident};

/// A few dozen kernels with every operation on every dtype.
pub(crate) fn samples() -> Vec<Kernel> {
    let mut kernels = Vec::new();
    for &dtype in Dtype::ALL {
        kernels.extend([operators(dtype), functions(dtype), casts(dtype), reductions(dtype), filters(dtype)]);
        kernels.push(tallies(dtype));
        kernels.push(values(dtype));
    }
    kernels.extend(mixed());
    for width in [3, 1000] {
        kernels.push(wide(width, &["s = sum(x, axis=-1)", "y = x - max(x, axis=-1, keepdims=True)", "any(x > 1)"]));
        kernels.push(wide(width, &["y = x * 2", "mean(x, axis=0)", "std(x, axis=0)", "argmax(x)"]));
    }
    kernels.into_iter().flatten().collect()
}

/// Rebuilds the kernel of a generated source. The stand-in for the driver runs its host kernel.
pub(crate) fn rebuild(source: &str) -> Option<Kernel> {
    let header::Origin { text, pass, layer, inputs, row, scalars, numbers, outputs } = header::read(source)?;
    let whole = Expression::parse(&text).ok()?;
    let own = outputs.iter().map(|(name, _)| name.as_str());
    let names: Vec<&str> = layer.as_ref().map_or(own.collect(), |of| of.outputs.iter().map(String::as_str).collect());
    let mut expression = pass.map_or_else(|| whole.clone(), |number| whole.pass(number, &names));
    if let Some(of) = &layer {
        expression = expression.layers(&names)?.layers.get(of.number)?.expression.clone();
    }
    let program = expression.bind_rows(&row, &inputs, &scalars, &numbers, &outputs).ok()?;
    let program = Arc::new(program.in_batches(layer.map_or(0, |of| of.batch_rows)));
    // Rows that are the same for all rows are on the device; only their sizes are needed.
    let (_, broadcast) = program.split_inputs();
    let zeros = |input: &usize| Arc::new(Resident::new(&vec![0; program.input_row(*input).1]));
    let ends =
        |(input, rows): &(usize, usize)| Arc::new(Resident::new(&vec![0; 2 * rows * program.input_row(*input).1]));
    let resident = broadcast.iter().map(zeros).chain(program.ends().iter().map(ends)).collect();
    Some(program.kernel_with(resident, 0))
}

/// The kernel of statements in which every assigned name is an output.
fn kernel(inputs: &[(&str, Dtype)], statements: &[String]) -> Option<Kernel> {
    with_values(inputs, &[], statements)
}

/// The same with scalars, which are 3 or true.
fn with_values(inputs: &[(&str, Dtype)], values: &[(&str, Dtype)], statements: &[String]) -> Option<Kernel> {
    let expression = Expression::parse(&statements.join("; ")).ok()?;
    let named = |of: &[(&str, Dtype)]| of.iter().map(|(name, dtype)| ((*name).to_owned(), *dtype)).collect::<Vec<_>>();
    let outputs: Vec<_> = expression.outputs().map(|name| (name.to_owned(), None)).collect();
    let kernel = Arc::new(expression.bind(&named(inputs), &named(values), &[], &outputs).ok()?).kernel();
    kernel
        .values
        .set(values.iter().map(|(_, dtype)| typing::constant_bits(Weak::Int(3), *dtype)).collect::<Option<_>>()?);
    Some(kernel)
}

/// The same of rows of several elements.
fn wide(width: u64, statements: &[&str]) -> Option<Kernel> {
    let expression = Expression::parse(&statements.join("; ")).ok()?;
    let outputs: Vec<_> = expression.outputs().map(|name| (name.to_owned(), None)).collect();
    let row = RowShape { dims: vec![width], ..RowShape::default() };
    let program = expression.bind_rows(&row, &[("x".to_owned(), Dtype::F32)], &[], &[], &outputs).ok()?;
    Some(Arc::new(program).kernel())
}

/// `y0 = …; y1 = …`.
fn numbered(values: impl IntoIterator<Item = String>) -> Vec<String> {
    values.into_iter().enumerate().map(|(index, value)| format!("y{index} = {value}")).collect()
}

fn operators(dtype: Dtype) -> Option<Kernel> {
    let mut signs = vec!["+", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">="];
    if dtype != Dtype::Bool {
        signs.push("-");
    }
    if !dtype.is_float() {
        signs.extend(["&", "|", "^", "<<", ">>"]);
    }
    let mut values: Vec<String> = signs.into_iter().map(|sign| format!("a {sign} b")).collect();
    values.extend(["where(a, a, b)", "min(a, b)", "max(a, b)", "clip(a, b, c)"].map(str::to_owned));
    if dtype != Dtype::Bool {
        values.extend(["-a", "a + 3", "a ** 2", "2 ** a"].map(str::to_owned));
    }
    if dtype.is_float() {
        values.extend(["a ** 0.5", "a ** -1", "a ** 3", "a + nan", "a * 1e-3"].map(str::to_owned));
    } else {
        values.push("~a".to_owned());
    }
    if dtype.is_integer() {
        let (lowest, highest) = typing::range(dtype);
        values.extend([format!("a + {lowest}"), format!("a + {highest}"), "i * a".to_owned()]);
    }
    kernel(&[("a", dtype), ("b", dtype), ("c", dtype)], &numbered(values))
}

fn functions(dtype: Dtype) -> Option<Kernel> {
    let unary = Unary::functions().filter(|(_, op)| dtype != Dtype::Bool || *op != Unary::Sign);
    let unary = unary.map(|(name, _)| format!("{name}(a)"));
    let binary = ["atan2(a, b)", "hypot(a, b)", "fmod(a, b)", "copysign(a, b)", "nextafter(a, b)"].map(str::to_owned);
    kernel(&[("a", dtype), ("b", dtype)], &numbered(unary.chain(binary)))
}

fn casts(dtype: Dtype) -> Option<Kernel> {
    kernel(&[("a", dtype)], &numbered(Dtype::ALL.iter().map(|to| format!("{to}(a)"))))
}

fn reductions(dtype: Dtype) -> Option<Kernel> {
    let mut statements: Vec<String> = Kind::names().map(|(name, _)| format!("{name}(a)")).collect();
    statements.push("sum(a * a)".to_owned());
    kernel(&[("a", dtype)], &statements)
}

fn tallies(dtype: Dtype) -> Option<Kernel> {
    // Keys outside are counted, and are an error only of a run.
    let keys = "i % 1000";
    // So many edges are no different numbers of f16.
    let bins = if dtype.is_half() { 50 } else { 5000 };
    let statements = ["histogram(a, 10, -3, 3)".into(), format!("histogram(a, {bins}, 0, 1e4)"), "sum(a)".into()];
    let weighted = [format!("bincount({keys}, 1000, a)"), format!("bincount({keys}, 3)"), "bincount(a > 1, 2)".into()];
    kernel(&[("a", dtype)], &[&statements[..], &weighted].concat())
}

fn filters(dtype: Dtype) -> Option<Kernel> {
    let kinds = Kind::names().map(|(name, _)| name).filter(|name| !name.starts_with("arg"));
    let mut statements: Vec<String> = kinds.map(|name| format!("{name}(a[b])")).collect();
    statements.extend(numbered(["a[b]", "(a * a)[b]", "i[b]"].map(str::to_owned)));
    statements.extend(["mean(a[a > 1])", "argmax(a)"].map(str::to_owned));
    kernel(&[("a", dtype), ("b", Dtype::Bool)], &statements)
}

fn values(dtype: Dtype) -> Option<Kernel> {
    let mut statements = numbered(["v", "a * v", "where(v > w, a, w)", "v == w", "exp(v) + i"].map(str::to_owned));
    statements.extend(["sum(a * v)", "count(a == w)"].map(str::to_owned));
    with_values(&[("a", dtype)], &[("v", dtype), ("w", dtype)], &statements)
}

/// Kernels with mixed dtypes, without inputs, and with scalars only.
fn mixed() -> Vec<Option<Kernel>> {
    let inputs: Vec<(&str, Dtype)> = Dtype::ALL.iter().map(|&dtype| (dtype_input(dtype), dtype)).collect();
    let pairs = |sign: &str| {
        let left = inputs.iter().flat_map(|(a, _)| inputs.iter().map(move |(b, _)| (*a, *b)));
        numbered(left.filter(|(a, b)| a < b).map(|(a, b)| format!("{a} {sign} {b}")))
    };
    let option = "d1 = (log(s / 100.0) + 0.04) / 0.4; c = s * exp(-d1); m = mean(c); sum(c > 1)";
    vec![
        kernel(&inputs, &pairs("+")),
        kernel(&inputs, &pairs("<")),
        kernel(
            &[],
            &numbered(["i", "i * 0.5", "sqrt(2) + i", "pi", "True", "i % 3 == 0", "randn(7)"].map(str::to_owned)),
        ),
        with_values(&[], &inputs, &pairs("*")),
        neighbours(),
        kernel(&[("s", Dtype::F32)], &[option.to_owned()]),
        kernel(&[("s", Dtype::F64)], &[option.to_owned()]),
    ]
}

/// Shifts and windows. The job has no more rows than the chunk, and none is read around its ends.
fn neighbours() -> Option<Kernel> {
    let values = ["shift(a, 1, edge)", "shift(b, -2, 7)", "diff(a, nan)", "moving_mean(b, 3, 0)", "shift(i, 1, wrap)"];
    kernel(&[("a", Dtype::F64), ("b", Dtype::I32)], &numbered(values.map(str::to_owned)))
}

fn dtype_input(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::Bool => "xb",
        Dtype::I8 => "xi8",
        Dtype::I16 => "xi16",
        Dtype::I32 => "xi32",
        Dtype::I64 => "xi64",
        Dtype::U8 => "xu8",
        Dtype::U16 => "xu16",
        Dtype::U32 => "xu32",
        Dtype::U64 => "xu64",
        Dtype::F16 => "xf16",
        Dtype::Bf16 => "xbf16",
        Dtype::F32 => "xf32",
        Dtype::F64 => "xf64",
    }
}
