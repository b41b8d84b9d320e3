//! The header of a `.npy` file, as `overshot info` shows it: also of files that no job can read.

use overshot::io::NpyFields;
use serde::Serialize;

#[derive(Debug, PartialEq, Serialize)]
pub struct NpyHeader {
    /// The version of the format, such as `1.0`.
    version: String,
    /// The dtype as NumPy writes it, such as `<f8`.
    descr: Option<String>,
    fortran_order: Option<bool>,
    /// `little`, `big`, or `none` for elements of one byte.
    byte_order: Option<&'static str>,
}

impl NpyHeader {
    /// Reads the header at the start of a file, if it has a valid one.
    pub fn parse(head: &[u8]) -> Option<NpyHeader> {
        let NpyFields { version, descr, fortran_order, .. } = NpyFields::parse(head)?;
        let byte_order = match descr.as_deref().and_then(|descr| descr.chars().next()) {
            Some('<') => Some("little"),
            Some('>') => Some("big"),
            Some('|') => Some("none"),
            _ => None,
        };
        Some(NpyHeader { version: format!("{version}.0"), descr, fortran_order, byte_order })
    }

    /// Describes the header of an array of this shape, if it is known.
    pub fn text(&self, shape: Option<&[u64]>) -> String {
        let NpyHeader { version, descr, fortran_order, byte_order } = self;
        let native = if cfg!(target_endian = "little") { "little" } else { "big" };
        let mut parts = vec![format!(".npy version {version}")];
        parts.extend(descr.as_ref().map(|descr| format!("dtype '{descr}'")));
        parts.extend(fortran_order.map(|fortran| if fortran { "Fortran order" } else { "C order" }.into()));
        parts.extend(byte_order.filter(|order| *order != "none").map(|order| format!("{order}-endian")));
        let dimensions = shape.unwrap_or_default().iter().filter(|length| **length != 1).count();
        let how = match byte_order {
            Some(_) if *fortran_order == Some(true) && dimensions > 1 => "; its rows are gathered as it is read",
            Some(order) if *order == native || *order == "none" => "; can be used in place",
            Some(_) => "; its bytes are swapped as it is read",
            None => "",
        };
        parts.join(", ") + how
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(dict: &str) -> Option<NpyHeader> {
        let length = u16::try_from(dict.len()).unwrap().to_le_bytes();
        NpyHeader::parse(&[b"\x93NUMPY\x01\x00", &length[..], dict.as_bytes(), b"1234"].concat())
    }

    #[test]
    fn a_header_of_numpy_is_shown() {
        let header = parse("{'descr': '>f8', 'fortran_order': True, 'shape': (3, 2), }\n").unwrap();
        assert_eq!((header.descr.as_deref(), header.fortran_order), (Some(">f8"), Some(true)));
        assert_eq!((&*header.version, header.byte_order), ("1.0", Some("big")));
        let gathered = "dtype '>f8', Fortran order, big-endian; its rows are gathered as it is read";
        assert!(header.text(Some(&[3, 2])).ends_with(gathered));
        assert!(header.text(Some(&[3, 1])).ends_with("; its bytes are swapped as it is read"));
        let header = parse("{'descr': '|u1', 'fortran_order': False, 'shape': (3, 2), }\n").unwrap();
        let text = ".npy version 1.0, dtype '|u1', C order; can be used in place";
        assert_eq!(header.text(Some(&[3, 2])), text);
    }

    #[test]
    fn a_structured_dtype_has_no_byte_order() {
        let header = parse("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (3,), }\n").unwrap();
        assert_eq!((&header.descr, header.fortran_order, header.byte_order), (&None, Some(false), None));
        assert_eq!(header.text(Some(&[3])), ".npy version 1.0, C order");
    }

    #[test]
    fn other_bytes_have_no_header() {
        for bytes in [&b""[..], b"\x93NUMP", b"\x93NUMPY", b"\x93NUMPY\x01", b"\x93NUMPY\x02\x00", b"PK\x03\x04"] {
            assert_eq!(NpyHeader::parse(bytes), None);
        }
    }
}
