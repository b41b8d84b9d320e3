//! CUDA streams and events, and the host that waits for them.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cudarc::driver::sys;

use super::context::{Context, Memory, keep, take};
use super::cublas;
use super::driver;
use super::module::Loaded;
use crate::device::kernel::Argument;
use crate::device::product::{MatrixProduct, Product, not_prepared};
use crate::device::{Host, Precision, SpinThenSleep, Stream};
use crate::error::{Error, Result};

/// A stream that does not synchronise with the default stream.
pub(crate) struct CudaStream {
    context: Arc<Context>,
    handle: sys::CUstream,
    /// Kernel arguments; kept so that a launch allocates nothing.
    arguments: Vec<u64>,
    pointers: Vec<*mut c_void>,
    /// Set if it may multiply.
    products: Option<cublas::Handle>,
    is_abandoned: bool,
}

// SAFETY: the driver lets any thread use a stream, and cuBLAS lets one thread at a time use a handle; `pointers` is
// filled and read within one call of `launch`.
unsafe impl Send for CudaStream {}

impl CudaStream {
    pub(super) fn open(context: &Arc<Context>) -> Result<CudaStream> {
        let handle = match take(&context.spare().streams) {
            Some(spare) => spare,
            None => {
                let _guard = context.enter()?;
                let mut handle = ptr::null_mut();
                let flags = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
                // SAFETY: the context is current; `handle` outlives the call that writes it.
                context.check("cuStreamCreate", unsafe { sys::cuStreamCreate(&mut handle, flags) })?;
                handle
            }
        };
        Ok(CudaStream {
            context: context.clone(),
            handle,
            arguments: Vec::new(),
            pointers: Vec::new(),
            products: None,
            is_abandoned: false,
        })
    }
}

impl Stream for CudaStream {
    type Device = super::CudaDevice;

    unsafe fn abandon(&mut self) {
        self.is_abandoned = true;
    }

    unsafe fn copy_in(&mut self, from: *const u8, to: &Memory, offset: usize, bytes: usize) -> Result<()> {
        self.context.make_current()?;
        // SAFETY: the caller vouches for both ranges until the copy is done.
        let result = unsafe { sys::cuMemcpyHtoDAsync_v2(to.address(offset), from.cast(), bytes, self.handle) };
        self.context.check("cuMemcpyHtoDAsync", result)
    }

    unsafe fn copy_out(&mut self, from: &Memory, offset: usize, to: *mut u8, bytes: usize) -> Result<()> {
        self.context.make_current()?;
        // SAFETY: the caller vouches for both ranges until the copy is done.
        let result = unsafe { sys::cuMemcpyDtoHAsync_v2(to.cast(), from.address(offset), bytes, self.handle) };
        self.context.check("cuMemcpyDtoHAsync", result)
    }

    unsafe fn copy_within(&mut self, from: (&Memory, usize), to: (&Memory, usize), bytes: usize) -> Result<()> {
        self.context.make_current()?;
        let [from, to] = [from, to].map(|(memory, offset)| memory.address(offset));
        // SAFETY: the caller vouches for both ranges.
        let result = unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, self.handle) };
        self.context.check("cuMemcpyDtoDAsync", result)
    }

    unsafe fn zero(&mut self, to: &Memory, offset: usize, bytes: usize) -> Result<()> {
        self.context.make_current()?;
        // SAFETY: the caller vouches for the range, which holds no references.
        self.context
            .check("cuMemsetD8Async", unsafe { sys::cuMemsetD8Async(to.address(offset), 0, bytes, self.handle) })
    }

    unsafe fn launch(
        &mut self,
        kernel: &Loaded,
        columns: &[(&Memory, usize)],
        resident: &[Memory],
        first_row: u64,
        rows: usize,
    ) -> Result<()> {
        let tiles = u32::try_from(rows.div_ceil(kernel.tile_rows)).ok();
        let blocks = tiles.and_then(|tiles| tiles.checked_mul(kernel.launch.blocks_per_tile));
        let blocks = blocks.filter(|&blocks| blocks <= i32::MAX as u32);
        let Some(blocks) = blocks else {
            return Err(Error::Device {
                device: self.context.id().into(),
                problem: format!("{rows} rows are too many for one launch"),
                remedy: "set a smaller chunk size".into(),
            });
        };
        let values = kernel.values.known()?;
        self.context.make_current()?;
        self.arguments.clear();
        self.arguments.extend(kernel.launch.arguments.iter().map(|argument| match *argument {
            Argument::FirstRow => first_row,
            Argument::Rows => rows as u64,
            Argument::TotalRows => kernel.total_rows,
            Argument::Column(column) => {
                let (memory, offset) = columns[column];
                memory.address(offset)
            }
            Argument::Resident(array) => resident[array].address(0),
            Argument::Value(value) => values[value],
        }));
        self.pointers.clear();
        self.pointers.extend(self.arguments.iter_mut().map(|argument| ptr::from_mut(argument).cast::<c_void>()));
        // SAFETY: the kernel has exactly these parameters, of up to eight bytes each; the author of its `Launch`
        // vouched for this. The driver copies the arguments before it returns. The caller vouches for the memory that
        // they point to.
        let result = unsafe {
            sys::cuLaunchKernel(
                kernel.function.handle(),
                blocks,
                1,
                1,
                kernel.launch.threads,
                1,
                1,
                kernel.launch.shared_bytes,
                self.handle,
                self.pointers.as_mut_ptr(),
                ptr::null_mut(),
            )
        };
        self.context.check("cuLaunchKernel", result)
    }

    unsafe fn prepare_products(&mut self, workspace: &Memory, precision: Precision) -> Result<()> {
        let _guard = self.context.enter()?;
        // SAFETY: the context is current. The drop destroys the handle before the stream ends. The caller vouches for
        // the workspace, which lies at the start of its memory.
        let handle = unsafe { cublas::Handle::create(&self.context, self.handle, workspace.address(0), precision)? };
        if let Some(before) = self.products.replace(handle) {
            before.destroy(&self.context);
        }
        Ok(())
    }

    unsafe fn multiply(
        &mut self,
        product: &Product,
        rows: usize,
        operands: [(&Memory, usize); 2],
        sum: (&Memory, usize),
        adds: bool,
    ) -> Result<()> {
        let Some(products) = &self.products else { return Err(not_prepared(self.context.id())) };
        self.context.make_current()?;
        let operands = operands.map(|(memory, offset)| memory.address(offset));
        let sum = sum.0.address(sum.1);
        // SAFETY: the context is current and the stream alive. The caller vouches for the memory.
        unsafe { products.multiply(&self.context, product, rows, operands, sum, adds) }
    }

    unsafe fn multiply_rows(
        &mut self,
        product: &MatrixProduct,
        rows: usize,
        from: (&Memory, usize),
        matrix: &Memory,
        to: (&Memory, usize),
    ) -> Result<()> {
        let Some(products) = &self.products else { return Err(not_prepared(self.context.id())) };
        self.context.make_current()?;
        let [from, to] = [from, to].map(|(memory, offset)| memory.address(offset));
        // SAFETY: the context is current and the stream alive. The caller vouches for the memory.
        unsafe { products.multiply_rows(&self.context, product, rows, from, matrix.address(0), to) }
    }

    fn record(&mut self, event: &Event) -> Result<()> {
        self.context.make_current()?;
        event.is_recorded.store(true, Ordering::Relaxed);
        // SAFETY: both handles are alive.
        self.context.check("cuEventRecord", unsafe { sys::cuEventRecord(event.handle, self.handle) })
    }

    fn wait(&mut self, event: &Event) -> Result<()> {
        self.context.make_current()?;
        // SAFETY: both handles are alive.
        self.context.check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(self.handle, event.handle, 0) })
    }
}

impl Drop for CudaStream {
    fn drop(&mut self) {
        if self.is_abandoned {
            return;
        }
        // Also without the context: copies of this stream may be in flight, and their memory is freed next.
        let _guard = self.context.enter_to_release();
        // SAFETY: the handle is alive.
        let result = unsafe { sys::cuStreamSynchronize(self.handle) };
        if let Some(products) = self.products.take() {
            products.destroy(&self.context);
        }
        // After an error the context is lost, including all work queued on the stream.
        let spare = match self.context.check("cuStreamSynchronize", result) {
            Ok(()) => keep(&self.context.spare().streams, self.handle),
            Err(error) => {
                tracing::debug!(%error, "release failed");
                Some(self.handle)
            }
        };
        if let Some(handle) = spare {
            // SAFETY: created by `open` and not recycled, so it is destroyed only here.
            self.context.release("cuStreamDestroy", || unsafe { sys::cuStreamDestroy_v2(handle) });
        }
    }
}

/// A host thread that waits for events.
pub(crate) struct CudaHost {
    context: Arc<Context>,
    epoch: Instant,
}

impl CudaHost {
    pub(super) fn new(context: &Arc<Context>, epoch: Instant) -> CudaHost {
        CudaHost { context: context.clone(), epoch }
    }
}

impl Host for CudaHost {
    type Device = super::CudaDevice;

    fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    fn query(&mut self, event: &Event) -> Result<bool> {
        self.context.make_current()?;
        event.is_done()
    }

    fn synchronize_until(&mut self, event: &Event, deadline: Duration) -> Result<bool> {
        let mut backoff = SpinThenSleep::new();
        loop {
            // In each round, because another thread may give the device up meanwhile.
            self.context.make_current()?;
            // The clock is read first: the event counts as late only if it was not done after the deadline.
            let is_late = self.now() > deadline;
            if event.is_done()? {
                return Ok(true);
            }
            if is_late {
                return Ok(false);
            }
            backoff.pause();
        }
    }

    fn elapsed(&self, from: &Event, to: &Event) -> Result<Duration> {
        self.context.make_current()?;
        let mut milliseconds = 0.0;
        // SAFETY: a context exists only after `init`; both handles are alive.
        let result = unsafe { driver::elapsed_time(&mut milliseconds, from.handle, to.handle) };
        self.context.check("cuEventElapsedTime", result)?;
        Ok(Duration::try_from_secs_f64(f64::from(milliseconds) / 1e3).unwrap_or_default())
    }
}

/// An event.
pub(crate) struct Event {
    context: Arc<Context>,
    handle: sys::CUevent,
    keeps_time: bool,
    /// Whether it was recorded since it was created or recycled.
    is_recorded: AtomicBool,
}

// SAFETY: the driver lets any thread use an event.
unsafe impl Send for Event {}
// SAFETY: as above; the driver serialises calls on one event.
unsafe impl Sync for Event {}

impl Event {
    pub(super) fn new(context: &Arc<Context>, keeps_time: bool) -> Result<Event> {
        use sys::CUevent_flags_enum::{CU_EVENT_DEFAULT, CU_EVENT_DISABLE_TIMING};
        let event =
            |handle| Event { context: context.clone(), handle, keeps_time, is_recorded: AtomicBool::new(false) };
        if let Some(spare) = take(Event::spares(context, keeps_time)) {
            return Ok(event(spare));
        }
        let _guard = context.enter()?;
        let mut handle = ptr::null_mut();
        let flags = if keeps_time { CU_EVENT_DEFAULT } else { CU_EVENT_DISABLE_TIMING } as u32;
        // SAFETY: the context is current; `handle` outlives the call that writes it.
        context.check("cuEventCreate", unsafe { sys::cuEventCreate(&mut handle, flags) })?;
        Ok(event(handle))
    }

    fn spares(context: &Context, keeps_time: bool) -> &Mutex<Vec<sys::CUevent>> {
        if keeps_time { &context.spare().timers } else { &context.spare().events }
    }

    fn is_done(&self) -> Result<bool> {
        // SAFETY: the handle is alive.
        match unsafe { sys::cuEventQuery(self.handle) } {
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            result => self.context.check("cuEventQuery", result).map(|()| true),
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // Most events of a run that hardly uses the device were never recorded, and calls of the driver take time.
        let is_done = !*self.is_recorded.get_mut() || {
            // Without the context, the driver cannot be asked.
            let guard = self.context.enter_to_release();
            guard.is_ok() && matches!(self.is_done(), Ok(true))
        };
        // An event that is not done cannot be recycled: its next user expects an event that counts as done.
        let spares = Event::spares(&self.context, self.keeps_time);
        let spare = if is_done { keep(spares, self.handle) } else { Some(self.handle) };
        if let Some(handle) = spare {
            // SAFETY: created by `new` and not recycled, so it is destroyed only here.
            self.context.release("cuEventDestroy", || unsafe { sys::cuEventDestroy_v2(handle) });
        }
    }
}
