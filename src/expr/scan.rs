//! Running sums: `cumsum(x)` has in each row the sum of this row and of all rows before it.
//!
//! A pass over the rows finds the sum of each tile, as it does for `sum(x)`. Of these, the host makes the sums of the
//! rows before each tile, one tile after the other. Another pass adds up the rows of each tile, and adds the sum before
//! it. So chunks, workers and devices need no order among them.
//!
//! The order of additions is fixed and the same on every device. A tile has warps of 32 rows. In a warp, each row adds
//! the value 1, 2, 4, 8 and 16 rows before. To that, it adds the sum of the warps before, which are added one after the
//! other; and at last the sum before the tile. `kernels/scan.cu` gives the same bits.

use bytemuck::Pod;

use super::dispatch::{self, Work};
use super::fault::Fault;
use super::filter::Rows;
use super::ir::Id;
use super::shape::RowShape;
use crate::data::{ArrayValue, Dtype};

/// The rows of a warp.
const WARP: usize = 32;

/// The message about neighbours of running sums.
pub(super) const MOVED: &str = "the running sums of other rows are not known here; move the rows first, like \
     `cumsum(shift(x, 1, 0))`, which is the sum of the rows before each row";

/// A running sum of a text, as the engine sees it.
#[derive(Clone, Debug)]
pub(crate) struct RunningSum {
    /// Its text.
    pub(super) label: String,
    /// The term that is added up.
    pub(super) of: usize,
    /// The number of the pass that finds the sums of tiles.
    pub(crate) pass: usize,
}

impl RunningSum {
    /// Its text.
    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    /// The label of the sums of tiles. No name of a text has a space.
    pub(crate) fn of_tiles(&self) -> String {
        format!("{}: tiles", self.label)
    }

    /// The name of the sums before tiles, which a pass receives.
    pub(crate) fn before(&self) -> String {
        before(&self.label)
    }

    /// Returns the sums of the rows before each tile, from the sum of each tile.
    pub(crate) fn sums_before(tiles: &ArrayValue) -> ArrayValue {
        let mut words: Vec<u64> = tiles.values().map(|value| value.bits()).collect();
        match tiles.dtype() {
            Dtype::F64 => exclusive::<f64>(bytemuck::cast_slice_mut(&mut words)),
            _ => exclusive::<u64>(&mut words),
        }
        ArrayValue::of_words(tiles.dtype(), tiles.shape().to_vec(), words)
    }
}

/// The name of the sums before tiles for the running sum with this label.
pub(super) fn before(label: &str) -> String {
    format!("{label}: before")
}

/// Checks that a value at `at` with these rows can be added up.
pub(super) fn check(at: usize, rows: Rows, row: &RowShape) -> Result<(), Fault> {
    let message = match rows {
        _ if !row.dims.is_empty() => {
            "`cumsum` adds up arrays of one dimension, and a row here has several elements; pass the elements as an \
             array of one dimension"
        }
        Rows::All => return Ok(()),
        Rows::One => "`cumsum` adds up rows, and this value is one number for all of them; write `x * (index() + 1)`",
        Rows::Kept(_) => {
            "`cumsum` of kept rows is not supported; add up zeros in their place and filter the sums, like \
             `cumsum(where(x > 0, x, 0))[x > 0]`"
        }
    };
    Err(Fault::new(at, message))
}

/// What is added up.
trait Sum: Pod {
    const NOTHING: Self;
    fn plus(self, other: Self) -> Self;
}

impl Sum for f64 {
    /// -0 + x is x for every x; 0 + -0 is not.
    const NOTHING: f64 = -0.0;

    #[inline(always)]
    fn plus(self, other: f64) -> f64 {
        self + other
    }
}

/// Signed ones have the same bits.
impl Sum for u64 {
    const NOTHING: u64 = 0;

    #[inline(always)]
    fn plus(self, other: u64) -> u64 {
        self.wrapping_add(other)
    }
}

/// Replaces each value by the sum of those before it.
fn exclusive<T: Sum>(values: &mut [T]) {
    let mut sum = T::NOTHING;
    for value in values {
        let own = *value;
        *value = sum;
        sum = sum.plus(own);
    }
}

/// The running sums of a tile on the host.
pub(super) struct TileSums {
    /// The operation that is added up.
    pub(super) of: Id,
    /// The input with the sums before tiles.
    pub(super) before: usize,
    /// `i64`, `u64` or `f64`.
    dtype: Dtype,
    /// The sum of the rows before the tile.
    of_tiles: u64,
    /// The sum of the warps so far.
    of_warps: u64,
}

impl TileSums {
    pub(super) fn new(of: Id, before: usize, dtype: Dtype) -> TileSums {
        TileSums { of, before, dtype, of_tiles: 0, of_warps: 0 }
    }

    /// Begins a tile, before each of which these are the sums.
    pub(super) fn begin(&mut self, before: &[u8], tile: usize) {
        self.of_tiles =
            before.get(8 * tile..).and_then(|own| own.first_chunk()).map_or(0, |own| u64::from_ne_bytes(*own));
        self.of_warps = if self.dtype == Dtype::F64 { f64::NOTHING.to_bits() } else { u64::NOTHING };
    }

    /// Adds up the next rows of the tile. They are whole warps, but for the last ones.
    pub(super) fn next(&mut self, values: &[u64], out: &mut [u64]) {
        dispatch::run(Warps { sums: self, values, out });
    }
}

/// Adds up whole warps.
struct Warps<'a> {
    sums: &'a mut TileSums,
    values: &'a [u64],
    out: &'a mut [u64],
}

impl Work for Warps<'_> {
    #[inline(always)]
    fn run(self) {
        let Warps { sums, values, out } = self;
        let (before, warps) = (sums.of_tiles, sums.of_warps);
        sums.of_warps = match sums.dtype {
            Dtype::F64 => {
                let [before, warps] = [before, warps].map(f64::from_bits);
                add_up(before, warps, bytemuck::cast_slice(values), bytemuck::cast_slice_mut(out)).to_bits()
            }
            _ => add_up(before, warps, values, out),
        };
    }
}

/// Writes the running sums of rows, before which there are the tiles and the warps with these sums. Returns the sum of
/// the warps.
#[inline(always)]
fn add_up<T: Sum>(before: T, mut warps: T, values: &[T], out: &mut [T]) -> T {
    for (values, out) in values.chunks(WARP).zip(out.chunks_mut(WARP)) {
        let mut lanes = [T::NOTHING; WARP];
        lanes[..values.len()].copy_from_slice(values);
        let lanes = doubled::<T, 1>(lanes);
        let lanes = doubled::<T, 2>(lanes);
        let lanes = doubled::<T, 4>(lanes);
        let lanes = doubled::<T, 8>(lanes);
        let lanes = doubled::<T, 16>(lanes);
        for (out, lane) in out.iter_mut().zip(lanes) {
            *out = before.plus(warps.plus(lane));
        }
        warps = warps.plus(lanes[WARP - 1]);
    }
    warps
}

/// Adds to each lane of a warp the one at a distance before it.
#[inline(always)]
fn doubled<T: Sum, const DISTANCE: usize>(lanes: [T; WARP]) -> [T; WARP] {
    let mut sums = lanes;
    for lane in DISTANCE..WARP {
        sums[lane] = lanes[lane - DISTANCE].plus(lanes[lane]);
    }
    sums
}
