//! Results, memory limits, failures, schedules.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use libtest_mimic::Failed;
use overshot::{
    CancelToken, DeviceChoice, Dtype, Engine, Error, Job, Npy, Progress, Raw, Report, Scalar, Sink, Source,
    device::{DeviceKind, Emulated, Fault, FaultAt},
    io::{Generator, Placement, ReadMode, SinkMemory, Target},
};

use crate::harness::{Case, EmulatedCase, Module, NO_CASES, Outcome, check, cpu, engine, numbers};

/// Every reduction with the bits of its value.
type Results = Vec<(String, Option<u64>)>;

pub const MODULE: Module = Module { name: "jobs", cases: CASES, gpu: GPU, emulated: EMULATED, ..NO_CASES };

const CASES: &[(&str, Case)] = &[
    ("a map writes every row, for all chunk sizes and workers", map_over_schedules),
    ("reductions are the same bits for all chunk sizes and workers", reductions_over_schedules),
    ("the bits of reduced floats are those of every release", golden_bits),
    ("odd lengths", odd_lengths),
    ("no rows", no_rows),
    ("limits on device and pinned memory hold", limits_hold),
    ("a limit too small for one chunk is an error", limit_too_small),
    ("every dtype goes in and out", dtypes),
    ("scalars act as constant columns, with other values in each run", values),
    ("scalars that do not fit are errors", wrong_values),
    ("files in, files out", files),
    ("pinned arrays are used in place", pinned_arrays),
    ("generators and the row number", generators),
    ("a source that fails stops the job, and no file appears", failing_source),
    ("a cancelled job leaves no file", cancelled),
    ("neither of two outputs appears if one cannot", two_outputs),
    ("a sink that reports wrong memory is an error", lying_sink),
    ("excessive limits are errors or harmless", absurd_limits),
    ("one engine runs many jobs at once", concurrent_jobs),
];

const GPU: &[(&str, Case)] = &[
    ("functions give the bits of the CPU", functions),
    ("arithmetic is the same bits as on the CPU", arithmetic_bits),
    ("auto runs small jobs on the CPU and splits the others", auto),
];

const EMULATED: &[(&str, EmulatedCase)] = &[
    ("any seed gives the same answer", seeds),
    ("failures on demand end in an error, never in a wrong answer", faults),
    ("a device with less memory than it reported gets smaller chunks", shortage),
    ("devices of different sizes give the same bits as one", unequal_devices),
    ("a device that has no memory at all takes no part beside others", full_device),
    ("devices claim rows as fast as they are", unequal_speeds),
    ("a run takes the time of the slowest stage and one chunk", overlap),
    ("a run is repeatable", repeatable),
];

fn bits(value: Option<Scalar>) -> Option<u64> {
    value.map(|value| value.as_f64().to_bits())
}

fn all_bits(report: &Report) -> Results {
    report.results.iter().map(|(label, value)| (label.clone(), bits(*value))).collect()
}

fn same_bits(a: &[f64], b: &[f64]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
}

fn map_over_schedules(choice: &DeviceChoice) -> Outcome {
    let rows = 300_000;
    let (a, b) = (numbers(rows, 1), numbers(rows, 2));
    let expected: Vec<f64> = a.iter().zip(&b).map(|(a, b)| (a * a + b * b).sqrt()).collect();
    for chunk in [1, 100_000, 1 << 20, 1 << 30] {
        for workers in [1, 2, 5] {
            let engine =
                engine(choice).chunk(chunk).workers(workers).pinned_memory(1 << 30).device_memory(256 << 20).build()?;
            let mut c = vec![f64::NAN; rows];
            engine.run(Job::eval("c = sqrt(a * a + b * b)")?.input("a", &a).input("b", &b).output("c", &mut c))?;
            check(same_bits(&c, &expected), format!("chunk {chunk}, workers {workers}: wrong rows"))?;
        }
    }
    Ok(())
}

const REDUCTIONS: &str = "sum(a), mean(a * b), min(a), max(b), var(a), std(b), count(a > 0), any(a > 99.999), \
                          all(a < 100), argmin(a), argmax(b), sum(x), mean(x), std(x), sum(n), min(n), argmax(n), \
                          prod(1 + a / 1e4), prod(1 + x / 1e4), prod(n | 1)";

fn reductions(engine: &Engine, rows: usize) -> Result<Report, Error> {
    let (a, b) = (numbers(rows, 3), numbers(rows, 4));
    let x: Vec<f32> = a.iter().map(|a| *a as f32).collect();
    let n: Vec<i32> = b.iter().map(|b| (*b * 1e6) as i32).collect();
    engine.run(Job::eval(REDUCTIONS)?.input("a", &a).input("b", &b).input("x", &x).input("n", &n))
}

/// Any other shape of the tree, or order within it, shows in the last bits.
fn golden_bits(choice: &DeviceChoice) -> Outcome {
    let x = numbers(4096 * 11 + 77, 12);
    let report =
        engine(choice).chunk(100_000).build()?.run(Job::eval("sum(x), mean(x), var(x), std(x)")?.input("x", &x))?;
    let found = all_bits(&report).into_iter().map(|(_, bits)| bits.unwrap_or(0));
    let found: Vec<u64> = found.collect();
    let golden = [0x40b2_1fed_9403_5886, 0x3fba_5178_d556_13d4, 0x40aa_09f0_b13b_8e5a, 0x404c_ddae_4825_9e92];
    check(found == golden, format!("{found:#x?}"))
}

fn reductions_over_schedules(choice: &DeviceChoice) -> Outcome {
    let rows = 200_001;
    let expected = reductions(&cpu(), rows)?;
    let (a, n) = (numbers(rows, 3), numbers(rows, 4));
    // The bits must be right, too: exact results are compared with a plain computation, floats within a tolerance.
    let integers: i64 = n.iter().map(|b| i64::from((*b * 1e6) as i32)).sum();
    check(expected.value("sum(n)") == Ok(Some(Scalar::I64(integers))), "sum of integers")?;
    let product = n.iter().fold(1, |product: i64, b| product.wrapping_mul(i64::from((*b * 1e6) as i32 | 1)));
    check(expected.value("prod(n | 1)") == Ok(Some(Scalar::I64(product))), "product of integers")?;
    let least = (0..rows).min_by(|&i, &j| a[i].total_cmp(&a[j])).map(|i| Scalar::I64(i as i64));
    check(expected.value("argmin(a)")? == least, "argmin")?;
    let mean = a.iter().sum::<f64>() / rows as f64;
    let var = a.iter().map(|a| (a - mean) * (a - mean)).sum::<f64>() / rows as f64;
    let close = |label: &str, value: f64| {
        expected.value(label).ok().flatten().is_some_and(|v| (v.as_f64() / value - 1.0).abs() < 1e-9)
    };
    check(close("sum(a)", mean * rows as f64) && close("var(a)", var), "sum or var")?;
    check(close("prod(1 + a / 1e4)", a.iter().map(|a| 1.0 + a / 1e4).product()), "product")?;
    for chunk in [1, 300_000, 4 << 20] {
        for workers in [1, 3, 8] {
            let engine = engine(choice).chunk(chunk).workers(workers).build()?;
            let found = reductions(&engine, rows)?;
            let (found, expected) = (all_bits(&found), all_bits(&expected));
            check(found == expected, format!("chunk {chunk}, workers {workers}: {found:x?} instead of {expected:x?}"))?;
        }
    }
    Ok(())
}

fn odd_lengths(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice).chunk(1).build()?;
    for rows in [1, 2, 255, 256, 257, 1023, 1025, 4095, 4096, 4097, 8191, 12_289] {
        let a = numbers(rows, 5);
        let mut c = vec![f64::NAN; rows];
        let report = engine.run(Job::eval("c = a + 1; sum(c), min(c)")?.input("a", &a).output("c", &mut c))?;
        let expected: Vec<f64> = a.iter().map(|a| a + 1.0).collect();
        check(same_bits(&c, &expected), format!("{rows} rows: wrong rows"))?;
        let host = cpu().run(Job::eval("c = a + 1; sum(c), min(c)")?.input("a", &a))?;
        check(all_bits(&report) == all_bits(&host), format!("{rows} rows: other results than on the CPU"))?;
        check(report.rows == rows as u64, "rows of the report")?;
    }
    Ok(())
}

fn no_rows(choice: &DeviceChoice) -> Outcome {
    let a: Vec<f64> = vec![];
    let mut c: Vec<f64> = vec![];
    let job = Job::eval("c = a; sum(a), min(a), mean(a), count(a), all(a), any(a)")?;
    let report = engine(choice).build()?.run(job.input("a", &a).output("c", &mut c))?;
    check(report.value("sum(a)") == Ok(Some(Scalar::F64(0.0))), "sum of nothing is 0")?;
    check(report.value("min(a)") == Ok(None), "the minimum of nothing has no value")?;
    check(report.value("mean(a)")?.is_some_and(|mean| mean.as_f64().is_nan()), "the mean of nothing is NaN")?;
    check(report.value("all(a)") == Ok(Some(Scalar::Bool(true))), "all of nothing")?;
    check(report.chunks == 0, "no chunks")
}

fn limits_hold(choice: &DeviceChoice) -> Outcome {
    let rows = 2_000_000;
    let (a, b) = (numbers(rows, 6), numbers(rows, 7));
    let expected: Vec<f64> = a.iter().zip(&b).map(|(a, b)| a - b).collect();
    for (device, pinned) in [(1 << 20, 8 << 20), (8 << 20, 1 << 20), (200_000, 200_000), (3 << 20, 64 << 20)] {
        let engine = engine(choice).device_memory(device).pinned_memory(pinned).build()?;
        let mut c = vec![0.0; rows];
        let job = Job::eval("c = a - b; sum(c)")?.input("a", &a).input("b", &b).output("c", &mut c);
        let plan = engine.plan(&job)?;
        let report = engine.run(job)?;
        check(same_bits(&c, &expected), "wrong rows")?;
        for (found, planned) in report.devices.iter().zip(&plan.devices) {
            let peak = found.peak_device_bytes;
            check(peak <= device, format!("{peak} bytes of device memory, limit {device}"))?;
            check(
                peak == planned.device_bytes,
                format!("{peak} bytes of device memory, planned {}", planned.device_bytes),
            )?;
            // The run must have used some memory, or this would not test the limit.
            check(found.kind == DeviceKind::Cpu || peak > 0, "no device memory was counted")?;
        }
        let peak = report.peak_pinned_bytes;
        check(peak <= pinned * report.devices.len() as u64, format!("{peak} bytes pinned, limit {pinned}"))?;
    }
    Ok(())
}

fn limit_too_small(choice: &DeviceChoice) -> Outcome {
    if *choice == DeviceChoice::Cpu {
        let a = [1.0];
        engine(choice).device_memory(1).pinned_memory(1).build()?.run(Job::eval("sum(a)")?.input("a", &a))?;
        return Ok(());
    }
    let a = numbers(10_000, 1);
    let run = |device: u64, pinned: u64| {
        engine(choice).device_memory(device).pinned_memory(pinned).build()?.run(Job::eval("sum(a)")?.input("a", &a))
    };
    for (device, pinned) in [(1000, 1 << 20), (1 << 20, 1000)] {
        let Err(Error::Budget { needed, limit, .. }) = run(device, pinned) else {
            return Err("no error for a limit of 1000 bytes".into());
        };
        check(limit == 1000 && needed > limit, "the error tells limit and need")?;
        run(device.max(needed), pinned.max(needed))?;
    }
    // What is wrong with the job itself comes first, in a plan as in a run.
    let engine = engine(choice).device_memory(1000).build()?;
    let mut m = [0.0];
    let planned = engine.plan(&Job::eval("m = mean(a)")?.input("a", &a).output("m", &mut m)).err();
    let run = engine.run(Job::eval("m = mean(a)")?.input("a", &a).output("m", &mut m)).err();
    let errors = [planned, run].map(|error| error.map(|error| error.to_string()).unwrap_or_default());
    check(errors.iter().all(|error| error.contains("'m' is one number")), format!("{errors:?}"))
}

fn values(choice: &DeviceChoice) -> Outcome {
    const TEXT: &str = "c = a + v; d = where(a > v, i, i64(v)); count(a == w), mean(a * v), max(v)";
    let engine = engine(choice).chunk(1).build()?;
    let rows = 10_000;
    macro_rules! each {
        ($($t:ty: $of:expr, $values:expr;)*) => {$(
            let a: Vec<$t> = numbers(rows, 8).into_iter().map($of).collect();
            let w: $t = a[7];
            for v in $values {
                let v: $t = v;
                let (mut c, mut d) = ([a.clone(), a.clone()], [vec![-1i64; rows], vec![-2; rows]]);
                let ([c0, c1], [d0, d1]) = (&mut c, &mut d);
                let found = Job::eval(TEXT)?.input("a", &a).scalar("w", w).scalar("v", v);
                let found = engine.run(found.output("c", c0).output("d", d0))?;
                let (vs, ws) = (vec![v; rows], vec![w; rows]);
                let expected = Job::eval(TEXT)?.input("a", &a).input("v", &vs).input("w", &ws);
                let expected = engine.run(expected.output("c", c1).output("d", d1))?;
                let what = format!("{v} of {}", stringify!($t));
                let bytes = |rows| bytemuck::cast_slice::<$t, u8>(rows);
                check(bytes(&c[0]) == bytes(&c[1]), format!("rows with {what}"))?;
                check(d[0] == d[1], format!("other rows with {what}"))?;
                let (found, expected) = (all_bits(&found), all_bits(&expected));
                check(found == expected, format!("{what}: {found:x?} instead of {expected:x?}"))?;
            }
        )*};
    }
    each! {
        bool: |x| x > 0.0, [true, false];
        i8: |x| x as i8, [-100, 27];
        i16: |x| x as i16, [-30_000, 27];
        i32: |x| x as i32, [i32::MIN, 27];
        i64: |x| x as i64, [-(1 << 60), 27];
        u8: |x| x as u8, [200, 27];
        u16: |x| x as u16, [60_000, 27];
        u32: |x| x as u32, [u32::MAX, 27];
        u64: |x| x as u64, [u64::MAX, 27];
        f32: |x| x as f32, [-0.1, f32::NAN, 1e-40, f32::INFINITY];
        f64: |x| x, [-0.1, f64::NAN, 1e-310, f64::NEG_INFINITY];
    }
    let alone = |step: i64| engine.run(Job::eval("sum(i * step)")?.scalar("step", step).rows(100_000));
    for step in [3, -5] {
        let sum = alone(step)?.value("sum(i * step)")?;
        check(sum == Some(Scalar::I64(step * 4_999_950_000)), format!("{sum:?} by steps of {step}"))?;
    }
    Ok(())
}

fn wrong_values(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice).build()?;
    let x = [1.0];
    let job = |text| Job::eval(text).map(|job| job.input("x", &x));
    for (job, problem) in [
        (
            job("sum(x * v)")?.scalar("x", 1.0).scalar("v", 1.0),
            "'x' is given as an input and as a value: leave one out",
        ),
        (job("sum(x * v)")?.scalar("v", 1.0).scalar("v", 2.0), "value 'v' is given twice: leave one out"),
        (job("sum(x)")?.scalar("v", 1.0), "no name 'v' that could have a value; it reads 'x'"),
        (job("v = x; sum(v)")?.scalar("v", 1.0), "'v' is assigned by the expression, so it is an output, not a value"),
        (
            job("sum(x * v)")?,
            "reads 'v', but the job has no input of that name and no value; give 'v' an input or a value",
        ),
        (
            Job::eval("sum(i * v)")?.scalar("v", 1),
            "the number of rows is unknown: give an input, or the number of rows",
        ),
        (
            Job::kernel(overshot::testing::custom::everything()).scalar("a", 1.0f32),
            "the kernel 'everything' has the values of its call: give 'a' a value there",
        ),
    ] {
        match engine.run(job) {
            Err(error @ Error::InvalidJob(_)) if error.to_string().contains(problem) => {}
            other => return Err(format!("{other:?} instead of: {problem}").into()),
        }
    }
    Ok(())
}

fn dtypes(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice).chunk(1).build()?;
    let rows = 10_000;
    macro_rules! each {
        ($($t:ty),*) => {$(
            let a: Vec<$t> = numbers(rows, 8).iter().map(|x| *x as $t).collect();
            let mut c = vec![0 as $t; rows];
            let report = engine.run(Job::eval("c = a; max(a)")?.input("a", &a).output("c", &mut c))?;
            check(a == c, concat!("rows of ", stringify!($t)))?;
            let largest = a.iter().copied().fold(a[0], |m, x| if x > m { x } else { m });
            let found = report.value("max(a)")?.map(|m| m.as_f64());
            check(found == Some(largest as f64), concat!("max of ", stringify!($t)))?;
        )*};
    }
    // Integers of this size are f16 and bf16.
    let small: Vec<f32> = (0..rows).map(|row| (row % 201) as f32 - 100.0).collect();
    macro_rules! halves {
        ($($t:ty),*) => {$(
            let a: Vec<$t> = small.iter().map(|x| <$t>::from_f32(*x)).collect();
            let mut c = vec![<$t>::ZERO; rows];
            let report = engine.run(Job::eval("c = a; max(a)")?.input("a", &a).output("c", &mut c))?;
            check(a == c, concat!("rows of ", stringify!($t)))?;
            let found = report.value("max(a)")?.map(|m| m.as_f64());
            check(found == Some(100.0), concat!("max of ", stringify!($t)))?;
        )*};
    }
    halves!(half::f16, half::bf16);
    each!(i8, i16, i32, i64, u8, u16, u32, u64, f32, f64);
    let a: Vec<bool> = numbers(rows, 9).iter().map(|x| *x > 0.0).collect();
    let mut c = vec![false; rows];
    let report = engine.run(Job::eval("c = ~a; count(a)")?.input("a", &a).output("c", &mut c))?;
    check(a.iter().zip(&c).all(|(a, c)| a != c), "rows of bool")?;
    let count = a.iter().filter(|a| **a).count() as i64;
    check(report.value("count(a)") == Ok(Some(Scalar::I64(count))), "count of bool")
}

fn files(choice: &DeviceChoice) -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name);
    let rows = 100_000;
    let a = numbers(rows, 10);
    std::fs::write(path("a.raw"), bytemuck::cast_slice::<f64, u8>(&a))?;
    let engine = engine(choice).chunk(500_000).build()?;
    // Raw to .npy and back, by map and by pread, with a big-endian file in between.
    engine.run(
        Job::eval("b = a * 2")?
            .input("a", Raw::open(path("a.raw"), Dtype::F64)?)
            .output("b", Npy::create(path("b.npy"))),
    )?;
    big_endian(&path("b.npy"), &path("big.npy"))?;
    for reading in [None, Some(ReadMode::Pread), Some(ReadMode::Direct)] {
        let mut c = vec![0.0; rows];
        let open = |name| match reading {
            Some(reading) => Npy::open_with(path(name), reading),
            // SAFETY: only this test uses the folder, and it writes nothing there while the map exists.
            None => unsafe { Npy::map(path(name)) },
        };
        let (b, big) = (open("b.npy")?, open("big.npy")?);
        let report = engine
            .run(Job::eval("c = b / 4 + big / 4; max(c)")?.input("b", b).input("big", big).output("c", &mut c))?;
        check(same_bits(&c, &a), format!("{reading:?}: wrong rows"))?;
        let staged: u64 = report.devices.iter().filter(|d| d.kind != DeviceKind::Cpu).map(|d| d.rows).sum();
        check(report.bytes_to_device == 2 * 8 * staged, "bytes to the device")?;
        check(report.devices.iter().map(|d| d.rows).sum::<u64>() == rows as u64, "rows of all devices")?;
    }
    engine.run(Job::eval("d = b")?.input("b", Npy::open(path("b.npy"))?).output("d", Raw::create(path("d.raw"))))?;
    let doubled: Vec<u8> = a.iter().flat_map(|a| (a * 2.0).to_ne_bytes()).collect();
    check(std::fs::read(path("d.raw"))? == doubled, "raw output")
}

/// Rewrites a little-endian f64 `.npy` as big-endian.
fn big_endian(from: &Path, to: &Path) -> Outcome {
    let mut bytes = std::fs::read(from)?;
    let place = bytes.windows(4).position(|w| w == b"'<f8").ok_or("no dtype in the header")?;
    bytes[place + 1] = b'>';
    let header = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    bytes[header..].chunks_exact_mut(8).for_each(<[u8]>::reverse);
    Ok(std::fs::write(to, bytes)?)
}

fn pinned_arrays(choice: &DeviceChoice) -> Outcome {
    let rows = 500_000;
    let engine = engine(choice).chunk(1 << 20).build()?;
    let mut a = engine.pinned::<f64>(rows)?;
    let mut c = engine.pinned::<f64>(rows)?;
    a.copy_from_slice(&numbers(rows, 11));
    let report = engine.run(Job::eval("c = a * a")?.input("a", &a).output("c", &mut c))?;
    check(a.iter().zip(c.iter()).all(|(a, c)| (a * a).to_bits() == c.to_bits()), "wrong rows")?;
    if a.is_pinned() {
        check(report.peak_pinned_bytes == 0, "pinned arrays were staged in pinned memory")?;
    }
    // Together with a slice, which is staged.
    let b = numbers(rows, 12);
    engine.run(Job::eval("c = a * b")?.input("a", &a).input("b", &b).output("c", &mut c))?;
    check(a.iter().zip(&b).zip(c.iter()).all(|((a, b), c)| (a * b).to_bits() == c.to_bits()), "wrong rows, mixed")
}

fn generators(choice: &DeviceChoice) -> Outcome {
    let rows = 50_000;
    let engine = engine(choice).chunk(1).build()?;
    let squares = Generator::new(rows, |first, out: &mut [i64]| {
        out.iter_mut().zip(first as i64..).for_each(|(x, i)| *x = i * i);
    });
    let report = engine.run(Job::eval("all(x == i * i), sum(i)")?.input("x", squares))?;
    check(report.value("all(x == i * i)") == Ok(Some(Scalar::Bool(true))), "generated rows")?;
    let sum = rows as i64 * (rows as i64 - 1) / 2;
    check(report.value("sum(i)") == Ok(Some(Scalar::I64(sum))), "sum of row numbers")?;
    let alone = engine.run(Job::eval("max(i)")?.rows(rows))?;
    check(alone.value("max(i)") == Ok(Some(Scalar::I64(rows as i64 - 1))), "a job without inputs")
}

const FUNCTIONS: &[(&str, f64, f64)] = &[
    ("cbrt", -100.0, 100.0),
    ("exp", -100.0, 100.0),
    ("exp2", -100.0, 100.0),
    ("expm1", -10.0, 10.0),
    ("log", 0.0, 100.0),
    ("log2", 0.0, 100.0),
    ("log10", 0.0, 100.0),
    ("log1p", -1.0, 100.0),
    ("sin", -100.0, 100.0),
    ("cos", -100.0, 100.0),
    ("tan", -100.0, 100.0),
    ("asin", -1.0, 1.0),
    ("acos", -1.0, 1.0),
    ("atan", -100.0, 100.0),
    ("sinh", -20.0, 20.0),
    ("cosh", -20.0, 20.0),
    ("tanh", -5.0, 5.0),
    ("asinh", -100.0, 100.0),
    ("acosh", 1.0, 100.0),
    ("atanh", -1.0, 1.0),
];

fn functions(choice: &DeviceChoice) -> Outcome {
    let (device, host) = (engine(choice).build()?, cpu());
    let rows = 200_000;
    let compare = |text: &str, x: &[f64], y: &[f64]| -> Result<Vec<String>, Failed> {
        let (x32, y32): (Vec<f32>, Vec<f32>) =
            (x.iter().map(|x| *x as f32).collect(), y.iter().map(|y| *y as f32).collect());
        let two_inputs = text.contains('y');
        let mut wide = [vec![0f64; rows], vec![0f64; rows]];
        let mut narrow = [vec![0f32; rows], vec![0f32; rows]];
        for (engine, (wide, narrow)) in [&device, &host].into_iter().zip(wide.iter_mut().zip(&mut narrow)) {
            let job = Job::eval(&format!("c = {text}"))?.input("x", x).output("c", wide);
            engine.run(if two_inputs { job.input("y", y) } else { job })?;
            let job = Job::eval(&format!("c = {text}"))?.input("x", &x32).output("c", narrow);
            engine.run(if two_inputs { job.input("y", &y32) } else { job })?;
        }
        let wide = (0..rows).find(|row| wide[0][*row].to_bits() != wide[1][*row].to_bits());
        let narrow = (0..rows).find(|row| narrow[0][*row].to_bits() != narrow[1][*row].to_bits());
        let differs = |row: Option<usize>, dtype: &str| {
            row.map(|row| format!("{text} of {dtype} differs for x = {:e}, y = {:e}", x[row], y[row]))
        };
        Ok([differs(wide, "f64"), differs(narrow, "f32")].into_iter().flatten().collect::<Vec<_>>())
    };
    let mut wrong = Vec::new();
    // Arbitrary bits, to reach every case of a function.
    let mut state = 12u64;
    let mut any = || -> Vec<f64> {
        let step = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            f64::from_bits(state ^ (state >> 29))
        };
        (0..rows).map(step).collect()
    };
    for &(name, from, to) in FUNCTIONS {
        let x: Vec<f64> = numbers(rows, 13).iter().map(|x| from + (x + 100.0) / 200.0 * (to - from)).collect();
        wrong.extend(compare(&format!("{name}(x)"), &x, &x)?);
        wrong.extend(compare(&format!("{name}(x)"), &any(), &x)?);
    }
    for (x, y) in [(numbers(rows, 14), numbers(rows, 15)), (any(), any())] {
        for text in ["atan2(y, x)", "hypot(x, y)", "abs(x) ** (y / 20)", "x ** y"] {
            wrong.extend(compare(text, &x, &y)?);
        }
    }
    check(wrong.is_empty(), wrong.join("\n"))
}

fn auto(_: &DeviceChoice) -> Outcome {
    let x = numbers(3_000_000, 27);
    let run = |engine: &Engine| -> Result<(Vec<f64>, Report), Failed> {
        let mut y = vec![0.0; x.len()];
        let report = engine.run(Job::eval("y = exp(x / 100); sum(y)")?.input("x", &x).output("y", &mut y))?;
        Ok((y, report))
    };
    let engine = Engine::builder().device(DeviceChoice::Auto).build()?;
    let (alone, report) = run(&engine)?;
    check(report.devices.len() == 1 && report.devices[0].kind == DeviceKind::Cpu, "a GPU was opened for so little")?;
    check(report.notes.iter().any(|note| note.contains("no GPU was used")), format!("{:?}", report.notes))?;
    // Pinning an array opens the GPUs, so auto may use them now.
    engine.pinned::<u8>(1)?;
    let (shared, report) = run(&engine)?;
    check(report.devices.len() > 1, "the GPU is open, but was not used")?;
    check(report.devices.iter().map(|device| device.rows).sum::<u64>() == x.len() as u64, "rows of all devices")?;
    check(same_bits(&alone, &shared), "who computed what shows in the result")
}

fn arithmetic_bits(choice: &DeviceChoice) -> Outcome {
    let rows = 100_000;
    let special =
        [0.0, -0.0, 1.0, -1.0, f64::INFINITY, -f64::INFINITY, f64::NAN, f64::MIN_POSITIVE / 8.0, f64::MAX, 0.5];
    let mix = |seed: u64| -> Vec<f64> {
        let pick = |(k, x): (usize, f64)| if k % 3 == 0 { special[(k / 3 + seed as usize) % special.len()] } else { x };
        numbers(rows, seed).into_iter().enumerate().map(pick).collect()
    };
    let (x, y) = (mix(16), mix(17).into_iter().rev().collect::<Vec<_>>());
    let n: Vec<i32> = numbers(rows, 18).iter().map(|x| (*x * 2e7) as i32).collect();
    let text = [
        "a = x * y + x / y - sqrt(abs(x)); b = min(x, y) * max(x, 1.5) + x // y + x % y",
        "c = f32(x) * f32(y) - f32(x) / f32(y); d = round(x * 10) + floor(y) + ceil(x) + trunc(y)",
        "m = n // 7 + n % 1000 + (n << 3) + (n >> 2) + n * n; f = i16(x * 1000); g = u8(n ^ 12345)",
        "h = where(x > y, x, y) ** 2; k = clip(x, -3, 5); sum(x * y), var(f32(y)), argmax(x), min(k)",
        "o = copysign(x, y - x) + fmod(y, x) + sign(y); p = nextafter(f32(x), f32(y)); q = nextafter(x, y)",
        "r = i8(signbit(x * y)) + sign(n) + fmod(n, 1000); prod(sign(n) + 2), prod(1 + y / 1e4)",
        "s = rand(3) + x; t = f32(randn(4)); mean(rand(n)), std(randn(5))",
    ]
    .join("; ");
    let run = |engine: &Engine| -> Result<(Vec<u64>, Results), Failed> {
        let folder = tempfile::tempdir()?;
        let mut job = Job::eval(&text)?.input("x", &x).input("y", &y).input("n", &n);
        let names = ["a", "b", "c", "d", "m", "f", "g", "h", "k", "o", "p", "q", "r", "s", "t"];
        for name in names {
            job = job.output(name, Raw::create(folder.path().join(name)));
        }
        let report = engine.run(job)?;
        let mut hashes = Vec::new();
        for name in names {
            let bytes = std::fs::read(folder.path().join(name))?;
            // FNV-1a: it only matters whether there is a difference, not where.
            hashes.push(
                bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3)),
            );
        }
        Ok((hashes, all_bits(&report)))
    };
    let (found, expected) = (run(&engine(choice).chunk(1 << 20).build()?)?, run(&cpu())?);
    check(found == expected, format!("{found:x?} instead of {expected:x?}"))
}

/// A source whose reads fail from a certain row on.
struct Broken {
    rows: u64,
    from: u64,
}

impl Source for Broken {
    fn dtype(&self) -> Dtype {
        Dtype::F64
    }
    fn rows(&self) -> u64 {
        self.rows
    }
    fn name(&self) -> String {
        "broken".into()
    }
    fn read(&self, first: u64, dst: &mut [u8]) -> overshot::Result<()> {
        dst.fill(0);
        if first + (dst.len() / 8) as u64 > self.from {
            return Err(Error::other("the disk is on fire"));
        }
        Ok(())
    }
}

fn failing_source(choice: &DeviceChoice) -> Outcome {
    let folder = tempfile::tempdir()?;
    let engine = engine(choice).chunk(1).workers(3).build()?;
    for from in [0, 1, 100_000, 499_999] {
        let job = Job::eval("c = x")?.input("x", Broken { rows: 500_000, from });
        let error = engine.run(job.output("c", Npy::create(folder.path().join("c.npy")))).err().ok_or("no error")?;
        let Error::Chunk { rows, cause, .. } = &error else { return Err(format!("not the error: {error}").into()) };
        check(rows.end > from && cause.to_string().contains("on fire"), format!("{error}"))?;
        check(std::fs::read_dir(folder.path())?.count() == 0, "something was left behind")?;
    }
    let x = [1.0, 2.0];
    check(
        engine.run(Job::eval("sum(x)")?.input("x", &x))?.value("sum(x)")?.is_some(),
        "the engine is broken afterwards",
    )
}

fn cancelled(choice: &DeviceChoice) -> Outcome {
    let folder = tempfile::tempdir()?;
    let x = numbers(1_000_000, 19);
    let token = CancelToken::new();
    let chunks = AtomicU64::new(0);
    let stop = |_| {
        if chunks.fetch_add(1, Ordering::Relaxed) == 3 {
            token.cancel();
        }
    };
    let job = Job::eval("c = x")?.input("x", &x).output("c", Npy::create(folder.path().join("c.npy")));
    let result = engine(choice).chunk(1).workers(2).build()?.run(job.cancel_token(token.clone()).progress(stop));
    let Err(Error::Cancelled { done, rows }) = result else { return Err("it was not cancelled".into()) };
    check(done > 0 && done < rows, format!("{done} of {rows} rows done"))?;
    check(std::fs::read_dir(folder.path())?.count() == 0, "something was left behind")?;
    // Cancelled when no chunk is left to claim, in one pass and in the last of two.
    for text in ["c = x", "c = x - mean(x)"] {
        let token = CancelToken::new();
        let at_the_end = |progress: Progress| {
            if progress.done == progress.rows {
                token.cancel();
            }
        };
        let job = Job::eval(text)?.input("x", &x).output("c", Npy::create(folder.path().join("c.npy")));
        let result = engine(choice).build()?.run(job.cancel_token(token.clone()).progress(at_the_end));
        check(matches!(result, Err(Error::Cancelled { done: 1_000_000, rows: 1_000_000 })), format!("{result:?}"))?;
        check(std::fs::read_dir(folder.path())?.count() == 0, "something was left behind")?;
    }
    Ok(())
}

fn two_outputs(choice: &DeviceChoice) -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name);
    let x = numbers(100_000, 19);
    // Another program creates a file with the name of the second output while the job runs.
    let appear = |_| std::fs::write(path("b.npy"), "mine").expect("a file");
    let job = Job::eval("a = x; b = x + 1")?.input("x", &x).progress(appear);
    let job = job.output("a", Npy::create(path("a.npy"))).output("b", Npy::create(path("b.npy")));
    let error = engine(choice).build()?.run(job).err().ok_or("no error")?;
    check(error.to_string().contains("appeared"), error.to_string())?;
    check(std::fs::read(path("b.npy"))? == b"mine", "the other's file was changed")?;
    check(std::fs::read_dir(folder.path())?.count() == 1, "something was left behind")
}

/// An output that reports pinned rows, but whose sink has memory for fewer rows, of another dtype.
struct Lying<'a>(&'a mut [u8]);

struct LyingSink<'a>(SinkMemory<'a>);

impl Target for Lying<'_> {
    fn name(&self) -> String {
        "lying".into()
    }
    fn place(&self) -> Placement {
        Placement::Pinned
    }
    fn open<'s>(self: Box<Self>, _: Dtype, _: u64, _: Option<&[u64]>) -> overshot::Result<Box<dyn Sink + 's>>
    where
        Self: 's,
    {
        Ok(Box::new(LyingSink(SinkMemory::new(self.0, Dtype::U8).expect("bytes are aligned"))))
    }
}

impl Sink for LyingSink<'_> {
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

fn lying_sink(choice: &DeviceChoice) -> Outcome {
    let x = numbers(1000, 1);
    let mut memory = vec![7u8; 3000];
    let job = Job::eval("y = x")?.input("x", &x).output("y", Lying(&mut memory[..1000]));
    let error = engine(choice).build()?.run(job).err().ok_or("no error for memory of another dtype")?;
    check(error.to_string().contains("1000 rows of 1 bytes, not 1000 rows of f64"), error.to_string())?;
    check(memory.iter().all(|byte| *byte == 7), "memory was written")?;
    let bytes = vec![1u8; 1000];
    let job = Job::eval("y = x")?.input("x", &bytes).output("y", Lying(&mut memory[..1000]));
    let error = engine(choice).build()?.run(job).err().ok_or("no error for memory that is not pinned")?;
    check(error.to_string().contains("rows stand in pinned memory"), error.to_string())
}

fn absurd_limits(choice: &DeviceChoice) -> Outcome {
    check(engine(choice).workers(usize::MAX).build().is_err(), "so many workers")?;
    check(engine(choice).workers(0).build().is_err(), "no workers")?;
    let x = numbers(10_000, 2);
    let huge = engine(choice).chunk(u64::MAX).device_memory(1 << 30).pinned_memory(u64::MAX).workers(64).build()?;
    let report = huge.run(Job::eval("count(x < 1000)")?.input("x", &x))?;
    check(report.value("count(x < 1000)") == Ok(Some(Scalar::I64(10_000))), "a wrong count")?;
    // Planning more rows than fit in memory gives a plan or an error, not a panic.
    let _ = huge.plan(&Job::eval("a = f64(i); b = a + 1; sum(a * b)")?.rows(u64::MAX));
    Ok(())
}

fn concurrent_jobs(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice).chunk(200_000).build()?;
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for k in 0..4u64 {
            let (engine, failures) = (&engine, &failures);
            scope.spawn(move || {
                let x = numbers(200_000 + k as usize, k);
                let mut y = vec![0.0; x.len()];
                let mut run = || engine.run(Job::eval("y = x * x; sum(y)")?.input("x", &x).output("y", &mut y));
                let right = run().is_ok() && x.iter().zip(&y).all(|(x, y)| x * x == *y);
                if !right {
                    failures.lock().expect("no panics").push(k);
                }
            });
        }
    });
    let failures = failures.into_inner()?;
    check(failures.is_empty(), format!("jobs {failures:?} failed"))
}

// Cases only for the emulated device.

fn seeds() -> Outcome {
    let rows = 120_000;
    let expected = all_bits(&reductions(&cpu(), rows)?);
    let a = numbers(rows, 20);
    for seed in 0..60 {
        // Memory for one block to a few, so that blocks pass from worker to worker while work on them is pending.
        let device = Emulated::new().seed(seed);
        let memory = 400_000 + seed % 7 * 300_000;
        let workers = 1 + (seed % 6) as usize;
        let choice = DeviceChoice::from(device);
        let engine =
            Engine::builder().device(choice).device_memory(memory).chunk(1 + seed * 3000).workers(workers).build()?;
        check(all_bits(&reductions(&engine, rows)?) == expected, format!("seed {seed}: other results"))?;
        let mut c = vec![0.0; rows];
        engine.run(Job::eval("c = a + f64(i)")?.input("a", &a).output("c", &mut c))?;
        let right = a.iter().zip(&c).enumerate().all(|(i, (a, c))| *c == a + i as f64);
        check(right, format!("seed {seed}: wrong rows"))?;
    }
    Ok(())
}

fn faults() -> Outcome {
    let folder = tempfile::tempdir()?;
    let x = numbers(300_000, 21);
    let mut failed = 0;
    for at in [FaultAt::CopyIn, FaultAt::Kernel, FaultAt::CopyOut] {
        for nth in [0, 1, 5, 20, 40] {
            let device = Emulated::new().seed(nth).fault(Fault::new(at, nth));
            let engine = Engine::builder().device(DeviceChoice::from(device)).chunk(1).build()?;
            let path = folder.path().join("y.npy");
            let result = engine.run(Job::eval("y = x + 1; sum(x)")?.input("x", &x).output("y", Npy::create(&path)));
            match result {
                Ok(_) => {
                    let mut back = vec![0.0; x.len()];
                    Engine::builder()
                        .device(DeviceChoice::Cpu)
                        .build()?
                        .run(Job::eval("back = y")?.input("y", Npy::open(&path)?).output("back", &mut back))?;
                    check(x.iter().zip(&back).all(|(x, y)| x + 1.0 == *y), format!("{at:?} {nth}: a wrong answer"))?;
                    std::fs::remove_file(&path)?;
                }
                Err(error) => {
                    failed += 1;
                    check(matches!(error, Error::Chunk { .. }), format!("{at:?} {nth}: {error}"))?;
                    check(error.to_string().contains("on demand"), format!("{at:?} {nth}: {error}"))?;
                }
            }
            check(std::fs::read_dir(folder.path())?.count() == 0, format!("{at:?} {nth}: something was left behind"))?;
        }
    }
    check(failed >= 12, format!("only {failed} of 15 failures showed"))?;
    // The error of a failed kernel names its chunk, or all chunks that were on the device at the time.
    for (nth, slots) in [(0u64, 1), (3, 1), (3, 2), (7, 2)] {
        let device = Emulated::new().seed(nth).fault(Fault::new(FaultAt::Kernel, nth));
        // Chunks of one tile each, on a device with memory for this many.
        let memory = slots * 2 * 4096 * 8;
        let engine = Engine::builder().device(device).chunk(1).workers(1).device_memory(memory).build()?;
        let mut y = vec![0.0; x.len()];
        let error = engine.run(Job::eval("y = x + 1")?.input("x", &x).output("y", &mut y)).err().ok_or("no error")?;
        let Error::Chunk { rows, .. } = &error else { return Err(format!("{error}").into()) };
        check(rows.contains(&(nth * 4096 + 1)), format!("kernel {nth}: {error}"))?;
        check(rows.end - rows.start <= 2 * 4096, format!("kernel {nth}: {error}"))?;
    }
    Ok(())
}

fn shortage() -> Outcome {
    let x = numbers(1_000_000, 22);
    let run = |device: Emulated| -> Result<Report, Error> {
        let engine = Engine::builder().device(DeviceChoice::from(device)).build()?;
        engine.run(Job::eval("sum(x)")?.input("x", &x))
    };
    let expected = all_bits(&run(Emulated::new())?);
    check(
        matches!(run(Emulated::new().taken(64 << 20)), Err(Error::OutOfMemory { .. })),
        "a device without any memory",
    )?;
    // Room for less than one block of the first plan: chunks are halved until one fits.
    let halved = run(Emulated::new().taken((64 << 20) - 100_000))?;
    check(all_bits(&halved) == expected, "other results with smaller chunks")?;
    check(halved.notes.iter().any(|note| note.contains("made smaller")), format!("{:?}", halved.notes))?;
    check(halved.devices[0].peak_device_bytes <= 100_000, "more memory than there was")?;
    // A chunk size that was asked for is kept.
    let device = Emulated::new().taken((64 << 20) - 100_000);
    let kept = Engine::builder().device(device).chunk(1 << 20).build()?.run(Job::eval("sum(x)")?.input("x", &x));
    check(matches!(kept, Err(Error::OutOfMemory { .. })), format!("{kept:?}"))?;
    // Memory for some of the blocks leaves fewer of them, which the report says.
    let engine = Engine::builder().device(Emulated::new()).build()?;
    let plan = engine.plan(&Job::eval("sum(x)")?.input("x", &x))?;
    let (block, blocks) = (plan.devices[0].block_bytes, plan.devices[0].blocks as u64);
    for room in 1..blocks {
        let fewer = run(Emulated::new().taken((64 << 20) - room * block - block / 2))?;
        check(all_bits(&fewer) == expected, format!("other results with {room} blocks"))?;
        let note = format!("memory for {room} of {blocks} blocks");
        check(fewer.notes.iter().any(|other| other.contains(&note)), format!("{:?}", fewer.notes))?;
        check(fewer.devices[0].peak_device_bytes == room * block, "the peak with fewer blocks")?;
    }
    // One allocation that fails and others that do not: all blocks are there, in several pieces.
    let pieces = run(Emulated::new().fault(Fault::new(FaultAt::Allocate, 0)))?;
    check(all_bits(&pieces) == expected && pieces.notes.is_empty(), format!("in pieces: {:?}", pieces.notes))
}

fn unequal_devices() -> Outcome {
    // Enough chunks that each device claims one, although a chunk takes no time and only the seed chooses the worker.
    let rows = 2_100_001;
    let expected = all_bits(&reductions(&cpu(), rows)?);
    let a = numbers(rows, 28);
    // From ample memory to a tile or two; the third device has less than it reports.
    let sizes = |seed: u64| {
        let device = |k: u64| Emulated::new().seed(seed + k);
        let less = device(2).memory(64 << 20).taken((64 << 20) - 2_000_000);
        [device(0).memory(64 << 20), device(1).memory(300_000), less, device(3).memory(3 << 20)]
    };
    let mut alone = None;
    for seed in 0..6 {
        for count in [1, 2, 4] {
            let choice = DeviceChoice::Emulated(sizes(10 * seed)[..count].to_vec());
            let engine = Engine::builder().device(choice).build()?;
            let what = format!("{count} devices, seed {seed}");
            let report = reductions(&engine, rows)?;
            check(all_bits(&report) == expected, format!("{what}: other results"))?;
            let mut c = vec![0.0; rows];
            let report = engine.run(Job::eval("c = a + f64(i)")?.input("a", &a).output("c", &mut c))?;
            let right = a.iter().zip(&c).enumerate().all(|(i, (a, c))| *c == a + i as f64);
            check(right, format!("{what}: wrong rows"))?;
            let found: Vec<&str> = report.devices.iter().map(|device| &*device.id).collect();
            let names = ["emulated:0", "emulated:1", "emulated:2", "emulated:3"];
            check(if count == 1 { found == ["emulated"] } else { found == names[..count] }, format!("{found:?}"))?;
            check(report.devices.iter().all(|device| device.rows > 0), format!("{what}: one did nothing"))?;
            check(report.devices.iter().map(|device| device.rows).sum::<u64>() == rows as u64, "rows of all devices")?;
            // The small devices do not slow the large one down, and the report names them.
            alone = alone.or(Some(report.devices[0].chunk_rows));
            check(report.devices[0].chunk_rows == report.chunk_rows, format!("{what}: {report}"))?;
            check(alone == Some(report.chunk_rows), format!("{what}: smaller chunks than alone: {report}"))?;
            for (device, most) in report.devices.iter().zip([64 << 20, 300_000, 2_000_000, 3 << 20]) {
                check(device.peak_device_bytes <= most, format!("{what}: {} took too much", device.id))?;
                let smaller = device.chunk_rows < report.chunk_rows;
                let noted = report.notes.iter().any(|note| note.starts_with(&format!("{} ha", device.id)));
                check(!smaller || noted, format!("{what}: {:?}", report.notes))?;
            }
        }
    }
    Ok(())
}

fn full_device() -> Outcome {
    let x = numbers(100_000, 29);
    let run = |devices: Vec<Emulated>| -> Result<Report, Error> {
        let engine = Engine::builder().device(DeviceChoice::Emulated(devices)).build()?;
        engine.run(Job::eval("sum(x)")?.input("x", &x))
    };
    let full = || Emulated::new().memory(1 << 20).taken(1 << 20);
    let alone = run(vec![Emulated::new()])?;
    let beside = run(vec![full(), Emulated::new()])?;
    check(all_bits(&beside) == all_bits(&alone), "other results")?;
    check(beside.devices.len() == 1 && beside.devices[0].id == "emulated:1", "the full device took part")?;
    check(beside.notes.iter().any(|note| note.starts_with("emulated:0 took no part")), format!("{:?}", beside.notes))?;
    check(matches!(run(vec![full(), full()]), Err(Error::OutOfMemory { .. })), "devices without any memory")
}

fn unequal_speeds() -> Outcome {
    let rows = 4096 * 512u64;
    let x = numbers(rows as usize, 30);
    // Rows per virtual second: each device has another bottleneck. A row is 8 bytes each way.
    let (slow, fast) = (1e6, 2e6);
    for seed in 0..4u64 {
        let quick = |k: u64| Emulated::new().seed(seed + k).copy_in_rate(1e9).kernel_rate(1e8).copy_out_rate(1e9);
        for devices in [
            [quick(0).kernel_rate(slow), quick(1).kernel_rate(fast)],
            [quick(0).copy_in_rate(8.0 * slow), quick(1).copy_out_rate(8.0 * fast)],
            // Four workers fill.
            [quick(0).fill_rate(8.0 / 4.0 * slow), quick(1).kernel_rate(fast)],
        ] {
            let mut y = vec![0.0; x.len()];
            let engine = Engine::builder().device(DeviceChoice::Emulated(devices.to_vec())).chunk(4 * 4096 * 16);
            let report = engine.build()?.run(Job::eval("y = x")?.input("x", &x).output("y", &mut y))?;
            check(same_bits(&x, &y), "wrong rows")?;
            let [first, second] = &report.devices[..] else { return Err("two devices, two reports".into()) };
            let ratio = second.rows as f64 / first.rows as f64;
            check((1.8..2.2).contains(&ratio), format!("{} and {} rows: {devices:?}", first.rows, second.rows))?;
            // Neither waits long for the other: together they take as long as one device with the speed of both.
            let took =
                [first, second].iter().filter_map(|device| device.virtual_time).max().unwrap_or_default().as_secs_f64();
            let best = rows as f64 / (slow + fast);
            check((1.0..1.1).contains(&(took / best)), format!("{took} s instead of {best} s: {devices:?}"))?;
        }
    }
    Ok(())
}

fn overlap() -> Outcome {
    let rows = 4096 * 256u64;
    // The copy in, the kernel and the copy out are the slowest stage, one after the other. A row is 8 bytes each way.
    for (copy_in, kernel, copy_out) in [(1e6, 1e6, 1e8), (1e8, 1e5, 1e8), (1e8, 1e6, 1e6), (8e6, 1e6, 8e6)] {
        let stages = [8.0 / copy_in, 1.0 / kernel, 8.0 / copy_out];
        let slowest = stages.iter().copied().fold(0.0, f64::max) * rows as f64;
        let serial = stages.iter().sum::<f64>() * rows as f64;
        let x = numbers(rows as usize, 23);
        let mut y = vec![0.0; x.len()];
        let chunk = 16 * 4096 * 4;
        let mut run = |memory: u64| -> Result<(f64, Report), Failed> {
            let device = Emulated::new().copy_in_rate(copy_in).kernel_rate(kernel).copy_out_rate(copy_out);
            let engine = Engine::builder().device(DeviceChoice::from(device)).chunk(chunk).device_memory(memory);
            let engine = engine.build()?;
            let report = engine.run(Job::eval("y = x")?.input("x", &x).output("y", &mut y))?;
            Ok((report.devices[0].virtual_time.ok_or("no virtual time")?.as_secs_f64(), report))
        };
        let (took, report) = run(64 << 20)?;
        let one_chunk = stages.iter().sum::<f64>() * report.chunk_rows as f64;
        let what = format!(
            "{took} s for a slowest stage of {slowest} s, one chunk {one_chunk} s, one after the other {serial} s"
        );
        check(took >= slowest * 0.999_999, format!("faster than possible: {what}"))?;
        check(took <= slowest + one_chunk, format!("no overlap: {what}"))?;
        check(report.chunks >= 16, "too few chunks to tell")?;
        // With one block nothing can overlap: the clock shows that too.
        let (took, _) = run(chunk)?;
        check((took / serial - 1.0).abs() < 1e-6, format!("one block took {took} s instead of {serial} s"))?;
    }
    Ok(())
}

fn repeatable() -> Outcome {
    let x = numbers(300_000, 24);
    let run = || -> Result<Vec<u64>, Failed> {
        let order = Mutex::new(Vec::new());
        let device = Emulated::new().seed(9);
        let engine = Engine::builder().device(DeviceChoice::from(device)).chunk(1).build()?;
        let source = Generator::new(x.len() as u64, |first, out: &mut [f64]| {
            order.lock().expect("no panics").push(first);
            out.copy_from_slice(&x[first as usize..][..out.len()]);
        });
        engine.run(Job::eval("sum(x)")?.input("x", source))?;
        Ok(order.into_inner()?)
    };
    check(run()? == run()?, "two runs of one seed differ")
}
