//! A computation of one's own in safe Rust, without CUDA: how many steps the Collatz sequence of each number has.
//!
//! `cargo run --release --example rust_function`

use overshot::kernel::RowFunction;
use overshot::{DeviceChoice, Engine, Job};

/// Steps from `n` to 1.
fn steps(mut n: u64) -> u32 {
    let mut steps = 0;
    while n > 1 {
        n = if n.is_multiple_of(2) { n / 2 } else { 3 * n + 1 };
        steps += 1;
    }
    steps
}

fn main() -> overshot::Result<()> {
    collatz(DeviceChoice::Auto, 5_000_000)
}

fn collatz(device: DeviceChoice, rows: u64) -> overshot::Result<()> {
    // The closure gets the rows of a part of a chunk: a slice for each column, of the declared type.
    let collatz = RowFunction::new("collatz").input::<u64>("n").output::<u32>("steps").run(|n, to| {
        for (&n, to) in n.iter().zip(to) {
            *to = steps(n);
        }
    });
    let n: Vec<u64> = (1..=rows).collect();
    let mut found = vec![0u32; n.len()];
    // It runs on the CPU, also where there is a GPU: the report has a note then.
    let engine = Engine::builder().device(device).build()?;
    let report = engine.run(Job::kernel(&collatz).input("n", &n).output("steps", &mut found))?;
    let most = found.iter().max().copied().unwrap_or_default();
    println!("at most {most} steps for {rows} numbers\n\n{report}");
    assert!(n.iter().zip(&found).all(|(&n, &found)| found == steps(n)));
    Ok(())
}

#[test]
fn runs() -> overshot::Result<()> {
    collatz(DeviceChoice::Cpu, 100_000)?;
    collatz("emulated:3".parse()?, 10_000)
}
