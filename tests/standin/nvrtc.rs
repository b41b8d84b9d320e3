//! A stand-in for NVRTC that goes with the stand-in for the CUDA driver: its "device code" is the source text, which
//! that driver understands. It is built as `libnvrtc.so`.
//!
//! It reports only one error of a source: that it has no entry point. A running process can make calls fail:
//! [`standinArmCompiler`].
#![allow(non_snake_case, reason = "the names are NVRTC's")]
#![allow(missing_docs, clippy::missing_safety_doc, reason = "NVRTC's manual documents the functions")]
#![allow(clippy::unwrap_used, reason = "a lock is poisoned only after a panic, which ends the process")]

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr;
use std::sync::{LazyLock, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

type Code = u32;
const INVALID_INPUT: Code = 3;
const INVALID_OPTION: Code = 5;
const COMPILATION: Code = 6;
const INTERNAL_ERROR: Code = 11;

const ARCHITECTURES: [c_int; 5] = [75, 80, 90, 100, 120];
const ENTRY: &str = "extern \"C\" __global__ void ";

pub struct Program {
    source: CString,
    log: CString,
}

/// How a call fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mode {
    #[default]
    Once,
    /// This call and all later ones of the function.
    Always,
    /// The call succeeds, and takes long.
    Slow,
    /// The call succeeds. What it gives is damaged, which the driver finds. Only for the code of a kernel: nothing else
    /// that the compiler gives is used later.
    Late,
}

/// How long a call takes that takes long: other threads compile and run meanwhile.
const LONG: Duration = Duration::from_millis(3);

/// Which calls fail, and the calls since that was set.
#[derive(Default)]
struct Armed {
    name: String,
    /// Counted from 1.
    nth: u64,
    mode: Mode,
    calls: HashMap<&'static str, u64>,
}

static ARMED: LazyLock<Mutex<Armed>> = LazyLock::new(Mutex::default);

fn armed() -> MutexGuard<'static, Armed> {
    ARMED.lock().unwrap()
}

/// Counts a call, and returns how it fails.
fn fate(call: &'static str) -> Option<Mode> {
    let mut armed = armed();
    let calls = armed.calls.entry(call).or_default();
    *calls += 1;
    let calls = *calls;
    let mode = armed.mode;
    (armed.name == call && (calls == armed.nth || (mode == Mode::Always && calls > armed.nth))).then_some(mode)
}

/// Counts a call, and returns whether it fails at once.
fn fails(call: &'static str) -> bool {
    let fate = fate(call);
    if fate == Some(Mode::Slow) {
        thread::sleep(LONG);
    }
    matches!(fate, Some(Mode::Once | Mode::Always))
}

/// Makes the Nth call of this function from now on fail, in the mode of this number; no call if the name is empty.
///
/// # Safety
/// The name is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn standinArmCompiler(name: *const c_char, nth: u64, mode: usize) {
    // SAFETY: by this function's contract.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    let mode = [Mode::Once, Mode::Always, Mode::Slow, Mode::Late][mode];
    *armed() = Armed { name, nth, mode, calls: HashMap::new() };
}

/// Returns the number of calls of this function since [`standinArmCompiler`].
///
/// # Safety
/// The name is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn standinCompilerCalls(name: *const c_char) -> u64 {
    // SAFETY: by this function's contract.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    armed().calls.get(&*name).copied().unwrap_or(0)
}

/// # Safety
/// `to` is valid for a write.
unsafe fn give<T>(to: *mut T, value: T) -> Code {
    // SAFETY: by this function's contract, which is NVRTC's.
    unsafe { to.write(value) };
    0
}

/// # Safety
/// `to` is valid for all bytes of `text`.
unsafe fn give_text(to: *mut c_char, text: &CStr) -> Code {
    // SAFETY: by this function's contract, which is NVRTC's.
    unsafe { ptr::copy_nonoverlapping(text.as_ptr(), to, text.count_bytes() + 1) };
    0
}

/// 0.1, so that its "code" in a cache is never taken for that of a real compiler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcVersion(major: *mut c_int, minor: *mut c_int) -> Code {
    if fails("nvrtcVersion") {
        return INTERNAL_ERROR;
    }
    // SAFETY: NVRTC's contract.
    unsafe { give(major, 0) + give(minor, 1) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetNumSupportedArchs(count: *mut c_int) -> Code {
    if fails("nvrtcGetNumSupportedArchs") {
        return INTERNAL_ERROR;
    }
    // SAFETY: NVRTC's contract.
    unsafe { give(count, ARCHITECTURES.len() as c_int) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetSupportedArchs(architectures: *mut c_int) -> Code {
    if fails("nvrtcGetSupportedArchs") {
        return INTERNAL_ERROR;
    }
    // SAFETY: NVRTC's contract: there is room for as many bytes as the previous call returned.
    unsafe { give(architectures.cast(), ARCHITECTURES) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcCreateProgram(
    program: *mut *mut Program,
    source: *const c_char,
    _name: *const c_char,
    headers: c_int,
    _header_sources: *const *const c_char,
    _header_names: *const *const c_char,
) -> Code {
    if fails("nvrtcCreateProgram") {
        return INTERNAL_ERROR;
    }
    if headers != 0 {
        return INVALID_INPUT;
    }
    // SAFETY: NVRTC's contract.
    let source = unsafe { CStr::from_ptr(source) }.to_owned();
    let made = Box::new(Program { source, log: CString::default() });
    // SAFETY: NVRTC's contract.
    unsafe { give(program, Box::into_raw(made)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcDestroyProgram(program: *mut *mut Program) -> Code {
    if fails("nvrtcDestroyProgram") {
        return INTERNAL_ERROR;
    }
    // SAFETY: NVRTC's contract: made by `nvrtcCreateProgram`, and no longer used.
    drop(unsafe { Box::from_raw(*program) });
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcCompileProgram(
    program: *mut Program,
    count: c_int,
    options: *const *const c_char,
) -> Code {
    if fails("nvrtcCompileProgram") {
        return INTERNAL_ERROR;
    }
    // SAFETY: NVRTC's contract.
    let program = unsafe { &mut *program };
    for i in 0..count as usize {
        // SAFETY: NVRTC's contract: so many options, all strings.
        let option = unsafe { CStr::from_ptr(*options.add(i)) };
        if !option.to_bytes().starts_with(b"--") {
            return INVALID_OPTION;
        }
    }
    let source = program.source.to_string_lossy();
    let entry = source.split_once(ENTRY).and_then(|(_, rest)| rest.split_once('('));
    let is_name = |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    // The name may also be that of an attribute such as launch bounds, before the entry point's own.
    if entry.is_some_and(|(name, _)| is_name(name)) {
        return 0;
    }
    program.log = c"overshot.cu(1): error: no entry point\n\n1 error detected.\n".to_owned();
    COMPILATION
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetProgramLogSize(program: *mut Program, size: *mut usize) -> Code {
    if fails("nvrtcGetProgramLogSize") {
        return INTERNAL_ERROR;
    }
    // SAFETY: NVRTC's contract.
    unsafe { give(size, (*program).log.count_bytes() + 1) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetProgramLog(program: *mut Program, log: *mut c_char) -> Code {
    if fails("nvrtcGetProgramLog") {
        return INTERNAL_ERROR;
    }
    // SAFETY: NVRTC's contract.
    unsafe { give_text(log, &(*program).log) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetCUBINSize(program: *mut Program, size: *mut usize) -> Code {
    if fails("nvrtcGetCUBINSize") {
        return INTERNAL_ERROR;
    }
    // SAFETY: NVRTC's contract.
    unsafe { give(size, (*program).source.count_bytes() + 1) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetCUBIN(program: *mut Program, cubin: *mut c_char) -> Code {
    let fate = fate("nvrtcGetCUBIN");
    // SAFETY: NVRTC's contract.
    let source = unsafe { &(*program).source };
    match fate {
        Some(Mode::Once | Mode::Always) => return INTERNAL_ERROR,
        Some(Mode::Slow) => thread::sleep(LONG),
        Some(Mode::Late) => {
            let damaged = CString::new(vec![b'?'; source.count_bytes()]).unwrap_or_default();
            // SAFETY: NVRTC's contract: there is room for as many bytes as the source has.
            return unsafe { give_text(cubin, &damaged) };
        }
        None => {}
    }
    // SAFETY: NVRTC's contract.
    unsafe { give_text(cubin, source) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetPTXSize(program: *mut Program, size: *mut usize) -> Code {
    // SAFETY: NVRTC's contract.
    unsafe { nvrtcGetCUBINSize(program, size) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetPTX(program: *mut Program, ptx: *mut c_char) -> Code {
    // SAFETY: NVRTC's contract.
    unsafe { nvrtcGetCUBIN(program, ptx) }
}
