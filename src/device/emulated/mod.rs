//! The emulated device: simulates a discrete GPU in host memory.
//!
//! Its memory has a fixed size and is initialised with poison. Enqueued work runs **later**: only when the host waits
//! for an event does the device run operations, each from a stream that the seed chooses among those whose next
//! operation can run. So copies run as late, and streams are reordered as much, as the events permit. A missing wait
//! gives a wrong result on every machine, and the same result for the same seed. Failures can be injected.
//!
//! Times are virtual. Every operation has a start and an end that follow from the rates in [`Emulated`], as if two
//! copy engines and one compute engine served all streams in order.
//!
//! The device uses no threads. Its workers run on one thread ([`Schedule::Seeded`]), so that a run is repeatable.

mod clock;
mod host_memory;
mod machine;
mod multiply;
mod options;
mod stream;

pub(crate) use host_memory::HostMemory;
pub(crate) use machine::Random;
pub use options::{Emulated, Fault, FaultAt};

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use self::machine::{Machine, Words};
pub(crate) use self::stream::{EmulatedEvent, EmulatedHost, EmulatedStream};
use super::kernel::{Columns, HostKernel, ScalarArgs, SharedKernel};
use super::{Device, DeviceDetails, DeviceInfo, DeviceKind, Registration, Schedule};
use crate::error::{Error, Result};

/// The emulated device. Clones are the same device.
#[derive(Clone)]
pub(crate) struct EmulatedDevice {
    info: DeviceInfo,
    options: Emulated,
    machine: Arc<Mutex<Machine>>,
    host_memory: HostMemory,
}

impl EmulatedDevice {
    /// Creates the only emulated device.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn new(options: &Emulated) -> Self {
        Self::named("emulated".into(), options)
    }

    /// Creates one of several emulated devices.
    pub(crate) fn named(id: String, options: &Emulated) -> Self {
        EmulatedDevice {
            info: info(id.clone(), options),
            options: options.clone(),
            machine: Arc::new(Mutex::new(Machine::new(id, options))),
            host_memory: HostMemory::new(options),
        }
    }

    /// Returns the free device memory in bytes.
    fn free(&self, machine: &Machine) -> u64 {
        let taken = self.options.taken_bytes.saturating_add(machine.used);
        self.options.memory_bytes().saturating_sub(taken)
    }
}

/// Returns emulated devices with their ids: `emulated` for a single one, `emulated:0`, `emulated:1`, … for several.
pub(crate) fn named(all: &[Emulated]) -> impl Iterator<Item = (String, &Emulated)> {
    let id = |k: usize| if all.len() == 1 { "emulated".into() } else { format!("emulated:{k}") };
    all.iter().enumerate().map(move |(k, options)| (id(k), options))
}

/// Describes the device with these options.
pub(crate) fn info(id: String, options: &Emulated) -> DeviceInfo {
    DeviceInfo {
        id,
        name: format!("emulated device, seed {}", options.seed),
        kind: DeviceKind::Emulated,
        memory_bytes: options.memory_bytes(),
        compute_capability: None,
        details: DeviceDetails::default(),
    }
}

fn lock(machine: &Mutex<Machine>) -> MutexGuard<'_, Machine> {
    machine.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the time that `amount` takes at a rate per second; the longest possible time if the rate is not valid.
fn time(amount: usize, rate: f64) -> Duration {
    Duration::try_from_secs_f64(amount as f64 / rate).unwrap_or(Duration::MAX)
}

/// An allocation, in eight-byte words, so that columns of every dtype are aligned.
pub(crate) struct EmulatedMemory {
    words: Words,
    bytes: u64,
    machine: Arc<Mutex<Machine>>,
}

impl Drop for EmulatedMemory {
    fn drop(&mut self) {
        lock(&self.machine).used -= self.bytes;
    }
}

/// A registration of host memory, which changes nothing.
pub(crate) struct EmulatedPin(Arc<Mutex<Machine>>);

impl Registration for EmulatedPin {
    fn is_for_ever(&self) -> bool {
        lock(&self.0).is_given_up
    }
}

/// A loaded kernel, which is its host kernel.
pub(crate) struct EmulatedKernel {
    columns: Columns,
    values: Arc<ScalarArgs>,
    host: Arc<Mutex<Box<dyn HostKernel>>>,
    /// The name of its function, for the error of a panic there.
    whose: Arc<str>,
}

impl Device for EmulatedDevice {
    type Memory = EmulatedMemory;
    type Kernel = EmulatedKernel;
    type Pin = EmulatedPin;
    type Stream = EmulatedStream;
    type Event = EmulatedEvent;
    type Host = EmulatedHost;

    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn number(&self) -> usize {
        Arc::as_ptr(&self.machine).addr()
    }

    fn schedule(&self) -> Schedule {
        Schedule::Seeded(self.options.seed)
    }

    fn free_bytes(&self) -> Result<u64> {
        let mut machine = lock(&self.machine);
        machine.call(FaultAt::FreeBytes)?;
        Ok(self.free(&machine))
    }

    fn allocate(&self, bytes: usize) -> Result<EmulatedMemory> {
        let mut machine = lock(&self.machine);
        if machine.is_given_up {
            machine.call(FaultAt::Allocate)?;
        }
        let full = bytes as u64 > self.free(&machine);
        if machine.fault(FaultAt::Allocate) || full {
            return Err(Error::OutOfMemory { device: self.info.id.clone(), bytes: bytes as u64 });
        }
        machine.used += bytes as u64;
        let words = vec![machine.poison_word(); bytes.div_ceil(8)];
        Ok(EmulatedMemory { words: Arc::new(Mutex::new(words)), bytes: bytes as u64, machine: self.machine.clone() })
    }

    unsafe fn pin(&self, _start: *mut u8, _bytes: usize) -> Result<EmulatedPin> {
        lock(&self.machine).call(FaultAt::Pin)?;
        Ok(EmulatedPin(self.machine.clone()))
    }

    fn load(&self, kernel: &SharedKernel) -> Result<EmulatedKernel> {
        lock(&self.machine).call(FaultAt::Load)?;
        let host = kernel.new_host_kernel().ok_or_else(|| kernel.no_host_kernel("emulated"))?;
        let (columns, values) = (kernel.columns.clone(), kernel.values.clone());
        Ok(EmulatedKernel { columns, values, host: Arc::new(Mutex::new(host)), whose: kernel.whose().into() })
    }

    fn open_stream(&self) -> Result<EmulatedStream> {
        lock(&self.machine).call(FaultAt::OpenStream)?;
        Ok(EmulatedStream::new(self.machine.clone(), &self.options))
    }

    fn event(&self, _keeps_time: bool) -> Result<EmulatedEvent> {
        lock(&self.machine).call(FaultAt::Event)?;
        Ok(EmulatedEvent::default())
    }

    fn host(&self, _epoch: Instant) -> EmulatedHost {
        EmulatedHost::new(self.machine.clone(), &self.options, &self.host_memory)
    }

    fn give_up(&self) {
        lock(&self.machine).is_given_up = true;
    }

    fn is_given_up(&self) -> bool {
        lock(&self.machine).is_given_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::product::{Float, MatrixProduct, Product};
    use crate::device::{Host, Precision, Stream, contract};

    #[test]
    fn keeps_the_contract_of_devices() {
        for seed in 0..8 {
            contract::check(&EmulatedDevice::new(&Emulated::new().seed(seed).memory(65 << 20).kernel_rate(1e6)));
        }
        contract::check_failed_allocation(&EmulatedDevice::new(
            &Emulated::new().fault(Fault::new(FaultAt::Allocate, 0)),
        ));
        for at in [FaultAt::CopyIn, FaultAt::Kernel, FaultAt::CopyOut] {
            contract::check_failed_work(&EmulatedDevice::new(&Emulated::new().fault(Fault::new(at, 0))));
        }
        for fault in [Fault::new(FaultAt::Kernel, 0), Fault::hang(FaultAt::Kernel, 0)] {
            contract::check_failed_product(&EmulatedDevice::new(&Emulated::new().fault(fault)));
            contract::check_failed_matrix_product(&EmulatedDevice::new(&Emulated::new().fault(fault)));
        }
    }

    /// Stores a product, of a row with a matrix or summed over one row, into memory that holds the right result, and
    /// copies it out by another stream.
    fn product_by(options: &Emulated, is_matrix: bool, with_wait: bool) -> (f64, Duration) {
        let device = EmulatedDevice::new(options);
        let memory = device.allocate(24).unwrap();
        let (mut a, mut b) = (device.open_stream().unwrap(), device.open_stream().unwrap());
        let [filled, multiplied, done] = [0; 3].map(|_| device.event(true).unwrap());
        let (from, mut to) = ([2.0, 3.0, 6.0], 0.0);
        let mut host = device.host(Instant::now());
        // SAFETY: all ranges are inside the arrays and the memory. The streams are dropped, and with them their work,
        // before the arrays. Products of emulated devices use no workspace.
        unsafe {
            a.prepare_products(&memory, Precision::Full).unwrap();
            a.copy_in(from.as_ptr().cast(), &memory, 0, 24).unwrap();
            a.record(&filled).unwrap();
            host.synchronize(&filled).unwrap();
            if is_matrix {
                let product = MatrixProduct { float: Float::F64, inner: 1, width: 1 };
                a.multiply_rows(&product, 1, (&memory, 8), &memory, (&memory, 16)).unwrap();
            } else {
                let product = Product { float: Float::F64, left: 1, right: 1 };
                a.multiply(&product, 1, [(&memory, 0), (&memory, 8)], (&memory, 16), false).unwrap();
            }
            a.record(&multiplied).unwrap();
            if with_wait {
                b.wait(&multiplied).unwrap();
            }
            b.copy_out(&memory, 16, std::ptr::from_mut(&mut to).cast(), 8).unwrap();
        }
        b.record(&done).unwrap();
        host.synchronize(&done).unwrap();
        let at = host.done_at(&multiplied);
        drop(b);
        (to, at)
    }

    #[test]
    fn a_product_that_is_read_too_early_is_not_that_of_earlier_work() {
        for is_matrix in [false, true] {
            let wrong = |with_wait| {
                let is_wrong = |seed: &u64| product_by(&Emulated::new().seed(*seed), is_matrix, with_wait).0 != 6.0;
                (0..32).filter(is_wrong).count()
            };
            assert!(wrong(false) > 0, "no seed shows the missing wait");
            assert_eq!(wrong(true), 0, "a wait did not hold");
        }
    }

    #[test]
    fn a_product_takes_time_and_may_get_a_bit_wrong() {
        // The result of rows with a matrix is as large as rows, so its bytes count.
        for (is_matrix, seconds) in [(false, 4), (true, 6)] {
            let slow = Emulated::new().memory_rate(4.0);
            assert_eq!(product_by(&slow, is_matrix, true), (6.0, Duration::from_secs(seconds)));
            let flips = Emulated::new().fault(Fault::flip(FaultAt::Kernel, 0, 63));
            assert_eq!(product_by(&flips, is_matrix, true).0, -6.0);
        }
    }

    #[test]
    fn work_happens_only_when_it_is_waited_for() {
        let device = EmulatedDevice::new(&Emulated::new());
        let memory = device.allocate(64).unwrap();
        let (mut stream, mut host) = (device.open_stream().unwrap(), device.host(Instant::now()));
        let event = device.event(false).unwrap();
        let (from, mut to) = ([7u8; 8], [0u8; 8]);
        // SAFETY: both arrays outlive the stream's work, which `synchronize` ends, and nobody touches them until
        // then.
        unsafe {
            stream.copy_in(from.as_ptr(), &memory, 0, 8).unwrap();
            stream.copy_out(&memory, 0, to.as_mut_ptr(), 8).unwrap();
        }
        stream.record(&event).unwrap();
        host.synchronize(&event).unwrap();
        assert_eq!(to, [7; 8]);
        assert!(host.query(&event).unwrap());
    }

    #[test]
    fn a_missing_wait_between_streams_shows_for_some_seed() {
        // One stream writes, another reads: without a wait in between, some order reads too early.
        let read_early = |seed: u64, with_wait: bool| {
            let device = EmulatedDevice::new(&Emulated::new().seed(seed));
            let memory = device.allocate(8).unwrap();
            let (mut a, mut b) = (device.open_stream().unwrap(), device.open_stream().unwrap());
            let (written, done) = (device.event(false).unwrap(), device.event(false).unwrap());
            let (from, mut to) = ([7u8; 8], [0u8; 8]);
            // SAFETY: as above; the streams are dropped, and with them their work, before the arrays.
            unsafe {
                a.copy_in(from.as_ptr(), &memory, 0, 8).unwrap();
                a.record(&written).unwrap();
                if with_wait {
                    b.wait(&written).unwrap();
                }
                b.copy_out(&memory, 0, to.as_mut_ptr(), 8).unwrap();
            }
            b.record(&done).unwrap();
            device.host(Instant::now()).synchronize(&done).unwrap();
            to != [7; 8]
        };
        assert!((0..32).any(|seed| read_early(seed, false)), "no seed shows the missing wait");
        assert!((0..32).all(|seed| !read_early(seed, true)), "a wait did not hold");
    }

    #[test]
    fn memory_has_a_limit_and_comes_back() {
        let device = EmulatedDevice::new(&Emulated::new().memory(100));
        let a = device.allocate(60).unwrap();
        assert!(matches!(device.allocate(41), Err(Error::OutOfMemory { bytes: 41, .. })));
        drop(a);
        device.allocate(100).unwrap();
    }

    #[test]
    fn a_fault_surfaces_at_the_wait() {
        let device = EmulatedDevice::new(&Emulated::new().fault(Fault::new(FaultAt::CopyIn, 1)));
        let memory = device.allocate(8).unwrap();
        let (mut stream, mut host) = (device.open_stream().unwrap(), device.host(Instant::now()));
        let event = device.event(false).unwrap();
        let from = [7u8; 8];
        for fails in [false, true] {
            // SAFETY: as above.
            unsafe { stream.copy_in(from.as_ptr(), &memory, 0, 8).unwrap() };
            stream.record(&event).unwrap();
            assert_eq!(host.synchronize(&event).is_err(), fails);
        }
    }

    #[test]
    fn virtual_time_is_that_of_engines_in_order() {
        // 1000 bytes/s each way: two streams copy in one after the other, then out likewise; the directions overlap.
        let device = EmulatedDevice::new(&Emulated::new().copy_in_rate(1000.0).copy_out_rate(1000.0));
        let memory = device.allocate(1000).unwrap();
        let mut host = vec![0u8; 1000];
        let mut end = Vec::new();
        let mut streams = [device.open_stream().unwrap(), device.open_stream().unwrap()];
        for stream in &mut streams {
            let event = device.event(true).unwrap();
            // SAFETY: `memory` of the host outlives the streams, which are dropped before it; its content does not
            // matter.
            unsafe {
                stream.copy_in(host.as_ptr(), &memory, 0, 1000).unwrap();
                stream.copy_out(&memory, 0, host.as_mut_ptr(), 1000).unwrap();
            }
            stream.record(&event).unwrap();
            end.push(device.host(Instant::now()).done_at(&event).as_secs_f64());
        }
        assert_eq!(end, [2.0, 3.0]);
    }
}
