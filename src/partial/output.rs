//! The outputs of a job in parts: what identifies them, and how they get their names.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Partial;
use crate::data::{Dtype, FileFormat, FileLayout, Kept, Mark, SharedFile, Stamp, shorten};

/// A path, which need not be text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum PathText {
    Text(String),
    Bytes(Vec<u8>),
}

impl From<&Path> for PathText {
    fn from(path: &Path) -> Self {
        match path.to_str() {
            Some(text) => PathText::Text(text.into()),
            None => PathText::Bytes(path.as_os_str().as_bytes().into()),
        }
    }
}

impl PathText {
    pub(crate) fn path(&self) -> PathBuf {
        match self {
            PathText::Text(text) => text.into(),
            PathText::Bytes(bytes) => OsStr::from_bytes(bytes).into(),
        }
    }
}

/// What identifies an output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct OutputId {
    pub(crate) name: String,
    dtype: String,
    /// Elements of a row.
    pub(super) elements: u64,
    /// The dimensions that the file records, if there are several.
    shape: Option<Vec<u64>>,
    pub(super) file: Option<OutputFile>,
}

/// The file of an output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct OutputFile {
    /// Its absolute path, without links.
    pub(super) target: PathText,
    format: String,
    pub(super) force: bool,
}

impl OutputFile {
    pub(crate) fn new(target: &Path, format: FileFormat, force: bool) -> Self {
        OutputFile { target: target.into(), format: format.name().into(), force }
    }
}

impl OutputId {
    /// Identifies an output of `elements` elements a row; `file` is its file, if it is one.
    pub(crate) fn new(
        name: &str,
        dtype: Dtype,
        elements: u64,
        shape: Option<&[u64]>,
        file: Option<OutputFile>,
    ) -> Self {
        let (name, dtype, shape) = (name.to_owned(), dtype.to_string(), shape.map(<[u64]>::to_vec));
        OutputId { name, dtype, elements, shape, file }
    }

    /// Returns whether it has the path of this file.
    pub(crate) fn is_file(&self, other: &OutputFile) -> bool {
        self.file.as_ref().is_some_and(|file| file.target == other.target)
    }

    /// Returns the dtype; `None` if there is no such dtype.
    pub(super) fn dtype(&self) -> Option<Dtype> {
        self.dtype.parse().ok()
    }

    /// Returns the lengths of its dimensions if it has so many elements.
    pub(super) fn shape(&self, elements: u64) -> Vec<u64> {
        let mut shape = self.shape.clone().unwrap_or(vec![elements]);
        shorten(&mut shape, elements);
        shape
    }

    /// Returns the file that the processes of this job write; `None` if this is not a file, or makes no sense.
    pub(crate) fn shared_file(&self, rows: u64, job: u128) -> Option<SharedFile> {
        let OutputFile { target, format, force } = self.file.as_ref()?;
        let count = rows.checked_mul(self.elements)?;
        let layout = FileLayout::new(FileFormat::parse(format)?, self.dtype()?, count, self.shape.as_deref());
        let layout = layout.named(&self.name);
        Some(SharedFile::new(target.path(), layout, *force, job))
    }

    /// Returns how another output of the same name differs.
    pub(super) fn difference(&self, other: &OutputId) -> &'static str {
        match (&self.file, &other.file) {
            _ if self.dtype != other.dtype => "its dtype",
            _ if (self.elements, &self.shape) != (other.elements, &other.shape) => "its shape",
            (Some(own), Some(others)) if own.target != others.target => "the path of its file",
            (Some(own), Some(others)) if own.force != others.force => "whether it replaces a file",
            _ => "its file",
        }
    }
}

/// For the job files of the command, which continue runs whose settings they choose.
#[doc(hidden)]
impl Partial {
    /// Returns whether the job replaces a file of one of its outputs.
    pub fn is_forced(&self) -> bool {
        self.job.outputs.iter().filter_map(|output| output.file.as_ref()).any(|file| file.force)
    }

    /// Returns whether the file at a path is an output that a run with this journal has completed and named.
    pub fn has_named(&self, path: &Path) -> bool {
        let (Ok(there), Some(stamps)) = (path.canonicalize(), &self.written.stamps) else { return false };
        let number = self.job.number();
        self.job.outputs.iter().zip(stamps).any(|(output, stamp)| {
            let file = output.shared_file(self.job.rows, number).filter(|file| file.target() == there);
            file.zip(stamp.as_ref()).is_some_and(|(file, stamp)| file.is_named(stamp).unwrap_or(false))
        })
    }
}

/// What the parts have written so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Written {
    /// The marks of the shared files, one for each output that is one.
    pub(crate) marks: Vec<Option<Mark>>,
    /// The rows that a kernel kept, of each part; `None` if the job keeps all rows.
    pub(crate) kept: Option<Vec<Kept>>,
    /// The stamps of the complete files of all outputs that are files, as they get their names; `None` before.
    pub(crate) stamps: Option<Vec<Option<Stamp>>>,
}
