//! Datasets: dtypes, sources, sinks and file formats. This module knows nothing about devices.
//!
//! | read | written | what |
//! | --- | --- | --- |
//! | [`Source`], in an [`Input`] | [`Sink`], opened from a [`Target`] in an [`Output`] | the traits |
//! | `&[T]` | `&mut [T]` | slices of an [`Element`] or of `bool`, used in place |
//! | `ArrayView`, `ArcArray` | `ArrayViewMut` | arrays of ndarray, with its feature |
//! | [`Generator`] | | rows computed on demand |
//! | [`Blocks`] | | some rows of a dataset that several processes share |
//! | [`Npy`], [`Raw`] | [`NewFile`] | files |
//! | `Arrow`, `Parquet` | [`NewFile`] | columns of tables, each with its feature |
//! | `Zarr` | [`NewFile`] | arrays of Zarr stores, with its feature |
//! | [`open`], [`map()`] | [`create`] | the same by names of files; also several files as one input |
//! | [`open_column`], [`open_columns`] | | a column of a table by its name; several as one table |
//!
//! An [`ArrayValue`] is neither: it is a result, as a [`Scalar`] is.
//!
//! All `unsafe` blocks of this module are in `memory.rs` and `past_cache.rs`, except calls that pass on the contract of
//! a memory map.
//! Code that is specific to Unix is in `file.rs`, `file_rows.rs`, `direct.rs`, `unfinished_file.rs`, `shared_file.rs`,
//! `stamp.rs`, `temporary.rs`, `rights.rs`, `identity.rs`, `pattern.rs`, `folder_state.rs`, `unfinished_folder.rs`,
//! `storage.rs`, `url.rs`, `zarr/folder.rs`, `parquet/new_file.rs` and `new_file.rs`.

#[cfg(feature = "ndarray")]
mod array;
mod array_value;
#[cfg(feature = "arrow")]
mod arrow;
mod blocks;
mod bounds;
mod checksum;
mod chunk;
mod codec;
#[cfg(any(feature = "arrow", feature = "parquet"))]
mod column;
mod column_options;
mod dataset;
#[cfg(any(feature = "arrow", feature = "parquet"))]
mod decoded;
mod direct;
mod dtype;
#[cfg(any(feature = "parquet", feature = "zarr"))]
mod encoded_sink;
mod file;
mod file_layout;
mod file_map;
mod file_rows;
mod files;
mod folder_state;
mod foreign_format;
mod format;
mod fortran;
mod gate;
mod generator;
#[cfg(any(feature = "parquet", feature = "zarr"))]
mod grains;
pub(crate) mod half;
mod identity;
mod memory;
mod new_file;
#[cfg_attr(not(feature = "testing"), allow(unreachable_pub, reason = "`testing` exports what is `pub` there"))]
mod npy;
mod npz;
mod nulls;
#[cfg(feature = "parquet")]
mod parquet;
mod partition;
mod partition_folders;
mod past_cache;
mod pattern;
mod raw;
mod raw_array;
#[cfg(feature = "remote")]
mod remote;
mod replaced_file;
mod rights;
mod shards;
mod shared_file;
mod side_by_side;
mod signal_list;
mod sink;
mod slice;
mod source;
mod stamp;
mod storage;
mod stored_array;
mod table_file;
#[cfg(feature = "arrow")]
mod table_sink;
mod temporary;
#[cfg(test)]
mod tests;
mod unfinished_file;
#[cfg(feature = "zarr")]
mod unfinished_folder;
mod url;
#[cfg(feature = "zarr")]
mod zarr;

pub use array_value::ArrayValue;
#[cfg(feature = "arrow")]
pub use arrow::Arrow;
pub use blocks::Blocks;
pub use bounds::Bounds;
pub use codec::Codec;
pub use column_options::ColumnOptions;
pub use dtype::{Dtype, Element, Scalar};
pub use file::{ReadMode, length_and_head, mapped_path};
pub use folder_state::folder_state;
pub use foreign_format::{Foreign, foreign_format};
pub use format::{NamedFile, create, map, open, open_column, open_columns, open_with};
pub use generator::Generator;
pub use identity::{Clash, FileId, FileSet};
pub use memory::{Claim, Memory, SinkMemory};
pub use new_file::NewFile;
pub(crate) use new_file::{FileSink, open_all};
pub use npy::{Field as NpyField, Npy, NpyFields, Record as NpyRecord};
#[cfg(feature = "testing")]
pub use npy::{Header as NpyHeader, header as npy_header};
#[cfg(feature = "parquet")]
pub use parquet::Parquet;
pub use partition_folders::FolderKey;
pub use pattern::is_store;
pub use raw::Raw;
pub use raw_array::{RawArray, RawArrayMut};
pub use sink::{Output, Parts, Placement, Sink, Target, commit_all};
pub use source::{Input, Source};
pub use stored_array::StoredArray;
pub use table_file::{TableColumn, TableFile};
pub use temporary::remove_unfinished_outputs;
pub use url::{is_url, url_state};
#[cfg(feature = "zarr")]
pub use zarr::Zarr;

pub(crate) use array_value::ArrayPart;
pub(crate) use bounds::Unread;
pub(crate) use checksum::checksum;
pub(crate) use chunk::Chunk;
pub(crate) use direct::PIECE as DIRECT_PIECE;
pub(crate) use file::sync_names;
pub(crate) use file_layout::{FileFormat, FileLayout, shorten};
pub(crate) use files::numpy_shape;
#[cfg(test)]
pub(crate) use identity::tests::LOOKED_UP;
pub(crate) use memory::map_file;
pub(crate) use past_cache::{PastCache, copy_past_cache, until_line};
pub(crate) use replaced_file::{remove_abandoned, replace};
#[cfg(test)]
pub(crate) use shards::Nowhere;
pub(crate) use shards::{FillGuard, Shard, ShardMemory, Shards, whole_shards};
pub(crate) use shared_file::{Kept, Mark, SharedFile, Unsynced};
pub(crate) use sink::{check_fit, does_not_fit, whole_sink_memory};
pub(crate) use slice::slice_output;
pub(crate) use source::{piece_of, whole_memory};
pub(crate) use stamp::Stamp;
pub(crate) use temporary::{JOURNAL_SUFFIX, leftovers};
pub(crate) use unfinished_file::reserve;
