//! Devices that differ or are hidden. Needs the stand-in driver, which can be configured so.

use crate::device::cuda::{CudaDevice, devices, look};
use crate::device::{DeviceChoice, DeviceDetails};
use crate::{Engine, Job};

#[test]
#[ignore = "needs a CUDA driver without NVML"]
fn devices_are_listed_without_nvml() {
    let mut devices = devices().unwrap();
    let note = look(&mut devices).unwrap();
    assert!(note.contains("(NVML)") && !note.contains('\n'), "{note}");
    let DeviceDetails { pci_bus_id, free_bytes, busy_percent, pcie_generation, pcie_width, .. } = &devices[0].details;
    assert_eq!(pci_bus_id.as_deref(), Some("FFFF:1A:00.0"));
    assert_eq!((free_bytes, busy_percent, pcie_generation, pcie_width), (&None, &None, &None, &None));
}

/// The devices 3 and 1 of four are visible, in that order.
#[test]
#[ignore = "needs a CUDA driver that hides devices"]
fn visible_devices_are_known_by_their_bus() {
    let mut devices = devices().unwrap();
    assert_eq!(look(&mut devices), None);
    let found: Vec<_> =
        devices.into_iter().map(|device| (device.id, device.memory_bytes, device.details.free_bytes)).collect();
    let expected = [("cuda:0", 40_000_000, 39_999_997), ("cuda:1", 20_000_000, 19_999_999)];
    assert_eq!(found, expected.map(|(id, memory, free)| (id.to_owned(), memory, Some(free))));
    let error = CudaDevice::open(2).err().unwrap().to_string();
    assert!(error.contains("2 visible") && error.contains("CUDA_VISIBLE_DEVICES='3,1'"), "{error}");
    let error = Engine::builder().device(DeviceChoice::CudaDevices(vec![0, 2])).build().unwrap_err().to_string();
    assert!(error.starts_with("cuda:2: ") && error.contains("CUDA_VISIBLE_DEVICES='3,1'"), "{error}");
}

#[test]
#[ignore = "needs a CUDA driver that hides all devices"]
fn hidden_devices_are_an_error() {
    let value = std::env::var("CUDA_VISIBLE_DEVICES").unwrap();
    for choice in [DeviceChoice::Cuda, DeviceChoice::CudaDevices(vec![0]), DeviceChoice::CpuAndCuda] {
        let error = Engine::builder().device(choice).build().unwrap_err().to_string();
        assert!(error.contains(&format!("CUDA_VISIBLE_DEVICES='{value}'")), "{error}");
    }
    // No GPU was requested: the report says why none is used.
    Engine::builder().build().unwrap();
}

/// Of five devices the second is small, the third has less memory than it reports, the fourth has memory only for a
/// context, and the fifth not even for that.
#[test]
#[ignore = "needs a CUDA driver with devices of different sizes"]
fn devices_of_different_sizes() {
    let x: Vec<f64> = (0..3_000_000).map(|row| f64::from(row % 1000) / 7.0 - 50.0).collect();
    let run = |choice: DeviceChoice| {
        let mut y = vec![0f64; x.len()];
        let engine = Engine::builder().device(choice).build().unwrap();
        let job = Job::eval("y = sqrt(abs(x)) * x; sum(y), var(x), argmin(y)").unwrap();
        let report = engine.run(job.input("x", &x).output("y", &mut y)).unwrap();
        let results: Vec<_> = report.results.iter().map(|(_, value)| value.unwrap().as_f64().to_bits()).collect();
        (y.iter().map(|y| y.to_bits()).collect::<Vec<_>>(), results, report)
    };
    let (rows, results, _) = run(DeviceChoice::Cpu);
    for numbers in [vec![0], vec![1], vec![2], vec![0, 1], vec![2, 0], vec![4, 0, 1, 2, 3]] {
        let (found_rows, found_results, report) = run(DeviceChoice::CudaDevices(numbers.clone()));
        assert!(found_rows == rows, "{numbers:?}: other rows");
        assert_eq!(found_results, results, "{numbers:?}");
        let ids: Vec<_> = report.devices.iter().map(|device| device.id.clone()).collect();
        let able = numbers.iter().filter(|number| **number < 3).map(|number| format!("cuda:{number}"));
        assert_eq!(ids, able.collect::<Vec<_>>());
        let noted = |start: &str| report.notes.iter().any(|note| note.starts_with(start));
        assert_eq!(
            noted("cuda:3 took no part: it had no memory for a block"),
            numbers.contains(&3),
            "{:?}",
            report.notes
        );
        assert_eq!(noted("cuda:4 took no part: it had no memory for a context"), numbers.contains(&4));
        assert_eq!(noted("cuda:2 had no memory for a block"), numbers.contains(&2), "{:?}", report.notes);
        assert_eq!(noted("cuda:1 has less memory"), numbers.len() > 1 && numbers.contains(&1), "{:?}", report.notes);
        assert!(!noted("cuda:0"), "{:?}", report.notes);
        let most = report.devices.iter().map(|device| device.chunk_rows).max();
        let of_first = report.devices.iter().find(|device| device.id == "cuda:0").map(|device| device.chunk_rows);
        assert!(of_first.is_none() || of_first == most, "{report}");
    }
    // Each of them alone is an error, and so are pinned arrays if no device is open.
    for (number, what) in [(3, "an allocation of"), (4, "a context")] {
        let engine = Engine::builder().device(DeviceChoice::CudaDevices(vec![number])).build().unwrap();
        let error = engine.run(Job::eval("sum(x)").unwrap().input("x", &x)).unwrap_err().to_string();
        assert!(error.starts_with(&format!("cuda:{number}: out of memory for {what}")), "{error}");
        assert_eq!(engine.pinned::<u8>(1).is_err(), number == 4);
    }
    let (found_rows, found_results, report) = run(DeviceChoice::CpuAndCuda);
    assert!(found_rows == rows && found_results == results);
    let ids: Vec<_> = report.devices.iter().map(|device| &*device.id).collect();
    assert_eq!(ids, ["cpu", "cuda:0", "cuda:1", "cuda:2"]);
}
