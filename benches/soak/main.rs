//! Mixed jobs on one engine for a while, beside a second process that takes and frees device memory: every result is
//! checked, and nothing may grow.
//!
//! `cargo bench --bench soak -- --device cpu+cuda --minutes 20 --rows 20000000 --json soak.json`. A seed (`--seed`)
//! chooses the jobs. Prints a line of a table, and one of JSON, which `--json` writes to a file. Ends with an error if
//! a result was wrong, if a job failed for another reason than device memory, or if memory, open files or threads have
//! grown since the first quarter of the time.

mod disturb;
mod jobs;

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use overshot::{DeviceChoice, Engine};
use serde_json::json;

use jobs::{Data, JOBS};

/// What one cycle of all jobs adds to the memory of the process at most: pages that its allocator keeps.
const SLACK: u64 = 64 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let (mut device, mut minutes, mut rows, mut seed, mut file) = ("cpu".to_owned(), 0.02, 200_000, 1, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{name} needs a value"));
        match name.as_str() {
            "--device" => device = value()?,
            "--minutes" => minutes = value()?.parse::<f64>()?,
            "--rows" => rows = value()?.parse::<usize>()?.max(10_000),
            "--seed" => seed = value()?.parse()?,
            "--json" => file = Some(value()?),
            "--disturb" => return disturb::run(value()?.parse()?),
            // `cargo bench` and `cargo test` pass these.
            "--bench" | "--test" => {}
            other => return Err(format!("unknown argument {other}").into()),
        }
    }
    let line = soak(&device, Duration::try_from_secs_f64(minutes * 60.0)?, rows, Random(seed))?;
    println!("| {device} | {minutes} min | {} jobs | {} without memory |", line["jobs"], line["without_memory"]);
    println!("{line}");
    if let Some(file) = file {
        fs::write(file, line.to_string())?;
    }
    let problems = line["problems"].as_array().map_or(0, Vec::len);
    if problems > 0 { Err(format!("{problems} problems: {}", line["problems"]).into()) } else { Ok(()) }
}

/// Runs jobs for this time, and returns what happened.
fn soak(device: &str, time: Duration, rows: usize, mut random: Random) -> Result<serde_json::Value, Box<dyn Error>> {
    let choice = device.parse::<DeviceChoice>()?;
    let engine = Engine::builder().device(choice).build()?;
    let folder = tempfile::tempdir()?;
    let data = Data::new(folder.path(), rows)?;
    let gpus = engine.devices().iter().filter_map(|device| device.id.strip_prefix("cuda:"));
    let _others = gpus.map(Other::start).collect::<Result<Vec<_>, _>>()?;

    let (begin, mut runs, mut without_memory) = (Instant::now(), vec![0u64; JOBS.len()], 0);
    let (mut early, mut problems) = (None, Vec::new());
    // Every job runs once at least.
    while begin.elapsed() < time || runs.contains(&0) {
        let number = runs.iter().position(|runs| *runs == 0).unwrap_or_else(|| random.below(JOBS.len()));
        let (name, job) = JOBS[number];
        runs[number] += 1;
        match job(&engine, &data) {
            Ok(true) => {}
            Ok(false) => problems.push(format!("{name}: wrong rows")),
            Err(overshot::Error::OutOfMemory { .. }) => without_memory += 1,
            Err(error) => problems.push(format!("{name}: {error}")),
        }
        data.clean()?;
        if early.is_none() && begin.elapsed() > time / 4 && !runs.contains(&0) {
            early = Some(Held::now(&engine)?);
        }
    }
    let (early, late) = (early.unwrap_or(Held::now(&engine)?), Held::now(&engine)?);
    problems.extend(late.grown_since(&early));
    Ok(json!({
        "device": device, "seconds": begin.elapsed().as_secs_f64(), "rows": rows,
        "jobs": runs.iter().sum::<u64>(), "without_memory": without_memory,
        "runs": JOBS.iter().zip(&runs).map(|((name, _), runs)| (*name, *runs)).collect::<BTreeMap<_, _>>(),
        "early": early.to_json(), "late": late.to_json(), "problems": problems,
    }))
}

/// What the process holds while no job runs and nothing is cached.
struct Held {
    resident: u64,
    files: u64,
    threads: u64,
    /// Device memory and pinned memory that the engine counts as used.
    in_use: u64,
}

impl Held {
    fn now(engine: &Engine) -> Result<Held, Box<dyn Error>> {
        engine.trim();
        let status = fs::read_to_string("/proc/self/status")?;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next());
        let number = |name: &str| {
            field(name).ok_or(format!("no {name} in /proc/self/status"))?.parse::<u64>().map_err(|e| e.to_string())
        };
        let in_use = engine.memory().iter().map(|memory| memory.device.in_use + memory.pinned.in_use).sum();
        let files = fs::read_dir("/proc/self/fd")?.count() as u64;
        Ok(Held { resident: number("VmRSS:")? * 1024, files, threads: number("Threads:")?, in_use })
    }

    fn grown_since(&self, early: &Held) -> Vec<String> {
        let mut grown = Vec::new();
        let mut check = |what: &str, late: u64, most: u64| {
            if late > most {
                grown.push(format!("{what} {late}, at most {most} were expected"));
            }
        };
        check("bytes of resident memory:", self.resident, early.resident + early.resident / 10 + SLACK);
        check("open files:", self.files, early.files + 4);
        check("threads:", self.threads, early.threads + 4);
        check("bytes in use without a job:", self.in_use, 0);
        grown
    }

    fn to_json(&self) -> serde_json::Value {
        let Held { resident, files, threads, in_use } = self;
        json!({"resident_bytes": resident, "open_files": files, "threads": threads, "bytes_in_use": in_use})
    }
}

/// The process that takes the memory of a GPU. It ends with this one.
struct Other(Child);

impl Other {
    fn start(gpu: &str) -> std::io::Result<Other> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--disturb", gpu]).stdin(Stdio::piped());
        Ok(Other(command.spawn()?))
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // Its standard input is at its end then.
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Returns a number below `bound` (> 0).
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }
}

/// Returns the paths of a folder's files.
pub(crate) fn paths(folder: &Path) -> std::io::Result<Vec<std::path::PathBuf>> {
    fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect()
}
