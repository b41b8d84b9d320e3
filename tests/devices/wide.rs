//! Rows of several elements: broadcast inputs, results with a value for each column, and passes that use them.

use ndarray::{Array2, ArrayView, Axis};
use overshot::plan::Role;
use overshot::{DeviceChoice, Engine, Error, Input, Job, JobError, Npy, Partial, Report, Result, Source};

use crate::harness::{Case, Module, NO_CASES, Outcome, check, cpu, engine, numbers};
use crate::rows::bits;

pub const MODULE: Module = Module { name: "wide", cases: CASES, ..NO_CASES };

const CASES: &[(&str, Case)] = &[
    ("inputs are broadcast as in NumPy", broadcasts),
    ("columns have the same bits for all schedules", schedules),
    ("a table is standardised in two passes", standardises),
    ("results of columns are computed from others", computes),
    ("results are written to outputs", written),
    ("files have the shape of their values", files),
    ("parts have the results of one run", parts),
    ("no rows, and one", edges),
    ("elements are verified, and rows have numbers", verified),
    ("shapes that do not fit are errors", refused),
    ("a row that does not fit is refused before the run", too_wide),
    ("one column is as several", one_column),
];

/// A table of numbers.
fn table(rows: usize, width: usize, seed: u64) -> Outcome<Array2<f64>> {
    Ok(Array2::from_shape_vec((rows, width), numbers(rows * width, seed))?)
}

/// The standard deviation of each column.
fn spread(table: &Array2<f64>) -> Vec<f64> {
    let (rows, means) = (table.nrows() as f64, table.sum_axis(Axis(0)) / table.nrows() as f64);
    let squares = (table - &means).mapv(|difference| difference * difference).sum_axis(Axis(0));
    squares.iter().map(|squares| (squares / rows).sqrt()).collect()
}

/// The bits of all results: of one value, and of columns.
fn all_bits(report: &Report) -> (Vec<Option<u64>>, Vec<Vec<u64>>) {
    let arrays = report.arrays.iter().flat_map(|(_, array)| array);
    (bits(report), arrays.map(|array| array.values().map(|value| value.as_f64().to_bits()).collect()).collect())
}

const REDUCED: &str = "sum(x - m), max(x * w), argmin(x), sum(x, axis=0), mean(x - m, axis=0), \
                       var(x, axis=0, keepdims=True), min(x * w, axis=0), argmax(x, axis=0)";

struct Inputs {
    x: Array2<f64>,
    m: Vec<f64>,
    w: Array2<f64>,
}

impl Inputs {
    fn new(rows: usize, width: usize) -> Outcome<Inputs> {
        Ok(Inputs { x: table(rows, width, 1)?, m: numbers(width, 2), w: table(rows, 1, 3)? })
    }

    fn job<'a>(&'a self, text: &str) -> Result<Job<'a>> {
        let job = Job::eval(text)?.input("x", Input::from(self.x.view()));
        Ok(job.input("m", &self.m).input("w", Input::from(self.w.view())))
    }
}

fn broadcasts(choice: &DeviceChoice) -> Outcome {
    for (rows, width) in [(1, 5), (70, 3), (3000, 7), (300, 129), (50, 300), (9, 5000)] {
        let inputs = Inputs::new(rows, width)?;
        let engine = engine(choice).chunk(64 << 10).build()?;
        let (mut y, mut p) = (vec![f64::NAN; rows * width], vec![f64::NAN; rows]);
        let report = engine.run(inputs.job("y = (x - m) * w; p = w + 1")?.output("y", &mut y).output("p", &mut p))?;
        let m = ArrayView::from(&inputs.m);
        let expected = (&inputs.x - &m) * &inputs.w;
        check(report.rows == rows as u64, format!("{} of {rows} rows", report.rows))?;
        check(expected.iter().eq(&y), format!("{rows} rows of {width}: other elements"))?;
        check(inputs.w.iter().map(|w| w + 1.0).eq(p), format!("{rows} rows of {width}: other values of rows"))?;
    }
    Ok(())
}

fn schedules(choice: &DeviceChoice) -> Outcome {
    for (rows, width) in [(20_000, 3), (2000, 130), (100, 1300)] {
        let inputs = Inputs::new(rows, width)?;
        let right = cpu().run(inputs.job(REDUCED)?)?;
        for (chunk, workers) in [(1, 1), (100 << 10, 3), (1 << 20, 5)] {
            let engine = engine(choice).chunk(chunk).workers(workers).build()?;
            let report = engine.run(inputs.job(REDUCED)?)?;
            check(all_bits(&report) == all_bits(&right), format!("{rows} rows of {width}, chunks of {chunk}"))?;
        }
        let sums = right.array("sum(x, axis=0)")?.and_then(|sums| sums.to_vec::<f64>()).unwrap_or_default();
        let expected = inputs.x.sum_axis(Axis(0));
        let near = |(own, other): (&f64, &f64)| (own - other).abs() <= 1e-12 * rows as f64 * 100.0;
        check(sums.len() == width && sums.iter().zip(&expected).all(near), format!("other sums: {sums:?}"))?;
        let spread = right.array("var(x, axis=0, keepdims=True)")?;
        check(spread.is_some_and(|spread| spread.shape() == [1, width as u64]), "another shape")?;
        let mean = right.value("sum(x - m)")?.map_or(f64::NAN, |sum| sum.as_f64());
        let expected: f64 = (&inputs.x - &ArrayView::from(&inputs.m)).sum();
        check((mean - expected).abs() <= 1e-9 * expected.abs().max(1e3), format!("a sum of {mean}, not {expected}"))?;
    }
    Ok(())
}

fn written(choice: &DeviceChoice) -> Outcome {
    let (rows, width) = (3000, 5);
    let x = table(rows, width, 4)?;
    let job = |text| Ok::<_, Error>(Job::eval(text)?.input("x", Input::from(x.view())));
    let text = "m = mean(x, axis=0); s = std(x, axis=0, keepdims=True); y = (x - m) / s; z = m / s; sum(y)";
    let (mut right, mut y) = (vec![0.0; rows * width], vec![0.0; rows * width]);
    let plain = cpu().run(job(text)?.output("y", &mut right))?;
    let engine = engine(choice).chunk(64 << 10).build()?;
    let dir = tempfile::tempdir()?;
    let (mut m, path) = ([0.0; 5], dir.path().join("s.npy"));
    let mut given = job(text)?.output("m", &mut m).output("y", &mut y).output("s", Npy::create(&path));
    let plan = engine.plan(&given)?;
    check(plan.columns.iter().filter(|column| column.role == Role::Output).count() == 3, "other columns are planned")?;
    given = given.checksum(true);
    let report = engine.run(given)?;
    check(all_bits(&report) == all_bits(&plain) && y == right, "outputs change the results")?;
    let names: Vec<_> = report.outputs.iter().map(|output| (&*output.name, output.rows, output.bytes)).collect();
    check(names == [("y", 3000, 120_000), ("m", 5, 40), ("s", 1, 40)], format!("{names:?}"))?;
    check(report.outputs.iter().all(|output| output.checksum.is_some()), "outputs without checksums")?;
    let means = report.array("m")?.and_then(|means| means.to_vec::<f64>());
    check(means.as_deref() == Some(&m[..]), format!("{m:?}, not {means:?}"))?;
    let file = Npy::open(&path)?;
    check(file.shape() == Some(&[1, 5]), format!("a file of the shape {:?}", file.shape()))?;

    // What does not fit is an error before the run.
    let mut few = [0.0; 4];
    check(engine.run(job("m = mean(x, axis=0)")?.output("m", &mut few)).is_err(), "4 of 5 numbers are written")?;
    let mut single = [0f32; 5];
    let error = engine.run(job("m = mean(x, axis=0)")?.output("m", &mut single));
    check(matches!(error, Err(Error::InvalidJob(JobError::OutputDtype { .. }))), format!("{error:?}"))?;
    engine.run(job("m = f32(mean(x, axis=0))")?.output("m", &mut single))?;
    check(single.iter().zip(&m).all(|(single, m)| *single == *m as f32), format!("{single:?}, not {m:?}"))?;
    let mut number = [0.0];
    let error = engine.run(job("m = mean(x)")?.output("m", &mut number));
    check(matches!(error, Err(Error::InvalidJob(JobError::ReductionOutput { .. }))), format!("{error:?}"))?;
    let error = engine.plan(&job("m = mean(x)")?.output("m", &mut number));
    check(matches!(error, Err(Error::InvalidJob(JobError::ReductionOutput { .. }))), format!("{error:?}"))?;
    let error = engine.run_rows(job("m = mean(x, axis=0)")?.output("m", &mut m), 0..rows as u64);
    check(matches!(error, Err(Error::InvalidJob(JobError::PartialResult { .. }))), format!("{error:?}"))?;
    let none = Array2::<f64>::zeros((0, 5));
    let empty = Job::eval("m = min(x, axis=0)")?.input("x", Input::from(none.view())).output("m", &mut m);
    let error = engine.run(empty);
    check(matches!(error, Err(Error::InvalidJob(JobError::NoArray { .. }))), format!("{error:?}"))
}

const STANDARDISE: &str = "y = (x - mean(x, axis=0)) / std(x, axis=0)";

fn standardises(choice: &DeviceChoice) -> Outcome {
    for (rows, width) in [(5000, 4), (700, 300)] {
        let x = table(rows, width, 5)?;
        let mut right = vec![0.0; rows * width];
        cpu().run(Job::eval(STANDARDISE)?.input("x", Input::from(x.view())).output("y", &mut right))?;
        let y = Array2::from_shape_vec((rows, width), right.clone())?;
        let (means, spreads) = (y.sum_axis(Axis(0)) / rows as f64, spread(&y));
        check(means.iter().all(|mean| mean.abs() < 1e-12), format!("means of {means}"))?;
        check(spreads.iter().all(|spread| (spread - 1.0).abs() < 1e-12), format!("spreads of {spreads:?}"))?;
        for chunk in [64 << 10, 1 << 20] {
            let mut y = vec![0.0; rows * width];
            let engine = engine(choice).chunk(chunk).build()?;
            let report = engine.run(Job::eval(STANDARDISE)?.input("x", Input::from(x.view())).output("y", &mut y))?;
            check(report.passes.len() == 2 && y == right, format!("{rows} rows of {width}, chunks of {chunk}"))?;
        }
        // A row for all rows of an earlier pass is planned, too.
        let mut y = vec![0.0; rows * width];
        let job = Job::eval(STANDARDISE)?.input("x", Input::from(x.view())).output("y", &mut y);
        let plan = engine(choice).build()?.plan(&job)?;
        let columns = plan.passes[1].columns.iter().filter(|column| column.elements == width as u64);
        check(columns.count() >= 3, format!("{:?}", plan.passes[1].columns))?;
    }
    Ok(())
}

fn computes(choice: &DeviceChoice) -> Outcome {
    let x = table(3000, 6, 7)?;
    let text =
        "m = mean(x, axis=0); spread = std(x, axis=0, keepdims=True) / m; y = x * spread; z = max(abs(y), axis=0)";
    let mut y = vec![0.0; 3000 * 6];
    let job = Job::eval(text)?.input("x", Input::from(x.view())).output("y", &mut y);
    let report = engine(choice).chunk(64 << 10).build()?.run(job)?;
    let array = |name: &str| -> Outcome<Vec<f64>> {
        Ok(report.array(name)?.and_then(|array| array.to_vec()).unwrap_or_default())
    };
    let (means, spreads) = (array("m")?, array("spread")?);
    let expected = spread(&x);
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b.abs();
    check((0..6).all(|k| near(spreads[k] * means[k], expected[k])), format!("{spreads:?}"))?;
    check(x.iter().zip(0..).all(|(x, at)| y[at] == x * spreads[at % 6]), "other elements")?;
    let highest = (0..6).map(|k| y.iter().skip(k).step_by(6).fold(0.0, |most: f64, y| most.max(y.abs())));
    check(highest.eq(array("z")?), "other maxima")?;
    check(report.arrays.iter().map(|(name, _)| name.as_str()).eq(["m", "spread", "z"]), format!("{:?}", report.arrays))
}

fn files(choice: &DeviceChoice) -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name);
    let inputs = Inputs::new(400, 12)?;
    let volume = ArrayView::from_shape((400, 3, 4), inputs.x.as_slice().unwrap_or_default())?;
    let job = Job::eval("y = x - m; p = w * 2; n = x * 0 + index()")?.input("x", Input::from(volume));
    let m = ArrayView::from_shape((3, 1), &inputs.m[..3])?;
    let rows = inputs.w.clone().into_shape_with_order((400, 1, 1))?;
    let job = job.input("m", Input::from(m)).input("w", Input::from(rows.view()));
    let job = job.output("y", Npy::create(path("y.npy"))).output("p", Npy::create(path("p.npy")));
    engine(choice).chunk(64 << 10).build()?.run(job.output("n", Npy::create(path("n.npy"))))?;
    let read = |name: &str| -> Outcome<(Vec<u64>, Vec<f64>)> {
        let file = Npy::open(path(name))?;
        let mut values = vec![0.0; file.rows() as usize];
        file.read(0, bytemuck::cast_slice_mut(&mut values))?;
        Ok((file.shape().unwrap_or_default().to_vec(), values))
    };
    let (shape, y) = read("y.npy")?;
    let expected = &volume - &m;
    check(shape == [400, 3, 4] && expected.iter().eq(&y), format!("y has the shape {shape:?}"))?;
    let (shape, p) = read("p.npy")?;
    check(shape == [400, 1, 1] && rows.iter().map(|w| w * 2.0).eq(p), format!("p has the shape {shape:?}"))?;
    let (shape, n) = read("n.npy")?;
    check(shape == [400, 3, 4] && n.iter().zip(0..).all(|(n, at)| *n == f64::from(at / 12)), "other numbers of rows")
}

fn parts(choice: &DeviceChoice) -> Outcome {
    let folder = tempfile::tempdir()?;
    let inputs = Inputs::new(9000, 5)?;
    let text = format!("y = (x - m) * w; mean(x), {REDUCED}");
    let job =
        |name: &str| -> Outcome<Job<'_>> { Ok(inputs.job(&text)?.output("y", Npy::create(folder.path().join(name)))) };
    let whole = cpu().run(job("whole.npy")?)?;
    let engine = engine(choice).chunk(64 << 10).build()?;
    let ranges = (0..4).map(|part| engine.rows_of_part(&job("y.npy")?, part, 4).map_err(Into::into));
    let ranges = ranges.collect::<Outcome<Vec<_>>>()?;
    let mut all: Option<Partial> = None;
    for range in ranges.into_iter().rev() {
        let part = engine.run_rows(job("y.npy")?, range)?;
        let part = Partial::from_bytes(&part.to_bytes())?;
        all = Some(match all {
            Some(mut others) => {
                others.merge(part)?;
                others
            }
            None => part,
        });
    }
    let report = all.ok_or("no part")?.finish()?;
    check(all_bits(&report) == all_bits(&whole), format!("{:?} for {:?}", report.results, whole.results))?;
    let bytes = |name: &str| std::fs::read(folder.path().join(name));
    check(bytes("y.npy")? == bytes("whole.npy")?, "another file")
}

fn edges(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice).build()?;
    for rows in [0, 1] {
        let inputs = Inputs::new(rows, 3)?;
        let report = engine.run(inputs.job("mean(x - m + w, axis=0), min(x, axis=0), sum(x * w)")?)?;
        let mean = report.array("mean(x - m + w, axis=0)")?.ok_or("there is no mean")?;
        check(mean.values().all(|mean| mean.as_f64().is_nan() == (rows == 0)), format!("{mean}"))?;
        check(report.array("min(x, axis=0)")?.is_some() == (rows > 0), "a minimum of nothing")?;
    }
    // One column, and an array of one dimension, whose rows are numbers.
    let one = table(10_000, 1, 9)?;
    let report = engine.run(Job::eval("sum(x, axis=0), sum(x)")?.input("x", Input::from(one.view())))?;
    let own = report.array("sum(x, axis=0)")?.and_then(|sums| sums.get(0)).map(|sum| sum.as_f64());
    check(own == report.value("sum(x)")?.map(|sum| sum.as_f64()), format!("{:?}", report.arrays))?;
    let plain = numbers(10_000, 9);
    let report = engine.run(Job::eval("sum(x, axis=0)")?.input("x", &plain))?;
    check(report.value("sum(x, axis=0)")?.map(|sum| sum.as_f64()) == own, "one dimension has one sum")
}

fn verified(choice: &DeviceChoice) -> Outcome {
    let inputs = Inputs::new(2000, 30)?;
    let mut y = vec![0.0; 60_000];
    let text = format!("y = x * index() + m + rand(1); {REDUCED}");
    let job = inputs.job(&text)?.verify(1.0).output("y", &mut y);
    engine(choice).chunk(64 << 10).build()?.run(job)?;
    let mut random = vec![0.0; 60_000];
    cpu().run(Job::eval("y = rand(1)")?.output("y", &mut random))?;
    let expected = inputs.x.iter().zip(0..).map(|(x, at)| x * (at / 30) as f64 + inputs.m[at % 30] + random[at]);
    check(expected.eq(y), "other elements")
}

fn refused(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice).build()?;
    let x = table(6, 4, 1)?;
    let volume = ArrayView::from_shape((6, 2, 2), x.as_slice().unwrap_or_default())?;
    let error = |text: &str, a: Input<'_>, b: Input<'_>| -> Outcome<String> {
        let job = Job::eval(text)?.input("a", a).input("b", b);
        Ok(engine.run(job).err().ok_or_else(|| format!("{text} was computed"))?.to_string())
    };
    let (five, part) = (vec![0.0; 5], ArrayView::from_shape((6, 1, 2), &x.as_slice().unwrap_or_default()[..12])?);
    let differ = error("sum(a + b)", Input::from(x.view()), Input::from(&five[..]))?;
    check(differ.contains("NumPy's rules do not broadcast") || differ.contains("rows"), differ)?;
    let partly = error("sum(a + b)", Input::from(volume), Input::from(part))?;
    check(partly.contains("broadcast to (6, 2, 2) within each row"), partly)?;
    let reduced =
        error("sum(a * 0), sum(b)", Input::from(x.view()), Input::from(&x.as_slice().unwrap_or_default()[..4]))?;
    check(reduced.contains("one row for all rows"), reduced)?;
    let mut short = vec![0.0; 20];
    let own = &x.as_slice().unwrap_or_default()[..4];
    let job = Job::eval("y = a - b")?.input("a", Input::from(x.view())).input("b", own).output("y", &mut short);
    match engine.run(job) {
        Err(Error::InvalidJob(JobError::RowsDiffer { .. } | JobError::PartialRow { .. })) => Ok(()),
        other => check(false, format!("{other:?}")),
    }
}

/// Tables of one column, and results of one dimension that keep it.
fn one_column(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice).build()?;
    let (x, b) = (table(9000, 1, 3)?, [2.0]);
    let job = |text: &str| -> Result<Job<'_>> { Ok(Job::eval(text)?.input("x", Input::from(x.view())).input("b", &b)) };
    for text in ["sum(x - b), sum(b)", "sum(x - b), prod(b, axis=0)"] {
        let error = engine.run(job(text)?).err().ok_or_else(|| format!("{text} was computed"))?;
        check(error.to_string().contains("one row for all rows"), error.to_string())?;
    }
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("z.npy");
    engine.run(job("z = (x + b)[x > 0]")?.output("z", Npy::create(&path)))?;
    let kept = x.iter().filter(|x| **x > 0.0).count() as u64;
    check(Npy::open(&path)?.shape() == Some(&[kept]), "kept rows have one dimension")?;
    check(engine.run(job("sum(x + b)")?.rows(5)).is_err(), "a number of rows that is not that of the table")?;

    let plain = numbers(9000, 4);
    let mut y = vec![0.0; 9000];
    let text = "y = x - mean(x, axis=0, keepdims=True); sum(x, axis=0), sum(x, axis=0)";
    let report = engine.run(Job::eval(text)?.input("x", &plain).output("y", &mut y))?;
    let mean = engine.run(Job::eval("mean(x)")?.input("x", &plain))?.value("mean(x)")?.map_or(f64::NAN, |m| m.as_f64());
    check(y.iter().zip(&plain).all(|(y, x)| *y == x - mean), "other differences")?;
    check(report.results.len() == 2 && report.arrays.is_empty(), format!("{:?} {:?}", report.results, report.arrays))?;
    let twice = "sum(x, axis=0), sum(x, axis=0), y = x - mean(x)";
    let mut y = vec![0.0; 9000];
    let report = engine.run(Job::eval(twice)?.input("x", Input::from(x.view())).output("y", &mut y))?;
    check(report.results.is_empty() && report.arrays.len() == 2, format!("{:?} {:?}", report.results, report.arrays))?;
    let empty = Array2::<f64>::zeros((5, 0));
    check(engine.run(Job::eval("sum(x, axis=0)")?.input("x", Input::from(empty.view()))).is_err(), "no columns")
}

fn too_wide(choice: &DeviceChoice) -> Outcome {
    let x = table(4, 1 << 18, 1)?;
    let engine: Engine = engine(choice).device_memory(1 << 20).pinned_memory(1 << 20).build()?;
    let on_cpu = engine.devices().iter().all(|device| device.id == "cpu");
    match engine.run(Job::eval("sum(x, axis=0)")?.input("x", Input::from(x.view()))) {
        Err(Error::Budget { .. }) => Ok(()),
        Ok(_) if on_cpu => Ok(()),
        other => check(false, format!("{:?}", other.map(|report| report.chunks))),
    }
}
