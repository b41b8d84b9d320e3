//! Standard output.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

use super::{Failure, Result};

/// Whether standard output was closed when the process began (`>&-`).
static IS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Run by the loader before `main`: Rust's runtime later opens `/dev/null` in place of a closed standard stream, and
/// writes to it are lost without an error. Nothing tells that apart, by descriptor flags or in `/proc`, from a
/// `/dev/null` that the caller opened for reading and writing, as `subprocess.DEVNULL` of Python is.
// SAFETY: the section contains functions of this type, and this function does not need Rust's runtime.
#[cfg(target_os = "linux")]
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

#[cfg(target_os = "linux")]
extern "C" fn look() {
    // SAFETY: it only queries the flags of a descriptor, which need not be open.
    let closed = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) } == -1;
    IS_CLOSED.store(closed, Ordering::Relaxed);
}

/// Prints text to standard output, in colour on terminals that support it. A closed pipe is not an error: a reader
/// such as `head` has read enough.
pub fn print(text: impl Display) -> Result {
    let text = text.to_string();
    if text.is_empty() {
        return Ok(());
    }
    let mut out = anstream::stdout().lock();
    written(write!(out, "{text}").and_then(|()| out.flush()))
}

/// Prints a value as JSON.
pub fn print_json(value: &impl Serialize) -> Result {
    let text = serde_json::to_string_pretty(value).map_err(|error| Failure::Output(error.into()))?;
    print_bytes(text.as_bytes()).and_then(|()| print_bytes(b"\n"))
}

/// A document with its versions.
#[derive(Serialize)]
struct Versioned<'a, T> {
    schema_version: u32,
    overshot_version: &'static str,
    #[serde(flatten)]
    document: &'a T,
}

/// Prints a document as JSON, whose version increases when a reader could notice a change.
pub fn print_document(schema_version: u32, document: &impl Serialize) -> Result {
    print_json(&Versioned { schema_version, overshot_version: env!("CARGO_PKG_VERSION"), document })
}

/// Prints bytes unchanged, for programs.
pub fn print_bytes(bytes: &[u8]) -> Result {
    let mut out = io::stdout().lock();
    written(out.write_all(bytes).and_then(|()| out.flush()))
}

/// The result of a write to standard output.
pub fn written(result: io::Result<()>) -> Result {
    match result {
        Ok(()) if IS_CLOSED.load(Ordering::Relaxed) => Err(Failure::Output(rustix::io::Errno::BADF.into())),
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::Output(error)),
        _ => Ok(()),
    }
}
