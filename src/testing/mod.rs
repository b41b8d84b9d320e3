//! Internals that Overshot's own tests, its fuzz targets and its stand-in for the CUDA driver need. They are behind the
//! feature `testing`, which the tests enable through a dev-dependency of this package on itself. This module is not
//! part of the API: it may change with any release.

pub mod custom;
pub mod fuzz;

use crate::device::emulated::{Emulated, EmulatedDevice, EmulatedHost, EmulatedStream};
use crate::device::{Device, Host, Stream, by_key, probe, split};
use crate::error::Result;
use crate::expr;
use crate::limits;
use crate::memory::{DevicePool, MemoryBudget, MemoryCache};
use std::sync::Arc;
use std::time::Instant;

pub use crate::device::kernel::{
    Argument, Code, Columns, Declared, Halo, HostKernel, Kernel, Launch, Resident, ScalarArgs, Source, TILE_ROWS,
    TILE_THREADS, Uniform,
};
pub use crate::device::product::{ColumnProduct, DEVICE_ROWS, Float, MatrixProduct, PRODUCT_ROWS, Product, Side};

/// Returns the kernel with this source, whose host kernel the stand-in driver runs. Returns `None` if the source
/// does not identify it.
pub fn rebuild(source: &str) -> Option<Kernel> {
    let own = probe::rebuild(source).or_else(|| limits::rebuild(source)).or_else(|| by_key::rebuild(source));
    own.or_else(|| split::rebuild(source)).or_else(|| custom::rebuild(source)).or_else(|| expr::rebuild(source))
}

/// Returns kernels that together use everything that the code generator can produce, except resident arrays.
pub fn samples() -> Vec<Kernel> {
    let mut samples = expr::samples();
    samples.extend([probe::probe(), limits::copy_kernel()]);
    samples.extend(by_key::samples());
    samples.extend(split::samples());
    samples
}

/// Compiles CUDA C++ with NVRTC for an architecture such as `"sm_90"`. Returns the device code and the warnings.
///
/// # Errors
/// Returns an error if NVRTC is missing or does not know the architecture, or if the source does not compile.
#[cfg(feature = "cuda")]
pub fn compile_cuda(source: &str, architecture: &str) -> Result<(Vec<u8>, String)> {
    crate::device::cuda::nvrtc_compile(source, architecture)
}

/// Returns the bandwidth of direct reads of a file in bytes per second, for benchmarks.
///
/// # Errors
/// Returns an error if the file cannot be read with direct I/O.
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
    /// Creates a freelist of this number of blocks.
    ///
    /// # Errors
    /// Never returns an error, because the blocks are small.
    pub fn new(blocks: usize) -> Result<Self> {
        let budget = MemoryBudget::new("device memory", u64::MAX);
        let cache = MemoryCache::new(EmulatedDevice::new(&Emulated::new()), &budget, &budget);
        let pool = DevicePool::new(&cache, blocks, 256, &budget)?;
        let device = cache.device().clone();
        Ok(Freelist { pool, stream: device.open_stream()?, host: device.host(Instant::now()), device })
    }

    /// Takes a block, returns it, and lets the device reach that point.
    ///
    /// # Errors
    /// Never returns an error, because no worker fails.
    pub fn cycle(&mut self) -> Result<()> {
        let block = self.pool.take(&mut self.stream, &mut self.host)?;
        self.pool.retire(block, &mut self.stream)?;
        let event = self.device.event(false)?;
        self.stream.record(&event)?;
        self.host.synchronize(&event)
    }
}
