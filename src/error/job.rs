//! Errors of jobs whose parts do not fit each other.

use std::path::PathBuf;

/// Why the parts of a job do not fit each other.
///
/// ```
/// use overshot::{Engine, Error, Job, JobError};
/// let engine = Engine::builder().build()?;
/// let result = engine.run(Job::eval("sum(x * scale)")?.input("x", &[1.0, 2.0]));
/// assert!(matches!(result, Err(Error::InvalidJob(JobError::MissingName { name, .. })) if name == "scale"));
/// # Ok::<(), overshot::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// A name is given twice in the same role.
    #[error("{role} '{name}' is given twice: leave one out")]
    #[non_exhaustive]
    GivenTwice {
        /// `input`, `value` or `output`.
        role: &'static str,
        /// The name.
        name: String,
    },

    /// A name is given as an input and as a value.
    #[error("'{name}' is given as an input and as a value: leave one out")]
    #[non_exhaustive]
    InputAndValue {
        /// The name.
        name: String,
    },

    /// A name that the expression assigns is given as an input or a value.
    #[error("'{name}' is assigned by the expression, so it is an output, not {role}: rename one of them")]
    #[non_exhaustive]
    Assigned {
        /// The name.
        name: String,
        /// `an input` or `a value`.
        role: &'static str,
    },

    /// An input, a value or an output has a name that the expression does not have, or a result is asked for that the
    /// job does not have.
    #[error("{message}")]
    #[non_exhaustive]
    UnknownName {
        /// The name.
        name: String,
        /// The whole message, with the names that there are.
        message: String,
    },

    /// The expression reads a name that nothing is given for.
    #[error("{message}")]
    #[non_exhaustive]
    MissingName {
        /// The name.
        name: String,
        /// The whole message.
        message: String,
    },

    /// The result of a reduction is given an output.
    #[error("'{name}' is one number of all rows, which the report has: leave its output out")]
    #[non_exhaustive]
    ReductionOutput {
        /// The name.
        name: String,
    },

    /// A result that is an array has no value, as the smallest of no rows.
    #[error("'{name}' has no value, because there are no rows: leave its output out")]
    #[non_exhaustive]
    NoArray {
        /// The name.
        name: String,
    },

    /// A result without a value, as the smallest of no rows, from which the rows of a later pass are computed.
    #[error(
        "'{result}' has no value, because no rows are kept, and rows are computed from it: keep some, or leave out \
         what reads it"
    )]
    #[non_exhaustive]
    NoValue {
        /// The name or the text of the result.
        result: String,
    },

    /// A result that is an array has an output in a part of a job, or in a run with a journal.
    #[error("'{name}' is known when all parts are merged, so a part cannot write it: leave its output out")]
    #[non_exhaustive]
    PartialResult {
        /// The name.
        name: String,
    },

    /// Nothing says how many rows there are.
    #[error("the number of rows is unknown: give an input, or the number of rows")]
    UnknownRows,

    /// Two columns have different numbers of rows.
    #[error(
        "{first} has {rows} rows but {other} has {other_rows}; all must have the same number, and one value for all \
         rows is given as a number"
    )]
    #[non_exhaustive]
    RowsDiffer {
        /// The first column.
        first: String,
        /// Its rows.
        rows: u64,
        /// The column that differs.
        other: String,
        /// Its rows.
        other_rows: u64,
    },

    /// A column ends within a row.
    #[error("{column} has {count} elements, which are no whole rows of {elements} elements")]
    #[non_exhaustive]
    PartialRow {
        /// The column.
        column: String,
        /// Its elements.
        count: u64,
        /// Elements of a row.
        elements: u64,
    },

    /// The rows of a partial run are not rows of the job that can be run alone.
    #[error(
        "the rows {start} to {end} of {rows} cannot be run alone: they must begin and end at multiples of {tile}, or \
         at the end of the job"
    )]
    #[non_exhaustive]
    RowRange {
        /// The first row.
        start: u64,
        /// The row behind the last one.
        end: u64,
        /// The rows of the job.
        rows: u64,
        /// The rows of a tile.
        tile: u64,
    },

    /// There is no part of this number.
    #[error("there is no part {part} of {of}: parts have the numbers from 0 to one less than their count")]
    #[non_exhaustive]
    PartNumber {
        /// The number.
        part: u64,
        /// The count.
        of: u64,
    },

    /// A job that is run in parts has an output that only a run of all rows can write.
    #[error(
        "the output '{name}' ({target}) cannot be written in parts: write to a slice, or a .npy, Arrow or raw file, or \
         run all rows"
    )]
    #[non_exhaustive]
    PartialOutput {
        /// The name of the output.
        name: String,
        /// What the output is.
        target: String,
    },

    /// Two outputs of a job in parts, or of a run with a journal, are columns of one file.
    #[error(
        "the outputs '{other}' and '{name}' are columns of one file ({target}), which is not written in parts or with \
         a journal: write each to a file of its own, or run all rows without a journal"
    )]
    #[non_exhaustive]
    PartialTable {
        /// The name of the second output.
        name: String,
        /// The name of the first one.
        other: String,
        /// The file.
        target: String,
    },

    /// A run that can be resumed has an output that would not survive the process.
    #[error(
        "a run could not continue with the output '{name}': write to a .npy, Arrow or raw file, or run without a \
         journal"
    )]
    #[non_exhaustive]
    ResumableOutput {
        /// The name of the output.
        name: String,
    },

    /// A job that is run in parts selects rows, and has an output that is not a file.
    #[error("the output '{name}' is no file: a job that selects rows writes files alone if it is run in parts")]
    #[non_exhaustive]
    PartialSelection {
        /// The name of the output.
        name: String,
    },

    /// Two inputs have different shapes.
    #[error(
        "input '{first}' has the shape {shape} but '{other}' has {other_shape}, and NumPy's rules do not broadcast \
         one to the other: reshape one of them"
    )]
    #[non_exhaustive]
    ShapesDiffer {
        /// The first input with a shape.
        first: String,
        /// Its shape, as NumPy writes it.
        shape: String,
        /// The input that differs.
        other: String,
        /// Its shape, as NumPy writes it.
        other_shape: String,
    },

    /// An input is broadcast within each row.
    #[error(
        "input '{name}' has the shape {shape}, which is broadcast to {whole} within each row: give it all elements of \
         each row, one element of each row, or one row for all rows"
    )]
    #[non_exhaustive]
    PartlyBroadcast {
        /// The input.
        name: String,
        /// Its shape, as NumPy writes it.
        shape: String,
        /// The shape of arrays with all elements.
        whole: String,
    },

    /// An output holds another dtype than the result has.
    #[error("output '{name}' ({target}) holds {own}, but the result is {result}: {remedy}")]
    #[non_exhaustive]
    OutputDtype {
        /// The name.
        name: String,
        /// What the output is.
        target: String,
        /// The dtype that it holds.
        own: String,
        /// The dtype of the result.
        result: String,
        /// What to do.
        remedy: String,
    },

    /// An output is the file of an input or of another output.
    #[error("{} is both '{other}' and the output '{output}': write to another file", path.display())]
    #[non_exhaustive]
    FileClash {
        /// The file.
        path: PathBuf,
        /// The other column of that file.
        other: String,
        /// The output.
        output: String,
    },

    /// The journal of a run is a file of the job.
    #[error("{} is both the journal and '{other}': give the run another journal", path.display())]
    #[non_exhaustive]
    JournalClash {
        /// The file.
        path: PathBuf,
        /// The column of that file.
        other: String,
    },

    /// Integers that are counted are outside the range of the count.
    #[error(
        "'{result}' counts integers from 0 to below {keys}, but {count} elements have others: count more, or keep the \
         elements inside, like bincount(k[(0 <= k) & (k < {keys})], {keys})"
    )]
    #[non_exhaustive]
    KeysOutside {
        /// The name or the text of the count.
        result: String,
        /// The number of elements with another integer.
        count: u64,
        /// The number of integers that it counts.
        keys: u64,
    },

    /// There are fewer values than `topk` returns.
    #[error("'{result}' has {count} values, but only {values} exist: write a smaller number")]
    #[non_exhaustive]
    TooFewValues {
        /// The name or the text of the result.
        result: String,
        /// The number of values that it has.
        count: u64,
        /// The number of values that exist.
        values: u64,
    },

    /// A pass that looks for a value by its rank does not meet the values of the pass before it.
    #[error("the rows changed while the passes of '{result}' read them: run the job again on rows that stay the same")]
    #[non_exhaustive]
    OtherValues {
        /// The name or the text of the result.
        result: String,
    },

    /// An array of an earlier pass is used as a row, or with other arrays, and has another shape.
    #[error("'{name}' has the shape {shape}, and is used with {other}: compute that in a job of its own")]
    #[non_exhaustive]
    ArrayShape {
        /// The array.
        name: String,
        /// Its shape, as NumPy writes it.
        shape: String,
        /// What it is used with.
        other: String,
    },

    /// The rows of an array, or of a value, cannot be multiplied by a matrix, or over the rows.
    #[error("in '{product}', {what} has the shape {shape}, which does not fit: {needed}")]
    #[non_exhaustive]
    MatrixShape {
        /// The product.
        product: String,
        /// The array or the value.
        what: String,
        /// Its shape, as NumPy writes it.
        shape: String,
        /// What is needed.
        needed: String,
    },

    /// Factors of a product have different dtypes, or one of which there are no products.
    #[error("in '{product}', {factors}: `@` multiplies f32 by f32 and f64 by f64; convert one, like `f64(x) @ w`")]
    #[non_exhaustive]
    MatrixDtype {
        /// The product.
        product: String,
        /// The factors and their dtypes.
        factors: String,
    },

    /// An array is a matrix, and its rows are read, too.
    #[error("'{name}' is a matrix that rows are multiplied by, and its own rows are read, too: give it two names")]
    #[non_exhaustive]
    MatrixIsRead {
        /// The array.
        name: String,
    },

    /// A pass sets a value that the job does not have.
    #[error("the job has no value '{name}' to begin with: give it one")]
    #[non_exhaustive]
    UnknownValue {
        /// The name.
        name: String,
    },

    /// A pass sets a value to another dtype than the job has.
    #[error("the value '{name}' is {dtype} to begin with, but {new} later: convert it")]
    #[non_exhaustive]
    ValueDtype {
        /// The name.
        name: String,
        /// The dtype in the job.
        dtype: String,
        /// The dtype of the new value.
        new: String,
    },

    /// A job with a kernel has a value, which belongs to the kernel's call.
    #[error("the kernel '{kernel}' has the values of its call: give '{name}' a value there")]
    #[non_exhaustive]
    KernelValue {
        /// The kernel.
        kernel: String,
        /// The name of the value.
        name: String,
    },

    /// A file holds another dtype than it was opened with.
    #[error("{}: holds {own}, not {dtype}; leave the dtype out, and cast in the expression", path.display())]
    #[non_exhaustive]
    FileDtype {
        /// The file.
        path: PathBuf,
        /// The dtype that it holds.
        own: String,
        /// The dtype with which it was opened.
        dtype: String,
    },

    /// Files that are read as one input have columns of different names.
    #[error(
        "{} holds '{own}', but {} holds '{other_name}', and they are read as one input: name files with the same \
         columns", first.display(), other.display()
    )]
    #[non_exhaustive]
    FilesColumn {
        /// The first file.
        first: PathBuf,
        /// The only column of it that can be read, or the only array.
        own: String,
        /// The file that differs.
        other: PathBuf,
        /// The only column of it that can be read, or the only array.
        other_name: String,
    },

    /// Files that are read as one input hold different dtypes, or timestamps in different units.
    #[error(
        "{} holds {own}, but {} holds {other_dtype}, and they are read as one input: convert one of them, or name \
         fewer files", first.display(), other.display()
    )]
    #[non_exhaustive]
    FilesDtype {
        /// The first file.
        first: PathBuf,
        /// The dtype that it holds, or the unit of its timestamps.
        own: String,
        /// The file that differs.
        other: PathBuf,
        /// The dtype that it holds, or the unit of its timestamps.
        other_dtype: String,
    },

    /// Files that are read as one input have different shapes.
    #[error(
        "{} has the shape {shape}, but {} has {other_shape}, and they are read as one input: only the first lengths \
         may differ, so reshape one of them, or name fewer files", first.display(), other.display()
    )]
    #[non_exhaustive]
    FilesShape {
        /// The first file with a shape.
        first: PathBuf,
        /// Its shape, as NumPy writes it.
        shape: String,
        /// The file that differs.
        other: PathBuf,
        /// Its shape, as NumPy writes it.
        other_shape: String,
    },

    /// A raw file is opened without a dtype.
    #[error("{path}: not .npy: add the dtype, such as f32, or write {path}:f32", path = path.display())]
    #[non_exhaustive]
    MissingDtype {
        /// The file.
        path: PathBuf,
    },

    /// An input or output has more elements than can be counted.
    #[error("'{name}' is too large: use fewer rows")]
    #[non_exhaustive]
    TooLarge {
        /// Its name.
        name: String,
    },

    /// An input that is broadcast to all elements of a row needs too much memory.
    #[error(
        "input '{name}' is broadcast to rows of {bytes} bytes, which are too large to stay in memory (at most {most}): \
         give it all elements of each row, or reshape the inputs"
    )]
    #[non_exhaustive]
    LargeRow {
        /// The input.
        name: String,
        /// The bytes of a row of it.
        bytes: u64,
        /// The most bytes of one.
        most: u64,
    },

    /// A running sum has too many rows.
    #[error(
        "'{result}' adds up {rows} rows, of which it may have at most {most}: add up parts of them in jobs of their \
         own, and add the last sum of a part to those of the next one"
    )]
    #[non_exhaustive]
    RunningSumRows {
        /// The text of the running sum.
        result: String,
        /// Its rows.
        rows: u64,
        /// The most rows.
        most: u64,
    },

    /// The rows of an input have no elements.
    #[error("input '{name}' has the shape {shape}, so that rows have no elements: leave it out")]
    #[non_exhaustive]
    NoElements {
        /// The input.
        name: String,
        /// Its shape, as NumPy writes it.
        shape: String,
    },

    /// An output is in the device memory of another column of the job.
    #[error("the output '{name}' is in the memory of another column of the job: write to another array")]
    #[non_exhaustive]
    MemoryClash {
        /// The name of the output.
        name: String,
    },

    /// A product over the rows is to be verified.
    #[error(
        "chunks of products of matrices cannot be verified, because a CPU and a GPU round their sums differently: \
             leave out `verify`, or compare the result with one on another device"
    )]
    VerifyProduct,

    /// A precision is set for a job that multiplies no matrices of `f32`.
    #[error("the precision {precision} is for products of f32, and the job has none: leave it out")]
    #[non_exhaustive]
    Precision {
        /// The precision.
        precision: String,
    },

    /// The fraction of the chunks that are to be verified is no fraction.
    #[error("{fraction} of the chunks cannot be verified: set a fraction from 0 to 1")]
    #[non_exhaustive]
    VerifyFraction {
        /// The number that was set.
        fraction: String,
    },

    /// An output that cannot be read back is to have a checksum.
    #[error(
        "the output '{name}' ({target}) cannot be read back for a checksum: write to an array, or a .npy, Arrow or raw \
         file, or set none"
    )]
    #[non_exhaustive]
    ChecksumOutput {
        /// The name of the output.
        name: String,
        /// What the output is.
        target: String,
    },

    /// Some rows of a job are to have a checksum.
    #[error("checksums are those of whole outputs: set them when the parts of the job are merged")]
    PartialChecksum,

    /// An expression that one pass does not compute is to be run in parts, with a journal, or with other values.
    #[error(
        "the expression takes several passes, so it cannot be run in parts, with a journal or in passes with other \
         values: run it as a whole, or reduce first and give the results as values"
    )]
    SeveralPasses,

    /// A result is computed from other results and from a constant, whose name is that of an input.
    #[error(
        "'{result}' is one number, computed from results, but '{name}' in it is an input: give the input another name \
         for the constant, or reduce it"
    )]
    #[non_exhaustive]
    ResultOfInput {
        /// The name or the text of the result.
        result: String,
        /// The name of the input.
        name: String,
    },

    /// Passes of a job that has outputs, or a kernel of the caller's own.
    #[error(
        "passes are for reductions: leave out outputs, and run kernels of your own and jobs with outputs once, after \
         them"
    )]
    PassesNeedReductions,

    /// Passes of a job without values.
    #[error("the job has no values, so that all passes would be the same: give it some, or run it once")]
    PassesNeedValues,
}
