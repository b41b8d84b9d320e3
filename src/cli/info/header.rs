//! What the header of a `.npy` file says beside dtype and shape. Also of files that a job cannot read: so it is read here
//! in a simple way, and what is not as NumPy writes it is left out.

use serde::Serialize;

#[derive(Debug, PartialEq, Serialize)]
pub struct NpyHeader {
    /// As `1.0`.
    version: String,
    /// As NumPy writes it: `<f8`.
    descr: Option<String>,
    fortran_order: Option<bool>,
    /// `little`, `big`, or `none` for elements of one byte.
    byte_order: Option<&'static str>,
}

impl NpyHeader {
    /// The header at the start of a file, if it has one.
    pub fn read(head: &[u8]) -> Option<NpyHeader> {
        let rest = head.strip_prefix(b"\x93NUMPY")?;
        let [major, minor, ..] = *rest else { return None };
        // Beyond ASCII there are only names of fields.
        let text = String::from_utf8_lossy(&rest[2..]);
        let text = text.split('\n').next().unwrap_or_default();
        let after = |key: &str| text.split_once(key).map(|(_, value)| value.trim_start());
        let descr = after("'descr':").and_then(|value| value.strip_prefix('\'')?.split_once('\''));
        let descr = descr.map(|(descr, _)| descr.to_owned());
        let fortran_order = after("'fortran_order':").map(|value| value.starts_with("True"));
        let byte_order = match descr.as_deref().and_then(|descr| descr.chars().next()) {
            Some('<') => Some("little"),
            Some('>') => Some("big"),
            Some('|') => Some("none"),
            _ => None,
        };
        Some(NpyHeader { version: format!("{major}.{minor}"), descr, fortran_order, byte_order })
    }

    pub fn text(&self) -> String {
        let NpyHeader { version, descr, fortran_order, byte_order } = self;
        let native = if cfg!(target_endian = "little") { "little" } else { "big" };
        let mut parts = vec![format!(".npy version {version}")];
        parts.extend(descr.as_ref().map(|descr| format!("dtype '{descr}'")));
        parts.extend(fortran_order.map(|fortran| if fortran { "Fortran order" } else { "C order" }.into()));
        parts.extend(byte_order.filter(|order| *order != "none").map(|order| format!("{order}-endian")));
        let how = match byte_order {
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

    fn read(dict: &str) -> Option<NpyHeader> {
        NpyHeader::read(&[b"\x93NUMPY\x01\x00v\x00", dict.as_bytes(), b"\n1234"].concat())
    }

    #[test]
    fn what_numpy_writes_is_read() {
        let header = read("{'descr': '>f8', 'fortran_order': True, 'shape': (3, 2), }").unwrap();
        assert_eq!((header.descr.as_deref(), header.fortran_order), (Some(">f8"), Some(true)));
        assert_eq!((&*header.version, header.byte_order), ("1.0", Some("big")));
        let text = read("{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }").unwrap().text();
        assert_eq!(text, ".npy version 1.0, dtype '|u1', C order; can be used in place");
    }

    #[test]
    fn what_is_odd_is_left_out() {
        let header = read("{'descr': [('a', '<f8')], 'shape': (3,), }").unwrap();
        assert_eq!((header.descr, header.fortran_order, header.byte_order), (None, None, None));
        for bytes in [&b""[..], b"\x93NUMP", b"\x93NUMPY", b"\x93NUMPY\x01", b"PK\x03\x04"] {
            assert_eq!(NpyHeader::read(bytes), None);
        }
        assert_eq!(NpyHeader::read(b"\x93NUMPY\x02\x00").unwrap().text(), ".npy version 2.0");
    }
}
