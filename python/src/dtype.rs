//! Dtypes, numbers and small arrays in Python and in Overshot.

use overshot::{ArrayValue, Dtype, Scalar};
use pyo3::buffer::ElementType;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyTuple};
use std::ffi::CStr;

/// All dtypes, with NumPy's name of each.
const NAMES: [(Dtype, &str); 13] = [
    (Dtype::Bool, "bool_"),
    (Dtype::I8, "int8"),
    (Dtype::I16, "int16"),
    (Dtype::I32, "int32"),
    (Dtype::I64, "int64"),
    (Dtype::U8, "uint8"),
    (Dtype::U16, "uint16"),
    (Dtype::U32, "uint32"),
    (Dtype::U64, "uint64"),
    (Dtype::F16, "float16"),
    (Dtype::Bf16, "bfloat16"),
    (Dtype::F32, "float32"),
    (Dtype::F64, "float64"),
];

/// Returns NumPy's scalar type of a dtype, which is a dtype argument of all its functions. That of `bf16` is in the
/// package ml_dtypes.
pub(crate) fn numpy_type(py: Python<'_>, dtype: Dtype) -> PyResult<Bound<'_, PyAny>> {
    if dtype == Dtype::Bf16 {
        let module = py.import("ml_dtypes").map_err(|error| {
            let problem = "NumPy has no bfloat16 without the package ml_dtypes; install it, or convert to f32(x)";
            let refused = PyTypeError::new_err(problem);
            refused.set_cause(py, Some(error));
            refused
        })?;
        return module.getattr("bfloat16");
    }
    static TYPES: PyOnceLock<Vec<Py<PyAny>>> = PyOnceLock::new();
    let types = TYPES.get_or_try_init(py, || {
        let numpy = py.import("numpy")?;
        let of_numpy = NAMES.iter().filter(|(dtype, _)| *dtype != Dtype::Bf16);
        of_numpy.map(|(_, name)| Ok(numpy.getattr(*name)?.unbind())).collect::<PyResult<_>>()
    })?;
    let mut of_numpy = NAMES.iter().filter(|(dtype, _)| *dtype != Dtype::Bf16);
    let at = of_numpy.position(|(known, _)| *known == dtype).unwrap_or_default();
    Ok(types[at].bind(py).clone())
}

/// Returns whether an object is an array of the `bfloat16` of ml_dtypes.
pub(crate) fn is_bfloat16(object: &Bound<'_, PyAny>) -> bool {
    let name = object.getattr("dtype").and_then(|dtype| dtype.getattr("name")?.extract::<String>());
    name.is_ok_and(|name| name == numpy_name(Dtype::Bf16))
}

/// Returns NumPy's name of a dtype.
pub(crate) fn numpy_name(dtype: Dtype) -> &'static str {
    NAMES.iter().find(|(known, _)| *known == dtype).map_or("", |(_, name)| name.trim_end_matches('_'))
}

/// Returns a number as a scalar of NumPy.
pub(crate) fn to_python<'py>(py: Python<'py>, value: Scalar) -> PyResult<Bound<'py, PyAny>> {
    let numpy_type = numpy_type(py, value.dtype())?;
    match value {
        Scalar::Bool(value) => numpy_type.call1((value,)),
        Scalar::I8(value) => numpy_type.call1((value,)),
        Scalar::I16(value) => numpy_type.call1((value,)),
        Scalar::I32(value) => numpy_type.call1((value,)),
        Scalar::I64(value) => numpy_type.call1((value,)),
        Scalar::U8(value) => numpy_type.call1((value,)),
        Scalar::U16(value) => numpy_type.call1((value,)),
        Scalar::U32(value) => numpy_type.call1((value,)),
        Scalar::U64(value) => numpy_type.call1((value,)),
        Scalar::F32(value) => numpy_type.call1((value,)),
        value => numpy_type.call1((value.as_f64(),)),
    }
}

/// Returns a new array of NumPy with the values of an array.
pub(crate) fn to_array<'py>(py: Python<'py>, array: &ArrayValue) -> PyResult<Bound<'py, PyAny>> {
    let bytes = PyBytes::new(py, array.bytes());
    let flat = py.import("numpy")?.call_method1("frombuffer", (bytes, numpy_type(py, array.dtype())?))?;
    // The bytes of Python cannot be written, and the array of a caller can.
    flat.call_method1("reshape", (PyTuple::new(py, array.shape())?,))?.call_method0("copy")
}

/// Returns the number that an object of Python is, as one of `dtype`.
pub(crate) fn from_python(value: &Bound<'_, PyAny>, dtype: Dtype) -> PyResult<Scalar> {
    Ok(match dtype {
        Dtype::Bool => Scalar::Bool(value.is_truthy()?),
        Dtype::I8 => Scalar::I8(value.extract()?),
        Dtype::I16 => Scalar::I16(value.extract()?),
        Dtype::I32 => Scalar::I32(value.extract()?),
        Dtype::I64 => Scalar::I64(value.extract()?),
        Dtype::U8 => Scalar::U8(value.extract()?),
        Dtype::U16 => Scalar::U16(value.extract()?),
        Dtype::U32 => Scalar::U32(value.extract()?),
        Dtype::U64 => Scalar::U64(value.extract()?),
        Dtype::F16 | Dtype::Bf16 => rounded(value.extract()?, dtype)?,
        Dtype::F32 => Scalar::F32(value.extract()?),
        Dtype::F64 => Scalar::F64(value.extract()?),
        other => return Err(PyTypeError::new_err(format!("no number of Python has the dtype {other}"))),
    })
}

/// Returns the nearest value of a dtype of floats.
fn rounded(value: f64, dtype: Dtype) -> PyResult<Scalar> {
    let problem = || PyTypeError::new_err(format!("{value} is no number of {dtype}"));
    Scalar::parse(&format!("{value:?}"), dtype).ok_or_else(problem)
}

/// Returns the dtype of the elements of a buffer, which has this format and element size.
pub(crate) fn of_buffer(format: &CStr) -> PyResult<Dtype> {
    let text = format.to_string_lossy();
    if text.starts_with(['>', '!']) && cfg!(target_endian = "little") {
        let problem = "its bytes are in big-endian order, which is not that of this machine";
        return Err(PyTypeError::new_err(format!("{problem}; convert it: a.astype(a.dtype.newbyteorder('='))")));
    }
    let dtype = match ElementType::from_format(format) {
        // The character of bytes, which are no numbers.
        _ if text.ends_with('c') => None,
        ElementType::Bool => Some(Dtype::Bool),
        ElementType::SignedInteger { bytes: 1 } => Some(Dtype::I8),
        ElementType::SignedInteger { bytes: 2 } => Some(Dtype::I16),
        ElementType::SignedInteger { bytes: 4 } => Some(Dtype::I32),
        ElementType::SignedInteger { bytes: 8 } => Some(Dtype::I64),
        ElementType::UnsignedInteger { bytes: 1 } => Some(Dtype::U8),
        ElementType::UnsignedInteger { bytes: 2 } => Some(Dtype::U16),
        ElementType::UnsignedInteger { bytes: 4 } => Some(Dtype::U32),
        ElementType::UnsignedInteger { bytes: 8 } => Some(Dtype::U64),
        ElementType::Float { bytes: 2 } => Some(Dtype::F16),
        ElementType::Float { bytes: 4 } => Some(Dtype::F32),
        ElementType::Float { bytes: 8 } => Some(Dtype::F64),
        _ => None,
    };
    dtype.ok_or_else(|| {
        let known = NAMES.map(|(_, name)| name.trim_end_matches('_')).join(", ");
        PyTypeError::new_err(format!("its elements have the format '{text}'; Overshot computes with {known}"))
    })
}

/// Returns the dtype with a code of NumPy's array interface, such as `<f4`.
pub(crate) fn of_typestr(code: &str) -> PyResult<Dtype> {
    if code.starts_with('>') && cfg!(target_endian = "little") {
        return Err(PyTypeError::new_err("its bytes are in big-endian order, which is not that of this machine"));
    }
    let (kind, size) = code.split_at_checked(2).unwrap_or((code, ""));
    let kind = kind.trim_start_matches(['<', '>', '|', '=']);
    let kinds = [("b", DL_BOOL), ("i", DL_INT), ("u", DL_UINT), ("f", DL_FLOAT)];
    let code_of = kinds.iter().find(|(own, _)| *own == kind).map(|(_, code)| *code);
    let dtype = code_of.zip(size.parse::<u8>().ok()).and_then(|(code, size)| of_dlpack(code, size.checked_mul(8)?));
    dtype.ok_or_else(|| {
        let known = NAMES.map(|(_, name)| name.trim_end_matches('_')).join(", ");
        PyTypeError::new_err(format!("its elements have the format '{code}'; Overshot computes with {known}"))
    })
}

const DL_INT: u8 = 0;
const DL_UINT: u8 = 1;
const DL_FLOAT: u8 = 2;
const DL_BFLOAT: u8 = 4;
const DL_BOOL: u8 = 6;

/// Returns the dtype with a type code and a number of bits of DLPack.
pub(crate) fn of_dlpack(code: u8, bits: u8) -> Option<Dtype> {
    Some(match (code, bits) {
        (DL_BOOL, 8) => Dtype::Bool,
        (DL_INT, 8) => Dtype::I8,
        (DL_INT, 16) => Dtype::I16,
        (DL_INT, 32) => Dtype::I32,
        (DL_INT, 64) => Dtype::I64,
        (DL_UINT, 8) => Dtype::U8,
        (DL_UINT, 16) => Dtype::U16,
        (DL_UINT, 32) => Dtype::U32,
        (DL_UINT, 64) => Dtype::U64,
        (DL_FLOAT, 16) => Dtype::F16,
        (DL_BFLOAT, 16) => Dtype::Bf16,
        (DL_FLOAT, 32) => Dtype::F32,
        (DL_FLOAT, 64) => Dtype::F64,
        _ => return None,
    })
}

/// Returns the dtype with a name of NumPy or of Overshot.
pub(crate) fn of_name(name: &str) -> PyResult<Dtype> {
    let own = NAMES.iter().find(|(_, known)| known.trim_end_matches('_') == name).map(|(dtype, _)| *dtype);
    own.map_or_else(|| name.parse().map_err(crate::error::exception), Ok)
}
