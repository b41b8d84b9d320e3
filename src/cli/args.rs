//! The arguments. Their doc comments are the help texts.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use overshot::{DeviceChoice, Engine, Input, NamedFile, Reading};

use super::values::{Binding, binding, file, size};
use super::{Failure, Result};

/// Streams datasets larger than a GPU's memory through a computation.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Evaluate an expression over files
    Run(JobArgs),
    /// Print what `run` would use, with the formulas; run nothing
    Plan(JobArgs),
    /// List the devices, without touching any GPU
    Devices(DevicesArgs),
    /// Make two files, stream them through a device smaller than they are, check the result
    Demo(DemoArgs),
    /// Measure how fast this machine is: bench --limits
    ///
    /// It takes a few seconds, and a few more for each GPU. The result is kept in ~/.cache/overshot (or $OVERSHOT_CACHE; empty:
    /// nowhere) for plans and reports
    Bench(BenchArgs),
    /// Show what files hold: dtype, shape, rows, bytes; with --stats also their least, greatest and mean value
    Info(InfoArgs),
    /// List the functions that expressions may use
    Functions,
    /// Print a script that completes commands and options in a shell
    ///
    /// For bash: overshot completions bash > ~/.local/share/bash-completion/completions/overshot
    Completions(CompletionsArgs),
    /// Print a manual page: overshot man | man -l -
    Man(ManArgs),
}

/// Examples: overshot run 'c = a * b; mean(c)' a=a.npy b=b.npy c=c.npy; overshot run saxpy.cu:saxpy x=x.npy y=y.npy a=2.5
#[derive(clap::Args)]
pub struct JobArgs {
    /// What to compute for every row: statements separated by ';', such as 'c = a * b; mean(c)', with the functions that
    /// 'overshot functions' lists; or a kernel of your own, as
    /// FILE:ENTRY, in a file of CUDA C++ (.cu), PTX (.ptx) or device code (.cubin, .fatbin). It runs with your rights, and
    /// has to stay within its arrays
    #[arg(value_name = "EXPR")]
    pub expression: String,

    /// A file for a name: an output if the expression assigns the name, or the kernel's parameter is no pointer to const; else
    /// an input. Where the parameter is a value, a number. `.npy` files say their dtype,
    /// others are raw and need one to be read (bool, i8 to i64, u8 to u64, f32, f64); ':f64!' takes a file for raw that
    /// looks like another format. An assigned name without a file is a temporary
    #[arg(value_name = "NAME=PATH[:DTYPE]", value_parser = binding())]
    pub files: Vec<Binding>,

    #[command(flatten)]
    pub kernel: KernelArgs,

    #[command(flatten)]
    pub limits: Limits,

    /// How many rows there are; only without inputs, as in 'x = f64(i)'
    #[arg(long, value_name = "N")]
    pub rows: Option<u64>,

    /// Print JSON on standard output (progress stays on standard error)
    #[arg(long)]
    pub json: bool,

    /// No progress; of the report only the results, one 'expression = value' a line
    #[arg(long)]
    pub quiet: bool,

    /// The whole report: chunks, memory, devices, the time of each stage and what bound it
    #[arg(short, long)]
    pub verbose: bool,

    /// Replace outputs that exist
    #[arg(long)]
    pub force: bool,

    /// How input files are read [default: through a memory map; past the page cache if they are large and not in it]
    #[arg(long, value_name = "HOW")]
    pub reading: Option<ReadingArg>,

    /// Write when every stage of every chunk began and ended to this file, for <https://ui.perfetto.dev> (Chrome's trace
    /// format); it is replaced if it exists
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
}

#[derive(clap::Args)]
#[command(next_help_heading = "Options for kernels")]
pub struct KernelArgs {
    /// The parameters of a kernel that is no CUDA C++, as in C: 'const float *x, float *y, float a, long long rows'
    #[arg(long, value_name = "TEXT")]
    pub parameters: Option<String>,

    /// Threads of a block [default: 256]
    #[arg(long, value_name = "N")]
    pub threads: Option<u32>,

    /// Rows that a block computes [default: as many as threads]
    #[arg(long, value_name = "N")]
    pub rows_per_block: Option<usize>,

    /// Bytes of dynamic shared memory of a block [default: 0]
    #[arg(long, value_name = "BYTES")]
    pub shared: Option<u32>,

    /// The file for this name is the same for all rows: it stays on each device for the whole job
    #[arg(long, value_name = "NAME")]
    pub resident: Vec<String>,

    /// This parameter is memory for the rows of a chunk that only the kernel uses
    #[arg(long, value_name = "NAME")]
    pub scratch: Vec<String>,

    /// One more option for the compiler, such as --compiler=--include-path=FOLDER
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    pub compiler: Vec<String>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
pub enum ReadingArg {
    /// Through a memory map
    Map,
    /// By calls, through the page cache
    Pread,
    /// By calls, past the page cache
    Direct,
}

impl JobArgs {
    /// Opens an input.
    pub fn open(&self, file: &NamedFile) -> Result<Input<'static>> {
        Ok(match self.reading {
            // SAFETY: whoever runs the command is told not to write to its inputs or shorten them meanwhile, as with
            // every program that maps files; the library, whose callers are not told by us, has them say so with
            // `unsafe`.
            None | Some(ReadingArg::Map) => unsafe { file.map() }?,
            Some(ReadingArg::Pread) => file.open(Reading::Pread)?,
            Some(ReadingArg::Direct) => file.open(Reading::Direct)?,
        })
    }
}

#[derive(clap::Args)]
pub struct Limits {
    /// Where to compute: auto, cpu, cuda, cuda:0, cuda:0,2, cpu+cuda, emulated, emulated:SEED or emulated:SEED*3
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    pub device: DeviceChoice,

    /// The most device memory to use, per device, such as 512MiB or 2GB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub device_memory: Option<u64>,

    /// The most pinned memory to use, per device [default: 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub pinned_memory: Option<u64>,

    /// Bytes of a chunk, inputs and outputs together [default: chosen by the plan]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub chunk: Option<u64>,

    /// Lanes per device [default: chosen by the plan]
    #[arg(long, value_name = "N")]
    pub lanes: Option<usize>,
}

impl Limits {
    /// An engine within these limits.
    pub fn engine(&self) -> Result<Engine> {
        let mut engine = Engine::builder().device(self.device.clone());
        if let Some(bytes) = self.device_memory {
            engine = engine.device_memory(bytes);
        }
        if let Some(bytes) = self.pinned_memory {
            engine = engine.pinned_memory(bytes);
        }
        if let Some(bytes) = self.chunk {
            engine = engine.chunk(bytes);
        }
        if let Some(lanes) = self.lanes {
            engine = engine.lanes(lanes);
        }
        Ok(engine.build()?)
    }
}

#[derive(clap::Args)]
pub struct DevicesArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(clap::Args)]
pub struct DemoArgs {
    /// The size of each of the two files
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = size)]
    pub size: u64,

    /// Keep the files
    #[arg(long)]
    pub keep: bool,

    /// Make the folder for the files in this one [default: the current folder]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,

    /// Where to compute: auto, cpu, cuda, cuda:0, cuda:0,2, cpu+cuda, emulated, emulated:SEED or emulated:SEED*3
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    pub device: DeviceChoice,

    /// No progress
    #[arg(long)]
    pub quiet: bool,
}

#[derive(clap::Args)]
pub struct BenchArgs {
    /// Measure the limits of this machine: memory by threads, files, disk, copies by size, pinning, launches; each GPU and
    /// all at once
    #[arg(long)]
    pub limits: bool,

    /// What to measure beside memory and disk: auto (all GPUs, if there are any), cpu (none), cuda, cuda:0
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    pub device: DeviceChoice,

    /// A folder on the disk to measure. Nothing stays in it
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(clap::Args)]
pub struct InfoArgs {
    /// The files. `.npy` files say what they hold; for others, which are raw, add the dtype to see how many rows it makes
    #[arg(value_name = "FILE[:DTYPE]", required = true, value_parser = file())]
    pub files: Vec<NamedFile>,

    /// Also read all rows, for the least, greatest and mean value and the number of NaN
    #[arg(long)]
    pub stats: bool,

    /// Where to compute --stats: auto, cpu, cuda, cuda:0, cuda:0,2, cpu+cuda
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    pub device: DeviceChoice,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// No progress
    #[arg(long)]
    pub quiet: bool,
}

#[derive(clap::Args)]
pub struct CompletionsArgs {
    /// The shell
    pub shell: clap_complete::Shell,
}

#[derive(clap::Args)]
pub struct ManArgs {
    /// The command whose page to print [default: the page of overshot itself]
    pub command: Option<String>,
}

impl Args {
    /// The arguments of this process. Prints the help or the version and exits, if asked for.
    pub fn read() -> Result<Args> {
        Args::try_parse().map_err(|error| match error.kind() {
            clap::error::ErrorKind::DisplayHelp | clap::error::ErrorKind::DisplayVersion => error.exit(),
            clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => error.exit(),
            _ => Failure::Arguments(error),
        })
    }
}
