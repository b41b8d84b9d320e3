//! Errors of partials.

/// Why a partial cannot be read, merged or finished.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PartialError {
    /// Two partials are of different jobs.
    #[error("the partials are of different jobs: they differ in {difference}; merge partials of one job only")]
    #[non_exhaustive]
    OtherJob {
        /// What differs, with both values.
        difference: String,
    },

    /// Two partials have some of the same rows.
    #[error("both partials have the rows {start} to {end}; leave one of them out")]
    #[non_exhaustive]
    Twice {
        /// The first of these rows.
        start: u64,
        /// The row behind the last of these rows.
        end: u64,
    },

    /// Two partials wrote different files of an output.
    #[error(
        "the partials wrote different files of the output '{output}', one of which was removed in between; run all \
         parts again"
    )]
    #[non_exhaustive]
    OtherFile {
        /// The name of the output.
        output: String,
    },

    /// Some rows are in no partial.
    #[error("the rows {start} to {end} of {rows} are in none of the partials; run them, too")]
    #[non_exhaustive]
    Incomplete {
        /// The first of these rows.
        start: u64,
        /// The row behind the last of these rows.
        end: u64,
        /// The rows of the job.
        rows: u64,
    },

    /// An output that is not a file is to have a checksum.
    #[error("the output '{output}' is no file and cannot be read for a checksum: write to a file, or set none")]
    #[non_exhaustive]
    Checksum {
        /// The name of the output.
        output: String,
    },

    /// Bytes are not those of a partial.
    #[error("these are not the bytes of a partial; check the file")]
    NoPartial,

    /// A partial has another version of the format.
    #[error("the partial has version {version} of its format, and this is version {own}; run these rows again")]
    #[non_exhaustive]
    Version {
        /// The version of the partial.
        version: u32,
        /// The version that this Overshot reads.
        own: u32,
    },

    /// The bytes of a partial changed after they were made.
    #[error("the partial is damaged; run these rows again")]
    Damaged,
}
