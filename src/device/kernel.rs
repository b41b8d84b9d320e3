//! Kernels: device code, and the host kernel that computes the same on the CPU.

use std::ops::Range;
use std::sync::{Arc, LazyLock, OnceLock};

pub use super::halo::Halo;
pub(crate) use super::layers::{ColumnByMatrix, Layer, LayerKernel};
use super::product::Precision;
pub(crate) use super::product::{ColumnProduct, Side};
pub(crate) use super::scalars::LateScalars;
pub use super::scalars::ScalarArgs;
use crate::error::{Error, KernelError, Result};

/// Rows of a **tile** of an expression. A tile is the unit of reductions: every tile starts at a multiple of this row
/// number and is reduced separately in a fixed order. So no result depends on where chunks begin or end. Chunks are
/// whole tiles, except the last.
pub const TILE_ROWS: usize = 4096;

/// Threads of the block that computes a tile on a GPU, and partial accumulators of a reduction inside a tile on every
/// device.
pub const TILE_THREADS: usize = 256;

/// The columns of a kernel: inputs, then outputs, then partials, then scratch, then operands of products.
///
/// The order is the same in slots and in device blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    /// Bytes per row of each input.
    pub inputs: Vec<usize>,
    /// Bytes per row of each output.
    pub outputs: Vec<usize>,
    /// Eight-byte words that the kernel writes per tile: partial results of reductions, or the number of rows that it
    /// selected; 0 if it writes neither. The words of a tile are contiguous.
    pub partial_words: usize,
    /// Eight-byte words to which the kernel adds for all rows of a chunk, such as the counts of a histogram. They
    /// precede the words of the tiles in the partials, and are zero before the kernel runs.
    pub chunk_words: usize,
    /// The most rows of a chunk, so that the words of a chunk do not overflow.
    pub most_rows: usize,
    /// Bytes per row of each scratch column. Scratch columns exist only on the device and are not initialised.
    pub scratch: Vec<usize>,
    /// Bytes per row of each operand of a product over the rows. The kernel writes them, and they stay on the device.
    pub operands: Vec<usize>,
    /// The products over the rows.
    pub products: Vec<ColumnProduct>,
    /// How devices multiply matrices of `f32`. The CPU has full precision.
    pub precision: Precision,
    /// Rows of a tile, which one block of threads computes. Chunks are whole tiles, except the last.
    pub tile_rows: usize,
    /// Rows that are multiplied by a matrix at a time, whole tiles; 0 if none are. The bits of a row may depend on the
    /// number of rows, so chunks are whole batches, except the last.
    pub batch_rows: usize,
    /// The halo of each input; empty if the kernel reads the rows of the chunk alone.
    pub halos: Vec<Halo>,
    /// Rows of the job, at which halos end. Only kernels that read it need it.
    pub total_rows: u64,
}

impl Default for Columns {
    /// No columns, in tiles of [`TILE_ROWS`].
    fn default() -> Self {
        Columns {
            inputs: vec![],
            outputs: vec![],
            partial_words: 0,
            chunk_words: 0,
            most_rows: usize::MAX,
            scratch: vec![],
            operands: vec![],
            products: vec![],
            precision: Precision::Full,
            tile_rows: TILE_ROWS,
            batch_rows: 0,
            halos: vec![],
            total_rows: 0,
        }
    }
}

impl Columns {
    /// Returns whether there is a column of partials.
    pub fn has_partials(&self) -> bool {
        self.partial_words + self.chunk_words > 0
    }

    /// Returns the bytes of the partials of `rows` rows: the words of the chunk, then those of its tiles.
    pub fn partial_bytes(&self, rows: usize) -> usize {
        self.tile_partials(0..rows).end
    }

    /// Returns the bytes of the words of a chunk in its partials.
    pub(crate) fn chunk_partials(&self) -> Range<usize> {
        0..self.chunk_words * 8
    }

    /// Returns the bytes of the words of tiles in the partials of their chunk, in which they have these rows.
    pub(crate) fn tile_partials(&self, rows: Range<usize>) -> Range<usize> {
        let at = |row: usize| self.chunk_partials().end + row.div_ceil(self.tile_rows) * self.partial_words * 8;
        at(rows.start)..at(rows.end)
    }

    /// Returns the rows of which chunks are multiples: those of a batch, or of a tile.
    pub fn unit_rows(&self) -> usize {
        self.tile_rows.max(self.batch_rows)
    }

    /// Returns the rows that are multiplied at first, of at most so many at a time.
    pub(crate) fn rows_at_first(&self, most: usize) -> usize {
        usize::try_from(self.total_rows).map_or(most, |total| total.min(most))
    }

    /// Returns whether a library multiplies: its results have other bits on a GPU than on the CPU.
    pub(crate) fn are_multiplied(&self) -> bool {
        self.batch_rows > 0 || !self.products.is_empty()
    }

    /// Returns the rows that a core computes at a time, in whole tiles, so that its outputs stay in its cache: if they
    /// are multiplied by a matrix, those of a batch.
    pub(crate) fn rows_in_cache(&self) -> usize {
        if self.batch_rows > 0 {
            return self.batch_rows;
        }
        const BYTES: usize = 32 << 10;
        let bytes = self.outputs.iter().chain(&self.operands).sum::<usize>().max(1) * self.tile_rows;
        self.tile_rows * (BYTES / bytes).clamp(1, (TILE_ROWS / self.tile_rows).max(1))
    }

    /// Returns the bytes of a row that a kernel reads and writes: inputs and outputs.
    pub(crate) fn row_bytes(&self) -> usize {
        self.inputs.iter().chain(&self.outputs).sum()
    }

    /// Returns the bytes that a core needs to multiply chunks of so many rows: the operands that the kernel computes,
    /// and the sums.
    pub(crate) fn product_bytes(&self, rows: usize) -> usize {
        let sums = self.products.iter().map(|product| product.product.bytes());
        self.operands.iter().map(|bytes| bytes * rows).chain(sums).sum()
    }

    /// Returns whether an input is an operand of a product as it is.
    pub fn is_multiplied(&self, input: usize) -> bool {
        self.products.iter().any(|product| product.sides.contains(&Side::Input(input)))
    }

    /// Returns whether the kernel computes anything: it does not if inputs are multiplied as they are.
    pub fn computes(&self) -> bool {
        self.products.is_empty() || self.has_partials() || !(self.outputs.is_empty() && self.operands.is_empty())
    }

    /// Returns the number of the first column of operands.
    pub fn first_operand(&self) -> usize {
        self.inputs.len() + self.outputs.len() + usize::from(self.has_partials()) + self.scratch.len()
    }

    /// Returns the halo of an input.
    pub fn halo(&self, input: usize) -> Halo {
        self.halos.get(input).copied().unwrap_or_default()
    }

    /// Returns the rows of an input that the kernel reads for these rows: see [`Halo::window`].
    pub fn window(&self, input: usize, rows: &Range<u64>) -> Range<u64> {
        self.halo(input).window(rows, self.total_rows)
    }

    /// Returns the bytes of an input in front of these rows, and those of all rows that the kernel reads for them.
    pub fn window_bytes(&self, input: usize, rows: &Range<u64>) -> (usize, usize) {
        let (window, size) = (self.window(input, rows), self.inputs[input]);
        ((rows.start - window.start) as usize * size, (window.end - window.start) as usize * size)
    }

    /// Returns whether a chunk may be staged in several fills. Rows of outputs leave a slot as a whole, and panels and
    /// halos have rows of the whole chunk.
    pub(crate) fn may_have_fills(&self) -> bool {
        self.outputs.is_empty() && self.products.is_empty() && self.halos.iter().all(|halo| *halo == Halo::default())
    }

    /// Returns the bytes of each column for `rows` rows, in order. Halos are not among them.
    pub fn bytes(&self, rows: usize) -> impl Iterator<Item = usize> {
        let sides = self.inputs.iter().chain(&self.outputs).map(move |bytes| bytes * rows);
        let partials = Some(self.partial_bytes(rows)).filter(|_| self.has_partials());
        let behind = self.scratch.iter().chain(&self.operands).map(move |bytes| bytes * rows);
        sides.chain(partials).chain(behind)
    }
}

/// The text of CUDA C++, which may be generated when it is first needed: on the CPU, never.
#[derive(Clone)]
pub struct Source(Arc<LazyLock<String, Generate>>);

type Generate = Box<dyn FnOnce() -> String + Send>;

impl Source {
    /// Text that is generated when it is needed.
    pub fn generated(generate: impl FnOnce() -> String + Send + 'static) -> Source {
        Source(Arc::new(LazyLock::new(Box::new(generate))))
    }
}

impl<T: Into<String>> From<T> for Source {
    fn from(text: T) -> Source {
        let text = text.into();
        Source::generated(|| text)
    }
}

impl std::ops::Deref for Source {
    type Target = str;

    fn deref(&self) -> &str {
        self.0.as_str()
    }
}

impl PartialEq for Source {
    fn eq(&self, other: &Source) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || **self == **other
    }
}

impl Eq for Source {}

impl std::hash::Hash for Source {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(&**self, f)
    }
}

/// Device code.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// Complete CUDA C++ for NVRTC. It can include only files from the include paths in `options`.
    Cuda {
        /// Its name in compiler messages.
        name: String,
        /// The text.
        text: Source,
        /// Compiler options in addition to those of every kernel.
        options: Vec<String>,
    },
    /// PTX text, a cubin or a fatbin.
    Image(Arc<[u8]>),
    /// None: the kernel runs on the host only.
    HostOnly,
}

impl Code {
    /// Creates code from CUDA C++ that Overshot generated or contains.
    pub fn own(text: impl Into<Source>) -> Code {
        Code::Cuda { name: "overshot.cu".into(), text: text.into(), options: vec![] }
    }

    /// Returns the text; empty for an image.
    #[cfg(any(test, feature = "testing"))]
    pub fn text(&self) -> &str {
        match self {
            Code::Cuda { text, .. } => text,
            Code::Image(_) | Code::HostOnly => "",
        }
    }
}

/// One argument of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// The number of the first row of the chunk among all rows, as a `long long`.
    FirstRow,
    /// The rows of the chunk, as a `long long`.
    Rows,
    /// The rows of the job, as a `long long`.
    TotalRows,
    /// The address of the first row of the chunk in the column with this number, in the order of [`Columns`]. The rows
    /// of its halo are before and behind, as far as they exist.
    Column(usize),
    /// The address of the resident array with this number, which stays on the device for the whole job.
    Resident(usize),
    /// The value with this number, of up to eight bytes.
    Value(usize),
}

/// How a kernel is launched on CUDA: a block of threads for each tile, or several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The arguments, in the order of the kernel's parameters.
    pub arguments: Vec<Argument>,
    /// Blocks of a tile. Those of one tile follow each other.
    pub blocks_per_tile: u32,
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of dynamic shared memory of a block.
    pub shared_bytes: u32,
    /// The parameters of the kernel as the caller declared them, one for each argument. `None` for built-in kernels.
    pub declared: Option<Vec<Declared>>,
}

/// A kernel parameter, as the caller declared it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// Its name.
    pub name: String,
    /// Its size.
    pub bytes: usize,
}

impl Launch {
    /// Creates the launch of a built-in kernel: `extern "C" __global__ void ENTRY(long long first_row, long long
    /// rows, in0, in1, …, out0, …, partials, value0, …, resident0, …)` with [`TILE_THREADS`] threads. The operands of
    /// products follow the outputs. The partials are omitted if there are none.
    pub fn of(columns: &Columns, values: usize, resident: usize) -> Launch {
        let written = columns.inputs.len() + columns.outputs.len();
        let operands = columns.first_operand()..columns.first_operand() + columns.operands.len();
        let columns = (0..written).chain(operands).chain(columns.has_partials().then_some(written));
        let arguments = [Argument::FirstRow, Argument::Rows].into_iter().chain(columns.map(Argument::Column));
        let arguments = arguments.chain((0..values).map(Argument::Value));
        let arguments = arguments.chain((0..resident).map(Argument::Resident));
        let (threads, shared_bytes) = (TILE_THREADS as u32, 0);
        Launch { arguments: arguments.collect(), blocks_per_tile: 1, threads, shared_bytes, declared: None }
    }
}

/// A kernel, independent of the device.
pub struct Kernel {
    /// The name of the entry point.
    pub entry: String,
    /// The code for CUDA.
    pub code: Code,
    /// The launch on CUDA.
    pub launch: Launch,
    /// The columns.
    pub columns: Columns,
    /// The bytes of arrays that stay on the device for the whole job.
    pub resident: Vec<Arc<Resident>>,
    /// The values of its scalar parameters.
    pub values: Arc<ScalarArgs>,
    /// Creates a host kernel with its own scratch memory. Called once per worker. `None` if there is no host kernel;
    /// the kernel then runs on CUDA only.
    pub host: Option<MakeHostKernel>,
    /// The parts that are launched, if there are several. The code and the launch are then those of the last one.
    pub(crate) layers: Arc<Vec<Layer>>,
}

/// Creates a host kernel.
pub(crate) type MakeHostKernel = Box<dyn Fn() -> Box<dyn HostKernel> + Send + Sync>;

/// An array of any dtype. It is stored in words, so that it is aligned for every dtype. Its bytes may become known
/// after the kernel is made, and before its run begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resident {
    words: OnceLock<Vec<u64>>,
    len: usize,
}

impl Resident {
    /// Copies these bytes.
    pub fn new(bytes: &[u8]) -> Self {
        let resident = Resident::late(bytes.len());
        resident.set(bytes);
        resident
    }

    /// An array of `len` bytes that are not known yet.
    pub(crate) fn late(len: usize) -> Self {
        Resident { words: OnceLock::new(), len }
    }

    /// An array of `len` bytes that `fill` writes. They are 0 before.
    pub(crate) fn filled(len: usize, fill: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<Self> {
        let mut words = vec![0_u64; len.div_ceil(8)];
        fill(&mut bytemuck::cast_slice_mut(&mut words)[..len])?;
        Ok(Resident { words: OnceLock::from(words), len })
    }

    /// Copies these bytes, and zeros for those that are missing. Does nothing if the bytes are known.
    pub(crate) fn set(&self, bytes: &[u8]) {
        self.words.get_or_init(|| {
            let mut words = vec![0; self.len.div_ceil(8)];
            let known = bytes.len().min(self.len);
            bytemuck::cast_slice_mut(&mut words)[..known].copy_from_slice(&bytes[..known]);
            words
        });
    }

    /// Returns the number of bytes.
    #[allow(clippy::len_without_is_empty, reason = "an array has elements")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the bytes; none if they are not known.
    pub fn bytes(&self) -> &[u8] {
        self.words.get().map_or(&[], |words| &bytemuck::cast_slice(words)[..self.len])
    }
}

impl Kernel {
    /// Returns the name of its function for the host, for the error of a panic there.
    pub(crate) fn whose(&self) -> String {
        format!("the function for the host of the kernel '{}'", self.entry)
    }

    /// Creates a host kernel, if there is one.
    pub fn new_host_kernel(&self) -> Option<Box<dyn HostKernel>> {
        Some(self.host.as_ref()?())
    }

    /// Returns the error for a device that needs a host kernel.
    pub(crate) fn no_host_kernel(&self, device: &str) -> Error {
        KernelError::NoHostKernel { kernel: self.entry.clone(), device: device.into() }.into()
    }

    /// Returns the error for a kernel without device code on a device that needs it.
    pub(crate) fn no_device_code(&self, device: &str) -> Error {
        KernelError::NoDeviceCode { kernel: self.entry.clone(), device: device.into() }.into()
    }

    /// Returns the error for a kernel without a host kernel if no GPU was found for this reason.
    pub(crate) fn no_gpu(&self, reason: &str) -> Error {
        KernelError::NoGpu { kernel: self.entry.clone(), reason: reason.into() }.into()
    }
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernel").field("entry", &self.entry).field("columns", &self.columns).finish_non_exhaustive()
    }
}

/// The arguments of a host kernel that are the same for all rows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Uniform<'a> {
    /// The resident arrays.
    pub resident: &'a [&'a [u8]],
    /// The values. The bits of each value are the lowest bits of a word.
    pub values: &'a [u64],
    /// The rows of the job: [`Columns::total_rows`].
    pub total_rows: u64,
}

/// A host kernel: computes on the host the same bytes as the kernel does on a device.
pub trait HostKernel: Send {
    /// Computes `rows` rows from global row `first_row` on, which is the first row of a tile.
    ///
    /// `outputs` are the outputs of the columns, and then their operands. Each slice of `inputs` and `outputs` holds
    /// exactly `rows` rows in native byte order, aligned to its elements. A
    /// slice of an input with a halo begins before these rows and ends behind them: it holds
    /// [`Columns::window`]`(input, first_row..first_row + rows)` of the job, whose rows `uniform` has, too. So the rows
    /// in front are those of the halo, or at the begin of the job fewer.
    /// `partials` holds [`Columns::partial_bytes`]`(rows)` bytes, aligned to 8 if it is not empty. `uniform` holds
    /// the resident arrays and the values. Adds to the words of the chunk, which are in front of the partials. Writes
    /// every other byte of `outputs` and `partials`, and reads none of them.
    ///
    /// # Panics
    /// If a slice has another length or alignment.
    fn run(
        &mut self,
        first_row: u64,
        rows: usize,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
        partials: &mut [u8],
        uniform: &Uniform<'_>,
    );

    /// Returns whether [`run`](HostKernel::run) may be called again for the same rows, with the same result and no
    /// other effect. Not so for code of the caller.
    fn is_repeatable(&self) -> bool {
        false
    }

    /// Makes later calls of [`run`](HostKernel::run) store these outputs past the cache, and the others through it, as
    /// at first. Returns false if the kernel cannot do this.
    fn store_past_cache(&mut self, _outputs: &[bool]) -> bool {
        false
    }

    /// Makes later calls of [`run`](HostKernel::run) use other instructions of the processor, for the same bits.
    /// Returns false if there are no others.
    fn use_other_instructions(&mut self) -> bool {
        false
    }
}

/// A kernel shared by the workers.
pub(crate) type SharedKernel = Arc<Kernel>;
