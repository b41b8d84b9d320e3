//! Reads ranges of an object: in pieces, several at a time, each until all of its bytes are there.

use super::place::{Place, request, retries, store_error, text_of, thread_error};
use super::runtime::{pause, permit, wait_for};
use crate::error::{Error, Result};
use futures_util::{TryStreamExt, future};
use object_store::{GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use twox_hash::XxHash3_128;

/// The most bytes of one request. Several requests at a time are faster than one.
const PIECE: usize = 8 << 20;
/// The end of an object is read once while a file is opened: formats describe files there, in small pieces.
const TAIL: u64 = 128 << 10;

/// What a server is said to have done.
const MORE: &str = "the server sent more bytes than it was asked for";

/// An object that is read as it was when it was opened. If it changes, reads are errors.
pub(in crate::data) struct RemoteObject {
    url: PathBuf,
    place: Place,
    meta: ObjectMeta,
    /// The last bytes, while the file is opened: empty until they are needed, and `None` from then on.
    tail: Mutex<Option<Vec<u8>>>,
}

/// Why an attempt to read bytes failed.
enum Failure {
    /// The object is another one, or gone.
    Changed,
    /// The store has an answer, which will be the same next time. The crate has sent the request again if that helps.
    Final(object_store::Error),
    /// The bytes ended, or stopped to come.
    Broken(String),
    /// As before, and the crate has asked for the rest as often as it may.
    GivenUp(String),
    /// More bytes came than were asked for, so that none of them can be trusted.
    TooMany,
}

impl RemoteObject {
    /// Asks for the length and the version of an object.
    pub(in crate::data) fn open(url: &Path) -> Result<RemoteObject> {
        let place = Place::of(url)?;
        let meta = request(url, place.store.head(&place.key))?;
        Ok(RemoteObject::of(url, place, meta))
    }

    /// Opens an object as [`open`](RemoteObject::open) does; `None` if there is none.
    #[cfg(feature = "zarr")]
    pub(in crate::data) fn find(url: &Path) -> Result<Option<RemoteObject>> {
        let place = Place::of(url)?;
        let Some(meta) = request(url, super::place::found(place.store.head(&place.key)))? else { return Ok(None) };
        Ok(Some(RemoteObject::of(url, place, meta)))
    }

    fn of(url: &Path, place: Place, meta: ObjectMeta) -> RemoteObject {
        RemoteObject { url: url.into(), place, meta, tail: Mutex::new(Some(Vec::new())) }
    }

    /// Returns the length in bytes.
    pub(in crate::data) fn len(&self) -> u64 {
        self.meta.size
    }

    /// Returns a number that other objects do not have, nor this one after a change. It is that of the object when it
    /// was opened: no bytes of another version are read. `None` if the server does not say when the object has changed.
    pub(in crate::data) fn version(&self) -> Option<u128> {
        let ObjectMeta { e_tag, last_modified, size, .. } = &self.meta;
        let number = || XxHash3_128::oneshot(format!("{e_tag:?} {last_modified:?} {size}").as_bytes());
        self.has_version().then(number)
    }

    /// Forgets what was read to open the file. From now on, all bytes come from the server, which compares the version:
    /// bytes in memory would stay what they are when the object changes.
    pub(in crate::data) fn forget(&self) {
        *self.tail() = None;
    }

    fn tail(&self) -> MutexGuard<'_, Option<Vec<u8>>> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the server says when the object has changed.
    pub(in crate::data) fn has_version(&self) -> bool {
        self.meta.e_tag.is_some() || self.meta.last_modified.timestamp_millis() != 0
    }

    /// Fills `dst` with the bytes at an offset.
    pub(in crate::data) fn read_at(&self, dst: &mut [u8], at: u64) -> Result<()> {
        let end = at.checked_add(dst.len() as u64).filter(|end| *end <= self.len());
        let Some(end) = end else {
            return Err(Error::file(&self.url, "ends before the bytes that are needed", "copy or save it again"));
        };
        let tail = self.len().saturating_sub(TAIL);
        if at < tail || at == 0 && end == self.len() {
            return self.fetch(dst, at);
        }
        let mut known = self.tail();
        let Some(bytes) = &mut *known else {
            drop(known);
            return self.fetch(dst, at);
        };
        if bytes.is_empty() {
            let mut read = vec![0; (self.len() - tail) as usize];
            self.fetch(&mut read, tail)?;
            *bytes = read;
        }
        dst.copy_from_slice(&bytes[(at - tail) as usize..(end - tail) as usize]);
        Ok(())
    }

    /// Fills `dst` with the bytes at an offset, all of which the object has.
    pub(in crate::data) fn fetch(&self, dst: &mut [u8], at: u64) -> Result<()> {
        let pieces = dst.chunks_mut(PIECE).zip((at..).step_by(PIECE)).map(|(dst, at)| self.piece(dst, at));
        match wait_for(future::try_join_all(pieces)) {
            Ok(done) => done.map(|_| ()),
            Err(error) => Err(thread_error(&self.url, unread(at, dst.len()), error)),
        }
    }

    /// Returns the error for bytes that did not come as they should.
    pub(super) fn broken(&self, at: u64, len: usize, what: String) -> Error {
        let remedy = "check the network and the server, or copy the data to a disk first".into();
        let (problem, cause) = (unread(at, len), Some(io::Error::other(what)));
        Error::File { path: self.url.clone(), problem, remedy, cause }
    }

    /// Returns the error for bytes that no thread can wait for.
    pub(super) fn no_thread(&self, at: u64, error: io::Error) -> Error {
        thread_error(&self.url, unread(at, 0), error)
    }

    /// Fills `dst`, and asks again for what has not come.
    pub(super) async fn piece(&self, dst: &mut [u8], at: u64) -> Result<()> {
        let (mut done, mut tries) = (0, 0);
        loop {
            let before = done;
            let mut is_last = tries == retries();
            let what = match self.attempt(dst, at, &mut done).await {
                Ok(()) => return Ok(()),
                Err(Failure::Changed) => {
                    let remedy = "do not change a file while it is read";
                    return Err(Error::file(&self.url, "changed while it was read", remedy));
                }
                Err(Failure::Final(error)) => return Err(store_error(&self.url, unread(at, dst.len()), &error)),
                Err(Failure::Broken(what)) => what,
                Err(Failure::GivenUp(what)) => {
                    is_last = true;
                    what
                }
                Err(Failure::TooMany) => {
                    done = before;
                    MORE.into()
                }
            };
            if is_last {
                return Err(self.broken(at, dst.len(), what));
            }
            pause(tries).await;
            tries += 1;
        }
    }

    /// Fills `dst` from `done` on, which is then where the bytes ended.
    async fn attempt(&self, dst: &mut [u8], at: u64, done: &mut usize) -> std::result::Result<(), Failure> {
        let _permit = permit().await;
        let options = GetOptions {
            range: Some((at + *done as u64..at + dst.len() as u64).into()),
            // A weak tag never matches here. It is compared below.
            if_match: self.meta.e_tag.clone().filter(|tag| !tag.starts_with("W/")),
            ..GetOptions::default()
        };
        let answer = self.place.store.get_opts(&self.place.key, options).await;
        let answer = answer.map_err(|error| if is_gone(&error) { Failure::Changed } else { Failure::Final(error) })?;
        let ObjectMeta { e_tag, last_modified, size, .. } = &answer.meta;
        if (e_tag, last_modified, size) != (&self.meta.e_tag, &self.meta.last_modified, &self.meta.size) {
            return Err(Failure::Changed);
        }
        let mut body = answer.into_stream();
        loop {
            match body.try_next().await {
                Ok(Some(bytes)) => {
                    let room = dst.get_mut(*done..*done + bytes.len()).ok_or(Failure::TooMany)?;
                    room.copy_from_slice(&bytes);
                    *done += bytes.len();
                }
                Ok(None) if *done == dst.len() => return Ok(()),
                Ok(None) => return Err(Failure::Broken("the server sent fewer bytes than it was asked for".into())),
                // The crate asks for the rest again if the object has a tag.
                Err(error) if self.meta.e_tag.is_some() => {
                    let is_all = *done == dst.len();
                    return Err(match is_gone(&error) {
                        true => Failure::Changed,
                        false => Failure::GivenUp(if is_all { MORE.into() } else { text_of(&error) }),
                    });
                }
                // It has said that there are more.
                Err(_) if *done == dst.len() => return Err(Failure::TooMany),
                Err(error) => return Err(Failure::Broken(text_of(&error))),
            }
        }
    }
}

/// Returns whether an error of a store, or one that it has as a cause, says that the object is another one or gone.
fn is_gone(error: &(dyn std::error::Error + 'static)) -> bool {
    use object_store::Error as StoreError;
    let is_one = matches!(
        error.downcast_ref::<StoreError>(),
        Some(StoreError::Precondition { .. } | StoreError::NotFound { .. })
    );
    is_one || error.source().is_some_and(is_gone)
}

fn unread(at: u64, len: usize) -> String {
    format!("bytes {at} to {} cannot be read", at + len as u64)
}

impl fmt::Debug for RemoteObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteObject").field("url", &self.url).field("len", &self.meta.size).finish_non_exhaustive()
    }
}
