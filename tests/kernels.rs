//! Compiles every kernel with NVRTC, without a warning, for every architecture that Overshot names. Needs no GPU.
//!
//! Without NVRTC the trials are listed as ignored; with `OVERSHOT_REQUIRE_NVRTC=1` they fail.

use std::fmt::Display;
use std::fs;
use std::path::Path;

use libtest_mimic::{Arguments, Failed, Trial};
use overshot::{Error, testing};

const ARCHITECTURES: [&str; 5] = ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120"];

fn main() {
    let arguments = Arguments::from_args();
    let required = std::env::var_os("OVERSHOT_REQUIRE_NVRTC").is_some_and(|value| value == "1");
    let missing = testing::compile_cuda("extern \"C\" __global__ void empty() {}", "sm_80").err();
    if let Some(reason) = &missing {
        eprintln!("kernels are not compiled: {reason}");
    }
    let ignored = missing.is_some() && !required;
    let samples = testing::samples().into_iter().chain(testing::custom::samples()).enumerate();
    let samples = samples.map(|(number, kernel)| (format!("sample {number}"), kernel.code.text().to_owned()));
    let trial = |(name, source): (String, String)| {
        Trial::test(name, move || compile(&source)).with_ignored_flag(ignored).with_kind("nvrtc")
    };
    let mut trials: Vec<Trial> = files().into_iter().chain(samples).map(trial).collect();
    trials.push(Trial::test("a mistake is named with its line", mistake).with_ignored_flag(ignored).with_kind("nvrtc"));
    libtest_mimic::run(&arguments, trials).exit();
}

fn mistake() -> Result<(), Failed> {
    let source = "extern \"C\" __global__ void f(float *y)\n{\n    y[0] = n;\n}\n";
    match testing::compile_cuda(source, "sm_90") {
        Err(Error::Compile { line: 3, text, message, .. }) if text == "y[0] = n;" && message.contains("\"n\"") => {
            Ok(())
        }
        Err(error) => Err(format!("another error: {error}").into()),
        Ok(_) => Err("it compiles".into()),
    }
}

fn compile(source: &str) -> Result<(), Failed> {
    for architecture in ARCHITECTURES {
        let header = source.lines().next().unwrap_or_default();
        let fail = |problem: &dyn Display| Failed::from(format!("{architecture}: {problem}\n{header}"));
        let (image, log) = testing::compile_cuda(source, architecture).map_err(|error| fail(&error))?;
        if !log.is_empty() {
            return Err(fail(&log));
        }
        if !image.starts_with(b"\x7fELF") {
            return Err(fail(&"no cubin came out"));
        }
    }
    Ok(())
}

/// The kernels that have separate files. Some use those of math.cu, or of half.cu, too.
fn files() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
    // The folder may be that of the machine that built this program.
    let [math, half] = ["math.cu", "half.cu"].map(|name| fs::read_to_string(folder.join(name)).unwrap_or_default());
    let entries = fs::read_dir(folder).into_iter().flatten();
    let paths = entries.map(|entry| entry.expect("the folder of kernels can be read").path());
    let mut files: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "cu"))
        .map(|path| {
            let mut source = fs::read_to_string(&path).expect("a kernel's file can be read");
            if source.contains("Include behind math.cu and half.cu") {
                source.insert_str(0, &half);
            }
            if source.contains("Include behind math.cu") {
                source.insert_str(0, &math);
            }
            (path.file_name().unwrap_or_default().to_string_lossy().into_owned(), source)
        })
        .collect();
    files.sort();
    files
}
