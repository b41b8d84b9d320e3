//! The state of the stand-in driver: contexts and everything in them, by handle.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use overshot::testing;

use crate::memory::Memory;
use crate::misuse;
use crate::products::Handle;
use crate::queue::{Kernel, Record, Stream};
use crate::settings::SETTINGS;

static DRIVER: LazyLock<Mutex<Driver>> = LazyLock::new(Mutex::default);

/// Returns the state, locked. The lock must not be held while waiting for a stream.
pub fn driver() -> MutexGuard<'static, Driver> {
    DRIVER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The device memory that a context uses.
const CONTEXT_BYTES: usize = 256 << 10;

/// The primary context of a device.
#[derive(Default)]
struct Context {
    handle: u64,
    users: usize,
    /// The code of the fault that ended it, or 0.
    fault: Arc<AtomicU32>,
}

struct Event {
    device: usize,
    latest: Option<Arc<Record>>,
}

struct Module {
    device: usize,
    source: String,
    functions: Vec<u64>,
}

pub struct Driver {
    handles: u64,
    contexts: Vec<Context>,
    streams: HashMap<u64, Stream>,
    events: HashMap<u64, Event>,
    modules: HashMap<u64, Module>,
    functions: HashMap<u64, Arc<Kernel>>,
    /// The handles of cuBLAS.
    products: HashMap<u64, Handle>,
    pub memory: Memory,
}

impl Default for Driver {
    fn default() -> Driver {
        Driver {
            handles: 0,
            contexts: (0..SETTINGS.devices).map(|_| Context::default()).collect(),
            streams: HashMap::new(),
            events: HashMap::new(),
            modules: HashMap::new(),
            functions: HashMap::new(),
            products: HashMap::new(),
            memory: Memory::default(),
        }
    }
}

/// Ends the process for a handle that is not known.
fn unknown(kind: &str, handle: u64) -> ! {
    misuse(format_args!("{handle:#x} is no {kind}, or one that was destroyed"))
}

fn same(expected: usize, device: usize, kind: &str) {
    if expected != device {
        misuse(format_args!("{kind} of device {device} used while the context of device {expected} is current"));
    }
}

impl Driver {
    /// Returns a handle that no other object had, and that is not an address.
    fn handle(&mut self) -> u64 {
        self.handles += 1;
        self.handles << 4 | 0xf
    }

    /// The primary context, or `None` if there is no memory for it.
    pub fn retain(&mut self, device: usize) -> Option<u64> {
        if self.contexts[device].users == 0 && self.used(device) + CONTEXT_BYTES > SETTINGS.memory(device) {
            return None;
        }
        let fresh = self.handle();
        let context = &mut self.contexts[device];
        if context.users == 0 {
            *context = Context { handle: fresh, ..Context::default() };
        }
        context.users += 1;
        Some(context.handle)
    }

    pub fn is_retained(&self, device: usize) -> bool {
        self.contexts[device].users > 0
    }

    pub fn release(&mut self, device: usize) {
        let context = &mut self.contexts[device];
        match context.users {
            0 => misuse(format_args!("a context is released more often than it was retained")),
            1 => context.handle = 0,
            _ => {}
        }
        context.users -= 1;
        if context.users == 0 {
            self.look_for_leaks(device);
        }
    }

    /// Bytes of the device's memory that are in use: by others, by its context, by allocations.
    pub fn used(&self, device: usize) -> usize {
        let context = if self.contexts[device].users > 0 { CONTEXT_BYTES } else { 0 };
        SETTINGS.taken(device) + context + self.memory.used(device)
    }

    fn look_for_leaks(&self, device: usize) {
        let streams = self.streams.values().filter(|stream| stream.device == device).count();
        let events = self.events.values().filter(|event| event.device == device).count();
        let modules = self.modules.values().filter(|module| module.device == device).count();
        let bytes = self.memory.used(device);
        let last = self.contexts.iter().all(|context| context.users == 0);
        let pins = if last { self.memory.pins() } else { 0 };
        let products = self.products.values().filter(|handle| handle.device == device).count();
        if [streams, events, modules, bytes, pins, products] != [0; 6] {
            misuse(format_args!(
                "left over with device {device}: {streams} streams, {events} events, {modules} modules, {bytes} bytes, \
                 {pins} registrations, {products} handles of cuBLAS"
            ));
        }
    }

    pub fn device_of(&self, context: u64) -> usize {
        let device = self.contexts.iter().position(|known| known.handle == context);
        device.unwrap_or_else(|| unknown("context", context))
    }

    /// The fault of a device, if it has one.
    pub fn fault(&self, device: usize) -> Result<(), u32> {
        match self.contexts[device].fault.load(Ordering::SeqCst) {
            0 => Ok(()),
            code => Err(code),
        }
    }

    /// Makes every further call in a device's context fail.
    pub fn lose(&self, device: usize, code: u32) {
        self.contexts[device].fault.store(code, Ordering::SeqCst);
    }

    /// Makes every further call in any context fail.
    pub fn lose_all(&self, code: u32) {
        (0..self.contexts.len()).for_each(|device| self.lose(device, code));
    }

    pub fn open_stream(&mut self, device: usize) -> u64 {
        let handle = self.handle();
        let stream = Stream::open(device, handle, self.contexts[device].fault.clone());
        self.streams.insert(handle, stream);
        handle
    }

    pub fn stream(&self, device: usize, handle: u64) -> &Stream {
        let stream = self.streams.get(&handle).unwrap_or_else(|| unknown("stream", handle));
        same(device, stream.device, "a stream");
        stream
    }

    pub fn take_stream(&mut self, handle: u64) -> Stream {
        self.streams.remove(&handle).unwrap_or_else(|| unknown("stream", handle))
    }

    pub fn make_products(&mut self, device: usize) -> u64 {
        let handle = self.handle();
        self.products.insert(handle, Handle::of(device));
        handle
    }

    pub fn products_of(&self, device: usize, handle: u64) -> &Handle {
        let found = self.products.get(&handle).unwrap_or_else(|| unknown("handle of cuBLAS", handle));
        same(device, found.device, "a handle of cuBLAS");
        found
    }

    pub fn take_products(&mut self, device: usize, handle: u64) -> Handle {
        self.products_of(device, handle);
        self.products.remove(&handle).unwrap_or_else(|| unknown("handle of cuBLAS", handle))
    }

    pub fn put_products(&mut self, handle: u64, products: Handle) {
        self.products.insert(handle, products);
    }

    /// All handles of cuBLAS.
    pub fn products(&self) -> impl Iterator<Item = &Handle> {
        self.products.values()
    }

    pub fn make_event(&mut self, device: usize) -> u64 {
        let handle = self.handle();
        self.events.insert(handle, Event { device, latest: None });
        handle
    }

    /// The latest record of an event.
    pub fn event(&self, device: usize, handle: u64) -> Option<Arc<Record>> {
        let event = self.events.get(&handle).unwrap_or_else(|| unknown("event", handle));
        same(device, event.device, "an event");
        event.latest.clone()
    }

    pub fn set_event(&mut self, device: usize, handle: u64, record: Arc<Record>) {
        let event = self.events.get_mut(&handle).unwrap_or_else(|| unknown("event", handle));
        same(device, event.device, "an event");
        event.latest = Some(record);
    }

    pub fn destroy_event(&mut self, handle: u64) {
        if self.events.remove(&handle).is_none() {
            unknown("event", handle);
        }
    }

    pub fn load(&mut self, device: usize, source: &str) -> Option<u64> {
        testing::rebuild(source)?;
        let handle = self.handle();
        self.modules.insert(handle, Module { device, source: source.into(), functions: Vec::new() });
        Some(handle)
    }

    pub fn function(&mut self, module: u64, name: &str) -> Option<u64> {
        let handle = self.handle();
        let module = self.modules.get_mut(&module).unwrap_or_else(|| unknown("module", module));
        if !module.source.contains(&format!(" {name}(")) {
            return None;
        }
        let kernel = testing::rebuild(&module.source)?;
        let host = Mutex::new(kernel.new_host_kernel()?);
        let resident = kernel.resident.iter().map(|array| array.len()).collect();
        module.functions.push(handle);
        let kernel = Kernel { columns: kernel.columns, launch: kernel.launch, resident, host };
        self.functions.insert(handle, Arc::new(kernel));
        Some(handle)
    }

    pub fn kernel(&self, function: u64) -> Arc<Kernel> {
        self.functions.get(&function).unwrap_or_else(|| unknown("function", function)).clone()
    }

    pub fn unload(&mut self, module: u64) {
        let module = self.modules.remove(&module).unwrap_or_else(|| unknown("module", module));
        for function in module.functions {
            if self.functions.remove(&function).is_some_and(|kernel| Arc::into_inner(kernel).is_none()) {
                misuse(format_args!("a module is unloaded while queued work uses it"));
            }
        }
    }
}
