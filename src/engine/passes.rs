//! Passes over the same rows: each is a run by itself, made ready while the pass before it runs.
//!
//! ```text
//!  pass 1  ready │ claims … dry │ drains │
//!  pass 2        ready … waits  │ fills, copies in │ values known: all the rest … dry │ drains │
//!  pass 3                                          ready … waits                      │ …
//!  caller                                next()  ──┘
//! ```
//! A pass begins to get ready when the one before it has all it needs, so that there are two at a time; its workers start when that
//! has nothing left to claim, and go as far as they can without the values.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, Scope, ScopedJoinHandle};

use super::Engine;
use super::check::bind;
use crate::data::Scalar;
use crate::device::kernel::ScalarArgs;
use crate::error::{Error, Result};
use crate::job::{Job, JobBody};
use crate::memory::InRun;
use crate::report::Report;
use crate::threads;

/// The note on a pass that had nobody beside it for this reason.
const FILLS: &str = "the next pass did not begin before the end of this one, which copies a dataset to devices";

/// How a run stands to others. By default it is alone.
#[derive(Default)]
pub(super) struct PassContext {
    /// Whether it shares the limits of the engine with another pass.
    pub(super) is_half: bool,
    /// Whether it begins within another run.
    pub(super) nested: bool,
    pub(super) place: Place,
    /// Who is told once all its chunks are claimed.
    pub(super) exhausted: Option<Sender<()>>,
}

/// Where a run stands among passes.
#[derive(Default)]
pub(super) struct Place {
    /// Who is told that the run has all it needs, and whether it copies a dataset to devices, which one run at a time can.
    ready: Option<Sender<bool>>,
    /// The pass before, which tells when it has nothing left to claim.
    before: Option<Receiver<()>>,
}

impl Place {
    /// Whether another pass runs before it.
    pub(super) fn is_behind(&self) -> bool {
        self.before.is_some()
    }

    /// Says that the run has all it needs; returns what to wait for before it begins, which is [`Error::Abandoned`] if the pass
    /// before it was stopped.
    pub(super) fn take(self, is_filling: bool) -> Option<impl FnOnce() -> Result<()>> {
        if let Some(ready) = self.ready {
            // Nobody listens once the passes have ended.
            let _ = ready.send(is_filling);
        }
        self.before.map(|before| move || before.recv().map_err(|_| Error::Abandoned))
    }
}

/// A pass on its thread. Dropped before it has its values, it ends by itself.
struct Pass<'s> {
    values: Late,
    ready: Receiver<bool>,
    exhausted: Option<Receiver<()>>,
    thread: ScopedJoinHandle<'s, Result<Report>>,
}

/// ScalarArgs that are given up if they are dropped unknown, so that nobody waits for them any more.
struct Late(Arc<ScalarArgs>);

impl Drop for Late {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

impl Pass<'_> {
    /// Waits for its end.
    fn end(self) -> Result<Report> {
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Engine {
    /// Runs a job again and again over the same rows, each time with other [values](Job::scalar), for algorithms whose next pass
    /// depends on the results of the one before.
    ///
    /// The first pass has the values of the job. After each pass `next` is called on this thread with its report, and gives the values
    /// of the next one, of the dtypes that they have in the job; those that it leaves out stay as they are. `None` ends it, and
    /// the last report is returned.
    ///
    /// The results are those of as many single [runs](Engine::run), but the link does not stand still in between: the next pass gets
    /// ready while one runs, and as soon as that has no more rows to hand out, the first rows of the next one are read and copied to
    /// the devices ([`Report::bytes_ahead`]); only the kernels wait for the values. That is for datasets that stay on the devices as far
    /// as they fit ([`resident`](Engine::resident)): what is staged anew in every pass gains nothing, as the pinned memory of two passes
    /// shares the cache. When `next` ends it, that was
    /// in vain: the sources were read a little once more.
    ///
    /// Two passes at once share the limits on memory, half each. If that is too little, or a device has no memory for two, passes run one
    /// after the other, with a note in each report. A pass that copies a dataset to devices first ([`resident`](Engine::resident))
    /// has none beside it, and a note, too.
    ///
    /// Progress counts anew in each pass, and a [`CancelToken`](crate::CancelToken) ends the current one, and with it all.
    ///
    /// ```
    /// use overshot::{DeviceChoice, Engine, Job};
    /// let engine = Engine::builder().device(DeviceChoice::Cpu).build()?;
    /// let x = vec![1.0, 2.0, 3.0, 4.0, 100.0];
    /// let job = Job::eval("m = mean(clip(x, center - 5, center + 5))")?.input("x", &x).scalar("center", 0.0);
    /// let mut center = 0.0;
    /// let last = engine.passes(job, |report| {
    ///     let before = std::mem::replace(&mut center, report.value("m").ok()??.as_f64());
    ///     ((center - before).abs() > 1e-9).then_some([("center", center)])
    /// })?;
    /// assert_eq!(last.value("m")?.map(|m| m.as_f64()), Some(center));
    /// # Ok::<(), overshot::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Job`] for a job with outputs or without values, and for kernels of the caller's own; also if `next` gives values that the
    /// job does not have, or of another dtype. All others are those of [`run`](Engine::run), of the first pass that has one.
    ///
    /// # Panics
    /// As [`run`](Engine::run), and when `next` panics.
    pub fn passes<I, N, V>(&self, job: Job<'_>, mut next: impl FnMut(&Report) -> Option<I>) -> Result<Report>
    where
        I: IntoIterator<Item = (N, V)>,
        N: Into<String>,
        V: Into<Scalar>,
    {
        check(&job)?;
        let bound = bind(&job)?;
        let mut values = job.values.clone();
        // What `next` runs is within the pass that waits for its values.
        let nested = InRun::is_entered();
        let _in_run = InRun::enter();
        thread::scope(|scope| {
            let begin = |bits: &[u64], is_half| self.begin(scope, &job, Some(bits), (is_half, nested), None);
            // Why there are no two passes at once, if there are not.
            let mut alone: Option<String> = None;
            let mut bits = bound.bits_of(&values)?;
            let mut pass = begin(&bits, true)?;
            loop {
                let Ok(is_filling) = pass.ready.recv() else {
                    match pass.end() {
                        Err(error @ (Error::Budget { .. } | Error::OutOfMemory { .. })) if alone.is_none() => {
                            alone = Some(format!(
                                "passes ran one after the other: there is too little memory for two at once, each with half of the limits ({error})"
                            ));
                            pass = begin(&bits, false)?;
                            continue;
                        }
                        ended => return ended,
                    }
                };
                // Not before the pass that is needed has its memory.
                let ahead = match pass.exhausted.take() {
                    Some(exhausted) if alone.is_none() && !is_filling => {
                        Some(self.begin(scope, &job, None, (true, nested), Some(exhausted))?)
                    }
                    _ => None,
                };
                let mut report = pass.end()?;
                report.notes.extend(alone.clone());
                report.notes.extend(is_filling.then(|| FILLS.to_owned()));
                let Some(new) = next(&report) else { return Ok(report) };
                let new: Vec<_> = new.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
                values.retain(|(name, _)| !new.iter().any(|(other, _)| other == name));
                values.extend(new);
                bits = bound.bits_of(&values)?;
                pass = match ahead {
                    Some(ahead) => {
                        ahead.values.0.set(bits.clone());
                        ahead
                    }
                    None => begin(&bits, alone.is_none())?,
                };
            }
        })
    }

    /// Begins a pass on a thread of its own: behind another one, or at once; its values may come later.
    fn begin<'s>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        job: &'s Job<'_>,
        bits: Option<&[u64]>,
        (is_half, nested): (bool, bool),
        before: Option<Receiver<()>>,
    ) -> Result<Pass<'s>> {
        let job = job.again();
        let bound = bind(&job)?;
        let values = Late(bound.operator.kernel().values.clone());
        if let Some(bits) = bits {
            values.0.set(bits.to_vec());
        }
        let (ready, is_ready) = channel();
        let (exhausted, is_exhausted) = channel();
        let context =
            PassContext { is_half, nested, place: Place { ready: Some(ready), before }, exhausted: Some(exhausted) };
        let run = move || self.run_pass(job, bound, context);
        let thread = thread::Builder::new().name("pass".into()).spawn_scoped(scope, run);
        let thread = thread.map_err(|error| threads::not_started(&error))?;
        Ok(Pass { values, ready: is_ready, exhausted: Some(is_exhausted), thread })
    }
}

/// Whether passes of a job make sense.
fn check(job: &Job<'_>) -> Result<()> {
    if !job.outputs.is_empty() || matches!(job.what, JobBody::Kernel(_)) {
        return Err(Error::Job(
            "passes are for reductions: leave out outputs, and run kernels of your own and jobs with outputs once, after them".into(),
        ));
    }
    if job.values.is_empty() {
        return Err(Error::Job(
            "the job has no values, so that all passes would be the same: give it some, or run it once".into(),
        ));
    }
    Ok(())
}
