//! The price of a European call option by Monte Carlo: 500 000 paths of 200 steps, computed on the device by custom
//! kernels.
//!
//! `cargo run --release --example option_pricer [DEVICE] [FILE.npy]`
//!
//! With a file, all paths are written to it, in far less memory than they take. Without one, only the price is
//! computed. `--bench` instead of a file times both, with the paths in pinned memory.

mod host;

use std::error::Error;
use std::time::Instant;

use overshot::{
    DeviceChoice, Engine, EngineBuilder, Job, Npy, Output,
    kernel::{Call, CustomKernel},
};

const SOURCE: &str = include_str!("kernels.cu");
const STEPS: usize = 200;
const BATCH: u64 = 256;
const SEED: u64 = 2026;
const SPOT: f64 = 20.83;
const STRIKE: f64 = 21.50;
const VOLATILITY: f64 = 0.021;
const RATE: f64 = 0.20;
const YEARS: f64 = 5.0 / 12.0;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let device = arguments.first().map_or(Ok(DeviceChoice::Auto), |device| device.parse())?;
    let builder = || Engine::builder().device(device.clone());
    match arguments.get(1).map(String::as_str) {
        None => price(&builder().build()?, 500_000),
        Some("--bench") => bench(builder),
        Some(file) => {
            let engine = builder().device_memory(64 << 20).pinned_memory(64 << 20).build()?;
            write_paths(&engine, 500_000, Npy::create(file).force(true))?;
            println!("{file}: 500000 paths of {STEPS} steps");
            check(host::payoffs_of_file(file)?, 500_000)
        }
    }
}

/// The parameters of both kernels.
fn with_market(kernel: &CustomKernel) -> Call {
    let step = YEARS / STEPS as f64;
    kernel
        .call()
        .scalar("start", SPOT.ln())
        .scalar("drift", (RATE - VOLATILITY * VOLATILITY / 2.0) * step)
        .scalar("volatility", VOLATILITY * step.sqrt())
        .scalar("seed", SEED)
}

/// Writes `count` paths, one per row.
fn write_paths<'o>(engine: &Engine, count: u64, prices: impl Into<Output<'o>>) -> Outcome {
    // SAFETY: each thread writes only the prices of its row, and only if the row is less than `rows`.
    let paths = unsafe { CustomKernel::cuda("kernels.cu", SOURCE, "paths")?.threads(128) }.on_host(host::paths);
    engine.run(Job::kernel(with_market(&paths)).rows(count).output("prices", prices))?;
    Ok(())
}

/// Returns the sum of the payoffs of `count` paths, and of their squares. Nothing else leaves the device.
fn sums(engine: &Engine, count: u64) -> Outcome<[f64; 2]> {
    // SAFETY: each block writes only the row with its number, and there is one block for each row.
    let payoffs =
        unsafe { CustomKernel::cuda("kernels.cu", SOURCE, "payoffs")?.threads(BATCH as u32).rows_per_block(1) };
    let payoffs = payoffs.on_host(host::payoffs);
    let batches = count.div_ceil(BATCH);
    let mut sums = vec![0.0; 2 * batches as usize];
    let call = with_market(&payoffs).scalar("strike", STRIKE).scalar("count", count);
    engine.run(Job::kernel(call).rows(batches).output("sums", &mut sums))?;
    Ok(sums.as_chunks::<2>().0.iter().fold([0.0; 2], |[sum, squares], batch| [sum + batch[0], squares + batch[1]]))
}

fn price(engine: &Engine, count: u64) -> Outcome {
    check(sums(engine, count)?, count)
}

/// Discounts the mean payoff, and compares it with the formula of Black and Scholes.
fn check([sum, squares]: [f64; 2], count: u64) -> Outcome {
    let discount = (-RATE * YEARS).exp();
    let mean = sum / count as f64;
    let error = discount * ((squares / count as f64 - mean * mean) / count as f64).sqrt();
    let (price, exact) = (discount * mean, host::black_scholes(SPOT, STRIKE, VOLATILITY, RATE, YEARS));
    println!("price {price:.6}, standard error {error:.6}, by the formula {exact:.6}");
    if (price - exact).abs() > 3.0 * error { Err("more than three standard errors off".into()) } else { Ok(()) }
}

fn bench(builder: impl Fn() -> EngineBuilder) -> Outcome {
    let engine = builder().build()?;
    let mut prices = engine.pinned::<f64>(500_000 * STEPS)?;
    let median = |run: &mut dyn FnMut() -> Outcome| -> Outcome<f64> {
        let mut seconds = Vec::new();
        for _ in 0..9 {
            let begin = Instant::now();
            run()?;
            seconds.push(begin.elapsed().as_secs_f64());
        }
        seconds.sort_by(f64::total_cmp);
        Ok(seconds[4])
    };
    let paths = median(&mut || write_paths(&engine, 500_000, &mut prices))?;
    check(host::payoffs_of_rows(&prices), 500_000)?;
    let mut last = [0.0; 2];
    let price = median(&mut || {
        last = sums(&engine, 500_000)?;
        Ok(())
    })?;
    check(last, 500_000)?;
    println!("{{\"paths_seconds\": {paths:.6}, \"price_seconds\": {price:.6}}}");
    Ok(())
}

#[test]
fn runs() -> Outcome {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("paths.npy");
    for device in ["cpu", "emulated"] {
        let engine = Engine::builder().device(device.parse::<DeviceChoice>()?).device_memory(1 << 20).build()?;
        price(&engine, 10_001)?;
        write_paths(&engine, 10_001, Npy::create(&file).force(true))?;
        check(host::payoffs_of_file(&file)?, 10_001)?;
    }
    Ok(())
}
