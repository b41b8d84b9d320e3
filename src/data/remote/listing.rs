//! URLs that stand for several objects: a folder, or a pattern.

use super::place::{Place, is_web, parts, request};
use super::read::RemoteObject;
use crate::data::pattern::{by_parts, is_hidden, is_pattern, matches, symbols};
use crate::error::{Error, Result};
use futures_util::{TryStreamExt, future};
use object_store::{ObjectMeta, ObjectStore};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use twox_hash::XxHash3_128;

/// Returns the URLs of the objects that a URL stands for, in natural order; `None` if it is that of one object. Objects
/// with hidden names are left out, as files are.
///
/// # Errors
/// If the store cannot be asked, or has no such object.
pub(in crate::data) fn several(url: &Path) -> Result<Option<Vec<PathBuf>>> {
    let (base, name) = parts(url)?;
    let is_folder = name.ends_with('/') || name.is_empty();
    let is_web = is_web(url);
    // A `?` begins a query there, whose error is another one.
    let name_is_pattern = is_pattern(Path::new(name)) && !(is_web && name.contains('?'));
    if !is_folder && !name_is_pattern {
        return Ok(None);
    }
    if is_web {
        let remedy = "name one file; a '*' or '[' of the name itself is %2A or %5B";
        return Err(Error::file(url, "stands for several files, and web servers do not list theirs", remedy));
    }
    let mut folders = vec![String::new()];
    let mut found = Vec::new();
    let parts: Vec<&str> = name.split_terminator('/').chain(is_folder.then_some("*")).collect();
    for (number, part) in parts.iter().enumerate() {
        let is_last = number + 1 == parts.len();
        if !is_pattern(Path::new(part)) {
            folders.iter_mut().for_each(|folder| *folder = joined(folder, part));
            if is_last {
                found = std::mem::take(&mut folders);
            }
            continue;
        }
        let mut next = Vec::new();
        for folder in &folders {
            let place = Place::of(Path::new(&joined(base, folder)))?;
            let own = place.key.clone();
            let listed = request(url, place.store.list_with_delimiter(Some(&own)))?;
            let objects = listed.objects.into_iter().map(|object| object.location).filter(|_| is_last);
            let names = objects.chain(listed.common_prefixes).filter(|key| *key != own);
            let names = names.filter_map(|key| key.filename().map(str::to_owned));
            let is_wanted = |name: &String| {
                !is_hidden(OsStr::new(name)) && matches(&symbols(part.as_ref()), &symbols(name.as_ref()))
            };
            next.extend(names.filter(is_wanted).map(|name| joined(folder, &encoded(&name))));
        }
        match is_last {
            true => found = next,
            false => folders = next,
        }
    }
    if found.is_empty() {
        let problem = if is_folder { "is a folder without objects" } else { "no object has a name of this pattern" };
        return Err(Error::file(url, problem, "check the URL"));
    }
    let mut found: Vec<PathBuf> = found.iter().map(|name| joined(base, name).into()).collect();
    found.sort_by(|a, b| by_parts(a, b));
    found.dedup();
    Ok(Some(found))
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
/// objects.
///
/// # Errors
/// If the store cannot be asked.
pub(in crate::data) fn state_of_all(url: &Path) -> Result<(u128, u64)> {
    let place = Place::of(url)?;
    let add = |(state, bytes): (u128, u64), object: ObjectMeta| {
        let ObjectMeta { location, e_tag, last_modified, size, .. } = object;
        let own = XxHash3_128::oneshot(format!("{location} {e_tag:?} {last_modified:?} {size}").as_bytes());
        // In any order: stores list names in different ones.
        future::ok((state.wrapping_add(own), bytes.saturating_add(size)))
    };
    if is_web(url) {
        // What a server does not list is not known. What describes an array is.
        let mut state = (0, 0);
        for name in ["zarr.json", ".zarray"] {
            if let Some(object) = RemoteObject::find(&url.join(name))? {
                state = (object.version(), object.len());
            }
        }
        return Ok(state);
    }
    request(url, place.store.list(Some(&place.key)).try_fold((0, 0), add))
}

fn joined(folder: &str, name: &str) -> String {
    match (folder, name) {
        ("", name) => name.into(),
        (folder, "") => folder.into(),
        _ => format!("{folder}/{name}"),
    }
}

/// Returns the name of an object as a URL has it: characters that have another meaning there are written as numbers.
fn encoded(name: &str) -> String {
    let of = |c: char| match c {
        '%' | '*' | '?' | '[' => format!("%{:02X}", u32::from(c)),
        c => c.to_string(),
    };
    name.chars().map(of).collect()
}
