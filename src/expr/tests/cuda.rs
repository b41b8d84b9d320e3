//! Compiles the CUDA source as plain C++, to check without a GPU that it gives the same bits as the host kernel.

use std::sync::Arc;

use super::super::program::Program;
use super::super::words::{Kind, Unary};
use super::super::{Expression, functions, samples};
use super::{Column, filter, run_partials, run_values};
use crate::data::{Dtype, Scalar};
use crate::device::as_cpp::{self, has_compiler};
use crate::device::kernel::{Argument, Columns};

/// Every operation and every reduction, with operands of the same dtype.
fn program(dtype: Dtype) -> Arc<Program> {
    everything(&["a", "b"].map(|name| (name.to_owned(), dtype)), &[])
}

/// The same with `a` and `b` as inputs or scalars.
pub(super) fn everything(inputs: &[(String, Dtype)], values: &[(String, Dtype)]) -> Arc<Program> {
    let mut terms: Vec<String> =
        ["+", "-", "*", "/", "//", "%", "&", "|", "^", "<<", ">>", "==", "!=", "<", "<=", ">", ">="]
            .map(|sign| format!("a {sign} b"))
            .into();
    terms.extend(Dtype::ALL.iter().map(|to| format!("{to}(a)")));
    terms.extend(Unary::functions().map(|(name, _)| format!("{name}(a)")));
    terms.extend(["-a", "~a", "where(a, a, b)", "min(a, b)", "max(a, b)", "clip(a, b, 1)", "i + a"].map(str::to_owned));
    terms.extend(["a ** b", "atan2(a, b)", "hypot(a, b)"].map(str::to_owned));
    terms.extend(["fmod(a, b)", "copysign(a, b)", "nextafter(a, b)"].map(str::to_owned));
    // Of NaNs that were computed, the processor chooses the sign.
    terms.extend(["signbit(a - b)", "copysign(a, a * b)"].map(str::to_owned));
    terms.extend(["rand(a)", "randn(a)", "rand(18446744073709551615)"].map(str::to_owned));
    let statements = terms.iter().enumerate().map(|(k, term)| format!("y{k} = {term}"));
    // Not every operator accepts every dtype.
    let mut statements: Vec<String> =
        statements.filter(|statement| bind(statement, inputs, values).is_some()).collect();
    statements.extend(Kind::names().map(|(name, _)| format!("{name}(a)")));
    Arc::new(bind(&statements.join("; "), inputs, values).unwrap())
}

fn bind(text: &str, inputs: &[(String, Dtype)], values: &[(String, Dtype)]) -> Option<Program> {
    let expression = Expression::parse(text).unwrap();
    let outputs: Vec<_> = expression.outputs().map(|name| (name.to_owned(), None)).collect();
    expression.bind(inputs, values, &[], &outputs).ok()
}

/// Compiles and runs a kernel. Returns the bytes of its outputs, followed by those of its partials.
fn run_as_cpp(program: &Arc<Program>, first_row: u64, rows: usize, inputs: &[Column], values: &[u64]) -> Vec<u8> {
    run_wide_as_cpp(program, (first_row, rows), (inputs, &[]), values)
}

/// The same with rows of any shape. `resident` are those that are the same for all rows.
pub(super) fn run_wide_as_cpp(
    program: &Arc<Program>,
    (first_row, rows): (u64, usize),
    inputs: (&[Column], &[Column]),
    values: &[u64],
) -> Vec<u8> {
    run_rows_as_cpp(program, Rows { first_row, rows, total_rows: 0 }, inputs, values)
}

/// Some rows of a job.
pub(super) struct Rows {
    pub(super) first_row: u64,
    pub(super) rows: usize,
    pub(super) total_rows: u64,
}

/// The same with inputs that have the rows of their halos. `resident` has the ends of inputs, too.
pub(super) fn run_rows_as_cpp(
    program: &Arc<Program>,
    Rows { first_row, rows, total_rows }: Rows,
    (inputs, resident): (&[Column], &[Column]),
    values: &[u64],
) -> Vec<u8> {
    let kernel = program.kernel();
    let sizes = |sizes: &[usize]| sizes.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    let columns = &Columns { total_rows, ..kernel.columns };
    let range = first_row..first_row + rows as u64;
    let fronts: Vec<usize> = (0..inputs.len()).map(|k| columns.window_bytes(k, &range).0).collect();
    let input_bytes: Vec<usize> = inputs.iter().map(|input| input.bytes().len()).collect();
    let written = inputs.len() + columns.outputs.len();
    let partials = usize::from(columns.has_partials());
    let arguments: String = (0..written + partials).map(|k| format!(", at[{k}]")).collect();
    let values = values.iter().zip(&program.values).map(|(bits, (_, dtype))| match dtype {
        Dtype::F16 | Dtype::Bf16 => format!(", {dtype}_bits({bits:#x}u)"),
        Dtype::F32 => format!(", f32_bits({bits:#x}u)"),
        Dtype::F64 => format!(", f64_bits({bits:#x}ull)"),
        _ => format!(", {bits:#x}ull"),
    });
    let at_resident = (0..resident.len()).map(|k| format!(", at[{}]", written + 1 + k));
    let arguments = arguments + &values.chain(at_resident).collect::<String>();
    let reads_total = kernel.launch.arguments.contains(&Argument::TotalRows);
    let total = if reads_total { format!(", {total_rows}") } else { String::new() };
    let resident_sizes: Vec<usize> = resident.iter().map(|row| row.bytes().len()).collect();
    let functions = format!(
        "static Columns columns() {{ return {{{{{}}}, {{{}}}, {{{}}}, {}, {}, {{{}}}, {}, {}}}; }}\n\
         static void launch(long long first_row, long long rows, std::vector<Column>& at) {{\n\
             overshot_eval(first_row, rows{total}{arguments});\n\
         }}\n",
        sizes(&input_bytes),
        sizes(&fronts),
        sizes(&columns.outputs),
        columns.chunk_words * 8,
        columns.partial_words * 8,
        sizes(&resident_sizes),
        columns.tile_rows,
        kernel.launch.blocks_per_tile,
    );
    let mut bytes = bytemuck::bytes_of(&[first_row, rows as u64]).to_vec();
    inputs.iter().chain(resident).for_each(|input| bytes.extend(input.bytes()));
    as_cpp::run(kernel.code.text(), &functions, &bytes)
}

#[test]
fn cuda_source_gives_the_same_bits() {
    if !has_compiler() {
        return;
    }
    for &dtype in Dtype::ALL {
        let columns = [1, 2].map(|seed| Column::mixed(dtype, 4096 + 1000, seed));
        compare(&program(dtype), &columns, &[]);
        let values = ["a", "b"].map(|name| (name.to_owned(), dtype));
        let mut bits: Vec<u64> = columns[1].bits().take(30).collect();
        bits.sort_unstable();
        compare(&everything(&[("x".to_owned(), dtype)], &values), &columns[..1], &[bits[29], bits[14]]);
        if dtype.is_float() {
            // Random bits, then all pairs of difficult numbers.
            let bits = [3, 4].map(|seed| {
                let state =
                    std::iter::successors(Some(seed), |state: &u64| Some(state.wrapping_mul(STEP).wrapping_add(1)));
                Column::from_bits(dtype, state.skip(9).map(|state| state ^ (state >> 29)).take(3 * 4096))
            });
            compare(&program(dtype), &bits, &[]);
            let hard = functions::tests::hard();
            let pairs = |pick: fn(f64, f64) -> f64| {
                let pairs = hard.iter().flat_map(|a| hard.iter().map(move |b| pick(*a, *b)));
                let bits = pairs.map(|x| Scalar::of_float(dtype, x).bits());
                Column::from_bits(dtype, bits)
            };
            compare(&program(dtype), &[pairs(|a, _| a), pairs(|_, b| b)], &[]);
        }
    }
}

/// Advances the state of a generator.
const STEP: u64 = 6_364_136_223_846_793_005;

fn compare(program: &Arc<Program>, inputs: &[Column], values: &[u64]) {
    let (first_row, rows) = (3 << 40, inputs[0].rows());
    let mut host = program.kernel().new_host_kernel().unwrap();
    let (outputs, partials) = run_values(&mut *host, program, first_row, rows, inputs, values);
    let cpp = run_as_cpp(program, first_row, rows, inputs, values);
    let mut rest = cpp.as_slice();
    for (k, output) in outputs.iter().enumerate() {
        let (own, behind) = rest.split_at(output.bytes().len());
        let size = output.dtype.size();
        let row = own.chunks(size).zip(output.bytes().chunks(size)).position(|(a, b)| a != b);
        assert_eq!(
            row,
            None,
            "y{k} of {}\n{:?}",
            program.text,
            inputs.iter().map(|a| a.value(row.unwrap_or(0))).collect::<Vec<_>>()
        );
        rest = behind;
    }
    assert_eq!(rest, bytemuck::cast_slice::<u64, u8>(&partials), "partials of {}", program.text);
}

#[test]
fn cuda_source_keeps_the_same_rows() {
    if !has_compiler() {
        return;
    }
    for dtype in [Dtype::I16, Dtype::F64] {
        let text = "y = a[m]; z = (a * 2)[m]; w = i[m]; sum(a[m]), mean(a[m]), var(a[m]), max(a[m]), max(a), \
                    std(a[a > 1]), min(a[a > 1])";
        let program = filter::program(text, &[("a", dtype), ("m", Dtype::Bool)]);
        for rows in [255, 2 * 4096 + 700] {
            let mask = |pick: fn(u64) -> u64| Column::from_bits(Dtype::Bool, (0..rows as u64).map(pick));
            let masks = [mask(|_| 0), mask(|_| 1), mask(|row| u64::from(row * row % 7 < 3)), mask(|row| row >> 12)];
            for mask in masks {
                let columns = [Column::mixed(dtype, rows, 5), mask];
                let (outputs, partials) = run_partials(&program, 0, rows, &columns);
                let cpp = run_as_cpp(&program, 0, rows, &columns, &[]);
                let mut rest = cpp.as_slice();
                let found: Vec<Column> = outputs
                    .iter()
                    .map(|output| {
                        let (own, behind) = rest.split_at(output.bytes().len());
                        rest = behind;
                        let mut column = Column::zeros(output.dtype, rows);
                        column.bytes_mut().copy_from_slice(own);
                        column
                    })
                    .collect();
                assert_eq!(rest, bytemuck::cast_slice::<u64, u8>(&partials), "partials, {dtype}, {rows} rows");
                let [found, expected] = [&found, &outputs].map(|columns| filter::kept(&program, columns, &partials));
                assert_eq!(found, expected, "{dtype}, {rows} rows");
            }
        }
    }
}

#[test]
fn sources_are_plain() {
    for kernel in samples() {
        assert!(kernel.code.text().starts_with("// overshot eval v1: {"));
        assert!(!kernel.code.text().contains("#include"));
        let reduces = kernel.columns.has_partials();
        assert_eq!(kernel.code.text().contains("__shared__"), reduces, "no reduction, no shared memory");
    }
}
