//! Streams: queues of work, each with a thread that runs it in order, and the event records that streams wait for.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::slice;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use overshot::Precision;
use overshot::testing::{Columns, HostKernel, Launch, MatrixProduct, Product, Uniform};

use crate::inject::{wait_for_healing, wait_for_others};
use crate::memory::{Block, Pinned};
use crate::misuse;
use crate::settings::SETTINGS;

/// Bytes that copies have moved, to and from all devices.
pub static COPIED: AtomicU64 = AtomicU64::new(0);

/// One record of an event. Recording an event again creates a new record; waiting streams keep the old one.
#[derive(Default)]
pub struct Record {
    done: Mutex<Option<Instant>>,
    changed: Condvar,
}

impl Record {
    pub fn time(&self) -> Option<Instant> {
        *self.done.lock().unwrap()
    }

    pub fn wait(&self) {
        let _done = self.changed.wait_while(self.done.lock().unwrap(), |done| done.is_none()).unwrap();
    }

    fn finish(&self) {
        *self.done.lock().unwrap() = Some(Instant::now());
        self.changed.notify_all();
    }
}

/// A kernel that was found in a module.
pub struct Kernel {
    pub columns: Columns,
    pub launch: Launch,
    /// Bytes of the arrays that stay on the device.
    pub resident: Vec<usize>,
    pub host: Mutex<Box<dyn HostKernel>>,
}

/// A piece of work. It holds everything that it uses, so that releasing it too early is noticed.
pub enum Work {
    Copy {
        from: usize,
        to: usize,
        bytes: usize,
        /// Whether one bit of the copy is wrong.
        flips: bool,
        uses: (Arc<Block>, Option<Arc<Pinned>>),
    },
    Set {
        to: usize,
        value: u8,
        bytes: usize,
        _block: Arc<Block>,
    },
    Launch {
        kernel: Arc<Kernel>,
        /// The first row, the rows of the chunk, and the rows of the job.
        rows: (u64, usize, u64),
        columns: Vec<Column>,
        resident: Vec<Column>,
        values: Vec<u64>,
        /// Whether one bit of what it writes is wrong.
        flips: bool,
    },
    Multiply(Multiply),
    Record(Arc<Record>),
    Wait(Arc<Record>),
    /// Takes until other calls of the driver were made.
    Hold,
    /// Never ends, until the stand-in is healed.
    Hang,
    /// Fails with this code, and makes everything after it fail.
    Fail(u32),
    Stop,
}

/// A product of matrices.
pub struct Multiply {
    pub of: Factors,
    pub precision: Precision,
    pub operands: [Column; 2],
    pub result: Column,
    /// Memory that the product may overwrite.
    pub scratch: Column,
    /// Whether one bit of the result is wrong.
    pub flips: bool,
}

/// What is multiplied.
pub enum Factors {
    /// The rows of both operands, summed.
    Sum { product: Product, rows: usize, adds: bool },
    /// The rows of the first operand with a matrix, the second one.
    Rows { product: MatrixProduct, rows: usize },
}

/// Where a column of a kernel, or an operand of a product, lies.
pub struct Column {
    pub start: usize,
    pub bytes: usize,
    /// Held until the work is done.
    pub _block: Arc<Block>,
}

pub struct Stream {
    pub device: usize,
    queue: Sender<Work>,
    /// Work that is not done.
    pending: Arc<AtomicUsize>,
    thread: JoinHandle<()>,
}

impl Stream {
    /// Opens a stream whose work sets `fault` when it fails, and no longer runs once that is set.
    pub fn open(device: usize, number: u64, fault: Arc<AtomicU32>) -> Stream {
        let (queue, work) = channel();
        let pending = Arc::new(AtomicUsize::new(0));
        let delays =
            SETTINGS.seed.map(|seed| Delays(seed.wrapping_add(number).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1));
        let left = pending.clone();
        let thread = thread::spawn(move || {
            if catch_unwind(AssertUnwindSafe(|| run(&work, &left, &fault, delays))).is_err() {
                misuse(format_args!("a kernel's host panicked"));
            }
        });
        Stream { device, queue, pending, thread }
    }

    pub fn push(&self, work: Work) {
        self.pending.fetch_add(1, Ordering::SeqCst);
        if self.queue.send(work).is_err() {
            misuse(format_args!("a stream's thread has ended"));
        }
    }

    /// A record behind all work so far.
    pub fn mark(&self) -> Arc<Record> {
        let record = Arc::<Record>::default();
        self.push(Work::Record(record.clone()));
        record
    }

    pub fn close(self) {
        if self.pending.load(Ordering::SeqCst) != 0 {
            misuse(format_args!("a stream is destroyed before its work is done"));
        }
        self.push(Work::Stop);
        let _ = self.thread.join();
    }
}

fn run(queue: &Receiver<Work>, pending: &AtomicUsize, fault: &AtomicU32, mut delays: Option<Delays>) {
    while let Ok(work) = queue.recv() {
        if let Some(delays) = &mut delays {
            delays.sleep();
        }
        let healthy = fault.load(Ordering::SeqCst) == 0;
        match work {
            Work::Copy { from, to, bytes, flips, uses } if healthy => {
                // SAFETY: the device's side was checked to be inside a block, which `uses` keeps; the host's side is
                // valid until the copy is done by the driver's contract, and registered memory is kept by `uses`.
                unsafe { ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes) };
                if flips {
                    // SAFETY: as above.
                    flip(unsafe { slice::from_raw_parts_mut(to as *mut u8, bytes) });
                }
                drop(uses);
                COPIED.fetch_add(bytes as u64, Ordering::SeqCst);
            }
            Work::Set { to, value, bytes, _block } if healthy => {
                // SAFETY: the range was checked to be inside the block, which is held until here.
                unsafe { ptr::write_bytes(to as *mut u8, value, bytes) };
            }
            Work::Launch { kernel, rows, columns, resident, values, flips } if healthy => {
                launch(&kernel, rows, &columns, &resident, &values);
                if let Some(column) = columns.get(kernel.columns.inputs.len()).filter(|_| flips) {
                    // SAFETY: the launch checked that columns are inside blocks, which they keep.
                    flip(unsafe { slice::from_raw_parts_mut(column.start as *mut u8, column.bytes) });
                }
            }
            Work::Multiply(work) if healthy => multiply(&work),
            Work::Fail(code) if healthy => fault.store(code, Ordering::SeqCst),
            Work::Wait(record) => record.wait(),
            Work::Hold => wait_for_others(),
            Work::Hang => wait_for_healing(),
            Work::Record(record) => {
                // First, because whoever waits for the record may close the stream at once.
                pending.fetch_sub(1, Ordering::SeqCst);
                record.finish();
                continue;
            }
            Work::Stop => return,
            Work::Copy { .. } | Work::Set { .. } | Work::Launch { .. } | Work::Multiply(_) | Work::Fail(_) => {}
        }
        pending.fetch_sub(1, Ordering::SeqCst);
    }
}

fn launch(
    kernel: &Kernel,
    (first_row, rows, total_rows): (u64, usize, u64),
    columns: &[Column],
    resident: &[Column],
    values: &[u64],
) {
    let inputs = kernel.columns.inputs.len();
    let outputs = kernel.columns.outputs.len();
    let written = (inputs..inputs + outputs).chain(kernel.columns.first_operand()..columns.len());
    // SAFETY: the launch checked that columns are inside blocks, which they keep, and do not overlap.
    let input = |c: &Column| unsafe { slice::from_raw_parts(c.start as *const u8, c.bytes) };
    // SAFETY: as above; each column is borrowed once.
    let output = |c: &Column| unsafe { slice::from_raw_parts_mut(c.start as *mut u8, c.bytes) };
    // Aligned as partials are, even if there are none.
    let none = bytemuck::cast_slice_mut(&mut [0_u64; 0]);
    let partials = columns.get(inputs + outputs).filter(|_| kernel.columns.has_partials()).map_or(none, output);
    kernel.host.lock().unwrap().run(
        first_row,
        rows,
        &columns[..inputs].iter().map(input).collect::<Vec<&[u8]>>(),
        &mut written.map(|column| output(&columns[column])).collect::<Vec<&mut [u8]>>(),
        partials,
        &Uniform { resident: &resident.iter().map(input).collect::<Vec<&[u8]>>(), values, total_rows },
    );
}

fn multiply(work: &Multiply) {
    let Multiply { of, precision, operands, result, scratch, flips } = work;
    // SAFETY: the call checked that operands, result and workspace are inside blocks, which they keep, and that neither
    // of the last two overlaps any other.
    let written = |column: &Column| unsafe { slice::from_raw_parts_mut(column.start as *mut u8, column.bytes) };
    // SAFETY: as above.
    let read = |column: &Column| unsafe { slice::from_raw_parts(column.start as *const u8, column.bytes) };
    // A part of the workspace, so that a mistake shows, and little time is lost.
    written(scratch).iter_mut().take(4096).for_each(|byte| *byte = !*byte);
    let float = match of {
        Factors::Sum { product, .. } => product.float,
        Factors::Rows { product, .. } => product.float,
    };
    let [first, second] = operands.each_ref().map(|operand| float.factors(*precision, read(operand)));
    let [first, second]: [&[u8]; 2] = [&first, &second].map(|words| bytemuck::cast_slice(words));
    let result = written(result);
    match of {
        Factors::Sum { product, rows, adds } => product.multiply(*rows, [first, second], result, *adds),
        Factors::Rows { product, rows } => product.multiply(*rows, first, second, result),
    }
    if *flips {
        flip(result);
    }
}

/// Inverts a high bit of a number in the middle of these bytes.
fn flip(bytes: &mut [u8]) {
    let middle = (bytes.len() / 16 * 8 + 6).min(bytes.len().saturating_sub(1));
    bytes.iter_mut().skip(middle).take(1).for_each(|byte| *byte ^= 4);
}

/// Pauses of up to a fifth of a millisecond before half of the work.
struct Delays(u64);

impl Delays {
    fn sleep(&mut self) {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        if self.0 & 1 == 1 {
            thread::sleep(Duration::from_nanos((self.0 >> 8) % 200_000));
        }
    }
}
