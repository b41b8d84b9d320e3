//! Reads and writes the header of a `.npy` file:
//! <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>

use super::fields::Record;
use super::literal::{self, Literal};
use crate::data::Dtype;
use std::borrow::Cow;

/// The longest header that is read, in bytes from the start of the file. NumPy's header of a plain array takes 128
/// bytes, so this only limits how much of a broken file is read.
pub(super) const MAX_LEN: u64 = 1 << 16;

/// The maximum number of dimensions in NumPy.
const MAX_DIMENSIONS: usize = 64;

const MAGIC: &[u8] = b"\x93NUMPY";

/// Rows start at a multiple of this, so that they are aligned in a map of the file.
const ALIGN: usize = 64;

/// The problem of a file, and the remedy.
pub(in crate::data) type Refusal = (String, &'static str);

/// The content of a header.
#[derive(Debug, PartialEq)]
pub struct Header {
    /// The dtype of the elements.
    pub dtype: Dtype,
    /// Whether the byte order differs from the machine's.
    pub swapped: bool,
    /// The lengths of the dimensions, outermost first.
    pub shape: Vec<u64>,
    /// Whether the elements of the first dimension are adjacent, and not those of the last one.
    pub fortran: bool,
    /// The product of the shape.
    pub rows: u64,
    /// The offset of the rows, in bytes from the start of the file. The end of the rows fits an `i64`.
    pub offset: u64,
    /// Bytes from an element to the next one: more than its size if it is a field of a record.
    pub stride: u64,
    /// The place of the element in its record, in bytes.
    pub in_record: u64,
}

impl Header {
    /// Parses a header from `head`, the first 64 KiB of a file or all of a shorter one.
    ///
    /// # Errors
    /// Returns the problem of the file and the remedy.
    pub fn parse(head: &[u8]) -> Result<Self, Refusal> {
        Header::of(head, |descr| {
            let (dtype, swapped) = dtype(descr)?;
            Ok((dtype, swapped, dtype.size() as u64, 0))
        })
    }

    /// Parses the header of a structured array, of which one field is read.
    ///
    /// # Errors
    /// Returns the problem of the file and the remedy.
    pub fn parse_field(head: &[u8], name: &str) -> Result<Self, Refusal> {
        Header::of(head, |descr| {
            let Literal::List(items) = descr else {
                let problem = format!("holds no records, so that it has no field '{name}'");
                return Err((problem, "leave the field out"));
            };
            let record = Record::parse(items)?;
            let (dtype, swapped, place) = record.field(name)?;
            Ok((dtype, swapped, record.bytes, place))
        })
    }

    /// Parses a header. `element` returns the dtype of the elements, whether they are swapped, and their stride and
    /// place.
    fn of(
        head: &[u8],
        element: impl FnOnce(&Literal<'_>) -> Result<(Dtype, bool, u64, u64), Refusal>,
    ) -> Result<Self, Refusal> {
        let (text, version, offset) = text(head)?;
        let garbage = |reason: String| (format!("not a valid .npy header: {reason}"), "save it again with numpy.save");
        let Literal::Dict(entries) = literal::parse(&text, version < 3).map_err(garbage)? else {
            return Err(garbage("it is not a dict".into()));
        };
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        for (key, value) in entries {
            let seen = match (key, value) {
                ("descr", value) => descr.replace(value).is_some(),
                ("fortran_order", Literal::Bool(value)) => fortran.replace(value).is_some(),
                ("shape", Literal::Tuple(lengths)) => shape.replace(dimensions(lengths).map_err(garbage)?).is_some(),
                (key, value) => return Err(garbage(format!("unexpected '{key}': {value:?}"))),
            };
            if seen {
                return Err(garbage(format!("'{key}' twice")));
            }
        }
        let (Some(descr), Some(fortran), Some(shape)) = (descr, fortran, shape) else {
            return Err(garbage("'descr', 'fortran_order' or 'shape' is missing".into()));
        };
        let (dtype, swapped, stride, in_record) = element(&descr)?;
        if shape.len() > MAX_DIMENSIONS {
            return Err(garbage(format!("{} dimensions, but NumPy supports at most {MAX_DIMENSIONS}", shape.len())));
        }
        // Like NumPy, which refuses an array without elements, too, if the product of its other lengths is too
        // large.
        let fits = extent(&shape).is_some_and(|extent| {
            let end = extent.checked_mul(stride).and_then(|n| n.checked_add(offset));
            end.is_some_and(|end| i64::try_from(end).is_ok())
        });
        let rows = product(&shape).filter(|_| fits);
        let rows = rows.ok_or_else(|| garbage(format!("the shape {shape:?} is too large")))?;
        Ok(Header { dtype, swapped, shape, fortran, rows, offset, stride, in_record })
    }
}

/// The fields of a `.npy` header as they are written. They are also those of a file that no job can read, for instance
/// because its dtype is not supported.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq)]
pub struct NpyFields {
    /// The major version of the format.
    pub version: u8,
    /// The dtype, such as `<f8`; `None` for structured dtypes.
    pub descr: Option<String>,
    /// The records of a structured dtype whose fields have places.
    pub record: Option<Record>,
    /// Whether columns come before rows.
    pub fortran_order: Option<bool>,
}

impl NpyFields {
    /// The most bytes of a file that [`parse`](NpyFields::parse) needs.
    pub const MAX_LEN: u64 = MAX_LEN;

    /// Parses the start of a file. `None` unless it is a `.npy` file with a valid header.
    pub fn parse(head: &[u8]) -> Option<NpyFields> {
        let (text, version, _) = text(head).ok()?;
        let Ok(Literal::Dict(entries)) = literal::parse(&text, version < 3) else { return None };
        let mut fields = NpyFields { version, descr: None, record: None, fortran_order: None };
        for entry in entries {
            match entry {
                ("descr", Literal::Text(descr)) => fields.descr = Some(descr.into()),
                ("descr", Literal::List(items)) => fields.record = Record::parse(&items).ok(),
                ("fortran_order", Literal::Bool(value)) => fields.fortran_order = Some(value),
                _ => {}
            }
        }
        Some(fields)
    }
}

/// Returns the dict of a header as text, the version of the format, and the offset of the rows.
fn text(head: &[u8]) -> Result<(Cow<'_, str>, u8, u64), Refusal> {
    if head.starts_with(b"PK\x03\x04") {
        return Err(("is a .npz archive, not a .npy file".into(), "save each array separately with numpy.save"));
    }
    let Some(rest) = head.strip_prefix(MAGIC) else {
        return Err(("is not a .npy file".into(), "save it with numpy.save, or name a raw file and its dtype"));
    };
    let truncated = || (format!("its header ends early, after {} bytes", head.len()), "copy or save it again");
    let (version, rest) = rest.split_first_chunk::<2>().ok_or_else(truncated)?;
    let (len, rest) = match version {
        [1, 0] => {
            let (len, rest) = rest.split_first_chunk::<2>().ok_or_else(truncated)?;
            (u16::from_le_bytes(*len).into(), rest)
        }
        [2 | 3, 0] => {
            let (len, rest) = rest.split_first_chunk::<4>().ok_or_else(truncated)?;
            (u32::from_le_bytes(*len), rest)
        }
        [major, minor] => {
            let problem = format!("has version {major}.{minor} of .npy, which is not supported");
            return Err((problem, "save it with numpy.save, which writes version 1"));
        }
    };
    let start = (head.len() - rest.len()) as u64;
    let offset = start + u64::from(len);
    if offset > MAX_LEN {
        let problem = format!("its header is {len} bytes long, too long for a plain array");
        return Err((problem, "save it again as a plain array"));
    }
    // The length is at most `MAX_LEN`, so it fits a `usize`.
    let bytes = rest.get(..len as usize).ok_or_else(truncated)?;
    // Versions 1 and 2 are in Latin-1, version 3 in UTF-8. Only names of fields contain characters beyond ASCII.
    if version[0] < 3 && !bytes.is_ascii() {
        return Ok((bytes.iter().map(|byte| char::from(*byte)).collect(), version[0], offset));
    }
    match str::from_utf8(bytes) {
        Ok(text) => Ok((text.into(), version[0], offset)),
        Err(_) => Err(("its header is not text".into(), "save it again as a plain array with numpy.save")),
    }
}

fn dimensions(lengths: Vec<Literal<'_>>) -> Result<Vec<u64>, String> {
    let length = |literal| match literal {
        Literal::Integer(length) => Ok(length),
        other => Err(format!("{other:?} in 'shape'")),
    };
    lengths.into_iter().map(length).collect()
}

/// Returns the number of elements, if NumPy supports arrays with these lengths.
fn product(shape: &[u64]) -> Option<u64> {
    extent(shape).map(|extent| if shape.contains(&0) { 0 } else { extent })
}

/// Returns the product of the lengths that are not 0, if it fits.
fn extent(shape: &[u64]) -> Option<u64> {
    shape.iter().filter(|length| **length > 0).try_fold(1u64, |product, &length| product.checked_mul(length))
}

/// Returns the dtype that a `descr` names, and whether its byte order differs from the machine's.
pub(super) fn dtype(descr: &Literal<'_>) -> Result<(Dtype, bool), Refusal> {
    let name = match descr {
        Literal::Text(name) => *name,
        Literal::List(_) | Literal::Tuple(_) => {
            let problem = "holds records of several fields (a structured dtype)";
            return Err((problem.into(), "read one of its fields: t.price is the field 'price' of t"));
        }
        other => {
            return Err((format!("not a valid .npy header: 'descr' is {other:?}"), "save it again with numpy.save"));
        }
    };
    let (swapped, kind) = match name.as_bytes().first() {
        Some(b'<') => (cfg!(target_endian = "big"), &name[1..]),
        Some(b'>') => (cfg!(target_endian = "little"), &name[1..]),
        Some(b'|') => (false, &name[1..]),
        _ => (false, name),
    };
    let dtype = match kind {
        "b1" => Dtype::Bool,
        "i1" => Dtype::I8,
        "i2" => Dtype::I16,
        "i4" => Dtype::I32,
        "i8" => Dtype::I64,
        "u1" => Dtype::U8,
        "u2" => Dtype::U16,
        "u4" => Dtype::U32,
        "u8" => Dtype::U64,
        "f2" => Dtype::F16,
        "f4" => Dtype::F32,
        "f8" => Dtype::F64,
        _ => return Err(no_dtype(name, kind)),
    };
    // Elements of one byte have no byte order; longer ones need one.
    match name.len() - kind.len() {
        1 if !(name.starts_with('|') && dtype.size() > 1) => Ok((dtype, swapped && dtype.size() > 1)),
        _ => Err((format!("its dtype '{name}' has no byte order"), "save it again with numpy.save")),
    }
}

/// Returns why a dtype is refused.
fn no_dtype(name: &str, kind: &str) -> Refusal {
    let (what, remedy) = match kind.as_bytes().first() {
        Some(b'O') => ("Python objects", "save numbers, as in numpy.save(path, array.astype('f8'))"),
        Some(b'c') => ("complex numbers", "save array.real and array.imag separately"),
        Some(b'f') if ["f12", "f16"].contains(&kind) => ("long double floats", "save array.astype('f8')"),
        Some(b'M' | b'm') => ("dates or times", "save array.view('i8')"),
        Some(b'S' | b'U' | b'a') => ("text", "save numbers"),
        Some(b'V') if kind == "V2" => {
            ("plain bytes, as NumPy writes bfloat16", "name a raw file x.bf16, from array.tofile('x.bf16')")
        }
        Some(b'V') => ("plain bytes", "save array.view('u1')"),
        _ => ("an unknown dtype", "save it again with numpy.save"),
    };
    (format!("holds {what} ('{name}'), which is not supported"), remedy)
}

/// Returns the header that NumPy writes for an array of `rows` elements. The array has this `shape`, or one
/// dimension if there is no shape or its product differs from `rows`.
#[allow(clippy::missing_panics_doc, reason = "the text of a shape is short enough")]
pub fn header(dtype: Dtype, rows: u64, shape: Option<&[u64]>) -> Vec<u8> {
    let fits = |shape: &&[u64]| product(shape) == Some(rows) && shape.len() <= MAX_DIMENSIONS;
    let shape = shape.filter(fits).unwrap_or(std::slice::from_ref(&rows));
    let order = match dtype.size() {
        1 => '|',
        _ if cfg!(target_endian = "big") => '>',
        _ => '<',
    };
    let kind = match dtype {
        Dtype::Bool => 'b',
        _ if dtype.is_float() => 'f',
        _ if dtype.is_signed() => 'i',
        _ => 'u',
    };
    let lengths = match shape {
        [length] => format!("{length},"),
        _ => shape.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
    };
    let size = dtype.size();
    let mut text = format!("{{'descr': '{order}{kind}{size}', 'fortran_order': False, 'shape': ({lengths}), }}");
    // NumPy leaves room for the first dimension to grow to 21 digits without moving the rows.
    if let Some(first) = shape.first() {
        text.extend(std::iter::repeat_n(' ', 21 - first.to_string().len()));
    }
    // Version 1: magic, version, two bytes of length. Like NumPy, this pads by a whole `ALIGN` if no padding is
    // needed.
    let before = MAGIC.len() + 4;
    let padding = ALIGN - (before + text.len() + 1) % ALIGN;
    text.extend(std::iter::repeat_n(' ', padding));
    text.push('\n');
    let len = u16::try_from(text.len()).expect("64 dimensions of 20 digits fit 64 KiB");
    [MAGIC, &[1, 0], &len.to_le_bytes(), text.as_bytes()].concat()
}
