//! Runs that compute chunks again: a wrong bit is found in the chunks that are chosen, and a right run stays as it is.

use overshot::device::{DeviceKind, Emulated, Fault, FaultAt};
use overshot::kernel::{KernelError, RowFunction};
use overshot::report::{RecomputedBy, Verification};
use overshot::testing::custom::{everything, keep};
use overshot::{DeviceChoice, Engine, Error, Job, JobError, Journal, Npy, Partial, Report, Result};

use crate::harness::{Case, EmulatedCase, Module, NO_CASES, Outcome, check, cpu, engine, numbers};
use crate::rows;

pub const MODULE: Module = Module { name: "verified", cases: CASES, on_host: ON_HOST, emulated: EMULATED, ..NO_CASES };

const CASES: &[(&str, Case)] = &[
    ("a run gives the same bits, and says what was verified", same_bits),
    ("rows that stay on devices are verified", resident),
    ("kernels of the caller's own, and those that select rows", kernels),
    ("parts, runs with a journal and passes are verified", in_parts),
    ("no rows, and fractions that are none", edges),
];

const ON_HOST: &[(&str, Case)] = &[("a function that changes its mind is found", fickle)];

const EMULATED: &[(&str, EmulatedCase)] = &[
    ("a wrong bit is found wherever it is, if the chunk was chosen", wrong_bits),
    ("a wrong partial result is found", wrong_partials),
    ("a wrong number of selected rows is found", wrong_selection),
    ("the error names the first row and both values", named),
    ("a wrong bit in rows that stay on the device is found", wrong_resident),
];

const TILE: usize = 4096;
const TEXT: &str = "y = x * 0.5 + i; t = u8(i); sum(y), std(y), argmax(y)";

fn verification(report: &Report) -> Outcome<&Verification> {
    Ok(report.verification.as_ref().ok_or("the report has no verification")?)
}

/// The chunks and rows that were verified on all devices.
fn verified(report: &Report) -> Outcome<(u64, u64)> {
    let devices = &verification(report)?.devices;
    Ok((devices.iter().map(|device| device.chunks).sum(), devices.iter().map(|device| device.rows).sum()))
}

fn same_bits(choice: &DeviceChoice) -> Outcome {
    // Chunks of less than one piece of what is verified at once, and of several.
    for chunk in [200_000, 4 << 20] {
        same_bits_in_chunks(&engine(choice).chunk(chunk).build()?)?;
    }
    Ok(())
}

fn same_bits_in_chunks(engine: &Engine) -> Outcome {
    let x = numbers(250 * TILE + 77, 8);
    let run = |fraction: Option<f64>| -> Result<_> {
        let (mut y, mut t) = (vec![0.0; x.len()], vec![0u8; x.len()]);
        let job = Job::eval(TEXT)?.input("x", &x).output("y", &mut y).output("t", &mut t);
        let report = engine.run(fraction.into_iter().fold(job, Job::verify))?;
        Ok((report, y, t))
    };
    let (plain, y, t) = run(None)?;
    check(plain.verification.is_none() && !plain.to_string().contains("verified"), format!("{plain}"))?;
    for fraction in [1e-9, 0.3, 1.0] {
        let (report, other_y, other_t) = run(Some(fraction))?;
        check((&report.results, &other_y, &other_t) == (&plain.results, &y, &t), "other bits")?;
        let (chunks, rows) = verified(&report)?;
        let all = (report.chunks, report.rows);
        check(if fraction == 1.0 { (chunks, rows) == all } else { chunks >= 1 && rows < all.1 }, format!("{report}"))?;
        let Verification { fraction: told, devices, .. } = verification(&report)?;
        check(*told == fraction && devices.len() == report.devices.len(), "the report tells the fraction")?;
        for (device, verified) in report.devices.iter().zip(devices) {
            let is_fitting = match device.kind {
                DeviceKind::Cpu => verified.by != RecomputedBy::Cpu,
                _ => verified.by == RecomputedBy::Cpu,
            };
            check(is_fitting && verified.id == device.id, format!("{verified:?}"))?;
        }
    }
    Ok(())
}

fn resident(choice: &DeviceChoice) -> Outcome {
    let x = numbers(30 * TILE + 5, 9);
    let engine = rows::engine(choice);
    let (kept, shards) = (engine.resident(&x)?, engine.shard(&x)?);
    let mut there = engine.sharded::<f64>(x.len())?;
    let mut all = Vec::new();
    for _ in 0..2 {
        let job = Job::eval("y = a + b; sum(y), min(y)")?.input("a", &kept).input("b", &shards);
        let report = engine.run(job.output("y", &mut there).verify(1.0))?;
        check(verified(&report)?.1 == x.len() as u64, format!("{report}"))?;
        let mut y = vec![0.0; x.len()];
        there.read(0, &mut y)?;
        check(x.iter().zip(&y).all(|(x, y)| x + x == *y), "other rows")?;
        all.push(report.results);
    }
    check(all[0] == all[1], "other results")
}

fn kernels(choice: &DeviceChoice) -> Outcome {
    let x: Vec<f32> = numbers(3 * 50_000, 1).iter().map(|x| *x as f32).collect();
    let (mut y, mut z) = (vec![0.0; 50_000], vec![0.0f32; 100_000]);
    let engine = engine(choice).chunk(64 << 10).build()?;
    let job = Job::kernel(everything()).input("x", &x).output("y", &mut y).output("z", &mut z).verify(1.0);
    check(verified(&engine.run(job)?)?.1 == 50_000, "all rows are verified")?;
    let x = numbers(50_000, 2);
    let (mut big, mut at) = (vec![0.0; x.len()], vec![0i64; x.len()]);
    let job = Job::kernel(&keep()).input("x", &x).output("big", &mut big).output("where", &mut at).verify(1.0);
    let report = engine.run(job)?;
    let kept: Vec<f64> = x.iter().copied().filter(|x| *x > 50.0).collect();
    check(verified(&report)?.1 == 50_000 && big[..kept.len()] == kept[..], "rows that a kernel selects")
}

fn in_parts(choice: &DeviceChoice) -> Outcome {
    let dir = tempfile::tempdir()?;
    let x = numbers(9 * TILE + 1, 3);
    let engine = engine(choice).build()?;
    let y = dir.path().join("y.npy");
    let job = || Ok::<_, Error>(Job::eval("y = sqrt(x); sum(y)")?.input("x", &x).output("y", Npy::create(&y)));
    let mut all: Option<Partial> = None;
    for part in 0..3 {
        let rows = engine.rows_of_part(&job()?, part, 3)?;
        let partial = Partial::from_bytes(&engine.run_rows(job()?.verify(0.5 + part as f64 / 10.0), rows)?.to_bytes())?;
        match &mut all {
            Some(all) => all.merge(partial)?,
            None => all = Some(partial),
        }
    }
    let report = all.ok_or("no parts")?.finish()?;
    check(verified(&report)?.0 >= 3 && verification(&report)?.fraction == 0.5, format!("{report}"))?;
    std::fs::remove_file(&y)?;
    let report = engine.run_resumable(job()?.verify(1.0), &Journal::beside(&y))?;
    check(verified(&report)?.1 == x.len() as u64, format!("{report}"))?;
    let job = Job::eval("sum(x * c)")?.input("x", &x).scalar("c", 1.0).verify(1.0);
    let last = engine.passes(job, |passes| {
        passes.run()?;
        passes.set("c", 2.0)?;
        passes.run()
    })?;
    check(verified(&last)?.1 == x.len() as u64, format!("{last}"))
}

fn edges(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice).build()?;
    let none: [f64; 0] = [];
    let report = engine.run(Job::eval("sum(x)")?.input("x", &none).verify(1.0))?;
    check(verified(&report)? == (0, 0), format!("{report}"))?;
    check(engine.run(Job::eval("sum(i)")?.rows(9).verify(0.0))?.verification.is_none(), "0 verifies nothing")?;
    for fraction in [-0.1, 1.5, f64::NAN, f64::INFINITY] {
        let result = engine.run(Job::eval("sum(i)")?.rows(9).verify(fraction));
        let is_refused = matches!(result, Err(Error::InvalidJob(JobError::VerifyFraction { .. })));
        check(is_refused, format!("{fraction}: {result:?}"))?;
    }
    // SAFETY: the kernel is never run.
    let kernel = unsafe {
        overshot::kernel::CustomKernel::cuda(
            "k.cu",
            "extern \"C\" __global__ void k(const float *x, float *y, long long rows) {}",
            "k",
        )
    }?;
    let mut y = [0.0f32];
    let result = engine.plan(&Job::kernel(&kernel).input("x", &[1.0f32]).output("y", &mut y).verify(0.5));
    check(matches!(result, Err(Error::InvalidKernel(KernelError::CannotVerify { .. }))), format!("{result:?}"))
}

/// A function for the host that gives another number each time it is called.
fn fickle(choice: &DeviceChoice) -> Outcome {
    let calls = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let count = calls.clone();
    let function = RowFunction::new("fickle").input::<u64>("x").output::<u64>("y").run(move |x, y| {
        let call = count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        y.iter_mut().zip(x).for_each(|(y, x)| *y = x + call);
    });
    let mut y = [0u64];
    let result =
        engine(choice).build()?.run(Job::kernel(&function).input("x", &[5u64]).output("y", &mut y).verify(1.0));
    let text = result.err().ok_or("it was not found")?.to_string();
    check(text.contains("'y' differs from row 0 on: it is 5 (0x5), but 6 (0x6)"), &text)?;
    check(text.contains("check that the kernel and its function for the host compute the same"), text)
}

/// An engine with one emulated device that has a fault.
fn faulty(fault: Fault) -> Engine {
    let device = Emulated::new().seed(5).fault(fault);
    Engine::builder().device(device).chunk(150_000).workers(2).build().unwrap()
}

/// The error of a verification, with the chunk that it names.
fn found(result: Result<Report>) -> Outcome<Option<(u64, std::ops::Range<u64>, Error)>> {
    match result {
        Ok(_) => Ok(None),
        Err(Error::Chunk { chunk, rows, cause, .. }) if matches!(*cause, Error::Verification(_)) => {
            Ok(Some((chunk, rows, *cause)))
        }
        Err(error) => Err(error.into()),
    }
}

fn wrong_bits() -> Outcome {
    let x = numbers(60 * TILE, 4);
    let right: Vec<f64> = x.iter().map(|x| x * 3.0 + 1.0).collect();
    let run = |engine: &Engine, fraction, pinned: bool| -> Outcome<_> {
        let (mut slice, mut place) = (vec![0.0; x.len()], engine.pinned::<f64>(x.len())?);
        let job = Job::eval("y = x * 3.0 + 1.0")?.input("x", &x).verify(fraction);
        let result = match pinned {
            true => engine.run(job.output("y", &mut place)),
            false => engine.run(job.output("y", &mut slice)),
        };
        let y: &[f64] = if pinned { &place } else { &slice };
        let wrong = y.iter().zip(&right).filter(|(y, right)| y.to_bits() != right.to_bits()).count();
        Ok((result, wrong))
    };
    let clean = run(&faulty(Fault::new(FaultAt::Kernel, u64::MAX)), 0.4, false)?.0?;
    let (chosen, chunks) = (verified(&clean)?.0, clean.chunks);
    check(chosen > 1 && chosen < chunks, format!("{chosen} of {chunks}"))?;
    for at in [FaultAt::CopyIn, FaultAt::Kernel, FaultAt::CopyOut] {
        for pinned in [false, true] {
            let mut noticed = 0;
            for nth in 0..chunks {
                // A bit of the exponent of a row in the middle of the chunk.
                let engine = || faulty(Fault::flip(at, nth, 64 * 2000 + 55));
                let (result, wrong) = run(&engine(), 0.0, pinned)?;
                result?;
                check(wrong == 1, format!("{at:?} {nth}: {wrong} wrong rows"))?;
                check(found(run(&engine(), 1.0, pinned)?.0)?.is_some(), format!("{at:?} {nth}: not found"))?;
                noticed += u64::from(found(run(&engine(), 0.4, pinned)?.0)?.is_some());
            }
            check(noticed == chosen, format!("{at:?}: {noticed} found in {chosen} of {chunks} chunks"))?;
        }
    }
    Ok(())
}

fn wrong_partials() -> Outcome {
    let x = numbers(20 * TILE + 100, 5);
    let job = |fraction| Ok::<_, Error>(Job::eval("sum(x), n = count(x > 0)")?.input("x", &x).verify(fraction));
    let right = faulty(Fault::new(FaultAt::Kernel, u64::MAX)).run(job(0.0)?)?.results;
    for (at, word) in [(FaultAt::Kernel, 0), (FaultAt::Kernel, 1), (FaultAt::CopyOut, 2), (FaultAt::CopyOut, 3)] {
        let fault = Fault::flip(at, 0, 64 * word + 40);
        check(faulty(fault).run(job(0.0)?)?.results != right, "the bit made no difference")?;
        let (_, rows, error) = found(faulty(fault).run(job(1.0)?))?.ok_or("not found")?;
        let name = if word % 2 == 0 { "sum(x)" } else { "n" };
        let row = rows.start + word / 2 * TILE as u64;
        let expected = format!("the partial result of '{name}' differs from row {row} on: ");
        check(error.to_string().starts_with(&expected), format!("{error}, not {expected}"))?;
    }
    Ok(())
}

fn wrong_selection() -> Outcome {
    // A single block of rows.
    let x = numbers(512, 6);
    let run = |engine: &Engine, fraction| {
        let (mut big, mut at) = (vec![0.0; x.len()], vec![0i64; x.len()]);
        let job = Job::kernel(&keep()).input("x", &x).output("big", &mut big).output("where", &mut at);
        engine.run(job.verify(fraction))
    };
    // The last word that the kernel writes is the number of selected rows.
    let fault = Fault::flip(FaultAt::Kernel, 0, 128 * 512);
    let wrong = run(&faulty(fault), 0.0)?.outputs[0].rows;
    check(wrong.abs_diff(run(&faulty(Fault::new(FaultAt::Kernel, u64::MAX)), 0.0)?.outputs[0].rows) == 1, "no fault")?;
    let (_, _, error) = found(run(&faulty(fault), 1.0))?.ok_or("not found")?;
    check(error.to_string().starts_with("the number of selected rows differs from row"), format!("{error}"))
}

fn named() -> Outcome {
    let dir = tempfile::tempdir()?;
    let x = numbers(3 * TILE, 7);
    let y = dir.path().join("y.npy");
    let engine = faulty(Fault::flip(FaultAt::CopyOut, 0, 64 * 321 + 63));
    let job = Job::eval("y = x * 2")?.input("x", &x).output("y", Npy::create(&y)).verify(1.0);
    let error = engine.run(job).err().ok_or("not found")?;
    check(!y.exists() && !error.is_usage(), "no output gets its name")?;
    let text = error.to_string();
    let right = 2.0 * x[321];
    let [found, again] = [-right, right].map(|value| format!("{:?} ({:#x})", value, value.to_bits()));
    let expected =
        format!("'y' differs from row 321 on: it is {found}, but {again} if it is computed again on the CPU; ");
    check(text.starts_with("emulated, worker ") && text.contains(&expected), text)
}

/// The copy on the device is wrong, and stays there.
fn wrong_resident() -> Outcome {
    let x = numbers(6 * TILE, 8);
    let engine = faulty(Fault::flip(FaultAt::CopyIn, 0, 64 * 100 + 55));
    let kept = engine.resident(&x)?;
    let run = |fraction| engine.run(Job::eval("sum(x)")?.input("x", &kept).verify(fraction));
    let right = cpu().run(Job::eval("sum(x)")?.input("x", &x))?;
    check(run(0.0)?.results != right.results, "the bit made no difference")?;
    check(found(run(1.0))?.is_some(), "the run that reads the wrong row from the device")
}
