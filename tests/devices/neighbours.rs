//! Values of neighbouring rows: those of a naive twin, on every device, for every schedule, wherever rows lie.

use std::iter::repeat_n;

use ndarray::Array2;
use overshot::device::{Emulated, Fault, FaultAt};
use overshot::{DeviceChoice, Engine, Error, Input, Job, Npy, Report, Result, Source};

use crate::harness::{Case, EmulatedCase, Module, NO_CASES, Outcome, check, cpu, engine, numbers};
use crate::rows::{Watched, bits};

pub const MODULE: Module =
    Module { name: "neighbours", cases: CASES, emulated: EMULATED, counts_memory: true, ..NO_CASES };

const CASES: &[(&str, Case)] = &[
    ("random stencils have the bits of a naive twin, for all schedules", stencils),
    ("rows of several elements move along the first axis", wide),
    ("few rows, and none", edges),
    ("kept rows, reductions and passes", reduced),
    ("files, with a halo at each chunk", files),
    ("rows that stay on devices, and pinned rows", in_place),
    ("halos are few bytes more", bytes),
    ("parts read neighbours of other parts", parts),
    ("a plan reads no rows, and a run those of the ends", ends),
    ("what is refused names the remedy", refused),
];

const EMULATED: &[(&str, EmulatedCase)] = &[("a lost device", losses)];

/// Numbers that look random and are the same every time.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// A text with the values that it has.
struct Twin {
    text: String,
    values: Vec<f64>,
}

#[derive(Clone, Copy)]
enum Border {
    Edge,
    Wrap,
    Number(f64),
}

impl Border {
    fn random(random: &mut Random) -> (Border, &'static str) {
        match random.below(5) {
            0 | 1 => (Border::Edge, "edge"),
            2 => (Border::Wrap, "wrap"),
            3 => (Border::Number(f64::NAN), "nan"),
            _ => (Border::Number(-2.5), "-2.5"),
        }
    }

    fn shift(self, x: &[f64], by: i64) -> Vec<f64> {
        let rows = x.len() as i64;
        let value = |row: i64| match self {
            Border::Edge => x[(row - by).clamp(0, rows - 1) as usize],
            Border::Wrap => x[(row - by).rem_euclid(rows) as usize],
            Border::Number(number) => usize::try_from(row - by).ok().and_then(|row| x.get(row)).map_or(number, |x| *x),
        };
        (0..rows).map(value).collect()
    }
}

impl Twin {
    fn of(text: &str, values: &[f64]) -> Twin {
        Twin { text: text.into(), values: values.to_vec() }
    }

    fn random(random: &mut Random, inputs: &[Twin], depth: u64) -> Twin {
        let input = |random: &mut Random| {
            let Twin { text, values } = &inputs[random.below(inputs.len() as u64) as usize];
            Twin::of(text, values)
        };
        if depth == 0 {
            return input(random);
        }
        let one = Twin::random(random, inputs, depth - 1);
        let (border, name) = Border::random(random);
        match random.below(6) {
            0 | 1 => {
                let by = [1, -1, 2, -3, 17, -40, 1000, -4100, 5000][random.below(9) as usize];
                Twin { text: format!("shift({}, {by}, {name})", one.text), values: border.shift(&one.values, by) }
            }
            2 => {
                let before = border.shift(&one.values, 1);
                let values = one.values.iter().zip(before).map(|(one, before)| one - before).collect();
                Twin { text: format!("diff({}, {name})", one.text), values }
            }
            3 => {
                let rows = [1, 2, 3, 5, 20][random.below(5) as usize];
                let (function, combine): (&str, fn(f64, f64) -> f64) = match random.below(4) {
                    0 => ("moving_sum", |a, b| a + b),
                    1 => ("moving_mean", |a, b| a + b),
                    2 => ("moving_min", |a, b| if a.is_nan() || a < b { a } else { b }),
                    _ => ("moving_max", |a, b| if a.is_nan() || a > b { a } else { b }),
                };
                let terms = (0..rows).rev().map(|by| border.shift(&one.values, by));
                let all = terms.reduce(|all, one| all.iter().zip(one).map(|(a, b)| combine(*a, b)).collect());
                let divisor = if function == "moving_mean" { rows as f64 } else { 1.0 };
                let values = all.unwrap_or_default().iter().map(|all| all / divisor).collect();
                Twin { text: format!("{function}({}, {rows}, {name})", one.text), values }
            }
            _ => {
                let other = Twin::random(random, inputs, depth - 1);
                let values = one.values.iter().zip(&other.values).map(|(a, b)| a - b * 0.5).collect();
                Twin { text: format!("({} - {} * 0.5)", one.text, other.text), values }
            }
        }
    }
}

fn same(found: &[f64], expected: &[f64]) -> bool {
    found.len() == expected.len() && found.iter().zip(expected).all(|(a, b)| a == b || (a.is_nan() && b.is_nan()))
}

/// Returns the inputs `a` and `b` and the row number, with the values of each.
fn inputs(a: &[f64], b: &[f64]) -> [Twin; 3] {
    let index: Vec<f64> = (0..a.len()).map(|row| row as f64).collect();
    [Twin::of("a", a), Twin::of("b", b), Twin::of("f64(i)", &index)]
}

fn run<'a>(
    engine: &Engine,
    text: &str,
    [a, b]: [Input<'a>; 2],
    rows: usize,
    verify: f64,
) -> Outcome<(Vec<f64>, Report)> {
    let mut y = vec![0.0; rows];
    let job = Job::eval(&format!("y = {text} + a * 0 + b * 0; sum(y), argmax(y)"))?;
    let report = engine.run(job.input("a", a).input("b", b).output("y", &mut y).verify(verify))?;
    Ok((y, report))
}

fn stencils(choice: &DeviceChoice) -> Outcome {
    let mut random = Random(1);
    for number in 0..200 {
        let rows = [3, 700, 4096, 4097, 9000, 20_000][random.below(6) as usize];
        let (a, b) = (numbers(rows, number), numbers(rows, number + 1000));
        let twin = Twin::random(&mut random, &inputs(&a, &b), 1 + number % 3);
        let of = || [Input::from(&a), Input::from(&b)];
        let right = run(&cpu(), &twin.text, of(), rows, 0.0)?;
        check(same(&right.0, &twin.values), format!("{} on the CPU", twin.text))?;
        let choice = match choice {
            DeviceChoice::Emulated(_) => format!("emulated:{number}").parse()?,
            choice => choice.clone(),
        };
        for (chunk, workers) in [(1, 3), (200 << 10, 1)] {
            let engine = engine(&choice).chunk(chunk).workers(workers).build()?;
            let (y, report) = run(&engine, &twin.text, of(), rows, 0.3)?;
            check(same(&y, &twin.values), format!("{}, {rows} rows, chunks of {chunk}", twin.text))?;
            check(bits(&report) == bits(&right.1), format!("{}: other results", twin.text))?;
        }
    }
    Ok(())
}

fn wide(choice: &DeviceChoice) -> Outcome {
    for (rows, width) in [(2, 5), (300, 3), (3000, 7), (90, 300)] {
        let x = Array2::from_shape_vec((rows, width), numbers(rows * width, 4))?;
        let w = Array2::from_shape_vec((rows, 1), numbers(rows, 5))?;
        let m = numbers(width, 6);
        let text = "y = shift(x * w - m, 2, wrap) + shift(x, -1, 0) + shift(m, 1, 0.5); p = diff(w, edge) + f64(i)";
        let (mut y, mut p) = (vec![0.0; rows * width], vec![0.0; rows]);
        let job = Job::eval(text)?.input("x", Input::from(x.view())).input("w", Input::from(w.view())).input("m", &m);
        let engine = engine(choice).chunk(20 << 10).build()?;
        engine.run(job.output("y", &mut y).output("p", &mut p).verify(1.0))?;
        for row in 0..rows {
            for column in 0..width {
                let there = (row + 2 * rows - 2) % rows;
                let first = x[[there, column]] * w[[there, 0]] - m[column];
                let next = if row + 1 < rows { x[[row + 1, column]] } else { 0.0 };
                let of_m = if row > 0 { m[column] } else { 0.5 };
                let found = y[row * width + column];
                check(found == first + next + of_m, format!("{rows} rows of {width}: row {row}, column {column}"))?;
            }
            let before = w[[row.saturating_sub(1), 0]];
            check(p[row] == w[[row, 0]] - before + row as f64, format!("{rows} rows of {width}: row {row}"))?;
        }
    }
    // Without another shape, a row is a slice along the first axis, too.
    let x = Array2::from_shape_vec((50, 4), numbers(200, 7))?;
    let mut y = vec![0.0; 200];
    let job = Job::eval("y = shift(x, 1, edge)")?.input("x", Input::from(x.view())).output("y", &mut y);
    engine(choice).build()?.run(job)?;
    check((0..200).all(|at| y[at] == x[[(at / 4).saturating_sub(1), at % 4]]), "a table moved along another axis")
}

fn edges(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice).build()?;
    for rows in [0, 1, 2] {
        let x = numbers(rows, 3);
        for (border, rule) in [("edge", Border::Edge), ("wrap", Border::Wrap), ("7", Border::Number(7.0))] {
            for by in [0, 1, -1, 3, -65_536] {
                let mut y = vec![0.0; rows];
                let job = Job::eval(&format!("y = shift(x, {by}, {border})"))?.input("x", &x).output("y", &mut y);
                engine.run(job)?;
                check(y == rule.shift(&x, by), format!("{rows} rows, {by}, {border}"))?;
            }
        }
    }
    // Bools of any byte, and integers, which keep their dtype.
    let x: Vec<u8> = vec![0, 2, 0, 255, 1];
    let mut y = vec![9u8; 5];
    engine.run(Job::eval("y = shift(x, 1, 3)")?.input("x", &x).output("y", &mut y))?;
    check(y == [3, 0, 2, 0, 255], format!("{y:?}"))?;
    let mut y = vec![0i64; 5];
    engine.run(Job::eval("y = moving_sum(x > 0, 2, 0)")?.input("x", &x).output("y", &mut y))?;
    check(y == [0, 1, 1, 1, 2], format!("{y:?}"))
}

fn reduced(choice: &DeviceChoice) -> Outcome {
    let x = numbers(50_000, 8);
    let engine = engine(choice).chunk(40 << 10).build()?;
    let mut y = vec![0.0; x.len()];
    let job = Job::eval("y = x[x > shift(x, 1, edge)]; mean(y), sum(diff(x, 0))")?.input("x", &x);
    let report = engine.run(job.output("y", &mut y).verify(1.0))?;
    let kept: Vec<f64> = x.windows(2).filter(|pair| pair[1] > pair[0]).map(|pair| pair[1]).collect();
    check(report.outputs[0].rows == kept.len() as u64 && y[..kept.len()] == kept, "other rows were kept")?;
    // The difference of passes: a result of the first is in the second.
    let mut y = vec![0.0; x.len()];
    let report =
        engine.run(Job::eval("m = mean(x); y = shift(x - m, 1, edge) * 2")?.input("x", &x).output("y", &mut y))?;
    let mean = report.value("m")?.map_or(f64::NAN, |mean| mean.as_f64());
    let expected: Vec<f64> = Border::Edge.shift(&x, 1).iter().map(|x| (x - mean) * 2.0).collect();
    check(report.passes.len() == 2 && y == expected, "another second pass")?;
    // The first pass reads neighbours, too, so nothing stays on a device.
    let report =
        engine.run(Job::eval("m = mean(diff(x, edge)); y = diff(x, edge) - m")?.input("x", &x).output("y", &mut y))?;
    let mean = report.value("m")?.map_or(f64::NAN, |mean| mean.as_f64());
    let before = Border::Edge.shift(&x, 1);
    check(x.iter().zip(before).zip(&y).all(|((x, before), y)| *y == x - before - mean), "other differences")?;
    // Random numbers are those of the row that is read.
    let mut y = [vec![0.0; 9000], vec![0.0; 9000]];
    let [one, other] = &mut y;
    engine
        .run(Job::eval("y = shift(rand(3), 1, wrap); z = rand(3)")?.rows(9000).output("y", one).output("z", other))?;
    check(y[0] == Border::Wrap.shift(&y[1], 1), "other random numbers")
}

fn files(choice: &DeviceChoice) -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name);
    let x = numbers(60_000, 9);
    cpu().run(Job::eval("y = x")?.input("x", &x).output("y", Npy::create(path("x.npy"))))?;
    let text = "y = moving_mean(x, 9, edge) + shift(x, -70, wrap) + shift(x, 5000, 0)";
    let engine = engine(choice).chunk(64 << 10).build()?;
    let job = Job::eval(text)?.input("x", Npy::open(path("x.npy"))?).output("y", Npy::create(path("y.npy")));
    engine.run(job.verify(0.5).checksum(true))?;
    let mut found = vec![0.0; x.len()];
    Npy::open(path("y.npy"))?.read(0, bytemuck::cast_slice_mut(&mut found))?;
    let mut right = vec![0.0; x.len()];
    cpu().run(Job::eval(text)?.input("x", &x).output("y", &mut right))?;
    check(found == right, "other rows in the file")
}

const STENCIL: &str = "shift(a, 1, edge) + shift(b, -2, wrap) * moving_sum(a, 7, 0)";

/// The values of [`STENCIL`].
fn of_stencil(a: &[f64], b: &[f64]) -> Vec<f64> {
    let terms = (0..7).rev().map(|by| Border::Number(0.0).shift(a, by));
    let sums: Vec<f64> = terms.reduce(|all, one| all.iter().zip(one).map(|(a, b)| a + b).collect()).unwrap_or_default();
    let (a, b) = (Border::Edge.shift(a, 1), Border::Wrap.shift(b, -2));
    a.iter().zip(b).zip(sums).map(|((a, b), sum)| a + b * sum).collect()
}

fn in_place(choice: &DeviceChoice) -> Outcome {
    let rows = 300_007;
    let (a, b) = (numbers(rows, 10), numbers(rows, 11));
    let expected = of_stencil(&a, &b);
    let engine = engine(choice).chunk(128 << 10).build()?;
    let is_right = |what: &str, (y, report): (Vec<f64>, Report)| -> Outcome<Report> {
        check(same(&y, &expected), format!("{what}: other rows\n{report}"))?;
        Ok(report)
    };
    // Rows of sharded arrays lie on the devices, whose borders are within.
    let (shard_a, shard_b) = (engine.shard(&a)?, engine.shard(&b)?);
    for verify in [0.0, 1.0] {
        is_right("sharded", run(&engine, STENCIL, [(&shard_a).into(), (&shard_b).into()], rows, verify)?)?;
        is_right("one sharded", run(&engine, STENCIL, [(&a).into(), (&shard_b).into()], rows, verify)?)?;
    }
    // A dataset that is not there yet is not filled by a job with neighbours, but by another one.
    let resident = engine.resident(&a)?;
    let first = is_right("not yet resident", run(&engine, STENCIL, [(&resident).into(), (&b).into()], rows, 0.0)?)?;
    let is_noted = |report: &Report| report.notes.iter().any(|note| note.contains("reads neighbours"));
    let stays = !matches!(choice, DeviceChoice::Cpu) && first.devices.iter().any(|device| device.id != "cpu");
    check(is_noted(&first) == (stays && !resident.on_devices().is_empty()), format!("{:?}", first.notes))?;
    engine.run(Job::eval("sum(a)")?.input("a", &resident))?;
    let second = is_right("resident", run(&engine, STENCIL, [(&resident).into(), (&b).into()], rows, 1.0)?)?;
    check(!is_noted(&second), format!("{:?}", second.notes))?;
    let mut pinned = [engine.pinned::<f64>(rows)?, engine.pinned::<f64>(rows)?];
    pinned[0].copy_from_slice(&a);
    pinned[1].copy_from_slice(&b);
    is_right("pinned", run(&engine, STENCIL, [(&pinned[0]).into(), (&pinned[1]).into()], rows, 0.5)?)?;
    Ok(())
}

fn bytes(choice: &DeviceChoice) -> Outcome {
    let rows = 1 << 20;
    let (a, b) = (numbers(rows, 12), numbers(rows, 13));
    let report = run(&engine(choice).chunk(1 << 20).build()?, STENCIL, [(&a).into(), (&b).into()], rows, 0.0)?.1;
    let least = 16 * report.devices.iter().filter(|device| device.id != "cpu").map(|device| device.rows).sum::<u64>();
    let moved = report.bytes_to_device;
    check(least <= moved && moved as f64 <= 1.01 * least as f64, format!("{moved} bytes for {least}"))
}

fn parts(choice: &DeviceChoice) -> Outcome {
    let folder = tempfile::tempdir()?;
    let rows = 50_000_usize;
    let (a, b) = (numbers(rows, 14), numbers(rows, 15));
    let text = format!("y = {STENCIL}; sum(y)");
    let path = folder.path().join("y.npy");
    let job =
        || -> Result<Job<'_>> { Ok(Job::eval(&text)?.input("a", &a).input("b", &b).output("y", Npy::create(&path))) };
    let engine = engine(choice).chunk(64 << 10).build()?;
    let step = engine.part_step(&job()?)?;
    let cut = 5 * step;
    let partials = [cut..rows as u64, 0..cut].map(|range| engine.run_rows(job()?, range));
    let [one, other] = partials;
    let mut all = one?;
    all.merge(other?)?;
    let merged = all.finish()?;
    let mut right = vec![0.0; rows];
    let whole = cpu().run(Job::eval(&text)?.input("a", &a).input("b", &b).output("y", &mut right))?;
    let mut found = vec![0.0; rows];
    Npy::open(&path)?.read(0, bytemuck::cast_slice_mut(&mut found))?;
    check(same(&found, &of_stencil(&a, &b)) && found == right, "parts wrote other rows")?;
    check(bits(&merged) == bits(&whole), "parts have another sum")
}

fn losses() -> Outcome {
    let rows = 80_000;
    let (a, b) = (numbers(rows, 16), numbers(rows, 17));
    let expected = of_stencil(&a, &b);
    for (at, nth) in [(FaultAt::CopyIn, 3), (FaultAt::Kernel, 2), (FaultAt::CopyOut, 4)] {
        let choice = DeviceChoice::Emulated(vec![Emulated::new().fault(Fault::new(at, nth)), Emulated::new().seed(1)]);
        let engine = Engine::builder().device(choice).chunk(64 << 10).build()?;
        let (y, report) = run(&engine, STENCIL, [(&a).into(), (&b).into()], rows, 0.0)?;
        check(same(&y, &expected), format!("other rows without a lost device\n{report}"))?;
    }
    Ok(())
}

fn ends(choice: &DeviceChoice) -> Outcome {
    let rows = 20_000;
    let x = numbers(rows, 19);
    let watched = Watched::new(&x);
    let mut y = vec![0.0; rows];
    let engine = engine(choice).chunk(64 << 10).build()?;
    let text = "m = mean(x); y = shift(x, 100, wrap) + shift(x - m, -9, wrap)";
    let job = Job::eval(text)?.input("x", &watched).output("y", &mut y);
    let _ = engine.plan(&job)?;
    check(watched.total() == 0, format!("the plan read {} rows", watched.total()))?;
    let report = engine.run(job)?;
    let mean = report.value("m")?.map_or(f64::NAN, |mean| mean.as_f64());
    let expected = |row: usize| x[(row + rows - 100) % rows] + (x[(row + 9) % rows] - mean);
    check((0..rows).all(|row| y[row] == expected(row)), "other rows around the ends")?;
    // They are read before the first chunk, and the run fails if they cannot be.
    watched.fails_beyond(0);
    let mut y = vec![0.0; rows];
    let failed = engine.run(Job::eval("y = shift(x, 100, wrap)")?.input("x", &watched).output("y", &mut y));
    check(matches!(&failed, Err(error) if !matches!(error, Error::Chunk { .. })), format!("ends: {failed:?}"))
}

fn refused(choice: &DeviceChoice) -> Outcome {
    let (x, n) = (numbers(10, 18), repeat_n(1_i32, 10).collect::<Vec<_>>());
    let engine = engine(choice).build()?;
    for (text, reason) in [
        ("y = shift(x, 1) + n", "needs a rule for what is beyond the first and the last row: write `edge`"),
        ("y = shift(x, 1, mirror)", "the rule for the border of `shift` is `edge`, `wrap`, `nan` or a number"),
        ("y = shift(x, 0.5, edge)", "the rows of a shift are an integer from -65536 to 65536"),
        ("y = shift(x, n, edge)", "the rows of a shift are an integer"),
        ("y = moving_sum(x, 0, edge)", "the rows of a window are an integer from 1 to"),
        ("y = shift(n, 1, nan) + x", "i32 has no NaN; write another border, or convert first, like f64(x)"),
        ("y = shift(n, 1, 3000000000) + x", "does not fit in i32"),
        ("y = shift(x[x > 0], 1, edge)", "the neighbours of kept rows are not known"),
        ("m = mean(x); y = shift(m, 1, edge) + x", "a result of all rows"),
        ("y = shift(2, 1, edge) + x", "one number for all of them"),
        ("y = shift(shift(x, 65536, edge), 1, edge)", "shifts of shifts reach over 65537 rows"),
    ] {
        let mut y = vec![0.0; 10];
        let job = Job::eval(text).and_then(|job| {
            let job = if text.contains("(n") { job.input("n", &n) } else { job };
            engine.run(job.input("x", &x).output("y", &mut y))
        });
        let error = job.err().map(|error| error.to_string()).unwrap_or_default();
        check(error.contains(reason), format!("{text}: {error}"))?;
    }
    Ok(())
}
