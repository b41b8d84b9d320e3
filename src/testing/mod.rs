//! What Overshot's own tests and its stand-in for the CUDA driver need of the inside, behind the feature `testing`, which
//! they have by a dev-dependency of this package on itself. No part of the API: it may change with any release.

pub mod custom;

use crate::device::emulated::{Emulated, EmulatedDevice, EmulatedHost, EmulatedStream};
use crate::device::{Device, Host, Stream, probe};
use crate::error::Result;
use crate::expr;
use crate::limits;
use crate::memory::{DevicePool, MemoryBudget, MemoryCache};
use std::sync::Arc;
use std::time::Instant;

pub use crate::device::kernel::{
    Argument, Code, Columns, Declared, HostKernel, Kernel, Launch, Resident, ScalarArgs, TILE_ROWS, TILE_THREADS,
    Uniform,
};

/// The kernel with this source, whose host kernel the stand-in driver runs. `None` if the source does not say what it is.
pub fn rebuild(source: &str) -> Option<Kernel> {
    let own = probe::rebuild(source).or_else(|| limits::rebuild(source));
    own.or_else(|| custom::rebuild(source)).or_else(|| expr::rebuild(source))
}

/// Kernels that together use all that the code generator can produce, without resident arrays.
pub fn samples() -> Vec<Kernel> {
    let mut samples = expr::samples();
    samples.extend([probe::probe(), limits::copy_kernel()]);
    samples
}

/// Compiles CUDA C++ for an architecture such as `"sm_90"` with NVRTC: the device code and the warnings.
///
/// # Errors
/// When there is no NVRTC, it does not know the architecture, or the source does not compile.
#[cfg(feature = "cuda")]
pub fn compile_cuda(source: &str, architecture: &str) -> Result<(Vec<u8>, String)> {
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

impl std::fmt::Debug for Freelist {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Freelist").finish_non_exhaustive()
    }
}

impl Freelist {
    /// A freelist of so many blocks.
    ///
    /// # Errors
    /// Never: the blocks are small.
    pub fn new(blocks: usize) -> Result<Self> {
        let budget = MemoryBudget::new("device memory", u64::MAX);
        let cache = MemoryCache::new(EmulatedDevice::new(&Emulated::new()), &budget, &budget);
        let pool = DevicePool::new(&cache, blocks, 256, &budget)?;
        let device = cache.device().clone();
        Ok(Freelist { pool, stream: device.open_stream()?, host: device.host(Instant::now()), device })
    }

    /// Takes a block and gives it back, and lets the device come to that point.
    ///
    /// # Errors
    /// Never, as no worker fails.
    pub fn cycle(&mut self) -> Result<()> {
        let block = self.pool.take(&mut self.stream, &mut self.host)?;
        self.pool.retire(block, &mut self.stream)?;
        let event = self.device.event(false)?;
        self.stream.record(&event)?;
        self.host.synchronize(&event)
    }
}
