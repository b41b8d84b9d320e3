//! Filters in expressions: the rows of a naive filter, on every device, for every schedule, in parts and after losses.

use overshot::device::{Emulated, Fault, FaultAt};
use overshot::{DeviceChoice, Engine, Error, Job, JobError, Npy, Partial, Raw, Report, Result, Source};

use crate::harness::{Case, EmulatedCase, Module, NO_CASES, Outcome, check, cpu, engine, numbers};
use crate::rows::bits;

pub const MODULE: Module = Module { name: "filters", cases: CASES, emulated: EMULATED, ..NO_CASES };

const CASES: &[(&str, Case)] = &[
    ("kept rows are in order, and reductions have their bits, for all schedules", in_order),
    ("files of kept rows have their length and one dimension", files),
    ("nothing is kept, everything is, and no rows", edges),
    ("a condition on a reduction is another pass", passes),
    ("rows of another size than 4096", sizes),
    ("parts write the files of one run", parts),
    ("kept rows are verified", verified),
    ("rows of several elements are kept whole", whole_rows),
    ("what is refused names the remedy", refused),
];

/// Rows of tables that a key, their number or a reduction within them keeps: slices and files, in parts, after losses.
fn whole_rows(choice: &DeviceChoice) -> Outcome {
    for (rows, width) in [(5000, 3), (700, 100), (150, 700), (40, 5000)] {
        let (x, key) = (numbers(rows * width, 5), numbers(rows, 6));
        let table = ndarray::ArrayView::from_shape((rows, width), &x)?;
        let text = "m = key > 10; y = (x * 2)[m]; k = key[m]; place = i[m]; total = sum(x, axis=1)[m]; \
                    sum(x[m] > 0), count(m)";
        let kept: Vec<usize> = (0..rows).filter(|row| key[*row] > 10.0).collect();
        let doubled: Vec<f64> =
            kept.iter().flat_map(|row| &x[row * width..(row + 1) * width]).map(|x| x * 2.0).collect();
        let keys: Vec<f64> = kept.iter().map(|row| key[*row]).collect();
        let mut totals = None;
        let engines = [engine(choice).build()?, engine(choice).chunk(60 << 10).workers(3).build()?];
        for engine in engines.iter().chain([&cpu()]) {
            let [mut y, mut k, mut total] = [rows * width, rows, rows].map(|count| vec![-7.0; count]);
            let mut place = vec![-7_i64; rows];
            let mut of_y = ndarray::ArrayViewMut::from_shape((rows, width), &mut y)?;
            let job = Job::eval(text)?.input("x", table).input("key", &key).verify(0.5);
            let job = job.output("y", of_y.view_mut()).output("k", &mut k).output("place", &mut place);
            let report = engine.run(job.output("total", &mut total))?;
            let count = kept.len();
            let shapes: Vec<_> = report.outputs.iter().map(|output| output.shape.clone()).collect();
            check(shapes[0] == [count as u64, width as u64], format!("a shape of {:?}", shapes[0]))?;
            check(shapes[1..].iter().all(|shape| *shape == [count as u64]), format!("shapes of {shapes:?}"))?;
            check(y[..count * width] == doubled[..] && k[..count] == keys[..], format!("{rows} × {width}: rows"))?;
            check(place[..count].iter().map(|place| *place as usize).eq(kept.iter().copied()), "other places")?;
            check(y[count * width..].iter().chain(&k[count..]).all(|y| *y == -7.0), "written behind the kept rows")?;
            let own = total[..count].to_vec();
            check(*totals.get_or_insert(own.clone()) == own, format!("{rows} × {width}: other sums"))?;
            let positive = doubled.iter().filter(|x| **x > 0.0).count() as f64;
            check(report.value("sum(x[m] > 0)")?.map(|sum| sum.as_f64()) == Some(positive), "another sum")?;
        }
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("y.npy");
        let job = || Job::eval("y = (x * 2)[key > 10]; mean(x[key > 10], axis=0)").map(|job| job.input("x", table));
        let job = || job().map(|job| job.input("key", &key).output("y", Npy::create(&path)));
        let whole = engines[1].run(job()?)?;
        let read = || -> Outcome<(Vec<f64>, Option<Vec<u64>>)> {
            let file = Npy::open(&path)?;
            let mut found = vec![0.0; file.rows() as usize];
            file.read(0, bytemuck::cast_slice_mut(&mut found))?;
            Ok((found, file.shape().map(<[u64]>::to_vec)))
        };
        let expected = (doubled, Some(vec![kept.len() as u64, width as u64]));
        check(read()? == expected, format!("{rows} × {width}: another file"))?;
        std::fs::remove_file(&path)?;
        let step = engines[1].part_step(&job()?)?;
        let cut = (rows as u64 / 2).next_multiple_of(step).min(rows as u64);
        let mut all = engines[1].run_rows(job()?, cut..rows as u64)?;
        all.merge(engines[1].run_rows(job()?, 0..cut)?)?;
        let merged = all.finish()?;
        check(read()? == expected, format!("{rows} × {width}: another file of parts"))?;
        check(merged.outputs[0].shape == whole.outputs[0].shape, "another shape of parts")?;
        check(merged.arrays == whole.arrays, "other means of parts")?;
    }
    Ok(())
}

const EMULATED: &[(&str, EmulatedCase)] = &[("rows and reductions begin anew without a lost device", losses)];

const TEXT: &str = "m = x > 50; y = x[m]; place = i[m]; half = f32(x[m] / 2); sum(y), mean(y), var(x[m]), min(y), \
                    count(m), mean(x), std(x[x < 0])";
const ROWS: usize = 100_003;

/// What a filter of more than 50 keeps: the values and their rows.
fn naive(x: &[f64]) -> (Vec<f64>, Vec<i64>) {
    x.iter().zip(0..).filter(|(x, _)| **x > 50.0).map(|(x, row)| (*x, row)).unzip()
}

/// Runs [`TEXT`] into slices, and checks the kept rows.
fn run(engine: &Engine, x: &[f64], verify: f64) -> Outcome<Report> {
    let (mut y, mut place, mut half) = (vec![0.0; x.len()], vec![-1i64; x.len()], vec![0f32; x.len()]);
    let job = Job::eval(TEXT)?.input("x", x).verify(verify);
    let report = engine.run(job.output("y", &mut y).output("place", &mut place).output("half", &mut half))?;
    let (values, rows) = naive(x);
    let kept = values.len();
    for output in &report.outputs {
        check(output.rows == kept as u64, format!("{} has {} of {kept} rows", output.name, output.rows))?;
    }
    check(y[..kept] == values[..] && place[..kept] == rows[..], "other rows")?;
    check(half.iter().zip(&values).all(|(half, value)| *half == (value / 2.0) as f32), "other halves")?;
    check(place[kept..].iter().all(|place| *place == -1), "something was written behind the kept rows")?;
    Ok(report)
}

fn in_order(choice: &DeviceChoice) -> Outcome {
    let x = numbers(ROWS, 1);
    let right = run(&cpu(), &x, 0.0)?;
    let kept = naive(&x).0;
    let mean = kept.iter().sum::<f64>() / kept.len() as f64;
    let own = right.value("mean(y)")?.map_or(f64::NAN, |value| value.as_f64());
    check((own / mean - 1.0).abs() < 1e-12, format!("a mean of {own}, not {mean}"))?;
    let mut choices = vec![choice.clone()];
    if let DeviceChoice::Emulated(_) = choice {
        choices = (0..20).map(|seed| format!("emulated:{seed}").parse()).collect::<Result<_, _>>()?;
    }
    for choice in &choices {
        for (chunk, workers) in [(60 << 10, 1), (200 << 10, 3), (1 << 20, 7)] {
            let report = run(&engine(choice).chunk(chunk).workers(workers).build()?, &x, 0.0)?;
            check(bits(&report) == bits(&right), format!("{choice}, chunks of {chunk}: other results"))?;
        }
    }
    Ok(())
}

fn files(choice: &DeviceChoice) -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name);
    let x = numbers(70_000, 2);
    let engine = engine(choice).chunk(100 << 10).build()?;
    let shaped = ndarray::ArrayView::from_shape((700, 100), &x)?;
    cpu().run(Job::eval("y = x")?.input("x", overshot::Input::from(shaped)).output("y", Npy::create(path("x.npy"))))?;
    check(Npy::open(path("x.npy"))?.shape() == Some(&[700, 100]), "the input has two dimensions")?;
    let job = Job::eval("y = x[x > 50]; twice = (2 * x)[x > 50]")?.input("x", Npy::open(path("x.npy"))?);
    let report = engine.run(
        job.output("y", Npy::create(path("y.npy"))).output("twice", Raw::create(path("twice.raw"))).checksum(true),
    )?;
    let values = naive(&x).0;
    let file = Npy::open(path("y.npy"))?;
    check(file.shape() == Some(&[values.len() as u64]), format!("a shape of {:?}", file.shape()))?;
    let mut found = vec![0.0; values.len()];
    file.read(0, bytemuck::cast_slice_mut(&mut found))?;
    check(found == values, "other rows in the .npy file")?;
    let twice: Vec<f64> = values.iter().map(|value| 2.0 * value).collect();
    check(std::fs::read(path("twice.raw"))? == bytemuck::cast_slice::<_, u8>(&twice), "other rows in the raw file")?;
    check(report.outputs[0].bytes == 8 * values.len() as u64, "the report counts other bytes")
}

fn edges(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice).build()?;
    for rows in [0, 1, 10_000] {
        let x = vec![1.0; rows];
        for (text, all) in [("y = x[x > 50]; min(y), mean(y), sum(y)", false), ("y = x[x < 50]; min(y)", true)] {
            let mut y = vec![7.0; rows];
            let report = engine.run(Job::eval(text)?.input("x", &x).output("y", &mut y))?;
            let kept = if all { rows } else { 0 };
            check(report.outputs[0].rows == kept as u64, format!("{} of {rows} rows", report.outputs[0].rows))?;
            check(y[..kept].iter().all(|y| *y == 1.0) && y[kept..].iter().all(|y| *y == 7.0), "other rows")?;
            let least = report.value("min(y)")?.map(|value| value.as_f64());
            check(least == (kept > 0).then_some(1.0), format!("a minimum of {least:?}"))?;
            if !all {
                let mean = report.value("mean(y)")?.map(|value| value.as_f64());
                check(mean.is_some_and(f64::is_nan), format!("a mean of {mean:?}"))?;
                check(report.value("sum(y)")?.map(|sum| sum.as_f64()) == Some(0.0), "a sum of something")?;
            }
        }
        // Rows cannot be computed from what has no value.
        let table = ndarray::ArrayView2::from_shape((rows / 2, 2), &x[..rows / 2 * 2])?;
        let rows = rows / 2;
        for text in ["m = max(x[x > 50]); y = x - m", "m = max(x[i > 50000], axis=0); y = x - m"] {
            let mut y = ndarray::Array2::from_elem((rows, 2), 7.0);
            let ran = engine.run(Job::eval(text)?.input("x", table).output("y", y.view_mut()));
            let error = ran.err().map(|error| error.to_string());
            let is_right = error.as_ref().map_or(rows == 0, |error| error.contains("'m' has no value") && rows > 0);
            check(is_right, format!("{text}, {rows} rows: {error:?}"))?;
            check(y.iter().all(|y| *y == 7.0), format!("{text}, {rows} rows: rows were written"))?;
        }
        let text = "m = max(x[x > 50]); twice = 2 * m; sum(x)";
        let report = engine.run(Job::eval(text)?.input("x", &x))?;
        check(report.value("twice")?.is_none(), "a value of none")?;
    }
    Ok(())
}

fn passes(choice: &DeviceChoice) -> Outcome {
    let x = numbers(ROWS, 3);
    let mut y = vec![0.0; ROWS];
    let engine = engine(choice).chunk(100 << 10).build()?;
    let text = "high = mean(x[x > 0]); y = x[x > high]; n = count(x > high); share = n / count(x > 0)";
    let report = engine.run(Job::eval(text)?.input("x", &x).output("y", &mut y))?;
    let positive: Vec<f64> = x.iter().copied().filter(|x| *x > 0.0).collect();
    let high = report.value("high")?.map_or(f64::NAN, |value| value.as_f64());
    check((high * positive.len() as f64 / positive.iter().sum::<f64>() - 1.0).abs() < 1e-12, "another mean")?;
    let expected: Vec<f64> = x.iter().copied().filter(|x| *x > high).collect();
    check(y[..expected.len()] == expected[..], "other rows")?;
    check(report.outputs[0].rows == expected.len() as u64 && report.passes.len() == 2, "another number of rows")
}

/// Every length of the last tile has its rows.
fn sizes(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice).chunk(64 << 10).build()?;
    for rows in [1, 2, 255, 256, 257, 1025, 4095, 4096, 4097, 8191, 12_289] {
        let report = run(&engine, &numbers(rows, rows as u64), 0.0)?;
        check(bits(&report) == bits(&run(&cpu(), &numbers(rows, rows as u64), 0.0)?), format!("{rows} rows"))?;
    }
    Ok(())
}

fn parts(choice: &DeviceChoice) -> Outcome {
    let folder = tempfile::tempdir()?;
    let x = numbers(50_000, 4);
    let engine = engine(choice).chunk(64 << 10).build()?;
    let job = |name: &str| -> Result<Job<'_>> {
        let job = Job::eval("y = x[x > 50]; min(y), mean(x[x > 99.9]), std(x[x > 0])")?.input("x", &x);
        Ok(job.output("y", Npy::create(folder.path().join(name))))
    };
    let whole = engine.run(job("one.npy")?)?;
    let mut partials = Vec::new();
    for part in [2, 0, 3, 1] {
        let rows = engine.rows_of_part(&job("parts.npy")?, part, 4)?;
        partials.push(Partial::from_bytes(&engine.run_rows(job("parts.npy")?, rows)?.to_bytes())?);
    }
    let all = partials.into_iter().try_fold(None, |all: Option<Partial>, part| match all {
        None => Ok::<_, Error>(Some(part)),
        Some(mut all) => all.merge(part).map(|()| Some(all)),
    })?;
    let report = all.ok_or("no parts")?.finish()?;
    check(bits(&report) == bits(&whole), "other results")?;
    check(report.outputs[0].rows == whole.outputs[0].rows, "another number of rows")?;
    let [one, parts] = ["one.npy", "parts.npy"].map(|name| std::fs::read(folder.path().join(name)));
    check(one? == parts?, "other bytes")?;

    let mut y = vec![0.0; x.len()];
    let slice = Job::eval("y = x[x > 50]")?.input("x", &x).output("y", &mut y);
    let error = engine.run_rows(slice, 0..50_000).err().ok_or("a slice is accepted")?;
    check(matches!(&error, Error::InvalidJob(JobError::PartialSelection { .. })), error.to_string())
}

fn verified(choice: &DeviceChoice) -> Outcome {
    let x = numbers(ROWS, 5);
    let right = run(&cpu(), &x, 0.0)?;
    check(bits(&run(&engine(choice).chunk(200 << 10).build()?, &x, 1.0)?) == bits(&right), "other results")
}

fn refused(choice: &DeviceChoice) -> Outcome {
    let (x, mut y, mut short, engine) = (vec![1.0; 10], vec![0.0; 10], vec![0.0; 9], engine(choice).build()?);
    let mut z = y.clone();
    let job = Job::eval("y = x[x > 0]; z = x")?.input("x", &x).output("y", &mut y).output("z", &mut z);
    let error = engine.run(job).err().ok_or("both are accepted")?.to_string();
    check(error.contains("compute them in two jobs"), error)?;
    // There is room for all rows, because nobody knows how many are kept.
    let error = engine.run(Job::eval("y = x[x > 0]")?.input("x", &x).output("y", &mut short));
    let error = error.err().ok_or("a short slice is accepted")?.to_string();
    check(error.contains("output y (slice) has 9"), error)
}

fn losses() -> Outcome {
    let x = numbers(300_000, 6);
    let right = run(&cpu(), &x, 0.0)?;
    for at in [FaultAt::CopyIn, FaultAt::Kernel, FaultAt::CopyOut, FaultAt::Wait] {
        for (nth, with_cpu) in [(0, false), (3, false), (7, true), (19, true), (40, true)] {
            let device = |seed| Emulated::new().seed(seed).copy_in_rate(1e9).kernel_rate(1e8).copy_out_rate(1e9);
            let all = vec![device(0).fault(Fault::new(at, nth)), device(1)];
            let choice = if with_cpu { DeviceChoice::CpuAndEmulated(all) } else { DeviceChoice::Emulated(all) };
            let engine = Engine::builder().device(choice).chunk(128 << 10).workers(2).build()?;
            let report = run(&engine, &x, 0.0)?;
            check(bits(&report) == bits(&right), format!("{at:?} {nth}: other results"))?;
        }
    }
    Ok(())
}
