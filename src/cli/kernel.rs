//! `overshot run kernel.cu:entry …`: kernels of the user's own.

use std::path::Path;
use std::{fs, io};

use overshot::{
    Error, Scalar,
    kernel::{Call, CustomKernel},
};

use super::args::{JobArgs, KernelArgs};
use super::{Failure, Result};

/// The file and the entry point, if the text is no expression but a kernel: `kernel.cu:saxpy`.
///
/// # Errors
/// When it is a kernel's file without an entry point.
pub fn of(text: &str) -> Result<Option<(&Path, &str)>> {
    let Some(file) = file(text) else { return Ok(None) };
    match text.rsplit_once(':') {
        Some((_, entry)) if file.as_os_str().len() < text.len() && !entry.trim().is_empty() => Ok(Some((file, entry))),
        _ => {
            let file = file.display();
            Err(Error::Job(format!("{file}: say which kernel of the file is to run, as in {file}:NAME")).into())
        }
    }
}

/// The kernel's file, if the text is no expression.
pub fn file(text: &str) -> Option<&Path> {
    let is_kernel = |file: &&str| {
        let extension = Path::new(file).extension().and_then(|extension| extension.to_str());
        matches!(extension, Some("cu" | "ptx" | "cubin" | "fatbin"))
    };
    let before_entry = text.rsplit_once(':').map(|(file, _)| file);
    before_entry.into_iter().chain([text]).find(is_kernel).map(Path::new)
}

/// Reads a kernel's file. Pipes and devices are refused, as reading them may never end.
fn read(file: &Path) -> Result<Vec<u8>> {
    let cannot = |problem: &str, remedy: &str, cause| Error::File {
        path: file.into(),
        problem: problem.into(),
        remedy: remedy.into(),
        cause,
    };
    let unreadable = |error: io::Error| cannot("the kernel cannot be read", "check the path", Some(error));
    if !fs::metadata(file).map_err(unreadable)?.is_file() {
        return Err(cannot("is not a regular file", "save the kernel in a file first", None).into());
    }
    Ok(fs::read(file).map_err(unreadable)?)
}

/// The kernel with its values and resident arrays, which are removed from the files.
pub fn call(args: &JobArgs, file: &Path, entry: &str) -> Result<Call> {
    let options = &args.kernel;
    let name = file.display().to_string();
    let text = || {
        let not_text = |_| Error::Job(format!("{name}: is not UTF-8 text: save it as UTF-8"));
        Ok::<_, Failure>(String::from_utf8(read(file)?).map_err(not_text)?)
    };
    let is_text = file.extension().is_some_and(|extension| extension == "cu");
    // SAFETY: whoever runs a kernel from the command line vouches for it and for how it is launched, as with every program: the
    // help says so.
    let mut kernel = unsafe {
        match &options.parameters {
            None if is_text => CustomKernel::cuda(&name, &text()?, entry)?,
            Some(parameters) if is_text => CustomKernel::cuda_with_parameters(&name, &text()?, entry, parameters)?,
            Some(parameters) => CustomKernel::image(read(file)?, entry, parameters)?,
            None => {
                return Err(Error::Job(format!("{name}: give the kernel's parameters as in C (--parameters)")).into());
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
    for option in &options.compiler {
        // SAFETY: as above.
        kernel = unsafe { kernel.option(option) };
    }
    let mut call = kernel.call();
    for name in &options.scratch {
        call = call.scratch(name);
    }
    for argument in &args.files {
        let name = &argument.name;
        if let Some(dtype) = call.value_type(name) {
            let text = argument.file.path.display().to_string();
            let Some(value) = Scalar::parse(&text, dtype) else {
                return Err(Error::Job(format!("{name}={text}: write a number of {dtype}")).into());
            };
            call = call.scalar(name, value);
        } else if options.resident.contains(name) {
            let array = args.open(&argument.file)?;
            // SAFETY: as above.
            call = unsafe { call.resident_rows(name, array.source()) }?;
        }
    }
    check_outputs(args, &call)?;
    match options.resident.iter().find(|name| !args.files.iter().any(|file| file.name == **name)) {
        Some(name) => Err(Error::Job(format!("--resident {name}: no file is given for it, as in {name}=FILE")).into()),
        None => Ok(call),
    }
}

/// A pointer that is not const is an output, so an input whose const was forgotten would be replaced.
fn check_outputs(args: &JobArgs, call: &Call) -> Result {
    let is_there = |path: &Path| !args.force && path.symlink_metadata().is_ok();
    let of_call = |name: &str| call.output_names().any(|output| output == name);
    match args.files.iter().find(|file| of_call(&file.name) && is_there(&file.file.path)) {
        None => Ok(()),
        Some(file) => Err(Error::File {
            path: file.file.path.clone(),
            problem: format!("is there, and '{}' is an output, as the kernel declares it without const", file.name),
            remedy: "declare it const if it is an input, else write to another file, or replace this one (--force)"
                .into(),
            cause: None,
        }
        .into()),
    }
}

/// Options of kernels make no sense for expressions.
pub fn refuse_options(options: &KernelArgs) -> Result {
    let KernelArgs { parameters, threads, rows_per_block, shared, resident, scratch, compiler } = options;
    let given = [
        ("--parameters", parameters.is_some()),
        ("--threads", threads.is_some()),
        ("--rows-per-block", rows_per_block.is_some()),
        ("--shared", shared.is_some()),
        ("--resident", !resident.is_empty()),
        ("--scratch", !scratch.is_empty()),
        ("--compiler", !compiler.is_empty()),
    ];
    match given.iter().find(|(_, given)| *given) {
        Some((option, _)) => {
            Err(Error::Job(format!("{option} is for kernels, as in 'overshot run FILE.cu:ENTRY': leave it out")).into())
        }
        None => Ok(()),
    }
}
