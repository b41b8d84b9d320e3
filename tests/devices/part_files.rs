//! Files that the parts of a job write together: they have the bytes of one run, or they have no name.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::thread;

use overshot::io::{NewFile, Target};
use overshot::testing::custom::{FACTOR, everything, keep};
use overshot::{
    DeviceChoice, Dtype, Engine, Error, Job, JobError, Npy, Partial, PartialError, Raw, Report, Result, Sink,
};

use crate::harness::{Case, Module, NO_CASES, Outcome, numbers};
use crate::partials::{Random, TILE, merged};
use crate::rows::engine;

pub const MODULE: Module = Module { name: "part files", cases: CASES, ..NO_CASES };

const CASES: &[(&str, Case)] = &[
    ("parts of expressions write the files of one run", expressions),
    ("parts of kernels write the files of one run", kernels),
    ("threads write neighbouring rows at the same time", at_once),
    ("rows that are run again are the same", again),
    ("each part writes its rows of a slice", slices),
    ("nothing is named that is not complete", incomplete),
    ("files that were made again are not merged", made_again),
    ("a file that exists stays, unless it is to be replaced", existing),
    ("both outputs are named, or none", both_or_none),
    ("outputs that differ are other jobs", other_jobs),
    ("outputs that cannot be shared are refused", refused),
    ("a damaged partial is refused", damaged),
];

/// Divisions of every job on every device.
const DIVISIONS: u64 = 5;
const TEXT: &str = "y = x * 0.5 + i; b = x > 0; t = u8(i); sum(y), count(b)";

fn tested(dir: &Path) -> Vec<(&'static str, NewFile)> {
    vec![
        ("y", Npy::create(dir.join("y.npy"))),
        ("b", Raw::create(dir.join("b.raw"))),
        ("t", Npy::create(dir.join("t.npy")).dtype(Dtype::I16)),
    ]
}

fn with_outputs<'a>(job: Job<'a>, outputs: Vec<(&'static str, NewFile)>) -> Job<'a> {
    outputs.into_iter().fold(job, |job, (name, file)| job.output(name, file))
}

/// Returns the files of a directory, hidden ones too.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| (path.file_name().unwrap().into(), fs::read(&path).unwrap())).collect()
}

fn hidden(dir: &Path) -> Vec<PathBuf> {
    let mut names: Vec<PathBuf> =
        files(dir).into_keys().filter(|name| name.to_string_lossy().starts_with('.')).collect();
    names.sort();
    names
}

/// Runs the parts of a job in a random order, and finishes it.
fn in_parts<'a>(
    engines: [&Engine; 2],
    job: &dyn Fn() -> Result<Job<'a>>,
    mut ranges: Vec<Range<u64>>,
    random: &mut Random,
) -> Result<Report> {
    random.shuffle(&mut ranges);
    let mut partials = Vec::new();
    for range in ranges {
        let engine = engines[usize::from(random.below(4) == 0)];
        partials.push(Partial::from_bytes(&engine.run_rows(job()?, range)?.to_bytes())?);
    }
    random.shuffle(&mut partials);
    let group = 1 + random.below(5) as usize;
    let groups = partials.chunks(group).map(|group| merged(group.to_vec()));
    merged(groups.collect::<Result<_>>()?)?.finish()
}

fn same(report: &Report, whole: &Report) {
    let outputs = |report: &Report| -> Vec<_> {
        let outputs = report.outputs.iter();
        outputs.map(|output| (output.name.clone(), output.dtype, output.rows, output.bytes)).collect()
    };
    assert_eq!(outputs(report), outputs(whole));
    assert_eq!(format!("{:?}", report.results), format!("{:?}", whole.results));
    assert_eq!(report.computation, whole.computation);
}

fn expressions(choice: &DeviceChoice) -> Outcome {
    let (own, cpu) = (engine(choice), engine(&DeviceChoice::Cpu));
    let mut random = Random(11);
    for (rows, most) in [(0, 2), (1, 1), (5000, 3), (40 * TILE + 99, 30)] {
        let x = numbers(rows as usize, rows);
        let input = tempfile::tempdir()?;
        // A file has a shape, which its outputs have, too.
        let path = input.path().join("x.npy");
        own.run(Job::eval("x = z")?.input("z", &x).output("x", Npy::create(&path)))?;
        let one = tempfile::tempdir()?;
        let job = |dir: &Path| Ok(with_outputs(Job::eval(TEXT)?.input("x", Npy::open(&path)?), tested(dir)));
        let whole = own.run(job(one.path())?)?;
        for _ in 0..DIVISIONS {
            let dir = tempfile::tempdir()?;
            let ranges = random.division(rows, TILE, most);
            let report = in_parts([&own, &cpu], &|| job(dir.path()), ranges, &mut random)?;
            same(&report, &whole);
            assert!(files(dir.path()) == files(one.path()), "{rows} rows: {:?}", files(dir.path()).keys());
        }
    }
    Ok(())
}

fn kernels(choice: &DeviceChoice) -> Outcome {
    let (own, cpu) = (engine(choice), engine(&DeviceChoice::Cpu));
    let mut random = Random(5);
    let rows = 30_011u64;
    let (x, triples) = (numbers(rows as usize, 3), numbers(3 * rows as usize, 4));
    let triples: Vec<f32> = triples.into_iter().map(|x| x as f32).collect();
    type Of<'a> = &'a dyn Fn(&Path) -> Result<Job<'a>>;
    let selecting: Of<'_> = &|dir| {
        let (big, at) = (Npy::create(dir.join("big.npy")), Raw::create(dir.join("where.raw")));
        Ok(Job::kernel(&keep()).input("x", &x).output("big", big).output("where", at))
    };
    let several: Of<'_> = &|dir| {
        let (y, z) = (Raw::create(dir.join("y")), Npy::create(dir.join("z.npy")));
        Ok(Job::kernel(everything()).input("x", &triples).output("y", y).output("z", z))
    };
    for (job, tile) in [(selecting, 512), (several, 100)] {
        let one = tempfile::tempdir()?;
        let whole = own.run(job(one.path())?)?;
        for _ in 0..DIVISIONS {
            let dir = tempfile::tempdir()?;
            let ranges = random.division(rows, tile, 20);
            let report = in_parts([&own, &cpu], &|| job(dir.path()), ranges, &mut random)?;
            same(&report, &whole);
            assert!(files(dir.path()) == files(one.path()), "{:?}", files(dir.path()).keys());
        }
        let dir = tempfile::tempdir()?;
        let parts = (0..3).map(|part| own.rows_of_part(&job(dir.path())?, part, 3)).collect::<Result<_>>()?;
        same(&in_parts([&own, &own], &|| job(dir.path()), parts, &mut random)?, &whole);
        assert!(files(dir.path()) == files(one.path()));
    }
    // A kernel with another argument is another job.
    let dir = tempfile::tempdir()?;
    let mut all = own.run_rows(several(dir.path())?, 0..100)?;
    let (y, z) = (Raw::create(dir.path().join("y")), Npy::create(dir.path().join("z.npy")));
    // SAFETY: the kernel reads seven numbers.
    let other = unsafe { everything_with(FACTOR + 1.0) };
    let other = own.run_rows(Job::kernel(other).input("x", &triples).output("y", y).output("z", z), 100..rows)?;
    let error = all.merge(other).unwrap_err().to_string();
    assert!(error.contains("the values of its names"), "{error}");
    Ok(())
}

/// The kernel of the tests with another factor.
///
/// # Safety
/// None is needed: it is the kernel of the tests.
unsafe fn everything_with(factor: f32) -> overshot::kernel::Call {
    use overshot::kernel::CustomKernel;
    use overshot::testing::custom::{EVERYTHING, TABLE};
    // SAFETY: as in `everything`.
    let kernel = unsafe {
        let kernel = CustomKernel::cuda("everything.cu", EVERYTHING, "everything").unwrap();
        kernel.threads(64).rows_per_block(100)
    };
    let kernel = kernel.on_host(|_| {});
    // SAFETY: as in `everything`.
    unsafe { kernel.call().scalar("a", factor).resident("table", &TABLE) }.scratch("work")
}

fn at_once(choice: &DeviceChoice) -> Outcome {
    let rows = 64 * TILE + 7;
    let x = numbers(rows as usize, 2);
    let (one, dir) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let job = |dir: &Path| Ok::<_, Error>(with_outputs(Job::eval(TEXT)?.input("x", &x), tested(dir)));
    engine(choice).run(job(one.path())?)?;
    let partials: Vec<Partial> = thread::scope(|scope| {
        let run = |part| {
            let (job, dir) = (&job, &dir);
            scope.spawn(move || {
                let engine = engine(choice);
                let rows = engine.rows_of_part(&job(dir.path())?, part, 16)?;
                engine.run_rows(job(dir.path())?, rows)
            })
        };
        let threads: Vec<_> = (0..16).map(run).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Result<_>>()
    })?;
    merged(partials)?.finish()?;
    assert!(files(dir.path()) == files(one.path()), "{:?}", files(dir.path()).keys());
    Ok(())
}

/// A job on a folder, whose only file it writes.
fn small<'a>(x: &'a [f64], dir: &Path) -> Job<'a> {
    Job::eval("y = x + 1; max(x)").unwrap().input("x", x).output("y", Npy::create(dir.join("y.npy")))
}

fn again(choice: &DeviceChoice) -> Outcome {
    let (engine, dir) = (engine(choice), tempfile::tempdir()?);
    let x = numbers(3 * TILE as usize, 1);
    let first = engine.run_rows(small(&x, dir.path()), 0..TILE)?;
    let before = files(dir.path());
    let repeated = engine.run_rows(small(&x, dir.path()), 0..TILE)?;
    assert!(files(dir.path()) == before && before.len() == 1, "{:?}", before.keys());
    let rest = engine.run_rows(small(&x, dir.path()), TILE..3 * TILE)?;
    engine.run_rows(small(&x, dir.path()), 0..TILE)?;
    merged(vec![rest, repeated])?.finish()?;
    assert!(hidden(dir.path()).is_empty());
    // The file has its name: nothing is left to merge, and no part may be run again.
    let error = first.clone().finish().unwrap_err();
    assert!(matches!(error, Error::InvalidPartial(PartialError::Incomplete { .. })), "{error}");
    let error = engine.run_rows(small(&x, dir.path()), 0..TILE).unwrap_err().to_string();
    assert!(error.contains("y.npy: exists already"), "{error}");
    assert!(hidden(dir.path()).is_empty());
    Ok(())
}

fn slices(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice);
    let x = numbers(3 * TILE as usize + 5, 1);
    let (mut y, mut b) = (vec![0.0; x.len()], vec![false; x.len()]);
    let mut partials = Vec::new();
    for part in 0..3 {
        let job = Job::eval("y = x * 2; b = x > 0; sum(y)")?.input("x", &x).output("y", &mut y).output("b", &mut b[..]);
        let rows = engine.rows_of_part(&job, part, 3)?;
        partials.push(engine.run_rows(job, rows.clone())?);
        assert!(y[rows.end as usize..].iter().all(|y| *y == 0.0));
    }
    let report = merged(partials)?.finish()?;
    assert_eq!(report.outputs[0].bytes, 8 * x.len() as u64);
    assert!(x.iter().zip(&y).zip(&b).all(|((x, y), b)| *y == x * 2.0 && *b == (*x > 0.0)));
    Ok(())
}

fn incomplete(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice);
    let x = numbers(3 * TILE as usize, 1);
    let dir = tempfile::tempdir()?;
    let run = |rows| engine.run_rows(small(&x, dir.path()), rows);
    let mut all = run(0..TILE)?;
    let path = dir.path().join(&hidden(dir.path())[0]);
    assert!(matches!(all.clone().finish(), Err(Error::InvalidPartial(PartialError::Incomplete { .. }))));
    all.merge(run(TILE..3 * TILE)?)?;
    let length = fs::metadata(&path)?.len();
    for other in [length - 1, length + 1, 0] {
        OpenOptions::new().write(true).open(&path)?.set_len(other)?;
        let error = all.clone().finish().unwrap_err().to_string();
        assert!(error.contains(&format!("has {other} bytes, and not the {length} of this job")), "{error}");
        let error = run(0..TILE).unwrap_err().to_string();
        assert!(error.contains(&format!("has {other} bytes")), "{error}");
    }
    fs::remove_file(&path)?;
    let error = all.clone().finish().unwrap_err().to_string();
    assert!(error.contains("y.npy: the rows that the parts wrote are not there"), "{error}");
    assert!(files(dir.path()).is_empty(), "nothing is named");
    Ok(())
}

fn made_again(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice);
    let x = numbers(3 * TILE as usize, 1);
    let dir = tempfile::tempdir()?;
    let run = |rows| engine.run_rows(small(&x, dir.path()), rows);
    let (first, rest) = (run(0..TILE)?, run(TILE..3 * TILE)?);
    fs::remove_file(dir.path().join(&hidden(dir.path())[0]))?;
    let new = run(0..TILE)?;
    let error = merged(vec![first.clone(), rest.clone()])?.finish().unwrap_err().to_string();
    assert!(error.contains("is not the file that the parts wrote"), "{error}");
    let error = merged(vec![new.clone(), rest]).unwrap_err();
    assert!(
        matches!(&error, Error::InvalidPartial(PartialError::OtherFile { output, .. }) if output == "y"),
        "{error}"
    );
    merged(vec![new, run(TILE..3 * TILE)?])?.finish()?;
    assert_eq!(files(dir.path()).len(), 1);
    Ok(())
}

fn existing(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice);
    let x = numbers(2 * TILE as usize, 1);
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("y.npy");
    let job = |force| {
        let file = Npy::create(&path).force(force);
        Ok::<_, Error>(Job::eval("y = x + 1")?.input("x", &x).output("y", file))
    };
    fs::write(&path, b"old")?;
    let error = engine.run_rows(job(false)?, 0..TILE).unwrap_err().to_string();
    assert!(error.contains("exists already"), "{error}");
    assert_eq!(files(dir.path()).len(), 1, "no work was done");
    fs::remove_file(&path)?;
    let parts =
        |force| merged(vec![engine.run_rows(job(force)?, 0..TILE)?, engine.run_rows(job(force)?, TILE..2 * TILE)?]);
    let all = parts(false)?;
    fs::write(&path, b"other")?;
    let error = all.clone().finish().unwrap_err().to_string();
    let word = "y.npy: exists already; the rows of the merged parts are still in";
    assert!(error.contains(word), "{error}");
    assert_eq!(fs::read(&path)?, b"other");
    let replacing = parts(true)?;
    assert_eq!(fs::read(&path)?, b"other", "until it is merged");
    replacing.finish()?;
    let one = files(dir.path()).remove(Path::new("y.npy")).unwrap();
    fs::remove_file(&path)?;
    all.finish()?;
    assert_eq!(fs::read(&path)?, one);
    fs::remove_file(&path)?;
    engine.run(job(false)?)?;
    assert_eq!(fs::read(&path)?, one);
    assert_eq!(files(dir.path()).len(), 1);
    Ok(())
}

fn both_or_none(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice);
    let x = numbers(2 * TILE as usize, 1);
    for force in [false, true] {
        let dir = tempfile::tempdir()?;
        let (y, z) = (dir.path().join("y.npy"), dir.path().join("z.npy"));
        if force {
            fs::write(&y, b"old")?;
        }
        let job = || {
            let (y, z) = (Npy::create(&y).force(force), Npy::create(&z).force(force));
            Ok::<_, Error>(Job::eval("y = x + 1; z = x * x")?.input("x", &x).output("y", y).output("z", z))
        };
        let all = merged(vec![engine.run_rows(job()?, 0..TILE)?, engine.run_rows(job()?, TILE..2 * TILE)?])?;
        let names = hidden(dir.path());
        assert_eq!(names.len(), 2);
        // A directory cannot be replaced.
        fs::create_dir(&z)?;
        all.clone().finish().unwrap_err();
        assert_eq!(fs::read(&y).ok(), force.then(|| b"old".to_vec()));
        fs::remove_dir(&z)?;
        assert_eq!(hidden(dir.path()), names);
        all.finish()?;
        assert_eq!(hidden(dir.path()).len(), 0);
        let parts = files(dir.path());
        fs::remove_file(&y)?;
        fs::remove_file(&z)?;
        engine.run(job()?)?;
        assert!(parts == files(dir.path()));
    }
    Ok(())
}

fn other_jobs(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice);
    let x = numbers(2 * TILE as usize, 1);
    let dir = tempfile::tempdir()?;
    let job = |file: NewFile| Ok::<_, Error>(Job::eval("y = x + 1; max(y)")?.input("x", &x).output("y", file));
    let path = dir.path().join("y");
    let first = engine.run_rows(job(Raw::create(&path))?, 0..TILE)?;
    let rest = TILE..2 * TILE;
    for (other, difference) in [
        (job(Raw::create(dir.path().join("z")))?, "the output y: the path of its file"),
        (job(Raw::create(&path).force(true))?, "the output y: whether it replaces a file"),
        (job(Raw::create(&path).dtype(Dtype::F32))?, "the output y: its dtype"),
        (job(Npy::create(&path))?, "the output y: its file"),
        (Job::eval("y = x + 1; max(y)")?.input("x", &x), "the outputs: y here and  there"),
    ] {
        let error = first.clone().merge(engine.run_rows(other, rest.clone())?).unwrap_err().to_string();
        assert!(error.contains(difference), "{error}");
    }
    Ok(())
}

/// Takes rows, and says nothing of parts.
struct Nowhere;

impl Target for Nowhere {
    fn name(&self) -> String {
        "nowhere".into()
    }
    fn open<'s>(self: Box<Self>, _: Dtype, _: u64, _: Option<&[u64]>) -> Result<Box<dyn Sink + 's>> {
        Ok(self)
    }
}

impl Sink for Nowhere {
    fn write(&self, _: u64, _: &[u8]) -> Result<()> {
        Ok(())
    }
    fn commit(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

fn refused(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice);
    let x = numbers(2 * TILE as usize, 1);
    let error = engine.run_rows(Job::eval("y = x")?.input("x", &x).output("y", Nowhere), 0..TILE).unwrap_err();
    assert!(matches!(&error, Error::InvalidJob(JobError::PartialOutput { .. })), "{error}");
    let (mut big, mut at) = (vec![0.0; x.len()], vec![0i64; x.len()]);
    let job = Job::kernel(&keep()).input("x", &x).output("big", &mut big).output("where", &mut at);
    let error = engine.run_rows(job, 0..512).unwrap_err();
    assert!(matches!(&error, Error::InvalidJob(JobError::PartialSelection { .. })), "{error}");
    Ok(())
}

fn damaged(choice: &DeviceChoice) -> Outcome {
    let (engine, dir) = (engine(choice), tempfile::tempdir()?);
    let x = numbers(2 * TILE as usize, 1);
    let (big, at) = (Npy::create(dir.path().join("big.npy")), Raw::create(dir.path().join("where.raw")));
    let job = Job::kernel(&keep()).input("x", &x).output("big", big).output("where", at);
    let bytes = engine.run_rows(job, 512..1024)?.to_bytes();
    for bit in 0..bytes.len() * 8 {
        let mut other = bytes.clone();
        other[bit / 8] ^= 1 << (bit % 8);
        assert!(matches!(Partial::from_bytes(&other), Err(Error::InvalidPartial(_))), "bit {bit}");
    }
    assert_eq!(Partial::from_bytes(&bytes)?.to_bytes(), bytes);
    File::open(dir.path().join(&hidden(dir.path())[0]))?;
    Ok(())
}
