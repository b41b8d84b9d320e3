//! A stand-in for the CUDA driver library, so that the host code of the CUDA device runs on machines without a GPU.
//!
//! It is built as `libcuda.so`; the loader takes it for the driver when its folder is on `LD_LIBRARY_PATH`. It has the
//! functions that Overshot calls, on devices made of host memory. Each stream has a thread that works in order. Copies
//! of registered memory and launches run later than they are called. Launching a kernel runs its host kernel. A call
//! that breaks a rule of the driver, or that Overshot never makes (the default stream, for example), ends the process
//! with a message. So do handles that remain when the last user of a context releases it.
//!
//! [`settings`] lists the environment variables that configure it.
#![allow(non_snake_case, reason = "the names are the driver's")]
#![allow(missing_docs, clippy::missing_safety_doc, reason = "CUDA's manual documents the functions")]
#![allow(clippy::unwrap_used, reason = "a lock is poisoned only after a panic, which ends the process")]

mod device;
mod host;
mod inject;
mod management;
mod memory;
mod products;
mod queue;
mod settings;
mod state;

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_uint, c_void};
use std::fmt;
use std::process;
use std::sync::Arc;

use overshot::testing::{Argument, Columns};

use memory::Block;
use queue::{Column, Stream, Work};
use settings::{Fate, SETTINGS};
use state::{Driver, driver};

type Code = u32;
const INVALID_VALUE: Code = 1;
const OUT_OF_MEMORY: Code = 2;
const INVALID_IMAGE: Code = 200;
const INVALID_CONTEXT: Code = 201;
const ECC_UNCORRECTABLE: Code = 214;
const INVALID_HANDLE: Code = 400;
const NOT_FOUND: Code = 500;
const NOT_READY: Code = 600;
const ILLEGAL_ADDRESS: Code = 700;
const LAUNCH_OUT_OF_RESOURCES: Code = 701;

thread_local! {
    static CURRENT: Cell<u64> = const { Cell::new(0) };
}

/// Ends the process: the caller broke a rule.
pub(crate) fn misuse(what: fmt::Arguments) -> ! {
    eprintln!("stand-in CUDA driver: misuse: {what}");
    process::abort();
}

/// Runs the body of an entry point that enqueues no work of its own, unless a failure is set for it.
fn answer(call: &'static str, body: impl FnOnce() -> Result<(), Code>) -> Code {
    match end(call) {
        0 => body().err().unwrap_or(0),
        code => code,
    }
}

/// Runs the body of an entry point that waits or releases something, and then fails if a failure is set for it.
fn release(call: &'static str, body: impl FnOnce() -> Result<(), Code>) -> Code {
    let code = body().err().unwrap_or(0);
    match end(call) {
        0 => code,
        failure => failure,
    }
}

/// Counts a call, and returns its error code; 0 if it succeeds.
fn end(call: &'static str) -> Code {
    match inject::fate(call) {
        inject::Fate::Succeeds => 0,
        inject::Fate::Fails(code) => code,
        inject::Fate::TakesLong => {
            inject::wait_for_others();
            0
        }
        inject::Fate::FailsLater | inject::Fate::Hangs => {
            misuse(format_args!("{call} enqueues no work that could fail later or hang"))
        }
    }
}

/// Runs the body of an entry point that enqueues work, unless a failure is set for it. The body gets what becomes of
/// that work: see [`push`].
fn enqueue(call: &'static str, body: impl FnOnce(inject::Fate) -> Result<(), Code>) -> Code {
    match inject::fate(call) {
        inject::Fate::Fails(code) => code,
        fate => body(fate).err().unwrap_or(0),
    }
}

/// Enqueues work, or what becomes of it: work that takes long, or a failure with this code.
fn push(stream: &Stream, fate: inject::Fate, code: Code, work: Work) {
    match fate {
        inject::Fate::FailsLater => return stream.push(Work::Fail(code)),
        inject::Fate::TakesLong => stream.push(Work::Hold),
        inject::Fate::Hangs => stream.push(Work::Hang),
        inject::Fate::Succeeds | inject::Fate::Fails(_) => {}
    }
    stream.push(work);
}

/// The device whose context is current.
fn current(driver: &Driver) -> Result<usize, Code> {
    match CURRENT.get() {
        0 => Err(INVALID_CONTEXT),
        context => Ok(driver.device_of(context)),
    }
}

/// As [`current`], and without a fault.
fn healthy(driver: &Driver) -> Result<usize, Code> {
    let device = current(driver)?;
    driver.fault(device).map(|()| device)
}

/// Returns the place of a device on the bus, on a bus that no machine has.
fn bus_id(device: usize) -> String {
    format!("FFFF:{:02X}:00.0", 0x1a + device)
}

/// # Safety
/// `to` is valid for a write.
unsafe fn give<T>(to: *mut T, value: T) -> Result<(), Code> {
    // SAFETY: by this function's contract, which is the driver's.
    unsafe { to.write(value) };
    Ok(())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> Code {
    answer("cuMemAlloc_v2", || {
        let mut driver = driver();
        let device = healthy(&driver)?;
        if bytes == 0 {
            return Err(INVALID_VALUE);
        }
        let free = SETTINGS.memory(device) - driver.used(device);
        if SETTINGS.alloc.next() != Fate::Succeeds || bytes > free {
            return Err(OUT_OF_MEMORY);
        }
        let block = Arc::new(Block::allocate(device, bytes).ok_or(OUT_OF_MEMORY)?);
        // SAFETY: the driver's contract.
        unsafe { give(address, block.start())? };
        driver.memory.blocks.insert(block.start(), block);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFree_v2(address: u64) -> Code {
    release("cuMemFree_v2", || {
        let mut driver = driver();
        let device = current(&driver)?;
        driver.memory.block(device, address, 0);
        driver.memory.free(address);
        driver.fault(device)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: u64) -> Code {
    copy("cuMemcpyHtoDAsync_v2", from as usize, to as usize, (from as usize, to), bytes, stream)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: u64) -> Code {
    copy("cuMemcpyDtoHAsync_v2", from as usize, to as usize, (to as usize, from), bytes, stream)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: u64) -> Code {
    enqueue("cuMemcpyDtoDAsync_v2", |fate| {
        let driver = driver();
        let device = healthy(&driver)?;
        // Only the target is kept: what is copied stays for the whole run.
        driver.memory.block(device, from, bytes);
        let uses = (driver.memory.block(device, to, bytes), None);
        let (from, to, flips) = (from as usize, to as usize, inject::flips());
        push(driver.stream(device, stream), fate, ECC_UNCORRECTABLE, Work::Copy { from, to, bytes, flips, uses });
        Ok(())
    })
}

fn copy(call: &'static str, from: usize, to: usize, (host, address): (usize, u64), bytes: usize, stream: u64) -> Code {
    enqueue(call, |fate| {
        let driver = driver();
        let device = healthy(&driver)?;
        let stream = driver.stream(device, stream);
        let block = driver.memory.block(device, address, bytes);
        let pinned = driver.memory.pinned(host, bytes);
        let pageable = pinned.is_none();
        match SETTINGS.copy.next() {
            Fate::Succeeds => {
                let flips = inject::flips();
                push(stream, fate, ECC_UNCORRECTABLE, Work::Copy { from, to, bytes, flips, uses: (block, pinned) });
            }
            Fate::FailsNow => return Err(INVALID_VALUE),
            Fate::FailsLater => stream.push(Work::Fail(ECC_UNCORRECTABLE)),
        }
        if pageable {
            // Like the driver, it no longer uses pageable memory when it returns.
            let mark = stream.mark();
            drop(driver);
            mark.wait();
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD8Async(to: u64, value: u8, bytes: usize, stream: u64) -> Code {
    enqueue("cuMemsetD8Async", |fate| {
        let driver = driver();
        let device = healthy(&driver)?;
        let block = driver.memory.block(device, to, bytes);
        let work = Work::Set { to: to as usize, value, bytes, _block: block };
        push(driver.stream(device, stream), fate, ECC_UNCORRECTABLE, work);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> Code {
    answer("cuMemGetInfo_v2", || {
        let driver = driver();
        let device = healthy(&driver)?;
        let memory = SETTINGS.memory(device);
        // SAFETY: the driver's contract.
        unsafe { give(free, memory - driver.used(device)).and_then(|()| give(total, memory)) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadData(module: *mut u64, image: *const c_char) -> Code {
    answer("cuModuleLoadData", || {
        let mut driver = driver();
        let device = healthy(&driver)?;
        // SAFETY: the driver's contract; the stand-in for NVRTC gives text with a zero byte at its end.
        let source = unsafe { CStr::from_ptr(image) }.to_str().map_err(|_| INVALID_IMAGE)?;
        let handle = driver.load(device, source).ok_or(INVALID_IMAGE)?;
        // SAFETY: the driver's contract.
        unsafe { give(module, handle) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(function: *mut u64, module: u64, name: *const c_char) -> Code {
    answer("cuModuleGetFunction", || {
        let mut driver = driver();
        healthy(&driver)?;
        // SAFETY: the driver's contract.
        let name = unsafe { CStr::from_ptr(name) }.to_str().map_err(|_| NOT_FOUND)?;
        let handle = driver.function(module, name).ok_or(NOT_FOUND)?;
        // SAFETY: the driver's contract.
        unsafe { give(function, handle) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncGetParamInfo(
    function: u64,
    number: usize,
    offset: *mut usize,
    bytes: *mut usize,
) -> Code {
    answer("cuFuncGetParamInfo", || {
        let driver = driver();
        healthy(&driver)?;
        let kernel = driver.kernel(function);
        let Some(parameters) = &kernel.launch.declared else {
            misuse(format_args!("the parameters of a kernel of Overshot's own are asked for"));
        };
        // Each is aligned to its size, as in a C struct.
        let place = |end: usize, bytes: usize| end.next_multiple_of(bytes);
        let own = parameters.get(number).ok_or(INVALID_VALUE)?.bytes;
        let before = parameters[..number].iter().fold(0, |end, one| place(end, one.bytes) + one.bytes);
        // SAFETY: the driver's contract.
        unsafe { give(offset, place(before, own)).and_then(|()| give(bytes, own)) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuModuleUnload(module: u64) -> Code {
    release("cuModuleUnload", || {
        let mut driver = driver();
        let device = current(&driver)?;
        driver.unload(module);
        driver.fault(device)
    })
}

#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "so the driver has it")]
pub unsafe extern "C" fn cuLaunchKernel(
    function: u64,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared_bytes: c_uint,
    stream: u64,
    arguments: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> Code {
    enqueue("cuLaunchKernel", |fate| {
        let driver = driver();
        let device = healthy(&driver)?;
        let stream = driver.stream(device, stream);
        let kernel = driver.kernel(function);
        let wanted = &kernel.columns;
        // SAFETY: by the driver's contract there is a pointer to each argument of the kernel, of at most eight bytes,
        // which Overshot passes in words.
        let argument = |i: usize| unsafe { (*arguments.add(i)).cast::<u64>().read_unaligned() };
        let place = |wanted: Argument| kernel.launch.arguments.iter().position(|argument| *argument == wanted);
        let first_row = place(Argument::FirstRow).map_or(0, argument);
        let Some(rows) = place(Argument::Rows).map(|place| argument(place) as usize) else {
            misuse(format_args!("the stand-in runs kernels that have a parameter 'rows'"));
        };
        let total_rows = place(Argument::TotalRows).map_or(0, argument);
        let address = |wanted: Argument| {
            let Some(start) = place(wanted).map(argument) else {
                misuse(format_args!("a kernel without one of its columns"))
            };
            if start % 8 != 0 {
                misuse(format_args!("a column that is not aligned"));
            }
            start
        };
        let memory = |start: u64, bytes: usize| Column {
            start: start as usize,
            bytes,
            _block: driver.memory.block(device, start, bytes),
        };
        let column = |(i, bytes): (usize, usize)| {
            let start = address(Argument::Column(i));
            if i >= wanted.inputs.len() {
                return memory(start, bytes);
            }
            let own = Columns { total_rows, ..wanted.clone() };
            let (front, bytes) = own.window_bytes(i, &(first_row..first_row + rows as u64));
            memory(start - front as u64, bytes)
        };
        let columns: Vec<Column> = wanted.bytes(rows).enumerate().map(column).collect();
        let resident = kernel.resident.iter().enumerate();
        // An array without a size of its own has a word for each tile.
        let words = 8 * (first_row as usize + rows).div_ceil(wanted.tile_rows);
        let resident = resident.map(|(i, &bytes)| (i, if bytes == 0 { words } else { bytes }));
        let resident: Vec<Column> = resident.map(|(i, bytes)| memory(address(Argument::Resident(i)), bytes)).collect();
        let values = (0..).map_while(|i| place(Argument::Value(i)).map(argument)).collect();
        let shape = [grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes];
        let blocks = rows.div_ceil(wanted.tile_rows) as u32 * kernel.launch.blocks_per_tile;
        if shape != [blocks, 1, 1, kernel.launch.threads, 1, 1, kernel.launch.shared_bytes] {
            misuse(format_args!("a launch of {rows} rows with the shape {shape:?}"));
        }
        if rows == 0 || !first_row.is_multiple_of(wanted.tile_rows as u64) {
            misuse(format_args!("a launch of {rows} rows from {first_row} on"));
        }
        let ranges: Vec<_> = columns.iter().map(|column| (column.start, column.start + column.bytes)).collect();
        let (inputs, written) = ranges.split_at(wanted.inputs.len());
        let overlap = |(k, range): (usize, &(usize, usize))| {
            inputs.iter().chain(&written[..k]).any(|other| other.0 < range.1 && range.0 < other.1)
        };
        if written.iter().enumerate().any(overlap) {
            misuse(format_args!("a column that a launch writes overlaps another: {ranges:x?}"));
        }
        match SETTINGS.launch.next() {
            Fate::Succeeds => {
                let flips = inject::flips();
                let rows = (first_row, rows, total_rows);
                let work = Work::Launch { kernel, rows, columns, resident, values, flips };
                push(stream, fate, ILLEGAL_ADDRESS, work);
            }
            Fate::FailsNow => return Err(LAUNCH_OUT_OF_RESOURCES),
            Fate::FailsLater => stream.push(Work::Fail(ILLEGAL_ADDRESS)),
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(stream: *mut u64, flags: c_uint) -> Code {
    answer("cuStreamCreate", || {
        let mut driver = driver();
        let device = healthy(&driver)?;
        if flags != 1 {
            misuse(format_args!("a stream that waits for the default stream"));
        }
        // SAFETY: the driver's contract.
        unsafe { give(stream, driver.open_stream(device)) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamSynchronize(stream: u64) -> Code {
    release("cuStreamSynchronize", || {
        let driver_now = driver();
        let device = current(&driver_now)?;
        // The default streams, which have no work here.
        if matches!(stream, 1 | 2) {
            return Ok(());
        }
        let mark = driver_now.stream(device, stream).mark();
        drop(driver_now);
        mark.wait();
        driver().fault(device)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamWaitEvent(stream: u64, event: u64, _flags: c_uint) -> Code {
    answer("cuStreamWaitEvent", || {
        let driver = driver();
        let device = healthy(&driver)?;
        if let Some(record) = driver.event(device, event) {
            driver.stream(device, stream).push(Work::Wait(record));
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamDestroy_v2(stream: u64) -> Code {
    release("cuStreamDestroy_v2", || {
        let mut driver_now = driver();
        let device = current(&driver_now)?;
        let stream = driver_now.take_stream(stream);
        drop(driver_now);
        stream.close();
        driver().fault(device)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventCreate(event: *mut u64, _flags: c_uint) -> Code {
    answer("cuEventCreate", || {
        let mut driver = driver();
        let device = healthy(&driver)?;
        // SAFETY: the driver's contract.
        unsafe { give(event, driver.make_event(device)) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventRecord(event: u64, stream: u64) -> Code {
    answer("cuEventRecord", || {
        let mut driver = driver();
        let device = healthy(&driver)?;
        let record = driver.stream(device, stream).mark();
        driver.set_event(device, event, record);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventQuery(event: u64) -> Code {
    answer("cuEventQuery", || {
        let driver = driver();
        let device = healthy(&driver)?;
        match driver.event(device, event) {
            Some(record) if record.time().is_none() => Err(NOT_READY),
            // The work before it may have failed since the look at the fault above.
            _ => driver.fault(device),
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventElapsedTime_v2(milliseconds: *mut f32, from: u64, to: u64) -> Code {
    answer("cuEventElapsedTime_v2", || {
        let driver = driver();
        let device = healthy(&driver)?;
        let time = |event| driver.event(device, event).ok_or(INVALID_HANDLE)?.time().ok_or(NOT_READY);
        let elapsed = time(to)?.saturating_duration_since(time(from)?);
        // SAFETY: the driver's contract.
        unsafe { give(milliseconds, elapsed.as_secs_f32() * 1e3) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventDestroy_v2(event: u64) -> Code {
    release("cuEventDestroy_v2", || {
        let mut driver = driver();
        let device = current(&driver)?;
        driver.destroy_event(event);
        driver.fault(device)
    })
}
