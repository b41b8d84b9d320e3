//! Rows times matrices, of tables that are larger than device memory, from ordinary memory and from pinned memory.
//!
//! `cargo bench --bench matrices -- --device cuda,cpu --size 4GiB --device-memory 1GiB --centres 2048,256`. Each figure
//! is the median of several runs, in GB/s of rows, and every result is compared with plain loops over a few rows or
//! elements. `--precision full,bf16x3,tf32` measures the steps of k-means on tensor cores, too. `sum(x)` of the same
//! table and the link, as `overshot bench --limits` measured it, are there to compare with.

use std::error::Error;
use std::fs::File;
use std::path::PathBuf;

use bytemuck::Pod;
use bytesize::ByteSize;
use ndarray::ArrayView2;
use overshot::io::Element;
use overshot::limits::{MachineLimits, RateBySize};
use overshot::{DeviceChoice, Engine, Input, Job, Precision, Report};
use rayon::prelude::*;
use serde_json::json;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Makes a table an input.
type AsInput<T> = for<'a> fn(ArrayView2<'a, T>) -> Input<'a>;

/// Columns of the output of [`Task::Scores`].
const SCORES: usize = 16;
/// The rows of a table repeat after so many, so that plain loops over these are enough. It is a prime number: rows at
/// a wrong place are other ones.
const PERIOD: usize = 509;

struct Settings {
    devices: Vec<DeviceChoice>,
    size: u64,
    device_memory: u64,
    runs: usize,
    /// The centres of [`Task::Nearest`] for `f32` and for `f64`.
    centres: Vec<usize>,
    /// How [`Task::Nearest`] and [`Task::Step`] multiply `f32`.
    precisions: Vec<Precision>,
    chunk: Option<u64>,
    workers: Option<usize>,
    /// Measures these tasks alone.
    only: Option<String>,
    /// Where to write a timeline of one more run.
    trace: Option<PathBuf>,
}

fn main() -> Outcome {
    let mut settings = Settings {
        devices: vec![DeviceChoice::Auto],
        size: 16 << 20,
        device_memory: 1 << 30,
        runs: 3,
        centres: vec![32, 16],
        precisions: vec![Precision::Full],
        chunk: None,
        workers: None,
        only: None,
        trace: None,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{name} needs a value"));
        match name.as_str() {
            "--device" => {
                settings.devices = value()?.split(',').map(str::parse).collect::<Result<_, _>>()?;
            }
            "--size" => settings.size = value()?.parse::<ByteSize>()?.as_u64(),
            "--device-memory" => settings.device_memory = value()?.parse::<ByteSize>()?.as_u64(),
            "--runs" => settings.runs = value()?.parse::<usize>()?.max(1),
            "--centres" => settings.centres = value()?.split(',').map(str::parse).collect::<Result<_, _>>()?,
            "--precision" => settings.precisions = value()?.split(',').map(str::parse).collect::<Result<_, _>>()?,
            "--chunk" => settings.chunk = Some(value()?.parse::<ByteSize>()?.as_u64()),
            "--workers" => settings.workers = Some(value()?.parse()?),
            "--only" => settings.only = Some(value()?),
            "--trace" => settings.trace = Some(value()?.into()),
            // `cargo bench` and `cargo test` pass these.
            "--bench" | "--test" => {}
            other => return Err(format!("unknown argument {other}").into()),
        }
    }
    let [of_f32, of_f64] = settings.centres[..] else { return Err("--centres needs two numbers".into()) };
    let single = Kind { dtype: "f32", centres: of_f32, of: |number| number as f32, input: |table| table.into() };
    measure(&settings, &single)?;
    measure(&settings, &Kind::<f64> { dtype: "f64", centres: of_f64, of: |number| number, input: |table| table.into() })
}

/// What tables of one dtype have in common.
struct Kind<T> {
    dtype: &'static str,
    centres: usize,
    of: fn(f64) -> T,
    input: AsInput<T>,
}

/// What is computed of each row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Task {
    /// A few products of each row, in an array.
    Scores,
    /// The nearest centre of each row, without an output.
    Nearest,
    /// The same, and the sums of the rows of each centre: a step of k-means.
    Step,
    /// The gradient of a linear regression.
    Gradient,
    /// What a step of Newton's method for a logistic regression needs.
    Newton,
    /// No product: what the others can be compared with.
    Sum,
}

impl Task {
    const ALL: [(usize, &[Task]); 2] = [
        (1024, &[Task::Sum, Task::Scores, Task::Nearest, Task::Step, Task::Gradient]),
        (256, &[Task::Sum, Task::Newton]),
    ];

    fn name(self) -> &'static str {
        match self {
            Task::Scores => "scores",
            Task::Nearest => "nearest",
            Task::Step => "step",
            Task::Gradient => "gradient",
            Task::Newton => "newton",
            Task::Sum => "sum",
        }
    }

    fn text(self, centres: usize) -> String {
        match self {
            Task::Scores => "y = x @ w".into(),
            Task::Nearest => format!(
                "e = h - 2 * (x @ c.T); l = argmin(e, axis=1); n = bincount(l, {centres}); s = sum(min(e, axis=1))"
            ),
            Task::Step => {
                format!("{}; of_each = onehot(l, {centres}).T @ f64(x)", Task::Nearest.text(centres))
            }
            Task::Gradient => "g = x.T @ (x @ w - t)".into(),
            Task::Newton => {
                "p = 1 / (1 + exp(-(x @ w))); s = x * sqrt(p * (1 - p)); h = s.T @ s; g = x.T @ (p - t)".into()
            }
            Task::Sum => "s = sum(x)".into(),
        }
    }
}

/// A number between 0 and 1, which depends on its place alone.
fn number(place: usize) -> f64 {
    let mixed = (place as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((mixed ^ (mixed >> 32)) >> 11) as f64 / (1_u64 << 53) as f64
}

/// The rows that a table repeats, and what they are multiplied by.
struct Model<T> {
    width: usize,
    x: Vec<T>,
    /// A number for each row.
    t: Vec<T>,
    /// A matrix of [`SCORES`] columns, and one of one column.
    w: Vec<T>,
    v: Vec<T>,
    centres: Vec<T>,
    /// The squares of the centres.
    h: Vec<T>,
}

impl<T: Copy + Into<f64>> Model<T> {
    fn new(kind: &Kind<T>, width: usize) -> Model<T> {
        let numbers = |count: usize, factor: f64, seed: usize| -> Vec<T> {
            (0..count).map(|k| (kind.of)(factor * number(k + (seed << 32)))).collect()
        };
        let centres = numbers(kind.centres * width, 1.0, 4);
        let square = |row: &[T]| (kind.of)(row.iter().map(|&x| x.into() * x.into()).sum());
        Model {
            width,
            x: numbers(PERIOD * width, 1.0, 0),
            t: numbers(PERIOD, 0.25, 1),
            w: numbers(width * SCORES, 1.0, 2),
            v: numbers(width, 2.0 / width as f64, 3),
            h: centres.chunks(width).map(square).collect(),
            centres,
        }
    }

    /// The products of a row with each column of a matrix with so many columns.
    fn products(&self, row: usize, matrix: &[T], columns: usize) -> Vec<f64> {
        let own = &self.x[row * self.width..][..self.width];
        let product = |column: usize| own.iter().zip(matrix[column..].iter().step_by(columns)).map(product).sum();
        (0..columns).map(product).collect()
    }

    /// The two least of what [`Task::Nearest`] compares in a row, and the centre of the least.
    fn nearest(&self, row: usize) -> (usize, [f64; 2]) {
        let own = &self.x[row * self.width..][..self.width];
        let (mut nearest, mut least) = (0, [f64::INFINITY; 2]);
        for (k, (centre, h)) in self.centres.chunks(self.width).zip(&self.h).enumerate() {
            let e = (*h).into() - 2.0 * own.iter().zip(centre).map(product).sum::<f64>();
            if e < least[0] {
                (nearest, least) = (k, [e, least[0]]);
            } else {
                least[1] = least[1].min(e);
            }
        }
        (nearest, least)
    }
}

fn product<T: Copy + Into<f64>>((a, b): (&T, &T)) -> f64 {
    (*a).into() * (*b).into()
}

/// Measures tables of this dtype.
fn measure<T: Pod + Element + Into<f64> + Send + Sync>(settings: &Settings, kind: &Kind<T>) -> Outcome {
    let elements = settings.size as usize / size_of::<T>();
    let [most_rows, outputs] = [elements / 256, elements / 1024 * SCORES];
    let new = |count: usize| vec![(kind.of)(0.0); count];
    let (mut x, mut t, mut y) = (new(elements), new(most_rows), new(outputs));
    for device in &settings.devices {
        let mut builder = Engine::builder().device(device.clone()).device_memory(settings.device_memory);
        if let Some(chunk) = settings.chunk {
            builder = builder.chunk(chunk);
        }
        if let Some(workers) = settings.workers {
            builder = builder.workers(workers);
        }
        let engine = builder.build()?;
        let is_cpu = *device == DeviceChoice::Cpu;
        let mut pinned = match is_cpu {
            true => None,
            false => Some((engine.pinned(elements)?, engine.pinned(most_rows)?, engine.pinned(outputs)?)),
        };
        let limits = MachineLimits::load(engine.devices());
        let of_device = limits.as_ref().and_then(|limits| limits.devices.first());
        if let Some(link) = of_device.and_then(|device| RateBySize::best(&device.copy_in)) {
            println!("{}", json!({ "task": "link", "gb_per_s": link.bytes_per_second / 1e9 }));
        }
        for (width, tasks) in Task::ALL {
            let tasks =
                tasks.iter().filter(|task| settings.only.as_ref().is_none_or(|only| only.contains(task.name())));
            let tasks: Vec<_> = tasks.copied().collect();
            if tasks.is_empty() {
                continue;
            }
            let model = Model::new(kind, width);
            let measured = Measured { settings, kind, engine: &engine, device, model: &model };
            measured.of("ordinary memory", &tasks, (&mut x, &mut t, &mut y))?;
            if let Some((x, t, y)) = &mut pinned {
                measured.of("pinned memory", &tasks, (x, t, y))?;
            }
        }
    }
    Ok(())
}

/// What the figures of one table on one device have in common.
struct Measured<'r, T> {
    settings: &'r Settings,
    kind: &'r Kind<T>,
    engine: &'r Engine,
    device: &'r DeviceChoice,
    model: &'r Model<T>,
}

impl<T: Pod + Element + Into<f64> + Send + Sync> Measured<'_, T> {
    /// Fills a table, runs each task several times, and prints its rate.
    fn of(&self, source: &str, tasks: &[Task], (x, t, y): (&mut [T], &mut [T], &mut [T])) -> Outcome {
        let (Model { width, .. }, own) = (self.model, self.model);
        let rows = x.len() / width;
        let (x, t) = (&mut x[..rows * width], &mut t[..rows]);
        x.par_chunks_mut(*width).enumerate().for_each(|(row, to)| {
            to.copy_from_slice(&own.x[row % PERIOD * width..][..*width]);
        });
        t.par_iter_mut().enumerate().for_each(|(row, t)| *t = own.t[row % PERIOD]);
        let precisions = |task: &Task| match (*task, self.kind.dtype) {
            (Task::Nearest | Task::Step, "f32") => self.settings.precisions.clone(),
            _ => vec![Precision::Full],
        };
        let runs = tasks.iter().flat_map(|task| precisions(task).into_iter().map(move |precision| (*task, precision)));
        for (task, precision) in runs {
            let mut seconds = Vec::with_capacity(self.settings.runs);
            let mut last = None;
            // The first run opens the device and loads what it needs.
            for run in 0..=self.settings.runs {
                let ran = self.engine.run(self.job(task, (x, t, y))?.precision(precision))?;
                if run > 0 {
                    seconds.push(ran.time.as_secs_f64());
                }
                last = Some(ran);
            }
            seconds.sort_by(f64::total_cmp);
            let last = last.ok_or("no run")?;
            self.check((task, precision), &last, rows, y)?;
            let rate = |seconds: f64| size_of_val(x) as f64 / seconds / 1e9;
            let stages = |named: [(&str, overshot::report::StageTime); 5]| -> Vec<_> {
                named
                    .iter()
                    .map(|(name, time)| json!([name, time.busy.as_secs_f64(), time.waiting.as_secs_f64()]))
                    .collect()
            };
            let line = json!({
                "task": task.name(), "dtype": self.kind.dtype, "width": width, "rows": rows,
                "centres": matches!(task, Task::Nearest | Task::Step).then_some(self.kind.centres),
                "precision": precision.to_string(),
                "device": self.device.to_string(), "from": source,
                "gb_per_s": rate(seconds[seconds.len() / 2]),
                "all": seconds.iter().map(|seconds| rate(*seconds)).collect::<Vec<_>>(),
                "total_gb_per_s": rate(last.total_time.as_secs_f64()),
                "chunk_rows": last.chunk_rows, "chunks": last.chunks,
                "workers": last.devices.iter().map(|device| device.workers).sum::<usize>(),
                "stages": stages(last.stages().named()),
                "pinned_bytes": last.peak_pinned_bytes,
                "device_bytes": last.devices.iter().map(|device| device.peak_device_bytes).sum::<u64>(),
                "notes": last.notes,
            });
            println!("{line}");
            if let Some(folder) = &self.settings.trace {
                let ran = self.engine.run(self.job(task, (x, t, y))?.precision(precision).timeline(true))?;
                let name = format!("{}-{}-{}.json", task.name(), self.kind.dtype, source.replace(' ', "-"));
                if let Some(timeline) = ran.timeline {
                    timeline.write_chrome(std::io::BufWriter::new(File::create(folder.join(name))?))?;
                }
            }
        }
        Ok(())
    }

    fn job<'a>(&'a self, task: Task, (x, t, y): (&'a [T], &'a [T], &'a mut [T])) -> Outcome<Job<'a>> {
        let Model { width, w, v, centres, h, .. } = self.model;
        let table = |rows: usize, width: usize, from: &'a [T]| -> Outcome<Input<'a>> {
            Ok((self.kind.input)(ArrayView2::from_shape((rows, width), from).map_err(|error| error.to_string())?))
        };
        let rows = x.len() / width;
        let job = Job::eval(&task.text(self.kind.centres))?.input("x", table(rows, *width, x)?);
        Ok(match task {
            Task::Scores => job.input("w", table(*width, SCORES, w)?).output("y", &mut y[..rows * SCORES]),
            Task::Nearest | Task::Step => job.input("c", table(self.kind.centres, *width, centres)?).input("h", &h[..]),
            Task::Gradient => job.input("w", &v[..]).input("t", t),
            Task::Newton => job.input("w", table(*width, 1, v)?).input("t", table(rows, 1, t)?),
            Task::Sum => job,
        })
    }

    /// Compares some rows or elements of the results with plain loops.
    fn check(&self, (task, precision): (Task, Precision), report: &Report, rows: usize, y: &[T]) -> Outcome {
        let own = self.model;
        let near = match (self.kind.dtype, precision) {
            ("f32", Precision::Tf32) => 4e-3,
            ("f32", Precision::Bf16x3) => 2e-4,
            ("f32", Precision::Full) => 1e-4,
            _ => 1e-9,
        };
        let is = |what: &str, found: f64, right: f64| match (found - right).abs() <= near * right.abs() {
            true => Ok(()),
            false => Err(format!("{what} of '{}' is {found}, and not {right}", task.name())),
        };
        let element = |name: &str, k: usize| -> Outcome<f64> {
            Ok(report.array(name)?.and_then(|array| array.get(k)).map_or(f64::NAN, |value| value.as_f64()))
        };
        let value = |name: &str| -> Outcome<f64> { Ok(report.value(name)?.map_or(f64::NAN, |value| value.as_f64())) };
        // The rows of the table that are the same as each of those that repeat, and a sum over all.
        let times = |row: usize| (rows / PERIOD + usize::from(row < rows % PERIOD)) as f64;
        let over_rows = |of: &(dyn Fn(usize) -> f64 + Sync)| -> f64 {
            (0..PERIOD).into_par_iter().map(|row| times(row) * of(row)).sum()
        };
        let x = |row: usize, column: usize| -> f64 { own.x[row * own.width + column].into() };
        let product = |row: usize| own.products(row, &own.v, 1)[0];
        let columns = [0, own.width / 3, own.width - 1];
        match task {
            Task::Scores => {
                for row in (0..rows).step_by((rows / 50).max(1)).chain([rows - 1]) {
                    for (k, right) in own.products(row % PERIOD, &own.w, SCORES).into_iter().enumerate() {
                        is(&format!("element ({row}, {k})"), y[row * SCORES + k].into(), right)?;
                    }
                }
            }
            Task::Nearest | Task::Step => {
                let nearest: Vec<_> = (0..PERIOD).into_par_iter().map(|row| own.nearest(row)).collect();
                let (mut counts, mut unsure) = (vec![0.0; self.kind.centres], 0.0);
                for (row, (nearest, [first, second])) in nearest.iter().enumerate() {
                    counts[*nearest] += times(row);
                    // Rounding may choose the other one.
                    if second - first < near * first.abs() {
                        unsure += times(row);
                    }
                }
                let all =
                    (0..counts.len()).map(|k| Ok((element("n", k)? - counts[k]).abs())).collect::<Outcome<Vec<_>>>()?;
                if all.iter().sum::<f64>() > 2.0 * unsure || all.iter().any(|other| other.is_nan()) {
                    return Err(format!("other counts of '{}'", task.name()).into());
                }
                is("the sum", value("s")?, over_rows(&|row| nearest[row].1[0]))?;
                // Whichever centres rows have, their sums add up to those of all rows.
                for column in columns.into_iter().filter(|_| task == Task::Step) {
                    let of_each = (0..self.kind.centres).map(|k| element("of_each", k * own.width + column));
                    let sum = of_each.collect::<Outcome<Vec<_>>>()?.into_iter().sum();
                    is(&format!("the sum of column {column}"), sum, over_rows(&|row| x(row, column)))?;
                }
            }
            Task::Gradient => {
                let rest: Vec<f64> = (0..PERIOD).map(|row| product(row) - own.t[row].into()).collect();
                for column in columns {
                    is(
                        &format!("element {column}"),
                        element("g", column)?,
                        over_rows(&|row| x(row, column) * rest[row]),
                    )?;
                }
            }
            Task::Newton => {
                let p: Vec<f64> = (0..PERIOD).map(|row| 1.0 / (1.0 + (-product(row)).exp())).collect();
                for (i, j) in columns.into_iter().zip([own.width / 2, 0, own.width - 1]) {
                    let right = over_rows(&|row| x(row, i) * x(row, j) * p[row] * (1.0 - p[row]));
                    is(&format!("element ({i}, {j}) of h"), element("h", i * own.width + j)?, right)?;
                    let right = over_rows(&|row| x(row, i) * (p[row] - own.t[row].into()));
                    is(&format!("element {i} of g"), element("g", i)?, right)?;
                }
            }
            Task::Sum => is("the sum", value("s")?, over_rows(&|row| (0..own.width).map(|k| x(row, k)).sum()))?,
        }
        Ok(())
    }
}
