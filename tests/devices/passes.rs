//! Passes over the same rows: the results are those of single runs, and the first rows of the next pass are copied
//! before its scalars are known.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use overshot::{CancelToken, DeviceChoice, Engine, Error, Job, Report, Scalar, device::Emulated};

use crate::harness::{Case, EmulatedCase, Module, NO_CASES, Outcome, check, cpu, each_pass, numbers};
use crate::rows::{Watched, bits, builder, device_bytes, engine, has_memory, not_there, rows_in, without_cpu};

pub const MODULE: Module = Module { name: "passes", cases: CASES, emulated: EMULATED, counts_memory: true, ..NO_CASES };

const CASES: &[(&str, Case)] = &[
    ("passes give the bits of single runs", same_as_runs),
    ("a dataset larger than the devices moves only what does not fit, the same rows each time", resident),
    ("rows of the next pass are read before its scalars are known", ahead),
    ("a pass begins when the previous one has no rows left to claim", begins_when_exhausted),
    ("a pass that is not needed leaves nothing behind", not_needed),
    ("two passes have half of the memory each", halves),
    ("a pass runs after one that failed", again),
    ("a source that fails, at any time", failing_source),
    ("a panic in next", panics),
    ("a token that is cancelled, at any time", cancelled),
    ("without memory for two passes they run one after the other", tiny_budgets),
    ("jobs that cannot run as passes", refused),
];

const EMULATED: &[(&str, EmulatedCase)] = &[("any seed gives the same answer", seeds)];

/// Returns an engine with few, small chunks, so that every device has memory for two passes of several chunks each.
fn small_chunks(choice: &DeviceChoice) -> Engine {
    builder(choice).chunk(64 << 10).workers(2).build().unwrap()
}

/// Returns the memory in use by runs, without that of datasets.
fn in_use(engine: &Engine) -> u64 {
    engine.memory().iter().map(|memory| memory.device.in_use + memory.pinned.in_use).sum()
}

/// Returns a job over `x` with one scalar, which the next pass does not change.
fn pass<'a>() -> Job<'a> {
    Job::eval("mean(x - center), std(x), argmin(x), sum(x * f64(i))").unwrap().scalar("center", 3.0)
}

const NONE: [(&str, f64); 0] = [];

/// An expression whose result depends on scalars of different dtypes.
const STEP: &str = "m = mean(clip(x, center - width, center + width)), n = count(x > center), \
                    last = max(where(i % i64(step) == 0, x, -1000.0)), std(x * scale)";

/// Returns the scalars of the pass that follows the one with these results.
fn values_after(report: &Report, pass: u32) -> Vec<(&'static str, Scalar)> {
    let center = report.value("m").unwrap().map_or(0.0, |mean| mean.as_f64());
    let count = report.value("n").unwrap().map_or(0.0, Scalar::as_f64);
    let width = 1.0 + count % 50.0;
    let mut values: Vec<(&str, Scalar)> =
        vec![("width", width.into()), ("center", center.into()), ("step", pass.into())];
    // Scalars that are not given stay as they are.
    if !pass.is_multiple_of(3) {
        values.push(("scale", (pass as f32).into()));
    }
    values
}

fn same_as_runs(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice);
    for rows in [0, 1, 4097, 300_007] {
        let x = numbers(rows, 1);
        let mut values: Vec<(&str, Scalar)> =
            vec![("scale", 2.0f32.into()), ("center", 0.0.into()), ("width", 50.0.into()), ("step", 7u32.into())];
        let job = |values: &[(&'static str, Scalar)]| -> Result<Job<'_>, Error> {
            let job = Job::eval(STEP)?.input("x", &x);
            Ok(values.iter().fold(job, |job, (name, value)| job.scalar(name, *value)))
        };
        let mut expected = Vec::new();
        let first = job(&values)?;
        for pass in 1..=10 {
            let report = cpu().run(job(&values)?)?;
            expected.push(bits(&report));
            for (name, value) in values_after(&report, pass) {
                values.iter_mut().filter(|(other, _)| *other == name).for_each(|(_, old)| *old = value);
            }
        }
        check(rows < 4097 || expected[3] != expected[4], "the values decide nothing")?;
        let mut found = Vec::new();
        let last = each_pass(&engine, first, |report| {
            found.push(bits(report));
            (found.len() < 10).then(|| values_after(report, found.len() as u32))
        })?;
        check(found == expected, format!("{rows} rows: {found:?} for {expected:?}"))?;
        check(Some(&bits(&last)) == expected.last(), "the last report")?;
        check(in_use(&engine) == 0, "memory comes back")?;
    }
    Ok(())
}

fn resident(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice);
    let rows = (device_bytes(&engine) / 8 * 5 / 4) as usize + 5;
    let x = numbers(rows, 5);
    let expected = bits(&cpu().run(pass().input("x", &x))?);
    let watched = Watched::new(&x);
    let data = engine.resident(&watched)?;
    let (there, rest) = (rows_in(&data.on_devices()), not_there(&data));
    let before = in_use(&engine);
    let mut moved = Vec::new();
    let mut right = true;
    each_pass(&engine, pass().input("x", &data), |report| {
        right &= bits(report) == expected;
        moved.push(report.bytes_to_device);
        (moved.len() < 4).then_some(NONE)
    })?;
    check(right && moved.len() == 4, "another result")?;
    let read = watched.taken();
    if has_memory(&engine) {
        check(there > 0, "nothing is on devices")?;
        let each = |pass: usize| if pass == 0 { rows as u64 } else { rows as u64 - there };
        let right =
            |(pass, moved): (usize, &u64)| *moved == 8 * each(pass) || !without_cpu(&engine) && *moved < 8 * each(pass);
        check(moved.iter().enumerate().all(right), format!("{moved:?} bytes moved, {there} of {rows} rows there"))?;
    }
    // Each streamed row four times. The pass that was prepared but not needed has read some of them, too.
    let (least, most) = match has_memory(&engine) {
        true => (rows as u64 + 3 * (rows as u64 - there), rows as u64 + 4 * (rows as u64 - there)),
        false => (4 * rows as u64, 5 * rows as u64),
    };
    let total = watched.total();
    check((least..=most).contains(&total), format!("{total} rows read, for {least} to {most}"))?;
    check(in_use(&engine) == before, "memory comes back")?;
    let peak: u64 = engine.memory().iter().map(|memory| memory.device.peak).sum();
    check(peak <= device_bytes(&engine), format!("{peak} bytes of device memory were in use"))?;
    // Resident rows are read once.
    let later = |reads: &[std::ops::Range<u64>]| {
        reads.iter().all(|read| rest.iter().any(|rest| rest.start <= read.start && read.end <= rest.end))
    };
    watched.taken();
    let mut passes = 0;
    each_pass(&engine, pass().input("x", &data), |_| {
        passes += 1;
        (passes < 3).then_some(NONE)
    })?;
    check(!has_memory(&engine) || later(&watched.taken()), "rows were read that are there")?;
    check(!read.is_empty(), "nothing was read")
}

fn ahead(choice: &DeviceChoice) -> Outcome {
    // If a dataset is copied to devices first, no other pass runs during that pass, and later passes read only
    // the rest. That holds for one worker, too.
    for (workers, stays) in [(2, false), (2, true), (1, true)] {
        let engine = builder(choice).chunk(64 << 10).workers(workers).build()?;
        let x = numbers(if stays { device_bytes(&engine) as usize / 8 * 9 / 8 } else { 1_000_000 }, 2);
        let watched = Watched::new(&x);
        let data = if stays { Some(engine.resident(&watched)?) } else { None };
        let there = data.as_ref().map_or(0, |data| rows_in(&data.on_devices()));
        let job = match &data {
            Some(data) => pass().input("x", data),
            None => pass().input("x", &watched),
        };
        let fills = stays && has_memory(&engine);
        let each = if fills { x.len() as u64 - there } else { x.len() as u64 };
        let (mut passes, mut right) = (0, Ok(()));
        let mut before = 0;
        each_pass(&engine, job, |report| {
            passes += 1;
            // The rows that passes up to this one read. Any more belong to the next pass, whose scalars this returns.
            before += if passes == 1 { x.len() as u64 } else { each };
            let is_ahead = |report: &Report| match passes {
                1 => report.bytes_ahead == 0,
                _ => report.bytes_ahead <= report.bytes_to_device,
            };
            if right.is_ok() {
                right = check(is_ahead(report), format!("pass {passes}: {} bytes ahead", report.bytes_ahead));
            }
            let has_more = passes < 4;
            if has_more && (passes > 1 || !fills) && each > 0 && right.is_ok() {
                right = watched.waits_for_more_than(before);
            }
            let noted = report.notes.iter().any(|note| note.contains("did not begin"));
            if noted != (fills && passes == 1) {
                right = check(false, format!("pass {passes}: {:?}", report.notes));
            }
            has_more.then_some(NONE)
        })?;
        right?;
        check(passes == 4, "another number of passes")?;
    }
    Ok(())
}

/// Rows that yield to other threads on each read. They record how many rows had not been read yet when the first row
/// was read again.
struct Twice<'a> {
    rows: &'a [f64],
    /// The rows that were read, and how many were left when one was read again.
    read: Mutex<(Vec<bool>, Option<usize>)>,
}

impl overshot::Source for Twice<'_> {
    fn dtype(&self) -> overshot::Dtype {
        overshot::Dtype::F64
    }

    fn rows(&self) -> u64 {
        self.rows.len() as u64
    }

    fn name(&self) -> String {
        "twice".into()
    }

    fn read(&self, first: u64, to: &mut [u8]) -> overshot::Result<()> {
        let rows = first as usize..first as usize + to.len() / 8;
        to.copy_from_slice(bytemuck::cast_slice(&self.rows[rows.clone()]));
        let mut read = self.read.lock().unwrap();
        if read.0[rows.start] && read.1.is_none() {
            read.1 = Some(read.0.iter().filter(|read| !**read).count());
        }
        read.0[rows].fill(true);
        drop(read);
        // A pass that begins too early reads many rows here.
        (0..100).for_each(|_| std::thread::yield_now());
        Ok(())
    }
}

fn begins_when_exhausted(choice: &DeviceChoice) -> Outcome {
    let engine = small_chunks(choice);
    let x = numbers(600_000, 9);
    let source = Twice { rows: &x, read: Mutex::new((vec![false; x.len()], None)) };
    let mut passes = 0;
    let report = each_pass(&engine, pass().input("x", &source), |_| {
        passes += 1;
        (passes < 2).then_some(NONE)
    })?;
    // Each worker may have claimed a chunk that it had not read yet.
    let workers: usize = report.devices.iter().map(|device| device.workers).sum();
    let (_, left) = source.read.into_inner().unwrap();
    let left = left.ok_or("no row was read twice")?;
    check(left <= workers * report.chunk_rows as usize, format!("{left} rows were left when the next pass began"))
}

fn not_needed(choice: &DeviceChoice) -> Outcome {
    let engine = small_chunks(choice);
    let x = numbers(400_000, 3);
    let expected = bits(&cpu().run(pass().input("x", &x))?);
    let watched = Watched::new(&x);
    for _ in 0..3 {
        let before = watched.total();
        let mut awaited = Ok(());
        let report = each_pass(&engine, pass().input("x", &watched), |_| {
            // It has begun.
            awaited = watched.waits_for_more_than(before + x.len() as u64);
            None::<[(&str, f64); 0]>
        })?;
        awaited?;
        check(bits(&report) == expected && in_use(&engine) == 0, "one pass")?;
        check(watched.total() < before + 2 * x.len() as u64, "the second pass went on")?;
    }
    Ok(())
}

fn halves(choice: &DeviceChoice) -> Outcome {
    let x = numbers(1_000_000, 6);
    let builder = || Engine::builder().device(choice.clone());
    let plan = builder().build()?.plan(&pass().input("x", &x))?;
    let bytes = plan.devices.iter().map(|device| device.device_bytes).max().unwrap_or_default().max(1);
    let mut peaks = Vec::new();
    each_pass(&builder().device_memory(bytes).build()?, pass().input("x", &x), |report| {
        peaks.extend(report.devices.iter().map(|device| device.peak_device_bytes));
        (peaks.len() < 3 * report.devices.len()).then_some(NONE)
    })?;
    check(peaks.iter().all(|peak| *peak <= bytes / 2), format!("{peaks:?} of {bytes} bytes"))
}

fn again(choice: &DeviceChoice) -> Outcome {
    let engine = small_chunks(choice);
    let x = numbers(400_000, 8);
    let expected = bits(&cpu().run(pass().input("x", &x))?);
    let watched = Watched::new(&x);
    watched.fails_beyond(300_000);
    let report = engine.passes(pass().input("x", &watched), |passes| {
        let error = passes.run().unwrap_err().to_string();
        assert!(error.contains("on demand"), "{error}");
        watched.fails_beyond(u64::MAX);
        passes.run()
    })?;
    check(bits(&report) == expected, "other results after a failure")
}

fn failing_source(choice: &DeviceChoice) -> Outcome {
    let engine = small_chunks(choice);
    let x = numbers(400_000, 4);
    let rows = x.len() as u64;
    let watched = Watched::new(&x);
    // In the first pass, at its end, in the second pass (possibly before its scalars are set), and at its end.
    for (more, is_second) in [(0, false), (rows - 1, false), (u64::MAX / 2, true), (2 * rows - 1, true)] {
        watched.fails_beyond(watched.total() + more);
        let mut passes = 0;
        let result = each_pass(&engine, pass().input("x", &watched), |_| {
            passes += 1;
            if more > 2 * rows {
                watched.fails_beyond(watched.total());
            }
            Some(NONE)
        });
        let is_right = matches!(&result, Err(Error::Chunk { cause, .. }) if cause.to_string() == "on demand");
        check(is_right && passes == usize::from(is_second), format!("{more}: {passes} passes, {result:?}"))?;
        check(in_use(&engine) == 0, "memory comes back")?;
    }
    watched.fails_beyond(u64::MAX);
    check(each_pass(&engine, pass().input("x", &watched), |_| None::<[(&str, f64); 0]>).is_ok(), "a pass after")
}

fn panics(choice: &DeviceChoice) -> Outcome {
    let engine = small_chunks(choice);
    let x = numbers(400_000, 6);
    let watched = Watched::new(&x);
    for after in [1, 3] {
        let before = watched.total();
        let mut passes = 0;
        let job = pass().input("x", &watched);
        let result = catch_unwind(AssertUnwindSafe(|| {
            each_pass(&engine, job, |_| {
                passes += 1;
                if passes == after {
                    watched.waits_for_more_than(before + passes * x.len() as u64).unwrap();
                    panic!("on demand");
                }
                Some(NONE)
            })
        }));
        let panic = result.err().and_then(|panic| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        check(panic.as_deref() == Some("on demand"), format!("another panic: {panic:?}"))?;
        check(in_use(&engine) == 0, "memory comes back")?;
    }
    Ok(())
}

fn cancelled(choice: &DeviceChoice) -> Outcome {
    let engine = small_chunks(choice);
    let x = numbers(400_000, 7);
    // Between passes; and during one, by its progress.
    for during in [false, true] {
        let token = CancelToken::new();
        let (chunks, passes) = (AtomicU64::new(0), AtomicU64::new(0));
        let job = pass().input("x", &x).cancel_token(token.clone());
        let job = job.progress(|_| {
            chunks.fetch_add(1, Ordering::Relaxed);
            if during && passes.load(Ordering::Relaxed) == 2 {
                token.cancel();
            }
        });
        let result = each_pass(&engine, job, |_| {
            if !during && passes.load(Ordering::Relaxed) == 1 {
                token.cancel();
            }
            passes.fetch_add(1, Ordering::Relaxed);
            Some(NONE)
        });
        let rows = x.len() as u64;
        let right = matches!(result, Err(Error::Cancelled { done, rows: all }) if done < rows && all == rows);
        check(right && passes.load(Ordering::Relaxed) == 2, format!("{passes:?} passes: {result:?}"))?;
        check(chunks.load(Ordering::Relaxed) > 0 && in_use(&engine) == 0, "memory comes back")?;
    }
    Ok(())
}

fn tiny_budgets(choice: &DeviceChoice) -> Outcome {
    let x = numbers(50_000, 8);
    let expected = bits(&cpu().run(pass().input("x", &x))?);
    // Memory for one block of one tile, or for one slot of the rows of a page, but not for two.
    let limits = [
        Engine::builder().device(choice.clone()).device_memory(60_000),
        Engine::builder().device(choice.clone()).pinned_memory(6000),
    ];
    for builder in limits {
        let engine = builder.build()?;
        let mut reports = Vec::new();
        each_pass(&engine, pass().input("x", &x), |report| {
            reports.push(report.clone());
            (reports.len() < 3).then_some(NONE)
        })?;
        for report in &reports {
            check(bits(report) == expected && report.bytes_ahead == 0, "another result")?;
            let noted = report.notes.iter().any(|note| note.contains("one after the other"));
            check(noted == has_memory(&engine), format!("a note: {:?}", report.notes))?;
        }
        check(reports.len() == 3 && in_use(&engine) == 0, "memory comes back")?;
    }
    // Two blocks: each pass has one, which a waiting chunk holds, and which later chunks use after it.
    let engine = Engine::builder().device(choice.clone()).device_memory(100_000).build()?;
    let mut passes = 0;
    let report = each_pass(&engine, pass().input("x", &x), |report| {
        passes += 1;
        assert!(bits(report) == expected, "another result");
        (passes < 5).then_some(NONE)
    })?;
    check(!report.notes.iter().any(|note| note.contains("one after the other")), format!("{:?}", report.notes))?;
    let engine = Engine::builder().device(choice.clone()).device_memory(1000).build()?;
    let result = each_pass(&engine, pass().input("x", &x), |_| Some(NONE).filter(|_| false));
    check(result.is_ok() != has_memory(&engine), "memory for no pass at all")
}

fn refused(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice);
    let x = [1.0];
    let mut y = [0.0];
    let next = |_: &Report| -> Option<[(&str, Scalar); 0]> { panic!("nothing ran") };
    let kernel = overshot::testing::custom::everything();
    for (job, problem) in [
        (Job::eval("y = x * a; sum(x)")?.input("x", &x).scalar("a", 1.0).output("y", &mut y), "after them"),
        (Job::kernel(kernel).input("x", &x), "after them"),
        (Job::eval("sum(x)")?.input("x", &x), "no values"),
        (pass(), "no input of that name"),
    ] {
        let result = each_pass(&engine, job, next);
        let right = matches!(&result, Err(error @ Error::InvalidJob(_)) if error.to_string().contains(problem));
        check(right, format!("{result:?}"))?;
    }
    // Values that the job does not have, or of another dtype.
    for (values, problem) in
        [(vec![("b", Scalar::F64(1.0))], "no value 'b'"), (vec![("a", Scalar::F32(1.0))], "convert it")]
    {
        let mut passes = 0;
        let result = each_pass(&engine, Job::eval("sum(x * a)")?.input("x", &x).scalar("a", 1.0), |_| {
            passes += 1;
            Some(values.clone())
        });
        let right =
            matches!(&result, Err(error @ Error::InvalidJob(_)) if error.to_string().contains(problem)) && passes == 1;
        check(right && in_use(&engine) == 0, format!("{problem}: {result:?}"))?;
    }
    Ok(())
}

fn seeds() -> Outcome {
    let x = numbers(600_000, 13);
    let expected = bits(&cpu().run(pass().input("x", &x))?);
    for seed in 0..12 {
        let devices = (0..2).map(|k| Emulated::new().seed(seed + k).memory((6 + 2 * k) << 20).copy_in_rate(1e9));
        let engine = Engine::builder().device(DeviceChoice::Emulated(devices.collect())).chunk(256 << 10).build()?;
        let data = engine.resident(&x)?;
        let results = Mutex::new(Vec::new());
        each_pass(&engine, pass().input("x", &data), |report| {
            let mut results = results.lock().unwrap();
            results.push(bits(report));
            (results.len() < 4).then_some(NONE)
        })?;
        let results = results.into_inner().unwrap();
        check(results.len() == 4 && results.iter().all(|one| *one == expected), format!("seed {seed}"))?;
    }
    Ok(())
}
