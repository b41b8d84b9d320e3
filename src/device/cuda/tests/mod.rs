//! The CUDA device on the stand-in driver.
//!
//! A process uses the first driver that it finds. So the tests that need the stand-in are ignored, and the tests here
//! run them in separate processes that find it.

mod faults;
mod gpu;
mod kernels;
mod samples;
mod several;

use std::path::{Path, PathBuf};
use std::process::Command;

use super::*;

/// The folder of the stand-ins for the driver, NVRTC and cuBLAS.
fn standins() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let examples = program.parent().and_then(Path::parent).unwrap().join("examples");
    for library in ["libcuda.so", "libnvrtc.so", "libcublas.so"] {
        let path = examples.join(library);
        assert!(path.exists(), "{} is missing: run `cargo build --examples`", path.display());
    }
    examples
}

/// Runs an ignored test of this module in a separate process, which loads the stand-ins for the driver, its
/// management library, NVRTC and cuBLAS.
fn run_on_standin(test: &str, settings: &[(&str, &str)]) {
    let (standins, folder) = (standins(), tempfile::tempdir().unwrap());
    std::os::unix::fs::symlink(standins.join("libcuda.so"), folder.path().join("libnvidia-ml.so.1")).unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args([&format!("device::cuda::tests::{test}"), "--exact", "--ignored", "--nocapture"])
        .env("LD_LIBRARY_PATH", std::env::join_paths([folder.path(), &standins]).unwrap())
        .env("OVERSHOT_CACHE", folder.path().join("cache"))
        .env_remove("CUDA_VISIBLE_DEVICES")
        .envs(settings.iter().copied())
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(output.status.success() && text.contains("1 passed"), "{test} with {settings:?}: {text}");
}

/// Runs it on a stand-in that lacks a function, as an older library does.
fn run_on_standin_without(library: &str, function: &str, test: &str) {
    let folder = tempfile::tempdir().unwrap();
    let mut image = std::fs::read(standins().join(library)).unwrap();
    let places: Vec<usize> =
        (0..image.len()).filter(|&place| image[place..].starts_with(function.as_bytes())).collect();
    assert!(!places.is_empty(), "the stand-in has no {function}");
    // Under another name, of the same length, it is not found.
    places.into_iter().for_each(|place| image[place] = b'_');
    std::fs::write(folder.path().join(library), image).unwrap();
    let path = std::env::join_paths([folder.path(), &standins()]).unwrap();
    run_on_standin(test, &[("LD_LIBRARY_PATH", path.to_str().unwrap())]);
}

#[test]
fn standin_without_some_functions() {
    run_on_standin("kernels::declared_parameters_are_checked", &[]);
    run_on_standin_without("libcuda.so", "cuFuncGetParamInfo", "kernels::a_note_says_that_parameters_are_not_checked");
    run_on_standin_without("libcuda.so", "cuStreamWaitEvent", "kernels::a_driver_that_lacks_a_function_is_an_error");
}

#[test]
fn standin_is_given_a_function_in_rust() {
    run_on_standin("kernels::a_function_in_rust_runs_on_the_cpu", &[]);
}

#[test]
fn standin_keeps_the_contract() {
    run_on_standin("gpu::keeps_the_contract", &[]);
    for seed in ["1", "2", "3"] {
        run_on_standin("gpu::keeps_the_contract", &[("OVERSHOT_STANDIN_SEED", seed)]);
    }
}

#[test]
fn standin_fails_an_allocation() {
    run_on_standin("faults::survives_a_failed_allocation", &[("OVERSHOT_STANDIN_FAIL_ALLOC", "1")]);
}

#[test]
fn standin_fails_work() {
    for what in ["OVERSHOT_STANDIN_FAIL_COPY", "OVERSHOT_STANDIN_FAIL_LAUNCH"] {
        for when in ["1", "1:later"] {
            run_on_standin("faults::reports_failed_work", &[(what, when)]);
        }
    }
}

#[test]
fn standin_fails_a_product() {
    // Each call that makes a stream ready, the products themselves, at the call and later, and the release: after a
    // failure that is not the last call, everything is released.
    for call in ["Create_v2", "SetStream_v2", "SetWorkspace_v2", "SetPointerMode_v2", "SetMathMode", "SetAtomicsMode"] {
        for mode in ["once", "memory", "device"] {
            fails_a_product(call, mode);
        }
    }
    for mode in ["once", "device", "late"] {
        fails_a_product("Dgemm_v2_64", mode);
        let failing = format!("cublasDgemm_v2_64:1:{mode}");
        run_on_standin("faults::reports_a_failed_matrix_product", &[("OVERSHOT_STANDIN_FAIL", &failing)]);
    }
    run_on_standin("gpu::keeps_the_contract", &[("OVERSHOT_STANDIN_FAIL", "cublasDestroy_v2:1:slow")]);
}

fn fails_a_product(call: &str, mode: &str) {
    let failing = format!("cublas{call}:1:{mode}");
    run_on_standin("faults::reports_a_failed_product", &[("OVERSHOT_STANDIN_FAIL", &failing)]);
}

#[test]
fn standin_without_cublas() {
    run_on_standin_without("libcublas.so", "cublasDgemm_v2_64", "faults::tells_what_cublas_lacks");
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(standins().join("libcuda.so"), folder.path().join("libcuda.so")).unwrap();
    let path = folder.path().to_str().unwrap();
    run_on_standin("faults::tells_how_to_get_cublas", &[("LD_LIBRARY_PATH", path)]);
}

#[test]
fn standin_pins() {
    run_on_standin("gpu::a_page_lock_of_memory_that_is_gone_is_not_taken_for_one", &[]);
    run_on_standin("gpu::knows_what_is_pinned_as_a_whole", &[]);
    run_on_standin("faults::reports_memory_that_cannot_be_pinned", &[("OVERSHOT_STANDIN_FAIL_PIN", "1")]);
}

#[test]
fn standin_runs_expressions() {
    run_on_standin("samples::every_sample_runs", &[("OVERSHOT_STANDIN_SEED", "1")]);
}

#[test]
fn standin_runs_other_values_by_the_same_kernel() {
    run_on_standin("samples::other_values_compile_nothing", &[]);
}

#[test]
fn standin_has_devices_that_work_side_by_side() {
    run_on_standin(
        "gpu::devices_work_side_by_side",
        &[("OVERSHOT_STANDIN_DEVICES", "2"), ("OVERSHOT_STANDIN_SEED", "1")],
    );
}

#[test]
fn standin_shows_its_devices() {
    run_on_standin("gpu::looks_at_devices_without_touching_them", &[("OVERSHOT_STANDIN_DEVICES", "3")]);
    let (standins, folder) = (standins(), tempfile::tempdir().unwrap());
    std::os::unix::fs::symlink(standins.join("libcuda.so"), folder.path().join("libcuda.so")).unwrap();
    let path = folder.path().to_str().unwrap();
    run_on_standin("several::devices_are_listed_without_nvml", &[("LD_LIBRARY_PATH", path)]);
}

#[test]
fn standin_hides_devices() {
    let four = ("OVERSHOT_STANDIN_DEVICES", "4");
    let memory = ("OVERSHOT_STANDIN_MEMORY", "10000000,20000000,30000000,40000000");
    let taken = ("OVERSHOT_STANDIN_TAKEN", "0,1,2,3");
    run_on_standin(
        "several::visible_devices_are_known_by_their_bus",
        &[four, memory, taken, ("CUDA_VISIBLE_DEVICES", "3,1")],
    );
    for hidden in ["", "4", "-1"] {
        run_on_standin("several::hidden_devices_are_an_error", &[four, ("CUDA_VISIBLE_DEVICES", hidden)]);
    }
}

#[test]
fn standin_leaves_devices_alone_that_work_side_by_side_with_others() {
    run_on_standin(
        "gpu::a_job_leaves_a_device_alone_that_is_side_by_side_with_its_own",
        &[("OVERSHOT_STANDIN_DEVICES", "2"), ("OVERSHOT_STANDIN_SEED", "1")],
    );
}

#[test]
fn standin_has_devices_of_different_sizes() {
    let memory = ("OVERSHOT_STANDIN_MEMORY", "268435456,3000000,67108864,1000000");
    let taken = ("OVERSHOT_STANDIN_TAKEN", "0,0,65000000,730000,1000000");
    for seed in ["1", "2"] {
        let seed = ("OVERSHOT_STANDIN_SEED", seed);
        run_on_standin(
            "several::devices_of_different_sizes",
            &[("OVERSHOT_STANDIN_DEVICES", "5"), memory, taken, seed],
        );
    }
}

#[test]
fn standin_kernels() {
    run_on_standin("gpu::a_damaged_cache_entry_is_compiled_again", &[]);
    run_on_standin("gpu::a_kernel_is_loaded_once_and_a_bad_one_is_an_error", &[]);
}

#[test]
fn standin_tells_parameters() {
    run_on_standin("gpu::a_kernel_that_is_not_as_declared_is_refused", &[]);
    run_on_standin("gpu::a_wrong_declaration_ends_the_job", &[]);
}

#[test]
fn standin_contexts() {
    run_on_standin("gpu::a_callers_context_stays_current", &[]);
}

#[test]
fn standin_has_limits() {
    run_on_standin("gpu::has_limits_that_are_saved_and_loaded", &[("OVERSHOT_STANDIN_DEVICES", "2")]);
    // With less memory than requested.
    run_on_standin("gpu::has_limits_that_are_saved_and_loaded", &[("OVERSHOT_STANDIN_MEMORY", "50000000")]);
}

/// On every machine: a result, never a panic.
#[test]
fn a_machine_without_cuda_gets_an_error_that_helps() {
    if let Err(error) = devices() {
        let error = error.to_string();
        assert!(error.starts_with("cuda: ") && error.contains("; "), "{error}");
        assert!(CudaDevice::open(0).is_err());
    }
}

#[test]
fn the_key_tells_source_target_and_compiler_apart() {
    use super::nvrtc::Target;
    let keys = [
        key("a", &Target::Cubin(90).options(&[]), (13, 0)),
        key("b", &Target::Cubin(90).options(&[]), (13, 0)),
        key("a", &Target::Cubin(80).options(&[]), (13, 0)),
        key("a", &Target::Ptx(90).options(&[]), (13, 0)),
        key("a", &Target::Cubin(90).options(&[]), (12, 9)),
    ];
    for (i, one) in keys.iter().enumerate() {
        assert!(keys[i + 1..].iter().all(|other| one != other));
    }
}
