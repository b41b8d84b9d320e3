//! Virtual time: the start and end of each operation of each stream on a device with one engine for copies in, one
//! for kernels and one for copies out.
//!
//! An engine runs the operation that was ready first. Work enqueued later can change only operations that start
//! later. So times are settled up to the current time of the host, and no further. To look ahead, [`Clock::time_of`]
//! simulates on a copy.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::error::Result;
use crate::panics::Panic;

/// A recorded point in the work of a stream.
pub(super) struct Mark {
    id: u64,
    /// Whether the work before it has run. This is independent of virtual time.
    pub(super) done: AtomicBool,
    /// Its virtual time, once it is settled.
    pub(super) at: OnceLock<Duration>,
    /// The panic of a kernel before it, on its stream or on one that its stream has waited for.
    pub(super) panic: OnceLock<Panic>,
}

impl Mark {
    /// Returns whether the work before it has run.
    ///
    /// # Errors
    /// [`Error::Panicked`](crate::Error::Panicked) if a kernel of this work has panicked.
    pub(super) fn is_done(&self) -> Result<bool> {
        let is_done = self.done.load(Ordering::Acquire);
        match self.panic.get() {
            Some(panic) if is_done => Err(panic.clone().into()),
            _ => Ok(is_done),
        }
    }
}

#[derive(Clone, Copy)]
pub(super) enum Engine {
    CopyIn,
    Compute,
    CopyOut,
}

#[derive(Clone)]
enum Step {
    Work { engine: Engine, cost: Duration, enqueued: Duration },
    Record { mark: Arc<Mark>, enqueued: Duration },
    Wait(Arc<Mark>),
}

#[derive(Clone, Default)]
struct Line {
    end: Duration,
    steps: VecDeque<Step>,
}

#[derive(Clone, Default)]
pub(super) struct Clock {
    lines: BTreeMap<u64, Line>,
    /// The time when each engine is free again.
    engines: [Duration; 3],
    marks: u64,
    /// Whether no operation takes time. There is nothing to settle or to look ahead to then.
    timeless: bool,
}

impl Clock {
    pub(super) fn new(timeless: bool) -> Self {
        Clock { timeless, ..Clock::default() }
    }

    pub(super) fn work(&mut self, stream: u64, engine: Engine, cost: Duration, enqueued: Duration) {
        if !self.timeless {
            self.line(stream).steps.push_back(Step::Work { engine, cost, enqueued });
        }
    }

    pub(super) fn record(&mut self, stream: u64, enqueued: Duration) -> Arc<Mark> {
        self.marks += 1;
        let mark = Mark { id: self.marks, done: AtomicBool::new(false), at: OnceLock::new(), panic: OnceLock::new() };
        let mark = Arc::new(mark);
        if self.timeless {
            let _ = mark.at.set(enqueued);
        } else {
            self.line(stream).steps.push_back(Step::Record { mark: mark.clone(), enqueued });
        }
        mark
    }

    pub(super) fn wait(&mut self, stream: u64, mark: &Arc<Mark>) {
        if !self.timeless {
            self.line(stream).steps.push_back(Step::Wait(mark.clone()));
        }
    }

    /// Removes a stream. Its recorded marks count as reached.
    pub(super) fn close(&mut self, stream: u64) {
        let Some(line) = self.lines.remove(&stream) else { return };
        for step in line.steps {
            if let Step::Record { mark, .. } = step {
                let _ = mark.at.set(line.end);
            }
        }
    }

    /// Settles all operations that start up to `now`.
    pub(super) fn settle(&mut self, now: Duration) {
        while self.advance(now, &mut None).is_some() {}
    }

    /// Returns when `mark` will be reached if nothing more is enqueued.
    pub(super) fn time_of(&self, mark: &Mark) -> Duration {
        if let Some(at) = mark.at.get() {
            return *at;
        }
        let (mut ahead, mut reached) = (self.clone(), Some(HashMap::new()));
        while time(mark, &reached).is_none() && ahead.advance(Duration::MAX, &mut reached).is_some() {}
        time(mark, &reached).unwrap_or_default()
    }

    fn line(&mut self, stream: u64) -> &mut Line {
        self.lines.entry(stream).or_default()
    }

    /// Runs the step that starts first, unless it starts after `limit`. Reached marks are inserted into `reached` if
    /// it is given; otherwise they are settled.
    fn advance(&mut self, limit: Duration, reached: &mut Option<HashMap<u64, Duration>>) -> Option<()> {
        let starts = self.lines.iter().filter_map(|(&stream, line)| {
            let (ready, free) = match line.steps.front()? {
                Step::Work { engine, enqueued, .. } => (line.end.max(*enqueued), self.engines[*engine as usize]),
                Step::Record { enqueued, .. } => (line.end.max(*enqueued), Duration::ZERO),
                Step::Wait(mark) => (line.end.max(time(mark, reached)?), Duration::ZERO),
            };
            Some((ready.max(free), ready, stream))
        });
        let (start, _, stream) = starts.min()?;
        if start > limit {
            return None;
        }
        let line = self.lines.get_mut(&stream)?;
        line.end = start;
        match line.steps.pop_front()? {
            Step::Work { engine, cost, .. } => {
                line.end = start.saturating_add(cost);
                self.engines[engine as usize] = line.end;
            }
            Step::Record { mark, .. } => match reached {
                Some(reached) => {
                    reached.insert(mark.id, start);
                }
                None => {
                    let _ = mark.at.set(start);
                }
            },
            Step::Wait(_) => {}
        }
        Some(())
    }
}

fn time(mark: &Mark, reached: &Option<HashMap<u64, Duration>>) -> Option<Duration> {
    mark.at.get().or_else(|| reached.as_ref()?.get(&mark.id)).copied()
}
