//! Fails any call on request: `OVERSHOT_STANDIN_FAIL` sets the call at the start, [`standinArm`] later.

use std::collections::HashMap;
use std::ffi::{CStr, c_char};
use std::sync::{LazyLock, Mutex, MutexGuard};

use crate::settings::SETTINGS;
use crate::state::driver;
use crate::{CURRENT, Code, OUT_OF_MEMORY};

const LAUNCH_FAILED: Code = 719;
const UNKNOWN: Code = 999;

/// What happens at the call that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// This one fails and no other.
    Once,
    /// The device is lost: this one fails, and all later ones in the context that is current.
    Device,
    /// This one finds no memory.
    Memory,
    /// This one fails and all later ones of its name.
    Always,
}

impl Mode {
    pub const NAMES: [(&str, Mode); 4] =
        [("once", Mode::Once), ("device", Mode::Device), ("memory", Mode::Memory), ("always", Mode::Always)];
}

/// Which call fails.
#[derive(Clone, Debug)]
pub struct Failing {
    pub name: String,
    /// Counted from 1.
    pub nth: u64,
    pub mode: Mode,
}

#[derive(Default)]
struct Armed {
    failing: Option<Failing>,
    /// Calls since it was armed.
    calls: HashMap<&'static str, u64>,
    /// How many of them failed.
    failed: u64,
}

static ARMED: LazyLock<Mutex<Armed>> =
    LazyLock::new(|| Mutex::new(Armed { failing: SETTINGS.failing.clone(), ..Armed::default() }));

fn armed() -> MutexGuard<'static, Armed> {
    ARMED.lock().unwrap()
}

/// Counts a call, and returns the code with which it fails, if it does.
pub fn failure(call: &'static str) -> Option<Code> {
    let mut armed = armed();
    let calls = armed.calls.entry(call).or_default();
    *calls += 1;
    let calls = *calls;
    let Failing { nth, mode, .. } = *armed.failing.as_ref().filter(|failing| failing.name == call)?;
    if !(calls == nth || calls > nth && mode == Mode::Always) {
        return None;
    }
    armed.failed += 1;
    drop(armed);
    Some(match mode {
        Mode::Once | Mode::Always => UNKNOWN,
        Mode::Memory => OUT_OF_MEMORY,
        Mode::Device => {
            let driver = driver();
            if CURRENT.get() != 0 {
                driver.lose(driver.device_of(CURRENT.get()), LAUNCH_FAILED);
            }
            LAUNCH_FAILED
        }
    })
}

/// Lets the Nth call of this name from now on fail, in the mode of this number; none if the name is empty.
///
/// # Safety
/// The name is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn standinArm(name: *const c_char, nth: u64, mode: usize) {
    // SAFETY: by this function's contract.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    let mode = Mode::NAMES[mode].1;
    *armed() =
        Armed { failing: Some(Failing { name, nth, mode }).filter(|of| !of.name.is_empty()), ..Armed::default() };
}

/// How many calls of this name there were since [`standinArm`].
///
/// # Safety
/// The name is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn standinCalls(name: *const c_char) -> u64 {
    // SAFETY: by this function's contract.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    armed().calls.get(&*name).copied().unwrap_or(0)
}

/// How many calls failed since [`standinArm`].
#[unsafe(no_mangle)]
pub extern "C" fn standinFailed() -> u64 {
    armed().failed
}
