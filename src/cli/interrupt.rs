//! SIGINT, SIGTERM and SIGHUP: the first one stops the job cleanly, a second one terminates the process at once, and so
//! does the first one if the job does not stop soon. In all cases the process is terminated **by** the signal, so that
//! a loop in a shell script stops, too.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;
use std::{mem, ptr, thread};

use overshot::CancelToken;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use signal_hook::low_level::{emulate_default_handler, signal_name};

use super::unfinished;

/// The first signal received; 0 if none.
static RECEIVED: AtomicI32 = AtomicI32::new(0);

/// The time in which a job must stop: finishing the chunks in flight takes milliseconds, but a kernel may never end.
const GRACE: Duration = Duration::from_millis(1500);
/// The time in which the message about a job that does not stop must be written: perhaps nobody reads it.
const MESSAGE: Duration = Duration::from_millis(100);

/// Returns the token that SIGINT (Ctrl-C), SIGTERM and SIGHUP cancel. There is one for all jobs of the process: a
/// second watcher would take the first signal for the second one.
pub fn token() -> CancelToken {
    static TOKEN: OnceLock<CancelToken> = OnceLock::new();
    TOKEN.get_or_init(watched).clone()
}

/// Begins to watch the signals.
fn watched() -> CancelToken {
    let token = CancelToken::new();
    let stop = token.clone();
    let (ready, is_ready) = mpsc::channel();
    let watch = move || {
        // Ignored signals stay ignored, as for background jobs of a script or under nohup.
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
            // If the thread cannot start, a second signal still ends the process.
            let _ = thread::Builder::new().name("grace".into()).spawn(move || end_after_grace(signal));
        }
    };
    // Without a thread no handler is registered, and the signals have their default effect.
    if thread::Builder::new().name("signals".into()).spawn(watch).is_ok() {
        let _ = is_ready.recv();
    }
    token
}

/// Makes a write beyond `ulimit -f` fail with an error instead of killing the process.
pub fn survive_file_size_limit() {
    // Any handler is enough: the write then returns EFBIG. If it cannot be installed, the signal kills the process.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
}

/// The name of the signal that stopped the job, if any.
pub fn received() -> Option<&'static str> {
    signal_name(RECEIVED.load(Ordering::Relaxed))
}

/// Terminates the process by the signal that stopped the job, if any.
pub fn end_if_received() {
    match RECEIVED.load(Ordering::Relaxed) {
        0 => {}
        signal => end_by(signal),
    }
}

/// Terminates the process if it still runs after the time of grace.
fn end_after_grace(signal: c_int) {
    thread::sleep(GRACE);
    unfinished::remove();
    let (wrote, is_written) = mpsc::channel();
    let write = move || {
        eprintln!("overshot: error: the job did not stop, perhaps because a kernel never ends; no output was written");
        let _ = wrote.send(());
    };
    if thread::Builder::new().name("message".into()).spawn(write).is_ok() {
        let _ = is_written.recv_timeout(MESSAGE);
    }
    end_by(signal);
}

fn end_by(signal: c_int) {
    // Restores the default action and raises the signal; aborts the process if that fails.
    let _ = emulate_default_handler(signal);
}

fn is_ignored(signal: c_int) -> bool {
    // SAFETY: all zeros is a valid `sigaction`, and without a new action the call only writes the current one to it.
    let (failed, action) = unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        (libc::sigaction(signal, ptr::null(), &mut action) != 0, action)
    };
    !failed && action.sa_sigaction == libc::SIG_IGN
}
