//! Reads whole objects, of which nothing is known before.

use super::place::{Place, found, request, retries, text_of};
use super::runtime::{pause, permit};
use crate::error::Result;
use futures_util::{TryStreamExt, future};
use object_store::{Error as StoreError, GetOptions, ObjectStore};
use std::path::Path;

/// Returns the bytes of an object; `None` if there is none.
///
/// # Errors
/// If the server cannot be asked, or does not send as many bytes as it says.
pub(in crate::data) fn whole(url: &Path) -> Result<Option<Vec<u8>>> {
    let place = Place::of(url)?;
    request(url, async {
        let mut tries = 0;
        loop {
            let permit = permit().await;
            let Some(answer) = found(place.store.get_opts(&place.key, GetOptions::default())).await? else {
                return Ok(None);
            };
            let (len, has_tag) = (answer.meta.size, answer.meta.e_tag.is_some());
            // As they come: what a server says must not make us ask for memory.
            let bytes = answer.into_stream().try_fold(Vec::new(), |mut all, bytes| {
                all.extend_from_slice(&bytes);
                future::ok(all)
            });
            let what = match bytes.await {
                Ok(bytes) if bytes.len() as u64 == len => return Ok(Some(bytes)),
                Ok(bytes) => format!("the server sent {} bytes and said that there are {len}", bytes.len()),
                // The crate has asked again.
                Err(error) if has_tag => return Err(error),
                Err(error) => text_of(&error),
            };
            drop(permit);
            if tries == retries() {
                return Err(StoreError::Generic { store: "server", source: what.into() });
            }
            pause(tries).await;
            tries += 1;
        }
    })
}
