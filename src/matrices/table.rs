//! Tables of rows: their shapes, some of their rows, and columns beside them.

use std::path::Path;

use crate::data::{Dtype, Input, Memory, Source};
use crate::error::{MatrixError, Result};

/// An input that has the shape `(n, d)`.
pub(super) struct Table<'a> {
    input: &'a Input<'a>,
    pub(super) rows: u64,
    pub(super) width: usize,
}

impl<'a> Table<'a> {
    pub(super) fn new(name: &'static str, input: &'a Input<'_>) -> Result<Table<'a>, MatrixError> {
        match input.source().shape() {
            Some(&[rows, width]) if width > 0 => Ok(Table { input, rows, width: width as usize }),
            _ => Err(MatrixError::shape(name, &shape_of(input), &["n", "d"])),
        }
    }

    /// Returns the input itself.
    pub(super) fn whole(&self) -> &'a Input<'a> {
        self.input
    }

    /// Returns the same table, some rows of which are on a GPU.
    pub(super) fn kept(self, kept: Option<&'a Input<'a>>) -> Table<'a> {
        Table { input: kept.unwrap_or(self.input), ..self }
    }

    /// Returns an input for one more job.
    pub(super) fn input(&self) -> Input<'_> {
        self.input.borrowed()
    }

    /// Returns whether rows are multiplied as `f32` without loss. If not, they are multiplied as `f64`.
    pub(super) fn is_f32(&self) -> bool {
        use Dtype::{F64, I32, I64, U32, U64};
        !matches!(self.input.source().dtype(), I32 | U32 | I64 | U64 | F64)
    }

    /// Returns the rows from `first` to before `end` as an input of their own, which is read from the host.
    pub(super) fn part(&self, first: u64, end: u64) -> Input<'_> {
        let (source, width) = (self.input.source(), self.width as u64);
        Input::from(Part { source, first: first * width, shape: [end - first, width] })
    }

    /// Returns the rows with these numbers as an input of their own.
    pub(super) fn some<'t>(&'t self, numbers: &'t [u64]) -> Input<'t> {
        let (source, width) = (self.input.source(), self.width as u64);
        Input::from(SomeRows { source, numbers, shape: [numbers.len() as u64, width] })
    }
}

/// Returns the shape of an input; that of a list if it has none.
fn shape_of(input: &Input<'_>) -> Vec<u64> {
    let source = input.source();
    source.shape().map_or_else(|| vec![source.rows()], <[u64]>::to_vec)
}

/// Some rows of a table.
struct SomeRows<'a> {
    source: &'a dyn Source,
    numbers: &'a [u64],
    shape: [u64; 2],
}

impl Source for SomeRows<'_> {
    fn dtype(&self) -> Dtype {
        self.source.dtype()
    }

    fn rows(&self) -> u64 {
        self.shape[0] * self.shape[1]
    }

    fn name(&self) -> String {
        format!("some rows of {}", self.source.name())
    }

    fn read(&self, first: u64, dst: &mut [u8]) -> Result<()> {
        let (width, size) = (self.shape[1], self.dtype().size());
        let (mut at, mut left) = (first, dst);
        while !left.is_empty() {
            let (row, column) = (at / width, at % width);
            let count = (width - column).min((left.len() / size) as u64);
            let (part, rest) = left.split_at_mut(count as usize * size);
            self.source.read(self.numbers[row as usize] * width + column, part)?;
            (at, left) = (at + count, rest);
        }
        Ok(())
    }

    fn shape(&self) -> Option<&[u64]> {
        Some(&self.shape)
    }

    fn version(&self) -> Option<u128> {
        self.source.version()
    }
}

/// Returns a column with a value for each row, as a table of the shape `(n, 1)`.
pub(super) fn per_row<'a>(name: &'static str, column: &'a Input<'_>, rows: u64) -> Result<Input<'a>, MatrixError> {
    let source = column.source();
    match source.shape() {
        None | Some([_] | [_, 1]) if source.rows() == rows => {
            Ok(Input::from(Part { source, first: 0, shape: [rows, 1] }))
        }
        _ => Err(MatrixError::shape(name, &shape_of(column), &[rows])),
    }
}

/// A table of the rows of a source from `first` on.
struct Part<'a> {
    source: &'a dyn Source,
    first: u64,
    shape: [u64; 2],
}

impl Source for Part<'_> {
    fn dtype(&self) -> Dtype {
        self.source.dtype()
    }

    fn rows(&self) -> u64 {
        self.shape[0] * self.shape[1]
    }

    fn name(&self) -> String {
        self.source.name()
    }

    fn read(&self, first: u64, dst: &mut [u8]) -> Result<()> {
        self.source.read(self.first + first, dst)
    }

    fn memory(&self) -> Option<Memory<'_>> {
        self.source.memory()?.part(self.first, self.rows(), self.dtype())
    }

    fn piece(&self, first: u64, rows: u64) -> Option<Memory<'_>> {
        self.source.piece(self.first + first, rows)
    }

    fn shape(&self) -> Option<&[u64]> {
        Some(&self.shape)
    }

    fn path(&self) -> Option<&Path> {
        self.source.path()
    }

    fn files(&self) -> Vec<&Path> {
        self.source.files()
    }

    fn is_cached(&self, first: u64, rows: u64) -> bool {
        self.source.is_cached(self.first + first, rows)
    }

    fn bytes_read_direct(&self) -> u64 {
        self.source.bytes_read_direct()
    }

    fn version(&self) -> Option<u128> {
        self.source.version()
    }

    fn warning(&self) -> Option<String> {
        self.source.warning()
    }
}
