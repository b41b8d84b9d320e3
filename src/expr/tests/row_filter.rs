//! Tests of filters of rows of several elements: kept rows, reductions of them, and what is refused.

use std::sync::Arc;

use super::super::program::Program;
use super::super::results;
use super::super::shape::{Extent, RowShape};
use super::super::tiling::Tiling;
use super::Column;
use super::cuda::run_wide_as_cpp;
use super::wide::{Wide, bind, state};
use crate::data::{Dtype, Scalar};
use crate::device::as_cpp::has_compiler;

/// Rows that a block covers several of in a turn, rows of several blocks, and rows that the host sweeps over.
const WIDTHS: [usize; 9] = [2, 3, 100, 129, 256, 257, 300, 1025, 2600];

/// Conditions of rows: of a number of each row, of the number of the row, and of what is reduced within rows.
const CONDITIONS: [&str; 7] =
    ["w > 1", "i % 3 == 1", "w == w", "w != w", "max(x, axis=1) > 40", "any(x > m, axis=1, keepdims=True)", "i > 900"];

/// Values of a row: all of its elements, one of each row, and one that has lost its dimensions.
const VALUES: [&str; 3] = ["x * 2 + m", "w - 1", "sum(x, axis=1)"];

fn tile_rows(program: &Program) -> usize {
    program.tiling().tile_rows()
}

/// The kept rows of each output: those of each tile, as many as its first word of the partials says.
fn kept(program: &Program, outputs: &[Column], partials: &[u64]) -> Vec<Vec<u64>> {
    let of_output = |(output, column): (usize, &Column)| {
        let elements = program.output_elements(output);
        let bits: Vec<u64> = column.bits().collect();
        let tiles = bits.chunks(tile_rows(program) * elements).zip(partials.chunks(program.partial_words()));
        tiles.flat_map(|(tile, partials)| tile[..partials[0] as usize * elements].to_vec()).collect()
    };
    outputs.iter().enumerate().map(of_output).collect()
}

/// The values of the rows where the condition is true, from a program without a filter.
fn naive(wide: &Wide, condition: &str) -> Vec<Vec<u64>> {
    let of = |text: &str| {
        let (outputs, _) = wide.run(&wide.program(&format!("y = {text}")), 7);
        outputs[0].bits().collect::<Vec<u64>>()
    };
    let keeps = of(condition);
    assert_eq!(keeps.len(), wide.rows, "a condition of rows");
    let rows = |text: &&str| {
        let all = of(text);
        let elements = all.len() / wide.rows;
        all.chunks(elements).enumerate().filter(|(row, _)| keeps[*row] == 1).flat_map(|(_, own)| own.to_vec()).collect()
    };
    VALUES.iter().map(rows).collect()
}

fn filtered(wide: &Wide, condition: &str) -> Arc<Program> {
    let [full, per_row, reduced] = VALUES;
    wide.program(&format!("k = {condition}; y = ({full})[k]; z = ({per_row})[k]; s = ({reduced})[k]"))
}

#[test]
fn kept_rows_are_those_of_a_naive_filter() {
    for dtype in [Dtype::F64, Dtype::F32, Dtype::I16] {
        for width in WIDTHS {
            let wide = Wide::new(dtype, 2 * Tiling::of(width, true).tile_rows() + 5, width);
            for condition in CONDITIONS {
                let program = filtered(&wide, condition);
                let (outputs, partials) = wide.run(&program, 7);
                let found = kept(&program, &outputs, &partials);
                assert!(found == naive(&wide, condition), "{condition} of {dtype}, {width}");
            }
        }
    }
}

/// Rows that several blocks compute, because nothing is reduced within them.
#[test]
fn kept_rows_of_several_strips_are_those_of_a_naive_filter() {
    for width in [257, 1300, 70_000] {
        let wide = Wide::new(Dtype::F32, 40, width);
        for condition in ["w > 1", "i % 3 == 1", "(w == w) & (i < 11)"] {
            let program = wide.program(&format!("k = {condition}; y = ({})[k]; z = ({})[k]", VALUES[0], VALUES[1]));
            assert!(program.tiling().strips > 1);
            let (outputs, partials) = wide.run(&program, 7);
            assert!(kept(&program, &outputs, &partials) == naive(&wide, condition)[..2], "{condition}, {width}");
        }
    }
}

#[test]
fn cuda_source_keeps_the_same_rows() {
    if !has_compiler() {
        return;
    }
    let compare = |wide: &Wide, program: &Arc<Program>| {
        let (outputs, partials) = wide.run(program, 7);
        let inputs = [wide.x.clone(), wide.w.clone()];
        let cpp = run_wide_as_cpp(program, (7, wide.rows), (&inputs, std::slice::from_ref(&wide.m)), &[]);
        let mut rest = &cpp[..];
        let theirs: Vec<Column> = outputs
            .iter()
            .map(|output| {
                let mut column = Column::zeros(output.dtype, output.rows());
                let (own, behind) = rest.split_at(column.bytes().len());
                column.bytes_mut().copy_from_slice(own);
                rest = behind;
                column
            })
            .collect();
        assert!(rest == bytemuck::cast_slice::<u64, u8>(&partials), "partials of {}", wide.width);
        let found = kept(program, &outputs, &partials);
        assert!(kept(program, &theirs, &partials) == found, "outputs of {}", wide.width);
    };
    for width in [2, 3, 100, 256, 257, 1300] {
        let wide = Wide::new(Dtype::F32, Tiling::of(width, true).tile_rows() + 5, width);
        for condition in ["w > 1", "max(x, axis=1) > 40"] {
            compare(&wide, &filtered(&wide, condition));
        }
        let text = "k = i % 3 == 1; y = (x * 2 + m)[k]; z = w[k]; mean(x[k]), var(y), sum(w * x, axis=0), \
                    mean(x[k], axis=0), std(x[w > 1], axis=0)";
        compare(&wide, &wide.program(text));
    }
}

/// Small integers: sums are exact, so their order does not show.
#[test]
fn reductions_of_kept_rows_are_those_of_a_naive_filter() {
    for width in [2, 3, 100, 257, 1300] {
        let rows = 2 * Tiling::of(width, true).tile_rows() + 5;
        let value = |element: usize| (element * 7919 % 101) as f64 - 50.0;
        let column = |count: usize| Column::from_bits(Dtype::F64, (0..count).map(|element| value(element).to_bits()));
        let [x, w, m] = [rows * width, rows, width].map(column);
        let wide = Wide { dtype: Dtype::F64, rows, width, x, w, m };
        for limit in [-60.0, 10.0, 60.0] {
            let text = format!(
                "k = w > {limit}; sum(x[k]), mean(x[k]), min(x[k]), count(x[k] > 0), \
                 sum(x[k], axis=0), mean(x[k], axis=0), var(x[k], axis=0), max(x[k], axis=0)"
            );
            let program = wide.program(&text);
            let (_, partials) = wide.run(&program, 0);
            let state = state(&program, &partials);
            let found = results(program.reductions(), state.as_deref(), &[], &[], rows as u64).unwrap();
            let kept: Vec<Vec<f64>> = (0..rows)
                .filter(|row| value(*row) > limit)
                .map(|row| (0..width).map(|column| value(row * width + column)).collect())
                .collect();
            let all: Vec<f64> = kept.concat();
            let sum: f64 = all.iter().sum();
            let least = all.iter().copied().reduce(f64::min);
            let positive = all.iter().filter(|value| **value > 0.0).count() as f64;
            let expected = [Some(sum), Some(sum / all.len() as f64), least, Some(positive)];
            for ((label, found), expected) in found.values.iter().zip(expected) {
                let same = match (found.map(Scalar::as_f64), expected) {
                    (Some(found), Some(expected)) => found == expected || found.is_nan() && expected.is_nan(),
                    (found, expected) => found == expected,
                };
                assert!(same, "{label}, {limit}, {width}: {found:?}, not {expected:?}");
            }
            let rows = kept.len() as f64;
            let columns = |of: &dyn Fn(&mut dyn Iterator<Item = f64>) -> f64| -> Vec<f64> {
                (0..width).map(|column| of(&mut kept.iter().map(|row| row[column]))).collect()
            };
            let sums = columns(&|values| values.sum());
            let means: Vec<f64> = sums.iter().map(|sum| sum / rows).collect();
            let variances: Vec<f64> = (0..width)
                .map(|column| kept.iter().map(|row| (row[column] - means[column]).powi(2)).sum::<f64>() / rows)
                .collect();
            let most = columns(&|values| values.fold(f64::NEG_INFINITY, f64::max));
            for ((label, found), expected) in found.arrays.iter().zip([sums, means, variances, most]) {
                // There is no greatest one of no rows.
                let Some(found) = found else {
                    assert!(kept.is_empty() && label.starts_with("max"), "{label}, {limit}, {width}");
                    continue;
                };
                let near = |(found, expected): (Scalar, &f64)| {
                    let found = found.as_f64();
                    (found - expected).abs() <= 1e-9 * expected.abs().max(1.0) || found.is_nan() && expected.is_nan()
                };
                assert!(found.values().zip(&expected).all(near), "{label}, {limit}, {width}");
            }
        }
    }
}

#[test]
fn conditions_that_are_not_of_rows_are_refused() {
    let row = RowShape {
        dims: vec![3],
        extents: vec![Extent::Full, Extent::PerRow, Extent::PerColumn],
        reduced: vec![false, true, false],
        ..RowShape::default()
    };
    for (text, reason) in [
        ("y = x[x > 0]", "a filter keeps whole rows here"),
        ("y = x[m > 0]", "reduce it, like `x[all(x > 0, axis=1)]`"),
        ("y = x[w]", "which is a bool for each row"),
        ("y = x[w > 0] + w", "another has all rows"),
        ("y = (x + w)[w > 0]", "no dimensions of a row, and the other has them"),
        ("y = m[w > 0]", "the same for all rows"),
        ("argmax(x[w > 0], axis=0)", "`argmax` of kept rows is not supported"),
    ] {
        let error = bind(text, &row, Dtype::F64).unwrap_err().to_string();
        assert!(error.contains(reason), "{text}: {error}");
    }
    for text in ["y = x[w > 0]; z = w[w > 0]", "y = (x * m)[sum(x, axis=1) > w]", "y = x[i > 3]; sum(x[w > 1], axis=0)"]
    {
        assert!(bind(text, &row, Dtype::F64).is_ok(), "{text}");
    }
}
