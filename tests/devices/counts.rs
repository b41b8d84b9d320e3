//! Counts in bins: the same for all schedules, devices, parts and journals, and errors for keys outside.

use overshot::device::{Emulated, Fault, FaultAt};
use overshot::{DeviceChoice, Engine, Error, Job, JobError, Journal, Npy, Partial, Report, Result};

use crate::harness::{Case, EmulatedCase, Module, NO_CASES, Outcome, check, cpu, engine, numbers};
use crate::rows::bits;

pub const MODULE: Module = Module { name: "counts", cases: CASES, emulated: EMULATED, ..NO_CASES };

const CASES: &[(&str, Case)] = &[
    ("counts and exact sums are those of their definition", defined),
    ("the same bits for all schedules", schedules),
    ("many bins, and chunks that are smaller than they are", many_bins),
    ("parts and journals have the counts of one run", parts),
    ("kept rows are counted beside filtered outputs", filtered),
    ("keys outside are an error, and no output is there", outside),
    ("results are computed from counts", computed),
    ("rows that stay on devices are counted, again and again", resident),
    ("no rows, and one", edges),
    ("every chunk is verified", verified),
];

const EMULATED: &[(&str, EmulatedCase)] =
    &[("others count the rows of a lost device", lost), ("a wrong bit of a count is found", wrong_bits)];

const ROWS: usize = 200_000;
const TEXT: &str = "h = histogram(x, 37, -50, 60.5); sum(x); n = bincount(k, 20); s = bincount(k, 20, x); \
                    c = bincount(x > 0, 2, k); max(x)";

struct Inputs {
    x: Vec<f64>,
    k: Vec<u8>,
}

impl Inputs {
    fn new(rows: usize) -> Inputs {
        let x = numbers(rows, 11);
        // Most keys are 3.
        let k = x.iter().enumerate().map(|(row, x)| if *x < 40.0 { 3 } else { (row % 20) as u8 }).collect();
        Inputs { x, k }
    }

    fn job(&self, text: &str) -> Result<Job<'_>> {
        Ok(Job::eval(text)?.input("x", &self.x).input("k", &self.k))
    }
}

/// The bits of values, and those of arrays with their names.
type AllBits = (Vec<Option<u64>>, Vec<(String, Vec<u64>)>);

/// The bits of all results.
fn all_bits(report: &Report) -> AllBits {
    let arrays = report.arrays.iter().map(|(name, array)| {
        let values = array.iter().flat_map(|array| array.values()).map(|value| value.as_f64().to_bits()).collect();
        (name.clone(), values)
    });
    (bits(report), arrays.collect())
}

fn counts(report: &Report, name: &str) -> Outcome<Vec<i64>> {
    Ok(report.array(name)?.and_then(|array| array.to_vec()).ok_or_else(|| format!("no counts {name}"))?)
}

fn sums(report: &Report, name: &str) -> Outcome<Vec<f64>> {
    Ok(report.array(name)?.and_then(|array| array.to_vec()).ok_or_else(|| format!("no sums {name}"))?)
}

fn defined(choice: &DeviceChoice) -> Outcome {
    let inputs = Inputs::new(ROWS);
    // With these weights, sums of floats are exact.
    let exact: Vec<f64> = inputs.x.iter().map(|x| (x * 1024.0).round() / 1024.0).collect();
    let job = inputs.job("h = histogram(x, 50, -100, 100); n = bincount(k, 20); s = bincount(k, 20, w)")?;
    let report = engine(choice).build()?.run(job.input("w", &exact))?;
    let (mut bins, mut count, mut sum) = (vec![0; 50], vec![0; 20], vec![0.0; 20]);
    for ((x, k), w) in inputs.x.iter().zip(&inputs.k).zip(&exact) {
        bins[((x + 100.0) / 4.0) as usize] += 1;
        count[usize::from(*k)] += 1;
        sum[usize::from(*k)] += w;
    }
    check(counts(&report, "h")? == bins, "another histogram")?;
    check(counts(&report, "n")? == count, "other counts")?;
    check(sums(&report, "s")? == sum, "other sums")
}

fn schedules(choice: &DeviceChoice) -> Outcome {
    for rows in [5000, ROWS] {
        let inputs = Inputs::new(rows);
        let right = all_bits(&cpu().run(inputs.job(TEXT)?)?);
        check(right.1.len() == 4, format!("{:?}", right.1))?;
        for (chunk, workers) in [(1, 1), (100 << 10, 3), (1 << 20, 5)] {
            let engine = engine(choice).chunk(chunk).workers(workers).build()?;
            check(all_bits(&engine.run(inputs.job(TEXT)?)?) == right, format!("{rows} rows, chunks of {chunk}"))?;
        }
    }
    Ok(())
}

fn many_bins(choice: &DeviceChoice) -> Outcome {
    let inputs = Inputs::new(ROWS);
    let keys: Vec<u32> = (0..ROWS as u32).map(|row| row.wrapping_mul(2_654_435_761) >> 16).collect();
    let text = "h = histogram(x, 65536, -100, 100); n = bincount(key, 65536); s = bincount(k, 3744, x)";
    let job = || Ok::<_, Error>(inputs.job(text)?.input("key", &keys));
    let right = cpu().run(job()?)?;
    let mut expected = vec![0; 1 << 16];
    keys.iter().for_each(|key| expected[*key as usize] += 1);
    check(counts(&right, "n")? == expected, "other counts")?;
    check(counts(&right, "h")?.iter().sum::<i64>() == ROWS as i64, "values that are in no bin")?;
    for chunk in [None, Some(1), Some(300 << 10)] {
        let builder = engine(choice).workers(2);
        let engine = chunk.into_iter().fold(builder, |builder, chunk| builder.chunk(chunk)).build()?;
        check(all_bits(&engine.run(job()?)?) == all_bits(&right), format!("chunks of {chunk:?}"))?;
    }
    Ok(())
}

fn parts(choice: &DeviceChoice) -> Outcome {
    let folder = tempfile::tempdir()?;
    let inputs = Inputs::new(ROWS);
    let right = all_bits(&cpu().run(inputs.job(TEXT)?)?);
    let engine = engine(choice).chunk(64 << 10).build()?;
    let mut all: Option<Partial> = None;
    for part in (0..5).rev() {
        let range = engine.rows_of_part(&inputs.job(TEXT)?, part, 5)?;
        let own = Partial::from_bytes(&engine.run_rows(inputs.job(TEXT)?, range)?.to_bytes())?;
        match &mut all {
            Some(all) => all.merge(own)?,
            None => all = Some(own),
        }
    }
    let merged = all.ok_or("no part")?;
    check(Partial::from_bytes(&merged.to_bytes())?.to_bytes() == merged.to_bytes(), "other bytes")?;
    check(all_bits(&merged.finish()?) == right, "other counts of parts")?;
    // Bytes of no other number of bins are taken for these.
    let empty = engine.run_rows(inputs.job(TEXT)?, 0..0)?.to_bytes();
    check(Partial::from_bytes(&empty)?.to_bytes() == empty, "other bytes of no rows")?;

    let path = folder.path().join("y.npy");
    let text = format!("y = x * 2; {TEXT}");
    let job = || Ok::<_, Error>(inputs.job(&text)?.output("y", Npy::create(&path)));
    let journal = Journal::beside(&path).every(std::time::Duration::ZERO);
    let report = engine.run_resumable(job()?, &journal)?;
    check(all_bits(&report) == right, "other counts with a journal")
}

fn filtered(choice: &DeviceChoice) -> Outcome {
    let inputs = Inputs::new(ROWS);
    let mut y = vec![0.0; ROWS];
    let text = "y = x[x > 20]; h = histogram(x[x > 20], 8, 20, 100); n = bincount(k[x > 20], 20); \
                s = bincount(k[x < 0], 20, x[x < 0]); mean(x[x > 20])";
    let engine = engine(choice).chunk(64 << 10).build()?;
    let report = engine.run(inputs.job(text)?.output("y", &mut y))?;
    let kept: Vec<f64> = inputs.x.iter().copied().filter(|x| *x > 20.0).collect();
    check(y[..kept.len()] == kept && report.outputs[0].rows == kept.len() as u64, "other rows")?;
    let mut bins = vec![0; 8];
    kept.iter().for_each(|x| bins[((x - 20.0) / 10.0) as usize] += 1);
    check(counts(&report, "h")? == bins, "another histogram")?;
    let mut count = vec![0; 20];
    inputs.x.iter().zip(&inputs.k).filter(|(x, _)| **x > 20.0).for_each(|(_, k)| count[usize::from(*k)] += 1);
    check(counts(&report, "n")? == count, "other counts")?;
    let negative: f64 = inputs.x.iter().filter(|x| **x < 0.0).sum();
    let found = sums(&report, "s")?;
    check((found[3] - negative).abs() < 1e-6 * negative.abs() && found[4] == 0.0, format!("{found:?}"))
}

fn outside(choice: &DeviceChoice) -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("y.npy");
    let inputs = Inputs::new(ROWS);
    let count = inputs.k.iter().filter(|k| **k >= 10).count() as u64;
    let engine = engine(choice).chunk(64 << 10).build()?;
    let job = || Ok::<_, Error>(inputs.job("y = x + 1; n = bincount(k, 10)")?.output("y", Npy::create(&path)));
    match engine.run(job()?) {
        Err(Error::InvalidJob(JobError::KeysOutside { result, count: found, keys, .. })) => {
            check((result.as_str(), found, keys) == ("n", count, 10), format!("{found} of {count} elements"))?;
        }
        other => return check(false, format!("{other:?}")),
    }
    check(std::fs::read_dir(folder.path())?.next().is_none(), "something was left behind")?;
    let report = engine.run(inputs.job("bincount(k[k < 10], 10), sum(x)")?)?;
    check(report.arrays.len() == 1, "the others are counted")
}

fn computed(choice: &DeviceChoice) -> Outcome {
    let inputs = Inputs::new(ROWS);
    let engine = engine(choice).build()?;
    let report = engine.run(inputs.job("n = bincount(k, 20); s = bincount(k, 20, x); m = s / n; sum(x - mean(x))")?)?;
    let (n, s, m) = (counts(&report, "n")?, sums(&report, "s")?, sums(&report, "m")?);
    check((0..20).all(|key| m[key] == s[key] / n[key] as f64), format!("{m:?}"))?;
    for text in ["n = bincount(k, 20); h = histogram(x, 9, 0, 1); n / h", "n = bincount(k, 20); max(n + x)"] {
        match engine.run(inputs.job(text)?) {
            Err(Error::InvalidJob(JobError::ArrayShape { name, .. })) => check(name != "x", name)?,
            other => check(false, format!("{text}: {other:?}"))?,
        }
    }
    Ok(())
}

fn resident(choice: &DeviceChoice) -> Outcome {
    let inputs = Inputs::new(ROWS);
    let right = all_bits(&cpu().run(inputs.job(TEXT)?)?);
    let engine = engine(choice).build()?;
    let (x, k) = (engine.resident(&inputs.x)?, engine.resident(&inputs.k)?);
    for run in 0..3 {
        let report = engine.run(Job::eval(TEXT)?.input("x", &x).input("k", &k))?;
        check(all_bits(&report) == right, format!("run {run}"))?;
    }
    Ok(())
}

fn edges(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice).build()?;
    for rows in [0, 1, 4096, 4097] {
        let inputs = Inputs::new(rows);
        let report = engine.run(inputs.job(TEXT)?)?;
        check(counts(&report, "n")?.iter().sum::<i64>() == rows as i64, format!("{rows} rows"))?;
        check(rows > 0 || sums(&report, "s")?.iter().all(|sum| sum.to_bits() == 0), "sums of no rows")?;
    }
    // Counts alone, of rows that no column has.
    let report = engine.run(Job::eval("n = bincount(index() % 7, 7)")?.rows(70_000))?;
    check(counts(&report, "n")? == [10_000; 7], "other numbers of rows")
}

fn verified(choice: &DeviceChoice) -> Outcome {
    let inputs = Inputs::new(ROWS);
    let right = all_bits(&cpu().run(inputs.job(TEXT)?)?);
    // Chunks of less than one piece of what is verified at once, and of several.
    for chunk in [100 << 10, 8 << 20] {
        let report = engine(choice).chunk(chunk).build()?.run(inputs.job(TEXT)?.verify(1.0))?;
        check(all_bits(&report) == right, format!("chunks of {chunk}"))?;
    }
    Ok(())
}

fn lost() -> Outcome {
    let inputs = Inputs::new(ROWS);
    let right = all_bits(&cpu().run(inputs.job(TEXT)?)?);
    for at in [FaultAt::CopyIn, FaultAt::Kernel, FaultAt::CopyOut, FaultAt::Record, FaultAt::Wait] {
        for nth in [0, 1, 5, 11] {
            let devices = vec![Emulated::new().seed(nth).fault(Fault::new(at, nth)), Emulated::new().seed(nth + 1)];
            for choice in [DeviceChoice::Emulated(devices.clone()), DeviceChoice::CpuAndEmulated(devices)] {
                let engine = Engine::builder().device(choice).chunk(64 << 10).workers(2).build()?;
                check(all_bits(&engine.run(inputs.job(TEXT)?)?) == right, format!("{at:?} {nth}"))?;
            }
        }
    }
    Ok(())
}

fn wrong_bits() -> Outcome {
    let inputs = Inputs::new(50_000);
    let mut found = 0;
    for bit in [0, 70, 64 * 25 + 3, 64 * 100] {
        let device = Emulated::new().fault(Fault::flip(FaultAt::Kernel, 2, bit));
        let engine = Engine::builder().device(device).chunk(64 << 10).workers(2).build()?;
        let job = inputs.job("h = histogram(x, 30, -100, 100); s = bincount(k, 20, x)")?.verify(1.0);
        let error = engine.run(job).err().ok_or_else(|| format!("bit {bit} was not found"))?.to_string();
        check(error.contains("the partial result of '") || error.contains("does not count"), error.clone())?;
        found += usize::from(error.contains("'h' at ["));
    }
    check(found > 1, "no bit was one of the histogram")
}
