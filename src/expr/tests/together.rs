//! Neighbours, counts and reductions within rows in one expression.

use super::Column;
use super::cuda::{Rows, run_rows_as_cpp};
use super::neighbours::Job;
use super::wide::{Wide, compare_with_cpp};
use crate::data::Dtype;
use crate::device::as_cpp::has_compiler;

/// Widths of rows that a block and a span have as a whole, that a block sweeps, and that both sweep.
const WIDTHS: [usize; 3] = [3, 300, 1500];

#[test]
fn a_reduction_within_rows_moves_with_its_row() {
    for width in WIDTHS {
        for total in [1, 2, 40] {
            let values = |text: &str| -> Vec<f64> {
                let bytes = Job::new(text, Dtype::F64, width, total).run(0, total);
                bytes.as_chunks::<8>().0.iter().map(|value| f64::from_ne_bytes(*value)).collect()
            };
            let plain = values("y = max(x, axis=1)");
            let same = |one: &[f64], other: &[f64]| {
                one.iter().map(|value| value.to_bits()).eq(other.iter().map(|value| value.to_bits()))
            };
            let at_edge: Vec<f64> = (0..total).map(|row| plain[row.saturating_sub(1)]).collect();
            let around: Vec<f64> = (0..total).map(|row| plain[(row + total - 1) % total]).collect();
            assert!(same(&values("y = shift(max(x, axis=1), 1, edge)"), &at_edge), "{total} rows of {width}");
            assert!(same(&values("y = max(shift(x, 1, wrap), axis=-1)"), &around), "{total} rows of {width}");
        }
    }
}

#[test]
fn numbers_are_values_of_every_element() {
    for width in WIDTHS {
        let wide = Wide::new(Dtype::U8, 5, width);
        let program = wide.program("s = sum(x, axis=1); z = x < 300; c = count(x < 300, axis=-1); count(x < 300)");
        let (outputs, partials) = wide.run(&program, 0);
        assert!(outputs[1].values().eq(std::iter::repeat_n(1.0, 5 * width)), "{width}");
        assert!(outputs[2].values().eq(std::iter::repeat_n(width as f64, 5)), "{width}");
        let state: u64 = partials.chunks(program.partial_words()).map(|tile| program.state_of_tile(tile)[0]).sum();
        assert_eq!(state, 5 * width as u64);
    }
}

/// The smallest integer is a key outside, not one that a filter leaves out.
#[test]
fn every_key_outside_is_counted() {
    let keys = [i64::MIN, -1, 0, 3, 4, i64::MAX];
    let mut wide = Wide::new(Dtype::I64, 6, 3);
    wide.x = Column::from_bits(Dtype::I64, keys.iter().flat_map(|key| [*key as u64; 3]));
    let (_, partials) = wide.run(&wide.program("bincount(x, 4)"), 0);
    assert_eq!(partials, [12, 3, 0, 0, 3]);
}

#[test]
fn cuda_source_gives_the_same_bits() {
    if !has_compiler() {
        return;
    }
    for width in WIDTHS {
        let text = "y = shift(sum(x, axis=1), 1, edge) - sum(shift(x, 2, wrap), axis=-1); z = diff(x - max(x, axis=1, \
                    keepdims=True), 0); sum(z)";
        let total = 50;
        let job = Job::new(text, Dtype::F64, width, total);
        let rows = total.min(job.columns().tile_rows);
        let range = Rows { first_row: 0, rows, total_rows: total as u64 };
        let cpp = run_rows_as_cpp(&job.program, range, (&job.windows(0, rows), &job.ends()), &[]);
        assert!(cpp == job.run(0, rows), "{width}");
        let numbers =
            "s = sum(x, axis=1); z = x < 300; c = count(x < 300, axis=-1); bincount(x % 5, 5), count(x < 300)";
        compare_with_cpp(&Wide::new(Dtype::U8, 20, width), numbers);
        compare_with_cpp(&Wide::new(Dtype::U8, 20, width), "s = shift(sum(x, axis=1), 0, edge)");
    }
    // One block has more elements than it may add up in shared memory.
    for width in [300, 40_000] {
        compare_with_cpp(&Wide::new(Dtype::F32, 3, width), "s = max(x, axis=1); bincount(x > 0, 2, x)");
    }
}
