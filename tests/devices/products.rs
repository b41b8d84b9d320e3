//! Products over the rows: `x.T @ y`.

use ndarray::{Array1, Array2, ArrayView, Axis};
use overshot::report::Report;
use overshot::{ArrayValue, DeviceChoice, Engine, Error, Input, Job, Partial, Result};

use crate::harness::{Case, Module, NO_CASES, Outcome, check, engine, numbers};
use crate::tables::{builder, has_room, integers, table};

pub const MODULE: Module = Module { name: "products", cases: CASES, ..NO_CASES };

const CASES: &[(&str, Case)] = &[
    ("products of integers are exact", exact),
    ("products of f32 are exact, too", exact_f32),
    ("products have the same bits for all schedules", schedules),
    ("products beside outputs and reductions", beside),
    ("products of kept rows", kept),
    ("products of neighbours", neighbours),
    ("a covariance takes two passes", covariance),
    ("two passes in little memory", two_passes_in_little_memory),
    ("products of rows that stay on devices", resident),
    ("parts have the bits of one run", parts),
    ("no rows, and one", edges),
    ("little memory is refused, or enough", limits),
    ("what is no product is refused", refused),
];

/// Rows and columns: within a leaf, of several leaves, of several tiles, of several panels, and rows that are wider
/// than a block.
const TABLES: [(usize, usize); 7] =
    [(10, 3), (5000, 16), (140_001, 3), (70_000, 17), (70_000, 130), (9000, 64), (9000, 300)];

fn job<'a>(text: &str, x: &'a Array2<f64>) -> Result<Job<'a>> {
    Ok(Job::eval(text)?.input("x", Input::from(x.view())))
}

fn array<'r>(report: &'r Report, label: &str) -> Outcome<&'r ArrayValue> {
    Ok(report.array(label)?.ok_or("no value")?)
}

fn is(report: &Report, label: &str, shape: &[u64], right: impl IntoIterator<Item = f64>) -> Outcome {
    let found = array(report, label)?;
    check(found.shape() == shape, format!("{label} has the shape {:?}", found.shape()))?;
    let right: Vec<f64> = right.into_iter().collect();
    let values: Vec<f64> = (0..right.len()).map(|k| found.get(k).map_or(f64::NAN, |value| value.as_f64())).collect();
    check(values == right, format!("{label}: {values:?} for {right:?}"))
}

fn exact(choice: &DeviceChoice) -> Outcome {
    if !has_room(choice)? {
        return Ok(());
    }
    for (rows, width) in TABLES {
        let x = integers(rows, width)?;
        let t: Array1<f64> = x.column(1).map(|x| x - 2.0);
        let text = "g = x.T @ x; a = (x - 1).T @ t; b = t.T @ (2 * x); c = x.T @ k; d = k.T @ k";
        let job = job(text, &x)?.input("t", Input::from(t.view()));
        let column = t.view().insert_axis(Axis(1));
        let report = builder(choice).chunk(200 << 10).build()?.run(job.input("k", Input::from(column)))?;
        let d = width as u64;
        is(&report, "g", &[d, d], x.t().dot(&x))?;
        is(&report, "a", &[d], (&x - 1.0).t().dot(&t))?;
        is(&report, "b", &[d], t.dot(&(2.0 * &x)))?;
        is(&report, "c", &[d, 1], x.t().dot(&column))?;
        is(&report, "d", &[1, 1], [t.dot(&t)])?;
    }
    Ok(())
}

fn exact_f32(choice: &DeviceChoice) -> Outcome {
    if !has_room(choice)? {
        return Ok(());
    }
    for (rows, width) in TABLES {
        let x = integers(rows, width)?;
        let small = x.map(|x| *x as f32);
        let job = Job::eval("x.T @ x; g = x.T @ f64(x + 1)")?.input("x", Input::from(small.view()));
        let report = builder(choice).build()?.run(job)?;
        let d = width as u64;
        is(&report, "x.T @ x", &[d, d], x.t().dot(&x))?;
        check(array(&report, "x.T @ x")?.dtype() == overshot::Dtype::F32, "another dtype")?;
        is(&report, "g", &[d, d], x.t().dot(&(&x + 1.0)))?;
    }
    Ok(())
}

fn words(report: &Report, labels: &[&str]) -> Outcome<Vec<Vec<u8>>> {
    labels.iter().map(|label| Ok(array(report, label)?.bytes().to_vec())).collect()
}

fn schedules(choice: &DeviceChoice) -> Outcome {
    if !has_room(choice)? {
        return Ok(());
    }
    for (rows, width) in [(9001, 5), (140_001, 3), (70_000, 130), (9000, 300)] {
        let x = table(rows, width)?;
        let run = |engine: &Engine| -> Outcome<_> {
            words(&engine.run(job("g = x.T @ x; h = sin(x).T @ (x * x)", &x)?)?, &["g", "h"])
        };
        let right = run(&builder(choice).build()?)?;
        for (chunk, workers) in [(1, 1), (100 << 10, 3), (1 << 20, 5), (10_000, 2)] {
            let found = run(&builder(choice).chunk(chunk).workers(workers).build()?)?;
            check(found == right, format!("{rows} rows of {width}, chunks of {chunk}, {workers} workers"))?;
        }
    }
    Ok(())
}

fn beside(choice: &DeviceChoice) -> Outcome {
    if !has_room(choice)? {
        return Ok(());
    }
    for (rows, width) in [(10, 3), (70_000, 17), (9000, 300)] {
        let x = integers(rows, width)?;
        let mut y = vec![0.0; rows * width];
        let text = "y = x * 3 - 1; g = y.T @ x; sum(x); s = sum(x, axis=1); h = s.T @ x";
        let report = builder(choice).chunk(64 << 10).build()?.run(job(text, &x)?.output("y", &mut y))?;
        let right = &x * 3.0 - 1.0;
        is(&report, "g", &[width as u64; 2], right.t().dot(&x))?;
        is(&report, "h", &[width as u64], x.sum_axis(Axis(1)).dot(&x))?;
        check(right.iter().eq(&y), "other outputs")?;
        check(report.value("sum(x)")?.is_some_and(|sum| sum.as_f64() == x.sum()), "another sum")?;
        let report = builder(choice).chunk(64 << 10).build()?.run(job("max(x, axis=0); x.T @ x", &x)?)?;
        is(&report, "x.T @ x", &[width as u64; 2], x.t().dot(&x))?;
        let most = x.axis_iter(Axis(1)).map(|column| column.fold(f64::NEG_INFINITY, |most, x| most.max(*x)));
        is(&report, "max(x, axis=0)", &[width as u64], most)?;
    }
    Ok(())
}

fn kept(choice: &DeviceChoice) -> Outcome {
    if !has_room(choice)? {
        return Ok(());
    }
    let mut x = integers(70_000, 7)?;
    let t = x.column(2).to_owned();
    x[[5, 3]] = f64::NAN;
    let text = "u = x[(t > 0) & isfinite(sum(x, axis=1))]; g = u.T @ u";
    let job = job(text, &x)?.input("t", Input::from(t.view()));
    let report = builder(choice).chunk(64 << 10).build()?.run(job)?;
    let own = x.rows().into_iter().zip(&t).filter(|(row, t)| **t > 0.0 && row.sum().is_finite());
    let rows: Vec<f64> = own.flat_map(|(row, _)| row.to_vec()).collect();
    let right = Array2::from_shape_vec((rows.len() / 7, 7), rows)?;
    is(&report, "g", &[7, 7], right.t().dot(&right))
}

/// Correlations of rows with those before them.
fn neighbours(choice: &DeviceChoice) -> Outcome {
    if !has_room(choice)? {
        return Ok(());
    }
    let x = integers(20_000, 5)?;
    let text = "g = x.T @ shift(x, 1, 0)";
    let report = builder(choice).chunk(64 << 10).build()?.run(job(text, &x)?)?;
    let (before, after) = (x.slice(ndarray::s![..-1, ..]), x.slice(ndarray::s![1.., ..]));
    is(&report, "g", &[5, 5], after.t().dot(&before))
}

fn covariance(choice: &DeviceChoice) -> Outcome {
    if !has_room(choice)? {
        return Ok(());
    }
    let x = table(30_000, 6)?;
    let text = "u = x - mean(x, axis=0); g = u.T @ u";
    let report = builder(choice).chunk(64 << 10).build()?.run(job(text, &x)?)?;
    check(report.passes.len() == 2, format!("{} passes", report.passes.len()))?;
    let mean = x.mean_axis(Axis(0)).ok_or("no rows")?;
    let centred = &x - &mean;
    let right = centred.t().dot(&centred);
    let found = array(&report, "g")?;
    let near = |(k, right): (usize, &f64)| {
        let found = found.get(k).map_or(f64::NAN, |value| value.as_f64());
        (found - right).abs() <= 1e-10 * right.abs().max(1e3)
    };
    check(right.iter().enumerate().all(near), "another covariance")
}

/// Rows stay on a device between the passes only as far as they leave room for panels.
fn two_passes_in_little_memory(choice: &DeviceChoice) -> Outcome {
    if !has_room(choice)? {
        return Ok(());
    }
    let x = integers(800_000, 16)?;
    let text = "u = x - max(x, axis=0); g = u.T @ u";
    let report = engine(choice).device_memory(160 << 20).build()?.run(job(text, &x)?)?;
    let right = x.map(|x| x - 4.0);
    is(&report, "g", &[16, 16], right.t().dot(&right))
}

fn resident(choice: &DeviceChoice) -> Outcome {
    if !has_room(choice)? {
        return Ok(());
    }
    let x = integers(70_000, 9)?;
    let engine = builder(choice).chunk(64 << 10).build()?;
    let rows = engine.resident(Input::from(x.view()))?;
    for _ in 0..2 {
        let report = engine.run(Job::eval("x.T @ x; sum(x)")?.input("x", &rows))?;
        is(&report, "x.T @ x", &[9, 9], x.t().dot(&x))?;
        check(report.value("sum(x)")?.is_some_and(|sum| sum.as_f64() == x.sum()), "another sum")?;
    }
    Ok(())
}

fn parts(choice: &DeviceChoice) -> Outcome {
    if !has_room(choice)? {
        return Ok(());
    }
    let x = table(270_000, 3)?;
    let engine = builder(choice).chunk(64 << 10).build()?;
    let text = "g = x.T @ x; sum(x)";
    let whole = engine.run(job(text, &x)?)?;
    let mut all: Option<Partial> = None;
    for part in (0..3).rev() {
        let range = engine.rows_of_part(&job(text, &x)?, part, 3)?;
        let part = Partial::from_bytes(&engine.run_rows(job(text, &x)?, range)?.to_bytes())?;
        match &mut all {
            Some(all) => all.merge(part)?,
            None => all = Some(part),
        }
    }
    let report = all.ok_or("no part")?.finish()?;
    check(words(&report, &["g"])? == words(&whole, &["g"])? && report.results == whole.results, "other bits")?;
    let error = engine.run_rows(job(text, &x)?, 0..4096).err().ok_or("a part of a tile was computed")?;
    check(error.to_string().contains("65536"), error.to_string())
}

fn edges(choice: &DeviceChoice) -> Outcome {
    if !has_room(choice)? {
        return Ok(());
    }
    for rows in [0, 1] {
        let x = integers(rows, 4)?;
        let report = builder(choice).build()?.run(job("x.T @ x", &x)?)?;
        is(&report, "x.T @ x", &[4, 4], x.t().dot(&x))?;
    }
    let x = integers(5000, 1)?;
    let report = builder(choice).build()?.run(job("x.T @ x", &x)?)?;
    is(&report, "x.T @ x", &[1, 1], x.t().dot(&x))
}

fn limits(choice: &DeviceChoice) -> Outcome {
    if !has_room(choice)? {
        return Ok(());
    }
    let x = integers(20_000, 100)?;
    let run = |bytes: u64| engine(choice).device_memory(bytes).build()?.run(job("x.T @ x", &x)?);
    let plan = builder(choice).build()?.plan(&job("x.T @ x", &x)?)?;
    if plan.devices.iter().any(|device| device.panels == 0) {
        return Ok(());
    }
    let Err(Error::Budget { needed, .. }) = run(1 << 20) else { return Err("one MiB was enough".into()) };
    check(needed > 1 << 20, format!("{needed} bytes are needed"))?;
    check(matches!(run(needed - 1), Err(Error::Budget { .. })), "less was enough")?;
    is(&run(needed)?, "x.T @ x", &[100, 100], x.t().dot(&x))
}

fn refused(choice: &DeviceChoice) -> Outcome {
    let engine = builder(choice).build()?;
    let x = table(6, 4)?;
    let line = numbers(6, 1);
    let whole = [1_i64, 2, 3, 4];
    let volume = ArrayView::from_shape((6, 2, 2), x.as_slice().unwrap_or_default())?;
    let integers = ArrayView::from_shape((2, 2), &whole)?;
    for (text, input, reason) in [
        ("y = (x + 1).T; sum(y)", Input::from(x.view()), "can only be multiplied"),
        ("x.T @ x", Input::from(&line), "two dimensions"),
        ("x.T @ x", Input::from(volume), "two dimensions"),
        ("x.T @ x", Input::from(integers), "not i64"),
        ("x.T @ 3", Input::from(x.view()), "two dimensions"),
        ("g = x.T @ x; z = x - g; sum(z)", Input::from(x.view()), "shape"),
    ] {
        let error = match Job::eval(text) {
            Ok(job) => engine.run(job.input("x", input)).err(),
            Err(error) => Some(error),
        };
        let error = error.ok_or_else(|| format!("{text} was computed"))?.to_string();
        check(error.contains(reason), format!("{text}: {error}"))?;
    }
    let mut y = vec![0.0; 24];
    let filtered = job("y = x[sum(x, axis=1) > 0]; x.T @ x", &x)?.output("y", &mut y);
    let error = engine.run(filtered).err().ok_or("it was computed")?.to_string();
    check(error.contains("job of its own"), error)?;
    let error = engine.run(job("x.T @ x", &x)?.verify(1.0)).err().ok_or("it was verified")?.to_string();
    check(error.contains("cannot be verified"), error)
}
