//! The latency of small jobs on a warm engine: from the call of `Engine::run` to its return.
//!
//! `cargo bench --bench latency -- --device cpu,cuda --runs 2000 --size 1MiB`. The size is that of all columns of a
//! job, which are in pageable memory. Prints one line of JSON for each device and job, with the median and the 95th
//! percentile in microseconds. Every result is checked.

use std::error::Error;
use std::time::{Duration, Instant};

use bytesize::ByteSize;
use overshot::{DeviceChoice, Engine, Job, Scalar};
use serde_json::json;

fn main() -> Result<(), Box<dyn Error>> {
    let (mut devices, mut runs, mut bytes) = (vec!["cpu".to_owned()], 20, 1 << 20);
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{name} needs a value"));
        match name.as_str() {
            "--device" => devices = value()?.split(',').map(str::to_owned).collect(),
            "--runs" => runs = value()?.parse::<usize>()?.max(1),
            "--size" => bytes = value()?.parse::<ByteSize>()?.as_u64() as usize,
            // `cargo bench` and `cargo test` pass these.
            "--bench" | "--test" => {}
            other => return Err(format!("unknown argument {other}").into()),
        }
    }
    for device in devices {
        let engine = Engine::builder().device(device.parse::<DeviceChoice>()?).build()?;
        // Opens the GPUs; `auto` would leave them closed for small jobs.
        engine.pinned::<u8>(1)?;
        for (job, columns) in [("sum(a)", 1), ("c = a * b", 3)] {
            let times = measure(&engine, job, bytes / 8 / columns, runs)?;
            let us = |part: f64| times[((times.len() - 1) as f64 * part) as usize].as_secs_f64() * 1e6;
            let (median, p95) = (us(0.5), us(0.95));
            let line = json!({
                "device": device, "job": job, "bytes": bytes, "runs": runs, "median_us": median, "p95_us": p95,
            });
            println!("{line}");
        }
    }
    Ok(())
}

/// Returns the times of `runs` runs after a tenth as many to warm up, shortest first.
fn measure(engine: &Engine, job: &str, rows: usize, runs: usize) -> Result<Vec<Duration>, Box<dyn Error>> {
    let (a, b) = (vec![0.5f64; rows], vec![3.0f64; rows]);
    let mut c = vec![0.0f64; rows];
    let mut times = Vec::with_capacity(runs);
    for run in 0..runs + runs.div_ceil(10) {
        let mut next = Job::eval(job)?.input("a", &a);
        let is_sum = job.starts_with("sum");
        if !is_sum {
            c.fill(f64::NAN);
            next = next.input("b", &b).output("c", &mut c);
        }
        let begin = Instant::now();
        let report = engine.run(next)?;
        let took = begin.elapsed();
        let is_right = if is_sum {
            report.value(job)? == Some(Scalar::F64(0.5 * rows as f64))
        } else {
            c.iter().all(|&c| c == 1.5)
        };
        if !is_right {
            return Err(format!("a wrong result of {job}").into());
        }
        if run >= runs.div_ceil(10) {
            times.push(took);
        }
    }
    times.sort_unstable();
    Ok(times)
}
