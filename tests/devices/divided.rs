//! Expressions that use the results of reductions: several passes over the rows, and results computed from results.

use std::collections::HashMap;
use std::fs;
use std::sync::Mutex;
use std::time::Duration;

use overshot::{CancelToken, DeviceChoice, Dtype, Engine, Error, Expression, Job, JobError, Npy, Raw, Report, Scalar};

use crate::harness::{Case, Module, NO_CASES, Outcome, check, cpu, numbers};
use crate::rows::{builder, has_memory, in_use};

pub const MODULE: Module = Module { name: "divided", cases: CASES, counts_memory: true, ..NO_CASES };

const CASES: &[(&str, Case)] = &[
    ("a table is standardised in two passes", standardised),
    ("random statements have the bits of one reduction after another", random_statements),
    ("results are computed from results", results),
    ("each pass reads what it needs, and the plan shows it", passes),
    ("rows stay on a device that is alone", kept),
    ("without rows", without_rows),
    ("outputs are written in the last pass", written_last),
    ("a file that changes between passes", changed_between),
    ("progress, cancelling, verification and the timeline of all passes", followed),
    ("a limit that is too small tells what all passes need", limits),
    ("what several passes cannot do", refused),
];

fn engine(choice: &DeviceChoice) -> Engine {
    builder(choice).chunk(256 << 10).build().unwrap()
}

fn limits(choice: &DeviceChoice) -> Outcome {
    if !has_memory(&engine(choice)) {
        return Ok(());
    }
    let x = numbers(20_000, 4);
    // The second pass needs more than the first one.
    let run = |bytes: u64| -> overshot::Result<Report> {
        let engine = Engine::builder().device(choice.clone()).device_memory(bytes).build()?;
        let mut y = vec![0.0_f64; x.len()];
        engine.run(Job::eval("m = mean(x); y = x - m; z = y * y; count(z > m)")?.input("x", &x).output("y", &mut y))
    };
    let Err(Error::Budget { needed, .. }) = run(1000) else { return Err("1000 bytes were enough".into()) };
    run(needed)?;
    check(matches!(run(needed - 1), Err(Error::Budget { .. })), "less was enough")
}

fn value(report: &Report, name: &str) -> Scalar {
    report.value(name).unwrap().unwrap()
}

fn standardised(choice: &DeviceChoice) -> Outcome {
    for rows in [1, 4096, 4097, 300_007] {
        let x = numbers(rows, 3);
        let first = cpu().run(Job::eval("m = mean(x), s = std(x)")?.input("x", &x))?;
        let mut expected = vec![0.0f64; rows];
        let job = Job::eval("y = (x - m) / s")?.input("x", &x);
        let job = job.scalar("m", value(&first, "m")).scalar("s", value(&first, "s"));
        cpu().run(job.output("y", &mut expected))?;
        let mut y = vec![0.0f64; rows];
        let job = Job::eval("y = (x - mean(x)) / std(x)")?.input("x", &x).output("y", &mut y);
        let report = engine(choice).run(job)?;
        let same = y.iter().zip(&expected).all(|(own, other)| own.to_bits() == other.to_bits());
        check(same, format!("other rows: {:?} for {:?}", &y[..1], &expected[..1]))?;
        check(report.results.is_empty() && report.passes.len() == 2, format!("{report:?}"))?;
        let names: Vec<_> = report.passes[0].results.iter().map(|(name, _)| name.as_str()).collect();
        check(names == ["mean(x)", "std(x)"], format!("{names:?}"))?;
        check(report.rows == rows as u64 && report.outputs.len() == 1, "rows and outputs of the report")?;
        let chunks: u64 = report.passes.iter().map(|pass| pass.chunks).sum();
        check(report.chunks == chunks, "the chunks of all passes")?;
    }
    Ok(())
}

/// A random expression over rows.
#[derive(Clone)]
enum Tree {
    Leaf(String),
    Binary(&'static str, Box<Tree>, Box<Tree>),
    Call(&'static str, Box<Tree>),
    Reduce(&'static str, Box<Tree>),
}

impl Tree {
    fn text(&self) -> String {
        match self {
            Tree::Leaf(name) => name.clone(),
            Tree::Binary(sign, a, b) => format!("({} {sign} {})", a.text(), b.text()),
            Tree::Call(name, of) | Tree::Reduce(name, of) => format!("{name}({})", of.text()),
        }
    }

    /// Whether it is made of results and numbers alone.
    fn is_result(&self, results: &HashMap<String, Option<Scalar>>) -> bool {
        match self {
            Tree::Leaf(name) => results.contains_key(name) || name == "pi" || name.parse::<f64>().is_ok(),
            Tree::Binary(_, a, b) => a.is_result(results) && b.is_result(results),
            Tree::Call(_, of) => of.is_result(results),
            Tree::Reduce(..) => true,
        }
    }

    fn has_result(&self, results: &HashMap<String, Option<Scalar>>) -> bool {
        match self {
            Tree::Leaf(name) => results.contains_key(name),
            Tree::Binary(_, a, b) => a.has_result(results) || b.has_result(results),
            Tree::Call(_, of) => of.has_result(results),
            Tree::Reduce(..) => true,
        }
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    fn tree(&mut self, depth: usize, names: &[String], results: &HashMap<String, Option<Scalar>>) -> Tree {
        match self.below(if depth == 0 { 2 } else { 8 }) {
            0 | 1 => {
                let literals = ["0.5", "3", "pi", "i"];
                match self.below(names.len() + 1) {
                    0 => Tree::Leaf(literals[self.below(literals.len())].into()),
                    k => Tree::Leaf(names[k - 1].clone()),
                }
            }
            2..=4 => {
                let [a, b] = [0, 1].map(|_| Box::new(self.tree(depth - 1, names, results)));
                Tree::Binary(["+", "-", "*"][self.below(3)], a, b)
            }
            5 => {
                let of = Box::new(self.tree(depth - 1, names, results));
                Tree::Call(["abs", "atan", "f32", "sqrt"][self.below(4)], of)
            }
            _ => {
                let kinds = ["mean", "sum", "min", "max", "std", "count", "argmax"];
                match self.tree(depth - 1, names, results) {
                    // A result is not reduced again.
                    of if of.has_result(results) && of.is_result(results) => of,
                    of => Tree::Reduce(kinds[self.below(kinds.len())], Box::new(of)),
                }
            }
        }
    }
}

/// Computes one reduction at a time, each in a job of its own, with the values of earlier ones as scalars.
struct Twin<'x> {
    x: &'x [f64],
    n: &'x [i32],
    /// The trees of assigned row values.
    rows: HashMap<String, Tree>,
    /// The values of named results, and of reductions within expressions.
    results: HashMap<String, Option<Scalar>>,
}

impl Twin<'_> {
    fn job(&self, text: &str) -> Result<Job<'_>, Error> {
        let job = Job::eval(text)?;
        let names = job.input_names();
        let job = if names.contains(&"x".into()) { job.input("x", self.x) } else { job };
        let job = if names.contains(&"n".into()) { job.input("n", self.n) } else { job };
        let values = self.results.iter().filter(|(name, _)| names.contains(name));
        Ok(values.fold(job.rows(self.x.len() as u64), |job, (name, value)| job.scalar(name, value.unwrap())))
    }

    /// Returns the tree with the values of its reductions in their places, and assigned values written out.
    fn reduced(&mut self, tree: &Tree) -> Result<Tree, Error> {
        Ok(match tree {
            Tree::Leaf(name) => match self.rows.get(name).cloned() {
                Some(tree) => tree,
                None => tree.clone(),
            },
            Tree::Binary(sign, a, b) => Tree::Binary(sign, Box::new(self.reduced(a)?), Box::new(self.reduced(b)?)),
            Tree::Call(name, of) => Tree::Call(name, Box::new(self.reduced(of)?)),
            Tree::Reduce(name, of) => {
                let text = Tree::Reduce(name, Box::new(self.reduced(of)?)).text();
                let report = cpu().run(self.job(&format!("r = {text}"))?)?;
                let own = format!("r{}", self.results.len());
                self.results.insert(own.clone(), report.results[0].1);
                Tree::Leaf(own)
            }
        })
    }
}

fn random_statements(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice);
    let rows = 9_001;
    let (x, n) = (numbers(rows, 7), (0..rows as i32).map(|k| k * 37 % 101 - 50).collect::<Vec<_>>());
    let mut most = 0;
    for seed in 0..60 {
        let mut random = Random(seed * 7919 + 5);
        let mut twin = Twin { x: &x, n: &n, rows: HashMap::new(), results: HashMap::new() };
        let mut names: Vec<String> = vec!["x".into(), "n".into()];
        let (mut statements, mut outputs, mut expected) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..1 + random.below(4) {
            let (tree, name) = (random.tree(4, &names, &twin.results), format!("y{number}"));
            statements.push(format!("{name} = {}", tree.text()));
            let is_result = tree.has_result(&twin.results) && tree.is_result(&twin.results);
            let reduced = twin.reduced(&tree)?;
            if is_result {
                let mut one = twin.job(&format!("y = {}", reduced.text()))?.rows(1);
                one.input_names();
                let path = tempfile::NamedTempFile::new()?;
                one = one.output("y", Raw::create(path.path()).force(true));
                let dtype = cpu().run(one)?.outputs[0].dtype;
                let mut word = [0; 8];
                word[..dtype.size()].copy_from_slice(&fs::read(path.path())?);
                twin.results.insert(name.clone(), Some(of_bits(dtype, u64::from_le_bytes(word))));
                expected.push((name.clone(), twin.results[&name]));
            } else {
                twin.rows.insert(name.clone(), reduced);
                outputs.push(name.clone());
            }
            names.push(name);
        }
        let text = statements.join("; ");
        let folder = tempfile::tempdir()?;
        let job = Job::eval(&text)?;
        let read = job.input_names();
        let job = if read.contains(&"x".into()) { job.input("x", &x) } else { job };
        let job = if read.contains(&"n".into()) { job.input("n", &n) } else { job };
        let job = outputs
            .iter()
            .fold(job.rows(rows as u64), |job, name| job.output(name, Raw::create(folder.path().join(name))));
        let report = engine.run(job).map_err(|error| format!("{text}: {error}"))?;
        most = most.max(report.passes.len());
        let bits = |all: &[(String, Option<Scalar>)]| format!("{all:?}");
        check(bits(&report.results) == bits(&expected), format!("{text}: {:?} for {expected:?}", report.results))?;
        for name in &outputs {
            let path = folder.path().join("expected");
            let job = twin.job(&format!("y = {}", twin.rows[name].text()))?;
            cpu().run(job.output("y", Raw::create(&path).force(true)))?;
            check(fs::read(&path)? == fs::read(folder.path().join(name))?, format!("{text}: {name}"))?;
        }
    }
    check(most >= 3, "the statements needed few passes")
}

fn of_bits(dtype: Dtype, bits: u64) -> Scalar {
    match dtype {
        Dtype::F64 => Scalar::F64(f64::from_bits(bits)),
        Dtype::F32 => Scalar::F32(f32::from_bits(bits as u32)),
        Dtype::I64 => Scalar::I64(bits as i64),
        Dtype::I32 => Scalar::I32(bits as i32),
        other => panic!("no results of {other}"),
    }
}

fn results(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice);
    let (a, b) = ([1.0, 2.0, 3.0], [4.0, 5.0, 6.0]);
    let text = "weighted = sum(a * b) / sum(b); k = count(a > 1); sum(a) / 2, half = k / 2; max(a) > min(b), q = half";
    let report = engine.run(Job::eval(text)?.input("a", &a).input("b", &b))?;
    let expected = [
        ("weighted", Scalar::F64(32.0 / 15.0)),
        ("k", Scalar::I64(2)),
        ("sum(a) / 2", Scalar::F64(3.0)),
        ("half", Scalar::F64(1.0)),
        ("max(a) > min(b)", Scalar::Bool(false)),
        ("q", Scalar::F64(1.0)),
    ];
    let expected: Vec<_> = expected.map(|(name, value)| (name.to_owned(), Some(value))).into();
    check(report.results == expected, format!("{:?}", report.results))?;
    check(report.passes.is_empty(), "one pass is enough")?;
    let names: Vec<String> = expected.iter().map(|(name, _)| name.clone()).collect();
    check(Job::eval(text)?.result_names() == names, "the names of the results")?;
    // Scalars of the job and numbers take part, and so do constants.
    let mut y = [0.0f32; 3];
    let x = [1.0f32, 2.0, 4.0];
    let job = Job::eval("m = max(x); y = x / m * k + g; 2 * pi * m")?.number("k", 3.0).scalar("g", 0.5f32);
    let report = engine.run(job.input("x", &x).output("y", &mut y))?;
    check(y == [1.25, 2.0, 3.5], format!("{y:?}"))?;
    let expected = Scalar::F32((2.0 * std::f64::consts::PI) as f32 * 4.0);
    check(value(&report, "2 * pi * m") == expected, format!("{:?}", report.results))
}

fn passes(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice);
    let (a, b, c) = (numbers(10_000, 1), numbers(10_000, 2), numbers(10_000, 3));
    let text = "t = a * b; m = mean(t); d = c - m; sum(d); y = c - mean(d)";
    check(text.parse::<Expression>()?.passes() == 3, "the number of passes")?;
    let job = || Ok::<_, Error>(Job::eval(text)?.input("a", &a).input("b", &b).input("c", &c));
    let (mut y, mut z) = (vec![0.0; 10_000], vec![0.0; 10_000]);
    let plan = engine.plan(&job()?.output("y", &mut y))?;
    let columns = |plan: &overshot::Plan| plan.columns.iter().map(|column| column.name.clone()).collect::<Vec<_>>();
    check(columns(&plan) == ["a", "b", "c", "y"], format!("{plan}"))?;
    let of_passes: Vec<_> = plan.passes.iter().map(columns).collect();
    let expected = [vec!["a", "b"], vec!["c", "m"], vec!["c", "y", "mean(d)"]];
    check(of_passes == expected, format!("{of_passes:?}"))?;
    check(plan.passes.iter().map(|pass| pass.row_bytes).eq([16, 8, 16]), format!("{plan}"))?;
    check(plan.to_string().contains("pass 2 of 3"), format!("{plan}"))?;
    let report = engine.run(job()?.output("y", &mut z))?;
    let read: Vec<usize> = report.passes.iter().map(|pass| pass.inputs.len()).collect();
    check(read == [2, 1, 1] && report.inputs.len() == 3, format!("{read:?}"))?;
    let text = report.to_string();
    check(text.contains("pass 3 of 3: 10,000 rows"), text)
}

fn kept(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice);
    let (x, z) = (numbers(100_000, 8), numbers(100_000, 9));
    let mut y = vec![0.0; x.len()];
    let job = Job::eval("y = x - mean(x) + max(z) + z")?.input("x", &x).input("z", &z).output("y", &mut y);
    let plan = engine.plan(&job)?.to_string();
    let report = engine.run(job)?;
    let moved: Vec<u64> = report.passes.iter().map(|pass| pass.bytes_to_device).collect();
    let is_alone = engine.devices().len() == 1 && has_memory(&engine);
    check(plan.contains("rows of 'x', 'z' stay on") == is_alone, plan)?;
    check(!is_alone || moved == [1_600_000, 0], format!("{moved:?} bytes were copied to the device"))?;
    check(in_use(&engine) == 0, "memory comes back")?;
    let timed = builder(choice).device_timeout(Duration::from_secs(3600)).build()?;
    let report = timed.run(Job::eval("sum(x - mean(x))")?.input("x", &x))?;
    let [first, second] = [0, 1].map(|pass| report.passes[pass].bytes_to_device);
    check(!is_alone || first == second, "with a time limit, nothing stays on the device")
}

fn without_rows(choice: &DeviceChoice) -> Outcome {
    let (x, mut y) = ([0.0f64; 0], [0.0f64; 0]);
    let job = Job::eval("y = x - max(x); sum(x) + 1, max(x) + 1")?.input("x", &x).output("y", &mut y);
    let report = engine(choice).run(job)?;
    let expected = [("sum(x) + 1".to_owned(), Some(Scalar::F64(1.0))), ("max(x) + 1".to_owned(), None)];
    check(report.results == expected, format!("{:?}", report.results))
}

fn written_last(choice: &DeviceChoice) -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name);
    let x = numbers(50_000, 4);
    cpu().run(Job::eval("y = +x")?.input("x", &x).output("y", Npy::create(path("x.npy"))))?;
    let job = |text: &str| Ok::<_, Error>(Job::eval(text)?.input("x", Npy::open(path("x.npy"))?));
    let run = job("a = 2 * x; b = a - mean(a)")?.checksum(true);
    let run = run.output("a", Npy::create(path("a.npy"))).output("b", Npy::create(path("b.npy")));
    let report = engine(choice).run(run)?;
    check(report.outputs.iter().all(|output| output.checksum.is_some()), "checksums")?;
    check(report.outputs.len() == 2 && report.passes[0].outputs.is_empty(), "outputs of the passes")?;
    let mean = cpu().run(job("mean(2 * x)")?)?;
    let alone = job("b = 2 * x - m")?.scalar("m", value(&mean, "mean(2 * x)")).output("b", Npy::create(path("alone")));
    cpu().run(alone)?;
    check(fs::read(path("alone"))? == fs::read(path("b.npy"))?, "other bytes")?;
    // An existing output is refused before the first pass.
    let seen = Mutex::new(false);
    let job = job("y = x - mean(x)")?.output("y", Npy::create(path("a.npy")));
    let job = job.progress(|_| *seen.lock().unwrap() = true);
    check(engine(choice).run(job).is_err_and(|error| error.to_string().contains("exists")), "it was replaced")?;
    check(!*seen.lock()?, "a pass ran first")
}

fn changed_between(choice: &DeviceChoice) -> Outcome {
    let folder = tempfile::tempdir()?;
    let (path, out) = (folder.path().join("x.f64"), folder.path().join("y.f64"));
    let bytes = vec![1; 8 * 20_000];
    fs::write(&path, &bytes)?;
    let changed = Mutex::new(false);
    let job = Job::eval("y = x - mean(x)")?.input("x", Raw::open(&path, Dtype::F64)?).output("y", Raw::create(&out));
    let job = job.progress(|progress| {
        // When the first pass has read all rows.
        let mut changed = changed.lock().unwrap();
        if progress.done == 20_000 && !std::mem::replace(&mut *changed, true) {
            // Of another length: the clock of some file systems is too coarse for the time of the change.
            fs::write(&path, vec![2; 8 * 20_001]).unwrap();
        }
    });
    let error = engine(choice).run(job).map(|_| ());
    check(matches!(&error, Err(Error::File { .. })), format!("{error:?}"))?;
    check(!out.exists(), "it has an output")
}

fn followed(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice);
    let x = numbers(100_000, 5);
    let seen = Mutex::new(Vec::new());
    let mut y = vec![0.0; x.len()];
    let text = "y = x - mean(x)";
    let job = Job::eval(text)?.input("x", &x).output("y", &mut y).timeline(true).verify(1.0);
    let report = engine.run(job.progress(|progress| seen.lock().unwrap().push((progress.done, progress.rows))))?;
    let seen = seen.into_inner()?;
    check(seen.iter().all(|(done, rows)| done <= rows && *rows == 200_000), format!("{seen:?}"))?;
    check(seen.iter().map(|(done, _)| *done).max() == Some(200_000), format!("{seen:?}"))?;
    let mut json = Vec::new();
    report.timeline.as_ref().ok_or("no timeline")?.write_chrome(&mut json)?;
    let events: serde_json::Value = serde_json::from_slice(&json)?;
    let kernels = events
        .as_array()
        .into_iter()
        .flatten()
        .filter(|event| event["name"] == "kernel" || event["name"] == "compute")
        .count() as u64;
    check(kernels == report.chunks, format!("{kernels} kernels of {} chunks", report.chunks))?;
    let verified: u64 = report.verification.iter().flat_map(|all| &all.devices).map(|device| device.rows).sum();
    check(verified == 200_000, format!("{verified} rows were verified"))?;
    // A token that is cancelled in the last pass ends the run.
    let token = CancelToken::new();
    let job = Job::eval(text)?.input("x", &x).output("y", &mut y).cancel_token(token.clone());
    let job = job.progress(|progress| {
        if progress.done > 100_000 {
            token.cancel();
        }
    });
    // The last chunk may be finished before the token is seen.
    let result = engine.run(job).map(|_| ());
    check(matches!(result, Err(Error::Cancelled { .. }) | Ok(())), format!("{result:?}"))
}

fn refused(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice);
    let x = numbers(10_000, 6);
    let two = || Ok::<_, Error>(Job::eval("sum(x - mean(x) + k)")?.input("x", &x).scalar("k", 1.0));
    let is_refused =
        |error: &Error| matches!(error, Error::InvalidJob(error) if matches!(error, JobError::SeveralPasses));
    check(engine.run_rows(two()?, 0..4096).is_err_and(|error| is_refused(&error)), "run_rows")?;
    check(engine.passes(two()?, |passes| passes.run()).is_err_and(|error| is_refused(&error)), "passes")?;
    check(engine.rows_of_part(&two()?, 0, 2).is_err_and(|error| is_refused(&error)), "rows_of_part")?;
    let error = |job: Job<'_>| engine.run(job).map(|_| ()).unwrap_err().to_string();
    let text = error(Job::eval("r = sum(x) * pi")?.input("x", &x).input("pi", &x));
    check(text.contains("'r' is one number") && text.contains("'pi' in it is an input"), text)?;
    let text = error(Job::eval("t = x * 2; y = x; sum(x - mean(x))")?.input("x", &x));
    check(text.contains("`t` is assigned but not used"), text)?;
    // A fault is at its place in the whole text, in whichever pass it is.
    let column = |job: Job<'_>| match engine.run(job) {
        Err(Error::Expression { column, .. }) => Some(column),
        _ => None,
    };
    check(column(Job::eval("sum(x - mean(x)) + sum(~x)")?.input("x", &x)) == Some(24), "a fault in a reduction")?;
    check(column(Job::eval("r = ~mean(x)")?.input("x", &x)) == Some(5), "a fault in a result")?;
    let mut r = [0.0; 10_000];
    let text = error(Job::eval("r = mean(x) / 2")?.input("x", &x).output("r", &mut r));
    check(text.contains("'r'"), text)
}
