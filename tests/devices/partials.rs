//! Jobs in parts: the merged partials have the bits of one run, whatever the parts, the devices and the order.

use std::env;
use std::fs;
use std::ops::Range;
use std::path::Path;

use overshot::io::{Blocks, ColumnError};
use overshot::{DeviceChoice, Dtype, Engine, Error, Job, JobError, Partial, PartialError, Raw, Report, Scalar};

use crate::harness::{Case, EmulatedCase, Module, NO_CASES, Outcome, numbers};
use crate::rows::engine;

pub const MODULE: Module = Module { name: "partials", cases: CASES, gpu: GPU, emulated: EMULATED, ..NO_CASES };

const EMULATED: &[(&str, EmulatedCase)] =
    &[("1000 partitions among the CPU and emulated devices", || mixed(&UNLIKE, PARTITIONS))];

const GPU: &[(&str, Case)] = &[("partitions among the CPU, emulated devices and the GPU", with_gpu)];

const CASES: &[(&str, Case)] = &[
    ("any parts in any order give the bits of one run", any_parts),
    ("partials of rows far apart are small", small),
    ("a partial that is damaged in any bit is refused", damaged),
    ("partials that do not fit are refused", refused),
    ("jobs and rows that cannot be run in parts are refused", not_in_parts),
    ("a part needs the rows of its own in blocks", blocks),
];

const TEXT: &str = "sum(x), mean(x * s), m = min(x), max(x), var(x), std(1 / (x * x + 1)), prod(1 + x / 1e6), \
                    count(x > s), any(x > 1e3), all(x == x), argmin(x), argmax(x), sum(i)";
pub const TILE: u64 = 4096;

fn bits(results: &[(String, Option<Scalar>)]) -> Vec<(&str, Option<u64>)> {
    results.iter().map(|(name, value)| (name.as_str(), value.map(|value| value.as_f64().to_bits()))).collect()
}

fn job(x: &[f64]) -> Job<'_> {
    Job::eval(TEXT).unwrap().input("x", x).number("s", 0.25)
}

/// Random numbers, the same ones every time.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    /// Divides rows at multiples of `tile` into `parts` ranges, some of which may be empty.
    pub fn division(&mut self, rows: u64, tile: u64, parts: u64) -> Vec<Range<u64>> {
        let tiles = rows.div_ceil(tile);
        let mut borders: Vec<u64> = (1..parts).map(|_| self.below(tiles + 1)).chain([0, tiles]).collect();
        borders.sort_unstable();
        borders.windows(2).map(|pair| (pair[0] * tile).min(rows)..(pair[1] * tile).min(rows)).collect()
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

pub fn merged(mut partials: Vec<Partial>) -> Result<Partial, Error> {
    let mut all = partials.pop().unwrap();
    partials.into_iter().try_for_each(|partial| all.merge(partial))?;
    Ok(all)
}

fn any_parts(choice: &DeviceChoice) -> Outcome {
    let (own, cpu) = (engine(choice), engine(&DeviceChoice::Cpu));
    let mut random = Random(7);
    for (rows, most, times) in [(1, 1, 1), (5000, 2, 2), (40 * TILE + 99, 40, 200), (210 * TILE, 200, 4)] {
        let x = numbers(rows as usize, rows);
        let whole = own.run(job(&x))?;
        for _ in 0..times {
            let mut partials = Vec::new();
            for range in random.division(rows, TILE, most) {
                // Another process may have other devices.
                let engine = if random.below(4) == 0 { &cpu } else { &own };
                let partial = engine.run_rows(job(&x), range.clone())?;
                assert_eq!(partial.rows().iter().cloned().flatten().count() as u64, range.end - range.start);
                partials.push(Partial::from_bytes(&partial.to_bytes())?);
            }
            random.shuffle(&mut partials);
            // Partials are merged in groups, and the groups then.
            let group = 1 + random.below(9) as usize;
            let groups = partials.chunks(group).map(|group| merged(group.to_vec()));
            let all = merged(groups.collect::<Result<_, _>>()?)?;
            assert!(all.is_complete() && all.total_rows() == rows);
            let report = all.finish()?;
            assert_eq!(bits(&report.results), bits(&whole.results), "{rows} rows");
            let read = |report: &Report| (report.rows, report.computation.clone(), format!("{:?}", report.inputs));
            assert_eq!(read(&report), read(&whole));
            assert_eq!(report.devices.iter().map(|device| device.rows).sum::<u64>(), rows);
        }
    }
    Ok(())
}

const UNLIKE: [&str; 4] = ["cpu", "emulated", "emulated:1*3", "cpu+emulated:1*2"];
const PARTITIONS: u64 = 1000;

/// On a GPU, or on the stand-in of its driver. `OVERSHOT_PARTITIONS` sets their number.
fn with_gpu(choice: &DeviceChoice) -> Outcome {
    let asked = env::var("OVERSHOT_PARTITIONS").ok().and_then(|count| count.parse().ok());
    let gpu = choice.to_string();
    mixed(&[gpu.as_str(), "cpu", "emulated", "cpu+cuda", "emulated:1*3"], asked.unwrap_or(250))
}

/// Each part of a partition is computed by any of several engines, as by processes on unlike machines. Outputs are
/// slices, and of some partitions files.
fn mixed(choices: &[&str], partitions: u64) -> Outcome {
    let engines: Vec<Engine> = choices.iter().map(|choice| engine(&choice.parse().unwrap())).collect();
    let cpu = engine(&DeviceChoice::Cpu);
    let memory = Path::new("/dev/shm");
    let beside = if memory.is_dir() { memory.to_path_buf() } else { env::temp_dir() };
    let mut random = Random(21);
    let rows: Vec<u64> = [1, 4095, 4097, 5 * TILE + 1, 12 * TILE, 20 * TILE + 99, 210 * TILE].into();
    let text = format!("y = x * s + i; b = x > 0; {TEXT}");
    for (k, &rows) in rows.iter().enumerate() {
        let x = numbers(rows as usize, rows);
        let (mut y, mut b) = (vec![0.0f64; x.len()], vec![false; x.len()]);
        let job = || Job::eval(&text).unwrap().input("x", &x).number("s", 0.25);
        let whole = cpu.run(job().output("y", &mut y).output("b", &mut b[..]))?;
        // A few have 200 parts, and the others up to 20.
        let few = partitions.div_ceil(100);
        let (most, times) = if k == 6 { (200, few) } else { (20, (partitions - few).div_ceil(6)) };
        for number in 0..times {
            let folder = if number % 16 == 0 { Some(tempfile::tempdir_in(&beside)?) } else { None };
            let (mut own_y, mut own_b) = (vec![f64::NAN; x.len()], vec![true; x.len()]);
            let parts = if k == 6 { most } else { 1 + random.below(most) };
            let (mut partials, mut ranges) = (Vec::new(), random.division(rows, TILE, parts));
            random.shuffle(&mut ranges);
            for range in ranges {
                let engine = &engines[random.below(engines.len() as u64) as usize];
                let job = match &folder {
                    None => job().output("y", &mut own_y).output("b", &mut own_b[..]),
                    Some(folder) => job()
                        .output("y", Raw::create(folder.path().join("y")))
                        .output("b", Raw::create(folder.path().join("b"))),
                };
                partials.push(Partial::from_bytes(&engine.run_rows(job, range)?.to_bytes())?);
            }
            random.shuffle(&mut partials);
            assert_eq!(bits(&merged(partials)?.finish()?.results), bits(&whole.results), "{rows} rows");
            if let Some(folder) = &folder {
                let read = |name: &str| fs::read(folder.path().join(name));
                own_y = read("y")?.as_chunks().0.iter().map(|bytes| f64::from_ne_bytes(*bytes)).collect();
                own_b = read("b")?.into_iter().map(|byte| byte != 0).collect();
            }
            let same = own_y.iter().zip(&y).all(|(own, y)| own.to_bits() == y.to_bits());
            assert!(same && own_y.len() == y.len() && own_b == b, "{rows} rows, partition {number}");
        }
    }
    Ok(())
}

fn small(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice);
    let job = || Job::eval("sum(i), std(i), argmax(i), min(i), mean(i * 0.5)").unwrap().rows(1 << 50);
    let mut random = Random(3);
    let mut all = engine.run_rows(job(), 0..TILE)?;
    for part in 1..200u64 {
        let first = (part << 40) + random.below(1 << 20) * TILE;
        all.merge(engine.run_rows(job(), first..first + 3 * TILE)?)?;
    }
    let bytes = all.to_bytes();
    assert!(bytes.len() <= 64 << 10, "{} bytes", bytes.len());
    assert_eq!(Partial::from_bytes(&bytes)?.rows(), all.rows());
    assert!(!all.is_complete());
    Ok(())
}

fn damaged(choice: &DeviceChoice) -> Outcome {
    let x = numbers(3 * TILE as usize, 1);
    let bytes = engine(choice).run_rows(job(&x), TILE..3 * TILE)?.to_bytes();
    for bit in 0..bytes.len() * 8 {
        let mut other = bytes.clone();
        other[bit / 8] ^= 1 << (bit % 8);
        assert!(matches!(Partial::from_bytes(&other), Err(Error::InvalidPartial(_))), "bit {bit}");
    }
    for length in 0..bytes.len() {
        assert!(matches!(Partial::from_bytes(&bytes[..length]), Err(Error::InvalidPartial(_))), "{length} bytes");
    }
    Ok(())
}

fn refused(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice);
    let x = numbers(3 * TILE as usize, 1);
    let first = engine.run_rows(job(&x), 0..TILE)?;
    let mut changed = x.clone();
    changed[2 * TILE as usize] += 1.0;
    let single: Vec<f32> = x.iter().map(|x| *x as f32).collect();
    let rest = TILE..3 * TILE;
    let others = [
        (engine.run_rows(Job::eval("sum(x)")?.input("x", &x), rest.clone())?, "the expression"),
        (engine.run_rows(Job::eval(TEXT)?.input("x", &x).number("s", 0.5), rest.clone())?, "the values"),
        (engine.run_rows(Job::eval(TEXT)?.input("x", &x).scalar("s", 0.25), rest.clone())?, "the values"),
        (engine.run_rows(Job::eval(TEXT)?.input("x", &single).number("s", 0.25), rest.clone())?, "x: f64 here and f32"),
        (engine.run_rows(job(&x[..2 * TILE as usize]), TILE..2 * TILE)?, "the number of rows"),
        (engine.run_rows(job(&changed), rest.clone())?, "the input x: its values"),
    ];
    for (other, difference) in others {
        let mut all = first.clone();
        let error = all.merge(other).unwrap_err();
        assert!(error.to_string().contains(difference), "{error}");
        assert_eq!(all.rows(), first.rows());
    }
    let mut all = first.clone();
    let twice = all.merge(engine.run_rows(job(&x), 0..2 * TILE)?);
    assert!(matches!(twice, Err(Error::InvalidPartial(PartialError::Twice { start: 0, end: TILE, .. }))), "{twice:?}");
    all.merge(engine.run_rows(job(&x), 2 * TILE..3 * TILE)?)?;
    let incomplete = all.clone().finish();
    let expected = "the rows 4096 to 8192 of 12288 are in none of the partials; run them, too";
    assert!(matches!(incomplete, Err(Error::InvalidPartial(error)) if error.to_string() == expected));
    all.merge(engine.run_rows(job(&x), TILE..2 * TILE)?)?;
    assert_eq!(bits(&all.finish()?.results), bits(&engine.run(job(&x))?.results));
    Ok(())
}

fn not_in_parts(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice);
    let x = numbers(3 * TILE as usize + 5, 1);
    for (start, end) in [(0, 4000), (1, TILE), (TILE, 3 * TILE + 4), (0, 4 * TILE), (2 * TILE, TILE)] {
        let error = engine.run_rows(job(&x), start..end).unwrap_err();
        assert!(matches!(error, Error::InvalidJob(JobError::RowRange { .. })), "{error}");
    }
    assert!(engine.run_rows(job(&x), TILE..TILE)?.rows().is_empty());
    for (part, of) in [(0, 0), (2, 2), (u64::MAX, 1)] {
        let error = engine.rows_of_part(&job(&x), part, of).unwrap_err();
        assert!(matches!(error, Error::InvalidJob(JobError::PartNumber { .. })), "{error}");
    }
    for of in [1, 2, 3, 4, 5, 7, 1000, u64::MAX] {
        let part = |part| engine.rows_of_part(&job(&x), part, of);
        let (first, last) = (part(0)?, part(of - 1)?);
        assert_eq!((first.start, last.end), (0, 3 * TILE + 5), "{of} parts");
        let parts: Vec<_> = (0..of.min(1000)).map(part).collect::<Result<_, _>>()?;
        assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start), "{parts:?}");
        assert!(parts.iter().all(|rows| rows.end - rows.start <= 4u64.div_ceil(of) * TILE), "{parts:?}");
    }
    Ok(())
}

/// Each part has blocks of its own rows only, in any order, and no other values.
fn blocks(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice);
    let mut random = Random(11);
    let text = "y = x * s + i; sum(x), std(x)";
    for _ in 0..20 {
        let rows = 1 + random.below(30 * TILE);
        let x = numbers(rows as usize, rows);
        let mut expected = vec![0.0f64; rows as usize];
        let whole = engine.run(Job::eval(text)?.number("s", 3.0).input("x", &x).output("y", &mut expected))?;
        let (mut partials, mut y) = (Vec::new(), vec![0.0f64; rows as usize]);
        for range in random.division(rows, TILE, 6) {
            let mut borders: Vec<u64> = (0..random.below(4)).map(|_| random.below(rows)).collect();
            borders.retain(|border| range.contains(border));
            borders.extend([range.start, range.end]);
            borders.sort_unstable();
            let mut pairs: Vec<_> = borders.windows(2).map(|pair| pair[0]..pair[1]).collect();
            random.shuffle(&mut pairs);
            let given = pairs.into_iter().try_fold(Blocks::new(Dtype::F64, &[rows], "x 7"), |all, pair| {
                all.block(pair.start, x[pair.start as usize..pair.end as usize].to_vec())
            })?;
            let job = Job::eval(text)?.number("s", 3.0).input("x", given).output("y", &mut y);
            assert_eq!(engine.part_step(&job)?, TILE);
            partials.push(engine.run_rows(job, range)?);
        }
        random.shuffle(&mut partials);
        assert_eq!(bits(&merged(partials)?.finish()?.results), bits(&whole.results), "{rows} rows");
        assert!(y.iter().map(|y| y.to_bits()).eq(expected.iter().map(|y| y.to_bits())), "{rows} rows");
    }
    let x = vec![0.5; TILE as usize];
    let given = |identity| Blocks::new(Dtype::F64, &[2 * TILE], identity).block(TILE, &x);
    let job = |identity| Ok::<_, Error>(Job::eval("sum(x)")?.input("x", given(identity)?));
    let missing = engine.run_rows(job("a")?, 0..2 * TILE).unwrap_err();
    assert!(missing.to_string().contains("row 0 is in no block"), "{missing}");
    let mut last = engine.run_rows(job("a")?, TILE..2 * TILE)?;
    let other = last.merge(engine.run_rows(job("b")?, TILE..2 * TILE)?).unwrap_err();
    assert!(other.to_string().contains("the input x: its values"), "{other}");
    let beyond = given("a")?.block(2 * TILE, &x).unwrap_err();
    assert!(matches!(beyond, Error::InvalidColumn(ColumnError::BlockBeyondEnd { .. })), "{beyond}");
    Ok(())
}
