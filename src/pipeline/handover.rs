//! The hand-over of chunks between the staging workers of a device and its submitter.
//!
//! ```text
//!  workers ──Filled──▶ submitter ──Done──▶ the worker that filled the slot
//! ```
//! There is one channel to the submitter, and one to each worker. The rules:
//!
//! * **Order.** The submitter enqueues chunks in the order in which they arrive, and looks for them in the same order.
//!   So each worker gets its chunks back in the order in which it sent them.
//! * **Capacity.** Every channel has capacity for all slots that can be in it, so a send never waits.
//! * **Late values.** Until the kernel's values are known (see [`ScalarArgs`]), the submitter enqueues only the copies
//!   in, and holds the chunks in `ahead`. Once the values are known, it launches these chunks first, in the same order.
//! * **Fills.** What is said of chunks here is also true of the fills of a large chunk, of which the last one has all
//!   work but the copies in of the others.
//! * **Room.** A chunk that the device does not accept yet is held in `ahead`, too, and others may overtake it; not
//!   those of its worker, which are accepted later.
//! * **End.** A worker without chunks drops its sender. The submitter ends when all workers have done so, and nothing
//!   is left to enqueue or in flight. When one side fails, it drops its ends. A worker without a submitter ends with
//!   [`Error::abandoned`]; the submitter goes on for the other workers.
//!
//! The work on the device is behind the trait [`Enqueue`], so that `tests/schedules` can run the hand-over under many
//! schedules without a device.

use std::collections::VecDeque;

use crate::device::kernel::ScalarArgs;
use crate::error::{Error, Result};
use crate::sync::{Receiver, Sender, TryRecvError, bounded};

/// The work of a submitter on its device. Every function gets the chunks in flight, oldest first, for error messages.
pub(super) trait Enqueue {
    /// A chunk in the slot that its worker filled.
    type Filled;
    /// A chunk whose work is enqueued.
    type InFlight;
    /// A chunk whose work is done.
    type Done;

    /// Returns whether a chunk can be enqueued now: there is memory for all that it leaves on the device.
    fn accepts(&self, _filled: &Self::Filled) -> bool {
        true
    }

    /// Does what chunks that were enqueued before have left to do. Looks for what is done if it `may_look`. Returns
    /// whether there was anything.
    fn advance(&mut self, _may_look: bool) -> Result<bool> {
        Ok(false)
    }

    /// Returns whether chunks have left nothing to do.
    fn is_idle(&self) -> bool {
        true
    }

    /// Enqueues only the copies in of a chunk, if there is memory for them.
    fn copy_ahead(&mut self, filled: &mut Self::Filled, in_flight: &VecDeque<Self::InFlight>) -> Result<()>;

    /// Enqueues all work of a chunk, except the copies in if these were enqueued ahead.
    fn submit(&mut self, filled: Self::Filled, in_flight: &VecDeque<Self::InFlight>) -> Result<Self::InFlight>;

    /// Returns the oldest chunk and the number of its worker if the chunk is done, otherwise the same chunk.
    /// `in_flight` holds the younger ones.
    fn finish(&mut self, oldest: Self::InFlight, in_flight: &VecDeque<Self::InFlight>) -> Result<Finished<Self>>;
}

/// The number of a worker and its chunk, which is done, or the same chunk in flight.
pub(super) type Finished<E> = Result<(usize, <E as Enqueue>::Done), <E as Enqueue>::InFlight>;

/// How the ends of the hand-over wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    /// They do not: all of them take turns on one thread.
    TakesTurns,
    /// The caller polls, because a thread that sleeps wakes late.
    Polls,
    /// They sleep where they can, because other threads need the cores.
    Sleeps,
}

/// Creates both sides of the hand-over for `workers` workers with `slots` slots each.
pub(super) fn connect<'r, E: Enqueue>(
    (workers, slots): (usize, usize),
    values: &'r ScalarArgs,
    waiting: Waiting,
) -> (Vec<WorkerEnd<'r, E>>, SubmitterEnd<'r, E>) {
    let (submitter, filled) = bounded(workers * slots);
    let (to_workers, dones): (Vec<_>, Vec<_>) = (0..workers).map(|_| bounded(slots)).unzip();
    let end = |done| WorkerEnd { submitter: Some(submitter.clone()), done, values, waiting };
    let ends = dones.into_iter().map(end).collect();
    let in_flight = VecDeque::with_capacity(workers * slots);
    (ends, SubmitterEnd { in_flight, ahead: VecDeque::new(), filled, done: to_workers, values, waiting })
}

/// A worker's end of the hand-over.
pub(super) struct WorkerEnd<'r, E: Enqueue> {
    /// `None` after the end.
    submitter: Option<Sender<E::Filled>>,
    done: Receiver<E::Done>,
    values: &'r ScalarArgs,
    waiting: Waiting,
}

impl<E: Enqueue> WorkerEnd<'_, E> {
    /// Sends a chunk to the submitter.
    ///
    /// # Errors
    /// [`Error::abandoned`] if the submitter failed.
    pub(super) fn send(&self, filled: E::Filled) -> Result<()> {
        let submitter = self.submitter.as_ref().ok_or_else(Error::abandoned)?;
        // The channel has capacity for all slots, so this fails only if the submitter ended because the device
        // failed.
        submitter.try_send(filled).map_err(|_| Error::abandoned())
    }

    /// Returns the oldest chunk that was sent and not received, if it is back. Before the values are known, no chunk
    /// comes back, so this waits for them first, unless all workers share a thread. At least one chunk must have been
    /// sent and not received.
    ///
    /// # Errors
    /// [`Error::abandoned`] if the submitter failed.
    pub(super) fn receive(&self) -> Result<Option<E::Done>> {
        match self.done.try_recv() {
            Ok(done) => Ok(Some(done)),
            Err(TryRecvError::Empty) => {
                if self.waiting != Waiting::TakesTurns && !self.values.are_known() {
                    // The previous pass needs the core.
                    self.values.wait();
                }
                match self.waiting {
                    Waiting::Sleeps => self.done.recv().map(Some).map_err(|_| Error::abandoned()),
                    _ => Ok(None),
                }
            }
            Err(TryRecvError::Disconnected) => Err(Error::abandoned()),
        }
    }

    /// Returns whether the submitter is gone. Drops chunks that are back.
    pub(super) fn is_closed(&self) -> bool {
        loop {
            match self.done.try_recv() {
                Ok(_) => {}
                Err(TryRecvError::Empty) => return false,
                Err(TryRecvError::Disconnected) => return true,
            }
        }
    }

    /// Returns whether a chunk is back.
    pub(super) fn has_done(&self) -> bool {
        !self.done.is_empty()
    }

    /// Tells the submitter that this worker sends no more chunks.
    pub(super) fn end(&mut self) {
        self.submitter = None;
    }
}

/// The submitter's end of the hand-over.
pub(super) struct SubmitterEnd<'r, E: Enqueue> {
    /// Chunks whose work is enqueued, oldest first. They are looked for in this order, because every stream has them in
    /// this order. So a slot behind which other fills of its chunk follow comes back behind the chunks before it.
    in_flight: VecDeque<E::InFlight>,
    /// Chunks that wait for the kernel's values, oldest first. The copies in of the first ones are enqueued.
    ahead: VecDeque<E::Filled>,
    filled: Receiver<E::Filled>,
    /// The channels to the workers, by number of the worker.
    done: Vec<Sender<E::Done>>,
    values: &'r ScalarArgs,
    waiting: Waiting,
}

/// The result of a step of the submitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A chunk was enqueued or returned, or the values have become known: another step may follow at once.
    Advanced,
    /// There was nothing to do. The caller backs off before the next step.
    Idle,
    /// All workers have ended, and nothing is in flight.
    Ended,
}

impl<E: Enqueue> SubmitterEnd<'_, E> {
    /// Enqueues a chunk, and returns one that is done to its worker.
    ///
    /// # Errors
    /// Those of the device; [`Error::abandoned`] if the values were abandoned.
    pub(super) fn step(&mut self, device: &mut E) -> Result<Step> {
        // Read once per step: a chunk must not overtake the chunks ahead of it, which hold blocks.
        let has_values = self.values.are_known();
        let launches = if has_values { self.take_ahead(device) } else { None };
        let is_empty = self.in_flight.is_empty() && self.ahead.is_empty() && launches.is_none() && device.is_idle();
        let next = match launches {
            Some(filled) => Ok(filled),
            None if is_empty && self.waiting == Waiting::Sleeps => {
                self.filled.recv().map_err(|_| TryRecvError::Disconnected)
            }
            None => self.filled.try_recv(),
        };
        let is_over = next.as_ref().is_err_and(TryRecvError::is_disconnected) && self.in_flight.is_empty();
        if is_over && self.ahead.is_empty() && device.is_idle() {
            return Ok(Step::Ended);
        }
        let submits = next.is_ok();
        if let Ok(filled) = next {
            self.submit(filled, has_values, device)?;
        }
        // In a cooperative schedule `look` advances virtual time, so it must not run in the step that submits.
        let takes_turns = self.waiting == Waiting::TakesTurns;
        let may_look = !(submits && takes_turns);
        let finds = may_look && self.look(device)?;
        if device.advance(may_look && !(takes_turns && finds))? | submits | finds {
            return Ok(Step::Advanced);
        }
        if self.values.are_abandoned() {
            return Err(Error::abandoned());
        }
        if has_values {
            return Ok(Step::Idle);
        }
        if takes_turns && !self.ahead.is_empty() || Some(self.ahead.len()) == self.filled.capacity() {
            // Nothing can proceed without the values: all slots are here, or all workers share this thread.
            self.values.wait();
            return Ok(Step::Advanced);
        }
        Ok(Step::Idle)
    }

    /// Does a step of a device that ends early: returns a chunk that is done to its worker, and enqueues no others.
    /// Returns whether anything is in flight.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn end_early(&mut self, device: &mut E) -> Result<bool> {
        let finds = self.look(device)?;
        device.advance(!(finds && self.waiting == Waiting::TakesTurns))?;
        Ok(!self.in_flight.is_empty() || !device.is_idle())
    }

    /// Takes the oldest of the chunks that wait and are accepted.
    fn take_ahead(&mut self, device: &E) -> Option<E::Filled> {
        let place = self.ahead.iter().position(|filled| device.accepts(filled))?;
        self.ahead.remove(place)
    }

    /// Enqueues a chunk; only its copies in, if the kernel's values are not known; and nothing, if the device has no
    /// room for it.
    fn submit(&mut self, mut filled: E::Filled, has_values: bool, device: &mut E) -> Result<()> {
        if has_values && !device.accepts(&filled) {
            self.ahead.push_back(filled);
        } else if has_values {
            self.in_flight.push_back(device.submit(filled, &self.in_flight)?);
        } else {
            device.copy_ahead(&mut filled, &self.in_flight)?;
            self.ahead.push_back(filled);
        }
        Ok(())
    }

    /// Returns the oldest chunk to its worker if it is done. Returns whether it was.
    fn look(&mut self, device: &mut E) -> Result<bool> {
        let Some(oldest) = self.in_flight.pop_front() else { return Ok(false) };
        match device.finish(oldest, &self.in_flight)? {
            Ok((worker, done)) => {
                // The channel has capacity for all slots of the worker. If the worker has ended, it failed, and the
                // run fails with it.
                let _ = self.done[worker].try_send(done);
                Ok(true)
            }
            Err(oldest) => {
                self.in_flight.push_front(oldest);
                Ok(false)
            }
        }
    }

    /// Returns whether there is a chunk to enqueue.
    pub(super) fn has_next(&self, device: &E) -> bool {
        let is_accepted = |filled| device.accepts(filled);
        !self.filled.is_empty() || self.values.are_known() && self.ahead.iter().any(is_accepted)
    }

    /// Returns the oldest chunk in flight.
    pub(super) fn oldest(&self) -> Option<&E::InFlight> {
        self.in_flight.front()
    }
}
