//! Streams and events of the emulated device, and the host that waits for them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::clock::{Engine, Mark};
use super::machine::{HostSpan, Launch, Machine, Operation};
use super::multiply::{Kind, Multiply};
use super::options::{Emulated, FaultAt};
use super::{EmulatedDevice, EmulatedKernel, EmulatedMemory, HostMemory, lock, time};
use crate::device::product::{MatrixProduct, Product, not_prepared};
use crate::device::{Host, HostWork, Precision, Stream};
use crate::error::Result;

/// A stream.
pub(crate) struct EmulatedStream {
    machine: Arc<Mutex<Machine>>,
    id: u64,
    rates: Emulated,
    /// The virtual time of the enqueuing host thread.
    now: Duration,
    /// How it multiplies, once it may.
    precision: Option<Precision>,
    is_abandoned: bool,
}

/// An event. Refers to the latest mark recorded on it.
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
        EmulatedStream {
            machine,
            id,
            rates: options.clone(),
            now: Duration::ZERO,
            precision: None,
            is_abandoned: false,
        }
    }

    fn push(&mut self, engine: Engine, cost: Duration, operation: Operation) {
        let mut machine = lock(&self.machine);
        machine.clock.work(self.id, engine, cost, self.now);
        machine.push(self.id, operation);
    }

    fn push_product(
        &mut self,
        kind: Kind,
        rows: usize,
        operands: [(&EmulatedMemory, usize); 2],
        result: (&EmulatedMemory, usize),
    ) -> Result<()> {
        let mut machine = lock(&self.machine);
        let Some(precision) = self.precision else { return Err(not_prepared(machine.id())) };
        let place = |(memory, offset): (&EmulatedMemory, usize)| (memory.words.clone(), offset);
        let multiply = Multiply { kind, precision, rows, operands: operands.map(place), result: place(result) };
        if let Some((words, range)) = multiply.overwritten() {
            machine.poison(words, range);
        }
        drop(machine);
        let cost = time(multiply.moved_bytes(), self.rates.memory_rate);
        self.push(Engine::Compute, cost, Operation::Multiply(multiply));
        Ok(())
    }
}

impl Stream for EmulatedStream {
    type Device = EmulatedDevice;

    unsafe fn abandon(&mut self) {
        self.is_abandoned = true;
    }

    fn at(&mut self, now: Duration) {
        self.now = now;
    }

    unsafe fn copy_in(&mut self, from: *const u8, to: &EmulatedMemory, offset: usize, bytes: usize) -> Result<()> {
        let from = HostSpan { start: from.cast_mut(), bytes };
        let operation = Operation::CopyIn { from, to: to.words.clone(), offset };
        self.push(Engine::CopyIn, time(bytes, self.rates.copy_in_rate), operation);
        Ok(())
    }

    unsafe fn copy_out(&mut self, from: &EmulatedMemory, offset: usize, to: *mut u8, bytes: usize) -> Result<()> {
        let to = HostSpan { start: to, bytes };
        let mut machine = lock(&self.machine);
        // A read before the copy is done must not find the correct result of an earlier chunk.
        let poison = machine.poison_word() as u8;
        if !machine.still_reads(to) {
            // SAFETY: the caller promises that the bytes are writable, and that nobody reads them until the copy is
            // done, except for copies enqueued before, none of which reads these.
            unsafe { to.start.write_bytes(poison, bytes) };
        }
        drop(machine);
        let operation = Operation::CopyOut { from: from.words.clone(), offset, to };
        self.push(Engine::CopyOut, time(bytes, self.rates.copy_out_rate), operation);
        Ok(())
    }

    unsafe fn copy_within(
        &mut self,
        from: (&EmulatedMemory, usize),
        to: (&EmulatedMemory, usize),
        bytes: usize,
    ) -> Result<()> {
        let [from, to] = [from, to].map(|(memory, offset)| (memory.words.clone(), offset));
        self.push(Engine::Compute, time(bytes, self.rates.memory_rate), Operation::CopyWithin { from, to, bytes });
        Ok(())
    }

    unsafe fn zero(&mut self, to: &EmulatedMemory, offset: usize, bytes: usize) -> Result<()> {
        // The device zeroes its memory in no virtual time.
        let operation = Operation::Zero { to: to.words.clone(), offset, bytes };
        self.push(Engine::Compute, Duration::ZERO, operation);
        Ok(())
    }

    unsafe fn launch(
        &mut self,
        kernel: &EmulatedKernel,
        columns: &[(&EmulatedMemory, usize)],
        resident: &[EmulatedMemory],
        first_row: u64,
        rows: usize,
    ) -> Result<()> {
        let operation = Operation::Launch(Box::new(Launch {
            host: kernel.host.clone(),
            whose: kernel.whose.clone(),
            columns: kernel.columns.clone(),
            places: columns.iter().map(|(memory, offset)| (memory.words.clone(), *offset)).collect(),
            resident: resident.iter().map(|array| (array.words.clone(), array.bytes as usize)).collect(),
            values: kernel.values.known()?.to_vec(),
            first_row,
            rows,
        }));
        let bytes = kernel.columns.row_bytes() * rows;
        let cost = time(rows, self.rates.kernel_rate).max(time(bytes, self.rates.memory_rate));
        self.push(Engine::Compute, cost, operation);
        Ok(())
    }

    unsafe fn prepare_products(&mut self, _workspace: &EmulatedMemory, precision: Precision) -> Result<()> {
        self.precision = Some(precision);
        Ok(())
    }

    unsafe fn multiply(
        &mut self,
        product: &Product,
        rows: usize,
        operands: [(&EmulatedMemory, usize); 2],
        sum: (&EmulatedMemory, usize),
        adds: bool,
    ) -> Result<()> {
        self.push_product(Kind::Sum { product: *product, adds }, rows, operands, sum)
    }

    unsafe fn multiply_rows(
        &mut self,
        product: &MatrixProduct,
        rows: usize,
        from: (&EmulatedMemory, usize),
        matrix: &EmulatedMemory,
        to: (&EmulatedMemory, usize),
    ) -> Result<()> {
        self.push_product(Kind::Rows(*product), rows, [from, (matrix, 0)], to)
    }

    fn record(&mut self, event: &EmulatedEvent) -> Result<()> {
        let mut machine = lock(&self.machine);
        machine.call(FaultAt::Record)?;
        let mark = machine.clock.record(self.id, self.now);
        *event.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(mark.clone());
        machine.push(self.id, Operation::Record(mark));
        Ok(())
    }

    fn wait(&mut self, event: &EmulatedEvent) -> Result<()> {
        if let Some(mark) = event.mark() {
            let mut machine = lock(&self.machine);
            machine.call(FaultAt::Wait)?;
            machine.clock.wait(self.id, &mark);
            machine.push(self.id, Operation::Wait(mark));
        }
        Ok(())
    }
}

impl Drop for EmulatedStream {
    fn drop(&mut self) {
        // The work of an abandoned stream stays with the machine.
        if !self.is_abandoned {
            lock(&self.machine).close(self.id);
        }
    }
}

/// A host thread with its virtual time, which advances when the thread waits or works.
pub(crate) struct EmulatedHost {
    machine: Arc<Mutex<Machine>>,
    rates: Emulated,
    memory: HostMemory,
    now: Duration,
}

impl EmulatedHost {
    pub(super) fn new(machine: Arc<Mutex<Machine>>, options: &Emulated, memory: &HostMemory) -> Self {
        EmulatedHost { machine, rates: options.clone(), memory: memory.clone(), now: Duration::ZERO }
    }
}

impl Host for EmulatedHost {
    type Device = EmulatedDevice;

    fn now(&self) -> Duration {
        self.now
    }

    fn worked(&mut self, work: HostWork, bytes: usize) {
        let rate = match work {
            HostWork::Fill => self.rates.fill_rate,
            HostWork::Drain => self.rates.drain_rate,
        };
        let moved = self.memory.moves(bytes, self.now);
        self.now = self.now.saturating_add(time(bytes, rate)).max(moved);
    }

    fn reach(&mut self, time: Duration) {
        self.now = self.now.max(time);
    }

    fn query(&mut self, event: &EmulatedEvent) -> Result<bool> {
        let mut machine = lock(&self.machine);
        machine.call(FaultAt::Query)?;
        machine.idle();
        drop(machine);
        event.mark().map_or(Ok(true), |mark| mark.is_done())
    }

    fn synchronize_until(&mut self, event: &EmulatedEvent, deadline: Duration) -> Result<bool> {
        let Some(mark) = event.mark() else { return Ok(true) };
        let mut machine = lock(&self.machine);
        machine.call(FaultAt::Synchronize)?;
        let is_reached = machine.run_until(&mark)?;
        if !is_reached && deadline == Duration::MAX {
            return Err(machine.failure("the device hangs, and there is no time limit"));
        }
        let done = if is_reached { machine.clock.time_of(&mark) } else { Duration::MAX };
        self.now = self.now.max(done.min(deadline));
        machine.clock.settle(self.now);
        Ok(done <= deadline)
    }

    fn elapsed(&self, from: &EmulatedEvent, to: &EmulatedEvent) -> Result<Duration> {
        let machine = lock(&self.machine);
        match (from.mark(), to.mark()) {
            (Some(from), Some(to)) => Ok(machine.clock.time_of(&to).saturating_sub(machine.clock.time_of(&from))),
            _ => Err(machine.failure("asked for the time between events that were never recorded")),
        }
    }

    fn done_at(&self, event: &EmulatedEvent) -> Duration {
        event.mark().map_or(Duration::ZERO, |mark| lock(&self.machine).clock.time_of(&mark))
    }
}
