//! Runs with a journal: however they are interrupted, they end with the bytes of one run.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ndarray::Array2;
use overshot::{
    CancelToken, DeviceChoice, Engine, Error, Input, Job, JobError, Journal, Npy, Partial, Raw, Report, Result,
    testing::custom::keep,
};

use crate::harness::{Case, Module, NO_CASES, Outcome, numbers};
use crate::partials::{Random, TILE};
use crate::rows::engine;
use crate::tables;

pub const MODULE: Module = Module { name: "resumed runs", cases: CASES, ..NO_CASES };

const CASES: &[(&str, Case)] = &[
    ("a run that is stopped again and again ends with the bytes of one run", stopped),
    ("a kernel or a filter that selects rows continues", selecting),
    ("products continue", products),
    ("a journal stays small", small_journal),
    ("a run that fails at once leaves no journal", failed_at_once),
    ("a job without outputs continues", without_outputs),
    ("a journal that does not fit is refused", refused),
    ("outputs that are not files are refused", slices),
];

const TEXT: &str = "y = x * 0.5 + i; t = u8(i); sum(y), std(y), argmax(y)";

fn job<'a>(x: &'a [f64], dir: &Path) -> Result<Job<'a>> {
    let (y, t) = (Npy::create(dir.join("y.npy")), Raw::create(dir.join("t.raw")));
    Ok(Job::eval(TEXT)?.input("x", x).output("y", y).output("t", t))
}

fn journal(dir: &Path) -> Journal {
    Journal::beside(dir.join("y.npy")).every(Duration::ZERO)
}

/// All files of a directory, by name.
fn files(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut paths: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.file_name().unwrap().into(), fs::read(&path).unwrap())).collect()
}

/// Runs a job until it has done so many rows. Returns the report if it ended before.
fn until(engine: &Engine, job: Job<'_>, journal: &Journal, rows: u64) -> Result<Option<Report>> {
    let token = CancelToken::new();
    let stop = token.clone();
    let job = job.cancel_token(token).progress(move |progress| {
        if progress.done >= rows {
            stop.cancel();
        }
    });
    match engine.run_resumable(job, journal) {
        Ok(report) => Ok(Some(report)),
        Err(Error::Cancelled { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A job that writes to a directory.
type JobIn<'a> = &'a dyn Fn(&Path) -> Result<Job<'a>>;

fn ends_as_one_run(engine: &Engine, rows: u64, job: JobIn<'_>) -> Outcome {
    let one = tempfile::tempdir()?;
    let whole = engine.run(job(one.path())?)?;
    let mut random = Random(rows + 3);
    for _ in 0..4 {
        let dir = tempfile::tempdir()?;
        let mut runs = 0;
        let report = loop {
            runs += 1;
            assert!(runs < 100, "it never ends");
            let done = fs::read(journal(dir.path()).path()).ok().filter(|content| !content.is_empty());
            let done = done.map(|content| Partial::from_bytes(&content)).transpose()?;
            let done = done.map_or(0, |done| done.rows().iter().map(|rows| rows.end - rows.start).sum());
            let stop = done + 1 + random.below((8 * TILE).max(rows / 3));
            if let Some(report) = until(engine, job(dir.path())?, &journal(dir.path()), stop)? {
                break report;
            }
            assert!(!dir.path().join("y.npy").exists());
        };
        assert!(runs > 1 || rows <= 8 * TILE, "it was never stopped");
        assert_eq!(format!("{:?}", report.results), format!("{:?}", whole.results));
        assert_eq!(format!("{:?}", report.arrays), format!("{:?}", whole.arrays));
        assert!(files(dir.path()) == files(one.path()), "{rows} rows, {runs} runs");
        let note = report.notes.iter().any(|note| note.contains("were complete in an earlier run"));
        assert!(note || runs == 1 || rows <= 8 * TILE, "{:?}", report.notes);
    }
    Ok(())
}

fn stopped(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice);
    for rows in [0, 1, 5000, 40 * TILE + 99] {
        let x = numbers(rows as usize, rows);
        ends_as_one_run(&engine, rows, &|dir| job(&x, dir))?;
    }
    // Stopped when all rows are complete, but no output has its name.
    let (x, dir) = (numbers(20 * TILE as usize, 2), tempfile::tempdir()?);
    assert!(until(&engine, job(&x, dir.path())?, &journal(dir.path()), 20 * TILE)?.is_none());
    assert!(!dir.path().join("y.npy").exists() && journal(dir.path()).path().exists());
    let report = engine.run_resumable(job(&x, dir.path())?, &journal(dir.path()))?;
    assert!(report.notes.iter().any(|note| note.starts_with("81,920 rows were complete")), "{:?}", report.notes);
    Ok(())
}

fn selecting(choice: &DeviceChoice) -> Outcome {
    let x = numbers(30 * TILE as usize + 11, 3);
    ends_as_one_run(&engine(choice), x.len() as u64, &|dir| {
        let (big, at) = (Npy::create(dir.join("y.npy")), Raw::create(dir.join("where.raw")));
        Ok(Job::kernel(&keep()).input("x", &x).output("big", big).output("where", at))
    })?;
    ends_as_one_run(&engine(choice), x.len() as u64, &|dir| {
        let job = Job::eval("y = x[x > 50]; t = i[x > 50]; mean(y), std(x[x < 0]), max(x[x > 99])")?.input("x", &x);
        Ok(job.output("y", Npy::create(dir.join("y.npy"))).output("t", Raw::create(dir.join("t.raw"))))
    })
}

fn products(choice: &DeviceChoice) -> Outcome {
    if !tables::has_room(choice)? {
        return Ok(());
    }
    let engine = tables::builder(choice).chunk(1 << 20).build()?;
    // Parts of such a job begin at multiples of 65 536 rows.
    let rows = 5 * 65_536 + 11;
    let x = Array2::from_shape_vec((rows, 3), numbers(3 * rows, 4))?;
    let w = Array2::from_shape_vec((3, 2), numbers(6, 5))?;
    ends_as_one_run(&engine, rows as u64, &|dir| {
        let job = Job::eval("y = x @ w; g = x.T @ (x @ w); sum(y, axis=0)")?.input("x", Input::from(x.view()));
        Ok(job.input("w", Input::from(w.view())).output("y", Npy::create(dir.join("y.npy"))))
    })
}

/// The journal of a kernel that selects rows has no list of them, and what a killed process left of it is removed.
fn small_journal(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice);
    let x = numbers(80 * TILE as usize, 3);
    let dir = tempfile::tempdir()?;
    let journal = journal(dir.path());
    let job = || Job::kernel(&keep()).input("x", &x).output("big", Npy::create(dir.path().join("y.npy")));
    let job = || job().output("where", Raw::create(dir.path().join("where.raw")));
    let left = dir.path().join("..y.npy.journal.abc123.partial");
    let mut sizes = Vec::new();
    for rows in [10 * TILE, 60 * TILE] {
        assert!(until(&engine, job(), &journal, rows)?.is_none());
        assert!(!left.exists());
        fs::write(&left, "half of a journal")?;
        sizes.push(fs::metadata(journal.path())?.len());
    }
    // Numbers of more digits.
    assert!(sizes[1] < sizes[0] + 200, "{sizes:?}");
    Ok(())
}

/// A run that fails before it has written its journal leaves none, and changes no file that exists.
fn failed_at_once(choice: &DeviceChoice) -> Outcome {
    let (engine, dir) = (engine(choice), tempfile::tempdir()?);
    let x = numbers(TILE as usize, 1);
    fs::write(dir.path().join("y.npy"), "of another one")?;
    let before = files(dir.path());
    let error = engine.run_resumable(job(&x, dir.path())?, &journal(dir.path())).unwrap_err().to_string();
    assert!(error.contains("exists already"), "{error}");
    assert!(files(dir.path()) == before);
    Ok(())
}

fn without_outputs(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice);
    let dir = tempfile::tempdir()?;
    let journal = Journal::at(dir.path().join("journal")).every(Duration::ZERO);
    let job = || Job::eval("sum(i), std(i)").map(|job| job.rows(20 * TILE));
    let whole = engine.run(job()?)?;
    assert!(until(&engine, job()?, &journal, 7 * TILE)?.is_none());
    assert!(journal.path().exists());
    let report = engine.run_resumable(job()?, &journal)?;
    assert_eq!((report.results, files(dir.path())), (whole.results, vec![]));
    Ok(())
}

fn refused(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice);
    let rows = 20 * TILE;
    let x = numbers(rows as usize, 1);
    let dir = tempfile::tempdir()?;
    let journal = journal(dir.path());
    let says = |job: Job<'_>, text: &str| {
        let before = files(dir.path());
        let error = engine.run_resumable(job, &journal).unwrap_err().to_string();
        assert!(error.contains(text) && error.contains(".y.npy.journal"), "{error}");
        assert!(files(dir.path()) == before, "a refused run changes nothing");
    };
    assert!(until(&engine, job(&x, dir.path())?, &journal, 9 * TILE)?.is_none());
    let content = fs::read(journal.path())?;
    let rows_done = Partial::from_bytes(&content)?.rows().to_vec();
    assert!(rows_done.len() == 1 && rows_done[0].start == 0 && rows_done[0].end >= TILE, "{rows_done:?}");

    let mut changed = x.clone();
    changed[5] += 1.0;
    says(job(&changed, dir.path())?, "another run: they differ in the input x: its values");
    let other = Job::eval("y = x; sum(y)")?.input("x", &x).output("y", Npy::create(dir.path().join("y.npy")));
    says(other, "another run: they differ in the expression");
    let open = File::open(journal.path())?;
    open.lock()?;
    says(job(&x, dir.path())?, "another run has this journal open");
    drop(open);

    // The same code reads it on every device, so that one device has all bits, and the others one of each byte.
    let mut random = Random(9);
    let is_all = *choice == DeviceChoice::Cpu;
    for bit in (0..content.len() * 8).filter(|bit| is_all || bit % 8 == 0) {
        let bit = if is_all { bit } else { bit + random.below(8) as usize };
        let mut damaged = content.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        fs::write(journal.path(), &damaged)?;
        let error = engine.run_resumable(job(&x, dir.path())?, &journal).unwrap_err().to_string();
        assert!(error.contains("remove it to begin anew"), "bit {bit}: {error}");
    }
    fs::write(journal.path(), &content)?;

    // The rows were removed, or made again by another run.
    let hidden = files(dir.path()).into_iter().find(|(name, _)| name.to_string_lossy().starts_with(".t.raw."));
    let (hidden, rows) = hidden.ok_or("there is no hidden file")?;
    fs::remove_file(dir.path().join(&hidden))?;
    says(job(&x, dir.path())?, "the rows of 't' that this journal stands for were removed");
    fs::write(dir.path().join(&hidden), rows)?;
    assert!(until(&engine, job(&x, dir.path())?, &journal, u64::MAX)?.is_some());
    Ok(())
}

fn slices(choice: &DeviceChoice) -> Outcome {
    let dir = tempfile::tempdir()?;
    let mut y = vec![0.0; 3];
    let job = Job::eval("y = i * 0.5")?.output("y", &mut y);
    let error = engine(choice).run_resumable(job, &Journal::at(dir.path().join("j"))).unwrap_err();
    assert!(matches!(error, Error::InvalidJob(JobError::ResumableOutput { .. })), "{error}");
    assert_eq!(files(dir.path()), []);
    Ok(())
}
