//! Whole jobs from pageable memory, pinned memory and files: bytes in + out per second, beside the measured limit of
//! this machine.
//!
//! Run `overshot bench --limits` first, for the limits; then
//! `cargo bench --bench throughput -- --device cuda,cpu,auto --size 4GiB --json results.json`. Every size is that of
//! one `f64` column. Each job runs several times on one engine for each device, and the devices alternate; the
//! result is the median. Every result is checked. Machines differ, so compare only rows of one table.

use std::cell::RefCell;
use std::error::Error;
use std::path::{Path, PathBuf};

use bytesize::ByteSize;
use overshot::{
    DeviceChoice, Engine, Job, Npy, Report,
    arrays::PinnedBuffer,
    device::DeviceKind,
    io::ReadMode,
    limits::{MachineLimits, RateByThreads},
};
use rayon::prelude::*;
use serde_json::{Value, json};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

struct Options {
    devices: Vec<DeviceChoice>,
    rows: usize,
    runs: usize,
    json: Option<PathBuf>,
    only: Option<String>,
    chunk: Option<u64>,
    workers: Option<usize>,
    folder: PathBuf,
}

fn main() -> Outcome {
    let mut options = Options {
        devices: vec![DeviceChoice::Auto],
        rows: 4 << 20,
        runs: 5,
        json: None,
        only: None,
        chunk: None,
        workers: None,
        folder: std::env::temp_dir(),
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{name} needs a value"));
        match name.as_str() {
            "--device" => options.devices = devices(&value()?)?,
            "--size" => options.rows = value()?.parse::<ByteSize>()?.as_u64() as usize / 8,
            "--runs" => options.runs = value()?.parse()?,
            "--json" => options.json = Some(value()?.into()),
            "--dir" => options.folder = value()?.into(),
            "--only" => options.only = Some(value()?),
            "--chunk" => options.chunk = Some(value()?.parse::<ByteSize>()?.as_u64()),
            "--workers" => options.workers = Some(value()?.parse()?),
            // `cargo bench` and `cargo test` pass these.
            "--bench" | "--test" => {}
            other => return Err(format!("unknown argument {other}").into()),
        }
    }
    run(&options)
}

/// Parses choices of devices, separated by commas. A number belongs to the GPUs of the choice before it, so
/// `cuda:0,1,cpu` is two choices.
fn devices(text: &str) -> Outcome<Vec<DeviceChoice>> {
    let mut choices: Vec<String> = Vec::new();
    for part in text.split(',') {
        match choices.last_mut() {
            Some(choice) if part.starts_with(|c: char| c.is_ascii_digit()) => *choice += &format!(",{part}"),
            _ => choices.push(part.to_owned()),
        }
    }
    Ok(choices.iter().map(|choice| choice.parse()).collect::<Result<_, _>>()?)
}

/// The limit of a row of the table, in bytes in + out per second.
#[derive(Clone, Copy)]
struct Aim {
    limit: &'static str,
    ratio: f64,
}

/// One device with its engines: one without limits, and one with little device memory.
struct Target {
    name: String,
    engine: Engine,
    capped: Engine,
    limits: Option<MachineLimits>,
}

impl Target {
    fn new(choice: &DeviceChoice, options: &Options) -> Outcome<Target> {
        let builder = || {
            let mut builder = Engine::builder().device(choice.clone());
            if let Some(chunk) = options.chunk {
                builder = builder.chunk(chunk);
            }
            if let Some(workers) = options.workers {
                builder = builder.workers(workers);
            }
            builder
        };
        let engine = builder().build()?;
        // Opens the GPUs, so that the time of the first job does not include it.
        engine.pinned::<u8>(1)?;
        let limits = MachineLimits::load(engine.devices());
        Ok(Target { name: choice.to_string(), engine, capped: builder().device_memory(256 << 20).build()?, limits })
    }

    fn limit(&self, name: &str) -> Option<f64> {
        let limits = self.limits.as_ref()?;
        let gpus = self.engine.devices().iter().filter(|device| device.kind == DeviceKind::Cuda).count();
        if let Some(all) = limits.all_devices.as_ref().filter(|_| gpus > 1) {
            match name {
                "h2d" => return Some(all.copy_in.bytes_per_second),
                "duplex" => return Some(all.duplex.bytes_per_second),
                "two_in_one_out" => return Some(all.two_in_one_out.bytes_per_second),
                _ => {}
            }
        }
        let device = limits.devices.first();
        let best =
            |sizes: &[overshot::limits::RateBySize]| Some(overshot::limits::RateBySize::best(sizes)?.bytes_per_second);
        match name {
            "h2d" => best(&device?.copy_in),
            "duplex" => best(&device?.duplex),
            "two_in_one_out" => best(&device?.two_in_one_out),
            "file_to_file" => Some(2.0 * RateByThreads::best(&limits.host.new_file)?.bytes_per_second),
            _ => None,
        }
    }
}

struct Table<'o> {
    options: &'o Options,
    targets: &'o [Target],
    rows: Vec<Value>,
    /// The rate of bare direct reads of the same file just before or after each run. The rate of a disk varies too much
    /// for one figure.
    bare: &'o RefCell<Vec<f64>>,
}

impl Table<'_> {
    /// In 10⁹ bytes per second.
    fn limit(&self, target: &Target, name: &str) -> Option<f64> {
        if name != "direct_read" {
            return Some(target.limit(name)? / 1e9);
        }
        let mut bare = self.bare.borrow().clone();
        bare.sort_by(f64::total_cmp);
        Some(bare.get(bare.len() / 2)? / 1e9)
    }

    /// Runs a job on every device and prints a line for each. `job` is told whether this is the very first run.
    fn row(
        &mut self,
        name: &str,
        columns: usize,
        aim: Option<Aim>,
        mut job: impl FnMut(&Target, bool) -> Outcome<Report>,
    ) -> Outcome {
        if self.options.only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
            return Ok(());
        }
        // The devices alternate, because the memory of a shared host is not always equally fast.
        let mut all: Vec<Vec<Report>> = self.targets.iter().map(|_| Vec::new()).collect();
        for run in 0..self.options.runs {
            for (target, runs) in self.targets.iter().zip(&mut all) {
                runs.push(job(target, run == 0).map_err(|error| format!("{name} on {}: {error}", target.name))?);
            }
        }
        for (target, mut runs) in self.targets.iter().zip(all) {
            runs.sort_by_key(|run| run.time);
            let rate = |report: &Report| (columns * 8 * self.options.rows) as f64 / report.time.as_secs_f64() / 1e9;
            let (fastest, slowest, median) = (rate(&runs[0]), rate(&runs[runs.len() - 1]), &runs[runs.len() / 2]);
            // Only a single GPU is compared with its link.
            let aim = aim.filter(|aim| target.name.starts_with("cuda") || aim.limit.starts_with("file"));
            let limit = aim.and_then(|aim| self.limit(target, aim.limit));
            let ratio = limit.map(|limit| rate(median) / limit);
            let held = match (aim, limit, ratio) {
                (Some(aim), Some(limit), Some(ratio)) => {
                    format!("{ratio:5.3} of {} {limit:.1} (aim {})", aim.limit, aim.ratio)
                }
                _ => String::new(),
            };
            println!("{name:24} {:8} {:7.1} GB/s ({slowest:.1} to {fastest:.1}) {held}", target.name, rate(median));
            for device in &median.devices {
                let bound = device.bottleneck.map(|bound| bound.to_string()).unwrap_or_default();
                println!(
                    "    {:8} {:3.0} % of the rows, {} workers, {bound}",
                    device.id,
                    100.0 * device.rows as f64 / median.rows.max(1) as f64,
                    device.workers
                );
            }
            self.rows.push(json!({
                "job": name, "device": target.name, "gb_per_s": rate(median), "slowest": slowest, "fastest": fastest,
                "limit": aim.map(|aim| aim.limit), "gb_per_s_limit": limit, "ratio": ratio,
                "target": aim.map(|aim| aim.ratio), "report": median,
            }));
        }
        Ok(())
    }
}

fn run(options: &Options) -> Outcome {
    let rows = options.rows;
    let targets = options.devices.iter().map(|choice| Target::new(choice, options)).collect::<Outcome<Vec<_>>>()?;
    let bare = RefCell::default();
    let mut table = Table { options, targets: &targets, rows: Vec::new(), bare: &bare };
    let (a, b) = (column(rows, 1), column(rows, 2));
    let mut c = column(rows, 3);
    let cpu = Engine::builder().device(DeviceChoice::Cpu).build()?;
    let sum = cpu.run(Job::eval("sum(a)")?.input("a", &a))?.value("sum(a)")?;
    let aim = |limit, ratio| Some(Aim { limit, ratio });

    type Expected = fn(f64, f64) -> f64;
    let maps: [(&str, &str, usize, Option<Aim>, Expected); 4] = [
        ("mul", "c = a * b", 3, aim("two_in_one_out", 0.92), |a, b| a * b),
        ("add1", "c = a + 1", 2, aim("duplex", 0.90), |a, _| a + 1.0),
        ("middle", "c = (a * b + 1) / (a + b) - sqrt(a)", 3, None, |a, b| (a * b + 1.0) / (a + b) - a.sqrt()),
        ("heavy", "c = sin(a) * exp(b) + sqrt(a * b)", 3, None, |a, b| a.sin() * b.exp() + (a * b).sqrt()),
    ];
    for (name, text, columns, aim, expected) in maps {
        table.row(&format!("{name} ordinary"), columns, aim, |target, first| {
            spoil(&mut c);
            let mut job = Job::eval(text)?.input("a", &a);
            if columns == 3 {
                job = job.input("b", &b);
            }
            let report = target.engine.run(job.output("c", &mut c))?;
            // `sin` and `exp` of the standard library are within a few ulp of those of Overshot.
            let slack = if name == "heavy" { 1e-14 } else { 0.0 };
            check(&c, first, slack, |i| expected(a[i], b[i]))?;
            Ok(report)
        })?;
    }
    table.row("sum ordinary", 1, aim("h2d", 0.96), |target, _| {
        let report = target.engine.run(Job::eval("sum(a)")?.input("a", &a))?;
        same(report.value("sum(a)")? == sum)?;
        Ok(report)
    })?;
    table.row("mul, 256 MiB of device", 3, aim("two_in_one_out", 0.92 * 0.97), |target, first| {
        spoil(&mut c);
        let report = target.capped.run(Job::eval("c = a * b")?.input("a", &a).input("b", &b).output("c", &mut c))?;
        check(&c, first, 0.0, |i| a[i] * b[i])?;
        Ok(report)
    })?;
    drop(c);

    // Only an engine with a GPU returns memory that is pinned for it.
    let has_gpu = |target: &&Target| target.engine.devices().iter().any(|device| device.kind == DeviceKind::Cuda);
    let pins = &targets.iter().find(has_gpu).unwrap_or(&targets[0]).engine;
    let (mut pa, mut pb, mut pc) = (pins.pinned(rows)?, pins.pinned(rows)?, pins.pinned::<f64>(rows)?);
    copy(&mut pa, &a);
    copy(&mut pb, &b);
    table.row("mul pinned", 3, aim("two_in_one_out", 0.98), |target, first| {
        spoil(&mut pc);
        let report = target.engine.run(Job::eval("c = a * b")?.input("a", &pa).input("b", &pb).output("c", &mut pc))?;
        check(&pc, first, 0.0, |i| a[i] * b[i])?;
        Ok(report)
    })?;
    table.row("add1 pinned", 2, aim("duplex", 0.97), |target, first| {
        spoil(&mut pc);
        let report = target.engine.run(Job::eval("c = a + 1")?.input("a", &pa).output("c", &mut pc))?;
        check(&pc, first, 0.0, |i| a[i] + 1.0)?;
        Ok(report)
    })?;
    table.row("sum pinned", 1, aim("h2d", 0.98), |target, _| {
        let report = target.engine.run(Job::eval("sum(a)")?.input("a", &pa))?;
        same(report.value("sum(a)")? == sum)?;
        Ok(report)
    })?;
    drop((pa, pb, pc, b));

    let folder = tempfile::Builder::new().prefix("overshot-throughput-").tempdir_in(&options.folder)?;
    files(&mut table, folder.path(), &cpu, &a, sum)?;
    if let Some(path) = &options.json {
        let gpus = targets.iter().flat_map(|target| target.engine.devices());
        let gpu = gpus.filter(|device| device.kind == DeviceKind::Cuda).map(|device| &device.name).next();
        let limits = ["h2d", "duplex", "two_in_one_out", "file_to_file", "direct_read"];
        let limits = limits.map(|name| (name, targets.iter().find_map(|target| table.limit(target, name))));
        let limits: std::collections::BTreeMap<_, _> = limits.into_iter().collect();
        let whole = json!({ "size": rows * 8, "machine": { "gpu": gpu }, "limits": limits, "rows": table.rows });
        std::fs::write(path, serde_json::to_string_pretty(&whole)?)?;
    }
    Ok(())
}

fn files(table: &mut Table<'_>, folder: &Path, cpu: &Engine, a: &[f64], sum: Option<overshot::Scalar>) -> Outcome {
    let path = folder.join("a.npy");
    cpu.run(Job::eval("b = a")?.input("a", a).output("b", Npy::create(&path)))?;
    let aim = |limit, ratio| Some(Aim { limit, ratio });
    for (name, reading, limit) in [
        ("sum file", None, aim("h2d", 0.96)),
        ("sum file, pread", Some(ReadMode::Pread), None),
        ("sum cold file", Some(ReadMode::Direct), aim("direct_read", 0.97)),
    ] {
        std::fs::File::open(&path)?.sync_all()?;
        let bare = table.bare;
        table.row(name, 1, limit, |target, _| {
            // In turn before and after the job, because a disk that was idle is faster for a moment.
            let compares = reading == Some(ReadMode::Direct) && target.name.starts_with("cuda");
            let is_before = bare.borrow().len().is_multiple_of(2);
            let read_bare = |now: bool| -> Outcome {
                if compares && now {
                    bare.borrow_mut().push(overshot::testing::bare_direct_read(&path)?);
                }
                Ok(())
            };
            read_bare(is_before)?;
            let file = match reading {
                Some(reading) => Npy::open_with(&path, reading)?,
                // SAFETY: the file belongs to this bench, which no longer writes to it.
                None => unsafe { Npy::map(&path) }?,
            };
            let report = target.engine.run(Job::eval("sum(a)")?.input("a", file))?;
            read_bare(!is_before)?;
            same(report.value("sum(a)")? == sum)?;
            Ok(report)
        })?;
    }
    let out = folder.join("c.npy");
    table.row("file to file", 2, aim("file_to_file", 0.9), |target, first| {
        let output = Npy::create(&out).force(true);
        // SAFETY: as above.
        let file = unsafe { Npy::map(&path) }?;
        let report = target.engine.run(Job::eval("c = a + 1")?.input("a", file).output("c", output))?;
        let mut written = vec![0.0; a.len()];
        cpu.run(Job::eval("d = c")?.input("c", Npy::open(&out)?).output("d", &mut written))?;
        check(&written, first, 0.0, |i| a[i] + 1.0)?;
        Ok(report)
    })
}

/// Numbers between 0.5 and 1.5 that look random and are the same every time.
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

fn copy(to: &mut PinnedBuffer<f64>, from: &[f64]) {
    to.par_chunks_mut(1 << 16).zip(from.par_chunks(1 << 16)).for_each(|(to, from)| to.copy_from_slice(from));
}

/// Overwrites rows, so that those of an earlier run are not taken for a result.
fn spoil(c: &mut [f64]) {
    c.par_chunks_mut(1 << 16).for_each(|part| part.fill(f64::NAN));
}

/// Checks every row of a first run, and every 1009th of the others: the same bits, or closer than `slack`.
fn check(c: &[f64], all: bool, slack: f64, expected: impl Fn(usize) -> f64 + Sync) -> Outcome {
    let right = |i: usize| {
        let expected = expected(i);
        c[i].to_bits() == expected.to_bits() || (c[i] - expected).abs() < slack * expected.abs()
    };
    let step = if all { 1 } else { 1009 };
    same((0..c.len().div_ceil(step)).into_par_iter().all(|k| right(k * step)) && c.last().is_none_or(|c| c.is_finite()))
}

fn same(right: bool) -> Outcome {
    if right { Ok(()) } else { Err("a wrong result".into()) }
}
