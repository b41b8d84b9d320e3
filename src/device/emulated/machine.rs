//! The machine of an emulated device: holds the work of all streams, and runs it.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::clock::{Clock, Mark};
use super::multiply::Multiply;
use super::options::{Effect, Emulated, Fault, FaultAt};
use crate::device::kernel::{Columns, HostKernel, Uniform};
use crate::error::{Error, Result};
use crate::panics::{self, Panic};

/// The problem of a host that waits for an event without work before it.
const NEVER: &str = "waited for an event that no enqueued work can reach";

/// Host memory that an enqueued copy reads or writes.
#[derive(Clone, Copy)]
pub(super) struct HostSpan {
    pub(super) start: *mut u8,
    pub(super) bytes: usize,
}

impl HostSpan {
    fn overlaps(self, other: HostSpan) -> bool {
        let ends_before = |a: HostSpan, b: HostSpan| a.start.wrapping_add(a.bytes) <= b.start;
        !ends_before(self, other) && !ends_before(other, self)
    }
}

// SAFETY: a span is used only by a copy. The caller of `Stream::copy_in` or `copy_out` promised that the memory stays
// valid and untouched until the copy is done, on whatever thread it runs.
unsafe impl Send for HostSpan {}

/// Device memory, in words of eight bytes.
pub(super) type Words = Arc<Mutex<Vec<u64>>>;

pub(super) enum Operation {
    CopyIn { from: HostSpan, to: Words, offset: usize },
    CopyOut { from: Words, offset: usize, to: HostSpan },
    Zero { to: Words, offset: usize, bytes: usize },
    CopyWithin { from: (Words, usize), to: (Words, usize), bytes: usize },
    Launch(Box<Launch>),
    Multiply(Multiply),
    Record(Arc<Mark>),
    Wait(Arc<Mark>),
}

pub(super) struct Launch {
    pub(super) host: Arc<Mutex<Box<dyn HostKernel>>>,
    pub(super) whose: Arc<str>,
    pub(super) columns: Columns,
    /// The start of each column.
    pub(super) places: Vec<(Words, usize)>,
    /// The resident arrays, with their bytes.
    pub(super) resident: Vec<(Words, usize)>,
    pub(super) values: Vec<u64>,
    pub(super) first_row: u64,
    pub(super) rows: usize,
}

impl Operation {
    /// Returns the device memory that it reads or writes.
    fn memory(&self) -> Vec<(&Words, Range<usize>)> {
        match self {
            Operation::CopyIn { from: HostSpan { bytes, .. }, to: memory, offset }
            | Operation::CopyOut { from: memory, offset, to: HostSpan { bytes, .. } }
            | Operation::Zero { to: memory, offset, bytes } => vec![(memory, *offset..*offset + bytes)],
            Operation::CopyWithin { from, to, bytes } => {
                [from, to].map(|(memory, offset)| (memory, *offset..*offset + bytes)).into()
            }
            Operation::Launch(launch) => launch.memory().collect(),
            Operation::Multiply(multiply) => multiply.memory().into(),
            Operation::Record(_) | Operation::Wait(_) => vec![],
        }
    }
}

pub(super) struct Machine {
    id: String,
    pub(super) used: u64,
    pub(super) clock: Clock,
    /// The work enqueued on each stream.
    streams: HashMap<u64, VecDeque<Operation>>,
    next_stream: u64,
    random: Random,
    faults: Vec<Fault>,
    counts: [u64; FaultAt::COUNT],
    /// The streams on which a kernel has panicked, or which have waited for one of these. Nothing more of them runs,
    /// and their marks tell who waits for them. What was enqueued before goes on, so that the error names the right
    /// chunk.
    panics: HashMap<u64, Panic>,
    /// The first failure. As on a GPU, nothing more runs after it, but marks are still reached.
    failed: Option<&'static str>,
    /// Whether an operation has begun that never ends. Nothing more runs, and no mark is reached.
    hangs: bool,
    /// Whether the host has given up the device. All calls fail.
    pub(super) is_given_up: bool,
}

impl Machine {
    pub(super) fn new(id: String, options: &Emulated) -> Self {
        Machine {
            id,
            used: 0,
            clock: Clock::new(options.is_timeless()),
            streams: HashMap::new(),
            next_stream: 0,
            random: Random(options.seed),
            faults: options.faults.clone(),
            counts: [0; FaultAt::COUNT],
            panics: HashMap::new(),
            failed: None,
            hangs: false,
            is_given_up: false,
        }
    }

    /// Returns the id of the device.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn open(&mut self) -> u64 {
        let id = self.next_stream;
        self.next_stream += 1;
        self.streams.insert(id, VecDeque::new());
        id
    }

    /// Runs the remaining work of the stream, and removes the stream.
    pub(super) fn close(&mut self, stream: u64) {
        while self.streams.get(&stream).is_some_and(|queue| !queue.is_empty()) && self.run_one() {}
        self.clock.close(stream);
        self.panics.remove(&stream);
        // Work that could not run waits for an event that will never be recorded. Waiters for this stream must not
        // wait for ever.
        for operation in self.streams.remove(&stream).into_iter().flatten() {
            if let Operation::Record(mark) = operation {
                mark.done.store(true, Ordering::Release);
            }
        }
    }

    pub(super) fn push(&mut self, stream: u64, operation: Operation) {
        if let Some(queue) = self.streams.get_mut(&stream) {
            queue.push_back(operation);
        }
    }

    /// Returns whether an enqueued copy has yet to read some of these bytes.
    pub(super) fn still_reads(&self, bytes: HostSpan) -> bool {
        self.streams.values().flatten().any(|operation| match operation {
            Operation::CopyIn { from, .. } => from.overlaps(bytes),
            _ => false,
        })
    }

    /// Fills device memory with poison, unless an enqueued operation has yet to use it. For memory that the next
    /// operation overwrites: whoever reads it without waiting must not find the right result of earlier work.
    pub(super) fn poison(&mut self, memory: &Words, range: Range<usize>) {
        let uses = |(other, used): (&Words, Range<usize>)| {
            Arc::ptr_eq(other, memory) && used.start < range.end && range.start < used.end
        };
        if self.streams.values().flatten().any(|operation| operation.memory().into_iter().any(uses)) {
            return;
        }
        let poison = self.poison_word() as u8;
        let mut words = memory.lock().unwrap_or_else(PoisonError::into_inner);
        bytemuck::cast_slice_mut::<u64, u8>(&mut words)[range].fill(poison);
    }

    /// Runs operations of all streams, in an order determined by the seed, until `mark` is done. Returns false if the
    /// device hangs before.
    pub(super) fn run_until(&mut self, mark: &Mark) -> Result<bool> {
        while !mark.done.load(Ordering::Acquire) {
            if !self.run_one() {
                return if self.hangs { Ok(false) } else { Err(self.failure(NEVER)) };
            }
        }
        self.failed.map_or_else(|| mark.is_done(), |what| Err(self.failure(what)))
    }

    /// Runs some operations, or none, as the seed determines: the progress of the device while the host only queries.
    pub(super) fn idle(&mut self) {
        if self.random.below(4) == 0 {
            self.run_one();
        }
    }

    /// Runs the next operation of one stream. Returns false if none can run.
    fn run_one(&mut self) -> bool {
        if self.hangs {
            return false;
        }
        let is_ready = |queue: &VecDeque<Operation>| match queue.front() {
            Some(Operation::Wait(mark)) => mark.done.load(Ordering::Acquire),
            Some(_) => true,
            None => false,
        };
        let mut ready: Vec<u64> = self.streams.iter().filter(|(_, queue)| is_ready(queue)).map(|(&id, _)| id).collect();
        ready.sort_unstable();
        if ready.is_empty() {
            return false;
        }
        let id = ready[self.random.below(ready.len())];
        let next = self.streams.get(&id).and_then(VecDeque::front);
        if self.failed.is_none() && next.is_some_and(|next| self.begins_to_hang(next)) {
            self.hangs = true;
            return false;
        }
        match (self.streams.get_mut(&id).and_then(VecDeque::pop_front), self.failed) {
            (Some(Operation::Record(mark)), Some(_)) => mark.done.store(true, Ordering::Release),
            (Some(operation), None) => match self.panics.get(&id) {
                None => self.failed = self.perform(id, operation).err(),
                Some(panic) => {
                    if let Operation::Record(mark) = operation {
                        mark.panic.get_or_init(|| panic.clone());
                        mark.done.store(true, Ordering::Release);
                    }
                }
            },
            _ => {}
        }
        true
    }

    /// Returns whether this operation, which is next, never ends.
    fn begins_to_hang(&self, next: &Operation) -> bool {
        let at = match next {
            Operation::CopyIn { .. } => FaultAt::CopyIn,
            Operation::CopyOut { .. } => FaultAt::CopyOut,
            Operation::Zero { .. } => FaultAt::Zero,
            Operation::CopyWithin { .. } | Operation::Launch(_) | Operation::Multiply(_) => FaultAt::Kernel,
            Operation::Record(_) | Operation::Wait(_) => return false,
        };
        let nth = self.counts[at as usize];
        self.faults.iter().any(|fault| *fault == Fault::hang(at, nth))
    }

    /// Performs an operation of a stream.
    ///
    /// # Errors
    /// The problem, if it must fail.
    fn perform(&mut self, stream: u64, operation: Operation) -> Result<(), &'static str> {
        match operation {
            Operation::CopyIn { from, to, offset } => {
                let flips = self.flips(FaultAt::CopyIn)?;
                let mut words = to.lock().unwrap_or_else(PoisonError::into_inner);
                let to = &mut bytemuck::cast_slice_mut::<u64, u8>(&mut words)[offset..offset + from.bytes];
                // SAFETY: the caller of `copy_in` promised that the bytes are readable until the copy is done, which
                // is after this.
                to.copy_from_slice(unsafe { std::slice::from_raw_parts(from.start, from.bytes) });
                flips.inspect(|bit| flip(&mut [to], *bit));
            }
            Operation::CopyOut { from, offset, to } => {
                let flips = self.flips(FaultAt::CopyOut)?;
                let mut words = from.lock().unwrap_or_else(PoisonError::into_inner);
                let from = &mut bytemuck::cast_slice_mut::<u64, u8>(&mut words)[offset..offset + to.bytes];
                flips.inspect(|bit| flip(&mut [from], *bit));
                // SAFETY: the caller of `copy_out` promised that the bytes are writable and that nobody reads them
                // until the copy is done, which is after this.
                unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to.start, to.bytes) };
                // The bit was wrong in the copy alone.
                flips.inspect(|bit| flip(&mut [from], *bit));
            }
            Operation::Zero { to, offset, bytes } => {
                if self.fault(FaultAt::Zero) {
                    return Err(FaultAt::Zero.problem());
                }
                let mut words = to.lock().unwrap_or_else(PoisonError::into_inner);
                bytemuck::cast_slice_mut::<u64, u8>(&mut words)[offset..offset + bytes].fill(0);
            }
            Operation::CopyWithin { from, to, bytes } => {
                let flips = self.flips(FaultAt::Kernel)?;
                let words = from.0.lock().unwrap_or_else(PoisonError::into_inner);
                // Both may be the same memory.
                let copy = bytemuck::cast_slice::<u64, u8>(&words)[from.1..from.1 + bytes].to_vec();
                drop(words);
                let mut words = to.0.lock().unwrap_or_else(PoisonError::into_inner);
                let to = &mut bytemuck::cast_slice_mut::<u64, u8>(&mut words)[to.1..to.1 + bytes];
                to.copy_from_slice(&copy);
                flips.inspect(|bit| flip(&mut [to], *bit));
            }
            Operation::Launch(launch) => {
                let flips = self.flips(FaultAt::Kernel)?;
                let poison = self.poison_word() as u8;
                if let Err(panic) = launch.run(poison, flips) {
                    self.panics.insert(stream, panic);
                }
            }
            Operation::Multiply(multiply) => {
                let flips = self.flips(FaultAt::Kernel)?;
                multiply.run(flips);
            }
            Operation::Record(mark) => mark.done.store(true, Ordering::Release),
            Operation::Wait(mark) => {
                if let Some(panic) = mark.panic.get() {
                    self.panics.insert(stream, panic.clone());
                }
            }
        }
        Ok(())
    }

    /// Counts an operation, and returns whether it must fail.
    pub(super) fn fault(&mut self, at: FaultAt) -> bool {
        self.counted(at).is_some()
    }

    /// Counts an operation, and returns the bit that it gets wrong, if there is one.
    ///
    /// # Errors
    /// The problem, if it must fail.
    fn flips(&mut self, at: FaultAt) -> Result<Option<u64>, &'static str> {
        match self.counted(at).map(|fault| fault.effect) {
            None => Ok(None),
            Some(Effect::Flips(bit)) => Ok(Some(bit)),
            Some(Effect::Fails | Effect::Hangs) => Err(at.problem()),
        }
    }

    /// Counts an operation, and returns its fault if it has one.
    fn counted(&mut self, at: FaultAt) -> Option<Fault> {
        let count = &mut self.counts[at as usize];
        let nth = *count;
        *count += 1;
        self.faults.iter().copied().find(|f| f.at == at && f.nth == nth)
    }

    /// Counts a call, and returns an error if it must fail. The device stays usable.
    pub(super) fn call(&mut self, at: FaultAt) -> Result<()> {
        if self.is_given_up {
            return Err(self.failure("the device was given up"));
        }
        if self.fault(at) { Err(self.failure(at.problem())) } else { Ok(()) }
    }

    /// Returns the error of the device with this problem.
    pub(super) fn failure(&self, what: &str) -> Error {
        Error::Device { device: self.id.clone(), problem: what.into(), remedy: "run without faults".into() }
    }

    /// Returns a poison value, which is unlikely to be the result of a computation.
    pub(super) fn poison_word(&mut self) -> u64 {
        self.random.next() | 0x8080_8080_8080_8080
    }
}

/// A device that was given up may go on at any time. This one does so when nobody holds it any more: its copies then
/// access host memory, which must have stayed.
impl Drop for Machine {
    fn drop(&mut self) {
        if !self.is_given_up || thread::panicking() {
            return;
        }
        self.faults.clear();
        for (stream, operations) in std::mem::take(&mut self.streams) {
            for operation in operations {
                if let copy @ (Operation::CopyIn { .. } | Operation::CopyOut { .. }) = operation {
                    // Without faults a copy does not fail.
                    let _ = self.perform(stream, copy);
                }
            }
        }
    }
}

impl Launch {
    /// Returns the device memory that it reads or writes.
    fn memory(&self) -> impl Iterator<Item = (&Words, Range<usize>)> {
        let rows = self.first_row..self.first_row + self.rows as u64;
        let columns = self.places.iter().zip(self.columns.bytes(self.rows)).enumerate();
        let columns = columns.map(move |(column, ((words, start), bytes))| {
            let is_input = column < self.columns.inputs.len();
            let (front, bytes) = if is_input { self.columns.window_bytes(column, &rows) } else { (0, bytes) };
            (words, start - front..start - front + bytes)
        });
        columns.chain(self.resident.iter().map(|(words, bytes)| (words, 0..*bytes)))
    }

    /// Runs the host kernel on copies of the columns, because columns may be at any offset, and two inputs may be the
    /// same memory. If it panics, nothing is written.
    fn run(&self, poison: u8, flips: Option<u64>) -> Result<(), Panic> {
        let Columns { inputs, outputs, scratch, .. } = &self.columns;
        let (inputs, written) = (inputs.len(), outputs.len() + usize::from(self.columns.has_partials()));
        let not_written = inputs + written..inputs + written + scratch.len();
        let rows = self.first_row..self.first_row + self.rows as u64;
        let mut sizes: Vec<usize> = self.columns.bytes(self.rows).collect();
        let mut fronts = vec![0; sizes.len()];
        for input in 0..inputs {
            (fronts[input], sizes[input]) = self.columns.window_bytes(input, &rows);
        }
        let mut copies: Vec<Vec<u64>> = sizes.iter().map(|bytes| vec![0; bytes.div_ceil(8)]).collect();
        let each = self.places.iter().zip(&mut copies).zip(sizes.iter().zip(&fronts));
        for ((place, copy), (&bytes, front)) in each.take(inputs) {
            let words = place.0.lock().unwrap_or_else(PoisonError::into_inner);
            let column = &bytemuck::cast_slice::<u64, u8>(&words)[place.1 - front..place.1 - front + bytes];
            bytemuck::cast_slice_mut(copy)[..bytes].copy_from_slice(column);
        }
        let mut columns =
            copies.iter_mut().zip(&sizes).map(|(copy, &bytes)| &mut bytemuck::cast_slice_mut(copy)[..bytes]);
        let inputs: Vec<&[u8]> = columns.by_ref().take(inputs).map(|column| &*column).collect();
        let mut outputs: Vec<&mut [u8]> = columns.by_ref().take(written).collect();
        // Host kernels have their own scratch memory.
        let mut operands: Vec<&mut [u8]> = columns.skip(scratch.len()).collect();
        operands.iter_mut().for_each(|part| part.fill(poison));
        // Bytes that a kernel does not write must not look like the result of an earlier chunk.
        outputs.iter_mut().for_each(|part| part.fill(poison));
        let none: &mut [u8] = &mut [];
        let mut partials = if self.columns.has_partials() { outputs.pop() } else { None };
        if let (Some(partials), Some(place)) = (&mut partials, self.places.get(inputs.len() + outputs.len())) {
            // The kernel adds to these.
            let words = place.0.lock().unwrap_or_else(PoisonError::into_inner);
            let own = self.columns.chunk_partials();
            partials[own.clone()].copy_from_slice(&bytemuck::cast_slice(&words)[place.1..][own]);
        }
        let resident = self.resident.iter().map(|(words, _)| words.lock().unwrap_or_else(PoisonError::into_inner));
        let resident: Vec<_> = resident.collect();
        let resident =
            resident.iter().zip(&self.resident).map(|(words, (_, bytes))| &bytemuck::cast_slice(words)[..*bytes]);
        let resident: Vec<&[u8]> = resident.collect();
        let total_rows = self.columns.total_rows;
        let uniform = Uniform { resident: &resident, values: &self.values, total_rows };
        let mut host = self.host.lock().unwrap_or_else(PoisonError::into_inner);
        outputs.append(&mut operands);
        let partials = partials.unwrap_or(none);
        panics::catch(
            || self.whose.to_string(),
            || host.run(self.first_row, self.rows, &inputs, &mut outputs, partials, &uniform),
        )?;
        if let Some(bit) = flips {
            outputs.push(partials);
            flip(&mut outputs, bit);
        }
        let first = inputs.len();
        let each = self.places.iter().zip(&copies).zip(&sizes).enumerate().skip(first);
        for (_, ((place, copy), &bytes)) in each.filter(|(column, _)| !not_written.contains(column)) {
            let mut words = place.0.lock().unwrap_or_else(PoisonError::into_inner);
            let column = &mut bytemuck::cast_slice_mut::<u64, u8>(&mut words)[place.1..place.1 + bytes];
            column.copy_from_slice(&bytemuck::cast_slice(copy)[..bytes]);
        }
        Ok(())
    }
}

/// Inverts a bit of these bytes, counted through all of them, modulo their number.
pub(super) fn flip(columns: &mut [&mut [u8]], bit: u64) {
    let bits = columns.iter().map(|column| column.len() as u64 * 8).sum::<u64>();
    let mut bit = bit.checked_rem(bits).unwrap_or(0);
    for column in columns {
        match column.get_mut((bit / 8) as usize) {
            Some(byte) => return *byte ^= 1 << (bit % 8),
            None => bit -= column.len() as u64 * 8,
        }
    }
}

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014): enough to shuffle
/// with.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound` (> 0).
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}
