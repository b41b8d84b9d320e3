//! A file of any format that can be read.

#[cfg(feature = "arrow")]
use super::Arrow;
#[cfg(feature = "parquet")]
use super::Parquet;
#[cfg(feature = "zarr")]
use super::Zarr;
use super::{Input, Npy, Raw, Source};

/// A file, or a column of a file.
#[derive(Debug)]
pub(super) enum Dataset {
    Npy(Npy),
    Raw(Raw),
    #[cfg(feature = "arrow")]
    Arrow(Box<Arrow>),
    #[cfg(feature = "parquet")]
    Parquet(Box<Parquet>),
    #[cfg(feature = "zarr")]
    Zarr(Box<Zarr>),
}

impl Dataset {
    pub(super) fn source(&self) -> &dyn Source {
        match self {
            Dataset::Npy(npy) => npy,
            Dataset::Raw(raw) => raw,
            #[cfg(feature = "arrow")]
            Dataset::Arrow(column) => &**column,
            #[cfg(feature = "parquet")]
            Dataset::Parquet(column) => &**column,
            #[cfg(feature = "zarr")]
            Dataset::Zarr(array) => &**array,
        }
    }

    /// Returns the column of a table or the array of a group that is read.
    pub(super) fn column(&self) -> Option<&str> {
        match self {
            Dataset::Npy(_) | Dataset::Raw(_) => None,
            #[cfg(feature = "arrow")]
            Dataset::Arrow(column) => Some(&column.meta().name),
            #[cfg(feature = "parquet")]
            Dataset::Parquet(column) => Some(&column.meta().name),
            #[cfg(feature = "zarr")]
            Dataset::Zarr(array) => array.name_in_group(),
        }
    }

    /// Returns what the rows are, for messages: a dtype, or timestamps with their unit.
    pub(super) fn holds(&self) -> String {
        match self {
            #[cfg(feature = "arrow")]
            Dataset::Arrow(column) => column.meta().holds(),
            #[cfg(feature = "parquet")]
            Dataset::Parquet(column) => column.meta().holds(),
            _ => self.source().dtype().to_string(),
        }
    }

    pub(super) fn input(self) -> Input<'static> {
        match self {
            Dataset::Npy(npy) => npy.into(),
            Dataset::Raw(raw) => raw.into(),
            #[cfg(feature = "arrow")]
            Dataset::Arrow(column) => (*column).into(),
            #[cfg(feature = "parquet")]
            Dataset::Parquet(column) => (*column).into(),
            #[cfg(feature = "zarr")]
            Dataset::Zarr(array) => (*array).into(),
        }
    }

    /// Returns the file, to be used in place if its rows are stored as they are used.
    ///
    /// # Safety
    /// The contract of [`Npy::map`].
    pub(super) unsafe fn mapped(self) -> Dataset {
        match self {
            // SAFETY: the caller upholds the same contract.
            Dataset::Npy(npy) => Dataset::Npy(unsafe { npy.mapped() }),
            // SAFETY: as above.
            Dataset::Raw(raw) => Dataset::Raw(unsafe { raw.mapped() }),
            #[cfg(feature = "arrow")]
            // SAFETY: as above.
            Dataset::Arrow(column) => Dataset::Arrow(unsafe { column.mapped() }.into()),
            #[cfg(feature = "parquet")]
            column @ Dataset::Parquet(_) => column,
            #[cfg(feature = "zarr")]
            array @ Dataset::Zarr(_) => array,
        }
    }

    /// Forgets what was read before it is needed: other files are read now.
    pub(super) fn forget(&self) {
        match self {
            Dataset::Npy(npy) => npy.forget(),
            Dataset::Raw(raw) => raw.rows.forget(),
            #[cfg(feature = "arrow")]
            Dataset::Arrow(column) => column.forget(),
            #[cfg(feature = "parquet")]
            Dataset::Parquet(column) => column.forget(),
            // Nothing is left of chunks that have been read.
            #[cfg(feature = "zarr")]
            Dataset::Zarr(_) => {}
        }
    }

    /// Returns the size in bytes of the part of the file that is read.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Dataset::Npy(npy) => npy.bytes(),
            Dataset::Raw(raw) => raw.rows.bytes(),
            #[cfg(feature = "arrow")]
            Dataset::Arrow(column) => column.bytes(),
            #[cfg(feature = "parquet")]
            Dataset::Parquet(column) => column.bytes(),
            #[cfg(feature = "zarr")]
            Dataset::Zarr(array) => array.bytes(),
        }
    }

    /// Reads the rows as some of a dataset of this many bytes, which may be too large for the page cache.
    pub(super) fn among(self, bytes: u64) -> Dataset {
        match self {
            Dataset::Npy(npy) => Dataset::Npy(npy.among(bytes)),
            Dataset::Raw(raw) => Dataset::Raw(raw.among(bytes)),
            #[cfg(feature = "arrow")]
            Dataset::Arrow(column) => Dataset::Arrow(column.among(bytes).into()),
            #[cfg(feature = "parquet")]
            column @ Dataset::Parquet(_) => column,
            #[cfg(feature = "zarr")]
            array @ Dataset::Zarr(_) => array,
        }
    }
}
