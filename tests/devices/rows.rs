//! Helpers for tests of rows that stay on devices: devices with little memory, and datasets that count their reads.

use std::env;
use std::ops::Range;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use overshot::{
    DeviceChoice, Dtype, Engine, EngineBuilder, Error, Report, Source, arrays::Resident, device::DeviceKind,
};

use crate::harness::{Outcome, check};

/// Returns an engine whose devices have 16 MiB each, or as much as the settings of the stand-in say.
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

/// Returns whether the engine has devices with separate memory, where rows can stay.
pub fn has_memory(engine: &Engine) -> bool {
    engine.devices().iter().any(|device| device.kind != DeviceKind::Cpu)
}

/// Returns the memory in use by runs, arrays and datasets.
pub fn in_use(engine: &Engine) -> u64 {
    engine.memory().iter().map(|memory| memory.device.in_use + memory.pinned.in_use).sum()
}

/// Returns whether the CPU takes no part, so that the number of moved rows is known.
pub fn without_cpu(engine: &Engine) -> bool {
    engine.devices().iter().all(|device| device.kind != DeviceKind::Cpu)
}

/// Returns the memory of all devices, in bytes.
pub fn device_bytes(engine: &Engine) -> u64 {
    let limit = if env::var("OVERSHOT_STANDIN_MEMORY").is_ok() { u64::MAX } else { 16 << 20 };
    let devices = engine.devices().iter().filter(|device| device.kind != DeviceKind::Cpu);
    devices.map(|device| device.memory_bytes.min(limit)).sum::<u64>().max(16 << 20)
}

pub fn bits(report: &Report) -> Vec<Option<u64>> {
    report.results.iter().map(|(_, value)| value.map(|value| value.as_f64().to_bits())).collect()
}

pub fn rows_in(ranges: &[(String, Range<u64>)]) -> u64 {
    ranges.iter().map(|(_, rows)| rows.end - rows.start).sum()
}

/// A slice that records which of its rows are read.
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

    /// Makes each read fail that would bring the total number of rows read above this.
    pub fn fails_beyond(&self, rows: u64) {
        self.seen.lock().unwrap().most = rows;
    }

    /// Returns the total number of rows read, repeated reads included.
    pub fn total(&self) -> u64 {
        self.seen.lock().unwrap().total
    }

    /// Waits until the total number of rows read is larger than this; fails after a minute.
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
            return Err(Error::other("on demand"));
        }
        let bytes: Vec<u8> = self.rows[start..end].iter().flat_map(|row| row.to_ne_bytes()).collect();
        dst.copy_from_slice(&bytes);
        seen.read.push(start as u64..end as u64);
        seen.total += (end - start) as u64;
        self.more.notify_all();
        Ok(())
    }
}

/// Returns the rows of a dataset that are not on devices.
pub fn not_there(data: &Resident<'_>) -> Vec<Range<u64>> {
    let ranges = data.on_devices();
    let ends = [0].into_iter().chain(ranges.iter().map(|(_, rows)| rows.end));
    let starts = ranges.iter().map(|(_, rows)| rows.start).chain([data.rows()]);
    ends.zip(starts).map(|(end, start)| end..start).filter(|rows| !rows.is_empty()).collect()
}
