//! What stores say of their arrays.

use super::{Node, opened};
use crate::data::{Dtype, StoredArray};
use crate::error::Result;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use zarrs::array::{ArrayShardedExt, DataType};
use zarrs::plugin::{ExtensionName, ZarrVersion};

/// Groups that are in each other at most this deep are looked into.
const DEEPEST: usize = 8;

/// Describes all arrays of a group, or one array.
pub(super) fn described(path: &Path) -> Result<Vec<StoredArray>> {
    let mut names = Vec::new();
    find(path, PathBuf::new(), &mut names);
    names.sort();
    names.iter().map(|name| describe(path, name)).collect()
}

fn find(store: &Path, own: PathBuf, names: &mut Vec<PathBuf>) {
    // To join an empty name would add a slash.
    let folder = if own.as_os_str().is_empty() { store.to_owned() } else { store.join(&own) };
    match Node::of(&folder) {
        Some(Node::Array) => names.push(own),
        Some(Node::Group) if own.components().count() < DEEPEST => {
            let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
            entries.for_each(|entry| find(store, own.join(entry.file_name()), names));
        }
        _ => {}
    }
}

fn describe(store: &Path, name: &Path) -> Result<StoredArray> {
    let path = if name.as_os_str().is_empty() { store.to_owned() } else { store.join(name) };
    let array = opened(&path)?;
    let lengths = |shape: Vec<std::num::NonZeroU64>| shape.iter().map(|length| length.get()).collect::<Vec<u64>>();
    let outer = super::regular(&path, &array).map(lengths).unwrap_or_default();
    let (chunks, shards) = match array.effective_subchunk_shape() {
        Some(parts) => (lengths(parts), Some(outer)),
        None => (outer, None),
    };
    let described = serde_json::to_value(array.metadata()).unwrap_or_default();
    Ok(StoredArray {
        name: name.to_string_lossy().into_owned(),
        format: if described["zarr_format"] == 2 { "zarr 2" } else { "zarr 3" },
        kind: kind(array.data_type()),
        dtype: dtype_of(array.data_type()).ok(),
        shape: array.shape().to_vec(),
        chunks,
        shards,
        codecs: codecs(&described),
        bytes: super::state(&path).map_or(0, |(_, bytes)| bytes),
    })
}

/// Returns the names of codecs in a description.
fn codecs(described: &Value) -> Vec<String> {
    let listed = |list: &Value| list.as_array().cloned().unwrap_or_default();
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

/// Returns the dtype of values; the name of their type if they have none.
pub(super) fn dtype_of(of: &DataType) -> std::result::Result<Dtype, String> {
    let kind = kind(of);
    Ok(match &*kind {
        "bool" => Dtype::Bool,
        "int8" => Dtype::I8,
        "int16" => Dtype::I16,
        "int32" => Dtype::I32,
        "int64" => Dtype::I64,
        "uint8" => Dtype::U8,
        "uint16" => Dtype::U16,
        "uint32" => Dtype::U32,
        "uint64" => Dtype::U64,
        "float16" => Dtype::F16,
        "bfloat16" => Dtype::Bf16,
        "float32" => Dtype::F32,
        "float64" => Dtype::F64,
        _ => return Err(kind),
    })
}
