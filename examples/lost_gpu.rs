//! A GPU that fails does not end a job that other devices can finish: this kernel accesses memory that does not exist,
//! and its function for the host does not. The CPU computes the rows of the GPU, and of all GPUs of the process.
//!
//! `cargo run --release --example lost_gpu [DEVICE]`

use std::error::Error;

use overshot::{DeviceChoice, Engine, Job, kernel::CustomKernel};

const WRONG: &str = r#"
extern "C" __global__ void half(const double *x, long long first_row, long long rows, double *y)
{
    long long i = blockIdx.x * 256ll + threadIdx.x;
    if (i < rows) y[i] = x[i] / 2;
    // A mistake that shows late.
    if (i == 0 && first_row > 10000000) *(double *)16 = 0;
}"#;

fn main() -> Result<(), Box<dyn Error>> {
    let device: DeviceChoice = std::env::args().nth(1).as_deref().unwrap_or("auto").parse()?;
    // SAFETY: not given, which is the point. No other code of this process uses the GPU.
    let kernel = unsafe { CustomKernel::cuda("half.cu", WRONG, "half")?.rows_per_block(256) };
    let kernel = kernel.on_host(|rows| {
        let (x, y) = (rows.input::<f64>("x"), rows.output::<f64>("y"));
        x.iter().zip(y).for_each(|(x, y)| *y = x / 2.0);
    });
    let x: Vec<f64> = (0..60_000_000).map(f64::from).collect();
    let mut y = vec![0.0; x.len()];
    let engine = Engine::builder().device(device).build()?;
    for run in ["the first run", "the next run"] {
        y.fill(f64::NAN);
        let report = engine.run(Job::kernel(kernel.call()).input("x", &x).output("y", &mut y))?;
        assert!(x.iter().zip(&y).all(|(x, y)| x / 2.0 == *y), "wrong rows");
        println!("{run}: all {} rows are right", report.rows);
        for note in report.notes {
            println!("  {note}");
        }
    }
    Ok(())
}
