//! Memory with limits: the freelist of device blocks, the pinned staging slab, the memory cached for the next run,
//! and the budgets of all of them. Also what the allocator of the process keeps for decoders.

mod admission;
mod allocator;
mod budget;
mod cache;
mod caches;
mod heap;
mod layout;
mod panels;
mod pinned;
mod pool;
mod usage;

pub(crate) use admission::{Admission, AdmissionQueue, Admitted, InRun, Need};
pub(crate) use allocator::DeviceAllocator;
pub(crate) use budget::{Charge, MemoryBudget};
pub(crate) use cache::MemoryCache;
pub(crate) use heap::keep_freed_blocks;
pub(crate) use layout::Layout;
pub(crate) use panels::{PanelLayout, PanelMemory, PanelParts};
pub(crate) use pinned::{PinnedMemory, StagingSlab};
pub(crate) use pool::{Block, DevicePool};
pub use usage::{DeviceMemory, MemoryUse};
