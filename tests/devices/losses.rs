//! Devices that fail during a run: others compute their rows, to the same bits.

use ndarray::Array2;
use overshot::device::{Emulated, Fault, FaultAt};
use overshot::testing::custom::keep;
use overshot::{DeviceChoice, Engine, Error, Input, Job, Npy, Report};

use crate::harness::{EmulatedCase, Module, NO_CASES, Outcome, check, cpu, each_pass, numbers};
use crate::rows::bits;

pub const MODULE: Module = Module { name: "losses", emulated: EMULATED, ..NO_CASES };

const EMULATED: &[(&str, EmulatedCase)] = &[
    ("others compute the rows of a lost device", goes_on),
    ("the last device is an error", nobody_left),
    ("selected rows begin anew", selects),
    ("products over the rows begin anew", products),
    ("passes go on", passes),
    ("errors of files and of rows that stay on a device are errors", others),
];

const AT: [FaultAt; 6] =
    [FaultAt::CopyIn, FaultAt::Kernel, FaultAt::CopyOut, FaultAt::Record, FaultAt::Wait, FaultAt::OpenStream];
const ROWS: usize = 300_000;

/// Returns an engine on so many devices, of which those with a number below `fail` fail.
fn engine(devices: usize, fail: usize, fault: Fault, with_cpu: bool) -> overshot::Result<Engine> {
    let device = |number: usize| {
        let device = Emulated::new().seed(number as u64).copy_in_rate(1e9).kernel_rate(1e8).copy_out_rate(1e9);
        if number < fail { device.fault(fault) } else { device }
    };
    let all = (0..devices).map(device).collect();
    let choice = if with_cpu { DeviceChoice::CpuAndEmulated(all) } else { DeviceChoice::Emulated(all) };
    Engine::builder().device(choice).chunk(64 << 10).workers(2).build()
}

fn is_told(report: &Report, losses: usize) -> bool {
    let is_loss = |note: &&String| note.contains("was lost after") || note.contains("took no part");
    report.notes.iter().filter(is_loss).count() == losses
}

fn goes_on() -> Outcome {
    let x = numbers(ROWS, 5);
    let job = || Ok::<_, Error>(Job::eval("y = x + 1; sum(x), std(x)")?.input("x", &x));
    let mut y = vec![0.0; ROWS];
    let right = bits(&cpu().run(job()?.output("y", &mut y))?);
    let mut count = 0;
    for at in AT {
        for nth in [0, 1, 2, 5, 11, 17] {
            for (devices, fail, with_cpu) in [(2, 1, false), (3, 2, false), (1, 1, true), (2, 2, true)] {
                let what = format!("{at:?} {nth}, {fail} of {devices} devices, CPU: {with_cpu}");
                let engine = engine(devices, fail, Fault::new(at, nth), with_cpu)?;
                y.fill(f64::NAN);
                let report = engine.run(job()?.output("y", &mut y)).map_err(|error| format!("{what}: {error}"))?;
                check(bits(&report) == right, format!("{what}: other results"))?;
                check(x.iter().zip(&y).all(|(x, y)| x + 1.0 == *y), format!("{what}: wrong rows"))?;
                let rows: u64 = report.devices.iter().map(|device| device.rows).sum();
                check(rows == ROWS as u64, format!("{what}: {rows} rows"))?;
                count += usize::from(is_told(&report, fail));
            }
        }
    }
    // A device may end before its call of this number.
    check(count > 100, format!("only {count} of 144 runs lost all devices that should fail"))
}

fn nobody_left() -> Outcome {
    let folder = tempfile::tempdir()?;
    let x = numbers(ROWS, 6);
    for at in AT {
        let engine = engine(2, 2, Fault::new(at, 1), false)?;
        let job = Job::eval("y = x + 1")?.input("x", &x).output("y", Npy::create(folder.path().join("y.npy")));
        let error = engine.run(job).err().ok_or(format!("{at:?}: no error"))?;
        check(error.to_string().contains("on demand"), format!("{at:?}: {error}"))?;
        check(std::fs::read_dir(folder.path())?.count() == 0, format!("{at:?}: something was left behind"))?;
    }
    Ok(())
}

fn selects() -> Outcome {
    let x: Vec<f64> = (0..ROWS as u32).map(|i| f64::from(i % 100)).collect();
    let right: Vec<usize> = (0..ROWS).filter(|row| x[*row] > 50.0).collect();
    for at in AT {
        for (nth, with_cpu) in [(0, false), (3, false), (7, true), (19, true), (40, true)] {
            let engine = engine(2, 1, Fault::new(at, nth), with_cpu)?;
            let (mut y, mut place) = (vec![0.0; ROWS], vec![0i64; ROWS]);
            let job = Job::kernel(&keep()).input("x", &x).output("big", &mut y).output("where", &mut place);
            let kept = engine.run(job).map_err(|error| format!("{at:?} {nth}: {error}"))?.outputs[0].rows as usize;
            check(kept == right.len(), format!("{at:?} {nth}: {kept} rows"))?;
            let is_right = right.iter().zip(&place).all(|(row, place)| *row as i64 == *place);
            check(is_right, format!("{at:?} {nth}: wrong rows"))?;
        }
    }
    Ok(())
}

fn products() -> Outcome {
    let x = Array2::from_shape_vec((ROWS, 3), numbers(3 * ROWS, 9))?;
    let run = |engine: &Engine| -> Result<(Report, bool), Error> {
        // In place, where the device can.
        let mut y = engine.pinned::<f64>(3 * ROWS)?;
        y.fill(f64::NAN);
        let job = Job::eval("g = x.T @ x; y = 2 * x; sum(x), std(x)")?;
        let report = engine.run(job.input("x", Input::from(x.view())).output("y", &mut y))?;
        let is_right = x.iter().zip(y.iter()).all(|(x, y)| 2.0 * x == *y);
        Ok((report, is_right))
    };
    let (right, _) = run(&engine(1, 0, Fault::new(FaultAt::Wait, 0), false)?)?;
    let mut count = 0;
    for at in AT {
        for nth in [0, 2, 11, 23, 80] {
            for (devices, fail) in [(2, 1), (3, 2)] {
                let what = format!("{at:?} {nth}, {fail} of {devices} devices");
                let engine = engine(devices, fail, Fault::new(at, nth), false)?;
                let (report, is_right) = run(&engine).map_err(|error| format!("{what}: {error}"))?;
                let same = (&report.results, &report.arrays) == (&right.results, &right.arrays);
                check(same, format!("{what}: other results"))?;
                check(is_right, format!("{what}: wrong rows"))?;
                let rows: u64 = report.devices.iter().map(|device| device.rows).sum();
                check(rows == ROWS as u64, format!("{what}: {rows} rows"))?;
                count += usize::from(is_told(&report, fail));
            }
        }
    }
    check(count > 25, format!("only {count} of 60 runs lost all devices that should fail"))?;
    // The CPU would compute other bits.
    let engine = engine(1, 1, Fault::new(FaultAt::Kernel, 0), true)?;
    let error = run(&engine).err().ok_or("the CPU went on")?;
    check(error.to_string().contains("on demand"), error.to_string())
}

fn passes() -> Outcome {
    let x = numbers(ROWS, 7);
    for nth in [0, 1, 4, 9, 16, 25] {
        let engine = engine(2, 1, Fault::new(FaultAt::Kernel, nth), nth % 2 == 0)?;
        check_passes(&engine, &x, &format!("kernel {nth}"))?;
    }
    Ok(())
}

/// Checks three passes whose device is lost at the named call.
pub fn check_passes(engine: &Engine, x: &[f64], at: &str) -> Outcome {
    let mut sums = Vec::new();
    each_pass(engine, Job::eval("sum(x + c)")?.input("x", x).scalar("c", 0.0), |report| {
        sums.push(bits(report));
        (sums.len() < 3).then_some([("c", sums.len() as f64)])
    })?;
    for (c, sum) in sums.iter().enumerate() {
        let right = bits(&cpu().run(Job::eval("sum(x + c)")?.input("x", x).scalar("c", c as f64))?);
        check(*sum == right, format!("{at}, pass {c}"))?;
    }
    Ok(())
}

fn others() -> Outcome {
    let x = numbers(ROWS, 8);
    let engine = engine(2, 1, Fault::new(FaultAt::Kernel, 0), false)?;
    let data = engine.shard(&x)?;
    let error = engine.run(Job::eval("sum(x)")?.input("x", &data)).err().ok_or("rows came from nowhere")?;
    check(error.to_string().contains("on demand"), error.to_string())
}
