//! The arguments. Their doc comments are the help texts.

use std::env;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use overshot::{
    DeviceChoice, Engine, Input,
    io::{NamedFile, ReadMode},
};

use super::help::{ENDINGS, EXAMPLES};
use super::output::written;
use super::values::{Binding, binding, count, device, file, size};
use super::{Failure, Result};

/// Streams datasets larger than a GPU's memory through a computation.
#[derive(Parser)]
#[command(version, arg_required_else_help = true, args_override_self = true, max_term_width = 100)]
#[command(after_help = ENDINGS)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Evaluate an expression over files
    #[command(after_help = EXAMPLES)]
    Run(JobArgs),
    /// Print what `run` would use, with the formulas; run nothing
    #[command(after_help = EXAMPLES)]
    Plan(JobArgs),
    /// List the devices, without touching any GPU
    Devices(DevicesArgs),
    /// Make two files, stream them through a device smaller than they are, check the result
    Demo(DemoArgs),
    /// Measure how fast this machine is
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

#[derive(clap::Args)]
pub struct JobArgs {
    /// What to compute for every row: statements separated by ';', such as 'c = a * b; mean(c)', with the functions that
    /// 'overshot functions' lists; or a kernel of your own, as
    /// FILE:ENTRY, in a file of CUDA C++ (.cu), PTX (.ptx) or device code (.cubin, .fatbin). It runs with your rights, and
    /// has to stay within its arrays
    #[arg(value_name = "EXPR")]
    pub expression: String,

    /// A file for a name: an output if the expression assigns the name, or the kernel's parameter is no pointer to const; else
    /// an input. `.npy` files say their dtype, others are raw and need one to be read (bool, i8 to i64, u8 to u64, f32, f64);
    /// ':f64!' takes a file for raw that looks like another format. An assigned name without a file is a temporary. For a name
    /// that is only read, or a parameter that is a value, also a number, the same for all rows: m=5.0 is f64, n=3 is i64, on=true
    /// is bool, s=2:f32 is f32. A file with such a name is written ./5.0
    #[arg(value_name = "NAME=PATH[:DTYPE]", value_parser = binding())]
    pub files: Vec<Binding>,

    /// How many rows there are, such as 1000000, 1e6 or 1M; only without inputs, as in 'x = f64(i)'
    #[arg(long, value_name = "N", value_parser = count, help_heading = "Data")]
    pub rows: Option<u64>,

    /// Replace outputs that exist
    #[arg(long, help_heading = "Data")]
    pub force: bool,

    /// How input files are read [default: through a memory map; past the page cache if they are large and not in it]
    #[arg(long, value_name = "HOW", help_heading = "Data")]
    pub reading: Option<ReadingArg>,

    /// Print JSON on standard output, and errors as JSON on standard error
    #[arg(long, help_heading = "Report")]
    pub json: bool,

    /// No progress; of the report only the results, one 'expression = value' a line
    #[arg(long, help_heading = "Report")]
    pub quiet: bool,

    /// The whole report: chunks, memory, devices, the time of each stage and what bound it
    #[arg(short, long, help_heading = "Report")]
    pub verbose: bool,

    /// Write when every stage of every chunk began and ended to this file, for <https://ui.perfetto.dev> (Chrome's trace
    /// format); it is replaced if it exists
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    pub trace: Option<PathBuf>,

    #[command(flatten)]
    pub limits: LimitArgs,

    #[command(flatten)]
    pub kernel: KernelArgs,
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
            // SAFETY: whoever runs the command is told not to write to its inputs or truncate them meanwhile, as with
            // every program that maps files; the library, whose callers are not told by us, has them say so with
            // `unsafe`.
            None | Some(ReadingArg::Map) => unsafe { file.map() }?,
            Some(ReadingArg::Pread) => file.open(ReadMode::Pread)?,
            Some(ReadingArg::Direct) => file.open(ReadMode::Direct)?,
        })
    }
}

#[derive(clap::Args)]
#[command(next_help_heading = "Device and memory")]
pub struct LimitArgs {
    /// Where to compute: auto, cpu, cuda, cuda:0, cuda:0,2, cpu+cuda, emulated, emulated:SEED or emulated:SEED*3
    #[arg(long, value_name = "DEVICE", default_value = "auto", value_parser = device)]
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

    /// Workers per device [default: chosen by the plan]
    #[arg(long, value_name = "N")]
    pub workers: Option<usize>,
}

impl LimitArgs {
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
        if let Some(workers) = self.workers {
            engine = engine.workers(workers);
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
    #[arg(long, value_name = "DEVICE", default_value = "auto", value_parser = device)]
    pub device: DeviceChoice,

    /// No progress
    #[arg(long)]
    pub quiet: bool,
}

#[derive(clap::Args)]
pub struct BenchArgs {
    /// Measure the limits of this machine: memory by threads, files, disk, copies by size, pinning, launches; each GPU and
    /// all at once. There is nothing else to measure, so this is what happens without it, too
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
    #[arg(long, value_name = "DEVICE", default_value = "auto", value_parser = device)]
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
    /// The arguments of this process; `None` if the help or the version was asked for, which is printed.
    pub fn read() -> Result<Option<Args>> {
        match Args::try_parse() {
            Ok(args) => Ok(Some(args)),
            Err(help) if matches!(help.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
                written(help.print().and_then(|()| io::stdout().flush())).map(|()| None)
            }
            // On standard error, with 2.
            Err(help) if help.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => help.exit(),
            Err(error) => Err(Failure::Arguments(error)),
        }
    }
}

/// Whether the arguments of this process ask for JSON, be they right otherwise or not: then errors in them are JSON as well.
pub fn ask_for_json() -> bool {
    env::args_os().skip(1).take_while(|argument| argument != "--").any(|argument| argument == "--json")
}
