//! A custom kernel in CUDA C++, with the same function for the host. It compacts: it keeps the points inside a circle,
//! in order.
//!
//! `cargo run --release --example kernel [DEVICE]`

use std::error::Error;

use overshot::{DeviceChoice, Engine, Job, kernel::CustomKernel};

const INSIDE: &str = r#"
// Block b reads 1024 points, and writes the points inside to the start of its 1024 rows of the output.
extern "C" __global__ void inside(const double (*points)[2], double radius, long long rows, double (*near)[2],
                                  unsigned long long *num_selected)
{
    __shared__ int counts[8];
    long long begin = blockIdx.x * 1024ll;
    int total = 0;
    for (int turn = 0; turn < 1024; turn += 256) {
        long long i = begin + turn + threadIdx.x;
        bool keep = i < rows && points[i][0] * points[i][0] + points[i][1] * points[i][1] < radius * radius;
        unsigned votes = __ballot_sync(0xffffffff, keep);
        int warp = threadIdx.x / 32, place = total + __popc(votes & ((1u << threadIdx.x % 32) - 1));
        if (threadIdx.x % 32 == 0) counts[warp] = __popc(votes);
        __syncthreads();
        for (int w = 0; w < 8; ++w) {
            if (w < warp) place += counts[w];
            total += counts[w];
        }
        if (keep) {
            near[begin + place][0] = points[i][0];
            near[begin + place][1] = points[i][1];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) num_selected[blockIdx.x] = total;
}"#;

fn main() -> Result<(), Box<dyn Error>> {
    keep(std::env::args().nth(1).as_deref().unwrap_or("auto").parse()?, 20_000_000)
}

fn keep(device: DeviceChoice, rows: usize) -> Result<(), Box<dyn Error>> {
    // SAFETY: a block accesses only its 1024 rows of both columns, as far as they exist, and its number in
    // `num_selected`.
    let inside = unsafe { CustomKernel::cuda("inside.cu", INSIDE, "inside")?.rows_per_block(1024) }.on_host(|rows| {
        let (points, radius, tile_rows) = (rows.input::<f64>("points"), rows.value::<f64>("radius"), rows.tile_rows());
        let (near, kept) = (rows.output::<f64>("near"), rows.num_selected());
        for ((points, near), kept) in points.chunks(2 * tile_rows).zip(near.chunks_mut(2 * tile_rows)).zip(kept) {
            let inside = points.as_chunks::<2>().0.iter().filter(|[x, y]| x * x + y * y < radius * radius);
            *kept = inside.zip(near.as_chunks_mut::<2>().0).map(|(point, to)| *to = *point).count() as u64;
        }
    });
    let points: Vec<f64> = (0..2 * rows).map(|i| (i * 7919 % 10_007) as f64 / 10_007.0).collect();
    let mut near = vec![0.0; points.len()];
    let engine = Engine::builder().device(device).build()?;
    let job = Job::kernel(inside.call().scalar("radius", 0.5)).input("points", &points).output("near", &mut near);
    let report = engine.run(job)?;
    let kept = report.outputs[0].rows as usize;
    println!("{kept} of {rows} points are inside\n\n{report}");
    let expected = points.as_chunks::<2>().0.iter().filter(|[x, y]| x * x + y * y < 0.25);
    if expected.eq(&near.as_chunks::<2>().0[..kept]) { Ok(()) } else { Err("other points".into()) }
}

#[test]
fn runs() -> Result<(), Box<dyn Error>> {
    keep(DeviceChoice::Cpu, 100_000)?;
    keep("emulated:3".parse()?, 100_000)
}
