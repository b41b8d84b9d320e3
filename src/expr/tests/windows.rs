//! Moving windows that are computed by one loop, beside the same operations one by one.

use super::super::host::HostProgram;
use super::neighbours::Job;
use crate::data::Dtype;
use crate::device::kernel::HostKernel;

/// The dtypes whose windows have a loop.
fn dtypes() -> impl Iterator<Item = Dtype> {
    Dtype::ALL.iter().copied().filter(|dtype| *dtype != Dtype::Bool && !dtype.is_half())
}

fn windows(text: &str, dtype: Dtype) -> usize {
    HostProgram::new(Job::new(text, dtype, 1, 1000).program).windows()
}

/// Runs all rows of a job of so many, and rows in the middle.
fn assert_same(text: &str, dtype: Dtype, width: usize, total: usize) {
    let job = Job::new(text, dtype, width, total);
    let tile = job.columns().tile_rows;
    let ranges = [(0, total), (tile, tile), (total / tile * tile, total % tile)];
    for (first, rows) in ranges.into_iter().filter(|(first, rows)| *rows > 0 && first + rows <= total) {
        let new = || HostProgram::new(job.program.clone());
        let mut second = new();
        let has_second = second.use_other_instructions();
        let (one, other) = (job.run_on(&mut new(), first, rows), job.run_on(&mut new().without_windows(), first, rows));
        assert!(one == other, "{text}, {dtype}, rows of {width}, {rows} of {total} rows from {first} on");
        assert!(!has_second || one == job.run_on(&mut second, first, rows), "{text}, {dtype}, other instructions");
    }
}

#[test]
fn windows_have_the_bits_of_their_operations() {
    for dtype in dtypes() {
        let (number, least) = if dtype.is_float() { ("nan", "-inf") } else { ("7", "0") };
        let texts = [
            format!("a = moving_sum(x, 4, edge); b = moving_mean(x, 5, {number}); c = moving_min(x, 33, wrap)"),
            format!("a = moving_max(x, 70, {least}) + w; b = moving_min(w, 4, {number}); sum(moving_mean(x, 9, wrap))"),
            "a = x[moving_max(x, 6, edge) == x]; sum(shift(x, 2, edge) + shift(x, -3, edge) + x + shift(x, 9, edge))"
                .into(),
        ];
        for text in texts {
            let expected = if text.contains("moving_min(w") { 3 } else { 2 + usize::from(text.contains("wrap")) };
            assert_eq!(windows(&text, dtype), expected, "{text}, {dtype}");
            let is_wide = !text.contains("x[") && matches!(dtype, Dtype::F32 | Dtype::I64 | Dtype::U8);
            let wide: &[_] = if is_wide { &[(3, 3000), (300, 130)] } else { &[] };
            for (width, total) in [(1, 3), (1, 30), (1, 4096 + 77)].iter().chain(wide) {
                assert_same(&text, dtype, *width, *total);
            }
        }
    }
}

/// Operations that others read, too, are computed beside the window.
#[test]
fn windows_share_operations() {
    let text = "g = shift(moving_mean(x, 9, edge), -4, wrap); a = moving_sum(x, 8, 0); b = moving_sum(x, 4, 0) * x; \
                c = shift(x, 3, 0); d = moving_sum(x, 8, 0) + x; \
                e = (shift(x, 4, edge) + shift(x, 3, edge) + shift(x, 2, edge) + shift(x, 1, edge)) * 2; \
                f = shift(x, 4, edge) + shift(x, 3, edge) + shift(x, 2, edge) + shift(x, 1, edge) + x";
    for dtype in [Dtype::F64, Dtype::F32, Dtype::I64] {
        for (width, total) in [(1, 6), (1, 9000), (5, 3000)] {
            assert_same(text, dtype, width, total);
        }
    }
}

#[test]
fn windows_are_of_inputs_alone() {
    let of = |text: &str| windows(text, Dtype::F32);
    assert_eq!(of("y = moving_mean(x, 64, nan)"), 1);
    assert_eq!(of("y = moving_mean(x, 3, nan)"), 0, "few rows");
    assert_eq!(of("y = moving_mean(x * w, 8, nan)"), 0, "of a result");
    assert_eq!(of("y = shift(moving_mean(x, 8, nan), 1, nan)"), 0, "with two conditions");
    assert_eq!(of("y = shift(moving_mean(x, 9, edge), -4, edge)"), 1, "moved");
    assert_eq!(of("y = shift(x, 3, edge) + shift(x, 2, edge) + shift(x, 1, edge) + w"), 0, "of two inputs");
    assert_eq!(of("y = shift(x, 3, edge) - shift(x, 2, edge) - shift(x, 1, edge) - x"), 0, "no sum");
    // A condition that is not the one of a window.
    assert_eq!(of("y = where(i >= 2, shift(x, 3, edge), 0) + shift(x, 2, 0) + shift(x, 1, 0) + x"), 0);
    assert_eq!(of("y = where(i >= 3, shift(x, 3, edge), 0) + shift(x, 2, 0) + shift(x, 1, 0) + x"), 1);
    for dtype in [Dtype::F16, Dtype::Bf16, Dtype::Bool] {
        assert_eq!(windows("y = moving_max(x, 8, edge)", dtype), 0, "{dtype}");
    }
}

/// A block with a row whose window is not whole is computed operation by operation.
#[test]
fn long_windows_reach_over_blocks() {
    for total in [200, 1024, 1025, 2048, 4096 + 255, 4096 + 256] {
        assert_same("a = moving_mean(x, 256, nan); b = moving_max(x, 256, edge)", Dtype::F32, 1, total);
        assert_same("a = moving_sum(x, 256, wrap)", Dtype::F64, 2, total);
    }
}
