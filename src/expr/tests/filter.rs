//! Tests of filters: kept rows, reductions of them, and what is refused.

use std::sync::Arc;

use super::super::Expression;
use super::super::program::Program;
use super::super::results;
use super::{Column, run, run_partials};
use crate::data::{Dtype, Scalar};
use crate::device::kernel::TILE_ROWS;

pub(super) fn program(text: &str, inputs: &[(&str, Dtype)]) -> Arc<Program> {
    let expression = Expression::parse(text).unwrap();
    let inputs: Vec<_> = inputs.iter().map(|(name, dtype)| ((*name).to_owned(), *dtype)).collect();
    let names = expression.outputs().filter(|name| !expression.reads(name));
    let outputs: Vec<_> = names.map(|name| (name.to_owned(), None)).collect();
    Arc::new(expression.bind(&inputs, &[], &[], &outputs).unwrap_or_else(|error| panic!("{text}: {error}")))
}

/// The kept rows of each output: the first rows of each tile, as many as its first word of the partials says.
pub(super) fn kept(program: &Program, outputs: &[Column], partials: &[u64]) -> Vec<Vec<u64>> {
    let words: usize = program.reductions().iter().map(|reduction| reduction.words()).sum();
    let of_output = |output: &Column| {
        let bits: Vec<u64> = output.bits().collect();
        let tiles = bits.chunks(TILE_ROWS).zip(partials.chunks(words));
        tiles.flat_map(|(tile, partials)| tile[..partials[0] as usize].to_vec()).collect()
    };
    outputs.iter().map(of_output).collect()
}

/// The values of an expression without filters, in the rows where a condition is true.
fn naive(text: &str, condition: &str, inputs: &[(&str, Dtype)], columns: &[Column]) -> Vec<u64> {
    let program = program(&format!("y = {text}; m = {condition}"), inputs);
    let (outputs, _) = run(&program, 0, columns[0].rows(), columns);
    outputs[0].bits().zip(outputs[1].bits()).filter(|(_, keeps)| *keeps == 1).map(|(value, _)| value).collect()
}

const CONDITIONS: &[&str] = &["b", "a > 1", "~b", "(a > 1) & (i % 3 == 0)", "a == a", "a != a", "i < 1000", "isnan(a)"];
const ROWS: &[usize] = &[1, 2, 1023, 1024, 1025, 4095, 4096, 4097, 3 * 4096 + 1500];

#[test]
fn kept_rows_are_those_of_a_naive_filter() {
    for &dtype in Dtype::ALL {
        let inputs = [("a", dtype), ("b", Dtype::Bool)];
        for &rows in ROWS {
            let columns = [Column::mixed(dtype, rows, 1), Column::mixed(Dtype::Bool, rows, 2)];
            for condition in CONDITIONS {
                let text = format!("w = i[{condition}]; m = {condition}; y = a[m]; z = (a * 2)[m]; v = f32(a[m]) + 1");
                let filtered = program(&text, &inputs);
                let (outputs, partials) = run_partials(&filtered, 0, rows, &columns);
                let values = ["i", "a", "a * 2", "f32(a) + 1"];
                let expected = values.map(|value| naive(value, condition, &inputs, &columns));
                assert_eq!(kept(&filtered, &outputs, &partials), expected, "{text} of {dtype}, {rows} rows");
            }
        }
    }
}

#[test]
fn filters_of_one_condition_are_one_filter() {
    let inputs = [("x", Dtype::F64), ("b", Dtype::I32)];
    let columns = [Column::mixed(Dtype::F64, 5000, 3), Column::mixed(Dtype::I32, 5000, 4)];
    let keeps = "(x > 0) & (b != 7)";
    for (text, value, condition) in [
        ("y = x[x > 0]", "x", "x > 0"),
        ("m = x > 0; y = x[m] * 2 + b[x > 0]", "x * 2 + b", "x > 0"),
        ("t = x[x > 0]; y = where(t > 1, t, -t)", "where(x > 1, x, -x)", "x > 0"),
        // A filter of a filter.
        ("t = x[x > 0]; u = b[x > 0]; y = t[u != 7]", "x", keeps),
        ("y = (x[x > 0] + 1)[b[x > 0] != 7]", "x + 1", keeps),
        ("y = -x[x > 0] ** 2", "-(x ** 2)", "x > 0"),
        ("y = (x\n[\nx > 0\n])", "x", "x > 0"),
    ] {
        let filtered = program(text, &inputs);
        let (outputs, partials) = run_partials(&filtered, 0, 5000, &columns);
        assert_eq!(kept(&filtered, &outputs, &partials), [naive(value, condition, &inputs, &columns)], "{text}");
    }
    // The rows are counted once.
    let counted = program("y = x[x > 0]; mean(x[x > 0]), min(b[x > 0]), sum(b[x > 0])", &inputs);
    assert_eq!(counted.reductions().len(), 1 + 3);
    let counted = program("mean(x[x > 0]), min(x[x < 0]), sum(b[b > 0])", &inputs);
    assert_eq!(counted.reductions().len(), 2 + 3);
}

/// The results of a program over all rows.
fn values(program: &Arc<Program>, columns: &[Column]) -> Vec<(String, Option<Scalar>)> {
    let rows = columns[0].rows();
    let (_, states) = run(program, 0, rows, columns);
    let states = states.concat();
    results(program.reductions(), Some(&*states).filter(|_| rows > 0), &[], &[], rows as u64).unwrap().values
}

#[test]
fn reductions_of_kept_rows_are_those_of_rows_that_do_not_change_them() {
    let inputs = |dtype| [("a", dtype), ("b", Dtype::Bool)];
    for &dtype in Dtype::ALL {
        for &rows in ROWS {
            let columns = [Column::mixed(dtype, rows, 1), Column::mixed(Dtype::Bool, rows, 2)];
            for condition in CONDITIONS {
                let kept = "sum(a[m]), prod(a[m]), count(a[m]), any(a[m]), all(a[m]), count(m)";
                let neutral = "sum(where(m, a, 0)), prod(where(m, a, 1)), count((a != 0) & m), any((a != 0) & m), \
                               all((a != 0) | ~m), count(m)";
                let both = [kept, neutral].map(|text| {
                    let text =
                        format!("m = {condition}; {}", text.replace("a[m]", "f64(a)[m]").replace(", a,", ", f64(a),"));
                    let found = values(&program(&text, &inputs(dtype)), &columns);
                    found.into_iter().map(|(_, value)| value.map(Scalar::bits)).collect::<Vec<_>>()
                });
                assert_eq!(both[0], both[1], "{condition} of {dtype}, {rows} rows");
            }
        }
    }
}

#[test]
fn reductions_of_kept_rows_are_those_of_a_naive_filter() {
    // Small integers: sums are exact, so their order does not show.
    let integers = |dtype: Dtype, rows: usize| {
        let value = |row: u64| (row * 7919 % 101) as i64 - if dtype.is_unsigned() { 0 } else { 50 };
        let bits = (0..rows as u64).map(|row| match dtype {
            dtype if dtype.is_float() => Scalar::of_float(dtype, value(row) as f64).bits(),
            _ => value(row) as u64,
        });
        Column::from_bits(dtype, bits)
    };
    let conditions = ["a > 20", "a > 1000", "a == a", "i % 4096 > 4000", "(i > 5000) & (a < 3)"];
    for dtype in [Dtype::F32, Dtype::F64, Dtype::I16, Dtype::I64, Dtype::U16] {
        for &rows in ROWS {
            let columns = [integers(dtype, rows)];
            for condition in conditions {
                let kept: Vec<f64> = columns[0]
                    .values()
                    .zip(0..)
                    .filter(|(a, i)| match condition {
                        "a > 20" => *a > 20.0,
                        "a > 1000" => false,
                        "a == a" => true,
                        "i % 4096 > 4000" => i % 4096 > 4000,
                        _ => *i > 5000 && *a < 3.0,
                    })
                    .map(|(a, _)| a)
                    .collect();
                let text =
                    format!("m = {condition}; sum(a[m]), min(a[m]), max(a[m]), mean(a[m]), var(a[m]), std(a[m])");
                let found = values(&program(&text, &[("a", dtype)]), &columns);
                let sum: f64 = kept.iter().sum();
                let n = kept.len() as f64;
                let variance = kept.iter().map(|a| (a - sum / n).powi(2)).sum::<f64>() / n;
                let least = kept.iter().copied().reduce(f64::min);
                let greatest = kept.iter().copied().reduce(f64::max);
                let expected = [Some(sum), least, greatest, Some(sum / n), Some(variance), Some(variance.sqrt())];
                for ((label, found), expected) in found.iter().zip(expected) {
                    let (found, expected) = (found.map(|value| value.as_f64()), expected);
                    let near = match (found, expected) {
                        (Some(found), Some(expected)) => {
                            let tolerance = if dtype == Dtype::F32 { 1e-6 } else { 1e-12 };
                            (found - expected).abs() <= tolerance * expected.abs()
                                || found.is_nan() && expected.is_nan()
                        }
                        (found, expected) => found == expected,
                    };
                    assert!(near, "{label} for {condition} of {dtype}, {rows} rows: {found:?}, not {expected:?}");
                }
            }
        }
    }
}

/// The state of a tile without kept rows is that of no rows, whatever the values of the others.
#[test]
fn rows_that_are_left_out_leave_no_trace() {
    let text = "m = b; var(a[m]), sum(a[m]), min(a[m]), prod(a[m]), mean(a[m])";
    let filtered = program(text, &[("a", Dtype::F64), ("b", Dtype::Bool)]);
    let nothing = Column::from_bits(Dtype::Bool, vec![0; 5000]);
    let of = |column: Column| run_partials(&filtered, 0, 5000, &[column, nothing.clone()]).1;
    assert_eq!(of(Column::mixed(Dtype::F64, 5000, 1)), of(Column::zeros(Dtype::F64, 5000)));
}

#[test]
fn what_does_not_fit_says_what_to_write() {
    for (text, part) in [
        ("y = x[0]", "a row cannot be read by its number; keep the rows"),
        ("y = x[-1]", "a row cannot be read by its number"),
        ("y = x[n]", "which is a bool for each row, and not i64; write a comparison of rows, like `x[x > 0]`"),
        ("y = x[x]", "and not f64"),
        ("y = x[1.5]", "this condition is one number for all rows"),
        ("y = x[True]", "this condition is one number for all rows"),
        ("y = x[pi > 3]", "this condition is one number for all rows"),
        ("y = 2[x > 0]", "this value is one number for all of them; filter a value that has rows"),
        ("y = pi[x > 0]", "this value is one number"),
        ("y = x[x > 0] + x", "one of these values is filtered, and another has all rows; filter all of them"),
        ("y = x[x > 0] + index()", "another has all rows"),
        ("y = where(x > 0, x[x > 0], 0)", "another has all rows"),
        ("y = x[x > 0] + x[x > 1]", "filtered by different conditions; filter them by one"),
        ("y = x[x[x > 0] > 1]", "not filtered alike; join the conditions, like `x[a & b]`"),
        ("y = x[x > 0][x > 1]", "not filtered alike"),
        ("y = x[x > 0]; z = x", "`y` and `z` is filtered, and the other has all rows; compute them in two jobs"),
        ("y = 2; z = x[x > 0]", "is filtered, and the other has all rows"),
        ("y = x[x > 0]; z = x[x > 1]", "`y` and `z` are filtered by different conditions; compute them in two jobs"),
        ("argmin(x[x > 0])", "is not known; find its number among all rows, like `argmin(where(condition, x, inf))`"),
        ("argmax(x[x > 0])", "like `argmax(where(condition, x, -inf))`"),
        ("y = x[1:]", "slices, like `x[1:]`, are not supported; select rows by their number"),
        ("y = x[:]", "slices, like `x[1:]`"),
        ("y = x[:, 0]", "brackets with `,` are not supported, because a row is one element"),
        ("y = x[n, 0]", "brackets with `,` are not supported"),
        ("y = x[1:2, n]", "brackets with `,` are not supported"),
        ("y = [x]", "`[` can only follow a value, as in `x[x > 0]`, and there are no lists"),
        ("y = x[]", "unexpected `]`"),
        ("y = x[x > 0", "this bracket is never closed"),
        ("y = x[x > 0)", "unexpected `)`"),
        ("y = x]", "unexpected `]`"),
        ("y = x ? 1 : 2", "write `where(condition, a, b)`"),
        ("y[x > 0] = x", "the rows of a filter cannot be assigned; write `y = where(condition, a, b)`"),
    ] {
        let inputs = [("x", Dtype::F64), ("n", Dtype::I64)].map(|(name, dtype)| (name.to_owned(), dtype));
        let bound = Expression::parse(text).and_then(|expression| {
            let names = expression.outputs().filter(|name| !expression.reads(name));
            let outputs: Vec<_> = names.map(|name| (name.to_owned(), None)).collect();
            expression.bind(&inputs, &[], &[], &outputs)
        });
        let message = bound.err().unwrap_or_else(|| panic!("{text} is accepted")).to_string();
        assert!(message.contains(part), "{text}: {message}");
    }
}
