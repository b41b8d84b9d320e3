//! Arrays that users hold, in pinned memory or on the devices of an engine. They are inputs and outputs of jobs.

mod pinned_buffer;
mod resident;
mod sharded;

pub use pinned_buffer::PinnedBuffer;
pub use resident::Resident;
pub use sharded::ShardedArray;
