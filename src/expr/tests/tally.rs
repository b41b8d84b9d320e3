//! Tests of counts in bins: against naive twins, and the CUDA source.

use std::collections::HashMap;
use std::sync::Arc;

use super::super::program::Program;
use super::super::shape::{Extent, RowShape};
use super::super::{Expression, Results, results};
use super::cuda::run_wide_as_cpp;
use super::{Column, run_partials};
use crate::data::{ArrayValue, Dtype, Scalar};
use crate::device::as_cpp::has_compiler;
use crate::device::kernel::Uniform;
use crate::error::{Error, JobError, Result};

fn bind(text: &str, inputs: &[(&str, Dtype)], width: usize) -> Result<Program> {
    let expression = Expression::parse(text)?;
    let inputs: Vec<_> = inputs.iter().map(|(name, dtype)| ((*name).to_owned(), *dtype)).collect();
    let outputs: Vec<_> =
        expression.outputs().filter(|name| !expression.reads(name)).map(|name| (name.to_owned(), None)).collect();
    let dims = if width == 1 { vec![] } else { vec![width as u64] };
    let extents = vec![Extent::Full; inputs.len()];
    expression.bind_rows(&RowShape { dims, extents, ..RowShape::default() }, &inputs, &[], &[], &outputs)
}

fn program(text: &str, inputs: &[(&str, Dtype)], width: usize) -> Arc<Program> {
    Arc::new(bind(text, inputs, width).unwrap())
}

/// The partials of rows of this width.
fn partials(program: &Arc<Program>, rows: usize, inputs: &[Column]) -> Vec<u64> {
    let kernel = program.kernel();
    let mut partials = vec![u64::MAX; kernel.columns.partial_bytes(rows) / 8];
    partials[..kernel.columns.chunk_words].fill(0);
    let inputs: Vec<&[u8]> = inputs.iter().map(Column::bytes).collect();
    let bytes = bytemuck::cast_slice_mut(&mut partials);
    kernel.new_host_kernel().unwrap().run(0, rows, &inputs, &mut [], bytes, &Uniform::default());
    partials
}

/// The results of rows of one element, and those of their parts if these are added.
fn arrays(program: &Arc<Program>, inputs: &[Column]) -> Vec<ArrayValue> {
    let rows = inputs[0].rows();
    let words = program.kernel().columns.chunk_words;
    let of = |words: &[u64]| -> Vec<ArrayValue> {
        let results = results(program.reductions(), None, words, &[], rows as u64).unwrap();
        results.arrays.into_iter().map(|(_, array)| array.unwrap()).collect()
    };
    let whole = of(&partials(program, rows, inputs)[..words]);
    let mut sums = vec![0; words];
    for start in (0..rows).step_by(700).rev() {
        let part: Vec<Column> = inputs.iter().map(|column| column.slice(start, rows.min(start + 700))).collect();
        let own = &partials(program, part[0].rows(), &part)[..words];
        let mut before = 0;
        for reduction in program.reductions() {
            let own_words = before..before + reduction.chunk_words();
            before = own_words.end;
            if let Some(tally) = reduction.tally() {
                tally.combine(&mut sums[own_words.clone()], &own[own_words]);
            }
        }
    }
    assert_eq!(of(&sums), whole, "parts of {}", program.text);
    whole
}

fn counts(array: &ArrayValue) -> Vec<i64> {
    array.to_vec().unwrap()
}

#[test]
fn histograms_count_by_their_edges() {
    for &dtype in Dtype::ALL {
        let column = Column::mixed(dtype, 5000, 3);
        for (bins, low, high) in [(1_u32, 0.0, 1.0), (10, -3.0, 3.0), (100, -128.5, 127.0), (65_536, -1e4, 1e4)] {
            // So many edges are no different numbers.
            if bins > 1000 && dtype.is_half() {
                continue;
            }
            let text = format!("h = histogram(x, {bins}, {low:?}, {high:?})");
            let found = counts(&arrays(&program(&text, &[("x", dtype)], 1), std::slice::from_ref(&column))[0]);
            let round = |edge: f64| if dtype.is_float() { Scalar::of_float(dtype, edge).as_f64() } else { edge };
            let mut edges: Vec<f64> =
                (0..bins).map(|k| round(f64::from(k) * ((high - low) / f64::from(bins)) + low)).collect();
            edges.push(round(high));
            let mut expected = vec![0; bins as usize];
            for value in column.values().filter(|x| (edges[0]..=edges[bins as usize]).contains(x)) {
                let above = edges.partition_point(|edge| *edge <= value);
                expected[above.min(bins as usize) - 1] += 1;
            }
            assert!(found == expected, "{text} of {dtype}");
            assert!(bins > 100 || expected.iter().any(|count| *count > 0));
        }
    }
}

/// Integers from 0 to below 100, some more often than others.
fn keys(dtype: Dtype, rows: usize) -> Column {
    let top = if dtype == Dtype::Bool { 2 } else { 100 };
    Column::from_bits(dtype, (0..rows as u64).map(|row| if row % 3 == 0 { 1 } else { row * row * 7919 % top }))
}

#[test]
fn keys_are_counted_and_their_weights_added() {
    for &dtype in Dtype::ALL.iter().filter(|dtype| !dtype.is_float()) {
        let keys = keys(dtype, 5000);
        for &weight in Dtype::ALL {
            // Of few magnitudes, so that a sum of i128 is exact.
            let plain = Column::mixed(weight, 5000, 9);
            let weights: Vec<f64> =
                plain.values().map(|value| if value.abs() < 1e15 { value.round() } else { 0.5 }).collect();
            let bits = weights.iter().map(|value| match weight {
                dtype if dtype.is_float() => Scalar::of_float(dtype, *value).bits(),
                _ => *value as i64 as u64,
            });
            let weights = Column::from_bits(weight, bits);
            let program = program("n = bincount(k, 100); s = bincount(k, 100, w)", &[("k", dtype), ("w", weight)], 1);
            let arrays = arrays(&program, &[keys.clone(), weights.clone()]);
            let (mut count, mut twice) = (vec![0; 100], vec![0_i128; 100]);
            for (key, weight) in keys.bits().zip(weights.values()) {
                count[key as usize] += 1;
                twice[key as usize] += (2.0 * weight) as i128;
            }
            assert_eq!(counts(&arrays[0]), count, "{dtype}");
            let sums: Vec<f64> = twice.iter().map(|sum| *sum as f64 / 2.0).collect();
            assert_eq!(arrays[1].to_vec::<f64>().unwrap(), sums, "{dtype}, weights of {weight}");
        }
    }
}

#[test]
fn special_weights_are_those_of_a_sum() {
    let rows = [
        (0, f64::INFINITY),
        (1, f64::NEG_INFINITY),
        (2, f64::NAN),
        (3, f64::INFINITY),
        (3, f64::NEG_INFINITY),
        (4, -0.0),
        (5, f64::MAX),
        (5, f64::MAX),
        (5, -f64::MAX),
        (6, 1e300),
        (6, 1.0),
        (6, -1e300),
        (0, -1e308),
    ];
    let keys = Column::from_bits(Dtype::U8, rows.map(|(key, _)| key));
    let weights = Column::from_bits(Dtype::F64, rows.map(|(_, weight)| weight.to_bits()));
    let program = program("bincount(k, 8, w)", &[("k", Dtype::U8), ("w", Dtype::F64)], 1);
    let sums = arrays(&program, &[keys, weights])[0].to_vec::<f64>().unwrap();
    let expected = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, f64::NAN, 0.0, f64::MAX, 1.0, 0.0];
    assert_eq!(sums.iter().map(|sum| sum.to_bits()).collect::<Vec<_>>(), expected.map(f64::to_bits));
}

#[test]
fn keys_outside_are_an_error_with_their_number() {
    let program = program("h = histogram(k, 4, 0, 4); n = bincount(k, 4)", &[("k", Dtype::I64)], 1);
    let of = |keys: &[i64]| -> Result<Results> {
        let column = Column::from_bits(Dtype::I64, keys.iter().map(|key| *key as u64));
        results(program.reductions(), None, &partials(&program, keys.len(), &[column]), &[], keys.len() as u64)
    };
    assert_eq!(counts(of(&[0, 3, 3]).unwrap().arrays[1].1.as_ref().unwrap()), [1, 0, 0, 2]);
    let error = of(&[0, 4, -1, i64::MAX, i64::MIN + 1, 3]).unwrap_err();
    let Error::InvalidJob(JobError::KeysOutside { result, count, keys, .. }) = error else { panic!("{error}") };
    assert_eq!((result.as_str(), count, keys), ("n", 4, 4));
    // Without rows, there are no counts and no sums.
    let none = results(program.reductions(), None, &[], &[], 0).unwrap();
    assert_eq!(counts(none.arrays[0].1.as_ref().unwrap()), [0; 4]);
}

#[test]
fn kept_rows_alone_are_counted() {
    for dtype in [Dtype::I8, Dtype::I64, Dtype::U64] {
        let keys = Column::mixed(dtype, 3000, 5);
        let weights = Column::mixed(Dtype::F64, 3000, 6);
        let m = "(0 <= k) & (k < 8)";
        let text = format!("bincount(k[{m}], 9), bincount(k[{m}], 9, w[{m}]), histogram(w[{m}], 5, -10, 10)");
        let program = program(&text, &[("k", dtype), ("w", Dtype::F64)], 1);
        let found = arrays(&program, &[keys.clone(), weights.clone()]);
        let (mut count, mut bins) = ([0; 9], [0; 5]);
        let mut by_key: HashMap<usize, f64> = HashMap::new();
        for (row, key) in keys.values().enumerate().filter(|(_, key)| (0.0..8.0).contains(key)) {
            count[key as usize] += 1;
            let weight = weights.value(row);
            *by_key.entry(key as usize).or_default() += weight;
            if (-10.0..=10.0).contains(&weight) {
                bins[(((weight + 10.0) / 4.0) as usize).min(4)] += 1;
            }
        }
        assert_eq!((counts(&found[0]), counts(&found[2])), (count.to_vec(), bins.to_vec()), "{dtype}");
        let sums = found[1].to_vec::<f64>().unwrap();
        assert!((0..9).all(|key| sums[key].is_nan() == by_key.get(&key).is_some_and(|sum| sum.is_nan())), "{sums:?}");
    }
    // A key that means "left out" among those that are kept is outside.
    let program = program("bincount(k[k < 4], 4)", &[("k", Dtype::I64)], 1);
    let keys = [i64::MIN, 3, i64::MAX].map(|key| key as u64);
    let words = partials(&program, 3, &[Column::from_bits(Dtype::I64, keys)]);
    let error = results(program.reductions(), None, &words[..5], &[], 3).unwrap_err();
    assert!(error.to_string().contains("but 1 elements have others"), "{error}");
}

/// All elements of rows of any width are counted once, beside reductions of tiles.
#[test]
fn rows_of_several_elements_are_counted() {
    for width in [2, 3, 100, 256, 300, 1300] {
        let rows = 40;
        let column = Column::mixed(Dtype::F32, rows * width, 4);
        let wide = program("h = histogram(x, 7, -5, 5); sum(x)", &[("x", Dtype::F32)], width);
        let plain = program("h = histogram(x, 7, -5, 5)", &[("x", Dtype::F32)], 1);
        let words = partials(&wide, rows, std::slice::from_ref(&column));
        assert_eq!(words[..7], run_partials(&plain, 0, rows * width, &[column]).1, "{width}");
    }
}

#[test]
fn cuda_source_gives_the_same_bits() {
    if !has_compiler() {
        return;
    }
    let texts = [
        "h = histogram(x, 10, -3, 3)",
        "h = histogram(x, 10, -3, 3); sum(x); n = bincount(k, 7); max(x)",
        "h = histogram(x, 5000, -100, 100.5); y = x[x > 0]; histogram(x[x > 1], 3, 0, 9)",
        "n = bincount(k, 100, x); m = bincount(k[x > 0], 100, x[x > 0])",
        "n = bincount(k, 1000, x); s = bincount(k, 100, k)",
        "bincount(k, 60000), bincount(x > 0, 2)",
    ];
    let cases = [(Dtype::F64, 1, 0..6), (Dtype::F32, 1, 2..5), (Dtype::F32, 3, 1..2), (Dtype::F32, 300, 4..5)];
    let integers = [(Dtype::I64, 300, 1..2), (Dtype::I64, 1, 3..5), (Dtype::U8, 1, 3..5)];
    for (dtype, width, texts_of) in cases.into_iter().chain(integers) {
        for text in &texts[texts_of] {
            let program = program(text, &[("x", dtype), ("k", Dtype::I32)], width);
            let rows = if width == 1 { 4096 + 700 } else { 40 };
            let x = Column::mixed(dtype, rows * width, 5);
            let x = Column::from_bits(
                dtype,
                x.bits().map(|bits| if bits % 3 == 0 && dtype == Dtype::U8 { 2 } else { bits }),
            );
            let inputs = [x, keys(Dtype::I32, rows * width)];
            let cpp = run_wide_as_cpp(&program, (0, rows), (&inputs, &[]), &[]);
            let bytes = match width {
                1 => bytemuck::cast_slice(&run_partials(&program, 0, rows, &inputs).1).to_vec(),
                _ => bytemuck::cast_slice::<u64, u8>(&partials(&program, rows, &inputs)).to_vec(),
            };
            let own = &cpp[cpp.len() - bytes.len()..];
            let differs = own.chunks(8).zip(bytes.chunks(8)).position(|(one, other)| one != other);
            assert_eq!(differs, None, "{dtype}, {width}, {text}");
        }
    }
}

#[test]
fn what_cannot_be_counted_is_refused() {
    for (text, reason) in [
        ("histogram(x, 0, 0, 1)", "from 1 to 65536"),
        ("histogram(x, 65537, 0, 1)", "from 1 to 65536"),
        ("histogram(x, 2.5, 0, 1)", "from 1 to 65536"),
        ("histogram(x, x, 0, 1)", "a number of the text"),
        ("histogram(x, 10, 1, 1)", "to a greater one"),
        ("histogram(x, 10, 1, -1)", "to a greater one"),
        ("histogram(x, 10, nan, 1)", "two numbers of the text"),
        ("histogram(x, 10, 0, 1e308 * 10)", "two numbers of the text"),
        ("histogram(x, 60000, 1e15, 1000000000000001)", "an edge of its own"),
        ("histogram(f, 60000, 1000, 1000.5)", "no different numbers of f32"),
        ("histogram(x, 10)", "takes 4 arguments"),
        ("bincount(k, 0)", "from 1 to 65536"),
        ("bincount(k, -1)", "from 1 to 65536"),
        ("bincount(x, 10)", "counts integers, not f64"),
        ("bincount(k, 3745, x)", "at most 3744"),
        ("bincount(k, 10, x, x)", "argument"),
        ("bincount(k, 10, axis=0)", "leave out `axis`"),
        ("bincount(k[k > 0], 10, x)", "filtered"),
        ("sum(histogram(x, 10, 0, 1))", "reduces a result, which is known already"),
    ] {
        let inputs = [("x", Dtype::F64), ("k", Dtype::I32), ("f", Dtype::F32)];
        let read: Vec<_> = inputs
            .into_iter()
            .filter(|(name, _)| text.split(|c: char| !c.is_alphanumeric()).any(|word| word == *name))
            .collect();
        let error = bind(text, &read, 1).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(reason), "{text}: {error}");
    }
    let extents = vec![Extent::PerRow, Extent::PerColumn, Extent::Full];
    let inputs = ["r", "c", "x"].map(|name| (name.to_owned(), Dtype::I32));
    for (text, reason) in [
        ("bincount(x, 10, r)", "one element for each row"),
        ("bincount(c, 10)", "one row for all rows"),
        ("bincount(x, 10, c)", "one row for all rows"),
    ] {
        let row = RowShape { dims: vec![3], extents: extents.clone(), ..RowShape::default() };
        let error = Expression::parse(text).unwrap().bind_rows(&row, &inputs, &[], &[], &[]).unwrap_err().to_string();
        assert!(error.contains(reason), "{text}: {error}");
    }
}

#[test]
fn a_difference_names_the_bin() {
    let program = program("n = bincount(k, 3); h = histogram(k, 2, 0, 1)", &[("k", Dtype::U8)], 1);
    let tally = |which: usize| program.reductions()[which].tally().unwrap();
    let found = tally(0).difference("n", [&[0, 1, 2, 3], &[0, 1, 5, 3]]);
    assert_eq!(found.unwrap(), ["the partial result of 'n' at [1]", "2 (0x2)", "5 (0x5)"]);
    let found = tally(0).difference("n", [&[1, 1, 2, 3], &[0, 1, 2, 3]]);
    assert_eq!(found.unwrap(), ["the number of elements that 'n' does not count", "1", "0"]);
    assert_eq!(tally(1).difference("h", [&[7, 8], &[7, 8]]), None);
    assert_eq!(tally(1).value(&[8]), Scalar::I64(8));
}
