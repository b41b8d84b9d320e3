//! Objects of object stores, and files of web servers, by their URLs. The crate object_store speaks to the servers.

mod ahead;
mod listing;
mod place;
mod read;
mod runtime;
#[cfg(feature = "zarr")]
mod whole;

pub(super) use self::ahead::Ahead;
#[cfg(feature = "zarr")]
pub(super) use self::listing::folders_in;
pub(super) use self::listing::{several, state_of_all};
pub(super) use self::read::RemoteObject;
#[cfg(feature = "zarr")]
pub(super) use self::whole::whole;
