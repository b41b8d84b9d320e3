//! Fails any call on request: `OVERSHOT_STANDIN_FAIL` sets the call at the start, [`standinArm`] later.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{CStr, c_char};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use crate::settings::SETTINGS;
use crate::state::driver;
use crate::{CURRENT, Code, OUT_OF_MEMORY};

const ILLEGAL_ADDRESS: Code = 700;
const LAUNCH_FAILED: Code = 719;
const UNKNOWN: Code = 999;

/// The effect of the failing call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Only this call fails.
    Once,
    /// This call and the next one of its name fail.
    Twice,
    /// The device is lost: this call fails, and all later calls in the current context.
    Device,
    /// This call finds no memory.
    Memory,
    /// This call and all later calls of its name fail.
    Always,
    /// As a kernel with an illegal address does: this call fails, and all later calls in any context of the process.
    Process,
    /// The call succeeds. The work that it enqueues fails on the stream, and the device is lost. Only for calls that
    /// enqueue work of their own: copies, launches, zeroing and products.
    Late,
    /// The call, or the work that it enqueues, takes until other calls were made ([`wait_for_others`]).
    Slow,
    /// This copy, launch or product succeeds, but one bit of what it writes is wrong.
    Flip,
    /// The call succeeds. The work that it enqueues never ends, until [`standinHeal`]. Only for calls that enqueue work
    /// of their own.
    Hang,
}

impl Mode {
    pub const NAMES: [(&str, Mode); 10] = [
        ("once", Mode::Once),
        ("device", Mode::Device),
        ("memory", Mode::Memory),
        ("always", Mode::Always),
        ("twice", Mode::Twice),
        ("process", Mode::Process),
        ("late", Mode::Late),
        ("slow", Mode::Slow),
        ("flip", Mode::Flip),
        ("hang", Mode::Hang),
    ];
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Succeeds,
    Fails(Code),
    FailsLater,
    TakesLong,
    Hangs,
}

/// The call that fails.
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
    /// How many of them failed or took long.
    failed: u64,
}

thread_local! {
    /// Whether the call that this thread is in writes a wrong bit.
    static FLIPS: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether the call that this thread is in writes a wrong bit. Asked once in each call that can.
pub fn flips() -> bool {
    FLIPS.take()
}

/// The calls that a slow one waits for.
const OTHERS: u64 = 30;
/// A slow call or slow work ends after this time if no other thread makes calls.
const PATIENCE: Duration = Duration::from_millis(3);

static ARMED: LazyLock<Mutex<Armed>> =
    LazyLock::new(|| Mutex::new(Armed { failing: SETTINGS.failing.clone(), ..Armed::default() }));

fn armed() -> MutexGuard<'static, Armed> {
    ARMED.lock().unwrap()
}

/// Counts a call, and returns what becomes of it.
pub fn fate(call: &'static str) -> Fate {
    let mut armed = armed();
    let calls = armed.calls.entry(call).or_default();
    *calls += 1;
    let calls = *calls;
    let Some(&Failing { nth, mode, .. }) = armed.failing.as_ref().filter(|failing| failing.name == call) else {
        return Fate::Succeeds;
    };
    let fails = match mode {
        Mode::Always => calls >= nth,
        Mode::Twice => calls == nth || calls == nth + 1,
        Mode::Once | Mode::Device | Mode::Memory | Mode::Process => calls == nth,
        Mode::Late | Mode::Slow | Mode::Flip | Mode::Hang => calls == nth,
    };
    if !fails {
        return Fate::Succeeds;
    }
    armed.failed += 1;
    drop(armed);
    let code = match mode {
        Mode::Late => return Fate::FailsLater,
        Mode::Slow => return Fate::TakesLong,
        Mode::Hang => return Fate::Hangs,
        Mode::Flip => {
            FLIPS.set(true);
            return Fate::Succeeds;
        }
        Mode::Once | Mode::Twice | Mode::Always => UNKNOWN,
        Mode::Memory => OUT_OF_MEMORY,
        Mode::Device => {
            let driver = driver();
            if CURRENT.get() != 0 {
                driver.lose(driver.device_of(CURRENT.get()), LAUNCH_FAILED);
            }
            LAUNCH_FAILED
        }
        Mode::Process => {
            driver().lose_all(ILLEGAL_ADDRESS);
            ILLEGAL_ADDRESS
        }
    };
    Fate::Fails(code)
}

/// Returns when other calls were made, or soon if none are: a test must not depend on which it is. The lock of the
/// driver must not be held.
pub fn wait_for_others() {
    let made = || armed().calls.values().sum::<u64>();
    let (before, began) = (made(), Instant::now());
    // It is less than before once another call is armed.
    while made().wrapping_sub(before) < OTHERS && began.elapsed() < PATIENCE {
        thread::sleep(Duration::from_micros(50));
    }
}

/// How often [`standinHeal`] was called.
static HEALED: (Mutex<u64>, Condvar) = (Mutex::new(0), Condvar::new());

/// Returns when [`standinHeal`] is called.
pub fn wait_for_healing() {
    let (healed, changed) = &HEALED;
    let healed = healed.lock().unwrap();
    let before = *healed;
    let _healed = changed.wait_while(healed, |healed| *healed == before).unwrap();
}

/// Makes the Nth call of this name from now on fail, in the mode of this number; no call if the name is empty.
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

/// Returns the number of calls of this name since [`standinArm`]; of all calls if the name is empty.
///
/// # Safety
/// The name is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn standinCalls(name: *const c_char) -> u64 {
    // SAFETY: by this function's contract.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    let calls = &armed().calls;
    if name.is_empty() { calls.values().sum() } else { calls.get(&*name).copied().unwrap_or(0) }
}

/// Makes all contexts usable again, and lets work that hangs go on.
#[unsafe(no_mangle)]
pub extern "C" fn standinHeal() {
    driver().lose_all(0);
    *HEALED.0.lock().unwrap() += 1;
    HEALED.1.notify_all();
}

/// Returns the number of calls since [`standinArm`] that failed or took long.
#[unsafe(no_mangle)]
pub extern "C" fn standinFailed() -> u64 {
    armed().failed
}
