//! Arrays in pinned memory, which jobs use in place: `cargo run --release --example pinned`
//!
//! On a machine without a GPU they are pageable memory, and no memory is pinned.

use std::time::Instant;

use overshot::{DeviceChoice, Engine, Job};

fn main() -> overshot::Result<()> {
    stream(DeviceChoice::Auto, 20_000_000)
}

fn stream(choice: DeviceChoice, rows: usize) -> overshot::Result<()> {
    let engine = Engine::builder().device(choice).build()?;
    let begin = Instant::now();
    let (mut a, mut c) = (engine.pinned::<f32>(rows)?, engine.pinned::<f32>(rows)?);
    let what = if a.is_pinned() { "pinned" } else { "ordinary (there is no GPU to pin it for)" };
    println!("2 x {rows} rows of {what} memory in {:.3} s", begin.elapsed().as_secs_f64());

    // They are slices.
    a.iter_mut().enumerate().for_each(|(row, a)| *a = row as f32);
    let report = engine.run(Job::eval("c = sqrt(a)")?.input("a", &a).output("c", &mut c))?;
    println!("c[{}] = {}; the run pinned {} bytes besides", rows - 1, c[rows - 1], report.peak_pinned_bytes);

    // An ordinary slice is staged. The run takes pinned memory only for this slice.
    let b = vec![2.0f32; rows];
    let report = engine.run(Job::eval("c = a * b")?.input("a", &a).input("b", &b).output("c", &mut c))?;
    println!("c[{}] = {}; the run pinned {} bytes besides", rows - 1, c[rows - 1], report.peak_pinned_bytes);
    Ok(())
}

#[test]
fn runs() -> overshot::Result<()> {
    stream(DeviceChoice::Cpu, 100_000)
}
