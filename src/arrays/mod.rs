//! Arrays that users hold, in pinned memory or on GPUs. They are inputs and outputs of jobs.

mod device_array;
mod pinned_buffer;
mod resident;
mod sharded;

pub use device_array::DeviceArray;
pub use pinned_buffer::PinnedBuffer;
pub use resident::Resident;
pub use sharded::ShardedArray;
