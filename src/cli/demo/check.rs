//! Checks the results of the demo against a plain loop.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use overshot::{CancelToken, Error, Report};

use super::data::{A, B, each_block, number, stop_if};
use crate::cli::progress::Bar;
use crate::cli::{Failure, Result};

/// The claim that a passed check proves.
pub const CLAIM: &str = "c.npy equals a plain loop's result bit for bit, max(c) exactly, mean(c) within 1e-12 of it.";
/// The order of additions differs, so the last bits of the mean may differ.
const TOLERANCE: f64 = 1e-12;

/// The values of the reductions, computed by a plain loop.
pub struct Truth {
    mean: f64,
    max: f64,
}

/// Checks every row of the file.
pub fn file(path: &Path, rows: u64, cancel: &CancelToken, bar: &Bar) -> Result<Truth> {
    let cannot = |error: io::Error| Error::File {
        path: path.into(),
        problem: "cannot be read".into(),
        remedy: "check its disk".into(),
        cause: Some(error),
    };
    let file = File::open(path).map_err(cannot)?;
    let mut head = [0; 10];
    file.read_exact_at(&mut head, 0).map_err(cannot)?;
    let header = 10 + u64::from(u16::from_le_bytes([head[8], head[9]]));
    let parts = each_block(rows, |block| {
        stop_if(cancel, block.start, rows)?;
        let mut numbers = vec![0f64; (block.end - block.start) as usize];
        file.read_exact_at(bytemuck::cast_slice_mut(&mut numbers), header + block.start * 8).map_err(cannot)?;
        let (mut sum, mut max) = (Sum::default(), f64::MIN);
        for (row, found) in block.clone().zip(numbers) {
            let (a, b) = (number(A, row), number(B, row));
            let c = (a * a + b * b).sqrt();
            if found.to_bits() != c.to_bits() {
                return Err(wrong(&format!("row {row} of c"), found, c));
            }
            sum.add(c);
            max = max.max(c);
        }
        bar.add(block.end - block.start);
        Ok((sum.total, max))
    })?;
    let mut sum = Sum::default();
    parts.iter().for_each(|(part, _)| sum.add(*part));
    Ok(Truth { mean: sum.total / rows as f64, max: parts.iter().map(|(_, max)| *max).fold(f64::MIN, f64::max) })
}

impl Truth {
    /// Checks that a run computed the same values.
    pub fn matches(&self, report: &Report) -> Result {
        let value = |label| report.value(label).ok().flatten().map_or(f64::NAN, |value| value.as_f64());
        let (mean, max) = (value("mean(c)"), value("max(c)"));
        if max != self.max {
            return Err(wrong("max(c)", max, self.max));
        }
        // False for NaN, too.
        if (mean - self.mean).abs() <= TOLERANCE * self.mean.abs() {
            return Ok(());
        }
        Err(wrong("mean(c)", mean, self.mean))
    }
}

fn wrong(what: &str, found: f64, expected: f64) -> Failure {
    Failure::Wrong(format!("{what} is {found:?} instead of {expected:?}; this is a bug in Overshot; please report it"))
}

/// A compensated sum (Kahan), so that the error does not grow with the number of rows.
#[derive(Default)]
struct Sum {
    total: f64,
    lost: f64,
}

impl Sum {
    fn add(&mut self, value: f64) {
        let value = value - self.lost;
        let total = self.total + value;
        self.lost = (total - self.total) - value;
        self.total = total;
    }
}
