//! `overshot run kernel.cu:entry …`: kernels of the user's own.

use std::fs;
use std::path::{Path, PathBuf};

use overshot::{Call, Error, ForeignKernel, Scalar};

use super::Result;
use super::args::{JobArgs, KernelArgs};

/// The file and the entry point, if the text is no expression but a kernel: `kernel.cu:saxpy`.
pub fn of(text: &str) -> Option<(PathBuf, &str)> {
    let (file, entry) = text.rsplit_once(':')?;
    let extension = Path::new(file).extension()?.to_str()?;
    matches!(extension, "cu" | "ptx" | "cubin" | "fatbin").then(|| (file.into(), entry))
}

/// The kernel with its values and resident arrays, which are removed from the files.
pub fn call(args: &JobArgs, file: &Path, entry: &str) -> Result<Call> {
    let options = &args.kernel;
    let unreadable = |error: std::io::Error| Error::File {
        path: file.into(),
        problem: "the kernel cannot be read".into(),
        remedy: "check the path".into(),
        cause: Some(error),
    };
    let name = file.display().to_string();
    let is_text = file.extension().is_some_and(|extension| extension == "cu");
    // SAFETY: whoever runs a kernel from the command line vouches for it and for how it is launched, as with every program: the
    // help says so.
    let mut kernel = unsafe {
        match &options.parameters {
            None if is_text => ForeignKernel::cuda(&name, &fs::read_to_string(file).map_err(unreadable)?, entry)?,
            Some(parameters) if is_text => {
                let text = fs::read_to_string(file).map_err(unreadable)?;
                ForeignKernel::cuda_with_parameters(&name, &text, entry, parameters)?
            }
            Some(parameters) => ForeignKernel::image(fs::read(file).map_err(unreadable)?, entry, parameters)?,
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
            call = call.value(name, value);
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
