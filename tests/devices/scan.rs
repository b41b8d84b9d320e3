//! Running sums: those of a loop, with the same bits on every device.

use half::{bf16, f16};
use ndarray::ArrayView2;
use overshot::device::{Emulated, Fault, FaultAt};
use overshot::{DeviceChoice, Engine, Error, Input, Job, JobError, Journal, Npy, Scalar};

use crate::harness::{Case, EmulatedCase, Module, NO_CASES, Outcome, check, cpu, engine, numbers};

pub const MODULE: Module = Module { name: "running sums", cases: CASES, emulated: EMULATED, ..NO_CASES };

const CASES: &[(&str, Case)] = &[
    ("sums of every dtype are those of a loop", defined),
    ("the same bits for all schedules", schedules),
    ("special values", special),
    ("sums of neighbours, of sums, and in filters and results", used),
    ("no rows and few", edges),
    ("every chunk of every pass is verified", verified),
    ("rows that stay on devices", resident),
    ("what is refused", refused),
];

const EMULATED: &[(&str, EmulatedCase)] = &[("others add up the rows of a lost device", lost)];

const ROWS: usize = 100_003;

/// The sums of these values and all before each.
fn naive<T: Copy, S: Copy>(values: &[T], none: S, add: impl Fn(S, T) -> S) -> Vec<S> {
    let sums = values.iter().scan(none, |sum, value| {
        *sum = add(*sum, *value);
        Some(*sum)
    });
    sums.collect()
}

macro_rules! compare {
    ($engine:expr, $values:expr, $sums:ty, $add:expr, $round:expr) => {{
        let values = $values;
        let expected: Vec<_> = naive(&values, <$sums>::default(), $add).into_iter().map($round).collect();
        let mut y = expected.clone();
        y.fill(Default::default());
        $engine.run(Job::eval("y = cumsum(x)")?.input("x", &values[..]).output("y", &mut y[..]))?;
        let row = y.iter().zip(&expected).position(|(found, expected)| found != expected);
        check(row.is_none(), format!("{} rows of {}: row {row:?}", values.len(), stringify!($sums)))?;
    }};
}

fn defined(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice).chunk(64 << 10).build()?;
    for rows in [5000, 70_001] {
        let random = || (0..rows as u64).map(|row| row.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ row << 7);
        compare!(engine, random().map(|x| x as i64).collect::<Vec<_>>(), i64, i64::wrapping_add, |x| x);
        compare!(engine, random().collect::<Vec<_>>(), u64, u64::wrapping_add, |x| x);
        compare!(engine, random().map(|x| x as i32).collect::<Vec<_>>(), i64, |a, b| a + i64::from(b), |x| x);
        compare!(engine, random().map(|x| x as u32).collect::<Vec<_>>(), u64, |a, b| a + u64::from(b), |x| x);
        compare!(engine, random().map(|x| x as i16).collect::<Vec<_>>(), i64, |a, b| a + i64::from(b), |x| x);
        compare!(engine, random().map(|x| x as u16).collect::<Vec<_>>(), u64, |a, b| a + u64::from(b), |x| x);
        compare!(engine, random().map(|x| x as i8).collect::<Vec<_>>(), i64, |a, b| a + i64::from(b), |x| x);
        compare!(engine, random().map(|x| x as u8).collect::<Vec<_>>(), u64, |a, b| a + u64::from(b), |x| x);
        compare!(engine, random().map(|x| x & 5 == 1).collect::<Vec<_>>(), i64, |a, b| a + i64::from(b), |x| x);
        // Sums of these are exact, in any order.
        let small = || random().map(|x| (x >> 40) as f32 / 256.0 - 30_000.0);
        compare!(engine, small().map(f64::from).collect::<Vec<_>>(), f64, |a, b| a + b, |x| x);
        compare!(engine, small().collect::<Vec<_>>(), f64, |a, b| a + f64::from(b), |x| x as f32);
        let halves = || random().map(|x| (x >> 60) as f32 - 7.5);
        compare!(engine, halves().map(f16::from_f32).collect::<Vec<_>>(), f64, |a, b| a + b.to_f64(), f16::from_f64);
        compare!(engine, halves().map(bf16::from_f32).collect::<Vec<_>>(), f64, |a, b| a + b.to_f64(), bf16::from_f64);
    }
    Ok(())
}

const TEXT: &str =
    "y = cumsum(x); z = cumsum(x * x - mean(x)) / sum(x); s = sum(cumsum(x)); m = max(cumsum(cumsum(x)))";

/// The bits of the outputs and of the results.
fn run<'x>(engine: &Engine, x: impl Into<Input<'x>>, rows: usize, verify: f64) -> Outcome<Vec<u64>> {
    let (mut y, mut z) = (vec![0.0; rows], vec![0.0; rows]);
    let job = Job::eval(TEXT)?.input("x", x).output("y", &mut y).output("z", &mut z).verify(verify);
    let report = engine.run(job)?;
    check(report.arrays.is_empty() && report.results.len() == 2, "sums of tiles are no results")?;
    let results = report.results.iter().flat_map(|(_, value)| value.map(Scalar::as_f64));
    Ok(y.into_iter().chain(z).chain(results).map(f64::to_bits).collect())
}

fn schedules(choice: &DeviceChoice) -> Outcome {
    for rows in [5000, ROWS] {
        let x = numbers(rows, 3);
        let right = run(&cpu(), &x, rows, 0.0)?;
        for (chunk, workers) in [(1, 1), (100 << 10, 3), (1 << 20, 5)] {
            let engine = engine(choice).chunk(chunk).workers(workers).build()?;
            check(run(&engine, &x, rows, 0.0)? == right, format!("{rows} rows, chunks of {chunk}"))?;
        }
        // Sums of f64 in another order differ in their last bits.
        let sums = naive(&x, 0.0, |a, b| a + b);
        let is_near = |(found, sum): (&u64, &f64)| (f64::from_bits(*found) - sum).abs() < 1e-6 * (1.0 + sum.abs());
        check(right.iter().zip(&sums).all(is_near), "other sums")?;
    }
    Ok(())
}

fn special(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice).chunk(64 << 10).build()?;
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let sums = |at: &[(usize, f64)]| -> Outcome<Vec<u64>> {
        let (mut x, mut y) = (vec![-0.0; 10_000], vec![1.0; 10_000]);
        at.iter().for_each(|(row, value)| x[*row] = *value);
        engine.run(Job::eval("y = cumsum(x)")?.input("x", &x).output("y", &mut y))?;
        Ok(y.into_iter().map(f64::to_bits).collect())
    };
    let of = |parts: &[(usize, f64)]| -> Vec<u64> {
        parts.iter().flat_map(|(rows, value)| std::iter::repeat_n(value.to_bits(), *rows)).collect()
    };
    check(sums(&[])? == of(&[(10_000, -0.0)]), "sums of -0 are -0")?;
    check(sums(&[(4097, 0.0)])? == of(&[(4097, -0.0), (5903, 0.0)]), "the first 0")?;
    check(sums(&[(70, -nan)])? == of(&[(70, -0.0), (9930, nan)]), "NaN in the first tile")?;
    check(sums(&[(8191, inf)])? == of(&[(8191, -0.0), (1809, inf)]), "the last row of a tile")?;
    let both = sums(&[(300, inf), (5000, -inf)])?;
    check(both == of(&[(300, -0.0), (4700, inf), (5000, nan)]), "both infinities")
}

fn used(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice).chunk(64 << 10).build()?;
    let k: Vec<i32> = numbers(ROWS, 5).into_iter().map(|x| (x * 1000.0) as i32 % 1000).collect();
    let wide = |values: &[i32]| naive(values, 0_i64, |a, b| a + i64::from(b));
    let (sums, mut y, mut z) = (wide(&k), vec![0_i64; ROWS], vec![0_i64; ROWS]);
    engine.run(Job::eval("y = cumsum(diff(k, 0))")?.input("k", &k).output("y", &mut y))?;
    check(y.iter().zip(&k).all(|(sum, k)| *sum == i64::from(*k)), "sums of differences")?;
    let text = "y = cumsum(cumsum(k)); z = cumsum(shift(k, 1, 0))";
    engine.run(Job::eval(text)?.input("k", &k).output("y", &mut y).output("z", &mut z))?;
    check(y == naive(&sums, 0, |a: i64, b| a + b), "sums of sums")?;
    check(z[0] == 0 && z[1..] == sums[..ROWS - 1], "sums of the rows before")?;
    let text = "y = cumsum(where(k > 0, k, 0))[k > 0]; n = count(cumsum(k) > 0)";
    let report = engine.run(Job::eval(text)?.input("k", &k).output("y", &mut y))?;
    let kept: Vec<i32> = k.iter().copied().filter(|k| *k > 0).collect();
    check(y[..kept.len()] == wide(&kept), "sums of kept rows")?;
    let positive = sums.iter().filter(|sum| **sum > 0).count();
    check(report.value("n")? == Some(Scalar::I64(positive as i64)), "a count of sums")?;
    let mut shares = vec![0.0_f32; ROWS];
    let plan = engine.plan(&Job::eval("p = f32(cumsum(k) / sum(k))")?.input("k", &k).output("p", &mut shares))?;
    let arrays: Vec<_> = plan.passes[1].columns.iter().map(|column| (column.name.as_str(), column.elements)).collect();
    check(arrays.contains(&("cumsum(k): before", ROWS.div_ceil(4096) as u64)), format!("{arrays:?}"))?;
    engine.run(Job::eval("p = f32(cumsum(k) / sum(k))")?.input("k", &k).output("p", &mut shares))?;
    let total = sums[ROWS - 1] as f64;
    check(shares.iter().zip(&sums).all(|(share, sum)| *share == (*sum as f64 / total) as f32), "shares")?;
    let rows = engine.run(Job::eval("s = max(cumsum(index()))")?.rows(ROWS as u64))?;
    let all = (ROWS * (ROWS - 1) / 2) as i64;
    check(rows.value("s")? == Some(Scalar::I64(all)), "sums without inputs")
}

fn edges(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice).build()?;
    for rows in [0, 1, 2, 4095, 4096, 4097, 8192] {
        compare!(engine, (1..=rows).collect::<Vec<i64>>(), i64, |a, b| a + b, |x| x);
    }
    let report = engine.run(Job::eval("s = sum(cumsum(x))")?.input("x", &[0.0; 0]))?;
    check(report.value("s")? == Some(Scalar::F64(0.0)), format!("{report:?}"))
}

fn verified(choice: &DeviceChoice) -> Outcome {
    let x = numbers(ROWS, 8);
    let right = run(&cpu(), &x, ROWS, 0.0)?;
    for chunk in [100 << 10, 8 << 20] {
        check(run(&engine(choice).chunk(chunk).build()?, &x, ROWS, 1.0)? == right, format!("chunks of {chunk}"))?;
    }
    Ok(())
}

fn resident(choice: &DeviceChoice) -> Outcome {
    let x = numbers(ROWS, 9);
    let right = run(&cpu(), &x, ROWS, 0.0)?;
    let engine = engine(choice).build()?;
    let data = engine.resident(&x)?;
    for number in 0..2 {
        check(run(&engine, &data, ROWS, 0.0)? == right, format!("run {number}"))?;
    }
    Ok(())
}

fn refused(choice: &DeviceChoice) -> Outcome {
    let folder = tempfile::tempdir()?;
    let engine = engine(choice).build()?;
    let (bytes, path) = (vec![1_u8; 6000], folder.path().join("y.npy"));
    let job = || Ok::<_, Error>(Job::eval("y = cumsum(x)")?.input("x", &bytes).output("y", Npy::create(&path)));
    let is_refused = |error: Option<Error>| matches!(error, Some(Error::InvalidJob(JobError::SeveralPasses)));
    check(is_refused(engine.run_rows(job()?, 0..4096).err()), "some rows")?;
    check(is_refused(engine.run_resumable(job()?, &Journal::beside(&path)).err()), "a journal")?;
    let wide = ArrayView2::from_shape((2000, 3), &bytes)?;
    let (mut y, one) = (vec![0_u64; 6000], Input::from(wide));
    let error = engine.run(Job::eval("y = cumsum(x)")?.input("x", one).output("y", &mut y)).err();
    let text = error.map(|error| error.to_string()).unwrap_or_default();
    check(text.contains("adds up arrays of one dimension"), text)
}

fn lost() -> Outcome {
    let x = numbers(ROWS, 10);
    let right = run(&cpu(), &x, ROWS, 0.0)?;
    for at in [FaultAt::CopyIn, FaultAt::Kernel, FaultAt::CopyOut, FaultAt::Wait] {
        for nth in [0, 5] {
            let devices = vec![Emulated::new().seed(nth).fault(Fault::new(at, nth)), Emulated::new().seed(nth + 1)];
            let choice = DeviceChoice::CpuAndEmulated(devices);
            let engine = Engine::builder().device(choice).chunk(64 << 10).workers(2).build()?;
            check(run(&engine, &x, ROWS, 0.0)? == right, format!("{at:?} {nth}"))?;
        }
    }
    Ok(())
}
