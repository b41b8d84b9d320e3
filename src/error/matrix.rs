//! Errors of algorithms on tables.

/// Why an algorithm of [`matrices`](crate::matrices) cannot use what it was given, or has no answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MatrixError {
    /// An argument has another shape than the algorithm needs.
    #[error("{name} has the shape {}, and not {}; reshape it", in_words(shape), in_words(expected))]
    #[non_exhaustive]
    Shape {
        /// The name of the argument.
        name: &'static str,
        /// The lengths of its dimensions.
        shape: Vec<u64>,
        /// The lengths that it should have, or letters for those that may be any.
        expected: Vec<String>,
    },

    /// More or fewer are asked for than there can be.
    #[error("there are from 1 to {most} {what}, and not {count}")]
    #[non_exhaustive]
    Count {
        /// What is counted: `components`, `centers`, `neighbours` or `iterations`.
        what: &'static str,
        /// The largest number that is possible.
        most: u64,
        /// The number that was asked for.
        count: u64,
    },

    /// There are too few rows.
    #[error("{rows} rows have no covariance with ddof={ddof}; give at least {}", ddof + 1)]
    #[non_exhaustive]
    TooFewRows {
        /// The number of rows.
        rows: u64,
        /// How much the number of rows is reduced by, to divide by it.
        ddof: u64,
    },

    /// A penalty or a tolerance is negative, infinite or NaN.
    #[error("{name} is {value}; give a number that is finite and not negative")]
    #[non_exhaustive]
    Negative {
        /// The name of the number.
        name: &'static str,
        /// The number.
        value: f64,
    },

    /// A table has infinities or NaN, or values so large that squares of them are infinite.
    #[error(
        "{name} has values that are infinite or NaN, or whose squares are infinite; fill or scale them, or leave their \
         rows out"
    )]
    #[non_exhaustive]
    NotFinite {
        /// The name of the argument.
        name: &'static str,
    },

    /// There are many solutions, because a column is constant or follows from others.
    #[error(
        "a column is constant or follows from others, so that many weights are as good; leave it out, or give a penalty"
    )]
    Singular,

    /// The classes of a logistic regression are not two.
    #[error("t has {others} values that are neither 0 nor 1; give two classes")]
    #[non_exhaustive]
    NotAClass {
        /// How many values are neither.
        others: u64,
    },

    /// All rows of a logistic regression have the same class.
    #[error("all rows have the same value of t; give rows of both classes")]
    OneClass,

    /// Neighbours were asked for with reduced precision.
    #[error("neighbours are exact, so they need full precision; leave the precision out")]
    Inexact,

    /// A table has no rows.
    #[error("there are no rows; give a table that has some")]
    NoRows,

    /// The eigenvalues of a matrix were not found.
    #[error("the eigenvalues were not found; look for infinities or NaN in the table")]
    NoEigenvalues,
}

impl MatrixError {
    /// Returns the error of an argument that has another shape.
    #[cfg(feature = "matrices")]
    pub(crate) fn shape<L: ToString>(name: &'static str, shape: &[u64], expected: &[L]) -> MatrixError {
        let expected = expected.iter().map(L::to_string).collect();
        MatrixError::Shape { name, shape: shape.to_vec(), expected }
    }
}

/// Returns a shape as Python writes it.
fn in_words(shape: &[impl ToString]) -> String {
    let lengths: Vec<String> = shape.iter().map(ToString::to_string).collect();
    format!("({}{})", lengths.join(", "), if shape.len() == 1 { "," } else { "" })
}
