//! Concurrent jobs, nested jobs, threads that wait for each other, and sources, sinks and devices that fail or
//! misbehave.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Condvar, Mutex, OnceLock};
use std::thread;

use overshot::testing::custom::{everything, keep};
use overshot::{
    CancelToken, DeviceChoice, Dtype, Engine, Error, Job, Sink, Source,
    device::{Emulated, Fault, FaultAt},
    io::{ColumnError, Placement, SinkMemory, Target},
};
use rayon::prelude::*;
use rayon::{ThreadBuilder, ThreadPoolBuilder};

use crate::harness::{Case, EmulatedCase, Module, NO_CASES, Outcome, check, cpu, each_pass, numbers};
use crate::rows::{self, builder, has_memory};

const CASES: &[(&str, Case)] = &[
    ("passes from every thread of the caller's pool", passes_in_a_pool),
    ("rows across the end of a shard, read from every thread of the caller's pool", shards_in_a_pool),
    ("a source that fails while other chunks wait for its place", fails_where_rows_are_kept),
    ("64 threads run jobs within the limits of one engine", many_threads),
    ("nested runs do not wait", nested),
    ("a job that is cancelled does not wait for memory", cancelled_in_line),
    ("a dataset whose source changes its dtype", liar),
    ("a sink that holds a claim on its rows", holder),
];

const EMULATED: &[(&str, EmulatedCase)] =
    &[("every call fails on demand", faults), ("a run with smaller chunks leaves memory to others", leaves_memory)];

pub const MODULE: Module =
    Module { name: "contention", cases: CASES, emulated: EMULATED, counts_memory: true, ..NO_CASES };

/// Runs a case in a pool of three threads. They end before it returns: LeakSanitizer does not always find the stacks of
/// threads that still run at the end of a process, and then reports what only those refer to.
fn in_pool(case: impl FnOnce() -> Outcome + Send) -> Outcome {
    ThreadPoolBuilder::new().num_threads(3).build_scoped(ThreadBuilder::run, |pool| pool.install(case))?
}

fn passes_in_a_pool(choice: &DeviceChoice) -> Outcome {
    // A staging slab of several huge pages.
    let engine = Engine::builder().device(choice.clone()).chunk(1 << 20).build()?;
    let x = numbers(600_000, 1);
    let expected = rows::bits(&cpu().run(Job::eval("sum(x + c)")?.input("x", &x).scalar("c", 2.0))?);
    let passes = |_| {
        let mut passes = 0;
        let job = Job::eval("sum(x + c)")?.input("x", &x).scalar("c", 0.0);
        let last = each_pass(&engine, job, |_| {
            passes += 1;
            (passes < 3).then_some([("c", f64::from(passes))])
        })?;
        check(rows::bits(&last) == expected, "another result")
    };
    in_pool(|| (0..6u32).into_par_iter().try_for_each(passes))
}

fn shards_in_a_pool(choice: &DeviceChoice) -> Outcome {
    let engine = builder(choice).chunk(20_000).workers(2).build()?;
    // Three elements per row, so that a tile lies across the end of a shard, and more rows than the devices can hold.
    let rows = (rows::device_bytes(&engine) / 12) as usize + 100_000;
    let x: Vec<f32> = (0..rows * 3).map(|i| (i % 100) as f32).collect();
    let shard = engine.shard(&x)?;
    let run = |_| {
        let (mut y, mut z) = (vec![0.0; rows], vec![0f32; 2 * rows]);
        engine.run(Job::kernel(everything()).input("x", &shard).output("y", &mut y).output("z", &mut z))?;
        check((0..rows).all(|i| z[2 * i] == x[3 * i + 2] && z[2 * i + 1] == x[3 * i]), "wrong rows")
    };
    in_pool(|| (0..6u32).into_par_iter().try_for_each(run))
}

/// Rows of which one read fails. It waits until all other rows that can be in flight were read, so that other chunks
/// wait for its place.
struct Failing<'a> {
    rows: &'a [f64],
    /// Reads before the one that fails.
    left: AtomicU64,
    reads: AtomicU64,
    panics: bool,
}

impl Source for Failing<'_> {
    fn dtype(&self) -> Dtype {
        Dtype::F64
    }

    fn rows(&self) -> u64 {
        self.rows.len() as u64
    }

    fn name(&self) -> String {
        "failing".into()
    }

    fn read(&self, first: u64, to: &mut [u8]) -> overshot::Result<()> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        if self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            // Meanwhile, other workers proceed as far as they can. The verdict does not depend on how far.
            (0..200).for_each(|_| thread::yield_now());
            if self.panics {
                panic!("on demand");
            }
            return Err(Error::other("on demand"));
        }
        let first = first as usize;
        to.copy_from_slice(bytemuck::cast_slice(&self.rows[first..first + to.len() / 8]));
        Ok(())
    }
}

fn fails_where_rows_are_kept(choice: &DeviceChoice) -> Outcome {
    let x: Vec<f64> = (0..60_000).map(|i| f64::from(i % 100)).collect();
    let engine = builder(choice).chunk(30_000).workers(4).build()?;
    let (mut failed, mut went_well) = (0, 0);
    for panics in [false, true] {
        for left in 1..40 {
            let source = Failing { rows: &x, left: left.into(), reads: AtomicU64::new(0), panics };
            let (mut big, mut at) = (vec![0f64; x.len()], vec![0i64; x.len()]);
            let job = Job::kernel(&keep()).input("x", &source).output("big", &mut big).output("where", &mut at);
            let run = engine.run(job).map(drop);
            let is_right = match (&run, source.reads.into_inner() >= left) {
                (Err(error), true) => {
                    let text = error.to_string();
                    text.contains("on demand") && text.contains("(failing) panicked") == panics
                }
                (Ok(()), false) => true,
                _ => false,
            };
            check(is_right, format!("read {left}: {run:?}"))?;
            failed += u32::from(run.is_err());
            went_well += u32::from(run.is_ok());
            check(rows::in_use(&engine) == 0, "memory comes back")?;
        }
    }
    check(failed > 10, format!("{failed} runs failed and {went_well} went well"))
}

/// Runs a job of one of three kinds.
fn one(engine: &Engine, k: u64) -> overshot::Result<()> {
    let rows = 20_000 + (k as usize * 7919) % 100_000;
    let x: Vec<f64> = (0..rows as u64).map(|i| ((i + k) % 1000) as f64).collect();
    let sum = Some(x.iter().sum::<f64>());
    let found = |report: &overshot::Report| report.value("sum(x)").unwrap().map(|value| value.as_f64());
    match k % 3 {
        0 => assert_eq!(found(&engine.run(Job::eval("sum(x)")?.input("x", &x))?), sum),
        1 => {
            let mut y = vec![0.0; rows];
            let report = engine.run(Job::eval("y = x + 1; sum(x)")?.input("x", &x).output("y", &mut y))?;
            assert!(found(&report) == sum && x.iter().zip(&y).all(|(x, y)| x + 1.0 == *y));
        }
        _ => {
            let mut passes = 0;
            let job = Job::eval("sum(x), sum(x + c)")?.input("x", &x).scalar("c", 0.0);
            each_pass(engine, job, |report| {
                assert_eq!(found(report), sum);
                passes += 1;
                (passes < 3).then_some([("c", f64::from(passes))])
            })?;
        }
    }
    Ok(())
}

fn many_threads(choice: &DeviceChoice) -> Outcome {
    let limit = 4 << 20;
    let engine = builder(choice).device_memory(limit).pinned_memory(limit).build()?;
    thread::scope(|scope| -> Outcome {
        let run = |t: u64| {
            let engine = &engine;
            scope.spawn(move || (0..6).try_for_each(|k| one(engine, t * 6 + k)))
        };
        let threads: Vec<_> = (0..64).map(run).collect();
        threads.into_iter().try_for_each(|thread| Ok(thread.join().unwrap()?))
    })?;
    for memory in engine.memory() {
        let both = [memory.device, memory.pinned];
        check(both.iter().all(|memory| memory.in_use == 0), "memory comes back")?;
        check(both.iter().all(|memory| memory.peak <= limit && memory.cached <= limit), format!("{memory}"))?;
        check(!has_memory(&engine) || memory.id == "cpu" || memory.device.peak > 0, format!("nothing used: {memory}"))?;
    }
    Ok(())
}

/// Returns an engine whose limit is exactly what the plan of a job over `x` takes, so that no two such jobs
/// have memory at the same time.
fn for_one_job(choice: &DeviceChoice, x: &[f64]) -> overshot::Result<(Engine, u64)> {
    let builder = || builder(choice).chunk(64 << 10).workers(2);
    let plan = builder().build()?.plan(&Job::eval("sum(x)")?.input("x", x))?;
    let bytes = plan.devices.iter().map(|device| device.device_bytes).max().unwrap_or(0).max(1);
    Ok((builder().device_memory(bytes).build()?, bytes))
}

/// A source that does something before each read.
struct Before<'a, F> {
    rows: &'a [f64],
    before: F,
}

impl<F: Fn() -> overshot::Result<()> + Send + Sync> Source for Before<'_, F> {
    fn dtype(&self) -> Dtype {
        Dtype::F64
    }

    fn rows(&self) -> u64 {
        self.rows.len() as u64
    }

    fn name(&self) -> String {
        "before".into()
    }

    fn read(&self, first: u64, to: &mut [u8]) -> overshot::Result<()> {
        (self.before)()?;
        let first = first as usize;
        to.copy_from_slice(bytemuck::cast_slice(&self.rows[first..first + to.len() / 8]));
        Ok(())
    }
}

fn nested(choice: &DeviceChoice) -> Outcome {
    let x = numbers(60_000, 3);
    let (engine, _) = for_one_job(choice, &x)?;
    let job = || Job::eval("sum(x * c)").map(|job| job.input("x", &x).scalar("c", 1.0));
    let runs = AtomicU64::new(0);
    let run = || -> overshot::Result<()> {
        runs.fetch_add(1, Ordering::Relaxed);
        engine.run(job()?)?;
        let mut passes = 0;
        each_pass(&engine, job()?, |_| {
            passes += 1;
            (passes < 2).then_some([("c", 2.0)])
        })?;
        Ok(())
    };
    // Nested in a source, in a progress function, and in the function that gives the scalars of the next pass.
    let source = Before { rows: &x, before: &run };
    engine.run(Job::eval("sum(x)")?.input("x", &source))?;
    let mut passes = 0;
    each_pass(&engine, job()?.progress(|_| run().unwrap()), |_| {
        passes += 1;
        run().unwrap();
        (passes < 3).then_some([("c", f64::from(passes))])
    })?;
    check(runs.into_inner() > 5 && rows::in_use(&engine) == 0, "memory comes back")
}

fn leaves_memory() -> Outcome {
    let x = numbers(1_000_000, 7);
    let job = || Job::eval("sum(x)");
    let plan = Engine::builder().device(Emulated::new()).build()?.plan(&job()?.input("x", &x))?;
    // The first run plans for all of the memory, and finds little.
    let bytes = plan.devices[0].device_bytes;
    let device = Emulated::new().memory(bytes).taken(bytes - 100_000);
    let engine = Engine::builder().device(device).build()?;
    let (reads, has_memory) = channel();
    let is_done = OnceLock::new();
    let waits = Before {
        rows: &x,
        before: || {
            let _ = reads.send(());
            is_done.wait();
            Ok(())
        },
    };
    let waiting = job()?.input("x", &waits);
    thread::scope(|scope| {
        let first = scope.spawn(|| engine.run(waiting).map(drop));
        has_memory.recv()?;
        // A small run has memory beside the first one.
        engine.run(job()?.input("x", &x[..10]))?;
        let _ = is_done.set(());
        Ok(first.join().unwrap()?)
    })
}

fn cancelled_in_line(choice: &DeviceChoice) -> Outcome {
    let x = numbers(60_000, 4);
    let (engine, limit) = for_one_job(choice, &x)?;
    let (is_open, opened) = (Mutex::new(false), Condvar::new());
    let (reads, has_begun) = channel();
    let waits = Before {
        rows: &x,
        before: move || {
            let _ = reads.send(());
            Ok(())
        },
    };
    let gated = Before {
        rows: &x,
        before: || {
            drop(opened.wait_while(is_open.lock().unwrap(), |open| !*open).unwrap());
            Ok(())
        },
    };
    thread::scope(|scope| -> Outcome {
        // One job holds the memory until it may continue. It has begun when its progress function or its source
        // is called.
        let both = Job::eval("sum(x + y)")?.input("x", &waits).input("y", &gated);
        let first = scope.spawn(|| engine.run(both).map(drop));
        let begun = has_begun.recv();
        let token = CancelToken::new();
        token.cancel();
        let second = engine.run(Job::eval("sum(x)")?.input("x", &x).cancel_token(token));
        *is_open.lock().unwrap() = true;
        opened.notify_all();
        let first = first.join().unwrap();
        check(begun.is_ok(), "the first job did not begin")?;
        check(matches!(second, Err(Error::Cancelled { done: 0, .. })), format!("{second:?}"))?;
        Ok(first?)
    })?;
    let peak = engine.memory().iter().map(|memory| memory.device.peak).max().unwrap_or(0);
    check(peak <= limit, format!("{peak} bytes at once, for {limit}"))
}

/// A source whose dtype changes with the calls.
struct Liar {
    calls: AtomicU64,
    /// The calls for which it returns f64; for all others it returns f32.
    lies: std::ops::Range<u64>,
}

impl Source for Liar {
    fn dtype(&self) -> Dtype {
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        if self.lies.contains(&call) { Dtype::F64 } else { Dtype::F32 }
    }

    fn rows(&self) -> u64 {
        500_000
    }

    fn name(&self) -> String {
        "liar".into()
    }

    fn read(&self, _: u64, to: &mut [u8]) -> overshot::Result<()> {
        to.fill(0x41);
        Ok(())
    }
}

fn liar(choice: &DeviceChoice) -> Outcome {
    let mut refused = 0;
    for (begin, count) in (0..6).flat_map(|begin| [(begin, 1), (begin, 2)]) {
        let engine = builder(choice).build()?;
        let liar = Liar { calls: AtomicU64::new(0), lies: begin..begin + count };
        let data = engine.resident(&liar)?;
        let run = engine.run(Job::eval("sum(x)")?.input("x", &data));
        match run {
            Ok(report) => check(report.rows == 500_000, "rows")?,
            Err(Error::InvalidColumn(ColumnError::Shards { .. })) => refused += 1,
            Err(error) => return Err(error.into()),
        }
        check(has_memory(&engine) || refused == 0, "nothing to refuse without devices")?;
    }
    check(refused > 0 || !has_memory(&builder(choice).build()?), "no lie was seen")
}

/// A sink that holds a claim on its own memory.
struct Holder<'a>(SinkMemory<'a>);

struct HolderTarget<'a>(&'a mut [u8]);

impl Target for HolderTarget<'_> {
    fn name(&self) -> String {
        "holder".into()
    }

    fn place(&self) -> Placement {
        Placement::Memory
    }

    fn open<'s>(self: Box<Self>, dtype: Dtype, _: u64, _: Option<&[u64]>) -> overshot::Result<Box<dyn Sink + 's>>
    where
        Self: 's,
    {
        let memory = SinkMemory::new(self.0, dtype).unwrap();
        std::mem::forget(memory.claim(0..10));
        Ok(Box::new(Holder(memory)))
    }
}

impl Sink for Holder<'_> {
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

fn holder(choice: &DeviceChoice) -> Outcome {
    let x = vec![1f64; 100_000];
    let mut y = vec![0f64; x.len()];
    let engine = builder(choice).chunk(100_000).build()?;
    let output = HolderTarget(bytemuck::cast_slice_mut(&mut y));
    match engine.run(Job::eval("y = x")?.input("x", &x).output("y", output)) {
        // Staged rows are written to the sink, whatever its memory is.
        Ok(_) => check(has_memory(&engine), "no error on the CPU"),
        Err(error) => check(error.to_string().contains("must hold no claim"), error.to_string()),
    }
}

/// Every kind of call.
const CALLS: [FaultAt; 14] = [
    FaultAt::Allocate,
    FaultAt::CopyIn,
    FaultAt::Kernel,
    FaultAt::CopyOut,
    FaultAt::Pin,
    FaultAt::Zero,
    FaultAt::OpenStream,
    FaultAt::Event,
    FaultAt::Record,
    FaultAt::Wait,
    FaultAt::Query,
    FaultAt::Synchronize,
    FaultAt::Load,
    FaultAt::FreeBytes,
];

/// Jobs of all kinds; they check their results.
fn job_of_kind(engine: &Engine, kind: u32, x: &[f64]) -> overshot::Result<()> {
    let sum = Some(x.iter().sum::<f64>());
    let found = |report: &overshot::Report| report.value("sum(x)").unwrap().map(|value| value.as_f64());
    let mut y = vec![0.0; x.len()];
    match kind {
        0 => {
            let report = engine.run(Job::eval("y = x + 1; sum(x)")?.input("x", x).output("y", &mut y))?;
            assert!(found(&report) == sum && x.iter().zip(&y).all(|(x, y)| x + 1.0 == *y), "wrong rows");
        }
        1 => {
            let data = engine.resident(x)?;
            // The second run finds the rows on the devices, or copies those that the first run did not copy.
            let runs = [(); 2].map(|()| engine.run(Job::eval("sum(x)")?.input("x", &data)));
            assert!(runs.iter().flatten().all(|report| found(report) == sum), "a wrong sum");
            runs.into_iter().collect::<overshot::Result<Vec<_>>>()?;
        }
        2 => {
            let a = engine.shard(x)?;
            let mut b = engine.sharded::<f64>(x.len())?;
            engine.run(Job::eval("b = a + 1")?.input("a", &a).output("b", &mut b))?;
            b.read(0, &mut y)?;
            assert!(x.iter().zip(&y).all(|(x, y)| x + 1.0 == *y), "wrong rows");
        }
        3 => {
            let mut passes = 0;
            each_pass(engine, Job::eval("sum(x), sum(x + c)")?.input("x", x).scalar("c", 0.0), |report| {
                assert_eq!(found(report), sum);
                passes += 1;
                (passes < 3).then_some([("c", f64::from(passes))])
            })?;
        }
        _ => {
            let mut at = vec![0i64; x.len()];
            let job = Job::kernel(&keep()).input("x", x).output("big", &mut y).output("where", &mut at);
            let kept = engine.run(job)?.outputs[0].rows as usize;
            let right: Vec<usize> = (0..x.len()).filter(|i| x[*i] > 50.0).collect();
            assert!(kept == right.len() && right.iter().zip(&at).all(|(i, at)| *i as i64 == *at), "wrong rows kept");
        }
    }
    Ok(())
}

fn faults() -> Outcome {
    let x: Vec<f64> = (0..20_000).map(|i| f64::from(i % 100)).collect();
    for at in CALLS {
        let mut failed = 0;
        for (devices, kind) in [1, 3].into_iter().flat_map(|devices| (0..5).map(move |kind| (devices, kind))) {
            for nth in [0, 1, 2, 3, 5, 8, 13, 21, 34] {
                // The last of the devices fails.
                let device = |k| Emulated::new().seed(nth).memory(16 << 20).copy_in_rate(1e9 + f64::from(k));
                let mut all: Vec<_> = (1..devices).map(device).collect();
                all.push(device(0).fault(Fault::new(at, nth)));
                let engine =
                    Engine::builder().device(DeviceChoice::Emulated(all)).chunk(64 << 10).workers(2).build()?;
                let what = format!("{at:?} {nth} on the last of {devices} devices, job {kind}");
                let run = catch_unwind(AssertUnwindSafe(|| job_of_kind(&engine, kind, &x)));
                match run.map_err(|_| format!("{what}: a panic"))? {
                    Ok(()) => {}
                    Err(error) => {
                        let text = error.to_string();
                        let is_told = text.contains("on demand") || text.contains("out of memory");
                        check(is_told, format!("{what}: {text}"))?;
                        failed += 1;
                    }
                }
                check(rows::in_use(&engine) == 0, format!("{what}: memory does not come back"))?;
            }
        }
        // A failed allocation makes chunks smaller, or the part of a dataset on the device.
        check(failed > 0 || at == FaultAt::Allocate, format!("{at:?} never failed"))?;
    }
    Ok(())
}
