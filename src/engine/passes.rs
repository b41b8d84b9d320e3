//! Passes over the same rows. Each is a run of its own, prepared while the previous pass runs.
//!
//! ```text
//!  pass 1  ready │ claims … dry │ drains │
//!  pass 2        ready … waits  │ fills, copies in │ values known: all the rest … dry │ drains │
//!  pass 3                                          ready … waits                      │ …
//!  caller                              set(), run() ┘
//! ```
//! The preparation of a pass begins when the previous pass is prepared, so there are two passes at a time. The workers
//! of a pass start when the previous pass has no chunks left to claim ("dry"), and proceed as far as is possible
//! without the values.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, Scope, ScopedJoinHandle};

use super::Engine;
use super::check::{BoundJob, bind, value_dtype};
use super::versions::Versions;
use crate::data::Scalar;
use crate::device::kernel::LateScalars;
use crate::error::{Error, JobError, Result};
use crate::job::{Job, JobBody};
use crate::memory::InRun;
use crate::report::Report;
use crate::{panics, threads};

/// The note on a pass that ran alone because it copies a dataset.
const FILLS: &str = "the next pass did not begin before the end of this one, which copies a dataset to devices";

/// The relation of a run to other runs. By default, it is alone.
#[derive(Default)]
pub(super) struct PassContext {
    /// Whether the run shares the limits of the engine with another pass.
    pub(super) is_half: bool,
    /// Whether the run begins within another run.
    pub(super) nested: bool,
    pub(super) place: Place,
    /// Receives a message when all chunks are claimed.
    pub(super) exhausted: Option<Sender<()>>,
    /// The versions of the inputs, if they were asked for before the run.
    pub(super) versions: Option<Versions>,
}

/// The place of a run among passes.
#[derive(Default)]
pub(super) struct Place {
    /// Receives a message when the run is prepared: whether it copies a dataset to devices, which one run at a time
    /// can do.
    ready: Option<Sender<bool>>,
    /// The previous pass, which sends a message when it has no chunks left to claim.
    before: Option<Receiver<()>>,
}

impl Place {
    /// Returns whether another pass runs before this one.
    pub(super) fn is_behind(&self) -> bool {
        self.before.is_some()
    }

    /// Reports that the run is prepared. Returns a function that waits until the run may begin, and that returns
    /// [`Error::Abandoned`] if the previous pass was stopped; `None` if there is no previous pass.
    pub(super) fn take(self, is_filling: bool) -> Option<impl FnOnce() -> Result<()>> {
        if let Some(ready) = self.ready {
            // Nobody listens once the passes have ended.
            let _ = ready.send(is_filling);
        }
        self.before.map(|before| move || before.recv().map_err(|_| Error::abandoned()))
    }
}

/// A pass on its thread. If it is dropped before it has its values, it ends by itself.
struct Pass<'s> {
    values: LateScalars,
    ready: Receiver<bool>,
    exhausted: Option<Receiver<()>>,
    thread: ScopedJoinHandle<'s, Result<Report>>,
}

impl Pass<'_> {
    /// Waits until the pass ends.
    fn end(self) -> Result<Report> {
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Engine {
    /// Runs a job several times over the same rows, each time with other [values](Job::scalar). For algorithms whose
    /// next pass depends on the results of the previous one.
    ///
    /// `body` runs the passes: [`Passes::run`] runs one and returns its report, and [`Passes::set`] changes a value
    /// for the next one. The first pass has the values of the job. `passes` returns what `body` returns.
    ///
    /// The results are those of as many single [runs](Engine::run), but the link is not idle in between. The next pass
    /// is prepared while the current one runs. As soon as the current pass has no chunks left to claim, the first rows
    /// of the next pass are read and copied to the devices ([`Report::bytes_ahead`]). Only the kernels wait for the
    /// values, until the next [`Passes::run`]. If that call never comes, these rows were read and copied for nothing.
    ///
    /// Passes help with datasets that stay on the devices as far as they fit ([`resident`](Engine::resident)). Rows
    /// that every pass stages anew gain nothing, because the pinned memory of both passes shares the cache.
    ///
    /// Two passes exist at the same time, so each has half of the memory limits. If that is too little, or a device
    /// has no memory for two, passes run one after the other, and each report has a note. A pass that copies a
    /// dataset to the devices ([`resident`](Engine::resident)) also runs alone, with a note.
    ///
    /// Progress restarts in each pass. A [`CancelToken`](crate::CancelToken) ends the current pass.
    ///
    /// ```
    /// use overshot::{DeviceChoice, Engine, Job};
    /// let engine = Engine::builder().device(DeviceChoice::Cpu).build()?;
    /// let x = vec![1.0, 2.0, 3.0, 4.0, 100.0];
    /// let job = Job::eval("m = mean(clip(x, center - 5, center + 5))")?.input("x", &x).scalar("center", 0.0);
    /// let center = engine.passes(job, |passes| {
    ///     let mut center = 0.0;
    ///     loop {
    ///         let mean = passes.run()?.value("m")?.map_or(center, |mean| mean.as_f64());
    ///         if (mean - center).abs() < 1e-9 {
    ///             return Ok(mean);
    ///         }
    ///         center = mean;
    ///         passes.set("center", center)?;
    ///     }
    /// })?;
    /// assert!((center - 3.75).abs() < 1e-6);
    /// # Ok::<(), overshot::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidJob`] for a job with outputs or without values, and for custom kernels. Errors of
    /// [`run`](Engine::run) that are detected before a run, and errors that `body` returns; [`Error::other`] wraps
    /// other errors of the caller.
    ///
    /// # Panics
    /// Those of `body`.
    pub fn passes<R>(&self, job: Job<'_>, body: impl FnOnce(&mut Passes<'_, '_>) -> Result<R>) -> Result<R> {
        check(&job)?;
        let bound = panics::caught_in_job(|| bind(&job))?;
        // Jobs that `body` runs count as runs within the pass that waits for its values.
        let nested = InRun::is_entered();
        let _in_run = InRun::enter();
        thread::scope(|scope| {
            let values = job.values.clone();
            let mut passes =
                Passes { engine: self, scope, job: &job, bound: &bound, nested, values, next: None, alone: None };
            body(&mut passes)
        })
    }
}

/// Passes of a job over the same rows: see [`Engine::passes`].
///
/// ```
/// use overshot::{DeviceChoice, Engine, Job};
/// let engine = Engine::builder().device(DeviceChoice::Cpu).build()?;
/// let (x, mut counts) = (vec![1.0, 2.0, 3.0], Vec::new());
/// engine.passes(Job::eval("n = count(x > limit)")?.input("x", &x).scalar("limit", 0.0), |passes| {
///     for limit in [0.5, 1.5, 2.5] {
///         passes.set("limit", limit)?;
///         counts.push(passes.run()?.value("n")?.map(|n| n.as_f64()));
///     }
///     Ok(())
/// })?;
/// assert_eq!(counts, [Some(3.0), Some(2.0), Some(1.0)]);
/// # Ok::<(), overshot::Error>(())
/// ```
pub struct Passes<'s, 'e> {
    engine: &'s Engine,
    scope: &'s Scope<'s, 'e>,
    job: &'s Job<'s>,
    bound: &'s BoundJob,
    /// Whether the passes began within another run.
    nested: bool,
    /// The values of the next pass.
    values: Vec<(String, Scalar)>,
    /// The next pass, if it began during the previous one. It waits for its values.
    next: Option<Pass<'s>>,
    /// The reason why passes run one after the other, if they do.
    alone: Option<String>,
}

impl Passes<'_, '_> {
    /// Sets a value of the next pass. Values that are not set stay as they are.
    ///
    /// # Errors
    /// [`Error::InvalidJob`] if the job has no such value, or has it with another dtype.
    pub fn set(&mut self, name: &str, value: impl Into<Scalar>) -> Result<()> {
        let value = value.into();
        let Some((_, old)) = self.values.iter_mut().find(|(own, _)| own == name) else {
            return Err(JobError::UnknownValue { name: name.into() }.into());
        };
        if old.dtype() != value.dtype() {
            return Err(value_dtype(name, old.dtype(), value.dtype()));
        }
        *old = value;
        Ok(())
    }

    /// Runs the next pass to its end, and prepares the one after it at the same time.
    ///
    /// # Errors
    /// Those of [`Engine::run`]. A later call runs the pass again.
    pub fn run(&mut self) -> Result<Report> {
        let bits = self.bound.bits_of(&self.values)?;
        let mut pass = match self.next.take() {
            Some(next) => {
                next.values.set(bits.clone());
                next
            }
            None => self.begin(Some(&bits), self.alone.is_none(), None)?,
        };
        let is_filling = loop {
            let Ok(is_filling) = pass.ready.recv() else {
                match pass.end() {
                    Err(error @ (Error::Budget { .. } | Error::OutOfMemory { .. })) if self.alone.is_none() => {
                        self.alone = Some(format!(
                            "passes ran one after the other: there is too little memory for two at once, each \
                             with half of the \
                             limits ({error})"
                        ));
                        pass = self.begin(Some(&bits), false, None)?;
                        continue;
                    }
                    ended => return ended,
                }
            };
            break is_filling;
        };
        // The pass that is needed now takes its memory first.
        if let Some(exhausted) = pass.exhausted.take().filter(|_| self.alone.is_none() && !is_filling) {
            self.next = Some(self.begin(None, true, Some(exhausted))?);
        }
        let mut report = match pass.end() {
            Ok(report) => report,
            Err(error) => {
                // It waits for the pass that failed, and never gets rows.
                self.next = None;
                return Err(error);
            }
        };
        report.notes.extend(self.alone.clone());
        report.notes.extend(is_filling.then(|| FILLS.to_owned()));
        Ok(report)
    }
}

impl<'s> Passes<'s, '_> {
    /// Begins a pass on a new thread: after another pass, or at once. Its values may be set later.
    fn begin(&self, bits: Option<&[u64]>, is_half: bool, before: Option<Receiver<()>>) -> Result<Pass<'s>> {
        let (engine, nested) = (self.engine, self.nested);
        let job = self.job.again();
        let bound = panics::caught_in_job(|| bind(&job))?;
        let values = LateScalars::new(bound.operator.kernel().values.clone());
        if let Some(bits) = bits {
            values.set(bits.to_vec());
        }
        let (ready, is_ready) = channel();
        let (exhausted, is_exhausted) = channel();
        let place = Place { ready: Some(ready), before };
        let context = PassContext { is_half, nested, place, exhausted: Some(exhausted), versions: None };
        let run = move || panics::caught_in_job(|| engine.run_pass(job, &bound, context)?.commit());
        let thread = thread::Builder::new().name("pass".into()).spawn_scoped(self.scope, run);
        let thread = thread.map_err(|error| threads::not_started(&error))?;
        Ok(Pass { values, ready: is_ready, exhausted: Some(is_exhausted), thread })
    }
}

impl std::fmt::Debug for Passes<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Passes").field("job", self.job).field("values", &self.values).finish_non_exhaustive()
    }
}

/// Checks that a job can run in passes.
fn check(job: &Job<'_>) -> Result<()> {
    if job.all_outputs().next().is_some() || matches!(job.what, JobBody::Kernel(_)) {
        return Err(JobError::PassesNeedReductions.into());
    }
    if job.values.is_empty() {
        return Err(JobError::PassesNeedValues.into());
    }
    Ok(())
}
