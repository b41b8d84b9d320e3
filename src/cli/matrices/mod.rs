//! `overshot matrices`: algorithms on tables.

pub mod args;
mod files;

use std::fmt::{self, Display};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use ndarray::{ArrayView, Dimension};
use overshot::io::Element;
use overshot::matrices::{KMeans, Linear, Logistic, Matrices, Method, Pca};
use overshot::{ArrayValue, Engine, Input, Report, Scalar, units};
use serde::Serialize;

use self::args::{Algorithm, MatricesArgs, MethodArg, TableArgs};
use self::files::{Files, Names};
use super::output::{print, print_document};
use super::progress::Bar;
use super::style::dim;
use super::{Failure, Result, interrupt};

/// Runs the algorithm and prints what it found.
pub fn run(args: &MatricesArgs) -> Result {
    match &args.algorithm {
        Algorithm::Gram { table } => {
            let files = Files::new(table, &Names { needed: &["x"], others: &[], results: &["gram"], rows: &[] })?;
            Work::new(table, &files, "x")?
                .run("gram", |matrices, x| Ok(Found::default().small("gram", matrices.gram(x)?)))
        }
        Algorithm::Covariance { ddof, table } => {
            let files = Files::new(table, &Names { needed: &["x"], others: &[], results: &["covariance"], rows: &[] })?;
            Work::new(table, &files, "x")?.run("covariance", |matrices, x| {
                Ok(Found::default().array("covariance", matrices.covariance(x, *ddof)?.view()))
            })
        }
        Algorithm::Pca { count, method, tolerance, iterations, seed, table } => {
            let results = &["components", "variance", "mean"];
            let files = Files::new(table, &Names { needed: &["x"], others: &[], results, rows: &[] })?;
            let method = match method {
                MethodArg::Auto => Method::Auto,
                MethodArg::Exact => Method::Exact,
                MethodArg::Randomized => Method::Randomized,
            };
            let how = Pca::new(*count).method(method).tolerance(*tolerance).iterations(*iterations).seed(*seed);
            Work::new(table, &files, "x")?.run("pca", |matrices, x| {
                let found = matrices.pca(x, how)?;
                let arrays = Found::default().array("components", found.components.view());
                let arrays = arrays.array("variance", found.variance.view()).array("mean", found.mean.view());
                Ok(arrays.value("turn", Scalar::F64(found.turn)))
            })
        }
        Algorithm::Project { table } => {
            let names = Names { needed: &["x", "components"], others: &["mean"], results: &[], rows: &["y"] };
            let files = Files::new(table, &names)?;
            let (components, mean) = (files.matrix("components")?, files.list("mean")?);
            let y = files.needed_output("y")?;
            Work::new(table, &files, "x")?.run("project", |matrices, x| {
                matrices.project(x, components.view(), mean.as_ref().map(|mean| mean.view()), y)?;
                Ok(Found::default())
            })
        }
        Algorithm::Linear { ridge, no_intercept, table } => {
            let files =
                Files::new(table, &Names { needed: &["x", "t"], others: &[], results: &["weights"], rows: &[] })?;
            let (t, how) = (files.input("t")?, Linear::new().ridge(*ridge).intercept(!no_intercept));
            Work::new(table, &files, "x")?.run("linear", |matrices, x| {
                let model = matrices.linear(x, &t, how)?;
                let found = Found::default().array("weights", model.weights.view());
                Ok(found.value("intercept", Scalar::F64(model.intercept)))
            })
        }
        Algorithm::Logistic { penalty, tolerance, iterations, table } => {
            let files =
                Files::new(table, &Names { needed: &["x", "t"], others: &[], results: &["weights"], rows: &[] })?;
            let how = Logistic::new().penalty(*penalty).tolerance(*tolerance).iterations(*iterations);
            let t = files.input("t")?;
            Work::new(table, &files, "x")?.run("logistic", |matrices, x| {
                let model = matrices.logistic(x, &t, how)?;
                let found = Found::default().array("weights", model.weights.view());
                let found = found.value("intercept", Scalar::F64(model.intercept));
                Ok(found.iterations(model.iterations, model.converged))
            })
        }
        Algorithm::Kmeans { count, iterations, tolerance, seed, table } => {
            let (results, rows) = (&["centers", "counts"], &["labels"]);
            let files = Files::new(table, &Names { needed: &["x"], others: &["start"], results, rows })?;
            let start = if files.has("start") { Some(files.matrix("start")?) } else { None };
            let how = match (count, start) {
                (Some(count), None) => KMeans::plus_plus(*count).seed(*seed),
                (None, Some(start)) => KMeans::from_centers(start),
                _ => {
                    return Err(Failure::Usage(
                        "give the number of centers with --count, or start=FILE, and not both".into(),
                    ));
                }
            };
            let mut how = how.iterations(*iterations).tolerance(*tolerance);
            if let Some(labels) = files.output("labels")? {
                how = how.labels(labels);
            }
            Work::new(table, &files, "x")?.run("kmeans", |matrices, x| {
                let found = matrices.kmeans(x, how)?;
                let arrays =
                    Found::default().array("centers", found.centers.view()).array("counts", found.counts.view());
                let arrays = arrays.value("inertia", Scalar::F64(found.inertia));
                Ok(arrays.iterations(found.iterations, found.converged))
            })
        }
        Algorithm::Assign { table } => {
            let names = Names { needed: &["x", "centers"], others: &[], results: &[], rows: &["labels", "distances"] };
            let files = Files::new(table, &names)?;
            let centers = files.matrix("centers")?;
            let (labels, distances) = (files.needed_output("labels")?, files.needed_output("distances")?);
            Work::new(table, &files, "x")?.run("assign", |matrices, x| {
                matrices.assign(x, centers.view(), labels, distances)?;
                Ok(Found::default())
            })
        }
        Algorithm::Nearest { count, table } => {
            let names =
                Names { needed: &["base", "queries"], others: &[], results: &["indices", "distances"], rows: &[] };
            let files = Files::new(table, &names)?;
            let queries = files.matrix("queries")?;
            Work::new(table, &files, "base")?.run("nearest", |matrices, base| {
                let found = matrices.nearest(base, queries.view(), *count)?;
                let arrays = Found::default().array("indices", found.indices.view());
                Ok(arrays.array("distances", found.distances.view()))
            })
        }
    }
}

/// What an algorithm found.
#[derive(Default)]
struct Found {
    arrays: Vec<(&'static str, ArrayValue)>,
    values: Vec<(&'static str, Scalar)>,
}

impl Found {
    fn small(mut self, name: &'static str, array: ArrayValue) -> Self {
        self.arrays.push((name, array));
        self
    }

    fn array<T: Element, D: Dimension>(self, name: &'static str, array: ArrayView<'_, T, D>) -> Self {
        self.small(name, array.into())
    }

    fn value(mut self, name: &'static str, value: Scalar) -> Self {
        self.values.push((name, value));
        self
    }

    fn iterations(self, iterations: usize, converged: bool) -> Self {
        self.value("iterations", Scalar::U64(iterations as u64)).value("converged", Scalar::Bool(converged))
    }
}

/// One line for each result.
impl Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.arrays.iter().try_for_each(|(name, array)| writeln!(f, "{name} = {array}"))?;
        self.values.iter().try_for_each(|(name, value)| writeln!(f, "{name} = {value}"))
    }
}

/// An engine, and the table that an algorithm reads.
struct Work<'a> {
    args: &'a TableArgs,
    files: &'a Files<'a>,
    engine: Engine,
    table: Input<'static>,
}

/// The passes over the rows so far.
#[derive(Default)]
struct Passes {
    count: u64,
    rows: u64,
    bytes: u64,
    time: Duration,
    notes: Vec<String>,
}

impl Passes {
    fn add(&mut self, report: &Report) {
        let passes = report.passes.len().max(1) as u64;
        self.count += passes;
        self.rows += passes * report.rows;
        self.bytes += report.input_bytes() + report.output_bytes();
        self.time += report.total_time;
        for note in &report.notes {
            if !self.notes.contains(note) {
                self.notes.push(note.clone());
            }
        }
    }
}

impl<'a> Work<'a> {
    fn new(args: &'a TableArgs, files: &'a Files<'a>, table: &str) -> Result<Work<'a>> {
        Ok(Work { args, files, engine: args.limits.engine()?, table: files.input(table)? })
    }

    /// Runs the algorithm, writes its results to their files, and prints them.
    fn run(self, name: &'static str, algorithm: impl FnOnce(&Matrices<'_>, &Input<'_>) -> Result<Found>) -> Result {
        let Work { args, files, engine, table } = self;
        let begin = Instant::now();
        let source = table.source();
        let rows = source.shape().and_then(|shape| shape.first().copied()).unwrap_or(source.rows());
        let row_bytes = (source.rows() / rows.max(1)) * source.dtype().size() as u64;
        let bar = || Bar::new(args.quiet, name, rows, row_bytes);
        let (shown, passes) = (Mutex::new(bar()), Mutex::new(Passes::default()));
        let matrices = Matrices::on(&engine)
            .precision(args.precision.unwrap_or_default())
            .cancel_token(interrupt::token())
            .progress(|progress| {
                if let Ok(bar) = shown.lock() {
                    bar.show(progress);
                }
            })
            .each_pass(|report| {
                if let (Ok(mut shown), Ok(mut passes)) = (shown.lock(), passes.lock()) {
                    *shown = bar();
                    passes.add(report);
                }
            });
        let found = algorithm(&matrices, &table)?;
        files.write(&found.arrays)?;
        drop(matrices);
        drop(shown);
        let passes = passes.into_inner().unwrap_or_default();
        let seconds = begin.elapsed().as_secs_f64();
        if args.json {
            return print_document(1, &Json::new(name, &found, &passes, seconds));
        }
        if args.quiet {
            return print(&found);
        }
        let count = format!("{} pass{}", passes.count, if passes.count == 1 { "" } else { "es" });
        let rows = units::counted(passes.rows, "row");
        let rate = units::rate(passes.bytes as f64 / passes.time.as_secs_f64().max(1e-9));
        let (bytes, time) = (units::bytes(passes.bytes), units::time(Duration::from_secs_f64(seconds)));
        let notes: String = passes.notes.iter().map(|note| dim(&format!("note: {note}")) + "\n").collect();
        print(format!("{found}{count} over {rows} ({bytes}) in {time}, at {rate} within a pass\n{notes}"))
    }
}

#[derive(Serialize)]
struct Json<'a> {
    algorithm: &'a str,
    results: Vec<ValueJson<'a>>,
    arrays: Vec<ArrayJson<'a>>,
    passes: u64,
    rows: u64,
    bytes: u64,
    pass_seconds: f64,
    total_seconds: f64,
    notes: &'a [String],
}

#[derive(Serialize)]
struct ValueJson<'a> {
    name: &'a str,
    dtype: &'a str,
    value: Scalar,
}

#[derive(Serialize)]
struct ArrayJson<'a> {
    name: &'a str,
    dtype: &'a str,
    shape: &'a [u64],
    values: &'a ArrayValue,
}

impl<'a> Json<'a> {
    fn new(algorithm: &'a str, found: &'a Found, passes: &'a Passes, seconds: f64) -> Json<'a> {
        let value = |(name, value): &(&'a str, Scalar)| ValueJson { name, dtype: value.dtype().name(), value: *value };
        let array = |(name, array): &'a (&'static str, ArrayValue)| ArrayJson {
            name,
            dtype: array.dtype().name(),
            shape: array.shape(),
            values: array,
        };
        Json {
            algorithm,
            results: found.values.iter().map(value).collect(),
            arrays: found.arrays.iter().map(array).collect(),
            passes: passes.count,
            rows: passes.rows,
            bytes: passes.bytes,
            pass_seconds: passes.time.as_secs_f64(),
            total_seconds: seconds,
            notes: &passes.notes,
        }
    }
}
