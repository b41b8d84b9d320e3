//! The report names what bounds a run: bottlenecks planted on the emulated device, one of each kind.

use overshot::device::{DeviceKind, Emulated};
use overshot::io::{ColumnOptions, create, open, open_column};
use overshot::report::Stage;
use overshot::{DeviceChoice, Engine, Job, Report};

use crate::harness::{EmulatedCase, Module, NO_CASES, Outcome, check};

pub const MODULE: Module = Module { name: "verdict", emulated: EMULATED, ..NO_CASES };

const EMULATED: &[(&str, EmulatedCase)] = &[
    ("the busiest stage is named, whatever is planted", stages),
    ("too few blocks are latency", latency),
    ("the cores compute or wait for memory", cores),
    ("files are read and written", files),
    #[cfg(feature = "parquet")]
    ("files are decoded and encoded", encoded_files),
    ("one chunk is latency", one_chunk),
];

/// Workers of an emulated device.
const WORKERS: f64 = 4.0;
/// Cores of a CPU beside a device.
const CORES: f64 = 16.0;
/// How many times as fast as the planted stage all others are.
const RATIOS: [f64; 3] = [1.2, 1.5, 3.0];
const TILE_ROWS: usize = 4096;

/// Columns of eight bytes.
#[derive(Clone, Copy, Debug)]
struct Columns {
    inputs: usize,
    outputs: usize,
}

const COLUMNS: [Columns; 4] = [
    Columns { inputs: 1, outputs: 1 },
    Columns { inputs: 2, outputs: 1 },
    Columns { inputs: 1, outputs: 3 },
    Columns { inputs: 3, outputs: 0 },
];

impl Columns {
    fn row_bytes(self) -> f64 {
        8.0 * (self.inputs + self.outputs) as f64
    }

    fn text(self) -> String {
        let sum = (0..self.inputs).map(|k| format!("x{k}")).collect::<Vec<_>>().join(" + ");
        let outputs: Vec<_> = (0..self.outputs).map(|k| format!("y{k} = {sum}")).collect();
        if outputs.is_empty() { format!("sum({sum})") } else { outputs.join("; ") }
    }

    /// Runs a job with these columns, in memory. A full chunk has six tiles.
    fn run(self, choice: impl Into<DeviceChoice>, rows: usize, blocks: Option<u64>) -> Outcome<Report> {
        self.run_on(WORKERS, choice, rows, blocks)
    }

    /// The same with so many workers.
    fn run_on(
        self,
        workers: f64,
        choice: impl Into<DeviceChoice>,
        rows: usize,
        blocks: Option<u64>,
    ) -> Outcome<Report> {
        let chunk = self.row_bytes() as u64 * 6 * TILE_ROWS as u64;
        let mut engine = Engine::builder().device(choice.into()).chunk(chunk).workers(workers as usize);
        if let Some(blocks) = blocks {
            engine = engine.device_memory(blocks * (chunk + (64 << 10)));
        }
        let x = vec![1.0; rows];
        let mut y = vec![vec![0.0; rows]; self.outputs];
        let mut job = Job::eval(&self.text())?;
        for k in 0..self.inputs {
            job = job.input(&format!("x{k}"), &x);
        }
        for (k, y) in y.iter_mut().enumerate() {
            job = job.output(&format!("y{k}"), y);
        }
        Ok(engine.build()?.run(job)?)
    }
}

/// The time of a row on each resource of a device, in virtual microseconds.
#[derive(Clone, Copy, Debug)]
struct Speeds {
    /// All workers together.
    fill: f64,
    drain: f64,
    host_memory: f64,
    copy_in: f64,
    arithmetic: f64,
    device_memory: f64,
    copy_out: f64,
}

impl Speeds {
    fn device(&self, columns: Columns, seed: u64) -> Emulated {
        let Columns { inputs, outputs } = columns;
        let [ins, outs] = [inputs, outputs].map(|columns| 8e6 * columns as f64);
        let rate = |bytes: f64, time: f64| if bytes > 0.0 { bytes / time } else { f64::INFINITY };
        Emulated::new()
            .seed(seed)
            .fill_rate(rate(ins, self.fill) / WORKERS)
            .drain_rate(rate(outs, self.drain) / WORKERS)
            .host_memory_rate(rate(ins + outs, self.host_memory))
            .copy_in_rate(rate(ins, self.copy_in))
            .kernel_rate(1e6 / self.arithmetic)
            .memory_rate(rate(ins + outs, self.device_memory))
            .copy_out_rate(rate(outs, self.copy_out))
    }

    /// A device on which one stage takes a microsecond for a row, and all others are `ratio` times as fast.
    fn planted(stage: Stage, ratio: f64, columns: Columns) -> Option<Speeds> {
        let other = ratio.recip();
        // Workers fill and drain in turn.
        let (most, least) =
            if columns.outputs == 0 { (1.0, 0.0) } else { (ratio / (1.0 + ratio), 1.0 / (1.0 + ratio)) };
        let speeds = Speeds {
            fill: other * most,
            drain: other * least,
            host_memory: other,
            copy_in: other,
            arithmetic: other,
            device_memory: other,
            copy_out: other,
        };
        let has_output = columns.outputs > 0;
        Some(match stage {
            Stage::Fill => Speeds { fill: most, drain: least, ..speeds },
            Stage::Drain if has_output => Speeds { fill: least, drain: most, ..speeds },
            Stage::Memory => Speeds { host_memory: 1.0, ..speeds },
            Stage::CopyIn => Speeds { copy_in: 1.0, ..speeds },
            Stage::Kernel => Speeds { arithmetic: 1.0, ..speeds },
            Stage::DeviceMemory => Speeds { device_memory: 1.0, ..speeds },
            Stage::CopyOut if has_output => Speeds { copy_out: 1.0, ..speeds },
            _ => return None,
        })
    }
}

/// A device whose workers mostly fill, or drain, between two files of this kind.
fn between_files(suffix: &str, [filling, draining]: [Stage; 2]) -> Outcome {
    let folder = tempfile::tempdir()?;
    let [input, output] = ["x", "y"].map(|name| folder.path().join(format!("{name}.{suffix}")));
    let columns = Columns { inputs: 1, outputs: 1 };
    let rows = 33 * 6 * TILE_ROWS + 17;
    let chunk = columns.row_bytes() as u64 * 6 * TILE_ROWS as u64;
    let cpu = Engine::builder().device(DeviceChoice::Cpu).build()?;
    cpu.run(Job::eval("y = i * 0.5")?.rows(rows as u64).output("y", create(&input, None)?))?;
    let x = || if suffix == "npy" { open(&input, None) } else { open_column(&input, "y", &ColumnOptions::default()) };
    for (planted, named) in [(Stage::Fill, filling), (Stage::Drain, draining)] {
        for (seed, ratio) in (0..).zip(RATIOS) {
            let speeds = Speeds::planted(planted, ratio, columns).ok_or("there is an output")?;
            let engine = Engine::builder().device(speeds.device(columns, seed)).chunk(chunk).workers(WORKERS as usize);
            let new = create(&output, None)?.force(true);
            let report = engine.build()?.run(Job::eval("y = x + 1")?.input("x", x()?).output("y", new))?;
            let found = report.devices[0].bottleneck.ok_or("no verdict")?;
            check(found.stage == named, format!("{named:?} of {suffix}, {ratio}: {found:?}"))?;
        }
    }
    Ok(())
}

fn files() -> Outcome {
    between_files("npy", [Stage::Fill, Stage::Drain])
}

#[cfg(feature = "parquet")]
fn encoded_files() -> Outcome {
    between_files("parquet", [Stage::Decode, Stage::Encode])
}

/// Runs the job in several sizes, each with another seed, and checks that `kind` has this bottleneck. A size is the
/// least number of chunks.
fn expect(stage: Stage, kind: DeviceKind, what: &str, run: impl Fn(u64, usize) -> Outcome<Report>) -> Outcome {
    for (seed, chunks) in [(0, 20), (1, 20), (2, 33), (3, 100)] {
        let report = run(seed, chunks * 6 * TILE_ROWS + 17)?;
        let device = report.devices.iter().find(|device| device.kind == kind).ok_or("no such device")?;
        let found = device.bottleneck.ok_or("no verdict")?;
        check(found.stage == stage, format!("{stage:?} {what}, {chunks} chunks, seed {seed}: {found:?}"))?;
        check(stage == Stage::Latency || found.busiest == stage, format!("{stage:?} {what}: {found:?}"))?;
        check((0.0..=1.0).contains(&found.busy), format!("{stage:?} {what}: {found:?}"))?;
        // What moves bytes comes near its limit, and not above it.
        let share = found.limit_bytes_per_second.map(|limit| found.bytes_per_second / limit);
        let is_right = match stage {
            Stage::Latency => share.is_none(),
            // The arithmetic of a device has no known limit.
            Stage::Kernel if kind == DeviceKind::Emulated => share.is_none(),
            // Beside the device, a core stages instead at times.
            Stage::Memory if kind == DeviceKind::Cpu => share.is_some_and(|share| (0.6..1.000_1).contains(&share)),
            _ => share.is_some_and(|share| (0.85..1.000_1).contains(&share)),
        };
        check(is_right, format!("{stage:?} {what}, {chunks} chunks: {share:?} of the limit: {found:?}"))?;
    }
    Ok(())
}

fn stages() -> Outcome {
    let kinds =
        [Stage::Fill, Stage::Drain, Stage::Memory, Stage::CopyIn, Stage::Kernel, Stage::DeviceMemory, Stage::CopyOut];
    for stage in kinds {
        for columns in COLUMNS {
            for ratio in RATIOS {
                let Some(speeds) = Speeds::planted(stage, ratio, columns) else { continue };
                let run = |seed, rows| columns.run(speeds.device(columns, seed), rows, None);
                expect(stage, DeviceKind::Emulated, &format!("{ratio} {columns:?}"), run)?;
            }
        }
    }
    Ok(())
}

fn latency() -> Outcome {
    for columns in COLUMNS.into_iter().filter(|columns| columns.outputs > 0) {
        for (blocks, ratio) in [(1, 1.2), (1, 1.5), (1, 3.0), (2, 1.2), (2, 1.5)] {
            // A chunk keeps its block while it passes through all three stages, so this many pass in
            // copy_in + arithmetic + copy_out.
            let other = (blocks as f64 * ratio - 1.0) / 2.0;
            let quick = Speeds::planted(Stage::CopyIn, 10.0, columns).ok_or("every job has inputs")?;
            let speeds = Speeds { arithmetic: other, copy_out: other, ..quick };
            let run = |seed, rows| columns.run(speeds.device(columns, seed), rows, Some(blocks));
            expect(Stage::Latency, DeviceKind::Emulated, &format!("{ratio} {blocks} blocks {columns:?}"), run)?;
        }
    }
    Ok(())
}

fn cores() -> Outcome {
    for columns in COLUMNS {
        for ratio in RATIOS {
            // One core may stage instead: the others must still be faster than memory.
            let most = (CORES - 1.0) / CORES;
            for (stage, computing, memory) in [(Stage::Kernel, 1.0, ratio.recip()), (Stage::Memory, most / ratio, 1.0)]
            {
                // The device beside the CPU is so slow that the cores compute nearly all rows.
                let slow = Speeds::planted(Stage::Fill, 10.0, columns).ok_or("every job has inputs")?;
                let slow = Speeds { fill: 4.0 * CORES / WORKERS, host_memory: memory, ..slow };
                let run = |seed, rows| {
                    let device = slow.device(columns, seed).cpu_rate(1e6 / computing / CORES);
                    columns.run_on(CORES, DeviceChoice::CpuAndEmulated(vec![device]), rows, None)
                };
                expect(stage, DeviceKind::Cpu, &format!("{ratio} {columns:?}"), run)?;
            }
        }
    }
    Ok(())
}

fn one_chunk() -> Outcome {
    // It passes through all stages in sequence, so none is busy for long.
    for columns in COLUMNS {
        let speeds = Speeds::planted(Stage::CopyIn, 1.2, columns).ok_or("every job has inputs")?;
        let report = columns.run(speeds.device(columns, 0), TILE_ROWS, None)?;
        let found = report.devices[0].bottleneck.ok_or("no verdict")?;
        check(found.stage == Stage::Latency && found.busy < 0.5, format!("{columns:?}: {found:?}"))?;
        check(found.to_string().starts_with("latency (the busiest stage, "), found.to_string())?;
        check(found.limit_bytes_per_second.is_none(), format!("{found:?}"))?;
    }
    Ok(())
}
