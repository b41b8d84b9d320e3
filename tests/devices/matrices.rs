//! Products with matrices: `x @ w`.

use ndarray::{Array1, Array2, Axis};
use overshot::device::DeviceKind;
use overshot::report::Report;
use overshot::{DeviceChoice, Engine, Error, Input, Job, JobError, Partial, Precision, Result};

use crate::harness::{Case, Module, NO_CASES, Outcome, check, engine, numbers};
use crate::tables::{builder, has_room, integers, table};

pub const MODULE: Module = Module { name: "matrices", cases: CASES, ..NO_CASES };

const CASES: &[(&str, Case)] = &[
    ("products of integers are exact", exact),
    ("products of f32 are exact, too", exact_f32),
    ("products of f32 have fewer bits on request", precisions),
    ("products have the same bits for all schedules", schedules),
    ("gradients of two regressions", gradients),
    ("the nearest of some centres", nearest),
    ("sums by key", by_key),
    ("a product of a product", two_layers),
    ("products over the rows of several layers", over_rows),
    ("reductions of products", reductions),
    ("kept rows of products", kept),
    ("products in the second pass", passes),
    ("products of rows that stay on devices", resident),
    ("chunks of rows that stay are large", large_chunks),
    ("parts have the bits of one run", parts),
    ("no rows, and one", edges),
    ("little memory is refused, or enough", limits),
    ("what is no product is refused", refused),
];

/// Rows, and columns of the matrices before and behind: within a tile, of several batches, and wider than a block.
const TABLES: [(usize, usize, usize); 7] =
    [(10, 3, 2), (5000, 16, 3), (30_000, 3, 40), (20_000, 1, 5), (9000, 64, 1), (5000, 300, 7), (3000, 5, 700)];

/// A job of a text over `x`.
fn job<'a>(text: &str, x: &'a Array2<f64>) -> Result<Job<'a>> {
    Ok(Job::eval(text)?.input("x", Input::from(x.view())))
}

/// The numbers of a result.
fn values(report: &Report, label: &str) -> Outcome<Vec<f64>> {
    let found = report.array(label)?.ok_or("no value")?;
    let count = found.shape().iter().product::<u64>() as usize;
    Ok((0..count).map(|k| found.get(k).map_or(f64::NAN, |value| value.as_f64())).collect())
}

fn are_near(label: &str, found: &[f64], right: impl IntoIterator<Item = f64>, error: f64) -> Outcome {
    let right: Vec<f64> = right.into_iter().collect();
    let is_near = |(found, right): (&f64, &f64)| (found - right).abs() <= error * right.abs().max(1.0);
    let all = found.len() == right.len() && found.iter().zip(&right).all(is_near);
    check(all, format!("{label}: {} values, {:?} for {:?}", found.len(), found.first(), right.first()))
}

fn exact(choice: &DeviceChoice) -> Outcome {
    if !has_room(choice)? {
        return Ok(());
    }
    for (rows, inner, width) in TABLES {
        let (x, w) = (integers(rows, inner)?, integers(inner, width)?);
        let (v, h) = (w.t().to_owned(), integers(width, 1)?.remove_axis(Axis(1)));
        let column = w.column(0).to_owned();
        let (mut y, mut z, mut a, mut s) =
            (vec![0.0; rows * width], vec![0.0; rows * width], vec![0.0; rows], vec![0.0; rows]);
        let text = "y = x @ w; z = (2 * x - 1) @ v.T + h; s = sum(x @ w, axis=1)";
        let given = job(text, &x)?.input("w", Input::from(w.view())).input("v", Input::from(v.view()));
        let given = given.input("h", Input::from(h.view())).output("y", &mut y).output("z", &mut z);
        builder(choice).chunk(200 << 10).build()?.run(given.output("s", &mut s))?;
        let right = x.dot(&w);
        are_near("y", &y, right.iter().copied(), 0.0)?;
        are_near("z", &z, ((&x * 2.0 - 1.0).dot(&w) + &h).iter().copied(), 0.0)?;
        are_near("s", &s, right.sum_axis(Axis(1)), 0.0)?;
        let one = job("a = x @ u + 1", &x)?.input("u", Input::from(column.view())).output("a", &mut a);
        builder(choice).build()?.run(one)?;
        are_near("a", &a, x.dot(&column) + 1.0, 0.0)?;
    }
    Ok(())
}

fn exact_f32(choice: &DeviceChoice) -> Outcome {
    if !has_room(choice)? {
        return Ok(());
    }
    for (rows, inner, width) in TABLES {
        let (x, w) = (integers(rows, inner)?, integers(inner, width)?);
        let (small, matrix) = (x.map(|x| *x as f32), w.map(|w| *w as f32));
        let (mut y, mut z) = (vec![0_f32; rows * width], vec![0.0; rows * width]);
        let text = "y = x @ w; z = f64(x @ w)";
        let job = Job::eval(text)?.input("x", Input::from(small.view())).input("w", Input::from(matrix.view()));
        builder(choice).build()?.run(job.output("y", &mut y).output("z", &mut z))?;
        let right = x.dot(&w);
        check(y.iter().map(|y| f64::from(*y)).eq(right.iter().copied()), "products of f32")?;
        are_near("z", &z, right, 0.0)?;
    }
    Ok(())
}

fn precisions(choice: &DeviceChoice) -> Outcome {
    if !has_room(choice)? {
        return Ok(());
    }
    let (rows, inner, width) = (20_000, 256, 64);
    let small = |table: Array2<f64>| table.map(|x| *x as f32);
    let (x, w) = (small(table(rows, inner)?), small(table(inner, width)?));
    let text = "y = x @ w; g = x.T @ x";
    let engine = builder(choice).build()?;
    let job = |precision: Precision| -> Result<Job<'_>> {
        let job = Job::eval(text)?.input("x", Input::from(x.view())).input("w", Input::from(w.view()));
        Ok(job.precision(precision))
    };
    let run = |precision: Precision| -> Outcome<(Vec<f64>, Vec<f64>, Report)> {
        let mut y = vec![0_f32; rows * width];
        let report = engine.run(job(precision)?.output("y", &mut y))?;
        Ok((y.into_iter().map(f64::from).collect(), values(&report, "g")?, report))
    };
    let wide = |table: &Array2<f32>| table.map(|x| f64::from(*x));
    let (exact, other) = (wide(&x), wide(&w));
    let products = [exact.dot(&other), exact.t().dot(&exact)];
    let sizes =
        [exact.map(|x| x.abs()).dot(&other.map(|w| w.abs())), exact.t().map(|x| x.abs()).dot(&exact.map(|x| x.abs()))];
    // The largest error, in parts of the sum of the sizes of all products.
    let error = |found: [&[f64]; 2]| {
        let all = found.into_iter().zip(&products).zip(&sizes);
        let each = all.flat_map(|((found, right), sizes)| found.iter().zip(right).zip(sizes));
        each.map(|((found, right), size)| (found - right).abs() / size).fold(0.0, f64::max)
    };
    let (y, g, full) = run(Precision::Full)?;
    check(error([&y, &g]) < 1e-5, format!("an error of {} with full precision", error([&y, &g])))?;
    // Both factors lose what is behind their first 11 bits, or 16.
    for (precision, name, most) in [(Precision::Tf32, "TF32", 2.0 / 1024.0), (Precision::Bf16x3, "BF16x3", 6e-5)] {
        let (rounded_y, rounded_g, report) = run(precision)?;
        let found = error([&rounded_y, &rounded_g]);
        check(found < most, format!("an error of {found} with {name}"))?;
        let is_cpu = report.devices.iter().all(|device| device.kind == DeviceKind::Cpu);
        let is_seen = precision != Precision::Tf32 || is_cpu == (found < 1e-5);
        check(is_seen, format!("an error of {found} with {name} on {choice}"))?;
        let is_full = [rounded_y == y, rounded_g == g];
        check(is_full == [is_cpu; 2], format!("the CPU has full precision, and others have not: {is_full:?}"))?;
        let notes = |report: &Report| -> Vec<String> {
            report.notes.iter().filter(|note| note.contains(name)).cloned().collect()
        };
        check(notes(&full).is_empty(), format!("{:?}", notes(&full)))?;
        let (told, none) = (notes(&report), format!("the CPU has no {name}"));
        let is_told = |id: &str| told.iter().any(|note| note.contains(if is_cpu { &none } else { id }));
        check(report.devices.iter().all(|device| is_told(&device.id)), format!("{told:?}"))?;
    }

    // Of parts, all have the same precision.
    let part = |precision| {
        let job = Job::eval("x.T @ x")?.input("x", Input::from(x.view())).precision(precision);
        let step = engine.part_step(&job)?.min(rows as u64);
        Ok::<_, Error>((engine.run_rows(job, 0..step)?, step))
    };
    let ((mut first, step), (second, _)) = (part(Precision::Tf32)?, part(Precision::Full)?);
    check(step == rows as u64, "one part")?;
    let error = first.merge(second).err().ok_or("parts of two precisions were merged")?.to_string();
    check(error.contains("the precision of products: tf32 here and full there"), error)?;

    // A precision is for products of f32.
    for text in ["sum(x)", "onehot(i % 3, 3).T @ x", "f64(x).T @ f64(x)"] {
        let job = Job::eval(text)?.input("x", Input::from(x.view())).precision(Precision::Tf32);
        let result = engine.plan(&job);
        let is_right =
            matches!(&result, Err(Error::InvalidJob(JobError::Precision { precision, .. })) if precision == "tf32");
        check(is_right, format!("'{text}': {result:?}"))?;
    }
    Ok(())
}

fn schedules(choice: &DeviceChoice) -> Outcome {
    if !has_room(choice)? {
        return Ok(());
    }
    for (rows, inner, width) in [(9001, 5, 3), (30_000, 3, 70), (20_000, 130, 2), (5000, 300, 300)] {
        let (x, w) = (table(rows, inner)?, table(inner, width)?);
        let run = |engine: &Engine| -> Outcome<_> {
            let mut y = vec![0.0; rows * width];
            let text = "y = sin(x) @ w; m = mean(exp(-(x @ w)), axis=0); g = x.T @ (x @ w)";
            let job = job(text, &x)?.input("w", Input::from(w.view())).output("y", &mut y);
            let report = engine.run(job)?;
            let words = |label: &str| Ok::<_, Error>(report.array(label)?.map(|array| array.bytes().to_vec()));
            Ok((words("m")?, words("g")?, y))
        };
        let right = run(&builder(choice).build()?)?;
        for (chunk, workers) in [(1, 1), (100 << 10, 3), (8 << 20, 5), (10_000, 2)] {
            let found = run(&builder(choice).chunk(chunk).workers(workers).build()?)?;
            check(found == right, format!("{rows} rows of {inner}, chunks of {chunk}, {workers} workers"))?;
        }
    }
    Ok(())
}

fn gradients(choice: &DeviceChoice) -> Outcome {
    if !has_room(choice)? {
        return Ok(());
    }
    for (rows, width) in [(1000, 3), (70_000, 17), (9000, 300)] {
        let (x, t, w) = (table(rows, width)?, Array1::from(numbers(rows, 4)), Array1::from(numbers(width, 3)));
        let text = "r = x @ w - t; g = x.T @ r; p = 1 / (1 + exp(-(x @ w))); l = x.T @ (p - t); sum(r * r)";
        let job = job(text, &x)?.input("w", Input::from(w.view())).input("t", Input::from(t.view()));
        let report = builder(choice).chunk(300 << 10).build()?.run(job)?;
        let product = x.dot(&w);
        let rest = &product - &t;
        are_near("g", &values(&report, "g")?, x.t().dot(&rest), 1e-8)?;
        let p = product.map(|x| 1.0 / (1.0 + (-x).exp()));
        are_near("l", &values(&report, "l")?, x.t().dot(&(p - &t)), 1e-8)?;
        let sum = report.value("sum(r * r)")?.map_or(f64::NAN, |sum| sum.as_f64());
        are_near("the sum of squares", &[sum], [rest.dot(&rest)], 1e-10)?;
    }
    Ok(())
}

/// What k-means computes of each row.
fn nearest(choice: &DeviceChoice) -> Outcome {
    if !has_room(choice)? {
        return Ok(());
    }
    for (rows, width, centres) in [(5000, 4, 3), (30_000, 20, 300), (3000, 300, 10)] {
        let (x, c) = (integers(rows, width)?, integers(centres, width)? * 2.0);
        let norms = c.map_axis(Axis(1), |row| row.dot(&row));
        let mut label = vec![0_i64; rows];
        let text = format!(
            "e = h - 2 * (x @ c.T); label = argmin(e, axis=1); n = bincount(label, {centres}); sum(min(e, axis=1))"
        );
        let job = job(&text, &x)?.input("c", Input::from(c.view())).input("h", Input::from(norms.view()));
        let report = builder(choice).chunk(300 << 10).build()?.run(job.output("label", &mut label))?;
        let e = &norms - &(x.dot(&c.t()) * 2.0);
        let least = |row: ndarray::ArrayView1<'_, f64>| {
            row.iter().enumerate().fold((0, f64::INFINITY), |least, (k, e)| if *e < least.1 { (k, *e) } else { least })
        };
        let right: Vec<(usize, f64)> = e.rows().into_iter().map(least).collect();
        check(right.iter().map(|(k, _)| *k as i64).eq(label.iter().copied()), "other centres")?;
        let mut counts = vec![0.0; centres];
        right.iter().for_each(|(k, _)| counts[*k] += 1.0);
        are_near("n", &values(&report, "n")?, counts, 0.0)?;
        let sum = report.value("sum(min(e, axis=1))")?.map_or(f64::NAN, |sum| sum.as_f64());
        are_near("the sum", &[sum], [right.iter().map(|(_, e)| e).sum()], 0.0)?;
    }
    Ok(())
}

/// The sums of rows by keys that are inputs, or that a product has.
fn by_key(choice: &DeviceChoice) -> Outcome {
    if !has_room(choice)? {
        return Ok(());
    }
    for (rows, inner, width) in TABLES {
        let (x, w) = (integers(rows, inner)?, integers(inner, width)?);
        // Some rows have no key.
        let key: Array1<i64> = x.column(0).iter().zip(0..).map(|(x, row)| *x as i64 + (row % 3) * 5 - 2).collect();
        let huge: Array1<u64> = key.map(|key| (*key as u64).wrapping_add((*key as u64 % 2) << 40));
        let text = format!(
            "a = onehot(key, 7).T @ x; b = onehot(huge, 9).T @ (2 * x); c = onehot(key, 3).T @ (x @ w);\
             d = onehot(argmax(x @ w, axis=1), {width}).T @ x; e = onehot(key[key > 1], 4).T @ x[key > 1]"
        );
        let job = job(&text, &x)?.input("w", Input::from(w.view())).input("key", Input::from(key.view()));
        let report = builder(choice).chunk(300 << 10).build()?.run(job.input("huge", Input::from(huge.view())))?;
        let sums = |of: &Array2<f64>, keys: &[i128], count: usize| {
            let mut sums = Array2::zeros((count, of.ncols()));
            for (row, key) in of.rows().into_iter().zip(keys) {
                if let Some(key) = usize::try_from(*key).ok().filter(|key| *key < count) {
                    sums.row_mut(key).scaled_add(1.0, &row);
                }
            }
            sums
        };
        let keys: Vec<i128> = key.iter().map(|key| i128::from(*key)).collect();
        let p = x.dot(&w);
        let most = |row: ndarray::ArrayView1<'_, f64>| {
            let later = |most: (i128, f64), (k, p): (i128, &f64)| if *p > most.1 { (k, *p) } else { most };
            (0..).zip(row).fold((0, f64::NEG_INFINITY), later).0
        };
        let of_most: Vec<i128> = p.rows().into_iter().map(most).collect();
        are_near("a", &values(&report, "a")?, sums(&x, &keys, 7), 0.0)?;
        let huge: Vec<i128> = huge.iter().map(|key| i128::from(*key)).collect();
        are_near("b", &values(&report, "b")?, sums(&(&x * 2.0), &huge, 9), 0.0)?;
        are_near("c", &values(&report, "c")?, sums(&p, &keys, 3), 0.0)?;
        are_near("d", &values(&report, "d")?, sums(&x, &of_most, width), 0.0)?;
        let own = Job::eval("f = onehot(argmin(x, axis=1), 3).T @ x")?.input("x", Input::from(x.view()));
        let of_least: Vec<i128> = x.map(|x| -x).rows().into_iter().map(most).collect();
        are_near("f", &values(&builder(choice).build()?.run(own)?, "f")?, sums(&x, &of_least, 3), 0.0)?;
        let kept: Vec<i128> = keys.iter().map(|key| if *key > 1 { *key } else { -1 }).collect();
        are_near("e", &values(&report, "e")?, sums(&x, &kept, 4), 0.0)?;
    }
    Ok(())
}

fn two_layers(choice: &DeviceChoice) -> Outcome {
    if !has_room(choice)? {
        return Ok(());
    }
    for (rows, inner, width) in TABLES {
        let (x, w, v) = (integers(rows, inner)?, integers(inner, width)?, integers(width, 6)?);
        let mut y = vec![0.0; rows * 6];
        let text = "hidden = where(x @ w > 0, x @ w, 0); y = hidden @ v - 1; m = max(y, axis=0)";
        let job = job(text, &x)?.input("w", Input::from(w.view())).input("v", Input::from(v.view()));
        let report = builder(choice).chunk(100 << 10).build()?.run(job.output("y", &mut y))?;
        let right = x.dot(&w).map(|x| x.max(0.0)).dot(&v) - 1.0;
        are_near("y", &y, right.iter().copied(), 0.0)?;
        let most = right.map_axis(Axis(0), |column| column.fold(f64::NEG_INFINITY, |most, y| most.max(*y)));
        are_near("m", &values(&report, "m")?, most, 0.0)?;
    }
    Ok(())
}

fn over_rows(choice: &DeviceChoice) -> Outcome {
    if !has_room(choice)? {
        return Ok(());
    }
    for (rows, inner, width) in TABLES {
        let (x, w) = (integers(rows, inner)?, integers(inner, width)?);
        let text = "p = x @ w; a = x.T @ x; b = (x - 1).T @ p; c = p.T @ p; d = (p + 1).T @ x";
        let report = builder(choice).chunk(100 << 10).build()?.run(job(text, &x)?.input("w", Input::from(w.view())))?;
        let p = x.dot(&w);
        are_near("a", &values(&report, "a")?, x.t().dot(&x), 0.0)?;
        are_near("b", &values(&report, "b")?, (&x - 1.0).t().dot(&p), 0.0)?;
        are_near("c", &values(&report, "c")?, p.t().dot(&p), 0.0)?;
        are_near("d", &values(&report, "d")?, (&p + 1.0).t().dot(&x), 0.0)?;
    }
    Ok(())
}

fn reductions(choice: &DeviceChoice) -> Outcome {
    if !has_room(choice)? {
        return Ok(());
    }
    for (rows, inner, width) in TABLES {
        let (x, w) = (integers(rows, inner)?, integers(inner, width)?);
        let text = "p = x @ w; sum(p); s = sum(p, axis=0); m = min(p, axis=0); max(abs(p))";
        let report = builder(choice).chunk(100 << 10).build()?.run(job(text, &x)?.input("w", Input::from(w.view())))?;
        let p = x.dot(&w);
        let value = |label: &str| -> Outcome<f64> { Ok(report.value(label)?.map_or(f64::NAN, |value| value.as_f64())) };
        are_near("the sum", &[value("sum(p)")?], [p.sum()], 0.0)?;
        are_near("the most", &[value("max(abs(p))")?], [p.iter().fold(0.0, |most: f64, p| most.max(p.abs()))], 0.0)?;
        are_near("s", &values(&report, "s")?, p.sum_axis(Axis(0)), 0.0)?;
        let least = p.map_axis(Axis(0), |column| column.fold(f64::INFINITY, |least, p| least.min(*p)));
        are_near("m", &values(&report, "m")?, least, 0.0)?;
    }
    Ok(())
}

fn kept(choice: &DeviceChoice) -> Outcome {
    if !has_room(choice)? {
        return Ok(());
    }
    let (x, w) = (integers(20_000, 5)?, integers(5, 3)?);
    let t = x.column(2).to_owned();
    let mut y = vec![0.0; 20_000 * 3];
    let job = job("y = (x @ w)[t > 0]; mean(y, axis=0)", &x)?.input("w", Input::from(w.view()));
    let job = job.input("t", Input::from(t.view())).output("y", &mut y);
    let report = builder(choice).chunk(100 << 10).build()?.run(job)?;
    let kept: Vec<usize> = (0..20_000).filter(|row| t[*row] > 0.0).collect();
    let right = x.dot(&w).select(Axis(0), &kept);
    check(report.outputs[0].rows as usize == kept.len(), "another number of rows")?;
    are_near("y", &y[..right.len()], right.iter().copied(), 0.0)?;
    are_near("the means", &values(&report, "mean(y, axis=0)")?, right.mean_axis(Axis(0)).ok_or("no rows")?, 0.0)
}

fn passes(choice: &DeviceChoice) -> Outcome {
    if !has_room(choice)? {
        return Ok(());
    }
    let (x, w) = (table(20_000, 6)?, table(6, 2)?);
    let mut y = vec![0.0; 20_000 * 2];
    let text = "u = (x - mean(x, axis=0)) / std(x, axis=0); y = u @ w; s = sum(y * y, axis=0)";
    let job = job(text, &x)?.input("w", Input::from(w.view())).output("y", &mut y);
    let report = builder(choice).chunk(64 << 10).build()?.run(job)?;
    check(report.passes.len() == 2, format!("{} passes", report.passes.len()))?;
    let mean = x.mean_axis(Axis(0)).ok_or("no rows")?;
    let centred = &x - &mean;
    let deviations = (&centred * &centred).mean_axis(Axis(0)).ok_or("no rows")?.map(|variance| variance.sqrt());
    let right = (centred / deviations).dot(&w);
    are_near("y", &y, right.iter().copied(), 1e-9)?;
    are_near("s", &values(&report, "s")?, (&right * &right).sum_axis(Axis(0)), 1e-9)
}

fn resident(choice: &DeviceChoice) -> Outcome {
    if !has_room(choice)? {
        return Ok(());
    }
    let (x, w) = (integers(30_000, 9)?, integers(9, 4)?);
    let engine = builder(choice).chunk(100 << 10).build()?;
    let stays = engine.resident(Input::from(x.view()))?;
    let mut copied = vec![];
    for _ in 0..3 {
        let mut y = vec![0.0; 30_000 * 4];
        let job = Job::eval("y = x @ w; g = x.T @ (x @ w)")?.input("x", &stays).input("w", Input::from(w.view()));
        let report = engine.run(job.output("y", &mut y))?;
        let right = x.dot(&w);
        are_near("y", &y, right.iter().copied(), 0.0)?;
        are_near("g", &values(&report, "g")?, x.t().dot(&right), 0.0)?;
        copied.push(report.bytes_to_device);
    }
    // All rows are of one tile of products, so that one device keeps its share of them.
    let has_gpu = engine.devices().iter().any(|device| device.kind != DeviceKind::Cpu);
    check(!has_gpu || copied[1] == copied[2] && copied[1] < copied[0], format!("{copied:?} bytes"))
}

fn large_chunks(choice: &DeviceChoice) -> Outcome {
    if !has_room(choice)? {
        return Ok(());
    }
    let (x, w) = (integers(800_000, 3)?, integers(3, 4)?);
    let engine = builder(choice).chunk(64 << 10).build()?;
    let right = x.dot(&w);
    let best = right.rows().into_iter().map(|row| row.iter().copied().fold(f64::MIN, f64::max));
    let best: f64 = best.sum();
    for text in ["s = sum(max(x @ w, axis=1)); g = x.T @ (x @ w)", "s = sum(max(x @ w, axis=1))"] {
        let stays = engine.resident(Input::from(x.view()))?;
        let (mut chunks, mut copied) = (vec![], vec![]);
        for _ in 0..3 {
            let report = engine.run(Job::eval(text)?.input("x", &stays).input("w", Input::from(w.view())))?;
            are_near("s", &[report.value("s")?.ok_or("no sum")?.as_f64()], [best], 0.0)?;
            if text.contains('g') {
                are_near("g", &values(&report, "g")?, x.t().dot(&right), 0.0)?;
            }
            chunks.push(report.chunks);
            copied.push(report.bytes_to_device);
        }
        // The table has twelve tiles of products: too few for more devices to have whole ones.
        let gpus = engine.devices().iter().filter(|device| device.kind != DeviceKind::Cpu).count();
        let are_copied = gpus == 0 || gpus > 3 && text.contains('g');
        check(are_copied || 2 * chunks[1] < chunks[0], format!("'{text}': {chunks:?} chunks"))?;
        check(are_copied || copied[1..] == [0, 0], format!("'{text}': {copied:?} bytes"))?;
    }
    Ok(())
}

fn parts(choice: &DeviceChoice) -> Outcome {
    if !has_room(choice)? {
        return Ok(());
    }
    for text in ["m = mean(x @ w, axis=0)", "m = x.T @ (x @ w)"] {
        let (x, w) = (table(150_000, 3)?, table(3, 5)?);
        let engine = builder(choice).chunk(100 << 10).build()?;
        let whole = || -> Result<Job<'_>> { Ok(job(text, &x)?.input("w", Input::from(w.view()))) };
        let right = engine.run(whole()?)?.array("m")?.map(|array| array.bytes().to_vec());
        let step = engine.part_step(&whole()?)?;
        let mut all: Option<Partial> = None;
        for rows in [step..2 * step, 0..step, 2 * step..150_000] {
            let part = engine.run_rows(whole()?, rows)?;
            match &mut all {
                Some(all) => all.merge(part)?,
                None => all = Some(part),
            }
        }
        let merged = all.ok_or("no parts")?.finish()?;
        check(merged.array("m")?.map(|array| array.bytes().to_vec()) == right, format!("'{text}' in parts"))?;
    }
    Ok(())
}

fn edges(choice: &DeviceChoice) -> Outcome {
    if !has_room(choice)? {
        return Ok(());
    }
    let w = integers(3, 2)?;
    for rows in [0, 1, 255, 256, 257, 4096, 4097] {
        let x = integers(rows, 3)?;
        let mut y = vec![0.0; rows * 2];
        let job = job("y = x @ w; g = (x @ w).T @ x", &x)?.input("w", Input::from(w.view()));
        let report = builder(choice).build()?.run(job.output("y", &mut y))?;
        are_near("y", &y, x.dot(&w), 0.0)?;
        are_near("g", &values(&report, "g")?, x.dot(&w).t().dot(&x), 0.0)?;
    }
    Ok(())
}

fn limits(choice: &DeviceChoice) -> Outcome {
    if !has_room(choice)? {
        return Ok(());
    }
    let (x, w) = (integers(20_000, 100)?, integers(100, 30)?);
    for text in ["m = max(x @ w, axis=0)", "m = x.T @ (x @ w)"] {
        let whole = || -> Result<Job<'_>> { Ok(job(text, &x)?.input("w", Input::from(w.view()))) };
        let run = |bytes: u64| engine(choice).device_memory(bytes).build()?.run(whole()?);
        if builder(choice).build()?.plan(&whole()?)?.devices.iter().all(|device| device.kind == DeviceKind::Cpu) {
            return Ok(());
        }
        let Err(Error::Budget { needed, .. }) = run(1 << 20) else { return Err("one MiB was enough".into()) };
        check(needed > 1 << 20, format!("{needed} bytes are needed"))?;
        check(matches!(run(needed - 1), Err(Error::Budget { .. })), "less was enough")?;
        let (few, many) = (run(needed)?, run(1 << 30)?);
        check(values(&few, "m")? == values(&many, "m")?, format!("'{text}' with little memory"))?;
    }
    Ok(())
}

fn refused(choice: &DeviceChoice) -> Outcome {
    let (x, w, t) = (integers(100, 3)?, integers(3, 2)?, Array1::from(numbers(100, 1)));
    let small = w.map(|w| *w as f32);
    let mut y = vec![0.0; 200];
    let mut message = |text: &str| -> Outcome<String> {
        let expression: overshot::Expression = text.parse()?;
        let mut job = Job::eval(text)?;
        for name in expression.inputs() {
            job = match name {
                "x" => job.input("x", Input::from(x.view())),
                "w" => job.input("w", Input::from(w.view())),
                "t" => job.input("t", Input::from(t.view())),
                "f" => job.input("f", Input::from(small.view())),
                _ => job.scalar(name, 2.0),
            };
        }
        if text.contains("y =") {
            job = job.output("y", &mut y);
        }
        match engine(choice).build()?.plan(&job) {
            Ok(_) => Err(format!("'{text}' was not refused").into()),
            Err(error) => Ok(error.to_string()),
        }
    };
    for (text, part) in [
        ("y = x @ w.T", "'w' has the shape (3, 2), which does not fit: rows of 3 elements"),
        ("y = x @ f", "what is multiplied is f64 and 'f' is f32"),
        ("sum(x @ x)", "'x' is a matrix that rows are multiplied by, and its own rows are read, too"),
        ("y = t @ w", "what is multiplied has the shape (100,), which does not fit"),
        ("sum(a @ w)", "'a' has the shape (), which does not fit"),
        ("sum(i64(x) @ w)", "what is multiplied is i64"),
        ("y = x[t > 0] @ w", "filter the product"),
        ("y = shift(x, 1, edge) @ w", "other rows are not read beside a product with a matrix"),
        ("u = x @ w; sum(x)", "`u` is assigned but not used"),
        ("y = x @ w + x", "do not broadcast one to the other"),
    ] {
        let message = message(text)?;
        check(message.contains(part), format!("'{text}': {message}"))?;
    }
    for text in ["y = x @ (2 * w)", "u = w + 1; y = x @ u", "m = mean(x, axis=0); y = x @ m", "y = x @ w[0]"] {
        let refused = Job::eval(text).err().ok_or(format!("'{text}' was not refused"))?;
        check(refused.to_string().contains("array of the job") || text.contains('['), format!("'{text}': {refused}"))?;
    }
    Ok(())
}
