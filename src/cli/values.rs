//! Values of arguments.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use bytesize::ByteSize;
use clap::builder::{OsStringValueParser, TypedValueParser};
use overshot::Dtype;

/// A file for a name of the expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Binding {
    pub name: String,
    pub path: PathBuf,
    pub dtype: Option<Dtype>,
}

/// `NAME=PATH[:DTYPE]`. Paths are bytes, not text, and may hold colons: only the name of a dtype ends one.
pub fn binding() -> impl TypedValueParser<Value = Binding> {
    OsStringValueParser::new().try_map(|text| parse_binding(&text))
}

fn parse_binding(text: &OsStr) -> Result<Binding, String> {
    let bytes = text.as_bytes();
    let Some(equals) = bytes.iter().position(|byte| *byte == b'=') else {
        return Err("write NAME=PATH, as in a=a.npy".into());
    };
    let (name, path) = (&bytes[..equals], &bytes[equals + 1..]);
    let name = str::from_utf8(name).map_err(|_| "the name is not UTF-8 text")?;
    if name.is_empty() {
        return Err("the name before '=' is missing".into());
    }
    let FileWithDtype { path, dtype } = parse_file(path).ok_or("the path after '=' is missing")?;
    Ok(Binding { name: name.into(), path, dtype })
}

/// A file, and the dtype that its rows are said to have.
#[derive(Clone, Debug, PartialEq)]
pub struct FileWithDtype {
    pub path: PathBuf,
    pub dtype: Option<Dtype>,
}

/// `PATH[:DTYPE]`.
pub fn file() -> impl TypedValueParser<Value = FileWithDtype> {
    OsStringValueParser::new().try_map(|text| parse_file(text.as_bytes()).ok_or("the path is missing"))
}

/// A path may hold colons: only the name of a dtype ends one. `None` if no path is left.
fn parse_file(text: &[u8]) -> Option<FileWithDtype> {
    let (path, dtype) = match text.iter().rposition(|byte| *byte == b':') {
        None => (text, None),
        Some(colon) => match str::from_utf8(&text[colon + 1..]).ok().and_then(Dtype::from_name) {
            None => (text, None),
            dtype => (&text[..colon], dtype),
        },
    };
    (!path.is_empty()).then(|| FileWithDtype { path: OsString::from_vec(path.into()).into(), dtype })
}

/// Bytes, as `64MiB`, `2GB` or a plain number; not 0.
pub fn size(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(ByteSize(0)) => Err("must be more than 0".into()),
        Ok(ByteSize(bytes)) => Ok(bytes),
        Err(_) => Err("write a number of bytes, or a size such as 64MiB or 2GB".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dtype_ends_a_path_and_other_colons_are_its_own() {
        let parse = |text: &str| {
            let Binding { name, path, dtype } = parse_binding(OsStr::new(text)).unwrap();
            (name, path.to_str().unwrap().to_owned(), dtype)
        };
        assert_eq!(parse("x=x.f32:f32"), ("x".into(), "x.f32".into(), Some(Dtype::F32)));
        assert_eq!(parse("x=a:b"), ("x".into(), "a:b".into(), None));
        assert_eq!(parse("x=a:b:i8"), ("x".into(), "a:b".into(), Some(Dtype::I8)));
        assert_eq!(parse("x=a=b.npy"), ("x".into(), "a=b.npy".into(), None));
        for text in ["", "x", "x=", "=x", "x=:f32"] {
            assert!(parse_binding(OsStr::new(text)).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(size("64MiB"), Ok(64 << 20));
        assert_eq!(size("1GB"), Ok(1_000_000_000));
        assert_eq!(size("4096"), Ok(4096));
        for text in ["", "0", "0GiB", "-1", "1.5.2MB", "many", "5 apples"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
