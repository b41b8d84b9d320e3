//! SIGINT, SIGTERM and SIGHUP: the first one stops the job in good order, a second one ends the process at once. Either way
//! the process ends **by** the signal, so that a shell that runs a loop knows that it was interrupted and stops as well.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, mpsc};
use std::{mem, ptr, thread};

use overshot::CancelToken;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use signal_hook::low_level::{emulate_default_handler, signal_name};

use super::unfinished;

/// The signal that stops the job; 0 as long as none came.
static RECEIVED: AtomicI32 = AtomicI32::new(0);

/// A token that SIGINT (Ctrl-C), SIGTERM and SIGHUP cancel.
pub fn token() -> CancelToken {
    let token = CancelToken::new();
    let stop = token.clone();
    let (ready, is_ready) = mpsc::channel();
    let watch = move || {
        // Signals that are ignored, as for a background job of a script or under nohup, stay ignored.
        let Ok(mut signals) = Signals::new([SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !is_ignored(*signal)))
        else {
            return;
        };
        let _ = ready.send(());
        for signal in signals.forever() {
            if RECEIVED.swap(signal, Ordering::Relaxed) != 0 {
                unfinished::remove();
                end_by(signal);
            }
            stop.cancel();
        }
    };
    // Without a thread nothing is registered, and the signals do what they do to every process.
    if thread::Builder::new().name("signals".into()).spawn(watch).is_ok() {
        let _ = is_ready.recv();
    }
    token
}

/// Lets a write beyond `ulimit -f` fail with an error, which has a message, instead of killing the process.
pub fn survive_file_size_limit() {
    // A handler that does nothing of note is enough: the write then returns EFBIG. If it cannot be set, the signal kills.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
}

/// The name of the signal that stopped the job, if one came.
pub fn received() -> Option<&'static str> {
    signal_name(RECEIVED.load(Ordering::Relaxed))
}

/// Ends the process by the signal that stopped the job, if one came.
pub fn end_if_received() {
    match RECEIVED.load(Ordering::Relaxed) {
        0 => {}
        signal => end_by(signal),
    }
}

fn end_by(signal: c_int) {
    // Restores the default action and raises the signal; aborts the process should that fail.
    let _ = emulate_default_handler(signal);
}

fn is_ignored(signal: c_int) -> bool {
    // SAFETY: all zeros is a valid `sigaction`, and with no new action the call only writes the present one to it.
    let (failed, action) = unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        (libc::sigaction(signal, ptr::null(), &mut action) != 0, action)
    };
    !failed && action.sa_sigaction == libc::SIG_IGN
}
