//! Errors of kernels of the caller's own.

/// Why a kernel of the caller's own cannot be used as it is declared, set up or called.
///
/// ```
/// use overshot::kernel::{KernelError, RowFunction};
/// use overshot::{DeviceChoice, Engine, Error, Job};
/// let twice = RowFunction::new("twice").input::<i32>("x").output::<i32>("y").run(|x, y| {
///     y.iter_mut().zip(x).for_each(|(y, x)| *y = 2 * x);
/// });
/// let engine = Engine::builder().device(DeviceChoice::Cpu).build()?;
/// let result = engine.run(Job::kernel(&twice).input("x", &[1, 2]));
/// assert!(matches!(result, Err(Error::InvalidKernel(KernelError::MissingOutput { .. }))));
/// # Ok::<(), overshot::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// The parameters of the kernel cannot be read from its text.
    #[error("{name}: {message}")]
    #[non_exhaustive]
    Declaration {
        /// The name of the text, or of the kernel if its parameters are given apart from the text.
        name: String,
        /// The reason and the remedy.
        message: String,
    },

    /// A block has no threads, no rows, or too many of them.
    #[error("the kernel '{kernel}': set 1 to {most} threads, and at least one row a block")]
    #[non_exhaustive]
    Block {
        /// The kernel.
        kernel: String,
        /// The most threads of a block.
        most: u32,
    },

    /// The rows of a block are too large.
    #[error(
        "the kernel '{kernel}': the {rows} rows of a block have more than {most} bytes: set fewer rows for a block, \
         or make rows smaller"
    )]
    #[non_exhaustive]
    BlockBytes {
        /// The kernel.
        kernel: String,
        /// The rows of a block.
        rows: usize,
        /// The most bytes of the rows of a block.
        most: usize,
    },

    /// A halo is declared for what is no input.
    #[error(
        "the kernel '{kernel}': '{parameter}' has a halo, but is no input: declare halos of inputs, which have rows \
         beside those of a launch"
    )]
    #[non_exhaustive]
    HaloOfNoInput {
        /// The kernel.
        kernel: String,
        /// The name that the halo is declared for.
        parameter: String,
    },

    /// A kernel with a halo cannot know where the rows of the job begin or end.
    #[error(
        "the kernel '{kernel}' reads rows around each row, but has no parameter '{parameter}', so it cannot know where \
         the {end} row of the job is: add 'long long {parameter}', and read no rows beyond"
    )]
    #[non_exhaustive]
    HaloBeyondRows {
        /// The kernel.
        kernel: String,
        /// The missing parameter.
        parameter: &'static str,
        /// Which row it tells of.
        end: &'static str,
    },

    /// A halo has too many rows.
    #[error(
        "the kernel '{kernel}': a halo of {rows} rows is larger than {most}: read fewer rows around each row, or make \
         rows larger"
    )]
    #[non_exhaustive]
    HaloRows {
        /// The kernel.
        kernel: String,
        /// The rows of the halo on one side.
        rows: usize,
        /// The most rows of a halo on one side.
        most: usize,
    },

    /// A function in Rust has two columns of one name.
    #[error("the kernel '{kernel}': it has two columns '{name}': rename one")]
    #[non_exhaustive]
    TwoColumns {
        /// The kernel.
        kernel: String,
        /// The name of both.
        name: String,
    },

    /// A column of a function in Rust has a name that is reserved.
    #[error("the kernel '{kernel}': its column '{name}' has a reserved name: rename it")]
    #[non_exhaustive]
    ReservedName {
        /// The kernel.
        kernel: String,
        /// The column.
        name: String,
    },

    /// A name is given that the kernel has no parameter for.
    #[error("the kernel '{kernel}': it has no parameter '{name}'; its parameters are {parameters}")]
    #[non_exhaustive]
    UnknownParameter {
        /// The kernel.
        kernel: String,
        /// The name.
        name: String,
        /// The parameters that there are.
        parameters: String,
    },

    /// An input or a resident array is given for a parameter that the kernel may write to.
    #[error(
        "the kernel '{kernel}': its parameter '{parameter}' is no place for {role}, as the kernel may write to it: \
         declare it const if it only reads it"
    )]
    #[non_exhaustive]
    NotConst {
        /// The kernel.
        kernel: String,
        /// The parameter.
        parameter: String,
        /// `an input` or `a resident array`.
        role: &'static str,
    },

    /// A value is given for a parameter that is set at every launch.
    #[error("the kernel '{kernel}': its parameter '{parameter}' is set at every launch: leave out the value")]
    #[non_exhaustive]
    SetAtLaunch {
        /// The kernel.
        kernel: String,
        /// The parameter.
        parameter: String,
    },

    /// An argument has another type than its parameter.
    #[error(
        "the kernel '{kernel}': its parameter '{parameter}' is no place for {role} of that type: check its declaration"
    )]
    #[non_exhaustive]
    ArgumentType {
        /// The kernel.
        kernel: String,
        /// The parameter.
        parameter: String,
        /// `an input`, `an output`, `a resident array`, `scratch` or `a value`.
        role: &'static str,
    },

    /// A parameter is given twice.
    #[error("the kernel '{kernel}': its parameter '{parameter}' is given twice: leave one out")]
    #[non_exhaustive]
    GivenTwice {
        /// The kernel.
        kernel: String,
        /// The parameter.
        parameter: String,
    },

    /// An input has another dtype than its parameter.
    #[error(
        "the kernel '{kernel}': its parameter '{parameter}' is {dtype}, but the input is {input}: convert it before"
    )]
    #[non_exhaustive]
    InputDtype {
        /// The kernel.
        kernel: String,
        /// The parameter.
        parameter: String,
        /// The dtype of the parameter.
        dtype: String,
        /// The dtype of the input.
        input: String,
    },

    /// A parameter that takes a value has none.
    #[error("the kernel '{kernel}': its parameter '{parameter}' has no value: give it a number of {dtype}")]
    #[non_exhaustive]
    MissingValue {
        /// The kernel.
        kernel: String,
        /// The parameter.
        parameter: String,
        /// The dtype of the parameter.
        dtype: String,
    },

    /// A parameter that the kernel reads rows from has none.
    #[error("the kernel '{kernel}': its parameter '{parameter}' has no rows: give it an input, or a resident array")]
    #[non_exhaustive]
    MissingInput {
        /// The kernel.
        kernel: String,
        /// The parameter.
        parameter: String,
    },

    /// A parameter that the kernel writes rows to has no place for them.
    #[error("the kernel '{kernel}': its parameter '{parameter}' has no place: give it an output, or make it scratch")]
    #[non_exhaustive]
    MissingOutput {
        /// The kernel.
        kernel: String,
        /// The parameter.
        parameter: String,
    },

    /// A resident array does not fit the memory of the host.
    #[error("{array}: too large to be resident: make it an input")]
    #[non_exhaustive]
    ResidentTooLarge {
        /// The name of the source of the array.
        array: String,
    },

    /// The last block has fewer rows than the others, and the kernel is not told.
    #[error(
        "the kernel '{kernel}' has no parameter 'rows', so its last block cannot know that it has {rows} of \
         {block_rows} rows: add 'long long rows', and leave alone what lies beyond"
    )]
    #[non_exhaustive]
    NoRowsParameter {
        /// The kernel.
        kernel: String,
        /// The rows of the last block.
        rows: u64,
        /// The rows of the other blocks.
        block_rows: usize,
    },

    /// The kernel reports that a block selects more rows than it has.
    #[error(
        "the kernel '{kernel}' reports {selected} selected rows in a tile of {rows} rows: correct what it writes to \
         'num_selected'"
    )]
    #[non_exhaustive]
    TooManySelected {
        /// The kernel.
        kernel: String,
        /// The selected rows that it reports.
        selected: u64,
        /// The rows of the block.
        rows: u64,
    },

    /// The kernel is to run on a device that needs a host kernel, and has none.
    #[error(
        "the kernel '{kernel}' has no host kernel, which '{device}' needs: run it on a CUDA GPU, or give it a host \
         kernel in Rust"
    )]
    #[non_exhaustive]
    NoHostKernel {
        /// The kernel.
        kernel: String,
        /// The device, as `--device` names it.
        device: String,
    },

    /// The kernel is to be verified, and has no host kernel.
    #[error(
        "the kernel '{kernel}' has no host kernel that could verify it: give it a host kernel in Rust, or run it \
         without verification"
    )]
    #[non_exhaustive]
    CannotVerify {
        /// The kernel.
        kernel: String,
    },

    /// The kernel has no host kernel, and no GPU was found.
    #[error(
        "the kernel '{kernel}' has no host kernel, and no GPU was found: {reason}; run it on a machine with a CUDA \
         GPU, or give it a host kernel in Rust"
    )]
    #[non_exhaustive]
    NoGpu {
        /// The kernel.
        kernel: String,
        /// Why no GPU was found.
        reason: String,
    },

    /// A function in Rust is to run on a device that cannot run it.
    #[error(
        "'{kernel}' is a function in Rust, which '{device}' cannot run: run it on the CPU, or write it as a kernel in \
         CUDA C++"
    )]
    #[non_exhaustive]
    NoDeviceCode {
        /// The function.
        kernel: String,
        /// The device, as `--device` names it.
        device: String,
    },

    /// An option of the compiler contains a zero byte.
    #[error("the compiler's option {option:?} has a zero byte: leave it out")]
    #[non_exhaustive]
    OptionZeroByte {
        /// The option.
        option: String,
    },

    /// The text of the kernel, or the name of that text, contains a zero byte.
    #[error("the kernel's source {name:?}, or its name, has a zero byte: take it out")]
    #[non_exhaustive]
    SourceZeroByte {
        /// The name of the text.
        name: String,
    },

    /// The compiler refuses its options.
    #[error("the compiler refuses its options ({options}): {message}; correct the options")]
    #[non_exhaustive]
    Options {
        /// The options.
        options: String,
        /// The message of the compiler.
        message: String,
    },

    /// The device code does not contain the kernel.
    #[error("the device code has no kernel '{kernel}': check the name, and that it is declared extern \"C\"")]
    #[non_exhaustive]
    NotInCode {
        /// The kernel.
        kernel: String,
    },

    /// The compiled kernel has other parameters than it was declared with.
    #[error("the kernel '{kernel}' does not match its declaration: {difference}; correct the declaration")]
    #[non_exhaustive]
    DiffersFromDeclaration {
        /// The kernel.
        kernel: String,
        /// The difference.
        difference: String,
    },
}
