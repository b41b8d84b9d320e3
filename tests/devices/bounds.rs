//! Inputs that know bounds of their rows: what no result depends on is not read.

use std::sync::atomic::{AtomicU64, Ordering};

use overshot::io::{Bounds, Element};
use overshot::{DeviceChoice, Dtype, Engine, Error, Input, Job, Partial, Report, Result, Scalar, Source};

use crate::harness::{Case, Module, NO_CASES, Outcome, check, engine, numbers};

pub const MODULE: Module = Module { name: "bounds", cases: CASES, ..NO_CASES };

const CASES: &[(&str, Case)] = &[
    ("rows that no filter keeps are not read", left_out),
    ("rows that are alike are not computed", alike),
    ("rows that no filter keeps are in no chunk", filtered),
    ("results are those without bounds", results),
    ("rows that stay on devices are all read", resident),
    ("bounds that are none are not used", wrong),
];

const ROWS: usize = 100_003;

/// A column that knows the bounds of blocks, and counts the rows that are read.
struct Bounded<'a, T> {
    rows: &'a [T],
    bounds: Vec<Bounds>,
    read: AtomicU64,
}

impl<'a, T: Element + PartialOrd + Into<Scalar>> Bounded<'a, T> {
    fn new(rows: &'a [T], block: usize) -> Self {
        let bounds = rows.chunks(block).enumerate().map(|(number, values)| {
            let extreme = |is_better: fn(&T, &T) -> bool| {
                values.iter().copied().reduce(|best, value| if is_better(&value, &best) { value } else { best })
            };
            let (least, greatest) = (extreme(T::lt).unwrap().into(), extreme(T::gt).unwrap().into());
            let first = (number * block) as u64;
            Bounds { rows: first..first + values.len() as u64, least, greatest }
        });
        Bounded { rows, bounds: bounds.collect(), read: AtomicU64::new(0) }
    }

    /// Returns how many rows were read since the last time.
    fn read(&self) -> u64 {
        self.read.swap(0, Ordering::Relaxed)
    }
}

impl<T: Element> Source for Bounded<'_, T> {
    fn dtype(&self) -> Dtype {
        T::DTYPE
    }

    fn rows(&self) -> u64 {
        self.rows.len() as u64
    }

    fn name(&self) -> String {
        "bounded".into()
    }

    fn read(&self, first: u64, dst: &mut [u8]) -> Result<()> {
        let rows = &self.rows[first as usize..][..dst.len() / size_of::<T>()];
        dst.copy_from_slice(bytemuck::cast_slice(rows));
        self.read.fetch_add(rows.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn bounds(&self) -> Result<Vec<Bounds>> {
        match self.bounds.is_empty() {
            true => Err(Error::Internal("no bounds today".into())),
            false => Ok(self.bounds.clone()),
        }
    }
}

/// Keys that grow, a thousand of each.
fn keys() -> Vec<i32> {
    (0..ROWS as i32).map(|row| row / 1000).collect()
}

fn left_out(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice).chunk(64 << 10).build()?;
    let (x, k) = (numbers(ROWS, 1), keys());
    // Most blocks have two keys: the rows of key 7 are in two blocks of 1500 rows.
    let (x, k) = (Bounded::new(&x, 300), Bounded::new(&k, 1500));
    // The rows that are read of x and of k.
    for (text, of_x, of_k) in [
        ("mean(x[k == 7]), count(k == 7)", 3000, 3000),
        // All rows of the last block are kept, whatever their keys are.
        ("sum(where(k > 97, x, 0))", 2503, 1500),
        ("mean(x[(k > 97) & (k < 99)])", 1500, 1500),
        ("mean(x[k > 1000])", 0, 0),
        ("mean(x[k == 7]), max(k)", 3000, ROWS as u64),
        ("mean(x[k * 2 == 14]), sum(x)", ROWS as u64, 3000),
        ("mean(x[k == limit])", 3000, 3000),
    ] {
        let job = Job::eval(text)?.input("x", &x).input("k", &k);
        let job = if text.contains("limit") { job.scalar("limit", 7i32) } else { job };
        let report = engine.run(job)?;
        check((x.read(), k.read()) == (of_x, of_k), format!("{text} reads other rows: {:?}", report.notes))?;
        check(report.notes.iter().any(|note| note.contains("were not read, because")), format!("{text} has no note"))?;
    }
    Ok(())
}

fn alike(choice: &DeviceChoice) -> Outcome {
    let (x, k) = (numbers(ROWS, 5), keys());
    let claimed = |report: &Report| report.devices.iter().map(|device| device.rows).sum::<u64>();
    let tile = 4096;
    for (text, most) in [
        // The rows of key 7, or of the last keys, with those of the same blocks and tiles.
        ("mean(x[k == 7]), std(x[k == 7]), count(k == 7)", 3000 + 2 * tile),
        ("sum(where(k > 97, x, 0.1)), min(where(k > 97, x, 1)), prod(where(k > 97, x, 1))", 2503 + 2 * tile),
        ("bincount(i64((k == 7) & (x > 0.5)), 2), histogram(x[k == 7], 10, 0, 1)", 3000 + 2 * tile),
        ("bincount(i64(k == 7), 3, where(k == 7, x, 2))", 3000 + 2 * tile),
        // Two values, and the tiles between them.
        ("sum(where(k > 49, 1.5, where(k > 1000, x, -0.1)))", 2 * tile),
        ("sum(where(k > 49, limit, where(k > 1000, x, -0.1)))", 2 * tile),
        ("sum(x[k > 1000]), max(where(k > 1000, x, 7))", tile),
        // Not known, or not the same for all rows.
        ("sum(x[k == 7]), max(k)", ROWS as u64),
        ("sum(where(k == 7, x, i))", ROWS as u64),
        ("argmax(where(k == 7, x, -1))", ROWS as u64),
        ("median(x[k == 7])", u64::MAX),
    ] {
        for chunk in [32 << 10, 1 << 20] {
            let engine = engine(choice).chunk(chunk).build()?;
            let (bounded_x, bounded_k) = (Bounded::new(&x, 300), Bounded::new(&k, 1500));
            let last = AtomicU64::new(0);
            let job = |x: Input<'_>, k: Input<'_>| -> Result<Report> {
                let job = Job::eval(text)?.input("x", x).input("k", k);
                let job = job.progress(|progress| {
                    last.fetch_max(progress.done, Ordering::Relaxed);
                });
                engine.run(if text.contains("limit") { job.scalar("limit", 1.0 / 3.0) } else { job })
            };
            let found = job((&bounded_x).into(), (&bounded_k).into())?;
            let reached = last.swap(0, Ordering::Relaxed);
            let expected = job((&x).into(), (&k).into())?;
            let same =
                (found.rows, &found.results, &found.arrays) == (expected.rows, &expected.results, &expected.arrays);
            check(same, format!("others with chunks of {chunk} bytes: {text}"))?;
            if most == u64::MAX {
                continue;
            }
            let rows = claimed(&found);
            // Short ranges of rows are computed, but these are long in the smallest chunks.
            let fits = rows <= ROWS as u64 && (chunk > 32 << 10 || rows <= most);
            check(fits, format!("{rows} rows of at most {most} are computed: {text}"))?;
            check(reached == ROWS as u64, format!("progress ends at {reached}: {text}"))?;
            let notes = found.notes.iter().filter(|note| note.contains("were not computed")).count();
            check(notes == usize::from(rows < ROWS as u64), format!("{text}: {:?}", found.notes))?;
        }
    }
    Ok(())
}

fn filtered(choice: &DeviceChoice) -> Outcome {
    let (x, k) = (numbers(ROWS, 6), keys());
    let tile = 4096;
    for (text, rows, most) in [
        ("y = x[k == 7]; mean(y), std(y), count(k == 7)", ROWS, 3000 + 2 * tile),
        ("y = x[(k == 7) | (k == 50)]; bincount(i64(k == 7), 2)", ROWS, 6000 + 4 * tile),
        ("y = x[k > 1000]; min(where(k > 1000, x, 3))", ROWS, tile),
        // Whole tiles, so that no row is left.
        ("y = x[k > 1000]", 24 * tile, 0),
        // All rows are kept, or matter.
        ("y = x[k >= 0]", ROWS, ROWS),
        ("y = x[k == 7]; max(k)", ROWS, ROWS),
        ("y = x[k == 7]; sum(i)", ROWS, ROWS),
    ] {
        let (x, k) = (&x[..rows], &k[..rows]);
        for chunk in [32 << 10, 1 << 20] {
            let engine = engine(choice).chunk(chunk).build()?;
            let (bounded_x, bounded_k) = (Bounded::new(x, 300), Bounded::new(k, 1500));
            let run = |x: Input<'_>, k: Input<'_>| -> Result<(Vec<f64>, Report)> {
                let mut y = vec![0.0; rows];
                let job = Job::eval(text)?.input("x", x).input("k", k).output("y", &mut y[..]);
                let report = engine.run(job)?;
                Ok((y, report))
            };
            let (found, report) = run((&bounded_x).into(), (&bounded_k).into())?;
            let (expected, of_all) = run(x.into(), k.into())?;
            let written = |report: &Report| report.outputs.iter().map(|output| output.rows).collect::<Vec<_>>();
            let same = found == expected
                && written(&report) == written(&of_all)
                && (&report.results, &report.arrays) == (&of_all.results, &of_all.arrays);
            check(same, format!("others with chunks of {chunk} bytes: {text}"))?;
            let claimed = report.devices.iter().map(|device| device.rows).sum::<u64>();
            let fits = claimed <= rows as u64 && (chunk > 32 << 10 || claimed <= most as u64);
            check(fits, format!("{claimed} rows of at most {most} are computed: {text}"))?;
        }
    }
    Ok(())
}

fn results(choice: &DeviceChoice) -> Outcome {
    let (x, k) = (numbers(ROWS, 2), keys());
    let texts = [
        "y = x[k == 7]; mean(y), std(y), count(k == 7)",
        "y = where((k > 20) & (k <= 40), x, -1); sum(y), argmax(y)",
        "y = (x - shift(x, 1, edge))[k == 50]; sum(y)",
        "y = x[(k > 90) | (x > 2)]; bincount(i64(k), 101, where(k > 30, x, 0))",
        "y = x * 2; median(x[k > 60])",
        "m = mean(x[k < 9]); y = (x - m)[k < 9]",
    ];
    for (chunk, block) in [(32 << 10, 999), (256 << 10, 1), (1 << 20, 40_000)] {
        let engine = engine(choice).chunk(chunk).build()?;
        let (bounded_x, bounded_k) = (Bounded::new(&x, 1 + block / 2), Bounded::new(&k, block));
        for text in texts {
            let run = |x: Input<'_>, k: Input<'_>| -> Result<_> {
                let mut y = vec![0.0; ROWS];
                let job = Job::eval(text)?.input("x", x).input("k", k).output("y", &mut y[..]);
                let Report { results, arrays, .. } = engine.run(job)?;
                Ok((y, results, arrays))
            };
            let same = run((&bounded_x).into(), (&bounded_k).into())? == run((&x).into(), (&k).into())?;
            check(same, format!("others with blocks of {block} rows: {text}"))?;
        }
        let job = || Ok::<_, Error>(Job::eval("std(x[k == 7]), sum(x[k > 90])")?.input("k", &bounded_k));
        let job = || Ok::<_, Error>(job()?.input("x", &bounded_x));
        let parts = [0..40_960, 40_960..65_536, 65_536..ROWS as u64].into_iter();
        let parts = parts.map(|rows| engine.run_rows(job()?, rows)).collect::<Result<Vec<Partial>>>()?;
        let all = parts.into_iter().map(Ok).reduce(|all, part| {
            let mut all = all?;
            all.merge(part?)?;
            Ok::<_, Error>(all)
        });
        let whole = Job::eval("std(x[k == 7]), sum(x[k > 90])")?.input("k", &k).input("x", &x);
        check(all.unwrap()?.finish()?.results == engine.run(whole)?.results, "parts have other results")?;
    }
    Ok(())
}

/// The rows that one job copies to the devices are there for the next one.
fn resident(choice: &DeviceChoice) -> Outcome {
    let engine: Engine = engine(choice).chunk(64 << 10).build()?;
    let (x, k) = (numbers(ROWS, 3), keys());
    let (bounded_x, bounded_k) = (Bounded::new(&x, 300), Bounded::new(&k, 500));
    let stays = engine.resident(&bounded_x)?;
    for text in ["mean(x[k == 7])", "sum(x), mean(x[k > 50])"] {
        let found = engine.run(Job::eval(text)?.input("x", &stays).input("k", &bounded_k))?;
        let expected = engine.run(Job::eval(text)?.input("x", &x).input("k", &k))?;
        check(found.results == expected.results, format!("others: {text}"))?;
    }
    Ok(())
}

fn wrong(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice).build()?;
    let (x, k) = (numbers(ROWS, 4), keys());
    let run = |k: &Bounded<'_, i32>| engine.run(Job::eval("sum(x[k == 7])")?.input("x", &x).input("k", k));
    let expected = run(&Bounded::new(&k, 1000))?;
    let bounds = |rows, least: Scalar, greatest: Scalar| Bounds { rows, least, greatest };
    for (what, wrong) in [
        ("no bounds", vec![]),
        ("beyond the end", vec![bounds(0..ROWS as u64 + 1, 0.into(), 1.into())]),
        ("of another dtype", vec![bounds(0..10_000, 0i64.into(), 1i64.into())]),
        ("out of order", vec![bounds(50..100, 0.into(), 0.into()), bounds(0..50, 0.into(), 0.into())]),
        ("the wrong way round", vec![bounds(0..10_000, 9.into(), 8.into())]),
    ] {
        let column = Bounded { bounds: wrong, ..Bounded::new(&k, 1000) };
        let report = run(&column)?;
        check(report.results == expected.results && column.read() == ROWS as u64, what)?;
        let says = report.notes.iter().any(|note| note.contains("the bounds of their values"));
        check(says, format!("{what}: {:?}", report.notes))?;
    }
    Ok(())
}
