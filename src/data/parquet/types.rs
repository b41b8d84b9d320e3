//! Which columns hold numbers of a dtype.

use crate::data::Dtype;
use crate::data::column::Values;
use parquet::basic::{ConvertedType, LogicalType, TimeUnit, Type};
use parquet::schema::types::ColumnDescriptor;

/// Returns what the values of a column are.
pub(super) fn values_of(descr: &ColumnDescriptor) -> Values {
    if descr.max_rep_level() > 0 || descr.path().parts().len() > 1 {
        return Values::Refused("is nested".into());
    }
    let number = match (descr.physical_type(), descr.logical_type_ref(), descr.converted_type()) {
        (Type::BOOLEAN, None, ConvertedType::NONE) => Some(Dtype::Bool),
        (Type::FLOAT, None, ConvertedType::NONE) => Some(Dtype::F32),
        (Type::DOUBLE, None, ConvertedType::NONE) => Some(Dtype::F64),
        (Type::FIXED_LEN_BYTE_ARRAY, Some(LogicalType::Float16), _) if descr.type_length() == 2 => Some(Dtype::F16),
        (Type::INT32, None, ConvertedType::NONE) => Some(Dtype::I32),
        (Type::INT64, None, ConvertedType::NONE) => Some(Dtype::I64),
        (physical @ (Type::INT32 | Type::INT64), Some(LogicalType::Integer(int)), _) => {
            integer(physical, int.bit_width, int.is_signed)
        }
        (physical @ (Type::INT32 | Type::INT64), None, converted) => match converted {
            ConvertedType::INT_8 => integer(physical, 8, true),
            ConvertedType::INT_16 => integer(physical, 16, true),
            ConvertedType::INT_32 => integer(physical, 32, true),
            ConvertedType::INT_64 => integer(physical, 64, true),
            ConvertedType::UINT_8 => integer(physical, 8, false),
            ConvertedType::UINT_16 => integer(physical, 16, false),
            ConvertedType::UINT_32 => integer(physical, 32, false),
            ConvertedType::UINT_64 => integer(physical, 64, false),
            _ => None,
        },
        _ => None,
    };
    match (number, unit_of(descr)) {
        (Some(dtype), _) => Values::Numbers(dtype),
        (None, Some(unit)) => Values::Timestamps(kind(descr), unit),
        (None, None) => Values::Refused(format!("is of the type {}", kind(descr))),
    }
}

/// Returns the unit of timestamps of 64 bits. Those of 96 bits have two parts.
fn unit_of(descr: &ColumnDescriptor) -> Option<&'static str> {
    let unit = match (descr.logical_type_ref(), descr.converted_type()) {
        (Some(LogicalType::Timestamp(time)), _) => match time.unit {
            TimeUnit::MILLIS => "ms",
            TimeUnit::MICROS => "us",
            TimeUnit::NANOS => "ns",
        },
        (None, ConvertedType::TIMESTAMP_MILLIS) => "ms",
        (None, ConvertedType::TIMESTAMP_MICROS) => "us",
        _ => return None,
    };
    (descr.physical_type() == Type::INT64).then_some(unit)
}

/// Returns the dtype of integers with so many bits.
fn integer(physical: Type, bits: i8, is_signed: bool) -> Option<Dtype> {
    match (physical, bits, is_signed) {
        (Type::INT32, 8, true) => Some(Dtype::I8),
        (Type::INT32, 16, true) => Some(Dtype::I16),
        (Type::INT32, 32, true) => Some(Dtype::I32),
        (Type::INT64, 64, true) => Some(Dtype::I64),
        (Type::INT32, 8, false) => Some(Dtype::U8),
        (Type::INT32, 16, false) => Some(Dtype::U16),
        (Type::INT32, 32, false) => Some(Dtype::U32),
        (Type::INT64, 64, false) => Some(Dtype::U64),
        _ => None,
    }
}

/// Returns the name of a type, as a user of the format knows it: `double`, `string`, `decimal(9, 2)`.
pub(super) fn kind(descr: &ColumnDescriptor) -> String {
    let physical = || match descr.physical_type() {
        Type::FIXED_LEN_BYTE_ARRAY => format!("fixed_len_byte_array({})", descr.type_length()),
        physical => physical.to_string().to_ascii_lowercase(),
    };
    match (descr.logical_type_ref(), descr.converted_type()) {
        (Some(LogicalType::Integer(int)), _) => {
            format!("{}{}", if int.is_signed { "int" } else { "uint" }, int.bit_width)
        }
        (Some(LogicalType::Decimal(decimal)), _) => format!("decimal({}, {})", decimal.precision, decimal.scale),
        (Some(LogicalType::Timestamp(time)), _) => format!("timestamp({:?})", time.unit).to_ascii_lowercase(),
        (Some(LogicalType::Time(time)), _) => format!("time({:?})", time.unit).to_ascii_lowercase(),
        (Some(logical), _) => format!("{logical:?}").to_ascii_lowercase(),
        (None, ConvertedType::NONE) => physical(),
        (None, converted) => converted.to_string().to_ascii_lowercase(),
    }
}
