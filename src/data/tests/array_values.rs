//! Arrays of values.

use super::super::{ArrayValue, Dtype, Scalar};

fn integers(shape: &[u64]) -> ArrayValue {
    let values: Vec<_> = (0..shape.iter().product()).map(|k: u64| Scalar::I32(k as i32)).collect();
    ArrayValue::new(Dtype::I32, shape.to_vec(), &values)
}

/// The values of every dtype come back, also from bytes that do not fill a word.
#[test]
fn every_dtype_keeps_its_bits() {
    for &dtype in Dtype::ALL {
        for len in 0..20_usize {
            let bits = |k: usize| match dtype {
                Dtype::Bool => k as u64 & 1,
                _ => (k as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - 8 * dtype.size()),
            };
            let values: Vec<_> = (0..len).map(|k| Scalar::of_bits(dtype, bits(k))).collect();
            let array = ArrayValue::new(dtype, vec![len as u64], &values);
            assert_eq!((array.dtype(), array.shape(), array.len()), (dtype, &[len as u64][..], len));
            assert_eq!((array.is_empty(), array.bytes().len()), (len == 0, len * dtype.size()));
            let found: Vec<_> = array.values().map(Scalar::bits).collect();
            assert_eq!(found, (0..len).map(bits).collect::<Vec<_>>(), "{dtype}");
            assert_eq!(array.get(len), None);
            assert_eq!(array.get(usize::MAX), None);
        }
    }
}

#[test]
fn a_vector_has_the_type_of_the_values() {
    let array = ArrayValue::new(Dtype::F32, vec![3], &[1.5, -0.0, f32::NAN].map(Scalar::F32));
    let found: Vec<f32> = array.to_vec().unwrap();
    assert_eq!(found.iter().map(|value| value.to_bits()).collect::<Vec<_>>(), [0x3fc0_0000, 0x8000_0000, 0x7fc0_0000]);
    assert_eq!(array.to_vec::<f64>(), None);
    assert_eq!(array.to_vec::<i32>(), None);
    assert_eq!(bytemuck::cast_slice::<u8, f32>(array.bytes())[0], 1.5, "the bytes are aligned");
    assert_eq!(integers(&[2, 2]).to_vec(), Some(vec![0_i32, 1, 2, 3]));
}

#[test]
fn arrays_are_equal_by_their_bits() {
    let of = |values: [f64; 2]| ArrayValue::new(Dtype::F64, vec![2], &values.map(Scalar::F64));
    assert_eq!(of([f64::NAN, 0.0]), of([f64::NAN, 0.0]));
    assert_ne!(of([f64::NAN, 0.0]), of([f64::NAN, -0.0]));
    assert_ne!(integers(&[2, 3]), integers(&[3, 2]));
    assert_ne!(integers(&[1, 3]), integers(&[3]));
    let zeros = [Dtype::I64, Dtype::F64].map(|dtype| ArrayValue::new(dtype, vec![1], &[Scalar::of_bits(dtype, 0)]));
    assert_ne!(zeros[0], zeros[1]);
}

#[test]
fn the_text_is_one_line_and_abbreviated() {
    let floats = ArrayValue::new(Dtype::F64, vec![3], &[1.5, 2.0, 3.25].map(Scalar::F64));
    assert_eq!(floats.to_string(), "[1.5 2.0 3.25]");
    for (shape, text) in [
        (&[6][..], "[0 1 2 3 4 5]"),
        (&[7], "[0 1 2 ... 4 5 6]"),
        (&[1_000_000], "[0 1 2 ... 999997 999998 999999]"),
        (&[2, 2], "[[0 1] [2 3]]"),
        (&[1, 3], "[[0 1 2]]"),
        (&[7, 1], "[[0] [1] [2] ... [4] [5] [6]]"),
        (&[2, 8], "[[0 1 2 ... 5 6 7] [8 9 10 ... 13 14 15]]"),
        (&[2, 1, 2], "[[[0 1]] [[2 3]]]"),
        (&[0], "[]"),
        (&[2, 0], "[[] []]"),
        (&[], "0"),
    ] {
        let array = integers(shape);
        assert_eq!(array.to_string(), text, "{shape:?}");
    }
    let special = [f64::NAN, f64::INFINITY, -0.0].map(Scalar::F64);
    assert_eq!(ArrayValue::new(Dtype::F64, vec![3], &special).to_string(), "[NaN inf -0.0]");
    // Nothing is left out for who looks for an error.
    assert_eq!(format!("{:?}", integers(&[7])).matches("I32").count(), 7);
}
