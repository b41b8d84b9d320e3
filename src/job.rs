//! What to run.

use std::collections::HashSet;

use crate::custom::Call;
use crate::data::{Input, Output, Scalar};
use crate::device::Precision;
use crate::error::{JobError, Result};
use crate::expr::{self, Expression, Number};
use crate::progress::{CancelToken, Progress};

pub(crate) type ProgressFn<'a> = Box<dyn Fn(Progress) + Send + Sync + 'a>;

/// What is computed for every row.
#[derive(Clone)]
pub(crate) enum JobBody {
    Expression(Expression),
    Kernel(Box<Call>),
}

impl JobBody {
    /// What traces call it.
    pub(crate) fn text(&self) -> &str {
        match self {
            JobBody::Expression(expression) => expression.text(),
            JobBody::Kernel(call) => call.entry(),
        }
    }
}

/// An expression, or a kernel of the caller's own, with the data it reads and writes.
///
/// Every name that the expression reads needs an [`input`](Job::input), all of the same number of rows, or a
/// [`scalar`](Job::scalar) or [`number`](Job::number), the same for all rows. A name that it assigns may have an
/// [`output`](Job::output); without one it is a temporary of the expression. The names of a kernel are those of its
/// parameters.
///
/// ```
/// use overshot::{DeviceChoice, Engine, Job};
/// let (x, mut y) = ([1.0, 2.0, 3.0], [0.0; 3]);
/// let job = Job::eval("t = x - shift; y = t * t; total = sum(y)")?;
/// let job = job.input("x", &x).scalar("shift", 2.0).output("y", &mut y);
/// let report = Engine::builder().device(DeviceChoice::Cpu).build()?.run(job)?;
/// assert_eq!(report.value("total")?.map(|total| total.as_f64()), Some(2.0));
/// assert_eq!(y, [1.0, 0.0, 1.0]);
/// # Ok::<(), overshot::Error>(())
/// ```
#[must_use = "a job does nothing until an engine runs it"]
pub struct Job<'a> {
    pub(crate) what: JobBody,
    pub(crate) inputs: Vec<(String, Input<'a>)>,
    pub(crate) values: Vec<(String, Scalar)>,
    pub(crate) numbers: Vec<(String, Number)>,
    /// Whether the values are not known yet, but only their names and dtypes: the engine gives them to the kernel
    /// later.
    pub(crate) deferred: bool,
    /// The outputs of rows.
    pub(crate) outputs: Vec<(String, Output<'a>)>,
    /// The outputs of results.
    pub(crate) result_outputs: Vec<(String, Output<'a>)>,
    pub(crate) rows: Option<u64>,
    pub(crate) cancel: Option<CancelToken>,
    pub(crate) progress: Option<ProgressFn<'a>>,
    pub(crate) timeline: bool,
    /// The fraction of the chunks that are computed again.
    pub(crate) verify: f64,
    /// Whether the report has checksums of the outputs.
    pub(crate) checksum: bool,
    pub(crate) precision: Precision,
}

impl<'a> Job<'a> {
    /// A job that evaluates `expression`. Any number of jobs can share one expression.
    pub fn new(expression: &Expression) -> Self {
        Job::of(JobBody::Expression(expression.clone()))
    }

    /// A job that evaluates an expression, in the language described in the [crate documentation](crate): short for
    /// [`Expression::parse`] and [`Job::new`].
    ///
    /// # Errors
    /// [`Error::Expression`](crate::Error::Expression) if it does not parse. Types are checked when the job runs and
    /// dtypes are known.
    pub fn eval(expression: &str) -> Result<Self> {
        Ok(Job::new(&Expression::parse(expression)?))
    }

    /// A job that runs a kernel of the caller's own on every row. A [`CustomKernel`](crate::kernel::CustomKernel)
    /// without values, resident arrays and scratch is a call by itself.
    pub fn kernel(call: impl Into<Call>) -> Self {
        Job::of(JobBody::Kernel(Box::new(call.into())))
    }

    fn of(what: JobBody) -> Self {
        Job {
            what,
            inputs: vec![],
            values: vec![],
            numbers: vec![],
            deferred: false,
            outputs: vec![],
            result_outputs: vec![],
            rows: None,
            cancel: None,
            progress: None,
            timeline: false,
            verify: 0.0,
            checksum: false,
            precision: Precision::Full,
        }
    }

    /// The same job once more, on the same inputs and with values that are not known yet. It must have no outputs,
    /// which are written once.
    pub(crate) fn again(&self) -> Job<'_> {
        debug_assert!(self.all_outputs().next().is_none());
        Job {
            what: self.what.clone(),
            inputs: self.inputs.iter().map(|(name, input)| (name.clone(), input.borrowed())).collect(),
            values: self.values.clone(),
            numbers: self.numbers.clone(),
            deferred: true,
            outputs: vec![],
            result_outputs: vec![],
            rows: self.rows,
            cancel: self.cancel.clone(),
            progress: self.progress.as_deref().map(|progress| Box::new(progress) as ProgressFn<'_>),
            timeline: self.timeline,
            verify: self.verify,
            checksum: false,
            precision: self.precision,
        }
    }

    /// Names that are read: those of the expression (inputs and values) in the order of their first use, then those
    /// of the constants that it reads, such as `pi` and `i`, which an input or a value may replace; or of the
    /// kernel's parameters that take inputs.
    pub fn input_names(&self) -> Vec<String> {
        match &self.what {
            JobBody::Expression(expression) => {
                expression.inputs().chain(expression.constants()).map(str::to_owned).collect()
            }
            JobBody::Kernel(call) => call.input_names().map(str::to_owned).collect(),
        }
    }

    /// Names that are written, in order.
    pub fn output_names(&self) -> Vec<String> {
        match &self.what {
            JobBody::Expression(expression) => expression.outputs().map(str::to_owned).collect(),
            JobBody::Kernel(call) => call.output_names().map(str::to_owned).collect(),
        }
    }

    /// Names of the results, one for each reduction of the expression, in order: the name that is given to it, or
    /// else its text. A kernel has none.
    pub fn result_names(&self) -> Vec<String> {
        match &self.what {
            JobBody::Expression(expression) => expression.reductions().map(str::to_owned).collect(),
            JobBody::Kernel(_) => vec![],
        }
    }

    /// Where the rows of `name` come from.
    pub fn input(mut self, name: &str, input: impl Into<Input<'a>>) -> Self {
        self.inputs.push((name.to_owned(), input.into()));
        self
    }

    /// Gives `name`, which the expression reads, a value that is the same for all rows.
    ///
    /// It is as a column with this value in every row. So it keeps the dtype of the Rust value, unlike a
    /// [`number`](Job::number): beside an `f32` column, `2.0f32` gives `f32`, and `2.0` gives `f64`.
    /// The kernel does not depend on the value: the same expression with other values is not compiled again. A kernel
    /// of the caller's own has [`Call::scalar`].
    ///
    /// ```
    /// use overshot::{DeviceChoice, Engine, Job};
    /// let engine = Engine::builder().device(DeviceChoice::Cpu).build()?;
    /// let x = vec![1.0, 2.0, 3.0, 4.0, 100.0];
    /// let mut center = 0.0;
    /// for _ in 0..3 {
    ///     let job = Job::eval("mean(clip(x, center - 5, center + 5))")?.input("x", &x).scalar("center", center);
    ///     center = engine.run(job)?.results[0].1.map_or(center, |mean| mean.as_f64());
    /// }
    /// assert_eq!(center, 3.72);
    /// # Ok::<(), overshot::Error>(())
    /// ```
    pub fn scalar(mut self, name: &str, value: impl Into<Scalar>) -> Self {
        self.values.push((name.to_owned(), value.into()));
        self
    }

    /// Gives `name`, which the expression reads, a number that is the same for all rows and adapts to what it meets,
    /// as a number in the text does: beside an `f32` column, `2.0` gives `f32`.
    ///
    /// The kernel does not depend on a float, unless that is an exponent, as `k` in `x ** k`. It does depend on
    /// integers and bools.
    ///
    /// ```
    /// use overshot::{Engine, Job};
    /// let (x, mut y) = ([1.0f32, 2.0], [0.0f32; 2]);
    /// Engine::builder().build()?.run(Job::eval("y = a * x")?.number("a", 2.5).input("x", &x).output("y", &mut y))?;
    /// assert_eq!(y, [2.5, 5.0]);
    /// # Ok::<(), overshot::Error>(())
    /// ```
    pub fn number(mut self, name: &str, number: impl Into<Number>) -> Self {
        self.numbers.push((name.to_owned(), number.into()));
        self
    }

    /// Returns the names of scalars and numbers.
    pub(crate) fn value_names(&self) -> impl Iterator<Item = &str> {
        let scalars = self.values.iter().map(|(name, _)| name.as_str());
        scalars.chain(self.numbers.iter().map(|(name, _)| name.as_str()))
    }

    /// Where the rows of `name` go to, or the array that is the result `name`, as of `m = mean(x, axis=0)`. Results
    /// that are one number have no output: the report has them.
    ///
    /// ```
    /// use overshot::{Engine, Job};
    /// let (k, mut counts) = ([0, 2, 2, 3, 2], [0i64; 4]);
    /// let job = Job::eval("counts = bincount(k, 4)")?.input("k", &k).output("counts", &mut counts);
    /// Engine::builder().build()?.run(job)?;
    /// assert_eq!(counts, [1, 0, 3, 1]);
    /// # Ok::<(), overshot::Error>(())
    /// ```
    pub fn output(mut self, name: &str, output: impl Into<Output<'a>>) -> Self {
        let is_result = self.result_names().iter().any(|result| result == name);
        let outputs = if is_result { &mut self.result_outputs } else { &mut self.outputs };
        outputs.push((name.to_owned(), output.into().named(name)));
        self
    }

    /// Returns the outputs of rows and of results.
    pub(crate) fn all_outputs(&self) -> impl Iterator<Item = &(String, Output<'a>)> {
        self.outputs.iter().chain(&self.result_outputs)
    }

    /// How many rows there are: needed only without inputs, as by the expression `x = step * i` with a value `step`.
    pub fn rows(mut self, rows: u64) -> Self {
        self.rows = Some(rows);
        self
    }

    /// Lets `token` stop the job.
    pub fn cancel_token(mut self, token: CancelToken) -> Self {
        self.cancel = Some(token);
        self
    }

    /// Calls `progress` after every chunk, from the thread that finished it: several calls may run at once, and a later
    /// call may tell of fewer rows than an earlier one.
    pub fn progress(mut self, progress: impl Fn(Progress) + Send + Sync + 'a) -> Self {
        self.progress = Some(Box::new(progress));
        self
    }

    /// Takes down when every stage of every chunk began and ended, for [`Report::timeline`](crate::Report::timeline).
    /// This slows small chunks down a little.
    pub fn timeline(mut self, timeline: bool) -> Self {
        self.timeline = timeline;
        self
    }

    /// Computes this fraction of the chunks once more and compares every byte: 0 verifies nothing, which is the
    /// default, and 1 every chunk. At least one chunk of a run is verified if the fraction is above 0.
    ///
    /// A chunk of a GPU or an emulated device is computed again by the CPU, from rows that are read anew. A chunk of
    /// the CPU is computed again with other instructions, if the processor has any. What is compared are the outputs
    /// before they are written, and the partial results of reductions. The report says what was verified and how
    /// ([`Report::verification`](crate::Report::verification)). A difference ends the run, and no output gets its name.
    ///
    /// A hash of the chunk's number chooses the chunks, so a larger fraction verifies the same ones, and more. A
    /// [kernel](Job::kernel) of the caller's own needs a function for the host, which is called once more for each row
    /// that is verified, and so are generators.
    ///
    /// ```
    /// use overshot::device::{Emulated, Fault, FaultAt};
    /// use overshot::{Engine, Error, Job};
    /// // A device whose first kernel gets one bit wrong.
    /// let faulty = Emulated::new().fault(Fault::flip(FaultAt::Kernel, 0, 1));
    /// let engine = Engine::builder().device(faulty).build()?;
    /// let job = Job::eval("sum(x)")?.input("x", &[1.0, 2.0]).verify(0.01);
    /// let Err(Error::Chunk { cause, .. }) = engine.run(job) else { panic!("it was not found") };
    /// assert!(matches!(*cause, Error::Verification(_)));
    /// # Ok::<(), overshot::Error>(())
    /// ```
    pub fn verify(mut self, fraction: f64) -> Self {
        self.verify = fraction;
        self
    }

    /// Adds a checksum of each output to the report
    /// ([`OutputReport::checksum`](crate::report::OutputReport::checksum)). It is computed when all rows are written,
    /// before files get their names: of the whole file, or of the rows in
    /// memory. Outputs that cannot be read back are an error before the run.
    ///
    /// ```
    /// use overshot::{Engine, Job};
    /// let mut y = [0.0; 3];
    /// let job = Job::eval("y = 2 * x")?.input("x", &[1.0, 2.0, 3.0]).output("y", &mut y).checksum(true);
    /// let report = Engine::builder().build()?.run(job)?;
    /// let expected = blake3::hash(&[2.0f64, 4.0, 6.0].map(f64::to_le_bytes).concat());
    /// assert_eq!(report.outputs[0].checksum, Some(expected.to_string()));
    /// # Ok::<(), overshot::Error>(())
    /// ```
    pub fn checksum(mut self, checksum: bool) -> Self {
        self.checksum = checksum;
        self
    }

    /// How GPUs multiply matrices of `f32`. With [`Precision::Tf32`], tensor cores round factors to 11 bits, which is
    /// several times as fast where the products and not the link are what a run waits for; each product of two factors
    /// is then off by up to about 2⁻¹⁰ of itself. With [`Precision::Bf16x3`] they take 16 bits, in three products, and
    /// each product is off by up to about 2⁻¹⁵; infinities may become NaN. Other computations, and products of `f64`,
    /// do not change.
    ///
    /// The CPU multiplies with full precision, and so do GPUs before compute capability 8.0. The report says what did
    /// which ([`Report::notes`](crate::Report::notes)).
    ///
    /// ```
    /// use overshot::device::Emulated;
    /// use overshot::{Engine, Job, Precision};
    /// let engine = Engine::builder().device(Emulated::new()).build()?;
    /// let x = ndarray::array![[1.0f32, 1.0 + 2.0f32.powi(-12)]];
    /// let last_of_gram = |precision| {
    ///     let report = engine.run(Job::eval("x.T @ x")?.input("x", x.view()).precision(precision))?;
    ///     Ok::<_, overshot::Error>(report.array("x.T @ x")?.and_then(|gram| gram.get(3)).map(|last| last.as_f64()))
    /// };
    /// assert!(last_of_gram(Precision::Full)? > last_of_gram(Precision::Tf32)?);
    /// # Ok::<(), overshot::Error>(())
    /// ```
    pub fn precision(mut self, precision: Precision) -> Self {
        self.precision = precision;
        self
    }

    /// The number of rows that all inputs, which have so many elements, fixed-size outputs and [`rows`](Job::rows)
    /// agree on. A row has so many elements of each input and output.
    pub(crate) fn row_count(&self, counts: &[u64], elements: (&[u64], &[u64])) -> Result<u64> {
        let whole = |what: String, count: u64, elements: u64| match count.is_multiple_of(elements) {
            true => Ok((what, count / elements)),
            false => Err(JobError::PartialRow { column: what, count, elements }),
        };
        let set = self.rows.map(|rows| Ok(("the job".to_owned(), rows)));
        let inputs = self.inputs.iter().zip(counts).zip(elements.0).map(|(((name, input), count), elements)| {
            whole(format!("input {name} ({})", input.source().name()), *count, *elements)
        });
        let outputs = self.outputs.iter().zip(elements.1).filter_map(|((name, output), elements)| {
            let target = output.target();
            Some(whole(format!("output {name} ({})", target.name()), target.rows()?, *elements))
        });
        let all: Vec<_> = set.into_iter().chain(inputs).chain(outputs).collect::<Result<_, JobError>>()?;
        let mut all = all.into_iter();
        let Some((first, rows)) = all.next() else {
            return Err(JobError::UnknownRows.into());
        };
        match all.find(|(_, other)| *other != rows) {
            None => Ok(rows),
            Some((other, other_rows)) => Err(JobError::RowsDiffer { first, rows, other, other_rows }.into()),
        }
    }

    /// Checks that the names bound are those of the expression, each once.
    pub(crate) fn check_names(&self, expression: &Expression) -> Result<()> {
        let read: HashSet<&str> = expression.inputs().chain(expression.constants()).collect();
        let assigned: HashSet<&str> = expression.outputs().collect();
        let mut given = HashSet::new();
        for (name, _) in &self.inputs {
            let name = name.as_str();
            if !given.insert(name) {
                return Err(JobError::GivenTwice { role: "input", name: name.into() }.into());
            }
            if assigned.contains(name) {
                return Err(JobError::Assigned { name: name.into(), role: "an input" }.into());
            }
            if !read.contains(name) {
                let message = format!("the expression has no name '{name}'; it reads {}", list(expression.inputs()));
                return Err(JobError::UnknownName { name: name.into(), message }.into());
            }
        }
        let mut valued = HashSet::new();
        for name in self.value_names() {
            if !valued.insert(name) {
                return Err(JobError::GivenTwice { role: "value", name: name.into() }.into());
            }
            if !given.insert(name) {
                return Err(JobError::InputAndValue { name: name.into() }.into());
            }
            if assigned.contains(name) {
                return Err(JobError::Assigned { name: name.into(), role: "a value" }.into());
            }
            if !read.contains(name) {
                let message = format!(
                    "the expression has no name '{name}' that could have a value; it reads {}",
                    list(expression.inputs())
                );
                return Err(JobError::UnknownName { name: name.into(), message }.into());
            }
        }
        let mut written = HashSet::new();
        for (name, _) in self.all_outputs() {
            if !written.insert(name) {
                return Err(JobError::GivenTwice { role: "output", name: name.into() }.into());
            }
        }
        for (name, _) in &self.outputs {
            let name = name.as_str();
            if !assigned.contains(name) {
                let message =
                    format!("the expression does not assign '{name}'; it assigns {}", list(expression.outputs()));
                return Err(JobError::UnknownName { name: name.into(), message }.into());
            }
        }
        match expression.inputs().find(|name| !given.contains(name)) {
            Some(missing) => {
                Err(JobError::MissingName { name: missing.into(), message: expr::unbound(missing) }.into())
            }
            None => Ok(()),
        }
    }
}

fn list<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let names: Vec<_> = names.map(|name| format!("'{name}'")).collect();
    if names.is_empty() { "nothing".into() } else { names.join(", ") }
}

impl std::fmt::Debug for Job<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job")
            .field("what", &self.what.text())
            .field("inputs", &self.inputs)
            .field("values", &self.values)
            .field("numbers", &self.numbers)
            .field("outputs", &self.outputs)
            .finish_non_exhaustive()
    }
}
