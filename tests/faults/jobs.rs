//! The jobs whose calls fail. Each says whether its rows are right.

use std::env;
use std::sync::OnceLock;

use ndarray::{Array2, Axis, s};
use overshot::testing::custom::{FACTOR, TABLE, everything, keep};
use overshot::{DeviceChoice, Dtype, Engine, Input, Job, Precision, Raw, Report, Result};

const ROWS: usize = 60_000;

fn numbers() -> &'static [f64] {
    static NUMBERS: OnceLock<Vec<f64>> = OnceLock::new();
    let number = |i: u64| ((i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f64 / (1 << 24) as f64 * 200.0 - 100.0;
    NUMBERS.get_or_init(|| (0..ROWS as u64).map(number).collect())
}

/// The bits of the sum that a report has.
fn sum_of(report: &Report) -> u64 {
    report.value("sum(x)").unwrap().unwrap().as_f64().to_bits()
}

pub fn right_sum() -> u64 {
    static SUM: OnceLock<u64> = OnceLock::new();
    *SUM.get_or_init(|| {
        let engine = Engine::builder().device(DeviceChoice::Cpu).build().unwrap();
        sum_of(&engine.run(Job::eval("sum(x)").unwrap().input("x", numbers())).unwrap())
    })
}

fn are_doubled(rows: &[f64]) -> bool {
    rows.len() == ROWS && numbers().iter().zip(rows).all(|(x, y)| x * 2.0 + 1.0 == *y)
}

const DOUBLED: &str = "y = x * 2.0 + 1.0; sum(x)";

/// The fraction of the chunks that the jobs verify: all of them if the case asks for it.
pub fn fraction() -> f64 {
    env::var("FAULTS_VERIFY").map_or(0.0, |text| text.parse().unwrap())
}

pub fn staged(engine: &Engine) -> Result<bool> {
    let mut y = vec![0.0; ROWS];
    let report = engine.run(Job::eval(DOUBLED)?.verify(fraction()).input("x", numbers()).output("y", &mut y))?;
    Ok(are_doubled(&y) && sum_of(&report) == right_sum())
}

fn files(engine: &Engine) -> Result<bool> {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("x.raw"), folder.path().join("y.raw"));
    std::fs::write(&from, bytemuck::cast_slice::<f64, u8>(numbers())).unwrap();
    let job =
        Job::eval(DOUBLED)?.verify(fraction()).input("x", Raw::open(&from, Dtype::F64)?).output("y", Raw::create(&to));
    if let Err(error) = engine.run(job) {
        let left = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 1, "only the input may be left after '{error}'");
        return Err(error);
    }
    let bytes = std::fs::read(&to).unwrap();
    let rows: Vec<f64> = bytes.as_chunks::<8>().0.iter().map(|bytes| f64::from_ne_bytes(*bytes)).collect();
    Ok(are_doubled(&rows))
}

fn pinned(engine: &Engine) -> Result<bool> {
    let (mut x, mut y) = (engine.pinned::<f64>(ROWS)?, engine.pinned::<f64>(ROWS)?);
    x.copy_from_slice(numbers());
    let report = engine.run(Job::eval(DOUBLED)?.verify(fraction()).input("x", &x).output("y", &mut y))?;
    Ok(are_doubled(&y) && sum_of(&report) == right_sum())
}

/// The first run fills the array. Whether it succeeds or fails, later runs give the right rows or fail.
fn resident(engine: &Engine) -> Result<bool> {
    let data = engine.resident(numbers())?;
    let run = || Ok(sum_of(&engine.run(Job::eval("sum(x)")?.verify(fraction()).input("x", &data))?) == right_sum());
    let runs: [Result<bool>; 3] = [run(), run(), run()];
    runs.into_iter().try_fold(true, |all, is_right| Ok(all && is_right?))
}

fn sharded(engine: &Engine) -> Result<bool> {
    let (x, mut y) = (engine.shard(numbers())?, engine.sharded::<f64>(ROWS)?);
    let report = engine.run(Job::eval(DOUBLED)?.verify(fraction()).input("x", &x).output("y", &mut y))?;
    let mut rows = vec![0.0; ROWS];
    y.read(0, &mut rows)?;
    Ok(are_doubled(&rows) && sum_of(&report) == right_sum())
}

fn passes(engine: &Engine) -> Result<bool> {
    let data = engine.resident(numbers())?;
    let job = Job::eval("sum(x), sum(x * c)")?.verify(fraction()).input("x", &data).scalar("c", 1.0);
    engine.passes(job, |passes| {
        for done in 1..=3 {
            if sum_of(&passes.run()?) != right_sum() {
                return Ok(false);
            }
            passes.set("c", f64::from(done))?;
        }
        Ok(true)
    })
}

fn kernels(engine: &Engine) -> Result<bool> {
    let x: Vec<f32> = (0..3 * 6000u16).map(f32::from).collect();
    let (mut y, mut z) = (vec![0.0; 6000], vec![0.0f32; 12_000]);
    engine.run(Job::kernel(everything()).verify(fraction()).input("x", &x).output("y", &mut y).output("z", &mut z))?;
    let is_right = |(i, x): (usize, &[f32; 3])| {
        y[i] == TABLE[i % 7] + f64::from(x[0] + x[1]) * f64::from(FACTOR) && z[2 * i..][..2] == [x[2], x[0]]
    };
    let everything = x.as_chunks::<3>().0.iter().enumerate().all(is_right);
    let (mut big, mut at) = (vec![0.0; ROWS], vec![0i64; ROWS]);
    let report = engine.run(
        Job::kernel(&keep()).verify(fraction()).input("x", numbers()).output("big", &mut big).output("where", &mut at),
    )?;
    let kept: Vec<f64> = numbers().iter().copied().filter(|x| *x > 50.0).collect();
    Ok(everything && report.outputs[0].rows == kept.len() as u64 && big[..kept.len()] == kept[..])
}

/// The words of chunks are zeroed before each kernel.
fn counts(engine: &Engine) -> Result<bool> {
    let job = Job::eval("h = histogram(x, 4, -100, 100); s = bincount(x > 0, 2, x)")?;
    let report = engine.run(job.verify(fraction()).input("x", numbers()))?;
    let mut bins = [0_i64; 4];
    numbers().iter().for_each(|x| bins[((x + 100.0) / 50.0) as usize] += 1);
    let array = report.array("h")?.and_then(|array| array.to_vec::<i64>());
    Ok(array.is_some_and(|found| found == bins))
}

/// Chunks that are larger than a slot: a tile of 16 rows has 512 KB.
fn fills(engine: &Engine) -> Result<bool> {
    let x = Array2::from_shape_vec((15, 4000), numbers().iter().map(|x| x.round()).collect()).unwrap();
    let wide = ndarray::concatenate(Axis(0), &[x.view(), x.view(), x.view()]).unwrap();
    let job = Job::eval("s = sum(x, axis=0)")?.verify(fraction()).input("x", Input::from(wide.view()));
    let report = engine.run(job)?;
    let sums = report.array("s")?.and_then(|array| array.to_vec::<f64>());
    Ok(sums == Some(wide.sum_axis(Axis(0)).to_vec()))
}

/// Products over the rows, and sums of rows by their keys: of whole numbers, so that they are exact. Those of `f32` are
/// small.
fn products(engine: &Engine) -> Result<bool> {
    let x = Array2::from_shape_vec((ROWS / 6, 6), numbers().iter().map(|x| x.round()).collect()).unwrap();
    let text = "g = x.T @ x; h = x.T @ (x + 1); k = onehot(i % 3, 3).T @ x; s = f32(sign(x)).T @ f32(sign(x))";
    let job = Job::eval(text)?.precision(Precision::Bf16x3).input("x", Input::from(x.view()));
    let report = engine.run(job)?;
    let right = |more: f64| -> Vec<f64> { x.t().dot(&x.map(|x| x + more)).into_iter().collect() };
    let of_key = |key: usize| x.slice(s![key..;3, ..]).sum_axis(Axis(0));
    let found = |label: &str| Ok::<_, overshot::Error>(report.array(label)?.and_then(|array| array.to_vec::<f64>()));
    let sums: Vec<f64> = (0..3).flat_map(of_key).collect();
    let signs = x.map(|x| if *x == 0.0 { 0.0 } else { x.signum() as f32 });
    let of_signs = report.array("s")?.and_then(|array| array.to_vec::<f32>());
    Ok(found("g")? == Some(right(0.0))
        && found("h")? == Some(right(1.0))
        && found("k")? == Some(sums)
        && of_signs == Some(signs.t().dot(&signs).into_iter().collect()))
}

/// Rows times a matrix: a kernel before, and one behind. All numbers are whole, so that products are exact.
fn multiplied(engine: &Engine) -> Result<bool> {
    let x = Array2::from_shape_vec((ROWS / 6, 6), numbers().iter().map(|x| x.round()).collect()).unwrap();
    let w = Array2::from_shape_fn((6, 3), |(row, column)| (row * 3 + column) as f64 - 8.0);
    let mut y = vec![0.0; ROWS / 6 * 3];
    let job = Job::eval("y = (x + 1) @ w - 5; s = sum((x + 1) @ w)")?.input("x", Input::from(x.view()));
    let report = engine.run(job.input("w", Input::from(w.view())).output("y", &mut y))?;
    let right = x.map(|x| x + 1.0).dot(&w);
    let sum = report.value("s")?.map(|sum| sum.as_f64());
    Ok(sum == Some(right.sum()) && right.iter().zip(&y).all(|(right, y)| right - 5.0 == *y))
}

/// The free memory and the load of the GPUs are unknown if the management library fails.
fn described(engine: &Engine) -> Result<bool> {
    let (devices, notes) = overshot::device::devices();
    Ok(!(devices.is_empty() && notes.is_empty()) && staged(engine)?)
}

/// A job. It returns whether its rows are right.
pub type Run = fn(&Engine) -> Result<bool>;

pub struct FaultyJob {
    pub name: &'static str,
    pub run: Run,
    pub survives: Survives,
}

/// Whether a job goes on if another device is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survives {
    Always,
    /// If a device fails in the pipeline, and not while the caller makes an array.
    InPipeline,
    /// Its rows stay on the devices.
    Never,
}

pub const JOBS: [FaultyJob; 12] = [
    FaultyJob { name: "staged", run: staged, survives: Survives::Always },
    FaultyJob { name: "files", run: files, survives: Survives::Always },
    FaultyJob { name: "pinned", run: pinned, survives: Survives::InPipeline },
    FaultyJob { name: "resident", run: resident, survives: Survives::Never },
    FaultyJob { name: "sharded", run: sharded, survives: Survives::Never },
    FaultyJob { name: "passes", run: passes, survives: Survives::Never },
    FaultyJob { name: "kernels", run: kernels, survives: Survives::Always },
    FaultyJob { name: "counts", run: counts, survives: Survives::Always },
    FaultyJob { name: "fills", run: fills, survives: Survives::Always },
    FaultyJob { name: "products", run: products, survives: Survives::Never },
    FaultyJob { name: "multiplied", run: multiplied, survives: Survives::Never },
    FaultyJob { name: "described", run: described, survives: Survives::Always },
];
