//! Tests of running sums: the order of additions, the CUDA source, and what is refused.

use std::sync::Arc;

use super::super::program::Program;
use super::super::{Expression, Extent, RowShape, RunningSum};
use super::Column;
use super::cuda::run_wide_as_cpp;
use crate::data::{ArrayValue, Dtype, Scalar};
use crate::device::as_cpp::has_compiler;
use crate::device::kernel::{TILE_ROWS, Uniform};

/// The dtype of sums of values of a dtype.
fn state_of(dtype: Dtype) -> Dtype {
    match dtype {
        _ if dtype.is_float() => Dtype::F64,
        _ if dtype.is_unsigned() => Dtype::U64,
        _ => Dtype::I64,
    }
}

/// A pass of a text with one input. The sums before tiles are behind it.
fn program(text: &str, pass: usize, dtype: Dtype) -> Arc<Program> {
    let whole = Expression::parse(text).unwrap();
    let is_last = pass + 1 == whole.passes();
    let outputs: Vec<&str> = whole.outputs().filter(|_| is_last).collect();
    let part = whole.pass(pass, &outputs);
    let (received, inputs): (Vec<&str>, Vec<&str>) = part.inputs().partition(|name| name.contains(": "));
    let mut extents = vec![Extent::Full; inputs.len()];
    extents.resize(part.inputs().len(), Extent::PerTile);
    let inputs = inputs.into_iter().map(|name| (name.to_owned(), dtype));
    let received = received.into_iter().map(|name| (name.to_owned(), state_of(dtype)));
    let columns: Vec<_> = inputs.chain(received).collect();
    let outputs: Vec<_> = outputs.into_iter().map(|name| (name.to_owned(), None)).collect();
    let row = RowShape { extents, ..RowShape::default() };
    Arc::new(part.bind_rows(&row, &columns, &[], &[], &outputs).unwrap())
}

/// Runs the host kernel with the sums before tiles. Returns the bytes of the outputs and of the partials.
fn run(program: &Arc<Program>, first_row: u64, column: &Column, before: &[Column]) -> Vec<u8> {
    let (kernel, rows) = (program.kernel(), column.rows());
    let mut outputs: Vec<Column> = program.outputs().iter().map(|(_, dtype)| Column::zeros(*dtype, rows)).collect();
    let mut partials = vec![0_u64; kernel.columns.partial_bytes(rows) / 8];
    let mut slices: Vec<&mut [u8]> = outputs.iter_mut().map(Column::bytes_mut).collect();
    let resident: Vec<&[u8]> = before.iter().map(Column::bytes).collect();
    let uniform = Uniform { resident: &resident, ..Uniform::default() };
    let mut host = kernel.new_host_kernel().unwrap();
    let partials_of = bytemuck::cast_slice_mut(&mut partials);
    host.run(first_row, rows, &[column.bytes()], &mut slices, partials_of, &uniform);
    let mut bytes: Vec<u8> = outputs.iter().flat_map(|output| output.bytes().to_vec()).collect();
    bytes.extend_from_slice(bytemuck::cast_slice(&partials));
    bytes
}

/// The sum up to a lane of a warp, by the definition: that of the lane and that of a lane before it.
fn of_lane(warp: &[f64], lane: usize, distance: usize) -> f64 {
    match distance {
        0 => warp[lane],
        _ if lane < distance => of_lane(warp, lane, distance / 2),
        _ => of_lane(warp, lane - distance, distance / 2) + of_lane(warp, lane, distance / 2),
    }
}

/// The running sums of a tile, by the definition.
fn of_tile(values: &[f64], before: f64) -> Vec<f64> {
    let mut warps = -0.0;
    let mut sums = vec![];
    for warp in values.chunks(32) {
        sums.extend((0..warp.len()).map(|lane| before + (warps + of_lane(warp, lane, 16))));
        warps += of_lane(warp, warp.len() - 1, 16);
    }
    sums
}

#[test]
fn floats_are_added_in_the_order_of_the_definition() {
    let program = program("y = cumsum(x)", 1, Dtype::F64);
    for rows in [1_usize, 31, 32, 33, 255, 256, 257, 1024, 1300, 4096, 2 * 4096 + 77] {
        let values: Vec<f64> = (0..rows).map(|row| ((row * 7919 % 1009) as f64 - 300.0) / 7.0).collect();
        let before: Vec<f64> = (0..rows.div_ceil(TILE_ROWS)).map(|tile| tile as f64 / 3.0 - 0.1).collect();
        let [column, sums] =
            [&values, &before].map(|of| Column::from_bits(Dtype::F64, of.iter().map(|value| value.to_bits())));
        let found = run(&program, 0, &column, &[sums]);
        let tiles = values.chunks(TILE_ROWS).zip(&before);
        let expected: Vec<f64> = tiles.flat_map(|(tile, before)| of_tile(tile, *before)).collect();
        assert_eq!(found, bytemuck::cast_slice::<f64, u8>(&expected), "{rows} rows");
    }
}

#[test]
fn cuda_source_gives_the_same_bits() {
    if !has_compiler() {
        return;
    }
    let first_tile = 2;
    for &dtype in Dtype::ALL {
        let rows = TILE_ROWS + 300;
        let column = Column::mixed(dtype, rows, 3);
        let before = |seed| Column::mixed(state_of(dtype), first_tile + 2, seed);
        let texts = match dtype {
            Dtype::F64 => &[
                "y = cumsum(x); z = cumsum(x) * 2 - x; sum(cumsum(x)), max(x)",
                "y = cumsum(cumsum(x) + 1)",
                "y = cumsum(x)[x > 0]; count(x > 1)",
            ][..],
            _ => &["y = cumsum(x)"],
        };
        for text in texts {
            // The first pass has sums alone.
            for pass in 1..Expression::parse(text).unwrap().passes() {
                let program = program(text, pass, dtype);
                let all = [1, 2].map(before);
                let first_row = (first_tile * TILE_ROWS) as u64;
                let all = &all[..program.split_inputs().1.len()];
                let cpp = run_wide_as_cpp(&program, (first_row, rows), (std::slice::from_ref(&column), all), &[]);
                let host = run(&program, first_row, &column, all);
                if program.is_filtered() {
                    let own = program.outputs().iter().map(|(_, dtype)| dtype.size() * rows).sum::<usize>();
                    assert_eq!(cpp[own..], host[own..], "partials of {text}, {dtype}");
                    let word = cpp[own..].first_chunk().map_or(0, |word| u64::from_ne_bytes(*word));
                    let (kept, size) = (word as usize, program.outputs()[0].1.size());
                    assert_eq!(cpp[..kept * size], host[..kept * size], "{text}, {dtype}");
                } else {
                    assert!(cpp == host, "pass {pass} of {text}, {dtype}");
                }
            }
        }
    }
}

#[test]
fn sums_before_tiles_are_added_one_after_the_other() {
    let array = |values: &[Scalar]| ArrayValue::new(values[0].dtype(), vec![values.len() as u64], values);
    let floats = [0.1, 0.2, 0.3, 1e300].map(Scalar::F64);
    let expected = [-0.0, 0.1, 0.1 + 0.2, 0.1 + 0.2 + 0.3].map(Scalar::F64);
    assert_eq!(RunningSum::sums_before(&array(&floats)), array(&expected));
    let integers = [i64::MAX, 1, -5].map(Scalar::I64);
    assert_eq!(RunningSum::sums_before(&array(&integers)), array(&[0, i64::MAX, i64::MIN].map(Scalar::I64)));
    let none = ArrayValue::new(Dtype::F64, vec![0], &[]);
    assert_eq!(RunningSum::sums_before(&none), none);
}

#[test]
fn a_running_sum_takes_a_pass() {
    for (text, passes) in [
        ("y = cumsum(x)", 2),
        ("y = cumsum(x) / sum(x)", 2),
        ("sum(cumsum(x))", 2),
        ("y = cumsum(cumsum(x))", 3),
        ("y = cumsum(x - mean(x))", 3),
        ("y = cumsum(x) + cumsum(x * x)", 2),
        ("c = cumsum(x); y = c - median(x)", 5),
    ] {
        assert_eq!(Expression::parse(text).unwrap().passes(), passes, "{text}");
    }
    let sums = Expression::parse("y = cumsum(x) + cumsum( x ) + cumsum(x)").unwrap().running_sums();
    assert_eq!(sums.iter().map(RunningSum::label).collect::<Vec<_>>(), ["cumsum(x)", "cumsum( x )"]);
}

#[test]
fn what_cannot_be_added_up_is_refused() {
    let refused = |text: &str, dims: &[u64]| {
        let expression = match Expression::parse(text) {
            Ok(expression) => expression,
            Err(error) => return error.to_string(),
        };
        let outputs: Vec<&str> = expression.outputs().collect();
        let row = RowShape { dims: dims.to_vec(), ..RowShape::default() };
        let inputs = [("x".to_owned(), Dtype::F64)];
        let values = [("a".to_owned(), Dtype::F64)];
        for pass in 0..expression.passes() {
            let part = expression.pass(pass, if pass + 1 == expression.passes() { &outputs } else { &[] });
            let before = part.inputs().filter(|name| name.contains(": ")).map(|name| (name.to_owned(), Dtype::F64));
            let inputs: Vec<_> = inputs.iter().cloned().chain(before).collect();
            let named: Vec<_> = part.outputs().map(|name| (name.to_owned(), None)).collect();
            if let Err(error) = part.bind_rows(&row, &inputs, &values, &[], &named) {
                return error.to_string();
            }
        }
        panic!("{text} is accepted")
    };
    for (text, part) in [
        ("y = cumsum(a) + x", "one number for all of them"),
        ("y = cumsum(2) + x", "one number for all of them"),
        ("y = cumsum(sum(x)) + x", "a result of all rows"),
        ("y = cumsum(x[x > 0])", "`cumsum(where(x > 0, x, 0))[x > 0]`"),
        ("y = shift(cumsum(x), 1, 0)", "`cumsum(shift(x, 1, 0))`"),
        ("y = cumsum(x, axis=0)", "has no axis"),
        ("y = cumsum(x, 1)", "takes 1 argument"),
    ] {
        let message = refused(text, &[]);
        assert!(message.contains(part), "{text}: {message}");
    }
    assert!(refused("y = cumsum(x)", &[3]).contains("several elements"));
}
