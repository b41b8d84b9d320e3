//! Reductions within rows: outputs of one element for each row, and expressions of them.

use ndarray::{Array2, ArrayView, Axis};
use overshot::{DeviceChoice, Engine, Input, Job, Npy, Partial, Result, Source};

use crate::harness::{Case, Module, NO_CASES, Outcome, check, cpu, engine, numbers};
use crate::rows::bits;

pub const MODULE: Module = Module { name: "within", cases: CASES, ..NO_CASES };

const CASES: &[(&str, Case)] = &[
    ("sums of rows are those of NumPy", sums),
    ("rows have the same bits for all schedules", schedules),
    ("outputs have the shapes of NumPy", shapes),
    ("a row may be of the last axis alone", last_axis),
    ("parts have the outputs of one run", parts),
    ("chunks are verified", verified),
    ("passes reduce along rows and within them", passes),
    ("no rows, and one, and rows of one element", edges),
    ("what has other shapes is refused", refused),
];

const SOFTMAX: &str = "y = exp(x - max(x, axis=-1, keepdims=True)); z = y / sum(y, axis=-1, keepdims=True)";

fn table(rows: usize, width: usize) -> Outcome<Array2<f64>> {
    Ok(Array2::from_shape_vec((rows, width), numbers(rows * width, 6))?)
}

fn job<'a>(text: &str, x: &'a Array2<f64>) -> Result<Job<'a>> {
    Ok(Job::eval(text)?.input("x", Input::from(x.view())))
}

/// Shapes of tables: rows of few elements, of as many as a block has threads and more, and of more than a host block.
const TABLES: [(usize, usize); 6] = [(20_000, 3), (5000, 16), (700, 256), (300, 300), (40, 2500), (3, 100_000)];

fn sums(choice: &DeviceChoice) -> Outcome {
    for (rows, width) in TABLES {
        let x = table(rows, width)?;
        let (mut s, mut m, mut a) = (vec![f64::NAN; rows], vec![f64::NAN; rows], vec![-1_i64; rows]);
        let text = "s = sum(x, axis=1); m = max(x, axis=-1); a = argmin(x, axis=1)";
        let job = job(text, &x)?.output("s", &mut s).output("m", &mut m).output("a", &mut a);
        let report = engine(choice).chunk(64 << 10).build()?.run(job)?;
        check(report.rows == rows as u64, format!("{} of {rows} rows", report.rows))?;
        let near = |(own, other): (&f64, &f64)| (own - other).abs() <= 1e-10 * width as f64;
        check(s.iter().zip(&x.sum_axis(Axis(1))).all(near), format!("{rows} rows of {width}: other sums"))?;
        let most = x.rows().into_iter().map(|row| row.iter().copied().fold(f64::NEG_INFINITY, f64::max));
        check(most.eq(m), format!("{rows} rows of {width}: other maxima"))?;
        let least = |(row, own): (ArrayView<'_, f64, _>, &i64)| row.iter().all(|x| row[*own as usize] <= *x);
        check(x.rows().into_iter().zip(&a).all(least), format!("{rows} rows of {width}: other places"))?;
    }
    Ok(())
}

fn schedules(choice: &DeviceChoice) -> Outcome {
    let text = format!("{SOFTMAX}; s = std(x, axis=1); sum(z), max(y)");
    for (rows, width) in TABLES {
        let x = table(rows, width)?;
        let run = |engine: &Engine| -> Outcome<_> {
            let (mut z, mut s) = (vec![f64::NAN; rows * width], vec![f64::NAN; rows]);
            let report = engine.run(job(&text, &x)?.output("z", &mut z).output("s", &mut s))?;
            check(report.passes.is_empty(), "more than one pass")?;
            Ok((z, s, bits(&report)))
        };
        let right = run(&cpu())?;
        let sums = ArrayView::from_shape((rows, width), &right.0)?.sum_axis(Axis(1));
        check(sums.iter().all(|sum| (sum - 1.0).abs() < 1e-9), format!("{rows} rows of {width}: {sums}"))?;
        for (chunk, workers) in [(1, 1), (100 << 10, 3), (1 << 20, 5)] {
            let found = run(&engine(choice).chunk(chunk).workers(workers).build()?)?;
            check(found == right, format!("{rows} rows of {width}, chunks of {chunk}"))?;
        }
    }
    Ok(())
}

/// The shape of a file, and its numbers.
fn read(path: &std::path::Path) -> Outcome<(Vec<u64>, Vec<f64>)> {
    let file = Npy::open(path)?;
    let mut values = vec![0.0; file.rows() as usize];
    file.read(0, bytemuck::cast_slice_mut(&mut values))?;
    Ok((file.shape().unwrap_or_default().to_vec(), values))
}

fn shapes(choice: &DeviceChoice) -> Outcome {
    let folder = tempfile::tempdir()?;
    let x = table(400, 12)?;
    let volume = ArrayView::from_shape((400, 3, 4), x.as_slice().unwrap_or_default())?;
    let path = |name: &str| folder.path().join(name);
    let text = "s = sum(x, axis=(1, 2)); k = sum(x, axis=(-2, -1), keepdims=True); y = x - k; h = s > 0; f = f32(s)";
    let job = Job::eval(text)?.input("x", Input::from(volume));
    let job = ["s", "k", "y"].into_iter().fold(job, |job, name| job.output(name, Npy::create(path(name))));
    let job = job.output("h", Npy::create(path("h"))).output("f", Npy::create(path("f")));
    engine(choice).chunk(64 << 10).build()?.run(job)?;
    let ((s_shape, s), (k_shape, k), (y_shape, y)) = (read(&path("s"))?, read(&path("k"))?, read(&path("y"))?);
    let found = (&s_shape[..], &k_shape[..], &y_shape[..]);
    check(found == (&[400], &[400, 1, 1], &[400, 3, 4]), format!("{found:?}"))?;
    check(s == k && volume.iter().zip(&y).zip(0..).all(|((x, y), at)| x - k[at / 12] == *y), "other elements")?;
    check(Npy::open(path("h"))?.shape() == Some(&[400]) && Npy::open(path("f"))?.shape() == Some(&[400]), "h and f")
}

/// Of arrays of one shape, rows are the slices that are reduced.
fn last_axis(choice: &DeviceChoice) -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name);
    let x = table(600, 70)?;
    let volume = ArrayView::from_shape((20, 30, 70), x.as_slice().unwrap_or_default())?;
    let run = |x: Input<'_>, names: [&str; 3]| -> Outcome {
        let text = format!("{SOFTMAX}; s = mean(x, axis=-1); k = mean(x, axis=-1, keepdims=True)");
        let job = ["z", "s", "k"]
            .into_iter()
            .zip(names)
            .fold(Job::eval(&text)?.input("x", x), |job, (name, file)| job.output(name, Npy::create(path(file))));
        engine(choice).chunk(64 << 10).build()?.run(job)?;
        Ok(())
    };
    run(Input::from(volume), ["z3", "s3", "k3"])?;
    run(Input::from(x.view()), ["z2", "s2", "k2"])?;
    for (name, shape) in [("z", &[20, 30, 70][..]), ("s", &[20, 30]), ("k", &[20, 30, 1])] {
        let [own, other] = [3, 2].map(|dims| read(&path(&format!("{name}{dims}"))));
        let ((own_shape, own), (_, other)) = (own?, other?);
        check(own_shape == shape && own == other, format!("{name} has the shape {own_shape:?}"))?;
    }
    Ok(())
}

fn parts(choice: &DeviceChoice) -> Outcome {
    let folder = tempfile::tempdir()?;
    for (rows, width) in [(9000, 5), (50, 3000)] {
        let x = table(rows, width)?;
        let path = |name: &str| folder.path().join(format!("{name}{width}.npy"));
        let text = format!("{SOFTMAX}; s = sum(x, axis=1); mean(x), sum(z)");
        let job = |z: &str, s: &str| -> Outcome<Job<'_>> {
            Ok(job(&text, &x)?.output("z", Npy::create(path(z))).output("s", Npy::create(path(s))))
        };
        let whole = cpu().run(job("whole", "sums")?)?;
        let engine = engine(choice).chunk(64 << 10).build()?;
        let mut all: Option<Partial> = None;
        for part in (0..3).rev() {
            let range = engine.rows_of_part(&job("z", "s")?, part, 3)?;
            let part = Partial::from_bytes(&engine.run_rows(job("z", "s")?, range)?.to_bytes())?;
            match &mut all {
                Some(all) => all.merge(part)?,
                None => all = Some(part),
            }
        }
        let report = all.ok_or("no part")?.finish()?;
        check(report.results == whole.results, format!("{:?} for {:?}", report.results, whole.results))?;
        let bytes = |name: &str| std::fs::read(path(name));
        check(bytes("z")? == bytes("whole")? && bytes("s")? == bytes("sums")?, "other files")?;
    }
    Ok(())
}

fn verified(choice: &DeviceChoice) -> Outcome {
    for (rows, width) in [(2000, 30), (60, 2000)] {
        let x = table(rows, width)?;
        let (mut z, mut s) = (vec![0.0; rows * width], vec![0.0; rows]);
        let text = format!("{SOFTMAX}; s = index() * var(x, axis=1); min(z)");
        let job = job(&text, &x)?.verify(1.0).output("z", &mut z).output("s", &mut s);
        engine(choice).chunk(64 << 10).build()?.run(job)?;
        check(s[0] == 0.0 && s[1] > 0.0 && z.iter().all(|z| (0.0..=1.0).contains(z)), "other elements")?;
    }
    Ok(())
}

/// Columns are standardised, and then rows have length 1.
fn passes(choice: &DeviceChoice) -> Outcome {
    let x = table(3000, 6)?;
    let text = "u = x - mean(x, axis=0); y = u / sqrt(sum(u * u, axis=1, keepdims=True)); mean(y, axis=0)";
    let mut y = vec![0.0; 18_000];
    let error = engine(choice).build()?.run(job(text, &x)?.output("y", &mut y)).err().ok_or("it was computed")?;
    check(error.to_string().contains("compute them in jobs of their own"), error.to_string())?;
    let text = text.replace("; mean(y, axis=0)", "");
    let report = engine(choice).chunk(64 << 10).build()?.run(job(&text, &x)?.output("y", &mut y))?;
    check(report.passes.len() == 2, format!("{} passes", report.passes.len()))?;
    let squares = y.chunks(6).map(|row| row.iter().map(|y| y * y).sum::<f64>());
    check(squares.into_iter().all(|sum| (sum - 1.0).abs() < 1e-12), "another length")
}

fn edges(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice).build()?;
    for (rows, width) in [(0, 3), (1, 3), (1, 3000), (5, 1)] {
        let x = table(rows, width)?;
        let (mut s, mut a) = (vec![f64::NAN; rows], vec![-1_i64; rows]);
        let text = "s = sum(x, axis=1); a = argmax(x, axis=1)";
        engine.run(job(text, &x)?.output("s", &mut s).output("a", &mut a))?;
        let near = |(own, other): (&f64, &f64)| (own - other).abs() <= 1e-8;
        check(s.iter().zip(&x.sum_axis(Axis(1))).all(near), format!("{rows} rows of {width}: {s:?}"))?;
        check(a.iter().all(|a| (0..width as i64).contains(a)), format!("{rows} rows of {width}: {a:?}"))?;
    }
    Ok(())
}

fn refused(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice).build()?;
    let x = table(6, 4)?;
    let volume = ArrayView::from_shape((6, 2, 2), x.as_slice().unwrap_or_default())?;
    let line = numbers(6, 1);
    let mut y = [0.0; 24];
    for (text, input, reason) in [
        ("y = x - mean(x, axis=1)", Input::from(x.view()), "`keepdims=True`"),
        ("y = sum(x, axis=1)", Input::from(&line), "one dimension"),
        ("y = sum(x, axis=1)", Input::from(volume), "arrays of 3"),
        ("y = sum(x, axis=-1) + index()", Input::from(volume), "arrays of 3"),
        ("y = sum(x, axis=2)", Input::from(x.view()), "arrays of 2"),
        ("s = sum(x, axis=1); y = x[x > 0]", Input::from(x.view()), "a filter keeps whole rows"),
    ] {
        let room = if reason == "one dimension" { 6 } else { 24 };
        let error = engine.run(Job::eval(text)?.input("x", input).output("y", &mut y[..room])).err();
        let error = error.ok_or_else(|| format!("{text} was computed"))?.to_string();
        check(error.contains(reason), error)?;
    }
    Ok(())
}
