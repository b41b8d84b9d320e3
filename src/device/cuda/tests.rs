//! The CUDA device against the stand-in driver, and, for those that are ignored, against whatever driver is there.

use std::path::Path;
use std::process::Command;

use super::*;
use crate::device::kernel::TILE_ROWS;
use crate::device::{Stream, contract};

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
#[ignore = "needs a CUDA driver and NVRTC, and two devices"]
fn devices_work_side_by_side() {
    let devices = [CudaDevice::open(0).unwrap(), CudaDevice::open(1).unwrap()];
    std::thread::scope(|scope| {
        for device in &devices {
            scope.spawn(|| contract::check(device));
        }
    });
}

#[test]
#[ignore = "needs a CUDA driver"]
fn memory_that_is_pinned_already_stays_pinned_by_the_first() {
    let device = CudaDevice::open(0).unwrap();
    let layout = std::alloc::Layout::from_size_align(1 << 20, 4096).unwrap();
    // SAFETY: the layout has a size, and the pins are dropped before the memory is freed.
    unsafe {
        let start = std::alloc::alloc_zeroed(layout);
        let first = device.pin(start, layout.size()).unwrap();
        drop(device.pin(start, layout.size()).unwrap());
        drop(device.pin(start.add(4096), 4096).unwrap());
        let wider = device.pin(start.sub(4096), 8192).err().map(|error| error.to_string());
        assert!(wider.is_some_and(|error| error.contains("ALREADY_REGISTERED")));
        drop(first);
        drop(device.pin(start, layout.size()).unwrap());
        std::alloc::dealloc(start, layout);
    }
}

#[test]
#[ignore = "needs a CUDA driver whose next registration of host memory fails"]
fn reports_memory_that_cannot_be_pinned() {
    let device = CudaDevice::open(0).unwrap();
    let page = std::alloc::Layout::from_size_align(4096, 4096).unwrap();
    // SAFETY: the layout has a size, and the pin is dropped before the memory is freed.
    unsafe {
        let start = std::alloc::alloc_zeroed(page);
        let error = device.pin(start, 4096).err().unwrap().to_string();
        assert!(error.starts_with("cuda:0: 4096 bytes of host memory") && error.contains("ulimit"), "{error}");
        drop(device.pin(start, 4096).unwrap());
        std::alloc::dealloc(start, page);
    }
}

/// Not for a GPU, whose functions without an exact result may differ from the twin's.
#[test]
#[ignore = "needs the stand-in driver"]
fn every_sample_runs() {
    const ROWS: usize = TILE_ROWS + 3;
    let device = CudaDevice::open(0).unwrap();
    for kernel in crate::testing::samples().into_iter().map(Arc::new) {
        let columns = &kernel.columns;
        let inputs: Vec<Vec<u64>> = columns.inputs.iter().map(|&width| input(width, ROWS)).collect();
        let outputs: Vec<usize> = columns.outputs.iter().map(|width| width * ROWS).collect();
        let written = [&outputs[..], &[columns.partial_bytes(ROWS)]].concat();
        let mut expected: Vec<Vec<u64>> = written.iter().map(|bytes| vec![0; bytes.div_ceil(8)]).collect();
        let mut found = expected.clone();
        twin(&kernel, ROWS, &inputs, &mut expected);
        run_kernel(&device, &kernel, ROWS, &inputs, &mut found);
        assert_eq!(found, expected, "{}", kernel.source.lines().next().unwrap());
    }
}

/// Rows of a column, in words so that they are aligned. Bytes are 0 and 1, as they may be truth values.
fn input(width: usize, rows: usize) -> Vec<u64> {
    let words = (0..(width * rows).div_ceil(8) as u64).map(|i| (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    words.map(|word| if width == 1 { word & 0x0101_0101_0101_0101 } else { word }).collect()
}

fn twin(kernel: &SharedKernel, rows: usize, inputs: &[Vec<u64>], written: &mut [Vec<u64>]) {
    let columns = &kernel.columns;
    let inputs: Vec<&[u8]> =
        inputs.iter().zip(&columns.inputs).map(|(input, width)| &bytemuck::cast_slice(input)[..width * rows]).collect();
    let (partials, outputs) = written.split_last_mut().unwrap();
    let mut outputs: Vec<&mut [u8]> = outputs
        .iter_mut()
        .zip(&columns.outputs)
        .map(|(output, width)| &mut bytemuck::cast_slice_mut(output)[..width * rows])
        .collect();
    (kernel.twin)().run(0, rows, &inputs, &mut outputs, bytemuck::cast_slice_mut(partials));
}

fn run_kernel(device: &CudaDevice, kernel: &SharedKernel, rows: usize, inputs: &[Vec<u64>], found: &mut [Vec<u64>]) {
    let columns = &kernel.columns;
    let widths = columns.inputs.iter().chain(&columns.outputs);
    let sizes: Vec<usize> = widths.map(|width| width * rows).chain([columns.partial_bytes(rows)]).collect();
    // Each column begins at the next multiple of 8.
    let starts: Vec<usize> = sizes
        .iter()
        .scan(0, |end, size| {
            let start = *end;
            *end += size.next_multiple_of(8);
            Some(start)
        })
        .collect();
    let count = inputs.len() + columns.outputs.len() + usize::from(columns.partial_words > 0);
    let loaded = device.load(kernel).unwrap();
    let memory = device.allocate(starts[starts.len() - 1] + sizes[sizes.len() - 1] + 8).unwrap();
    let mut stream = device.open_stream().unwrap();
    let event = stream.event().unwrap();
    // SAFETY: all columns have the sizes that the starts leave room for, as have the host's vectors, which are left alone
    // until the wait below.
    unsafe {
        for (i, input) in inputs.iter().enumerate() {
            stream.copy_in(input.as_ptr().cast(), &memory, starts[i], sizes[i]).unwrap();
        }
        stream.launch(&loaded, &memory, &starts[..count], 0, rows).unwrap();
        for (i, output) in (inputs.len()..count).zip(found) {
            stream.copy_out(&memory, starts[i], output.as_mut_ptr().cast(), sizes[i]).unwrap();
        }
    }
    stream.record(&event).unwrap();
    stream.synchronize(&event).unwrap();
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
fn standin_pins() {
    run_on_standin("memory_that_is_pinned_already_stays_pinned_by_the_first", &[]);
    run_on_standin("reports_memory_that_cannot_be_pinned", &[("OVERSHOT_STANDIN_FAIL_PIN", "1")]);
}

#[test]
fn standin_runs_expressions() {
    run_on_standin("every_sample_runs", &[("OVERSHOT_STANDIN_SEED", "1")]);
}

#[test]
fn standin_has_devices_that_work_side_by_side() {
    run_on_standin("devices_work_side_by_side", &[("OVERSHOT_STANDIN_DEVICES", "2"), ("OVERSHOT_STANDIN_SEED", "1")]);
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
