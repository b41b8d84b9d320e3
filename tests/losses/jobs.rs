//! The jobs that lose power. A job runs in a process of its own: this program, started again.

use std::env;
use std::error::Error;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use overshot::testing::custom::keep;
use overshot::{DeviceChoice, Dtype, Engine, Job, Journal, Npy, Partial, Raw, Source};

/// What a job or its preparation returns.
pub type Done = Result<(), Box<dyn Error>>;

pub struct LostJob {
    pub name: &'static str,
    /// Makes the files that are there before, in the folder and in one that loses nothing.
    pub prepare: fn(&Path, &Path) -> Done,
    pub run: fn(&Path, &Path) -> Done,
    /// Whether it replaces files. Then an old file may stay under a temporary name, which a note tells.
    pub replaces: bool,
    /// Whether it writes rows, which may be lost.
    pub writes: bool,
}

/// A job that writes rows into new files.
const JOB: LostJob = LostJob { name: "", prepare: nothing, run: nothing, replaces: false, writes: true };

pub const JOBS: &[LostJob] = &[
    LostJob { name: "two outputs", run: |folder, _| two_outputs(folder, false), ..JOB },
    LostJob {
        name: "two outputs are replaced",
        prepare: old,
        run: |folder, _| two_outputs(folder, true),
        replaces: true,
        ..JOB
    },
    LostJob { name: "a kernel that selects rows", run: selecting, ..JOB },
    LostJob { name: "a journal elsewhere", run: journal_elsewhere, ..JOB },
    LostJob { name: "a merge", prepare: parts, run: merge, writes: false, ..JOB },
];

/// It is run once: there is nothing to continue.
pub const DURABLE: LostJob = LostJob { name: "outputs with fsync", run: |folder, _| durable(folder), ..JOB };

/// A job that notes which rows it reads, in a file that loses nothing.
pub const COUNTED: LostJob = LostJob { name: "counted rows", run: counted, ..JOB };

pub const TILE: u64 = 4096;
const ROWS: u64 = 12 * TILE + 77;
const TEXT: &str = "y = x * 0.5 + i; t = u8(i); sum(y), std(y), argmax(y)";

/// Of the CPU, or of the devices that `LOSSES_DEVICE` names.
fn engine() -> overshot::Result<Engine> {
    let device = env::var("LOSSES_DEVICE").map_or(Ok(DeviceChoice::Cpu), |device| device.parse())?;
    Engine::builder().device(device).build()
}

fn numbers() -> Vec<f64> {
    (0..ROWS).map(|row| (row * 7919 % 101) as f64).collect()
}

fn nothing(_: &Path, _: &Path) -> Done {
    Ok(())
}

fn old(folder: &Path, _: &Path) -> Done {
    fs::write(folder.join("y.npy"), b"old")?;
    Ok(fs::write(folder.join("t.raw"), vec![7; 10_000])?)
}

fn expression<'a>(x: &'a [f64], folder: &Path, force: bool) -> overshot::Result<Job<'a>> {
    let (y, t) = (Npy::create(folder.join("y.npy")).force(force), Raw::create(folder.join("t.raw")).force(force));
    Ok(Job::eval(TEXT)?.input("x", x).output("y", y).output("t", t))
}

fn journal(folder: &Path) -> Journal {
    Journal::beside(folder.join("y.npy")).every(Duration::ZERO)
}

fn two_outputs(folder: &Path, force: bool) -> Done {
    engine()?.run_resumable(expression(&numbers(), folder, force)?, &journal(folder))?;
    Ok(())
}

/// The journal loses its names apart from the outputs.
fn journal_elsewhere(folder: &Path, _: &Path) -> Done {
    let journal = Journal::at(folder.join("journals/j")).every(Duration::ZERO);
    engine()?.run_resumable(expression(&numbers(), folder, false)?, &journal)?;
    Ok(())
}

/// Rows that note when they are read.
struct Counted(File);

impl Source for Counted {
    fn dtype(&self) -> Dtype {
        Dtype::F64
    }
    fn rows(&self) -> u64 {
        ROWS
    }
    fn name(&self) -> String {
        "counted rows".into()
    }
    fn read(&self, first: u64, dst: &mut [u8]) -> overshot::Result<()> {
        let rows = dst.as_chunks_mut::<8>().0;
        // One call for each line, because several threads read.
        let line = format!("{first} {}\n", first + rows.len() as u64);
        (&self.0).write_all(line.as_bytes()).expect("the file takes a line");
        rows.iter_mut().zip(first..).for_each(|(bytes, row)| *bytes = (row as f64).to_ne_bytes());
        Ok(())
    }
    fn identity(&self) -> Option<&str> {
        // Without one, samples would be read.
        Some("counted")
    }
}

fn counted(folder: &Path, beside: &Path) -> Done {
    let x = Counted(File::options().create(true).append(true).open(beside.join("read"))?);
    let job = Job::eval("y = x + 1; sum(y)")?.input("x", x).output("y", Npy::create(folder.join("y.npy")));
    engine()?.run_resumable(job, &journal(folder))?;
    Ok(())
}

fn durable(folder: &Path) -> Done {
    let x = numbers();
    let (y, t) = (Npy::create(folder.join("y.npy")).fsync(true), Raw::create(folder.join("t.raw")).fsync(true));
    engine()?.run(Job::eval(TEXT)?.input("x", &x).output("y", y).output("t", t))?;
    Ok(())
}

fn selecting(folder: &Path, _: &Path) -> Done {
    let x = numbers();
    let (big, at) = (Npy::create(folder.join("y.npy")), Raw::create(folder.join("where.raw")));
    let job = Job::kernel(&keep()).input("x", &x).output("big", big).output("where", at);
    engine()?.run_resumable(job, &journal(folder))?;
    Ok(())
}

fn parts(folder: &Path, beside: &Path) -> Done {
    let (engine, x) = (engine()?, numbers());
    for part in 0..2 {
        let job = expression(&x, folder, false)?;
        let rows = engine.rows_of_part(&job, part, 2)?;
        fs::write(beside.join(format!("p{part}")), engine.run_rows(job, rows)?.to_bytes())?;
    }
    Ok(())
}

fn merge(_: &Path, beside: &Path) -> Done {
    let mut all = Partial::from_bytes(&fs::read(beside.join("p0"))?)?;
    all.merge(Partial::from_bytes(&fs::read(beside.join("p1"))?)?)?;
    all.finish()?;
    Ok(())
}
