//! Datasets that stay in the memory of an engine's devices, as far as they fit.

use std::ops::Range;
use std::sync::Arc;

use crate::data::{Dtype, Input, Shards};

/// A dataset that stays in the memory of an engine's GPUs as far as it fits, created by
/// [`Engine::resident`](crate::Engine::resident).
///
/// The first job that reads the dataset copies its rows to the GPUs. Later jobs move only the rows that do not fit,
/// which are the same rows each time. On an engine without a GPU, every job reads the dataset itself. Dropping this
/// value frees the memory.
///
/// Nobody may change the data in the meantime, unless [`forget`](Resident::forget) is called before the next job;
/// otherwise devices use the old rows. While one job copies the rows, other jobs that run at the same time read
/// them from the source.
///
/// ```
/// # fn main() -> overshot::Result<()> {
/// use overshot::{Engine, Job, device::Emulated};
/// let x: Vec<f32> = (0..1_000_000).map(|i| i as f32).collect();
/// let engine = Engine::builder().device(Emulated::new()).build()?;
/// let data = engine.resident(&x)?;
/// let first = engine.run(Job::eval("mean(x)")?.input("x", &data))?;
/// let second = engine.run(Job::eval("std(x)")?.input("x", &data))?;
/// assert_eq!((first.bytes_to_device, second.bytes_to_device), (4_000_000, 0));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Resident<'a> {
    source: Input<'a>,
    shards: Arc<Shards>,
}

impl<'a> Resident<'a> {
    /// Creates a resident dataset from a source and the memory for its rows.
    pub(crate) fn new(source: Input<'a>, shards: Arc<Shards>) -> Self {
        Resident { source, shards }
    }

    /// Returns the dtype of the rows.
    pub fn dtype(&self) -> Dtype {
        self.source.source().dtype()
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> u64 {
        self.source.source().rows()
    }

    /// Returns the ranges of rows for which devices have memory, in order, with the devices as `--device` names them.
    /// A device may have several. All other rows come from the source in every job.
    pub fn on_devices(&self) -> Vec<(String, Range<u64>)> {
        self.shards.iter().map(|shard| (shard.device.clone(), shard.rows.clone())).collect()
    }

    /// Discards the rows on the devices, so that the next job copies all rows again.
    pub fn forget(&mut self) {
        self.shards.forget();
    }
}

impl<'a> From<&'a Resident<'_>> for Input<'a> {
    fn from(resident: &'a Resident<'_>) -> Self {
        // The input is the source, some rows of which are on devices.
        resident.source.with_shards(resident.shards.clone())
    }
}
