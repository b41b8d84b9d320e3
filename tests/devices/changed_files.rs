//! Input files that change while they are read: a run is an error or has the rows that the file had, never others.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Once;
use std::time::{Duration, SystemTime};

use overshot::io::ReadMode;
use overshot::{DeviceChoice, Dtype, Engine, Error, Input, Job, Npy, Raw, Result, Source};

use crate::harness::{Case, Module, NO_CASES, Outcome, check, numbers};

pub const MODULE: Module = Module { name: "changed files", cases: CASES, ..NO_CASES };

const CASES: &[(&str, Case)] = &[
    ("a file that changes while it is read is an error", changes),
    ("a file that is removed or replaced while it is read is read to its end", replaced),
    ("a run begins with the rows of now", between_runs),
    ("the folder of an output vanishes", vanished),
];

const ROWS: usize = 100_000;

/// A source of zeros that does something when its first rows are read.
struct Disturbs<'a> {
    once: Once,
    what: &'a (dyn Fn() + Send + Sync),
}

impl Source for Disturbs<'_> {
    fn dtype(&self) -> Dtype {
        Dtype::F64
    }

    fn rows(&self) -> u64 {
        ROWS as u64
    }

    fn name(&self) -> String {
        "zeros".into()
    }

    fn read(&self, _: u64, to: &mut [u8]) -> Result<()> {
        self.once.call_once(self.what);
        to.fill(0);
        Ok(())
    }
}

/// Writes a file whose last change was long ago, so that the clock of the file system tells the next one.
fn write(path: &Path, rows: &[f64]) {
    let mut bytes = Vec::new();
    if path.extension().is_some_and(|extension| extension == "npy") {
        let header = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': ({},), }}", rows.len());
        bytes.extend(b"\x93NUMPY\x01\x00\x76\x00");
        bytes.extend(format!("{header:<117}\n").as_bytes());
    }
    bytes.extend_from_slice(bytemuck::cast_slice(rows));
    fs::write(path, bytes).unwrap();
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    File::options().write(true).open(path).unwrap().set_modified(long_ago).unwrap();
}

fn open(path: &Path, mode: Option<ReadMode>) -> Result<Input<'static>> {
    let is_npy = path.extension().is_some_and(|extension| extension == "npy");
    Ok(match (is_npy, mode) {
        (true, Some(mode)) => Npy::open_with(path, mode)?.into(),
        (false, Some(mode)) => Raw::open_with(path, Dtype::F64, mode)?.into(),
        // SAFETY: the cases that map a file only overwrite bytes, by a system call. The map's contract forbids this to
        // users, because rows may be old or new; no row of this library depends on another.
        (true, None) => unsafe { Npy::map(path) }?.into(),
        // SAFETY: as above.
        (false, None) => unsafe { Raw::map(path, Dtype::F64) }?.into(),
    })
}

/// Runs a job on the file, during which something happens. Returns the rows.
fn run(choice: &DeviceChoice, x: Input<'_>, what: &(dyn Fn() + Send + Sync)) -> Result<Vec<f64>> {
    let engine = Engine::builder().device(choice.clone()).chunk(200_000).workers(2).build()?;
    let mut y = vec![0.0; ROWS];
    let zeros = Input::from(Disturbs { once: Once::new(), what });
    engine.run(Job::eval("y = x + z")?.input("x", x).input("z", zeros).output("y", &mut y))?;
    Ok(y)
}

const MODES: [Option<ReadMode>; 3] = [Some(ReadMode::Pread), Some(ReadMode::Direct), None];

fn changes(choice: &DeviceChoice) -> Outcome {
    let (folder, rows) = (tempfile::tempdir()?, numbers(ROWS, 1));
    for name in ["x.npy", "x.f64"] {
        let path = folder.path().join(name);
        let file = || File::options().write(true).open(&path).unwrap();
        let overwrites = || file().write_all_at(&[0; 8], 8 * 50_000).unwrap();
        let grows = || file().write_all_at(&[0; 80], 2 + 8 * ROWS as u64 + 128).unwrap();
        let shrinks = || file().set_len(8 * 50_000).unwrap();
        let is_touched = || file().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        let all: [(&str, &(dyn Fn() + Send + Sync)); 4] =
            [("overwritten", &overwrites), ("longer", &grows), ("shorter", &shrinks), ("touched", &is_touched)];
        for (what, change) in all {
            // A map of a file that becomes shorter ends the process (`a file that becomes shorter` of the command).
            for mode in MODES.into_iter().filter(|mode| mode.is_some() || what != "shorter") {
                write(&path, &rows);
                let error = run(choice, open(&path, mode)?, change).err().ok_or(format!("{name}, {what}: no error"))?;
                let text = error.to_string();
                let is_told = text.contains("changed during the run") || text.contains("became shorter than");
                check(is_told && text.contains(name), format!("{name}, {mode:?}, {what}: {text}"))?;
            }
        }
    }
    Ok(())
}

fn replaced(choice: &DeviceChoice) -> Outcome {
    let (folder, rows) = (tempfile::tempdir()?, numbers(ROWS, 2));
    for name in ["x.npy", "x.f64"] {
        let (path, other) = (folder.path().join(name), folder.path().join(format!("other-{name}")));
        let is_removed = || fs::remove_file(&path).unwrap();
        let is_replaced = || fs::rename(&other, &path).unwrap();
        for mode in MODES {
            for change in [&is_removed as &(dyn Fn() + Send + Sync), &is_replaced] {
                write(&path, &rows);
                write(&other, &[0.0; ROWS]);
                let y = run(choice, open(&path, mode)?, change)?;
                check(y == rows, format!("{name}, {mode:?}: other rows"))?;
            }
        }
    }
    Ok(())
}

/// An error names the output, nothing appears, and the next run works.
fn vanished(choice: &DeviceChoice) -> Outcome {
    let (beside, rows) = (tempfile::tempdir()?, numbers(ROWS, 3));
    let folder = beside.path().join("out");
    let engine = Engine::builder().device(choice.clone()).chunk(200_000).workers(2).build()?;
    let run = |name: &str, what: &(dyn Fn() + Send + Sync)| {
        let y = folder.join(name);
        let y = if name == "y.npy" { Npy::create(y) } else { Raw::create(y) };
        let zeros = Input::from(Disturbs { once: Once::new(), what });
        engine.run(Job::eval("y = x + z")?.input("x", &rows).input("z", zeros).output("y", y))
    };
    let (vanishes, moves) = (
        || fs::remove_dir_all(&folder).unwrap(),
        || {
            fs::rename(&folder, beside.path().join("elsewhere")).unwrap();
        },
    );
    for name in ["y.npy", "y.f64"] {
        for what in [&vanishes as &(dyn Fn() + Send + Sync), &moves] {
            fs::create_dir(&folder)?;
            let error = run(name, what).map(|_| ()).err().ok_or("no error")?.to_string();
            let path = folder.join(name);
            check(error.contains(&format!("{}: ", path.display())), format!("names no output: {error}"))?;
            check(!folder.exists(), "the folder is back")?;
            let elsewhere = beside.path().join("elsewhere");
            if elsewhere.exists() {
                check(!elsewhere.join(name).exists(), "an output appeared")?;
                fs::remove_dir_all(&elsewhere)?;
            }
            fs::create_dir(&folder)?;
            run(name, &|| ())?;
            check(path.exists(), "the next run has no output")?;
            fs::remove_dir_all(&folder)?;
        }
    }
    Ok(())
}

fn between_runs(choice: &DeviceChoice) -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("x.f64");
    let engine = Engine::builder().device(choice.clone()).build()?;
    write(&path, &[1.0; 1000]);
    let x = Raw::open(&path, Dtype::F64)?;
    let sum = || Ok::<_, Error>(engine.run(Job::eval("sum(x)")?.input("x", &x))?.value("sum(x)").unwrap());
    check(sum()?.is_some_and(|sum| sum.as_f64() == 1000.0), "the first sum")?;
    write(&path, &[2.0; 1000]);
    check(sum()?.is_some_and(|sum| sum.as_f64() == 2000.0), "the second sum")
}
