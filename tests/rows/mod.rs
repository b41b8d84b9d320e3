//! What the suites of rows that stay on devices have in common: devices to run on, with little memory, and datasets that are watched.
#![allow(dead_code, reason = "not every suite uses all of it")]

use std::env;
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use overshot::{DeviceChoice, DeviceKind, Dtype, Engine, EngineBuilder, Error, Report, Resident, Source};

use crate::watchdog::watched;

pub type Outcome = Result<(), Failed>;
pub type Case = fn(&DeviceChoice) -> Outcome;

/// Settings of the stand-in: devices, memory of each, what others have of it, seed.
const STANDINS: &[[&str; 4]] = &[
    ["1", "", "", ""],
    ["1", "16000000", "0", "1"],
    ["2", "16000000,30000000", "0,9000000", "2"],
    ["4", "33554432,12000000,25000000,5000000", "0", "3"],
];

/// Runs all cases on `cpu`, on one emulated device and on three, and, in processes of its own, on the stand-in for the CUDA driver
/// with several devices of several sizes; `others` once. `OVERSHOT_TEST_DEVICE` (as `--device`) runs the cases on that device alone.
pub fn run(cases: &[(&'static str, Case)], others: Vec<Trial>) -> ! {
    let mut arguments = Arguments::from_args();
    if env::var("OVERSHOT_TEST_DEVICE").is_ok() {
        // All cases have the same memory.
        arguments.test_threads = Some(1);
    }
    let mut trials = Vec::new();
    let devices = match env::var("OVERSHOT_TEST_DEVICE") {
        Ok(device) => vec![device],
        Err(_) => {
            trials.extend(others);
            if cfg!(feature = "cuda") {
                trials.extend(
                    STANDINS
                        .iter()
                        .map(|settings| Trial::test(format!("on the stand-in {settings:?}"), || on_standin(settings))),
                );
            }
            vec!["cpu".into(), "emulated".into(), "emulated:1*3".into()]
        }
    };
    for device in &devices {
        let choice: DeviceChoice = device.parse().expect("OVERSHOT_TEST_DEVICE is a device as --device takes it");
        for &(name, case) in cases {
            let choice = choice.clone();
            trials.push(Trial::test(format!("{device}: {name}"), move || watched(name, || case(&choice))));
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

/// Runs all cases on the stand-ins.
fn on_standin([devices, memory, taken, seed]: &[&str; 4]) -> Outcome {
    let program = env::current_exe()?;
    let examples = program.parent().and_then(Path::parent).unwrap().join("examples");
    check(examples.join("libcuda.so").exists(), "no stand-in: run `cargo build --examples`")?;
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", examples).env("OVERSHOT_CACHE", "").env("OVERSHOT_TEST_DEVICE", "cuda");
    for (name, value) in [("DEVICES", devices), ("MEMORY", memory), ("TAKEN", taken), ("SEED", seed)] {
        if !value.is_empty() {
            command.env(format!("OVERSHOT_STANDIN_{name}"), value);
        }
    }
    let output = command.output()?;
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    check(output.status.success(), text)
}

/// An engine whose devices have 16 MiB each, or what the stand-in was told.
pub fn builder(choice: &DeviceChoice) -> EngineBuilder {
    let builder = Engine::builder().device(choice.clone());
    match env::var("OVERSHOT_STANDIN_MEMORY") {
        Ok(_) => builder,
        Err(_) => builder.device_memory(16 << 20),
    }
}

pub fn engine(choice: &DeviceChoice) -> Engine {
    builder(choice).build().unwrap()
}

pub fn cpu() -> Engine {
    Engine::builder().device(DeviceChoice::Cpu).build().unwrap()
}

pub fn check(condition: bool, message: impl Into<String>) -> Outcome {
    if condition { Ok(()) } else { Err(message.into().into()) }
}

/// Whether the engine has devices with memory of their own, so that rows are to be there.
pub fn has_memory(engine: &Engine) -> bool {
    engine.devices().iter().any(|device| device.kind != DeviceKind::Cpu)
}

/// What runs, arrays and datasets have of memory.
pub fn in_use(engine: &Engine) -> u64 {
    engine.memory().iter().map(|memory| memory.device.in_use + memory.pinned.in_use).sum()
}

/// Whether devices have all rows to themselves, so that what they move is known.
pub fn without_cpu(engine: &Engine) -> bool {
    engine.devices().iter().all(|device| device.kind != DeviceKind::Cpu)
}

/// Bytes of all devices.
pub fn device_bytes(engine: &Engine) -> u64 {
    let limit = if env::var("OVERSHOT_STANDIN_MEMORY").is_ok() { u64::MAX } else { 16 << 20 };
    let devices = engine.devices().iter().filter(|device| device.kind != DeviceKind::Cpu);
    devices.map(|device| device.memory_bytes.min(limit)).sum::<u64>().max(16 << 20)
}

/// Numbers from −100 to 100 that look random and are the same every time.
pub fn numbers(count: usize, seed: u64) -> Vec<f64> {
    (0..count as u64)
        .map(|i| (i + 1 + (seed << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40)
        .map(|number| number as f64 / (1 << 24) as f64 * 200.0 - 100.0)
        .collect()
}

pub fn bits(report: &Report) -> Vec<Option<u64>> {
    report.results.iter().map(|(_, value)| value.map(|value| value.as_f64().to_bits())).collect()
}

pub fn rows_in(ranges: &[(String, Range<u64>)]) -> u64 {
    ranges.iter().map(|(_, rows)| rows.end - rows.start).sum()
}

/// A slice that takes down which rows are read of it.
pub struct Watched<'a> {
    rows: &'a [f64],
    seen: Mutex<Seen>,
    more: Condvar,
}

struct Seen {
    read: Vec<Range<u64>>,
    /// Rows, all together, and how many may be.
    total: u64,
    most: u64,
}

impl<'a> Watched<'a> {
    pub fn new(rows: &'a [f64]) -> Self {
        let seen = Seen { read: vec![], total: 0, most: u64::MAX };
        Watched { rows, seen: Mutex::new(seen), more: Condvar::new() }
    }

    /// The rows that were read since, in order and put together.
    pub fn taken(&self) -> Vec<Range<u64>> {
        let mut read = std::mem::take(&mut self.seen.lock().unwrap().read);
        read.sort_unstable_by_key(|rows| rows.start);
        let mut all: Vec<Range<u64>> = Vec::new();
        for rows in read {
            match all.last_mut() {
                Some(last) if last.end == rows.start => last.end = rows.end,
                _ => all.push(rows),
            }
        }
        all
    }

    /// Lets every read fail that would make it more rows than this, of all that were ever read.
    pub fn fails_beyond(&self, rows: u64) {
        self.seen.lock().unwrap().most = rows;
    }

    /// Rows that were ever read, each as often as it was.
    pub fn total(&self) -> u64 {
        self.seen.lock().unwrap().total
    }

    /// Waits until more rows than this were ever read, or far too long.
    pub fn waits_for_more_than(&self, rows: u64) -> Outcome {
        let seen = self.seen.lock().unwrap();
        let waited = self.more.wait_timeout_while(seen, Duration::from_secs(60), |seen| seen.total <= rows).unwrap();
        check(!waited.1.timed_out(), format!("no more than {rows} rows were read"))
    }
}

impl Source for Watched<'_> {
    fn dtype(&self) -> Dtype {
        Dtype::F64
    }

    fn rows(&self) -> u64 {
        self.rows.len() as u64
    }

    fn name(&self) -> String {
        "watched".into()
    }

    fn read(&self, first: u64, dst: &mut [u8]) -> overshot::Result<()> {
        let (start, end) = (first as usize, first as usize + dst.len() / 8);
        let mut seen = self.seen.lock().unwrap();
        if seen.total + (end - start) as u64 > seen.most {
            return Err(Error::Job("on demand".into()));
        }
        let bytes: Vec<u8> = self.rows[start..end].iter().flat_map(|row| row.to_ne_bytes()).collect();
        dst.copy_from_slice(&bytes);
        seen.read.push(start as u64..end as u64);
        seen.total += (end - start) as u64;
        self.more.notify_all();
        Ok(())
    }
}

/// The rows that a dataset does not have on devices.
pub fn not_there(data: &Resident<'_>) -> Vec<Range<u64>> {
    let ranges = data.on_devices();
    let ends = [0].into_iter().chain(ranges.iter().map(|(_, rows)| rows.end));
    let starts = ranges.iter().map(|(_, rows)| rows.start).chain([data.rows()]);
    ends.zip(starts).map(|(end, start)| end..start).filter(|rows| !rows.is_empty()).collect()
}
