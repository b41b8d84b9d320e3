//! The arguments of `overshot matrices`. Their doc comments are the help texts of the command.

use clap::Subcommand;
use overshot::Precision;
use std::str::FromStr;

use super::super::args::{LimitArgs, ReadingArgs};
use super::super::values::{Binding, binding};

#[derive(clap::Args)]
pub struct MatricesArgs {
    #[command(subcommand)]
    pub algorithm: Algorithm,
}

#[derive(Subcommand)]
pub enum Algorithm {
    /// The products of all columns with all columns: gram of x
    Gram {
        #[command(flatten)]
        table: TableArgs,
    },
    /// The covariance of the columns: covariance of x
    Covariance {
        /// What is subtracted from the number of rows to divide by
        #[arg(long, value_name = "N", default_value_t = 1)]
        ddof: u64,
        #[command(flatten)]
        table: TableArgs,
    },
    /// The directions in which the rows vary most: components, variance and mean of x
    Pca {
        /// The number of components
        #[arg(long, value_name = "N")]
        count: usize,
        /// How they are found: auto is exact up to 4096 columns
        #[arg(long, value_name = "METHOD", default_value = "auto")]
        method: MethodArg,
        /// By how much the components may turn in the last iteration, the sine of an angle, of --method randomized
        #[arg(long, value_name = "SINE", default_value_t = 1e-6, allow_negative_numbers = true)]
        tolerance: f64,
        /// The most iterations of --method randomized, each of which reads all rows
        #[arg(long, value_name = "N", default_value_t = 12)]
        iterations: usize,
        /// The seed of the first directions of --method randomized
        #[arg(long, value_name = "N", default_value_t = 0)]
        seed: u64,
        #[command(flatten)]
        table: TableArgs,
    },
    /// The coordinates of each row along directions: y of x, components, and mean if it is given
    Project {
        #[command(flatten)]
        table: TableArgs,
    },
    /// Least squares: weights of x and t, with which x @ weights + intercept is closest to t
    Linear {
        /// The penalty for the squares of the weights
        #[arg(long, value_name = "PENALTY", default_value_t = 0.0, allow_negative_numbers = true)]
        ridge: f64,
        /// Leave the intercept out
        #[arg(long)]
        no_intercept: bool,
        #[command(flatten)]
        table: TableArgs,
    },
    /// Logistic regression: weights of x and t, which has 0 or 1 for each row
    Logistic {
        /// The penalty for half of the squares of the weights
        #[arg(long, value_name = "PENALTY", default_value_t = 0.0, allow_negative_numbers = true)]
        penalty: f64,
        /// What the last step may gain, as a share of the logarithm of the likelihood
        #[arg(long, value_name = "SHARE", default_value_t = 1e-8, allow_negative_numbers = true)]
        tolerance: f64,
        /// The most iterations, each of which reads all rows
        #[arg(long, value_name = "N", default_value_t = 25)]
        iterations: usize,
        #[command(flatten)]
        table: TableArgs,
    },
    /// Clusters of rows around the mean of their rows: centers, counts and labels of x, from start or from far rows
    Kmeans {
        /// The number of centers, unless start=FILE has them
        #[arg(long, value_name = "N")]
        count: Option<usize>,
        /// The most iterations, each of which reads all rows
        #[arg(long, value_name = "N", default_value_t = 20)]
        iterations: usize,
        /// Stop when the squared movements of the centers are no more than this share of the variance of the columns
        #[arg(long, value_name = "SHARE", default_value_t = 0.0, allow_negative_numbers = true)]
        tolerance: f64,
        /// The seed with which rows are drawn for a start
        #[arg(long, value_name = "N", default_value_t = 0)]
        seed: u64,
        #[command(flatten)]
        table: TableArgs,
    },
    /// The nearest center of each row: labels and distances of x and centers
    Assign {
        #[command(flatten)]
        table: TableArgs,
    },
    /// The nearest rows of a table for each query: indices and distances of base and queries
    Nearest {
        /// The number of neighbours of each query
        #[arg(long, value_name = "N")]
        count: usize,
        #[command(flatten)]
        table: TableArgs,
    },
}

#[derive(Clone, Copy, clap::ValueEnum)]
pub enum MethodArg {
    Auto,
    /// From the covariance of all columns
    Exact,
    /// From random directions
    Randomized,
}

/// What all algorithms take.
#[derive(clap::Args)]
pub struct TableArgs {
    /// The file of a name, as for 'overshot run'. Inputs are tables of rows, of the shape (n, d)
    #[arg(value_name = "NAME=PATH", value_parser = binding(), required = true)]
    pub files: Vec<Binding>,

    /// Replace existing outputs
    #[arg(long, help_heading = "Data")]
    pub force: bool,

    /// Wait until the outputs are on the disk
    #[arg(long, help_heading = "Data")]
    pub fsync: bool,

    #[command(flatten)]
    pub reading: ReadingArgs,

    /// How GPUs multiply matrices of f32: full, or on tensor cores as bf16x3 or tf32
    #[arg(long, value_name = "PRECISION", value_parser = Precision::from_str, help_heading = "Data")]
    pub precision: Option<Precision>,

    /// Print JSON on standard output, and errors as JSON on standard error
    #[arg(long, help_heading = "Report")]
    pub json: bool,

    /// Show no progress, and print only the results, one 'name = value' per line
    #[arg(long, help_heading = "Report")]
    pub quiet: bool,

    #[command(flatten)]
    pub limits: LimitArgs,
}
