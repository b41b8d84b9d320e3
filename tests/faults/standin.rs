//! The stand-ins in this process: which calls fail, what is allocated; and the watchdog.

use std::env;
use std::ffi::{CString, c_char};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use cudarc::driver::sys;
use overshot::{DeviceChoice, Engine, EngineBuilder, Result};

/// The time after which a case counts as hanging: far more than any case takes.
const LIMIT: Duration = Duration::from_secs(60);

/// How a call fails, in the order of `Mode::NAMES` in `tests/standin/inject.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Once,
    Device,
    Memory,
    Always,
    Twice,
    Process,
    Late,
    Slow,
    Flip,
    Hang,
}

/// Returns a function that only the stand-in has.
///
/// # Safety
/// The function has this type.
unsafe fn standin<F: Copy>(name: &str) -> F {
    // SAFETY: the caller guarantees the type.
    unsafe { *sys::culib().get::<F>(name.as_bytes()).expect("the stand-in driver is loaded") }
}

/// Makes the Nth call from now on fail.
pub fn arm(call: &str, nth: u64, mode: Mode) {
    let name = CString::new(call).unwrap();
    // SAFETY: it is declared so in `tests/standin/inject.rs`, and the name outlives the call.
    unsafe {
        standin::<unsafe extern "C" fn(*const c_char, u64, usize)>("standinArm")(name.as_ptr(), nth, mode as usize)
    }
}

/// Makes no call fail, and counts calls from now on.
pub fn disarm() {
    arm("", 0, Mode::Once);
}

/// Returns how often a function was called; of all calls if the name is empty.
pub fn calls(call: &str) -> u64 {
    let name = CString::new(call).unwrap();
    // SAFETY: as above.
    unsafe { standin::<unsafe extern "C" fn(*const c_char) -> u64>("standinCalls")(name.as_ptr()) }
}

/// Returns the number of calls that failed or took long since the last call of [`arm`].
pub fn failed() -> u64 {
    number("standinFailed")
}

/// Returns the bytes of device memory and of host memory that the driver has allocated or registered.
pub fn bytes() -> [u64; 2] {
    ["standinDeviceBytes", "standinPinnedBytes"].map(number)
}

/// Forgets that devices are lost, and lets work that hangs go on. The process of a real driver would have to end.
pub fn heal() {
    // SAFETY: it is declared so in `tests/standin/inject.rs`.
    unsafe { standin::<extern "C" fn()>("standinHeal")() }
}

fn number(of: &str) -> u64 {
    // SAFETY: all functions of this kind are declared so in `tests/standin/`.
    unsafe { standin::<extern "C" fn() -> u64>(of)() }
}

pub fn engine() -> Result<Engine> {
    builder()?.build()
}

/// Returns an engine that gives up devices that hang.
pub fn impatient_engine() -> Result<Engine> {
    builder()?.device_timeout(Duration::from_millis(100)).build()
}

fn builder() -> Result<EngineBuilder> {
    let device: DeviceChoice = env::var("FAULTS_DEVICE").unwrap_or("cuda".into()).parse()?;
    Ok(Engine::builder().device(device).chunk(100_000).workers(2))
}

/// Ends the process if no next case is announced for too long.
pub struct Watchdog(Sender<String>);

impl Watchdog {
    pub fn start() -> Self {
        let (news, heard) = channel::<String>();
        std::thread::spawn(move || {
            let mut case = String::new();
            loop {
                match heard.recv_timeout(LIMIT) {
                    Ok(next) => case = next,
                    Err(RecvTimeoutError::Disconnected) => return,
                    Err(RecvTimeoutError::Timeout) => {
                        eprintln!("{case} hangs");
                        std::process::abort();
                    }
                }
            }
        });
        Watchdog(news)
    }

    pub fn next(&self, case: &str) {
        self.0.send(case.to_owned()).unwrap();
    }
}
