//! Tests of what results depend on where bounds of the values are known.

use super::super::Expression;
use super::super::needs::Needs;
use super::super::program::Program;
use super::filter::{kept, program};
use super::{Column, run_values};
use crate::data::{Dtype, Scalar};
use crate::device::kernel::TILE_ROWS;
use proptest::prelude::*;
use std::sync::Arc;

/// What the rows of a job give: the outputs, or what is kept of them, and the partials.
fn results(program: &Arc<Program>, columns: &[Column], scalars: &[u64]) -> (Vec<Vec<u64>>, Vec<u64>) {
    let mut host = program.kernel().new_host_kernel().unwrap();
    let (outputs, partials) = run_values(&mut *host, program, 0, columns[0].rows(), columns, scalars);
    let outputs = match program.is_filtered() {
        true => kept(program, &outputs, &partials),
        false => outputs.iter().map(|output| output.bits().collect()).collect(),
    };
    (outputs, partials)
}

/// Values near the constants of the conditions.
fn small(dtype: Dtype, rows: usize, seed: u64) -> Column {
    let value = |row: u64| {
        let value = (seed.wrapping_mul(row + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 60) as i64 - 7;
        match dtype {
            Dtype::Bool => u64::from(value > 0),
            dtype if dtype.is_float() => Scalar::of_float(dtype, value as f64 / 2.0).bits(),
            dtype if dtype.is_unsigned() => value.unsigned_abs(),
            _ => value as u64,
        }
    };
    Column::from_bits(dtype, (0..rows as u64).map(value))
}

/// The bounds of a column; `None` if it has none, because all of its rows are NaN.
fn bounds(column: &Column) -> Option<(Scalar, Scalar)> {
    let values = column.bits().map(|bits| Scalar::of_bits(column.dtype, bits));
    let ordered = values.filter(|value| value.order(*value).is_some()).map(|value| (value, value));
    ordered.reduce(|(least, greatest), (value, _)| {
        (
            if value.order(least).unwrap().is_lt() { value } else { least },
            match value.order(greatest).unwrap().is_gt() {
                true => value,
                false => greatest,
            },
        )
    })
}

const CONDITIONS: &[&str] = &[
    "t > C",
    "t >= C",
    "t < C",
    "t <= C",
    "t == C",
    "t != C",
    "~(t > C)",
    "C < t",
    "(t > C) & (s < 3)",
    "(t > C) | (s < 3)",
    "t * 2 > C",
    "t + s > C",
    "t - 1 < C",
    "-t > C",
    "t * s > C",
    "f64(t) * 1.5 > C",
    "f32(t) > C",
    "i64(t) > C",
    "isnan(f64(t))",
    "t > k",
    "b",
    "~b",
    "b & (t > C)",
    "t == t",
    "where(b, t, s) > C",
    "i64(t) - s > C",
];

const TEXTS: &[&str] = &[
    "y = x[c]",
    "sum(x[c]), count(c), mean(x[c])",
    "y = x[c]; min(x[c]), std(x[c])",
    "y = where(c, x, 0)",
    "sum(where(c, x, t))",
    "sum(x[c]), max(t)",
    "y = where(c, 1, where(t > 2, x, s))",
    "any(c), all(c), argmax(where(c, x, -1))",
    "bincount(i64(s) & 7, 8, where(c, x, 0))",
    "histogram(where(c, x, nan), 4, -2, 2)",
    "prod(x[c])",
    "sum(shift(x, 1, 0)[c])",
    "sum(where(c, shift(t, 1, edge), x))",
];

fn dtype() -> impl Strategy<Value = Dtype> {
    prop::sample::select(Dtype::ALL.iter().copied().filter(|dtype| *dtype != Dtype::Bool).collect::<Vec<_>>())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    /// Other values within the bounds give the same bits where nothing depends on a column.
    #[test]
    fn results_do_not_depend_on_what_is_not_needed(
        (text, condition) in (prop::sample::select(TEXTS), prop::sample::select(CONDITIONS)),
        constant in prop::sample::select(&["0", "3", "-2", "100", "1.5"][..]),
        (t, s) in (dtype(), dtype()),
        (seed, row, len) in (1u64..1000, 0usize..200, 1usize..4),
        are_small in any::<bool>(),
        has_bounds in any::<[bool; 3]>(),
        knows_scalars in any::<bool>(),
    ) {
        let text = format!("c = {}; {text}", condition.replace('C', constant));
        let inputs = [("x", Dtype::F64), ("t", t), ("s", s), ("b", Dtype::Bool)];
        let Some((program, scalars)) = bound(&text, &inputs) else { return Ok(()) };
        let Some(needs) = Needs::of(&program) else { return Ok(()) };
        // Few rows, which often have narrow bounds.
        let columns = inputs.iter().zip(seed..).map(|((_, dtype), seed)| {
            if are_small { small(*dtype, len, seed) } else { Column::mixed(*dtype, 300, seed).slice(row, row + len) }
        });
        let columns: Vec<Column> = columns.collect();
        let known: Vec<_> = columns.iter().zip([&[false][..], &has_bounds].concat())
            .map(|(column, has_bounds)| bounds(column).filter(|_| has_bounds))
            .collect();
        let needed = needs.of_rows(&known, if knows_scalars { &scalars } else { &[] }).inputs;
        let others: Vec<Column> = columns.iter().zip(&needed).zip(&known).map(|((column, is_needed), known)| {
            let value = known.map_or(0, |(least, _)| least.bits());
            match is_needed {
                true => column.clone(),
                false => Column::from_bits(column.dtype, std::iter::repeat_n(value, column.rows())),
            }
        }).collect();
        prop_assert_eq!(
            results(&program, &columns, &scalars),
            results(&program, &others, &scalars),
            "{}: {:?} needed of {:?}", text, needed, columns
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    /// Rows with equal outcomes give the same bits, wherever they are.
    #[test]
    fn rows_with_equal_outcomes_give_the_same(
        (text, condition) in (prop::sample::select(TEXTS), prop::sample::select(CONDITIONS)),
        constant in prop::sample::select(&["0", "3", "-2"][..]),
        (t, s) in (dtype(), dtype()),
        (seed, other_seed, len) in (1u64..1000, 1u64..1000, 1usize..3),
        first in 0u64..100,
    ) {
        let text = format!("c = {}; {text}", condition.replace('C', constant));
        let inputs = [("x", Dtype::F64), ("t", t), ("s", s), ("b", Dtype::Bool)];
        let Some((program, scalars)) = bound(&text, &inputs) else { return Ok(()) };
        let Some(needs) = Needs::of(&program) else { return Ok(()) };
        let of_seed = |seed: u64, first: u64| {
            let columns = inputs.iter().zip(seed..).map(|((_, dtype), seed)| small(*dtype, len, seed));
            let columns: Vec<_> = columns.collect();
            let bounds: Vec<_> = columns.iter().map(bounds).collect();
            let mut host = program.kernel().new_host_kernel().unwrap();
            let partials = run_values(&mut *host, &program, first, len, &columns, &scalars).1;
            (needs.of_rows(&bounds, &[]).outcome, partials)
        };
        // Neighbours of rows are always needed.
        if text.contains("shift") {
            return Ok(());
        }
        let (one, other) = (of_seed(seed, 0), of_seed(other_seed, first * TILE_ROWS as u64));
        // The first word is the number of rows that are kept.
        prop_assert!(!program.is_filtered() || one.0.is_none() || one.1[0] == 0, "{}: {:?}", text, one.0);
        if one.0.is_some() && one.0 == other.0 {
            prop_assert_eq!(one.1, other.1, "{}: {:?}", text, one.0);
        }
    }
}

/// A program with the scalar `k`, which is 5; `None` if it does not accept the dtypes.
fn bound(text: &str, inputs: &[(&str, Dtype)]) -> Option<(Arc<Program>, Vec<u64>)> {
    let expression = Expression::parse(text).unwrap();
    let inputs: Vec<_> = inputs.iter().map(|(name, dtype)| ((*name).to_owned(), *dtype)).collect();
    let outputs: Vec<_> =
        expression.outputs().filter(|name| *name == "y").map(|name| (name.to_owned(), None)).collect();
    let values = [("k".to_owned(), Dtype::F64)];
    let program = expression.bind(&inputs, &values, &[], &outputs).ok()?;
    Some((Arc::new(program), vec![5f64.to_bits()]))
}

#[test]
fn what_a_filter_cannot_keep_is_not_needed() {
    let int = |least: i32, greatest: i32| Some((Scalar::I32(least), Scalar::I32(greatest)));
    let float = |least: f64, greatest: f64| Some((Scalar::F64(least), Scalar::F64(greatest)));
    let inputs = [("x", Dtype::F64), ("t", Dtype::I32), ("f", Dtype::F64)];
    // What is needed of `x` and of the column in the condition.
    for (text, t, f, needed) in [
        ("y = x[t > 5]", int(0, 5), None, [false, false]),
        ("y = x[t > 5]", int(0, 6), None, [true, true]),
        // The condition is known, but which rows there are is not.
        ("y = x[t > 5]", int(6, 9), None, [true, false]),
        ("mean(x[t > 5])", int(0, 5), None, [false, false]),
        ("mean(x[t > 5]), max(t)", int(0, 5), None, [false, true]),
        ("sum(where(t == 3, x, 0))", int(4, 9), None, [false, false]),
        ("sum(where(t == 3, x, 0))", int(3, 3), None, [true, false]),
        ("mean(x[(t > 5) & (t < 8)])", int(8, 9), None, [false, false]),
        ("mean(x[(t > 5) | (f < 1)])", int(0, 5), float(1.0, 2.0), [false, false]),
        ("mean(x[t * 2 - 1 > 9])", int(0, 5), None, [false, false]),
        // The product may wrap around.
        ("mean(x[t * 2 > 9])", int(0, i32::MAX), None, [true, true]),
        ("mean(x[f > 2.5])", None, float(-1.0, 2.5), [false, false]),
        // NaN is not below 2.
        ("mean(x[f < 2])", None, float(0.0, 1.0), [true, true]),
        ("mean(x[~(f < 2)])", None, float(0.0, 1.0), [true, true]),
        ("mean(x[f != 1])", None, float(1.0, 1.0), [true, true]),
        ("mean(x[t > 5]), sum(x)", int(0, 5), None, [true, false]),
        ("mean(shift(x, 1, 0)[t > 5])", int(0, 5), None, [true, false]),
    ] {
        let Some(needs) = Needs::of(&program(text, &inputs)) else { panic!("{text}") };
        let own = needs.of_rows(&[None, t, f], &[]).inputs;
        assert_eq!([own[0], own[1] || own[2]], needed, "{text} {t:?} {f:?}");
    }
    for text in ["y = x + t", "sum(x * t)"] {
        assert!(Needs::of(&program(text, &inputs)).is_none(), "{text}");
    }
}

#[test]
fn rows_have_an_outcome_if_they_are_alike() {
    let inputs = [("x", Dtype::F64), ("t", Dtype::I32)];
    let of = |text: &str, (least, greatest)| {
        let Some(needs) = Needs::of(&program(text, &inputs)) else { panic!("{text}") };
        needs.of_rows(&[None, Some((Scalar::I32(least), Scalar::I32(greatest)))], &[]).outcome
    };
    let is_some = |text: &str| of(text, (0, 5)).is_some();
    for text in ["mean(x[t > 5])", "count(t > 5)", "sum(where(t > 5, x, 2))", "bincount(i64(t > 5), 2)"] {
        assert!(is_some(text), "{text}");
        assert_eq!(of(text, (0, 5)), of(text, (-9, 3)), "{text}");
    }
    // Rows that a filter does not keep are not written.
    assert!(is_some("y = x[t > 5]") && of("y = x[t > 5]", (6, 9)).is_none() && of("y = x[t > 5]", (5, 6)).is_none());
    assert!(is_some("y = x[t > 5]; count(t > 7)") && !is_some("y = x[t > 5]; sum(x)"));
    // All have a result for each row, or results that say which row it is.
    for text in ["y = x[t < 6]", "y = where(t > 5, x, 2)", "sum(where(t > 5, x, i))", "argmax(where(t > 5, x, 2))"] {
        assert!(!is_some(text), "{text}");
    }
    assert!(!is_some("sum(where(t > 5, i, x))") && is_some("sum(where(t > 5, i, 2))"));
    // Both are known, and not the same.
    let text = "sum(where(t > 5, 1, where(t > 2, 2, 3)))";
    let all = [(6, 9), (3, 5), (0, 2)].map(|bounds| of(text, bounds));
    assert!(all.iter().all(Option::is_some) && all[0] != all[1] && all[0] != all[2] && all[1] != all[2]);
    let text = "sum(where(t > 5, t, 0))";
    let all = [(7, 7), (6, 6), (0, 2)].map(|bounds| of(text, bounds));
    assert!(all.iter().all(Option::is_some) && all[0] != all[1] && all[0] != all[2] && all[1] != all[2]);
    assert!(of(text, (6, 7)).is_none());
}
