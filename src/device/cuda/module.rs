//! Kernels loaded into a context.

use std::ffi::{CString, c_void};
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys;

use super::context::Context;
use super::driver;
use crate::device::kernel::{Declared, Launch, ScalarArgs};
use crate::error::{Error, KernelError, Result};

/// The entry point of a kernel, with the module that holds it.
pub(crate) struct Function {
    context: Arc<Context>,
    module: sys::CUmodule,
    handle: sys::CUfunction,
}

/// A kernel that is ready to be launched, with its launch parameters.
pub(crate) struct Loaded {
    pub(super) function: Arc<Function>,
    pub(super) launch: Launch,
    pub(super) values: Arc<ScalarArgs>,
    pub(super) tile_rows: usize,
    pub(super) total_rows: u64,
}

// SAFETY: the driver lets any thread use a module and its functions.
unsafe impl Send for Function {}
// SAFETY: as above; the handles never change.
unsafe impl Sync for Function {}

impl Function {
    /// Loads a cubin or PTX text and finds its entry point.
    ///
    /// `image` is the output of NVRTC: a cubin, which contains its length, or text that ends with a zero byte.
    pub(super) fn load(context: &Arc<Context>, image: &[u8], entry: &str) -> Result<Function> {
        let name = CString::new(entry).map_err(|_| Error::Device {
            device: context.id().into(),
            problem: format!("the kernel's name {entry:?} has a zero byte"),
            remedy: "rename the kernel".into(),
        })?;
        let _guard = context.enter()?;
        let mut module = ptr::null_mut();
        // SAFETY: the context is current; the driver copies the image.
        let result = unsafe { sys::cuModuleLoadData(&mut module, image.as_ptr().cast::<c_void>()) };
        context.check("cuModuleLoadData", result)?;
        let mut function = Function { context: context.clone(), module, handle: ptr::null_mut() };
        // SAFETY: the module is alive; both pointers outlive the call.
        let result = unsafe { sys::cuModuleGetFunction(&mut function.handle, module, name.as_ptr()) };
        if result == sys::CUresult::CUDA_ERROR_NOT_FOUND {
            return Err(KernelError::NotInCode { kernel: entry.into() }.into());
        }
        context.check("cuModuleGetFunction", result)?;
        Ok(function)
    }

    /// Compares the parameters of the compiled kernel with those that the caller declared, because the driver reads
    /// as many arguments, and of such sizes, as the compiled kernel has. If the driver does not report parameters,
    /// the declaration is not checked; see `CudaDevice::notes`.
    pub(super) fn check_parameters(&self, entry: &str, declared: &[Declared]) -> Result<()> {
        if !driver::tells_parameters() {
            return Ok(());
        }
        let _guard = self.context.enter()?;
        let bytes = |number| {
            // SAFETY: the driver reports parameters, and the function is alive.
            unsafe { driver::parameter_bytes(self.handle, number) }
                .or_else(|code| self.context.check("cuFuncGetParamInfo", code).map(|()| None))
        };
        let differs =
            |difference: String| Err(KernelError::DiffersFromDeclaration { kernel: entry.into(), difference }.into());
        for (number, Declared { name, bytes: expected }) in declared.iter().enumerate() {
            match bytes(number)? {
                Some(bytes) if bytes == *expected => {}
                Some(bytes) => {
                    return differs(format!("its parameter '{name}' has {bytes} bytes and not {expected}"));
                }
                None => return differs(format!("it has {number} parameters, so none for '{name}'")),
            }
        }
        match bytes(declared.len())? {
            None => Ok(()),
            Some(_) => differs(format!("it has more than {} parameters", declared.len())),
        }
    }

    pub(super) fn handle(&self) -> sys::CUfunction {
        self.handle
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        // SAFETY: loaded by `load`, and unloaded only here.
        self.context.release("cuModuleUnload", || unsafe { sys::cuModuleUnload(self.module) });
    }
}
