//! Several time steps per transfer: heat spreads along a rod. The rod and its next state are larger than the memory of
//! the device.
//!
//! `cargo run --release --example heat [DEVICE] [ROWS]`
//!
//! A step of a 3-point stencil takes far less time than the copies of its rows. So a kernel of our own makes eight
//! steps on the rows that it has: it reads eight rows more on each side, its halo, and after each step one row less on
//! each side is right. The result has the bits of eight runs of one step each, which move eight times as many bytes.

use std::error::Error;
use std::time::Duration;

use overshot::{DeviceChoice, Engine, Job, kernel::CustomKernel};

/// The steps of one run of the kernel.
const STEPS: usize = 8;
const SPREAD: f32 = 0.2;

const HEAT: &str = r#"
const int STEPS = 8, ROWS = 1024, ALL = ROWS + 2 * STEPS;

// Block b makes the steps for 1024 rows, on a copy with the rows around them.
extern "C" __global__ void heat(const float *u, float spread, long long first_row, long long rows,
                                long long total_rows, float *next)
{
    __shared__ float copies[2][ALL];
    float *from = copies[0], *to = copies[1];
    long long begin = blockIdx.x * (long long)ROWS - STEPS;
    for (int k = threadIdx.x; k < ALL; k += blockDim.x) {
        long long row = first_row + begin + k;
        bool is_there = row >= 0 && row < total_rows && begin + k < rows + STEPS;
        from[k] = is_there ? u[begin + k] : 0;
    }
    for (int step = 1; step <= STEPS; ++step) {
        __syncthreads();
        for (int k = step + threadIdx.x; k < ALL - step; k += blockDim.x) {
            long long row = first_row + begin + k;
            float left = row > 0 ? from[k - 1] : from[k], right = row < total_rows - 1 ? from[k + 1] : from[k];
            to[k] = from[k] + spread * (left - 2 * from[k] + right);
        }
        float *last = from;
        from = to;
        to = last;
    }
    __syncthreads();
    for (int k = threadIdx.x; k < ROWS; k += blockDim.x) {
        if (begin + STEPS + k < rows) next[begin + STEPS + k] = from[STEPS + k];
    }
}"#;

/// One step as an expression.
const STEP: &str = "next = u + spread * (shift(u, 1, edge) - 2 * u + shift(u, -1, edge))";

fn main() -> Result<(), Box<dyn Error>> {
    let device = std::env::args().nth(1).as_deref().unwrap_or("auto").parse()?;
    let rows = std::env::args().nth(2).map_or(Ok(100_000_000), |rows| rows.parse())?;
    let [blocked, single] = heat(device, rows, 512 << 20)?;
    let rate = |time: Duration| (STEPS * rows) as f64 / time.as_secs_f64() / 1e9;
    println!("one step per transfer:    {:6.2} billion rows and steps per second", rate(single));
    println!("{STEPS} steps per transfer:   {:6.2} billion rows and steps per second", rate(blocked));
    println!("ratio: {:.2}", rate(blocked) / rate(single));
    Ok(())
}

/// One step of all rows, of which the slice may have only some: what is beyond its ends has the values at the ends.
fn step(from: &[f32], to: &mut [f32]) {
    for (k, to) in to.iter_mut().enumerate() {
        let (left, right) = (from[k.saturating_sub(1)], from[(k + 1).min(from.len() - 1)]);
        *to = from[k] + SPREAD * (left - 2.0 * from[k] + right);
    }
}

/// Returns the time of one run with eight steps, and that of eight runs with one.
fn heat(device: DeviceChoice, rows: usize, memory: u64) -> Result<[Duration; 2], Box<dyn Error>> {
    // SAFETY: a block reads its 1024 rows and eight more on each side, as far as the launch, its halo and the job have
    // them, and writes those of its 1024 rows that exist.
    let kernel = unsafe { CustomKernel::cuda("heat.cu", HEAT, "heat")?.rows_per_block(1024).halo("u", STEPS, STEPS) };
    let kernel = kernel.on_host(|rows| {
        let (u, front) = (rows.input::<f32>("u"), rows.halo_before("u"));
        let (mut from, mut to) = (u.to_vec(), vec![0.0; u.len()]);
        for _ in 0..STEPS {
            step(&from, &mut to);
            std::mem::swap(&mut from, &mut to);
        }
        let next = rows.output::<f32>("next");
        next.copy_from_slice(&from[front..front + next.len()]);
    });
    let engine = Engine::builder().device(device).device_memory(memory).build()?;
    let [mut u, mut v, mut blocked] = [engine.pinned::<f32>(rows)?, engine.pinned(rows)?, engine.pinned(rows)?];
    u.iter_mut().zip(0_u64..).for_each(|(u, row)| *u = (row * 7919 % 10_007) as f32 / 100.0);
    let mut twin = u.to_vec();

    let mut times = [Duration::MAX, Duration::ZERO];
    // The first run compiles the kernel.
    for _ in 0..3 {
        let job = Job::kernel(kernel.call().scalar("spread", SPREAD)).input("u", &u).output("next", &mut blocked);
        times[0] = times[0].min(engine.run(job)?.time);
    }
    for number in 0..=STEPS {
        let report = engine.run(Job::eval(STEP)?.scalar("spread", SPREAD).input("u", &u).output("next", &mut v))?;
        if number > 0 {
            times[1] += report.time;
            std::mem::swap(&mut u, &mut v);
        }
    }
    assert!(bits(&blocked).eq(bits(&u)), "eight steps at a time differ from eight times one step");

    let mut next = vec![0.0; rows];
    for _ in 0..STEPS {
        step(&twin, &mut next);
        std::mem::swap(&mut twin, &mut next);
    }
    assert!(bits(&blocked).eq(bits(&twin)), "other values than those of a loop");
    Ok(times)
}

fn bits(values: &[f32]) -> impl Iterator<Item = u32> {
    values.iter().map(|value| value.to_bits())
}

#[test]
fn runs() -> Result<(), Box<dyn Error>> {
    // 12 MB, and a rod that is shorter than the halo.
    for (device, rows) in [("cpu", 1_000_003), ("emulated:3", 1_000_003), ("emulated", 5)] {
        heat(device.parse()?, rows, 4 << 20)?;
    }
    Ok(())
}
