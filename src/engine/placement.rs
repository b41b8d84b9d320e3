//! Rows that stay on the devices of an engine: how datasets are divided, and their memory.

use std::ops::Range;
use std::sync::{Arc, PoisonError};

use super::Engine;
use super::devices::PlacementDevice;
use crate::arrays::{DeviceArray, PinnedBuffer, Resident, ShardedArray};
use crate::data::{Dtype, Element, Input, Shard, Shards};
use crate::device::DeviceKind;
use crate::device::kernel::TILE_ROWS;
use crate::device::product::DEVICE_ROWS;
use crate::error::{ColumnError, Error, Result};
#[cfg(feature = "matrices")]
use crate::job::Job;

/// Of rows with several elements, pieces of about so many bytes stay on a device, and of at least so many rows: about
/// as many as a panel has.
const PIECE: (u64, u64) = (16 << 20, 4096);

/// Datasets are divided between devices at tiles of products if each device has so many of them, or else at any tile.
const UNITS: u64 = 4;

/// The part of a device's memory that is reserved for the blocks of runs: a share, within these bounds.
const LEFT_TO_RUNS: (u64, Range<u64>) = (8, 4 << 20..1 << 30);

impl Engine {
    /// Creates an array of `rows` zeros in the free memory of all GPUs.
    ///
    /// Each GPU gets a range of rows in proportion to the memory that it had free when the engine first created such
    /// an array. An eighth of a GPU's memory, or of the engine's limit on device memory, is reserved for the blocks of
    /// runs (at least 4 MiB, at most 1 GiB). Rows that do not fit are in host memory, which is pinned if no row fits.
    /// Reports have the number of these rows.
    ///
    /// # Errors
    /// [`Error::Device`] if the host has no memory for the remaining rows, or a GPU fails.
    pub fn sharded<T: Element>(&self, rows: usize) -> Result<ShardedArray<T>> {
        let shards = self.place(T::DTYPE, rows as u64, (true, "sharded array"), (0, 1))?;
        shards.iter().try_for_each(|shard| shard.memory.zero())?;
        let on_host = rows - shards.rows_on_devices() as usize;
        let rest = if shards.is_empty() { self.pinned(rows)? } else { PinnedBuffer::on_host(on_host)? };
        Ok(ShardedArray::new(shards, rest, rows))
    }

    /// Copies a slice to a new array, which is divided as [`sharded`](Engine::sharded) describes.
    ///
    /// # Errors
    /// Those of [`sharded`](Engine::sharded).
    pub fn shard<T: Element>(&self, rows: &[T]) -> Result<ShardedArray<T>> {
        let mut array = self.sharded(rows.len())?;
        array.write(0, rows)?;
        Ok(array)
    }

    /// Keeps a dataset in the memory of all GPUs as far as it fits, divided as [`sharded`](Engine::sharded) describes.
    /// The memory is allocated now; the first job that reads the dataset copies it there.
    ///
    /// Of rows with one element that do not all fit, the first ones of each GPU stay. Of rows with several elements,
    /// pieces stay that are spread evenly over the dataset: products use rows in their order, and so the link always
    /// has other rows to copy while a GPU computes those that stay.
    ///
    /// # Errors
    /// [`Error::Device`] if a GPU fails.
    pub fn resident<'a>(&self, input: impl Into<Input<'a>>) -> Result<Resident<'a>> {
        self.resident_beside(input.into(), 0)
    }

    /// The same, and leaves at least so many bytes of each device to runs.
    pub(super) fn resident_beside<'a>(&self, input: Input<'a>, runs: u64) -> Result<Resident<'a>> {
        let (source, what) = (input.source(), format!("'{}'", input.source().name()));
        let extents = source.shape().unwrap_or_default().iter().skip(1);
        let width = extents.fold(1_u64, |width, extent| width.saturating_mul(*extent)).max(1);
        let shards = self.place(source.dtype(), source.rows(), (false, &what), (runs, width))?;
        Ok(Resident::new(input, shards))
    }

    /// Keeps rows of an input between jobs like this one, all of which read it, as jobs of several passes do: as far as
    /// they fit beside what the job needs. `None` if that is not possible; see [`may_keep`](Engine::may_keep).
    #[cfg(feature = "matrices")]
    pub(crate) fn keep_between<'a>(&self, input: &'a Input<'_>, job: &Job<'_>) -> Result<Option<Resident<'a>>> {
        if input.shards().is_some() {
            return Ok(None);
        }
        match &self.plan(job)?.devices[..] {
            [device] if self.may_keep(device.kind) => {
                self.resident_beside(input.borrowed(), device.device_bytes).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Returns whether a device that has all rows of a job may keep some of them for the next pass. Rows on a device
    /// are lost with it, so it must not be given up for taking long.
    pub(super) fn may_keep(&self, kind: DeviceKind) -> bool {
        kind != DeviceKind::Cpu && self.device_timeout.is_none()
    }

    /// Borrows an array that other code has in the memory of a GPU, such as one of CuPy or PyTorch. Jobs of this
    /// engine use it in place, on that GPU.
    ///
    /// The elements are at `address` in row-major order without gaps. `stream` is the stream with the work on the
    /// array that is not done yet, which this call waits for: a handle as a number, 1 for the default stream, or 2 for
    /// that of the thread, as in CUDA's array interface; `None` if there is no such work.
    ///
    /// ```no_run
    /// use overshot::{Dtype, Engine, Job};
    /// # let address = 0;
    /// let engine = Engine::builder().build()?;
    /// // SAFETY: `address` is that of 1000 floats, which stay allocated, and which nobody writes to.
    /// let x = unsafe { engine.device_array(address, Dtype::F32, &[1000], Some(1)) }?;
    /// println!("{}", engine.run(Job::eval("sum(x)")?.input("x", &x))?);
    /// # Ok::<(), overshot::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidColumn`] if the memory is in no GPU of the engine, is smaller than the array, or does not begin
    /// at a multiple of 8 bytes. [`Error::Device`] if a GPU fails.
    ///
    /// # Safety
    /// The memory stays allocated until the result is dropped. While a job reads it, nobody writes to it; while a job
    /// writes to it, nobody else accesses it, neither through another `DeviceArray`. The stream exists, in the primary
    /// context of the GPU.
    pub unsafe fn device_array(
        &self,
        address: u64,
        dtype: Dtype,
        shape: &[u64],
        stream: Option<u64>,
    ) -> Result<DeviceArray> {
        let product = shape.iter().try_fold(1_u64, |product, length| product.checked_mul(*length));
        let rows = if shape.contains(&0) { Some(0) } else { product };
        let bytes = rows.and_then(|rows| usize::try_from(rows).ok()?.checked_mul(dtype.size()));
        let (rows, bytes) = (rows.unwrap_or(u64::MAX), bytes.unwrap_or(usize::MAX));
        if bytes == 0 {
            return Ok(DeviceArray::new(Shards::new(dtype, rows, vec![], true, None), dtype, rows, shape));
        }
        if !address.is_multiple_of(8) {
            return Err(ColumnError::Unaligned { address }.into());
        }
        for device in self.placement_devices()? {
            // SAFETY: the caller vouches for the same.
            if let Some(memory) = unsafe { device.memory.borrow(address, bytes, stream) }? {
                let shard = Shard::new(device.memory.id(), 0..rows, (memory, 0));
                return Ok(DeviceArray::new(Shards::new(dtype, rows, vec![shard], true, None), dtype, rows, shape));
            }
        }
        let devices = self.devices().iter().map(|device| device.id.as_str()).collect::<Vec<_>>().join(", ");
        Err(ColumnError::NotOnGpu { address, devices }.into())
    }

    /// Divides a dataset whose rows have `width` elements, and allocates its memory, which leaves so many bytes of each
    /// device to runs. Elements are counted as rows here. If no device of the engine has memory, all rows are on the
    /// host.
    fn place(
        &self,
        dtype: Dtype,
        rows: u64,
        (full, what): (bool, &str),
        (runs, width): (u64, u64),
    ) -> Result<Arc<Shards>> {
        let (tile, tiles) = (TILE_ROWS as u64, rows.div_ceil(TILE_ROWS as u64));
        let tile_bytes = tile * dtype.size() as u64;
        // Held until all memory is allocated, so that the next caller sees what is left.
        let mut weights = self.weights.lock().unwrap_or_else(PoisonError::into_inner);
        let devices = self.placement_devices()?;
        let bytes = tiles.saturating_mul(tile_bytes);
        let free = devices.iter().map(|device| self.free(device, runs, bytes)).collect::<Result<Vec<_>>>()?;
        if weights.len() != free.len() || weights.iter().all(|weight| *weight == 0) {
            weights.clone_from(&free);
        }
        let mut shards = Vec::new();
        let piece = (width > 1).then(|| tiles_of_piece(width, dtype));
        let homes = homes((tiles, unit(tiles, width, weights.len())), &weights);
        for ((device, free), home) in devices.iter().zip(free).zip(homes) {
            let mut most = free / tile_bytes;
            loop {
                let of_tiles = |tiles: Range<u64>| tiles.start * tile..(tiles.end * tile).min(rows);
                let pieces: Vec<_> = pieces(&home, piece, most).into_iter().map(of_tiles).collect();
                let bytes = |rows: &Range<u64>| (rows.end - rows.start) as usize * dtype.size();
                if pieces.is_empty() {
                    break;
                }
                match device.memory.take(pieces.iter().map(bytes).sum(), &device.stays) {
                    Ok(memory) => {
                        let mut begin = 0;
                        for rows in pieces {
                            let behind = begin + bytes(&rows);
                            shards.push(Shard::new(device.memory.id(), rows, (memory.clone(), begin)));
                            begin = behind;
                        }
                        break;
                    }
                    // Another process took the memory, or it is fragmented.
                    Err(Error::OutOfMemory { .. }) => most = most.min(home.end - home.start) / 2,
                    Err(error) => return Err(error),
                }
            }
        }
        let placed: u64 = shards.iter().map(|shard| shard.rows.end - shard.rows.start).sum();
        let note = (placed < rows && !devices.is_empty()).then(|| {
            format!(
                "{placed} of {rows} rows of {what} stay on devices, whose memory takes no more; the others are streamed"
            )
        });
        Ok(Shards::new(dtype, rows, shards, full, note))
    }

    /// Returns the bytes that may be allocated on a device now, and leave at least so many to runs. `bytes` is the size
    /// of the dataset.
    fn free(&self, device: &PlacementDevice, runs: u64, bytes: u64) -> Result<u64> {
        let most = self.limits.device_memory.map_or(device.memory_bytes, |limit| limit.min(device.memory_bytes));
        let (part, within) = LEFT_TO_RUNS;
        let left_to_runs = (most / part).clamp(within.start, within.end).max(runs);
        let free = device.memory.free_bytes(bytes.saturating_add(left_to_runs))?;
        let free = free.min(most.saturating_sub(device.stays.in_use() + device.device.reserved()));
        Ok(free.saturating_sub(left_to_runs))
    }
}

/// Returns the tiles of which the range of each device is a multiple, except the last. A device claims whole tiles of
/// products, so each of these should be on one device, if there are enough for an even division.
fn unit(tiles: u64, width: u64, devices: usize) -> u64 {
    let of_products = (DEVICE_ROWS as u64).saturating_mul(width) / TILE_ROWS as u64;
    if tiles / of_products < UNITS * devices as u64 { 1 } else { of_products }
}

/// Divides the tiles into one range for each device, in proportion to its weight, at multiples of `unit` tiles.
fn homes((tiles, unit): (u64, u64), weights: &[u64]) -> impl Iterator<Item = Range<u64>> {
    let all = weights.iter().map(|weight| u128::from(*weight)).sum::<u128>().max(1);
    weights.iter().scan(0u128, move |before, weight| {
        let end = *before + u128::from(*weight);
        let border = |sum: u128| {
            let units = (u128::from(tiles.div_ceil(unit)) * sum).div_ceil(all);
            (units as u64).saturating_mul(unit).min(tiles)
        };
        let home = border(*before)..border(end);
        *before = end;
        Some(home)
    })
}

/// Returns the tiles of a piece of rows with so many elements.
fn tiles_of_piece(width: u64, dtype: Dtype) -> u64 {
    let (bytes, least) = PIECE;
    let rows = bytes / width.saturating_mul(dtype.size() as u64);
    // A power of two, so that pieces end where panels end.
    (1_u64 << rows.max(least).ilog2()).saturating_mul(width) / TILE_ROWS as u64
}

/// Returns the tiles of `home` that stay on a device which has memory for `most`: the first ones, or, if not all fit,
/// pieces of so many that are spread evenly. The last piece is smaller, so that no memory is left.
fn pieces(home: &Range<u64>, piece: Option<u64>, most: u64) -> Vec<Range<u64>> {
    let tiles = home.end - home.start;
    let mut left = most.min(tiles);
    let piece = piece.filter(|_| left < tiles).unwrap_or(tiles).max(1);
    let [all, kept] = [tiles, left].map(|tiles| u128::from(tiles.div_ceil(piece)));
    let before = |number: u64| (u128::from(number) * kept).div_ceil(all);
    let starts = (0..).zip((home.start..home.end).step_by(piece as usize));
    let stays = starts.filter(|(number, _)| before(number + 1) > before(*number));
    let mut pieces: Vec<Range<u64>> = Vec::new();
    for (_, start) in stays {
        let end = home.end.min(start + piece.min(left));
        left -= end - start;
        match pieces.last_mut().filter(|last| last.end == start) {
            Some(last) => last.end = end,
            None => pieces.push(start..end),
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_are_spread_evenly(
            start in 0u64..1000, tiles in 0u64..100_000, piece in 1u64..300, most in 0u64..120_000,
        ) {
            let home = start..start + tiles;
            let pieces = pieces(&home, Some(piece), most);
            let all: u64 = pieces.iter().map(|piece| piece.end - piece.start).sum();
            prop_assert_eq!(all, most.min(tiles));
            prop_assert!(pieces.iter().all(|piece| home.start <= piece.start && piece.end <= home.end));
            prop_assert!(pieces.windows(2).all(|pair| pair[0].end < pair[1].start), "in order, and apart");
            // Every part of the dataset has its share.
            let share = all as f64 / tiles as f64;
            let mut before = 0;
            for own in pieces {
                prop_assert!((own.start - start).is_multiple_of(piece));
                let expected = (own.start - start) as f64 * share;
                prop_assert!((before as f64 - expected).abs() <= 2.0 * piece as f64, "{before} before {own:?}");
                before += own.end - own.start;
            }
        }

        #[test]
        fn homes_are_all_tiles_by_weight(
            tiles in 0u64..1 << 40, weights in prop::collection::vec(0u64..1 << 40, 1..9), unit in 1u64..1000,
        ) {
            let all: u64 = weights.iter().sum();
            let homes: Vec<_> = homes((tiles, unit), &weights).collect();
            let mut next = 0;
            for (home, weight) in homes.iter().zip(&weights) {
                prop_assert_eq!(home.start, next);
                next = home.end;
                prop_assert!(next == tiles || next.is_multiple_of(unit));
                let share = tiles as f64 * *weight as f64 / all.max(1) as f64;
                prop_assert!(((home.end - home.start) as f64 - share).abs() <= 2.0 * unit as f64 + share * 1e-9);
            }
            prop_assert_eq!(next, if all == 0 { 0 } else { tiles });
        }

        #[test]
        fn rows_are_divided_alike_whatever_their_width(
            rows in 0u64..100_000_000, width in 1u64..5000, weights in prop::collection::vec(1u64..1 << 40, 1..9),
        ) {
            let first_rows = |width: u64| -> Vec<u64> {
                let tiles = (rows * width).div_ceil(TILE_ROWS as u64);
                let homes = homes((tiles, unit(tiles, width, weights.len())), &weights);
                homes.map(|home| (home.start * TILE_ROWS as u64 / width).min(rows)).collect()
            };
            // So many that each device has tiles of products, whose last one is not counted.
            if rows / DEVICE_ROWS as u64 > UNITS * weights.len() as u64 {
                prop_assert_eq!(first_rows(width), first_rows(1));
                prop_assert!(first_rows(1).iter().all(|row| row.is_multiple_of(DEVICE_ROWS as u64) || *row == rows));
            }
        }
    }
}
