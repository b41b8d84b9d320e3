//! The pages of a column of a row group, with the checks that the crate parquet leaves out. It panics, or takes much
//! more memory than the file has bytes, if a damaged header says what these pages cannot hold.

use super::bytes::FileBytes;
use parquet::basic::{Encoding, Type};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::schema::types::ColumnDescriptor;

/// Reads pages, and refuses those that contradict themselves.
pub(super) struct CheckedPages {
    pages: SerializedPageReader<FileBytes>,
    /// The bytes of a value; `None` for bits.
    value_bytes: Option<usize>,
    /// Whether rows may be null, which have a level then.
    has_levels: bool,
    has_dictionary: bool,
}

impl CheckedPages {
    pub(super) fn new(pages: SerializedPageReader<FileBytes>, descr: &ColumnDescriptor) -> CheckedPages {
        let value_bytes = match descr.physical_type() {
            Type::BOOLEAN => None,
            Type::INT32 | Type::FLOAT => Some(4),
            Type::FIXED_LEN_BYTE_ARRAY => usize::try_from(descr.type_length()).ok(),
            _ => Some(8),
        };
        CheckedPages { pages, value_bytes, has_levels: descr.max_def_level() > 0, has_dictionary: false }
    }

    fn check(&mut self, page: &Page) -> Result<()> {
        let wrong = |what: &str| Err(ParquetError::General(format!("a page {what}")));
        let (buf, count, encoding) = match page {
            Page::DictionaryPage { buf, num_values, .. } => {
                let needed = self.value_bytes.map(|bytes| bytes.saturating_mul(*num_values as usize));
                self.has_dictionary = true;
                return match needed {
                    Some(needed) if needed > buf.len() => wrong("has a dictionary that is too short"),
                    _ => Ok(()),
                };
            }
            Page::DataPage { buf, num_values, encoding, def_level_encoding, .. } => {
                #[allow(deprecated, reason = "old files have it")]
                let is_packed = self.has_levels && *def_level_encoding == Encoding::BIT_PACKED;
                if is_packed && (*num_values as usize).div_ceil(8) > buf.len() {
                    return wrong("has too few levels");
                }
                (buf, *num_values as usize, *encoding)
            }
            Page::DataPageV2 {
                buf,
                num_values,
                encoding,
                num_nulls,
                def_levels_byte_len,
                rep_levels_byte_len,
                is_compressed,
                ..
            } => {
                let levels = u64::from(*def_levels_byte_len) + u64::from(*rep_levels_byte_len);
                if levels > buf.len() as u64 {
                    return wrong("is shorter than its levels");
                }
                // Some old writers say of compressed pages that they are not. The values would be other ones.
                let values = u64::from(num_values.saturating_sub(*num_nulls)) * self.value_bytes.unwrap_or(0) as u64;
                let is_plain = *encoding == Encoding::PLAIN && self.value_bytes.is_some();
                if is_plain && !is_compressed && buf.len() as u64 - levels != values {
                    return wrong("has another number of bytes than its values");
                }
                (buf, *num_values as usize, *encoding)
            }
        };
        let needed = self.value_bytes.map_or(0, |bytes| bytes.saturating_mul(count));
        #[allow(deprecated, reason = "old files have it")]
        match encoding {
            Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY if !self.has_dictionary => wrong("has no dictionary"),
            // Null rows have no value.
            Encoding::BYTE_STREAM_SPLIT if !self.has_levels && needed > buf.len() => wrong("has too few values"),
            _ => Ok(()),
        }
    }

    fn checked(&mut self, page: Result<Option<Page>>) -> Result<Option<Page>> {
        let page = page?;
        page.as_ref().map_or(Ok(()), |page| self.check(page))?;
        Ok(page)
    }
}

impl Iterator for CheckedPages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Result<Page>> {
        self.get_next_page().transpose()
    }
}

impl PageReader for CheckedPages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let page = self.pages.get_next_page();
        self.checked(page)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        // A dictionary that is skipped is read later.
        self.has_dictionary |= self.pages.peek_next_page()?.is_some_and(|page| page.is_dict);
        self.pages.skip_next_page()
    }

    fn supports_deferred_dictionary(&self) -> bool {
        self.pages.supports_deferred_dictionary()
    }

    fn take_deferred_dictionary(&mut self) -> Result<Option<Page>> {
        let page = self.pages.take_deferred_dictionary();
        self.checked(page)
    }

    fn at_record_boundary(&mut self) -> Result<bool> {
        self.pages.at_record_boundary()
    }
}
