//! Arrays of ndarray.

use ndarray::{Array1, Array2, Array3, s};

use super::*;
use crate::io::ColumnError;
use crate::{DeviceChoice, Engine, Job, JobError};

fn matrix() -> Array2<f32> {
    Array2::from_shape_fn((3, 4), |(row, column)| (4 * row + column) as f32)
}

#[test]
fn inputs_are_arrays_in_place_with_their_shape() {
    let matrix = matrix();
    let input = Input::from(matrix.view());
    let source = input.source();
    assert_eq!((source.dtype(), source.rows(), source.shape()), (Dtype::F32, 12, Some(&[3, 4][..])));
    assert_eq!(source.memory().unwrap().bytes().as_ptr(), matrix.as_ptr().cast());
    assert_eq!(read_all(source, 5), bytemuck::cast_slice::<f32, u8>(matrix.as_slice().unwrap()));

    let shared = matrix.clone().into_shared();
    let address = shared.as_ptr();
    let input: Input<'static> = shared.into();
    let source = input.source();
    assert_eq!((source.rows(), source.shape()), (12, Some(&[3, 4][..])));
    assert_eq!(source.memory().unwrap().bytes().as_ptr(), address.cast());

    let flags = ndarray::arr1(&[true, false]);
    assert_eq!(read_all(Input::from(flags.view()).source(), 2), [1, 0]);
    let one = ndarray::arr0(7u8);
    let input = Input::from(one.view());
    assert_eq!((input.source().rows(), input.source().shape()), (1, Some(&[][..])));
    let none = Array3::<i64>::zeros((2, 0, 3));
    assert_eq!(Input::from(none.view()).source().rows(), 0);
}

#[test]
fn arrays_of_any_strides_are_read_and_written() {
    let (matrix, pair) = (matrix(), ndarray::arr1(&[1.0f32, 2.0]));
    let views = [
        matrix.slice(s![1.., ..]),
        matrix.slice(s![.., 1..]),
        matrix.slice(s![..;-1, ..;-2]),
        matrix.t(),
        matrix.slice(s![..1, ..1]),
        pair.broadcast((3, 2)).unwrap(),
    ];
    for view in views {
        let elements: Vec<f32> = view.iter().copied().collect();
        let input = Input::from(view);
        assert_eq!(read_all(input.source(), 2), bytemuck::cast_slice::<f32, u8>(&elements));
        assert_eq!(input.source().memory().is_some(), input.source().warning().is_none());
    }
    let shared: Input<'static> = matrix.to_shared().reversed_axes().into();
    assert_eq!(shared.source().shape(), Some(&[4, 3][..]));
    let elements: Vec<f32> = matrix.t().iter().copied().collect();
    assert_eq!(read_all(shared.source(), 3), bytemuck::cast_slice::<f32, u8>(&elements));

    let engine = Engine::builder().device(DeviceChoice::Cpu).build().unwrap();
    let mut columns = Array2::<f32>::zeros((4, 6));
    for case in 0..2 {
        let mut view = match case {
            0 => columns.slice_mut(s![..;-1, ..;2]),
            _ => columns.slice_mut(s![..3, 3..]).reversed_axes(),
        };
        let x = Array2::from_shape_fn(view.raw_dim(), |(row, column)| (10 * row + column) as f32);
        engine.run(Job::eval("y = x + 1").unwrap().input("x", x.view()).output("y", view.view_mut())).unwrap();
        assert_eq!(view, x + 1.0);
    }
}

#[test]
fn a_job_goes_from_arrays_to_arrays() {
    let (x, scale) = (matrix(), Array2::from_elem((3, 4), 2.0f32).into_shared());
    for device in [DeviceChoice::Cpu, "emulated:3".parse().unwrap()] {
        let engine = Engine::builder().device(device).build().unwrap();
        let run = |y: Output<'_>| {
            let job = Job::eval("y = x * scale").unwrap().input("x", x.view());
            engine.run(job.input("scale", scale.clone()).output("y", y))
        };
        let mut y = Array2::<f32>::zeros((3, 4));
        run(y.view_mut().into()).unwrap();
        assert_eq!(y, &x * 2.0);
        // The same number of elements in another shape.
        let error = run(Array2::<f32>::zeros((4, 3)).view_mut().into()).unwrap_err();
        assert!(matches!(error, Error::InvalidColumn(ColumnError::TargetShape { .. })), "{error}");
        let error = run(Array1::<f64>::zeros(12).view_mut().into()).unwrap_err();
        assert!(matches!(error, Error::InvalidJob(JobError::OutputDtype { .. })), "{error}");

        let mut kept = Array1::from_elem(12, false);
        let rows = x.flatten().into_shared();
        let job = Job::eval("y = x > 5").unwrap().input("x", rows);
        engine.run(job.output("y", kept.view_mut())).unwrap();
        assert_eq!(kept, x.flatten().mapv(|x| x > 5.0));
    }
}

#[test]
fn shapes_of_arrays_must_be_equal() {
    let (a, b) = (Array2::<f32>::zeros((2, 3)), Array2::<f32>::zeros((3, 2)));
    let engine = Engine::builder().device(DeviceChoice::Cpu).build().unwrap();
    let job = Job::eval("sum(a + b)").unwrap().input("a", a.view());
    let error = engine.run(job.input("b", b.view())).unwrap_err();
    assert!(matches!(error, Error::InvalidJob(JobError::ShapesDiffer { .. })), "{error}");
}
