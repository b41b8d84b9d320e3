//! From slice to slice: `cargo run --release --example library`

use overshot::{Engine, Job};

fn main() -> overshot::Result<()> {
    let a: Vec<f64> = (0..10_000_000).map(f64::from).collect();
    let mut c = vec![0.0; a.len()];
    // Uses a GPU if there is one, with at most 64 MiB of its memory; otherwise the CPU.
    let engine = Engine::builder().device_memory(64 << 20).build()?;
    let job = Job::eval("c = sqrt(a * a + 1); mean(c)")?.input("a", &a).output("c", &mut c);
    let report = engine.run(job)?;
    println!("the last of {} rows is {}\n\n{report}", report.rows, c[c.len() - 1]);
    Ok(())
}

#[test]
fn runs() -> overshot::Result<()> {
    main()
}
