//! How the CPU and other devices share the rows of a job, in virtual time.

use libtest_mimic::Failed;
use overshot::device::Emulated;
use overshot::{DeviceChoice, Engine, Job, Report};

use crate::harness::{EmulatedCase, Module, NO_CASES, Outcome, check, numbers};

pub const MODULE: Module = Module { name: "sharing", emulated: EMULATED, ..NO_CASES };

const EMULATED: &[(&str, EmulatedCase)] = &[
    ("a seed gives the same division in every run", same_division),
    ("seeds give different orders and the same results", seeds_differ),
    ("if the device adds nothing, staging ends", staging_ends),
    ("if computing is better, staging ends", nobody_stages),
    ("if staging keeps all cores busy, nobody computes", nobody_computes),
    ("if staging is better, the CPU adds its rows", cpu_adds),
    ("the CPU computes the rows of a device that fails", failures),
];

const ROWS: usize = 4096 * 1024;
/// Workers of each device, and so the cores of the emulated machine.
const WORKERS: usize = 4;

/// Returns a device with these rates in rows per second. A row has 8 bytes in and 8 bytes out.
fn device(seed: u64, kernel: f64, staging: f64) -> Emulated {
    let device = Emulated::new().seed(seed).copy_in_rate(1e12).kernel_rate(kernel).copy_out_rate(1e12);
    // A worker fills and drains each row.
    device.fill_rate(2.0 * 8.0 * staging).drain_rate(2.0 * 8.0 * staging)
}

/// Runs `y = x + 1; sum(y)` on the CPU and these devices, and checks the rows.
fn run(devices: Vec<Emulated>, timeline: bool) -> Result<Report, Failed> {
    run_rows(ROWS, devices, timeline)
}

/// The same with so many rows.
fn run_rows(rows: usize, devices: Vec<Emulated>, timeline: bool) -> Result<Report, Failed> {
    let x = numbers(rows, 7);
    let mut y = vec![f64::NAN; rows];
    let engine = Engine::builder().device(DeviceChoice::CpuAndEmulated(devices)).workers(WORKERS).chunk(16 * 4096);
    let job = Job::eval("y = x + 1; sum(y)")?.input("x", &x).output("y", &mut y).timeline(timeline);
    let report = engine.build()?.run(job)?;
    check(x.iter().zip(&y).all(|(x, y)| x + 1.0 == *y), "wrong rows")?;
    Ok(report)
}

/// Returns the rows of each device.
fn rows(report: &Report) -> Vec<u64> {
    report.devices.iter().map(|device| device.rows).collect()
}

/// Returns the virtual seconds of the slowest device.
fn seconds(report: &Report) -> f64 {
    let times = report.devices.iter().filter_map(|device| device.virtual_time);
    times.max().unwrap_or_default().as_secs_f64()
}

/// Returns the timeline as text.
fn timeline(report: &Report) -> Result<Vec<u8>, Failed> {
    let mut text = Vec::new();
    report.timeline.as_ref().ok_or("no timeline")?.write_chrome(&mut text)?;
    Ok(text)
}

fn same_division() -> Outcome {
    for seed in 0..6 {
        let devices = || vec![device(seed, 3e6, 4e6).cpu_rate(1e6), device(seed + 1, 2e6, 3e6)];
        let [first, again] = [run(devices(), true)?, run(devices(), true)?];
        check(rows(&first) == rows(&again), format!("seed {seed}: {:?}, then {:?}", rows(&first), rows(&again)))?;
        check(timeline(&first)? == timeline(&again)?, format!("seed {seed}: another timeline"))?;
        check(rows(&first).iter().all(|rows| *rows > 0), format!("seed {seed}: {:?}", rows(&first)))?;
    }
    Ok(())
}

fn seeds_differ() -> Outcome {
    let reports = (0..8).map(|seed| run(vec![device(seed, 3e6, 2e6).cpu_rate(1e6)], true));
    let reports = reports.collect::<Result<Vec<_>, _>>()?;
    let sum = |report: &Report| report.value("sum(y)").ok().flatten().map(|sum| sum.as_f64().to_bits());
    check(reports.iter().all(|report| sum(report) == sum(&reports[0])), "another sum")?;
    let timelines = reports.iter().map(timeline).collect::<Result<Vec<_>, _>>()?;
    check(timelines.iter().any(|one| *one != timelines[0]), "all seeds have the same order")
}

fn staging_ends() -> Outcome {
    for seed in 0..4 {
        // The device adds an eightieth to the rows that the cores compute.
        let report = run(vec![device(seed, 1e5, 1e6).cpu_rate(2e6)], false)?;
        let [cpu, staged] = rows(&report)[..] else { return Err("two devices".into()) };
        check(staged * 10 < cpu, format!("seed {seed}: {cpu} rows computed, {staged} staged"))?;
    }
    Ok(())
}

fn nobody_stages() -> Outcome {
    // Too few rows to try both sides at once. The workers of an emulated machine do not share its cores, so that would
    // be faster.
    let all = ROWS / 4;
    for seed in 0..4 {
        // A core computes twice as many rows as it stages.
        let report = run_rows(all, vec![device(seed, 1e9, 1e6).cpu_rate(2e6)], false)?;
        let [cpu, staged] = rows(&report)[..] else { return Err("two devices".into()) };
        check(staged * 10 < cpu, format!("seed {seed}: {cpu} rows computed, {staged} staged"))?;
        let best = all as f64 / (WORKERS as f64 * 2e6);
        let ratio = seconds(&report) / best;
        check((0.8..1.1).contains(&ratio), format!("seed {seed}: {ratio} of the time of {WORKERS} cores"))?;
    }
    Ok(())
}

fn nobody_computes() -> Outcome {
    for seed in 0..4 {
        // A core stages eight times as many rows as it computes, and the device never makes it wait.
        let report = run(vec![device(seed, 1e9, 8e6).cpu_rate(1e6)], false)?;
        let [cpu, staged] = rows(&report)[..] else { return Err("two devices".into()) };
        check(cpu * 10 < staged, format!("seed {seed}: {cpu} rows computed, {staged} staged"))?;
    }
    Ok(())
}

fn cpu_adds() -> Outcome {
    for seed in 0..4 {
        // A core stages ten times as many rows as it computes, and the device is the bottleneck.
        let report = run(vec![device(seed, 1e7, 1e7).cpu_rate(1e6)], false)?;
        let [cpu, staged] = rows(&report)[..] else { return Err("two devices".into()) };
        check(cpu > 0 && cpu < staged, format!("seed {seed}: {cpu} rows computed, {staged} staged"))?;
        let alone = ROWS as f64 / 1e7;
        let ratio = seconds(&report) / alone;
        check(ratio < 0.95, format!("seed {seed}: {ratio} of the time of the device alone"))?;
    }
    Ok(())
}

fn failures() -> Outcome {
    use overshot::device::{Fault, FaultAt};
    let right = run(vec![device(0, 3e6, 2e6)], false)?;
    for nth in [0, 3, 9, 30] {
        for at in [FaultAt::CopyIn, FaultAt::Kernel, FaultAt::CopyOut, FaultAt::Query, FaultAt::Record] {
            let report = run(vec![device(nth, 3e6, 2e6).cpu_rate(1e6).fault(Fault::new(at, nth))], false)?;
            check(report.results == right.results, format!("{at:?} {nth}: other results"))?;
            let [cpu, emulated] = rows(&report)[..] else { return Err("two devices".into()) };
            check(cpu + emulated == ROWS as u64, format!("{at:?} {nth}: {cpu} + {emulated} rows"))?;
            let is_told = report.notes.iter().any(|note| note.contains("emulated was lost after"));
            check(is_told || at == FaultAt::Query, format!("{at:?} {nth}: {:?}", report.notes))?;
        }
    }
    Ok(())
}
