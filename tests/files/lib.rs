//! Stands between a process and its files, for tests: `LD_PRELOAD=libfiles.so` (built as an example) records what the
//! process does to the files of a folder and the folders in it, and fails calls on request. It replaces functions of
//! the C library, and makes the system calls itself.
//!
//! | variable | meaning |
//! | --- | --- |
//! | `OVERSHOT_FILES_FOLDER` | the folder, an absolute path without links; without it nothing is done |
//! | `OVERSHOT_FILES_LOG` | the file that the changes are appended to, elsewhere, in the format of `event.rs` |
//! | `OVERSHOT_FILES_FAIL` | calls to fail: `KIND:N:HOW`, or `KIND:N:HOW:always` for the Nth and all later ones |
//! | `OVERSHOT_FILES_FIRED` | a file elsewhere that is made when a call fails |
//!
//! KIND is one of
//!
//! - `open`, `read`, `write`, `resize` (`ftruncate`), `allocate` (`fallocate`), `map` (writable and shared `mmap`),
//!   `sync` (`fsync`, `fdatasync`) of a file in the folder;
//! - `rename`, `link`, `unlink` of a name in the folder, and `sync-names`, the `fsync` of a folder;
//! - `any` of them.
//!
//! N counts the calls of this kind from 1. HOW is the name of an error (`EIO`, `ENOSPC`, `EDQUOT`, `EROFS`, `EINTR`,
//! `EINVAL`, `EOPNOTSUPP`), `short`: the call transfers half of its bytes, `hang`: the call writes a line `hangs` to
//! standard error and never returns, or `kill`: the process is killed before the call.
//!
//! With a log, files of the folder cannot be mapped for writing, because nobody sees what is written through a map, and
//! calls that change something are made one after the other.
#![allow(missing_docs, clippy::missing_safety_doc, reason = "the manual of the C library documents the functions")]
#![allow(clippy::unwrap_used, reason = "a lock is poisoned only after a panic, which ends the process")]

mod event;
mod faults;
mod folder;

use std::ffi::{c_char, c_int, c_long, c_uint, c_void};

use event::Event;
use faults::{Kind, fails};
use folder::{FOLDER, Folder};

/// Makes a system call. The result and `errno` are those of the C library.
macro_rules! system {
    ($number:ident $(, $argument:expr)*) => {
        // SAFETY: the caller of the function that was replaced passed the arguments.
        unsafe { libc::syscall(libc::$number $(, $argument)*) }
    };
}
pub(crate) use system;

/// Makes a call that changes something, and records the change.
fn change(folder: &Folder, call: impl FnOnce() -> c_long, event: impl FnOnce() -> Option<Event>) -> c_long {
    let mut log = folder.log();
    let done = call();
    if done >= 0
        && let Some(event) = event()
    {
        log.add(&event);
    }
    done
}

fn open_at(at: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    let open = || system!(SYS_openat, at, path, flags, mode);
    let Some(folder) = &*FOLDER else { return open() as c_int };
    let is_unnamed = flags & libc::O_TMPFILE == libc::O_TMPFILE;
    let name = if is_unnamed { None } else { folder.name_at(at, path) };
    if name.is_none() && !(is_unnamed && folder.has(at, path)) {
        return open() as c_int;
    }
    if fails(Kind::Open) {
        return -1;
    }
    let mut log = folder.log();
    let is_new = is_unnamed || !folder::exists(at, path);
    let file = open() as c_int;
    if file < 0 {
        // Another system call would change `errno`.
        return file;
    }
    let Some(number) = folder::regular(file) else { return file };
    log.files.insert(number);
    if is_new {
        log.add(&Event::Create { file: number, name });
    } else if flags & libc::O_TRUNC != 0 {
        log.add(&Event::Resize { file: number, len: 0 });
    }
    file
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    open_at(libc::AT_FDCWD, path, flags, mode)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    open_at(libc::AT_FDCWD, path, flags, mode)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat(at: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    open_at(at, path, flags, mode)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat64(at: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    open_at(at, path, flags, mode)
}

/// Reads, or writes with `write`, at the position of the descriptor or at an offset.
fn transfer(file: c_int, bytes: *mut c_void, mut len: usize, offset: Option<i64>, write: bool) -> isize {
    let call = |len: usize| {
        (match (offset, write) {
            (None, false) => system!(SYS_read, file, bytes, len),
            (None, true) => system!(SYS_write, file, bytes, len),
            (Some(offset), false) => system!(SYS_pread64, file, bytes, len, offset),
            (Some(offset), true) => system!(SYS_pwrite64, file, bytes, len, offset),
        }) as isize
    };
    let Some((folder, number)) = folder::tracked(file) else { return call(len) };
    match faults::fault(if write { Kind::Write } else { Kind::Read }) {
        Some(faults::How::Error(code)) => return faults::error(code) as isize,
        Some(faults::How::Short) => len = len.div_ceil(2),
        Some(faults::How::Hang) | None => {}
    }
    if !write {
        return call(len);
    }
    let mut log = folder.log();
    let offset = offset.unwrap_or_else(|| folder::position(file));
    let written = call(len);
    if written > 0 {
        // SAFETY: the caller has so many bytes to write there, and the system has read them.
        let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), written as usize) };
        log.add(&Event::Write { file: number, offset: offset as u64, bytes: bytes.to_vec() });
    }
    written
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn read(file: c_int, bytes: *mut c_void, len: usize) -> isize {
    transfer(file, bytes, len, None, false)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(file: c_int, bytes: *const c_void, len: usize) -> isize {
    transfer(file, bytes.cast_mut(), len, None, true)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pread64(file: c_int, bytes: *mut c_void, len: usize, offset: i64) -> isize {
    transfer(file, bytes, len, Some(offset), false)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite64(file: c_int, bytes: *const c_void, len: usize, offset: i64) -> isize {
    transfer(file, bytes.cast_mut(), len, Some(offset), true)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftruncate64(file: c_int, len: i64) -> c_int {
    let call = || system!(SYS_ftruncate, file, len);
    let Some((folder, number)) = folder::tracked(file) else { return call() as c_int };
    if fails(Kind::Resize) {
        return -1;
    }
    change(folder, call, || Some(Event::Resize { file: number, len: len as u64 })) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fallocate64(file: c_int, mode: c_int, offset: i64, len: i64) -> c_int {
    let call = || system!(SYS_fallocate, file, mode, offset, len);
    let Some((folder, number)) = folder::tracked(file) else { return call() as c_int };
    if fails(Kind::Allocate) {
        return -1;
    }
    let before = folder::len(file);
    let end = (offset + len) as u64;
    change(folder, call, || (end > before).then_some(Event::Resize { file: number, len: end })) as c_int
}

/// Syncs a file, or the names in the folder.
fn sync(file: c_int, call: impl Fn() -> c_long) -> c_int {
    if let Some((folder, number)) = folder::tracked(file) {
        if fails(Kind::Sync) {
            return -1;
        }
        return change(folder, call, || Some(Event::Sync { file: number, modified: folder::modified(file) })) as c_int;
    }
    match FOLDER.as_ref().and_then(|folder| Some((folder, folder.name_of(file)?))) {
        None => call() as c_int,
        Some(_) if fails(Kind::SyncNames) => -1,
        Some((folder, name)) => change(folder, call, || Some(Event::SyncNames { folder: name })) as c_int,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fsync(file: c_int) -> c_int {
    sync(file, || system!(SYS_fsync, file))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdatasync(file: c_int) -> c_int {
    sync(file, || system!(SYS_fdatasync, file))
}

fn rename_at(at: c_int, from: *const c_char, to_at: c_int, to: *const c_char, flags: c_uint) -> c_int {
    let call = || system!(SYS_renameat2, at, from, to_at, to, flags);
    let Some(folder) = &*FOLDER else { return call() as c_int };
    let (Some(old), Some(new)) = (folder.name_at(at, from), folder.name_at(to_at, to)) else { return call() as c_int };
    if fails(Kind::Rename) {
        return -1;
    }
    let exchange = flags & libc::RENAME_EXCHANGE != 0;
    change(folder, call, || Some(Event::Rename { from: old, to: new, exchange })) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    rename_at(libc::AT_FDCWD, from, libc::AT_FDCWD, to, 0)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn renameat2(
    at: c_int,
    from: *const c_char,
    to_at: c_int,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    rename_at(at, from, to_at, to, flags)
}

fn link_at(at: c_int, from: *const c_char, to_at: c_int, to: *const c_char, flags: c_int) -> c_int {
    let call = || system!(SYS_linkat, at, from, to_at, to, flags);
    let Some(folder) = &*FOLDER else { return call() as c_int };
    let Some(name) = folder.name_at(to_at, to) else { return call() as c_int };
    if fails(Kind::Link) {
        return -1;
    }
    change(folder, call, || Some(Event::Link { file: folder::number(to_at, to)?, name })) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn link(from: *const c_char, to: *const c_char) -> c_int {
    link_at(libc::AT_FDCWD, from, libc::AT_FDCWD, to, 0)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkat(
    at: c_int,
    from: *const c_char,
    to_at: c_int,
    to: *const c_char,
    flags: c_int,
) -> c_int {
    link_at(at, from, to_at, to, flags)
}

fn unlink_at(at: c_int, path: *const c_char, flags: c_int) -> c_int {
    let call = || system!(SYS_unlinkat, at, path, flags);
    let Some(folder) = &*FOLDER else { return call() as c_int };
    let Some(name) = folder.name_at(at, path) else { return call() as c_int };
    if fails(Kind::Unlink) {
        return -1;
    }
    change(folder, call, || Some(Event::Unlink { name })) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    unlink_at(libc::AT_FDCWD, path, 0)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlinkat(at: c_int, path: *const c_char, flags: c_int) -> c_int {
    unlink_at(at, path, flags)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    address: *mut c_void,
    len: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: i64,
) -> *mut c_void {
    let is_written = protection & libc::PROT_WRITE != 0 && flags & libc::MAP_SHARED != 0;
    if is_written && let Some((folder, _)) = folder::tracked(file) {
        if fails(Kind::Map) {
            return libc::MAP_FAILED;
        }
        if folder.is_recorded() {
            faults::error(libc::ENODEV);
            return libc::MAP_FAILED;
        }
    }
    system!(SYS_mmap, address, len, protection, flags, file, offset) as *mut c_void
}
