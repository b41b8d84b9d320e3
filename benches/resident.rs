//! Passes over a dataset that is a quarter larger than device memory: how many bytes each pass moves, and how long it
//! takes.
//!
//! `cargo bench --bench resident -- --device cuda --device-memory 8GiB`. The device memory is that of each GPU. Each
//! variant runs the same number of passes on one engine. The first two, which allocate and fill the memory, do not
//! count; the result is the median of the others. All variants must give the same bits.

use std::error::Error;
use std::time::Instant;

use bytesize::ByteSize;
use overshot::{DeviceChoice, Engine, Job, Report, Scalar};
use rayon::prelude::*;
use serde_json::json;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Returns the job for a center.
type Make<'m, 'a> = &'m dyn Fn(f64) -> overshot::Result<Job<'a>>;

/// The mean of the values near the previous mean.
const PASS: &str = "m = mean(clip(x, c - 0.25, c + 0.25))";

/// The measurements of the passes of one variant.
#[derive(Default)]
struct Passes {
    bits: Vec<u64>,
    seconds: Vec<f64>,
    moved: Vec<u64>,
    ahead: Vec<u64>,
}

impl Passes {
    fn add(&mut self, report: &Report, seconds: f64) -> f64 {
        let center = report.value("m").ok().flatten().map_or(f64::NAN, Scalar::as_f64);
        self.bits.push(center.to_bits());
        self.seconds.push(seconds);
        self.moved.push(report.bytes_to_device);
        self.ahead.push(report.bytes_ahead);
        center
    }
}

fn main() -> Outcome {
    let (mut device, mut memory, mut count) = (DeviceChoice::Auto, ByteSize::mib(16), 10);
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{name} needs a value"));
        match name.as_str() {
            "--device" => device = value()?.parse()?,
            "--device-memory" => memory = value()?.parse()?,
            "--passes" => count = value()?.parse::<usize>()?.max(3),
            // `cargo bench` and `cargo test` pass these.
            "--bench" | "--test" => {}
            other => return Err(format!("unknown argument {other}").into()),
        }
    }
    let engine = Engine::builder().device(device).device_memory(memory.as_u64()).build()?;
    let bytes = memory.as_u64() * engine.devices().len() as u64 / 4 * 5;
    let mut x = vec![0.0f64; bytes as usize / 8];
    x.par_iter_mut().enumerate().for_each(|(row, x)| *x = (row.wrapping_mul(0x9e37_79b9) % 1_000_003) as f64 / 1e6);
    let data = engine.resident(&x)?;
    let streamed = |center| Ok(Job::eval(PASS)?.input("x", &x).scalar("c", center));
    let resident = |center| Ok(Job::eval(PASS)?.input("x", &data).scalar("c", center));
    let mut expected = None;
    let ways: [(&str, Make<'_, '_>, bool); 4] = [
        ("streamed, a run each", &streamed, false),
        ("streamed, passes", &streamed, true),
        ("resident, a run each", &resident, false),
        ("resident, passes", &resident, true),
    ];
    for (way, job, at_once) in ways {
        let passes = if at_once { in_passes(&engine, job(0.0)?, count)? } else { in_runs(&engine, job, count)? };
        let expected = expected.get_or_insert(passes.bits.clone());
        if passes.bits != *expected {
            return Err(format!("{way}: {:?} instead of {expected:?}", passes.bits).into());
        }
        let seconds = median(&passes.seconds);
        let moved = &passes.moved[2..];
        println!(
            "{}",
            json!({
                "way": way, "bytes": bytes, "seconds": seconds, "gb_per_s": bytes as f64 / seconds / 1e9,
                "bytes_to_device": [moved.iter().min(), moved.iter().max()],
                "bytes_ahead": median(&passes.ahead.iter().map(|bytes| *bytes as f64).collect::<Vec<_>>()),
            })
        );
    }
    Ok(())
}

fn in_runs(engine: &Engine, job: Make<'_, '_>, count: usize) -> Outcome<Passes> {
    let (mut passes, mut center) = (Passes::default(), 0.0);
    for _ in 0..count {
        let begin = Instant::now();
        let report = engine.run(job(center)?)?;
        center = passes.add(&report, begin.elapsed().as_secs_f64());
    }
    Ok(passes)
}

fn in_passes(engine: &Engine, job: Job<'_>, count: usize) -> Outcome<Passes> {
    let (mut found, mut begin) = (Passes::default(), Instant::now());
    engine.passes(job, |passes| {
        for _ in 0..count {
            let center = found.add(&passes.run()?, begin.elapsed().as_secs_f64());
            begin = Instant::now();
            passes.set("c", center)?;
        }
        Ok(())
    })?;
    Ok(found)
}

/// Returns the median of all but the first two.
fn median(all: &[f64]) -> f64 {
    let mut rest = all[2..].to_vec();
    rest.sort_by(f64::total_cmp);
    rest[rest.len() / 2]
}
