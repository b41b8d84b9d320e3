//! Which columns hold numbers of a dtype, and which buffers of a record batch are theirs.

use crate::data::Dtype;
use crate::data::column::Values;
use arrow_ipc::{DateUnit, Field, IntervalUnit, MetadataVersion, Precision, TimeUnit, Type, UnionMode};
use std::ops::AddAssign;

/// Returns what the values of a column are.
pub(super) fn values_of(field: &Field<'_>) -> Values {
    if field.dictionary().is_some() {
        return Values::Refused("has a dictionary".into());
    }
    let dtype = match field.type_type() {
        Type::Bool => Some(Dtype::Bool),
        Type::Int => field.type_as_int().and_then(|int| match (int.bitWidth(), int.is_signed()) {
            (8, true) => Some(Dtype::I8),
            (16, true) => Some(Dtype::I16),
            (32, true) => Some(Dtype::I32),
            (64, true) => Some(Dtype::I64),
            (8, false) => Some(Dtype::U8),
            (16, false) => Some(Dtype::U16),
            (32, false) => Some(Dtype::U32),
            (64, false) => Some(Dtype::U64),
            _ => None,
        }),
        Type::FloatingPoint => field.type_as_floating_point().and_then(|float| match float.precision() {
            Precision::HALF => Some(Dtype::F16),
            Precision::SINGLE => Some(Dtype::F32),
            Precision::DOUBLE => Some(Dtype::F64),
            _ => None,
        }),
        _ => None,
    };
    if let Some(dtype) = dtype {
        return Values::Numbers(dtype);
    }
    match field.type_type() {
        Type::Timestamp => Values::Timestamps(kind(field), unit_of(field.type_as_timestamp().map(|own| own.unit()))),
        Type::Struct_ | Type::List | Type::LargeList | Type::FixedSizeList | Type::ListView | Type::LargeListView => {
            Values::Refused("is nested".into())
        }
        _ => Values::Refused(format!("is of the type {}", kind(field))),
    }
}

/// Returns the name of a type, as Arrow's libraries write it: `double`, `timestamp[ns]`, `decimal(9, 2)`.
pub(super) fn kind(field: &Field<'_>) -> String {
    if field.dictionary().is_some() {
        return "dictionary".into();
    }
    let name = match field.type_type() {
        Type::Bool => "bool",
        Type::Int => {
            let (bits, is_signed) = field.type_as_int().map_or((0, true), |int| (int.bitWidth(), int.is_signed()));
            return format!("{}{bits}", if is_signed { "int" } else { "uint" });
        }
        Type::FloatingPoint => match field.type_as_floating_point().map(|float| float.precision()) {
            Some(Precision::HALF) => "halffloat",
            Some(Precision::SINGLE) => "float",
            _ => "double",
        },
        Type::Decimal => {
            let (precision, scale) = field.type_as_decimal().map_or((0, 0), |own| (own.precision(), own.scale()));
            return format!("decimal({precision}, {scale})");
        }
        Type::Timestamp => return timed("timestamp", field.type_as_timestamp().map(|own| own.unit())),
        Type::Time => return timed("time", field.type_as_time().map(|own| own.unit())),
        Type::Duration => return timed("duration", field.type_as_duration().map(|own| own.unit())),
        Type::Date => match field.type_as_date().map(|own| own.unit()) {
            Some(DateUnit::DAY) => "date[day]",
            _ => "date[ms]",
        },
        Type::Interval => match field.type_as_interval().map(|own| own.unit()) {
            Some(IntervalUnit::YEAR_MONTH) => "interval[month]",
            Some(IntervalUnit::DAY_TIME) => "interval[day]",
            _ => "interval[ns]",
        },
        Type::Null => "null",
        Type::Utf8 => "string",
        Type::LargeUtf8 => "large_string",
        Type::Utf8View => "string_view",
        Type::Binary => "binary",
        Type::LargeBinary => "large_binary",
        Type::BinaryView => "binary_view",
        Type::FixedSizeBinary => "fixed_size_binary",
        Type::Struct_ => "struct",
        Type::List => "list",
        Type::LargeList => "large_list",
        Type::FixedSizeList => "fixed_size_list",
        Type::ListView => "list_view",
        Type::LargeListView => "large_list_view",
        Type::Map => "map",
        Type::Union => "union",
        Type::RunEndEncoded => "run_end_encoded",
        _ => "unknown",
    };
    name.into()
}

fn timed(name: &str, unit: Option<TimeUnit>) -> String {
    format!("{name}[{}]", unit_of(unit))
}

fn unit_of(unit: Option<TimeUnit>) -> &'static str {
    match unit {
        Some(TimeUnit::MILLISECOND) => "ms",
        Some(TimeUnit::MICROSECOND) => "us",
        Some(TimeUnit::NANOSECOND) => "ns",
        _ => "s",
    }
}

/// How much of the lists of a record batch belongs to some fields. The lists have an entry for every field, each one
/// before those of its children.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Extent {
    /// Entries of the list of nodes: numbers of rows and nulls.
    pub nodes: usize,
    /// Entries of the list of buffers, without those that each batch counts anew.
    pub buffers: usize,
    /// Entries of the list that counts the other buffers.
    pub counts: usize,
}

impl AddAssign for Extent {
    fn add_assign(&mut self, other: Extent) {
        self.nodes += other.nodes;
        self.buffers += other.buffers;
        self.counts += other.counts;
    }
}

/// Returns what belongs to a field and its children; `None` for a type that this version does not know.
///
/// <https://arrow.apache.org/docs/format/Columnar.html#buffer-listing-for-each-layout>
pub(super) fn extent(field: &Field<'_>, version: MetadataVersion) -> Option<Extent> {
    // In the place of values with a dictionary are integers.
    if field.dictionary().is_some() {
        return Some(Extent { nodes: 1, buffers: 2, counts: 0 });
    }
    // Before version 5, these types had a list of nulls as others have.
    let is_old = usize::from(version < MetadataVersion::V5);
    let (buffers, counts) = match field.type_type() {
        Type::Null => (0, 0),
        Type::RunEndEncoded => (is_old, 0),
        Type::Struct_ | Type::FixedSizeList => (1, 0),
        Type::Bool
        | Type::Int
        | Type::FloatingPoint
        | Type::Decimal
        | Type::Date
        | Type::Time
        | Type::Timestamp
        | Type::Duration
        | Type::Interval
        | Type::FixedSizeBinary
        | Type::List
        | Type::LargeList
        | Type::Map => (2, 0),
        Type::Utf8 | Type::LargeUtf8 | Type::Binary | Type::LargeBinary | Type::ListView | Type::LargeListView => {
            (3, 0)
        }
        Type::Utf8View | Type::BinaryView => (2, 1),
        Type::Union => {
            let is_dense = field.type_as_union().is_some_and(|own| own.mode() == UnionMode::Dense);
            (1 + usize::from(is_dense) + is_old, 0)
        }
        _ => return None,
    };
    let mut all = Extent { nodes: 1, buffers, counts };
    for child in field.children().into_iter().flatten() {
        all += extent(&child, version)?;
    }
    Some(all)
}
