//! What Overshot's own tests and its stand-in for the CUDA driver need of the inside. No part of the API: it may change
//! with any release.

pub mod foreign;

use crate::device::emulated::{Emulated, EmulatedDevice, EmulatedHost, EmulatedStream};
use crate::device::{Device, Host, Stream};
use crate::expr;
use crate::limits;
use crate::memory::{Account, DevicePool, MemoryCache};
use std::sync::Arc;
use std::time::Instant;

pub use crate::device::kernel::{
    Argument, Code, Columns, HostKernel, Kernel, Launch, TILE_LANES, TILE_ROWS, Uniform, Values,
};

/// The first line of [`probe`]'s source.
const PROBE: &str = "// overshot probe v1";

const PROBE_BODY: &str = r#"
typedef unsigned long long word;
extern "C" __global__ void overshot_probe(long long first_row, long long rows, const word *in, word *out, word *sums)
{
    __shared__ word lanes[256];
    const long long start = blockIdx.x * 4096ll;
    const long long end = start + 4096 < rows ? start + 4096 : rows;
    word sum = 0;
    for (long long i = start + threadIdx.x; i < end; i += 256) {
        out[i] = in[i] * 3 + (word)(first_row + i);
        sum += in[i];
    }
    lanes[threadIdx.x] = sum;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half) lanes[threadIdx.x] += lanes[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = lanes[0];
}
"#;

/// The kernel that tests of devices run: `out = in * 3 + row` on 64-bit words, and the sum of `in` of each tile.
pub fn probe() -> Kernel {
    let columns = Columns { inputs: vec![8], outputs: vec![8], partial_words: 1, ..Columns::default() };
    Kernel {
        entry: "overshot_probe".into(),
        code: Code::own(&format!("{PROBE}{PROBE_BODY}")),
        launch: Launch::of(&columns, 0),
        columns,
        resident: vec![],
        values: Values::new(vec![]),
        twin: Some(Box::new(|| Box::new(ProbeTwin))),
    }
}

struct ProbeTwin;

impl HostKernel for ProbeTwin {
    fn run(
        &mut self,
        first_row: u64,
        rows: usize,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
        partials: &mut [u8],
        _: &Uniform<'_>,
    ) {
        let input: &[u64] = bytemuck::cast_slice(inputs[0]);
        let output: &mut [u64] = bytemuck::cast_slice_mut(outputs[0]);
        assert_eq!((input.len(), output.len()), (rows, rows));
        for (row, (out, &value)) in (first_row..).zip(output.iter_mut().zip(input)) {
            *out = value.wrapping_mul(3).wrapping_add(row);
        }
        let sums: &mut [u64] = bytemuck::cast_slice_mut(partials);
        for (sum, tile) in sums.iter_mut().zip(input.chunks(TILE_ROWS)) {
            *sum = tile.iter().fold(0, |sum, &value| sum.wrapping_add(value));
        }
    }
}

/// The kernel with this source, whose twin the stand-in driver runs. `None` if the source does not say what it is.
pub fn rebuild(source: &str) -> Option<Kernel> {
    if source.lines().next() == Some(PROBE) {
        return Some(probe());
    }
    limits::rebuild(source).or_else(|| foreign::rebuild(source)).or_else(|| expr::rebuild(source))
}

/// Kernels that together use all that the code generator can produce, without resident arrays.
pub fn samples() -> Vec<Kernel> {
    let mut samples = expr::samples();
    samples.extend([probe(), limits::copy_kernel()]);
    samples
}

/// Compiles CUDA C++ for an architecture such as `"sm_90"` with NVRTC: the device code and the warnings.
///
/// # Errors
/// When there is no NVRTC, it does not know the architecture, or the source does not compile.
#[cfg(feature = "cuda")]
pub fn compile_cuda(source: &str, architecture: &str) -> crate::Result<(Vec<u8>, String)> {
    crate::device::cuda::nvrtc_compile(source, architecture)
}

/// Bytes per second of bare direct reads of a file, for benches.
///
/// # Errors
/// When the file cannot be read past the system's cache.
pub fn bare_direct_read(path: &std::path::Path) -> std::io::Result<f64> {
    limits::bare_direct_read(path)
}

/// A freelist of device blocks with one stream, on an emulated device.
pub struct Freelist {
    pool: DevicePool<EmulatedDevice>,
    stream: EmulatedStream,
    host: EmulatedHost,
    device: Arc<EmulatedDevice>,
}

impl Freelist {
    /// A freelist of so many blocks.
    ///
    /// # Errors
    /// Never: the blocks are small.
    pub fn new(blocks: usize) -> crate::Result<Self> {
        let account = Account::new("device memory", u64::MAX);
        let cache = MemoryCache::new(EmulatedDevice::new(&Emulated::new()), &account, &account);
        let pool = DevicePool::new(&cache, blocks, 256, &account)?;
        let device = cache.device().clone();
        Ok(Freelist { pool, stream: device.open_stream()?, host: device.host(Instant::now()), device })
    }

    /// Takes a block and gives it back, and lets the device come to that point.
    ///
    /// # Errors
    /// Never, as no lane fails.
    pub fn cycle(&mut self) -> crate::Result<()> {
        let block = self.pool.take(&mut self.stream, &mut self.host)?;
        self.pool.retire(block, &mut self.stream)?;
        let event = self.device.event(false)?;
        self.stream.record(&event)?;
        self.host.synchronize(&event)
    }
}
