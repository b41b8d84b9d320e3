//! Datasets in memory, whose `unsafe` code is behind safe types.
//!
//! - [`Memory`]: the rows of a source, shared.
//! - [`Disjoint`]: a slice whose parts are written concurrently by several threads. Like a `RefCell`, it checks at
//!   run time what the borrow checker cannot prove: that no two live parts overlap.
//! - [`SinkMemory`]: a [`Disjoint`] measured in rows. Small ones are written through the cache.
//! - [`map_file`]: the bytes of a file as a slice.

use super::{Dtype, copy_past_cache};
use crate::cpu_cache::last_level_cache_bytes;
use crate::error::{ColumnError, Result};
use memmap2::{Mmap, MmapOptions, MmapRaw};
use std::fmt;
use std::fs::File;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

/// A whole dataset in memory, in native byte order and aligned for its dtype.
///
/// ```
/// use overshot::{Dtype, io::Memory};
/// let values = [1.0f32, 2.0];
/// let bytes: &[u8] = bytemuck::cast_slice(&values);
/// assert!(Memory::new(bytes, Dtype::F32).is_some_and(|memory| memory.bytes().len() == 8));
/// assert!(Memory::new(&bytes[1..], Dtype::F32).is_none(), "not aligned");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Memory<'a> {
    bytes: &'a [u8],
    pinned: bool,
}

impl<'a> Memory<'a> {
    /// Creates the memory of a dataset whose rows are `bytes`. Returns `None` if `bytes` is not aligned for
    /// `dtype`; such a dataset cannot be used in place and must be read.
    pub fn new(bytes: &'a [u8], dtype: Dtype) -> Option<Self> {
        let aligned = bytes.as_ptr().addr().is_multiple_of(dtype.size());
        aligned.then_some(Memory { bytes, pinned: false })
    }

    /// Marks the memory as pinned: devices may copy from it directly.
    pub(crate) fn pinned(self) -> Self {
        Memory { pinned: true, ..self }
    }

    /// Returns the rows as bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the memory of `rows` rows of `dtype` from row `first` on; `None` if it does not have them.
    pub fn part(&self, first: u64, rows: u64, dtype: Dtype) -> Option<Memory<'a>> {
        let byte = |row: u64| usize::try_from(row).ok()?.checked_mul(dtype.size());
        let bytes = self.bytes.get(byte(first)?..byte(first.checked_add(rows)?)?)?;
        Some(Memory { bytes, ..*self })
    }

    /// Returns whether the memory is pinned.
    pub fn is_pinned(&self) -> bool {
        self.pinned
    }
}

/// A slice whose parts are borrowed mutably by several threads at once, each part by one thread at a time.
pub(super) struct Disjoint<'a, T> {
    start: NonNull<T>,
    len: usize,
    /// The parts that are borrowed now: one per slot in flight or computing worker, so there are a few dozen, and a
    /// linear search is enough.
    claimed: Mutex<Vec<Range<usize>>>,
    /// Keeps a mapping alive while its bytes are used.
    _map: Option<MmapRaw>,
    _borrow: PhantomData<&'a mut [T]>,
}

// SAFETY: a `Disjoint` represents a `&'a mut [T]` and hands out `&mut [T]` to parts that do not overlap, as
// `split_at_mut` does. Both need only `T: Send` to move to other threads. The list of parts is behind a mutex, and
// `MmapRaw` is `Send` and `Sync`.
unsafe impl<T: Send> Send for Disjoint<'_, T> {}
// SAFETY: as above. A shared `Disjoint` gives access to elements only through a `Claim`.
unsafe impl<T: Send> Sync for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    pub(super) fn new(slice: &'a mut [T]) -> Self {
        let len = slice.len();
        Disjoint {
            start: NonNull::from(slice).cast(),
            len,
            claimed: Mutex::default(),
            _map: None,
            _borrow: PhantomData,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Borrows a part until the claim is dropped. Returns `None` if the part is out of bounds or overlaps a
    /// borrowed part.
    pub(super) fn claim(&self, part: Range<usize>) -> Option<Claim<'_, T>> {
        if part.start > part.end || part.end > self.len {
            return None;
        }
        // An empty part overlaps nothing, and is not recorded: two empty parts would be equal in the list.
        if !part.is_empty() {
            let mut claimed = self.claimed.lock().unwrap_or_else(PoisonError::into_inner);
            if claimed.iter().any(|c| c.start < part.end && part.start < c.end) {
                return None;
            }
            claimed.push(part.clone());
        }
        // SAFETY: `part` is within the `len` elements at `start` (checked above), which belong to one allocation or
        // mapping.
        let start = unsafe { self.start.add(part.start) };
        let elements = NonNull::slice_from_raw_parts(start, part.len());
        Some(Claim { elements, part, claimed: &self.claimed, _borrow: PhantomData })
    }

    /// Ends a claim on exactly this part that was forgotten. Does nothing if there is none.
    ///
    /// # Safety
    /// Nobody accesses the part through that claim any more.
    unsafe fn end_forgotten(&self, part: Range<usize>) {
        end_claim(&self.claimed, &part);
    }
}

impl Disjoint<'static, u8> {
    /// The bytes of a mapping from `offset` to its end.
    ///
    /// # Panics
    /// Panics if `offset` is beyond the end.
    fn from_map(map: MmapRaw, offset: usize) -> Self {
        let len = map.len().checked_sub(offset).expect("a header longer than its file");
        let base = NonNull::new(map.as_mut_ptr()).expect("a mapping at address 0");
        // SAFETY: `offset` is at most the length of the mapping.
        let start = unsafe { base.add(offset) };
        Disjoint { start, len, claimed: Mutex::default(), _map: Some(map), _borrow: PhantomData }
    }
}

/// A part of a sink's memory, borrowed mutably until the claim is dropped.
///
/// ```
/// use overshot::{Dtype, io::SinkMemory};
/// let mut bytes = [0; 4];
/// let memory = SinkMemory::new(&mut bytes, Dtype::U8).expect("bytes are aligned");
/// let mut claim = memory.claim(1..3);
/// claim.fill(7);
/// drop(claim);
/// drop(memory);
/// assert_eq!(bytes, [0, 7, 7, 0]);
/// ```
pub struct Claim<'m, T = u8> {
    // Not a `&mut [T]`, which as an argument of a call would have to be unique for the whole call, even after
    // `drop` inside that call returned the part.
    elements: NonNull<[T]>,
    part: Range<usize>,
    claimed: &'m Mutex<Vec<Range<usize>>>,
    /// Acts as a `&mut [T]`, and is therefore invariant in `T`.
    _borrow: PhantomData<&'m mut [T]>,
}

// SAFETY: a `Claim` represents a `&mut [T]`, which is `Send` if `T` is; `claimed` is a shared reference to a `Sync`
// type.
unsafe impl<T: Send> Send for Claim<'_, T> {}
// SAFETY: as above; a `&&mut [T]` permits reading only, so `T: Sync` suffices.
unsafe impl<T: Sync> Sync for Claim<'_, T> {}

impl<T> Deref for Claim<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `elements` are initialised elements of a `Disjoint` that outlives `self`. They are in its list of
        // claimed parts, so that no other claim overlaps them, and the lifetime of the `Disjoint` excludes all
        // other uses of the slice.
        unsafe { self.elements.as_ref() }
    }
}

impl<T> DerefMut for Claim<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and `&mut self` makes this the only reference created from this claim.
        unsafe { self.elements.as_mut() }
    }
}

impl<T> Drop for Claim<'_, T> {
    fn drop(&mut self) {
        if self.part.is_empty() {
            return;
        }
        end_claim(self.claimed, &self.part);
    }
}

fn end_claim(claimed: &Mutex<Vec<Range<usize>>>, part: &Range<usize>) {
    let mut claimed = claimed.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(at) = claimed.iter().position(|c| c == part) {
        claimed.swap_remove(at);
    }
}

impl<T> fmt::Debug for Claim<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Claim({:?})", self.part)
    }
}

/// The memory of a whole output, written in place by several threads at once.
///
/// ```
/// use overshot::{Dtype, io::SinkMemory};
/// let mut bytes = [0; 4];
/// let memory = SinkMemory::new(&mut bytes, Dtype::Bool).expect("bytes are aligned");
/// // Two threads write to different rows at the same time.
/// std::thread::scope(|scope| {
///     scope.spawn(|| memory.claim(0..2).fill(1));
///     scope.spawn(|| memory.claim(2..4).fill(1));
/// });
/// drop(memory);
/// assert_eq!(bytes, [1; 4]);
/// ```
pub struct SinkMemory<'a> {
    bytes: Disjoint<'a, u8>,
    row_bytes: usize,
    pinned: bool,
}

impl<'a> SinkMemory<'a> {
    /// Creates the memory of an output whose rows of `dtype` are `bytes`. Returns `None` if `bytes` is not aligned
    /// for `dtype` or is not a whole number of rows.
    pub fn new(bytes: &'a mut [u8], dtype: Dtype) -> Option<Self> {
        Self::over(Disjoint::new(bytes), dtype)
    }

    /// Marks the memory as pinned: devices may copy to it directly.
    pub(crate) fn pinned(self) -> Self {
        SinkMemory { pinned: true, ..self }
    }

    fn over(bytes: Disjoint<'a, u8>, dtype: Dtype) -> Option<Self> {
        let row_bytes = dtype.size();
        let whole = bytes.start.addr().get().is_multiple_of(row_bytes) && bytes.len().is_multiple_of(row_bytes);
        whole.then_some(SinkMemory { bytes, row_bytes, pinned: false })
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> u64 {
        (self.bytes.len() / self.row_bytes) as u64
    }

    /// Returns the size of a row in bytes.
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// Returns whether the memory is pinned.
    pub fn is_pinned(&self) -> bool {
        self.pinned
    }

    /// Returns the address range of the rows.
    pub(crate) fn address(&self) -> *const [u8] {
        std::ptr::slice_from_raw_parts(self.bytes.start.as_ptr(), self.bytes.len())
    }

    /// Borrows the bytes of some rows until the claim is dropped. A claim that is passed to `mem::forget` borrows
    /// its rows forever.
    ///
    /// # Panics
    /// Panics if the rows do not exist, or if some of them are borrowed already.
    pub fn claim(&self, rows: Range<u64>) -> Claim<'_> {
        self.try_claim(rows.clone()).unwrap_or_else(|| {
            panic!("rows {} to {} of {} are out of bounds or in use", rows.start, rows.end, self.rows())
        })
    }

    /// Borrows like [`claim`](SinkMemory::claim), for a run, which a sink that the caller implements must not make
    /// panic.
    ///
    /// # Errors
    /// Returns [`Error::InvalidColumn`](crate::Error::InvalidColumn) instead of panicking.
    pub(crate) fn claim_for_run(&self, rows: Range<u64>) -> Result<Claim<'_>> {
        let Range { start: first, end } = rows;
        self.try_claim(rows).ok_or_else(|| ColumnError::RowsInUse { first, end }.into())
    }

    /// Returns whether all of the memory can stay in the cache, from which the caller reads it.
    pub(crate) fn stays_in_cache(&self) -> bool {
        self.bytes.len() as u64 <= STAYS_IN_CACHE.max(last_level_cache_bytes() / CACHE_PART)
    }

    /// Copies rows to claimed rows of this memory, past the cache unless all of the memory can stay in it.
    ///
    /// # Panics
    /// Panics if the lengths differ.
    pub(crate) fn copy(&self, to: &mut [u8], from: &[u8]) {
        if self.stays_in_cache() { to.copy_from_slice(from) } else { copy_past_cache(to, from) }
    }

    /// Borrows like [`claim`](SinkMemory::claim), but returns `None` instead of panicking.
    pub(crate) fn try_claim(&self, rows: Range<u64>) -> Option<Claim<'_>> {
        self.bytes.claim(self.bytes_of(rows)?)
    }

    /// Ends a claim on exactly these rows that was forgotten. Does nothing if there is none.
    ///
    /// # Safety
    /// Nobody accesses the rows through that claim any more.
    pub(crate) unsafe fn end_forgotten_claim(&self, rows: Range<u64>) {
        if let Some(part) = self.bytes_of(rows) {
            // SAFETY: by this function's contract.
            unsafe { self.bytes.end_forgotten(part) };
        }
    }

    fn bytes_of(&self, rows: Range<u64>) -> Option<Range<usize>> {
        let byte = |row: u64| usize::try_from(row).ok()?.checked_mul(self.row_bytes);
        Some(byte(rows.start)?..byte(rows.end)?)
    }
}

impl SinkMemory<'static> {
    /// Maps a new file, to be written in the range `rows` of its bytes. Returns `None` if the system cannot map it; the
    /// file is then written with system calls.
    ///
    /// The space must be reserved already: if the disk has no room for a page, writing to it kills the process.
    pub(crate) fn map(file: &File, rows: Range<u64>, dtype: Dtype) -> Option<Self> {
        let [start, end] = [rows.start, rows.end].map(usize::try_from);
        let map = MmapOptions::new().len(end.ok()?).map_raw(file).ok()?;
        // Creating pages one by one is the slowest step here, and does not scale with threads. If the file system
        // does not support large pages, this changes nothing.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Self::over(Disjoint::from_map(map, start.ok()?), dtype)
    }
}

impl fmt::Debug for SinkMemory<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SinkMemory { row_bytes, pinned, .. } = self;
        write!(f, "SinkMemory({} rows of {row_bytes} bytes, pinned: {pinned})", self.rows())
    }
}

/// Maps the first `len` bytes of a file for reading. Returns `None` if that is not possible, as for a `len` of 0.
///
/// # Safety
/// The file has at least `len` bytes, and nobody writes to it or truncates it while the map exists.
pub(crate) unsafe fn map_file(file: &File, len: u64) -> Option<Mmap> {
    let len = usize::try_from(len).ok().filter(|&len| len > 0)?;
    // SAFETY: the mapping is private to this process and read-only. The caller guarantees that its bytes exist and
    // do not change.
    unsafe { MmapOptions::new().len(len).map(file).ok() }
}

/// Bytes of an output that stays in the cache, from which the caller reads it, on any machine. With 1 MiB of columns,
/// `c = a * b` takes 50 µs instead of 88 (`cargo bench --bench latency`).
const STAYS_IN_CACHE: u64 = 4 << 20;
/// The part of the last-level cache that such an output may take: inputs and other outputs are there, too.
const CACHE_PART: u64 = 8;
