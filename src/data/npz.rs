//! The arrays of `.npz` archives: zip files, whose members are `.npy` files.
//!
//! <https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT> is the format. Members that are stored, as
//! `numpy.savez` writes them, are read in place in the archive. Their checksums are not compared.

use super::file::Opened;
use super::storage::read_error;
use super::table_file;
use crate::error::{Error, Result};
use std::path::Path;

/// The end of an archive has at most this many bytes: a record, a comment, and the locator of the larger record.
const END: u64 = 20 + 22 + u16::MAX as u64;
/// The most bytes of a directory that are read: those of a million arrays.
const MAX_DIRECTORY: u64 = 128 << 20;

/// A member of an archive.
struct Member {
    name: Vec<u8>,
    /// Whether it is encrypted, and the method of compression; 0 is none.
    encrypted: bool,
    method: u16,
    /// The size in the archive, and of the data.
    stored: u64,
    size: u64,
    /// The offset of its header.
    header: u64,
}

/// Whether a file is named as an archive of arrays.
pub(super) fn is_npz(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("npz"))
}

/// Returns the part of an archive that is the `.npy` file of an array.
///
/// # Errors
/// If the archive is damaged or has no such array, or the array is compressed or encrypted.
pub(super) fn array(archive: Opened, name: &str) -> Result<Opened> {
    let refused = |problem: String, remedy: &str| Err(Error::file(&archive.path, problem, remedy));
    let (members, end) = members(&archive)?;
    // Python reads the last one of several with the same name, too.
    let Some(member) = members.iter().rev().find(|member| array_name(&member.name) == name) else {
        return refused(format!("has no array '{name}', only {}", names(&members)), "check the name");
    };
    if member.encrypted {
        return refused(format!("its array '{name}' is encrypted"), "save it again with numpy.savez");
    }
    if member.method != 0 {
        let remedy = "save it again with numpy.savez, which does not compress";
        return refused(format!("its array '{name}' is compressed"), remedy);
    }
    let damaged = || damaged(&archive, "the header of a member is not where the directory says");
    let header = bytes(&archive, member.header, 30)?.ok_or_else(damaged)?;
    let lengths = number::<2>(&header, 26).zip(number::<2>(&header, 28));
    let (name_len, extra_len) = lengths.filter(|_| header.starts_with(b"PK\x03\x04")).ok_or_else(damaged)?;
    let own_name = bytes(&archive, member.header + 30, name_len)?;
    let start = member.header + 30 + name_len + extra_len;
    // The data ends before the next member. A damaged length would give the rows of that one.
    let next = members.iter().map(|other| other.header).filter(|at| *at > member.header).min();
    let end = next.map_or(end, |next| next.min(end));
    let fits = start.checked_add(member.size).is_some_and(|member_end| member_end <= end);
    if own_name.as_ref() != Some(&member.name) || member.stored != member.size || !fits {
        return Err(damaged());
    }
    Ok(Opened { start, len: member.size, ..archive })
}

/// Returns the error for an archive of which no array is named.
pub(super) fn no_name(archive: &Opened) -> Error {
    match members(archive) {
        Ok((members, _)) => {
            let problem = format!("is a .npz archive of the arrays {}", names(&members));
            Error::file(&archive.path, problem, format!("name one of them, as in {}:NAME", archive.path.display()))
        }
        Err(error) => error,
    }
}

/// Returns the members of an archive, and the offset behind the last byte of a member.
fn members(archive: &Opened) -> Result<(Vec<Member>, u64)> {
    let wrong = |what| damaged(archive, what);
    let tail_start = archive.len - archive.len.min(END);
    let tail = bytes(archive, tail_start, archive.len - tail_start)?.unwrap_or_default();
    // The comment behind the record is as long as the record says.
    let is_end = |at: &usize| {
        tail[*at..].starts_with(b"PK\x05\x06") && number::<2>(&tail, at + 20) == Some((tail.len() - at - 22) as u64)
    };
    let at = (0..(tail.len() + 1).saturating_sub(22)).rev().find(is_end);
    let at = at.ok_or_else(|| wrong("the record at its end is missing"))?;
    let read = |offset| number::<4>(&tail, at + offset).unwrap_or_default();
    let mut directory = (number::<2>(&tail, at + 10).unwrap_or_default(), read(12), read(16));
    if directory.0 == 0xffff || directory.1 == 0xffff_ffff || directory.2 == 0xffff_ffff {
        let locator = at.checked_sub(20).map(|start| &tail[start..at]).filter(|found| found.starts_with(b"PK\x06\x07"));
        if let Some(place) = locator.and_then(|locator| number::<8>(locator, 8)) {
            let record = bytes(archive, place, 56)?.filter(|record| record.starts_with(b"PK\x06\x06"));
            let record = record.ok_or_else(|| wrong("the record at its end is missing"))?;
            let read = |offset| number::<8>(&record, offset).unwrap_or_default();
            directory = (read(32), read(40), read(48));
        }
    }
    let (count, size, start) = directory;
    if size > MAX_DIRECTORY {
        return Err(wrong("its directory is too large"));
    }
    let directory = bytes(archive, start, size)?.ok_or_else(|| wrong("its directory is not in it"))?;
    let (mut rest, mut members) = (&directory[..], Vec::new());
    for _ in 0..count {
        let (member, after) = member(rest).ok_or_else(|| wrong("its directory is cut or not valid"))?;
        members.push(member);
        rest = after;
    }
    Ok((members, start))
}

/// Reads an entry of the directory. Also returns what follows it.
fn member(entry: &[u8]) -> Option<(Member, &[u8])> {
    let read = |at| number::<2>(entry, at).map(|number| number as usize);
    let (name_len, extra_len, comment_len) = (read(28)?, read(30)?, read(32)?);
    let (name, rest) = entry.strip_prefix(b"PK\x01\x02")?.get(42..)?.split_at_checked(name_len)?;
    let (mut extra, rest) = rest.split_at_checked(extra_len)?;
    let (_, rest) = rest.split_at_checked(comment_len)?;
    let [mut size, mut stored, mut header] =
        [number::<4>(entry, 24)?, number::<4>(entry, 20)?, number::<4>(entry, 42)?];
    // Numbers that do not fit 32 bits are in a field of their own.
    while let (Some(kind), Some(len)) = (number::<2>(extra, 0), number::<2>(extra, 2)) {
        let (mut field, after) = extra[4..].split_at_checked(len as usize)?;
        if kind == 1 {
            for number_of in [&mut size, &mut stored, &mut header] {
                if *number_of == 0xffff_ffff {
                    *number_of = number::<8>(field, 0)?;
                    field = &field[8..];
                }
            }
        }
        extra = after;
    }
    // No file is so long that these could not be added to other numbers.
    if [size, stored, header].iter().any(|number| i64::try_from(*number).is_err()) {
        return None;
    }
    let (flags, method) = (number::<2>(entry, 8)?, number::<2>(entry, 10)? as u16);
    Some((Member { name: name.to_vec(), encrypted: flags & 1 != 0, method, stored, size, header }, rest))
}

/// Returns a number of `N` bytes, little-endian.
fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..)?.first_chunk::<N>()?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// Returns bytes of an archive; `None` if it does not have them.
fn bytes(archive: &Opened, at: u64, len: u64) -> Result<Option<Vec<u8>>> {
    if at.checked_add(len).is_none_or(|end| end > archive.len) {
        return Ok(None);
    }
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
    archive.read_at(&mut bytes, at).map_err(|e| read_error(&archive.path, e))?;
    Ok(Some(bytes))
}

/// Returns the name of an array: that of the member, without `.npy`.
fn array_name(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name);
    name.strip_suffix(".npy").unwrap_or(&name).to_owned()
}

/// Returns the names of the arrays, for messages.
fn names(members: &[Member]) -> String {
    table_file::names(&members.iter().map(|member| array_name(&member.name)).collect::<Vec<_>>())
}

fn damaged(archive: &Opened, what: &str) -> Error {
    Error::file(&archive.path, format!("is not a complete .npz archive: {what}"), "copy or save it again")
}
