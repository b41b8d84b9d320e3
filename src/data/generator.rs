//! Rows that are computed when they are asked for.

use super::{Dtype, Element, Source};
use crate::error::{Error, Result};
use std::fmt;
use std::marker::PhantomData;

/// A source whose rows are computed by a function on the host.
///
/// ```
/// # use overshot::io::Generator;
/// let squares = Generator::new(1_000_000, |first: u64, rows: &mut [f64]| {
///     for (i, row) in (first..).zip(rows) {
///         *row = (i * i) as f64;
///     }
/// });
/// ```
pub struct Generator<T, F> {
    rows: u64,
    fill: F,
    _element: PhantomData<fn() -> T>,
}

impl<T: Element, F: Fn(u64, &mut [T]) + Send + Sync> Generator<T, F> {
    /// A source of `rows` rows. `fill(first, dst)` is to overwrite all of `dst` with the rows from `first` on; several
    /// threads call it at once, for ranges of any length in any order, and a range more than once when a chunk is tried
    /// again. So each row must depend on its number alone.
    pub fn new(rows: u64, fill: F) -> Self {
        Generator { rows, fill, _element: PhantomData }
    }
}

impl<T: Element, F: Fn(u64, &mut [T]) + Send + Sync> Source for Generator<T, F> {
    fn dtype(&self) -> Dtype {
        T::DTYPE
    }

    fn rows(&self) -> u64 {
        self.rows
    }

    fn name(&self) -> String {
        "generator".into()
    }

    fn read(&self, first: u64, dst: &mut [u8]) -> Result<()> {
        if let Ok(rows) = bytemuck::try_cast_slice_mut(dst) {
            (self.fill)(first, rows);
            return Ok(());
        }
        // Slots are aligned; this is for callers of `read` whose buffers are not.
        if !dst.len().is_multiple_of(size_of::<T>()) {
            return Err(Error::Job(format!("generator: {} bytes are no whole number of {} rows", dst.len(), T::DTYPE)));
        }
        let mut rows = vec![T::zeroed(); dst.len() / size_of::<T>()];
        (self.fill)(first, &mut rows);
        dst.copy_from_slice(bytemuck::cast_slice(&rows));
        Ok(())
    }
}

impl<T: Element, F> fmt::Debug for Generator<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Generator({} rows of {})", self.rows, T::DTYPE)
    }
}
