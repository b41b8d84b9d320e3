//! What stores say of their arrays.

use super::folder::DESCRIPTIONS;
use super::store::{file_in, names_in, state_of};
use super::{Node, opened, parts, regular};
use crate::data::{Dtype, StoredArray};
use crate::error::Result;
use serde_json::Value;
use std::path::{Path, PathBuf};
use zarrs::array::DataType;
use zarrs::plugin::{ExtensionName, ZarrVersion};

/// Groups that are in each other at most this deep are looked into.
const DEEPEST: usize = 8;

/// Describes all arrays of a group, or one array.
pub(super) fn described(path: &Path) -> Result<Vec<StoredArray>> {
    Ok(names_of(path)?.iter().map(|name| describe(path, name)).collect())
}

/// Returns the names of all arrays of a group, in order; that of an array is empty.
pub(super) fn names_of(path: &Path) -> Result<Vec<PathBuf>> {
    let mut names = Vec::new();
    find(path, PathBuf::new(), &mut names)?;
    names.sort();
    Ok(names)
}

fn find(store: &Path, own: PathBuf, names: &mut Vec<PathBuf>) -> Result<()> {
    let folder = folder_of(store, &own);
    match Node::find(&folder)? {
        Some(Node::Array) => names.push(own),
        Some(Node::Group) if own.components().count() < DEEPEST => {
            for name in names_in(&folder)? {
                find(store, own.join(name), names)?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn folder_of(store: &Path, name: &Path) -> PathBuf {
    // To join an empty name would add a slash.
    if name.as_os_str().is_empty() { store.to_owned() } else { store.join(name) }
}

fn describe(store: &Path, name: &Path) -> StoredArray {
    let folder = folder_of(store, name);
    let found = DESCRIPTIONS.iter().find_map(|own| file_in(&folder, own).ok().flatten()).unwrap_or_default();
    let described: Value = serde_json::from_slice(&found).unwrap_or_default();
    let lengths = |list: &Value| listed(list).iter().filter_map(Value::as_u64).collect::<Vec<u64>>();
    let is_v2 = described["zarr_format"] == 2;
    let mut stored = StoredArray {
        name: name.to_string_lossy().into_owned(),
        format: if is_v2 { "zarr 2" } else { "zarr 3" },
        kind: text_of(if is_v2 { &described["dtype"] } else { &described["data_type"] }),
        dtype: None,
        shape: lengths(&described["shape"]),
        chunks: vec![],
        shards: None,
        codecs: codecs(&described),
        bytes: state_of(&folder).ok().flatten().map_or(0, |(_, bytes)| bytes),
    };
    if let Ok((array, _)) = opened(&folder) {
        let outer = regular(&array);
        let parts = parts(&array);
        stored.dtype = dtype_of(array.data_type()).ok();
        stored.shards = outer.clone().filter(|_| parts.is_some());
        stored.chunks = parts.or(outer).unwrap_or_default();
    }
    stored
}

fn listed(list: &Value) -> Vec<Value> {
    list.as_array().cloned().unwrap_or_default()
}

/// Returns the name of a type, which may have parameters.
fn text_of(kind: &Value) -> String {
    let name = kind.as_str().or(kind["name"].as_str());
    name.map_or_else(|| "an unknown type".into(), str::to_owned)
}

/// Returns the names of codecs in a description.
fn codecs(described: &Value) -> Vec<String> {
    let mut names = Vec::new();
    let mut name = |codec: &Value| {
        // Blosc has several compressors.
        let (own, inner) = (codec["id"].as_str().or(codec["name"].as_str()), codec["configuration"]["cname"].as_str());
        let inner = inner.or(codec["cname"].as_str());
        names.extend(own.map(|own| inner.map_or(own.to_owned(), |inner| format!("{own} {inner}"))));
    };
    for codec in listed(&described["codecs"]) {
        name(&codec);
        listed(&codec["configuration"]["codecs"]).iter().for_each(&mut name);
    }
    listed(&described["filters"]).iter().for_each(&mut name);
    name(&described["compressor"]);
    names
}

fn kind(of: &DataType) -> String {
    of.name(ZarrVersion::V3).or(of.name(ZarrVersion::V2)).map_or_else(|| "an unknown type".into(), |name| name.into())
}

/// The dtypes, and what Zarr calls them.
const TYPES: [(&str, Dtype); 13] = [
    ("bool", Dtype::Bool),
    ("int8", Dtype::I8),
    ("int16", Dtype::I16),
    ("int32", Dtype::I32),
    ("int64", Dtype::I64),
    ("uint8", Dtype::U8),
    ("uint16", Dtype::U16),
    ("uint32", Dtype::U32),
    ("uint64", Dtype::U64),
    ("float16", Dtype::F16),
    ("bfloat16", Dtype::Bf16),
    ("float32", Dtype::F32),
    ("float64", Dtype::F64),
];

/// Returns the dtype of values; the name of their type if they have none.
pub(super) fn dtype_of(of: &DataType) -> std::result::Result<Dtype, String> {
    let kind = kind(of);
    TYPES.iter().find(|(name, _)| *name == kind).map(|(_, dtype)| *dtype).ok_or(kind)
}

/// Returns what Zarr calls a dtype.
pub(super) fn name_of(dtype: Dtype) -> Option<&'static str> {
    TYPES.iter().find(|(_, own)| *own == dtype).map(|(name, _)| *name)
}
