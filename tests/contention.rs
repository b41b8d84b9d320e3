//! Many jobs at once, jobs within jobs, and threads that wait for each other.
//!
//! Which devices it runs on is in `rows/mod.rs`.
#![allow(clippy::unwrap_used, reason = "in tests")]

mod rows;
mod watchdog;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use overshot::testing::foreign::{everything, keep};
use overshot::{DeviceChoice, Dtype, Engine, Error, ForeignKernel, Job, Source};
use rayon::prelude::*;
use rows::{Case, Outcome, builder, check, numbers};

const CASES: &[(&str, Case)] = &[
    ("passes from every thread of the caller's pool", passes_in_a_pool),
    ("rows on both sides of a shard's end, read from every thread of the caller's pool", shards_in_a_pool),
    ("a function for the host that panics ends the run and not the process", host_function_panics),
    ("a source that fails while others wait for its place", fails_where_rows_are_kept),
];

fn main() {
    rows::run(CASES, vec![])
}

/// The caller's pool: rayon's global one, which has two threads.
fn pool() {
    // Not the first case: it is there.
    let _ = rayon::ThreadPoolBuilder::new().num_threads(2).build_global();
    assert_eq!(rayon::current_num_threads(), 2);
}

fn passes_in_a_pool(choice: &DeviceChoice) -> Outcome {
    pool();
    // A ring of several huge pages.
    let engine = Engine::builder().device(choice.clone()).chunk(1 << 20).build()?;
    let x = numbers(600_000, 1);
    let expected = rows::bits(&rows::cpu().run(Job::eval("sum(x + c)")?.input("x", &x).value("c", 2.0))?);
    (0..6u32).into_par_iter().try_for_each(|_| -> Outcome {
        let mut passes = 0;
        let job = Job::eval("sum(x + c)")?.input("x", &x).value("c", 0.0);
        let last = engine.passes(job, |_| {
            passes += 1;
            (passes < 3).then_some([("c", f64::from(passes))])
        })?;
        check(rows::bits(&last) == expected, "another result")
    })
}

fn shards_in_a_pool(choice: &DeviceChoice) -> Outcome {
    pool();
    let engine = builder(choice).chunk(20_000).lanes(2).build()?;
    // Three elements a row, so that a tile lies on both sides of a shard's end, and more than the devices can hold.
    let rows = (rows::device_bytes(&engine) / 12) as usize + 100_000;
    let x: Vec<f32> = (0..rows * 3).map(|i| (i % 100) as f32).collect();
    let shard = engine.shard(&x)?;
    (0..6u32).into_par_iter().try_for_each(|_| -> Outcome {
        let (mut y, mut z) = (vec![0.0; rows], vec![0f32; 2 * rows]);
        engine.run(Job::kernel(everything()).input("x", &shard).output("y", &mut y).output("z", &mut z))?;
        check((0..rows).all(|i| z[2 * i] == x[3 * i + 2] && z[2 * i + 1] == x[3 * i]), "wrong rows")
    })
}

/// A kernel without a sense, whose function for the host panics.
fn panicking() -> ForeignKernel {
    const TEXT: &str = "extern \"C\" __global__ void f(long long rows, const float *x, float *y) { }";
    // SAFETY: it touches nothing.
    let kernel = unsafe { ForeignKernel::cuda("f.cu", TEXT, "f") };
    kernel.unwrap().on_host(|_| panic!("the caller's own"))
}

fn host_function_panics(choice: &DeviceChoice) -> Outcome {
    let engine = builder(choice).chunk(100_000).lanes(4).build()?;
    if !matches!(choice, DeviceChoice::Cpu | DeviceChoice::Emulated(_)) {
        // The function does not run on GPUs.
        return Ok(());
    }
    let x = vec![1f32; 1_000_000];
    let mut y = vec![0f32; x.len()];
    let kernel = panicking();
    let job = Job::kernel(kernel.call()).input("x", &x).output("y", &mut y);
    let run = catch_unwind(AssertUnwindSafe(|| engine.run(job).map(drop)));
    let panic = run.err().and_then(|panic| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    check(panic.as_deref() == Some("the caller's own"), format!("another end: {panic:?}"))?;
    check(rows::in_use(&engine) == 0, "memory comes back")
}

/// Rows of which a read fails. Not before all other rows that can be on their way were read, so that others wait for their place.
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
            // Others go on as far as they can meanwhile. How far does not matter for the verdict.
            (0..200).for_each(|_| thread::yield_now());
            if self.panics {
                panic!("on demand");
            }
            return Err(Error::Job("on demand".into()));
        }
        let first = first as usize;
        to.copy_from_slice(bytemuck::cast_slice(&self.rows[first..first + to.len() / 8]));
        Ok(())
    }
}

fn fails_where_rows_are_kept(choice: &DeviceChoice) -> Outcome {
    let x: Vec<f64> = (0..60_000).map(|i| f64::from(i % 100)).collect();
    let engine = builder(choice).chunk(30_000).lanes(4).build()?;
    let (mut failed, mut went_well) = (0, 0);
    for panics in [false, true] {
        for left in 1..40 {
            let source = Failing { rows: &x, left: left.into(), reads: AtomicU64::new(0), panics };
            let (mut big, mut at) = (vec![0f64; x.len()], vec![0i64; x.len()]);
            let job = Job::kernel(&keep()).input("x", &source).output("big", &mut big).output("where", &mut at);
            let run = catch_unwind(AssertUnwindSafe(|| engine.run(job).map(drop)));
            let is_right = match (&run, source.reads.into_inner() >= left) {
                (Err(_), true) => panics,
                (Ok(Err(error)), true) => !panics && error.to_string().contains("on demand"),
                (Ok(Ok(())), false) => true,
                _ => false,
            };
            check(is_right, format!("read {left}: {:?}", run.as_ref().map_err(drop)))?;
            failed += u32::from(!matches!(run, Ok(Ok(()))));
            went_well += u32::from(matches!(run, Ok(Ok(()))));
            check(rows::in_use(&engine) == 0, "memory comes back")?;
        }
    }
    check(failed > 10, format!("{failed} runs failed and {went_well} went well"))
}
