//! The CUDA device against the stand-in driver, and, for those that are ignored, against whatever driver is there.

use std::path::Path;
use std::process::Command;

use super::*;
use crate::device::contract;

/// Runs an ignored test of this module in a process of its own that loads the stand-ins for the driver and NVRTC.
fn run_on_standin(test: &str, settings: &[(&str, &str)]) {
    let program = std::env::current_exe().unwrap();
    let examples = program.parent().and_then(Path::parent).unwrap().join("examples");
    for library in ["libcuda.so", "libnvrtc.so"] {
        let path = examples.join(library);
        assert!(path.exists(), "{} is missing: run `cargo build --examples`", path.display());
    }
    let cache = tempfile::tempdir().unwrap();
    let output = Command::new(program)
        .args([&format!("device::cuda::tests::{test}"), "--exact", "--ignored", "--nocapture"])
        .env("LD_LIBRARY_PATH", examples)
        .env("OVERSHOT_CACHE", cache.path())
        .envs(settings.iter().copied())
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(output.status.success() && text.contains("1 passed"), "{test} with {settings:?}: {text}");
}

#[test]
#[ignore = "needs a CUDA driver and NVRTC"]
fn keeps_the_contract() {
    contract::check(&CudaDevice::open(0).unwrap());
}

#[test]
#[ignore = "needs a CUDA driver whose next allocation fails"]
fn survives_a_failed_allocation() {
    contract::check_failed_allocation(&CudaDevice::open(0).unwrap());
}

#[test]
#[ignore = "needs a CUDA driver that fails a copy or a launch"]
fn reports_failed_work() {
    contract::check_failed_work(&CudaDevice::open(0).unwrap());
}

#[test]
#[ignore = "needs a CUDA driver"]
fn looks_at_devices_without_touching_them() {
    let devices = devices().unwrap();
    assert!(!devices.is_empty());
    for (ordinal, device) in devices.iter().enumerate() {
        assert_eq!(device.id, format!("cuda:{ordinal}"));
        assert!(device.memory_bytes > 0 && !device.name.is_empty() && device.compute_capability.is_some());
    }
    let error = CudaDevice::open(devices.len()).err().unwrap().to_string();
    assert!(error.contains("no such device"), "{error}");
}

#[test]
#[ignore = "needs a CUDA driver and NVRTC"]
fn a_damaged_cache_entry_is_compiled_again() {
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        let mut device = CudaDevice::open(0).unwrap();
        device.cache = Some(Cache::at(folder.path()));
        device
    };
    let kernel = Arc::new(crate::testing::probe());
    let entries = || std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    open().load(&kernel).unwrap();
    let [entry] = &entries()[..] else { panic!("one kernel, one entry") };
    let whole = std::fs::read(entry).unwrap();
    std::fs::write(entry, &whole[..whole.len() / 2]).unwrap();
    open().load(&kernel).unwrap();
    assert_eq!(std::fs::read(entry).unwrap(), whole);
    assert_eq!(entries().len(), 1);
}

#[test]
#[ignore = "needs a CUDA driver and NVRTC"]
fn a_kernel_is_loaded_once_and_a_bad_one_is_an_error() {
    let device = CudaDevice::open(0).unwrap();
    let kernel = Arc::new(crate::testing::probe());
    assert!(Arc::ptr_eq(&device.load(&kernel).unwrap(), &device.load(&kernel).unwrap()));
    let mut bad = crate::testing::probe();
    bad.source = "this is no CUDA C++".into();
    let error = device.load(&Arc::new(bad)).err().unwrap().to_string();
    assert!(error.contains("does not compile") && !error.contains('\n'), "{error}");
    contract::check(&device);
}

#[test]
#[ignore = "needs a CUDA driver"]
fn a_callers_context_stays_current() {
    use cudarc::driver::sys;
    let current = || {
        let mut current = std::ptr::null_mut();
        // SAFETY: the driver is there, as a device is open; `current` outlives the call.
        let result = unsafe { sys::cuCtxGetCurrent(&mut current) };
        assert_eq!(result, sys::CUresult::CUDA_SUCCESS);
        current
    };
    let device = CudaDevice::open(0).unwrap();
    let memory = device.allocate(4096).unwrap();
    assert!(current().is_null(), "an allocation made its context current");
    drop(device.open_stream().unwrap());
    drop(memory);
    assert!(current().is_null(), "a release made its context current");
}

#[test]
fn standin_keeps_the_contract() {
    run_on_standin("keeps_the_contract", &[]);
    for seed in ["1", "2", "3"] {
        run_on_standin("keeps_the_contract", &[("OVERSHOT_STANDIN_SEED", seed)]);
    }
}

#[test]
fn standin_fails_an_allocation() {
    run_on_standin("survives_a_failed_allocation", &[("OVERSHOT_STANDIN_FAIL_ALLOC", "1")]);
}

#[test]
fn standin_fails_work() {
    for what in ["OVERSHOT_STANDIN_FAIL_COPY", "OVERSHOT_STANDIN_FAIL_LAUNCH"] {
        for when in ["1", "1:later"] {
            run_on_standin("reports_failed_work", &[(what, when)]);
        }
    }
}

#[test]
fn standin_shows_its_devices() {
    run_on_standin("looks_at_devices_without_touching_them", &[("OVERSHOT_STANDIN_DEVICES", "3")]);
}

#[test]
fn standin_kernels() {
    run_on_standin("a_damaged_cache_entry_is_compiled_again", &[]);
    run_on_standin("a_kernel_is_loaded_once_and_a_bad_one_is_an_error", &[]);
}

#[test]
fn standin_contexts() {
    run_on_standin("a_callers_context_stays_current", &[]);
}

/// On whatever machine this runs: an answer, never a panic.
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
    let keys = [
        key("a", Target::Cubin(90), (13, 0)),
        key("b", Target::Cubin(90), (13, 0)),
        key("a", Target::Cubin(80), (13, 0)),
        key("a", Target::Ptx(90), (13, 0)),
        key("a", Target::Cubin(90), (12, 9)),
    ];
    for (i, one) in keys.iter().enumerate() {
        assert!(keys[i + 1..].iter().all(|other| one != other));
    }
}
