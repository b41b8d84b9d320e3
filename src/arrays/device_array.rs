//! Arrays that other code has in the memory of a GPU.

use std::sync::Arc;

use crate::data::{Dtype, Input, Output, Placement, Shards, Sink, Source, Target, check_fit, does_not_fit};
use crate::error::{ColumnError, Result};

/// An array that other code, such as CuPy or PyTorch, has in the memory of a GPU: see
/// [`Engine::device_array`](crate::Engine::device_array).
///
/// Jobs of the engine use it in place as an input or output, on its GPU. Dropping this value does not free the memory.
pub struct DeviceArray {
    shards: Arc<Shards>,
    dtype: Dtype,
    rows: u64,
    shape: Vec<u64>,
}

impl DeviceArray {
    /// Creates an array, all rows of which are in these shards.
    pub(crate) fn new(shards: Arc<Shards>, dtype: Dtype, rows: u64, shape: &[u64]) -> Self {
        DeviceArray { shards, dtype, rows, shape: shape.to_vec() }
    }

    /// Returns the dtype of the elements.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Returns the lengths of the dimensions, outermost first.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Returns the GPU, as `--device` names it; `None` for an array without elements.
    pub fn device(&self) -> Option<&str> {
        self.shards.iter().next().map(|shard| shard.device.as_str())
    }

    /// Returns the number of elements, each of which is a row.
    pub fn rows(&self) -> u64 {
        self.rows
    }
}

impl std::fmt::Debug for DeviceArray {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DeviceArray({} of shape {:?} on {:?})", self.dtype, self.shape, self.device())
    }
}

impl<'a> From<&'a DeviceArray> for Input<'a> {
    fn from(array: &'a DeviceArray) -> Self {
        Input::sharded(Rows(array), array.shards.clone())
    }
}

impl<'a> From<&'a mut DeviceArray> for Output<'a> {
    fn from(array: &'a mut DeviceArray) -> Self {
        let shards = array.shards.clone();
        Output::sharded(RowsMut(array), shards)
    }
}

/// The rows as a source. The [`Input`] records where they are.
struct Rows<'a>(&'a DeviceArray);

impl Source for Rows<'_> {
    fn dtype(&self) -> Dtype {
        self.0.dtype
    }

    fn rows(&self) -> u64 {
        self.0.rows()
    }

    fn name(&self) -> String {
        "device array".into()
    }

    fn read(&self, first: u64, to: &mut [u8]) -> Result<()> {
        let (size, own_rows) = (self.0.dtype.size(), self.0.rows());
        let rows = (to.len() / size) as u64;
        if first.checked_add(rows).is_none_or(|end| end > own_rows) {
            return Err(ColumnError::ReadBeyondEnd { column: "device array".into(), first, rows, own_rows }.into());
        }
        let shard = self.0.shards.iter().next().filter(|_| !to.is_empty());
        shard.map_or(Ok(()), |shard| shard.memory.read(shard.offset(first, size), to))
    }

    fn shape(&self) -> Option<&[u64]> {
        Some(&self.0.shape)
    }
}

/// The rows as a target.
struct RowsMut<'a>(&'a mut DeviceArray);

impl Target for RowsMut<'_> {
    fn name(&self) -> String {
        "device array".into()
    }

    fn dtype(&self) -> Option<Dtype> {
        Some(self.0.dtype)
    }

    fn rows(&self) -> Option<u64> {
        Some(self.0.rows())
    }

    fn place(&self) -> Placement {
        Placement::Elsewhere
    }

    fn can_read_back(&self) -> bool {
        true
    }

    fn open<'s>(self: Box<Self>, dtype: Dtype, rows: u64, shape: Option<&[u64]>) -> Result<Box<dyn Sink + 's>>
    where
        Self: 's,
    {
        let DeviceArray { shards, dtype: own, rows: own_rows, shape: own_shape } = &*self.0;
        check_fit("device array", (*own, *own_rows), (dtype, rows))?;
        if let Some(shape) = shape.filter(|shape| shape != own_shape) {
            let (column, own, shape) = ("device array".into(), format!("{own_shape:?}"), format!("{shape:?}"));
            return Err(ColumnError::TargetShape { column, own, shape }.into());
        }
        Ok(Box::new(DeviceSink { shards: shards.clone(), rows }))
    }
}

/// Receives the rows that are not written in place.
struct DeviceSink {
    shards: Arc<Shards>,
    rows: u64,
}

impl Sink for DeviceSink {
    fn write(&self, first_row: u64, bytes: &[u8]) -> Result<()> {
        let size = self.shards.row_bytes();
        let end = first_row.saturating_add((bytes.len() / size) as u64);
        if !bytes.len().is_multiple_of(size) || end > self.rows {
            return Err(does_not_fit("device array", first_row, bytes));
        }
        let shard = self.shards.iter().next().filter(|_| !bytes.is_empty());
        shard.map_or(Ok(()), |shard| shard.memory.write(shard.offset(first_row, size), bytes))
    }

    fn read_back(&self, offset: u64, to: &mut [u8]) -> Result<()> {
        let shard = self.shards.iter().next().filter(|_| !to.is_empty());
        shard.map_or(Ok(()), |shard| shard.memory.read(offset as usize, to))
    }

    /// The array keeps its length, as a slice does.
    fn truncate(&mut self, _: u64) -> Result<()> {
        Ok(())
    }

    fn commit(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
