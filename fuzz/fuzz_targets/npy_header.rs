//! Headers of `.npy` files. The input is the start of a file, and also the dict of a header of each version.
#![no_main]

use libfuzzer_sys::fuzz_target;
use overshot::io::NpyFields;
use overshot::testing::fuzz::{NpyHeader, npy_header};

fuzz_target!(|data: &[u8]| {
    check(data);
    for version in [1, 2, 3] {
        check(&file(version, data));
    }
});

/// Returns the start of a file of this version with this dict.
fn file(version: u8, dict: &[u8]) -> Vec<u8> {
    let len = (dict.len() as u32).to_le_bytes();
    let len = if version == 1 { &len[..2] } else { &len[..] };
    [b"\x93NUMPY", &[version, 0][..], len, dict].concat()
}

fn check(head: &[u8]) {
    check_fields(head);
    let header = match NpyHeader::parse(head) {
        Ok(header) => header,
        Err((problem, remedy)) => {
            assert!(!problem.is_empty() && !remedy.is_empty());
            return;
        }
    };
    let NpyHeader { dtype, swapped, ref shape, fortran, rows, offset, stride, in_record } = header;
    assert_eq!((stride, in_record), (dtype.size() as u64, 0));

    // The other reader of headers finds the same.
    let fields = NpyFields::parse(head).expect("a header that was accepted");
    let descr = fields.descr.expect("a plain dtype");
    let size = descr.trim_start_matches(|c: char| !c.is_ascii_digit());
    assert_eq!(size, dtype.size().to_string());
    assert_eq!(swapped, dtype.size() > 1 && descr.starts_with(if cfg!(target_endian = "big") { '<' } else { '>' }));
    assert!(fields.version == head[6] && fields.fortran_order == Some(fortran));

    // Nothing overflows that is computed from a header.
    assert!(shape.len() <= 64);
    assert!(offset <= head.len() as u64 && offset <= NpyFields::MAX_LEN);
    let product = if shape.contains(&0) { 0 } else { shape.iter().fold(1, |n: u128, len| n * u128::from(*len)) };
    assert_eq!(product, u128::from(rows));
    let end = |offset: u64| u128::from(rows) * dtype.size() as u128 + u128::from(offset);
    assert!(end(offset) <= i64::MAX as u128);

    // The header ends where it says: what follows does not matter, and every byte before does.
    assert_eq!(NpyHeader::parse(&head[..offset as usize]).as_ref(), Ok(&header));
    assert!(NpyHeader::parse(&head[..offset as usize - 1]).is_err());

    // The header that is written for these rows, in C order, is read as the same.
    let written = npy_header(dtype, rows, Some(shape));
    assert!(written.len().is_multiple_of(64));
    let offset = written.len() as u64;
    if end(offset) <= i64::MAX as u128 && extent_fits(shape, dtype.size(), offset) {
        assert_eq!(NpyHeader::parse(&written), Ok(NpyHeader { swapped: false, fortran: false, offset, ..header }));
    }
}

/// The fields of records have places in them.
fn check_fields(head: &[u8]) {
    let Some(record) = NpyFields::parse(head).and_then(|fields| fields.record) else { return };
    for field in &record.fields {
        let Ok((dtype, _)) = field.dtype else { continue };
        assert!(field.offset + dtype.size() as u64 <= record.bytes);
        // Another field may have the same name, in a header that NumPy does not write.
        if let Ok(header) = NpyHeader::parse_field(head, &field.name) {
            assert!(header.in_record + header.dtype.size() as u64 <= header.stride && header.stride == record.bytes);
            assert!(i128::from(header.rows) * i128::from(header.stride) + i128::from(header.offset) <= i64::MAX.into());
        }
    }
}

/// Returns whether the lengths other than 0 are accepted with a longer header, too.
fn extent_fits(shape: &[u64], size: usize, offset: u64) -> bool {
    let extent = shape.iter().filter(|len| **len > 0).fold(1, |n: u128, len| n * u128::from(*len));
    extent * size as u128 + u128::from(offset) <= i64::MAX as u128
}
