//! Memory with a limit: the freelist of device blocks, the pinned ring, what is kept of them for the next run, and the accounts
//! of it all.

mod account;
mod budget;
mod cache;
mod layout;
mod pinned;
mod pool;
mod room;
mod usage;

pub(crate) use account::{Account, Booked};
pub(crate) use budget::{Admission, InRun, MemoryBudget, Need, Reserved};
pub(crate) use cache::MemoryCache;
pub(crate) use layout::Layout;
pub(crate) use pinned::{PinnedMemory, PinnedRing};
pub(crate) use pool::{Block, DevicePool};
pub(crate) use room::Room;
pub use usage::{DeviceMemory, MemoryUse};
