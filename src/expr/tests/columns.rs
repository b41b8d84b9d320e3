//! Reductions along the rows: columns have the bits of as many reductions of one value.

use super::super::dispatch::at_second_level;
use super::super::reduce::Reduction;
use super::super::results;
use super::super::words::Kind;
use crate::data::{Dtype, Scalar};

const KINDS: [Kind; 13] = [
    Kind::Sum,
    Kind::Prod,
    Kind::Mean,
    Kind::Min,
    Kind::Max,
    Kind::Var,
    Kind::Std,
    Kind::Count,
    Kind::Any,
    Kind::All,
    Kind::ArgMin,
    Kind::ArgMax,
    Kind::Kept,
];
const SHAPES: [&[u64]; 9] = [&[1], &[2], &[7], &[64], &[3, 5], &[1, 6], &[2, 3, 4], &[], &[0]];

/// Random bits, the same ones every time.
struct Random(u64);

impl Random {
    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 ^ self.0 >> 29
    }

    /// A word of a state: special floats, NaNs of several bits among them, small numbers that are often equal,
    /// anything.
    fn of_state(&mut self) -> u64 {
        let special = [f64::INFINITY, f64::NEG_INFINITY, -0.0, 0.0, 1.5, 4096.0].map(f64::to_bits);
        match self.word() % 8 {
            0 => special[self.word() as usize % special.len()],
            1 => 0x7ff0_0000_0000_0001 | self.word() & 1 << 63 | self.word() & 0xf_ffff,
            2 | 3 => self.word() % 4,
            4 | 5 => ((self.word() % 100) as f64).to_bits(),
            _ => self.word(),
        }
    }
}

/// Every kind of every dtype, as columns of this shape, and as one value.
fn reductions(shape: &[u64]) -> impl Iterator<Item = (Reduction, Reduction)> {
    KINDS.into_iter().flat_map(move |kind| {
        Dtype::ALL.iter().map(move |&dtype| {
            let one = Reduction::new("r".into(), kind, dtype);
            (one.clone().along_rows(shape.to_vec()), one)
        })
    })
}

/// The state of one column: every `columns`-th word.
fn column(state: &[u64], columns: usize, number: usize) -> Vec<u64> {
    state.iter().copied().skip(number).step_by(columns).collect()
}

#[test]
fn columns_are_combined_and_finished_as_single_values_are() {
    let mut random = Random(5);
    for shape in SHAPES {
        let width = shape.iter().product::<u64>() as usize;
        for (along, one) in reductions(shape) {
            assert_eq!((along.columns(), along.state_words()), (width, width * one.words()));
            assert_eq!((one.columns(), one.state_words()), (1, one.words()));
            for rows in [0, 1, 4096] {
                let [left, right] =
                    [0, 1].map(|_| (0..along.state_words()).map(|_| random.of_state()).collect::<Vec<_>>());
                let (mut joint, mut second) = (left.clone(), left.clone());
                along.combine(&mut joint, &right);
                at_second_level(|| along.combine(&mut second, &right));
                assert_eq!(joint, second, "{shape:?}, {one:?}");
                let array = along.finish_columns(Some(&joint), rows);
                for number in 0..width {
                    let mut single = column(&left, width, number);
                    one.combine(&mut single, &column(&right, width, number));
                    assert_eq!(column(&joint, width, number), single, "column {number} of {shape:?}, {one:?}");
                    assert_eq!(along.state_of_column(&joint, number)[..one.words()], single);
                    let value = one.finish(Some(&single), rows).map(Scalar::bits);
                    let own = array.as_ref().and_then(|array| array.get(number)).map(Scalar::bits);
                    assert_eq!(own, value, "column {number} of {shape:?}, {rows} rows, {one:?}");
                }
                if let Some(array) = array {
                    assert_eq!((array.shape(), array.len(), array.dtype()), (shape, width, one.result_dtype()));
                }
            }
        }
    }
}

#[test]
fn arrays_of_no_rows_have_the_values_of_no_rows() {
    for (along, one) in reductions(&[2, 3]) {
        let array = along.finish_columns(None, 0);
        let expected = one.finish(None, 0).map(|value| vec![value.bits(); 6]);
        assert_eq!(array.map(|array| array.values().map(Scalar::bits).collect::<Vec<_>>()), expected, "{one:?}");
        // It is no array, and has no columns.
        assert_eq!(one.finish_columns(None, 0), None);
    }
    // There is nothing that the minimum of no columns would lack, as in NumPy.
    let none = Reduction::new("m".into(), Kind::Min, Dtype::F32).along_rows(vec![0]);
    assert_eq!(none.finish_columns(None, 0).map(|array| array.len()), Some(0));
}

#[test]
fn results_find_their_states_among_those_of_others() {
    let of = |label: &str, kind, dtype| Reduction::new(label.into(), kind, dtype);
    let reductions = [
        of("m", Kind::Var, Dtype::F64),
        of("a", Kind::ArgMax, Dtype::I64).along_rows(vec![3]),
        of("s", Kind::Sum, Dtype::I32),
        of("b", Kind::Var, Dtype::F64).along_rows(vec![1, 2]),
        of("n", Kind::Count, Dtype::Bool),
    ];
    let float = |value: f64| value.to_bits();
    let mut states = vec![float(4.0), float(1.0), float(8.0)];
    states.extend([10, 20, 30, 1, 2, 3]);
    states.push(-5_i64 as u64);
    states.extend([float(4.0), float(4.0), float(1.0), float(2.0), float(2.0), float(6.0)]);
    states.push(9);
    let found = results(&reductions, Some(&states), &[], &[], 4).unwrap();
    let values = [("m", Scalar::F64(2.0)), ("s", Scalar::I64(-5)), ("n", Scalar::I64(9))];
    assert_eq!(found.values, values.map(|(label, value)| (label.to_owned(), Some(value))));
    let arrays: Vec<_> = found.arrays.iter().map(|(label, array)| (label.as_str(), array.as_ref().unwrap())).collect();
    let [(a, rows), (b, spread)] = arrays[..] else { panic!("{arrays:?}") };
    assert_eq!((a, rows.shape(), rows.to_vec()), ("a", &[3][..], Some(vec![1_i64, 2, 3])));
    assert_eq!((b, spread.shape(), spread.to_vec()), ("b", &[1, 2][..], Some(vec![0.5_f64, 1.5])));
}

#[test]
fn shapes_that_no_result_has_are_refused() {
    let parse =
        |shape: &[u64], counter| Reduction::parse("r".into(), "sum", "f64", counter, (1, Some(shape.to_vec())), None);
    for shape in [&[][..], &[0], &[1 << 24], &[1 << 12, 1 << 12], &[1; 64]] {
        assert_eq!(parse(shape, None).unwrap().shape(), Some(shape));
        assert_eq!(parse(shape, Some(0)).unwrap().shape(), Some(shape), "kept rows");
    }
    for shape in [&[(1 << 24) + 1][..], &[1 << 13, 1 << 12], &[u64::MAX], &[1 << 32, 1 << 32], &[u64::MAX, 0], &[1; 65]]
    {
        assert!(parse(shape, None).is_none(), "{shape:?}");
    }
}
