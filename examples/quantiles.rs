//! Finds quantiles and the largest values of a file that is larger than the memory of the device, and scales its rows.
//!
//! `cargo run --release --example quantiles [ROWS]`
//!
//! Each row is the time that a request took. A few take very long, so the mean tells little. The quantiles are exact,
//! and nothing is sorted: each pass over the rows counts them, and the next one looks closer where a quantile is. The
//! emulated device has 16 MiB of memory, so the example shows the same on every machine; with a GPU, try
//! `DeviceChoice::Auto`.

use std::env;

use overshot::{DeviceChoice, Engine, Job, Npy, Report, device::Emulated};

const TEXT: &str = "m = median(time), p99 = quantile(time, 0.99); \
                    spread = quantile(time, 0.75) - quantile(time, 0.25); \
                    longest = topk(time, 5); slow = median(time[time > 1]); scaled = (time - m) / spread";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rows = env::args().nth(1).map_or(Ok(4 << 20), |rows| rows.parse())?;
    rank(rows)
}

fn rank(rows: u64) -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir_in(".")?;
    let path = |name: &str| folder.path().join(name).with_extension("npy");
    let cpu = Engine::builder().device(DeviceChoice::Cpu).build()?;
    let job = Job::eval("time = exp(randn(1))")?.rows(rows);
    cpu.run(job.output("time", Npy::create(path("time"))))?;

    let engine = Engine::builder().device(Emulated::new()).device_memory(16 << 20).build()?;
    let job = Job::eval(TEXT)?.input("time", Npy::open(path("time"))?);
    let job = job.output("scaled", Npy::create(path("scaled")));
    println!("{}", engine.plan(&job)?);
    let report = engine.run(job)?;
    println!("{report}");

    // A second way: all rows in memory, sorted.
    let (mut times, mut scaled) = (vec![0.0_f64; rows as usize], vec![0.0_f64; rows as usize]);
    let read = Job::eval("times = time; own = scaled")?;
    let read = read.input("time", Npy::open(path("time"))?).input("scaled", Npy::open(path("scaled"))?);
    cpu.run(read.output("times", &mut times).output("own", &mut scaled))?;
    let mut sorted = times.clone();
    sorted.sort_by(f64::total_cmp);
    let value = |name: &str| value(&report, name);
    let (m, spread) = (quantile(&sorted, 0.5), quantile(&sorted, 0.75) - quantile(&sorted, 0.25));
    assert_eq!([value("m")?, value("p99")?, value("spread")?], [m, quantile(&sorted, 0.99), spread]);
    let slow = &sorted[sorted.partition_point(|time| *time <= 1.0)..];
    assert_eq!(value("slow")?, quantile(slow, 0.5));
    let longest: Vec<f64> = sorted.iter().rev().take(5).copied().collect();
    assert_eq!(report.array("longest")?.and_then(|array| array.to_vec()), Some(longest));
    assert!(times.iter().zip(&scaled).all(|(time, scaled)| *scaled == (time - m) / spread));
    Ok(())
}

fn value(report: &Report, name: &str) -> Result<f64, Box<dyn std::error::Error>> {
    Ok(report.value(name)?.ok_or("no rows")?.as_f64())
}

/// A quantile of sorted values. At 0.5, halfway between two values, it is their mean, too.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let place = share * (sorted.len() - 1) as f64;
    let (rank, way) = (place as usize, place.fract());
    let (a, b) = (sorted[rank], sorted[(rank + 1).min(sorted.len() - 1)]);
    match way {
        0.5 => (a + b) / 2.0,
        _ if way > 0.5 => b - (b - a) * (1.0 - way),
        _ => a + (b - a) * way,
    }
}

#[test]
fn runs() -> Result<(), Box<dyn std::error::Error>> {
    rank(300_000)
}
