//! Tests the memory of an engine on the stand-in for the CUDA driver, which reports how much is allocated.
//!
//! Each case runs in a separate process that loads the stand-ins: this program, started again. When the engine is
//! dropped there, the stand-in ends the process if anything was not released.
#![allow(clippy::unwrap_used, reason = "in tests")]

use std::alloc::{self, Layout};
use std::env;
use std::ffi::{CStr, c_char};
use std::path::Path;
use std::process::Command;
use std::ptr;
use std::slice;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use cudarc::driver::sys;
use overshot::io::{Generator, Placement, SinkMemory, Target};
use overshot::testing::custom::{EVERYTHING, FACTOR, TABLE};
use overshot::{CancelToken, DeviceChoice, Dtype, Engine, Error, Job, Report, Sink, kernel::CustomKernel};

/// Runs an ignored test on the stand-ins.
fn run_on_standin(test: &str, settings: &[(&str, &str)]) {
    let program = env::current_exe().unwrap();
    let examples = program.parent().and_then(Path::parent).unwrap().join("examples");
    for library in ["libcuda.so", "libnvrtc.so", "libcublas.so"] {
        assert!(examples.join(library).exists(), "no stand-in: run `cargo build --examples`");
    }
    let mut command = Command::new(program);
    // Each test sets its variables itself, whatever this process runs with.
    let inherited = env::vars_os().map(|(name, _)| name).filter(|name| name.to_string_lossy().starts_with("OVERSHOT_"));
    for name in inherited {
        command.env_remove(name);
    }
    let output = command
        .args([test, "--exact", "--ignored", "--nocapture"])
        .env("LD_LIBRARY_PATH", examples)
        .env("OVERSHOT_CACHE", "")
        .envs(settings.iter().copied())
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(output.status.success() && text.contains("1 passed"), "{test} with {settings:?}: {text}");
}

/// Calls a function of the stand-in driver that reports a number.
fn standin(name: &str) -> u64 {
    // SAFETY: the stand-in is there, as an engine was made, and has functions of these names without arguments.
    unsafe { sys::culib().get::<unsafe extern "C" fn() -> u64>(name.as_bytes()).unwrap()() }
}

/// Returns the bytes of device memory and of pinned memory that are allocated from the stand-in driver.
fn taken() -> (u64, u64) {
    (standin("standinDeviceBytes"), standin("standinPinnedBytes"))
}

/// Returns the memory that the engine reports for all GPUs: in use and cached, of devices and pinned.
fn said(engine: &Engine) -> (u64, u64) {
    let memory = engine.memory();
    let sum = |of: fn(&overshot::memory::DeviceMemory) -> overshot::memory::MemoryUse| {
        memory.iter().map(of).map(|memory| memory.in_use + memory.cached).sum()
    };
    (sum(|memory| memory.device), sum(|memory| memory.pinned))
}

fn in_use(engine: &Engine) -> u64 {
    engine.memory().iter().map(|memory| memory.device.in_use + memory.pinned.in_use).sum()
}

fn engine() -> Engine {
    Engine::builder().device(DeviceChoice::Cuda).build().unwrap()
}

/// Runs a small job; there are seven of other rows, columns and dtypes.
fn small_job(engine: &Engine, number: usize) -> Report {
    let rows = [1, 5000, 100_000, 40_000, 4096, 70_000, 20_000][number % 7];
    let a: Vec<f64> = (0..rows).map(|row| (row + number) as f64).collect();
    let sum = a.iter().sum::<f64>();
    let mut c = vec![0.0f64; rows];
    let job = match number % 3 {
        0 => Job::eval("sum(a)").unwrap().input("a", &a),
        1 => Job::eval("c = a + a; sum(a)").unwrap().input("a", &a).output("c", &mut c),
        _ => Job::eval("c = a + f64(i) + b; sum(a)").unwrap().input("a", &a).input("b", &a).output("c", &mut c),
    };
    let report = engine.run(job).unwrap();
    assert_eq!(report.value("sum(a)").unwrap().unwrap().as_f64(), sum);
    let factor = [0.0, 2.0, 2.0][number % 3];
    let i = |row: usize| if number % 3 == 2 { row as f64 } else { 0.0 };
    assert!(a.iter().zip(&c).enumerate().all(|(row, (a, c))| *c == factor * a + i(row)));
    report
}

#[test]
#[ignore = "needs the stand-in driver"]
fn many_jobs() {
    let engine = engine();
    assert_eq!((said(&engine), engine.trim()), ((0, 0), 0), "before a device is opened");
    (0..10).for_each(|number| drop(small_job(&engine, number)));
    let first = taken();
    assert_eq!(said(&engine), first);
    assert!(first.0 > 0 && first.1 > 0);
    let mut most = (0, 0);
    for number in 10..1000 {
        let report = small_job(&engine, number);
        let device: u64 = report.devices.iter().map(|device| device.peak_device_bytes).sum();
        most = (most.0.max(device), most.1.max(report.peak_pinned_bytes));
        let now = taken();
        assert!(now.0 <= first.0 && now.1 <= first.1, "{now:?} after job {number}, {first:?} after the tenth");
    }
    assert_eq!(first, most, "as much as the largest job takes");
    assert_eq!(said(&engine), taken());
    assert_eq!(engine.trim(), first.0 + first.1);
    assert_eq!((taken(), said(&engine), engine.trim()), ((0, 0), (0, 0), 0));
    // Peaks count the memory in use, and are reset.
    let peaks = || engine.memory().iter().map(|memory| (memory.device.peak, memory.pinned.peak)).collect::<Vec<_>>();
    assert!(peaks().iter().all(|peak| peak.0 > 0 && peak.1 > 0));
    engine.reset_peak();
    assert!(peaks().iter().all(|peak| *peak == (0, 0)));
    small_job(&engine, 5);
    assert!(peaks().iter().all(|peak| peak.0 > 0 && peak.1 > 0));
    drop(engine);
    assert_eq!(taken(), (0, 0));
}

#[test]
#[ignore = "needs the stand-in driver"]
fn many_jobs_at_once() {
    const THREADS: u64 = 4;
    let engine = engine();
    (0..21).for_each(|number| drop(small_job(&engine, number)));
    let one = taken();
    std::thread::scope(|scope| {
        for thread in 0..THREADS as usize {
            let engine = &engine;
            scope.spawn(move || {
                for number in 0..250 {
                    small_job(engine, 5 * thread + number);
                    let now = taken();
                    assert!(now.0 <= THREADS * one.0 && now.1 <= THREADS * one.1, "{now:?}, and {one:?} for one job");
                }
            });
        }
    });
    assert_eq!((said(&engine), in_use(&engine)), (taken(), 0));
    let all = taken();
    assert_eq!((engine.trim(), taken()), (all.0 + all.1, (0, 0)));
}

#[test]
#[ignore = "needs the stand-in driver"]
fn failed_jobs() {
    let rows = 300_000;
    let engine = Engine::builder().device(DeviceChoice::Cuda).chunk(1 << 16).build().unwrap();
    let a: Vec<f64> = (0..rows).map(f64::from).collect();
    let mut c = vec![0.0; a.len()];
    // An input of the caller fails: no memory is cached, and none is lost.
    let chunks = AtomicU64::new(0);
    let token = CancelToken::new();
    let job = Job::eval("c = a").unwrap().input("a", &a).output("c", &mut c).cancel_token(token.clone());
    let stop = |_| {
        if chunks.fetch_add(1, Ordering::Relaxed) == 3 {
            token.cancel();
        }
    };
    assert!(matches!(engine.run(job.progress(stop)), Err(Error::Cancelled { .. })));
    assert_eq!((taken(), said(&engine)), ((0, 0), (0, 0)));
    let source = Generator::new(u64::from(rows as u32), |first, out: &mut [f64]| {
        assert!(first < 100_000, "on purpose");
        out.fill(1.0);
    });
    let panics = engine.run(Job::eval("sum(x)").unwrap().input("x", source)).unwrap_err().to_string();
    assert!(panics.contains("panicked: on purpose"), "{panics}");
    assert_eq!((taken(), said(&engine)), ((0, 0), (0, 0)));
    // The driver fails in one of the next jobs, at the call or later. Memory cached before stays as it was.
    let (mut failed, mut kept) = (0, (0, 0));
    for _ in 0..12 {
        c.fill(f64::NAN);
        let job = Job::eval("c = a + 1; sum(a)").unwrap().input("a", &a).output("c", &mut c);
        match engine.run(job) {
            Ok(_) => {
                assert!(a.iter().zip(&c).all(|(a, c)| a + 1.0 == *c));
                kept = taken();
                assert!(kept.0 > 0 && kept.1 > 0);
            }
            Err(error) => {
                failed += 1;
                assert!(error.to_string().contains("cuda:"), "{error}");
                let now = taken();
                assert!(now.0 <= kept.0 && now.1 <= kept.1, "{now:?} after a job that failed, {kept:?} before");
            }
        }
        assert_eq!((said(&engine), in_use(&engine)), (taken(), 0));
    }
    assert!(failed > 0, "no job failed");
    engine.trim();
    assert_eq!((taken(), said(&engine)), ((0, 0), (0, 0)));
}

#[test]
#[ignore = "needs the stand-in driver"]
fn pinned_vectors() {
    let rows = 200_000;
    let engine = engine();
    let (mut a, mut c) = (engine.pinned::<f64>(rows).unwrap(), engine.pinned::<f64>(rows).unwrap());
    let both = 2 * 8 * rows as u64;
    assert_eq!((taken(), said(&engine)), ((0, both), (0, both)));
    assert_eq!(engine.memory()[0].pinned.in_use, both, "on the first device");
    a.iter_mut().zip(0..).for_each(|(a, row)| *a = f64::from(row));
    let report = engine.run(Job::eval("c = a * 2").unwrap().input("a", &a).output("c", &mut c)).unwrap();
    assert!(c.iter().zip(0..).all(|(c, row)| *c == f64::from(2 * row)));
    assert_eq!((report.peak_pinned_bytes, taken().1), (0, both), "not a second pinned byte");
    // Its parts are pinned, too: the driver says so.
    let report = engine.run(Job::eval("c = a").unwrap().input("a", &a[1..1000]).output("c", &mut c[2..1001])).unwrap();
    assert_eq!((report.peak_pinned_bytes, c[1000]), (0, 999.0));
    // Only partial results need slots.
    let report = engine.run(Job::eval("sum(a)").unwrap().input("a", &a)).unwrap();
    assert!(report.peak_pinned_bytes > 0 && report.peak_pinned_bytes < 1 << 20, "{}", report.peak_pinned_bytes);
    engine.trim();
    drop(a);
    assert_eq!(taken(), (0, both / 2));
    drop(engine);
    assert_eq!((c[1000], taken()), (999.0, (0, both / 2)), "it outlives its engine");
}

/// Whole pages, parts of which this test registers itself.
struct Pages {
    start: *mut u8,
    layout: Layout,
    registered: Vec<*mut u8>,
}

impl Pages {
    const PAGE: usize = 4096;

    fn new(pages: usize) -> Pages {
        let layout = Layout::from_size_align(pages * Self::PAGE, Self::PAGE).unwrap();
        // SAFETY: the layout has a size.
        let start = unsafe { alloc::alloc_zeroed(layout) };
        Pages { start, layout, registered: Vec::new() }
    }

    fn register(&mut self, (first, end): Part, flags: u32) {
        assert!(first < end && end * Self::PAGE <= self.layout.size());
        // SAFETY: the pages are inside the allocation, which outlives the registration.
        unsafe {
            let start = self.start.add(first * Self::PAGE);
            let bytes = (end - first) * Self::PAGE;
            in_context(|| sys::cuMemHostRegister_v2(start.cast(), bytes, flags));
            self.registered.push(start);
        }
    }

    /// Its first numbers.
    fn numbers(&mut self, count: usize) -> &mut [f64] {
        assert!(count * 8 <= self.layout.size());
        // SAFETY: inside the allocation, aligned, initialised, and borrowed as `self` is.
        unsafe { slice::from_raw_parts_mut(self.start.cast(), count) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: registered and allocated by this.
        unsafe {
            for &start in &self.registered {
                in_context(|| sys::cuMemHostUnregister(start.cast()));
            }
            alloc::dealloc(self.start, self.layout);
        }
    }
}

/// Calls the driver as another library with the same context does, and leaves no context current.
fn in_context(call: impl FnOnce() -> sys::CUresult) {
    let mut context = ptr::null_mut();
    // SAFETY: the stand-in is there, and `context` outlives the call that writes it. The engine keeps the context.
    unsafe {
        assert_eq!(sys::cuDevicePrimaryCtxRetain(&mut context, 0), sys::CUresult::CUDA_SUCCESS);
        assert_eq!(sys::cuCtxSetCurrent(context), sys::CUresult::CUDA_SUCCESS);
        assert_eq!(call(), sys::CUresult::CUDA_SUCCESS);
        assert_eq!(sys::cuCtxSetCurrent(ptr::null_mut()), sys::CUresult::CUDA_SUCCESS);
        assert_eq!(sys::cuDevicePrimaryCtxRelease_v2(0), sys::CUresult::CUDA_SUCCESS);
    }
}

/// The first page of a registration, and the one behind its last.
type Part = (usize, usize);
const PAGES: usize = 400;

/// Runs `c = a + 1` over [`PAGES`] that are registered like this, and returns whether it was staged.
fn staged(engine: &Engine, input: &[Part], output: &[Part], flags: u32) -> bool {
    const ROWS: usize = PAGES * Pages::PAGE / 8 - 7;
    let (mut a, mut c) = (Pages::new(PAGES), Pages::new(PAGES));
    input.iter().for_each(|&part| a.register(part, 1));
    output.iter().for_each(|&part| c.register(part, flags));
    let before = taken().1;
    a.numbers(ROWS).iter_mut().zip(0..).for_each(|(a, row)| *a = f64::from(row));
    let job = Job::eval("c = a + 1").unwrap().input("a", &*a.numbers(ROWS)).output("c", c.numbers(ROWS));
    let report = engine.run(job).unwrap();
    assert!(c.numbers(ROWS).iter().zip(1..).all(|(c, row)| *c == f64::from(row)), "{input:?} {output:?}");
    engine.trim();
    assert_eq!(taken(), (0, before));
    let in_part = |parts: &[Part], flags: u32| !(parts.is_empty() || parts == [(0, PAGES)] && flags == 1);
    for (name, expected) in [("'a'", in_part(input, 1)), ("'c'", in_part(output, flags))] {
        let noted = report.notes.iter().any(|note| note.contains(name) && note.contains("not as a whole"));
        assert_eq!(noted, expected, "{:?}", report.notes);
    }
    report.peak_pinned_bytes > 0
}

#[test]
#[ignore = "needs the stand-in driver"]
fn memory_pinned_by_others() {
    let engine = engine();
    // Creates its contexts.
    small_job(&engine, 0);
    engine.trim();
    let whole: &[Part] = &[(0, PAGES)];
    assert!(!staged(&engine, whole, whole, 1), "all of it is pinned");
    assert!(staged(&engine, whole, &[], 1) && staged(&engine, &[], whole, 1), "one of two is not pinned");
    let in_part: [&[Part]; 6] =
        [&[(0, 200)], &[(200, 400)], &[(0, 100), (300, 400)], &[(0, 200), (200, 400)], &[(1, 400)], &[(0, 399)]];
    for parts in in_part {
        assert!(staged(&engine, parts, whole, 1), "input of {parts:?}");
        assert!(staged(&engine, whole, parts, 1), "output of {parts:?}");
    }
    let read_only = 1 | sys::CU_MEMHOSTREGISTER_READ_ONLY;
    assert!(staged(&engine, whole, whole, read_only), "the device may not write there");
    // Memory that the driver allocated is pinned as well.
    let mut start = ptr::null_mut();
    // SAFETY: the pointer outlives the call that writes it; that many numbers were allocated, and they are freed after
    // their last use.
    unsafe {
        in_context(|| sys::cuMemAllocHost_v2(&mut start, 8 * 100_000));
        let numbers = slice::from_raw_parts_mut(start.cast::<f64>(), 100_000);
        numbers.fill(2.0);
        let (a, c) = numbers.split_at_mut(50_000);
        let report = engine.run(Job::eval("c = a + 1").unwrap().input("a", &*a).output("c", &mut *c)).unwrap();
        assert!(report.peak_pinned_bytes == 0 && c.iter().all(|c| *c == 3.0));
        in_context(|| sys::cuMemFreeHost(start));
    }
}

/// An output that says that its rows are in one place, and whose sink has them in another.
struct Moving<'a> {
    said: &'a [u8],
    own: &'a mut [u8],
}

struct MovedSink<'a>(SinkMemory<'a>);

impl Target for Moving<'_> {
    fn name(&self) -> String {
        "moving".into()
    }
    fn place(&self) -> Placement {
        Placement::Memory
    }
    fn memory(&self) -> Option<&[u8]> {
        Some(self.said)
    }
    fn open<'s>(self: Box<Self>, dtype: Dtype, _: u64, _: Option<&[u64]>) -> overshot::Result<Box<dyn Sink + 's>>
    where
        Self: 's,
    {
        Ok(Box::new(MovedSink(SinkMemory::new(self.own, dtype).unwrap())))
    }
}

impl Sink for MovedSink<'_> {
    fn write(&self, _: u64, _: &[u8]) -> overshot::Result<()> {
        Ok(())
    }
    fn memory(&self) -> Option<&SinkMemory<'_>> {
        Some(&self.0)
    }
    fn commit(self: Box<Self>) -> overshot::Result<()> {
        Ok(())
    }
}

#[test]
#[ignore = "needs the stand-in driver"]
fn memory_that_moves() {
    let engine = engine();
    small_job(&engine, 0);
    let (mut said, mut own, a) = (Pages::new(2), vec![0.0; 512], [1.0; 512]);
    said.register((0, 1), 1);
    let output = Moving { said: bytemuck::cast_slice(said.numbers(512)), own: bytemuck::cast_slice_mut(&mut own) };
    let error = engine.run(Job::eval("c = a").unwrap().input("a", &a).output("c", output)).unwrap_err().to_string();
    assert!(error.contains("its rows stand in pinned memory, but its Sink has other memory"), "{error}");
}

#[test]
fn the_sink_has_the_memory_that_its_target_said() {
    run_on_standin("memory_that_moves", &[]);
}

/// An output in pinned memory whose sink borrows all of its rows at the end.
struct Reclaiming<'a>(&'a mut [u8]);

struct ReclaimingSink<'a>(SinkMemory<'a>);

impl Target for Reclaiming<'_> {
    fn name(&self) -> String {
        "reclaiming".into()
    }
    fn place(&self) -> Placement {
        Placement::Memory
    }
    fn memory(&self) -> Option<&[u8]> {
        Some(self.0)
    }
    fn open<'s>(self: Box<Self>, dtype: Dtype, _: u64, _: Option<&[u64]>) -> overshot::Result<Box<dyn Sink + 's>>
    where
        Self: 's,
    {
        Ok(Box::new(ReclaimingSink(SinkMemory::new(self.0, dtype).unwrap())))
    }
}

impl Sink for ReclaimingSink<'_> {
    fn write(&self, _: u64, _: &[u8]) -> overshot::Result<()> {
        unreachable!("its rows are pinned")
    }
    fn memory(&self) -> Option<&SinkMemory<'_>> {
        Some(&self.0)
    }
    fn commit(self: Box<Self>) -> overshot::Result<()> {
        let mut rows = self.0.claim(0..self.0.rows());
        rows.iter_mut().for_each(|byte| *byte = !*byte);
        Ok(())
    }
}

#[test]
#[ignore = "needs the stand-in driver"]
fn rows_that_sinks_use() {
    let engine = engine();
    small_job(&engine, 0);
    let (mut memory, a) = (Pages::new(2), [1.0; 1024]);
    memory.register((0, 2), 1);
    let output = Reclaiming(bytemuck::cast_slice_mut(memory.numbers(1024)));
    engine.run(Job::eval("c = a").unwrap().input("a", &a).output("c", output)).unwrap();
    assert!(memory.numbers(1024).iter().all(|c| c.to_bits() == !1f64.to_bits()));
}

#[test]
fn a_sink_may_use_its_pinned_memory_after_the_run() {
    run_on_standin("rows_that_sinks_use", &[]);
}

#[test]
#[ignore = "needs the stand-in driver"]
fn rows_of_the_next_pass() {
    let engine = Engine::builder().device(DeviceChoice::Cuda).chunk(1 << 16).workers(2).build().unwrap();
    let mut x = engine.pinned::<f64>(300_000).unwrap();
    x.iter_mut().zip(0..).for_each(|(x, row)| *x = f64::from(row));
    let ordinary = x.to_vec();
    let before = said(&engine);
    let mut least = 0;
    // Staged, and in place.
    for x in [&ordinary[..], &x[..]] {
        let (mut moved, mut most, mut passes) = (standin("standinCopiedBytes"), (0, 0), 0.0);
        let job = Job::eval("m = mean(x - c)").unwrap().input("x", x).scalar("c", 0.0);
        engine
            .passes(job, |run| {
                while passes < 20.0 {
                    let report = run.run()?;
                    run.set("c", passes + 1.0)?;
                    assert_eq!(report.value("m").unwrap().unwrap().as_f64(), 149_999.5 - passes);
                    assert!(
                        passes == 0.0 || report.bytes_ahead >= least && report.bytes_ahead < report.bytes_to_device
                    );
                    // What is copied now is of the next pass, which has no values yet.
                    moved += report.bytes_to_device + report.bytes_from_device;
                    let begin = Instant::now();
                    while standin("standinCopiedBytes") <= moved {
                        assert!(
                            begin.elapsed() < Duration::from_secs(60),
                            "nothing is copied before the values are known"
                        );
                        thread::yield_now();
                    }
                    least = 4096 * 8;
                    let now = taken();
                    most = (now.0.max(most.0), now.1.max(most.1));
                    if passes == 1.0 {
                        engine.reset_peak();
                    }
                    passes += 1.0;
                }
                Ok(())
            })
            .unwrap();
        assert_eq!((in_use(&engine), said(&engine)), (before.1, taken()));
        assert_eq!(taken(), most, "two passes at once have had it, and no more");
    }
    engine.trim();
    assert_eq!(taken(), before);
}

#[test]
#[ignore = "needs the stand-in driver"]
fn failed_passes() {
    let engine = Engine::builder().device(DeviceChoice::Cuda).chunk(1 << 16).build().unwrap();
    let x: Vec<f64> = (0..300_000).map(f64::from).collect();
    let mut failed = 0;
    for _ in 0..6 {
        let job = Job::eval("sum(x * c)").unwrap().input("x", &x).scalar("c", 1.0);
        let result = engine.passes(job, |passes| {
            for _ in 0..4 {
                let report = passes.run()?;
                assert_eq!(report.value("sum(x * c)").unwrap().unwrap().as_f64(), 44_999_850_000.0);
            }
            Ok(())
        });
        if let Err(error) = result {
            failed += 1;
            assert!(error.to_string().contains("cuda:"), "{error}");
        }
        assert_eq!((said(&engine), in_use(&engine)), (taken(), 0));
    }
    assert!(failed > 0, "no pass failed");
    engine.trim();
    assert_eq!((taken(), said(&engine)), ((0, 0), (0, 0)));
}

#[test]
#[ignore = "needs the stand-in driver"]
fn looking_opens_nothing() {
    let engine = engine();
    let mut pages = Pages::new(10);
    let numbers = pages.numbers(100);
    let plan = engine.plan(&Job::eval("c = a").unwrap().input("a", &[0.0; 100]).output("c", numbers)).unwrap();
    assert!(plan.devices[0].pinned_bytes > 0);
    assert_eq!((engine.memory().len(), engine.trim()), (1, 0));
    engine.reset_peak();
    let mut context = ptr::null_mut();
    let (mut flags, mut active) = (0, 1);
    // SAFETY: the stand-in is there; all outlive the calls.
    unsafe {
        assert_eq!(sys::cuCtxGetCurrent(&mut context), sys::CUresult::CUDA_SUCCESS);
        assert_eq!(sys::cuDevicePrimaryCtxGetState(0, &mut flags, &mut active), sys::CUresult::CUDA_SUCCESS);
    }
    assert!(context.is_null() && active == 0);
}

/// Device memory that another program uses.
struct Occupied(sys::CUdeviceptr);

impl Occupied {
    /// Leaves this number of bytes free.
    fn all_but(bytes: usize) -> Occupied {
        let (mut start, mut free, mut all) = (0, 0, 0);
        // SAFETY: the stand-in is there; all outlive the calls that write them.
        in_context(|| unsafe { sys::cuMemGetInfo_v2(&mut free, &mut all) });
        // SAFETY: as above.
        in_context(|| unsafe { sys::cuMemAlloc_v2(&mut start, free - bytes) });
        Occupied(start)
    }
}

impl Drop for Occupied {
    fn drop(&mut self) {
        // SAFETY: allocated by this, and used by nobody.
        in_context(|| unsafe { sys::cuMemFree_v2(self.0) });
    }
}

/// Returns the number of calls of a function of the driver.
fn calls(function: &CStr) -> u64 {
    // SAFETY: the stand-in is there, has a function of this type and name, and reads a name that outlives the call.
    unsafe {
        let calls = sys::culib().get::<unsafe extern "C" fn(*const c_char) -> u64>(b"standinCalls").unwrap();
        calls(function.as_ptr())
    }
}

#[test]
#[ignore = "needs the stand-in driver"]
fn shortage_beside_others() {
    let engine = Engine::builder().device(DeviceChoice::Cuda).chunk(1 << 20).build().unwrap();
    let rows = 1_000_000;
    let fill = |first: u64, rows: &mut [f64]| rows.iter_mut().zip(first..).for_each(|(x, row)| *x = row as f64);
    let first_run = Job::eval("sum(x)").unwrap().input("x", Generator::new(rows, fill));
    let plan = engine.run(first_run).unwrap().devices[0].peak_device_bytes;
    engine.trim();
    let _occupied = Occupied::all_but(plan as usize + 4096);
    // The first run holds its memory until the second has found none.
    let found_none = OnceLock::new();
    let (reads, has_memory) = channel();
    let waits = |first: u64, rows: &mut [f64]| {
        let _ = reads.send(());
        found_none.wait();
        fill(first, rows);
    };
    let holds = Job::eval("sum(x)").unwrap().input("x", Generator::new(rows, waits));
    let finds_none = Job::eval("sum(x)").unwrap().input("x", Generator::new(rows, fill));
    let run = |job: Job<'_>| engine.run(job).map(|report| report.value("sum(x)").unwrap().unwrap().as_f64());
    let sums = thread::scope(|scope| {
        let holds = scope.spawn(|| run(holds));
        has_memory.recv().unwrap();
        let before = calls(c"cuMemAlloc_v2");
        let finds_none = scope.spawn(|| run(finds_none));
        let begin = Instant::now();
        // A chunk size was given, so the second run tries a whole block, and nothing smaller.
        while calls(c"cuMemAlloc_v2") == before && begin.elapsed() < Duration::from_secs(60) {
            thread::yield_now();
        }
        found_none.set(()).unwrap();
        [holds.join().unwrap(), finds_none.join().unwrap()]
    });
    assert_eq!(sums.map(Result::unwrap), [499_999_500_000.0; 2], "the second run waited");
}

#[test]
#[ignore = "needs the stand-in driver"]
fn shortage_of_the_next_pass() {
    let engine = engine();
    let x: Vec<f64> = (0..1_000_000).map(f64::from).collect();
    let passes = |count: u32| {
        let job = Job::eval("m = mean(x - c)").unwrap().input("x", &x).scalar("c", 0.0);
        engine.passes(job, |passes| {
            for pass in 1..count {
                let report = passes.run()?;
                assert_eq!(report.value("m").unwrap().unwrap().as_f64(), 499_999.5 - f64::from(pass - 1));
                passes.set("c", f64::from(pass))?;
            }
            passes.run()
        })
    };
    let report = passes(2).unwrap();
    engine.trim();
    // Enough for one pass, and half a block more: the next pass could only have smaller chunks.
    let half = report.devices[0].chunk_rows as usize * 8 / 2;
    let _occupied = Occupied::all_but(report.devices[0].peak_device_bytes as usize + half);
    let notes = passes(3).unwrap().notes;
    assert!(notes.iter().any(|note| note.contains("passes ran one after the other")), "{notes:?}");
}

#[test]
#[ignore = "needs the stand-in driver"]
fn shortage_of_cached_memory() {
    let engine = Engine::builder().device(DeviceChoice::Cuda).chunk(1 << 20).build().unwrap();
    let x: Vec<f64> = (0..1_000_000).map(f64::from).collect();
    let fills = || engine.run(Job::eval("sum(x)").unwrap().input("x", &x)).unwrap().devices[0].peak_device_bytes;
    let bytes = fills();
    let _occupied = Occupied::all_but(4096);
    // The kernel needs an array beside its blocks, and there is no memory but that which the first run left.
    let table: Vec<f64> = TABLE.iter().copied().cycle().take(bytes as usize / 32).collect();
    // SAFETY: it touches the rows of its columns, in blocks of 100, and the first seven numbers of its table.
    let call = unsafe {
        let kernel = CustomKernel::cuda("everything.cu", EVERYTHING, "everything").unwrap();
        kernel.threads(64).rows_per_block(100).call().scalar("a", FACTOR).resident("table", &table).scratch("work")
    };
    let (rows, a) = (1000, vec![1f32; 3000]);
    let (mut y, mut z) = (vec![0.0; rows], vec![0f32; 2 * rows]);
    engine.run(Job::kernel(call).input("x", &a).output("y", &mut y).output("z", &mut z)).unwrap();
    assert!(y.iter().zip(TABLE.iter().cycle()).all(|(y, entry)| *y == entry + 2.0 * f64::from(FACTOR)));
}

#[test]
#[ignore = "needs the stand-in driver"]
fn shortage_beside_another_engine() {
    let [one, other] = [engine(), engine()];
    let x: Vec<f64> = (0..1_000_000).map(f64::from).collect();
    let run = |engine: &Engine| {
        let report = engine.run(Job::eval("sum(x)").unwrap().input("x", &x)).unwrap();
        assert_eq!(report.value("sum(x)").unwrap().unwrap().as_f64(), 499_999_500_000.0);
        assert!(!report.notes.iter().any(|note| note.contains("memory")), "{:?}", report.notes);
    };
    // Both have their contexts then.
    [&one, &other].into_iter().for_each(run);
    let cached = |engine: &Engine| engine.memory()[0].device.cached;
    let bytes = cached(&one);
    assert!(bytes > 0 && cached(&other) == bytes);
    other.trim();
    let _occupied = Occupied::all_but(4096);
    run(&other);
    assert_eq!((cached(&one), cached(&other)), (0, bytes));
    run(&one);
    assert_eq!((cached(&one), cached(&other)), (bytes, 0));
}

#[test]
#[ignore = "needs the stand-in driver"]
fn arrays_beside_cached_memory() {
    let engine = Engine::builder().device(DeviceChoice::Cuda).chunk(1 << 20).build().unwrap();
    // Creates its contexts.
    small_job(&engine, 2);
    engine.trim();
    let _occupied = Occupied::all_but(16 << 20);
    let ranges = || engine.sharded::<f64>(4 << 20).unwrap().on_devices();
    let before = ranges();
    small_job(&engine, 2);
    assert!(engine.memory()[0].device.cached > 0);
    assert_eq!(ranges(), before, "memory that a run left counts as free");
}

#[test]
fn arrays_have_the_memory_that_runs_left() {
    run_on_standin("arrays_beside_cached_memory", &[]);
}

#[test]
fn runs_that_find_too_little_memory_wait_for_others() {
    run_on_standin("shortage_beside_others", &[]);
}

#[test]
fn passes_that_find_too_little_memory_run_one_after_the_other() {
    run_on_standin("shortage_of_the_next_pass", &[]);
}

#[test]
fn cached_memory_is_freed_for_a_run_that_finds_too_little() {
    run_on_standin("shortage_of_cached_memory", &[]);
}

#[test]
fn memory_that_another_engine_keeps_is_freed_for_a_run() {
    run_on_standin("shortage_beside_another_engine", &[]);
}

#[test]
fn a_thousand_jobs_take_no_more_than_ten() {
    run_on_standin("many_jobs", &[]);
    run_on_standin("many_jobs", &[("OVERSHOT_STANDIN_DEVICES", "2"), ("OVERSHOT_STANDIN_SEED", "1")]);
}

#[test]
fn jobs_at_once_take_no_more_than_each_of_them() {
    run_on_standin("many_jobs_at_once", &[]);
    run_on_standin("many_jobs_at_once", &[("OVERSHOT_STANDIN_SEED", "2")]);
}

#[test]
fn jobs_that_fail_leave_nothing() {
    for (what, when) in [
        ("OVERSHOT_STANDIN_FAIL_COPY", "150"),
        ("OVERSHOT_STANDIN_FAIL_COPY", "150:later"),
        ("OVERSHOT_STANDIN_FAIL_LAUNCH", "90"),
        ("OVERSHOT_STANDIN_FAIL_LAUNCH", "90:later"),
        ("OVERSHOT_STANDIN_FAIL_PIN", "3"),
    ] {
        run_on_standin("failed_jobs", &[(what, when)]);
        run_on_standin("failed_jobs", &[(what, when), ("OVERSHOT_STANDIN_SEED", "3")]);
    }
}

#[test]
fn passes_that_fail_leave_nothing() {
    for (what, when) in [
        ("OVERSHOT_STANDIN_FAIL_COPY", "150"),
        ("OVERSHOT_STANDIN_FAIL_COPY", "150:later"),
        ("OVERSHOT_STANDIN_FAIL_LAUNCH", "90"),
        ("OVERSHOT_STANDIN_FAIL_LAUNCH", "90:later"),
        ("OVERSHOT_STANDIN_FAIL_PIN", "2"),
    ] {
        run_on_standin("failed_passes", &[(what, when)]);
        run_on_standin("failed_passes", &[(what, when), ("OVERSHOT_STANDIN_SEED", "3")]);
    }
}

#[test]
fn rows_of_the_next_pass_are_there_before_its_values() {
    run_on_standin("rows_of_the_next_pass", &[]);
    run_on_standin("rows_of_the_next_pass", &[("OVERSHOT_STANDIN_DEVICES", "2"), ("OVERSHOT_STANDIN_SEED", "1")]);
}

#[test]
fn pinned_vectors_are_used_in_place() {
    run_on_standin("pinned_vectors", &[]);
    run_on_standin("pinned_vectors", &[("OVERSHOT_STANDIN_DEVICES", "2")]);
}

#[test]
fn memory_that_others_pinned_is_used_in_place() {
    run_on_standin("memory_pinned_by_others", &[]);
    run_on_standin("memory_pinned_by_others", &[("OVERSHOT_STANDIN_DEVICES", "2"), ("OVERSHOT_STANDIN_SEED", "1")]);
}

#[test]
fn looking_at_memory_opens_nothing() {
    run_on_standin("looking_opens_nothing", &[]);
}
