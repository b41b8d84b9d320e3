//! Rows that are computed on demand.

use super::{Dtype, Element, Source};
use crate::error::{ColumnError, Result};
use std::fmt;
use std::marker::PhantomData;

/// A source whose rows are computed by a function on the host.
///
/// ```
/// use overshot::{Engine, Job, io::Generator};
/// let squares = Generator::new(1000, |first: u64, rows: &mut [f64]| {
///     for (i, row) in (first..).zip(rows) {
///         *row = (i * i) as f64;
///     }
/// });
/// let engine = Engine::builder().build()?;
/// let report = engine.run(Job::eval("max(x)")?.input("x", squares))?;
/// assert_eq!(report.value("max(x)")?.map(|v| v.as_f64()), Some(998_001.0));
/// # Ok::<(), overshot::Error>(())
/// ```
pub struct Generator<T, F> {
    rows: u64,
    fill: F,
    _element: PhantomData<fn() -> T>,
}

impl<T: Element, F: Fn(u64, &mut [T]) + Send + Sync> Generator<T, F> {
    /// Creates a source of `rows` rows.
    ///
    /// `fill(first, dst)` must overwrite all of `dst` with the rows that start at row `first`. Several threads call
    /// it concurrently, for ranges of any length and in any order, and again for the same range when a chunk is
    /// retried. The value of a row must therefore depend on its row number only.
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
        // Staging slots are aligned. This path is for callers of `read` whose buffers are not.
        if !dst.len().is_multiple_of(size_of::<T>()) {
            let (column, bytes, dtype) = (self.name(), dst.len(), T::DTYPE.to_string());
            return Err(ColumnError::ReadPartOfRow { column, bytes, dtype }.into());
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
