//! Devices that hang: after the time limit, others compute their rows, and nobody waits for them again. An emulated
//! device that was given up goes on when the run is over: its copies then access the slots, which must have stayed.

use std::time::Duration;

use overshot::device::{Emulated, Fault, FaultAt};
use overshot::testing::custom::keep;
use overshot::{DeviceChoice, Engine, Error, Job, Npy, SettingError};

use crate::harness::{EmulatedCase, Module, NO_CASES, Outcome, check, cpu, numbers};
use crate::losses::check_passes;
use crate::rows::bits;

pub const MODULE: Module = Module { name: "hangs", emulated: EMULATED, ..NO_CASES };

const EMULATED: &[(&str, EmulatedCase)] = &[
    ("others compute the rows", goes_on),
    ("the last device is an error that names its chunks", nobody_left),
    ("a device that is slow is given up at the limit, and not before", slow),
    ("selected rows and passes go on", selects_and_passes),
    ("a run on arrays of a device has no limit, and a note", in_place),
    ("without a limit a run that hangs is an error, and a limit is not zero", settings),
];

const ROWS: usize = 200_000;
const LIMIT: Duration = Duration::from_secs(30);

/// Returns an engine with a time limit on these devices, which take some time for their work.
fn engine(devices: Vec<Emulated>, with_cpu: bool) -> overshot::Result<Engine> {
    let rated = |device: Emulated| device.copy_in_rate(1e9).kernel_rate(1e8).copy_out_rate(1e9);
    let all = devices.into_iter().map(rated).collect();
    let choice = if with_cpu { DeviceChoice::CpuAndEmulated(all) } else { DeviceChoice::Emulated(all) };
    Engine::builder().device(choice).chunk(64 << 10).workers(2).device_timeout(LIMIT).build()
}

fn hanging(at: FaultAt, nth: u64) -> Emulated {
    Emulated::new().seed(nth).fault(Fault::hang(at, nth))
}

const AT: [FaultAt; 3] = [FaultAt::CopyIn, FaultAt::Kernel, FaultAt::CopyOut];

fn goes_on() -> Outcome {
    let x = numbers(ROWS, 1);
    let job = || Ok::<_, Error>(Job::eval("y = x + 1; sum(x), std(x)")?.input("x", &x));
    let mut y = vec![0.0; ROWS];
    let right = bits(&cpu().run(job()?.output("y", &mut y))?);
    let mut given_up = 0;
    for at in AT {
        for nth in [0, 1, 2, 5, 11] {
            for with_cpu in [false, true] {
                let what = format!("{at:?} {nth}, CPU: {with_cpu}");
                let engine = engine(vec![hanging(at, nth), Emulated::new()], with_cpu)?;
                y.fill(f64::NAN);
                let report = engine.run(job()?.output("y", &mut y)).map_err(|error| format!("{what}: {error}"))?;
                check(bits(&report) == right, format!("{what}: other results"))?;
                check(x.iter().zip(&y).all(|(x, y)| x + 1.0 == *y), format!("{what}: wrong rows"))?;
                check(engine.memory().iter().all(|memory| memory.device.in_use == 0), format!("{what}: in use"))?;
                given_up += usize::from(report.notes.iter().any(|note| note.contains("and was given up")));
            }
        }
    }
    // A device may have fewer chunks.
    check(given_up > 20, format!("only {given_up} of 30 devices were given up"))
}

fn nobody_left() -> Outcome {
    let folder = tempfile::tempdir()?;
    let x = numbers(ROWS, 2);
    for at in AT {
        let engine = engine(vec![hanging(at, 3)], false)?;
        let job = Job::eval("y = x + 1")?.input("x", &x).output("y", Npy::create(folder.path().join("y.npy")));
        let error = engine.run(job).err().ok_or(format!("{at:?}: no error"))?;
        let text = error.to_string();
        let parts =
            ["emulated", "(rows ", "within the time limit of 30 s", "of pinned memory stay allocated", "chunks "];
        check(parts.iter().all(|part| text.contains(part)), format!("{at:?}: {text}"))?;
        check(std::fs::read_dir(folder.path())?.count() == 0, format!("{at:?}: something was left behind"))?;
        // The emulated device is a new one in each run.
        let error = engine.run(Job::eval("sum(x)")?.input("x", &x[..10])).err();
        check(error.is_none(), format!("{at:?}: the next job fails: {error:?}"))?;
    }
    Ok(())
}

fn slow() -> Outcome {
    let x = numbers(ROWS, 3);
    let run = |seconds: f64| {
        // One chunk of one worker at a time, so that all chunks but the first one wait for none.
        let rows = 4096.0;
        let choice = DeviceChoice::Emulated(vec![Emulated::new().kernel_rate(rows / seconds)]);
        let engine = Engine::builder().device(choice).chunk(32 << 10).workers(1).device_timeout(LIMIT).build()?;
        engine.run(Job::eval("sum(x)")?.input("x", &x))
    };
    check(run(29.0)?.notes.is_empty(), "it was within the limit")?;
    let error = run(31.0).err().ok_or("it was beyond the limit")?;
    check(error.to_string().contains("chunk 0 (rows 0 to "), error.to_string())
}

fn selects_and_passes() -> Outcome {
    let x: Vec<f64> = (0..ROWS as u32).map(|i| f64::from(i % 100)).collect();
    let right: Vec<usize> = (0..ROWS).filter(|row| x[*row] > 50.0).collect();
    for (at, hang) in AT.into_iter().flat_map(|at| [(at, 1), (at, 2)]) {
        // Those that hang are all given up before the run begins anew.
        let devices = (0..hang).map(|_| hanging(at, 4)).chain([Emulated::new()]).collect();
        let engine = engine(devices, false)?;
        let (mut y, mut place) = (vec![0.0; ROWS], vec![0i64; ROWS]);
        let job = Job::kernel(&keep()).input("x", &x).output("big", &mut y).output("where", &mut place);
        let report = engine.run(job)?;
        let (kept, notes) = (report.outputs[0].rows as usize, report.notes.iter());
        let given_up = notes.filter(|note| note.contains("and was given up")).count();
        check(kept == right.len() && given_up == hang, format!("{at:?}: {kept} rows, {given_up} of {hang}"))?;
        let is_right = right.iter().zip(&place).all(|(row, place)| *row as i64 == *place);
        check(is_right, format!("{at:?}: wrong rows"))?;

        check_passes(&engine, &x, &format!("{at:?}"))?;
    }
    Ok(())
}

fn in_place() -> Outcome {
    let x = numbers(ROWS, 4);
    let choice = DeviceChoice::Emulated(vec![Emulated::new().kernel_rate(1.0); 2]);
    let engine = Engine::builder().device(choice).device_timeout(LIMIT).build()?;
    let data = engine.shard(&x)?;
    let report = engine.run(Job::eval("sum(x)")?.input("x", &data))?;
    let note = "the time limit of 30 s for devices did not hold: they use the memory of 'x' in place";
    check(report.notes.iter().any(|other| other.contains(note)), format!("{:?}", report.notes))?;
    check(report.notes.iter().all(|note| !note.contains("given up")), format!("{:?}", report.notes))
}

fn settings() -> Outcome {
    let device = hanging(FaultAt::Kernel, 0);
    let engine = Engine::builder().device(device).build()?;
    let error = engine.run(Job::eval("sum(x)")?.input("x", numbers(100, 5))).err().ok_or("no error")?;
    check(error.to_string().contains("there is no time limit"), error.to_string())?;
    let error = Engine::builder().device_timeout(Duration::ZERO).build().err().ok_or("no error")?;
    check(matches!(error, Error::InvalidSetting(SettingError::DeviceTimeout)), error.to_string())
}
