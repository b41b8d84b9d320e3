//! Checksums of outputs of every kind are those of their bytes, on every device and for every chunk size.

use std::fs;

use overshot::io::{ColumnError, RawArrayMut};
use overshot::testing::custom::keep;
use overshot::{
    DeviceChoice, Dtype, Engine, Error, Job, JobError, Journal, Npy, Partial, PartialError, Raw, Report, Result, Sink,
    io::Target,
};

use crate::harness::{Case, Module, NO_CASES, Outcome, check, engine, numbers};
use crate::rows;

pub const MODULE: Module = Module { name: "checksums", cases: CASES, ..NO_CASES };

const CASES: &[(&str, Case)] = &[
    ("files, slices and arrays of any strides", outputs),
    ("rows that stay on devices", on_devices),
    ("rows that a kernel selects", selected),
    ("parts, and runs with a journal", in_parts),
    ("outputs that cannot be read back are refused before the run", refused),
    ("no output gets its name if one cannot be read after all", unreadable),
];

fn hash(bytes: &[u8]) -> Option<String> {
    Some(blake3::hash(bytes).to_string())
}

fn checksums(report: Report) -> Vec<Option<String>> {
    report.outputs.into_iter().map(|output| output.checksum).collect()
}

fn outputs(choice: &DeviceChoice) -> Outcome {
    let dir = tempfile::tempdir()?;
    // More than one piece of 4 MiB.
    let x = numbers(700_000, 1);
    let paths = ["a.npy", "b.raw"].map(|name| dir.path().join(name));
    for chunk in [100_000, 1 << 20] {
        let engine = engine(choice).chunk(chunk).build()?;
        let (mut c, mut d, mut e) = (vec![0.0; x.len()], vec![false; x.len()], vec![0.0; 2 * x.len()]);
        // SAFETY: every second element of a vector that nobody else uses during the run.
        let every_second = unsafe { RawArrayMut::new(e.as_mut_ptr().cast(), Dtype::F64, &[x.len() as u64], &[16]) };
        let job = Job::eval("a = x + 1; b = i16(i); c = x * x; d = x > 0; e = -x")?.input("x", &x).checksum(true);
        let job = job.output("a", Npy::create(&paths[0]).force(true)).output("b", Raw::create(&paths[1]).force(true));
        let job = job.output("c", &mut c).output("d", &mut d).output("e", every_second);
        let report = engine.run(job)?;
        check(report.checksum_time <= report.total_time, "the time is part of the whole time")?;
        let minus: Vec<u8> = x.iter().flat_map(|x| (-x).to_ne_bytes()).collect();
        let expected = [
            hash(&fs::read(&paths[0])?),
            hash(&fs::read(&paths[1])?),
            hash(bytemuck::cast_slice(&c)),
            hash(bytemuck::cast_slice(&d)),
            hash(&minus),
        ];
        check(checksums(report) == expected, format!("chunks of {chunk} bytes"))?;
    }
    let report =
        engine(choice).build()?.run(Job::eval("c = 2 * x")?.input("x", &x).output("c", &mut vec![0.0; x.len()]))?;
    check(checksums(report) == [None], "no checksum without asking")
}

fn on_devices(choice: &DeviceChoice) -> Outcome {
    let x = numbers(100_000, 2);
    let engine = rows::engine(choice);
    let mut there = engine.sharded::<f64>(x.len())?;
    let report = engine.run(Job::eval("y = x - 1")?.input("x", &x).output("y", &mut there).checksum(true))?;
    let y: Vec<f64> = x.iter().map(|x| x - 1.0).collect();
    check(checksums(report) == [hash(bytemuck::cast_slice(&y))], "a sharded array")
}

fn selected(choice: &DeviceChoice) -> Outcome {
    let dir = tempfile::tempdir()?;
    let x = numbers(50_000, 3);
    let (big, mut at) = (dir.path().join("big.npy"), vec![0i64; x.len()]);
    let job = Job::kernel(&keep()).input("x", &x).output("big", Npy::create(&big)).output("where", &mut at);
    let report = engine(choice).build()?.run(job.checksum(true))?;
    let kept = report.outputs[1].rows as usize;
    let expected = [hash(&fs::read(&big)?), hash(bytemuck::cast_slice(&at[..kept]))];
    check(kept < x.len() && checksums(report) == expected, "the shorter file and the selected rows of the slice")
}

fn in_parts(choice: &DeviceChoice) -> Outcome {
    let dir = tempfile::tempdir()?;
    let (x, y) = (numbers(50_000, 4), dir.path().join("y.npy"));
    let engine = engine(choice).build()?;
    let job = || Ok::<_, Error>(Job::eval("y = sqrt(x)")?.input("x", &x).output("y", Npy::create(&y)));
    let refused = engine.run_rows(job()?.checksum(true), 0..50_000);
    check(matches!(refused, Err(Error::InvalidJob(JobError::PartialChecksum))), "a part has no checksum")?;
    let mut all: Partial = engine.run_rows(job()?, 0..8192)?;
    all.merge(engine.run_rows(job()?, 8192..50_000)?)?;
    let merged = checksums(all.checksum(true).finish()?);
    check(merged == [hash(&fs::read(&y)?)], "merged parts")?;
    fs::remove_file(&y)?;
    let resumed = checksums(engine.run_resumable(job()?.checksum(true), &Journal::beside(&y))?);
    check(resumed == merged, "a run with a journal")?;
    let mut slice = vec![0.0; x.len()];
    let all = engine.run_rows(Job::eval("y = sqrt(x)")?.input("x", &x).output("y", &mut slice), 0..50_000)?;
    let result = all.checksum(true).finish();
    check(matches!(result, Err(Error::InvalidPartial(PartialError::Checksum { .. }))), "a slice of other processes")
}

/// Takes rows and forgets them. Says whether they could be read back, which is never so.
struct Gone {
    is_said_to_be_readable: bool,
}

impl Target for Gone {
    fn name(&self) -> String {
        "gone".into()
    }
    fn can_read_back(&self) -> bool {
        self.is_said_to_be_readable
    }
    fn open<'s>(self: Box<Self>, _: Dtype, _: u64, _: Option<&[u64]>) -> Result<Box<dyn Sink + 's>>
    where
        Self: 's,
    {
        Ok(self)
    }
}

impl Sink for Gone {
    fn write(&self, _: u64, _: &[u8]) -> Result<()> {
        assert!(self.is_said_to_be_readable, "the run began");
        Ok(())
    }
    fn commit(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

fn refused(choice: &DeviceChoice) -> Outcome {
    let engine: Engine = engine(choice).build()?;
    let result = engine
        .run(Job::eval("y = x")?.input("x", &[1.0]).output("y", Gone { is_said_to_be_readable: false }).checksum(true));
    let is_refused = matches!(&result, Err(Error::InvalidJob(JobError::ChecksumOutput { name, .. })) if name == "y");
    check(is_refused, format!("{result:?}"))
}

fn unreadable(choice: &DeviceChoice) -> Outcome {
    let dir = tempfile::tempdir()?;
    let job = Job::eval("a = x; b = -x")?.input("x", &[1.0]).output("a", Npy::create(dir.path().join("a.npy")));
    let job = job.output("b", Gone { is_said_to_be_readable: true }).checksum(true);
    let result = engine(choice).build()?.run(job);
    check(matches!(result, Err(Error::InvalidColumn(ColumnError::CannotReadBack))), format!("{result:?}"))?;
    check(fs::read_dir(dir.path())?.count() == 0, "a file has its name")
}
