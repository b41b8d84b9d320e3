//! Device memory made of host memory, and registered host memory.

use std::alloc::{Layout, alloc, dealloc};
use std::collections::BTreeMap;
use std::ops::Range;
use std::ptr;
use std::sync::Arc;

use crate::misuse;

const ALIGNMENT: usize = 256;
/// New device memory is filled with this, so that it is not taken for zeros.
const POISON: u8 = 0xdb;

/// An allocation of device memory.
pub struct Block {
    pub device: usize,
    start: usize,
    layout: Layout,
}

impl Block {
    pub fn allocate(device: usize, bytes: usize) -> Option<Block> {
        let layout = Layout::from_size_align(bytes, ALIGNMENT).ok()?;
        // SAFETY: the size is not zero: the entry point refuses that.
        let start = unsafe { alloc(layout) };
        if start.is_null() {
            return None;
        }
        // SAFETY: just allocated with that size.
        unsafe { ptr::write_bytes(start, POISON, bytes) };
        Some(Block { device, start: start as usize, layout })
    }

    pub fn start(&self) -> u64 {
        self.start as u64
    }

    pub fn bytes(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.start as *mut u8, self.layout) };
    }
}

/// Host memory that is registered, or allocated by the driver.
pub struct Pinned {
    pub flags: u32,
    pub range: Range<usize>,
    /// How it was allocated, if the driver did.
    allocated: Option<Layout>,
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(layout) = self.allocated {
            // SAFETY: allocated with this layout.
            unsafe { dealloc(self.range.start as *mut u8, layout) };
        }
    }
}

/// All memory known to the driver, by its start.
#[derive(Default)]
pub struct Memory {
    pub blocks: BTreeMap<u64, Arc<Block>>,
    pinned: BTreeMap<usize, Arc<Pinned>>,
}

impl Memory {
    pub fn used(&self, device: usize) -> usize {
        self.blocks.values().filter(|block| block.device == device).map(|block| block.bytes()).sum()
    }

    /// The block of any device that an address lies in.
    pub fn block_at(&self, address: u64) -> Option<Arc<Block>> {
        let below = self.blocks.range(..=address).next_back().map(|entry| entry.1);
        below.filter(|block| address - block.start() < block.bytes() as u64).cloned()
    }

    /// The block of the device that the range lies in as a whole.
    pub fn block(&self, device: usize, start: u64, bytes: usize) -> Arc<Block> {
        let below = self.blocks.range(..=start).next_back().map(|entry| entry.1);
        match below.filter(|block| (start - block.start()) as usize + bytes <= block.bytes()) {
            Some(block) if block.device == device => block.clone(),
            Some(_) => misuse(format_args!("memory of another device at {start:#x}")),
            None => misuse(format_args!("{bytes} bytes at {start:#x} are in no allocation of device memory")),
        }
    }

    pub fn free(&mut self, start: u64) {
        match self.blocks.remove(&start).map(Arc::try_unwrap) {
            Some(Ok(_)) => {}
            Some(Err(_)) => misuse(format_args!("device memory is freed while queued work uses it")),
            None => misuse(format_args!("{start:#x} is freed but no allocation of device memory")),
        }
    }

    /// Whether the range was free to register.
    pub fn pin(&mut self, start: usize, bytes: usize, flags: u32) -> bool {
        let range = start..start + bytes;
        let free = self.pinned.values().all(|other| range.end <= other.range.start || other.range.end <= range.start);
        if free {
            self.pinned.insert(start, Arc::new(Pinned { flags, range, allocated: None }));
        }
        free
    }

    /// Allocates page-locked memory; `None` if there is none.
    pub fn allocate_host(&mut self, bytes: usize, flags: u32) -> Option<*mut u8> {
        let layout = Layout::from_size_align(bytes, 4096).ok().filter(|layout| layout.size() > 0)?;
        // SAFETY: the layout has a size.
        let start = unsafe { alloc(layout) };
        if start.is_null() {
            return None;
        }
        let range = start as usize..start as usize + bytes;
        self.pinned.insert(range.start, Arc::new(Pinned { flags, range, allocated: Some(layout) }));
        Some(start)
    }

    pub fn free_host(&mut self, start: usize) {
        if self.pinned.get(&start).is_none_or(|pinned| pinned.allocated.is_none()) {
            misuse(format_args!("{start:#x} is freed but no allocation of host memory"));
        }
        self.remove_pinned(start);
    }

    pub fn pinned_bytes(&self) -> u64 {
        self.pinned.values().map(|pinned| pinned.range.len() as u64).sum()
    }

    pub fn unpin(&mut self, start: usize) {
        if self.pinned.get(&start).is_some_and(|pinned| pinned.allocated.is_some()) {
            misuse(format_args!("{start:#x} is unregistered but was allocated by the driver"));
        }
        self.remove_pinned(start);
    }

    fn remove_pinned(&mut self, start: usize) {
        match self.pinned.remove(&start).map(Arc::try_unwrap) {
            Some(Ok(_)) => {}
            Some(Err(_)) => misuse(format_args!("host memory is unregistered while queued copies use it")),
            None => misuse(format_args!("{start:#x} is unregistered but was not registered")),
        }
    }

    /// The registration that the range lies in as a whole, or `None` for pageable memory.
    pub fn pinned(&self, start: usize, bytes: usize) -> Option<Arc<Pinned>> {
        let range = start..start + bytes;
        let mut touching =
            self.pinned.values().filter(|other| range.start < other.range.end && other.range.start < range.end);
        let pinned = touching.next()?;
        if range.start < pinned.range.start || pinned.range.end < range.end {
            misuse(format_args!("a copy of host memory that is registered in part"));
        }
        Some(pinned.clone())
    }

    /// How many registrations there are.
    pub fn pins(&self) -> usize {
        self.pinned.len()
    }
}
