//! Arrays in the memory of all devices of an engine.

use std::ops::Range;
use std::sync::Arc;

use super::PinnedBuffer;
use crate::data::{
    Dtype, Element, Input, Memory, Output, Placement, Shards, Sink, SinkMemory, Source, Target, check_fit,
    copy_past_cache, does_not_fit, slice_output,
};
use crate::error::{ColumnError, Result};
use crate::threads;

/// A fixed-size array in the memory of all GPUs of an engine, created by
/// [`Engine::sharded`](crate::Engine::sharded) or [`Engine::shard`](crate::Engine::shard).
///
/// Each GPU holds one range of rows. A job processes the rows of an input or output where they are, without copying
/// them over the link. Rows that do not fit the GPUs are in host memory and are streamed; on an engine without a
/// GPU, this applies to all rows. The program is the same in every case, and the results are the same bit for bit.
/// Dropping the array frees the memory.
///
/// Arrays of equal length from one engine are partitioned identically. If the partitions of two arrays in a job
/// differ, rows that are on different GPUs are copied through host memory, which is slow.
///
/// ```
/// # fn main() -> overshot::Result<()> {
/// use overshot::{Engine, Job, device::Emulated};
/// let engine = Engine::builder().device(Emulated::new()).build()?;
/// let mut x = engine.sharded::<f32>(1_000_000)?;
/// engine.run(Job::eval("x = f32(i)")?.rows(1_000_000).output("x", &mut x))?;
/// let report = engine.run(Job::eval("max(x)")?.input("x", &x))?;
/// assert_eq!(report.value("max(x)")?.map(|v| v.as_f64()), Some(999_999.0));
/// assert_eq!(report.bytes_to_device, 0);
/// let mut some = [0.0; 3];
/// x.read(500_000, &mut some)?;
/// assert_eq!(some, [500_000.0, 500_001.0, 500_002.0]);
/// # Ok(())
/// # }
/// ```
pub struct ShardedArray<T: Element> {
    shards: Arc<Shards>,
    /// The rows on the host, contiguously.
    rest: PinnedBuffer<T>,
    rows: usize,
}

impl<T: Element> ShardedArray<T> {
    /// Creates an array from these shards. `rest` has as many rows as there are on the host.
    pub(crate) fn new(shards: Arc<Shards>, rest: PinnedBuffer<T>, rows: usize) -> Self {
        ShardedArray { shards, rest, rows }
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Returns whether the array has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Returns the devices that hold rows, as `--device` names them, and the range of rows of each. All other rows
    /// are on the host.
    pub fn on_devices(&self) -> Vec<(String, Range<u64>)> {
        self.shards.iter().map(|shard| (shard.device.clone(), shard.rows.clone())).collect()
    }

    /// Copies the rows that start at `first` to a host slice.
    ///
    /// # Errors
    /// Returns [`Error::InvalidColumn`](crate::Error::InvalidColumn) if the rows do not exist, or
    /// [`Error::Device`](crate::Error::Device) if a device fails.
    pub fn read(&self, first: usize, to: &mut [T]) -> Result<()> {
        self.read_bytes(first as u64, bytemuck::cast_slice_mut(to))
    }

    /// Copies a host slice to the rows that start at `first`.
    ///
    /// # Errors
    /// Returns the same errors as [`read`](ShardedArray::read).
    pub fn write(&mut self, first: usize, from: &[T]) -> Result<()> {
        let size = size_of::<T>();
        let rows = self.rows_of(first as u64, from.len())?;
        let bytes: &[u8] = bytemuck::cast_slice(from);
        let parts = self.shards.parts(rows.clone());
        let of = |part: &Range<u64>| {
            &bytes[(part.start - rows.start) as usize * size..(part.end - rows.start) as usize * size]
        };
        for (part, _) in parts.iter().filter(|(_, shard)| shard.is_none()) {
            let (host, from) = (self.shards.host_row(part.start) as usize, of(part));
            self.rest[host..host + from.len() / size].copy_from_slice(bytemuck::cast_slice(from));
        }
        // Write to all devices concurrently.
        let on_devices = parts.iter().filter_map(|(part, shard)| Some((part, (*shard)?)));
        threads::each(on_devices.collect(), |(part, shard)| {
            shard.memory.write(shard.offset(part.start, size), of(part))
        })
    }

    fn read_bytes(&self, first: u64, to: &mut [u8]) -> Result<()> {
        let size = size_of::<T>();
        let mut left = to;
        let parts = self.shards.parts(self.rows_of(first, left.len() / size)?).into_iter().map(|(part, shard)| {
            let (to, rest) = std::mem::take(&mut left).split_at_mut((part.end - part.start) as usize * size);
            left = rest;
            (part.start, shard, to)
        });
        // Read from all devices concurrently.
        threads::each(parts.collect(), |(first, shard, to)| match shard {
            Some(shard) => shard.memory.read(shard.offset(first, size), to),
            None => Input::from(&*self.rest).source().read(self.shards.host_row(first), to),
        })
    }

    fn rows_of(&self, first: u64, rows: usize) -> Result<Range<u64>> {
        let end = first.checked_add(rows as u64).filter(|end| *end <= self.rows as u64);
        end.map(|end| first..end).ok_or_else(|| {
            let (rows, own_rows) = (rows as u64, self.rows as u64);
            ColumnError::ReadBeyondEnd { column: "sharded array".into(), first, rows, own_rows }.into()
        })
    }
}

impl<'a, T: Element> From<&'a ShardedArray<T>> for Input<'a> {
    fn from(array: &'a ShardedArray<T>) -> Self {
        Input::sharded(ShardedSource(array), array.shards.clone())
    }
}

/// An array as a source. The [`Input`] records where the rows are.
struct ShardedSource<'a, T: Element>(&'a ShardedArray<T>);

impl<T: Element> Source for ShardedSource<'_, T> {
    fn dtype(&self) -> Dtype {
        T::DTYPE
    }

    fn rows(&self) -> u64 {
        self.0.rows as u64
    }

    fn name(&self) -> String {
        "sharded array".into()
    }

    fn read(&self, first: u64, to: &mut [u8]) -> Result<()> {
        self.0.read_bytes(first, to)
    }

    fn memory(&self) -> Option<Memory<'_>> {
        if self.0.shards.is_empty() { self.0.rest.memory() } else { None }
    }
}

impl<T: Element> std::fmt::Debug for ShardedArray<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ShardedArray({} rows of {}, on devices: {:?})", self.rows, T::DTYPE, self.shards)
    }
}

impl<'a, T: Element> From<&'a mut ShardedArray<T>> for Output<'a> {
    fn from(array: &'a mut ShardedArray<T>) -> Self {
        if array.shards.is_empty() {
            let pinned = array.rest.is_pinned();
            return slice_output(&mut array.rest, pinned);
        }
        let shards = array.shards.clone();
        Output::sharded(ShardedTarget(array), shards)
    }
}

/// An array as a target, some rows of which are on devices.
struct ShardedTarget<'a, T: Element>(&'a mut ShardedArray<T>);

impl<T: Element> Target for ShardedTarget<'_, T> {
    fn name(&self) -> String {
        "sharded array".into()
    }

    fn dtype(&self) -> Option<Dtype> {
        Some(T::DTYPE)
    }

    fn rows(&self) -> Option<u64> {
        Some(self.0.rows as u64)
    }

    fn place(&self) -> Placement {
        Placement::Elsewhere
    }

    fn can_read_back(&self) -> bool {
        true
    }

    fn open<'s>(self: Box<Self>, dtype: Dtype, rows: u64, _: Option<&[u64]>) -> Result<Box<dyn Sink + 's>>
    where
        Self: 's,
    {
        let ShardedArray { shards, rest, rows: own } = self.0;
        check_fit("sharded array", (T::DTYPE, *own as u64), (dtype, rows))?;
        match SinkMemory::new(bytemuck::cast_slice_mut(rest), dtype) {
            Some(rest) => Ok(Box::new(ShardedSink { shards: shards.clone(), rest, rows })),
            None => unreachable!("a slice is aligned for its elements"),
        }
    }
}

/// Receives the rows that are not written in place: rows on the host, and rows that come from another device.
struct ShardedSink<'a> {
    shards: Arc<Shards>,
    rest: SinkMemory<'a>,
    rows: u64,
}

impl Sink for ShardedSink<'_> {
    fn write(&self, first_row: u64, bytes: &[u8]) -> Result<()> {
        let size = self.shards.row_bytes();
        let rows = first_row..first_row.saturating_add((bytes.len() / size) as u64);
        let misfit = || does_not_fit("sharded array", first_row, bytes);
        if !bytes.len().is_multiple_of(size) || rows.end > self.rows {
            return Err(misfit());
        }
        for (part, shard) in self.shards.parts(rows.clone()) {
            let from = &bytes[(part.start - rows.start) as usize * size..(part.end - rows.start) as usize * size];
            match shard {
                Some(shard) => shard.memory.write(shard.offset(part.start, size), from)?,
                None => {
                    let host = self.shards.host_row(part.start);
                    let claim = self.rest.try_claim(host..host + (part.end - part.start));
                    let mut claim = claim.ok_or_else(misfit)?;
                    copy_past_cache(&mut claim, from);
                }
            }
        }
        Ok(())
    }

    fn read_back(&self, offset: u64, to: &mut [u8]) -> Result<()> {
        let size = self.shards.row_bytes();
        let first = offset / size as u64;
        for (part, shard) in self.shards.parts(first..first + (to.len() / size) as u64) {
            let to = &mut to[(part.start - first) as usize * size..(part.end - first) as usize * size];
            match shard {
                Some(shard) => shard.memory.read(shard.offset(part.start, size), to)?,
                None => {
                    let host = self.shards.host_row(part.start);
                    to.copy_from_slice(&self.rest.claim_for_run(host..host + (part.end - part.start))?);
                }
            }
        }
        Ok(())
    }

    /// A sharded array keeps its length, as a slice does.
    fn truncate(&mut self, _: u64) -> Result<()> {
        Ok(())
    }

    fn commit(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
