//! Streams and events of the emulated device.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::machine::{HostSpan, Launch, Machine, Mark, Operation, failure};
use super::options::Emulated;
use super::{EmulatedDevice, EmulatedKernel, EmulatedMemory, lock};
use crate::device::Stream;
use crate::error::Result;

/// A stream; also the virtual clock of the host that uses it.
pub(crate) struct EmulatedStream {
    machine: Arc<Mutex<Machine>>,
    id: u64,
    rates: Emulated,
    /// When its last operation ends, in virtual time.
    end: Duration,
    /// The host's virtual time: it moves when the host waits.
    now: Duration,
}

/// An event: the latest mark recorded on it.
#[derive(Default)]
pub(crate) struct EmulatedEvent(Mutex<Option<Arc<Mark>>>);

impl EmulatedEvent {
    fn mark(&self) -> Option<Arc<Mark>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl EmulatedStream {
    pub(super) fn new(machine: Arc<Mutex<Machine>>, options: &Emulated) -> Self {
        let id = lock(&machine).open();
        EmulatedStream { machine, id, rates: options.clone(), end: Duration::ZERO, now: Duration::ZERO }
    }

    /// Enqueues an operation, which its engine does when it, the stream and the host have come so far.
    fn push(&mut self, operation: Operation) {
        let mut machine = lock(&self.machine);
        let engines = &mut machine.engines;
        let (engine, cost) = match &operation {
            Operation::CopyIn { from, .. } => (&mut engines.copy_in, from.bytes as f64 / self.rates.copy_in_rate),
            Operation::CopyOut { to, .. } => (&mut engines.copy_out, to.bytes as f64 / self.rates.copy_out_rate),
            Operation::Launch(launch) => (&mut engines.compute, launch.rows as f64 / self.rates.kernel_rate),
            Operation::Wait(mark) => {
                self.end = self.end.max(mark.at);
                return machine.push(self.id, operation);
            }
            Operation::Record(_) => return machine.push(self.id, operation),
        };
        self.end = self.end.max(self.now).max(*engine) + Duration::from_secs_f64(cost);
        *engine = self.end;
        machine.push(self.id, operation);
    }
}

impl Stream for EmulatedStream {
    type Device = EmulatedDevice;
    type Event = EmulatedEvent;

    fn event(&self) -> Result<EmulatedEvent> {
        Ok(EmulatedEvent::default())
    }

    unsafe fn copy_in(&mut self, from: *const u8, to: &EmulatedMemory, offset: usize, bytes: usize) -> Result<()> {
        let from = HostSpan { start: from.cast_mut(), bytes };
        self.push(Operation::CopyIn { from, to: to.words.clone(), offset });
        Ok(())
    }

    unsafe fn copy_out(&mut self, from: &EmulatedMemory, offset: usize, to: *mut u8, bytes: usize) -> Result<()> {
        // Who looks too early shall not find the right answer of an earlier chunk.
        let poison = lock(&self.machine).poison_word() as u8;
        // SAFETY: the caller promises that the bytes are writable, and that nobody looks at them until the copy is done.
        unsafe { to.write_bytes(poison, bytes) };
        self.push(Operation::CopyOut { from: from.words.clone(), offset, to: HostSpan { start: to, bytes } });
        Ok(())
    }

    unsafe fn launch(
        &mut self,
        kernel: &EmulatedKernel,
        memory: &EmulatedMemory,
        offsets: &[usize],
        first_row: u64,
        rows: usize,
    ) -> Result<()> {
        self.push(Operation::Launch(Launch {
            twin: kernel.twin.clone(),
            columns: kernel.columns.clone(),
            memory: memory.words.clone(),
            offsets: offsets.to_vec(),
            first_row,
            rows,
        }));
        Ok(())
    }

    fn record(&mut self, event: &EmulatedEvent) -> Result<()> {
        let mark = Arc::new(Mark { done: AtomicBool::new(false), at: self.end.max(self.now) });
        *event.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(mark.clone());
        self.push(Operation::Record(mark));
        Ok(())
    }

    fn wait(&mut self, event: &EmulatedEvent) -> Result<()> {
        if let Some(mark) = event.mark() {
            self.push(Operation::Wait(mark));
        }
        Ok(())
    }

    fn query(&self, event: &EmulatedEvent) -> Result<bool> {
        lock(&self.machine).idle();
        Ok(event.mark().is_none_or(|mark| mark.done.load(Ordering::Acquire)))
    }

    fn synchronize(&mut self, event: &EmulatedEvent) -> Result<()> {
        if let Some(mark) = event.mark() {
            lock(&self.machine).run_until(self.id, &mark)?;
            self.now = self.now.max(mark.at);
        }
        Ok(())
    }

    fn elapsed(&self, from: &EmulatedEvent, to: &EmulatedEvent) -> Result<Duration> {
        match (from.mark(), to.mark()) {
            (Some(from), Some(to)) => Ok(to.at.saturating_sub(from.at)),
            _ => Err(failure("asked for the time between events that were never recorded")),
        }
    }

    fn now(&self) -> Duration {
        self.now
    }

    fn done_at(&self, event: &EmulatedEvent) -> Duration {
        event.mark().map_or(Duration::ZERO, |mark| mark.at)
    }
}

impl Drop for EmulatedStream {
    fn drop(&mut self) {
        lock(&self.machine).close(self.id);
    }
}
