//! The fields of a structured dtype.

use super::header::{Refusal, dtype};
use super::literal::Literal;
use crate::data::Dtype;

/// A record: what an element of a structured dtype is.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The size of a record in bytes.
    pub bytes: u64,
    /// The fields in the order of their places, without those that only fill space.
    pub fields: Vec<Field>,
}

/// A field of a record.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// The name.
    pub name: String,
    /// The dtype as NumPy writes it, such as `<f8`; `None` for a field that has fields itself.
    pub descr: Option<String>,
    /// The place in the record, in bytes.
    pub offset: u64,
    /// The dtype, and whether its byte order differs from the machine's; or why the field cannot be read.
    pub dtype: Result<(Dtype, bool), Refusal>,
}

const SEPARATELY: &str = "save the field separately, as in numpy.save(path, array['field'])";

impl Record {
    /// Parses the list that stands for a structured dtype.
    ///
    /// # Errors
    /// Returns the problem of the file and the remedy.
    pub(super) fn parse(items: &[Literal<'_>]) -> Result<Record, Refusal> {
        let garbage = |what: &Literal<'_>| {
            (format!("not a valid .npy header: a field is {what:?}"), "save it again with numpy.save")
        };
        let too_large = || ("its records are too large".to_owned(), SEPARATELY);
        let (mut offset, mut fields) = (0u64, Vec::new());
        for item in items {
            let Literal::Tuple(parts) = item else { return Err(garbage(item)) };
            let (name, kind, shape) = match &parts[..] {
                [name, kind] => (name, kind, None),
                [name, kind, Literal::Tuple(shape)] => (name, kind, Some(shape)),
                _ => return Err(garbage(item)),
            };
            // A field may have a title before its name.
            let name = match name {
                Literal::Text(name) => *name,
                Literal::Tuple(names) => match names[..] {
                    [_, Literal::Text(name)] => name,
                    _ => return Err(garbage(item)),
                },
                _ => return Err(garbage(item)),
            };
            let (one, own, descr) = match kind {
                Literal::Text(text) => (size(text)?, dtype(kind), Some((*text).to_owned())),
                Literal::List(inner) => {
                    let refused = ("has fields itself (a nested dtype), which is not supported".into(), SEPARATELY);
                    (Record::parse(inner)?.bytes, Err(refused), None)
                }
                _ => return Err(garbage(item)),
            };
            let (mut bytes, mut dtype) = (one, own);
            for length in shape.into_iter().flatten() {
                let Literal::Integer(length) = length else { return Err(garbage(item)) };
                bytes = bytes.checked_mul(*length).ok_or_else(too_large)?;
            }
            if shape.is_some() {
                dtype = Err(("is an array in each record (a sub-array), which is not supported".into(), SEPARATELY));
            }
            // Names are unique, and those of bytes that fill space are empty.
            if !name.is_empty() {
                fields.push(Field { name: name.to_owned(), descr, offset, dtype });
            }
            offset = offset.checked_add(bytes).filter(|end| i64::try_from(*end).is_ok()).ok_or_else(too_large)?;
        }
        match offset {
            0 => Err(("its records are empty".into(), "save it again with fields")),
            bytes => Ok(Record { bytes, fields }),
        }
    }

    /// Returns the dtype, byte order and place of a field.
    ///
    /// # Errors
    /// Returns the problem of the file and the remedy.
    pub(super) fn field(&self, name: &str) -> Result<(Dtype, bool, u64), Refusal> {
        let Some(field) = self.fields.iter().find(|field| field.name == name) else {
            let names: Vec<&str> = self.fields.iter().map(|field| field.name.as_str()).collect();
            return Err((format!("has no field '{name}', only {}", names.join(", ")), "check the name"));
        };
        match &field.dtype {
            Ok((dtype, swapped)) => Ok((*dtype, *swapped, field.offset)),
            Err((problem, remedy)) => Err((format!("its field '{name}' {problem}"), remedy)),
        }
    }
}

/// Returns the size in bytes of an element of a dtype that need not be supported.
fn size(descr: &str) -> Result<u64, Refusal> {
    let unknown = || (format!("a field is of an unknown dtype ('{descr}')"), "save each field separately");
    let kind = descr.trim_start_matches(['<', '>', '|', '=']);
    // NumPy stores the records of such a file in another way, as a pickle.
    if kind.starts_with('O') {
        return Err(("holds Python objects in a field, which is not supported".into(), "save the other fields alone"));
    }
    let code = kind.chars().next().filter(char::is_ascii_alphabetic).ok_or_else(unknown)?;
    let digits: &str = kind[1..].split('[').next().unwrap_or_default();
    let count: u64 = digits.parse().map_err(|_| unknown())?;
    let unit = if code == 'U' { 4 } else { 1 };
    count.checked_mul(unit).ok_or_else(unknown)
}
