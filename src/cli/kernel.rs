//! `overshot run kernel.cu:entry …`: custom kernels.

use std::path::Path;
use std::{fs, io};

use overshot::{
    Error, Scalar,
    kernel::{Call, CustomKernel},
};

use super::args::{JobArgs, KernelArgs};
use super::{Failure, Result};

/// The file and the entry point, if the text names a kernel, as in `kernel.cu:saxpy`; `None` for an expression.
///
/// # Errors
/// If the text names a kernel file without an entry point.
pub fn of(text: &str) -> Result<Option<(&Path, &str)>> {
    let Some(file) = file(text) else { return Ok(None) };
    match text.rsplit_once(':') {
        Some((_, entry)) if file.as_os_str().len() < text.len() && !entry.trim().is_empty() => Ok(Some((file, entry))),
        _ => {
            let file = file.display();
            Err(Failure::Usage(format!("{file}: the name of the kernel is missing; write {file}:NAME")))
        }
    }
}

/// The kernel file, if the text names one; `None` for an expression.
pub fn file(text: &str) -> Option<&Path> {
    let is_kernel = |file: &&str| {
        let extension = Path::new(file).extension().and_then(|extension| extension.to_str());
        matches!(extension, Some("cu" | "ptx" | "cubin" | "fatbin"))
    };
    let before_entry = text.rsplit_once(':').map(|(file, _)| file);
    before_entry.into_iter().chain([text]).find(is_kernel).map(Path::new)
}

/// Reads a kernel file. Refuses pipes and devices, because reading them may never end.
fn read(file: &Path) -> Result<Vec<u8>> {
    let cannot = |problem: &str, remedy: &str, cause| Error::File {
        path: file.into(),
        problem: problem.into(),
        remedy: remedy.into(),
        cause,
    };
    let unreadable = |error: io::Error| cannot("the kernel cannot be read", "check the path", Some(error));
    if !fs::metadata(file).map_err(unreadable)?.is_file() {
        return Err(cannot("is not a regular file", "save the kernel in a regular file", None).into());
    }
    Ok(fs::read(file).map_err(unreadable)?)
}

/// The kernel as its file and the options declare it.
pub fn declared(args: &JobArgs, file: &Path, entry: &str) -> Result<Call> {
    let options = &args.kernel;
    let name = file.display().to_string();
    let text = || {
        let not_text = |_| Failure::Usage(format!("{name}: is not UTF-8 text; save it as UTF-8"));
        String::from_utf8(read(file)?).map_err(not_text)
    };
    let is_text = file.extension().is_some_and(|extension| extension == "cu");
    // SAFETY: the user is responsible for a kernel that they run from the command line, and for its launch
    // parameters. The help says so.
    let mut kernel = unsafe {
        match &options.parameters {
            None if is_text => CustomKernel::cuda(&name, &text()?, entry)?,
            Some(parameters) if is_text => CustomKernel::cuda_with_parameters(&name, &text()?, entry, parameters)?,
            Some(parameters) => CustomKernel::image(read(file)?, entry, parameters)?,
            None => {
                return Err(Failure::Usage(format!(
                    "{name}: the parameters of the kernel are missing; give them as in C with --parameters"
                )));
            }
        }
    };
    if let Some(threads) = options.threads {
        // SAFETY: as above.
        kernel = unsafe { kernel.threads(threads) };
    }
    if let Some(rows) = options.rows_per_block {
        // SAFETY: as above.
        kernel = unsafe { kernel.rows_per_block(rows) };
    }
    if let Some(bytes) = options.shared {
        // SAFETY: as above.
        kernel = unsafe { kernel.shared_bytes(bytes) };
    }
    for halo in &options.halo {
        let (before, after) = (halo.before, halo.after);
        // SAFETY: as above.
        kernel = unsafe {
            match &halo.input {
                Some(input) => kernel.halo(input, before, after),
                None => kernel.halos(before, after),
            }
        };
    }
    for option in &options.compiler {
        // SAFETY: as above.
        kernel = unsafe { kernel.option(option) };
    }
    let mut call = kernel.call();
    for name in &options.scratch {
        call = call.scratch(name);
    }
    Ok(call)
}

/// The kernel with its scalars and resident arrays.
pub fn with_arguments(args: &JobArgs, mut call: Call) -> Result<Call> {
    let options = &args.kernel;
    for argument in &args.files {
        let name = &argument.name;
        if let Some(dtype) = call.value_type(name) {
            let text = argument.file.path.display().to_string();
            let Some(value) = Scalar::parse(&text, dtype) else {
                return Err(Failure::Usage(format!("{name}={text}: write a number of {dtype}")));
            };
            call = call.scalar(name, value);
        } else if options.resident.contains(name) {
            let array = args.reading.open(&argument.file)?;
            // SAFETY: as above.
            call = unsafe { call.resident_rows(name, array.source()) }?;
        }
    }
    check_outputs(args, &call)?;
    match options.resident.iter().find(|name| !args.files.iter().any(|file| file.name == **name)) {
        Some(name) => Err(Failure::Usage(format!("--resident {name}: has no file; give it one, as in {name}=FILE"))),
        None => Ok(call),
    }
}

/// Refuses to replace existing files. A pointer to non-const is an output, so an input without its `const` would be
/// lost.
fn check_outputs(args: &JobArgs, call: &Call) -> Result {
    let is_there = |path: &Path| !args.force && path.symlink_metadata().is_ok();
    let of_call = |name: &str| call.output_names().any(|output| output == name);
    match args.files.iter().find(|file| of_call(&file.name) && is_there(&file.file.path)) {
        None => Ok(()),
        Some(file) => Err(Error::File {
            path: file.file.path.clone(),
            problem: format!("exists, and '{}' is an output, because the kernel declares it without const", file.name),
            remedy:
                "declare it const if it is an input; otherwise write to another file, or replace this one (--force)"
                    .into(),
            cause: None,
        }
        .into()),
    }
}

/// Refuses the options of kernels for an expression.
pub fn refuse_options(options: &KernelArgs) -> Result {
    let KernelArgs { parameters, threads, rows_per_block, shared, resident, scratch, halo, compiler } = options;
    let given = [
        ("--parameters", parameters.is_some()),
        ("--threads", threads.is_some()),
        ("--rows-per-block", rows_per_block.is_some()),
        ("--shared", shared.is_some()),
        ("--resident", !resident.is_empty()),
        ("--scratch", !scratch.is_empty()),
        ("--halo", !halo.is_empty()),
        ("--compiler", !compiler.is_empty()),
    ];
    match given.iter().find(|(_, given)| *given) {
        Some((option, _)) => {
            let text = format!("{option} applies only to kernels, as in 'overshot run FILE.cu:ENTRY'; remove it");
            Err(Failure::Usage(text))
        }
        None => Ok(()),
    }
}
