//! Rows that stay on devices: the results are those of slices, and these rows do not cross the link again.
#![allow(clippy::single_range_in_vec_init, reason = "some lists of ranges have one")]

use std::ops::Range;

use libtest_mimic::Failed;
use overshot::testing::custom::{FACTOR, TABLE, everything, keep};
use overshot::{
    DeviceChoice, Dtype, Engine, Job, Report, Source,
    device::{DeviceKind, Emulated, Fault, FaultAt},
};

use crate::harness::{Case, EmulatedCase, Module, NO_CASES, Outcome, check, cpu, numbers};
use crate::rows::{Watched, bits, builder, device_bytes, engine, has_memory, not_there, rows_in, without_cpu};

pub const MODULE: Module =
    Module { name: "sharded", cases: CASES, gpu: GPU, emulated: EMULATED, counts_memory: true, ..NO_CASES };

const CASES: &[(&str, Case)] = &[
    ("sharded arrays give the bits of slices", same_as_slices),
    ("arrays with other partitions give the same bits", cut_otherwise),
    ("rows are read and written where they lie", read_and_write),
    ("a dataset larger than the devices moves only what does not fit, the same rows each time", resident),
    ("a dataset that changed is copied again", forgotten),
    ("concurrent jobs use one dataset", at_once),
    ("a job that fails leaves a dataset as it was", failed_job),
    ("a plan leaves a dataset to runs", planned),
    ("arrays together keep the limit", within_limits),
    ("kernels that compact, or have rows of several elements", kernels),
    ("a job fills a dataset and reads other inputs of all kinds", fills_beside_others),
    ("outputs with several elements a row in pinned memory", vectors_in_place),
    ("memory is released", comes_back),
    ("without memory everything is streamed, with a note", no_memory),
];

const GPU: &[(&str, Case)] = &[("auto computes few rows on the CPU, unless they lie on a GPU", few_rows)];

const EMULATED: &[(&str, EmulatedCase)] = &[
    ("an allocation that fails makes a range smaller", smaller_range),
    ("arrays lie together, whatever is free when they are placed", together),
    ("any seed gives the same answer", seeds),
    ("resident rows are computed while others are copied", overlap),
];

const MAP: &str = "c = sqrt(a * a + b) * f64(x) + f64(i)";
const SUMS: &str = "sum(a), mean(a * b), std(c), min(x), argmax(c), var(c - a)";

fn few_rows(_: &DeviceChoice) -> Outcome {
    let x = numbers(1000, 5);
    let engine = Engine::builder().device(DeviceChoice::Auto).build()?;
    // Opens the GPUs.
    let lies_there = engine.shard(&x)?;
    let is_on_gpu = |report: &Report| report.devices.iter().any(|device| device.kind == DeviceKind::Cuda);
    let slice = engine.run(Job::eval(SUM)?.input("x", &x))?;
    check(!is_on_gpu(&slice), format!("a GPU was used for so little: {slice}"))?;
    check(slice.notes.iter().any(|note| note.contains("before a GPU could begin")), format!("{:?}", slice.notes))?;
    let there = engine.run(Job::eval(SUM)?.input("x", &lies_there))?;
    check(is_on_gpu(&there) && there.bytes_to_device == 0, format!("rows left the GPU: {there}"))?;
    check(slice.value(SUM)? == there.value(SUM)?, "other results")
}

const SUM: &str = "sum(x)";

fn same_as_slices(choice: &DeviceChoice) -> Outcome {
    for rows in [0, 1, 4096, 300_007] {
        let (a, b) = (numbers(rows, 1), numbers(rows, 2).iter().map(|b| b + 100.0).collect::<Vec<_>>());
        let x: Vec<f32> = a.iter().map(|a| *a as f32).collect();
        let mut c = vec![f64::NAN; rows];
        cpu().run(Job::eval(MAP)?.input("a", &a).input("b", &b).input("x", &x).output("c", &mut c))?;
        let sums = cpu().run(Job::eval(SUMS)?.input("a", &a).input("b", &b).input("x", &x).input("c", &c))?;
        let engine = engine(choice);
        let (shard_a, shard_b, shard_x) = (engine.shard(&a)?, engine.shard(&b)?, engine.shard(&x)?);
        let mut shard_c = engine.sharded::<f64>(rows)?;
        let mut zeros = vec![1.0; rows];
        shard_c.read(0, &mut zeros)?;
        check(zeros.iter().all(|zero| zero.to_bits() == 0), "a new array is zeros")?;
        // All of them, and each together with slices.
        for mixed in 0..4 {
            let job = Job::eval(MAP)?.input("b", &shard_b);
            let job = if mixed & 1 == 0 { job.input("a", &shard_a) } else { job.input("a", &a) };
            let job = if mixed & 2 == 0 { job.input("x", &shard_x) } else { job.input("x", &x) };
            let report = engine.run(job.output("c", &mut shard_c))?;
            let mut found = vec![0.0; rows];
            shard_c.read(0, &mut found)?;
            let same = found.iter().zip(&c).all(|(found, c)| found.to_bits() == c.to_bits());
            check(same, format!("{rows} rows, {mixed}: other rows\n{report}"))?;
            let on_devices = [&shard_a, &shard_b, &shard_c].iter().all(|one| rows_in(&one.on_devices()) == rows as u64)
                && rows_in(&shard_x.on_devices()) == rows as u64;
            let moved = (report.bytes_to_device, report.bytes_from_device);
            check(!report.notes.iter().any(|note| note.contains("by way of")), "a note on rows that lie together")?;
            if mixed == 0 && has_memory(&engine) && on_devices {
                check(moved == (0, 0), format!("{moved:?} bytes moved though all is there"))?;
            }
            check(!has_memory(&engine) || rows < 4096 || rows_in(&shard_a.on_devices()) > 0, "nothing is on devices")?;
        }
        let mut from_shards = vec![0.0f64; rows];
        let job = Job::eval(MAP)?.input("a", &shard_a).input("b", &shard_b).input("x", &shard_x);
        engine.run(job.output("c", &mut from_shards))?;
        check(from_shards.iter().zip(&c).all(|(a, b)| a.to_bits() == b.to_bits()), "other rows in a slice")?;
        let job = Job::eval(SUMS)?.input("a", &shard_a).input("b", &shard_b).input("x", &shard_x);
        let found = engine.run(job.input("c", &shard_c))?;
        check(bits(&found) == bits(&sums), format!("{rows} rows: {:?} for {:?}", found.results, sums.results))?;
        // The same memory twice in one launch.
        let twice = engine.run(Job::eval("sum(a * b)")?.input("a", &shard_a).input("b", &shard_a))?;
        let once = cpu().run(Job::eval("sum(a * b)")?.input("a", &a).input("b", &a))?;
        check(bits(&twice) == bits(&once), "an array as two inputs")?;
    }
    Ok(())
}

/// Rows on other devices, or on devices that take no part, move through host memory.
fn cut_otherwise(choice: &DeviceChoice) -> Outcome {
    let others: DeviceChoice = match choice {
        DeviceChoice::Emulated(all) if all.len() > 1 => DeviceChoice::Emulated(all[..2].to_vec()),
        DeviceChoice::Cuda => DeviceChoice::CudaDevices(vec![0]),
        _ => choice.clone(),
    };
    let rows = 250_001;
    let (a, b) = (numbers(rows, 3), numbers(rows, 4));
    let (engine, other) = (engine(choice), engine(&others));
    let (shard_a, shard_b) = (engine.shard(&a)?, other.shard(&b)?);
    let mut c = other.sharded::<f64>(rows)?;
    let expected: Vec<u64> = a.iter().zip(&b).map(|(a, b)| (a * b).to_bits()).collect();
    for engine in [&engine, &other, &cpu(), &Engine::builder().device(Emulated::new()).build()?] {
        c.write(0, &vec![0.0; rows])?;
        let report = engine
            .run(Job::eval("c = a * b; sum(a)")?.input("a", &shard_a).input("b", &shard_b).output("c", &mut c))?;
        let mut found = vec![0.0; rows];
        c.read(0, &mut found)?;
        check(found.iter().zip(&expected).all(|(a, b)| a.to_bits() == *b), "other rows")?;
        let sum = cpu().run(Job::eval("sum(a)")?.input("a", &a))?;
        check(bits(&report) == bits(&sum), "another sum")?;
        let elsewhere = |shards: &[(String, Range<u64>)]| {
            shards.iter().any(|(id, _)| !engine.devices().iter().any(|device| device.id == *id))
        };
        if elsewhere(&shard_a.on_devices()) || elsewhere(&shard_b.on_devices()) {
            check(
                report.notes.iter().any(|note| note.contains("by way of the host")),
                "a note on rows that lie elsewhere",
            )?;
        }
    }
    Ok(())
}

fn read_and_write(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice);
    // More rows than fit in the memory.
    let rows = (device_bytes(&engine) / 4 * 5 / 4) as usize + 77;
    let mut x = engine.sharded::<u32>(rows)?;
    let mut expected = vec![0; rows];
    let mut borders: Vec<usize> =
        x.on_devices().iter().flat_map(|(_, rows)| [rows.start, rows.end]).map(|row| row as usize).collect();
    borders.extend([0, rows / 3, rows]);
    for (k, &border) in borders.iter().enumerate() {
        let range = border.saturating_sub(1000)..(border + 1000).min(rows);
        let values: Vec<u32> = (0..range.len() as u32).map(|i| i + 1_000_000 * (k as u32 + 1)).collect();
        x.write(range.start, &values)?;
        expected[range].copy_from_slice(&values);
    }
    let mut found = vec![7; rows];
    x.read(0, &mut found)?;
    check(found == expected, "other rows")?;
    for &border in &borders {
        let range = border.saturating_sub(500)..(border + 100).min(rows);
        let mut found = vec![7; range.len()];
        x.read(range.start, &mut found)?;
        check(found == expected[range], "other rows around a border")?;
    }
    let beyond = x.read(rows - 1, &mut [0; 2]).is_err() && x.write(usize::MAX, &[0]).is_err() && x.len() == rows;
    check(beyond, "rows beyond the end")
}

const PASS: &str = "sum(x), std(x), argmin(x)";

fn resident(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice);
    let rows = (device_bytes(&engine) / 8 * 5 / 4) as usize + 5;
    let x = numbers(rows, 5);
    let expected = bits(&cpu().run(Job::eval(PASS)?.input("x", &x))?);
    let watched = Watched::new(&x);
    let data = engine.resident(&watched)?;
    let (there, rest) = (rows_in(&data.on_devices()), not_there(&data));
    check(watched.taken().is_empty(), "nothing is copied before the first use")?;
    for pass in 0..3 {
        let report = engine.run(Job::eval(PASS)?.input("x", &data))?;
        check(bits(&report) == expected, format!("pass {pass}: {:?}\n{report}", report.results))?;
        let read = watched.taken();
        if !has_memory(&engine) {
            check(read == [0..rows as u64] && report.bytes_to_device == 0, "on the CPU it is the source itself")?;
            continue;
        }
        let moves = if pass == 0 { rows as u64 } else { rows as u64 - there };
        let moved = report.bytes_to_device;
        check(
            moved == 8 * moves || !without_cpu(&engine) && moved < 8 * moves,
            format!("pass {pass} moved {moved} bytes"),
        )?;
        check(
            read == if pass == 0 { vec![0..rows as u64] } else { rest.clone() },
            format!("pass {pass} read {read:?}"),
        )?;
        check(there > 0 && report.notes.iter().any(|note| note.contains("stay on devices")), "a note")?;
        // A quarter does not fit, and an eighth is reserved for runs, 4 MiB at least.
        check(there * 8 >= device_bytes(&engine) / 3, format!("only {there} rows are there"))?;
    }
    let limit = device_bytes(&engine);
    let peak: u64 = engine.memory().iter().map(|memory| memory.device.peak).sum();
    check(peak <= limit, format!("{peak} bytes of device memory were in use, of {limit}"))?;
    // Pinned memory is copied from its place.
    let mut pinned = engine.pinned::<f64>(rows)?;
    pinned.copy_from_slice(&x);
    drop(data);
    let data = engine.resident(&pinned)?;
    for _ in 0..2 {
        check(bits(&engine.run(Job::eval(PASS)?.input("x", &data))?) == expected, "another result from pinned memory")?;
    }
    // Other operators, with an output.
    let mut y = vec![0.0; rows];
    engine.run(Job::eval("y = x + x")?.input("x", &data).output("y", &mut y))?;
    check(x.iter().zip(&y).all(|(x, y)| x + x == *y), "other rows")
}

fn forgotten(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice);
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("x.f64");
    let write = |seed: u64| {
        let bytes: Vec<u8> = numbers(50_000, seed).iter().flat_map(|x| x.to_ne_bytes()).collect();
        std::fs::write(&path, bytes)
    };
    let expected =
        |seed: u64| -> Result<_, Failed> { Ok(bits(&cpu().run(Job::eval(PASS)?.input("x", numbers(50_000, seed)))?)) };
    write(1)?;
    let mut data = engine.resident(overshot::Raw::open(&path, Dtype::F64)?)?;
    for _ in 0..2 {
        check(bits(&engine.run(Job::eval(PASS)?.input("x", &data))?) == expected(1)?, "the first content")?;
    }
    write(2)?;
    data.forget();
    check(bits(&engine.run(Job::eval(PASS)?.input("x", &data))?) == expected(2)?, "the second content")
}

fn at_once(choice: &DeviceChoice) -> Outcome {
    // The memory reserved for runs is enough for all of them.
    let engine = builder(choice).chunk(64 << 10).workers(2).build()?;
    let x = numbers(300_000, 6);
    let expected = bits(&cpu().run(Job::eval(PASS)?.input("x", &x))?);
    let (data, shard) = (engine.resident(&x)?, engine.shard(&x)?);
    let right = std::thread::scope(|scope| {
        let run = |k: usize| {
            let (engine, data, shard) = (&engine, &data, &shard);
            scope.spawn(move || {
                let job = Job::eval(PASS).unwrap();
                engine.run(if k.is_multiple_of(3) { job.input("x", shard) } else { job.input("x", data) })
            })
        };
        let threads: Vec<_> = (0..6).map(run).collect();
        let each = threads.into_iter().map(|thread| thread.join().unwrap().map(|report| bits(&report)));
        each.collect::<Result<Vec<_>, _>>()
    })?;
    check(right.iter().all(|one| *one == expected), "another result")?;
    // A job without copies is not split into chunks of 8192 rows, which would be 37.
    let report = engine.run(Job::eval(PASS)?.input("x", &shard))?;
    let is_there = has_memory(&engine) && rows_in(&shard.on_devices()) == x.len() as u64;
    check(bits(&report) == expected && (!is_there || report.chunks < 20), format!("{} chunks", report.chunks))?;
    let again = engine.run(Job::eval(PASS)?.input("x", &data))?;
    let moved = again.bytes_to_device;
    let rest = if has_memory(&engine) { data.rows() - rows_in(&data.on_devices()) } else { 0 };
    check(moved == 8 * rest || !without_cpu(&engine) && moved < 8 * rest, "what the pass after moved")?;
    check(bits(&again) == expected, "the pass after")
}

/// One row, with a warning that runs something. A plan asks for it.
struct Warns<F>(F);

impl<F: Fn() + Send + Sync> Source for Warns<F> {
    fn dtype(&self) -> Dtype {
        Dtype::F64
    }
    fn rows(&self) -> u64 {
        50_000
    }
    fn name(&self) -> String {
        "warns".into()
    }
    fn read(&self, _: u64, to: &mut [u8]) -> overshot::Result<()> {
        to.fill(0);
        Ok(())
    }
    fn warning(&self) -> Option<String> {
        self.0();
        None
    }
}

fn planned(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice);
    let x = numbers(50_000, 9);
    let data = engine.resident(&x)?;
    let runs = || {
        let report = engine.run(Job::eval(PASS).unwrap().input("x", &data)).unwrap();
        assert!(!report.notes.iter().any(|note| note.contains("was not used on the devices")), "{:?}", report.notes);
    };
    let plan = engine.plan(&Job::eval("sum(x + y)")?.input("x", &data).input("y", Warns(runs)))?;
    check(plan.rows == 50_000, "a plan of all rows")
}

fn within_limits(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice);
    let limit = device_bytes(&engine);
    let arrays = [0; 3].map(|_| engine.sharded::<f64>(limit as usize / 12));
    let mut bytes = 0;
    for array in &arrays {
        bytes += 8 * rows_in(&array.as_ref().map_err(ToString::to_string)?.on_devices());
    }
    check(bytes <= limit, format!("{bytes} bytes of arrays on devices that may have {limit}"))
}

fn failed_job(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice);
    let x = numbers(400_000, 7);
    let expected = bits(&cpu().run(Job::eval(PASS)?.input("x", &x))?);
    let watched = Watched::new(&x);
    let data = engine.resident(&watched)?;
    watched.fails_beyond(x.len() as u64 / 2);
    check(engine.run(Job::eval(PASS)?.input("x", &data)).is_err(), "a source that fails")?;
    watched.fails_beyond(u64::MAX);
    watched.taken();
    for pass in 0..2 {
        let report = engine.run(Job::eval(PASS)?.input("x", &data))?;
        check(bits(&report) == expected, format!("pass {pass}"))?;
        let whole = pass == 0 || !has_memory(&engine);
        check(watched.taken() == if whole { vec![0..x.len() as u64] } else { not_there(&data) }, "what is read")?;
    }
    Ok(())
}

fn kernels(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice);
    let x = numbers(60_000, 8);
    let (values, places): (Vec<f64>, Vec<i64>) =
        x.iter().zip(0..).filter(|(x, _)| **x > 50.0).map(|(x, i)| (*x, i)).unzip();
    let data = engine.resident(&x)?;
    let shard = engine.shard(&x)?;
    for pass in 0..3 {
        let (mut big, mut at) = (engine.sharded::<f64>(x.len())?, engine.sharded::<i64>(x.len())?);
        let job = Job::kernel(&keep());
        let job = if pass < 2 { job.input("x", &data) } else { job.input("x", &shard) };
        let report = engine.run(job.output("big", &mut big).output("where", &mut at))?;
        let kept = report.outputs[0].rows as usize;
        let (mut found, mut found_at) = (vec![0.0; kept], vec![0; kept]);
        big.read(0, &mut found)?;
        at.read(0, &mut found_at)?;
        check(found == values && found_at == places, format!("pass {pass}: other rows"))?;
    }
    for rows in [1, 4097, 30_000] {
        let x: Vec<f32> = numbers(3 * rows, 9).iter().map(|x| *x as f32).collect();
        let (mut y, mut z) = (engine.sharded::<f64>(rows)?, engine.sharded::<f32>(2 * rows)?);
        let shard = engine.shard(&x)?;
        engine.run(Job::kernel(everything()).input("x", &shard).output("y", &mut y).output("z", &mut z))?;
        let (mut found, mut pairs) = (vec![0.0; rows], vec![0.0; 2 * rows]);
        y.read(0, &mut found)?;
        z.read(0, &mut pairs)?;
        let right = |i: usize| {
            let x = &x[3 * i..][..3];
            found[i] == TABLE[i % 7] + f64::from(x[0] + x[1]) * f64::from(FACTOR) && pairs[2 * i..][..2] == [x[2], x[0]]
        };
        check((0..rows).all(right), format!("{rows} rows of several elements"))?;
        // The first run copies the dataset, and the second one uses it.
        let data = engine.resident(&x)?;
        let run = || -> Result<_, Failed> {
            let (mut y, mut z) = (vec![0.0f64; rows], vec![0.0f32; 2 * rows]);
            let report =
                engine.run(Job::kernel(everything()).input("x", &data).output("y", &mut y).output("z", &mut z))?;
            check(y == found && z == pairs, format!("{rows} rows of several elements, of a dataset"))?;
            Ok(report.bytes_to_device)
        };
        let (first, second) = (run()?, run()?);
        let there = data.on_devices();
        if rows_in(&there) == x.len() as u64 && without_cpu(&engine) {
            // Only a tile of 100 rows with the end of a shard in it moves again.
            let (all, again) = (4 * x.len() as u64, (there.len() as u64 - 1) * 100 * 12);
            check(first == all && second <= again, format!("{first} bytes, then {second} of at most {again}"))?;
        }
    }
    Ok(())
}

fn comes_back(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice);
    let in_use = || engine.memory().iter().map(|memory| memory.device.in_use).sum::<u64>();
    let x = numbers(100_000, 10);
    let mut first = None;
    for _ in 0..50 {
        let mut array = engine.shard(&x)?;
        let data = engine.resident(&x)?;
        engine.run(Job::eval("y = x + x")?.input("x", &data).output("y", &mut array))?;
        let (there, also) = (array.on_devices(), data.on_devices());
        check(in_use() == 8 * (rows_in(&there) + rows_in(&also)), "memory counts what is there")?;
        // Nothing is lost from one round to the next.
        check(*first.get_or_insert_with(|| (there.clone(), also.clone())) == (there, also), "another cut")?;
        drop(data);
        drop(array);
        check(in_use() == 0, "memory is released")?;
    }
    // An array outlives its engine.
    let array = engine.shard(&x)?;
    drop(engine);
    let mut found = vec![0.0; x.len()];
    array.read(0, &mut found)?;
    check(found == x, "other rows without the engine")
}

fn no_memory(choice: &DeviceChoice) -> Outcome {
    // Less than the memory reserved for runs.
    let engine = Engine::builder().device(choice.clone()).device_memory(3 << 20).build()?;
    let x = numbers(200_000, 11);
    let (shard, data) = (engine.shard(&x)?, engine.resident(&x)?);
    check(shard.on_devices().is_empty() && data.on_devices().is_empty(), "nothing is on devices")?;
    let expected = bits(&cpu().run(Job::eval(PASS)?.input("x", &x))?);
    for _ in 0..2 {
        for job in [Job::eval(PASS)?.input("x", &shard), Job::eval(PASS)?.input("x", &data)] {
            let report = engine.run(job)?;
            check(bits(&report) == expected, "another result")?;
            let noted = report.notes.iter().any(|note| note.contains("0 of 200000 rows"));
            check(noted == has_memory(&engine), format!("a note: {:?}", report.notes))?;
        }
    }
    Ok(())
}

fn seeds() -> Outcome {
    let x = numbers(1_300_000, 13);
    let sum = bits(&cpu().run(Job::eval("sum(x)")?.input("x", &x))?);
    for seed in 0..12 {
        let devices = (0..2).map(|k| Emulated::new().seed(seed + k).memory((6 + 2 * k) << 20).copy_in_rate(1e9));
        let engine = Engine::builder().device(DeviceChoice::Emulated(devices.collect())).chunk(256 << 10).build()?;
        let (data, mut y) = (engine.resident(&x)?, engine.sharded::<f64>(x.len())?);
        for pass in 1..3 {
            let factor = f64::from(pass);
            let text = format!("y = x * {pass}; sum(x)");
            let report = engine.run(Job::eval(&text)?.input("x", &data).output("y", &mut y))?;
            check(bits(&report) == sum, format!("seed {seed}, pass {pass}: another sum"))?;
            let report = engine.run(
                Job::eval("all(y == x * f), sum(x)")?.input("x", &x).input("y", &y).input("f", vec![factor; x.len()]),
            )?;
            check(
                report.results[0].1 == Some(overshot::Scalar::Bool(true)),
                format!("seed {seed}, pass {pass}: other rows"),
            )?;
        }
        for memory in engine.memory() {
            check(memory.device.in_use > 1 << 20 && memory.device.peak <= 8 << 20, format!("seed {seed}: {memory}"))?;
        }
    }
    Ok(())
}

/// A pass takes little more than the time of the link for the rows that are not resident, or of the kernel for
/// all rows.
fn overlap() -> Outcome {
    let rows = 2_000_000;
    let x = numbers(rows, 14);
    // The kernels of all rows take about as long as the link for the rows that are not resident.
    let device = Emulated::new().memory(16 << 20).copy_in_rate(2e9).kernel_rate(1e9);
    let engine = Engine::builder().device(device).chunk(256 << 10).build()?;
    let data = engine.resident(&x)?;
    engine.run(Job::eval("sum(x)")?.input("x", &data))?;
    let report = engine.run(Job::eval("sum(x)")?.input("x", &data))?;
    let seconds = report.devices[0].virtual_time.unwrap().as_secs_f64();
    let link = report.bytes_to_device as f64 / 2e9;
    let kernel = rows as f64 / 1e9;
    check(link > 0.3 * kernel && kernel > 0.3 * link, format!("{link} s on the link, {kernel} s of kernels"))?;
    check(
        seconds < link.max(kernel) + 0.5 * link.min(kernel),
        format!("{seconds} s; {link} on the link, {kernel} of kernels"),
    )
}

fn together() -> Outcome {
    // The first array gets half of its range on the first device, which has more free memory afterwards.
    let devices = [Emulated::new().fault(Fault::new(FaultAt::Allocate, 0)), Emulated::new()];
    let engine = Engine::builder().device(DeviceChoice::Emulated(devices.into())).device_memory(16 << 20).build()?;
    let [first, second] = [engine.sharded::<f64>(1_000_000)?, engine.sharded::<f64>(1_000_000)?];
    let (first, second) = (first.on_devices(), second.on_devices());
    check(first[0].1.end < first[1].1.start, format!("no smaller range: {first:?}"))?;
    check(first[1] == second[1], format!("{first:?} and {second:?}"))
}

fn smaller_range() -> Outcome {
    let device = Emulated::new().memory(16 << 20).fault(Fault::new(FaultAt::Allocate, 0));
    let engine = Engine::builder().device(device).build()?;
    let x = numbers(1_000_000, 12);
    let shard = engine.shard(&x)?;
    let there = rows_in(&shard.on_devices());
    check(there > 300_000 && there < 600_000, format!("{there} rows"))?;
    let report = engine.run(Job::eval("sum(x)")?.input("x", &shard))?;
    check(report.notes.iter().any(|note| note.starts_with(&format!("{there} of 1000000 rows"))), "a note")?;
    let mut found = vec![0.0; x.len()];
    shard.read(0, &mut found)?;
    check(found == x, "other rows")
}

/// Fills datasets that have other columns before and after them, so that consecutive copies go to different memories.
fn fills_beside_others(choice: &DeviceChoice) -> Outcome {
    let rows = 150_001;
    let [a, b, c, d] = [1, 2, 3, 4].map(|seed| numbers(rows, seed));
    let w: Vec<f32> = c.iter().map(|c| *c as f32).collect();
    let naive = |i: usize| a[i] + 2.0 * b[i] + 3.0 * c[i] + 5.0 * d[i] + 7.0 * f64::from(w[i]);
    for chunk in [20_000, 200_000, 4 << 20] {
        let engine = builder(choice).chunk(chunk).workers(2).build()?;
        let (filled_a, filled_b, filled_w) = (engine.resident(&a)?, engine.resident(&b)?, engine.resident(&w)?);
        let mut pinned = engine.pinned::<f64>(rows)?;
        pinned.copy_from_slice(&d);
        for round in 0..3 {
            let (mut y, mut z) = (engine.pinned::<f64>(rows)?, engine.sharded::<f32>(rows)?);
            let job = Job::eval("y = a + 2 * b + 3 * c + 5 * d + 7 * f64(w); z = w * f32(2)")?;
            let job = if round % 2 == 0 {
                job.input("a", &filled_a).input("c", &c).input("b", &filled_b).input("d", &pinned).input("w", &filled_w)
            } else {
                job.input("w", &filled_w).input("d", &pinned).input("c", &c).input("a", &filled_a).input("b", &filled_b)
            };
            engine.run(job.output("y", &mut y).output("z", &mut z))?;
            let what = format!("chunks of {chunk} bytes, round {round}");
            check((0..rows).all(|i| y[i] == naive(i)), format!("{what}: y"))?;
            let mut back = vec![0f32; rows];
            z.read(0, &mut back)?;
            check(back.iter().zip(&w).all(|(z, w)| *z == 2.0 * w), format!("{what}: z"))?;
        }
    }
    Ok(())
}

fn vectors_in_place(choice: &DeviceChoice) -> Outcome {
    for rows in [1usize, 100, 4097, 70_001] {
        let engine = builder(choice).chunk(20_000).workers(3).build()?;
        let mut x = engine.pinned::<f32>(3 * rows)?;
        x.iter_mut().enumerate().for_each(|(i, x)| *x = (i % 1000) as f32);
        let (mut y, mut z) = (engine.pinned::<f64>(rows)?, engine.pinned::<f32>(2 * rows)?);
        engine.run(Job::kernel(everything()).input("x", &x).output("y", &mut y).output("z", &mut z))?;
        let right = |i: usize| {
            y[i] == TABLE[i % 7] + f64::from(x[3 * i] + x[3 * i + 1]) * f64::from(FACTOR)
                && z[2 * i..][..2] == [x[3 * i + 2], x[3 * i]]
        };
        check((0..rows).all(right), format!("{rows} rows: a wrong one"))?;
    }
    Ok(())
}
