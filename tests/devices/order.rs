//! Order statistics: medians, quantiles and the largest values, as those of sorted values, on every device.

use half::{bf16, f16};
use ndarray::ArrayView2;
use overshot::device::{Emulated, Fault, FaultAt};
use overshot::{DeviceChoice, Dtype, Engine, Error, Expression, Input, Job, JobError, Journal, Npy, Report, Scalar};

use crate::harness::{Case, EmulatedCase, Module, NO_CASES, Outcome, check, cpu, engine, numbers};
use crate::rows::bits;

pub const MODULE: Module = Module { name: "order", cases: CASES, emulated: EMULATED, ..NO_CASES };

const CASES: &[(&str, Case)] = &[
    ("values of every dtype are those of sorted ones", defined),
    ("values that are hard to tell apart", hard),
    ("many of the largest values", many),
    ("the same bits for all schedules", schedules),
    ("special values", special),
    ("kept rows, and rows of several elements", kept),
    ("values of earlier passes, in outputs and results", used),
    ("no more passes than needed", few_passes),
    ("no rows, and fewer values than wanted", edges),
    ("every chunk of every pass is verified", verified),
    ("rows that stay on devices", resident),
    ("parts and journals are refused", refused),
];

const EMULATED: &[(&str, EmulatedCase)] = &[("others count the rows of a lost device", lost)];

const ROWS: usize = 200_000;
const SHARES: [f64; 7] = [0.0, 0.05, 0.25, 0.5, 0.7, 0.999, 1.0];

/// The value before a quantile, the one behind it, and the share of the way, as NumPy has them.
fn place(share: f64, count: usize) -> ([usize; 2], f64) {
    let last = (count - 1) as f64;
    let place = share * last;
    if place >= last {
        return ([count - 1; 2], place + 1.0);
    }
    ([place as usize, place as usize + 1], place - place.floor())
}

macro_rules! naive {
    ($name:ident, $values:ty, $result:ty, $exact:ty, $order:expr) => {
        /// The results by sorting: the median, the quantiles, and the three largest values.
        fn $name(values: &[$values]) -> ($result, Vec<$result>, Vec<$values>) {
            let mut sorted = values.to_vec();
            sorted.sort_by($order);
            let at = |rank: usize| sorted[rank] as $result;
            // That of integers is exact.
            let difference = |[a, b]: [usize; 2]| (sorted[b] as $exact - sorted[a] as $exact) as $result;
            let (below, above) = (at((sorted.len() - 1) / 2), at(sorted.len() / 2));
            let median = if sorted.len() % 2 == 1 { below } else { (below + above) / 2.0 };
            let quantile = |share: f64| {
                let (ranks, way) = place(share, sorted.len());
                let ([a, b], apart) = (ranks.map(at), difference(ranks));
                if way >= 0.5 { b - apart * ((1.0 - way) as $result) } else { a + apart * (way as $result) }
            };
            let largest = sorted.iter().rev().take(3).copied().collect();
            (median, SHARES.into_iter().map(quantile).collect(), largest)
        }
    };
}
naive!(naive_f64, f64, f64, f64, f64::total_cmp);
naive!(naive_f32, f32, f32, f32, f32::total_cmp);
naive!(naive_i64, i64, f64, i128, i64::cmp);
naive!(naive_u64, u64, f64, i128, u64::cmp);
naive!(naive_i32, i32, f64, i128, i32::cmp);
naive!(naive_u32, u32, f64, i128, u32::cmp);
naive!(naive_i16, i16, f64, i128, i16::cmp);
naive!(naive_u16, u16, f64, i128, u16::cmp);
naive!(naive_i8, i8, f64, i128, i8::cmp);
naive!(naive_u8, u8, f64, i128, u8::cmp);

fn text() -> String {
    let quantiles: Vec<String> = SHARES.iter().map(|share| format!("quantile(x, {share:?})")).collect();
    format!("median(x), {}, t = topk(x, 3)", quantiles.join(", "))
}

fn value(report: &Report, name: &str) -> Outcome<Scalar> {
    Ok(report.value(name)?.ok_or_else(|| format!("no value {name}"))?)
}

/// The largest values, of the same type as these.
fn array_like<T: overshot::io::Element>(report: &Report, _: &[T]) -> Outcome<Vec<T>> {
    Ok(report.array("t")?.and_then(|array| array.to_vec()).ok_or("no array")?)
}

macro_rules! compare {
    ($engine:expr, $values:expr, $naive:ident) => {{
        let values = $values;
        let report = $engine.run(Job::eval(&text())?.input("x", &values))?;
        let (median, quantiles, largest) = $naive(&values);
        let expected: Vec<Scalar> = [median].into_iter().chain(quantiles).map(Scalar::from).collect();
        let found: Vec<Scalar> = report.results.iter().filter_map(|(_, value)| *value).collect();
        check(found == expected, format!("{:?}: {found:?}, not {expected:?}", values.first()))?;
        let top = array_like(&report, &largest)?;
        check(top == largest, format!("{top:?}, not {largest:?}"))?;
        report
    }};
}

/// Random bits, the same every time.
fn random(rows: usize, seed: u64) -> impl Iterator<Item = u64> {
    let step =
        |state: &u64| Some(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
    std::iter::successors(Some(seed), step).skip(7).map(|state| state ^ (state >> 31)).take(rows)
}

fn defined(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice).build()?;
    for rows in [3, 4, 5000, 70_001] {
        let random = || random(rows, rows as u64);
        compare!(engine, numbers(rows, 5), naive_f64);
        compare!(engine, numbers(rows, 6).into_iter().map(|x| x as f32).collect::<Vec<_>>(), naive_f32);
        compare!(engine, random().map(|x| x as i64).collect::<Vec<_>>(), naive_i64);
        compare!(engine, random().collect::<Vec<u64>>(), naive_u64);
        compare!(engine, random().map(|x| x as i32).collect::<Vec<_>>(), naive_i32);
        compare!(engine, random().map(|x| x as u32).collect::<Vec<_>>(), naive_u32);
        compare!(engine, random().map(|x| x as i16).collect::<Vec<_>>(), naive_i16);
        compare!(engine, random().map(|x| x as u16).collect::<Vec<_>>(), naive_u16);
        compare!(engine, random().map(|x| x as i8).collect::<Vec<_>>(), naive_i8);
        compare!(engine, random().map(|x| x as u8).collect::<Vec<_>>(), naive_u8);
        let bits = || random().map(|x| x as u16);
        compare_halves(&engine, &bits().map(f16::from_bits).filter(|x| x.is_finite()).collect::<Vec<_>>())?;
        compare_halves(&engine, &bits().map(bf16::from_bits).filter(|x| x.is_finite()).collect::<Vec<_>>())?;
    }
    Ok(())
}

/// The results of 16-bit floats are those of the same values of `f32`, rounded once.
fn compare_halves<T: overshot::io::Element + Into<f32>>(engine: &Engine, values: &[T]) -> Outcome {
    let report = engine.run(Job::eval(&text())?.input("x", values))?;
    let wide: Vec<f32> = values.iter().map(|value| (*value).into()).collect();
    let (median, quantiles, largest) = naive_f32(&wide);
    let rounded = |value: f32| match T::DTYPE {
        Dtype::F16 => Scalar::F16(f16::from_f32(value)),
        _ => Scalar::Bf16(bf16::from_f32(value)),
    };
    let expected: Vec<Scalar> = [median].into_iter().chain(quantiles).map(rounded).collect();
    let found: Vec<Scalar> = report.results.iter().filter_map(|(_, value)| *value).collect();
    check(found == expected, format!("{found:?}, not {expected:?}"))?;
    let top = report.array("t")?.and_then(|array| array.to_vec::<T>()).ok_or("no array")?;
    let top: Vec<f32> = top.into_iter().map(Into::into).collect();
    check(top == largest, format!("{top:?}, not {largest:?}"))
}

/// So many of the largest values that they are in several bins, of which the last one has more than a pass lists.
fn many(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice).build()?;
    let shares = || random(80_000, 4).map(|x| (x >> 40) as f64 / 16_777_216.0 * 0.05);
    let steps = shares().enumerate().map(|(row, share)| match row {
        0..30_000 => 2.0 + share,
        30_000..70_000 => 1.0 + share,
        _ => share / 5.0,
    });
    let normal: Vec<f64> = numbers(300_000, 5).into_iter().map(|x| x * x * x).collect();
    for (values, counts) in [(steps.collect::<Vec<_>>(), [29_999, 40_000, 65_536]), (normal, [50_000, 60_000, 65_536])]
    {
        let single: Vec<f32> = values.iter().map(|x| *x as f32).collect();
        let integers: Vec<i64> = values.iter().map(|x| (x * 1e6) as i64).collect();
        let narrow: Vec<i32> = integers.iter().map(|x| *x as i32).collect();
        for count in counts {
            let text = format!("t = topk(x, {count})");
            macro_rules! compare {
                ($values:expr, $order:expr) => {
                    let report = engine.run(Job::eval(&text)?.input("x", &$values))?;
                    let mut expected = $values.clone();
                    expected.sort_by($order);
                    expected.reverse();
                    expected.truncate(count);
                    let found = array_like(&report, &expected)?;
                    check(found == expected, format!("{count} of {} values: {:?}", $values.len(), found.last()))?;
                };
            }
            compare!(values, f64::total_cmp);
            compare!(single, f32::total_cmp);
            compare!(integers, i64::cmp);
            compare!(narrow, i32::cmp);
        }
    }
    Ok(())
}

/// Many values in one bin of the first passes, and values on both sides of a gap.
fn hard(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice).build()?;
    let with = |bits: fn(u64) -> u64| random(ROWS, 3).map(|x| f64::from_bits(bits(x))).collect::<Vec<_>>();
    // They share 48 bits, or 32; all but three are equal; each has one of two values, near each other or far apart.
    compare!(engine, with(|x| 0x3ff0_1234_5678_0000 | x >> 48), naive_f64);
    compare!(engine, with(|x| 0x3ff0_1234_0000_0000 | x >> 32), naive_f64);
    compare!(engine, with(|x| 0xc000_0000_0000_0000 | u64::from(x < 1 << 48)), naive_f64);
    compare!(engine, with(|x| 0x4000_0000_0000_0000 | x >> 63), naive_f64);
    compare!(engine, with(|x| 0x3ff0_0000_0000_0000 | x >> 63 << 63), naive_f64);
    compare!(engine, vec![7.5_f64; ROWS], naive_f64);
    let halves = |rows: usize| (0..rows).map(|row| if row < rows / 2 { -1.5 } else { 2.0_f32 }).collect::<Vec<_>>();
    compare!(engine, halves(ROWS), naive_f32);
    compare!(engine, halves(ROWS + 1), naive_f32);
    let ends = (0..ROWS as i64).map(|row| if row % 2 == 0 { i64::MIN } else { i64::MIN + 3 });
    compare!(engine, ends.collect::<Vec<_>>(), naive_i64);
    let stamps = random(ROWS, 8).map(|x| 1_700_000_000_000_000_000 + (x >> 30) as i64);
    compare!(engine, stamps.collect::<Vec<_>>(), naive_i64);
    let top = random(ROWS, 9).map(|x| u64::MAX - (x >> 62));
    let report = engine.run(Job::eval("t = topk(x, 3)")?.input("x", top.collect::<Vec<u64>>()))?;
    check(report.array("t")?.and_then(|array| array.to_vec()) == Some(vec![u64::MAX; 3]), "other largest values")?;
    // As many as a pass lists, many of them equal.
    let ties: Vec<f64> = (0..ROWS).map(|row| if row % 5 == 0 { row as f64 } else { 0.5 }).collect();
    let report = engine.run(Job::eval("t = topk(x, 65536)")?.input("x", &ties))?;
    let mut sorted = ties.clone();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let found: Vec<f64> = report.array("t")?.and_then(|array| array.to_vec()).ok_or("no array")?;
    check(found == sorted[..65_536], "other ties")
}

/// The bits of values and arrays.
fn all_bits(report: &Report) -> (Vec<Option<u64>>, Vec<Vec<u64>>) {
    let arrays = report.arrays.iter().flat_map(|(_, array)| array.as_ref());
    (bits(report), arrays.map(|array| array.values().map(|value| value.as_f64().to_bits()).collect()).collect())
}

/// Whether a text reads `k` beside `x`.
fn reads_k(text: &str) -> bool {
    text.parse::<Expression>().is_ok_and(|expression| expression.reads("k"))
}

const TEXT: &str = "median(x), quantile(x, 0.99), sum(x), t = topk(x, 1000), q = quantile(x[x > 3], 0.3), median(k), \
                    median(abs(x - median(x))), mean(x - median(x))";

struct Inputs {
    x: Vec<f64>,
    k: Vec<i32>,
}

impl Inputs {
    fn new(rows: usize) -> Inputs {
        Inputs { x: numbers(rows, 11), k: random(rows, 5).map(|k| (k >> 40) as i32).collect() }
    }

    fn job(&self, text: &str) -> overshot::Result<Job<'_>> {
        let job = Job::eval(text)?.input("x", &self.x);
        Ok(if reads_k(text) { job.input("k", &self.k) } else { job })
    }
}

fn schedules(choice: &DeviceChoice) -> Outcome {
    for rows in [5000, ROWS] {
        let inputs = Inputs::new(rows);
        let right = all_bits(&cpu().run(inputs.job(TEXT)?)?);
        check(right.0.len() == 7 && right.1.len() == 1, format!("{:?}", right.0))?;
        for (chunk, workers) in [(1, 1), (100 << 10, 3), (1 << 20, 5)] {
            let engine = engine(choice).chunk(chunk).workers(workers).build()?;
            check(all_bits(&engine.run(inputs.job(TEXT)?)?) == right, format!("{rows} rows, chunks of {chunk}"))?;
        }
    }
    Ok(())
}

fn special(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice).build()?;
    let run = |values: &[f64], text: &str| -> Outcome<(f64, Vec<f64>)> {
        let report = engine.run(Job::eval(&format!("m = {text}; t = topk(x, 2)"))?.input("x", values))?;
        let top = report.array("t")?.and_then(|array| array.to_vec()).ok_or("no array")?;
        Ok((value(&report, "m")?.as_f64(), top))
    };
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let (m, t) = run(&[1.0, nan, 3.0, -nan, 2.0], "median(x)")?;
    check(m.is_nan() && t.iter().all(|value| value.is_nan()), format!("{m} {t:?}"))?;
    check(run(&[inf, 1.0, -inf], "median(x)")? == (1.0, vec![inf, 1.0]), "infinities")?;
    check(run(&[inf, 1.0, inf, -inf], "quantile(x, 0.2)")?.0 == -inf, "a quantile beside -inf")?;
    for (values, q, right) in [
        (&[2.0, -inf, 1.0], "0", -inf),
        (&[1.0, inf, inf], "0", 1.0),
        (&[1.0, 2.0, inf], "1", inf),
        (&[-inf, -inf, 1.0], "0.5", -inf),
        (&[inf, inf, inf], "0.3", inf),
        (&[-f64::MAX, f64::MAX, f64::MAX], "0", -f64::MAX),
    ] {
        let found = run(values, &format!("quantile(x, {q})"))?.0;
        check(found == right, format!("quantile {q} of {values:?}: {found}"))?;
    }
    check(run(&[-inf, inf], "quantile(x, 0.5)")?.0.is_nan(), "between both infinities")?;
    check(run(&[inf, inf, -inf, -inf], "median(x)")?.0.is_nan(), "the mean of both infinities")?;
    check(run(&[0.0, -0.0, -0.0, 5e-324], "median(x)")? == (0.0, vec![5e-324, 0.0]), "zeros")?;
    check(run(&[-5e-324, -f64::MAX, -0.0], "quantile(x, 0.5)")? == (-5e-324, vec![0.0, -5e-324]), "tiny values")?;
    let bools = [true, false, true, true, false];
    let report = engine.run(Job::eval("m = median(x); t = topk(x, 4)")?.input("x", &bools[..]))?;
    check(value(&report, "m")? == Scalar::F64(1.0), format!("{report:?}"))?;
    let top: Vec<Scalar> = report.array("t")?.map(|array| array.values().collect()).unwrap_or_default();
    check(top == [true, true, true, false].map(Scalar::Bool), format!("{top:?}"))?;
    let error = engine.run(Job::eval("quantile(x, 0.5)")?.input("x", &bools[..])).err().map(|error| error.to_string());
    check(error.is_some_and(|error| error.contains("quantile(u8(x), 0.5)")), "a quantile of bools")
}

fn kept(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice).chunk(64 << 10).build()?;
    let inputs = Inputs::new(ROWS);
    let report =
        engine.run(inputs.job("m = median(x[x > 20]); q = quantile(k[x < 0], 0.25); t = topk(x[k % 2 == 0], 3)")?)?;
    let kept: Vec<f64> = inputs.x.iter().copied().filter(|x| *x > 20.0).collect();
    check(value(&report, "m")? == Scalar::F64(naive_f64(&kept).0), "another median")?;
    let pairs = || inputs.x.iter().zip(&inputs.k);
    let kept: Vec<i32> = pairs().filter(|(x, _)| **x < 0.0).map(|(_, k)| *k).collect();
    check(value(&report, "q")? == Scalar::F64(naive_i32(&kept).1[2]), "another quantile")?;
    let kept: Vec<f64> = pairs().filter(|(_, k)| **k % 2 == 0).map(|(x, _)| *x).collect();
    check(report.array("t")?.and_then(|array| array.to_vec()) == Some(naive_f64(&kept).2), "other largest values")?;
    for width in [3_usize, 300] {
        let rows = ROWS / width;
        let wide = ArrayView2::from_shape((rows, width), &inputs.x[..rows * width])?;
        let report = engine.run(Job::eval("m = median(x); t = topk(x, 3)")?.input("x", Input::from(wide)))?;
        let (median, _, largest) = naive_f64(&inputs.x[..rows * width]);
        check(value(&report, "m")? == Scalar::F64(median), format!("rows of {width}"))?;
        check(report.array("t")?.and_then(|array| array.to_vec()) == Some(largest), format!("rows of {width}"))?;
    }
    Ok(())
}

fn used(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice).chunk(64 << 10).build()?;
    let inputs = Inputs::new(ROWS);
    let (mut y, mut z) = (vec![0.0; ROWS], vec![0.0; ROWS]);
    let text = "y = (x - median(x)) / (quantile(x, 0.7) - quantile(x, 0.25)); r = quantile(x, 0.7) - median(x)";
    let report = engine.run(inputs.job(text)?.output("y", &mut y))?;
    let (median, quantiles, _) = naive_f64(&inputs.x);
    let same = inputs.x.iter().zip(&y).all(|(x, y)| *y == (x - median) / (quantiles[4] - quantiles[2]));
    check(same, "other rows")?;
    check(value(&report, "r")? == Scalar::F64(quantiles[4] - median), "another difference")?;
    check(report.passes.len() <= 4, format!("{} passes", report.passes.len()))?;
    let hidden = report.passes.iter().flat_map(|pass| pass.results.iter().map(|(name, _)| name));
    check(hidden.count() == 0 && report.results.len() == 1, "counts of passes are no results")?;
    let report = engine
        .run(inputs.job("z = x[x > quantile(x, 0.999)]; n = count(x > quantile(x, 0.999))")?.output("z", &mut z))?;
    let kept: Vec<f64> = inputs.x.iter().copied().filter(|x| *x > quantiles[5]).collect();
    check(z[..kept.len()] == kept, "other kept rows")?;
    check(value(&report, "n")? == Scalar::I64(kept.len() as i64), "another number of kept rows")?;
    let nested = engine.run(inputs.job("m = median(abs(x - median(x)))")?)?;
    let distances: Vec<f64> = inputs.x.iter().map(|x| (x - median).abs()).collect();
    check(value(&nested, "m")? == Scalar::F64(naive_f64(&distances).0), "another median of distances")
}

fn few_passes(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice).build()?;
    let inputs = Inputs::new(ROWS);
    let singles: Vec<f32> = inputs.x.iter().map(|x| *x as f32).collect();
    let bytes: Vec<u8> = inputs.k.iter().map(|k| *k as u8).collect();
    let passes = |job: Job<'_>| -> Outcome<usize> { Ok(engine.run(job)?.passes.len().max(1)) };
    for text in [text(), "topk(x, 1)".to_owned(), "median(x)".to_owned()] {
        let found = passes(inputs.job(&text)?)?;
        check(found <= 3, format!("{text}: {found} passes of f64"))?;
        let found = passes(Job::eval(&text)?.input("x", &singles))?;
        check(found <= if text.contains("topk") { 3 } else { 2 }, format!("{text}: {found} passes of f32"))?;
        let found = passes(Job::eval(&text)?.input("x", &bytes))?;
        check(found == 1, format!("{text}: {found} passes of u8"))?;
    }
    check(passes(Job::eval("median(x)")?.input("x", vec![2.5; 9]))? == 1, "passes of equal values")?;
    check(passes(Job::eval("median(x)")?.input("x", vec![f64::NAN; 9]))? == 1, "passes of NaN")?;
    let plan = engine.plan(&inputs.job("median(x)")?)?;
    // The bounds of the range are no columns.
    let columns: Vec<_> = plan.passes[1].columns.iter().map(|column| column.name.as_str()).collect();
    check(columns == ["x"], format!("{columns:?}"))?;
    check(plan.passes.len() == 4, "the plan has all passes that may be needed")
}

fn edges(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice).build()?;
    let none = Inputs::new(0);
    let report = engine.run(none.job("m = median(x); q = quantile(k, 0.5); y = median(x) + 1")?)?;
    check(
        bits(&report).iter().all(|bits| bits.is_some_and(|bits| f64::from_bits(bits).is_nan())),
        format!("{report:?}"),
    )?;
    let one = Inputs::new(1);
    let report = engine.run(one.job("m = median(x); q = quantile(x, 0.3)")?)?;
    check(report.results.iter().all(|(_, value)| *value == Some(Scalar::F64(one.x[0]))), format!("{report:?}"))?;
    let inputs = Inputs::new(5000);
    for (text, found) in [("t = topk(x, 5001)", 5000), ("t = topk(x[x > 1e9], 1)", 0)] {
        match engine.run(inputs.job(text)?) {
            Err(Error::InvalidJob(JobError::TooFewValues { result, values, .. })) => {
                check((result.as_str(), values) == ("t", found), format!("{result} {values}"))?;
            }
            other => return check(false, format!("{other:?}")),
        }
    }
    let report = engine.run(inputs.job("t = topk(x, 5000)")?)?;
    let array = report.array("t")?.ok_or("no array")?;
    check(array.dtype() == Dtype::F64 && array.shape() == [5000], format!("{:?}", array.shape()))
}

fn verified(choice: &DeviceChoice) -> Outcome {
    let inputs = Inputs::new(ROWS);
    let right = all_bits(&cpu().run(inputs.job(TEXT)?)?);
    for chunk in [100 << 10, 8 << 20] {
        let report = engine(choice).chunk(chunk).build()?.run(inputs.job(TEXT)?.verify(1.0))?;
        check(all_bits(&report) == right, format!("chunks of {chunk}"))?;
    }
    Ok(())
}

fn resident(choice: &DeviceChoice) -> Outcome {
    let inputs = Inputs::new(ROWS);
    let right = all_bits(&cpu().run(inputs.job(TEXT)?)?);
    let engine = engine(choice).build()?;
    let (x, k) = (engine.resident(&inputs.x)?, engine.resident(&inputs.k)?);
    for run in 0..2 {
        let report = engine.run(Job::eval(TEXT)?.input("x", &x).input("k", &k))?;
        check(all_bits(&report) == right, format!("run {run}"))?;
    }
    Ok(())
}

fn refused(choice: &DeviceChoice) -> Outcome {
    let folder = tempfile::tempdir()?;
    let engine = engine(choice).build()?;
    let bytes = vec![1_u8; 5000];
    let job = || Ok::<_, Error>(Job::eval("median(x)")?.input("x", &bytes));
    let is_refused = |error: Option<Error>| matches!(error, Some(Error::InvalidJob(JobError::SeveralPasses)));
    check(is_refused(engine.run_rows(job()?, 0..4096).err()), "some rows")?;
    let path = folder.path().join("y.npy");
    let with_output = Job::eval("y = x; median(x)")?.input("x", &bytes).output("y", Npy::create(&path));
    check(is_refused(engine.run_resumable(with_output, &Journal::beside(&path)).err()), "a journal")
}

fn lost() -> Outcome {
    let inputs = Inputs::new(ROWS);
    let right = all_bits(&cpu().run(inputs.job(TEXT)?)?);
    for at in [FaultAt::CopyIn, FaultAt::Kernel, FaultAt::CopyOut, FaultAt::Wait] {
        for nth in [0, 5] {
            let devices = vec![Emulated::new().seed(nth).fault(Fault::new(at, nth)), Emulated::new().seed(nth + 1)];
            let choice = DeviceChoice::CpuAndEmulated(devices);
            let engine = Engine::builder().device(choice).chunk(64 << 10).workers(2).build()?;
            check(all_bits(&engine.run(inputs.job(TEXT)?)?) == right, format!("{at:?} {nth}"))?;
        }
    }
    Ok(())
}
