//! Whole jobs, from ordinary memory, pinned memory and files: bytes in + out per second.
//!
//! `cargo bench --bench throughput -- --device cuda --size 4GiB --json results.json`; every size is that of one f64 column.
//! Each job runs several times on one engine; the median counts. Every result is checked. All figures of a run belong
//! together: machines differ, so compare rows of one table only.

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Instant;

use bytesize::ByteSize;
use overshot::{DeviceChoice, Engine, EngineBuilder, Job, Npy, Reading, Report};
use rayon::prelude::*;

struct Options {
    device: DeviceChoice,
    rows: usize,
    runs: usize,
    json: Option<String>,
    tune: Vec<(String, String)>,
    folder: std::path::PathBuf,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut options = Options {
        device: DeviceChoice::Auto,
        rows: 4 << 20,
        runs: 5,
        json: None,
        tune: vec![],
        folder: std::env::temp_dir(),
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{name} needs a value"));
        match name.as_str() {
            "--device" => options.device = value()?.parse()?,
            "--size" => options.rows = value()?.parse::<ByteSize>()?.as_u64() as usize / 8,
            "--runs" => options.runs = value()?.parse()?,
            "--json" => options.json = Some(value()?),
            "--dir" => options.folder = value()?.into(),
            "--lanes" | "--chunk" => options.tune.push((name.clone(), value()?)),
            // What `cargo bench` and `cargo test` pass on.
            "--bench" | "--test" => {}
            other => return Err(format!("unknown argument {other}").into()),
        }
    }
    run(&options)
}

fn engine(options: &Options) -> Result<EngineBuilder, Box<dyn Error>> {
    let mut engine = Engine::builder().device(options.device.clone());
    for (name, value) in &options.tune {
        engine = match name.as_str() {
            "--lanes" => engine.lanes(value.parse()?),
            _ => engine.chunk(value.parse::<ByteSize>()?.as_u64()),
        };
    }
    Ok(engine)
}

fn column(rows: usize, seed: u64) -> Vec<f64> {
    let mut column = vec![0.0; rows];
    column.par_chunks_mut(1 << 16).enumerate().for_each(|(k, part)| {
        let mut state = (seed << 40 ^ k as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        for x in part {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *x = (state >> 11) as f64 / (1u64 << 53) as f64 + 0.5;
        }
    });
    column
}

fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let rows = options.rows;
    let engine = engine(options)?.build()?;
    let (a, b) = (column(rows, 1), column(rows, 2));
    let mut c = column(rows, 3);
    let mut table = Table { rows, runs: options.runs, lines: BTreeMap::new() };
    let sum = engine.run(Job::eval("sum(a)")?.input("a", &a))?.value("sum(a)");

    table.line("copy, all cores (no job)", 2, || {
        let begin = Instant::now();
        c.par_chunks_mut(1 << 18).zip(a.par_chunks(1 << 18)).for_each(|(c, a)| c.copy_from_slice(a));
        let seconds = begin.elapsed().as_secs_f64();
        check(&c, |i| a[i])?;
        Ok((seconds, None))
    })?;
    table.line("c = a * b", 3, || {
        let report = engine.run(Job::eval("c = a * b")?.input("a", &a).input("b", &b).output("c", &mut c))?;
        check(&c, |i| a[i] * b[i])?;
        Ok((report.seconds, Some(report)))
    })?;
    table.line("c = a + 1", 2, || {
        let report = engine.run(Job::eval("c = a + 1")?.input("a", &a).output("c", &mut c))?;
        check(&c, |i| a[i] + 1.0)?;
        Ok((report.seconds, Some(report)))
    })?;
    table.line("sum(a)", 1, || {
        let report = engine.run(Job::eval("sum(a)")?.input("a", &a))?;
        same(report.value("sum(a)") == sum)?;
        Ok((report.seconds, Some(report)))
    })?;
    table.line("c = sin(a) * exp(b) + sqrt(a * b)", 3, || {
        let job = Job::eval("c = sin(a) * exp(b) + sqrt(a * b)")?.input("a", &a).input("b", &b).output("c", &mut c);
        let report = engine.run(job)?;
        // The standard library has functions of its own, an ulp or two from ours.
        let expected = |i: usize| a[i].sin() * b[i].exp() + (a[i] * b[i]).sqrt();
        let close = (0..rows).into_par_iter().all(|i| (c[i] / expected(i) - 1.0).abs() < 1e-14);
        same(close)?;
        Ok((report.seconds, Some(report)))
    })?;
    drop(c);

    let (mut pa, mut pb, mut pc) = (engine.pinned(rows)?, engine.pinned(rows)?, engine.pinned::<f64>(rows)?);
    pa.copy_from_slice(&a);
    pb.copy_from_slice(&b);
    table.line("c = a * b, pinned", 3, || {
        let report = engine.run(Job::eval("c = a * b")?.input("a", &pa).input("b", &pb).output("c", &mut pc))?;
        check(&pc, |i| a[i] * b[i])?;
        Ok((report.seconds, Some(report)))
    })?;
    table.line("c = a + 1, pinned", 2, || {
        let report = engine.run(Job::eval("c = a + 1")?.input("a", &pa).output("c", &mut pc))?;
        check(&pc, |i| a[i] + 1.0)?;
        Ok((report.seconds, Some(report)))
    })?;
    table.line("sum(a), pinned", 1, || {
        let report = engine.run(Job::eval("sum(a)")?.input("a", &pa))?;
        same(report.value("sum(a)") == sum)?;
        Ok((report.seconds, Some(report)))
    })?;
    drop((pa, pb, pc, b));

    let folder = tempfile::Builder::new().prefix("overshot-throughput-").tempdir_in(&options.folder)?;
    let path = folder.path().join("a.npy");
    let cpu = Engine::builder().device(DeviceChoice::Cpu).build()?;
    cpu.run(Job::eval("b = a")?.input("a", &a).output("b", Npy::create(&path)))?;
    for (name, reading) in [("sum(file), map", Reading::Map), ("sum(file), pread", Reading::Pread)] {
        table.line(name, 1, || {
            let report = engine.run(Job::eval("sum(a)")?.input("a", Npy::open_with(&path, reading)?))?;
            same(report.value("sum(a)") == sum)?;
            Ok((report.seconds, Some(report)))
        })?;
    }
    let out = folder.path().join("c.npy");
    table.line("file = file + 1, map", 2, || {
        let output = Npy::create(&out).force(true);
        let report = engine.run(Job::eval("c = a + 1")?.input("a", Npy::open(&path)?).output("c", output))?;
        let mut written = vec![0.0; rows];
        cpu.run(Job::eval("d = c")?.input("c", Npy::open(&out)?).output("d", &mut written))?;
        check(&written, |i| a[i] + 1.0)?;
        Ok((report.seconds, Some(report)))
    })?;
    println!(
        "device: {}",
        engine.devices().iter().map(|d| format!("{} ({})", d.id, d.name)).collect::<Vec<_>>().join(", ")
    );
    match &options.json {
        Some(path) => Ok(std::fs::write(path, serde_json::to_string_pretty(&table.lines)?)?),
        None => Ok(()),
    }
}

fn check(c: &[f64], expected: impl Fn(usize) -> f64 + Sync) -> Result<(), Box<dyn Error>> {
    same(c.par_iter().enumerate().all(|(i, c)| c.to_bits() == expected(i).to_bits()))
}

fn same(right: bool) -> Result<(), Box<dyn Error>> {
    if right { Ok(()) } else { Err("a wrong result".into()) }
}

struct Table {
    rows: usize,
    runs: usize,
    lines: BTreeMap<String, serde_json::Value>,
}

impl Table {
    fn line(
        &mut self,
        name: &str,
        columns: usize,
        mut job: impl FnMut() -> Result<(f64, Option<Report>), Box<dyn Error>>,
    ) -> Result<(), Box<dyn Error>> {
        let mut runs = (0..self.runs).map(|_| job()).collect::<Result<Vec<_>, _>>()?;
        runs.sort_by(|a, b| a.0.total_cmp(&b.0));
        let rate = |seconds: f64| (columns * 8 * self.rows) as f64 / seconds / 1e9;
        let (seconds, report) = runs.swap_remove(runs.len() / 2);
        let (slowest, fastest) = (
            rate(runs.last().map_or(seconds, |r| r.0.max(seconds))),
            rate(runs.first().map_or(seconds, |r| r.0.min(seconds))),
        );
        println!("{name:36} {:7.1} GB/s  (runs {slowest:.1} to {fastest:.1})", rate(seconds));
        let value =
            serde_json::json!({ "gb_per_s": rate(seconds), "slowest": slowest, "fastest": fastest, "report": report });
        self.lines.insert(name.to_owned(), value);
        Ok(())
    }
}
