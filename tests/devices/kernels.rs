//! Custom kernels.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use libtest_mimic::Failed;
use overshot::kernel::RowFunction;
use overshot::testing::custom::{FACTOR, TABLE, everything, keep};
use overshot::{DeviceChoice, Engine, Job, Npy, Raw, Source, device::Emulated, kernel::CustomKernel};
use serde_json::Value;

use crate::harness::{Case, EmulatedCase, Module, NO_CASES, Outcome, check, engine, numbers};

pub const MODULE: Module = Module { name: "kernels", cases: CASES, emulated: EMULATED, on_host: ON_HOST, ..NO_CASES };

const CASES: &[(&str, Case)] = &[
    ("rows of several sizes, scalars, arrays and scratch", all_parts),
    ("compacted rows are in order, for all schedules", kept_in_order),
    ("files of compacted rows have their length", kept_files),
    ("compaction that selects nothing, and no rows", kept_nothing),
    ("files of rows of several elements have their shape", shaped_files),
    ("arguments that do not match the parameters are errors", misfits),
    ("a kernel without the parameter rows gets whole blocks", without_rows),
    ("rows of excessive size are an error", absurd_rows),
];

const ON_HOST: &[(&str, Case)] = &[
    ("a Rust closure computes typed rows", rust_function),
    ("a Rust closure that does not fit the job is an error", rust_function_misfits),
    ("a Rust closure is called once for each row", rust_function_once),
    ("a kernel that lies about what it kept is an error", lying_kernel),
    ("compacted rows of several elements", kept_pairs),
];

const EMULATED: &[(&str, EmulatedCase)] =
    &[("resident arrays take device memory, and time before the first chunk", resident_arrays)];

fn all_parts(choice: &DeviceChoice) -> Outcome {
    for rows in [1, 99, 100, 101, 50_000] {
        let x: Vec<f32> = numbers(3 * rows, 1).iter().map(|x| *x as f32).collect();
        let (mut y, mut z) = (vec![0.0; rows], vec![0.0f32; 2 * rows]);
        let engine = engine(choice).chunk(64 << 10).build()?;
        let report = engine.run(Job::kernel(everything()).input("x", &x).output("y", &mut y).output("z", &mut z))?;
        let rows_of_x = x.as_chunks::<3>().0;
        let right = |i: usize| {
            let x = rows_of_x[i];
            y[i] == TABLE[i % 7] + f64::from(x[0] + x[1]) * f64::from(FACTOR) && z[2 * i..][..2] == [x[2], x[0]]
        };
        check((0..rows).all(right), format!("{rows} rows: a wrong one"))?;
        check(report.rows == rows as u64 && report.outputs[1].bytes == 8 * rows as u64, "the report counts rows")?;
    }
    Ok(())
}

/// Returns the values that a simple filter keeps, and their rows.
fn naive(x: &[f64]) -> (Vec<f64>, Vec<i64>) {
    x.iter().zip(0..).filter(|(x, _)| **x > 50.0).map(|(x, i)| (*x, i)).unzip()
}

fn kept_in_order(choice: &DeviceChoice) -> Outcome {
    let x = numbers(100_000, 1);
    let (big, places) = naive(&x);
    let mut choices = vec![choice.clone()];
    if let DeviceChoice::Emulated(_) = choice {
        choices = (0..20).map(|seed| format!("emulated:{seed}").parse()).collect::<Result<_, _>>()?;
    }
    for choice in &choices {
        for (chunk, workers) in [(8 << 10, 1), (40 << 10, 3), (200 << 10, 7)] {
            let engine = engine(choice).chunk(chunk).workers(workers).build()?;
            // Memory that a GPU could write in place: compacted rows go through slots all the same.
            let (mut b, mut w) = (engine.pinned::<f64>(x.len())?, vec![-1; x.len()]);
            let job = Job::kernel(&keep()).input("x", &x).output("big", &mut b).output("where", &mut w);
            let report = engine.run(job)?;
            let kept = report.outputs[0].rows as usize;
            check(kept == big.len(), format!("{choice}: {kept} of {} rows", big.len()))?;
            check(b[..kept] == big[..] && w[..kept] == places[..], format!("{choice}: other rows"))?;
        }
    }
    Ok(())
}

fn kept_files(choice: &DeviceChoice) -> Outcome {
    let folder = tempfile::tempdir()?;
    let (b, w) = (folder.path().join("b.npy"), folder.path().join("w.raw"));
    let x = numbers(70_000, 1);
    let (big, places) = naive(&x);
    let job = Job::kernel(&keep()).input("x", &x).output("big", Npy::create(&b)).output("where", Raw::create(&w));
    engine(choice).build()?.run(job)?;
    check(std::fs::metadata(&w)?.len() == 8 * places.len() as u64, "the raw file has another length")?;
    let written = std::fs::read(&w)?;
    check(written == bytes_of(&places), "other rows in the raw file")?;
    let mut again = vec![0.0; big.len()];
    Engine::builder()
        .device(DeviceChoice::Cpu)
        .build()?
        .run(Job::eval("y = x")?.input("x", Npy::open(&b)?).output("y", &mut again))?;
    check(again == big, "other rows in the .npy file")
}

fn shaped_files(choice: &DeviceChoice) -> Outcome {
    let folder = tempfile::tempdir()?;
    let (y, z) = (folder.path().join("y.npy"), folder.path().join("z.npy"));
    let x = vec![1f32; 3 * 1000];
    let job = Job::kernel(everything()).input("x", &x).output("y", Npy::create(&y)).output("z", Npy::create(&z));
    engine(choice).build()?.run(job)?;
    for (path, shape) in [(y, &[1000][..]), (z, &[1000, 2])] {
        let found = Npy::open(&path)?;
        check(found.shape() == Some(shape), format!("{}: {:?}", path.display(), found.shape()))?;
    }
    Ok(())
}

/// Keeps the values over 50, each with its opposite.
fn kept_pairs(choice: &DeviceChoice) -> Outcome {
    let text = "extern \"C\" __global__ void f(long long rows, const double *x, double (*pairs)[2],
                                              unsigned long long *num_selected) {}";
    // SAFETY: it does nothing.
    let kernel = unsafe { CustomKernel::cuda("f.cu", text, "f") }?.on_host(|rows| {
        let (x, tile_rows) = (rows.input::<f64>("x"), rows.tile_rows());
        let (pairs, kept) = (rows.output::<f64>("pairs"), rows.num_selected());
        for ((x, pairs), kept) in x.chunks(tile_rows).zip(pairs.chunks_mut(2 * tile_rows)).zip(kept) {
            let found = x.iter().filter(|x| **x > 50.0);
            *kept = found.zip(pairs.as_chunks_mut::<2>().0).map(|(x, pair)| *pair = [*x, -x]).count() as u64;
        }
    });
    let x = numbers(70_000, 1);
    let expected: Vec<f64> = naive(&x).0.iter().flat_map(|x| [*x, -x]).collect();
    let rows = expected.len() / 2;
    let engine = engine(choice).chunk(100 << 10).build()?;
    let mut pairs = vec![f64::NAN; 2 * x.len()];
    let report = engine.run(Job::kernel(&kernel).input("x", &x).output("pairs", &mut pairs))?;
    check(pairs[..2 * rows] == expected[..], "other rows in memory")?;
    let output = &report.outputs[0];
    check((output.rows, output.bytes) == (rows as u64, 16 * rows as u64), format!("{output:?}"))?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("pairs.npy");
    engine.run(Job::kernel(&kernel).input("x", &x).output("pairs", Npy::create(&path)))?;
    let file = Npy::open(&path)?;
    check(file.shape() == Some(&[rows as u64, 2]), format!("{:?}", file.shape()))?;
    let mut found = vec![0.0; 2 * rows];
    file.read(0, bytemuck::cast_slice_mut(&mut found))?;
    check(found == expected, "other rows in the file")
}

fn bytes_of(values: &[i64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

fn kept_nothing(choice: &DeviceChoice) -> Outcome {
    for rows in [0, 10_000] {
        let (x, mut b, mut w) = (vec![0.0; rows], vec![7.0; rows], vec![7i64; rows]);
        let job = Job::kernel(&keep()).input("x", &x).output("big", &mut b).output("where", &mut w);
        let report = engine(choice).build()?.run(job)?;
        check(report.outputs.iter().all(|output| output.rows == 0 && output.bytes == 0), "something was kept")?;
        check(b.iter().all(|b| *b == 7.0), "something was written")?;
    }
    Ok(())
}

fn misfits(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice).build()?;
    let (x, x64) = (vec![0.0f32; 30], vec![0.0f64; 30]);
    let (mut y, mut z, mut short) = (vec![0.0; 10], vec![0.0f32; 20], vec![0.0f32; 19]);
    let error = |job: Job<'_>| engine.run(job).err().map(|error| error.to_string()).unwrap_or_default();
    let mut wanted = vec![
        (error(Job::kernel(everything()).input("x", &x).output("y", &mut y)), "'z' has no place"),
        (error(Job::kernel(everything()).input("x", &x64).output("y", &mut y).output("z", &mut z)), "'x' is f32"),
        (error(Job::kernel(everything()).input("x", &x).output("y", &mut y).output("z", &mut short)), "no whole rows"),
        (error(Job::kernel(everything()).input("x", &x).input("w", &x)), "no parameter 'w'"),
        (
            error(Job::kernel(everything()).input("y", &x64)),
            "'y' is no place for an input, as the kernel may write to it: declare it const",
        ),
        (error(Job::kernel(everything().scalar("a", 1.0f32)).input("x", &x)), "'a' is given twice"),
    ];
    let text = "extern \"C\" __global__ void f(const float *x, float a, float *y) {}";
    // SAFETY: it does nothing.
    let f = unsafe { CustomKernel::cuda("f.cu", text, "f") }?.on_host(|_| {});
    let mut y = vec![0.0f32; 30];
    wanted.push((error(Job::kernel(&f).input("x", &x).output("y", &mut y)), "'a' has no value"));
    wanted.push((
        error(Job::kernel(f.call().scalar("a", 1.0)).input("x", &x).output("y", &mut y)),
        "'a' is no place for a value",
    ));
    // SAFETY: it is refused.
    let no_threads = unsafe { f.clone().threads(0) };
    wanted.push((
        error(Job::kernel(no_threads.call().scalar("a", 1.0f32)).input("x", &x).output("y", &mut y)),
        "1 to 1024 threads",
    ));
    for (error, wanted) in wanted {
        check(error.contains(wanted), format!("'{error}' does not say '{wanted}'"))?;
    }
    Ok(())
}

fn without_rows(choice: &DeviceChoice) -> Outcome {
    let text = "extern \"C\" __global__ void f(const float *x, float *y) {}";
    // SAFETY: it does nothing.
    let f = unsafe { CustomKernel::cuda("f.cu", text, "f")?.rows_per_block(10) }.on_host(|_| {});
    let engine = engine(choice).build()?;
    for (rows, words) in [(30, None), (0, None), (31, Some("1 of 10 rows")), (9, Some("9 of 10 rows"))] {
        let (x, mut y) = (vec![0.0f32; rows], vec![0.0f32; rows]);
        let error =
            engine.plan(&Job::kernel(&f).input("x", &x).output("y", &mut y)).err().map(|error| error.to_string());
        let is_right = match (&error, words) {
            (None, None) => true,
            (Some(error), Some(words)) => error.contains("no parameter 'rows'") && error.contains(words),
            _ => false,
        };
        check(is_right, format!("{rows} rows: {error:?}"))?;
    }
    Ok(())
}

fn absurd_rows(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice).build()?;
    for elements in ["4611686018427387904", "9223372036854775807", "68719476736"] {
        let text = format!(
            "extern \"C\" __global__ void f(long long rows, const float *x, float *y, float (*s)[{elements}]) {{}}"
        );
        // SAFETY: it does nothing.
        let f = unsafe { CustomKernel::cuda("f.cu", &text, "f") }?.on_host(|_| {});
        let (x, mut y) = ([0.0f32; 10], [0.0f32; 10]);
        let job = Job::kernel(f.call().scratch("s")).input("x", &x).output("y", &mut y);
        let error = engine.plan(&job).err().ok_or("no error")?.to_string();
        check(error.contains("make rows smaller"), error)?;
    }
    Ok(())
}

fn lying_kernel(choice: &DeviceChoice) -> Outcome {
    let text = "extern \"C\" __global__ void f(long long rows, float *y, unsigned long long *num_selected) {}";
    // The second dataset ends before its tile.
    for (rows, selected, tile) in [(5000, 257, 256), (100, 101, 100)] {
        // SAFETY: it does nothing.
        let kernel = unsafe { CustomKernel::cuda("f.cu", text, "f") }?.on_host(move |rows| {
            rows.output::<f32>("y").fill(0.0);
            rows.num_selected().fill(selected);
        });
        let mut y = vec![0.0f32; rows];
        let error = engine(choice).build()?.run(Job::kernel(&kernel).output("y", &mut y)).err().ok_or("no error")?;
        let message = format!("{selected} selected rows in a tile of {tile} rows");
        check(error.to_string().contains(&message), error.to_string())?;
    }
    Ok(())
}

fn resident_arrays() -> Outcome {
    let text = "extern \"C\" __global__ void f(long long rows, const float *x, const double *table, float *y) {}";
    // SAFETY: it does nothing.
    let kernel = unsafe { CustomKernel::cuda("f.cu", text, "f") }?.on_host(|rows| rows.output::<f32>("y").fill(1.0));
    // A table of 1 000 000 bytes takes 1 ms.
    let (small, large) = (vec![0.0; 1], vec![0.0f64; 125_000]);
    let run = |table: &[f64]| -> Result<(u64, f64), Failed> {
        let (x, mut y) = (vec![0.0f32; 20_000], vec![0.0f32; 20_000]);
        let device = Emulated::new().copy_in_rate(1e9).kernel_rate(1e9).copy_out_rate(1e9);
        let engine = engine(&DeviceChoice::from(device)).chunk(64 << 10).workers(1).build()?;
        // SAFETY: the kernel does not access its table.
        let call = unsafe { kernel.call().resident("table", table) };
        let report = engine.run(Job::kernel(call).input("x", &x).output("y", &mut y).timeline(true))?;
        let mut text = Vec::new();
        report.timeline.as_ref().ok_or("no timeline")?.write_chrome(&mut text)?;
        let events: Vec<Value> = serde_json::from_slice(&text)?;
        let copies = events.iter().filter(|event| event["name"] == "copy in");
        let first = copies.filter_map(|event| event["ts"].as_f64()).min_by(f64::total_cmp).ok_or("no copies")?;
        Ok((report.devices[0].peak_device_bytes, first))
    };
    let ((small_bytes, small_begin), (large_bytes, large_begin)) = (run(&small)?, run(&large)?);
    check(large_bytes - small_bytes == 999_992, format!("{small_bytes} bytes, then {large_bytes}"))?;
    let delay = large_begin - small_begin;
    check((delay - 999.992).abs() < 0.1, format!("first copies at {small_begin} µs and {large_begin} µs"))
}

fn rust_function(choice: &DeviceChoice) -> Outcome {
    let scale = 2.5f32;
    let numbered = RowFunction::new("numbered")
        .input::<[f32; 3]>("x")
        .input::<i64>("n")
        .output::<f64>("y")
        .output::<[i64; 2]>("z")
        .run_indexed(move |first, (x, n), (y, z)| {
            for (i, ((x, n), (y, z))) in x.iter().zip(n).zip(y.iter_mut().zip(z)).enumerate() {
                *y = f64::from(scale * x[0] + x[2]);
                *z = [first as i64 + i as i64, n % 100];
            }
        });
    for rows in [0, 1, 255, 256, 257, 50_001] {
        let x: Vec<f32> = numbers(3 * rows, 1).iter().map(|x| *x as f32).collect();
        let n: Vec<i64> = (0..rows as i64).map(|i| i * 7919).collect();
        let (mut y, mut z) = (vec![f64::NAN; rows], vec![-1i64; 2 * rows]);
        let engine = engine(choice).chunk(64 << 10).build()?;
        let job = Job::kernel(&numbered).input("n", &n).input("x", &x).output("z", &mut z).output("y", &mut y);
        let report = engine.run(job)?;
        let right = |i: usize| {
            let x = &x[3 * i..];
            y[i] == f64::from(scale * x[0] + x[2]) && z[2 * i..2 * i + 2] == [i as i64, n[i] % 100]
        };
        check((0..rows).all(right), format!("{rows} rows: a wrong one"))?;
        check(report.rows == rows as u64, "the report counts rows")?;
    }
    // Without inputs, and the outputs say how many rows there are.
    let mut squares = vec![0u64; 5000];
    let square = RowFunction::new("square").output::<u64>("y").run_indexed(|first, (), y| {
        y.iter_mut().zip(first..).for_each(|(y, row)| *y = row * row);
    });
    engine(choice).build()?.run(Job::kernel(&square).output("y", &mut squares))?;
    check(squares.iter().zip(0..).all(|(y, row)| *y == row * row), "squares")
}

/// Also in jobs so large that the CPU measures its speed on expressions.
fn rust_function_once(choice: &DeviceChoice) -> Outcome {
    let x = numbers(3_000_000, 5);
    let seen = Arc::new(AtomicU64::new(0));
    let counted = seen.clone();
    let f = RowFunction::new("f").input::<f64>("x").output::<f64>("y").run(move |x, y| {
        counted.fetch_add(x.len() as u64, Ordering::Relaxed);
        y.copy_from_slice(x);
    });
    let mut y = vec![0.0; x.len()];
    Engine::builder()
        .device(choice.clone())
        .workers(1)
        .build()?
        .run(Job::kernel(&f).input("x", &x).output("y", &mut y))?;
    let seen = seen.load(Ordering::Relaxed);
    check(seen == x.len() as u64 && x == y, format!("{seen} rows"))
}

fn rust_function_misfits(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice).build()?;
    let copy = RowFunction::new("copy").input::<f64>("x").output::<f64>("y").run(|x, y| y.copy_from_slice(x));
    let pairs = RowFunction::new("pairs").input::<[f64; 2]>("x").output::<f64>("y").run(|_, _| {});
    let twice = RowFunction::new("twice").input::<f64>("x").output::<f64>("x").run(|_, _| {});
    let reserved = RowFunction::new("reserved").input::<f64>("rows").output::<f64>("y").run(|_, _| {});
    let (x, x32) = (vec![1.0; 9], vec![1.0f32; 9]);
    let (mut y, mut y32) = (vec![0.0; 9], vec![0.0f32; 9]);
    let error = |job: Job<'_>| engine.run(job).err().map(|error| error.to_string()).unwrap_or_default();
    for (error, wanted) in [
        (error(Job::kernel(&copy).input("x", &x32).output("y", &mut y)), "'x' is f64, but the input is f32"),
        (error(Job::kernel(&copy).input("x", &x).output("y", &mut y32)), "holds f32, but the result is f64"),
        (error(Job::kernel(&copy).input("x", &x)), "'y' has no place"),
        (error(Job::kernel(&copy).input("w", &x)), "no parameter 'w'"),
        (error(Job::kernel(&copy).input("x", &x).output("y", &mut y[..8])), "the same number"),
        (error(Job::kernel(&pairs).input("x", &x).output("y", &mut y)), "no whole rows of 2 elements"),
        (error(Job::kernel(&twice).input("x", &x)), "two columns 'x'"),
        (error(Job::kernel(&reserved).input("rows", &x).output("y", &mut y)), "'rows' has a reserved name"),
    ] {
        check(error.contains(wanted), format!("'{error}' does not say '{wanted}'"))?;
    }
    Ok(())
}
