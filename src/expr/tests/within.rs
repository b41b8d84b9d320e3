//! Tests of reductions within rows.

use super::super::shape::{Extent, RowShape};
use super::super::{results, sweeps};
use super::wide::{Wide, bind, compare_with_cpp, state};
use super::{Column, run_values};
use crate::data::Dtype;
use crate::device::as_cpp::has_compiler;

/// A table of `f64`: in even rows of plain numbers, in odd rows with special ones.
fn table(rows: usize, width: usize) -> Wide {
    let mut wide = Wide::new(Dtype::F64, rows, width);
    let plain = |at: usize| ((at * 7919 % 10_007) as f64 - 5000.0) / 3.0;
    let special: Vec<u64> = wide.x.bits().collect();
    let value = |at: usize| if (at / width).is_multiple_of(2) { plain(at).to_bits() } else { special[at] };
    wide.x = Column::from_bits(Dtype::F64, (0..rows * width).map(value));
    wide
}

/// The documented order: lane l has the elements l, l + 256, …, and then lanes are combined by halving.
fn in_order<T: Copy>(row: &[T], combine: impl Fn(T, T) -> T) -> T {
    let (first, rest) = row.split_at(row.len().min(256));
    let mut lanes = first.to_vec();
    for (k, value) in rest.iter().enumerate() {
        lanes[k % 256] = combine(lanes[k % 256], *value);
    }
    while lanes.len() > 1 {
        let mut half = 1;
        while 2 * half < lanes.len() {
            half *= 2;
        }
        let right = lanes.split_off(half);
        lanes.iter_mut().zip(right).for_each(|(lane, other)| *lane = combine(*lane, other));
    }
    lanes[0]
}

fn same(one: f64, other: f64) -> bool {
    one.to_bits() == other.to_bits() || (one.is_nan() && other.is_nan())
}

const EVERY: &str = "sum = sum(x, axis=1); prod = prod(x, axis=-1, keepdims=True); mean = mean(x, axis=(1,)); \
                     min = min(x, axis=1); max = max(x, axis=(-1)); var = var(x, axis=1); std = std(x, axis=1); \
                     count = count(x, axis=1); any = any(x > 0, axis=1); all = all(x > 0, axis=1); \
                     argmin = argmin(x, axis=1); argmax = argmax(x, axis=1)";

#[test]
fn rows_are_reduced_in_the_documented_order() {
    for width in (2..=300).chain([511, 512, 513, 1000, 1023, 1024, 1025, 1300, 2049, 4096, 5000]) {
        let wide = table(7, width);
        let program = wide.program(EVERY);
        let (outputs, _) = wide.run(&program, 1 << 40);
        let values: Vec<f64> = wide.x.values().collect();
        for (number, row) in values.chunks(width).enumerate() {
            let of = |output: usize| outputs[output].value(number);
            let least = |a: f64, b: f64| if a <= b || a.is_nan() { a } else { b };
            let most = |a: f64, b: f64| if a >= b || a.is_nan() { a } else { b };
            let sum = in_order(row, |a, b| a + b);
            let mean = sum / width as f64;
            let squares: Vec<f64> = row.iter().map(|x| (x - mean) * (x - mean)).collect();
            let variance = in_order(&squares, |a, b| a + b) / width as f64;
            let floats =
                [sum + 0.0, in_order(row, |a, b| a * b), mean, in_order(row, least), in_order(row, most), variance];
            for (output, expected) in floats.into_iter().chain([variance.sqrt()]).enumerate() {
                let name = &program.outputs()[output].0;
                assert!(same(of(output), expected), "{name} of {width}: {} for {expected}", of(output));
            }
            let position = |is_better: fn(f64, f64) -> bool| {
                let nan = row.iter().position(|x| x.is_nan());
                nan.unwrap_or_else(|| (0..width).reduce(|a, b| if is_better(row[b], row[a]) { b } else { a }).unwrap())
            };
            let truth = |is: bool| f64::from(u8::from(is));
            let others = [
                row.iter().filter(|x| **x != 0.0).count() as f64,
                truth(row.iter().any(|x| *x > 0.0)),
                truth(row.iter().all(|x| *x > 0.0)),
                position(|a, b| a < b) as f64,
                position(|a, b| a > b) as f64,
            ];
            for (output, expected) in (7..).zip(others) {
                let name = &program.outputs()[output].0;
                assert_eq!(of(output), expected, "{name} of row {number} of {width}");
            }
        }
    }
}

/// Integers are exact, and dtypes are those of results.
#[test]
fn integers_are_exact() {
    for (dtype, sum, least) in [
        (Dtype::I16, Dtype::I64, Dtype::I16),
        (Dtype::U8, Dtype::U64, Dtype::U8),
        (Dtype::Bool, Dtype::I64, Dtype::Bool),
        (Dtype::U64, Dtype::U64, Dtype::U64),
    ] {
        for width in [2, 30, 256, 700, 3000] {
            let wide = Wide::new(dtype, 5, width);
            let program =
                wide.program("s = sum(x, axis=1); p = prod(x, axis=1); l = min(x, axis=1); m = mean(x, axis=1)");
            let (outputs, _) = wide.run(&program, 0);
            let dtypes: Vec<Dtype> = outputs.iter().map(|output| output.dtype).collect();
            assert_eq!(dtypes, [sum, sum, least, Dtype::F64]);
            let top = 64 - 8 * dtype.size();
            let extended = |bits: u64| if dtype == Dtype::I16 { ((bits << top) as i64 >> top) as u64 } else { bits };
            let values: Vec<u64> = wide.x.bits().map(extended).collect();
            for (number, row) in values.chunks(width).enumerate() {
                let [own, product, _, mean] = [0, 1, 2, 3].map(|k| outputs[k].bits().nth(number).unwrap());
                assert_eq!(own, row.iter().fold(0, |all: u64, value| all.wrapping_add(*value)), "{dtype}, {width}");
                assert_eq!(product, row.iter().fold(1, |all: u64, value| all.wrapping_mul(*value)), "{dtype}, {width}");
                let least = row.iter().map(|value| wide_value(dtype, *value)).min().unwrap();
                assert_eq!(outputs[2].value(number), least as f64, "{dtype}, {width}");
                let floats: Vec<f64> = row.iter().map(|value| wide_value(dtype, *value) as f64).collect();
                let expected = in_order(&floats, |a, b| a + b) / width as f64;
                assert_eq!(f64::from_bits(mean), expected, "{dtype}, {width}");
            }
        }
    }
}

fn wide_value(dtype: Dtype, bits: u64) -> i128 {
    if dtype.is_signed() { i128::from(bits as i64) } else { i128::from(bits) }
}

const SOFTMAX: &str = "y = exp(x - max(x, axis=-1, keepdims=True)); z = y / sum(y, axis=-1, keepdims=True)";

#[test]
fn reductions_within_rows_are_nested() {
    for width in [2, 5, 100, 257, 1024, 1025, 3001] {
        let wide = table(6, width);
        let program = wide
            .program(&format!("{SOFTMAX}; q = z * 1; n = w * sum(z, axis=1, keepdims=True) + m; sum(z), argmax(z)"));
        let (outputs, partials) = wide.run(&program, 5);
        let values: Vec<f64> = wide.x.values().collect();
        // Elementwise parts are those of other tests.
        let exp = |values: &[f64]| {
            let x = Column::from_bits(Dtype::F64, values.iter().map(|value| value.to_bits()));
            let twin = bind("y = exp(x)", &RowShape::default(), Dtype::F64).unwrap();
            let inputs = [x.clone(), x.clone(), x];
            run_values(&mut *twin.kernel().new_host_kernel().unwrap(), &twin, 0, values.len(), &inputs, &[]).0.remove(0)
        };
        let mut all = Vec::new();
        for row in values.chunks(width) {
            let most = in_order(row, |a, b| if a >= b || a.is_nan() { a } else { b });
            let y: Vec<f64> = exp(&row.iter().map(|x| x - most).collect::<Vec<_>>()).values().collect();
            let sum = in_order(&y, |a, b| a + b) + 0.0;
            all.extend(y.into_iter().map(|y| y / sum));
        }
        assert!(outputs[0].values().zip(&all).all(|(own, expected)| same(own, *expected)), "{width}");
        assert_eq!(outputs[1].rows(), 6 * width);
        let tile = program.tiling().tile_rows().min(6) * width;
        let sum = in_order_of_tile(&all[..tile], width, program.tiling().lanes()) + 0.0;
        let own = f64::from_bits(partials[0]) + 0.0;
        assert!(same(own, sum), "{width}: {own} for {sum}");
    }
}

/// The order of a reduction of all elements of a tile, of which a block has whole rows.
fn in_order_of_tile(elements: &[f64], width: usize, lanes: usize) -> f64 {
    let mut all = vec![-0.0; 256];
    // A turn covers whole rows of few elements.
    let turn = if width <= 256 { lanes } else { width };
    for turn in elements.chunks(turn) {
        turn.iter().enumerate().for_each(|(k, value)| all[k % 256] += value);
    }
    in_order(&all, |a, b| a + b)
}

#[test]
fn a_level_of_reductions_is_a_sweep() {
    let wide = table(1, 5000);
    let sweeps = |text: &str, is_whole| {
        let sweeps = sweeps::of(&wide.program(text), is_whole);
        sweeps.iter().map(|sweep| (sweep.reduces.len(), sweep.is_of_row)).collect::<Vec<_>>()
    };
    assert_eq!(sweeps("s = sum(x, axis=1)", false), [(1, false), (0, true)]);
    assert_eq!(sweeps("s = sum(x, axis=1) / max(x, axis=1)", false), [(2, false), (0, true)]);
    assert_eq!(sweeps("s = var(x, axis=1); t = min(x, axis=1)", false), [(2, false), (1, false), (0, true)]);
    assert_eq!(sweeps(SOFTMAX, false), [(1, false), (1, false), (0, false)]);
    assert_eq!(sweeps(SOFTMAX, true), [(0, false)]);
    assert_eq!(sweeps("y = x + 1; sum(x)", false), [(0, false)]);
}

/// Rows of one element are their own reductions.
#[test]
fn rows_of_one_element_need_no_reduction() {
    let wide = table(9, 1);
    let program = wide.program("s = sum(x, axis=1); a = argmin(x, axis=1); m = max(x, axis=1, keepdims=True) - x");
    assert!(!program.reduces_within());
    let (outputs, _) = wide.run(&program, 0);
    assert!(wide.x.values().zip(outputs[0].values()).all(|(own, other)| same(own + 0.0, other)));
    assert!(outputs[1].values().all(|place| place == 0.0));
}

#[test]
fn cuda_source_gives_the_same_bits() {
    if !has_compiler() {
        return;
    }
    for width in [2, 3, 7, 100, 129, 256, 257, 300, 1300, 2600] {
        let rows = table(1, width).program("s = sum(x, axis=1)").tiling().tile_rows() + 3;
        let wide = table(rows, width);
        compare_with_cpp(&wide, EVERY);
        let text = "k = i * sum(x * w - m, axis=1, keepdims=True); sum(z), argmax(x), max(x * w), var(z)";
        compare_with_cpp(&table(20, width), &format!("{SOFTMAX}; q = z * 1; {text}"));
    }
    for dtype in [Dtype::F32, Dtype::U8, Dtype::I64, Dtype::Bool] {
        for width in [5, 270] {
            compare_with_cpp(&Wide::new(dtype, 40, width), EVERY);
        }
    }
}

/// A value of each row is reduced as an array of these values is.
#[test]
fn values_of_rows_are_reduced_once_each() {
    for width in [2, 3, 100, 257, 1300] {
        let rows = 2 * table(1, width).program("s = sum(x, axis=1)").tiling().tile_rows() + 3;
        let plain = |count: usize, step: usize| {
            let value = |at: usize| ((at * step % 10_007) as f64 - 5000.0) / 3.0;
            Column::from_bits(Dtype::F64, (0..count).map(|at| value(at).to_bits()))
        };
        let [x, w, m] = [(rows * width, 7919), (rows, 31), (width, 17)].map(|(count, step)| plain(count, step));
        let wide = Wide { dtype: Dtype::F64, rows, width, x, w, m };
        let text = "s = max(x, axis=1); k = s > 1; sum(s > 2), mean(s), min(s), max(w), var(s, axis=0), count(k), \
                    mean(s[k]), sum(i), any(w > 3), mean(x)";
        let program = wide.program(text);
        let (_, partials) = wide.run(&program, 0);
        let state = state(&program, &partials);
        let rows = wide.rows as u64;
        let found = results(program.reductions(), state.as_deref(), &[], &[], rows).unwrap();
        let s: Vec<f64> = (0..wide.rows)
            .map(|row| (0..width).map(|column| wide.x.value(row * width + column)).fold(f64::NEG_INFINITY, f64::max))
            .collect();
        let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
        let least = |of: &[f64]| of.iter().copied().fold(f64::INFINITY, f64::min);
        let most = |of: &[f64]| of.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let kept: Vec<f64> = s.iter().copied().filter(|s| *s > 1.0).collect();
        let w: Vec<f64> = wide.w.values().collect();
        let all: Vec<f64> = wide.x.values().collect();
        let variance = s.iter().map(|own| (own - mean(&s)).powi(2)).sum::<f64>() / s.len() as f64;
        let expected = [
            s.iter().filter(|s| **s > 2.0).count() as f64,
            mean(&s),
            least(&s),
            most(&w),
            variance,
            kept.len() as f64,
            mean(&kept),
            (rows * (rows - 1) / 2) as f64,
            f64::from(u8::from(w.iter().any(|w| *w > 3.0))),
            mean(&all),
        ];
        for ((label, found), expected) in found.values.iter().zip(expected) {
            let found = found.unwrap().as_f64();
            assert!(
                (found - expected).abs() <= 1e-9 * expected.abs().max(1.0),
                "{label}, {width}: {found}, {expected}"
            );
        }
    }
}

#[test]
fn shapes_that_do_not_fit_are_refused() {
    let extents = vec![Extent::Full, Extent::PerRow, Extent::PerColumn];
    let of = |dims: &[u64]| RowShape { dims: dims.to_vec(), extents: extents.clone(), ..RowShape::default() };
    for (text, dims, reason) in [
        ("y = x - mean(x, axis=1)", &[3][..], "`keepdims=True`"),
        ("s = mean(x, axis=1) + w", &[3], "`keepdims=True`"),
        ("s = mean(x, axis=1) + m", &[3], "`keepdims=True`"),
        ("s = mean(x, axis=1); y = where(x > 0, s, 0)", &[3], "`keepdims=True`"),
        ("s = sum(w, axis=1)", &[3], "does not have all elements"),
        ("s = sum(m, axis=1)", &[3], "does not have all elements"),
        ("s = sum(2, axis=1)", &[3], "does not have all elements"),
        ("s = sum(mean(x, axis=1), axis=1)", &[3], "does not have all elements"),
        ("s = sum(x, axis=2)", &[3], "arrays of 2"),
        ("s = sum(x, axis=-2)", &[3], "write `axis=0`"),
        ("s = sum(x, axis=2)", &[3], "arrays of 2 dimensions have no axis 2"),
        ("s = sum(x, axis=(-1, -4))", &[3, 2], "arrays of 3 dimensions have no axis -4"),
        ("s = sum(x, axis=1)", &[2, 3], "arrays of 3"),
        ("s = sum(x, axis=-1)", &[2, 3], "arrays of 3"),
        ("s = sum(x, axis=-1)", &[], "one dimension"),
        ("mean(sum(x, axis=1, keepdims=True), axis=0)", &[3], "compute them in jobs of their own"),
        ("s = sum(x, axis=1); sum(x, axis=0)", &[3], "compute them in jobs of their own"),
    ] {
        let error = bind(text, &of(dims), Dtype::F64).unwrap_err().to_string();
        assert!(error.contains(reason), "{text}: {error}");
    }
    for (text, dims) in [
        ("s = sum(x, axis=(1, 2))", &[2, 3][..]),
        ("s = sum(x, axis=(-2, -1)) * 2 + i", &[2, 3]),
        ("s = mean(x, axis=1) > 3", &[3]),
        ("s = max(x, axis=1) - min(x, axis=1); y = (x - m) * w", &[3]),
    ] {
        assert!(bind(text, &of(dims), Dtype::F64).is_ok(), "{text}");
    }
}
