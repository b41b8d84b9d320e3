//! Code of the caller that panics: the job is an error that says whose code it was, and nothing else ends. Another job
//! of the same engine is at work meanwhile.

use std::sync::OnceLock;
use std::sync::mpsc::channel;
use std::thread;

use overshot::io::{Generator, Target};
use overshot::kernel::{CustomKernel, RowFunction};
use overshot::{DeviceChoice, Dtype, Engine, Error, Job, Journal, Npy, Result, Sink, Source};

use crate::harness::{Case, Module, NO_CASES, Outcome, check, engine};
use crate::rows::in_use;

pub const MODULE: Module = Module { name: "panics", cases: CASES, on_host: ON_HOST, ..NO_CASES };

const CASES: &[(&str, Case)] = &[
    ("a source panics", source),
    ("a generator panics", generator),
    ("a sink panics", sink),
    ("a progress function panics", progress),
    ("what is asked before and after the rows panics", around),
    ("parts, continued runs and passes", in_parts),
];

const ON_HOST: &[(&str, Case)] = &[("a closure panics", closure), ("a closure panics when it verifies", verifies)];

const ROWS: u64 = 100_000;
/// The row that panics.
const BAD: u64 = 50_000;

/// Panics if the bad row is among these.
fn visit(first: u64, rows: usize) {
    assert!(!(first..first + rows as u64).contains(&BAD), "row {BAD} is bad");
}

/// Rows of ones. What is named panics.
struct Ones(&'static str);

impl Source for Ones {
    fn dtype(&self) -> Dtype {
        Dtype::F64
    }

    fn rows(&self) -> u64 {
        assert!(self.0 != "rows", "no rows");
        ROWS
    }

    fn name(&self) -> String {
        assert!(self.0 != "name", "no name");
        "ones".into()
    }

    fn read(&self, first: u64, to: &mut [u8]) -> Result<()> {
        if ["read", "name"].contains(&self.0) {
            visit(first, to.len() / 8);
        }
        to.as_chunks_mut::<8>().0.fill(1f64.to_ne_bytes());
        Ok(())
    }
}

/// Takes rows. What is named panics.
struct Takes(&'static str);

impl Target for Takes {
    fn name(&self) -> String {
        "takes".into()
    }

    fn open<'s>(self: Box<Self>, _: Dtype, _: u64, _: Option<&[u64]>) -> Result<Box<dyn Sink + 's>>
    where
        Self: 's,
    {
        assert!(self.0 != "open", "not opened");
        Ok(self)
    }
}

impl Sink for Takes {
    fn write(&self, first: u64, bytes: &[u8]) -> Result<()> {
        if self.0 == "write" {
            visit(first, bytes.len() / 8);
        }
        Ok(())
    }

    fn commit(self: Box<Self>) -> Result<()> {
        assert!(self.0 != "commit", "not committed");
        Ok(())
    }
}

fn ones(first: u64, rows: &mut [f64]) {
    visit(first, rows.len());
    rows.fill(1.0);
}

/// An engine whose jobs have several chunks, and leave memory to each other.
fn small(choice: &DeviceChoice) -> Result<Engine> {
    engine(choice).chunk(100_000).workers(2).build()
}

/// Runs a job that panics while another one is at work on the same engine, which then ends, and one behind it. Returns
/// the error.
fn error_of(engine: &Engine, job: Job<'_>) -> Outcome<Error> {
    let (reads, is_reading) = channel();
    let has_panicked = OnceLock::new();
    let sum = |waits: bool| {
        let fill = |_: u64, rows: &mut [f64]| {
            if waits {
                let _ = reads.send(());
                has_panicked.wait();
            }
            rows.fill(2.0);
        };
        let job = Job::eval("sum(x)")?.input("x", Generator::new(ROWS, fill));
        Ok::<_, Error>(engine.run(job)?.value("sum(x)")?.map(|sum| sum.as_f64()))
    };
    let (other, error) = thread::scope(|scope| {
        let other = scope.spawn(|| sum(true));
        is_reading.recv().unwrap();
        let error = engine.run(job).err();
        has_panicked.set(()).unwrap();
        (other.join().unwrap(), error)
    });
    check(other? == Some(2.0 * ROWS as f64), "the other job is wrong")?;
    check(sum(false)? == Some(2.0 * ROWS as f64), "the next job is wrong")?;
    check(in_use(engine) == 0, "memory comes back")?;
    error.ok_or_else(|| "no error".into())
}

/// Checks that an error is that of the chunk with the bad row, and whose it was.
fn check_chunk(error: &Error, who: &str) -> Outcome {
    let Error::Chunk { rows, cause, .. } = error else { return Err(format!("no chunk: {error}").into()) };
    let Error::Panicked { whose, message } = &**cause else { return Err(format!("another error: {error}").into()) };
    check(rows.contains(&BAD), format!("other rows: {error}"))?;
    check(whose == who && message == "row 50000 is bad", error.to_string())
}

fn source(choice: &DeviceChoice) -> Outcome {
    let engine = small(choice)?;
    let error = error_of(&engine, Job::eval("sum(x)")?.input("x", Ones("read")))?;
    check_chunk(&error, "the source of input 'x' (ones)")?;
    let error = error_of(&engine, Job::eval("sum(x[x > 0]), median(x)")?.input("x", Ones("read")))?;
    check_chunk(&error, "the source of input 'x' (ones)")
}

fn generator(choice: &DeviceChoice) -> Outcome {
    let engine = small(choice)?;
    let error = error_of(&engine, Job::eval("sum(x)")?.input("x", Generator::new(ROWS, ones)))?;
    check_chunk(&error, "the source of input 'x' (generator)")
}

fn sink(choice: &DeviceChoice) -> Outcome {
    let engine = small(choice)?;
    let x = vec![1.0; ROWS as usize];
    for text in ["y = x + 1", "y = x[x > 0]"] {
        let error = error_of(&engine, Job::eval(text)?.input("x", &x).output("y", Takes("write")))?;
        check_chunk(&error, "the sink of output 'y'")?;
    }
    Ok(())
}

fn progress(choice: &DeviceChoice) -> Outcome {
    let engine = small(choice)?;
    let x = vec![1.0; ROWS as usize];
    for text in ["sum(x)", "y = x - mean(x); sum(y)"] {
        let job = Job::eval(text)?.input("x", &x).progress(|progress| assert!(progress.done < BAD, "row 50000 is bad"));
        let error = error_of(&engine, job)?.to_string();
        let is_told = error.contains(", chunk ") && error.contains("the progress function panicked: row 50000 is bad;");
        check(is_told, error)?;
    }
    Ok(())
}

/// There is no chunk to name, and the engine cannot tell whose code it was.
fn around(choice: &DeviceChoice) -> Outcome {
    let engine = small(choice)?;
    for (input, output, message) in
        [("rows", "", "no rows"), ("name", "", "no name"), ("", "open", "not opened"), ("", "commit", "not committed")]
    {
        let error = error_of(&engine, Job::eval("y = x")?.input("x", Ones(input)).output("y", Takes(output)))?;
        let text = error.to_string();
        check(text.contains("code of the job") && text.contains(&format!(" panicked: {message};")), text)?;
    }
    Ok(())
}

/// A function in Rust that panics at the bad row.
fn bad() -> CustomKernel {
    RowFunction::new("bad").input::<f64>("x").output::<f64>("y").run_indexed(|first, x, y| {
        visit(first, x.len());
        y.copy_from_slice(x);
    })
}

fn closure(choice: &DeviceChoice) -> Outcome {
    let engine = small(choice)?;
    let (x, kernel) = (vec![1.0; ROWS as usize], bad());
    let mut y = x.clone();
    let error = error_of(&engine, Job::kernel(&kernel).input("x", &x).output("y", &mut y))?;
    check_chunk(&error, "the function for the host of the kernel 'bad'")
}

/// It panics at the second of its calls for a row.
fn verifies(choice: &DeviceChoice) -> Outcome {
    let engine = small(choice)?;
    let x = vec![1.0; ROWS as usize];
    let mut y = x.clone();
    let seen = std::sync::atomic::AtomicBool::new(false);
    let kernel = RowFunction::new("late").input::<f64>("x").output::<f64>("y").run_indexed(move |first, x, y| {
        if (first..first + x.len() as u64).contains(&BAD) && seen.swap(true, std::sync::atomic::Ordering::SeqCst) {
            visit(first, x.len());
        }
        y.copy_from_slice(x);
    });
    let error = error_of(&engine, Job::kernel(&kernel).verify(1.0).input("x", &x).output("y", &mut y))?;
    check_chunk(&error, "the function for the host of the kernel 'late'")
}

fn in_parts(choice: &DeviceChoice) -> Outcome {
    let engine = small(choice)?;
    let job = || Ok::<_, Error>(Job::eval("sum(x)")?.input("x", Generator::new(ROWS, ones)));
    let who = "the source of input 'x' (generator)";
    check(engine.run_rows(job()?, 0..40_960).is_ok(), "rows before the bad one")?;
    let error = engine.run_rows(job()?, 40_960..ROWS).err().ok_or("no error in a part")?;
    check_chunk(&error, who)?;
    let dir = tempfile::tempdir()?;
    let y = dir.path().join("y.npy");
    let job = Job::eval("y = x")?.input("x", Generator::new(ROWS, ones)).output("y", Npy::create(&y));
    let error = engine.run_resumable(job, &Journal::beside(&y)).err().ok_or("no error in a run with a journal")?;
    check_chunk(&error, who)?;
    check(!y.exists(), "an output has its name")?;
    let job = Job::eval("sum(x * s)")?.scalar("s", 1.0).input("x", Generator::new(ROWS, ones));
    let error = engine.passes(job, |passes| passes.run()).err().ok_or("no error in a pass")?;
    check_chunk(&error, who)?;
    check(in_use(&engine) == 0, "memory comes back")
}
