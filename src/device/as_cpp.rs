//! Kernels as plain C++, to check without a GPU that their source gives the same bits as their host kernels.

use std::io::Write as _;
use std::process::{Command, Stdio};

const COMPILER: &str = "c++";

/// Compiles the source of a kernel together with the functions `columns` and `launch` of `host.hpp`, and returns what
/// it writes if it is given these bytes: the first row and the number of rows, then the inputs.
pub(crate) fn run(kernel: &str, functions: &str, given: &[u8]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("host.hpp"), include_str!("host.hpp")).unwrap();
    std::fs::write(path("kernel.cpp"), format!("#include \"host.hpp\"\n{kernel}\n{functions}")).unwrap();
    let mut compiler = Command::new(COMPILER);
    compiler.args(["-std=c++20", "-w", "-O1", "-ffp-contract=off", "-o"]);
    let compiled = compiler.arg(path("kernel")).arg(path("kernel.cpp")).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let mut child = Command::new(path("kernel")).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(given).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    output.stdout
}

/// Returns whether there is a compiler. Says so if there is none.
pub(crate) fn has_compiler() -> bool {
    let probe = Command::new(COMPILER).args(["-std=c++20", "-E", "-x", "c++", "/dev/null"]).output();
    let has_one = probe.is_ok_and(|output| output.status.success());
    if !has_one {
        eprintln!("skipped: there is no C++20 compiler by the name {COMPILER}");
    }
    has_one
}
