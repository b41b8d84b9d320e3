//! Values of arguments.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use bytesize::ByteSize;
use clap::builder::{OsStringValueParser, TypedValueParser};
use overshot::NamedFile;

/// A file for a name of the expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Binding {
    pub name: String,
    pub file: NamedFile,
}

/// `NAME=PATH[:DTYPE[!]]`.
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
    let file = parse_file(path)?;
    Ok(Binding { name: name.into(), file })
}

/// `PATH[:DTYPE]`.
pub fn file() -> impl TypedValueParser<Value = NamedFile> {
    OsStringValueParser::new().try_map(|text| parse_file(text.as_bytes()))
}

fn parse_file(text: &[u8]) -> Result<NamedFile, String> {
    let file = NamedFile::parse(OsStr::from_bytes(text)).map_err(|error| error.to_string())?;
    if file.path.as_os_str().is_empty() {
        return Err("the path is missing".into());
    }
    Ok(file)
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
    use overshot::Dtype;

    #[test]
    fn a_name_and_a_file() {
        let Binding { name, file } = parse_binding(OsStr::new("x=a=b.npy:f32")).unwrap();
        assert_eq!((name.as_str(), file.path.to_str(), file.dtype), ("x", Some("a=b.npy"), Some(Dtype::F32)));
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
