//! Kernels that a GPU cannot run, and drivers that lack functions. Needs the stand-in driver, or one without some of
//! its functions.

use crate::error::Error;
use crate::kernel::RowFunction;
use crate::testing::custom::everything;
use crate::{DeviceChoice, Engine, Job, Report, Result};

fn engine(choice: DeviceChoice) -> Engine {
    Engine::builder().device(choice).build().unwrap()
}

/// A function in Rust has no device code: it is refused where it was to run on GPUs alone, and otherwise runs on the
/// CPU with a note.
#[test]
#[ignore = "needs a CUDA driver"]
fn a_function_in_rust_runs_on_the_cpu() {
    let twice = RowFunction::new("twice").input::<f64>("x").output::<f64>("y").run(|x, y| {
        y.iter_mut().zip(x).for_each(|(y, x)| *y = 2.0 * x);
    });
    let x = vec![3.0; 10_000];
    let run = |choice: DeviceChoice| -> Result<(Vec<f64>, Report)> {
        let mut y = vec![0.0; x.len()];
        let report = engine(choice).run(Job::kernel(&twice).input("x", &x).output("y", &mut y))?;
        Ok((y, report))
    };
    for choice in [DeviceChoice::Cuda, DeviceChoice::CudaDevices(vec![0])] {
        match run(choice) {
            Err(error @ Error::InvalidKernel(_)) => {
                assert!(error.to_string().contains("'twice' is a function in Rust, which 'cuda:0'"), "{error}")
            }
            other => panic!("{other:?}"),
        }
    }
    for choice in [DeviceChoice::Auto, DeviceChoice::CpuAndCuda] {
        let (y, report) = run(choice.clone()).unwrap();
        assert!(y.iter().all(|y| *y == 6.0));
        let devices: Vec<&str> = report.devices.iter().map(|device| device.id.as_str()).collect();
        assert_eq!(devices, ["cpu"]);
        let note = "no GPU was used: 'twice' is a function in Rust, which runs on the CPU";
        assert!(report.notes.iter().any(|other| other == note), "{choice}: {:?}", report.notes);
    }
}

/// Returns whether the report of a custom kernel says that its parameters were not checked.
fn is_unchecked() -> bool {
    let x: Vec<f32> = (0..3 * 6000u16).map(f32::from).collect();
    let (mut y, mut z) = (vec![0.0; 6000], vec![0.0f32; 12_000]);
    let job = Job::kernel(everything()).input("x", &x).output("y", &mut y).output("z", &mut z);
    let report = engine(DeviceChoice::Cuda).run(job).unwrap();
    assert!(z.as_chunks::<2>().0.iter().zip(x.as_chunks::<3>().0).all(|(z, x)| *z == [x[2], x[0]]));
    let note = "the declared parameters of 'everything' were not checked";
    report.notes.iter().any(|other| other.starts_with(note))
}

#[test]
#[ignore = "needs a CUDA driver of 12.4 or later"]
fn declared_parameters_are_checked() {
    assert!(!is_unchecked());
}

#[test]
#[ignore = "needs a CUDA driver without cuFuncGetParamInfo"]
fn a_note_says_that_parameters_are_not_checked() {
    assert!(is_unchecked());
}

#[test]
#[ignore = "needs a CUDA driver without cuStreamWaitEvent"]
fn a_driver_that_lacks_a_function_is_an_error() {
    let error = Engine::builder().device(DeviceChoice::Cuda).build().unwrap_err();
    assert!(matches!(error, Error::Device { .. }), "{error:?}");
    let error = error.to_string();
    assert!(error.contains("lacks cuStreamWaitEvent") && error.contains("update the NVIDIA driver"), "{error}");
}
