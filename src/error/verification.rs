//! The error of a chunk that was computed again.

/// A byte of a chunk differs from what was computed again ([`Job::verify`](crate::Job::verify)). One of the two is
/// wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} differs from row {row} on: it is {found}, but {again} if it is computed again {by}; {remedy}")]
#[non_exhaustive]
pub struct VerificationError {
    /// The output in quotes, the partial result of a result, or the number of selected rows.
    pub what: String,
    /// The first row that differs, or the first row of the tile whose partial result differs.
    pub row: u64,
    /// What the device has given, with its bits.
    pub found: String,
    /// What was computed again, with its bits.
    pub again: String,
    /// How it was computed again.
    pub by: String,
    /// What to do.
    pub remedy: String,
}
