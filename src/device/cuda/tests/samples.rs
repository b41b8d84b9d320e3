//! Every kernel that the code generator can produce, on a device and on the host.

use std::sync::Arc;

use crate::cache_folder::cache_folder;
use crate::data::Scalar;
use crate::device::cuda::CudaDevice;
use crate::device::kernel::{SharedKernel, TILE_ROWS, Uniform};
use crate::device::{Device, Host, Stream};
use crate::{DeviceChoice, Engine, Job};

/// Not for a real GPU: its functions without an exact result may differ from those of the host kernel.
#[test]
#[ignore = "needs the stand-in driver"]
fn every_sample_runs() {
    const ROWS: usize = TILE_ROWS + 3;
    let device = CudaDevice::open(0).unwrap();
    for mut kernel in crate::testing::samples() {
        kernel.columns.total_rows = ROWS as u64;
        let kernel = Arc::new(kernel);
        let columns = &kernel.columns;
        let inputs: Vec<Vec<u64>> = columns.inputs.iter().map(|&width| input(width, ROWS)).collect();
        let outputs: Vec<usize> = columns.outputs.iter().map(|width| width * ROWS).collect();
        let written = [&outputs[..], &[columns.partial_bytes(ROWS)]].concat();
        let mut expected: Vec<Vec<u64>> = written.iter().map(|bytes| vec![0; bytes.div_ceil(8)]).collect();
        let mut found = expected.clone();
        host(&kernel, ROWS, &inputs, &mut expected);
        run_kernel(&device, &kernel, ROWS, &inputs, &mut found);
        assert_eq!(found, expected, "{}", kernel.code.text().lines().next().unwrap());
    }
}

#[test]
#[ignore = "needs the stand-in driver"]
fn other_values_compile_nothing() {
    let compiled = || std::fs::read_dir(cache_folder().unwrap()).map_or(0, Iterator::count);
    assert_eq!(compiled(), 0);
    let sum = |value: Scalar| {
        // A new engine, so that the kernel is not already loaded.
        let engine = Engine::builder().device(DeviceChoice::Cuda).build().unwrap();
        let job = Job::eval("s = sum(i * v)").unwrap().rows(5).scalar("v", value);
        engine.run(job).unwrap().value("s").unwrap().unwrap()
    };
    assert_eq!((sum(Scalar::I64(2)), compiled()), (Scalar::I64(20), 1));
    assert_eq!((sum(Scalar::I64(-3)), compiled()), (Scalar::I64(-30), 1));
    assert_eq!((sum(Scalar::F64(0.5)), compiled()), (Scalar::F64(5.0), 2));
}

/// Rows of a column, in words so that they are aligned. Bytes are 0 and 1, because they may be booleans.
fn input(width: usize, rows: usize) -> Vec<u64> {
    let words = (0..(width * rows).div_ceil(8) as u64).map(|i| (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    words.map(|word| if width == 1 { word & 0x0101_0101_0101_0101 } else { word }).collect()
}

fn host(kernel: &SharedKernel, rows: usize, inputs: &[Vec<u64>], written: &mut [Vec<u64>]) {
    let columns = &kernel.columns;
    let inputs: Vec<&[u8]> =
        inputs.iter().zip(&columns.inputs).map(|(input, width)| &bytemuck::cast_slice(input)[..width * rows]).collect();
    let (partials, outputs) = written.split_last_mut().unwrap();
    let mut outputs: Vec<&mut [u8]> = outputs
        .iter_mut()
        .zip(&columns.outputs)
        .map(|(output, width)| &mut bytemuck::cast_slice_mut(output)[..width * rows])
        .collect();
    let mut host = kernel.new_host_kernel().unwrap();
    let (values, total_rows) = (kernel.values.known().unwrap(), columns.total_rows);
    let uniform = Uniform { values, total_rows, ..Uniform::default() };
    host.run(0, rows, &inputs, &mut outputs, bytemuck::cast_slice_mut(partials), &uniform);
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
    let count = inputs.len() + columns.outputs.len() + usize::from(columns.has_partials());
    let loaded = device.load(kernel).unwrap();
    let memory = device.allocate(starts[starts.len() - 1] + sizes[sizes.len() - 1] + 8).unwrap();
    let mut stream = device.open_stream().unwrap();
    let event = device.event(false).unwrap();
    // SAFETY: all columns have the sizes for which the starts leave space, as have the vectors of the host, which are
    // not accessed until the wait below.
    unsafe {
        for (i, input) in inputs.iter().enumerate() {
            stream.copy_in(input.as_ptr().cast(), &memory, starts[i], sizes[i]).unwrap();
        }
        let partials = starts[starts.len() - 1];
        stream.zero(&memory, partials, columns.chunk_partials().end).unwrap();
        let columns: Vec<_> = starts[..count].iter().map(|start| (&memory, *start)).collect();
        stream.launch(&loaded, &columns, &[], 0, rows).unwrap();
        for (i, output) in (inputs.len()..count).zip(found) {
            stream.copy_out(&memory, starts[i], output.as_mut_ptr().cast(), sizes[i]).unwrap();
        }
    }
    stream.record(&event).unwrap();
    device.host(std::time::Instant::now()).synchronize(&event).unwrap();
}
