//! Datasets that stand in memory. All `unsafe` of the data room is here, behind safe types.
//!
//! - [`Memory`]: a source's rows, shared.
//! - [`Disjoint`]: a slice that many threads write at once, each its own part. Like a `RefCell`, it checks at run time
//!   what the borrow checker cannot see: that no two parts alive at one time overlap.
//! - [`SinkMemory`]: a [`Disjoint`] counted in rows.
//! - [`map_file`]: a file's bytes as a slice.
//! - [`copy_past_cache`]: writes rows that nobody reads again soon.

use super::Dtype;
use crate::error::{Error, Result};
use memmap2::{Mmap, MmapOptions, MmapRaw};
use std::fmt;
use std::fs::File;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

/// A whole dataset in memory, in native byte order, aligned for its dtype.
#[derive(Clone, Copy, Debug)]
pub struct Memory<'a> {
    bytes: &'a [u8],
    pinned: bool,
}

impl<'a> Memory<'a> {
    /// The dataset whose rows are `bytes`. `None` if these do not start at an address aligned for `dtype`: such a
    /// dataset cannot be used in place and has to be read.
    pub fn new(bytes: &'a [u8], dtype: Dtype) -> Option<Self> {
        let aligned = bytes.as_ptr().addr().is_multiple_of(dtype.size());
        aligned.then_some(Memory { bytes, pinned: false })
    }

    /// The same, known to be pinned: devices may copy from it directly.
    pub(crate) fn pinned(self) -> Self {
        Memory { pinned: true, ..self }
    }

    /// The rows, as bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Whether it is pinned.
    pub fn is_pinned(&self) -> bool {
        self.pinned
    }
}

/// A slice whose parts are borrowed mutably by many threads at once, each part by one of them at a time.
pub(super) struct Disjoint<'a, T> {
    start: NonNull<T>,
    len: usize,
    /// The parts that are borrowed now: one per slot in flight or worker that computes, so a few
    /// dozen, searched linearly.
    claimed: Mutex<Vec<Range<usize>>>,
    /// Keeps a mapping alive for as long as its bytes are used.
    _map: Option<MmapRaw>,
    _borrow: PhantomData<&'a mut [T]>,
}

// SAFETY: it stands for a `&'a mut [T]` and hands out `&mut [T]` of parts that do not overlap, which is what
// `split_at_mut` does; both need `T: Send` to go to other threads and nothing else. The list of parts is behind a
// mutex, and `MmapRaw` is `Send` and `Sync` itself.
unsafe impl<T: Send> Send for Disjoint<'_, T> {}
// SAFETY: as above. A shared `Disjoint` gives no access to elements other than through a `Claim`.
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

    /// Borrows a part until the claim is dropped; `None` if it is out of bounds or overlaps a part in use.
    pub(super) fn claim(&self, part: Range<usize>) -> Option<Claim<'_, T>> {
        if part.start > part.end || part.end > self.len {
            return None;
        }
        // An empty part overlaps nothing, and must not: two of them would be equal in the list.
        if !part.is_empty() {
            let mut claimed = self.claimed.lock().unwrap_or_else(PoisonError::into_inner);
            if claimed.iter().any(|c| c.start < part.end && part.start < c.end) {
                return None;
            }
            claimed.push(part.clone());
        }
        // SAFETY: `part` lies within the `len` elements at `start`, checked above, which belong to one allocation or
        // mapping.
        let start = unsafe { self.start.add(part.start) };
        let elements = NonNull::slice_from_raw_parts(start, part.len());
        Some(Claim { elements, part, claimed: &self.claimed, _borrow: PhantomData })
    }
}

impl Disjoint<'static, u8> {
    /// The bytes of a mapping from `offset` to its end.
    ///
    /// # Panics
    /// If `offset` is beyond the end.
    fn from_map(map: MmapRaw, offset: usize) -> Self {
        let len = map.len().checked_sub(offset).expect("a header longer than its file");
        let base = NonNull::new(map.as_mut_ptr()).expect("a mapping at address 0");
        // SAFETY: `offset` is at most the length of the mapping.
        let start = unsafe { base.add(offset) };
        Disjoint { start, len, claimed: Mutex::default(), _map: Some(map), _borrow: PhantomData }
    }
}

/// A part of a sink's memory, borrowed mutably until it is dropped.
pub struct Claim<'m, T = u8> {
    // Not a `&mut [T]`: that would promise to be the only one for the whole of a call it is passed to, even after
    // `drop` inside of that call gave the part back.
    elements: NonNull<[T]>,
    part: Range<usize>,
    claimed: &'m Mutex<Vec<Range<usize>>>,
    /// As a `&mut [T]`, and so invariant in `T`.
    _borrow: PhantomData<&'m mut [T]>,
}

// SAFETY: it stands for a `&mut [T]`, which is `Send` if `T` is; `claimed` is a shared reference to a `Sync` type.
unsafe impl<T: Send> Send for Claim<'_, T> {}
// SAFETY: as above; `&&mut [T]` allows reading only, so `T: Sync` suffices.
unsafe impl<T: Sync> Sync for Claim<'_, T> {}

impl<T> Deref for Claim<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `elements` are initialised elements of a `Disjoint` that outlives `self`. They are in its list of
        // claimed parts, so no other claim overlaps them, and its lifetime keeps all other uses of the slice away.
        unsafe { self.elements.as_ref() }
    }
}

impl<T> DerefMut for Claim<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and `&mut self` makes this the only reference made from this claim.
        unsafe { self.elements.as_mut() }
    }
}

impl<T> Drop for Claim<'_, T> {
    fn drop(&mut self) {
        if self.part.is_empty() {
            return;
        }
        let mut claimed = self.claimed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = claimed.iter().position(|c| *c == self.part) {
            claimed.swap_remove(at);
        }
    }
}

impl<T> fmt::Debug for Claim<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Claim({:?})", self.part)
    }
}

/// The memory of a whole output, written in place by several threads at once.
pub struct SinkMemory<'a> {
    bytes: Disjoint<'a, u8>,
    row_bytes: usize,
    pinned: bool,
}

impl<'a> SinkMemory<'a> {
    /// The output whose rows of `dtype` are `bytes`. `None` if these do not start at an address aligned for `dtype`, or
    /// end within a row.
    pub fn new(bytes: &'a mut [u8], dtype: Dtype) -> Option<Self> {
        Self::over(Disjoint::new(bytes), dtype)
    }

    /// The same, known to be pinned: devices may copy to it directly.
    pub(crate) fn pinned(self) -> Self {
        SinkMemory { pinned: true, ..self }
    }

    fn over(bytes: Disjoint<'a, u8>, dtype: Dtype) -> Option<Self> {
        let row_bytes = dtype.size();
        let whole = bytes.start.addr().get().is_multiple_of(row_bytes) && bytes.len().is_multiple_of(row_bytes);
        whole.then_some(SinkMemory { bytes, row_bytes, pinned: false })
    }

    /// How many rows there are.
    pub fn rows(&self) -> u64 {
        (self.bytes.len() / self.row_bytes) as u64
    }

    /// Bytes of a row.
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// Whether it is pinned.
    pub fn is_pinned(&self) -> bool {
        self.pinned
    }

    /// Where the rows are.
    pub(crate) fn address(&self) -> *const [u8] {
        std::ptr::slice_from_raw_parts(self.bytes.start.as_ptr(), self.bytes.len())
    }

    /// Borrows the bytes of some rows until the claim is dropped. A claim that is forgotten is never given back.
    ///
    /// # Panics
    /// If there are no such rows, or some of them are borrowed already.
    pub fn claim(&self, rows: Range<u64>) -> Claim<'_> {
        self.try_claim(rows.clone()).unwrap_or_else(|| {
            panic!("rows {} to {} of {} are out of bounds or in use", rows.start, rows.end, self.rows())
        })
    }

    /// The same for a run, which no sink of the caller's is to bring down.
    ///
    /// # Errors
    /// [`Error::Job`] instead of a panic.
    pub(crate) fn claim_for_run(&self, rows: Range<u64>) -> Result<Claim<'_>> {
        self.try_claim(rows.clone()).ok_or_else(|| {
            Error::Job(format!(
                "rows {} to {} of an output are in use: its Sink or Target must hold no claim of its memory during a job",
                rows.start, rows.end
            ))
        })
    }

    /// The same; `None` instead of a panic.
    pub(crate) fn try_claim(&self, rows: Range<u64>) -> Option<Claim<'_>> {
        let byte = |row: u64| usize::try_from(row).ok()?.checked_mul(self.row_bytes);
        self.bytes.claim(byte(rows.start)?..byte(rows.end)?)
    }
}

impl SinkMemory<'static> {
    /// Maps a new file, to be written from `offset` to its end. `None` if the system cannot map it; the file is
    /// then to be written by calls.
    ///
    /// The space must be reserved already: when a page has no room on the disk, a write to it kills the process.
    pub(crate) fn map(file: &File, offset: usize, dtype: Dtype) -> Option<Self> {
        let map = MmapOptions::new().map_raw(file).ok()?;
        // Making pages one by one is the slowest thing there is here, and does not scale with threads. Where the file system
        // cannot have large ones, nothing changes.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Self::over(Disjoint::from_map(map, offset), dtype)
    }
}

impl fmt::Debug for SinkMemory<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SinkMemory { row_bytes, pinned, .. } = self;
        write!(f, "SinkMemory({} rows of {row_bytes} bytes, pinned: {pinned})", self.rows())
    }
}

/// Maps the first `len` bytes of a file for reading. `None` if that is not possible, as for `len` 0.
///
/// # Safety
/// The file has at least `len` bytes, and nobody writes to it or shortens it as long as the map exists.
pub(crate) unsafe fn map_file(file: &File, len: u64) -> Option<Mmap> {
    let len = usize::try_from(len).ok().filter(|&len| len > 0)?;
    // SAFETY: the mapping is private to this process and read-only. That its bytes are there and do not change is
    // passed on to the caller.
    unsafe { MmapOptions::new().len(len).map(file).ok() }
}

/// Copies bytes that nobody reads again soon, past the cache. Ordinary stores read every line before they write it, and
/// push out of the cache what is still needed there, such as the slots of other workers.
///
/// # Panics
/// If the lengths differ.
pub(crate) fn copy_past_cache(to: &mut [u8], from: &[u8]) {
    assert_eq!(to.len(), from.len(), "bytes to copy");
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
        let head = to.as_ptr().align_offset(LINE).min(to.len());
        let (to_head, to) = to.split_at_mut(head);
        let (from_head, from) = from.split_at(head);
        to_head.copy_from_slice(from_head);
        let (to_lines, to_tail) = to.as_chunks_mut::<LINE>();
        let (from_lines, from_tail) = from.as_chunks::<LINE>();
        for (to, from) in to_lines.iter_mut().zip(from_lines) {
            let (to, from) = (to.as_mut_ptr().cast::<__m128i>(), from.as_ptr().cast::<__m128i>());
            for part in 0..LINE / size_of::<__m128i>() {
                // SAFETY: SSE2 is a part of x86-64. Both pointers are to a whole line of `LINE` bytes, that of `to`
                // aligned to it, as the head was cut off, and borrowed for writing.
                unsafe { _mm_stream_si128(to.add(part), _mm_loadu_si128(from.add(part))) };
            }
        }
        to_tail.copy_from_slice(from_tail);
        // Such stores are not ordered with others: whoever is told that the rows are there must find them.
        // SAFETY: SSE is a part of x86-64.
        unsafe { _mm_sfence() };
    }
    #[cfg(not(target_arch = "x86_64"))]
    to.copy_from_slice(from);
}

/// Bytes of a line of the cache.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;
