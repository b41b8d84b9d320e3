//! Memory with a limit: the freelist of device blocks, the pinned ring, pinned arrays, and the account of both.

mod account;
mod array;
mod layout;
mod pinned;
mod pool;

pub(crate) use account::{Account, Booked};
pub use array::PinnedArray;
pub(crate) use layout::Layout;
pub(crate) use pinned::{PinnedMemory, PinnedRing};
pub(crate) use pool::DevicePool;
