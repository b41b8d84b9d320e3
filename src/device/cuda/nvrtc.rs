//! NVRTC, the compiler that turns kernels into device code at run time. It needs no GPU.

use std::ffi::{CString, c_char};
use std::ptr;
use std::sync::OnceLock;

use cudarc::nvrtc::{result, sys};

use super::driver::Missing;
use crate::error::{Error, KernelError, Result};

/// Every NVRTC function that this folder calls. They are looked up in advance, as those of the driver.
const FUNCTIONS: [&str; 12] = [
    "nvrtcVersion",
    "nvrtcGetNumSupportedArchs",
    "nvrtcGetSupportedArchs",
    "nvrtcCreateProgram",
    "nvrtcCompileProgram",
    "nvrtcDestroyProgram",
    "nvrtcGetProgramLogSize",
    "nvrtcGetProgramLog",
    "nvrtcGetCUBINSize",
    "nvrtcGetCUBIN",
    "nvrtcGetPTXSize",
    "nvrtcGetPTX",
];

const INSTALL: &str = "install NVRTC with the CUDA toolkit or with `pip install nvidia-cuda-nvrtc` \
                       (`nvidia-cuda-nvrtc-cu12` for CUDA 12), and put the folder that holds libnvrtc.so.* on \
                       LD_LIBRARY_PATH (for pip, \
                       site-packages/nvidia/cu13/lib or site-packages/nvidia/cuda_nvrtc/lib)";

/// The compiler found on this machine.
#[derive(Debug)]
pub(super) struct Compiler {
    /// Its major and minor version.
    pub(super) version: (i32, i32),
    /// The architectures that it supports, in ascending order: 75 for sm_75.
    architectures: Vec<u32>,
}

/// The target of a compilation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// Machine code of exactly this architecture.
    Cubin(u32),
    /// PTX of this architecture, which the driver compiles for a newer one.
    Ptx(u32),
}

/// The output of the compiler.
#[derive(Debug)]
pub(super) struct Compiled {
    /// A cubin, or PTX with a zero byte at the end.
    pub(super) image: Vec<u8>,
    /// The warnings; empty if there are none.
    pub(super) log: String,
}

impl Target {
    /// Returns the options of the compiler, followed by `more`.
    ///
    /// Fused multiply-add is disabled, because results must be equal to those of the CPU, bit for bit. The PTX states
    /// explicitly which operations are fused, so the driver does not fuse others when it compiles PTX.
    pub(super) fn options(self, more: &[String]) -> Vec<String> {
        let architecture = match self {
            Target::Cubin(number) => format!("--gpu-architecture=sm_{number}"),
            Target::Ptx(number) => format!("--gpu-architecture=compute_{number}"),
        };
        let own = [architecture, "--std=c++17".into(), "--fmad=false".into()];
        own.into_iter().chain(more.iter().cloned()).collect()
    }
}

impl Compiler {
    /// Finds NVRTC, once.
    ///
    /// # Errors
    /// [`Error::Device`] if it is not found. The remedy says how to get it.
    pub(super) fn find() -> Result<&'static Compiler> {
        static COMPILER: OnceLock<Result<Compiler, Missing>> = OnceLock::new();
        COMPILER.get_or_init(probe).as_ref().map_err(Missing::error)
    }

    /// Returns the target for a device.
    ///
    /// # Errors
    /// [`Error::Device`] if the device is older than all architectures that this NVRTC supports.
    pub(super) fn target(&self, architecture: u32) -> Result<Target> {
        if self.architectures.contains(&architecture) {
            return Ok(Target::Cubin(architecture));
        }
        match self.architectures.iter().filter(|&&known| known < architecture).max() {
            Some(&newest) => Ok(Target::Ptx(newest)),
            None => Err(Error::Device {
                device: "cuda".into(),
                problem: format!("NVRTC {}.{} has no code for sm_{architecture}", self.version.0, self.version.1),
                remedy: "install an older NVRTC that has, or use a newer GPU".into(),
            }),
        }
    }

    /// Compiles CUDA C++. Messages refer to the source as `name`.
    ///
    /// # Errors
    /// [`Error::Compile`] with the message of the compiler if the source does not compile.
    pub(super) fn compile(&self, name: &str, source: &str, target: Target, options: Vec<String>) -> Result<Compiled> {
        if let Some(option) = options.iter().find(|option| option.contains('\0')) {
            return Err(KernelError::OptionZeroByte { option: option.clone() }.into());
        }
        let program = Program::new(name, source)?;
        // SAFETY: the program is alive. `options` contains no zero bytes, on which the binding would panic.
        let outcome = unsafe { result::compile_program(program.0, &options) };
        // SAFETY: the program is alive, and the compiler has run, with or without success.
        let log = unsafe { result::get_program_log(program.0) }.map(text).unwrap_or_default();
        match outcome {
            Err(result::NvrtcError(sys::nvrtcResult::NVRTC_ERROR_COMPILATION)) => {
                return Err(mistake(name, source, &log));
            }
            Err(result::NvrtcError(sys::nvrtcResult::NVRTC_ERROR_INVALID_OPTION)) => {
                let (options, message) = (options.join(" "), one_line(&log));
                return Err(KernelError::Options { options, message }.into());
            }
            _ => {}
        }
        check("nvrtcCompileProgram", outcome)?;
        Ok(Compiled { image: program.image(target)?, log })
    }
}

fn probe() -> Result<Compiler, Missing> {
    // SAFETY: loading NVRTC runs its initialisers, which the machine's own library may be trusted with.
    if !unsafe { sys::is_culib_present() } {
        return Err(Missing { problem: "NVRTC, the compiler for GPU kernels, was not found".into(), remedy: INSTALL });
    }
    for name in FUNCTIONS {
        // SAFETY: the library was found; the symbol is looked up, never called through this type.
        if unsafe { sys::culib().get::<unsafe extern "C" fn()>(name.as_bytes()) }.is_err() {
            return Err(Missing { problem: format!("the NVRTC that was found lacks {name}"), remedy: INSTALL });
        }
    }
    let code = |call: &str, result: sys::nvrtcResult| {
        result.result().map_err(|error| Missing { problem: format!("{call} failed: {error:?}"), remedy: INSTALL })
    };
    let (mut major, mut minor, mut count) = (0, 0, 0);
    // SAFETY: `FUNCTIONS` holds them; all pointers are to locals that outlive the calls.
    unsafe {
        code("nvrtcVersion", sys::nvrtcVersion(&mut major, &mut minor))?;
        code("nvrtcGetNumSupportedArchs", sys::nvrtcGetNumSupportedArchs(&mut count))?;
    }
    let mut architectures = vec![0; usize::try_from(count).unwrap_or(0)];
    // SAFETY: `FUNCTIONS` holds it; the buffer has the length that the call before asked for.
    code("nvrtcGetSupportedArchs", unsafe { sys::nvrtcGetSupportedArchs(architectures.as_mut_ptr()) })?;
    let mut architectures: Vec<u32> = architectures.into_iter().filter_map(|number| number.try_into().ok()).collect();
    architectures.sort_unstable();
    tracing::debug!(major, minor, ?architectures, "NVRTC found");
    Ok(Compiler { version: (major, minor), architectures })
}

/// Compiles CUDA C++ for an architecture such as `"sm_90"`. Returns the device code and the warnings of the compiler.
/// Needs NVRTC but no GPU.
///
/// # Errors
/// [`Error::Device`] if there is no NVRTC, it does not support the architecture, or the source does not compile.
#[cfg(feature = "testing")]
pub(crate) fn nvrtc_compile(source: &str, architecture: &str) -> Result<(Vec<u8>, String)> {
    let number = architecture.strip_prefix("sm_").and_then(|number| number.parse().ok());
    let number = number.ok_or_else(|| failure(format!("'{architecture}' is not an architecture such as sm_90")))?;
    let compiler = Compiler::find()?;
    let target = compiler.target(number)?;
    let Compiled { image, log } = compiler.compile("overshot.cu", source, target, target.options(&[]))?;
    Ok((image, log))
}

/// An NVRTC program; destroyed on drop.
struct Program(sys::nvrtcProgram);

impl Program {
    fn new(name: &str, source: &str) -> Result<Program> {
        let zero = |_| KernelError::SourceZeroByte { name: name.into() };
        let (name, source) = (CString::new(name).map_err(zero)?, CString::new(source).map_err(zero)?);
        let mut program = ptr::null_mut();
        // SAFETY: a program is made after `probe` only; all pointers outlive the call, which copies the text. There
        // are no headers, so their lists may be null.
        let result = unsafe {
            sys::nvrtcCreateProgram(&mut program, source.as_ptr(), name.as_ptr(), 0, ptr::null(), ptr::null())
        };
        check("nvrtcCreateProgram", result.result())?;
        Ok(Program(program))
    }

    fn image(&self, target: Target) -> Result<Vec<u8>> {
        if let Target::Ptx(_) = target {
            // SAFETY: the program is alive and was compiled.
            let ptx = check("nvrtcGetPTX", unsafe { result::get_ptx(self.0) })?;
            return Ok(bytes(ptx));
        }
        let mut size = 0;
        // SAFETY: the program is alive and was compiled; `size` outlives the call that writes it.
        check("nvrtcGetCUBINSize", unsafe { sys::nvrtcGetCUBINSize(self.0, &mut size) }.result())?;
        let mut cubin = vec![0; size];
        // SAFETY: as above; the buffer has the size that NVRTC asked for.
        check("nvrtcGetCUBIN", unsafe { sys::nvrtcGetCUBIN(self.0, cubin.as_mut_ptr()) }.result())?;
        Ok(bytes(cubin))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: created by `new`, destroyed here only. There is nothing to do about an error.
        let _ = unsafe { sys::nvrtcDestroyProgram(&mut self.0) };
    }
}

fn check<T>(call: &str, result: Result<T, result::NvrtcError>) -> Result<T> {
    result.map_err(|error| Error::Device {
        device: "cuda".into(),
        problem: format!("{call} failed: {error:?}"),
        remedy: "check that libnvrtc and libnvrtc-builtins are of the same version".into(),
    })
}

#[cfg(feature = "testing")]
fn failure(problem: String) -> Error {
    Error::Device { device: "cuda".into(), problem, remedy: "report this as a bug of Overshot".into() }
}

fn bytes(chars: Vec<c_char>) -> Vec<u8> {
    chars.into_iter().map(|c| c as u8).collect()
}

fn text(log: Vec<c_char>) -> String {
    String::from_utf8_lossy(&bytes(log)).trim_end_matches('\0').trim().to_owned()
}

/// Returns the first error of a log such as `saxpy.cu(12): error: identifier "n" is undefined`, with the source line.
fn mistake(name: &str, source: &str, log: &str) -> Error {
    let first = log.lines().find_map(|line| {
        let (line, message) = line.strip_prefix(name)?.strip_prefix('(')?.split_once("): ")?;
        let message = message.strip_prefix("error: ").or_else(|| message.strip_prefix("catastrophic error: "))?;
        Some((line.parse::<usize>().ok()?, message))
    });
    let (line, message) = match first {
        Some((line, message)) => (line, message.to_owned()),
        None => (0, one_line(log)),
    };
    let text = line.checked_sub(1).and_then(|line| source.lines().nth(line)).unwrap_or_default();
    Error::Compile { name: name.to_owned(), line, text: text.trim().to_owned(), message }
}

/// Formats a log for an error: on one line, and truncated if it is too long.
fn one_line(log: &str) -> String {
    const LIMIT: usize = 2000;
    let line = log.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" | ");
    match line.char_indices().nth(LIMIT) {
        Some((end, _)) => format!("{} …", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compiler() -> Compiler {
        Compiler { version: (13, 0), architectures: vec![75, 80, 90, 100] }
    }

    #[test]
    fn known_architectures_get_a_cubin_newer_ones_ptx_and_older_ones_an_error() {
        assert_eq!(compiler().target(90).unwrap(), Target::Cubin(90));
        assert_eq!(compiler().target(103).unwrap(), Target::Ptx(100));
        assert_eq!(compiler().target(89).unwrap(), Target::Ptx(80));
        assert!(compiler().target(70).unwrap_err().to_string().contains("no code for sm_70"));
    }

    #[test]
    fn multiply_and_add_are_never_fused() {
        for target in [Target::Cubin(90), Target::Ptx(90)] {
            assert!(target.options(&[]).contains(&"--fmad=false".to_owned()));
        }
    }

    #[test]
    fn a_mistake_has_its_line() {
        let source = "extern \"C\" __global__ void f(float *y)\n{\n    y[0] = n;\n}\n";
        let log = "f.cu(3): error: identifier \"n\" is undefined\n      y[0] = n;\n             ^\n\n1 error detected";
        let error = mistake("f.cu", source, log).to_string();
        assert_eq!(error, "f.cu, line 3: identifier \"n\" is undefined: `y[0] = n;`; correct the kernel");
        let error = mistake("f.cu", source, "something else").to_string();
        assert_eq!(error, "f.cu: something else; correct the kernel");
    }

    #[test]
    fn a_log_becomes_one_line_of_bounded_length() {
        assert_eq!(one_line("a.cu(1): error: x\n\n  here\n"), "a.cu(1): error: x | here");
        assert_eq!(one_line(&"é".repeat(3000)).chars().count(), 2002);
    }
}
