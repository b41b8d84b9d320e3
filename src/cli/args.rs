//! The arguments. Their doc comments are the help texts of the command.

use std::env;
use std::io::{self, Write};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use overshot::{
    DeviceChoice, Engine, Input, Precision,
    io::{Codec, NamedFile, ReadMode},
};

use super::help::{ENDINGS, EXAMPLES, MERGE};
use super::output::written;
use super::values::{Binding, Halo, Rows, binding, device, file, fraction, halo, part, rows, seconds, size};
use super::{Failure, Result};

/// Streams datasets larger than a GPU's memory through a computation.
#[derive(Parser)]
#[command(version, arg_required_else_help = true, args_override_self = true, max_term_width = 100)]
#[command(after_help = ENDINGS)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,

    /// The names of the arguments that were given to the subcommand.
    #[arg(skip)]
    pub given: Vec<String>,
}

#[derive(Subcommand)]
pub enum Command {
    /// Evaluate an expression over files
    #[command(after_help = EXAMPLES)]
    Run(JobArgs),
    /// Print what `run` would use, with the formulas; run nothing
    #[command(after_help = EXAMPLES)]
    Plan(JobArgs),
    /// Print what a job in parts would have printed as one, and name its outputs
    ///
    /// The partials are those of 'overshot run … --partial FILE', in any order, of all rows. All outputs get their
    /// names now, or none
    #[command(after_help = MERGE)]
    Merge(MergeArgs),
    /// Regressions, principal components, clusters and nearest neighbours of tables that are larger than a GPU's memory
    ///
    /// A table is a file of the shape (n, d). Results are printed, except those with a value for each row, and those
    /// that are given a file are written
    #[cfg(feature = "matrices")]
    #[command(after_help = super::help::MATRICES)]
    Matrices(super::matrices::args::MatricesArgs),
    /// List the devices, without touching any GPU
    Devices(DevicesArgs),
    /// Create two files, stream them through a device with less memory than they need, and check the result
    Demo(DemoArgs),
    /// Measure how fast this machine is
    ///
    /// Takes a few seconds, and a few more for each GPU. Plans and reports use the result, which is saved in
    /// ~/.cache/overshot. Set OVERSHOT_CACHE to use another directory, or to the empty string to save nothing
    Bench(BenchArgs),
    /// Show the dtype, shape, rows and bytes of files; with --stats also the minimum, maximum and mean of arrays
    Info(InfoArgs),
    /// List the functions that expressions may use
    Functions,
    /// Print a script that completes commands and options in a shell
    ///
    /// For bash: overshot completions bash > ~/.local/share/bash-completion/completions/overshot
    Completions(CompletionsArgs),
    /// Print a manual page, as in: overshot man | man -l -
    Man(ManArgs),
}

#[derive(clap::Args)]
pub struct JobArgs {
    /// The expression to compute: statements separated by ';', such as 'c = a * b; mean(c)'. 'overshot functions'
    /// lists the functions. Or a kernel, as FILE:ENTRY, in a file of CUDA C++ (.cu), PTX (.ptx) or device code
    /// (.cubin, .fatbin). A kernel runs with your permissions, and must not access memory outside its arrays. Or a job
    /// file (.toml), whose steps run one after the other; those that have not changed since they ran are skipped
    #[arg(value_name = "EXPR")]
    pub expression: String,

    /// The file of a name. It is an output if the expression assigns the name, or if the kernel's parameter is a
    /// pointer to non-const; otherwise it is an input. `.npy` files contain their dtype, as do Arrow (.arrow, .feather,
    /// .ipc) and Parquet files, in which outputs are columns, and Zarr stores (.zarr). All other files are raw: inputs
    /// need a dtype (bool, i8 to i64, u8 to u64, f16, bf16, f32, f64), and ':f64!' reads a file as raw that looks like
    /// another format. A folder, or a pattern such as 'x=part-*.npy', stands for its files as one input, in natural
    /// order of their names. If the expression reads fields, such as t.price, 't=trades.npy' is a file of records; keys
    /// of its folders, such as sales/year=2024, are fields of 't=sales', too. 'x=t.parquet:a' is the column a of a
    /// table, 'x=t.parquet:a,b' are two side by side, as an array of shape (n, 2), and 'x=t.parquet:*' are all.
    /// 'x=data.npz:a' is the array a of an archive that is not compressed. An assigned name without a file is a
    /// temporary. Instead of an input file, or for a scalar parameter of a kernel, you can give a number that is the
    /// same for all rows: m=5.0, n=3 and on=true adapt to what they meet, as numbers in the expression do, and s=2:f32
    /// is f32. Write ./5.0 for a file that is named like a number
    #[arg(value_name = "NAME=PATH[:DTYPE]", value_parser = binding())]
    pub files: Vec<Binding>,

    /// The number of rows of a job without inputs, such as 'x = f64(i)': for example 1000000, 1e6 or 1M. Or the rows to
    /// run with --partial, from A to the one before B, multiples of 4096 or the end
    #[arg(long, value_name = "N|A..B", value_parser = rows, help_heading = "Data")]
    pub rows: Option<Rows>,

    /// Replace existing outputs
    #[arg(long, help_heading = "Data")]
    pub force: bool,

    /// Wait until the outputs are on the disk, before they get their names and with their names before the end. Outputs
    /// of --resume and of 'overshot merge' always are
    #[arg(long, help_heading = "Data")]
    pub fsync: bool,

    /// How to compress Parquet and Zarr outputs: none, snappy (Parquet), lz4, zstd, gzip, or zstd:LEVEL, gzip:LEVEL
    /// [default: zstd:1]
    #[arg(long, value_name = "CODEC", value_parser = Codec::from_str, help_heading = "Data")]
    pub codec: Option<Codec>,

    /// The pieces that are encoded as a whole: the shape of the chunks of Zarr outputs, such as 365,90,180, or the rows
    /// of the row groups of Parquet outputs [default: chunks of about 8 MiB, row groups of 1048576 rows]
    #[arg(long, value_name = "N,...", value_delimiter = ',', help_heading = "Data")]
    pub chunks: Option<Vec<u64>>,

    /// The shape of the shards of Zarr outputs, such as 365,180,360: each is a file with a whole number of chunks along
    /// each axis [default: a file for each chunk]
    #[arg(long, value_name = "N,...", value_delimiter = ',', help_heading = "Data")]
    pub shards: Option<Vec<u64>>,

    /// The names of the dimensions of Zarr outputs, such as time,lat,lon [default: dim_0,dim_1,...]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', help_heading = "Data")]
    pub dimensions: Option<Vec<String>>,

    #[command(flatten)]
    pub reading: ReadingArgs,

    /// Run some rows only, those of --part or --rows A..B, and write what 'overshot merge' needs of them to this file.
    /// Any number of processes write their rows of the same outputs, which get their names when all are merged. An
    /// existing file is replaced
    #[arg(long, value_name = "FILE", help_heading = "Parts", conflicts_with_all = ["trace", "html", "verbose"])]
    pub partial: Option<PathBuf>,

    /// Run part K, from 0 on, of N parts of nearly the same number of rows
    #[arg(long, value_name = "K/N", value_parser = part, help_heading = "Parts", requires = "partial")]
    pub part: Option<(u64, u64)>,

    /// Run so that the same command continues if the run is interrupted, and continue if it was: keep a journal in this
    /// file [default: .NAME.journal beside the first output]. The file is removed when the run is complete
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, help_heading = "Parts",
        conflicts_with_all = ["partial", "trace"])]
    pub resume: Option<Option<PathBuf>>,

    /// Seconds between two writes of the journal [default: 1]
    #[arg(long, value_name = "SECONDS", value_parser = seconds, help_heading = "Parts", requires = "resume")]
    pub resume_every: Option<Duration>,

    /// Compute this fraction of the chunks once more and compare every byte, such as 0.01, or 1 for all of them: those
    /// of a GPU on the CPU, and those of the CPU with other instructions. A difference is an error
    #[arg(long, value_name = "FRACTION", value_parser = fraction, help_heading = "Checks",
        allow_negative_numbers = true)]
    pub verify: Option<f64>,

    /// How GPUs multiply matrices of f32: full, or on tensor cores as bf16x3 or tf32, which take 16 or 11 bits of their
    /// elements and are several times as fast where products and not the link are what a run waits for
    #[arg(long, value_name = "PRECISION", value_parser = Precision::from_str, help_heading = "Data")]
    pub precision: Option<Precision>,

    /// Print the BLAKE3 hash of every output, as b3sum does: of the file before it gets its name
    #[arg(long, help_heading = "Checks", conflicts_with = "partial")]
    pub checksum: bool,

    /// Run all steps of a job file, also those that have not changed
    #[arg(long, help_heading = "Job files")]
    pub all: bool,

    /// Print JSON on standard output, and errors as JSON on standard error
    #[arg(long, help_heading = "Report")]
    pub json: bool,

    /// Show no progress, and print only the results, one 'expression = value' per line
    #[arg(long, help_heading = "Report")]
    pub quiet: bool,

    /// Print the whole report: chunks, memory, devices, the time of each stage and the bottleneck
    #[arg(short, long, help_heading = "Report")]
    pub verbose: bool,

    /// Write the start and end times of every stage of every chunk to this file, in Chrome's trace format. Open it with
    /// <https://ui.perfetto.dev>. An existing file is replaced
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    pub trace: Option<PathBuf>,

    /// Write a picture of the report or of the plan to this file: a web page that needs no other file, with the times
    /// of every stage. An existing file is replaced
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    pub html: Option<PathBuf>,

    #[command(flatten)]
    pub limits: LimitArgs,

    #[command(flatten)]
    pub kernel: KernelArgs,
}

#[derive(clap::Args)]
#[command(next_help_heading = "Options for kernels")]
pub struct KernelArgs {
    /// The parameters of a kernel that is not CUDA C++, as in C: 'const float *x, float *y, float a, long long rows'
    #[arg(long, value_name = "TEXT")]
    pub parameters: Option<String>,

    /// Threads per block [default: 256]
    #[arg(long, value_name = "N")]
    pub threads: Option<u32>,

    /// Rows per block [default: the number of threads]
    #[arg(long, value_name = "N")]
    pub rows_per_block: Option<usize>,

    /// Bytes of dynamic shared memory per block [default: 0]
    #[arg(long, value_name = "BYTES")]
    pub shared: Option<u32>,

    /// Keep the whole file of this name on every device during the job, because every row uses it
    #[arg(long, value_name = "NAME")]
    pub resident: Vec<String>,

    /// This parameter is scratch memory for the rows of a chunk, which only the kernel uses
    #[arg(long, value_name = "NAME")]
    pub scratch: Vec<String>,

    /// The rows that the kernel reads around each row: 1 for one before and one behind, 1:0 for one before; of one
    /// input as in x=1:0, otherwise of all; can be repeated
    #[arg(long, value_name = "[NAME=]N[:N]", value_parser = halo)]
    pub halo: Vec<Halo>,

    /// An option for the compiler, such as --compiler=--include-path=FOLDER; can be repeated
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    pub compiler: Vec<String>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
pub enum ReadModeArg {
    /// Through a memory map
    Map,
    /// With pread, through the page cache
    Pread,
    /// With direct I/O, which bypasses the page cache
    Direct,
}

/// How inputs are read.
#[derive(clap::Args)]
pub struct ReadingArgs {
    /// How to read input files [default: map, but direct for large files that are not in the page cache]
    #[arg(long, value_name = "HOW", help_heading = "Data")]
    pub read_mode: Option<ReadModeArg>,

    #[command(flatten)]
    pub values: ValueArgs,
}

/// How values of tables are read that are no numbers.
#[derive(clap::Args)]
pub struct ValueArgs {
    /// Read this value in the place of nulls in tables, such as nan or 0. Without it, nulls are an error
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true, help_heading = "Data")]
    pub nulls: Option<String>,

    /// Read timestamps in tables as the integers that the file holds, in its unit, such as microseconds since 1970.
    /// Without it, they are an error
    #[arg(long, help_heading = "Data")]
    pub timestamps: bool,
}

impl ValueArgs {
    /// The file with these values.
    pub fn of(&self, file: &NamedFile) -> NamedFile {
        NamedFile { nulls: self.nulls.clone(), timestamps: self.timestamps, ..file.clone() }
    }
}

impl ReadingArgs {
    /// Opens an input.
    pub fn open(&self, file: &NamedFile) -> Result<Input<'static>> {
        let file = self.values.of(file);
        Ok(match self.read_mode {
            // SAFETY: the documentation tells users of the command not to write to or truncate inputs during a run, as
            // with every program that maps files. Users of the library make this promise with `unsafe`.
            None | Some(ReadModeArg::Map) => unsafe { file.map() }?,
            Some(ReadModeArg::Pread) => file.open(ReadMode::Pread)?,
            Some(ReadModeArg::Direct) => file.open(ReadMode::Direct)?,
        })
    }
}

#[derive(Clone, PartialEq, clap::Args)]
#[command(next_help_heading = "Device and memory")]
pub struct LimitArgs {
    /// The device: auto, cpu, cuda, cuda:0, cuda:0,2, cpu+cuda, emulated, emulated:SEED, emulated:SEED*3 or
    /// cpu+emulated
    #[arg(long, value_name = "DEVICE", default_value = "auto", value_parser = device)]
    pub device: DeviceChoice,

    /// The device memory limit, per device, such as 512MiB or 2GB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub device_memory: Option<u64>,

    /// The pinned memory limit, per device [default: 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub pinned_memory: Option<u64>,

    /// The chunk size in bytes, inputs and outputs together [default: chosen by the plan]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub chunk: Option<u64>,

    /// The number of workers per device [default: chosen by the plan]
    #[arg(long, value_name = "N")]
    pub workers: Option<usize>,

    /// Give up a GPU that takes longer than this for a chunk: others compute its rows, or the run ends with an error
    /// [default: no limit]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub device_timeout: Option<Duration>,
}

impl LimitArgs {
    /// Builds an engine with these limits.
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
        if let Some(limit) = self.device_timeout {
            engine = engine.device_timeout(limit);
        }
        Ok(engine.build()?)
    }
}

#[derive(clap::Args)]
pub struct MergeArgs {
    /// The partials
    #[arg(value_name = "FILE", required = true)]
    pub partials: Vec<PathBuf>,

    /// Write the merged partial to this file instead, to be merged with others. It may lack rows. An existing file is
    /// replaced
    #[arg(long, value_name = "FILE", conflicts_with = "verbose")]
    pub partial: Option<PathBuf>,

    /// Print the BLAKE3 hash of every output, as b3sum does: of the file before it gets its name
    #[arg(long, conflicts_with = "partial")]
    pub checksum: bool,

    /// Print JSON on standard output, and errors as JSON on standard error
    #[arg(long)]
    pub json: bool,

    /// Print only the results, one 'expression = value' per line
    #[arg(long)]
    pub quiet: bool,

    /// Print the whole report: chunks, memory, devices and the time of each stage, summed over the parts
    #[arg(short, long)]
    pub verbose: bool,
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

    /// The directory in which the files are created [default: the current directory]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,

    /// The device: auto, cpu, cuda, cuda:0, cuda:0,2, cpu+cuda, emulated, emulated:SEED, emulated:SEED*3 or
    /// cpu+emulated
    #[arg(long, value_name = "DEVICE", default_value = "auto", value_parser = device)]
    pub device: DeviceChoice,

    /// Show no progress
    #[arg(long)]
    pub quiet: bool,
}

#[derive(clap::Args)]
pub struct BenchArgs {
    /// Measure the limits of this machine: memory bandwidth by number of threads, files, disk, copies by size,
    /// pinning and kernel launches, for each GPU and for all GPUs at once. This is the default, and the only
    /// measurement there is
    #[arg(long)]
    pub limits: bool,

    /// What to measure in addition to memory and disk: auto (all GPUs, if any), cpu (nothing), cuda, cuda:0
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    pub device: DeviceChoice,

    /// A directory on the disk to measure. All files created in it are removed
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(clap::Args)]
pub struct InfoArgs {
    /// The files. `.npy` files contain their dtype; add the dtype of a raw file to see its number of rows. A folder or
    /// a pattern in quotes stands for several files as one input
    #[arg(value_name = "FILE[:DTYPE]", required = true, value_parser = file())]
    pub files: Vec<NamedFile>,

    /// Also read all rows, for the minimum, maximum, mean and number of NaN: of arrays, and of columns that are
    /// named, as in t.parquet:price
    #[arg(long)]
    pub stats: bool,

    #[command(flatten)]
    pub values: ValueArgs,

    /// The device that computes --stats: auto, cpu, cuda, cuda:0, cuda:0,2, cpu+cuda
    #[arg(long, value_name = "DEVICE", default_value = "auto", value_parser = device)]
    pub device: DeviceChoice,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Show no progress
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
    /// The command to print the page of [default: overshot itself]
    pub command: Option<String>,
}

impl Args {
    /// Parses the arguments of this process. Prints the help or the version if requested, and returns `None` then.
    pub fn read() -> Result<Option<Args>> {
        let command = Args::command();
        let parsed = command.clone().try_get_matches().and_then(|matches| {
            let args = Args::from_arg_matches(&matches)?;
            Ok(Args { given: given(&command, &matches), ..args })
        });
        match parsed {
            Ok(args) => Ok(Some(args)),
            Err(help) if matches!(help.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
                written(help.print().and_then(|()| io::stdout().flush())).map(|()| None)
            }
            // Prints to standard error and exits with 2.
            Err(help) if help.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => help.exit(),
            Err(error) => Err(Failure::Arguments(error)),
        }
    }
}

/// The names of the arguments that a command line gives to its subcommand.
fn given(command: &clap::Command, matches: &ArgMatches) -> Vec<String> {
    let Some((name, matches)) = matches.subcommand() else { return Vec::new() };
    let arguments = command.find_subcommand(name).into_iter().flat_map(clap::Command::get_arguments);
    let is_given =
        |argument: &&clap::Arg| matches.value_source(argument.get_id().as_str()) == Some(ValueSource::CommandLine);
    let name = |argument: &clap::Arg| match (argument.get_long(), argument.get_value_names()) {
        (Some(long), _) => format!("--{long}"),
        (None, Some([name, ..])) => name.to_string(),
        _ => argument.get_id().to_string(),
    };
    arguments.filter(is_given).map(name).collect()
}

/// Whether the arguments of this process contain `--json`. Errors in the arguments are then printed as JSON, too.
pub fn ask_for_json() -> bool {
    env::args_os().skip(1).take_while(|argument| argument != "--").any(|argument| argument == "--json")
}
