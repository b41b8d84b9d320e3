//! The header parser refuses everything that is not a header of a plain array, with a message, and never panics.

use super::*;
use crate::data::npy::{Header, header};
use proptest::prelude::*;

/// Returns the start of a version 1 file with this text as its header.
fn head(text: &str) -> Vec<u8> {
    [&b"\x93NUMPY\x01\x00"[..], &(text.len() as u16).to_le_bytes(), text.as_bytes()].concat()
}

#[track_caller]
fn refused(head: &[u8], part: &str) {
    let (problem, remedy) = Header::parse(head).unwrap_err();
    assert!(problem.contains(part), "{part:?} is not in {problem:?}");
    assert!(!remedy.is_empty());
}

#[test]
fn odd_but_valid_headers() {
    for text in [
        "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3)}",
        "{\"shape\":(2,3,),\"descr\":\"<f8\",\"fortran_order\":False}",
        " {\n 'shape' : ( 2L , 3L ) , 'fortran_order' : False , 'descr' : '<f8' , } \n\n",
    ] {
        let parsed = Header::parse(&head(text)).unwrap();
        assert_eq!((parsed.dtype, parsed.rows, parsed.shape.as_slice()), (Dtype::F64, 6, &[2, 3][..]));
        assert_eq!(parsed.offset, 10 + text.len() as u64);
    }
    for (order, shape) in [("True", "(3, 1)"), ("True", "(3,)"), ("False", "(3,)")] {
        let text = format!("{{'descr': '|u1', 'fortran_order': {order}, 'shape': {shape}}}");
        let parsed = Header::parse(&head(&text)).unwrap();
        assert_eq!((parsed.rows, parsed.fortran), (3, order == "True"));
    }
    for shape in ["(1152921504606846000, 0)", "(00, 3)"] {
        let text = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}");
        assert_eq!(Header::parse(&head(&text)).unwrap().rows, 0);
    }
}

/// NumPy pads by 1 to 64 blanks: by 64, where none would be needed.
#[test]
fn headers_are_padded_like_those_of_numpy() {
    let padding = |dimensions: usize| {
        let head = header(Dtype::U8, 1, Some(&vec![1; dimensions]));
        assert!(head.len().is_multiple_of(64));
        let blanks = head.iter().rev().skip(1).take_while(|byte| **byte == b' ').count();
        // The first dimension has room for 21 digits and has one.
        blanks - 20
    };
    let paddings: Vec<usize> = (1..64).map(padding).collect();
    assert!(paddings.iter().all(|padding| (1..=64).contains(padding)) && paddings.contains(&64), "{paddings:?}");
}

#[test]
fn garbage() {
    let with = |descr: &str, fortran: &str, shape: &str| {
        head(&format!("{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}"))
    };
    refused(&head(""), "a value expected at 0 but nothing found");
    refused(&head("(1, 2)"), "it is not a dict");
    refused(&head("{}"), "is missing");
    refused(&head("{'descr': '<f8', 'shape': (1,)}"), "is missing");
    refused(&head("{'descr' '<f8'}"), "':' expected at 9 but '\\'' found");
    refused(&head("{'descr': '<f8', 'descr': '<f8'}"), "'descr' twice");
    refused(&head("{'descr': '<f8', 'x': 1}"), "unexpected 'x'");
    refused(&head("{'descr': 'ü\\'', }"), "a plain string expected");
    refused(&head("{'descr': [('é', '<f8')"), "']' expected");
    refused(&head(&format!("{{'shape': {}1{}}}", "(".repeat(40), ",)".repeat(40))), "fewer brackets");
    refused(&head("{} x"), "the end expected at 3 but 'x' found");
    refused(&with("'<f8'", "0", "(1,)"), "unexpected 'fortran_order'");
    refused(&with("'<f8'", "False", "5"), "unexpected 'shape'");
    refused(&with("'<f8'", "False", "(5)"), "',' expected");
    refused(&with("'<f8'", "False", "(,)"), "a value expected");
    refused(&with("'<f8'", "False", "(-1,)"), "a value expected");
    refused(&with("'<f8'", "False", "(1.0,)"), "expected");
    refused(&with("'<f8'", "False", "(True,)"), "Bool(true) in 'shape'");
    refused(&with("'<f8'", "False", "(99999999999999999999,)"), "a number below 2^64");
    refused(&with("'<f8'", "False", "(4294967296, 4294967296)"), "is too large");
    refused(&with("'<f8'", "True", "(4294967296, 4294967296)"), "is too large");
    refused(&with("'<f8'", "False", "(1152921504606846976,)"), "is too large");
    // `numpy.load` refuses these, too.
    refused(&with("'<f8'", "False", "(0, 9223372036854775808)"), "is too large");
    refused(&with("'<f8'", "False", "(0, 1152921504606846976)"), "is too large");
    refused(&with("'<f8'", "False", "(03,)"), "does not begin with 0");
    refused(&with("'<f8'", "False", &format!("({})", "1, ".repeat(65))), "65 dimensions");
    refused(&head("\n {'descr': '<f8', 'fortran_order': False, 'shape': (1,)}"), "a line begins with whitespace");
    let mut third = [&b"\x93NUMPY\x03\x00"[..], &[60, 0, 0, 0]].concat();
    third.extend(b"{'descr': '<f8', 'fortran_order': False, 'shape': (3L,)}    ");
    refused(&third, "expected at 52 but 'L' found");
    refused(&with("1", "False", "(1,)"), "'descr' is Integer(1)");
    refused(&with("'f8'", "False", "(1,)"), "no byte order");
    refused(&with("'|f8'", "False", "(1,)"), "no byte order");
    refused(&with("''", "False", "(1,)"), "an unknown dtype");
    refused(&with("'<q8'", "False", "(1,)"), "an unknown dtype");
    refused(&with("'ÿ1'", "False", "(1,)"), "an unknown dtype");
    refused(&with("('<f8', (2,))", "False", "(1,)"), "structured");
}

#[test]
fn odd_versions_and_lengths() {
    let mut other = head("{}");
    other[6] = 4;
    refused(&other, "version 4.0");
    for major in 1..4 {
        (other[6], other[7]) = (major, 1);
        refused(&other, &format!("version {major}.1"));
    }
    refused(b"\x93NUMPY\x02\x00\xff\xff\xff\xff{}", "4294967295 bytes long");
    refused(b"\x93NUMPY\x01\x00\xff\xff{}", "65535 bytes long");
    refused(b"\x93NUMPY\x03\x00\x02\x00\0\0\xff\xfe", "is not text");
}

fn dtypes() -> impl Strategy<Value = Dtype> {
    prop::sample::select(Dtype::ALL).prop_filter("NumPy has no bf16", |dtype| *dtype != Dtype::Bf16)
}

proptest! {
    #[test]
    fn what_is_written_is_read(dtype in dtypes(), shape in prop::collection::vec(0u64..2000, 0..5)) {
        let rows = shape.iter().product();
        let bytes = header(dtype, rows, Some(&shape));
        prop_assert_eq!(bytes.len() % 64, 0);
        let offset = bytes.len() as u64;
        let stride = dtype.size() as u64;
        let expected = Header { dtype, swapped: false, shape, fortran: false, rows, offset, stride, in_record: 0 };
        prop_assert_eq!(Header::parse(&bytes).unwrap(), expected);
    }

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Header::parse(&bytes);
        let _ = Header::parse(&[b"\x93NUMPY\x01\x00", &bytes[..]].concat());
        let _ = Header::parse(&[b"\x93NUMPY\x03\x00\x40\0\0\0", &bytes[..]].concat());
    }

    #[test]
    fn any_text_of_the_right_letters(text in r#"[{}()\[\]'",: 0-9L<f8büTrueFalsedscohp_\\-]{0,80}"#) {
        let _ = Header::parse(&head(&text));
        let _ = Header::parse(&head(&format!("{{'descr': {text}")));
        let _ = Header::parse(&head(&format!("{{'descr': '<f8', 'fortran_order': False, 'shape': ({text}")));
    }

    #[test]
    fn any_damage(dtype in dtypes(), at in 0usize..128, byte: u8, cut in 0usize..=128) {
        let mut bytes = header(dtype, 1000, Some(&[10, 100]));
        bytes[at] = byte;
        if let Ok(parsed) = Header::parse(&bytes) {
            // Whatever the header says now, its rows can be counted.
            let end = parsed.offset + parsed.rows * parsed.dtype.size() as u64;
            prop_assert!(end <= i64::MAX as u64);
        }
        let _ = Header::parse(&bytes[..cut]);
    }
}
