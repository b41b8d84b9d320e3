//! The contract of [`Device`] and [`Stream`], as a test that every device must pass.

mod by_key;
mod matrix_products;
mod products;

use std::alloc::{self, Layout};
use std::slice;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::kernel::{Kernel, ScalarArgs, SharedKernel, TILE_ROWS, Uniform};
use super::{Device, Host as _, Stream, probe};
use crate::error::{Error, Result};
pub(crate) use matrix_products::check_failed_matrix_product;
pub(crate) use products::check_failed_product;

const PAGE: usize = 4096;
/// Two tiles and a part of a third, so that the last tile is short.
const ROWS: usize = 2 * TILE_ROWS + 100;
const COLUMN: usize = 3 * TILE_ROWS * 8;
const WORDS: usize = COLUMN / 8;

/// Checks the whole contract; panics at the first violation. The device has at least 64 MiB of free memory, and less
/// than 1 PiB.
pub(crate) fn check<D: Device>(device: &D) {
    a_copy_comes_back(device);
    partial_copies_go_where_they_belong(device);
    zeros_go_where_they_belong(device);
    a_kernel_does_what_its_twin_does(device);
    a_kernel_is_launched_only_with_its_values(device);
    columns_lie_in_any_memory(device);
    what_is_allocated_is_not_free(device);
    a_stream_waits_for_the_latest_record(device);
    an_event_that_was_never_recorded_is_done(device);
    running_out_of_memory_leaves_the_device_usable(device);
    pageable_memory_can_be_copied(device);
    time_passes_on_the_device(device);
    a_dropped_stream_is_done_with_host_memory(device);
    all_may_be_dropped_in_any_order(device);
    workers_work_side_by_side(device);
    products::check(device);
    matrix_products::check(device);
    by_key::check(device);
}

/// Checks that the device stays usable after a failed allocation. The next allocation on `device` fails.
pub(crate) fn check_failed_allocation<D: Device>(device: &D) {
    let error = device.allocate(PAGE).err().expect("this allocation was to fail");
    assert!(matches!(error, Error::OutOfMemory { bytes, .. } if bytes == PAGE as u64), "{error}");
    a_copy_comes_back(device);
}

/// Checks that a failure of asynchronous work is returned by a call or by the wait. One of the next copies or
/// launches on `device` fails.
pub(crate) fn check_failed_work<D: Device>(device: &D) {
    let error = run_probe(device, &Host::filled(3)).expect_err("this run was to fail");
    assert!(error.to_string().contains(&device.info().id), "names the device: {error}");
}

fn a_copy_comes_back<D: Device>(device: &D) {
    let (source, target) = (Host::filled(1), Host::filled(2));
    let memory = device.allocate(COLUMN).unwrap();
    let (mut stream, mut host) = (device.open_stream().unwrap(), device.host(Instant::now()));
    let event = device.event(false).unwrap();
    // SAFETY: the memory is page-aligned, and unpinned before it is freed.
    let pins = unsafe { [source.pin(device), target.pin(device)] };
    // SAFETY: both buffers have `COLUMN` bytes, as the device memory, and are left alone until the wait below.
    unsafe {
        stream.copy_in(source.start, &memory, 0, COLUMN).unwrap();
        stream.copy_out(&memory, 0, target.start, COLUMN).unwrap();
    }
    stream.record(&event).unwrap();
    host.synchronize(&event).unwrap();
    assert!(host.query(&event).unwrap(), "an event that was waited for is done");
    drop(pins);
    assert_eq!(target.words(), source.words());
}

fn partial_copies_go_where_they_belong<D: Device>(device: &D) {
    let (source, target) = (Host::filled(1), Host::filled(2));
    let memory = device.allocate(2 * COLUMN).unwrap();
    let (mut stream, mut host) = (device.open_stream().unwrap(), device.host(Instant::now()));
    let event = device.event(false).unwrap();
    // SAFETY: all ranges are inside the buffers and the memory; both are left alone until the wait below.
    unsafe {
        stream.copy_in(source.start, &memory, COLUMN, COLUMN).unwrap();
        stream.copy_in(source.start.add(800), &memory, COLUMN + 80, 24).unwrap();
        stream.copy_out(&memory, COLUMN + 8, target.start, COLUMN - 8).unwrap();
    }
    stream.record(&event).unwrap();
    host.synchronize(&event).unwrap();
    let mut expected = source.words().to_vec();
    expected.copy_within(100..103, 10);
    assert_eq!(target.words()[..WORDS - 1], expected[1..]);
}

fn zeros_go_where_they_belong<D: Device>(device: &D) {
    let (source, target) = (Host::filled(1), Host::filled(2));
    let memory = device.allocate(COLUMN).unwrap();
    let (mut stream, mut host) = (device.open_stream().unwrap(), device.host(Instant::now()));
    let event = device.event(false).unwrap();
    // SAFETY: all ranges are inside the buffers and the memory; both are left alone until the wait below.
    unsafe {
        stream.copy_in(source.start, &memory, 0, COLUMN).unwrap();
        stream.zero(&memory, 80, 4001).unwrap();
        stream.copy_out(&memory, 0, target.start, COLUMN).unwrap();
    }
    stream.record(&event).unwrap();
    host.synchronize(&event).unwrap();
    let mut expected = source.words().to_vec();
    bytemuck::cast_slice_mut::<u64, u8>(&mut expected)[80..4081].fill(0);
    assert_eq!(target.words(), expected);
}

/// Runs the probe with each column in a separate allocation, none at its start.
fn columns_lie_in_any_memory<D: Device>(device: &D) {
    let (source, target) = (Host::filled(3), Host::filled(4));
    let kernel = device.load(&probe()).unwrap();
    let memory = [0; 3].map(|_| device.allocate(COLUMN + 64).unwrap());
    let mut stream = device.open_stream().unwrap();
    let event = device.event(false).unwrap();
    let columns = [(&memory[2], 64), (&memory[0], 8), (&memory[1], 16)];
    // SAFETY: as in `run_probe`.
    unsafe {
        stream.copy_in(source.start, columns[0].0, columns[0].1, ROWS * 8).unwrap();
        stream.launch(&kernel, &columns, &[], ROWS_BEFORE, ROWS).unwrap();
        stream.copy_out(columns[1].0, columns[1].1, target.start, ROWS * 8).unwrap();
        stream.copy_out(columns[2].0, columns[2].1, target.start.add(ROWS * 8), 24).unwrap();
    }
    stream.record(&event).unwrap();
    device.host(Instant::now()).synchronize(&event).unwrap();
    let (output, sums) = on_host(&source);
    assert_eq!(target.words()[..ROWS], output);
    assert_eq!(target.words()[ROWS..ROWS + 3], sums);
}

fn what_is_allocated_is_not_free<D: Device>(device: &D) {
    let before = device.free_bytes().unwrap();
    let memory = device.allocate(32 << 20).unwrap();
    let after = device.free_bytes().unwrap();
    drop(memory);
    assert!(after < before && device.info().memory_bytes >= before, "{before} bytes, then {after}");
}

fn a_kernel_does_what_its_twin_does<D: Device>(device: &D) {
    let host = Host::filled(3);
    let (output, sums) = run_probe(device, &host).unwrap();
    assert_eq!((output, sums), on_host(&host));
}

fn a_kernel_is_launched_only_with_its_values<D: Device>(device: &D) {
    let [late, given_up] = [ScalarArgs::late(), ScalarArgs::late()];
    given_up.abandon();
    let memory = device.allocate(3 * COLUMN).unwrap();
    let launch = |values: &Arc<ScalarArgs>| {
        let kernel = Arc::new(Kernel { values: values.clone(), ..probe::probe() });
        let loaded = device.load(&kernel).unwrap();
        let mut stream = device.open_stream().unwrap();
        let columns = [0, COLUMN, 2 * COLUMN].map(|offset| (&memory, offset));
        // SAFETY: the columns have room for `ROWS` rows and their sums, and the stream is dropped, and so done,
        // before them.
        unsafe { stream.launch(&loaded, &columns, &[], ROWS_BEFORE, ROWS) }
    };
    assert!(matches!(launch(&late), Err(Error::Internal(_))));
    assert!(launch(&given_up).is_err_and(|error| error.is_abandoned()));
    late.set(vec![]);
    launch(&late).unwrap();
}

/// Runs the probe kernel on the first [`ROWS`] rows of `input`, which count from [`ROWS_BEFORE`].
fn run_probe<D: Device>(device: &D, input: &Host) -> Result<(Vec<u64>, Vec<u64>)> {
    let kernel = device.load(&probe())?;
    let memory = device.allocate(3 * COLUMN)?;
    let target = Host::filled(4);
    // Declared last: when an error ends this function, the stream is dropped first, and waits for its work.
    let mut stream = device.open_stream()?;
    let event = device.event(false)?;
    let sums = ROWS.div_ceil(TILE_ROWS);
    // SAFETY: the columns have `COLUMN` bytes each, enough for `ROWS` rows and their sums; the host's buffers have as
    // many and are left alone until the wait below.
    unsafe {
        stream.copy_in(input.start, &memory, 0, ROWS * 8)?;
        let columns = [0, COLUMN, 2 * COLUMN].map(|offset| (&memory, offset));
        stream.launch(&kernel, &columns, &[], ROWS_BEFORE, ROWS)?;
        stream.copy_out(&memory, COLUMN, target.start, ROWS * 8)?;
        stream.copy_out(&memory, 2 * COLUMN, target.start.add(ROWS * 8), sums * 8)?;
    }
    stream.record(&event)?;
    device.host(Instant::now()).synchronize(&event)?;
    let words = target.words();
    Ok((words[..ROWS].to_vec(), words[ROWS..ROWS + sums].to_vec()))
}

const ROWS_BEFORE: u64 = 5 * TILE_ROWS as u64;

fn on_host(input: &Host) -> (Vec<u64>, Vec<u64>) {
    let (mut output, mut sums) = (vec![0_u64; ROWS], vec![0_u64; ROWS.div_ceil(TILE_ROWS)]);
    probe().new_host_kernel().unwrap().run(
        ROWS_BEFORE,
        ROWS,
        &[bytemuck::cast_slice(&input.words()[..ROWS])],
        &mut [bytemuck::cast_slice_mut(&mut output)],
        bytemuck::cast_slice_mut(&mut sums),
        &Uniform::default(),
    );
    (output, sums)
}

/// One stream writes, and another waits for an event and reads. The same event is recorded again for every round.
fn a_stream_waits_for_the_latest_record<D: Device>(device: &D) {
    const ROUNDS: usize = 20;
    let memory = device.allocate(COLUMN).unwrap();
    let sources: Vec<Host> = (0..ROUNDS).map(|round| Host::filled(round as u64)).collect();
    let targets: Vec<Host> = (0..ROUNDS).map(|_| Host::filled(99)).collect();
    let (mut writer, mut reader) = (device.open_stream().unwrap(), device.open_stream().unwrap());
    let (written, read) = (device.event(false).unwrap(), device.event(false).unwrap());
    let mut host = device.host(Instant::now());
    // SAFETY: the memory is page-aligned, and unpinned before it is freed.
    let pins: Vec<D::Pin> = sources.iter().chain(&targets).map(|host| unsafe { host.pin(device) }).collect();
    for (source, target) in sources.iter().zip(&targets) {
        writer.wait(&read).unwrap();
        // SAFETY: all have `COLUMN` bytes; the host's are left alone until the waits below.
        unsafe { writer.copy_in(source.start, &memory, 0, COLUMN).unwrap() };
        writer.record(&written).unwrap();
        reader.wait(&written).unwrap();
        // SAFETY: as above.
        unsafe { reader.copy_out(&memory, 0, target.start, COLUMN).unwrap() };
        reader.record(&read).unwrap();
    }
    host.synchronize(&read).unwrap();
    host.synchronize(&written).unwrap();
    drop(pins);
    for (round, (source, target)) in sources.iter().zip(&targets).enumerate() {
        assert_eq!(target.words(), source.words(), "round {round}");
    }
}

fn an_event_that_was_never_recorded_is_done<D: Device>(device: &D) {
    let (mut stream, mut host) = (device.open_stream().unwrap(), device.host(Instant::now()));
    let event = device.event(false).unwrap();
    assert!(host.query(&event).unwrap());
    stream.wait(&event).unwrap();
    host.synchronize(&event).unwrap();
}

fn running_out_of_memory_leaves_the_device_usable<D: Device>(device: &D) {
    let bytes = 1 << 50;
    match device.allocate(bytes) {
        Err(Error::OutOfMemory { bytes: said, device: id }) => {
            assert_eq!((said, &id), (bytes as u64, &device.info().id));
        }
        Err(other) => panic!("not the error for this: {other}"),
        Ok(_) => panic!("a pebibyte of device memory"),
    }
    a_copy_comes_back(device);
}

fn pageable_memory_can_be_copied<D: Device>(device: &D) {
    let host = Host::filled(5);
    assert_eq!(run_probe(device, &host).unwrap(), on_host(&host));
}

fn time_passes_on_the_device<D: Device>(device: &D) {
    let source = Host::filled(6);
    let memory = device.allocate(COLUMN).unwrap();
    let (mut stream, mut host) = (device.open_stream().unwrap(), device.host(Instant::now()));
    let (before, after) = (device.event(true).unwrap(), device.event(true).unwrap());
    stream.record(&before).unwrap();
    for _ in 0..10 {
        // SAFETY: both have `COLUMN` bytes; the host's are left alone until the wait below.
        unsafe { stream.copy_in(source.start, &memory, 0, COLUMN).unwrap() };
    }
    stream.record(&after).unwrap();
    host.synchronize(&after).unwrap();
    assert!(host.query(&before).unwrap(), "a stream works in order");
    let elapsed = host.elapsed(&before, &after).unwrap();
    assert!(elapsed > Duration::ZERO && elapsed < Duration::from_secs(60), "{elapsed:?}");
}

fn a_dropped_stream_is_done_with_host_memory<D: Device>(device: &D) {
    let (source, target) = (Host::filled(7), Host::filled(8));
    let memory = device.allocate(COLUMN).unwrap();
    // SAFETY: the memory is page-aligned, and unpinned before it is freed.
    let pins = unsafe { [source.pin(device), target.pin(device)] };
    let mut stream = device.open_stream().unwrap();
    // SAFETY: all have `COLUMN` bytes; the host's are left alone until the stream is dropped.
    unsafe {
        stream.copy_in(source.start, &memory, 0, COLUMN).unwrap();
        stream.copy_out(&memory, 0, target.start, COLUMN).unwrap();
    }
    drop(stream);
    drop(pins);
    assert_eq!(target.words(), source.words());
}

fn all_may_be_dropped_in_any_order<D: Device>(device: &D) {
    let kernel = device.load(&probe()).unwrap();
    let again = device.load(&probe()).unwrap();
    let memory = device.allocate(PAGE).unwrap();
    let stream = device.open_stream().unwrap();
    let event = device.event(true).unwrap();
    let host = device.host(Instant::now());
    drop(stream);
    drop(kernel);
    drop(host);
    drop(memory);
    drop(event);
    drop(again);
}

fn workers_work_side_by_side<D: Device>(device: &D) {
    std::thread::scope(|scope| {
        for worker in 0..4 {
            scope.spawn(move || {
                for turn in 0..5 {
                    let host = Host::filled(10 * worker + turn);
                    assert_eq!(run_probe(device, &host).unwrap(), on_host(&host), "worker {worker}, turn {turn}");
                }
            });
        }
    });
}

fn probe() -> SharedKernel {
    Arc::new(probe::probe())
}

/// [`COLUMN`] bytes of page-aligned host memory. A raw pointer, because copies access it without the compiler's
/// knowledge.
struct Host {
    start: *mut u8,
}

impl Host {
    const LAYOUT: Layout = match Layout::from_size_align(COLUMN, PAGE) {
        Ok(layout) => layout,
        Err(_) => panic!("a page is a power of two"),
    };

    fn filled(seed: u64) -> Host {
        // SAFETY: the layout has a size.
        let start = unsafe { alloc::alloc_zeroed(Self::LAYOUT) };
        assert!(!start.is_null());
        let mut host = Host { start };
        for (i, word) in (0_u64..).zip(host.words_mut()) {
            *word = (seed << 32 | i).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        host
    }

    /// Returns the content. No copy into it may be in flight.
    fn words(&self) -> &[u64] {
        // SAFETY: allocated with that size, aligned to a page and initialised.
        unsafe { slice::from_raw_parts(self.start.cast(), WORDS) }
    }

    fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: as above, and borrowed for writing.
        unsafe { slice::from_raw_parts_mut(self.start.cast(), WORDS) }
    }

    /// # Safety
    /// The pin is dropped before `self`.
    unsafe fn pin<D: Device>(&self, device: &D) -> D::Pin {
        // SAFETY: page-aligned; the caller keeps it mapped.
        unsafe { device.pin(self.start, COLUMN).unwrap() }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { alloc::dealloc(self.start, Self::LAYOUT) };
    }
}
