//! Which calls fail, and how.

use std::env;
use std::ffi::{CString, c_int, c_long};
use std::os::unix::ffi::OsStringExt;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::system;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Open,
    Read,
    Write,
    Resize,
    Allocate,
    Map,
    Sync,
    SyncNames,
    Rename,
    Link,
    Unlink,
}

#[derive(Clone, Copy, Debug)]
pub enum How {
    Error(c_int),
    Short,
    /// Says so, and never returns.
    Hang,
}

struct Fault {
    /// `None`: any.
    kind: Option<Kind>,
    nth: u64,
    /// `None`: the process is killed.
    how: Option<How>,
    always: bool,
}

static FAULT: LazyLock<Option<Fault>> =
    LazyLock::new(|| env::var("OVERSHOT_FILES_FAIL").ok().map(|text| parse(&text).expect("OVERSHOT_FILES_FAIL")));
static CALLS: AtomicU64 = AtomicU64::new(0);
static FIRED: LazyLock<Option<CString>> =
    LazyLock::new(|| env::var_os("OVERSHOT_FILES_FIRED").map(|path| CString::new(path.into_vec()).unwrap()));

fn parse(text: &str) -> Option<Fault> {
    let mut fields = text.split(':');
    let kind = match fields.next()? {
        "open" => Some(Kind::Open),
        "read" => Some(Kind::Read),
        "write" => Some(Kind::Write),
        "resize" => Some(Kind::Resize),
        "allocate" => Some(Kind::Allocate),
        "map" => Some(Kind::Map),
        "sync" => Some(Kind::Sync),
        "sync-names" => Some(Kind::SyncNames),
        "rename" => Some(Kind::Rename),
        "link" => Some(Kind::Link),
        "unlink" => Some(Kind::Unlink),
        "any" => None,
        _ => return None,
    };
    let nth = fields.next()?.parse().ok()?;
    let how = match fields.next()? {
        "EIO" => Some(How::Error(libc::EIO)),
        "ENOSPC" => Some(How::Error(libc::ENOSPC)),
        "EDQUOT" => Some(How::Error(libc::EDQUOT)),
        "EROFS" => Some(How::Error(libc::EROFS)),
        "EINTR" => Some(How::Error(libc::EINTR)),
        "EINVAL" => Some(How::Error(libc::EINVAL)),
        "EOPNOTSUPP" => Some(How::Error(libc::EOPNOTSUPP)),
        "short" => Some(How::Short),
        "hang" => Some(How::Hang),
        "kill" => None,
        _ => return None,
    };
    let always = match fields.next() {
        None => false,
        Some("always") => true,
        Some(_) => return None,
    };
    Some(Fault { kind, nth, how, always })
}

/// Counts a call, and returns how it is to fail.
pub fn fault(kind: Kind) -> Option<How> {
    let fault = FAULT.as_ref()?;
    if fault.kind.is_some_and(|wanted| wanted != kind) {
        return None;
    }
    let nth = CALLS.fetch_add(1, Ordering::Relaxed) + 1;
    if nth != fault.nth && !(fault.always && nth > fault.nth) {
        return None;
    }
    if let Some(path) = &*FIRED {
        let file = system!(SYS_openat, libc::AT_FDCWD, path.as_ptr(), libc::O_CREAT | libc::O_CLOEXEC, 0o600);
        system!(SYS_close, file);
    }
    match fault.how {
        None => {
            let process = system!(SYS_getpid);
            system!(SYS_kill, process, libc::SIGKILL);
        }
        Some(How::Hang) => {
            system!(SYS_write, libc::STDERR_FILENO, c"hangs\n".as_ptr(), 6);
            loop {
                // SAFETY: it has no arguments. Handlers of signals end it.
                unsafe { libc::pause() };
            }
        }
        Some(_) => {}
    }
    fault.how
}

/// Counts a call that transfers no bytes, and returns whether it fails. `errno` is set then.
pub fn fails(kind: Kind) -> bool {
    match fault(kind) {
        Some(How::Error(code)) => error(code) < 0,
        _ => false,
    }
}

/// Sets `errno`, and returns the result of a call that fails.
pub fn error(code: c_int) -> c_long {
    // SAFETY: the C library returns the address of the variable of this thread.
    unsafe { *libc::__errno_location() = code };
    -1
}
