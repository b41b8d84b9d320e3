//! The jobs of the soak. Each says whether its rows are right.

use std::fs;
use std::path::{Path, PathBuf};

use overshot::testing::custom::keep;
use overshot::{CancelToken, DeviceChoice, Engine, Error, Job, Journal, Npy, Report, Result};

const TEXT: &str = "y = sqrt(x) * 2 + 1; sum(x), std(x)";

/// A job, and its name.
pub(crate) type Named = (&'static str, fn(&Engine, &Data) -> Result<bool>);

pub(crate) const JOBS: &[Named] = &[
    ("staged", staged),
    ("files", files),
    ("pinned", pinned),
    ("resident", resident),
    ("sharded", sharded),
    ("kernel", kernel),
    ("passes", passes),
    ("parts", parts),
    ("resumed", resumed),
];

/// The rows of all jobs, in memory and in a file, and their right results.
pub(crate) struct Data {
    x: Vec<f64>,
    y: Vec<f64>,
    results: Vec<u64>,
    kept: usize,
    input: PathBuf,
    outputs: PathBuf,
    cpu: Engine,
}

impl Data {
    pub(crate) fn new(folder: &Path, rows: usize) -> Result<Data> {
        let x: Vec<f64> = (0..rows as u64).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 7) as f64 % 100.0).collect();
        let y = x.iter().map(|x| x.sqrt() * 2.0 + 1.0).collect();
        let (input, outputs) = (folder.join("x.npy"), folder.join("outputs"));
        let cpu = Engine::builder().device(DeviceChoice::Cpu).build()?;
        fs::create_dir(&outputs).map_err(|error| Error::other(error.to_string()))?;
        let job = Job::eval("copy = x; sum(x), std(x)")?.input("x", &x).output("copy", Npy::create(&input));
        let results = bits(&cpu.run(job)?);
        let kept = x.iter().filter(|x| **x > 50.0).count();
        Ok(Data { x, y, results, kept, input, outputs, cpu })
    }

    /// Removes the outputs of a job, also those of one that failed.
    pub(crate) fn clean(&self) -> std::io::Result<()> {
        crate::paths(&self.outputs)?.iter().try_for_each(fs::remove_file)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.outputs.join(name)
    }

    /// Returns whether a file has the right rows.
    fn is_right_file(&self, path: &Path) -> Result<bool> {
        let mut y = vec![0.0; self.x.len()];
        self.cpu.run(Job::eval("back = y")?.input("y", Npy::open(path)?).output("back", &mut y))?;
        Ok(y == self.y)
    }

    fn are_right(&self, report: &Report) -> bool {
        bits(report) == self.results
    }
}

fn bits(report: &Report) -> Vec<u64> {
    report.results.iter().map(|(_, value)| value.map_or(0, |value| value.as_f64().to_bits())).collect()
}

fn staged(engine: &Engine, data: &Data) -> Result<bool> {
    let mut y = vec![0.0; data.x.len()];
    let report = engine.run(Job::eval(TEXT)?.input("x", &data.x).output("y", &mut y))?;
    Ok(y == data.y && data.are_right(&report))
}

fn files(engine: &Engine, data: &Data) -> Result<bool> {
    let path = data.path("y.npy");
    let report = engine.run(Job::eval(TEXT)?.input("x", Npy::open(&data.input)?).output("y", Npy::create(&path)))?;
    Ok(data.is_right_file(&path)? && data.are_right(&report))
}

fn pinned(engine: &Engine, data: &Data) -> Result<bool> {
    let (mut x, mut y) = (engine.pinned::<f64>(data.x.len())?, engine.pinned::<f64>(data.x.len())?);
    x.copy_from_slice(&data.x);
    let report = engine.run(Job::eval(TEXT)?.input("x", &x).output("y", &mut y))?;
    Ok(*y == *data.y && data.are_right(&report))
}

fn resident(engine: &Engine, data: &Data) -> Result<bool> {
    let x = engine.resident(&data.x)?;
    for _ in 0..3 {
        if !data.are_right(&engine.run(Job::eval("sum(x), std(x)")?.input("x", &x))?) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn sharded(engine: &Engine, data: &Data) -> Result<bool> {
    let (x, mut y) = (engine.shard(&data.x)?, engine.sharded::<f64>(data.x.len())?);
    let report = engine.run(Job::eval(TEXT)?.input("x", &x).output("y", &mut y))?;
    let mut rows = vec![0.0; data.x.len()];
    y.read(0, &mut rows)?;
    Ok(rows == data.y && data.are_right(&report))
}

fn kernel(engine: &Engine, data: &Data) -> Result<bool> {
    let (mut big, mut at) = (vec![0.0; data.x.len()], vec![0i64; data.x.len()]);
    let job = Job::kernel(&keep()).input("x", &data.x).output("big", &mut big).output("where", &mut at);
    let kept = engine.run(job)?.outputs[0].rows as usize;
    let is_right = |(at, big): (&i64, &f64)| *big > 50.0 && data.x[*at as usize] == *big;
    Ok(kept == data.kept && at[..kept].iter().zip(&big).all(is_right) && at[..kept].is_sorted())
}

fn passes(engine: &Engine, data: &Data) -> Result<bool> {
    let job = Job::eval("sum(x), std(x), sum(x * c)")?.input("x", &data.x).scalar("c", 1.0);
    engine.passes(job, |passes| {
        for done in 1..=3 {
            let right = bits(&passes.run()?);
            if right[..2] != data.results {
                return Ok(false);
            }
            passes.set("c", f64::from(done))?;
        }
        Ok(true)
    })
}

fn parts(engine: &Engine, data: &Data) -> Result<bool> {
    let path = data.path("y.npy");
    let job = || Ok::<_, Error>(Job::eval(TEXT)?.input("x", Npy::open(&data.input)?).output("y", Npy::create(&path)));
    let part = |part: u64| engine.run_rows(job()?, engine.rows_of_part(&job()?, part, 3)?);
    let mut all = part(1)?;
    all.merge(part(2)?)?;
    all.merge(part(0)?)?;
    Ok(data.are_right(&all.finish()?) && data.is_right_file(&path)?)
}

/// A run that is cancelled, and continued.
fn resumed(engine: &Engine, data: &Data) -> Result<bool> {
    let path = data.path("y.npy");
    let job = || Ok::<_, Error>(Job::eval(TEXT)?.input("x", Npy::open(&data.input)?).output("y", Npy::create(&path)));
    let token = CancelToken::new();
    let cancels = |progress: overshot::Progress| {
        if progress.done > progress.rows / 2 {
            token.cancel();
        }
    };
    let journal = Journal::beside(&path);
    let report = match engine.run_resumable(job()?.cancel_token(token.clone()).progress(cancels), &journal) {
        Err(Error::Cancelled { .. }) => engine.run_resumable(job()?, &journal)?,
        ended => ended?,
    };
    Ok(data.are_right(&report) && data.is_right_file(&path)?)
}
