//! NVIDIA GPUs, through the CUDA driver, NVRTC and cuBLAS, which are loaded at run time. No CUDA type is used outside
//! of this folder.

mod cache;
mod context;
mod cublas;
mod driver;
mod management;
mod module;
mod nvrtc;
mod stream;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::device::kernel::{Code, Kernel, SharedKernel};
use crate::device::product::AnyProduct;
use crate::device::{Device, DeviceInfo, Pinned, Precision};
use crate::error::{Error, Result};

use cache::Cache;
use context::{Context, Memory, Pin};
pub(crate) use driver::{devices, version};
pub(crate) use management::look;
use module::{Function, Loaded};
use nvrtc::Compiler;
#[cfg(feature = "testing")]
pub(crate) use nvrtc::nvrtc_compile;
use stream::{CudaHost, CudaStream, Event};

/// The number of loaded kernels that are kept for later jobs on the same device.
const LOADED: usize = 64;

/// The number of products that are remembered.
const MULTIPLIED: usize = 1024;

/// Checks that kernels can be compiled on this machine.
///
/// # Errors
/// [`Error::Device`](crate::Error::Device) if there is no NVRTC. The remedy says how to get it.
pub(crate) fn check_compiler() -> Result<()> {
    Compiler::find().map(drop)
}

/// Loads the library for products of matrices, unless it is loaded. If it is missing, the first stream that multiplies
/// says so.
pub(crate) fn load_products() {
    // The result is remembered.
    let _ = cublas::find();
}

/// One GPU, used through its primary context.
pub(crate) struct CudaDevice {
    context: Arc<Context>,
    info: DeviceInfo,
    architecture: u32,
    cache: Option<Cache>,
    /// Loaded kernels, by code and entry point.
    loaded: Mutex<HashMap<(Code, String), Arc<Function>>>,
    /// The products of which [`Device::is_first`] was asked, with their rows.
    multiplied: Mutex<HashSet<(AnyProduct, usize, Precision)>>,
}

impl CudaDevice {
    /// Opens a device by its number, counted from 0 among the devices that the driver shows. Creates its context
    /// unless the process already has one. Does not open any other device.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if there is no driver, no such device, or the device cannot be used
    /// now.
    pub(crate) fn open(ordinal: usize) -> Result<CudaDevice> {
        let found = driver::find(ordinal)?;
        let context = Context::retain(&found)?;
        let info = &found.info;
        tracing::debug!(device = %info.id, name = %info.name, pci = ?info.details.pci_bus_id, "opened");
        Ok(CudaDevice {
            context,
            info: found.info,
            architecture: found.arch,
            cache: Cache::from_env(),
            loaded: Mutex::default(),
            multiplied: Mutex::default(),
        })
    }

    /// Returns the code in the form that the driver accepts.
    fn image(&self, code: &Code) -> Result<Arc<[u8]>> {
        let (name, text, options) = match code {
            Code::Image(image) => return Ok(image.clone()),
            Code::Cuda { name, text, options } => (name, text, options),
            Code::HostOnly => {
                return Err(Error::Device {
                    device: self.info.id.clone(),
                    problem: "the kernel has no device code".into(),
                    remedy: "run it on the CPU".into(),
                });
            }
        };
        let compiler = Compiler::find()?;
        let target = compiler.target(self.architecture)?;
        let options = target.options(options);
        let key = key(text, &options, compiler.version);
        if let Some(image) = self.cache.as_ref().and_then(|cache| cache.get(&key)) {
            return Ok(image.into());
        }
        let compiled = compiler.compile(name, text, target, options)?;
        if !compiled.log.is_empty() {
            tracing::debug!(log = %compiled.log, "NVRTC warned");
        }
        if let Some(cache) = &self.cache {
            cache.put(&key, &compiled.image);
        }
        Ok(compiled.image.into())
    }
}

/// Returns everything that determines the output of the compiler.
fn key(source: &str, options: &[String], (major, minor): (i32, i32)) -> Vec<u8> {
    format!("NVRTC {major}.{minor}\n{}\n{source}", options.join(" ")).into_bytes()
}

impl Device for CudaDevice {
    type Memory = Memory;
    type Kernel = Loaded;
    type Pin = Pin;
    type Stream = CudaStream;
    type Event = Event;
    type Host = CudaHost;

    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn number(&self) -> usize {
        self.context.number()
    }

    fn allocate(&self, bytes: usize) -> Result<Memory> {
        Memory::allocate(&self.context, bytes)
    }

    unsafe fn borrow(&self, address: u64, bytes: usize, stream: Option<u64>) -> Result<Option<Memory>> {
        // SAFETY: the caller vouches for the same.
        unsafe { Memory::borrow(&self.context, address, bytes, stream) }
    }

    fn free_bytes(&self) -> Result<u64> {
        context::free_bytes(&self.context)
    }

    unsafe fn pin(&self, start: *mut u8, bytes: usize) -> Result<Pin> {
        // SAFETY: the caller vouches for the same.
        unsafe { Pin::new(&self.context, start, bytes) }
    }

    fn allocate_pinned_once(&self, bytes: usize) -> Result<bool> {
        context::allocate_pinned_once(&self.context, bytes).map(|()| true)
    }

    fn pinned(&self, memory: *const [u8], is_written: bool) -> Pinned {
        context::pinned(&self.context, memory, is_written)
    }

    fn load(&self, kernel: &SharedKernel) -> Result<Loaded> {
        // The lock is held during compilation, so that concurrent runs with the same kernel compile it once.
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let name = (kernel.code.clone(), kernel.entry.clone());
        let function = match loaded.get(&name) {
            Some(function) => function.clone(),
            None => Arc::new(Function::load(&self.context, &self.image(&kernel.code)?, &kernel.entry)?),
        };
        if let Some(declared) = &kernel.launch.declared {
            function.check_parameters(&kernel.entry, declared)?;
        }
        if loaded.len() >= LOADED {
            // Kernels in use stay alive as long as their users.
            loaded.clear();
        }
        loaded.insert(name, function.clone());
        Ok(Loaded {
            function,
            launch: kernel.launch.clone(),
            values: kernel.values.clone(),
            tile_rows: kernel.columns.tile_rows,
            total_rows: kernel.columns.total_rows,
        })
    }

    fn is_first(&self, product: AnyProduct, rows: usize, precision: Precision) -> bool {
        let mut multiplied = self.multiplied.lock().unwrap_or_else(PoisonError::into_inner);
        if multiplied.len() >= MULTIPLIED {
            multiplied.clear();
        }
        multiplied.insert((product, rows, precision))
    }

    fn notes(&self, kernel: &Kernel) -> Vec<String> {
        let unchecked = kernel.launch.declared.is_some() && !driver::tells_parameters();
        let parameters = unchecked.then(|| {
            format!(
                "the declared parameters of '{}' were not checked: only drivers for CUDA 12.4 and later report them",
                kernel.entry
            )
        });
        let cache = self.cache.as_ref().and_then(Cache::note);
        parameters.into_iter().chain(cache).collect()
    }

    fn open_stream(&self) -> Result<CudaStream> {
        CudaStream::open(&self.context)
    }

    fn event(&self, keeps_time: bool) -> Result<Event> {
        Event::new(&self.context, keeps_time)
    }

    fn enter(&self) -> Result<Box<dyn Any>> {
        Ok(Box::new(self.context.enter()?))
    }

    fn host(&self, epoch: Instant) -> CudaHost {
        CudaHost::new(&self.context, epoch)
    }

    fn give_up(&self) {
        self.context.give_up();
    }

    fn is_given_up(&self) -> bool {
        self.context.is_given_up()
    }
}
