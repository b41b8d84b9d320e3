//! The bounds of a column, from the statistics of its row groups and pages.

use super::bytes::FileBytes;
use crate::data::{Bounds, Dtype, Scalar};
use parquet::basic::ColumnOrder;
use parquet::errors::Result;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::file::page_index::column_index::{ColumnIndexMetaData, PrimitiveColumnIndex};
use parquet::file::page_index::index_reader::{decode_column_index, decode_offset_index};
use parquet::file::reader::ChunkReader;
use parquet::file::statistics::Statistics;
use std::cmp::Ordering::{Equal, Greater, Less};
use std::ops::Range;

/// A column whose statistics are read.
pub(super) struct Statistical<'c> {
    pub(super) file: &'c FileBytes,
    pub(super) metadata: &'c ParquetMetaData,
    /// The place among the columns of a row group.
    pub(super) index: usize,
    pub(super) dtype: Dtype,
    /// What is read in the place of nulls.
    pub(super) null: Option<Scalar>,
}

/// The least and the greatest value of some rows, where they are known.
struct Extremes {
    least: Option<Scalar>,
    greatest: Option<Scalar>,
    /// Whether some rows may be null.
    may_be_null: bool,
    /// Whether all are.
    are_null: bool,
}

impl Statistical<'_> {
    /// Returns the bounds of pages, where the file has an index of them, and of row groups. These are the row groups
    /// with rows and their first rows.
    pub(super) fn bounds(&self, groups: &[usize], firsts: &[u64], rows: u64) -> Result<Vec<Bounds>> {
        let mut all = Vec::new();
        if !self.has_order() {
            return Ok(all);
        }
        let chunks = || groups.iter().map(|group| self.metadata.row_group(*group).column(self.index));
        for (place, (chunk, first)) in chunks().zip(firsts).enumerate() {
            let own = *first..firsts.get(place + 1).copied().unwrap_or(rows);
            match self.of_pages(chunk, &own)? {
                Some(pages) => all.extend(pages),
                None => {
                    let extremes = chunk.statistics().and_then(|own| self.of_group(own));
                    all.extend(extremes.and_then(|extremes| self.bounds_of(own, extremes)));
                }
            }
        }
        Ok(all)
    }

    /// Returns whether the order of the values is that of their dtype.
    fn has_order(&self) -> bool {
        match self.metadata.file_metadata().column_orders().and_then(|orders| orders.get(self.index)) {
            Some(ColumnOrder::TYPE_DEFINED_ORDER(_)) => true,
            Some(ColumnOrder::IEEE_754_TOTAL_ORDER) => self.dtype.is_float(),
            // Old files compare all values as signed ones, and writers did not agree about floats.
            None | Some(ColumnOrder::UNDEFINED) => self.dtype.is_signed(),
            Some(_) => false,
        }
    }

    /// Returns the bounds of the pages of a row group with these rows; `None` if the file has no index of them.
    fn of_pages(&self, chunk: &ColumnChunkMetaData, rows: &Range<u64>) -> Result<Option<Vec<Bounds>>> {
        let (Some(of_values), Some(of_places)) = (chunk.column_index_range(), chunk.offset_index_range()) else {
            return Ok(None);
        };
        // A server would be asked twice for each file, and pages that are skipped come with those between them.
        if self.file.is_remote() {
            return Ok(None);
        }
        let bytes = |range: Range<u64>| {
            let len = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
            self.file.get_bytes(range.start, len)
        };
        let values = decode_column_index(&bytes(of_values)?, chunk.column_type())?;
        let places = decode_offset_index(&bytes(of_places)?)?;
        let firsts = places.page_locations().iter().map(|page| u64::try_from(page.first_row_index).ok());
        let Some(firsts) = firsts.collect::<Option<Vec<u64>>>() else { return Ok(None) };
        let len = rows.end - rows.start;
        let are_places = firsts.first() == Some(&0) && firsts.is_sorted() && firsts.last() < Some(&len);
        if !are_places || values.num_pages() != firsts.len() as u64 {
            return Ok(None);
        }
        let page = |(page, first): (usize, &u64)| {
            let end = firsts.get(page + 1).copied().unwrap_or(len);
            let own = rows.start + first..rows.start + end;
            if own.is_empty() { None } else { self.bounds_of(own, self.of_page(&values, page)) }
        };
        Ok(Some(firsts.iter().enumerate().filter_map(page).collect()))
    }

    fn of_group(&self, statistics: &Statistics) -> Option<Extremes> {
        // As the order of old files.
        if statistics.is_min_max_deprecated() && !self.dtype.is_signed() {
            return None;
        }
        let (least, greatest) = (statistics.min_bytes_opt(), statistics.max_bytes_opt());
        Some(Extremes {
            least: least.and_then(|bytes| self.value(bytes)),
            greatest: greatest.and_then(|bytes| self.value(bytes)),
            may_be_null: statistics.null_count_opt() != Some(0),
            are_null: false,
        })
    }

    fn of_page(&self, index: &ColumnIndexMetaData, page: usize) -> Extremes {
        let (least, greatest) = match index {
            ColumnIndexMetaData::BOOLEAN(own) => self.of_numbers(own, page, |value| [u8::from(*value)]),
            ColumnIndexMetaData::INT32(own) => self.of_numbers(own, page, |value| value.to_le_bytes()),
            ColumnIndexMetaData::INT64(own) => self.of_numbers(own, page, |value| value.to_le_bytes()),
            ColumnIndexMetaData::FLOAT(own) => self.of_numbers(own, page, |value| value.to_le_bytes()),
            ColumnIndexMetaData::DOUBLE(own) => self.of_numbers(own, page, |value| value.to_le_bytes()),
            ColumnIndexMetaData::FIXED_LEN_BYTE_ARRAY(own) => {
                let value = |bytes: Option<&[u8]>| bytes.and_then(|bytes| self.value(bytes));
                (value(own.min_value(page)), value(own.max_value(page)))
            }
            ColumnIndexMetaData::BYTE_ARRAY(_) | ColumnIndexMetaData::INT96(_) => (None, None),
        };
        let may_be_null = index.null_count(page) != Some(0);
        Extremes { least, greatest, may_be_null, are_null: index.is_null_page(page) }
    }

    fn of_numbers<T, const N: usize>(
        &self,
        index: &PrimitiveColumnIndex<T>,
        page: usize,
        bytes: impl Fn(&T) -> [u8; N],
    ) -> (Option<Scalar>, Option<Scalar>) {
        let value = |value: Option<&T>| value.and_then(|value| self.value(&bytes(value)));
        (value(index.min_value(page)), value(index.max_value(page)))
    }

    /// Returns a value of the column as statistics have it; `None` if it is none of the dtype.
    fn value(&self, bytes: &[u8]) -> Option<Scalar> {
        let len = match self.dtype {
            Dtype::Bool => 1,
            Dtype::F16 => 2,
            Dtype::I64 | Dtype::U64 | Dtype::F64 => 8,
            // Narrow integers are stored as those of 32 bits.
            _ => 4,
        };
        let mut word = [0; 8];
        word.get_mut(..len).filter(|_| bytes.len() == len)?.copy_from_slice(bytes);
        let bits = u64::from_le_bytes(word);
        let value = Scalar::of_bits(self.dtype, bits);
        let stored = match self.dtype.is_signed() {
            true => i128::from(bits as i32),
            false => i128::from(bits as u32),
        };
        let fits = self.dtype.size() >= 4 || value.as_int().is_none_or(|own| own == stored);
        fits.then_some(value)
    }

    /// Returns the bounds of some rows; `None` if there are none on one of the sides.
    fn bounds_of(&self, rows: Range<u64>, extremes: Extremes) -> Option<Bounds> {
        let Extremes { least, greatest, may_be_null, are_null } = extremes;
        // NaN has no place in the order, also if it is in the place of nulls.
        let null = self.null.filter(|null| null.order(*null).is_some());
        let (mut least, mut greatest) = match (are_null, null) {
            (true, null) => (null?, null?),
            _ => (least?, greatest?),
        };
        if may_be_null {
            // Nulls without a value are an error when they are read.
            self.null?;
            least = null.filter(|null| null.order(least) == Some(Less)).unwrap_or(least);
            greatest = null.filter(|null| null.order(greatest) == Some(Greater)).unwrap_or(greatest);
        }
        let is_range = matches!(least.order(greatest), Some(Less | Equal));
        is_range.then_some(Bounds { rows, least, greatest })
    }
}
