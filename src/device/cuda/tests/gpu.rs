//! Tests for every driver. On a machine with a GPU, NVRTC and cuBLAS, run:
//! `cargo test --lib device::cuda::tests::gpu -- --ignored`.

use std::sync::{Arc, Mutex};

use crate::data::Dtype;
use crate::device::cuda::cache::Cache;
use crate::device::cuda::{CudaDevice, devices, look};
use crate::device::kernel::Declared;
use crate::device::{Device, DeviceDetails, Pinned, contract};
use crate::{DeviceChoice, Engine, Job};

#[test]
#[ignore = "needs a CUDA driver, NVRTC and cuBLAS"]
fn keeps_the_contract() {
    contract::check(&CudaDevice::open(0).unwrap());
}

#[test]
#[ignore = "needs a CUDA driver"]
fn looks_at_devices_without_touching_them() {
    let mut devices = devices().unwrap();
    assert!(!devices.is_empty());
    assert_eq!(look(&mut devices), None);
    for (ordinal, device) in devices.iter().enumerate() {
        assert_eq!(device.id, format!("cuda:{ordinal}"));
        assert!(device.memory_bytes > 0 && !device.name.is_empty() && device.compute_capability.is_some());
        let DeviceDetails { free_bytes, busy_percent, pcie_generation, pcie_width, .. } = device.details;
        assert!(free_bytes.is_some_and(|free| free > 0), "{device:?}");
        assert!(busy_percent.is_some_and(|percent| percent <= 100), "{device:?}");
        assert!(pcie_generation.is_some() && pcie_width.is_some_and(|width| width > 0), "{device:?}");
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
    let kernel = Arc::new(crate::device::probe::probe());
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
    let kernel = Arc::new(crate::device::probe::probe());
    let load = || device.load(&kernel).unwrap().function;
    assert!(Arc::ptr_eq(&load(), &load()));
    let mut bad = crate::device::probe::probe();
    bad.code = crate::device::kernel::Code::own("this is no CUDA C++");
    let error = device.load(&Arc::new(bad)).err().unwrap().to_string();
    assert!(error.contains("correct the kernel") && !error.contains('\n'), "{error}");
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
#[ignore = "needs a CUDA driver"]
fn a_page_lock_of_memory_that_is_gone_is_not_taken_for_one() {
    use cudarc::driver::sys;
    let device = CudaDevice::open(0).unwrap();
    let layout = std::alloc::Layout::from_size_align(1 << 20, 4096).unwrap();
    let (all, half) = (layout.size(), layout.size() / 2);
    // SAFETY: the layout has a size, all is inside the allocation, and nothing is page-locked when it is freed.
    unsafe {
        let start = std::alloc::alloc_zeroed(layout);
        // The stale registration left by code that unmaps memory without unregistering it.
        let leave = |offset: usize, bytes: usize| {
            let _guard = device.context.enter().unwrap();
            let result = sys::cuMemHostRegister_v2(start.add(offset).cast(), bytes, sys::CU_MEMHOSTREGISTER_PORTABLE);
            assert_eq!(result, sys::CUresult::CUDA_SUCCESS);
        };
        let pinned = || device.pinned(std::ptr::slice_from_raw_parts(start, all), true);
        for left in [&[(0, all)][..], &[(half, half)], &[(4096, 4096), (half, 4096)], &[(all - 4096, 4096)]] {
            left.iter().for_each(|(offset, bytes)| leave(*offset, *bytes));
            let pin = device.pin(start, all).unwrap();
            assert_eq!(pinned(), Pinned::Whole, "{left:?}");
            drop(pin);
            assert_eq!(pinned(), Pinned::No, "{left:?} is still there");
        }
        leave(0, all);
        let error = device.pin(start.add(half), half).err().unwrap().to_string();
        assert!(error.contains("older memory") && error.contains("unregister"), "{error}");
        assert_eq!(pinned(), Pinned::Whole, "memory beyond the range stays pinned");
        let _guard = device.context.enter().unwrap();
        assert_eq!(sys::cuMemHostUnregister(start.cast()), sys::CUresult::CUDA_SUCCESS);
        std::alloc::dealloc(start, layout);
    }
}

#[test]
#[ignore = "needs a CUDA driver that tells parameters, and NVRTC"]
fn a_kernel_that_is_not_as_declared_is_refused() {
    use crate::testing::custom::everything;
    let device = CudaDevice::open(0).unwrap();
    let load = |change: fn(&mut Vec<Declared>)| {
        let bound = everything().bind(&[("x".into(), Dtype::F32)], &["y".into(), "z".into()]).unwrap();
        let mut kernel = bound.kernel;
        change(kernel.launch.declared.as_mut().unwrap());
        device.load(&Arc::new(kernel)).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert_eq!(load(|_| {}), "");
    for (change, words) in [
        ((|all| all[1].bytes = 8) as fn(&mut Vec<Declared>), "'a' has 4 bytes and not 8"),
        (|all| all[0].bytes = 4, "'x' has 8 bytes and not 4"),
        (|all| all.push(Declared { name: "more".into(), bytes: 8 }), "it has 8 parameters, so none for 'more'"),
        (|all| _ = all.pop(), "more than 7 parameters"),
        (|all| all.clear(), "more than 0 parameters"),
    ] {
        let error = load(change);
        assert!(error.contains("'everything'") && error.contains(words), "{error}");
    }
    // The kernel is already loaded, so that only the check can refuse it.
    assert_eq!(load(|_| {}), "");
}

/// The whole path, beginning with the text of the parameters.
#[test]
#[ignore = "needs a CUDA driver that tells parameters, and NVRTC"]
fn a_wrong_declaration_ends_the_job() {
    use crate::testing::custom::KEEP;
    let text = "const double *x, long long first_row, int rest, long long rows, double *big, \
                long long *where, unsigned long long *num_selected";
    // SAFETY: it is not launched.
    let kernel = unsafe { crate::custom::CustomKernel::cuda_with_parameters("keep.cu", KEEP, "keep", text) }.unwrap();
    let engine = Engine::builder().device(DeviceChoice::Cuda).build().unwrap();
    let (x, mut big, mut at) = ([1.0; 10], [0.0; 10], [0i64; 10]);
    let job =
        Job::kernel(kernel.call().scalar("rest", 1)).input("x", &x).output("big", &mut big).output("where", &mut at);
    let error = engine.run(job).unwrap_err();
    assert!(error.is_usage() && error.to_string().contains("'rest' has 8 bytes and not 4"), "{error}");
}

/// The driver's answers about memory that other code pinned. Slices of such memory are used in place.
#[test]
#[ignore = "needs a CUDA driver"]
fn knows_what_is_pinned_as_a_whole() {
    const PAGE: usize = 4096;
    let device = CudaDevice::open(0).unwrap();
    let layout = std::alloc::Layout::from_size_align(64 * PAGE, PAGE).unwrap();
    // SAFETY: the layout has a size, all parts are inside the allocation, and the pins are dropped before it is
    // freed.
    unsafe {
        let start = std::alloc::alloc_zeroed(layout);
        let pinned =
            |offset: usize, bytes: usize| device.pinned(std::ptr::slice_from_raw_parts(start.add(offset), bytes), true);
        assert_eq!(pinned(0, 8), Pinned::No, "ordinary memory");
        let (first, last) =
            (device.pin(start, 16 * PAGE).unwrap(), device.pin(start.add(32 * PAGE), 16 * PAGE).unwrap());
        let middle = device.pin(start.add(16 * PAGE), 8 * PAGE).unwrap();
        for (offset, bytes) in [(0, 16 * PAGE), (40, 8), (33 * PAGE + 8, 15 * PAGE - 8), (16 * PAGE, 8 * PAGE)] {
            assert_eq!(pinned(offset, bytes), Pinned::Whole, "{bytes} bytes from {offset} on, in one piece");
        }
        assert_eq!(pinned(0, 48 * PAGE), Pinned::InPart, "with a gap");
        assert_eq!(pinned(0, 20 * PAGE), Pinned::InPart, "in two pieces");
        assert_eq!(pinned(40 * PAGE, 10 * PAGE), Pinned::InPart, "at the first end");
        assert_eq!(pinned(30 * PAGE, 4 * PAGE), Pinned::InPart, "at the last end");
        assert_eq!(pinned(0, 0), Pinned::No, "nothing");
        drop((first, middle, last));
        assert_eq!(pinned(0, 16 * PAGE), Pinned::No, "not any more");
        std::alloc::dealloc(start, layout);
    }
}

#[test]
#[ignore = "needs a CUDA driver and NVRTC, and two devices"]
fn devices_work_side_by_side() {
    let devices = [CudaDevice::open(0).unwrap(), CudaDevice::open(1).unwrap()];
    std::thread::scope(|scope| {
        for device in &devices {
            scope.spawn(|| contract::check(device));
        }
    });
}

/// A context uses memory of its device, and so does a job. So if the free memory of a device does not change, the
/// device was not opened. Nothing else may use the devices meanwhile, including other tests of this process.
#[test]
#[ignore = "needs a CUDA driver, NVML and NVRTC, and two devices"]
fn a_job_leaves_a_device_alone_that_is_side_by_side_with_its_own() {
    let free = || {
        let mut devices = devices().unwrap();
        assert_eq!(look(&mut devices), None);
        [0, 1].map(|ordinal: usize| devices[ordinal].details.free_bytes.unwrap())
    };
    let before = free();
    let least = Mutex::new(before);
    let x = vec![1.0f64; 1 << 22];
    let engine = Engine::builder().device(DeviceChoice::CudaDevices(vec![1])).build().unwrap();
    assert_eq!(free(), before, "an engine touched a device before its first job");
    let job = Job::eval("sum(x)").unwrap().input("x", &x).progress(|_| {
        let mut least = least.lock().unwrap();
        let now = free();
        *least = [least[0].min(now[0]), least[1].min(now[1])];
    });
    let report = engine.run(job).unwrap();
    assert_eq!((report.devices.len(), &*report.devices[0].id, report.devices[0].rows), (1, "cuda:1", 1 << 22));
    let least = *least.lock().unwrap();
    assert!(least[1] < before[1], "the job's own device: {} bytes free before, {} while it ran", before[1], least[1]);
    assert_eq!(least[0], before[0], "the other device");
    drop(engine);
    assert_eq!(free()[0], before[0], "the other device, afterwards");
}

/// On the stand-in the rates are meaningless, but all values are present, and everything opened is closed.
#[test]
#[ignore = "needs a CUDA driver and NVRTC, and keeps the limits of this machine"]
fn has_limits_that_are_saved_and_loaded() {
    use crate::limits::MachineLimits;
    let folder = tempfile::tempdir().unwrap();
    let limits = MachineLimits::measure(&DeviceChoice::Cuda, folder.path(), |_| {}).unwrap();
    assert!(limits.is_sound(), "{limits:?}");
    let devices = devices().unwrap();
    assert_eq!(limits.devices.len(), devices.len());
    assert_eq!(limits.all_devices.is_some(), devices.len() > 1);
    assert!(limits.devices.iter().all(|device| !device.driver.is_empty() && !device.copy_in.is_empty()));
    assert!(limits.devices.iter().all(|device| device.pin_new.bytes_per_second > 0.0 && device.pin_driver.is_some()));
    limits.save().unwrap();
    let loaded = MachineLimits::load(&devices).unwrap();
    assert_eq!((loaded.key, loaded.devices.len()), (limits.key, devices.len()));
    assert_eq!(MachineLimits::load(&devices[..1]).unwrap().devices[0].id, "cuda:0");
}
