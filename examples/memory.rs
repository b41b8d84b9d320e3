//! The memory that an engine has in use, caches for the next job, and returns: `cargo run --release --example memory`
//!
//! On a machine without a GPU all numbers are zero; try `memory emulated` there.

use std::env;

use overshot::{DeviceChoice, Engine, Job};

fn main() -> overshot::Result<()> {
    let choice = env::args().nth(1).map_or(Ok(DeviceChoice::Auto), |choice| choice.parse())?;
    show(choice, 20_000_000)
}

fn show(choice: DeviceChoice, rows: usize) -> overshot::Result<()> {
    let engine = Engine::builder().device(choice).build()?;
    let print = |when: &str| {
        println!("{when}");
        engine.memory().iter().for_each(|memory| println!("  {memory}"));
    };
    print("before the first job, no device is open:");

    let a = vec![1.5f32; rows];
    let mut c = vec![0.0f32; rows];
    for rows in [rows, rows / 1000] {
        let job = Job::eval("c = a * a; sum(c)")?.input("a", &a[..rows]).output("c", &mut c[..rows]);
        let seconds = engine.run(job)?.setup.memory.as_secs_f64();
        print(&format!("after a job of {rows} rows, whose memory was ready in {:.1} ms:", seconds * 1e3));
    }

    // The peak is the most memory that jobs had in use at once. This resets it.
    engine.reset_peak();
    println!("given back: {} bytes", engine.trim());
    print("then:");
    Ok(())
}

#[test]
fn runs() -> overshot::Result<()> {
    show(DeviceChoice::Cpu, 100_000)?;
    show("emulated".parse()?, 100_000)
}
