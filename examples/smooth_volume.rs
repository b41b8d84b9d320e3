//! Smooths a volume that is larger than the memory of the device: every voxel becomes the mean of the 27 around it.
//!
//! `cargo run --release --example smooth_volume [DEPTH]`
//!
//! The file has the shape (DEPTH, 384, 512). A row of the job is a line of 512 voxels, and the lines of a slab follow
//! each other. So the neighbours of a line are at most 384 + 1 lines away, which is the halo of the kernel: a chunk of
//! some slabs is copied with one slab and one line on each side. The emulated device has 32 MiB of memory, so the
//! example shows the same on every machine; with a GPU, try `DeviceChoice::Auto`.

use std::{env, error::Error, fs};

use ndarray::Array3;
use overshot::{DeviceChoice, Engine, Input, Job, Npy, Source, device::Emulated, kernel::CustomKernel};

/// Block b smooths line b of the launch. Beyond the border of the volume are the voxels at the border.
const SMOOTH: &str = r#"
__device__ long long within(long long place, long long count)
{
    return place < 0 ? 0 : place < count ? place : count - 1;
}

extern "C" __global__ void smooth(const float (*x)[WIDTH], long long height, long long first_row, long long total_rows,
                                  float (*y)[WIDTH])
{
    long long line = first_row + blockIdx.x, slab = line / height, own = line % height;
    for (int k = threadIdx.x; k < WIDTH; k += blockDim.x) {
        float sum = 0;
        for (int a = -1; a <= 1; ++a) {
            for (int b = -1; b <= 1; ++b) {
                long long there = within(slab + a, total_rows / height) * height + within(own + b, height);
                const float *near = x[there - first_row];
                for (int c = -1; c <= 1; ++c) sum += near[within(k + c, WIDTH)];
            }
        }
        y[blockIdx.x][k] = sum / 27;
    }
}"#;

fn main() -> Result<(), Box<dyn Error>> {
    let depth = env::args().nth(1).map_or(Ok(200), |depth| depth.parse())?;
    smooth([depth, 384, 512], 32 << 20)
}

/// The three places around one, of so many; beyond the border is the border.
fn near(place: usize, count: usize) -> [usize; 3] {
    [place.saturating_sub(1), place, (place + 1).min(count - 1)]
}

/// A kernel for slabs of so many lines, of so many voxels each.
fn kernel(height: usize, width: usize) -> overshot::Result<CustomKernel> {
    let text = SMOOTH.replace("WIDTH", &width.to_string());
    // SAFETY: a block has one line. It reads that line and those around it in the volume, which are at most
    // `height + 1` lines away, and writes its line.
    let kernel = unsafe { CustomKernel::cuda("smooth.cu", &text, "smooth")?.rows_per_block(1) };
    // SAFETY: as above.
    let kernel = unsafe { kernel.halo("x", height + 1, height + 1) };
    Ok(kernel.on_host(move |rows| {
        let first = rows.first_row() as usize - rows.halo_before("x");
        let (x, depth) = (rows.input::<f32>("x"), rows.total_rows() as usize / height);
        let own = rows.first_row() as usize..;
        for (line, y) in own.zip(rows.output::<f32>("y").chunks_exact_mut(width)) {
            let (slabs, lines) = (near(line / height, depth), near(line % height, height));
            let lines = slabs.map(|slab| lines.map(|line| &x[(slab * height + line - first) * width..][..width]));
            for (k, y) in y.iter_mut().enumerate() {
                let voxels = lines.iter().flatten().flat_map(|line| near(k, width).map(|k| line[k]));
                *y = voxels.fold(0.0, |sum, voxel| sum + voxel) / 27.0;
            }
        }
    }))
}

fn smooth([depth, height, width]: [usize; 3], memory: u64) -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir_in(".")?;
    let path = |name: &str| folder.path().join(name).with_extension("npy");
    let cpu = Engine::builder().device(DeviceChoice::Cpu).build()?;
    // Noise, and a ball.
    let [z, line, k] = [[depth, 1, 1], [1, height, 1], [1, 1, width]];
    let axis = |shape: [usize; 3]| -> Array3<f32> {
        let count = shape.iter().product::<usize>();
        Array3::from_shape_fn(shape, |(z, line, k)| (z + line + k) as f32 / count as f32 - 0.5)
    };
    let (z, line, k) = (axis(z), axis(line), axis(k));
    let job = Job::eval("x = where(z * z + line * line + k * k < 0.1, f32(1), f32(0)) + 0.1 * f32(randn(1))")?;
    let job = job.input("z", Input::from(z.view())).input("line", Input::from(line.view()));
    cpu.run(job.input("k", Input::from(k.view())).output("x", Npy::create(path("x"))))?;

    let kernel = kernel(height, width)?;
    let job = |y| -> overshot::Result<Job<'_>> {
        let call = kernel.call().scalar("height", height as i64);
        Ok(Job::kernel(call).input("x", Npy::open(path("x"))?).output("y", Npy::create(path(y))))
    };
    let engine = Engine::builder().device(Emulated::new()).device_memory(memory).build()?;
    let report = engine.run(job("smooth")?)?;
    println!("{report}");

    // A loop over the volume.
    let read = |name| -> overshot::Result<Vec<f32>> {
        let file = Npy::open(path(name))?;
        assert_eq!(file.shape(), Some(&[depth as u64, height as u64, width as u64][..]), "{name} has another shape");
        let mut voxels = vec![0.0; depth * height * width];
        file.read(0, bytemuck::cast_slice_mut(&mut voxels))?;
        Ok(voxels)
    };
    let (x, y) = (read("x")?, read("smooth")?);
    assert!(4 * x.len() as u64 > memory, "the volume fits the memory of the device");
    for (at, found) in y.iter().enumerate() {
        let (slab, line, k) = (at / width / height, at / width % height, at % width);
        let mut sum = 0.0;
        for slab in near(slab, depth) {
            for line in near(line, height) {
                for k in near(k, width) {
                    sum += x[(slab * height + line) * width + k];
                }
            }
        }
        assert_eq!(found.to_bits(), (sum / 27.0).to_bits(), "voxel ({slab}, {line}, {k})");
    }
    cpu.run(job("again")?)?;
    assert!(fs::read(path("smooth"))? == fs::read(path("again"))?, "the CPU has other bytes");
    Ok(())
}

#[test]
fn runs() -> Result<(), Box<dyn Error>> {
    // 9 MB.
    smooth([37, 120, 500], 4 << 20)
}
