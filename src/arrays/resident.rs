//! Datasets that stay on the devices of an engine, as far as they fit.

use std::ops::Range;
use std::sync::Arc;

use crate::data::{Dtype, Input, Shards};

/// A dataset that stays in the memory of the GPUs of an engine as far as it fits, made by
/// [`Engine::resident`](crate::Engine::resident).
///
/// The first job that reads it copies it there on its way; later ones move only the rows that do not fit, the same rows each time.
/// On an engine without a GPU it is the dataset itself. The memory is given back when it is dropped.
///
/// Nobody may change the data meanwhile, unless [`forget`](Resident::forget) is called before the next job: devices would have the old
/// rows. While a job copies the rows, others that run at the same time read them from the source.
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
    /// A dataset and the room for it.
    pub(crate) fn new(source: Input<'a>, shards: Arc<Shards>) -> Self {
        Resident { source, shards }
    }

    /// The dtype of its rows.
    pub fn dtype(&self) -> Dtype {
        self.source.source().dtype()
    }

    /// How many rows there are.
    pub fn rows(&self) -> u64 {
        self.source.source().rows()
    }

    /// The devices that have room for rows, as `--device` names them, and for which; all others come from the source in every
    /// job.
    pub fn on_devices(&self) -> Vec<(String, Range<u64>)> {
        self.shards.iter().map(|shard| (shard.device.clone(), shard.rows.clone())).collect()
    }

    /// Forgets what the devices have: the next job copies all rows again.
    pub fn forget(&mut self) {
        self.shards.forget();
    }
}

impl<'a> From<&'a Resident<'_>> for Input<'a> {
    fn from(resident: &'a Resident<'_>) -> Self {
        // It is its source, of which some rows lie on devices.
        resident.source.with_shards(resident.shards.clone())
    }
}
