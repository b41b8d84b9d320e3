//! Tests of the data module. The files that NumPy wrote, and the script that generated them, are in `tests/data`.
#![allow(clippy::unwrap_used)]

mod array_values;
#[cfg(feature = "ndarray")]
mod arrays;
#[cfg(feature = "arrow")]
mod arrow;
#[cfg(feature = "arrow")]
mod arrow_outputs;
#[cfg(any(feature = "parquet", feature = "zarr"))]
mod encoded_outputs;
mod fields;
mod files;
mod fortran;
mod headers;
mod memory;
mod npy;
mod npz;
mod outputs;
#[cfg(feature = "parquet")]
mod parquet;
mod partitions;
mod shared;
mod side_by_side;
mod sources;
#[cfg(any(feature = "arrow", feature = "parquet", feature = "zarr"))]
mod tables;
#[cfg(feature = "zarr")]
mod zarr;

use super::*;
use crate::error::{Error, Result};
use std::path::PathBuf;

#[test]
fn dtypes_are_parsed_from_their_names() {
    for &dtype in Dtype::ALL {
        assert_eq!(dtype.to_string().parse::<Dtype>().unwrap(), dtype);
    }
    for name in ["", "F64", "float64", "f128"] {
        says(name.parse::<Dtype>(), &[&format!("'{name}' is not a dtype: write one of bool i8"), "f32 f64"]);
    }
}

#[test]
fn numbers_that_are_too_large_are_no_values() {
    for (text, dtype) in [("1e5", Dtype::F16), ("-1e39", Dtype::Bf16), ("1e39", Dtype::F32), ("-1e400", Dtype::F64)] {
        assert_eq!(Scalar::parse(text, dtype), None, "{text}");
        let infinite = Scalar::parse("-inf", dtype).unwrap();
        assert_eq!((infinite.dtype(), infinite.as_f64()), (dtype, f64::NEG_INFINITY));
        assert_eq!(Scalar::parse("+Infinity", dtype).unwrap().as_f64(), f64::INFINITY);
    }
    assert_eq!(Scalar::parse("16777217", Dtype::F32), Some(Scalar::F32(16_777_216.0)), "the nearest one");
}

/// Returns the path of a file that NumPy wrote.
fn fixture(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "data", &format!("{name}.npy")].iter().collect()
}

/// Reads all rows of a source in pieces of `step` rows.
fn read_all(source: &dyn Source, step: usize) -> Vec<u8> {
    let size = source.dtype().size();
    let mut bytes = vec![0xAA; source.rows() as usize * size];
    for (i, piece) in bytes.chunks_mut(step * size).enumerate() {
        source.read((i * step) as u64, piece).unwrap();
    }
    bytes
}

/// Returns the memory of a source, checked against its number of rows and dtype.
fn memory_of(source: &dyn Source) -> Result<Option<Memory<'_>>> {
    whole_memory(source, source.dtype(), source.rows())
}

/// Asserts that an error message contains all of `parts`, in one line.
#[track_caller]
fn says<T>(result: Result<T>, parts: &[&str]) -> Error {
    let Err(error) = result else { panic!("no error, but one that says {parts:?} was expected") };
    let line = error.to_string();
    for part in parts {
        assert!(line.contains(part), "{part:?} is not in {line:?}");
    }
    assert!(!line.contains('\n'), "{line:?}");
    error
}

/// Five values of each dtype in native byte order, the same as in `generate.py`.
fn values(dtype: Dtype) -> Vec<u8> {
    macro_rules! numbers {
        ($($d:ident: $t:ty),*) => {
            match dtype {
                Dtype::Bool => vec![1, 0, 0, 1, 1],
                Dtype::F16 => {
                    bytemuck::cast_slice(&[0xfc00_u16, 0x7bff, 0x8000, 0x3e00, 0x0400]).to_vec()
                }
                Dtype::Bf16 => {
                    bytemuck::cast_slice(&[0xff80_u16, 0x7f7f, 0x8000, 0x3fc0, 0x0080]).to_vec()
                }
                Dtype::F32 => {
                    bytemuck::cast_slice(&[f32::NEG_INFINITY, f32::MAX, -0.0, 1.5, f32::MIN_POSITIVE]).to_vec()
                }
                Dtype::F64 => {
                    bytemuck::cast_slice(&[f64::NEG_INFINITY, f64::MAX, -0.0, 1.5, f64::MIN_POSITIVE]).to_vec()
                }
                $(Dtype::$d => bytemuck::cast_slice(&[<$t>::MIN, <$t>::MAX, 0, 1, 2]).to_vec(),)*
            }
        };
    }
    numbers!(I8: i8, I16: i16, I32: i32, I64: i64, U8: u8, U16: u16, U32: u32, U64: u64)
}
