//! Arrays of ndarray.

use ndarray::{Array1, Array2, Array3, ArrayView, Axis, s};

use super::*;
use crate::io::ColumnError;
use crate::{DeviceChoice, Engine, Job, JobError};

fn matrix() -> Array2<f32> {
    Array2::from_shape_fn((3, 4), |(row, column)| (4 * row + column) as f32)
}

/// Returns whether the conversion fails because of the layout.
fn is_refused<T>(converted: Result<T>) -> bool {
    let Err(error) = converted else { return false };
    assert!(error.is_usage() && error.to_string().contains("standard layout"), "{error}");
    matches!(error, Error::InvalidColumn(ColumnError::NotStandardLayout { .. }))
}

#[test]
fn inputs_are_arrays_in_place_with_their_shape() {
    let matrix = matrix();
    let input = Input::try_from(matrix.view()).unwrap();
    let source = input.source();
    assert_eq!((source.dtype(), source.rows(), source.shape()), (Dtype::F32, 12, Some(&[3, 4][..])));
    assert_eq!(source.memory().unwrap().bytes().as_ptr(), matrix.as_ptr().cast());
    assert_eq!(read_all(source, 5), bytemuck::cast_slice::<f32, u8>(matrix.as_slice().unwrap()));

    let shared = matrix.clone().into_shared();
    let address = shared.as_ptr();
    let input: Input<'static> = shared.try_into().unwrap();
    let source = input.source();
    assert_eq!((source.rows(), source.shape()), (12, Some(&[3, 4][..])));
    assert_eq!(source.memory().unwrap().bytes().as_ptr(), address.cast());

    let flags = ndarray::arr1(&[true, false]);
    assert_eq!(read_all(Input::try_from(flags.view()).unwrap().source(), 2), [1, 0]);
    let one = ndarray::arr0(7u8);
    let input = Input::try_from(one.view()).unwrap();
    assert_eq!((input.source().rows(), input.source().shape()), (1, Some(&[][..])));
    let none = Array3::<i64>::zeros((2, 0, 3));
    assert_eq!(Input::try_from(none.view()).unwrap().source().rows(), 0);
}

#[test]
fn arrays_in_other_layouts_are_refused() {
    let mut matrix = matrix();
    assert!(!is_refused(Input::try_from(matrix.slice(s![1.., ..]))), "whole rows");
    assert!(is_refused(Input::try_from(matrix.t())));
    assert!(is_refused(Input::try_from(matrix.slice(s![.., 1..]))));
    assert!(is_refused(Input::try_from(matrix.slice(s![..;-1, ..]))));
    assert!(is_refused(Input::try_from(ArrayView::from(&[1u8, 2]).broadcast((3, 2)).unwrap())));
    assert!(is_refused(Input::try_from(matrix.to_shared().reversed_axes())));
    assert!(is_refused(Output::try_from(matrix.view_mut().reversed_axes())));
    assert!(is_refused(Output::try_from(matrix.index_axis_mut(Axis(1), 0))));
    assert!(!is_refused(Output::try_from(matrix.index_axis_mut(Axis(0), 1))));
}

#[test]
fn a_job_goes_from_arrays_to_arrays() {
    let (x, scale) = (matrix(), Array2::from_elem((3, 4), 2.0f32).into_shared());
    for device in [DeviceChoice::Cpu, "emulated:3".parse().unwrap()] {
        let engine = Engine::builder().device(device).build().unwrap();
        let run = |y: Output<'_>| {
            let job = Job::eval("y = x * scale").unwrap().input("x", Input::try_from(x.view()).unwrap());
            engine.run(job.input("scale", Input::try_from(scale.clone()).unwrap()).output("y", y))
        };
        let mut y = Array2::<f32>::zeros((3, 4));
        run(y.view_mut().try_into().unwrap()).unwrap();
        assert_eq!(y, &x * 2.0);
        // The same number of elements in another shape.
        let error = run(Array2::<f32>::zeros((4, 3)).view_mut().try_into().unwrap()).unwrap_err();
        assert!(matches!(error, Error::InvalidColumn(ColumnError::TargetShape { .. })), "{error}");
        let error = run(Array1::<f64>::zeros(12).view_mut().try_into().unwrap()).unwrap_err();
        assert!(matches!(error, Error::InvalidJob(JobError::OutputDtype { .. })), "{error}");

        let mut kept = Array1::from_elem(12, false);
        let rows = x.flatten().into_shared();
        let job = Job::eval("y = x > 5").unwrap().input("x", Input::try_from(rows).unwrap());
        engine.run(job.output("y", Output::try_from(kept.view_mut()).unwrap())).unwrap();
        assert_eq!(kept, x.flatten().mapv(|x| x > 5.0));
    }
}

#[test]
fn shapes_of_arrays_must_be_equal() {
    let (a, b) = (Array2::<f32>::zeros((2, 3)), Array2::<f32>::zeros((3, 2)));
    let engine = Engine::builder().device(DeviceChoice::Cpu).build().unwrap();
    let job = Job::eval("sum(a + b)").unwrap().input("a", Input::try_from(a.view()).unwrap());
    let error = engine.run(job.input("b", Input::try_from(b.view()).unwrap())).unwrap_err();
    assert!(matches!(error, Error::InvalidJob(JobError::ShapesDiffer { .. })), "{error}");
}
