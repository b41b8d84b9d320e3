//! Algorithms on tables.

use std::sync::{Mutex, MutexGuard, PoisonError};

use ndarray::{Array1, Array2, ArrayView, Dimension};
use overshot::io::Element;
use overshot::matrices::{KMeans, Linear, Logistic, Matrices as Algorithms, Method, Pca};
use overshot::{ArrayValue, CancelToken, Error, Input, Output, Precision};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyInt;

use crate::columns::{Given, check_apart};
use crate::dtype;
use crate::engine::{Engine, Named, taken};
use crate::error::exception;
use crate::report::Report;
use crate::watch::{Done, watched};

/// The algorithms, on an engine, with what their passes have in common.
#[pyclass(frozen, module = "overshot._core")]
pub(crate) struct Matrices {
    engine: Py<Engine>,
    precision: Precision,
    progress: Option<Py<PyAny>>,
    each_pass: Option<Py<PyAny>>,
}

/// A new array of NumPy.
type Array = Py<PyAny>;
/// New arrays by the names of their outputs, and the report.
type Written = (Vec<(String, Array)>, Report);

#[pymethods]
impl Matrices {
    #[new]
    #[pyo3(signature = (engine, precision="full", progress=None, each_pass=None))]
    fn new(
        engine: Py<Engine>,
        precision: &str,
        progress: Option<Py<PyAny>>,
        each_pass: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        Ok(Matrices { engine, precision: precision.parse().map_err(exception)?, progress, each_pass })
    }

    /// The products of all columns with all columns.
    fn gram(&self, py: Python<'_>, x: Bound<'_, PyAny>) -> PyResult<Array> {
        let x = self.given("x", &x)?;
        let x = x.table("x")?;
        dtype::to_array(py, &self.run(py, |matrices| matrices.gram(&x))?.0).map(Bound::unbind)
    }

    /// The covariance of the columns.
    fn covariance(&self, py: Python<'_>, x: Bound<'_, PyAny>, ddof: u64) -> PyResult<Array> {
        let x = self.given("x", &x)?;
        let x = x.table("x")?;
        array(py, self.run(py, |matrices| matrices.covariance(&x, ddof))?.0.view())
    }

    /// Weights and intercept.
    fn linear(
        &self,
        py: Python<'_>,
        x: Bound<'_, PyAny>,
        t: Bound<'_, PyAny>,
        ridge: f64,
        intercept: bool,
    ) -> PyResult<(Array, f64)> {
        let (x, t) = (self.given("x", &x)?, self.given("t", &t)?);
        let (x, t) = (x.table("x")?, t.table("t")?);
        let how = Linear::new().ridge(ridge).intercept(intercept);
        let (found, _) = self.run(py, |matrices| matrices.linear(&x, &t, how))?;
        Ok((array(py, found.weights.view())?, found.intercept))
    }

    /// Weights, intercept, the number of iterations, and whether they converged.
    fn logistic(
        &self,
        py: Python<'_>,
        x: Bound<'_, PyAny>,
        t: Bound<'_, PyAny>,
        penalty: f64,
        tolerance: f64,
        iterations: usize,
    ) -> PyResult<(Array, f64, usize, bool)> {
        let (x, t) = (self.given("x", &x)?, self.given("t", &t)?);
        let (x, t) = (x.table("x")?, t.table("t")?);
        let how = Logistic::new().penalty(penalty).tolerance(tolerance).iterations(iterations);
        let (found, _) = self.run(py, |matrices| matrices.logistic(&x, &t, how))?;
        Ok((array(py, found.weights.view())?, found.intercept, found.iterations, found.converged))
    }

    /// Components, their variances, the mean, and by how much the components turned at last.
    #[allow(clippy::too_many_arguments, reason = "the interpreter is one of them")]
    fn pca(
        &self,
        py: Python<'_>,
        x: Bound<'_, PyAny>,
        count: usize,
        method: &str,
        tolerance: f64,
        iterations: usize,
        seed: u64,
    ) -> PyResult<(Array, Array, Array, f64)> {
        let method = match method {
            "auto" => Method::Auto,
            "exact" => Method::Exact,
            "randomized" => Method::Randomized,
            other => {
                let problem = format!("the method is 'auto', 'exact' or 'randomized', and not '{other}'");
                return Err(PyValueError::new_err(problem));
            }
        };
        let x = self.given("x", &x)?;
        let x = x.table("x")?;
        let how = Pca::new(count).method(method).tolerance(tolerance).iterations(iterations).seed(seed);
        let (found, _) = self.run(py, |matrices| matrices.pca(&x, how))?;
        let (components, variance) = (array(py, found.components.view())?, array(py, found.variance.view())?);
        Ok((components, variance, array(py, found.mean.view())?, found.turn))
    }

    /// Writes the coordinates of rows to the output.
    fn project<'py>(
        &self,
        py: Python<'py>,
        x: Bound<'py, PyAny>,
        components: &Bound<'py, PyAny>,
        mean: Option<Bound<'py, PyAny>>,
        outputs: Named<'py>,
    ) -> PyResult<Written> {
        let components = points(components)?;
        let mean = mean.as_ref().map(point).transpose()?;
        let project = |matrices: Algorithms<'_>, x: &Input<'_>, outputs: Vec<Output<'_>>| {
            let [y] = exactly(outputs)?;
            matrices.project(x, components.view(), mean.as_ref().map(|mean| mean.view()), y)
        };
        Ok(self.write(py, &x, &outputs, project)?.1)
    }

    /// Centers, the inertia, counts, the number of iterations, and whether they converged. The start is an array of
    /// centers, or their number. If there is an output, it gets the labels.
    #[allow(clippy::too_many_arguments, reason = "the interpreter is one of them")]
    fn kmeans<'py>(
        &self,
        py: Python<'py>,
        x: Bound<'py, PyAny>,
        start: &Bound<'py, PyAny>,
        iterations: usize,
        tolerance: f64,
        seed: u64,
        outputs: Named<'py>,
    ) -> PyResult<(Array, f64, Array, usize, bool, Written)> {
        let how = match start.is_instance_of::<PyInt>() {
            true => KMeans::plus_plus(start.extract()?).seed(seed),
            false => KMeans::from_centers(points(start)?),
        };
        let how = how.iterations(iterations).tolerance(tolerance);
        let cluster = |matrices: Algorithms<'_>, x: &Input<'_>, outputs: Vec<Output<'_>>| {
            let how = outputs.into_iter().fold(how, KMeans::labels);
            matrices.kmeans(x, how)
        };
        let (found, written) = self.write(py, &x, &outputs, cluster)?;
        // As NumPy counts.
        let counts = found.counts.mapv(|count| count as i64);
        let (centers, counts) = (array(py, found.centers.view())?, array(py, counts.view())?);
        Ok((centers, found.inertia, counts, found.iterations, found.converged, written))
    }

    /// Writes the number of the nearest center of each row, and its distance from it.
    fn assign<'py>(
        &self,
        py: Python<'py>,
        x: Bound<'py, PyAny>,
        centers: &Bound<'py, PyAny>,
        outputs: Named<'py>,
    ) -> PyResult<Written> {
        let centers = points(centers)?;
        let assign = |matrices: Algorithms<'_>, x: &Input<'_>, outputs: Vec<Output<'_>>| {
            let [labels, distances] = exactly(outputs)?;
            matrices.assign(x, centers.view(), labels, distances)
        };
        Ok(self.write(py, &x, &outputs, assign)?.1)
    }

    /// The numbers of the nearest rows of each query, and their distances.
    fn nearest(
        &self,
        py: Python<'_>,
        base: Bound<'_, PyAny>,
        queries: &Bound<'_, PyAny>,
        count: usize,
    ) -> PyResult<(Array, Array)> {
        let (base, queries) = (self.given("base", &base)?, points(queries)?);
        let base = base.table("base")?;
        let (found, _) = self.run(py, |matrices| matrices.nearest(&base, queries.view(), count))?;
        Ok((array(py, found.indices.view())?, array(py, found.distances.view())?))
    }
}

impl Matrices {
    fn given(&self, name: &str, object: &Bound<'_, PyAny>) -> PyResult<Given> {
        Given::new(name, object, Some(&*self.engine.get().engine()?))
    }

    /// Runs an algorithm on `x` that writes outputs.
    fn write<R: Send>(
        &self,
        py: Python<'_>,
        x: &Bound<'_, PyAny>,
        outputs: &Named<'_>,
        algorithm: impl FnOnce(Algorithms<'_>, &Input<'_>, Vec<Output<'_>>) -> overshot::Result<R> + Send,
    ) -> PyResult<(R, Written)> {
        let given = [("x".to_string(), self.given("x", x)?)];
        let mut taken = taken(outputs, &*self.engine.get().engine()?)?;
        check_apart(&given, &taken)?;
        let x = given[0].1.table("x")?;
        let targets: Vec<Output<'_>> = taken.iter_mut().filter_map(|(_, taken)| taken.output()).collect();
        let (found, report) = self.run(py, |matrices| algorithm(matrices, &x, targets))?;
        let report = report.ok_or_else(|| PyRuntimeError::new_err("no pass has written the outputs"))?;
        let arrays = taken.into_iter().filter_map(|(name, taken)| Some((name, taken.into_new()?))).collect();
        Ok((found, (arrays, report)))
    }

    /// Runs an algorithm without the interpreter's lock. Returns the report of the last pass, too, if there was one.
    fn run<R: Send>(
        &self,
        py: Python<'_>,
        algorithm: impl FnOnce(Algorithms<'_>) -> overshot::Result<R> + Send,
    ) -> PyResult<(R, Option<Report>)> {
        let engine = self.engine.get().engine()?;
        let (token, done) = (CancelToken::new(), Done::default());
        let (last, raised) = (Mutex::new(None), Mutex::new(None));
        let each_pass = |report: &overshot::Report| {
            done.end_pass();
            *locked(&last) = Some(report.clone());
            let told = self.each_pass.as_ref().map_or(Ok(()), |each_pass| {
                Python::attach(|py| each_pass.call1(py, (Report(report.clone()),)).map(drop))
            });
            if let Err(error) = told {
                *locked(&raised) = Some(error);
                token.cancel();
            }
        };
        let threads = self.engine.get().threads()?;
        let run = || {
            threads.install(|| {
                let matrices = Algorithms::on(&engine).precision(self.precision).cancel_token(token.clone());
                let matrices = matrices.progress(|progress| done.record(progress.done, progress.rows));
                algorithm(matrices.each_pass(each_pass))
            })
        };
        let show = self.progress.as_ref().map(|show| show.bind(py));
        let result = watched(py, &token, &done, show, run)?;
        if let Some(error) = locked(&raised).take() {
            return Err(error);
        }
        let found = result.map_err(exception)?;
        let last = locked(&last).take().map(Report);
        Ok((found, last))
    }
}

fn locked<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the outputs of an algorithm that has this many.
fn exactly<const N: usize>(outputs: Vec<Output<'_>>) -> overshot::Result<[Output<'_>; N]> {
    let count = outputs.len();
    outputs.try_into().map_err(|_| Error::other(PyTypeError::new_err(format!("{N} outputs, and not {count}"))))
}

fn array<T: Element, D: Dimension>(py: Python<'_>, values: ArrayView<'_, T, D>) -> PyResult<Array> {
    dtype::to_array(py, &ArrayValue::from(values)).map(Bound::unbind)
}

/// Returns a copy of an array of `float64` with one dimension.
fn point(object: &Bound<'_, PyAny>) -> PyResult<Array1<f64>> {
    Ok(PyBuffer::get(object)?.to_vec(object.py())?.into())
}

/// Returns a copy of an array of `float64` with two dimensions.
fn points(object: &Bound<'_, PyAny>) -> PyResult<Array2<f64>> {
    let buffer = PyBuffer::get(object)?;
    let shape = <[usize; 2]>::try_from(buffer.shape());
    let shape = shape.map_err(|_| PyTypeError::new_err("an array of two dimensions is needed"))?;
    let values = Array2::from_shape_vec(shape, buffer.to_vec(object.py())?);
    values.map_err(|error| PyTypeError::new_err(error.to_string()))
}
