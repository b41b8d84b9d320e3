//! URLs that stand for several objects: a folder, or a pattern.

use super::place::{Place, is_web, no_object, parts, request, text_of};
use crate::data::partition_folders::key_value;
use crate::data::pattern::{by_parts, is_hidden, is_pattern, matches, symbols};
use crate::error::{Error, Result};
use crate::threads;
use futures_util::{TryStreamExt, future};
use object_store::path::Path as Key;
use object_store::{ObjectMeta, ObjectStore};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use twox_hash::XxHash3_128;

/// Returns the URLs of the objects that a URL stands for, in natural order; `None` if it is that of one object. Objects
/// with hidden names are left out, as files are, and those in folders with a key are among them.
///
/// # Errors
/// If the store cannot be asked, or has no such object.
pub(in crate::data) fn several(url: &Path) -> Result<Option<Vec<PathBuf>>> {
    let (base, name) = parts(url)?;
    let is_folder = name.ends_with('/') || name.is_empty();
    if !is_folder && !is_pattern(Path::new(name)) {
        return Ok(None);
    }
    if is_web(url) {
        let remedy = "name one file; a '*' or '[' of the name itself is %2A or %5B";
        return Err(Error::file(url, "stands for several files, and web servers do not list theirs", remedy));
    }
    let mut folders = vec![String::new()];
    let (mut found, mut with_keys) = (Vec::new(), Vec::new());
    let parts: Vec<&str> = name.split_terminator('/').chain(is_folder.then_some("*")).collect();
    for (number, part) in parts.iter().enumerate() {
        let is_last = number + 1 == parts.len();
        if !is_pattern(Path::new(part)) {
            folders.iter_mut().for_each(|folder| *folder = joined(folder, part));
            if is_last && key_value(OsStr::new(part)).is_some() {
                with_keys = std::mem::take(&mut folders);
            } else if is_last {
                found = std::mem::take(&mut folders);
            }
            continue;
        }
        let wanted = symbols(decoded(url, part)?.as_ref());
        let mut next = Vec::new();
        for folder in &folders {
            let place = Place::of(Path::new(&joined(base, folder)))?;
            let own = place.key.clone();
            let listed = request(url, place.store.list_with_delimiter(Some(&own)))?;
            let named = |key: Key| {
                let name = key.filename().filter(|_| key != own)?;
                let is_wanted = !is_hidden(OsStr::new(name)) && matches(&wanted, &symbols(name.as_ref()));
                is_wanted.then(|| (key_value(OsStr::new(name)).is_some(), joined(folder, &encoded(name))))
            };
            for (has_key, name) in listed.common_prefixes.into_iter().filter_map(named) {
                if is_last && has_key { with_keys.push(name) } else { next.push(name) }
            }
            if is_last {
                let objects = listed.objects.into_iter().map(|object| object.location);
                next.extend(objects.filter_map(named).map(|(_, name)| name));
            }
        }
        match is_last {
            true => found = next,
            false => folders = next,
        }
    }
    let url_of = |name: String| PathBuf::from(joined(base, &name));
    let mut found: Vec<PathBuf> = found.into_iter().map(url_of).collect();
    found.extend(objects_within(&with_keys.into_iter().map(url_of).collect::<Vec<_>>())?);
    if found.is_empty() {
        let problem = if is_folder { "is a folder without objects" } else { "no object has a name of this pattern" };
        return Err(Error::file(url, problem, "check the URL"));
    }
    found.sort_by(|a, b| by_parts(a, b));
    found.dedup();
    Ok(Some(found))
}

/// Returns the URLs of what is in folders with a key.
fn objects_within(folders: &[PathBuf]) -> Result<Vec<PathBuf>> {
    /// So many threads wait for a server, each for another list.
    const WAITING: usize = 32;
    let each = folders.len().div_ceil(WAITING).max(1);
    let mut found = vec![Vec::new(); folders.len()];
    threads::each(folders.chunks(each).zip(found.chunks_mut(each)).collect(), |(folders, found)| {
        for (folder, found) in folders.iter().zip(found) {
            *found = objects_in(folder)?;
        }
        Ok(())
    })?;
    Ok(found.into_iter().flatten().collect())
}

/// Returns the URLs of the objects in a folder, and in the folders with keys in it. If it is no such folder, but an
/// object or a store, that is the only one.
fn objects_in(url: &Path) -> Result<Vec<PathBuf>> {
    let (place, base) = (Place::of(url)?, url.to_str().unwrap_or_default());
    let all: Vec<ObjectMeta> = request(url, place.store.list(Some(&place.key)).try_collect())?;
    let mut found = Vec::new();
    for object in &all {
        let Some(name) = object.location.as_ref().strip_prefix(place.key.as_ref()) else { continue };
        let parts: Vec<&str> = name.split('/').filter(|part| !part.is_empty()).collect();
        if matches!(parts[..], ["zarr.json" | ".zarray" | ".zgroup"]) {
            return Ok(vec![url.into()]);
        }
        // A folder without a key is one name, as it is where it is listed itself.
        let has_no_key = |part: &&str| key_value(OsStr::new(part)).is_none();
        let end = parts.iter().position(has_no_key).map_or(parts.len(), |place| place + 1);
        // Some programs mark folders with objects without bytes.
        let is_mark = object.size == 0 && parts.iter().all(|part| !has_no_key(part));
        if !is_mark && !parts[..end].iter().any(|part| is_hidden(OsStr::new(part))) {
            found.push(parts[..end].iter().fold(base.to_owned(), |url, part| joined(&url, &encoded(part))).into());
        }
    }
    Ok(if all.is_empty() { vec![url.into()] } else { found })
}

/// Returns the names of the folders in a folder.
///
/// # Errors
/// If the store cannot be asked. Web servers do not list what they have.
#[cfg(feature = "zarr")]
pub(in crate::data) fn folders_in(url: &Path) -> Result<Vec<String>> {
    if is_web(url) {
        return Ok(Vec::new());
    }
    let place = Place::of(url)?;
    let listed = request(url, place.store.list_with_delimiter(Some(&place.key)))?;
    Ok(listed.common_prefixes.iter().filter_map(|key| key.filename().map(encoded)).collect())
}

/// Returns a number that is another one after an object in a folder has changed, appeared or gone; and the bytes of all
/// objects. `None` if nobody lists them: web servers do not.
///
/// # Errors
/// If the store cannot be asked.
pub(in crate::data) fn state_of_all(url: &Path) -> Result<Option<(u128, u64)>> {
    let place = Place::of(url)?;
    if is_web(url) {
        return Ok(None);
    }
    let add = |(state, bytes): (u128, u64), object: ObjectMeta| {
        let ObjectMeta { location, e_tag, last_modified, size, .. } = object;
        let own = XxHash3_128::oneshot(format!("{location} {e_tag:?} {last_modified:?} {size}").as_bytes());
        // In any order: stores list names in different ones.
        future::ok((state.wrapping_add(own), bytes.saturating_add(size)))
    };
    request(url, place.store.list(Some(&place.key)).try_fold((0, 0), add)).map(Some)
}

fn joined(folder: &str, name: &str) -> String {
    match (folder, name) {
        ("", name) => name.into(),
        (folder, "") => folder.into(),
        _ => format!("{folder}/{name}"),
    }
}

/// Returns a part of a pattern as names of objects are compared with it: `%20` is a space. A `*` that is written as a
/// number is that character, as `[*]` is in patterns.
fn decoded(url: &Path, part: &str) -> Result<String> {
    let classes = [("%2A", "[*]"), ("%2a", "[*]"), ("%3F", "[?]"), ("%3f", "[?]"), ("%5B", "[[]"), ("%5b", "[[]")];
    let part = classes.iter().fold(part.to_owned(), |part, (number, class)| part.replace(number, class));
    Ok(Key::from_url_path(part).map_err(|error| no_object(url, text_of(&error)))?.into())
}

/// Returns the name of an object as a URL has it: characters that have another meaning there are written as numbers.
fn encoded(name: &str) -> String {
    let of = |c: char| match c {
        '%' | '*' | '?' | '[' => format!("%{:02X}", u32::from(c)),
        c => c.to_string(),
    };
    name.chars().map(of).collect()
}
