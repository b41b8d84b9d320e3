//! What a device computes: one kernel as device code and as its plain host kernel on the host.

use std::sync::{Arc, OnceLock};

use crate::error::{Error, Result};

/// Rows of one **tile** of an expression, the unit in which reductions are shaped: every tile starts at a multiple of this
/// row number and is reduced by itself in a fixed order, so that no result depends on where chunks begin or end. Chunks are
/// whole tiles, except the last.
pub const TILE_ROWS: usize = 4096;

/// Threads of the block that computes one tile on a GPU, and workers of a reduction inside a tile everywhere.
pub const TILE_THREADS: usize = 256;

/// Where a kernel's columns lie: inputs, then outputs, then the partials, then scratch.
///
/// The order is the same everywhere: in slots and in device blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    /// Bytes per row of each input.
    pub inputs: Vec<usize>,
    /// Bytes per row of each output.
    pub outputs: Vec<usize>,
    /// Eight-byte words that the kernel writes per tile, 0 if there are none: partial results of reductions, or how many rows
    /// it kept. The words of one tile stand together.
    pub partial_words: usize,
    /// Bytes per row of each column that is the kernel's own: it is on the device only, and holds anything at first.
    pub scratch: Vec<usize>,
    /// Rows of a tile: what one block of threads computes. Chunks are whole tiles, except the last.
    pub tile_rows: usize,
}

impl Default for Columns {
    /// None, in tiles of [`TILE_ROWS`].
    fn default() -> Self {
        Columns { inputs: vec![], outputs: vec![], partial_words: 0, scratch: vec![], tile_rows: TILE_ROWS }
    }
}

impl Columns {
    /// Bytes of the partials of `rows` rows.
    pub fn partial_bytes(&self, rows: usize) -> usize {
        rows.div_ceil(self.tile_rows) * self.partial_words * 8
    }

    /// Rows that a core computes at a time, so that what it writes stays in its cache: whole tiles.
    pub(crate) fn rows_in_cache(&self) -> usize {
        const BYTES: usize = 32 << 10;
        let bytes = self.outputs.iter().sum::<usize>().max(1) * self.tile_rows;
        self.tile_rows * (BYTES / bytes).clamp(1, (TILE_ROWS / self.tile_rows).max(1))
    }

    /// Bytes of each column of `rows` rows, in order.
    pub fn bytes(&self, rows: usize) -> impl Iterator<Item = usize> {
        let sides = self.inputs.iter().chain(&self.outputs).map(move |bytes| bytes * rows);
        let partials = Some(self.partial_bytes(rows)).filter(|_| self.partial_words > 0);
        sides.chain(partials).chain(self.scratch.iter().map(move |bytes| bytes * rows))
    }
}

/// Device code.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// CUDA C++ for NVRTC, complete: no includes but those of the options.
    Cuda {
        /// What messages of the compiler call it.
        name: String,
        /// The text.
        text: String,
        /// Options for the compiler beside those that every kernel gets.
        options: Vec<String>,
    },
    /// PTX text, a cubin or a fatbin.
    Image(Arc<[u8]>),
    /// None: the kernel runs on the host only.
    HostOnly,
}

impl Code {
    /// CUDA C++ of Overshot's own.
    pub fn own(text: &str) -> Code {
        Code::Cuda { name: "overshot.cu".into(), text: text.into(), options: vec![] }
    }

    /// The text; empty for an image.
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
    /// The address of the column of this number, in the order of [`Columns`].
    Column(usize),
    /// The address of the array of this number, which stays on the device for the whole job.
    Resident(usize),
    /// The value of this number, of up to eight bytes.
    Value(usize),
}

/// How a kernel is launched on CUDA: a block of threads for each tile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The arguments, in the order of the kernel's parameters.
    pub arguments: Vec<Argument>,
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of dynamic shared memory of a block.
    pub shared_bytes: u32,
    /// The parameters that the caller says the kernel has, one for each argument. `None` for kernels of Overshot's own.
    pub declared: Option<Vec<Declared>>,
}

/// A parameter that a caller says a kernel has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// Its name.
    pub name: String,
    /// Its size.
    pub bytes: usize,
}

impl Launch {
    /// Of kernels of Overshot's own: `extern "C" __global__ void ENTRY(long long first_row, long long rows, in0, in1, …, out0, …,
    /// partials, value0, …)` with [`TILE_THREADS`] threads, the partials only when there are any.
    pub fn of(columns: &Columns, values: usize) -> Launch {
        let count = columns.inputs.len() + columns.outputs.len() + usize::from(columns.partial_words > 0);
        let arguments = [Argument::FirstRow, Argument::Rows].into_iter().chain((0..count).map(Argument::Column));
        let arguments = arguments.chain((0..values).map(Argument::Value));
        Launch { arguments: arguments.collect(), threads: TILE_THREADS as u32, shared_bytes: 0, declared: None }
    }
}

/// A kernel, device-neutral.
pub struct Kernel {
    /// The name of the entry point.
    pub entry: String,
    /// The code for CUDA.
    pub code: Code,
    /// How it is launched.
    pub launch: Launch,
    /// The columns.
    pub columns: Columns,
    /// The bytes of arrays that stay on the device for the whole job.
    pub resident: Vec<Arc<Resident>>,
    /// The values.
    pub values: Arc<ScalarArgs>,
    /// Makes a host kernel with scratch memory of its own; called once a worker. `None`: there is none, so it runs on CUDA only.
    pub host: Option<MakeTwin>,
}

/// Makes a host kernel.
pub type MakeTwin = Box<dyn Fn() -> Box<dyn HostKernel> + Send + Sync>;

/// An array of any dtype, in words so that it is aligned for all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resident {
    words: Vec<u64>,
    bytes: usize,
}

impl Resident {
    /// A copy of these bytes.
    pub fn new(bytes: &[u8]) -> Self {
        let mut words = vec![0; bytes.len().div_ceil(8)];
        bytemuck::cast_slice_mut(&mut words)[..bytes.len()].copy_from_slice(bytes);
        Resident { words, bytes: bytes.len() }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.bytes]
    }
}

/// The values of a kernel's parameters: one each for all rows. They may come after the first chunks were copied; whoever
/// launches the kernel, or runs its host kernel, waits for them.
#[derive(Debug, Default)]
pub struct ScalarArgs(OnceLock<Option<Vec<u64>>>);

impl ScalarArgs {
    /// ScalarArgs that are known: the bits of each, in the lowest ones of a word.
    pub fn new(bits: Vec<u64>) -> Arc<Self> {
        Arc::new(ScalarArgs(Some(bits).into()))
    }

    /// ScalarArgs that are not known yet.
    pub fn late() -> Arc<Self> {
        Arc::default()
    }

    /// Makes them known, unless they are, or were given up.
    pub fn set(&self, bits: Vec<u64>) {
        self.0.get_or_init(|| Some(bits));
    }

    /// Says that they never come, as what they are of has ended, unless they are known.
    pub fn abandon(&self) {
        self.0.get_or_init(|| None);
    }

    /// Whether they are known.
    pub fn are_known(&self) -> bool {
        matches!(self.0.get(), Some(Some(_)))
    }

    /// Whether they never come.
    pub fn are_abandoned(&self) -> bool {
        matches!(self.0.get(), Some(None))
    }

    /// The values, as soon as they are known; `None` once they were given up. Blocks until then.
    pub fn wait(&self) -> Option<&[u64]> {
        self.0.wait().as_deref()
    }

    /// The values, for who has waited for them.
    ///
    /// # Errors
    /// [`Error::Abandoned`] if they were given up, [`Error::Internal`] if nobody has waited.
    pub fn known(&self) -> Result<&[u64]> {
        match self.0.get() {
            Some(Some(bits)) => Ok(bits),
            Some(None) => Err(Error::Abandoned),
            None => Err(Error::Internal("a kernel was to run before its values were known".into())),
        }
    }
}

impl Kernel {
    /// A host kernel, if there is one.
    pub fn new_host_kernel(&self) -> Option<Box<dyn HostKernel>> {
        Some(self.host.as_ref()?())
    }

    /// That it cannot run on a device that needs a host kernel.
    pub(crate) fn no_host_kernel(&self, device: &str) -> Error {
        Error::Job(format!(
            "the kernel '{}' has no function for the host, which '{device}' needs: run it on a CUDA GPU, or give it such a \
             function in Rust",
            self.entry
        ))
    }

    /// That it cannot run on a device that needs device code.
    pub(crate) fn no_device_code(&self, device: &str) -> Error {
        Error::Job(format!(
            "'{}' is a function in Rust, which '{device}' cannot run: run it on the CPU, or write it as a kernel in CUDA C++",
            self.entry
        ))
    }

    /// That it has no host kernel, where a GPU was looked for and not found, for this reason.
    pub(crate) fn no_gpu(&self, reason: &str) -> Error {
        Error::Job(format!(
            "the kernel '{}' has no function for the host, and no GPU was found: {reason}; run it where there is a CUDA GPU, or \
             give it such a function in Rust",
            self.entry
        ))
    }
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernel").field("entry", &self.entry).field("columns", &self.columns).finish_non_exhaustive()
    }
}

/// What a kernel is given that is the same for all rows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Uniform<'a> {
    /// The arrays that stay on the device.
    pub resident: &'a [&'a [u8]],
    /// The values: the bits of each, in the lowest ones of a word.
    pub values: &'a [u64],
}

/// The host kernel of a kernel: the same function of the same bytes, on the host.
pub trait HostKernel: Send {
    /// Computes `rows` rows that start at global row `first_row`, which is the first of a tile.
    ///
    /// Each slice of `inputs` and `outputs` holds exactly `rows` rows in native byte order, aligned to its
    /// elements; `partials` holds [`Columns::partial_bytes`]`(rows)` bytes, aligned to 8 if it is not empty; `uniform` has the
    /// arrays and the values of the kernel. Every byte of `outputs` and `partials` is written, none is read.
    ///
    /// # Panics
    /// If a slice is of another length or alignment.
    fn run(
        &mut self,
        first_row: u64,
        rows: usize,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
        partials: &mut [u8],
        uniform: &Uniform<'_>,
    );
}

/// A kernel as it is shared by the workers.
pub type SharedKernel = Arc<Kernel>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_once() {
        let values = ScalarArgs::late();
        assert!(!values.are_known());
        assert!(
            matches!(values.known(), Err(Error::Internal(problem)) if problem.contains("before its values were known"))
        );
        values.set(vec![1, 2]);
        values.set(vec![3]);
        values.abandon();
        assert!(values.are_known());
        assert_eq!((values.wait(), values.known().unwrap()), (Some(&[1, 2][..]), &[1, 2][..]));
        assert_eq!(ScalarArgs::new(vec![4]).wait(), Some(&[4][..]));
    }

    #[test]
    fn values_that_were_given_up_never_come() {
        let values = ScalarArgs::late();
        values.abandon();
        values.set(vec![1]);
        assert!(!values.are_known());
        assert_eq!(values.wait(), None);
        assert!(matches!(values.known(), Err(Error::Abandoned)));
    }

    #[test]
    fn whoever_waits_gets_the_values_of_another_thread() {
        let values = ScalarArgs::late();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| values.wait().map(<[u64]>::to_vec));
            values.set(vec![7]);
            assert_eq!(waits.join().unwrap(), Some(vec![7]));
        });
    }
}
