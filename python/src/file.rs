//! Files as inputs and outputs.

use std::ffi::OsString;
use std::path::PathBuf;

use overshot::io::{self, Codec, NamedFile, ReadMode};
use overshot::{Dtype, Input, Output};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::dtype;
use crate::error::exception;
use crate::watch::left_alone;

/// A file to be read: `.npy`, or raw rows of a dtype. Or several: those of a folder or of a pattern. Each job opens
/// them anew.
#[pyclass(frozen, module = "overshot")]
pub(crate) struct File {
    path: PathBuf,
    read: Read,
    given: Option<Dtype>,
    given_shape: Option<Vec<u64>>,
    /// The field of its records that is read, or several.
    #[pyo3(get)]
    field: Option<Field>,
    /// The array that is read of an archive.
    #[pyo3(get)]
    member: Option<String>,
    /// The value that is read in the place of nulls.
    #[pyo3(get)]
    nulls: Option<String>,
    /// Whether timestamps are read as integers.
    #[pyo3(get)]
    timestamps: bool,
    dtype: Dtype,
    shape: Vec<u64>,
}

/// The arguments of `File`.
type FileArguments = (
    OsString,
    Option<&'static str>,
    &'static str,
    Option<Field>,
    Option<String>,
    Option<String>,
    Option<Vec<u64>>,
    bool,
);

/// A field or a column by its name, or several, which are read side by side.
#[derive(Clone, FromPyObject, IntoPyObject, IntoPyObjectRef)]
enum Field {
    One(String),
    Several(Vec<String>),
}

/// How a file is read.
#[derive(Clone, Copy)]
enum Read {
    Map,
    With(ReadMode),
}

/// Parses a dtype of Overshot or NumPy, as `f32`, `float32`, or `numpy.float32`.
fn parse_dtype(name: Option<&str>) -> PyResult<Option<Dtype>> {
    name.map(dtype::of_name).transpose()
}

#[pymethods]
impl File {
    #[new]
    #[pyo3(signature = (
        path, dtype=None, read="map", field=None, member=None, nulls=None, shape=None, timestamps=false
    ))]
    #[allow(clippy::too_many_arguments, reason = "Python passes them one by one")]
    fn new(
        path: PathBuf,
        dtype: Option<&str>,
        read: &str,
        field: Option<Field>,
        member: Option<String>,
        nulls: Option<String>,
        shape: Option<Vec<u64>>,
        timestamps: bool,
    ) -> PyResult<Self> {
        let given_shape = shape;
        let given = parse_dtype(dtype)?;
        let read = match read {
            "map" => Read::Map,
            "pread" => Read::With(ReadMode::Pread),
            "direct" => Read::With(ReadMode::Direct),
            other => return Err(PyValueError::new_err(format!("read='{other}' is not 'map', 'pread' or 'direct'"))),
        };
        let (dtype, shape) = (Dtype::U8, vec![]);
        let mut file = File { dtype, shape, path, read, given, given_shape, field, member, nulls, timestamps };
        let input = file.input()?;
        let source = input.source();
        file.shape = source.shape().map_or_else(|| vec![source.rows()], <[u64]>::to_vec);
        file.dtype = source.dtype();
        Ok(file)
    }

    /// The path, or the URL.
    #[getter]
    fn path<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        // A `Path` of Python has one slash where a URL has two.
        match io::is_url(&self.path) {
            true => Ok(self.path.as_os_str().into_pyobject(py)?.into_any()),
            false => Ok(self.path.as_path().into_pyobject(py)?.into_any()),
        }
    }

    /// The dtype, as a scalar type of NumPy.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        dtype::numpy_type(py, self.dtype)
    }

    /// The lengths of the dimensions.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, pyo3::types::PyTuple>> {
        pyo3::types::PyTuple::new(py, &self.shape)
    }

    fn __getnewargs__(&self) -> FileArguments {
        let read = match self.read {
            Read::Map => "map",
            Read::With(ReadMode::Direct) => "direct",
            Read::With(_) => "pread",
        };
        let File { path, given, given_shape, field, member, nulls, timestamps, .. } = self;
        let (path, given, shape) = (path.clone().into(), given.map(dtype::numpy_name), given_shape.clone());
        (path, given, read, field.clone(), member.clone(), nulls.clone(), shape, *timestamps)
    }

    fn __repr__(&self) -> String {
        format!("<overshot.File {:?}: {:?} of {}>", self.path, self.shape, dtype::numpy_name(self.dtype))
    }
}

impl File {
    /// Opens the file as an input.
    pub(crate) fn input(&self) -> PyResult<Input<'static>> {
        let File { path, given: dtype, given_shape, field, member, nulls, timestamps, .. } = self;
        let (shape, member, nulls) = (given_shape.clone(), member.clone(), nulls.clone());
        let (dtype, timestamps) = (*dtype, *timestamps);
        let (field, columns) = match field.clone() {
            Some(Field::Several(names)) => (None, Some(names)),
            Some(Field::One(name)) => (Some(name), None),
            None => (None, None),
        };
        let file = NamedFile { dtype, shape, field, columns, member, nulls, timestamps, ..NamedFile::from(&**path) };
        let (read, is_url) = (self.read, io::is_url(path));
        let open = move || match read {
            // SAFETY: as with the command and `numpy.memmap`, the documentation asks users not to write to or shorten a
            // file during a run. Only the library can leave this to the compiler.
            Read::Map => unsafe { file.map() },
            Read::With(mode) => file.open(mode),
        };
        // Other threads of Python run meanwhile. A server may take long to answer.
        Python::attach(|py| if is_url { left_alone(py, open) } else { Ok(py.detach(open)) })?.map_err(exception)
    }
}

/// A file to be written: `.npy`, a column of an Arrow or Parquet file, an array of a Zarr store, or raw rows.
#[pyclass(frozen, module = "overshot")]
pub(crate) struct NewFile {
    /// The path.
    #[pyo3(get)]
    path: PathBuf,
    dtype: Option<Dtype>,
    force: bool,
    fsync: bool,
    codec: Option<Codec>,
    chunks: Option<Vec<u64>>,
    shards: Option<Vec<u64>>,
    dimensions: Option<Vec<String>>,
}

#[pymethods]
impl NewFile {
    #[new]
    #[pyo3(signature = (path, dtype=None, force=false, fsync=false, codec=None, chunks=None, shards=None,
        dimensions=None))]
    #[allow(clippy::too_many_arguments, reason = "those of `ov.create`")]
    fn new(
        path: PathBuf,
        dtype: Option<&str>,
        force: bool,
        fsync: bool,
        codec: Option<&str>,
        chunks: Option<Vec<u64>>,
        shards: Option<Vec<u64>>,
        dimensions: Option<Vec<String>>,
    ) -> PyResult<Self> {
        let codec = codec.map(str::parse).transpose().map_err(exception)?;
        Ok(NewFile { path, dtype: parse_dtype(dtype)?, force, fsync, codec, chunks, shards, dimensions })
    }

    /// Whether the values are encoded, so that they cannot be mapped.
    #[getter]
    fn is_encoded(&self) -> PyResult<bool> {
        Ok(io::create(&self.path, self.dtype).map_err(exception)?.is_encoded())
    }

    /// The path of the journal of a run whose first output this is.
    #[getter]
    fn journal(&self) -> PathBuf {
        overshot::Journal::beside(&self.path).path().into()
    }

    #[allow(clippy::type_complexity, reason = "the arguments of `new`")]
    fn __getnewargs__(
        &self,
    ) -> (
        PathBuf,
        Option<&'static str>,
        bool,
        bool,
        Option<String>,
        Option<Vec<u64>>,
        Option<Vec<u64>>,
        Option<Vec<String>>,
    ) {
        let NewFile { path, dtype, force, fsync, codec, chunks, shards, dimensions } = self;
        let codec = codec.map(|codec| codec.to_string());
        let dtype = dtype.map(dtype::numpy_name);
        (path.clone(), dtype, *force, *fsync, codec, chunks.clone(), shards.clone(), dimensions.clone())
    }

    fn __repr__(&self) -> String {
        format!("<overshot.NewFile {:?}>", self.path)
    }
}

impl NewFile {
    pub(crate) fn output(&self) -> PyResult<Output<'static>> {
        let mut file = io::create(&self.path, self.dtype).map_err(exception)?.force(self.force).fsync(self.fsync);
        if let Some(codec) = self.codec {
            file = file.codec(codec);
        }
        if let Some(chunks) = &self.chunks {
            file = file.chunks(chunks);
        }
        if let Some(shards) = &self.shards {
            file = file.shards(shards);
        }
        if let Some(names) = &self.dimensions {
            file = file.dimensions(names);
        }
        Ok(file.into())
    }
}
