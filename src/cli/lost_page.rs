//! SIGBUS: a page of a mapped file is unavailable, because the file was truncated or its disk failed. The failed
//! access cannot be resumed, so the handler prints an error, removes unfinished outputs and ends the process.

use std::ffi::{c_int, c_void};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{mem, ptr};

static IS_JSON: AtomicBool = AtomicBool::new(false);
static IS_TOLD: AtomicBool = AtomicBool::new(false);

const WHAT: &[u8] =
    b"was truncated during the run, or its disk failed; do not change inputs during a run, or use --read-mode pread";

/// Installs the handler of SIGBUS. Its message is JSON if requested.
pub fn handle(is_json: bool) {
    IS_JSON.store(is_json, Ordering::Relaxed);
    // SAFETY: all zeros is a valid `sigaction`, its handler has the type that SA_SIGINFO asks for, and calls only
    // async-signal-safe functions. If the call fails, the signal kills the process as before.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_bus_error;
        action.sa_sigaction = handler as usize;
        // Runs on the stack of the thread: alternate stacks have no room for the buffers.
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGBUS, &action, ptr::null_mut());
    }
}

extern "C" fn on_bus_error(signal: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the system hands a valid `siginfo_t` to a handler with SA_SIGINFO, whose address is set for SIGBUS.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    if code <= 0 {
        // Sent by another process, so no page is involved. Raised again, it kills this process when the handler
        // returns. SAFETY: both are async-signal-safe.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
        return;
    }
    if !IS_TOLD.swap(true, Ordering::Relaxed) {
        let mut path = [0; 4096];
        let path = overshot::io::mapped_path(address, &mut path).map(|length| &path[..length]);
        let mut buffer = [0; 9000];
        let length = message(&mut buffer, path, IS_JSON.load(Ordering::Relaxed));
        let _ = rustix::io::write(rustix::stdio::stderr(), &buffer[..length]);
        overshot::io::remove_unfinished_outputs();
        // SAFETY: it ends the process without running destructors or exit handlers.
        unsafe { libc::_exit(1) };
    }
    // Another thread is about to end the process.
    loop {
        // SAFETY: it is async-signal-safe.
        unsafe { libc::pause() };
    }
}

/// Writes the line into the buffer and returns its length. The buffer has room for a path in which every byte is
/// escaped.
fn message(buffer: &mut [u8], path: Option<&[u8]>, is_json: bool) -> usize {
    let size = buffer.len();
    let mut rest = buffer;
    let mut put = |bytes: &[u8]| _ = rest.write_all(bytes);
    put(if is_json { br#"{"error":{"kind":"file","message":""# } else { b"overshot: error: " });
    match path {
        None => put(b"an input file"),
        Some(path) => {
            // JSON must be UTF-8, and a line must not contain control characters.
            let is_text = str::from_utf8(path).is_ok();
            for byte in path.iter().take(4096) {
                match byte {
                    b'"' | b'\\' if is_json => put(&[b'\\', *byte]),
                    0..=31 | 127 => put(b"?"),
                    128.. if !is_text => put(b"?"),
                    _ => put(&[*byte]),
                }
            }
            put(b":");
        }
    }
    put(b" ");
    put(WHAT);
    put(if is_json { b"\"}}\n" } else { b"\n" });
    size - rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(path: Option<&[u8]>, is_json: bool) -> String {
        let mut buffer = [0; 9000];
        let length = message(&mut buffer, path, is_json);
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    #[test]
    fn the_message_is_a_line_or_json() {
        assert!(text(None, false).starts_with("overshot: error: an input file was truncated"));
        let line = text(Some(b"a\nb\xff.npy"), false);
        assert!(line.starts_with("overshot: error: a?b?.npy: was truncated") && line.ends_with("pread\n"), "{line}");
        let json: serde_json::Value = serde_json::from_str(&text(Some(b"a\"\\\n.npy"), true)).unwrap();
        let message = json["error"]["message"].as_str().unwrap();
        assert!(message.starts_with("a\"\\?.npy: was truncated") && message.ends_with("pread"), "{message}");
    }

    #[test]
    fn the_longest_path_fits() {
        let line = text(Some(&[b'"'; 4096]), true);
        assert!(line.ends_with("use --read-mode pread\"}}\n"), "{line}");
    }
}
