//! Errors of inputs and outputs: their sources, sinks and targets.

/// Why an input or output cannot be used: its [`Source`](crate::Source), [`Sink`](crate::Sink) or
/// [`Target`](crate::io::Target) breaks the contract of the trait, or is asked for rows that it does not have.
///
/// ```
/// use overshot::io::ColumnError;
/// use overshot::{Error, Input};
/// let (values, mut bytes) = ([1u8, 2, 3], [0; 2]);
/// let result = Input::from(&values).source().read(2, &mut bytes);
/// assert!(matches!(result, Err(Error::InvalidColumn(ColumnError::ReadBeyondEnd { first: 2, own_rows: 3, .. }))));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ColumnError {
    /// The memory of a source does not hold its rows.
    #[error(
        "{column}: its Source says {rows} rows of {dtype}, but its memory is {bytes} bytes at {address:#x}; return \
         memory of all rows, aligned for the dtype, or None"
    )]
    #[non_exhaustive]
    SourceMemory {
        /// The name of the source.
        column: String,
        /// Its rows.
        rows: u64,
        /// Its dtype.
        dtype: String,
        /// The bytes of its memory.
        bytes: usize,
        /// The address of its memory.
        address: usize,
    },

    /// The memory of a sink does not hold its rows.
    #[error(
        "the memory of a Sink is {own_rows} rows of {row_bytes} bytes, not {rows} rows of {dtype}; return memory of \
         all rows, or None"
    )]
    #[non_exhaustive]
    SinkMemory {
        /// The rows of its memory.
        own_rows: u64,
        /// The bytes of a row of its memory.
        row_bytes: usize,
        /// The rows of the output.
        rows: u64,
        /// The dtype of the output.
        dtype: String,
    },

    /// A source or sink reports other rows than it did when some of them were placed on devices.
    #[error(
        "a Source or Sink of {rows} rows of {dtype} has shards of {own_rows} rows of {own}: it must report the same \
         rows and dtype every time, and must not pass on the shards of another dataset"
    )]
    #[non_exhaustive]
    Shards {
        /// The rows that it reports.
        rows: u64,
        /// The dtype that it reports.
        dtype: String,
        /// The rows of the shards.
        own_rows: u64,
        /// The dtype of the shards.
        own: String,
    },

    /// A target says that its rows are in pinned memory, and its sink has other memory.
    #[error(
        "output '{name}': its Target said that its rows stand in pinned memory, but its Sink has other memory; both \
         must say the same"
    )]
    #[non_exhaustive]
    NotPinned {
        /// The name of the output.
        name: String,
    },

    /// A sink holds a claim on rows that the job writes.
    #[error(
        "rows {first} to {end} of an output are in use: its Sink or Target must hold no claim of its memory during a \
         job"
    )]
    #[non_exhaustive]
    RowsInUse {
        /// The first row.
        first: u64,
        /// The row after the last.
        end: u64,
    },

    /// A sink cannot have fewer rows than it was opened for, and the job keeps fewer.
    #[error("this Sink cannot have fewer rows than it was opened for: implement Sink::truncate")]
    CannotTruncate,

    /// A sink cannot be read back, although its target says so.
    #[error("this Sink cannot be read back for a checksum: implement Sink::read_back")]
    CannotReadBack,

    /// Rows are read that do not exist.
    #[error("{column}: {rows} rows from {first} on were requested, but it has {own_rows} rows")]
    #[non_exhaustive]
    ReadBeyondEnd {
        /// The name of the input.
        column: String,
        /// The first row that was requested.
        first: u64,
        /// The number of rows that were requested.
        rows: u64,
        /// The rows that there are.
        own_rows: u64,
    },

    /// A block has another dtype than its input.
    #[error("rows {first} to {end} of a block are of {dtype}, but the input is of {own}: convert them")]
    #[non_exhaustive]
    BlockDtype {
        /// The first row of the block.
        first: u64,
        /// The row after its last one.
        end: u64,
        /// The dtype of the block.
        dtype: String,
        /// The dtype of the input.
        own: String,
    },

    /// A block has rows that its input does not have.
    #[error("rows {first} to {end} of a block are beyond the {own_rows} rows of the input: give the rows it has")]
    #[non_exhaustive]
    BlockBeyondEnd {
        /// The first row of the block.
        first: u64,
        /// The row after its last one.
        end: u64,
        /// The rows of the input.
        own_rows: u64,
    },

    /// Two blocks of an input have the same rows.
    #[error("some of the rows {first} to {end} of a block are in another block, too: give each row once")]
    #[non_exhaustive]
    BlockTwice {
        /// The first row of the block.
        first: u64,
        /// The row after its last one.
        end: u64,
    },

    /// Rows are read that are in no block of an input.
    #[error(
        "{column}: rows {first} to {end} are read, but row {first} is in no block: add blocks of all rows that this \
         process runs"
    )]
    #[non_exhaustive]
    MissingRows {
        /// The name of the input.
        column: String,
        /// The first row that is in no block.
        first: u64,
        /// The row after the last one that was requested.
        end: u64,
    },

    /// A buffer to read into ends within a row.
    #[error("{column}: {bytes} bytes are not a whole number of {dtype} rows")]
    #[non_exhaustive]
    ReadPartOfRow {
        /// The name of the input.
        column: String,
        /// The bytes of the buffer.
        bytes: usize,
        /// The dtype of the rows.
        dtype: String,
    },

    /// Bytes are written that are not whole rows, to rows that do not exist, or to rows that another thread writes.
    #[error("{bytes} bytes from row {first} on do not fit the output {column}, or another thread writes these rows")]
    #[non_exhaustive]
    WriteDoesNotFit {
        /// The name of the output.
        column: String,
        /// The first row.
        first: u64,
        /// The bytes.
        bytes: usize,
    },

    /// A target of a fixed size and dtype is opened for other rows.
    #[error("output {column} holds {own} but the result is {dtype}; pass one of {dtype}, or cast")]
    #[non_exhaustive]
    TargetDtype {
        /// The name of the output.
        column: String,
        /// The dtype that it holds.
        own: String,
        /// The dtype of the result.
        dtype: String,
    },

    /// Memory that is said to be that of a GPU is in none of the engine.
    #[error(
        "the memory at {address:#x} is in no GPU of the engine, whose devices are {devices}; use an engine with its \
         GPU, or copy the array to the host"
    )]
    #[non_exhaustive]
    NotOnGpu {
        /// The address.
        address: u64,
        /// The devices of the engine.
        devices: String,
    },

    /// An array of a GPU is larger than the allocation that it is in.
    #[error(
        "an array of {bytes} bytes at {address:#x} is not in one allocation, which has {own_bytes} bytes from \
         {start:#x}; check its address and its shape"
    )]
    #[non_exhaustive]
    BeyondAllocation {
        /// The address.
        address: u64,
        /// The size of the array.
        bytes: u64,
        /// The start of the allocation that contains the address.
        start: u64,
        /// The size of the allocation.
        own_bytes: u64,
    },

    /// An array of a GPU does not begin where kernels can use it.
    #[error("the array at {address:#x} of a GPU does not begin at a multiple of 8 bytes; pass a copy of it")]
    #[non_exhaustive]
    Unaligned {
        /// The address.
        address: u64,
    },

    /// An array that is an output has another shape than the result.
    #[error("output {column} has the shape {own} but the result has {shape}; pass one of that shape")]
    #[non_exhaustive]
    TargetShape {
        /// The name of the output.
        column: String,
        /// The shape that it has.
        own: String,
        /// The shape of the result.
        shape: String,
    },

    /// A target of a fixed size is opened for another number of rows.
    #[error("output {column} has {own_rows} elements but the result has {rows}; pass one of {rows}")]
    #[non_exhaustive]
    TargetRows {
        /// The name of the output.
        column: String,
        /// The rows that it has.
        own_rows: u64,
        /// The rows of the result.
        rows: u64,
    },
}
