//! Engines: settings, runs and plans.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use overshot::{CancelToken, DeviceChoice, Job, Journal};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::columns::{Given, Taken, check_apart};
use crate::dtype;
use crate::error::exception;
use crate::expression::Expression;
use crate::kernel::Call;
use crate::partial::Partial;
use crate::process::OncePerProcess;
use crate::report::{Plan, Report};
use crate::resident::Resident;
use crate::watch::{Done, Signals, watched};

/// A run of more bytes gets a thread of its own, which takes some 50 µs, so that this one notices Ctrl-C at any time.
const WATCHED: u64 = 32 << 20;
/// The same on the CPU, where this thread computes, too, and notices it between chunks.
const WATCHED_ON_CPU: u64 = 256 << 20;

/// Devices and memory limits, with all that later runs use again.
#[pyclass(frozen, module = "overshot._core")]
pub(crate) struct Engine {
    choice: DeviceChoice,
    limits: Limits,
    built: OncePerProcess<overshot::Engine>,
    threads: OncePerProcess<ThreadPool>,
}

#[derive(Clone, Copy)]
struct Limits {
    device_memory: Option<u64>,
    pinned_memory: Option<u64>,
    chunk: Option<u64>,
    workers: Option<usize>,
    device_timeout: Option<Duration>,
}

/// What a run computes.
enum What<'py> {
    Expression(Bound<'py, Expression>),
    Kernel(Bound<'py, Call>),
}

/// Names and the objects that they stand for.
pub(crate) type Named<'py> = Vec<(String, Bound<'py, PyAny>)>;
/// Numbers and arrays by name; `None` for the smallest or largest of no rows.
pub(crate) type Values = Vec<(String, Option<Py<PyAny>>)>;
/// Results, new arrays by name, and the report.
type Ran = (Values, Vec<(String, Py<PyAny>)>, Report);

#[pymethods]
impl Engine {
    #[new]
    #[pyo3(signature = (
        device="auto", device_memory=None, pinned_memory=None, chunk=None, workers=None, device_timeout=None
    ))]
    fn new(
        device: &str,
        device_memory: Option<u64>,
        pinned_memory: Option<u64>,
        chunk: Option<u64>,
        workers: Option<usize>,
        device_timeout: Option<f64>,
    ) -> PyResult<Self> {
        let choice = device.parse::<DeviceChoice>().map_err(exception)?;
        let seconds = device_timeout.map(|seconds| match Duration::try_from_secs_f64(seconds) {
            Ok(limit) if !limit.is_zero() => Ok(limit),
            _ => Err(PyValueError::new_err(format!("device_timeout={seconds} is not a number of seconds above zero"))),
        });
        let limits = Limits { device_memory, pinned_memory, chunk, workers, device_timeout: seconds.transpose()? };
        Ok(Engine { choice, limits, built: OncePerProcess::default(), threads: OncePerProcess::default() })
    }

    /// Runs an expression or a kernel.
    #[allow(clippy::too_many_arguments, reason = "the interpreter is one of them")]
    #[pyo3(signature = (
        what, inputs, outputs, rows=None, progress=None, timeline=false, journal=None, verify=0.0, precision="full",
        checksum=false
    ))]
    fn run<'py>(
        &self,
        py: Python<'py>,
        what: Bound<'py, PyAny>,
        inputs: Named<'py>,
        outputs: Named<'py>,
        rows: Option<u64>,
        progress: Option<Bound<'py, PyAny>>,
        timeline: bool,
        journal: Option<PathBuf>,
        verify: f64,
        precision: &str,
        checksum: bool,
    ) -> PyResult<Ran> {
        let (what, engine) = (What::new(what)?, self.engine()?);
        let given = given(&inputs, &engine)?;
        let mut taken = taken(&outputs, &engine)?;
        check_apart(&given, &taken)?;
        let is_watched = self.is_long(&given, rows) || progress.is_some();
        let job = what.job(&given, &mut taken, rows).timeline(timeline).verify(verify).checksum(checksum);
        let job = job.precision(precision.parse().map_err(exception)?);
        let run = |job: Job<'_>| match journal {
            Some(path) => engine.run_resumable(job, &Journal::at(path)),
            None => engine.run(job),
        };
        let report = execute(py, job, is_watched.then_some(progress), run)?;
        let arrays = taken.into_iter().filter_map(|(name, taken)| Some((name, taken.into_new()?))).collect();
        Ok((values(py, &report)?, arrays, Report(report)))
    }

    /// Runs some rows of an expression or a kernel: those from `range[0]` to `range[1]`.
    #[allow(clippy::too_many_arguments, reason = "the interpreter is one of them")]
    #[pyo3(signature = (what, inputs, outputs, range, rows=None, progress=None, verify=0.0, precision="full"))]
    fn run_rows<'py>(
        &self,
        py: Python<'py>,
        what: Bound<'py, PyAny>,
        inputs: Named<'py>,
        outputs: Named<'py>,
        range: (u64, u64),
        rows: Option<u64>,
        progress: Option<Bound<'py, PyAny>>,
        verify: f64,
        precision: &str,
    ) -> PyResult<Partial> {
        let (what, engine) = (What::new(what)?, self.engine()?);
        let given = given(&inputs, &engine)?;
        let mut taken = taken(&outputs, &engine)?;
        check_apart(&given, &taken)?;
        let is_watched = self.is_long(&given, Some(range.1.saturating_sub(range.0))) || progress.is_some();
        let job = what.job(&given, &mut taken, rows).verify(verify).precision(precision.parse().map_err(exception)?);
        let run = |job: Job<'_>| engine.run_rows(job, range.0..range.1);
        execute(py, job, is_watched.then_some(progress), run).map(Partial::new)
    }

    /// Divides the rows of a job into parts of nearly the same size, some of which may be empty.
    #[pyo3(signature = (what, inputs, outputs, parts, rows=None))]
    fn ranges<'py>(
        &self,
        py: Python<'py>,
        what: Bound<'py, PyAny>,
        inputs: Named<'py>,
        outputs: Named<'py>,
        parts: Vec<(u64, u64)>,
        rows: Option<u64>,
    ) -> PyResult<Vec<(u64, u64)>> {
        let (what, engine) = (What::new(what)?, self.engine()?);
        let given = given(&inputs, &engine)?;
        let mut taken = taken(&outputs, &engine)?;
        let job = what.job(&given, &mut taken, rows);
        let ranges = py.detach(move || {
            let range = |&(part, of): &_| engine.rows_of_part(&job, part, of).map(|rows| (rows.start, rows.end));
            parts.iter().map(range).collect::<Result<_, _>>()
        });
        ranges.map_err(exception)
    }

    /// Returns the number of rows of which the parts of a job begin at multiples.
    #[pyo3(signature = (what, inputs, outputs, rows=None))]
    fn part_step<'py>(
        &self,
        what: Bound<'py, PyAny>,
        inputs: Named<'py>,
        outputs: Named<'py>,
        rows: Option<u64>,
    ) -> PyResult<u64> {
        let (what, engine) = (What::new(what)?, self.engine()?);
        let given = given(&inputs, &engine)?;
        let mut taken = taken(&outputs, &engine)?;
        engine.part_step(&what.job(&given, &mut taken, rows)).map_err(exception)
    }

    /// Keeps an array or a file on the GPUs.
    fn resident(&self, py: Python<'_>, array: Bound<'_, PyAny>) -> PyResult<Resident> {
        let engine = self.engine()?;
        let given = Given::new("array", &array, Some(&engine))?;
        py.detach(|| Resident::new(&engine, given))
    }

    /// Returns what a run would do.
    #[pyo3(signature = (what, inputs, outputs, rows=None, precision="full"))]
    fn plan<'py>(
        &self,
        py: Python<'py>,
        what: Bound<'py, PyAny>,
        inputs: Named<'py>,
        outputs: Named<'py>,
        rows: Option<u64>,
        precision: &str,
    ) -> PyResult<Plan> {
        let (what, engine) = (What::new(what)?, self.engine()?);
        let given = given(&inputs, &engine)?;
        let mut taken = taken(&outputs, &engine)?;
        let job = what.job(&given, &mut taken, rows).precision(precision.parse().map_err(exception)?);
        py.detach(move || engine.plan(&job)).map(Plan).map_err(exception)
    }
}

impl Engine {
    /// Returns the engine.
    pub(crate) fn engine(&self) -> PyResult<Arc<overshot::Engine>> {
        self.built.get_or_make(|| {
            let mut builder = overshot::Engine::builder().device(self.choice.clone());
            let Limits { device_memory, pinned_memory, chunk, workers, device_timeout } = self.limits;
            if let Some(bytes) = device_memory {
                builder = builder.device_memory(bytes);
            }
            if let Some(bytes) = pinned_memory {
                builder = builder.pinned_memory(bytes);
            }
            if let Some(bytes) = chunk {
                builder = builder.chunk(bytes);
            }
            if let Some(workers) = workers {
                builder = builder.workers(workers);
            }
            if let Some(limit) = device_timeout {
                builder = builder.device_timeout(limit);
            }
            builder.build().map_err(exception)
        })
    }

    /// Returns whether a run needs a thread that watches it.
    fn is_long(&self, given: &[(String, Given)], rows: Option<u64>) -> bool {
        let inputs = given.iter().map(|(_, given)| given.bytes()).sum::<u64>();
        // Small arrays may be broadcast to a large shape.
        let elements = rows.unwrap_or_default().max(broadcast_elements(given));
        let most = if matches!(self.choice, DeviceChoice::Cpu) { WATCHED_ON_CPU } else { WATCHED };
        inputs.max(elements.saturating_mul(8)) > most
    }

    /// Returns the threads of algorithms. Those that rayon shares among all of a process do not exist in one that was
    /// forked.
    pub(crate) fn threads(&self) -> PyResult<Arc<ThreadPool>> {
        self.threads.get_or_make(|| {
            let threads = ThreadPoolBuilder::new().thread_name(|_| "overshot-matrices".into()).build();
            threads.map_err(|error| PyRuntimeError::new_err(format!("no threads can be started: {error}")))
        })
    }
}

/// Runs a job without the interpreter's lock. `watch` is given for a run that needs a thread that watches it, with the
/// function that shows its progress, if there is one.
fn execute<'a, R: Send>(
    py: Python<'_>,
    job: Job<'a>,
    watch: Option<Option<Bound<'_, PyAny>>>,
    run: impl FnOnce(Job<'_>) -> overshot::Result<R> + Send,
) -> PyResult<R> {
    let (token, done) = (CancelToken::new(), Done::default());
    let result = match watch {
        Some(show) => {
            let job = job.cancel_token(token.clone());
            let job = job.progress(|progress| done.record(progress.done, progress.rows));
            watched(py, &token, &done, show.as_ref(), || run(job))?
        }
        None => {
            let signals = Signals::new(&token);
            let job = job.cancel_token(token.clone()).progress(|_| signals.handle());
            let result = py.detach(|| run(job));
            signals.raised()?;
            result
        }
    };
    result.map_err(exception)
}

/// Returns the number of elements of the shape to which arrays are broadcast.
fn broadcast_elements(given: &[(String, Given)]) -> u64 {
    // From the last dimension on.
    let mut lengths: Vec<u64> = vec![];
    for (_, given) in given {
        let shape = given.shape();
        lengths.resize(lengths.len().max(shape.len()), 1);
        lengths.iter_mut().zip(shape.iter().rev()).for_each(|(own, length)| *own = (*own).max(*length));
    }
    lengths.into_iter().fold(1, u64::saturating_mul)
}

/// Returns the results of a report as numbers and arrays of NumPy.
pub(crate) fn values(py: Python<'_>, report: &overshot::Report) -> PyResult<Values> {
    let value = |value| Ok::<_, PyErr>(dtype::to_python(py, value)?.unbind());
    let array = |array| Ok::<_, PyErr>(dtype::to_array(py, array)?.unbind());
    let numbers = report.results.iter().map(|(name, result)| Ok((name.clone(), result.map(value).transpose()?)));
    let arrays = report.arrays.iter().map(|(name, result)| Ok((name.clone(), result.as_ref().map(array).transpose()?)));
    numbers.chain(arrays).collect()
}

fn given(inputs: &Named<'_>, engine: &overshot::Engine) -> PyResult<Vec<(String, Given)>> {
    inputs.iter().map(|(name, object)| Ok((name.clone(), Given::new(name, object, Some(engine))?))).collect()
}

pub(crate) fn taken(outputs: &Named<'_>, engine: &overshot::Engine) -> PyResult<Vec<(String, Taken)>> {
    let mut names = HashSet::new();
    match outputs.iter().find(|(name, _)| !names.insert(name)) {
        None => outputs.iter().map(|(name, object)| Ok((name.clone(), Taken::new(name, object, engine)?))).collect(),
        Some((name, _)) => Err(PyValueError::new_err(format!("the output {name} is given twice"))),
    }
}

impl<'py> What<'py> {
    fn new(what: Bound<'py, PyAny>) -> PyResult<Self> {
        match what.cast_into::<Call>() {
            Ok(call) => Ok(What::Kernel(call)),
            Err(other) => Ok(What::Expression(other.into_inner().cast_into::<Expression>()?)),
        }
    }

    fn job<'a>(&self, given: &'a [(String, Given)], taken: &'a mut [(String, Taken)], rows: Option<u64>) -> Job<'a> {
        let mut job = match self {
            What::Expression(expression) => Job::new(&expression.get().parsed),
            What::Kernel(call) => Job::kernel(call.get().0.clone()),
        };
        for (name, given) in given {
            job = given.add_to(job, name);
        }
        for (name, taken) in taken {
            if let Some(output) = taken.output() {
                job = job.output(name, output);
            }
        }
        match rows {
            Some(rows) => job.rows(rows),
            None => job,
        }
    }
}
